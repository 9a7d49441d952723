//! The tables of docs/book/limits.md: every limit that no key changes, made of the constants themselves.
//!
//! A constant of the two pages of limits (this crate's and the engine's) has a row here, or stands in the list of those without.

use std::path::Path;
use std::time::Duration;

use engine::limits as data;
use host::driver;
use host::link::LinkBounds;
use host::link::auth::{BEFORE_PROOF_BYTES_MAX, DEFINITIONS_BYTES_MAX};
use host::link::control::CONTROL_VISITS_MAX;

use crate::limits as ours;
use units::exact::size_text;

#[path = "../../../xtask/src/made.rs"]
mod made;

const COMMAND: &str = "BLESS=1 cargo test -p settings limits_page";

/// A row: a constant's name, its value for readers, what it limits, and a word on that.
struct Limit {
    constant: &'static str,
    value: String,
    what: &'static str,
    note: String,
}

macro_rules! limits {
    ($($constant:expr => $what:literal, $note:expr;)*) => {
        vec![$(Limit {
            constant: stringify!($constant),
            value: $constant.shown(stringify!($constant)),
            what: $what,
            note: String::from($note),
        },)*]
    };
}

/// A number, and its unit if it has one, for eyes: `4 096`, `16 384 TiB`.
fn spaced(text: &str) -> String {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    format!("{} {unit}", units::size::spaced(digits)).trim_end().to_owned()
}

/// How a value is shown; a name says whether a number counts bytes.
trait Shown {
    fn shown(&self, name: &str) -> String;
}

impl Shown for u64 {
    fn shown(&self, name: &str) -> String {
        let name = name.to_ascii_lowercase();
        if name.contains("bytes") || name.contains("memory") {
            let size = spaced(&size_text(*self));
            if size.ends_with('B') { size } else { size + " bytes" }
        } else if self.is_power_of_two() && *self >= 1 << 40 {
            format!("2^{}", self.ilog2())
        } else {
            spaced(&self.to_string())
        }
    }
}

impl Shown for usize {
    fn shown(&self, name: &str) -> String {
        (*self as u64).shown(name)
    }
}

impl Shown for u32 {
    fn shown(&self, name: &str) -> String {
        u64::from(*self).shown(name)
    }
}

impl Shown for Duration {
    fn shown(&self, _: &str) -> String {
        let (seconds, milliseconds) = (self.as_secs(), self.subsec_millis());
        match seconds {
            _ if milliseconds > 0 => format!("{} ms", self.as_millis()),
            3600.. if seconds.is_multiple_of(3600) => format!("{} h", seconds / 3600),
            120.. if seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
            _ => format!("{seconds} s"),
        }
    }
}

/// Of configurations.
fn configuration() -> Vec<Limit> {
    let bits = data::VOLUME_BYTES_MAX / data::REGION_BYTES / 8;
    limits! {
        ours::GROUPS_MAX => "groups of a configuration", "";
        ours::NODES_MAX => "nodes of a configuration", "a group has two of them";
        ours::VOLUMES_MAX => "volumes of a group", "";
        data::MARKS_MAX => "marks of a group", "with dropped ones of which the peer has not heard";
        data::MARK_NAME_BYTES_MAX => "the name of a mark", "";
        data::VOLUME_BYTES_MAX => "a volume",
            format!("a map of its regions takes {} of memory and a fourteenth more if all parts of it are mixed; there are up to eight maps", bits.shown("bytes"));
        data::REGION_BYTES => "a region", "one bit of the dirty bitmap";
        data::SAVE_UNIT_BYTES => "a unit in which a sync saves long runs that it overwrites", "";
        data::EXTENT_BYTES => "an extent of the activity log", "";
        data::SECTOR_BYTES => "the smallest block of an export", "each length and offset is a multiple";
        data::META_BLOCK_BYTES => "a block of Farshore's own files", "";
        ours::NAME_BYTES_MAX => "a name", "of a node, group, volume, hook or cluster";
        ours::CONFIG_BYTES_MAX => "the configuration file", "";
        ours::SECRET_BYTES_MIN => "the secret, at least", "";
        ours::SECRET_BYTES_MAX => "the secret, at most", "";
        ours::NBD_LISTENERS_MAX => "addresses of `nbd` of a node", "";
        ours::SOCKET_PATH_BYTES_MAX => "the path of a Unix socket", "the kernel's room";
        ours::TLS_CLIENTS_MAX => "entries of `[tls.clients]`", "";
        ours::JOURNAL_WINDOWS_MIN => "`journal`, in windows, at least", "receiving would wait for applying";
        ours::QUEUE_DISK_SPARE_BYTES => "what a disk queue leaves free where its space is reserved", "and as much as its group's `journal`";
        ours::QUEUE_LOG_BYTES_MIN => "`queue.disk` with `queue.durable`, at least", "";
        ours::MEMORY_PER_GROUP => "`memory.limit`, for each group of the node, if that is more than the default", "";
        ours::HOOKS_MAX => "hooks of a configuration", "";
        ours::HOOK_WORDS_MAX => "words of a hook's `command`", "";
        ours::HOOK_URL_BYTES_MAX => "a hook's `url`", "";
    }
}

