//! The process that serves one attached device, from its making to its end.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use host::disk::{claimed, opened_by};
use host::nbd::kernel::{self, KernelDevice, KernelNbd};
use host::nbd::{NbdClient, NbdProxy, ProxyEnd, ProxyEvent};
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;
use units::exact::duration_text;
use units::size::show_exact;

use super::AttachPlan;
use super::record::{AttachedDevice, AttachedState, RecordFiles};
use crate::api::client::ControlClient;
use crate::api::{ApiRequest, Reply, Role};

/// The kernel makes the node of a new device at once, or a service of the system does, a little later.
const NODE_PATIENCE: Duration = Duration::from_secs(5);
/// A socket that the kernel has no use for yet is offered again after this.
const TAKEOVER_RETRY: Duration = Duration::from_millis(100);
/// While the daemon is away: how often its node is asked whether it still is primary.
const ROLE_LOOK: Duration = Duration::from_millis(500);
const ROLE_PATIENCE: Duration = Duration::from_secs(2);

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
    /// As it was last recorded.
    device: Rc<RefCell<AttachedDevice>>,
    proxy: Rc<NbdProxy>,
    /// The kernel's end of the present pair, and the connection that found out how large the export is.
    first: RefCell<Option<(tokio::net::UnixStream, NbdClient)>>,
}

impl Helper {
    async fn attach(plan: &AttachPlan, files: RecordFiles) -> anyhow::Result<Rc<Helper>> {
        let client = NbdClient::connect(&plan.nbd, &plan.export()).await?;
        let export = *client.export();
        let wanted = KernelDevice {
            size_bytes: export.size_bytes,
            block_bytes: export.block_min_bytes.max(512),
            flags: export.flags,
            dead_timeout: plan.wait,
            backend: backend(plan),
        };
        let nbd = find_nbd()?;
        let (index, ours) = match orphan(plan, &files)? {
            Some(index) => (index, take_over(nbd, index, &wanted, plan.wait).await?),
            None => {
                let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
                let index = nbd.connect(plan.index, &wanted, theirs.as_fd()).map_err(|error| refused(plan, &error))?;
                (index, ours)
            }
        };
        ours.set_nonblocking(true)?;
        let ours = tokio::net::UnixStream::from_std(ours)?;
        let device = AttachedDevice {
            group: plan.group.clone(),
            volume: plan.volume.clone(),
            device: kernel::device_path(index),
            link: files.link().to_owned(),
            size_bytes: export.size_bytes,
            state: AttachedState::Connected,
            helper_pid: std::process::id(),
            attached_unix_ms: now_unix_ms(),
            wait_s: plan.wait.as_secs(),
            index,
        };
        let named = async {
            node_appears(&device.device).await?;
            files.make_link(&device.device)?;
            files.write(&device)
        };
        if let Err(error) = named.await {
            let _ = nbd.disconnect(index);
            return Err(error);
        }
        let device = Rc::new(RefCell::new(device));
        let events = EventLog { files: files.clone(), device: device.clone(), nbd, wanted };
        let proxy = NbdProxy::new(plan.nbd.clone(), plan.export(), plan.wait, move |event| events.note(event));
        let first = RefCell::new(Some((ours, client)));
        Ok(Rc::new(Helper { plan: plan.clone(), files, nbd, device, proxy, first }))
    }

    async fn serve_until_detached(self: Rc<Self>) -> anyhow::Result<()> {
        let looking = tokio::task::spawn_local(self.clone().watch_role());
        let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be watched")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be watched")?;
        let serving = self.serve();
        tokio::pin!(serving);
        let end = loop {
            tokio::select! {
                end = &mut serving => break end,
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            let (path, index) = {
                let device = self.device.borrow();
                (device.device.clone(), device.index)
            };
            if let Some(by) = in_use(&path) {
                tracing::warn!(
                    "{} is in use by {by}, so it stays, and requests wait {} for another helper: 'farshore attach {}' starts one",
                    path.display(),
                    duration_text(self.plan.wait),
                    self.plan.export()
                );
                return Ok(());
            }
            // The kernel says goodbye on the socket, which ends the serving.
            self.nbd.disconnect(index).with_context(|| format!("{} cannot be detached", path.display()))?;
        };
        looking.abort();
        end?;
        tracing::info!("{} is detached", self.plan.export());
        self.files.remove()
    }

