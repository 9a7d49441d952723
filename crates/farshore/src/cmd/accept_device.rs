//! `accept-device`: the operator's word for a device that is not the one recorded. Works while no daemon runs; the next start makes it so.

use settings::Config;

use crate::args::AcceptDeviceArgs;
use crate::daemon::devices::{DeviceContent, accept};
use crate::outcome::{CommandFailure, CommandOutcome, Exit, print};

pub fn run(args: &AcceptDeviceArgs) -> CommandOutcome {
    let content = match (args.content_is_good, args.rebuild) {
        (true, false) => DeviceContent::Good,
        (false, true) => DeviceContent::Rebuild,
        _ => {
            return Err(CommandFailure::usage(
                "say what becomes of the group: --rebuild (this node is rebuilt from its peer) or --content-is-good (what is on the \
                 new device counts)",
            ));
        }
    };
    let config = Config::load(&args.config)?;
    let node = config.local_node(args.node.as_deref())?;
    let group = config.groups_of(&node).find(|group| group.name.as_str() == args.group);
    let group = group.ok_or_else(|| {
        let names: Vec<_> = config.groups_of(&node).map(|group| group.name.as_str()).collect();
        format!("node {node} has no group {:?}; its groups are {}", args.group, names.join(", "))
    })?;
    let text = accept(&config, &node, group, &args.volumes, content)?;
    print(&format!("{text}\n"))?;
    Ok(Exit::Done.into())
}
