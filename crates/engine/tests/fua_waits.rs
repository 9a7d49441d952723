//! The scenario: the primary flushes by itself every few seconds, and from the moment that flush *began* the writes it covers
//! no longer counted as unflushed. A FUA write that completed meanwhile was answered without waiting for it. The power
//! failed, the flush had not ended, and an older acknowledged write was gone under an acknowledged FUA.

use std::sync::Arc;

use engine::identity::Role;
use engine::*;

const GROUP: GroupId = GroupId(0);
const VOLUME: VolumeId = VolumeId(0);

struct TestPrimary {
    node: Node,
    now: Now,
    flushes: Vec<Token>,
    replies: Vec<RequestId>,
}

impl TestPrimary {
    fn start() -> TestPrimary {
        let group = GroupConfig {
            id: GROUP,
            tag: 1,
            peer: NodeId(1),
            starts_as: Role::Primary,
            meets_peer_first: false,
            volumes: vec![VolumeConfig {
                size_bytes: 1 << 20,
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
        };
        let config = NodeConfig {
            node: NodeId(0),
            groups: vec![group],
            link_timeout: limits::LINK_TIMEOUT_DEFAULT,
            memory_bytes: limits::MEMORY_BYTES_DEFAULT,
            syncs_at_once: limits::SYNCS_AT_ONCE,
        };
        let now = Now { mono: Mono(1), wall: Wall(1) };
        let mut primary = TestPrimary { node: Node::new(config), now, flushes: Vec::new(), replies: Vec::new() };
        primary.handle(Input::Start { entropy: 1, boot: 1 });
        // A start flushes what an earlier run may have left: its files, then its volumes.
        while !primary.flushes.is_empty() {
            primary.flush_ends();
        }
        primary
    }

    /// Everything but a flush is done at once.
    fn handle(&mut self, input: Input) {
        self.node.handle(self.now, input);
        while let Some(output) = self.node.poll_output() {
            let (token, done) = match output {
                Output::ReadMeta { token, length, .. } => (token, IoDone::Meta(vec![0; length as usize])),
                Output::Write { token, .. } | Output::Zero { token, .. } => (token, IoDone::Done),
                Output::Flush { token, .. } => {
                    self.flushes.push(token);
                    continue;
                }
                Output::Reply { id, result } => {
                    assert!(result.is_ok());
                    self.replies.push(id);
                    continue;
                }
                _ => continue,
            };
            self.node.handle(self.now, Input::Io { token, result: Ok(done) });
        }
    }

    fn request(&mut self, id: u64, request: Request) {
        self.handle(Input::Request { group: GROUP, volume: VOLUME, id: RequestId(id), request });
    }

    fn write(&mut self, id: u64, offset: u64, fua: bool) {
        let buf = Buf::new(Arc::new(()));
        self.request(id, Request::Write { offset, length: 4096, buf, fua });
    }

    fn flush_ends(&mut self) {
        let token = self.flushes.remove(0);
        self.handle(Input::Io { token, result: Ok(IoDone::Done) });
    }
}

// proves: P4
#[test]
fn fua_waits_for_what_a_flush_under_way_covers() {
    let mut primary = TestPrimary::start();
    primary.write(1, 0, false);
    assert_eq!(primary.replies, [RequestId(1)]);
    primary.request(2, Request::Flush);
    primary.write(3, 8192, true);
    assert_eq!(primary.replies, [RequestId(1)], "write 1 is not durable yet, so neither may FUA be answered");
    primary.flush_ends();
    if !primary.flushes.is_empty() {
        primary.flush_ends();
    }
    assert_eq!(primary.replies, [RequestId(1), RequestId(2), RequestId(3)]);
}

#[test]
fn fua_with_nothing_unflushed_needs_no_flush() {
    let mut primary = TestPrimary::start();
    primary.write(1, 0, true);
    assert_eq!(primary.replies, [RequestId(1)]);
    assert!(primary.flushes.is_empty());
}
