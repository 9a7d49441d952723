//! Commands around a change of a group's role: a fence before a promotion, an address that moves after it.
//!
//! What must hold:
//! * one before runs when the change could be carried out as far as this daemon can tell, and at no other time: [`Candidate`] and
//!   [`no_handover`] are asked first. The data path has the last word, after the command: what changes meanwhile may still have it refuse;
//! * one before that fails has the change refused; one after never takes a change back;
//! * nothing that a command may ask of this daemon is held while it runs, but for the group's role;
//! * a command has an end, whatever its program does.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::identity::Role;
use engine::state::{Pause, State};
use engine::status::{GroupStatus, LinkStatus};
use engine::{RefusalCode, peer_away};
use settings::events::EventKind;
use settings::{RoleHook, RoleHooks};
use tokio::time::timeout;
use units::exact::duration_text;

use super::events::EventSender;
use super::events::attempt::AttemptFailure;
use super::events::program::{self, ProgramRun};
use super::events::queue::BoundedQueue;
use crate::api::refusals::DeskRefusal;
use crate::api::{GroupView, Reply};
use crate::events::NewEvent;

/// How long a program that was killed may take to be gone: one that waits for a disk takes as long as the disk.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// A command that is to be run.
pub(super) struct RoleHookRun<'a> {
    pub hooks: &'a RoleHooks,
    pub which: RoleHook,
    pub config_file: PathBuf,
    pub node: &'a str,
    pub peer: &'a str,
    pub group: &'a str,
    /// `--force`, or `--close-clients`.
    pub is_forced: bool,
    /// The answer to the change that was made.
    pub text: Option<&'a str>,
    pub events: &'a EventSender,
}

/// Ends the program of a command that nobody waits for any more.
struct EndsWhenDropped(Arc<BoundedQueue<()>>);

impl Drop for EndsWhenDropped {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl RoleHookRun<'_> {
    /// Runs it to its end, if the group has such a command, and records what came of that.
    ///
    /// # Errors
    /// A sentence: it could not be started, it failed, or it took too long and was killed.
    pub async fn run(self) -> Result<(), String> {
        let (which, group) = (self.which.as_str(), self.group);
        let command = self.hooks.command(self.which);
        if command.is_empty() {
            return Ok(());
        }
        tracing::info!("{group}: {which}: {} is run", command[0]);
        let begun = Instant::now();
        let ended = run(command.to_vec(), self.hooks.timeout, self.environment()).await;
        let ended = ended.map_err(|why| format!("{which} of the configuration failed: {}: {why}", command[0]));
        let (result, text) = match &ended {
            Ok(()) => ("done", format!("{which}: {} ended well", command[0])),
            Err(why) => ("failed", why.clone()),
        };
        if ended.is_err() {
            tracing::warn!("{group}: {text}");
        }
        let told = NewEvent::now(EventKind::RoleHook, text).of_group(group).of_peer(self.peer).with("hook", which);
        let told = told.with("result", result).with_known("reason", ended.clone().err());
        self.events.record(told.with_ms("duration_ms", Some(begun.elapsed())));
        ended
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let forced = if self.is_forced { "yes" } else { "no" };
        let all = [
            ("FARSHORE_HOOK", Some(self.which.as_str().to_owned())),
            ("FARSHORE_CONFIG", Some(program::absolute_text(&self.config_file))),
            ("FARSHORE_NODE", Some(self.node.to_owned())),
            ("FARSHORE_PEER", Some(self.peer.to_owned())),
            ("FARSHORE_GROUP", Some(self.group.to_owned())),
            ("FARSHORE_FORCED", Some(forced.to_owned())),
            ("FARSHORE_TEXT", self.text.map(str::to_owned)),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// On a thread of its own, as nobody else is to wait for it.
async fn run(command: Vec<String>, limit: Duration, environment: Vec<(&'static str, String)>) -> Result<(), String> {
    let queue = Arc::new(BoundedQueue::new(1));
    let _ends = EndsWhenDropped(queue.clone());
    let is_started = Arc::new(AtomicBool::new(false));
    let started = is_started.clone();
    let run = move || {
        let program = ProgramRun { command: &command, timeout: limit, environment, input: "", is_started: &started };
        program::run(&program, |pause| queue.is_closed_within(pause))
    };
    match timeout(limit + KILL_PATIENCE, tokio::task::spawn_blocking(run)).await {
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(AttemptFailure::Failed(why)))) => Err(why),
        Ok(Ok(Err(AttemptFailure::Ending))) => Err("this daemon ends".to_owned()),
        Ok(Err(broken)) => Err(format!("it was not waited for: {broken}")),
        Err(_) if is_started.load(Ordering::Relaxed) => {
            Err(format!("it did not end within {}, was killed, and is not gone yet", duration_text(limit)))
        }
        Err(_) => Err(format!("it was not started within {}: a disk does not answer", duration_text(limit))),
    }
}

/// The answer to whoever asked for a change that a command has stopped. `verb`: "promoted" or "demoted".
pub(super) fn refusal(group: &str, verb: &str, node: &str, why: &str) -> Reply {
    let message = format!(
        "{group}: {why}; nothing was {verb}. What the program said is in the log of node {node}; --skip-hooks leaves the commands of the \
         configuration out"
    );
    Reply::refused(DeskRefusal::HookFailed, message)
}

/// What a status tells of a secondary that is to be promoted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    state: State,
    /// This node's half: a secondary shows what its primary reports.
    has_failed: bool,
    is_starting: bool,
    /// It has a history.
    has_lived: bool,
    /// The sequence number of its image.
    image: Option<u64>,
    /// For so long its promotion would lose nothing.
    window: Option<Duration>,
    handed_over: bool,
    /// A volume is set aside: the image is without it.
    lacks_volume: bool,
    /// One has a disk that no sync has filled.
    is_unfilled: bool,
    /// `None`: there is no link.
    peer: Option<LinkedPeer>,
}

/// A peer that is connected: the role that it has said, if it has.
#[derive(Clone, Copy, Debug)]
struct LinkedPeer(Option<Role>);

impl Candidate {
    pub fn of(now: &GroupStatus) -> Candidate {
        let is_up = matches!(now.peer.link, LinkStatus::Connected | LinkStatus::Congested);
        Candidate {
            state: now.state,
            has_failed: now.has_failed,
            is_starting: now.starting,
            has_lived: !now.identity.generation.is_blank(),
            image: now.promotable.map(|(position, _)| position.seq.0),
            window: now.peer_window,
            handed_over: now.identity.handed_over,
            lacks_volume: now.volumes.iter().any(|volume| volume.is_aside),
            is_unfilled: now.volumes.iter().any(|volume| volume.is_unfilled),
            peer: is_up.then_some(LinkedPeer(now.peer.role)),
        }
    }

