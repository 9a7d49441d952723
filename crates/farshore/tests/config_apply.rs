//! A changed configuration file is taken up by running daemons: groups come, leave, grow and change, and the others notice nothing.

use std::fs::{self, File};
use std::process::Command;
use std::time::Duration;

use forgetful::ForgetfulStore;

use crate::common::{
    Background, GROUP, Pair, PairPlan, Side, expect, is_installed, must_skip, must_skip_stores, schema,
};

const MIB: u64 = 1 << 20;

/// A second group of both nodes, with one volume.
const SECOND: &str = "\n[groups.h]\nprimary = \"near\"\nsecondary = \"far\"\nmode = \"async\"\nstart_alone = \"serve\"\njournal = \"16MiB\"\nwindow = \"4MiB\"\nqueue.disk = 0\n\
                      [groups.h.volumes.web]\nnear = \"near/web\"\nfar = \"far/web\"\n";

fn add_second(pair: &Pair) {
    for node in Side::BOTH {
        let device = File::create(pair.device(node, "web")).expect("a volume");
        device.set_len(4 * MIB).expect("room");
    }
    let text = fs::read_to_string(pair.config()).expect("the configuration is there");
    fs::write(pair.config(), text + SECOND).expect("written");
}

fn remove_second(pair: &Pair) {
    let text = fs::read_to_string(pair.config()).expect("the configuration is there");
    fs::write(pair.config(), text.replace(SECOND, "")).expect("written");
}

fn plan(pair: &Pair, node: Side) -> serde_json::Value {
    let output = pair.run(node, &["config", "plan", "--json"]);
    let plan = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    schema::seen(&plan);
    plan
}

fn status_of(pair: &Pair, node: Side, group: &str) -> serde_json::Value {
    // A group that has failed is a warning.
    let output = pair.run(node, &["status", group, "--json", "--local"]);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    status["groups"][0].clone()
}

fn write_to(pair: &Pair, export: &str, commands: &[&str]) -> (bool, String) {
    let uri = pair.uri(Side::Near, "data").replace(&format!("{GROUP}/data"), export);
    let mut qemu = Command::new("qemu-io");
    commands.iter().for_each(|command| _ = qemu.args(["-c", command]));
    let output = qemu.args(["-f", "raw", &uri]).output().expect("qemu-io runs");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn what_holds_already_is_nothing_to_do() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    pair.serve(Side::Near);
    expect(&pair.run(Side::Near, &["config", "plan"]), 0, &["says what holds on node near already; nothing to do"]);
    expect(&pair.run(Side::Near, &["config", "apply"]), 0, &["says what holds already; nothing to do"]);
    let plan = plan(&pair, Side::Near);
    assert_eq!((&plan["node"], plan["steps"].as_array().map(Vec::len)), (&"near".into(), Some(0)));
    assert!(pair.stop(Side::Near).success());
}

#[test]
fn settings_of_the_file_are_taken_up_while_clients_write() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    let client =
        pair.start_qemu_io(Side::Near, "data", &["write -P 3 0 64k", "sleep 3000", "write -P 4 64k 64k", "flush"]);
    pair.edit_config("mode = \"async\"", "mode = \"sync\"");
    let shown = expect(&pair.run(Side::Near, &["config", "plan"]), 0, &["set  g: mode = sync (was async)"]);
    assert!(!shown.contains("attached"), "{shown}");
    expect(
        &pair.run(Side::Near, &["config", "apply"]),
        0,
        &["is applied on this node", "set g: mode = sync (was async)"],
    );
    assert_eq!(status_of(&pair, Side::Near, GROUP)["mode"], "sync");
    let (is_fine, said) = client.finish(&mut pair);
    assert!(is_fine, "{said}");
    pair.done(Side::Far, &["config", "apply"]);
    // What 'set' gave holds on.
    pair.done(Side::Near, &["set", GROUP, "mode=nearsync"]);
    pair.edit_config("mode = \"sync\"", "mode = \"async\"");
    expect(&pair.run(Side::Near, &["config", "plan"]), 0, &["with no effect: 'set' gave the value that holds"]);
    pair.done(Side::Near, &["config", "apply"]);
    assert_eq!(status_of(&pair, Side::Near, GROUP)["mode"], "nearsync");
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

