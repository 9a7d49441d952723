//! The loop: the only place that sees both the engine and the operating system.
//!
//! A switchboard with one operator. Clients, links, disks and the clock ring; the operator tells the engine what
//! happened, and when the engine has no more to say, plugs what it asked for: frames into sockets, requests into the
//! disks' tray, answers back to their clients. Everything happens on one data thread; people speak to it through
//! [`Control`] alone.
//!
//! What must hold:
//! * the engine's outputs are performed in their order, once per turn, whoever caused the turn;
//! * no borrow of the state is held while a client is answered;
//! * frames go to the sockets before a lone write may be waited for, so that the peer works while the local disk does;
//! * nothing on this thread waits for a person, nor for a disk longer than a moment.

mod clock;
mod control;
mod disks;
mod gateway;
mod links;
mod plane;
mod slab;
mod story;
mod tap;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use engine::NodeConfig;
use engine::identity::Identity;
use tokio::task::{LocalSet, spawn_local};

pub use clock::entropy;
pub use control::{Control, Gone, GroupSnapshot, Snapshot, SyncPace, VolumeSnapshot};
pub use links::{Connection, LinkSnapshot};
pub use tap::{Note, NoteKind, Notes};

use crate::buffers::Pool;
use crate::disk::{EngineKind, File, FileEngine};
use crate::link::{Flow, LinkBounds, LinkConfig, Links, Ourselves, Peer, Secret, SocketOptions, Versions};
use crate::nbd;
use crate::tls::Store;
use plane::Plane;

/// Commands that may wait for the data thread: operators and scripts, not a crowd; more wait before the door.
const COMMANDS_MAX: usize = 64;
/// From the wish to stop to the last record. Longer than a drain, shorter than a service manager's patience.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// What clients and peers get to take their last answers once the groups are at rest.
const FAREWELL_LIMIT: Duration = Duration::from_secs(2);
/// After this the data thread has ended, unless a disk holds it: what the kernel has of its memory cannot be taken back.
pub const STOP_PATIENCE: Duration = STOP_LIMIT.saturating_add(FAREWELL_LIMIT).saturating_add(Duration::from_secs(1));
/// Whom a stop waits for: disks that have given no answer for so long.
const OWING_FOR: Duration = Duration::from_secs(1);

/// One volume of this node.
pub struct VolumeSetup {
    pub name: String,
    /// `None` in a group that is refused, and there alone.
    pub device: Option<Arc<File>>,
}

/// Why a group is not taken up in this run: none of its files is open, and nobody is served or sent anything.
pub struct Refused {
    /// For operators.
    pub why: String,
    /// Who the node was at last, as far as that is known.
    pub recorded: Option<Identity>,
}

/// One group of this node, in the order of [`NodeConfig::groups`].
pub struct GroupSetup {
    pub name: String,
    pub volumes: Vec<VolumeSetup>,
    pub refused: Option<Refused>,
    /// `None` in a group that is refused, and there alone.
    pub stores: Option<Stores>,
}

/// A group's own files in the state directory, open and locked.
pub struct Stores {
    pub superblock: Arc<File>,
    pub journal: Arc<File>,
    pub bitmap: Arc<File>,
    pub activity: Arc<File>,
    pub undo: Arc<File>,
}

/// By what nodes prove to each other who they are.
pub enum Proof {
    /// Bytes that all of them share; nothing is encrypted.
    Secret(Vec<u8>),
    /// Certificates; all links are encrypted.
    Certificates(Store),
}

/// How the node meets its peers.
pub struct LinkSetup {
    pub cluster: String,
    pub node: String,
    pub proof: Proof,
    /// All groups' definitions as text, the same bytes on every node that means the same.
    pub definitions: String,
    /// Shows two differing texts side by side, ours first.
    pub show_difference: fn(&str, &str) -> String,
    pub peers: Vec<Peer>,
    pub listen: Vec<SocketAddr>,
    pub socket: SocketOptions,
    pub flow: Flow,
}

/// Where NBD clients come in.
#[derive(Clone, Debug)]
pub enum Listen {
    Unix(PathBuf),
    Tcp {
        address: SocketAddr,
        /// With credentials, clients may encrypt; this says that they have to.
        needs_tls: bool,
    },
}

/// Everything a data thread needs, opened and checked.
pub struct Setup {
    pub node: NodeConfig,
    pub groups: Vec<GroupSetup>,
    pub link: LinkSetup,
    pub nbd: Vec<Listen>,
    pub file_engine: EngineKind,
    /// Payload of front ends: what clients have in flight and what waits in the queues, by capacity.
    pub front_bytes: usize,
    /// Payload that arrives from peers, by capacity.
    pub arriving_bytes: usize,
}

/// Identity of a group on disk: a journal of another cluster or group is never replayed here.
pub fn group_tag(cluster: &str, group: &str) -> u64 {
    // Names hold no slash, so the text is unambiguous.
    let hash = blake3::hash(format!("farshore group {cluster}/{group}").as_bytes());
    u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}

/// How a data thread ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every group is at rest and recorded as clean, or as failed.
    Clean,
    /// Time was up first; the next start treats it like a crash.
    Hurried,
}

/// The name of the thread on which everything about the data happens.
pub const DATA_THREAD: &str = "data-0";

