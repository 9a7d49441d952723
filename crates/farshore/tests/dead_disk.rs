//! The recipe of docs/book/operate/dead-disk.md with real daemons: one disk of the secondary is gone, the other volume goes on in order, and
//! the lost one comes back on an empty disk.

use std::fs::{self, File};

use crate::common::{GROUP, Pair, PairPlan, Side, expect};

const MIB: u64 = 1 << 20;

fn volume(pair: &Pair, node: Side, key: &str) -> bool {
    pair.status(node)["volumes"][0][key] == true
}

fn warns(pair: &Pair, node: Side, part: &str) -> bool {
    let status = pair.status(node);
    let warnings = status["warnings"].as_array().into_iter().flatten();
    warnings.filter_map(|warning| warning.as_str()).any(|warning| warning.contains(part))
}

/// A disk of that size takes the place of the one of the volume `data`.
fn replaces(pair: &Pair, node: Side, bytes: u64) {
    let path = pair.device(node, "data");
    let _ = fs::remove_file(&path);
    File::create(&path).and_then(|disk| disk.set_len(bytes)).expect("a disk");
}

// proves: rule 11, P2, P3
#[test]
fn a_group_goes_on_without_a_dead_disk_of_the_secondary_and_takes_another_one() {
    let mut pair = Pair::replicating(&PairPlan { mode: "sync", volume_bytes: 4 * MIB, ..PairPlan::DEFAULT });
    pair.qemu_io(Side::Near, "data", &["write -P 3 0 1M", "flush"]);
    pair.wait_for(Side::Near, "replicating");
    // The daemon starts while the disk is missing.
    assert!(pair.stop(Side::Far).success());
    fs::remove_file(pair.device(Side::Far, "data")).expect("it was there");
    pair.serve(Side::Far);
    expect(
        &pair.run(Side::Far, &["group", "detach", GROUP, "data"]),
        0,
        &["volume data is detached", "group attach g data"],
    );
    expect(&pair.run(Side::Far, &["group", "detach", GROUP, "data"]), 0, &["is detached already; nothing to do"]);
    expect(&pair.run(Side::Far, &["group", "detach", GROUP, "log"]), 2, &["left with no volume"]);
    pair.wait_for(Side::Near, "replicating");
    pair.qemu_io(Side::Near, "data", &["write -P 4 1M 1M", "flush"]);
    pair.qemu_io(Side::Near, "log", &["write -P 5 0 1M", "flush"]);
    pair.until("the far node says it", |pair| {
        volume(pair, Side::Far, "detached") && volume(pair, Side::Far, "set_aside")
    });
    pair.until("the near node says it", |pair| warns(pair, Side::Near, "volume data is detached on far"));
    assert!(volume(&pair, Side::Near, "set_aside") && !volume(&pair, Side::Near, "detached"));
    expect(&pair.run(Side::Near, &["sync", GROUP, "--volume", "data"]), 2, &["detached on the peer"]);
    expect(&pair.run(Side::Near, &["switchover", GROUP, "--to", "far"]), 2, &["without volume data"]);
    // Restarts change nothing of it.
    assert!(pair.stop(Side::Far).success() && pair.stop(Side::Near).success());
    pair.serve(Side::Far);
    pair.serve(Side::Near);
    pair.wait_for(Side::Near, "replicating");
    assert!(volume(&pair, Side::Far, "detached"));
    // Another disk: one that is too small, then one that is larger.
    expect(&pair.run(Side::Far, &["group", "attach", GROUP, "data"]), 2, &["does not exist"]);
    replaces(&pair, Side::Far, MIB);
    expect(&pair.run(Side::Far, &["group", "attach", GROUP, "data"]), 2, &["nothing was changed", "as large at least"]);
    replaces(&pair, Side::Far, 6 * MIB);
    expect(&pair.run(Side::Far, &["group", "attach", GROUP, "data"]), 0, &["has a disk again", "sync g --volume data"]);
    expect(&pair.run(Side::Far, &["group", "attach", GROUP, "data"]), 0, &["is not detached; nothing to do"]);
    pair.until("it is known", |pair| !warns(pair, Side::Near, "is detached on far"));
    pair.wait_for(Side::Near, "replicating");
    pair.done(Side::Near, &["sync", GROUP, "--volume", "data", "--wait"]);
    for node in Side::BOTH {
        pair.until("it has rejoined", |pair| !volume(pair, node, "set_aside"));
    }
    pair.qemu_io(Side::Near, "data", &["write -P 6 2M 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["log"]);
    let (near, far) = (pair.content(Side::Near, "data"), pair.content(Side::Far, "data"));
    assert!(far.len() > near.len() && far[..near.len()] == near, "all of it was sent");
}

// proves: P1, P6
#[test]
fn a_primary_closes_the_export_of_a_volume_without_a_disk_and_serves_the_others() {
    let mut pair = Pair::replicating(&PairPlan { mode: "async", volume_bytes: 4 * MIB, ..PairPlan::DEFAULT });
    pair.qemu_io(Side::Near, "data", &["write -P 3 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    let user = pair.start_qemu_io(Side::Near, "data", &["sleep 5000"]);
    pair.until("it is attached", |pair| pair.status(Side::Near)["volumes"][0]["clients"] == 1);
    expect(&pair.run(Side::Near, &["group", "detach", GROUP, "data"]), 2, &["1 client is attached", "--close-clients"]);
    let other =
        pair.start_qemu_io(Side::Near, "log", &["write -P 4 0 64k", "sleep 3000", "write -P 5 64k 64k", "flush"]);
    pair.until("it is attached", |pair| pair.status(Side::Near)["volumes"][1]["clients"] == 1);
    expect(
        &pair.run(Side::Near, &["group", "detach", GROUP, "data", "--close-clients"]),
        0,
        &["volume data is detached: its export is closed, and the copy on far stays as it is"],
    );
    let (is_fine, said) = other.finish(&mut pair);
    assert!(is_fine, "a client of the other volume went on: {said}");
    drop(user);
    pair.wait_for(Side::Near, "replicating");
    assert!(volume(&pair, Side::Near, "detached"));
    assert_eq!(pair.status(Side::Near)["volumes"][0]["clients"], 0);
    // What counts of it stands on the other node alone.
    pair.until("far has heard of it", |pair| warns(pair, Side::Far, "is detached on near"));
    expect(&pair.run(Side::Far, &["group", "detach", GROUP, "data"]), 2, &["nothing was changed", "stands here alone"]);
    expect(
        &pair.run(Side::Near, &["group", "attach", GROUP, "data"]),
        2,
        &["stands on far", "demote g", "promote g --force"],
    );
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}
