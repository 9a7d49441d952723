//! Commands of the configuration around changes of role, on real pairs: when they run, what they find, and what comes of it when they fail,
//! hang or ask the daemon that waits for them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::damage::store_of_group;
use crate::common::{Background, DEADLINE, GROUP, Pair, PairPlan, Side, is_installed, must_skip, must_skip_stores};

/// A pair in step whose group has these lines in its table. The program of each hook is a file `hook` in the pair's directory, which writes a
/// line into `ran` first.
pub(crate) fn pair(lines: &str, script: &str) -> Pair {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    with_hooks(&pair, lines, script);
    pair.first_sync();
    pair
}

/// Into the configuration of both nodes, before either is served; where the hook writes its lines.
pub(crate) fn with_hooks(pair: &Pair, lines: &str, script: &str) -> PathBuf {
    let (hook, ran) = (pair.path("hook"), ran(pair));
    let begin = format!(
        "#!/bin/sh\necho \"$FARSHORE_HOOK $FARSHORE_NODE $FARSHORE_PEER $FARSHORE_GROUP $FARSHORE_FORCED\" >> {}\n",
        ran.display()
    );
    fs::write(&hook, format!("{begin}{script}\n")).expect("written");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("its mode");
    let lines = lines.replace("HOOK", &format!("[\"{}\"]", hook.display()));
    pair.edit_config("journal = \"16MiB\"\n", &format!("{lines}\njournal = \"16MiB\"\n"));
    ran
}

pub(crate) fn ran(pair: &Pair) -> PathBuf {
    pair.path("ran")
}

/// What ran since it was last asked.
fn lines_of(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let _ = fs::remove_file(path);
    text.lines().map(str::to_owned).collect()
}

/// A command with `--json`: its exit code, and its one answer.
fn answer(pair: &Pair, node: Side, words: &[&str]) -> (i32, Value) {
    let output = pair.run(node, &[words, &["--json"]].concat());
    let object: Value = serde_json::from_slice(&output.stdout).expect("it answers as JSON");
    (output.status.code().expect("it ends"), object["answers"][0].clone())
}

fn events_of_hooks(pair: &Pair, node: Side) -> Vec<Value> {
    let text = pair.done(node, &["events", "--json", "--local"]);
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("an event"));
    events.filter(|event| event["kind"] == "role-hook").collect()
}

fn is_secondary(pair: &Pair, node: Side) -> bool {
    pair.status(node)["role"] == "secondary"
}

const ALL: &str =
    "hooks.before_promote = HOOK\nhooks.after_promote = HOOK\nhooks.before_demote = HOOK\nhooks.after_demote = HOOK";

/// A hook that runs until the test writes the file `go`.
const WAITS: &str = "while ! [ -e \"$(dirname $0)/go\" ]; do sleep 0.05; done";

/// Around each change of role once, in order, on the node that changes; and not where nothing changes.
#[test]
fn commands_run_around_each_change_and_around_nothing_else() {
    let mut pair = pair(ALL, "exit 0");
    let ran = ran(&pair);
    // Refused by the peer's role; the goal is reached already.
    let (code, refused) = answer(&pair, Side::Far, &["promote", GROUP]);
    assert!(code == 2 && refused["refusal"]["code"] == "peer-is-primary", "{refused}");
    pair.done(Side::Near, &["promote", GROUP]);
    pair.done(Side::Far, &["demote", GROUP]);
    assert_eq!(lines_of(&ran), [""; 0]);
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["demote", GROUP]);
    assert_eq!(lines_of(&ran), ["before_demote near far g no", "after_demote near far g no"]);
    // This one handed over, and has to be told so.
    let (code, refused) = answer(&pair, Side::Near, &["promote", GROUP]);
    assert!(code == 2 && refused["refusal"]["code"] == "handed-over", "{refused}");
    assert_eq!(lines_of(&ran), [""; 0]);
    pair.until("the copy has heard of the demotion", |pair| pair.output_of(Side::Far, &["promote", GROUP]).0 < 2);
    assert_eq!(lines_of(&ran), ["before_promote far near g no", "after_promote far near g no"]);
    pair.until("both are told", |pair| events_of_hooks(pair, Side::Far).len() == 2);
    let told = events_of_hooks(&pair, Side::Far);
    assert!(told.iter().all(|event| event["result"] == "done"), "{told:?}");
    pair.stop_both();
}

