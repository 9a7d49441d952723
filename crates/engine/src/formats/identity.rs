//! Who may send to whom. Identity is what a node durably knows of a group's history; the decision at connect is one
//! pure function over two identities, with a test per row (rule 5).
//!
//! The rule that must never break: a returning old primary never overwrites a promoted secondary. It cannot, because a
//! promotion takes a new generation that names its parent, and only the holder of the newest generation is ever a
//! source.

use core::fmt;

use crate::formats::codec::{FieldDecoder, FieldEncoder};
use crate::ids::{Generation, Incarnation, Position, Seq, mix};
use crate::injected_fault::{Fault, injected};

/// Role of a node for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum Role {
    #[default]
    Secondary = 0,
    Primary = 1,
}

impl Role {
    pub fn word(self) -> &'static str {
        match self {
            Role::Primary => "primary",
            Role::Secondary => "secondary",
        }
    }
}

/// What a node durably knows of itself and one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Identity {
    pub role: Role,
    /// The history this node's volumes belong to; blank before the first sync.
    pub generation: Generation,
    /// Where this generation left the one before.
    pub parent: Position,
    /// This node's own run.
    pub incarnation: Incarnation,
    /// Primary: its last number. Secondary: the last number it received (its journal replays up to here).
    pub position: Position,
    /// Secondary: a sync has begun and not ended, no consistent image exists.
    pub inconsistent: bool,
    /// Secondary that was primary: demoted with everything applied at the peer, nothing dirty.
    pub handed_over: bool,
    /// This generation goes on with the one before: its primary went on writing without its peer, or took its demotion back.
    pub continued: bool,
    /// This generation began with a promotion that was forced. One that went on alone did not.
    pub forced: bool,
}

impl Identity {
    pub(crate) fn encode(&self, w: &mut FieldEncoder) {
        w.u8(self.role as u8);
        let flags = [self.inconsistent, self.handed_over, self.continued, self.forced];
        w.u8(flags.into_iter().enumerate().fold(0, |bits, (at, flag)| bits | u8::from(flag) << at));
        w.generation(self.generation);
        w.position(self.parent);
        w.u64(self.incarnation.0);
        w.position(self.position);
    }

    /// What a node holds, as somebody looked at it: of which history, and how far it has come there, as one number that is not 0. A further
    /// run, and each further write, is another one.
    pub fn stand(&self) -> u64 {
        let Position { incarnation, seq, .. } = self.position;
        mix(mix(self.generation.tag, incarnation.0), seq.0).max(1)
    }

    /// Whether a peer that follows this history may stand in that generation: in ours, or in the one that ours went on from.
    pub(crate) fn goes_on_from(&self, generation: Generation) -> bool {
        generation == self.generation || self.continued && generation == self.parent.generation
    }

    /// It never held an image. One whose volumes were changed from outside has none any more, and has lived.
    pub(crate) fn is_new(&self) -> bool {
        self.generation.is_blank() && self.position.generation.is_blank() && !self.inconsistent
    }

    /// Nothing of it is further than anything counts: a peer that names it is not hostile for that reason.
    pub(crate) fn is_in_reach(&self) -> bool {
        let own = Position { generation: self.generation, incarnation: self.incarnation, seq: Seq::NONE };
        [own, self.parent, self.position].iter().all(|position| position.is_in_reach())
    }

    pub(crate) fn decode(r: &mut FieldDecoder<'_>) -> Option<Identity> {
        let role = match r.u8()? {
            0 => Role::Secondary,
            1 => Role::Primary,
            _ => return None,
        };
        let bits = r.u8()?;
        if bits > 15 {
            return None;
        }
        Some(Identity {
            role,
            inconsistent: bits & 1 != 0,
            handed_over: bits & 2 != 0,
            continued: bits & 4 != 0,
            forced: bits & 8 != 0,
            generation: r.generation()?,
            parent: r.position()?,
            incarnation: Incarnation(r.u64()?),
            position: r.position()?,
        })
    }
}

/// What a peer confirmed as applied: durable there, so it cannot stand before it.
///
/// A difference that is dirty nowhere any more was forgotten because of such a confirmation. So each record that forgets one
/// carries the newest, and after a crash the greatest found tells where the peer must stand for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Confirmed {
    pub position: Position,
    /// The newest of these positions at which it held a whole image. While a sync overwrites that, the peer may go back to it by
    /// itself, and then names the regions that it undid.
    pub image: Position,
}

impl Confirmed {
    /// The earliest position at which the peer may stand.
    pub(crate) fn earliest(&self, theirs: &Identity, its_dirty_bytes: u64) -> Position {
        let names_what_it_undid = its_dirty_bytes > 0 && !theirs.inconsistent;
        if names_what_it_undid { self.image } else { self.position }
    }

    pub(crate) fn encode(&self, w: &mut FieldEncoder) {
        w.position(self.position);
        w.position(self.image);
    }

