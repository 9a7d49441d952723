//! One turn: fio asks one server for a while; what it got, and what that cost the server.

use super::server::Server;
use super::workload::{Unit, Workload};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::process::{Command, Stdio};

/// What one turn came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// In the workload's unit.
    pub throughput: f64,
    /// Processor time of the server per request, microseconds; flushes are requests.
    pub cpu_us: f64,
}

#[derive(Deserialize)]
struct Output {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    error: i32,
    read: Side,
    write: Side,
    sync: Syncs,
}

#[derive(Deserialize)]
struct Side {
    iops: f64,
    bw_bytes: f64,
    total_ios: u64,
}

#[derive(Deserialize)]
struct Syncs {
    #[serde(default)]
    total_ios: u64,
}

pub fn run(server: &Server, workload: &Workload, seconds: u32, round: u32) -> Result<Turn> {
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

fn parse(stdout: &[u8], unit: Unit, cpu_seconds: f64) -> Result<Turn> {
    // Some versions print a line of text before the object.
    let start = stdout.iter().position(|&byte| byte == b'{').context("no JSON in its output")?;
    let output: Output = serde_json::from_slice(&stdout[start..])?;
    let job = output.jobs.first().context("no job in its output")?;
    ensure!(job.error == 0, "error {}", job.error);
    let requests = job.read.total_ios + job.write.total_ios + job.sync.total_ios;
    ensure!(requests > 0, "no request was answered");
    let throughput = match unit {
        Unit::Iops => job.read.iops + job.write.iops,
        Unit::Megabytes => (job.read.bw_bytes + job.write.bw_bytes) / 1e6,
    };
    Ok(Turn { throughput, cpu_us: cpu_seconds * 1e6 / requests as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_read_from_fio_s_json() {
        let text = br#"fio: note
            {"jobs": [{"error": 0,
              "read": {"iops": 10.0, "bw_bytes": 2000000, "total_ios": 15, "other": 1},
              "write": {"iops": 5.0, "bw_bytes": 1000000, "total_ios": 5},
              "sync": {"total_ios": 20}}]}"#;
        let turn = parse(text, Unit::Iops, 0.001).expect("sound");
        assert_eq!(turn, Turn { throughput: 15.0, cpu_us: 25.0 });
        assert_eq!(parse(text, Unit::Megabytes, 0.0).expect("sound").throughput, 3.0);
        assert!(parse(b"fio: no", Unit::Iops, 0.0).is_err());
    }
}
