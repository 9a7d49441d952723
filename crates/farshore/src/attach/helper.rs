//! The process that serves one attached device, from its making to its end.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow, bail};
use host::disk::claim_unused;
use host::nbd::kernel::{self, KernelDevice, KernelNbd};
use host::nbd::{NbdClient, NbdProxy, ProxyEnd, ProxyEvent};
use rustix::io::Errno;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::LocalSet;
use tokio::time::timeout;
use units::exact::duration_text;
use units::size::show_exact;

use super::beside::beside;
use super::content::{SeenGroup, look, promoted_since, same_term};
use super::record::{AttachedDevice, AttachedState, RecordFiles};
use super::{AttachPlan, ended};

/// The kernel makes the node of a new device at once, or a service of the system does, a little later.
const NODE_PATIENCE: Duration = Duration::from_secs(5);
/// `detach --force` sends it to the helper.
pub const FORCE: SignalKind = SignalKind::user_defined1();
/// A socket that the kernel has no use for yet is offered again after this.
const TAKEOVER_RETRY: Duration = Duration::from_millis(100);
/// A daemon that takes a connection answers in less, unless it hangs.
const DAEMON_PATIENCE: Duration = Duration::from_secs(10);
/// How often a device is looked at that is to go as soon as nobody uses it.
const USE_LOOK: Duration = Duration::from_secs(1);
/// How often it is looked whether the kernel has let go of a device.
const GONE_LOOK: Duration = Duration::from_millis(5);

/// Attaches a device and serves it until it is detached. `ready` hears of it once it can be used.
///
/// # Errors
/// A sentence: it cannot be attached, or taken over.
pub fn run(plan: &AttachPlan, ready: impl FnOnce(&AttachedDevice)) -> anyhow::Result<()> {
    let files = RecordFiles::of(&plan.group, &plan.volume);
    files.prepare()?;
    let Some(_lock) = files.lock()? else {
        bail!("{} is attached already: 'farshore attached' shows where", plan.export())
    };
    host::nbd::kernel::survive_memory_shortage();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let mut stops = Stops::watch()?;
        let Some(helper) = Helper::attach(plan, files, &mut stops).await? else {
            tracing::info!("{} was told to stop before a device of it was served", plan.export());
            return Ok(());
        };
        ready(&helper.device.borrow());
        tell_service_manager(&helper.device.borrow());
        helper.serve_until_detached(stops).await
    })
}

/// What a signal orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopOrder {
    /// SIGTERM, of which a service manager sends one and waits for the end: the device goes as soon as nobody uses it.
    OnceUnused,
    /// SIGINT, from `farshore detach` and Ctrl-C: it goes now, or stays. Whoever typed that is told, and counts on it.
    NowIfUnused,
    /// It goes even while it is in use.
    Anyway,
}

impl StopOrder {
    fn is_kept(self, by_service_manager: bool) -> bool {
        self == StopOrder::OnceUnused && by_service_manager
    }
}

/// The signals that are to end a helper. They are watched from the beginning: one that ended the process would leave a device behind.
struct Stops {
    terminate: Signal,
    interrupt: Signal,
    force: Signal,
}

impl Stops {
    fn watch() -> anyhow::Result<Stops> {
        Ok(Stops {
            terminate: signal(SignalKind::terminate()).context("SIGTERM cannot be watched")?,
            interrupt: signal(SignalKind::interrupt()).context("SIGINT cannot be watched")?,
            force: signal(FORCE).context("SIGUSR1 cannot be watched")?,
        })
    }

    async fn next(&mut self) -> StopOrder {
        tokio::select! {
            _ = self.terminate.recv() => StopOrder::OnceUnused,
            _ = self.interrupt.recv() => StopOrder::NowIfUnused,
            _ = self.force.recv() => StopOrder::Anyway,
        }
    }

