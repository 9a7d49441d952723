//! A file of overrides: whole, or not believed.

use std::io::Read;
use std::path::Path;

use toml::de::DeTable;

use crate::durable;
use crate::limits::CONFIG_BYTES_MAX;
use crate::problem::Problems;
use crate::sheet::{Sheet, SheetSection};

/// The last line of each: what was cut does not have it.
const END: &str = "# end";

/// Which overrides a file holds.
pub struct OverridesKind {
    /// The file's first line.
    pub first: &'static str,
    /// The command that writes it.
    pub command: &'static str,
}

impl OverridesKind {
    /// Replaces the file durably: written beside it, flushed, renamed, directory flushed.
    ///
    /// # Errors
    /// A sentence; the old file stands then.
    pub fn replace(&self, file: &Path, text: &str) -> Result<(), String> {
        durable::replace(file, format!("{}\n{text}{END}\n", self.first).as_bytes())
            .map_err(|error| format!("the overrides {} cannot be written: {error}", file.display()))
    }

    /// The file's text; of a missing one it is empty.
    ///
    /// # Errors
    /// It cannot be read, or is not whole.
    pub fn read(&self, file: &Path) -> Result<String, Problems> {
        let cannot = |error: std::io::Error| Problems::one(file, format!("the overrides cannot be read: {error}"));
        let mut text = String::new();
        match durable::open(file) {
            Ok(opened) => opened.take(CONFIG_BYTES_MAX).read_to_string(&mut text).map_err(cannot)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(text),
            Err(error) => return Err(cannot(error)),
        };
        let wrong = self.what_is_wrong(&text).map(|wrong| Problems::one(file, wrong));
        wrong.map_or(Ok(text), Err)
    }

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

/// What `read` makes of a text that came from `file`.
///
/// # Errors
/// Every problem of the text. Nothing of a damaged file is used: half of an operator's wishes is none of them.
pub fn parse<T>(
    file: &Path,
    text: &str,
    read: impl for<'t> FnOnce(&mut Sheet<'t>, &SheetSection<'t>) -> T,
) -> Result<T, Problems> {
    let (tree, errors) = DeTable::parse_recoverable(text);
    let mut sheet = Sheet::new(text);
    if sheet.syntax(&errors) {
        let root = sheet.root(&tree);
        let read = read(&mut sheet, &root);
        if sheet.problems.is_empty() {
            return Ok(read);
        }
    }
    Err(Problems::new(file, sheet.problems))
}