/// A group comes on one node, then on the other; it is synced, used, and leaves again. The other group is written to all the time.
#[test]
fn a_group_comes_and_leaves_beside_one_that_is_written_to() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    let commands: Vec<String> =
        (0..60).flat_map(|at| [format!("write -P {} {}k 4k", at + 1, at * 64), "sleep 150".to_owned()]).collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let client = pair.start_qemu_io(Side::Near, "data", &commands);
    add_second(&pair);
    let steps = plan(&pair, Side::Near)["steps"].clone();
    assert_eq!(
        (&steps[0]["action"], &steps[0]["group"], steps.as_array().map(Vec::len)),
        (&"add".into(), &"h".into(), Some(1))
    );
    let said = pair.done(Side::Near, &["config", "apply"]);
    assert!(said.contains("meet once it is applied there too"), "{said}");
    // Until the other node has it too, it does not meet; the group of both does.
    pair.until("the difference is told", |pair| {
        status_of(pair, Side::Near, "h")["peers"][0]["link_reason"].to_string().contains("config apply")
    });
    pair.until("the others meet", |pair| status_of(pair, Side::Near, GROUP)["state"] == "replicating");
    assert!(write_to(&pair, "h/web", &["write -P 9 0 64k"]).0, "it is served");
    pair.done(Side::Far, &["config", "apply"]);
    pair.until("both have it", |pair| status_of(pair, Side::Near, "h")["peers"][0]["link"] == "connected");
    pair.done(Side::Near, &["sync", "h", "--full", "--wait"]);
    assert!(write_to(&pair, "h/web", &["write -P 8 64k 64k", "flush"]).0);
    pair.until("it is there", |pair| status_of(pair, Side::Near, "h")["peers"][0]["dirty_bytes"] == 0);

    remove_second(&pair);
    let said = pair.done(Side::Near, &["config", "apply"]);
    assert!(said.contains("remove h: its export closes"), "{said}");
    expect(&pair.run(Side::Near, &["status", "h"]), 2, &["has no group \"h\""]);
    assert!(!write_to(&pair, "h/web", &["read 0 4k"]).0, "its export is gone");
    pair.done(Side::Far, &["config", "apply"]);
    assert_eq!(
        fs::read(pair.device(Side::Near, "web")).expect("there"),
        fs::read(pair.device(Side::Far, "web")).expect("there")
    );

    // It comes again, and knows that both are equal.
    let text = fs::read_to_string(pair.config()).expect("there") + SECOND;
    fs::write(pair.config(), text).expect("written");
    Side::BOTH.into_iter().for_each(|node| drop(pair.done(node, &["config", "apply"])));
    pair.until("it replicates", |pair| status_of(pair, Side::Near, "h")["state"] == "replicating");
    assert_eq!(pair.counter(Side::Near, "group.h.resynced_bytes"), 0);

    let (is_fine, said) = client.finish(&mut pair);
    assert!(is_fine, "{said}");
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data", "log", "web"]);
}

// proves: rule 13
/// The record of a reverse sync was not looked for where a group came again: its exports were open to everybody, beside the clients of the other node.
#[test]
fn a_group_that_comes_again_serves_whom_it_served() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    add_second(&pair);
    pair.first_sync();
    pair.done(Side::Near, &["sync", "h", "--full", "--wait"]);
    pair.until("it replicates", |pair| status_of(pair, Side::Near, "h")["state"] == "replicating");
    pair.done(Side::Near, &["sync", "h", "--reverse", "--full"]);
    pair.done(Side::Far, &["logging", "h"]);
    remove_second(&pair);
    pair.kill(Side::Far);
    pair.serve(Side::Far);
    let text = fs::read_to_string(pair.config()).expect("there") + SECOND;
    fs::write(pair.config(), text).expect("written");
    pair.done(Side::Far, &["config", "apply"]);
    pair.until("it has come", |pair| status_of(pair, Side::Far, "h")["role"] == "primary");
    let uri = pair.uri(Side::Far, "data").replace(&format!("{GROUP}/data"), "h/web");
    let is_open = || {
        let output = Command::new("qemu-io").args(["-f", "raw", "-c", "read 0 4k", &uri]).output();
        output.expect("qemu-io runs").status.success()
    };
    pair.until("it serves near", |pair| write_to(pair, "h/web", &["read 0 4k"]).0);
    assert!(!is_open(), "and nobody else");
    pair.done(Side::Far, &["sync", "h", "--reverse", "--stop"]);
    pair.until("it serves its own clients", |_| is_open());
}

