//! A group's settings: what `set` changes while it runs, and what a start reads.

use std::time::Duration;

pub use engine::state::{AfterForcedFailover, Degrade, Fold, Mode, WhenFull};
pub use engine::{QueuePace, StartAlone};

use crate::forms::{ValueForm, count, duration, flag, node, one_of, or, rate, size, word};
use crate::keys::{self, Takes, keyed};
use crate::limits::{self, Bound};
use crate::names::NodeName;
use crate::role_hooks::RoleHooks;
use units::exact::{bounded_duration, bounded_size, duration_text, size_text};

/// # Errors
/// A sentence with the modes there are.
pub fn parse_mode(text: &str) -> Result<Mode, String> {
    if text == "periodic" {
        return Err("\"periodic\" is not in this version; nearest to it is \"superasync\"".to_owned());
    }
    one_of("mode", text, &Mode::ALL, Mode::word)
}

/// What happens in `sync` and `nearsync` when the peer is unreachable or a write waited longer than `wait_limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyChoice {
    /// Writers go on without the peer, as `degrade` says.
    Degrade,
    /// Writers wait for `hold`, the peer window, then degrade.
    Hold,
    /// Writes wait, then fail; nothing is ever acknowledged alone.
    Strict,
}

impl PolicyChoice {
    pub const ALL: [PolicyChoice; 3] = [PolicyChoice::Degrade, PolicyChoice::Hold, PolicyChoice::Strict];

    pub fn as_str(self) -> &'static str {
        match self {
            PolicyChoice::Degrade => "degrade",
            PolicyChoice::Hold => "hold",
            PolicyChoice::Strict => "strict",
        }
    }

    /// # Errors
    /// A sentence with the policies there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        one_of("policy", text, &Self::ALL, Self::as_str)
    }
}

/// # Errors
/// A sentence with the two words there are.
pub fn parse_degrade(text: &str) -> Result<Degrade, String> {
    one_of("way to degrade", text, &Degrade::ALL, Degrade::word)
}

/// # Errors
/// A sentence with the two words there are.
pub fn parse_when_full(text: &str) -> Result<WhenFull, String> {
    one_of("way out of a full queue", text, &WhenFull::ALL, WhenFull::word)
}

/// # Errors
/// A sentence with the two words there are.
pub fn parse_fold(text: &str) -> Result<Fold, String> {
    one_of("way of folding", text, &Fold::ALL, Fold::word)
}

/// # Errors
/// A sentence with the two words there are.
pub fn parse_after_forced_failover(text: &str) -> Result<AfterForcedFailover, String> {
    one_of("way to end a fork", text, &AfterForcedFailover::ALL, AfterForcedFailover::word)
}

/// # Errors
/// A sentence with an example.
pub fn parse_pace(text: &str) -> Result<QueuePace, String> {
    let percent = |text: &str| text.trim().strip_suffix('%').and_then(|number| number.trim().parse().ok());
    let marks = text.split_once(" to ").and_then(|(from, to)| Some((percent(from)?, percent(to)?)));
    let (from, to) =
        marks.ok_or_else(|| format!("{text:?} is not two percents of the queue, such as \"50% to 90%\""))?;
    let wrong = || format!("{text:?}: the first mark has to be below the second, and that at most 100%");
    QueuePace::new(from, to).ok_or_else(wrong)
}

