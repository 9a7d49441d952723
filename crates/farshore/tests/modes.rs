//! Modes change while writers write, and policies decide what writers feel of a line that was cut.

use serde_json::Value;
use std::time::Duration;

use crate::common::load::{LoadPlan, WriterLoad, WriterRun};
use crate::common::{GROUP, Pair, PairPlan, Side};

const VOLUMES: &[&str] = &["data", "log"];
const LOG: &[&str] = &["log"];

/// Each mode is entered from each other one.
const MODES: [&str; 13] = [
    "sync", "nearsync", "async", "logging", "sync", "async", "nearsync", "logging", "nearsync", "sync", "logging",
    "async", "sync",
];

// proves: P5
#[test]
fn modes_change_under_load() {
    let mut pair = Pair::replicating(&PairPlan { volumes: VOLUMES, volume_bytes: 2 << 20, ..PairPlan::default() });
    let run = WriterRun::on_zeroes(1, VOLUMES);
    let load = WriterLoad::start(&pair, Side::Near, &run, LoadPlan::crowded(VOLUMES));
    let mut before = "async";
    for mode in MODES {
        pair.done(Side::Near, &["set", GROUP, &format!("mode={mode}")]);
        if before == "logging" {
            pair.done(Side::Near, &["sync", GROUP, "--wait"]);
        }
        let (state, protection) = match mode {
            "sync" => ("replicating", "both-durable"),
            "nearsync" => ("replicating", "both-received"),
            "async" => ("replicating", "queued"),
            _ => ("logging", "local-only"),
        };
        pair.wait_for(Side::Near, state);
        load.wait_for_more(&mut pair, 100);
        let status = pair.status(Side::Near);
        assert_eq!((&status["state"], &status["protection"]), (&state.into(), &protection.into()), "{mode}: {status}");
        before = mode;
    }
    load.stop();
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(VOLUMES);
    assert_eq!(run.check(&pair, Side::Far).lost_writes, 0);
}

// proves: P6
#[test]
fn a_secondary_exports_nothing() {
    let pair = Pair::replicating(&PairPlan { volumes: VOLUMES, ..PairPlan::default() });
    let listed = |node| {
        let uri = pair.uri(node, "").replace(&format!("/{GROUP}/"), "/");
        let output = std::process::Command::new("nbdinfo").args(["--list", "--json", &uri]).output();
        let output = output.expect("nbdinfo is installed (apt: libnbd-bin)");
        String::from_utf8_lossy(&output.stdout).matches("\"export-name\"").count()
    };
    assert_eq!((listed(Side::Near), listed(Side::Far)), (VOLUMES.len(), 0));
    for volume in VOLUMES {
        let (is_served, said) = pair.try_qemu_io(Side::Far, volume, &["read 0 512"]);
        assert!(!is_served, "{said}");
    }
}

/// A pair over a line that can be cut, in `sync`.
fn over_a_relay(group: &str) -> Pair {
    let head = "[link]\ntimeout = \"1s\"";
    let mut pair = Pair::new(&PairPlan { volumes: VOLUMES, mode: "sync", group, head, ..PairPlan::default() });
    pair.lay_relay();
    pair.first_sync();
    pair.qemu_io(Side::Near, "data", &["write -P 1 0 1M", "flush"]);
    pair
}

