//! Why a request was not done, as a code for programs: the data path's codes, the daemon's own, and those of commands that got no answer.
//! All of them are one list, which the manual shows (docs/book/cli.md).

use engine::RefusalCode;
use serde::{Deserialize, Serialize};

use super::{ErrorCode, OperationState, Retry};

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RefusalView {
    /// a word of the [table of refusals](cli.md#answers-as-json), or of a newer version
    pub code: String,
    /// whether the same command may be done another time
    pub retry: Retry,
    /// the operation that is in the way, whose end can be waited for; left out where there is none
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// with `reverse-gives-up`: volumes whose disks have failed, which would be given up; left out elsewhere
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_volumes: Option<Vec<String>>,
}

macro_rules! desk_refusals {
    ($($variant:ident = $word:literal, $retry:ident, $meaning:literal;)+) => {
        /// Refusals that do not come from the data path. Words are a contract: added, never renamed or used for something else.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum DeskRefusal {
            $(#[doc = $meaning] $variant,)+
        }

        impl DeskRefusal {
            pub const ALL: &'static [DeskRefusal] = &[$(DeskRefusal::$variant,)+];

            pub fn word(self) -> &'static str {
                match self {
                    $(DeskRefusal::$variant => $word,)+
                }
            }

            pub fn retry(self) -> Retry {
                match self {
                    $(DeskRefusal::$variant => Retry::$retry,)+
                }
            }

            /// For the manual.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(DeskRefusal::$variant => $meaning,)+
                }
            }
        }
    };
}

desk_refusals! {
    BadRequest = "bad-request", Never, "the daemon does not understand the request: command and daemon are of different versions";
    UnknownGroup = "unknown-group", Never, "the node has no such group, or does not share it with the node that asks";
    BadValue = "bad-value", Never, "a key or a value is wrong";
    ClientsAttached = "clients-attached", Later, "clients are attached: they end, or `demote --close-clients` cuts them off";
    PromotionUnderWay = "promotion-under-way", Later, "a promotion of the group waits for a disk or for space; the answer names its operation";
    BadConfiguration = "bad-configuration", Never, "the configuration file, or a device that it names, has problems, all of which are told";
    NeedsRestart = "needs-restart", Never, "the configuration file changes what counts at a start of the daemon only; nothing of it was taken up";
    VolumesInUse = "volumes-in-use", Later, "a group cannot go on with other volumes yet; the sentence says what to wait for, or what to do first";
    ChangeUnderWay = "change-under-way", Later, "another change of settings is under way";
    HookFailed = "hook-failed", Later, "a command that the configuration has before this change of role failed or took too long, so nothing was \
        done; `--skip-hooks` leaves it out";
    StateDiskSilent = "state-disk-silent", Later, "the state disk has not answered for 10 s, so nothing was done";
    TermNotRecorded = "term-not-recorded", Never, "the state disk takes no change, so the role of the node was not changed";
    ReverseUnderWay = "reverse-under-way", Later, "a reverse sync of the group is under way: it ends by itself, or by `sync --reverse --stop`";
    ReverseGivesUp = "reverse-gives-up", Never, "the peer lacks what was written here, which a reverse sync gives up; `--yes` says that it may";
    ReverseOver = "reverse-over", Never, "a reverse sync was ended by an operator: if it had begun, its clients are cut off, and the peer stays the primary, or this node was promoted by force";
    NotDoneYet = "not-done-yet", Later, "the answer takes too long; the operation goes on in the daemon, and can be waited for";
    ApplyAgain = "apply-again", Later, "a group did not come to rest for a changed configuration, and has by now: `config apply` again takes \
        the file up";
    TooManyRequests = "too-many-requests", Later, "so many requests are under way in the daemon that it takes no more";
    DaemonStopping = "daemon-stopping", Later, "the daemon is being stopped or has just started: its data thread does not answer";
    BrokeDown = "broke-down", Never, "a mistake of ours: the daemon's log says where";
    Failed = "failed", Later, "it was tried and failed; the sentence says how";
    Refused = "refused", Never, "it was refused by a daemon of an older version; the sentence says why";
    PeerNotReached = "peer-not-reached", Later, "the node that is to do it was not reached, and nothing was done";
    OutcomeUnknown = "outcome-unknown", Never, "the node that is to do it got the command, and its answer was lost; the same command again is \
        safe, and `retry` is `later`, unless it is `sync`, or has `--full` or `--force`: look at `status` first";
    PeerForbids = "peer-forbids", Never, "`peer_commands` of the other node does not allow it";
    NotCarried = "not-carried", Never, "it is done on the node where it is typed only";
    UnknownOperation = "unknown-operation", Never, "the node keeps no such operation any more, or never had it";
    OperationCutOff = "operation-cut-off", Never, "the daemon ended before the operation did, and its end is not on record; the same command \
        again is safe, and `retry` is `later` where the command is known, unless it is `sync`, or has `--full` or `--force`: look at `status` first";
    SyncStopped = "sync-stopped", Later, "the sync was begun and did not reach its end; `never` where an operator has to act first, as `status` says";
    SyncHeld = "sync-held", Never, "the sync was stopped by `logging`, by a mode, or by a role change: whoever did that wants it so";
    VerifyStopped = "verify-stopped", Later, "the verify did not come to its end: it was stopped, or its primary is no more";
    CopyDiffers = "copy-differs", Never, "the verify came to its end, and found blocks that differ or could not be read: `verify --repair` \
        sends the primary's content again";
    TimeIsUp = "time-is-up", Later, "`wait` gave up; what it waited for goes on";
    NotReached = "not-reached", Later, "no daemon was reached here, so nothing was done";
    NoAnswer = "no-answer", Later, "the daemon here was asked and did not answer, or not in time: whether it was done is not known";
}

