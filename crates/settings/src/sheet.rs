//! Typed reading of a TOML text that goes on after a problem.
//!
//! Deserialising stops at the first error; an operator wants the whole list. So the text becomes a tree with positions,
//! and every read either yields a value or writes down a problem and lets the reader go on. The position of each value
//! read is kept under its dotted path, so that later checks on plain values can still point at the line.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::problem::{ConfigProblem, LineStarts, TextPosition};
use crate::suggest;

pub(crate) type TextSpan = Range<usize>;

/// One table of the file: where it is, what it is called, what it holds.
#[derive(Clone)]
pub(crate) struct SheetSection<'t> {
    /// Dotted path from the top; empty for the top itself.
    pub path: String,
    /// How sentences call this table where that is not its path: one of a list.
    called: Option<String>,
    pub span: TextSpan,
    table: &'t DeTable<'t>,
}

impl<'t> SheetSection<'t> {
    pub fn keys(&self) -> impl Iterator<Item = &'t str> + use<'t> {
        self.table.keys().map(|key| key.get_ref().as_ref())
    }

    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// How sentences call this table.
    fn title(&self) -> String {
        match &self.called {
            Some(called) => format!("in {called}"),
            None if self.path.is_empty() => "at the top of the file".to_owned(),
            None => format!("in [{}]", self.path),
        }
    }

    /// The raw table under `key`, without any complaint.
    pub fn table(&self, key: &str) -> Option<&'t DeTable<'t>> {
        self.entry(key).and_then(|(_, value)| value.get_ref().as_table())
    }

    /// Whether a list stands under `key`.
    pub fn is_list(&self, key: &str) -> bool {
        self.entry(key).is_some_and(|(_, value)| matches!(value.get_ref(), DeValue::Array(_)))
    }

    /// Where a key of this table stands.
    pub fn span_of(&self, key: &str) -> TextSpan {
        self.entry(key).map_or_else(|| self.span.clone(), |(span, _)| span)
    }

    fn entry(&self, key: &str) -> Option<(TextSpan, &'t toml::Spanned<DeValue<'t>>)> {
        self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(name, value)| (name.span(), value))
    }
}

/// The reader of one text: its problems so far and the positions of what was read.
pub(crate) struct Sheet<'t> {
    text: &'t str,
    lines: LineStarts<'t>,
    pub problems: Vec<ConfigProblem>,
    positions: BTreeMap<String, TextSpan>,
}

