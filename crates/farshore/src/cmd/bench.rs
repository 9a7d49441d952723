//! `bench`.

use super::{Failure, Outcome};

/// # Errors
/// Always: this build has no bench yet.
pub fn run(_arguments: &[String]) -> Outcome {
    Err(Failure::from("bench is not built yet in this version"))
}
