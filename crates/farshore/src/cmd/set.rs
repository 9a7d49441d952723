//! `set`: change settings of running groups. The daemon checks keys and values, all or nothing.

use std::collections::BTreeMap;

use super::answers::Answers;
use super::reach;
use crate::api::ApiRequest;
use crate::args::SetArgs;
use crate::outcome::{CommandFailure, CommandOutcome};

pub fn run(args: &SetArgs) -> CommandOutcome {
    let (typed, settings) = split(&args.words, args.all)?;
    let settings = parse(settings)?;
    let mut answers = Answers::new("set", args.json);
    for group in answers.targets(&args.reach, typed, args.all)? {
        let request = ApiRequest::Set { group: group.clone(), settings: settings.clone() };
        answers.add(&group, reach::ask_any(&args.reach, request))?;
    }
    answers.finish()
}

/// The groups, which come first, and the settings behind them. No name of a group has a '='.
fn split(words: &[String], all: bool) -> Result<(&[String], &[String]), CommandFailure> {
    let Some(at) = words.iter().position(|word| word.contains('=')) else {
        // Of one word it is not known which of the two is missing.
        let settings = if all { words } else { &words[1..] };
        parse(settings)?;
        return Err(CommandFailure::usage("no KEY=VALUE is given; write for example mode=sync"));
    };
    match (at, all) {
        (0, false) => {
            Err(CommandFailure::usage("no group is given; write for example: farshore set db mode=sync, or --all"))
        }
        (1.., true) => Err(CommandFailure::usage(format!("--all is all groups, and {:?} is named too", words[0]))),
        _ => Ok(words.split_at(at)),
    }
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
    fn groups_come_before_settings() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let all = words("db web mode=sync policy=hold");
        assert_eq!(split(&all, false).ok(), Some((&all[..2], &all[2..])));
        assert_eq!(split(&all[2..], true).ok(), Some((&[][..], &all[2..])));
        for (text, all, says) in [
            ("db", false, "no KEY=VALUE"),
            ("db mode", false, "\"mode\" is not KEY=VALUE"),
            ("mode", true, "\"mode\" is not KEY=VALUE"),
            ("mode=sync", false, "no group is given"),
            ("db mode=sync", true, "\"db\" is named too"),
        ] {
            let failure = split(&words(text), all).expect_err(text);
            assert!(failure.message.contains(says), "{text}: {}", failure.message);
        }
        let misplaced = words("db mode=sync web");
        let (_, settings) = split(&misplaced, false).expect("a setting");
        assert!(parse(settings).expect_err("web is none").message.contains("\"web\" is not KEY=VALUE"));
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
