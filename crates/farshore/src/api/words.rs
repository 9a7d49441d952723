//! What travels as one word: states, roles, codes.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Enums that travel as one word. A word of a newer version is kept, not refused, so that an older client still shows it.
macro_rules! words {
    ($(#[doc = $doc:literal])* $name:ident {
        $($(#[doc = $variant_doc:literal])* $variant:ident = $word:literal,)+
    }) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $variant_doc])* $variant,)+
            /// A word this version does not know.
            Other(String),
        }

        impl $name {
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)+
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self::from(String::deserialize(deserializer)?.as_str()))
            }
        }

        /// The words in their order, and any other text: words are added.
        #[cfg(test)]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn schema_id() -> std::borrow::Cow<'static, str> {
                concat!(module_path!(), "::", stringify!($name)).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "description": concat!($($doc),*).trim(),
                    "anyOf": [
                        $({ "const": $word, "description": concat!($($variant_doc),*).trim() },)+
                        { "type": "string" },
                    ],
                })
            }
        }
    };
}

words!(
    /// Why a request was not done, for scripts.
    ErrorCode {
        /// The line is no request of this version.
        BadRequest = "bad-request",
        /// This node has no such group.
        UnknownGroup = "unknown-group",
        /// A key or value of `set` is wrong.
        BadValue = "bad-value",
        /// The state does not allow it; the message says why and what to do.
        Refused = "refused",
        /// It was tried and failed.
        Failed = "failed",
        /// It was sent to another node, and whether it was done there is not known.
        OutcomeUnknown = "outcome-unknown",
    }
);

words!(
    /// Whether the same request may be done another time.
    Retry {
        /// what stands in the way ends by itself, or when the peer is back
        Later = "later",
        /// asked so it is refused until an operator has changed something
        Never = "never",
    }
);

words!(
    /// How a group keeps to `rpo.warn` and `rpo.error`, by what its primary knows.
    RpoState {
        /// nobody watches the lag here: no threshold, this node is the secondary, or what the copy lacks is not known
        Unwatched = "unwatched",
        /// the lag is within both, or not beyond one for `rpo.hold_off` yet
        Met = "met",
        /// the lag passed `rpo.warn`, and is not back under it for `rpo.hold_off`
        Warn = "warn",
        /// the same of `rpo.error`
        Error = "error",
    }
);

/// Of an older daemon nothing is known.
impl Default for RpoState {
    fn default() -> RpoState {
        RpoState::Unwatched
    }
}

words!(
    /// A step of `config apply`.
    ConfigAction {
        /// the group comes to this node: it starts
        Add = "add",
        /// the group leaves this node: it stops, its state directory stays
        Remove = "remove",
        /// the group stops and starts anew; clients are cut off
        Restart = "restart",
        /// settings that change while the group runs
        Set = "set",
        /// what is looked up when it is needed, such as thresholds and hooks
        TakeUp = "take-up",
        /// settings of all links of this node
        Link = "link",
    }
);

words!(
    /// What a connection of a group's nodes comes to.
    Verdict {
        /// the group sends already
        UnderWay = "under-way",
        /// what the peer lacks is sent in order, out of the queue
        GoOn = "go-on",
        /// dirty regions are sent
        UpdateSync = "update-sync",
        /// everything is sent, once an operator orders that
        FullSyncNeeded = "full-sync-needed",
        /// nothing is sent: the histories do not allow it, or this node's half of the group has failed
        Refused = "refused",
        /// both nodes are secondary
        Idle = "idle",
        /// the peer's half of the group has failed
        PeerFailed = "peer-failed",
        /// the peer, or the primary, is not there
        Unknown = "unknown",
    }
);

words!(
    /// Where an operation is.
    OperationState {
        /// it goes on
        Running = "running",
        /// its goal is reached
        Done = "done",
        /// its goal was reached before it began: nothing was changed
        Unchanged = "unchanged",
        /// the state did not allow it: nothing was done
        Refused = "refused",
        /// it was tried and failed
        Failed = "failed",
        /// it was begun, and did not reach its end
        Stopped = "stopped",
        /// nobody knows what came of it
        Unknown = "unknown",
    }
);

words!(
    /// What a node is for a group.
    Role {
        Primary = "primary",
        Secondary = "secondary",
    }
);

words!(
    /// Whether a group replicates from one node to the other.
    Flow {
        /// what is written at `from` travels to `to`
        Flowing = "flowing",
        /// `from` is primary and nothing travels: no link, the mode `logging`, a pause, or a failure
        Stopped = "stopped",
        /// both nodes are primary
        Fork = "fork",
        /// a role is not known now, or both nodes are secondary
        Unknown = "unknown",
    }
);

