//! The kernel's half of a device, of either kind. The helper's half is the same for both: [`host::nbd::NbdProxy`] answers on a socket.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use host::nbd::kernel::{self, KernelDevice, KernelNbd};
use host::ublk::{self, UblkControl, UblkServer};
use rustix::io::Errno;
use tokio::time::{sleep, timeout};
use units::exact::duration_text;

use super::beside::beside;
use super::record::DeviceKind;

/// The kernel makes and starts a ublk device in less. Some kernels never do, and break down instead.
const KERNEL_PATIENCE: Duration = Duration::from_secs(10);
/// What the kernel is not ready for yet is asked again after this.
const TAKEOVER_RETRY: Duration = Duration::from_millis(100);

/// The kernel did not end what it was told to do. This process may not end either, because the kernel waits for that.
#[derive(Debug, thiserror::Error)]
pub enum KernelHangs {
    #[error(
        "the kernel does not answer for {} while it {doing}: 'dmesg' says whether it broke down. Then only a reboot helps; attach without \
         --ublk after that. If it did not, type this command again",
        duration_text(KERNEL_PATIENCE)
    )]
    Itself { doing: &'static str },
    /// It reads a device that it starts for partitions.
    #[error(
        "the daemon went away while the kernel looked at the new device of {export}, and is not back after {}: start it ('systemctl start \
         farshore'), then attach again",
        duration_text(KERNEL_PATIENCE)
    )]
    ForTheDaemon { export: String },
}

impl KernelHangs {
    /// Why a start failed, during which the daemon may have gone away.
    pub(super) fn explain(error: anyhow::Error, is_daemon_away: bool, export: &str) -> anyhow::Error {
        let hangs = matches!(error.downcast_ref::<KernelHangs>(), Some(KernelHangs::Itself { .. }));
        if hangs && is_daemon_away { KernelHangs::ForTheDaemon { export: export.to_owned() }.into() } else { error }
    }
}

/// What devices of one kind are ordered from.
#[derive(Clone)]
pub(super) enum KernelSide {
    Nbd(KernelNbd),
    Ublk(UblkControl),
}

/// Our end of a device's socket, and who stands at the other if that is not the kernel itself.
pub(super) type ServedSocket = (UnixStream, Option<UblkServer>);

impl KernelSide {
    /// Loads the module if need be.
    ///
    /// # Errors
    /// A sentence: this kernel has nothing of the kind.
    pub fn find(kind: DeviceKind) -> anyhow::Result<KernelSide> {
        match kind {
            DeviceKind::Nbd => find_nbd().map(KernelSide::Nbd),
            DeviceKind::Ublk => find_ublk().map(KernelSide::Ublk),
        }
    }

    pub fn kind(&self) -> DeviceKind {
        match self {
            KernelSide::Nbd(_) => DeviceKind::Nbd,
            KernelSide::Ublk(_) => DeviceKind::Ublk,
        }
    }

    /// In the order in which they are tried.
    pub fn free_indexes(&self) -> Box<dyn Iterator<Item = u32>> {
        match self {
            KernelSide::Nbd(_) => Box::new(kernel::free_indexes()),
            KernelSide::Ublk(_) => Box::new(ublk::free_indexes()),
        }
    }

    /// Makes the device of this index. `socket`: for the kernel. Inside: what the kernel says.
    ///
    /// # Errors
    /// [`KernelHangs`], or no thread can be started.
    pub async fn make(&self, index: u32, wanted: &KernelDevice, socket: &UnixStream) -> anyhow::Result<io::Result<()>> {
        match self {
            KernelSide::Nbd(nbd) => Ok(nbd.connect(index, wanted, socket.as_fd())),
            KernelSide::Ublk(control) => {
                let (control, wanted) = (control.clone(), wanted.clone());
                bounded("makes a ublk device", move || control.add(index, &wanted)).await
            }
        }
    }

