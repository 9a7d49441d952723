//! A page of the manual as it is walked: what is typed, on which host, and what readers do not see.
//!
//! Readers do not see comments of HTML. The walk knows these, each on a line of its own:
//!
//! | Comment | Meaning |
//! |---|---|
//! | `walk: SITUATION; WORD=MEANING, ...` | the hosts begin anew, in a situation of `words.sh`; from here on these words stand for others |
//! | `HOST# COMMAND` | done on that host, for a reader did something in between, or time passed |
//! | `run: HOST, exit CODE, meanwhile` | about the next block: where (one or several, in turn), with which exit codes (of its last commands), and whether its end comes after the next block's. Without it: on alpha, 0 |
//! | `run: nobody: WHY` | about the next block: nobody types it |
//! | `recorded`, `recorded exactly` | the next block is what the command before it printed, but for numbers, or with them |
//! | `recorded loosely` | the same, and numbers may have other units |
//!
//! A block without a language is typed. In one that begins with `$ ` these lines are typed, and the others are what they printed.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// The hosts of a walk.
pub const HOSTS: [&str; 2] = ["alpha", "beta"];

pub struct Page {
    /// From `docs` on.
    pub name: String,
    pub parts: Vec<Part>,
    /// As it stands in the file.
    pub lines: Vec<String>,
}

/// One thing that a page says, and its line, from 1.
pub struct Part {
    pub line: usize,
    pub what: Said,
}

pub enum Said {
    Begin(String),
    Aside { host: String, command: String },
    Typed(Block),
    Output(Output),
}

/// A block to be typed.
pub struct Block {
    pub mark: Mark,
    pub commands: Vec<Typed>,
    /// What its commands print is shown in it, and has to be so.
    pub recording: Option<Recording>,
    words: Words,
}

pub struct Typed {
    /// As it stands there; may have several lines.
    pub text: String,
    /// The lines of the file that show what it prints.
    pub shown: Range<usize>,
}

/// A block that shows what was printed.
pub struct Output {
    pub recording: Recording,
    pub shown: Range<usize>,
}

/// How much of what is shown has to be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    /// All but numbers, and names made of numbers.
    Text,
    /// Nor are their units, and where lines end.
    Loosely,
    Exactly,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub hosts: Vec<String>,
    /// Of the last commands; several that are possible stand with a stroke between them.
    pub codes: Vec<String>,
    pub goes_on: bool,
    /// Why nobody types it.
    pub nobody: Option<String>,
}

/// Words of a page, and what stands for them.
pub type Words = Vec<(String, String)>;

impl Default for Mark {
    fn default() -> Mark {
        Mark { hosts: vec![HOSTS[0].to_owned()], codes: Vec::new(), goes_on: false, nobody: None }
    }
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Page {
    pub fn open(name: &str) -> Page {
        let file = root().join("docs/book").join(name);
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        Page::read(name, &text).unwrap_or_else(|problem| panic!("docs/book/{problem}"))
    }

    /// # Errors
    /// A sentence: a comment of the walk's that means nothing.
    pub fn read(name: &str, text: &str) -> Result<Page, String> {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut page = Page { name: name.to_owned(), parts: Vec::new(), lines };
        let mut reader = Reader::default();
        let mut at = 0;
        while at < page.lines.len() {
            let line = page.lines[at].trim();
            let part = if let Some(language) = line.strip_prefix("```") {
                let begin = at + 1;
                let length = page.lines[begin..].iter().position(|line| line.trim() == "```");
                at = begin + length.ok_or_else(|| format!("{name}:{begin}: a block has no end"))?;
                reader.block(language, &page.lines, begin..at).map(|what| Part { line: begin, what })
            } else if let Some(comment) = comment(line) {
                let what = reader.comment(comment).map_err(|problem| format!("{name}:{}: {problem}", at + 1))?;
                what.map(|what| Part { line: at + 1, what })
            } else {
                None
            };
            page.parts.extend(part);
            at += 1;
        }
        reader.end().map_err(|problem| format!("{name}: {problem}"))?;
        Ok(page)
    }

    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.parts.iter().filter_map(|part| match &part.what {
            Said::Typed(block) => Some(block),
            _ => None,
        })
    }
}

impl Block {
    /// A command with the page's words replaced.
    pub fn meant(&self, text: &str) -> String {
        self.words.iter().fold(text.to_owned(), |text, (word, meaning)| replace_word(&text, word, meaning))
    }
}

