//! A step of a reverse sync that is refused is tried again: how often, with which commands, and not over the head of an operator.
// proves: rule 13

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Background, GROUP, Pair, PairPlan, Side, expect};
use crate::dead_primary::{is_agreed_on, is_announced, serves_another_group_beside};
use crate::reverse_ends::{has_part, is_primary, record};
use crate::reverse_sync::until_home;
use crate::role_hooks::{pair as with_hooks, ran, with_hooks as hooked};

const MIB: u64 = 1 << 20;

fn runs(pair: &Pair, line: &str) -> usize {
    fs::read_to_string(ran(pair)).unwrap_or_default().lines().filter(|ran| ran.starts_with(line)).count()
}

/// The commands of both nodes ran each five seconds, for as long as one of them had the end refused.
#[test]
fn commands_run_less_often_for_an_end_that_they_refuse() {
    let lines = "hooks.before_demote = HOOK\nhooks.before_promote = HOOK";
    let mut pair = with_hooks(lines, "[ $FARSHORE_HOOK.$FARSHORE_NODE != before_demote.far ]");
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["sync", GROUP, "--reverse"]);
    let mut at = |count| {
        pair.until("far's command runs", |pair| runs(pair, "before_demote far") >= count);
        Instant::now()
    };
    let (first, second, third) = (at(1), at(2), at(3));
    assert!(second - first < Duration::from_secs(8), "{:?}", second - first);
    assert!(third - second > Duration::from_secs(8), "{:?}", third - second);
    assert!(runs(&pair, "before_promote near") >= 3);
    fs::write(pair.path("hook"), "#!/bin/sh\n").expect("written");
    pair.done(Side::Near, &["sync", GROUP, "--reverse", "--stop"]);
}

/// A command that cannot succeed was left out as the reverse sync began, and ran at each try to grant once more: nobody was primary.
#[test]
fn what_is_left_out_at_the_begin_is_left_out_when_that_is_tried_again() {
    let mut pair = with_hooks("hooks.before_promote = HOOK", "[ $FARSHORE_NODE = near ]");
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["demote", GROUP]);
    pair.stop_both();
    has_part(&pair, Side::Near, "home skip-hooks");
    has_part(&pair, Side::Far, "server");
    Side::BOTH.iter().for_each(|node| pair.serve(*node));
    until_home(&mut pair, Side::Near);
    assert_eq!((runs(&pair, "before_promote far"), runs(&pair, "before_promote near")), (0, 1));
    // It is on record as it was typed.
    fs::write(pair.path("hook"), "#!/bin/sh\nsleep 2\n").expect("written");
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["sync", GROUP, "--reverse", "--skip-hooks"]);
    let text = fs::read_to_string(record(&pair, Side::Near)).expect("a record");
    assert!(text.contains("place home skip-hooks\n"), "{text}");
    until_home(&mut pair, Side::Near);
}

/// What near holds could not be saved, so it was asked for again each five seconds, and with that the promotion of far: whoever demoted far found it
/// primary.
#[test]
fn a_node_that_has_served_and_was_demoted_is_not_promoted_again_unasked() {
    let mut pair = Pair::replicating(&PairPlan { volume_bytes: 8 * MIB, ..PairPlan::DEFAULT });
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["logging", GROUP]);
    pair.qemu_io(Side::Near, "data", &["write -P 6 0 64k", "flush"]);
    let in_the_way = record(&pair, Side::Near).with_file_name("delta");
    fs::create_dir_all(in_the_way.join("in-the-way")).expect("made");
    expect(&pair.run(Side::Near, &["sync", GROUP, "--reverse", "--yes"]), 1, &["is not given up yet"]);
    assert!(is_primary(&pair, Side::Far));
    pair.qemu_io(Side::Near, "data", &["write -P 7 0 64k", "flush"]);
    let (code, said) = pair.output_of(Side::Far, &["demote", GROUP, "--close-clients"]);
    assert!(code < 2, "{said}");
    let until = Instant::now() + Duration::from_secs(8);
    while Instant::now() < until {
        assert!(!is_primary(&pair, Side::Far), "{}", pair.log(Side::Far));
    }
    let why = pair.status(Side::Near)["reverse"]["why"].to_string();
    assert!(why.contains("node far has served, and was demoted there"), "{why}");
    // The next run of the daemon knows of it too.
    pair.kill(Side::Near);
    pair.serve(Side::Near);
    pair.until("it waits", |pair| {
        assert!(!is_primary(pair, Side::Far), "{}", pair.log(Side::Far));
        pair.status(Side::Near)["reverse"]["why"].to_string().contains("was demoted there")
    });
    fs::remove_dir_all(&in_the_way).expect("removed");
    pair.done(Side::Near, &["sync", GROUP, "--reverse"]);
    pair.until("it is served", |pair| pair.try_qemu_io(Side::Near, "data", &["read -P 7 0 64k"]).0);
    until_home(&mut pair, Side::Near);
    pair.qemu_io(Side::Near, "data", &["read -P 7 0 64k"]);
}

