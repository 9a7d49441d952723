//! What a peer sends that is authenticated and wrong: frames of the right form whose content is now as an honest peer's,
//! now bent to the edges of what a number can be, at any time and any number of times.

use engine::identity::{Confirmed, Identity, Role};
use engine::marks::Mark;
use engine::wire::{
    Ack, FlushPoints, FrameHeader, FrameKind, GroupHello, SyncBegin, VolumeRange, encode_ranges, flags,
};
use engine::*;

use super::machine::{GROUP, MachineShape};
use crate::options::SimOptions;
use crate::rng::Rng;

/// Where a field of 64 bits may break something.
const EDGES: [u64; 14] = [
    0,
    1,
    511,
    1 << 32,
    (1 << 62) - 1,
    1 << 62,
    (1 << 62) + 1,
    (1 << 63) - 1,
    1 << 63,
    (1 << 63) + 1,
    u64::MAX - 4095,
    u64::MAX - 511,
    u64::MAX - 1,
    u64::MAX,
];

/// What it knows of its victim, and what it said.
pub struct HostilePeer {
    shape: MachineShape,
    session: SessionId,
    /// In a hundred: how many numbers are bent.
    bends: u64,
    /// In a hundred: how often it sends what cannot come now.
    rash: u64,
    /// Who the peer is whose place it took.
    honest: Identity,
    ready: bool,
    /// It began a sync as the run of the peer whose place it took.
    pub forged: bool,
    /// It confirms, or answers comparisons: else no bit of its victim may clear.
    pub confirms: bool,
    pub says: GroupHello,
    greeted: bool,
    victim: Option<GroupHello>,
    begin_heard: Option<SyncBegin>,
    sent_heard: u64,
    probes_heard: Vec<u64>,
    pulls_heard: Vec<FrameHeader>,
    question_heard: u64,
    grant_heard: u64,
    questions: u64,
    begun: SyncBegin,
    next: u64,
    /// In a hundred: how many numbers begin an epoch.
    epochs: u64,
    /// One has begun, as far as its peer can know.
    in_epoch: bool,
}

impl HostilePeer {
    pub fn new(rng: &mut Rng, shape: MachineShape, honest: Identity) -> HostilePeer {
        HostilePeer {
            shape,
            session: SessionId(0),
            bends: *rng.pick(&[0, 1, 5, 20]),
            rash: *rng.pick(&[0, 1, 10, 50]),
            honest,
            ready: false,
            forged: false,
            confirms: rng.percent(60),
            says: GroupHello::default(),
            greeted: false,
            victim: None,
            begin_heard: None,
            sent_heard: 0,
            probes_heard: Vec::new(),
            pulls_heard: Vec::new(),
            question_heard: 0,
            grant_heard: 0,
            questions: 0,
            begun: SyncBegin {
                from: Position::default(),
                parent: Position::default(),
                to: Incarnation(0),
                nothing_dirty: false,
                dirty_bytes: 0,
                dirty_units: 0,
                left_out_bytes: 0,
                snapshot: 0,
                attempt: 0,
                aside: VolumeSet::default(),
                is_resolved: false,
            },
            next: 1,
            epochs: *rng.pick(&[0, 5, 30]),
            in_epoch: false,
        }
    }

    pub fn connects(&mut self, session: u64) {
        self.session = SessionId(session);
        (self.greeted, self.ready) = (false, false);
        (self.begin_heard, self.sent_heard, self.question_heard, self.grant_heard) = (None, 0, 0, 0);
        self.probes_heard.clear();
        self.pulls_heard.clear();
    }

