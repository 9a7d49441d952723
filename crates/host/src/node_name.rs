//! Names of nodes and clusters.

/// Longest name of a node or cluster: Linux's own limit for a host name.
pub(crate) const NAME_BYTES_MAX: usize = 64;

/// Whether `name` can travel: 1 to [`NAME_BYTES_MAX`] bytes, nothing that could garble a log line.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
}
