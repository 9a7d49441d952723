//! The one table of keys: name, values, default, meaning, and when a changed value counts. The file, `set`, `status`, the example, the
//! manual and the checks go by it, so a new key is one entry here and its use.
//!
//! Settings that have such a table are a [`Keyed`] type; a [`SettingKey`] is a place in it.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use crate::forms::{Around, EACH};
pub use crate::forms::{FormDescription, RequiredKey};
use crate::sheet::{Sheet, SheetSection};
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

/// How the example shows a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExampleStyle {
    /// With its default, or what the example has for a required one, and a remark: above it if it has several lines.
    Value(&'static str),
    /// As a comment with this value, and a remark.
    Choice(&'static str, &'static str),
}

/// A key for readers, whatever settings it is of.
pub struct KeyRow {
    /// As file and `set` spell it; `TABLE.KEY` stands in a table of its own.
    pub name: &'static str,
    pub takes: Takes,
    pub shown: ExampleStyle,
    /// What it means and costs, for the manual.
    pub meaning: &'static str,
    pub about: fn() -> FormDescription,
}

/// One key of the settings `S`.
pub struct KeyEntry<S> {
    pub row: KeyRow,
    pub(crate) load: for<'t> fn(&mut S, &mut Sheet<'t>, &SheetSection<'t>, &str, Around<'_>),
    pub(crate) read: fn(&mut S, &str) -> Result<(), String>,
    pub(crate) write: fn(&S) -> String,
}

/// Settings that are read and written by a table.
pub trait Keyed: Clone + 'static {
    const KEYS: &'static [KeyEntry<Self>];

    /// Keys that stand beside these in the file, and are no live ones: they are told from unknown ones.
    fn beside(_name: &str) -> Option<Takes> {
        None
    }

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

