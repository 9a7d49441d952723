//! Operations of real pairs: what is ordered again changes nothing, and each end can be waited for, also over a restart of the daemon;
//! and what a sync would send is told before.

use std::time::Duration;

use serde_json::{Value, json};

use crate::common::damage::rot;
use crate::common::{Background, GROUP, Pair, PairPlan, Side, schema};

/// The object that a command prints, and its exit code.
fn answer_of(pair: &Pair, node: Side, words: &[&str]) -> (i32, Value) {
    let output = pair.run(node, words);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    schema::check(&told);
    (output.status.code().expect("it ends by itself"), told)
}

/// The one answer of a command with `--json`, and its exit code.
fn answer(pair: &Pair, node: Side, words: &[&str]) -> (i32, Value) {
    let (code, list) = answer_of(pair, node, &[words, &["--json"]].concat());
    assert_eq!((&list["schema"], &list["exit"]), (&json!("farshore-answer/1"), &json!(code)), "{list}");
    (code, list["answers"][0].clone())
}

fn id_of(answer: &Value) -> String {
    answer["operation"].as_str().unwrap_or_else(|| panic!("no name: {answer}")).to_owned()
}

#[test]
fn each_verb_can_be_typed_again() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    let demoted: &[&str] = &["demote", GROUP];
    let promoted: &[&str] = &["promote", GROUP];
    let forced: &[&str] = &["promote", GROUP, "--force"];
    let again = |pair: &Pair, node, words| {
        let (code, answer) = answer(pair, node, words);
        assert_eq!((code, &answer["result"]), (0, &json!("unchanged")), "{words:?}: {answer}");
    };
    // What this node has not flushed is dirty still.
    pair.until("nothing is dirty", |pair| pair.status(Side::Near)["peers"][0]["dirty_bytes"] == 0);
    let before = pair.status(Side::Near);
    again(&pair, Side::Near, promoted);
    again(&pair, Side::Near, forced);
    again(&pair, Side::Far, demoted);
    again(&pair, Side::Near, &["sync", GROUP]);
    // Typed at the other node it is carried, and says the same.
    again(&pair, Side::Far, &["sync", GROUP]);
    let after = pair.status(Side::Near);
    for key in ["role", "generation", "term", "state"] {
        assert_eq!(before[key], after[key], "{key}");
    }
    pair.done(Side::Near, &["set", GROUP, "mode=sync"]);
    again(&pair, Side::Near, &["set", GROUP, "mode=sync"]);
    pair.done(Side::Near, &["logging", GROUP]);
    again(&pair, Side::Near, &["logging", GROUP]);
    pair.done(Side::Near, &["sync", GROUP, "--wait"]);
    pair.until("nothing is dirty", |pair| pair.status(Side::Near)["peers"][0]["dirty_bytes"] == 0);
    pair.done(Side::Near, demoted);
    again(&pair, Side::Near, demoted);
    pair.until("the far node may be promoted", |pair| {
        let (code, answer) = answer(pair, Side::Far, promoted);
        // Before the far node has heard of the demotion.
        assert!(code < 2 || answer["refusal"]["retry"] == "later", "{answer}");
        code < 2
    });
    let term = pair.status(Side::Far)["term"].clone();
    again(&pair, Side::Far, forced);
    assert_eq!(pair.status(Side::Far)["term"], term, "what is attached stays so");
    let refusal = json!({ "code": "peer-is-primary", "retry": "never" });
    pair.until("the near node has heard of the promotion", |pair| {
        let (code, refused) = answer(pair, Side::Near, promoted);
        assert_eq!(code, 2, "{refused}");
        refused["refusal"] == refusal
    });
}

