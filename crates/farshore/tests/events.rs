//! Events of real pairs: who gave which command, how long a link was lost, what a crash leaves of the log, and what hooks get.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{DEADLINE, GROUP, Pair, PairPlan, Side, schema};

/// How long the line of a test is cut after the nodes have noticed.
const OUTAGE_MIN: Duration = Duration::from_millis(1500);

/// All events of a node that the command shows.
fn events(pair: &Pair, node: Side, more: &[&str]) -> Vec<Value> {
    let words = [&["events", "--json", "--local"], more].concat();
    let text = pair.done(node, &words);
    let one = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let events: Vec<Value> = text.lines().map(one).collect();
    events.iter().for_each(schema::seen);
    events
}

fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["kind"] == kind).collect()
}

/// Within a run numbers follow each other, and each run begins with a higher one.
#[track_caller]
fn numbers_go_on(events: &[Value]) {
    for two in events.windows(2) {
        let [before, after] = [&two[0], &two[1]].map(|event| event["number"].as_u64().expect("a number"));
        let goes_on = if two[1]["kind"] == "daemon-started" { after > before } else { after == before + 1 };
        assert!(goes_on, "{two:?}");
    }
}

/// Waits until a node has such an event; the first one.
fn until_event(pair: &mut Pair, node: Side, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    let mut found = None;
    pair.until(&format!("there is an event: {what}"), |pair| {
        found = events(pair, node, &[]).into_iter().find(|event| is_it(event));
        found.is_some()
    });
    found.expect("just found")
}

/// Adds hooks to the configuration, before a node is served.
fn add_hooks(pair: &Pair, hooks: &str) {
    pair.edit_config("[nodes.near]\n", &format!("{hooks}\n[nodes.near]\n"));
}

