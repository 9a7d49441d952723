//! What can happen in a history, and what it is called.

use std::fmt;
use std::str::FromStr;

/// One thing that happens to a pair of nodes. Its number is a node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HistoryEvent {
    /// A client's write, and a flush behind it.
    Write(usize),
    /// A client's write that nobody flushes.
    Cached(usize),
    /// The link is cut, and both ends hear of it.
    Cut,
    Join,
    /// It is back until a sync is half-way.
    JoinBriefly,
    /// It is back, and a client writes when a sync is half-way.
    JoinAndWrite,
    PowerLoss(usize),
    Start(usize),
    Promote(usize),
    Force(usize),
    Demote(usize),
    /// Both are primary, and an operator keeps this one's content.
    Keep(usize),
    /// The group leaves this node and comes again.
    Reload(usize),
    /// The machine that was the secondary first comes back as it was when the history began.
    SetBack,
}

use HistoryEvent::{
    Cached, Cut, Demote, Force, Join, JoinAndWrite, JoinBriefly, Keep, PowerLoss, Promote, Reload, SetBack, Start,
    Write,
};

/// All there are, by name.
pub const ALPHABET: [(&str, HistoryEvent); 23] = [
    ("write-0", Write(0)),
    ("write-1", Write(1)),
    ("cached-0", Cached(0)),
    ("cached-1", Cached(1)),
    ("cut", Cut),
    ("join", Join),
    ("join-briefly", JoinBriefly),
    ("join-and-write", JoinAndWrite),
    ("power-loss-0", PowerLoss(0)),
    ("power-loss-1", PowerLoss(1)),
    ("start-0", Start(0)),
    ("start-1", Start(1)),
    ("promote-0", Promote(0)),
    ("promote-1", Promote(1)),
    ("force-0", Force(0)),
    ("force-1", Force(1)),
    ("demote-0", Demote(0)),
    ("demote-1", Demote(1)),
    ("keep-0", Keep(0)),
    ("keep-1", Keep(1)),
    ("reload-0", Reload(0)),
    ("reload-1", Reload(1)),
    ("set-back", SetBack),
];

impl fmt::Display for HistoryEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = ALPHABET.iter().find(|(_, event)| event == self).expect("each event has a name");
        f.write_str(name)
    }
}

impl FromStr for HistoryEvent {
    type Err = ();

    fn from_str(name: &str) -> Result<HistoryEvent, ()> {
        ALPHABET.iter().find(|(of, _)| *of == name).map(|(_, event)| *event).ok_or(())
    }
}
