//! Whose content stands on a device that comes to a group: where a volume left a group, its device still has what this node held of it,
//! as primary or as secondary. Under the other role of another group the wrong node's content would count.
//!
//! `left` in a group's directory has the devices of volumes that left, each with the role that this node had, and when that was.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use engine::identity::Role;
use engine::other_volumes::counts_under;
use host::disk::device_id::{DeviceId, compare};
use host::driver::group_tag;
use settings::Config;

use super::device_record::{self, GroupDevices, LeftVolume, LeftVolumes};
use super::group_directory;

/// What is known of a device that comes.
struct Former {
    volume: String,
    group: String,
    role: Role,
    left: Leaving,
}

/// When the volume left its group.
#[derive(Clone, Copy)]
enum Leaving {
    /// With its group, which is in the configuration no more and wrote its superblock last then: milliseconds since 1970.
    WithGroup(u64),
    /// Alone: milliseconds since 1970.
    Alone(u64),
    /// It is about to.
    Now,
}

impl Leaving {
    /// A group that was removed long ago says less than one that a volume left since.
    fn rank(self) -> u64 {
        match self {
            Leaving::WithGroup(unix_ms) | Leaving::Alone(unix_ms) => unix_ms,
            Leaving::Now => u64::MAX,
        }
    }
}

/// Why a volume of `group` that comes on this device cannot count as what it is to be: this node had it in the other role.
pub(super) fn speaks_against(
    config: &Config,
    (groups, group, role): (&Path, &str, Role),
    (volume, device): (&str, &DeviceId),
) -> Option<String> {
    let directories = || fs::read_dir(groups).into_iter().flatten().flatten().map(|entry| entry.path());
    if let Some(error) = directories().find_map(|directory| device_record::read_left(&directory).err()) {
        return Some(format!(
            "in which role this node had the device of volume {volume} is not known, as a record of volumes that left cannot be read: {error:#}; if \
             nothing of it counts any more, remove that file"
        ));
    }
    let known = directories().flat_map(|directory| formers(config, &directory, device));
    let newest = known.max_by_key(|former| former.left.rank()).filter(|former| !counts_under(role, former.role))?;
    let Former { volume: was, group: of, role: had, left } = newest;
    let directory = groups.join(&of);
    let (when, of_both, record) = match left {
        Leaving::Now => (format!("is volume {was} of {of}, of which this node is {}", had.word()), of != group, None),
        Leaving::Alone(_) => {
            let record = directory.join(device_record::LEFT);
            (format!("was volume {was} of {of}, and this node was {} when it left", had.word()), false, Some(record))
        }
        Leaving::WithGroup(_) => {
            let when = format!(
                "was volume {was} of {of}, which is no longer in the configuration, and this node was {}",
                had.word()
            );
            (when, false, Some(directory))
        }
    };
    let which = match of_both {
        true => format!("'farshore switchover {of}', or of {group},"),
        false => format!("'farshore switchover {group}'"),
    };
    let beside = record
        .map_or(String::new(), |record| format!("; if nothing of it counts any more, remove {}", record.display()));
    Some(format!(
        "the device of volume {volume} {when}, and here this node is {}: what counts of it would be given up for the other node's. First {which} \
         so that this node has one role in both{beside}",
        role.word()
    ))
}

/// Volumes of `group` whose devices were another group's of this node since this one was on record last: bits and generations say nothing of
/// what was written to them there.
pub(super) fn used_since(config: &Config, groups: &Path, group: &str) -> BTreeSet<String> {
    let own = groups.join(group);
    // A volume that comes leaves the other group while both records are prepared: these take their places behind that.
    let written = group_directory::in_place_unix_ms(&own);
    let is_later = |former: &Former| match former.left {
        Leaving::WithGroup(unix_ms) | Leaving::Alone(unix_ms) => unix_ms > written,
        Leaving::Now => group_directory::written_unix_ms(&groups.join(&former.group)) > written,
    };
    let directories = fs::read_dir(groups).into_iter().flatten().flatten().map(|entry| entry.path());
    let others: Vec<_> = directories.filter(|directory| written > 0 && *directory != own).collect();
    let was_used = |(volume, device): (String, DeviceId)| {
        let former = others.iter().flat_map(|directory| formers(config, directory, &device)).find(is_later)?;
        tracing::warn!(
            "group {group}: the device of volume {volume} was volume {} of {} since, so its content counts as changed outside",
            former.volume,
            former.group
        );
        Some(volume)
    };
    let devices = device_record::read_devices(&own).ok().flatten().unwrap_or_default();
    devices.into_iter().filter_map(was_used).collect()
}

