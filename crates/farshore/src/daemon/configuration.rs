//! What a changed configuration file means for a daemon that runs: which groups come, leave, start anew or take up settings, and what
//! needs a restart of the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Seek, SeekFrom};

use engine::identity::Role;
use settings::keys::SettingKey;
use settings::{Config, ConfiguredGroup, ConfiguredVolume, GroupOverrides, Keyed, LinkOverrides, NodeName, Problems};
use units::size::show_exact;

use super::{detached, devices, names};

use crate::api::{CONFIG_PLAN_SCHEMA, ConfigAction, ConfigPlan, ConfigStep};

/// What is compared: the configuration that holds, and the one in the file.
pub(super) struct ConfigChange<'a> {
    pub node: &'a NodeName,
    pub now: &'a Config,
    pub wanted: &'a Config,
    pub overrides: &'a GroupOverrides,
    pub link_overrides: &'a LinkOverrides,
}

/// What runs.
#[derive(Default)]
pub(super) struct RunningGroups {
    /// By name, with the sizes of their devices as they were opened.
    pub groups: BTreeMap<String, Vec<u64>>,
    pub roles: BTreeMap<String, Role>,
    /// Clients attached, by export.
    pub clients: BTreeMap<String, u64>,
    /// Why groups cannot go on with other volumes now.
    pub obstacles: BTreeMap<String, String>,
    /// What groups have on record that is to be other volumes, in words.
    pub on_record: BTreeMap<String, String>,
}

/// Reads the file again, and checks it as a start of the daemon does.
///
/// # Errors
/// All problems, one a line.
pub(super) fn read(now: &Config, node: &NodeName) -> Result<Config, String> {
    let wanted = Config::load(&now.file).map_err(|problems| problems.to_string())?;
    if wanted.node(node).is_none() {
        return Err(format!("{}: node {node}, which this daemon is, is not in the file any more", now.file.display()));
    }
    let detached = detached::of_machine(&wanted, node);
    let silent = wanted.check_to_serve(node, &detached).map_err(|problems| problems.to_string())?;
    let mut problems = names::refused(&wanted, node);
    problems.extend(devices::refused(&wanted, node, &silent));
    problems.extend(wanted.groups_of(node).filter_map(|group| {
        let before = now.group(group.name.as_str())?.layout.journal_bytes;
        let at = format!("groups.{}.journal", group.name);
        let text = format!("journal is {} and stays so: the daemon refuses a file of another size", show_exact(before));
        (before != group.layout.journal_bytes).then(|| wanted.problem(&at, text))
    }));
    match problems.is_empty() {
        true => Ok(wanted),
        false => Err(Problems::new(&wanted.file, problems).to_string()),
    }
}

/// The bytes that each volume's device of `node` has now; of one that cannot be opened nothing is known.
pub(super) fn device_sizes(config: &Config, node: &NodeName) -> BTreeMap<(String, String), u64> {
    let groups = config.groups_of(node);
    let volumes = groups.flat_map(|group| group.volumes.iter().map(move |volume| (group, volume)));
    let sized = volumes.filter_map(|(group, volume)| {
        let bytes = fs::File::open(volume.device(node)).and_then(|mut file| file.seek(SeekFrom::End(0))).ok()?;
        Some(((group.name.to_string(), volume.name.to_string()), bytes))
    });
    sized.collect()
}

