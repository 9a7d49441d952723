//! Tables of docs/book/link.md, of the rows of `cargo xtask bench link`: a part for each series.

use super::Row;
use super::table::{Cells, Pivot, newest, rate_text, table, three_digits, trimmed};
use anyhow::Result;

/// Clean lines: iperf3 and Farshore, and the share.
pub fn throughput(rows: &[Row]) -> Result<String> {
    let left: Cells = |row| Ok(vec![rate_text(row.number("line_mbit")?)]);
    Pivot { head: &["Line"], left, above: round_trip, cells: carried }.text(rows)
}

/// Lines that lose segments, for each congestion control.
pub fn loss(rows: &[Row]) -> Result<String> {
    let left: Cells = |row| Ok(vec![rate_text(row.number("line_mbit")?), row.text("congestion")?.to_owned()]);
    Pivot { head: &["Line", "Control"], left, above: round_trip, cells: carried }.text(rows)
}

fn round_trip(row: &Row) -> Result<Vec<String>> {
    Ok(vec![format!("{} ms", row.number("rtt_ms")?)])
}

fn carried(row: &Row) -> Result<Vec<String>> {
    let [iperf, farshore] = [row.number("iperf_mbit")?, row.number("farshore_mbit")?].map(three_digits);
    Ok(vec![format!("{iperf}/{farshore} ({})", three_digits(row.number("share")? * 100.0))])
}

/// Fixed socket buffers beside table B-1.
pub fn buffers(rows: &[Row]) -> Result<String> {
    let above: Cells = |row| {
        let table = format!("{} KiB: B-1", row.number("buffer_kib")?);
        Ok(vec![table, "Measured".to_owned(), "By window".to_owned()])
    };
    let cells: Cells = |row| {
        let [measured, by_window] = [row.number("measured_mibit")?, row.number("window_mibit")?].map(three_digits);
        Ok(vec![trimmed(row.number("table_mibit")?, 2), measured, by_window])
    };
    let left: Cells = |row| Ok(vec![row.number("rtt_ms")?.to_string()]);
    Pivot { head: &["Round trip, ms"], left, above, cells }.text(rows)
}

/// Until data flows again after a cut line.
pub fn outage(rows: &[Row]) -> Result<String> {
    let left: Cells = |row| {
        Ok(vec![match row.text("settings")? {
            "as they come" => "defaults".to_owned(),
            settings => format!("`{settings}`"),
        }])
    };
    let above: Cells = |row| {
        let resumes = format!("{} s: resumes after", row.number("outage_s")?);
        Ok(vec![resumes, "Caught up".to_owned()])
    };
    let cells: Cells = |row| {
        let times = [row.number("resumed_s")?, row.number("caught_up_s")?];
        Ok(times.map(|time| format!("{time:.2} s")).to_vec())
    };
    Pivot { head: &["Settings"], left, above, cells }.text(rows)
}

/// A large write after a pause.
pub fn idle(rows: &[Row]) -> Result<String> {
    let rows = newest(rows, &["congestion", "slow_start_after_idle"])?;
    let line = |row: &&Row| -> Result<Vec<String>> {
        let times = [row.number("warm_ms")?, row.number("after_idle_ms")?, row.number("after_idle_ms_most")?];
        let [warm, after_idle, most] = times.map(|time| format!("{time:.0} ms"));
        let slow_start = row.number("slow_start_after_idle")?.to_string();
        Ok(vec![row.text("congestion")?.to_owned(), slow_start, warm, after_idle, most])
    };
    let head = ["Control", "`tcp_slow_start_after_idle`", "One after the other", "After 2 s", "At most"];
    Ok(table(&head, &rows.iter().map(line).collect::<Result<Vec<_>>>()?))
}

/// One write at a time: fresh lines on the left, loaded ones on the right.
pub fn lone(rows: &[Row]) -> Result<String> {
    const CONTROLS: [&str; 3] = ["auto", "cubic", "bbr"];
    let rows = newest(rows, &["kib", "congestion"])?;
    let mut lines: Vec<Vec<String>> = Vec::new();
    for first in rows.iter().filter(|row| row.text("congestion").is_ok_and(|name| name == CONTROLS[0])) {
        let kib = first.number("kib")?;
        let mut line = vec![format!("{kib} KiB"), format!("{:.2} ms", first.number("ideal_ms")?)];
        for key in ["fresh_share", "loaded_share"] {
            for control in CONTROLS {
                let is_it = |row: &&&Row| {
                    row.number("kib").is_ok_and(|of| of == kib) && row.text("congestion").is_ok_and(|of| of == control)
                };
                let share = rows.iter().find(is_it).map(|row| row.number(key)).transpose()?;
                line.push(share.map(|share| format!("{share:.3}")).unwrap_or_default());
            }
        }
        lines.push(line);
    }
    let head = ["Write", "Ideal", "Fresh: `auto`", "cubic", "bbr", "Loaded: `auto`", "cubic", "bbr"];
    Ok(table(&head, &lines))
}

