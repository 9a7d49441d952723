//! Why a command is refused: a code for programs, a sentence for people.
//!
//! A command whose goal is reached already is not refused: [`crate::CommandResult::Unchanged`].

use alloc::string::String;
use core::fmt;

/// What a refusal says to whoever would type the same command again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// What stands in the way ends by itself, or when the peer is back.
    Later,
    /// Typed so it is refused until an operator has changed something.
    Never,
}

impl Retry {
    pub fn word(self) -> &'static str {
        match self {
            Retry::Later => "later",
            Retry::Never => "never",
        }
    }
}

macro_rules! refusal_codes {
    ($($variant:ident = $word:literal, $retry:ident, $meaning:literal;)+) => {
        /// Why a command is refused. Words are a contract: added, never renamed or used for something else.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum RefusalCode {
            $(#[doc = $meaning] $variant,)+
        }

        impl RefusalCode {
            pub const ALL: &'static [RefusalCode] = &[$(RefusalCode::$variant,)+];

            pub fn word(self) -> &'static str {
                match self {
                    $(RefusalCode::$variant => $word,)+
                }
            }

            pub fn retry(self) -> Retry {
                match self {
                    $(RefusalCode::$variant => Retry::$retry,)+
                }
            }

            /// For the manual.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(RefusalCode::$variant => $meaning,)+
                }
            }
        }
    };
}