    /// `None`: one came first.
    async fn or<T>(&mut self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<Option<T>> {
        tokio::select! {
            _ = self.next() => Ok(None),
            done = work => done.map(Some),
        }
    }
}

struct Helper {
    plan: AttachPlan,
    files: RecordFiles,
    nbd: KernelNbd,
    wanted: KernelDevice,
    /// As it was last recorded.
    device: Rc<RefCell<AttachedDevice>>,
    proxy: Rc<NbdProxy>,
    /// How often the kernel is being asked to take the device away.
    disconnecting: Cell<u32>,
    /// It is to go once nobody uses it: its unit is stopped.
    is_unwanted: Cell<bool>,
    /// It is being looked whether it can go.
    is_leaving: Cell<bool>,
    /// The kernel's end of the present pair, and the connection that found out how large the export is.
    first: RefCell<Option<(tokio::net::UnixStream, NbdClient)>>,
}

impl Helper {
    /// `None`: it was told to stop before there was a device, or one that was left is as it was.
    async fn attach(plan: &AttachPlan, files: RecordFiles, stops: &mut Stops) -> anyhow::Result<Option<Rc<Helper>>> {
        let Some((client, seen)) = stops.or(reach_primary(plan)).await? else { return Ok(None) };
        let export = *client.export();
        let wanted = KernelDevice {
            size_bytes: export.size_bytes,
            block_bytes: export.block_min_bytes.max(512),
            flags: export.flags,
            dead_timeout: plan.wait,
            backend: super::backend(&plan.control, &plan.export()),
        };
        let nbd = find_nbd()?;
        let orphan = orphan(plan, &files, &seen)?;
        let is_new = orphan.is_none();
        let (device, ours) = match orphan {
            // Its size follows when requests are answered again.
            Some(left) => {
                let taken = take_over(nbd, left.index, &wanted, plan.wait);
                let Some(ours) = stops.or(taken).await? else { return Ok(None) };
                (device(plan, &files, &seen, (left.index, left.size_bytes)), ours)
            }
            None => make(plan, &files, &seen, (nbd, &wanted))?,
        };
        ours.set_nonblocking(true)?;
        let ours = tokio::net::UnixStream::from_std(ours)?;
        let named = async {
            node_appears(&device.device).await?;
            files.make_link(&device.device)?;
            files.write(&device)
        };
        if let Err(error) = named.await {
            // One that was there before stays: somebody may have it mounted.
            if is_new && nbd.disconnect(device.index).is_ok() {
                let _ = files.remove();
            }
            return Err(error);
        }
        let device = Rc::new(RefCell::new(device));
        let log = Rc::new(EventLog { files: files.clone(), device: device.clone(), nbd, wanted: wanted.clone() });
        let first_size = export.size_bytes;
        let events = log.clone();
        let check = same_term(plan.control.clone(), plan.group.clone(), seen.term);
        let proxy =
            NbdProxy::new(plan.nbd.clone(), plan.export(), plan.wait, check, move |event| events.clone().note(event));
        tokio::task::spawn_local(log.resize(first_size));
        let first = RefCell::new(Some((ours, client)));
        let (disconnecting, is_unwanted, is_leaving) = (Cell::new(0), Cell::new(false), Cell::new(false));
        let plan = plan.clone();
        let helper = Helper { plan, files, nbd, wanted, device, proxy, disconnecting, is_unwanted, is_leaving, first };
        Ok(Some(Rc::new(helper)))
    }

    async fn serve_until_detached(self: Rc<Self>, mut stops: Stops) -> anyhow::Result<()> {
        let serving = self.serve();
        tokio::pin!(serving);
        let end = loop {
            tokio::select! {
                end = &mut serving => break end,
                order = stops.next() => match order {
                    StopOrder::Anyway => tokio::task::spawn_local(self.clone().detach_anyway()),
                    StopOrder::OnceUnused | StopOrder::NowIfUnused => {
                        tokio::task::spawn_local(self.clone().detach_if_unused(order))
                    }
                },
            };
        };
        end?;
        // The kernel says goodbye first, and lets go of the device a little later: who comes next is to find it gone.
        while self.disconnecting.get() > 0 {
            tokio::time::sleep(GONE_LOOK).await;
        }
        tracing::info!("{} is detached", self.plan.export());
        self.files.remove()
    }

