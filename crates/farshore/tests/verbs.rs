//! Every verb of real pairs: for one group, for several and for all, each answer with its operation; and what is said on the wrong node.

use std::fs;

use serde_json::{Value, json};

use crate::common::{GROUP, Pair, PairPlan, Side, expect, schema};
use crate::one_group_fails::{status_of, two_groups};

/// The answers of a command with `--json`.
fn answers(pair: &Pair, node: Side, words: &[&str]) -> Vec<Value> {
    let output = pair.run(node, &[words, &["--json"]].concat());
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    schema::check(&told);
    assert_eq!(told["schema"], "farshore-answer/1", "{words:?}: {told}");
    told["answers"].as_array().expect("a list").clone()
}

/// What came of it, if each has the name of an operation.
#[track_caller]
fn results(words: &[&str], answers: &[Value]) -> Vec<String> {
    let one = |answer: &Value| {
        let id = answer["operation"].as_str().unwrap_or_else(|| panic!("{words:?}: no operation: {answer}"));
        assert!(id.starts_with("near-") || id.starts_with("far-"), "{id}");
        answer["result"].as_str().expect("a word").to_owned()
    };
    answers.iter().map(one).collect()
}

fn both_in_step(pair: &mut Pair, primary: Side) {
    pair.until("both groups are in step, and nothing waits", |pair| {
        [GROUP, "h"].iter().all(|group| {
            let now = status_of(pair, primary, group);
            now["role"] == "primary"
                && now["state"] == "replicating"
                && now["queue"]["items"] == 0
                && now["peers"][0]["dirty_bytes"] == 0
        })
    });
}

#[test]
fn every_verb_for_groups_takes_all_of_them_and_names_its_operations() {
    let mut pair = two_groups();
    let is = |pair: &Pair, node, words: &[&str], result: &str| {
        let found = answers(pair, node, words);
        assert_eq!(results(words, &found), [result; 2], "{words:?}: {found:?}");
        let groups: Vec<_> = found.iter().map(|answer| answer["group"].clone()).collect();
        assert_eq!(groups, [GROUP, "h"], "{words:?}");
    };
    both_in_step(&mut pair, Side::Near);
    is(&pair, Side::Near, &["set", "--all", "wait_limit=9s"], "done");
    is(&pair, Side::Near, &["set", GROUP, "h", "wait_limit=9s"], "unchanged");
    is(&pair, Side::Near, &["reset", "--all"], "unchanged");
    is(&pair, Side::Near, &["assume-equal", "--all"], "refused");
    is(&pair, Side::Near, &["verify", "--all", "--rate", "1Mbit/s"], "running");
    is(&pair, Side::Near, &["verify", "--all", "--stop"], "done");
    // As one, and each to its end.
    let ended = answers(&pair, Side::Near, &["verify", "--all", "--wait"]);
    assert_eq!(results(&["verify"], &ended), ["done"; 2], "{ended:?}");
    is(&pair, Side::Near, &["logging", "--all"], "done");
    is(&pair, Side::Near, &["sync", "--all"], "running");
    both_in_step(&mut pair, Side::Near);
    is(&pair, Side::Near, &["switchover", "--all", "--to", "far"], "done");
    both_in_step(&mut pair, Side::Far);
    is(&pair, Side::Near, &["failback", "--all"], "done");
    both_in_step(&mut pair, Side::Near);
    is(&pair, Side::Near, &["sync", "--all", "--reverse"], "running");
    both_in_step(&mut pair, Side::Near);
    is(&pair, Side::Near, &["sync", "--all", "--reverse", "--stop"], "unchanged");
    is(&pair, Side::Near, &["demote", "--all"], "done");
    pair.until("the copies have heard of the demotion", |pair| {
        let found = answers(pair, Side::Far, &["promote", "--all"]);
        results(&["promote"], &found).iter().all(|result| result == "done" || result == "unchanged")
    });
    both_in_step(&mut pair, Side::Far);
    // It is kept already.
    is(&pair, Side::Near, &["resolve", "--all", "--keep", "far"], "unchanged");
}

