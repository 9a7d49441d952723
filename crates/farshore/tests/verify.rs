//! A verify of real pairs: what rotted under the copy is named on both nodes and repaired; two copies are declared equal.

use std::fs;

use serde_json::{Value, json};

use crate::common::damage::rot;
use crate::common::load::{LoadPlan, WriterLoad, WriterRun};
use crate::common::{GROUP, Pair, PairPlan, Side, expect};

const PLAN: PairPlan = PairPlan { volumes: &["data"], volume_bytes: 4 << 20, ..PairPlan::DEFAULT };

// proves: P3
#[test]
fn what_rotted_on_the_copy_is_named_and_repaired() {
    let mut pair = Pair::replicating(&PLAN);
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    let (code, said) = pair.output_of(Side::Near, &["verify", GROUP, "--wait"]);
    assert!(code == 0 && said.contains("nothing differs"), "{said}");
    rot(&pair.device(Side::Far, "data"), 100_000);
    // Typed at the copy it is carried to the primary.
    let (code, said) = pair.output_of(Side::Far, &["verify", GROUP, "--wait"]);
    assert!(code == 1 && said.contains("4 KiB differ (data at byte 98304)"), "{said}");
    for node in Side::BOTH {
        pair.until("both nodes know it", |pair| pair.status(node)["differs"] == true);
    }
    let found = pair.status(Side::Near)["verified"].clone();
    assert_eq!((&found["differing_bytes"], &found["repaired_bytes"]), (&json!(4096), &json!(0)), "{found}");
    let (code, said) = pair.output_of(Side::Near, &["events", GROUP, "--local"]);
    assert!(code < 2 && said.contains("verify-differs"), "{said}");
    let (code, said) = pair.output_of(Side::Near, &["verify", GROUP, "--repair", "--wait"]);
    assert!(code == 0 && said.contains("4 KiB repaired"), "{said}");
    for node in Side::BOTH {
        pair.until("it is repaired", |pair| pair.status(node)["differs"] == false);
    }
    pair.stop_both();
    pair.assert_equal(&["data"]);
}

/// Whoever reads it must not take a look at some blocks for more.
#[test]
fn a_sample_says_how_much_it_saw_and_that_it_proves_nothing() {
    let mut pair = Pair::replicating(&PLAN);
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    let (code, said) = pair.output_of(Side::Near, &["verify", GROUP, "--sample", "5", "--wait"]);
    let sampled = said.split_once(": sampled ").unwrap_or_else(|| panic!("{code}: {said}")).1;
    assert!(code == 0 && sampled.contains(" KiB of 4 MiB, not a proof; nothing differs"), "{code}: {said}");
    let (_, shown) = pair.output_of(Side::Near, &["status", GROUP, "--local"]);
    assert!(shown.contains(" of 4 MiB, not a proof"), "{shown}");
    pair.stop_both();
}

#[test]
fn a_verify_is_ended_by_order_and_its_options_are_checked() {
    let pair = Pair::replicating(&PLAN);
    for (words, code, part) in [
        (&["verify", GROUP, "--stop"][..], 0, "no verify is under way"),
        (&["verify", GROUP, "--rate", "8kbit/s"][..], 0, "the verify began"),
        (&["verify", GROUP, "--rate", "8kbit/s"][..], 0, "under way already"),
        (&["verify", GROUP, "--rate", "16kbit/s"][..], 0, "at the new rate"),
        (&["verify", GROUP, "--repair"][..], 2, "of another kind is under way"),
        (&["verify", GROUP, "--stop"][..], 0, "the verify is stopped"),
        (&["verify", GROUP, "--sample", "0"][..], 3, "--sample"),
        (&["verify", GROUP, "--rate", "16"][..], 3, "has no unit"),
        (&["verify", GROUP, "--stop", "--repair"][..], 3, "cannot be used with"),
        (&["assume-equal", GROUP][..], 2, "follows this node's history"),
    ] {
        let (ended, said) = pair.output_of(Side::Near, words);
        assert!(ended == code && said.contains(part), "{words:?}: {ended}: {said}");
    }
}