/// Of clients of exports.
fn clients() -> Vec<Limit> {
    let nbd = host::nbd::Limits::default();
    limits! {
        nbd.connections => "connections at exports",
            "the last of them for clients that hold few, or for exports that have none";
        nbd.unauthenticated => "connections over TCP that have not chosen an export yet, besides those",
            "of more the oldest is cut off";
        nbd.handshake => "from a client's first byte to its choice of an export", "TLS included";
        nbd.requests_in_flight => "requests in flight of a connection", "the server reads no further";
        nbd.bytes_in_flight => "payload in flight of a connection", "the server reads no further";
        nbd.bytes_in_flight_all => "payload in flight of all connections", "each has a share to itself";
        nbd.stalled => "silence of a client that owes the rest of a write, or takes no answers", "then it is cut off";
        nbd.farewell => "from a client's goodbye to its last answer", "";
        data::REQUEST_BYTES_MAX => "a read or write", "what NBD clients assume";
    }
}

/// Of writes on their way.
fn writes() -> Vec<Limit> {
    limits! {
        data::PART_BYTES_MAX => "a part of a write, which travels as one frame", "a longer write has several parts";
        data::RUN_MAX => "numbers that one frame stands for", "";
        data::SLICES_MAX => "writes that travel joined in one frame", "";
        data::EPOCH_FRAMES_MAX => "frames of an epoch", "";
        data::EPOCH_BYTES_MAX => "payload of an epoch", "";
        data::EPOCH_TIME => "from the first write of an epoch to its last", "";
        data::PART_BYTES_UNMEASURED => "a part of a write, before the link's rate is measured", "";
        data::PART_BYTES_MIN => "a part of a write, on the slowest link",
            "on faster links what the link carries in a quarter of a second, up to the largest part";
        data::ZERO_PART_BYTES_MAX => "a range of zeroes or a trim in one frame", "";
        data::ITEM_OVERHEAD_BYTES => "what a queued write costs besides its payload", "";
        data::MEMORY_GROUP_BYTES => "memory that each group has to itself", "the rest of `memory.limit` is borrowed";
        data::BATCH_BYTES_MAX => "payload of a journal batch", "";
        data::DISK_QUEUE_BATCH_BYTES => "what one request writes to the disk queue, or reads of it", "";
        data::OWN_DISK_PATIENCE => "a writer's wait for the disk of the queue, where a full queue holds nobody up", "then the queue counts as full";
        data::SNAPSHOT_WITHIN => "a catch-up snapshot", "while one takes longer `status` names the bandwidth that is missing";
        data::QUEUE_CELL_AFTER => "from a batch of the queue's log that is not needed any more to the record of that", "the space is free then";
        data::BATCHES_IN_FLIGHT_MAX => "journal batches in flight", "";
        data::APPLY_IN_FLIGHT_MAX => "writes applied to a secondary's volumes at once", "";
        data::APPLY_FLUSH_BYTES => "bytes applied and not flushed on a secondary", "then the volumes are flushed";
        data::APPLY_FLUSH_AFTER => "from an applied write on a secondary to the flush of the volumes", "";
        data::LOCAL_FLUSH_BYTES => "bytes written and not flushed on a primary", "then Farshore flushes by itself";
        data::LOCAL_FLUSH_AFTER => "from a write on a primary to the flush by Farshore itself", "";
        data::KEPT_MAX => "writes that a secondary keeps for a primary that may lose power", "then its journal waits";
        data::PULLS_IN_FLIGHT => "ranges that a primary fetches back at once", "";
        data::SAVE_PIECE_BYTES_MAX => "a piece on its way into the undo store", "";
        data::SAVE_PIECES_MAX => "pieces on their way into the undo store", "";
        data::SAVE_HELD_BYTES_MAX => "content read for the undo store and not saved yet", "";
        data::VIEWS_MAX => "views of one group", "one more is refused";
        data::VIEW_READ_BYTES_MAX => "one read of a view", "";
        data::VIEW_REQUESTS_MAX => "reads of one view that wait or are under way", "";
        data::VIEW_HELD_BYTES_MAX => "content that one view has read and not handed out", "";
        data::VIEW_READS_MAX => "operations of disks that one view has under way", "";
        data::VIEW_PATIENCE => "a view waits for a disk", "then its opening is refused, or it is lost";
        data::WRITE_BACKS_MAX => "ranges written back at once in a rollback", "";
        data::TIDY_CELLS => "cells of the bitmap cleared on disk at once", "";
        data::TIDY_BITS_AFTER => "from a cleared bit in memory to the bit on disk", "";
        data::DRAIN_LIMIT => "a demotion's wait for the peer to have everything", "";
        data::HANDOVER_LIMIT => "clients wait in a switchover, where no other time is typed", "then this node stays primary";
        data::HANDOVER_LIMIT_MAX => "the longest such time", "";
        data::YIELD_LIMIT => "`resolve` waits for the other node to be demoted, and as long for its bits", "then it is refused; nothing is overwritten";
        data::DELTA_BYTES_PER_S_MIN => "what the other node saves for `resolve` in a second, at least", "less, and a minute later, is taken for a disk that hangs";
        data::GRANT_LIMIT => "a node that handed over waits for its peer to say that it is primary", "";
        data::STOP_DRAIN => "a clean stop's wait for the peer to have everything", "an update sync sends the rest";
        data::HELD_UP_SHARE => "a writer counts as held up after `wait_limit` divided by", "";
        data::STARVES_AFTER => "a write's wait for the activity log before nobody passes it", "";
        data::REPAIR_AFTER => "from a failed local write to its repair", "";
        data::RECORD_AGAIN_AFTER => "from a record that failed to the next try", "";
        data::APPLY_RETRY_AFTER => "from a full volume of a secondary to the next try", "";
        host::driver::STOP_PATIENCE => "a daemon's stop", "then it gives up, and the next start is as after a kill";
    }
}

