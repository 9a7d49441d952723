//! Speed, duplex, negotiation, modes and offloads of a card, by the ioctl that every driver and kernel knows.

use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

// linux/sockios.h, linux/ethtool.h.
const SIOCETHTOOL: libc::c_ulong = 0x8946;
const GET_LINK_SETTINGS: u32 = 0x4c;
const GET_RECEIVE_CHECKSUM: u32 = 0x14;
const GET_TSO: u32 = 0x1e;
const GET_GSO: u32 = 0x23;
const GET_GRO: u32 = 0x2b;
const UNKNOWN_SPEED: u32 = u32::MAX;
/// Fixed part of `struct ethtool_link_settings`; three masks of `nwords` words follow.
const SETTINGS_BYTES: usize = 48;
/// Words of a mask at most: the kernel counts them in a signed byte.
const WORDS_MAX: usize = 127;

/// Modes of a link by bit: name and megabits per second. From linux/ethtool.h, `enum ethtool_link_mode_bit_indices`.
const MODES: &[(u32, &str, u32)] = &[
    (0, "10baseT/Half", 10),
    (1, "10baseT/Full", 10),
    (2, "100baseT/Half", 100),
    (3, "100baseT/Full", 100),
    (4, "1000baseT/Half", 1000),
    (5, "1000baseT/Full", 1000),
    (12, "10000baseT/Full", 10_000),
    (15, "2500baseX/Full", 2500),
    (17, "1000baseKX/Full", 1000),
    (18, "10000baseKX4/Full", 10_000),
    (19, "10000baseKR/Full", 10_000),
    (23, "40000baseKR4/Full", 40_000),
    (24, "40000baseCR4/Full", 40_000),
    (25, "40000baseSR4/Full", 40_000),
    (26, "40000baseLR4/Full", 40_000),
    (31, "25000baseCR/Full", 25_000),
    (32, "25000baseKR/Full", 25_000),
    (33, "25000baseSR/Full", 25_000),
    (34, "50000baseCR2/Full", 50_000),
    (35, "50000baseKR2/Full", 50_000),
    (36, "100000baseKR4/Full", 100_000),
    (37, "100000baseSR4/Full", 100_000),
    (38, "100000baseCR4/Full", 100_000),
    (39, "100000baseLR4_ER4/Full", 100_000),
    (40, "50000baseSR2/Full", 50_000),
    (41, "1000baseX/Full", 1000),
    (42, "10000baseCR/Full", 10_000),
    (43, "10000baseSR/Full", 10_000),
    (44, "10000baseLR/Full", 10_000),
    (45, "10000baseLRM/Full", 10_000),
    (46, "10000baseER/Full", 10_000),
    (47, "2500baseT/Full", 2500),
    (48, "5000baseT/Full", 5000),
];

/// Modes by name, and the fastest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkModes {
    pub names: Vec<String>,
    /// 0: none that is known here.
    pub fastest_mbit: u32,
}

/// What the card says of its link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardSettings {
    /// `None`: it does not know, as virtual ones do not and those without a link.
    pub speed_mbit: Option<u32>,
    pub full_duplex: Option<bool>,
    pub autonegotiation: bool,
    pub twisted_pair: bool,
    pub supported: LinkModes,
    pub advertised: LinkModes,
}

/// What the card or its driver does for the kernel; `None`: it cannot tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Cuts large segments to size (TSO), or the kernel does so late (GSO); puts received ones together (GRO).
    pub tso: Option<bool>,
    pub gso: Option<bool>,
    pub gro: Option<bool>,
    pub receive_checksum: Option<bool>,
}

/// A `struct ifreq` whose payload is a pointer.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    data: *mut u8,
    rest: [u8; 16],
}

/// One question to a driver, in place: `bytes` begin with the command, and are what the kernel copies in and out.
fn ask(socket: &Socket, interface: &str, bytes: &mut [u8]) -> io::Result<()> {
    let mut request = InterfaceRequest { name: [0; libc::IFNAMSIZ], data: bytes.as_mut_ptr(), rest: [0; 16] };
    if interface.len() >= libc::IFNAMSIZ {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    request.name[..interface.len()].copy_from_slice(interface.as_bytes());
    // SAFETY: the descriptor is open; `request` is a complete ifreq with a closed name; `data` points to `bytes`, which
    // every caller makes as long as the kernel's answer to its command, and which lives across the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn asking() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::DGRAM, None)
}

/// `struct ethtool_value`: a command and a number.
fn value(socket: &Socket, interface: &str, command: u32) -> Option<bool> {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&command.to_ne_bytes());
    ask(socket, interface, &mut bytes).ok()?;
    Some(bytes[4..] != [0; 4])
}

