//! The ordered stream to the peer: frames out, confirmations in, and what becomes of it when the link does.

use crate::SendPayload;
use crate::common::Common;
use crate::context::Cx;
use crate::formats::wire::{Header, Kind, flags};
use crate::ids::*;
use crate::peer::Peer;
use crate::peer::queue::Body;
use crate::planted::{Fault, planted};
use crate::primary::write::frame_cost;
use crate::shared::link::LinkUse;
use crate::shared::marks::Mark;
use crate::shared::time::{Mono, Wall};
use crate::shared::volume::Who;
use crate::state::{Mode, Pause, State};

/// The ordered stream to the peer, on a primary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// The peer may be sent to: it said SyncReady, or continued from the queue.
    pub open: bool,
    pub granted_bytes: u64,
    pub sent_bytes: u64,
    /// How often the peer's grant went back on this stream.
    pub recalls: u64,
    pub received: Seq,
    pub durable: Seq,
    pub applied: Seq,
    /// Writers follow the mode's promise for numbers above this.
    pub promise_from: Option<Seq>,
    /// When catching-up began.
    pub catching_up_since: Mono,
}

impl Peer {
    /// The next frame of the stream, if the peer's window and the bytes allow it.
    pub fn next_frame(&mut self, common: &mut Common, cx: &mut Cx) -> Option<(Header, SendPayload)> {
        if self.cut.is_some() {
            return self.next_cut_frame(common, cx);
        }
        let flushed = self.numbers.flush_point(common);
        let owed = self.stream_owes();
        let stream = self.stream.as_mut().filter(|s| s.open)?;
        let item = self.queue.next_ready()?;
        let (kind, payload) = match &item.body {
            Body::Data(slice) => (Kind::Data, SendPayload::Data(slice.clone())),
            Body::Zero { .. } => (Kind::Zero, SendPayload::None),
            Body::Void => (Kind::Void, SendPayload::None),
            Body::Probe(hash) => (Kind::Probe, SendPayload::Control(hash.to_vec())),
            Body::SyncEnd => (Kind::SyncEnd, SendPayload::None),
            Body::Pending => return None,
        };
        let bytes = frame_cost(&payload);
        if stream.sent_bytes + bytes > stream.granted_bytes && !planted(Fault::WindowIgnored) {
            return None;
        }
        stream.sent_bytes += bytes;
        if !owed {
            self.stall.moved(cx.now.mono);
        }
        if kind == Kind::Void {
            cx.marks.hit(Mark::VoidSent);
        }
        let identity = &common.sb.current.identity;
        let header = Header {
            flags: item.flags | if matches!(item.body, Body::Zero { no_hole: true }) { flags::NO_HOLE } else { 0 },
            volume: item.volume,
            origin: common.node,
            incarnation: identity.incarnation,
            generation_tag: identity.generation.tag,
            seq: item.seq,
            offset: item.offset,
            length: item.length,
            wall: item.wall,
            flushed,
            ..Header::new(kind, cx.peer.session, common.config.id)
        };
        self.queue.advance(cx.now.mono);
        Some((header, payload))
    }

    /// The peer could present the image of this instant.
    pub fn peer_reached(&mut self, cx: &Cx, wall: Wall) {
        if wall > self.applied_wall {
            (self.applied_wall, self.applied_wall_since) = (wall, cx.now.mono);
        }
    }

    /// The peer's journal fills with writes that are not flushed here: flush, and tell it.
    pub fn flush_for_peer(&mut self, common: &mut Common, cx: &mut Cx) {
        cx.marks.hit(Mark::FlushedForPeer);
        for index in 0..common.volumes.len() {
            let volume = &common.volumes[index];
            if volume.unflushed_bytes > 0 && volume.flushing.is_none() && !volume.latched {
                self.numbers.want_flush(common, cx, VolumeId(index as u16), Who::Engine);
            }
        }
        self.tell_primary_state(common, cx);
    }

    /// What this group is to its link.
    pub fn link_use(&self, common: &Common) -> LinkUse {
        let promises = matches!(common.settings.mode, Mode::Sync | Mode::Nearsync);
        let awaited = promises && self.stream.is_some_and(|stream| stream.promise_from.is_some());
        LinkUse { sends: self.stream.is_some() || self.cut.is_some(), awaited }
    }

    pub fn peer_paused(&mut self, common: &mut Common, cx: &mut Cx, paused: Option<Pause>) {
        self.catch_up.resumes = false;
        if matches!(common.state, State::Paused(_)) && paused.map(State::Paused) != Some(common.state) {
            if paused.is_none() && self.syncs() && !cx.may_sync {
                return self.resume_in_turn(common, cx);
            }
            self.resume(common, cx);
        }
        if let Some(pause) = paused
            && matches!(common.state, State::Syncing | State::CatchingUp | State::Replicating)
        {
            self.transition(common, cx, State::Paused(pause), pause.words());
        }
    }

    pub fn resume(&mut self, common: &mut Common, cx: &mut Cx) {
        let back = if self.syncs() { State::Syncing } else { State::CatchingUp };
        self.catch_up.resumes = false;
        self.stall.moved(cx.now.mono);
        self.transition(common, cx, back, "the secondary has space again");
    }

    /// From the next number on writers wait as the mode says: in `holding` nobody is answered alone.
    pub fn promise_from_here(&mut self) {
        let last = self.numbers.last();
        if let Some(stream) = &mut self.stream {
            stream.promise_from.get_or_insert(last);
        }
    }

    /// A new stream: numbers after `last_seq` travel in order.
    pub fn begin_stream(&mut self, cx: &Cx) {
        assert!(self.stream.is_none() && self.queue.is_empty());
        self.stream = Some(Stream {
            open: false,
            granted_bytes: 0,
            sent_bytes: 0,
            recalls: 0,
            received: self.numbers.last(),
            durable: self.numbers.last(),
            applied: self.numbers.last(),
            promise_from: None,
            catching_up_since: cx.now.mono,
        });
    }

    /// A repair read may stand in the middle of the queue: its numbers never become writes, and it is read again later.
    pub fn void_pending(&mut self, common: &mut Common) {
        for (seq, volume, offset, length) in self.queue.pending() {
            self.queue.void(seq);
            self.queue.lighten(seq, crate::peer::queue::cost(0));
            common.volumes.of(volume).mark_uncovered(offset, length);
        }
    }

    /// The last number that was handed to the link: the peer can have no later one.
    pub fn sent_through(&self) -> Seq {
        self.queue.first_unsent().map_or(self.numbers.last(), |seq| Seq(seq.0 - 1))
    }

    /// Whether a peer may be ready for this begin: it is told of it, or was. What was abandoned meanwhile is still answered.
    pub fn was_begun(&self, attempt: u64) -> bool {
        let waits = self.cut_begins(attempt) || self.resync.as_ref().is_some_and(|r| r.begins(attempt));
        (1..=self.passes).contains(&attempt) && !waits
    }
}

impl Common {
    /// The peer stands at least here: what it said of itself when it was met is older.
    pub fn confirmed(&mut self, place: Position) {
        let known = &mut self.sb.current.confirmed;
        known.place = place;
        if let Some(hello) = self.hello.as_mut() {
            if !hello.identity.inconsistent {
                known.image = place;
            }
            let theirs = &mut hello.identity.position;
            let same_run = (theirs.generation, theirs.incarnation) == (place.generation, place.incarnation);
            if same_run && theirs.seq < place.seq {
                *theirs = place;
            }
        }
    }
}
