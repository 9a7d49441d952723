//! What two nodes reconcile before anything is sent: the bits both hold against each other are joined (rule 6), and what the
//! peer confirmed of a run that ended without power is fetched back, by exact written range (P1).
//!
//! ```text
//! hello -> peer has bits?  AskedBits -> StoringBits -> met anew
//!       -> unverified run?   AskedTail -> StoringRanges -> Pulling -> Draining (flush) -> Recording -> Done
//!                          Asking: only the operator can say what becomes of it
//! ```
//! A primary that lost power fences its export until that is done, or until `start_alone` says otherwise. Once it has
//! served, nothing is pulled any more: it would change blocks under its clients. Then the operator decides.

mod export;

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::identity::{Decision, DecisionReason, Identity};
use crate::formats::wire::{FlushPoints, FrameHeader, FrameKind, GroupHello, VolumeRange, flags};
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::limits::{self, REGION_BYTES, SECTOR_BYTES};
use crate::peer::forks::is_kept_over;
use crate::records::bits::AfterBits;
use crate::records::record::AfterSuper;
use crate::shared::bits_walk::join_words;
use crate::shared::coverage::CoveragePoint;
use crate::shared::greeting::Greeting;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::size::ShownSize;
use crate::shared::volumes::Volumes;
use crate::state::Broken;
use crate::time::Mono;
use crate::{Event, Output, SendPayload, Slice, Store, WriteBytes};

/// How far this session has come.
#[derive(Debug, Default)]
enum ReconcileStage {
    #[default]
    NotYet,
    AskedBits,
    StoringBits,
    AskedTail {
        ranges: Vec<VolumeRange>,
    },
    StoringRanges {
        ranges: Vec<VolumeRange>,
    },
    Pulling(TailPull),
    /// What was pulled becomes durable before it is on record that nothing needs verification.
    Draining,
    Recording,
    /// The operator has to say what becomes of writes that only the peer may have, and is asked in these words.
    Asking {
        question: String,
    },
    Done,
}

/// The table of its edges.
fn legal(from: &ReconcileStage, to: &ReconcileStage) -> bool {
    use ReconcileStage::*;
    match (from, to) {
        (NotYet, AskedBits | AskedTail { .. }) => true,
        (AskedBits, StoringBits) => true,
        (AskedTail { .. }, StoringRanges { .. }) => true,
        (StoringRanges { .. }, Pulling(_)) => true,
        (Draining, Recording) => true,
        // By an order too, if nothing needs verification.
        (NotYet | Recording | Asking { .. }, Done) => true,
        // What the operator is asked, or has ordered, is over what was asked of the peer.
        (
            NotYet | AskedBits | StoringBits | AskedTail { .. } | StoringRanges { .. } | Pulling(_) | Asking { .. },
            Asking { .. },
        ) => true,
        // Nothing needs verification any more, for whatever reason: by what the peer said, by an order, by a pair that is new.
        (_, Draining) => true,
        // The session is over, the peer answers nothing any more, or bits are joined: from the beginning.
        (_, NotYet) => true,
        _ => false,
    }
}

/// What a step comes to.
pub(crate) enum ReconcileOutcome {
    /// This session may go on to send.
    Done,
    /// For the peer, for the disks, or for the operator.
    Waits,
    /// The operator is to be asked, in these words: until then only dirty bits are set.
    Asks(String),
}

#[derive(Debug)]
struct TailPull {
    left: VecDeque<VolumeRange>,
    asked: Vec<VolumeRange>,
    bytes: u64,
}

impl TailPull {
    /// The next piece to ask for. A range may be as long as its volume: it is cut up as it is asked for.
    fn next(&mut self, longest: u64) -> Option<VolumeRange> {
        let range = self.left.front_mut()?;
        let piece = VolumeRange { length: longest.min(range.length), ..*range };
        (range.offset, range.length) = (range.offset + piece.length, range.length - piece.length);
        if range.length == 0 {
            self.left.pop_front();
        }
        Some(piece)
    }
}

