//! What is shown and said of a group's queue.

use std::time::Duration;

use engine::limits::ITEM_OVERHEAD_BYTES;
use engine::state::WhenFull;
use engine::status as figures;
use host::driver::{GroupSnapshot, QueuePace};
use settings::ConfiguredGroup;
use settings::limits::{MEMORY, QUEUE_DISK, QUEUE_ITEMS, QUEUE_MEMORY};
use units::exact::{show_seconds, show_size, size_text};

use crate::api;

/// A log of the queue that is to count, and does not for so long, is told of.
const QUEUE_LOG_WARNING_AFTER: Duration = Duration::from_secs(60);
/// From here on a queue's fill is worth a warning, in percent.
const QUEUE_WARNING_PERCENT: u64 = 80;

/// A queue that is almost full is to become so large that it takes what comes in this time at the pace of now, which is that of the last seconds.
const ROOM_AHEAD: Duration = Duration::from_secs(60);

/// Beyond a day a rate of some seconds says nothing.
const FORECAST_MAX_S: f64 = 86_400.0;

/// The queue of a group in the words of the control socket.
pub(super) fn of(snapshot: &GroupSnapshot) -> api::QueueView {
    let (now, pace) = (&snapshot.status, snapshot.figures.queue);
    let disk_limit_bytes = snapshot.figures.disk_queue_bytes;
    let (log, peaks, late) = (now.queue.log, now.queue.peaks, now.queue.late_peaks);
    let (log_bytes, log_limit_bytes) = log.filled.unwrap_or_default();
    let mut view = api::QueueView {
        bytes: now.queue.bytes,
        items: now.queue.items,
        oldest_unconfirmed_s: now.queue.oldest_unconfirmed.map(|age| age.as_secs_f64()),
        bytes_hwm: peaks.bytes,
        items_hwm: peaks.items,
        reset_bytes_hwm: late.bytes,
        reset_items_hwm: late.items,
        waiting_bytes_hwm: peaks.waiting_bytes,
        reset_waiting_bytes_hwm: late.waiting_bytes,
        lag_hwm_s: peaks.lag.map(|lag| lag.as_secs_f64()),
        reset_lag_hwm_s: late.lag.map(|lag| lag.as_secs_f64()),
        entering_bytes_per_s: pace.entering_bytes_per_s.round() as u64,
        leaving_bytes_per_s: pace.leaving_bytes_per_s.round() as u64,
        full_in_s: None,
        limit_bytes: now.settings.queue_bytes,
        limit_items: now.settings.queue_items,
        blocked_ms: milliseconds(now.queue.waits.sum()),
        waits: room_waits(&now.queue.waits),
        waiting_writers: now.queue.blocked_writers,
        paced_to_bytes_per_s: now.queue.paced_to,
        held_up_ms: now.queue.holds_writers_up.then(|| milliseconds(now.queue.held_up)),
        disk_bytes: now.queue.disk_bytes,
        disk_limit_bytes,
        disk_bytes_hwm: peaks.disk_bytes,
        reset_disk_bytes_hwm: late.disk_bytes,
        spilled_bytes: now.queue.spilled_bytes,
        disk_failed: now.queue.disk_has_failed,
        folded_writes: now.folded_writes,
        folded_bytes: now.folded_bytes,
        step_ms: now.step.map(|step| milliseconds(step.time)),
        step_bytes: now.step.map(|step| step.bytes),
        step_ms_hwm: milliseconds(now.step_hwm.time),
        step_bytes_hwm: now.step_hwm.bytes,
        joined_writes: now.joined_writes,
        joined_frames: now.joined_frames,
        log: log_state(log.state),
        log_why: (!log.why.is_empty()).then(|| log.why.to_owned()),
        log_off_s: log.off_for.map(|off| off.as_secs()),
        log_bytes,
        log_limit_bytes,
        log_bytes_hwm: peaks.log_bytes.max(log_bytes),
        reset_log_bytes_hwm: late.log_bytes.max(log_bytes),
    };
    view.full_in_s = full_in(&view, pace).map(|left| left.round() as u64);
    view
}

fn room_waits(waits: &figures::RoomWaits) -> api::LatencyClasses {
    let us = |wait: &Duration| u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
    api::LatencyClasses {
        bounds_us: figures::RoomWaits::BOUNDS.iter().map(us).collect(),
        counts: waits.counts.to_vec(),
        sum_us: us(&waits.sum()),
    }
}

