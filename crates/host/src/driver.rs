//! The loop: the only place that sees both the engine and the operating system.
//!
//! A switchboard with one operator. Clients, links, disks and the clock ring; the operator tells the engine what
//! happened, and when the engine has no more to say, plugs what it asked for: frames into sockets, requests into the
//! disks' tray, answers back to their clients. Everything happens on one data thread; people speak to it through
//! [`DriverControl`] alone.
//!
//! What must hold:
//! * the engine's outputs are performed in their order, once per turn, whoever caused the turn;
//! * no borrow of the state is held while a client is answered;
//! * frames go to the sockets before a lone write may be waited for, so that the peer works while the local disk does;
//! * nothing on this thread waits for a person, nor for a disk longer than a moment.

mod clients;
mod clock;
mod control;
mod disk_queue_health;
mod disk_requests;
mod event_log;
mod forward;
mod groups;
mod held_clients;
mod lending;
mod notices;
mod peers;
mod plane;
mod reopening;
mod request_recorder;
mod setup;
mod slab;
mod snapshot;
mod spill;
mod volume;

use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{LocalSet, spawn_local};

pub use control::{ClientsOfRemoved, ClientsOrder, DriverControl, Gone};
pub use forward::{
    FORWARD_GREETING, FORWARD_RETRY_FIRST, FORWARD_RETRY_MAX, FORWARDED_BYTES_MAX, FORWARDED_MAX, ForwardStatus,
};
pub use notices::{DriverNews, DriverNotice, NoticeReceiver, NoticeSender, notices};
pub use request_recorder::{RecordedKind, RecordedRequest, RecordedRequests};
pub use setup::{
    AddedGroup, CompareDefinitions, DefinitionsDifference, DriverSetup, GroupOpener, GroupSetup, LetGo, LinkSetup,
    Listen, NodeProof, OpenedGroup, RefusedGroup, ServedElsewhere, Stores, VolumeSetup, group_tag, node_number,
    second_node_number,
};
pub use snapshot::{
    DriverSnapshot, GroupFigures, GroupSnapshot, LinkSnapshot, PeerConnection, QueuePace, StoredBytes, SyncPace,
    VolumeSnapshot,
};

pub use crate::random::entropy;

use crate::buffers::Pool;
use crate::disk::FileEngine;
use crate::link::volume_line::VolumeLine;
use crate::link::{ClusterSecret, LinkBounds, LinkConfig, Links, Ourselves, PeerDialer, Versions};
use crate::nbd;
use crate::tls::CredentialStore;
use peers::Peers;
use plane::{PeerExports, PeerWays, Plane};

/// Commands that may wait for the data thread: operators and scripts, not a crowd; more wait for room.
const COMMANDS_MAX: usize = 64;
/// From the wish to stop to the last record. Longer than a drain, shorter than a service manager's patience.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// What clients and peers get to take their last answers once the groups are at rest.
const FAREWELL_LIMIT: Duration = Duration::from_secs(2);
/// After this the data thread has ended, unless a disk holds it: what the kernel has of its memory cannot be taken back.
pub const STOP_PATIENCE: Duration = STOP_LIMIT.saturating_add(FAREWELL_LIMIT).saturating_add(Duration::from_secs(1));
/// Whom a stop waits for: disks that have given no answer for so long.
const OWING_FOR: Duration = Duration::from_secs(1);

