//! Why two nodes do not come together, and the versions that they speak.

use std::fmt;

/// Protocol versions that a node speaks, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    pub min: u8,
    pub max: u8,
}

impl Versions {
    /// Frames say theirs too; there is one kind of them so far that was released.
    pub const OURS: Versions = Versions { min: engine::wire::VERSION as u8, max: engine::wire::VERSION as u8 };

    /// The newest version that both speak.
    pub(super) fn common(self, other: Versions) -> Option<u8> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max { write!(f, "{}", self.max) } else { write!(f, "{} to {}", self.min, self.max) }
    }
}

/// Why there will be no session. For this node's log; an unauthenticated peer sees [`REFUSAL`](super::REFUSAL).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    #[error("it sent bytes that are not Farshore's: something else speaks at that address")]
    NotFarshore,
    #[error("it speaks TLS, and this node does not: both nodes need the same [tls] in their configuration")]
    SpeaksTls,
    #[error("it sent a message out of turn (kind {kind}, expected {expected})")]
    OutOfTurn { kind: u8, expected: u8 },
    #[error("it announced a message of {bytes} bytes where {min} to {max} are allowed")]
    WrongLength { bytes: u32, min: usize, max: usize },
    #[error("it sent a message that does not follow the protocol")]
    Malformed,
    #[error("it refused this node; its own log says why (most often the secret files differ)")]
    Refused,
    #[error("its proof does not fit this node's secret: compare the secret files of both nodes")]
    WrongSecret,
    #[error("it speaks protocol version {theirs}, this node {ours}: upgrade the older one")]
    Versions { ours: Versions, theirs: Versions },
    #[error("this node talks to itself: the peer's address in the configuration leads back to node {node:?}")]
    Itself { node: String },
    #[error("it belongs to cluster {theirs:?}, this node to {ours:?}")]
    WrongCluster { ours: String, theirs: String },
    #[error("expected node {expected:?} but node {answered:?} answered: correct the addresses in the configuration")]
    NotTheExpected { expected: String, answered: String },
    #[error("node {node:?} does not know a node {unknown:?}: its configuration file is another one")]
    UnknownNode { node: String, unknown: String },
    #[error("node {dialer:?} dialed node {acceptor:?}, but the node whose name sorts first dials")]
    WrongDirection { dialer: String, acceptor: String },
    #[error("it says that it is node {said:?}, and its certificate is that of node {certified:?}")]
    NotItself { said: String, certified: String },
}
