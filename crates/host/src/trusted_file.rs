//! Files that are believed: keys, secrets, who is trusted. Read only where nobody else could have put or changed them.
//!
//! The directory is opened first and the file by its handle, so both are what was looked at. Links are not followed to the file: whose
//! file it is would be somebody else's choice. Root may do as it likes anyway, so what is root's is as good as what is ours.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// Bits of a mode that let others write.
const OTHERS_WRITE: u32 = 0o022;
/// Those that let others do anything.
const OTHERS_USE: u32 = 0o077;

/// Who may see a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileContent {
    /// Its owner alone.
    Secret,
    /// Anybody.
    Public,
}

/// Why a file was not read.
#[derive(Debug)]
pub enum FileRefusal {
    /// There is none.
    Missing,
    /// Opening or reading it failed.
    Failed(io::Error),
    /// A sentence: what is wrong with it or its directory, and what to do.
    Unsafe(String),
    /// It is a directory, a pipe, or such.
    NotPlain,
    /// More bytes than asked for.
    TooLong,
}

/// Reads a file of at most `most` bytes; `what` names it in sentences.
///
/// # Errors
/// It is not there, cannot be read, or others could have changed it (or seen it, if it is secret).
pub fn read(path: &Path, what: &str, content: FileContent, most: u64) -> Result<Vec<u8>, FileRefusal> {
    let failed = |errno: Errno| FileRefusal::Failed(errno.into());
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Err(FileRefusal::NotPlain) };
    let directory = open_directory(if above.as_os_str().is_empty() { Path::new(".") } else { above })?;
    // A pipe would be waited for.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let shown = path.display();
    let file = rustix::fs::openat(&directory, name, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT => FileRefusal::Missing,
        Errno::LOOP => FileRefusal::Unsafe(format!("the {what} {shown} is a symbolic link; put the file itself there")),
        Errno::NXIO => FileRefusal::NotPlain,
        other => failed(other),
    })?;
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(FileRefusal::NotPlain);
    }
    if let Some(why) = not_ours(&stat) {
        return Err(FileRefusal::Unsafe(format!("the {what} {shown} {why}; run: chown root {shown}")));
    }
    let mode = stat.st_mode & 0o7777;
    match content {
        FileContent::Secret if mode & OTHERS_USE != 0 => {
            let advice = format!("run: chmod 0600 {shown}");
            return Err(FileRefusal::Unsafe(format!(
                "the {what} {shown} has mode {mode:04o}, so others can use it; {advice}"
            )));
        }
        FileContent::Public if mode & OTHERS_WRITE != 0 => {
            let advice = format!("run: chmod go-w {shown}");
            let sentence = format!("the {what} {shown} has mode {mode:04o}, so others can change it; {advice}");
            return Err(FileRefusal::Unsafe(sentence));
        }
        _ => {}
    }
    // The directory last: what is wrong with the file itself is the better reason.
    is_safe_directory(&directory, above)?;
    let mut bytes = Vec::new();
    File::from(file).take(most + 1).read_to_end(&mut bytes).map_err(FileRefusal::Failed)?;
    if bytes.len() as u64 > most { Err(FileRefusal::TooLong) } else { Ok(bytes) }
}

fn open_directory(path: &Path) -> Result<OwnedFd, FileRefusal> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags | OFlags::PATH, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT => FileRefusal::Missing,
        other => FileRefusal::Failed(other.into()),
    })
}

fn is_safe_directory(directory: &OwnedFd, path: &Path) -> Result<(), FileRefusal> {
    let stat = rustix::fs::fstat(directory).map_err(|errno| FileRefusal::Failed(errno.into()))?;
    wrong_directory(&stat, path).map_or(Ok(()), |why| Err(FileRefusal::Unsafe(why)))
}

/// What is wrong with a directory of this kind, if anything: another's, or one that others may write to.
pub fn wrong_directory(stat: &Stat, path: &Path) -> Option<String> {
    let shown = if path.as_os_str().is_empty() { Path::new(".").display() } else { path.display() };
    let mode = stat.st_mode & 0o7777;
    match not_ours(stat) {
        Some(why) => Some(format!("the directory {shown} {why}; run: chown root {shown}")),
        None if mode & OTHERS_WRITE != 0 => Some(format!(
            "the directory {shown} has mode {mode:04o}, so others can put their own files there; run: chmod go-w {shown}"
        )),
        None => None,
    }
}

/// That something belongs to neither root nor us.
pub fn not_ours(stat: &Stat) -> Option<String> {
    let us = rustix::process::geteuid().as_raw();
    let (whose, ours) = (stat.st_uid, if us == 0 { "root".to_owned() } else { format!("root or user {us}") });
    (whose != 0 && whose != us).then(|| format!("belongs to user {whose}, and only {ours} may have made it"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn refusal(path: &Path, content: FileContent) -> String {
        match read(path, "key", content, 16) {
            Err(FileRefusal::Unsafe(sentence)) => sentence,
            other => panic!("{other:?}"),
        }
    }

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn only_what_nobody_else_could_have_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        assert!(matches!(read(&file, "key", FileContent::Public, 16), Err(FileRefusal::Missing)));
        assert!(matches!(
            read(&directory.path().join("no/file"), "key", FileContent::Public, 16),
            Err(FileRefusal::Missing)
        ));
        fs::write(&file, "sixteen bytes ok").unwrap();
        set(&file, 0o644);
        assert_eq!(read(&file, "key", FileContent::Public, 16).unwrap(), b"sixteen bytes ok");
        assert!(matches!(read(&file, "key", FileContent::Public, 15), Err(FileRefusal::TooLong)));
        assert!(refusal(&file, FileContent::Secret).ends_with(&format!("run: chmod 0600 {}", file.display())));
        for mode in [0o620, 0o602, 0o666] {
            set(&file, mode);
            assert!(refusal(&file, FileContent::Public).contains("so others can change it; run: chmod go-w"));
        }
        set(&file, 0o600);
        set(directory.path(), 0o777);
        assert!(refusal(&file, FileContent::Secret).contains("has mode 0777, so others can put their own files there"));
        set(directory.path(), 0o755);
        assert!(read(&file, "key", FileContent::Secret, 16).is_ok());
        let link = directory.path().join("link");
        symlink(&file, &link).unwrap();
        assert!(refusal(&link, FileContent::Secret).contains("is a symbolic link; put the file itself there"));
        assert!(matches!(read(directory.path(), "key", FileContent::Public, 16), Err(FileRefusal::NotPlain)));
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(matches!(read(&pipe, "key", FileContent::Secret, 16), Err(FileRefusal::NotPlain)));
    }

    #[test]
    fn what_belongs_to_another_user_is_not_read() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can give files away");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "content").unwrap();
        set(&file, 0o600);
        chown(&file, Some(4242), None).unwrap();
        assert!(refusal(&file, FileContent::Secret).contains("belongs to user 4242, and only root may have made it"));
        chown(&file, Some(0), None).unwrap();
        set(directory.path(), 0o755);
        chown(directory.path(), Some(4242), None).unwrap();
        assert!(refusal(&file, FileContent::Secret).starts_with("the directory "));
        chown(directory.path(), Some(0), None).unwrap();
    }
}
