//! Listings of the benches: what they print is what the pages show.

use super::Row;
use super::table::newest;
use anyhow::Result;
use std::fmt::Write;

/// The export beside other servers.
///
/// # Errors
/// A row lacks a figure.
pub fn export_text(rows: &[Row]) -> Result<String> {
    let rows = newest(rows, &["name"])?;
    let width = width(&rows)?;
    let mut text = format!(
        "{:width$}  {:>10}  {:>10}  {:<10}  {:>6}  {:<6}  met  peer\n",
        "", "ours", "peer", "unit", "ratio", "bar"
    );
    for row in rows {
        writeln!(
            text,
            "{:width$}  {:>10.1}  {:>10.1}  {:<10}  {:>6.2}  {:<6}  {:<3}  {}",
            row.text("name")?,
            row.number("ours")?,
            row.number("peer_value")?,
            row.text("unit")?,
            row.number("ratio")?,
            row.text("bar")?,
            row.yes_or_no("met")?,
            row.text("peer")?
        )?;
    }
    Ok(text)
}

/// Other groups' clients beside trouble.
///
/// # Errors
/// A row lacks a figure.
pub fn beside_text(rows: &[Row]) -> Result<String> {
    let rows = newest(rows, &["name"])?;
    let width = width(&rows)?;
    let mut text = format!(
        "{:width$}  {:>9}  {:>10}  {:>5}  {:>3}  met  {:>12}  {:>7}  {:>7}\n",
        "", "p99 alone", "p99 beside", "ratio", "bar", "memory alone", "beside", "limit"
    );
    for row in rows {
        let [alone, beside] = [row.number("p99_alone_ms")?, row.number("p99_beside_ms")?];
        let memory = |key: &str| row.number(key).map(memory_text);
        let (memory_alone, memory_beside) = (memory("memory_alone_mib")?, memory("memory_beside_mib")?);
        let memory_limit = memory("memory_limit_mib")?;
        writeln!(
            text,
            "{:width$}  {alone:>6.2} ms  {beside:>7.2} ms  {:>5.2}  {:>3}  {:<3}  {memory_alone:>12}  \
             {memory_beside:>7}  {memory_limit:>7}",
            row.text("name")?,
            row.number("ratio")?,
            row.number("ratio_max")?,
            row.yes_or_no("met")?
        )?;
    }
    Ok(text)
}

/// The return of a killed primary.
///
/// # Errors
/// A row lacks a figure, or there is none.
pub fn recovery_text(rows: &[Row]) -> Result<String> {
    let rows = newest(rows, &["name"])?;
    let mut text = String::new();
    if let Some(first) = rows.first() {
        let [volumes, gib, sync_s] =
            [first.number("volumes")?, first.number("volume_gib")?, first.number("first_sync_s")?];
        writeln!(text, "{volumes} x {gib} GiB, first sync {sync_s:.1} s")?;
    }
    writeln!(
        text,
        "{:22}  {:>8}  {:>8}  {:>10}  {:>8}  {:>12}  {:>11}  {:>11}  bars met",
        "", "serves", "worst", "replicates", "writes", "compared MiB", "shipped MiB", "pulled MiB"
    )?;
    for row in rows {
        writeln!(
            text,
            "{:22}  {:6.2} s  {:6.2} s  {:8.2} s  {:>8.0}  {:>12.1}  {:>11.1}  {:>11.1}  {}",
            row.text("name")?,
            row.number("served_s")?,
            row.number("served_s_most")?,
            row.number("replicating_s")?,
            row.number("writes")?,
            row.number("compared_mib")?,
            row.number("shipped_mib")?,
            row.number("pulled_mib")?,
            row.yes_or_no("met")?
        )?;
    }
    Ok(text)
}

/// Of so many MiB.
fn memory_text(mib: f64) -> String {
    if mib > 0.0 && mib % 1024.0 == 0.0 { format!("{} GiB", mib / 1024.0) } else { format!("{mib:.0} MiB") }
}

/// Of the longest name.
fn width(rows: &[&Row]) -> Result<usize> {
    let widths = rows.iter().map(|row| row.text("name").map(str::len)).collect::<Result<Vec<usize>>>()?;
    Ok(widths.into_iter().max().unwrap_or(0))
}
