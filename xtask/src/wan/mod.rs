//! A WAN in a box: two network namespaces, "near" and "far", and a long cable between them.
//!
//! The cable is ours: a TUN device at each end and two threads that carry packets from one to the
//! other, late, at a limited rate, sometimes not at all and sometimes damaged. So it works on
//! kernels without `sch_netem`, it can be cut while running, and it can do what no network does on
//! purpose: change a payload bit so that TCP does not notice.
//!
//! Reading order: `packet` (what the kernel hands over), `pipe` (one direction as arithmetic),
//! `forward` (the threads), `netns` (the namespaces and how they vanish), `control`, `cli`.

pub mod check;
pub mod cli;
mod control;
mod forward;
pub mod iperf;
#[cfg(test)]
mod live_tests;
pub mod netns;
mod packet;
mod pipe;
mod ring;
pub mod sys;

use anyhow::{Result, ensure};
use control::Network;
use forward::{PipeDirection, StopSignal};
use netns::{Claim, Namespace, SitePlan, Turnstile};
use pipe::{LineSettings, PacketPipe};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The namespaces see nobody else, so every WAN can use the same addresses.
pub const NEAR_ADDRESS4: &str = "10.203.0.1";
pub const FAR_ADDRESS4: &str = "10.203.0.2";
pub const NEAR_ADDRESS6: &str = "fd20:3::1";
pub const FAR_ADDRESS6: &str = "fd20:3::2";
/// IPv6 asks for at least 1280; the largest is what a TUN frame can hold.
const MTU_MIN: u32 = 1280;
const MTU_MAX: u32 = 65_535;

/// A side of the cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CableSide {
    Near,
    Far,
}

/// What the WAN is like at the start. The control socket changes it later.
#[derive(Clone, Debug)]
pub struct WanOptions {
    /// Names the namespaces (`NAME-near`, `NAME-far`); `None`: `wan-` and the process id.
    pub name: Option<String>,
    /// Delay of each direction in nanoseconds: half the round trip.
    pub delay_ns: u64,
    pub rate_bits_per_second: u64,
    /// `None`: one bandwidth-delay product of the round trip.
    pub queue_bytes: Option<u64>,
    /// Share of segments, 0 to 1.
    pub loss: f64,
    /// Share of segments, 0 to 1.
    pub corrupt: f64,
    pub reorder: f64,
    pub drop_above_bytes: Option<u64>,
    pub mtu: u32,
    /// TCP congestion control of both sides.
    pub congestion: String,
    pub seed: u64,
}

impl WanOptions {
    /// A lossless link with the given round trip and rate.
    pub fn link(rtt_ns: u64, rate_bits_per_second: u64) -> WanOptions {
        WanOptions {
            name: None,
            delay_ns: rtt_ns / 2,
            rate_bits_per_second,
            queue_bytes: None,
            loss: 0.0,
            corrupt: 0.0,
            reorder: 0.0,
            drop_above_bytes: None,
            mtu: 1500,
            congestion: "cubic".to_owned(),
            seed: 1,
        }
    }

    fn line(&self) -> LineSettings {
        LineSettings {
            delay_ns: self.delay_ns,
            rate_bits_per_second: self.rate_bits_per_second,
            queue_bytes: self.queue_bytes,
            loss: self.loss,
            corrupt: self.corrupt,
            reorder: self.reorder,
            drop_above_bytes: self.drop_above_bytes,
            is_cut: false,
        }
    }
}

/// Whether this process may make a WAN, or what is missing.
///
/// # Errors
/// A sentence that says what to do.
pub fn available() -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "an emulated WAN needs root; run this as root");
    ensure!(
        Path::new("/dev/net/tun").exists(),
        "an emulated WAN needs /dev/net/tun, which is missing; load the kernel module tun"
    );
    Ok(())
}

/// A running WAN. Dropping it ends what runs in its namespaces and removes every trace.
pub struct Wan {
    network: Network,
    stop: StopSignal,
    threads: Vec<JoinHandle<()>>,
    // In this order: the namespaces go before the claim that would tell a later start of them.
    near: Namespace,
    far: Namespace,
    claim: Claim,
}

