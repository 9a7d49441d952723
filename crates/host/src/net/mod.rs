//! What the kernel knows of interfaces, routes and its clock, and what a peer's kernel answers: read, never changed.
//!
//! Everything here is asked for by `doctor`, outside of the data path: calls block, each for a bounded time.

mod clock;
mod echo;
mod ethtool;
pub(crate) mod netlink;

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use clock::{KernelClock, clock};
pub use echo::{ClockOffset, PathMtu, clock_offset, path_mtu, round_trip};
pub use ethtool::{CardSettings, LinkModes, Offloads, offloads_of, settings_of};
pub use netlink::{Route, qdisc_of, route_to};

pub use crate::tcp_info::HandshakeFacts;
use crate::tcp_info::handshake_facts;

/// Counters of an interface since it came to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounters {
    pub received_packets: u64,
    pub sent_packets: u64,
    pub received_errors: u64,
    pub sent_errors: u64,
    pub received_dropped: u64,
    pub sent_dropped: u64,
    /// How often the link went away.
    pub carrier_losses: u64,
}

/// What sysfs tells of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceInfo {
    pub name: String,
    pub mtu: u32,
    /// No card of its own behind it: veth, bridge, bond, tunnel, loopback; or a card that a hypervisor makes up.
    pub is_virtual: bool,
    /// Interfaces below it: the members of a bond, the card of a VLAN.
    pub lower: Vec<String>,
    /// A cable is plugged in and the other end is up; `None` while the interface is down.
    pub carrier: Option<bool>,
    pub counters: InterfaceCounters,
}

/// Buses of cards that are no cards.
const VIRTUAL_BUSES: [&str; 3] = ["virtio", "xen", "vmbus"];

/// # Errors
/// There is no such interface.
pub fn interface(name: &str) -> io::Result<InterfaceInfo> {
    let directory = Path::new("/sys/class/net").join(name);
    let number = |file: &str| read_number(&directory.join(file));
    let mtu = fs::read_to_string(directory.join("mtu"))?;
    let counter = |file: &str| number(&format!("statistics/{file}")).unwrap_or(0);
    let entries = fs::read_dir(&directory)?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut lower: Vec<String> = entries.filter_map(|entry| Some(entry.strip_prefix("lower_")?.to_owned())).collect();
    lower.sort();
    let bus = fs::read_link(directory.join("device/subsystem")).ok();
    let bus = bus.as_deref().and_then(Path::file_name).map(|bus| bus.to_string_lossy().into_owned());
    Ok(InterfaceInfo {
        name: name.to_owned(),
        mtu: mtu.trim().parse().unwrap_or(0),
        is_virtual: bus.is_none_or(|bus| VIRTUAL_BUSES.contains(&bus.as_str())),
        lower,
        carrier: number("carrier").map(|carrier| carrier == 1),
        counters: InterfaceCounters {
            received_packets: counter("rx_packets"),
            sent_packets: counter("tx_packets"),
            received_errors: counter("rx_errors"),
            sent_errors: counter("tx_errors"),
            received_dropped: counter("rx_dropped"),
            sent_dropped: counter("tx_dropped"),
            carrier_losses: number("carrier_down_count").unwrap_or(0),
        },
    })
}

/// How a bond spreads packets over its members, such as `active-backup`; `None`: it is no bond.
pub fn bond_mode(name: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new("/sys/class/net").join(name).join("bonding/mode")).ok()?;
    // The name, then its number.
    text.split_whitespace().next().map(str::to_owned)
}

fn read_number(file: &PathBuf) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Name of the interface with this index.
pub fn interface_name(index: u32) -> Option<String> {
    let entries = fs::read_dir("/sys/class/net").ok()?.flatten();
    let found = entries.into_iter().find(|entry| read_number(&entry.path().join("ifindex")) == Some(index.into()));
    found.and_then(|entry| entry.file_name().into_string().ok())
}

/// Connects, looks at what the two kernels agreed upon, and hangs up without a word.
///
/// # Errors
/// Nobody listens there, or nobody answers within `timeout`.
pub fn shake_hands(address: SocketAddr, timeout: Duration) -> io::Result<HandshakeFacts> {
    let stream = TcpStream::connect_timeout(&address, timeout)?;
    handshake_facts(stream.as_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_virtual_and_has_an_index() {
        let loopback = interface("lo").expect("every namespace has one");
        assert!(loopback.is_virtual && loopback.mtu >= 16384 && loopback.lower.is_empty(), "{loopback:?}");
        assert_eq!(bond_mode("lo"), None);
        assert_eq!(interface_name(1).as_deref(), Some("lo"));
        assert!(interface("there-is-none").is_err() && interface_name(u32::MAX).is_none());
    }

    #[test]
    fn a_handshake_reports_what_was_agreed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        let facts = shake_hands(address, Duration::from_secs(5)).expect("it listens");
        assert!(facts.segment_bytes >= 536 && facts.path_mtu > facts.segment_bytes, "{facts:?}");
        drop(listener);
        assert!(shake_hands(address, Duration::from_secs(5)).is_err());
    }
}
