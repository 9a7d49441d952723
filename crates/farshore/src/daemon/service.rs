//! What the service manager hears of this daemon, where one started it and asked (`NOTIFY_SOCKET`): that it is ready, how its groups
//! stand, that its data thread answers, that it stops.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use host::driver::{DriverControl, DriverSnapshot};
use sd_notify::NotifyState;

use super::reopening::RefusedGroups;
use super::view;

/// How often the groups are looked at until all of them have started, and from then on.
const EVERY_WHILE_STARTING: Duration = Duration::from_millis(500);
const EVERY: Duration = Duration::from_secs(10);
/// A start may replay a journal for minutes: the service manager waits this much longer each time it hears that it goes on.
const START_GOES_ON: Duration = Duration::from_secs(60);

/// What was heard of the groups at one moment.
struct ServiceReport {
    /// The exports are open, or each group says why its own is not.
    is_ready: bool,
    /// One line for people.
    status: String,
}

impl ServiceReport {
    /// `refused`: groups that were not taken up, as the log says.
    fn of(snapshot: &DriverSnapshot, refused: usize) -> ServiceReport {
        let starting = snapshot.groups.iter().filter(|group| view::is_starting(&group.status)).count();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for group in snapshot.groups.iter().filter(|group| !view::is_starting(&group.status)) {
            *counts.entry(group.status.state.word()).or_default() += 1;
        }
        let taken_up = counts.into_iter().chain([("starting", starting)]).filter(|(_, count)| *count > 0);
        let mut parts: Vec<String> = taken_up.map(|(word, count)| format!("{count} {word}")).collect();
        if refused > 0 {
            parts.push(format!("of them {refused} refused, see the log"));
        }
        let groups = match snapshot.groups.len() {
            1 => "1 group".to_owned(),
            count => format!("{count} groups"),
        };
        let status = if parts.is_empty() { groups } else { format!("{groups}: {}", parts.join(", ")) };
        ServiceReport { is_ready: starting == 0, status }
    }
}

/// Tells the service manager until the data thread is gone, or for ever. A data thread that does not answer is not called alive: with
/// `WatchdogSec=` the service manager then ends this process, and starts it anew.
pub(super) async fn keep_telling(control: DriverControl, refused: RefusedGroups) {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    let every = sd_notify::watchdog_enabled().map_or(EVERY, |watchdog| EVERY.min(watchdog / 3));
    let mut ready = false;
    while let Ok(snapshot) = control.snapshot().await {
        let report = ServiceReport::of(&snapshot, refused.count());
        ready |= report.is_ready;
        tell(move || {
            let mut said = vec![NotifyState::Status(&report.status), NotifyState::Watchdog];
            said.push(match ready {
                true => NotifyState::Ready,
                false => NotifyState::ExtendTimeoutUsec(START_GOES_ON.as_micros() as u32),
            });
            sd_notify::notify(&said)
        })
        .await;
        tokio::time::sleep(if ready { every } else { EVERY_WHILE_STARTING.min(every) }).await;
    }
}

/// Tells the service manager for as long as it lives that a start or stop goes on.
pub(super) struct KeepWaiting(#[expect(dead_code, reason = "dropped, it ends the thread")] mpsc::Sender<()>);

/// To be held while something goes on that may take longer than the service manager waits by itself: a journal of 16 GiB is written in
/// full when a group is new, and a thousand reads of each device are compared.
pub(super) fn keep_waiting(status: &'static str) -> KeepWaiting {
    let (alive, ended) = mpsc::channel();
    let tell = move || loop {
        let said = [NotifyState::Status(status), NotifyState::ExtendTimeoutUsec(START_GOES_ON.as_micros() as u32)];
        if sd_notify::notify(&said).is_err() || ended.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    };
    if std::env::var_os("NOTIFY_SOCKET").is_some() {
        // Without it the service manager waits as long as its unit says.
        let _ = std::thread::Builder::new().name("service".into()).spawn(tell);
    }
    KeepWaiting(alive)
}

/// Tells the service manager that this daemon stops, and may take this long for it.
pub(super) async fn tell_stopping(patience: Duration) {
    let micros = u32::try_from(patience.as_micros()).unwrap_or(u32::MAX);
    tell(move || sd_notify::notify(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(micros)])).await;
}

/// The service manager may read slowly, and nobody waits for that. What cannot be told is no reason to end.
async fn tell(notify: impl FnOnce() -> std::io::Result<()> + Send + 'static) {
    if let Ok(Err(error)) = tokio::task::spawn_blocking(notify).await {
        tracing::debug!("the service manager was not told: {error}");
    }
}