/// Why nothing is sent yet to a peer that is asked for it.
const ASKS_TAIL: &str = "asking the peer what it confirmed before this node lost power";

/// How an export opens that stays closed until the operator chooses, while the peer is away.
const CLOSED_UNTIL_CHOSEN: &str = "the peer may have confirmed what this node lost with its power, and the export stays closed \
     until you choose: 'farshore sync GROUP' here, once the peer is connected, keeps this node's content, and \
     'farshore set GROUP start_alone=serve' opens it without the peer";

/// The same of one that is new.
const CLOSED_UNTIL_MET: &str = "nothing was recorded of this group here, and the export opens when this node has met its peer: start \
     farshore there; 'farshore set GROUP start_alone=serve' opens it without";

/// And while the peer is there and primary too.
pub(crate) const CLOSED_BESIDE_PRIMARY: &str = "the export here stays closed as long as the peer is seen to be primary: demote one of the two, or \
     'farshore set GROUP start_alone=serve' opens it beside the peer's";

/// And when it has met one that is not.
const CLOSED_AS_PEER_LIVED: &str = "nothing was recorded of this group here, the peer has lived, and the export stays closed until you \
     choose: to keep the peer's copy, demote this node and promote the peer with --force; 'farshore sync GROUP --full' here \
     overwrites that copy, 'farshore set GROUP start_alone=serve' opens the export beside it";

/// What is under way on the volumes for pulls, also for one whose session is over.
#[derive(Debug, Default)]
struct PullProgress {
    writing: usize,
    flushes: usize,
    unflushed: bool,
    /// When something of what was asked for came last.
    moved_at: Mono,
}

/// What a primary and its peer know of each other's bits and lost writes, in this session.
#[derive(Debug, Default)]
pub(crate) struct Reconciliation {
    stage: ReconcileStage,
    /// What the peer was asked so far, counted.
    questions: u64,
    pulling: PullProgress,
    /// A full sync begins when all that is on record.
    full_sync_due: bool,
    /// An operator chose this node's content: nothing is fetched from the peer, and its bits are joined all the same.
    keeps: bool,
}

impl Reconciliation {
    /// The one way the stage changes.
    fn enter(&mut self, to: ReconcileStage) {
        assert!(legal(&self.stage, &to), "{:?} -> {to:?} is not in the table of edges", self.stage);
        self.stage = to;
    }

    pub fn session_begins(&mut self) {
        self.enter(ReconcileStage::NotYet);
    }

    pub fn session_ends(&mut self) {
        self.enter(ReconcileStage::NotYet);
        (self.full_sync_due, self.keeps) = (false, false);
    }

    /// From the beginning, in the same session. `keeps`: this node's content was chosen, and is not on record yet.
    pub fn begin_anew(&mut self, keeps: bool) {
        self.enter(ReconcileStage::NotYet);
        self.keeps = keeps;
    }

    /// A question beside those of the stages; its number.
    pub fn ask(&mut self) -> Seq {
        self.questions += 1;
        Seq(self.questions)
    }

    /// In the session of the run before, which was reset: answers to its questions are told from those to this run's.
    pub fn follows(&mut self, before: &Reconciliation) {
        self.questions = before.questions + 1;
    }

    /// The question of this number is the last one.
    pub fn is_asking(&self, question: u64) -> bool {
        self.questions == question
    }

    /// Whether only the operator can say whose content counts.
    pub fn asks_operator(&self) -> bool {
        matches!(self.stage, ReconcileStage::Asking { .. })
    }

    /// A full sync waits until what was found is on record.
    pub fn is_full_sync_due(&self) -> bool {
        self.full_sync_due
    }

