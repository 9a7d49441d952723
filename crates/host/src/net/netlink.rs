//! Two questions to the kernel's routing: which way a packet to an address takes, and what queues an interface has. And how a question
//! of any kind is asked.

use std::io::{self, Read};
use std::net::IpAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

// linux/netlink.h, linux/rtnetlink.h.
const HEADER_BYTES: usize = 16;
const ROUTE_BYTES: usize = 12;
const QDISC_BYTES: usize = 20;
pub(crate) const REQUEST: u16 = 1;
/// An order that is understood is answered as well.
pub(crate) const ACKNOWLEDGE: u16 = 4;
const DUMP: u16 = 0x300;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const NEW_QDISC: u16 = 36;
const GET_QDISC: u16 = 38;
const ROUTE_DESTINATION: u16 = 1;
const ROUTE_INTERFACE: u16 = 4;
const ROUTE_METRICS: u16 = 8;
const METRIC_MTU: u16 = 2;
const METRIC_RTO_MIN: u16 = 13;
const QDISC_KIND: u16 = 1;
const PARENT_ROOT: u32 = u32::MAX;
/// The kernel answers at once.
const PATIENCE: Duration = Duration::from_secs(2);
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The way to an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Index of the interface.
    pub interface: u32,
    /// What the kernel has learned or was told of the path; `None`: the interface's.
    pub mtu: Option<u32>,
    /// Shortest retransmission pause, which wins over a socket's; milliseconds.
    pub rto_min_ms: Option<u32>,
}

/// # Errors
/// There is no way there.
pub fn route_to(address: IpAddr) -> io::Result<Route> {
    let (family, bytes) = match address {
        IpAddr::V4(address) => (libc::AF_INET as u8, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6 as u8, address.octets().to_vec()),
    };
    let mut body = vec![0; ROUTE_BYTES];
    (body[0], body[1]) = (family, bytes.len() as u8 * 8);
    put_attribute(&mut body, ROUTE_DESTINATION, &bytes);
    let answers = ask(libc::NETLINK_ROUTE, GET_ROUTE, REQUEST, &body)?;
    let route = answers.iter().find(|(kind, _)| *kind == NEW_ROUTE).map(|(_, body)| parse_route(body));
    route.ok_or_else(|| io::ErrorKind::HostUnreachable.into())
}

/// Names of the queueing disciplines of an interface: the root, then those below it. Empty where it has none.
///
/// # Errors
/// The kernel does not answer.
pub fn qdisc_of(interface: u32) -> io::Result<Vec<String>> {
    let answers = ask(libc::NETLINK_ROUTE, GET_QDISC, REQUEST | DUMP, &[0; QDISC_BYTES])?;
    let bodies = answers.iter().filter(|(kind, _)| *kind == NEW_QDISC).map(|(_, body)| body.as_slice());
    Ok(qdiscs(bodies, interface))
}

fn qdiscs<'a>(bodies: impl Iterator<Item = &'a [u8]>, interface: u32) -> Vec<String> {
    let mut found: Vec<(bool, String)> = Vec::new();
    for body in bodies.filter(|body| body.len() >= QDISC_BYTES && word(body, 4) == interface) {
        let kind = attributes(&body[QDISC_BYTES..]).into_iter().find(|(kind, _)| *kind == QDISC_KIND);
        let Some((_, name)) = kind else { continue };
        let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
        let is_below = word(body, 12) != PARENT_ROOT;
        if !found.contains(&(is_below, name.clone())) {
            found.push((is_below, name));
        }
    }
    found.sort_by_key(|(is_below, _)| *is_below);
    found.into_iter().map(|(_, name)| name).collect()
}