fn log_state(state: figures::QueueLogState) -> api::QueueLogState {
    match state {
        figures::QueueLogState::Off => api::QueueLogState::Off,
        figures::QueueLogState::Filling => api::QueueLogState::Filling,
        figures::QueueLogState::Live => api::QueueLogState::Live,
        figures::QueueLogState::Closed => api::QueueLogState::Closed,
    }
}

/// Bytes that wait, and that may wait, in memory and on disk, or in the log. A disk queue that failed takes nothing more, nor does a log that is closed.
fn filled_of(queue: &figures::QueueStatus, settings: &engine::Settings, disk_limit_bytes: u64) -> (u64, u64) {
    if let Some(filled) = queue.log.filled {
        return filled;
    }
    if queue.log.state == figures::QueueLogState::Closed {
        return (queue.bytes, settings.queue_bytes);
    }
    let disk_limit_bytes = if queue.disk_has_failed { queue.disk_bytes } else { disk_limit_bytes };
    (queue.bytes.saturating_add(queue.disk_bytes), settings.queue_bytes.saturating_add(disk_limit_bytes))
}

/// Seconds until a queue is full, if it goes on filling at this pace: until the first of what bounds it is used up. `None`: it does not fill, or
/// takes longer than anybody plans for.
fn full_in(view: &api::QueueView, pace: QueuePace) -> Option<f64> {
    let has_log = view.log_limit_bytes > 0;
    let bytes = if has_log { pace.log_gains_bytes_per_s } else { pace.entering_bytes_per_s - pace.leaving_bytes_per_s };
    let gains = [bytes, pace.gains_items_per_s, pace.gains_items_per_s * ITEM_OVERHEAD_BYTES as f64];
    let until = |((filled, whole), gains): ((u64, u64), f64)| {
        let left = whole.saturating_sub(filled) as f64 / gains;
        (filled > 0 && whole > 0 && gains > 0.0 && left < FORECAST_MAX_S).then_some(left)
    };
    view.fills().into_iter().zip(gains).filter_map(until).reduce(f64::min)
}

/// What speaks of a full queue, or of a disk queue or a log that is missing.
pub(super) fn warnings(group: &ConfiguredGroup, snapshot: &GroupSnapshot) -> Vec<String> {
    let (queue, disk_limit_bytes) = (&snapshot.status.queue, snapshot.figures.disk_queue_bytes);
    let pace = snapshot.figures.queue;
    let full = queue_warning(group.name.as_str(), queue, (&snapshot.status.settings, disk_limit_bytes), pace);
    let missing = disk_queue_warning(group, queue, disk_limit_bytes);
    full.into_iter().chain(missing).chain(queue_log_warning(&queue.log)).collect()
}

/// What a full queue does to writers, or will do.
fn queue_warning(
    group: &str,
    queue: &figures::QueueStatus,
    (settings, disk_limit_bytes): (&engine::Settings, u64),
    pace: QueuePace,
) -> Option<String> {
    let filled = filled_bound(group, queue, (settings, disk_limit_bytes), pace);
    let (why, advice) = filled.clone().unwrap_or_default();
    let advice = advice.map(|advice| format!("; {advice}")).unwrap_or_default();
    if queue.holds_writers_up {
        let lost = show_seconds(queue.held_up.as_secs_f64());
        let then = match queue.held_up_limit {
            Some(limit) => format!("at {} the group goes to logging", show_seconds(limit.as_secs_f64())),
            None => "under strict they go on waiting".to_owned(),
        };
        return Some(format!(
            "more is written than the link carries: writers were held up for {lost} of late; {then}{advice}"
        ));
    }
    let then = match settings.when_full() {
        WhenFull::Block => "writers will soon wait",
        WhenFull::Bitmap => "the group will soon go to logging",
    };
    match queue.blocked_writers {
        0 => filled.map(|_| format!("the queue is filled to {QUEUE_WARNING_PERCENT} % or more: {then}{why}{advice}")),
        1 => Some(format!("the queue is full: a writer waits for room{advice}")),
        some => Some(format!("the queue is full: {some} writers wait for room{advice}")),
    }
}

