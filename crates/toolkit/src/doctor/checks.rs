//! What the facts mean: each check is a function from the sheet to a line.
//!
//! The thresholds are those of the HADR and AVS papers and of measurements on Linux 6.18 (docs/book/link.md); each stands
//! beside its check.

mod interface;
mod kernel;
mod memory;
mod node;
mod path;
mod silence;

use super::Check;
use super::facts::{EndFacts, PathFacts};

/// All of them, in the order of the report.
pub fn all(facts: &EndFacts, way: &PathFacts) -> Vec<Check> {
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
