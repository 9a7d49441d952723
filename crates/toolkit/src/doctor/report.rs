//! What the doctor says, for eyes and for programs.

use serde::{Deserialize, Serialize};

use super::ends::EndsRow;
use super::facts::{EndFacts, PathFacts};
use super::{Check, CheckVerdict};
use crate::screen::{Colour, Paint, clean};

/// The schema of what `doctor --json` prints, and of what `--beside` reads.
pub const DOCTOR_SCHEMA: &str = "farshore-doctor/1";
pub const STREAM_SCHEMA: &str = "farshore-doctor-stream/1";
/// A reason is wrapped to so many columns.
const TEXT_COLUMNS: usize = 100;

/// What `doctor --json` prints; keys are added, never renamed. The comments of fields are the manual's words: docs/book/json.md is made
/// from them.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DoctorReport<'a> {
    /// name and version of this schema
    pub schema: &'static str,
    /// the worst of all lines
    pub verdict: CheckVerdict,
    /// one for each line
    pub checks: &'a [Check],
    /// the values compared with
    pub way: WayShown,
    /// what was found, before any judgement; `--beside` reads this
    pub facts: &'a EndFacts,
    /// both ends, with `--beside`; else `null`
    pub ends: Option<&'a [EndsRow]>,
}

/// What was compared with.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WayShown {
    /// bytes a second; `null`: unknown
    pub bandwidth_bytes_per_s: Option<f64>,
    /// its source; empty: unknown
    pub bandwidth_from: &'static str,
    /// seconds: round trip; `null`: unknown
    pub rtt_s: Option<f64>,
    /// its source; empty: unknown
    pub rtt_from: &'static str,
}

impl From<&PathFacts> for WayShown {
    fn from(way: &PathFacts) -> WayShown {
        WayShown {
            bandwidth_bytes_per_s: way.bytes_per_s,
            bandwidth_from: way.bytes_from,
            rtt_s: way.rtt_s,
            rtt_from: way.rtt_from,
        }
    }
}

/// The part of a report that the other end reads.
#[derive(Deserialize)]
struct PeerPart {
    schema: String,
    facts: EndFacts,
}

/// The sheet of another machine, from what `doctor --json` printed there.
///
/// # Errors
/// A sentence: not JSON, or of another schema.
pub fn facts_of(text: &str) -> Result<EndFacts, String> {
    let found: PeerPart =
        serde_json::from_str(text).map_err(|error| format!("it is not what doctor --json prints: {error}"))?;
    if found.schema != DOCTOR_SCHEMA {
        return Err(format!("its schema is {:?}, and {DOCTOR_SCHEMA:?} is wanted", found.schema));
    }
    Ok(found.facts)
}

pub fn worst(checks: &[Check]) -> CheckVerdict {
    checks.iter().map(|check| check.verdict).max().unwrap_or(CheckVerdict::Ok)
}

/// Everything, the lines that need an eye with their reasons and commands.
pub fn text(facts: &EndFacts, checks: &[Check], ends: Option<(&EndFacts, &[EndsRow])>, paint: &Paint) -> String {
    let mut out =
        paint.with(Colour::Head, &format!("{} (Linux {})", clean(&facts.host), clean(&facts.kernel))) + "\n\n";
    let width = checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
    for check in checks {
        out += &lines(check, width, paint);
    }
    if let Some((there, rows)) = ends {
        out += &table(facts, there, rows, paint);
    }
    let counted = |verdict: CheckVerdict, word: &str| {
        let count = checks.iter().filter(|check| check.verdict == verdict).count();
        format!("{count} {word}{}", if count == 1 { "" } else { "s" })
    };
    let (problems, warnings) = (counted(CheckVerdict::Problem, "problem"), counted(CheckVerdict::Warning, "warning"));
    out + &format!("\n{problems}, {warnings}, {}; nothing was changed\n", counted(CheckVerdict::Info, "note"))
}

fn colour(verdict: CheckVerdict) -> Colour {
    match verdict {
        CheckVerdict::Ok => Colour::Good,
        CheckVerdict::Info => Colour::Head,
        CheckVerdict::Warning => Colour::Busy,
        CheckVerdict::Problem => Colour::Bad,
    }
}

