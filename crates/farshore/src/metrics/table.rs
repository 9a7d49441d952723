//! The one table of metrics: name, unit, meaning, and where in the status each value stands.
//!
//! A metric of a group, link or volume is a row with a reader of one value; labels follow from what it is of. A state is one sample
//! for each word there is, 1 for the one that holds: the library has no type of its own for state sets, so they are gauges.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::PageFacts;
use crate::api::{
    GroupState, GroupView, LatencyClasses, LinkLimit, LinkReport, LinkState, MarkStatus, PeerStatusView, Protection,
    QueueLogState, Role, RpoState, VolumeView,
};

pub(super) struct MetricRow {
    /// The name behind `farshore_`, without unit and suffix.
    pub stem: &'static str,
    pub unit: Option<MetricUnit>,
    pub help: &'static str,
    reader: MetricReader,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricUnit {
    Bytes,
    Seconds,
    BytesPerSecond,
}

#[derive(Clone, Copy)]
pub(super) enum MetricValue<'a> {
    Whole(u64),
    Real(f64),
    Latency(&'a LatencyClasses),
}

pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];
type Put<'p> = &'p mut dyn FnMut(Labels, MetricValue);
type Read<T> = fn(&T) -> Option<MetricValue<'static>>;
/// What lies in the past, as how long ago that was.
type Age<T> = fn(&T) -> Option<f64>;
type Word<T> = fn(&T) -> Option<&str>;
type Words = &'static [&'static str];

