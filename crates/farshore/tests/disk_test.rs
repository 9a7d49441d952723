//! `disk test` as a whole process: two numbers that the planner reads, and nothing left behind however it ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{DEADLINE, expect, is_installed, is_root, must_skip, must_skip_stores, schema};
use forgetful::{Fate, ForgetfulStore};
use rustix::process::{Pid, Signal, kill_process};

fn disk_test(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
    command.args(["disk", "test"]).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn refused(words: &[&str], code: i32, parts: &[&str]) {
    expect(&disk_test(words).output().expect("the command runs"), code, parts);
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let list = fs::read_dir(directory).expect("a directory");
    list.map(|entry| entry.expect("an entry").path()).collect()
}

/// Waits until the test has made its file.
fn wait_for_file(directory: &Path, child: &mut Child) {
    let start = Instant::now();
    while entries(directory).is_empty() {
        assert!(child.try_wait().expect("a child can be asked").is_none(), "it ended without a file");
        assert!(start.elapsed() < DEADLINE, "it makes no file");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_plan_reads_what_was_measured_and_the_file_is_gone() {
    let directory = tempfile::tempdir().expect("a directory");
    let scratch = directory.path().join("scratch");
    fs::create_dir(&scratch).expect("a directory");
    let location = scratch.to_str().expect("UTF-8");
    let small = ["--time", "600ms", "--file-size", "8MiB", "--sizes", "1MiB,4KiB,64KiB"];
    let measured = disk_test(&[&[location, "--json"], &small[..]].concat()).output().expect("the command runs");
    // A machine of tests may be too uneven for a straight line.
    assert!(matches!(measured.status.code(), Some(0 | 1)), "{measured:?}");
    assert_eq!(entries(&scratch), Vec::<PathBuf>::new());
    let json: serde_json::Value = serde_json::from_slice(&measured.stdout).expect("one object");
    assert_eq!(json["schema"], "farshore-disk-test/1");
    schema::seen(&json);
    let sizes = json["sizes"].as_array().expect("a list");
    assert_eq!(sizes.iter().map(|size| size["bytes"].as_u64()).collect::<Vec<_>>(), [4096, 65536, 1 << 20].map(Some));
    for size in sizes {
        let time = |name: &str| size[name].as_f64().expect("a number");
        let ordered = ["min_s", "p50_s", "p90_s", "p99_s", "p999_s", "max_s"].map(time);
        assert!(ordered[0] > 0.0 && ordered.is_sorted() && time("mean_s") <= ordered[5], "{size}");
        assert!(size["flushes"].as_u64() >= Some(5), "{size}");
    }

    fs::write(directory.path().join("disk.json"), &measured.stdout).expect("written");
    let trace = "fio version 3 iolog\n10 f write 0 8192\n2000 f write 8192 8192\n900000 f write 0 8192\n";
    fs::write(directory.path().join("db.iolog"), trace).expect("written");
    let mut plan = Command::new(env!("CARGO_BIN_EXE_farshore"));
    plan.args(["plan", "db.iolog", "--link", "100Mbit,50ms", "--disk", "disk.json"]).current_dir(directory.path());
    expect(&plan.output().expect("the command runs"), 0, &["disks     local "]);

    let text = disk_test(&[&[location, "--buffered"], &small[..]].concat()).output().expect("the command runs");
    assert!(matches!(text.status.code(), Some(0 | 1)), "{text:?}");
    let says = |part: &str| String::from_utf8_lossy(&text.stdout).contains(part);
    assert!(says("through the page cache") && says("p99.9"), "{text:?}");
    // A disk that others keep busy may take its time whatever the size; then nothing is offered to a plan.
    let is_odd = String::from_utf8_lossy(&text.stderr).contains("the times do not grow with the sizes");
    assert_eq!(says("for a plan: --disk "), !is_odd, "{text:?}");
    assert_eq!(entries(&scratch), Vec::<PathBuf>::new());
}

#[test]
fn a_signal_ends_it_and_the_file_is_gone() {
    for signal in [Signal::INT, Signal::TERM] {
        let directory = tempfile::tempdir().expect("a directory");
        let location = directory.path().to_str().expect("UTF-8");
        let mut child = disk_test(&[location, "--time", "10m"]).spawn().expect("the command runs");
        wait_for_file(directory.path(), &mut child);
        kill_process(Pid::from_child(&child), signal).expect("it runs");
        let output = child.wait_with_output().expect("it ends");
        // Too early for two sizes, or just not.
        assert!(matches!(output.status.code(), Some(1 | 2)), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("ended before two sizes"), "{output:?}");
        assert_eq!(entries(directory.path()), Vec::<PathBuf>::new());
    }
}

#[test]
fn what_cannot_be_tested_is_refused_in_a_sentence() {
    let directory = tempfile::tempdir().expect("a directory");
    let location = directory.path().to_str().expect("UTF-8");
    let file = directory.path().join("volume");
    fs::write(&file, "precious").expect("written");
    refused(&[&format!("{location}/nowhere")], 2, &["nowhere does not exist"]);
    refused(&[file.to_str().expect("UTF-8")], 2, &["volume is not a directory", "never overwritten", location]);
    refused(
        &[location, "--file-size", "1TiB", "--sizes", "4KiB,8KiB"],
        2,
        &["free, and the test writes a file of 1 TiB"],
    );
    refused(&[location, "--overwrite-device"], 3, &["is no block device"]);
    refused(&[location, "--sizes", "4KiB"], 3, &["two sizes"]);
    refused(&[location, "--sizes", "4KiB,1000B"], 3, &["1000 bytes are no multiple of 4KiB"]);
    refused(&[location, "--sizes", "4KiB,2MiB", "--file-size", "1MiB"], 3, &["does not fit --file-size"]);
    // Its bytes would stand in memory.
    refused(
        &[location, "--sizes", "4KiB,128GiB", "--file-size", "128GiB"],
        3,
        &["128 GiB are more than one of --sizes can be; the most is 64MiB"],
    );
    refused(&[location, "--sizes", "4K"], 3, &["4KiB"]);
    refused(&[location, "--time", "0s"], 3, &["100ms to 24h"]);
    refused(&[], 3, &["<PATH>"]);
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "precious");
    assert_eq!(entries(directory.path()), [file]);
}

#[test]
fn neither_permission_nor_a_writable_file_system() {
    let test = "neither_permission_nor_a_writable_file_system";
    if must_skip(test, &[("root", is_root()), ("unshare", is_installed("unshare"))]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let binary = env!("CARGO_BIN_EXE_farshore");
    let location = directory.path().display();
    let run = |line: &str| Command::new("unshare").args(["--mount", "sh", "-c", line]).output().expect("unshare runs");
    let nobody = run(&format!("exec setpriv --reuid 65534 --clear-groups {binary} disk test {location}"));
    expect(&nobody, 2, &["may not be written by this user"]);
    let read_only =
        run(&format!("mount -t tmpfs -o ro,size=100m none {location} && exec {binary} disk test {location}"));
    expect(&read_only, 2, &["lies on a read-only file system"]);
    let memory = format!(
        "mount -t tmpfs -o size=100m none {location} && \
         {binary} disk test {location} --time 200ms --sizes 4KiB,64KiB --file-size 1MiB; code=$?; ls -A {location}; exit $code"
    );
    expect(&run(&memory), 1, &["is in memory (tmpfs)"]);
    let full = format!("mount -t tmpfs -o size=4m none {location} && exec {binary} disk test {location}");
    expect(&run(&full), 2, &["has 4 MiB free", "--file-size"]);
}

/// A file as a disk of its own, until it goes.
struct LoopFile(String);

impl LoopFile {
    fn new(backing: &Path) -> LoopFile {
        // Another test may take the free device between the search and the attachment.
        let attach = || Command::new("losetup").args(["--find", "--show"]).arg(backing).output().expect("losetup runs");
        let output = (0..20).map(|_| attach()).find(|output| output.status.success()).expect("a loop device");
        LoopFile(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

impl Drop for LoopFile {
    fn drop(&mut self) {
        let detached = Command::new("losetup").args(["--detach", &self.0]).status();
        assert!(detached.is_ok_and(|status| status.success()), "{} stays", self.0);
    }
}

#[test]
fn a_device_is_written_only_when_ordered_and_never_while_it_is_used() {
    let test = "a_device_is_written_only_when_ordered_and_never_while_it_is_used";
    let loops = Path::new("/dev/loop-control").exists() && is_installed("losetup");
    if must_skip(test, &[("root", is_root()), ("loop devices", loops)]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let backing = directory.path().join("disk");
    fs::write(&backing, vec![7u8; 4 << 20]).expect("written");
    let device = LoopFile::new(&backing);
    refused(&[&device.0], 3, &["is a block device", "--overwrite-device"]);
    let held = fs::File::open(&device.0).expect("it opens");
    let exclusive =
        rustix::fs::open(&device.0, rustix::fs::OFlags::RDWR | rustix::fs::OFlags::EXCL, rustix::fs::Mode::empty());
    let held = (held, exclusive.expect("nobody else holds it"));
    refused(&[&device.0, "--overwrite-device"], 2, &["is in use by another program"]);
    drop(held);
    // Nobody holds it exclusively below another device, or open without asking for that.
    let above = LoopFile::new(Path::new(&device.0));
    refused(&[&device.0, "--overwrite-device"], 2, &[&above.0]);
    drop(above);
    let held = fs::File::open(&device.0).expect("it opens");
    refused(&[&device.0, "--overwrite-device"], 2, &[&format!("is in use by process {} (", std::process::id())]);
    drop(held);
    assert!(fs::read(&backing).expect("it reads").iter().all(|byte| *byte == 7), "nothing was written");
    let words = [&device.0, "--overwrite-device", "--time", "200ms", "--sizes", "4KiB,64KiB", "--file-size", "1MiB"];
    let output = disk_test(&words).output().expect("the command runs");
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("the first 1 MiB of the device"), "{output:?}");
    drop(device);
    let content = fs::read(&backing).expect("it reads");
    assert!(content[..1 << 20].iter().any(|byte| *byte != 7), "it was written");
    assert!(content[1 << 20..].iter().all(|byte| *byte == 7), "and no more of it");
}

/// It hangs as a disk does whose power fails.
#[test]
fn a_disk_that_hangs_is_reported_in_time() {
    if must_skip_stores("a_disk_that_hangs_is_reported_in_time") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let store = ForgetfulStore::mount(directory.path()).expect("FUSE and root");
    let location = directory.path().to_str().expect("UTF-8");
    let words = [location, "--time", "10m", "--timeout", "300ms", "--file-size", "1MiB", "--sizes", "4KiB,64KiB"];
    let mut child = disk_test(&words).spawn().expect("the command runs");
    wait_for_file(directory.path(), &mut child);
    store.cut_power(Fate::AllLost);
    let mut said = String::new();
    BufReader::new(child.stderr.as_mut().expect("piped")).read_line(&mut said).expect("text");
    assert!(said.contains("has not answered for 0.3 s"), "{said}");
    // Its process cannot end before the requests do.
    store.fail_requests();
    assert_eq!(child.wait().expect("it ends").code(), Some(2));
}
