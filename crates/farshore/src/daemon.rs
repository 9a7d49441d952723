//! Wires configuration, data path and control socket together and runs until told to stop.
//!
//! The data path has its own thread; this one serves the control socket and waits for signals. They meet in
//! [`host::driver::DriverControl`] alone.

mod answer;
mod attached;
mod checked_text;
mod configuration;
mod current_config;
mod demotions;
pub mod detached;
mod device_record;
pub mod devices;
mod difference;
mod direction;
mod disk_queue;
mod events;
mod front_desk;
mod group_directory;
mod history_room;
mod left_volumes;
mod link_rate;
mod link_view;
pub mod names;
mod open;
mod operations;
mod other_volumes;
mod patience;
mod peer_desk;
mod preview;
mod promises;
mod queue_view;
mod reader_room;
mod reconnect;
mod recorder;
mod recording;
pub(crate) mod renewal;
mod reopening;
mod reverse_record;
mod reverses;
mod role_changes;
mod role_hooks;
mod scrub;
pub mod seals;
mod service;
mod state_files;
mod terms;
mod typed_words;
mod verify_view;
mod view;
mod watch;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use answer::{Desk, PeerAsk};
use anyhow::Context;
use current_config::CurrentConfig;
use events::EventKeeper;
use front_desk::FrontDesk;
use host::disk::meta::StateDirectory;
use host::driver::{self, DriverControl, DriverEnd, GroupOpener};
use host::link::control;
use host::tls::{CredentialStore, Paths};
use open::OpenedGroups;
use peer_desk::{PeerDesk, visitors};
use recorder::MinuteRecorder;
use renewal::Renewal;
use reopening::{GroupReopener, RefusedGroups};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use seals::Seals;
use settings::{Config, ConfiguredNode, GroupOverrides, LinkOverrides, NodeName, Proof, Silent};
use terms::KnownTerms;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

use crate::api::server;
use crate::api::{ApiRequest, SwitchoverOrder};
use crate::log;
use crate::metrics;
use crate::outcome::Exit;

const BROKE_DOWN: &str = "the data thread broke down; what it said is in the log above. Nothing acknowledged is lost: start the \
     daemon again";

const HUNG: &str = "the stop gives up waiting for disks that answer nothing: this process ends now, and the next start treats this \
     as a crash; nothing acknowledged is lost by that";

/// Far more than clients, links and files can be; the kernel takes no more than a million by itself.
const DESCRIPTORS_MAX: u64 = 1 << 20;
/// How long the stop waits for the last line of the links' histories.
const LAST_RECORD: Duration = Duration::from_secs(1);
/// How long the stop waits for the next answer while fingerprints of the volumes are taken: some MiB of each are read, by a thousand
/// reads of a disk.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// How the daemon comes to its end.
enum DaemonStop {
    Ended(DriverEnd),
    /// The data thread was waited for long enough.
    GivenUp,
}

/// Takes the state directory for this process, as long as it lives.
///
/// # Errors
/// A sentence: another daemon holds it, or it cannot be used.
pub fn hold(state: &Path) -> anyhow::Result<StateDirectory> {
    Ok(patience::Patience::new().free(|| StateDirectory::open(state))?)
}

