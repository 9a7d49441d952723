//! What a package says besides what it does: manual pages and completions, and the licences of what the program is made of.

use super::manifest::{LinkedCrate, linked_crates};
use super::ship::ShipBuild;
use crate::project::run;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// How names of files with terms begin, in lower case.
const TERMS: [&str; 6] = ["licen", "copying", "copyright", "notice", "unlicense", "patents"];

/// Manual pages and completions, by the program's own command line: `crates/farshore/examples/pages.rs`.
///
/// # Errors
/// When the example cannot be built, or writes nothing.
pub fn write_pages(build: &ShipBuild) -> Result<()> {
    let pages = build.folder().join("pages");
    if pages.exists() {
        fs::remove_dir_all(&pages)?;
    }
    let arguments = ["run", "--quiet", "--locked", "--package", "farshore", "--example", "pages", "--"];
    run(build.command("cargo").args(arguments).arg(&pages))?;
    // As Debian wants them, and without a name or date inside.
    let mut gzip = build.command("gzip");
    for page in fs::read_dir(pages.join("man/man1"))? {
        gzip.arg(page?.path());
    }
    let status = gzip.args(["--best", "--no-name"]).status().context("starting `gzip` failed")?;
    ensure!(status.success(), "packing the manual pages failed; see above");
    Ok(())
}

/// One file: which crates of others are in the program, by which licence, and every text of theirs, each once.
///
/// # Errors
/// When a crate's sources cannot be read.
pub fn write_licences(build: &ShipBuild) -> Result<()> {
    let crates = linked_crates(build.project)?;
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for linked in &crates {
        for text in terms_of(&linked.folder)? {
            texts.entry(text).or_default().push(format!("{} {}", linked.name, linked.version));
        }
    }
    let folder = build.folder().join("papers");
    fs::create_dir_all(&folder)?;
    let file = folder.join("third-party-licences.txt");
    fs::write(&file, page(&crates, &texts)).with_context(|| format!("writing {} failed", file.display()))?;
    println!("{}: {} crates, {} texts", file.display(), crates.len(), texts.len());
    Ok(())
}

/// The texts in a crate's folder, in the order of their names.
fn terms_of(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {} failed", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    let is_terms = |file: &&std::path::PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        file.is_file() && TERMS.iter().any(|begin| name.starts_with(begin))
    };
    let text = |file: &std::path::PathBuf| Ok(String::from_utf8_lossy(&fs::read(file)?).replace("\r\n", "\n"));
    files.iter().filter(is_terms).map(text).collect()
}

/// `texts`: whose each one is.
fn page(crates: &[LinkedCrate], texts: &BTreeMap<String, Vec<String>>) -> String {
    let mut page = String::from(
        "Farshore is linked with the crates of this list. Their texts follow, each once.\n\
         The program also holds the standard library of Rust (MIT OR Apache-2.0).\n\n",
    );
    for LinkedCrate { name, version, licence, .. } in crates {
        let _ = writeln!(page, "{name} {version}: {licence}");
    }
    // By the first crate's name, not by the text's first letters.
    let mut ordered: Vec<(&String, &Vec<String>)> = texts.iter().collect();
    ordered.sort_by_key(|(text, owners)| (*owners, *text));
    for (text, owners) in ordered {
        let _ = write!(page, "\n{}\n{}\n\n{}\n", "-".repeat(80), owners.join(", "), text.trim_end());
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_found_by_their_names_and_a_text_stands_once() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, text) in [("LICENSE-MIT", "mit\r\n"), ("NOTICE", "notice\n"), ("README.md", "read"), ("lib.rs", "")]
        {
            fs::write(folder.path().join(name), text).expect("a file");
        }
        assert_eq!(terms_of(folder.path()).expect("texts"), ["mit\n", "notice\n"]);
        let linked = |name: &str| LinkedCrate {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            licence: "MIT".to_owned(),
            folder: folder.path().to_path_buf(),
        };
        let owners = vec!["a 1.0.0".to_owned(), "b 1.0.0".to_owned()];
        let page = page(&[linked("a"), linked("b")], &BTreeMap::from([("mit\n".to_owned(), owners)]));
        assert!(page.contains("\na 1.0.0: MIT\nb 1.0.0: MIT\n"), "{page}");
        assert!(page.contains("\na 1.0.0, b 1.0.0\n\nmit\n"), "{page}");
    }
}
