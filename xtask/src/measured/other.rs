//! Tables of measurements that no bench of this program makes: tests, examples and commands print them, and people add the rows.

use super::Row;
use super::table::{Cells, Pivot, newest, size_text, spaced, table, trimmed};
use anyhow::Result;
use units::quantities::{Bytes, Seconds, show_bytes, show_time};

/// Line tests without and with Nagle.
pub fn nagle(rows: &[Row]) -> Result<String> {
    let line = |row: &&Row| -> Result<Vec<String>> {
        let name = format!("{}, {}", row.text("mode")?, size_text(row.number("flush_bytes")?));
        let times =
            |p50: &str, p99: &str| -> Result<String> { Ok(format!("{:.1}/{:.1}", row.number(p50)?, row.number(p99)?)) };
        Ok(vec![name, times("off_p50_ms", "off_p99_ms")?, times("on_p50_ms", "on_p99_ms")?])
    };
    let lines = newest(rows, &["mode", "flush_bytes"])?.iter().map(line).collect::<Result<Vec<_>>>()?;
    Ok(table(&["Mode, flush", "Nagle off", "on"], &lines))
}

/// What TLS costs over loopback.
pub fn encryption(rows: &[Row]) -> Result<String> {
    let line = |row: &&Row| -> Result<Vec<String>> {
        let rates = |name: &str| -> Result<String> {
            let of = |key: &str| row.number(&format!("{name}_{key}")).map(spaced);
            Ok(format!("{} ({} to {})", of("mb_per_s")?, of("mb_per_s_least")?, of("mb_per_s_most")?))
        };
        Ok(vec![size_text(row.number("frame_bytes")?), rates("plain")?, rates("tls")?])
    };
    let lines = newest(rows, &["frame_bytes"])?.iter().map(line).collect::<Result<Vec<_>>>()?;
    Ok(table(&["Frames of", "Plain", "TLS 1.3"], &lines))
}

/// What a daemon that is recorded spends.
pub fn recording(rows: &[Row]) -> Result<String> {
    let line = |row: &&Row| -> Result<Vec<String>> {
        let time = |key: &str| -> Result<String> {
            let us = row.number(key)?;
            Ok(if us == 0.0 { "0 µs".to_owned() } else { format!("{us:.3} µs") })
        };
        let ratio = match row.number("ratio") {
            Ok(ratio) => format!("{ratio:.3} ({})", halves(row)?),
            Err(_) => String::new(),
        };
        Ok(vec![row.text("threads")?.to_owned(), time("plain_us")?, time("recorded_us")?, ratio])
    };
    let lines = newest(rows, &["threads"])?.iter().map(line).collect::<Result<Vec<_>>>()?;
    let head = ["4 KiB writes, 32 at once", "not recorded", "recorded", "ratio (of each half, with quartiles)"];
    Ok(table(&head, &lines))
}

/// The ratio of each half of the rounds, and between which quartiles.
fn halves(row: &Row) -> Result<String> {
    let [ratios, lower, upper] =
        [row.numbers("half_ratios")?, row.numbers("half_lower_quartiles")?, row.numbers("half_upper_quartiles")?];
    let halves = ratios.iter().zip(lower).zip(upper);
    let halves = halves.map(|((ratio, lower), upper)| format!("{ratio:.3}, {lower:.3} to {upper:.3}"));
    Ok(halves.collect::<Vec<String>>().join("; "))
}

/// What the planner said, and what daemons did.
pub fn reality(rows: &[Row]) -> Result<String> {
    let left: Cells = |row| Ok(vec![row.text("case")?.to_owned(), row.text("figure")?.to_owned()]);
    let above: Cells = |row| Ok(vec![row.text("stat")?.to_owned()]);
    Pivot { head: &["Case", ""], left, above, cells: planned_and_measured }.text(rows)
}

/// In bytes or in seconds, and how far the measured one is off.
fn planned_and_measured(row: &Row) -> Result<Vec<String>> {
    let [planned, measured] = match row.number("planned_bytes") {
        Ok(planned) => [planned, row.number("measured_bytes")?].map(|bytes| show_bytes(Bytes(bytes as u64))),
        Err(_) => [row.number("planned_s")?, row.number("measured_s")?].map(|seconds| show_time(Seconds(seconds))),
    };
    let off = row.number("off_percent").map(|percent| format!(" ({percent:+.1} %)")).unwrap_or_default();
    Ok(vec![format!("{planned}, {measured}{off}")])
}

/// What a flush of a line test takes in each mode, beside its formula.
pub fn line_modes(rows: &[Row]) -> Result<String> {
    let line = |row: &&Row| -> Result<Vec<String>> {
        let times = [row.number("formula_ms")?, row.number("p50_ms")?, row.number("mean_ms")?];
        let [formula, p50, mean] = times.map(|time| format!("{time:.2}"));
        Ok(vec![row.text("mode")?.to_owned(), formula, p50, mean, format!("{:+.1}", row.number("off_percent")?)])
    };
    let lines = newest(rows, &["mode"])?.iter().map(line).collect::<Result<Vec<_>>>()?;
    Ok(table(&["Mode", "Formula, ms", "p50, ms", "Mean, ms", "Off, %"], &lines))
}

/// Line tests with fixed buffers beside table B-1.
pub fn line_buffers(rows: &[Row]) -> Result<String> {
    let left: Cells = |row| Ok(vec![row.number("rtt_ms")?.to_string()]);
    let above: Cells = |row| {
        let table = format!("{} KiB: B-1", row.number("buffer_kib")?);
        Ok([table.as_str(), "Measured", "By window", "Off, %"].map(str::to_owned).to_vec())
    };
    let cells: Cells = |row| {
        let [measured, by_window] = [row.number("measured_mibit")?, row.number("window_mibit")?];
        let off = format!("{:+.1}", row.number("off_percent")?);
        let table = trimmed(row.number("table_mibit")?, 2);
        Ok(vec![table, format!("{measured:.2}"), format!("{by_window:.2}"), off])
    };
    Pivot { head: &["Round trip, ms"], left, above, cells }.text(rows)
}

/// How fast the planner reads traces.
pub fn scan(rows: &[Row]) -> Result<String> {
    let line = |row: &&Row| -> Result<Vec<String>> {
        let rate = trimmed(row.number("mb_per_s")?, 0);
        let rate = if row.text("of")? == "unpacked" { format!("{rate} unpacked") } else { rate };
        Ok(vec![row.text("format")?.to_owned(), spaced(row.number("records_per_s")?), rate])
    };
    let lines = newest(rows, &["format"])?.iter().map(line).collect::<Result<Vec<_>>>()?;
    Ok(table(&["format", "records/s", "MB/s of the file"], &lines))
}

/// How true the emulated WAN is. The check prints several figures in one cell, so its rows are texts.
pub fn wan(rows: &[Row]) -> Result<String> {
    const KEYS: [&str; 4] = ["measurement", "asked", "measured", "forwarder"];
    let line = |row: &&Row| KEYS.iter().map(|key| row.text(key).map(str::to_owned)).collect::<Result<Vec<String>>>();
    let lines = newest(rows, &KEYS[..1])?.iter().map(line).collect::<Result<Vec<_>>>()?;
    Ok(table(&KEYS, &lines))
}
