//! `cargo xtask wan check`: is the emulated link what it says it is?

use super::iperf::{self, IperfFlow};
use super::{CableSide, FAR_ADDRESS4, FAR_ADDRESS6, Wan, WanOptions, netns};
use anyhow::{Context, Result};
use serde::Serialize;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const MBIT: u64 = 1_000_000;
const MS: u64 = 1_000_000;
const MTU_BYTES: f64 = 1500.0;
/// Payload of a full segment: the MTU less IP and TCP headers with timestamps.
const SEGMENT_PAYLOAD_BYTES_V4: f64 = 1448.0;
const SEGMENT_PAYLOAD_BYTES_V6: f64 = 1428.0;
const GOODPUT_SHARE_MIN: f64 = 0.95;
const PING_ERROR_MS_MAX: f64 = 1.0;

#[derive(Serialize)]
struct WanCheckReport {
    schema: u32,
    rows: Vec<CheckRow>,
}

/// One measurement beside what was asked for. Rows without a bar are for the reader's judgement.
#[derive(Serialize)]
struct CheckRow {
    name: String,
    asked: f64,
    measured: f64,
    unit: &'static str,
    bar: Option<String>,
    met: Option<bool>,
    /// Share of one processor the forwarder used meanwhile, in percent.
    cpu_percent: Option<f64>,
}

/// Measures, prints, and fails if a bar is missed.
pub fn main(json: bool) -> Result<ExitCode> {
    let mut rows = Vec::new();
    if !json {
        println!(
            "| {:<44} | {:>8} | {:>15} | {:<10} | verdict | forwarder |\n|---|---|---|---|---|---|",
            "measurement", "asked", "measured", "bar"
        );
    }
    for rtt_ms in [0, 10, 50, 200] {
        let mut report = |row: CheckRow| rows.push(announce(row, json));
        let wan = Wan::start(WanOptions::link(rtt_ms * MS, 1000 * MBIT))?;
        report(ping_row(&wan, "IPv4", FAR_ADDRESS4, rtt_ms as f64)?);
        if netns::has_ipv6() {
            report(ping_row(&wan, "IPv6", FAR_ADDRESS6, rtt_ms as f64)?);
        }
    }
    for (rate_mbit, rtt_ms) in [(100, 50), (1000, 10)] {
        let options = WanOptions::link(rtt_ms * MS, rate_mbit * MBIT);
        rows.push(announce(goodput_row(options.clone(), FAR_ADDRESS4, false)?, json));
        rows.push(announce(goodput_row(options.clone(), FAR_ADDRESS4, true)?, json));
        if netns::has_ipv6() {
            rows.push(announce(goodput_row(options, FAR_ADDRESS6, false)?, json));
        }
    }
    for (rate_mbit, rtt_ms) in [(100, 50), (1000, 10)] {
        rows.push(announce(loss_row(rate_mbit, rtt_ms, 0.001)?, json));
    }
    let is_met = rows.iter().all(|row| row.met != Some(false));
    if json {
        println!("{}", serde_json::to_string_pretty(&WanCheckReport { schema: 1, rows })?);
    }
    Ok(if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn announce(row: CheckRow, json: bool) -> CheckRow {
    if !json {
        let verdict = match row.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "-",
        };
        let CheckRow { name, asked, measured, unit, .. } = &row;
        let bar = row.bar.as_deref().unwrap_or("-");
        let cpu = row.cpu_percent.map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.0} % core"));
        println!("| {name:<44} | {asked:8.2} | {measured:8.2} {unit:<6} | {bar:<10} | {verdict:<7} | {cpu:>9} |");
    }
    row
}

fn ping_row(wan: &Wan, family: &str, address: &str, rtt_ms: f64) -> Result<CheckRow> {
    let output = wan
        .command(CableSide::Near, "ping")?
        .args(["-q", "-c", "25", "-i", "0.1", address])
        .output()
        .context("starting `ping` failed; install the package iputils-ping")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let average_ms: f64 = text
        .lines()
        .find_map(|line| line.strip_prefix("rtt min/avg/max/mdev = "))
        .and_then(|numbers| numbers.split('/').nth(1))
        .and_then(|number| number.parse().ok())
        .with_context(|| format!("`ping` over the WAN gave no round trip: {}", text.trim()))?;
    Ok(CheckRow {
        name: format!("ping {family}, round trip {rtt_ms} ms, average of 25"),
        asked: rtt_ms,
        measured: average_ms,
        unit: "ms",
        bar: Some("+- 1 ms".to_owned()),
        met: Some((average_ms - rtt_ms).abs() <= PING_ERROR_MS_MAX),
        cpu_percent: None,
    })
}

fn goodput_row(options: WanOptions, address: &str, is_reverse: bool) -> Result<CheckRow> {
    let rate_mbit = (options.rate_bits_per_second / MBIT) as f64;
    let rtt_ms = 2 * options.delay_ns / MS;
    let (family, payload_bytes) =
        if address.contains(':') { ("IPv6", SEGMENT_PAYLOAD_BYTES_V6) } else { ("IPv4", SEGMENT_PAYLOAD_BYTES_V4) };
    let way = if is_reverse { "far to near" } else { "near to far" };
    let asked = rate_mbit * payload_bytes / MTU_BYTES;
    let (measured, cpu_percent) = iperf(&Wan::start(options)?, address, is_reverse)?;
    Ok(CheckRow {
        name: format!("cubic {family}, {rate_mbit} Mbit/s, {rtt_ms} ms, {way}"),
        asked,
        measured,
        unit: "Mbit/s",
        bar: Some(">= 95 %".to_owned()),
        met: Some(measured >= GOODPUT_SHARE_MIN * asked),
        cpu_percent: Some(cpu_percent),
    })
}

/// With random loss cubic falls back to Reno's law, 1.22 MSS / (RTT sqrt p): agreement shows that
/// loss hits single segments and not whole trains.
fn loss_row(rate_mbit: u64, rtt_ms: u64, loss: f64) -> Result<CheckRow> {
    let options = WanOptions { loss, ..WanOptions::link(rtt_ms * MS, rate_mbit * MBIT) };
    let law_mbit = 1.22 * SEGMENT_PAYLOAD_BYTES_V4 * 8.0 / (rtt_ms as f64 * 1e-3 * loss.sqrt()) / MBIT as f64;
    let (measured, cpu_percent) = iperf(&Wan::start(options)?, FAR_ADDRESS4, false)?;
    Ok(CheckRow {
        name: format!("cubic IPv4, {rate_mbit} Mbit/s, {rtt_ms} ms, {} % loss", loss * 100.0),
        asked: law_mbit,
        measured,
        unit: "Mbit/s",
        bar: None,
        met: None,
        cpu_percent: Some(cpu_percent),
    })
}

/// Goodput in Mbit/s over ten seconds after three seconds of start, and the forwarder's share of a
/// processor.
fn iperf(wan: &Wan, address: &str, is_reverse: bool) -> Result<(f64, f64)> {
    let start = (Instant::now(), processor_time()?);
    let flow = IperfFlow { address, seconds: 10, warm_up: 3, is_reverse, congestion: None };
    let goodput_mbit = iperf::goodput(wan, &flow)?;
    let cpu_percent = (processor_time()? - start.1).div_duration_f64(start.0.elapsed()) * 100.0;
    Ok((goodput_mbit, cpu_percent))
}

/// Processor time of this process so far: nearly all of it is the forwarder's.
pub fn processor_time() -> Result<Duration> {
    let clock = rustix::time::ClockId::ProcessCPUTime;
    let time = rustix::time::clock_gettime(clock);
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}
