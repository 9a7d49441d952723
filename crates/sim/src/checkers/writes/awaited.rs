//! Checks answers by what the peer has. A write that was admitted under `sync` or `nearsync` while the group was in step, or while its
//! writers were held for the peer, is answered with success only once the peer confirmed it, whatever became of the group in between:
//! durable under `sync`, received under `nearsync` (P1). That what was confirmed as durable stays there other checkers see.
//!
//! What excuses an answer without the peer: an operator typed other settings, or `logging`; and under any policy but `strict` that
//! the stream ended, or that the primary said that it answers from its queue.

use engine::state::{Mode, Policy, State};
use engine::wire::Ack;
use engine::{GroupId, Position, Seq, Settings};

use super::run::RunKey;
use super::{GroupWrites, WriteOracle};
use crate::oracle::{Oracle, OracleFailure};

/// So often something happened that may excuse an answer without the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excuses {
    /// An operator typed settings, or `logging`.
    orders: u64,
    /// The primary left the states in which a stream carries its writes in their order, or waits for its link.
    streams: u64,
}

/// The peer's confirmation that an answer waits for.
#[derive(Clone, Copy, Debug)]
pub struct AwaitedPeer {
    run: RunKey,
    mode: Mode,
    before: Excuses,
}

/// How far the peer ever confirmed a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerHas {
    received: Seq,
    durable: Seq,
}

impl PeerHas {
    pub fn received(&self) -> Seq {
        self.received
    }
}

impl WriteOracle {
    /// An operator types settings or `logging`: it may count before it is answered.
    pub fn order_typed(&mut self, group: GroupId, settings: Option<Settings>) {
        let g = self.group(group);
        g.excuses.orders += 1;
        g.typed = settings.or(g.typed);
    }

    /// These settings count on the primary from now on.
    pub fn set_settings(&mut self, group: GroupId, settings: &Settings) {
        let g = self.group(group);
        (g.mode, g.policy) = (g.lowered.unwrap_or(settings.mode), settings.policy);
        g.set = Some(*settings);
        g.happened.changes += 1;
        g.excuses.orders += 1;
    }

    /// A primary that others had taken the place of counts again, and its mode ladder may be down.
    pub fn acts_in(&mut self, group: GroupId, settings: &Settings, mode: Mode) {
        self.group(group).lowered = (mode != settings.mode).then_some(mode);
    }

    /// The mode ladder of a primary steps: down to what the mode that is set falls back to, or up to that mode, and nowhere else.
    pub(super) fn steps(&mut self, node: usize, group: GroupId, to: Mode, down: bool) -> Result<(), OracleFailure> {
        let g = self.group(group);
        if g.current.is_none_or(|(primary, _)| primary != node) {
            return Ok(());
        }
        let leads_there = |settings: &Settings| match down {
            true => settings.ladder().is_some_and(|ladder| ladder.mode == to),
            false => settings.mode == to,
        };
        let known = [g.set, g.typed];
        if !known.iter().flatten().any(leads_there) {
            let word = if down { "down" } else { "up" };
            let what = format!("the mode ladder of node {node} steps {word} to {to:?}; it is set to {:?}", g.set);
            return Err(OracleFailure::new(Oracle::Alone, what));
        }
        g.lowered = down.then_some(to);
        g.mode = to;
        g.happened.changes += 1;
        g.excuses.orders += 1;
        Ok(())
    }

    /// From here on a primary answers without its peer, from its queue.
    pub(super) fn queued_alone(&mut self, node: usize, group: GroupId) {
        let g = self.group(group);
        if g.current.is_some_and(|(primary, _)| primary == node) {
            g.happened.changes += 1;
            g.excuses.streams += 1;
        }
    }

    /// A secondary that stands in this run confirms what it has of it.
    pub fn peer_confirmed(&mut self, group: GroupId, at: Position, ack: &Ack) {
        let g = self.group(group);
        let run = (g.history(at.generation.tag), at.incarnation.0);
        let has = g.peer_has.entry(run).or_default();
        (has.received, has.durable) = (has.received.max(ack.received), has.durable.max(ack.durable));
    }
}

impl GroupWrites {
    /// What a write that is admitted now waits for.
    pub fn awaits(&self, run: RunKey) -> Option<AwaitedPeer> {
        let waits = matches!(self.state, State::Replicating | State::Holding);
        let promises = self.mode.promises();
        (waits && promises).then_some(AwaitedPeer { run, mode: self.mode, before: self.excuses })
    }