/// A cluster's agent that missed the first answer must hear that not everything arrived.
#[test]
fn a_demotion_that_is_repeated_warns_of_the_same() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    pair.kill(Side::Far);
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 64k", "flush"]);
    let (code, first) = answer(&pair, Side::Near, &["demote", GROUP]);
    assert_eq!((code, &first["result"]), (1, &json!("done")), "{first}");
    let (code, again) = answer(&pair, Side::Near, &["demote", GROUP]);
    assert_eq!((code, &again["result"]), (1, &json!("unchanged")), "{again}");
    assert_eq!(again["warnings"], first["warnings"]);
    let id = id_of(&again);
    pair.until("the log of events has it", |pair| {
        pair.output_of(Side::Near, &["events", "--json", "--local"]).1.contains(&id)
    });
    // Nor does another run of the daemon forget it.
    pair.kill(Side::Near);
    pair.serve(Side::Near);
    let (code, told) = answer(&pair, Side::Near, &["wait", &id]);
    assert_eq!((code, &told["result"], &told["warnings"]), (1, &json!("unchanged"), &first["warnings"]), "{told}");
    pair.until("it warns of the same", |pair| {
        let (code, told) = answer(pair, Side::Near, &["demote", GROUP]);
        assert_ne!(code, 0, "{told}");
        code == 1 && told["warnings"] == first["warnings"]
    });
    // In another history it is of no interest any more.
    pair.promote_by_force(Side::Near);
    pair.serve(Side::Far);
    pair.sync_fully(Side::Near);
    pair.until("nothing is dirty", |pair| pair.status(Side::Near)["peers"][0]["dirty_bytes"] == 0);
    pair.done(Side::Near, &["demote", GROUP]);
    pair.done(Side::Near, &["demote", GROUP]);
}

/// Whoever did not hear the first answer must hear that there are two primaries.
#[test]
fn a_promotion_by_force_that_is_repeated_warns_again() {
    let pair = Pair::replicating(&PairPlan::DEFAULT);
    let forced: &[&str] = &["promote", GROUP, "--force"];
    let (code, first) = answer(&pair, Side::Far, forced);
    assert_eq!((code, &first["result"]), (1, &json!("done")), "{first}");
    let (code, again) = answer(&pair, Side::Far, forced);
    assert_eq!((code, &again["result"]), (1, &json!("unchanged")), "{again}");
    assert!(again["warnings"][0].to_string().contains("both nodes are primary now"), "{again}");
}

/// The answer says that the sync begins by itself, and its operation was ended as stopped ten seconds later.
#[test]
fn a_sync_that_waits_for_the_peer_ends_when_that_is_back() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    pair.kill(Side::Far);
    pair.until("the link is lost", |pair| pair.status(Side::Near)["peers"][0]["link"] != "connected");
    pair.done(Side::Near, &["logging", GROUP]);
    let (code, sync) = answer(&pair, Side::Near, &["sync", GROUP]);
    assert_eq!(code, 1, "the peer is away: {sync}");
    std::thread::sleep(Duration::from_secs(12));
    let (code, told) = answer(&pair, Side::Near, &["wait", &id_of(&sync), "--timeout", "1s"]);
    assert_eq!((code, &told["result"]), (2, &json!("running")), "{told}");
    pair.serve(Side::Far);
    let (code, told) = answer(&pair, Side::Near, &["wait", &id_of(&sync), "--timeout", "60s"]);
    assert_eq!((code, &told["result"]), (0, &json!("done")), "{told}");
}

#[test]
fn a_full_sync_is_waited_for_by_its_name_from_either_node() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    let (code, begun) = answer(&pair, Side::Far, &["sync", GROUP, "--full", "--on", "near"]);
    assert_eq!((code, &begun["result"]), (0, &json!("running")), "{begun}");
    let id = id_of(&begun);
    assert!(id.starts_with("near-"), "{id}");
    let mut told = pair.ask(Side::Near, &json!({ "request": "operation", "id": id }));
    let kind = told.as_object_mut().and_then(|told| told.remove("reply"));
    assert_eq!(kind, Some(json!("operation")), "{told}");
    schema::seen(&told);
    for node in Side::BOTH {
        let said = pair.done(node, &["wait", &id, "--timeout", "90s"]);
        assert!(said.contains("g: the copy is up to date"), "{said}");
    }
    // What comes after it is not its end.
    pair.done(Side::Near, &["logging", GROUP]);
    let (code, ended) = answer(&pair, Side::Near, &["wait", &id]);
    assert_eq!((code, &ended["result"], &ended["verb"]), (0, &json!("done"), &json!("sync")), "{ended}");
    let (code, unknown) = answer(&pair, Side::Near, &["wait", "near-0f-1"]);
    assert_eq!((code, &unknown["result"]), (2, &json!("unknown")), "{unknown}");
    pair.stop_both();
}

