//! Socket options: what replication asks of the kernel, and what the kernel really gave.
//!
//! A refused option is a warning, never the end of a link: a mirror on a container's defaults is slower than it could be
//! and still a mirror. Every option is read back, because the kernel also caps, rounds and ignores in silence. Order
//! matters: buffers decide the window scale in the very first segment and the longest retransmission pause counts from
//! there too, so these stand before connect and listen (accepted sockets inherit them); the rest follows on the connected
//! socket, and the shortest retransmission pause only once both ends are known to want it.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use socket2::SockRef;
use units::size::show_exact;

use crate::socket_option::{SocketOption, read_option, set_option};
use crate::tcp_info::{ControlName, TcpInfo};

// Linux 6.15; not yet named by libc for every target.
/// The largest buffer that a kernel grants, before it doubles it.
const KERNEL_BUFFER_MAX: usize = (i32::MAX / 2) as usize;
const TCP_RTO_MAX_MS: libc::c_int = 44;
const TCP_RTO_MIN_US: libc::c_int = 45;
const SO_BUF_LOCK: libc::c_int = 72;

/// The kernel rounds the shortest retransmission pause up to its tick; the coarsest tick in use is 10 ms.
const TICK_US: u64 = 10_000;
/// From this round trip on, `auto` prefers [`AUTO_CONGESTION`]: nearer by, loss is repaired too fast to matter.
pub const AUTO_ROUND_TRIP: Duration = Duration::from_millis(10);
/// Keeps the rate of a long line under stray loss, and its queue short.
const AUTO_CONGESTION: &str = "bbr";

/// What may stand unsent before the line's rate is known, which is after a second at most: a second at 128 kbit/s.
const UNSENT_BYTES: u32 = 16 << 10;
/// Then what the line carries in this time. The kernel lets us know when half of it is gone, and a busy processor may
/// take some milliseconds to come round; if the line has to wait for us, congestion control also takes its rate for one
/// that we chose, and bbr never leaves its start (on 1 Gbit/s with 128 KiB, which is 1 ms: a fifth was sent twice).
const UNSENT_TIME: Duration = Duration::from_millis(20);
/// A few segments, half a second at 128 kbit/s, as the frame that is under way may take the other half (rule 25); and 20 ms of 1.6 Gbit/s, where the kernel's buffers are the next bound.
const UNSENT_BYTES_MIN: u32 = 8 << 10;
const UNSENT_BYTES_MAX: u32 = 4 << 20;

/// Which congestion control to ask for.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum CongestionChoice {
    /// bbr where the kernel has it and the round trip is long, once the line was full; else the system's.
    #[default]
    Auto,
    System,
    /// From `net.ipv4.tcp_available_congestion_control`.
    Named(String),
}

impl fmt::Display for CongestionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CongestionChoice::Auto => f.pad("auto"),
            CongestionChoice::System => f.pad("system"),
            CongestionChoice::Named(name) => f.pad(name),
        }
    }
}

/// What to ask of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// `None`: the kernel's autotuning, which setting a size switches off.
    pub send_buffer_bytes: Option<usize>,
    pub receive_buffer_bytes: Option<usize>,
    pub congestion: CongestionChoice,
    /// Bytes the kernel may hold unsent before the socket counts as full: the backlog belongs in our queue, where a
    /// heartbeat or an acknowledgement need not wait behind it. `None`: by the line's rate, see [`follow_rate`].
    pub unsent_bytes: Option<u32>,
    /// Sent data unacknowledged for this long breaks the connection (by default the kernel tries for a quarter of an
    /// hour). Also counts while the peer's window stays closed, so it is far above the link timeout.
    pub user_timeout: Duration,
    /// Idle time before the kernel asks whether the peer's machine is there; it asks again at half of it, four times.
    pub keepalive: Duration,
    /// Longest pause between retransmissions: after an outage the first segment goes out within this. The kernel's own
    /// two minutes turned a 20 s outage into 33 s.
    pub rto_max: Option<Duration>,
    /// Shortest pause before a retransmission, asked for when both ends announce one: it must not be shorter than the
    /// peer takes to acknowledge, and setting it shortens that too.
    pub rto_min: Option<Duration>,
    /// Never faster than this, in bytes per second.
    pub pacing: Option<u64>,
    /// Largest segment, for a path that swallows large packets.
    pub segment_bytes: Option<u16>,
    /// Small segments wait for the confirmation of those before: only ever to measure what that costs.
    pub nagle: bool,
}

