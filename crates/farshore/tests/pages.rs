//! Packages carry a manual page for every command, and completions that know every command and option.

#[expect(dead_code, reason = "its main is the example's")]
#[path = "../examples/pages.rs"]
mod writer;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory};
use farshore::args::Args;

/// A command and all below it, by the names of their pages.
fn pages(command: &Command, name: &str, found: &mut BTreeSet<String>) {
    found.insert(format!("{name}.1"));
    for below in command.get_subcommands() {
        pages(below, &format!("{name}-{}", below.get_name()), found);
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    writer::write_pages(folder.path()).expect("pages are written");
    let manual = folder.path().join("man/man1");
    let written = fs::read_dir(&manual).expect("a folder of pages");
    let written: BTreeSet<String> =
        written.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
    let mut wanted = BTreeSet::new();
    pages(&Args::command(), "farshore", &mut wanted);
    assert_eq!(written, wanted);
    for page in &written {
        let text = fs::read_to_string(manual.join(page)).expect("a page");
        assert!(text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{page} is no manual page");
    }
    let sync = fs::read_to_string(manual.join("farshore-sync.1")).expect("a page");
    assert!(sync.contains("Compare everything with the copy, not only what is dirty"), "{sync}");
}

/// Each option of each command.
fn options<'a>(command: &'a Command, found: &mut BTreeSet<&'a str>) {
    found.extend(command.get_arguments().filter_map(|argument| argument.get_long()));
    command.get_subcommands().for_each(|below| options(below, found));
}

#[test]
fn completions_know_every_command_and_option() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    writer::write_pages(folder.path()).expect("pages are written");
    let root = Args::command();
    let mut words: BTreeSet<&str> = root.get_subcommands().map(Command::get_name).collect();
    options(&root, &mut words);
    let places = [
        "bash-completion/completions/farshore",
        "zsh/vendor-completions/_farshore",
        "fish/vendor_completions.d/farshore.fish",
    ];
    for place in places {
        let file = Path::new(folder.path()).join(place);
        let text = fs::read_to_string(&file).expect("a completion");
        let missing: Vec<&&str> = words.iter().filter(|word| !text.contains(**word)).collect();
        assert!(missing.is_empty(), "{place} does not know {missing:?}");
    }
}