impl ConfigChange<'_> {
    /// Steps in the order in which they are done.
    pub fn plan(&self, running: &RunningGroups, sizes: &BTreeMap<(String, String), u64>) -> ConfigPlan {
        let mut steps: Vec<ConfigStep> = self.leaving(running).collect();
        steps.extend(self.link());
        steps.extend(self.wanted.groups_of(self.node).filter_map(|group| self.step(group, running, sizes)));
        for step in &mut steps {
            let Some(name) = &step.group else { continue };
            let of_group = running.clients.iter().filter(|(export, _)| is_of(export, name));
            let (staying, leaving): (Vec<_>, Vec<_>) =
                of_group.partition(|(export, _)| self.keeps_export(name, export));
            let sum = |clients: Vec<(&String, &u64)>| clients.into_iter().map(|(_, count)| *count).sum::<u64>();
            let (staying, leaving) = (sum(staying), sum(leaving));
            match step.action {
                ConfigAction::Restart if self.holds_clients(name) => {
                    (step.clients, step.clients_held) = (leaving, staying);
                }
                ConfigAction::Remove | ConfigAction::Restart => step.clients = staying + leaving,
                _ => {}
            }
            if let Some(why) = running.obstacles.get(name) {
                step.text += &format!("; not now: {why}");
            }
        }
        ConfigPlan {
            schema: CONFIG_PLAN_SCHEMA.to_owned(),
            node: self.node.to_string(),
            file: self.wanted.file.display().to_string(),
            steps,
            needs_restart: self.needs_restart(),
        }
    }

    fn leaving<'a>(&'a self, running: &'a RunningGroups) -> impl Iterator<Item = ConfigStep> + 'a {
        let stays = |name: &str| self.wanted.groups_of(self.node).any(|group| group.name.as_str() == name);
        let state = self.now.node(self.node).map(|here| here.state.display().to_string()).unwrap_or_default();
        running.groups.keys().filter(move |name| !stays(name)).map(move |name| {
            let text = format!("its export closes, and it stops; what is kept of it stays in {state}/groups/{name}, its disk queue excepted");
            step(ConfigAction::Remove, Some(name), text)
        })
    }

    fn link(&self) -> Option<ConfigStep> {
        let effective = |config: &Config| self.link_overrides.effective(&config.link.settings);
        let changes = changed(&effective(self.now), &effective(self.wanted));
        (!changes.is_empty()).then(|| step(ConfigAction::Link, None, changes.join(", ")))
    }

    fn step(
        &self,
        group: &ConfiguredGroup,
        running: &RunningGroups,
        sizes: &BTreeMap<(String, String), u64>,
    ) -> Option<ConfigStep> {
        let name = group.name.as_str();
        let is_sized = |volume: &ConfiguredVolume| sizes.contains_key(&(name.to_owned(), volume.name.to_string()));
        let (Some(before), Some(opened)) = (self.now.group(name), running.groups.get(name)) else {
            let role = if group.primary == *self.node { "primary" } else { "secondary" };
            let missing = group.volumes.iter().filter(|volume| !is_sized(volume)).map(|volume| {
                let device = volume.device(self.node).display();
                format!(
                    "; volume {}: {device} cannot be opened now, and without it the group starts failed",
                    volume.name
                )
            });
            let on_record = running.on_record.get(name).filter(|words| !words.is_empty());
            let begins =
                on_record.cloned().unwrap_or_else(|| format!("where nothing is on record of it yet, as {role}"));
            let text = format!("it starts; {begins}{}", missing.collect::<String>());
            return Some(step(ConfigAction::Add, Some(name), text));
        };
        let role = running.roles.get(name).copied();
        let mut anew = self.starts_anew(before, group, role);
        for volume in &group.volumes {
            let position = before.volumes.iter().position(|before| before.name == volume.name);
            let Some(opened) = position.and_then(|at| opened.get(at)) else { continue };
            let now = sizes.get(&(name.to_owned(), volume.name.to_string()));
            if let Some(now) = now.filter(|now| *now > opened && *opened > 0) {
                anew.push(format!(
                    "volume {}: its device has {} now, and had {}",
                    volume.name,
                    show_exact(*now),
                    show_exact(*opened)
                ));
            }
        }
        let kept = self.overrides.of(&group.name);
        let settings = changed(&kept.effective(&before.settings), &kept.effective(&group.settings));
        let hidden = changed(&before.settings, &group.settings).len().saturating_sub(settings.len());
        let mut taken_up = changed(&before.rpo, &group.rpo);
        taken_up.extend(changed(&before.scrub, &group.scrub));
        if before.hooks != group.hooks {
            taken_up.push("hooks".to_owned());
        }
        let action = match (anew.is_empty(), settings.is_empty(), taken_up.is_empty()) {
            (false, ..) => ConfigAction::Restart,
            (true, false, _) => ConfigAction::Set,
            (true, true, false) => ConfigAction::TakeUp,
            (true, true, true) if hidden > 0 => ConfigAction::TakeUp,
            (true, true, true) => return None,
        };
        let mut texts: Vec<String> = anew.into_iter().chain(settings).chain(taken_up).collect();
        if hidden > 0 {
            texts.push(format!("{hidden} changed in the file, with no effect: 'set' gave the value that holds ('farshore set {name} KEY=default')"));
        }
        Some(step(action, Some(name), texts.join(", ")))
    }

    /// A group that starts anew on the devices that it has, for the same clients: they may wait for it.
    /// Volumes may come and leave beside them.
    fn holds_clients(&self, name: &str) -> bool {
        self.now.group(name).zip(self.wanted.group(name)).is_some_and(|(before, wanted)| {
            let mut stays = before.volumes.iter().filter_map(|volume| Some((volume, named(wanted, volume)?)));
            (&before.primary, &before.secondary) == (&wanted.primary, &wanted.secondary)
                && stays.all(|(before, wanted)| before.device(self.node) == wanted.device(self.node))
        })
    }

    /// The volume of this export stays in its group.
    pub fn keeps_export(&self, group: &str, export: &str) -> bool {
        let volume = export.split_once('/').map(|(_, volume)| volume);
        let wanted = self.wanted.group(group);
        wanted.is_some_and(|wanted| wanted.volumes.iter().any(|one| Some(one.name.as_str()) == volume))
    }

    /// Groups of this node whose volumes are others in the file.
    pub fn with_other_volumes(&self) -> impl Iterator<Item = &ConfiguredGroup> {
        let names =
            |group: &ConfiguredGroup| group.volumes.iter().map(|volume| volume.name.clone()).collect::<Vec<_>>();
        self.wanted
            .groups_of(self.node)
            .filter(move |wanted| self.now.group(wanted.name.as_str()).is_some_and(|now| names(now) != names(wanted)))
    }

    /// What the group cannot take up while it runs.
    fn starts_anew(&self, before: &ConfiguredGroup, wanted: &ConfiguredGroup, role: Option<Role>) -> Vec<String> {
        let mut texts = changed(&before.layout, &wanted.layout);
        if (&before.primary, &before.secondary) != (&wanted.primary, &wanted.secondary) {
            texts.push("its nodes".to_owned());
        }
        texts.extend(self.come_and_leave(before, wanted, role));
        let stays = wanted.volumes.iter().filter_map(|volume| Some((named(before, volume)?, volume)));
        for (before, wanted) in stays {
            let (old, new) = (before.device(self.node), wanted.device(self.node));
            if old != new {
                texts.push(format!("volume {}: {} (was {})", wanted.name, new.display(), old.display()));
            }
            let latency = (before.model_latency(self.node), wanted.model_latency(self.node));
            if before.direct != wanted.direct || latency.0 != latency.1 {
                texts.push(format!("volume {}: how its device is used", wanted.name));
            }
        }
        texts
    }

    fn come_and_leave(&self, before: &ConfiguredGroup, wanted: &ConfiguredGroup, role: Option<Role>) -> Vec<String> {
        let is_primary = role.map_or(wanted.primary == *self.node, |role| role == Role::Primary);
        let peer = wanted.peer_of(self.node).unwrap_or(self.node);
        let (primary, secondary) = if is_primary { (self.node, peer) } else { (peer, self.node) };
        let group = &wanted.name;
        let until = |name| {
            format!(
                "set aside until 'farshore sync {group} --volume {name}' on {primary}, which compares all of it and sends what differs from {primary} to {secondary}; the copy is consistent without {name} until that has ended"
            )
        };
        let device = |volume: &ConfiguredVolume| volume.device(self.node).to_owned();
        let mut left: Vec<_> = before.volumes.iter().filter(|volume| named(wanted, volume).is_none()).collect();
        let mut texts = Vec::new();
        for volume in wanted.volumes.iter().filter(|volume| named(before, volume).is_none()) {
            let name = &volume.name;
            texts.push(match left.iter().position(|left| device(left) == device(volume)) {
                Some(at) => {
                    let before = &left.remove(at).name;
                    format!(
                        "volume {name} is volume {before} under a new name; as nothing tells whether the other node calls the same volume so, it is {}",
                        until(name)
                    )
                }
                None => format!("volume {name} comes: it is {}", until(name)),
            });
        }
        let leave = |volume: &&ConfiguredVolume| {
            format!(
                "volume {} leaves: it is forgotten, and its device {} keeps its bytes",
                volume.name,
                volume.device(self.node).display()
            )
        };
        texts.extend(left.iter().map(leave));
        texts
    }

    /// What counts at the next start of the daemon only.
    fn needs_restart(&self) -> Vec<String> {
        let (now, wanted) = (self.now, self.wanted);
        let mut texts = changed(&now.top, &wanted.top);
        if now.tls != wanted.tls {
            texts.push("the table [tls]".to_owned());
        }
        texts.extend(changed(&now.link, &wanted.link).into_iter().map(|text| format!("link: {text}")));
        let names = |config: &Config| config.nodes.iter().map(|node| node.name.to_string()).collect::<Vec<_>>();
        if names(now) != names(wanted) {
            texts.push("nodes that come or leave".to_owned());
        }
        for node in &wanted.nodes {
            let Some(before) = now.node(&node.name) else { continue };
            let is_renumbered = now.node_id(&node.name) != wanted.node_id(&node.name);
            if is_renumbered && now.top.cluster == wanted.top.cluster {
                texts.push(format!("another number on links of node {}", node.name));
            }
            let is_here = node.name == *self.node;
            if is_here && before != node || before.address != node.address {
                let changes = changed(before, node).into_iter().map(|text| format!("nodes.{}: {text}", node.name));
                texts.extend(changes);
            }
        }
        if now.hooks != wanted.hooks {
            texts.push("the tables of hooks".to_owned());
        }
        let peers = |config: &Config| config.peers_of(self.node).map(|peer| peer.name.clone()).collect::<BTreeSet<_>>();
        texts.extend(
            peers(wanted).difference(&peers(now)).map(|peer| format!("node {peer} becomes a peer of this one")),
        );
        if let (Some(before), Some(here)) = (now.node(self.node), wanted.node(self.node))
            && before.memory_limit_bytes == here.memory_limit_bytes
            && now.memory_bytes(before) < wanted.memory_bytes(here)
        {
            texts.push("more memory, which so many groups need".to_owned());
        }
        texts
    }
}

