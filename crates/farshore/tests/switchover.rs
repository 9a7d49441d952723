//! A switchover between two real daemons, typed at either node, and the way back.
// proves: rule 15

use crate::common::{GROUP, Pair, PairPlan, Side};

const VOLUMES: [&str; 2] = ["data", "log"];

fn is_primary(pair: &Pair, node: Side) -> bool {
    pair.status(node)["role"] == "primary"
}

#[test]
fn a_switchover_and_a_failback_keep_every_write_and_send_none_twice() {
    let mut pair = Pair::replicating(&PairPlan { mode: "sync", ..PairPlan::default() });
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M", "flush"]);
    // At the node that is to be the primary: it is carried to the other one.
    pair.done(Side::Far, &["switchover", GROUP, "--to", "far"]);
    assert!(is_primary(&pair, Side::Far) && !is_primary(&pair, Side::Near));
    for node in Side::BOTH {
        let (code, said) = pair.output_of(node, &["switchover", GROUP, "--to", "far"]);
        assert!(code == 0 && said.contains("nothing to do"), "{code}: {said}");
    }
    pair.wait_for(Side::Far, "replicating");
    assert_eq!(pair.counter(Side::Far, "group.g.resynced_bytes"), 0);
    pair.qemu_io(Side::Far, "data", &["read -P 5 0 1M", "write -P 6 1M 1M", "flush"]);
    pair.done(Side::Near, &["failback", GROUP]);
    assert!(is_primary(&pair, Side::Near) && !is_primary(&pair, Side::Far));
    let (code, said) = pair.output_of(Side::Near, &["failback", GROUP]);
    assert!(code == 0 && said.contains("nothing to do"), "{code}: {said}");
    pair.wait_for(Side::Near, "replicating");
    pair.qemu_io(Side::Near, "data", &["read -P 6 1M 1M"]);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

/// What the primary wrote without its peer is sent first, and then the peer takes over.
#[test]
fn a_failback_sends_what_is_missing_first() {
    let mut pair = Pair::replicating(&PairPlan::default());
    pair.done(Side::Near, &["switchover", GROUP, "--to", "far"]);
    pair.wait_for(Side::Far, "replicating");
    pair.done(Side::Far, &["logging", GROUP]);
    pair.qemu_io(Side::Far, "log", &["write -P 9 0 2M", "flush"]);
    let (code, said) = pair.output_of(Side::Far, &["switchover", GROUP, "--to", "near"]);
    assert!(code == 2 && said.contains("not in step"), "{code}: {said}");
    pair.done(Side::Far, &["failback", GROUP]);
    assert!(is_primary(&pair, Side::Near));
    pair.qemu_io(Side::Near, "log", &["read -P 9 0 2M"]);
    pair.wait_for(Side::Near, "replicating");
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

#[test]
fn a_switchover_that_cannot_be_is_refused_in_words() {
    let mut pair = Pair::replicating(&PairPlan::default());
    for (words, part, exit) in [
        (&["switchover", GROUP, "--to", "mars"][..], "has no copy of it", 2),
        (&["switchover", GROUP, "--to", "far", "--timeout", "2h"][..], "out of bounds", 3),
        (&["switchover", "h", "--to", "far"][..], "no group", 2),
    ] {
        let (code, said) = pair.output_of(Side::Near, words);
        assert!(code == exit && said.contains(part), "{words:?} {code}: {said}");
    }
    pair.kill(Side::Far);
    pair.until("the link is down", |pair| pair.status(Side::Near)["state"] != "replicating");
    let (code, said) = pair.output_of(Side::Near, &["switchover", GROUP, "--to", "far"]);
    assert!(code == 2 && said.contains("not connected"), "{code}: {said}");
    assert!(is_primary(&pair, Side::Near));
    pair.stop(Side::Near);
}

/// A node that takes no orders of its peer is not promoted on its word.
#[test]
fn a_switchover_needs_a_peer_that_takes_orders() {
    let mut pair = Pair::replicating(&PairPlan { node: "peer_commands = \"read\"\n", ..PairPlan::default() });
    let (code, said) = pair.output_of(Side::Near, &["switchover", GROUP, "--to", "far"]);
    assert!(code == 2 && said.contains("peer_commands") && said.contains("nothing was changed"), "{code}: {said}");
    assert!(is_primary(&pair, Side::Near) && !is_primary(&pair, Side::Far));
    pair.stop_both();
}
