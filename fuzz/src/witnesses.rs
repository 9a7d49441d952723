//! What the independent checker reads: stamped sectors, and the writers' log.

use witness::stamp::{Reading, Stamp};
use witness::{History, Recorder, RunId, SECTOR_BYTES, VolumeId, WriteName, WriterId};

use crate::Seed;

fn sample() -> Vec<u8> {
    let stamp = Stamp {
        run: RunId(7),
        name: WriteName { writer: WriterId(3), number: 41 },
        volume: VolumeId(2),
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
    if let Reading::Stamped(stamp) = Stamp::read(&sector) {
        let mut again = vec![0; SECTOR_BYTES];
        stamp.write(&mut again);
        assert_eq!(Stamp::read(&again), Reading::Stamped(stamp));
    }
}

pub fn stamp_seeds() -> Vec<Seed> {
    vec![("whole", sample()), ("header", sample()[..64].to_vec())]
}

/// Rule: a log is read, or the line that makes no sense is named.
pub fn writers_log(bytes: &[u8]) {
    match History::read(bytes) {
        Ok(history) => assert!(history.writes.len() <= bytes.len()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

pub fn writers_log_seeds() -> Vec<Seed> {
    let place = std::env::temp_dir().join(format!("farshore-fuzz-log-{}", std::process::id()));
    let recorder = Recorder::with_file(RunId(0xbeef), &place).expect("a log can be made");
    let first = recorder.issue(WriterId(1), VolumeId(0), 4096, 1024);
    let second = recorder.issue(WriterId(2), VolumeId(1), 0, 512);
    recorder.acknowledge(second);
    recorder.fail(first);
    recorder.saved().expect("a log can be written");
    let text = std::fs::read(&place).expect("it is there");
    // It has served; whoever cleans up the folder of temporary files would find it too.
    let _ = std::fs::remove_file(&place);
    vec![("two_writers", text)]
}