/// Of syncs and starts.
fn syncs() -> Vec<Limit> {
    limits! {
        data::STARTS_AT_ONCE => "groups that start at once", "";
        data::START_PERMIT_LIMIT => "a starting group's claim to a place among those that start",
            "then the next group begins as well";
        data::START_ALONE_AGAIN => "what `start_alone` grants a fetch that is under way at its end", "";
        data::SYNCS_AT_ONCE => "groups of a node that sync at once", "";
        data::SYNC_PERMIT_LIMIT => "a syncing group's claim to a place among those that sync",
            "then the next group begins as well";
        data::SYNC_STALLED_AFTER => "a sync without progress while the link lives",
            "or `timeout`, if longer; then it is given up";
        data::RESYNC_HOLD_OFF => "from a stalled peer to the next sync", "twice as long after each further stall";
        data::RESYNC_HOLD_OFF_MAX => "from a stalled peer to the next sync, at most", "";
        data::SHIPPED_PIECES_MAX => "pieces of a snapshot that are not confirmed",
            "more are sent again, should the snapshot be cut short";
        data::SNAPSHOT_EVERY => "from one small snapshot to the next", "";
        data::STREAM_TAIL => "the rest of a catch-up that goes in the stream, in time on the link", "more by snapshots";
        data::STREAM_TAIL_BYTES_UNMEASURED =>
            "the rest of a catch-up that goes in the stream, before the link's rate is measured",
            "";
        data::SYNC_STARVED_AFTER => "a sync in the stream without room beside live writes", "then it goes by snapshots";
        data::STREAM_AGAIN_AFTER => "how long a sync goes by snapshots before the stream is tried again", "";
        data::SUPERASYNC_QUEUE_TIME => "what a queue in `superasync` takes to send before snapshots that take half of that are preferred", "";
        data::CATCH_UP_BYTES => "a backlog with which a mode's promise is taken up", "";
        data::PROMISED_WITHIN => "time in which what is queued is at the peer, when writers who were answered alone wait for the peer again", "";
        data::CATCH_UP_AFTER => "time in `catching-up` after which a mode's promise is taken up with any backlog", "";
        data::RESYNC_READS_MAX => "reads of a sync in flight", "";
        data::RESYNC_BACKLOG_BYTES_MAX => "bytes of a sync that wait for the link",
            "or what the link carries in a second, if that is less";
        data::RESYNC_BACKLOG_BYTES_UNMEASURED =>
            "bytes of a sync that wait for the link, before the link's rate is measured",
            "";
        data::PROBE_BYTES => "a block that is compared by its hash", "";
        data::PROBES_IN_FLIGHT_MAX => "hashes of a sync in the stream without an answer", "";
        data::SNAPSHOT_PROBES_MAX => "hashes of a snapshot under way", "";
        data::VERIFY_READS_MAX => "reads of a verify in flight", "";
        data::VERIFY_PROBES_MAX => "hashes of a verify without an answer", "";
        data::VERIFY_UNSENT_BYTES_MAX => "bytes that wait for the link while a verify reads", "with more, it waits";
        data::VERIFY_AGAIN_MAX => "ranges that a verify has to look at again before it goes on", "";
        data::VERIFY_TRIES_MAX => "failed reads of a range, after which a verify leaves it out", "and says so";
        data::VERIFY_LEAVES_OUT_AFTER => "without a repair, after which a verify leaves out what waits for one", "and says so";
        host::disk::DELTAS_KEPT_MAX => "deltas that a group keeps beside its newest", "then none is made, and nothing is overwritten unsaved: `resolve` is refused, and a sync over a fork waits, until one is moved away or removed";
        data::VERIFY_NAMED_MAX => "ranges that differ, and are named", "the rest is counted";
        data::HOLE_BYTES_MIN => "a hole that a snapshot asks for, at least", "shorter ones are read";
        data::HOLE_PART_BYTES_MAX => "a hole in one frame", "";
    }
}