/// What serves home's clients was demoted while home lacked something: typed again the order answered that far serves, and nobody did.
#[test]
fn a_reverse_sync_whose_server_was_demoted_says_that_nobody_serves() {
    let mut pair = Pair::replicating(&PairPlan { volume_bytes: 8 * MIB, ..PairPlan::DEFAULT });
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["sync", GROUP, "--reverse"]);
    assert!(is_primary(&pair, Side::Far));
    pair.done(Side::Far, &["logging", GROUP]);
    pair.qemu_io(Side::Near, "data", &["write -P 7 0 64k", "flush"]);
    let (code, said) = pair.output_of(Side::Far, &["demote", GROUP, "--close-clients"]);
    assert!(code < 2, "{said}");
    pair.until("near hears of that", |pair| {
        pair.status(Side::Near)["reverse"]["why"].to_string().contains("the peer was demoted with 64 KiB")
    });
    let again = pair.run(Side::Near, &["sync", GROUP, "--reverse"]);
    expect(&again, 2, &["was demoted there, so nobody serves them now", "'farshore promote g --force' on one of both"]);
    assert!(!is_primary(&pair, Side::Near) && !is_primary(&pair, Side::Far));
    let (code, said) = pair.output_of(Side::Far, &["promote", GROUP, "--force"]);
    assert!(code < 2 && is_primary(&pair, Side::Far), "{said}");
}

/// A command lasts as long as a file of its name and node is there.
const LASTS: &str = "while [ -e \"$0.$FARSHORE_HOOK.$FARSHORE_NODE\" ]; do sleep 0.1; done";

/// The command before home takes over lasted longer than a step is waited for: the same order, whose goal was reached, was refused.
#[test]
fn an_order_whose_goal_is_reached_is_not_refused_beside_a_step_that_lasts() {
    let mut pair = with_hooks("hooks.before_promote = HOOK\nhooks.timeout = \"60s\"", LASTS);
    pair.wait_for_rest(Side::Near);
    let lasts = pair.path("hook.before_promote.near");
    fs::write(&lasts, "").expect("written");
    let words = ["sync", GROUP, "--reverse"];
    pair.done(Side::Near, &words);
    pair.until("near's command runs", |pair| runs(pair, "before_promote near") == 1);
    expect(&pair.run(Side::Near, &words), 0, &["under way already: node far serves the clients of this node"]);
    assert!(is_primary(&pair, Side::Far) && runs(&pair, "before_promote near") == 1);
    fs::remove_file(lasts).expect("it was there");
    until_home(&mut pair, Side::Near);
}

/// The answer was at once that it goes on by itself, whatever the step that went on came to.
#[test]
fn an_order_that_is_given_again_is_answered_when_the_step_has_ended() {
    let mut pair = with_hooks("hooks.after_promote = HOOK\nhooks.timeout = \"60s\"", LASTS);
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["logging", GROUP]);
    pair.qemu_io(Side::Near, "data", &["write -P 6 0 64k", "flush"]);
    let lasts = pair.path("hook.after_promote.far");
    fs::write(&lasts, "").expect("written");
    let words = ["sync", GROUP, "--reverse", "--yes"];
    let first = Background::start(pair.command(Side::Near, &words));
    pair.until("far's command runs", |pair| runs(pair, "after_promote far") == 1);
    let mut again = Background::start(pair.command(Side::Near, &words));
    std::thread::sleep(Duration::from_secs(2));
    assert!(!again.has_ended(), "it was answered before anybody knew");
    fs::remove_file(lasts).expect("it was there");
    for typed in [first, again] {
        let (_, said) = typed.finish(&mut pair);
        assert!(said.contains("node far serves the clients of this node"), "{said}");
    }
    until_home(&mut pair, Side::Near);
}

