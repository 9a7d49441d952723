//! TCP as replication wants it: options asked for, and what the kernel really granted.
//!
//! A refused option is a warning, never the end of a link: a mirror on a container's defaults is slower than it could be
//! and still a mirror. Order matters: buffers decide the window scale in the very first segment, so they are set before
//! connect and listen (accepted sockets inherit them).

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Linux 6.15; not yet named by libc for every target.
const TCP_RTO_MAX_MS: libc::c_int = 44;
/// Connections that may wait in the kernel to be accepted: every peer at once, and some strangers.
const BACKLOG: i32 = 128;

/// What to ask of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// `None`: the kernel's autotuning, which setting a size switches off.
    pub send_buffer_bytes: Option<usize>,
    pub receive_buffer_bytes: Option<usize>,
    /// `None`: the system's. Otherwise a name from `net.ipv4.tcp_available_congestion_control`.
    pub congestion: Option<String>,
    /// Bytes the kernel may hold unsent before the socket counts as full: the backlog belongs in our queue, where a
    /// heartbeat or an acknowledgement need not wait behind it. Same throughput as without, measured.
    pub unsent_bytes: u32,
    /// Sent data unacknowledged for this long breaks the connection (by default the kernel tries for a quarter of an
    /// hour). Also counts while the peer's window stays closed, so it is far above the link timeout.
    pub user_timeout: Duration,
    pub keepalive_idle: Duration,
    pub keepalive_every: Duration,
    pub keepalive_count: u32,
    /// Longest pause between retransmissions: after an outage the first segment goes out within this. The kernel's own
    /// two minutes turned a 20 s outage into 33 s.
    pub rto_max: Option<Duration>,
}

impl Default for SocketOptions {
    fn default() -> Self {
        SocketOptions {
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
            congestion: None,
            unsent_bytes: 128 << 10,
            user_timeout: Duration::from_secs(30),
            keepalive_idle: Duration::from_secs(10),
            keepalive_every: Duration::from_secs(5),
            keepalive_count: 4,
            rto_max: Some(Duration::from_secs(1)),
        }
    }
}

/// A socket buffer's size, in the kernel's own count (which includes its bookkeeping: about 0.62 of it is usable window).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BufferReport {
    /// `None`: left to autotuning.
    pub requested: Option<usize>,
    pub granted_at_creation: usize,
    pub granted_when_connected: usize,
}

/// What a connection's socket got of what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SocketReport {
    pub send_buffer: BufferReport,
    pub receive_buffer: BufferReport,
    pub congestion_requested: Option<String>,
    /// Name in use; empty when the kernel would not say.
    pub congestion: String,
    pub no_delay: bool,
    /// 0: the kernel would not say.
    pub unsent_bytes: u32,
    pub user_timeout: Option<Duration>,
    /// One sentence for each refused option.
    pub warnings: Vec<String>,
}

impl fmt::Display for SocketReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, buffer) in [("send", self.send_buffer), ("receive", self.receive_buffer)] {
            let requested = buffer.requested.map_or("auto".to_owned(), |bytes| bytes.to_string());
            let (created, connected) = (buffer.granted_at_creation, buffer.granted_when_connected);
            write!(f, "{name} buffer requested {requested}, granted {created}, connected {connected}; ")?;
        }
        write!(f, "congestion control {}", self.congestion)
    }
}

impl SocketReport {
    fn check(&mut self, what: impl fmt::Display, result: io::Result<()>) {
        if let Err(error) = result {
            self.warnings.push(format!("the kernel refused {what}: {error}; the link works without it"));
        }
    }

    /// Options that must stand before connect or listen.
    fn prepare(&mut self, socket: &Socket, options: &SocketOptions) {
        if let Some(name) = &options.congestion {
            let hint = "see net.ipv4.tcp_available_congestion_control and tcp_allowed_congestion_control";
            self.check(
                format_args!("congestion control {name:?} ({hint})"),
                socket.set_tcp_congestion(name.as_bytes()),
            );
        }
        if let Some(limit) = options.rto_max {
            let milliseconds = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
            let set = set_number(socket.as_fd(), libc::IPPROTO_TCP, TCP_RTO_MAX_MS, milliseconds);
            self.check(format_args!("TCP_RTO_MAX_MS {milliseconds} (needs Linux 6.15)"), set);
        }
        if let Some(bytes) = options.send_buffer_bytes {
            let set = set_buffer(socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, bytes);
            self.check(format_args!("a send buffer of {bytes} bytes"), set);
        }
        if let Some(bytes) = options.receive_buffer_bytes {
            let set = set_buffer(socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, bytes);
            self.check(format_args!("a receive buffer of {bytes} bytes"), set);
        }
        self.congestion_requested.clone_from(&options.congestion);
        self.send_buffer.requested = options.send_buffer_bytes;
        self.receive_buffer.requested = options.receive_buffer_bytes;
        self.send_buffer.granted_at_creation = socket.send_buffer_size().unwrap_or_default();
        self.receive_buffer.granted_at_creation = socket.recv_buffer_size().unwrap_or_default();
    }

