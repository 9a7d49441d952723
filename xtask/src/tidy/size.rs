//! Files and functions stay short enough to be read in one sitting.

use super::TidyProblem;
use super::source::{SourceFile, is_word_byte};

/// Lines a file may have before its tests, and a function from `fn` to its closing brace.
const FILE_LINES_MAX: usize = 799;
const FUNCTION_LINES_MAX: usize = 69;

pub fn check_file(source: &SourceFile) -> Option<TidyProblem> {
    let lines = source.lines_before_tests;
    (lines > FILE_LINES_MAX).then(|| TidyProblem {
        path: source.path.to_owned(),
        line: 0,
        sentence: format!("has {lines} lines before its tests; the most is {FILE_LINES_MAX}: one idea per file"),
    })
}

pub fn check_functions(source: &SourceFile) -> Vec<TidyProblem> {
    let mut problems = Vec::new();
    for at in source.word_starts("fn") {
        let Some((name, end)) = function_at(source.code.as_bytes(), at) else {
            continue;
        };
        let lines = source.line_of(end) - source.line_of(at) + 1;
        if lines > FUNCTION_LINES_MAX {
            problems.push(TidyProblem {
                path: source.path.to_owned(),
                line: source.line_of(at),
                sentence: format!("{name} has {lines} lines; the most is {FUNCTION_LINES_MAX}"),
            });
        }
    }
    problems
}

/// Name and end of the function whose `fn` stands here; `None` for types and bodiless ones.
fn function_at(code: &[u8], at: usize) -> Option<(String, usize)> {
    let name_start = at + 2 + code[at + 2..].iter().position(|byte| !byte.is_ascii_whitespace())?;
    let name_len = code[name_start..].iter().take_while(|&&byte| is_word_byte(byte)).count();
    if name_len == 0 {
        return None;
    }
    // The `;` of an array type in the signature stands in brackets; the one that ends it does not.
    let mut depth = 0;
    for (offset, byte) in code[name_start..].iter().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b';' if depth == 0 => return None,
            b'{' if depth == 0 => {
                let end = closing_brace(code, name_start + offset)?;
                let name = String::from_utf8_lossy(&code[name_start..name_start + name_len]);
                return Some((name.into_owned(), end));
            }
            _ => {}
        }
    }
    None
}

fn closing_brace(code: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0;
    for (offset, byte) in code[open..].iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return Some(open + offset),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::lines_of;
    use super::*;

    fn function_of(lines: usize) -> String {
        format!("fn f(x: [u8; 4]) -> fn(u8) {{\n{}}}\n", "    g(\"}\");\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_of_seventy_lines_is_one_too_long() {
        let short = function_of(69);
        assert!(check_functions(&SourceFile::new("x.rs", &short)).is_empty());
        let long = format!("trait T {{ fn g(&self); }}\n{}", function_of(70));
        let problems = check_functions(&SourceFile::new("x.rs", &long));
        assert_eq!(lines_of(&problems), [2]);
        assert!(problems[0].sentence.starts_with("f has 70 lines"));
    }

    #[test]
    fn a_file_is_measured_before_its_tests() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// t\n".repeat(900));
        let short = "// a\n".repeat(799) + &tests;
        assert_eq!(check_file(&SourceFile::new("x.rs", &short)), None);
        let long = "// a\n".repeat(800) + &tests;
        assert!(check_file(&SourceFile::new("x.rs", &long)).is_some());
    }
}
