//! Nodes of two builds meet: what the other can do besides is ignored, what it cannot do without is refused in a sentence,
//! and another protocol version is distinguished from damage.
// proves: rule 23

use engine::identity::{Identity, Role};
use engine::wire::{FrameError, FrameHeader, FrameKind, GroupHello, HEADER_BYTES, VERSION};
use engine::*;

const GROUP: GroupId = GroupId(0);
const LINK: LinkId = LinkId(1);
const SESSION: SessionId = SessionId(9);
const VOLUME_BYTES: u64 = 1 << 20;

/// Starts a node over blank disks and lets it meet a peer that says this; what it noted and whether it began a sync.
fn meets(role: Role, hello: &GroupHello) -> (Vec<String>, bool) {
    let group = GroupConfig {
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
        queue_disk_bytes: 0,
    };
    let config = NodeConfig {
        node: NodeId(0),
        groups: vec![group],
        link_timeout: limits::LINK_TIMEOUT_DEFAULT,
        memory_bytes: limits::MEMORY_BYTES_DEFAULT,
        syncs_at_once: limits::SYNCS_AT_ONCE,
    };
    let mut node = Node::new(config);
    let control = hello.encode();
    let header = FrameHeader::new(FrameKind::GroupHello, SESSION, GROUP).sealed(&control);
    let mut seen = (Vec::new(), false);
    for input in [
        Input::Start { entropy: 1, boot: 1 },
        Input::LinkUp { peer: NodeId(1), link: LINK, session: SESSION, apart: Vec::new() },
        Input::Frame { link: LINK, header, payload: FramePayload::Control(control) },
    ] {
        handle(&mut node, input, &mut seen);
    }
    seen
}

/// Every operation of the host is done at once; what is read is blank.
fn handle(node: &mut Node, input: Input, seen: &mut (Vec<String>, bool)) {
    let now = Now { mono: Mono(1), wall: Wall(1) };
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
            _ => continue,
        };
        node.handle(now, Input::Io { token, result: Ok(done) });
    }
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
