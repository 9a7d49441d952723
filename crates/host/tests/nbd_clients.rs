//! The NBD server under the clients people use, unmodified. Each test ends with a look at the server's counters: the
//! commands a client is known to send must have arrived, or the test shows less than it claims.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command as Program;

use crate::nbd_support::*;
use host::nbd::proto::NbdCommand;

/// Runs a client to its end and returns what it printed.
fn run(program: &str, arguments: &[&str]) -> String {
    let (code, text) = run_any(program, arguments);
    assert_eq!(code, Some(0), "{program} {arguments:?} failed:\n{text}");
    text
}

/// On a sparse file, answers out of order: the least comfortable server.
fn files() -> ServerSetup {
    ServerSetup { files: true, pace: AnswerPace::Reversed, ..ServerSetup::default() }
}

/// A file with data and holes.
fn sample(path: &Path, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; 64 << 20];
    let mut random = NbdRandom(seed);
    for _ in 0..40 {
        let at = random.below(15000) as usize * 4096;
        let length = 1 + random.below(100) as usize * 4096;
        bytes[at..at + length].copy_from_slice(&random.bytes(length));
    }
    std::fs::write(path, &bytes).unwrap();
    bytes
}

/// The commands `server` has served, and that none of them failed unless it is named.
#[track_caller]
fn assert_seen(server: &TestServer, expected: &[NbdCommand], may_fail: &[NbdCommand]) {
    let counters = server.counters();
    for command in expected {
        assert!(counters.command(*command).received > 0, "no {} arrived", command.name());
    }
    for (command, seen) in counters.commands() {
        println!("{:>13}: {} received, {} done, {} failed", command.name(), seen.received, seen.done, seen.failed);
        assert!(seen.failed == 0 || may_fail.contains(&command), "{}: {seen:?}", command.name());
    }
    assert_eq!(counters.violations, 0);
}

#[test]
fn nbdinfo_lists_describes_and_maps() {
    let setup = ServerSetup { exports: vec![("g/v", 64 << 20), ("g/w", 1 << 30)], ..files() };
    let server = TestServer::start(setup);
    let listed = run("nbdinfo", &["--list", &server.uri("")]);
    for expected in ["export=\"g/v\"", "export=\"g/w\"", "test volume g/w", "block_size_minimum: 512"] {
        assert!(listed.contains(expected), "{expected} is missing:\n{listed}");
    }
    let json = run("nbdinfo", &["--json", &server.uri("g/w")]);
    for expected in ["\"export-size\": 1073741824", "\"can_multi_conn\": true", "base:allocation", "\"can_fua\": true"]
    {
        assert!(json.contains(expected), "{expected} is missing:\n{json}");
    }
    for can in ["flush", "fua", "multi-conn", "trim", "zero", "fast-zero", "cache", "df", "structured-reply"] {
        run("nbdinfo", &["--can", can, &server.uri("g/v")]);
    }
    assert_eq!(run_any("nbdinfo", &["--is", "read-only", &server.uri("g/v")]).0, Some(2));
    run("qemu-io", &["-f", "raw", "-c", "write -P 7 1M 64k", &server.uri("g/v")]);
    let map = run("nbdinfo", &["--map", &server.uri("g/v")]);
    let words: Vec<&str> = map.split_whitespace().collect();
    let zeroes = ["3", "hole,zero"];
    assert_eq!(words[..4], ["0", "1048576", zeroes[0], zeroes[1]], "{map}");
    assert_eq!(words[4..8], ["1048576", "65536", "0", "data"], "{map}");
    let (code, said) = run_any("nbdinfo", &[&server.uri("g/missing")]);
    assert_ne!(code, Some(0));
    assert!(said.contains("No such file or directory"), "{said}");
    assert_seen(&server, &[NbdCommand::BlockStatus, NbdCommand::Write, NbdCommand::Disconnect], &[]);
    server.stop();
}