/// What a row's values are of, and how they are read.
enum MetricReader {
    Node(MetricType, Read<PageFacts>),
    NodeInfo,
    /// When which certificate ends.
    CertificateEnds,
    /// Sums `nbd.COMMAND.NAME`.
    Command(&'static str),
    CommandLatency,
    Link(MetricType, Read<LinkReport>),
    LinkMoment(Age<LinkReport>),
    LinkWord(&'static str, Words, Word<LinkReport>),
    LinkInfo,
    Group(MetricType, Read<GroupView>),
    GroupWord(&'static str, Words, Word<GroupView>),
    /// The sum `group.GROUP.NAME`.
    GroupSum(&'static str),
    /// The sum `volume.GROUP/VOLUME.NAME`, and that of a time in microseconds.
    VolumeSum(&'static str),
    VolumeTime(&'static str),
    GroupThresholds,
    /// How long writers waited for room.
    GroupWaits,
    Peer(Read<PeerStatusView>),
    PeerMoment(Age<PeerStatusView>),
    Volume(Read<VolumeView>),
    Mark(Read<MarkStatus>),
}

/// Modes as groups have them, and the word for one that was not heard of.
const MODES: Words = &["sync", "nearsync", "async", "logging", "superasync", "unknown"];

use MetricReader as Of;
use MetricType::{Counter, Gauge};
use MetricUnit::{Bytes, BytesPerSecond, Seconds};

fn whole(value: u64) -> Option<MetricValue<'static>> {
    Some(MetricValue::Whole(value))
}

fn real(value: f64) -> Option<MetricValue<'static>> {
    Some(MetricValue::Real(value))
}

fn flag(value: bool) -> Option<MetricValue<'static>> {
    whole(value.into())
}

/// Of milliseconds.
fn seconds(ms: u64) -> Option<MetricValue<'static>> {
    real(ms as f64 / 1e3)
}

/// A time as the status has it.
fn moment(text: &str) -> Option<MetricValue<'static>> {
    let time: jiff::Timestamp = text.parse().ok()?;
    real(time.as_millisecond() as f64 / 1e3)
}

const fn row(stem: &'static str, unit: Option<MetricUnit>, help: &'static str, reader: MetricReader) -> MetricRow {
    MetricRow { stem, unit, help, reader }
}

/// In the order of the page.
#[rustfmt::skip]
pub(super) const ROWS: &[MetricRow] = &[
    row("up", None, "1 if the data thread answered within 2 s; 0 if it did not: then groups and links are left out.",
        Of::Node(Gauge, |facts| flag(facts.is_up))),
    row("node", None, "Always 1; the labels name cluster, node and version.", Of::NodeInfo),
    row("start_timestamp", Some(Seconds), "When this daemon started.",
        Of::Node(Gauge, |facts| facts.is_up.then(|| (facts.unix_seconds - facts.status.uptime_s).round()).and_then(real))),
    row("node_warnings", None, "Warnings of `status` about the node as a whole.",
        Of::Node(Gauge, |facts| facts.knows_node().then_some(facts.status.warnings.len() as u64).and_then(whole))),
    row("log_lines_lost", None, "Lines of the log that were not written.",
        Of::Node(Counter, |facts| facts.knows_node().then_some(facts.status.lost_log_lines).and_then(whole))),
    row("state_encrypted", None, "1 if the state directory is encrypted at rest, 0 if it is not; absent if that cannot be told.",
        Of::Node(Gauge, |facts| {
            facts.status.state_directory.as_ref().and_then(|state| state.encrypted).map(u64::from).and_then(whole)
        })),
    row("certificate_end_timestamp", Some(Seconds), "When a certificate ends: `of` is `node` or `authority`.",
        Of::CertificateEnds),
    row("memory", Some(Bytes), "Held by all groups, or promised to their peers.",
        Of::Node(Gauge, |facts| facts.status.shared.and_then(|shared| whole(shared.memory_bytes)))),
    row("memory_limit", Some(Bytes), "What all groups together may hold (`memory.limit`).",
        Of::Node(Gauge, |facts| facts.status.shared.and_then(|shared| whole(shared.memory_limit_bytes)))),
    row("groups_starting", None, "Groups that start now.",
        Of::Node(Gauge, |facts| facts.status.shared.and_then(|shared| whole(shared.starting)))),
    row("groups_starting_waiting", None, "Groups that wait for their turn to start.",
        Of::Node(Gauge, |facts| facts.status.shared.and_then(|shared| whole(shared.starting_waiting)))),
    row("groups_syncing", None, "Groups that sync now from this node.",
        Of::Node(Gauge, |facts| facts.status.shared.and_then(|shared| whole(shared.syncing)))),
    row("groups_syncing_waiting", None, "Groups that wait for their turn to sync from this node.",
        Of::Node(Gauge, |facts| facts.status.shared.and_then(|shared| whole(shared.syncing_waiting)))),
    row("clients_connected", None, "NBD connections that are open.",
        Of::Node(Gauge, |facts| facts.status.clients.and_then(|clients| whole(clients.connected)))),
    row("clients_refused", None, "NBD connections turned away because no slot was free.",
        Of::Node(Counter, |facts| facts.status.clients.and_then(|clients| whole(clients.refused)))),
    row("clients_stalled", None, "NBD clients cut off because they owed bytes, or took no answers, for 120 s.",
        Of::Node(Counter, |facts| facts.status.clients.and_then(|clients| whole(clients.stalled)))),
    row("clients_violations", None, "NBD clients cut off because they did not speak NBD.",
        Of::Node(Counter, |facts| facts.status.clients.and_then(|clients| whole(clients.violations)))),
    row("nbd_requests_done", None, "Requests of NBD clients that were done.", Of::Command("done")),
    row("nbd_requests_failed", None, "Requests of NBD clients that were answered with an error.", Of::Command("failed")),
    row("nbd_requests_done", Some(Bytes), "Bytes of the ranges of requests that were done.", Of::Command("bytes")),
    row("nbd_request_duration", Some(Seconds),
        "Time of requests that were done, from the head of each to its answer; all exports together.", Of::CommandLatency),

    row("link", None, "Always 1 while connected; the labels say how the connection is set up.", Of::LinkInfo),
    row("link_state", None, "1 for the state the link is in.",
        Of::LinkWord("state", LinkState::WORDS, |link| Some(link.link.as_str()))),
    row("link_state_since_timestamp", Some(Seconds), "Since when the link is in this state.",
        Of::LinkMoment(|link| Some(link.link_since_s))),
    row("link_connections", None, "How often the link came up.",
        Of::Link(Counter, |link| whole(link.connections))),
    row("link_limit", None, "1 for what keeps the link from carrying more.",
        Of::LinkWord("limit", LinkLimit::WORDS, |link| link.limit.as_ref().map(LinkLimit::as_str))),
    row("link_rate_held", None, "1 while the setting `rate` holds sending back.",
        Of::Link(Gauge, |link| link.rate_held.and_then(flag))),
    row("link_warnings", None, "Warnings about the link.",
        Of::Link(Gauge, |link| whole(link.warnings.len() as u64))),
    row("link_round_trip", Some(Seconds), "Smoothed round trip.",
        Of::Link(Gauge, |link| link.tcp.and_then(|tcp| real(tcp.rtt_ms / 1e3)))),
    row("link_round_trip_min", Some(Seconds), "Shortest round trip of late.",
        Of::Link(Gauge, |link| link.tcp.and_then(|tcp| real(tcp.rtt_min_ms / 1e3)))),
    row("link_sent", Some(Bytes), "Bytes sent by TCP; counts anew with each connection.",
        Of::Link(Counter, |link| link.tcp.and_then(|tcp| whole(tcp.sent_bytes)))),
    row("link_received", Some(Bytes), "Bytes received by TCP; counts anew with each connection.",
        Of::Link(Counter, |link| link.tcp.and_then(|tcp| whole(tcp.received_bytes)))),
    row("link_retransmitted", Some(Bytes), "Bytes that TCP sent once more; counts anew with each connection.",
        Of::Link(Counter, |link| link.tcp.and_then(|tcp| whole(tcp.retransmitted_bytes)))),
    row("link_unsent", Some(Bytes), "In the kernel, not yet on the line.",
        Of::Link(Gauge, |link| link.tcp.and_then(|tcp| whole(tcp.unsent_bytes)))),
    row("link_congestion_window", Some(Bytes), "Congestion window.",
        Of::Link(Gauge, |link| link.tcp.and_then(|tcp| whole(tcp.cwnd_bytes)))),
    row("link_send_window", Some(Bytes), "What the peer lets this node send.",
        Of::Link(Gauge, |link| link.tcp.and_then(|tcp| whole(tcp.send_window_bytes)))),
    row("link_delivery", Some(BytesPerSecond), "The kernel's estimate of what the line delivers.",
        Of::Link(Gauge, |link| link.tcp.and_then(|tcp| whole(tcp.delivery_bytes_per_s)))),
    row("link_frames_sent", Some(Bytes), "Bytes of frames before compression; counts anew with each connection.",
        Of::Link(Counter, |link| link.compression.as_ref().and_then(|packed| whole(packed.sent_plain_bytes)))),
    row("link_frames_sent_packed", Some(Bytes), "The same after compression.",
        Of::Link(Counter, |link| link.compression.as_ref().and_then(|packed| whole(packed.sent_wire_bytes)))),
    row("link_frames_copied", Some(Bytes), "Bytes of frames that compression or encryption wrote anew on their way to the kernel.",
        Of::Link(Counter, |link| link.compression.as_ref().and_then(|packed| whole(packed.sent_copied_bytes)))),
    row("link_frames_received", Some(Bytes), "Bytes of received frames, unpacked; counts anew with each connection.",
        Of::Link(Counter, |link| link.compression.as_ref().and_then(|packed| whole(packed.received_plain_bytes)))),
    row("link_frames_received_packed", Some(Bytes), "The same as they came.",
        Of::Link(Counter, |link| link.compression.as_ref().and_then(|packed| whole(packed.received_wire_bytes)))),

    row("group_role", None, "1 for the role of this node.",
        Of::GroupWord("role", Role::WORDS, |group| Some(group.role.as_str()))),
    row("group_mode", None, "1 for the mode that is wanted; on a secondary, its primary's.",
        Of::GroupWord("mode", MODES, |group| Some(&group.mode))),
    row("group_effective_mode", None, "1 for the mode in which writers are answered: a lower one while the mode ladder is down.",
        Of::GroupWord("mode", MODES, |group| Some(&group.effective_mode))),
    row("group_state", None, "1 for the state of the group.",
        Of::GroupWord("state", GroupState::WORDS, |group| Some(group.state.as_str()))),
    row("group_protection", None, "1 for what an acknowledgement means now.",
        Of::GroupWord("protection", Protection::WORDS, |group| Some(group.protection.as_str()))),
    row("group_as_wanted", None, "1 if the mode's promise holds: `replicating` in the mode that is wanted, or `logging` in mode `logging`.",
        Of::Group(Gauge, |group| flag(is_as_wanted(group)))),
    row("group_warnings", None, "Warnings of `status` about the group.",
        Of::Group(Gauge, |group| whole(group.warnings.len() as u64))),
    row("group_memory", Some(Bytes), "Of the node's memory, what the group holds or has promised.",
        Of::Group(Gauge, |group| whole(group.memory_bytes))),
    row("group_rpo_threshold", Some(Seconds), "The lag that is worth a look (`warn`) or an alarm (`error`); left out if off.",
        Of::GroupThresholds),
    row("group_rpo_state", None, "1 for how the lag keeps to the thresholds; they are watched on the primary.",
        Of::GroupWord("state", RpoState::WORDS, |group| group.rpo.as_ref().map(|rpo| rpo.state.as_str()))),
    row("group_lag", Some(Bytes), "Not yet durable in the secondary's journal; during a sync, dirty.",
        Of::Peer(|peer| peer.lag_bytes.and_then(whole))),
    row("peer_lag_items", None, "Writes that are not durable at the secondary; left out while it is not known, and while regions are behind.",
        Of::Peer(|peer| peer.lag_items.and_then(whole))),
    row("group_lag", Some(Seconds), "Age of what the secondary can present.",
        Of::Peer(|peer| peer.lag_seconds.and_then(real))),
    row("group_dirty", Some(Bytes), "Regions that may differ from the peer's.",
        Of::Peer(|peer| whole(peer.dirty_bytes))),
    row("group_recovery_point_timestamp", Some(Seconds), "The newest point the secondary can present, by the primary's clock.",
        Of::Peer(|peer| peer.recovery_point.as_ref().and_then(|point| moment(point.time.as_deref()?)))),
    row("group_recovery_point_sequence", None, "The same as a position in the write order.",
        Of::Peer(|peer| peer.recovery_point.as_ref().and_then(|point| whole(point.sequence)))),
    row("group_heard_timestamp", Some(Seconds), "On a secondary: when the primary was last heard.",
        Of::PeerMoment(|peer| peer.heard_s)),
    row("group_promotable_timestamp", Some(Seconds), "On a secondary: the image a promotion would give, by the primary's clock.",
        Of::Group(Gauge, |group| group.promotable.as_ref().and_then(|point| moment(point.time.as_deref()?)))),
    row("group_peer_window", Some(Seconds), "On a secondary: for so long nothing that the primary acknowledged is missing here; left out where nothing proves it.",
        Of::Group(Gauge, |group| group.peer_window_s.and_then(real))),
    row("group_held_writers", None, "Writers whose answers wait for the end of the peer window that the other node counts on.",
        Of::Group(Gauge, |group| whole(group.held_writers))),
    row("group_written", None, "Writes of clients.", Of::GroupSum("writes")),
    row("group_written", Some(Bytes), "Bytes that clients wrote.", Of::GroupSum("written_bytes")),
    row("group_queue", Some(Bytes), "Waits in memory to be sent or confirmed.",
        Of::Group(Gauge, |group| whole(group.queue.bytes))),
    row("group_queue_limit", Some(Bytes), "Of memory: where writers begin to wait, if the disk queue has no room either.",
        Of::Group(Gauge, |group| whole(group.queue.limit_bytes))),
    row("group_queue_peak", Some(Bytes), "Of memory, the most since the daemon started.",
        Of::Group(Gauge, |group| whole(group.queue.bytes_hwm))),
    row("group_queue_waiting_peak", Some(Bytes), "In memory and on disk together, the most since the daemon started.",
        Of::Group(Gauge, |group| whole(group.queue.waiting_bytes_hwm))),
    row("group_lag_peak", Some(Seconds), "The oldest that the copy was since the daemon started; left out while that was never known.",
        Of::Group(Gauge, |group| group.queue.lag_hwm_s.and_then(real))),
    row("group_queue_items", None, "Writes that wait to be sent or confirmed.",
        Of::Group(Gauge, |group| whole(group.queue.items))),
    row("group_queue_oldest", Some(Seconds), "Age of the oldest write that is not durable at the secondary; left out while nothing is sent in order.",
        Of::Group(Gauge, |group| group.queue.oldest_unconfirmed_s.and_then(real))),
    row("group_queue_items_limit", None, "Where writers begin to wait.",
        Of::Group(Gauge, |group| whole(group.queue.limit_items))),
    row("group_queue_items_peak", None, "The most since the daemon started.",
        Of::Group(Gauge, |group| whole(group.queue.items_hwm))),
    row("group_queue_disk", Some(Bytes), "Waits in the disk queue, and no longer in memory.",
        Of::Group(Gauge, |group| whole(group.queue.disk_bytes))),
    row("group_queue_disk_limit", Some(Bytes), "Size of the disk queue; 0: there is none.",
        Of::Group(Gauge, |group| whole(group.queue.disk_limit_bytes))),
    row("group_queue_disk_peak", Some(Bytes), "The most since the daemon started.",
        Of::Group(Gauge, |group| whole(group.queue.disk_bytes_hwm))),
    row("group_queue_disk_failed", None, "1 while the disk queue cannot be written: nothing goes there before the next stream begins.",
        Of::Group(Gauge, |group| flag(group.queue.disk_failed))),
    row("group_queue_log_live", None, "1 while the log of the queue counts, 0 while it does not though it is to; left out where nobody wants one.",
        Of::Group(Gauge, |group| match group.queue.log {
            QueueLogState::Off => None,
            _ => flag(group.queue.log == QueueLogState::Live),
        })),
    row("group_queue_log", Some(Bytes), "Of the disk queue, taken by its log for the peer.",
        Of::Group(Gauge, |group| whole(group.queue.log_bytes))),
    row("group_queue_log_peak", Some(Bytes), "The most that the log took since the daemon started.",
        Of::Group(Gauge, |group| whole(group.queue.log_bytes_hwm))),
    row("group_queue_log_limit", Some(Bytes), "What the log may take: where writers begin to wait; 0: it takes nothing.",
        Of::Group(Gauge, |group| whole(group.queue.log_limit_bytes))),
    row("group_queue_spilled", Some(Bytes), "Payload that went to the disk queue.", Of::GroupSum("spilled_bytes")),
    row("group_queue_full_after", Some(Seconds), "Until the queue is full at the pace of the last seconds; left out while it does not fill.",
        Of::Group(Gauge, |group| group.queue.full_in_s.and_then(|left| real(left as f64)))),
    row("group_queue_blocked", Some(Seconds), "Time that writers waited for room, all of them added up.",
        Of::Group(Counter, |group| seconds(group.queue.blocked_ms))),
    row("group_queue_wait", Some(Seconds), "How long each writer that waited for room did.", Of::GroupWaits),
    row("group_queue_waiting_writers", None, "Writers that wait for room now.",
        Of::Group(Gauge, |group| whole(group.queue.waiting_writers))),
    row("group_queue_held_up", Some(Seconds), "For how long a full queue held writers up of late; left out while it does not.",
        Of::Group(Gauge, |group| group.queue.held_up_ms.and_then(seconds))),
    row("group_journal", Some(Bytes), "On a secondary: received and not yet on a volume; at most the window.",
        Of::Group(Gauge, |group| group.journal.as_ref().and_then(|journal| whole(journal.bytes)))),
    row("group_journal_limit", Some(Bytes), "On a secondary: size of the journal.",
        Of::Group(Gauge, |group| group.journal.as_ref().and_then(|journal| whole(journal.limit_bytes)))),
    row("group_sync_ordered", None, "1 while an ordered sync has not begun.",
        Of::Group(Gauge, |group| flag(group.sync_ordered))),
    row("group_sync_done", Some(Bytes), "Of the sync or snapshot that runs; left out while none does.",
        Of::Group(Gauge, |group| group.sync.as_ref().and_then(|sync| whole(sync.done_bytes)))),
    row("group_sync_all", Some(Bytes), "What it comes to in all.",
        Of::Group(Gauge, |group| group.sync.as_ref().and_then(|sync| whole(sync.total_bytes)))),
    row("group_sync_missing", Some(BytesPerSecond), "What the link would have to carry more to catch up, or for a snapshot within 30 s; 0: nothing.",
        Of::Group(Gauge, |group| group.sync.as_ref().and_then(|sync| sync.missing_bytes_per_s).and_then(whole))),
    row("group_reverse_sync", None, "1 while clients of one node are served by the other, whose content is sent to the first.",
        Of::Group(Gauge, |group| flag(group.reverse.is_some()))),
    row("group_reverse_waiting_requests", None, "Requests of clients that the node that serves them has not answered; left out elsewhere.",
        Of::Group(Gauge, |group| group.reverse.as_ref().and_then(|reverse| whole(reverse.waiting)))),
    row("group_assumed_equal", None, "1 while both copies are taken for equal by an operator's word, and were not compared.",
        Of::Group(Gauge, |group| flag(group.assumed_equal))),
    row("group_differs", None, "1 while a verify has found blocks that differ, and they are not known to be repaired.",
        Of::Group(Gauge, |group| flag(group.differs))),
    row("group_verify_done", Some(Bytes), "What the verify that runs has come past; left out while none does.",
        Of::Group(Gauge, |group| group.verify.as_ref().and_then(|verify| whole(verify.done_bytes)))),
    row("group_verify_all", Some(Bytes), "What it comes to in all.",
        Of::Group(Gauge, |group| group.verify.as_ref().and_then(|verify| whole(verify.total_bytes)))),
    row("group_verify_differing", Some(Bytes), "What it has found to differ.",
        Of::Group(Gauge, |group| group.verify.as_ref().and_then(|verify| whole(verify.differing_bytes)))),
    row("group_scrub_due_timestamp", Some(Seconds), "With `scrub.every`, on a primary: from when on the next verify begins by itself; left out while none is on record.",
        Of::Group(Gauge, |group| group.scrub.as_ref().and_then(|scrub| moment(scrub.due.as_deref()?)))),
    row("group_scrub_verified_timestamp", Some(Seconds), "With `scrub.every`, on a primary: when the last whole verify ended.",
        Of::Group(Gauge, |group| group.scrub.as_ref().and_then(|scrub| moment(scrub.verified.as_deref()?)))),
    row("group_streamed", Some(Bytes), "Data of writes that was handed to the link, each time it was.", Of::GroupSum("streamed_bytes")),
    row("group_joined_writes", None, "Writes that went to the link joined to neighbours, each time they did.", Of::GroupSum("joined_writes")),
    row("group_joined_frames", None, "The frames that they became.", Of::GroupSum("joined_frames")),
    row("group_folded_writes", None, "Writes that were left out, as later ones that went with them overwrote them, each time they were.", Of::GroupSum("folded_writes")),
    row("group_folded", Some(Bytes), "Their bytes.", Of::GroupSum("folded_bytes")),
    row("group_queue_step", Some(Seconds), "Writes went to the secondary in one step that were written within so long: there is no recovery point between them. Of the last minute; left out if there was none.",
        Of::Group(Gauge, |group| group.queue.step_ms.and_then(seconds))),
    row("group_queue_step_peak", Some(Seconds), "The longest since the daemon started.",
        Of::Group(Gauge, |group| seconds(group.queue.step_ms_hwm))),
    row("group_bitmap_written", Some(Bytes), "Written to bitmap and activity log.", Of::GroupSum("bitmap_bytes")),
    row("group_journal_written", Some(Bytes), "Written to the journal.", Of::GroupSum("journal_bytes")),
    row("group_undo_written", Some(Bytes), "Written to the undo store.", Of::GroupSum("undo_bytes")),
    row("group_queue_disk_written", Some(Bytes), "Written to the disk queue, in whole blocks.", Of::GroupSum("queue_disk_bytes")),
    row("group_resynced", Some(Bytes), "Regions read for syncs.", Of::GroupSum("resynced_bytes")),
    row("group_compared", Some(Bytes), "Of them, those whose hash was asked for.", Of::GroupSum("compared_bytes")),
    row("group_shipped", Some(Bytes), "Of them, those that travelled as data.", Of::GroupSum("shipped_bytes")),
    row("group_pulled", Some(Bytes), "Fetched back from the peer after a power loss.", Of::GroupSum("pulled_bytes")),
    row("group_history_oldest_timestamp", Some(Seconds), "The oldest mark: how far back the group can go.",
        Of::Group(Gauge, |group| group.marks.first().and_then(|mark| moment(mark.time.as_deref()?)))),
    row("group_history_used", Some(Bytes), "Of the undo store, in use or reserved for the sync that runs.",
        Of::Group(Gauge, history_used)),
    row("group_history_limit", Some(Bytes), "What the undo store may take (`history`).",
        Of::Group(Gauge, |group| group.marks.first().and_then(|mark| whole(mark.limit_bytes)))),
    row("mark_timestamp", Some(Seconds), "The moment of a mark, by the primary's clock.",
        Of::Mark(|mark| moment(mark.time.as_deref()?))),
    row("mark_damaged", None, "1 if nothing can go back to the mark.",
        Of::Mark(|mark| flag(mark.error.is_some()))),

    row("volume_size", Some(Bytes), "Size of the export.", Of::Volume(|volume| whole(volume.size_bytes))),
    row("volume_device", Some(Bytes), "Size of this node's device.", Of::Volume(|volume| whole(volume.device_bytes))),
    row("volume_dirty", Some(Bytes), "Regions that may differ from the peer's.", Of::Volume(|volume| whole(volume.dirty_bytes))),
    row("volume_set_aside", None, "1 if the group's order is without the volume.", Of::Volume(|volume| flag(volume.set_aside))),
    row("volume_detached", None, "1 if the volume has no disk on this node, and the group goes on without it.", Of::Volume(|volume| flag(volume.detached))),
    row("volume_unfilled", None, "1 if the volume has a disk on this node that no sync has filled: no promotion.", Of::Volume(|volume| flag(volume.unfilled))),
    row("volume_clients", None, "Clients attached now.", Of::Volume(|volume| whole(volume.clients))),
    row("volume_failed", None, "1 if something is wrong with the device, or it has answered nothing for 10 s.",
        Of::Volume(|volume| flag(volume.error.is_some()))),
    row("volume_queue", Some(Bytes), "Of the group's queue, in memory and on disk.", Of::Volume(|volume| whole(volume.queue.bytes))),
    row("volume_queue_items", None, "Writes of the group's queue.", Of::Volume(|volume| whole(volume.queue.items))),
    row("volume_queue_peak", Some(Bytes), "The most since the daemon started.", Of::Volume(|volume| whole(volume.queue.bytes_hwm))),
    row("volume_streamed", Some(Bytes), "Writes put on the link, each time they were sent.", Of::VolumeSum("streamed_bytes")),
    row("volume_shipped", Some(Bytes), "Put on the link by syncs.", Of::VolumeSum("shipped_bytes")),
    row("volume_bitmap_written", Some(Bytes), "Written to the bitmap.", Of::VolumeSum("bitmap_bytes")),
    row("volume_reads", None, "Reads of clients that were done.", Of::VolumeSum("reads")),
    row("volume_read", Some(Bytes), "Bytes that clients read.", Of::VolumeSum("read_bytes")),
    row("volume_read_time", Some(Seconds), "Time of these reads, all of them added up.", Of::VolumeTime("read_us")),
    row("volume_writes", None, "Writes of clients that were done, of zeroes and trims too.", Of::VolumeSum("writes")),
    row("volume_write", Some(Bytes), "Bytes of data that clients wrote.", Of::VolumeSum("write_bytes")),
    row("volume_write_time", Some(Seconds), "Time of these writes, all of them added up.", Of::VolumeTime("write_us")),
    row("volume_flushes", None, "Flushes of clients that were done.", Of::VolumeSum("flushes")),
    row("volume_flush_time", Some(Seconds), "Time of these flushes, all of them added up.", Of::VolumeTime("flush_us")),
];

fn is_as_wanted(group: &GroupView) -> bool {
    let replicates = group.state == GroupState::Replicating && group.acts_otherwise().is_none();
    replicates || (group.state == GroupState::Logging && group.mode == "logging")
}

fn history_used(group: &GroupView) -> Option<MetricValue<'static>> {
    let used = group.marks.iter().map(|mark| mark.used_bytes.saturating_add(mark.reserved_bytes));
    (!group.marks.is_empty()).then(|| used.fold(0, u64::saturating_add)).and_then(whole)
}