    /// Why it would not be promoted now; `None`: nothing speaks against it here. Codes are those of the data path, in its order.
    pub fn no_promotion(self, force: bool) -> Option<(RefusalCode, String)> {
        if let (State::Failed(broken), true) = (self.state, self.has_failed) {
            return Some((RefusalCode::GroupFailed, format!("the group has failed: {}", broken.words())));
        }
        // Out of a start that stands still for want of history a promotion is a way.
        if self.is_starting && self.state != State::Paused(Pause::HistoryFull) {
            return refused(RefusalCode::GroupStarting, "the group is starting; try again in a moment");
        }
        if !self.has_lived {
            let why = "this node holds no image of the group: no sync to it was ever completed, or a volume was written while farshore \
                       was stopped here; --force changes nothing about that";
            return refused(RefusalCode::NoImage, why);
        }
        let Some(image) = self.image else {
            let why = "a sync to this node has begun and not ended, and there is no image from before it, --force or not; let the sync \
                       end first";
            return refused(RefusalCode::SyncUnfinished, why);
        };
        if self.is_unfilled {
            let why = "a volume has a disk here that no sync has filled (see 'status'), so nothing in it is of the group, --force or not: 'sync \
                       --volume' on the primary fills it; to do without it, 'farshore group detach' here first";
            return refused(RefusalCode::VolumeUnfilled, why);
        }
        // While it starts the peer's first word may not have been taken up.
        if force || self.is_starting { None } else { self.needs_force(image) }
    }

    /// An operator who forces it learns first what the image lacks.
    fn needs_force(self, image: u64) -> Option<(RefusalCode, String)> {
        match (self.stands_apart(image), self.lacks_volume) {
            (Some((code, why)), true) => {
                Some((code, format!("{why}; a volume is set aside as well, and the image is without it")))
            }
            (None, true) => {
                let why = "a volume is set aside (see 'status'), and the image here is without it; --force promotes this node all the same";
                refused(RefusalCode::VolumeAside, why)
            }
            (other, false) => other,
        }
    }