#[test]
fn clients_of_a_group_that_has_to_stop_are_asked_for() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    add_second(&pair);
    pair.serve(Side::Near);
    pair.serve(Side::Far);
    pair.first_sync();
    remove_second(&pair);
    let uri = pair.uri(Side::Near, "data").replace(&format!("{GROUP}/data"), "h/web");
    let mut holder = Command::new("qemu-io");
    holder.args(["-f", "raw", &uri, "-c", "read 0 4k", "-c", "sleep 60000"]);
    let holder = crate::common::Background::start(holder);
    pair.until("it is attached", |pair| status_of(pair, Side::Near, "h")["volumes"][0]["clients"] == 1);
    expect(&pair.run(Side::Near, &["config", "plan"]), 1, &["remove  h:", "1 client attached"]);
    let refused = pair.run(Side::Near, &["config", "apply"]);
    expect(&refused, 2, &["h: 1 client is attached", "farshore config apply --close-clients"]);
    assert_eq!(status_of(&pair, Side::Near, "h")["volumes"][0]["clients"], 1, "nothing was done");
    pair.done(Side::Near, &["config", "apply", "--close-clients"]);
    expect(&pair.run(Side::Near, &["status", "h"]), 2, &["has no group \"h\""]);
    drop(holder);
    pair.stop_both();
}

