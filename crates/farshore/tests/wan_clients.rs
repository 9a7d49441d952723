//! The clients people use, unmodified, against a pair at the two ends of an emulated WAN: 20 ms there and back,
//! 200 Mbit/s. What they wrote is on both sides, whether or not the line was cut meanwhile.

use std::fs;
use std::process::Command;

use crate::common::wan::WanGuard;
use crate::common::{Background, GROUP, Pair, PairPlan, Side};

const VOLUMES: &[&str] = &["data", "log"];
const VOLUME_BYTES: u64 = 16 << 20;

/// A pair that replicates over the WAN, which must outlive it.
fn over_the_wan(test: &str) -> Option<(Pair, WanGuard)> {
    let name = format!("{}-{}", test[..8].replace('_', "-"), std::process::id());
    let wan = WanGuard::start(test, &["--rtt", "20ms", "--rate", "200mbit", "--name", &name])?;
    let head = "[link]\ntimeout = \"1s\"";
    let mut pair = wan.pair(&PairPlan { volumes: VOLUMES, volume_bytes: VOLUME_BYTES, head, ..PairPlan::default() });
    wan.serve(&mut pair);
    pair.sync_fully(Side::Near);
    Some((pair, wan))
}

/// Runs a client to its end; what it said.
fn run(pair: &mut Pair, program: &str, words: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(words).current_dir(pair.path("near"));
    let (is_done, said) = Background::start(command).finish(pair);
    assert!(is_done, "{program} {words:?}: {said}\n{}", pair.log(Side::Near));
    said
}

fn fio(pair: &Pair, words: &[&str]) -> Command {
    let mut command = Command::new("fio");
    command.args(["--name=job", "--ioengine=nbd", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"]);
    command.arg(format!("--uri={}", pair.uri(Side::Near, "data")));
    command.args(["--rw=randwrite", "--bsrange=4k-64k", "--fsync=64"]).args(words).current_dir(pair.path("near"));
    command
}

fn assert_fio(pair: &mut Pair, words: &[&str]) {
    let (is_done, said) = Background::start(fio(pair, words)).finish(pair);
    assert!(is_done && said.contains("err= 0"), "{words:?}: {said}\n{}", pair.log(Side::Near));
}

fn in_mode(pair: &Pair, mode: &str) {
    pair.done(Side::Near, &["set", GROUP, &format!("mode={mode}")]);
    pair.wait_for(Side::Near, "replicating");
}

fn ends_equal(mut pair: Pair) {
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(VOLUMES);
    let content = pair.content(Side::Far, "data");
    assert!(content.iter().any(|byte| *byte != 0), "something was written");
}

#[test]
fn clients_copy_in_and_out() {
    let Some((mut pair, _wan)) = over_the_wan("clients_copy_in_and_out") else { return };
    let source: Vec<u8> = (0..VOLUME_BYTES / 8).flat_map(|at| (at ^ at << 40).to_le_bytes()).collect();
    fs::write(pair.path("source"), &source).expect("a file is written");
    let (source_path, back) = (pair.path("source"), pair.path("back"));
    let (source_path, back) = (source_path.to_str().expect("text"), back.to_str().expect("text"));
    let (data, log) = (pair.uri(Side::Near, "data"), pair.uri(Side::Near, "log"));

    let described = run(&mut pair, "nbdinfo", &["--json", &data]);
    assert!(described.contains(&format!("\"export-size\": {VOLUME_BYTES}")), "{described}");
    run(&mut pair, "qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", "-W", "-m", "8", source_path, &data]);
    run(&mut pair, "qemu-img", &["compare", "-f", "raw", "-F", "raw", source_path, &data]);
    in_mode(&pair, "sync");
    run(&mut pair, "nbdcopy", &["--flush", source_path, &log]);
    run(&mut pair, "nbdcopy", &[&log, back]);
    assert!(fs::read(back).expect("it is there") == source, "nbdcopy brought back something else");

    let near = Side::Near;
    pair.qemu_io(near, "data", &["write -f -P 1 0 1M", "aio_write -P 2 1M 64k", "aio_write -z 2M 1M", "aio_flush"]);
    pair.qemu_io(near, "data", &["discard 4M 64k", "read -P 1 0 1M", "read -P 2 1M 64k", "read -P 0 2M 1M"]);
    pair.qemu_io(near, "data", &["read -P 0 4M 64k", "flush"]);
    ends_equal(pair);
}

#[test]
fn fio_verifies_in_async_and_sync() {
    let Some((mut pair, _wan)) = over_the_wan("fio_verifies_in_async_and_sync") else { return };
    assert_fio(&mut pair, &["--size=16M", "--iodepth=32"]);
    in_mode(&pair, "sync");
    assert_eq!(pair.status(Side::Near)["protection"], "both-durable");
    assert_fio(&mut pair, &["--size=16M", "--iodepth=32", "--randseed=2"]);
    ends_equal(pair);
}

// proves: P5
#[test]
fn the_line_is_cut_and_restored_in_the_middle() {
    let Some((mut pair, wan)) = over_the_wan("the_line_is_cut_and_restored_in_the_middle") else { return };
    for mode in ["async", "sync"] {
        in_mode(&pair, mode);
        let words = ["--size=8M", "--iodepth=8", "--rate=2m", "--fsync=16"];
        let before = pair.counter(Side::Near, "nbd.write.done");
        let mut client = Background::start(fio(&pair, &words));
        pair.until("fio writes", |pair| pair.counter(Side::Near, "nbd.write.done") >= before + 20);
        wan.control(&["cut"]);
        pair.until("the cut is seen", |pair| pair.status(Side::Near)["state"] != "replicating");
        let cut = pair.counter(Side::Near, "nbd.write.done");
        pair.until("writers go on", |pair| pair.counter(Side::Near, "nbd.write.done") >= cut + 20);
        assert!(!client.has_ended(), "fio ended before the line was restored");
        wan.control(&["restore"]);
        let (is_done, said) = client.finish(&mut pair);
        assert!(is_done && said.contains("err= 0"), "{mode}: {said}\n{}", pair.log(Side::Near));
        pair.wait_for(Side::Near, "replicating");
    }
    ends_equal(pair);
}
