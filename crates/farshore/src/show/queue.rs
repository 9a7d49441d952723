//! A group's queue on one page.

use std::time::Duration;

use toolkit::screen::{Colour, Paint, clean};
use units::exact::{duration_text, show_rate, show_seconds, show_size};

use super::table::titled;
use super::{ladder_words, lag_text, rpo_words, time_words};
use crate::api::{GroupQueue, LatencyClasses, QueueLogState, QueueView, Role};

const WIDTH: usize = 10;
/// Characters of the bar of a queue's fill.
const BAR: usize = 30;

/// What `queue` prints of one group.
pub fn page(group: &GroupQueue, paint: &Paint) -> String {
    let head = format!(
        "{}  {} on {}, mode {}, {}",
        clean(&group.name),
        clean(group.role.as_str()),
        clean(&group.node),
        clean(&group.mode),
        clean(group.state.as_str())
    );
    let mut text = paint.with(Colour::Head, &head) + "\n";
    if group.role != Role::Primary {
        return text + &titled("Queue", WIDTH, "the primary has it, and did not answer");
    }
    let queue = &group.queue;
    let mut line = |title: &str, content: &str| text += &titled(title, WIDTH, content);
    if let Some(ladder) = &group.mode_ladder {
        line("Acts as", &ladder_words((&group.mode, &group.effective_mode), ladder));
    }
    if let Some(settings) = settings(group) {
        line("Settings", &settings);
    }
    line("Fill", &format!("{} {}", bar(queue.filled_share().unwrap_or_default().min(1.0)), fill(queue)));
    if let Some(disk) = disk(queue) {
        line("On disk", &disk);
    }
    if let Some(log) = log(queue) {
        line("Log", &log);
    }
    line("In", &format!("{}/s", show_size(queue.entering_bytes_per_s)));
    line("Out", &format!("{}/s", show_size(queue.leaving_bytes_per_s)));
    line("Full in", &queue.full_in_s.map_or("it does not fill".to_owned(), |left| show_seconds(left as f64)));
    if let Some(paced_to) = queue.paced_to_bytes_per_s {
        line("Pace", &format!("writers are slowed down to {}/s (queue.pace)", show_size(paced_to)));
    }
    if let Some(spared) = spared(queue) {
        line("Spared", &spared);
    }
    if let Some(points) = points(queue) {
        line("Points", &points);
    }
    line("Behind", &(lag_text(group.lag_bytes, group.lag_seconds) + &oldest_write(queue)));
    if let Some(point) = &group.recovery_point {
        let time = time_words(point.time.as_deref());
        line("Copy at", &format!("{} (primary's clock), sequence {}", clean(time), point.sequence));
    }
    if let Some(rpo) = group.rpo.as_ref().and_then(rpo_words) {
        line("RPO", &clean(&rpo));
    }
    line("Peak", &format!("{}{} since the start of the daemon", peak(queue), oldest(queue.lag_hwm_s)));
    if let Some(late) = late_peak(queue) {
        line("", &format!("{late} since the peaks were reset"));
    }
    line("Writers", &format!("{}; {} wait now", waited(queue), queue.waiting_writers));
    if let Some(waits) = waits(&queue.waits) {
        line("Waits", &waits);
    }
    text
}

/// `policy degrade, a full queue: block, weight 10; at most 20 Mbit/s on the link now`; `None`: nothing of it is known.
fn settings(group: &GroupQueue) -> Option<String> {
    let words = [("policy", &group.policy), ("a full queue:", &group.when_full), ("weight", &group.link_weight)];
    let words = words.into_iter().filter_map(|(what, value)| Some(format!("{what} {}", clean(value.as_deref()?))));
    let words = words.collect::<Vec<_>>().join(", ");
    let rate = group.allowed_bytes_per_s.map(|rate| format!("; at most {} on the link now", show_rate(rate as f64)));
    (!words.is_empty()).then(|| words + &rate.unwrap_or_default())
}

/// `18.2 MiB of 64 MiB (28 %), 290 of 4194304 writes`.
pub fn fill(queue: &QueueView) -> String {
    format!(
        "{} of {} ({} %), {} of {} writes",
        show_size(queue.bytes),
        show_size(queue.limit_bytes),
        percent(queue.bytes, queue.limit_bytes),
        queue.items,
        queue.limit_items
    )
}

