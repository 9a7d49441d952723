//! How the values of keys are written: of each kind its bounds, what stands where there is none, how it is read and written.
//!
//! A [`Form`] is all that an entry of the table of keys says of values, so no key has a reader of its own beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::limits::{Bound, MODEL_LATENCY_MAX};
use crate::names::NodeName;
use crate::sheet::{Section, Sheet, parse_flag};
use crate::suggest;
use units::exact::{bounded_duration, bounded_size, duration_text, parse_duration, parse_rate, rate_text, size_text};

/// What a value may refer to.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    /// Where relative paths begin.
    pub base: &'a Path,
    /// The declared node names, good or bad.
    pub nodes: &'a BTreeSet<&'a str>,
    /// The nodes of the group, those that are known.
    pub members: &'a [&'a NodeName],
}

impl Around<'static> {
    /// Of a value that comes alone, as `set` has it.
    pub fn nothing() -> Self {
        static NO_NODES: BTreeSet<&str> = BTreeSet::new();
        Self { base: Path::new("/"), nodes: &NO_NODES, members: &[] }
    }
}

/// What is told where a key is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Required {
    /// What to do, for the sentence.
    pub advice: &'static str,
    /// The table that makes the key needless.
    pub unless: Option<&'static str>,
}

pub(crate) trait Form {
    type Value;

    /// A row of the manual's table of kinds.
    fn kind(&self) -> &'static str;

    /// The least and the most, or the words there are; for the manual.
    fn bounds(&self) -> String;

    /// What stands where the key does not: of a required one a placeholder, which never leaves the parser.
    fn default(&self) -> Self::Value;

    /// # Errors
    /// A sentence: what is wrong with the value and what it may be.
    fn read(&self, text: &str, around: Around<'_>) -> Result<Self::Value, String>;

    /// The canonical text; [`Form::read`] reads it back.
    fn write(&self, value: &Self::Value) -> String;

    fn required(&self) -> Option<Required> {
        None
    }

    /// The default as the manual has it.
    fn default_words(&self) -> String {
        format!("`{}`", literal(&self.write(&self.default())))
    }

    /// Takes the value from the file, if it is there and sound.
    fn load<'t>(
        &self,
        sheet: &mut Sheet<'t>,
        section: &Section<'t>,
        key: &str,
        around: Around<'_>,
    ) -> Option<Self::Value> {
        sheet.value(section, key, |text| self.read(text, around))
    }
}

/// A value as TOML has it.
pub(crate) fn literal(text: &str) -> String {
    let is_plain = text.parse::<u64>().is_ok() || matches!(text, "true" | "false");
    if is_plain { text.to_owned() } else { format!("\"{text}\"") }
}

/// Numbers with a least and a most.
pub(crate) struct Range<T> {
    kind: &'static str,
    bound: Bound<T>,
    read: fn(&str, Bound<T>) -> Result<T, String>,
    write: fn(T) -> String,
}

pub(crate) fn size(bound: Bound<u64>) -> Range<u64> {
    Range { kind: "size", bound, read: bounded_size, write: size_text }
}

pub(crate) fn duration(bound: Bound<Duration>) -> Range<Duration> {
    Range { kind: "duration", bound, read: bounded_duration, write: duration_text }
}

/// Bits per second.
pub(crate) fn rate(bound: Bound<u64>) -> Range<u64> {
    let read = |text: &str, bound: Bound<u64>| {
        let bits = parse_rate(text)?;
        let out =
            || format!("{text:?} is out of bounds; use \"{}\" to \"{}\"", rate_text(bound.min), rate_text(bound.max));
        (bound.min..=bound.max).contains(&bits).then_some(bits).ok_or_else(out)
    };
    Range { kind: "rate", bound, read, write: rate_text }
}

pub(crate) fn count<T: Display>(bound: Bound<T>, read: fn(&str, Bound<T>) -> Result<T, String>) -> Range<T> {
    Range { kind: "count", bound, read, write: |count| count.to_string() }
}

