//! What comes of one attempt to run or to tell a hook, by whatever way.

/// Why an attempt came to nothing.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::daemon) enum AttemptFailure {
    /// A sentence.
    Failed(String),
    /// The daemon ends.
    Ending,
}