/// What bounds a queue that is almost full, in words, and what to set, if that can be more. `None`: nothing does.
fn filled_bound(
    group: &str,
    queue: &figures::QueueStatus,
    (settings, disk_limit_bytes): (&engine::Settings, u64),
    pace: QueuePace,
) -> Option<(String, Option<String>)> {
    let full = |have: u64, limit: u64| have.saturating_mul(100) >= limit.saturating_mul(QUEUE_WARNING_PERCENT);
    // While a log is closed nothing goes to disk.
    let disk_limit_bytes = if queue.log.state == figures::QueueLogState::Closed { 0 } else { disk_limit_bytes };
    let (bytes, limit_bytes) = filled_of(queue, settings, disk_limit_bytes);
    let gains = pace.entering_bytes_per_s - pace.leaving_bytes_per_s;
    let memory = |gains: f64, doubles: &str| {
        let (larger, does) = larger((settings.queue_bytes, QUEUE_MEMORY.max.min(MEMORY.default)), gains, doubles)?;
        Some(format!("'farshore set {group} queue.memory={}' {does}", size_text(larger)))
    };
    if full(bytes, limit_bytes) && disk_limit_bytes > 0 && !queue.disk_has_failed {
        let gains = if queue.log.filled.is_some() { pace.log_gains_bytes_per_s } else { gains };
        let larger = larger((disk_limit_bytes, QUEUE_DISK.max), gains, "doubles the disk queue");
        let advice =
            larger.map(|(larger, does)| format!("queue.disk = \"{}\" in the configuration {does}", size_text(larger)));
        return Some((String::new(), advice));
    }
    if full(bytes, limit_bytes) {
        return Some((String::new(), memory(gains, "doubles it")));
    }
    let places = queue.items.saturating_mul(ITEM_OVERHEAD_BYTES);
    if disk_limit_bytes > 0 && full(places, settings.queue_bytes / 8 * 5) {
        let why = format!(", as {} small writes need their places in memory", queue.items);
        // Places have five eighths of it.
        let gains = pace.gains_items_per_s * ITEM_OVERHEAD_BYTES as f64 * 8.0 / 5.0;
        return Some((why, memory(gains, "doubles those")));
    }
    full(queue.items, settings.queue_items).then(|| {
        let larger = larger((settings.queue_items, QUEUE_ITEMS.max), pace.gains_items_per_s, "doubles it");
        (String::new(), larger.map(|(larger, does)| format!("'farshore set {group} queue.items={larger}' {does}")))
    })
}

/// Twice as much, or what has room for what comes in a while at this pace, and what that does. `None`: it is the most that there may be.
fn larger((limit, most): (u64, u64), gains_per_s: f64, doubles: &str) -> Option<(u64, String)> {
    let doubled = limit.saturating_mul(2);
    let ahead = limit.saturating_add((gains_per_s.max(0.0) * ROOM_AHEAD.as_secs_f64()) as u64);
    let ahead = ahead.checked_next_power_of_two().unwrap_or(most).min(most);
    match ahead > doubled {
        true => Some((ahead, format!("has room for {} more at this pace", show_seconds(ROOM_AHEAD.as_secs_f64())))),
        false => (limit < most).then(|| (doubled.min(most), doubles.to_owned())),
    }
}

/// A disk queue that is wanted and not there, or that failed.
fn disk_queue_warning(group: &ConfiguredGroup, queue: &figures::QueueStatus, disk_limit_bytes: u64) -> Option<String> {
    let wanted_bytes = group.layout.queue_disk_bytes;
    let then = "what has no room in memory waits or becomes dirty regions, as the mode and 'queue.when_full' say";
    if disk_limit_bytes == 0 && wanted_bytes > 0 {
        let size = show_size(wanted_bytes);
        let log = if group.layout.queue_durable { "; nor is there a log for 'queue.durable'" } else { "" };
        return Some(format!(
            "there is no disk queue, as its {size} could not be had at the start (the log of the daemon says why): {then}{log}"
        ));
    }
    let failed = format!(
        "the disk queue cannot be written, and takes nothing before the next stream begins: {then}; see the log for why"
    );
    queue.disk_has_failed.then_some(failed)
}

