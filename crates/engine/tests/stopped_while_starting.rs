//! The scenario: a node was stopped while one of its groups was still storing its bits, and another one needed a moment to
//! come to rest. The bits of the first were stored meanwhile: it went on with its start and opened its exports, and the
//! node, which waited for its groups to come to rest, never stopped.

use std::collections::VecDeque;

use engine::identity::Role;
use engine::*;

const SERVES: GroupId = GroupId(0);
const STARTS: GroupId = GroupId(1);

struct Operation {
    store: Store,
    is_write: bool,
    token: Token,
    done: IoDone,
}

/// Two primaries on disks that do what the scenario says.
struct FakePrimaries {
    node: Node,
    now: Now,
    under_way: VecDeque<Operation>,
    /// Exports that were opened, and closed.
    served: Vec<(GroupId, bool)>,
    stopped: bool,
}

impl FakePrimaries {
    fn start() -> FakePrimaries {
        let group = |id: GroupId| GroupConfig {
            id,
            tag: u64::from(id.0),
            peer: NodeId(1),
            starts_as: Role::Primary,
            meets_peer_first: false,
            volumes: vec![VolumeConfig {
                size_bytes: 1 << 30,
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
            groups: [SERVES, STARTS].map(group).to_vec(),
            link_timeout: limits::LINK_TIMEOUT_DEFAULT,
            memory_bytes: limits::MEMORY_BYTES_DEFAULT,
            syncs_at_once: limits::SYNCS_AT_ONCE,
        };
        let now = Now { mono: Mono(1), wall: Wall(1) };
        let (node, under_way) = (Node::new(config), VecDeque::new());
        let mut fake = FakePrimaries { node, now, under_way, served: Vec::new(), stopped: false };
        fake.handle(Input::Start { entropy: 1, boot: 1 });
        fake
    }

    fn handle(&mut self, input: Input) {
        self.node.handle(self.now, input);
        while let Some(output) = self.node.poll_output() {
            let (store, is_write, token, done) = match output {
                Output::ReadMeta { token, store, length, .. } => {
                    (store, false, token, IoDone::Meta(vec![0; length as usize]))
                }
                Output::Write { token, store, .. } => (store, true, token, IoDone::Done),
                Output::Zero { token, store, .. } | Output::Flush { token, store } => {
                    (store, false, token, IoDone::Done)
                }
                Output::Serve { group, open } => {
                    self.served.push((group, open));
                    continue;
                }
                Output::Stopped => {
                    self.stopped = true;
                    continue;
                }
                _ => continue,
            };
            self.under_way.push_back(Operation { store, is_write, token, done });
        }
    }

    /// The chosen operations end, until there are no more of them.
    fn run(&mut self, chosen: impl Fn(&Operation) -> bool) {
        while let Some(at) = self.under_way.iter().position(&chosen) {
            let Operation { token, done, .. } = self.under_way.remove(at).expect("found there");
            self.handle(Input::Io { token, result: Ok(done) });
        }
    }
}

fn group_of(store: Store) -> GroupId {
    match store {
        Store::Volume(group, _)
        | Store::Journal(group)
        | Store::Superblock(group)
        | Store::Bitmap(group)
        | Store::Activity(group)
        | Store::Marks(group)
        | Store::Undo(group)
        | Store::History(group)
        | Store::Queue(group)
        | Store::Delta(group) => group,
    }
}

fn stores_bits(operation: &Operation) -> bool {
    operation.is_write && operation.store == Store::Bitmap(STARTS)
}

/// The disk of the group that starts is the quicker one.
#[test]
fn a_group_that_was_stopped_while_it_stored_its_bits_stays_stopped() {
    let mut fake = FakePrimaries::start();
    fake.run(|operation| group_of(operation.store) == SERVES);
    fake.run(|operation| !stores_bits(operation));
    assert!(fake.under_way.iter().any(stores_bits));
    assert_eq!(fake.served, [(SERVES, true)]);
    fake.handle(Input::Stop);
    fake.run(|operation| group_of(operation.store) == STARTS);
    assert!(!fake.stopped, "the other group is not at rest yet");
    fake.run(|_| true);
    assert_eq!(fake.served, [(SERVES, true), (SERVES, false)]);
    assert!(fake.stopped);
}
