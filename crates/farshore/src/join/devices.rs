//! Devices as typed, looked at, and brought together with the volumes of a group.

use std::path::{Path, PathBuf};

use host::disk::blank::first_data;
use host::disk::volume::{VolumeOptions, open_volume};
use settings::VolumeName;
use settings::pair::path_text;

use super::{OfferedVolume, WishedDevice};

/// A device as it was typed: `PATH`, or `NAME=PATH` with the volume's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDevice {
    volume: Option<VolumeName>,
    path: PathBuf,
}

impl NamedDevice {
    /// # Errors
    /// A sentence: no volume's name, or a path that is not absolute or cannot stand in a configuration.
    pub fn parse(text: &str) -> Result<NamedDevice, String> {
        let (volume, path) = match text.split_once('=') {
            Some((name, path)) if !name.contains('/') => (Some(VolumeName::parse(name)?), path),
            _ => (None, text),
        };
        let path = PathBuf::from(path);
        path_text(&path)?;
        Ok(NamedDevice { volume, path })
    }

    /// The device's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A device that can be a volume.
#[derive(Clone, Debug)]
pub struct LocalDevice {
    volume: VolumeName,
    path: PathBuf,
    bytes: u64,
    /// Where a byte was found that is not zero.
    data_at: Option<u64>,
}

impl LocalDevice {
    /// Opens it, as nobody else may have it, and looks for data: some seconds on a disk that turns.
    ///
    /// # Errors
    /// A sentence: it is not there, is in use, or cannot be read.
    pub fn look(volume: VolumeName, path: &Path) -> Result<LocalDevice, String> {
        let file = open_volume(path, VolumeOptions::default()).map_err(|error| error.to_string())?;
        let data_at = first_data(&file).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        Ok(LocalDevice { volume, path: path.to_owned(), bytes: file.size_bytes(), data_at })
    }

