//! Every default and bound of the operator's half, with the reason beside it.
//!
//! Sizes are bytes, always. What the data path itself bounds is taken from the engine's page, never repeated here.

use std::time::Duration;

use engine::limits as data;
pub use engine::limits::{GIB, KIB, MIB, REGION_BYTES};
pub use units::{Bound, TIB};

/// Files written by people are far smaller, and this one is read into memory whole.
pub const CONFIG_BYTES_MAX: u64 = 4 * MIB;

/// Names appear in file names, export names and on the wire in one length byte.
pub const NAME_BYTES_MAX: usize = 64;

/// One daemon is measured with 1 000 groups; four times that is where a list stops being one operator's.
pub const GROUPS_MAX: usize = 4096;
pub const VOLUMES_MAX: usize = data::VOLUMES_MAX;
/// Nodes in one file. Groups have two members now; one-to-many needs a few more.
pub const NODES_MAX: usize = 64;
/// NBD sockets of one node.
pub const NBD_LISTENERS_MAX: usize = 16;

/// The kernel's room for the path of a Unix socket (108 with the closing zero).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A secret shorter than the hash it keys can be guessed more cheaply than the hash can be broken.
pub const SECRET_BYTES_MIN: usize = 32;
/// Keys longer than a hash block gain nothing; a larger file is a mistake (a certificate, a disk image).
pub const SECRET_BYTES_MAX: usize = 4096;

/// Silence after which a peer counts as unreachable.
pub const LINK_TIMEOUT: Bound<Duration> =
    Bound { min: data::LINK_TIMEOUT_MIN, max: data::LINK_TIMEOUT_MAX, default: data::LINK_TIMEOUT_DEFAULT };

/// Socket buffers: the kernel doubles and clamps what is asked; past 1 GiB it refuses.
pub const SOCKET_BUFFER: Bound<u64> = Bound { min: 4 * KIB, max: GIB, default: 0 };

/// What the kernel may hold unsent, per connection: below a few segments it starves the line, above a second of a slow
/// line heartbeats would wait behind it. `auto`: 20 ms of the line's rate, beginning with this.
pub const UNSENT: Bound<u64> = Bound { min: 16 * KIB, max: 64 * MIB, default: 128 * KIB };

/// Sent data unacknowledged for so long breaks a connection. `auto`: this, or twice the link's timeout if that is more.
pub const USER_TIMEOUT: Bound<Duration> =
    Bound { min: Duration::from_secs(5), max: Duration::from_secs(3600), default: Duration::from_secs(30) };

/// Idle time before the kernel asks whether the peer's machine is there; it counts in seconds.
pub const KEEPALIVE: Bound<Duration> =
    Bound { min: Duration::from_secs(1), max: Duration::from_secs(7200), default: Duration::from_secs(10) };

/// Longest pause between retransmissions, in the kernel's own bounds. 1 s: after a 20 s outage data flows again within
/// 0.3 s, where the kernel's default took 13.
pub const MAX_RTO: Bound<Duration> =
    Bound { min: Duration::from_secs(1), max: Duration::from_secs(120), default: Duration::from_secs(1) };

/// Shortest pause before a retransmission. Below 20 ms the peer's delayed acknowledgement passes for a loss; the kernel
/// takes no more than 200 ms. Off unless both nodes ask for it.
pub const MIN_RTO: Bound<Duration> =
    Bound { min: Duration::from_millis(20), max: Duration::from_millis(200), default: Duration::from_millis(200) };

/// Bits per second: half an ISDN line to more than any line. Off by default.
pub const PACING: Bound<u64> = Bound { min: 64_000, max: 400_000_000_000, default: 0 };

/// Longest time one write may wait for the peer before the policy acts.
pub const WAIT_LIMIT: Bound<Duration> =
    Bound { min: data::WAIT_LIMIT_MIN, max: data::WAIT_LIMIT_MAX, default: data::WAIT_LIMIT_DEFAULT };

/// The peer window of `policy = "hold"`. Below a second the probe's own round trip eats it on long links; the default
/// covers the restart of a daemon or a switch port.
pub const HOLD: Bound<Duration> =
    Bound { min: Duration::from_secs(1), max: data::HOLD_MAX, default: Duration::from_secs(30) };

/// Added latency above which a line is slow: the default is more than a line between continents takes, and people notice it.
pub const FALLBACK_LATENCY: Bound<Duration> =
    Bound { min: Duration::from_millis(1), max: Duration::from_secs(10), default: Duration::from_millis(200) };

/// For how long it is. In less time a line that is lost looks like a slow one.
pub const FALLBACK_AFTER: Bound<Duration> =
    Bound { min: Duration::from_millis(500), max: Duration::from_secs(60), default: Duration::from_secs(1) };
const _: () = assert!(FALLBACK_AFTER.min.as_millis() > data::LADDER_HEARS.as_millis());

