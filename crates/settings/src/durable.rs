//! Small files that are read and replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a file to be read. A pipe in its place is not waited for: it reads as empty, which none of ours is. A link is not followed.
///
/// # Errors
/// What the system says.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Gives a file this content, mode 0600: a crash at any moment leaves the old content or the new, and once this returns the new.
///
/// # Errors
/// It cannot be written; the old content stands, unless only the flush of its directory failed.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let unfinished = path.with_file_name(name);
    let write = || {
        // Left by a crash, or put there by somebody: a link would lead elsewhere, and another's file is read by another.
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        new.write_all(content)?;
        new.sync_all()?;
        fs::rename(&unfinished, path)?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    };
    write().inspect_err(|_| _ = fs::remove_file(&unfinished))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    /// With a link there, root overwrote whatever it led to.
    #[test]
    fn what_was_put_in_the_way_is_neither_followed_nor_kept() {
        let directory = tempfile::tempdir().unwrap();
        let (file, victim) = (directory.path().join("link.toml"), directory.path().join("victim"));
        fs::write(&victim, "precious").unwrap();
        let beside = directory.path().join("link.toml.new");
        for make_link in [symlink::<&Path, &Path>, fs::hard_link::<&Path, &Path>] {
            make_link(&victim, &beside).unwrap();
            replace(&file, b"content").unwrap();
            assert_eq!(
                (fs::read(&file).unwrap(), fs::read(&victim).unwrap()),
                (b"content".to_vec(), b"precious".to_vec())
            );
            assert_eq!(fs::symlink_metadata(&file).unwrap().mode() & 0o177_777, 0o100_600);
        }
        let link = directory.path().join("link");
        symlink(&victim, &link).unwrap();
        assert!(open(&link).is_err());
    }
}