/// A program of the pair's directory.
fn program(pair: &Pair, name: &str, script: &str) -> String {
    let path = pair.path(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
    path.display().to_string()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// docs/book/events.md has the program's tables. `BLESS=1` writes them anew.
#[test]
fn the_page_of_events_has_the_programs_tables() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/events.md");
    let mut page = fs::read_to_string(&file).expect("docs/book/events.md");
    let before = page.clone();
    for (head, table) in
        [("| Kind |", settings::events::manual_kinds()), ("| Field |", settings::events::manual_fields())]
    {
        let from = page.find(head).expect("a table of that head");
        let to = from + page[from..].find("\n\n").map_or(page.len() - from, |end| end + 1);
        page.replace_range(from..to, &table);
    }
    if std::env::var_os("BLESS").is_some() {
        fs::write(file, page).expect("written");
    } else {
        assert!(page == before, "docs/book/events.md differs: run BLESS=1 cargo nextest run -p farshore events");
    }
}

#[test]
fn commands_are_recorded_with_who_gave_them() {
    let pair = Pair::replicating(&PairPlan::DEFAULT);
    pair.done(Side::Near, &["set", GROUP, "mode=sync", "policy=hold"]);
    let (code, said) = pair.output_of(Side::Near, &["promote", GROUP]);
    assert!(code == 0 && said.contains("already primary; nothing to do"), "{said}");
    let (code, said) = pair.output_of(Side::Near, &["mark", "drop", GROUP, "before-sync-1", "--on", "near"]);
    assert_eq!(code, 2, "a primary keeps none: {said}");
    let all = events(&pair, Side::Near, &[]);
    numbers_go_on(&all);
    assert!(all.iter().all(|event| event["schema"] == "farshore-event/1" && event["node"] == "near"));
    let commands = of_kind(&all, "command");
    let set = commands.iter().find(|event| event["command"] == "set").expect("it was recorded");
    assert_eq!(
        (&set["arguments"], &set["result"], &set["group"]),
        (&json!("mode=sync policy=hold"), &json!("done"), &json!(GROUP))
    );
    assert_eq!(set["uid"], rustix::process::geteuid().as_raw(), "{set}");
    assert!(set["pid"].as_u64().is_some_and(|pid| pid > 1) && set["program"] == "farshore", "{set}");
    let repeated = commands.iter().find(|event| event["command"] == "promote").expect("also where nothing changes");
    assert_eq!(repeated["result"], "unchanged", "{repeated}");
    assert!(repeated["operation"].as_str().is_some_and(|id| id.starts_with("near-")), "{repeated}");
    let refused = commands.iter().find(|event| event["command"] == "mark drop").expect("refused ones too");
    assert_eq!(refused["result"], "refused", "{refused}");
    let mode =
        of_kind(&all, "mode").into_iter().find(|event| event["to"] == "sync").expect("what was set has an event");
    assert_eq!((&mode["from"], &mode["reason"]), (&json!("async"), &json!("an operator set it")));
    assert!(of_kind(&all, "policy").iter().any(|event| event["from"] == "degrade" && event["to"] == "hold"));
    let ended = of_kind(&all, "sync-ended");
    assert!(ended[0]["duration_ms"].is_u64() && ended[0]["sent_bytes"].is_u64(), "{ended:?}");
    assert!(of_kind(&all, "state").iter().any(|event| event["to"] == "replicating"));
    let text = pair.done(Side::Near, &["events", GROUP, "--since", "1h"]);
    assert!(text.contains("  near  g     command") || text.contains("  near  g  command"), "{text}");
    assert!(!text.contains("daemon-started"), "that is of no group: {text}");
    let (code, said) = pair.output_of(Side::Near, &["events", "--since", "2099-01-01T00:00:00Z"]);
    assert!(code == 0 && said.contains("no events since"), "{said}");
}

#[test]
fn a_link_that_is_lost_and_returns_tells_how_long() {
    let plan = PairPlan {
        head: "[link]\ntimeout = \"1s\"\n",
        group: "rpo.warn = \"1s\"\nqueue.items = 1000\n",
        ..PairPlan::DEFAULT
    };
    let mut pair = Pair::new(&plan);
    pair.lay_relay();
    pair.first_sync();
    pair.wait_for_rest(Side::Near);
    pair.until("the first copy's lag is over", |pair| {
        let all = events(pair, Side::Near, &[]);
        of_kind(&all, "rpo-missed").len() == of_kind(&all, "rpo-met").len()
    });
    pair.relay().cut();
    let lost = until_event(&mut pair, Side::Near, "the link is lost", |event| event["kind"] == "link-lost");
    assert!(lost["peer"] == "far" && lost["connected_ms"].as_u64().is_some_and(|ms| ms > 0), "{lost}");
    pair.qemu_io(Side::Near, "data", &["write -P 7 0 64k"]);
    let missed = until_event(&mut pair, Side::Near, "the lag is too high", |event| {
        event["kind"] == "rpo-missed" && event["number"].as_u64() > lost["number"].as_u64()
    });
    assert!(missed["level"] == "warn" && missed["lag_seconds"].as_f64().is_some_and(|lag| lag > 1.0), "{missed}");
    // So long at least, whatever came of it meanwhile.
    std::thread::sleep(OUTAGE_MIN);
    pair.relay().reset();
    pair.relay().restore();
    let back = until_event(&mut pair, Side::Near, "the link is back", |event| !event["outage_ms"].is_null());
    let [lost_at, back_at] = [&lost, &back].map(|event| event["time_unix_ms"].as_u64().expect("a time"));
    let outage = back["outage_ms"].as_u64().expect("a number");
    let least = OUTAGE_MIN.as_millis() as u64;
    assert!(outage.abs_diff(back_at - lost_at) < 1000 && outage >= least, "{lost} {back}");
    let met = until_event(&mut pair, Side::Near, "the lag is right again", |event| {
        event["kind"] == "rpo-met" && event["number"].as_u64() > missed["number"].as_u64()
    });
    assert!(met["missed_ms"].as_u64().is_some_and(|ms| ms >= least / 2), "{met}");
    rpo_is_kept_as_the_events_say(&pair);
}

/// The secondary's command asks the primary for its events.
fn rpo_is_kept_as_the_events_say(pair: &Pair) {
    for side in [Side::Near, Side::Far] {
        let told: Value =
            serde_json::from_str(&pair.done(side, &["rpo", GROUP, "--since", "1h", "--json"])).expect("JSON");
        schema::seen(&told);
        let group = &told["groups"][0];
        let warn = &group["levels"][0];
        let [watched, missed, share] =
            ["watched_s", "missed_s", "met_share"].map(|key| warn[key].as_f64().expect("a number"));
        assert!(missed >= 1.0 && missed < watched && watched < 3600.0, "{told}");
        assert!((1.0 - missed / watched - share).abs() < 1e-6, "{told}");
        let times = group["missed"].as_array().expect("a list");
        assert!(times.iter().any(|miss| miss["node"] == "near" && miss["reason"].is_null()), "{told}");
        assert_eq!(warn["times"], times.len(), "{told}");
        let text = pair.done(side, &["rpo", GROUP]);
        assert!(text.contains("rpo.warn   1.0 s") && text.contains("met again"), "{text}");
    }
    let (code, refused) = pair.output_of(Side::Near, &["rpo", "nobody"]);
    assert_eq!(code, 2, "{refused}");
    assert!(refused.contains("nobody"), "{refused}");
}

/// However a daemon ends, what it had told is there after it, and numbers go on.
#[test]
fn a_daemon_that_is_killed_leaves_a_readable_log() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    for round in 0..5 {
        let socket = pair.path("near/state/control.sock");
        let (stop, stopped) = mpsc::channel::<()>();
        // Commands without end, so that some of them are being written when the daemon dies.
        let busy = std::thread::spawn(move || {
            for at in 0.. {
                let request =
                    json!({ "request": "set", "group": GROUP, "settings": { "hold": format!("{}s", 30 + at % 2) } });
                let Ok(mut stream) = std::os::unix::net::UnixStream::connect(&socket) else { return };
                if writeln!(stream, "{request}").is_err() || stopped.try_recv().is_ok() {
                    return;
                }
                let _ = BufReader::new(stream).read_line(&mut String::new());
            }
        });
        let begun = events(&pair, Side::Near, &[]).len();
        pair.until("some commands were recorded", |pair| events(pair, Side::Near, &[]).len() > begun + 5 + round);
        pair.kill(Side::Near);
        let _ = stop.send(());
        busy.join().expect("it ends with the daemon");
        pair.serve(Side::Near);
        let all = events(&pair, Side::Near, &[]);
        numbers_go_on(&all);
    }
    let all = events(&pair, Side::Near, &[]);
    let starts: Vec<&Value> = of_kind(&all, "daemon-started").iter().map(|event| &event["clean"]).collect();
    assert_eq!(starts, [&Value::Null, &json!(false), &json!(false), &json!(false), &json!(false), &json!(false)]);
    // Half a line, as a crash of the machine leaves it.
    pair.stop(Side::Near);
    let file = pair.path("near/state/events.jsonl");
    let whole = fs::read(&file).expect("the log");
    fs::write(&file, &whole[..whole.len() - 20]).expect("torn");
    pair.serve(Side::Near);
    assert!(pair.log(Side::Near).contains("was torn by a crash; it was taken away"), "{}", pair.log(Side::Near));
    assert!(events(&pair, Side::Near, &[]).len() > all.len());
}

