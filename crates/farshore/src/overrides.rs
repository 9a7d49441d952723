//! What `set` changed, kept over a restart: `<state>/overrides.toml`, one table per group.
//!
//! An override wins over the configuration file until `set KEY=default` removes it. The file is replaced as a whole and
//! durably: after a crash it is the old one or the new one. One that somebody emptied or cut says nothing of what was set, so it is
//! no file without overrides: its first line and its last one tell. A missing one is.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;

use toml::de::DeTable;

use crate::api::{Origin, SettingStatus};
use crate::config::{Config, GroupName, Key, Keyed, Problems, Settings, Sheet};
use crate::durable;
use crate::limits::CONFIG_BYTES_MAX;

const WORDS: &str = "# Written by `farshore set`; it wins over the configuration file. Undo a line with: farshore set GROUP KEY=default\n";

/// Which overrides a file holds.
pub(crate) struct Kind {
    /// The file's first line.
    pub first: &'static str,
    /// The command that writes it.
    pub command: &'static str,
}

const OVERRIDES: Kind = Kind { first: "# farshore overrides 1", command: "farshore set" };
/// The last line of each: what was cut does not have it.
const END: &str = "# end";

/// The value of `set` that removes an override.
pub const DEFAULT: &str = "default";

/// Overrides of all groups of one node, every value checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    groups: BTreeMap<GroupName, BTreeMap<Key, String>>,
}

impl Overrides {
    /// Reads the file; a missing one is empty.
    ///
    /// # Errors
    /// Every problem of the file. Nothing of a damaged file is used: half of an operator's wishes is none of them.
    pub fn load(file: &Path) -> Result<Self, Problems> {
        Self::parse(file, &read(file, &OVERRIDES)?)
    }