    /// An order that is kept counts also while another one is being answered.
    async fn detach_if_unused(self: Rc<Self>, order: StopOrder) {
        if order.is_kept(std::env::var_os("NOTIFY_SOCKET").is_some()) {
            self.is_unwanted.set(true);
        }
        if self.is_leaving.replace(true) {
            return;
        }
        let path = self.device.borrow().device.clone();
        let again_after = || self.is_unwanted.get().then_some(USE_LOOK);
        let attempt = async || {
            let path = path.clone();
            let claim = beside(move || claim_unused(&path)).await;
            let claim = claim.map_err(|error| format!("cannot be looked at: {error}"))?;
            self.disconnect(claim.map_err(|by| format!("is in use by {by}"))?).await
        };
        insist(&path, again_after, attempt).await;
        self.is_leaving.set(false);
    }

    /// Whatever waits fails first: it makes room for the kernel's goodbye, and none of it is written to a volume that may be attached
    /// again by then.
    async fn detach_anyway(self: Rc<Self>) {
        self.proxy.fail();
        if let Err(why) = self.disconnect(None).await {
            tracing::warn!("{} {why}", self.device.borrow().device.display());
        }
    }

    /// The kernel says goodbye on the socket, which ends the serving. Until then requests are answered: what the kernel is asked here may
    /// wait for that. `claim` keeps others from a device that nobody uses until it is gone.
    ///
    /// # Errors
    /// What does not go, said of the device.
    async fn disconnect(&self, claim: Option<OwnedFd>) -> Result<(), String> {
        let device = self.device.borrow().clone();
        self.disconnecting.set(self.disconnecting.get() + 1);
        let asked = beside(move || {
            let end = super::disconnect(&device);
            drop(claim);
            end
        });
        let end = asked.await.flatten();
        self.disconnecting.set(self.disconnecting.get() - 1);
        end.map_err(|error| format!("cannot be detached: {error}"))
    }

    async fn serve(&self) -> anyhow::Result<()> {
        let (mut ours, client) = self.first.take().expect("it is served once");
        let mut client = Some(client);
        let index = self.device.borrow().index;
        loop {
            let end = self.proxy.serve(ours, client.take()).await;
            if end == ProxyEnd::Disconnected || !kernel::is_connected(index) {
                return Ok(());
            }
            tracing::warn!("the kernel closed its connection and keeps the device; it gets another one");
            let again = take_over(self.nbd, index, &self.wanted, self.plan.wait).await?;
            again.set_nonblocking(true)?;
            ours = tokio::net::UnixStream::from_std(again)?;
        }
    }
}

/// Logs what happens to a device, and keeps its record true.
struct EventLog {
    files: RecordFiles,
    device: Rc<RefCell<AttachedDevice>>,
    nbd: KernelNbd,
    wanted: KernelDevice,
}

impl EventLog {
    fn note(self: Rc<Self>, event: ProxyEvent) {
        let mut device = self.device.borrow_mut();
        if matches!(device.state, AttachedState::Ended { .. }) {
            return;
        }
        let name = device.export();
        let wait = duration_text(self.wanted.dead_timeout);
        match event {
            ProxyEvent::Lost(error) => {
                tracing::warn!("{name}: the daemon is gone ({error}); requests wait for it, {wait} at most");
                device.state = AttachedState::Waiting { since_unix_ms: now_unix_ms(), why: error.to_string() };
            }
            ProxyEvent::GivenUp(error) => {
                tracing::error!(
                    "{name}: the daemon has been away for {wait} ({error}): requests fail until it is back"
                );
                device.state = AttachedState::Failing { since_unix_ms: now_unix_ms(), why: error.to_string() };
            }
            ProxyEvent::Back { away, size_bytes } => {
                tracing::info!("{name}: the daemon is back after {:.1} s", away.as_secs_f64());
                device.state = AttachedState::Connected;
                tokio::task::spawn_local(self.clone().resize(size_bytes));
            }
            ProxyEvent::Over(why) => {
                tracing::error!("{name}: {why}; requests fail until the device is detached");
                device.state = AttachedState::Ended { since_unix_ms: now_unix_ms(), why };
            }
        }
        if let Err(error) = self.files.write(&device) {
            tracing::warn!("{error:#}");
        }
    }

