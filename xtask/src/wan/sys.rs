//! The system calls nobody wraps for us. Everything unsafe in this crate is here, behind functions
//! that are safe to call.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};

/// Low among the real-time priorities: above all ordinary work, below the kernel's own threads.
const REALTIME_PRIORITY: i32 = 10;

/// Moves the calling thread, and no other, into a new network namespace and returns a handle to it.
/// The namespace lives as long as a handle or a process in it does.
pub fn new_network_namespace() -> io::Result<File> {
    // SAFETY: unshare takes a flag and touches no memory of ours.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    check(result)?;
    File::open("/proc/thread-self/ns/net")
}

/// Opens a TUN device in the calling thread's network namespace: IP packets behind a virtio header,
/// TCP trains and unfinished checksums welcome, reads never block.
pub fn open_tun(interface: &str) -> io::Result<File> {
    let tun =
        File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open("/dev/net/tun")?;
    // SAFETY: ifreq is plain old data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    assert!(interface.len() < request.ifr_name.len(), "an interface name has at most 15 bytes");
    for (target, byte) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *target = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: the descriptor is open and the pointer is to a whole ifreq that outlives the call.
    check(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF as _, &raw const request) })?;
    let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    // SAFETY: this request takes the flags by value.
    check(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(offloads)) })?;
    Ok(tun)
}

/// Makes the calling thread's timers exact, and puts it before ordinary work if we may.
/// Returns whether the latter was permitted.
pub fn make_punctual() -> bool {
    // SAFETY: prctl with this option takes a number; it acts on the calling thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
    let parameters = libc::sched_param { sched_priority: REALTIME_PRIORITY };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the pointer is to a live sched_param; thread 0 is the calling one.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}

/// Makes the command start inside a network namespace.
pub fn start_in_namespace(command: &mut Command, namespace: &File) -> io::Result<()> {
    let namespace = namespace.try_clone()?;
    // SAFETY: between fork and exec the closure only makes one system call on a descriptor it owns.
    unsafe {
        command.pre_exec(move || check(libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET)));
    }
    Ok(())
}

/// Moves the calling thread into a network namespace.
#[cfg(test)]
pub fn enter_namespace(namespace: &File) -> io::Result<()> {
    // SAFETY: setns takes a descriptor, open here, and a number.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// Makes the command end (SIGTERM) when the thread that starts it does, however that comes about.
pub fn end_with_parent(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: between fork and exec the closure only makes system calls that take numbers.
    unsafe {
        command.pre_exec(move || {
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM as libc::c_ulong, 0, 0, 0))?;
            // The parent may have died before the wish was made.
            if libc::getppid() as u32 != parent {
                return Err(io::Error::from_raw_os_error(libc::ECHILD));
            }
            Ok(())
        });
    }
}

static SIGNAL_PIPE: AtomicI32 = AtomicI32::new(-1);

/// From here on SIGINT, SIGTERM, SIGHUP and SIGQUIT arrive as bytes (their number) in the returned pipe.
/// Programs started later get the default handling back. At most once per process.
pub fn signals_as_bytes() -> io::Result<File> {
    let mut ends = [0; 2];
    // SAFETY: the pointer is to two integers, as pipe2 wants.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
    // SAFETY: pipe2 has just given us this descriptor and nobody else owns it.
    let read_end = File::from(unsafe { OwnedFd::from_raw_fd(ends[0]) });
    let previous = SIGNAL_PIPE.swap(ends[1], Ordering::SeqCst);
    assert_eq!(previous, -1, "signals are taken over once");
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: sigaction is plain old data for which all zeroes is a valid value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = note_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the action is complete and its handler only does what a handler may.
        check(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) })?;
    }
    Ok(read_end)
}

extern "C" fn note_signal(signal: libc::c_int) {
    let byte = signal as u8;
    // SAFETY: errno is a thread-local integer; write is allowed in a handler and the byte is live.
    // errno is put back because the interrupted code may be about to read it.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(SIGNAL_PIPE.load(Ordering::SeqCst), (&raw const byte).cast(), 1);
        *libc::__errno_location() = errno;
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
