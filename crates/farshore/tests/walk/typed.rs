//! Each `farshore ...` of the manual, in a block of any page or within a sentence of tutorial and how-to, is a command line that the
//! program understands.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use clap::error::ErrorKind;
use farshore::args::Args;

use super::page::root;
use super::runners::without_remark;

/// What words of pages stand for, where they alone would not be understood.
const FILLED: [(&str, &str); 12] = [
    ("KEY=VALUE", "mode=sync"),
    ("MODE", "sync"),
    ("RATE", "1MB/s"),
    ("SIZE", "1MiB"),
    ("TIME", "1s"),
    ("DURATION", "1h"),
    ("SHARE", "1%"),
    ("GROUP/VOLUME", "g/v"),
    ("GROUP", "g"),
    ("VOLUME", "v"),
    ("NODE", "n"),
    ("PEER", "n"),
];

/// A command line of a page.
struct Line {
    /// Page and line.
    place: String,
    text: String,
    /// Within a sentence only so much of a command stands as the sentence is about.
    is_whole: bool,
}

/// All pages but the one that the program makes of its own help.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs/book")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of pages") {
            let path = entry.expect("a page").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") && !path.ends_with("options.md") {
                pages.push(path);
            }
        }
    }
    pages
}

fn lines_of(name: &str, text: &str, is_taught: bool) -> Vec<Line> {
    let (mut lines, mut in_block, mut open) = (Vec::new(), false, String::new());
    // The beginning of a span that goes on in the next line.
    let mut begun: Option<String> = None;
    for (number, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", number + 1);
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
            begun = None;
        } else if in_block {
            let line = line.trim();
            if let Some(more) = line.strip_suffix('\\') {
                open.push_str(more);
                continue;
            }
            lines.push(Line { place, text: std::mem::take(&mut open) + line, is_whole: true });
        } else if is_taught {
            // None goes on beyond its paragraph.
            let text = begun.take().filter(|_| !line.trim().is_empty()).unwrap_or_default() + line.trim();
            let is_open = text.matches('`').count() % 2 == 1;
            let (whole, rest) = text.rsplit_once('`').filter(|_| is_open).unwrap_or((text.as_str(), ""));
            begun = is_open.then(|| format!("`{rest} "));
            let spans = whole.split('`').skip(1).step_by(2).filter(|span| span.starts_with("farshore "));
            lines.extend(spans.map(|span| Line { place: place.clone(), text: span.to_owned(), is_whole: false }));
        }
    }
    lines
}

/// The words of each command in a line of a shell, without redirections; a pipe, `&&`, `;` or `&` ends one.
fn commands(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words) = (Vec::new(), Vec::new());
    let (mut word, mut quote, mut depth) = (String::new(), None, 0);
    for letter in line.chars().chain([' ', ';']) {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => quote = Some(letter),
            (None, '(') if word.ends_with('$') => {
                depth += 1;
                word.push(letter);
            }
            (None, ')') if depth > 0 => {
                depth -= 1;
                word.push(letter);
            }
            (None, ' ') if depth == 0 => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            (None, '|' | ';' | '&') if depth == 0 => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                commands.push(std::mem::take(&mut words));
            }
            _ => word.push(letter),
        }
    }
    for words in &mut commands {
        if let Some(end) = words.iter().position(|word| [">", "<", ">>", "2>"].contains(&word.as_str())) {
            words.truncate(end);
        }
    }
    commands
}

/// The command line of the program in a command, if it is one: as typed here, on another host, or by a user who may do that.
fn of_program(words: &[String]) -> Option<&[String]> {
    let at = words.iter().position(|word| word == "farshore" || word == "/usr/bin/farshore")?;
    let is_before = |word: &str| ["$", "sudo", "-n", "ssh", "beta"].contains(&word) || word.ends_with('#');
    words[..at].iter().all(|word| is_before(word)).then(|| &words[at..])
}

