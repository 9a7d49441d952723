//! Documents of several forms, and the events of streams: what the program prints piece by piece, as types for the schemas alone.

#![allow(dead_code, clippy::large_enum_variant, reason = "schemas are made of these types")]

use schemars::JsonSchema;
use toolkit::doctor::Check;
use toolkit::doctor::report::DoctorReport;
use toolkit::line_test::document::{LinkTestReport, LinkTestStart};
use toolkit::line_test::path::{IdleFound, LoadFound, PathFound, ProbeReport};
use toolkit::line_test::soak::{LineOutage, SoakReport, SoakStart, Stretch};
use toolkit::line_test::sweep::{FoundPoint, SweepReport, SweepsReport};
use toolkit::line_test::tally::TestInterval;

use crate::api::{DroppedMark, LinkHistory, LinkHistoryTable, MarkList};

/// Two commands print it.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum MarkForms {
    List(MarkList<'static>),
    Dropped(DroppedMark<'static>),
}

/// The command prints one form, the control socket answers with the other.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum LinkHistoryForms {
    Printed(LinkHistoryTable<'static>),
    Answered(LinkHistory),
}

/// A line of a stream: an event, as it happens.
#[derive(JsonSchema)]
pub struct StreamLine<E> {
    /// name and version of this schema
    schema: String,
    #[serde(flatten)]
    event: E,
}

#[derive(JsonSchema)]
#[serde(tag = "event", content = "data", rename_all = "kebab-case")]
pub enum LinkTestEvent {
    /// `start` of `farshore-link-test/1`, without `far` sockets; with `--mode all` one for each mode
    Start(LinkTestStart),
    /// one of `intervals[]`, of the near end; where the far end sends, `received_bytes` counts
    Interval(TestInterval),
    /// the whole object of `--json`, the last event
    End(LinkTestEnd),
}

#[derive(JsonSchema)]
#[serde(untagged)]
pub enum LinkTestEnd {
    Test(Box<LinkTestReport>),
    Modes(toolkit::line_test::modes::ModesReport<'static>),
}

#[derive(JsonSchema)]
#[serde(tag = "event", content = "data", rename_all = "kebab-case")]
pub enum SweepEvent {
    /// a test of one round: the keys of `sweep[]` but `formula_bytes_per_s` and `rounds_bytes_per_s`, and its `congestion` and `round`
    Point(FoundPoint),
    /// the whole object of `--json`, the last event
    End(SweepsEnd),
}

#[derive(JsonSchema)]
#[serde(untagged)]
pub enum SweepsEnd {
    One(SweepReport),
    Several(SweepsReport<'static>),
}

#[derive(JsonSchema)]
#[serde(tag = "event", content = "data", rename_all = "kebab-case")]
pub enum ProbeEvent {
    /// of the keys of `farshore-link-probe/1`: `mtu_bytes`, `segment_bytes`, `large_packets`, `path_mtu_bytes`, `path_mtu_is_exact`
    Path(PathFound),
    /// `idle_rtt_s`, `clock_offset_s`, `clock_error_s`
    Idle(IdleFound),
    /// `loaded_rtt_s`, `forward`, `reverse`
    Load(LoadFound),
    /// the whole object of `--json`, the last event
    End(ProbeReport<'static>),
}

#[derive(JsonSchema)]
#[serde(tag = "event", content = "data", rename_all = "kebab-case")]
pub enum SoakEvent {
    /// `start` of `farshore-link-soak/1`
    Start(SoakStart),
    /// one of `stretches[]`
    Stretch(Stretch),
    /// one of `outages[]`
    Outage(LineOutage),
    /// the whole object of `--json`, the last event
    End(SoakReport<'static>),
}

#[derive(JsonSchema)]
#[serde(tag = "event", content = "data", rename_all = "kebab-case")]
pub enum DoctorEvent {
    /// what is being examined
    Doing(Doing),
    /// one of `checks[]`, once all are known
    Check(Check),
    /// the whole object of `--json`, the last event
    End(DoctorReport<'static>),
}

#[derive(JsonSchema)]
pub struct Doing {
    /// in words
    what: String,
}
