//! Answers as programs read them: each failure has its code, and says what is known of what was ordered. The daemon is a puppet.

use std::process::Output;

use farshore::api::refusals::DeskRefusal;
use farshore::api::*;
use serde_json::{Value, json};

use crate::commands::{Puppet, farshore, group, operation, parsed, status};

/// The exit code, and the one answer.
fn answer(output: &Output) -> (Option<i32>, Value) {
    (output.status.code(), parsed(output)["answers"][0].clone())
}

fn named(mut reply: Reply) -> Reply {
    reply.name_operation("alpha-0f-7");
    reply
}

/// A sentence on standard error was all that a program got.
#[test]
fn without_a_daemon_a_command_for_all_groups_answers_as_json() {
    let dir = tempfile::tempdir().expect("dir");
    let socket = dir.path().join("control.sock");
    let here = ["--all", "--json", "--socket", socket.to_str().expect("text")];
    let commands: [&[&str]; 6] =
        [&["sync"], &["logging"], &["demote"], &["promote"], &["set", "mode=sync"], &["wait", "--for", "replicating"]];
    for words in commands {
        let (code, answer) = answer(&farshore(&[words, &here].concat()));
        let refusal = json!({ "code": "not-reached", "retry": "later" });
        assert_eq!((code, &answer["refusal"]), (Some(2), &refusal), "{words:?}: {answer}");
        assert!(answer.get("group").is_none(), "nobody says which groups there are: {answer}");
    }
}

/// That the group replicated after a restart was taken for the end of a full sync.
#[test]
fn a_full_sync_that_a_restart_cuts_off_is_not_done() {
    let cut_off = Reply::refused(DeskRefusal::OperationCutOff, "it was begun before the daemon was started anew");
    let script = vec![named(Reply::ok("db: sync began")), cut_off, status(group(GroupState::Replicating))];
    let (code, full) = answer(&Puppet::start(script.clone()).run(&["sync", "db", "--full", "--wait", "--json"]));
    let refusal = json!({ "code": "operation-cut-off", "retry": "never" });
    assert_eq!((code, &full["result"], &full["refusal"]), (Some(2), &json!("unknown"), &refusal), "{full}");
    let (code, update) = answer(&Puppet::start(script).run(&["sync", "db", "--wait", "--json"]));
    assert_eq!((code, &update["result"]), (Some(0), &json!("done")), "{update}");
}

#[test]
fn a_sync_that_is_waited_for_passes_on_how_it_ended() {
    let mut failed = operation(OperationState::Failed, "db: the sync did not end: the group has failed");
    let Reply::Operation(view) = &mut failed else { panic!("{failed:?}") };
    view.refusal = Some(engine::RefusalCode::GroupFailed.into());
    let puppet = Puppet::start(vec![named(Reply::ok("db: sync began")), failed]);
    let (code, told) = answer(&puppet.run(&["sync", "db", "--wait", "--json"]));
    let refusal = json!({ "code": "group-failed", "retry": "never" });
    assert_eq!((code, &told["result"], &told["refusal"]), (Some(2), &json!("failed"), &refusal), "{told}");
    // Of a group that is in step there is no end to be waited for.
    let puppet = Puppet::start(vec![named(Reply::unchanged("db: the group is already in step; nothing to do"))]);
    let (code, told) = answer(&puppet.run(&["sync", "db", "--wait", "--json"]));
    assert_eq!((code, &told["result"], puppet.asked().len()), (Some(0), &json!("unchanged"), 1), "{told}");
}

/// Both were `failed`, later.
#[test]
fn waiting_for_a_state_passes_on_why_it_never_comes() {
    let unknown = Reply::error(ErrorCode::UnknownGroup, "node alpha has no group \"db\"");
    for (reply, result, code) in
        [(unknown, "refused", "unknown-group"), (status(group(GroupState::Failed)), "failed", "group-failed")]
    {
        let puppet = Puppet::start(vec![reply]);
        let (exit, told) = answer(&puppet.run(&["wait", "db", "--for", "replicating", "--json"]));
        let refusal = json!({ "code": code, "retry": "never" });
        assert_eq!((exit, &told["result"], &told["refusal"]), (Some(2), &json!(result), &refusal), "{told}");
    }
}

/// It said that the mark was dropped also where there was none.
#[test]
fn a_mark_that_was_not_there_is_not_dropped() {
    let words = ["mark", "drop", "db", "before-sync-1", "--json"];
    for (reply, dropped) in [
        (Reply::ok("db: the image is given up"), json!("before-sync-1")),
        (Reply::unchanged("db: no image is kept; nothing to do"), Value::Null),
    ] {
        let told = parsed(&Puppet::start(vec![named(reply)]).run(&words));
        assert_eq!((&told["dropped"], &told["operation"]), (&dropped, &json!("alpha-0f-7")), "{told}");
        assert!(told.get("dropped").is_some(), "{told}");
    }
}