    pub(crate) fn decode(r: &mut FieldDecoder<'_>) -> Option<Confirmed> {
        Some(Confirmed { position: r.position()?, image: r.position()? })
    }
}

/// What a primary may do with a peer that just connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Same history, same run, unbroken: go on after this number.
    Continue(Seq),
    /// Same history: what differs is covered by the primary's dirty regions.
    UpdateSync,
    /// The peer's volumes are not a copy of this history; only an operator's `sync --full` may overwrite them.
    NeedsFullSync(DecisionReason),
    /// Nothing may be sent.
    Refuse(DecisionReason),
    /// Two secondaries: wait for a promotion.
    Idle,
}

/// A row of the table: its variant, its name, and when it is taken.
macro_rules! rows {
    ($($variant:ident, $name:literal, $when:literal;)*) => {
        /// A row of the table: every branch of [`row`], of [`went_back`] and of `formats/fork.rs` has one of its own.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum DecisionRow { $(#[doc = $when] $variant,)* }

        impl DecisionRow {
            pub const ALL: &'static [DecisionRow] = &[$(DecisionRow::$variant,)*];

            pub fn name(self) -> &'static str {
                match self { $(DecisionRow::$variant => $name,)* }
            }

            /// When it is taken.
            pub fn when(self) -> &'static str {
                match self { $(DecisionRow::$variant => $when,)* }
            }
        }
    };
}

rows! {
    TwoSecondaries, "two-secondaries", "Both are secondary: nobody sends before a promotion.";
    PeerSends, "peer-sends", "The peer is the primary: it decides.";
    TwoPrimaries, "two-primaries", "Both are primary.";
    NeverSynced, "never-synced", "The peer has no history.";
    LaterRun, "later-run", "The same history, and a later run of this node than it knows of.";
    PastOurLast, "past-our-last", "This run, and numbers that were never given.";
    InQueue, "in-queue", "This run, at a position from which the queue goes on.";
    HalfSynced, "half-synced", "This run, in the middle of a sync.";
    OutOfQueue, "out-of-queue", "This run, at a position from which nothing goes on.";
    EarlierRun, "earlier-run", "The same history, left in an earlier run.";
    InEarlierQueue, "in-earlier-queue", "An earlier run, at a position from which the queue goes on.";
    PeerIsNewer, "peer-is-newer", "The peer's history grew out of ours.";
    PeerWentFurther, "peer-went-further", "The peer's history grew out of something younger than ours.";
    AheadOfLoneStretch, "ahead-of-lone-stretch", "It followed until we went on alone, and is past that position.";
    LoneStretch, "lone-stretch", "It followed until we went on alone, or took our demotion back.";
    HandedOver, "handed-over", "It handed over at the very position of our promotion.";
    LoneTail, "lone-tail", "It was primary until our promotion, and went on alone in the run that we followed.";
    Tail, "tail", "It was primary until our promotion, and may hold more than we have.";
    BothWentOn, "both-went-on", "Both went on from one position, each alone.";
    Unrelated, "unrelated", "Nothing connects the two histories.";
    WentBack, "went-back", "It stands before what it confirmed, in one generation.";
    BackBeforeLoneStretch, "back-before-lone-stretch", "It confirmed what we wrote alone, and stands before all of it.";
    ForkByBits, "fork-by-bits", "Both wrote since one position, and the bits of both cover what differs.";
    ForkKept, "fork-kept", "The same, and an operator chose this node's content.";
}

/// The reason, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionReason {
    NeverSynced,
    /// The peer wrote, or may have received, something past the point where this node was promoted.
    Fork {
        at: Position,
        peer_at: Position,
        /// The bits of both nodes cover what differs: an order that keeps one side needs no full sync.
        by_bits: bool,
    },
    /// The peer held a copy, and something else wrote to its volumes.
    CopyLost,
    Unrelated {
        ours: Generation,
        theirs: Generation,
    },
    TwoPrimaries {
        ours: Generation,
        theirs: Generation,
    },
    /// The peer's history grew out of ours: ours is the old one.
    PeerIsNewer {
        ours: Generation,
        theirs: Generation,
    },
    /// The peer's history has had more promotions or lone stretches than ours, and does not name ours as where it came from.
    PeerWentFurther {
        ours: Generation,
        theirs: Generation,
    },
    /// The peer stands before what it confirmed as applied, and has no dirty regions that say why.
    PeerWentBack {
        confirmed: Seq,
        stands_at: Seq,
    },
    /// The peer has seen numbers that this node never gave: an old copy of the state directory was restored.
    PeerSawOurFuture,
}

const OVERWRITES_OWN: &str = "; 'farshore sync GROUP --full' here overwrites what only the peer may have, which the peer saves to a file if it holds a whole image";

impl DecisionReason {
    /// What a full sync overwrites for this reason is, or may be, a history of the copy's own. An old copy that is merely behind has none.
    pub fn is_of_two_histories(self) -> bool {
        matches!(
            self,
            DecisionReason::Fork { .. }
                | DecisionReason::Unrelated { .. }
                | DecisionReason::PeerWentFurther { .. }
                | DecisionReason::PeerSawOurFuture
        )
    }
}

