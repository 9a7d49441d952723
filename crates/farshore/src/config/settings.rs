//! What may be changed while a group runs: a closed list of keys, one parser each for file and `set`.

use std::fmt;
use std::time::Duration;

pub use engine::StartAlone;
pub use engine::state::Mode;

use super::sheet::parse_flag;
use super::suggest;
use crate::limits;
use units::exact::{bounded_duration, bounded_size, duration_text, size_text};

/// # Errors
/// A sentence with the modes there are.
pub fn parse_mode(text: &str) -> Result<Mode, String> {
    if let "superasync" | "periodic" = text {
        return Err(format!("{text:?} is not in this version; use \"async\", or \"sync\", \"nearsync\", \"logging\""));
    }
    one_of("mode", text, &Mode::ALL, Mode::word)
}

/// What happens in `sync` and `nearsync` when the peer is unreachable or a write waited longer than `wait_limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Go to logging: writers continue alone.
    Degrade,
    /// Writers wait for `hold`, the peer window, then degrade.
    Hold,
    /// Writes wait, then fail; nothing is ever acknowledged alone.
    Strict,
}

impl Policy {
    pub const ALL: [Policy; 3] = [Policy::Degrade, Policy::Hold, Policy::Strict];

    pub fn as_str(self) -> &'static str {
        match self {
            Policy::Degrade => "degrade",
            Policy::Hold => "hold",
            Policy::Strict => "strict",
        }
    }

    /// # Errors
    /// A sentence with the policies there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        one_of("policy", text, &Self::ALL, Self::as_str)
    }
}

/// # Errors
/// A sentence with the two forms there are.
pub fn parse_start_alone(text: &str) -> Result<StartAlone, String> {
    match text.split_once(' ') {
        _ if text == "serve" => Ok(StartAlone::Serve),
        Some(("wait", duration)) => bounded_duration(duration, limits::START_ALONE).map(StartAlone::Wait),
        _ => Err(format!("{text:?} is neither \"serve\" nor \"wait\" with a duration, such as \"wait 60s\"")),
    }
}

fn start_alone_text(value: StartAlone) -> String {
    match value {
        StartAlone::Serve => "serve".to_owned(),
        StartAlone::Wait(duration) => format!("wait {}", duration_text(duration)),
    }
}

pub(super) fn one_of<T: Copy>(
    what: &str,
    text: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<T, String> {
    all.iter().copied().find(|item| name(*item) == text).ok_or_else(|| {
        let names = || all.iter().map(|item| name(*item));
        format!("{text:?} is not a {what}{}; choose one of {}", suggest::hint(text, names()), suggest::list(names()))
    })
}

/// A group's live settings, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub mode: Mode,
    pub policy: Policy,
    /// The peer window; acts only under [`Policy::Hold`].
    pub hold: Duration,
    /// Longest time one write waits for the peer before `policy` acts.
    pub wait_limit: Duration,
    /// Start an update sync by itself when the link returns.
    pub autosync: bool,
    /// What a primary does that lost power and does not meet its peer.
    pub start_alone: StartAlone,
    pub queue_memory_bytes: u64,
    pub queue_items: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Async,
            policy: Policy::Degrade,
            hold: limits::HOLD.default,
            wait_limit: limits::WAIT_LIMIT.default,
            autosync: true,
            start_alone: StartAlone::Wait(limits::START_ALONE.default),
            queue_memory_bytes: limits::QUEUE_MEMORY.default,
            queue_items: limits::QUEUE_ITEMS.default,
        }
    }
}

/// The keys of [`Settings`], as the file and `set` spell them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Mode,
    Policy,
    Hold,
    WaitLimit,
    Autosync,
    StartAlone,
    QueueMemory,
    QueueItems,
}

