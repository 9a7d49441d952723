//! Plays the demonstration and says by its exit code how it ended.

use std::process::ExitCode;

use clap::Parser;
use demo::{DemoEnding, DemoOptions, Interrupted};

/// As of the product's own commands: something needs an eye, it failed, it was not asked rightly.
const WARNING: u8 = 1;
const FAILED: u8 = 2;
const USAGE: u8 = 3;
/// What shells report of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let options = match DemoOptions::try_parse() {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    match demo::run(&options) {
        Ok(DemoEnding::AsPromised) => ExitCode::SUCCESS,
        Ok(DemoEnding::Slow) => ExitCode::from(WARNING),
        Ok(DemoEnding::Broken) => ExitCode::from(FAILED),
        Err(error) if error.is::<Interrupted>() => {
            eprintln!("farshore: interrupted; the daemons were ended and everything temporary was removed");
            ExitCode::from(INTERRUPTED)
        }
        Err(error) => {
            eprintln!("farshore: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        DemoOptions::command().debug_assert();
    }
}