/// Starts the data thread. Returns when it listens and the groups are starting.
///
/// # Errors
/// A sentence: no file engine, no thread, or an address or socket that cannot be listened on.
pub fn start(setup: Setup) -> Result<(Control, JoinHandle<End>), String> {
    let (control, commands) = control::channel(COMMANDS_MAX);
    let (ready, started) = std::sync::mpsc::channel();
    let run = move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = ready.send(Err(format!("the data thread's runtime cannot be made: {error}")));
                return End::Hurried;
            }
        };
        LocalSet::new().block_on(&runtime, run(setup, commands, ready))
    };
    let thread = std::thread::Builder::new()
        .name(DATA_THREAD.into())
        .spawn(run)
        .map_err(|error| format!("the data thread cannot be started: {error}"))?;
    match started.recv() {
        Ok(Ok(())) => Ok((control, thread)),
        Ok(Err(sentence)) => Err(sentence),
        Err(_) => Err("the data thread ended before it had started; see the log".to_owned()),
    }
}

async fn run(setup: Setup, mut commands: control::Commands, ready: std::sync::mpsc::Sender<Result<(), String>>) -> End {
    let open = match open(setup) {
        Ok(open) => open,
        Err(sentence) => {
            // Whoever started this thread waits for the sentence.
            let _ = ready.send(Err(sentence));
            return End::Hurried;
        }
    };
    let plane = &open.plane;
    let workers = [
        spawn_local(plane.clone().watch_disks()),
        spawn_local(plane.clone().watch_silence()),
        spawn_local(plane.clone().watch_clock()),
        spawn_local(plane.clone().watch_links()),
    ];
    let entropy = entropy();
    plane.start(entropy);
    let _ = ready.send(Ok(()));
    let end = {
        let mut stop = std::pin::pin!(stop(plane));
        loop {
            tokio::select! {
                command = commands.next() => match command {
                    Some(command) => plane.serve_control(command, &open.server, &open.links),
                    // Nobody is left to stop this thread: go orderly.
                    None => break {
                        plane.stop();
                        stop.await
                    },
                },
                end = &mut stop => break end,
            }
        }
    };
    plane.hang_up("this node stops");
    let _ = tokio::time::timeout(FAREWELL_LIMIT, async {
        open.server.stop().await;
        plane.links_are_down().await;
    })
    .await;
    open.links.stop();
    workers.iter().for_each(|worker| worker.abort());
    end
}

/// Waits for the wish to stop, then for every group to come to rest.
async fn stop(plane: &Plane) -> End {
    plane.stop_is_wanted().await;
    match tokio::time::timeout(STOP_LIMIT, plane.stopped()).await {
        Ok(()) => End::Clean,
        Err(_) => {
            let owing = plane.core.borrow().disks.owing(OWING_FOR);
            let whom: String = owing.iter().map(|debt| format!("; {debt}")).collect();
            tracing::warn!(
                "the groups did not come to rest within {STOP_LIMIT:?}{whom}: the next start treats this as a crash; nothing \
                 acknowledged is lost by that"
            );
            End::Hurried
        }
    }
}

struct Open {
    plane: Rc<Plane>,
    server: nbd::Server,
    links: Links,
}

fn open(setup: Setup) -> Result<Open, String> {
    let disks = FileEngine::new(setup.file_engine).map_err(|error| error.to_string())?;
    let LinkSetup { cluster, node, proof, definitions, show_difference, peers, listen, socket, flow } = setup.link;
    let names = peers.iter().map(|peer| peer.name.clone()).collect();
    let (secret, tls) = match proof {
        Proof::Secret(bytes) => (Secret::new(&bytes), None),
        // Each encrypted connection has a secret of its own; this one is nobody's.
        Proof::Certificates(store) => {
            (Secret::new(&[entropy().to_le_bytes(), entropy().to_le_bytes()].concat()), Some(store))
        }
    };
    let known = peers.iter().map(|peer| (peer.id, peer.name.clone())).collect();
    let meeting = links::Meeting::new(known, definitions.clone(), show_difference);
    let plane = Rc::new(Plane::new(setup.node, setup.groups, disks, Pool::new(setup.front_bytes), meeting));
    let server = nbd::Server::new(plane.clone(), nbd::Limits::default());
    setup.nbd.iter().try_for_each(|place| listen_nbd(&server, place, &tls).map_err(|error| error.to_string()))?;
    let ours = Ourselves { cluster, node, peers: names, secret, definitions, versions: Versions::OURS };
    let config = LinkConfig { ours, peers, listen, tls, socket, flow, bounds: LinkBounds::default() };
    let links =
        Links::start(config, Pool::new(setup.arriving_bytes), plane.clone()).map_err(|error| error.to_string())?;
    Ok(Open { plane, server, links })
}

fn listen_nbd(server: &nbd::Server, place: &Listen, tls: &Option<Store>) -> Result<(), nbd::ListenError> {
    match (place, tls) {
        (Listen::Unix(path), _) => server.listen_unix(path),
        (Listen::Tcp { address, needs_tls }, Some(store)) => {
            server.listen_tls(*address, store.clone(), *needs_tls).map(drop)
        }
        (Listen::Tcp { address, needs_tls }, None) => {
            assert!(!needs_tls, "TLS is asked for with credentials only");
            server.listen_tcp(*address).map(drop)
        }
    }
}
