//! What a node shows of its peers beside itself, as their own daemons tell it.

use serde::{Deserialize, Serialize};

use super::NodeView;

/// What the daemon of a peer says of itself, or why that is not known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerSays {
    /// The peer.
    pub node: String,
    /// How old the word is, seconds; `null`: there is none.
    #[serde(default)]
    pub age_s: Option<f64>,
    /// How long ago the peer's daemon answered this one last, seconds; `null`: not since this daemon started.
    #[serde(default)]
    pub answered_s: Option<f64>,
    /// Why there is no word, as a sentence about the peer ("it ..."); absent when there is one.
    #[serde(default)]
    pub why: Option<String>,
    /// The word: the peer's own status, of the groups that both nodes have.
    #[serde(default)]
    pub status: Option<Box<NodeView>>,
}