    /// What this session waits for before anything is sent; `None`: for nothing, or for the operator.
    pub fn waits_for(&self) -> Option<&'static str> {
        match self.stage {
            ReconcileStage::AskedBits | ReconcileStage::StoringBits => {
                Some("asking the peer which blocks differ there")
            }
            ReconcileStage::AskedTail { .. } | ReconcileStage::StoringRanges { .. } => Some(ASKS_TAIL),
            ReconcileStage::Pulling(_) => Some("fetching from the peer what this node lost with its power"),
            // Whether anything was fetched or not: the operator may have chosen what stands here.
            ReconcileStage::Draining | ReconcileStage::Recording => {
                Some("recording that nothing is to be fetched from the peer any more")
            }
            ReconcileStage::NotYet | ReconcileStage::Asking { .. } | ReconcileStage::Done => None,
        }
    }

    /// Whether a full sync may begin. It waits until it is on record that nothing will be pulled.
    pub fn may_sync_in_full(&mut self) -> bool {
        self.full_sync_due |= matches!(self.stage, ReconcileStage::Draining | ReconcileStage::Recording);
        // Else another session has begun, or the peer was promoted: there the order stands or falls with its first meeting.
        matches!(self.stage, ReconcileStage::Done)
    }

    // ---- step by step ----------------------------------------------------------------------------------------------

    /// Goes on with this session, and asks for what is missing. `decision`: what the peer's hello led to.
    pub fn go_on(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        greeting: &Greeting,
        decision: Option<Decision>,
    ) -> ReconcileOutcome {
        let (Some(hello), Some(link)) = (greeting.hello(), cx.peer.link) else { return ReconcileOutcome::Waits };
        match self.stage {
            ReconcileStage::Done => return ReconcileOutcome::Done,
            ReconcileStage::NotYet => {}
            _ => return ReconcileOutcome::Waits,
        }
        if let Some(Decision::NeedsFullSync(why @ DecisionReason::PeerWentBack { .. })) = decision {
            return self.went_back_unverified(common, cx, why);
        }
        let unjoined = injected(Fault::BitsNotJoined) || self.keeps && injected(Fault::ForkBitsUnjoined);
        if hello.dirty_bytes > 0 && !unjoined {
            self.questions += 1;
            cx.send(link, self.question(common, cx, FrameKind::BitsAsk), SendPayload::None);
            self.enter(ReconcileStage::AskedBits);
            return ReconcileOutcome::Waits;
        }
        self.ask_tail(common, cx, hello, link);
        if matches!(self.stage, ReconcileStage::Done) { ReconcileOutcome::Done } else { ReconcileOutcome::Waits }
    }

    pub fn bits_arrived(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        greeting: &Greeting,
        header: &FrameHeader,
        words: &[u8],
    ) -> Option<()> {
        if !matches!(self.stage, ReconcileStage::AskedBits) {
            return Some(());
        }
        if join_words(&mut common.volumes, &greeting.hello()?.volume_bytes, header, words)? {
            cx.coverage.hit(CoveragePoint::BitsJoined);
            self.enter(ReconcileStage::StoringBits);
            common.bits().save(cx, AfterBits::Joined { question: self.questions });
        }
        Some(())
    }

    /// The union of both sides' bits is durable here; the peer keeps its own until a sync has made it equal. True: both meet anew.
    pub fn bits_joined(&mut self, common: &mut GroupCommon, greeting: &mut Greeting) -> bool {
        let joined = matches!(self.stage, ReconcileStage::StoringBits);
        if joined {
            self.enter(ReconcileStage::NotYet);
            common.sb.peer_confirmed(greeting.bits_joined(common.sb.confirmed));
        }
        joined
    }

    /// The peer may have confirmed what this node lost with its power.
    fn ask_tail(&mut self, common: &mut GroupCommon, cx: &mut Cx, hello: &GroupHello, link: LinkId) {
        if self.keeps || !common.sb.needs_verification() {
            self.enter(ReconcileStage::Done);
            return;
        }
        let is_kept = is_kept_over(common, &hello.identity);
        if is_kept || !common.sb.followed_unverified_run(&hello.identity) {
            // It has nothing of that run, or what it has was given up by an operator.
            return self.nothing_to_verify(common, cx);
        }
        let sb = &common.sb;
        let points = FlushPoints { incarnation: sb.unverified_run, volumes: sb.flushed.clone() };
        self.questions += 1;
        cx.send(link, self.question(common, cx, FrameKind::TailAsk), SendPayload::Control(points.encode()));
        self.enter(ReconcileStage::AskedTail { ranges: Vec::new() });
        common.standing.explain(ASKS_TAIL);
    }

    /// Of the peer's answer; true: it is whole. `None`: not what an honest peer sends.
    pub fn take_tail(&mut self, volumes: &Volumes, header: &FrameHeader, more: Vec<VolumeRange>) -> Option<bool> {
        let ReconcileStage::AskedTail { ranges } = &mut self.stage else { return Some(false) };
        // In order and apart: so each byte is named once, and what is asked for is no more than the volumes hold.
        let mut before = ranges.last().copied();
        for range in &more {
            let apart = |last: VolumeRange| (last.volume, last.offset + last.length) <= (range.volume, range.offset);
            if !volumes.has_sectors(range) || !before.is_none_or(apart) {
                return None;
            }
            before = Some(*range);
        }
        // What has no device here is not fetched.
        ranges.extend(more.into_iter().filter(|range| !volumes.is_detached(range.volume)));
        (ranges.len() <= limits::KEPT_MAX).then_some(header.flags & flags::LAST != 0)
    }

    /// The peer's answer is whole: what it confirmed is fetched. `unknown`: it confirmed more than that.
    pub fn tail_arrived(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        decision: Option<Decision>,
        unknown: bool,
    ) -> ReconcileOutcome {
        let ReconcileStage::AskedTail { ranges } = &mut self.stage else { return ReconcileOutcome::Waits };
        let ranges = core::mem::take(ranges);
        if unknown {
            return self.ask_about_unknown(common, cx, decision);
        }
        if ranges.is_empty() || injected(Fault::TailNotPulled) {
            cx.coverage.hit(CoveragePoint::NothingToPull);
            self.nothing_to_verify(common, cx);
        } else if common.is_written_since() {
            return self.ask_operator(common, cx, &ranges, decision);
        } else {
            for range in &ranges {
                common.volumes.copy_of(range.volume).set_differs(range.offset, range.length);
            }
            self.enter(ReconcileStage::StoringRanges { ranges });
            common.bits().save(cx, AfterBits::Pull { question: self.questions });
        }
        ReconcileOutcome::Waits
    }

    /// What will be pulled is dirty durably: fetch it.
    pub fn begin_pull(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        decision: Option<Decision>,
    ) -> ReconcileOutcome {
        let ReconcileStage::StoringRanges { ranges } = &mut self.stage else { return ReconcileOutcome::Waits };
        let ranges = core::mem::take(ranges);
        if common.is_written_since() {
            return self.ask_operator(common, cx, &ranges, decision);
        }
        self.enter(ReconcileStage::Pulling(TailPull { left: ranges.into(), asked: Vec::new(), bytes: 0 }));
        self.pulling.moved_at = cx.now.mono;
        self.pump_pull(common, cx);
        ReconcileOutcome::Waits
    }

    fn pump_pull(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let question = self.question(common, cx, FrameKind::Pull);
        let longest = cx.peer.part_bytes.clamp(SECTOR_BYTES, limits::PART_BYTES_MAX);
        let ReconcileStage::Pulling(pull) = &mut self.stage else { return };
        let Some(link) = cx.peer.link else { return };
        while pull.asked.len() + self.pulling.writing < limits::PULLS_IN_FLIGHT
            && let Some(range) = pull.next(longest)
        {
            pull.asked.push(range);
            let header = FrameHeader { volume: range.volume, offset: range.offset, length: range.length, ..question };
            cx.out.push_back(Output::Send { link, header, payload: SendPayload::None });
        }
        if pull.left.is_empty() && pull.asked.is_empty() && self.pulling.writing == 0 {
            cx.coverage.hit(CoveragePoint::TailPulled);
            let bytes = pull.bytes;
            common.counters.pulled_bytes += bytes;
            cx.event(common.id(), Event::Pulled { bytes });
            self.nothing_to_verify(common, cx);
        }
    }

    pub fn pulled(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        header: &FrameHeader,
        buf: crate::Buf,
    ) -> Option<()> {
        let ReconcileStage::Pulling(pull) = &mut self.stage else { return Some(()) };
        let range = VolumeRange { volume: header.volume, offset: header.offset, length: header.length };
        // The peer's disks answer in any order.
        let at = pull.asked.iter().position(|asked| *asked == range)?;
        let asked = pull.asked.swap_remove(at);
        self.pulling.moved_at = cx.now.mono;
        self.pulling.writing += 1;
        let token = common.slots.start(SlotOperation::PullWrite { bytes: asked.length });
        let parts = vec![WriteBytes::Payload(Slice { buf, start: 0, length: asked.length as u32 })];
        cx.write(token, Store::Volume(common.id(), asked.volume), asked.offset, parts, false);
        Some(())
    }

    pub fn pull_written(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        peer: &Greeting,
        (bytes, ok): (u64, bool),
    ) -> Result<(), Broken> {
        self.pulling.writing -= 1;
        self.pulling.unflushed = true;
        if !ok {
            return Err(Broken::VolumeApply);
        }
        // Of a session that ended meanwhile: harmless, it is asked for again.
        if let ReconcileStage::Pulling(pull) = &mut self.stage {
            pull.bytes += bytes;
        }
        self.pump_pull(common, cx);
        self.pull_rests(common, cx, peer);
        Ok(())
    }

    pub fn pull_flushed(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        peer: &Greeting,
        ok: bool,
    ) -> Result<(), Broken> {
        self.pulling.flushes -= 1;
        if !ok {
            return Err(Broken::VolumeFlush);
        }
        self.pull_rests(common, cx, peer);
        Ok(())
    }

    /// Who waited for that goes on.
    fn pull_rests(&mut self, common: &mut GroupCommon, cx: &mut Cx, peer: &Greeting) {
        if common.has_failed() || self.pulling.writing > 0 || self.pulling.flushes > 0 {
            return;
        }
        if matches!(self.stage, ReconcileStage::Draining) {
            self.nothing_to_verify(common, cx);
        }
        self.start_alone(common, cx, peer);
    }

    fn nothing_to_verify(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if common.has_failed() {
            // What was fetched may be lost again: the next start asks again.
            return;
        }
        self.enter(ReconcileStage::Draining);
        if !self.pulled_is_durable(common, cx) {
            return;
        }
        self.enter(ReconcileStage::Recording);
        common.sb.clear_unverified_run(common.volumes.len());
        common.save_in_both_slots(cx, AfterSuper::Reconciled);
    }

    /// Whether nothing that was pulled is under way or unflushed; if something is, sees to it. Clients must not meet it: a
    /// power loss would take back what they have read.
    pub fn pulled_is_durable(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        if self.pulling.writing > 0 || self.pulling.flushes > 0 {
            return false;
        }
        if !core::mem::take(&mut self.pulling.unflushed) {
            return true;
        }
        self.pulling.flushes = common.volumes.len();
        for index in 0..common.volumes.len() {
            let token = common.slots.start(SlotOperation::PullFlush);
            let store = common.volumes.flush_store(common.id(), VolumeId(index as u16));
            cx.out.push_back(Output::Flush { token, store });
        }
        false
    }

    /// What was found is on record.
    pub fn recorded(&mut self) {
        if matches!(self.stage, ReconcileStage::Recording) {
            self.enter(ReconcileStage::Done);
        }
    }

    // ---- the operator decides --------------------------------------------------------------------------------------

    fn ask_in_words(&mut self, question: String) -> ReconcileOutcome {
        self.enter(ReconcileStage::Asking { question: question.clone() });
        ReconcileOutcome::Asks(question)
    }

    fn ask_operator(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        ranges: &[VolumeRange],
        decision: Option<Decision>,
    ) -> ReconcileOutcome {
        cx.coverage.hit(CoveragePoint::TailAskedAbout);
        let outside = common.fenced_since().is_some() && common.sb.changed_outside;
        if outside {
            // Somebody's bytes may stand where the peer's would come.
            common.stays_closed(cx, None);
        }
        let since = if outside { "a volume was written from outside since" } else { "this node has served since" };
        let bytes: u64 = ranges.iter().map(|range| range.length).sum();
        self.ask_in_words(format!(
            "before this node lost power the peer confirmed {} ({} ranges) that may be missing here, and {since}: \
             '{}' here keeps this node's content; to keep the peer's, demote this node \
             and promote the peer with --force",
            ShownSize(bytes),
            ranges.len(),
            Self::keeps_this_nodes_content(decision)
        ))
    }

    /// What a peer from an old copy keeps may be older than what stands here: nothing is asked of it. What it had confirmed before is
    /// known to nobody any more.
    fn went_back_unverified(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        went_back: DecisionReason,
    ) -> ReconcileOutcome {
        if !common.sb.needs_verification() || common.fenced_since().is_none() {
            return ReconcileOutcome::Waits;
        }
        cx.coverage.hit(CoveragePoint::WentBackUnverified);
        let why = format!(
            "{went_back}; before this node lost power it may have confirmed writes that are missing here, and which ones cannot be known \
             any more. The export stays closed until you choose: '{}' here keeps this node's content; if the peer's copy is the better \
             one, demote this node and promote the peer with --force",
            Self::keeps_this_nodes_content(Some(Decision::NeedsFullSync(went_back)))
        );
        common.stays_closed(cx, Some(why.clone()));
        self.ask_in_words(why)
    }

    /// The peer confirmed writes that may be missing here, and does not know any more which: no time that passes makes that good.
    fn ask_about_unknown(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        decision: Option<Decision>,
    ) -> ReconcileOutcome {
        cx.coverage.hit(CoveragePoint::TailUnknown);
        let keeps = Self::keeps_this_nodes_content(decision);
        if common.fenced_since().is_none() {
            return self.ask_in_words(format!(
                "before this node lost power the peer confirmed writes that may be missing here, and which ones cannot be known any \
                 more, and this node has served since: '{keeps}' here keeps this node's content; if the peer still \
                 holds an image ('farshore status' there), demote this node and promote the peer with --force to keep that"
            ));
        }
        let why = format!(
            "before this node lost power the peer confirmed writes that may be missing here, and which ones cannot be known any \
             more. The export stays closed until you choose: '{keeps}' here keeps this node's content; if the \
             peer still holds an image ('farshore status' there), demote this node and promote the peer with --force to keep that"
        );
        common.stays_closed(cx, Some(why.clone()));
        self.ask_in_words(why)
    }

    /// What an operator types who chooses this node's content: one that was promoted since is taken up by a full sync only.
    fn keeps_this_nodes_content(decision: Option<Decision>) -> &'static str {
        match decision {
            Some(Decision::NeedsFullSync(_)) => "farshore sync GROUP --full",
            _ => "farshore sync GROUP",
        }
    }

    /// The operator chose this node's content: `sync` was typed.
    pub fn by_order(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if matches!(self.stage, ReconcileStage::Asking { .. }) && common.sb.is_unmet() {
            self.nothing_to_verify(common, cx);
        } else if matches!(self.stage, ReconcileStage::Asking { .. }) && !common.sb.needs_verification() {
            self.enter(ReconcileStage::Done);
        } else if matches!(self.stage, ReconcileStage::Asking { .. }) {
            let note = "the operator chose this node's content over what only the peer may have confirmed";
            cx.event(common.id(), Event::Note(note.into()));
            self.nothing_to_verify(common, cx);
        }
    }

    /// This node's content is to overwrite the peer's: nothing is asked of it.
    pub fn ask_nothing(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if !matches!(self.stage, ReconcileStage::Done | ReconcileStage::Draining | ReconcileStage::Recording) {
            self.enter(ReconcileStage::Asking { question: String::new() });
            self.by_order(common, cx);
        }
    }

    // ---- what stands beside it -------------------------------------------------------------------------------------

    /// A frame of the question under way; the peer's answers repeat its number, so that late ones to earlier questions are told
    /// apart.
    fn question(&self, common: &GroupCommon, cx: &Cx, kind: FrameKind) -> FrameHeader {
        FrameHeader { seq: Seq(self.questions), ..FrameHeader::new(kind, cx.peer.session, common.id()) }
    }

    /// An export that waits for the peer has it asked, also where only the operator may have anything sent to it: this node was
    /// promoted again before it could ask. True: it is to be asked.
    pub fn reconciles_fork(&mut self, common: &mut GroupCommon, cx: &mut Cx, theirs: &Identity) -> bool {
        if common.fenced_since().is_some() && common.sb.is_unmet() && theirs.is_new() {
            cx.coverage.hit(CoveragePoint::NewPairMet);
            self.nothing_to_verify(common, cx);
            return false;
        }
        common.fenced_since().is_some() && common.sb.followed_unverified_run(theirs)
    }

    /// The export closes for a demotion: should this node be promoted again, it asks again.
    pub fn stop(&mut self, common: &mut GroupCommon) {
        common.close_export();
        self.enter(ReconcileStage::NotYet);
        self.full_sync_due = false;
    }

    /// The peer has failed, or was promoted: it answers nothing any more.
    pub fn stop_asking(&mut self) {
        let asks = matches!(
            self.stage,
            ReconcileStage::AskedBits | ReconcileStage::AskedTail { .. } | ReconcileStage::Pulling(_)
        );
        if asks || matches!(self.stage, ReconcileStage::StoringBits | ReconcileStage::StoringRanges { .. }) {
            self.enter(ReconcileStage::NotYet);
        }
    }

    pub fn take_due_full_sync(&mut self) -> bool {
        core::mem::take(&mut self.full_sync_due)
    }
}

