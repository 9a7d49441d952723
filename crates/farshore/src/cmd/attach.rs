//! `attach`, `detach`, `attached`: volumes as block devices of the kernel.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use host::disk::used_by;
use host::nbd::Address;
use rustix::process::{Pid, Signal, kill_process};
use sd_notify::NotifyState;
use serde_json::json;
use settings::limits::POLL_INTERVAL;
use settings::{Config, ListenAddress};
use toolkit::screen::Paint;
use units::exact::parse_duration;
use units::size::show_exact;

use super::progress::{ProgressView, WorkStage};
use super::reach;
use crate::api::{NodeView, Role};
use crate::args::attach::{AttachArgs, AttachedArgs, DetachArgs};
use crate::attach::record::{
    self, ATTACHED_SCHEMA, AttachedDevice, AttachedList, AttachedState, DeviceKind, RecordFiles,
};
use crate::attach::{self, AttachPlan, KernelHangs};
use crate::outcome::{CommandFailure, CommandOutcome, Exit, print, warn};
use crate::show::explained;
use crate::show::table::{Table, plain};

/// A helper ends in no time, unless the kernel waits for a request that nobody answers.
const DETACH_PATIENCE: Duration = Duration::from_secs(10);
/// After a loss of power an export opens in less by default (`start_alone`). A boot waits for no unit much longer than that.
const OPEN_PATIENCE: Duration = Duration::from_secs(90);
/// Another command attaches a volume in less, unless its helper hangs.
const ATTACH_PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked what another process does with a device.
const HELPER_LOOK: Duration = Duration::from_millis(20);
/// A longer log of a helper begins anew with the next one.
const LOG_BYTES_MAX: u64 = 1 << 20;
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

pub fn attach(args: &AttachArgs) -> CommandOutcome {
    if args.foreground {
        crate::log::choose(args.log_format);
        crate::log::start(super::status::colours_wanted(&std::io::stderr()))?;
    }
    let wait = parse_duration(&args.wait).map_err(|why| CommandFailure::usage(format!("--wait: {why}")))?;
    if !(Duration::from_secs(1)..=WAIT_MAX).contains(&wait) {
        return Err(CommandFailure::usage(format!("--wait: {:?} is not between 1s and 24h", args.wait)));
    }
    let kind = if args.ublk { DeviceKind::Ublk } else { DeviceKind::Nbd };
    let index = args.device.as_deref().map(|device| index_of(device, kind)).transpose()?;
    let plans = plans(args, wait, kind, index)?;
    if args.foreground {
        let [plan] = &plans[..] else {
            return Err(CommandFailure::usage("--foreground serves one volume: name it as GROUP/VOLUME"));
        };
        let end = attach::run(plan, |device| _ = print(&format!("{}\n", json!(device))));
        crate::log::finish();
        if let Err(error) = &end
            && error.downcast_ref::<KernelHangs>().is_some()
        {
            // Whoever started this process does not wait for its end, which may never come.
            print(&format!("{error:#}\n"))?;
        }
        end?;
        return Ok(Exit::Done.into());
    }
    let mut devices = Vec::new();
    for plan in &plans {
        let (device, is_new) = attach_one(args, plan)?;
        if !args.json {
            let name = plan.export();
            let text = match is_new {
                true => format!("{name} is attached: {} ({})\n", device.link.display(), device.device.display()),
                false => format!(
                    "{name} is attached already: {} ({}); nothing to do\n",
                    device.link.display(),
                    device.device.display()
                ),
            };
            print(&text)?;
        }
        devices.push(device);
    }
    if args.json {
        print(&format!("{}\n", json!(AttachedList { schema: ATTACHED_SCHEMA, devices: &devices })))?;
    }
    let ill: Vec<&AttachedDevice> = devices.iter().filter(|device| device.state != AttachedState::Connected).collect();
    ill.iter().for_each(|device| warn(format!("requests of {} {}", device.device.display(), words(device))));
    Ok(if ill.is_empty() { Exit::Done } else { Exit::Warning }.into())
}