// proves: P1
/// The window was over when the command before the promotion had ended. The promotion was refused, and a term had begun all the same: devices that far
/// served well would have failed at their next connection.
#[test]
fn a_promotion_whose_window_is_over_behind_its_command_ends_no_term() {
    let group = "policy = \"hold\"\nhold = \"6s\"";
    let head = "[link]\ntimeout = \"1s\"";
    let mut pair = Pair::new(&PairPlan { mode: "sync", group, head, ..PairPlan::DEFAULT });
    let lines = "hooks.before_demote = HOOK\nhooks.before_promote = HOOK\nhooks.timeout = \"60s\"";
    hooked(&pair, lines, "while [ -e \"$0.$FARSHORE_HOOK.$FARSHORE_NODE\" ]; do sleep 0.1; done");
    pair.first_sync();
    pair.wait_for_rest(Side::Near);
    fs::write(pair.path("hook.before_demote.far"), "").expect("written");
    pair.done(Side::Near, &["sync", GROUP, "--reverse"]);
    pair.until("far's command runs", |pair| runs(pair, "before_demote far") == 1);
    pair.until("near knows of the window", |pair| {
        pair.status(Side::Near)["peer_window_s"].as_f64().is_some_and(|left| left > 5.0)
    });
    let term = pair.status(Side::Near)["term"].clone();
    fs::write(pair.path("hook.before_promote.near"), "").expect("written");
    pair.kill(Side::Far);
    pair.until("near knows that far is gone", |pair| pair.status(Side::Near)["peers"][0]["link"] != "connected");
    let typed = Background::start(pair.command(Side::Near, &["promote", GROUP, "--in-window"]));
    pair.until("near's command runs", |pair| runs(pair, "before_promote near far g yes") == 1);
    pair.until("the window is over", |pair| pair.status(Side::Near)["peer_window_s"].is_null());
    fs::remove_file(pair.path("hook.before_promote.near")).expect("it was there");
    let (is_done, said) = typed.finish(&mut pair);
    assert!(!is_done && !is_primary(&pair, Side::Near), "{said}");
    assert_eq!(pair.status(Side::Near)["term"], term, "{said}");
}

/// A reverse sync of an earlier run, which goes on without a dead disk, meets another demotion, and waits for its next try; those that it held waited
/// for good where the node was promoted by force meanwhile.
#[test]
fn a_forced_promotion_lets_go_of_those_that_were_held_for_the_next_try() {
    let mut pair = Pair::new(&PairPlan { volumes: &["data", "log"], volume_bytes: 4 * MIB, ..PairPlan::DEFAULT });
    let hook = pair.path("hook");
    let script =
        format!("#!/bin/sh\necho >> {}\nwhile [ -e $0.slow ]; do sleep 0.05; done\nexit 1\n", ran(&pair).display());
    fs::write(&hook, script).expect("written");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("its mode");
    let line = format!("hooks.before_demote = [\"{}\"]\njournal = \"16MiB\"\n", hook.display());
    pair.edit_config("journal = \"16MiB\"\n", &line);
    serves_another_group_beside(&mut pair);
    pair.stop_both();
    fs::write(pair.path("hook.slow"), "").expect("written");
    fs::remove_file(pair.device(Side::Near, "data")).expect("a disk");
    is_agreed_on(&pair, "data");
    is_announced(&pair);
    Side::BOTH.iter().for_each(|node| pair.serve(*node));
    let has_run = |pair: &Pair| ran(pair).exists();
    let (mut demotion, mut is_cut): (Option<Background>, bool) = (None, false);
    pair.until("somebody else begins to demote it", |pair| {
        if demotion.as_mut().is_none_or(Background::has_ended) {
            let said = demotion.take().map(|ended| ended.finish(pair).1).unwrap_or_default();
            if said.contains("is under way already") && !is_cut {
                // The group begins anew without its disk, and behind that the daemon waits for the other group's link.
                pair.relay().cut();
                is_cut = true;
            }
            demotion = Some(Background::start(pair.command(Side::Near, &["demote", GROUP])));
        }
        has_run(pair)
    });
    pair.until("it is tried again", |pair| {
        pair.status(Side::Near)["reverse"]["why"].to_string().contains("is tried again")
    });
    fs::remove_file(pair.path("hook.slow")).expect("it was there");
    demotion.expect("it was typed").finish(&mut pair);
    expect(&pair.run(Side::Near, &["promote", GROUP, "--force"]), 0, &["the reverse sync is over"]);
    let mut client = pair.start_qemu_io(Side::Near, "log", &["write -P 6 0 64k", "flush"]);
    let until = Instant::now() + Duration::from_secs(5);
    while !client.has_ended() {
        assert!(Instant::now() < until, "it waits for good: {}", pair.log(Side::Near));
    }
    let (is_done, said) = client.finish(&mut pair);
    assert!(is_done, "{said}");
}

