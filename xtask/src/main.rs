//! `cargo xtask`: everything around the product that is not the product.

mod wan;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Farshore's project tooling")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// A WAN in a box: two network namespaces and a long cable between them
    #[command(subcommand)]
    Wan(wan::cli::WanCommand),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Task::Wan(command) => wan::cli::main(command),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