    /// It listens, whether it reads on or not.
    pub fn hears(&mut self, header: &FrameHeader, payload: &[u8]) {
        match header.kind {
            FrameKind::GroupHello | FrameKind::GroupState => {
                self.victim = GroupHello::decode(payload).or(self.victim.take())
            }
            FrameKind::SyncBegin => {
                self.begin_heard = SyncBegin::decode(payload);
                let begin = self.begin_heard.as_ref();
                self.sent_heard = begin.map_or(0, |begin| if begin.snapshot > 0 { 0 } else { begin.from.seq.0 });
            }
            FrameKind::SyncReady => {
                (self.ready, self.in_epoch) = (true, false);
                self.next = if self.begun.snapshot > 0 { 1 } else { self.begun.from.seq.0.wrapping_add(1) };
            }
            FrameKind::Ack => self.grant_heard = Ack::decode(payload).map_or(0, |ack| ack.granted_bytes),
            FrameKind::Tail | FrameKind::Bits => {}
            FrameKind::TailAsk | FrameKind::BitsAsk | FrameKind::Union => self.question_heard = header.seq.0,
            FrameKind::Pull => {
                self.question_heard = header.seq.0;
                self.pulls_heard.push(*header);
            }
            kind if kind.is_numbered() => {
                self.sent_heard = header.seq.0;
                if kind == FrameKind::Probe {
                    self.probes_heard.push(header.seq.0);
                }
            }
            _ => {}
        }
    }

    fn bent(&self, rng: &mut Rng, honest: u64) -> u64 {
        if !rng.percent(self.bends) {
            return honest;
        }
        match rng.below(4) {
            0 => honest.wrapping_add(1),
            1 => honest.wrapping_sub(1),
            _ => *rng.pick(&EDGES),
        }
    }

    fn flag(&self, rng: &mut Rng) -> bool {
        rng.percent(self.bends / 2)
    }

    /// Some frames of one kind: one, or very many.
    pub fn frames(&mut self, rng: &mut Rng) -> Vec<(FrameHeader, Vec<u8>)> {
        if !self.greeted && !rng.percent(self.rash / 2) {
            self.greeted = true;
            return vec![self.hello(rng, FrameKind::GroupHello)];
        }
        let kind = self.kind(rng);
        let count = if rng.percent(15) { rng.between(2, 200) } else { 1 };
        (0..count).map(|_| self.frame(rng, kind)).collect()
    }

    fn kind(&self, rng: &mut Rng) -> FrameKind {
        use FrameKind::*;
        const PRIMARY: [FrameKind; 19] = [
            SyncBegin, SyncBegin, Data, Data, Data, Data, Zero, Void, Probe, SyncEnd, Tick, Tick, TailAsk, Pull,
            BitsAsk, Union, GroupState, MarkTerms, MarkTerms,
        ];
        const SECONDARY: [FrameKind; 16] = [
            SyncReady,
            SyncReady,
            Ack,
            Ack,
            Ack,
            Ack,
            ProbeResult,
            ProbeResult,
            Tail,
            Tail,
            Pulled,
            Bits,
            Bits,
            Saved,
            MarkThere,
            GroupState,
        ];
        const EITHER: [FrameKind; 5] = [Heartbeat, HeartbeatEcho, GroupHello, Goodbye, Heartbeat];
        let wanted = match rng.below(20) {
            0 => *rng.pick(&EITHER),
            1 if rng.percent(self.bends * 3) => *rng.pick(&PRIMARY),
            2 if rng.percent(self.bends * 3) => *rng.pick(&SECONDARY),
            _ if self.says.identity.role == Role::Primary => *rng.pick(&PRIMARY),
            _ => *rng.pick(&SECONDARY),
        };
        let rare = matches!(wanted, GroupHello | Goodbye) && !rng.percent(20);
        let silent = matches!(wanted, Ack | ProbeResult) && !self.confirms;
        if rare || silent {
            return Heartbeat;
        }
        let early = match wanted {
            SyncReady | Ack => self.begin_heard.is_none(),
            ProbeResult => self.probes_heard.is_empty(),
            Tail | Bits | Saved => self.question_heard == 0,
            Pulled => self.pulls_heard.is_empty(),
            kind => kind.is_numbered() && !self.ready,
        };
        match (early && !rng.percent(self.rash), self.says.identity.role) {
            (false, _) => wanted,
            (true, Role::Primary) => *rng.pick(&[SyncBegin, Tick, TailAsk, Pull, BitsAsk]),
            (true, Role::Secondary) => *rng.pick(&[GroupState, Heartbeat]),
        }
    }

