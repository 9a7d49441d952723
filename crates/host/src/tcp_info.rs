//! `TCP_INFO`: what the kernel knows of a connection. A call costs less than a microsecond.
//!
//! The structure grows with the kernel, so it is read by its returned length: what an older kernel does not tell is zero.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use socket2::SockRef;

use crate::socket_option::{read_bytes, read_option};

/// Longer than any kernel's; 280 bytes in Linux 6.18.
const BYTES_MAX: usize = 512;

/// The congestion control that a socket has; empty when the kernel would not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlName {
    /// `TCP_CA_NAME_MAX` of Linux, filled up with zeroes.
    bytes: [u8; 16],
}

impl ControlName {
    pub(super) fn of(socket: BorrowedFd<'_>) -> ControlName {
        ControlName::named(&SockRef::from(&socket).tcp_congestion().unwrap_or_default())
    }

    /// A name that is longer than the kernel's are is cut.
    pub(crate) fn named(name: &[u8]) -> ControlName {
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(name).for_each(|(byte, from)| *byte = *from);
        ControlName { bytes }
    }

    /// Whether it takes loss for the sign of a full line, and sends the less the more is lost.
    pub fn is_loss_based(&self) -> bool {
        ["cubic", "reno"].iter().any(|name| *self == ControlName::named(name.as_bytes()))
    }
}

impl fmt::Display for ControlName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(String::from_utf8_lossy(&self.bytes).trim_end_matches('\0'))
    }
}

/// One look at a connection. Sums count from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Retransmission timeouts in a row without an answer.
    pub backoff: u8,
    pub congestion: ControlName,
    /// The last rate was set by the program, not by the line.
    pub app_limited: bool,
    pub rto_us: u32,
    pub snd_mss: u32,
    pub path_mtu: u32,
    pub rtt_us: u32,
    pub rtt_variation_us: u32,
    /// 0: not measured yet.
    pub rtt_min_us: u32,
    pub cwnd_segments: u32,
    /// Since the peer's last data.
    pub last_received_ms: u32,
    pub unacked_segments: u32,
    pub unsent_bytes: u32,
    /// As much may stand unsent before the socket counts as full.
    pub unsent_limit_bytes: u32,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    pub bytes_retransmitted: u64,
    /// How often the kernel saw segments arrive in another order.
    pub reorderings: u32,
    pub delivery_bytes_per_s: u64,
    pub pacing_bytes_per_s: u64,
    /// What the program allows; 0: any rate.
    pub pacing_bytes_per_s_max: u64,
    /// Time with something to send, and how much of it the peer's window or our buffer stood in the way.
    pub busy_us: u64,
    pub receiver_limited_us: u64,
    pub buffer_limited_us: u64,
    /// Time in which frames waited for the rate allowed: not the kernel's, which does not know it.
    pub held_us: u64,
    /// What the peer lets us send, and we it.
    pub send_window_bytes: u32,
    pub receive_window_bytes: u32,
}

impl TcpInfo {
    /// # Errors
    /// Not a TCP socket.
    pub fn read(socket: BorrowedFd<'_>) -> io::Result<TcpInfo> {
        let mut bytes = [0; BYTES_MAX];
        read_bytes(socket, (libc::IPPROTO_TCP, libc::TCP_INFO), &mut bytes)?;
        // What the kernel did not write is zero, as it was.
        let (unsent_limit_bytes, congestion) = (unsent_limit(socket), ControlName::of(socket));
        Ok(TcpInfo { unsent_limit_bytes, congestion, ..TcpInfo::parse(&bytes) })
    }

