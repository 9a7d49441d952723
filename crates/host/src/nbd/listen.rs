//! Listening sockets, made so that nobody else can be listening, and nobody else can get in.

use std::fs::{self, File, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use socket2::{Domain, SockAddr, Socket, Type};

/// Connections the kernel keeps for us between two turns of the accept loop: as many as the system allows (`somaxconn`), which the
/// kernel itself makes of a larger number. Beyond them a client of the socket file is turned away with `EAGAIN`.
const BACKLOG: i32 = i32::MAX;

/// Why there is no listener.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("cannot listen on {path}: another program already serves it; stop that one or choose another path")]
    InUse { path: PathBuf },
    #[error(
        "cannot listen on {path}: the file there is not a socket and is left alone; move it or choose another path"
    )]
    NotASocket { path: PathBuf },
    #[error("cannot listen on {path}: {path}.lock is {what}; only a plain file guards a socket: remove it")]
    NoLock { path: PathBuf, what: &'static str },
    #[error("cannot listen on {path}: {reason}; check that its directory exists and that this user may write to it")]
    Path { path: PathBuf, reason: io::Error },
    #[error("cannot listen on {address}: {reason}; check that the address is this host's and the port is free")]
    Address { address: SocketAddr, reason: io::Error },
}

/// A socket file that is ours for as long as this lives, and is removed with it.
pub(super) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
    /// Held so that no second daemon can take the file for stale between its check and its bind.
    _lock: File,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody may have put another file there since; that one is not ours to remove.
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == self.identity);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the NBD socket file could not be removed");
        }
    }
}

/// Listens on a socket file of mode 0600, replacing one that nobody serves any more.
pub(super) fn unix(path: &Path) -> Result<(std::os::unix::net::UnixListener, SocketFile), ListenError> {
    let lock = lock_beside(path)?;
    remove_stale(path)?;
    bind(path, lock).map_err(|reason| ListenError::Path { path: path.into(), reason })
}

fn bind(path: &Path, lock: File) -> io::Result<(std::os::unix::net::UnixListener, SocketFile)> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // The mode of an unbound socket becomes its file's: no moment with a wider one, and no change of the umask, which
    // belongs to every thread.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let meta = fs::symlink_metadata(path)?;
    let file = SocketFile { path: path.into(), identity: (meta.dev(), meta.ino()), _lock: lock };
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok((std::os::fd::OwnedFd::from(socket).into(), file))
}

/// The lock file stays when the socket goes: removing it would let two daemons lock two different files.
fn lock_beside(path: &Path) -> Result<File, ListenError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let opened = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        // A pipe in its place would be waited for, and a link would lead elsewhere.
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(PathBuf::from(name));
    let no_lock = |what| ListenError::NoLock { path: path.into(), what };
    let file = opened.map_err(|reason| match reason.raw_os_error() {
        Some(libc::ELOOP) => no_lock("a symbolic link"),
        Some(libc::ENXIO) => no_lock("a pipe or a socket"),
        Some(libc::EISDIR) => no_lock("a directory"),
        _ => ListenError::Path { path: path.into(), reason },
    })?;
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return Err(no_lock("no plain file"));
    }
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(ListenError::InUse { path: path.into() }),
        Err(TryLockError::Error(reason)) => Err(ListenError::Path { path: path.into(), reason }),
    }
}

fn remove_stale(path: &Path) -> Result<(), ListenError> {
    let failed = |reason| ListenError::Path { path: path.into(), reason };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(ListenError::NotASocket { path: path.into() });
        }
        Ok(_) => {}
    }
    match knock(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A full backlog belongs to somebody who listens.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(ListenError::InUse { path: path.into() }),
        Err(error) => Err(failed(error)),
        Ok(()) => Err(ListenError::InUse { path: path.into() }),
    }
}

/// Does anybody listen there? Never waits for them to answer.
fn knock(path: &Path) -> io::Result<()> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)
}

/// Listens on a TCP address.
pub(super) fn tcp(address: SocketAddr) -> Result<std::net::TcpListener, ListenError> {
    let open = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        // A restarted daemon must not wait for its predecessor's connections to fade.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    open().map_err(|reason| ListenError::Address { address, reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::inotify;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    fn new_path() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nbd.sock");
        (directory, path)
    }

    #[test]
    fn the_socket_is_private_and_goes_with_its_owner() {
        let (_directory, path) = new_path();
        let (listener, file) = unix(&path).unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        drop((listener, file));
        assert!(!path.exists());
    }

    #[test]
    fn a_second_server_is_refused_and_the_first_keeps_its_socket() {
        let (_directory, path) = new_path();
        let first = unix(&path).unwrap();
        assert!(matches!(unix(&path), Err(ListenError::InUse { .. })));
        UnixStream::connect(&path).unwrap();
        drop(first);
    }

    // proves: P10
    /// A mode that is given after the bind leaves a moment in which others come in, and is a change that the kernel tells of.
    #[test]
    fn the_socket_comes_with_its_mode_and_keeps_it() {
        let (directory, path) = new_path();
        let changes = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&changes, directory.path(), inotify::WatchFlags::ATTRIB).unwrap();
        let open = unix(&path).unwrap();
        assert_eq!(rustix::io::read(&changes, &mut [0; 512]), Err(rustix::io::Errno::AGAIN), "its mode was changed");
        assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        drop(open);
    }

    #[test]
    fn another_program_that_answers_is_not_replaced() {
        let (_directory, path) = new_path();
        let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(matches!(unix(&path), Err(ListenError::InUse { .. })));
        drop(other);
        assert!(unix(&path).is_ok(), "nobody answers any more: the file is stale");
    }

    #[test]
    fn other_files_are_left_alone() {
        let (directory, path) = new_path();
        fs::write(&path, "precious").unwrap();
        assert!(matches!(unix(&path), Err(ListenError::NotASocket { .. })));
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(directory.path().join("elsewhere"), &path).unwrap();
        assert!(matches!(unix(&path), Err(ListenError::NotASocket { .. })));
    }

    /// A pipe there held the start up for ever, without a word.
    #[test]
    fn what_stands_in_the_locks_place_is_named() {
        let (directory, path) = new_path();
        let lock = directory.path().join("nbd.sock.lock");
        let refused = |what: &str| {
            let error = unix(&path).err().expect("refused").to_string();
            assert!(error.contains(&format!("nbd.sock.lock is {what}; only a plain file")), "{error}");
        };
        rustix::fs::mknodat(rustix::fs::CWD, &lock, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        refused("a pipe or a socket");
        let _reader = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&lock).unwrap();
        refused("no plain file");
        fs::remove_file(&lock).unwrap();
        std::os::unix::fs::symlink(directory.path().join("elsewhere"), &lock).unwrap();
        refused("a symbolic link");
        fs::remove_file(&lock).unwrap();
        fs::create_dir(&lock).unwrap();
        refused("a directory");
    }

    #[test]
    fn a_file_put_in_our_place_is_not_removed() {
        let (_directory, path) = new_path();
        let (listener, file) = unix(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another's").unwrap();
        drop((listener, file));
        assert!(path.exists());
    }

    #[test]
    fn a_missing_directory_is_named() {
        let (directory, _) = new_path();
        let path = directory.path().join("missing/nbd.sock");
        let error = unix(&path).err().unwrap().to_string();
        assert!(error.contains("missing/nbd.sock"), "{error}");
    }
}