refusal_codes! {
    GroupStarting = "group-starting", Later, "the group is starting, or stands still on its way";
    RoleChanging = "role-changing", Later, "a demotion or a promotion of the group is under way";
    GroupStopping = "group-stopping", Later, "the daemon is being stopped";
    GroupFailed = "group-failed", Never, "the group has failed on this node: put right what the sentence names, then `reset` the group";
    StoreFailed = "store-failed", Never, "a disk failed while the command was being carried out, so it was not; the group has failed";
    RoleRecorded = "role-recorded", Never, "the new role is on record, and the group has failed meanwhile: put right what the sentence names, \
        then `reset` the group";
    RecordUnknown = "record-unknown", Never, "a disk failed while the result was being recorded: whether it is on record is not known before \
        the group is `reset`";
    NotPrimary = "not-primary", Never, "the command is for the primary, and this node is the secondary";
    ModeLogging = "mode-logging", Never, "the mode is `logging`: set another one first";
    NeedsFullSync = "needs-full-sync", Never, "only `sync --full` makes the copy whole";
    HistoriesApart = "histories-apart", Never, "both nodes are primary, or the peer was promoted later: an operator chooses";
    ChoiceNeeded = "choice-needed", Never, "an operator has to choose whose content counts, as `status` asks: a `sync` is that choice, so a program \
        must not repeat it";
    PeerAway = "peer-away", Later, "the peer, or its half of the group, is not there, and the command needs it";
    PeerSilent = "peer-silent", Later, "the peer is connected, and its half of the group has not said who it is";
    PeerIsPrimary = "peer-is-primary", Never, "the peer is primary: demote it first";
    PeerFailed = "peer-failed", Never, "the peer's half of the group has failed";
    PeerUnfit = "peer-unfit", Never, "the peer's half of the group does not fit this one";
    CopyBehind = "copy-behind", Never, "the peer has, or may have, what this copy lacks; `promote --force` gives that up";
    WindowClosed = "window-closed", Never, "no peer window proves that nothing which was acknowledged is missing here: `promote --force` says what may be";
    HandedOver = "handed-over", Never, "this node handed over to the peer, which may be promoted; `promote --force` takes the demotion back";
    NotInStep = "not-in-step", Later, "the peer does not have everything: a switchover would hold clients up until it has, and a mark would not reach it in its order";
    NotInGroup = "not-in-group", Never, "the node that was named is none of the group's";
    HandoverTimeout = "handover-timeout", Later, "the peer did not have everything in the time that clients may be held: this node stays \
        primary, and they went on";
    GrantUnanswered = "grant-unanswered", Later, "this node handed over and is secondary, and did not hear the peer say that it is primary: \
        the peer is the one to be promoted, without `--force`";
    Unverified = "unverified", Never, "this node lost power while it was primary, and what the peer confirmed until then is not known; \
        `promote --force` asks the peer first";
    NoImage = "no-image", Never, "this copy was never whole, or was written from outside: no promotion, `--force` or not";
    SyncUnfinished = "sync-unfinished", Later, "a sync to this copy has not ended, and there is no image from before it: no promotion, \
        `--force` or not";
    ImageLost = "image-lost", Never, "the image from before the sync was found damaged on the way back to it";
    NoFork = "no-fork", Never, "the histories of the two nodes have not parted: there is nothing to resolve";
    ForkChanged = "fork-changed", Never, "the other node is not in the generation that was looked at, or is kept itself: look at both again";
    ForkUnbounded = "fork-unbounded", Never, "the bits of the two nodes do not cover what differs: only `sync --full` resolves this fork, and leaves a \
        delta as well";
    NotYielded = "not-yielded", Later, "the other node was not demoted in time, or the order ended before anything was recorded";
    NotKept = "not-kept", Later, "the peer is not known to keep its content over this node's: order that there first";
    DeltaSpace = "delta-space", Later, "the state directory of the other node has no space for what it holds where the two differ; `--discard` \
        saves nothing";
    DeltaFailed = "delta-failed", Later, "what the other node holds where the two differ could not be saved there";
    DeltaUnsaved = "delta-unsaved", Never, "the sync under way overwrites a history of this node's own, or a volume that has one is left out and may \
        rejoin; what the mark keeps, or would keep, of it is not saved as a delta yet; `--discard` gives that up";
    NoSuchMark = "no-such-mark", Never, "this node keeps another mark, or none";
    MarkName = "mark-name", Never, "no mark can have that name";
    MarkLocked = "mark-locked", Never, "the mark is locked: `mark unlock` it, or drop it with `--override-lock`";
    MarksFull = "marks-full", Never, "the group has as many marks as it can have: `mark drop` one";
    NoViews = "no-views", Never, "this node has no store for views of the group: nothing that is overwritten can be kept for one";
    ViewsFull = "views-full", Later, "as many views of the group are open as can be: close one";
    ViewOfPrimary = "view-of-primary", Never, "a view is opened on the secondary, and this node is the primary";
    ViewNotNow = "view-not-now", Later, "no whole image stands on the volumes right now: a sync overwrites them, or what is being written does not \
        get on";
    VerifyUnderWay = "verify-under-way", Later, "another verify of the group is under way";
    NotUnrelated = "not-unrelated", Never, "the records say how the two copies are related: nothing is to be declared equal";
    SyncsBusy = "syncs-busy", Later, "as many groups of the node sync as may at once, and this one would lose its order while it waits in line";
    VolumeAside = "volume-aside", Never, "a volume of the group is set aside (`logging --volume`), and the copy is an image of the others alone: `sync \
        --volume` takes it back in, `promote --force` does without it";
    VolumeDetached = "volume-detached", Never, "the volume is detached on a node of the group, which holds nothing of it: `group attach` there \
        first";
    VolumeUnfilled = "volume-unfilled", Never, "a volume has a disk here that no sync has filled, so what stands in it is not of the group: no \
        promotion, `--force` or not. `sync --volume` on the primary fills it; without it, `group detach` and then `promote --force`";
    LastInOrder = "last-in-order", Never, "no other volume of the group would be left in its order: `logging` is for the whole group";
    NotAlike = "not-alike", Never, "the two copies cannot be equal: one of them is no image, differs in size, or knows of blocks that differ";
}

/// A command that was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: RefusalCode,
    /// A sentence for people.
    pub text: String,
}

impl Refusal {
    pub fn new(code: RefusalCode, text: impl Into<String>) -> Refusal {
        Refusal { code, text: text.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_code_has_a_word_of_its_own() {
        let words: BTreeSet<&str> = RefusalCode::ALL.iter().map(|code| code.word()).collect();
        assert_eq!(words.len(), RefusalCode::ALL.len());
        let is_plain = |word: &str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        assert!(words.into_iter().all(is_plain));
    }
}