fn comment(line: &str) -> Option<&str> {
    line.strip_prefix("<!-- ")?.strip_suffix(" -->")
}

/// Not where it is part of a longer word.
pub fn replace_word(text: &str, word: &str, meaning: &str) -> String {
    let mut new = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, found) = rest.split_at(at);
        let after = &found[word.len()..];
        let is_part = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphabetic());
        let last = before.chars().next_back().or_else(|| new.chars().next_back());
        let is_whole = !is_part(last) && !is_part(after.chars().next());
        new.push_str(before);
        new.push_str(if is_whole { meaning } else { word });
        rest = after;
    }
    new + rest
}

/// What comments said of the block that comes.
#[derive(Default)]
struct Reader {
    words: Words,
    mark: Option<Mark>,
    recording: Option<Recording>,
}

impl Reader {
    fn comment(&mut self, comment: &str) -> Result<Option<Said>, String> {
        if let Some(rest) = comment.strip_prefix("walk:") {
            let (situation, words) = rest.split_once(';').unwrap_or((rest, ""));
            let words = words.split(", ").map(str::trim).filter(|word| !word.is_empty());
            let meaning = |word: &str| -> Result<(String, String), String> {
                let (word, meaning) = word.split_once('=').ok_or_else(|| format!("`{word}` has no meaning"))?;
                Ok((word.to_owned(), meaning.to_owned()))
            };
            let words = words.map(meaning).collect::<Result<Words, String>>()?;
            if rest.contains(';') {
                self.words = words;
            }
            return Ok(Some(Said::Begin(situation.trim().to_owned())));
        }
        if let Some((host, command)) = comment.split_once("# ").filter(|(host, _)| HOSTS.contains(host)) {
            let (host, command) = (host.to_owned(), command.to_owned());
            return Ok(Some(Said::Aside { host, command }));
        }
        match comment {
            "recorded" => self.recording = Some(Recording::Text),
            "recorded loosely" => self.recording = Some(Recording::Loosely),
            "recorded exactly" => self.recording = Some(Recording::Exactly),
            // Of other tools, which make parts of pages.
            "end" => {}
            _ if comment.starts_with("made by: ") => {}
            _ => {
                let mark = comment.strip_prefix("run: ").ok_or_else(|| format!("`{comment}` means nothing here"))?;
                self.mark = Some(Mark::read(mark)?);
            }
        }
        Ok(None)
    }

    /// `body`: the lines between the fences.
    fn block(&mut self, language: &str, lines: &[String], body: Range<usize>) -> Option<Said> {
        let (mark, recording) = (self.mark.take(), self.recording.take());
        if !language.is_empty() {
            return recording.map(|recording| Said::Output(Output { recording, shown: body }));
        }
        let commands = commands(lines, body);
        let (mark, words) = (mark.unwrap_or_default(), self.words.clone());
        Some(Said::Typed(Block { mark, commands, recording, words }))
    }

    fn end(self) -> Result<(), &'static str> {
        let is_used = self.mark.is_none() && self.recording.is_none();
        if is_used { Ok(()) } else { Err("behind the last comment comes no block") }
    }
}

impl Mark {
    fn read(text: &str) -> Result<Mark, String> {
        let mut mark = Mark::default();
        if let Some(why) = text.strip_prefix("nobody: ") {
            mark.nobody = Some(why.to_owned());
            return Ok(mark);
        }
        for item in text.split(',').map(str::trim) {
            let hosts: Vec<String> = item.split(' ').map(str::to_owned).collect();
            if let Some(codes) = item.strip_prefix("exit ") {
                mark.codes = codes.split(' ').map(str::to_owned).collect();
            } else if item == "meanwhile" {
                mark.goes_on = true;
            } else if hosts.iter().all(|host| HOSTS.contains(&host.as_str())) {
                mark.hosts = hosts;
            } else {
                return Err(format!("`{item}` is no host of a walk"));
            }
        }
        Ok(mark)
    }

    /// What the command of that number, of so many, may end with.
    pub fn code(&self, number: usize, count: usize) -> &str {
        let first = count.saturating_sub(self.codes.len());
        number.checked_sub(first).and_then(|at| self.codes.get(at)).map_or("0", String::as_str)
    }
}

