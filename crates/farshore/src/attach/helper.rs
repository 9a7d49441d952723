//! The process that serves one attached device, from its making to its end.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow, bail};
use host::disk::claim_unused;
use host::nbd::kernel::KernelDevice;
use host::nbd::{NbdClient, NbdProxy, ProxyEnd, ProxyEvent};
use host::ublk::UblkServer;
use rustix::io::Errno;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::LocalSet;
use tokio::time::timeout;
use units::exact::duration_text;
use units::size::show_exact;

use super::beside::beside;
use super::content::{SeenGroup, look, other_term, same_term};
use super::kernel_side::{KernelHangs, KernelSide, ServedSocket, bounded};
use super::record::{AttachedDevice, AttachedState, DeviceKind, RecordFiles};
use super::{AttachPlan, ended};

/// The kernel makes the node of a new device at once, or a service of the system does, a little later.
const NODE_PATIENCE: Duration = Duration::from_secs(5);
/// `detach --force` sends it to the helper.
pub const FORCE: SignalKind = SignalKind::user_defined1();
/// A daemon that takes a connection answers in less, unless it hangs.
const DAEMON_PATIENCE: Duration = Duration::from_secs(10);
/// How often a device is looked at that is to go as soon as nobody uses it.
const USE_LOOK: Duration = Duration::from_secs(1);
/// The kernel takes a device back that nobody has used in less, unless it hangs.
const TAKE_BACK_PATIENCE: Duration = Duration::from_secs(10);
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
        helper.serve_until_detached(stops, ready).await
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
    kernel: KernelSide,
    wanted: KernelDevice,
    /// Nobody can have used the device before this helper.
    is_new: bool,
    /// As it was last recorded.
    device: Rc<RefCell<AttachedDevice>>,
    proxy: Rc<NbdProxy>,
    /// Who stands between the kernel and the proxy, if somebody does.
    server: RefCell<Option<UblkServer>>,
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
        let Some(orphan) = stops.or(orphan(plan, &files, &seen)).await? else { return Ok(None) };
        let is_new = orphan.is_none();
        let kernel = KernelSide::find(orphan.as_ref().map_or(plan.kind, |left| left.kind))?;
        let (device, (ours, server)) = match orphan {
            // Its size follows when requests are answered again.
            Some(left) => {
                let taken = kernel.take_over(left.index, &wanted, plan.wait);
                let taken = take_left(&left, |left| files.write(left), taken);
                let Some(served) = stops.or(taken).await? else { return Ok(None) };
                (device(plan, &files, &seen, kernel.kind(), (left.index, left.size_bytes)), served)
            }
            None => make(plan, &files, &seen, (&kernel, &wanted)).await?,
        };
        ours.set_nonblocking(true)?;
        let ours = tokio::net::UnixStream::from_std(ours)?;
        let device = Rc::new(RefCell::new(device));
        let (log_kernel, log_wanted) = (kernel.clone(), wanted.clone());
        let log = EventLog { files: files.clone(), device: device.clone(), kernel: log_kernel, wanted: log_wanted };
        let log = Rc::new(log);
        let first_size = export.size_bytes;
        let events = log.clone();
        let check = same_term(plan.control.clone(), (plan.group.clone(), plan.volume.clone()), seen.term);
        let proxy =
            NbdProxy::new(plan.nbd.clone(), plan.export(), plan.wait, check, move |event| events.clone().note(event));
        tokio::task::spawn_local(log.resize(first_size));
        Ok(Some(Rc::new(Helper {
            plan: plan.clone(),
            files,
            kernel,
            wanted,
            is_new,
            device,
            proxy,
            server: RefCell::new(server),
            disconnecting: Cell::new(0),
            is_unwanted: Cell::new(false),
            is_leaving: Cell::new(false),
            first: RefCell::new(Some((ours, client))),
        })))
    }

    async fn serve_until_detached(
        self: Rc<Self>,
        mut stops: Stops,
        ready: impl FnOnce(&AttachedDevice),
    ) -> anyhow::Result<()> {
        let serving = self.serve();
        tokio::pin!(serving);
        let shown = tokio::select! {
            end = &mut serving => {
                end?;
                bail!("the kernel took the device of {} away before it could be used", self.plan.export());
            }
            shown = self.show() => shown,
        };
        if let Err(error) = shown {
            let taking_back = self.take_back();
            tokio::pin!(taking_back);
            tokio::select! {
                _ = &mut serving => taking_back.await,
                () = &mut taking_back => {}
            }
            return Err(error);
        }
        ready(&self.device.borrow());
        tell_service_manager(&self.device.borrow());
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
        let gone = match self.kernel.kind() {
            DeviceKind::Nbd => Ok(()),
            // Somebody else may have stopped the device, and left the rest of it.
            DeviceKind::Ublk => self.disconnect(None).await,
        };
        forget(&self.plan.export(), gone, || self.files.remove())
    }

    /// Lets programs use the device, by its stable name. Requests are answered meanwhile.
    async fn show(&self) -> anyhow::Result<()> {
        let (index, path) = (self.device.borrow().index, self.device.borrow().device.clone());
        let started = self.kernel.start(index, self.is_new).await;
        started.map_err(|error| KernelHangs::explain(error, self.proxy.is_away(), &self.plan.export()))?;
        node_appears(&path).await?;
        self.files.make_link(&path)?;
        self.files.write(&self.device.borrow())
    }

    /// After a device could not be shown. One that was there before stays: somebody may have it mounted.
    async fn take_back(&self) {
        if !self.is_new {
            return;
        }
        // What the kernel itself has asked, it waits for.
        self.proxy.fail();
        match timeout(TAKE_BACK_PATIENCE, self.disconnect(None)).await {
            Ok(Ok(())) => _ = self.files.remove(),
            Ok(Err(why)) => tracing::warn!("{} {why}", self.plan.export()),
            Err(_) => tracing::warn!("{} stays as it is: the kernel does not answer", self.plan.export()),
        }
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
        let end = beside(move || super::disconnect(&device, claim)).await.flatten();
        self.disconnecting.set(self.disconnecting.get() - 1);
        end.map_err(|error| format!("cannot be detached: {error}"))
    }

    async fn serve(&self) -> anyhow::Result<()> {
        let (mut ours, client) = self.first.take().expect("it is served once");
        let mut client = Some(client);
        let index = self.device.borrow().index;
        loop {
            let end = self.proxy.serve(ours, client.take()).await;
            if end == ProxyEnd::Disconnected || !self.kernel.keeps(index) {
                return Ok(());
            }
            if let Some(server) = self.server.take() {
                // The next helper takes the device over: this process is what the kernel knows as its server.
                let why = server.end().err().map_or_else(|| "it ended".to_owned(), |error| error.to_string());
                bail!("the server of {} is gone ({why}); requests wait for another helper", self.plan.export());
            }
            tracing::warn!("the kernel closed its connection and keeps the device; it gets another one");
            let (again, _) = self.kernel.take_over(index, &self.wanted, self.plan.wait).await?;
            again.set_nonblocking(true)?;
            ours = tokio::net::UnixStream::from_std(again)?;
        }
    }
}