impl RefusalView {
    fn new(code: &str, retry: Retry) -> RefusalView {
        RefusalView { code: code.to_owned(), retry, operation: None, dead_volumes: None }
    }

    /// Of a command whose end is not known; empty: nor is the command. While a node asks whose content counts, a `sync` is the answer.
    pub fn of_lost(refusal: DeskRefusal, command: &str, arguments: &str) -> RefusalView {
        let decides = command == "sync" || arguments.split(' ').any(|word| matches!(word, "--full" | "--force"));
        let retry = if command.is_empty() || decides { Retry::Never } else { Retry::Later };
        RefusalView::new(refusal.word(), retry)
    }

    /// Of an answer that has none of its own.
    pub fn of(code: &ErrorCode) -> RefusalView {
        match code {
            ErrorCode::BadRequest => DeskRefusal::BadRequest.into(),
            ErrorCode::UnknownGroup => DeskRefusal::UnknownGroup.into(),
            ErrorCode::BadValue => DeskRefusal::BadValue.into(),
            ErrorCode::Refused => DeskRefusal::Refused.into(),
            ErrorCode::Failed => DeskRefusal::Failed.into(),
            ErrorCode::OutcomeUnknown => DeskRefusal::OutcomeUnknown.into(),
            ErrorCode::Other(word) => RefusalView::new(word, Retry::Never),
        }
    }

    /// What is known of a request that was answered so, with this code beside it.
    pub fn outcome(&self, code: &ErrorCode) -> OperationState {
        const UNKNOWN: [DeskRefusal; 5] = [
            DeskRefusal::BrokeDown,
            DeskRefusal::DaemonStopping,
            DeskRefusal::NoAnswer,
            DeskRefusal::OutcomeUnknown,
            DeskRefusal::OperationCutOff,
        ];
        let is = |word: &str| self.code == word;
        if is(DeskRefusal::NotDoneYet.word()) {
            OperationState::Running
        } else if is(RefusalCode::RecordUnknown.word()) || UNKNOWN.iter().any(|refusal| is(refusal.word())) {
            OperationState::Unknown
        } else if is(DeskRefusal::NotReached.word()) {
            OperationState::Refused
        } else if is(RefusalCode::RoleRecorded.word()) {
            // It is done, and of no use.
            OperationState::Failed
        } else {
            match code {
                ErrorCode::OutcomeUnknown => OperationState::Unknown,
                ErrorCode::Failed => OperationState::Failed,
                _ => OperationState::Refused,
            }
        }
    }
}