/// Runs the daemon of `node`. The configuration's local facts were checked, its settings are the file's own: the ones
/// that hold are `overrides.effective(..)`. The state directory is held until the end: a second daemon on it would be a
/// second writer of every volume.
///
/// # Errors
/// A sentence: what could not be started, and where.
pub fn run(
    config: Config,
    node: NodeName,
    _state: &StateDirectory,
    (overrides, link_overrides): (GroupOverrides, LinkOverrides),
    (proof, silent): (Proof, Silent),
) -> anyhow::Result<ExitCode> {
    let here = config.node(&node).with_context(|| format!("the configuration has no node {node}"))?;
    let control_socket = here.control_socket();
    raise_descriptors();
    let telling = service::keep_waiting("opening volumes and journals");
    let mut opened = open::open(&config, &node, &silent)?;
    drop(telling);
    let (proof, renewal) = given(&config, &node, proof);
    let refused = RefusedGroups::new(opened.refused.clone());
    let may_peers = here.peer_commands;
    let events = Rc::new(EventKeeper::open(&config, &node)?);
    let (notices, told) = driver::notices();
    let (current, terms, reopener) = shared(&config, here, &mut opened, &refused);
    let opened = (opened, reopener.clone() as Arc<dyn GroupOpener>);
    let mut setup = open::setup(&config, &node, (&overrides, &link_overrides), proof, opened, notices);
    let (door, visits) = control::door(setup.link.peers.iter().map(|peer| peer.name.clone()));
    setup.link.control = Some(door);
    let peers = Rc::new(PeerDesk::new(&setup.link, current.clone(), node.clone()));
    end_at_a_breakdown();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("the control thread's runtime cannot be made")?;
    let end = LocalSet::new().block_on(&runtime, async {
        let listener = server::bind(&control_socket).map_err(anyhow::Error::msg)?;
        let started = driver::start(setup).map_err(anyhow::Error::msg);
        let (control, thread) = started.inspect_err(|_| _ = std::fs::remove_file(&control_socket))?;
        tracing::info!(
            "node {node} of cluster {} runs; its control socket is {}",
            config.top.cluster,
            control_socket.display()
        );
        let recorder = Rc::new(MinuteRecorder::open(&config, &node, control.clone()));
        let recording = tokio::task::spawn_local(recorder.clone().run());
        let telling = tokio::task::spawn_local(service::keep_telling(control.clone(), refused.clone()));
        let (settings, kept) = ((overrides, link_overrides), (recorder.clone(), events.clone()));
        let looks = (control.clone(), ask_by(peers.clone()));
        let desk =
            Rc::new(Desk::new((current, node), settings, kept, looks, (renewal, reopener.clone(), (refused, terms))));
        let renewing = tokio::task::spawn_local(desk.clone().look_for_ever());
        let measuring = tokio::task::spawn_local(serve_metrics(desk.clone()));
        let hearing = tokio::task::spawn_local(desk.clone().hear_for_ever(told));
        let looking = tokio::task::spawn_local(desk.clone().look_at_groups_for_ever());
        let visiting = tokio::task::spawn_local(visitors::serve(visits, desk.clone(), may_peers));
        let front = Rc::new(FrontDesk::new(desk, peers, events.sender().clone()));
        let answering = tokio::task::spawn_local(server::serve(listener, move |request, asker| {
            let front = front.clone();
            async move { front.answer(request, asker).await }
        }));
        let end = supervise(control, thread, &recorder).await;
        // With the data thread its notices end.
        let _ = tokio::time::timeout(LAST_RECORD, hearing).await;
        let tasks = [looking, recording, telling, answering, visiting, measuring, renewing];
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        end
    });
    // Of a disk that hangs, whoever asked it for a file of ours would be waited for.
    runtime.shutdown_background();
    let end = ended(end, &events)?;
    // It would lead nowhere from here on; if it is gone already, so much the better.
    let _ = std::fs::remove_file(&control_socket);
    let exit = conclude(end, reopener.take_seals());
    events.finish(end == DriverEnd::Clean);
    Ok(exit.into())
}

/// The desk knows nothing of where peers are: orders that were carried here are never carried on. The one that it gives itself is that the
/// peer gets ready for a switchover.
fn ask_by(peers: Rc<PeerDesk>) -> PeerAsk {
    Box::new(move |peer, request| {
        let peers = peers.clone();
        Box::pin(async move {
            match request {
                ApiRequest::TakeOver { .. }
                | ApiRequest::Rest { .. }
                | ApiRequest::Lend { .. }
                | ApiRequest::Keep { .. }
                | ApiRequest::Sync { .. }
                | ApiRequest::Switchover(SwitchoverOrder { only_asks: false, .. }) => {
                    peers.order(&peer, &request).await.map_err(|why| why.to_string())
                }
                request => peers.ask(&peer, request).await,
            }
        })
    })
}

/// How the data thread ended. Commands that were under way are recorded as they are dropped, which has to reach the log however that was.
fn ended(end: anyhow::Result<DaemonStop>, events: &EventKeeper) -> anyhow::Result<DriverEnd> {
    match end {
        Ok(DaemonStop::Ended(end)) => Ok(end),
        Ok(DaemonStop::GivenUp) => {
            events.write_last();
            give_up(HUNG)
        }
        Err(error) => {
            events.write_last();
            Err(error)
        }
    }
}

/// The data thread has ended: what is left at rest gets its fingerprints.
fn conclude(end: DriverEnd, seals: Seals) -> Exit {
    if end == DriverEnd::Hurried {
        return Exit::Warning;
    }
    let _telling = service::keep_waiting("taking fingerprints of the volumes");
    let unsealed = seals.write_unless_silent(SILENCE_MAX);
    if !unsealed.is_empty() {
        give_up(&format!(
            "a disk answers nothing, so the volumes of {} get no fingerprint: this process ends now, and the next start cannot know \
             whether they were changed until then; nothing acknowledged is lost by that",
            unsealed.join(", ")
        ));
    }
    tracing::info!("stopped");
    Exit::Done
}