/// How far the peer may be behind. Below a second each pause of the peer's disk is a step.
pub const FALLBACK_LAG: Bound<Duration> =
    Bound { min: Duration::from_secs(1), max: Duration::from_secs(86_400), default: Duration::from_secs(20) };

/// How long a line has to be good again. A return costs writers up to a second of waiting if the line was not.
pub const RETURN_AFTER: Bound<Duration> =
    Bound { min: Duration::from_secs(1), max: Duration::from_secs(3600), default: Duration::from_secs(30) };

/// Memory queue in bytes, and in writes.
pub const QUEUE_MEMORY: Bound<u64> =
    Bound { min: data::QUEUE_BYTES_MIN, max: data::QUEUE_BYTES_MAX, default: data::QUEUE_BYTES_DEFAULT };
pub const QUEUE_ITEMS: Bound<u64> =
    Bound { min: data::QUEUE_ITEMS_MIN, max: data::QUEUE_ITEMS_MAX, default: data::QUEUE_ITEMS_DEFAULT };

/// The disk queue, on the state directory's disk; beside this there may be none. The most is the most that ext4 gives a file.
pub const QUEUE_DISK: Bound<u64> =
    Bound { min: data::DISK_QUEUE_BYTES_MIN, max: 16 * TIB, default: data::DISK_QUEUE_BYTES_DEFAULT };

/// The least disk queue that is a log: the longest request of a client takes no more than half of it.
pub const QUEUE_LOG_BYTES_MIN: u64 = 64 * MIB;

/// What a disk queue leaves free beside as much as its group's `journal`: the history of a sync has room to begin with, and another group
/// to start.
pub const QUEUE_DISK_SPARE_BYTES: u64 = GIB;

/// What all groups of a node may hold in memory. Absent: this, or what the groups of the node need if that is more.
pub const MEMORY: Bound<u64> =
    Bound { min: data::MEMORY_BYTES_MIN, max: data::MEMORY_BYTES_MAX, default: data::MEMORY_BYTES_DEFAULT };

/// Of a node's memory, what each of its groups has to itself and as much to borrow: with less, groups that are busy
/// together would take turns at single writes.
pub const MEMORY_PER_GROUP: u64 = 2 * data::MEMORY_GROUP_BYTES;

/// Landing journal of a secondary, on its state directory's disk.
pub const JOURNAL: Bound<u64> =
    Bound { min: data::JOURNAL_BYTES_MIN, max: data::JOURNAL_BYTES_MAX, default: data::JOURNAL_BYTES_DEFAULT };

/// Bytes sent but not yet confirmed.
pub const WINDOW: Bound<u64> =
    Bound { min: data::WINDOW_BYTES_MIN, max: data::WINDOW_BYTES_MAX, default: data::WINDOW_BYTES_DEFAULT };

/// Room for what a resync overwrites, on the state directory's disk; the file takes space as it is used.
pub const HISTORY: Bound<u64> =
    Bound { min: data::HISTORY_BYTES_MIN, max: data::HISTORY_BYTES_MAX, default: data::HISTORY_BYTES_DEFAULT };

/// Extents that may be written at full speed at a time.
pub const LINK_WEIGHT: Bound<u8> = Bound { min: 1, max: data::LINK_WEIGHT_MAX, default: data::LINK_WEIGHT_DEFAULT };
pub const EXTENTS: Bound<u32> =
    Bound { min: data::EXTENTS_MIN, max: data::EXTENTS_MAX, default: data::EXTENTS_DEFAULT };

/// How long a lone primary waits for its peer after a power loss.
pub const START_ALONE: Bound<Duration> =
    Bound { min: Duration::from_secs(1), max: data::START_ALONE_MAX, default: data::START_ALONE_DEFAULT };

/// The lag from which a group is worth a look, and from which somebody is woken: alarms that are told to nobody cost nothing, and an
/// `async` group on a busy line is seconds behind. Below a second lag is the line's own.
pub const RPO_WARN: Bound<Duration> =
    Bound { min: Duration::from_secs(1), max: RPO_MAX, default: Duration::from_secs(30) };
pub const RPO_ERROR: Bound<Duration> =
    Bound { min: Duration::from_secs(1), max: RPO_MAX, default: Duration::from_secs(300) };
/// Longer than two looks at the lag, so one that goes up and down is no alarm.
pub const RPO_HOLD_OFF: Bound<Duration> =
    Bound { min: Duration::ZERO, max: Duration::from_secs(24 * 3600), default: Duration::from_secs(5) };
/// Who may lose more than a week has no use for an alarm.
const RPO_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long after a whole verify the next one begins by itself. Off by default: it reads both copies whole, which wakes disks that sleep and
/// costs what others of the machine may need, and a difference that nobody is told of helps nobody. From ten seconds on, for a bench.
pub const SCRUB_EVERY: Bound<Duration> =
    Bound { min: Duration::from_secs(10), max: Duration::from_secs(366 * 24 * 3600), default: SCRUB_USUAL };