/// Those for a volume, an image or a device of one group, and those for a node.
#[test]
fn a_verb_for_one_group_or_for_the_node_answers_in_the_same_form() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    pair.wait_for_rest(Side::Near);
    let is = |pair: &Pair, node, words: &[&str], result: &str| {
        let found = answers(pair, node, words);
        assert_eq!(results(words, &found), [result], "{words:?}: {found:?}");
    };
    is(&pair, Side::Near, &["link", "set", "rate=100Mbit/s"], "done");
    is(&pair, Side::Near, &["link", "set", "rate=100Mbit/s"], "unchanged");
    is(&pair, Side::Near, &["link", "set", "rate=1"], "refused");
    is(&pair, Side::Near, &["config", "apply"], "unchanged");
    is(&pair, Side::Far, &["group", "attach", GROUP, "data"], "unchanged");
    is(&pair, Side::Far, &["group", "detach", GROUP, "data"], "done");
    is(&pair, Side::Far, &["group", "attach", GROUP, "data"], "done");
    // It is written down for the next start, and no daemon is asked.
    for (words, result, code) in [
        (&["accept-device", GROUP, "log", "--content-is-good"][..], "unchanged", Value::Null),
        (&["accept-device", GROUP, "tape", "--rebuild"], "refused", json!("bad-value")),
        (&["accept-device", "h", "data", "--rebuild"], "refused", json!("unknown-group")),
    ] {
        let found = answers(&pair, Side::Near, words);
        assert_eq!(
            (&found[0]["result"], &found[0]["refusal"]["code"]),
            (&json!(result), &code),
            "{words:?}: {found:?}"
        );
        assert_eq!((&found[0]["group"], found[0].get("operation")), (&json!(words[1]), None), "{words:?}: {found:?}");
    }
    let other = pair.device(Side::Near, "log");
    pair.stop(Side::Near);
    fs::rename(&other, other.with_extension("aside")).expect("taken away");
    fs::copy(other.with_extension("aside"), &other).expect("another disk");
    let found = answers(&pair, Side::Near, &["accept-device", GROUP, "log", "--content-is-good"]);
    assert_eq!((found.len(), &found[0]["result"]), (1, &json!("done")), "{found:?}");
}

/// Whoever types at the wrong node is told which node is the right one, and how it is typed for that.
#[test]
fn a_command_on_the_wrong_node_says_which_is_the_right_one() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    pair.wait_for_rest(Side::Near);
    // At that node, and from the other one for it.
    for (node, on) in [(Side::Far, &[][..]), (Side::Near, &["--on", "far"])] {
        for (typed, part) in [
            (&["sync", GROUP, "--full"][..], "the primary, node near: 'farshore sync g --full --on near'"),
            (&["assume-equal", GROUP], "the primary, node near: 'farshore assume-equal g --on near'"),
        ] {
            expect(&pair.run(node, &[typed, on].concat()), 2, &[part]);
        }
        let demoted = pair.run(node, &[&["demote", GROUP], on].concat());
        expect(&demoted, 0, &["already secondary; nothing to do; node near is the primary"]);
    }
    assert_eq!(Side::BOTH.map(|node| pair.status(node)["role"].clone()), ["primary", "secondary"]);
}

/// The command changed nothing on the node that is well, and did not say that the other one is the one to be reset.
#[test]
fn a_reset_on_the_node_that_is_well_names_the_other_one() {
    let mut pair = two_groups();
    both_in_step(&mut pair, Side::Near);
    for node in Side::BOTH {
        pair.kill(node);
        let volume = pair.path(&format!("{}-h", node.name()));
        fs::rename(&volume, volume.with_extension("aside")).expect("taken away");
        pair.serve(node);
        let (well, fails) = (node.other(), node.name());
        let part = format!("the group has not failed here; that of node {fails} has: 'farshore reset h --on {fails}'");
        pair.until("it is told", |pair| {
            let (code, said) = pair.output_of(well, &["reset", "h"]);
            assert!(code == 0, "{said}");
            said.contains(&part)
        });
        fs::rename(volume.with_extension("aside"), &volume).expect("put back");
        pair.done(well, &["reset", "h", "--on", fails]);
        both_in_step(&mut pair, Side::Near);
        pair.until("nothing is to be reset any more", |pair| {
            pair.output_of(well, &["reset", "h"]).1.contains("the group has not failed; nothing to do")
        });
    }
}