/// `1.2 GiB of 4 GiB (30 %); at most 2 GiB; 3.5 GiB written in all`; `None`: there is no disk queue.
pub fn disk(queue: &QueueView) -> Option<String> {
    let of = format!(
        "{} of {} ({} %)",
        show_size(queue.disk_bytes),
        show_size(queue.disk_limit_bytes),
        percent(queue.disk_bytes, queue.disk_limit_bytes)
    );
    let sums = match queue.spilled_bytes {
        0 => "nothing was written there yet".to_owned(),
        sum => format!("at most {}; {} written in all", show_size(queue.disk_bytes_hwm), show_size(sum)),
    };
    let failed = if queue.disk_failed { "; it has failed, and takes nothing before the next stream" } else { "" };
    (queue.disk_limit_bytes > 0).then(|| format!("{of}; {sums}{failed}"))
}

/// `live; 12 MiB of 62 MiB (19 %)`, or `closed for 2 min: there is no stream in order`; `None`: nobody wants one.
pub fn log(queue: &QueueView) -> Option<String> {
    if queue.log == QueueLogState::Off {
        return None;
    }
    let off = queue.log_off_s.map(|off| format!(" for {}", show_seconds(off as f64))).unwrap_or_default();
    let why = queue.log_why.as_deref().map(|why| format!(": {}", clean(why))).unwrap_or_default();
    let (bytes, limit_bytes) = (queue.log_bytes, queue.log_limit_bytes);
    let fill = match limit_bytes {
        0 => String::new(),
        _ => format!("; {} of {} ({} %)", show_size(bytes), show_size(limit_bytes), percent(bytes, limit_bytes)),
    };
    Some(format!("{}{off}{why}{fill}", clean(queue.log.as_str())))
}

/// `1204 writes were not sent (9.4 MiB); 480 went as 31 frames`; `None`: each went by itself.
fn spared(queue: &QueueView) -> Option<String> {
    let folded = (queue.folded_writes > 0)
        .then(|| format!("{} writes were not sent ({})", queue.folded_writes, show_size(queue.folded_bytes)));
    let joined =
        (queue.joined_frames > 0).then(|| format!("{} went as {} frames", queue.joined_writes, queue.joined_frames));
    let both: Vec<String> = folded.into_iter().chain(joined).collect();
    (!both.is_empty()).then(|| both.join("; "))
}

/// `one per up to 0.4 s (1.2 MiB of writes) now; per up to 1 s (3 MiB) since the start of the daemon`; `None`: there is one after each write.
fn points(queue: &QueueView) -> Option<String> {
    let span = |(ms, bytes)| format!("{} ({} of writes)", show_seconds(ms as f64 / 1000.0), show_size(bytes));
    let now = queue
        .step_ms
        .zip(queue.step_bytes)
        .map_or("one after each write now".to_owned(), |step| format!("one per up to {} now", span(step)));
    let most = (queue.step_ms_hwm, queue.step_bytes_hwm);
    (most.1 > 0).then(|| format!("{now}; per up to {} since the start of the daemon", span(most)))
}

/// `8.1 MiB/s in, 2.4 MiB/s out, full in 33 s`; `None`: nothing moves.
pub fn pace(queue: &QueueView) -> Option<String> {
    let full = queue.full_in_s.map(|left| format!(", full in {}", show_seconds(left as f64))).unwrap_or_default();
    let (entering, leaving) = (show_size(queue.entering_bytes_per_s), show_size(queue.leaving_bytes_per_s));
    let moves = queue.entering_bytes_per_s > 0 || queue.leaving_bytes_per_s > 0;
    moves.then(|| format!("{entering}/s in, {leaving}/s out{full}"))
}