#[test]
fn a_log_keeps_its_bound() {
    let plan = PairPlan { node: "events.limit = \"64KiB\"\n", ..PairPlan::DEFAULT };
    let mut pair = Pair::new(&plan);
    pair.serve(Side::Near);
    for round in 0..200 {
        let hold = format!("{}s", 30 + round % 2);
        let reply = pair.ask(Side::Near, &json!({ "request": "set", "group": GROUP, "settings": { "hold": hold } }));
        assert_eq!(reply["reply"], "ok", "{reply}");
    }
    let size = |name: &str| fs::metadata(pair.path("near/state").join(name)).map_or(0, |found| found.len());
    assert!(size("events.jsonl") + size("events.old.jsonl") <= 64 << 10);
    assert!(size("events.old.jsonl") > 16 << 10, "it was full at least once");
    let all = events(&pair, Side::Near, &[]);
    assert!(all.len() > 50 && of_kind(&all, "daemon-started").is_empty(), "the oldest made room");
    pair.until("the newest is there", |pair| {
        let all = events(pair, Side::Near, &[]);
        of_kind(&all, "command").last().is_some_and(|newest| newest["arguments"] == "hold=31s")
    });
}

#[test]
fn a_hook_gets_events_also_those_it_missed() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    let got = pair.path("got");
    let script = program(
        &pair,
        "hook",
        &format!("cat >> {}\necho \"$FARSHORE_EVENT $FARSHORE_GROUP\" >> {}.env", got.display(), got.display()),
    );
    add_hooks(
        &pair,
        &format!(
            "[[hook]]\nname = \"all\"\nevents = [\"command\", \"daemon-started\", \"daemon-stopped\"]\ncommand = [\"{script}\"]\n"
        ),
    );
    pair.serve(Side::Near);
    pair.done(Side::Near, &["set", GROUP, "hold=40s"]);
    pair.until("the hook got the command", |_| lines(&got).iter().any(|event| event["command"] == "set"));
    pair.until("it found its variables", |pair| {
        fs::read_to_string(pair.path("got.env")).is_ok_and(|text| text.contains("command g\n"))
    });
    let set = lines(&got).into_iter().find(|event| event["command"] == "set").expect("just seen");
    assert_eq!(
        (&set["schema"], &set["node"], &set["group"]),
        (&json!("farshore-event/1"), &json!("near"), &json!(GROUP))
    );
    assert_eq!(set["arguments"], "hold=40s");
    pair.stop(Side::Near);
    pair.serve(Side::Near);
    // The last event of a run comes after everything else, and its hook is ended with the daemon.
    let kinds = |got: &Path| lines(got).iter().map(|event| event["kind"].to_string()).collect::<Vec<_>>();
    pair.until("the hook got what it missed", |_| kinds(&got).contains(&"\"daemon-stopped\"".to_owned()));
    pair.until("the hook got the start", |_| {
        kinds(&got).iter().filter(|kind| *kind == "\"daemon-started\"").count() == 2
    });
    let mut numbers: Vec<u64> = lines(&got).iter().filter_map(|event| event["number"].as_u64()).collect();
    numbers.dedup();
    assert!(numbers.is_sorted(), "in the order of the log: {numbers:?}");
}