// proves: rule 21
/// Both devices are enlarged under running daemons. Neither is restarted, no client is cut off, and nothing but what was added is compared.
#[test]
fn a_volume_grows_on_both_nodes() {
    if must_skip("config_apply", &[("nbdinfo (apt: libnbd-bin)", is_installed("nbdinfo"))]) {
        return;
    }
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    pair.qemu_io(Side::Near, "data", &["write -P 7 15M 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    let first_sync = pair.counter(Side::Near, "group.g.resynced_bytes");
    let commands: Vec<String> = (0..60)
        .flat_map(|at| {
            let from = at * 64;
            [format!("write -P {} {from}k 4k", at + 1), format!("read -P {} {from}k 4k", at + 1), "sleep 100".into()]
        })
        .collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let client = pair.start_qemu_io(Side::Near, "data", &commands);
    pair.until("it is attached", |pair| status_of(pair, Side::Near, GROUP)["volumes"][0]["clients"] == 1);
    for node in [Side::Far, Side::Near] {
        let device = File::options().write(true).open(pair.device(node, "data")).expect("a volume");
        device.set_len(24 * MIB).expect("room");
        if node == Side::Near {
            let steps = plan(&pair, node)["steps"].clone();
            assert_eq!((&steps[0]["clients"], &steps[0]["clients_held"]), (&0.into(), &1.into()), "{steps}");
        }
        let said = pair.done(node, &["config", "apply"]);
        assert!(said.contains("restart g: volume data: its device has 24 MiB now, and had 16 MiB"), "{said}");
        if node == Side::Far {
            // The secondary alone has grown: nothing is sent twice, and clients see the size that both have.
            pair.until("it replicates", |pair| status_of(pair, Side::Near, GROUP)["state"] == "replicating");
            let near = status_of(&pair, Side::Near, GROUP);
            assert_eq!(near["volumes"][0]["size_bytes"], 16 * MIB, "{near}");
            let output =
                Command::new("nbdinfo").args(["--size", &pair.uri(Side::Near, "data")]).output().expect("it runs");
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), (16 * MIB).to_string());
            assert_eq!(pair.counter(Side::Near, "group.g.resynced_bytes"), first_sync, "what was there is known");
        }
    }
    pair.until("it replicates", |pair| status_of(pair, Side::Near, GROUP)["state"] == "replicating");
    assert_eq!(status_of(&pair, Side::Near, GROUP)["volumes"][0]["clients"], 1, "it is attached still");
    let (is_fine, said) = client.finish(&mut pair);
    assert!(is_fine, "{said}");
    let output =
        Command::new("nbdinfo").args(["--size", &pair.uri(Side::Near, "data")]).output().expect("nbdinfo runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), (24 * MIB).to_string());
    pair.qemu_io(Side::Near, "data", &["read -P 7 15M 1M", "write -P 8 23M 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    // It counts from the group's own start.
    let sent = pair.counter(Side::Near, "group.g.resynced_bytes");
    // What the client wrote while the two nodes differed in size was tracked.
    assert!(sent <= 8 * MIB + 60 * 4096, "what was there is known: {sent} bytes");
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

/// On the primary alone: the copy has no room for it, and the group says so with both sizes.
#[test]
fn a_volume_that_grows_on_the_primary_alone_is_not_mirrored_until_the_other_one_has_grown() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    pair.wait_for_rest(Side::Near);
    let grow = |pair: &Pair, node| {
        let device = File::options().write(true).open(pair.device(node, "data")).expect("a volume");
        device.set_len(24 * MIB).expect("room");
    };
    grow(&pair, Side::Near);
    pair.done(Side::Near, &["config", "apply"]);
    pair.until("it says why", |pair| {
        let reason = status_of(pair, Side::Near, GROUP)["reason"].to_string();
        reason.contains("24 MiB") && reason.contains("16 MiB")
    });
    grow(&pair, Side::Far);
    pair.done(Side::Far, &["config", "apply"]);
    pair.until("it replicates", |pair| status_of(pair, Side::Near, GROUP)["state"] == "replicating");
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

#[test]
fn bad_input_changes_nothing() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    pair.serve(Side::Near);
    let sound = fs::read_to_string(pair.config()).expect("there");
    let with = |text: &str| fs::write(pair.config(), text).expect("written");
    // All problems at once.
    with(&sound.replace("mode = \"async\"", "mode = \"fast\"\nqueue.memory = \"1B\""));
    let socket = pair.path("near/state/control.sock");
    let by_socket = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
        command.args(words).arg("--socket").arg(&socket).output().expect("farshore runs")
    };
    for words in [["config", "apply"], ["config", "plan"]] {
        let said =
            expect(&by_socket(&words), 2, &["nothing was changed", "\"fast\" is not a mode", "1 B is too small"]);
        assert!(said.matches("farshore.toml:").count() >= 2, "{said}");
    }
    // What a start of the daemon alone takes up keeps the rest from being done.
    with(&sound.replace("cluster = \"test\"", "cluster = \"other\"").replace("mode = \"async\"", "mode = \"sync\""));
    expect(&pair.run(Side::Near, &["config", "plan"]), 1, &["mode = sync", "restart of the daemon", "cluster = other"]);
    expect(&pair.run(Side::Near, &["config", "apply"]), 2, &["nothing was changed", "cluster = other (was test)"]);
    assert_eq!(status_of(&pair, Side::Near, GROUP)["mode"], "async");
    with(&sound.replace("journal = \"16MiB\"", "journal = \"32MiB\""));
    let said = expect(&pair.run(Side::Near, &["config", "apply"]), 2, &["nothing was changed", "16 MiB", "stays"]);
    assert!(said.contains("farshore.toml:"), "{said}");
    // The file is gone.
    fs::remove_file(pair.config()).expect("removed");
    expect(&by_socket(&["config", "apply"]), 2, &["nothing was changed", "farshore.toml"]);
    with(&sound);
    expect(&pair.run(Side::Near, &["config", "apply"]), 0, &["nothing to do"]);
    assert!(pair.stop(Side::Near).success());
}

/// A device that cannot be opened keeps the group that comes down, and says so; 'reset' takes it up later.
#[test]
fn a_group_that_cannot_be_opened_comes_as_failed() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    pair.serve(Side::Near);
    add_second(&pair);
    fs::remove_file(pair.device(Side::Near, "web")).expect("removed");
    let output = pair.run(Side::Near, &["config", "apply"]);
    expect(&output, 1, &["add h:", "h: the group is not taken up", "farshore reset h"]);
    assert_eq!(status_of(&pair, Side::Near, "h")["state"], "failed");
    File::create(pair.device(Side::Near, "web")).expect("a volume").set_len(4 * MIB).expect("room");
    pair.done(Side::Near, &["reset", "h"]);
    pair.until("it serves", |pair| write_to(pair, "h/web", &["write 0 4k"]).0);
    assert!(pair.stop(Side::Near).success());
}

// proves: P7
/// A device was accepted and the old one came back. The group served on, and what it acknowledged since was given up unasked when the name led
/// to that device once more.
#[test]
fn a_device_that_was_accepted_before_the_group_ran_is_asked_for_again() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    pair.wait_for_rest(Side::Near);
    fs::copy(pair.device(Side::Near, "data"), pair.device(Side::Near, "other")).expect("copied");
    let accept = ["accept-device", GROUP, "data", "--content-is-good"];
    for stop in [Pair::kill as fn(&mut Pair, Side), |pair, node| assert!(pair.stop(node).success())] {
        pair.edit_config("near/data", "near/other");
        expect(&pair.run(Side::Near, &accept), 2, &["a daemon has g open", "stop the daemon"]);
        stop(&mut pair, Side::Near);
        expect(&pair.run(Side::Near, &accept), 0, &["accepted"]);
        expect(&pair.run(Side::Near, &["config", "check"]), 0, &[]);
        pair.edit_config("near/other", "near/data");
        let accepted = pair.path("near/state/groups/g/accepted");
        let said = fs::read(&accepted).expect("on record");
        pair.serve(Side::Near);
        pair.wait_for(Side::Near, "replicating");
        // Its removal failed, or it is of a backup.
        fs::write(&accepted, said).expect("written");
        pair.edit_config("near/data", "near/other");
        let refused = pair.run(Side::Near, &["config", "apply"]);
        expect(&refused, 2, &["nothing was changed", "is not the device that is recorded", "--rebuild"]);
        pair.edit_config("near/other", "near/data");
    }
    let roles = Side::BOTH.map(|node| status_of(&pair, node, GROUP)["role"].clone());
    assert_eq!(roles, ["primary", "secondary"]);
    pair.stop_both();
}

