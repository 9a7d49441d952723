//! Forced failovers and forks over an emulated WAN, under writers: what the promoted node lacks is what its promotion stated, either side of the
//! fork can be kept, and what is given up can be read. The commands are those of docs/book/operate.
// proves: P1, P6

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::load::{LoadPlan, WriterLoad, WriterRun};
use crate::common::wan::WanGuard;
use crate::common::{GROUP, Pair, PairPlan, Side};

const VOLUMES: &[&str] = &["data", "log"];
const LINE: [&str; 4] = ["--rtt", "20ms", "--rate", "100mbit"];

/// In each mode, whose side of the fork is kept.
const SIDES: [(&str, Side); 8] = [
    ("async", Side::Near),
    ("async", Side::Far),
    ("superasync", Side::Near),
    ("superasync", Side::Far),
    ("nearsync", Side::Near),
    ("nearsync", Side::Far),
    ("sync", Side::Near),
    ("sync", Side::Far),
];

/// One write at a time for each writer, so that a queue holds what comes while the cable is out.
fn load() -> LoadPlan {
    LoadPlan { writers_per_volume: 1, depth: 1, sectors_max: 8, flush_one_in: 16, ..LoadPlan::crowded(VOLUMES) }
}

fn plan(group: &str) -> PairPlan<'_> {
    PairPlan { volume_bytes: 4 << 20, group, ..PairPlan::default() }
}

/// Each change of role runs a program, which writes down what the change was.
fn hooked(pair: &Pair) {
    let (hook, ran) = (pair.path("hook"), pair.path("ran"));
    let script = format!("#!/bin/sh\necho \"$FARSHORE_HOOK $FARSHORE_NODE $FARSHORE_FORCED\" >> {}\n", ran.display());
    fs::write(&hook, script).expect("written");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("its mode");
    let line = |name| format!("hooks.{name} = [\"{}\"]\n", hook.display());
    let lines = ["before_promote", "after_promote", "before_demote", "after_demote"].map(line).concat();
    pair.edit_config("journal = \"16MiB\"\n", &format!("{lines}journal = \"16MiB\"\n"));
}

/// What ran since it was last asked.
fn ran(pair: &Pair) -> Vec<String> {
    let text = fs::read_to_string(pair.path("ran")).unwrap_or_default();
    let _ = fs::remove_file(pair.path("ran"));
    text.lines().map(str::to_owned).collect()
}

/// Replicates, at rest, with programs around its changes of role.
fn synced(wan: &WanGuard, mode: &str) -> Pair {
    let mut pair = wan.pair(&PairPlan { mode, ..plan("") });
    hooked(&pair);
    wan.serve(&mut pair);
    pair.sync_fully(Side::Near);
    pair.wait_for_rest(Side::Near);
    pair.stop_from(Side::Near);
    pair
}

/// The cable is out: the queue takes what is written, and once it is full regions are dirty.
fn goes_on_alone(pair: &mut Pair) {
    pair.until("it goes on alone", |pair| {
        let state = pair.status(Side::Near)["state"].clone();
        state == "queuing" || state == "logging"
    });
}

/// The number behind a word of a sentence.
fn number_behind(text: &str, words: &str) -> u64 {
    let behind = text.split_once(words).unwrap_or_else(|| panic!("{words:?} in {text}")).1;
    let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("a number behind {words:?} in {text}"))
}

fn delta(pair: &Pair, node: Side) -> PathBuf {
    pair.path(node.name()).join("state/groups").join(GROUP).join("delta")
}

/// All blocks that were saved of a node.
fn extracted(pair: &Pair, node: Side) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
    let output =
        command.args(["inspect", "--extract", "all"]).arg(delta(pair, node)).output().expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The promoted node gives its role back, with the programs of both nodes.
fn goes_home(pair: &mut Pair) {
    let said = pair.done(Side::Far, &["failback", GROUP]);
    println!("failback: {said}");
    pair.wait_for_rest(Side::Near);
    let back = ["before_promote near no", "before_demote far no", "after_demote far no", "after_promote near no"];
    let mut ran = ran(pair);
    // Each node runs its own behind the change, and neither waits for the other one.
    ran[2..].sort();
    assert_eq!(ran, back, "a failback runs those of both nodes");
}

/// The old primary and the promoted node write 64 KiB each, and the cable is back.
fn both_write_and_meet(wan: &WanGuard, pair: &mut Pair, typed_at: Side) {
    wan.serve(pair);
    pair.qemu_io(Side::Near, "data", &["write -P 8 3M 64k", "flush"]);
    pair.qemu_io(Side::Far, "data", &["write -P 7 3200k 64k", "flush"]);
    wan.control(&["restore"]);
    pair.until("both nodes see the fork", |pair| {
        Side::BOTH.iter().all(|node| pair.status(*node)["reason"].to_string().contains("both nodes are primary"))
    });
    let (_, shown) = pair.output_of(typed_at, &["status", GROUP, "--local"]);
    assert!(shown.contains("far -|- near"), "{shown}");
}