const _: () = assert!(REGION_BYTES.is_multiple_of(SECTOR_BYTES));

/// Why the export is closed, and how it opens.
pub(crate) fn closed_words(common: &GroupCommon, peer_has_lived: bool) -> &'static str {
    match (common.sb.is_unmet(), peer_has_lived) {
        (false, _) => CLOSED_UNTIL_CHOSEN,
        (true, false) => CLOSED_UNTIL_MET,
        (true, true) => CLOSED_AS_PEER_LIVED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durability::kept::merged;

    #[test]
    fn ranges_that_touch_are_joined_and_volumes_kept_apart() {
        let range = |volume, offset, length| VolumeRange { volume: VolumeId(volume), offset, length };
        let all =
            vec![range(1, 0, 512), range(0, 1024, 512), range(0, 0, 1024), range(0, 4096, 512), range(0, 4096, 512)];
        assert_eq!(merged(all), [range(0, 0, 1536), range(0, 4096, 512), range(1, 0, 512)]);
    }

    #[test]
    fn what_is_being_recorded_is_not_asked_about_and_a_session_begins_anew_from_anywhere() {
        use ReconcileStage::*;
        let tail = || AskedTail { ranges: vec![] };
        let asking = || Asking { question: String::new() };
        for from in [NotYet, AskedBits, StoringBits, tail(), Draining, Recording, asking(), Done] {
            assert!(legal(&from, &NotYet) && legal(&from, &Draining), "{from:?}");
            assert_eq!(legal(&from, &Recording), matches!(from, Draining), "{from:?}");
            assert_eq!(legal(&from, &AskedBits), matches!(from, NotYet), "{from:?}");
            assert_eq!(legal(&from, &asking()), !matches!(from, Draining | Recording | Done), "{from:?}");
            assert_eq!(legal(&from, &Done), matches!(from, NotYet | Recording | Asking { .. }), "{from:?}");
        }
    }
}