impl Wan {
    /// Sets everything up, sweeping first what earlier, killed WANs left.
    ///
    /// # Errors
    /// A sentence about the missing permission, device or program, or the name in use.
    pub fn start(options: WanOptions) -> Result<Wan> {
        available()?;
        ensure!(
            (MTU_MIN..=MTU_MAX).contains(&options.mtu),
            "an MTU of {} does not work: choose {MTU_MIN} to {MTU_MAX}",
            options.mtu
        );
        let name = options.name.clone().unwrap_or_else(|| format!("wan-{}", std::process::id()));
        let turnstile = Turnstile::enter()?;
        let _allowance = turnstile.allow_congestion(&options.congestion)?;
        let claim = Claim::take(&turnstile, &name)?;
        let site = |side, address4: &str, address6: &str| {
            let plan = SitePlan {
                side,
                address4: &format!("{address4}/24"),
                address6: &format!("{address6}/64"),
                mtu: options.mtu,
                congestion: &options.congestion,
            };
            Namespace::make(&claim, &plan)
        };
        let (near, near_tun) = site("near", NEAR_ADDRESS4, NEAR_ADDRESS6)?;
        let (far, far_tun) = site("far", FAR_ADDRESS4, FAR_ADDRESS6)?;
        let pipe = |seed| {
            let pipe = PacketPipe::new(options.line(), 2 * options.delay_ns, seed, pipe::RING_BYTES);
            Arc::new(PipeDirection::new(pipe))
        };
        // Two directions of one seed must not draw the same numbers.
        let network = Network { ab: pipe(options.seed), ba: pipe(!options.seed) };
        let stop = StopSignal::new()?;
        let mut wan = Wan { network, stop, threads: Vec::new(), near, far, claim };
        wan.spawn_threads(near_tun, far_tun)?;
        Ok(wan)
    }

    /// A program that will start inside one side's namespace.
    pub fn command(&self, side: CableSide, program: &str) -> Result<Command> {
        self.namespace(side).command(program)
    }

    /// Changes the running line by a command of the control socket, such as `cut`.
    ///
    /// # Errors
    /// A sentence about the command, which then changed nothing.
    pub fn control(&self, line: &str) -> Result<()> {
        self.network.execute(self.claim.name(), line).map(drop)
    }

    /// Where other processes send commands.
    pub fn control_path(&self) -> PathBuf {
        self.claim.control_path()
    }

    /// What programs that use the WAN find in their environment.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            ("FARSHORE_WAN_NEAR_NS", self.near.name().to_owned()),
            ("FARSHORE_WAN_FAR_NS", self.far.name().to_owned()),
            ("FARSHORE_WAN_NEAR_ADDR", NEAR_ADDRESS4.to_owned()),
            ("FARSHORE_WAN_FAR_ADDR", FAR_ADDRESS4.to_owned()),
            ("FARSHORE_WAN_CONTROL", self.control_path().display().to_string()),
        ];
        if netns::has_ipv6() {
            variables.push(("FARSHORE_WAN_NEAR_ADDR6", NEAR_ADDRESS6.to_owned()));
            variables.push(("FARSHORE_WAN_FAR_ADDR6", FAR_ADDRESS6.to_owned()));
        }
        variables
    }

    fn namespace(&self, side: CableSide) -> &Namespace {
        match side {
            CableSide::Near => &self.near,
            CableSide::Far => &self.far,
        }
    }

    fn spawn_threads(&mut self, near_tun: std::fs::File, far_tun: std::fs::File) -> Result<()> {
        let (near_write, far_write) = (near_tun.try_clone()?, far_tun.try_clone()?);
        let Network { ab, ba } = self.network.clone();
        self.threads.push(forward::spawn("wan-ab", ab, near_tun, far_write, self.stop.clone())?);
        self.threads.push(forward::spawn("wan-ba", ba, far_tun, near_write, self.stop.clone())?);
        let path = self.control_path();
        let name = self.claim.name().to_owned();
        self.threads.push(control::serve(&path, name, self.network.clone(), self.stop.clone())?);
        Ok(())
    }
}

impl Drop for Wan {
    fn drop(&mut self) {
        self.stop.give();
        for thread in self.threads.drain(..) {
            // A panic in there has already been printed by its thread.
            let _ = thread.join();
        }
    }
}