fn pace() -> ValueForm<Option<QueuePace>> {
    let form = ValueForm::new(
        "word",
        "two percents, such as `\"50% to 90%\"`, or `\"off\"`".to_owned(),
        QueuePace::new(50, 90).expect("the first is below the second"),
        |text, _| parse_pace(text),
        |pace| format!("{}% to {}%", pace.from(), pace.to()),
    );
    or("off", ": a full queue stops writers", form)
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

fn start_alone() -> ValueForm<StartAlone> {
    let bounds = format!("`\"serve\"`, or `\"wait \"` and {}", duration(limits::START_ALONE).about().bounds);
    let default = StartAlone::Wait(limits::START_ALONE.default);
    ValueForm::new(
        "word",
        bounds,
        default,
        |text, _| parse_start_alone(text),
        |value| match value {
            StartAlone::Serve => "serve".to_owned(),
            StartAlone::Wait(duration) => format!("wait {}", duration_text(*duration)),
        },
    )
}

/// # Errors
/// A sentence with the fallbacks there are.
pub fn parse_fallback(text: &str) -> Result<Mode, String> {
    one_of("fallback", text, &FALLBACKS, Mode::word)
}

const FALLBACKS: [Mode; 2] = [Mode::Async, Mode::Superasync];

fn fallback() -> ValueForm<Option<Mode>> {
    or("none", "", word(&FALLBACKS, Mode::word, Mode::Async, parse_fallback))
}

/// What `set` changes while a group runs.
pub type GroupKey = keys::SettingKey<LiveSettings>;

keyed! {
    /// Who a group's members are.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct GroupMembers, takes(Takes::Restart) {
        /// Who starts as primary the first time; afterwards the stored role counts.
        "primary" => primary: NodeName = node().required("name the node that starts as primary");
            "who starts as primary the first time; afterwards the stored role counts",
            "who starts as primary the first time. Afterwards the stored role counts, and this line is not changed by a promote";
        "secondary" => secondary: NodeName = node().required("name the node that keeps the copy");
            "who keeps the copy",
            "who keeps the copy: the other node";
    }
}