fn lines(check: &Check, width: usize, paint: &Paint) -> String {
    let word = check.verdict.word();
    let margin = " ".repeat(9 + width + 2);
    let want = if check.want.is_empty() { String::new() } else { format!("; want {}", clean(&check.want)) };
    let mut out = format!(
        "{}{}{:<width$}  {}{want}\n",
        // Padding stands outside the colour: its codes have no width.
        paint.with(colour(check.verdict), word),
        " ".repeat(9 - word.len()),
        check.id,
        clean(&check.have)
    );
    for line in wrapped(&clean(&check.why), TEXT_COLUMNS.saturating_sub(margin.len())) {
        out += &format!("{margin}{line}\n");
    }
    if let Some(command) = &check.command {
        out += &format!("{margin}$ {}\n", clean(command));
    }
    out
}

fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn table(here: &EndFacts, there: &EndFacts, rows: &[EndsRow], paint: &Paint) -> String {
    let name =
        |facts: &EndFacts, whose_end: &str| format!("{} ({whose_end})", facts.node.as_ref().unwrap_or(&facts.host));
    let header = [String::new(), clean(&name(here, "here")), clean(&name(there, "there")), String::new()];
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let mark = if row.alike { "" } else { "differ" };
            vec![row.what.to_owned(), clean(&row.here), clean(&row.there), mark.to_owned()]
        })
        .collect();
    format!("\n{}\n{}", paint.with(Colour::Head, "both ends"), plan::answer::table(&header, &cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_travels_as_json() {
        let facts = EndFacts { host: "beta".to_owned(), ..EndFacts::default() };
        let report = DoctorReport {
            schema: DOCTOR_SCHEMA,
            verdict: CheckVerdict::Ok,
            checks: &[],
            way: (&PathFacts::default()).into(),
            facts: &facts,
            ends: None,
        };
        let json = serde_json::to_string(&report).expect("JSON");
        assert_eq!(facts_of(&json), Ok(facts));
        // Of an older or newer version: what is missing is unknown, what is new is passed over.
        let other = r#"{"schema":"farshore-doctor/1","facts":{"host":"x","colour":"red"}}"#;
        assert_eq!(facts_of(other).map(|facts| facts.host), Ok("x".to_owned()));
        assert!(facts_of(r#"{"schema":"farshore-doctor/2","facts":{}}"#).is_err_and(|text| text.contains("is wanted")));
        assert!(facts_of("{").is_err_and(|text| text.contains("not what doctor --json prints")));
    }

    #[test]
    fn a_line_says_have_want_why_and_command() {
        let check = Check::new("tcp-rmem", CheckVerdict::Warning, "most 16 KiB")
            .want("64 KiB")
            .why("one connection stops there, \u{1b}[31m as words that are long enough to need a second line show quite well")
            .run("sysctl -w x=1");
        let facts = EndFacts { host: "alpha".to_owned(), kernel: "6.18".to_owned(), ..EndFacts::default() };
        let text = text(&facts, &[check, Check::ok("sack", "on")], None, &Paint::plain());
        assert_eq!(
            text,
            "alpha (Linux 6.18)\n\n\
             warning  tcp-rmem  most 16 KiB; want 64 KiB\n                   \
             one connection stops there, ?[31m as words that are long enough to need a second\n                   \
             line show quite well\n                   \
             $ sysctl -w x=1\n\
             ok       sack      on\n\n\
             0 problems, 1 warning, 0 notes; nothing was changed\n"
        );
    }

    #[test]
    fn the_worst_line_decides() {
        let line = |verdict| Check::new("x", verdict, "");
        assert_eq!(
            worst(&[line(CheckVerdict::Ok), line(CheckVerdict::Warning), line(CheckVerdict::Info)]),
            CheckVerdict::Warning
        );
        assert_eq!(worst(&[line(CheckVerdict::Problem), line(CheckVerdict::Warning)]), CheckVerdict::Problem);
        assert_eq!(worst(&[]), CheckVerdict::Ok);
    }
}
