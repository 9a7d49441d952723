//! A switchover between two real daemons, typed at either node, and the way back.
// proves: rule 15

use std::fs;
use std::time::Duration;

use crate::common::{Background, GROUP, Pair, PairPlan, Side};
use crate::role_hooks::{pair as with_hooks, ran};

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

/// What a sync has not brought yet would be missing: nothing is held up for that, and the sync goes on.
#[test]
fn a_switchover_amid_a_sync_is_refused() {
    let mut pair = Pair::replicating(&PairPlan::default());
    pair.done(Side::Near, &["logging", GROUP]);
    let pattern = |number: u64| format!("write -P {} {}k 64k", 1 + number % 255, 64 * number);
    let writes: Vec<String> = (0..128).map(pattern).chain(["flush".to_owned()]).collect();
    pair.qemu_io(Side::Near, "data", &writes.iter().map(String::as_str).collect::<Vec<_>>());
    pair.done(Side::Near, &["link", "set", "rate=2Mbit/s", "compression=off"]);
    pair.done(Side::Near, &["sync", GROUP]);
    pair.wait_for(Side::Near, "syncing");
    for node in Side::BOTH {
        let (code, said) = pair.output_of(node, &["switchover", GROUP, "--to", "far"]);
        assert!(code == 2 && said.contains("a sync to the peer is under way"), "{code}: {said}");
        assert!(is_primary(&pair, Side::Near) && !is_primary(&pair, Side::Far));
    }
    assert_eq!(pair.status(Side::Near)["state"], "syncing", "it goes on");
    pair.done(Side::Near, &["link", "set", "rate=unlimited", "compression=default"]);
    pair.wait_for(Side::Near, "replicating");
    pair.done(Side::Near, &["switchover", GROUP, "--to", "far"]);
    pair.wait_for_rest(Side::Far);
    pair.stop_from(Side::Far);
    pair.assert_equal(&VOLUMES);
}

