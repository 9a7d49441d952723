//! What both nodes must agree on about a group, as a text that can be compared, digested and shown.
//!
//! In: the members' names, who starts as primary, the volumes and their order, the region size: whatever would make the
//! two sides mean different things by the same frame. Out: mode, policy, limits and queue (they may be `set` on one node
//! while the link is down), device paths (each node's own business) and sizes (compared at connect with both numbers).

use std::fmt::Write;

use super::ConfiguredGroup;
use crate::limits::REGION_BYTES;

/// Version of the text; it changes when the text could mean something else.
const HEAD: &str = "farshore-group/1";

/// A definition comes from a peer, so a comparison shows at most this many lines and this much of each value.
const DIFF_LINES_MAX: usize = 40;
const DIFF_VALUE_CHARS_MAX: usize = 40;

impl ConfiguredGroup {
    /// The canonical text: one `word value` per line, volumes last, in their order.
    pub fn definition(&self) -> String {
        let mut text = format!(
            "{HEAD}\ngroup {}\nprimary {}\nsecondary {}\nregion_bytes {REGION_BYTES}\n",
            self.name, self.primary, self.secondary
        );
        for (index, volume) in self.volumes.iter().enumerate() {
            let _ = writeln!(text, "volume.{index} {}", volume.name);
        }
        text
    }
}

/// Two definitions side by side, the lines that differ marked with `!`; for eyes.
///
/// `theirs` may hold anything a peer sent: it is shown shortened and with control characters escaped.
pub fn diff_definitions(ours: &str, theirs: &str) -> String {
    let (ours, theirs) = (split(ours), split(theirs));
    let mut words: Vec<&str> = ours.iter().map(|(word, _)| *word).collect();
    words.extend(theirs.iter().map(|(word, _)| *word).filter(|word| !ours.iter().any(|(known, _)| known == word)));
    let value = |side: &[(&str, &str)], word: &str| {
        side.iter().find(|(known, _)| *known == word).map_or("-".to_owned(), |(_, value)| shown(value))
    };
    let rows: Vec<[String; 3]> =
        words.iter().map(|word| [shown(word), value(&ours, word), value(&theirs, word)]).collect();
    let head = [String::new(), "here".to_owned(), "peer".to_owned()];
    let width = |column: usize| rows.iter().chain([&head]).map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1));
    let mut text = String::new();
    for row in std::iter::once(&head).chain(rows.iter().take(DIFF_LINES_MAX)) {
        let mark = if row[1] == row[2] || row[0].is_empty() { ' ' } else { '!' };
        let line = format!("{mark} {:first$}  {:second$}  {}", row[0], row[1], row[2]);
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if rows.len() > DIFF_LINES_MAX {
        let _ = writeln!(text, "  ... and {} more lines", rows.len() - DIFF_LINES_MAX);
    }
    text
}

fn split(definition: &str) -> Vec<(&str, &str)> {
    definition
        .lines()
        .filter(|line| !line.is_empty())
        .take(4 * DIFF_LINES_MAX)
        .enumerate()
        .map(|(index, line)| if index == 0 { ("format", line) } else { line.split_once(' ').unwrap_or((line, "")) })
        .collect()
}

fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(DIFF_VALUE_CHARS_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(DIFF_VALUE_CHARS_MAX).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Config, example};

    fn group(text: &str) -> ConfiguredGroup {
        Config::parse(Path::new("/etc/farshore/farshore.toml"), text).expect("sound").groups[0].clone()
    }

    #[test]
    fn the_text_holds_what_must_agree_and_nothing_else() {
        let text = example::EXAMPLE;
        let definition = group(text).definition();
        assert_eq!(
            definition,
            "farshore-group/1\ngroup db\nprimary alpha\nsecondary beta\nregion_bytes 4096\nvolume.0 data\nvolume.1 log\n"
        );
        let other = group(&text.replace("\"async\"", "\"sync\"").replace("/dev/", "/dev/mapper/"));
        assert_eq!(other.definition(), definition);
    }

    #[test]
    fn differences_stand_side_by_side() {
        let ours = "farshore-group/1\ngroup db\nsecondary beta\nvolume.0 data\nvolume.1 log\n";
        let theirs = "farshore-group/1\ngroup db\nsecondary gamma\nvolume.0 data\n";
        assert_eq!(
            diff_definitions(ours, theirs),
            "             here              peer\n  format     farshore-group/1  farshore-group/1\n  group      db                db\n! secondary  beta              gamma\n  volume.0   data              data\n! volume.1   log               -\n"
        );
    }

    #[test]
    fn a_hostile_definition_is_shown_harmlessly() {
        let theirs = format!("farshore-group/1\n\u{1b}[31mgroup {}\n{}", "x".repeat(100_000), "a b\n".repeat(100_000));
        let shown = diff_definitions("farshore-group/1\ngroup db\n", &theirs);
        assert!(!shown.contains('\u{1b}') && shown.len() < 8_000, "{} bytes", shown.len());
    }
}
