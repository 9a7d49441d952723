//! Which test proves which promise or rule of docs/book/reliability.md: a comment beside the test says so, `// proves: P3, rule 9`.
//!
//! * A tag directly above a test's doc comment or attributes counts for this test.
//! * A tag directly under the `//!` lines at the head of a file counts for each test of the file.
//! * The names are those of the first column of the tables in docs/book/reliability.md.
//! * docs/book/proofs.md is made from the tags, and from nothing else.

use super::TidyProblem;
use std::collections::{BTreeMap, BTreeSet};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The page whose tables name what is to be proven.
pub const CLAIMS_PAGE: &str = "docs/book/reliability.md";
/// The page that is made from the tags.
pub const PROOFS_PAGE: &str = "docs/book/proofs.md";
/// How a line begins that is a tag.
const TAG: &str = "// proves:";

/// A promise or rule as docs/book/reliability.md words it.
struct ProvenClaim {
    /// As a tag names it: `P3`, `rule 9`.
    name: String,
    words: String,
    line: usize,
}

struct Test {
    path: String,
    name: String,
    /// Of its doc comment and attributes.
    first_line: usize,
    description: String,
    claims: BTreeSet<String>,
}

/// All claims, the tests that prove them, and tags that say nothing.
pub struct Proofs {
    claims: Vec<ProvenClaim>,
    tests: Vec<Test>,
    problems: Vec<TidyProblem>,
}

impl Proofs {
    /// Takes the texts of Rust files by their paths, and the text of docs/book/reliability.md.
    pub fn collect(sources: &BTreeMap<String, String>, claims_page: &str) -> Proofs {
        let claims = read_claims(claims_page);
        let mut proofs = Proofs { claims, tests: Vec::new(), problems: Vec::new() };
        for (path, text) in sources.iter().filter(|(_, text)| text.contains(TAG)) {
            proofs.add_file(path, text);
        }
        proofs
    }

    fn add_file(&mut self, path: &str, text: &str) {
        let mut tests = FoundTests::of(path, text);
        let head_lines = text.lines().take_while(|line| line.starts_with("//!")).count();
        for (index, line) in text.lines().enumerate() {
            let Some(tag) = line.trim_start().strip_prefix(TAG) else { continue };
            let line = index + 1;
            let mut report = |sentence| self.problems.push(TidyProblem { path: path.to_owned(), line, sentence });
            let is_of_file = index == head_lines;
            let is_beside = |test: &&mut Test| is_of_file || test.first_line == line + 1;
            let beside: Vec<&mut Test> = tests.tests.iter_mut().filter(is_beside).collect();
            if beside.is_empty() {
                report("a tag stands beside something that is no test".to_owned());
            }
            let (known, unknown): (Vec<&str>, Vec<&str>) =
                tag.split(',').map(str::trim).partition(|name| self.claims.iter().any(|claim| claim.name == *name));
            for name in unknown {
                report(format!("a tag names `{name}`, which is no promise or rule in {CLAIMS_PAGE}"));
            }
            for test in beside {
                test.claims.extend(known.iter().map(|name| (*name).to_owned()));
            }
        }
        self.tests.extend(tests.tests.into_iter().filter(|test| !test.claims.is_empty()));
    }

    fn tests_of<'a>(&'a self, claim: &'a ProvenClaim) -> impl Iterator<Item = &'a Test> {
        self.tests.iter().filter(|test| test.claims.contains(&claim.name))
    }

    /// Tags that say nothing, claims without a test, and a page that is not what the tags make of it.
    pub fn check(mut self, page: Option<&str>) -> Vec<TidyProblem> {
        let mut problems = std::mem::take(&mut self.problems);
        for claim in &self.claims {
            if self.tests_of(claim).next().is_some() {
                continue;
            }
            let sentence = format!("no test proves {0}: put `{TAG} {0}` above one that does", claim.name);
            problems.push(TidyProblem { path: CLAIMS_PAGE.to_owned(), line: claim.line, sentence });
        }
        if page != Some(self.page().as_str()) {
            let sentence = "is not what the tags beside the tests say: run `cargo xtask proofs`".to_owned();
            problems.push(TidyProblem { path: PROOFS_PAGE.to_owned(), line: 0, sentence });
        }
        problems
    }

