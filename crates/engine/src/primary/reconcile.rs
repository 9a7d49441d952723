//! What a primary does while it reconciles its bits and its peer's: it goes on once they are joined, or asks its operator.

use crate::SendPayload;
use crate::common::Common;
use crate::context::Cx;
use crate::formats::bitmap::region_span;
use crate::formats::identity::Decision;
use crate::formats::wire::{Header, Kind, VolumeRange, flags};
use crate::limits::{self};
use crate::peer::settle::{Pull, Settling, fits};
use crate::planted::{Fault, planted};
use crate::primary::Primary;
use crate::records::bits::AfterBits;
use crate::shared::marks::Mark;
use crate::shared::size::Size;
use crate::state::State;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

impl Primary {
    // ---- the primary asks -------------------------------------------------------------------------------------------

    /// Whether this session may go on to send; if not, what is missing was asked for.
    pub fn settle(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        let (Some(hello), Some(link)) = (common.greeting.hello(), cx.peer.link) else { return false };
        match self.peer.settling {
            Settling::Done => return true,
            Settling::NotYet if self.peer.peer_went_back(common) => {
                self.went_back_in_doubt(common, cx);
                return false;
            }
            Settling::NotYet => {}
            _ => return false,
        }
        if hello.dirty_bytes > 0 && !planted(Fault::BitsNotJoined) {
            self.peer.questions += 1;
            cx.send(link, self.peer.question(common, cx, Kind::BitsAsk), SendPayload::None);
            self.peer.settling = Settling::AskedBits;
            return false;
        }
        self.peer.settle_tail(common, cx);
        matches!(self.peer.settling, Settling::Done)
    }

    /// An export that waits for the peer has it asked, also where only the operator may have anything sent to it: this node was
    /// promoted again before it could ask.
    pub fn settle_fork(&mut self, common: &mut Common, cx: &mut Cx) {
        let peer_is_new = common.greeting.hello().is_some_and(|hello| hello.identity.is_new());
        if self.peer.withheld && common.sb.current.is_unmet() && peer_is_new {
            cx.marks.hit(Mark::NewPairMet);
            return self.peer.nothing_in_doubt(common, cx);
        }
        if self.peer.withheld && common.greeting.hello().is_some_and(|hello| common.followed_in_doubt(&hello.identity))
        {
            self.settle(common, cx);
        }
    }

    pub fn settled_recorded(&mut self, common: &mut Common, cx: &mut Cx) {
        if matches!(self.peer.settling, Settling::Recording) {
            self.peer.settling = Settling::Done;
        }
        if matches!(common.state, State::Failed(_)) {
            // Another store failed while that was being recorded: nothing is opened over it, and nothing begins.
            return;
        }
        self.peer.open_exports(common, cx);
        if core::mem::take(&mut self.peer.full_sync_due) && self.peer.full_is_wanted(common) {
            self.peer.begin_full_sync(common, cx);
        } else {
            self.meet_if_apart(common, cx);
        }
    }

    /// Something that stood in the way of a sync is done.
    pub fn meet_if_apart(&mut self, common: &mut Common, cx: &mut Cx) {
        if self.peer.is_apart() {
            self.meet_peer(common, cx);
        }
    }

    /// The union of both sides' bits is durable here; the peer keeps its own until a sync has made it equal.
    pub fn bits_joined(&mut self, common: &mut Common, cx: &mut Cx) {
        if matches!(self.peer.settling, Settling::StoringBits) {
            self.peer.settling = Settling::NotYet;
            common.greeting.bits_joined(&mut common.sb.current.confirmed);
            self.meet_if_apart(common, cx);
        }
    }

    pub fn tail_arrived(
        &mut self,
        common: &mut Common,
        cx: &mut Cx,
        header: &Header,
        more: Vec<VolumeRange>,
    ) -> Option<()> {
        let Settling::AskedTail { ranges } = &mut self.peer.settling else { return Some(()) };
        // In order and apart: so each byte is named once, and what is asked for is no more than the volumes hold.
        let mut before = ranges.last().copied();
        for range in &more {
            let apart = |last: VolumeRange| (last.volume, last.offset + last.length) <= (range.volume, range.offset);
            if !fits(&common.volumes, range) || !before.is_none_or(apart) {
                return None;
            }
            before = Some(*range);
        }
        ranges.extend(more);
        if ranges.len() > limits::KEPT_MAX {
            return None;
        }
        if header.flags & flags::LAST == 0 {
            return Some(());
        }
        let ranges = core::mem::take(ranges);
        if header.flags & flags::UNKNOWN != 0 {
            self.ask_about_unknown(common, cx);
        } else if ranges.is_empty() || planted(Fault::TailNotPulled) {
            cx.marks.hit(Mark::NothingToPull);
            self.peer.nothing_in_doubt(common, cx);
        } else if self.peer.is_written_since(common) {
            self.ask_operator(common, cx, &ranges);
        } else {
            for range in &ranges {
                let (first, last) = region_span(range.offset, range.length);
                let dirty = &mut common.volumes.of(range.volume).dirty;
                (first..=last).for_each(|region| _ = dirty.set(region));
            }
            self.peer.settling = Settling::StoringRanges { ranges };
            common.save_bits(cx, AfterBits::Pull { question: self.peer.questions });
        }
        Some(())
    }

