//! A snapshot of the data thread in the words of the control socket.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::identity::Role;
use engine::limits::GREETING_LATE_AFTER;
use engine::state::{Broken, Mode, State};
use engine::status::{self as figures, LinkStatus};
use engine::{GroupId, Wall};
use host::driver::{DriverSnapshot, GroupSnapshot};
use host::nbd::LATENCY_BOUNDS_US;
use settings::{Config, ConfiguredGroup, GroupOverrides, Keyed, LinkOverrides, LiveSettings, NodeName};
use units::exact::show_size;

use super::direction::Direction;
use super::{history_room, link_view, promises, queue_view, verify_view};
use crate::api::{self, COUNTERS_SCHEMA, STATUS_SCHEMA};

/// What the engine says of a half that has not met its peer.
const WAITING: &str = "waiting for the peer";
const UNSERVED: &str = "the peer is connected and does not say that it serves the group: it has not started it, is a secondary too, or its \
     half was refused or has failed; see 'status' there";

/// In the place of a mode that is not known.
const UNKNOWN: &str = "unknown";

/// The status of all groups of this node, or of the one named.
pub(super) fn status(
    config: &Config,
    node: &NodeName,
    (overrides, link_overrides): (&GroupOverrides, &LinkOverrides),
    snapshot: &DriverSnapshot,
    only: Option<&str>,
) -> api::NodeView {
    let groups = pairs(config, snapshot).filter(|(group, _)| only.is_none_or(|only| group.name.as_str() == only));
    api::NodeView {
        peer_says: Vec::new(),
        schema: STATUS_SCHEMA.to_owned(),
        cluster: config.top.cluster.to_string(),
        node: node.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_s: snapshot.uptime.as_secs_f64(),
        warnings: config.warnings(),
        tls: None,
        shared: Some(shared(snapshot)),
        clients: Some(clients(&snapshot.nbd)),
        state_directory: None,
        lost_log_lines: crate::log::lost_lines(),
        links: link_view::links((config, node), link_overrides, snapshot),
        groups: groups.map(|(group, snapshot)| group_status(node, overrides, group, snapshot)).collect(),
    }
}

fn shared(snapshot: &DriverSnapshot) -> api::SharedView {
    let figures::SharedStatus { memory_bytes, memory_limit_bytes, starting, syncing } = snapshot.shared;
    api::SharedView {
        memory_bytes,
        memory_limit_bytes,
        starting: starting.0 as u64,
        starting_waiting: starting.1 as u64,
        syncing: syncing.0 as u64,
        syncing_waiting: syncing.1 as u64,
    }
}

fn clients(nbd: &host::nbd::NbdCounters) -> api::ClientsStatus {
    api::ClientsStatus {
        connected: nbd.connections_open,
        refused: nbd.connections_refused,
        stalled: nbd.stalled,
        violations: nbd.violations,
    }
}

/// The data thread's groups with what the configuration calls them.
fn pairs<'a>(
    config: &'a Config,
    snapshot: &'a DriverSnapshot,
) -> impl Iterator<Item = (&'a ConfiguredGroup, &'a GroupSnapshot)> {
    let by_id: BTreeMap<GroupId, _> = snapshot.groups.iter().map(|group| (group.status.id, group)).collect();
    config.groups.iter().filter_map(move |group| Some((group, *by_id.get(&config.group_id(group))?)))
}