/// Two operators at two desks: however their orders fall, one node is primary in the end, and nothing is forced.
#[test]
fn orders_of_two_desks_at_once_leave_one_primary() {
    let mut pair = Pair::replicating(&PairPlan { mode: "sync", ..PairPlan::default() });
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M", "flush"]);
    let both = |pair: &mut Pair, words: [&[&str]; 2]| {
        let desks = Side::BOTH.map(|node| Background::start(pair.command(node, words[node as usize])));
        desks.map(|desk| desk.finish(pair))
    };
    for round in 0..4 {
        pair.wait_for_rest(Side::Near);
        // The copy is told of the demotion in its own time, so whoever waits for that may be refused first.
        pair.done(Side::Near, &["demote", GROUP]);
        let promote: &[&str] = &["promote", GROUP];
        let mut answers = Vec::new();
        pair.until("one of them is promoted", |pair| {
            answers = both(pair, [promote; 2]).to_vec();
            Side::BOTH.iter().any(|node| is_primary(pair, *node))
        });
        let primaries = Side::BOTH.map(|node| is_primary(&pair, node));
        assert_eq!(primaries, [false, true], "round {round}: the one that handed over is not promoted: {answers:?}");
        pair.wait_for_rest(Side::Far);
        let to_near: &[&str] = &["switchover", GROUP, "--to", "near"];
        let to_far: &[&str] = &["switchover", GROUP, "--to", "far"];
        let answers = both(&mut pair, [to_near, to_far]);
        assert!(answers.iter().any(|(is_done, _)| *is_done), "round {round}: {answers:?}");
        pair.until("one node is the primary, and in step", |pair| {
            let of = |node| (is_primary(pair, node), pair.status(node)["state"] == "replicating");
            matches!(Side::BOTH.map(of), [(true, true), (false, _)] | [(false, _), (true, true)])
        });
        if is_primary(&pair, Side::Far) {
            pair.done(Side::Far, &["switchover", GROUP, "--to", "near"]);
        }
    }
    pair.wait_for_rest(Side::Near);
    pair.qemu_io(Side::Near, "data", &["read -P 5 0 1M"]);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

/// Who is attached is named, and is cut off only if that is said; what was answered before is there. The same on the way home.
#[test]
fn clients_that_are_attached_are_listed_and_cut_off_only_if_that_is_said() {
    let mut pair = Pair::replicating(&PairPlan { mode: "sync", ..PairPlan::default() });
    let ways = [(Side::Near, &["switchover", GROUP, "--to", "far"][..]), (Side::Far, &["failback", GROUP][..])];
    for (pattern, (primary, words)) in (5..).zip(ways) {
        let heir = primary.other();
        let write = format!("write -P {pattern} 0 64k");
        let client = pair.start_qemu_io(primary, "data", &[&write, "flush", "sleep 60000"]);
        pair.until("it has written", |pair| {
            let volume = &pair.status(primary)["volumes"][0];
            volume["clients"] == 1 && pair.try_qemu_io(primary, "data", &[&write.replace("write", "read")]).0
        });
        pair.until("the one that looked has left", |pair| pair.status(primary)["volumes"][0]["clients"] == 1);
        pair.wait_for_rest(primary);
        for typed_at in Side::BOTH {
            let (code, said) = pair.output_of(typed_at, words);
            assert!(code == 2 && said.contains("1 client is attached") && said.contains("g/data"), "{words:?}: {said}");
            assert!(said.contains("--close-clients"), "{words:?}: {said}");
        }
        assert!(is_primary(&pair, primary) && !is_primary(&pair, heir));
        assert_eq!(pair.status(primary)["volumes"][0]["clients"], 1, "it is attached still");
        pair.done(heir, &[words, &["--close-clients"]].concat());
        assert!(is_primary(&pair, heir) && !is_primary(&pair, primary));
        assert_eq!(pair.status(primary)["volumes"][0]["clients"], 0, "it was cut off");
        drop(client);
        pair.wait_for(heir, "replicating");
        pair.qemu_io(heir, "data", &[&write.replace("write", "read")]);
    }
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

/// The sync that comes first waits for somebody: the command waited with it, without an end.
#[test]
fn a_failback_does_not_wait_for_ever_for_a_sync_that_stands_still() {
    let mut pair = Pair::new(&PairPlan::default());
    pair.lay_relay();
    pair.first_sync();
    pair.done(Side::Near, &["switchover", GROUP, "--to", "far"]);
    pair.wait_for(Side::Far, "replicating");
    pair.done(Side::Far, &["logging", GROUP]);
    pair.qemu_io(Side::Far, "log", &["write -P 9 0 8M", "flush"]);
    pair.done(Side::Far, &["link", "set", "rate=4Mbit/s"]);
    pair.done(Side::Near, &["link", "set", "rate=4Mbit/s"]);
    let failback = Background::start(pair.command(Side::Far, &["failback", GROUP, "--json"]));
    pair.wait_for(Side::Far, "syncing");
    pair.relay().cut();
    let output = failback.output();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("\"not-in-step\""), "{output:?}");
    assert!(
        said.contains("nothing has moved for 30s") && said.contains("then type 'farshore failback g' again"),
        "{said}"
    );
    pair.relay().restore();
    pair.done(Side::Far, &["link", "set", "rate=unlimited"]);
    pair.until("it is back", |pair| pair.output_of(Side::Far, &["failback", GROUP]).0 == 0);
    assert!(is_primary(&pair, Side::Near));
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

/// Somebody typed `promote` while the peer was about to hand over, and a fence refused that behind the grant: the grant had been tried, and nobody
/// served until `promote` was typed once more.
#[test]
fn a_grant_that_another_change_stands_in_the_way_of_is_tried_again() {
    let script = "here=$(dirname \"$0\")\n\
                  case $FARSHORE_HOOK in before_demote) while ! [ -e \"$here/hands-over\" ]; do sleep 0.05; done; exit 0 ;; esac\n\
                  [ -e \"$here/second\" ] || { touch \"$here/second\"; exit 0; }\n\
                  touch \"$here/runs\"; while ! [ -e \"$here/go\" ]; do sleep 0.05; done; exit 1";
    let mut pair = with_hooks("hooks.before_promote = HOOK\nhooks.before_demote = HOOK", script);
    pair.wait_for_rest(Side::Near);
    let switchover = Background::start(pair.command(Side::Near, &["switchover", GROUP, "--to", "far"]));
    pair.until("the peer is ready", |pair| pair.path("second").exists());
    pair.until("the command of this node runs", |pair| {
        fs::read_to_string(ran(pair)).is_ok_and(|lines| lines.contains("before_demote"))
    });
    let promotion = Background::start(pair.command(Side::Far, &["promote", GROUP, "--force"]));
    pair.until("its command runs", |pair| pair.path("runs").exists());
    fs::write(pair.path("hands-over"), "").expect("written");
    pair.until("it handed over", |pair| !is_primary(pair, Side::Near));
    std::thread::sleep(Duration::from_millis(500));
    fs::write(pair.path("go"), "").expect("written");
    assert!(!promotion.output().status.success());
    pair.until("the grant is taken", |pair| is_primary(pair, Side::Far));
    let output = switchover.output();
    assert!(output.status.code().is_some_and(|code| code < 2), "{output:?}");
    pair.wait_for(Side::Far, "replicating");
    pair.stop_both();
}
