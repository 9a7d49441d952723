//! What both halves of a group use: what it is set to, its state, its volumes, its records, what the peer said of itself.

use alloc::string::String;

use crate::durability::saving::Saver;
use crate::group::start::StartStage;
use crate::ids::*;
use crate::records::activity::Activity;
use crate::records::bits::BitmapWriter;
use crate::records::record::SuperWriter;
use crate::secondary::answers::Answers;
use crate::secondary::rollback::Rollback;
use crate::shared::greeting::Greeting;
use crate::shared::slots::Slots;
use crate::shared::time::Mono;
use crate::shared::volumes::Volumes;
use crate::state::State;
use crate::{GroupConfig, Settings};

/// What the group is busy with besides serving.
#[derive(Debug)]
pub(crate) enum Phase {
    Starting(StartStage),
    Running,
    Demoting {
        id: CommandId,
        deadline: Mono,
    },
    Promoting {
        id: CommandId,
        force: bool,
        entropy: u64,
    },
    /// Back to the rollback point.
    RollingBack(Rollback),
    /// A new role is being recorded; nothing is accepted meanwhile.
    Recording,
    /// The peer gets until the deadline to have everything; what it lacks then stays marked.
    Stopping {
        deadline: Mono,
    },
    /// The dirty regions, then the clean stop are being recorded.
    StopRecording,
    Stopped,
}

/// Counters for people.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub blocked_ns: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub resynced_bytes: u64,
    pub compared_bytes: u64,
    pub shipped_bytes: u64,
    pub pulled_bytes: u64,
    pub syncs: u64,
}

pub(crate) struct Common {
    pub config: GroupConfig,
    pub node: NodeId,
    pub settings: Settings,
    pub phase: Phase,
    pub state: State,
    /// Why the state is what it is, for people.
    pub reason: String,
    pub sb: SuperWriter,
    pub volumes: Volumes,
    pub bitmap: BitmapWriter,
    pub activity: Activity,
    pub slots: Slots,
    /// Either half's: what is overwritten since the newest mark.
    pub saver: Saver,
    /// What the superblock says in memory is true: a start may have to say more before it stands.
    pub may_count: bool,
    /// It was said that the wall clock stands behind the stamps of writes.
    pub clock_is_behind: bool,
    pub clock_said_at: Option<Mono>,
    pub greeting: Greeting,
    /// What the peer asked for and has not got.
    pub answers: Answers,
    pub counters: Counters,
    /// The pool kept it from something just now; it waits in line for memory.
    pub wants_memory: bool,
    pub waits_for_memory: bool,
}

impl Common {
    pub fn new(node: NodeId, config: GroupConfig) -> Common {
        Common {
            node,
            settings: config.settings,
            phase: Phase::Starting(StartStage::Idle),
            state: State::Logging,
            reason: String::new(),
            sb: SuperWriter::default(),
            volumes: Volumes::new(&config.volumes),
            bitmap: BitmapWriter::new(config.volumes.iter().map(|v| v.size_bytes)),
            activity: Activity::new(config.activity),
            slots: Slots::new(config.id),
            saver: Saver::new(config.history_bytes),
            may_count: false,
            clock_is_behind: false,
            clock_said_at: None,
            greeting: Greeting::default(),
            answers: Answers::default(),
            counters: Counters::default(),
            wants_memory: false,
            waits_for_memory: false,
            config,
        }
    }
}
