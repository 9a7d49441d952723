//! Nodes dial each other, and frames go between them.

use engine::wire::{FrameHeader, FrameKind};
use engine::{FramePayload, GroupId, Input, LinkId, SendPayload};

use super::{World, WorldEvent};
use crate::network::{Arrival, Later, LinkEvent, Parcel};
use crate::oracle::{Oracle, OracleFailure};
use crate::payload::{Payload, SharedBytes, joined, slice_of};
use crate::trips::Instant;

impl World {
    pub(super) fn schedule_links(&mut self, events: impl IntoIterator<Item = Later>) {
        for (after, event) in events {
            self.timeline.schedule(after, event);
        }
    }

    pub(super) fn dial(&mut self) {
        let wait = self.rng.between(30_000_000, 200_000_000);
        self.timeline.schedule(wait, WorldEvent::Dial);
        for pair in self.network.pairs() {
            if self.network.open_between(pair).is_none() && self.reachable(pair) {
                self.connect(pair);
            }
        }
    }

    /// Both nodes are up and hear each other.
    pub fn reachable(&self, pair: [usize; 2]) -> bool {
        pair.iter().all(|n| self.cluster[*n].up()) && self.network.path(pair).passes == [true; 2]
    }

    pub fn connect(&mut self, pair: [usize; 2]) {
        let session = self.rng.draw();
        let ups = self.network.connect(pair, session);
        self.schedule_links(ups);
    }