    /// The text of docs/book/proofs.md.
    pub fn page(&self) -> String {
        let mut page = "# Proofs\n\n\
            Tests that would fail without a promise or rule of [what holds](reliability.md). `cargo xtask proofs` writes\n\
            this page from the tags beside the tests (`// proves: P3, rule 9`); `cargo xtask tidy` compares.\n"
            .to_owned();
        let (promises, rules): (Vec<&ProvenClaim>, Vec<&ProvenClaim>) =
            self.claims.iter().partition(|claim| !claim.name.starts_with("rule "));
        for promise in promises {
            page.push_str(&format!("\n## {}\n\n{}\n\n", promise.name, promise.words));
            page.push_str("| Test | File | Description |\n|---|---|---|\n");
            self.add_rows(&mut page, promise, |_| "|".to_owned());
        }
        page.push_str("\n## Rules\n\n| Rule | Test | File | Description |\n|---|---|---|---|\n");
        for rule in rules {
            let number = rule.name.trim_start_matches("rule ");
            self.add_rows(&mut page, rule, |row| match row {
                0 => format!("| {number}: {} |", rule.words),
                _ => format!("| {number} |"),
            });
        }
        page
    }

    /// A row for each test of a claim, behind what `begin` makes of the row's number.
    fn add_rows(&self, page: &mut String, claim: &ProvenClaim, begin: impl Fn(usize) -> String) {
        // No link: the book is read where no sources are.
        let link = |path: &str| format!("`{path}`");
        let row = |test: &Test| format!("`{}` | {} | {}", test.name, link(&test.path), test.description);
        let mut rows: Vec<String> = self.tests_of(claim).map(row).collect();
        if rows.is_empty() {
            rows.push("none | |".to_owned());
        }
        for (number, row) in rows.iter().enumerate() {
            page.push_str(format!("{} {row}", begin(number)).trim_end());
            page.push_str(" |\n");
        }
    }
}

/// The rows of the tables of promises and rules: `| P3 | words |`, `| 9 | words |`.
fn read_claims(page: &str) -> Vec<ProvenClaim> {
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    let mut claims = Vec::new();
    for (index, line) in page.lines().enumerate() {
        let mut cells = line.strip_prefix("| ").unwrap_or_default().split(" | ");
        let (Some(first), Some(words)) = (cells.next(), cells.next()) else { continue };
        let name = match first.strip_prefix('P') {
            Some(number) if is_number(number) => first.to_owned(),
            None if is_number(first) => format!("rule {first}"),
            _ => continue,
        };
        // What leads to a heading of that page leads there from another page too.
        let words = words.replace("](#", "](reliability.md#");
        claims.push(ProvenClaim { name, words, line: index + 1 });
    }
    claims
}

struct FoundTests<'a> {
    path: &'a str,
    tests: Vec<Test>,
}

impl FoundTests<'_> {
    /// What is not Rust has none: the compiler complains of that.
    fn of<'a>(path: &'a str, text: &str) -> FoundTests<'a> {
        let mut found = FoundTests { path, tests: Vec::new() };
        if let Ok(file) = syn::parse_file(text) {
            found.visit_file(&file);
        }
        found
    }
}

impl<'ast> Visit<'ast> for FoundTests<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let has = |name: &str| item.attrs.iter().any(|attribute| attribute.path().is_ident(name));
        if let Some(first) = item.attrs.first()
            && has("test")
            && !has("ignore")
        {
            self.tests.push(Test {
                path: self.path.to_owned(),
                name: item.sig.ident.to_string(),
                first_line: first.span().start().line,
                description: first_sentence(&item.attrs),
                claims: BTreeSet::new(),
            });
        }
        visit::visit_item_fn(self, item);
    }
}

