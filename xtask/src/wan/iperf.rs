//! iperf3 over a WAN: what TCP itself carries there.

use super::{CableSide, Wan};
use anyhow::{Context, Result, ensure};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const MBIT: f64 = 1e6;
const SERVER_PATIENCE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// One flow between the two sides.
#[derive(Clone, Copy, Debug)]
pub struct IperfFlow<'a> {
    /// The far side's.
    pub address: &'a str,
    pub seconds: u32,
    /// Seconds of start that do not count.
    pub warm_up: u32,
    /// Far to near instead of near to far.
    pub is_reverse: bool,
    /// Congestion control; `None`: the namespace's.
    pub congestion: Option<&'a str>,
}

/// Goodput in Mbit/s (of 10^6 bits): payload that was received in the time that counts.
///
/// # Errors
/// iperf3 is not installed, or did not get through.
pub fn goodput(wan: &Wan, flow: &IperfFlow) -> Result<f64> {
    let mut server = start_server(wan)?;
    let mut client = wan.command(CableSide::Near, "iperf3")?;
    let (seconds, warm_up) = (flow.seconds.to_string(), flow.warm_up.to_string());
    client.args(["-c", flow.address, "-t", &seconds, "-O", &warm_up, "-J"]);
    if flow.is_reverse {
        client.arg("-R");
    }
    if let Some(name) = flow.congestion {
        client.args(["-C", name]);
    }
    let output = client.output().context("starting `iperf3` failed; install the package iperf3");
    server.kill()?;
    server.wait()?;
    let report: serde_json::Value =
        serde_json::from_slice(&output?.stdout).context("`iperf3` did not answer with JSON")?;
    let bits_per_second = report["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .with_context(|| format!("`iperf3` over the WAN failed: {}", report["error"]))?;
    Ok(bits_per_second / MBIT)
}

fn start_server(wan: &Wan) -> Result<Child> {
    let mut command = wan.command(CableSide::Far, "iperf3")?;
    command.args(["-s", "-1"]).stdout(Stdio::null()).stderr(Stdio::null());
    let server = command.spawn().context("starting `iperf3` failed; install the package iperf3")?;
    let deadline = Instant::now() + SERVER_PATIENCE;
    loop {
        let output = wan.command(CableSide::Far, "ss")?.args(["-Htln", "sport", "=", ":5201"]).output()?;
        if !output.stdout.is_empty() {
            return Ok(server);
        }
        ensure!(Instant::now() < deadline, "the `iperf3` server does not listen");
        std::thread::sleep(LOOK_EVERY);
    }
}
