//! `link show`, `link set`, `link history`: the connections between nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use serde_json::json;
use toolkit::screen::{Paint, clean};
use units::exact::{duration_text, parse_duration};

use super::answers::Answers;
use super::reach::{self, unexpected};
use super::set;
use super::status::colours_wanted;
use crate::api::{
    ApiRequest, LINK_HISTORY_SCHEMA, LINKS_SCHEMA, LinkHistory, LinkHistoryRow, LinkHistoryTable, LinkList, LinkRecord,
    Reply,
};
use crate::args::{LinkHistoryArgs, LinkSetArgs, LinkShowArgs};
use crate::outcome::{CommandFailure, CommandOutcome, Exit, print, warn};
use crate::show::link;

/// More rows are no table any more.
const ROWS_WANTED: u64 = 48;
/// Stretches that rows are made of when nothing is said, in minutes.
const STRETCHES: [u64; 5] = [1, 5, 15, 60, 24 * 60];

pub fn show(args: &LinkShowArgs) -> CommandOutcome {
    let status = reach::status(&args.reach, None)?;
    let wanted = |node: &String| args.peer.as_ref().is_none_or(|peer| peer == node);
    let links: Vec<_> = status.links.iter().filter(|link| wanted(&link.node)).cloned().collect();
    if let (Some(peer), []) = (&args.peer, links.as_slice()) {
        let names: Vec<_> = status.links.iter().map(|link| link.node.as_str()).collect();
        return Err(format!("node {} has no peer {peer:?}; its peers are {}", status.node, names.join(", ")).into());
    }
    let is_well = !links.iter().any(link::needs_attention);
    let text = if args.json {
        format!("{}\n", json!(LinkList { schema: LINKS_SCHEMA, node: status.node, links }))
    } else {
        link::pages(&links, &paint())
    };
    print(&text)?;
    Ok(if is_well { Exit::Done } else { Exit::Warning }.into())
}

pub fn set(args: &LinkSetArgs) -> CommandOutcome {
    let settings = set::parse(&args.settings)?;
    let mut answers = Answers::new("link set", args.json);
    answers.add_of_node(reach::ask(&args.reach, &ApiRequest::SetLink { settings }))?;
    answers.finish()
}

pub fn history(args: &LinkHistoryArgs) -> CommandOutcome {
    let since = minutes("--since", &args.since)?;
    let against = args.against.as_deref().map(|text| minutes("--against", text)).transpose()?;
    let every = match &args.every {
        Some(text) => minutes("--every", text)?,
        None => stretch(since),
    };
    let now = unix_ms();
    let from = now.saturating_sub(millis(since));
    let since_unix_ms = from.saturating_sub(against.map_or(0, millis));
    let request = ApiRequest::LinkHistory { peer: args.peer.clone(), since_unix_ms };
    let history = match reach::ask_any(&args.reach, request)? {
        Reply::LinkHistory(history) => *history,
        Reply::Error { message, .. } => return Err(message.into()),
        other => return Err(unexpected(&other)),
    };
    let rows = rows(&history.records, (from, now), millis(every), against.map(millis));
    let text = if args.json { as_json(&history, rows) } else { as_text(&history, &rows, against) };
    print(&text)?;
    history.warnings.iter().for_each(warn);
    Ok(if history.warnings.is_empty() { Exit::Done } else { Exit::Warning }.into())
}

fn as_json(history: &LinkHistory, rows: Vec<LinkHistoryRow>) -> String {
    let LinkHistory { node, peer, warnings, .. } = history;
    format!("{}\n", json!(LinkHistoryTable { schema: LINK_HISTORY_SCHEMA, node, peer, rows, warnings }))
}

fn as_text(history: &LinkHistory, rows: &[LinkHistoryRow], against: Option<Duration>) -> String {
    if rows.is_empty() {
        return format!("Nothing is recorded of the link to {} since then.\n", clean(&history.peer));
    }
    link::history(rows, against.map(duration_text).as_deref(), &paint())
}

fn paint() -> Paint {
    if colours_wanted(&std::io::stdout()) { Paint::colours() } else { Paint::plain() }
}

/// A duration of whole minutes, at least one.
fn minutes(option: &str, text: &str) -> Result<Duration, CommandFailure> {
    let duration = parse_duration(text).map_err(|why| CommandFailure::usage(format!("{option}: {why}")))?;
    if duration < Duration::from_secs(60) || duration > Duration::from_secs(366 * 86_400) {
        return Err(CommandFailure::usage(format!(
            "{option}: {text:?} is out of bounds; use \"1m\" to \"8784h\" (a year)"
        )));
    }
    Ok(duration)
}

/// The shortest usual stretch that makes a table of some length.
fn stretch(since: Duration) -> Duration {
    let minutes = since.as_secs() / 60;
    let fits = |stretch: &&u64| minutes.div_ceil(**stretch) <= ROWS_WANTED;
    Duration::from_secs(60 * STRETCHES.iter().find(fits).unwrap_or(&STRETCHES[STRETCHES.len() - 1]))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, millis)
}

/// Stretches of the clock (whole hours begin at whole hours), oldest first; those of which nothing is known are left out.
fn rows(records: &[LinkRecord], (from, to): (u64, u64), every: u64, against: Option<u64>) -> Vec<LinkHistoryRow> {
    let from = from - from % every;
    let gather = |later: u64| {
        let mut stretches: BTreeMap<u64, LinkRecord> = BTreeMap::new();
        for record in records {
            // A record counts where most of it lies.
            let at = record.unix_ms.saturating_sub(record.covered_ms / 2).saturating_add(later);
            if (from..to).contains(&at) {
                stretches.entry(at - at % every).and_modify(|sum| add(sum, record)).or_insert(*record);
            }
        }
        stretches
    };
    let now = gather(0);
    let before = against.map(gather).unwrap_or_default();
    let begins: BTreeSet<u64> = now.keys().chain(before.keys()).copied().collect();
    let row = |begin| LinkHistoryRow {
        from_unix_ms: begin,
        now: now.get(&begin).copied().unwrap_or_default(),
        before: before.get(&begin).copied(),
    };
    begins.into_iter().map(row).collect()
}