/// Of links.
fn links() -> Vec<Limit> {
    let link = LinkBounds::default();
    let year = 1970 + data::WALL_MAX / 1_000_000_000 / 31_556_952;
    limits! {
        link.unauthenticated_max => "peers at once that have not proven who they are", "of more the oldest is cut off";
        BEFORE_PROOF_BYTES_MAX => "bytes from a peer that has not proven who it is, besides TLS", "";
        link.auth_timeout => "from the connection to the mutual proof", "";
        DEFINITIONS_BYTES_MAX => "definitions of groups that differ, sent to be shown", "";
        link.definitions_timeout => "for the exchange of definitions that differ", "";
        link.connect_timeout => "for dialing a peer", "";
        link.backoff_min => "the first pause before a peer is dialed again", "doubled each time";
        link.backoff_max => "the longest pause before a peer is dialed again", "";
        link.repeat_after => "from a complaint in the log to the same one again", "";
        data::CONTROL_BYTES_MAX => "payload of a control frame", "";
        data::NUMBER_MAX => "what a peer may count up to", "";
        data::WALL_MAX => "what a peer's clock may say, in ns since 1970", format!("the year {year}");
        data::HEARTBEAT_EVERY => "from a heartbeat to the next", "";
        data::SILENCE_SUSPECT => "a silence after which a full queue no longer waits for the peer", "";
        data::WINDOW_ASK_EVERY => "a secondary asks for the peer window so often, or four times in a window", "";
        data::WINDOW_ANSWERED_WITHIN => "a question for the peer window is asked anew after this, or half of the window", "";
        data::SILENCE_LEAVES_BEHIND => "a silence after which writers go on without the peer, with `degrade = \"queue\"`",
            "or the limit in round trips, if longer";
        data::SILENCE_LEAVES_BEHIND_ROUND_TRIPS => "round trips without a sign of life after which writers go on without the peer, with `degrade = \"queue\"`",
            "not before the silence that is the limit in time";
        data::LADDER_LOOK => "a group whose mode ladder is down, or whose writers wait, is looked at so often", "";
        data::LADDER_HEARS => "a silence that a mode ladder charges to no writer", "";
        data::CONGESTED_AFTER => "a socket without a move, shown as `congested`", "";
        data::GREETING_LATE_AFTER => "a connected peer's group without a greeting, shown as starting", "";
        data::TICK_EVERY => "from one report of an idle primary's clock to the next", "";
        data::REPORT_HOLDS => "how long a secondary shows its primary's last report as the present", "";
        data::CLOCK_BEHIND_NOTICED => "a clock set back by less is not reported", "";
        data::CLOCK_SAID_AGAIN_AFTER => "from one report of a clock that was set back to the next", "";
        data::UNSENT_TIME => "bytes handed to the socket, in time on the link", "";
        data::UNSENT_BYTES_MIN => "bytes handed to the socket, at least", "";
        data::UNSENT_BYTES_MAX => "bytes handed to the socket, at most", "";
        data::UNSENT_BYTES_UNMEASURED => "bytes handed to the socket, before the link's rate is measured", "";
        data::UNSENT_TIME_AWAITED =>
            "bytes of one group handed to the socket while another group's writers wait, in time on the link",
            "";
        data::UNSENT_BYTES_AWAITED_MIN =>
            "bytes of one group handed to the socket while another group's writers wait, at least",
            "";
        data::CLOGGED_BYTES =>
            "bytes above those handed to the socket, at which heartbeats, clocks and confirmations wait",
            "";
        data::CONTROL_UNSENT_BYTES_MAX => "control frames above the bytes handed to the socket at most",
            "then the session ends";
        data::CONTROL_UNSENT_BYTES_PER_GROUP =>
            "control frames above the bytes handed to the socket at most, more for each group",
            "";
    }
}

