//! Rates of a node's groups and volumes as a table.

use toolkit::screen::Paint;
use units::exact::show_size;
use units::quantities::{Seconds, show_time};

use super::table::{Table, TableCell, plain};
use crate::api::{GroupStats, LinkStats, RequestRates, Role, StatsReport, VolumeStats};

const HEAD: [&str; 13] = [
    "NAME", "ROLE", "STATE", "R/S", "W/S", "READ/S", "WRITE/S", "R TIME", "W TIME", "WAITS", "PEAK", "NET/S",
    "BITMAP/S",
];

/// What `stats` prints of one stretch: a line for each group, and below it one for each of its volumes.
pub fn table(report: &StatsReport, paint: &Paint) -> String {
    let mut table = Table::new(HEAD);
    for group in &report.groups {
        table.row(group_row(group));
        for volume in &group.volumes {
            table.row(volume_row(group, volume));
        }
    }
    report.links.iter().for_each(|link| table.row(link_row(link)));
    table.text("", paint) + "\n"
}

/// What is on the line, of all groups: behind compression, and with what is no content.
fn link_row(link: &LinkStats) -> [TableCell; 13] {
    let mut row = [(); 13].map(|()| plain(""));
    let net = link.sent_bytes_per_s.map_or("-".to_owned(), rate);
    (row[0], row[1], row[2]) = (plain(&link.node), plain("link"), plain(link.link.as_str()));
    row[11] = plain(&net);
    row
}

fn group_row(group: &GroupStats) -> [TableCell; 13] {
    let queue = &group.queue;
    let is_primary = group.role == Role::Primary;
    let [reads, writes, read_bytes, write_bytes, read_time, write_time] = requests(&group.requests);
    let waits = match group.unapplied_bytes {
        Some(bytes) => format!("{} in the journal", show_size(bytes)),
        None => format!("{}, {} writes", show_size(queue.filled_of().0), queue.items),
    };
    let peak = match is_primary {
        true => format!("{}, {} writes", show_size(queue.peak_of()), queue.reset_items_hwm),
        false => "-".to_owned(),
    };
    let net = if is_primary { rate(group.streamed_bytes_per_s + group.shipped_bytes_per_s) } else { "-".to_owned() };
    [
        plain(&group.name),
        plain(group.role.as_str()),
        plain(group.state.as_str()),
        reads,
        writes,
        read_bytes,
        write_bytes,
        read_time,
        write_time,
        plain(&waits),
        plain(&peak),
        plain(&net),
        plain(&rate(group.bitmap_bytes_per_s)),
    ]
}

fn volume_row(group: &GroupStats, volume: &VolumeStats) -> [TableCell; 13] {
    let [reads, writes, read_bytes, write_bytes, read_time, write_time] = requests(&volume.requests);
    let is_primary = group.role == Role::Primary;
    let state = match volume {
        VolumeStats { detached: true, .. } => "detached",
        VolumeStats { set_aside: true, .. } => "set aside",
        _ => group.state.as_str(),
    };
    let queued = |bytes: u64, items: u64| format!("{}, {items} writes", show_size(bytes));
    let dirty = (volume.dirty_bytes > 0).then(|| format!("{} dirty", show_size(volume.dirty_bytes)));
    let waits = is_primary.then(|| queued(volume.queue.bytes, volume.queue.items));
    let waits: Vec<String> = waits.into_iter().chain(dirty).collect();
    let of_primary = |text: String| if is_primary { text } else { "-".to_owned() };
    [
        (format!("  {}", plain(&volume.name).0), None),
        plain(group.role.as_str()),
        plain(state),
        reads,
        writes,
        read_bytes,
        write_bytes,
        read_time,
        write_time,
        plain(&waits.join(", ")),
        plain(&of_primary(queued(volume.queue.reset_bytes_hwm, volume.queue.reset_items_hwm))),
        plain(&of_primary(rate(volume.streamed_bytes_per_s + volume.shipped_bytes_per_s))),
        plain(&rate(volume.bitmap_bytes_per_s)),
    ]
}

