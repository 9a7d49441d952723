//! One engine over simple disks, for runs against a hostile peer: every operation ends when it is told to, in any order,
//! and whatever the engine asks for is counted.

use std::collections::{BTreeMap, BTreeSet};

use engine::identity::Role;
use engine::state::{Degrade, Mode, Policy};
use engine::wire::{FrameHeader, HEADER_BYTES};
use engine::*;

use crate::payload::{Payload, PayloadMeter, bytes_of, crc32c, hash, is_zero, joined, slice_of};
use crate::rng::Rng;

pub const GROUP: GroupId = GroupId(0);

/// What a disk was asked for.
enum MachineJob {
    Write(Store, u64, Vec<WriteBytes>),
    Zero(Store, u64, u64),
    Read { store: Store, offset: u64, length: u64, how: ReadForm },
    Flush,
    FindHole { length: u64 },
}

#[derive(Clone, Copy)]
enum ReadForm {
    Payload,
    Summed,
    Meta,
    Hash,
}

/// The shape of both machines of a run.
#[derive(Clone, Copy, Debug)]
pub struct MachineShape {
    pub volumes: usize,
    pub volume_bytes: u64,
    pub mode: Mode,
    pub policy: Policy,
    pub degrade: Degrade,
    pub memory_bytes: u64,
    pub link_timeout_s: u64,
}

pub struct BareMachine {
    pub node: Node,
    pub id: usize,
    shape: MachineShape,
    starts_as: Role,
    /// As far as anything was written.
    stores: BTreeMap<Store, Vec<u8>>,
    pending: Vec<(Token, MachineJob)>,
    /// Frames for the peer that nobody has taken.
    pub sent: Vec<(FrameHeader, Vec<u8>)>,
    pub closed: Vec<String>,
    pub serves: bool,
    pub unanswered: BTreeSet<u64>,
    requests: u64,
    /// What the last input made it ask for.
    pub outputs: usize,
    /// Of frames, and not taken by the socket.
    pub unsent_bytes: u64,
    pub meter: PayloadMeter,
    link: u64,
    boot: u128,
    pub log: bool,
}

fn config(id: usize, starts_as: Role, shape: &MachineShape) -> NodeConfig {
    let volume =
        VolumeConfig { size_bytes: shape.volume_bytes, block_bytes: 4096, changed_outside: false, is_detached: false };
    let wait_limit = std::time::Duration::from_secs(1);
    let group = GroupConfig {
        id: GROUP,
        tag: 1,
        peer: NodeId(1 - id as u16),
        starts_as,
        meets_peer_first: false,
        volumes: vec![volume; shape.volumes],
        settings: Settings {
            mode: shape.mode,
            policy: shape.policy,
            degrade: shape.degrade,
            wait_limit,
            ..Settings::default()
        },
        journal_bytes: limits::JOURNAL_BYTES_MIN,
        window_bytes: limits::WINDOW_BYTES_MIN,
        activity: ActivityConfig { extent_bytes: 128 << 10, extents: limits::EXTENTS_MIN },
        history_bytes: limits::HISTORY_BYTES_MIN,
        view_bytes: 0,
        queue_disk_bytes: 0,
        queue_durable: false,
        queue_file: 0,
    };
    NodeConfig {
        node: NodeId(id as u16),
        groups: vec![group],
        link_timeout: std::time::Duration::from_secs(shape.link_timeout_s),
        memory_bytes: shape.memory_bytes,
        syncs_at_once: limits::SYNCS_AT_ONCE,
    }
}

impl BareMachine {
    pub fn new(id: usize, starts_as: Role, shape: MachineShape) -> BareMachine {
        BareMachine {
            node: Node::new(config(id, starts_as, &shape)),
            id,
            shape,
            starts_as,
            stores: BTreeMap::new(),
            pending: Vec::new(),
            sent: Vec::new(),
            closed: Vec::new(),
            serves: false,
            unanswered: BTreeSet::new(),
            requests: 0,
            outputs: 0,
            unsent_bytes: 0,
            meter: PayloadMeter::default(),
            link: 0,
            boot: 1,
            log: false,
        }
    }

    pub fn start(&mut self, now: Now) {
        self.handle(now, Input::Start { entropy: 77 + self.id as u64, boot: self.boot });
    }

    /// The process is gone, and what was under way with it; `power`: the machine's boot is another one.
    pub fn restart(&mut self, now: Now, power: bool) {
        self.node = Node::new(config(self.id, self.starts_as, &self.shape));
        self.pending.clear();
        self.sent.clear();
        self.closed.clear();
        self.unanswered.clear();
        (self.serves, self.unsent_bytes) = (false, 0);
        self.boot += u128::from(power);
        self.start(now);
    }