pub(crate) fn parse_count<T: Copy + Display + PartialOrd + TryFrom<u64>>(
    text: &str,
    bound: Bound<T>,
    what: &str,
) -> Result<T, String> {
    let Ok(count) = text.parse::<u64>() else {
        return Err(format!("{text:?} is not a number of {what}, such as {}", bound.default));
    };
    match T::try_from(count) {
        Ok(fits) if (bound.min..=bound.max).contains(&fits) => Ok(fits),
        _ => Err(format!("{count} {what} is out of bounds; use {} to {}", bound.min, bound.max)),
    }
}

impl<T: Copy> Form for Range<T> {
    type Value = T;

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn bounds(&self) -> String {
        format!("{} to {}", spaced(&(self.write)(self.bound.min)), spaced(&(self.write)(self.bound.max)))
    }

    fn default(&self) -> T {
        self.bound.default
    }

    fn read(&self, text: &str, _: Around<'_>) -> Result<T, String> {
        (self.read)(text, self.bound)
    }

    fn write(&self, value: &T) -> String {
        (self.write)(*value)
    }
}

/// A number and its unit for eyes: `65 536`, `64 MiB`, `10 min`.
fn spaced(text: &str) -> String {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let mut number = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && digits.len() > 4 && (digits.len() - at).is_multiple_of(3) {
            number.push(' ');
        }
        number.push(digit);
    }
    let unit = if unit == "m" { "min" } else { unit };
    format!("{number} {unit}").trim_end().to_owned()
}

/// True or false.
pub(crate) struct Flag(pub bool);

impl Form for Flag {
    type Value = bool;

    fn kind(&self) -> &'static str {
        "flag"
    }

    fn bounds(&self) -> String {
        "`true`, `false`".to_owned()
    }

    fn default(&self) -> bool {
        self.0
    }

    fn read(&self, text: &str, _: Around<'_>) -> Result<bool, String> {
        parse_flag(text)
    }

    fn write(&self, value: &bool) -> String {
        value.to_string()
    }
}

/// A kind of value with words or a grammar of its own.
pub(crate) struct Own<T> {
    pub kind: &'static str,
    pub bounds: fn() -> String,
    pub default: fn() -> T,
    pub read: fn(&str, Around<'_>) -> Result<T, String>,
    pub write: fn(&T) -> String,
}

impl<T> Form for Own<T> {
    type Value = T;

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn bounds(&self) -> String {
        (self.bounds)()
    }

    fn default(&self) -> T {
        (self.default)()
    }

    fn read(&self, text: &str, around: Around<'_>) -> Result<T, String> {
        (self.read)(text, around)
    }

    fn write(&self, value: &T) -> String {
        (self.write)(value)
    }
}

/// The words of a closed list, for the manual.
pub(crate) fn words<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str) -> String {
    all.iter().map(|item| format!("`\"{}\"`", name(*item))).collect::<Vec<_>>().join(", ")
}

/// # Errors
/// A sentence with the words there are.
pub(crate) fn one_of<T: Copy>(
    what: &str,
    text: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<T, String> {
    all.iter().copied().find(|item| name(*item) == text).ok_or_else(|| {
        let names = || all.iter().map(|item| name(*item));
        format!("{text:?} is not a {what}{}; choose one of {}", suggest::hint(text, names()), suggest::list(names()))
    })
}

/// A path of this machine; a relative one is taken from the directory of the file.
pub(crate) const PATH: Own<PathBuf> = Own {
    kind: "path",
    bounds: || "a path".to_owned(),
    default: PathBuf::new,
    read: |text, around| parse_path(text, around.base),
    write: |path| path.display().to_string(),
};

fn parse_path(text: &str, base: &Path) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("the path is empty".to_owned());
    }
    if text.contains('\0') {
        return Err("the path contains a zero byte".to_owned());
    }
    // Through `components` so that "/dev//sdb" and "/dev/./sdb" are the same text.
    Ok(base.join(text).components().collect())
}

