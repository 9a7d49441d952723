//! Which client sends which command, with which result: a table, and each of its rows shown by the server's counters.

use std::process::Command;

use crate::common::{Background, Pair, PairPlan, Side, is_installed, is_root, must_skip};

/// A row: a client is run to its end, and the counters must have grown by at least so much.
struct ClientRow {
    client: &'static str,
    asks: &'static str,
    /// `@uri`, `@source` (a file with content) and `@back` (a file to be made) are filled in.
    words: &'static [&'static str],
    grows: &'static [(&'static str, u64)],
}

/// Words in front of what a script does with the connected handle `h`.
const NBDSH: &[&str] = &["nbdsh", "--base-allocation", "--uri", "@uri", "-c", REFUSED, "-c"];
const QEMU_IO: &[&str] = &["qemu-io", "-f", "raw", "-d", "unmap", "@uri", "-c"];
const FIO: &[&str] =
    &["fio", "--name=job", "--ioengine=nbd", "--uri=@uri", "--size=2M", "--iodepth=16", "--verify_state_save=0"];

/// For results that are errors: the call must be refused with this number.
const REFUSED: &str = r"
import errno
def refused(number, call, *arguments):
    h.set_strict_mode(0)
    try:
        call(*arguments)
    except nbd.Error as error:
        assert error.errnum == number, error
    else:
        raise AssertionError('it was not refused')
";

/// nbdfuse shows the export as a file. The namespaces end with the script, and everything in them.
const FUSE: &[&str] = &[
    "setpriv",
    "--pdeathsig",
    "KILL",
    "unshare",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "sh",
    "-ec",
    r#"mkdir -p "$0"; nbdfuse "$0" "$1" & while [ ! -e "$0/nbd" ]; do kill -0 $!; sleep 0.02; done
       dd if="$0/nbd" of=/dev/null bs=64k count=4 status=none
       dd if=/dev/urandom of="$0/nbd" bs=64k count=4 conv=notrunc,fsync status=none
       umount "$0"; wait $!"#,
    "@mount",
    "@uri",
];