    /// Who asks on `socket` what the kernel asks of a device that was made: of NBD it is the kernel.
    ///
    /// # Errors
    /// A sentence: nobody can. Then the device is taken away again, if the kernel does that.
    pub async fn serve_made(&self, index: u32, socket: UnixStream) -> anyhow::Result<Option<UblkServer>> {
        let KernelSide::Ublk(control) = self else { return Ok(None) };
        let served = serve_ublk(control, index, socket).await;
        if served.is_err() {
            let control = control.clone();
            let _ = bounded("removes a ublk device", move || control.delete(index)).await;
        }
        served.map(Some)
    }

    /// A new socket for a device that nobody serves. Its requests come after [`KernelSide::start`].
    ///
    /// # Errors
    /// A sentence: the kernel takes none.
    pub async fn take_over(
        &self,
        index: u32,
        wanted: &KernelDevice,
        patience: Duration,
    ) -> anyhow::Result<ServedSocket> {
        match self {
            KernelSide::Nbd(nbd) => Ok((take_over_nbd(*nbd, index, wanted, patience).await?, None)),
            KernelSide::Ublk(control) => {
                begin_recovery(control, index, patience).await?;
                let (ours, theirs) = UnixStream::pair()?;
                Ok((ours, Some(serve_ublk(control, index, theirs).await?)))
            }
        }
    }

    /// Lets programs use the device. Until this ends, requests are answered: the kernel may ask some of its own.
    ///
    /// # Errors
    /// A sentence: the kernel refuses, or hangs.
    pub async fn start(&self, index: u32, is_new: bool) -> anyhow::Result<()> {
        let KernelSide::Ublk(control) = self else { return Ok(()) };
        let control = control.clone();
        let order = move || if is_new { control.start(index) } else { control.end_recovery(index) };
        let end = bounded("starts a ublk device", order).await?;
        end.with_context(|| format!("the kernel does not start {}", ublk::device_path(index).display()))
    }

    /// Whether the kernel still has a device whose socket it has closed.
    pub fn keeps(&self, index: u32) -> bool {
        match self {
            // Where the system does not say, giving the device another socket shows it.
            KernelSide::Nbd(_) => kernel::is_connected(index).unwrap_or(true),
            // Its server says goodbye for it.
            KernelSide::Ublk(_) => true,
        }
    }

    /// Waits for the kernel, so it is done by a thread of its own.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn resize(&self, index: u32, wanted: &KernelDevice) -> io::Result<()> {
        match self {
            KernelSide::Nbd(nbd) => nbd.resize(index, wanted),
            KernelSide::Ublk(control) => control.resize(index, wanted.size_bytes),
        }
    }
}

/// What `work` returns; the kernel is waited for no longer than is reasonable.
pub(super) async fn bounded<T: Send + 'static>(
    doing: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<T> {
    match timeout(KERNEL_PATIENCE, beside(work)).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(KernelHangs::Itself { doing }.into()),
    }
}

async fn serve_ublk(control: &UblkControl, index: u32, socket: UnixStream) -> anyhow::Result<UblkServer> {
    let control = control.clone();
    let serve = move || {
        let info = control.info(index)?.ok_or_else(|| io::Error::from(Errno::NODEV))?;
        UblkServer::start(&info, socket)
    };
    let served = bounded("hands a ublk device over", serve).await?;
    served.with_context(|| format!("{} cannot be served", ublk::device_path(index).display()))
}

/// The kernel gives a device no other server before it has seen the last one's end, and all that it had asked of that has come back.
async fn begin_recovery(control: &UblkControl, index: u32, patience: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + patience;
    let refused = |error: io::Error| {
        anyhow!(error).context(format!("{} cannot be taken over", ublk::device_path(index).display()))
    };
    loop {
        let control = control.clone();
        let begun = bounded("hands a ublk device over", move || control.begin_recovery(index)).await?;
        let Err(error) = begun else { return Ok(()) };
        match Errno::from_io_error(&error) {
            Some(Errno::BUSY) if Instant::now() < deadline => sleep(TAKEOVER_RETRY).await,
            // Another helper began, and was killed before it served the device: then it waits for a server already.
            Some(Errno::INVAL) => return Ok(()),
            _ => return Err(refused(error)),
        }
    }
}

