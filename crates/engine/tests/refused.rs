//! A group that the host refuses to take up: its stores are asked for nothing, whatever is ordered, whoever connects, and its peer
//! hears of it.

use engine::identity::{Identity, Role};
use engine::state::{Broken, State};
use engine::wire::FrameKind;
use engine::*;

const GROUP: GroupId = GroupId(0);

fn node() -> Node {
    let group = GroupConfig {
        id: GROUP,
        tag: 1,
        peer: NodeId(1),
        starts_as: Role::Secondary,
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
    Node::new(NodeConfig {
        node: NodeId(0),
        groups: vec![group],
        link_timeout: limits::LINK_TIMEOUT_DEFAULT,
        memory_bytes: limits::MEMORY_BYTES_DEFAULT,
        syncs_at_once: limits::SYNCS_AT_ONCE,
    })
}

/// What comes of an input; none of it may be for a store or open an export.
#[track_caller]
fn handle(node: &mut Node, input: Input) -> Vec<Output> {
    node.handle(Now { mono: Mono(1), wall: Wall(1) }, input);
    let outputs: Vec<Output> = std::iter::from_fn(|| node.poll_output()).collect();
    for output in &outputs {
        let harmless = matches!(
            output,
            Output::Send { .. }
                | Output::Event { .. }
                | Output::CommandDone { .. }
                | Output::Reply { .. }
                | Output::Stopped
                | Output::Serve { open: false, .. }
        );
        assert!(harmless, "{output:?}");
    }
    outputs
}

#[test]
fn a_group_that_is_refused_touches_nothing_and_says_so() {
    let mut node = node();
    let recorded = Identity { role: Role::Primary, incarnation: Incarnation(7), ..Identity::default() };
    node.refuse(GROUP, "another disk".into(), Some(recorded));
    handle(&mut node, Input::Start { entropy: 1, boot: 1 });
    let status = node.status().remove(0);
    assert_eq!((status.state, status.role), (State::Failed(Broken::Device), Role::Primary));
    assert_eq!(status.reason, "another disk");

    let greeted =
        handle(&mut node, Input::LinkUp { peer: NodeId(1), link: LinkId(1), session: SessionId(1), apart: Vec::new() });
    let says_hello =
        |output: &Output| matches!(output, Output::Send { header, .. } if header.kind == FrameKind::GroupHello);
    assert!(greeted.iter().any(says_hello), "{greeted:?}");
    let orders = [
        Command::Sync { full: true },
        Command::Logging,
        Command::Demote,
        Command::Promote { force: true, entropy: 2 },
        Command::DropRollbackPoint { name: "any".into(), discard: false },
        Command::Verify(VerifyOrder {
            rate_bytes_per_s: None,
            sample_percent: 100,
            repair: false,
            entropy: 3,
            by_timer: false,
        }),
        Command::VerifyStop,
        Command::ForgetPeaks,
        Command::AssumeEqual,
    ];
    for command in orders {
        let reported = handle(&mut node, Input::Command { group: GROUP, id: CommandId(1), command: command.clone() });
        let refused = |output: &Output| matches!(output, Output::CommandDone { result: CommandResult::Refused(_), .. });
        assert!(reported.iter().any(refused), "{command:?}: {reported:?}");
    }
    let request = Request::Zero { offset: 0, length: 4096, no_hole: false, fua: false };
    handle(&mut node, Input::Request { group: GROUP, volume: VolumeId(0), id: RequestId(1), request });
    let ended = handle(&mut node, Input::Stop);
    assert!(ended.iter().any(|output| matches!(output, Output::Stopped)), "{ended:?}");
}
