//! What two nodes settle before anything is sent: the bits both hold against each other are joined (rule 6), and what the
//! peer confirmed of a run that ended without power is fetched back, by exact written range (P1).
//!
//! ```text
//! hello -> peer has bits? BitsAsk/Bits, stored -> a run in doubt? TailAsk/Tail -> Pull/Pulled -> flush -> record -> go on
//! ```
//! A primary that lost power withholds its export until that is done, or until `start_alone` says otherwise. Once it has
//! served, nothing is pulled any more: it would change blocks under its clients. Then the operator decides.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use crate::common::{Common, Phase};
use crate::context::{Cx, GroupTimer};
use crate::formats::bitmap::regions;
use crate::formats::identity::{Decision, Identity, Role};
use crate::formats::wire::{FlushPoints, Header, Kind, VolumeRange, flags};
use crate::ids::*;
use crate::limits::{self, REGION_BYTES, SECTOR_BYTES};
use crate::peer::Peer;
use crate::planted::{Fault, planted};
use crate::records::bits::AfterBits;
use crate::records::record::AfterSuper;
use crate::shared::marks::Mark;
use crate::shared::slots::Op;
use crate::shared::time::Mono;
use crate::shared::volume::Volume;
use crate::state::{Broken, State};
use crate::{Bytes, Event, Output, SendPayload, Slice, StartAlone, Store};

/// How far the settling of this session has come, on the primary.
#[derive(Debug)]
pub(crate) enum Settling {
    NotYet,
    AskedBits,
    StoringBits,
    AskedTail {
        ranges: Vec<VolumeRange>,
    },
    StoringRanges {
        ranges: Vec<VolumeRange>,
    },
    Pulling(Pull),
    /// What was pulled becomes durable before it is on record that nothing is in doubt.
    Draining,
    Recording,
    /// The operator has to say what becomes of writes that only the peer may have.
    Asking,
    Done,
}

#[derive(Debug)]
pub(crate) struct Pull {
    pub left: VecDeque<VolumeRange>,
    pub asked: Vec<VolumeRange>,
    pub bytes: u64,
}

impl Pull {
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

/// How an export opens that stays closed until the operator chooses, while the peer is away.
const CLOSED_UNTIL_CHOSEN: &str = "the peer may have confirmed what this node lost with its power, and the export stays closed \
     until you choose: 'farshore sync GROUP' here, once the peer is connected, keeps this node's content, and \
     'farshore set GROUP start_alone=serve' opens it without the peer";

/// The same of one that is new.
const CLOSED_UNTIL_MET: &str = "nothing was recorded of this group here, and the export opens when this node has met its peer: start \
     farshore there; 'farshore set GROUP start_alone=serve' opens it without";

/// And when it has met one that is not.
const CLOSED_AS_PEER_LIVED: &str = "nothing was recorded of this group here, the peer has lived, and the export stays closed until you \
     choose: to keep the peer's copy, demote this node and promote the peer with --force; 'farshore sync GROUP --full' here \
     overwrites that copy, 'farshore set GROUP start_alone=serve' opens the export beside it";

/// What is under way on the volumes for pulls, also for one whose session is over.
#[derive(Debug, Default)]
pub(crate) struct Pulling {
    writing: usize,
    flushes: usize,
    unflushed: bool,
    /// When something of what was asked for came last.
    pub moved_at: Mono,
}

impl Peer {
    pub fn bits_arrived(&mut self, common: &mut Common, cx: &mut Cx, header: &Header, words: &[u8]) -> Option<()> {
        if !matches!(self.settling, Settling::AskedBits) {
            return Some(());
        }
        let at = usize::from(header.volume.0);
        let (theirs, volume) = (*common.greeting.hello()?.volume_bytes.get(at)?, common.volumes.get_mut(at)?);
        let last = header.offset.checked_add(words.len() as u64 * 8)?;
        let in_words = words.len().is_multiple_of(8) && header.offset.is_multiple_of(64);
        // Its volume may be larger than ours.
        if !in_words || last > regions(theirs).next_multiple_of(64) {
            return None;
        }
        for (at, word) in words.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(word.try_into().ok()?);
            volume.dirty.join_word(header.offset / 64 + at as u64, word);
        }
        if header.flags & flags::LAST != 0 {
            cx.marks.hit(Mark::BitsJoined);
            self.settling = Settling::StoringBits;
            common.save_bits(cx, AfterBits::Joined { question: self.questions });
        }
        Some(())
    }

