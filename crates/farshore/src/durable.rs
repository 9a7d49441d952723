//! Small files that are read and replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a file to be read. A pipe in its place is not waited for: it reads as empty, which none of ours is.
///
/// # Errors
/// What the system says.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let no_wait = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(no_wait).open(path)
}

/// Gives a file this content, mode 0600: a crash at any moment leaves the old content or the new, and once this returns the new.
///
/// # Errors
/// It cannot be written; the old content stands, unless only the flush of its directory failed.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let unfinished = path.with_file_name(name);
    // What somebody has put there under this name leads nowhere.
    let no_link = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let write = || {
        let mut new = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(no_link)
            .open(&unfinished)?;
        new.write_all(content)?;
        new.sync_all()?;
        fs::rename(&unfinished, path)?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    };
    write().inspect_err(|_| _ = fs::remove_file(&unfinished))
}
