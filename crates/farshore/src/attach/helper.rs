//! The process that serves one attached device, from its making to its end.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use host::disk::used_by;
use host::nbd::kernel::{self, KernelDevice, KernelNbd};
use host::nbd::{NbdClient, NbdProxy, ProxyEnd, ProxyEvent};
use rustix::io::Errno;
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;
use units::exact::duration_text;
use units::size::show_exact;

use super::content::{SeenGroup, look, promoted_since, same_term};
use super::record::{AttachedDevice, AttachedState, RecordFiles};
use super::{AttachPlan, ended};

/// The kernel makes the node of a new device at once, or a service of the system does, a little later.
const NODE_PATIENCE: Duration = Duration::from_secs(5);
/// `detach --force` sends it to the helper.
pub const FORCE: SignalKind = SignalKind::user_defined1();
/// A socket that the kernel has no use for yet is offered again after this.
const TAKEOVER_RETRY: Duration = Duration::from_millis(100);
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
    let end = LocalSet::new().block_on(&runtime, async {
        let helper = Helper::attach(plan, files).await?;
        ready(&helper.device.borrow());
        tell_service_manager(&helper.device.borrow());
        helper.serve_until_detached().await
    });
    runtime.shutdown_background();
    end
}

struct Helper {
    plan: AttachPlan,
    files: RecordFiles,
    nbd: KernelNbd,
    wanted: KernelDevice,
    /// As it was last recorded.
    device: Rc<RefCell<AttachedDevice>>,
    proxy: Rc<NbdProxy>,
    is_detaching: Cell<bool>,
    /// The kernel's end of the present pair, and the connection that found out how large the export is.
    first: RefCell<Option<(tokio::net::UnixStream, NbdClient)>>,
}

impl Helper {
    async fn attach(plan: &AttachPlan, files: RecordFiles) -> anyhow::Result<Rc<Helper>> {
        let client = NbdClient::connect(&plan.nbd, &plan.export()).await?;
        let export = *client.export();
        let seen = look_at_primary(plan)?;
        let wanted = KernelDevice {
            size_bytes: export.size_bytes,
            block_bytes: export.block_min_bytes.max(512),
            flags: export.flags,
            dead_timeout: plan.wait,
            backend: super::backend(&plan.control, &plan.export()),
        };
        let nbd = find_nbd()?;
        let orphan = orphan(plan, &files, &seen)?;
        let (index, size_bytes, ours) = match &orphan {
            // Its size follows when requests are answered again.
            Some(device) => (device.index, device.size_bytes, take_over(nbd, device.index, &wanted, plan.wait).await?),
            None => {
                let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
                let index = nbd.connect(plan.index, &wanted, theirs.as_fd()).map_err(|error| refused(plan, &error))?;
                (index, export.size_bytes, ours)
            }
        };
        ours.set_nonblocking(true)?;
        let ours = tokio::net::UnixStream::from_std(ours)?;
        let device = device(plan, &files, &seen, (index, size_bytes));
        let named = async {
            node_appears(&device.device).await?;
            files.make_link(&device.device)?;
            files.write(&device)
        };
        if let Err(error) = named.await {
            // One that was there before stays: somebody may have it mounted.
            if orphan.is_none() {
                let _ = nbd.disconnect(index);
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
        Ok(Rc::new(Helper {
            plan: plan.clone(),
            files,
            nbd,
            wanted,
            device,
            proxy,
            is_detaching: Cell::new(false),
            first,
        }))
    }

    async fn serve_until_detached(self: Rc<Self>) -> anyhow::Result<()> {
        let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be watched")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be watched")?;
        let mut force = signal(FORCE).context("SIGUSR1 cannot be watched")?;
        let serving = self.serve();
        tokio::pin!(serving);
        let end = loop {
            tokio::select! {
                end = &mut serving => break end,
                _ = terminate.recv() => tokio::task::spawn_local(self.clone().detach_if_unused()),
                _ = interrupt.recv() => tokio::task::spawn_local(self.clone().detach_if_unused()),
                _ = force.recv() => tokio::task::spawn_local(self.clone().detach_anyway()),
            };
        };
        end?;
        tracing::info!("{} is detached", self.plan.export());
        self.files.remove()
    }

    async fn detach_if_unused(self: Rc<Self>) {
        let path = self.device.borrow().device.clone();
        let ask = move || match used_by(&path, true) {
            Some(by) => Err(format!("{} is in use by {by}, so it stays, and is served on", path.display())),
            None => Ok(()),
        };
        match tokio::task::spawn_blocking(ask).await {
            Ok(Err(why)) => tracing::warn!("{why}"),
            _ => self.detach().await,
        }
    }

    /// Whatever waits fails first: it makes room for the kernel's goodbye, and none of it is written to a volume that may be attached
    /// again by then.
    async fn detach_anyway(self: Rc<Self>) {
        self.proxy.fail();
        self.detach().await;
    }

    /// The kernel says goodbye on the socket, which ends the serving. Until then requests are answered: what the kernel is asked here may
    /// wait for that.
    async fn detach(&self) {
        if self.is_detaching.replace(true) {
            return;
        }
        let device = self.device.borrow().clone();
        let path = device.device.clone();
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || super::disconnect(&device)).await {
            tracing::warn!("{} cannot be detached: {error}", path.display());
            self.is_detaching.set(false);
        }
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
        let resized = tokio::task::spawn_blocking(move || nbd.resize(index, &wanted)).await;
        let (was, is) = (show_exact(was_bytes), show_exact(size_bytes));
        let mut device = self.device.borrow_mut();
        match resized {
            Ok(Ok(())) => {
                tracing::info!("{}/{} had {was} and has {is}", device.group, device.volume);
                device.size_bytes = size_bytes;
                let _ = self.files.write(&device);
            }
            Ok(Err(error)) => tracing::error!("{} keeps its size of {was}, not {is}: {error}", device.device.display()),
            Err(_) => {}
        }
    }
}

/// # Errors
/// A sentence: this node is not primary, or its daemon is too old to say in which of its terms.
fn look_at_primary(plan: &AttachPlan) -> anyhow::Result<SeenGroup> {
    let seen = look(&plan.control, &plan.group).filter(|seen| seen.is_primary);
    let seen = seen.with_context(|| format!("the daemon does not say that it is primary of {}", plan.group))?;
    if seen.term.is_empty() {
        bail!("the daemon that runs is older than this command: restart it first ('systemctl restart farshore')");
    }
    Ok(seen)
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
) -> anyhow::Result<std::os::unix::net::UnixStream> {
    let deadline = Instant::now() + patience;
    loop {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
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
        plan.index.map_or_else(|| "a device".to_owned(), |index| kernel::device_path(index).display().to_string());
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
