//! What `set` changed, kept over a restart.
//!
//! An override wins over the configuration file until `set KEY=default` removes it. A file of them is replaced as a whole and
//! durably: after a crash it is the old one or the new one. One that somebody emptied or cut says nothing of what was set, so it is
//! no file without overrides: its first line and its last one tell. A missing one is.

mod file;
pub mod groups;
pub mod link;

use std::collections::BTreeMap;

use crate::keys::{Keyed, SettingKey};
use crate::sheet::{Sheet, SheetSection};

/// The value of `set` that removes an override.
pub const DEFAULT: &str = "default";

/// What was `set` of the settings `S`: the text of each such key, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides<S: Keyed>(BTreeMap<SettingKey<S>, String>);

impl<S: Keyed> Overrides<S> {
    /// Each override: key, value.
    pub fn entries(&self) -> impl Iterator<Item = (SettingKey<S>, &str)> {
        self.0.iter().map(|(key, value)| (*key, value.as_str()))
    }

    /// Whether the key's value was `set`.
    pub fn has(&self, key: SettingKey<S>) -> bool {
        self.0.contains_key(&key)
    }

    /// The settings that hold: the file's, with the overrides on top.
    pub fn effective(&self, from_file: &S) -> S {
        let mut settings = from_file.clone();
        for (key, value) in &self.0 {
            settings.set(*key, value).expect("every override was checked when it came in");
        }
        settings
    }
}

impl<S: Keyed + Default> Overrides<S> {
    /// Reads a table that holds live keys and nothing else.
    fn read<'t>(sheet: &mut Sheet<'t>, section: &SheetSection<'t>) -> Self {
        let known: Vec<&str> = SettingKey::<S>::all().map(SettingKey::as_str).collect();
        sheet.only(section, &known);
        let mut value = |key: SettingKey<S>| sheet.value(section, key.as_str(), |text| canonical(key, text));
        Self(SettingKey::all().filter_map(|key| Some((key, value(key)?))).collect())
    }

    /// With what a `set` asked for: all of it or nothing.
    ///
    /// # Errors
    /// A sentence per bad key or value.
    fn changed(&self, wanted: &BTreeMap<String, String>) -> Result<Self, Vec<String>> {
        let mut changed = self.0.clone();
        let mut change = |name: &str, value: &str| {
            let key = SettingKey::parse(name)?;
            if value == DEFAULT {
                changed.remove(&key);
            } else {
                changed.insert(key, canonical(key, value).map_err(|reason| format!("{key}: {reason}"))?);
            }
            Ok(())
        };
        let wrong: Vec<String> = wanted.iter().filter_map(|(name, value)| change(name, value).err()).collect();
        if wrong.is_empty() { Ok(Self(changed)) } else { Err(wrong) }
    }
}

fn canonical<S: Keyed + Default>(key: SettingKey<S>, text: &str) -> Result<String, String> {
    let mut probe = S::default();
    probe.set(key, text)?;
    Ok(probe.text(key))
}