/// Asks a part of the kernel; kind and body of each message of its answer. At most two seconds.
///
/// # Errors
/// The kernel's own, or it does not answer.
pub(crate) fn ask(protocol: i32, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<(u16, Vec<u8>)>> {
    let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(Protocol::from(protocol)))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend(((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    // Without an address it goes to the kernel.
    socket.send(&message)?;
    let (mut answers, mut bytes) = (Vec::new(), vec![0; ANSWER_BYTES_MAX]);
    loop {
        let length = (&socket).read(&mut bytes)?;
        for (kind, body) in messages(&bytes[..length]) {
            match kind {
                DONE => return Ok(answers),
                // A negated error number, or 0 for "understood".
                ERROR => {
                    let code = body.first_chunk().map_or(libc::EIO, |code| -i32::from_ne_bytes(*code));
                    return if code == 0 { Ok(answers) } else { Err(io::Error::from_raw_os_error(code)) };
                }
                kind => answers.push((kind, body.to_vec())),
            }
        }
        if flags & DUMP == 0 {
            return Ok(answers);
        }
    }
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |word| u32::from_ne_bytes(*word))
}

pub(crate) fn short(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |word| u16::from_ne_bytes(*word))
}

/// Kind and body of each message; what breaks off is left out.
fn messages(bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let (mut rest, mut found) = (bytes, Vec::new());
    while rest.len() >= HEADER_BYTES {
        let length = word(rest, 0) as usize;
        let Some(body) = rest.get(HEADER_BYTES..length) else { break };
        found.push((short(rest, 4), body));
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

/// Kind and value of each attribute; what breaks off is left out.
pub(crate) fn attributes(bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let (mut rest, mut found) = (bytes, Vec::new());
    while rest.len() >= 4 {
        let length = usize::from(short(rest, 0));
        let Some(value) = rest.get(4..length) else { break };
        found.push((short(rest, 2), value));
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

/// Adds an attribute: a kind, and a value of its own length.
pub(crate) fn put_attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend(u16::try_from(value.len() + 4).expect("a value is short").to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

fn parse_route(body: &[u8]) -> Route {
    let mut route = Route::default();
    for (kind, value) in attributes(body.get(ROUTE_BYTES..).unwrap_or_default()) {
        match kind {
            ROUTE_INTERFACE => route.interface = word(value, 0),
            ROUTE_METRICS => {
                let metric = |wanted| attributes(value).into_iter().find(|(kind, _)| *kind == wanted);
                let number = |wanted| metric(wanted).map(|(_, value)| word(value, 0)).filter(|number| *number > 0);
                (route.mtu, route.rto_min_ms) = (number(METRIC_MTU), number(METRIC_RTO_MIN));
            }
            _ => {}
        }
    }
    route
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_attribute(&mut bytes, kind, value);
        bytes
    }

    #[test]
    fn a_route_with_metrics_is_read_by_its_bytes() {
        let metrics = [attribute(METRIC_MTU, &1400u32.to_ne_bytes()), attribute(METRIC_RTO_MIN, &15u32.to_ne_bytes())];
        let body = [
            vec![0; ROUTE_BYTES],
            attribute(ROUTE_DESTINATION, &[10, 0, 0, 2]),
            attribute(ROUTE_INTERFACE, &7u32.to_ne_bytes()),
            attribute(ROUTE_METRICS, &metrics.concat()),
            vec![9, 0, 1],
        ]
        .concat();
        let route = parse_route(&body);
        assert_eq!((route.interface, route.mtu, route.rto_min_ms), (7, Some(1400), Some(15)));
        assert_eq!(parse_route(&[]), Route::default());
    }

    #[test]
    fn the_root_comes_before_what_is_below_it() {
        let body = |interface: u32, parent: u32, name: &[u8]| {
            let mut body = vec![0; QDISC_BYTES];
            body[4..8].copy_from_slice(&interface.to_ne_bytes());
            body[12..16].copy_from_slice(&parent.to_ne_bytes());
            [body, attribute(QDISC_KIND, name)].concat()
        };
        let bodies = [
            body(2, 0x8001_0001, b"fq\0"),
            body(2, 0x8001_0002, b"fq\0"),
            body(2, PARENT_ROOT, b"mq\0"),
            body(3, PARENT_ROOT, b"noqueue\0"),
        ];
        assert_eq!(qdiscs(bodies.iter().map(Vec::as_slice), 2), ["mq", "fq"]);
        assert_eq!(qdiscs(bodies.iter().map(Vec::as_slice), 9), Vec::<String>::new());
    }

    #[test]
    fn loopback_is_reached_by_loopback() {
        for text in ["127.0.0.1", "127.9.8.7"] {
            let route = route_to(text.parse().expect("an address")).expect("a way");
            assert_eq!(route.interface, 1, "{route:?}");
        }
        assert!(qdisc_of(1).is_ok());
    }

    #[test]
    fn bytes_that_break_off_are_left_out() {
        assert!(messages(&[255; 40]).is_empty() && attributes(&[200, 0, 1, 0, 5]).is_empty());
        assert!(messages(&[0; 40]).is_empty() && attributes(&[0; 40]).is_empty());
    }
}