    /// What an operator types who chooses this node's content: one that was promoted since is taken up by a full sync only.
    pub fn keeps_this_nodes_content(&self, common: &Common) -> &'static str {
        match self.decision(common) {
            Some(Decision::NeedsFullSync(_)) => "farshore sync GROUP --full",
            _ => "farshore sync GROUP",
        }
    }

    /// An export that was not opened stays closed until the operator chooses, whatever time passes: also through restarts. He is told
    /// once that is on record. That time is up may be on its way there: nothing follows from it any more.
    pub fn stays_closed(&mut self, common: &mut Common, cx: &mut Cx, told: Option<String>) {
        let may_open = common.settings.start_alone == StartAlone::Serve;
        if !self.withheld || common.sb.current.is_closed_until_chosen() || may_open {
            return;
        }
        if planted(Fault::ChoiceForgotten) {
            return told.into_iter().for_each(|told| cx.event(common.id(), Event::Note(told)));
        }
        let then = AfterSuper::StaysClosed { told };
        common.sb.current.given_up = Seq(u64::MAX);
        self.never_served(common);
        common.sb.after.retain(|(_, then)| !matches!(then, AfterSuper::ServedInDoubt));
        common.save_in_both_slots(cx, then);
    }

    pub fn pull_written(&mut self, common: &mut Common, cx: &mut Cx, bytes: u64, ok: bool) -> Result<(), Broken> {
        self.pulling.writing -= 1;
        self.pulling.unflushed = true;
        if !ok {
            return Err(Broken::VolumeApply);
        }
        // Of a session that ended meanwhile: harmless, it is asked for again.
        if let Settling::Pulling(pull) = &mut self.settling {
            pull.bytes += bytes;
        }
        self.pump_pull(common, cx);
        self.pull_rests(common, cx);
        Ok(())
    }

    pub fn pull_flushed(&mut self, common: &mut Common, cx: &mut Cx, ok: bool) -> Result<(), Broken> {
        self.pulling.flushes -= 1;
        if !ok {
            return Err(Broken::VolumeFlush);
        }
        self.pull_rests(common, cx);
        Ok(())
    }
}

impl Peer {
    /// The peer may have confirmed what this node lost with its power.
    pub fn settle_tail(&mut self, common: &mut Common, cx: &mut Cx) {
        let (Some(hello), Some(link)) = (common.greeting.hello(), cx.peer.link) else { return };
        if !common.is_in_doubt() {
            self.settling = Settling::Done;
            return;
        }
        if !common.followed_in_doubt(&hello.identity) {
            // It has nothing of that run.
            return self.nothing_in_doubt(common, cx);
        }
        let sb = &common.sb.current;
        let points = FlushPoints { incarnation: sb.in_doubt, volumes: sb.flushed.clone() };
        self.questions += 1;
        cx.send(link, self.question(common, cx, Kind::TailAsk), SendPayload::Control(points.encode()));
        self.settling = Settling::AskedTail { ranges: Vec::new() };
        common.reason = "asking the peer what it confirmed before this node lost power".into();
    }

    /// A frame of the question under way; the peer's answers repeat its number, so that late ones to earlier questions are told
    /// apart.
    pub fn question(&self, common: &Common, cx: &Cx, kind: Kind) -> Header {
        Header { seq: Seq(self.questions), ..Header::new(kind, cx.peer.session, common.id()) }
    }

    /// The export closes before it was opened, perhaps in the moment in which it is recorded that it will be.
    pub fn never_served(&mut self, common: &mut Common) {
        if self.withheld {
            common.sb.current.served_in_doubt = false;
        }
    }

    /// The export closes for a demotion: should this node be promoted again, it asks again.
    pub fn stop_settling(&mut self, common: &mut Common) {
        self.never_served(common);
        self.settling = Settling::NotYet;
        (self.withheld, self.full_sync_due) = (false, false);
    }

    /// The peer has failed, or was promoted: it answers nothing any more.
    pub fn stop_asking(&mut self) {
        let asks = matches!(self.settling, Settling::AskedBits | Settling::AskedTail { .. } | Settling::Pulling(_));
        if asks || matches!(self.settling, Settling::StoringBits | Settling::StoringRanges { .. }) {
            self.settling = Settling::NotYet;
        }
    }

    pub fn nothing_in_doubt(&mut self, common: &mut Common, cx: &mut Cx) {
        if matches!(common.state, State::Failed(_)) {
            // What was fetched may be lost again: the next start asks again.
            return;
        }
        self.settling = Settling::Draining;
        if !self.pulled_is_durable(common, cx) {
            return;
        }
        self.settling = Settling::Recording;
        common.forget_doubt();
        common.save_in_both_slots(cx, AfterSuper::Settled);
    }

