//! How the values of keys are written: of each kind its bounds, what stands where there is none, how it is read and written.
//!
//! A [`ValueForm`] is all that an entry of the table of keys says of values, so no key has a reader of its own beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::limits::{Bound, MODEL_LATENCY_MAX};
use crate::names::NodeName;
use crate::sheet::{Sheet, SheetSection, parse_flag};
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

/// What is reported where a key is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequiredKey {
    /// What to do, for the sentence.
    pub advice: &'static str,
    /// The table that makes the key needless.
    pub unless: Option<&'static str>,
}

/// What a key's form says of its values, for the manual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormDescription {
    /// A row of the manual's table of kinds.
    pub kind: &'static str,
    pub bounds: String,
    pub default: String,
    pub required: Option<RequiredKey>,
}

type FormRead<T> = Box<dyn Fn(&str, Around<'_>) -> Result<T, String>>;
type FormLoad<T> = Box<dyn for<'t> Fn(&mut Sheet<'t>, &SheetSection<'t>, &str, Around<'_>) -> Option<T>>;

/// How the values of a key are written.
pub(crate) struct ValueForm<T> {
    kind: &'static str,
    /// The least and the most, or the words there are; for the manual.
    bounds: String,
    /// What stands where the key does not: of a required one a placeholder, which never leaves the parser.
    pub default: T,
    default_words: Option<&'static str>,
    required: Option<RequiredKey>,
    read: FormRead<T>,
    write: Box<dyn Fn(&T) -> String>,
    /// How a value is taken from the file that is no single one.
    load: Option<FormLoad<T>>,
}

impl<T: 'static> ValueForm<T> {
    /// A form whose values are one text each: `write` makes the canonical one, and `read` reads it back.
    pub fn new(
        kind: &'static str,
        bounds: impl Into<String>,
        default: T,
        read: impl Fn(&str, Around<'_>) -> Result<T, String> + 'static,
        write: impl Fn(&T) -> String + 'static,
    ) -> Self {
        let (bounds, read, write) = (bounds.into(), Box::new(read), Box::new(write));
        Self { kind, bounds, default, default_words: None, required: None, read, write, load: None }
    }

    /// A form whose values are lists or tables.
    fn several(
        kind: &'static str,
        bounds: String,
        default: T,
        load: impl for<'t> Fn(&mut Sheet<'t>, &SheetSection<'t>, &str, Around<'_>) -> Option<T> + 'static,
    ) -> Self {
        let read = |_: &str, _: Around<'_>| Err("it is no single value".to_owned());
        Self::new(kind, bounds, default, read, |_| String::new()).loaded(load)
    }

    pub fn loaded(
        self,
        load: impl for<'t> Fn(&mut Sheet<'t>, &SheetSection<'t>, &str, Around<'_>) -> Option<T> + 'static,
    ) -> Self {
        Self { load: Some(Box::new(load)), ..self }
    }

    /// The key has to be there.
    pub fn required(self, advice: &'static str) -> Self {
        Self { required: Some(RequiredKey { advice, unless: None }), ..self }
    }

    /// The key has to be there unless this table is.
    pub fn required_without(self, table: &'static str, advice: &'static str) -> Self {
        Self { required: Some(RequiredKey { advice, unless: Some(table) }), ..self }
    }

    /// The manual's words for a default that follows from other keys.
    pub fn by_default(self, words: &'static str) -> Self {
        Self { default_words: Some(words), ..self }
    }

    pub fn about(&self) -> FormDescription {
        let default = match (self.required, self.default_words) {
            (Some(RequiredKey { unless: Some(table), .. }), _) => format!("required without `[{table}]`"),
            (Some(_), _) => "required".to_owned(),
            (None, Some(words)) => words.to_owned(),
            (None, None) => format!("`{}`", literal(&self.write(&self.default))),
        };
        FormDescription { kind: self.kind, bounds: self.bounds.clone(), default, required: self.required }
    }

    /// # Errors
    /// A sentence: what is wrong with the value and what it may be.
    pub fn read(&self, text: &str, around: Around<'_>) -> Result<T, String> {
        (self.read)(text, around)
    }

    pub fn write(&self, value: &T) -> String {
        (self.write)(value)
    }

    /// Takes the value from the file, if it is there and sound.
    pub fn load<'t>(&self, sheet: &mut Sheet<'t>, at: &SheetSection<'t>, key: &str, around: Around<'_>) -> Option<T> {
        match &self.load {
            Some(load) => load(sheet, at, key, around),
            None => sheet.value(at, key, |text| self.read(text, around)),
        }
    }
}