/// Nobody types `verify`; the file says how often. It only looks, a restart begins none early, and whoever ends one is not contradicted.
#[test]
fn a_verify_begins_by_itself_as_often_as_the_file_says() {
    const OFTEN: &str = "scrub = { every = \"10s\", rate = \"400Mbit/s\" }\n";
    let mut pair = Pair::replicating(&PLAN);
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    rot(&pair.device(Side::Far, "data"), 100_000);
    assert_eq!(pair.status(Side::Near)["scrub"], Value::Null);
    pair.edit_config("mode = \"async\"\n", &format!("mode = \"async\"\n{OFTEN}"));
    for node in Side::BOTH {
        expect(&pair.run(node, &["config", "apply"]), 0, &["take-up g: scrub.every = 10s (was off), scrub.rate = 400"]);
    }
    for node in Side::BOTH {
        pair.until("both nodes know what differs", |pair| pair.status(node)["differs"] == true);
    }
    pair.until("it is over", |pair| pair.status(Side::Near)["verified"]["by_timer"] == true);
    let found = pair.status(Side::Near)["verified"].clone();
    assert_eq!((&found["differing_bytes"], &found["repaired_bytes"]), (&json!(4096), &json!(0)), "{found}");
    let (code, said) = pair.output_of(Side::Near, &["events", GROUP, "--local"]);
    assert!(code < 2 && said.contains("a verify began by itself, as scrub.every says"), "{said}");
    assert_eq!(pair.status(Side::Far)["scrub"], Value::Null, "the primary begins them");
    // It is on record before the next one begins.
    let record = pair.path("near/state/groups").join(GROUP).join("scrub");
    pair.until("it is on record", |_| record.exists());
    assert!(pair.stop(Side::Near).success());
    let written = fs::read_to_string(&record).expect("on record");
    pair.serve(Side::Near);
    pair.until("it is read", |pair| !pair.status(Side::Near)["scrub"].is_null());
    let scrub = pair.status(Side::Near)["scrub"].clone();
    let last = scrub["verified"].as_str().expect("known").to_owned();
    assert!(written.contains("\nverified ") && scrub["every_s"] == 10.0, "{written}{scrub}");
    pair.until("the next one is over", |pair| {
        pair.status(Side::Near)["scrub"]["verified"].as_str().is_some_and(|time| *time > *last)
    });
    // A slow one is ended; the next is due ten seconds later.
    pair.edit_config("400Mbit/s", "64kbit/s");
    expect(&pair.run(Side::Near, &["config", "apply"]), 0, &["take-up g: scrub.rate = 64kbit/s (was 400Mbit/s)"]);
    pair.until("one runs", |pair| pair.status(Side::Near)["verify"]["by_timer"] == true);
    let (_, said) = pair.output_of(Side::Near, &["status", GROUP, "--local"]);
    assert!(said.contains("  began by itself, ") && said.contains("  every 10 s at 64.0 kbit/s, due at "), "{said}");
    expect(&pair.run(Side::Near, &["verify", GROUP, "--stop"]), 0, &["the verify is stopped"]);
    let now = pair.status(Side::Near);
    assert!(now["verify"].is_null() && now["scrub"]["waits"].is_null(), "{now}");
    assert!(now["scrub"]["due"].as_str() > now["verified"]["time"].as_str(), "{now}");
    pair.done(Side::Near, &["verify", GROUP, "--repair", "--wait"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data"]);
}

/// Somebody has copied the volume by hand.
#[test]
fn two_equal_copies_are_declared_so_and_verified() {
    let mut pair = Pair::new(&PLAN);
    fs::write(pair.device(Side::Near, "data"), vec![7; 4 << 20]).expect("written");
    fs::write(pair.device(Side::Far, "data"), vec![7; 4 << 20]).expect("written");
    pair.done(Side::Near, &["accept-device", GROUP, "data", "--content-is-good"]);
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.until("both nodes have met", |pair| {
        pair.status(Side::Near)["reason"].as_str().is_some_and(|reason| reason.contains("never been synced"))
    });
    pair.done(Side::Near, &["assume-equal", GROUP]);
    pair.wait_for(Side::Near, "replicating");
    for node in Side::BOTH {
        pair.until("both nodes show it", |pair| pair.status(node)["assumed_equal"] == true);
    }
    pair.done(Side::Near, &["verify", GROUP, "--wait"]);
    for node in Side::BOTH {
        pair.until("it is verified", |pair| pair.status(node)["assumed_equal"] == false);
    }
    pair.stop_both();
    pair.assert_equal(&["data"]);
}

// proves: P3
/// Writers rewrite the same places again and again while the copy is compared, and none of that is taken for a difference.
#[test]
fn a_verify_beside_writers_finds_nothing_that_differs() {
    const VOLUMES: &[&str] = &["data"];
    for mode in ["sync", "nearsync", "async"] {
        let mut pair = Pair::replicating(&PairPlan { mode, ..PLAN });
        let run = WriterRun::on_zeroes(1, VOLUMES);
        // The whole volume: the walk meets writes wherever it is.
        let plan = LoadPlan { flush_one_in: 16, area_bytes: 4 << 20, ..LoadPlan::crowded(VOLUMES) };
        let load = WriterLoad::start(&pair, Side::Near, &run, plan);
        load.wait_for_more(&mut pair, 100);
        for _ in 0..3 {
            let before = load.acknowledged();
            // A second and more of the walk.
            let (code, said) = pair.output_of(Side::Near, &["verify", GROUP, "--rate", "32Mbit/s", "--wait"]);
            assert!(code == 0 && said.contains("4 MiB compared; nothing differs"), "{mode}: {said}");
            assert!(load.acknowledged() > before, "{mode}: writers went on");
        }
        load.stop();
        pair.wait_for_rest(Side::Near);
        pair.stop_both();
        pair.assert_equal(VOLUMES);
    }
}
