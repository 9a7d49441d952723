//! What a calculation says: named values with their units, for eyes and for programs.

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use units::quantities::{
    Bytes, Rate, Seconds, show_bit_rate, show_bytes, show_bytes_decimal, show_rate, show_share, show_time,
};

/// A value that knows its unit; the unit becomes the end of its key in JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Bytes(f64),
    Rate(Rate),
    Seconds(Seconds),
    Share(f64),
    Count(f64),
    Text(String),
}

impl Value {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// The key with its unit: `rtt` becomes `rtt_s`.
    pub fn key(&self, name: &str) -> String {
        let suffix = match self {
            Self::Bytes(_) => "_bytes",
            Self::Rate(_) => "_bytes_per_s",
            Self::Seconds(_) => "_s",
            Self::Share(_) => "_share",
            Self::Count(_) | Self::Text(_) => "",
        };
        format!("{name}{suffix}")
    }

    /// A plain number or text; what is not finite ("never") is null.
    pub fn json(&self) -> Json {
        match self {
            Self::Bytes(v) | Self::Share(v) | Self::Count(v) => json!(v),
            Self::Rate(rate) => json!(rate.bytes_per_s()),
            Self::Seconds(time) => json!(time.0),
            Self::Text(text) => json!(text),
        }
    }

    pub fn show(&self) -> String {
        match self {
            Self::Bytes(v) if *v >= 1024.0 => {
                let binary = show_bytes(Bytes(*v as u64));
                format!("{v:.0} B ({}, {binary})", show_bytes_decimal(*v))
            }
            Self::Bytes(v) => format!("{v:.0} B"),
            Self::Rate(rate) => format!(
                "{} ({}, {}/s)",
                show_rate(*rate),
                show_bit_rate(*rate),
                show_bytes(Bytes(rate.bytes_per_s() as u64))
            ),
            Self::Seconds(time) => show_time(*time),
            Self::Share(share) => show_share(*share),
            Self::Count(count) if count.fract() == 0.0 => format!("{count:.0}"),
            Self::Count(count) => format!("{count:.2}"),
            Self::Text(text) => text.clone(),
        }
    }
}

/// A formula applied: what it is, where it is from, what came out.
#[derive(Clone, Debug, Default)]
pub struct FormulaAnswer {
    pub name: &'static str,
    pub formula: &'static str,
    pub source: &'static str,
    pub results: Vec<(String, Value)>,
    /// A table: rows of like-named values.
    pub rows: Vec<Vec<(String, Value)>>,
    pub notes: Vec<String>,
}

/// The schema of [`CalcReport`].
pub const CALC_SCHEMA: &str = "farshore-calc/1";

/// What `calc --json` prints. The comments of fields are the manual's words: docs/book/json.md is made from them.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CalcReport<'a> {
    /// name and version of this schema
    pub schema: &'static str,
    /// name of the formula
    pub name: &'static str,
    /// the formula in words
    pub formula: &'static str,
    /// where the formula is from
    pub source: &'static str,
    /// numbers and texts by name, with the unit at the end of the key; a value that is never reached is `null`
    pub results: Map<String, Json>,
    /// rows of a table, each likewise; in those of the formula `legacy-hadr` figures are texts, with the digits that the HADR calculator
    /// shows
    pub rows: Vec<Map<String, Json>>,
    /// sentences
    pub notes: &'a [String],
}

impl FormulaAnswer {
    pub fn new(name: &'static str, formula: &'static str, source: &'static str) -> Self {
        Self { name, formula, source, ..Self::default() }
    }

    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: Value) -> Self {
        self.results.push((name.into(), value));
        self
    }

    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    pub fn json(&self) -> Json {
        let object = |pairs: &[(String, Value)]| -> Map<String, Json> {
            pairs.iter().map(|(name, value)| (value.key(name), value.json())).collect()
        };
        json!(CalcReport {
            schema: CALC_SCHEMA,
            name: self.name,
            formula: self.formula,
            source: self.source,
            results: object(&self.results),
            rows: self.rows.iter().map(|row| object(row)).collect(),
            notes: &self.notes,
        })
    }

    /// Lines for a terminal, the formula and its source last.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let width = self.results.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in &self.results {
            out += &format!("{:<width$}  {}\n", name.replace('_', " "), value.show());
        }
        if let Some(first) = self.rows.first() {
            let header: Vec<String> = first.iter().map(|(name, _)| name.replace('_', " ")).collect();
            let cells: Vec<Vec<String>> =
                self.rows.iter().map(|row| row.iter().map(|(_, value)| short(value)).collect()).collect();
            out += &table(&header, &cells);
        }
        for note in &self.notes {
            out += &format!("note: {note}\n");
        }
        out += &format!("formula: {}\nsource: {}\n", self.formula, self.source);
        out
    }
}

/// In a table there is room for one unit only.
fn short(value: &Value) -> String {
    match value {
        Value::Bytes(v) => show_bytes(Bytes(*v as u64)),
        Value::Rate(rate) => show_rate(*rate),
        other => other.show(),
    }
}

/// Aligned columns: the first to the left, the others to the right.
pub fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &[String]| {
        let padded = cells.iter().zip(&widths).enumerate().map(|(index, (cell, &width))| {
            if index == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    std::iter::once(line(header)).chain(rows.iter().map(|row| line(row))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_end_the_keys() {
        let answer = FormulaAnswer::new("n", "f", "s")
            .with("window", Value::Bytes(625_000.0))
            .with("rate", Value::Rate(Rate::from_mbit(100.0)))
            .with("fills_in", Value::Seconds(Seconds(f64::INFINITY)));
        let json = answer.json();
        assert_eq!(json["results"]["window_bytes"], 625_000.0);
        assert_eq!(json["results"]["rate_bytes_per_s"], 12_500_000.0);
        assert!(json["results"]["fills_in_s"].is_null());
        assert!(answer.text().contains("625000 B (625 kB, 610 KiB)"), "{}", answer.text());
        assert!(answer.text().contains("never"));
    }
}