/// A full line whose rate falls: `auto`, then cubic in each cell.
pub fn fall(rows: &[Row]) -> Result<String> {
    /// What is shown of the waits, second by second.
    const SHOWN_S: usize = 8;
    let longest = |row: &Row| -> Result<f64> {
        match row.number("longest_ms") {
            Ok(longest) => Ok(longest),
            Err(_) => Ok(row.numbers("waits_ms")?.into_iter().take(SHOWN_S).fold(0.0, f64::max)),
        }
    };
    let cells = |row: &Row| -> Result<[String; 4]> {
        let back_s = row.number("back_s")?;
        let back = if back_s == 0.0 { "0".to_owned() } else { format!("{back_s:.1}") };
        let whole = [longest(row)?, row.number("steady_ms")?, row.number("carried_share")? * 100.0];
        let [longest, steady, carried] = whole.map(|value| format!("{value:.0}"));
        Ok([longest, steady, back, carried])
    };
    let rows = newest(rows, &["to_mbit", "queue", "congestion"])?;
    let mut lines = Vec::new();
    for auto in rows.iter().filter(|row| row.text("congestion").is_ok_and(|name| name == "auto")) {
        let place = auto.values(&["to_mbit", "queue"])?;
        let is_beside = |row: &&&Row| {
            row.text("congestion").is_ok_and(|name| name == "cubic")
                && row.values(&["to_mbit", "queue"]).is_ok_and(|of| of == place)
        };
        let cubic = rows.iter().find(is_beside);
        let mut line = vec![auto.number("to_mbit")?.to_string(), auto.text("queue")?.to_owned()];
        let beside = cubic.map(|row| cells(row)).transpose()?.unwrap_or_default();
        line.extend(cells(auto)?.iter().zip(&beside).map(|(auto, cubic)| format!("{auto}/{cubic}")));
        lines.push(line);
    }
    let head = ["Falls to, Mbit/s", "Queue", "Longest wait, ms", "Wait that stays, ms", "Back after, s", "Carried, %"];
    Ok(table(&head, &lines))
}

/// Small writes on a short line that loses.
pub fn rto(rows: &[Row]) -> Result<String> {
    let line = |row: &&Row| -> Result<Vec<String>> {
        let times = [row.number("p50_ms")?, row.number("p99_ms")?, row.number("max_ms")?];
        let [p50, p99, most] = times.map(|time| format!("{time:.1}"));
        Ok(vec![row.text("min_rto")?.to_owned(), p50, p99, most, format!("{:.0}", row.number("per_second")?)])
    };
    let lines = newest(rows, &["min_rto"])?.iter().map(line).collect::<Result<Vec<_>>>()?;
    Ok(table(&["`min_rto`", "p50, ms", "p99, ms", "Most, ms", "Writes/s"], &lines))
}

/// What a write waits for in each mode on a short line.
pub fn modes(rows: &[Row]) -> Result<String> {
    let line = |row: &&Row| -> Result<Vec<String>> {
        let mut line = vec![format!("{} KiB, {}", row.number("size_kib")?, row.number("writers")?)];
        let (p50, p99) = (row.numbers("p50_ms")?, row.numbers("p99_ms")?);
        line.extend(p50.iter().zip(&p99).map(|(p50, p99)| format!("{p50:.3}/{p99:.3}")));
        Ok(line)
    };
    let lines = newest(rows, &["size_kib", "writers"])?.iter().map(line).collect::<Result<Vec<_>>>()?;
    Ok(table(&["Writes, writers", "Logging", "async", "nearsync", "sync"], &lines))
}

/// Hot pages and a log on a full line, with compression and folding, and without.
pub fn fold(rows: &[Row]) -> Result<String> {
    let line = |row: &&Row| -> Result<Vec<String>> {
        let [offered, moved, carried] =
            [row.number("offered_mbit")?, row.number("moved_mbit")?, row.number("carried_mbit")?];
        Ok(vec![
            format!("`{}`", row.text("compression")?),
            format!("`{}`", row.text("fold")?),
            three_digits(offered),
            three_digits(moved),
            three_digits(carried),
            format!("{:.2}", row.number("times")?),
        ])
    };
    let head = ["`compression`", "`fold`", "Written, Mbit/s", "Moved", "Carried", "Moved, by the line's rate"];
    let rows = newest(rows, &["compression", "fold"])?;
    Ok(table(&head, &rows.iter().map(line).collect::<Result<Vec<_>>>()?))
}

/// The paper's examples of a queue.
pub fn paper(rows: &[Row]) -> Result<String> {
    let rows = newest(rows, &["example", "when_full"])?;
    let line = |row: &&Row| -> Result<Vec<String>> {
        let seconds = |key| row.number(key).map_or_else(|_| "never".to_owned(), |time| format!("{time:.1} s"));
        Ok(vec![
            row.text("example")?.to_owned(),
            format!("`{}`", row.text("when_full")?),
            format!("{}/s", row.number("offered_per_s")?),
            format!("{:.0} KiB", row.number("peak_bytes")? / 1024.0),
            seconds("forecast_s"),
            seconds("full_s"),
            format!("{:.1}/s", row.number("written_per_s")?),
        ])
    };
    let head = [
        "Example",
        "`queue.when_full`",
        "Offered",
        "Most in the queue",
        "Forecast at 10 s",
        "Full after",
        "Written then",
    ];
    Ok(table(&head, &rows.iter().map(line).collect::<Result<Vec<_>>>()?))
}