impl From<DeskRefusal> for RefusalView {
    fn from(refusal: DeskRefusal) -> RefusalView {
        RefusalView::new(refusal.word(), refusal.retry())
    }
}

impl From<RefusalCode> for RefusalView {
    fn from(code: RefusalCode) -> RefusalView {
        RefusalView::new(code.word(), Retry::from(code.retry().word()))
    }
}

/// The manual's table.
pub fn manual() -> String {
    let row = |word: &str, retry: &str, meaning: &str| format!("| `{word}` | {retry} | {meaning} |\n");
    let mut text = "| Refusal | Again | Meaning |\n|---|---|---|\n".to_owned();
    for code in RefusalCode::ALL {
        text += &row(code.word(), code.retry().word(), code.meaning());
    }
    for refusal in DeskRefusal::ALL {
        text += &row(refusal.word(), refusal.retry().as_str(), refusal.meaning());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_code_has_a_word_of_its_own() {
        let path = RefusalCode::ALL.iter().map(|code| code.word());
        let words: Vec<&str> = path.chain(DeskRefusal::ALL.iter().map(|refusal| refusal.word())).collect();
        assert_eq!(words.iter().collect::<BTreeSet<_>>().len(), words.len(), "{words:?}");
    }

    /// What goes on was told as failed, and so was what nobody knows anything of.
    #[test]
    fn what_has_no_end_yet_has_not_failed() {
        for (refusal, outcome) in [
            (DeskRefusal::NotDoneYet, OperationState::Running),
            (DeskRefusal::BrokeDown, OperationState::Unknown),
            (DeskRefusal::DaemonStopping, OperationState::Unknown),
            (DeskRefusal::TermNotRecorded, OperationState::Failed),
            (DeskRefusal::NoAnswer, OperationState::Unknown),
            (DeskRefusal::NotReached, OperationState::Refused),
        ] {
            assert_eq!(RefusalView::from(refusal).outcome(&ErrorCode::Failed), outcome, "{}", refusal.word());
        }
        for (code, outcome) in [
            (ErrorCode::OutcomeUnknown, OperationState::Unknown),
            (ErrorCode::Refused, OperationState::Refused),
            (ErrorCode::Other("new".into()), OperationState::Refused),
        ] {
            assert_eq!(RefusalView::of(&code).outcome(&code), outcome, "{code}");
        }
    }

    /// Both passed for "nothing was done".
    #[test]
    fn what_may_be_on_record_was_not_refused() {
        for (refusal, outcome) in [
            (RefusalCode::RecordUnknown, OperationState::Unknown),
            (RefusalCode::RoleRecorded, OperationState::Failed),
            (RefusalCode::StoreFailed, OperationState::Refused),
        ] {
            assert_eq!(RefusalView::from(refusal).outcome(&ErrorCode::Refused), outcome, "{}", refusal.word());
        }
    }

    /// A program that repeated a plain `sync` chose whose content counts, as nobody had asked it to.
    #[test]
    fn what_decides_is_not_to_be_repeated_unseen() {
        for (command, arguments, retry) in [
            ("demote", "--close-clients", Retry::Later),
            ("promote", "", Retry::Later),
            ("promote", "--force", Retry::Never),
            ("sync", "", Retry::Never),
            ("sync", "--full", Retry::Never),
            ("", "", Retry::Never),
        ] {
            for refusal in [DeskRefusal::OperationCutOff, DeskRefusal::OutcomeUnknown] {
                let view = RefusalView::of_lost(refusal, command, arguments);
                assert_eq!((view.code.as_str(), view.retry), (refusal.word(), retry.clone()), "{command} {arguments}");
            }
        }
    }

    #[test]
    fn an_answer_without_a_refusal_has_that_of_its_code() {
        for word in ErrorCode::WORDS {
            assert_eq!(RefusalView::of(&ErrorCode::from(*word)).code, *word);
        }
        let view = RefusalView { operation: Some("alpha-0f-7".into()), ..RefusalView::from(RefusalCode::PeerAway) };
        let text = r#"{"code":"peer-away","retry":"later","operation":"alpha-0f-7"}"#;
        assert_eq!(serde_json::to_string(&view).expect("it is written"), text);
    }
}
