//! `demo`: plays [`crate::demo`] and says by its exit code how it ended.

use clap::Parser;

use super::{Exit, Failure, Outcome};
use crate::demo::{self, Ending, Interrupted, Options};

/// What shells report of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

pub fn run(arguments: &[String]) -> Outcome {
    let words = std::iter::once("farshore demo").chain(arguments.iter().map(String::as_str));
    let options = match Options::try_parse_from(words) {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return Ok(if error.use_stderr() { Exit::Usage } else { Exit::Done }.into());
        }
    };
    match demo::run(&options) {
        Ok(Ending::AsPromised) => Ok(Exit::Done.into()),
        Ok(Ending::Slow) => Ok(Exit::Warning.into()),
        Ok(Ending::Broken) => Ok(Exit::Failed.into()),
        Err(error) if error.is::<Interrupted>() => {
            crate::log::last_word("farshore: interrupted; the daemons were ended and everything temporary was removed");
            Ok(INTERRUPTED.into())
        }
        Err(error) => Err(Failure::from(error)),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }
}