keyed! {
    /// A group's live settings, checked.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LiveSettings, takes(Takes::Effect), beside(not_live) {
        "mode" => mode: Mode = word(&Mode::ALL, Mode::word, Mode::Async, parse_mode);
            "sync, nearsync, async, superasync, logging",
            "what an acknowledgement waits for, see below. `\"periodic\"` is not in this version";
        "policy" => policy: PolicyChoice = word(&PolicyChoice::ALL, PolicyChoice::as_str, PolicyChoice::Degrade, PolicyChoice::parse);
            "peer unreachable in sync or nearsync: degrade, hold (for `hold`), strict",
            "`sync` and `nearsync` when the peer is unreachable or a write waited longer than `wait_limit`: writers go on without the peer, see `degrade`; writers stand still for `hold`, then degrade; or writes wait and then fail";
        "degrade" => degrade: Degrade = word(&Degrade::ALL, Degrade::word, Degrade::Queue, parse_degrade);
            "writers who go on without the peer: in order, from the queue, or \"logging\" and a resync",
            "what `policy` `degrade` (and `hold`, behind its window) leaves of the order. `\"queue\"`: writers are answered as in `async`, the queue keeps the order, and no resync follows; a full queue decides as in `async`. `\"logging\"`: the order is given up at once, regions are dirty, and an update sync follows";
        /// The peer window; acts only under [`PolicyChoice::Hold`].
        "hold" => hold: Duration = duration(limits::HOLD);
            "how long writers stand still with policy = \"hold\"",
            "the peer window of `policy = \"hold\"`: writers stand still for so long at most, and `wait_limit` longer if the link is back by then. It is one window until the group is in step again, however often the link flaps. For so long after its last word the other node knows that nothing which was acknowledged is missing there: `promote --in-window` ([decision 70](decisions/0070-peer-window.md))";
        /// The lower rung of the mode ladder; `None`: there is none.
        "fallback" => fallback: Option<Mode> = fallback();
            choice "\"async\"", "while the line is slow: act as \"async\" or \"superasync\"; \"none\": never",
            "the [mode ladder](how-it-works.md#a-mode-ladder): what the group acts as while its line is slow. It has to be below `mode`, and `policy` must not be `\"strict\"`. What it acts as now is in `status`, and each step is an [event](events.md)";
        "fallback_latency" => fallback_latency: Duration = duration(limits::FALLBACK_LATENCY);
            "the line is slow: writers wait longer than this for the peer",
            "added latency above which the line is slow: what writers wait for the peer once their write is done here, and for room in the queue, beyond what the link takes for one step of [folding](decisions/0079-folding.md) (at most 1 s). A mode that waits for the peer adds at least the line's round trip. With `fallback_after` it has to be less than `wait_limit`";
        "fallback_after" => fallback_after: Duration = duration(limits::FALLBACK_AFTER);
            "on the average of so much time in which anyone waited",
            "so much time in which anyone waited has to be slow on the average before the ladder steps down. A write that has waited for `fallback_latency` and this together is enough: so no writer waits much longer. A line that is silent for 0.4 s may be lost, and is left to `policy`";
        "fallback_lag" => fallback_lag: Option<Duration> = or("off", "", duration(limits::FALLBACK_LAG));
            choice "\"20s\"", "or the oldest write that the other node lacks is as old as this; \"off\": as old as it may be",
            "the ladder steps down, too, while the oldest write that the other node lacks is as old as this: in `async` with `fallback = \"superasync\"` before the queue is full and anyone waits. The copy has to be at most half as far behind before `mode` counts again";
        "return_after" => return_after: Duration = duration(limits::RETURN_AFTER);
            "the line has to be good for so long before `mode` counts again",
            "the line has to be good for so long before `mode` counts again: the copy is in step with the fallback, the queue is at most half full, and neither writes nor heartbeats take longer than `fallback_latency` to be confirmed. After a return that did not last for so long it takes twice that, and up to eight times";
        /// Longest time one write waits for the peer before `policy` acts.
        "wait_limit" => wait_limit: Duration = duration(limits::WAIT_LIMIT);
            "longest time one write waits for the peer before the policy acts",
            "longest time that one write waits, for the peer or for room in a full queue, before the policy acts; also the limit for writers that are held up together ([how that is counted](operate/full-queue-and-journal.md))";
        /// Start an update sync by itself when the link returns.
        "autosync" => autosync: bool = flag(true);
            "update sync by itself when the link returns",
            "start an update sync by itself when the link returns";
        /// What a primary does that lost power and does not meet its peer.
        "start_alone" => start_alone: StartAlone = start_alone();
            "primary after a power loss, peer out of reach: wait for it, or \"serve\" at once",
            "a primary that starts after a power loss and does not meet its peer, which may have confirmed writes that are lost here: serve at once (and be asked about those writes later), or wait so long for the peer first. Of a primary that is new, nothing but `\"serve\"` opens an export before it has met its peer";
        /// Counts where both nodes have it.
        "after_forced_failover" => after_forced_failover: AfterForcedFailover = word(&AfterForcedFailover::ALL, AfterForcedFailover::word, AfterForcedFailover::Ask, parse_after_forced_failover);
            "a fork after promote --force: ask an operator, or \"keep-promoted\"",
            "both nodes wrote since one of them was promoted with `--force`: `\"ask\"` waits for [`resolve`](operate/old-primary-returns.md). `\"keep-promoted\"`, if both nodes have it, keeps the node that was promoted, as `resolve --keep` would: what the other one wrote is saved as a delta first. It asks all the same if either node was started again since, as that may be an older copy; if both were promoted; if a volume was set aside; if one was demoted, is held in `logging`, or the promoted one has `autosync = false`; if clients are attached to the other node; or if there is no room for the delta";
        "queue.memory" => queue_memory_bytes: u64 = size(limits::QUEUE_MEMORY);
            "writes not yet durable at the secondary, in memory",
            "writes that are not yet durable at the secondary, bytes of memory. A larger queue rides out longer bursts, and more is lost with the node in `async`. What is above four fifths of `memory.limit` has no effect";
        "queue.items" => queue_items: u64 = count(limits::QUEUE_ITEMS, "writes");
            "the same, counted in writes",
            "the same, counted in writes, those on disk too";
        "queue.when_full" => when_full: WhenFull = word(&WhenFull::ALL, WhenFull::word, WhenFull::Block, parse_when_full);
            "memory and disk queue are full: writers wait, or \"bitmap\": regions are dirty",
            "what becomes of a write for which neither memory nor disk queue has room. `\"block\"`: the writer waits, for `wait_limit` at most, then the policy acts. `\"bitmap\"`: the order is given up at once, regions are dirty, no writer waits, and an update sync follows. While the link is down, and in `superasync`, a full queue becomes dirty regions in either case ([when something is full](operate/full-queue-and-journal.md))";
        /// Writers are slowed down between two marks of the queue's fill.
        "queue.pace" => queue_pace: Option<QueuePace> = pace();
            "slow writers down from one fill of the queue to another, such as \"50% to 90%\", or \"off\"",
            "with `queue.when_full = \"block\"` in `async`: from the first fill of the queue on, memory and disk together, writers are slowed down, and at the second they come to the link's rate, so that no full queue stops them all at once. Each tenth of the queue before that doubles what they may write, and each tenth behind it halves it ([pacing](decisions/0076-pacing.md)). `\"off\"`: they are stopped when the queue is full";
        /// What is overwritten before it was sent is left out.
        "fold" => fold: Fold = word(&Fold::ALL, Fold::word, Fold::Auto, parse_fold);
            "a backlog's writes that are overwritten before they were sent are not sent, or \"never\": each is",
            "`\"auto\"`: what waits in memory to be sent, and is overwritten meanwhile, is not sent; the secondary takes each such stretch of at most a second in one step ([folding](decisions/0079-folding.md)). Nothing is left out while writers wait for the peer, or of what went to the disk queue before it was read back. `\"never\"`: each write is sent";
        "link.weight" => link_weight: u8 = count(limits::LINK_WEIGHT, "parts");
            "this group's part of a link that several groups fill, beside theirs: 1 to 100",
            "how much of a link this group gets while several groups send over it. Each gets bytes by its weight: beside one of 10 a group of 40 gets four fifths. Nobody is starved, nobody's part is kept free for it, and who sends little comes before those that send without end, whatever the weights are";
    }
}