    fn ask_operator(&mut self, common: &mut Common, cx: &mut Cx, ranges: &[VolumeRange]) {
        cx.marks.hit(Mark::TailAskedAbout);
        self.peer.settling = Settling::Asking;
        let outside = self.peer.withheld && common.sb.current.changed_outside;
        if outside {
            // Somebody's bytes may stand where the peer's would come.
            self.peer.stays_closed(common, cx, None);
        }
        let since = if outside { "a volume was written from outside since" } else { "this node has served since" };
        let bytes: u64 = ranges.iter().map(|range| range.length).sum();
        let why = format!(
            "before this node lost power the peer confirmed {} ({} ranges) that may be missing here, and {since}: \
             '{}' here keeps this node's content; to keep the peer's, demote this node \
             and promote the peer with --force",
            Size(bytes),
            ranges.len(),
            self.peer.keeps_this_nodes_content(common)
        );
        self.fall_to_logging(common, cx, &why);
    }

    /// What a peer from an old copy keeps may be older than what stands here: nothing is asked of it. What it had confirmed before is
    /// known to nobody any more.
    fn went_back_in_doubt(&mut self, common: &mut Common, cx: &mut Cx) {
        let Some(Decision::NeedsFullSync(why)) =
            self.peer.decision(common).filter(|_| common.is_in_doubt() && self.peer.withheld)
        else {
            return;
        };
        cx.marks.hit(Mark::WentBackInDoubt);
        self.peer.settling = Settling::Asking;
        let why = format!(
            "{why}; before this node lost power it may have confirmed writes that are missing here, and which ones cannot be known any \
             more. The export stays closed until you choose: '{}' here keeps this node's content; if the peer's copy is the better one, \
             demote this node and promote the peer with --force",
            self.peer.keeps_this_nodes_content(common)
        );
        self.stay_closed_for(common, cx, why);
    }

    fn stay_closed_for(&mut self, common: &mut Common, cx: &mut Cx, why: String) {
        self.peer.stays_closed(common, cx, Some(why.clone()));
        self.fall_to_logging(common, cx, &why);
        common.reason = why;
    }

    /// The peer confirmed writes that may be missing here, and does not know any more which: no time that passes makes that good.
    fn ask_about_unknown(&mut self, common: &mut Common, cx: &mut Cx) {
        cx.marks.hit(Mark::TailUnknown);
        self.peer.settling = Settling::Asking;
        let keeps = self.peer.keeps_this_nodes_content(common);
        if !self.peer.withheld {
            let why = format!(
                "before this node lost power the peer confirmed writes that may be missing here, and which ones cannot be known any \
                 more, and this node has served since: '{keeps}' here keeps this node's content; if the peer still \
                 holds an image ('farshore status' there), demote this node and promote the peer with --force to keep that"
            );
            return self.fall_to_logging(common, cx, &why);
        }
        let why = format!(
            "before this node lost power the peer confirmed writes that may be missing here, and which ones cannot be known any \
             more. The export stays closed until you choose: '{keeps}' here keeps this node's content; if the \
             peer still holds an image ('farshore status' there), demote this node and promote the peer with --force to keep that"
        );
        self.stay_closed_for(common, cx, why);
    }

    /// What will be pulled is marked durably: fetch it.
    pub fn begin_pull(&mut self, common: &mut Common, cx: &mut Cx) {
        let is_written_since = self.peer.is_written_since(common);
        let Settling::StoringRanges { ranges } = &mut self.peer.settling else { return };
        if is_written_since {
            let ranges = core::mem::take(ranges);
            return self.ask_operator(common, cx, &ranges);
        }
        let left = core::mem::take(ranges).into();
        self.peer.settling = Settling::Pulling(Pull { left, asked: Vec::new(), bytes: 0 });
        self.peer.pulling.moved_at = cx.now.mono;
        self.peer.pump_pull(common, cx);
    }

    /// It is on record that this node serves what the peer may know better.
    pub fn serves_in_doubt(&mut self, common: &mut Common, cx: &mut Cx) {
        if matches!(common.state, State::Failed(_)) || self.peer.waits_for_choice(common) {
            // It broke while that was being recorded: the next start asks. Or the peer answered meanwhile, and the operator was asked.
            self.peer.never_served(common);
            return common.save(cx, None);
        }
        self.peer.open_exports(common, cx);
        if matches!(self.peer.settling, Settling::Asking) {
            // What the operator was told is true of an export that is closed.
            self.peer.settling = Settling::NotYet;
        }
        // One that stood still is asked anew: from now on the operator has the choice.
        self.meet_if_apart(common, cx);
    }
}