/// Of reverse syncs.
fn reverse_syncs() -> Vec<Limit> {
    limits! {
        driver::FORWARDED_MAX => "requests of clients at the node that serves them, for each volume", "later ones wait";
        driver::FORWARDED_BYTES_MAX => "payload of those requests, for each volume", "one request may have more";
        driver::FORWARD_RETRY_FIRST => "from a lost connection to the node that serves to the next try", "twice as long after each try in vain";
        driver::FORWARD_RETRY_MAX => "from a lost connection to the node that serves to the next try, at most", "";
        driver::FORWARD_GREETING => "for the node that serves to take a connection for a volume", "then it is tried again";
        ours::REVERSE_QUIET_PATIENCE => "for requests at the other node to end, before the node of the clients takes over",
            "then they go on there, and it is tried again";
        ours::REVERSE_AGAIN_AFTER => "from a step that was refused to the next try", "";
        ours::REVERSE_AGAIN_AFTER_MAX => "from a step that was refused behind commands of the configuration to the next try, at most", "";
        ours::REVERSE_HEARD_PATIENCE => "for a node that is to serve the clients of its peer to hear that the peer was demoted", "";
        ours::REVERSE_STEP_PATIENCE => "for a step under way to end, before `--stop` is refused", "";
        ours::REVERSE_HANDOVER_PATIENCE => "for a node to hand over that has begun to, back to the node of the clients", "then they go on there";
    }
}