    /// The volume that it is for.
    pub fn volume(&self) -> &VolumeName {
        &self.volume
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether something was found on it.
    pub fn has_data(&self) -> bool {
        self.data_at.is_some()
    }
}

/// Exact, for eyes: `64MiB`, `1000 bytes`.
fn size_text(bytes: u64) -> String {
    let text = units::exact::size_text(bytes);
    if text.ends_with(|last: char| last.is_ascii_digit()) { format!("{text} bytes") } else { text }
}

/// The devices of a node as long as no group says what its volumes are called; one without a name is the volume `data`.
///
/// # Errors
/// A sentence: two of one name, or several without.
pub fn named(devices: &[NamedDevice]) -> Result<Vec<(VolumeName, PathBuf)>, String> {
    let mut found: Vec<(VolumeName, PathBuf)> = Vec::new();
    for device in devices {
        let name = match &device.volume {
            Some(name) => name.clone(),
            None if devices.len() == 1 => VolumeName::parse("data")?,
            None => {
                let path = device.path.display();
                return Err(format!("of several devices each needs its volume's name: write --device NAME={path}"));
            }
        };
        if found.iter().any(|(taken, _)| *taken == name) {
            return Err(format!("volume {name} has two devices; give each volume one"));
        }
        found.push((name, device.path.clone()));
    }
    Ok(found)
}

/// Which device is for which volume of the group.
///
/// # Errors
/// A sentence: a volume without a device, a device without a volume, or two for one.
pub(super) fn assigned(
    volumes: &[OfferedVolume],
    devices: &[NamedDevice],
) -> Result<Vec<(VolumeName, PathBuf)>, String> {
    let all = volumes.iter().map(|volume| format!("{} ({})", volume.name, size_text(volume.bytes))).collect::<Vec<_>>();
    let form: Vec<_> = match volumes {
        [_] => vec!["--device /dev/disk/by-id/DISK".to_owned()],
        several => several.iter().map(|volume| format!("--device {}=/dev/disk/by-id/DISK", volume.name)).collect(),
    };
    let (all, form) = (all.join(", "), form.join(" "));
    let name_of = |device: &NamedDevice| match (&device.volume, volumes) {
        (Some(name), _) => Ok(name.clone()),
        (None, [only]) if devices.len() == 1 => VolumeName::parse(&only.name),
        (None, _) => Err(format!("each device needs its volume's name; the group has the volumes {all}: give {form}")),
    };
    let found = devices.iter().map(|device| Ok((name_of(device)?, device.path.clone())));
    let found: Vec<(VolumeName, PathBuf)> = found.collect::<Result<_, String>>()?;
    if let Some((stray, _)) = found.iter().find(|(name, _)| !volumes.iter().any(|volume| volume.name == name.as_str()))
    {
        return Err(format!("the group has no volume {:?}; its volumes are {all}: give {form}", stray.as_str()));
    }
    for volume in volumes {
        match found.iter().filter(|(name, _)| name.as_str() == volume.name).count() {
            1 => {}
            0 => return Err(format!("volume {} has no device on this node: give {form}", volume.name)),
            _ => return Err(format!("volume {} has two devices; give each volume one", volume.name)),
        }
    }
    Ok(found)
}

/// That every volume has a device, and has room on it.
///
/// # Errors
/// A sentence, with both sizes.
pub(super) fn has_room(volumes: &[OfferedVolume], devices: &[WishedDevice], node: &str) -> Result<(), String> {
    for volume in volumes {
        let Some(device) = devices.iter().find(|device| device.volume == volume.name) else {
            return Err(format!("volume {} has no device on {node}", volume.name));
        };
        if device.bytes < volume.bytes {
            let (path, has, needs) = (device.path.display(), size_text(device.bytes), size_text(volume.bytes));
            return Err(format!(
                "{path} on {node} is too small for volume {}: it has {has}, and the volume needs {needs}; name a device of at least that \
                 size, or enlarge it. Nothing was written",
                volume.name
            ));
        }
    }
    match devices.iter().find(|device| !volumes.iter().any(|volume| volume.name == device.volume)) {
        Some(stray) => Err(format!("the group has no volume {:?}", stray.volume)),
        None => Ok(()),
    }
}

/// That nothing on these devices would be lost.
///
/// # Errors
/// A sentence.
pub(super) fn are_blank(devices: &[LocalDevice]) -> Result<(), String> {
    let Some((device, at)) = devices.iter().find_map(|device| Some((device, device.data_at?))) else { return Ok(()) };
    Err(format!(
        "{} carries data (at byte {at}), and the first sync overwrites all of it. If nobody needs that data, type the command again with \
         --overwrite; else name another device. Nothing was written",
        device.path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(words: &[&str]) -> Vec<NamedDevice> {
        words.iter().map(|word| NamedDevice::parse(word).expect(word)).collect()
    }

    fn volumes(names: &[&str]) -> Vec<OfferedVolume> {
        names.iter().map(|name| OfferedVolume { name: (*name).to_owned(), bytes: 1 << 20 }).collect()
    }

    #[test]
    fn devices_are_brought_together_with_volumes() {
        for (names, words, wrong) in [
            (&["data"][..], &["/dev/a"][..], None),
            (&["data"], &["data=/dev/a"], None),
            (&["data", "log"], &["log=/dev/a", "data=/dev/b"], None),
            (&["data"], &["/dev/vg/x=1"], None),
            (&["data", "log"], &["/dev/a"], Some("each device needs its volume's name")),
            (&["data", "log"], &["log=/dev/a"], Some("volume data has no device on this node")),
            (&["data"], &[], Some("give --device /dev/disk/by-id/DISK")),
            (&["data"], &["dat=/dev/a"], Some("the group has no volume \"dat\"; its volumes are data (1MiB)")),
            (&["data"], &["data=/dev/a", "data=/dev/b"], Some("two devices")),
        ] {
            let found = assigned(&volumes(names), &devices(words));
            match (&found, wrong) {
                (Ok(found), None) => assert_eq!(found.len(), names.len(), "{words:?}"),
                (Err(said), Some(part)) => assert!(said.contains(part), "{words:?}: {said}"),
                _ => panic!("{words:?}: {found:?}"),
            }
        }
        assert_eq!(named(&devices(&["/dev/a"])).expect("sound")[0].0.as_str(), "data");
        for (words, part) in
            [(["/dev/a", "/dev/b"], "each needs its volume's name"), (["x=/dev/a", "x=/dev/b"], "two devices")]
        {
            assert!(named(&devices(&words)).unwrap_err().contains(part));
        }
        for (word, part) in [("sdb", "not absolute"), ("Data=/dev/a", "volume name"), ("/dev/\"x", "quotes")] {
            assert!(NamedDevice::parse(word).unwrap_err().contains(part), "{word}");
        }
    }

    #[test]
    fn a_device_that_is_too_small_is_told_with_both_sizes() {
        let device = |bytes| [WishedDevice { volume: "data".into(), path: "/dev/a".into(), bytes }];
        has_room(&volumes(&["data"]), &device(1 << 20), "beta").expect("it fits");
        let said = has_room(&volumes(&["data"]), &device(4096), "beta").unwrap_err();
        assert!(
            said.contains("/dev/a on beta is too small") && said.contains("4KiB") && said.contains("1MiB"),
            "{said}"
        );
        assert!(has_room(&volumes(&["data", "log"]), &device(1 << 20), "beta").unwrap_err().contains("volume log"));
    }
}
