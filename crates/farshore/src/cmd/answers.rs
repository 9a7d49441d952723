//! What is shown of the answers to a command for several groups: text as it comes, or one JSON object at the end.

use std::process::ExitCode;

use super::reach::{self, said, unexpected};
use crate::api::refusals::DeskRefusal;
use crate::api::{ANSWER_SCHEMA, AnswerList, AnswerView, OperationState, RefusalView, Reply};
use crate::args::reach::ReachAny;
use crate::log::last_word;
use crate::outcome::{CommandFailure, CommandOutcome, Exit, FailureCause, clean_lines, print, warn};

/// Answers so far, and how the command ends with them.
pub struct Answers {
    verb: &'static str,
    json: bool,
    /// What is done goes on behind its answer.
    begins: bool,
    list: Vec<AnswerView>,
    /// How the command would end with each answer alone; of `None` it is not known which groups are meant.
    exits: Vec<(Option<String>, Exit)>,
}

impl Answers {
    pub fn new(verb: &'static str, json: bool) -> Answers {
        Answers { verb, json, begins: false, list: Vec::new(), exits: Vec::new() }
    }

    /// Answers that say that something begins.
    pub fn of_begins(self) -> Answers {
        Answers { begins: true, ..self }
    }

    /// The groups that are meant, as [`reach::groups`] finds them. Where nobody says which these are, that is the one answer, and there are
    /// none.
    ///
    /// # Errors
    /// As there, where answers are text; or the command was typed wrongly.
    pub fn targets(&mut self, reach: &ReachAny, typed: &[String], all: bool) -> Result<Vec<String>, CommandFailure> {
        match reach::groups(reach, typed, all) {
            Err(failure) if self.json && failure.exit != Exit::Usage => {
                self.failed(None, failure);
                Ok(Vec::new())
            }
            found => found,
        }
    }

    /// The answer of a daemon for a group, or why there is none. The next group is asked all the same.
    ///
    /// # Errors
    /// The command was typed wrongly, for whichever group.
    pub fn add(&mut self, group: &str, answer: Result<Reply, CommandFailure>) -> Result<(), CommandFailure> {
        self.add_of(Some(group), answer)
    }

    /// The same of a command for a node as a whole.
    pub fn add_of_node(&mut self, answer: Result<Reply, CommandFailure>) -> Result<(), CommandFailure> {
        self.add_of(None, answer)
    }

    fn add_of(&mut self, group: Option<&str>, answer: Result<Reply, CommandFailure>) -> Result<(), CommandFailure> {
        match answer {
            Err(failure) if failure.exit == Exit::Usage => return Err(failure),
            Err(failure) => self.failed(group, failure),
            Ok(reply) if self.json => self.keep(group, reply),
            Ok(reply) => match said(reply) {
                Ok(exit) => self.ends_with(group, exit),
                Err(failure) => self.failed(group, failure),
            },
        }
        Ok(())
    }

    /// What was answered before for this group has come to its end, or not.
    pub fn amend(&mut self, group: &str, ended: Result<String, CommandFailure>) {
        let kept = self.list.iter().rposition(|answer| answer.group.as_deref() == Some(group));
        match (ended, kept) {
            (Ok(message), Some(at)) => {
                self.is_well(group);
                let answer = &mut self.list[at];
                answer.message = message;
                // They told of its begin, such as that the peer was away.
                answer.warnings.clear();
                if answer.result == OperationState::Running {
                    answer.result = OperationState::Done;
                }
            }
            (Ok(message), None) => {
                self.is_well(group);
                if let Err(failure) = print(&format!("{message}\n")) {
                    self.failed(Some(group), failure);
                }
            }
            (Err(failure), Some(at)) => {
                self.ends_with(Some(group), failure.exit);
                let unknown = || FailureCause { refusal: DeskRefusal::Failed.into(), state: OperationState::Unknown };
                let FailureCause { refusal, state } = failure.cause.map_or_else(unknown, |cause| *cause);
                let answer = &mut self.list[at];
                // It was begun: who refuses to tell how it ended has refused no more than that.
                answer.result = if state == OperationState::Refused { OperationState::Unknown } else { state };
                (answer.message, answer.refusal) = (failure.message, Some(refusal));
            }
            (Err(failure), None) => self.failed(Some(group), failure),
        }
    }

