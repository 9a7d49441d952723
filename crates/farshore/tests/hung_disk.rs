//! One disk of eight answers nothing, on either node: the other groups are served and replicate, the nodes hear each other,
//! people get their answers; and when it answers again nothing was lost.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::common::eight::{
    HANGS, MODES, PAGE, VOLUME_BYTES, ask_what_hangs, client, eight_groups, others_work, run, status_of, volume,
};
use crate::common::{Pair, Side, must_skip_stores};
use host::nbd::Ask;
use serde_json::{Value, json};

/// Longer than a link without a sign of life lasts, and than it takes until a silence is told.
const HANGING: Duration = Duration::from_secs(20);

/// How many connections between the nodes have ended so far.
fn links_lost(pair: &Pair) -> usize {
    Side::BOTH.iter().map(|node| pair.log(*node).matches("a connection ended").count()).sum()
}

/// Every group but the one is as it should be, on both nodes, and no link was lost since.
#[track_caller]
fn others_are_in_step(pair: &Pair, lost_before: usize) {
    for node in Side::BOTH {
        for group in status_of(pair, node).iter().filter(|group| group["name"] != HANGS) {
            assert_eq!(group["state"], "replicating", "{}: {group}\n{}", node.name(), pair.log(node));
        }
    }
    assert_eq!(links_lost(pair), lost_before, "{}\n{}", pair.log(Side::Near), pair.log(Side::Far));
}

#[test]
fn a_disk_of_the_primary_that_hangs_stands_still_alone() {
    let test = "a_disk_of_the_primary_that_hangs_stands_still_alone";
    if must_skip_stores(test) {
        return;
    }
    let (store, mut pair) = eight_groups(Side::Near, |_| String::new());
    run(async {
        others_work(&pair, Duration::from_secs(3)).await.print("before");
        let mut stuck = client(&pair, HANGS).await;
        // It was quick until this moment.
        for page in 0..200 {
            stuck.call(Ask::Read { offset: page * PAGE, length: PAGE as u32 }).await.expect("served").expect("read");
        }
        let lost_before = links_lost(&pair);
        store.hang();
        let asked = ask_what_hangs(&mut stuck, true).await;
        others_work(&pair, HANGING).await.print("beside a disk that hangs");
        others_are_in_step(&pair, lost_before);
        let (_, text) = pair.output_of(Side::Near, &["status", HANGS]);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("has answered nothing for"), "{text}");
        assert!(pair.log(Side::Near).contains("near-hangs has answered nothing for"), "{}", pair.log(Side::Near));
        store.answer_again();
        for _ in 0..asked {
            stuck.next().await.expect("a connection").result.expect("an answer, late");
        }
        stuck.disconnect().await.expect("a connection");
    });
    pair.done(Side::Near, &["wait", HANGS, "--for", "replicating", "--timeout", "90s"]);
    pair.until("its end is told", |pair| pair.log(Side::Near).contains("near-hangs answers again"));
    ends_equal(pair, Side::Near);
}

/// The daemon opened one device after the other, so a restart beside a disk that answers nothing kept the whole node down.
#[test]
fn a_start_beside_a_disk_that_hangs_serves_the_other_groups() {
    let test = "a_start_beside_a_disk_that_hangs_serves_the_other_groups";
    if must_skip_stores(test) {
        return;
    }
    let (store, mut pair) = eight_groups(Side::Near, |_| String::new());
    assert!(pair.stop(Side::Near).success());
    store.hang();
    pair.serve(Side::Near);
    run(async { others_work(&pair, Duration::from_millis(200)).await.print("after a start beside a disk that hangs") });
    let status = status_of(&pair, Side::Near);
    let stuck = status.iter().find(|group| group["name"] == HANGS).expect("it is told");
    let reason = stuck["reason"].to_string();
    assert!(stuck["state"] == "failed" && reason.contains("near-hangs has answered nothing for 10 s"), "{stuck}");
    let (code, said) = pair.output_of(Side::Near, &["config", "check"]);
    assert!(code != 0 && said.contains("near-hangs has answered nothing for 10 s"), "{code}: {said}");
    store.answer_again();
    assert!(pair.stop(Side::Near).success());
    pair.serve(Side::Near);
    pair.done(Side::Near, &["wait", HANGS, "--for", "replicating", "--timeout", "90s"]);
    ends_equal(pair, Side::Near);
}

/// What the kernel has of a process's memory cannot be taken back, so a stop waited for the disk, for ever and without a word.
#[test]
fn a_stop_beside_a_disk_that_hangs_gives_up_and_says_for_whom_it_waited() {
    let test = "a_stop_beside_a_disk_that_hangs_gives_up_and_says_for_whom_it_waited";
    if must_skip_stores(test) {
        return;
    }
    let (store, mut pair) = eight_groups(Side::Near, |_| String::new());
    run(async {
        let mut stuck = client(&pair, HANGS).await;
        store.hang();
        ask_what_hangs(&mut stuck, true).await;
        let process = rustix::process::Pid::from_raw(pair.pid(Side::Near).cast_signed()).expect("a process");
        rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("our own child takes a signal");
        pair.until("the stop gives up", |pair| pair.log(Side::Near).contains("the stop gives up"));
    });
    let log = pair.log(Side::Near);
    for part in ["did not come to rest within 15s; the disk under ", "near-hangs owes ", "nothing acknowledged is lost"]
    {
        assert!(log.contains(part), "no {part:?} in: {log}");
    }
    // Until here the kernel may keep what is left of the process.
    store.answer_again();
    assert_eq!(pair.stop(Side::Near).code(), Some(1), "{log}");
    pair.serve(Side::Near);
    for (group, _) in MODES {
        pair.done(Side::Near, &["wait", group, "--for", "replicating", "--timeout", "90s"]);
    }
    ends_equal(pair, Side::Near);
}