impl Default for SocketOptions {
    fn default() -> Self {
        SocketOptions {
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
            congestion: CongestionChoice::Auto,
            unsent_bytes: None,
            user_timeout: Duration::from_secs(30),
            keepalive: Duration::from_secs(10),
            rto_max: Some(Duration::from_secs(1)),
            rto_min: None,
            pacing: None,
            segment_bytes: None,
            nagle: false,
        }
    }
}

impl SocketOptions {
    /// The same size for both directions.
    pub fn with_buffers(self, bytes: Option<usize>) -> SocketOptions {
        SocketOptions { send_buffer_bytes: bytes, receive_buffer_bytes: bytes, ..self }
    }

    /// What the greeting announces: the shortest pause wanted, in microseconds; 0 for none.
    pub(crate) fn announced_rto_min_us(&self) -> u32 {
        self.rto_min.map_or(0, |pause| u32::try_from(pause.as_micros()).unwrap_or(u32::MAX))
    }
}

/// A socket buffer's size, in the kernel's own count: twice what was asked, because it counts its bookkeeping with the
/// bytes. About 0.62 of it is usable as a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BufferReport {
    /// `None`: left to autotuning.
    pub requested: Option<usize>,
    /// What the kernel began with, before anything was asked.
    pub untouched: usize,
    pub granted_at_creation: usize,
    pub granted_when_connected: usize,
}

/// One option, asked for and read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionReport {
    pub name: &'static str,
    pub requested: u64,
    /// `None`: the kernel does not know it.
    pub granted: Option<u64>,
    option: SocketOption,
}

/// What a connection's socket got of what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SocketReport {
    pub send_buffer: BufferReport,
    pub receive_buffer: BufferReport,
    pub congestion_requested: CongestionChoice,
    /// Name in use; empty when the kernel would not say.
    pub congestion: String,
    /// In the order they were set.
    pub options: Vec<OptionReport>,
    /// One sentence for each refused option.
    pub warnings: Vec<String>,
    /// The same of what nobody asked for and the kernel does not know: nothing to be done about.
    pub notes: Vec<String>,
}

impl fmt::Display for SocketReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, buffer) in [("send", self.send_buffer), ("receive", self.receive_buffer)] {
            let requested = buffer.requested.map_or("auto".to_owned(), |bytes| bytes.to_string());
            let (created, connected) = (buffer.granted_at_creation, buffer.granted_when_connected);
            write!(f, "{name} buffer requested {requested}, granted {created}, connected {connected}; ")?;
        }
        write!(f, "congestion control {}", self.congestion)?;
        for option in &self.options {
            let granted = option.granted.map_or("refused".to_owned(), |granted| granted.to_string());
            write!(f, "; {} {} -> {granted}", option.name, option.requested)?;
        }
        Ok(())
    }
}

/// An option that is one number.
struct OptionRequest {
    name: &'static str,
    option: SocketOption,
    value: u64,
    /// The kernel may round up by so much; `None`: it answers something else until the connection is made.
    slack: Option<u64>,
    /// Where to look when it is refused.
    hint: &'static str,
    /// Nobody asked for it: it is what we ask of every socket.
    is_default: bool,
}

impl OptionRequest {
    fn tcp(name: &'static str, option: libc::c_int, value: u64, hint: &'static str) -> OptionRequest {
        OptionRequest { name, option: (libc::IPPROTO_TCP, option), value, slack: Some(0), hint, is_default: false }
    }
}

/// What stands before connect and listen.
fn early_requests(options: &SocketOptions) -> Vec<OptionRequest> {
    let rto_max = options.rto_max.map(|pause| {
        let hint = "the option needs Linux 6.15; net.ipv4.tcp_rto_max_ms sets it for the whole system";
        let is_default = options.rto_max == SocketOptions::default().rto_max;
        OptionRequest {
            is_default,
            ..OptionRequest::tcp("TCP_RTO_MAX_MS", TCP_RTO_MAX_MS, pause.as_millis() as u64, hint)
        }
    });
    let segment = options.segment_bytes.map(|bytes| OptionRequest {
        slack: None,
        ..OptionRequest::tcp("TCP_MAXSEG", libc::TCP_MAXSEG, u64::from(bytes), "see the MTU of the route (ip route)")
    });
    rto_max.into_iter().chain(segment).collect()
}