impl<'t> Sheet<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { text, lines: LineStarts::of(text), problems: Vec::new(), positions: BTreeMap::new() }
    }

    /// Takes over the parser's own complaints. Returns whether the tree is worth reading: after a syntax error its
    /// content is a guess; a key given twice leaves it sound.
    pub fn syntax(&mut self, errors: &[toml::de::Error]) -> bool {
        let duplicates: Vec<TextSpan> = errors
            .iter()
            .filter(|error| error.message().starts_with("duplicate key"))
            .filter_map(toml::de::Error::span)
            .collect();
        for span in &duplicates {
            // A table given twice is one problem, not one more for each of its keys.
            let header = self.header_before(span.start);
            if !duplicates.iter().any(|other| other != span && self.line_start(other.start) == header) {
                let name = self.text.get(span.clone()).unwrap_or("this name").trim();
                let message = format!("{name} appears twice here; names are unique, so remove or rename one");
                self.at(span.clone(), message);
            }
        }
        let broken = errors.iter().filter(|error| !error.message().starts_with("duplicate key"));
        for error in broken.clone() {
            let span = error.span().unwrap_or(0..0);
            self.at(span, format!("this is not TOML: {}", error.message()));
        }
        broken.count() == 0
    }

    fn line_start(&self, offset: usize) -> usize {
        let before = self.text.get(..offset).unwrap_or_default();
        before.rfind('\n').map_or(0, |newline| newline + 1)
    }

    /// Start of the nearest line above `offset`'s own that opens a table.
    fn header_before(&self, offset: usize) -> usize {
        let above = self.text.get(..self.line_start(offset)).unwrap_or_default();
        above.rfind("\n[").map_or(0, |newline| newline + 1)
    }

    pub fn at(&mut self, span: TextSpan, message: impl Into<String>) {
        let position = Some(self.lines.position(span.start));
        self.problems.push(ConfigProblem { position, message: message.into() });
    }

    /// A problem with the value at a dotted path; without a place when nothing was read there.
    pub fn at_path(&mut self, path: &str, message: impl Into<String>) {
        let position = self.positions.get(path).map(|span| self.lines.position(span.start));
        self.problems.push(ConfigProblem { position, message: message.into() });
    }

    /// Whether something was read at a dotted path.
    pub fn has(&self, path: &str) -> bool {
        self.positions.contains_key(path)
    }

    /// The positions of everything read, by dotted path.
    pub fn positions(&self) -> BTreeMap<String, TextPosition> {
        self.positions.iter().map(|(path, span)| (path.clone(), self.lines.position(span.start))).collect()
    }

    pub fn root(&self, table: &'t toml::Spanned<DeTable<'t>>) -> SheetSection<'t> {
        SheetSection { path: String::new(), called: None, span: 0..0, table: table.get_ref() }
    }

    /// Complains about every key that is not in `known`.
    pub fn only(&mut self, section: &SheetSection<'t>, known: &[&str]) {
        for key in section.table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
            let hint = suggest::hint(key.get_ref(), known.iter().copied());
            let accepted = if hint.is_empty() {
                format!("; known keys are {}", suggest::list(known.iter().copied()))
            } else {
                String::new()
            };
            self.at(key.span(), format!("unknown key {:?} {}{hint}{accepted}", key.get_ref(), section.title()));
        }
    }

    /// A sub-table, if the key is present.
    pub fn section(&mut self, parent: &SheetSection<'t>, key: &str) -> Option<SheetSection<'t>> {
        let (span, value) = parent.entry(key)?;
        let path = parent.path_of(key);
        self.positions.insert(path.clone(), span.clone());
        match value.get_ref() {
            DeValue::Table(table) => Some(SheetSection { path, called: None, span, table }),
            other => {
                self.at(value.span(), format!("{key:?} {} is {}, not a table", parent.title(), kind(other)));
                None
            }
        }
    }

    /// The tables of a list `[[KEY]]`, in the order of the file; their paths count from 0 and their sentences from 1.
    pub fn sections(&mut self, parent: &SheetSection<'t>, key: &str) -> Vec<SheetSection<'t>> {
        let Some((span, value)) = parent.entry(key) else { return Vec::new() };
        let advice = format!("write each as a table of its own, under a line [[{key}]]");
        let DeValue::Array(items) = value.get_ref() else {
            self.at(span, format!("{key:?} {} is {}, not a list; {advice}", parent.title(), kind(value.get_ref())));
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let (path, span) = (format!("{}.{at}", parent.path_of(key)), item.span());
            match item.get_ref() {
                DeValue::Table(table) => {
                    self.positions.insert(path.clone(), span.clone());
                    let called = Some(format!("[[{key}]] number {}", at + 1));
                    sections.push(SheetSection { path, called, span, table });
                }
                other => self.at(span, format!("{key:?} holds {}, not a table; {advice}", kind(other))),
            }
        }
        sections
    }

    /// A value of `key`, if present and sound: text, numbers and booleans all arrive as their text.
    pub fn value<T>(
        &mut self,
        section: &SheetSection<'t>,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let (span, value) = section.entry(key)?;
        self.positions.insert(section.path_of(key), span);
        self.parsed(key, value, parse)
    }

    /// Complains when `key` is not there; one that is there but unsound had its complaint already.
    pub fn absent(&mut self, section: &SheetSection<'t>, key: &str, advice: &str) {
        if section.entry(key).is_some() {
            return;
        }
        let message = format!("{key:?} is missing {}; {advice}", section.title());
        if section.path.is_empty() {
            self.problems.push(ConfigProblem { position: None, message });
        } else {
            self.at(section.span.clone(), message);
        }
    }

    /// A list of texts; each sound item with its own place under `key.N`.
    pub fn values<T>(
        &mut self,
        section: &SheetSection<'t>,
        key: &str,
        mut parse: impl FnMut(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let (span, value) = section.entry(key)?;
        self.positions.insert(section.path_of(key), span);
        let DeValue::Array(array) = value.get_ref() else {
            self.at(value.span(), format!("{key:?} is {}, not a list such as [\"...\"]", kind(value.get_ref())));
            return None;
        };
        if array.is_empty() {
            self.at(value.span(), format!("{key}: the list is empty; leave the key out for its default"));
        }
        let mut items = Vec::new();
        for item in array.iter() {
            if let Some(parsed) = self.parsed(key, item, &mut parse) {
                self.positions.insert(format!("{}.{}", section.path_of(key), items.len()), item.span());
                items.push(parsed);
            }
        }
        Some(items)
    }

    fn parsed<T>(
        &mut self,
        key: &str,
        value: &toml::Spanned<DeValue<'t>>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::Boolean(flag) => flag.to_string(),
            other => {
                self.at(value.span(), format!("{key:?} is {}, not a single value", kind(other)));
                return None;
            }
        };
        match parse(&text) {
            Ok(parsed) => Some(parsed),
            Err(reason) => {
                self.at(value.span(), format!("{key}: {reason}"));
                None
            }
        }
    }
}

/// # Errors
/// A sentence, when the text is neither `true` nor `false`.
pub(crate) fn parse_flag(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(format!("{other:?} is neither true nor false")),
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
