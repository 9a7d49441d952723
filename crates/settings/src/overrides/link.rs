//! What `link set` changed of a node's links: `<state>/link.toml`, one table `[link]`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use super::Overrides;
use super::file::{self, OverridesKind};
use crate::link::LinkSettings;
use crate::problem::Problems;

const LINK: OverridesKind = OverridesKind { first: "# farshore link 1", command: "farshore link set" };
const WORDS: &str = "# Written by `farshore link set`; it wins over the configuration file. Undo a line with: farshore link set KEY=default\n\n[link]\n";

/// Overrides of one node's links.
pub type LinkOverrides = Overrides<LinkSettings>;

impl LinkOverrides {
    /// Reads the file; a missing one is empty.
    ///
    /// # Errors
    /// Every problem of the file; nothing of a damaged one is used.
    pub fn load(file: &Path) -> Result<Self, Problems> {
        Self::parse(file, &LINK.read(file)?)
    }

    /// Checks a text as if it came from `file`.
    ///
    /// # Errors
    /// Every problem of the text.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Problems> {
        file::parse(file, text, |sheet, root| {
            sheet.only(root, &["link"]);
            sheet.section(root, "link").map(|section| Self::read(sheet, &section)).unwrap_or_default()
        })
    }

    /// Replaces the file durably.
    ///
    /// # Errors
    /// A sentence; the old file stands then.
    pub fn save(&self, file: &Path) -> Result<(), String> {
        let mut text = WORDS.to_owned();
        for (key, value) in self.entries() {
            let _ = writeln!(text, "{key} = {value:?}");
        }
        LINK.replace(file, &text)
    }

    /// Takes what a `link set` asked for: all of it or nothing.
    ///
    /// # Errors
    /// A sentence per bad key or value, or for what they may not say together.
    pub fn change(
        &mut self,
        wanted: &BTreeMap<String, String>,
        from_file: &LinkSettings,
        timeout: Duration,
    ) -> Result<(), Vec<String>> {
        let changed = self.changed(wanted)?;
        changed.effective(from_file).check(timeout).map_err(|(key, why)| vec![format!("{key}: {why}")])?;
        *self = changed;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Keyed;
    use crate::link::LinkKey;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn wanted(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn an_override_wins_after_a_restart_until_it_is_taken_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("link.toml");
        let from_file = LinkSettings::default();
        let mut overrides = LinkOverrides::load(&file).expect("missing is empty");
        let change = wanted(&[("buffers", "4096KiB"), ("congestion", "cubic")]);
        overrides.change(&change, &from_file, TIMEOUT).expect("good");
        overrides.save(&file).expect("saved");

        let mut restarted = LinkOverrides::load(&file).expect("reads back");
        assert_eq!(restarted, overrides);
        let after = restarted.effective(&from_file);
        for (name, value, was_set) in [("buffers", "4MiB", true), ("max_rto", "1s", false)] {
            let key = LinkKey::named(name);
            assert_eq!((after.text(key).as_str(), restarted.has(key)), (value, was_set), "{name}");
        }
        let back = wanted(&[("buffers", "default"), ("congestion", "default")]);
        restarted.change(&back, &from_file, TIMEOUT).expect("good");
        assert_eq!(restarted.effective(&from_file), from_file);
    }

    #[test]
    fn a_bad_change_changes_nothing_and_names_every_mistake() {
        let mut overrides = LinkOverrides::default();
        let wrong = wanted(&[("bufers", "4MiB"), ("max_rto", "1"), ("timeout", "5s"), ("unsent", "64KiB")]);
        let reasons = overrides.change(&wrong, &LinkSettings::default(), TIMEOUT).expect_err("wrong");
        assert_eq!(reasons.len(), 3, "{reasons:?}");
        let together = wanted(&[("user_timeout", "9s")]);
        let reasons = overrides.change(&together, &LinkSettings::default(), TIMEOUT).expect_err("wrong");
        assert!(reasons[0].contains("shorter than the link's timeout"), "{reasons:?}");
        assert_eq!(overrides, LinkOverrides::default());
    }

    #[test]
    fn a_damaged_file_is_refused_with_every_problem() {
        let file = Path::new("/state/link.toml");
        let problems =
            LinkOverrides::parse(file, "[link]\nbuffers = \"big\"\ncolour = 1\n\n[links]\n").expect_err("bad");
        assert_eq!(problems.list.len(), 3, "{problems}");
        assert!(LinkOverrides::parse(file, "[link\n").is_err());
    }
}