    /// An answer that is known as a whole.
    pub fn push(&mut self, answer: AnswerView, exit: Exit) {
        self.ends_with(answer.group.as_deref(), exit);
        if self.json {
            self.list.push(answer);
            return;
        }
        let AnswerView { group, message, warnings, .. } = answer;
        if exit >= Exit::Failed {
            return last_word(&message);
        }
        if let Err(failure) = print(&(clean_lines(&message) + "\n")) {
            last_word(&failure.message);
            return self.ends_with(group.as_deref(), failure.exit);
        }
        warnings.iter().filter(|warning| !message.contains(*warning)).for_each(warn);
    }

    fn keep(&mut self, group: Option<&str>, reply: Reply) {
        match reply {
            Reply::Ok { message, warnings, done_on, unchanged, operation, may_be_missing } => {
                let result = match (unchanged, self.begins) {
                    (true, _) => OperationState::Unchanged,
                    (false, true) => OperationState::Running,
                    (false, false) => OperationState::Done,
                };
                self.ends_with(group, if warnings.is_empty() { Exit::Done } else { Exit::Warning });
                let about = self.about(group, result, message);
                let may_be_missing = may_be_missing.map(|missing| *missing);
                self.list.push(AnswerView { done_on, operation, warnings, may_be_missing, ..about });
            }
            Reply::Error { message, code, refusal, operation } => {
                let refusal = refusal.map_or_else(|| RefusalView::of(&code), |refusal| *refusal);
                self.ends_with(group, Exit::Failed);
                let about = self.about(group, refusal.outcome(&code), message);
                self.list.push(AnswerView { operation, refusal: Some(refusal), ..about });
            }
            other => self.failed(group, unexpected(&other)),
        }
    }

    /// `group`: `None` where it is not known which ones are meant, or none is.
    fn failed(&mut self, group: Option<&str>, failure: CommandFailure) {
        self.ends_with(group, failure.exit);
        if !self.json {
            return last_word(&failure.message);
        }
        let failed = || FailureCause { refusal: DeskRefusal::Failed.into(), state: OperationState::Failed };
        let FailureCause { refusal, state } = failure.cause.map_or_else(failed, |cause| *cause);
        let about = self.about(group, state, failure.message);
        self.list.push(AnswerView { refusal: Some(refusal), ..about });
    }

    fn about(&self, group: Option<&str>, result: OperationState, message: String) -> AnswerView {
        AnswerView {
            verb: self.verb.to_owned(),
            group: group.map(str::to_owned),
            done_on: None,
            operation: None,
            result,
            message,
            warnings: Vec::new(),
            refusal: None,
            may_be_missing: None,
        }
    }

    fn ends_with(&mut self, group: Option<&str>, exit: Exit) {
        self.exits.push((group.map(str::to_owned), exit));
    }

    /// What was warned of for this group does not hold any more.
    fn is_well(&mut self, group: &str) {
        let of_group = self.exits.iter_mut().filter(|(of, _)| of.as_deref() == Some(group));
        of_group.filter(|(_, exit)| *exit == Exit::Warning).for_each(|(_, exit)| *exit = Exit::Done);
    }

    fn worst(&self) -> Exit {
        self.exits.iter().map(|(_, exit)| *exit).max().unwrap_or(Exit::Done)
    }

    /// Prints what was kept.
    ///
    /// # Errors
    /// It cannot be printed.
    pub fn finish(mut self) -> CommandOutcome {
        self.print_kept().map(ExitCode::from)
    }

    /// Prints what was kept since the last time, if anything was, and how that alone would end the command.
    ///
    /// # Errors
    /// It cannot be printed.
    pub fn told(&mut self) -> Result<Exit, CommandFailure> {
        if self.exits.is_empty() { Ok(Exit::Done) } else { self.print_kept() }
    }

    fn print_kept(&mut self) -> Result<Exit, CommandFailure> {
        let worst = self.worst();
        self.exits.clear();
        let answers = std::mem::take(&mut self.list);
        if self.json {
            let list = AnswerList { schema: ANSWER_SCHEMA.to_owned(), exit: worst as u8, answers };
            let object = serde_json::to_string(&list).expect("texts and numbers are JSON");
            print(&format!("{object}\n"))?;
        }
        Ok(worst)
    }
}

#[cfg(test)]
mod tests {
    use engine::RefusalCode;

    use super::*;

