//! The one table of events: the kinds there are, what each means, and the fields it has.
//!
//! It stands beside the configuration because hooks name kinds. The daemon makes events by it, and the manual's tables
//! (docs/book/events.md) are made from it. Kinds and fields are only added, as keys of the status are.

use crate::suggest;

macro_rules! event_kinds {
    ($($(#[$doc:meta])* $variant:ident = $word:literal, $meaning:literal, [$($field:literal),*];)+) => {
        /// What happened, as one word.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum EventKind {
            $($(#[$doc])* $variant,)+
        }

        impl EventKind {
            pub const ALL: &'static [EventKind] = &[$(EventKind::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(EventKind::$variant => $word,)+
                }
            }

            /// For the manual.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(EventKind::$variant => $meaning,)+
                }
            }

            /// Fields beside those that every event has. Each is left out where it is not known.
            pub fn fields(self) -> &'static [&'static str] {
                match self {
                    $(EventKind::$variant => &[$($field),*],)+
                }
            }
        }
    };
}

event_kinds! {
    DaemonStarted = "daemon-started", "The daemon started.", ["version", "clean"];
    DaemonStopped = "daemon-stopped", "The daemon stopped as it was told to.", ["clean"];
    Command = "command",
        "Somebody gave the daemon a command that changes something; whether the daemon did it is `result`.",
        ["command", "arguments", "operation", "result", "answer", "warnings", "refusal", "retry", "took_ms", "from_node", "to_node", "user",
            "uid", "pid", "program", "login", "sudo_user"];
    GroupStarted = "group-started", "What is recorded of the group was read; the group takes part from here on.",
        ["role", "generation", "clean"];
    State = "state", "The group went to another state.", ["from", "to", "reason"];
    Role = "role", "This node was promoted or demoted.", ["role", "generation"];
    Mode = "mode", "The group's mode changed; on a secondary, the mode in which its primary answers writers. The first event of a log names the mode that was found.",
        ["from", "to", "reason"];
    ModeLowered = "mode-lowered", "The line is slow: the group acts as what its mode falls back to, and promises no more than that.",
        ["from", "to", "reason"];
    ModeRestored = "mode-restored", "The group acts as the mode that is set again.", ["from", "to", "reason"];
    Policy = "policy", "The group's policy on this node changed. The first event of a log names the policy that was found.",
        ["from", "to", "reason"];
    Setting = "setting", "Another setting of the group changed on this node.", ["key", "from", "to", "reason"];
    Decision = "decision", "The nodes met, and it was decided what the peer lacks.", ["decision", "reason"];
    WritesAlone = "writes-alone", "Writes go on without the peer, as a generation of their own.", ["generation"];
    LinkConnected = "link-connected", "A connection to the peer came up.", ["address", "outage_ms"];
    LinkLost = "link-lost", "The connection to the peer ended.", ["reason", "connected_ms"];
    LinkUnsteady = "link-unsteady",
        "The link came up so often within a minute that the connections after the 16th are only counted. If it is up by one of \
         those, its `link-connected` follows.", ["connections"];
    SyncBegan = "sync-began", "A sync to the peer began.", ["full", "compare", "bytes"];
    SyncEnded = "sync-ended", "The sync sent its last region.", ["sent_bytes", "duration_ms"];
    SyncStopped = "sync-stopped", "The sync was broken off.", ["reason", "duration_ms"];
    VerifyBegan = "verify-began", "A verify of the copy began.", ["sample_percent", "repair", "by_timer"];
    VerifyDiffers = "verify-differs", "Both nodes hold different bytes in this range; at most 16 events of one verify.",
        ["volume", "offset_bytes", "bytes", "unreadable"];
    VerifyEnded = "verify-ended", "A verify came to its end.",
        ["sample_percent", "compared_bytes", "differing_bytes", "repaired_bytes", "unread_bytes", "duration_ms"];
    SecondaryConsistent = "secondary-consistent", "A catch-up made the secondary consistent at this position.",
        ["sequence", "sent_bytes"];
    FetchedBack = "fetched-back", "What this node had lost with its power was fetched from the peer.", ["bytes"];
    UncleanStart = "unclean-start", "These extents were being written when this node stopped; they are compared with the peer, unless the queue has its log.",
        ["bytes"];
    JournalReplayed = "journal-replayed", "A secondary applied what its journal held at the start.", ["records", "sequence"];
    QueueDropped = "queue-dropped", "Queued writes became dirty regions, to be sent by a sync.", ["writes", "bytes", "reason"];
    WriteFailed = "write-failed", "A device refused a write; at most one event for a volume in a minute.", ["volume", "offset_bytes"];
    WritersHeldUp = "writers-held-up", "The queue is full: writers wait for room.", ["acts_in_ms"];
    WritersGoOn = "writers-go-on", "Writers are not held up any more.", ["held_up_ms"];
    MarkKept = "mark-kept", "A sync to this secondary began; the newest finished image is kept.", ["mark", "sequence"];
    MarkSet = "mark-set", "A point of the write order got a name.", ["mark", "sequence", "alone"];
    MarkThere = "mark-there", "The peer has the mark, durable, at the same position.", ["mark", "sequence"];
    MarkLost = "mark-lost", "The mark is not at the peer, and will not come there.", ["mark"];
    RolledBack = "rolled-back", "The volumes hold the newest finished image again.", ["sequence"];
    RpoWatched = "rpo-watched", "From here on this primary watches its lag for `rpo.warn` or `rpo.error`.", ["level", "threshold_seconds"];
    RpoUnwatched = "rpo-unwatched", "It does not any more; `reason` says why.", ["level", "reason"];
    RpoMissed = "rpo-missed", "The lag has been beyond `rpo.warn` or `rpo.error` for `rpo.hold_off`. On the primary only.",
        ["level", "lag_seconds", "threshold_seconds", "missed_ms"];
    RpoMet = "rpo-met", "The lag was back under the threshold for `rpo.hold_off`; or nobody watches it here any more, and `reason` says why.",
        ["level", "lag_seconds", "threshold_seconds", "missed_ms", "reason"];
    Note = "note", "What the log says and no other kind holds.", [];
    HookFailed = "hook-failed", "A hook did not take an event, and is not tried again for that event. Never starts a hook.",
        ["hook", "event", "event_kind", "attempts", "reason"];
    RoleHook = "role-hook", "A command before or after a change of this node's role has ended. One before that failed has the change refused.",
        ["hook", "result", "reason", "duration_ms"];
    HookOverflow = "hook-overflow",
        "More events waited for a hook than its queue holds; the oldest were left out. Never starts a hook.", ["hook", "count"];
    EventsNotKept = "events-not-kept",
        "So many events before this one are missing in the log: the disk took none, or too many came at once.", ["count", "reason"];
}

