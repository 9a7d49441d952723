//! The recipe of docs/book/operate/bulk-load.md with real daemons: one of two volumes is loaded, the other one goes on in order, and both
//! copies are equal once it has rejoined.

use crate::common::{GROUP, Pair, PairPlan, Side};

const PLAN: PairPlan = PairPlan { mode: "sync", volume_bytes: 80 << 20, ..PairPlan::DEFAULT };

/// A warning that names what the order is without, on each node.
fn is_said(pair: &Pair, node: Side) -> bool {
    let status = pair.status(node);
    let said = status["warnings"].as_array().is_some_and(|warnings| {
        let texts = warnings.iter().filter_map(|warning| warning.as_str());
        texts.into_iter().any(|text| text.starts_with("the group's order is without volume data until it rejoins"))
    });
    said && status["volumes"][0]["set_aside"] == true && status["volumes"][1]["set_aside"] == false
}

// proves: P2, rule 8
#[test]
fn a_volume_is_loaded_while_the_other_goes_on_in_order_and_rejoins() {
    let mut pair = Pair::replicating(&PLAN);
    pair.wait_for(Side::Near, "replicating");
    let told = pair.done(Side::Near, &["logging", GROUP, "--volume", "data"]);
    assert!(told.contains("the group's order goes on without it"), "{told}");
    let shipped = pair.status(Side::Near)["peers"][0]["recovery_point"]["sequence"].as_u64();
    pair.qemu_io(Side::Near, "data", &["write -P 7 0 32M", "write -P 8 32M 32M", "flush"]);
    pair.qemu_io(Side::Near, "log", &["write -P 9 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.until("the peer has told of it", |pair| {
        pair.status(Side::Near)["peers"][0]["recovery_point"]["sequence"].as_u64() > shipped
    });
    assert!(pair.status(Side::Near)["volumes"][0]["dirty_bytes"].as_u64() >= Some(64 << 20));
    for node in Side::BOTH {
        pair.until("each node says it", |pair| is_said(pair, node));
    }
    let (code, said) = pair.output_of(Side::Near, &["switchover", GROUP, "--to", "far"]);
    assert!(code == 2 && said.contains("without volume data"), "{code}: {said}");
    // What was loaded is not there, and the other one is.
    pair.stop(Side::Far);
    assert!(pair.content(Side::Far, "data").iter().all(|byte| *byte == 0));
    assert!(pair.content(Side::Far, "log")[..1 << 20].iter().all(|byte| *byte == 9));
    pair.serve(Side::Far);
    pair.wait_for(Side::Near, "replicating");
    pair.until("it stays set aside", |pair| is_said(pair, Side::Far));
    // A restart of the primary changes nothing of it.
    pair.stop(Side::Near);
    pair.serve(Side::Near);
    pair.wait_for(Side::Near, "replicating");
    assert!(is_said(&pair, Side::Near));
    pair.done(Side::Far, &["sync", GROUP, "--volume", "data", "--wait"]);
    for node in Side::BOTH {
        pair.until("it has rejoined", |pair| pair.status(node)["volumes"][0]["set_aside"] == false);
    }
    pair.qemu_io(Side::Near, "data", &["write -P 5 1M 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

#[test]
fn what_makes_no_sense_is_refused_in_words() {
    let pair = Pair::replicating(&PairPlan { volume_bytes: 4 << 20, ..PairPlan::DEFAULT });
    for (words, code, part) in [
        (&["sync", GROUP, "--volume", "data"][..], 0, "part of the group's order already"),
        (&["logging", GROUP, "--volume", "dta"][..], 2, "has no volume"),
        (&["logging", GROUP, "--volume", "data"][..], 0, "goes on without it"),
        (&["logging", GROUP, "--volume", "data"][..], 0, "set aside already"),
        (&["logging", GROUP, "--volume", "log"][..], 2, "no other volume of the group"),
        (&["sync", GROUP, "--full", "--volume", "data"][..], 3, "cannot be used with"),
        (&["sync", GROUP, "--volume", "data", "--wait"][..], 0, "up to date"),
    ] {
        let (ended, said) = pair.output_of(Side::Near, words);
        assert!(ended == code && said.contains(part), "{words:?}: {ended}: {said}");
    }
}
