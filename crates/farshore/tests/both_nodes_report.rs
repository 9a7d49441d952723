//! Both nodes tell the same truth of the copy, or since when it is not known; and which of them is set to what.
// proves: rule 19

use crate::common::{GROUP, Pair, PairPlan, Side, schema};
use serde_json::Value;

const MIB: u64 = 1 << 20;

fn lag_bytes(status: &Value) -> Option<u64> {
    status["peers"][0]["lag_bytes"].as_u64()
}

fn warns(status: &Value, of: &str) -> bool {
    status["warnings"].to_string().contains(of)
}

/// A secondary said that it was behind by nothing while its primary had megabytes queued, was dead, or had never synced.
#[test]
fn a_secondary_reports_what_its_primary_has_queued() {
    let mut pair = Pair::new(&PairPlan::default());
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.until("all is missing, and the secondary says so", |pair| {
        [Side::Near, Side::Far].map(|node| lag_bytes(&pair.status(node))) == [Some(32 * MIB); 2]
    });
    pair.sync_fully(Side::Near);
    pair.done(Side::Near, &["link", "set", "rate=8Mbit/s"]);
    pair.wait_for(Side::Near, "replicating");
    pair.qemu_io(Side::Near, "data", &["write -P 1 0 12M"]);
    // Frames travel all the while: nobody is idle.
    pair.until("the secondary says what waits there", |pair| {
        let (near, far) = (lag_bytes(&pair.status(Side::Near)), lag_bytes(&pair.status(Side::Far)));
        assert!(near > Some(2 * MIB), "too late: {near:?} are left, the secondary says {far:?}");
        far > Some(2 * MIB)
    });
    pair.kill(Side::Near);
    pair.until("the secondary notices", |pair| lag_bytes(&pair.status(Side::Far)).is_none());
    let far = pair.status(Side::Far);
    let peer = &far["peers"][0];
    assert!(peer["lag_seconds"].is_null(), "{far}");
    assert!(peer["heard_lag_bytes"].as_u64() > Some(MIB) && peer["heard_s"].as_f64().is_some(), "{far}");
    let page = pair.done(Side::Far, &["status"]);
    assert!(page.contains("  Behind      unknown since "), "{page}");
    pair.stop(Side::Far);
    pair.serve(Side::Far);
    let page = pair.done(Side::Far, &["status"]);
    assert!(page.contains("  Behind      unknown: near was not heard as primary since this daemon started"), "{page}");
}

/// Whoever promotes by force has to know how much is given up: the answer had a sequence and no more, and the promotion forgot the rest.
#[test]
fn a_forced_promotion_says_how_much_may_be_missing() {
    let mut pair = Pair::replicating(&PairPlan::default());
    pair.done(Side::Near, &["link", "set", "rate=8Mbit/s", "compression=off"]);
    pair.wait_for(Side::Near, "replicating");
    pair.qemu_io(Side::Near, "data", &["write -P 1 0 12M"]);
    pair.until("the secondary says what waits there", |pair| lag_bytes(&pair.status(Side::Far)) > Some(2 * MIB));
    pair.kill(Side::Near);
    pair.until("the secondary notices", |pair| lag_bytes(&pair.status(Side::Far)).is_none());
    let promotable = pair.status(Side::Far)["promotable"].clone();
    let output = pair.run(Side::Far, &["promote", GROUP, "--force", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    schema::check(&document);
    let (answer, missing) = (&document["answers"][0], &document["answers"][0]["may_be_missing"]);
    assert_eq!(output.status.code(), Some(1), "{document}");
    assert!(missing["bytes"].as_u64() > Some(MIB) && missing["heard_s"].as_f64() > Some(0.0), "{document}");
    assert!(missing["seconds"].is_number() && missing["time"].is_string(), "{document}");
    assert!(missing["sequence"].as_u64() >= promotable["sequence"].as_u64(), "{promotable} {document}");
    for text in [&answer["message"], &answer["warnings"]] {
        let text = text.to_string();
        assert!(text.contains("the copy was ") && text.contains(" behind when the primary was heard last, "), "{text}");
    }
    // Nothing of it is said of a goal that was reached before.
    let (code, said) = pair.output_of(Side::Far, &["promote", GROUP, "--force"]);
    assert!(code == 0 && !said.contains("behind"), "{code}: {said}");
}

/// It printed its own mode for that of its primary, and after a failover served in it without a word.
#[test]
fn both_nodes_say_which_of_them_is_set_to_what() {
    let mut pair = Pair::replicating(&PairPlan::default());
    let said = pair.done(Side::Near, &["set", GROUP, "mode=sync"]);
    assert!(said.contains("far keeps mode = async, set it there too"), "{said}");
    let differ = "near has mode = sync, far mode = async, which counts once it is promoted";
    pair.until("both nodes show it", |pair| {
        Side::BOTH.iter().all(|node| {
            let status = pair.status(*node);
            status["mode"] == "sync" && warns(&status, differ)
        })
    });
    let said = pair.done(Side::Far, &["set", GROUP, "mode=sync", "wait_limit=3s"]);
    assert!(said.contains("near keeps wait_limit = 10s, set it there too"), "{said}");
    assert_eq!(pair.status(Side::Far)["peers"][0]["settings"]["mode"], "sync");
    let said = pair.done(Side::Near, &["set", GROUP, "wait_limit=3s"]);
    assert!(said.contains("far has the same"), "{said}");
    pair.until("nothing differs", |pair| Side::BOTH.iter().all(|node| !warns(&pair.status(*node), "by its own")));

    pair.done(Side::Far, &["set", GROUP, "mode=default"]);
    pair.kill(Side::Near);
    pair.stop(Side::Far);
    pair.serve(Side::Far);
    assert_eq!(pair.status(Side::Far)["mode"], "sync", "the copy's, known over a restart");
    let (code, said) = pair.output_of(Side::Far, &["promote", GROUP, "--force"]);
    let reported = "serves in mode async, as set on this node, and the primary before it served in sync";
    assert!(code == 1 && said.contains(reported), "{code}: {said}");
    let far = pair.status(Side::Far);
    assert!(far["mode"] == "async" && warns(&far, "the primary before it served in sync"), "{far}");
    pair.done(Side::Far, &["set", GROUP, "mode=sync"]);
    assert!(!warns(&pair.status(Side::Far), "served in"), "{}", pair.status(Side::Far));
}

/// A switchover that nothing is missing after says it as well.
#[test]
fn a_switchover_into_another_mode_says_so() {
    let mut pair = Pair::replicating(&PairPlan { mode: "sync", ..PairPlan::default() });
    pair.done(Side::Far, &["set", GROUP, "mode=async"]);
    pair.until("every dirty bit is cleared", |pair| pair.status(Side::Near)["peers"][0]["dirty_bytes"] == 0);
    pair.done(Side::Near, &["demote", GROUP]);
    let mut answer = (2, String::new());
    pair.until("the far node heard of the demotion", |pair| {
        answer = pair.output_of(Side::Far, &["promote", GROUP]);
        answer.0 < 2
    });
    let (code, said) = answer;
    assert!(code == 1 && said.contains("nothing is missing; it serves in mode async"), "{code}: {said}");
}
