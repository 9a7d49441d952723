//! `stats`: rates between two looks at what a daemon counted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::reach;
use super::status::paint;
use crate::api::{
    ApiRequest, CompressionStatus, GroupStats, GroupView, LinkReport, LinkStats, NodeView, Reply, RequestRates, Role,
    STATS_SCHEMA, StatsReport, VolumeStats, VolumeView,
};
use crate::args::stats::StatsArgs;
use crate::outcome::{CommandFailure, CommandOutcome, Exit, print};
use crate::show;

const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);

/// What was seen at one moment.
struct Look {
    at: Instant,
    status: NodeView,
    sums: BTreeMap<String, u64>,
}

pub fn run(args: &StatsArgs) -> CommandOutcome {
    let interval = args.interval.unwrap_or(DEFAULT_INTERVAL);
    let times = match (args.interval, args.count) {
        (None, _) => 1,
        (_, count) => count.unwrap_or(u64::MAX),
    };
    let mut before = look(args)?;
    for _ in 0..times {
        let due = before.at + interval;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let now = look(args)?;
        let report = report(&before, &now);
        let text = match args.json {
            true => serde_json::to_string(&report).map_err(|error| error.to_string())? + "\n",
            false => show::stats::table(&report, &paint()),
        };
        if !print(&text)? {
            break;
        }
        before = now;
    }
    Ok(Exit::Done.into())
}

fn look(args: &StatsArgs) -> Result<Look, CommandFailure> {
    let status = reach::status_any(&args.reach, args.group.as_deref())?;
    match reach::ask_any(&args.reach, ApiRequest::Counters)? {
        Reply::Counters(counters) => Ok(Look { at: Instant::now(), status, sums: counters.counters }),
        Reply::Error { message, .. } => Err(message.into()),
        other => Err(reach::unexpected(&other)),
    }
}

/// What came to the sums between two looks. A daemon that was restarted in between counts from its start.
struct Between<'a> {
    before: Option<&'a BTreeMap<String, u64>>,
    now: &'a BTreeMap<String, u64>,
    seconds: f64,
}

impl Between<'_> {
    fn sum(&self, name: &str) -> f64 {
        let of = |sums: &BTreeMap<String, u64>| sums.get(name).copied().unwrap_or(0);
        of(self.now).saturating_sub(self.before.map_or(0, of)) as f64
    }

    fn rate(&self, name: &str) -> f64 {
        self.sum(name) / self.seconds
    }

    fn requests(&self, export: &str) -> RequestRates {
        let rate = |what: &str| self.rate(&format!("volume.{export}.{what}"));
        let mean_ms = |count: &str, time: &str| {
            let (count, us) =
                (self.sum(&format!("volume.{export}.{count}")), self.sum(&format!("volume.{export}.{time}")));
            (count > 0.0).then(|| us / count / 1e3)
        };
        RequestRates {
            reads_per_s: rate("reads"),
            read_bytes_per_s: rate("read_bytes"),
            read_ms: mean_ms("reads", "read_us"),
            writes_per_s: rate("writes"),
            write_bytes_per_s: rate("write_bytes"),
            write_ms: mean_ms("writes", "write_us"),
            flushes_per_s: rate("flushes"),
            flush_ms: mean_ms("flushes", "flush_us"),
        }
    }
}

fn report(before: &Look, now: &Look) -> StatsReport {
    let seconds = (now.at - before.at).as_secs_f64().max(1e-3);
    let goes_on = now.status.uptime_s >= before.status.uptime_s;
    let between = Between { before: goes_on.then_some(&before.sums), now: &now.sums, seconds };
    StatsReport {
        schema: STATS_SCHEMA,
        node: now.status.node.clone(),
        time: Timestamp::now().to_string(),
        seconds,
        groups: now.status.groups.iter().map(|group| of_group(&between, group)).collect(),
        links: now.status.links.iter().map(|link| of_link(&before.status.links, link, seconds)).collect(),
    }
}

/// What a connection has sent is counted from when it came up.
fn of_link(before: &[LinkReport], link: &LinkReport, seconds: f64) -> LinkStats {
    let same = before.iter().find(|before| before.node == link.node && before.connections == link.connections);
    let before = same.and_then(|before| before.compression.as_ref());
    let rate = |of: fn(&CompressionStatus) -> u64| {
        let now = link.compression.as_ref().map(of)?;
        Some(now.saturating_sub(before.map_or(0, of)) as f64 / seconds)
    };
    LinkStats {
        node: link.node.clone(),
        link: link.link.clone(),
        sent_bytes_per_s: rate(|sums| sums.sent_wire_bytes),
        received_bytes_per_s: rate(|sums| sums.received_wire_bytes),
    }
}