/// What is asked of the connected socket.
fn late_requests(options: &SocketOptions) -> Vec<OptionRequest> {
    let idle = options.keepalive.as_secs().max(1);
    let keepalive = |name, option, value, hint| OptionRequest::tcp(name, option, value, hint);
    let mut requests = vec![
        OptionRequest::tcp(
            "TCP_NODELAY",
            libc::TCP_NODELAY,
            u64::from(!options.nagle),
            "small frames may wait for 40 ms",
        ),
        OptionRequest {
            option: (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
            ..keepalive("SO_KEEPALIVE", 0, 1, "a peer whose machine is gone is found by silence alone")
        },
        keepalive("TCP_KEEPIDLE", libc::TCP_KEEPIDLE, idle, "see net.ipv4.tcp_keepalive_time"),
        keepalive("TCP_KEEPINTVL", libc::TCP_KEEPINTVL, idle.div_ceil(2), "see net.ipv4.tcp_keepalive_intvl"),
        keepalive("TCP_KEEPCNT", libc::TCP_KEEPCNT, 4, "see net.ipv4.tcp_keepalive_probes"),
        OptionRequest::tcp(
            "TCP_USER_TIMEOUT",
            libc::TCP_USER_TIMEOUT,
            options.user_timeout.as_millis() as u64,
            "net.ipv4.tcp_retries2 bounds it for the whole system",
        ),
        OptionRequest::tcp(
            "TCP_NOTSENT_LOWAT",
            libc::TCP_NOTSENT_LOWAT,
            u64::from(options.unsent_bytes.unwrap_or(UNSENT_BYTES)),
            "net.ipv4.tcp_notsent_lowat sets it for the whole system",
        ),
    ];
    requests.extend(options.pacing.map(|rate| OptionRequest {
        name: "SO_MAX_PACING_RATE",
        option: (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE),
        value: rate,
        slack: Some(0),
        hint: "the queueing discipline fq (net.core.default_qdisc) paces best",
        is_default: false,
    }));
    requests
}

impl SocketReport {
    fn ask(&mut self, socket: BorrowedFd<'_>, request: &OptionRequest) {
        let set = set_option(socket, request.option, request.value);
        self.note_result(request, set, read_option(socket, request.option).ok());
    }

    fn note_result(&mut self, request: &OptionRequest, set: io::Result<()>, granted: Option<u64>) {
        let OptionRequest { name, option, value, slack, hint, is_default } = *request;
        let is_kept = |granted| slack.is_none_or(|slack| (value..=value.saturating_add(slack)).contains(&granted));
        match (set, granted) {
            (Err(error), _) if is_default && error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                self.notes.push(format!("this kernel has no {name}; the link works without it ({hint})"));
            }
            (Err(error), _) => self
                .warnings
                .push(format!("the kernel refused {name} = {value}: {error}; the link works without it ({hint})")),
            (Ok(()), Some(granted)) if !is_kept(granted) => {
                self.warnings.push(format!("the kernel gave {name} = {granted} where {value} was asked ({hint})"));
            }
            _ => {}
        }
        self.options.push(OptionReport { name, requested: value, granted, option });
    }

    /// Options that must stand before connect or listen.
    pub(super) fn prepare(&mut self, socket: BorrowedFd<'_>, options: &SocketOptions) {
        self.congestion_requested = options.congestion.clone();
        if let CongestionChoice::Named(name) = &options.congestion {
            self.ask_congestion(socket, name);
        }
        for request in early_requests(options) {
            self.ask(socket, &request);
        }
        self.send_buffer.untouched = buffer(socket, libc::SO_SNDBUF);
        self.receive_buffer.untouched = buffer(socket, libc::SO_RCVBUF);
        if let Some(bytes) = options.send_buffer_bytes {
            let send = [libc::SO_SNDBUFFORCE, libc::SO_SNDBUF];
            self.ask_buffer(socket, "send", send, bytes, "net.core.wmem_max");
        }
        if let Some(bytes) = options.receive_buffer_bytes {
            let receive = [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF];
            self.ask_buffer(socket, "receive", receive, bytes, "net.core.rmem_max");
        }
        self.send_buffer.requested = options.send_buffer_bytes;
        self.receive_buffer.requested = options.receive_buffer_bytes;
        self.send_buffer.granted_at_creation = buffer(socket, libc::SO_SNDBUF);
        self.receive_buffer.granted_at_creation = buffer(socket, libc::SO_RCVBUF);
    }

    /// Options of a connected socket, then everything read back.
    pub(super) fn finish(&mut self, socket: BorrowedFd<'_>, options: &SocketOptions) {
        for request in late_requests(options) {
            self.ask(socket, &request);
        }
        self.congestion = ControlName::of(socket).to_string();
        self.send_buffer.granted_when_connected = buffer(socket, libc::SO_SNDBUF);
        self.receive_buffer.granted_when_connected = buffer(socket, libc::SO_RCVBUF);
        // An accepted socket has its early options from the listener.
        for option in &mut self.options {
            option.granted = read_option(socket, option.option).ok();
        }
    }

    /// The shortest retransmission pause, once the greeting told what the peer wants: the longer of both, or none.
    pub(super) fn agree(&mut self, socket: BorrowedFd<'_>, ours_us: u32, theirs_us: u32) {
        match (ours_us, theirs_us) {
            (0, _) => {}
            (_, 0) => self.warnings.push(
                "min_rto is not used: the other node does not announce it, and its acknowledgements may be later than \
                 that; set it on both nodes, which need Linux 6.15 for it"
                    .to_owned(),
            ),
            (ours, theirs) => {
                let hint = "the option needs Linux 6.15; net.ipv4.tcp_rto_min_us sets it for the whole system";
                let value = u64::from(ours.max(theirs));
                let request = OptionRequest::tcp("TCP_RTO_MIN_US", TCP_RTO_MIN_US, value, hint);
                self.ask(socket, &OptionRequest { slack: Some(TICK_US), ..request });
            }
        }
    }

    fn ask_congestion(&mut self, socket: BorrowedFd<'_>, name: &str) {
        let Err(error) = SockRef::from(&socket).set_tcp_congestion(name.as_bytes()) else { return };
        let hint = match error.raw_os_error() {
            Some(libc::EPERM) => "allow it in net.ipv4.tcp_allowed_congestion_control",
            _ => "load its module; net.ipv4.tcp_available_congestion_control lists what there is",
        };
        self.warnings.push(format!(
            "the kernel refused congestion control {name:?}: {error}; the connection has the system's ({hint})"
        ));
    }

    /// The privileged form first: it may pass the system's bound.
    fn ask_buffer(
        &mut self,
        socket: BorrowedFd<'_>,
        which: &str,
        [forced, plain]: [libc::c_int; 2],
        bytes: usize,
        sysctl: &str,
    ) {
        let ask = |option| set_option(socket, (libc::SOL_SOCKET, option), bytes as u64);
        if let Err(error) = ask(forced).or_else(|_| ask(plain)) {
            self.warnings.push(format!(
                "the kernel refused a {which} buffer of {}: {error} (see {sysctl})",
                show_exact(bytes as u64)
            ));
            return;
        }
        let granted = buffer(socket, plain);
        // It counts its bookkeeping with the bytes, so it doubles what is asked, in a C int.
        if granted < bytes.min(KERNEL_BUFFER_MAX).saturating_mul(2) {
            let half = granted / 2;
            self.warnings.push(format!(
                "the kernel granted a {which} buffer of {} where {} was asked (it shows {granted}, twice that, as it counts its \
                 bookkeeping too): raise {sysctl} to {bytes} on this node",
                show_exact(half as u64),
                show_exact(bytes as u64)
            ));
        }
    }
}