    fn frame(&mut self, rng: &mut Rng, kind: FrameKind) -> (FrameHeader, Vec<u8>) {
        let group = if self.flag(rng) && rng.percent(3) { GroupId(rng.draw() as u32) } else { GROUP };
        let header = FrameHeader::new(kind, self.session, group);
        match kind {
            FrameKind::GroupHello | FrameKind::GroupState => self.hello(rng, kind),
            FrameKind::SyncBegin => (header, self.sync_begin(rng)),
            FrameKind::Data | FrameKind::Zero | FrameKind::Void | FrameKind::Probe | FrameKind::SyncEnd => {
                self.numbered(rng, header)
            }
            FrameKind::Tick => self.tick(rng, header),
            FrameKind::MarkTerms | FrameKind::MarkThere => self.mark(rng, header),
            FrameKind::SyncReady => {
                let attempt = self.begin_heard.map_or(0, |begin| begin.attempt);
                (FrameHeader { offset: self.bent(rng, attempt), ..header }, Vec::new())
            }
            FrameKind::ProbeResult => {
                let seq = if self.probes_heard.is_empty() { 0 } else { *rng.pick(&self.probes_heard) };
                let flags = if rng.percent(50) { flags::EQUAL } else { 0 };
                (FrameHeader { seq: Seq(self.bent(rng, seq)), flags, ..header }, Vec::new())
            }
            FrameKind::Ack => (FrameHeader { offset: self.bent(rng, 0), ..header }, self.ack(rng)),
            FrameKind::Heartbeat | FrameKind::HeartbeatEcho => {
                let long = if self.flag(rng) { rng.below(65_000) } else { 8 };
                (header, (0..long).map(|_| rng.draw() as u8).collect())
            }
            FrameKind::Goodbye => (header, b"so long".to_vec()),
            _ => self.question_or_answer(rng, header),
        }
    }

    // ---- who it says it is ------------------------------------------------------------------------------------------

    fn hello(&mut self, rng: &mut Rng, kind: FrameKind) -> (FrameHeader, Vec<u8>) {
        let victim = self.victim.clone().unwrap_or_default();
        let theirs = victim.identity;
        let role = match (theirs.role, self.flag(rng)) {
            (Role::Primary, false) | (Role::Secondary, true) => Role::Secondary,
            _ => Role::Primary,
        };
        let own = Generation { number: self.bent(rng, 3), tag: 33 };
        if role == self.honest.role && rng.percent(60) {
            return self.says_as(rng, kind, self.honest);
        }
        let generation = match rng.below(10) {
            0 => own,
            1 if theirs.generation.is_blank() => own,
            _ if role == Role::Primary && theirs.generation.is_blank() => own,
            2 if role == Role::Secondary || self.flag(rng) => Generation::BLANK,
            _ => theirs.generation,
        };
        let drawn = match rng.below(3) {
            0 => theirs.position,
            1 => Position { generation, incarnation: theirs.incarnation, seq: Seq(self.sent_heard) },
            _ => Position { generation, incarnation: Incarnation(rng.below(4)), seq: Seq(rng.below(50)) },
        };
        let position = Position {
            incarnation: Incarnation(self.bent(rng, drawn.incarnation.0)),
            seq: Seq(self.bent(rng, drawn.seq.0)),
            ..drawn
        };
        let parent = if rng.percent(50) { theirs.parent } else { self.says.identity.parent };
        let identity = Identity {
            role,
            generation,
            parent,
            incarnation: Incarnation(self.bent(rng, 7)),
            position,
            inconsistent: rng.percent(10),
            handed_over: rng.percent(5),
            continued: rng.percent(5),
            forced: rng.percent(5),
        };
        self.says_as(rng, kind, identity)
    }

