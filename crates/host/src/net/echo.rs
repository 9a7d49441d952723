//! What a peer's kernel answers without any program there: echoes, which tell the round trip and the largest packet that
//! passes, and its time of day.
//!
//! ICMP (RFC 792, 4443) through a raw socket, so root or CAP_NET_RAW. Many firewalls let none of it pass: no answer is
//! no finding.

use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use socket2::{Domain, Protocol, Socket, Type};

use crate::socket_option::set_option;

const ECHO_REQUEST: [u8; 2] = [8, 128];
const ECHO_REPLY: [u8; 2] = [0, 129];
const TIME_REQUEST: u8 = 13;
const TIME_REPLY: u8 = 14;
const ICMP_HEADER_BYTES: usize = 8;
const DAY_MS: i64 = 86_400_000;
/// RFC 792 counts milliseconds: what is left of one is cut off on either side.
const TIME_UNIT_S: f64 = 0.001;
/// Tries before silence counts, and of large packets, where it is a finding: where one echo in ten is lost, one in a hundred
/// is lost twice, and one in a hundred thousand five times.
const TRIES: usize = 2;
const ROUNDS: u32 = 5;
/// Sizes that paths are made of: tunnels, PPPoE, the least of IPv6 and IPv4.
const USUAL_MTUS: [u32; 14] = [9000, 8000, 4000, 1500, 1492, 1480, 1476, 1454, 1420, 1400, 1380, 1350, 1280, 576];

/// The largest packet that came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtu {
    pub bytes: u32,
    /// Larger ones vanished, and nobody on the way said so: a path that swallows large packets.
    pub is_silent: bool,
}

/// A socket that speaks ICMP with one address.
struct Echo {
    socket: Socket,
    is_v6: bool,
    identifier: u16,
    sequence: u16,
    timeout: Duration,
}

