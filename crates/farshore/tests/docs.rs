//! The manuals tell of everything there is: a key, command or word that is added without them fails here.

use std::path::Path;

use clap::CommandFactory;
use farshore::api::{ErrorCode, GroupState, LinkLimit, LinkState, OperationState, Protection, Retry, Verdict};
use farshore::args::Args;
use host::link::history::{self, MinuteRecord, RECORD_BYTES};
use settings::{GroupKey, LinkKey};

fn manual(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book").join(name);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[track_caller]
fn mentions<'a>(manual_name: &str, words: impl IntoIterator<Item = &'a str>) {
    let text = manual(manual_name);
    let missing: Vec<&str> = words
        .into_iter()
        .filter(|word| {
            ![format!("`{word}`"), format!("`{word} "), format!("\"{word}\"")].iter().any(|form| text.contains(form))
        })
        .collect();
    assert!(missing.is_empty(), "docs/book/{manual_name} does not tell of {missing:?}");
}

#[test]
fn every_key_that_can_be_set_is_described() {
    mentions("cli.md", GroupKey::all().map(GroupKey::as_str));
    for manual in ["cli.md", "link.md"] {
        mentions(manual, LinkKey::all().map(LinkKey::as_str));
    }
}

/// The tables of a section: offset, size, field of each row.
fn tables(text: &str, section: &str) -> Vec<Vec<(usize, usize, String)>> {
    let section = text.split(&format!("\n## {section}\n")).nth(1).expect("the section is there");
    let section = section.split("\n## ").next().expect("a section has an end");
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        Some((cells.get(1)?.parse().ok()?, cells.get(2)?.parse().ok()?, (*cells.get(3)?).to_owned()))
    };
    let blocks = section.split("\n\n").map(|block| block.lines().filter_map(row).collect::<Vec<_>>());
    blocks.filter(|rows| !rows.is_empty()).collect()
}

#[test]
fn a_links_history_is_as_documented() {
    let tables = tables(&manual("format.md"), "Link history");
    for (table, bytes) in tables.iter().zip([4096, RECORD_BYTES]) {
        let end = table.iter().fold(0, |at, (offset, size, field)| {
            assert_eq!(*offset, at, "{field} begins where the field before it ends");
            at + size
        });
        assert_eq!(end, bytes);
    }
    let record = MinuteRecord {
        number: 1,
        unix_ms: 2,
        covered_ms: 3,
        connected_ms: 4,
        sent_bytes: 5,
        received_bytes: 6,
        retransmitted_bytes: 7,
        sent_per_s_max: 8,
        rtt_min_us: 9,
        rtt_mean_us: 10,
        rtt_max_us: 11,
        connections: 12,
        busy_ms: 13,
        receiver_limited_ms: 14,
        buffer_limited_ms: 15,
    };
    let bytes = history::example(7, &[record]);
    assert_eq!(bytes[..10], *b"FSHRLINK\x01\x00");
    for (number, (offset, size, field)) in tables[1].iter().take(15).enumerate() {
        let mut value = [0; 8];
        value[..*size].copy_from_slice(&bytes[4096 + offset..][..*size]);
        assert_eq!(u64::from_le_bytes(value), number as u64 + 1, "{field}");
    }
}

#[test]
fn every_command_and_every_option_is_described() {
    let root = Args::command();
    let text = manual("cli.md");
    for command in root.get_subcommands().filter(|command| command.get_name() != "config") {
        mentions("cli.md", [command.get_name()]);
        let begins = |line: &&str| {
            let rest = line.strip_prefix("| `").and_then(|line| line.strip_prefix(command.get_name()));
            // A refusal may have a name that begins so.
            rest.is_some_and(|rest| rest.starts_with([' ', '`']))
        };
        let row = text.lines().find(begins).expect("a row");
        for option in command.get_arguments().filter_map(|argument| argument.get_long()) {
            let common = ["config", "node", "socket", "help"].contains(&option);
            assert!(common || row.contains(&format!("--{option}")), "{}: --{option}", command.get_name());
        }
    }
    mentions("cli.md", ["config check", "config example"]);
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
    mentions("cli.md", formulas.iter().map(String::as_str));
    mentions("cli.md", GroupState::WORDS.iter().copied());
    mentions("cli.md", ErrorCode::WORDS.iter().copied());
}

/// The keys stand in tables that are made from the types (`src/schemas.rs`).
#[test]
fn every_word_of_the_status_is_described() {
    let words = [GroupState::WORDS, Protection::WORDS, LinkState::WORDS, LinkLimit::WORDS].concat();
    mentions("status-json.md", words);
    mentions("status-json.md", [OperationState::WORDS, Retry::WORDS, Verdict::WORDS].concat());
    mentions("link.md", LinkLimit::WORDS.iter().chain(LinkState::WORDS).copied());
}

/// docs/book/cli.md has the program's table of refusals. `BLESS=1` writes it anew.
#[test]
fn the_table_of_refusals_is_the_programs() {
    let mut page = manual("cli.md");
    let before = page.clone();
    let from = page.find("| Refusal | Again |").expect("the table");
    let to = from + page[from..].find("\n\n").map_or(page.len() - from, |end| end + 1);
    page.replace_range(from..to, &farshore::api::refusals::manual());
    if std::env::var_os("BLESS").is_some() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/cli.md");
        std::fs::write(file, page).expect("docs/book/cli.md is written");
    } else {
        assert!(
            page == before,
            "docs/book/cli.md differs: run BLESS=1 cargo test -p farshore --test all the_table_of_refusals"
        );
    }
}

/// The number at the head of the page and in the frame's table is the one on the wire.
#[test]
fn the_protocols_version_is_the_wires() {
    let version = engine::wire::VERSION as u8;
    let text = manual("protocol.md");
    assert!(text.contains(&format!("\nVersion {version}. ")), "the page begins with version {version}");
    assert!(text.contains(&format!("| 4 | 1 | version | {version} |")), "the frame's table says version {version}");
}

/// A command's help, and that of all commands below it.
fn add_help(command: &mut clap::Command, page: &mut String) {
    let help = command.render_long_help().to_string();
    let text = help.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    page.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", text.trim_end()));
    for below in command.get_subcommands_mut().filter(|below| below.get_name() != "help") {
        add_help(below, page);
    }
}

/// docs/book/options.md is what the program says of itself. `BLESS=1` writes it anew.
#[test]
fn the_page_of_options_is_what_the_program_says() {
    let mut page = "# All options\n\n\
        What `--help` says of every command. This page is made by the program; [Commands](cli.md) has the short form.\n"
        .to_owned();
    let mut command = Args::command().term_width(100);
    command.build();
    add_help(&mut command, &mut page);
    if std::env::var_os("BLESS").is_some() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/options.md");
        std::fs::write(file, &page).expect("docs/book/options.md is written");
    }
    assert!(
        manual("options.md") == page,
        "docs/book/options.md differs: run BLESS=1 cargo test -p farshore --test all options"
    );
}
