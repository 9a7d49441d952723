//! What `link set` changed, kept over a restart: `<state>/link.toml`, one table `[link]`.
//!
//! As with the groups' overrides, one wins over the configuration file until `link set KEY=default` removes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use toml::de::DeTable;

use crate::api::{Origin, SettingStatus};
use crate::config::{Keyed, LinkKey, LinkSettings, Problems, Sheet};
use crate::overrides::{self, DEFAULT, Kind};

const LINK: Kind = Kind { first: "# farshore link 1", command: "farshore link set" };
const WORDS: &str = "# Written by `farshore link set`; it wins over the configuration file. Undo a line with: farshore link set KEY=default\n\n[link]\n";

/// Overrides of one node's links, every value checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkOverrides(BTreeMap<LinkKey, String>);

impl LinkOverrides {
    /// Reads the file; a missing one is empty.
    ///
    /// # Errors
    /// Every problem of the file; nothing of a damaged one is used.
    pub fn load(file: &Path) -> Result<Self, Problems> {
        Self::parse(file, &overrides::read(file, &LINK)?)
    }

    /// Checks a text as if it came from `file`.
    ///
    /// # Errors
    /// Every problem of the text.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Problems> {
        let (tree, errors) = DeTable::parse_recoverable(text);
        let mut sheet = Sheet::new(text);
        let mut read = Self::default();
        if sheet.syntax(&errors) {
            let root = sheet.root(&tree);
            sheet.only(&root, &["link"]);
            if let Some(section) = sheet.section(&root, "link") {
                let known: Vec<&str> = LinkKey::all().map(LinkKey::as_str).collect();
                sheet.only(&section, &known);
                for key in LinkKey::all() {
                    let mut probe = LinkSettings::default();
                    if sheet.value(&section, key.as_str(), |text| probe.set(key, text)).is_some() {
                        read.0.insert(key, probe.text(key));
                    }
                }
            }
        }
        if sheet.problems.is_empty() { Ok(read) } else { Err(Problems::new(file, sheet.problems)) }
    }

    /// Replaces the file durably.
    ///
    /// # Errors
    /// A sentence; the old file stands then.
    pub fn save(&self, file: &Path) -> Result<(), String> {
        let mut text = WORDS.to_owned();
        for (key, value) in &self.0 {
            let _ = writeln!(text, "{key} = {value:?}");
        }
        overrides::replace(file, &LINK, &text)
    }

    /// Each override: key, value.
    pub fn entries(&self) -> impl Iterator<Item = (LinkKey, &str)> {
        self.0.iter().map(|(key, value)| (*key, value.as_str()))
    }

    /// Takes what a `link set` asked for: all of it or nothing.
    ///
    /// # Errors
    /// A sentence per bad key or value.
    pub fn change(
        &mut self,
        wanted: &BTreeMap<String, String>,
        from_file: &LinkSettings,
        timeout: Duration,
    ) -> Result<(), Vec<String>> {
        let mut changed = self.clone();
        let mut wrong: Vec<String> =
            wanted.iter().filter_map(|(name, value)| changed.change_one(name, value).err()).collect();
        if wrong.is_empty()
            && let Err((key, why)) = changed.effective(from_file).check(timeout)
        {
            wrong.push(format!("{key}: {why}"));
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        *self = changed;
        Ok(())
    }

    fn change_one(&mut self, name: &str, value: &str) -> Result<(), String> {
        let key = LinkKey::parse(name)?;
        if value == DEFAULT {
            self.0.remove(&key);
            return Ok(());
        }
        let mut probe = LinkSettings::default();
        probe.set(key, value).map_err(|reason| format!("{key}: {reason}"))?;
        self.0.insert(key, probe.text(key));
        Ok(())
    }

    /// The settings that hold: the file's, with the overrides on top.
    pub fn effective(&self, from_file: &LinkSettings) -> LinkSettings {
        let mut settings = from_file.clone();
        for (key, value) in &self.0 {
            settings.set(*key, value).expect("every override was checked when it came in");
        }
        settings
    }

    /// What status shows: the value of each key and where it comes from.
    pub fn describe(&self, from_file: &LinkSettings) -> BTreeMap<String, SettingStatus> {
        let effective = self.effective(from_file);
        let one = |key: LinkKey| {
            let origin = if self.0.contains_key(&key) { Origin::Set } else { Origin::Config };
            (key.to_string(), SettingStatus { value: effective.text(key), origin })
        };
        LinkKey::all().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let shown = restarted.describe(&from_file);
        assert_eq!(shown["buffers"], SettingStatus { value: "4MiB".into(), origin: Origin::Set });
        assert_eq!(shown["max_rto"], SettingStatus { value: "1s".into(), origin: Origin::Config });
        assert_eq!(shown.len(), LinkKey::all().count());
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