    pub fn link(&self) -> LinkId {
        LinkId(self.link)
    }

    pub fn link_up(&mut self, now: Now, session: u64) {
        self.link += 1;
        (self.unsent_bytes, self.sent, self.closed) = (0, Vec::new(), Vec::new());
        let (link, session) = (self.link(), SessionId(session));
        self.handle(now, Input::LinkUp { peer: NodeId(1 - self.id as u16), link, session, apart: Vec::new() });
    }

    pub fn link_down(&mut self, now: Now) {
        let link = self.link();
        self.handle(now, Input::LinkDown { link, reason: "gone".into() });
        (self.unsent_bytes, self.sent, self.closed) = (0, Vec::new(), Vec::new());
    }

    /// A frame as it comes out of a socket: false when it is none that anybody may send.
    pub fn receive(&mut self, now: Now, header: FrameHeader, payload: Vec<u8>) -> bool {
        let Ok(header) = FrameHeader::decode(&header.sealed(&payload).encode()) else { return false };
        let payload = if header.kind.carries_data() {
            if payload.is_empty() {
                return false;
            }
            FramePayload::Data(Payload::handed_over(payload, &self.meter))
        } else if payload.is_empty() {
            FramePayload::None
        } else {
            FramePayload::Control(payload)
        };
        let link = self.link();
        self.handle(now, Input::Frame { link, header, payload });
        true
    }

    /// The socket takes so much of what waits for it.
    pub fn takes(&mut self, now: Now, bytes: u64) {
        let bytes = bytes.min(self.unsent_bytes);
        self.unsent_bytes -= bytes;
        let link = self.link();
        self.handle(now, Input::Sent { link, bytes });
    }

    pub fn request(&mut self, now: Now, volume: u16, request: Request) {
        self.requests += 1;
        self.unanswered.insert(self.requests);
        let id = RequestId(self.requests);
        self.handle(now, Input::Request { group: GROUP, volume: VolumeId(volume), id, request });
    }

    pub fn write(&mut self, now: Now, rng: &mut Rng) {
        let length = 4096 * rng.between(1, 8);
        let offset = rng.below((self.shape.volume_bytes - length) / 4096) * 4096;
        let volume = rng.below(self.shape.volumes as u64) as u16;
        let bytes = vec![rng.draw() as u8; length as usize];
        let request = match rng.below(12) {
            0 => Request::Flush,
            1 => Request::Zero { offset, length, no_hole: false, fua: false },
            _ => {
                let buf = Payload::handed_over(bytes, &self.meter);
                Request::Write { offset, length, buf, fua: rng.percent(10) }
            }
        };
        self.request(now, volume, request);
    }

    pub fn command(&mut self, now: Now, command: Command) {
        self.requests += 1;
        let id = CommandId(self.requests);
        self.handle(now, Input::Command { group: GROUP, id, command });
    }

    pub fn handle(&mut self, now: Now, input: Input) {
        self.node.handle(now, input);
        self.outputs = 0;
        while let Some(output) = self.node.poll_output() {
            self.outputs += 1;
            self.take(output);
        }
    }

    fn take(&mut self, output: Output) {
        let (token, job) = match output {
            Output::Zero { token, store, offset, length, .. } => (token, MachineJob::Zero(store, offset, length)),
            // Of a delta nothing is kept.
            Output::Renew { token, .. } | Output::Write { token, store: Store::Delta(_), .. } => {
                (token, MachineJob::Flush)
            }
            Output::Write { token, store, offset, parts, .. } => (token, MachineJob::Write(store, offset, parts)),
            Output::Flush { token, .. } => (token, MachineJob::Flush),
            Output::Read { token, store, offset, length, .. } => {
                (token, MachineJob::Read { store, offset, length: length.into(), how: ReadForm::Payload })
            }
            Output::ReadSummed { token, store, offset, length } => {
                (token, MachineJob::Read { store, offset, length: length.into(), how: ReadForm::Summed })
            }
            Output::ReadMeta { token, store, offset, length } => {
                (token, MachineJob::Read { store, offset, length: length.into(), how: ReadForm::Meta })
            }
            Output::ReadHash { token, store, offset, length } => {
                (token, MachineJob::Read { store, offset, length: length.into(), how: ReadForm::Hash })
            }
            Output::Spill { .. } | Output::Append { .. } | Output::Fetch { .. } => {
                unreachable!("there is no disk queue here")
            }
            Output::FindHole { token, length, .. } => (token, MachineJob::FindHole { length }),
            Output::Send { link, header, payload } => return self.send(link, header, payload),
            Output::Reply { id, .. } => return self.answered(id),
            Output::Serve { open, .. } => return self.serves = open,
            Output::Reopen { .. } | Output::Removed { .. } => unreachable!("nobody resets or removes a group here"),
            Output::ViewOpened { .. } | Output::ViewData { .. } => unreachable!("nobody opens a view here"),
            Output::CloseLink { link, reason } => {
                if link.0 == self.link {
                    self.closed.push(reason);
                }
                return;
            }
            Output::Event { event, .. } => {
                if self.log {
                    println!("  node {}: {event:?}", self.id);
                }
                return;
            }
            Output::CommandDone { result, .. } => {
                if self.log {
                    println!("  node {}: {result:?}", self.id);
                }
                return;
            }
            Output::Stopped => return,
        };
        self.pending.push((token, job));
    }

