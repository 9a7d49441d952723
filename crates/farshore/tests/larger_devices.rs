//! The secondary's devices hold more than the primary's: a switchover goes on, and the export has the size it had.
// proves: rule 21

use std::fs::File;
use std::process::Command;

use crate::common::{GROUP, Pair, PairPlan, Side, is_installed, must_skip};

const MIB: u64 = 1 << 20;
const VOLUMES: [&str; 2] = ["data", "log"];

fn export_bytes(pair: &Pair, node: Side, volume: &str) -> u64 {
    let output = Command::new("nbdinfo").args(["--size", &pair.uri(node, volume)]).output().expect("nbdinfo runs");
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or_else(|_| panic!("{output:?}"))
}

fn switch_over(pair: &mut Pair, from: Side, to: Side) {
    pair.wait_for(from, "replicating");
    pair.until("every dirty bit is cleared", |pair| pair.status(from)["peers"][0]["dirty_bytes"] == 0);
    pair.done(from, &["demote", GROUP]);
    pair.until("the other node heard of it", |pair| pair.output_of(to, &["promote", GROUP]).0 == 0);
    pair.wait_for(to, "replicating");
}

/// The new primary was `syncing` for ever, "100 %, 0 B of 0 B", and the reason stood on the other node only.
#[test]
fn a_switchover_to_larger_devices_keeps_the_size_and_goes_on() {
    if must_skip("larger_devices", &[("nbdinfo (apt: libnbd-bin)", is_installed("nbdinfo"))]) {
        return;
    }
    let mut pair = Pair::new(&PairPlan::default());
    for volume in VOLUMES {
        let device = File::options().write(true).open(pair.device(Side::Far, volume)).expect("a volume");
        device.set_len(40 * MIB).expect("room");
    }
    pair.first_sync();
    pair.qemu_io(Side::Near, "data", &["write -P 7 15M 1M", "flush"]);
    switch_over(&mut pair, Side::Near, Side::Far);
    assert_eq!(export_bytes(&pair, Side::Far, "data"), 16 * MIB);
    let status = pair.status(Side::Far);
    let volume = &status["volumes"][0];
    assert_eq!((volume["size_bytes"].as_u64(), volume["device_bytes"].as_u64()), (Some(16 * MIB), Some(40 * MIB)));
    let page = pair.done(Side::Far, &["status"]);
    assert!(page.contains("(holds 40 MiB, 24 MiB of it unused)"), "{page}");
    let log = pair.log(Side::Far);
    assert!(log.contains("16 MiB (16777216 bytes), as on the primary; of the 40 MiB"), "{log}");
    let (is_served, said) = pair.try_qemu_io(Side::Far, "data", &["write -P 8 16M 64k"]);
    assert!(!is_served, "past the group's end: {said}");
    pair.qemu_io(Side::Far, "data", &["read -P 7 15M 1M", "write -P 9 14M 1M", "flush"]);

    // A restart changes nothing of it.
    pair.stop(Side::Far);
    pair.serve(Side::Far);
    assert_eq!(export_bytes(&pair, Side::Far, "log"), 16 * MIB);
    switch_over(&mut pair, Side::Far, Side::Near);
    assert_eq!(export_bytes(&pair, Side::Near, "data"), 16 * MIB);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    let (near, far) = (pair.content(Side::Near, "data"), pair.content(Side::Far, "data"));
    assert!(near[..] == far[..near.len()] && far[near.len()..].iter().all(|byte| *byte == 0));
}

/// The bits of volumes that were enlarged take more room in their file than it had, and the group was not taken up.
#[test]
fn volumes_that_are_enlarged_past_what_their_bits_had_room_for_are_served() {
    if must_skip("larger_devices", &[("nbdinfo (apt: libnbd-bin)", is_installed("nbdinfo"))]) {
        return;
    }
    let mut pair = Pair::replicating(&PairPlan::default());
    pair.qemu_io(Side::Near, "log", &["write -P 7 15M 1M", "flush"]);
    // After a clean stop a device of another size counts as written from outside.
    Side::BOTH.into_iter().for_each(|node| pair.kill(node));
    for node in [Side::Far, Side::Near] {
        for volume in VOLUMES {
            let device = File::options().write(true).open(pair.device(node, volume)).expect("a volume");
            device.set_len(1000 * MIB).expect("room");
        }
        pair.serve(node);
    }
    pair.wait_for(Side::Near, "replicating");
    for volume in VOLUMES {
        assert_eq!(export_bytes(&pair, Side::Near, volume), 1000 * MIB);
    }
    pair.qemu_io(Side::Near, "log", &["read -P 7 15M 1M", "write -P 8 998M 1M", "flush"]);
    switch_over(&mut pair, Side::Near, Side::Far);
    pair.qemu_io(Side::Far, "log", &["read -P 7 15M 1M", "read -P 8 998M 1M"]);
    for node in Side::BOTH {
        assert!(!pair.log(node).contains("are damaged"), "{}", pair.log(node));
    }
    pair.stop_both();
}
