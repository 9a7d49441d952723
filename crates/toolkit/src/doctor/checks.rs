//! What the facts mean: each check is a function from the sheet to a line.
//!
//! The thresholds are those of the HADR and AVS papers and of measurements on Linux 6.18 (docs/link.md); each stands
//! beside its check.

mod interface;
mod kernel;
mod memory;
mod node;
mod path;
mod silence;

use super::Check;
use super::facts::{Facts, Way};

/// All of them, in the order of the report.
pub fn all(facts: &Facts, way: &Way) -> Vec<Check> {
    let mut checks = path::checks(facts);
    if let Some(interface) = &facts.interface {
        checks.extend(interface::checks(interface, facts));
    }
    checks.extend(kernel::checks(facts, way));
    checks.extend(silence::checks(facts));
    checks.extend(memory::checks(facts));
    checks.extend(node::checks(facts));
    checks
}

/// For eyes.
pub(super) fn time(seconds: f64) -> String {
    units::quantities::show_time(units::quantities::Seconds(seconds))
}

fn size(bytes: u64) -> String {
    units::quantities::show_bytes(units::quantities::Bytes(bytes))
}

pub(super) fn speed(mbit: u32) -> String {
    if mbit >= 1000 && mbit.is_multiple_of(500) {
        format!("{} Gbit/s", f64::from(mbit) / 1000.0)
    } else {
        format!("{mbit} Mbit/s")
    }
}
