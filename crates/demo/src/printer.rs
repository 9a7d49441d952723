//! The report for people: an act has a heading and a few lines; what is going on now is one line that is overwritten.

use std::cell::RefCell;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use units::exact::show_size;

use crate::control::DemoStatus;
use crate::report::{CableCut, DemoMode, DemoReport, Failover, ResultCell};
use crate::stage::DemoStage;
use crate::terms::{RATE_BITS, RTT};

/// How often the sign of life moves.
const TICK: Duration = Duration::from_millis(120);

/// Speaks to standard output, or with `--json` not at all; bars and steps go to standard error, on a terminal only.
pub struct DemoPrinter {
    silent: bool,
    /// What is going on now, if something is.
    now: RefCell<Option<ProgressBar>>,
}

impl DemoPrinter {
    pub fn new(silent: bool) -> Self {
        Self { silent, now: RefCell::new(None) }
    }

    pub fn opening(&self, stage: &DemoStage) {
        let line = match stage.cable.kind() {
            "wan" => "an emulated WAN between two network namespaces",
            _ => "a relay on loopback (no loss, no TCP over the distance: see docs/book/demo.md)",
        };
        let rate = RATE_BITS / 1_000_000;
        self.line_plain(&format!("Farshore demo: {} ms round trip, {rate} Mbit/s, {line}.", RTT.as_millis()));
    }

    pub fn act(&self, title: &str) {
        self.line_plain(&format!("\n== {title}"));
    }

    pub fn line(&self, text: &str) {
        self.line_plain(&format!("   {text}"));
    }

    fn line_plain(&self, text: &str) {
        if self.silent {
            return;
        }
        // A reader that went away ends nothing: the exit code still tells.
        let write = || drop(writeln!(std::io::stdout(), "{text}"));
        match &*self.now.borrow() {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// What is going on now.
    pub fn step(&self, text: &str) {
        let mut now = self.now.borrow_mut();
        let bar = now.get_or_insert_with(new_bar);
        bar.set_style(style("   {spinner} {msg}"));
        bar.set_message(text.to_owned());
        bar.tick();
    }

    /// Nothing is going on any more.
    pub fn step_done(&self) {
        if let Some(bar) = self.now.take() {
            bar.finish_and_clear();
        }
    }

    /// How far a sync is.
    pub fn progress(&self, status: &DemoStatus) {
        let Some(sync) = &status.sync else {
            self.step(&status.state);
            return;
        };
        let mut now = self.now.borrow_mut();
        let bar = now.get_or_insert_with(new_bar);
        bar.set_style(style("   [{bar:40}] {percent:>3} %  {msg}").progress_chars("=> "));
        bar.set_length(sync.total_bytes.max(1));
        bar.set_position(sync.done_bytes.min(sync.total_bytes));
        bar.set_message(format!("{} of {}", show_size(sync.done_bytes), show_size(sync.total_bytes)));
    }

    pub fn table4(&self, cells: &[ResultCell]) {
        self.line("write    mode    paper ms   here ms   99 % ms   local ms   round trip ms");
        for cell in cells {
            self.line(&format!(
                "{:>2} KiB   {:<5}   {:>8.0}   {:>7.2}   {:>7.2}   {:>8.2}   {:>13.2}",
                cell.size_bytes >> 10,
                cell.mode.name(),
                cell.paper_ms,
                cell.response_ms,
                cell.response_p99_ms,
                cell.local_ms,
                cell.rtt_ms
            ));
        }
    }

    pub fn cut(&self, cut: &CableCut) {
        self.line(&format!(
            "resync of {} took {:.1} s, with the writers writing on",
            show_size(cut.bytes_resynced),
            cut.resync_s
        ));
        self.line(&format!(
            "longest write: {:.1} ms while cut, {:.1} ms during reconnect and resync (before: median {:.2} ms, 99.9 % {:.1} ms)",
            cut.longest_write_cut_ms, cut.longest_write_resync_ms, cut.before_p50_ms, cut.before_p999_ms
        ));
    }

    pub fn failover(&self, failover: &Failover) {
        self.line(&format!("the secondary served {:.0} ms after the kill", failover.recovery_s * 1e3));
        match &failover.violation {
            Some(violation) => self.line(&format!("NO PREFIX: {violation}")),
            None => {
                let lost = match (failover.lost_writes, failover.mode) {
                    (0, _) => "none lost".to_owned(),
                    (lost, DemoMode::Async) => format!("the last {lost} ({}) lost", show_size(failover.lost_bytes)),
                    (lost, DemoMode::Sync) => format!("{lost} LOST"),
                };
                self.line(&format!(
                    "the far volumes are a prefix of {} acknowledged writes over all five volumes: {lost}",
                    failover.acknowledged_writes
                ));
            }
        }
    }

    pub fn conclude(&self, report: &DemoReport) {
        self.line_plain("");
        for sentence in report.broken.iter().chain(&report.slow) {
            self.line_plain(&format!("NOT AS PROMISED: {sentence}."));
        }
        let end = if report.broken.is_empty() && report.slow.is_empty() { "Everything held" } else { "Done" };
        self.line_plain(&format!("{end}, in {:.0} s.", report.duration_s));
    }
}

fn new_bar() -> ProgressBar {
    let target = match std::io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr_with_hz(10),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(None, target);
    bar.enable_steady_tick(TICK);
    bar
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