impl fmt::Display for DecisionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecisionReason::NeverSynced => {
                write!(
                    f,
                    "the secondary has never been synced; 'farshore sync GROUP --full' overwrites it with this node's volumes"
                )
            }
            DecisionReason::Fork { at, peer_at, by_bits } => {
                write!(f, "the histories fork at sequence {} of generation {}: the peer ", at.seq.0, at.generation)?;
                let same_run = (peer_at.generation, peer_at.incarnation) == (at.generation, at.incarnation);
                match peer_at.seq {
                    last if same_run && last > at.seq => write!(f, "went on to {}", last.0)?,
                    last if same_run => write!(f, "stands at {}, and it is not known that it did not go on", last.0)?,
                    _ => write!(f, "has a history of its own since")?,
                }
                if *by_bits {
                    write!(
                        f,
                        "; 'farshore resolve GROUP --keep NODE' keeps one side, sends what differs, and saves the other side's \
                         blocks to a file first"
                    )?;
                }
                f.write_str(OVERWRITES_OWN)
            }
            DecisionReason::CopyLost => {
                write!(
                    f,
                    "a volume of the secondary was written while farshore was stopped there, so what it holds is no copy; \
                     'farshore sync GROUP --full' overwrites it with this node's volumes"
                )
            }
            DecisionReason::Unrelated { ours, theirs } => write!(
                f,
                "the peer's volumes belong to another history (generation {theirs}, ours is {ours}); \
                 'farshore sync GROUP --full' here overwrites them"
            ),
            DecisionReason::TwoPrimaries { ours, theirs } => write!(
                f,
                "both nodes are primary (generation {ours} here, {theirs} on the peer); \
                 'farshore resolve GROUP --keep NODE' keeps one node's content, and saves where the other node's differs"
            ),
            DecisionReason::PeerIsNewer { ours, theirs } => write!(
                f,
                "the peer was promoted after this node was primary (generation {theirs}, ours is {ours}); \
                 this node must not overwrite it: 'farshore demote GROUP' here; if it is this side that shall count, \
                 then 'farshore promote GROUP --force' here"
            ),
            DecisionReason::PeerWentFurther { ours, theirs } => write!(
                f,
                "the peer's history has gone further than this node's (generation {theirs}, ours is {ours}): 'farshore demote \
                 GROUP' here keeps it, 'farshore sync GROUP --full' here overwrites what the peer wrote, which the peer saves to a file if \
                 it holds a whole image"
            ),
            DecisionReason::PeerWentBack { confirmed, stands_at } => write!(
                f,
                "the peer stands at sequence {} and had confirmed {} as applied: an old copy of its state directory was \
                 restored, or its last updates were lost; it may have replayed old writes, so 'farshore sync GROUP --full' \
                 has to make it whole",
                stands_at.0, confirmed.0
            ),
            DecisionReason::PeerSawOurFuture => write!(
                f,
                "the peer has received writes that this node does not know: this node's state directory is older than its peer; \
                 promote the peer, or overwrite it with 'farshore sync GROUP --full'"
            ),
        }
    }
}

/// What can still be sent in order: numbers of the primary's present run after `kept_after`. The peer can stand as far as
/// `last`, the last one that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnbrokenRun {
    pub kept_after: Seq,
    pub last: Seq,
}

/// Decides for the node with identity `ours` what to do with a peer of identity `theirs`. `queue` is what this node, as
/// a primary, can still send in order.
pub fn decide(ours: &Identity, theirs: &Identity, queue: Option<UnbrokenRun>) -> Decision {
    row(ours, theirs, queue).decision(ours, theirs)
}

/// The row of the table that two identities come to.
pub fn row(ours: &Identity, theirs: &Identity, queue: Option<UnbrokenRun>) -> DecisionRow {
    let (mine, other) = (ours.generation, theirs.generation);
    match (ours.role, theirs.role) {
        (Role::Secondary, Role::Secondary) => return DecisionRow::TwoSecondaries,
        (Role::Primary, Role::Primary) => return DecisionRow::TwoPrimaries,
        (Role::Secondary, Role::Primary) => return DecisionRow::PeerSends,
        (Role::Primary, Role::Secondary) => {}
    }
    if other.is_blank() {
        return DecisionRow::NeverSynced;
    }
    if mine == other {
        return same_history(ours, theirs, queue);
    }
    if theirs.parent.generation == mine {
        return DecisionRow::PeerIsNewer;
    }
    // What grew out of ours is a child of ours or of something younger; a number alone proves nothing, since a history
    // that goes on alone counts up too.
    if theirs.parent.generation.number > mine.number {
        return DecisionRow::PeerWentFurther;
    }
    if ours.parent.generation == other && ours.continued {
        // A follower of the history that this node went on writing alone: what it lacks is dirty here.
        let ahead = theirs.position.generation == other && theirs.position.run_and_seq() > ours.parent.run_and_seq();
        return if ahead { DecisionRow::AheadOfLoneStretch } else { DecisionRow::LoneStretch };
    }
    if ours.parent.generation == other {
        let at_fork = theirs.handed_over && theirs.position == ours.parent && !theirs.inconsistent;
        return if at_fork || injected(Fault::ForkOverwritten) {
            DecisionRow::HandedOver
        } else {
            tail_of(theirs.position, ours.parent)
        };
    }
    if theirs.parent.generation == ours.parent.generation && !ours.parent.generation.is_blank() {
        return DecisionRow::BothWentOn;
    }
    DecisionRow::Unrelated
}