    /// `struct tcp_info` of linux/tcp.h, the fields used here.
    fn parse(bytes: &[u8; BYTES_MAX]) -> TcpInfo {
        let narrow = |at: usize| u32::from_ne_bytes(*bytes[at..].first_chunk().expect("a field lies inside"));
        let wide = |at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().expect("a field lies inside"));
        TcpInfo {
            congestion: ControlName::default(),
            backoff: bytes[4],
            app_limited: bytes[7] & 1 == 1,
            rto_us: narrow(8),
            snd_mss: narrow(16),
            unacked_segments: narrow(24),
            last_received_ms: narrow(52),
            path_mtu: narrow(60),
            rtt_us: narrow(68),
            rtt_variation_us: narrow(72),
            cwnd_segments: narrow(80),
            // "None yet", and no bound, is the largest number.
            pacing_bytes_per_s: Some(wide(104)).filter(|rate| *rate != u64::MAX).unwrap_or(0),
            pacing_bytes_per_s_max: Some(wide(112)).filter(|rate| *rate != u64::MAX).unwrap_or(0),
            bytes_acked: wide(120),
            bytes_received: wide(128),
            unsent_bytes: narrow(144),
            unsent_limit_bytes: 0,
            rtt_min_us: Some(narrow(148)).filter(|rtt| *rtt != u32::MAX).unwrap_or(0),
            delivery_bytes_per_s: wide(160),
            busy_us: wide(168),
            receiver_limited_us: wide(176),
            buffer_limited_us: wide(184),
            held_us: 0,
            bytes_sent: wide(200),
            bytes_retransmitted: wide(208),
            reorderings: narrow(220),
            send_window_bytes: narrow(228),
            receive_window_bytes: narrow(232),
        }
    }

    pub fn round_trip(&self) -> Duration {
        Duration::from_micros(u64::from(self.rtt_us))
    }

    pub fn cwnd_bytes(&self) -> u64 {
        u64::from(self.cwnd_segments) * u64::from(self.snd_mss)
    }
}

/// What may stand unsent now; 0: the kernel does not tell.
pub(super) fn unsent_limit(socket: BorrowedFd<'_>) -> u32 {
    let bytes = read_option(socket, (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT)).unwrap_or(0);
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// What two kernels agreed upon in a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeFacts {
    /// Of the handshake itself.
    pub rtt_us: u32,
    /// Largest segment: of what both ends announced the smaller, less the options that each segment carries.
    pub segment_bytes: u32,
    pub path_mtu: u32,
    pub window_scaling: bool,
    pub sack: bool,
    pub timestamps: bool,
}

/// # Errors
/// Not a TCP socket.
pub(crate) fn handshake_facts(socket: BorrowedFd<'_>) -> io::Result<HandshakeFacts> {
    let mut bytes = [0; BYTES_MAX];
    read_bytes(socket, (libc::IPPROTO_TCP, libc::TCP_INFO), &mut bytes)?;
    let info = TcpInfo::parse(&bytes);
    // `tcpi_options`: TCPI_OPT_TIMESTAMPS 1, TCPI_OPT_SACK 2, TCPI_OPT_WSCALE 4.
    let has = |option: u8| bytes[5] & option != 0;
    Ok(HandshakeFacts {
        rtt_us: info.rtt_us,
        segment_bytes: info.snd_mss,
        path_mtu: info.path_mtu,
        window_scaling: has(4),
        sack: has(2),
        timestamps: has(1),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_real_connection_reports_itself() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let mut one = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (mut other, _) = listener.accept().expect("accepts");
        let mut bytes = vec![7; 300_000];
        std::thread::scope(|scope| {
            scope.spawn(|| one.write_all(&[7; 300_000]));
            other.read_exact(&mut bytes).expect("all of it arrives");
        });
        other.write_all(&[1; 100]).expect("an answer");
        one.read_exact(&mut bytes[..100]).expect("it arrives");
        let info = TcpInfo::read(one.as_fd()).expect("a TCP socket");
        assert!(info.bytes_sent >= 300_000 && info.bytes_received == 100, "{info:?}");
        assert!(info.rtt_us > 0 && info.rtt_us < 10_000_000 && info.rto_us >= info.rtt_us, "{info:?}");
        assert!(info.snd_mss >= 536 && info.cwnd_segments > 0 && info.path_mtu > info.snd_mss, "{info:?}");
        // Even on loopback something is sent again now and then, when the machine has far more to do than it can.
        assert!(info.send_window_bytes > 0 && info.bytes_retransmitted < info.bytes_sent, "{info:?}");
        assert_eq!(info.backoff, 0);
        let unix = std::os::unix::net::UnixStream::pair().expect("a pair").0;
        assert!(TcpInfo::read(unix.as_fd()).is_err());
    }
}
