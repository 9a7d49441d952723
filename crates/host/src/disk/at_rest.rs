//! Is what a directory holds encrypted where it lies? The kernel tells of dm-crypt and of fscrypt; what it does not tell of is not known.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};

use super::holders::{DeviceNumber, FileSystem, entries, file_system_of, parse_number, sysfs};
use super::identity::{FileIdentity, identity_of};

/// A loop device lies on a file, whose file system may lie on one again.
const NESTED_MAX: usize = 8;
/// Of the targets that cryptsetup makes, those that encrypt: its integrity and verity targets have names that begin in the same way.
const ENCRYPTS: [&str; 7] = ["LUKS1-", "LUKS2-", "PLAIN-", "TCRYPT-", "BITLK-", "FVAULT2-", "LOOPAES-"];

/// Whether files of a directory are encrypted at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtRest {
    /// By whom.
    Encrypted(String),
    /// On which file system, and where that lies.
    Plain(String),
    /// Why that cannot be told.
    Unknown(String),
}

/// Looks through the layers below a directory, links followed. All that it lies on has to be encrypted.
pub fn at_rest(directory: &Path) -> AtRest {
    look(directory, NESTED_MAX)
}

fn look(path: &Path, nested: usize) -> AtRest {
    let system = match file_system_of(path) {
        Ok(system) => system,
        Err(error) => return AtRest::Unknown(error.to_string()),
    };
    let lies = format!("{} on {}", system.kind, system.source);
    if is_encrypted_by_file_system(path) {
        return AtRest::Encrypted(format!("{} (fscrypt)", system.kind));
    }
    let devices = devices_of(path, &system);
    if devices.is_empty() {
        return AtRest::Unknown(format!("{lies} is no block device of this machine"));
    }
    match devices.iter().all(|device| is_encrypted(device, nested)) {
        true => AtRest::Encrypted(format!("dm-crypt below {lies}")),
        false => AtRest::Plain(lies),
    }
}

fn is_encrypted_by_file_system(path: &Path) -> bool {
    let facts = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), StatxFlags::TYPE);
    facts.is_ok_and(|facts| facts.stx_attributes.contains(StatxAttributes::ENCRYPTED))
}

/// In sysfs; btrfs may lie on several of which only one is named.
fn devices_of(path: &Path, system: &FileSystem) -> Vec<PathBuf> {
    // Also where the device has no name, as in a container. btrfs shows a number of its own here.
    let device =
        rustix::fs::stat(path).map(|stat| sysfs((rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev))));
    if let Some(device) = device.ok().filter(|device| device.exists()) {
        return vec![device];
    }
    let Ok(FileIdentity::Device { major, minor }) = identity_of(Path::new(&system.source)) else { return Vec::new() };
    let device = sysfs((major, minor));
    let of_one = |members: &PathBuf| entries(members).any(|member| number_of(&member) == Some((major, minor)));
    let all = entries(Path::new("/sys/fs/btrfs")).map(|one| one.join("devices")).find(of_one);
    all.filter(|_| system.kind == "btrfs").map_or_else(|| vec![device], |members| entries(&members).collect())
}

fn number_of(device: &Path) -> Option<DeviceNumber> {
    parse_number(&fs::read_to_string(device.join("dev")).ok()?)
}

/// This device is a crypt target, or all that it lies on is encrypted.
fn is_encrypted(device: &Path, nested: usize) -> bool {
    let Ok(device) = fs::canonicalize(device) else { return false };
    let Some(nested) = nested.checked_sub(1) else { return false };
    let uuid = fs::read_to_string(device.join("dm/uuid")).unwrap_or_default();
    if ENCRYPTS.iter().any(|kind| uuid.strip_prefix("CRYPT-").is_some_and(|rest| rest.starts_with(kind))) {
        return true;
    }
    if let Ok(backing) = fs::read_to_string(device.join("loop/backing_file")) {
        return matches!(look(Path::new(backing.trim_end_matches('\n')), nested), AtRest::Encrypted(_));
    }
    if device.join("partition").exists() {
        return device.parent().is_some_and(|whole| is_encrypted(whole, nested));
    }
    let mut below = entries(&device.join("slaves")).peekable();
    below.peek().is_some() && below.all(|below| is_encrypted(&below, nested))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A tree as sysfs shows it: each device with what it lies on.
    fn sysfs_with(devices: &[(&str, &[&str])]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (name, below) in devices {
            let device = root.path().join(name);
            fs::create_dir_all(device.join("slaves")).expect("made");
            for slave in *below {
                let to = root.path().join(slave);
                symlink(to, device.join("slaves").join(slave.replace('/', "!"))).expect("a link");
            }
            if let Some(kind) =
                [("crypt", "LUKS2"), ("integrity", "INTEGRITY")].iter().find(|kind| name.starts_with(kind.0))
            {
                fs::create_dir_all(device.join("dm")).expect("made");
                fs::write(device.join("dm/uuid"), format!("CRYPT-{}-0123-name\n", kind.1)).expect("written");
            }
            if name.contains('/') {
                fs::write(device.join("partition"), "1\n").expect("written");
            }
        }
        root
    }

    #[test]
    fn all_that_it_lies_on_has_to_be_encrypted() {
        let tree = sysfs_with(&[
            ("sda", &[]),
            ("sda/sda1", &[]),
            ("crypt0", &["sda/sda1"]),
            ("crypt1", &["sda"]),
            ("crypt1/part1", &[]),
            ("lv", &["crypt0"]),
            ("raid", &["crypt0", "crypt1"]),
            ("half", &["crypt0", "sda"]),
            ("integrity0", &["sda"]),
            ("integrity1", &["crypt0"]),
            ("deep", &["raid", "lv"]),
        ]);
        let encrypted = |name: &str| is_encrypted(&tree.path().join(name), NESTED_MAX);
        for name in ["crypt0", "crypt1/part1", "lv", "raid", "deep", "integrity1"] {
            assert!(encrypted(name), "{name}");
        }
        for name in ["sda", "sda/sda1", "half", "missing", "integrity0"] {
            assert!(!encrypted(name), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_told_is_not_claimed() {
        let scratch = tempfile::tempdir().expect("a directory");
        assert!(!matches!(at_rest(scratch.path()), AtRest::Encrypted(_)), "{:?}", at_rest(scratch.path()));
        assert!(matches!(at_rest(Path::new("/proc")), AtRest::Unknown(why) if why.contains("proc")));
        assert!(matches!(at_rest(&scratch.path().join("missing")), AtRest::Unknown(_)));
    }
}