#[test]
fn a_disk_of_the_secondary_that_hangs_stands_still_alone() {
    let test = "a_disk_of_the_secondary_that_hangs_stands_still_alone";
    if must_skip_stores(test) {
        return;
    }
    let (store, pair) = eight_groups(Side::Far, |_| String::new());
    run(async {
        others_work(&pair, Duration::from_secs(3)).await.print("before");
        let lost_before = links_lost(&pair);
        store.hang();
        let mut stuck = client(&pair, HANGS).await;
        let data = vec![0xaa; PAGE as usize];
        for page in 0..1000 {
            let offset = page % (VOLUME_BYTES / PAGE) * PAGE;
            stuck.call(Ask::Write { offset, data: &data, fua: false }).await.expect("served").expect("written");
        }
        others_work(&pair, HANGING).await.print("beside a disk that hangs");
        others_are_in_step(&pair, lost_before);
        assert!(pair.log(Side::Far).contains("far-hangs has answered nothing for"), "{}", pair.log(Side::Far));
        store.answer_again();
        stuck.disconnect().await.expect("a connection");
    });
    pair.done(Side::Near, &["wait", HANGS, "--for", "replicating", "--timeout", "90s"]);
    ends_equal(pair, Side::Far);
}

fn what_hangs(pair: &Pair, node: Side) -> Value {
    let all = status_of(pair, node);
    all.into_iter().find(|group| group["name"] == HANGS).expect("it is told")
}

/// One promotion that waited for its disk kept those of all other groups waiting behind it, and they were carried out hours later.
#[test]
fn a_promotion_that_waits_for_a_disk_holds_up_no_other_group() {
    let test = "a_promotion_that_waits_for_a_disk_holds_up_no_other_group";
    if must_skip_stores(test) {
        return;
    }
    let (store, mut pair) = eight_groups(Side::Far, |_| String::new());
    run(async {
        let mut writer = client(&pair, HANGS).await;
        store.hang();
        let data = vec![0xaa; PAGE as usize];
        for page in 0..200 {
            let ask = Ask::Write { offset: page * PAGE, data: &data, fua: false };
            writer.call(ask).await.expect("served").expect("written");
        }
        writer.disconnect().await.expect("a connection");
    });
    pair.until("the copy has what its disk does not take", |pair| {
        what_hangs(pair, Side::Far)["journal"]["bytes"].as_u64() > Some(0)
    });
    pair.kill(Side::Near);
    let order = json!({ "request": "promote", "group": HANGS, "force": true });
    let mut waits = UnixStream::connect(pair.path("far/state/control.sock")).expect("the daemon listens");
    writeln!(waits, "{order}").expect("the daemon reads");
    std::thread::sleep(Duration::from_secs(1));
    // The same again is not put behind it.
    let again = pair.ask(Side::Far, &order);
    let says = again["message"].to_string();
    assert!(again["code"] == "refused" && says.contains("hangs: a promotion is under way already"), "{again}");
    for (group, _) in MODES.into_iter().filter(|(group, _)| *group != HANGS) {
        let (code, said) = pair.output_of(Side::Far, &["promote", group, "--force"]);
        assert!(code < 2, "{group}: {said}\n{}", pair.log(Side::Far));
    }
    assert_eq!(role_and_promotion(&pair, Side::Far), ("secondary".to_owned(), true), "it waits still");
    // Whoever typed it goes away. As a copy this node would have the other one promoted by force beside it.
    drop(waits);
    let (_, page) = pair.output_of(Side::Far, &["status", HANGS, "--format", "shell", "--local"]);
    assert!(page.contains("\nfarshore_condition='promoting'\n"), "{page}");
    let operation = again["refusal"]["operation"].as_str().expect("what is in the way has a name").to_owned();
    store.answer_again();
    let (code, answer) = pair.output_of(Side::Far, &["wait", &operation, "--timeout", "60s"]);
    assert!(code < 2, "{answer}\n{}", pair.log(Side::Far));
    pair.until("it has ended", |pair| role_and_promotion(pair, Side::Far) == ("primary".to_owned(), false));
}

fn role_and_promotion(pair: &Pair, node: Side) -> (String, bool) {
    let group = what_hangs(pair, node);
    (group["role"].as_str().expect("a role").to_owned(), group["promoting"].as_bool().expect("a key of each group"))
}

/// What hung holds what its peer holds, once all is told.
fn ends_equal(mut pair: Pair, hung_on: Side) {
    pair.until("nothing waits", |pair| {
        status_of(pair, Side::Near).iter().all(|group| group["state"] == "replicating" && group["queue"]["items"] == 0)
    });
    pair.stop_both();
    for (group, _) in MODES {
        let content = Side::BOTH.map(|node| fs::read(volume(&pair, node, group, hung_on)).expect("a volume"));
        assert!(content[0] == content[1], "{group} differs");
    }
}
