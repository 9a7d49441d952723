//! fio asks one server: for a turn, and what it got and what that cost the server; until somebody ends it; or a few
//! writes, and how long they took.

use super::server::BenchServer;
use super::workload::{BenchWorkload, Unit};
use crate::wan::sys;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};

/// What one turn came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FioRun {
    /// In the workload's unit.
    pub throughput: f64,
    /// Processor time of the server per request, microseconds; flushes are requests.
    pub cpu_us: f64,
}

#[derive(Deserialize)]
struct FioOutput {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    error: i32,
    read: FioSide,
    write: FioSide,
    sync: Syncs,
}

#[derive(Deserialize)]
struct FioSide {
    iops: f64,
    bw_bytes: f64,
    total_ios: u64,
    clat_ns: Option<FioTimes>,
}

#[derive(Deserialize)]
struct FioTimes {
    mean: f64,
    max: f64,
    #[serde(default)]
    percentile: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
struct Syncs {
    #[serde(default)]
    total_ios: u64,
}

pub fn run(server: &BenchServer, workload: &BenchWorkload, seconds: u32, round: u32) -> Result<FioRun> {
    let before = server.cpu_seconds()?;
    let mut command = Command::new("fio");
    command.args(["--name=turn", "--ioengine=nbd", "--time_based", "--output-format=json", "--norandommap"]);
    command.arg(format!("--uri={}", server.uri)).arg(format!("--runtime={seconds}"));
    // Another seed each round, the same for both servers of a round.
    command.arg(format!("--randseed={}", round + 1)).args(workload.fio);
    let output = command.stdin(Stdio::null()).output().context("starting fio failed; is it installed?")?;
    let cpu = server.cpu_seconds()? - before;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "fio with {} on {} failed: {}", workload.name, server.title, complaint.trim());
    parse(&output.stdout, workload.unit, cpu)
        .with_context(|| format!("fio with {} on {} said something odd", workload.name, server.title))
}

fn parse(stdout: &[u8], unit: Unit, cpu_seconds: f64) -> Result<FioRun> {
    let job = first_job(stdout)?;
    let requests = job.read.total_ios + job.write.total_ios + job.sync.total_ios;
    ensure!(requests > 0, "no request was answered");
    let throughput = match unit {
        Unit::Iops => job.read.iops + job.write.iops,
        Unit::Megabytes => (job.read.bw_bytes + job.write.bw_bytes) / 1e6,
    };
    Ok(FioRun { throughput, cpu_us: cpu_seconds * 1e6 / requests as f64 })
}

/// fio at work beside us. Dropped, it is killed.
pub struct Running(Child);

/// # Errors
/// fio does not start.
pub fn start(mut command: Command) -> Result<Running> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    sys::end_with_parent(&mut command);
    Ok(Running(command.spawn().context("starting fio failed; is it installed?")?))
}

impl Running {
    /// Waits for its own end, when what it logs is complete.
    ///
    /// # Errors
    /// It failed.
    pub fn ended(mut self) -> Result<()> {
        let status = self.0.wait().context("waiting for fio failed")?;
        ensure!(status.success(), "fio failed: {status}");
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail when it has ended by itself, its server being gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How long writes took, milliseconds, and how many were done a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    pub per_second: f64,
}

/// Runs fio to its end; all its jobs together.
///
/// # Errors
/// fio is not installed, fails, or does not write.
pub fn latency(mut command: Command) -> Result<Latency> {
    command.args(["--output-format=json", "--group_reporting"]);
    let output = command.stdin(Stdio::null()).output().context("starting fio failed; is it installed?")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "fio failed: {}", complaint.trim());
    parse_latency(&output.stdout).context("fio said something odd")
}

fn parse_latency(stdout: &[u8]) -> Result<Latency> {
    let job = first_job(stdout)?;
    let times = job.write.clat_ns.context("no completion times")?;
    let percentile = |name: &str| times.percentile.get(name).copied().with_context(|| format!("no percentile {name}"));
    let (p50, p99) = (percentile("50.000000")?, percentile("99.000000")?);
    let mean_ms = times.mean / 1e6;
    Ok(Latency { mean_ms, p50_ms: p50 / 1e6, p99_ms: p99 / 1e6, max_ms: times.max / 1e6, per_second: job.write.iops })
}

/// One write, in seconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FioWrite {
    pub done_s: f64,
    pub took_s: f64,
}

/// The writes of a log that fio made with `--write_lat_log` and `--log_unix_epoch=1`.
///
/// # Errors
/// A line is not as fio writes it.
pub fn logged_writes(log: &str) -> Result<Vec<FioWrite>> {
    let write = |line: &str| -> Option<FioWrite> {
        let mut fields = line.split(',').map(str::trim);
        let (done_ms, took_ns): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(FioWrite { done_s: done_ms / 1e3, took_s: took_ns / 1e9 })
    };
    log.lines().map(|line| write(line).with_context(|| format!("no line of a log of fio: {line:?}"))).collect()
}

fn first_job(stdout: &[u8]) -> Result<Job> {
    // Some versions print a line of text before the object.
    let start = stdout.iter().position(|&byte| byte == b'{').context("no JSON in its output")?;
    let output: FioOutput = serde_json::from_slice(&stdout[start..])?;
    let job = output.jobs.into_iter().next().context("no job in its output")?;
    ensure!(job.error == 0, "error {}", job.error);
    Ok(job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logged_writes_are_read() {
        let log = "1700000000250, 50250000, 1, 4096, 8192, 0\n1700000000500, 100000000, 1, 4096, 0, 0\n";
        let writes = logged_writes(log).expect("fio writes so");
        assert_eq!(writes[0], FioWrite { done_s: 1_700_000_000.25, took_s: 0.05025 });
        assert_eq!(writes.len(), 2);
        assert!(logged_writes("time, value").is_err());
    }

    #[test]
    fn a_run_is_read_from_fio_s_json() {
        let text = br#"fio: note
            {"jobs": [{"error": 0,
              "read": {"iops": 10.0, "bw_bytes": 2000000, "total_ios": 15, "other": 1},
              "write": {"iops": 5.0, "bw_bytes": 1000000, "total_ios": 5},
              "sync": {"total_ios": 20}}]}"#;
        let run = parse(text, Unit::Iops, 0.001).expect("sound");
        assert_eq!(run, FioRun { throughput: 15.0, cpu_us: 25.0 });
        assert_eq!(parse(text, Unit::Megabytes, 0.0).expect("sound").throughput, 3.0);
        assert!(parse(b"fio: no", Unit::Iops, 0.0).is_err());
    }

    #[test]
    fn times_of_writes_are_read_in_milliseconds() {
        let text = br#"{"jobs": [{"error": 0, "sync": {},
              "read": {"iops": 0.0, "bw_bytes": 0, "total_ios": 0},
              "write": {"iops": 8.5, "bw_bytes": 1000000, "total_ios": 5, "clat_ns":
                {"mean": 2500000.0, "max": 9000000, "percentile": {"50.000000": 2000000, "99.000000": 3000000}}}}]}"#;
        let latency = parse_latency(text).expect("sound");
        assert_eq!(latency, Latency { mean_ms: 2.5, p50_ms: 2.0, p99_ms: 3.0, max_ms: 9.0, per_second: 8.5 });
    }
}
