//! The table of keys for readers: the manual's rows, and what the tests hold of every key.

use crate::config::{Node, Tls, Top, Volume};
use crate::group::{Layout, Members, Settings};
use crate::keys::{Keyed, Row, Takes};
use crate::link::{Link, LinkSettings};

/// A table of the file.
pub struct Table {
    /// The file's own word for it, with `NAME` for names; empty for the top.
    pub name: &'static str,
    pub rows: Vec<&'static Row>,
}

/// All tables, in the order of the manual.
pub fn tables() -> [Table; 6] {
    [
        Table { name: "", rows: rows::<Top>() },
        Table { name: "tls", rows: rows::<Tls>() },
        Table { name: "link", rows: [rows::<Link>(), rows::<LinkSettings>()].concat() },
        Table { name: "nodes.NAME", rows: rows::<Node>() },
        Table { name: "groups.NAME", rows: [rows::<Members>(), rows::<Settings>(), rows::<Layout>()].concat() },
        Table { name: "groups.NAME.volumes.NAME", rows: rows::<Volume>() },
    ]
}

fn rows<S: Keyed>() -> Vec<&'static Row> {
    S::KEYS.iter().map(|entry| &entry.row).collect()
}

impl Table {
    /// As the manual has it, from its first line to its last.
    pub fn text(&self) -> String {
        let tells_live = self.name == "groups.NAME";
        let live = |word: &'static str| if tells_live { word } else { "" };
        let head = format!("| Key | Default | Bounds |{} Meaning and cost |\n", live(" Set live |"));
        let rule = format!("|---|---|---|{}---|\n", live("---|"));
        let row = |Row { name, takes, meaning, about, .. }: &&Row| {
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
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md")
    }

    /// What a check says of a file with one line in a table.
    fn told_of(table: &Table, line: &str) -> String {
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
        let docs = std::fs::read_to_string(file_of_docs()).expect("docs/config.md");
        for table in tables() {
            for Row { name, about, meaning, .. } in &table.rows {
                let about = about();
                let place = format!("{name} in [{}]", table.name);
                assert_eq!(about.required.is_some(), about.default.starts_with("required"), "{place}");
                assert!(!about.default.is_empty() && !about.bounds.is_empty(), "{place}: {about:?}");
                assert!(!meaning.is_empty() && !meaning.ends_with('.'), "{place}: {meaning}");
                assert!(
                    docs.contains(&format!("\n| {} |", about.kind)),
                    "{place}: docs/config.md has no kind {}",
                    about.kind
                );
                let name = if *name == EACH { "a" } else { name };
                let last = name.rsplit('.').next().expect("a name");
                let told = told_of(&table, &format!("{name} = 1979-05-27"));
                let of_key = |line: &str| line.contains(&format!("{last:?}")) && line.contains(" is a date, not ");
                assert!(told.lines().any(of_key) && !told.contains("unknown"), "{place}: {told}");
                let told = told_of(&table, &format!("{name}_x = 1"));
                assert!(told.contains(&format!("unknown key \"{last}_x\"")), "{place}: {told}");
                let is_shown =
                    EXAMPLE.lines().any(|line| line.trim_start_matches("# ").starts_with(&format!("{name} = ")));
                assert!(is_shown || name == "a", "{place}: the example does not show it");
            }
        }
    }

    /// `BLESS=1 cargo test` writes the tables anew; read them before committing.
    #[test]
    fn the_manuals_tables_are_the_programs() {
        let mut docs = std::fs::read_to_string(file_of_docs()).expect("docs/config.md");
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
            assert!(wrong.is_empty(), "docs/config.md should have these tables:\n{wrong}");
        }
    }
}
