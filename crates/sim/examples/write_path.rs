//! What the engine alone costs for a write that reaches both nodes: two engines hand their frames to each other, disks answer at
//! once, no byte is copied. To be counted by instructions:
//! `valgrind --tool=callgrind target/release/examples/write_path 11000`, less the same of 1000.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::identity::Role;
use engine::state::Mode;
use engine::*;

const GROUP: GroupId = GroupId(0);
const LINK: LinkId = LinkId(1);

struct PathSide {
    node: Node,
    frames: VecDeque<Input>,
    answered: u64,
}

fn config(id: u16, starts_as: Role) -> NodeConfig {
    let volume = VolumeConfig { size_bytes: 1 << 30, block_bytes: 4096, changed_outside: false, is_detached: false };
    let group = GroupConfig {
        id: GROUP,
        tag: 1,
        peer: NodeId(1 - id),
        starts_as,
        meets_peer_first: false,
        volumes: vec![volume],
        settings: Settings { mode: Mode::Sync, ..Settings::default() },
        journal_bytes: limits::JOURNAL_BYTES_DEFAULT,
        window_bytes: limits::WINDOW_BYTES_DEFAULT,
        activity: ActivityConfig::default(),
        history_bytes: limits::HISTORY_BYTES_DEFAULT,
        view_bytes: 0,
        queue_disk_bytes: 0,
        queue_durable: false,
        queue_file: 0,
    };
    NodeConfig {
        node: NodeId(id),
        groups: vec![group],
        link_timeout: limits::LINK_TIMEOUT_DEFAULT,
        memory_bytes: limits::MEMORY_BYTES_DEFAULT,
        syncs_at_once: limits::SYNCS_AT_ONCE,
    }
}

impl PathSide {
    fn handle(&mut self, now: Now, input: Input) {
        self.node.handle(now, input);
        let mut sent = 0;
        while let Some(output) = self.node.poll_output() {
            let done = match output {
                Output::Write { token, .. } | Output::Zero { token, .. } | Output::Flush { token, .. } => {
                    Some((token, IoDone::Done))
                }
                Output::Read { token, .. } => Some((token, IoDone::Payload { buf: buf(), zero: true })),
                Output::ReadSummed { token, .. } => Some((token, IoDone::Summed { buf: buf(), zero: true, crc: 0 })),
                Output::ReadMeta { token, length, .. } => Some((token, IoDone::Meta(vec![0; length as usize]))),
                Output::FindHole { token, length, .. } => Some((token, IoDone::Run { length, is_hole: true })),
                Output::ReadHash { token, .. } => Some((token, IoDone::Hash([0; 32]))),
                Output::Reply { .. } => {
                    self.answered += 1;
                    None
                }
                Output::Send { mut header, payload, .. } => {
                    let payload = match payload {
                        SendPayload::None => FramePayload::None,
                        SendPayload::Control(bytes) => {
                            header = header.sealed(&bytes);
                            FramePayload::Control(bytes)
                        }
                        SendPayload::Data(slice) => {
                            header.payload_bytes = slice.length;
                            FramePayload::Data(slice.buf)
                        }
                        SendPayload::Gathered(_) => unreachable!("nothing waits here"),
                    };
                    sent += wire::HEADER_BYTES as u64 + u64::from(header.payload_bytes);
                    let header = wire::FrameHeader::decode(&header.encode()).expect("ours");
                    self.frames.push_back(Input::Frame { link: LINK, header, payload });
                    None
                }
                _ => None,
            };
            if let Some((token, done)) = done {
                self.node.handle(now, Input::Io { token, result: Ok(done) });
            }
        }
        if sent > 0 {
            self.handle(now, Input::Sent { link: LINK, bytes: sent });
        }
    }
}

fn buf() -> Buf {
    Buf::new(Arc::new(()))
}

fn main() {
    let writes = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(20_000);
    run(writes);
    println!("{writes} writes of 4 KiB, each durable on both sides, all answered");
}

/// A first sync of two nodes, then so many writes, one after the other. Panics unless each is answered.
pub fn run(writes: u64) {
    let side = |id, role| PathSide { node: Node::new(config(id, role)), frames: VecDeque::new(), answered: 0 };
    let mut sides = [side(0, Role::Primary), side(1, Role::Secondary)];
    let mut now = Now { mono: Mono(1), wall: Wall(1) };
    for (id, side) in sides.iter_mut().enumerate() {
        side.handle(now, Input::Start { entropy: id as u64, boot: 1 });
        side.handle(
            now,
            Input::LinkUp { peer: NodeId(1 - id as u16), link: LINK, session: SessionId(9), apart: Vec::new() },
        );
    }
    let exchange = |sides: &mut [PathSide; 2], now: Now| {
        for at in [0, 1].into_iter().cycle() {
            let Some(frame) = sides[at].frames.pop_front() else {
                if sides[1 - at].frames.is_empty() {
                    return;
                }
                continue;
            };
            sides[1 - at].handle(now, frame);
        }
    };
    exchange(&mut sides, now);
    sides[0].handle(now, Input::Command { group: GROUP, id: CommandId(1), command: Command::Sync { full: true } });
    let step = |sides: &mut [PathSide; 2], now: &mut Now, ns: u64| {
        *now = Now { mono: Mono(now.mono.0 + ns), wall: Wall(now.wall.0 + ns) };
        sides.iter_mut().for_each(|side| side.handle(*now, Input::Tick));
        exchange(sides, *now);
    };
    let is_in_step = |sides: &[PathSide; 2]| sides[0].node.status()[0].state == engine::state::State::Replicating;
    for _ in 0..10_000 {
        if is_in_step(&sides) {
            break;
        }
        step(&mut sides, &mut now, 100_000_000);
    }
    assert!(is_in_step(&sides), "the first sync ends");
    for n in 0..writes {
        let offset = n.wrapping_mul(0x9e37_79b9) % (1 << 18) * 4096;
        let request = Request::Write { offset, length: 4096, buf: buf(), fua: false };
        sides[0].handle(now, Input::Request { group: GROUP, volume: VolumeId(0), id: RequestId(n), request });
        step(&mut sides, &mut now, 20_000);
    }
    (0..20).for_each(|_| step(&mut sides, &mut now, 100_000_000));
    assert_eq!(sides[0].answered, writes, "each write is answered");
}