// proves: P1, P6
/// A promotion by force goes back to the image of before the sync first, which takes its time. The term had begun by then, and whoever came was served by
/// the other node until it was over, and went on over the older content.
#[test]
fn nobody_is_served_elsewhere_while_a_forced_promotion_goes_back() {
    let mut pair = Pair::new(&PairPlan { volume_bytes: 8 * MIB, ..PairPlan::DEFAULT });
    let table = format!("[groups.{GROUP}.volumes.data]\n");
    pair.edit_config(&table, &format!("{table}model_latency = {{ near = \"1500ms\" }}\n"));
    pair.first_sync();
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["logging", GROUP]);
    pair.qemu_io(Side::Near, "data", &["write -P 6 0 4M", "flush"]);
    assert!(pair.output_of(Side::Near, &["sync", GROUP, "--reverse", "--yes"]).0 < 2);
    pair.until("the sync overwrites", |pair| pair.status(Side::Far)["state"] == "syncing");
    std::thread::sleep(Duration::from_millis(500));
    pair.done(Side::Far, &["logging", GROUP]);
    pair.qemu_io(Side::Near, "data", &["write -P 7 0 64k", "flush"]);
    let term = pair.status(Side::Near)["term"].clone();
    let typed = Background::start(pair.command(Side::Near, &["promote", GROUP, "--force", "--yes"]));
    pair.until("another term begins", |pair| pair.status(Side::Near)["term"] != term);
    let (is_served, said) = pair.try_qemu_io(Side::Near, "data", &["read -P 7 0 64k"]);
    assert!(!is_primary(&pair, Side::Near), "it goes back still");
    assert!(!is_served, "{said}");
    typed.finish(&mut pair);
    pair.until("it serves", |pair| {
        is_primary(pair, Side::Near) && pair.try_qemu_io(Side::Near, "data", &["read 0 4k"]).0
    });
}

// proves: P1
/// The last question to the other node took its time, and a promotion by force that came beside it was answered as done. Then the node was demoted.
#[test]
fn a_forced_promotion_beside_the_last_question_is_not_undone() {
    let mut pair =
        Pair::replicating(&PairPlan { volumes: &["data", "log"], volume_bytes: 4 * MIB, ..PairPlan::DEFAULT });
    pair.stop_both();
    fs::remove_file(pair.device(Side::Near, "data")).expect("a disk");
    is_agreed_on(&pair, "data");
    is_announced(&pair);
    pair.serve(Side::Far);
    // Each question to it is waited for.
    let far = Pid::from_raw(pair.pid(Side::Far) as i32).expect("a process");
    kill_process(far, Signal::STOP).expect("our own child");
    pair.serve(Side::Near);
    pair.until("the disk is left out", |pair| pair.status(Side::Near)["volumes"][0]["detached"] == true);
    let mut said = String::new();
    pair.until("it is promoted", |pair| {
        said = pair.output_of(Side::Near, &["promote", GROUP, "--force"]).1;
        !said.contains("is under way already")
    });
    assert!(said.contains("the reverse sync is over"), "{said}");
    let until = Instant::now() + Duration::from_secs(7);
    while Instant::now() < until {
        assert!(is_primary(&pair, Side::Near), "{}", pair.log(Side::Near));
    }
    kill_process(far, Signal::CONT).expect("our own child");
}