/// A week: what a disk is read through in at that rate is 6 TB.
const SCRUB_USUAL: Duration = Duration::from_secs(7 * 24 * 3600);
/// What such a verify reads at most, bits per second. 10 MB/s is a tenth of what a spindle reads in order, and 1 TiB takes 31 hours.
pub const SCRUB_RATE: Bound<u64> = Bound { min: 64_000, max: 400_000_000_000, default: 80_000_000 };

/// The journal holds what is being received beside what is being applied.
pub const JOURNAL_WINDOWS_MIN: u64 = 2;

/// A modelled disk slower than this would only test patience.
pub const MODEL_LATENCY_MAX: Duration = Duration::from_secs(10);

/// One request line on the control socket: the longest real one is a `set` with all keys.
pub const API_REQUEST_BYTES_MAX: usize = 64 * KIB as usize;
/// One reply line: a status of 4 096 groups with a few volumes each.
pub const API_REPLY_BYTES_MAX: usize = 64 * MIB as usize;
/// A client of the control socket must finish its request line in this time, and take its answer in the same.
pub const API_IO_TIMEOUT: Duration = Duration::from_secs(10);
/// What is asked of the daemon has this time, then its client is told that it goes on: longer than a drain, a reconnect and a stop take, and
/// shorter than a command's own patience.
pub const API_ANSWER_TIMEOUT: Duration = Duration::from_secs(100);
/// The same for who only wants to look.
pub const API_LOOK_TIMEOUT: Duration = Duration::from_secs(8);
/// Orders under way at once, those included whose clients were told so; and as many requests that only look besides.
pub const API_REQUESTS_MAX: usize = 128;
/// Entries of the table of NBD clients: as many as there are groups, and no more than is read at each handshake.
pub const TLS_CLIENTS_MAX: usize = 4096;
/// Clients served at once, but for those whose request is being answered; more wait in the listen queue. Operators and scripts, not a crowd.
pub const API_CLIENTS_MAX: usize = 32;
/// A peer's daemon has this time to say how it is, connection and proof included, when a command looks there.
pub const PEER_LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// The same for `status`, which has more to show than that: so long while the peer seems gone. While the link is up, so many round trips
/// more, which is what a connection with its proofs takes and as much again for losses, up to the limit above.
pub const PEER_STATUS_TIMEOUT: Duration = Duration::from_secs(1);
pub const PEER_STATUS_ROUND_TRIPS: u32 = 12;
/// A word of the peer's that is younger is shown again: `status --watch` looks twice a second, on a line that has data to carry.
pub const PEER_WORD_FRESH: Duration = Duration::from_secs(1);
/// What a peer's daemon may answer, by what it was asked: it is read before anything in it is known to be right. An order: sentences, and
/// in a refusal the names of all groups.
pub const PEER_ANSWER_BYTES_MAX: usize = 512 * KIB as usize;
/// Events: the page below, or one event that is longer.
pub const PEER_PAGE_BYTES_MAX: usize = 128 * KIB as usize;
/// Clients of its exports: 1 280 of 1.5 KiB.
pub const PEER_CLIENTS_BYTES_MAX: usize = 2 * MIB as usize;
/// The named marks of a group: 250 of 400 bytes.
pub const PEER_MARKS_BYTES_MAX: usize = 128 * KIB as usize;
/// The history of a link: 40 320 minutes of up to 520 bytes.
pub const PEER_HISTORY_BYTES_MAX: usize = 24 * MIB as usize;
/// A status or counters: what there is once, and for each group that both nodes have and each of its volumes. A group takes 4 KiB and a
/// volume 300 bytes, where paths and sentences are as long as usual.
pub const PEER_STATUS_BYTES_MAX: usize = 256 * KIB as usize;
pub const PEER_STATUS_GROUP_BYTES_MAX: usize = 16 * KIB as usize;
pub const PEER_STATUS_VOLUME_BYTES_MAX: usize = 4 * KIB as usize;
/// What a peer's daemon was told to do has this time there, then it is said to go on; and this until its answer is here. Shorter than
/// what a command waits for its own daemon.
pub const PEER_ANSWER_TIMEOUT: Duration = Duration::from_secs(80);
pub const PEER_ORDER_TIMEOUT: Duration = Duration::from_secs(90);
/// Connections of readers of metrics at once; more wait in the listen queue. A pair of Prometheus servers, a proxy and a person.
pub const METRICS_CLIENTS_MAX: usize = 16;
/// What a reader of metrics sends before its question counts as none.
pub const METRICS_REQUEST_BYTES_MAX: usize = 16 * KIB as usize;
/// A reader has this time for each question, the proof of who it is included, and the same to take the page.
pub const METRICS_IO_TIMEOUT: Duration = Duration::from_secs(10);
/// The data thread has this time to tell how it is; then the page says that it did not. Scrapers wait 10 s by default.
pub const METRICS_LOOK_TIMEOUT: Duration = Duration::from_secs(2);
/// The log of events, both halves: an event takes 300 bytes, so the default is some 14 000 of them.
pub const EVENTS: Bound<u64> = Bound { min: 64 * KIB, max: 64 * MIB, default: 4 * MIB };
/// Events that a peer asks for at once, and what it gets of them: on a line of 64 kbit/s a page takes 2 s, and has
/// [`PEER_LOOK_TIMEOUT`].
pub const PEER_EVENTS_MAX: usize = 50;
pub const PEER_EVENTS_BYTES_MAX: usize = 16 * KIB as usize;
/// How often `events --follow` asks peers for theirs, and the longest pause after failures: each asking is a connection of its own.
pub const PEER_EVENTS_EVERY: Duration = Duration::from_secs(3);
pub const PEER_EVENTS_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Hooks of one file: each has a thread.
pub const HOOKS_MAX: usize = 16;
/// Words of a hook's command: what is longer is a script.
pub const HOOK_WORDS_MAX: usize = 64;
/// Longest address of a webhook.
pub const HOOK_URL_BYTES_MAX: usize = 2048;
/// Patience with one attempt of a hook.
pub const HOOK_TIMEOUT: Bound<Duration> =
    Bound { min: Duration::from_millis(100), max: Duration::from_secs(600), default: Duration::from_secs(10) };
