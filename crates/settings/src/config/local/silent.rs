//! Devices that answer nothing: found before anything else looks at them, because a look at such a one does not return.
//!
//! Each device is asked for its first bytes by a thread of its own, all at once: disks that have to wake do so together. One that got no
//! answer stays behind with nothing but its own open file; it ends when the device answers, or with the process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use host::disk::{SILENCE_REPORTED, volume};

use crate::config::Config;
use crate::names::{GroupName, NodeName};

/// What one thread needs: a path, a buffer, a few calls.
const STACK_BYTES: usize = 128 << 10;

/// Groups with a device that answers nothing, and which device that is.
#[derive(Clone, Debug, Default)]
pub struct Silent(BTreeMap<GroupName, Vec<PathBuf>>);

impl Silent {
    /// Asks the devices of all groups of `node`, and those that other nodes have on this machine; takes as long as the slowest answer,
    /// and [`SILENCE_REPORTED`] at the most.
    pub(crate) fn find(config: &Config, node: &NodeName) -> Silent {
        let machine = config.machine_of(node);
        let here = |other: &NodeName| config.machine_of(other) == machine;
        let devices = config.groups_of(node).flat_map(|group| {
            let devices = group.volumes.iter().flat_map(|volume| &volume.devices);
            devices.filter(|(other, _)| here(other)).map(|(_, device)| (group.name.clone(), device.clone()))
        });
        Silent::among(devices.collect(), SILENCE_REPORTED, volume::ask)
    }

    fn among(
        devices: Vec<(GroupName, PathBuf)>,
        patience: Duration,
        ask: impl Fn(&Path) + Clone + Send + 'static,
    ) -> Silent {
        let (answered, answers) = mpsc::channel();
        let mut waiting = BTreeMap::new();
        for (number, (group, device)) in devices.into_iter().enumerate() {
            let (path, answered, ask) = (device.clone(), answered.clone(), ask.clone());
            let ask = move || {
                ask(&path);
                let _ = answered.send(number);
            };
            let thread = thread::Builder::new().name("ask-device".into()).stack_size(STACK_BYTES).spawn(ask);
            // No thread to be had: opening the device will tell.
            if thread.is_ok() {
                waiting.insert(number, (group, device));
            }
        }
        drop(answered);
        let deadline = Instant::now() + patience;
        while !waiting.is_empty()
            && let Ok(number) = answers.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            waiting.remove(&number);
        }
        let mut silent = BTreeMap::<_, Vec<_>>::new();
        for (group, device) in waiting.into_values() {
            silent.entry(group).or_default().push(device);
        }
        Silent(silent)
    }

    /// Why the group cannot be opened now, if it has such a device.
    pub fn why(&self, group: &GroupName) -> Option<String> {
        self.why_without(group, &[])
    }

    /// The same, where nothing is asked of these devices. Of several the first one is told.
    pub fn why_without(&self, group: &GroupName, untouched: &[&Path]) -> Option<String> {
        let mut devices = self.0.get(group)?.iter();
        devices.find(|device| !untouched.contains(&device.as_path())).map(|device| sentence(device))
    }
}

fn sentence(device: &Path) -> String {
    let seconds = SILENCE_REPORTED.as_secs();
    format!("{} has answered nothing for {seconds} s; see the kernel log for why", device.display())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use super::*;

    fn devices(names: &[&str]) -> Vec<(GroupName, PathBuf)> {
        let one = |name: &&str| (GroupName::parse("db").expect("a name"), Path::new(name).to_owned());
        names.iter().map(one).collect()
    }

    /// Asked one after the other they had the patience for one all together, and the last one was told not to answer.
    #[test]
    fn the_devices_of_a_group_are_asked_at_once() {
        let all = Arc::new(Barrier::new(3));
        let ask = move |_: &Path| _ = all.wait();
        let silent = Silent::among(devices(&["/a", "/b", "/c"]), SILENCE_REPORTED, ask);
        assert_eq!(silent.0, BTreeMap::new());
    }

    #[test]
    fn one_that_answers_nothing_is_named() {
        let never = Arc::new(Barrier::new(2));
        let devices = devices(&["/a"]);
        let (group, silent) = (devices[0].0.clone(), Silent::among(devices, Duration::ZERO, move |_| _ = never.wait()));
        assert_eq!(silent.why(&group).as_deref(), Some("/a has answered nothing for 10 s; see the kernel log for why"));
    }
}