/// What hangs is ended with its children and reported, what says no is tried again, and neither keeps another hook or the mirror.
#[test]
fn hooks_that_hang_or_fail_are_reported_and_hold_nobody_up() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    let (good, tries) = (pair.path("good"), pair.path("tries"));
    let hangs = program(&pair, "hangs", &format!("sleep 1000 &\necho $! >> {}\nwait", pair.path("pids").display()));
    let fails = program(&pair, "fails", &format!("echo x >> {}\nexit 7", tries.display()));
    let works = program(&pair, "works", &format!("cat >> {}", good.display()));
    let hook = |name: &str, program: &str, more: &str| {
        format!("[[hook]]\nname = \"{name}\"\ncommand = [\"{program}\"]\ntimeout = \"500ms\"\n{more}\n")
    };
    let commands = "events = [\"command\"]\n";
    let hooks = [
        hook("hangs", &hangs, &format!("{commands}retries = 0")),
        hook("fails", &fails, &format!("{commands}retries = 1")),
        hook("missing", "/no/such/program", "events = \"*\"\nretries = 0"),
        hook("works", &works, ""),
    ];
    add_hooks(&pair, &hooks.concat());
    pair.serve(Side::Near);
    assert!(pair.log(Side::Near).contains("/no/such/program does not exist"), "{}", pair.log(Side::Near));
    let asked = Instant::now();
    pair.done(Side::Near, &["set", GROUP, "hold=40s"]);
    assert!(asked.elapsed() < DEADLINE / 2);
    let failed = |pair: &mut Pair, name: &str| {
        until_event(pair, Side::Near, &format!("{name} failed"), |event| {
            event["kind"] == "hook-failed" && event["hook"] == name
        })
    };
    let hung = failed(&mut pair, "hangs");
    assert!(hung["reason"].to_string().contains("did not end within 500ms and was killed"), "{hung}");
    assert!(hung["event_kind"] == "command" && hung["attempts"] == 1, "{hung}");
    let refused = failed(&mut pair, "fails");
    assert!(refused["reason"].to_string().contains("exit code 7") && refused["attempts"] == 2, "{refused}");
    assert_eq!(fs::read_to_string(&tries).expect("it ran").lines().count(), 2);
    assert!(failed(&mut pair, "missing")["reason"].to_string().contains("it was not started"));
    pair.until("the good hook got the command", |_| lines(&good).iter().any(|event| event["kind"] == "command"));
    assert!(lines(&good).iter().all(|event| event["kind"] != "hook-failed"), "no hook is called for a hook");
    let pids = fs::read_to_string(pair.path("pids")).expect("it ran");
    pair.until("the children are gone", |_| {
        let lives = |pid: &str| {
            let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !state.is_empty() && !state.contains(") Z ")
        };
        !pids.lines().any(lives)
    });
    let told = of_kind(&events(&pair, Side::Near, &[]), "hook-failed").len();
    std::thread::sleep(Duration::from_millis(1500));
    let all = events(&pair, Side::Near, &[]);
    let of_hooks = all.iter().filter(|event| event["kind"] == "hook-failed" && event["event_kind"] == "hook-failed");
    assert_eq!(of_hooks.count(), 0, "a failure is told to no hook, {told} before");
    assert!(pair.stop(Side::Near).success());
}

