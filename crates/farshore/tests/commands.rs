//! The commands as operators and scripts meet them: words out, exit codes true. The daemon is a puppet here.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farshore::api::*;
use farshore::events::{EventPage, EventRecord};
use serde_json::json;

pub fn farshore(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farshore"))
        .args(arguments)
        .env_remove("FARSHORE_CONFIG")
        .stdin(Stdio::null())
        .output()
        .expect("the command runs")
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn expect(output: &Output, code: i32, part: &str) {
    let all = format!("{}{}", said(output), stderr_of(output));
    assert_eq!(output.status.code(), Some(code), "{all}");
    assert!(all.contains(part) && !all.contains("panicked"), "no {part:?} in: {all}");
}

/// Answers each request by the next reply of its script, the last one for ever; keeps what was asked.
pub struct Puppet {
    dir: tempfile::TempDir,
    asked: Arc<Mutex<Vec<ApiRequest>>>,
}

impl Puppet {
    pub fn start(script: Vec<Reply>) -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let (socket, asked) = (dir.path().join("control.sock"), Arc::<Mutex<Vec<ApiRequest>>>::default());
        let heard = asked.clone();
        let (ready, wait) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("runtime");
            tokio::task::LocalSet::new().block_on(&runtime, async move {
                let listener = server::bind(&socket).expect("bind");
                ready.send(()).expect("the test waits");
                server::serve(listener, move |request, _| {
                    let mut heard = heard.lock().expect("no panic");
                    heard.push(request);
                    let reply = script[(heard.len() - 1).min(script.len() - 1)].clone();
                    async move { reply }
                })
                .await;
            });
        });
        wait.recv().expect("started");
        Self { dir, asked }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("control.sock")
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        farshore(&[arguments, &["--socket", self.socket().to_str().expect("text")]].concat())
    }

    pub fn asked(&self) -> Vec<ApiRequest> {
        self.asked.lock().expect("no panic").clone()
    }
}

pub fn group(state: GroupState) -> GroupView {
    GroupView {
        from: Some("alpha".into()),
        to: Some("beta".into()),
        flow: Flow::Flowing,
        starting: false,
        promoting: false,
        handover: None,
        reverse: None,
        demoting: false,
        handed_over: Some(false),
        generation: "2-5392cef6".to_owned(),
        last_sequence: None,
        term: "0".to_owned(),
        name: "db".into(),
        role: Role::Primary,
        mode: "async".into(),
        effective_mode: "async".into(),
        mode_ladder: None,
        state,
        protection: Protection::Queued,
        reason: None,
        volumes: vec![],
        queue: QueueView::default(),
        memory_bytes: 0,
        journal: None,
        peers: vec![],
        promotable: None,
        peer_window_s: None,
        held_writers: 0,
        held_writers_s: None,
        marks: Vec::new(),
        sync: None,
        sync_ordered: false,
        syncs_by_itself: false,
        sync_position: None,
        assumed_equal: false,
        differs: false,
        verify: None,
        verified: None,
        scrub: None,
        settings: Default::default(),
        rpo: None,
        warnings: vec![],
    }
}

pub fn status(group: GroupView) -> Reply {
    Reply::Status(Box::new(NodeView {
        peer_says: Vec::new(),
        schema: STATUS_SCHEMA.into(),
        cluster: "demo".into(),
        node: "alpha".into(),
        version: "0.1.0".into(),
        uptime_s: 1.0,
        warnings: vec![],
        tls: None,
        shared: None,
        clients: None,
        state_directory: None,
        lost_log_lines: 0,
        links: vec![],
        groups: vec![group],
    }))
}

#[test]
fn wrong_usage_exits_with_3() {
    for (arguments, part) in [
        (&[][..], "Usage"),
        (&["staus"], "status"),
        (&["status", "--jsn"], "--json"),
        (&["wait", "db"], "--for"),
        (&["wait", "db", "--for", "replicatng"], "did you mean \"replicating\"?"),
        (&["wait", "db", "--for", "replicating", "--timeout", "10"], "has no unit"),
        (&["set", "db"], "KEY=VALUE"),
        (&["set", "db", "mode"], "not KEY=VALUE"),
        (&["set", "db", "mode=sync", "mode=async"], "given twice"),
        (&["init", "--near", "10.0.0.1", "--far", "10.0.0.2:/dev/sdb"], "--near"),
        (&["status", "--socket", "x", "--node", "alpha"], "cannot be used with"),
        (&["config"], "check"),
    ] {
        expect(&farshore(arguments), 3, part);
    }
}

#[test]
fn help_and_version_are_no_mistake() {
    expect(&farshore(&["--help"]), 0, "Exit codes: 0 done");
    expect(&farshore(&["status", "--help"]), 0, "Example");
    expect(&farshore(&["--version"]), 0, env!("CARGO_PKG_VERSION"));
}