/// On both nodes what may say no runs before a request is held, and what comes after runs where the role has changed.
#[test]
fn a_switchover_runs_the_commands_of_both_nodes() {
    let mut pair = pair(ALL, "[ \"$FARSHORE_HOOK\" != \"$(cat \"$(dirname \"$0\")/fails\")\" ]");
    let (ran, fails) = (ran(&pair), pair.path("fails"));
    let (promote, demote) = ("before_promote far near g no", "before_demote near far g no");
    for (which, runs) in [("before_promote", &[promote][..]), ("before_demote", &[promote, demote])] {
        fs::write(&fails, which).expect("written");
        let (code, refused) = answer(&pair, Side::Near, &["switchover", GROUP, "--to", "far"]);
        assert!(code == 2 && refused["refusal"]["code"] == "hook-failed", "{refused}");
        assert_eq!(lines_of(&ran), runs);
        assert!(is_secondary(&pair, Side::Far) && !is_secondary(&pair, Side::Near));
    }
    fs::write(&fails, "none").expect("written");
    let (code, done) = answer(&pair, Side::Far, &["switchover", GROUP, "--to", "far"]);
    assert_eq!(code, 0, "{done}");
    let mut lines = Vec::new();
    pair.until("both have run what comes after", |_| {
        lines.extend(lines_of(&ran));
        lines.len() >= 4
    });
    lines[2..].sort();
    assert_eq!(lines, [promote, demote, "after_demote near far g no", "after_promote far near g no"]);
    pair.wait_for(Side::Far, "replicating");
    let (code, done) = answer(&pair, Side::Near, &["failback", GROUP, "--skip-hooks"]);
    assert_eq!(code, 0, "{done}");
    pair.wait_for(Side::Near, "replicating");
    assert_eq!(lines_of(&ran), [""; 0]);
    pair.stop_both();
}

/// A fence that says no keeps the node what it is; who knows better leaves the fence out.
#[test]
fn a_fence_that_says_no_has_the_promotion_refused() {
    let mut pair = pair("hooks.before_promote = HOOK", "exit 4");
    let ran = ran(&pair);
    pair.kill(Side::Near);
    pair.until("the copy knows", |pair| pair.status(Side::Far)["peers"][0]["link"] == "disconnected");
    // Without the peer it needs force: nothing is fenced for that.
    let (code, refused) = answer(&pair, Side::Far, &["promote", GROUP]);
    assert!(code == 2 && refused["refusal"]["code"] == "peer-away", "{refused}");
    assert_eq!(lines_of(&ran), [""; 0]);
    let (code, refused) = answer(&pair, Side::Far, &["promote", GROUP, "--force"]);
    let refusal = serde_json::json!({ "code": "hook-failed", "retry": "later" });
    assert!(code == 2 && refused["refusal"] == refusal, "{refused}");
    let says = refused["message"].to_string();
    for part in ["before_promote of the configuration failed", "it ended with exit code 4", "--skip-hooks"] {
        assert!(says.contains(part), "{says}");
    }
    assert!(is_secondary(&pair, Side::Far));
    assert_eq!(lines_of(&ran), ["before_promote far near g yes"]);
    let told = events_of_hooks(&pair, Side::Far);
    assert!(told.len() == 1 && told[0]["result"] == "failed" && told[0]["hook"] == "before_promote", "{told:?}");
    let (code, said) = pair.output_of(Side::Far, &["promote", GROUP, "--force", "--skip-hooks"]);
    assert_eq!(code, 1, "{said}");
    assert!(!is_secondary(&pair, Side::Far));
    assert_eq!(lines_of(&ran), [""; 0]);
}

// proves: P6
/// The primary's group has failed, and its daemon goes on: the copy shows that as its own state, and was not promoted for it.
#[test]
fn a_fence_runs_for_a_primary_that_has_failed() {
    let test = "a_fence_runs_for_a_primary_that_has_failed";
    if must_skip_stores(test) {
        return;
    }
    let mut pair = Pair::new(&PairPlan { forgets: true, ..PairPlan::DEFAULT });
    let ran = with_hooks(&pair, "hooks.before_promote = HOOK", "exit 0");
    pair.first_sync();
    pair.until("the group of the primary has failed", |pair| {
        pair.fail_call_after(Side::Near, 0, rustix::io::Errno::IO.raw_os_error());
        let _ = pair.try_qemu_io(Side::Near, "data", &["write -P 5 0 64k", "flush"]);
        let _ = pair.fail_no_call(Side::Near);
        pair.status(Side::Near)["state"] == "failed"
    });
    pair.until("the copy has heard it", |pair| pair.status(Side::Far)["state"] == "failed");
    let (code, done) = answer(&pair, Side::Far, &["promote", GROUP, "--force"]);
    assert!(code == 1 && !is_secondary(&pair, Side::Far), "{code}: {done}");
    assert_eq!(lines_of(&ran), ["before_promote far near g yes"]);
}

/// It asked the daemon that waited for it, and then hung: it was answered, and killed with what it had started.
#[test]
fn a_command_that_asks_its_daemon_is_answered_and_one_that_hangs_is_killed() {
    let script = format!(
        "{} status {GROUP} --local --format shell --node \"$FARSHORE_NODE\" --config \"$FARSHORE_CONFIG\" > \"$(dirname \"$0\")/status\"\n\
         sleep 1000 &\necho $! > \"$(dirname \"$0\")/pid\"\nwait",
        env!("CARGO_BIN_EXE_farshore")
    );
    let mut pair = pair("hooks.before_demote = HOOK\nhooks.timeout = \"5s\"", &script);
    let asked = Instant::now();
    let (code, refused) = answer(&pair, Side::Near, &["demote", GROUP]);
    assert!(code == 2 && refused["refusal"]["code"] == "hook-failed", "{refused}");
    assert!(refused["message"].to_string().contains("did not end within 5s and was killed"), "{refused}");
    assert!(asked.elapsed() < DEADLINE / 2);
    let status = fs::read_to_string(pair.path("status")).expect("it was answered");
    assert!(status.contains("farshore_condition='serving'\n"), "{status}");
    let pid = fs::read_to_string(pair.path("pid")).expect("it began");
    pair.until("its child is gone", |_| {
        let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    });
    assert!(!is_secondary(&pair, Side::Near));
    pair.stop_both();
}