/// Whoever may write to a hook's program would be the daemon's user. What is mended is run again.
#[test]
fn a_program_that_others_may_change_is_not_run_and_the_mirror_stays_up() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    let got = pair.path("got");
    let hook = program(&pair, "hook", &format!("cat >> {}", got.display()));
    let set_mode = |mode| fs::set_permissions(&hook, fs::Permissions::from_mode(mode)).expect("its mode");
    set_mode(0o777);
    add_hooks(
        &pair,
        &format!("[[hook]]\nname = \"open\"\nevents = [\"command\"]\nretries = 0\ncommand = [\"{hook}\"]\n"),
    );
    pair.serve(Side::Near);
    pair.done(Side::Near, &["set", GROUP, "hold=40s"]);
    let failed = until_event(&mut pair, Side::Near, "it is not run", |event| event["kind"] == "hook-failed");
    assert!(failed["reason"].to_string().contains("chmod go-w") && !got.exists(), "{failed}");
    set_mode(0o755);
    pair.done(Side::Near, &["set", GROUP, "hold=41s"]);
    pair.until("it is run again", |_| lines(&got).iter().any(|event| event["arguments"] == "hold=41s"));
}

/// A server of the test's own: the first request is refused, the second one taken.
#[test]
fn a_webhook_is_posted_to_and_tried_again() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    add_hooks(
        &pair,
        &format!(
            "[[hook]]\nname = \"web\"\nevents = [\"command\"]\nurl = \"http://{address}/in?a=1\"\ntimeout = \"5s\"\n"
        ),
    );
    let (heard, hear) = mpsc::channel();
    std::thread::spawn(move || {
        for answer in ["503 Service Unavailable", "204 No Content"] {
            let Ok((stream, _)) = listener.accept() else { return };
            let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|length| length > 0) {}
            let length =
                head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            reader.read_exact(&mut body).expect("the whole event");
            let _ = (&stream).write_all(format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n").as_bytes());
            let _ = heard.send((head, body));
        }
    });
    pair.serve(Side::Near);
    pair.done(Side::Near, &["set", GROUP, "hold=40s"]);
    for attempt in 1..=2 {
        let (head, body) =
            hear.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("attempt {attempt}:\n{}", pair.log(Side::Near)));
        assert!(head.starts_with("POST /in?a=1 HTTP/1.1\r\n"), "{head}");
        assert!(head.to_ascii_lowercase().contains("content-type: application/json"), "{head}");
        let event: Value = serde_json::from_slice(&body).expect("an event");
        assert_eq!((&event["kind"], &event["arguments"]), (&json!("command"), &json!("hold=40s")));
    }
    let all = events(&pair, Side::Near, &[]);
    assert!(of_kind(&all, "hook-failed").is_empty(), "the second attempt was taken");
    // Nobody listens any more.
    pair.edit_config("timeout = \"5s\"", "retries = 0");
    pair.stop(Side::Near);
    pair.serve(Side::Near);
    pair.done(Side::Near, &["set", GROUP, "hold=41s"]);
    let failed = until_event(&mut pair, Side::Near, "nobody takes it", |event| event["kind"] == "hook-failed");
    assert!(failed["reason"].to_string().contains("cannot be reached"), "{failed}");
}