impl MetricUnit {
    pub fn as_str(self) -> &'static str {
        match self {
            MetricUnit::Bytes => "bytes",
            MetricUnit::Seconds => "seconds",
            MetricUnit::BytesPerSecond => "bytes_per_second",
        }
    }

    pub fn for_library(self) -> Unit {
        match self {
            MetricUnit::Bytes => Unit::Bytes,
            MetricUnit::Seconds => Unit::Seconds,
            MetricUnit::BytesPerSecond => Unit::Other(self.as_str().to_owned()),
        }
    }
}

impl MetricRow {
    pub fn kind(&self) -> MetricType {
        match self.reader {
            Of::Node(kind, _) | Of::Link(kind, _) | Of::Group(kind, _) => kind,
            Of::NodeInfo | Of::LinkInfo => MetricType::Info,
            Of::Command(_) | Of::GroupSum(_) | Of::VolumeSum(_) | Of::VolumeTime(_) => Counter,
            Of::CommandLatency | Of::GroupWaits => MetricType::Histogram,
            Of::CertificateEnds
            | Of::LinkMoment(_)
            | Of::LinkWord(..)
            | Of::GroupWord(..)
            | Of::GroupThresholds
            | Of::Peer(_)
            | Of::PeerMoment(_)
            | Of::Volume(_)
            | Of::Mark(_) => Gauge,
        }
    }