/// Of commands, and of one daemon's questions to another.
fn questions() -> Vec<Limit> {
    limits! {
        ours::API_CLIENTS_MAX => "clients of the control socket that are served at once", "those whose request is being answered do not count; more wait";
        ours::API_REQUESTS_MAX => "orders under way", "as many requests that only look besides";
        ours::API_REQUEST_BYTES_MAX => "a request", "";
        ours::API_REPLY_BYTES_MAX => "a reply", "";
        ours::API_IO_TIMEOUT => "for a request's line to arrive, and again for taking the reply", "";
        ours::API_LOOK_TIMEOUT => "for the answer to a command that only looks", "";
        ours::API_ANSWER_TIMEOUT => "for the answer to an order", "then the client hears that the order goes on";
        ours::POLL_INTERVAL => "from one look of `wait` and `--watch` to the next", "";
        CONTROL_VISITS_MAX => "control connections of one peer", "one more is turned away";
        ours::PEER_LOOK_TIMEOUT => "for a peer's daemon to say how it is", "";
        ours::PEER_STATUS_TIMEOUT => "for a peer's daemon to answer `status`, while the peer seems gone", "";
        ours::PEER_STATUS_ROUND_TRIPS =>
            "round trips that a peer's daemon has besides to answer `status`, while the link is up",
            "";
        ours::PEER_WORD_FRESH => "a peer's answer that is shown again, at this age at most", "";
        ours::PEER_ANSWER_TIMEOUT => "for an order to a peer, on the peer", "then the peer says that the order goes on";
        ours::PEER_ORDER_TIMEOUT => "for an order to a peer, until the peer's answer is here", "";
        ours::PEER_ANSWER_BYTES_MAX => "a peer's reply to an order",
            "a peer's longer replies, to whatever question, are not read";
        ours::PEER_PAGE_BYTES_MAX => "a peer's reply to `events`", "";
        ours::PEER_EVENTS_MAX => "events in a peer's reply to `events`", "";
        ours::PEER_EVENTS_BYTES_MAX => "bytes of events in a peer's reply to `events`, unless one event is longer", "";
        ours::PEER_CLIENTS_BYTES_MAX => "a peer's reply to `clients`", "";
        ours::PEER_MARKS_BYTES_MAX => "a peer's reply to `marks`", "";
        ours::PEER_HISTORY_BYTES_MAX => "a peer's reply to `link-history`", "";
        ours::PEER_STATUS_BYTES_MAX => "a peer's reply to `status` or `counters`",
            format!("with groups and volumes at most {}", ours::API_REPLY_BYTES_MAX.shown("bytes"));
        ours::PEER_STATUS_GROUP_BYTES_MAX => "a peer's reply to `status` or `counters`, more for each shared group", "";
        ours::PEER_STATUS_VOLUME_BYTES_MAX =>
            "a peer's reply to `status` or `counters`, more for each volume of a shared group",
            "";
        ours::PEER_EVENTS_EVERY => "from one question of `events --follow` to a peer to the next", "";
        ours::PEER_EVENTS_PAUSE_MAX =>
            "from one question of `events --follow` to a peer to the next, after failures, at most",
            "";
        ours::METRICS_CLIENTS_MAX => "readers of metrics at once", "more wait";
        ours::METRICS_REQUEST_BYTES_MAX => "a request for metrics", "";
        ours::METRICS_IO_TIMEOUT => "for a request for metrics, and again for taking the page", "";
        ours::METRICS_LOOK_TIMEOUT => "for the data thread to give the figures of a page of metrics",
            "then the page says that it did not";
    }
}

/// Bounds and defaults of keys, which stand in the table of keys, and units.
const WITHOUT_ROW: [&str; 39] = [
    "LINK_WEIGHT_DEFAULT",
    "LINK_WEIGHT_MAX",
    "KIB",
    "MIB",
    "GIB",
    "QUEUE_BYTES_DEFAULT",
    "QUEUE_BYTES_MIN",
    "QUEUE_BYTES_MAX",
    "QUEUE_ITEMS_DEFAULT",
    "QUEUE_ITEMS_MIN",
    "QUEUE_ITEMS_MAX",
    "DISK_QUEUE_BYTES_DEFAULT",
    "DISK_QUEUE_BYTES_MIN",
    "MEMORY_BYTES_DEFAULT",
    "MEMORY_BYTES_MIN",
    "MEMORY_BYTES_MAX",
    "SYNCS_AT_ONCE_MAX",
    "WINDOW_BYTES_DEFAULT",
    "WINDOW_BYTES_MIN",
    "WINDOW_BYTES_MAX",
    "JOURNAL_BYTES_DEFAULT",
    "JOURNAL_BYTES_MIN",
    "JOURNAL_BYTES_MAX",
    "EXTENTS_DEFAULT",
    "EXTENTS_MIN",
    "EXTENTS_MAX",
    "HISTORY_BYTES_DEFAULT",
    "HISTORY_BYTES_MIN",
    "HISTORY_BYTES_MAX",
    "START_ALONE_DEFAULT",
    "START_ALONE_MAX",
    "WAIT_LIMIT_DEFAULT",
    "WAIT_LIMIT_MIN",
    "WAIT_LIMIT_MAX",
    "HOLD_MAX",
    "LINK_TIMEOUT_DEFAULT",
    "LINK_TIMEOUT_MIN",
    "LINK_TIMEOUT_MAX",
    "MODEL_LATENCY_MAX",
];

/// Each part of the page, by its name.
fn parts() -> Vec<(&'static str, Vec<Limit>)> {
    vec![
        ("configuration", configuration()),
        ("clients", clients()),
        ("writes", writes()),
        ("syncs", syncs()),
        ("links", links()),
        ("reverse", reverse_syncs()),
        ("questions", questions()),
    ]
}

