//! What a page shows of what a command prints, against what it printed just now.

use std::fs;
use std::ops::Range;

use super::page::{Page, Recording, root};

/// Lines of a block are as wide as those of prose at most, and go on after two spaces.
const WIDTH: usize = 140;
/// Behind a number these belong to it, in a loose recording.
const UNITS: [&str; 25] = [
    "B", "kB", "MB", "GB", "KiB", "MiB", "GiB", "TiB", "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "B/s", "kB/s", "MB/s",
    "KiB/s", "MiB/s", "s", "ms", "µs", "min", "h", "d", "%", "UTC",
];

/// A word of so many hexadecimal digits is a name made of numbers.
const NAME_LENGTH: usize = 8;

/// Lines of a page that show what was printed.
pub struct Shown {
    pub lines: Range<usize>,
    pub recording: Recording,
    /// Only lines that begin with the same words as those shown.
    pub is_part: bool,
    pub printed: String,
}

/// What a page shows otherwise than it was printed. With `BLESS` the page is written anew instead.
pub fn compare(page: &Page, shown: &[Shown]) -> Vec<String> {
    let differs = |shown: &&Shown| {
        let before = lines(page, &shown.lines);
        !is_alike(&before, &new_lines(shown, &before), shown.recording)
    };
    let wrong: Vec<&Shown> = shown.iter().filter(differs).collect();
    if std::env::var_os("BLESS").is_some() && !wrong.is_empty() {
        write_anew(page, &wrong);
        return Vec::new();
    }
    let say = |shown: &Shown| {
        let before = lines(page, &shown.lines);
        let (line, now) = (shown.lines.start + 1, new_lines(shown, &before).join("\n"));
        format!("docs/book/{}:{line} shows\n{}\nand now this was printed:\n{now}\n", page.name, before.join("\n"))
    };
    wrong.into_iter().map(say).collect()
}

/// As the page has them, without its indent.
fn lines(page: &Page, at: &Range<usize>) -> Vec<String> {
    let lines = &page.lines[at.clone()];
    let indent = indent(lines);
    lines.iter().map(|line| line.get(indent..).unwrap_or_default().to_owned()).collect()
}

fn indent(lines: &[String]) -> usize {
    let filled = lines.iter().filter(|line| !line.trim().is_empty());
    filled.map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0)
}

fn first_word(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or_default()
}

/// What would be shown in the place of these lines.
fn new_lines(shown: &Shown, before: &[String]) -> Vec<String> {
    let is_shown = |line: &str| !shown.is_part || before.iter().any(|before| first_word(before) == first_word(line));
    let text = shown.printed.trim_end_matches('\n');
    let lines = text.lines().map(str::trim_end).filter(|line| is_shown(line));
    lines.flat_map(folded).collect()
}

/// A line as several that are not too long.
fn folded(line: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = line.to_owned();
    while rest.chars().count() > WIDTH {
        let end = rest.char_indices().nth(WIDTH).map_or(rest.len(), |(at, _)| at);
        let Some(space) = rest[..end].trim_start().rfind(' ').map(|at| at + end - rest[..end].trim_start().len())
        else {
            break;
        };
        lines.push(rest[..space].to_owned());
        rest = format!("  {}", rest[space..].trim_start());
    }
    lines.push(rest);
    lines
}

fn is_alike(before: &[String], now: &[String], recording: Recording) -> bool {
    match recording {
        Recording::Exactly => before == now,
        Recording::Text => without_numbers(before) == without_numbers(now),
        Recording::Loosely => words(before) == words(now),
    }
}

/// Each line as it was printed, with `#` for each number and each long name of hexadecimal digits. Columns are as wide as numbers are.
fn without_numbers(lines: &[String]) -> Vec<String> {
    let line = |line: &String| line.split_whitespace().map(without_number).collect::<Vec<_>>().join(" ");
    unfolded(lines).iter().map(line).collect()
}

fn without_number(word: &str) -> String {
    let mut new = String::new();
    for part in word.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric()) {
        let name = part.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
        let is_digit = |letter: char| letter.is_ascii_digit();
        if name.len() >= NAME_LENGTH && name.chars().all(|letter| letter.is_ascii_hexdigit()) {
            new.push('#');
        } else {
            for letter in name.chars() {
                if !is_digit(letter) {
                    new.push(letter);
                } else if !new.ends_with('#') {
                    new.push('#');
                }
            }
        }
        new.push_str(&part[name.len()..]);
    }
    // With a fraction or without.
    new.replace("#.#", "#")
}