/// What `auto` takes on a full line. A kernel that has it not, or does not let us, keeps the system's; that is what `auto` means.
pub(super) fn take_auto_congestion(socket: BorrowedFd<'_>) {
    let _ = SockRef::from(&socket).set_tcp_congestion(AUTO_CONGESTION.as_bytes());
}

/// Lets as much stand unsent as the line carries in [`UNSENT_TIME`], by the last look at it.
pub(super) fn follow_rate(socket: BorrowedFd<'_>, info: &TcpInfo) {
    let bytes = unsent_bytes(info);
    if bytes != info.unsent_limit_bytes {
        // Refused, it stays as it is, as every look shows.
        let _ = set_option(socket, (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT), bytes.into());
    }
}

/// A rate that we chose ourselves is no reason to hold less ready.
fn unsent_bytes(info: &TcpInfo) -> u32 {
    let carried = u128::from(info.delivery_bytes_per_s) * UNSENT_TIME.as_nanos() / 1_000_000_000;
    let bytes = u32::try_from(carried).unwrap_or(u32::MAX).clamp(UNSENT_BYTES_MIN, UNSENT_BYTES_MAX);
    if info.app_limited { bytes.max(info.unsent_limit_bytes) } else { bytes }
}

/// What a new socket has before anything is asked of it, so that a listener can go back there.
#[derive(Clone, Debug)]
pub(super) struct SocketDefaults {
    send_bytes: usize,
    receive_bytes: usize,
    congestion: Vec<u8>,
}