    /// Options of a connected socket, then everything read back.
    fn finish(&mut self, socket: &SockRef<'_>, options: &SocketOptions) {
        self.check("TCP_NODELAY", socket.set_tcp_nodelay(true));
        let unsent = options.unsent_bytes;
        self.check(format_args!("TCP_NOTSENT_LOWAT {unsent}"), socket.set_tcp_notsent_lowat(unsent));
        self.check("TCP_USER_TIMEOUT", socket.set_tcp_user_timeout(Some(options.user_timeout)));
        let keepalive = TcpKeepalive::new()
            .with_time(options.keepalive_idle)
            .with_interval(options.keepalive_every)
            .with_retries(options.keepalive_count);
        self.check("keepalive", socket.set_tcp_keepalive(&keepalive));
        self.no_delay = socket.tcp_nodelay().unwrap_or_default();
        self.unsent_bytes = socket.tcp_notsent_lowat().unwrap_or_default();
        self.user_timeout = socket.tcp_user_timeout().unwrap_or_default();
        let congestion = socket.tcp_congestion().unwrap_or_default();
        self.congestion = String::from_utf8_lossy(&congestion).trim_end_matches('\0').to_owned();
        self.send_buffer.granted_when_connected = socket.send_buffer_size().unwrap_or_default();
        self.receive_buffer.granted_when_connected = socket.recv_buffer_size().unwrap_or_default();
    }
}

/// The privileged form first: it may pass the system's bound.
fn set_buffer(socket: &Socket, forced: libc::c_int, plain: libc::c_int, bytes: usize) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    set_number(socket.as_fd(), libc::SOL_SOCKET, forced, bytes)
        .or_else(|_| set_number(socket.as_fd(), libc::SOL_SOCKET, plain, bytes))
}

fn set_number(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the descriptor is open for the length of the borrow; the kernel reads `length` bytes of `value`, which
    // lives across the call.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Connects to one address.
pub async fn connect(
    address: SocketAddr,
    options: &SocketOptions,
    timeout: Duration,
) -> io::Result<(TcpStream, SocketReport)> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    let mut report = SocketReport::default();
    report.prepare(&socket, options);
    let connecting = TcpSocket::from_std_stream(socket.into()).connect(address);
    let stream = tokio::time::timeout(timeout, connecting)
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {timeout:?}")))??;
    report.finish(&SockRef::from(&stream), options);
    Ok((stream, report))
}

/// A listening socket and what its accepted sockets inherit.
pub struct Listener {
    listener: TcpListener,
    report: SocketReport,
    options: SocketOptions,
}

impl Listener {
    pub fn bind(address: SocketAddr, options: &SocketOptions) -> io::Result<Listener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_address(true)?;
        let mut report = SocketReport::default();
        report.prepare(&socket, options);
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from_std(socket.into())?;
        Ok(Listener { listener, report, options: options.clone() })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr, SocketReport)> {
        let (stream, address) = self.listener.accept().await?;
        let mut report = self.report.clone();
        report.finish(&SockRef::from(&stream), &self.options);
        Ok((stream, address, report))
    }
}

/// How long to wait before the next attempt: doubling, with a random half taken off so that nodes which lost each other
/// at the same instant do not come back at the same instant.
#[derive(Clone, Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
    seed: u64,
}

impl Backoff {
    pub fn new(min: Duration, max: Duration, seed: u64) -> Backoff {
        assert!(min <= max, "the first pause is the shortest");
        Backoff { min, max, next: min, seed }
    }

    /// The last attempt was good: start over.
    pub fn reset(&mut self) {
        self.next = self.min;
    }

    pub fn pause(&mut self) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(self.max);
        // SplitMix64: a few lines, and quality is no matter here.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        full - full.mul_f64(0.5 * (z >> 11) as f64 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_the_longest_and_start_over() {
        let (min, max) = (Duration::from_millis(100), Duration::from_secs(3));
        let mut backoff = Backoff::new(min, max, 5);
        let mut full = min;
        for _ in 0..10 {
            let pause = backoff.pause();
            assert!(pause >= full / 2 && pause <= full, "{pause:?} of {full:?}");
            full = (full * 2).min(max);
        }
        backoff.reset();
        assert!(backoff.pause() <= min);
        let pauses = |seed| {
            let mut backoff = Backoff::new(min, max, seed);
            (0..5).map(|_| backoff.pause()).collect::<Vec<_>>()
        };
        assert_eq!(pauses(1), pauses(1));
        assert_ne!(pauses(1), pauses(2));
    }

    #[tokio::test]
    async fn options_are_set_read_back_and_refusals_are_sentences() {
        let options = SocketOptions {
            send_buffer_bytes: Some(64 << 10),
            receive_buffer_bytes: Some(128 << 10),
            congestion: Some("no-such-thing".into()),
            ..SocketOptions::default()
        };
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let address = listener.address().unwrap();
        let (dialed, accepted) = tokio::join!(connect(address, &options, Duration::from_secs(5)), async {
            listener.accept().await.unwrap()
        });
        for report in [dialed.unwrap().1, accepted.2] {
            assert_eq!(report.send_buffer.requested, Some(64 << 10));
            assert!(report.send_buffer.granted_at_creation >= 64 << 10, "{report}");
            assert!(report.receive_buffer.granted_when_connected >= 128 << 10, "{report}");
            assert!(report.no_delay && report.unsent_bytes == 128 << 10);
            assert_eq!(report.user_timeout, Some(Duration::from_secs(30)));
            assert!(!report.congestion.is_empty());
            assert!(report.warnings.iter().any(|w| w.contains("no-such-thing")), "{:?}", report.warnings);
        }
    }
}