/// Logs what happens to a device, and keeps its record true.
struct EventLog {
    files: RecordFiles,
    device: Rc<RefCell<AttachedDevice>>,
    kernel: KernelSide,
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
        let (kernel, wanted) = (self.kernel.clone(), KernelDevice { size_bytes, ..self.wanted.clone() });
        let resized = beside(move || kernel.resize(index, &wanted)).await.flatten();
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
    let (control, group, volume) = (plan.control.clone(), plan.group.clone(), plan.volume.clone());
    let seen = timeout(DAEMON_PATIENCE, beside(move || look(&control, &group, &volume))).await.unwrap_or(Ok(None));
    let seen = seen.context("the daemon cannot be asked how the group is")?.filter(|seen| seen.serves);
    let seen = seen.with_context(|| format!("the daemon does not say that it is primary of {}", plan.group))?;
    if seen.term.is_empty() {
        bail!("the daemon that runs is older than this command: restart it first ('systemctl restart farshore')");
    }
    Ok((client, seen))
}

/// The record goes with the device, and stays where the device does.
///
/// # Errors
/// A sentence: the device is still there, or its record.
fn forget(export: &str, gone: Result<(), String>, remove: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    if let Err(why) = gone {
        bail!("{export} {why}. Nobody serves what is left of it: type 'farshore detach {export}' again");
    }
    tracing::info!("{export} is detached");
    remove()
}