/// What the fields of events hold, in the order of the manual.
pub const FIELDS: &[(&str, &str)] = &[
    ("version", "version of the daemon"),
    (
        "clean",
        "`true`: stopped in order, the groups at rest; of a start, the stop before it (left out if the log begins here)",
    ),
    ("command", "`logging`, `sync`, `set`, `link set`, `demote`, `promote`, `switchover` or `mark drop`"),
    ("arguments", "what was given with the command, as text"),
    ("operation", "name of the operation that it became on this node, for `farshore wait`"),
    (
        "result",
        "`done`, `warning`, `unchanged` (its goal was reached before), `refused` or `failed`; `unknown`: the daemon ended or broke down \
         before the answer was here, or another node was told to do it and its answer is lost; `not-reached`: another node was to do it, and nothing was done",
    ),
    ("answer", "what the daemon answered, with its warnings"),
    ("warnings", "the first four warnings of the answer, a list; one that was `unchanged` may have some too"),
    ("refusal", "why the command was not done, a code of the [table of refusals](cli.md#answers-as-json)"),
    ("retry", "`later` or `never`: whether the same command may be done another time"),
    ("took_ms", "from the question to the answer, milliseconds"),
    ("user", "user name of the program that asked, from `/etc/passwd`"),
    ("uid", "its user id, by the kernel's word"),
    ("pid", "its process id, by the kernel's word"),
    ("program", "its name, as the process itself has it"),
    ("from_node", "the node where the command was typed, if not this one"),
    ("to_node", "the node that it was carried to, if not this one"),
    ("login", "who logged in to the session, by the audit system (`loginuid`); stays the same under `sudo` and `su`"),
    ("sudo_user", "who called `sudo`, by the program's own environment: a hint, no proof"),
    ("role", "`primary` or `secondary`"),
    ("generation", "of the group's history, number and tag"),
    ("from", "what was before; left out if that is not known"),
    ("to", "what is now"),
    ("reason", "why, as a sentence"),
    ("key", "the setting"),
    ("decision", "`go-on`, `update-sync`, `full-sync-needed`, `refused` or `idle`"),
    ("address", "of the peer's end"),
    ("outage_ms", "how long there was no connection, milliseconds; left out for the first one of a run"),
    ("connected_ms", "how long the connection had been up, milliseconds"),
    ("connections", "so many connections came up and have no events of their own"),
    ("full", "`true`: everything; `false`: dirty regions"),
    ("compare", "`true`: by comparing hashes first"),
    ("bytes", "amount of data"),
    ("sent_bytes", "amount of data that travelled"),
    ("sample_percent", "share of the blocks that a verify compares; 100: all"),
    ("repair", "`true`: what differs is sent again"),
    ("by_timer", "`true`: it began by itself, as `scrub.every` says; `false`: somebody typed it"),
    ("unreadable", "`true`: the peer could not read the range"),
    ("compared_bytes", "what was compared"),
    ("differing_bytes", "what differed, repaired or not"),
    ("repaired_bytes", "of that, what was sent again and found equal"),
    ("unread_bytes", "what this node could not read, and did not compare"),
    ("duration_ms", "from begin to end, milliseconds"),
    ("sequence", "position in the write order"),
    ("records", "records of the journal"),
    ("writes", "number of writes"),
    ("volume", "the volume, as GROUP/VOLUME"),
    ("offset_bytes", "where in the volume"),
    ("acts_in_ms", "after so many milliseconds the policy acts; left out if never"),
    ("held_up_ms", "how long writers waited, milliseconds"),
    ("mark", "name of the mark"),
    ("alone", "`yes`: the peer was sent nothing in order, so the mark exists on this node only; `no`"),
    ("level", "`warn` or `error`"),
    ("lag_seconds", "age of what the secondary can present"),
    ("threshold_seconds", "`rpo.warn` or `rpo.error`"),
    ("missed_ms", "how long the lag was too high, milliseconds"),
    ("hook", "name of the hook; of `role-hook` the key, such as `before_promote`"),
    ("event", "number of the event on this node"),
    ("event_kind", "kind of that event"),
    ("attempts", "how often it was tried"),
    ("count", "so many events"),
];

