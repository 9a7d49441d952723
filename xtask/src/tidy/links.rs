//! Links between pages: each one leads to a file that is there, and to a heading that the page has. Each page of the manual
//! is a chapter of the book.

use super::TidyProblem;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// The manual, and its table of contents.
const MANUAL: &str = "docs/book";
const CONTENTS: &str = "docs/book/SUMMARY.md";

/// A page in Markdown: where it links to, and what may be linked to.
pub struct Page {
    path: String,
    /// The line, from 1, and the target as it is written.
    links: Vec<(usize, String)>,
    anchors: BTreeSet<String>,
}

impl Page {
    pub fn read(path: &str, text: &str) -> Page {
        let mut page = Page { path: path.to_owned(), links: Vec::new(), anchors: BTreeSet::new() };
        let mut heading: Option<String> = None;
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    let line = text[..range.start].matches('\n').count() + 1;
                    page.links.push((line, dest_url.into_string()));
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => page.add_anchor(&heading.take().unwrap_or_default()),
                Event::Text(words) | Event::Code(words) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&words);
                    }
                }
                _ => {}
            }
        }
        page
    }

    /// The second heading of the same words gets a number.
    fn add_anchor(&mut self, heading: &str) {
        let slug = slug(heading);
        let numbered = (1..).map(|number| format!("{slug}-{number}"));
        let mut free = std::iter::once(slug.clone()).chain(numbered).filter(|anchor| !self.anchors.contains(anchor));
        self.anchors.extend(free.next());
    }
}

/// A heading as the end of a link: as GitHub and mdBook make it.
fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

/// Links that lead nowhere. `is_file` answers for a path from the project's root.
pub fn check(pages: &[Page], is_file: impl Fn(&Path) -> bool) -> Vec<TidyProblem> {
    let anchors: BTreeMap<&Path, &BTreeSet<String>> =
        pages.iter().map(|page| (Path::new(page.path.as_str()), &page.anchors)).collect();
    let mut problems = Vec::new();
    for page in pages {
        for (line, target) in page.links.iter().filter(|(_, target)| !is_elsewhere(target)) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = resolved(&page.path, file);
            let problem = match anchors.get(path.as_path()) {
                Some(known) if !anchor.is_empty() && !known.contains(anchor) => "has no such heading",
                None if !is_file(&path) => "is not there",
                _ => continue,
            };
            let sentence = format!("a link leads to `{target}`, which {problem}");
            problems.push(TidyProblem { path: page.path.clone(), line: *line, sentence });
        }
    }
    problems.extend(check_chapters(pages));
    problems
}

/// Pages of the manual that its table of contents does not name: the book would be without them.
fn check_chapters(pages: &[Page]) -> Vec<TidyProblem> {
    let contents = pages.iter().filter(|page| page.path == CONTENTS).flat_map(|page| &page.links);
    let chapters: BTreeSet<PathBuf> = contents.map(|(_, target)| resolved(CONTENTS, target)).collect();
    let is_missing = |page: &&Page| {
        let path = Path::new(&page.path);
        path.starts_with(MANUAL) && page.path != CONTENTS && !chapters.contains(path)
    };
    let missing = pages.iter().filter(is_missing).map(|page| &page.path);
    let problem = |path: &String| {
        let sentence = format!("the book has no such chapter: {CONTENTS} does not name it");
        TidyProblem { path: path.clone(), line: 0, sentence }
    };
    missing.map(problem).collect()
}

/// On the web, or a letter box.
fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// Where a link of a page leads, from the project's root.
fn resolved(page: &str, file: &str) -> PathBuf {
    if file.is_empty() {
        return PathBuf::from(page);
    }
    let mut path = Path::new(page).parent().map(Path::to_path_buf).unwrap_or_default();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_a_missing_page_or_heading_is_found_at_its_line() {
        let front = "# Front\n\nSee [it](manual/one.md#what-it-costs), [the same](manual/one.md#what-it-costs-1),\n\
                     [nothing](manual/one.md#gone), [below](#front), [gone](manual/two.md), [web](https://example.org/x).\n\
                     ```\n[no link](nowhere.md)\n```\n";
        let one = "## What it costs\n\n## What *it* `costs`\n\n[up](../README.md#front) ![curve](lag.svg)\n";
        let pages = [Page::read("README.md", front), Page::read("manual/one.md", one)];
        let problems = check(&pages, |path| path == Path::new("manual/lag.svg"));
        let found: Vec<(usize, &str)> = problems.iter().map(|of| (of.line, of.sentence.as_str())).collect();
        assert_eq!(
            found,
            [
                (4, "a link leads to `manual/one.md#gone`, which has no such heading"),
                (4, "a link leads to `manual/two.md`, which is not there"),
            ]
        );
    }

    #[test]
    fn a_page_of_the_manual_that_no_line_of_the_contents_names_is_found() {
        let pages = [
            Page::read("README.md", ""),
            Page::read("docs/book/SUMMARY.md", "- [Fail over](operate/fail-over.md)"),
            Page::read("docs/book/operate/fail-over.md", ""),
            Page::read("docs/book/operate/lost-link.md", ""),
        ];
        let problems = check(&pages, |_| true);
        let found: Vec<&str> = problems.iter().map(|of| of.path.as_str()).collect();
        assert_eq!(found, ["docs/book/operate/lost-link.md"]);
    }

    #[test]
    fn a_heading_becomes_an_anchor_as_on_the_pages_that_people_read() {
        assert_eq!(slug("What the way is like: `link probe`"), "what-the-way-is-like-link-probe");
        assert_eq!(slug("1. The link"), "1-the-link");
    }
}
