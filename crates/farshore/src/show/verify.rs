//! A verify as text.

use units::exact::{show_rate, show_seconds, show_size};

use crate::api::{DifferenceView, GroupView, ScrubView, VerifiedView, VerifyView};

/// `45 %, 1.2 GiB of 3 GiB, 93.4 Mbit/s, 2 min 3 s left, nothing differs so far`.
pub fn running(run: &VerifyView) -> String {
    let percent = if run.total_bytes == 0 { 99.0 } else { run.done_bytes as f64 / run.total_bytes as f64 * 100.0 };
    let rate = if run.since_s > 0.0 { run.done_bytes as f64 / run.since_s } else { 0.0 };
    let left_bytes = run.total_bytes.saturating_sub(run.done_bytes);
    let left = match (run.waits, rate >= 1.0) {
        (true, _) => "waits until the peer is in step".to_owned(),
        (false, true) => format!("{} left", show_seconds(left_bytes as f64 / rate)),
        (false, false) => "standing still".to_owned(),
    };
    let found = match run.differing_bytes {
        0 => "nothing differs so far".to_owned(),
        bytes => format!("{} differ", show_size(bytes)),
    };
    let sample = if run.sample_percent < 100 { format!("sample of {} %, ", run.sample_percent) } else { String::new() };
    let began = if run.by_timer { "began by itself, " } else { "" };
    format!(
        "{began}{sample}{:.0} %, {} of {}, {}, {left}, {found}",
        // Never 100 before the end.
        percent.min(99.0).floor(),
        show_size(run.done_bytes),
        show_size(run.total_bytes),
        show_rate(rate),
    )
}

/// When the next one begins by itself: `every 7 d at 80.0 Mbit/s, due at 2026-11-22T12:00:00.123Z`.
pub fn scrub(scrub: &ScrubView) -> String {
    let due = match (&scrub.due, &scrub.waits) {
        (_, Some(why)) => format!("due, and waits: {why}"),
        (Some(due), None) => format!("due at {due}"),
        (None, None) => "due now".to_owned(),
    };
    let last = match &scrub.verified {
        Some(time) => format!("the last whole one ended at {time}"),
        None => "no whole one is on record".to_owned(),
    };
    let rate = show_rate(scrub.rate_limit_bytes_per_s as f64);
    format!("every {} at {rate}, {due}; {last}", show_seconds(scrub.every_s))
}

/// What came of one, in a group of which a whole one compares so much.
pub fn ended(comparable_bytes: u64, ended: &VerifiedView) -> String {
    let compared = show_size(ended.compared_bytes);
    let what = match ended.sample_percent {
        100.. => format!("{compared} compared"),
        _ => format!("sampled {compared} of {}, not a proof", show_size(comparable_bytes)),
    };
    let mut text = match &ended.given_up {
        Some(why) => format!("not to its end ({why}); {what}"),
        None => format!("at {}: {what}", ended.time.as_deref().unwrap_or("an unknown time")),
    };
    if ended.leaves_volume {
        text += ", without a volume that was set aside";
    }
    text += &match (ended.differing_bytes, ended.repaired_bytes) {
        (0, _) => "; nothing differs".to_owned(),
        (differing, 0) => format!("; {} differ", show_size(differing)),
        (differing, repaired) => format!("; {} differed, {} repaired", show_size(differing), show_size(repaired)),
    };
    if ended.unread_bytes > 0 {
        text += &format!("; {} could not be read here and were not compared", show_size(ended.unread_bytes));
    }
    let named: Vec<String> = ended.differences.iter().take(3).map(place).collect();
    if !named.is_empty() {
        let more = if ended.differences.len() > named.len() { ", and more" } else { "" };
        text += &format!(" ({}{more})", named.join(", "));
    }
    text
}

/// What a whole verify compares.
pub fn comparable_bytes(group: &GroupView) -> u64 {
    group.volumes.iter().filter(|volume| !volume.set_aside).map(|volume| volume.size_bytes).sum()
}

fn place(found: &DifferenceView) -> String {
    let unreadable = if found.unreadable { ", unreadable there" } else { "" };
    format!("{} at byte {}{unreadable}", found.volume, found.offset_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verify_says_how_far_it_is_and_what_it_found() {
        let run = VerifyView {
            sample_percent: 100,
            since_s: 10.0,
            done_bytes: 1 << 20,
            total_bytes: 4 << 20,
            ..VerifyView::default()
        };
        let text = running(&run);
        assert!(text.starts_with("25 %, 1 MiB of 4 MiB, "), "{text}");
        assert!(text.ends_with(" left, nothing differs so far"), "{text}");
        let by_itself = running(&VerifyView { by_timer: true, ..run.clone() });
        assert!(by_itself.starts_with("began by itself, 25 %, "), "{by_itself}");
        let waits = running(&VerifyView { waits: true, sample_percent: 5, differing_bytes: 4096, ..run });
        assert!(waits.starts_with("sample of 5 %, "), "{waits}");
        assert!(waits.ends_with("waits until the peer is in step, 4 KiB differ"), "{waits}");
        let found = DifferenceView { volume: "data".into(), offset_bytes: 65536, bytes: 32768, unreadable: false };
        let over = VerifiedView {
            sample_percent: 5,
            compared_bytes: 1 << 20,
            differing_bytes: 32768,
            differences: vec![found],
            ..VerifiedView::default()
        };
        let volume = |name: &str, set_aside: bool| {
            serde_json::json!({"name": name, "size_bytes": 20 << 20, "device": "/d", "dirty_bytes": 0, "direct": true, "clients": 0,
                "set_aside": set_aside})
        };
        let group = serde_json::json!({
            "name": "db", "role": "primary", "mode": "sync", "state": "replicating", "protection": "complete",
            "volumes": [volume("data", false), volume("log", true)],
            "queue": {"bytes": 0, "items": 0, "bytes_hwm": 0, "items_hwm": 0, "limit_bytes": 0, "limit_items": 0, "blocked_ms": 0},
            "promotable": null, "peers": [], "settings": {}
        });
        let group = serde_json::from_value::<GroupView>(group).expect("a group");
        assert_eq!(
            ended(comparable_bytes(&group), &over),
            "at an unknown time: sampled 1 MiB of 20 MiB, not a proof; 32 KiB differ (data at byte 65536)"
        );
        let next = ScrubView { every_s: 604_800.0, rate_limit_bytes_per_s: 10_000_000, ..ScrubView::default() };
        assert_eq!(scrub(&next), "every 7 d at 80.0 Mbit/s, due now; no whole one is on record");
        let at = |time: &str| Some(time.to_owned());
        let next = ScrubView { verified: at("2026-11-15T12:00:00.000Z"), due: at("2026-11-22T12:00:00.000Z"), ..next };
        let text = scrub(&next);
        assert!(
            text.ends_with(", due at 2026-11-22T12:00:00.000Z; the last whole one ended at 2026-11-15T12:00:00.000Z"),
            "{text}"
        );
        let text = scrub(&ScrubView { waits: at("the group is not in step with its peer"), ..next });
        assert!(text.contains(", due, and waits: the group is not in step with its peer; the last"), "{text}");
        let whole = VerifiedView { given_up: Some("stopped by the operator".into()), sample_percent: 100, ..over };
        let stopped = ended(comparable_bytes(&group), &whole);
        assert!(stopped.starts_with("not to its end (stopped by the operator); 1 MiB compared"), "{stopped}");
    }
}
