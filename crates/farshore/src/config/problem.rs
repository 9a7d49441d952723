//! What is wrong with a file, collected so that every problem is told at once.

use std::fmt;
use std::path::{Path, PathBuf};

/// A place in a file, counted from 1 as editors do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl Position {
    /// The place of byte `offset` in `text`; columns count characters.
    pub fn of(text: &str, offset: usize) -> Self {
        let mut offset = offset.min(text.len());
        while !text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: 1 + before.matches('\n').count(),
            column: 1 + before[line_start..].chars().count(),
        }
    }
}

/// One thing wrong: where (when the file has a place for it), and a sentence with what to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    pub position: Option<Position>,
    pub message: String,
}

/// All problems of one file, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    pub file: PathBuf,
    pub list: Vec<Problem>,
}

impl Problems {
    pub fn new(file: &Path, mut list: Vec<Problem>) -> Self {
        list.sort();
        list.dedup();
        Self {
            file: file.to_owned(),
            list,
        }
    }

    /// A file with a single problem that has no place in it.
    pub fn one(file: &Path, message: impl Into<String>) -> Self {
        Self::new(
            file,
            vec![Problem {
                position: None,
                message: message.into(),
            }],
        )
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
        let text = "a = 1\nü = 2\n";
        assert_eq!(Position::of(text, 0), Position { line: 1, column: 1 });
        assert_eq!(Position::of(text, 6), Position { line: 2, column: 1 });
        assert_eq!(Position::of(text, 7), Position { line: 2, column: 1 });
        assert_eq!(Position::of(text, 8), Position { line: 2, column: 2 });
        assert_eq!(Position::of(text, 999), Position { line: 3, column: 1 });
    }
}