    pub(super) fn link_event(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Up { connection, end } => self.comes_up(connection, end),
            LinkEvent::Down { connection, end, reason } => {
                if let Some(node) = self.network.goes_down(connection, end) {
                    self.input(node, Input::LinkDown { link: LinkId(connection), reason: reason.into() });
                }
                self.network.forget_closed(connection);
            }
            LinkEvent::Transmitted { connection, end } => {
                let (now, rng) = (self.timeline.now(), &mut self.rng);
                let Some(done) = self.network.transmitted(connection, end, now, rng) else { return };
                self.schedule_links([done.arrives].into_iter().chain(done.next));
                if let Some((node, bytes)) = done.sent {
                    self.input(node, Input::Sent { link: LinkId(connection), bytes });
                }
            }
            LinkEvent::Arrive { connection, end, parcel } => self.arrive(connection, end, parcel),
        }
    }

    fn comes_up(&mut self, connection: u64, end: usize) {
        let Some(node) = self.network.comes_up(connection, end).filter(|node| self.cluster[*node].up()) else { return };
        // What it said before goes on the older one.
        self.drain(node);
        if !self.cluster[node].up() {
            // Its last word was that it has stopped.
            return;
        }
        if let Some((peer, session)) = self.network.open(connection, end) {
            for group in self.cluster.groups_of(node) {
                if self.cluster.other(group, node) == usize::from(peer.0) {
                    self.cluster[node].storage.begins_session(group, session.0);
                }
            }
            let of_both = |group: &GroupId| self.cluster.other(*group, node) == usize::from(peer.0);
            let shared = self.cluster.groups_of(node).into_iter().filter(of_both);
            let apart = shared.filter(|group| self.cluster.is_apart(*group)).collect();
            self.input(node, Input::LinkUp { peer, link: LinkId(connection), session, apart });
        }
    }

    pub(super) fn close(&mut self, node: usize, link: LinkId, reason: &str) {
        self.log(format_args!("node {node} closes connection {}: {reason}", link.0));
        let broke_protocol = reason.contains("the peer sent") && !reason.contains("goodbye");
        // With a fault injected the engine's own words are no verdict.
        if broke_protocol && !cfg!(feature = "injected-faults") {
            return self.fail(OracleFailure::new(Oracle::Protocol, format!("node {node}: {reason}")));
        }
        let downs = self.network.close(link.0, node, &mut self.rng);
        self.schedule_links(downs);
    }

    pub(super) fn send(&mut self, node: usize, link: LinkId, header: FrameHeader, payload: SendPayload) {
        let payload: SharedBytes = match payload {
            SendPayload::None => Vec::new().into(),
            SendPayload::Control(bytes) => bytes.into(),
            SendPayload::Data(slice) => slice_of(&slice),
            SendPayload::Gathered(slices) => joined(&slices),
        };
        if header.kind.carries_data() {
            self.data_sent_bytes[node] += payload.len() as u64;
        }
        let checked = self.checkers.check_frame(&self.cluster, node, &header, &payload);
        self.check(checked);
        if !self.goes_on() {
            return;
        }
        let parcel = Parcel { header: header.sealed(&payload).encode(), payload };
        let newest = self.network.check_session(link.0, node);
        self.check(newest);
        let sent = self.network.send(link.0, node, parcel);
        self.schedule_links(sent);
    }

    /// A parcel that end `end` sent comes to the other one.
    fn arrive(&mut self, connection: u64, end: usize, parcel: Parcel) {
        let (node, parcel) = match self.network.arrive(connection, end, parcel) {
            Arrival::At(node, parcel) => (node, parcel),
            Arrival::Refused(reset) => return self.schedule_links([reset]),
            Arrival::Held => return,
        };
        let header = match FrameHeader::decode(&parcel.header) {
            Ok(header) => header,
            Err(e) => {
                let what = format!("an engine's own frame is refused: {e}");
                return self.fail(OracleFailure::new(Oracle::Protocol, what));
            }
        };
        let payload = if header.kind.carries_data() {
            let meters = self.cluster[node].storage.meters(header.group);
            let meter = if header.kind == FrameKind::Pulled { &meters.aside } else { &meters.queued };
            FramePayload::Data(Payload::handed_over(parcel.payload, meter))
        } else if parcel.payload.is_empty() {
            FramePayload::None
        } else {
            FramePayload::Control(parcel.payload.into_vec())
        };
        if self.trips_before(node, Instant::Message) {
            return;
        }
        self.input(node, Input::Frame { link: LinkId(connection), header, payload });
        self.trips(node, Instant::Message, true);
    }

    /// Cuts every path, each way or not.
    pub fn cut(&mut self, passes: [bool; 2]) {
        for pair in self.network.pairs() {
            self.set_path(pair, passes);
        }
    }

    /// All cables are back.
    pub fn restore_path(&mut self) {
        self.cut([true; 2]);
    }

    /// Sets what a path carries. What was held arrives, what waited goes out, where it passes again.
    pub fn set_path(&mut self, pair: [usize; 2], passes: [bool; 2]) {
        for (connection, end) in self.network.set_path(pair, passes) {
            for parcel in self.network.take_held(connection, end) {
                self.arrive(connection, end, parcel);
            }
            let next = self.network.transmit(connection, end);
            self.schedule_links(next);
        }
    }

    /// One end's machine forgets the connection without a word; the other learns it when it sends.
    pub fn half_open(&mut self, pair: [usize; 2]) {
        let down = self.network.half_open(pair, &mut self.rng);
        self.schedule_links(down);
    }

    /// Both ends drop the connection at once.
    pub fn flap(&mut self, pair: [usize; 2]) {
        let downs = self.network.flap(pair);
        self.schedule_links(downs);
    }
}

/// From now on lines get slow, and good again, in turns.
pub(super) fn lines_change(world: &mut World) {
    if world.is_steady {
        return;
    }
    let (good, slow) = (world.cluster.options.delay_ns, world.cluster.options.slow_delay_ns);
    let was_good = world.network.pairs().iter().all(|pair| world.network.path(*pair).slower_ns == 0);
    world.network.set_delay(if was_good { slow } else { good });
    let lasts = world.rng.between(200_000_000, 8_000_000_000);
    world.timeline.schedule(lasts, WorldEvent::LinesChange);
}