pub(super) fn is_of(export: &str, group: &str) -> bool {
    export.split_once('/').is_some_and(|(of, _)| of == group)
}

/// The volume of that name in the other definition of the group.
fn named<'a>(group: &'a ConfiguredGroup, volume: &ConfiguredVolume) -> Option<&'a ConfiguredVolume> {
    group.volumes.iter().find(|one| one.name == volume.name)
}

fn step(action: ConfigAction, group: Option<&str>, text: String) -> ConfigStep {
    ConfigStep { action, group: group.map(str::to_owned), text, clients: 0, clients_held: 0 }
}

/// The keys whose values differ, each as `key = new (was old)`.
fn changed<S: Keyed>(before: &S, wanted: &S) -> Vec<String> {
    let differs = |key: &SettingKey<S>| before.text(*key) != wanted.text(*key);
    let shown = |key: SettingKey<S>| format!("{key} = {} (was {})", wanted.text(key), before.text(key));
    SettingKey::all().filter(differs).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use settings::example::EXAMPLE;

    use super::*;

    const FILE: &str = "/etc/farshore/farshore.toml";

    fn parsed(text: &str) -> Config {
        Config::parse(Path::new(FILE), text).unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// Of the example's node alpha, whose group db runs: each step in short, and what needs a restart.
    fn planned(text: &str) -> (Vec<String>, Vec<String>) {
        let (now, wanted) = (parsed(EXAMPLE), parsed(text));
        let node = NodeName::parse("alpha").expect("a name");
        let running = RunningGroups {
            groups: BTreeMap::from([("db".to_owned(), vec![1 << 30, 1 << 30])]),
            clients: BTreeMap::from([("db/data".to_owned(), 1), ("db/log".to_owned(), 1)]),
            ..RunningGroups::default()
        };
        let (overrides, link_overrides) = (GroupOverrides::default(), LinkOverrides::default());
        let change = ConfigChange {
            node: &node,
            now: &now,
            wanted: &wanted,
            overrides: &overrides,
            link_overrides: &link_overrides,
        };
        let sizes = BTreeMap::from([(
            ("db".to_owned(), "log".to_owned()),
            if text.contains("grown") { 2 << 30 } else { 1 << 30 },
        )]);
        let plan = change.plan(&running, &sizes);
        let shown = plan.steps.iter().map(|step| {
            format!(
                "{} {}: {} [{} {}]",
                step.action.as_str(),
                step.group.as_deref().unwrap_or("-"),
                step.text,
                step.clients,
                step.clients_held
            )
        });
        (shown.collect(), plan.needs_restart)
    }

    #[test]
    fn the_same_file_changes_nothing() {
        assert_eq!(planned(EXAMPLE), (vec![], vec![]));
    }

    #[test]
    fn each_change_is_the_least_that_takes_it_up() {
        let (steps, restart) = planned(&EXAMPLE.replace("mode = \"async\"", "mode = \"sync\""));
        assert_eq!(steps, ["set db: mode = sync (was async) [0 0]"]);
        assert!(restart.is_empty());
        let (steps, restart) = planned(&(EXAMPLE.to_owned() + "# grown\n"));
        assert_eq!(steps, ["restart db: volume log: its device has 2 GiB now, and had 1 GiB [0 2]"]);
        assert!(restart.is_empty());
        let (steps, _) = planned(&EXAMPLE.replace("/dev/", "/dev/other/"));
        assert!(steps.len() == 1 && steps[0].ends_with("[2 0]"), "other devices may hold something else: {steps:?}");
    }

    #[test]
    fn volumes_come_leave_and_are_renamed() {
        let (steps, restart) = planned(&EXAMPLE.replace("volumes.log]", "volumes.wal]"));
        let waits = "set aside until 'farshore sync db --volume wal' on alpha, which compares all of it and sends what differs from alpha to beta";
        assert!(
            steps.len() == 1
                && steps[0]
                    .starts_with("restart db: volume wal is volume log under a new name; as nothing tells whether the other node calls the same volume so, it is ")
                && steps[0].contains(waits)
                && steps[0].ends_with("[1 1]"),
            "{steps:?}"
        );
        assert!(restart.is_empty());
        let device = parsed(EXAMPLE).groups[0].volumes[1].device(&NodeName::parse("alpha").expect("a name")).to_owned();
        let device = device.to_str().expect("text").to_owned();
        let (steps, _) = planned(&EXAMPLE.replace("volumes.log]", "volumes.wal]").replace(&device, "/dev/new"));
        assert!(
            steps.len() == 1 && steps[0].starts_with(&format!("restart db: volume wal comes: it is {waits}")),
            "{steps:?}"
        );
        let leaves = format!("volume log leaves: it is forgotten, and its device {device} keeps its bytes [1 1]");
        assert!(steps[0].ends_with(&leaves), "{steps:?}");
    }

    #[test]
    fn groups_come_and_leave() {
        let renamed = EXAMPLE.replace("[groups.db", "[groups.web");
        let (steps, restart) = planned(&renamed);
        assert!(steps[0].starts_with("remove db: its export closes") && steps[0].ends_with("[2 0]"), "{steps:?}");
        assert!(steps[1].starts_with("add web: it starts") && steps[1].ends_with("[0 0]"), "{steps:?}");
        let missing = format!(
            "volume data: {} cannot be opened now",
            parsed(EXAMPLE).groups[0].volumes[0].device(&NodeName::parse("alpha").expect("a name")).display()
        );
        assert!(steps[1].contains(&missing), "{steps:?}");
        assert!(restart.is_empty(), "{restart:?}");
    }

    #[test]
    fn what_the_daemon_itself_is_needs_a_restart() {
        let (steps, restart) = planned(&EXAMPLE.replace("cluster = \"", "cluster = \"x"));
        assert!(steps.is_empty() && restart.len() == 1 && restart[0].starts_with("cluster = x"), "{restart:?}");
    }
}