/// What runs after a change takes nothing back.
#[test]
fn a_failure_after_a_demotion_is_a_warning_and_an_event() {
    let mut pair = pair("hooks.after_demote = HOOK", "exit 3");
    pair.wait_for_rest(Side::Near);
    let (code, done) = answer(&pair, Side::Near, &["demote", GROUP]);
    assert!(code == 1 && done["result"] == "done", "{done}");
    let warning = done["warnings"].to_string();
    assert!(warning.contains("after_demote of the configuration failed") && warning.contains("exit code 3"), "{done}");
    assert!(is_secondary(&pair, Side::Near));
    assert_eq!(lines_of(&ran(&pair)).len(), 1);
    assert_eq!(events_of_hooks(&pair, Side::Near)[0]["result"], "failed");
    pair.stop_both();
}

/// What cannot be started has failed too, and is said by a check before.
#[test]
fn a_command_that_others_may_change_is_not_run() {
    let mut pair = pair("hooks.before_demote = HOOK", "exit 0");
    fs::set_permissions(pair.path("hook"), fs::Permissions::from_mode(0o777)).expect("its mode");
    let (code, said) = pair.output_of(Side::Near, &["config", "check"]);
    assert!(code == 2 && said.contains("before_demote: ") && said.contains("chmod go-w"), "{said}");
    let (code, refused) = answer(&pair, Side::Near, &["demote", GROUP]);
    assert!(code == 2 && refused["refusal"]["code"] == "hook-failed", "{refused}");
    assert!(refused["message"].to_string().contains("it was not started"), "{refused}");
    assert_eq!(lines_of(&ran(&pair)), [""; 0]);
    fs::set_permissions(pair.path("hook"), fs::Permissions::from_mode(0o755)).expect("its mode");
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["demote", GROUP]);
    pair.stop_both();
}

/// Services were stopped for a demotion that was refused as a client was attached.
#[test]
fn a_demotion_that_clients_keep_from_happening_runs_no_command() {
    let test = "a_demotion_that_clients_keep_from_happening_runs_no_command";
    if must_skip(test, &[("qemu-io", is_installed("qemu-io"))]) {
        return;
    }
    let mut pair = pair(ALL, "exit 0");
    let client = pair.start_qemu_io(Side::Near, "data", &["sleep 3000"]);
    pair.until("the client is there", |pair| pair.status(Side::Near)["volumes"][0]["clients"] == 1);
    let (code, refused) = answer(&pair, Side::Near, &["demote", GROUP]);
    assert!(code == 2 && refused["refusal"]["code"] == "clients-attached", "{refused}");
    assert_eq!(lines_of(&ran(&pair)), [""; 0]);
    client.finish(&mut pair);
    pair.stop_both();
}

/// A daemon that ends waits for no command, and leaves none behind.
#[test]
fn a_daemon_that_stops_ends_the_command_and_changes_nothing() {
    let mut pair = pair(
        "hooks.before_demote = HOOK\nhooks.timeout = \"10m\"",
        "echo $$ > \"$(dirname \"$0\")/pid\"\nsleep 1000; :",
    );
    let mut demotes = pair.command(Side::Near, &["demote", GROUP]).spawn().expect("it runs");
    pair.until("the command runs", |pair| fs::read_to_string(pair.path("pid")).is_ok_and(|pid| !pid.is_empty()));
    let pid = fs::read_to_string(pair.path("pid")).expect("it runs");
    let stopped = Instant::now();
    pair.stop(Side::Near);
    assert!(stopped.elapsed() < DEADLINE / 2);
    assert!(!demotes.wait().expect("it ends").success());
    pair.until("the command is gone", |_| {
        let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    });
    pair.serve(Side::Near);
    pair.until("it is the primary that it was", |pair| pair.status(Side::Near)["role"] == "primary");
}

/// One change of role that a command of the configuration fails at.
struct HookCase {
    verb: &'static str,
    hook: &'static str,
    /// Where the command runs.
    runs_on: Side,
    /// The change is made all the same.
    is_made: bool,
}

const HOOK_CASES: [HookCase; 11] = [
    HookCase { verb: "promote", hook: "before_promote", runs_on: Side::Far, is_made: false },
    HookCase { verb: "promote", hook: "after_promote", runs_on: Side::Far, is_made: true },
    HookCase { verb: "demote", hook: "before_demote", runs_on: Side::Near, is_made: false },
    HookCase { verb: "demote", hook: "after_demote", runs_on: Side::Near, is_made: true },
    HookCase { verb: "switchover", hook: "before_promote", runs_on: Side::Far, is_made: false },
    HookCase { verb: "switchover", hook: "before_demote", runs_on: Side::Near, is_made: false },
    HookCase { verb: "switchover", hook: "after_demote", runs_on: Side::Near, is_made: true },
    HookCase { verb: "switchover", hook: "after_promote", runs_on: Side::Far, is_made: true },
    HookCase { verb: "failback", hook: "before_promote", runs_on: Side::Near, is_made: false },
    HookCase { verb: "failback", hook: "before_demote", runs_on: Side::Far, is_made: false },
    HookCase { verb: "failback", hook: "after_demote", runs_on: Side::Far, is_made: true },
];