fn table(limits: &[Limit]) -> String {
    let head = "| What | Limit | |\n|---|---|---|\n".to_owned();
    let row = |limit: &Limit| {
        let Limit { value, what, note, .. } = limit;
        format!("| {what} | {value} | {note} |\n").replace("|  |", "| |")
    };
    head + &limits.iter().map(row).collect::<String>()
}

/// `BLESS=1` writes the tables anew; read them before committing.
#[test]
fn the_page_of_limits_has_the_programs_tables() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/limits.md");
    let page = std::fs::read_to_string(&file).expect("docs/book/limits.md");
    let tables: Vec<(&str, String)> = parts().iter().map(|(name, limits)| (*name, table(limits))).collect();
    let remade = made::remade(&page, COMMAND, &tables).unwrap_or_else(|error| panic!("docs/book/limits.md: {error}"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(file, remade).expect("docs/book/limits.md is written");
    } else {
        assert!(page == remade, "docs/book/limits.md differs: run {COMMAND}");
    }
}

/// A constant that is added has a row, or its name in the list of those without.
#[test]
fn every_constant_of_the_pages_of_limits_is_shown_or_left_out() {
    let parts = parts();
    let shown = parts.iter().flat_map(|(_, limits)| limits).filter_map(|limit| limit.constant.rsplit("::").next());
    let shown: Vec<&str> = shown.collect();
    let pages = [include_str!("limits.rs"), include_str!("../../engine/src/limits.rs")];
    let mut missing = Vec::new();
    for line in pages.iter().flat_map(|text| text.lines()).filter_map(|line| line.strip_prefix("pub const ")) {
        let (name, rest) = line.split_once(": ").expect("a constant has a type");
        // What a key may be has its row in the table of keys.
        let is_bound = rest.starts_with("Bound<");
        if !is_bound && !WITHOUT_ROW.contains(&name) && !shown.contains(&name) {
            missing.push(name);
        }
    }
    assert!(missing.is_empty(), "neither in a table of docs/book/limits.md nor in WITHOUT_ROW: {missing:?}");
    let is_constant = |name: &str| pages.iter().any(|text| text.contains(&format!("const {name}:")));
    let unknown: Vec<&str> = WITHOUT_ROW.into_iter().filter(|name| !is_constant(name)).collect();
    assert!(unknown.is_empty(), "WITHOUT_ROW names what is no constant: {unknown:?}");
}

/// A row is read alone, and a number in it is a constant's.
#[test]
fn no_row_leans_on_the_row_above_or_has_a_number_typed_by_hand() {
    const LEANING: [&str; 8] = ["the same", "then", "such", "and for", "or after", "until its", "for their", "more "];
    for limit in parts().iter().flat_map(|(_, limits)| limits) {
        assert!(!LEANING.iter().any(|word| limit.what.starts_with(word)), "{}: {}", limit.constant, limit.what);
    }
    let source = include_str!("limits_page.rs");
    let (_, rows) = source.split_once("/// Of configurations.").expect("the first table");
    let (rows, _) = rows.split_once("const WITHOUT_ROW").expect("what stands behind the tables");
    for row in rows.split(";\n").filter(|row| !row.contains("ns since 1970")) {
        let words = row.split_once(" =>").map_or("", |(_, words)| words);
        assert!(!words.contains(|c: char| c.is_ascii_digit()), "a number that no constant gives: {row}");
    }
    // What the note on the smallest part says.
    assert_eq!(data::part_bytes(Some(4 * data::PART_BYTES_UNMEASURED)), data::PART_BYTES_UNMEASURED);
}

#[test]
fn values_are_shown_with_their_units() {
    assert_eq!(data::VOLUME_BYTES_MAX.shown("VOLUME_BYTES_MAX"), "16 384 TiB");
    assert_eq!((64_usize << 10).shown("API_REQUEST_BYTES_MAX"), "64 KiB");
    assert_eq!(512_u64.shown("SECTOR_BYTES"), "512 bytes");
    assert_eq!((1_u64 << 62).shown("NUMBER_MAX"), "2^62");
    assert_eq!(4096_usize.shown("GROUPS_MAX"), "4 096");
    let times = [200, 10_000, 100_000, 600_000, 86_400_000].map(|ms| Duration::from_millis(ms).shown(""));
    assert_eq!(times, ["200 ms", "10 s", "100 s", "10 min", "24 h"]);
}