/// What the log of the queue costs writers.
pub fn durable(rows: &[Row]) -> Result<String> {
    let line = |row: &&Row| -> Result<Vec<String>> {
        let pair = |without, with, digits: usize| -> Result<String> {
            Ok(format!("{:.digits$}/{:.digits$}", row.number(without)?, row.number(with)?))
        };
        Ok(vec![
            row.text("writes")?.to_owned(),
            pair("without_per_s", "with_per_s", 0)?,
            format!("{:.2}", row.number("ratio")?),
            pair("without_mean_ms", "with_mean_ms", 2)?,
            pair("without_p99_ms", "with_p99_ms", 2)?,
        ])
    };
    let head = ["Writes", "Writes/s without/with", "Ratio", "Mean, ms", "p99, ms"];
    Ok(table(&head, &newest(rows, &["writes"])?.iter().map(line).collect::<Result<Vec<_>>>()?))
}

/// More than the line carries, for minutes.
pub fn overload(rows: &[Row]) -> Result<String> {
    let line = |row: &&Row| -> Result<Vec<String>> {
        let [written, logging] = [row.number("written_mb_s")?, row.number("logging_mb_s")?];
        let seconds = |key| Ok::<_, anyhow::Error>(format!("{:.1} s", row.number(key)?));
        Ok(vec![
            format!("{} MiB", row.number("places_mib")?),
            format!("{written:.1}/{logging:.1} ({:.2})", written / logging),
            format!("{:.2}/{:.2}", row.number("p99_ms")?, row.number("logging_p99_ms")?),
            format!("{} of {}", row.number("promotable")?, row.number("looks")?),
            seconds("oldest_s")?,
            format!("{} of {}", row.number("named")?, row.number("looks")?),
            seconds("caught_up_s")?,
            seconds("needs_s")?,
        ])
    };
    let head = [
        "Places",
        "Written/in logging, MB/s",
        "p99/in logging, ms",
        "Promotable, of the looks",
        "Oldest copy",
        "Missing bandwidth named, of the looks",
        "Caught up after",
        "The bytes need",
    ];
    Ok(table(&head, &newest(rows, &["places_mib"])?.iter().map(line).collect::<Result<Vec<_>>>()?))
}

/// A long outage, through the disk queue.
pub fn spill(rows: &[Row]) -> Result<String> {
    let line = |row: &&Row| -> Result<Vec<String>> {
        Ok(vec![
            format!("{} s", row.number("outage_s")?),
            format!("{:.1} MB/s", row.number("written_mb_s")?),
            format!("{:.2} ms", row.number("p99_ms")?),
            format!("{} MiB", row.number("spilled_mib")?),
            format!("{} bytes", row.number("resynced_bytes")?),
            row.yes_or_no("images_equal")?.to_owned(),
            format!("{:.1} s", row.number("caught_up_s")?),
            format!("{:.1} s", row.number("needs_s")?),
        ])
    };
    let head = [
        "Outage",
        "Written",
        "p99",
        "In the disk queue",
        "Resynced",
        "Images equal",
        "Caught up after",
        "The bytes need",
    ];
    Ok(table(&head, &newest(rows, &["outage_s"])?.iter().map(line).collect::<Result<Vec<_>>>()?))
}

/// What the queue costs writers, in memory and on its way to disk.
pub fn waits(rows: &[Row]) -> Result<String> {
    let line = |row: &&Row| -> Result<Vec<String>> {
        let pair =
            |logging, queue| -> Result<String> { Ok(format!("{:.3}/{:.3}", row.number(logging)?, row.number(queue)?)) };
        let quartiles = row.numbers("ratio_p99_quartiles")?;
        Ok(vec![
            format!("{} KiB", row.number("size_kib")?),
            row.text("queue")?.to_owned(),
            pair("logging_p50_ms", "p50_ms")?,
            format!("{:.2}", row.number("ratio_p50")?),
            pair("logging_p99_ms", "p99_ms")?,
            format!("{:.2} ({:.2} to {:.2})", row.number("ratio_p99")?, quartiles[0], quartiles[1]),
            format!("{:.2}", row.number("bar")?),
            row.yes_or_no("met")?.to_owned(),
        ])
    };
    let head =
        ["Writes", "Queue in", "p50 in logging/async, ms", "Ratio", "p99, ms", "Ratio (quartiles)", "Bar", "Met"];
    Ok(table(&head, &newest(rows, &["size_kib", "queue"])?.iter().map(line).collect::<Result<Vec<_>>>()?))
}