/// An old primary, at `theirs`, that did not hand over at `parent`. While its queue keeps the order, what it answers alone has numbers of
/// the run that the other one follows: no generation begins, and the number tells that it went on.
fn tail_of(theirs: Position, parent: Position) -> DecisionRow {
    let same_run = (theirs.generation, theirs.incarnation) == (parent.generation, parent.incarnation);
    match same_run && theirs.seq > parent.seq {
        true if injected(Fault::LoneTailJoined) => DecisionRow::HandedOver,
        true => DecisionRow::LoneTail,
        false => DecisionRow::Tail,
    }
}

fn same_history(ours: &Identity, theirs: &Identity, queue: Option<UnbrokenRun>) -> DecisionRow {
    let position = theirs.position;
    if position.generation == ours.generation && position.incarnation > ours.incarnation {
        return DecisionRow::LaterRun;
    }
    if position.generation != ours.generation || position.incarnation != ours.incarnation {
        return DecisionRow::EarlierRun;
    }
    if position.seq > ours.position.seq {
        return DecisionRow::PastOurLast;
    }
    match queue {
        _ if theirs.inconsistent => DecisionRow::HalfSynced,
        Some(q) if q.kept_after <= position.seq && position.seq <= q.last => DecisionRow::InQueue,
        _ => DecisionRow::OutOfQueue,
    }
}

impl DecisionRow {
    /// What the row says.
    pub(crate) fn decision(self, ours: &Identity, theirs: &Identity) -> Decision {
        let (mine, other) = (ours.generation, theirs.generation);
        let position = theirs.position;
        match self {
            DecisionRow::TwoSecondaries | DecisionRow::PeerSends => Decision::Idle,
            DecisionRow::TwoPrimaries => Decision::Refuse(DecisionReason::TwoPrimaries { ours: mine, theirs: other }),
            DecisionRow::NeverSynced if theirs.is_new() => Decision::NeedsFullSync(DecisionReason::NeverSynced),
            DecisionRow::NeverSynced => Decision::NeedsFullSync(DecisionReason::CopyLost),
            DecisionRow::LaterRun | DecisionRow::PastOurLast | DecisionRow::AheadOfLoneStretch => {
                Decision::NeedsFullSync(DecisionReason::PeerSawOurFuture)
            }
            DecisionRow::InQueue | DecisionRow::InEarlierQueue => Decision::Continue(position.seq),
            DecisionRow::HalfSynced
            | DecisionRow::OutOfQueue
            | DecisionRow::EarlierRun
            | DecisionRow::LoneStretch
            | DecisionRow::HandedOver
            | DecisionRow::ForkKept => Decision::UpdateSync,
            DecisionRow::PeerIsNewer => Decision::Refuse(DecisionReason::PeerIsNewer { ours: mine, theirs: other }),
            DecisionRow::PeerWentFurther => {
                Decision::NeedsFullSync(DecisionReason::PeerWentFurther { ours: mine, theirs: other })
            }
            DecisionRow::LoneTail | DecisionRow::Tail | DecisionRow::BothWentOn => {
                Decision::NeedsFullSync(DecisionReason::Fork { at: ours.parent, peer_at: position, by_bits: false })
            }
            DecisionRow::ForkByBits => {
                Decision::NeedsFullSync(DecisionReason::Fork { at: ours.parent, peer_at: position, by_bits: true })
            }
            DecisionRow::Unrelated => Decision::NeedsFullSync(DecisionReason::Unrelated { ours: mine, theirs: other }),
            DecisionRow::WentBack | DecisionRow::BackBeforeLoneStretch => {
                unreachable!("told by what was confirmed, see `went_back`")
            }
        }
    }
}

/// Whether of two primaries the history of `ours` surely grew out of the other's.
pub(crate) fn is_later(ours: &Identity, theirs: &Identity) -> bool {
    let grew_out = ours.parent.generation == theirs.generation || ours.generation.number > theirs.generation.number;
    grew_out && theirs.parent.generation != ours.generation && !theirs.generation.is_blank()
}