/// Settings and their table in one: a key is a field, its form, its remark in the example, and what the manual says of it. The head says
/// when they take effect; of one that `stays` the sentence says why. The example shows a `choice` where a default says little. Fields
/// under `also` are no keys: who makes the settings has them.
macro_rules! keyed {
    ($(#[$of_all:meta])* pub struct $settings:ident, takes($takes:expr) $(, beside($beside:expr))? { also { $($also:tt)* } $($keys:tt)+ }) => {
        $crate::keys::keyed! { @all $(#[$of_all])* pub struct $settings, takes($takes) $(, beside($beside))? { $($also)* } { $($keys)+ } }
    };
    ($(#[$of_all:meta])* pub struct $settings:ident, takes($takes:expr) $(, beside($beside:expr))? { $($keys:tt)+ }) => {
        $crate::keys::keyed! { @all $(#[$of_all])* pub struct $settings, takes($takes) $(, beside($beside))? {} { $($keys)+ } }

        impl Default for $settings {
            fn default() -> Self {
                Self::of()
            }
        }
    };
    (
        @all $(#[$of_all:meta])* pub struct $settings:ident, takes($takes:expr) $(, beside($beside:expr))? {
            $($(#[$of_also:meta])* $also:ident: $also_type:ty,)*
        } {
            $(
                $(#[$of_field:meta])*
                $name:literal => $field:ident: $type:ty = $form:expr;
                    $(stays $why:expr,)? $(choice $choice:literal,)? $remark:literal,
                    $meaning:literal;
            )+
        }
    ) => {
        $(#[$of_all])*
        pub struct $settings {
            $($(#[$of_also])* pub $also: $also_type,)*
            $($(#[$of_field])* pub $field: $type,)+
        }

        impl $settings {
            /// As it stands before anything was read.
            pub(crate) fn of($($also: $also_type),*) -> Self {
                Self { $($also,)* $($field: $form.default,)+ }
            }
        }

        impl $crate::keys::Keyed for $settings {
            const KEYS: &'static [$crate::keys::KeyEntry<Self>] = &[$($crate::keys::KeyEntry {
                row: $crate::keys::KeyRow {
                    name: $name,
                    takes: [$($crate::keys::Takes::Nothing($why),)? $takes][0],
                    shown: [$($crate::keys::ExampleStyle::Choice($choice, $remark),)? $crate::keys::ExampleStyle::Value($remark)][0],
                    meaning: $meaning,
                    about: || $form.about(),
                },
                load: |settings, sheet, section, key, around| {
                    if let Some(value) = $form.load(sheet, section, key, around) {
                        settings.$field = value;
                    }
                },
                read: |settings, text| {
                    settings.$field = $form.read(text, $crate::forms::Around::nothing())?;
                    Ok(())
                },
                write: |settings| $form.write(&settings.$field),
            },)+];

            $(
                fn beside(name: &str) -> Option<$crate::keys::Takes> {
                    ($beside)(name)
                }
            )?
        }
    };
}
pub(crate) use keyed;

/// The names of the keys, those of a table of their own in full.
pub(crate) fn names<S: Keyed>() -> impl Iterator<Item = &'static str> + Clone {
    SettingKey::<S>::all().map(SettingKey::as_str)
}

/// What may stand in the settings' own table: a table of keys counts once.
pub(crate) fn known<S: Keyed>() -> Vec<&'static str> {
    known_of(names::<S>())
}

/// The same for the names of several settings that stand in one table.
pub(crate) fn known_of(names: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let mut known: Vec<&str> = Vec::new();
    for name in names.filter(|name| *name != EACH).map(in_own_table) {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    known
}

fn in_own_table(name: &'static str) -> &'static str {
    name.split_once('.').map_or(name, |(table, _)| table)
}

/// When a key takes effect, if it is one of these.
pub(crate) fn takes<S: Keyed>(name: &str) -> Option<Takes> {
    SettingKey::<S>::all().find(|key| key.as_str() == name).map(|key| key.entry().row.takes)
}

/// Tables within a table, by their names.
pub(crate) type KeyTables<'t> = BTreeMap<&'static str, SheetSection<'t>>;

/// Those tables that keys of these names stand in. Keys of a table of their own are the only ones in it.
pub(crate) fn tables<'t>(
    sheet: &mut Sheet<'t>,
    section: &SheetSection<'t>,
    names: impl Iterator<Item = &'static str> + Clone,
) -> KeyTables<'t> {
    let mut tables = KeyTables::new();
    for table in known_of(names.clone().filter(|name| name.contains('.'))) {
        if let Some(found) = sheet.section(section, table) {
            let inside = |name: &'static str| name.strip_prefix(table)?.strip_prefix('.');
            sheet.only(&found, &names.clone().filter_map(inside).collect::<Vec<_>>());
            tables.insert(table, found);
        }
    }
    tables
}

/// Reads all keys, and complains of those that are required and not there.
pub(crate) fn read<'t, S: Keyed>(
    sheet: &mut Sheet<'t>,
    section: &SheetSection<'t>,
    settings: &mut S,
    around: Around<'_>,
) {
    let tables = tables(sheet, section, names::<S>());
    read_beside(sheet, (section, &tables), settings, around);
}

/// The same for settings that share a table, and the tables within it, with others.
pub(crate) fn read_beside<'t, S: Keyed>(
    sheet: &mut Sheet<'t>,
    (section, tables): (&SheetSection<'t>, &KeyTables<'t>),
    settings: &mut S,
    around: Around<'_>,
) {
    for key in SettingKey::<S>::all() {
        let (table, name) = match key.as_str().split_once('.') {
            Some((table, name)) => (tables.get(table), name),
            None => (Some(section), key.as_str()),
        };
        let Some(table) = table else { continue };
        if let Some(RequiredKey { advice, unless }) = (key.entry().row.about)().required
            && name != EACH
            && unless.is_none_or(|other| section.table(other).is_none())
        {
            sheet.absent(table, name, advice);
        }
        (key.entry().load)(settings, sheet, table, name, around);
    }
}

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
        self.entry().row.name
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
                "{text:?} is read when its group or the daemon starts; change it in the configuration file of both nodes, and type 'farshore \
                 config apply' on both"
            ),
            None => {
                let (hint, keys) = (suggest::hint(text, names::<S>()), suggest::list(names::<S>()));
                format!("{text:?} cannot be set{hint}; the keys are {keys}")
            }
        })
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
