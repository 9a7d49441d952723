//! Commands that a walk does not type: who does, or why nobody does.

use std::fs;

use super::page::{Block, Page, Said, Typed, replace_word, root};

/// Who types commands of pages, beside the walk.
#[derive(Debug)]
pub struct Runner {
    /// How it is started.
    pub command: &'static str,
    /// What it types stands in these folders.
    sources: &'static [&'static str],
    /// Pages of which it takes a command as it stands there, and what is written before the beginning of such a command.
    takes: &'static [(&'static str, &'static str)],
}

static NEWCOMER: Runner = Runner {
    command: "cargo xtask newcomer",
    sources: &["xtask/src/newcomer"],
    takes: &[("operate/install.md", "book.install.command(\""), ("quickstart.md", "book.quickstart.command(\"")],
};
static GUEST: Runner = Runner { command: "cargo xtask test guest", sources: &["xtask/src/suite/guest"], takes: &[] };
static PACEMAKER: Runner = Runner { command: "cargo xtask pacemaker", sources: &["xtask/src/pacemaker"], takes: &[] };

/// Who types a command, or why nobody does.
#[derive(Clone, Copy, Debug)]
pub enum Who<'a> {
    Other(&'static Runner),
    Nobody(&'a str),
}

const NO_REGISTRY: &str = "no container engine";
const NO_PCS: &str = "no pcs: the trial of the agent uses the cluster's own commands";
const NO_TARGETCLI: &str = "no targetcli: the guest makes the same targets by configfs";
const NO_LIBVIRTD: &str = "no libvirtd";
const NO_UNITS: &str = "no systemd: the trial of the target starts and stops the units by other commands";
const NO_LINE: &str = "a line is measured for seconds to hours; the tests of the line use times and sizes of their own";
const BUILDS: &str = "builds or measures for minutes";

/// Commands in which this stands, at the beginning of a word, are not typed here. The first that fits counts.
static ELSEWHERE: [(&str, Who<'static>); 26] = [
    ("farshore attach", Who::Other(&GUEST)),
    ("farshore detach", Who::Other(&GUEST)),
    ("mount /dev/farshore", Who::Other(&NEWCOMER)),
    ("umount ", Who::Other(&GUEST)),
    ("apt install ./farshore_NEW", Who::Nobody("no package of a newer version")),
    ("apt install", Who::Other(&NEWCOMER)),
    ("apt remove", Who::Nobody("no apt: the trial of the package removes it by dpkg")),
    ("postgresql@", Who::Nobody("no cluster of Debian's PostgreSQL under systemd")),
    ("systemctl enable --now farshore-primary@", Who::Other(&PACEMAKER)),
    ("systemctl stop farshore-primary@", Who::Other(&PACEMAKER)),
    ("farshore-attach@", Who::Nobody(NO_UNITS)),
    ("farshore-primary@", Who::Nobody(NO_UNITS)),
    ("crm_attribute", Who::Other(&PACEMAKER)),
    ("farshore link serve", Who::Nobody(NO_LINE)),
    ("farshore link probe", Who::Nobody(NO_LINE)),
    ("farshore link sweep", Who::Nobody(NO_LINE)),
    ("farshore link soak", Who::Nobody(NO_LINE)),
    ("farshore link test far", Who::Nobody(NO_LINE)),
    ("pcs ", Who::Nobody(NO_PCS)),
    ("targetcli ", Who::Nobody(NO_TARGETCLI)),
    ("virsh ", Who::Nobody(NO_LIBVIRTD)),
    ("podman ", Who::Nobody(NO_REGISTRY)),
    ("dnf ", Who::Nobody("no system of that family")),
    ("qemu-nbd ", Who::Nobody("no kernel with NBD where qemu-nbd is")),
    ("top ", Who::Nobody("a screen")),
    ("cargo ", Who::Nobody(BUILDS)),
];

/// Names in pages, and what runners may call the same.
const NAMES: [(&str, &str); 8] = [
    ("GROUP", "db"),
    ("main", "db"),
    ("g", "db"),
    ("VOLUME", "data"),
    ("/mnt", "/srv"),
    ("alpha", "beta"),
    ("near", "beta"),
    ("\"$(crm_node -n)\"", "beta"),
];

/// Who types a command of a block; `None`: the walk does.
pub fn who<'a>(block: &'a Block, command: &Typed) -> Option<Who<'a>> {
    if let Some(why) = &block.mark.nobody {
        return Some(Who::Nobody(why));
    }
    let text = without_remark(&command.text);
    ELSEWHERE.iter().find(|(part, _)| has_word(text, part)).map(|(_, who)| *who)
}