/// What is to be attached: everything that can be wrong is found before anything is.
fn plans(
    args: &AttachArgs,
    wait: Duration,
    kind: DeviceKind,
    index: Option<u32>,
) -> Result<Vec<AttachPlan>, CommandFailure> {
    let (group, volume) = split(&args.name);
    let (control, nbd) = doors(args)?;
    let status = opened(args, group)?;
    let found =
        status.groups.first().ok_or_else(|| format!("the daemon of {} shows no group {group:?}", status.node))?;
    if found.role == Role::Secondary {
        return Err(secondary(&status, group).into());
    }
    let volumes: Vec<&str> = found.volumes.iter().map(|volume| volume.name.as_str()).collect();
    let wanted: Vec<&str> = match volume {
        Some(volume) if volumes.contains(&volume) => vec![volume],
        Some(volume) => {
            return Err(
                format!("group {group} has no volume {volume:?}; its volumes are {}", volumes.join(", ")).into()
            );
        }
        None => volumes,
    };
    if index.is_some() && wanted.len() > 1 {
        return Err(CommandFailure::usage(format!(
            "{group} has {} volumes, and one device holds one: name it as {group}/{}",
            wanted.len(),
            wanted[0]
        )));
    }
    let plan = |volume: &str| AttachPlan {
        group: group.to_owned(),
        volume: volume.to_owned(),
        node: status.node.clone(),
        control: control.clone(),
        nbd: nbd.clone(),
        wait,
        kind,
        index,
    };
    Ok(wanted.into_iter().map(plan).collect())
}