impl SocketDefaults {
    pub fn of(socket: BorrowedFd<'_>) -> SocketDefaults {
        SocketDefaults {
            send_bytes: buffer(socket, libc::SO_SNDBUF),
            receive_bytes: buffer(socket, libc::SO_RCVBUF),
            congestion: SockRef::from(&socket).tcp_congestion().unwrap_or_default(),
        }
    }

    /// Takes back what [`SocketReport::prepare`] may have set and what new options may leave out.
    ///
    /// # Errors
    /// The kernel refuses some of it; that then stays as it is.
    pub fn restore(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let name = self.congestion.split(|byte| *byte == 0).next().unwrap_or_default();
        let size = |option, bytes| set_option(socket, (libc::SOL_SOCKET, option), (bytes / 2) as u64);
        let steps = [
            size(libc::SO_SNDBUF, self.send_bytes),
            size(libc::SO_RCVBUF, self.receive_bytes),
            // Setting a size pins it: this lets the kernel tune again.
            set_option(socket, (libc::SOL_SOCKET, SO_BUF_LOCK), 0),
            SockRef::from(&socket).set_tcp_congestion(name),
        ];
        steps.into_iter().collect()
    }
}

fn buffer(socket: BorrowedFd<'_>, option: libc::c_int) -> usize {
    read_option(socket, (libc::SOL_SOCKET, option)).map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;
    use crate::tcp_info::unsent_limit;

    /// A connected socket with these options, and what was said of it.
    fn tuned(options: &SocketOptions) -> (TcpStream, SocketReport) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let mut report = SocketReport::default();
        report.prepare(socket.as_fd(), options);
        report.finish(socket.as_fd(), options);
        (socket, report)
    }

    fn granted(report: &SocketReport, name: &str) -> Option<u64> {
        report.options.iter().find(|option| option.name == name).expect(name).granted
    }

    #[test]
    fn every_option_is_read_back_as_asked() {
        let options = SocketOptions {
            send_buffer_bytes: Some(100_000),
            receive_buffer_bytes: Some(100_000),
            unsent_bytes: Some(65_536),
            user_timeout: Duration::from_secs(21),
            keepalive: Duration::from_secs(7),
            pacing: Some(12_500_000_000),
            ..SocketOptions::default()
        };
        let (socket, report) = tuned(&options);
        for (name, value) in [
            ("TCP_NODELAY", 1),
            ("SO_KEEPALIVE", 1),
            ("TCP_KEEPIDLE", 7),
            ("TCP_KEEPINTVL", 4),
            ("TCP_KEEPCNT", 4),
            ("TCP_USER_TIMEOUT", 21_000),
            ("TCP_NOTSENT_LOWAT", 65_536),
            // Above 4 GiB/s: eight bytes wide.
            ("SO_MAX_PACING_RATE", 12_500_000_000),
        ] {
            assert_eq!(granted(&report, name), Some(value), "{name}: {report}");
        }
        assert_eq!(SockRef::from(&socket).tcp_user_timeout().expect("read"), Some(options.user_timeout));
        for buffer in [report.send_buffer, report.receive_buffer] {
            assert_eq!(buffer.requested, Some(100_000));
            assert_eq!(buffer.granted_when_connected, 200_000, "the kernel doubles: {report}");
        }
        assert!(!report.congestion.is_empty());
        assert!(report.warnings.is_empty(), "{:?}", report.warnings);
    }

    /// Each kernel before 6.15, at each connection, warned of what nobody had asked for.
    #[test]
    fn a_default_that_the_kernel_does_not_know_is_no_warning() {
        for (pause_s, errno, warns) in
            [(1, libc::ENOPROTOOPT, false), (2, libc::ENOPROTOOPT, true), (1, libc::EINVAL, true)]
        {
            let options = SocketOptions { rto_max: Some(Duration::from_secs(pause_s)), ..SocketOptions::default() };
            let request = early_requests(&options).into_iter().next().expect("the longest pause");
            let mut report = SocketReport::default();
            report.note_result(&request, Err(io::Error::from_raw_os_error(errno)), None);
            assert_eq!((report.warnings.len(), report.notes.len()), (warns.into(), (!warns).into()), "{report:?}");
            let said = [report.warnings, report.notes].concat();
            assert!(said[0].contains("TCP_RTO_MAX_MS") && said[0].contains("net.ipv4.tcp_rto_max_ms"), "{said:?}");
        }
    }

    #[test]
    fn what_the_kernel_has_not_is_a_warning_that_names_the_sysctl() {
        let options =
            SocketOptions { congestion: CongestionChoice::Named("no-such-thing".into()), ..SocketOptions::default() };
        let (_, report) = tuned(&options);
        let has_warning = |words: &str| report.warnings.iter().any(|warning| warning.contains(words));
        assert!(
            has_warning("no-such-thing") && has_warning("net.ipv4.tcp_available_congestion_control"),
            "{:?}",
            report.warnings
        );
        assert!(!report.congestion.is_empty(), "the system's is in use");
    }

    #[test]
    fn a_value_the_kernel_caps_is_reported() {
        let (socket, _) = tuned(&SocketOptions::default());
        let mut report = SocketReport::default();
        // The plain form twice: what a daemon without privileges gets.
        let plain = [libc::SO_RCVBUF, libc::SO_RCVBUF];
        report.ask_buffer(socket.as_fd(), "receive", plain, 1 << 30, "net.core.rmem_max");
        let warning = report.warnings.first().expect("a gigabyte is past any net.core.rmem_max");
        assert!(warning.contains("raise net.core.rmem_max to 1073741824"), "{warning}");
    }

    #[test]
    fn the_shortest_pause_needs_both_ends() {
        let (socket, mut report) = tuned(&SocketOptions::default());
        let before = report.clone();
        report.agree(socket.as_fd(), 0, 40_000);
        assert_eq!(report, before, "not wanted here");
        report.agree(socket.as_fd(), 20_000, 0);
        assert!(report.warnings.last().is_some_and(|warning| warning.contains("does not announce")), "{report}");
        report.agree(socket.as_fd(), 20_000, 40_000);
        if granted(&report, "TCP_RTO_MIN_US").is_none() {
            assert!(report.warnings.iter().any(|warning| warning.contains("net.ipv4.tcp_rto_min_us")), "{report}");
            return;
        }
        let us = granted(&report, "TCP_RTO_MIN_US").expect("looked at above");
        assert!((40_000..=50_000).contains(&us), "the longer of both, in whole ticks: {us}");
    }

    // proves: rule 25
    #[test]
    fn what_stands_unsent_follows_the_rate() {
        let at = |mbit: u64, app_limited, unsent_limit_bytes| {
            unsent_bytes(&TcpInfo {
                delivery_bytes_per_s: mbit * 125_000,
                app_limited,
                unsent_limit_bytes,
                ..TcpInfo::default()
            })
        };
        for (mbit, bytes) in [(0, 8 << 10), (1, 8 << 10), (100, 250_000), (1000, 2_500_000), (10_000, 4 << 20)] {
            assert_eq!(at(mbit, false, UNSENT_BYTES), bytes, "{mbit} Mbit/s");
        }
        // On the slowest line a heartbeat waits for that and for the frame that is under way: a second.
        let waits_s = (f64::from(at(0, false, 0)) + engine::limits::part_bytes(Some(16_000)) as f64) / 16_000.0;
        assert!(waits_s < 1.05, "{waits_s} s");
        // A rate of our own choosing may raise it and does not lower it.
        assert_eq!((at(1, true, UNSENT_BYTES), at(1000, true, UNSENT_BYTES)), (UNSENT_BYTES, 2_500_000));
        let (socket, _) = tuned(&SocketOptions::default());
        assert_eq!(unsent_limit(socket.as_fd()), UNSENT_BYTES);
        follow_rate(socket.as_fd(), &TcpInfo { delivery_bytes_per_s: 125_000_000, ..TcpInfo::default() });
        assert_eq!(unsent_limit(socket.as_fd()), 2_500_000);
    }

    #[test]
    fn a_listener_goes_back_to_autotuning() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let untouched = SocketDefaults::of(listener.as_fd());
        let pinned = SocketOptions::default().with_buffers(Some(64 << 10));
        SocketReport::default().prepare(listener.as_fd(), &pinned);
        let lock = || read_option(listener.as_fd(), (libc::SOL_SOCKET, SO_BUF_LOCK)).expect("Linux 5.16");
        assert_eq!((lock(), buffer(listener.as_fd(), libc::SO_SNDBUF)), (3, 128 << 10));
        untouched.restore(listener.as_fd()).expect("taken back");
        assert_eq!(lock(), 0);
        assert_eq!(buffer(listener.as_fd(), libc::SO_SNDBUF), untouched.send_bytes);
        assert_eq!(buffer(listener.as_fd(), libc::SO_RCVBUF), untouched.receive_bytes);
    }
}