/// The first sentence of a doc comment, as a cell of a table.
fn first_sentence(attributes: &[syn::Attribute]) -> String {
    let mut words = Vec::new();
    for attribute in attributes {
        if let syn::Meta::NameValue(pair) = &attribute.meta
            && pair.path.is_ident("doc")
            && let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(line), .. }) = &pair.value
        {
            words.extend(line.value().split_whitespace().map(str::to_owned));
        }
    }
    let end = words.iter().position(|word| word.ends_with('.')).map_or(words.len(), |last| last + 1);
    words[..end].join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIMS: &str =
        "| | Promise |\n|---|---|\n| P1 | It [holds](#here). | yes |\n\n| 13 | Reverse. | no |\n| Px | - |\n";

    fn collected(files: &[(&str, &str)]) -> Proofs {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        Proofs::collect(&files, CLAIMS)
    }

    /// What is wrong besides the page.
    fn sentences(files: &[(&str, &str)]) -> Vec<String> {
        let proofs = collected(files);
        let page = proofs.page();
        proofs.check(Some(&page)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_tag_is_of_the_test_below_it_and_one_at_the_head_of_each_test() {
        let own = "fn f() {}\nmod t {\n    // proves: P1\n    /// A | b.\n    /// More.\n    #[test]\n    fn one() {}\n\
                   #[test]\nfn two() {}\n}\n";
        let head =
            "//! Idea.\n// proves: P1\n\n#[test]\nfn three() {}\n/// Four\n/// things. More.\n#[test]\nfn four() {}\n";
        let proofs = collected(&[("a.rs", own), ("b.rs", head)]);
        assert_eq!(proofs.problems, []);
        let page = proofs.page();
        let section = "## P1\n\nIt [holds](reliability.md#here).\n\n| Test | File | Description |\n|---|---|---|\n\
                       | `one` | `a.rs` | A \\| b. |\n\
                       | `three` | `b.rs` | |\n\
                       | `four` | `b.rs` | Four things. |\n\n## Rules\n";
        assert!(page.contains(section), "{page}");
        assert!(page.ends_with("| 13: Reverse. | none | | |\n"), "{page}");
    }

    #[test]
    fn claims_without_a_test_are_found() {
        let without =
            "docs/book/reliability.md:5: no test proves rule 13: put `// proves: rule 13` above one that does";
        assert_eq!(
            sentences(&[]),
            ["docs/book/reliability.md:3: no test proves P1: put `// proves: P1` above one that does", without]
        );
        assert_eq!(sentences(&[("a.rs", "// proves: P1\n\n#[test]\nfn f() {}\n")]), [without]);
        assert_eq!(sentences(&[("a.rs", "// proves: P1, rule 13\n\n#[test]\nfn f() {}\n")]), [""; 0]);
    }

    #[test]
    fn tags_that_say_nothing_are_found() {
        let unknown =
            "fn f() {}\n// proves: P1, rule 13, P11, 13\n#[test]\nfn g() {}\n// proves:\n#[test]\nfn h() {}\n";
        assert_eq!(
            sentences(&[("a.rs", unknown)]),
            [
                "a.rs:2: a tag names `P11`, which is no promise or rule in docs/book/reliability.md",
                "a.rs:2: a tag names `13`, which is no promise or rule in docs/book/reliability.md",
                "a.rs:5: a tag names ``, which is no promise or rule in docs/book/reliability.md",
            ]
        );
        let beside = [
            "// proves: P1\nfn helper() {}\n",
            "fn f() {}\n// proves: P1\n\n#[test]\nfn too_far() {}\n",
            "fn f() {}\n/// Doc.\n// proves: P1\n#[test]\nfn inside() {}\n",
            "fn f() {}\n// proves: P1\n#[test]\n#[ignore]\nfn never_runs() {}\n",
        ];
        for text in beside {
            let found = sentences(&[("a.rs", text)]);
            assert!(found[0].ends_with("a tag stands beside something that is no test"), "{text}: {found:?}");
            assert_eq!(found.len(), 3, "nothing is proven by it: {text}");
        }
    }

    #[test]
    fn a_page_that_is_not_what_the_tags_say_is_found() {
        let problem = "docs/book/proofs.md: is not what the tags beside the tests say: run `cargo xtask proofs`";
        for page in [None, Some("# Proofs\n")] {
            let problems = collected(&[("a.rs", "// proves: P1, rule 13\n\n#[test]\nfn f() {}\n")]).check(page);
            assert_eq!(problems.iter().map(ToString::to_string).collect::<Vec<_>>(), [problem]);
        }
    }
}