/// When a key of a group's other settings takes effect.
fn not_live(name: &str) -> Option<Takes> {
    let others = [
        keys::takes::<Layout>,
        keys::takes::<GroupMembers>,
        keys::takes::<RpoThresholds>,
        keys::takes::<ScrubSettings>,
        keys::takes::<RoleHooks>,
    ];
    others.into_iter().find_map(|takes| takes(name))
}

const JOURNAL_STAYS: &str = "is the size of a file that each node made at the group's first start, and stays: a daemon refuses a file of another size";

keyed! {
    /// Sizes of a group's stores and of its window, per node: read at a start.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Layout, takes(Takes::Restart) {
        /// The disk queue, bytes; 0: there is none.
        "queue.disk" => queue_disk_bytes: u64 = queue_disk();
            "writes for which memory has no room, in order, on the state disk; reserved at a start, 0 = none",
            "the disk queue: what the queue has no room for in memory, in order, in a file of this size in the group's state directory. Its space is reserved at the group's start, on either node, as either may be primary; where there is too little the group goes on without it ([disk queue](#window-and-memory)). `0` or `\"off\"`: none. Another value counts at the group's next start";
        /// The disk queue is a log that a start goes on from.
        "queue.durable" => queue_durable: bool = flag(false);
            "each write goes through the disk queue first: a primary that crashes goes on in order",
            "the disk queue is a log: each write stands there, flushed, before it is written to its volume and sent. A primary that was killed or lost its power goes on in order, without a sync ([log of the queue](#log-of-the-queue)). Each write waits for one more flushed write, on the disk of that file. Needs a `queue.disk` of 64 MiB or more";
        /// Landing journal, bytes.
        "journal" => journal_bytes: u64 = size(limits::JOURNAL);
            stays JOURNAL_STAYS, "the secondary's landing journal; at least twice the window",
            "landing journal on the secondary's state disk (either node may be secondary). At least twice `window`, or receiving would wait for applying. Its file is made at the group's first start and keeps its size";
        /// Sent and not yet on the secondary's volumes, bytes.
        "window" => window_bytes: u64 = size(limits::WINDOW);
            "sent and not yet on the secondary's volumes",
            "bytes sent and not yet on the secondary's volumes. The least is the rate times the time until then: 64 MiB is 1 Gbit/s over 500 ms. Where the line loses packets, data behind a lost packet waits for it: take four times as much, in `queue.memory` too ([window and memory](#window-and-memory))";
        /// The undo store, bytes.
        "history" => history_bytes: u64 = size(limits::HISTORY);
            "what a sync may overwrite and still take back; takes space as it is used",
            "what a sync may overwrite and still take back, on the state disk. Each snapshot reserves 9/8 of what is dirty in runs of 32 KiB or more and twice what is dirty in single blocks, a full sync that compares takes 9/8 of what differs, one that does not reserves 9/8 of the volumes' size. The file takes space as it is used. A larger value counts at the next start, a smaller one when no rollback point is held";
        /// Extents of the activity log.
        "activity.extents" => activity_extents: u32 = count(limits::EXTENTS, "extents");
            "of 4 MiB each: how much may be written at full speed at a time",
            "extents of 4 MiB that may be written at full speed at a time, and that are compared after a crash. More of them: less metadata written under scattered load, more to compare. Counts at the next start after a clean stop";
    }
}