    /// The operator chose this node's content: `sync` was typed.
    pub fn settle_by_order(&mut self, common: &mut Common, cx: &mut Cx) {
        if matches!(self.settling, Settling::Asking) && common.sb.current.is_unmet() {
            self.nothing_in_doubt(common, cx);
        } else if matches!(self.settling, Settling::Asking) && !common.is_in_doubt() {
            self.settling = Settling::Done;
        } else if matches!(self.settling, Settling::Asking) {
            let note = "the operator chose this node's content over what only the peer may have confirmed";
            cx.event(common.id(), Event::Note(note.into()));
            self.nothing_in_doubt(common, cx);
        }
    }

    /// This node's content is to overwrite the peer's: nothing is asked of it.
    pub fn ask_nothing(&mut self, common: &mut Common, cx: &mut Cx) {
        if !matches!(self.settling, Settling::Done | Settling::Draining | Settling::Recording) {
            self.settling = Settling::Asking;
            self.settle_by_order(common, cx);
        }
    }

    /// What stands here is newer than what only the peer has: clients wrote, or somebody from outside.
    pub fn is_written_since(&self, common: &Common) -> bool {
        let sb = &common.sb.current;
        // That it serves without the peer may be on its way to the record: then it opens in this very moment.
        let changed = sb.changed_outside && !planted(Fault::ChangedPulledOver);
        sb.served_in_doubt || changed || !self.withheld
    }

    /// The export waits for its operator, and for nothing else.
    pub fn waits_for_choice(&self, common: &Common) -> bool {
        let closed =
            self.withheld && common.sb.current.is_closed_until_chosen() && !matches!(common.state, State::Failed(_));
        closed && common.settings.start_alone != StartAlone::Serve
    }

    /// Why the state is what it is, and while the export waits for its operator how it opens, whatever else has happened since.
    pub fn shown_reason(&self, common: &Common) -> String {
        if !self.waits_for_choice(common) || matches!(self.settling, Settling::Asking) {
            return common.reason.clone();
        }
        format!("{}; {}", common.reason, common.closed_words())
    }

    pub fn pump_pull(&mut self, common: &mut Common, cx: &mut Cx) {
        let question = self.question(common, cx, Kind::Pull);
        let longest = cx.peer.part_bytes.clamp(SECTOR_BYTES, limits::PART_BYTES_MAX);
        let Settling::Pulling(pull) = &mut self.settling else { return };
        let Some(link) = cx.peer.link else { return };
        while pull.asked.len() + self.pulling.writing < limits::PULLS_IN_FLIGHT
            && let Some(range) = pull.next(longest)
        {
            pull.asked.push(range);
            let header = Header { volume: range.volume, offset: range.offset, length: range.length, ..question };
            cx.out.push_back(Output::Send { link, header, payload: SendPayload::None });
        }
        if pull.left.is_empty() && pull.asked.is_empty() && self.pulling.writing == 0 {
            cx.marks.hit(Mark::TailPulled);
            let bytes = pull.bytes;
            common.counters.pulled_bytes += bytes;
            cx.event(common.id(), Event::Pulled { bytes });
            self.nothing_in_doubt(common, cx);
        }
    }

    pub fn pulled(&mut self, common: &mut Common, cx: &mut Cx, header: &Header, buf: crate::Buf) -> Option<()> {
        let Settling::Pulling(pull) = &mut self.settling else { return Some(()) };
        let range = VolumeRange { volume: header.volume, offset: header.offset, length: header.length };
        // The peer's disks answer in any order.
        let at = pull.asked.iter().position(|asked| *asked == range)?;
        let asked = pull.asked.swap_remove(at);
        self.pulling.moved_at = cx.now.mono;
        self.pulling.writing += 1;
        let token = common.slots.start(Op::PullWrite { bytes: asked.length });
        cx.out.push_back(Output::Write {
            token,
            store: Store::Volume(common.id(), asked.volume),
            offset: asked.offset,
            parts: vec![Bytes::Payload(Slice { buf, start: 0, length: asked.length as u32 })],
            durable: false,
            waits_for_peer: false,
        });
        Some(())
    }

    /// Whether nothing that was pulled is under way or unflushed; if something is, sees to it. Clients must not meet it: a
    /// power loss would take back what they have read.
    pub fn pulled_is_durable(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        if self.pulling.writing > 0 || self.pulling.flushes > 0 {
            return false;
        }
        if !core::mem::take(&mut self.pulling.unflushed) {
            return true;
        }
        self.pulling.flushes = common.volumes.len();
        for index in 0..common.volumes.len() {
            let token = common.slots.start(Op::PullFlush);
            cx.out.push_back(Output::Flush { token, store: Store::Volume(common.id(), VolumeId(index as u16)) });
        }
        false
    }

