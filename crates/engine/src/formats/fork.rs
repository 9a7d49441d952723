//! A fork whose two sides are known by bits. Both nodes wrote since one position of one history, each alone. A node's dirty regions
//! cover what it wrote, undid or dropped since; those of both together cover what differs, if four things hold:
//!
//! ```text
//!  owner:    ---- confirmed ------------ last number here ---> alone: its bits, from `confirmed` on
//!  follower: ------------------ parted here -----------------> alone: its bits
//! ```
//! * The *owner* gave the numbers of that history. It forgot a bit only for what the *follower* had confirmed. So the follower must
//!   have parted at or behind that: one that was promoted from an older copy lacks what is dirty nowhere.
//! * A follower that went back to the image before a sync names in its bits what it undid. That image must be the one it had confirmed.
//! * The owner must have come as far as the follower: else it is the owner whose records are old.
//! * Nothing of the follower's own history may have been confirmed to it: once somebody has followed it, it has forgotten bits since.
//!
//! Nothing else is believed. Where this says no, only a full sync resolves the fork.

use crate::formats::identity::{Confirmed, DecisionRow, Identity};
use crate::formats::wire::GroupHello;
use crate::ids::{Generation, Position};
use crate::injected_fault::{Fault, injected};

/// One side of a fork.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForkSide {
    pub identity: Identity,
    /// What the other side had confirmed to it as the primary of the last history in which anything was.
    pub confirmed: Confirmed,
    /// The image that it went back to last; blank: none.
    pub went_back_to: Position,
}

impl ForkSide {
    pub fn of(hello: &GroupHello) -> ForkSide {
        ForkSide { identity: hello.identity, confirmed: hello.confirmed, went_back_to: hello.went_back_to }
    }

    /// Where it left this history, or stands in it.
    fn left(&self, history: Generation) -> Option<Position> {
        let Identity { generation, parent, position, .. } = self.identity;
        let is_there = generation == history && position.generation == history;
        if is_there { Some(position) } else { Some(parent).filter(|parent| parent.generation == history) }
    }

    /// Nobody has followed its own history since it parted.
    fn forgot_nothing(&self) -> bool {
        let own = self.identity.generation;
        let places = [self.confirmed.position, self.confirmed.image];
        places.iter().all(|place| place.generation != own) || injected(Fault::ForkFollowedBefore)
    }

    /// What this owner of the history forgot, the other one had when they parted.
    fn has_told(&self, follower: &ForkSide, history: Generation) -> bool {
        let (Some(here), Some(parted)) = (self.left(history), follower.left(history)) else { return false };
        let names_what_it_undid = follower.went_back_to == parted;
        let confirmed = if names_what_it_undid { self.confirmed.image } else { self.confirmed.position };
        let is_of_history = [confirmed, self.confirmed.position].iter().all(|place| place.generation == history);
        let had_all = parted.run_and_seq() >= confirmed.run_and_seq() || injected(Fault::ForkFromOldCopy);
        is_of_history && had_all && follower.forgot_nothing() && here.run_and_seq() >= parted.run_and_seq()
    }
}

/// The history that both were in last.
fn common_history(ours: &Identity, theirs: &Identity) -> Option<Generation> {
    let parents = (ours.parent.generation, theirs.parent.generation);
    let history = if parents.0 == theirs.generation {
        theirs.generation
    } else if parents.1 == ours.generation {
        ours.generation
    } else {
        Some(parents.0).filter(|_| parents.0 == parents.1)?
    };
    (!history.is_blank() && ours.generation != theirs.generation).then_some(history)
}

/// Whether the dirty regions of both sides together cover what differs.
pub(crate) fn is_covered_by_bits(ours: &ForkSide, theirs: &ForkSide) -> bool {
    let Some(history) = common_history(&ours.identity, &theirs.identity) else { return false };
    let are_whole = !ours.identity.inconsistent && !theirs.identity.inconsistent;
    are_whole && (ours.has_told(theirs, history) || theirs.has_told(ours, history))
}