/// Takes over what a helper left. Whoever looks meanwhile sees the lock held, so the record says that nobody serves the device yet.
///
/// # Errors
/// It cannot be recorded, or taken over.
async fn take_left<T>(
    left: &AttachedDevice,
    record: impl FnOnce(&AttachedDevice) -> anyhow::Result<()>,
    taken: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    record(&AttachedDevice { state: AttachedState::NoHelper, ..left.clone() })?;
    taken.await
}

/// A device as it is recorded when it begins to be served.
fn device(
    plan: &AttachPlan,
    files: &RecordFiles,
    seen: &SeenGroup,
    kind: DeviceKind,
    (index, size_bytes): (u32, u64),
) -> AttachedDevice {
    AttachedDevice {
        group: plan.group.clone(),
        volume: plan.volume.clone(),
        kind,
        control: plan.control.clone(),
        term: seen.term.clone(),
        device: kind.device_path(index),
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
async fn make(
    plan: &AttachPlan,
    files: &RecordFiles,
    seen: &SeenGroup,
    (kernel, wanted): (&KernelSide, &KernelDevice),
) -> anyhow::Result<(AttachedDevice, ServedSocket)> {
    let (ours, theirs) = UnixStream::pair()?;
    let of = |index| device(plan, files, seen, kernel.kind(), (index, wanted.size_bytes));
    let record = |index| files.write(&AttachedDevice { state: AttachedState::NoHelper, ..of(index) });
    let connect = async |index| kernel.make(index, wanted, &theirs).await;
    let made = match plan.index {
        Some(index) => make_first([index], record, connect).await,
        None => make_first(kernel.free_indexes(), record, connect).await,
    };
    let served = match made.and_then(|made| made.map_err(|error| refused(plan, &error))) {
        Ok(index) => kernel.serve_made(index, theirs).await.map(|server| (of(index), (ours, server))),
        Err(error) => Err(error),
    };
    if let Err(error) = &served {
        let look = async |device: AttachedDevice| -> anyhow::Result<bool> {
            Ok(bounded("looks for a ublk device", move || super::is_there(&device)).await??)
        };
        // What is left, or may still be made, is found by its record.
        if !may_be_left(error, files.read(), look).await {
            let _ = files.remove();
        }
    }
    served
}

/// Whether the kernel may have, or may yet make, the device on record that could not be made. An NBD device is made by one order, so one
/// that was refused is not there, or somebody else's. A ublk device takes several, and what takes it away after one that failed may fail.
async fn may_be_left(
    error: &anyhow::Error,
    recorded: anyhow::Result<Option<AttachedDevice>>,
    is_there: impl AsyncFnOnce(AttachedDevice) -> anyhow::Result<bool>,
) -> bool {
    if error.downcast_ref::<KernelHangs>().is_some() {
        return true;
    }
    match recorded {
        Ok(Some(device)) if device.kind == DeviceKind::Ublk => is_there(device).await.unwrap_or(true),
        Ok(_) => false,
        Err(_) => true,
    }
}

/// Makes the first of these devices that nobody else has. Each is on record before it is tried: were this process killed in between, no
/// command would know of the device. Inside: what the kernel says.
///
/// # Errors
/// It cannot be recorded, or the kernel says nothing.
async fn make_first(
    indexes: impl IntoIterator<Item = u32>,
    record: impl Fn(u32) -> anyhow::Result<()>,
    connect: impl AsyncFn(u32) -> anyhow::Result<io::Result<()>>,
) -> anyhow::Result<io::Result<u32>> {
    let mut end = Err(Errno::BUSY.into());
    for index in indexes {
        record(index)?;
        end = connect(index).await?.map(|()| index);
        let is_taken = |error| matches!(Errno::from_io_error(error), Some(Errno::BUSY | Errno::EXIST));
        if !end.as_ref().is_err_and(is_taken) {
            break;
        }
    }
    Ok(end)
}

/// A device of this volume that its helper left; what is left of one that is gone is removed.
async fn orphan(plan: &AttachPlan, files: &RecordFiles, seen: &SeenGroup) -> anyhow::Result<Option<AttachedDevice>> {
    let Some(mut device) = files.read()? else { return Ok(None) };
    let unknown = |error: io::Error| anyhow!("{} cannot be looked at: {error}", device.device.display());
    if !super::is_there(&device).map_err(unknown)? {
        files.remove()?;
        return Ok(None);
    }
    if device.control != plan.control {
        bail!("{}", super::another_daemon(&device));
    }
    if super::is_unfinished(&device).map_err(unknown)? {
        let removed = super::take_away(&device).await;
        removed.with_context(|| format!("what is left of {} cannot be removed", device.device.display()))?;
        files.remove()?;
        return Ok(None);
    }
    if let Some(why) = super::another_device(&device, plan) {
        bail!("{why}");
    }
    if !matches!(device.state, AttachedState::Ended { .. }) && device.term != seen.term {
        device.state = AttachedState::Ended { since_unix_ms: now_unix_ms(), why: other_term(&plan.group) };
        files.write(&device)?;
    }
    match &device.state {
        AttachedState::Ended { why, .. } => bail!("{}", ended(&device, why)),
        _ => Ok(Some(device)),
    }
}

fn refused(plan: &AttachPlan, error: &io::Error) -> anyhow::Error {
    let device =
        plan.index.map_or_else(|| "device".to_owned(), |index| plan.kind.device_path(index).display().to_string());
    let advice = match Errno::from_io_error(error) {
        // Linux before 6.9 counts root's devices too.
        Some(Errno::ACCESS) if plan.kind == DeviceKind::Ublk => {
            "; there are as many as /sys/module/ublk_drv/parameters/ublks_max allows: raise it, or detach one"
        }
        Some(Errno::PERM | Errno::ACCESS) => "; it takes root, or CAP_SYS_ADMIN",
        Some(Errno::BUSY | Errno::EXIST) => ", which somebody else uses; name another one, or none",
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
    use crate::attach::record::example;

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

    /// Root was told to be root when it made the 65th device.
    #[test]
    fn a_refusal_says_what_to_do() {
        let plan = |kind| AttachPlan {
            group: "db".to_owned(),
            volume: "data".to_owned(),
            node: "near".to_owned(),
            control: "/s".into(),
            nbd: host::nbd::Address::Unix("/n".into()),
            wait: Duration::ZERO,
            kind,
            index: Some(3),
        };
        for (kind, errno, advice) in [
            (DeviceKind::Ublk, Errno::ACCESS, "/sys/module/ublk_drv/parameters/ublks_max"),
            (DeviceKind::Ublk, Errno::PERM, "it takes root"),
            (DeviceKind::Nbd, Errno::ACCESS, "it takes root"),
            (DeviceKind::Nbd, Errno::BUSY, "/dev/nbd3"),
            (DeviceKind::Ublk, Errno::EXIST, "somebody else uses"),
        ] {
            let said = refused(&plan(kind), &errno.into()).to_string();
            assert!(said.contains(advice), "{said}");
        }
    }

    /// A ublk device could not be served, and its removal failed too: no command knew of it any more.
    #[test]
    fn a_device_that_could_not_be_made_is_forgotten_once_the_kernel_says_so() {
        use DeviceKind::{Nbd, Ublk};
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        for (kind, there, is_kept) in [
            (Ublk, Some(false), false),
            (Ublk, Some(true), true),
            (Ublk, None, true),
            (Nbd, Some(true), false),
            (Nbd, None, false),
        ] {
            let look = async |_: AttachedDevice| -> anyhow::Result<bool> { there.context("the kernel does not say") };
            let recorded = Ok(Some(example(kind, 0)));
            let kept = runtime.block_on(may_be_left(&anyhow!("it refuses"), recorded, look));
            assert_eq!(kept, is_kept, "{kind:?} {there:?}");
        }
        let hangs = anyhow::Error::from(KernelHangs::Itself { doing: "makes a ublk device" });
        for (error, recorded, is_kept) in [
            (hangs, Ok(Some(example(Ublk, 0))), true),
            (anyhow!("/run is full"), Ok(None), false),
            (anyhow!("it refuses"), Err(anyhow!("it cannot be read")), true),
        ] {
            let never = async |_: AttachedDevice| -> anyhow::Result<bool> { panic!("the kernel is not asked") };
            assert_eq!(runtime.block_on(may_be_left(&error, recorded, never)), is_kept, "{error}");
        }
    }

    /// The last step failed, and the helper said that the device was detached, and removed its record.
    #[test]
    fn a_device_that_is_left_keeps_its_record() {
        let removed = Cell::new(false);
        let remove = || {
            removed.set(true);
            Ok(())
        };
        let end = forget("db/data", Err("cannot be detached: no memory".to_owned()), remove);
        let said = end.expect_err("it is still there").to_string();
        assert!(said.starts_with("db/data cannot be detached: no memory") && !removed.get(), "{said}");
        forget("db/data", Ok(()), remove).expect("it is gone");
        assert!(removed.get());
    }

    /// A command that looked while the next helper took a device over found it connected, and did not wait.
    #[test]
    fn a_device_is_on_record_as_nobodys_until_it_is_taken_over() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let recorded = RefCell::new(None);
        let record = |device: &AttachedDevice| {
            *recorded.borrow_mut() = Some(device.state.clone());
            Ok(())
        };
        let taken = async { anyhow::Ok(recorded.borrow().clone()) };
        let seen = runtime.block_on(take_left(&example(DeviceKind::Nbd, 0), record, taken)).expect("it is taken over");
        assert_eq!(seen, Some(AttachedState::NoHelper));
        let is_taken = Cell::new(false);
        let taken = async {
            is_taken.set(true);
            anyhow::Ok(())
        };
        let end = runtime.block_on(take_left(&example(DeviceKind::Nbd, 0), |_| bail!("/run is full"), taken));
        assert!(end.is_err() && !is_taken.get());
    }

    /// The helper is killed between two of its steps: whatever the kernel has of it then is on record.
    #[test]
    fn a_device_is_on_record_before_it_is_there() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
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
            let connect = async |index: u32| {
                done.borrow_mut().push(format!("connect {index}"));
                anyhow::Ok(if taken.contains(&index) { Err(io::Error::from(Errno::BUSY)) } else { Ok(()) })
            };
            let made = runtime.block_on(make_first([0, 1], record, connect)).expect("it can be recorded");
            assert_eq!(made.map_err(|error| Errno::from_io_error(&error).expect("the kernel's")), end);
            assert_eq!(*done.borrow(), steps);
        }
        let refuse = async |_: u32| -> anyhow::Result<io::Result<()>> { Ok(Err(Errno::PERM.into())) };
        let refused = runtime.block_on(make_first([0, 1], |_| Ok(()), refuse)).expect("it can be recorded");
        assert!(refused.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::PERM)));
        let unasked = async |_: u32| -> anyhow::Result<io::Result<()>> { panic!("it is not on record") };
        assert!(runtime.block_on(make_first([0], |_| bail!("/run is full"), unasked)).is_err());
        let hang = async |_: u32| -> anyhow::Result<io::Result<()>> { bail!("the kernel does not answer") };
        assert!(runtime.block_on(make_first([0, 1], |_| Ok(()), hang)).is_err());
    }
}