// proves: P6
/// The old primary's file had a wrong path, and its peer was promoted. The path is corrected and applied: the old primary served beside it.
#[test]
fn an_old_primary_whose_path_is_corrected_does_not_serve_beside_the_promoted_one() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    pair.wait_for_rest(Side::Near);
    assert!(pair.stop(Side::Near).success());
    fs::rename(pair.device(Side::Near, "data"), pair.device(Side::Near, "moved")).expect("renamed");
    pair.serve(Side::Near);
    expect(&pair.run(Side::Far, &["promote", GROUP, "--force"]), 1, &["promoted at sequence"]);
    pair.until("it heard of that", |pair| status_of(pair, Side::Near, GROUP)["flow"] == "fork");
    pair.edit_config("near/data", "near/moved");
    pair.done(Side::Near, &["config", "apply"]);
    pair.until("it has started", |pair| status_of(pair, Side::Near, GROUP)["state"] != "failed");
    let (is_served, said) = write_to(&pair, &format!("{GROUP}/data"), &["write -P 9 0 4k"]);
    assert!(!is_served, "{said}");
    pair.stop_both();
}

/// A `set` that waits behind an apply counted on top of the file of before, and gave the data path back what the apply had replaced. The peer
/// hears what the data path acts by.
#[test]
fn a_set_behind_an_apply_counts_on_top_of_the_new_file() {
    if must_skip_stores("a_set_behind_an_apply_counts_on_top_of_the_new_file") {
        return;
    }
    let mut pair = Pair::new(&PairPlan { group: "policy = \"degrade\"\n", ..PairPlan::DEFAULT });
    fs::create_dir(pair.path("store")).expect("a directory");
    let store = ForgetfulStore::mount(&pair.path("store")).expect("FUSE and root: asked before");
    add_second(&pair);
    // Its disk holds the apply up.
    let hangs = pair.path("store/web");
    File::create(&hangs).and_then(|disk| disk.set_len(4 * MIB)).expect("a disk");
    let text = fs::read_to_string(pair.config()).expect("the configuration is there");
    let with_h = text.replace("near = \"near/web\"", &format!("near = \"{}\"", hangs.display()));
    fs::write(
        pair.config(),
        with_h.replace(
            "primary = \"near\"\nsecondary = \"far\"\nmode = \"async\"\nstart_alone",
            "primary = \"far\"\nsecondary = \"near\"\nmode = \"async\"\nstart_alone",
        ),
    )
    .expect("written");
    pair.first_sync();
    pair.until("the other one has met", |pair| status_of(pair, Side::Far, "h")["peers"][0]["link"] == "connected");
    pair.done(Side::Far, &["sync", "h", "--full", "--wait"]);
    store.hang();
    let uri = pair.uri(Side::Far, "data").replace(&format!("{GROUP}/data"), "h/web");
    let written = Command::new("qemu-io").args(["-c", "write -P 5 0 64k", "-f", "raw", &uri]).output();
    assert!(written.expect("qemu-io runs").status.success());
    std::thread::sleep(std::time::Duration::from_secs(1));
    pair.edit_config("policy = \"degrade\"", "policy = \"strict\"");
    pair.edit_config(
        "window = \"4MiB\"\nqueue.disk = 0\n[groups.h.volumes.web]",
        "window = \"2MiB\"\nqueue.disk = 0\n[groups.h.volumes.web]",
    );
    let apply = Background::start(pair.command(Side::Near, &["config", "apply"]));
    std::thread::sleep(std::time::Duration::from_secs(1));
    let set = Background::start(pair.command(Side::Near, &["set", GROUP, "link.weight=20"]));
    std::thread::sleep(std::time::Duration::from_secs(1));
    store.answer_again();
    for command in [apply.output(), set.output()] {
        assert!(command.status.code().is_some_and(|code| code < 2), "{command:?}\n{}", pair.log(Side::Near));
    }
    pair.until("the peer has heard of the other key", |pair| {
        status_of(pair, Side::Far, GROUP)["peers"][0]["settings"]["link.weight"] == "20"
    });
    let settings = status_of(&pair, Side::Far, GROUP)["peers"][0]["settings"].clone();
    assert_eq!(settings["policy"], "strict", "{settings}");
    pair.stop_both();
}