fn queue_disk() -> ValueForm<u64> {
    let bounds = format!("`0`, `\"off\"`, or {}", size(limits::QUEUE_DISK).about().bounds);
    let read = |text: &str| match text {
        "off" | "0" => Ok(0),
        _ => bounded_size(text, limits::QUEUE_DISK).map_err(|reason| format!("{reason}; or 0, for no disk queue")),
    };
    let write = |bytes: &u64| if *bytes == 0 { "0".to_owned() } else { size_text(*bytes) };
    ValueForm::new("size", bounds, limits::QUEUE_DISK.default, move |text, _| read(text), write)
}

/// A threshold of the lag, or `"off"`.
fn threshold(bound: Bound<Duration>) -> ValueForm<Option<Duration>> {
    let mut form = or("off", ", for no such alarm", duration(bound));
    form.default = Some(bound.default);
    form
}

keyed! {
    /// How far behind a group may be before somebody should know: told to whoever watches, and nothing else follows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RpoThresholds, takes(Takes::Restart) {
        "rpo.warn" => warn: Option<Duration> = threshold(limits::RPO_WARN);
            "lag worth a look; for metrics and their alarms, or \"off\"",
            "lag (`lag_seconds`) that is worth a look, or `\"off\"`. The mirror does nothing about it: [events](events.md) tell when it is passed and when it is met again, [metrics](metrics.md) show the threshold, and [alert rules](operate/monitoring.md) compare";
        "rpo.error" => error: Option<Duration> = threshold(limits::RPO_ERROR);
            "lag that somebody is woken for",
            "lag that somebody is woken for, or `\"off\"`; at least `rpo.warn`";
        "rpo.hold_off" => hold_off: Duration = duration(limits::RPO_HOLD_OFF);
            "a lag beyond a threshold, or back under it, counts once it has been there for so long",
            "a lag beyond a threshold counts once it has been there for so long, and one that is back under it likewise: a lag that goes up and down is one event. `0s`: at the first look, of which there is one in two seconds";
    }
}

keyed! {
    /// Verifies that begin by themselves.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ScrubSettings, takes(Takes::Restart) {
        "scrub.every" => every: Option<Duration> = or("off", ", for none", duration(limits::SCRUB_EVERY));
            choice "\"168h\"", "a verify by itself, so long after the last whole one; \"off\" by default",
            "so long after the last whole verify the primary's daemon begins one by itself, once the group is in step and no group of the node syncs or is verified; or `\"off\"`: it reads both copies whole, so somebody has to want it. It repairs nothing: what differs is an event and a warning ([verify](operate/verify.md#regularly))";
        /// Bits per second.
        "scrub.rate" => rate_bits_per_s: u64 = rate(limits::SCRUB_RATE);
            "what such a verify reads at most",
            "what such a verify reads of the primary's volumes at most. At 80 Mbit/s 1 TiB takes 31 h. Replication goes first in any case";
    }
}

impl LiveSettings {
    /// As the data path takes them: policy and peer window in one.
    pub fn for_engine(&self) -> engine::Settings {
        engine::Settings {
            mode: self.mode,
            policy: match self.policy {
                PolicyChoice::Degrade => engine::state::Policy::Degrade,
                PolicyChoice::Hold => engine::state::Policy::Hold(self.hold),
                PolicyChoice::Strict => engine::state::Policy::Strict,
            },
            degrade: self.degrade,
            wait_limit: self.wait_limit,
            fallback: self.fallback.map(|mode| engine::Fallback {
                mode,
                latency: self.fallback_latency,
                after: self.fallback_after,
                lag: self.fallback_lag,
                return_after: self.return_after,
            }),
            autosync: self.autosync,
            queue_bytes: self.queue_memory_bytes,
            queue_items: self.queue_items,
            when_full: self.when_full,
            pace: self.queue_pace,
            fold: self.fold,
            link_weight: self.link_weight,
            start_alone: self.start_alone,
            after_forced_failover: self.after_forced_failover,
        }
    }

