//! Devices that answer nothing: found before anything else looks at them, because a look at such a one does not return.
//!
//! Each group's devices are asked for their first bytes by a thread of their own. One that got no answer stays behind with nothing but
//! its own open file; it ends when the device answers, or with the process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use host::disk::{SILENCE_TOLD, volume};

use super::{Config, GroupName, NodeName};

/// What one thread needs: a path, a buffer, a few calls.
const STACK_BYTES: usize = 128 << 10;

/// Groups with a device that answers nothing, and which device that is.
#[derive(Clone, Debug, Default)]
pub struct Silent(BTreeMap<GroupName, PathBuf>);

impl Silent {
    /// Asks the devices of all groups of `node`, and those that other nodes have on this machine; takes as long as the slowest answer,
    /// and [`SILENCE_TOLD`] at the most.
    pub(super) fn find(config: &Config, node: &NodeName) -> Silent {
        let machine = config.machine_of(node);
        let here = |other: &NodeName| config.machine_of(other) == machine;
        let (asked, answers) = mpsc::channel();
        let mut silent = BTreeMap::new();
        for (_, group) in config.groups_of(node) {
            let devices =
                group.volumes.iter().flat_map(|volume| volume.devices.iter().filter(|(other, _)| here(other)));
            let devices: Vec<PathBuf> = devices.map(|(_, device)| device.clone()).collect();
            let first = devices.first().cloned().unwrap_or_default();
            silent.insert(group.name.clone(), first);
            let (name, asked) = (group.name.clone(), asked.clone());
            let ask = move || {
                for device in devices {
                    // Which of them it is that does not answer.
                    let _ = asked.send((name.clone(), Some(device.clone())));
                    volume::ask(&device);
                }
                let _ = asked.send((name, None));
            };
            let thread = thread::Builder::new().name("ask-devices".into()).stack_size(STACK_BYTES).spawn(ask);
            if thread.is_err() {
                // No thread to be had: opening the device will tell.
                silent.remove(&group.name);
            }
        }
        drop(asked);
        let deadline = Instant::now() + SILENCE_TOLD;
        while let Ok((group, device)) = answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            match device {
                Some(device) => _ = silent.insert(group, device),
                None => _ = silent.remove(&group),
            }
        }
        Silent(silent)
    }

    /// Why the group cannot be opened now, if it has such a device.
    pub fn why(&self, group: &GroupName) -> Option<String> {
        self.0.get(group).map(|device| sentence(device))
    }
}

fn sentence(device: &Path) -> String {
    let seconds = SILENCE_TOLD.as_secs();
    format!("{} has answered nothing for {seconds} s; see the kernel log for why", device.display())
}
