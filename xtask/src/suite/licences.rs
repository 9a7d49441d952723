//! Licences and origins of dependencies. Advisories need a network and are looked up by hand (`cargo audit`).

use super::{Bench, Counts, Outcome};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// Permissive ones, whose conditions a binary with a list of notices meets. No copyleft, weak or strong.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    // Of libFuzzer, which the fuzz targets alone are linked with.
    "NCSA",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// What is built for others only is never fetched.
const TARGETS: &[&str] = &[
    "x86_64-unknown-linux-gnu",
    "aarch64-unknown-linux-gnu",
    "x86_64-unknown-linux-musl",
    "aarch64-unknown-linux-musl",
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// Nothing for our own.
    source: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    req: String,
    path: Option<String>,
}

/// Looks at every package that any feature brings in.
pub fn check(bench: &Bench) -> Result<Outcome> {
    let mut command = bench.project.command("cargo");
    command.args(["metadata", "--format-version", "1", "--locked", "--all-features"]);
    TARGETS.iter().for_each(|target| _ = command.args(["--filter-platform", target]));
    let output = command.output().context("starting `cargo metadata` failed")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`cargo metadata` failed: {}", complaint.trim());
    let Metadata { packages } = serde_json::from_slice(&output.stdout)?;
    let problems: Vec<String> = packages.iter().flat_map(Package::problems).collect();
    problems.iter().for_each(|problem| println!("{problem}"));
    println!("{} packages", packages.len());
    Ok(match problems.len() {
        0 => Outcome::Ok(Counts::default()),
        count => Outcome::Failed(Counts::default(), format!("{count} problems")),
    })
}

impl Package {
    fn problems(&self) -> Vec<String> {
        let Package { name, version, .. } = self;
        let mut problems = Vec::new();
        match &self.license {
            None => problems.push(format!("{name} {version} names no licence")),
            Some(words) if !is_allowed(words) => problems.push(format!("{name} {version} has the licence {words}")),
            Some(_) => {}
        }
        match &self.source {
            Some(source) if source != REGISTRY => problems.push(format!("{name} {version} comes from {source}")),
            Some(_) => {}
            None => {
                let any = self.dependencies.iter().filter(|wanted| wanted.path.is_none() && wanted.req == "*");
                problems.extend(any.map(|wanted| format!("{name} takes any version of {}", wanted.name)));
            }
        }
        problems
    }
}

/// Whether an SPDX expression can be met by what we allow. What is no expression cannot.
fn is_allowed(expression: &str) -> bool {
    // Of old, a stroke stood for OR.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any_of(&mut rest) == Some(true) && rest.is_empty()
}

/// AND binds more strongly than OR.
fn any_of(words: &mut &[&str]) -> Option<bool> {
    let mut may = all_of(words)?;
    while take(words, "OR") {
        may |= all_of(words)?;
    }
    Some(may)
}

fn all_of(words: &mut &[&str]) -> Option<bool> {
    let mut may = one(words)?;
    while take(words, "AND") {
        may &= one(words)?;
    }
    Some(may)
}

fn one(words: &mut &[&str]) -> Option<bool> {
    if take(words, "(") {
        let may = any_of(words)?;
        return take(words, ")").then_some(may);
    }
    let (licence, rest) = words.split_first()?;
    *words = rest;
    match *words {
        ["WITH", exception, rest @ ..] => {
            *words = rest;
            Some(ALLOWED.contains(&format!("{licence} WITH {exception}").as_str()))
        }
        _ => Some(ALLOWED.contains(licence)),
    }
}

fn take(words: &mut &[&str], word: &str) -> bool {
    let is_next = words.first() == Some(&word);
    *words = &words[usize::from(is_next)..];
    is_next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_met_or_not() {
        for allowed in [
            "MIT",
            "MIT/Apache-2.0",
            "MIT OR GPL-3.0-only",
            "GPL-3.0-only OR MIT AND ISC",
            "ISC AND (Apache-2.0 OR GPL-2.0-only)",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(is_allowed(allowed), "{allowed}");
        }
        for refused in [
            "",
            "MPL-2.0",
            "MIT AND MPL-2.0",
            "(MIT OR ISC) AND MPL-2.0",
            "MIT WITH LLVM-exception",
            "(MIT",
            "MIT ISC",
            "MIT OR",
        ] {
            assert!(!is_allowed(refused), "{refused}");
        }
    }

    #[test]
    fn origins_and_versions_are_looked_at() {
        let package = |license: Option<&str>, source: Option<&str>, req: &str| {
            let wanted = Dependency { name: "b".to_owned(), req: req.to_owned(), path: None };
            let [license, source] = [license, source].map(|text| text.map(str::to_owned));
            Package { name: "a".to_owned(), version: "1.0.0".to_owned(), license, source, dependencies: vec![wanted] }
        };
        assert_eq!(package(Some("MIT"), Some(REGISTRY), "*").problems(), [""; 0]);
        assert_eq!(package(Some("MIT"), None, "^1").problems(), [""; 0]);
        assert_eq!(package(Some("MIT"), None, "*").problems(), ["a takes any version of b"]);
        assert_eq!(package(None, Some("git+https://a"), "^1").problems().len(), 2);
    }
}
