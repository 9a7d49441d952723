//! Every default and bound of the operator's half, with the reason beside it.
//!
//! Sizes are bytes, always.

use std::time::Duration;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const TIB: u64 = 1 << 40;

/// A range of accepted values and what holds when the key is absent.
#[derive(Clone, Copy, Debug)]
pub struct Bound<T> {
    pub min: T,
    pub max: T,
    pub default: T,
}

/// Files written by people are far smaller, and this one is read into memory whole.
pub const CONFIG_BYTES_MAX: u64 = 4 * MIB;

/// Names appear in file names, export names and on the wire in one length byte.
pub const NAME_BYTES_MAX: usize = 64;

/// One daemon is measured with 1 000 groups; four times that is where a list stops being one operator's.
pub const GROUPS_MAX: usize = 4096;
/// A volume's place in its group travels in two bytes, and a hello names them all.
pub const VOLUMES_MAX: usize = 1024;
/// Nodes in one file. Groups have two members now; one-to-many needs a few more.
pub const NODES_MAX: usize = 64;
/// NBD sockets of one node.
pub const NBD_LISTENERS_MAX: usize = 16;

/// The kernel's room for the path of a Unix socket (108 with the closing zero).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// What one bit of the dirty bitmap covers. Part of a group's definition: both nodes must cut a volume alike.
pub const REGION_BYTES: u64 = 32 * KIB;

/// A secret shorter than the hash it keys can be guessed more cheaply than the hash can be broken.
pub const SECRET_BYTES_MIN: usize = 32;
/// Keys longer than a hash block gain nothing; a larger file is a mistake (a certificate, a disk image).
pub const SECRET_BYTES_MAX: usize = 4096;

/// Silence after which a peer counts as unreachable. Under a second ordinary scheduling hiccups and one lost
/// segment would cut the link; over ten minutes nobody would notice an outage.
pub const LINK_TIMEOUT: Bound<Duration> = Bound {
    min: Duration::from_secs(1),
    max: Duration::from_secs(600),
    default: Duration::from_secs(5),
};

/// Socket buffers: the kernel doubles and clamps what is asked; past 1 GiB it refuses.
pub const SOCKET_BUFFER: Bound<u64> = Bound {
    min: 4 * KIB,
    max: GIB,
    default: 0,
};

/// Longest time one write may wait for the peer before the policy acts. Database clients commonly give up after 30 s.
pub const WAIT_LIMIT: Bound<Duration> = Bound {
    min: Duration::from_millis(100),
    max: Duration::from_secs(3600),
    default: Duration::from_secs(10),
};

/// The peer window of `policy = "hold"`. Below a second the probe's own round trip eats it on long links.
pub const HOLD: Bound<Duration> = Bound {
    min: Duration::from_secs(1),
    max: Duration::from_secs(24 * 3600),
    default: Duration::from_secs(30),
};

/// Memory queue in bytes. The floor is one frame; the ceiling is past any machine this runs on.
pub const QUEUE_MEMORY: Bound<u64> = Bound {
    min: MIB,
    max: TIB,
    default: 64 * MIB,
};

/// Memory queue in writes. The default never binds before the bytes do unless writes are tiny: 64 MiB of 16 bytes.
pub const QUEUE_ITEMS: Bound<u64> = Bound {
    min: 16,
    max: 1 << 32,
    default: 4_194_304,
};

/// Landing journal of a secondary, on its state directory's disk.
pub const JOURNAL: Bound<u64> = Bound {
    min: 8 * MIB,
    max: TIB,
    default: 256 * MIB,
};

/// Bytes sent but not yet confirmed: enough for 1 Gbit/s over 500 ms.
pub const WINDOW: Bound<u64> = Bound {
    min: 2 * MIB,
    max: 16 * GIB,
    default: 64 * MIB,
};

/// The journal holds what is being received beside what is being applied.
pub const JOURNAL_WINDOWS_MIN: u64 = 2;

/// A modelled disk slower than this would only test patience.
pub const MODEL_LATENCY_MAX: Duration = Duration::from_secs(10);

/// One request line on the control socket: the longest real one is a `set` with all keys.
pub const API_REQUEST_BYTES_MAX: usize = 64 * KIB as usize;
/// One reply line: a status of 4 096 groups with a few volumes each.
pub const API_REPLY_BYTES_MAX: usize = 64 * MIB as usize;
/// A client of the control socket must finish its request line in this time, and take its answer in the same.
pub const API_IO_TIMEOUT: Duration = Duration::from_secs(10);
/// Clients served at once; more wait in the listen queue. Operators and scripts, not a crowd.
pub const API_CLIENTS_MAX: usize = 32;
/// How often `wait`, `sync --wait` and `status --watch` look again.
pub const POLL_INTERVAL: Duration = Duration::from_millis(500);

const _: () = {
    assert!(JOURNAL.default >= JOURNAL_WINDOWS_MIN * WINDOW.default);
    assert!(JOURNAL.min >= JOURNAL_WINDOWS_MIN * WINDOW.min);
    assert!(QUEUE_MEMORY.min <= QUEUE_MEMORY.default && QUEUE_MEMORY.default <= QUEUE_MEMORY.max);
    assert!(QUEUE_ITEMS.min <= QUEUE_ITEMS.default && QUEUE_ITEMS.default <= QUEUE_ITEMS.max);
    assert!(NAME_BYTES_MAX < 256);
    assert!(VOLUMES_MAX <= u16::MAX as usize);
    assert!(SECRET_BYTES_MIN < SECRET_BYTES_MAX);
};