#[test]
fn nbdcopy_copies_in_and_out() {
    let server = TestServer::start(files());
    let (source, back) = (server.path("source"), server.path("back"));
    let bytes = sample(&source, 11);
    run("nbdcopy", &["--flush", source.to_str().unwrap(), &server.uri("g/v")]);
    run("nbdcopy", &["--connections=4", "--threads=4", "--requests=64", &server.uri("g/v"), back.to_str().unwrap()]);
    assert!(std::fs::read(&back).unwrap() == bytes, "nbdcopy brought back something else");
    // Fast zeroes are refused with ENOTSUP, and the client then writes them slowly.
    let expected =
        [NbdCommand::Read, NbdCommand::Write, NbdCommand::WriteZeroes, NbdCommand::BlockStatus, NbdCommand::Flush];
    assert_seen(&server, &expected, &[NbdCommand::WriteZeroes]);
    assert!(server.counters().sessions_started > 4, "nbdcopy uses several connections");
    server.stop();
}

#[test]
fn qemu_img_converts_maps_and_compares() {
    let server = TestServer::start(files());
    let (source, back) = (server.path("source"), server.path("back"));
    let bytes = sample(&source, 12);
    let uri = server.uri("g/v");
    let (source, back) = (source.to_str().unwrap(), back.to_str().unwrap());
    assert!(run("qemu-img", &["info", &uri]).contains("virtual size: 64 MiB"));
    run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", "-W", "-m", "8", source, &uri]);
    assert!(run("qemu-img", &["map", "--output=json", &uri]).contains("\"zero\": true"));
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", source, &uri]);
    run("qemu-img", &["convert", "-f", "raw", "-O", "raw", &uri, back]);
    assert!(std::fs::read(back).unwrap() == bytes, "qemu-img brought back something else");
    run("qemu-img", &["bench", "-f", "raw", "-w", "-c", "2000", "-d", "32", "-s", "4k", "-t", "none", "-n", &uri]);
    let expected =
        [NbdCommand::Read, NbdCommand::Write, NbdCommand::WriteZeroes, NbdCommand::BlockStatus, NbdCommand::Disconnect];
    assert_seen(&server, &expected, &[NbdCommand::WriteZeroes]);
    server.stop();
}

#[test]
fn qemu_io_reads_writes_discards_and_zeroes() {
    let server = TestServer::start(files());
    let commands = [
        "aio_write -P 1 0 1M",
        "aio_write -P 2 1M 64k",
        "aio_write -P 3 2M 4k",
        "aio_flush",
        "aio_read -P 1 0 1M",
        "aio_read -P 2 1M 64k",
        "aio_flush",
        "write -f -P 4 8k 4k",
        "read -P 4 8k 4k",
        "write -z 4k 4k",
        "write -z -u 64k 64k",
        "write -z -f 128k 4k",
        "discard 256k 256k",
        "read -P 0 4k 4k",
        "read -P 0 64k 64k",
        "read -P 0 256k 256k",
        "read -P 1 12k 52k",
        "write -P 9 48M 16M",
        "read -P 9 48M 16M",
        "flush",
    ];
    let mut arguments = vec!["-f", "raw", "-d", "unmap"];
    commands.iter().for_each(|command| arguments.extend(["-c", command]));
    let uri = server.uri("g/v");
    arguments.push(&uri);
    let said = run("qemu-io", &arguments);
    assert!(!said.contains("failed") && !said.contains("rror"), "{said}");
    let expected = [NbdCommand::Read, NbdCommand::Write, NbdCommand::WriteZeroes, NbdCommand::Trim, NbdCommand::Flush];
    assert_seen(&server, &expected, &[]);
    let counters = server.counters();
    assert!(counters.command(NbdCommand::Write).with_fua > 0);
    assert!(counters.command(NbdCommand::WriteZeroes).with_no_hole > 0);
    server.stop();
}