/// Of what was answered the log of events has the answer. Of a sync that goes on nobody knows by its name what becomes of it.
#[test]
fn waiting_outlives_a_restart_of_the_daemon() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    let (code, set) = answer(&pair, Side::Near, &["set", GROUP, "wait_limit=7s"]);
    assert_eq!(code, 0, "{set}");
    pair.kill(Side::Far);
    let (code, sync) = answer(&pair, Side::Near, &["sync", GROUP]);
    assert_eq!(code, 1, "the peer is away: {sync}");
    let id = id_of(&sync);
    let mut waits = Background::start(pair.command(Side::Near, &["wait", &id, "--json"]));
    std::thread::sleep(Duration::from_secs(1));
    assert!(!waits.has_ended(), "the sync has not ended");
    pair.stop(Side::Near);
    pair.serve(Side::Near);
    pair.until("it ends", |_| waits.has_ended());
    let output = waits.output();
    let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    schema::seen(&list);
    let refusal = json!({ "code": "operation-cut-off", "retry": "never" });
    assert_eq!((output.status.code(), &list["answers"][0]["refusal"]), (Some(2), &refusal), "{list}");

    let (code, ended) = answer(&pair, Side::Near, &["wait", &id_of(&set)]);
    assert_eq!((code, &ended["result"], &ended["verb"]), (0, &json!("done"), &json!("set")), "{ended}");
    let next = answer(&pair, Side::Near, &["set", GROUP, "wait_limit=8s"]).1;
    assert_ne!(id_of(&next), id_of(&set), "no name comes back");
}

#[test]
fn what_a_sync_would_send_is_told_before() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.until("the nodes have met", |pair| {
        pair.status(Side::Near)["reason"].to_string().contains("never been synced")
    });
    let preview = |pair: &Pair, node: Side| {
        let output = pair.run(node, &["connect", GROUP, "--dry-run", "--json"]);
        let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        schema::seen(&told);
        (output.status.code(), told)
    };
    // Whichever node is asked, the primary answers.
    for node in Side::BOTH {
        let (code, told) = preview(&pair, node);
        assert_eq!((code, &told["verdict"]), (Some(1), &json!("full-sync-needed")), "{told}");
        for (key, value) in [("node", "near"), ("from", "near"), ("to", "far")] {
            assert_eq!(told[key], value, "{told}");
        }
        assert_eq!(told["bytes"], 2 * (16 << 20), "both volumes: {told}");
    }
    let reason = pair.status(Side::Near)["reason"].to_string();
    assert!(reason.contains("never been synced"), "nothing was done: {reason}");
    pair.sync_fully(Side::Near);
    let (code, told) = preview(&pair, Side::Near);
    assert_eq!((code, &told["verdict"]), (Some(0), &json!("under-way")), "{told}");
    assert_eq!(told["bytes"], 0, "nothing is left to be sent: {told}");
    // Unless the link was not measured yet.
    assert!(told["seconds"].is_null() || told["seconds"] == 0.0, "{told}");
    // The secondary, asked by name, says who knows.
    let (code, told) = answer_of(&pair, Side::Near, &["connect", GROUP, "--dry-run", "--json", "--on", "far"]);
    assert_eq!((code, &told["node"], &told["verdict"]), (1, &json!("far"), &json!("unknown")), "{told}");
    assert!(told["message"].to_string().contains("ask the primary near"), "{told}");
    pair.done(Side::Near, &["logging", GROUP]);
    let (code, told) = preview(&pair, Side::Near);
    assert!(code == Some(0) && told["waits_for"].is_string(), "{told}");
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M", "flush"]);
    pair.until("what was written is known, and the link was measured", |pair| {
        let told = preview(pair, Side::Near).1;
        told["bytes"] == 1 << 20 && told["seconds"].is_f64()
    });
    let told = preview(&pair, Side::Near).1;
    let number = |key: &str| told[key].as_f64().unwrap_or_else(|| panic!("{key}: {told}"));
    let expected = number("bytes") / number("rate_bytes_per_s");
    assert!((number("seconds") - expected).abs() <= expected / 100.0, "{expected} s: {told}");
    pair.kill(Side::Far);
    pair.until("the peer is gone", |pair| preview(pair, Side::Near).1["verdict"] == "unknown");
    let (code, said) = pair.output_of(Side::Near, &["connect", GROUP]);
    assert!(code == 3 && said.contains("--dry-run"), "{said}");
}