fn group_status(
    node: &NodeName,
    overrides: &GroupOverrides,
    group: &ConfiguredGroup,
    snapshot: &GroupSnapshot,
) -> api::GroupView {
    let now = &snapshot.status;
    let question = question(node, group, now);
    let overrides = overrides.of(&group.name);
    let effective = overrides.effective(&group.settings);
    let peer_name = group.peer_of(node).map(NodeName::as_str).unwrap_or_default();
    let (flow, from, to) = Direction::of(now).shown(node.as_str(), peer_name);
    api::GroupView {
        name: group.name.to_string(),
        role: now.role.word().into(),
        from,
        to,
        flow,
        starting: now.starting,
        promoting: false,
        demoting: false,
        handed_over: Some(now.role == Role::Secondary && now.identity.handed_over),
        handover: now.handover.map(|handover| shown_handover(node, group, handover)),
        reverse: reverse(node, peer_name, snapshot),
        generation: now.identity.generation.to_string(),
        last_sequence: (now.role == Role::Primary && !now.starting).then_some(now.identity.position.seq.0),
        term: String::new(),
        mode: now.mode.map_or(UNKNOWN, Mode::word).to_owned(),
        effective_mode: now.acts_as.map_or(UNKNOWN, Mode::word).to_owned(),
        mode_ladder: now.ladder.as_ref().map(mode_ladder),
        state: now.state.word().into(),
        protection: now.protection.word().into(),
        reason: question.clone().filter(|_| waits_for_word(now)).or_else(|| why(group, snapshot)),
        volumes: volumes(node, group, snapshot),
        queue: queue_view::of(snapshot),
        memory_bytes: now.memory_bytes,
        journal: journal(group, now),
        peers: vec![peer(node, group, snapshot)],
        promotable: promotable(now),
        peer_window_s: now.peer_window.map(|left| left.as_secs_f64()),
        held_writers: now.held_answers.map_or(0, |(writers, _)| writers as u64),
        held_writers_s: now.held_answers.map(|(_, left)| left.as_secs_f64()),
        marks: now.rollback_point.iter().map(mark).collect(),
        sync: now.sync.map(|sync| api::SyncView {
            full: snapshot.figures.sync.is_some_and(|pace| pace.full),
            done_bytes: sync.done_bytes,
            total_bytes: sync.total_bytes,
            rate_bytes_per_s: snapshot.figures.sync.map_or(0.0, |pace| pace.bytes_per_s),
            snapshot: sync.snapshot,
            dirtied_bytes_per_s: sync.dirtied_bytes_per_s,
            missing_bytes_per_s: sync.missing_bytes_per_s,
        }),
        sync_ordered: now.sync_ordered,
        syncs_by_itself: now.syncs_by_itself,
        sync_position: now.sync_position.map(|position| position as u64),
        assumed_equal: now.doubts.assumed_equal,
        differs: now.doubts.differs,
        verify: now.verify.as_ref().map(|run| verify_view::running(group, run)),
        verified: now.verified.as_ref().map(|ended| verify_view::ended(group, ended)),
        scrub: None,
        settings: link_view::settings(overrides, &effective),
        rpo: Some(rpo(group)),
        warnings: warnings(node, group, (snapshot, &effective), question.filter(|_| !waits_for_word(now))),
    }
}

fn mode_ladder(ladder: &figures::LadderStatus) -> api::ModeLadderView {
    api::ModeLadderView {
        lowered_s: ladder.lasts.as_secs_f64(),
        reason: ladder.why.clone(),
        returns_in_s: ladder.returns_in.map(|left| left.as_secs_f64()),
    }
}

/// Clients of one node that the other one serves.
fn reverse(node: &NodeName, peer: &str, snapshot: &GroupSnapshot) -> Option<api::ReverseView> {
    let (here, peer) = (node.to_string(), peer.to_owned());
    if let Some(forward) = &snapshot.forward {
        let (connected, waiting) = (forward.is_connected, forward.waiting as u64);
        return Some(api::ReverseView { home: here, server: peer, connected, waiting, why: forward.why.clone() });
    }
    let serves = snapshot.is_lent && snapshot.status.role == Role::Primary;
    serves.then_some(api::ReverseView { home: peer, server: here, connected: true, waiting: 0, why: None })
}

fn shown_handover(node: &NodeName, group: &ConfiguredGroup, now: figures::HandoverStatus) -> api::HandoverView {
    api::HandoverView {
        to: group.peer_of(node).map(NodeName::to_string).unwrap_or_default(),
        stage: now.stage.word().to_owned(),
        held_requests: now.held_requests,
        ends_in_s: now.ends_in.as_secs_f64(),
    }
}

fn rpo(group: &ConfiguredGroup) -> api::RpoView {
    api::RpoView {
        warn_seconds: group.rpo.warn.map(|lag| lag.as_secs_f64()),
        error_seconds: group.rpo.error.map(|lag| lag.as_secs_f64()),
        hold_off_seconds: Some(group.rpo.hold_off.as_secs_f64()),
        ..api::RpoView::default()
    }
}

fn mark(point: &figures::RollbackPointStatus) -> api::MarkStatus {
    api::MarkStatus {
        name: point.name.clone(),
        sequence: point.position.seq.0,
        time: time(point.wall),
        used_bytes: point.used_bytes,
        reserved_bytes: point.reserved_bytes,
        limit_bytes: point.limit_bytes,
        error: point.damaged.clone(),
        delta: point.is_of_fork && point.damaged.is_none(),
    }
}

