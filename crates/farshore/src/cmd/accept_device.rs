//! `accept-device`: the operator's word for a device that is not the one recorded. Works while no daemon has the group open; the next opening makes it so.

use settings::Config;

use super::answers::Answers;
use crate::api::{ErrorCode, Reply};
use crate::args::group::AcceptDeviceArgs;
use crate::daemon::devices::{DeviceContent, accept};
use crate::outcome::{CommandFailure, CommandOutcome};

pub fn run(args: &AcceptDeviceArgs) -> CommandOutcome {
    let mut answers = Answers::new("accept-device", args.json);
    answers.add(&args.group, accepted(args))?;
    answers.finish()
}

/// No daemon is asked: there is no operation that could be waited for.
fn accepted(args: &AcceptDeviceArgs) -> Result<Reply, CommandFailure> {
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
        let message = format!("node {node} has no group {:?}; its groups are {}", args.group, names.join(", "));
        CommandFailure::refused(message, &ErrorCode::UnknownGroup, None)
    })?;
    let is_volume = |wanted: &&String| group.volumes.iter().any(|volume| volume.name.as_str() == **wanted);
    if let Some(unknown) = args.volumes.iter().find(|wanted| !is_volume(wanted)) {
        let names: Vec<_> = group.volumes.iter().map(|volume| volume.name.as_str()).collect();
        let message = format!("group {} has no volume {unknown:?}; its volumes are {}", group.name, names.join(", "));
        return Err(CommandFailure::refused(message, &ErrorCode::BadValue, None));
    }
    Ok(accept(&config, &node, group, &args.volumes, content)?)
}
