//! Kernels of Debian releases, and modules of theirs in the order in which they are loaded.

use super::output;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's kernel for a release, whichever that is.
const KERNEL: &str = "linux-image-amd64";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

pub struct Kernel {
    pub image: PathBuf,
    pub modules: PathBuf,
}

impl Kernel {
    /// The one of this machine's own release, unpacked beside the build results and used from then on.
    pub fn fetch(folder: &Path) -> Result<Kernel> {
        Kernel::fetch_by(folder, "kernel", || Ok(Vec::new()))
    }

    /// The one of another release.
    pub fn fetch_of(folder: &Path, release: &str) -> Result<Kernel> {
        Kernel::fetch_by(folder, &format!("kernel-{release}"), || look_at_release(folder, release))
    }

    /// `options`: where apt looks.
    fn fetch_by(folder: &Path, name: &str, options: impl FnOnce() -> Result<Vec<String>>) -> Result<Kernel> {
        let unpacked = folder.join(name);
        if let Ok(found) = Kernel::find(&unpacked) {
            return Ok(found);
        }
        fs::create_dir_all(folder)?;
        let options = options()?;
        let depends = output(Command::new("apt-cache").args(&options).args(["depends", KERNEL]))?;
        let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image"));
        let package = format!("linux-image{}", package.with_context(|| format!("apt knows no {KERNEL}"))?);
        let download = folder.join(format!("{name}.download"));
        let _ = fs::remove_dir_all(&download);
        fs::create_dir_all(&download)?;
        output(Command::new("apt-get").args(&options).args(["download", &package]).current_dir(&download))?;
        let archive = fs::read_dir(&download)?.flatten().next();
        let archive = archive.with_context(|| format!("{package} was not downloaded"))?.path();
        // Whole before it has its name: an interrupted run leaves no half of it.
        let unfinished = folder.join(format!("{name}.new"));
        let _ = fs::remove_dir_all(&unfinished);
        output(Command::new("dpkg-deb").arg("-x").args([&archive, &unfinished]))?;
        fs::rename(&unfinished, &unpacked)?;
        fs::remove_dir_all(download)?;
        Kernel::find(&unpacked)
    }

    fn find(unpacked: &Path) -> Result<Kernel> {
        // Debian 13 has everything below /usr.
        let places = ["lib/modules", "usr/lib/modules"].map(|place| unpacked.join(place));
        let place = places.into_iter().find(|place| place.is_dir()).context("it has no modules")?;
        let version = fs::read_dir(&place)?.flatten().map(|entry| entry.file_name()).next();
        let version = version.context("it has no modules")?;
        let image = unpacked.join("boot").join(format!("vmlinuz-{}", version.to_string_lossy()));
        ensure!(image.is_file(), "{} is missing", image.display());
        Ok(Kernel { image, modules: place.join(version).join("kernel") })
    }

    /// Unpacks these modules and what they need into a folder; returns the names of all in the order in which they are loaded.
    pub fn unpack(&self, wanted: &[&str], into: &Path) -> Result<Vec<String>> {
        let mut files = BTreeMap::new();
        collect(&self.modules, &mut files)?;
        let mut done = Vec::new();
        for name in wanted {
            unpack_with_needed(name, &files, into, &mut done)?;
        }
        Ok(done)
    }
}

/// Options that lead apt to a release which this machine does not have on its own list.
fn look_at_release(folder: &Path, release: &str) -> Result<Vec<String>> {
    let home = folder.join(format!("apt-{release}"));
    for place in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(home.join(place))?;
    }
    fs::write(home.join("status"), "")?;
    let mirror = crate::systems::mirror().unwrap_or_else(|| "http://deb.debian.org/debian".to_owned());
    fs::write(home.join("sources.list"), format!("deb [signed-by={KEYRING}] {mirror} {release} main\n"))?;
    let set = |key: &str, value: &Path| ["-o".to_owned(), format!("{key}={}", value.display())];
    let options: Vec<String> = [
        set("Dir::Etc::sourcelist", &home.join("sources.list")),
        set("Dir::Etc::sourceparts", Path::new("/dev/null")),
        set("Dir::State::lists", &home.join("lists")),
        set("Dir::State::status", &home.join("status")),
        set("Dir::Cache", &home.join("cache")),
    ]
    .concat();
    output(Command::new("apt-get").arg("-q").args(&options).arg("update"))?;
    Ok(options)
}

/// The files of all modules below a folder, by the kernel's name of each.
fn collect(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if let Some((name, _)) = entry.file_name().to_string_lossy().split_once(".ko") {
            files.insert(name.replace('-', "_"), path);
        }
    }
    Ok(())
}

fn unpack_with_needed(
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    into: &Path,
    done: &mut Vec<String>,
) -> Result<()> {
    let name = name.replace('-', "_");
    if done.contains(&name) {
        return Ok(());
    }
    let file = files.get(&name).with_context(|| format!("the kernel has no module {name}"))?;
    let bytes = match file.extension().and_then(|ending| ending.to_str()) {
        Some("ko") => fs::read(file)?,
        Some("xz") => {
            let unpacked = Command::new("xz").arg("-dc").arg(file).output().context("xz does not start")?;
            ensure!(unpacked.status.success(), "{} cannot be unpacked", file.display());
            unpacked.stdout
        }
        _ => bail!("{} is packed in a way that is not known here", file.display()),
    };
    for needed in needed_by(&bytes) {
        unpack_with_needed(&needed, files, into, done)?;
    }
    fs::write(into.join(format!("{name}.ko")), bytes)?;
    done.push(name);
    Ok(())
}

/// What a module says of the ones that it needs.
fn needed_by(module: &[u8]) -> Vec<String> {
    let word = b"\0depends=";
    let Some(at) = module.windows(word.len()).position(|window| window == word) else { return Vec::new() };
    let rest = &module[at + word.len()..];
    let list = rest.split(|byte| *byte == 0).next().unwrap_or_default();
    let list = String::from_utf8_lossy(list);
    list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_says_what_it_needs() {
        let needs = needed_by(b"ELF\0license=GPL\0depends=jbd2,crc16,mbcache\0name=ext4\0");
        assert_eq!(needs, ["jbd2", "crc16", "mbcache"]);
        assert!(needed_by(b"ELF\0softdep=pre: crc32c\0depends=\0name=jbd2\0").is_empty());
        assert!(needed_by(b"ELF").is_empty());
    }

    #[test]
    fn what_is_needed_is_loaded_first_and_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let (modules, into) = (folder.path().join("kernel"), folder.path().join("into"));
        fs::create_dir_all(modules.join("fs/ext4")).expect("a folder");
        fs::create_dir_all(&into).expect("a folder");
        for (file, text) in [
            ("fs/ext4/ext4.ko", "\0depends=jbd2,crc16\0"),
            ("fs/jbd2.ko", "\0depends=crc16\0"),
            ("crc16.ko", "\0depends=\0"),
            ("dm-mod.ko", "\0depends=\0"),
            ("fs/README", ""),
        ] {
            fs::write(modules.join(file), text).expect("written");
        }
        let kernel = Kernel { image: PathBuf::new(), modules };
        let order = kernel.unpack(&["ext4", "dm-mod"], &into).expect("all are there");
        assert_eq!(order, ["crc16", "jbd2", "ext4", "dm_mod"]);
        assert!(order.iter().all(|name| into.join(format!("{name}.ko")).is_file()));
        assert!(kernel.unpack(&["xfs"], &into).is_err_and(|error| error.to_string().contains("no module xfs")));
    }
}