/// The status once the group has started, and its export is open if this node is primary.
fn opened(args: &AttachArgs, group: &str) -> Result<NodeView, CommandFailure> {
    let deadline = Instant::now() + OPEN_PATIENCE;
    let mut view = ProgressView::new(group);
    let mut said = String::new();
    loop {
        let status = reach::started(&args.reach, group)?;
        let Some(closed) = status.groups.first().filter(|found| found.is_closed()) else { return Ok(status) };
        let why = explained(closed);
        if Instant::now() >= deadline {
            return Err(
                format!("the export of {group} is closed, so nothing of it can be attached: {group} {why}").into()
            );
        }
        if !args.foreground {
            view.show(&WorkStage::words(why));
        } else if said != why {
            tracing::info!("the export of {group} is closed and is waited for: {group} {why}");
            let _ = sd_notify::notify(&[NotifyState::Status(&why)]);
            said = why;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn secondary(status: &NodeView, group: &str) -> String {
    format!(
        "{} is the secondary of {group}, so it exports nothing: attach on the node that is primary, or make this one primary first \
         ('farshore promote {group}')",
        status.node
    )
}

fn split(name: &str) -> (&str, Option<&str>) {
    name.split_once('/').map_or((name, None), |(group, volume)| (group, Some(volume)))
}

/// Where the daemon listens: for commands, and for NBD clients of this machine.
fn doors(args: &AttachArgs) -> Result<(PathBuf, Address), CommandFailure> {
    let control = reach::socket(&args.reach)?;
    // One name for it, however it was spelt: a device belongs to its daemon.
    let control = control.canonicalize().unwrap_or(control);
    if args.reach.socket.is_some() {
        return Ok((control.clone(), Address::Unix(control.with_file_name("nbd.sock"))));
    }
    let config = Config::load(&args.reach.config)?;
    let name = config.local_node(args.reach.node.as_deref())?;
    let node = config.node(&name).ok_or("the node is not in the configuration")?;
    let unix = node.nbd.iter().find_map(|listen| match listen {
        ListenAddress::Unix(path) => Some(Address::Unix(path.clone())),
        ListenAddress::Tcp(_) => None,
    });
    let open = node.nbd.iter().find_map(|listen| match listen {
        ListenAddress::Tcp(address) if address.ip().is_loopback() => Some(Address::Tcp(*address)),
        _ => None,
    });
    let nbd = unix.or(open).ok_or_else(|| {
        format!(
            "node {name} serves NBD clients on the network only, and a device is attached on the node itself: add \
             \"unix:{}/nbd.sock\" to 'nbd' of nodes.{name}",
            node.state.display()
        )
    })?;
    Ok((control, nbd))
}

fn index_of(device: &Path, kind: DeviceKind) -> Result<u32, CommandFailure> {
    let name = device.to_str().unwrap_or_default();
    let (prefix, what, others) = match kind {
        DeviceKind::Nbd => ("/dev/nbd", "device of the kernel's NBD", "; of ublk, with --ublk, /dev/ublkb0"),
        DeviceKind::Ublk => ("/dev/ublkb", "device of ublk", "; of the kernel's NBD, without --ublk, /dev/nbd0"),
    };
    let index: Option<u32> = name.strip_prefix(prefix).and_then(|number| number.parse().ok());
    index.filter(|index| *index < kind.indexes_max()).ok_or_else(|| {
        let last = kind.indexes_max() - 1;
        CommandFailure::usage(format!("{name:?} is no {what}; they are called {prefix}0 to {prefix}{last}{others}"))
    })
}

/// The device, and whether it is new. What another command is just attaching is waited for.
fn attach_one(args: &AttachArgs, plan: &AttachPlan) -> Result<(AttachedDevice, bool), CommandFailure> {
    let files = RecordFiles::of(&plan.group, &plan.volume);
    let deadline = Instant::now() + ATTACH_PATIENCE;
    loop {
        if let Some(device) = files.read()?.filter(|device| device.state != AttachedState::NoHelper) {
            if device.control != plan.control {
                return Err(attach::another_daemon(&device).into());
            }
            if let AttachedState::Ended { why, .. } = &device.state {
                return Err(attach::ended(&device, why).into());
            }
            if let Some(why) = attach::another_device(&device, plan) {
                return Err(why.into());
            }
            return Ok((device, false));
        }
        if !files.has_helper() {
            files.prepare()?;
            if let Some(device) = start_helper(args, plan, &files)? {
                return Ok((device, true));
            }
        } else if Instant::now() >= deadline {
            return Err(held(&plan.export(), &files).into());
        }
        std::thread::sleep(HELPER_LOOK);
    }
}

/// The log of a helper that is started, and what is in it already: it is appended to, because another helper may be writing it.
fn open_log(path: &Path) -> io::Result<(File, u64)> {
    let log = File::options().create(true).append(true).open(path)?;
    let bytes = log.metadata()?.len();
    if bytes <= LOG_BYTES_MAX {
        return Ok((log, bytes));
    }
    log.set_len(0)?;
    Ok((log, 0))
}

/// The last line that a log has after so many bytes.
fn last_line(path: &Path, after_bytes: u64) -> Option<String> {
    let mut log = File::open(path).ok()?;
    log.seek(SeekFrom::Start(after_bytes)).ok()?;
    let mut bytes = Vec::new();
    log.read_to_end(&mut bytes).ok()?;
    String::from_utf8_lossy(&bytes).lines().last().map(str::to_owned)
}

/// Starts the helper as a process of its own session, which outlives this command. `None`: another helper was faster.
fn start_helper(
    args: &AttachArgs,
    plan: &AttachPlan,
    files: &RecordFiles,
) -> Result<Option<AttachedDevice>, CommandFailure> {
    let path = files.log();
    let (log, before) = open_log(&path).map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["attach", "--foreground", "--wait", &args.wait, &plan.export()]).args(&args.device);
    command.args(args.ublk.then_some("--ublk"));
    // A service manager that started this command did not start the helper.
    command.env_remove("NOTIFY_SOCKET");
    match &args.reach.socket {
        Some(socket) => command.arg("--socket").arg(socket),
        None => command.arg("--config").arg(&args.reach.config).args(["--node", &plan.node]),
    };
    let mut helper = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .current_dir("/")
        .process_group(0)
        .spawn()
        .map_err(|error| format!("the helper process cannot be started: {error}"))?;
    let mut line = String::new();
    let mut said = helper.stdout.take().ok_or("the helper has no output")?;
    let mut byte = [0];
    while said.read(&mut byte).is_ok_and(|count| count == 1) && byte != *b"\n" {
        line.push(char::from(byte[0]));
    }
    if let Ok(device) = serde_json::from_str(&line) {
        return Ok(Some(device));
    }
    if !line.is_empty() {
        // What it says there of a failure it may not outlive.
        return Err(line.into());
    }
    let _ = helper.wait();
    if files.has_helper() {
        return Ok(None);
    }
    let last = last_line(&path, before).unwrap_or_else(|| "it said nothing".to_owned());
    Err(last.strip_prefix("farshore: ").unwrap_or(&last).into())
}

pub fn detach(args: &DetachArgs) -> CommandOutcome {
    let (group, volume) = split(&args.name);
    let _turn = record::turn_to_detach(group)?;
    let devices: Vec<AttachedDevice> = record::all()?
        .into_iter()
        .filter(|device| device.group == group && volume.is_none_or(|volume| device.volume == volume))
        .collect();
    if devices.is_empty() {
        print(&format!("nothing of {} is attached here; nothing to do\n", args.name))?;
        return Ok(Exit::Done.into());
    }
    for device in devices.iter().filter(|_| !args.force) {
        // Without a helper nobody answers, and opening the device may wait for that.
        let is_served = RecordFiles::of(&device.group, &device.volume).has_helper();
        let by = if is_there(device)? { used_by(&device.device, is_served) } else { None };
        if let Some(by) = by {
            return Err(format!("{}; nothing was detached", in_use(device, &by)).into());
        }
    }
    for device in &devices {
        detach_one(device, args.force)?;
        print(&format!("{} is detached\n", device.export()))?;
    }
    Ok(Exit::Done.into())
}

fn is_there(device: &AttachedDevice) -> Result<bool, CommandFailure> {
    attach::is_there(device)
        .map_err(|error| format!("{} cannot be looked at: {error}; try again", device.device.display()).into())
}

fn in_use(device: &AttachedDevice, by: &str) -> String {
    format!("{} ({}) is in use by {by}: unmount or stop that first", device.device.display(), device.link.display())
}

fn detach_one(device: &AttachedDevice, force: bool) -> Result<(), CommandFailure> {
    let files = RecordFiles::of(&device.group, &device.volume);
    stop_helper(device, &files, force)?;
    let Some(_lock) = files.lock()? else { return Err(held(&device.export(), &files).into()) };
    // However the helper ended: what it left is taken away here.
    let Some(left) = files.read()? else { return Ok(()) };
    let by = if force || !is_there(&left)? { None } else { used_by(&left.device, false) };
    if let Some(by) = by {
        return Err(format!(
            "{}; its helper is gone: 'farshore attach {}' starts one",
            in_use(&left, &by),
            left.export()
        )
        .into());
    }
    attach::take_away_and_wait(&left)
        .map_err(|error| format!("{} cannot be detached: {error:#}", left.device.display()))?;
    Ok(files.remove()?)
}

/// Tells the helper to detach, and waits until it is gone.
fn stop_helper(device: &AttachedDevice, files: &RecordFiles, force: bool) -> Result<(), CommandFailure> {
    let Some(helper) = whom_to_stop(files.helper(), device.helper_pid) else { return Ok(()) };
    // Told so, it looks once more whether somebody uses the device. SIGTERM would count until nobody does, also after this command has
    // failed: that one is the service manager's.
    match kill_process(helper, if force { Signal::USR1 } else { Signal::INT }) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(errno) => {
            return Err(format!("the helper of {} cannot be stopped: {errno}", device.device.display()).into());
        }
    }
    let deadline = Instant::now() + DETACH_PATIENCE;
    while files.has_helper() {
        if Instant::now() >= deadline {
            return Err(format!(
                "the helper of {} does not end; {} says why. One that hangs is ended with 'kill -9 {}': type this command again then",
                device.device.display(),
                files.log().display(),
                helper.as_raw_nonzero()
            )
            .into());
        }
        std::thread::sleep(HELPER_LOOK);
    }
    Ok(())
}

/// The process that holds the lock, if it is the helper on record: another one serves nothing yet.
fn whom_to_stop(holder: Option<i32>, recorded: u32) -> Option<Pid> {
    holder.filter(|holder| u32::try_from(*holder) == Ok(recorded)).and_then(Pid::from_raw)
}

/// Why nothing is done where another process has the lock.
fn held(export: &str, files: &RecordFiles) -> String {
    match files.helper() {
        Some(process) => format!(
            "process {process} is just attaching {export}: type this command again. One that hangs is ended with 'kill -9 {process}'"
        ),
        None => format!("another process is just attaching {export}: type this command again"),
    }
}

pub fn list(args: &AttachedArgs) -> CommandOutcome {
    let devices = record::all()?;
    if args.json {
        print(&format!("{}\n", json!(AttachedList { schema: ATTACHED_SCHEMA, devices: &devices })))?;
    } else if devices.is_empty() {
        print("no volume is attached here; 'farshore attach GROUP' does it\n")?;
    } else {
        let mut table = Table::new(["volume", "device", "kind", "link", "size", "requests"]);
        for device in &devices {
            let (name, device_path) =
                (format!("{}/{}", device.group, device.volume), device.device.display().to_string());
            let link = device.link.display().to_string();
            table.row([
                plain(&name),
                plain(&device_path),
                plain(kind_words(device.kind)),
                plain(&link),
                plain(&show_exact(device.size_bytes)),
                plain(&words(device)),
            ]);
        }
        let paint = if super::status::colours_wanted(&std::io::stdout()) { Paint::colours() } else { Paint::plain() };
        print(&table.text("", &paint))?;
    }
    let is_well = devices.iter().all(|device| device.state == AttachedState::Connected);
    Ok(if is_well { Exit::Done } else { Exit::Warning }.into())
}

fn kind_words(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Nbd => "nbd",
        DeviceKind::Ublk => "ublk",
    }
}