    /// What a peer told of its own. A peer window that does not act there is not told.
    pub fn of_peer(peer: &engine::Settings) -> Self {
        let (policy, hold) = match peer.policy {
            engine::state::Policy::Degrade => (PolicyChoice::Degrade, limits::HOLD.default),
            engine::state::Policy::Hold(hold) => (PolicyChoice::Hold, hold),
            engine::state::Policy::Strict => (PolicyChoice::Strict, limits::HOLD.default),
        };
        Self {
            mode: peer.mode,
            policy,
            degrade: peer.degrade,
            hold,
            fallback: peer.fallback.map(|fallback| fallback.mode),
            fallback_latency: peer.fallback.map_or(limits::FALLBACK_LATENCY.default, |fallback| fallback.latency),
            fallback_after: peer.fallback.map_or(limits::FALLBACK_AFTER.default, |fallback| fallback.after),
            fallback_lag: peer.fallback.and_then(|fallback| fallback.lag),
            return_after: peer.fallback.map_or(limits::RETURN_AFTER.default, |fallback| fallback.return_after),
            wait_limit: peer.wait_limit,
            autosync: peer.autosync,
            start_alone: peer.start_alone,
            after_forced_failover: peer.after_forced_failover,
            queue_memory_bytes: peer.queue_bytes,
            queue_items: peer.queue_items,
            when_full: peer.when_full,
            queue_pace: peer.pace,
            fold: peer.fold,
            link_weight: peer.link_weight,
        }
    }

    /// Why its fallback never counts: the key to name, and a sentence.
    ///
    /// # Errors
    /// That sentence.
    pub fn check_ladder(&self) -> Result<(), (&'static str, String)> {
        let Some(fallback) = self.fallback else { return Ok(()) };
        let (word, mode) = (fallback.word(), self.mode.word());
        if self.policy == PolicyChoice::Strict {
            let why = "policy = \"strict\" answers nobody without the peer, and a fallback does; use fallback = \"none\", or another policy";
            return Err(("fallback", why.to_owned()));
        }
        if !fallback.is_below(self.mode) && self.mode != Mode::Logging {
            let why = format!(
                "\"{word}\" is not below mode = \"{mode}\", so there is nothing to fall back to; use fallback = \"none\", or another mode"
            );
            return Err(("fallback", why));
        }
        let longest = self.fallback_latency + self.fallback_after;
        if longest >= self.wait_limit {
            let why = format!(
                "with fallback_latency a write may wait {} before the fallback counts, and the policy acts after wait_limit = \"{}\"; use less, or a longer wait_limit",
                duration_text(longest),
                duration_text(self.wait_limit)
            );
            return Err(("fallback_after", why));
        }
        Ok(())
    }