/// `None`: none is known, as of an old primary that gave no write a time in its last run.
pub(super) fn time(wall: Wall) -> Option<String> {
    (wall != Wall::default()).then(|| units::exact::time_text(wall.0))
}

/// A secondary whose peer is connected and has not spoken as its primary since. A primary says by itself what it waits for.
fn is_unserved(now: &figures::GroupStatus, link_for: Duration) -> bool {
    let is_heard = now.peer.reported.is_some_and(|reported| reported.since < link_for);
    let waits = now.role == Role::Secondary && now.reason == WAITING && !is_heard;
    waits && now.peer.link == LinkStatus::Connected && link_for >= GREETING_LATE_AFTER
}

/// Its start goes on. One that failed, or stands still for want of space, has a reason of its own.
pub(super) fn is_starting(now: &figures::GroupStatus) -> bool {
    now.starting && !matches!(now.state, State::Paused(_) | State::Failed(_))
}

/// Why the group is not what it is wanted to be.
fn why(group: &ConfiguredGroup, snapshot: &GroupSnapshot) -> Option<String> {
    let other = || reason(&snapshot.status, snapshot.link_for).map(|reason| with_names(group, &reason));
    failed_words(group, snapshot).or_else(other)
}

/// Why a group has failed, and the volumes whose devices have refused something, if that is why; `None`: it has not failed.
pub(super) fn failed_words(group: &ConfiguredGroup, snapshot: &GroupSnapshot) -> Option<String> {
    let now = &snapshot.status;
    let State::Failed(broken) = now.state else { return None };
    let why = if now.reason.is_empty() { broken.words() } else { now.reason.as_str() };
    let why = with_names(group, why);
    let at = failed_volumes(group, snapshot);
    Some(if at.is_empty() { why } else { format!("volume {}: {why}", at.join(" and ")) })
}

/// The volumes at whose devices a group has failed.
pub(super) fn failed_volumes<'a>(group: &'a ConfiguredGroup, snapshot: &GroupSnapshot) -> Vec<&'a str> {
    let State::Failed(Broken::VolumeFlush | Broken::VolumeApply | Broken::VolumeRead) = snapshot.status.state else {
        return Vec::new();
    };
    let failed = group.volumes.iter().zip(&snapshot.figures.volumes).filter(|(_, facts)| facts.has_failed);
    failed.map(|(volume, _)| volume.name.as_str()).collect()
}

/// Absent where the group is what it is wanted to be.
fn reason(now: &figures::GroupStatus, link_for: Duration) -> Option<String> {
    let wanted = match now.state {
        State::Replicating => true,
        State::Logging => now.mode == Some(Mode::Logging),
        _ => false,
    };
    if is_starting(now) {
        return Some("it is starting".to_owned());
    }
    match now.state {
        State::Failed(broken) if now.reason.is_empty() => Some(broken.words().to_owned()),
        _ if !wanted && is_unserved(now, link_for) => Some(UNSERVED.to_owned()),
        _ if !wanted && !now.reason.is_empty() => Some(match now.sync_position {
            Some(position) => format!("{}; number {position} in line", now.reason),
            None => now.reason.clone(),
        }),
        _ => None,
    }
}

/// The engine knows neither the group's name nor those of its volumes.
pub(super) fn with_names(group: &ConfiguredGroup, text: &str) -> String {
    host::engine_text::with_names(text, group.name.as_str(), group.volumes.iter().map(|volume| volume.name.as_str()))
}

