//! `sync --reverse`: what the other node lacks is asked about on a terminal.

use std::io::{self, BufRead, IsTerminal, Write};

use toolkit::screen::clean;

use crate::api::refusals::DeskRefusal;
use crate::api::{ApiRequest, Reply, ReverseOrder};
use crate::args::SyncArgs;
use crate::args::reach::ReachAny;
use crate::cmd::answers::Answers;
use crate::cmd::progress::WaitingFor;
use crate::cmd::reach;
use crate::outcome::{CommandFailure, CommandOutcome, print};

pub fn run(args: &SyncArgs) -> CommandOutcome {
    let answers = Answers::new("sync", args.json);
    let mut answers = if args.reverse.stop { answers } else { answers.of_begins() };
    for group in answers.targets(&args.reach, &args.groups.groups, args.groups.all)? {
        let given = &args.reverse;
        let order = ReverseOrder {
            group: group.clone(),
            full: args.full,
            stop: given.stop,
            yes: given.yes,
            agreed_dead: None,
            discard: given.discard,
            close_clients: given.close_clients,
            skip_hooks: given.skip_hooks,
        };
        let answer = typed(&args.reach, order, args.json);
        let begun = match &answer {
            Ok(Reply::Ok { unchanged: false, operation, .. }) if !given.stop => operation.clone(),
            _ => None,
        };
        answers.add(&group, answer)?;
        if let Some(id) = begun.filter(|_| !args.json) {
            print(&format!("operation {}\n", clean(&id)))?;
        }
    }
    answers.finish()
}

fn typed(reach: &ReachAny, order: ReverseOrder, json: bool) -> Result<Reply, CommandFailure> {
    let ask = |order: ReverseOrder| {
        let group = order.group.clone();
        reach::order_watched(reach, &group, ApiRequest::Reverse(order), WaitingFor::Switchover)
    };
    let mut reply = ask(order.clone())?;
    // What dies while it is read is asked about as well.
    while let Some((what, dead)) = what_is_given_up(&reply).filter(|_| !json && io::stdin().is_terminal()) {
        if !is_confirmed(what, &mut io::stdin().lock()) {
            break;
        }
        reply = ask(ReverseOrder { yes: true, agreed_dead: dead.cloned(), ..order.clone() })?;
    }
    Ok(reply)
}

/// As a sentence, and the volumes of dead disks, which a daemon of before does not name.
fn what_is_given_up(reply: &Reply) -> Option<(&str, Option<&Vec<String>>)> {
    match reply {
        Reply::Error { message, refusal: Some(refusal), .. } if refusal.code == DeskRefusal::ReverseGivesUp.word() => {
            Some((message, refusal.dead_volumes.as_ref()))
        }
        _ => None,
    }
}

fn is_confirmed(what: &str, answer: &mut impl BufRead) -> bool {
    eprint!("{}\nGive that up? Type yes: ", clean(what));
    let _ = io::stderr().flush();
    let mut line = String::new();
    answer.read_line(&mut line).is_ok() && line.trim() == "yes"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        for (answer, is_yes) in [("yes\n", true), ("y\n", false), ("", false), ("no\n", false), (" yes \n", true)] {
            assert_eq!(is_confirmed("all of it", &mut answer.as_bytes()), is_yes, "{answer:?}");
        }
    }
}