fn of_group(between: &Between, group: &GroupView) -> GroupStats {
    let volumes: Vec<VolumeStats> =
        group.volumes.iter().map(|volume| of_volume(between, &group.name, volume)).collect();
    let rate = |what: &str| between.rate(&format!("group.{}.{what}", group.name));
    GroupStats {
        name: group.name.clone(),
        role: group.role.clone(),
        state: group.state.clone(),
        requests: together(volumes.iter().map(|volume| &volume.requests)),
        queue: group.queue.clone(),
        unapplied_bytes: group.journal.as_ref().filter(|_| group.role != Role::Primary).map(|journal| journal.bytes),
        streamed_bytes_per_s: rate("streamed_bytes"),
        shipped_bytes_per_s: rate("shipped_bytes"),
        bitmap_bytes_per_s: rate("bitmap_bytes"),
        journal_bytes_per_s: rate("journal_bytes"),
        undo_bytes_per_s: rate("undo_bytes"),
        queue_disk_bytes_per_s: rate("queue_disk_bytes"),
        volumes,
    }
}

fn of_volume(between: &Between, group: &str, volume: &VolumeView) -> VolumeStats {
    let export = format!("{group}/{}", volume.name);
    let rate = |what: &str| between.rate(&format!("volume.{export}.{what}"));
    VolumeStats {
        name: volume.name.clone(),
        requests: between.requests(&export),
        dirty_bytes: volume.dirty_bytes,
        queue: volume.queue,
        set_aside: volume.set_aside,
        detached: volume.detached,
        streamed_bytes_per_s: rate("streamed_bytes"),
        shipped_bytes_per_s: rate("shipped_bytes"),
        bitmap_bytes_per_s: rate("bitmap_bytes"),
    }
}

/// Of several volumes; a mean weighs each by its requests.
fn together<'a>(all: impl Iterator<Item = &'a RequestRates> + Clone) -> RequestRates {
    let sum = |of: fn(&RequestRates) -> f64| all.clone().map(of).sum::<f64>();
    let mean = |count: fn(&RequestRates) -> f64, ms: fn(&RequestRates) -> Option<f64>| {
        let whole: f64 = all.clone().filter_map(|rates| Some(count(rates) * ms(rates)?)).sum();
        let count = sum(count);
        (count > 0.0).then_some(whole / count)
    };
    RequestRates {
        reads_per_s: sum(|rates| rates.reads_per_s),
        read_bytes_per_s: sum(|rates| rates.read_bytes_per_s),
        read_ms: mean(|rates| rates.reads_per_s, |rates| rates.read_ms),
        writes_per_s: sum(|rates| rates.writes_per_s),
        write_bytes_per_s: sum(|rates| rates.write_bytes_per_s),
        write_ms: mean(|rates| rates.writes_per_s, |rates| rates.write_ms),
        flushes_per_s: sum(|rates| rates.flushes_per_s),
        flush_ms: mean(|rates| rates.flushes_per_s, |rates| rates.flush_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_what_came_between_two_looks() {
        let sums = |reads, us| {
            BTreeMap::from([("volume.g/data.reads".to_owned(), reads), ("volume.g/data.read_us".to_owned(), us)])
        };
        let (before, now) = (sums(100, 50_000), sums(120, 70_000));
        let rates = Between { before: Some(&before), now: &now, seconds: 2.0 }.requests("g/data");
        assert_eq!((rates.reads_per_s, rates.read_ms, rates.write_ms), (10.0, Some(1.0), None));
        let rates = Between { before: None, now: &now, seconds: 2.0 }.requests("g/data");
        assert_eq!(rates.reads_per_s, 60.0, "the daemon began anew: all of it is since then");
    }

    #[test]
    fn the_mean_of_volumes_weighs_their_requests() {
        let of = |writes_per_s, ms| RequestRates { writes_per_s, write_ms: Some(ms), ..RequestRates::default() };
        let all = together([of(90.0, 1.0), of(10.0, 11.0), RequestRates::default()].iter());
        assert_eq!((all.writes_per_s, all.write_ms, all.read_ms), (100.0, Some(2.0), None));
    }
}
