//! `set`: change settings of a running group. The daemon checks keys and values, all or nothing.

use std::collections::BTreeMap;

use super::reach::{self, report};
use crate::api::ApiRequest;
use crate::args::SetArgs;
use crate::outcome::{CommandFailure, CommandOutcome};

pub fn run(args: &SetArgs) -> CommandOutcome {
    let settings = parse(&args.settings)?;
    report(reach::ask_any(&args.reach, ApiRequest::Set { group: args.group.clone(), settings })?)
}

/// Pairs as typed, each key once.
pub(super) fn parse(words: &[String]) -> Result<BTreeMap<String, String>, CommandFailure> {
    let mut settings = BTreeMap::new();
    for word in words {
        let (key, value) = word
            .split_once('=')
            .filter(|(key, value)| !key.is_empty() && !value.is_empty())
            .ok_or_else(|| CommandFailure::usage(format!("{word:?} is not KEY=VALUE; write for example mode=sync")))?;
        if settings.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(CommandFailure::usage(format!("{key:?} is given twice; give it once")));
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Result<BTreeMap<String, String>, CommandFailure> {
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn pairs_are_split_once_and_given_once() {
        let settings = words(&["mode=sync", "queue.memory=8MiB"]).expect("good");
        assert_eq!(settings["queue.memory"], "8MiB");
        for bad in [&["mode"][..], &["=sync"], &["mode="], &["mode=sync", "mode=async"]] {
            assert_eq!(words(bad).expect_err("bad").exit, crate::outcome::Exit::Usage);
        }
    }
}