    /// Who waited for that goes on.
    fn pull_rests(&mut self, common: &mut Common, cx: &mut Cx) {
        if matches!(common.state, State::Failed(_)) || self.pulling.writing > 0 || self.pulling.flushes > 0 {
            return;
        }
        if matches!(self.settling, Settling::Draining) {
            self.nothing_in_doubt(common, cx);
        }
        self.start_alone(common, cx);
    }

    // ---- a lone primary ---------------------------------------------------------------------------------------------

    /// Whether this primary may open its exports now, and when it may if not (rule 24).
    pub fn open_or_withhold(&mut self, common: &mut Common, cx: &mut Cx) {
        let serves = !common.is_in_doubt() || common.sb.current.served_in_doubt || planted(Fault::StartAloneIgnored);
        if serves && !common.sb.current.is_unmet() {
            return cx.out.push_back(Output::Serve { group: common.id(), open: true });
        }
        self.withheld = true;
        self.withheld_since = cx.now.mono;
        if common.sb.current.is_unmet() && self.waits_for_choice(common) {
            cx.event(common.id(), Event::Note(common.closed_words().into()));
        }
        self.start_alone(common, cx);
    }

    /// The time to wait for the peer is over, or the operator changed it.
    pub fn start_alone(&mut self, common: &mut Common, cx: &mut Cx) {
        let broken = matches!(common.state, State::Failed(_));
        if broken || !self.withheld || common.role() != Role::Primary || !matches!(common.phase, Phase::Running) {
            return;
        }
        let wait = match common.settings.start_alone {
            StartAlone::Serve => core::time::Duration::ZERO,
            StartAlone::Wait(wait) => wait,
        };
        if self.waits_for_choice(common) {
            // The operator was asked, and waiting answers nothing.
            return;
        }
        if common.sb.current.is_unmet() {
            return self.nothing_in_doubt(common, cx);
        }
        let waited = cx.now.mono.since(self.withheld_since);
        if waited < wait {
            common.reason = format!(
                "this node lost power: the export opens when the peer was asked what it confirmed, or after {} s \
                 ('start_alone')",
                wait.as_secs()
            );
            let at = self.withheld_since.plus(wait);
            return cx.timers.set(crate::context::TimerKey::Group(common.id(), GroupTimer::StartAlone), at);
        }
        let fetches = matches!(self.settling, Settling::Pulling(_)) && self.pulling.writing == 0;
        if fetches && cx.now.mono.since(self.pulling.moved_at) >= limits::SYNC_STALLED_AFTER {
            let note = "the peer is connected, but has sent nothing of what is fetched from it for 60 s: the export opens without";
            cx.event(common.id(), Event::Note(note.into()));
            self.stop_asking();
        }
        let asks = matches!(self.settling, Settling::StoringRanges { .. } | Settling::Pulling(_));
        if asks || matches!(self.settling, Settling::Draining | Settling::Recording) {
            // It comes back right now.
            return common.set_timer(cx, GroupTimer::StartAlone, limits::START_ALONE_AGAIN);
        }
        if self.pulled_is_durable(common, cx) && !common.sb.current.served_in_doubt {
            cx.marks.hit(Mark::ServedAloneInDoubt);
            common.sb.current.served_in_doubt = true;
            // By 'start_alone' the operator may just have chosen.
            common.has_chosen();
            common.save_in_both_slots(cx, AfterSuper::ServedInDoubt);
        }
    }

    pub fn open_exports(&mut self, common: &mut Common, cx: &mut Cx) {
        if core::mem::take(&mut self.withheld) && matches!(common.phase, Phase::Running) {
            cx.out.push_back(Output::Serve { group: common.id(), open: true });
        }
    }

    // ---- a history that goes on alone -------------------------------------------------------------------------------

    /// The first write that the peer will not see in order begins a new generation: should the peer be promoted, both
    /// histories can be told apart (rule 5).
    ///
    /// True: it is being recorded, and writes wait for it.
    pub fn want_generation(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        let sb = &mut common.sb.current;
        if self.stream.is_some()
            || self.cut.is_some()
            || sb.alone
            || self.generation_due
            || sb.identity.generation.is_blank()
        {
            return self.generation_due;
        }
        cx.marks.hit(Mark::GenerationContinued);
        let old = sb.identity;
        sb.identity.parent =
            Position { generation: old.generation, incarnation: old.incarnation, seq: self.numbers.last() };
        let number = old.generation.number_after(0);
        sb.identity.generation = Generation { number, tag: crate::node::mix(self.entropy, number) };
        sb.identity.continued = true;
        sb.alone = true;
        self.generation_due = true;
        common.save_in_both_slots(cx, AfterSuper::NewGeneration);
        true
    }