    fn stands_apart(self, image: u64) -> Option<(RefusalCode, String)> {
        match self.peer {
            None => Some((RefusalCode::PeerAway, peer_away(image, self.window))),
            Some(LinkedPeer(None)) => {
                let why = "the peer is connected, but its half of the group has not said who it is, or does not fit (see 'status' there); \
                           it may be primary; --force promotes this node all the same, and gives up what the peer wrote alone";
                refused(RefusalCode::PeerSilent, why)
            }
            Some(LinkedPeer(Some(Role::Primary))) => {
                let why = "the peer is primary and connected; demote it there first ('farshore demote GROUP'); if its half of the group \
                           has failed, --force promotes this node all the same, and gives up what the peer wrote alone";
                refused(RefusalCode::PeerIsPrimary, why)
            }
            Some(LinkedPeer(Some(Role::Secondary))) if self.handed_over => {
                let why = "this node handed over to the peer, which may be promoted there without force, also in this very moment; --force \
                           takes the demotion back";
                refused(RefusalCode::HandedOver, why)
            }
            Some(LinkedPeer(Some(Role::Secondary))) => None,
        }
    }
}

fn refused(code: RefusalCode, why: &str) -> Option<(RefusalCode, String)> {
    Some((code, why.to_owned()))
}

/// The same by the word of a peer that is secondary too: whether it handed over what stands here. One that does not say so speaks against
/// nothing.
pub(super) fn no_handover(ours: &GroupView, theirs: &GroupView) -> Option<(RefusalCode, String)> {
    if theirs.starting || theirs.role != crate::api::Role::Secondary {
        return None;
    }
    let place = |group: &GroupView| {
        let sequence = group.promotable.as_ref().map(|point| point.sequence);
        (group.generation.clone(), sequence)
    };
    let is_other = place(ours) != place(theirs);
    let stands_apart = match theirs.handed_over? {
        true => is_other.then_some("it handed over at another place than the one where this node stands"),
        false => Some("it did not hand over to this node"),
    };
    stands_apart.map(|how| {
        let why = format!(
            "the peer is secondary too, and {how}: it may have what is missing here; --force promotes this node all the same, and gives \
             that up"
        );
        (RefusalCode::CopyBehind, why)
    })
}

#[cfg(test)]
mod tests {
    use engine::state::Broken;
    use serde_json::json;

    use super::*;

    async fn ends(script: &str, limit: Duration) -> Result<(), String> {
        let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        run(command, limit, vec![("FARSHORE_GROUP", "d\0b".to_owned())]).await
    }

    #[tokio::test]
    async fn a_command_succeeds_by_its_exit_code_alone() {
        let long = Duration::from_secs(60);
        assert_eq!(ends("[ \"$FARSHORE_GROUP\" = db ] && [ -z \"$HOME\" ] && ! read line", long).await, Ok(()));
        assert_eq!(ends("exit 4", long).await, Err("it ended with exit code 4".to_owned()));
        let missing = run(vec!["/no/such/program".to_owned()], long, Vec::new()).await;
        let why = missing.expect_err("it is not there");
        assert!(why.starts_with("it was not started: /no/such/program does not exist"), "{why}");
    }

    /// Whether the process of the id in a file goes on.
    fn lives(file: &std::path::Path) -> bool {
        let pid = std::fs::read_to_string(file).expect("it began");
        let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        !state.is_empty() && !state.contains(") Z ")
    }

    /// It is dead for good, and may take a moment to be gone.
    async fn until_gone(file: &std::path::Path) {
        let gone = async {
            while lives(file) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(30), gone).await.expect("it lives");
    }

    /// What it has started goes with it.
    #[tokio::test]
    async fn a_command_that_hangs_is_killed_with_its_children() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let ended = ends(&script, Duration::from_millis(500)).await;
        assert_eq!(ended, Err("it did not end within 500ms and was killed".to_owned()));
        until_gone(&file).await;
    }