    fn says_as(&mut self, rng: &mut Rng, kind: FrameKind, identity: Identity) -> (FrameHeader, Vec<u8>) {
        let size = |hostile: &HostilePeer, rng: &mut Rng| match rng.percent(2) {
            true => hostile.bent(rng, hostile.shape.volume_bytes),
            false => hostile.shape.volume_bytes,
        };
        let count = if self.flag(rng) && rng.percent(10) { rng.below(300) as usize } else { self.shape.volumes };
        let victims_tag = self.victim.as_ref().map_or(0, |victim| victim.identity.generation.tag);
        self.says = GroupHello {
            identity,
            granted_bytes: self.bent(rng, 1 << 20),
            dirty_bytes: if rng.percent(30) { self.bent(rng, 65536) } else { 0 },
            failed: rng.percent(2),
            lacks_image: rng.percent(5),
            grants: rng.percent(10),
            features: self.bent(rng, 0),
            required: if rng.percent(1) { 1 } else { 0 },
            settings: Settings {
                queue_bytes: self.bent(rng, 1 << 20),
                fallback: SimOptions::fallback(rng),
                ..Settings::default()
            },
            confirmed: Confirmed { position: identity.parent, image: identity.position },
            went_back_to: if rng.percent(10) { identity.parent } else { Position::default() },
            keeps_over: if rng.percent(30) { victims_tag } else { 0 },
            yields_to: if rng.percent(30) { victims_tag } else { 0 },
            keeps_by_policy: rng.percent(30),
            would_yield: rng.percent(30),
            volume_bytes: (0..count).map(|_| size(self, rng)).collect(),
            detached: VolumeSet::default(),
            unfilled: VolumeSet::default(),
        };
        if rng.percent(5) {
            self.says.detached.insert(VolumeId(*rng.pick(&[0, 0, 1, 255])));
        }
        if rng.percent(5) {
            self.says.unfilled.insert(VolumeId(*rng.pick(&[0, 0, 1, 255])));
        }
        (FrameHeader::new(kind, self.session, GROUP), self.says.encode())
    }

    // ---- as a primary -----------------------------------------------------------------------------------------------

    fn sync_begin(&mut self, rng: &mut Rng) -> Vec<u8> {
        let identity = self.says.identity;
        let victim = self.victim.as_ref().map_or(Incarnation(0), |victim| victim.identity.incarnation);
        let seq = Seq(self.bent(rng, identity.position.seq.0));
        let from = Position { generation: identity.generation, incarnation: identity.incarnation, seq };
        self.ready = false;
        self.forged |= identity.generation == self.honest.generation;
        self.begun = SyncBegin {
            from,
            parent: identity.parent,
            to: Incarnation(self.bent(rng, victim.0)),
            nothing_dirty: rng.percent(20),
            dirty_bytes: self.bent(rng, 1 << 20),
            dirty_units: self.bent(rng, 1 << 8),
            left_out_bytes: self.bent(rng, 0),
            snapshot: if rng.percent(40) { self.bent(rng, 2) } else { 0 },
            attempt: self.bent(rng, 1),
            aside: VolumeSet::default(),
            is_resolved: rng.percent(20),
        };
        if self.flag(rng) {
            self.begun.aside.insert(VolumeId(*rng.pick(&[0, 1, 255])));
        }
        self.begun.encode()
    }

    fn numbered(&mut self, rng: &mut Rng, header: FrameHeader) -> (FrameHeader, Vec<u8>) {
        self.forged |= self.says.identity.generation == self.honest.generation;
        let identity = self.says.identity;
        let length = match header.kind {
            FrameKind::Data => *rng.pick(&[512, 4096, 65536, 1 << 20]),
            FrameKind::Probe => 65536,
            FrameKind::Zero => 4096 * rng.between(1, 100),
            _ => 0,
        };
        let room = self.shape.volume_bytes.saturating_sub(length).max(512);
        let drawn = sector(rng, room);
        let (more, of_epoch) = self.of_epoch(rng, header.kind);
        let (seq, offset) = (self.bent(rng, self.next.wrapping_add(u64::from(more))), self.bent(rng, drawn));
        self.next = self.next.wrapping_add(u64::from(more) + 1);
        let bytes = match header.kind {
            FrameKind::Data => vec![rng.draw() as u8; length as usize],
            FrameKind::Probe => vec![7; 32],
            _ => Vec::new(),
        };
        let sets_aside = header.kind == FrameKind::Void && rng.percent(30);
        let header = FrameHeader {
            more,
            flags: match rng.percent(50) {
                _ if of_epoch != 0 => of_epoch | if sets_aside && rng.percent(20) { flags::MARK } else { 0 },
                _ if sets_aside => *rng.pick(&[flags::SETS_ASIDE, flags::MARK]),
                true => flags::WANT_RECEIVED,
                false => rng.draw() as u16 & 7,
            },
            volume: VolumeId(if self.flag(rng) { rng.draw() as u16 } else { 0 }),
            origin: NodeId(1),
            incarnation: identity.incarnation,
            generation_tag: identity.generation.tag,
            seq: Seq(seq),
            offset,
            length: if header.kind == FrameKind::Data { length } else { self.bent(rng, length) },
            wall: Wall(self.bent(rng, 1_000_000)),
            flushed: Seq(if rng.percent(30) { self.bent(rng, seq) } else { 0 }),
            ..header
        };
        (header, bytes)
    }

