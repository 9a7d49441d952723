//! The table of keys for readers: the manual's rows, and what the tests hold of every key.

use crate::config::hooks::ConfiguredHook;
use crate::config::{ConfiguredNode, ConfiguredVolume, Tls, TopLevelKeys};
use crate::group::{GroupMembers, Layout, LiveSettings, RpoThresholds, ScrubSettings};
use crate::keys::{KeyRow, Keyed, Takes};
use crate::link::{ConfiguredLink, LinkSettings};
use crate::role_hooks::RoleHooks;

/// A table of the file.
pub struct KeyTable {
    /// The file's own word for it, with `NAME` for names; empty for the top.
    pub name: &'static str,
    pub rows: Vec<&'static KeyRow>,
}

/// All tables, in the order of the manual.
pub fn tables() -> [KeyTable; 7] {
    [
        KeyTable { name: "", rows: rows::<TopLevelKeys>() },
        KeyTable { name: "tls", rows: rows::<Tls>() },
        KeyTable { name: "link", rows: [rows::<ConfiguredLink>(), rows::<LinkSettings>()].concat() },
        KeyTable { name: "nodes.NAME", rows: rows::<ConfiguredNode>() },
        KeyTable {
            name: "groups.NAME",
            rows: [
                rows::<GroupMembers>(),
                rows::<LiveSettings>(),
                rows::<Layout>(),
                rows::<RpoThresholds>(),
                rows::<ScrubSettings>(),
                rows::<RoleHooks>(),
            ]
            .concat(),
        },
        KeyTable { name: "groups.NAME.volumes.NAME", rows: rows::<ConfiguredVolume>() },
        // A list of tables: each has its own line in two brackets.
        KeyTable { name: "[hook]", rows: rows::<ConfiguredHook>() },
    ]
}

fn rows<S: Keyed>() -> Vec<&'static KeyRow> {
    S::KEYS.iter().map(|entry| &entry.row).collect()
}

impl KeyTable {
    /// As the manual has it, from its first line to its last.
    pub fn text(&self) -> String {
        let shows_live = self.name == "groups.NAME";
        let live = |word: &'static str| if shows_live { word } else { "" };
        let head = format!("| Key | Default | Bounds |{} Meaning and cost |\n", live(" Set live |"));
        let rule = format!("|---|---|---|{}---|\n", live("---|"));
        let row = |KeyRow { name, takes, meaning, about, .. }: &&KeyRow| {
            let about = about();
            let live = live(if *takes == Takes::Effect { " yes |" } else { " |" });
            format!("| `{name}` | {} | {} |{live} {meaning} |\n", about.default, about.bounds)
        };
        self.rows.iter().map(row).fold(head + &rule, |text, row| text + &row)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;
    use crate::example::EXAMPLE;
    use crate::forms::EACH;

    fn file_of_docs() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/config.md")
    }

    /// What a check says of a file with one line in a table.
    fn problems_of(table: &KeyTable, line: &str) -> String {
        let before = match table.name {
            "" => String::new(),
            "groups.NAME.volumes.NAME" => {
                "[nodes.a]\n[nodes.b]\n[groups.g]\nprimary = \"a\"\nsecondary = \"b\"\n[groups.g.volumes.v]\n"
                    .to_owned()
            }
            name => format!("[{}]\n", name.replace("NAME", "n")),
        };
        Config::parse(Path::new("/f"), &format!("{before}{line}\n")).expect_err("something is missing").to_string()
    }

    /// A key that says less than this, or that a check does not know, is no entry.
    #[test]
    fn every_key_of_every_table_is_whole_and_known_to_a_check() {
        let docs = std::fs::read_to_string(file_of_docs()).expect("docs/book/config.md");
        for table in tables() {
            for KeyRow { name, about, meaning, .. } in &table.rows {
                let about = about();
                let key_path = format!("{name} in [{}]", table.name);
                assert_eq!(about.required.is_some(), about.default.starts_with("required"), "{key_path}");
                assert!(!about.default.is_empty() && !about.bounds.is_empty(), "{key_path}: {about:?}");
                assert!(!meaning.is_empty() && !meaning.ends_with('.'), "{key_path}: {meaning}");
                assert!(
                    docs.contains(&format!("\n| {} |", about.kind)),
                    "{key_path}: docs/book/config.md has no kind {}",
                    about.kind
                );
                let name = if *name == EACH { "a" } else { name };
                let last = name.rsplit('.').next().expect("a name");
                let problem = problems_of(&table, &format!("{name} = 1979-05-27"));
                let of_key = |line: &str| line.contains(&format!("{last:?}")) && line.contains(" is a date, not ");
                assert!(problem.lines().any(of_key) && !problem.contains("unknown"), "{key_path}: {problem}");
                let problem = problems_of(&table, &format!("{name}_x = 1"));
                assert!(problem.contains(&format!("unknown key \"{last}_x\"")), "{key_path}: {problem}");
                let is_shown =
                    EXAMPLE.lines().any(|line| line.trim_start_matches("# ").starts_with(&format!("{name} = ")));
                assert!(is_shown || name == "a", "{key_path}: the example does not show it");
            }
        }
    }

    /// `BLESS=1 cargo test` writes the tables anew; read them before committing.
    #[test]
    fn the_manuals_tables_are_the_programs() {
        let mut docs = std::fs::read_to_string(file_of_docs()).expect("docs/book/config.md");
        let mut wrong = String::new();
        for table in tables() {
            let head =
                if table.name.is_empty() { "# At the top\n".to_owned() } else { format!("# `[{}]`", table.name) };
            let section = docs.find(&head).expect("a section for each table");
            let from = section + docs[section..].find("\n| Key |").expect("a table of keys") + 1;
            let to = from + docs[from..].find("\n\n").expect("its end") + 1;
            if docs[from..to] != table.text() {
                wrong += &format!("\n{head}\n{}", table.text());
                docs.replace_range(from..to, &table.text());
            }
        }
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(file_of_docs(), docs).expect("written");
        } else {
            assert!(wrong.is_empty(), "docs/book/config.md should have these tables:\n{wrong}");
        }
    }
}