/// Where a word begins so.
fn has_word(text: &str, part: &str) -> bool {
    text.match_indices(part).any(|(at, _)| !text[..at].ends_with(|letter: char| letter.is_alphanumeric()))
}

pub fn without_remark(text: &str) -> &str {
    text.split_once(" # ").map_or(text, |(command, _)| command).trim_end()
}

impl Runner {
    /// All that it types from, as one text, without remarks.
    fn text(&self) -> String {
        let mut text = String::new();
        for source in self.sources {
            for entry in fs::read_dir(root().join(source)).expect("a folder of the runner") {
                let path = entry.expect("a file of the runner").path();
                let file = fs::read_to_string(path).expect("a text");
                let is_remark = |line: &str| line.starts_with('#') || line.starts_with("//");
                for line in file.lines().filter(|line| !is_remark(line.trim_start())) {
                    text += line;
                    text.push('\n');
                }
            }
        }
        text
    }

    /// The lines of a command that it does not type, neither as they stand there nor with names of its own.
    fn lacks(&self, page: &str, command: &str) -> Vec<String> {
        let source = self.text();
        let text = with_one_name(&source.replace("\\\"", "\""));
        let is_taken = |line: &str| {
            let call = self.takes.iter().find(|(taken, _)| *taken == page).map(|(_, call)| *call);
            let mut beginnings = call.into_iter().flat_map(|call| source.split(call).skip(1));
            beginnings.any(|rest| rest.split_once('"').is_some_and(|(beginning, _)| line.starts_with(beginning)))
        };
        let mut lacking = lines(command);
        lacking.retain(|line| !is_taken(line) && !stands_in(&text, &with_one_name(line)));
        lacking
    }
}

/// Its lines, and the commands that share one.
fn lines(command: &str) -> Vec<String> {
    let text = without_remark(command).replace("\\\n", " ").replace(" && ", "\n").replace("; ", "\n");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(words).filter(|line| !line.is_empty()).collect()
}

fn with_one_name(text: &str) -> String {
    NAMES.iter().fold(text.to_owned(), |text, (word, name)| replace_word(&text, word, name))
}

/// As a whole: no word of it goes on.
fn stands_in(text: &str, line: &str) -> bool {
    text.match_indices(line).any(|(at, _)| {
        let is_begin = !text[..at].ends_with(|letter: char| letter.is_alphanumeric());
        let next = text[at + line.len()..].chars().next();
        is_begin && next.is_none_or(|letter| letter.is_whitespace() || "\"')&|;".contains(letter))
    })
}

/// Commands that are left to somebody who does not type them.
pub fn wrong(pages: &[Page]) -> Vec<String> {
    let mut wrong = Vec::new();
    for page in pages {
        for part in &page.parts {
            let Said::Typed(block) = &part.what else { continue };
            for command in &block.commands {
                let Some(Who::Other(runner)) = who(block, command) else { continue };
                let lacking = runner.lacks(&page.name, &block.meant(&command.text));
                let say = |line: String| {
                    format!("docs/book/{}:{}: {} does not type `{line}`", page.name, part.line, runner.command)
                };
                wrong.extend(lacking.into_iter().map(say));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_types_each_line_of_what_is_left_to_it() {
        let (attach, install, quickstart) = ("operate/attach.md", "operate/install.md", "quickstart.md");
        let typed = [
            (&GUEST, attach, "umount /srv && farshore detach db"),
            (&NEWCOMER, install, "apt install ./farshore_0.1.0-1_amd64.deb"),
            (&NEWCOMER, quickstart, "mount /dev/farshore/main/data /mnt      # umount /mnt"),
        ];
        for (runner, page, command) in typed {
            assert!(runner.lacks(page, command).is_empty(), "{command}");
        }
        let not_typed = [
            (&GUEST, attach, "farshore detach db --all", "farshore detach db --all"),
            (&NEWCOMER, attach, "apt install ./farshore_0.1.0-1_amd64.deb", "apt install ./farshore_0.1.0-1_amd64.deb"),
            // Some of its words, and the end of the text, are known.
            (&PACEMAKER, attach, "cat > a.mount <<END\n[Unit]\nWants=farshore.service\nEND", "cat > a.mount <<END"),
            (
                &PACEMAKER,
                attach,
                "systemctl daemon-reload; systemctl add-wants srv.mount",
                "systemctl add-wants srv.mount",
            ),
        ];
        for (runner, page, command, line) in not_typed {
            assert!(runner.lacks(page, command).iter().any(|lacking| lacking == line), "{command}");
        }
    }
}