/// Of an older daemon nothing is known.
impl Default for Flow {
    fn default() -> Flow {
        Flow::Unknown
    }
}

words!(
    /// Where a group is.
    GroupState {
        /// writes are tracked only
        Logging = "logging",
        /// the link is down; the queue keeps the order
        Queuing = "queuing",
        /// dirty regions travel. By catch-up snapshots (`sync.snapshot`) each finished one is a new image; the newest finished image
        /// can be promoted (`promotable` on the secondary)
        Syncing = "syncing",
        /// ordered, but the mode's promise does not hold yet
        CatchingUp = "catching-up",
        /// the mode's promise holds
        Replicating = "replicating",
        /// the link is down; writers wait for it
        Holding = "holding",
        /// applying stands still, nothing is lost; `reason` says what to mend
        Paused = "paused",
        /// stopped until a `reset`; `reason` says what broke
        Failed = "failed",
    }
);

words!(
    /// What an acknowledgement means now: an acknowledged write is
    Protection {
        /// durable on both nodes
        BothDurable = "both-durable",
        /// complete here, and in the secondary's memory
        BothReceived = "both-received",
        /// complete here, and in the queue: losing this node loses the queue
        Queued = "queued",
        /// complete here, its region dirty. Also in `syncing`: promoted before the sync or snapshot ends, the other node goes
        /// back to `peers[].recovery_point`
        LocalOnly = "local-only",
        /// none: writers wait until the peer is back
        Held = "held",
        /// none: this node does not serve the group
        None = "none",
    }
);

words!(
    /// Where the connection to a peer is.
    LinkState {
        Connecting = "connecting",
        Connected = "connected",
        /// connected, but takes nothing
        Congested = "congested",
        Disconnected = "disconnected",
    }
);

words!(
    /// Whether a start of this node would go on in order.
    QueueLogState {
        /// `queue.durable` is not set, there is no disk queue, or this node is no primary that serves
        Off = "off",
        /// it takes what is written, and counts once the peer, and every volume here, has what was written before it began
        Filling = "filling",
        /// a start goes on in order
        Live = "live",
        /// nothing goes into it: a start costs the order
        Closed = "closed",
    }
);

/// Of an older daemon, that has none.
impl Default for QueueLogState {
    fn default() -> QueueLogState {
        QueueLogState::Off
    }
}

words!(
    /// What keeps a link from carrying more.
    LinkLimit {
        /// the setting `rate`
        Rate = "rate",
        /// the peer's window is full for much of the time
        ReceiverWindow = "receiver-window",
        /// the send buffer is full for much of the time
        SendBuffer = "send-buffer",
        /// many bytes are sent again
        Loss = "loss",
        /// the round trip is much longer than the shortest: packets queue on the way
        Queueing = "queueing",
        /// no more to send, or the secondary's `window` is full
        Nothing = "nothing",
        /// none of the others: the path carries no more
        Network = "network",
    }
);

words!(
    /// Where a setting's value comes from.
    Origin {
        /// the configuration file
        Config = "config",
        /// `set` or `link set`
        Set = "set",
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_newer_daemon_are_kept() {
        let state: GroupState = serde_json::from_str("\"rewinding\"").expect("any word");
        assert_eq!(state, GroupState::Other("rewinding".to_owned()));
        assert_eq!(serde_json::to_string(&state).expect("text"), "\"rewinding\"");
        assert_eq!(GroupState::from("catching-up"), GroupState::CatchingUp);
    }

    #[test]
    fn the_words_are_the_data_paths() {
        use engine::{identity, state, status};
        assert_eq!(GroupState::WORDS, state::State::WORDS);
        use state::Protection as P;
        let protections = [P::BothDurable, P::BothReceived, P::Queued, P::LocalOnly, P::Held, P::None];
        assert_eq!(Protection::WORDS, protections.map(P::word));
        use status::LinkStatus as L;
        let links = [L::Connecting, L::Connected, L::Congested, L::Disconnected];
        assert_eq!(LinkState::WORDS, links.map(L::word));
        let limits = host::link::meter::Limit::ALL.map(host::link::meter::Limit::word);
        assert_eq!(LinkLimit::WORDS, limits);
        assert_eq!(Retry::WORDS, [engine::Retry::Later, engine::Retry::Never].map(engine::Retry::word));
        assert_eq!(Role::WORDS, [identity::Role::Primary, identity::Role::Secondary].map(identity::Role::word));
    }
}
