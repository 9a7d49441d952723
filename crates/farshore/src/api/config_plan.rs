//! What a changed configuration file would have a running daemon do.

use serde::{Deserialize, Serialize};

use super::ConfigAction;

/// The schema of [`ConfigPlan`].
pub const CONFIG_PLAN_SCHEMA: &str = "farshore-config-plan/1";

/// What `config apply` would do now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConfigPlan {
    /// name and version of this schema
    pub schema: String,
    /// the node whose daemon answers
    pub node: String,
    /// the configuration file that was read
    pub file: String,
    /// what is done, in this order; empty: nothing differs
    pub steps: Vec<ConfigStep>,
    /// what counts at the next start of the daemon only; with one of these `config apply` does nothing
    pub needs_restart: Vec<String>,
}

/// One step of a [`ConfigPlan`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConfigStep {
    /// what is done
    pub action: ConfigAction,
    /// the group; left out where the step is of the whole node
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// what changes, for people
    pub text: String,
    /// clients attached now that the step would cut off
    pub clients: u64,
    /// clients attached now whose requests wait while the group starts anew
    #[serde(default)]
    pub clients_held: u64,
}