/// The most since the peaks were reset; `None`: nobody did that, or they are the same.
fn late_peak(queue: &QueueView) -> Option<String> {
    let since_start = (queue.waiting_bytes_hwm, queue.disk_bytes_hwm, queue.log_bytes_hwm, queue.items_hwm);
    let late =
        (queue.reset_waiting_bytes_hwm, queue.reset_disk_bytes_hwm, queue.reset_log_bytes_hwm, queue.reset_items_hwm);
    let differs = since_start != late || queue.lag_hwm_s != queue.reset_lag_hwm_s;
    let of =
        |bytes: u64, place: &str| if bytes > 0 { format!(", {} {place}", show_size(bytes)) } else { String::new() };
    let (disk, log) = (of(late.1, "on disk"), of(late.2, "in the log"));
    differs.then(|| format!("{}{disk}{log}, {} writes{}", show_size(late.0), late.3, oldest(queue.reset_lag_hwm_s)))
}

/// `; the oldest write waits for 4.1 s`.
pub fn oldest_write(queue: &QueueView) -> String {
    let waits = queue.oldest_unconfirmed_s.filter(|_| queue.items > 0);
    waits.map(|age| format!("; the oldest write waits for {}", show_seconds(age))).unwrap_or_default()
}

/// `, 4.9 s behind`.
fn oldest(lag_s: Option<f64>) -> String {
    lag_s.map(|lag| format!(", {} behind", show_seconds(lag))).unwrap_or_default()
}

/// The most since the daemon's start: `30.1 MiB (47 %), 480 writes`; where a part of it was on disk `1.2 GiB, 48 MiB of memory (75 %), 480
/// writes`.
pub fn peak(queue: &QueueView) -> String {
    // Made smaller since, or one write larger than all of it: no share of what it may hold now.
    let share = match queue.bytes_hwm > queue.limit_bytes {
        true => "more than it may hold now".to_owned(),
        false => format!("{} %", percent(queue.bytes_hwm, queue.limit_bytes)),
    };
    let memory = show_size(queue.bytes_hwm);
    let bytes = match queue.waiting_bytes_hwm > queue.bytes_hwm {
        true => format!("{}, {memory} of memory", show_size(queue.waiting_bytes_hwm)),
        false => memory,
    };
    format!("{bytes} ({share}), {} writes", queue.items_hwm)
}

pub fn waited(queue: &QueueView) -> String {
    match queue.blocked_ms {
        0 => "no writer waited".to_owned(),
        ms => format!("writers waited {} in all", show_seconds(ms as f64 / 1000.0)),
    }
}

/// `480 waited: 312 up to 10ms, 168 up to 1s`; `None`: nobody waited.
fn waits(waits: &LatencyClasses) -> Option<String> {
    let all = waits.counts.iter().fold(0_u64, |all, more| all.saturating_add(*more));
    let bound = |us: &u64| format!("up to {}", duration_text(Duration::from_micros(*us)));
    let bounds = waits.bounds_us.iter().map(bound).chain(["longer".to_owned()]);
    let classes = waits.counts.iter().zip(bounds).filter(|(count, _)| **count > 0);
    let classes = classes.map(|(count, bound)| format!("{count} {bound}")).collect::<Vec<_>>().join(", ");
    (all > 0).then(|| format!("{all} waited: {classes}"))
}

fn bar(share: f64) -> String {
    let full = (share * BAR as f64).round() as usize;
    format!("[{}{}]", "#".repeat(full), ".".repeat(BAR - full))
}