/// How a data thread ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverEnd {
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
pub fn start(setup: DriverSetup) -> Result<(DriverControl, JoinHandle<DriverEnd>), String> {
    let (control, commands) = control::channel(COMMANDS_MAX);
    let (ready, started) = std::sync::mpsc::channel();
    let run = move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = ready.send(Err(format!("the data thread's runtime cannot be made: {error}")));
                return DriverEnd::Hurried;
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

async fn run(
    setup: DriverSetup,
    mut commands: control::ControlReceiver,
    ready: std::sync::mpsc::Sender<Result<(), String>>,
) -> DriverEnd {
    let open = match open(setup) {
        Ok(open) => open,
        Err(sentence) => {
            // Whoever started this thread waits for the sentence.
            let _ = ready.send(Err(sentence));
            return DriverEnd::Hurried;
        }
    };
    let plane = &open.plane;
    let workers = [
        spawn_local(plane.clone().watch_disks()),
        spawn_local(plane.clone().watch_silence()),
        spawn_local(plane.clone().watch_clock()),
        spawn_local(plane.clone().watch_links()),
        spawn_local(plane.clone().watch_reopened()),
        spawn_local(admit_peers(plane.clone(), open.server.clone(), open.volume_lines)),
    ];
    let entropy = entropy();
    plane.begin_served_elsewhere(&open.served);
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
async fn stop(plane: &Plane) -> DriverEnd {
    plane.stop_is_wanted().await;
    match tokio::time::timeout(STOP_LIMIT, plane.stopped()).await {
        Ok(()) => DriverEnd::Clean,
        Err(_) => {
            let owing = plane.owing(OWING_FOR);
            let whom: String = owing.iter().map(|debt| format!("; {debt}")).collect();
            tracing::warn!(
                "the groups did not come to rest within {STOP_LIMIT:?}{whom}: the next start treats this as a crash; nothing \
                 acknowledged is lost by that"
            );
            DriverEnd::Hurried
        }
    }
}

/// Peers that come for a volume, for ever.
async fn admit_peers(plane: Rc<Plane>, server: Rc<nbd::NbdServer>, mut lines: UnboundedReceiver<VolumeLine>) {
    while let Some(VolumeLine { peer, name, address, attempt, line }) = lines.recv().await {
        let exports = PeerExports { plane: plane.clone(), peer, attempt };
        server.admit_peer((&name, address), line, Rc::new(exports));
    }
}

struct OpenDriver {
    plane: Rc<Plane>,
    server: Rc<nbd::NbdServer>,
    links: Links,
    volume_lines: UnboundedReceiver<VolumeLine>,
    served: ServedElsewhere,
}

fn open(setup: DriverSetup) -> Result<OpenDriver, String> {
    let disks = FileEngine::new(setup.file_engine).map_err(|error| error.to_string())?;
    let LinkSetup { cluster, node, proof, definitions, compare, peers, listen, socket, flow, control } = setup.link;
    let names = peers.iter().map(|peer| peer.name.clone()).collect();
    let (secret, tls) = match proof {
        NodeProof::Secret(bytes) => (ClusterSecret::new(&bytes), None),
        // Each encrypted connection has a secret of its own; this one is nobody's.
        NodeProof::Certificates(store) => {
            (ClusterSecret::new(&[entropy().to_le_bytes(), entropy().to_le_bytes()].concat()), Some(store))
        }
    };
    let known = peers.iter().map(|peer| (peer.id, peer.name.clone())).collect();
    let known = Peers::new(known, definitions.clone(), compare);
    let addresses = peers.iter().map(|peer| (peer.id, (peer.name.clone(), peer.address))).collect();
    let ours = Ourselves { cluster, node, peers: names, secret, definitions, versions: Versions::OURS };
    let ways = PeerWays { dialer: Rc::new(PeerDialer::new(ours.clone(), tls.clone())), addresses };
    let plane = Rc::new(Plane::new(
        setup.node,
        (setup.groups, setup.opener),
        disks,
        Pool::new(setup.front_bytes),
        (known, setup.notices, ways),
    ));
    let server = Rc::new(nbd::NbdServer::new(plane.clone(), nbd::Limits::default()));
    tls.iter().for_each(|store| server.verify_peers(store.clone()));
    setup.nbd.iter().try_for_each(|listen| listen_nbd(&server, listen, &tls).map_err(|error| error.to_string()))?;
    let (volumes, volume_lines) = unbounded_channel();
    let volumes = Some(volumes);
    let config = LinkConfig { ours, peers, listen, tls, socket, flow, bounds: LinkBounds::default(), control, volumes };
    let links =
        Links::start(config, Pool::new(setup.arriving_bytes), plane.clone()).map_err(|error| error.to_string())?;
    Ok(OpenDriver { plane, server, links, volume_lines, served: setup.served })
}

fn listen_nbd(server: &nbd::NbdServer, listen: &Listen, tls: &Option<CredentialStore>) -> Result<(), nbd::ListenError> {
    match (listen, tls) {
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