#[test]
fn fio_verifies_what_it_wrote() {
    for pace in [AnswerPace::Inline, AnswerPace::Reversed] {
        let server = TestServer::start(ServerSetup { pace, ..files() });
        let uri = format!("--uri={}", server.uri("g/v"));
        let common = [
            "--name=job",
            "--ioengine=nbd",
            &uri,
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
            "--size=32M",
        ];
        let random = ["--rw=randwrite", "--bsrange=512-64k", "--bs_unaligned=0", "--iodepth=32", "--fsync=64"];
        let said = run("fio", &[&common[..], &random[..]].concat());
        assert!(said.contains("err= 0"), "{said}");
        let trims = ["--rw=randtrimwrite", "--bs=4k", "--iodepth=32", "--do_verify=0"];
        run("fio", &[&common[..3], &trims[..], &["--size=8M"]].concat());
        assert_seen(&server, &[NbdCommand::Read, NbdCommand::Write, NbdCommand::Flush, NbdCommand::Trim], &[]);
        server.stop();
    }
}

/// Each command with what it must answer, and 64 writes in flight at the end.
const EVERY_COMMAND: &str = r#"
import errno
def refused(code, call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except nbd.Error as error:
        assert error.errnum == code, error
    else:
        raise AssertionError("it was not refused")
size = h.get_size()
assert size == 64 << 20
assert h.can_multi_conn() and h.can_fua() and h.can_cache() and h.can_fast_zero() and h.can_df()
assert h.get_block_size(nbd.SIZE_MINIMUM) == 512 and h.get_block_size(nbd.SIZE_MAXIMUM) == 32 << 20
h.set_strict_mode(0)
h.pwrite(b"x" * 4096, 4096, nbd.CMD_FLAG_FUA)
assert h.pread(4096, 4096) == b"x" * 4096
chunks = []
note = lambda data, offset, status, error: chunks.append((bytes(data), offset))
h.pread_structured(4096, 4096, note, nbd.CMD_FLAG_DF)
assert chunks == [(b"x" * 4096, 4096)]
refused(errno.EOPNOTSUPP, h.zero, 4096, 4096, nbd.CMD_FLAG_FAST_ZERO)
assert h.pread(512, 4096) == b"x" * 512
h.zero(4096, 4096, nbd.CMD_FLAG_NO_HOLE)
h.trim(4096, 8192, nbd.CMD_FLAG_FUA)
h.cache(1 << 20, 0)
h.flush()
extents = []
h.block_status(1 << 20, 0, lambda name, offset, entries, error: extents.append((name, entries)), nbd.CMD_FLAG_REQ_ONE)
assert extents[0][0] == "base:allocation" and len(extents[0][1]) == 2, extents
refused(errno.EINVAL, h.pread, 512, size)
refused(errno.EINVAL, h.pread, 512, 1)
refused(errno.ENOSPC, h.pwrite, b"x" * 512, size)
refused(errno.ENOSPC, h.pwrite, b"x" * 1024, size - 512)
refused(errno.ENOSPC, h.zero, 512, size)
refused(errno.ENOSPC, h.trim, 512, size)
refused(errno.EINVAL, h.pwrite, b"x" * 100, 0)
refused(errno.EINVAL, h.pwrite, b"x" * (33 << 20), 0)
refused(errno.EINVAL, h.pread, 33 << 20, 0)
refused(errno.EINVAL, h.trim, 512, 0, nbd.CMD_FLAG_DF)
refused(errno.EINVAL, h.flush, 1 << 9)
assert h.pread(0, 0) == b""
h.pwrite(b"", 512)
assert h.pread(512, 0) == b"\0" * 512
cookies = [h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray([n] * 4096)), n * 4096) for n in range(64)]
while h.aio_in_flight() > 0:
    h.poll(-1)
assert all(h.aio_command_completed(cookie) for cookie in cookies)
for n in range(64):
    assert h.pread(4096, n * 4096) == bytes([n] * 4096)
h.shutdown()
"#;