impl Key {
    pub const ALL: [Key; 8] = [
        Key::Mode,
        Key::Policy,
        Key::Hold,
        Key::WaitLimit,
        Key::Autosync,
        Key::StartAlone,
        Key::QueueMemory,
        Key::QueueItems,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Key::Mode => "mode",
            Key::Policy => "policy",
            Key::Hold => "hold",
            Key::WaitLimit => "wait_limit",
            Key::Autosync => "autosync",
            Key::StartAlone => "start_alone",
            Key::QueueMemory => "queue.memory",
            Key::QueueItems => "queue.items",
        }
    }

    /// # Errors
    /// A sentence with the keys there are; keys that exist in the file but are read only at start say so.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "journal" {
            return Err(
                "\"journal\" is the size of a file that each node made at the group's first start, and stays: a daemon refuses a file of \
                 another size"
                    .to_owned(),
            );
        }
        if let "window" | "history" | "activity.extents" | "primary" | "secondary" = text {
            return Err(format!(
                "{text:?} is read when the daemon starts; change it in the configuration file of both nodes and restart them"
            ));
        }
        Self::ALL.into_iter().find(|key| key.as_str() == text).ok_or_else(|| {
            let names = || Self::ALL.iter().map(|key| key.as_str());
            format!("{text:?} cannot be set{}; the keys are {}", suggest::hint(text, names()), suggest::list(names()))
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Settings {
    /// Takes the text of one key; on a problem nothing changes.
    ///
    /// # Errors
    /// A sentence: what is wrong with the value and what it may be.
    pub fn set(&mut self, key: Key, text: &str) -> Result<(), String> {
        match key {
            Key::Mode => self.mode = parse_mode(text)?,
            Key::Policy => self.policy = Policy::parse(text)?,
            Key::Hold => self.hold = bounded_duration(text, limits::HOLD)?,
            Key::WaitLimit => self.wait_limit = bounded_duration(text, limits::WAIT_LIMIT)?,
            Key::Autosync => self.autosync = parse_flag(text)?,
            Key::StartAlone => self.start_alone = parse_start_alone(text)?,
            Key::QueueMemory => self.queue_memory_bytes = bounded_size(text, limits::QUEUE_MEMORY)?,
            Key::QueueItems => self.queue_items = parse_items(text)?,
        }
        Ok(())
    }

    /// As the data path takes them: policy and peer window in one.
    pub fn for_engine(&self) -> engine::Settings {
        engine::Settings {
            mode: self.mode,
            policy: match self.policy {
                Policy::Degrade => engine::state::Policy::Degrade,
                Policy::Hold => engine::state::Policy::Hold(self.hold),
                Policy::Strict => engine::state::Policy::Strict,
            },
            wait_limit: self.wait_limit,
            autosync: self.autosync,
            queue_bytes: self.queue_memory_bytes,
            queue_items: self.queue_items,
            start_alone: self.start_alone,
        }
    }

    /// What a peer told of its own. A peer window that does not act there is not told.
    pub fn told(peer: &engine::Settings) -> Self {
        let (policy, hold) = match peer.policy {
            engine::state::Policy::Degrade => (Policy::Degrade, limits::HOLD.default),
            engine::state::Policy::Hold(hold) => (Policy::Hold, hold),
            engine::state::Policy::Strict => (Policy::Strict, limits::HOLD.default),
        };
        Self {
            mode: peer.mode,
            policy,
            hold,
            wait_limit: peer.wait_limit,
            autosync: peer.autosync,
            start_alone: peer.start_alone,
            queue_memory_bytes: peer.queue_bytes,
            queue_items: peer.queue_items,
        }
    }

    /// The keys that count: the peer window does so under one policy only.
    pub fn acting(&self) -> impl Iterator<Item = Key> + use<> {
        let holds = self.policy == Policy::Hold;
        Key::ALL.into_iter().filter(move |key| *key != Key::Hold || holds)
    }

    /// The canonical text of one key; [`Settings::set`] reads it back.
    pub fn text(&self, key: Key) -> String {
        match key {
            Key::Mode => self.mode.word().to_owned(),
            Key::Policy => self.policy.as_str().to_owned(),
            Key::Hold => duration_text(self.hold),
            Key::WaitLimit => duration_text(self.wait_limit),
            Key::Autosync => self.autosync.to_string(),
            Key::StartAlone => start_alone_text(self.start_alone),
            Key::QueueMemory => size_text(self.queue_memory_bytes),
            Key::QueueItems => self.queue_items.to_string(),
        }
    }
}

fn parse_items(text: &str) -> Result<u64, String> {
    let bound = limits::QUEUE_ITEMS;
    match text.parse::<u64>() {
        Ok(items) if (bound.min..=bound.max).contains(&items) => Ok(items),
        Ok(items) => Err(format!("{items} writes is out of bounds; use {} to {}", bound.min, bound.max)),
        Err(_) => Err(format!("{text:?} is not a number of writes, such as {}", bound.default)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_reads_back_what_it_writes() {
        let defaults = Settings::default();
        for key in Key::ALL {
            let mut copy = defaults.clone();
            copy.set(key, &defaults.text(key)).expect("its own text");
            assert_eq!(copy, defaults);
            assert_eq!(Key::parse(key.as_str()), Ok(key));
        }
    }

    #[test]
    fn the_defaults_are_the_data_paths() {
        let defaults = Settings::default();
        assert_eq!(defaults.for_engine(), engine::Settings::default());
        let held = Settings { policy: Policy::Hold, ..defaults };
        assert_eq!(Settings::told(&held.for_engine()), held);
        assert_eq!(held.for_engine().policy, engine::state::Policy::Hold(limits::HOLD.default));
    }

    #[test]
    fn a_bad_value_changes_nothing_and_says_why() {
        let mut settings = Settings::default();
        for (key, text, hint) in [
            (Key::Mode, "asink", "did you mean \"async\"?"),
            (Key::Mode, "superasync", "not in this version"),
            (Key::Mode, "periodic", "not in this version"),
            (Key::Policy, "hodl", "did you mean \"hold\"?"),
            (Key::Hold, "10ms", "the least is \"1s\""),
            (Key::WaitLimit, "2h", "the most is \"1h\""),
            (Key::WaitLimit, "10", "no unit"),
            (Key::Autosync, "yes", "neither true nor false"),
            (Key::StartAlone, "never", "neither \"serve\" nor \"wait\""),
            (Key::StartAlone, "wait", "such as \"wait 60s\""),
            (Key::StartAlone, "wait 60", "no unit"),
            (Key::StartAlone, "wait 25h", "the most is \"24h\""),
            (Key::QueueMemory, "64M", "64MiB"),
            (Key::QueueMemory, "4096", "the least is 1MiB"),
            (Key::QueueItems, "1", "out of bounds"),
            (Key::QueueItems, "many", "not a number of writes"),
        ] {
            let error = settings.set(key, text).expect_err(text);
            assert!(error.contains(hint), "{key}={text}: {error}");
        }
        assert_eq!(settings, Settings::default());
    }

    #[test]
    fn both_forms_of_starting_alone_read_back() {
        for (text, value) in [
            ("serve", StartAlone::Serve),
            ("wait 1m 30s", StartAlone::Wait(Duration::from_secs(90))),
            ("wait 24h", StartAlone::Wait(limits::START_ALONE.max)),
        ] {
            assert_eq!(parse_start_alone(text), Ok(value));
            assert_eq!(start_alone_text(value), text);
        }
    }

    #[test]
    fn keys_that_need_a_restart_say_so() {
        assert!(Key::parse("window").unwrap_err().contains("restart them"));
        assert!(Key::parse("journal").unwrap_err().contains("stays: a daemon refuses"));
        assert!(Key::parse("wait-limit").unwrap_err().contains("did you mean \"wait_limit\"?"));
    }
}