/// A value as TOML has it.
pub(crate) fn literal(text: &str) -> String {
    let is_plain = text.parse::<u64>().is_ok() || matches!(text, "true" | "false");
    if is_plain { text.to_owned() } else { format!("\"{text}\"") }
}

/// Numbers with a least and a most.
fn range<T: Copy + 'static>(
    kind: &'static str,
    bound: Bound<T>,
    read: impl Fn(&str, Bound<T>) -> Result<T, String> + 'static,
    write: fn(T) -> String,
) -> ValueForm<T> {
    let bounds = format!("{} to {}", spaced(&write(bound.min)), spaced(&write(bound.max)));
    ValueForm::new(kind, bounds, bound.default, move |text, _| read(text, bound), move |value| write(*value))
}

pub(crate) fn size(bound: Bound<u64>) -> ValueForm<u64> {
    range("size", bound, bounded_size, size_text)
}

pub(crate) fn duration(bound: Bound<Duration>) -> ValueForm<Duration> {
    range("duration", bound, bounded_duration, duration_text)
}

/// Bits per second.
pub(crate) fn rate(bound: Bound<u64>) -> ValueForm<u64> {
    let read = |text: &str, bound: Bound<u64>| {
        let bits = parse_rate(text)?;
        let (least, most) = (rate_text(bound.min), rate_text(bound.max));
        let out_of_bounds = || format!("{text:?} is out of bounds; use \"{least}\" to \"{most}\"");
        (bound.min..=bound.max).contains(&bits).then_some(bits).ok_or_else(out_of_bounds)
    };
    range("rate", bound, read, rate_text)
}

/// A number of `what`.
pub(crate) fn count<T: Copy + Display + PartialOrd + TryFrom<u64> + 'static>(
    bound: Bound<T>,
    what: &'static str,
) -> ValueForm<T> {
    let read = move |text: &str, bound: Bound<T>| {
        let Ok(count) = text.parse::<u64>() else {
            return Err(format!("{text:?} is not a number of {what}, such as {}", bound.default));
        };
        match T::try_from(count) {
            Ok(fits) if (bound.min..=bound.max).contains(&fits) => Ok(fits),
            _ => Err(format!("{count} {what} is out of bounds; use {} to {}", bound.min, bound.max)),
        }
    };
    range("count", bound, read, |count| count.to_string())
}

/// A number and its unit for eyes: `65 536`, `64 MiB`, `10 min`.
pub(crate) fn spaced(text: &str) -> String {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number = if digits.len() > 4 { units::size::spaced(digits) } else { digits.to_owned() };
    let unit = if unit == "m" { "min" } else { unit };
    format!("{number} {unit}").trim_end().to_owned()
}

pub(crate) fn flag(default: bool) -> ValueForm<bool> {
    ValueForm::new("flag", "`true`, `false`", default, |text, _| parse_flag(text), bool::to_string)
}

