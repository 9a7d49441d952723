//! Nodes of two builds meet: what the other can do besides is ignored, what it cannot do without is refused in a sentence,
//! and another protocol version is distinguished from damage.
// proves: rule 23

use std::collections::BTreeMap;

use engine::identity::{Identity, Role};
use engine::wire::{FrameError, FrameHeader, FrameKind, GroupHello, HEADER_BYTES, VERSION};
use engine::*;

const GROUP: GroupId = GroupId(0);
const LINK: LinkId = LinkId(1);
const SESSION: SessionId = SessionId(9);
const VOLUME_BYTES: u64 = 1 << 20;

fn group(role: Role) -> GroupConfig {
    GroupConfig {
        id: GROUP,
        tag: 1,
        peer: NodeId(1),
        starts_as: role,
        meets_peer_first: false,
        volumes: vec![VolumeConfig {
            size_bytes: VOLUME_BYTES,
            block_bytes: 4096,
            changed_outside: false,
            is_detached: false,
        }],
        settings: Settings::default(),
        journal_bytes: limits::JOURNAL_BYTES_MIN,
        window_bytes: limits::WINDOW_BYTES_MIN,
        activity: ActivityConfig::default(),
        history_bytes: limits::HISTORY_BYTES_MIN,
        view_bytes: 0,
        queue_disk_bytes: 0,
        queue_durable: false,
        queue_file: 0,
    }
}

fn node(role: Role) -> Node {
    Node::new(NodeConfig {
        node: NodeId(0),
        groups: vec![group(role)],
        link_timeout: limits::LINK_TIMEOUT_DEFAULT,
        memory_bytes: limits::MEMORY_BYTES_DEFAULT,
        syncs_at_once: limits::SYNCS_AT_ONCE,
    })
}

const CONNECTS: fn() -> Input = || Input::LinkUp { peer: NodeId(1), link: LINK, session: SESSION, apart: Vec::new() };

fn says(hello: &GroupHello) -> Input {
    let control = hello.encode();
    let header = FrameHeader::new(FrameKind::GroupHello, SESSION, GROUP).sealed(&control);
    Input::Frame { link: LINK, header, payload: FramePayload::Control(control) }
}

/// Starts a node over blank disks and lets it meet a peer that says this; what it noted and whether it began a sync.
fn meets(role: Role, hello: &GroupHello) -> (Vec<String>, bool) {
    let mut node = node(role);
    let mut seen = (Vec::new(), false);
    for input in [Input::Start { entropy: 1, boot: 1 }, CONNECTS(), says(hello)] {
        handle(&mut node, input, &mut seen);
    }
    seen
}

/// Every operation of the host is done at once; what is read is blank.
fn handle(node: &mut Node, input: Input, seen: &mut (Vec<String>, bool)) {
    handle_at(node, 0, input, seen);
}

/// The same after so many seconds. True: an export opened.
fn handle_at(node: &mut Node, seconds: u64, input: Input, seen: &mut (Vec<String>, bool)) -> bool {
    let mut opens = false;
    let now = Now { mono: Mono(1 + seconds * 1_000_000_000), wall: Wall(1) };
    node.handle(now, input);
    while let Some(output) = node.poll_output() {
        let (token, done) = match output {
            Output::ReadMeta { token, length, .. } => (token, IoDone::Meta(vec![0; length as usize])),
            Output::Write { token, .. } | Output::Zero { token, .. } | Output::Flush { token, .. } => {
                (token, IoDone::Done)
            }
            Output::Event { event: Event::Note(note), .. } => {
                seen.0.push(note);
                continue;
            }
            Output::Event { event: Event::Decided { .. }, .. } => {
                seen.1 = true;
                continue;
            }
            Output::Serve { open: true, .. } => {
                opens = true;
                continue;
            }
            _ => continue,
        };
        node.handle(now, Input::Io { token, result: Ok(done) });
    }
    opens
}

/// A peer of the other role, with these feature bits.
fn hello(role: Role, features: u64, required: u64) -> GroupHello {
    let identity = Identity { role, ..Identity::default() };
    GroupHello { identity, features, required, volume_bytes: vec![VOLUME_BYTES], ..GroupHello::default() }
}

#[test]
fn what_a_peer_can_do_besides_is_ignored() {
    let (notes, decided) = meets(Role::Primary, &hello(Role::Secondary, u64::MAX, 0));
    assert!(decided && notes.iter().all(|note| !note.contains("newer farshore")), "{notes:?}");
}

#[test]
fn what_a_peer_cannot_do_without_is_refused_in_a_sentence_on_both_roles() {
    for (role, theirs) in [(Role::Primary, Role::Secondary), (Role::Secondary, Role::Primary)] {
        let (notes, decided) = meets(role, &hello(theirs, 0, 0x20));
        let sentence = "the peer runs a newer farshore and needs features this one does not have (bits 0x20); upgrade";
        assert!(!decided && notes.iter().any(|note| note.contains(sentence)), "{role:?}: {notes:?}");
    }
}