#[test]
fn an_absent_daemon_is_a_failure_that_says_how_to_start_it() {
    let dir = tempfile::tempdir().expect("dir");
    let socket = dir.path().join("control.sock");
    for command in [&["status"][..], &["logging", "db"], &["wait", "db", "--for", "logging"], &["sync", "db", "--wait"]]
    {
        let output = farshore(&[command, &["--socket", socket.to_str().expect("text")]].concat());
        expect(&output, 2, "start it with: farshore serve");
        assert!(stderr_of(&output).contains(socket.to_str().expect("text")));
    }
    expect(&farshore(&["status", "--config", "/no/such/farshore.toml"]), 2, "farshore config example");
}

#[test]
fn the_socket_is_found_through_the_configuration() {
    let puppet = Puppet::start(vec![status(group(GroupState::Replicating))]);
    let file = puppet.dir.path().join("farshore.toml");
    // The puppet's directory is alpha's state directory.
    let text = "cluster = \"c\"\nsecret_file = \"s\"\n[nodes.alpha]\naddress = \"127.0.0.1:1\"\nstate = \".\"\n\
                [nodes.beta]\naddress = \"127.0.0.2:1\"\nstate = \"/b\"\n[groups.db]\nprimary = \"alpha\"\n\
                secondary = \"beta\"\n[groups.db.volumes.v]\nalpha = \"/a\"\nbeta = \"/a\"\n";
    std::fs::write(&file, text).expect("write");
    let file = file.to_str().expect("text");
    expect(&farshore(&["status", "--config", file, "--node", "alpha"]), 0, "replicating");
    let by_environment = Command::new(env!("CARGO_BIN_EXE_farshore"))
        .args(["status", "db", "--node", "alpha"])
        .env("FARSHORE_CONFIG", file)
        .output()
        .expect("runs");
    expect(&by_environment, 0, "replicating");
    // What is typed comes before the variable, whichever way it is typed.
    for (words, says) in
        [(&[][..], "/a does not exist"), (&["no.toml"], "no.toml"), (&["--config", "no.toml"], "no.toml")]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
        command.args(["config", "check", "--node", "alpha"]).args(words).env("FARSHORE_CONFIG", file);
        expect(&command.output().expect("runs"), 2, says);
    }
    expect(&farshore(&["status", "--config", file, "--node", "alhpa"]), 2, "did you mean \"alpha\"?");
    expect(&farshore(&["status", "--config", file]), 2, "choose one of \"alpha\" and \"beta\" with --node");
    assert_eq!(puppet.asked()[1], ApiRequest::StatusOfBoth { group: Some("db".into()) });
}

#[test]
fn status_exits_with_1_when_a_group_needs_an_operator() {
    let puppet = Puppet::start(vec![status(group(GroupState::Failed))]);
    expect(&puppet.run(&["status"]), 1, "failed");
    let json = puppet.run(&["status", "--json"]);
    expect(&json, 1, "\"schema\":\"farshore-status/1\"");
    assert_eq!(said(&json).lines().count(), 1);
    assert!(!said(&puppet.run(&["status"])).contains('\u{1b}'), "no colours into a pipe");
}

/// What a warned command did is its answer: it stands on standard output, once.
#[test]
fn a_warning_that_is_the_answer_is_shown_once() {
    let text = "promoted by force; 12 writes may be lost";
    let puppet = Puppet::start(vec![Reply::done(format!("db: {text}"), vec![text.into()])]);
    let output = puppet.run(&["promote", "db", "--force"]);
    expect(&output, 1, text);
    assert_eq!((said(&output), stderr_of(&output)), (format!("db: {text}\n"), String::new()));
}