    fn answers(replies: Vec<Result<Reply, CommandFailure>>) -> Answers {
        let mut answers = Answers::new("sync", true).of_begins();
        for reply in replies {
            assert!(answers.add("db", reply).is_ok());
        }
        answers
    }

    #[test]
    fn the_worst_answer_is_the_exit_code_and_each_refusal_has_its_code() {
        let none = || CommandFailure::from("nobody").because(DeskRefusal::NoAnswer);
        let all = answers(vec![
            Ok(Reply::ok("db: sync began")),
            Ok(Reply::unchanged("db: the group is already in step; nothing to do")),
            Ok(Reply::done("db: but", vec!["mind".into()])),
            Ok(Reply::refused(RefusalCode::NeedsFullSync, "db: no")),
            Ok(Reply::failed(DeskRefusal::NotDoneYet, "db: this goes on")),
            Err(none()),
        ]);
        assert_eq!(all.worst(), Exit::Failed);
        let results: Vec<_> = all.list.iter().map(|answer| answer.result.as_str()).collect();
        assert_eq!(results, ["running", "unchanged", "running", "refused", "running", "unknown"]);
        let codes: Vec<_> = all.list.iter().map(|answer| answer.refusal.as_ref().map(|it| it.code.as_str())).collect();
        let refusals = [Some("needs-full-sync"), Some("not-done-yet"), Some("no-answer")];
        assert_eq!(codes, [[None; 3], refusals].concat());
        assert_eq!(answers(vec![Ok(Reply::done("db: but", vec!["mind".into()]))]).worst(), Exit::Warning);
        let wrong = Answers::new("sync", true).add("db", Err(CommandFailure::usage("what?")));
        assert_eq!(wrong.expect_err("typed wrongly").exit, Exit::Usage);
    }

    #[test]
    fn a_sync_that_is_waited_for_is_shown_as_it_ended() {
        let mut done = answers(vec![Ok(Reply::ok("db: sync began"))]);
        done.amend("db", Ok("db: the copy is up to date".into()));
        assert_eq!((&done.list[0].result, done.worst()), (&OperationState::Done, Exit::Done));
    }

    /// The peer had been away when the sync was ordered, and the command ended with 1 though the copy was up to date.
    #[test]
    fn a_warning_of_a_begin_does_not_outlive_the_end() {
        let begun = || Ok(Reply::done("db: sync ordered", vec!["the peer is away".into()]));
        let mut done = answers(vec![begun()]);
        assert_eq!(done.worst(), Exit::Warning, "it has not ended");
        done.amend("db", Ok("db: the copy is up to date".into()));
        assert_eq!((done.worst(), done.list[0].warnings.len()), (Exit::Done, 0));
        let mut another = answers(vec![begun()]);
        assert!(another.add("web", Ok(Reply::done("web: sync ordered", vec!["the peer is away".into()]))).is_ok());
        another.amend("db", Ok("db: the copy is up to date".into()));
        assert_eq!((another.worst(), another.list[1].warnings.len()), (Exit::Warning, 1), "it goes on");
        another.amend("web", Err(CommandFailure::from("so").because(RefusalCode::GroupFailed)));
        assert_eq!((another.worst(), another.list[1].warnings.len()), (Exit::Failed, 1));
    }

    /// All of them were `stopped`, and might be tried again.
    #[test]
    fn a_sync_that_did_not_reach_its_end_says_what_is_known_of_it() {
        use OperationState::{Failed, Refused, Stopped, Unknown};
        let so = || CommandFailure::from("so");
        for (failure, result, code) in [
            (so().ended(DeskRefusal::SyncHeld.into(), Stopped), Stopped, "sync-held"),
            (so().because(RefusalCode::GroupFailed), Failed, "group-failed"),
            (so().because(DeskRefusal::NoAnswer), Unknown, "no-answer"),
            (so().because(DeskRefusal::NotReached), Unknown, "not-reached"),
            (so().ended(DeskRefusal::UnknownOperation.into(), Refused), Unknown, "unknown-operation"),
            (so(), Unknown, "failed"),
        ] {
            let mut ended = answers(vec![Ok(Reply::ok("db: sync began"))]);
            ended.amend("db", Err(failure));
            assert_eq!((&ended.list[0].result, ended.worst()), (&result, Exit::Failed), "{code}");
            assert_eq!(ended.list[0].refusal.as_ref().map(|it| it.code.as_str()), Some(code));
        }
    }
}