/// The link ends three times for a group that comes; writers in `sync` of another group went on alone each time.
#[test]
fn writers_of_other_groups_wait_for_the_link() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    pair.done(Side::Near, &["set", GROUP, "mode=sync", "policy=degrade", "degrade=logging"]);
    pair.wait_for_rest(Side::Near);
    let before = pair.counter(Side::Near, "group.g.resynced_bytes");
    let commands: Vec<String> =
        (0..40).flat_map(|at| [format!("write -P {} {}k 4k", at + 1, at * 64), "sleep 20".to_owned()]).collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let client = pair.start_qemu_io(Side::Near, "data", &commands);
    add_second(&pair);
    pair.done(Side::Near, &["config", "apply"]);
    let (is_fine, said) = client.finish(&mut pair);
    assert!(is_fine, "{said}");
    pair.wait_for_rest(Side::Near);
    assert_eq!(pair.counter(Side::Near, "group.g.resynced_bytes"), before, "nothing was synced for it");
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

// proves: P8
/// One of two files names one node more, which sorts before the others: nothing is numbered anew.
#[test]
fn nodes_whose_files_name_others_besides_replicate() {
    let mut pair = Pair::replicating(&PairPlan { mode: "sync", ..PairPlan::DEFAULT });
    assert!(pair.stop(Side::Far).success());
    let aaron = format!("\n[nodes.aaron]\naddress = \"127.0.0.1:9\"\nstate = {:?}\n", pair.path("aaron"));
    let text = fs::read_to_string(pair.config()).expect("there") + &aaron;
    fs::write(pair.config(), text).expect("written");
    pair.serve(Side::Far);
    pair.wait_for(Side::Near, "replicating");
    pair.qemu_io(Side::Near, "data", &["write -P 9 0 64k", "flush"]);
    pair.wait_for_rest(Side::Near);
    assert!(!pair.log(Side::Far).contains("of another run"), "{}", pair.log(Side::Far));
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

// proves: P1
/// The group is removed at the home of a reverse sync: who is attached there does not go on at the other node.
#[test]
fn a_group_that_leaves_the_home_of_a_reverse_sync_keeps_no_client() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    add_second(&pair);
    Side::BOTH.into_iter().for_each(|node| drop(pair.output_of(node, &["config", "apply"])));
    pair.until("both have it", |pair| status_of(pair, Side::Near, "h")["peers"][0]["link"] == "connected");
    pair.done(Side::Near, &["sync", "h", "--full", "--wait"]);
    pair.done(Side::Near, &["sync", "h", "--reverse", "--full"]);
    pair.done(Side::Far, &["logging", "h"]);
    let uri = pair.uri(Side::Near, "data").replace(&format!("{GROUP}/data"), "h/web");
    let mut qemu = Command::new("qemu-io");
    (1..80).for_each(|at| _ = qemu.args(["-c", &format!("write -P {at} 0 4k"), "-c", "sleep 100"]));
    qemu.args(["-f", "raw", &uri]);
    let client = Background::start(qemu);
    pair.until("it is served by far", |pair| status_of(pair, Side::Far, "h")["last_sequence"].as_u64() > Some(3));
    remove_second(&pair);
    let said = pair.done(Side::Near, &["config", "apply", "--close-clients"]);
    assert!(said.contains("remove h"), "{said}");
    let (is_fine, said) = client.finish(&mut pair);
    assert!(!is_fine, "it went on at the other node: {said}");
    pair.stop_both();
}

