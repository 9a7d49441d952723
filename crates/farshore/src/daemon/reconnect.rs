//! Has the links connect again on purpose, for other settings or new certificates, and nothing has to be synced for it.
//!
//! In `async` the queue bridges the moment without a connection. In `sync` and `nearsync` the policy `degrade` would let
//! writers go on alone at once, and with `degrade = "logging"` an update sync would have to follow; for a moment that we make
//! ourselves writers are held instead, as under `hold`, until the link is back or has had its time.

use std::time::{Duration, Instant};

use engine::state::{Degrade, Policy, State};
use engine::{Command, GroupId, Settings};
use host::driver::{DriverControl, DriverSnapshot, Gone};
use host::link::SocketOptions;

/// Writers are held so long at most; half the shortest sensible `wait_limit` default, many times a reconnect.
const HOLD: Duration = Duration::from_secs(5);
/// The engine ends the hold by itself; beyond this something is wrong that waiting does not mend.
const PATIENCE: Duration = Duration::from_secs(8);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What the links come up again with.
pub(super) enum ReconnectReason {
    /// Other socket options.
    Retuned(SocketOptions),
    /// What has changed beside them; a sentence for the log.
    Anew(&'static str),
}

/// Writers that are held while links end by intent, instead of going on alone.
pub(super) struct HeldWriters {
    groups: Vec<GroupId>,
    before: DriverSnapshot,
}

impl HeldWriters {
    /// Of all groups whose writers would go on alone otherwise. Each time that the link falls, they wait for [`HOLD`] at most.
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn hold(control: &DriverControl, groups: &[(GroupId, Settings)]) -> Result<HeldWriters, Gone> {
        let before = control.snapshot().await?;
        let degrading: Vec<_> = groups.iter().filter(|(id, settings)| would_degrade(&before, *id, settings)).collect();
        for (id, settings) in &degrading {
            let held = Settings { policy: Policy::Hold(HOLD), ..*settings };
            control.command(*id, Command::Set(held)).await?;
        }
        Ok(HeldWriters { groups: degrading.iter().map(|(id, _)| *id).collect(), before })
    }

    /// Waits for the links that were up, and has the groups go on by their settings.
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn end(self, control: &DriverControl, groups: &[(GroupId, Settings)]) -> Result<(), Gone> {
        let HeldWriters { groups: held, before } = self;
        let started = Instant::now();
        while !held.is_empty() && started.elapsed() < PATIENCE && !are_back(&held, &before, &control.snapshot().await?)
        {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        for (id, settings) in groups.iter().filter(|(id, _)| held.contains(id)) {
            control.command(*id, Command::Set(*settings)).await?;
        }
        Ok(())
    }
}

/// # Errors
/// The data thread has ended.
pub(super) async fn reconnect(
    control: &DriverControl,
    groups: &[(GroupId, Settings)],
    how: ReconnectReason,
) -> Result<(), Gone> {
    let held = HeldWriters::hold(control, groups).await?;
    match how {
        ReconnectReason::Retuned(options) => control.retune(options).await?,
        ReconnectReason::Anew(reason) => control.reconnect(reason).await?,
    }
    held.end(control, groups).await
}

fn would_degrade(now: &DriverSnapshot, id: GroupId, settings: &Settings) -> bool {
    let state = now.groups.iter().find(|group| group.status.id == id).map(|group| group.status.state);
    let costs = match state {
        Some(State::Replicating) => true,
        // Writers are answered alone as it is, and the queue bridges the time without a link.
        Some(State::CatchingUp) => settings.degrade == Degrade::Logging,
        _ => false,
    };
    settings.mode.promises() && settings.policy == Policy::Degrade && costs
}

/// Every link that was up came up again, or the hold has ended without it. What other groups are in says nothing of `held`: one
/// may be in `logging` for its own reasons.
fn are_back(held: &[GroupId], before: &DriverSnapshot, now: &DriverSnapshot) -> bool {
    let any_is = |state| now.groups.iter().any(|group| held.contains(&group.status.id) && group.status.state == state);
    let mut links = before.links.iter().zip(&now.links).filter(|(before, _)| before.connection.is_some());
    let all_up = links.all(|(before, now)| now.connection.is_some() && now.connections > before.connections);
    !any_is(State::Holding) && (all_up || any_is(State::Logging) || any_is(State::Queuing))
}