/// Sums end at the largest number: records come from wherever the daemon that tells them has them.
fn add(sum: &mut LinkRecord, more: &LinkRecord) {
    let measured = |record: &LinkRecord| u128::from(if record.rtt_mean_us > 0 { record.connected_ms } else { 0 });
    let (weight, other) = (measured(sum), measured(more));
    let all = (u128::from(sum.rtt_mean_us) * weight).saturating_add(u128::from(more.rtt_mean_us) * other);
    let mean = u64::try_from(all.checked_div(weight + other).unwrap_or(0)).unwrap_or(u64::MAX);
    let least = [sum.rtt_min_us, more.rtt_min_us].into_iter().filter(|us| *us > 0).min().unwrap_or(0);
    *sum = LinkRecord {
        unix_ms: sum.unix_ms.max(more.unix_ms),
        covered_ms: sum.covered_ms.saturating_add(more.covered_ms),
        connected_ms: sum.connected_ms.saturating_add(more.connected_ms),
        sent_bytes: sum.sent_bytes.saturating_add(more.sent_bytes),
        received_bytes: sum.received_bytes.saturating_add(more.received_bytes),
        retransmitted_bytes: sum.retransmitted_bytes.saturating_add(more.retransmitted_bytes),
        sent_bytes_per_s_max: sum.sent_bytes_per_s_max.max(more.sent_bytes_per_s_max),
        rtt_min_us: least,
        rtt_mean_us: mean,
        rtt_max_us: sum.rtt_max_us.max(more.rtt_max_us),
        connections: sum.connections.saturating_add(more.connections),
        busy_ms: sum.busy_ms.saturating_add(more.busy_ms),
        receiver_limited_ms: sum.receiver_limited_ms.saturating_add(more.receiver_limited_ms),
        buffer_limited_ms: sum.buffer_limited_ms.saturating_add(more.buffer_limited_ms),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;
    const DAY: u64 = 24 * 60 * MINUTE;

    /// A minute that ended then, over which so many bytes were sent.
    fn minute(ended: u64, sent_bytes: u64, rtt_us: u64) -> LinkRecord {
        LinkRecord {
            unix_ms: ended,
            covered_ms: MINUTE,
            connected_ms: MINUTE,
            sent_bytes,
            rtt_min_us: rtt_us,
            rtt_mean_us: rtt_us,
            rtt_max_us: rtt_us,
            ..LinkRecord::default()
        }
    }

    #[test]
    fn last_night_stands_beside_the_night_before() {
        let night = 100 * DAY;
        let records = [
            minute(night - DAY + MINUTE, 50, 80_000),
            minute(night + MINUTE, 100, 50_000),
            minute(night + 2 * MINUTE, 300, 70_000),
            // Ended in the next hour, but most of it lies before.
            minute(night + 60 * MINUTE + 1000, 7, 50_000),
        ];
        let rows = rows(&records, (night, night + 3 * 60 * MINUTE), 60 * MINUTE, Some(DAY));
        assert_eq!(rows.len(), 1, "hours of which nothing is known are left out");
        let (row, before) = (&rows[0], rows[0].before.expect("the night before is known"));
        assert_eq!((row.from_unix_ms, row.now.sent_bytes, before.sent_bytes), (night, 407, 50));
        assert_eq!((row.now.rtt_min_us, row.now.rtt_max_us), (50_000, 70_000));
        assert_eq!(row.now.rtt_mean_us, (50_000 + 70_000 + 50_000) / 3);
        let text = link::history(&rows, Some("24h"), &Paint::plain());
        assert!(text.contains("OUT BEFORE") && text.contains("50.0/56.7/70.0 ms"), "{text}");
    }

    #[test]
    fn no_number_wraps() {
        let most = LinkRecord {
            unix_ms: u64::MAX,
            covered_ms: u64::MAX,
            connected_ms: u64::MAX,
            sent_bytes: u64::MAX,
            received_bytes: u64::MAX,
            retransmitted_bytes: u64::MAX,
            sent_bytes_per_s_max: u64::MAX,
            rtt_min_us: u64::MAX,
            rtt_mean_us: u64::MAX,
            rtt_max_us: u64::MAX,
            connections: u64::MAX,
            busy_ms: u64::MAX,
            receiver_limited_ms: u64::MAX,
            buffer_limited_ms: u64::MAX,
        };
        let mut sum = most;
        add(&mut sum, &most);
        assert_eq!(sum, LinkRecord { rtt_mean_us: sum.rtt_mean_us, ..most });
        let mut sum = minute(MINUTE, 1, u64::MAX);
        add(&mut sum, &minute(MINUTE, 1, u64::MAX));
        assert_eq!(sum.rtt_mean_us, u64::MAX);
    }

    #[test]
    fn a_table_has_a_length() {
        for (since, every) in [(10, 1), (60, 5), (24 * 60, 60), (7 * 24 * 60, 24 * 60), (60 * 24 * 60, 24 * 60)] {
            assert_eq!(stretch(Duration::from_secs(since * 60)), Duration::from_secs(every * 60), "{since} minutes");
        }
        assert!(minutes("--since", "10s").is_err() && minutes("--since", "10").is_err());
    }
}
