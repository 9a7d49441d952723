//! A thousand groups on one node: they start so many at a time, in order, none behind a broken one for ever; and an idle
//! group costs little memory.

use std::collections::{BTreeSet, VecDeque};

use engine::identity::Role;
use engine::*;

const GROUPS: u32 = 1000;
/// What an idle group may cost.
const IDLE_GROUP_BYTES_MAX: u64 = 256 << 10;

struct FakeNode {
    node: Node,
    now: Now,
    /// Operations under way, in the order in which they were asked for.
    under_way: VecDeque<(GroupId, Token, IoDone)>,
    /// Groups whose disks never answer.
    broken: BTreeSet<u32>,
    ready: Vec<u32>,
    most_at_once: usize,
}

impl FakeNode {
    fn start(broken: impl IntoIterator<Item = u32>) -> FakeNode {
        let group = |number| GroupConfig {
            id: GroupId(number),
            tag: u64::from(number),
            peer: NodeId(1),
            starts_as: if number % 2 == 0 { Role::Primary } else { Role::Secondary },
            meets_peer_first: false,
            volumes: vec![VolumeConfig {
                size_bytes: 1 << 30,
                block_bytes: 4096,
                changed_outside: false,
                is_detached: false,
            }],
            settings: Settings::default(),
            journal_bytes: limits::JOURNAL_BYTES_DEFAULT,
            window_bytes: limits::WINDOW_BYTES_DEFAULT,
            activity: ActivityConfig::default(),
            history_bytes: limits::HISTORY_BYTES_DEFAULT,
            view_bytes: 0,
            queue_disk_bytes: 0,
            queue_durable: false,
            queue_file: 0,
        };
        let config = NodeConfig {
            node: NodeId(0),
            groups: (0..GROUPS).map(group).collect(),
            link_timeout: limits::LINK_TIMEOUT_DEFAULT,
            memory_bytes: limits::MEMORY_BYTES_DEFAULT,
            syncs_at_once: limits::SYNCS_AT_ONCE,
        };
        let mut fake = FakeNode {
            node: Node::new(config),
            now: Now { mono: Mono(1), wall: Wall(1) },
            under_way: VecDeque::new(),
            broken: broken.into_iter().collect(),
            ready: Vec::new(),
            most_at_once: 0,
        };
        fake.handle(Input::Start { entropy: 1, boot: 1 });
        fake
    }

    fn handle(&mut self, input: Input) {
        self.node.handle(self.now, input);
        while let Some(output) = self.node.poll_output() {
            let done = match output {
                Output::ReadMeta { token, store, length, .. } => {
                    (group_of(store), token, IoDone::Meta(vec![0; length as usize]))
                }
                Output::Write { token, store, .. }
                | Output::Zero { token, store, .. }
                | Output::Flush { token, store } => (group_of(store), token, IoDone::Done),
                Output::Event { group, event: Event::Ready { .. } } => {
                    self.ready.push(group.0);
                    continue;
                }
                _ => continue,
            };
            self.under_way.push_back(done);
        }
        let busy: BTreeSet<GroupId> = self.under_way.iter().map(|(group, ..)| *group).collect();
        self.most_at_once = self.most_at_once.max(busy.len());
    }

    /// The disks of sound groups answer until nothing more happens.
    fn run(&mut self) {
        while let Some(at) = self.under_way.iter().position(|(group, ..)| !self.broken.contains(&group.0)) {
            let (_, token, done) = self.under_way.remove(at).expect("found there");
            self.handle(Input::Io { token, result: Ok(done) });
        }
    }

    fn pass(&mut self, time: std::time::Duration) {
        self.now.mono = self.now.mono.plus(time);
        self.handle(Input::Tick);
        self.run();
    }
}

// proves: rule 24
#[test]
fn a_thousand_groups_start_so_many_at_a_time_and_in_order() {
    let mut fake = FakeNode::start([]);
    assert_eq!(fake.node.shared().starting, (limits::STARTS_AT_ONCE, GROUPS as usize - limits::STARTS_AT_ONCE));
    fake.run();
    assert_eq!(fake.most_at_once, limits::STARTS_AT_ONCE);
    assert!(fake.ready.len() == GROUPS as usize && fake.ready.is_sorted(), "all, in order");
    assert_eq!(fake.node.shared().starting, (0, 0));
}

// proves: rule 24
#[test]
fn nobody_waits_for_ever_behind_groups_whose_disks_never_answer() {
    // More broken ones than permits.
    let broken = 0..limits::STARTS_AT_ONCE as u32 + 3;
    let mut fake = FakeNode::start(broken.clone());
    fake.run();
    assert!(fake.ready.is_empty());
    fake.pass(limits::START_PERMIT_LIMIT);
    assert_eq!(fake.ready.len(), GROUPS as usize - broken.len());
    assert_eq!(fake.node.shared().starting, (broken.len(), 0), "the broken ones still wait for their disks");
    // Their disks answer at last.
    fake.broken.clear();
    fake.run();
    assert_eq!(fake.ready.len(), GROUPS as usize);
}

#[test]
fn groups_stopped_before_their_start_stay_stopped() {
    let mut fake = FakeNode::start(0..GROUPS);
    fake.handle(Input::Stop);
    fake.broken.clear();
    fake.run();
    fake.pass(2 * limits::START_PERMIT_LIMIT);
    assert!(fake.ready.is_empty());
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

/// Resident memory of this process; `None` where the kernel does not tell.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    text.split(' ').nth(1)?.parse::<u64>().ok().map(|pages| pages * 4096)
}

// proves: rule 24
#[test]
fn an_idle_group_costs_little_memory() {
    let Some(before) = resident_bytes() else {
        return println!("skipped: this kernel does not tell a process's memory");
    };
    let mut fake = FakeNode::start([]);
    fake.run();
    let each = resident_bytes().map_or(0, |after| after.saturating_sub(before) / u64::from(GROUPS));
    println!("an idle group of one volume of 1 GiB: {each} bytes");
    assert!(each < IDLE_GROUP_BYTES_MAX, "{each} bytes for each idle group");
}