    pub fn generation_is_due(&self) -> bool {
        self.generation_due
    }

    pub fn generation_recorded(&mut self) {
        self.generation_due = false;
    }
}

impl Common {
    /// Whether the peer may have confirmed something of the run in doubt: it stands in it, or in its history and at the image of
    /// an earlier run, to which it may have gone back from the midst of a sync. A later run of this node is at home in its last
    /// generation or in one that came after: in the one before, runs may be the peer's own, and are counted apart.
    pub fn followed_in_doubt(&self, theirs: &Identity) -> bool {
        let (sb, place) = (&self.sb.current, theirs.position);
        let of_history = |generation: Generation| sb.doubt_generations.contains(&generation);
        let is_there = place.incarnation == sb.in_doubt && of_history(place.generation);
        let has_run =
            |generation| generation == sb.doubt_generations[0] || planted(Fault::RunsOfPeer) && of_history(generation);
        let is_later = place.incarnation > sb.in_doubt && has_run(place.generation);
        let follows = !theirs.generation.is_blank() && of_history(theirs.generation);
        self.is_in_doubt() && (is_there || follows && !is_later)
    }

    /// Writes of an earlier run of this node may be missing on its volumes, whatever its role has become since.
    pub fn is_in_doubt(&self) -> bool {
        self.sb.current.in_doubt != Incarnation(0)
    }

    /// What was missing is there, or these volumes hold another node's content by now; the caller saves.
    pub fn forget_doubt(&mut self) {
        self.sb.current.in_doubt = Incarnation(0);
        self.has_chosen();
        self.sb.current.doubt_generations = [Generation::BLANK; 2];
        self.sb.current.served_in_doubt = false;
        self.begin_flush_points();
    }

    /// A run's flush points begin anew, unless those of the run in doubt are still needed.
    pub fn begin_flush_points(&mut self) {
        if !self.is_in_doubt() {
            self.sb.current.flushed = vec![Seq::NONE; self.volumes.len()];
        }
    }

    /// A promotion begins: what was in doubt before it still is, but for a peer that has gone on from there or never was there
    /// and so has nothing to give.
    pub fn take_doubt_along(&mut self) {
        // One that failed may not know where it stands.
        let hello = self.greeting.hello().filter(|hello| !hello.failed);
        if hello.is_some_and(|hello| !self.followed_in_doubt(&hello.identity)) {
            self.forget_doubt();
        }
        self.begin_flush_points();
    }

    /// What the export waits for was answered: by its operator, by the peer, or by a demotion that is about to be recorded.
    pub fn has_chosen(&mut self) {
        if self.sb.current.is_closed_until_chosen() {
            self.sb.current.given_up = Seq::NONE;
        }
    }

    /// Why the export is closed, and how it opens.
    pub fn closed_words(&self) -> &'static str {
        let peer_has_lived = self.greeting.hello().is_some_and(|hello| !hello.identity.is_new());
        match (self.sb.current.is_unmet(), peer_has_lived) {
            (false, _) => CLOSED_UNTIL_CHOSEN,
            (true, false) => CLOSED_UNTIL_MET,
            (true, true) => CLOSED_AS_PEER_LIVED,
        }
    }

    fn range_is_ours(&self, range: &VolumeRange) -> bool {
        fits(&self.volumes, range)
    }

    pub fn pull_asked(&mut self, cx: &mut Cx, header: &Header) -> Option<()> {
        let range = VolumeRange { volume: header.volume, offset: header.offset, length: header.length };
        if !self.range_is_ours(&range) || range.length > limits::PART_BYTES_MAX {
            return None;
        }
        if self.role() == Role::Secondary && !self.range_asked(header.seq, range) {
            self.protocol_error(cx, "a question for more ranges at once than may be asked for");
        }
        Some(())
    }
}

/// The range is one of whole sectors inside its volume.
pub(crate) fn fits(volumes: &[Volume], range: &VolumeRange) -> bool {
    let aligned = range.offset.is_multiple_of(SECTOR_BYTES) && range.length.is_multiple_of(SECTOR_BYTES);
    let volume = volumes.get(usize::from(range.volume.0));
    let end = range.offset.checked_add(range.length);
    aligned && range.length > 0 && volume.is_some_and(|v| end.is_some_and(|end| end <= v.config.size_bytes))
}

const _: () = assert!(REGION_BYTES.is_multiple_of(SECTOR_BYTES));

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
}