impl EventKind {
    /// # Errors
    /// A sentence: there is no such kind, the nearest one, and where they are listed.
    pub fn parse(word: &str) -> Result<EventKind, String> {
        let words = || EventKind::ALL.iter().map(|kind| kind.as_str());
        EventKind::ALL.iter().copied().find(|kind| kind.as_str() == word).ok_or_else(|| {
            // The hint treats a dash as an underscore, as keys have it.
            let plain: Vec<String> = words().map(|word| word.replace('-', "_")).collect();
            let near = suggest::nearest(word, plain.iter().map(String::as_str)).map(|near| near.replace('_', "-"));
            let hint = near.map(|near| format!(" (did you mean {near:?}?)")).unwrap_or_default();
            format!("{word:?} is no kind of event{hint}; docs/book/events.md lists them, and \"*\" is all of them")
        })
    }

    /// Whether hooks may get it. What tells of hooks does not: a hook that fails would be called for its own failure.
    pub fn starts_hooks(self) -> bool {
        !matches!(self, EventKind::HookFailed | EventKind::HookOverflow)
    }
}

/// The manual's table of kinds.
pub fn manual_kinds() -> String {
    let head = "| Kind | Meaning | Fields |\n|---|---|---|\n".to_owned();
    let row = |kind: &EventKind| {
        let fields: Vec<String> = kind.fields().iter().map(|field| format!("`{field}`")).collect();
        format!("| `{}` | {} | {} |\n", kind.as_str(), kind.meaning(), fields.join(", "))
    };
    EventKind::ALL.iter().map(row).fold(head, |text, row| text + &row)
}

/// The manual's table of fields.
pub fn manual_fields() -> String {
    let head = "| Field | Content |\n|---|---|\n".to_owned();
    FIELDS.iter().fold(head, |text, (name, meaning)| text + &format!("| `{name}` | {meaning} |\n"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_field_is_explained_and_every_explanation_used() {
        let used: BTreeSet<&str> = EventKind::ALL.iter().flat_map(|kind| kind.fields()).copied().collect();
        let explained: BTreeSet<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
        assert_eq!(used, explained);
        assert_eq!(FIELDS.len(), explained.len(), "each once");
        let words: BTreeSet<&str> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(words.len(), EventKind::ALL.len(), "each once");
        let is_kebab = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        assert!(words.iter().all(is_kebab), "{words:?}");
    }

    #[test]
    fn a_kind_that_is_none_has_a_nearest_one() {
        assert_eq!(EventKind::parse("link-lost"), Ok(EventKind::LinkLost));
        let wrong = EventKind::parse("link-last").expect_err("none");
        assert!(wrong.contains("did you mean \"link-lost\"?"), "{wrong}");
        assert!(EventKind::parse("zebra").expect_err("none").contains("docs/book/events.md"));
    }
}