const ROWS: &[ClientRow] = &[
    row("nbdinfo", "size", &["nbdinfo", "--size", "@uri"], &[("sessions_started", 1), ("disconnect.received", 1)]),
    row("nbdinfo", "map", &["nbdinfo", "--map", "@uri"], &[("block-status.done", 1)]),
    row("nbdinfo", "list", &["nbdinfo", "--list", "@server"], &[("handshakes_without_session", 1)]),
    row("nbdsh", "write", &["h.pwrite(b'x' * 65536, 0)"], &[("write.done", 1), ("write.bytes", 65536)]),
    row("nbdsh", "read", &["assert h.pread(65536, 0) == b'x' * 65536"], &[("read.done", 1), ("read.bytes", 65536)]),
    row("nbdsh", "write FUA", &["h.pwrite(b'y' * 512, 512, nbd.CMD_FLAG_FUA)"], &[("write.with_fua", 1)]),
    row("nbdsh", "flush", &["h.flush()"], &[("flush.done", 1)]),
    row("nbdsh", "trim", &["h.trim(65536, 65536)"], &[("trim.done", 1), ("trim.bytes", 65536)]),
    row("nbdsh", "trim FUA", &["h.trim(4096, 65536, nbd.CMD_FLAG_FUA)"], &[("trim.with_fua", 1), ("trim.done", 1)]),
    row(
        "nbdsh",
        "write-zeroes",
        &["h.zero(4096, 0); assert h.pread(4096, 0) == bytes(4096)"],
        &[("write-zeroes.done", 1)],
    ),
    row(
        "nbdsh",
        "write-zeroes NO_HOLE",
        &["h.zero(4096, 4096, nbd.CMD_FLAG_NO_HOLE)"],
        &[("write-zeroes.done", 1), ("write-zeroes.with_no_hole", 1)],
    ),
    row(
        "nbdsh",
        "write-zeroes FAST_ZERO: ENOTSUP, nothing done",
        &["h.pwrite(b'z' * 4096, 8192); refused(errno.EOPNOTSUPP, h.zero, 4096, 8192, nbd.CMD_FLAG_FAST_ZERO); \
         assert h.pread(4096, 8192) == b'z' * 4096"],
        &[("write-zeroes.failed", 1), ("write-zeroes.with_fast_zero", 1)],
    ),
    row("nbdsh", "cache", &["h.cache(65536, 0)"], &[("cache.done", 1)]),
    row(
        "nbdsh",
        "block-status",
        &["h.block_status(65536, 0, lambda *_: 0, nbd.CMD_FLAG_REQ_ONE)"],
        &[("block-status.done", 1), ("block-status.with_one_extent", 1)],
    ),
    row(
        "nbdsh",
        "read, not to be split",
        &["h.pread_structured(4096, 0, lambda *_: 0, nbd.CMD_FLAG_DF)"],
        &[("read.with_df", 1), ("read.done", 1)],
    ),
    row(
        "nbdsh",
        "read past the end: EINVAL",
        &["refused(errno.EINVAL, h.pread, 512, h.get_size())"],
        &[("read.failed", 1)],
    ),
    row(
        "nbdsh",
        "write past the end: ENOSPC",
        &["refused(errno.ENOSPC, h.pwrite, b'x' * 512, h.get_size())"],
        &[("write.failed", 1)],
    ),
    row(
        "nbdsh",
        "trim past the end: ENOSPC",
        &["refused(errno.ENOSPC, h.trim, 512, h.get_size())"],
        &[("trim.failed", 1)],
    ),
    row(
        "nbdsh",
        "zero past the end: ENOSPC",
        &["refused(errno.ENOSPC, h.zero, 512, h.get_size())"],
        &[("write-zeroes.failed", 1)],
    ),
    row(
        "nbdsh",
        "write misaligned: EINVAL",
        &["refused(errno.EINVAL, h.pwrite, b'x' * 100, 0)"],
        &[("write.failed", 1)],
    ),
    row(
        "nbdsh",
        "write too long: EINVAL",
        &["refused(errno.EINVAL, h.pwrite, b'x' * (33 << 20), 0)"],
        &[("write.failed", 1)],
    ),
    row("nbdsh", "disconnect", &["h.shutdown()"], &[("disconnect.received", 1), ("sessions_ended_cleanly", 1)]),
    row("qemu-io", "write", &["write -P 7 0 1M"], &[("write.done", 1), ("write.bytes", 1 << 20)]),
    row("qemu-io", "read", &["read -P 7 0 1M"], &[("read.done", 1)]),
    row("qemu-io", "write FUA", &["write -f -P 8 0 4k"], &[("write.with_fua", 1), ("write.done", 1)]),
    row("qemu-io", "flush", &["flush"], &[("flush.done", 1)]),
    row("qemu-io", "discard", &["discard 64k 64k"], &[("trim.done", 1)]),
    row(
        "qemu-io",
        "write-zeroes NO_HOLE",
        &["write -z 0 64k"],
        &[("write-zeroes.with_no_hole", 1), ("write-zeroes.done", 1)],
    ),
    row("qemu-io", "write-zeroes", &["write -z -u 64k 64k"], &[("write-zeroes.done", 1)]),
    row("qemu-io", "block-status", &["map"], &[("block-status.done", 1)]),
    row(
        "qemu-img",
        "convert in",
        &["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", "@source", "@uri"],
        &[("write.done", 1), ("disconnect.received", 1)],
    ),
    row(
        "qemu-img",
        "compare",
        &["qemu-img", "compare", "-f", "raw", "-F", "raw", "@source", "@uri"],
        &[("read.done", 1), ("block-status.done", 1)],
    ),
    row(
        "nbdcopy",
        "copy in, flush",
        &["nbdcopy", "--flush", "@source", "@uri"],
        &[("write.done", 1), ("write-zeroes.received", 1), ("flush.done", 1)],
    ),
    row("nbdcopy", "copy out", &["nbdcopy", "@uri", "@back"], &[("read.done", 1), ("block-status.done", 1)]),
    row("cmp", "what came back", &["cmp", "@source", "@back"], &[]),
    row(
        "fio",
        "write, read and verify, flush",
        &["--rw=randwrite", "--bs=4k", "--verify=crc32c", "--fsync=32"],
        &[("write.done", 512), ("read.done", 512), ("flush.done", 8)],
    ),
    row("fio", "trim", &["--rw=randtrim", "--bs=64k"], &[("trim.done", 32)]),
    row("nbdfuse", "read, write, fsync", &[], &[("read.done", 1), ("write.done", 1), ("flush.done", 1)]),
];