/// Cuts a block into commands: a line ends one, unless a stroke stands at its end, or it opens a text that ends with `END`.
fn commands(lines: &[String], body: Range<usize>) -> Vec<Typed> {
    let indent = lines[body.start - 1].len() - lines[body.start - 1].trim_start().len();
    let text = |at: usize| lines[at].get(indent..).unwrap_or_default();
    let is_session = !body.is_empty() && text(body.start).starts_with("$ ");
    let mut commands: Vec<Typed> = Vec::new();
    let (mut is_open, mut awaited) = (false, None);
    for at in body {
        let line = text(at);
        let typed = if is_session { line.strip_prefix("$ ") } else { Some(line) };
        let Some(line) = typed else {
            // The first line of a session is a command.
            if let Some(command) = commands.last_mut() {
                command.shown.end = at + 1;
            }
            continue;
        };
        if is_open {
            let command = commands.last_mut().expect("one is open");
            command.text.push('\n');
            command.text.push_str(line);
            command.shown = at + 1..at + 1;
        } else if line.trim().is_empty() || line.starts_with('#') {
            continue;
        } else {
            commands.push(Typed { text: line.to_owned(), shown: at + 1..at + 1 });
        }
        if awaited.is_none() {
            awaited = line.split_once("<<").map(|(_, word)| word.trim().to_owned());
        } else if awaited.as_deref() == Some(line) {
            awaited = None;
            is_open = false;
            continue;
        }
        is_open = awaited.is_some() || line.ends_with('\\');
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A page\n\n<!-- walk: replicating db; GROUP=db, NAME=$(kept db) -->\n<!-- run: beta, exit 0/1, meanwhile -->\n\
        ```\nfarshore sync GROUP \\\n    --full\n# a remark\ncat > file <<END\n[Unit]\nEND\nfarshore drop NAME  # GROUPS\n```\n\n\
        1. in a list\n\n   <!-- alpha# heard -->\n   <!-- recorded -->\n   ```text\n   said\n   ```\n\n\
        <!-- recorded exactly -->\n```\n$ farshore calc\n1\n2\n$ farshore calc\n```\n";

    #[test]
    fn a_page_says_what_is_typed_and_where() {
        let page = Page::read("page.md", PAGE).expect("a page");
        let [begin, first, aside, output, session] = &page.parts[..] else { panic!("{} parts", page.parts.len()) };
        assert!(matches!(&begin.what, Said::Begin(situation) if situation == "replicating db"));
        let Said::Typed(block) = &first.what else { panic!("a block") };
        assert_eq!((first.line, block.mark.hosts.as_slice(), block.mark.goes_on), (5, &["beta".to_owned()][..], true));
        let typed: Vec<String> = block.commands.iter().map(|command| block.meant(&command.text)).collect();
        let wanted =
            ["farshore sync db \\\n    --full", "cat > file <<END\n[Unit]\nEND", "farshore drop $(kept db)  # GROUPS"];
        assert_eq!(typed, wanted);
        assert_eq!([0, 1, 2].map(|number| block.mark.code(number, 3)), ["0", "0", "0/1"]);
        assert!(matches!(&aside.what, Said::Aside { host, command } if host == "alpha" && command == "heard"));
        let Said::Output(output) = &output.what else { panic!("an output") };
        assert_eq!(&page.lines[output.shown.clone()], ["   said"]);
        let Said::Typed(session) = &session.what else { panic!("a session") };
        let shown: Vec<&[String]> = session.commands.iter().map(|command| &page.lines[command.shown.clone()]).collect();
        assert_eq!(shown, [&["1".to_owned(), "2".to_owned()][..], &[]]);
        assert_eq!(session.recording, Some(Recording::Exactly));
    }

    #[test]
    fn a_comment_that_means_nothing_is_refused() {
        let block = "\n```\nfarshore status\n```\n";
        let wrong =
            ["<!-- runs: beta -->", "<!-- walk: ; GROUP -->", "<!-- run: gamma -->", "<!-- run: beta, nobody -->"];
        for wrong in wrong.map(|comment| comment.to_owned() + block) {
            assert!(Page::read("page.md", &wrong).is_err(), "{wrong}");
        }
        for wrong in ["<!-- run: beta -->", "```\nfarshore status"] {
            assert!(Page::read("page.md", wrong).is_err(), "{wrong}");
        }
        let page = Page::read("page.md", &format!("<!-- run: nobody: no cluster, here -->{block}")).expect("a page");
        let why: Vec<Option<&str>> = page.blocks().map(|block| block.mark.nobody.as_deref()).collect();
        assert_eq!(why, [Some("no cluster, here")]);
        assert!(Page::read("page.md", "<!-- made by: c; one -->\n<!-- end -->\n").is_ok());
    }
}
