//! A database in a file system on the export. Its node is lost; what its heir holds is a file system that needs no
//! repair, and in `sync` each row that was committed, in `async` the first rows up to some one.
//!
//! nbdfuse shows the export as a file, a loop device makes it a disk. All that happens in namespaces of their own, which
//! take mounts, loop devices and programs with them when they end.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Background, Pair, PairPlan, Side, is_root, must_skip};

const ROWS_MAX: u64 = 100_000;

/// $0: a directory of ours, $1: the export's URI, $2: what to do with it. The disk's mounts live in a namespace that
/// nbdfuse is not in: were it killed as the last in there, it would wait for the disk to be written back through itself.
const ATTACH: &str = r#"mkdir -p "$0/fuse" "$0/mnt"; nbdfuse "$0/fuse" "$1" &
    while [ ! -e "$0/fuse/nbd" ]; do kill -0 $!; sleep 0.02; done
    unshare --mount sh -ec "$2" "$0"; umount "$0/fuse"; wait"#;
const CREATE: &str = r#"mkfs.ext4 -q -F "$0/fuse/nbd"; mount -o loop "$0/fuse/nbd" "$0/mnt"
    stdbuf -oL sqlite3 -bail "$0/mnt/db" || true; umount "$0/mnt""#;
/// Mounting replays the file system's journal; opening rolls back what the database had not committed.
const EXAMINE: &str = r#"mount -o loop "$0/fuse/nbd" "$0/mnt"; umount "$0/mnt"; e2fsck -fn "$0/fuse/nbd" >&2
    mount -o loop "$0/fuse/nbd" "$0/mnt"
    sqlite3 "$0/mnt/db" "PRAGMA integrity_check; SELECT count(*) FROM t; SELECT coalesce(max(id), 0) FROM t"
    umount "$0/mnt"; e2fsck -fn "$0/fuse/nbd" >&2"#;

fn in_namespaces(pair: &Pair, node: Side, script: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", ATTACH]);
    command.arg(pair.path("attached")).arg(pair.uri(node, "data")).arg(script);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// A database that takes one row after the other; the number of each is noted once its commit has returned.
struct Database {
    program: Child,
    committed: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Database {
    fn start(pair: &Pair) -> Database {
        let mut command = in_namespaces(pair, Side::Near, CREATE);
        let log = std::fs::File::create(pair.path("database.log")).expect("a log");
        let mut program =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().expect("setpriv and unshare run");
        let mut statements = program.stdin.take().expect("stdin is piped");
        let answers = BufReader::new(program.stdout.take().expect("stdout is piped"));
        let committed = Arc::new(AtomicU64::new(0));
        let noted = committed.clone();
        let asks = std::thread::spawn(move || {
            // With a journal that is cut off and flushed, FULL makes a commit that has returned a durable one.
            let head = "PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = FULL; CREATE TABLE t (id INTEGER PRIMARY KEY, payload);\n";
            let rows =
                (1..=ROWS_MAX).map(|row| format!("INSERT INTO t VALUES ({row}, randomblob(700)); SELECT {row};\n"));
            // It ends when the database has ended.
            let _ =
                std::iter::once(head.to_owned()).chain(rows).try_for_each(|row| statements.write_all(row.as_bytes()));
        });
        let notes = std::thread::spawn(move || {
            for line in answers.lines().map_while(Result::ok) {
                if let Ok(row) = line.parse::<u64>() {
                    noted.store(row, Ordering::SeqCst);
                }
            }
        });
        Database { program, committed, threads: vec![asks, notes] }
    }

    fn committed(&self) -> u64 {
        self.committed.load(Ordering::SeqCst)
    }

    /// Waits until it has ended because its disk is gone; how many rows were committed until then.
    fn end(mut self, pair: &mut Pair) -> u64 {
        pair.until("the database ends", |_| self.program.try_wait().expect("a child can be asked").is_some());
        for thread in self.threads.drain(..) {
            thread.join().expect("it does not panic");
        }
        self.committed()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn may_run(test: &str) -> bool {
    let there = |path: &str| Path::new(path).exists();
    let ext4 = std::fs::read_to_string("/proc/filesystems").is_ok_and(|list| list.contains("\text4\n"));
    let devices = there("/dev/fuse") && there("/dev/loop-control");
    let needed = [("root", is_root()), ("/dev/fuse and /dev/loop-control", devices), ("ext4 in the kernel", ext4)];
    !must_skip(test, &needed)
}

/// Rows committed on the lost node, and rows there are on its heir.
fn fail_over(mode: &str) -> (u64, u64) {
    let mut pair =
        Pair::replicating(&PairPlan { volumes: &["data"], volume_bytes: 24 << 20, mode, ..PairPlan::default() });
    let database = Database::start(&pair);
    pair.until("rows are committed", |pair| {
        let log = std::fs::read_to_string(pair.path("database.log")).unwrap_or_default();
        assert!(log.is_empty(), "{log}");
        database.committed() >= 150
    });
    assert_eq!(pair.status(Side::Near)["state"], "replicating");
    pair.kill(Side::Near);
    let committed = database.end(&mut pair);
    pair.promote_by_force(Side::Far);
    let (is_done, said) = Background::start(in_namespaces(&pair, Side::Far, EXAMINE)).finish(&mut pair);
    assert!(is_done, "{said}\n{}", pair.log(Side::Far));
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("ok"), "the database is whole: {said}");
    let mut number = || lines.next().and_then(|line| line.parse::<u64>().ok()).expect("a number");
    let (rows, last) = (number(), number());
    assert_eq!(rows, last, "the first rows, without a gap: {said}");
    assert!(said.contains(": clean") || said.contains("files ("), "e2fsck looked at it: {said}");
    println!("{mode}: {committed} rows were committed, {rows} are there");
    (committed, rows)
}

// proves: P1
#[test]
fn every_committed_row_survives_in_sync() {
    if may_run("every_committed_row_survives_in_sync") {
        let (committed, rows) = fail_over("sync");
        assert!(rows >= committed, "{rows} of {committed} rows survived");
    }
}

// proves: P2
#[test]
fn the_first_rows_survive_in_async() {
    if may_run("the_first_rows_survive_in_async") {
        let (committed, rows) = fail_over("async");
        assert!(rows <= committed + 1, "{rows} rows, but {committed} were committed");
    }
}