/// A log that is to count, and has not for a while.
fn queue_log_warning(log: &figures::QueueLogStatus) -> Option<String> {
    let off = log.off_for.filter(|off| *off >= QUEUE_LOG_WARNING_AFTER)?;
    Some(format!(
        "the log of the queue has not counted for {}: {}. Until it does a restart of this node costs the order, and an update sync follows",
        show_seconds(off.as_secs_f64()),
        log.why
    ))
}

/// What of it is a volume's.
pub(super) fn of_volume(queue: &figures::VolumeQueue) -> api::VolumeQueueView {
    api::VolumeQueueView {
        bytes: queue.bytes,
        items: queue.items,
        bytes_hwm: queue.peak_bytes,
        items_hwm: queue.peak_items,
        reset_bytes_hwm: queue.late_peak_bytes,
        reset_items_hwm: queue.late_peak_items,
    }
}

pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_fills_says_when_it_is_full() {
        let view = |bytes| api::QueueView { bytes, limit_bytes: 8 << 20, ..api::QueueView::default() };
        let pace = |entering, leaving| QueuePace {
            entering_bytes_per_s: entering,
            leaving_bytes_per_s: leaving,
            ..QueuePace::default()
        };
        // 50 writes of 8 KiB a second against a link of 160 KB/s: 8 MiB are full after some 34 s.
        let full = full_in(&view(1), pace(409_600.0, 160_000.0)).expect("it fills");
        assert!((33.0..34.0).contains(&full), "{full}");
        assert_eq!(full_in(&view(1 << 20), pace(100.0, 100.0)), None, "it stands");
        assert_eq!(full_in(&view(1 << 20), pace(100.0, 99.9)), None, "nobody plans for that");
        assert_eq!(full_in(&view(9 << 20), pace(2.0, 1.0)), Some(0.0));
    }

    #[test]
    fn a_queue_that_is_almost_full_names_the_size_to_set() {
        let settings = engine::Settings { queue_bytes: 64 << 20, queue_items: 1000, ..engine::Settings::default() };
        let queue = |bytes, items| figures::QueueStatus { bytes, items, ..figures::QueueStatus::default() };
        let said = |bytes, items| {
            queue_warning("db", &queue(bytes, items), (&settings, 0), QueuePace::default()).unwrap_or_default()
        };
        assert!(
            said(60 << 20, 1).ends_with("'farshore set db queue.memory=128MiB' doubles it"),
            "{}",
            said(60 << 20, 1)
        );
        assert!(said(1, 900).ends_with("'farshore set db queue.items=2000' doubles it"), "{}", said(1, 900));
        assert_eq!(said(1, 1), "");
    }

    /// Twice the size was named whatever came, and none once a writer waited.
    #[test]
    fn the_size_to_set_has_room_for_what_comes() {
        let settings = engine::Settings { queue_bytes: 64 << 20, ..engine::Settings::default() };
        let pace = QueuePace { entering_bytes_per_s: 9e6, leaving_bytes_per_s: 1e6, ..QueuePace::default() };
        let queue = figures::QueueStatus { bytes: 64 << 20, items: 1, ..figures::QueueStatus::default() };
        let said = |queue: figures::QueueStatus, disk| {
            queue_warning("db", &queue, (&settings, disk), pace).unwrap_or_default()
        };
        let memory = "'farshore set db queue.memory=1GiB' has room for 1 min more at this pace";
        assert!(said(queue, 0).ends_with(memory), "{}", said(queue, 0));
        let waits = figures::QueueStatus { blocked_writers: 2, ..queue };
        assert_eq!(said(waits, 0), format!("the queue is full: 2 writers wait for room; {memory}"));
        let held_up = figures::QueueStatus { holds_writers_up: true, ..waits };
        assert!(said(held_up, 0).ends_with(&format!("under strict they go on waiting; {memory}")));
        let on_disk = figures::QueueStatus { disk_bytes: 128 << 20, ..waits };
        let said = said(on_disk, 128 << 20);
        assert!(
            said.ends_with("queue.disk = \"1GiB\" in the configuration has room for 1 min more at this pace"),
            "{said}"
        );
        assert_eq!(larger((7, 7), 9.0, "doubles it"), None, "it is the most");
    }

    #[test]
    fn a_log_that_does_not_count_is_told_after_a_minute() {
        let log = |state, seconds| figures::QueueLogStatus {
            state,
            why: "a volume is no part of the order",
            off_for: Some(Duration::from_secs(seconds)),
            filled: None,
        };
        assert_eq!(queue_log_warning(&figures::QueueLogStatus::default()), None);
        assert_eq!(queue_log_warning(&log(figures::QueueLogState::Closed, 59)), None);
        let closed = log(figures::QueueLogState::Closed, 90);
        let said = queue_log_warning(&closed).unwrap_or_default();
        assert!(said.contains("has not counted for 1 min 30 s: a volume is no part of the order. Until"), "{said}");
        // Memory alone has the queue meanwhile: a larger disk queue would help nobody.
        let settings = engine::Settings { queue_bytes: 64 << 20, ..engine::Settings::default() };
        let queue = figures::QueueStatus { bytes: 64 << 20, items: 1, log: closed, ..figures::QueueStatus::default() };
        let full = queue_warning("db", &queue, (&settings, 1 << 30), QueuePace::default()).unwrap_or_default();
        assert!(full.ends_with("'farshore set db queue.memory=128MiB' doubles it"), "{full}");
        // What counts is what the log may hold.
        let log = figures::QueueLogStatus { state: figures::QueueLogState::Live, filled: Some((95, 100)), ..closed };
        let queue = figures::QueueStatus { bytes: 1, log, ..queue };
        let full = queue_warning("db", &queue, (&settings, 1 << 30), QueuePace::default()).unwrap_or_default();
        assert!(full.contains("queue.disk = \"2GiB\""), "{full}");
    }

    #[test]
    fn a_queue_with_room_on_disk_is_not_full() {
        let settings = engine::Settings { queue_bytes: 64 << 20, ..engine::Settings::default() };
        let bitmap = engine::Settings { when_full: WhenFull::Bitmap, ..settings };
        let queue = |disk_bytes, disk_has_failed| figures::QueueStatus {
            bytes: 64 << 20,
            items: 1,
            disk_bytes,
            disk_has_failed,
            ..figures::QueueStatus::default()
        };
        let said = |disk_bytes, disk_has_failed, settings| {
            queue_warning("db", &queue(disk_bytes, disk_has_failed), (settings, 1 << 30), QueuePace::default())
                .unwrap_or_default()
        };
        assert_eq!(said(0, false, &settings), "");
        let full = said(1000 << 20, false, &settings);
        assert!(
            full.ends_with("writers will soon wait; queue.disk = \"2GiB\" in the configuration doubles the disk queue"),
            "{full}"
        );
        let full = said(1000 << 20, false, &bitmap);
        assert!(full.contains("the group will soon go to logging"), "{full}");
        let small = figures::QueueStatus { items: 250_000, ..queue(1 << 20, false) };
        let small = queue_warning("db", &small, (&settings, 4 << 30), QueuePace::default()).unwrap_or_default();
        assert!(small.contains("as 250000 small writes need their places in memory"), "{small}");
        let failed = said(1 << 20, true, &settings);
        assert!(failed.ends_with("'farshore set db queue.memory=128MiB' doubles it"), "{failed}");
    }

    // proves: P8
    /// With the default disk queue, small writes use up their places in memory first; with a log, its blocks.
    #[test]
    fn the_forecast_is_of_what_is_used_up_first() {
        let queue = api::QueueView {
            bytes: 48 << 20,
            items: 81_920,
            limit_bytes: 64 << 20,
            limit_items: 4 << 20,
            disk_bytes: 336 << 20,
            disk_limit_bytes: 4 << 30,
            ..api::QueueView::default()
        };
        let pace = QueuePace { entering_bytes_per_s: 4096e3, gains_items_per_s: 1e3, ..QueuePace::default() };
        let full = full_in(&queue, pace).expect("it fills");
        assert!((81.8..82.2).contains(&full), "{full}: 81 920 more writes of 256 bytes have places");
        let few = api::QueueView { limit_items: 100_000, ..queue.clone() };
        assert_eq!(full_in(&few, pace).map(f64::round), Some(18.0), "18 080 more writes");
        let log = api::QueueView { log_bytes: 1 << 30, log_limit_bytes: 2 << 30, items: 1, ..queue };
        let pace = QueuePace { log_gains_bytes_per_s: 8192e3, gains_items_per_s: 0.0, ..pace };
        assert_eq!(full_in(&log, pace).map(f64::round), Some(131.0), "a lone write takes two blocks of the log");
    }
}