    /// The keys that count: the peer window does so under one policy only, and under `strict` nothing degrades; in `superasync` nobody waits for a queue.
    pub fn acting(&self) -> impl Iterator<Item = GroupKey> + use<> {
        let (policy, mode, when_full, falls_back) = (self.policy, self.mode, self.when_full, self.fallback.is_some());
        GroupKey::all().filter(move |key| match key.as_str() {
            "hold" => policy == PolicyChoice::Hold,
            "degrade" => policy != PolicyChoice::Strict,
            "fallback_latency" | "fallback_after" | "fallback_lag" | "return_after" => falls_back,
            "queue.when_full" => mode != Mode::Superasync,
            "queue.pace" => mode == Mode::Async && when_full == WhenFull::Block,
            _ => true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forms::Around;
    use crate::keys::Keyed;

    #[test]
    fn every_key_reads_back_what_it_writes() {
        let defaults = LiveSettings::default();
        for key in GroupKey::all() {
            let mut copy = defaults.clone();
            copy.set(key, &defaults.text(key)).expect("its own text");
            assert_eq!(copy, defaults);
            assert_eq!(GroupKey::parse(key.as_str()), Ok(key));
        }
    }

    #[test]
    fn the_defaults_are_the_data_paths() {
        let defaults = LiveSettings::default();
        assert_eq!(defaults.for_engine(), engine::Settings::default());
        let held = LiveSettings { policy: PolicyChoice::Hold, ..defaults };
        assert_eq!(LiveSettings::of_peer(&held.for_engine()), held);
        assert_eq!(held.for_engine().policy, engine::state::Policy::Hold(limits::HOLD.default));
    }

    #[test]
    fn a_bad_value_changes_nothing_and_says_why() {
        let mut settings = LiveSettings::default();
        for (key, text, hint) in [
            ("mode", "asink", "did you mean \"async\"?"),
            ("mode", "periodic", "not in this version"),
            ("policy", "hodl", "did you mean \"hold\"?"),
            ("degrade", "queu", "did you mean \"queue\"?"),
            ("after_forced_failover", "keep-promotd", "did you mean \"keep-promoted\"?"),
            ("hold", "10ms", "the least is \"1s\""),
            ("fallback", "asnc", "did you mean \"async\"?"),
            ("fallback", "nearsync", "or \"none\""),
            ("fallback_after", "100ms", "the least is \"500ms\""),
            ("wait_limit", "2h", "the most is \"1h\""),
            ("wait_limit", "10", "no unit"),
            ("autosync", "yes", "neither true nor false"),
            ("start_alone", "never", "neither \"serve\" nor \"wait\""),
            ("start_alone", "wait", "such as \"wait 60s\""),
            ("start_alone", "wait 60", "no unit"),
            ("start_alone", "wait 25h", "the most is \"24h\""),
            ("queue.memory", "64M", "64MiB"),
            ("queue.memory", "4096", "the least is 1MiB"),
            ("queue.when_full", "blok", "did you mean \"block\"?"),
            ("fold", "alwys", "choose one of \"auto\" and \"never\""),
            ("queue.items", "1", "out of bounds"),
            ("queue.items", "many", "not a number of writes"),
        ] {
            let error = settings.set(GroupKey::named(key), text).expect_err(text);
            assert!(error.contains(hint), "{key}={text}: {error}");
        }
        assert_eq!(settings, LiveSettings::default());
    }

    #[test]
    fn a_ladder_leads_below_the_mode_and_comes_before_the_policy() {
        let sync = LiveSettings { mode: Mode::Sync, fallback: Some(Mode::Async), ..LiveSettings::default() };
        assert_eq!(sync.check_ladder(), Ok(()));
        assert_eq!(LiveSettings::of_peer(&sync.for_engine()), sync);
        let said = |change: fn(&mut LiveSettings)| {
            let mut settings = sync.clone();
            change(&mut settings);
            settings.check_ladder().map_err(|(key, why)| format!("{key}: {why}"))
        };
        for change in [
            (|s| s.mode = Mode::Nearsync) as fn(&mut LiveSettings),
            |s| s.mode = Mode::Logging,
            |s| (s.mode, s.fallback) = (Mode::Async, Some(Mode::Superasync)),
            |s| (s.mode, s.fallback) = (Mode::Async, None),
        ] {
            assert_eq!(said(change), Ok(()));
        }
        let refused = |change, hint: &str| {
            let error = said(change).expect_err(hint);
            assert!(error.contains(hint), "{error}");
        };
        refused(|s| s.policy = PolicyChoice::Strict, "answers nobody without the peer");
        refused(|s| s.mode = Mode::Async, "fallback: \"async\" is not below mode = \"async\"");
        refused(|s| s.mode = Mode::Superasync, "is not below mode = \"superasync\"");
        refused(|s| s.wait_limit = Duration::from_millis(1200), "wait 1s 200ms before the fallback counts");
    }

    #[test]
    fn both_forms_of_starting_alone_read_back() {
        for (text, value) in [
            ("serve", StartAlone::Serve),
            ("wait 1m 30s", StartAlone::Wait(Duration::from_secs(90))),
            ("wait 24h", StartAlone::Wait(limits::START_ALONE.max)),
        ] {
            assert_eq!(parse_start_alone(text), Ok(value));
            assert_eq!(start_alone().write(&value), text);
        }
    }

    #[test]
    fn a_disk_queue_has_a_size_or_there_is_none() {
        for (text, bytes, shown) in
            [("0", 0, "0"), ("off", 0, "0"), ("8MiB", 8 << 20, "8MiB"), ("4GiB", limits::QUEUE_DISK.default, "4GiB")]
        {
            assert_eq!(queue_disk().read(text, Around::nothing()), Ok(bytes));
            assert_eq!(queue_disk().write(&bytes), shown);
        }
        for (text, hint) in [
            ("1MiB", "the least is 8MiB; or 0, for no disk queue"),
            ("32TiB", "the most is 16TiB"),
            ("none", "or 0, for no disk queue"),
        ] {
            let error = queue_disk().read(text, Around::nothing()).expect_err(text);
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn keys_that_need_a_restart_say_so() {
        assert!(GroupKey::parse("window").unwrap_err().contains("config apply"));
        assert!(GroupKey::parse("queue.disk").unwrap_err().contains("config apply"));
        assert!(GroupKey::parse("hooks.timeout").unwrap_err().contains("config apply"));
        assert!(GroupKey::parse("journal").unwrap_err().contains("stays: a daemon refuses"));
        assert!(GroupKey::parse("wait-limit").unwrap_err().contains("did you mean \"wait_limit\"?"));
    }
}