    /// The kernel may wait until all requests are answered, so another thread asks it.
    async fn resize(self: Rc<Self>, size_bytes: u64) {
        let (was_bytes, index) = (self.device.borrow().size_bytes, self.device.borrow().index);
        if size_bytes == was_bytes {
            return;
        }
        let (nbd, wanted) = (self.nbd, KernelDevice { size_bytes, ..self.wanted.clone() });
        let resized = beside(move || nbd.resize(index, &wanted)).await.flatten();
        let (was, is) = (show_exact(was_bytes), show_exact(size_bytes));
        let mut device = self.device.borrow_mut();
        match resized {
            Ok(()) => {
                tracing::info!("{}/{} had {was} and has {is}", device.group, device.volume);
                device.size_bytes = size_bytes;
                let _ = self.files.write(&device);
            }
            Err(error) => tracing::error!("{} keeps its size of {was}, not {is}: {error}", device.device.display()),
        }
    }
}

/// Tries until the device is gone, or until `again_after` says no more.
async fn insist(
    device: &Path,
    again_after: impl Fn() -> Option<Duration>,
    mut attempt: impl AsyncFnMut() -> Result<(), String>,
) {
    let mut said = String::new();
    while let Err(why) = attempt().await {
        let pause = again_after();
        if why != said {
            let until = if pause.is_some() { " until nobody uses it" } else { "" };
            tracing::warn!("{} {why}, so it stays, and is served on{until}", device.display());
            said = why;
        }
        let Some(pause) = pause else { return };
        tokio::time::sleep(pause).await;
    }
}

/// A connection to the export, and how the group is.
///
/// # Errors
/// A sentence: the daemon does not answer, this node is not primary, or its daemon is too old to say in which of its terms.
async fn reach_primary(plan: &AttachPlan) -> anyhow::Result<(NbdClient, SeenGroup)> {
    let export = plan.export();
    let client = timeout(DAEMON_PATIENCE, NbdClient::connect(&plan.nbd, &export)).await;
    let silent = |_| {
        let patience = duration_text(DAEMON_PATIENCE);
        anyhow!("the daemon takes connections at {}, and says nothing for {patience}: look at its log", plan.nbd)
    };
    let client = client.map_err(silent)??;
    let (control, group) = (plan.control.clone(), plan.group.clone());
    let seen = timeout(DAEMON_PATIENCE, beside(move || look(&control, &group))).await.unwrap_or(Ok(None));
    let seen = seen.context("the daemon cannot be asked how the group is")?.filter(|seen| seen.is_primary);
    let seen = seen.with_context(|| format!("the daemon does not say that it is primary of {}", plan.group))?;
    if seen.term.is_empty() {
        bail!("the daemon that runs is older than this command: restart it first ('systemctl restart farshore')");
    }
    Ok((client, seen))
}

/// A device as it is recorded when it begins to be served.
fn device(plan: &AttachPlan, files: &RecordFiles, seen: &SeenGroup, (index, size_bytes): (u32, u64)) -> AttachedDevice {
    AttachedDevice {
        group: plan.group.clone(),
        volume: plan.volume.clone(),
        control: plan.control.clone(),
        term: seen.term.clone(),
        device: kernel::device_path(index),
        link: files.link().to_owned(),
        size_bytes,
        state: AttachedState::Connected,
        helper_pid: std::process::id(),
        attached_unix_ms: now_unix_ms(),
        wait_s: plan.wait.as_secs(),
        index,
    }
}

/// A new device, and our end of its socket.
///
/// # Errors
/// A sentence: the kernel gives none, or it cannot be recorded.
fn make(
    plan: &AttachPlan,
    files: &RecordFiles,
    seen: &SeenGroup,
    (nbd, wanted): (KernelNbd, &KernelDevice),
) -> anyhow::Result<(AttachedDevice, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let of = |index| device(plan, files, seen, (index, wanted.size_bytes));
    let record = |index| files.write(&AttachedDevice { state: AttachedState::NoHelper, ..of(index) });
    let connect = |index| nbd.connect(index, wanted, theirs.as_fd());
    let made = match plan.index {
        Some(index) => make_first([index], record, connect),
        None => make_first(kernel::free_indexes(), record, connect),
    };
    match made.and_then(|made| made.map_err(|error| refused(plan, &error))) {
        Ok(index) => Ok((of(index), ours)),
        Err(error) => {
            let _ = files.remove();
            Err(error)
        }
    }
}

/// Makes the first of these devices that nobody else has. Each is on record before it is tried: were this process killed in between, no
/// command would know of the device. Inside: what the kernel says.
///
/// # Errors
/// It cannot be recorded.
fn make_first(
    indexes: impl IntoIterator<Item = u32>,
    record: impl Fn(u32) -> anyhow::Result<()>,
    connect: impl Fn(u32) -> io::Result<()>,
) -> anyhow::Result<io::Result<u32>> {
    let mut end = Err(Errno::BUSY.into());
    for index in indexes {
        record(index)?;
        end = connect(index).map(|()| index);
        let is_taken = |error| matches!(Errno::from_io_error(error), Some(Errno::BUSY | Errno::EXIST));
        if !end.as_ref().is_err_and(is_taken) {
            break;
        }
    }
    Ok(end)
}

fn find_nbd() -> anyhow::Result<KernelNbd> {
    match KernelNbd::find() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found.context("the kernel's NBD cannot be asked"),
    }
    let loaded = std::process::Command::new("modprobe").arg("nbd").output();
    match (KernelNbd::find(), loaded) {
        (Ok(found), _) => Ok(found),
        (Err(_), Ok(output)) if output.status.success() => {
            bail!("the kernel's NBD does not answer although its module is loaded")
        }
        (Err(_), loaded) => {
            let said = loaded.map_or_else(
                |error| error.to_string(),
                |output| String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            );
            bail!(
                "this kernel has no NBD client, so no device can be attached ({said}). Its module is 'nbd': Debian's linux-image-amd64 has \
                 it, the kernel of a small cloud image may not. NBD clients without a kernel device, such as qemu, need none"
            )
        }
    }
}

