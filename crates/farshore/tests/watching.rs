//! What people and their programs watch: the verdict of a check, how far a command is, and a log of JSON.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::{Background, GROUP, Pair, PairPlan, Side, is_installed, must_skip};
use serde_json::Value;

const SMALL: PairPlan = PairPlan { volumes: &["data"], volume_bytes: 1 << 20, ..PairPlan::DEFAULT };

/// The exit code of a check, and its one line.
fn check(pair: &Pair, node: Side) -> (i32, String) {
    let output = pair.run(node, &["status", "--check"]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.ends_with('\n') && text.lines().count() == 1 && output.stderr.is_empty(), "{text}");
    (output.status.code().expect("it ended by itself"), text)
}

#[test]
fn a_check_has_an_exit_code_and_a_line_for_each_health() {
    let group = "rpo.warn = \"1s\"\nrpo.error = \"2s\"\n";
    let mut pair = Pair::replicating(&PairPlan { group, ..SMALL });
    for node in Side::BOTH {
        let mut said = (0, String::new());
        pair.until("all is well", |pair| {
            said = check(pair, node);
            said.0 == 0
        });
        assert!(said.1.starts_with("FARSHORE OK - g replicating, lag "), "{said:?}");
        assert!(said.1.contains(" | lag_g=") && said.1.contains("s;1;2 "), "{said:?}");
    }

    pair.done(Side::Near, &["logging", GROUP]);
    let (code, line) = check(&pair, Side::Near);
    assert!(code == 1 && line.starts_with("FARSHORE WARNING - g is logging"), "{line}");
    pair.sync_fully(Side::Near);

    // A dead peer is a warning, and a copy that falls behind for it more than that.
    pair.kill(Side::Far);
    let mut said = (0, String::new());
    pair.until("the peer is missed", |pair| {
        said = check(pair, Side::Near);
        // Its last word is believed for a second.
        said.0 == 1 && said.1.contains("what far says of itself is not known: ")
    });
    pair.qemu_io(Side::Near, "data", &["write 0 64k"]);
    pair.until("the copy is too far behind", |pair| {
        said = check(pair, Side::Near);
        said.0 == 2
    });
    assert!(said.1.starts_with("FARSHORE CRITICAL - g: the copy is "), "{said:?}");
    assert!(said.1.contains("rpo.error is 2.0 s; ") && said.1.contains(" | lag_g="), "{said:?}");

    let output = pair.run(Side::Near, &["status", "--check", "elsewhere"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("FARSHORE UNKNOWN - node near has no group"));
    let (code, said) = pair.output_of(Side::Near, &["status", "--check", "--json"]);
    assert!(code == 3 && said.contains("cannot be used with"), "{said}");
    assert!(pair.stop(Side::Near).success());
    let (code, line) = check(&pair, Side::Near);
    assert!(code == 3 && line.starts_with("FARSHORE UNKNOWN - no daemon answers at "), "{line}");
}

/// Bytes that compress badly.
fn write_noise(pair: &Pair, node: Side, bytes: usize) {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let noise: Vec<u8> = std::iter::repeat_with(&mut next).take(bytes).collect();
    let file = pair.path("noise");
    fs::write(&file, noise).expect("written");
    let mut convert = Command::new("qemu-img");
    convert.args(["convert", "-n", "-f", "raw", "-O", "raw"]).arg(&file).arg(pair.uri(node, "data"));
    let output = convert.output().expect("qemu-img is installed (apt: qemu-utils)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A command whose standard error goes to a file.
fn start_with_errors(command: &Command, errors: &Path) -> Background {
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$@\" 2> \"$0\""]).arg(errors).arg(command.get_program()).args(command.get_args());
    Background::start(shell)
}

#[test]
fn without_a_terminal_a_line_now_and_then_says_how_far_a_sync_is() {
    let mut pair = Pair::replicating(&PairPlan { volumes: &["data"], ..PairPlan::DEFAULT });
    // What takes no time says nothing.
    let output = pair.run(Side::Near, &["wait", GROUP, "--for", "replicating"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");

    pair.done(Side::Near, &["logging", GROUP]);
    // More than the peer takes at once: what is sent counts as done.
    write_noise(&pair, Side::Near, 16 << 20);
    pair.done(Side::Near, &["link", "set", "rate=4Mbit/s", "compression=off"]);
    let errors = pair.path("errors");
    let order = start_with_errors(&pair.command(Side::Near, &["sync", GROUP, "--wait"]), &errors);
    let said = |_: &mut Pair| fs::read_to_string(&errors).unwrap_or_default();
    pair.until("it says how far it is", |pair| said(pair).contains("g syncing, "));
    let text = said(&mut pair);
    let line = text.lines().find(|line| line.starts_with("g syncing, ")).expect("just seen");
    for part in [" %, ", " of 16 MiB, ", "/s, ", " left (after 1"] {
        assert!(line.contains(part), "no {part:?} in: {line}");
    }
    assert!(!text.contains('\r') && !text.contains('\u{1b}'), "{text:?}");
    pair.done(Side::Near, &["link", "set", "rate=unlimited"]);
    let (is_done, answer) = order.finish(&mut pair);
    assert!(is_done && answer.contains("g: the copy is up to date, after "), "{answer}");
}

#[test]
fn on_a_terminal_a_line_within_its_width_is_redrawn() {
    let test = "on_a_terminal_a_line_within_its_width_is_redrawn";
    if must_skip(test, &[("script (util-linux)", is_installed("script"))]) {
        return;
    }
    const COLUMNS: usize = 60;
    let mut pair = Pair::replicating(&SMALL);
    pair.done(Side::Near, &["link", "set", "rate=64kbit/s", "compression=off"]);
    write_noise(&pair, Side::Near, 1 << 20);
    let demote = pair.command(Side::Near, &["demote", GROUP]);
    let words = [demote.get_program()].into_iter().chain(demote.get_args()).map(|word| word.to_string_lossy());
    let typed = format!("stty rows 24 cols {COLUMNS}; exec {}", words.collect::<Vec<_>>().join(" "));
    let mut script = Command::new("timeout");
    script.args(["80", "script", "-q", "-e", "-c", &typed]).arg(pair.path("typescript")).env("TERM", "xterm");
    let ended = Background::start(script).finish(&mut pair);
    let text = fs::read_to_string(pair.path("typescript")).expect("what the terminal got");
    let lines: Vec<&str> =
        text.split(['\r', '\n', '\u{1b}']).filter(|line| line.contains("sends what is queued")).collect();
    assert!(lines.len() > 1 && lines.iter().any(|line| line.contains("queued, ")), "{ended:?} {text:?}");
    // What stands before the text are the terminal's own codes, such as `[2K`.
    assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS + 4), "{lines:?}");
    pair.done(Side::Near, &["link", "set", "rate=unlimited"]);
}

/// Types a line at a terminal at which a command runs: its exit code, and what the terminal showed.
fn typed_at_a_terminal(pair: &Pair, node: Side, words: &[&str], line: &str) -> (i32, String) {
    let command = pair.command(node, words);
    let words = [command.get_program()].into_iter().chain(command.get_args()).map(|word| word.to_string_lossy());
    let command = words.collect::<Vec<_>>().join(" ");
    let shown = pair.path("typescript");
    let mut shell = Command::new("sh");
    shell.args(["-c", "printf '%s\\n' \"$1\" | timeout 80 script -q -e -c \"$2\" \"$3\"", "sh", line, &command]);
    let output = shell.arg(&shown).env("TERM", "xterm").output().expect("sh runs");
    (output.status.code().expect("it ended by itself"), fs::read_to_string(&shown).expect("what the terminal got"))
}

/// At a terminal a forced promotion says what may be lost, and asks.
#[test]
fn at_a_terminal_a_forced_promotion_is_asked_about() {
    let test = "at_a_terminal_a_forced_promotion_is_asked_about";
    if must_skip(test, &[("script (util-linux)", is_installed("script"))]) {
        return;
    }
    let mut pair = Pair::replicating(&SMALL);
    pair.kill(Side::Near);
    pair.until("the copy knows", |pair| pair.status(Side::Far)["peers"][0]["link"] == "disconnected");
    let promote = ["promote", GROUP, "--force"];
    for answer in ["no", "", "y"] {
        // An empty line is asked about again, until the terminal ends.
        let (code, shown) = typed_at_a_terminal(&pair, Side::Far, &promote, answer);
        assert!(code == 2 && shown.contains("g: nothing was done"), "{answer:?} {code}: {shown}");
        for part in ["is lost", "  This copy  ", "  Behind     ", "as the primary said ", "Type yes to promote it"] {
            assert!(shown.contains(part), "no {part:?} in: {shown}");
        }
        assert_eq!(pair.status(Side::Far)["role"], "secondary", "{answer:?}");
    }
    let (code, shown) = typed_at_a_terminal(&pair, Side::Far, &promote, "yes");
    assert!(code == 1 && shown.contains("g: promoted at sequence "), "{code}: {shown}");
    assert!(shown.contains(" behind when the primary was heard last, "), "{shown}");
    assert_eq!(pair.status(Side::Far)["role"], "primary");
    // Nothing is asked where nothing is to be done.
    let (code, shown) = typed_at_a_terminal(&pair, Side::Far, &promote, "no");
    assert!(code == 0 && shown.contains("already primary") && !shown.contains("Type yes"), "{code}: {shown}");
}

/// The objects of a log; each line must be one.
#[track_caller]
fn objects(text: &str) -> Vec<Value> {
    let object = |line: &str| {
        let parsed: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let has_text = |key: &str| parsed[key].as_str().is_some_and(|text| !text.is_empty());
        assert!(
            ["time", "level", "target", "message"].into_iter().all(has_text) && parsed["fields"].is_object(),
            "{line}"
        );
        parsed
    };
    text.lines().map(object).collect()
}

#[test]
fn each_line_of_a_json_log_is_an_object() {
    let mut pair = Pair::new(&SMALL);
    let log = pair.path("log.json");
    let mut command = pair.command(Side::Near, &["serve", "--log-format", "json"]);
    command.env("FARSHORE_LOG", "debug");
    pair.serve_by_with_log(Side::Near, command, File::create(&log).expect("a log").into());
    pair.serve(Side::Far);
    pair.sync_fully(Side::Near);
    pair.kill(Side::Far);
    pair.until("the lost link is told", |_| fs::read_to_string(&log).expect("text").contains("\"level\":\"warn\""));
    assert!(pair.stop(Side::Near).success());
    let lines = objects(&fs::read_to_string(&log).expect("text"));
    assert!(lines.iter().any(|line| line["level"] == "info" && line["target"] == "farshore::daemon"), "{lines:?}");
    assert!(lines.iter().any(|line| line["fields"]["path"].is_string()), "{lines:?}");
}

/// Also before there is a log, and of the other commands that run until they are ended.
#[test]
fn whatever_is_wrong_is_told_in_the_form_of_the_log() {
    let mut pair = Pair::new(&SMALL);
    let nowhere = pair.path("nowhere");
    let run = |words: &[&str], path: &Path| {
        Command::new(env!("CARGO_BIN_EXE_farshore")).args(words).arg(path).output().expect("it runs")
    };
    for words in [
        &["serve", "--log-format", "json", "--config"][..],
        &["attach", "g/data", "--foreground", "--log-format", "json", "--socket"],
        &["follow", "g", "--log-format", "json", "--config"],
    ] {
        let output = run(words, &nowhere);
        let lines = objects(std::str::from_utf8(&output.stderr).expect("text"));
        assert_eq!((output.status.code(), lines.len()), (Some(2), 1), "{words:?}: {lines:?}");
        assert_eq!((&lines[0]["level"], &lines[0]["target"]), (&"error".into(), &"farshore".into()), "{lines:?}");
    }
    let output = run(&["serve", "--log-format", "journal", "--config"], &nowhere);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!text.is_empty() && text.lines().all(|line| line.starts_with("<3>")), "{text}");
    let output = run(&["attach", "g/data", "--log-format", "json", "--socket"], &nowhere);
    assert_eq!(output.status.code(), Some(3), "a helper has a log of its own");

    let (log, mut follow) = (pair.path("follow.json"), Command::new(env!("CARGO_BIN_EXE_farshore")));
    follow.args(["follow", GROUP, "--log-format", "json", "--socket"]).arg(&nowhere);
    let _running = start_with_errors(&follow, &log);
    pair.until("it says that nobody answers", |_| {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.ends_with('\n') && objects(&text).iter().any(|line| line["level"] == "warn")
    });
    // The same complaint again and again is one.
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(objects(&fs::read_to_string(&log).expect("text")).len(), 1);
}
