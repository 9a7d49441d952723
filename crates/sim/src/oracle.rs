//! The oracles' names and verdicts. None of them is part of the engine: they look at disks, answers, frames and states.

use std::fmt;

/// Who objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Oracle {
    /// The secondary's image is exactly the prefix of the write order that it claims (P2).
    Prefix,
    /// What an acknowledgement promised is still there (P1, P4).
    Durability,
    /// Who waits for the peer is answered when that has the write (P1).
    Alone,
    /// What a secondary confirmed as durable is never taken back (P1).
    Confirmation,
    /// A secondary keeps nothing that its primary was told it does not keep (P1, P4).
    Kept,
    /// Every difference is covered by a dirty region on a surviving side (P3).
    Coverage,
    /// At rest both sides are equal (P5).
    Equality,
    /// Two writable copies, or an overwritten tail, only after a forced promotion and an operator's word (P6).
    OneWriter,
    /// What somebody wrote to a primary's volume from outside flows only by an operator's order (P7).
    Outside,
    /// Numbers, stamps and incarnations only grow (rules 4, 5, 19).
    Order,
    /// Queue, window and waiting writers stay within their limits (P8).
    Memory,
    /// What a disk did to records is named by the next start that reads them (P9).
    Damage,
    /// The newest connection to a peer is the only one that is sent on (rule 18).
    Session,
    /// An engine refused what another engine sent.
    Protocol,
    /// What a node shows of its connected peer is so.
    Status,
    /// A command whose goal is reached changes nothing.
    Repeated,
    /// A verify names every block that differs, and no other (P3).
    Verify,
    /// Everything comes back and is answered in bounded time (P5, P8).
    Liveness,
}

impl fmt::Display for Oracle {
    /// Its name in small letters: `one-writer`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, letter) in format!("{self:?}").chars().enumerate() {
            let dash = if at > 0 && letter.is_uppercase() { "-" } else { "" };
            write!(f, "{dash}{}", letter.to_ascii_lowercase())?;
        }
        Ok(())
    }
}

/// How a run ended badly.
#[derive(Debug, Clone)]
pub struct OracleFailure {
    pub oracle: Oracle,
    pub what: String,
}

impl OracleFailure {
    pub fn new(oracle: Oracle, what: impl Into<String>) -> OracleFailure {
        OracleFailure { oracle, what: what.into() }
    }
}

impl fmt::Display for OracleFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.oracle, self.what)
    }
}