/// Patience with a command around a change of role: a fence takes seconds, and a node that turns itself off a minute.
pub const ROLE_HOOK_TIMEOUT: Bound<Duration> =
    Bound { min: Duration::from_millis(100), max: Duration::from_secs(600), default: Duration::from_secs(30) };
/// A step of a reverse sync that was refused is tried again after this time.
pub const REVERSE_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Where commands of the configuration run with each try it is put off for twice as long as the last time, up to this.
pub const REVERSE_AGAIN_AFTER_MAX: Duration = Duration::from_secs(60);
/// How long requests that are at the other node are waited for before the node of the clients takes over.
pub const REVERSE_QUIET_PATIENCE: Duration = Duration::from_secs(10);
/// How long a node that is to serve the clients of its peer waits to hear that the peer was demoted. It takes a round trip, or a new session.
pub const REVERSE_HEARD_PATIENCE: Duration = Duration::from_secs(10);
/// A step of a reverse sync is waited for so long before it is stopped.
pub const REVERSE_STEP_PATIENCE: Duration = Duration::from_secs(15);
/// How long requests of clients wait for a node that hands over back to theirs, and does not say what has become of that: as long as it may drain,
/// and wait for the answer to its grant.
pub const REVERSE_HANDOVER_PATIENCE: Duration = Duration::from_secs(30);
/// Further attempts of a hook: with twenty it gives up after a quarter of an hour.
pub const HOOK_RETRIES: Bound<u32> = Bound { min: 0, max: 20, default: 3 };
/// How often `wait`, `sync --wait` and `status --watch` look again.
pub const POLL_INTERVAL: Duration = Duration::from_millis(500);

const _: () = {
    assert!(JOURNAL.default >= JOURNAL_WINDOWS_MIN * WINDOW.default);
    assert!(JOURNAL.min >= JOURNAL_WINDOWS_MIN * WINDOW.min);
    assert!(QUEUE_MEMORY.min <= QUEUE_MEMORY.default && QUEUE_MEMORY.default <= QUEUE_MEMORY.max);
    assert!(QUEUE_ITEMS.min <= QUEUE_ITEMS.default && QUEUE_ITEMS.default <= QUEUE_ITEMS.max);
    assert!(NAME_BYTES_MAX < 256);
    assert!(RPO_WARN.default.as_secs() < RPO_ERROR.default.as_secs());
    assert!(METRICS_LOOK_TIMEOUT.as_secs() < METRICS_IO_TIMEOUT.as_secs());
    assert!(PEER_STATUS_TIMEOUT.as_secs() < PEER_LOOK_TIMEOUT.as_secs());
    assert!(PEER_LOOK_TIMEOUT.as_secs() < API_LOOK_TIMEOUT.as_secs());
    assert!(PEER_ANSWER_TIMEOUT.as_secs() < PEER_ORDER_TIMEOUT.as_secs());
    assert!(PEER_ORDER_TIMEOUT.as_secs() < API_ANSWER_TIMEOUT.as_secs());
    assert!(VOLUMES_MAX <= u16::MAX as usize);
    assert!(SECRET_BYTES_MIN < SECRET_BYTES_MAX);
};