fn heals(mut pair: Pair) -> Pair {
    pair.relay().restore();
    pair.wait_for(Side::Near, "replicating");
    pair.qemu_io(Side::Near, "log", &["write -f -P 9 8M 64k"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(VOLUMES);
    pair
}

#[test]
fn held_writers_wait_for_the_line_and_succeed() {
    let mut pair = over_a_relay("policy = \"hold\"\nhold = \"1h\"\nwait_limit = \"500ms\"");
    pair.relay().cut();
    let mut waiting = pair.start_qemu_io(Side::Near, "data", &["write -P 2 1M 1M", "flush"]);
    pair.wait_for(Side::Near, "holding");
    assert_eq!(pair.status(Side::Near)["protection"], "held");
    pair.qemu_io(Side::Near, "data", &["read -P 1 0 1M"]);
    assert!(!waiting.has_ended(), "it waits for the line");
    pair.relay().restore();
    let (is_done, said) = waiting.finish(&mut pair);
    assert!(is_done, "{said}");
    let pair = heals(pair);
    assert!(pair.content(Side::Far, "data")[1 << 20..2 << 20].iter().all(|byte| *byte == 2));
}

/// The kind of an event that tells of the mode ladder.
fn is_step(kind: &str) -> bool {
    kind.starts_with("mode-")
}

// proves: P1
/// The line gets slow under its writers, and good again: both nodes show which mode counts.
#[test]
fn a_slow_line_steps_the_mode_down_and_a_good_one_up_again() {
    let mut pair = over_a_relay("fallback = \"async\"\nfallback_latency = \"100ms\"\nreturn_after = \"2s\"");
    let acts_as = |pair: &Pair, node| pair.status(node)["effective_mode"].clone();
    assert_eq!((acts_as(&pair, Side::Near), acts_as(&pair, Side::Far)), ("sync".into(), "sync".into()));
    // The other volume has been written to.
    let run = WriterRun::on_zeroes(1, LOG);
    let load = WriterLoad::start(&pair, Side::Near, &run, LoadPlan::crowded(LOG));
    pair.relay().slow_down(Duration::from_millis(150));
    pair.until("it steps down", |pair| acts_as(pair, Side::Near) == "async" && acts_as(pair, Side::Far) == "async");
    let status = pair.status(Side::Near);
    assert_eq!((&status["mode"], &status["protection"]), (&"sync".into(), &"queued".into()), "{status}");
    let reason = status["mode_ladder"]["reason"].as_str().expect("it is down");
    assert!(reason.contains("more than 100 ms"), "{reason}");
    let (_, text) = pair.output_of(Side::Near, &["status", GROUP]);
    assert!(text.contains("mode sync (now async)") && text.contains("acts as async for"), "{text}");
    let (_, refused) = pair.output_of(Side::Near, &["set", GROUP, "mode=async"]);
    assert!(refused.contains("\"async\" is not below mode = \"async\""), "{refused}");
    pair.relay().slow_down(Duration::ZERO);
    pair.until("it steps up", |pair| {
        let status = pair.status(Side::Near);
        status["effective_mode"] == "sync" && status["protection"] == "both-durable"
    });
    load.stop();
    let events = pair.done(Side::Near, &["events", GROUP, "--local", "--json"]);
    let all = events.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let steps: Vec<Value> = all.filter(|event| event["kind"].as_str().is_some_and(is_step)).collect();
    let seen: Vec<_> = steps.iter().map(|step| (&step["kind"], &step["from"], &step["to"])).collect();
    let (down, up) = ("mode-lowered".into(), "mode-restored".into());
    assert_eq!(seen, [(&down, &"sync".into(), &"async".into()), (&up, &"async".into(), &"sync".into())], "{events}");
    assert!(steps[0]["text"].as_str().is_some_and(|text| text.contains("more than 100 ms")), "{}", steps[0]);
    assert!(steps[1]["text"].as_str().is_some_and(|text| text.contains("2 s")), "{}", steps[1]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(VOLUMES);
    assert_eq!(run.check(&pair, Side::Far).lost_writes, 0);
}

// proves: P1, rule 14
/// The machine of the primary is gone: within its peer window the copy is promoted, and nothing that was acknowledged is missing.
#[test]
fn within_the_peer_window_a_copy_is_promoted_without_loss() {
    let mut pair = over_a_relay("policy = \"hold\"\nhold = \"10min\"");
    pair.until("the copy knows of the window", |pair| {
        pair.status(Side::Far)["peer_window_s"].as_f64().is_some_and(|left| left > 590.0)
    });
    let (code, said) = pair.output_of(Side::Far, &["promote", GROUP, "--in-window"]);
    assert!(code == 2 && said.contains("the peer is primary and connected"), "{code}: {said}");
    pair.qemu_io(Side::Near, "data", &["write -P 7 1M 1M"]);
    pair.kill(Side::Near);
    pair.until("the copy knows that the primary is gone", |pair| {
        pair.status(Side::Far)["peers"][0]["link"] != "connected"
    });
    let (_, shown) = pair.output_of(Side::Far, &["status", GROUP, "--local"]);
    assert!(
        shown.contains("Window") && shown.contains("nothing that the primary acknowledged is missing here"),
        "{shown}"
    );
    let (code, said) = pair.output_of(Side::Far, &["promote", GROUP]);
    assert!(code == 2 && said.contains("--in-window"), "{code}: {said}");
    let (code, said) = pair.output_of(Side::Far, &["promote", GROUP, "--in-window"]);
    assert!(code == 1 && said.contains("nothing that the peer has acknowledged is missing here"), "{code}: {said}");
    pair.qemu_io(Side::Far, "data", &["read -P 7 1M 1M", "read -P 1 0 1M"]);
}

/// Nobody is held for a peer that is away: nothing proves that a copy has everything.
#[test]
fn without_a_peer_window_nothing_is_promoted_that_is_to_lose_nothing() {
    let mut pair = over_a_relay("policy = \"degrade\"");
    pair.kill(Side::Near);
    let (code, said) = pair.output_of(Side::Far, &["promote", GROUP, "--in-window", "--json"]);
    assert!(code == 2 && said.contains("\"window-closed\"") && said.contains("--force"), "{code}: {said}");
    let (code, said) = pair.output_of(Side::Far, &["promote", GROUP, "--in-window", "--force"]);
    assert!(code == 3 && said.contains("cannot be used with"), "{code}: {said}");
}

/// Killed in its window, a primary that starts while its peer is away answers nobody alone before the window is over.
#[test]
fn a_primary_that_starts_anew_keeps_to_its_window() {
    let mut pair = over_a_relay("policy = \"hold\"\nhold = \"3s\"\nstart_alone = \"serve\"");
    pair.until("the copy knows of the window", |pair| !pair.status(Side::Far)["peer_window_s"].is_null());
    pair.kill(Side::Near);
    pair.kill(Side::Far);
    pair.serve(Side::Near);
    let waiting = pair.start_qemu_io(Side::Near, "data", &["write -P 2 1M 4k"]);
    pair.until("a writer is held", |pair| pair.status(Side::Near)["held_writers"] == 1);
    let (_, shown) = pair.output_of(Side::Near, &["status", GROUP, "--local"]);
    assert!(shown.contains("1 writer waits up to"), "{shown}");
    let (is_done, said) = waiting.finish(&mut pair);
    assert!(is_done, "{said}");
    assert_eq!(pair.status(Side::Near)["held_writers"], 0);
}

#[test]
fn held_writers_are_released_when_the_window_ends() {
    for (degrade, protection) in [("queue", "queued"), ("logging", "local-only")] {
        let group = format!("policy = \"hold\"\nhold = \"1s\"\nwait_limit = \"200ms\"\ndegrade = \"{degrade}\"");
        let mut pair = over_a_relay(&group);
        pair.relay().cut();
        let (is_done, said) = pair.try_qemu_io(Side::Near, "data", &["write -P 2 1M 1M", "flush"]);
        assert!(is_done, "{said}");
        pair.until("its bytes are tracked, not sent", |pair| {
            let status = pair.status(Side::Near);
            status["protection"] == protection && status["peers"][0]["dirty_bytes"].as_u64() >= Some(1 << 20)
        });
        heals(pair);
    }
}

// proves: P1
#[test]
fn strict_writers_get_an_error_and_the_copy_heals() {
    let pair = over_a_relay("policy = \"strict\"\nwait_limit = \"500ms\"");
    pair.relay().cut();
    let (is_done, said) = pair.try_qemu_io(Side::Near, "data", &["write -P 2 1M 1M"]);
    assert!(!is_done, "it must not be acknowledged: {said}");
    pair.wait_for(Side::Near, "holding");
    let (is_done, said) = pair.try_qemu_io(Side::Near, "log", &["write -P 3 0 4k"]);
    assert!(!is_done, "it must not be acknowledged: {said}");
    let status = pair.status(Side::Near);
    assert!(status["peers"][0]["dirty_bytes"].as_u64() >= Some(1 << 20), "{status}");
    heals(pair);
}

#[test]
fn degraded_writers_go_on() {
    let mut pair = over_a_relay("policy = \"degrade\"\ndegrade = \"logging\"\nwait_limit = \"500ms\"");
    pair.relay().cut();
    let (is_done, said) = pair.try_qemu_io(Side::Near, "data", &["write -P 2 1M 1M", "flush"]);
    assert!(is_done, "{said}");
    pair.until("it is in logging", |pair| pair.status(Side::Near)["protection"] == "local-only");
    heals(pair);
}

/// The default: the queue keeps the order, and nothing is synced for a cable that was out.
#[test]
fn degraded_writers_go_on_in_order() {
    let mut pair = over_a_relay("wait_limit = \"500ms\"");
    let resynced = pair.counter(Side::Near, "group.g.resynced_bytes");
    pair.relay().cut();
    let (is_done, said) = pair.try_qemu_io(Side::Near, "data", &["write -P 2 1M 1M", "flush"]);
    assert!(is_done, "{said}");
    pair.until("the queue keeps the order", |pair| {
        let status = pair.status(Side::Near);
        status["protection"] == "queued" && status["state"] == "queuing"
    });
    assert!(pair.log(Side::Near).contains("writes are answered without the peer, and follow in order"));
    pair.relay().restore();
    pair.wait_for(Side::Near, "replicating");
    assert_eq!(pair.counter(Side::Near, "group.g.resynced_bytes"), resynced, "no sync");
    heals(pair);
}

// proves: rule 19
/// Nothing arrives any more, and the daemon has nothing to do.
#[test]
fn the_time_since_the_primary_was_heard_goes_on_while_nothing_happens() {
    let mut pair = Pair::replicating(&PairPlan { volumes: VOLUMES, ..PairPlan::default() });
    pair.kill(Side::Near);
    pair.until("it is said to be ten seconds", |pair| {
        pair.status(Side::Far)["peers"][0]["heard_s"].as_f64().is_some_and(|seconds| seconds >= 10.0)
    });
    // How old the copy is, nobody here knows.
    assert!(pair.status(Side::Far)["peers"][0]["lag_seconds"].is_null());
}

// proves: P8
/// Writers were slowed down to the line's pace for minutes: exit code 0, and no line in the log.
#[test]
fn writers_that_a_full_queue_holds_up_are_reported_and_let_go() {
    let mut pair = Pair::replicating(&PairPlan { volumes: VOLUMES, volume_bytes: 4 << 20, ..PairPlan::default() });
    pair.done(Side::Near, &["set", GROUP, "queue.memory=1MiB"]);
    pair.done(Side::Near, &["link", "set", "rate=64kbit/s"]);
    pair.until("the link is back", |pair| pair.status(Side::Near)["peers"][0]["link"] == "connected");
    let run = WriterRun::on_zeroes(3, VOLUMES);
    let load = WriterLoad::start(&pair, Side::Near, &run, LoadPlan::crowded(VOLUMES));
    let words = "more is written than the link carries: writers were held up for";
    pair.until("status tells", |pair| {
        let (code, said) = pair.output_of(Side::Near, &["status", GROUP]);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        said.contains(words) && code == 1
    });
    pair.until("they are let go", |pair| pair.status(Side::Near)["state"] != "replicating");
    load.wait_for_more(&mut pair, 100);
    let log = pair.log(Side::Near);
    for words in ["writers are held up, the queue is full", "the group goes to logging"] {
        assert!(log.contains(words), "{words:?} is missing:\n{log}");
    }
    load.stop();
    // Each that waited is in one class, and the classes hold no more time than their bounds.
    let queue = &pair.status(Side::Near)["queue"];
    let numbers = |name: &str| {
        queue["waits"][name].as_array().expect("a list").iter().filter_map(Value::as_u64).collect::<Vec<_>>()
    };
    let (bounds, counts) = (numbers("bounds_us"), numbers("counts"));
    let (waited, sum_us) = (counts.iter().sum::<u64>(), queue["waits"]["sum_us"].as_u64().expect("a number"));
    assert!(waited > 0 && queue["blocked_ms"] == sum_us / 1000, "{queue}");
    let least: u64 = counts.iter().skip(1).zip(&bounds).map(|(count, above)| count * above).sum();
    assert!(counts.len() == bounds.len() + 1 && least <= sum_us, "{queue}");
    // Whoever was held up waited for longer than a second altogether.
    assert!(sum_us > 1_000_000, "{queue}");
    pair.done(Side::Near, &["link", "set", "rate=default"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(VOLUMES);
}

/// The same in `superasync`, set while the group replicates: nobody is held up, and the copy follows.
#[test]
fn in_superasync_a_full_queue_holds_nobody_up() {
    let mut pair = Pair::replicating(&PairPlan { volumes: VOLUMES, volume_bytes: 4 << 20, ..PairPlan::default() });
    pair.done(Side::Near, &["set", GROUP, "queue.memory=1MiB", "mode=superasync"]);
    pair.done(Side::Near, &["link", "set", "rate=64kbit/s"]);
    let run = WriterRun::on_zeroes(3, VOLUMES);
    let load = WriterLoad::start(&pair, Side::Near, &run, LoadPlan::crowded(VOLUMES));
    pair.until("the queue is full, and the order goes", |pair| pair.status(Side::Near)["state"] != "replicating");
    load.wait_for_more(&mut pair, 100);
    load.stop();
    let status = pair.status(Side::Near);
    assert_eq!(status["mode"], "superasync");
    assert!(status["queue"]["blocked_ms"].as_u64().is_some_and(|waited| waited < 1000), "{}", status["queue"]);
    assert_eq!(status["queue"]["waiting_writers"], 0, "{}", status["queue"]);
    pair.done(Side::Near, &["link", "set", "rate=default"]);
    pair.wait_for_rest(Side::Near);
    let status = pair.status(Side::Near);
    assert_eq!((&status["state"], &status["protection"]), (&"replicating".into(), &"queued".into()));
    pair.stop_both();
    pair.assert_equal(VOLUMES);
}