    /// As it stands before the braces; of a histogram what its three have in common.
    pub fn sample_name(&self) -> String {
        let unit = self.unit.map(|unit| format!("_{}", unit.as_str())).unwrap_or_default();
        let suffix = match self.kind() {
            Counter => "_total",
            MetricType::Info => "_info",
            _ => "",
        };
        format!("farshore_{}{unit}{suffix}", self.stem)
    }

    pub fn labels(&self) -> Vec<&'static str> {
        match self.reader {
            Of::Node(..) => vec![],
            Of::NodeInfo => vec!["cluster", "node", "version"],
            Of::CertificateEnds => vec!["of"],
            Of::Command(_) | Of::CommandLatency => vec!["command"],
            Of::Link(..) | Of::LinkMoment(_) => vec!["peer"],
            Of::LinkWord(label, ..) => vec!["peer", label],
            Of::LinkInfo => vec!["peer", "congestion", "compression"],
            Of::Group(..) | Of::GroupSum(_) | Of::GroupWaits => vec!["group"],
            Of::GroupWord(label, ..) => vec!["group", label],
            Of::GroupThresholds => vec!["group", "level"],
            Of::Peer(_) | Of::PeerMoment(_) => vec!["group", "peer"],
            Of::Volume(_) | Of::VolumeSum(_) | Of::VolumeTime(_) => vec!["group", "volume"],
            Of::Mark(_) => vec!["group", "mark"],
        }
    }

    /// Each value there is, with its labels.
    pub fn samples(&self, facts: &PageFacts, put: Put) {
        match &self.reader {
            Of::Node(_, read) => read(facts).into_iter().for_each(|value| put(&[], value)),
            Of::NodeInfo if !facts.knows_node() => {}
            Of::NodeInfo => {
                let view = &facts.status;
                let named = [("cluster", &*view.cluster), ("node", &*view.node), ("version", &*view.version)];
                put(&named, MetricValue::Whole(1));
            }
            Of::CertificateEnds => certificate_ends(facts, put),
            Of::Command(name) => command_sums(facts, name, put),
            Of::CommandLatency => command_latencies(facts, put),
            Of::Link(..) | Of::LinkMoment(_) | Of::LinkWord(..) | Of::LinkInfo => self.link_samples(facts, put),
            _ => facts.status.groups.iter().for_each(|group| self.group_samples(facts, group, put)),
        }
    }

    fn link_samples(&self, facts: &PageFacts, put: Put) {
        for link in &facts.status.links {
            let peer = ("peer", &*link.node);
            match &self.reader {
                Of::Link(_, read) => read(link).into_iter().for_each(|value| put(&[peer], value)),
                Of::LinkMoment(age) => put_moment(facts, age(link), &[peer], put),
                Of::LinkWord(label, words, read) => {
                    read(link).into_iter().for_each(|word| put_words(peer, (label, words, word), put));
                }
                Of::LinkInfo => {
                    let set_up = link.socket.as_ref().zip(link.compression.as_ref());
                    if let Some((socket, packed)) = set_up {
                        let labels = [peer, ("congestion", &*socket.congestion), ("compression", &*packed.method)];
                        put(&labels, MetricValue::Whole(1));
                    }
                }
                _ => unreachable!("rows of groups are read by group"),
            }
        }
    }

    fn group_samples(&self, facts: &PageFacts, group: &GroupView, put: Put) {
        let name = ("group", &*group.name);
        match &self.reader {
            Of::Group(_, read) => read(group).into_iter().for_each(|value| put(&[name], value)),
            Of::GroupWord(label, words, read) => {
                read(group).into_iter().for_each(|word| put_words(name, (label, words, word), put));
            }
            Of::GroupSum(sum) => {
                let found = facts.sum(&format!("group.{}.{sum}", group.name));
                found.into_iter().for_each(|sum| put(&[name], MetricValue::Whole(sum)));
            }
            Of::VolumeSum(sum) | Of::VolumeTime(sum) => group.volumes.iter().for_each(|volume| {
                let found = facts.sum(&format!("volume.{}/{}.{sum}", group.name, volume.name));
                let value = |sum| match self.reader {
                    Of::VolumeTime(_) => MetricValue::Real(sum as f64 / 1e6),
                    _ => MetricValue::Whole(sum),
                };
                found.into_iter().for_each(|sum| put(&[name, ("volume", &volume.name)], value(sum)));
            }),
            Of::GroupWaits => {
                let waits = &group.queue.waits;
                Some(waits)
                    .filter(|waits| !waits.counts.is_empty())
                    .into_iter()
                    .for_each(|waits| put(&[name], MetricValue::Latency(waits)));
            }
            Of::GroupThresholds => {
                let thresholds = group.rpo.clone().unwrap_or_default();
                for (level, lag) in [("warn", thresholds.warn_seconds), ("error", thresholds.error_seconds)] {
                    lag.into_iter().for_each(|lag| put(&[name, ("level", level)], MetricValue::Real(lag)));
                }
            }
            Of::Peer(read) => group.peers.iter().for_each(|peer| {
                read(peer).into_iter().for_each(|value| put(&[name, ("peer", &peer.node)], value));
            }),
            Of::PeerMoment(age) => group.peers.iter().for_each(|peer| {
                put_moment(facts, age(peer), &[name, ("peer", &peer.node)], put);
            }),
            Of::Volume(read) => group.volumes.iter().for_each(|volume| {
                read(volume).into_iter().for_each(|value| put(&[name, ("volume", &volume.name)], value));
            }),
            Of::Mark(read) => group.marks.iter().for_each(|mark| {
                read(mark).into_iter().for_each(|value| put(&[name, ("mark", &mark.name)], value));
            }),
            _ => unreachable!("rows of nodes and links are read as such"),
        }
    }
}