    /// Checks a text as if it came from `file`.
    ///
    /// # Errors
    /// Every problem of the text.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Problems> {
        let (tree, errors) = DeTable::parse_recoverable(text);
        let mut sheet = Sheet::new(text);
        let mut overrides = Self::default();
        if sheet.syntax(&errors) {
            let root = sheet.root(&tree);
            for name in root.keys() {
                let Some(section) = sheet.section(&root, name) else {
                    continue;
                };
                match GroupName::parse(name) {
                    Ok(group) => {
                        overrides.groups.insert(group, read_group(&mut sheet, &section));
                    }
                    Err(reason) => sheet.at(section.span.clone(), reason),
                }
            }
        }
        if sheet.problems.is_empty() { Ok(overrides) } else { Err(Problems::new(file, sheet.problems)) }
    }

    /// Replaces the file durably: written beside it, flushed, renamed, directory flushed.
    ///
    /// # Errors
    /// A sentence; the old file stands then.
    pub fn save(&self, file: &Path) -> Result<(), String> {
        replace(file, &OVERRIDES, &self.text())
    }

    /// Each override: group, key, value.
    pub fn entries(&self) -> impl Iterator<Item = (&GroupName, Key, &str)> {
        self.groups.iter().flat_map(|(group, keys)| keys.iter().map(move |(key, value)| (group, *key, value.as_str())))
    }

    fn text(&self) -> String {
        let mut text = WORDS.to_owned();
        for (group, keys) in self.groups.iter().filter(|(_, keys)| !keys.is_empty()) {
            let _ = write!(text, "\n[{:?}]\n", group.as_str());
            for (key, value) in keys {
                let _ = writeln!(text, "{:?} = {value:?}", key.as_str());
            }
        }
        text
    }

    /// Takes what a `set` asked for: all of it or nothing.
    ///
    /// # Errors
    /// A sentence per bad key or value.
    pub fn change(&mut self, group: &GroupName, wanted: &BTreeMap<String, String>) -> Result<(), Vec<String>> {
        let mut keys = self.groups.get(group).cloned().unwrap_or_default();
        let mut wrong = Vec::new();
        for (name, value) in wanted {
            match change_one(&mut keys, name, value) {
                Ok(()) => {}
                Err(reason) => wrong.push(reason),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        self.groups.insert(group.clone(), keys);
        self.groups.retain(|_, keys| !keys.is_empty());
        Ok(())
    }

    /// The settings that hold: the file's, with the overrides of this group on top.
    pub fn effective(&self, group: &GroupName, from_file: &Settings) -> Settings {
        let mut settings = from_file.clone();
        for (key, value) in self.groups.get(group).into_iter().flatten() {
            settings.set(*key, value).expect("every override was checked when it came in");
        }
        settings
    }

    /// A sentence for each group with overrides that the configuration does not have; they are kept.
    pub fn unused(&self, config: &Config) -> Vec<String> {
        self.groups
            .keys()
            .filter(|name| config.groups.iter().all(|group| group.name != **name))
            .map(|name| format!("overrides for group {name} are kept but unused: the configuration has no such group"))
            .collect()
    }

    /// What status shows: the value of each key and where it comes from.
    pub fn describe(&self, group: &GroupName, effective: &Settings) -> BTreeMap<String, SettingStatus> {
        let set = self.groups.get(group);
        let origin = |key| {
            if set.is_some_and(|keys| keys.contains_key(&key)) { Origin::Set } else { Origin::Config }
        };
        Key::all()
            .map(|key| (key.to_string(), SettingStatus { value: effective.text(key), origin: origin(key) }))
            .collect()
    }
}

/// Replaces a file of overrides by another text.
pub(crate) fn replace(file: &Path, kind: &Kind, text: &str) -> Result<(), String> {
    durable::replace(file, format!("{}\n{text}{END}\n", kind.first).as_bytes())
        .map_err(|error| format!("the overrides {} cannot be written: {error}", file.display()))
}

/// Reads a file of overrides; a missing one is empty.
///
/// # Errors
/// It cannot be read, or is not whole.
pub(crate) fn read(file: &Path, kind: &Kind) -> Result<String, Problems> {
    let cannot = |error: std::io::Error| Problems::one(file, format!("the overrides cannot be read: {error}"));
    let mut text = String::new();
    match durable::open(file) {
        Ok(opened) => opened.take(CONFIG_BYTES_MAX).read_to_string(&mut text).map_err(cannot)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(text),
        Err(error) => return Err(cannot(error)),
    };
    let wrong = kind.what_is_wrong(&text).map(|wrong| Problems::one(file, wrong));
    wrong.map_or(Ok(text), Err)
}

impl Kind {
    fn what_is_wrong(&self, text: &str) -> Option<String> {
        let (first, command) = (self.first, self.command);
        let what = if text.trim().is_empty() {
            "it is empty".to_owned()
        } else if text.lines().next() != Some(first) {
            format!("its first line is not {first:?}, so it is none that '{command}' wrote")
        } else if text.lines().next_back() != Some(END) || !text.ends_with('\n') {
            format!("it is cut short: its last line is not {END:?}")
        } else {
            return None;
        };
        Some(format!(
            "{what}, and what '{command}' changed is not known. Restore the file; or remove it, then the configuration file alone counts, \
             and set again what it should not be"
        ))
    }
}

fn read_group<'t>(sheet: &mut Sheet<'t>, section: &crate::config::Section<'t>) -> BTreeMap<Key, String> {
    let known: Vec<&str> = Key::all().map(Key::as_str).collect();
    sheet.only(section, &known);
    let mut keys = BTreeMap::new();
    for key in Key::all() {
        let mut probe = Settings::default();
        if sheet.value(section, key.as_str(), |text| probe.set(key, text)).is_some() {
            keys.insert(key, probe.text(key));
        }
    }
    keys
}

