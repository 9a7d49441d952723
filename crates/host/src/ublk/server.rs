//! The thread that speaks for the requests of a device: it takes what the kernel asks off the ring, asks the proxy by NBD, and commits the
//! proxy's answers.
//!
//! It waits at one place, for the ring: for the kernel's requests, and for the socket to have something to read. It may wait for the
//! proxy in between, which never waits for it: the proxy reads whatever comes, and keeps as much as all requests have together.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use io_uring::types::Fd;
use io_uring::{IoUring, opcode, squeue};

use super::abi::{COMMIT_AND_FETCH, Descriptor, DeviceInfo, FETCH, NO_MORE, SECTOR_BYTES, operation, request_command};
use super::control::no_ring;
use super::memory::{Descriptors, RequestMemory};
use super::server_path;
use crate::nbd::kernel::survive_memory_shortage;
use crate::nbd::proto::{self, Errno, NbdCommand, NbdRequest, flag};

/// Told of the socket; tags have smaller numbers.
const SOCKET: u64 = 1 << 32;
/// Sent to the proxy at once.
const SEND_BYTES: usize = 256 << 10;
/// Read from it at once.
const RECEIVE_BYTES: usize = 256 << 10;
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// A device's requests are served, until the device is stopped.
pub struct UblkServer(JoinHandle<io::Result<()>>);

impl UblkServer {
    /// Serves a device that was added, or whose recovery was begun: `proxy` is read and written as the kernel's NBD client would. Returns
    /// when the device can be started.
    ///
    /// # Errors
    /// The kernel's own: somebody else serves the device.
    pub fn start(device: &DeviceInfo, proxy: UnixStream) -> io::Result<UblkServer> {
        let device = *device;
        let (tell, armed) = mpsc::channel();
        let thread = Builder::new().name("ublk".into()).spawn(move || serve(&device, proxy, tell))?;
        let server = UblkServer(thread);
        match armed.recv() {
            Ok(()) => Ok(server),
            Err(_) => Err(server.end().err().unwrap_or_else(|| io::Error::other("the device went away"))),
        }
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// Why it ended while there was a device.
    pub fn end(self) -> io::Result<()> {
        self.0.join().unwrap_or_else(|_| Err(io::Error::other("the thread that serves the device broke down")))
    }
}

fn serve(device: &DeviceInfo, proxy: UnixStream, armed: Sender<()>) -> io::Result<()> {
    block_signals();
    survive_memory_shortage();
    let mut server = Server::open(device, proxy)?;
    server.arm()?;
    let _ = armed.send(());
    server.run()
}

/// A signal would let this thread carry out the kernel's work on the ring at a place where older kernels do not expect that.
fn block_signals() {
    // SAFETY: the set is filled before it is used, and the mask is this thread's own.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
}

struct Server {
    /// Before what it works on, so that it goes first.
    ring: IoUring,
    device: File,
    descriptors: Descriptors,
    memory: RequestMemory,
    request_bytes_max: u32,
    proxy: BufReader<UnixStream>,
    /// For the proxy, not yet sent.
    out: Vec<u8>,
    /// By tag: what the proxy was asked, and has not answered.
    asked: Vec<Option<NbdRequest>>,
    /// Tags for which the kernel has no more requests.
    retired: u16,
}

impl Server {
    /// The mapping of the descriptors comes last: before Linux 6.15 the kernel takes no other process for the device's server from then on,
    /// unless all tags were offered. So whatever else may fail is done before.
    fn open(device: &DeviceInfo, proxy: UnixStream) -> io::Result<Server> {
        let depth = device.depth;
        let memory = RequestMemory::map(depth, device.request_bytes_max)?;
        let asked = vec![None; usize::from(depth)];
        let proxy = BufReader::with_capacity(RECEIVE_BYTES, proxy);
        // A command for each tag, and one for the socket.
        let entries = (u32::from(depth) + 1).next_power_of_two();
        let ring: io::Result<IoUring> = IoUring::builder().setup_coop_taskrun().setup_single_issuer().build(entries);
        let ring = ring.map_err(no_ring)?;
        let file = File::options().read(true).write(true).open(server_path(device.index))?;
        let descriptors = Descriptors::map(&file, depth)?;
        Ok(Server {
            ring,
            device: file,
            descriptors,
            memory,
            request_bytes_max: device.request_bytes_max,
            proxy,
            out: Vec::new(),
            asked,
            retired: 0,
        })
    }

