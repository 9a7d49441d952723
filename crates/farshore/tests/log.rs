//! A log that cannot be written, or that nobody reads, is no reason to stop: daemons start, serve and replicate beside it.

use std::fs::{File, OpenOptions};
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::common::{GROUP, Pair, PairPlan, SERVES_ALONE, Side};

const VOLUMES: &[&str] = &["data"];
/// Any daemon says it when it starts.
const FIRST_LINE: &str = "runs; its control socket is";

/// Serves both nodes with logs of the test's own, and mirrors through them to the end.
fn replicates(mut logs: impl FnMut(Side) -> Stdio) -> Pair {
    let mut pair = Pair::new(&PairPlan { volumes: VOLUMES, ..PairPlan::default() });
    Side::BOTH.into_iter().for_each(|node| pair.serve_with_log(node, logs(node)));
    pair.sync_fully(Side::Near);
    pair.qemu_io(Side::Near, VOLUMES[0], &["write -P 7 0 1M", "flush", "read -P 7 0 1M"]);
    // Each says something of it, on both nodes.
    for _ in 0..3 {
        pair.done(Side::Near, &["logging", GROUP]);
        pair.done(Side::Near, &["sync", GROUP, "--wait"]);
    }
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(VOLUMES);
    pair
}

#[test]
fn a_full_disk_beneath_the_log() {
    let full = |_| OpenOptions::new().write(true).open("/dev/full").expect("Linux has it").into();
    let mut pair = replicates(full);
    pair.serve_with_log(Side::Near, full(Side::Near));
    pair.until("status counts what is lost", |pair| {
        let said = String::from_utf8_lossy(&pair.run(Side::Near, &["status"]).stdout).into_owned();
        ["lines of this daemon's log", "were not written"].iter().all(|words| said.contains(words))
    });
    assert!(pair.stop(Side::Near).success());
}

#[test]
fn a_log_whose_reader_is_gone() {
    replicates(|_| pipe().expect("a pipe").1.into());
}

/// A pipe that takes nothing more.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().expect("a pipe");
    let flags = fcntl_getfl(&writer).expect("a pipe has flags");
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).expect("flags can be set");
    while writer.write(b".").is_ok() {}
    fcntl_setfl(&writer, flags).expect("flags can be set");
    (reader, writer)
}

#[test]
fn a_log_that_nobody_reads() {
    let mut readers = Vec::new();
    replicates(|_| {
        let (reader, writer) = full_pipe();
        readers.push(reader);
        writer.into()
    });
}

/// The reader stood still while the daemon was busy, and came back.
#[test]
fn what_an_unread_log_lost_is_reported_when_it_is_read_again() {
    let mut pair = Pair::new(&PairPlan { volumes: VOLUMES, group: SERVES_ALONE, ..PairPlan::default() });
    let (mut reader, writer) = pipe().expect("a pipe");
    pair.serve_loudly(Side::Near, writer.into());
    // A line each: more than may wait.
    for _ in 0..30_000 {
        UnixStream::connect(pair.path("near/state/nbd.sock")).expect("the daemon listens");
    }
    pair.qemu_io(Side::Near, VOLUMES[0], &["write 0 64k"]);
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).map(|_| text).expect("a log is text")
    });
    assert!(pair.stop(Side::Near).success());
    let text = reading.join().expect("the log ends with its daemon");
    let missing = text.matches("lines of this log are missing here: they came faster").count();
    assert!(text.contains(FIRST_LINE) && missing > 0, "{} bytes, {missing} gaps", text.len());
    assert!(text.ends_with("stopped\n"), "what came last was not lost");
}

/// One client that is cut off again and again is told of once.
#[test]
fn a_client_cannot_fill_the_log() {
    let mut pair = Pair::new(&PairPlan { volumes: VOLUMES, group: SERVES_ALONE, ..PairPlan::default() });
    pair.serve(Side::Near);
    let socket = pair.path("near/state/nbd.sock");
    for _ in 0..50 {
        let mut client = UnixStream::connect(&socket).expect("the daemon listens");
        client.read_exact(&mut [0; 18]).expect("a greeting");
        // Fixed newstyle, no zeroes; NBD_OPT_EXPORT_NAME; then a request that is none.
        let name = format!("{GROUP}/{}", VOLUMES[0]);
        let mut said = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &1u32.to_be_bytes()].concat();
        said.extend((name.len() as u32).to_be_bytes());
        said.extend(name.as_bytes());
        client.write_all(&said).expect("the daemon reads");
        client.read_exact(&mut [0; 10]).expect("the export's size and flags");
        client.write_all(&[0xee; 28]).expect("the daemon reads");
        // To the end: whatever it answers.
        let _ = client.read_to_end(&mut Vec::new());
    }
    // NBD_OPT_EXPORT_NAME of what there is not: another name each time.
    for number in 0..50 {
        let mut client = UnixStream::connect(&socket).expect("the daemon listens");
        client.read_exact(&mut [0; 18]).expect("a greeting");
        let name = format!("no-such-{number:02}");
        let option = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &1u32.to_be_bytes(), &10u32.to_be_bytes()].concat();
        client.write_all(&[&option, name.as_bytes()].concat()).expect("the daemon reads");
        assert_eq!(client.read_to_end(&mut Vec::new()).expect("it hangs up"), 0, "there is no answer to that");
    }
    pair.stop(Side::Near);
    let log = pair.log(Side::Near);
    assert_eq!(log.matches("was cut off").count(), 1, "{log}");
    assert!(log.matches("no-such-").count() <= 1, "{log}");
}

#[test]
fn a_daemon_that_logs_to_a_file_says_what_it_said() {
    let mut pair = Pair::new(&PairPlan { volumes: VOLUMES, ..PairPlan::default() });
    let log = pair.path("own.log");
    pair.serve_with_log(Side::Near, File::create(&log).expect("a log").into());
    assert!(pair.stop(Side::Near).success());
    let log = std::fs::read_to_string(log).expect("a log");
    assert!(log.contains(FIRST_LINE) && log.ends_with("stopped\n") && !log.contains("missing"), "{log}");
}