/// Gives a device that nobody serves a new pair of sockets; ours of the two. The kernel takes none before it has seen that the old one is
/// dead, and then closes it without a word.
async fn take_over_nbd(
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
            Ok((0, _)) if Instant::now() < deadline => sleep(TAKEOVER_RETRY).await,
            Ok((0, _)) => bail!("the kernel takes no new socket for {}", kernel::device_path(index).display()),
            // It asks, or has nothing to ask.
            _ => {
                ours.set_read_timeout(None)?;
                return Ok(ours);
            }
        }
    }
}

/// What there is once the module is loaded; inside an error, what was said to that.
fn found_or_loaded<T>(module: &str, find: impl Fn() -> io::Result<T>) -> io::Result<Result<T, String>> {
    match find() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found.map(Ok),
    }
    let loaded = Command::new("modprobe").arg(module).output();
    if let Ok(found) = find() {
        return Ok(Ok(found));
    }
    Ok(Err(match loaded {
        Ok(output) if output.status.success() => format!("nothing is there although its module {module} is loaded"),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    }))
}

fn find_nbd() -> anyhow::Result<KernelNbd> {
    let found = found_or_loaded("nbd", KernelNbd::find).context("the kernel's NBD cannot be asked")?;
    found.map_err(|said| {
        anyhow!(
            "this kernel has no NBD client, so no device can be attached ({said}). Its module is 'nbd': Debian's linux-image-amd64 has \
             it, the kernel of a small cloud image may not. NBD clients without a kernel device, such as qemu, need none"
        )
    })
}

fn find_ublk() -> anyhow::Result<UblkControl> {
    let found = found_or_loaded("ublk_drv", UblkControl::open);
    let found = found.context("/dev/ublk-control cannot be opened; it takes root")?;
    let control = found.map_err(|said| {
        anyhow!(
            "this kernel has no ublk ({said}). Its module is 'ublk_drv': Debian 13's linux-image-amd64 has it, Ubuntu's is in \
             linux-modules-extra, Debian 12 has none. Without --ublk the kernel's NBD client is used"
        )
    })?;
    match control.is_new_enough() {
        Ok(true) => Ok(control),
        Ok(false) => bail!(
            "this kernel's ublk ({}) is too old: a device would not outlive its helper. It takes Linux 6.5 or newer; without --ublk the \
             kernel's NBD client is used",
            rustix::system::uname().release().to_string_lossy()
        ),
        Err(error) => Err(error).context("the kernel's ublk cannot be asked"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_hangs_is_told_from_one_that_refuses() {
        let hangs = || anyhow::Error::from(KernelHangs::Itself { doing: "makes a ublk device" });
        let error = hangs();
        assert!(error.to_string().contains("for 10s while it makes a ublk device"), "{error}");
        assert!(error.context("g/data").downcast_ref::<KernelHangs>().is_some());
        assert!(anyhow!("it refuses").downcast_ref::<KernelHangs>().is_none());
        // A start waited for the daemon: it is what an operator has to look at.
        let explained = |error, is_away| KernelHangs::explain(error, is_away, "g/data");
        let named = explained(hangs(), true);
        assert!(named.to_string().starts_with("the daemon went away"), "{named}");
        assert!(named.downcast_ref::<KernelHangs>().is_some());
        assert!(explained(hangs(), false).to_string().starts_with("the kernel does not answer"));
        assert_eq!(explained(anyhow!("it refuses"), true).to_string(), "it refuses");
    }

    #[test]
    fn what_there_is_not_is_looked_for_twice() {
        let looks = std::cell::Cell::new(0);
        let find = |found_at: u32, else_kind: io::ErrorKind| {
            looks.set(0);
            found_or_loaded("no_such_module_of_ours", || {
                looks.set(looks.get() + 1);
                if looks.get() == found_at { Ok(7) } else { Err(else_kind.into()) }
            })
        };
        assert!(matches!(find(1, io::ErrorKind::NotFound), Ok(Ok(7))));
        assert!(matches!(find(2, io::ErrorKind::NotFound), Ok(Ok(7))));
        assert!(matches!(find(3, io::ErrorKind::NotFound), Ok(Err(said)) if !said.is_empty()));
        let refused = find(3, io::ErrorKind::PermissionDenied);
        assert!(refused.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied));
        assert_eq!(looks.get(), 1);
    }
}