/// Whether `kept` was promoted with force out of the history that `other` was primary of, and that one is in the very run which `kept`
/// followed: it may have gone on alone, and was neither promoted nor started again. A promotion that took a demotion back is one, too. What
/// starts may be an older copy, and what serves in a later run was put to work again.
pub(crate) fn was_promoted_over(kept: &Identity, other: &Identity) -> bool {
    let history = kept.parent.generation;
    let is_in_its_run = other.incarnation == kept.parent.incarnation;
    let stayed = other.generation == history && is_in_its_run;
    let went_on = other.parent.generation == history && other.continued && !other.forced && is_in_its_run;
    let either = [other.generation, other.parent.generation].contains(&history) && injected(Fault::PolicyKeepsEither);
    kept.forced && !kept.continued && !history.is_blank() && (stayed || went_on || either)
}

/// Whether the peer contradicts what it confirmed as applied to this history: it stands before it, in the same run, in an
/// earlier one, or in the generation that ours came from though it had followed us.
pub fn went_back(confirmed: Position, ours: &Identity, theirs: &Identity) -> Option<Decision> {
    let position = theirs.position;
    let before = if position.generation == confirmed.generation {
        position.run_and_seq() < confirmed.run_and_seq()
    } else {
        confirmed.generation == ours.generation && position.generation == ours.parent.generation
    };
    let known = !position.generation.is_blank() && !confirmed.generation.is_blank();
    (theirs.role == Role::Secondary && known && before).then_some(Decision::NeedsFullSync(
        DecisionReason::PeerWentBack { confirmed: confirmed.seq, stands_at: position.seq },
    ))
}