fn words(device: &AttachedDevice) -> String {
    match &device.state {
        AttachedState::Connected => "are answered".to_owned(),
        AttachedState::Waiting { why, .. } => format!("wait for the daemon: {why}"),
        AttachedState::Failing { why, .. } | AttachedState::Ended { why, .. } => format!("fail: {why}"),
        AttachedState::NoHelper => {
            // ublk knows of no time after which requests fail.
            let limit = match device.kind {
                DeviceKind::Nbd => format!(", {} s at most", device.wait_s),
                DeviceKind::Ublk => String::new(),
            };
            format!("wait for a helper process{limit}: 'farshore attach {}' starts it", device.export())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_as_the_kernel_names_its_kind() {
        let index = |device: &str, kind| index_of(Path::new(device), kind).map_err(|failure| failure.message);
        assert_eq!(index("/dev/nbd12", DeviceKind::Nbd), Ok(12));
        assert_eq!(index("/dev/ublkb3", DeviceKind::Ublk), Ok(3));
        for (device, kind) in
            [("/dev/ublkb3", DeviceKind::Nbd), ("/dev/nbd3", DeviceKind::Ublk), ("/dev/ublkc3", DeviceKind::Ublk)]
        {
            let said = index(device, kind).expect_err("it is of the other kind");
            assert!(said.contains("/dev/nbd0") && said.contains("/dev/ublkb0"), "{said}");
        }
    }

    /// The kernel took the largest number for any, and made a device that no command knew of.
    #[test]
    fn a_device_has_a_number_that_the_kernel_gives() {
        let index = |device: &str, kind| index_of(Path::new(device), kind).map_err(|failure| failure.message);
        assert_eq!(index("/dev/nbd32767", DeviceKind::Nbd), Ok(32767));
        assert_eq!(index("/dev/ublkb1048575", DeviceKind::Ublk), Ok(1_048_575));
        for (device, kind) in [
            ("/dev/nbd32768", DeviceKind::Nbd),
            ("/dev/nbd4294967295", DeviceKind::Nbd),
            ("/dev/ublkb1048576", DeviceKind::Ublk),
            ("/dev/ublkb4294967295", DeviceKind::Ublk),
        ] {
            let said = index(device, kind).expect_err("the kernel has no such number");
            assert!(said.contains(&format!(" to {}", kind.device_path(kind.indexes_max() - 1).display())), "{said}");
        }
    }

    /// The second of two commands emptied the log of the helper that the first had started.
    #[test]
    fn a_log_keeps_what_another_helper_has_said() {
        use std::io::Write;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("data.log");
        let (mut first, before) = open_log(&path).expect("it opens");
        writeln!(first, "one").expect("written");
        assert_eq!((before, last_line(&path, before).as_deref()), (0, Some("one")));
        let (mut second, before) = open_log(&path).expect("it opens");
        assert_eq!((before, last_line(&path, before)), (4, None));
        writeln!(second, "two").expect("written");
        assert_eq!(last_line(&path, before).as_deref(), Some("two"));
        assert_eq!(std::fs::read_to_string(&path).expect("text"), "one\ntwo\n");
        // It does not grow for ever.
        first.set_len(LOG_BYTES_MAX + 1).expect("longer");
        let (mut third, before) = open_log(&path).expect("it opens");
        writeln!(third, "three").expect("written");
        assert_eq!((before, std::fs::read_to_string(&path).expect("text").as_str()), (0, "three\n"));
    }

    #[test]
    fn without_a_helper_only_the_kernels_nbd_gives_up() {
        let words_of = |kind| {
            let device = record::example(kind, 0);
            words(&AttachedDevice { state: AttachedState::NoHelper, ..device })
        };
        assert_eq!(
            words_of(DeviceKind::Nbd),
            "wait for a helper process, 300 s at most: 'farshore attach db/data' starts it"
        );
        assert_eq!(words_of(DeviceKind::Ublk), "wait for a helper process: 'farshore attach db/data' starts it");
    }

    /// The helper on record is gone, and the next one has only begun, or another command takes the device away.
    #[test]
    fn only_the_helper_on_record_is_told_to_stop() {
        let found = [(Some(12), 12), (Some(13), 12), (None, 12), (Some(-1), u32::MAX), (Some(0), 0)]
            .map(|(holder, recorded)| whom_to_stop(holder, recorded).map(Pid::as_raw_pid));
        assert_eq!(found, [Some(12), None, None, None, None]);
    }
}