/// A program whose lines are read as they come, ended with the test.
struct Follower {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Follower {
    fn start(mut command: Command) -> Follower {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || out.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        Follower { child, lines }
    }

    /// Reads on to an event of that kind.
    fn until(&self, kind: &str, seen: &mut Vec<u64>) -> Value {
        loop {
            let line = self.lines.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("no {kind} came behind {seen:?}"));
            let event: Value = serde_json::from_str(&line).expect("one event per line");
            seen.push(event["number"].as_u64().expect("a number"));
            if event["kind"] == kind {
                return event;
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn following_goes_on_over_a_restart() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    pair.serve(Side::Near);
    let follower = Follower::start(pair.command(Side::Near, &["events", "--follow", "--since", "1h", "--json"]));
    let mut seen = Vec::new();
    follower.until("daemon-started", &mut seen);
    pair.done(Side::Near, &["set", GROUP, "hold=40s"]);
    assert_eq!(follower.until("command", &mut seen)["arguments"], "hold=40s");
    pair.stop(Side::Near);
    std::thread::sleep(Duration::from_secs(2));
    pair.serve(Side::Near);
    follower.until("daemon-stopped", &mut seen);
    assert_eq!(follower.until("daemon-started", &mut seen)["clean"], true);
    pair.kill(Side::Near);
    pair.serve(Side::Near);
    assert_eq!(follower.until("daemon-started", &mut seen)["clean"], false);
    let steps = seen.windows(2).filter(|two| two[1] != two[0] + 1).count();
    assert!(seen.windows(2).all(|two| two[0] < two[1]) && steps == 2, "each once, and a step at each start: {seen:?}");
}

#[test]
fn the_events_of_both_nodes_are_one_list_and_a_peer_that_is_silent_is_named() {
    let mut pair = Pair::replicating(&PairPlan { volumes: &["data"], ..PairPlan::DEFAULT });
    assert!(pair.run(Side::Far, &["logging", GROUP]).status.success(), "it is carried to the primary");
    // It is answered before its line is there.
    let mut text = String::new();
    let is_told = |text: &str| text.matches(r#""command":"logging""#).count() == 2;
    pair.until("both nodes tell of the command", |pair| {
        let output = pair.run(Side::Near, &["events", "--json"]);
        assert!(output.status.success(), "{output:?}");
        text = String::from_utf8_lossy(&output.stdout).into_owned();
        is_told(&text)
    });
    let events: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let nodes: std::collections::BTreeSet<&str> = events.iter().filter_map(|event| event["node"].as_str()).collect();
    assert_eq!(nodes.len(), 2, "{text}");
    let times: Vec<u64> = events.iter().filter_map(|event| event["time_unix_ms"].as_u64()).collect();
    assert!(times.is_sorted(), "{text}");
    let logging = |node| {
        let of_node =
            |event: &&Value| event["kind"] == "command" && event["command"] == "logging" && event["node"] == node;
        events.iter().find(of_node).unwrap_or_else(|| panic!("{node} took it down: {text}"))
    };
    let typed = logging("far");
    assert_eq!(
        (&typed["to_node"], &typed["result"], &typed["group"]),
        (&json!("near"), &json!("done"), &json!(GROUP)),
        "{typed}"
    );
    assert_eq!(typed["uid"], rustix::process::geteuid().as_raw(), "{typed}");
    let command = logging("near");
    assert!(
        command["from_node"].is_string()
            && command["text"].as_str().is_some_and(|text| text.contains("an operator on node"))
    );
    let local = pair.run(Side::Near, &["events", "--json", "--local"]);
    assert!(local.stdout.len() < text.len());
    pair.kill(Side::Far);
    let (code, said) = pair.output_of(Side::Near, &["logging", GROUP, "--on", "far"]);
    assert_eq!(code, 2, "{said}");
    until_event(&mut pair, Side::Near, "the order that reached nobody", |event| {
        event["result"] == "not-reached" && event["to_node"] == "far"
    });
    let alone = pair.run(Side::Near, &["events"]);
    assert_eq!(alone.status.code(), Some(1));
    let said = String::from_utf8_lossy(&alone.stderr);
    assert!(said.contains("are missing here"), "{said}");
}
