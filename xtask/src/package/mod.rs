//! `cargo xtask package`: a `.deb`, its debug symbols and an `.rpm`, and on request a trial of them in two fresh systems.
//!
//! What a package holds stands in `crates/farshore/Cargo.toml`, in the tables of cargo-deb and cargo-generate-rpm. Here
//! is made what they name: the program (`ship`), pages and licences (`papers`). Nothing depends on the machine, the
//! folder or the hour: paths are renamed, and each date is the last commit's.

mod manifest;
mod papers;
mod recipe;
mod ship;
mod trial;

use crate::project::{Project, run};
use crate::suite::is_there;
use anyhow::{Context, Result, ensure};
use ship::{Packers, ShipBuild};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What packing asks for by name. Without the second, cargo-deb would ship a package that names no library.
const PROGRAMS: [&str; 6] = ["dpkg-deb", "dpkg-shlibdeps", "objcopy", "strip", "gzip", "git"];

#[derive(clap::Args)]
pub struct PackageArgs {
    /// Where the packages go [default: packages in the target folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Build the last commit once more, in a clone in another folder, and compare the packages byte for byte
    #[arg(long)]
    again: bool,
    /// Install the package in fresh Debian 12 and 13 systems, play the quickstart between them, remove it (root, debootstrap)
    #[arg(long = "try")]
    is_tried: bool,
    /// What `--try` starts in namespaces of its own: the package, and the folders of both systems
    #[arg(long, hide = true, num_args = 3)]
    inside: Option<Vec<PathBuf>>,
}

/// Builds, and does what else was asked for.
///
/// # Errors
/// When a tool fails, when two builds differ, or when the trial finds something missing.
pub fn main(arguments: &PackageArgs) -> Result<ExitCode> {
    if let Some([package, near, far]) = arguments.inside.as_deref() {
        return trial::inside(package, near, far);
    }
    let project = Project::find()?;
    let out = arguments.out.clone().unwrap_or_else(|| project.target.join("packages"));
    let (build, packers, packages) = make(&project)?;
    fs::create_dir_all(&out).with_context(|| format!("making {} failed", out.display()))?;
    for file in &packages {
        let copy = out.join(file.file_name().context("a package has a name")?);
        fs::copy(file, &copy).with_context(|| format!("writing {} failed", copy.display()))?;
        println!("{} ({} bytes)", copy.display(), fs::metadata(&copy)?.len());
    }
    if arguments.again {
        build_again(&build, &packers, &packages)?;
    }
    if arguments.is_tried {
        return trial::main(&project, &packages);
    }
    Ok(ExitCode::SUCCESS)
}

/// The `.deb` of what is in the folder now.
///
/// # Errors
/// When a tool is missing or fails.
pub fn debian_package(project: &Project) -> Result<PathBuf> {
    let (.., packages) = make(project)?;
    let is_debian = |file: &PathBuf| file.extension().is_some_and(|end| end == "deb");
    packages.into_iter().find(is_debian).context("no .deb was made")
}

fn make(project: &Project) -> Result<(ShipBuild<'_>, Packers, Vec<PathBuf>)> {
    let missing: Vec<&str> = PROGRAMS.into_iter().filter(|program| !is_there(program)).collect();
    ensure!(
        missing.is_empty(),
        "packages need {}; on Debian: apt-get install dpkg-dev binutils git",
        missing.join(", ")
    );
    let build = ShipBuild::new(project)?;
    build.make_program()?;
    papers::write_pages(&build)?;
    papers::write_licences(&build)?;
    let packers = Packers::install(project)?;
    let packages = build.make_packages(&packers)?;
    Ok((build, packers, packages))
}

/// The pages are the first build's: they come from the same command line. All else is made anew, elsewhere.
fn build_again(first: &ShipBuild, packers: &Packers, packages: &[PathBuf]) -> Result<()> {
    let home = first.project.target.join("again");
    let source = home.join("source");
    if home.exists() {
        fs::remove_dir_all(&home)?;
    }
    run(first.project.command("git").args(["clone", "--quiet", "--local", "."]).arg(&source))?;
    // More may have been committed meanwhile.
    run(first.project.command("git").arg("-C").arg(&source).args(["checkout", "--quiet", "--detach", &first.commit]))?;
    let clone = Project { root: source, target: home.join("target"), crates: Vec::new() };
    let second = ShipBuild::new(&clone)?;
    second.make_program()?;
    run(clone.command("cp").arg("-r").arg(first.folder().join("pages")).arg(second.folder().join("pages")))?;
    papers::write_licences(&second)?;
    let again = second.make_packages(packers)?;
    ensure!(again.len() == packages.len(), "the second build made {} packages, not {}", again.len(), packages.len());
    for (one, other) in packages.iter().zip(&again) {
        ensure_equal(one, other)?;
    }
    println!("the same {} packages, byte for byte, from a clone in another folder", packages.len());
    fs::remove_dir_all(&home).with_context(|| format!("removing {} failed", home.display()))
}

fn ensure_equal(one: &Path, other: &Path) -> Result<()> {
    ensure!(
        fs::read(one)? == fs::read(other)?,
        "{} and {} differ; was everything committed?",
        one.display(),
        other.display()
    );
    Ok(())
}