/// As printed: what [`folded`] put below is behind its line again.
fn unfolded(lines: &[String]) -> Vec<String> {
    let mut whole: Vec<String> = Vec::new();
    let mut width = 0;
    for line in lines {
        // It would not have fitted there.
        let is_rest = line.starts_with("  ") && width + 1 + first_word(line).chars().count() >= WIDTH;
        match whole.last_mut().filter(|_| is_rest) {
            Some(last) => *last = format!("{last} {}", line.trim_start()),
            None => whole.push(line.clone()),
        }
        width = line.chars().count();
    }
    whole
}

/// The words, with `#` for each number with its units, and for each word with a digit in it.
fn words(lines: &[String]) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in lines.iter().flat_map(|line| line.split_whitespace()) {
        let is_after_number = words.last().is_some_and(|last| last.starts_with('#'));
        let core = word.trim_matches(|letter: char| "()[],;:.".contains(letter));
        let has_digit = core.chars().any(|letter| letter.is_ascii_digit());
        if has_digit || (is_after_number && UNITS.contains(&core)) {
            if !is_after_number {
                words.push("#".to_owned());
            }
        } else {
            words.push(word.to_owned());
        }
    }
    words
}

/// Writes the page with what was printed in the place of what it showed.
fn write_anew(page: &Page, shown: &[&Shown]) {
    let mut new = page.lines.clone();
    let mut shown = shown.to_vec();
    shown.sort_by_key(|shown| std::cmp::Reverse(shown.lines.start));
    for shown in shown {
        let spaces = " ".repeat(indent(&page.lines[shown.lines.clone()]));
        let lines = new_lines(shown, &lines(page, &shown.lines));
        let lines = lines.iter().map(|line| format!("{spaces}{line}").trim_end().to_owned());
        drop(new.splice(shown.lines.clone(), lines));
    }
    let file = root().join("docs/book").join(&page.name);
    // Others make parts of pages too.
    let now = fs::read_to_string(&file).unwrap_or_default();
    assert!(now.lines().eq(page.lines.iter().map(String::as_str)), "{} has changed: once more", file.display());
    fs::write(&file, new.join("\n") + "\n").unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn numbers_differ_and_are_alike() {
        let is_alike = |before: &str, now: &str| is_alike(&lines_of(before), &lines_of(now), Recording::Text);
        let before = "db: at 49 of 1-1f4138a4, 2026-11-27T17:47:09.539Z; 0.0 s | lag_db=0s;30;300 queue_db=0%;80\n  VOLUME  SIZE\n  data    64 MiB";
        let now = "db: at 7 of 12-d470b1f1, 2026-11-27T18:31:37Z; 12 s | lag_db=12s;30;300 queue_db=99%;80\n  VOLUME  SIZE\n  data    8.5 MiB";
        assert!(is_alike(before, now));
        for (part, other) in [("lag_db", "delay_db"), ("s |", "h |"), (";30;300", ";30"), ("%", ""), ("\n", " ")] {
            assert!(now.contains(part) && !is_alike(before, &now.replacen(part, other, 1)), "{part}");
        }
        assert!(!is_alike(
            "FARSHORE OK - db, lag 0.0 s | lag_db=0s;30;300 queue_db=0%;80",
            "FARSHORE OK - db, lag 9.0 h | delay_db=7s;1;2"
        ));
    }

    #[test]
    fn a_line_that_goes_on_below_is_one() {
        let line =
            |number: &str| format!("db: promoted at {number}; {} {}", "a".repeat(60), "whatever else ".repeat(12));
        let (before, now) = (folded(&line("4")), folded(&line("4900000")));
        assert!(before.len() > 1 && before != now && is_alike(&before, &now, Recording::Text));
        assert!(!is_alike(&before, &folded(&line("4 of 5")), Recording::Text));
    }

    #[test]
    fn in_a_loose_recording_units_differ_too() {
        let (before, now) = ("link beta: up 2 h 5 min; 37.0 Mbit/s out", "link beta: up 0.5 s; 2 kbit/s\n  out");
        assert!(is_alike(&lines_of(before), &lines_of(now), Recording::Loosely));
        assert!(!is_alike(&lines_of(before), &lines_of(now), Recording::Text));
        assert!(!is_alike(&lines_of(before), &lines_of(now), Recording::Exactly));
        assert!(!is_alike(&lines_of(before), &lines_of("link beta: down 0.5 s; 2 kbit/s out"), Recording::Loosely));
    }

    #[test]
    fn a_long_line_goes_on_below() {
        let line = format!("! {} {}", "a".repeat(100), "b".repeat(100));
        assert_eq!(folded(&line), [format!("! {}", "a".repeat(100)), format!("  {}", "b".repeat(100))]);
        assert_eq!(folded("short"), ["short"]);
    }
}