fn percent(part: u64, whole: u64) -> u64 {
    if whole == 0 { 0 } else { (part as f64 / whole as f64 * 100.0).round() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{GroupState, ModeLadderView, RecoveryPoint, RpoState, RpoView};

    fn group() -> GroupQueue {
        GroupQueue {
            name: "db".to_owned(),
            node: "alpha".to_owned(),
            role: Role::Primary,
            state: GroupState::Replicating,
            mode: "async".to_owned(),
            effective_mode: "superasync".to_owned(),
            mode_ladder: Some(ModeLadderView {
                lowered_s: 61.0,
                reason: "a write took 1.2 s".to_owned(),
                returns_in_s: None,
            }),
            policy: Some("degrade".to_owned()),
            when_full: Some("block".to_owned()),
            link_weight: Some("10".to_owned()),
            allowed_bytes_per_s: Some(2_500_000),
            rpo: Some(RpoView {
                warn_seconds: Some(4.0),
                error_seconds: Some(300.0),
                hold_off_seconds: Some(5.0),
                state: RpoState::Warn,
                state_s: Some(7.5),
            }),
            recovery_point: Some(RecoveryPoint { sequence: 4711, time: Some("2026-11-30T12:00:00Z".to_owned()) }),
            queue: QueueView {
                bytes: 16 << 20,
                items: 290,
                bytes_hwm: 32 << 20,
                items_hwm: 480,
                reset_bytes_hwm: 20 << 20,
                reset_items_hwm: 300,
                waiting_bytes_hwm: 32 << 20,
                reset_waiting_bytes_hwm: 20 << 20,
                oldest_unconfirmed_s: Some(4.5),
                lag_hwm_s: Some(12.0),
                reset_lag_hwm_s: Some(5.5),
                entering_bytes_per_s: 3 << 20,
                leaving_bytes_per_s: 1 << 20,
                full_in_s: Some(24),
                limit_bytes: 64 << 20,
                limit_items: 1000,
                blocked_ms: 0,
                waiting_writers: 0,
                held_up_ms: None,
                ..QueueView::default()
            },
            lag_bytes: Some(16 << 20),
            lag_seconds: Some(4.9),
        }
    }

    #[test]
    fn a_page_says_how_full_it_is_and_when_it_will_be() {
        let text = page(&group(), &Paint::plain());
        let wanted = "db  primary on alpha, mode async, replicating\n  \
            Acts as   acts as superasync for 1 min 1 s: a write took 1.2 s; async again once the line has been good for a while\n  \
            Settings  policy degrade, a full queue: block, weight 10; at most 20.0 Mbit/s on the link now\n  \
            Fill      [#########.....................] 16 MiB of 64 MiB (25 %), 290 of 1000 writes\n  \
            In        3 MiB/s\n  \
            Out       1 MiB/s\n  \
            Full in   24 s\n  \
            Behind    16 MiB, 4.9 s; the oldest write waits for 4.5 s\n  \
            Copy at   2026-11-30T12:00:00Z (primary's clock), sequence 4711\n  \
            RPO       warn for 7.5 s: the lag is to stay within 4.0 s (rpo.warn), 5 min (rpo.error)\n  \
            Peak      32 MiB (50 %), 480 writes, 12 s behind since the start of the daemon\n  \
            \u{20}         20 MiB, 300 writes, 5.5 s behind since the peaks were reset\n  \
            Writers   no writer waited; 0 wait now\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn a_log_has_a_line_of_its_own_and_is_what_the_bar_shows() {
        let live =
            QueueView { log: QueueLogState::Live, log_bytes: 31 << 20, log_limit_bytes: 62 << 20, ..group().queue };
        let said = page(&GroupQueue { queue: live, ..group() }, &Paint::plain());
        assert!(said.contains("  Log       live; 31 MiB of 62 MiB (50 %)\n"), "{said}");
        assert!(said.contains("[###############...............]"), "{said}");
        let closed = QueueView {
            log: QueueLogState::Closed,
            log_why: Some("there is no stream in order".to_owned()),
            log_off_s: Some(120),
            disk_limit_bytes: 64 << 20,
            ..group().queue
        };
        assert_eq!(log(&closed).as_deref(), Some("closed for 2 min: there is no stream in order"));
        assert_eq!(closed.filled_of(), (closed.bytes, closed.limit_bytes), "memory alone has the queue");
        assert_eq!(log(&group().queue), None);
    }

    #[test]
    fn what_was_not_sent_or_went_together_has_a_line_of_its_own() {
        let folded = QueueView { folded_writes: 1204, folded_bytes: 9 << 20, ..group().queue };
        let text = page(&GroupQueue { queue: folded.clone(), ..group() }, &Paint::plain());
        assert!(text.contains("  Spared    1204 writes were not sent (9 MiB)\n"), "{text}");
        let joined = QueueView { joined_writes: 480, joined_frames: 31, ..folded };
        assert_eq!(spared(&joined).as_deref(), Some("1204 writes were not sent (9 MiB); 480 went as 31 frames"));
        assert_eq!(spared(&group().queue), None);
    }

    #[test]
    fn what_folding_costs_in_recovery_points_has_a_line_of_its_own() {
        let was = QueueView { step_ms_hwm: 980, step_bytes_hwm: 3 << 20, ..group().queue };
        let coarse = QueueView { step_ms: Some(400), step_bytes: Some(1 << 20), ..was.clone() };
        let text = page(&GroupQueue { queue: coarse, ..group() }, &Paint::plain());
        let since = "per up to 1.0 s (3 MiB of writes) since the start of the daemon";
        assert!(text.contains(&format!("  Points    one per up to 0.4 s (1 MiB of writes) now; {since}\n")), "{text}");
        assert_eq!(points(&was), Some(format!("one after each write now; {since}")));
        assert_eq!(points(&group().queue), None);
    }

    #[test]
    fn a_disk_queue_has_a_line_of_its_own_and_counts_in_the_bar() {
        let on_disk = QueueView {
            bytes: 64 << 20,
            disk_bytes: 64 << 20,
            disk_limit_bytes: 192 << 20,
            disk_bytes_hwm: 96 << 20,
            reset_disk_bytes_hwm: 70 << 20,
            waiting_bytes_hwm: 128 << 20,
            reset_waiting_bytes_hwm: 100 << 20,
            spilled_bytes: 2 << 30,
            ..group().queue
        };
        let text = page(&GroupQueue { queue: on_disk.clone(), ..group() }, &Paint::plain());
        assert!(text.contains("Fill      [###############...............] 64 MiB of 64 MiB (100 %)"), "{text}");
        assert!(
            text.contains("  On disk   64 MiB of 192 MiB (33 %); at most 96 MiB; 2 GiB written in all\n"),
            "{text}"
        );
        let peak = "  Peak      128 MiB, 32 MiB of memory (50 %), 480 writes, 12 s behind since the start of the daemon\n  \
            \u{20}         100 MiB, 70 MiB on disk, 300 writes, 5.5 s behind since the peaks were reset\n";
        assert!(text.contains(peak), "{text}");
        let failed = QueueView { disk_failed: true, ..on_disk };
        assert!(
            disk(&failed).expect("there is one").ends_with("; it has failed, and takes nothing before the next stream")
        );
        assert_eq!(failed.filled_share(), Some(1.0), "there is no room left");
        let small = QueueView { items: 81_920, limit_items: 4_194_304, disk_limit_bytes: 4 << 30, ..group().queue };
        assert_eq!(small.filled_share(), Some(0.5), "of memory, for their places");
        let unused = QueueView { disk_limit_bytes: 4 << 30, ..group().queue };
        assert_eq!(disk(&unused).as_deref(), Some("0 B of 4 GiB (0 %); nothing was written there yet"));
    }

    #[test]
    fn a_secondary_that_cannot_ask_says_who_has_the_queue() {
        let text = page(&GroupQueue { role: Role::Secondary, ..group() }, &Paint::plain());
        assert!(text.ends_with("the primary has it, and did not answer\n"), "{text}");
    }

    #[test]
    fn writers_that_waited_are_shown_by_how_long_they_did() {
        let waits = |counts| LatencyClasses { bounds_us: vec![10_000, 100_000, 1_000_000], counts, sum_us: 9 };
        let queue = QueueView { blocked_ms: 12_300, waits: waits(vec![312, 0, 167, 1]), ..group().queue };
        let text = page(&GroupQueue { queue, ..group() }, &Paint::plain());
        let wanted = "  Writers   writers waited 12 s in all; 0 wait now\n  \
            Waits     480 waited: 312 up to 10ms, 167 up to 1s, 1 longer\n";
        assert!(text.ends_with(wanted), "{text}");
    }

    #[test]
    fn what_stands_still_has_no_pace() {
        let still = QueueView { entering_bytes_per_s: 0, leaving_bytes_per_s: 0, full_in_s: None, ..group().queue };
        assert_eq!(pace(&still), None);
        assert_eq!(pace(&group().queue).as_deref(), Some("3 MiB/s in, 1 MiB/s out, full in 24 s"));
    }
}