/// What was set while a configuration was taken up counted on top of the one before: the data path got settings of before.
#[test]
fn what_is_set_beside_an_apply_counts_on_top_of_it() {
    if must_skip_stores("what_is_set_beside_an_apply_counts_on_top_of_it") {
        return;
    }
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    fs::create_dir(pair.path("store")).expect("a directory");
    let store = ForgetfulStore::mount(&pair.path("store")).expect("FUSE and root: asked before");
    File::create(pair.path("store/web")).and_then(|disk| disk.set_len(4 * MIB)).expect("a disk");
    pair.first_sync();
    pair.wait_for(Side::Near, "replicating");
    add_second(&pair);
    fs::remove_file(pair.device(Side::Near, "web")).expect("it was there");
    std::os::unix::fs::symlink(pair.path("store/web"), pair.device(Side::Near, "web")).expect("a link");
    Side::BOTH.into_iter().for_each(|node| drop(pair.output_of(node, &["config", "apply"])));
    pair.until("it is served", |pair| write_to(pair, "h/web", &["write -P 9 0 64k"]).0);
    // The group that is to leave owes an answer.
    store.hang();
    let uri = pair.uri(Side::Near, "data").replace(&format!("{GROUP}/data"), "h/web");
    let mut qemu = Command::new("qemu-io");
    let client = Background::start({
        qemu.args(["-c", "write -P 8 0 64k", "-f", "raw", &uri]);
        qemu
    });
    std::thread::sleep(Duration::from_secs(1));
    remove_second(&pair);
    pair.edit_config("mode = \"async\"", "mode = \"sync\"");
    let apply = Background::start(pair.command(Side::Near, &["config", "apply", "--close-clients"]));
    std::thread::sleep(Duration::from_secs(1));
    let set = Background::start(pair.command(Side::Near, &["set", GROUP, "wait_limit=9s"]));
    std::thread::sleep(Duration::from_secs(1));
    store.answer_again();
    let (is_done, said) = apply.finish(&mut pair);
    assert!(is_done && said.contains("mode = sync"), "{said}");
    let (is_done, said) = set.finish(&mut pair);
    assert!(is_done, "{said}");
    drop(client);
    let status = status_of(&pair, Side::Near, GROUP);
    assert_eq!((&status["mode"], &status["settings"]["wait_limit"]["value"]), (&"sync".into(), &"9s".into()));
    pair.done(Side::Far, &["config", "apply"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}