/// # Errors
/// There is no such interface, or its driver has no link to speak of (loopback).
pub fn settings_of(interface: &str) -> io::Result<CardSettings> {
    let socket = asking()?;
    let mut bytes = vec![0; SETTINGS_BYTES + 3 * 4 * WORDS_MAX];
    bytes[..4].copy_from_slice(&GET_LINK_SETTINGS.to_ne_bytes());
    // Asked for no words the kernel tells, negated, how many a mask has.
    ask(&socket, interface, &mut bytes)?;
    let words = (bytes[15] as i8).unsigned_abs();
    bytes.fill(0);
    bytes[..4].copy_from_slice(&GET_LINK_SETTINGS.to_ne_bytes());
    bytes[15] = words;
    ask(&socket, interface, &mut bytes)?;
    Ok(parse(&bytes, words.into()))
}

fn parse(bytes: &[u8], words: usize) -> CardSettings {
    let word = |at: usize| u32::from_ne_bytes(*bytes[at..].first_chunk().expect("the answer is longer"));
    let mask = |number: usize| {
        let words: Vec<u32> = (0..words).map(|at| word(SETTINGS_BYTES + 4 * (number * words + at))).collect();
        modes_of(&words)
    };
    CardSettings {
        speed_mbit: Some(word(4)).filter(|speed| *speed != UNKNOWN_SPEED && *speed != 0),
        full_duplex: match bytes[8] {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        },
        autonegotiation: bytes[11] == 1,
        twisted_pair: bytes[9] == 0,
        supported: mask(0),
        advertised: mask(1),
    }
}

/// The modes of a mask, slowest first; bits that are no modes (ports, pause, error correction) are left out.
fn modes_of(mask: &[u32]) -> LinkModes {
    let is_set = |bit: u32| mask.get(bit as usize / 32).is_some_and(|word| word >> (bit % 32) & 1 == 1);
    let mut found: Vec<_> = MODES.iter().filter(|(bit, ..)| is_set(*bit)).collect();
    found.sort_by_key(|(_, _, mbit)| *mbit);
    LinkModes {
        names: found.iter().map(|(_, name, _)| (*name).to_owned()).collect(),
        fastest_mbit: found.last().map_or(0, |(_, _, mbit)| *mbit),
    }
}

/// All unknown where there is no such interface.
pub fn offloads_of(interface: &str) -> Offloads {
    let Ok(socket) = asking() else { return Offloads::default() };
    Offloads {
        tso: value(&socket, interface, GET_TSO),
        gso: value(&socket, interface, GET_GSO),
        gro: value(&socket, interface, GET_GRO),
        receive_checksum: value(&socket, interface, GET_RECEIVE_CHECKSUM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gigabit_card_is_read_by_its_bytes() {
        // Supports 10 to 1000baseT, negotiates, twisted pair; advertises up to 100baseT/Full.
        let mut bytes = vec![0; SETTINGS_BYTES + 24];
        bytes[4..8].copy_from_slice(&100u32.to_ne_bytes());
        (bytes[8], bytes[9], bytes[11]) = (1, 0, 1);
        bytes[48..52].copy_from_slice(&0b1110_1111u32.to_ne_bytes());
        bytes[56..60].copy_from_slice(&0b1100_1111u32.to_ne_bytes());
        let found = parse(&bytes, 2);
        assert_eq!((found.speed_mbit, found.full_duplex, found.autonegotiation), (Some(100), Some(true), true));
        assert_eq!((found.supported.fastest_mbit, found.advertised.fastest_mbit), (1000, 100));
        assert_eq!(found.advertised.names.last().map(String::as_str), Some("100baseT/Full"));
        assert!(found.twisted_pair);
        bytes[4..8].copy_from_slice(&UNKNOWN_SPEED.to_ne_bytes());
        bytes[8] = 255;
        assert_eq!((parse(&bytes, 2).speed_mbit, parse(&bytes, 2).full_duplex), (None, None));
    }

    #[test]
    fn modes_of_later_words_are_found() {
        assert_eq!(modes_of(&[0, 1 << (48 - 32)]).fastest_mbit, 5000);
        assert_eq!(modes_of(&[]), LinkModes::default());
    }

    #[test]
    fn loopback_has_offloads_and_no_link_settings() {
        assert!(offloads_of("lo").gso.is_some());
        assert!(settings_of("there-is-none").is_err() && settings_of("a-name-longer-than-the-kernel-takes").is_err());
        assert_eq!(offloads_of("there-is-none"), Offloads::default());
    }
}