/// The row of a peer that [`went_back`].
pub fn row_back(confirmed: Position, theirs: &Identity) -> DecisionRow {
    if theirs.position.generation == confirmed.generation {
        DecisionRow::WentBack
    } else {
        DecisionRow::BackBeforeLoneStretch
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    use super::*;

    fn generation(number: u64) -> Generation {
        Generation { number, tag: number * 1000 }
    }

    fn at(number: u64, incarnation: u64, seq: u64) -> Position {
        Position { generation: generation(number), incarnation: Incarnation(incarnation), seq: Seq(seq) }
    }

    fn primary(number: u64, incarnation: u64, seq: u64) -> Identity {
        Identity {
            role: Role::Primary,
            generation: generation(number),
            incarnation: Incarnation(incarnation),
            position: at(number, incarnation, seq),
            ..Identity::default()
        }
    }

    fn secondary(number: u64, incarnation: u64, seq: u64) -> Identity {
        Identity { role: Role::Secondary, incarnation: Incarnation(1), ..primary(number, incarnation, seq) }
    }

    fn queue(kept_after: u64, last: u64) -> Option<UnbrokenRun> {
        Some(UnbrokenRun { kept_after: Seq(kept_after), last: Seq(last) })
    }

    /// Every pair of small identities, and what the queue may hold.
    fn small_cases() -> impl Iterator<Item = (Identity, Identity, Option<UnbrokenRun>)> {
        let positions = || {
            (0..3u64).flat_map(|number| {
                let numbers = move |tag| Generation { number, tag: if number == 0 { 0 } else { number * 1000 + tag } };
                (0..2).flat_map(move |tag| {
                    (1..3).flat_map(move |run| {
                        (1..3).map(move |seq| Position {
                            generation: numbers(tag),
                            incarnation: Incarnation(run),
                            seq: Seq(seq),
                        })
                    })
                })
            })
        };
        let identities = move |role| {
            positions().flat_map(move |position| {
                positions().filter(move |parent| parent.generation.number < position.generation.number.max(1)).flat_map(
                    move |parent| {
                        (0..8u8).map(move |bits| Identity {
                            role,
                            generation: position.generation,
                            incarnation: position.incarnation,
                            position,
                            parent,
                            inconsistent: bits & 1 != 0,
                            handed_over: bits & 2 != 0,
                            continued: bits & 4 != 0,
                            forced: false,
                        })
                    },
                )
            })
        };
        identities(Role::Primary).flat_map(move |ours| {
            identities(Role::Secondary)
                .flat_map(move |theirs| [None, queue(1, 2)].map(move |queue| (ours, theirs, queue)))
        })
    }

    // proves: rule 5
    #[test]
    fn small_identities_come_to_every_row_and_each_row_decides_one_thing() {
        let mut said: BTreeMap<DecisionRow, core::mem::Discriminant<Decision>> = BTreeMap::new();
        for (ours, theirs, queue) in small_cases() {
            let row = row(&ours, &theirs, queue);
            let decision = core::mem::discriminant(&decide(&ours, &theirs, queue));
            assert_eq!(*said.entry(row).or_insert(decision), decision, "{}", row.name());
        }
        let elsewhere = [
            DecisionRow::TwoSecondaries,
            DecisionRow::PeerSends,
            DecisionRow::TwoPrimaries,
            DecisionRow::InEarlierQueue,
            DecisionRow::WentBack,
            DecisionRow::BackBeforeLoneStretch,
            DecisionRow::ForkByBits,
            DecisionRow::ForkKept,
        ];
        let missing: Vec<&DecisionRow> =
            DecisionRow::ALL.iter().filter(|r| !said.contains_key(r) && !elsewhere.contains(r)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    // proves: P6, rule 5
    #[test]
    fn of_a_fork_the_promoted_side_is_known_only_if_nobody_promoted_the_other_one() {
        let promoted = Identity { forced: true, parent: at(1, 3, 70), ..primary(2, 1, 5) };
        let stayed = primary(1, 3, 90);
        let alone = Identity { continued: true, parent: at(1, 3, 80), ..primary(2, 3, 95) };
        // That the history before began with a forced promotion says nothing of this fork.
        for other in [stayed, alone, Identity { forced: true, ..stayed }, Identity { role: Role::Secondary, ..alone }] {
            assert!(was_promoted_over(&promoted, &other) && !was_promoted_over(&other, &promoted), "{other:?}");
        }
        for other in [
            Identity { forced: true, ..alone },
            Identity { continued: false, ..alone },
            Identity { forced: true, continued: false, ..alone },
            primary(3, 3, 90),
            // Started again, as it was or as an older copy; or in the middle of a history that it began before that.
            primary(1, 4, 0),
            Identity { incarnation: Incarnation(4), ..alone },
            Identity { incarnation: Incarnation(4), position: at(2, 4, 1), parent: at(1, 4, 0), ..alone },
        ] {
            assert!(!was_promoted_over(&promoted, &other), "{other:?}");
        }
        for kept in [
            Identity { forced: false, ..promoted },
            Identity { continued: true, ..promoted },
            Identity { parent: Position::default(), ..promoted },
        ] {
            assert!(!was_promoted_over(&kept, &stayed), "{kept:?}");
        }
    }

    // proves: rule 5
    #[test]
    fn row_blank_secondary_waits_for_an_operator() {
        let blank = Identity::default();
        assert_eq!(decide(&primary(1, 1, 5), &blank, None), Decision::NeedsFullSync(DecisionReason::NeverSynced));
    }

    // proves: rule 5
    #[test]
    fn row_unbroken_queue_continues() {
        let p = primary(1, 3, 90);
        assert_eq!(decide(&p, &secondary(1, 3, 70), queue(60, 90)), Decision::Continue(Seq(70)));
        assert_eq!(decide(&p, &secondary(1, 3, 60), queue(60, 90)), Decision::Continue(Seq(60)));
        assert_eq!(decide(&p, &secondary(1, 3, 90), queue(90, 90)), Decision::Continue(Seq(90)));
    }

    // proves: rule 5
    #[test]
    fn row_broken_queue_becomes_an_update_sync() {
        let p = primary(1, 3, 90);
        assert_eq!(decide(&p, &secondary(1, 3, 59), queue(60, 90)), Decision::UpdateSync);
        assert_eq!(decide(&p, &secondary(1, 3, 70), None), Decision::UpdateSync);
    }

    // proves: rule 5
    #[test]
    fn row_interrupted_sync_is_never_continued_from_the_queue() {
        let half = Identity { inconsistent: true, ..secondary(1, 3, 70) };
        assert_eq!(decide(&primary(1, 3, 90), &half, queue(60, 90)), Decision::UpdateSync);
    }

    // proves: rule 5
    #[test]
    fn row_next_incarnation_is_not_a_split() {
        assert_eq!(decide(&primary(1, 4, 0), &secondary(1, 3, 70), queue(0, 0)), Decision::UpdateSync);
    }

    // proves: rule 5
    #[test]
    fn row_peer_saw_our_future() {
        let p = primary(1, 3, 90);
        assert_eq!(decide(&p, &secondary(1, 4, 1), None), Decision::NeedsFullSync(DecisionReason::PeerSawOurFuture));
        assert_eq!(
            decide(&p, &secondary(1, 3, 91), queue(60, 90)),
            Decision::NeedsFullSync(DecisionReason::PeerSawOurFuture)
        );
    }

    // proves: rule 5
    #[test]
    fn row_clean_handover_is_an_update_sync() {
        let promoted = Identity { parent: at(1, 3, 70), ..primary(2, 1, 5) };
        let demoted = Identity { handed_over: true, ..secondary(1, 3, 70) };
        assert_eq!(decide(&promoted, &demoted, queue(0, 5)), Decision::UpdateSync);
    }

    // proves: P6, rule 5
    #[test]
    fn row_fork_with_tail_is_never_resolved_silently() {
        let promoted = Identity { parent: at(1, 3, 70), ..primary(2, 1, 5) };
        for old in [
            secondary(1, 3, 70),
            Identity { handed_over: true, ..secondary(1, 3, 71) },
            Identity { handed_over: true, inconsistent: true, ..secondary(1, 3, 70) },
        ] {
            assert!(
                matches!(decide(&promoted, &old, None), Decision::NeedsFullSync(DecisionReason::Fork { .. })),
                "{old:?}"
            );
        }
    }

    // proves: P6, rule 5
    /// Writes that were answered alone while the queue kept the order have numbers of the run that the peer followed.
    #[test]
    fn row_what_was_answered_alone_from_the_queue_is_a_tail_or_goes_on_in_order() {
        let queued = primary(1, 3, 90);
        let stands = |seq| secondary(1, 3, seq);
        assert_eq!(row(&queued, &stands(70), queue(60, 80)), DecisionRow::InQueue, "nobody was promoted");
        assert_eq!(row(&queued, &stands(81), queue(60, 80)), DecisionRow::OutOfQueue, "it was never sent so much");
        let promoted = Identity { parent: at(1, 3, 70), ..primary(2, 1, 5) };
        let returned = |handed_over, seq| Identity { handed_over, ..stands(seq) };
        for (handed_over, seq, wanted) in [
            (false, 90, DecisionRow::LoneTail),
            (true, 71, DecisionRow::LoneTail),
            (false, 70, DecisionRow::Tail),
            (true, 70, DecisionRow::HandedOver),
            (true, 69, DecisionRow::Tail),
        ] {
            assert_eq!(row(&promoted, &returned(handed_over, seq), None), wanted, "{handed_over} at {seq}");
        }
        assert_eq!(row(&promoted, &secondary(1, 4, 90), None), DecisionRow::Tail, "it began another run since");
        // The queue ran full meanwhile, and what followed began a generation: still a fork.
        let fell = Identity { parent: at(1, 3, 90), continued: true, ..secondary(2, 3, 95) };
        let fell = Identity { generation: Generation { number: 2, tag: 77 }, ..fell };
        assert_eq!(row(&promoted, &fell, None), DecisionRow::BothWentOn);
        let why = decide(&promoted, &returned(false, 90), None);
        assert_eq!(
            why,
            Decision::NeedsFullSync(DecisionReason::Fork { at: at(1, 3, 70), peer_at: at(1, 3, 90), by_bits: false })
        );
    }

    // proves: P3, rule 5
    #[test]
    fn row_a_peer_that_takes_its_word_back_is_made_whole() {
        let (ours, confirmed) = (primary(1, 3, 90), at(1, 3, 70));
        let reported = |stands_at| {
            let why = DecisionReason::PeerWentBack { confirmed: Seq(70), stands_at: Seq(stands_at) };
            Some(Decision::NeedsFullSync(why))
        };
        assert_eq!(went_back(confirmed, &ours, &secondary(1, 3, 69)), reported(69));
        assert_eq!(went_back(confirmed, &ours, &secondary(1, 3, 70)), None);
        assert_eq!(went_back(confirmed, &ours, &secondary(1, 2, 99)), reported(99), "an earlier run");
        assert_eq!(went_back(confirmed, &ours, &primary(1, 3, 9)), None, "roles are another row");
        assert_eq!(went_back(Position::default(), &ours, &secondary(1, 3, 69)), None);
        assert_eq!(went_back(confirmed, &ours, &Identity::default()), None, "blank is another row");
        let alone = Identity { parent: at(1, 3, 60), continued: true, ..primary(2, 3, 90) };
        assert_eq!(went_back(at(2, 3, 70), &alone, &secondary(1, 3, 60)), reported(60), "it had followed");
        assert_eq!(went_back(confirmed, &alone, &secondary(1, 3, 70)), None, "it has not followed yet");
    }

    // proves: rule 5
    #[test]
    fn row_a_peer_that_followed_a_promotion_is_not_where_it_handed_over() {
        let promoted = Identity { parent: at(1, 3, 70), ..primary(2, 1, 5) };
        let handed_over = Identity { handed_over: true, ..secondary(1, 3, 70) };
        assert!(went_back(at(2, 1, 4), &promoted, &handed_over).is_some());
        assert_eq!(went_back(Position::default(), &promoted, &handed_over), None);
    }

    #[test]
    fn a_peer_in_mid_sync_may_go_back_to_its_image_if_it_names_what_it_undid() {
        let known = Confirmed { position: at(1, 3, 70), image: at(1, 3, 50) };
        let stands = |seq| secondary(1, 3, seq);
        let believed = |theirs: &Identity, its_dirty_bytes| {
            went_back(known.earliest(theirs, its_dirty_bytes), &primary(1, 4, 90), theirs).is_none()
        };
        assert!(believed(&stands(50), 4096) && believed(&stands(70), 0));
        assert!(!believed(&stands(50), 0), "it names nothing");
        assert!(!believed(&stands(49), 4096), "before its image");
        assert!(
            !believed(&Identity { inconsistent: true, ..stands(69) }, 4096),
            "in the midst of a sync it did not go back"
        );
    }

    #[test]
    fn of_what_records_carry_the_newest_position_of_this_history_counts() {
        let found = |seq, image| Confirmed { position: at(2, 3, seq), image: at(2, 3, image) };
        assert!(found(70, 50) > found(60, 60) && found(70, 70) > found(70, 50));
        let alone = Identity { parent: at(1, 3, 60), continued: true, ..primary(2, 3, 90) };
        assert!(alone.goes_on_from(generation(2)) && alone.goes_on_from(generation(1)));
        let promoted = Identity { continued: false, ..alone };
        assert!(!promoted.goes_on_from(generation(1)) && !promoted.goes_on_from(generation(3)));
    }

    // proves: rule 5
    #[test]
    fn row_a_degraded_window_is_no_fork() {
        let alone = Identity { parent: at(1, 3, 70), continued: true, ..primary(2, 3, 90) };
        assert_eq!(decide(&alone, &secondary(1, 3, 70), None), Decision::UpdateSync);
        assert_eq!(decide(&alone, &secondary(1, 2, 900), None), Decision::UpdateSync, "an earlier run");
        assert_eq!(
            decide(&alone, &secondary(1, 3, 71), None),
            Decision::NeedsFullSync(DecisionReason::PeerSawOurFuture),
            "it cannot have what was never sent"
        );
    }

    // proves: P6, rule 5
    #[test]
    fn row_both_went_on_from_one_position() {
        let ours = Identity { parent: at(1, 3, 70), continued: true, ..primary(2, 3, 90) };
        let theirs = Identity {
            parent: at(1, 3, 60),
            generation: Generation { number: 2, tag: 77 },
            position: Position { generation: Generation { number: 2, tag: 77 }, ..at(2, 1, 5) },
            ..secondary(2, 1, 5)
        };
        assert!(matches!(decide(&ours, &theirs, None), Decision::NeedsFullSync(DecisionReason::Fork { .. })));
    }

    // proves: P6, rule 5
    #[test]
    fn row_old_primary_never_overwrites_a_promoted_peer() {
        let old = primary(1, 3, 90);
        let promoted = Identity { role: Role::Primary, parent: at(1, 3, 70), ..secondary(2, 1, 5) };
        assert!(matches!(
            decide(&old, &promoted, queue(60, 90)),
            Decision::Refuse(DecisionReason::TwoPrimaries { .. })
        ));
        let demoted_again = Identity { role: Role::Secondary, ..promoted };
        assert!(matches!(
            decide(&old, &demoted_again, queue(60, 90)),
            Decision::Refuse(DecisionReason::PeerIsNewer { .. })
        ));
        let grandchild = Identity { parent: at(2, 1, 5), ..secondary(3, 1, 5) };
        assert!(matches!(
            decide(&old, &grandchild, None),
            Decision::NeedsFullSync(DecisionReason::PeerWentFurther { .. })
        ));
    }

    // proves: P6, rule 5
    #[test]
    fn row_histories_that_both_went_on_alone_are_no_child_of_one_another() {
        let promoted = Identity { parent: at(1, 3, 70), ..primary(2, 1, 5) };
        let twin = Generation { number: 2, tag: 77 };
        let alone = Identity { parent: Position { generation: twin, ..at(2, 3, 90) }, ..secondary(3, 3, 95) };
        assert!(matches!(decide(&promoted, &alone, None), Decision::NeedsFullSync(DecisionReason::Unrelated { .. })));
    }

    // proves: P6, rule 5
    #[test]
    fn row_unrelated_needs_an_operator() {
        let unrelated = Identity { generation: Generation { number: 1, tag: 77 }, ..secondary(1, 3, 70) };
        assert!(matches!(
            decide(&primary(1, 3, 90), &unrelated, None),
            Decision::NeedsFullSync(DecisionReason::Unrelated { .. })
        ));
    }

    // proves: rule 5
    #[test]
    fn row_secondaries_wait() {
        assert_eq!(decide(&secondary(1, 3, 70), &secondary(1, 3, 70), None), Decision::Idle);
        assert_eq!(decide(&secondary(1, 3, 70), &primary(1, 3, 90), None), Decision::Idle);
    }

    #[test]
    fn identity_comes_back_and_rejects_unknown_bits() {
        let id = Identity { parent: at(1, 2, 3), handed_over: true, forced: true, ..primary(4, 5, 6) };
        let mut w = FieldEncoder::default();
        id.encode(&mut w);
        assert_eq!(Identity::decode(&mut FieldDecoder(&w.0)), Some(id));
        w.0[1] = 16;
        assert_eq!(Identity::decode(&mut FieldDecoder(&w.0)), None);
    }

    /// A peer named a position that nobody counts up to, and every later number of ours was to be higher.
    #[test]
    fn an_identity_beyond_all_counting_is_out_of_reach() {
        let most = crate::limits::NUMBER_MAX;
        let sound = primary(3, 7, 50);
        assert!(sound.is_in_reach());
        assert!(!Identity { position: at(3, 7, most + 1), ..sound }.is_in_reach());
        assert!(!Identity { parent: at(2, most + 1, 0), ..sound }.is_in_reach());
        assert!(!Identity { incarnation: Incarnation(most + 1), ..sound }.is_in_reach());
        assert!(!Identity { generation: Generation { number: most + 1, tag: 1 }, ..sound }.is_in_reach());
    }
}