/// Another node's daemon may have said it.
#[test]
fn no_control_character_of_an_answer_reaches_the_terminal() {
    let evil = "db: \u{1b}]0;x\u{7}done\r\n  twice\u{9b}2J";
    let named = |node: &str| {
        let Reply::Status(status) = status(group(GroupState::Replicating)) else { panic!("it is one") };
        let link = r#"{"node":"be\u009bta","link":"connected","link_since_s":1.0,"connections":1,"settings":{},"warnings":["x"]}"#;
        let links = vec![serde_json::from_str(link).expect("a link")];
        Reply::Status(Box::new(NodeView { node: node.into(), version: "1\u{1b}[31m".into(), links, ..*status }))
    };
    let (schema, node, peer) = ("s".to_owned(), "alpha".to_owned(), "be\u{9b}ta".to_owned());
    let history = LinkHistory { schema, node, peer, records: Vec::new(), warnings: Vec::new() };
    let puppet = Puppet::start(vec![
        Reply::done(evil, vec!["mind\u{1b}[2J".into()]),
        Reply::error(ErrorCode::Refused, evil),
        named("al\u{1b}pha"),
        named("al\u{9b}pha\u{7f}"),
        Reply::LinkHistory(Box::new(history)),
    ]);
    let done = puppet.run(&["logging", "db"]);
    expect(&done, 1, "db: ?]0;x?done?\n  twice?2J\n");
    let refused = puppet.run(&["logging", "db"]);
    expect(&refused, 2, "farshore: db: ?]0;x?done?\n  twice?2J\n");
    let shown = puppet.run(&["status"]);
    expect(&shown, 0, "al?pha  farshore 1?[31m, up ");
    expect(&shown, 0, "! link be?ta: x\n");
    let json = puppet.run(&["status", "--json"]);
    expect(&json, 0, r#""node":"al\u009bpha\u007f""#);
    let parsed: serde_json::Value = serde_json::from_str(&said(&json)).expect("JSON");
    assert_eq!(parsed["node"], "al\u{9b}pha\u{7f}", "it means the same");
    let history = puppet.run(&["link", "history"]);
    expect(&history, 0, "Nothing is recorded of the link to be?ta since then.\n");
    for output in [done, refused, shown, json, history] {
        let all = said(&output) + &stderr_of(&output);
        assert!(all.chars().all(|c| c == '\n' || !c.is_control()), "{all:?}");
    }
}

/// `demote db --on beta`: beta answered as alpha, and what runs beside the primary was stopped at alpha.
#[test]
fn the_word_of_another_node_than_the_one_that_was_asked_does_not_count() {
    let puppet = Puppet::start(vec![status(group(GroupState::Replicating))]);
    expect(&puppet.run(&["status", "db", "--on", "alpha"]), 0, "replicating");
    for words in [&["status", "db"][..], &["mark", "list", "db"], &["wait", "db", "--for", "replicating"]] {
        let output = puppet.run(&[words, &["--on", "beta"]].concat());
        expect(&output, 2, "node beta was asked, and the answer is that of node \"alpha\"");
    }
}

fn events(node: &str, numbers: std::ops::RangeInclusive<u64>, more: bool) -> Reply {
    let position = *numbers.end();
    let event = |number: u64| -> EventRecord {
        let head = format!(r#""schema":"s","number":{number},"time_unix_ms":{number},"node":"{node}""#);
        serde_json::from_str(&format!(r#"{{{head},"kind":"note","text":"of {node}"}}"#)).expect("an event")
    };
    let events = numbers.map(event).collect();
    let (schema, node) = ("s".to_owned(), node.to_owned());
    let page = EventPage { schema, node, events, first: 1, last: 99, position, more, warnings: Vec::new() };
    Reply::Events(Box::new(page))
}

/// A status of alpha, which has the group with beta.
fn with_a_peer() -> Reply {
    let peer = PeerStatusView {
        node: "beta".into(),
        link: LinkState::Connected,
        link_since_s: 1.0,
        link_reason: None,
        lag_bytes: None,
        lag_items: None,
        lag_seconds: None,
        heard_s: None,
        heard_lag_bytes: None,
        heard_lag_seconds: None,
        settings: None,
        dirty_bytes: 0,
        recovery_point: None,
    };
    status(GroupView { peers: vec![peer], ..group(GroupState::Replicating) })
}

/// Without a word the events of this node alone were shown, as if there were no others.
#[test]
fn events_say_that_the_peers_are_not_known() {
    let slow = Reply::error(ErrorCode::Failed, "this is not done after 8s");
    let output = Puppet::start(vec![events("alpha", 1..=2, false), slow]).run(&["events"]);
    expect(&output, 1, "the events of other nodes are missing here: this is not done after 8s");
    assert_eq!(said(&output).lines().count(), 2, "{output:?}");
    expect(&Puppet::start(vec![events("alpha", 1..=2, false)]).run(&["events", "--local"]), 0, "of alpha");
}

/// It takes nobody's own events away, and does not hold the command for ever.
#[test]
fn a_peer_that_answers_nonsense_is_one_that_does_not_answer() {
    for (answer, why) in [
        (Reply::ok("done"), "the daemon answered with a bare success"),
        (events("alpha", 7..=9, false), "node \"alpha\" answered in its place"),
        // The same page again and again, which says that there are more.
        (events("beta", 3..=5, true), "its log does not go on"),
    ] {
        let puppet = Puppet::start(vec![events("alpha", 1..=2, false), with_a_peer(), answer]);
        let output = puppet.run(&["events", "--json"]);
        expect(&output, 1, &format!("the events of node beta are missing here: {why}"));
        assert_eq!(said(&output).lines().filter(|line| line.contains("of alpha")).count(), 2, "{output:?}");
        assert!(puppet.asked().len() <= 4, "{:?}", puppet.asked());
    }
}

/// It broke down where standard error takes nothing.
#[test]
fn events_need_no_reader_of_what_they_say() {
    let Reply::Events(mut nothing) = events("alpha", 1..=1, false) else { panic!("they are") };
    nothing.events.clear();
    let puppet = Puppet::start(vec![Reply::Events(nothing)]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("there");
    let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
    let output = command.args(["events", "--local", "--socket"]).arg(puppet.socket()).stderr(full).output();
    expect(&output.expect("the command runs"), 0, "");
}

/// A variable is no word that was typed: nothing about it is required.
#[test]
fn a_variable_is_not_shown_as_required() {
    let run = |arguments: &[&str], file: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
        command.args(arguments).env("FARSHORE_CONFIG", file).stdin(Stdio::null()).output().expect("the command runs")
    };
    let wrong = run(&["sync"], "/no/such/file");
    expect(&wrong, 3, "Usage: farshore sync");
    assert!(!stderr_of(&wrong).contains("--config"), "{}", stderr_of(&wrong));
    // And it is what is read.
    expect(&run(&["status"], "/no/such/file"), 2, "/no/such/file");
    expect(&run(&["status", "--config", "/typed/file"], "/no/such/file"), 2, "/typed/file");
    expect(&run(&["status", "--help"], "/no/such/file"), 0, "FARSHORE_CONFIG");
}

#[test]
fn commands_report_success_warning_and_refusal() {
    let warned = Reply::done("db: promoted", vec!["12 writes may be lost".into()]);
    let refused = Reply::error(ErrorCode::Refused, "beta may still be primary; stop it, or use --force");
    let puppet = Puppet::start(vec![
        Reply::ok("db: logging"),
        refused,
        warned,
        Reply::ok("db: secondary now"),
        Reply::ok("db: mode = sync"),
        Reply::error(ErrorCode::UnknownGroup, "no group \"web\""),
        Reply::ok("db: syncing"),
    ]);
    expect(&puppet.run(&["logging", "db"]), 0, "db: logging");
    expect(&puppet.run(&["promote", "db"]), 2, "beta may still be primary");
    expect(&puppet.run(&["promote", "db", "--force"]), 1, "warning: 12 writes may be lost");
    expect(&puppet.run(&["demote", "db", "--close-clients"]), 0, "secondary now");
    expect(&puppet.run(&["set", "db", "mode=sync", "queue.memory=8MiB"]), 0, "mode = sync");
    expect(&puppet.run(&["status", "web"]), 2, "no group \"web\"");
    expect(&puppet.run(&["sync", "db", "--full"]), 0, "db: syncing");
    let settings = [("mode".to_owned(), "sync".to_owned()), ("queue.memory".to_owned(), "8MiB".to_owned())];
    let asked = puppet.asked();
    assert_eq!(
        asked[2],
        ApiRequest::Promote {
            group: "db".into(),
            force: true,
            in_window: false,
            skip_hooks: false,
            is_announced: false
        }
    );
    assert_eq!(asked[3], ApiRequest::Demote { group: "db".into(), close_clients: true, skip_hooks: false });
    assert_eq!(asked[4], ApiRequest::Set { group: "db".into(), settings: settings.into() });
    assert!(matches!(asked[6], ApiRequest::Sync { full: true, no_compare: false, volume: None, .. }));
}

pub fn parsed(output: &Output) -> serde_json::Value {
    serde_json::from_str(&said(output)).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// What an orchestrator types again because it does not know whether it was heard.
#[test]
fn what_is_so_already_is_a_success() {
    let puppet = Puppet::start(vec![Reply::unchanged("db: already primary; nothing to do")]);
    let output = puppet.run(&["promote", "db"]);
    expect(&output, 0, "db: already primary; nothing to do");
    assert_eq!(stderr_of(&output), "");
    let answer = parsed(&puppet.run(&["promote", "db", "--json"]));
    assert_eq!((&answer["schema"], &answer["exit"]), (&json!("farshore-answer/1"), &json!(0)), "{answer}");
    assert_eq!(answer["answers"][0]["result"], "unchanged", "{answer}");
}

/// One refusal keeps no other group from its order, and is the exit code.
#[test]
fn a_command_for_several_groups_asks_for_each() {
    let refused = Reply::refused(engine::RefusalCode::PeerAway, "web: the peer is not connected");
    let script = vec![Reply::ok("db: logging"), refused.clone(), Reply::done("mail: logging", vec!["mind".into()])];
    let puppet = Puppet::start(script.clone());
    let output = puppet.run(&["logging", "db", "web", "mail"]);
    expect(&output, 2, "farshore: web: the peer is not connected");
    assert_eq!(said(&output), "db: logging\nmail: logging\n");
    let groups: Vec<_> = puppet.asked().into_iter().map(|request| format!("{request:?}")).collect();
    assert_eq!(groups, ["db", "web", "mail"].map(|group| format!("Logging {{ group: {group:?}, volume: None }}")));

    let answer = parsed(&Puppet::start(script).run(&["logging", "db", "web", "mail", "--json"]));
    let results = [0, 1, 2].map(|at| answer["answers"][at]["result"].as_str().expect("a word").to_owned());
    assert_eq!(results, ["done", "refused", "done"], "{answer}");
    let refusal = json!({ "code": "peer-away", "retry": "later" });
    assert_eq!((&answer["answers"][1]["refusal"], &answer["exit"]), (&refusal, &json!(2)), "{answer}");
    assert_eq!(answer["answers"][2]["warnings"], json!(["mind"]));
}

#[test]
fn all_groups_are_those_of_the_node_that_is_asked() {
    let Reply::Status(mut all) = status(group(GroupState::Replicating)) else { panic!("it is one") };
    all.groups.push(GroupView { name: "web".into(), ..group(GroupState::Logging) });
    let script = vec![Reply::Status(all), Reply::ok("done")];
    for words in [&["promote", "--all"][..], &["promote", "*"], &["set", "--all", "mode=sync"], &["sync", "*"]] {
        let puppet = Puppet::start(script.clone());
        expect(&puppet.run(words), 0, "done");
        let asked = puppet.asked();
        assert_eq!(asked[0], ApiRequest::Status { group: None }, "{words:?}");
        let names: Vec<_> = asked[1..].iter().map(|request| format!("{request:?}")).collect();
        assert!(names.len() == 2 && names[0].contains("\"db\"") && names[1].contains("\"web\""), "{names:?}");
    }
}

#[test]
fn a_script_is_told_what_kind_of_refusal_it_met() {
    let none = tempfile::tempdir().expect("dir");
    let socket = none.path().join("control.sock");
    let output = farshore(&["demote", "db", "--json", "--socket", socket.to_str().expect("text")]);
    let answer = parsed(&output);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(answer["answers"][0]["refusal"]["code"], "not-reached", "{answer}");
    // A daemon of before has no codes.
    let old = Puppet::start(vec![Reply::error(ErrorCode::UnknownGroup, "no group \"db\"")]);
    let answer = parsed(&old.run(&["sync", "db", "--json"]));
    let refusal = json!({ "code": "unknown-group", "retry": "never" });
    assert_eq!(answer["answers"][0]["refusal"], refusal, "{answer}");
}

pub fn operation(state: OperationState, message: &str) -> Reply {
    Reply::Operation(Box::new(OperationView {
        schema: OPERATION_SCHEMA.into(),
        node: "alpha".into(),
        id: "alpha-0f-7".into(),
        verb: "sync".into(),
        group: None,
        begun_unix_ms: 5,
        state,
        message: Some(message.into()),
        warnings: Vec::new(),
        refusal: None,
    }))
}

#[test]
fn wait_ends_with_the_operation() {
    let running = operation(OperationState::Running, "db: sync began");
    let puppet = Puppet::start(vec![running.clone(), operation(OperationState::Done, "db: the copy is up to date")]);
    expect(&puppet.run(&["wait", "alpha-0f-7", "--timeout", "60s"]), 0, "db: the copy is up to date");
    // The node stands in the name.
    let look = ApiRequest::Operation { id: "alpha-0f-7".into() };
    assert_eq!(puppet.asked()[0], ApiRequest::On { node: "alpha".into(), order: Box::new(look) });
    let stopped = Puppet::start(vec![operation(OperationState::Stopped, "db: the sync was stopped")]);
    expect(&stopped.run(&["wait", "alpha-0f-7"]), 2, "farshore: db: the sync was stopped");
    let late = Puppet::start(vec![running]).run(&["wait", "alpha-0f-7", "--timeout", "10ms", "--json"]);
    assert_eq!(late.status.code(), Some(2));
    let answer = &parsed(&late)["answers"][0];
    let refusal = json!({ "code": "time-is-up", "retry": "later" });
    assert_eq!((&answer["result"], &answer["refusal"]), (&json!("running"), &refusal), "{answer}");
    let unknown = Reply::refused(refusals::DeskRefusal::UnknownOperation, "operation alpha-0f-7: none of this name");
    let answer = &parsed(&Puppet::start(vec![unknown]).run(&["wait", "alpha-0f-7", "--json"]))["answers"][0];
    assert_eq!(answer["refusal"]["code"], "unknown-operation", "{answer}");
}

/// Its daemon was restarted meanwhile: what was answered before is in the log of events.
#[test]
fn wait_finds_the_answer_that_a_daemon_of_before_gave() {
    let why = "it was begun before the daemon was restarted";
    let cut_off = Reply::refused(refusals::DeskRefusal::OperationCutOff, why);
    let page = |operation: &str| {
        let Reply::Events(mut page) = events("alpha", 1..=2, false) else { panic!("they are") };
        let told = [("operation", operation), ("command", "promote"), ("result", "done"), ("answer", "db: so")];
        for (field, value) in told {
            page.events[1].fields.insert(field.into(), value.into());
        }
        Reply::Events(page)
    };
    let puppet = Puppet::start(vec![cut_off.clone(), page("alpha-0f-7")]);
    expect(&puppet.run(&["wait", "alpha-0f-7"]), 0, "db: so");
    let puppet = Puppet::start(vec![cut_off, page("alpha-0f-8")]);
    expect(&puppet.run(&["wait", "alpha-0f-7"]), 2, why);
}

#[test]
fn wait_ends_at_the_state_at_the_deadline_or_at_a_failure() {
    let queuing = GroupView { reason: Some("beta is unreachable".into()), ..group(GroupState::Queuing) };
    let reached = Puppet::start(vec![status(queuing.clone()), status(group(GroupState::Replicating))]);
    expect(&reached.run(&["wait", "db", "--for", "replicating", "--timeout", "60s"]), 0, "db is replicating");
    assert_eq!(reached.asked().len(), 2);
    let never = Puppet::start(vec![status(queuing)]);
    let late = never.run(&["wait", "db", "--for", "replicating", "--timeout", "10ms"]);
    expect(&late, 2, "db is not replicating in time: it is queuing: beta is unreachable");
    let failed = Puppet::start(vec![status(group(GroupState::Failed))]);
    expect(&failed.run(&["wait", "db", "--for", "replicating"]), 2, "will not reach replicating");
    expect(&failed.run(&["wait", "db", "--for", "failed"]), 0, "db is failed");
}

/// A daemon that stops answers that its data thread has ended, for as long as its doors are still open.
#[test]
fn wait_outlives_the_last_answers_of_a_daemon_that_restarts() {
    let stopping = Reply::error(ErrorCode::Failed, "the data thread has ended: this daemon is stopping");
    let queuing = status(group(GroupState::Queuing));
    let puppet = Puppet::start(vec![queuing, stopping.clone(), status(group(GroupState::Replicating))]);
    expect(&puppet.run(&["wait", "db", "--for", "replicating", "--timeout", "60s"]), 0, "db is replicating");
    let broken = Puppet::start(vec![stopping]);
    expect(&broken.run(&["wait", "db", "--for", "replicating"]), 2, "the data thread has ended");
}

/// It listens and answers nothing, as one whose data thread hangs.
#[test]
fn a_daemon_that_hangs_is_not_waited_for_beyond_the_deadline() {
    let dir = tempfile::tempdir().expect("dir");
    let socket = dir.path().join("control.sock");
    let _listens = std::os::unix::net::UnixListener::bind(&socket).expect("bind");
    let began = std::time::Instant::now();
    let words =
        ["wait", "db", "--for", "replicating", "--timeout", "300ms", "--socket", socket.to_str().expect("text")];
    expect(&farshore(&words), 2, "did not answer in time");
    assert!(began.elapsed() < std::time::Duration::from_secs(60));
}

#[test]
fn a_file_in_place_of_the_socket_is_named() {
    let dir = tempfile::tempdir().expect("dir");
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "").expect("write");
    expect(&farshore(&["status", "--socket", plain.to_str().expect("text")]), 2, "that is no socket");
}

#[test]
fn sync_wait_follows_the_sync_to_its_end() {
    let syncing = GroupView {
        sync: Some(SyncView {
            full: false,
            done_bytes: 1,
            total_bytes: 2,
            rate_bytes_per_s: 1.0,
            ..SyncView::default()
        }),
        ..group(GroupState::Syncing)
    };
    let script = |end: GroupState| {
        vec![
            Reply::ok("db: syncing"),
            status(group(GroupState::Logging)),
            status(syncing.clone()),
            status(group(GroupState::CatchingUp)),
            status(group(end)),
        ]
    };
    let good = Puppet::start(script(GroupState::Replicating));
    expect(&good.run(&["sync", "db", "--wait"]), 0, "the copy is up to date");
    assert_eq!(good.asked().len(), 5);
    let stopped = Puppet::start(script(GroupState::Logging));
    expect(&stopped.run(&["sync", "db", "--wait"]), 2, "the sync of db was stopped");
    let refused = Puppet::start(vec![Reply::error(ErrorCode::Refused, "db is a secondary here")]);
    expect(&refused.run(&["sync", "db", "--wait"]), 2, "db is a secondary here");
    assert_eq!(refused.asked().len(), 1);
}

/// That the group replicated was taken for the end of a sync that had not begun.
#[test]
fn sync_wait_asks_for_the_operation_where_that_has_a_name() {
    let mut begun = Reply::ok("db: sync began");
    begun.name_operation("alpha-0f-7");
    let running = operation(OperationState::Running, "db: sync began");
    let in_step = status(group(GroupState::Replicating));
    let ended = |state, message| {
        let script = vec![begun.clone(), running.clone(), in_step.clone(), operation(state, message)];
        let puppet = Puppet::start(script);
        (puppet.run(&["sync", "db", "--wait"]), puppet.asked())
    };
    let (done, asked) = ended(OperationState::Done, "db: the copy is up to date");
    expect(&done, 0, "db: the copy is up to date, after ");
    let id = || "alpha-0f-7".to_owned();
    let look = ApiRequest::Status { group: Some("db".into()) };
    assert_eq!(asked[1..], [ApiRequest::Operation { id: id() }, look, ApiRequest::Operation { id: id() }]);
    let (stopped, _) = ended(OperationState::Stopped, "db: the sync was stopped: beta is away");
    expect(&stopped, 2, "farshore: db: the sync was stopped: beta is away");
}

/// A sync that waits behind those of other groups, at each of these places in turn, then goes and ends.
fn waits_in_line(locations: &[u64]) -> Puppet {
    let location = |sync_position| status(GroupView { sync_position, ..group(GroupState::Logging) });
    let waits = locations.iter().map(|number| location(Some(*number)));
    let ends = [GroupState::Syncing, GroupState::Replicating].map(|state| status(group(state)));
    Puppet::start([Reply::ok("db: waiting for its turn")].into_iter().chain(waits).chain(ends).collect())
}

#[test]
fn sync_wait_says_where_it_stands_in_line() {
    let output = waits_in_line(&[3, 3, 1]).run(&["sync", "db", "--wait"]);
    expect(&output, 0, "db: the copy is up to date");
    let line = |location| {
        format!("db waits for its turn: other groups of this node are syncing; it is number {location} in line\n")
    };
    assert_eq!(stderr_of(&output), line(3) + &line(1), "whenever that changes");
}

/// It broke down at the first word that nobody took, with an exit code that no page names.
#[test]
fn sync_wait_goes_on_when_nobody_reads_what_it_says() {
    let puppet = waits_in_line(&[2]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("there");
    let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
    let output = command.args(["sync", "db", "--wait", "--socket"]).arg(puppet.socket()).stderr(full).output();
    expect(&output.expect("the command runs"), 0, "db: the copy is up to date");
}

#[test]
fn a_reader_that_goes_away_is_no_mistake() {
    let mut writing = Command::new(env!("CARGO_BIN_EXE_farshore"))
        .args(["config", "example"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    drop(writing.stdout.take());
    let output = writing.wait_with_output().expect("ends");
    assert_eq!(stderr_of(&output), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_watch_goes_on_until_its_reader_has_seen_enough() {
    let puppet = Puppet::start(vec![status(group(GroupState::Replicating))]);
    let mut watching = Command::new(env!("CARGO_BIN_EXE_farshore"))
        .args(["status", "--watch", "--json", "--socket"])
        .arg(puppet.socket())
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut lines = BufReader::new(watching.stdout.take().expect("a pipe")).lines();
    for _ in 0..2 {
        assert!(lines.next().expect("a line").expect("text").starts_with("{\"schema\""));
    }
    drop(lines);
    let deadline = Instant::now() + Duration::from_secs(30);
    let code = loop {
        if let Some(code) = watching.try_wait().expect("a child") {
            break code;
        }
        if Instant::now() > deadline {
            watching.kill().expect("ends");
            panic!("it went on without a reader");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(code.code(), Some(0));
}

#[test]
fn init_makes_a_configuration_that_passes_its_own_check() {
    let dir = tempfile::tempdir().expect("dir");
    let (file, secret) = (dir.path().join("farshore.toml"), dir.path().join("secret"));
    let path = |path: &Path| path.to_str().expect("text").to_owned();
    let printed = farshore(&["init", "--near", "127.0.0.1:/dev/sdb", "--far", "127.0.0.2:/dev/sdb"]);
    expect(&printed, 0, "[groups.main.volumes.data]");
    std::fs::write(dir.path().join("printed.toml"), said(&printed)).expect("write");
    expect(&farshore(&["config", "check", &path(&dir.path().join("printed.toml"))]), 0, "sound");

    let init = |near: &str| {
        farshore(&[
            "init",
            "--near",
            near,
            "--far",
            "west=10.0.0.2:/dev/sdb",
            "--out",
            &path(&file),
            "--tls-directory",
            &path(&dir.path().join("tls")),
        ])
    };
    expect(&init("east=10.0.0.1:/dev/sdb"), 0, "farshore cert node west");
    expect(&farshore(&["config", "check", &path(&file)]), 0, "sound");
    expect(&init("east=10.0.0.1:/dev/sdb"), 2, "exists already");
    let words = ["init", "--near", "127.0.0.1:/a", "--far", "127.0.0.2:/b", "--create-secret", "--secret-file"];
    expect(&farshore(&[&words[..], &[&path(&secret)]].concat()), 0, "secret_file");
    assert_eq!(std::fs::metadata(&secret).expect("there").mode() & 0o7777, 0o600);
    // A file that is there already: nothing is half done.
    let other = dir.path().join("other-secret");
    let (second, taken) = (path(&other), path(&file));
    let again = [&words[..], &[&second, "--out", &taken]].concat();
    expect(&farshore(&again), 2, "exists already");
    assert!(!other.exists());
    let needless = ["init", "--near", "10.0.0.1:/a", "--far", "10.0.0.2:/b", "--create-secret"];
    expect(&farshore(&needless), 3, "know each other by certificates");
    expect(&farshore(&["init", "--near", "a=10.0.0.1:/x", "--far", "a=10.0.0.1:/x"]), 3, "both sides are called");
}

#[test]
fn the_example_passes_its_own_check() {
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("farshore.toml");
    std::fs::write(&file, farshore(&["config", "example"]).stdout).expect("write");
    let file = file.to_str().expect("text");
    expect(&farshore(&["config", "check", file]), 0, "sound");
    expect(&farshore(&["config", "check", "--config", file]), 0, "sound");
    expect(&farshore(&["config", "check", file, "--config", file]), 3, "cannot be used with");
}

#[test]
fn serve_refuses_before_it_touches_anything() {
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("farshore.toml");
    let text = "cluster = \"c\"\nsecret_file = \"secret\"\n[nodes.alpha]\naddress = \"127.0.0.1:1\"\nstate = \"state\"\n\
                [nodes.beta]\naddress = \"127.0.0.2:1\"\nstate = \"/b\"\n[groups.db]\nprimary = \"alpha\"\n\
                secondary = \"beta\"\n[groups.db.volumes.v]\nalpha = \"disk\"\nbeta = \"/a\"\n";
    std::fs::write(&file, text).expect("write");
    let serve = |node: &str| farshore(&["serve", "--config", file.to_str().expect("text"), "--node", node]);
    let output = serve("alpha");
    expect(&output, 2, "secret does not exist");
    assert!(stderr_of(&output).contains("disk does not exist"), "both problems at once: {}", stderr_of(&output));
    assert!(!dir.path().join("state").exists());
    std::fs::write(dir.path().join("disk"), [0; 512]).expect("write");
    settings::create_secret(&dir.path().join("secret")).expect("secret");
    std::fs::create_dir(dir.path().join("state")).expect("mkdir");
    let overrides = dir.path().join("state/overrides.toml");
    std::fs::write(&overrides, "# farshore overrides 1\n[db]\nmode = \"fast\"\n# end\n").expect("write");
    expect(&serve("alpha"), 2, "overrides.toml:3:8: mode: \"fast\" is not a mode");
    let check = || farshore(&["config", "check", "--config", file.to_str().expect("text"), "--node", "alpha"]);
    for (name, command) in [("overrides.toml", "farshore set"), ("link.toml", "farshore link set")] {
        std::fs::write(dir.path().join("state").join(name), "").expect("emptied");
        let sentence =
            format!("{name}: it is empty, and what '{command}' changed is not known. Restore the file; or remove it");
        expect(&serve("alpha"), 2, &sentence);
        expect(&check(), 2, &sentence);
        std::fs::remove_file(dir.path().join("state").join(name)).expect("removed");
    }
    // A pipe is not waited for.
    let owner = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &overrides, rustix::fs::FileType::Fifo, owner, 0).expect("a pipe");
    expect(&serve("alpha"), 2, "overrides.toml: it is empty");
    std::fs::remove_file(&overrides).expect("removed");
    expect(&serve("gamma"), 2, "choose one of \"alpha\" and \"beta\"");
}

#[test]
fn inspect_names_a_file_and_never_writes() {
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("journal");
    std::fs::write(&file, b"FSHBATCH rest").expect("write");
    let inspect = |name: &Path| farshore(&["inspect", name.to_str().expect("text")]);
    let before = std::fs::metadata(&file).expect("there").modified().expect("time");
    assert!(said(&inspect(&file)).contains("journal of a group"));
    assert_eq!(std::fs::metadata(&file).expect("there").modified().expect("time"), before);
    expect(&inspect(dir.path()), 2, "not a plain file");
    expect(&inspect(&dir.path().join("none")), 2, "cannot be read");
    std::fs::write(&file, b"something else").expect("write");
    expect(&inspect(&file), 2, "not one of Farshore's files");
}
