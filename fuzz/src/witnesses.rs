//! What the independent checker reads: stamped sectors, and the writers' log.

use witness::stamp::{SectorReading, SectorStamp};
use witness::{RunId, SECTOR_BYTES, VolumeNumber, WriteHistory, WriteName, WriteRecorder, WriterId};

use crate::Seed;

fn sample() -> Vec<u8> {
    let stamp = SectorStamp {
        run: RunId(7),
        name: WriteName { writer: WriterId(3), number: 41 },
        volume: VolumeNumber(2),
        issued: 900,
        sector: 77,
        sectors: 8,
        index: 5,
    };
    let mut sector = vec![0; SECTOR_BYTES];
    stamp.write(&mut sector);
    sector
}

/// Rule: a sector that is believed says what its writer would write again.
pub fn stamp(bytes: &[u8]) {
    let mut sector = bytes.to_vec();
    sector.resize(SECTOR_BYTES, 0);
    if let SectorReading::Stamped(stamp) = SectorStamp::read(&sector) {
        let mut again = vec![0; SECTOR_BYTES];
        stamp.write(&mut again);
        assert_eq!(SectorStamp::read(&again), SectorReading::Stamped(stamp));
    }
}

pub fn stamp_seeds() -> Vec<Seed> {
    vec![("whole", sample()), ("header", sample()[..64].to_vec())]
}

/// Rule: a log is read, or the line that makes no sense is named.
pub fn writers_log(bytes: &[u8]) {
    match WriteHistory::read(bytes) {
        Ok(history) => assert!(history.writes.len() <= bytes.len()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

pub fn writers_log_seeds() -> Vec<Seed> {
    let path = std::env::temp_dir().join(format!("farshore-fuzz-log-{}", std::process::id()));
    let recorder = WriteRecorder::with_file(RunId(0xbeef), &path).expect("a log can be made");
    let first = recorder.issue(WriterId(1), VolumeNumber(0), 4096, 1024);
    let second = recorder.issue(WriterId(2), VolumeNumber(1), 0, 512);
    recorder.acknowledge(second);
    recorder.fail(first);
    recorder.saved().expect("a log can be written");
    let text = std::fs::read(&path).expect("it is there");
    // It has served; whoever cleans up the folder of temporary files would find it too.
    let _ = std::fs::remove_file(&path);
    vec![("two_writers", text)]
}
