//! Rows as tables of a page, and figures as text.

use super::Row;
use anyhow::Result;

/// Rows as they count: of rows with the same values under these keys the last, in the place of the first.
pub fn newest<'a>(rows: &'a [Row], keys: &[&str]) -> Result<Vec<&'a Row>> {
    let mut newest: Vec<(Vec<String>, &Row)> = Vec::new();
    for row in rows {
        let values = row.values(keys)?;
        match newest.iter_mut().find(|(known, _)| *known == values) {
            Some((_, older)) => *older = row,
            None => newest.push((values, row)),
        }
    }
    Ok(newest.into_iter().map(|(_, row)| row).collect())
}

/// A table whose rows are lines of it.
pub fn table(head: &[&str], lines: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| format!(" {cell} |").replace("  |", " |")).collect();
        format!("|{}\n", cells.concat())
    };
    let head: Vec<String> = head.iter().map(|&word| word.to_owned()).collect();
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    line(&head) + &rule + &lines.iter().map(|cells| line(cells)).collect::<String>()
}

/// Makes cells of a row.
pub type Cells = fn(&Row) -> Result<Vec<String>>;

/// A table with the rows' values of one key on top and of others on the left, each in the order of its first row.
pub struct Pivot<'a> {
    /// What stands above the cells on the left.
    pub head: &'a [&'a str],
    /// The cells on the left, of a row.
    pub left: Cells,
    /// What stands above the cells that a row fills.
    pub above: Cells,
    /// The cells that a row fills, as many as stand above them.
    pub cells: Cells,
}

impl Pivot<'_> {
    pub fn text(&self, rows: &[Row]) -> Result<String> {
        let mut columns: Vec<Vec<String>> = Vec::new();
        let mut lines: Vec<(Vec<String>, Vec<Vec<String>>)> = Vec::new();
        for row in rows {
            let (left, above, cells) = ((self.left)(row)?, (self.above)(row)?, (self.cells)(row)?);
            let column = position_of(&mut columns, above);
            let line = lines.iter().position(|(known, _)| *known == left).unwrap_or(lines.len());
            if line == lines.len() {
                lines.push((left, Vec::new()));
            }
            let filled = &mut lines[line].1;
            filled.resize(filled.len().max(column + 1), Vec::new());
            filled[column] = cells;
        }
        let above: Vec<&str> = columns.iter().flatten().map(String::as_str).collect();
        let head = [self.head, &above[..]].concat();
        let mut texts = Vec::new();
        for (mut line, mut filled) in lines {
            filled.resize(columns.len(), Vec::new());
            for (cells, above) in filled.into_iter().zip(&columns) {
                // What no row fills stays empty.
                line.extend(if cells.is_empty() { vec![String::new(); above.len()] } else { cells });
            }
            texts.push(line);
        }
        Ok(table(&head, &texts))
    }
}

fn position_of(columns: &mut Vec<Vec<String>>, column: Vec<String>) -> usize {
    let known = columns.iter().position(|known| *known == column);
    known.unwrap_or_else(|| {
        columns.push(column);
        columns.len() - 1
    })
}

/// A figure of three digits, or of more before the point.
pub fn three_digits(value: f64) -> String {
    match value {
        0.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// At most so many digits behind the point, and no zeroes at their end.
pub fn trimmed(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A whole number with a space before each three digits: `8 200 000`.
pub fn spaced(value: f64) -> String {
    units::size::spaced(&format!("{value:.0}"))
}

/// A rate of a line as people say it.
pub fn rate_text(mbit: f64) -> String {
    match mbit {
        1000.0.. => format!("{} Gbit/s", mbit / 1000.0),
        1.0.. => format!("{mbit} Mbit/s"),
        _ => format!("{} kbit/s", mbit * 1000.0),
    }
}

/// A size of whole KiB or MiB, or of some bytes.
pub fn size_text(bytes: f64) -> String {
    match bytes {
        1_048_576.0.. => format!("{} MiB", bytes / 1_048_576.0),
        1024.0.. => format!("{} KiB", bytes / 1024.0),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rows(values: &[(&str, u32, f64)]) -> Vec<Row> {
        let row = |&(line, ms, rate): &(&str, u32, f64)| Row::of(&json!({"line": line, "ms": ms, "rate": rate}));
        values.iter().map(row).collect::<Result<_>>().expect("objects")
    }

    #[test]
    fn a_row_measured_again_replaces_the_older_one() {
        let rows = rows(&[("a", 1, 1.0), ("b", 1, 2.0), ("a", 1, 3.0)]);
        let newest = newest(&rows, &["line", "ms"]).expect("both keys are there");
        let rates: Vec<f64> = newest.iter().map(|row| row.number("rate").expect("a number")).collect();
        assert_eq!(rates, [3.0, 2.0]);
    }

    #[test]
    fn a_table_has_one_key_on_top_and_another_on_the_left() {
        let pivot = Pivot {
            head: &["Line"],
            left: |row| Ok(vec![row.text("line")?.to_owned()]),
            above: |row| Ok(vec![format!("{} ms", row.number("ms")?)]),
            cells: |row| Ok(vec![three_digits(row.number("rate")?)]),
        };
        let text = pivot.text(&rows(&[("a", 1, 1.0), ("a", 10, 20.0), ("b", 10, 300.0), ("c", 1, 5.0), ("a", 1, 4.0)]));
        let wanted = "| Line | 1 ms | 10 ms |\n|---|---|---|\n| a | 4.00 | 20.0 |\n| b | | 300 |\n| c | 5.00 | |\n";
        assert_eq!(text.expect("all keys are there"), wanted);
    }

    #[test]
    fn figures_are_shown_as_pages_have_them() {
        assert_eq!([9.3, 93.5, 106.2].map(three_digits), ["9.30", "93.5", "106"]);
        assert_eq!([9.375, 100.0, 0.0].map(|value| trimmed(value, 2)), ["9.38", "100", "0"]);
        assert_eq!([840.0, 1052.0, 8_200_000.0].map(spaced), ["840", "1 052", "8 200 000"]);
        assert_eq!([512.0, 4096.0, 1_048_576.0].map(size_text), ["512 B", "4 KiB", "1 MiB"]);
    }
}