/// The operation ended with the answer to its order, and `wait` said `done` while blocks that differ were still to be found.
#[test]
fn a_verify_is_waited_for_by_its_name() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    // Typed at the copy it is an operation of the primary.
    let (code, slow) = answer(&pair, Side::Far, &["verify", GROUP, "--rate", "8Mbit/s"]);
    assert_eq!((code, &slow["result"]), (0, &json!("running")), "{slow}");
    let (code, told) = answer(&pair, Side::Near, &["wait", &id_of(&slow), "--timeout", "1s"]);
    assert_eq!((code, &told["result"]), (2, &json!("running")), "{told}");
    let (code, stopped) = answer(&pair, Side::Near, &["verify", GROUP, "--stop"]);
    assert_eq!((code, &stopped["result"]), (0, &json!("done")), "{stopped}");
    let ended = |pair: &Pair, id: &str, result: (i32, &str), refusal: &Value| {
        let (code, told) = answer(pair, Side::Near, &["wait", id, "--timeout", "60s"]);
        assert_eq!((code, &told["result"], &told["refusal"]["code"]), (result.0, &json!(result.1), refusal), "{told}");
        told["message"].to_string()
    };
    let said = ended(&pair, &id_of(&slow), (2, "stopped"), &json!("verify-stopped"));
    assert!(said.contains("stopped by the operator"), "{said}");
    let whole = answer(&pair, Side::Near, &["verify", GROUP]).1;
    let said = ended(&pair, &id_of(&whole), (0, "done"), &Value::Null);
    assert!(said.contains("g: verify at ") && said.contains("nothing differs"), "{said}");
    rot(&pair.device(Side::Far, "data"), 100_000);
    let differs = answer(&pair, Side::Near, &["verify", GROUP]).1;
    let said = ended(&pair, &id_of(&differs), (1, "done"), &json!("copy-differs"));
    assert!(said.contains("4 KiB differ (data at byte 98304)"), "{said}");
    let (code, repaired) = answer(&pair, Side::Near, &["verify", GROUP, "--repair", "--wait"]);
    assert_eq!((code, &repaired["result"]), (0, &json!("done")), "{repaired}");
    assert!(repaired["message"].to_string().contains("4 KiB repaired"), "{repaired}");
    // What comes after it is not its end.
    ended(&pair, &id_of(&slow), (2, "stopped"), &json!("verify-stopped"));
    ended(&pair, &id_of(&differs), (1, "done"), &json!("copy-differs"));
    // The next run of the daemon knows that it began, and no more.
    let (code, slow) = answer(&pair, Side::Near, &["verify", GROUP, "--rate", "8Mbit/s"]);
    assert_eq!(code, 0, "{slow}");
    pair.stop(Side::Near);
    pair.serve(Side::Near);
    ended(&pair, &id_of(&slow), (2, "unknown"), &json!("operation-cut-off"));
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

/// Two operators have the copy verified: each waits for the one that runs, at whichever rate.
#[test]
fn a_verify_that_gets_another_rate_is_waited_for_by_both_names() {
    let pair = Pair::replicating(&PairPlan::DEFAULT);
    let first = answer(&pair, Side::Near, &["verify", GROUP, "--rate", "8Mbit/s"]).1;
    let (code, same) = answer(&pair, Side::Near, &["verify", GROUP, "--rate", "8Mbit/s"]);
    assert_eq!((code, &same["result"]), (0, &json!("unchanged")), "{same}");
    let (code, second) = answer(&pair, Side::Near, &["verify", GROUP]);
    assert_eq!((code, &second["result"]), (0, &json!("running")), "{second}");
    for id in [id_of(&first), id_of(&second)] {
        let (code, told) = answer(&pair, Side::Near, &["wait", &id, "--timeout", "60s"]);
        assert_eq!((code, &told["result"]), (0, &json!("done")), "{told}");
        assert!(told["message"].to_string().contains("nothing differs"), "{told}");
    }
}

