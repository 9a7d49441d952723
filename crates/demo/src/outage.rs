//! The cable is pulled under load, for longer than the queue lasts, and put back. The writers never stop.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use units::exact::show_size;

use crate::control::state;
use crate::numbers::{Sorted, millis};
use crate::printer::DemoPrinter;
use crate::report::CableCut;
use crate::stage::{DemoPair, DemoStage};
use crate::terms::{QUEUE_BYTES, RATE_BITS, SYNC_PATIENCE};
use crate::writers::{DemoWriters, WritePlan, WriteSample};

/// Half the line, in writes of the middle size.
const LOAD_BYTES_PER_S: u64 = RATE_BITS / 8 / 2;
const WRITE_BYTES: u32 = 32 << 10;
/// How long the writers run before the cut, for their usual times, and after the resync.
const BEFORE: Duration = Duration::from_secs(3);
const AFTER: Duration = Duration::from_secs(1);
/// At this load the queue of 8 MiB lasts 1.3 s.
const OUTAGE: Duration = Duration::from_secs(6);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The moments that divide the writers' samples.
struct Moments {
    cut: Instant,
    restored: Instant,
    replicating: Instant,
}

pub fn play(pair: &DemoPair, stage: &DemoStage, printer: &DemoPrinter) -> Result<CableCut> {
    printer.act("the cable is cut under load");
    pair.near.set("mode", "async")?;
    pair.near.wait_for(state::REPLICATING, SYNC_PATIENCE, |_| {})?;
    let plan = WritePlan::open(WRITE_BYTES, LOAD_BYTES_PER_S);
    let writers = DemoWriters::start(pair.near_nbd.clone(), pair.recorder.clone(), plan)?;
    printer.step("writing at half the line's rate");
    stage.interrupt.pause(BEFORE)?;
    stage.cable.cut()?;
    let cut = Instant::now();
    let written_before = writers.acknowledged_bytes();
    let states = watch_outage(pair, stage, printer)?;
    stage.cable.restore()?;
    let restored = Instant::now();
    let bytes_written = writers.acknowledged_bytes() - written_before;
    ensure!(
        bytes_written > QUEUE_BYTES,
        "only {bytes_written} bytes were written during the outage, which the queue holds; the writers were held up"
    );
    printer.step_done();
    printer.line(&format!(
        "out for {:.1} s, {} written meanwhile; the group was {}",
        (restored - cut).as_secs_f64(),
        show_size(bytes_written),
        states.join(", then ")
    ));
    let bytes_resynced = watch_resync(pair, printer)?;
    let replicating = Instant::now();
    stage.interrupt.pause(AFTER)?;
    let outcome = writers.stop()?;
    let moments = Moments { cut, restored, replicating };
    let result = weigh(&outcome.samples, &moments, bytes_written, bytes_resynced);
    printer.cut(&result);
    Ok(result)
}

/// Wait the outage out; returns the states the group went through.
fn watch_outage(pair: &DemoPair, stage: &DemoStage, printer: &DemoPrinter) -> Result<Vec<String>> {
    let began = Instant::now();
    let mut states: Vec<String> = Vec::new();
    while began.elapsed() < OUTAGE {
        let status = pair.near.status()?;
        let state = status.state.clone();
        let dirty: u64 = status.volumes.iter().map(|volume| volume.dirty_bytes).sum();
        printer.step(&format!(
            "cut, {:.1} s: {state}, queue {}, dirty {}",
            began.elapsed().as_secs_f64(),
            show_size(status.queue.bytes),
            show_size(dirty)
        ));
        if states.last() != Some(&state) {
            states.push(state);
        }
        stage.interrupt.pause(LOOK_EVERY)?;
    }
    Ok(states)
}

/// Watch the group find back to `replicating`; returns the bytes the resync had to bring over.
fn watch_resync(pair: &DemoPair, printer: &DemoPrinter) -> Result<u64> {
    // A catch-up by snapshots brings over one after the other.
    let (mut before, mut snapshot, mut bytes) = (0, None, 0);
    pair.near.wait_for(state::REPLICATING, SYNC_PATIENCE, |status| {
        if let Some(sync) = &status.sync {
            if sync.snapshot != snapshot {
                (before, snapshot, bytes) = (before + bytes, sync.snapshot, 0);
            }
            bytes = bytes.max(sync.total_bytes).max(sync.done_bytes);
        }
        printer.progress(status);
    })?;
    printer.step_done();
    Ok(before + bytes)
}

fn weigh(samples: &[WriteSample], moments: &Moments, bytes_written: u64, bytes_resynced: u64) -> CableCut {
    // A write belongs to every stretch of time that it was waiting in.
    let longest = |from: Instant, to: Instant| {
        let within = samples.iter().filter(|sample| sample.began < to && sample.began + sample.took > from);
        Sorted::new(within.map(|sample| sample.took).collect()).longest()
    };
    let before = samples.iter().filter(|sample| sample.began + sample.took <= moments.cut);
    let before = Sorted::new(before.map(|sample| sample.took).collect());
    let during_cut = longest(moments.cut, moments.restored);
    let during_resync = longest(moments.restored, moments.replicating);
    CableCut {
        outage_s: (moments.restored - moments.cut).as_secs_f64(),
        bytes_written,
        bytes_resynced,
        resync_s: (moments.replicating - moments.restored).as_secs_f64(),
        longest_write_ms: millis(during_cut.max(during_resync)),
        longest_write_cut_ms: millis(during_cut),
        longest_write_resync_ms: millis(during_resync),
        before_p50_ms: millis(before.median()),
        before_p999_ms: millis(before.share(0.999)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_counts_wherever_it_waited() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let sample = |from: u64, to: u64| WriteSample { began: at(from), took: Duration::from_millis(to - from) };
        let moments = Moments { cut: at(100), restored: at(200), replicating: at(300) };
        let samples = [sample(0, 10), sample(20, 22), sample(90, 130), sample(150, 155), sample(290, 400)];
        let cut = weigh(&samples, &moments, 1, 2);
        assert_eq!((cut.longest_write_cut_ms, cut.longest_write_resync_ms), (40.0, 110.0));
        assert_eq!((cut.longest_write_ms, cut.before_p999_ms, cut.before_p50_ms), (110.0, 10.0, 2.0));
    }
}
