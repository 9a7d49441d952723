//! Lines and columns of a page for eyes.

use toolkit::screen::{Colour, Paint, clean};

/// A line of a page; of a content of several lines the others stand below the first.
pub fn titled(title: &str, width: usize, content: &str) -> String {
    let mut text = format!("  {title:<width$}");
    for (at, line) in content.lines().filter(|line| !line.trim().is_empty()).enumerate() {
        let indent = if at == 0 { String::new() } else { format!("\n{:1$}", "", width + 2) };
        text += &(indent + &clean(line));
    }
    text + "\n"
}

/// The same where there is one line for all.
pub fn in_one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let join = |all: String, line: &str| match all.chars().last() {
        None => line.to_owned(),
        Some(':' | ';' | ',') => all + " " + line,
        Some(_) => all + "; " + line,
    };
    clean(&lines.fold(String::new(), join))
}

pub fn plain(text: &str) -> TableCell {
    (clean(text), None)
}

pub type TableCell = (String, Option<Colour>);

/// Columns as wide as their widest cell, two blanks between.
pub struct Table<const N: usize> {
    rows: Vec<[TableCell; N]>,
}

impl<const N: usize> Table<N> {
    pub fn new(head: [&str; N]) -> Self {
        Self { rows: vec![head.map(|title| (title.to_owned(), Some(Colour::Head)))] }
    }

    pub fn row(&mut self, cells: [TableCell; N]) {
        self.rows.push(cells);
    }

    pub fn text(&self, indent: &str, paint: &Paint) -> String {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, (text, _)) in widths.iter_mut().zip(row) {
                *width = (*width).max(text.chars().count());
            }
        }
        let mut all = String::new();
        for row in &self.rows {
            let mut line = indent.to_owned();
            for (column, (width, (text, colour))) in widths.iter().zip(row).enumerate() {
                // Padding stands outside the colour: its codes have no width.
                let pad = if column + 1 == N { 0 } else { width - text.chars().count() + 2 };
                line += &colour.map_or(text.clone(), |colour| paint.with(colour, text));
                line += &" ".repeat(pad);
            }
            all += line.trim_end();
            all.push('\n');
        }
        all
    }
}