    fn answered(&mut self, id: RequestId) {
        assert!(self.unanswered.remove(&id.0), "a request is answered once");
    }

    fn send(&mut self, link: LinkId, header: FrameHeader, payload: SendPayload) {
        if link.0 != self.link {
            return;
        }
        let bytes = match payload {
            SendPayload::None => Vec::new(),
            SendPayload::Control(bytes) => bytes,
            SendPayload::Data(slice) => slice_of(&slice).to_vec(),
            SendPayload::Gathered(slices) => joined(&slices).to_vec(),
        };
        self.unsent_bytes += (HEADER_BYTES + bytes.len()) as u64;
        self.sent.push((header, bytes));
    }

    // ---- disks ------------------------------------------------------------------------------------------------------

    pub fn under_way(&self) -> usize {
        self.pending.len()
    }

    /// Payload of volumes that is being read: operations and bytes.
    pub fn volume_reads(&self) -> (usize, u64) {
        let reads = self.pending.iter().filter_map(|(_, job)| match job {
            MachineJob::Read {
                store: Store::Volume(..), length, how: ReadForm::Payload | ReadForm::Summed, ..
            } => Some(*length),
            _ => None,
        });
        reads.fold((0, 0), |(count, sum), length| (count + 1, sum + length))
    }

    /// One operation ends.
    pub fn complete(&mut self, now: Now, at: usize) {
        let (token, job) = self.pending.swap_remove(at);
        let done = self.perform(job);
        self.handle(now, Input::Io { token, result: Ok(done) });
    }

    /// All of them end, and what follows from that.
    pub fn complete_all(&mut self, now: Now) {
        while self.under_way() > 0 {
            self.complete(now, 0);
        }
    }

    fn perform(&mut self, job: MachineJob) -> IoDone {
        match job {
            MachineJob::Flush => IoDone::Done,
            MachineJob::FindHole { length } => IoDone::Run { length, is_hole: false },
            MachineJob::Zero(store, offset, length) => {
                self.write_bytes(store, offset, &vec![0; length as usize]);
                IoDone::Done
            }
            MachineJob::Write(store, mut offset, parts) => {
                for part in parts {
                    let bytes = bytes_of(part);
                    self.write_bytes(store, offset, &bytes);
                    offset += bytes.len() as u64;
                }
                IoDone::Done
            }
            MachineJob::Read { store, offset, length, how } => {
                let bytes = self.read_bytes(store, offset, length as usize);
                let zero = is_zero(&bytes);
                match how {
                    ReadForm::Meta => IoDone::Meta(bytes),
                    ReadForm::Hash => IoDone::Hash(hash(&bytes)),
                    ReadForm::Payload => IoDone::Payload { buf: Payload::handed_over(bytes, &self.meter), zero },
                    ReadForm::Summed => {
                        let crc = crc32c(&bytes);
                        IoDone::Summed { buf: Payload::handed_over(bytes, &self.meter), zero, crc }
                    }
                }
            }
        }
    }

    fn write_bytes(&mut self, store: Store, offset: u64, bytes: &[u8]) {
        let (content, from) = (self.stores.entry(store).or_default(), offset as usize);
        content.resize(content.len().max(from + bytes.len()), 0);
        content[from..from + bytes.len()].copy_from_slice(bytes);
    }

    /// Zeroes where nobody wrote.
    fn read_bytes(&self, store: Store, offset: u64, length: usize) -> Vec<u8> {
        let content = self.stores.get(&store).map_or(&[][..], Vec::as_slice);
        let [from, to] = [offset as usize, offset as usize + length].map(|at| at.min(content.len()));
        let mut bytes = content[from..to].to_vec();
        bytes.resize(length, 0);
        bytes
    }

    pub fn image(&self) -> Vec<Vec<u8>> {
        let volume = |index| Store::Volume(GROUP, VolumeId(index as u16));
        (0..self.shape.volumes).map(|v| self.read_bytes(volume(v), 0, self.shape.volume_bytes as usize)).collect()
    }
}