/// Volumes on this device that leave, or have left, the group of this directory.
fn formers(config: &Config, directory: &Path, device: &DeviceId) -> Vec<Former> {
    let Some(group) = directory.file_name().and_then(|name| name.to_str()).map(str::to_owned) else {
        return Vec::new();
    };
    let is_it = |found: &DeviceId| compare(found, device).is_ok();
    let left = device_record::read_left(directory).unwrap_or_default();
    let has_left = left.into_iter().filter(|(_, left)| is_it(&left.device)).map(|((volume, _), left)| Former {
        volume,
        group: group.clone(),
        role: left.role,
        left: Leaving::Alone(left.unix_ms),
    });
    let mut found: Vec<Former> = has_left.collect();
    let devices = device_record::read_devices(directory).ok().flatten().unwrap_or_default();
    let stays = |volume: &str| {
        config.group(&group).is_some_and(|named| named.volumes.iter().any(|one| one.name.as_str() == volume))
    };
    let leaving = devices.into_iter().filter(|(volume, device)| !stays(volume) && is_it(device));
    let tag = group_tag(config.top.cluster.as_str(), &group);
    let role = group_directory::recorded(directory, tag).map(|recorded| recorded.identity.role);
    let left = match config.group(&group) {
        Some(_) => Leaving::Now,
        None => Leaving::WithGroup(group_directory::written_unix_ms(directory)),
    };
    found.extend(leaving.zip(role).map(|((volume, _), role)| Former { volume, group: group.clone(), role, left }));
    found
}

/// What `left` says once these leave a group of which this node is in this role. Those that are in it again are on record there.
pub(super) fn leaving(
    directory: &Path,
    (role, unix_ms): (Role, u64),
    leave: GroupDevices,
    now: &GroupDevices,
) -> anyhow::Result<LeftVolumes> {
    let mut left = device_record::read_left(directory)?;
    left.extend(leave.into_iter().map(|(volume, device)| ((volume, unix_ms), LeftVolume { role, unix_ms, device })));
    left.retain(|_, left| !now.values().any(|device| compare(&left.device, device).is_ok()));
    Ok(left)
}

#[cfg(test)]
mod tests {
    use settings::example::EXAMPLE;

    use super::*;

    fn device(inode: u64) -> DeviceId {
        let mut id = DeviceId::default();
        let lines = ["size 4096".to_owned(), "kind file".to_owned(), format!("inode {inode}")];
        lines.iter().for_each(|line| id.take_line(line).expect("a fact"));
        id
    }

    /// The role in which it was here last counts, also where it went through several groups.
    #[test]
    fn a_device_comes_in_the_role_in_which_it_left() {
        let scratch = tempfile::tempdir().expect("a directory");
        let groups = scratch.path();
        let config = Config::parse(Path::new("/farshore.toml"), EXAMPLE).unwrap_or_else(|why| panic!("{why}"));
        let says = |role: Role, inode: u64| speaks_against(&config, (groups, "db", role), ("log", &device(inode)));
        assert_eq!(says(Role::Primary, 7), None);
        for (group, role, unix_ms) in [("h", Role::Secondary, 5), ("k", Role::Primary, 9)] {
            let directory = groups.join(group);
            fs::create_dir(&directory).expect("made");
            let leave = GroupDevices::from([("x".to_owned(), device(7))]);
            let left = leaving(&directory, (role, unix_ms), leave, &GroupDevices::new()).expect("readable");
            fs::write(directory.join(device_record::LEFT), device_record::text_of_left(&left)).expect("written");
            let why =
                says(if role == Role::Primary { Role::Secondary } else { Role::Primary }, 7).expect("the other role");
            assert!(why.contains(&format!("was volume x of {group}")) && why.contains("switchover db"), "{why}");
            assert_eq!((says(role, 7), says(Role::Primary, 8)), (None, None));
        }
        // Of a group that left the file with it long ago nothing is dated but its superblock.
        assert!(
            Leaving::WithGroup(7).rank() < Leaving::Alone(9).rank() && Leaving::Alone(9).rank() < Leaving::Now.rank()
        );
        // What has come again is no longer one that left.
        let now = GroupDevices::from([("y".to_owned(), device(7))]);
        let left = leaving(&groups.join("k"), (Role::Primary, 12), GroupDevices::new(), &now);
        assert!(left.expect("readable").is_empty());
        // The same name leaves once more, with another device: the first one is not forgotten.
        let leave = GroupDevices::from([("x".to_owned(), device(8))]);
        let left = leaving(&groups.join("h"), (Role::Primary, 14), leave, &GroupDevices::new()).expect("readable");
        fs::write(groups.join("h").join(device_record::LEFT), device_record::text_of_left(&left)).expect("written");
        assert_eq!(device_record::read_left(&groups.join("h")).expect("readable"), left);
        assert_eq!(left.len(), 2);
        // What cannot be read says nothing, and nothing comes by it.
        fs::write(groups.join("h").join(device_record::LEFT), "farshore left 1\nchecksum 00000000\n").expect("written");
        let why = says(Role::Primary, 9).expect("nobody knows");
        assert!(why.contains("cannot be read"), "{why}");
    }
}