fn filled(word: &str) -> Option<String> {
    // Of an option that may be left out, and of several of a kind.
    let word = word.trim_matches(|letter: char| matches!(letter, '[' | ']' | ',')).trim_end_matches("...");
    if matches!(word, "" | "…") {
        return None;
    }
    let is_named = |(name, _): &&(&str, &str)| word == *name;
    Some(FILLED.iter().find(is_named).map_or(word, |(_, meaning)| *meaning).to_owned())
}

/// Why the program does not understand a line.
fn problem(words: &[String], is_whole: bool) -> Option<String> {
    let words: Vec<String> = words.iter().filter_map(|word| filled(word)).collect();
    let error = Args::try_parse_from(&words).err()?;
    let is_short = [
        ErrorKind::MissingRequiredArgument,
        ErrorKind::MissingSubcommand,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    let is_said = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion].contains(&error.kind());
    // Of an option that is mentioned the value may be left out.
    let lacks_value = [ErrorKind::InvalidValue, ErrorKind::TooFewValues, ErrorKind::WrongNumberOfValues];
    let ends_in_option = words.last().is_some_and(|word| word.starts_with("--"));
    let ends_early = is_short.contains(&error.kind()) || (ends_in_option && lacks_value.contains(&error.kind()));
    (!is_said && (is_whole || !ends_early)).then(|| error.to_string())
}

#[test]
fn the_program_understands_each_line_of_the_manual() {
    let taught = super::taught();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages() {
        let is_taught = taught.iter().any(|name| page.ends_with(Path::new("docs/book").join(name)));
        let text = fs::read_to_string(&page).expect("a page");
        let name = page.strip_prefix(root()).expect("a page of the project").display().to_string();
        for line in lines_of(&name, &text, is_taught) {
            for words in commands(without_remark(&line.text)) {
                let Some(words) = of_program(&words) else { continue };
                count += 1;
                let problem = problem(words, line.is_whole);
                wrong.extend(problem.map(|problem| format!("{}: {}: {problem}", line.place, line.text)));
            }
        }
    }
    println!("{count} command lines of the program, in blocks and sentences");
    assert!(count > 200 && wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_option_that_does_not_exist_is_found() {
    let problem = |text: &str, is_whole: bool| {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        problem(&words, is_whole)
    };
    assert!(problem("farshore mark list GROUP --on", false).is_none());
    assert!(problem("farshore mark list GROUP --on", true).is_some());
    assert!(problem("farshore mark list GROUP --upon", false).is_some());
}

#[test]
fn spans_are_read_over_two_lines() {
    let text = "Type `farshore status` or `farshore\nmark list GROUP`, `ls` or `farshore\n\nwait`.\n\n    `farshore sync GROUP`\n";
    let lines = lines_of("page.md", text, true);
    let found: Vec<(&str, &str)> = lines.iter().map(|line| (line.place.as_str(), line.text.as_str())).collect();
    let wanted = [
        ("page.md:1", "farshore status"),
        ("page.md:2", "farshore mark list GROUP"),
        ("page.md:6", "farshore sync GROUP"),
    ];
    assert_eq!(found, wanted);
}

#[test]
fn a_line_is_cut_as_a_shell_cuts_it() {
    let cut = |line: &str| -> Vec<String> {
        let commands = commands(line);
        commands.iter().filter_map(|words| of_program(words)).map(|words| words.join("_")).collect()
    };
    assert_eq!(cut("umount /mnt && farshore detach db"), ["farshore_detach_db"]);
    assert_eq!(cut("echo TOKEN | farshore join --device 'a b' > file"), ["farshore_join_--device_a b"]);
    assert_eq!(cut("ssh beta farshore doctor --json > beta.json"), ["farshore_doctor_--json"]);
    assert_eq!(cut("farshore mark drop g $(farshore mark list g)"), ["farshore_mark_drop_g_$(farshore mark list g)"]);
    assert!(cut("apt install farshore").is_empty() && cut("farshore.toml says so").is_empty());
}