    /// The primary reports its state.
    pub fn state_excuses(&mut self, to: State) {
        let streams = matches!(to, State::Replicating | State::Holding | State::CatchingUp | State::Paused(_));
        self.excuses.streams += u64::from(!streams);
    }

    /// A write up to `last` is answered with success; `overtaken`: another node was promoted meanwhile.
    pub fn answered_with_peer(&self, awaited: &AwaitedPeer, last: Seq, overtaken: bool) -> Result<(), OracleFailure> {
        let (then, now) = (awaited.before, self.excuses);
        let is_strict = self.policy == Policy::Strict;
        if then.orders != now.orders || !is_strict && (then.streams != now.streams || overtaken) {
            return Ok(());
        }
        let has = self.peer_has.get(&awaited.run).copied().unwrap_or_default();
        let (confirmed, word) = match awaited.mode {
            Mode::Sync => (has.durable, "durable"),
            _ => (has.received, "received"),
        };
        if confirmed >= last {
            return Ok(());
        }
        let what = format!(
            "number {} of incarnation {} was admitted under {:?} and {:?} for the peer to have it, and is answered in {:?}; the peer \
             has confirmed {word} up to {}",
            last.0, awaited.run.1, awaited.mode, self.policy, self.state, confirmed.0
        );
        Err(OracleFailure::new(Oracle::Alone, what))
    }
}

#[cfg(test)]
mod tests {
    use engine::identity::Identity;
    use engine::{Event, RequestId, VolumeId};

    use super::*;
    use crate::checkers::writes::{ClientRequest, DiskCaches};
    use crate::stamps::SectorFill;

    const GROUP: GroupId = GroupId(0);

    /// A write is admitted while the group is in step; this happens; then the stream ends, and the write is answered with success.
    fn answered(policy: Policy, happens: impl Fn(&mut WriteOracle)) -> Result<(), OracleFailure> {
        answered_in_step(policy, |oracle| {
            happens(oracle);
            oracle.event(0, GROUP, &reports(State::Logging))
        })
    }

    fn reports(to: State) -> Event {
        Event::State { from: State::Logging, to, why: String::new() }
    }

    /// The same, and the stream goes on.
    fn answered_in_step(
        policy: Policy,
        happens: impl Fn(&mut WriteOracle) -> Result<(), OracleFailure>,
    ) -> Result<(), OracleFailure> {
        let mut oracle = WriteOracle::new(&[(GROUP, vec![4096])], Mode::Sync, policy);
        oracle.primary_ready(0, GROUP, (&[&[0; 4096]], &[&[0; 4096]]), DiskCaches::Anothers, &Identity::default())?;
        oracle.event(0, GROUP, &reports(State::Replicating))?;
        let asked = ClientRequest::Write {
            volume: VolumeId(0),
            offset: 0,
            length: 512,
            fill: SectorFill::Stamp(1),
            fua: false,
        };
        oracle.issued(RequestId(1), 0, GROUP, asked, 0);
        let (first, last) = (Seq(1), Seq(2));
        oracle.event(0, GROUP, &Event::Admitted { id: RequestId(1), first, last, part_bytes: 256 })?;
        happens(&mut oracle)?;
        oracle.replied(RequestId(1), true)
    }

    fn confirms(oracle: &mut WriteOracle, durable: Seq) {
        oracle.peer_confirmed(GROUP, Position::default(), &Ack { received: Seq(2), durable, ..Ack::default() });
    }

    #[test]
    fn nobody_is_answered_alone_under_strict_unless_an_operator_typed_it() {
        let objects =
            |answered: Result<(), OracleFailure>| answered.is_err_and(|failure| failure.oracle == Oracle::Alone);
        assert!(objects(answered(Policy::Strict, |_| {})));
        assert!(objects(answered(Policy::Strict, |oracle| confirms(oracle, Seq(1)))));
        assert!(answered(Policy::Strict, |oracle| confirms(oracle, Seq(2))).is_ok());
        assert!(answered(Policy::Strict, |oracle| oracle.order_typed(GROUP, None)).is_ok());
        assert!(answered(Policy::Degrade, |_| {}).is_ok());
        let says_so = |oracle: &mut WriteOracle| oracle.event(0, GROUP, &Event::QueuedAlone { why: String::new() });
        assert!(answered_in_step(Policy::Degrade, says_so).is_ok());
        assert!(objects(answered_in_step(Policy::Degrade, |_| Ok(()))), "it shows that both have what it answers");
        assert!(objects(answered_in_step(Policy::Strict, says_so)));
    }
}