/// The row of a fork of which this much is known. `kept_over`: [`Identity::stand`] of the peer over which ours was chosen; 0: none.
pub(crate) fn row_of_fork(row: DecisionRow, ours: &ForkSide, theirs: &ForkSide, kept_over: u64) -> DecisionRow {
    let is_fork = matches!(row, DecisionRow::LoneTail | DecisionRow::Tail | DecisionRow::BothWentOn);
    if !is_fork || !is_covered_by_bits(ours, theirs) {
        return row;
    }
    let is_kept = kept_over != 0 && kept_over == theirs.identity.stand();
    if is_kept { DecisionRow::ForkKept } else { DecisionRow::ForkByBits }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::formats::identity::{Decision, DecisionReason, Role, row, went_back};
    use crate::ids::{Incarnation, Seq};

    fn generation(number: u64, tag: u64) -> Generation {
        Generation { number, tag }
    }

    const FIRST: Generation = Generation { number: 1, tag: 11 };

    fn at(generation: Generation, run: u64, seq: u64) -> Position {
        Position { generation, incarnation: Incarnation(run), seq: Seq(seq) }
    }

    /// Of the first history: its primary came to 90 in its third run, of which 70 were confirmed.
    fn owner(role: Role) -> ForkSide {
        let position = at(FIRST, 3, 90);
        let identity =
            Identity { role, generation: FIRST, position, incarnation: Incarnation(3), ..Identity::default() };
        let confirmed = Confirmed { position: at(FIRST, 3, 70), image: at(FIRST, 3, 70) };
        ForkSide { identity, confirmed, went_back_to: Position::default() }
    }

    /// The same, went on alone.
    fn owner_alone(role: Role) -> ForkSide {
        let side = owner(role);
        let alone = generation(2, 22);
        let identity = Identity {
            generation: alone,
            parent: side.identity.position,
            position: at(alone, 3, 95),
            continued: true,
            ..side.identity
        };
        ForkSide { identity, ..side }
    }

    /// Promoted from a copy that stood there.
    fn promoted(role: Role, parent: Position) -> ForkSide {
        let own = generation(2, 33);
        let identity = Identity {
            role,
            generation: own,
            parent,
            position: at(own, 2, 5),
            incarnation: Incarnation(2),
            ..Identity::default()
        };
        ForkSide { identity, confirmed: Confirmed::default(), went_back_to: Position::default() }
    }

    fn decided(ours: &ForkSide, theirs: &ForkSide, kept_over: u64) -> DecisionRow {
        row_of_fork(row(&ours.identity, &theirs.identity, None), ours, theirs, kept_over)
    }

    // proves: P3, rule 5
    #[test]
    fn row_fork_by_bits_needs_an_order_and_row_fork_kept_has_it() {
        let (ours, theirs) = (promoted(Role::Primary, at(FIRST, 3, 80)), owner(Role::Secondary));
        for theirs in [theirs, owner_alone(Role::Secondary)] {
            let by_bits = decided(&ours, &theirs, 0);
            assert_eq!(by_bits, DecisionRow::ForkByBits);
            assert!(matches!(
                by_bits.decision(&ours.identity, &theirs.identity),
                Decision::NeedsFullSync(DecisionReason::Fork { by_bits: true, .. })
            ));
            let of =
                |position: Position| Identity { generation: position.generation, position, ..theirs.identity }.stand();
            let chosen = Position { generation: theirs.identity.generation, ..theirs.identity.position };
            let others =
                [generation(9, 99), theirs.identity.generation].map(|of| Position { generation: of, ..chosen });
            let others = [others[0], Position { seq: Seq(chosen.seq.0 - 1), ..others[1] }];
            for other in others.into_iter().chain([Position { incarnation: Incarnation(2), ..chosen }]) {
                assert_eq!(
                    decided(&ours, &theirs, of(other)),
                    DecisionRow::ForkByBits,
                    "something else was chosen against"
                );
            }
            let kept = decided(&ours, &theirs, of(chosen));
            assert_eq!(kept, DecisionRow::ForkKept);
            assert_eq!(kept.decision(&ours.identity, &theirs.identity), Decision::UpdateSync);
        }
        // The old primary is kept.
        let theirs = promoted(Role::Secondary, at(FIRST, 3, 80));
        assert_eq!(decided(&owner_alone(Role::Primary), &theirs, theirs.identity.stand()), DecisionRow::ForkKept);
    }

    // proves: P3, rule 5
    #[test]
    fn a_follower_that_was_followed_itself_since_is_not_believed() {
        let follower = promoted(Role::Primary, at(FIRST, 3, 80));
        let own = at(follower.identity.generation, 2, 4);
        let blank = Position::default();
        for (position, image) in [(own, own), (own, blank), (at(FIRST, 3, 80), own)] {
            let followed = ForkSide { confirmed: Confirmed { position, image }, ..follower };
            for owner in [owner(Role::Secondary), owner_alone(Role::Secondary)] {
                assert!(is_covered_by_bits(&follower, &owner));
                assert!(!is_covered_by_bits(&followed, &owner) && !is_covered_by_bits(&owner, &followed));
            }
        }
    }

    // proves: P3, rule 5
    #[test]
    fn a_follower_that_parted_before_what_it_had_confirmed_is_not_believed() {
        for (seq, is_covered) in [(69, false), (70, true), (90, true), (91, false)] {
            let follower = promoted(Role::Primary, at(FIRST, 3, seq));
            for owner in [owner(Role::Secondary), owner_alone(Role::Secondary)] {
                assert_eq!(is_covered_by_bits(&follower, &owner), is_covered, "{seq}");
                assert_eq!(is_covered_by_bits(&owner, &follower), is_covered, "{seq}");
            }
        }
        let earlier_run = promoted(Role::Primary, at(FIRST, 2, 900));
        assert!(!is_covered_by_bits(&earlier_run, &owner(Role::Secondary)));
    }

    // proves: P3, rule 6
    #[test]
    fn one_that_went_back_must_have_come_to_the_image_that_was_confirmed() {
        let image = at(FIRST, 3, 50);
        let owner = ForkSide { confirmed: Confirmed { position: at(FIRST, 3, 70), image }, ..owner(Role::Secondary) };
        let follower = promoted(Role::Primary, image);
        assert!(!is_covered_by_bits(&follower, &owner), "it does not say that it undid anything");
        assert!(is_covered_by_bits(&ForkSide { went_back_to: image, ..follower }, &owner));
        let before = at(FIRST, 3, 49);
        let older = ForkSide { went_back_to: before, ..promoted(Role::Primary, before) };
        assert!(!is_covered_by_bits(&older, &owner));
    }

    // proves: P3
    #[test]
    fn without_a_confirmation_of_that_history_nothing_is_believed() {
        let follower = promoted(Role::Primary, at(FIRST, 3, 80));
        let silent = ForkSide { confirmed: Confirmed::default(), ..owner(Role::Secondary) };
        assert!(!is_covered_by_bits(&follower, &silent));
        let position = at(generation(7, 77), 3, 10);
        let of_another = ForkSide { confirmed: Confirmed { position, image: position }, ..silent };
        assert!(!is_covered_by_bits(&follower, &of_another));
        let mut mixture = owner(Role::Secondary);
        mixture.identity.inconsistent = true;
        assert!(!is_covered_by_bits(&follower, &mixture));
        let blank = ForkSide { identity: Identity::default(), ..mixture };
        assert!(!is_covered_by_bits(&blank, &blank));
    }

    // proves: P3
    /// Where the bits cover a fork, the peer has not gone back behind what it confirmed: no sync of it would wait for an operator.
    #[test]
    fn a_peer_of_a_fork_that_bits_cover_stands_by_its_word() {
        let (own, other) = (generation(2, 22), generation(2, 33));
        let places =
            [Position::default(), at(FIRST, 3, 70), at(FIRST, 3, 80), at(own, 3, 5), at(own, 3, 90), at(other, 2, 4)];
        let mut sides = Vec::new();
        for generation in [FIRST, own, other] {
            for (parent, position) in places.into_iter().flat_map(|parent| places.map(|position| (parent, position))) {
                let is_old = parent.generation.number < generation.number;
                if position.generation != generation || !is_old {
                    continue;
                }
                // Nobody is told of a history in which it never was primary, nor of more than it had.
                let had =
                    |at: &Position| [parent, position].iter().any(|of| of.generation == at.generation && of >= at);
                let told = places.into_iter().filter(|at| at.generation.is_blank() || had(at));
                let told: Vec<Position> = told.collect();
                for (position_said, image) in told.iter().flat_map(|one| told.iter().map(|other| (*one, *other))) {
                    let identity = Identity { generation, parent, position, ..Identity::default() };
                    let confirmed = Confirmed { position: position_said, image };
                    for went_back_to in [Position::default(), parent] {
                        sides.push(ForkSide { identity, confirmed, went_back_to });
                    }
                }
            }
        }
        let mut covered = 0;
        for (ours, theirs) in sides.iter().flat_map(|ours| sides.iter().map(move |theirs| (ours, theirs))) {
            if !is_covered_by_bits(ours, theirs) {
                continue;
            }
            covered += 1;
            let peer = Identity { role: Role::Secondary, ..theirs.identity };
            // Only a copy that undid something names it by bits of its own; and whoever went back knows the image.
            let earliest =
                if theirs.went_back_to.generation.is_blank() { ours.confirmed.position } else { ours.confirmed.image };
            assert!(went_back(earliest, &ours.identity, &peer).is_none(), "{ours:?} over {theirs:?}");
        }
        assert!(covered > 0);
    }
}