    async fn serve(&self) -> anyhow::Result<()> {
        let (mut ours, client) = self.first.take().expect("it is served once");
        let mut client = Some(client);
        let (index, wanted) = {
            let device = self.device.borrow();
            (device.index, self.wanted(device.size_bytes))
        };
        loop {
            let end = self.proxy.serve(ours, client.take()).await;
            if end == ProxyEnd::Disconnected || !kernel::is_connected(index) {
                return Ok(());
            }
            tracing::warn!("the kernel closed its connection and keeps the device; it gets another one");
            let again = take_over(self.nbd, index, &wanted, self.plan.wait).await?;
            again.set_nonblocking(true)?;
            ours = tokio::net::UnixStream::from_std(again)?;
        }
    }

    fn wanted(&self, size_bytes: u64) -> KernelDevice {
        KernelDevice {
            size_bytes,
            block_bytes: 512,
            flags: 0,
            dead_timeout: self.plan.wait,
            backend: backend(&self.plan),
        }
    }

    /// A node that has become secondary may hold another content when it is primary again: nothing that was asked of the old one may
    /// reach the new.
    async fn watch_role(self: Rc<Self>) {
        loop {
            tokio::time::sleep(ROLE_LOOK).await;
            if !self.proxy.is_away() {
                continue;
            }
            let (control, group) = (self.plan.control.clone(), self.plan.group.clone());
            let Ok(Some(Role::Secondary)) = tokio::task::spawn_blocking(move || role_of(&control, &group)).await else {
                continue;
            };
            self.proxy.fail();
            let why = format!(
                "this node is the secondary of {} now, so requests fail until the device is detached; attach it where the primary is",
                self.plan.group
            );
            tracing::error!("{}: {why}", self.plan.export());
            self.device.borrow_mut().state = AttachedState::Failing { since_unix_ms: now_unix_ms(), why };
            let _ = self.files.write(&self.device.borrow());
            return;
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
    fn note(&self, event: ProxyEvent) {
        let mut device = self.device.borrow_mut();
        let name = format!("{}/{}", device.group, device.volume);
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
                self.resize(&mut device, size_bytes);
            }
        }
        if let Err(error) = self.files.write(&device) {
            tracing::warn!("{error:#}");
        }
    }

    fn resize(&self, device: &mut AttachedDevice, size_bytes: u64) {
        if size_bytes == device.size_bytes {
            return;
        }
        let (was, is) = (show_exact(device.size_bytes), show_exact(size_bytes));
        let wanted = KernelDevice { size_bytes, ..self.wanted.clone() };
        match self.nbd.reconfigure(device.index, &wanted, None) {
            Ok(()) => {
                tracing::info!("{}/{} had {was} and has {is}", device.group, device.volume);
                device.size_bytes = size_bytes;
            }
            Err(error) => tracing::error!("{} keeps its size of {was}, not {is}: {error}", device.device.display()),
        }
    }
}

fn backend(plan: &AttachPlan) -> String {
    format!("farshore {}", plan.export())
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
fn orphan(plan: &AttachPlan, files: &RecordFiles) -> anyhow::Result<Option<u32>> {
    let Some(device) = files.read()? else { return Ok(None) };
    let is_ours = kernel::backend_of(device.index)
        .map_or_else(|| kernel::is_connected(device.index), |text| text == backend(plan));
    if !is_ours {
        files.remove()?;
        return Ok(None);
    }
    if let Some(index) = plan.index.filter(|index| *index != device.index) {
        bail!(
            "{} is attached at {}, so not at {}: detach it first",
            plan.export(),
            device.device.display(),
            kernel::device_path(index).display()
        );
    }
    Ok(Some(device.index))
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
        nbd.reconfigure(index, wanted, Some(theirs.as_fd()))
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
    let advice = match error.raw_os_error() {
        Some(libc_codes::EPERM | libc_codes::EACCES) => "; it takes root, or CAP_SYS_ADMIN",
        Some(libc_codes::EBUSY) => ", which somebody else uses; name another one, or none",
        _ => "",
    };
    anyhow::anyhow!("the kernel gives {} no {device}: {error}{advice}", plan.export())
}

/// The numbers of linux/errno-base.h that are told apart.
mod libc_codes {
    pub const EPERM: i32 = 1;
    pub const EACCES: i32 = 13;
    pub const EBUSY: i32 = 16;
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

/// Who has the device open or mounted; `None`: nobody.
pub fn in_use(device: &Path) -> Option<String> {
    claimed(device).or_else(|| opened_by(device))
}

fn role_of(control: &Path, group: &str) -> Option<Role> {
    let request = ApiRequest::Status { group: Some(group.to_owned()) };
    match ControlClient::connect(control).and_then(|mut client| client.ask_within(ROLE_PATIENCE, &request)) {
        Ok(Reply::Status(status)) => status.groups.into_iter().next().map(|group| group.role),
        _ => None,
    }
}

fn tell_service_manager(device: &AttachedDevice) {
    let status = format!("{} at {}", device.link.display(), device.device.display());
    let _ = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