// proves: P6
/// A group leaves its node and comes again. Its peer, which was upgraded meanwhile, serves: what it says fits nothing here but that, and the
/// export opened beside it three seconds later.
#[test]
fn a_primary_that_comes_again_is_not_opened_beside_one_that_runs_a_newer_farshore() {
    for (required, theirs, may_open) in
        [(0x20, Role::Primary, false), (0x20, Role::Secondary, true), (0, Role::Primary, false)]
    {
        let (mut node, mut seen) = (node(Role::Primary), (Vec::new(), false));
        handle(&mut node, Input::Start { entropy: 1, boot: 1 }, &mut seen);
        handle(&mut node, CONNECTS(), &mut seen);
        handle(&mut node, Input::Remove { group: GROUP }, &mut seen);
        handle(&mut node, Input::LinkDown { link: LINK, reason: String::new() }, &mut seen);
        let comes = Input::Add { config: Box::new(group(Role::Primary)), entropy: 2, refused: None };
        let mut opens = handle_at(&mut node, 0, comes, &mut seen);
        opens |= handle_at(&mut node, 0, CONNECTS(), &mut seen);
        let mut peer = hello(theirs, 0, required);
        peer.identity.generation = Generation { number: 9, tag: 9 };
        opens |= handle_at(&mut node, 0, says(&peer), &mut seen);
        for seconds in 1..20 {
            opens |= handle_at(&mut node, seconds, Input::Heard { link: LINK }, &mut seen);
            opens |= handle_at(&mut node, seconds, Input::Tick, &mut seen);
        }
        let reason = node.status().remove(0).reason;
        assert_eq!(opens, may_open, "{required:#x} {theirs:?}: {reason}");
        assert!(may_open || reason.contains("stays closed"), "{required:#x} {theirs:?}: {reason}");
    }
}

/// What a node's records hold: the next start of a node reads it back.
#[derive(Default)]
struct Records(BTreeMap<Store, Vec<u8>>);

impl Records {
    fn at(&mut self, store: Store, offset: u64, length: usize) -> &mut [u8] {
        let (from, end) = (offset as usize, offset as usize + length);
        let file = self.0.entry(store).or_default();
        file.resize(file.len().max(end), 0);
        &mut file[from..end]
    }

    /// Every operation is done at once. True: an export opened.
    fn handle(&mut self, node: &mut Node, seconds: u64, input: Input) -> bool {
        let mut opens = false;
        let now = Now { mono: Mono(1 + seconds * 1_000_000_000), wall: Wall(1) };
        node.handle(now, input);
        while let Some(output) = node.poll_output() {
            let (token, done) = match output {
                Output::ReadMeta { token, store, offset, length } => {
                    (token, IoDone::Meta(self.at(store, offset, length as usize).to_vec()))
                }
                Output::Write { token, store, mut offset, parts, .. } => {
                    for part in parts {
                        let WriteBytes::Meta(bytes) = part else { continue };
                        self.at(store, offset, bytes.len()).copy_from_slice(&bytes);
                        offset += bytes.len() as u64;
                    }
                    (token, IoDone::Done)
                }
                Output::Zero { token, .. } | Output::Flush { token, .. } => (token, IoDone::Done),
                Output::Serve { open: true, .. } => {
                    opens = true;
                    continue;
                }
                _ => continue,
            };
            node.handle(now, Input::Io { token, result: Ok(done) });
        }
        opens
    }
}

// proves: P6, rule 24
/// The machine of a primary loses its power. Its peer was promoted meanwhile, and runs a newer farshore: what it says fits nothing here but that
/// it serves, and after `start_alone` the export opened beside it.
#[test]
fn a_primary_that_lost_its_power_is_not_opened_beside_one_that_runs_a_newer_farshore() {
    for (required, theirs, may_open) in
        [(0x20, Role::Primary, false), (0x20, Role::Secondary, true), (0, Role::Primary, false)]
    {
        let mut records = Records::default();
        assert!(records.handle(&mut node(Role::Primary), 0, Input::Start { entropy: 1, boot: 1 }), "its first run");
        let mut node = node(Role::Primary);
        let mut opens = records.handle(&mut node, 0, Input::Start { entropy: 2, boot: 2 });
        opens |= records.handle(&mut node, 0, CONNECTS());
        let mut peer = hello(theirs, 0, required);
        peer.identity.generation = Generation { number: 9, tag: 9 };
        opens |= records.handle(&mut node, 0, says(&peer));
        for seconds in 1..200 {
            opens |= records.handle(&mut node, seconds, Input::Heard { link: LINK });
            opens |= records.handle(&mut node, seconds, Input::Tick);
        }
        let reason = node.status().remove(0).reason;
        assert_eq!(opens, may_open, "{required:#x} {theirs:?}: {reason}");
    }
}

/// A header of another version is distinguished from a damaged one by its checksum, and said with both numbers.
#[test]
fn another_protocol_version_is_named() {
    for version in [VERSION as u8 + 1, VERSION as u8 - 1] {
        let mut bytes = FrameHeader::new(FrameKind::Tick, SESSION, GROUP).encode();
        bytes[4] = version;
        assert_eq!(FrameHeader::decode(&bytes), Err(FrameError::HeaderDamaged), "the checksum covers the version");
        let crc = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]);
        bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        let error = FrameHeader::decode(&bytes).expect_err("another version");
        assert_eq!(error, FrameError::VersionUnknown(version));
        let said = error.to_string();
        assert!(said.contains(&version.to_string()) && said.contains(&(VERSION as u8).to_string()), "{said}");
    }
}
