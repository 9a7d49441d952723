//! The commands that the documentation tells people to type, as they stand there.

use anyhow::{Context, Result, ensure};

/// The commands of one page.
pub struct Page {
    name: &'static str,
    commands: Vec<String>,
}

impl Page {
    pub fn new(name: &'static str, text: &str) -> Page {
        let (mut commands, mut in_block) = (Vec::new(), false);
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                in_block = !in_block;
            } else if in_block {
                commands.extend(command(line));
            }
        }
        Page { name, commands }
    }

    /// The one command of the page that begins so.
    ///
    /// # Errors
    /// When the page has none, or several that differ: then this trial is to be read beside the page again.
    pub fn command(&self, beginning: &str) -> Result<&str> {
        let mut found = self.commands.iter().filter(|command| command.starts_with(beginning));
        let first = found.next().with_context(|| format!("{} has no command `{beginning} ...`", self.name))?;
        ensure!(found.all(|other| other == first), "{} has several commands `{beginning} ...`", self.name);
        Ok(first)
    }
}

/// A line without the name of the host before it and the remark behind it.
fn command(line: &str) -> Option<String> {
    let line = match line.split_once("# ") {
        Some((host, rest)) if !host.is_empty() && host.chars().all(|letter| letter.is_ascii_alphanumeric()) => rest,
        _ => line,
    };
    let line = line.split_once(" # ").map_or(line, |(command, _)| command).trim();
    (!line.is_empty() && !line.starts_with('#')).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Type `farshore up`:\n\n```\nnear# farshore up --address 10.0.0.1     # prints a line\n# a remark\n\
                        farshore attach main\nfar#  farshore attach main\n```\nfarshore join\n";

    #[test]
    fn commands_stand_in_blocks_without_hosts_and_remarks() {
        let page = Page::new("a page", TEXT);
        assert_eq!(page.command("farshore up").expect("a command"), "farshore up --address 10.0.0.1");
        assert_eq!(page.command("farshore attach").expect("twice the same"), "farshore attach main");
        assert!(page.command("farshore join").is_err(), "it stands in no block");
        assert!(page.command("farshore").is_err(), "several differ");
    }
}