    /// One that asked this daemon for a status waited for itself.
    #[tokio::test]
    async fn a_command_is_answered_while_it_is_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let [asked, answered] = ["asked", "answered"].map(|name| directory.path().join(name));
        let script = format!("touch {}; while ! [ -e {} ]; do sleep 0.01; done", asked.display(), answered.display());
        let answers = async {
            while !asked.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            std::fs::write(&answered, "").expect("written");
        };
        let (ended, ()) = tokio::join!(ends(&script, Duration::from_secs(60)), answers);
        assert_eq!(ended, Ok(()));
    }

    #[tokio::test]
    async fn a_command_that_nobody_waits_for_is_ended() {
        let directory = tempfile::tempdir().expect("a directory");
        let (file, begun) = (directory.path().join("pid"), directory.path().join("begun"));
        let script = format!("echo $$ > {}; touch {}; sleep 1000; :", file.display(), begun.display());
        let begins = async {
            while !begun.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            ended = ends(&script, Duration::from_secs(500)) => panic!("{ended:?}"),
            () = begins => {}
        }
        until_gone(&file).await;
    }

    /// A fence turned a node off for a promotion that was refused in the next moment.
    #[test]
    fn what_would_be_refused_anyway_is_refused_first() {
        let sound = Candidate {
            state: State::Replicating,
            has_failed: false,
            is_starting: false,
            has_lived: true,
            image: Some(70),
            window: None,
            handed_over: false,
            lacks_volume: false,
            is_unfilled: false,
            peer: Some(LinkedPeer(Some(Role::Secondary))),
        };
        let full = State::Paused(Pause::HistoryFull);
        let primary = Some(LinkedPeer(Some(Role::Primary)));
        for (now, unforced, forced) in [
            (sound, None, None),
            (Candidate { peer: None, ..sound }, Some(RefusalCode::PeerAway), None),
            (Candidate { lacks_volume: true, ..sound }, Some(RefusalCode::VolumeAside), None),
            (Candidate { lacks_volume: true, peer: None, ..sound }, Some(RefusalCode::PeerAway), None),
            (Candidate { peer: Some(LinkedPeer(None)), ..sound }, Some(RefusalCode::PeerSilent), None),
            (Candidate { peer: primary, ..sound }, Some(RefusalCode::PeerIsPrimary), None),
            (Candidate { handed_over: true, ..sound }, Some(RefusalCode::HandedOver), None),
            (Candidate { image: None, ..sound }, Some(RefusalCode::SyncUnfinished), Some(RefusalCode::SyncUnfinished)),
            (
                Candidate { is_unfilled: true, ..sound },
                Some(RefusalCode::VolumeUnfilled),
                Some(RefusalCode::VolumeUnfilled),
            ),
            (Candidate { has_lived: false, ..sound }, Some(RefusalCode::NoImage), Some(RefusalCode::NoImage)),
            (
                Candidate { state: State::Failed(Broken::Journal), has_failed: true, ..sound },
                Some(RefusalCode::GroupFailed),
                Some(RefusalCode::GroupFailed),
            ),
            // It is the primary that has failed, and this node is to be promoted for that reason.
            (
                Candidate { state: State::Failed(Broken::Start), peer: primary, ..sound },
                Some(RefusalCode::PeerIsPrimary),
                None,
            ),
            (
                Candidate { is_starting: true, ..sound },
                Some(RefusalCode::GroupStarting),
                Some(RefusalCode::GroupStarting),
            ),
            (Candidate { is_starting: true, state: full, peer: None, ..sound }, None, None),
        ] {
            for (force, code) in [(false, unforced), (true, forced)] {
                assert_eq!(now.no_promotion(force).map(|(code, _)| code), code, "{now:?}, force: {force}");
            }
        }
    }

    fn view(changes: &[(&str, serde_json::Value)]) -> GroupView {
        let mut group = json!({
            "name": "db", "role": "secondary", "generation": "3-cafe", "mode": "sync", "state": "logging", "protection": "none",
            "volumes": [], "peers": [], "settings": {}, "promotable": {"sequence": 17, "time": null},
            "queue": {"bytes": 0, "items": 0, "bytes_hwm": 0, "items_hwm": 0, "limit_bytes": 9, "limit_items": 9, "blocked_ms": 0}
        });
        for (key, value) in changes {
            group[*key] = value.clone();
        }
        serde_json::from_value(group).expect("a group")
    }

    /// A fence turned a node off for a promotion that was refused in the next moment.
    #[test]
    fn a_peer_that_did_not_hand_over_what_stands_here_speaks_against_a_promotion() {
        let speaks_against = |changes: &[(&str, serde_json::Value)]| no_handover(&view(&[]), &view(changes)).is_some();
        let handed_over = ("handed_over", json!(true));
        assert!(!speaks_against(std::slice::from_ref(&handed_over)));
        assert!(speaks_against(&[("handed_over", json!(false))]));
        assert!(speaks_against(&[handed_over.clone(), ("promotable", json!({"sequence": 18, "time": null}))]));
        assert!(speaks_against(&[handed_over, ("generation", json!("4-cafe"))]));
        // The data path knows better.
        assert!(!speaks_against(&[]), "an older daemon does not say it");
        assert!(!speaks_against(&[("handed_over", json!(false)), ("role", json!("primary"))]));
        assert!(!speaks_against(&[("handed_over", json!(false)), ("starting", json!(true))]));
    }
}