/// A word of a closed list.
pub(crate) fn word<T: Copy + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
    default: T,
    parse: fn(&str) -> Result<T, String>,
) -> ValueForm<T> {
    let words: Vec<String> = all.iter().map(|item| format!("`\"{}\"`", name(*item))).collect();
    ValueForm::new("word", words.join(", "), default, move |text, _| parse(text), move |item| name(*item).to_owned())
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
pub(crate) fn path() -> ValueForm<PathBuf> {
    let read = |text: &str, around: Around<'_>| parse_path(text, around.base);
    ValueForm::new("path", "a path", PathBuf::new(), read, |path| path.display().to_string())
}

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
pub(crate) fn address() -> ValueForm<SocketAddr> {
    let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    ValueForm::new("address", "an address", nowhere, |text, _| parse_address(text), SocketAddr::to_string)
}

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
pub(crate) fn node() -> ValueForm<NodeName> {
    let read = |text: &str, around: Around<'_>| known_node(text, around.nodes);
    ValueForm::new("name", "a node", NodeName::missing(), read, NodeName::to_string)
}

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
pub(crate) fn latency() -> ValueForm<Duration> {
    let most = duration_text(MODEL_LATENCY_MAX);
    let bounds = format!("at most {}", spaced(&most));
    let read = move |text: &str, _: Around<'_>| {
        let latency = parse_duration(text)?;
        let too_long = || format!("{text:?} is too long; the most is \"{most}\"");
        (latency <= MODEL_LATENCY_MAX).then_some(latency).ok_or_else(too_long)
    };
    ValueForm::new("duration", bounds, Duration::ZERO, read, |latency| duration_text(*latency))
}

/// A value, or none of it where the key is not there.
pub(crate) fn maybe<T: 'static>(form: ValueForm<T>) -> ValueForm<Option<T>> {
    let (read, write) = (form.read, form.write);
    let read = move |text: &str, around: Around<'_>| read(text, around).map(Some);
    ValueForm::new(form.kind, form.bounds, None, read, move |value| value.as_ref().map(&write).unwrap_or_default())
}

/// A value, or none of it by a word, whose purpose is said behind it.
pub(crate) fn or<T: 'static>(word: &'static str, purpose: &'static str, form: ValueForm<T>) -> ValueForm<Option<T>> {
    let (read, write) = (form.read, form.write);
    let read = move |text: &str, around: Around<'_>| match text == word {
        true => Ok(None),
        false => read(text, around).map(Some).map_err(|reason| format!("{reason}; or \"{word}\"{purpose}")),
    };
    ValueForm::new(form.kind, form.bounds, None, read, move |value| value.as_ref().map_or(word.to_owned(), &write))
}

/// A list of values; each sound one has a path of its own.
pub(crate) fn list<T: 'static>(bounds: String, ValueForm { kind, read, .. }: ValueForm<T>) -> ValueForm<Vec<T>> {
    ValueForm::several(kind, bounds, Vec::new(), move |sheet, at, key, around| {
        sheet.values(at, key, |text| read(text, around))
    })
}

/// What stands in the table of keys for the name of a node. No node is called so.
pub(crate) const EACH: &str = "NODE";

/// A value for each of a group's nodes: in a table under the key, or by the node's name beside the other keys ([`EACH`]).
/// `advice`: each node has to have one, and the sentence with what to do ends with its name.
pub(crate) fn per_node<T: 'static>(
    advice: Option<&'static str>,
    form: ValueForm<T>,
) -> ValueForm<BTreeMap<NodeName, T>> {
    let ValueForm { kind, bounds, read, .. } = form;
    let form = ValueForm::several(kind, bounds, BTreeMap::new(), move |sheet, at, key, around| {
        let names: Vec<&str> = around.members.iter().map(|member| member.as_str()).collect();
        let table = if key == EACH { at.clone() } else { sheet.section(at, key)? };
        // Of a member that is not known its key would be reported as unknown.
        if key != EACH && names.len() == 2 {
            sheet.only(&table, &names);
        }
        let mut one = |member: &NodeName| {
            if let Some(advice) = advice {
                sheet.absent(&table, member.as_str(), &format!("{advice} {member}"));
            }
            let value = sheet.value(&table, member.as_str(), |text| read(text, around))?;
            Some((member.clone(), value))
        };
        Some(around.members.iter().filter_map(|member| one(member)).collect())
    });
    let form = form.by_default("none");
    ValueForm { required: advice.map(|advice| RequiredKey { advice, unless: None }), ..form }
}