/// A device of this volume that its helper left; what is left of one that is gone is removed.
fn orphan(plan: &AttachPlan, files: &RecordFiles, seen: &SeenGroup) -> anyhow::Result<Option<AttachedDevice>> {
    let Some(mut device) = files.read()? else { return Ok(None) };
    if !super::is_there(&device) {
        files.remove()?;
        return Ok(None);
    }
    if device.control != plan.control {
        bail!("{}", super::another_daemon(&device));
    }
    if let Some(index) = plan.index.filter(|index| *index != device.index) {
        bail!("{}", super::another_device(&device, index));
    }
    if !matches!(device.state, AttachedState::Ended { .. }) && device.term != seen.term {
        device.state = AttachedState::Ended { since_unix_ms: now_unix_ms(), why: promoted_since(&plan.group) };
        files.write(&device)?;
    }
    match &device.state {
        AttachedState::Ended { why, .. } => bail!("{}", ended(&device, why)),
        _ => Ok(Some(device)),
    }
}

/// Gives a device that nobody serves a new pair of sockets; ours of the two. The kernel takes none before it has seen that the old one is
/// dead, and then closes it without a word.
async fn take_over(
    nbd: KernelNbd,
    index: u32,
    wanted: &KernelDevice,
    patience: Duration,
) -> anyhow::Result<UnixStream> {
    let deadline = Instant::now() + patience;
    loop {
        let (ours, theirs) = UnixStream::pair()?;
        nbd.take_over(index, wanted, theirs.as_fd())
            .with_context(|| format!("{} cannot be taken over", kernel::device_path(index).display()))?;
        drop(theirs);
        ours.set_read_timeout(Some(TAKEOVER_RETRY))?;
        let mut byte = [0];
        match rustix::net::recv(&ours, &mut byte, rustix::net::RecvFlags::PEEK) {
            // The kernel closed its end.
            Ok((0, _)) if Instant::now() < deadline => tokio::time::sleep(TAKEOVER_RETRY).await,
            Ok((0, _)) => bail!("the kernel takes no new socket for {}", kernel::device_path(index).display()),
            // It asks, or has nothing to ask.
            _ => {
                ours.set_read_timeout(None)?;
                return Ok(ours);
            }
        }
    }
}