    /// Of few ids: some were told before, or set.
    fn mark(&mut self, rng: &mut Rng, header: FrameHeader) -> (FrameHeader, Vec<u8>) {
        let identity = self.says.identity;
        let few = rng.below(300);
        let (id, seq) = (self.bent(rng, few), Seq(self.bent(rng, self.next)));
        if header.kind == FrameKind::MarkThere {
            let (incarnation, generation_tag) = (identity.incarnation, identity.generation.tag);
            let flags = *rng.pick(&[0, 0, flags::UNKNOWN, flags::LAST]);
            let length = rng.below(20);
            return (FrameHeader { flags, offset: id, length, seq, incarnation, generation_tag, ..header }, Vec::new());
        }
        if rng.percent(10) {
            return (FrameHeader { flags: flags::LAST, ..header }, Vec::new());
        }
        let position = Position { generation: identity.generation, incarnation: identity.incarnation, seq };
        let name = format!("m{}", rng.below(9));
        let (locked, dropped) = (rng.percent(20), rng.percent(20));
        let mark = Mark { id: MarkId(id), position, name, locked, dropped, ..Mark::default() };
        (FrameHeader { seq: Seq(rng.below(9)), ..header }, mark.encode())
    }

    /// For how many numbers before its own the frame stands too, and what it says of an epoch: mostly one that an honest peer may send.
    fn of_epoch(&mut self, rng: &mut Rng, kind: FrameKind) -> (u32, u16) {
        let may_be = matches!(kind, FrameKind::Data | FrameKind::Zero | FrameKind::Void) || self.flag(rng);
        if !may_be || !(self.in_epoch || rng.percent(self.epochs)) {
            return (0, 0);
        }
        let is_last = rng.percent(20);
        self.in_epoch = !is_last && !rng.percent(self.bends / 2);
        let drawn = if rng.percent(30) { rng.below(8) } else { 0 };
        let more = self.bent(rng, drawn) as u32;
        (more, flags::EPOCH | if is_last { flags::LAST } else { 0 })
    }

    fn tick(&mut self, rng: &mut Rng, header: FrameHeader) -> (FrameHeader, Vec<u8>) {
        let header = FrameHeader {
            seq: Seq(self.bent(rng, self.next.wrapping_sub(1))),
            offset: self.bent(rng, 0),
            wall: Wall(self.bent(rng, 1_000_000)),
            incarnation: self.says.identity.incarnation,
            flushed: Seq(self.bent(rng, self.next.wrapping_sub(1))),
            ..header
        };
        let mut payload = vec![rng.below(8) as u8, rng.below(4) as u8];
        for number in [1 << 20, 1_000_000_000, 65536, 1_000_000] {
            payload.extend(self.bent(rng, number).to_le_bytes());
        }
        (header, payload)
    }

    // ---- as a secondary ---------------------------------------------------------------------------------------------