/// `wait` said `done` at once, while the other node served the clients.
#[test]
fn a_reverse_sync_is_waited_for_by_its_name() {
    let mut pair = Pair::replicating(&PairPlan { volume_bytes: 8 << 20, ..PairPlan::DEFAULT });
    let (code, begun) = answer(&pair, Side::Near, &["sync", GROUP, "--reverse", "--full"]);
    assert_eq!((code, &begun["result"]), (0, &json!("running")), "{begun}");
    // The node that serves sends nothing: it stays where it is.
    pair.done(Side::Far, &["logging", GROUP]);
    let (code, told) = answer(&pair, Side::Far, &["wait", &id_of(&begun), "--timeout", "2s"]);
    assert_eq!((code, &told["result"]), (2, &json!("running")), "{told}");
    let (code, stopped) = answer(&pair, Side::Near, &["sync", GROUP, "--reverse", "--stop"]);
    assert_eq!((code, &stopped["result"]), (0, &json!("done")), "{stopped}");
    let stays = |pair: &Pair| {
        let (code, told) = answer(pair, Side::Near, &["wait", &id_of(&begun), "--timeout", "30s"]);
        let ended = (code, &told["result"], &told["refusal"]["code"]);
        assert_eq!(ended, (2, &json!("stopped"), &json!("reverse-over")), "{told}");
        assert!(told["message"].to_string().contains("node far stays the primary"), "{told}");
    };
    stays(&pair);
    pair.done(Side::Far, &["sync", GROUP, "--wait"]);
    // Back, and this one comes to its end by itself. As text it has its name too.
    let said = pair.done(Side::Far, &["sync", GROUP, "--reverse"]);
    let id = said.lines().find_map(|line| line.strip_prefix("operation ")).expect("its name").to_owned();
    let (code, told) = answer(&pair, Side::Near, &["wait", &id, "--timeout", "60s"]);
    assert_eq!((code, &told["result"], &told["verb"]), (0, &json!("done"), &json!("sync")), "{told}");
    assert!(told["message"].to_string().contains("this node is the primary again"), "{told}");
    assert_eq!(pair.status(Side::Far)["role"], "primary");
    stays(&pair);
    pair.wait_for_rest(Side::Far);
    pair.stop_from(Side::Far);
    pair.assert_equal(&["data", "log"]);
}

/// A refusal was a sentence beside no object at all.
#[test]
fn what_a_sync_would_send_is_refused_as_json_too() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    pair.serve(Side::Near);
    let (code, refused) = answer(&pair, Side::Near, &["connect", "h", "--dry-run"]);
    assert_eq!((code, &refused["result"], &refused["verb"]), (2, &json!("refused"), &json!("connect")), "{refused}");
    assert_eq!((&refused["group"], &refused["refusal"]["code"]), (&json!("h"), &json!("unknown-group")), "{refused}");
    assert!(refused["message"].to_string().contains("has no group"), "{refused}");
    // Beside a group that is there each has its line.
    let output = pair.run(Side::Near, &["connect", "h", GROUP, "--dry-run", "--json"]);
    let lines: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {output:?}")))
        .collect();
    let schemas: Vec<_> = lines.iter().map(|line| line["schema"].clone()).collect();
    assert_eq!(schemas, ["farshore-answer/1", "farshore-connect/1"], "{lines:?}");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    pair.kill(Side::Near);
    let (code, refused) = answer(&pair, Side::Near, &["connect", GROUP, "--dry-run"]);
    assert_eq!((code, &refused["refusal"]["code"]), (2, &json!("not-reached")), "{refused}");
}
