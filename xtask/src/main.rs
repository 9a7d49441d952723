//! `cargo xtask`: everything around the product that is not the product.

mod bench;
mod demo;
mod faults;
mod made;
mod measured;
mod mutants;
mod newcomer;
mod pacemaker;
mod package;
mod project;
mod soak;
mod suite;
mod systems;
mod tidy;
mod tools;
#[cfg(test)]
mod typed;
mod unchanged;
mod wan;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Farshore's project tooling")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything CI runs: installs what it needs, checks, tests, and says how many passed
    Test(suite::TestArgs),
    /// Inject faults into the engine, and see how many seeds it takes until a checker objects
    Faults(faults::FaultsArgs),
    /// Seeds, enumerated crashes and fuzzers on all cores, until the time is over; or mutants of the engine
    Soak(soak::SoakArgs),
    /// Compare what the simulator's runs print with what they printed at another commit, byte for byte
    Unchanged(unchanged::UnchangedArgs),
    /// Check the rules of the house: sizes, imports, words, paths
    Tidy,
    /// Write docs/book/proofs.md: which test proves which promise or rule, by the tags beside the tests
    Proofs,
    /// Write the tables and the picture that the pages make of the measurements in docs/book/measured
    Measured,
    /// Build the product and play the demonstration beside an emulated WAN
    Demo {
        /// `--json`, `--dir DIR`, `--relay` (no WAN)
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// The export's speed beside other NBD servers on the same file (about 20 minutes; see docs/book/bench.md)
    Bench(bench::BenchArgs),
    /// Build the packages: .deb and .rpm, with manual pages, completions, unit, licences and debug symbols (see docs/book/operate/install.md)
    Package(package::PackageArgs),
    /// The OCF agent in a real Pacemaker cluster, and the target of a role under a real systemd (root, debootstrap; five minutes)
    Pacemaker(pacemaker::PacemakerArgs),
    /// Two emulated machines, the package, and the words of the documentation typed as they stand, to a verified failover (root,
    /// debootstrap, qemu; some ten minutes)
    Newcomer(newcomer::NewcomerArgs),
    /// How fast the planner reads traces of each format
    BenchScan {
        /// Records of each made file
        #[arg(default_value_t = 3_000_000)]
        records: u64,
    },
    /// A WAN in a box: two network namespaces and a long cable between them
    #[command(subcommand)]
    Wan(wan::cli::WanCommand),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Test(arguments) => suite::main(arguments),
        Task::Faults(arguments) => faults::main(&arguments),
        Task::Soak(arguments) => soak::main(&arguments),
        Task::Unchanged(arguments) => unchanged::main(&arguments),
        Task::Tidy => check_tidiness(),
        Task::Proofs => write_proofs(),
        Task::Measured => write_measured(),
        Task::Demo { arguments } => demo::main(&arguments),
        Task::Bench(arguments) => bench::main(arguments),
        Task::Package(arguments) => package::main(&arguments),
        Task::Pacemaker(arguments) => pacemaker::main(&arguments),
        Task::Newcomer(arguments) => newcomer::main(&arguments),
        Task::BenchScan { records } => bench_scan(records),
        Task::Wan(command) => wan::cli::main(command),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn bench_scan(records: u64) -> Result<ExitCode> {
    let project = project::Project::find()?;
    let arguments =
        ["run", "--quiet", "--release", "--package", "plan", "--example", "speed", "--", &records.to_string()];
    let status = project.command("cargo").args(arguments).status().context("starting `cargo` failed")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check_tidiness() -> Result<ExitCode> {
    let project = project::Project::find()?;
    let problems = tidy::check(&project)?;
    for problem in &problems {
        println!("{problem}");
    }
    println!("{}", tidy::book_words(&project)?);
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write_proofs() -> Result<ExitCode> {
    println!("{} is written", tidy::write_proofs(&project::Project::find()?)?);
    Ok(ExitCode::SUCCESS)
}

fn write_measured() -> Result<ExitCode> {
    let written = tidy::write_measured(&project::Project::find()?)?;
    written.iter().for_each(|path| println!("{path} is written"));
    println!("{} pages and pictures differed from docs/book/measured", written.len());
    Ok(ExitCode::SUCCESS)
}
