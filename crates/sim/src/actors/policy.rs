//! What the daemons of both nodes make of `after_forced_failover`: each orders at its own node what the engine there says, as an operator
//! would.

use engine::status::PolicyStep;
use engine::{Command, GroupId};

use crate::world::World;

/// Both daemons look at a group, one after the other. `may_keep`: not only to yield.
pub fn follow_policy(world: &mut World, group: GroupId, may_keep: bool) {
    for node in world.cluster.pair(group) {
        let step = world.cluster[node].status_of(group).and_then(|status| status.by_policy);
        let command = match step {
            Some(PolicyStep::Keep { .. }) if !may_keep => continue,
            Some(PolicyStep::Keep { over }) => Command::Keep { over, discard: false, by_policy: true },
            Some(PolicyStep::Yield { to }) => Command::Yield { to, by_policy: true },
            None => continue,
        };
        world.command(node, group, command);
    }
}