/// A hook of which `which` names one that fails, or hangs with a child of its own, as `how` says.
const FAILS_OR_HANGS: &str = "at=$(dirname \"$0\")\n[ \"$FARSHORE_HOOK\" = \"$(cat \"$at/which\")\" ] || exit 0\n\
     [ \"$(cat \"$at/how\")\" = hang ] || exit 3\nsleep 1000 &\necho $! > \"$at/pid\"\nwait";

/// Near is the primary again, and the copy is in step.
fn back_home(pair: &mut Pair) {
    if is_secondary(pair, Side::Near) {
        if is_secondary(pair, Side::Far) {
            pair.until("far is promoted", |pair| pair.output_of(Side::Far, &["promote", GROUP, "--skip-hooks"]).0 < 2);
        }
        pair.wait_for(Side::Far, "replicating");
        pair.done(Side::Far, &["switchover", GROUP, "--to", "near", "--skip-hooks"]);
    }
    pair.wait_for_rest(Side::Near);
}

/// The change of a case, typed until it comes to the hook: its exit code, and its answer.
fn typed_to_the_hook(pair: &mut Pair, case: &HookCase) -> (i32, Value) {
    match case.verb {
        "demote" => answer(pair, Side::Near, &["demote", GROUP]),
        "switchover" => answer(pair, Side::Near, &["switchover", GROUP, "--to", "far"]),
        "failback" => {
            pair.done(Side::Near, &["switchover", GROUP, "--to", "far", "--skip-hooks"]);
            pair.wait_for_rest(Side::Far);
            answer(pair, Side::Far, &["failback", GROUP])
        }
        _ => {
            pair.done(Side::Near, &["demote", GROUP, "--skip-hooks"]);
            let mut last = (2, Value::Null);
            pair.until("the copy has heard of the demotion", |pair| {
                last = answer(pair, Side::Far, &["promote", GROUP]);
                last.0 < 2 || last.1["refusal"]["code"] == "hook-failed"
            });
            last
        }
    }
}

/// The last event of a hook on a node.
fn last_hook(pair: &Pair, node: Side) -> Value {
    events_of_hooks(pair, node).last().cloned().unwrap_or_default()
}

fn is_gone(pid: &str) -> bool {
    let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    state.is_empty() || state.contains(") Z ")
}

// proves: rule 9
/// A hook that fails before a change has it refused, and one after it takes nothing back; one that hangs does as one that fails.
#[test]
fn each_hook_that_fails_or_hangs_at_each_verb() {
    let mut pair = pair(&format!("{ALL}\nhooks.timeout = \"1s\""), FAILS_OR_HANGS);
    for (case, how) in HOOK_CASES.iter().flat_map(|case| ["fail", "hang"].map(|how| (case, how))) {
        let HookCase { verb, hook, runs_on, is_made } = *case;
        let told = |what: &dyn std::fmt::Debug| format!("{hook} that is to {how} at {verb}: {what:?}");
        back_home(&mut pair);
        let before = events_of_hooks(&pair, runs_on).len();
        let _ = fs::remove_file(pair.path("pid"));
        fs::write(pair.path("which"), hook).expect("written");
        fs::write(pair.path("how"), how).expect("written");
        let asked = Instant::now();
        let (code, said) = typed_to_the_hook(&mut pair, case);
        assert!(asked.elapsed() < DEADLINE / 2, "{}", told(&asked.elapsed()));
        let why = if how == "hang" { "did not end within 1s and was killed" } else { "it ended with exit code 3" };
        let is_told = |text: &Value| text.to_string().contains(hook) && text.to_string().contains(why);
        // What runs on the other node once this one has answered, that node tells.
        let is_here = verb != "switchover" || hook != "after_promote";
        if is_made {
            assert!(code == i32::from(is_here) && said["result"] == "done", "{}", told(&said));
            assert!(!is_here || is_told(&said["warnings"]), "{}", told(&said));
        } else {
            assert!(code == 2 && said["refusal"]["code"] == "hook-failed", "{}", told(&said));
            assert!(
                is_told(&said["message"]) && said["message"].to_string().contains("--skip-hooks"),
                "{}",
                told(&said)
            );
        }
        pair.until(&told(&"its event"), |pair| {
            let event = last_hook(pair, runs_on);
            events_of_hooks(pair, runs_on).len() > before && event["hook"] == hook && event["result"] == "failed"
        });
        let event = last_hook(&pair, runs_on);
        assert!(is_told(&event["reason"]) || event["reason"].to_string().contains(why), "{}", told(&event));
        let primaries = match (verb, is_made) {
            ("promote", false) | ("demote", true) => [false, false],
            ("promote", true) | ("switchover", true) | ("failback", false) => [false, true],
            _ => [true, false],
        };
        assert_eq!(Side::BOTH.map(|node| !is_secondary(&pair, node)), primaries, "{}", told(&said));
        if how == "hang" {
            let pid = fs::read_to_string(pair.path("pid")).expect("it began");
            pair.until(&told(&"its child is gone"), |_| is_gone(&pid));
        }
    }
    back_home(&mut pair);
    pair.stop_both();
}