fn requests(rates: &RequestRates) -> [TableCell; 6] {
    let count = |rate: f64| plain(&if rate < 10.0 && rate > 0.0 { format!("{rate:.1}") } else { format!("{rate:.0}") });
    let time = |ms: Option<f64>| plain(&ms.map_or("-".to_owned(), |ms| show_time(Seconds::from_ms(ms))));
    [
        count(rates.reads_per_s),
        count(rates.writes_per_s),
        plain(&rate(rates.read_bytes_per_s)),
        plain(&rate(rates.write_bytes_per_s)),
        time(rates.read_ms),
        time(rates.write_ms),
    ]
}

fn rate(bytes_per_s: f64) -> String {
    show_size(bytes_per_s.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{GroupState, LinkState, QueueView, STATS_SCHEMA, VolumeQueueView};

    fn some_requests() -> RequestRates {
        RequestRates {
            reads_per_s: 2.5,
            read_bytes_per_s: 10_240.0,
            read_ms: Some(0.25),
            writes_per_s: 120.4,
            write_bytes_per_s: 1_048_576.0,
            write_ms: Some(21.0),
            ..RequestRates::default()
        }
    }

    fn volume(requests: RequestRates) -> VolumeStats {
        VolumeStats {
            name: "data".to_owned(),
            requests,
            dirty_bytes: 8192,
            queue: VolumeQueueView {
                bytes: 1024,
                items: 1,
                reset_bytes_hwm: 2048,
                reset_items_hwm: 3,
                ..VolumeQueueView::default()
            },
            set_aside: true,
            detached: false,
            streamed_bytes_per_s: 512.0,
            shipped_bytes_per_s: 512.0,
            bitmap_bytes_per_s: 256.0,
        }
    }

    #[test]
    fn a_group_stands_above_its_volumes() {
        let requests = some_requests();
        let group = GroupStats {
            name: "db".to_owned(),
            role: Role::Primary,
            state: GroupState::Replicating,
            requests,
            queue: QueueView {
                bytes: 2048,
                items: 2,
                reset_waiting_bytes_hwm: 4096,
                reset_items_hwm: 7,
                ..QueueView::default()
            },
            unapplied_bytes: None,
            streamed_bytes_per_s: 1024.0,
            shipped_bytes_per_s: 1024.0,
            bitmap_bytes_per_s: 512.0,
            journal_bytes_per_s: 0.0,
            undo_bytes_per_s: 0.0,
            queue_disk_bytes_per_s: 0.0,
            volumes: vec![volume(requests)],
        };
        let report = StatsReport {
            schema: STATS_SCHEMA,
            node: "alpha".to_owned(),
            time: String::new(),
            seconds: 1.0,
            groups: vec![group],
            links: vec![LinkStats {
                node: "beta".to_owned(),
                link: LinkState::Connected,
                sent_bytes_per_s: Some(3072.0),
                received_bytes_per_s: Some(512.0),
            }],
        };
        let text = table(&report, &Paint::plain());
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split("  ").filter(|w| !w.is_empty()).map(str::trim).collect()).collect();
        assert_eq!(
            lines[1],
            [
                "db",
                "primary",
                "replicating",
                "2.5",
                "120",
                "10 KiB",
                "1 MiB",
                "250 µs",
                "21 ms",
                "2 KiB, 2 writes",
                "4 KiB, 7 writes",
                "2 KiB",
                "512 B"
            ]
        );
        assert_eq!(lines[3], ["beta", "link", "connected", "3 KiB"]);
        assert_eq!(lines[2][..3], ["data", "primary", "set aside"]);
        assert_eq!(
            lines[2][7..],
            ["250 µs", "21 ms", "1 KiB, 1 writes, 8 KiB dirty", "2 KiB, 3 writes", "1 KiB", "256 B"]
        );
    }
}