/// An IP address and port. Names are refused: what they mean may differ between the two nodes and change at night.
pub(crate) const ADDRESS: Own<SocketAddr> = Own {
    kind: "address",
    bounds: || "an address".to_owned(),
    default: || SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
    read: |text, _| parse_address(text),
    write: SocketAddr::to_string,
};

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return if address.port() == 0 {
            Err(format!("{text:?} has port 0; give a port, such as 7337"))
        } else {
            Ok(address)
        };
    }
    let advice = "write an IP address and port, such as \"10.0.0.1:7337\" or \"[fd00::1]:7337\"";
    if text.parse::<IpAddr>().is_ok() {
        return Err(format!("{text:?} has no port; {advice}"));
    }
    Err(format!("{text:?} is not an address (host names are not looked up); {advice}"))
}

/// One of the nodes that the file declares.
pub(crate) const NODE: Own<NodeName> = Own {
    kind: "name",
    bounds: || "a node".to_owned(),
    default: NodeName::missing,
    read: |text, around| known_node(text, around.nodes),
    write: NodeName::to_string,
};

fn known_node(text: &str, nodes: &BTreeSet<&str>) -> Result<NodeName, String> {
    if !nodes.contains(text) {
        let hint = suggest::hint(text, nodes.iter().copied());
        let names = suggest::list(nodes.iter().copied());
        return Err(format!("no node is called {text:?}{hint}; the nodes of this file are {names}"));
    }
    // A declared node with a bad name has its problem at its own table.
    Ok(NodeName::parse(text).unwrap_or_else(|_| NodeName::missing()))
}

/// How slow a disk is made.
pub(crate) const LATENCY: Own<Duration> = Own {
    kind: "duration",
    bounds: || format!("at most {}", spaced(&duration_text(MODEL_LATENCY_MAX))),
    default: || Duration::ZERO,
    read: |text, _| {
        let latency = parse_duration(text)?;
        let too_long = || format!("{text:?} is too long; the most is \"{}\"", duration_text(MODEL_LATENCY_MAX));
        (latency <= MODEL_LATENCY_MAX).then_some(latency).ok_or_else(too_long)
    },
    write: |latency| duration_text(*latency),
};

/// A form with something about it that is not the value's: delegates all that is.
macro_rules! as_inside {
    () => {
        fn kind(&self) -> &'static str {
            self.form.kind()
        }

        fn bounds(&self) -> String {
            self.form.bounds()
        }
    };
    (value) => {
        type Value = F::Value;

        as_inside!();

        fn default(&self) -> F::Value {
            self.form.default()
        }

        fn read(&self, text: &str, around: Around<'_>) -> Result<F::Value, String> {
            self.form.read(text, around)
        }

        fn write(&self, value: &F::Value) -> String {
            self.form.write(value)
        }

        fn load<'t>(&self, sheet: &mut Sheet<'t>, at: &Section<'t>, key: &str, around: Around<'_>) -> Option<F::Value> {
            self.form.load(sheet, at, key, around)
        }
    };
}

/// A key that has to be there.
pub(crate) struct Needed<F> {
    pub required: Required,
    pub form: F,
}

pub(crate) fn required<F: Form>(advice: &'static str, form: F) -> Needed<F> {
    Needed { required: Required { advice, unless: None }, form }
}

impl<F: Form> Form for Needed<F> {
    as_inside!(value);

    fn required(&self) -> Option<Required> {
        Some(self.required)
    }

    fn default_words(&self) -> String {
        self.required.unless.map_or("required".to_owned(), |table| format!("required without `[{table}]`"))
    }
}

/// A default that follows from other keys: the words are the manual's.
pub(crate) struct Follows<F> {
    pub words: &'static str,
    pub form: F,
}

impl<F: Form> Form for Follows<F> {
    as_inside!(value);

    fn default_words(&self) -> String {
        self.words.to_owned()
    }
}

/// A value, or none of it: by a word, or because the key is not there.
pub(crate) struct Maybe<F> {
    word: &'static str,
    /// What the word does, for the sentence about a bad value.
    purpose: &'static str,
    form: F,
}