/// Far lacks something, if that is to be: what the reverse sync is told.
fn before_reverse(pair: &mut Pair, gives_up: bool) -> Vec<&'static str> {
    pair.wait_for_rest(Side::Near);
    if !gives_up {
        return vec!["sync", GROUP, "--reverse"];
    }
    pair.done(Side::Near, &["logging", GROUP]);
    pair.qemu_io(Side::Near, "data", &["write -P 4 0 64k", "flush"]);
    vec!["sync", GROUP, "--reverse", "--yes"]
}

/// Near serves its clients itself, and far follows it.
fn served_at_home(pair: &mut Pair) {
    pair.until("it serves its clients itself", |pair| {
        !is_secondary(pair, Side::Near) && Side::BOTH.iter().all(|node| pair.status(*node)["reverse"].is_null())
    });
    assert!(is_secondary(pair, Side::Far));
}

// proves: rule 13, P6
/// A reverse sync that a hook refuses has not begun on either node, whatever it would have given up. Of two primaries one was promoted for
/// clients that never came.
#[test]
fn a_reverse_sync_that_a_hook_refuses_has_not_begun() {
    let mut pair = pair(&format!("{ALL}\nhooks.timeout = \"1s\""), FAILS_OR_HANGS);
    let before =
        ["before_promote", "before_demote"].into_iter().flat_map(|hook| ["fail", "hang"].map(|how| (hook, how)));
    for ((hook, how), gives_up) in before.flat_map(|case| [false, true].map(|gives_up| (case, gives_up))) {
        let words = before_reverse(&mut pair, gives_up);
        fs::write(pair.path("which"), hook).expect("written");
        fs::write(pair.path("how"), how).expect("written");
        let term = pair.status(Side::Near)["term"].clone();
        let (code, refused) = answer(&pair, Side::Near, &words);
        assert!(code == 2 && refused["refusal"]["code"] == "hook-failed", "{hook} {how} {gives_up}: {refused}");
        served_at_home(&mut pair);
        assert_eq!(pair.status(Side::Near)["term"], term, "{hook} {how} {gives_up}");
        pair.qemu_io(Side::Near, "data", &["write -P 3 0 4k", "flush"]);
        pair.done(Side::Near, &["sync", GROUP]);
    }
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

/// One that runs behind a change takes nothing back, and is told where it ran, or where that was ordered.
#[test]
fn a_reverse_sync_goes_on_whatever_fails_behind_its_changes() {
    let mut pair = pair(&format!("{ALL}\nhooks.timeout = \"1s\""), FAILS_OR_HANGS);
    fs::write(pair.path("how"), "fail").expect("written");
    let cases = [("after_demote", Side::Near), ("after_promote", Side::Far)];
    for ((hook, runs_on), gives_up) in cases.into_iter().flat_map(|case| [false, true].map(|gives_up| (case, gives_up)))
    {
        let told = format!("{hook} {gives_up}");
        let words = before_reverse(&mut pair, gives_up);
        let before = events_of_hooks(&pair, runs_on).len();
        fs::write(pair.path("which"), hook).expect("written");
        let (code, done) = answer(&pair, Side::Near, &words);
        // What runs at the other node behind a handover that one tells.
        let is_told = runs_on == Side::Near || gives_up;
        assert!(code == i32::from(is_told) && done["refusal"].is_null(), "{told}: {done}");
        assert_eq!(done["warnings"].to_string().contains(hook), is_told, "{told}: {done}");
        pair.until(&told, |pair| {
            let events = events_of_hooks(pair, runs_on);
            events[before..].iter().any(|event| event["hook"] == hook && event["result"] == "failed")
        });
        fs::write(pair.path("which"), "none").expect("written");
        served_at_home(&mut pair);
    }
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

// proves: P1
/// Somebody began to write while a hook ran: what he was answered for was given up, and nobody had asked him.
#[test]
fn a_client_that_comes_while_a_hook_runs_is_not_cut_off_by_a_reverse_sync() {
    let mut pair = pair("hooks.before_demote = HOOK", "sleep 3");
    let words = before_reverse(&mut pair, true);
    let term = pair.status(Side::Near)["term"].clone();
    let typed = Background::start(pair.command(Side::Near, &words));
    let ran = ran(&pair);
    pair.until("the hook runs", |_| ran.exists());
    let client = pair.start_qemu_io(Side::Near, "data", &["write -P 8 0 4k", "sleep 6000", "read -P 8 0 4k"]);
    pair.until("the client is there", |pair| pair.status(Side::Near)["volumes"][0]["clients"] == 1);
    let (is_done, said) = typed.finish(&mut pair);
    assert!(!is_done && said.contains("1 client is attached") && said.contains("sync g --reverse"), "{said}");
    served_at_home(&mut pair);
    assert_eq!(pair.status(Side::Near)["term"], term, "an attached device goes on");
    let (is_served, said) = client.finish(&mut pair);
    assert!(is_served, "{said}");
    pair.done(Side::Near, &["sync", GROUP]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

// proves: rule 13
/// A client came in the very moment of the demotion, which was refused by that: whoever was attached was turned away at its next connection,
/// although nothing was changed.
#[test]
fn a_demotion_that_a_client_has_refused_ends_no_term() {
    if must_skip_stores("a_demotion_that_a_client_has_refused_ends_no_term") {
        return;
    }
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    let store = store_of_group(&pair, Side::Near);
    let ran = with_hooks(&pair, "hooks.before_demote = HOOK", WAITS);
    pair.first_sync();
    let words = before_reverse(&mut pair, true);
    let term = pair.status(Side::Near)["term"].clone();
    let typed = Background::start(pair.command(Side::Near, &words));
    pair.until("the hook runs", |_| ran.exists());
    // The last record before the demotion waits for the disk meanwhile.
    store.hang();
    fs::write(pair.path("go"), "").expect("written");
    std::thread::sleep(Duration::from_millis(500));
    let client = pair.start_qemu_io(Side::Near, "data", &["sleep 6000"]);
    pair.until("the client is there", |pair| pair.status(Side::Near)["volumes"][0]["clients"] == 1);
    store.answer_again();
    let (is_done, said) = typed.finish(&mut pair);
    assert!(!is_done && said.contains("1 client is attached") && said.contains("sync g --reverse"), "{said}");
    served_at_home(&mut pair);
    assert_eq!(pair.status(Side::Near)["term"], term, "an attached device goes on");
    let (is_served, said) = client.finish(&mut pair);
    assert!(is_served, "{said}");
    // Without a client another term begins, before anybody is served what the other node has.
    pair.done(Side::Near, &words);
    assert_ne!(pair.status(Side::Near)["term"], term);
    served_at_home(&mut pair);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

// proves: rule 13, P6
/// A disk fails in the moment in which the new role is recorded: nobody knows which one is on record, and the demotion was taken for done.
#[test]
fn a_demotion_that_may_not_be_on_record_is_followed_by_nothing_before_a_reset() {
    if must_skip_stores("a_demotion_that_may_not_be_on_record_is_followed_by_nothing_before_a_reset") {
        return;
    }
    let mut pair = Pair::new(&PairPlan { forgets: true, ..PairPlan::DEFAULT });
    let ran = with_hooks(&pair, "hooks.before_demote = HOOK", WAITS);
    pair.first_sync();
    let mut unknown = 0;
    // Whatever is given up, the calls of its demotion come later.
    for (gives_up, calls) in (0..8).map(|calls| (false, calls)).chain((11..19).map(|calls| (true, calls))) {
        let words = before_reverse(&mut pair, gives_up);
        let _ = (fs::remove_file(pair.path("go")), lines_of(&ran));
        let typed = Background::start(pair.command(Side::Near, &words));
        pair.until("the hook runs", |_| ran.exists());
        pair.fail_call_after(Side::Near, calls, rustix::io::Errno::IO.raw_os_error());
        fs::write(pair.path("go"), "").expect("written");
        let (_, said) = typed.finish(&mut pair);
        println!("{gives_up} {calls}: {:?}: {}", pair.fail_no_call(Side::Near), said.trim());
        if said.contains("it is not known whether the new role is on record") {
            unknown += 1;
            assert!(said.contains("By the role that is on record the reverse sync goes on behind that"), "{said}");
            let record = pair.path("near/state/groups").join(GROUP).join("reverse");
            assert!(record.exists() && is_secondary(&pair, Side::Far));
        }
        if pair.status(Side::Near)["state"] == "failed" {
            pair.done(Side::Near, &["reset", GROUP]);
        }
        served_at_home(&mut pair);
        pair.done(Side::Near, &["sync", GROUP]);
    }
    assert!(unknown > 0);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

// proves: rule 13, P6
/// The node that serves is slow to be promoted, and is told once more meanwhile: that second order took back what the first one had recorded, and
/// the exports of that node were open to everybody.
#[test]
fn a_second_order_to_serve_takes_nothing_from_the_first() {
    let script = "case $FARSHORE_HOOK in\n\
                  before_demote) while ! [ -e \"$(dirname $0)/go\" ]; do sleep 0.1; done;;\n\
                  before_promote) while [ -e \"$(dirname $0)/slow\" ]; do sleep 0.1; done;;\nesac";
    let mut pair = pair("hooks.before_demote = HOOK\nhooks.before_promote = HOOK", script);
    let words = before_reverse(&mut pair, true);
    let typed = Background::start(pair.command(Side::Near, &words));
    let ran = ran(&pair);
    let has_run = |which: &str| {
        fs::read_to_string(&ran).unwrap_or_default().lines().filter(|line| line.starts_with(which)).count()
    };
    pair.until("both are ready", |_| has_run("before_demote") == 1);
    // It does not know any more that it is ready: its command runs once more.
    pair.kill(Side::Far);
    fs::write(pair.path("slow"), "").expect("written");
    pair.serve(Side::Far);
    pair.until("they meet", |pair| pair.status(Side::Far)["peers"][0]["link"] == "connected");
    fs::write(pair.path("go"), "").expect("written");
    pair.until("it is being promoted", |_| has_run("before_promote") == 2);
    // The next run of the daemon orders the same again.
    pair.kill(Side::Near);
    drop(typed);
    pair.serve(Side::Near);
    pair.until("it is told once more", |pair| {
        let why = pair.status(Side::Near)["reverse"]["why"].to_string();
        ["is changing its role", "is under way already"].iter().any(|part| why.contains(part))
    });
    let record = pair.path("far/state/groups").join(GROUP).join("reverse");
    assert!(record.exists());
    fs::remove_file(pair.path("slow")).expect("removed");
    pair.until("it serves the clients of near", |pair| !is_secondary(pair, Side::Far));
    assert!(!pair.status(Side::Far)["reverse"].is_null(), "and nobody else's: {}", pair.log(Side::Far));
    served_at_home(&mut pair);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

/// The fence of the manual turned the node off whose clients were to be served.
#[test]
fn a_reverse_sync_fences_nobody() {
    let mut pair = pair(ALL, "exit 0");
    let ran = ran(&pair);
    let begins = [
        "before_promote far near g no",
        "before_demote near far g no",
        "after_demote near far g no",
        "after_promote far near g no",
    ];
    for (gives_up, skips) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut words = before_reverse(&mut pair, gives_up);
        words.extend(skips.then_some("--skip-hooks"));
        pair.done(Side::Near, &words);
        served_at_home(&mut pair);
        let mut lines = Vec::new();
        // With those of the way back, on either node.
        let count = if skips { 4 } else { 8 };
        pair.until("all have run", |_| {
            lines.extend(lines_of(&ran));
            lines.len() >= count
        });
        assert!(lines.iter().all(|line| line.ends_with(" g no")), "{gives_up} {skips}: {lines:?}");
        assert_eq!(
            begins.iter().filter(|line| lines.iter().any(|ran| ran == *line)).count(),
            4 * usize::from(!skips),
            "{lines:?}"
        );
        if !skips {
            assert_eq!(lines[..2], begins[..2], "{gives_up}");
        }
    }
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

/// Both nodes are primary and wrote since; the commands of either fail or hang as files beside say.
fn forked() -> Pair {
    let mut pair = pair(&format!("{ALL}\nhooks.timeout = \"1s\""), FAILS_OR_HANGS);
    pair.wait_for_rest(Side::Near);
    pair.stop(Side::Far);
    pair.qemu_io(Side::Near, "data", &["write -P 6 0 64k", "flush"]);
    pair.stop(Side::Near);
    pair.serve(Side::Far);
    assert_eq!(pair.output_of(Side::Far, &["promote", GROUP, "--force", "--skip-hooks"]).0, 1);
    pair.qemu_io(Side::Far, "data", &["write -P 7 256k 64k", "flush"]);
    pair.serve(Side::Near);
    pair.until("both nodes see the fork", |pair| {
        Side::BOTH.iter().all(|node| pair.status(*node)["reason"].to_string().contains("both nodes are primary"))
    });
    pair
}

// proves: P6
/// Of a fork the node that is given up is demoted, and a hook of that node has the last word before: both nodes stay what they are.
#[test]
fn a_fork_is_not_resolved_against_a_hook_that_fails_or_hangs() {
    let mut pair = forked();
    let resolve = ["resolve", GROUP, "--keep", "far"];
    fs::write(pair.path("which"), "before_demote").expect("written");
    for (how, why) in [("fail", "it ended with exit code 3"), ("hang", "did not end within 1s and was killed")] {
        fs::write(pair.path("how"), how).expect("written");
        let before = events_of_hooks(&pair, Side::Near).len();
        let (code, refused) = answer(&pair, Side::Far, &resolve);
        assert!(code == 2 && refused["refusal"]["code"] == "hook-failed", "{how}: {refused}");
        assert!(refused["message"].to_string().contains(why), "{how}: {refused}");
        assert!(Side::BOTH.iter().all(|node| !is_secondary(&pair, *node)), "{how}");
        pair.until("it is told", |pair| events_of_hooks(pair, Side::Near).len() > before);
        assert_eq!(last_hook(&pair, Side::Near)["result"], "failed", "{how}");
    }
    let pid = fs::read_to_string(pair.path("pid")).expect("it began");
    pair.until("its child is gone", |_| is_gone(&pid));
    // One behind the demotion takes nothing back, however it ends.
    fs::write(pair.path("which"), "after_demote").expect("written");
    fs::write(pair.path("how"), "hang").expect("written");
    let (code, done) = answer(&pair, Side::Far, &resolve);
    assert!(code < 2 && is_secondary(&pair, Side::Near) && !is_secondary(&pair, Side::Far), "{code}: {done}");
    pair.until("it is told", |pair| last_hook(pair, Side::Near)["hook"] == "after_demote");
    assert!(last_hook(&pair, Side::Near)["reason"].to_string().contains("was killed"));
    pair.wait_for_rest(Side::Far);
    pair.stop_from(Side::Far);
    pair.assert_equal(&["data", "log"]);
}

/// The node that was kept answers first, and the other one's command goes on.
#[test]
fn a_command_behind_the_demotion_ends_though_the_fork_is_resolved_on_its_own_node() {
    let pair = forked();
    for (name, words) in [("which", "after_demote"), ("how", "hang")] {
        fs::write(pair.path(name), words).expect("written");
    }
    let (code, done) = answer(&pair, Side::Near, &["resolve", GROUP, "--keep", "far"]);
    assert!(code == 1 && is_secondary(&pair, Side::Near) && !is_secondary(&pair, Side::Far), "{code}: {done}");
    assert!(done["warnings"].to_string().contains("did not end within 1s and was killed"), "{done}");
    assert_eq!(last_hook(&pair, Side::Near)["hook"], "after_demote");
    let told = pair.done(Side::Near, &["events", "--json", "--local"]);
    assert!(!told.contains("ended before the answer was here"), "{told}");
}

/// The hook of the change that was made fails or hangs: far serves, and near takes over again, as if there were none; each is told of.
#[test]
fn what_fails_or_hangs_behind_a_change_takes_back_nothing_of_a_reverse_sync() {
    let mut pair = pair(&format!("{ALL}\nhooks.timeout = \"1s\""), FAILS_OR_HANGS);
    for (hook, how) in ["after_promote", "after_demote"].iter().flat_map(|hook| [(*hook, "fail"), (*hook, "hang")]) {
        pair.wait_for_rest(Side::Near);
        fs::write(pair.path("which"), hook).expect("written");
        fs::write(pair.path("how"), how).expect("written");
        let before = Side::BOTH.map(|node| events_of_hooks(&pair, node).len());
        let (code, begun) = answer(&pair, Side::Near, &["sync", GROUP, "--reverse"]);
        assert!(code < 2, "{hook} {how}: {begun}");
        pair.until("near takes over again", |pair| {
            !is_secondary(pair, Side::Near) && Side::BOTH.iter().all(|node| pair.status(*node)["reverse"].is_null())
        });
        assert!(is_secondary(&pair, Side::Far), "{hook} {how}");
        let why = if how == "hang" { "did not end within 1s and was killed" } else { "it ended with exit code 3" };
        for (node, before) in Side::BOTH.into_iter().zip(before) {
            // Each node is promoted once and demoted once.
            pair.until("both nodes tell of it", |pair| {
                let told = events_of_hooks(pair, node).split_off(before);
                told.iter().any(|event| event["hook"] == hook && event["reason"].to_string().contains(why))
            });
        }
        pair.qemu_io(Side::Near, "data", &["write -P 3 0 4k", "flush"]);
    }
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

/// What runs behind a forced promotion takes nothing back either, and both warnings are told: of what may be missing, and of the hook.
#[test]
fn a_failure_after_a_forced_promotion_is_one_more_warning() {
    for (how, why) in [("fail", "it ended with exit code 3"), ("hang", "did not end within 1s and was killed")] {
        let mut pair = pair(&format!("{ALL}\nhooks.timeout = \"1s\""), FAILS_OR_HANGS);
        fs::write(pair.path("which"), "after_promote").expect("written");
        fs::write(pair.path("how"), how).expect("written");
        pair.kill(Side::Near);
        pair.until("the copy knows", |pair| pair.status(Side::Far)["peers"][0]["link"] == "disconnected");
        let (code, done) = answer(&pair, Side::Far, &["promote", GROUP, "--force"]);
        assert!(code == 1 && done["result"] == "done", "{how}: {done}");
        let warnings = done["warnings"].as_array().expect("a list");
        assert!(warnings.len() >= 2 && warnings.iter().any(|one| one.to_string().contains(why)), "{how}: {done}");
        assert!(done["may_be_missing"]["sequence"].is_u64(), "{how}: {done}");
        assert!(!is_secondary(&pair, Side::Far), "{how}");
        assert_eq!(last_hook(&pair, Side::Far)["result"], "failed", "{how}");
    }
}

/// What the command line is told is told to the command that runs after the change, and to none before it.
#[test]
fn a_command_after_a_change_is_told_what_the_command_line_is_told() {
    let mut pair = pair(ALL, "echo \"$FARSHORE_HOOK: ${FARSHORE_TEXT-none}\" >> \"$(dirname \"$0\")/text\"");
    let text = pair.path("text");
    let said = |answer: &Value| answer["message"].as_str().expect("a sentence").to_owned();
    pair.wait_for_rest(Side::Near);
    let demoted = answer(&pair, Side::Near, &["demote", GROUP]).1;
    let after = format!("after_demote: {}", said(&demoted));
    assert_eq!(lines_of(&text), ["before_demote: none", &after], "{demoted}");
    let mut promoted = Value::Null;
    pair.until("the copy has heard of the demotion", |pair| {
        promoted = answer(pair, Side::Far, &["promote", GROUP]).1;
        promoted["result"] == "done"
    });
    let after = format!("after_promote: {}", said(&promoted));
    assert_eq!(lines_of(&text), ["before_promote: none", &after], "{promoted}");
    pair.wait_for_rest(Side::Far);
    pair.stop_from(Side::Far);
}
