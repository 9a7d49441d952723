//! Parts of pages that a program makes. Each stands between two comments, which readers of the page do not see:
//!
//! ```text
//! <!-- made by: COMMAND; PART -->
//!
//! the part
//!
//! <!-- end -->
//! ```
//!
//! The command writes all its parts of a page anew. Tests of other crates include this file by its path, so it needs nothing but text.

/// How the comment before a part begins, and the whole comment after it.
pub const BEGIN: &str = "<!-- made by: ";
pub const END: &str = "<!-- end -->";

/// The page with each part in its place, by the part's name. Each text ends with a line.
///
/// # Errors
/// The page has no such part, or the part has no end.
pub fn remade(page: &str, command: &str, parts: &[(&str, String)]) -> Result<String, String> {
    let mut page = page.to_owned();
    for (part, text) in parts {
        let begin = format!("{BEGIN}{command}; {part} -->");
        let line = format!("{begin}\n");
        let from = page.find(&line).ok_or_else(|| format!("there is no line `{begin}`"))? + line.len();
        let length = page[from..].find(END).filter(|length| !page[from..from + length].contains(BEGIN));
        let length = length.ok_or_else(|| format!("no `{END}` follows `{begin}`"))?;
        page.replace_range(from..from + length, &format!("\n{text}\n"));
    }
    Ok(page)
}