const fn row(
    client: &'static str,
    asks: &'static str,
    words: &'static [&'static str],
    grows: &'static [(&'static str, u64)],
) -> ClientRow {
    ClientRow { client, asks, words, grows }
}

#[test]
fn each_command_of_each_client_is_counted() {
    let mut pair = Pair::replicating(&PairPlan { volumes: &["data"], volume_bytes: 4 << 20, ..PairPlan::default() });
    let source: Vec<u8> = (0..4_u32 << 20).map(|at| if at & 0x1_0000 == 0 { 0 } else { (at >> 9) as u8 | 1 }).collect();
    std::fs::write(pair.path("source"), source).expect("a file is written");
    for row in ROWS {
        let is_fuse = row.client == "nbdfuse";
        let has_fuse = std::path::Path::new("/dev/fuse").exists();
        let needed = [("root", !is_fuse || is_root()), ("/dev/fuse", !is_fuse || has_fuse)];
        if !must_skip(&format!("matrix, {}: {}", row.client, row.asks), &needed) {
            show(&mut pair, row);
        }
    }
    for violation in ["nbd.violations", "nbd.unknown.received"] {
        assert_eq!(pair.counter(Side::Near, violation), 0, "{violation}");
    }
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data"]);
}

fn show(pair: &mut Pair, row: &ClientRow) {
    let counter = |pair: &Pair, name: &str| pair.counter(Side::Near, &format!("nbd.{name}"));
    let before: Vec<u64> = row.grows.iter().map(|(name, _)| counter(pair, name)).collect();
    let (is_done, said) = run(pair, row);
    assert!(is_done, "{}, {}: {said}\n{}", row.client, row.asks, pair.log(Side::Near));
    // A goodbye may be read after its sender has gone.
    pair.until(&format!("{}, {}: the counters have grown by {:?}", row.client, row.asks, row.grows), |pair| {
        row.grows.iter().zip(&before).all(|((name, more), before)| counter(pair, name) >= before + more)
    });
}

fn run(pair: &mut Pair, row: &ClientRow) -> (bool, String) {
    let front = match row.client {
        "nbdsh" => NBDSH,
        "qemu-io" => QEMU_IO,
        "fio" => FIO,
        "nbdfuse" => FUSE,
        _ => &[],
    };
    let uri = pair.uri(Side::Near, "data");
    let path = |name: &str| pair.path(name).display().to_string();
    let words: Vec<String> = front
        .iter()
        .chain(row.words)
        .map(|word| match *word {
            "@source" | "@back" | "@mount" => path(&word[1..]),
            "@server" => uri.replace("/g/data", "/"),
            _ => word.replace("@uri", &uri),
        })
        .collect();
    assert!(is_installed(row.client), "{} is missing; see the packages of `cargo xtask test`", row.client);
    let mut command = Command::new(&words[0]);
    // nbdsh is a Python program that needs the system's interpreter, whatever stands first on the path.
    let path = format!("/usr/bin:{}", std::env::var("PATH").unwrap_or_default());
    command.args(&words[1..]).env("PATH", path).current_dir(pair.path("near"));
    Background::start(command).finish(pair)
}
