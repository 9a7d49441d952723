//! Marks by two daemons: set, waited for, listed, locked and dropped; and what is typed wrongly.
// proves: rule 4, P8

use serde_json::Value;

use crate::common::damage::state;
use crate::common::{Background, GROUP, Pair, PairPlan, Side, expect, schema};

fn json(text: &str) -> Value {
    let value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    schema::seen(&value);
    value
}

fn named(pair: &Pair, node: Side) -> Vec<Value> {
    let list = json(&pair.done(node, &["mark", "list", GROUP, "--json"]));
    list["named"].as_array().expect("a list").clone()
}

fn of(pair: &Pair, node: Side, name: &str) -> Value {
    named(pair, node).into_iter().find(|mark| mark["name"] == name).unwrap_or_default()
}

#[test]
fn a_mark_is_on_both_nodes_and_wrong_words_change_nothing() {
    let mut pair = Pair::replicating(&PairPlan { volumes: &["data"], ..PairPlan::default() });
    pair.qemu_io(Side::Near, "data", &["write -P 1 0 64k", "flush"]);
    let said = pair.done(Side::Near, &["mark", GROUP, "first", "--wait", "--timeout", "60s"]);
    assert!(said.contains("first is on both nodes"), "{said}");
    pair.qemu_io(Side::Near, "data", &["write -P 2 0 64k"]);
    let (here, there) = (of(&pair, Side::Near, "first"), of(&pair, Side::Far, "first"));
    assert_eq!(here, there, "the same, word for word");
    assert_eq!(here["state"], "on-both");
    // Typed at the secondary, it is set by the primary.
    let told = json(&pair.done(Side::Far, &["mark", GROUP, "second", "--json"]));
    assert_eq!(told["schema"], "farshore-answer/1");
    pair.done(Side::Near, &["drain", GROUP, "--to", "second", "--timeout", "60s"]);
    assert!(of(&pair, Side::Far, "second")["sequence"].as_u64() > here["sequence"].as_u64());
    let again = pair.done(Side::Near, &["mark", GROUP, "first"]);
    assert!(again.contains("taken already"), "{again}");

    for (words, code, part) in [
        (&["mark", GROUP][..], 3, "required"),
        (&["mark", GROUP, "a b"], 2, "cannot be called"),
        (&["mark", GROUP, "before-sync-9"], 2, "kept for rollback points"),
        (&["mark", GROUP, "now"], 2, "now for the present"),
        (&["mark", "none", "x"], 2, "no group"),
        (&["mark", GROUP, "none", "x"], 2, "no group"),
        (&["mark", "lock", GROUP, "none"], 2, "no mark"),
        (&["mark", GROUP, "x", "--timeout", "5s"], 3, "--wait"),
        (&["mark", GROUP, "x", "--wait", "--timeout", "soon"], 3, "--timeout"),
        (&["drain", GROUP, "--to", "none"], 2, "no mark"),
    ] {
        expect(&pair.run(Side::Near, words), code, &[part]);
    }
    assert_eq!(named(&pair, Side::Near).len(), 2, "nothing was set");

    pair.done(Side::Far, &["mark", "lock", GROUP, "first"]);
    let refused =
        json(&expect(&pair.run(Side::Near, &["mark", "drop", GROUP, "first", "--json"]), 2, &["mark-locked"]));
    assert_eq!(refused["answers"][0]["refusal"]["code"], "mark-locked", "{refused}");
    pair.done(Side::Near, &["mark", "drop", GROUP, "first", "--override-lock"]);
    pair.until("the peer has dropped it too", |pair| of(pair, Side::Far, "first").is_null());

    // Alone it is set with a warning, and never comes to the peer.
    pair.done(Side::Near, &["logging", GROUP]);
    let (code, said) = pair.output_of(Side::Near, &["mark", GROUP, "alone"]);
    assert!(code == 1 && said.contains("here alone"), "{code}: {said}");
    assert_eq!(of(&pair, Side::Near, "alone")["state"], "here-alone");
    let (code, said) = pair.output_of(Side::Near, &["drain", GROUP, "--to", "alone"]);
    assert!(code != 0 && said.contains("does not come"), "{code}: {said}");
    pair.stop_both();
    let file = state(&pair, Side::Near, "marks");
    let mut inspect = std::process::Command::new(env!("CARGO_BIN_EXE_farshore"));
    let seen = expect(&inspect.arg("inspect").arg(file).output().expect("the binary runs"), 0, &[]);
    assert!(seen.contains("second: generation") && seen.contains("alone"), "{seen}");
}

/// Whoever waits is told when the mark is there, or that it does not come; typed at the secondary as well.
#[test]
fn waiting_for_a_mark_ends_with_the_truth() {
    let mut pair = Pair::replicating(&PairPlan { volumes: &["data"], ..PairPlan::default() });
    let said = pair.done(Side::Far, &["mark", GROUP, "far", "--wait", "--timeout", "60s"]);
    assert!(said.contains("far is on both nodes"), "{said}");
    expect(&pair.run(Side::Far, &["drain", GROUP, "--to", "far"]), 2, &["secondary", "near"]);

    pair.stop(Side::Far);
    let late = ["mark", GROUP, "later", "--wait", "--timeout", "1s"];
    expect(&pair.run(Side::Near, &late), 2, &["later is set", "not on the other node in time", "drain"]);
    assert_eq!(of(&pair, Side::Near, "later")["state"], "on-its-way");
    let waits = Background::start(pair.command(Side::Near, &["drain", GROUP, "--to", "later"]));
    pair.serve(Side::Far);
    let (is_done, said) = waits.finish(&mut pair);
    assert!(is_done && said.contains("later is on both nodes"), "{said}");

    pair.stop(Side::Far);
    pair.done(Side::Near, &["mark", GROUP, "dropped"]);
    let waits = Background::start(pair.command(Side::Near, &["drain", GROUP, "--to", "dropped"]));
    pair.output_of(Side::Near, &["logging", GROUP]);
    let (is_done, said) = waits.finish(&mut pair);
    assert!(!is_done && said.contains("does not come"), "{said}");
}