#[test]
fn nbdsh_sends_every_command_by_hand() {
    let server = TestServer::start(files());
    run("nbdsh", &["--base-allocation", "--uri", &server.uri(""), "-c", EVERY_COMMAND]);
    let failing = [NbdCommand::Read, NbdCommand::Write, NbdCommand::WriteZeroes, NbdCommand::Trim, NbdCommand::Flush];
    let expected: Vec<NbdCommand> =
        NbdCommand::ALL.into_iter().filter(|command| *command != NbdCommand::Unknown).collect();
    assert_seen(&server, &expected, &failing);
    let counters = server.counters();
    assert_eq!(counters.command(NbdCommand::WriteZeroes).with_fast_zero, 1);
    assert_eq!(counters.command(NbdCommand::Read).with_df, 1);
    assert_eq!(counters.sessions_ended_cleanly, 1);
    server.stop();
}

/// The door of old clients: no options, no structured replies.
#[test]
fn nbdsh_enters_by_the_plain_old_door() {
    let server = TestServer::start(files());
    let script = r#"
h.set_request_structured_replies(False)
h.set_handshake_flags(0)
h.connect_uri(uri)
assert not h.get_structured_replies_negotiated()
h.pwrite(b"y" * 1024, 512)
assert h.pread(1024, 512) == b"y" * 1024
h.shutdown()
"#;
    let script = format!("uri = {:?}\n{script}", server.uri("g/v"));
    run("nbdsh", &["-c", &script]);
    assert_seen(&server, &[NbdCommand::Read, NbdCommand::Write, NbdCommand::Disconnect], &[]);
}

#[test]
fn clients_reach_it_over_tcp() {
    let server = TestServer::start(files());
    let uri = format!("nbd://127.0.0.1:{}/g/v", server.tcp.port());
    assert!(run("nbdinfo", &["--size", &uri]).contains("67108864"));
    let commands = ["-c", "write -P 5 0 8M", "-c", "read -P 5 0 8M", "-c", "flush"];
    run("qemu-io", &[&["-f", "raw"], &commands[..], &[&uri]].concat());
    assert_seen(&server, &[NbdCommand::Read, NbdCommand::Write, NbdCommand::Flush], &[]);
    let listed = run("qemu-nbd", &["--list", "--bind=127.0.0.1", &format!("--port={}", server.tcp.port())]);
    assert!(listed.contains("g/v") && listed.contains("base:allocation"), "{listed}");
    let port = server.tcp.port().to_string();
    assert!(run("nbd-client", &["-l", "127.0.0.1", &port]).contains("g/v"));
    server.stop();
}

/// A file system is the usual way from here to programs that know nothing of NBD.
#[test]
fn nbdfuse_shows_the_export_as_a_file() {
    assert!(Path::new("/dev/fuse").exists(), "this test needs /dev/fuse: load the fuse module");
    let server = TestServer::start(files());
    let location = server.path("mounted");
    std::fs::create_dir(&location).unwrap();
    let file = location.join("nbd");
    let (mount, uri) = (location.to_str().unwrap().to_owned(), server.uri("g/v"));
    let mut fuse = Program::new("nbdfuse").args([&mount, &uri]).spawn().expect("nbdfuse runs: install libnbd-bin");
    server.until("the file appears", move |_| file.exists());
    let file = std::fs::File::options().read(true).write(true).open(location.join("nbd")).unwrap();
    let bytes = NbdRandom(21).bytes(3 << 20);
    file.write_all_at(&bytes, 512).unwrap();
    file.sync_all().unwrap();
    let mut back = vec![0; 3 << 20];
    file.read_exact_at(&mut back, 512).unwrap();
    assert!(back == bytes, "the file returned something else");
    drop(file);
    run("fusermount3", &["-u", &mount]);
    assert!(fuse.wait().unwrap().success());
    assert_seen(&server, &[NbdCommand::Read, NbdCommand::Write, NbdCommand::Flush], &[]);
    server.stop();
}
