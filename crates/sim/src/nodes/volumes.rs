//! The file in which the operator gives volumes to groups. The engine calls a volume by its position in the order of names, which moves when
//! others come and leave. Clients and checkers call a volume by its *number*, which no other volume of its group ever has.

use std::collections::BTreeMap;

use engine::{GroupId, VolumeId, VolumeSet};

use crate::options::SimOptions;

/// Names of the first volumes are so far apart that others fit between them.
const NAMES_APART: u32 = 1000;

/// A device of a node.
pub type DeviceId = u32;

/// A volume of a group, as the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedVolume {
    pub name: u32,
    /// What clients and checkers call it.
    pub number: VolumeId,
    /// On each of the group's two nodes.
    pub devices: [DeviceId; 2],
}

/// What the file says now.
pub struct VolumeFile {
    groups: BTreeMap<GroupId, Vec<NamedVolume>>,
    next_number: BTreeMap<GroupId, u16>,
    /// What each name was ever called. A volume that left one node and came back may never have left the other.
    numbers: BTreeMap<(GroupId, u32), VolumeId>,
    next_device: DeviceId,
}

impl VolumeFile {
    pub fn new(options: &SimOptions) -> VolumeFile {
        let groups = (0..options.groups()).map(GroupId);
        VolumeFile {
            groups: groups.clone().map(|group| (group, first_volumes(options, group))).collect(),
            next_number: groups.map(|group| (group, options.volumes)).collect(),
            numbers: BTreeMap::new(),
            next_device: options.groups() * u32::from(options.volumes),
        }
    }

    /// Those of a group, in the order of names.
    pub fn of(&self, group: GroupId) -> &[NamedVolume] {
        &self.groups[&group]
    }

    /// A volume with a new name and new devices comes to a group.
    pub fn adds(&mut self, group: GroupId, name: u32) -> VolumeId {
        let devices = [self.next_device, self.next_device + 1];
        self.next_device += 2;
        self.takes_in(group, name, devices)
    }

    /// A volume on these devices comes to a group, or comes back.
    pub fn takes_in(&mut self, group: GroupId, name: u32, devices: [DeviceId; 2]) -> VolumeId {
        let next = self.next_number.get_mut(&group).expect("every group has numbers");
        let volumes = self.groups.get_mut(&group).expect("every group is in the file");
        // What was called so goes on under another name.
        let is_taken = |number: &VolumeId| volumes.iter().any(|volume| volume.number == *number);
        let known = self.numbers.get(&(group, name)).copied().filter(|number| !is_taken(number));
        let number = known.unwrap_or_else(|| {
            *next += 1;
            VolumeId(*next - 1)
        });
        self.numbers.insert((group, name), number);
        volumes.push(NamedVolume { name, number, devices });
        volumes.sort_by_key(|volume| volume.name);
        number
    }

    /// A volume leaves a group.
    pub fn removes(&mut self, group: GroupId, number: VolumeId) -> NamedVolume {
        let volumes = self.groups.get_mut(&group).expect("every group is in the file");
        let at = volumes.iter().position(|volume| volume.number == number).expect("the group has the volume");
        let volume = volumes.remove(at);
        self.numbers.insert((group, volume.name), number);
        volume
    }

    /// A volume has another name from now on.
    pub fn renames(&mut self, group: GroupId, number: VolumeId, name: u32) {
        let volume = NamedVolume { name, ..self.removes(group, number) };
        let volumes = self.groups.get_mut(&group).expect("every group is in the file");
        volumes.push(volume);
        volumes.sort_by_key(|volume| volume.name);
    }

    /// The operator mistakes the devices of two volumes on one of the group's nodes.
    pub fn swaps_devices(&mut self, group: GroupId, member: usize, pair: [VolumeId; 2]) {
        let volumes = self.groups.get_mut(&group).expect("every group is in the file");
        let [a, b] = pair.map(|number| volumes.iter().position(|volume| volume.number == number).expect("there"));
        let (first, second) = (volumes[a].devices[member], volumes[b].devices[member]);
        (volumes[a].devices[member], volumes[b].devices[member]) = (second, first);
    }

    /// A group is to have the volumes again that a node of it has. No other group has one on their devices.
    pub fn goes_back(&mut self, group: GroupId, volumes: Vec<NamedVolume>) {
        for (of, others) in &mut self.groups {
            let is_one = |a: [DeviceId; 2], b: [DeviceId; 2]| a[0] == b[0] || a[1] == b[1];
            let is_taken = |other: &NamedVolume| volumes.iter().any(|volume| is_one(volume.devices, other.devices));
            others.retain(|other| *of == group || !is_taken(other));
        }
        self.groups.insert(group, volumes);
    }
}

/// Those with which a group begins.
pub fn first_volumes(options: &SimOptions, group: GroupId) -> Vec<NamedVolume> {
    let one = |volume: u16| {
        let device = group.0 * u32::from(options.volumes) + u32::from(volume);
        NamedVolume { name: NAMES_APART * (u32::from(volume) + 1), number: VolumeId(volume), devices: [device; 2] }
    };
    (0..options.volumes).map(one).collect()
}

/// What belongs to each position, by numbers; nothing belongs to a number that is not there.
pub fn by_number<'a>(volumes: Option<&[NamedVolume]>, by_position: Vec<&'a [u8]>) -> Vec<&'a [u8]> {
    let Some(volumes) = volumes else { return by_position };
    let end = volumes.iter().map(|volume| usize::from(volume.number.0) + 1).max().unwrap_or(0);
    let mut all = vec![&[][..]; end];
    for (volume, content) in volumes.iter().zip(by_position) {
        all[usize::from(volume.number.0)] = content;
    }
    all
}

/// The numbers of volumes that are told by position.
pub fn numbers_of(volumes: Option<&[NamedVolume]>, positions: VolumeSet) -> VolumeSet {
    let Some(volumes) = volumes else { return positions };
    let mut numbers = VolumeSet::default();
    for volume in positions.iter().filter_map(|at| volumes.get(usize::from(at.0))) {
        numbers.insert(volume.number);
    }
    numbers
}
