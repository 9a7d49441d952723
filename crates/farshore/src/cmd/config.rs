//! `config check` and `config example`.

use settings::{Config, ConfigProblem, GroupOverrides, LinkOverrides, NodeName, Problems, example, host_name};

use crate::args::CheckArgs;
use crate::daemon::{detached, devices, names};
use crate::outcome::{CommandFailure, CommandOutcome, Exit, print, warn};

pub fn check(args: &CheckArgs) -> CommandOutcome {
    super::inputs::forbid_core_dumps()?;
    let config = Config::load(&args.file()).map_err(as_failure)?;
    let node = match &args.node {
        Some(name) => Some(config.local_node(Some(name)).map_err(as_failure)?),
        None => config.local_node(None).ok(),
    };
    let mut text = format!("{}: sound\n", args.file().display());
    let groups = config.groups.len();
    text += &format!("  {} nodes, {groups} {}\n", config.nodes.len(), if groups == 1 { "group" } else { "groups" });
    let mut warnings = config.warnings();
    match &node {
        Some(node) => {
            let (mut problems, silent) = config.check_local(node, &detached::of_machine(&config, node));
            problems.extend(names::refused(&config, node));
            problems.extend(devices::refused(&config, node, &silent));
            problems.extend(overrides_refused(&config, node));
            if !problems.is_empty() {
                return Err(as_failure(Problems::new(&config.file, problems)));
            }
            let proof = config.proof(node).map_err(as_failure)?;
            warnings.extend(proof.warnings());
            let what = proof.word();
            text += &format!("  devices, directories and {what} of {node} were looked at on this machine\n");
        }
        None => {
            let host = host_name();
            text += &format!(
                "  this host ({host}) is none of its nodes, so no device, secret or certificate was looked at; --node NAME does\n"
            );
        }
    }
    text.extend(config.notes().iter().map(|note| format!("  note: {note}\n")));
    print(&text)?;
    warnings.iter().for_each(warn);
    Ok(if warnings.is_empty() { Exit::Done } else { Exit::Warning }.into())
}

/// What is kept of `set` and `link set`, as a start would read it.
fn overrides_refused(config: &Config, node: &NodeName) -> Vec<ConfigProblem> {
    let Some(here) = config.node(node) else { return Vec::new() };
    let groups = GroupOverrides::load(&here.overrides_file()).err();
    let link = LinkOverrides::load(&here.link_overrides_file()).err();
    let as_failure = |problems: Problems| config.problem(&format!("nodes.{node}.state"), problems.to_string());
    groups.into_iter().chain(link).map(as_failure).collect()
}

pub fn example() -> CommandOutcome {
    print(example::EXAMPLE)?;
    Ok(Exit::Done.into())
}

/// Every problem on its own line, and how many.
fn as_failure(problems: Problems) -> CommandFailure {
    let count = match problems.list.len() {
        1 => "1 problem".to_owned(),
        many => format!("{many} problems"),
    };
    CommandFailure::from(format!("{count} in the configuration\n{problems}"))
}