fn change_one(keys: &mut BTreeMap<Key, String>, name: &str, value: &str) -> Result<(), String> {
    let key = Key::parse(name)?;
    if value == DEFAULT {
        keys.remove(&key);
        return Ok(());
    }
    let mut probe = Settings::default();
    probe.set(key, value).map_err(|reason| format!("{key}: {reason}"))?;
    keys.insert(key, probe.text(key));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Mode, example};

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
        let mut overrides = Overrides::load(&file).expect("missing is empty");
        overrides.change(&db(), &wanted(&[("mode", "sync"), ("queue.memory", "8192KiB")])).expect("good");
        overrides.save(&file).expect("saved");

        let mut restarted = Overrides::load(&file).expect("reads back");
        assert_eq!(restarted, overrides);
        assert!(restarted.unused(&config()).is_empty());
        let after = restarted.effective(&db(), &config().groups[0].settings);
        assert_eq!(after.mode, Mode::Sync);
        assert_eq!(after.queue_memory_bytes, 8 << 20);
        let shown = restarted.describe(&db(), &after);
        assert_eq!(shown["mode"], SettingStatus { value: "sync".into(), origin: Origin::Set });
        assert_eq!(shown["queue.memory"], SettingStatus { value: "8MiB".into(), origin: Origin::Set });
        assert_eq!(shown["policy"], SettingStatus { value: "degrade".into(), origin: Origin::Config });
        assert_eq!(shown.len(), Key::all().count());

        restarted.change(&db(), &wanted(&[("mode", "default"), ("queue.memory", "default")])).expect("good");
        assert_eq!(restarted, Overrides::default());
        restarted.save(&file).expect("saved");
        assert_eq!(Overrides::load(&file).expect("reads back"), Overrides::default());
        assert_eq!(restarted.effective(&db(), &config().groups[0].settings), config().groups[0].settings);
    }

    #[test]
    fn a_bad_change_changes_nothing_and_names_every_mistake() {
        let mut overrides = Overrides::default();
        let wrong = wanted(&[("mode", "asinc"), ("hold", "30s"), ("queue.memry", "8MiB"), ("journal", "1GiB")]);
        let reasons = overrides.change(&db(), &wrong).expect_err("wrong");
        assert_eq!(reasons.len(), 3, "{reasons:?}");
        assert_eq!(overrides, Overrides::default());
    }

    #[test]
    fn a_damaged_file_is_refused_with_every_problem() {
        let file = Path::new("/state/overrides.toml");
        let text = "[db]\nmode = \"fast\"\ncolour = 1\n\n[DB]\nmode = \"sync\"\n";
        let problems = Overrides::parse(file, text).expect_err("damaged");
        assert_eq!(problems.list.len(), 3, "{problems}");
        assert!(Overrides::parse(file, "[db\n").is_err());
    }

    #[test]
    fn a_file_that_was_cut_or_is_another_is_not_taken_for_one_without_overrides() {
        let dir = tempfile::tempdir().expect("dir");
        let file = dir.path().join("overrides.toml");
        let mut overrides = Overrides::default();
        overrides.change(&db(), &wanted(&[("policy", "strict"), ("mode", "sync")])).expect("good");
        overrides.save(&file).expect("saved");
        let whole = std::fs::read(&file).expect("there");
        for end in 0..whole.len() {
            std::fs::write(&file, &whole[..end]).expect("written");
            let problem = Overrides::load(&file).expect_err("cut").to_string();
            let what = if end == 0 { "it is empty, and what 'farshore set' changed is not known" } else { "" };
            assert!(problem.contains(what) && problem.contains("remove it"), "cut at {end}: {problem}");
        }
        for (text, what) in [
            ("\n \n", "it is empty"),
            ("# farshore link 1\n[link]\n# end\n", "its first line is not \"# farshore overrides 1\""),
            ("[db]\npolicy = \"strict\"\n", "its first line is not"),
        ] {
            std::fs::write(&file, text).expect("written");
            let problem = Overrides::load(&file).expect_err("foreign").to_string();
            assert!(problem.contains(what), "{problem}");
        }
        std::fs::write(&file, whole).expect("written");
        assert_eq!(Overrides::load(&file).expect("whole"), overrides);
    }

    #[test]
    fn a_group_that_left_the_configuration_is_told() {
        let mut overrides = Overrides::default();
        overrides.change(&GroupName::parse("old").expect("a name"), &wanted(&[("mode", "sync")])).expect("good");
        let told = overrides.unused(&config());
        assert!(told.len() == 1 && told[0].contains("group old"), "{told:?}");
    }

    #[test]
    fn what_cannot_be_saved_says_so_and_leaves_the_old_file() {
        let dir = tempfile::tempdir().expect("dir");
        let file = dir.path().join("overrides.toml");
        // A directory in the way of the unfinished file: works for root too, unlike permissions.
        std::fs::create_dir(dir.path().join("overrides.toml.new")).expect("mkdir");
        std::fs::write(&file, "# farshore overrides 1\n[db]\nmode = \"sync\"\n# end\n").expect("write");
        let error = Overrides::default().save(&file).expect_err("in the way");
        assert!(error.contains("cannot be written"), "{error}");
        assert!(Overrides::load(&file).expect("old").groups.contains_key(&db()));
    }
}