    /// Offers each tag to the kernel, which is all that it waits for.
    fn arm(&mut self) -> io::Result<()> {
        for tag in 0..self.asked.len() {
            self.order(FETCH, tag as u16, 0);
        }
        while let Err(error) = self.ring.submit() {
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN | libc::EBUSY) => std::thread::sleep(BUSY_PAUSE),
                _ => return Err(error),
            }
        }
        // The kernel has nothing to ask before the device is started, so what is there already was refused.
        if let Some(entry) = self.ring.completion().next() {
            return Err(io::Error::from_raw_os_error(entry.result().abs()));
        }
        self.watch_proxy();
        Ok(())
    }

    fn run(mut self) -> io::Result<()> {
        let mut done = Vec::new();
        while usize::from(self.retired) < self.asked.len() {
            self.enter()?;
            done.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result())));
            for (source, code) in done.drain(..) {
                match (source, code) {
                    (SOCKET, 0..) => {
                        self.take_answers()?;
                        self.watch_proxy();
                    }
                    (SOCKET, code) => return Err(io::Error::from_raw_os_error(-code)),
                    (tag, 0) => self.take_request(tag as u16)?,
                    (_, NO_MORE) => self.retired += 1,
                    (tag, code) => {
                        let why = io::Error::from_raw_os_error(-code);
                        return Err(io::Error::new(why.kind(), format!("the kernel refuses request {tag}: {why}")));
                    }
                }
            }
            self.send()?;
        }
        let goodbye = NbdRequest { flags: 0, command: NbdCommand::Disconnect, handle: 0, offset: 0, length: 0 };
        self.out.extend_from_slice(&proto::encode_request(&goodbye));
        self.send()?;
        // The ring may keep the socket open a little longer.
        let _ = self.proxy.get_ref().shutdown(Shutdown::Write);
        Ok(())
    }

    /// Hands over what is to be handed over, and waits until something is done.
    fn enter(&mut self) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => return Ok(()),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN | libc::EBUSY) => {
                        if !self.ring.completion().is_empty() {
                            return Ok(());
                        }
                        std::thread::sleep(BUSY_PAUSE);
                    }
                    _ => return Err(error),
                },
            }
        }
    }

    fn order(&mut self, number: u32, tag: u16, result: i32) {
        let command = request_command(tag, result, self.memory.address(tag));
        let entry = opcode::UringCmd16::new(Fd(self.device.as_raw_fd()), number).cmd(command).build();
        self.push(&entry.user_data(tag.into()));
    }

    fn watch_proxy(&mut self) {
        let socket = Fd(self.proxy.get_ref().as_raw_fd());
        self.push(&opcode::PollAdd::new(socket, libc::POLLIN as u32).build().user_data(SOCKET));
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the memory of a tag stays mapped as long as the process lives, a poll has none, and both descriptors are open for as long
        // as the ring is there.
        unsafe { self.ring.submission().push(entry) }.expect("each tag and the socket have one entry at a time");
    }

    fn take_request(&mut self, tag: u16) -> io::Result<()> {
        let Some(request) = request_of(tag, &self.descriptors.read(tag), self.request_bytes_max) else {
            self.order(COMMIT_AND_FETCH, tag, -libc::EOPNOTSUPP);
            return Ok(());
        };
        self.out.extend_from_slice(&proto::encode_request(&request));
        if request.command == NbdCommand::Write {
            self.out.extend_from_slice(self.memory.bytes(tag, request.length as usize));
        }
        self.asked[usize::from(tag)] = Some(request);
        if self.out.len() >= SEND_BYTES { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> io::Result<()> {
        self.proxy.get_ref().write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// As many as have arrived. What is missing of the last comes at once.
    fn take_answers(&mut self) -> io::Result<()> {
        loop {
            let mut head = [0; proto::SIMPLE_REPLY_BYTES];
            self.proxy.read_exact(&mut head)?;
            let (handle, error) =
                proto::parse_simple_reply(&head).map_err(|malformed| io::Error::other(malformed.0))?;
            let tag = u16::try_from(handle).ok().filter(|tag| usize::from(*tag) < self.asked.len());
            let asked = tag.and_then(|tag| self.asked[usize::from(tag)].take().map(|request| (tag, request)));
            let (tag, request) = asked.ok_or_else(|| io::Error::other("an answer to what was not asked"))?;
            if error.is_none() && request.command == NbdCommand::Read {
                self.proxy.read_exact(self.memory.bytes_mut(tag, request.length as usize))?;
            }
            self.order(COMMIT_AND_FETCH, tag, result_of(&request, error));
            if self.proxy.buffer().len() < proto::SIMPLE_REPLY_BYTES {
                return Ok(());
            }
        }
    }
}

/// `None`: nothing that NBD has a word for, or that was agreed on.
fn request_of(tag: u16, asked: &Descriptor, bytes_max: u32) -> Option<NbdRequest> {
    let flag_for = |kernels: u32, ours: u16| if asked.operation & kernels != 0 { ours } else { 0 };
    let fua = flag_for(operation::FUA, flag::FUA);
    let (command, flags) = match asked.operation & operation::MASK {
        operation::READ => (NbdCommand::Read, 0),
        operation::WRITE => (NbdCommand::Write, fua),
        // Of no place.
        operation::FLUSH => {
            return Some(NbdRequest { flags: 0, command: NbdCommand::Flush, handle: tag.into(), offset: 0, length: 0 });
        }
        operation::DISCARD => (NbdCommand::Trim, fua),
        operation::WRITE_ZEROES => (NbdCommand::WriteZeroes, fua | flag_for(operation::KEEP_SPACE, flag::NO_HOLE)),
        _ => return None,
    };
    let offset = asked.first_sector.checked_mul(SECTOR_BYTES.into())?;
    let length = asked.sectors.checked_mul(SECTOR_BYTES)?;
    let has_bytes = matches!(command, NbdCommand::Read | NbdCommand::Write);
    (!has_bytes || length <= bytes_max).then_some(NbdRequest { flags, command, handle: tag.into(), offset, length })
}

/// What the kernel is told: how many bytes were carried, or the only error that its own NBD client knows.
fn result_of(request: &NbdRequest, error: Option<Errno>) -> i32 {
    match (error, request.command) {
        (Some(_), _) => -libc::EIO,
        (None, NbdCommand::Read | NbdCommand::Write) => request.length as i32,
        (None, _) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ublk::REQUEST_BYTES_MAX;

    fn asked(operation: u32, first_sector: u64, sectors: u32) -> Option<NbdRequest> {
        request_of(5, &Descriptor { operation, sectors, first_sector, address: 0 }, REQUEST_BYTES_MAX)
    }

    /// A helper was short of memory when it took a device over, and the kernel refused each later one.
    #[test]
    fn what_may_fail_is_done_before_the_kernel_knows_the_server() {
        // More memory than there are addresses, for a device that is not there.
        let device =
            DeviceInfo { index: u32::MAX, depth: u16::MAX, request_bytes_max: u32::MAX, ..DeviceInfo::default() };
        let (proxy, _kernel) = UnixStream::pair().expect("a pair");
        let refused = Server::open(&device, proxy).err().expect("there is no room");
        assert_eq!(refused.raw_os_error(), Some(libc::ENOMEM), "{refused}");
    }

    #[test]
    fn what_the_kernel_asks_is_asked_by_nbd() {
        let request = |command, flags, offset, length| Some(NbdRequest { flags, command, handle: 5, offset, length });
        for (found, wanted) in [
            (asked(operation::READ, 8, 8), request(NbdCommand::Read, 0, 4096, 4096)),
            (asked(operation::WRITE, 1, 2), request(NbdCommand::Write, 0, 512, 1024)),
            (asked(operation::WRITE | operation::FUA, 0, 1), request(NbdCommand::Write, flag::FUA, 0, 512)),
            // The kernel says a place of a flush that is none.
            (asked(operation::FLUSH, u64::MAX, 0), request(NbdCommand::Flush, 0, 0, 0)),
            (asked(operation::DISCARD, 1 << 33, 0x7f_ffff), request(NbdCommand::Trim, 0, 1 << 42, 0xffff_fe00)),
            (asked(operation::WRITE_ZEROES, 0, 8), request(NbdCommand::WriteZeroes, 0, 0, 4096)),
            (
                asked(operation::WRITE_ZEROES | operation::KEEP_SPACE | operation::FUA, 0, 8),
                request(NbdCommand::WriteZeroes, flag::FUA | flag::NO_HOLE, 0, 4096),
            ),
            // Flags that say nothing to a daemon: of metadata, of swapping.
            (asked(operation::READ | 1 << 11 | 1 << 16, 0, 1), request(NbdCommand::Read, 0, 0, 512)),
            (asked(operation::READ, 0, REQUEST_BYTES_MAX / SECTOR_BYTES + 1), None),
            (asked(operation::DISCARD, 0, 0x80_0000), None),
            (asked(operation::READ, u64::MAX, 1), None),
            // Zones.
            (asked(13, 0, 8), None),
        ] {
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn the_kernel_hears_how_much_was_carried() {
        let request = |command| NbdRequest { flags: 0, command, handle: 5, offset: 0, length: 4096 };
        assert_eq!(result_of(&request(NbdCommand::Read), None), 4096);
        assert_eq!(result_of(&request(NbdCommand::Write), None), 4096);
        // Its length may be more than the kernel's number holds.
        assert_eq!(result_of(&request(NbdCommand::Trim), None), 0);
        assert_eq!(result_of(&request(NbdCommand::Flush), None), 0);
        assert_eq!(result_of(&request(NbdCommand::Write), Some(Errno::NoSpace)), -libc::EIO);
    }
}
