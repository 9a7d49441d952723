//! Steps on the wire (rule 20): what is of an epoch is not interrupted, and no secondary says that it stands within one.

use std::collections::BTreeMap;
use std::ops::Range;

use engine::wire::{Ack, FrameHeader, FrameKind, flags};
use engine::{GroupId, Seq, SessionId};

use crate::oracle::{Oracle, OracleFailure};

/// What a node sent of a stream in one session.
#[derive(Default)]
struct SentSteps {
    session: SessionId,
    /// The last number sent.
    last: Option<Seq>,
    /// Where the epoch began that goes on.
    open: Option<Seq>,
    /// Numbers at which nobody stands: those of each frame and of each epoch, without the last.
    inside: Vec<Range<u64>>,
}

/// Of each group and sender.
#[derive(Default)]
pub struct EpochChecker(BTreeMap<(GroupId, usize), SentSteps>);

impl EpochChecker {
    /// Another stream begins.
    pub fn begins(&mut self, group: GroupId, sender: usize) {
        self.0.remove(&(group, sender));
    }

    /// A numbered frame of a stream.
    pub fn sends(&mut self, sender: usize, header: &FrameHeader) -> Result<(), OracleFailure> {
        let sent = self.0.entry((header.group, sender)).or_default();
        if sent.session != header.session {
            *sent = SentSteps { session: header.session, ..SentSteps::default() };
        }
        let (first, seq) = (header.first(), header.seq);
        if sent.last.is_some_and(|last| last.next() != first) {
            return Err(wrong(format!("node {sender} sends number {} after {:?}", first.0, sent.last)));
        }
        let is_of_epoch = header.flags & flags::EPOCH != 0;
        let is_write = matches!(header.kind, FrameKind::Data | FrameKind::Zero | FrameKind::Void);
        if sent.open.is_some() && !is_of_epoch || is_of_epoch && !is_write {
            return Err(wrong(format!("node {sender} sends number {} within an epoch", seq.0)));
        }
        if header.flags & flags::MARK != 0 && (is_of_epoch || header.more > 0) {
            return Err(wrong(format!("node {sender} sends the mark at number {} within a step", seq.0)));
        }
        sent.last = Some(seq);
        let from = *sent.open.get_or_insert(first);
        if !is_of_epoch || header.flags & flags::LAST != 0 {
            sent.open = None;
            if from < seq {
                sent.inside.push(from.0..seq.0);
            }
        } else {
            // Its end may never come.
            sent.inside.push(from.0..seq.0 + 1);
        }
        Ok(())
    }

    /// A secondary that was sent this says where it stands.
    pub fn confirms(&self, sender: usize, header: &FrameHeader, ack: &Ack) -> Result<(), OracleFailure> {
        let Some(sent) = self.0.get(&(header.group, sender)).filter(|sent| sent.session == header.session) else {
            return Ok(());
        };
        let told = [ack.received, ack.durable, ack.applied];
        match told.into_iter().find(|at| sent.inside.iter().any(|inside| inside.contains(&at.0))) {
            None => Ok(()),
            Some(at) => Err(wrong(format!("a secondary stands at number {}, which is within a step", at.0))),
        }
    }
}

fn wrong(what: String) -> OracleFailure {
    OracleFailure::new(Oracle::Order, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(seq: u64, more: u32, flags: u16) -> FrameHeader {
        FrameHeader { seq: Seq(seq), more, flags, ..FrameHeader::new(FrameKind::Data, SessionId(1), GroupId(0)) }
    }

    fn stands(checker: &EpochChecker, at: u64) -> bool {
        let ack = Ack { received: Seq(at), durable: Seq(at), applied: Seq(at), ..Ack::default() };
        checker.confirms(0, &FrameHeader::new(FrameKind::Ack, SessionId(1), GroupId(0)), &ack).is_ok()
    }

    // proves: rule 20
    #[test]
    fn positions_within_a_step_are_no_positions() {
        let mut checker = EpochChecker::default();
        let sent =
            [(3, 1, 0), (5, 1, flags::EPOCH), (8, 2, flags::EPOCH | flags::LAST), (9, 0, 0), (10, 0, flags::EPOCH)];
        sent.iter().for_each(|(seq, more, flags)| checker.sends(0, &frame(*seq, *more, *flags)).expect("in order"));
        let good: Vec<u64> = (1..=10).filter(|at| stands(&checker, *at)).collect();
        assert_eq!(good, [1, 3, 8, 9]);
        assert!(checker.sends(0, &frame(11, 0, 0)).is_err(), "within an epoch");
        assert!(checker.sends(0, &frame(13, 0, flags::EPOCH)).is_err(), "a gap");
        checker.begins(GroupId(0), 0);
        assert!(checker.sends(0, &frame(13, 0, flags::EPOCH)).is_ok());
    }
}