/// For ever, where the configuration says so. The page of many groups is some MiB, so another thread writes it.
async fn serve_metrics(desk: Rc<Desk>) {
    let Some(endpoint) = desk.metrics_endpoint() else { return };
    let make = move |form| {
        let desk = desk.clone();
        async move {
            let facts = desk.measure().await;
            let page = tokio::task::spawn_blocking(move || metrics::page(facts, form));
            page.await.expect("a page is only written")
        }
    };
    metrics::server::serve(endpoint, make).await;
}

/// Ends the process beside a disk that owes answers. Files that lie on it are not closed first: that would be waited for as well.
fn give_up(why: &str) -> ! {
    tracing::error!("{why}");
    log::finish();
    std::process::exit(i32::from(Exit::Warning as u8))
}

/// As many open files as this process may have at all: what is usual at first, 1 024, is for programs that cannot count further, and
/// clients, links and volumes share them.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(DESCRIPTORS_MAX).min(DESCRIPTORS_MAX);
    let raised = Rlimit { current: Some(most), maximum: limit.maximum };
    if limit.current.is_some_and(|current| current < most)
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!("the limit of open files stays as it is: {error}");
    }
}

/// A task that breaks is no end of its thread: others would go on, and send what a half-done step left behind, answers too. A
/// crash is what the next start is made for. What it said goes to the log: standard error may take nothing, and hold the end up.
fn end_at_a_breakdown() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        tracing::error!("thread {} {panic}", thread.name().unwrap_or("without a name"));
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            tracing::error!("{backtrace}");
        }
        if thread.name() == Some(driver::DATA_THREAD) {
            tracing::error!("{BROKE_DOWN}");
            log::finish();
            std::process::abort();
        }
    }));
}

/// What the data thread proves with, and what keeps it up to date.
fn given(config: &Config, node: &NodeName, proof: Proof) -> (driver::NodeProof, Option<Renewal>) {
    match (proof, &config.tls) {
        (Proof::Certificates(credentials), Some(tls)) => {
            let store = CredentialStore::new(*credentials);
            let paths = Paths::of_node(&tls.directory, node.as_str());
            (driver::NodeProof::Certificates(store.clone()), Some(Renewal::new(store, paths)))
        }
        (Proof::Certificates(_), None) => unreachable!("certificates come from the table [tls]"),
        (Proof::Secret(secret), _) => (driver::NodeProof::Secret(secret.bytes().to_vec()), None),
    }
}

/// What the desk shares with whoever opens groups again.
fn shared(
    config: &Config,
    here: &ConfiguredNode,
    opened: &mut OpenedGroups,
    refused: &RefusedGroups,
) -> (CurrentConfig, KnownTerms, Arc<GroupReopener>) {
    let current = CurrentConfig::new(config.clone());
    // Read once the groups were opened: what that finds may begin another term.
    let terms = KnownTerms::read(&here.state, config.groups_of(&here.name).map(|group| group.name.as_str()));
    let known = (refused.clone(), terms.clone());
    let reopener = GroupReopener::new((current.clone(), here.name.clone()), opened.take_kept(), known);
    (current, terms, Arc::new(reopener))
}

/// Waits for a signal, then for the data thread's end.
async fn supervise(
    control: DriverControl,
    thread: std::thread::JoinHandle<DriverEnd>,
    recorder: &MinuteRecorder,
) -> anyhow::Result<DaemonStop> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be watched")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be watched")?;
    let (ended, mut wait) = tokio::sync::oneshot::channel();
    // Joining blocks, so a thread of its own does it; it ends with the data thread.
    std::thread::Builder::new()
        .name("data-0-end".into())
        .spawn(move || ended.send(thread.join()))
        .context("the thread that watches the data thread cannot be started")?;
    let result = tokio::select! {
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
        result = &mut wait => Some(result),
    };
    let result = match result {
        Some(result) => result,
        None => {
            tracing::info!("stopping");
            let patience = driver::STOP_PATIENCE + 3 * LAST_RECORD + SILENCE_MAX;
            let _ = tokio::time::timeout(LAST_RECORD, service::tell_stopping(patience)).await;
            // A disk that hangs is the data thread's to deal with.
            if let Ok(Ok(snapshot)) = tokio::time::timeout(LAST_RECORD, control.snapshot()).await
                && let Some(whom) = attached::cut_off(&snapshot.clients)
            {
                tracing::warn!("{whom}");
            }
            let _ = tokio::time::timeout(LAST_RECORD, recorder.write()).await;
            let stop = async {
                // If it has ended by itself, its end is told below.
                let _ = control.stop().await;
                wait.await
            };
            match tokio::time::timeout(driver::STOP_PATIENCE, stop).await {
                Ok(result) => result,
                Err(_) => return Ok(DaemonStop::GivenUp),
            }
        }
    };
    match result {
        Ok(Ok(end)) => Ok(DaemonStop::Ended(end)),
        _ => anyhow::bail!(BROKE_DOWN),
    }
}
