//! What the histories need not come to, and why.

use engine::identity::DecisionRow;

use super::event::HistoryEvent;

/// A row that keeps two nodes apart though nothing would be lost.
pub struct ApartException {
    pub row: DecisionRow,
    /// Histories of so many events come to it.
    pub length: usize,
    /// Only after such an event.
    pub after: fn(&HistoryEvent) -> bool,
    pub why: &'static str,
}

fn is_power_loss(event: &HistoryEvent) -> bool {
    matches!(event, HistoryEvent::PowerLoss(_))
}

fn is_forced(event: &HistoryEvent) -> bool {
    matches!(event, HistoryEvent::Force(_))
}

fn is_forced_or_set_back(event: &HistoryEvent) -> bool {
    is_forced(event) || is_set_back(event)
}

fn is_set_back(event: &HistoryEvent) -> bool {
    matches!(event, HistoryEvent::SetBack)
}

/// Each of them has to happen where histories are long enough.
pub const APART_WITHOUT_LOSS: [ApartException; 12] = [
    ApartException {
        row: DecisionRow::TwoSecondaries,
        length: 1,
        after: |event| matches!(event, HistoryEvent::Demote(_) | HistoryEvent::Keep(_)),
        why: "who sends is an operator's choice: he promotes one of the two",
    },
    ApartException {
        row: DecisionRow::TwoPrimaries,
        length: 1,
        after: is_forced,
        why: "both serve writers, and which ones are to stop is an operator's choice",
    },
    ApartException {
        row: DecisionRow::EarlierRun,
        length: 4,
        after: is_power_loss,
        why: "the primary served before it heard what its peer had confirmed, and may have lost with its power",
    },
    ApartException {
        row: DecisionRow::PeerIsNewer,
        length: 2,
        after: is_forced,
        why: "the peer was promoted: that is a choice, whether or not it wrote",
    },
    ApartException { row: DecisionRow::PeerWentFurther, length: 4, after: is_forced, why: "the same, more than once" },
    ApartException {
        row: DecisionRow::Unrelated,
        length: 4,
        after: is_forced_or_set_back,
        why: "a node knows one generation before its own, and no grandparent",
    },
    ApartException {
        row: DecisionRow::ForkByBits,
        length: 2,
        after: is_forced,
        why: "an old primary that did not hand over may have gone on, and what it answered may be in no image",
    },
    ApartException {
        row: DecisionRow::WentBack,
        length: 2,
        after: is_set_back,
        why: "what an old copy lacks is dirty nowhere: only a comparison of all finds it",
    },
    ApartException {
        row: DecisionRow::BackBeforeLoneStretch,
        length: 4,
        after: is_set_back,
        why: "the same, of a copy in the generation before",
    },
    ApartException {
        row: DecisionRow::Tail,
        length: 4,
        after: is_forced_or_set_back,
        why: "as a fork by bits, and of an old copy, or in the midst of a sync, the bits do not tell what differs",
    },
    ApartException {
        row: DecisionRow::LoneStretch,
        length: 5,
        after: is_power_loss,
        why: "as an earlier run: the primary served before it heard what its peer had confirmed",
    },
    ApartException {
        row: DecisionRow::BothWentOn,
        length: 5,
        after: is_set_back,
        why: "as a tail: the bits of an old copy do not tell what differs",
    },
];

/// Rows that no history of the usual length comes to. None of them may happen.
pub const ROWS_OUT_OF_REACH: [(DecisionRow, &str); 8] = [
    (DecisionRow::InEarlierQueue, "no queue is logged there"),
    (DecisionRow::TwoSecondaries, "only a primary decides"),
    (DecisionRow::PeerSends, "only a primary decides"),
    (DecisionRow::NeverSynced, "both nodes hold an image from the beginning"),
    (DecisionRow::LaterRun, "a primary is started from an old copy, which the manual forbids"),
    (DecisionRow::PastOurLast, "a primary is started from an old copy, which the manual forbids"),
    (DecisionRow::AheadOfLoneStretch, "a primary is started from an old copy, which the manual forbids"),
    (DecisionRow::BothWentOn, "a node that was set back, and a fork of which both sides wrote alone, take five events"),
];