fn put_moment(facts: &PageFacts, ago: Option<f64>, labels: Labels, put: Put) {
    if let Some(ago) = ago {
        put(labels, MetricValue::Real(((facts.unix_seconds - ago) * 1e3).round() / 1e3));
    }
}

/// One sample for each word, and for one that this version does not know.
fn put_words<'a>(of: (&'static str, &'a str), (label, words, now): (&'static str, Words, &'a str), put: Put) {
    for word in words {
        put(&[of, (label, word)], MetricValue::Whole(u64::from(*word == now)));
    }
    if !words.contains(&now) {
        put(&[of, (label, now)], MetricValue::Whole(1));
    }
}

fn certificate_ends(facts: &PageFacts, put: Put) {
    let Some(tls) = &facts.status.tls else { return };
    for (of, until) in [("node", &tls.certificate_until), ("authority", &tls.authority_until)] {
        moment(until).into_iter().for_each(|end| put(&[("of", of)], end));
    }
}

fn command_sums(facts: &PageFacts, name: &str, put: Put) {
    let Some(counters) = &facts.counters else { return };
    for (key, sum) in &counters.counters {
        let command = key.strip_prefix("nbd.").and_then(|key| key.strip_suffix(name)?.strip_suffix('.'));
        command.into_iter().for_each(|command| put(&[("command", command)], MetricValue::Whole(*sum)));
    }
}

fn command_latencies(facts: &PageFacts, put: Put) {
    let Some(counters) = &facts.counters else { return };
    for (command, classes) in &counters.latencies {
        put(&[("command", command)], MetricValue::Latency(classes));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_is_there_once_and_says_what_it_is() {
        let mut seen = BTreeSet::new();
        for row in ROWS {
            let name = row.sample_name();
            assert!(seen.insert(name.clone()), "{name} is there twice");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            assert!(row.help.ends_with('.') && !row.help.contains('|'), "{name}: {}", row.help);
            assert!(!row.stem.ends_with("_total") && !row.stem.ends_with("_info"), "{name}");
        }
    }

    #[test]
    fn the_modes_are_the_data_paths() {
        let modes = engine::state::Mode::ALL.map(engine::state::Mode::word);
        assert_eq!(MODES[..modes.len()], modes);
    }
}
