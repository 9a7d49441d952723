//! What cargo knows of the packages that the program is made from, and what our tables say of the packages that are made.

use crate::project::{Project, text_of};
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// A crate of others that the program is linked with.
#[derive(Debug)]
pub struct LinkedCrate {
    pub name: String,
    pub version: String,
    pub licence: String,
    /// Where its sources are.
    pub folder: PathBuf,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    manifest_path: PathBuf,
    /// `None`: one of ours.
    source: Option<String>,
}

/// Folders that hold the sources of others, one folder for each crate.
///
/// # Errors
/// When cargo does not understand the workspace.
pub fn registry_folders(project: &Project) -> Result<BTreeSet<PathBuf>> {
    let packages = packages_of(project)?;
    let foreign = packages.iter().filter(|package| package.source.is_some());
    Ok(foreign.filter_map(|package| package.manifest_path.parent()?.parent().map(PathBuf::from)).collect())
}

/// What is linked into the program on this kind of machine, by name: neither macros nor what only builds or tests it.
///
/// # Errors
/// When cargo does not understand the workspace.
pub fn linked_crates(project: &Project) -> Result<Vec<LinkedCrate>> {
    let mut tree = project.command("cargo");
    tree.args(["tree", "--locked", "--package", "farshore", "--edges", "normal,no-proc-macro"]);
    let tree = text_of(tree.args(["--prefix", "none", "--format", "{p}"]))?;
    let linked: BTreeSet<(&str, &str)> = tree.lines().filter_map(name_and_version).collect();
    let mut crates = Vec::new();
    for package in packages_of(project)?.into_iter().filter(|package| package.source.is_some()) {
        if linked.contains(&(package.name.as_str(), package.version.as_str())) {
            let folder = package.manifest_path.parent().context("a manifest is in a folder")?.to_path_buf();
            let licence = package.license.unwrap_or_else(|| "see its files".to_owned());
            crates.push(LinkedCrate { name: package.name, version: package.version, licence, folder });
        }
    }
    crates.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
    Ok(crates)
}

/// Of a line of `cargo tree`: `name v1.2.3 (path or mark)`.
fn name_and_version(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split(' ');
    Some((words.next()?, words.next()?.strip_prefix('v')?))
}

fn packages_of(project: &Project) -> Result<Vec<Package>> {
    let mut cargo = project.command("cargo");
    let text = text_of(cargo.args(["metadata", "--locked", "--format-version", "1"]))?;
    Ok(serde_json::from_str::<Metadata>(&text)?.packages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::path::Path;

    /// Made by `cargo xtask package`; everything else that a package holds is a file of the project.
    const MADE: [&str; 6] = [
        "target/release/farshore",
        "target/release/unpacked/usr/bin/farshore",
        "target/release/pages/man/man1/*.1.gz",
        "target/release/pages/bash-completion/completions/farshore",
        "target/release/pages/zsh/vendor-completions/_farshore",
        "target/release/pages/fish/vendor_completions.d/farshore.fish",
    ];
    const LICENCES: &str = "target/release/papers/third-party-licences.txt";

    struct Tables {
        folder: PathBuf,
        metadata: Value,
    }

    fn tables() -> Tables {
        let project = Project::find().expect("a workspace");
        let mut cargo = project.command("cargo");
        let text = text_of(cargo.args(["metadata", "--no-deps", "--format-version", "1"])).expect("cargo's answer");
        let all: Value = serde_json::from_str(&text).expect("JSON");
        let packages = all["packages"].as_array().expect("a list");
        let ours = packages.iter().find(|package| package["name"] == "farshore").expect("the product");
        let manifest = ours["manifest_path"].as_str().expect("a path");
        let folder = Path::new(manifest).parent().expect("a folder").to_path_buf();
        Tables { folder, metadata: ours["metadata"].clone() }
    }

    /// Source and destination of each file of a table.
    fn assets(table: &Value) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let of = |asset: &Value| match asset.as_array() {
            Some(list) => (text(&list[0]), text(&list[1])),
            None => (text(&asset["source"]), text(&asset["dest"])),
        };
        table["assets"].as_array().expect("a list").iter().map(of).collect()
    }

    #[test]
    fn every_file_of_a_package_is_there_or_made() {
        let Tables { folder, metadata } = tables();
        let mut named = assets(&metadata["deb"]);
        named.extend(assets(&metadata["generate-rpm"]));
        for (source, _) in &named {
            let is_there = MADE.contains(&source.as_str()) || source == LICENCES || folder.join(source).is_file();
            assert!(is_there, "no such file, and none that is made: {source}");
        }
        let root = folder.join("../..");
        let scripts = ["post_install_script", "pre_uninstall_script", "post_uninstall_script"];
        for script in scripts.map(|key| metadata["generate-rpm"][key].as_str().expect("a path")) {
            assert!(root.join(script).is_file(), "{script}");
        }
        let folder = folder.join(metadata["deb"]["maintainer-scripts"].as_str().expect("a path"));
        assert!(["postinst", "prerm", "postrm"].iter().all(|script| folder.join(script).is_file()));
    }

    #[test]
    fn both_packages_hold_the_same_files() {
        let Tables { metadata, .. } = tables();
        let places = |table| -> BTreeSet<String> {
            let place = |(source, to): (String, String)| {
                let name = source.rsplit('/').next().unwrap_or_default();
                let to = if to.ends_with('/') { to + name } else { to };
                // Each family of distributions has its own folder for this one.
                to.trim_start_matches('/').replace("zsh/site-functions", "zsh/vendor-completions")
            };
            assets(&metadata[table]).into_iter().map(place).collect()
        };
        // A folder that takes several files has no name of its own in the one table.
        let of = |table| places(table).into_iter().map(|place| place.replace("/*.1.gz", "/")).collect::<BTreeSet<_>>();
        assert_eq!(of("deb"), of("generate-rpm"));
    }

    /// An installation starts nothing, and nothing of the package can delete what it did not bring.
    #[test]
    fn no_script_starts_or_deletes_anything() {
        let packaging = tables().folder.join("../../packaging");
        let scripts =
            ["debian/postinst", "debian/prerm", "debian/postrm", "rpm/post.sh", "rpm/preun.sh", "rpm/postun.sh"];
        for script in scripts {
            let text = std::fs::read_to_string(packaging.join(script)).expect("a script");
            let commands =
                text.lines().map(str::trim).filter(|line| !line.starts_with('#') && !line.starts_with("echo "));
            for line in commands {
                let forbidden = ["rm ", "rmdir", " start", "restart", " enable", "unmask"];
                assert!(!forbidden.iter().any(|word| line.contains(word)), "{script}: {line}");
            }
        }
    }

    #[test]
    fn a_line_of_the_tree_is_understood() {
        assert_eq!(name_and_version("serde v1.0.229 (*)"), Some(("serde", "1.0.229")));
        assert_eq!(name_and_version(""), None);
    }
}
