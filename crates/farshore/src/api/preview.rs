//! What a connection of a group's two nodes comes to, before anything is done.

use serde::{Deserialize, Serialize};

use super::Verdict;

/// The schema of [`ConnectPreview`].
pub const CONNECT_SCHEMA: &str = "farshore-connect/1";

/// What would be sent to the copy, and from where, as things are now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConnectPreview {
    /// name and version of this schema
    pub schema: String,
    /// whose view this is: the primary's, where that answers
    pub node: String,
    /// the group
    pub group: String,
    /// the other node
    pub peer: String,
    /// what a connection of the two nodes comes to
    pub verdict: Verdict,
    /// the verdict as a sentence
    pub message: String,
    /// the node whose content is sent; left out where nothing would be sent
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// the node that is overwritten; left out where nothing would be sent
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// regions to be sent at most
    pub regions: u64,
    /// bytes of a region
    pub region_bytes: u64,
    /// bytes to be sent at most: zeroes, equal regions and compression make less of it
    pub bytes: u64,
    /// bytes at most of what this node wrote alone, where both nodes are primary; else left out
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_here_bytes: Option<u64>,
    /// bytes at most of what the peer wrote alone, likewise
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_there_bytes: Option<u64>,
    /// bytes of all volumes of the group
    pub group_bytes: u64,
    /// bytes a second: what the link was measured to carry lately; left out before there is a measurement
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_s: Option<u64>,
    /// seconds: `bytes` at that rate
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// why no sync begins by itself; left out where one does, or is under way
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}
