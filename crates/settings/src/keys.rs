//! The one table of keys: name, default, values, meaning, how a value is read and how it is written. The file, `set`, `status`, the
//! manual and the checks go by it, so a new key is one entry here and its use.
//!
//! Settings that have such a table are a [`Keyed`] type; a [`SettingKey`] is a place in it.

use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;

use crate::suggest;

/// When a changed value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// At once: `set` changes it while the node runs.
    Effect,
    /// With the next start, from the configuration files of both nodes.
    Restart,
    /// Never: what is there has it for good. The sentence says why.
    Nothing(&'static str),
}

/// One key of the settings `S`.
pub struct KeyEntry<S> {
    /// As file and `set` spell it; `TABLE.KEY` stands in a table of its own.
    pub name: &'static str,
    pub takes: Takes,
    /// The values there are, for the manual.
    pub values: &'static str,
    /// What it means and costs, for the manual.
    pub meaning: &'static str,
    pub read: fn(&mut S, &str) -> Result<(), String>,
    pub write: fn(&S) -> String,
}

/// Settings that are read and written by a table.
pub trait Keyed: Clone + Default + 'static {
    const KEYS: &'static [KeyEntry<Self>];

    /// Keys that stand beside these in the file, and are no live ones: they are told from unknown ones.
    fn beside(name: &str) -> Option<Takes>;

    /// Takes the text of one key; on a problem nothing changes.
    ///
    /// # Errors
    /// A sentence: what is wrong with the value and what it may be.
    fn set(&mut self, key: SettingKey<Self>, text: &str) -> Result<(), String> {
        (key.entry().read)(self, text)
    }

    /// The canonical text of one key; [`Keyed::set`] reads it back.
    fn text(&self, key: SettingKey<Self>) -> String {
        (key.entry().write)(self)
    }
}

/// Settings and their table in one: a key is a field, its default, how it is read and written, when it takes effect, the values there
/// are, and what the manual says of it.
macro_rules! keyed {
    (
        $(#[$of_all:meta])*
        pub struct $settings:ident, beside |$beside_name:pat_param| $beside:block {
            $(
                $(#[$of_field:meta])*
                $name:literal => $field:ident: $type:ty = $default:expr,
                    read |$text:ident| $read:expr, write |$value:ident| $write:expr;
                    $takes:expr, $values:literal,
                    $meaning:literal;
            )+
        }
    ) => {
        $(#[$of_all])*
        pub struct $settings {
            $($(#[$of_field])* pub $field: $type,)+
        }

        impl Default for $settings {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl Keyed for $settings {
            const KEYS: &'static [KeyEntry<Self>] = &[$(KeyEntry {
                name: $name,
                takes: $takes,
                values: $values,
                meaning: $meaning,
                read: |settings, $text| {
                    settings.$field = $read?;
                    Ok(())
                },
                write: |settings| {
                    let $value = &settings.$field;
                    $write
                },
            },)+];

            fn beside($beside_name: &str) -> Option<Takes> $beside
        }
    };
}
pub(crate) use keyed;

/// A key of the settings `S`.
pub struct SettingKey<S> {
    index: usize,
    of: PhantomData<fn() -> S>,
}

impl<S: Keyed> SettingKey<S> {
    /// In the order of the table.
    pub fn all() -> impl Iterator<Item = SettingKey<S>> + Clone {
        (0..S::KEYS.len()).map(|index| SettingKey { index, of: PhantomData })
    }

    pub fn entry(self) -> &'static KeyEntry<S> {
        &S::KEYS[self.index]
    }

    pub fn as_str(self) -> &'static str {
        self.entry().name
    }

    /// # Panics
    /// There is none of this name: a mistake of the program.
    pub fn named(name: &str) -> SettingKey<S> {
        Self::all().find(|key| key.as_str() == name).expect("a key of the table")
    }

    /// A key that may be set while the node runs.
    ///
    /// # Errors
    /// A sentence with the keys there are; those that are in the file and cannot be set say so.
    pub fn parse(text: &str) -> Result<SettingKey<S>, String> {
        if let Some(key) = Self::all().find(|key| key.as_str() == text) {
            return Ok(key);
        }
        Err(match S::beside(text) {
            Some(Takes::Nothing(why)) => format!("{text:?} {why}"),
            Some(_) => format!(
                "{text:?} is read when the daemon starts; change it in the configuration file of both nodes and restart them"
            ),
            None => {
                let names = || Self::all().map(SettingKey::as_str);
                format!(
                    "{text:?} cannot be set{}; the keys are {}",
                    suggest::hint(text, names()),
                    suggest::list(names())
                )
            }
        })
    }

    /// Its row in the manual, between bars: name, default, values, whether it is live (where a table tells), meaning.
    pub fn manual_row(self, shows_live: bool) -> String {
        let KeyEntry { name, takes, values, meaning, .. } = self.entry();
        let default = S::default().text(self);
        let is_plain = default.parse::<u64>().is_ok() || matches!(default.as_str(), "true" | "false");
        let default = if is_plain { format!("`{default}`") } else { format!("`\"{default}\"`") };
        let live = match (shows_live, takes) {
            (false, _) => "",
            (true, Takes::Effect) => " yes |",
            (true, _) => " |",
        };
        let values = if values.is_empty() { String::new() } else { format!("{values} ") };
        format!("| `{name}` | {default} | {values}|{live} {meaning} |")
    }
}

// By hand: derived, they would ask the same of `S`.
impl<S> Clone for SettingKey<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for SettingKey<S> {}

impl<S> PartialEq for SettingKey<S> {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

impl<S> Eq for SettingKey<S> {}

impl<S> PartialOrd for SettingKey<S> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<S> Ord for SettingKey<S> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.index.cmp(&other.index)
    }
}

impl<S: Keyed> fmt::Display for SettingKey<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl<S: Keyed> fmt::Debug for SettingKey<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
