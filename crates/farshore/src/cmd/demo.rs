//! `demo`.

use super::{Failure, Outcome};

/// # Errors
/// Always: this build has no demo yet.
pub fn run(_arguments: &[String]) -> Outcome {
    Err(Failure::from("demo is not built yet in this version"))
}