pub(crate) fn maybe<F: Form>(form: F) -> Maybe<F> {
    or("", "", form)
}

pub(crate) fn or<F: Form>(word: &'static str, purpose: &'static str, form: F) -> Maybe<F> {
    Maybe { word, purpose, form }
}

impl<F: Form> Form for Maybe<F> {
    type Value = Option<F::Value>;

    as_inside!();

    fn default(&self) -> Option<F::Value> {
        None
    }

    fn read(&self, text: &str, around: Around<'_>) -> Result<Option<F::Value>, String> {
        let (word, purpose) = (self.word, self.purpose);
        match self.form.read(text, around) {
            _ if !word.is_empty() && text == word => Ok(None),
            Err(reason) if !word.is_empty() => Err(format!("{reason}; or \"{word}\"{purpose}")),
            read => read.map(Some),
        }
    }

    fn write(&self, value: &Option<F::Value>) -> String {
        value.as_ref().map_or(self.word.to_owned(), |value| self.form.write(value))
    }
}

/// A list of values; each sound one has a place of its own.
pub(crate) struct List<F> {
    pub form: F,
}

impl<F: Form> Form for List<F> {
    type Value = Vec<F::Value>;

    as_inside!();

    fn default(&self) -> Vec<F::Value> {
        Vec::new()
    }

    fn read(&self, text: &str, around: Around<'_>) -> Result<Vec<F::Value>, String> {
        self.form.read(text, around).map(|value| vec![value])
    }

    fn write(&self, values: &Vec<F::Value>) -> String {
        values.iter().map(|value| self.form.write(value)).collect::<Vec<_>>().join(", ")
    }

    fn load<'t>(&self, sheet: &mut Sheet<'t>, at: &Section<'t>, key: &str, around: Around<'_>) -> Option<Self::Value> {
        sheet.values(at, key, |text| self.form.read(text, around))
    }
}

/// What stands in the table of keys for the name of a node. No node is called so.
pub(crate) const EACH: &str = "NODE";

/// A value for each of a group's nodes: in a table under the key, or by the node's name beside the other keys ([`EACH`]).
pub(crate) struct PerNode<F> {
    /// Where each node has to have one: what to do, for the sentence, which ends with the node's name.
    pub advice: Option<&'static str>,
    pub form: F,
}

impl<F: Form> Form for PerNode<F> {
    type Value = BTreeMap<NodeName, F::Value>;

    as_inside!();

    fn default(&self) -> Self::Value {
        BTreeMap::new()
    }

    fn required(&self) -> Option<Required> {
        self.advice.map(|advice| Required { advice, unless: None })
    }

    fn default_words(&self) -> String {
        self.advice.map_or("none", |_| "required").to_owned()
    }

    fn read(&self, _: &str, _: Around<'_>) -> Result<Self::Value, String> {
        Err("each node has a value of its own; write a table".to_owned())
    }

    fn write(&self, values: &Self::Value) -> String {
        values.iter().map(|(node, value)| format!("{node} = {}", self.form.write(value))).collect::<Vec<_>>().join(", ")
    }

    fn load<'t>(&self, sheet: &mut Sheet<'t>, at: &Section<'t>, key: &str, around: Around<'_>) -> Option<Self::Value> {
        let names: Vec<&str> = around.members.iter().map(|member| member.as_str()).collect();
        let table = if key == EACH { at.clone() } else { sheet.section(at, key)? };
        // Of a member that is not known its key would be told to be unknown.
        if key != EACH && names.len() == 2 {
            sheet.only(&table, &names);
        }
        let mut one = |member: &NodeName| {
            if let Some(advice) = self.advice {
                sheet.absent(&table, member.as_str(), &format!("{advice} {member}"));
            }
            let value = sheet.value(&table, member.as_str(), |text| self.form.read(text, around))?;
            Some((member.clone(), value))
        };
        Some(around.members.iter().filter_map(|member| one(member)).collect())
    }
}