impl Echo {
    fn open(address: IpAddr, timeout: Duration) -> io::Result<Echo> {
        let is_v6 = address.is_ipv6();
        let protocol = if is_v6 { Protocol::ICMPV6 } else { Protocol::ICMPV4 };
        let domain = if is_v6 { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
        // "Don't fragment", and never mind what the kernel thinks of the path.
        let option = if is_v6 {
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)
        } else {
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)
        };
        set_option(socket.as_fd(), (option.0, option.1), option.2 as u64)?;
        socket.connect(&SocketAddr::new(address, 0).into())?;
        let identifier = std::process::id() as u16;
        Ok(Echo { socket, is_v6, identifier, sequence: 0, timeout })
    }

    fn ip_header_bytes(&self) -> usize {
        if self.is_v6 { 40 } else { 20 }
    }

    /// Sends a message; its number.
    fn send(&mut self, kind: u8, content: &[u8]) -> io::Result<u16> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = vec![kind, 0, 0, 0];
        message.extend(self.identifier.to_be_bytes());
        message.extend(self.sequence.to_be_bytes());
        message.extend(content);
        if !self.is_v6 {
            // Of ICMPv6 the kernel makes the sum.
            let sum = checksum(&message).to_be_bytes();
            message[2..4].copy_from_slice(&sum);
        }
        self.socket.send(&message)?;
        Ok(self.sequence)
    }

    /// The next answer of that kind to one of our messages: the message's number and the content; `None`: none came in time.
    fn answer(&self, kind: u8, until: Instant) -> io::Result<Option<(u16, Vec<u8>)>> {
        let mut bytes = vec![0; 70_000];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let length = match (&self.socket).read(&mut bytes) {
                Ok(length) => length,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(None),
                // Told by a router about an earlier message: nobody there, or too large for the path.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused || is_too_large(&error) => continue,
                Err(error) => return Err(error),
            };
            // IPv4's raw sockets give the header of the packet too; its length is counted in words.
            let header = if self.is_v6 { 0 } else { usize::from(bytes[0] & 15) * 4 };
            let Some(body) = bytes.get(header..length).filter(|body| body.len() >= ICMP_HEADER_BYTES) else { continue };
            if body[0] == kind && body[4..6] == self.identifier.to_be_bytes() {
                return Ok(Some((u16::from_be_bytes([body[6], body[7]]), body[ICMP_HEADER_BYTES..].to_vec())));
            }
        }
    }

    /// Sends a message and waits for its answer; `None`: silence.
    fn exchange(&mut self, kind: u8, answer: u8, content: &[u8]) -> io::Result<Option<(Vec<u8>, Duration)>> {
        let start = Instant::now();
        let number = self.send(kind, content)?;
        while let Some((of, content)) = self.answer(answer, start + self.timeout)? {
            if of == number {
                return Ok(Some((content, start.elapsed())));
            }
        }
        Ok(None)
    }

    /// What fills a packet of `packet_bytes` in all.
    fn content(&self, packet_bytes: u32) -> Vec<u8> {
        vec![0x5a; (packet_bytes as usize).saturating_sub(self.ip_header_bytes() + ICMP_HEADER_BYTES)]
    }

    /// The round trip of a small echo, or `None` for silence.
    fn echo(&mut self) -> io::Result<Option<Duration>> {
        let (kind, content) = (usize::from(self.is_v6), self.content(84));
        for _ in 0..TRIES {
            if let Some((_, time)) = self.exchange(ECHO_REQUEST[kind], ECHO_REPLY[kind], &content)? {
                return Ok(Some(time));
            }
        }
        Ok(None)
    }

    /// Sends an echo of each size, largest first; the largest that came back, of these or of earlier ones, or `best`.
    fn round(&mut self, sizes: &[u32], best: u32, sent: &mut Vec<(u16, u32)>, pause: Duration) -> io::Result<u32> {
        let kind = usize::from(self.is_v6);
        for &bytes in sizes.iter().filter(|bytes| **bytes > best) {
            match self.send(ECHO_REQUEST[kind], &self.content(bytes)) {
                Ok(number) => sent.push((number, bytes)),
                // Larger than the interface carries.
                Err(error) if is_too_large(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let (mut best, until) = (best, Instant::now() + pause);
        while best < sizes[0]
            && let Some((number, _)) = self.answer(ECHO_REPLY[kind], until)?
        {
            let size = sent.iter().find(|(of, _)| *of == number).map_or(0, |(_, bytes)| *bytes);
            best = best.max(size);
        }
        Ok(best)
    }
}

/// Larger than the interface carries, or than a router told that the path does.
fn is_too_large(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The shortest of three echoes; `None`: no answer within `timeout` each.
///
/// # Errors
/// No right to ask, or no way there.
pub fn round_trip(address: IpAddr, timeout: Duration) -> io::Result<Option<Duration>> {
    let mut echo = Echo::open(address, timeout)?;
    let Some(first) = echo.echo()? else { return Ok(None) };
    let mut best = first;
    for _ in 0..2 {
        best = echo.echo()?.map_or(best, |time| time.min(best));
    }
    Ok(Some(best))
}

/// The largest packet that passes both ways, of the interface's MTU and the usual sizes below it. `None`: not even small ones
/// are answered. `round_trip` is what a small one takes. Larger ones are given up after five echoes of each, spread over five
/// times (four round trips and 100 ms), or over `patience` if that is shorter.
///
/// # Errors
/// No right to ask, or no way there.
pub fn path_mtu(
    address: IpAddr,
    interface_mtu: u32,
    round_trip: Duration,
    patience: Duration,
) -> io::Result<Option<PathMtu>> {
    let mut echo = Echo::open(address, patience)?;
    // The longest IPv4 packet; loopback would carry one more.
    let largest = interface_mtu.min(65_535);
    let usual = USUAL_MTUS.into_iter().filter(|mtu| *mtu < largest);
    let sizes: Vec<u32> = std::iter::once(largest).chain(usual).collect();
    let pause = (4 * round_trip + Duration::from_millis(100)).min(patience / ROUNDS);
    let (mut best, mut sent) = (0, Vec::new());
    for _ in 0..ROUNDS {
        best = echo.round(&sizes, best, &mut sent, pause)?;
        if best == largest {
            break;
        }
    }
    if best == 0 {
        return Ok(None);
    }
    // Who is told of a smaller path remembers it.
    let is_announced = super::route_to(address)?.mtu.is_some_and(|mtu| mtu < interface_mtu);
    Ok(Some(PathMtu { bytes: best, is_silent: best < largest && !is_announced }))
}

/// How far a clock is ahead of this one, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockOffset {
    pub offset_s: f64,
    /// So much it can be off at most: half the round trip, should the two ways differ, and the milliseconds it tells.
    pub error_s: f64,
}

/// How far the clock there is ahead of this one. `None`: it does not tell, as IPv6 and many firewalls do not.
///
/// # Errors
/// No right to ask, or no way there.
pub fn clock_offset(address: IpAddr, timeout: Duration) -> io::Result<Option<ClockOffset>> {
    if address.is_ipv6() {
        return Ok(None);
    }
    let mut echo = Echo::open(address, timeout)?;
    let sent = milliseconds_of_day();
    let content = [(sent as u32).to_be_bytes(), [0; 4], [0; 4]].concat();
    let Some((answer, time)) = echo.exchange(TIME_REQUEST, TIME_REPLY, &content)? else { return Ok(None) };
    let field =
        |at: usize| answer.get(at..at + 4).and_then(|word| word.first_chunk()).map(|word| u32::from_be_bytes(*word));
    let there = field(4).zip(field(8));
    let offset = there.and_then(|(received, returned)| offset_s(sent, received, returned, time));
    Ok(offset.map(|offset_s| ClockOffset { offset_s, error_s: time.as_secs_f64() / 2.0 + TIME_UNIT_S }))
}

/// RFC 792's timestamps: the middle of here against the middle of there. The highest bit says "not of the usual kind".
fn offset_s(sent: i64, received: u32, returned: u32, round_trip: Duration) -> Option<f64> {
    if (received | returned) >> 31 == 1 {
        return None;
    }
    let there = (i64::from(received) + i64::from(returned)) as f64 / 2.0;
    let here = sent as f64 + round_trip.as_secs_f64() * 500.0;
    let day = DAY_MS as f64;
    // Around midnight the one is in another day than the other.
    let difference = (there - here + day / 2.0).rem_euclid(day) - day / 2.0;
    Some(difference / 1000.0)
}

fn milliseconds_of_day() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_millis() % DAY_MS as u128) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_a_message_with_its_sum_is_zero() {
        // RFC 1071's own example: the sum of these is ddf2.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        let mut message = vec![8, 0, 0, 0, 1, 2, 3, 4, 5];
        let sum = checksum(&message).to_be_bytes();
        message[2..4].copy_from_slice(&sum);
        assert_eq!(checksum(&message), 0);
    }

    #[test]
    fn clocks_are_compared_in_the_middle_and_over_midnight() {
        let trip = Duration::from_millis(100);
        assert_eq!(offset_s(1000, 1050, 1050, trip), Some(0.0));
        assert_eq!(offset_s(1000, 3550, 3550, trip), Some(2.5));
        assert_eq!(offset_s(DAY_MS - 50, 500, 500, trip), Some(0.5));
        assert_eq!(offset_s(20, (DAY_MS - 930) as u32, (DAY_MS - 930) as u32, trip), Some(-1.0));
        assert_eq!(offset_s(0, 1 << 31, 5, trip), None);
    }

    /// Where raw sockets are not allowed there is nothing to see.
    #[test]
    fn loopback_answers_large_and_small() {
        let address = IpAddr::from([127, 0, 0, 1]);
        let Ok(found) = round_trip(address, Duration::from_secs(5)) else { return };
        let found = found.expect("loopback answers");
        assert_eq!(
            path_mtu(address, 9000, found, Duration::from_secs(5)).expect("allowed"),
            Some(PathMtu { bytes: 9000, is_silent: false })
        );
        let offset = clock_offset(address, Duration::from_secs(5)).expect("allowed");
        assert!(offset.is_none_or(|clock| clock.offset_s.abs() <= clock.error_s), "one machine, one clock: {offset:?}");
    }
}