/// The cable goes, and the other site promotes its copy while the writers go on here. Then the cable is back, and one of the two is kept.
#[test]
fn after_a_forced_failover_under_writers_either_side_is_kept() {
    let Some(wan) = WanGuard::start("forks_over_wan", &LINE) else { return };
    for (mode, kept) in SIDES {
        let (given_up, typed_at) = (kept.other(), Side::Far);
        let mut pair = synced(&wan, mode);
        let run = WriterRun::on_content(1, &pair, Side::Near, VOLUMES);
        wan.serve(&mut pair);
        pair.wait_for(Side::Near, "replicating");
        let load = WriterLoad::start(&pair, Side::Near, &run, load());
        load.wait_for_more(&mut pair, 200);
        let before_cut = load.acknowledged();
        wan.control(&["cut"]);
        goes_on_alone(&mut pair);
        load.wait_for_more(&mut pair, 100);
        let confirmed = pair.status(Side::Near)["peers"][0]["recovery_point"]["sequence"].as_u64().expect("a point");
        let image = pair.status(Side::Far)["promotable"]["sequence"].as_u64().expect("an image");
        let (code, refused) = pair.output_of(Side::Far, &["promote", GROUP]);
        assert!(code == 2 && refused.contains(&format!("at sequence {image}")), "{refused}");
        let (code, said) = pair.output_of(Side::Far, &["promote", GROUP, "--force"]);
        assert_eq!(code, 1, "{said}");
        assert_eq!(
            ran(&pair),
            ["before_promote far yes", "after_promote far yes"],
            "{mode}: only the promotion ran any"
        );
        let promoted_at = number_behind(&said, "promoted at sequence ");
        println!("promote --force: {said}");
        assert!(promoted_at == image && promoted_at >= confirmed, "{promoted_at}, {image}, {confirmed}: {said}");
        load.wait_for_more(&mut pair, 100);
        load.stop();
        let acknowledged = run.acknowledged().len() as u64;
        pair.stop_both();
        // All of it is on the old primary; the promoted node has a prefix, and lacks what was acknowledged behind that.
        assert_eq!(run.check(&pair, Side::Near).lost_writes, 0);
        let report = run.check(&pair, Side::Far);
        let (included, lost) = (report.included_writes, report.lost_writes);
        println!("{mode}: acknowledged {acknowledged}, {before_cut} before the cut, in the promoted image {included}");
        assert!(
            mode.ends_with("async") || included >= before_cut,
            "the peer had what it confirmed: {before_cut}, {report:?}"
        );
        assert!(lost >= 200 && included + lost == acknowledged, "{report:?}");
        assert!(included > 0 && included <= promoted_at, "the image ends where the promotion said: {report:?}");

        both_write_and_meet(&wan, &mut pair, typed_at);
        let begun = Instant::now();
        let said = pair.done(typed_at, &["resolve", GROUP, "--keep", kept.name()]);
        pair.wait_for(kept, "replicating");
        let given_up_by = ["before_demote", "after_demote"].map(|hook| format!("{hook} {} no", given_up.name()));
        assert_eq!(ran(&pair), given_up_by, "{mode}: the side that is given up is demoted");
        println!("resolve --keep {}: {said} (protected again after {:?})", kept.name(), begun.elapsed());
        let saved = extracted(&pair, given_up);
        let byte = if given_up == Side::Near { 8 } else { 7 };
        let whole = saved.chunks(4096).filter(|block| block.iter().all(|found| *found == byte)).count();
        assert_eq!(whole, 16, "64 KiB were written there alone: {} bytes are saved", saved.len());
        let content = match kept {
            Side::Near => ["read -P 8 3M 64k", "read -P 0 3200k 64k"],
            Side::Far => ["read -P 0 3M 64k", "read -P 7 3200k 64k"],
        };
        pair.qemu_io(kept, "data", &content);
        pair.wait_for_rest(kept);
        if kept == Side::Far {
            goes_home(&mut pair);
        }
        assert_eq!(pair.status(Side::Near)["role"], "primary");
        pair.stop_from(Side::Near);
        pair.assert_equal(VOLUMES);
    }
}

