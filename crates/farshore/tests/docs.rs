//! The manuals tell of everything there is: a key, command or word that is added without them fails here.

use std::path::Path;

use clap::CommandFactory;
use farshore::api::{ErrorCode, GroupState, LinkState, Protection, STATUS_SCHEMA, Status};
use farshore::args::Args;
use farshore::config::{Key, Settings, example};

fn manual(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[track_caller]
fn tells_of<'a>(manual_name: &str, words: impl IntoIterator<Item = &'a str>) {
    let text = manual(manual_name);
    let missing: Vec<&str> = words
        .into_iter()
        .filter(|word| {
            ![format!("`{word}`"), format!("`{word} "), format!("\"{word}\"")].iter().any(|form| text.contains(form))
        })
        .collect();
    assert!(missing.is_empty(), "docs/{manual_name} does not tell of {missing:?}");
}

#[test]
fn every_key_of_the_configuration_is_described() {
    let keys = example::EXAMPLE
        .lines()
        .filter_map(|line| line.trim_start_matches("# ").split_once(" = "))
        .map(|(key, _)| key)
        .filter(|key| !key.contains(' ') && !["alpha", "beta", "queue", "memory", "activity"].contains(key));
    tells_of("config.md", keys);
    tells_of("config.md", Key::ALL.map(|key| key.as_str()));
    tells_of("cli.md", Key::ALL.map(|key| key.as_str()));
}

#[test]
fn the_defaults_in_the_manual_are_the_real_ones() {
    let text = manual("config.md");
    let defaults = Settings::default();
    for key in Key::ALL {
        let row = text.lines().find(|line| line.starts_with(&format!("| `{key}` |"))).expect("a row for each key");
        let value = defaults.text(key);
        assert!(
            row.contains(&format!("`{value}`")) || row.contains(&format!("`\"{value}\"`")),
            "{key} = {value}: {row}"
        );
    }
}

#[test]
fn every_command_and_every_option_is_described() {
    let root = Args::command();
    let text = manual("cli.md");
    for command in root.get_subcommands().filter(|command| command.get_name() != "config") {
        tells_of("cli.md", [command.get_name()]);
        let row = text.lines().find(|line| line.starts_with(&format!("| `{}", command.get_name()))).expect("a row");
        for option in command.get_arguments().filter_map(|argument| argument.get_long()) {
            let common = ["config", "node", "socket", "help"].contains(&option);
            assert!(common || row.contains(&format!("--{option}")), "{}: --{option}", command.get_name());
        }
    }
    tells_of("cli.md", ["config check", "config example"]);
    let cert = root.find_subcommand("cert").expect("cert");
    for command in cert.get_subcommands() {
        let name = format!("`cert {}", command.get_name());
        let row = text.lines().find(|line| line.starts_with(&format!("| {name}"))).unwrap_or_else(|| panic!("{name}"));
        for option in command.get_arguments().filter_map(|argument| argument.get_long()) {
            assert!(["config", "help"].contains(&option) || row.contains(&format!("--{option}")), "{name}: --{option}");
        }
    }
    let calc = root.find_subcommand("calc").expect("calc");
    let formulas: Vec<String> = calc.get_subcommands().map(|formula| format!("calc {}", formula.get_name())).collect();
    tells_of("cli.md", formulas.iter().map(String::as_str));
    tells_of("cli.md", GroupState::WORDS.iter().copied());
    tells_of("cli.md", ErrorCode::WORDS.iter().copied());
}

#[test]
fn every_key_of_the_status_is_described() {
    let text = r#"{"schema":"farshore-status/1","node":"a","version":"1","uptime_s":1,"tls":{"certificate_until":"t","authority_until":"t","fingerprint":"f"},"shared":{"memory_bytes":0,"memory_limit_bytes":0,"starting":0,"starting_waiting":0,"syncing":0,"syncing_waiting":0},"groups":[{"name":"g","role":"primary",
        "mode":"async","state":"syncing","protection":"queued","volumes":[{"name":"v","size_bytes":1,"device":"d","dirty_bytes":0,"direct":true}],
        "queue":{"bytes":0,"items":0,"bytes_hwm":0,"items_hwm":0,"limit_bytes":0,"limit_items":0,"blocked_ms":0},
        "journal":{"bytes":0,"limit_bytes":0},
        "peers":[{"node":"b","link":"connected","link_since_s":1,"lag_bytes":0,"lag_seconds":0,"dirty_bytes":0,"recovery_point":{"sequence":1,"time":"t"}}],
        "sync":{"full":true,"done_bytes":0,"total_bytes":0,"rate_bytes_per_s":0},"settings":{"k":{"value":"v","origin":"set"}}}]}"#;
    let status: Status = serde_json::from_str(text).expect("optional keys may be left out");
    let mut keys = Vec::new();
    collect(&serde_json::to_value(status).expect("a value"), &mut keys);
    keys.retain(|key| key != "k");
    tells_of("status-json.md", keys.iter().map(String::as_str));
    tells_of("status-json.md", [STATUS_SCHEMA]);
    let words = [GroupState::WORDS, Protection::WORDS, LinkState::WORDS].concat();
    tells_of("status-json.md", words);
}

fn collect(value: &serde_json::Value, keys: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(object) => {
            for (key, value) in object {
                keys.push(key.clone());
                collect(value, keys);
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| collect(item, keys)),
        _ => {}
    }
}
