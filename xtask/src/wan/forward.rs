//! Carries packets between the two TUN devices: one thread per direction, one `ppoll` per wake-up.
//!
//! A thread sleeps until its device has something to read or the oldest packet in flight is due,
//! takes up to a batch of packets in, hands out all that are due, and sleeps again. It holds its
//! pipe's lock while awake, so a change from outside falls between two turns, never into one.

use super::pipe::PacketPipe;
use super::{packet, sys};
use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Instant;

/// Packets taken in before those that are due get their turn.
const READ_BATCH: usize = 64;

/// A pipe shared between its forwarding thread and those who watch and change it.
pub struct PipeDirection {
    pipe: Mutex<PacketPipe>,
    failure: Mutex<Option<String>>,
}

impl PipeDirection {
    pub fn new(pipe: PacketPipe) -> PipeDirection {
        PipeDirection { pipe: Mutex::new(pipe), failure: Mutex::new(None) }
    }

    pub fn pipe(&self) -> MutexGuard<'_, PacketPipe> {
        self.pipe.lock().expect("no holder of a pipe panics")
    }

    /// Why this direction stopped forwarding, if it did.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().expect("no holder panics").clone()
    }
}

/// A signal to all threads of one WAN that never goes away once given.
#[derive(Clone)]
pub struct StopSignal(Arc<OwnedFd>);

impl StopSignal {
    pub fn new() -> Result<StopSignal> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(StopSignal(Arc::new(event)))
    }

    pub fn give(&self) {
        rustix::io::write(&*self.0, &1u64.to_ne_bytes()).expect("an eventfd takes its first count");
    }

    pub fn poll_fd(&self) -> PollFd<'_> {
        PollFd::new(&*self.0, PollFlags::IN)
    }
}

/// Starts the thread of one direction.
pub fn spawn(
    name: &str,
    direction: Arc<PipeDirection>,
    source: File,
    target: File,
    stop: StopSignal,
) -> Result<JoinHandle<()>> {
    let worker = move || {
        // Without the permission delays are still right on an idle machine, so that is no error.
        sys::make_punctual();
        if let Err(error) = forward(&direction, &source, &target, &stop) {
            let sentence = format!("forwarding stopped: {error:#}");
            eprintln!("wan: {sentence}");
            *direction.failure.lock().expect("no holder panics") = Some(sentence);
        }
    };
    Ok(std::thread::Builder::new().name(name.to_owned()).spawn(worker)?)
}

fn forward(direction: &PipeDirection, source: &File, target: &File, stop: &StopSignal) -> Result<()> {
    let start = Instant::now();
    let now_ns = || start.elapsed().as_nanos() as u64;
    let mut frame = vec![0; packet::FRAME_BYTES_MAX];
    loop {
        let next_due_ns = direction.pipe().next_due_ns();
        let timeout = next_due_ns.map(|due_ns| timespec(due_ns.saturating_sub(now_ns())));
        let mut ready = [PollFd::new(source, PollFlags::IN), stop.poll_fd()];
        match poll(&mut ready, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for packets"),
        }
        if !ready[1].revents().is_empty() {
            return Ok(());
        }
        let mut pipe = direction.pipe();
        if !ready[0].revents().is_empty() {
            take_in(&mut pipe, source, &mut frame, &now_ns)?;
        }
        hand_out(&mut pipe, target, &now_ns);
    }
}

fn take_in(pipe: &mut PacketPipe, mut source: &File, frame: &mut [u8], now_ns: &impl Fn() -> u64) -> Result<()> {
    for _ in 0..READ_BATCH {
        match source.read(frame) {
            Ok(len) => pipe.arrive(now_ns(), &frame[..len]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("reading from the TUN device"),
        }
    }
    Ok(())
}

fn hand_out(pipe: &mut PacketPipe, mut target: &File, now_ns: &impl Fn() -> u64) {
    let mut handed_out = 0;
    while let Some(frame) = pipe.due(now_ns()) {
        // The far side may refuse a packet (its interface is down): that is a lost packet, counted.
        let was_accepted = target.write(frame).is_ok();
        pipe.delivered(now_ns(), was_accepted);
        handed_out += 1;
        if handed_out == READ_BATCH {
            break;
        }
    }
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ }
}