/// Only the link was out, and both nodes say that a promoted one is kept: nobody types anything. The old primary's writers are not cut off;
/// once they have gone, it yields.
#[test]
fn after_a_cut_the_promoted_node_is_kept_by_policy_once_the_writers_have_gone() {
    let Some(wan) = WanGuard::start("forks_over_wan", &LINE) else { return };
    let mut pair = wan.pair(&plan("after_forced_failover = \"keep-promoted\"\n"));
    wan.serve(&mut pair);
    pair.sync_fully(Side::Near);
    pair.wait_for_rest(Side::Near);
    let run = WriterRun::on_zeroes(1, VOLUMES);
    let load = WriterLoad::start(&pair, Side::Near, &run, load());
    load.wait_for_more(&mut pair, 200);
    wan.control(&["cut"]);
    goes_on_alone(&mut pair);
    load.wait_for_more(&mut pair, 100);
    pair.promote_by_force(Side::Far);
    pair.qemu_io(Side::Far, "data", &["write -P 7 3200k 64k", "flush"]);
    wan.control(&["restore"]);
    pair.until("it is tried, and refused", |pair| {
        pair.log(Side::Near).contains("is not resolved by 'after_forced_failover'")
    });
    load.wait_for_more(&mut pair, 20);
    assert_eq!(pair.status(Side::Near)["role"], "primary");
    load.stop();
    let (begun, acknowledged) = (Instant::now(), run.acknowledged().len());
    pair.until("the old primary yields", |pair| pair.status(Side::Near)["role"] == "secondary");
    let yielded = begun.elapsed();
    pair.wait_for(Side::Far, "replicating");
    println!(
        "{acknowledged} writes acknowledged; yielded {yielded:?} after the writers had gone, protected again after {:?}",
        begun.elapsed()
    );
    assert!(!extracted(&pair, Side::Near).is_empty());
    pair.qemu_io(Side::Far, "data", &["read -P 7 3200k 64k"]);
    pair.wait_for_rest(Side::Far);
    println!("failback: {}", pair.done(Side::Far, &["failback", GROUP]));
    pair.wait_for_rest(Side::Near);
    pair.stop_from(Side::Near);
    pair.assert_equal(VOLUMES);
}

/// The fence that stands before the promotion fails, then hangs: nobody is promoted, and the writers at the other end notice nothing.
#[test]
fn a_fence_that_fails_or_hangs_promotes_nobody() {
    let Some(wan) = WanGuard::start("forks_over_wan", &LINE) else { return };
    let mut pair = wan.pair(&plan(""));
    let (fence, how) = (pair.path("fence"), pair.path("how"));
    fs::write(&fence, format!("#!/bin/sh\n[ \"$FARSHORE_FORCED\" = yes ] || exit 0\n. {}\n", how.display()))
        .expect("written");
    fs::set_permissions(&fence, fs::Permissions::from_mode(0o755)).expect("its mode");
    let hooks = format!("hooks.before_promote = [\"{}\", \"off\"]\nhooks.timeout = \"3s\"\n", fence.display());
    pair.edit_config("journal = \"16MiB\"\n", &format!("{hooks}journal = \"16MiB\"\n"));
    wan.serve(&mut pair);
    pair.sync_fully(Side::Near);
    pair.wait_for_rest(Side::Near);
    pair.stop_from(Side::Near);
    let run = WriterRun::on_content(1, &pair, Side::Near, VOLUMES);
    wan.serve(&mut pair);
    pair.wait_for(Side::Near, "replicating");
    let load = WriterLoad::start(&pair, Side::Near, &run, load());
    load.wait_for_more(&mut pair, 100);
    wan.control(&["cut"]);
    goes_on_alone(&mut pair);
    for (script, part) in [("exit 7", "exit code 7"), ("sleep 600", "within 3s")] {
        fs::write(&how, format!("{script}\n")).expect("written");
        let begun = Instant::now();
        let (code, said) = pair.output_of(Side::Far, &["promote", GROUP, "--force"]);
        println!("{script}: {said}");
        assert!(code == 2 && said.contains("before_promote") && said.contains(part), "{script}: {code}: {said}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        assert_eq!(pair.status(Side::Far)["role"], "secondary");
        load.wait_for_more(&mut pair, 20);
    }
    // The cable is back: nothing has happened, and the copy follows in order.
    load.pause(&mut pair);
    wan.control(&["restore"]);
    pair.wait_for(Side::Near, "replicating");
    load.resume();
    load.wait_for_more(&mut pair, 20);
    wan.control(&["cut"]);
    goes_on_alone(&mut pair);
    fs::write(&how, "exit 0\n").expect("written");
    pair.promote_by_force(Side::Far);
    load.stop();
    assert_eq!(pair.status(Side::Far)["role"], "primary");
    pair.stop_both();
    assert_eq!(run.check(&pair, Side::Near).lost_writes, 0);
    run.check(&pair, Side::Far);
}