    fn ack(&self, rng: &mut Rng) -> Vec<u8> {
        let sent = self.sent_heard;
        let (all_durable, all_applied, room) = (rng.percent(50), rng.percent(50), sector(rng, 64 << 20));
        let received = self.bent(rng, sent);
        let durable = self.bent(rng, if all_durable { received } else { received / 2 });
        let applied = self.bent(rng, if all_applied { durable } else { durable / 2 });
        let ack = Ack {
            received: Seq(received),
            durable: Seq(durable),
            applied: Seq(applied),
            granted_bytes: self.bent(rng, room),
            applied_wall: Wall(self.bent(rng, 1_000_000)),
            paused: *rng.pick(&[None, None, None, Some(engine::state::Pause::PeerFull)]),
            noted: Seq(self.bent(rng, applied)),
            wants_flush: rng.percent(30),
        };
        ack.encode()
    }

    fn range(&self, rng: &mut Rng) -> VolumeRange {
        let length = *rng.pick(&[512, 4096, 65536, 1 << 20]);
        let room = self.shape.volume_bytes.saturating_sub(length).max(512);
        let (drawn, beyond) = (sector(rng, room), self.flag(rng));
        let offset = self.bent(rng, drawn);
        let volume = VolumeId(rng.below(self.shape.volumes as u64 + u64::from(beyond)) as u16);
        VolumeRange { volume, offset, length: self.bent(rng, length) }
    }

    fn question_or_answer(&mut self, rng: &mut Rng, header: FrameHeader) -> (FrameHeader, Vec<u8>) {
        let last = if rng.percent(50) { flags::LAST } else { 0 };
        match header.kind {
            FrameKind::BitsAsk => (FrameHeader { seq: Seq(self.question(rng)), ..header }, Vec::new()),
            FrameKind::TailAsk => {
                let incarnation = Incarnation(self.bent(rng, self.says.identity.incarnation.0));
                let volumes = (0..self.shape.volumes).map(|_| Seq(self.bent(rng, 0))).collect();
                let points = FlushPoints { incarnation, volumes };
                (FrameHeader { seq: Seq(self.question(rng)), ..header }, points.encode())
            }
            FrameKind::Pull => {
                let range = self.range(rng);
                let (volume, offset, length) = (range.volume, range.offset, range.length);
                (FrameHeader { seq: Seq(self.question(rng)), volume, offset, length, ..header }, Vec::new())
            }
            FrameKind::Tail => {
                let ranges: Vec<VolumeRange> = (0..rng.below(20)).map(|_| self.range(rng)).collect();
                let seq = Seq(self.bent(rng, self.question_heard));
                (FrameHeader { seq, flags: last, ..header }, encode_ranges(&ranges))
            }
            FrameKind::Saved => {
                let flags = *rng.pick(&[0, flags::NO_SPACE, flags::FAILED]);
                let seq = Seq(self.bent(rng, self.question_heard));
                (FrameHeader { seq, flags, length: self.bent(rng, 65536), ..header }, Vec::new())
            }
            FrameKind::Bits | FrameKind::Union => {
                let regions = self.shape.volume_bytes / limits::REGION_BYTES;
                let words = rng.below(regions / 64 + 1);
                let is_asked = header.kind == FrameKind::Bits;
                let seq = Seq(if is_asked { self.bent(rng, self.question_heard) } else { self.question(rng) });
                let header = FrameHeader { seq, flags: last, offset: self.bent(rng, 0), ..header };
                (header, (0..words * 8).map(|_| rng.draw() as u8).collect())
            }
            _ => {
                let asked = if self.pulls_heard.is_empty() { header } else { *rng.pick(&self.pulls_heard) };
                let length = asked.length.clamp(512, limits::PART_BYTES_MAX);
                let seq = Seq(self.bent(rng, asked.seq.0));
                let offset = self.bent(rng, asked.offset);
                (FrameHeader { seq, volume: asked.volume, offset, length, ..header }, vec![9; length as usize])
            }
        }
    }

    fn question(&mut self, rng: &mut Rng) -> u64 {
        self.questions += u64::from(rng.percent(10));
        self.bent(rng, self.questions)
    }
}

fn sector(rng: &mut Rng, below: u64) -> u64 {
    rng.below(below / limits::SECTOR_BYTES) * limits::SECTOR_BYTES
}