fn refused(plan: &AttachPlan, error: &io::Error) -> anyhow::Error {
    let device =
        plan.index.map_or_else(|| "device".to_owned(), |index| kernel::device_path(index).display().to_string());
    let advice = match Errno::from_io_error(error) {
        Some(Errno::PERM | Errno::ACCESS) => "; it takes root, or CAP_SYS_ADMIN",
        Some(Errno::BUSY) => ", which somebody else uses; name another one, or none",
        _ => "",
    };
    anyhow::anyhow!("the kernel gives {} no {device}: {error}{advice}", plan.export())
}

async fn node_appears(path: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + NODE_PATIENCE;
    while !path.exists() {
        if Instant::now() >= deadline {
            bail!("the kernel made the device, but {} is not there: is /dev a devtmpfs?", path.display());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

fn tell_service_manager(device: &AttachedDevice) {
    let status = format!("{} at {}", device.link.display(), device.device.display());
    let _ = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Somebody's shell stands in the file system. A person types the command again, and the device does not vanish under a later mount; a
    /// service manager sends no second signal, perhaps while the person's is being answered.
    #[test]
    fn a_device_that_a_service_manager_stops_goes_once_nobody_uses_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        for (order, by_service_manager, attempts) in [
            (StopOrder::NowIfUnused, true, 1),
            (StopOrder::NowIfUnused, false, 1),
            (StopOrder::OnceUnused, true, 3),
            (StopOrder::OnceUnused, false, 1),
        ] {
            let (tried, is_unwanted) = (Cell::new(0), Cell::new(false));
            let attempt = async || {
                tried.set(tried.get() + 1);
                // It comes during the first one.
                is_unwanted.set(order.is_kept(by_service_manager));
                if tried.get() < 3 { Err("is in use by the mount at /srv".to_owned()) } else { Ok(()) }
            };
            let again_after = || is_unwanted.get().then_some(Duration::ZERO);
            runtime.block_on(insist(Path::new("/dev/nbd0"), again_after, attempt));
            assert_eq!(tried.get(), attempts, "{order:?}, {by_service_manager}");
        }
    }

    /// The helper is killed between two of its steps: whatever the kernel has of it then is on record.
    #[test]
    fn a_device_is_on_record_before_it_is_there() {
        for (taken, end, steps) in [
            (vec![], Ok(0), vec!["record 0", "connect 0"]),
            (vec![0], Ok(1), vec!["record 0", "connect 0", "record 1", "connect 1"]),
            (vec![0, 1], Err(Errno::BUSY), vec!["record 0", "connect 0", "record 1", "connect 1"]),
        ] {
            let done = RefCell::new(Vec::new());
            let record = |index: u32| {
                done.borrow_mut().push(format!("record {index}"));
                Ok(())
            };
            let connect = |index: u32| {
                done.borrow_mut().push(format!("connect {index}"));
                if taken.contains(&index) { Err(io::Error::from(Errno::BUSY)) } else { Ok(()) }
            };
            let made = make_first([0, 1], record, connect).expect("it can be recorded");
            assert_eq!(made.map_err(|error| Errno::from_io_error(&error).expect("the kernel's")), end);
            assert_eq!(*done.borrow(), steps);
        }
        let refused =
            make_first([0, 1], |_| Ok(()), |_| Err(io::Error::from(Errno::PERM))).expect("it can be recorded");
        assert!(refused.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::PERM)));
        assert!(make_first([0], |_| bail!("/run is full"), |_| panic!("it is not on record")).is_err());
    }
}
