//! Wires configuration, data path and control socket together and runs until told to stop.

use std::process::ExitCode;

use crate::config::{Config, NodeName, Secret};
use crate::overrides::Overrides;

/// Runs the daemon of `node`. The configuration's local facts were checked, its settings are the file's own: the ones
/// that hold are `overrides.effective(..)`.
///
/// # Errors
/// A sentence: what could not be started, and where.
pub fn run(config: Config, node: NodeName, overrides: Overrides, secret: Secret) -> anyhow::Result<ExitCode> {
    let _ = (overrides, secret);
    anyhow::bail!("this build has no data path: node {node} of cluster {} was not started", config.cluster)
}
