//! What of the book is made by programs: the comments around made parts come in pairs, and the words in and outside of them.

use super::{FileTexts, TidyProblem};
use crate::made::{BEGIN, END};
use std::fmt;

/// Pages that a program makes from the first line to the last.
const WHOLE_PAGES: [&str; 2] = ["docs/book/options.md", super::proofs::PROOFS_PAGE];
/// Pages beside the book: its table of contents, and decisions, which stay as they are.
const CONTENTS: &str = "docs/book/SUMMARY.md";
const DECISIONS: &str = "docs/book/decisions/";

/// Words of the book: letters or digits between spaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BookWords {
    all: usize,
    made: usize,
}

impl BookWords {
    pub fn count(files: &FileTexts) -> BookWords {
        let is_page = |path: &str| {
            path.starts_with("docs/book/") && path.ends_with(".md") && path != CONTENTS && !path.starts_with(DECISIONS)
        };
        let mut words = BookWords::default();
        for (path, text) in files.iter().filter(|(path, _)| is_page(path)) {
            let mut is_made = WHOLE_PAGES.contains(&path.as_str());
            for line in text.lines() {
                if line.starts_with(BEGIN) || line == END {
                    is_made = line != END;
                    continue;
                }
                let count = line.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
                words.all += count;
                words.made += if is_made { count } else { 0 };
            }
        }
        words
    }
}

impl fmt::Display for BookWords {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let percent = 100 * self.made / self.all.max(1);
        write!(f, "the book without decisions has {} words; programs make {} of them, {percent} %", self.all, self.made)
    }
}

/// Comments of a page that do not come in pairs, or do not say what makes the part.
pub fn check(path: &str, text: &str) -> Vec<TidyProblem> {
    let mut problems = Vec::new();
    let mut report = |line, sentence: String| problems.push(TidyProblem { path: path.to_owned(), line, sentence });
    let mut begun: Option<usize> = None;
    for (index, line) in text.lines().enumerate() {
        let line_number = index + 1;
        if let Some(rest) = line.strip_prefix(BEGIN) {
            if let Some(before) = begun.replace(line_number) {
                report(before, format!("a made part has no `{END}` before the next one"));
            }
            let names_both = rest.strip_suffix(" -->").and_then(|rest| rest.split_once("; "));
            if names_both.is_none_or(|(command, part)| command.is_empty() || part.is_empty()) {
                report(line_number, format!("a made part begins with `{BEGIN}COMMAND; PART -->`"));
            }
        } else if line == END && begun.take().is_none() {
            report(line_number, format!("`{END}` ends nothing"));
        }
    }
    if let Some(line) = begun {
        report(line, format!("a made part has no `{END}`"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::lines_of;
    use super::*;
    use crate::made::remade;

    const PAGE: &str = "# Page\n\n<!-- made by: c; one -->\n\nold two\n\n<!-- end -->\n\nby hand\n\n\
                        <!-- made by: c; two -->\n<!-- end -->\n";

    #[test]
    fn a_part_is_replaced_and_nothing_else() {
        let parts = [("two", "| b |\n".to_owned()), ("one", "| a |\n".to_owned())];
        let page = remade(PAGE, "c", &parts).expect("both parts are there");
        let wanted = "# Page\n\n<!-- made by: c; one -->\n\n| a |\n\n<!-- end -->\n\nby hand\n\n\
                      <!-- made by: c; two -->\n\n| b |\n\n<!-- end -->\n";
        assert_eq!(page, wanted);
        assert_eq!(remade(&page, "c", &parts).as_deref(), Ok(wanted), "a second time changes nothing");
    }

    #[test]
    fn a_part_that_is_not_there_or_has_no_end_is_an_error() {
        let part = [("one", String::new())];
        assert!(remade(PAGE, "d", &part).expect_err("another command").contains("there is no line"));
        let open = "<!-- made by: c; one -->\n\n<!-- made by: c; two -->\n\n<!-- end -->\n";
        assert!(remade(open, "c", &part).expect_err("no end").contains("follows"));
    }

    #[test]
    fn comments_that_do_not_come_in_pairs_are_found() {
        assert_eq!(check("a.md", PAGE), []);
        let wrong = "<!-- end -->\n<!-- made by: c -->\n<!-- made by: c; one -->\n<!-- end -->\n\
                     <!-- made by: c; p -->\n";
        assert_eq!(lines_of(&check("a.md", wrong)), [1, 2, 2, 5]);
    }

    #[test]
    fn words_of_pages_are_counted_and_those_that_programs_make() {
        let files = [
            ("docs/book/a.md", PAGE),
            ("docs/book/options.md", "one | two\n"),
            ("docs/book/SUMMARY.md", "no word"),
            ("docs/book/decisions/0001-a.md", "no word"),
            ("README.md", "no word"),
        ];
        let files = files.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
        let words = BookWords::count(&files);
        assert_eq!(words, BookWords { all: 7, made: 4 });
        let sentence = "the book without decisions has 7 words; programs make 4 of them, 57 %";
        assert_eq!(words.to_string(), sentence);
    }
}