/// Volumes of which a sync of the group makes no part of the copy.
pub(super) fn left_out(named: &ConfiguredGroup, now: &figures::GroupStatus) -> String {
    let volumes = named.volumes.iter().zip(&now.volumes).filter(|(_, now)| now.is_aside || now.is_detached_at_peer);
    volumes.map(|(named, _)| named.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn journal(group: &ConfiguredGroup, now: &figures::GroupStatus) -> Option<api::JournalStatus> {
    let journal = api::JournalStatus { bytes: now.unapplied_bytes, limit_bytes: group.layout.journal_bytes };
    (now.role == Role::Secondary).then_some(journal)
}

/// What a promotion would give, if it were not refused.
fn promotable(now: &figures::GroupStatus) -> Option<api::RecoveryPoint> {
    let (position, wall) = now.promotable.filter(|_| !now.volumes.iter().any(|volume| volume.is_unfilled))?;
    Some(api::RecoveryPoint { sequence: position.seq.0, time: time(wall) })
}

fn volumes(node: &NodeName, group: &ConfiguredGroup, snapshot: &GroupSnapshot) -> Vec<api::VolumeView> {
    let figures = snapshot.status.volumes.iter().zip(&snapshot.figures.volumes);
    let one = |(volume, (figures, facts)): (
        &settings::ConfiguredVolume,
        (&figures::VolumeStatus, &host::driver::VolumeSnapshot),
    )| {
        api::VolumeView {
            name: volume.name.to_string(),
            size_bytes: figures.size_bytes,
            device_bytes: figures.device_bytes,
            device: volume.device(node).display().to_string(),
            dirty_bytes: figures.dirty_bytes,
            set_aside: figures.is_aside,
            detached: figures.is_detached,
            unfilled: figures.is_unfilled,
            queue: queue_view::of_volume(&figures.queue),
            term: String::new(),
            direct: facts.direct,
            clients: facts.clients,
            error: facts.error.clone(),
            device_failed: Some(facts.has_failed || facts.is_silent),
        }
    };
    group.volumes.iter().zip(figures).map(one).collect()
}

fn peer(node: &NodeName, group: &ConfiguredGroup, snapshot: &GroupSnapshot) -> api::PeerStatusView {
    let now = &snapshot.status.peer;
    api::PeerStatusView {
        node: group.peer_of(node).map(ToString::to_string).unwrap_or_default(),
        link: now.link.word().into(),
        link_since_s: snapshot.link_for.as_secs_f64(),
        link_reason: link_view::link_reason(snapshot),
        lag_bytes: now.lag_bytes,
        lag_items: now.lag_items,
        lag_seconds: now.lag.map(|lag| lag.as_secs_f64()),
        heard_s: now.reported.map(|reported| reported.since.as_secs_f64()),
        heard_lag_bytes: now.reported.map(|reported| reported.lag_bytes),
        heard_lag_seconds: now.reported.and_then(|reported| reported.lag).map(|lag| lag.as_secs_f64()),
        settings: now.settings.as_ref().map(|settings| {
            let settings = LiveSettings::of_peer(settings);
            settings.acting().map(|key| (key.to_string(), settings.text(key))).collect()
        }),
        dirty_bytes: now.dirty_bytes,
        recovery_point: now.recovery_point.map(|(seq, wall)| api::RecoveryPoint { sequence: seq.0, time: time(wall) }),
    }
}

/// What the operator of a primary is asked whose volume was written while farshore was stopped.
fn question(node: &NodeName, group: &ConfiguredGroup, now: &figures::GroupStatus) -> Option<String> {
    let (name, peer) = (&group.name, group.peer_of(node)?);
    now.changed_outside.then(|| {
        format!(
            "a volume was changed while farshore was stopped, so nothing is sent until you say whose content counts: 'farshore sync {name}' \
             here compares and overwrites what differs on {peer}; to keep the copy of {peer}, 'farshore demote {name}' here, then \
             'farshore promote {name} --force' and 'farshore sync {name} --full' there"
        )
    })
}

/// Nothing but the operator's word is missing.
fn waits_for_word(now: &figures::GroupStatus) -> bool {
    now.state == State::Logging && now.reason.starts_with(engine::CHANGED_OUTSIDE)
}

fn warnings(
    node: &NodeName,
    group: &ConfiguredGroup,
    (snapshot, settings): (&GroupSnapshot, &LiveSettings),
    question: Option<String>,
) -> Vec<String> {
    let named = group.volumes.iter().zip(&snapshot.figures.volumes);
    let failed = named.filter_map(|(volume, facts)| Some((volume, facts.error.as_ref()?)));
    let mut warnings: Vec<_> = failed.map(|(volume, error)| format!("volume {}: {error}", volume.name)).collect();
    warnings.extend(question);
    let now = &snapshot.status;
    warnings.extend(detached_warnings(node, group, now));
    warnings.extend(aside_warning(group, now));
    warnings.extend(verify_view::warnings(group, now));
    warnings.extend(queue_view::warnings(group, snapshot));
    warnings.extend(history_room::of_group(node, group, now, snapshot.figures.sync.is_some_and(|pace| pace.full)));
    warnings.extend(now.saved_delta.and_then(lost_of_delta));
    let peer = group.peer_of(node).map(ToString::to_string).unwrap_or_default();
    warnings.extend(promises::of_group(&group.name, (node.as_str(), &peer), now, settings));
    warnings
}

/// What the last delta of this run lacks.
fn lost_of_delta(saved: figures::SavedDelta) -> Option<String> {
    let figures::SavedDelta { ranges, lost_ranges, lost_bytes, .. } = saved;
    (lost_ranges > 0).then(|| {
        format!(
            "the delta that was saved here lacks {lost_ranges} of its {ranges} ranges, {}: the undo store was damaged there, and the disk of the \
             state directory wants a look; 'farshore inspect' on the group's file 'delta' names them",
            show_size(lost_bytes)
        )
    })
}

/// Volumes without a disk, on this node or on its peer, or with one that nobody has filled.
fn detached_warnings(node: &NodeName, group: &ConfiguredGroup, now: &figures::GroupStatus) -> Vec<String> {
    let (name, peer) = (&group.name, group.peer_of(node).map(ToString::to_string).unwrap_or_default());
    let one = |(volume, figures): (&settings::ConfiguredVolume, &figures::VolumeStatus)| {
        let volume = &volume.name;
        if figures.is_unfilled {
            return Some(format!(
                "volume {volume} has a disk here that no sync has filled: this node cannot be promoted with it, --force or not; 'farshore sync \
                 {name} --volume {volume}' on {peer} fills it, 'farshore group detach {name} {volume}' does without it"
            ));
        }
        Some(match (figures.is_detached, figures.is_detached_at_peer, now.role) {
            (true, _, Role::Primary) => format!(
                "volume {volume} is detached here: its export is closed, and what counts of it stands on {peer}; the other volumes go on"
            ),
            (true, _, Role::Secondary) => format!(
                "volume {volume} is detached here: no copy of it is kept, and a promotion here lacks it; when it has a disk again, 'farshore \
                 group attach {name} {volume}'"
            ),
            (false, true, _) => format!(
                "volume {volume} is detached on {peer}, which keeps nothing of it; when it has a disk again, 'farshore group attach {name} \
                 {volume}' there, then 'farshore sync {name} --volume {volume}'"
            ),
            (false, false, _) => return None,
        })
    };
    group.volumes.iter().zip(&now.volumes).filter_map(one).collect()
}

/// Volumes that are no part of the group's order.
fn aside_warning(group: &ConfiguredGroup, now: &figures::GroupStatus) -> Option<String> {
    let is_told =
        |figures: &figures::VolumeStatus| !figures.is_detached && !figures.is_detached_at_peer && !figures.is_unfilled;
    let aside = group.volumes.iter().zip(&now.volumes);
    let aside = aside.filter(|(_, figures)| figures.is_aside && is_told(figures));
    let names: Vec<&str> = aside.map(|(volume, _)| volume.name.as_str()).collect();
    let (first, name) = (*names.first()?, &group.name);
    let volumes = if names.len() == 1 { "volume" } else { "volumes" };
    let text = format!(
        "the group's order is without {volumes} {} until {} by 'farshore sync {name} --volume {first}'",
        names.join(", "),
        if names.len() == 1 { "it rejoins" } else { "each rejoins, as" }
    );
    Some(match now.role {
        Role::Primary => text,
        Role::Secondary => format!("{text} on the primary; a promotion here needs --force, and lacks it"),
    })
}

/// What the link was spared, and what travelled together.
fn spared(now: &figures::GroupStatus) -> [(&'static str, u64); 4] {
    [
        ("joined_writes", now.joined_writes),
        ("joined_frames", now.joined_frames),
        ("folded_writes", now.folded_writes),
        ("folded_bytes", now.folded_bytes),
    ]
}

/// Sums since the start, by dotted name.
pub(super) fn counters(config: &Config, node: &NodeName, snapshot: &DriverSnapshot) -> api::DaemonCounters {
    let mut counters = BTreeMap::new();
    let exports = &snapshot.exports;
    for (group, snapshot) in pairs(config, snapshot) {
        let (now, stored) = (&snapshot.status, snapshot.figures.stored);
        let sums = [
            ("writes", now.writes),
            ("written_bytes", now.written_bytes),
            ("streamed_bytes", now.streamed_bytes),
            ("resynced_bytes", now.resynced_bytes),
            ("compared_bytes", now.compared_bytes),
            ("shipped_bytes", now.shipped_bytes),
            ("pulled_bytes", now.pulled_bytes),
            ("blocked_ms", queue_view::milliseconds(now.queue.waits.sum())),
            ("bitmap_bytes", stored.bitmap),
            ("journal_bytes", stored.journal),
            ("undo_bytes", stored.undo),
            ("queue_disk_bytes", stored.queue),
            ("spilled_bytes", now.queue.spilled_bytes),
        ];
        let sums = sums.into_iter().chain(spared(now));
        counters.extend(sums.map(|(name, sum)| (format!("group.{}.{name}", group.name), sum)));
        for (volume, figures) in group.volumes.iter().zip(&now.volumes) {
            let export = format!("{}/{}", group.name, volume.name);
            let sums = export_sums(&exports.get(&export).copied().unwrap_or_default());
            let sums = sums.into_iter().chain(traffic_sums(&figures.traffic));
            counters.extend(sums.map(|(name, sum)| (format!("volume.{export}.{name}"), sum)));
        }
    }
    let nbd = &snapshot.nbd;
    let sums = [
        ("connections_accepted", nbd.connections_accepted),
        ("connections_refused", nbd.connections_refused),
        ("connections_open", nbd.connections_open),
        ("sessions_started", nbd.sessions_started),
        ("sessions_ended_cleanly", nbd.sessions_ended_cleanly),
        ("handshakes_without_session", nbd.handshakes_without_session),
        ("violations", nbd.violations),
        ("stalled", nbd.stalled),
    ];
    counters.extend(sums.map(|(name, sum)| (format!("nbd.{name}"), sum)));
    for (command, sums) in nbd.commands() {
        let name = command.name();
        let sums = [
            ("received", sums.received),
            ("done", sums.done),
            ("failed", sums.failed),
            ("bytes", sums.bytes),
            ("with_fua", sums.with_fua),
            ("with_no_hole", sums.with_no_hole),
            ("with_fast_zero", sums.with_fast_zero),
            ("with_df", sums.with_df),
            ("with_one_extent", sums.with_one_extent),
        ];
        counters.extend(sums.map(|(what, sum)| (format!("nbd.{name}.{what}"), sum)));
    }
    counters.insert("memory.front_bytes".to_owned(), snapshot.front_bytes.0 as u64);
    counters.insert("memory.front_limit_bytes".to_owned(), snapshot.front_bytes.1 as u64);
    let latencies = nbd.commands().filter(|(_, sums)| sums.done > 0).map(|(command, sums)| {
        let classes = api::LatencyClasses {
            bounds_us: LATENCY_BOUNDS_US.to_vec(),
            counts: sums.latency.classes.to_vec(),
            sum_us: sums.latency.sum_us,
        };
        (command.name().to_owned(), classes)
    });
    let latencies = latencies.collect();
    api::DaemonCounters { schema: COUNTERS_SCHEMA.to_owned(), node: node.to_string(), counters, latencies }
}

/// What a volume put on the link, and on this node's bitmap.
fn traffic_sums(traffic: &figures::VolumeTraffic) -> [(&'static str, u64); 3] {
    [
        ("streamed_bytes", traffic.streamed_bytes),
        ("shipped_bytes", traffic.shipped_bytes),
        ("bitmap_bytes", traffic.bitmap_bytes),
    ]
}

/// What clients asked of an export.
fn export_sums(export: &host::nbd::ExportCounters) -> [(&'static str, u64); 8] {
    let host::nbd::ExportCounters { reads, writes, flushes } = export;
    [
        ("reads", reads.done),
        ("read_bytes", reads.bytes),
        ("read_us", reads.took_us),
        ("writes", writes.done),
        ("write_bytes", writes.bytes),
        ("write_us", writes.took_us),
        ("flushes", flushes.done),
        ("flush_us", flushes.took_us),
    ]
}

#[cfg(test)]
mod tests {
    use engine::{Position, Seq};

    use super::*;

    #[test]
    fn a_mark_of_an_old_primary_has_no_time() {
        let point = |wall| figures::RollbackPointStatus {
            name: "before-sync-12".to_owned(),
            position: Position { seq: Seq(17), ..Position::default() },
            wall,
            used_bytes: 1,
            reserved_bytes: 2,
            limit_bytes: 3,
            damaged: None,
            is_of_fork: false,
            keeps_own: false,
        };
        let known = mark(&point(Wall(1_795_348_800_123_456_789)));
        assert_eq!(known.time.as_deref(), Some("2026-11-22T12:00:00.123Z"));
        let unknown = mark(&point(Wall(0)));
        assert_eq!((unknown.sequence, unknown.time.as_deref()), (17, None));
        let said = crate::show::marks(&[unknown], &[]);
        assert!(said.starts_with("before-sync-12: the image at an unknown time, sequence 17; "), "{said}");
    }
}
