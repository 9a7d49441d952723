//! What `set` changed of each group: `<state>/overrides.toml`, one table per group.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::Overrides;
use super::file::{self, OverridesKind};
use crate::config::Config;
use crate::group::{GroupKey, LiveSettings};
use crate::names::GroupName;
use crate::problem::Problems;

const WORDS: &str = "# Written by `farshore set`; it wins over the configuration file. Undo a line with: farshore set GROUP KEY=default\n";
const OVERRIDES: OverridesKind = OverridesKind { first: "# farshore overrides 1", command: "farshore set" };

/// Of a group that has none.
static NONE: Overrides<LiveSettings> = Overrides(BTreeMap::new());

/// Overrides of all groups of one node, every value checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupOverrides {
    groups: BTreeMap<GroupName, Overrides<LiveSettings>>,
}

impl GroupOverrides {
    /// Reads the file; a missing one is empty.
    ///
    /// # Errors
    /// Every problem of the file; nothing of a damaged one is used.
    pub fn load(file: &Path) -> Result<Self, Problems> {
        Self::parse(file, &OVERRIDES.read(file)?)
    }

    /// Checks a text as if it came from `file`.
    ///
    /// # Errors
    /// Every problem of the text.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Problems> {
        file::parse(file, text, |sheet, root| {
            let mut groups = BTreeMap::new();
            for name in root.keys() {
                let Some(section) = sheet.section(root, name) else {
                    continue;
                };
                match GroupName::parse(name) {
                    Ok(group) => drop(groups.insert(group, Overrides::read(sheet, &section))),
                    Err(reason) => sheet.at(section.span.clone(), reason),
                }
            }
            Self { groups }
        })
    }

    /// Replaces the file durably.
    ///
    /// # Errors
    /// A sentence; the old file stands then.
    pub fn save(&self, file: &Path) -> Result<(), String> {
        let mut text = WORDS.to_owned();
        for (group, overrides) in self.groups.iter().filter(|(_, overrides)| !overrides.0.is_empty()) {
            let _ = write!(text, "\n[{:?}]\n", group.as_str());
            for (key, value) in overrides.entries() {
                let _ = writeln!(text, "{:?} = {value:?}", key.as_str());
            }
        }
        OVERRIDES.replace(file, &text)
    }

    /// Those of one group.
    pub fn of(&self, group: &GroupName) -> &Overrides<LiveSettings> {
        self.groups.get(group).unwrap_or(&NONE)
    }

    /// Each override: group, key, value.
    pub fn entries(&self) -> impl Iterator<Item = (&GroupName, GroupKey, &str)> {
        self.groups.iter().flat_map(|(group, keys)| keys.entries().map(move |(key, value)| (group, key, value)))
    }

    /// Takes what a `set` asked for: all of it or nothing.
    ///
    /// # Errors
    /// A sentence per bad key or value.
    pub fn change(&mut self, group: &GroupName, wanted: &BTreeMap<String, String>) -> Result<(), Vec<String>> {
        let changed = self.of(group).changed(wanted)?;
        self.groups.insert(group.clone(), changed);
        self.groups.retain(|_, overrides| !overrides.0.is_empty());
        Ok(())
    }

    /// A sentence for each group with overrides that the configuration does not have; they are kept.
    pub fn unused(&self, config: &Config) -> Vec<String> {
        self.groups
            .keys()
            .filter(|name| config.groups.iter().all(|group| group.name != **name))
            .map(|name| format!("overrides for group {name} are kept but unused: the configuration has no such group"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Keyed, Mode, example};

    fn config() -> Config {
        Config::parse(Path::new("/etc/farshore/farshore.toml"), example::EXAMPLE).expect("sound")
    }

    fn wanted(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn db() -> GroupName {
        GroupName::parse("db").expect("a name")
    }

    #[test]
    fn an_override_wins_after_a_restart_until_it_is_taken_back() {
        let dir = tempfile::tempdir().expect("dir");
        let file = dir.path().join("overrides.toml");
        let mut overrides = GroupOverrides::load(&file).expect("missing is empty");
        overrides.change(&db(), &wanted(&[("mode", "sync"), ("queue.memory", "8192KiB")])).expect("good");
        overrides.save(&file).expect("saved");

        let mut restarted = GroupOverrides::load(&file).expect("reads back");
        assert_eq!(restarted, overrides);
        assert!(restarted.unused(&config()).is_empty());
        let after = restarted.of(&db()).effective(&config().groups[0].settings);
        assert_eq!(after.mode, Mode::Sync);
        assert_eq!(after.queue_memory_bytes, 8 << 20);
        for (name, value, was_set) in
            [("mode", "sync", true), ("queue.memory", "8MiB", true), ("policy", "degrade", false)]
        {
            let key = GroupKey::named(name);
            assert_eq!((after.text(key).as_str(), restarted.of(&db()).has(key)), (value, was_set), "{name}");
        }

        restarted.change(&db(), &wanted(&[("mode", "default"), ("queue.memory", "default")])).expect("good");
        assert_eq!(restarted, GroupOverrides::default());
        restarted.save(&file).expect("saved");
        assert_eq!(GroupOverrides::load(&file).expect("reads back"), GroupOverrides::default());
        assert_eq!(restarted.of(&db()).effective(&config().groups[0].settings), config().groups[0].settings);
    }

    #[test]
    fn a_bad_change_changes_nothing_and_names_every_mistake() {
        let mut overrides = GroupOverrides::default();
        let wrong = wanted(&[("mode", "asinc"), ("hold", "30s"), ("queue.memry", "8MiB"), ("journal", "1GiB")]);
        let reasons = overrides.change(&db(), &wrong).expect_err("wrong");
        assert_eq!(reasons.len(), 3, "{reasons:?}");
        assert_eq!(overrides, GroupOverrides::default());
    }

    #[test]
    fn a_damaged_file_is_refused_with_every_problem() {
        let file = Path::new("/state/overrides.toml");
        let text = "[db]\nmode = \"fast\"\ncolour = 1\n\n[DB]\nmode = \"sync\"\n";
        let problems = GroupOverrides::parse(file, text).expect_err("damaged");
        assert_eq!(problems.list.len(), 3, "{problems}");
        assert!(GroupOverrides::parse(file, "[db\n").is_err());
    }

    #[test]
    fn a_file_that_was_cut_or_is_another_is_not_taken_for_one_without_overrides() {
        let dir = tempfile::tempdir().expect("dir");
        let file = dir.path().join("overrides.toml");
        let mut overrides = GroupOverrides::default();
        overrides.change(&db(), &wanted(&[("policy", "strict"), ("mode", "sync")])).expect("good");
        overrides.save(&file).expect("saved");
        let whole = std::fs::read(&file).expect("there");
        for end in 0..whole.len() {
            std::fs::write(&file, &whole[..end]).expect("written");
            let problem = GroupOverrides::load(&file).expect_err("cut").to_string();
            let what = if end == 0 { "it is empty, and what 'farshore set' changed is not known" } else { "" };
            assert!(problem.contains(what) && problem.contains("remove it"), "cut at {end}: {problem}");
        }
        for (text, what) in [
            ("\n \n", "it is empty"),
            ("# farshore link 1\n[link]\n# end\n", "its first line is not \"# farshore overrides 1\""),
            ("[db]\npolicy = \"strict\"\n", "its first line is not"),
        ] {
            std::fs::write(&file, text).expect("written");
            let problem = GroupOverrides::load(&file).expect_err("foreign").to_string();
            assert!(problem.contains(what), "{problem}");
        }
        std::fs::write(&file, whole).expect("written");
        assert_eq!(GroupOverrides::load(&file).expect("whole"), overrides);
    }

    #[test]
    fn a_group_that_left_the_configuration_is_reported() {
        let mut overrides = GroupOverrides::default();
        overrides.change(&GroupName::parse("old").expect("a name"), &wanted(&[("mode", "sync")])).expect("good");
        let unused = overrides.unused(&config());
        assert!(unused.len() == 1 && unused[0].contains("group old"), "{unused:?}");
    }

    #[test]
    fn what_cannot_be_saved_says_so_and_leaves_the_old_file() {
        let dir = tempfile::tempdir().expect("dir");
        let file = dir.path().join("overrides.toml");
        // A directory in the way of the unfinished file: works for root too, unlike permissions.
        std::fs::create_dir(dir.path().join("overrides.toml.new")).expect("mkdir");
        std::fs::write(&file, "# farshore overrides 1\n[db]\nmode = \"sync\"\n# end\n").expect("write");
        let error = GroupOverrides::default().save(&file).expect_err("in the way");
        assert!(error.contains("cannot be written"), "{error}");
        assert!(GroupOverrides::load(&file).expect("old").groups.contains_key(&db()));
    }
}
