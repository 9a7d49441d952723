//! What is wrong with a file, collected so that every problem is told at once.

use std::fmt;
use std::path::{Path, PathBuf};

/// A position in a file, counted from 1 as editors do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TextPosition {
    pub line: usize,
    pub column: usize,
}

/// Where the lines of a text start, so that many places are found without counting from the top each time.
pub struct LineStarts<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> LineStarts<'t> {
    pub fn of(text: &'t str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
        Self { text, starts: starts.collect() }
    }

    /// The position of byte `offset`; columns count characters. Any offset is taken: one inside a character is its start,
    /// one past the end is the end.
    pub fn position(&self, offset: usize) -> TextPosition {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.starts.partition_point(|start| *start <= offset);
        TextPosition { line, column: 1 + self.text[self.starts[line - 1]..offset].chars().count() }
    }
}

/// One thing wrong: where (when the file has a place for it), and a sentence with what to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigProblem {
    pub position: Option<TextPosition>,
    pub message: String,
}

/// All problems of one file, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    pub file: PathBuf,
    pub list: Vec<ConfigProblem>,
}

impl Problems {
    pub fn new(file: &Path, mut list: Vec<ConfigProblem>) -> Self {
        list.sort();
        list.dedup();
        Self { file: file.to_owned(), list }
    }

    /// A file with a single problem that has no place in it.
    pub fn one(file: &Path, message: impl Into<String>) -> Self {
        Self::new(file, vec![ConfigProblem { position: None, message: message.into() }])
    }
}

impl fmt::Display for Problems {
    /// One line per problem in the form compilers use, so that editors can jump there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}:", self.file.display())?;
            if let Some(position) = problem.position {
                write!(f, "{}:{}:", position.line, position.column)?;
            }
            write!(f, " {}", problem.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_and_survive_any_offset() {
        let lines = LineStarts::of("a = 1\nü = 2\n");
        for (offset, line, column) in [(0, 1, 1), (5, 1, 6), (6, 2, 1), (7, 2, 1), (8, 2, 2), (999, 3, 1)] {
            assert_eq!(lines.position(offset), TextPosition { line, column }, "offset {offset}");
        }
        assert_eq!(LineStarts::of("").position(5), TextPosition { line: 1, column: 1 });
    }
}
