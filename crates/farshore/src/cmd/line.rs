//! `link serve`, `link test`, `link sweep`, `link probe`, `link soak`: from typed words to a test, and its outcome to the terminal.

mod watch;

use std::cell::Cell;
use std::convert::Infallible;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use host::link::ClusterSecret;
use host::link::single::LineCredentials;
use host::tls::{CredentialStore, Paths};
use settings::{Config, Keyed, LinkKey, LinkOverrides, LinkSettings, NodeName, Proof};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::LocalSet;
use toolkit::line_test::client::{self, TestTarget};
use toolkit::line_test::disk::TestDisk;
use toolkit::line_test::serve::{self, Serving};
use toolkit::line_test::tally::EndReport;
use toolkit::line_test::terms::{
    DiskModel, FarDisk, SocketTerms, TIMEOUT, Terms, TestDirection, TestMode, parse_sizes,
};
use toolkit::line_test::{PORT, TestFailure, modes, path, report, soak, sweep};
use watch::{Findings, SoakRecord, SoakWatch, TestProgressBar};

use super::inputs::{forbid_core_dumps, read_bounded, with_port};
use crate::args::line::{
    CredentialArgs, LineModesArgs, LinkServeArgs, LinkSoakArgs, LinkTestArgs, LoadArgs, ProbeArgs, RemoteDisk,
    SocketArgs, SweepArgs,
};
use crate::daemon::renewal::{LOOK_EVERY, Renewal};
use crate::outcome::{CommandFailure, CommandOutcome, Exit, event, print, warn};

/// A file of sizes is a page of text, or a scan's report.
const DISTRIBUTION_BYTES_MAX: u64 = 16 << 20;

pub fn serve(args: &LinkServeArgs) -> CommandOutcome {
    let (config, node, credentials, settings) = credentials(&args.credentials)?;
    let here = config.node(&node).ok_or("the node is not in the configuration")?;
    let listen = args.listen.unwrap_or(SocketAddr::new(here.address.ip(), PORT));
    if credentials.tls.is_none() && !config.top.insecure && !listen.ip().is_loopback() {
        return Err(CommandFailure::usage(format!(
            "without certificates nobody outside this machine can be distinguished: {listen} needs [tls] in {}",
            config.file.display()
        )));
    }
    let renewal = credentials
        .tls
        .as_ref()
        .zip(config.tls.as_ref())
        .map(|(store, tls)| Renewal::new(store.clone(), Paths::of_node(&tls.directory, node.as_str())));
    if args.max_time.0 < 1.0 {
        return Err(CommandFailure::usage("--max-time: use 1s or more".to_owned()));
    }
    if let Some(path) = args.disk_file.as_deref() {
        check_room_for(path)?;
    }
    let serving = Serving {
        credentials,
        listen,
        ours: settings.socket_options(config.link.timeout),
        max_time: Duration::from_secs_f64(args.max_time.0),
        once: args.once,
        disk_file: args.disk_file.clone(),
        timeout: timeout(&args.credentials)?,
    };
    let config = Arc::new(config);
    run_to_end(async move |stop| {
        tokio::select! {
            served = serve::serve(serving, Rc::new(ServePrinter), stop) => served,
            never = renew_for_ever(renewal.as_ref(), &config, &node) => match never {},
        }
    })?
    .map_err(failure)?;
    Ok(Exit::Done.into())
}

/// For a file that a test is to make. What this user may not see is left to the test to tell.
fn check_room_for(path: &Path) -> Result<(), CommandFailure> {
    let wrong = |why: &str| Err(CommandFailure::usage(format!("--disk-file: {} {why}", path.display())));
    if path.symlink_metadata().is_ok() {
        return wrong("exists already, and what is there is never overwritten: name another");
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match directory.metadata() {
        Ok(found) if !found.is_dir() => wrong("lies in what is no directory"),
        Err(error) if error.kind() == ErrorKind::NotFound => wrong("lies in a directory that is not there"),
        _ => Ok(()),
    }
}

/// Takes up new certificates as they come, as the daemon does.
async fn renew_for_ever(renewal: Option<&Renewal>, config: &Arc<Config>, node: &NodeName) -> Infallible {
    let Some(renewal) = renewal else { return std::future::pending().await };
    let mut printed = None;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if renewal.look(config, node).await {
            renewal.links_are_done();
            let _ = print("the certificates were replaced; new connections show them\n");
        }
        let problem = renewal.problem();
        if problem != printed {
            problem.iter().for_each(warn);
            printed = problem;
        }
    }
}

pub fn test(args: &LinkTestArgs) -> CommandOutcome {
    let target = target(&args.host, &args.credentials)?;
    let limit = timeout(&args.credentials)?;
    if let Some(path) = args.load.disk_file.as_deref() {
        check_room_for(path)?;
    }
    match args.load.mode {
        LineModesArgs::One(mode) => test_one(args, &target, &terms(args, mode, limit)?),
        LineModesArgs::All => {
            let each = TestMode::ALL.into_iter().map(|mode| terms(args, mode, limit));
            test_all(args, &target, &each.collect::<Result<Vec<_>, _>>()?)
        }
    }
}

fn test_one(args: &LinkTestArgs, target: &TestTarget, terms: &Terms) -> CommandOutcome {
    if terms.mode == TestMode::Catchup && terms.near_disk_takes_time {
        return Err(CommandFailure::usage(
            "--disk, --disk-file: in catchup there is no writer that would wait for a disk here",
        ));
    }
    let outcome = run_to_end(async |stop| {
        let disk = near_disk(&args.load, terms, stop).await?;
        client::run(target, terms, disk, stop, &*watch::of_test(args, terms)).await
    })?
    .map_err(|trouble| hinted(trouble, &target.address))?;
    if args.json_stream {
        event(report::STREAM_SCHEMA, "end", &report::json(&outcome, args.line_rate))?;
    } else if args.json {
        print(&format!("{}\n", report::json(&outcome, args.line_rate)))?;
    } else {
        let gap = if watch::prints_lines(args) { "\n" } else { "" };
        print(&format!("{gap}{}", report::text(&outcome, args.line_rate)))?;
    }
    let exit = warned(&report::warnings(&outcome));
    match outcome.lost {
        Some(why) => {
            let hint = if outcome.is_swallowed { swallowed(&outcome.address) } else { String::new() };
            Err(format!("the test with {} did not come to its end: {why}{hint}", outcome.address).into())
        }
        None => Ok(exit),
    }
}

fn test_all(args: &LinkTestArgs, target: &TestTarget, each: &[Terms]) -> CommandOutcome {
    let modes = run_to_end(async |stop| {
        let disk = near_disk(&args.load, &each[0], stop).await?;
        modes::run(target, each, &disk, stop, &|terms| watch::of_test(args, terms)).await
    })?
    .map_err(|trouble| hinted(trouble, &target.address))?;
    if args.json_stream {
        event(report::STREAM_SCHEMA, "end", &modes.json(args.line_rate))?;
    } else if args.json {
        print(&format!("{}\n", modes.json(args.line_rate)))?;
    } else {
        let gap = if watch::prints_lines(args) { "\n" } else { "" };
        print(&format!("{gap}{}", modes.text()))?;
    }
    let exit = warned_of_part(&modes.warnings(), modes.interrupted);
    modes.lost.map_or(Ok(exit), |why| {
        Err(format!("the tests with {} did not come to their end: {why}", target.address).into())
    })
}

pub fn sweep(args: &SweepArgs) -> CommandOutcome {
    let plan = sweep::SweepPlan {
        from_bytes: args.from.0,
        to_bytes: args.to.0,
        time: Duration::from_secs_f64(args.time.0),
        tolerance: args.tolerance.0,
        largest_flush: args.largest_flush.0,
        controls: match &args.congestion[..] {
            [] => vec![None],
            names => names.iter().cloned().map(Some).collect(),
        },
        rounds: args.repeat,
        timeout: timeout(&args.credentials)?,
    };
    plan.check().map_err(CommandFailure::usage)?;
    let target = target(&args.host, &args.credentials)?;
    let sweep = run_to_end(async |stop| {
        let watch = |what: &str| {
            Findings::watch(sweep::STREAM_SCHEMA, TestProgressBar::new(what, args.time.0), args.json_stream)
        };
        sweep::run(&target, &plan, stop, &watch).await
    })?
    .map_err(|trouble| hinted(trouble, &target.address))?;
    if args.json_stream {
        event(sweep::STREAM_SCHEMA, "end", &sweep.json())?;
    } else {
        print(&if args.json { format!("{}\n", sweep.json()) } else { sweep.text() })?;
    }
    // After what took minutes to find out: pictures may find no room.
    if let Some(directory) = &args.plots {
        super::plan::draw(directory, &sweep::charts(&sweep.curves))?;
    }
    let exit = warned_of_part(&sweep.warnings(), sweep.interrupted);
    sweep.lost.map_or(Ok(exit), |why| Err(why.into()))
}

pub fn probe(args: &ProbeArgs) -> CommandOutcome {
    let limit = timeout(&args.credentials)?;
    let time_s = args.time.0;
    Terms { time_s, ..Terms::default() }.check().map_err(CommandFailure::usage)?;
    let target = target(&args.host, &args.credentials)?;
    let probe = run_to_end(async |stop| {
        let watch = Findings::watch(path::STREAM_SCHEMA, TestProgressBar::new("both ways", time_s), args.json_stream);
        path::run(&target, Duration::from_secs_f64(time_s), limit, stop, &*watch).await
    })?
    .map_err(failure)?;
    if args.json_stream {
        event(path::STREAM_SCHEMA, "end", &probe.json())?;
    } else {
        print(&if args.json { format!("{}\n", probe.json()) } else { probe.text() })?;
    }
    let exit = warned_of_part(&probe.warnings(), probe.is_interrupted());
    probe.lost().map_or(Ok(exit), |why| Err(format!("the load did not come to its end: {why}").into()))
}

pub fn soak(args: &LinkSoakArgs) -> CommandOutcome {
    let terms = Terms {
        mode: args.mode,
        sizes: vec![(args.flush_size.0, 1)],
        time_s: args.every.0,
        target_bytes_per_s: Some(args.rate.bytes_per_s()),
        timeout_s: timeout(&args.credentials)?.as_secs_f64(),
        ..Terms::default()
    };
    terms.check().map_err(CommandFailure::usage)?;
    let target = target(&args.host, &args.credentials)?;
    let terms = Terms { compression: Some(target.compression.clone()), ..terms };
    let record = SoakRecord::open(args.out.as_deref(), args.json_stream)?;
    let length = Duration::from_secs_f64(args.time.0);
    let soak = run_to_end(async |stop| {
        let bar = TestProgressBar::new("stretch", args.every.0);
        let has_begun = Cell::new(!args.json_stream);
        soak::run(&target, &terms, length, stop, &SoakWatch { bar, has_begun }, &record).await
    })?
    .map_err(|trouble| hinted(trouble, &target.address))?;
    if args.json_stream {
        event(soak::STREAM_SCHEMA, "end", &soak.json(&target, &terms))?;
    } else {
        print(&if args.json { format!("{}\n", soak.json(&target, &terms)) } else { soak.text() })?;
    }
    Ok(if soak.needs_attention() { Exit::Warning } else { Exit::Done }.into())
}

fn warned(warnings: &[String]) -> std::process::ExitCode {
    warnings.iter().for_each(warn);
    if warnings.is_empty() { Exit::Done } else { Exit::Warning }.into()
}

/// What was interrupted before all that belongs to it was measured needs an eye, too; its text says so.
fn warned_of_part(warnings: &[String], is_part: bool) -> std::process::ExitCode {
    let exit = warned(warnings);
    if is_part { Exit::Warning.into() } else { exit }
}

/// Who would find out why.
fn swallowed(address: &str) -> String {
    format!("; 'farshore link probe {address}' shows whether the path swallows large packets")
}

/// Where nothing comes any more before there is a test, that may be its first large packets.
fn hinted(trouble: TestFailure, address: &str) -> CommandFailure {
    match trouble {
        TestFailure::Silent(why) => format!("{why}{}", swallowed(address)).into(),
        other => failure(other),
    }
}

fn failure(trouble: TestFailure) -> CommandFailure {
    match trouble {
        TestFailure::Usage(message) => CommandFailure::usage(message),
        other => other.sentence().into(),
    }
}

/// Runs on one thread, as the data path does; `stop` is notified by Ctrl-C and its kin.
pub(super) fn run_to_end<T>(work: impl AsyncFnOnce(&Notify) -> T) -> Result<T, CommandFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = LocalSet::new().block_on(&runtime, async {
        let stop = Rc::new(Notify::new());
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            let mut signals = signal(kind)?;
            let stop = stop.clone();
            tokio::task::spawn_local(async move {
                while signals.recv().await.is_some() {
                    stop.notify_one();
                }
            });
        }
        let result = work(&stop).await;
        // What was closed says goodbye.
        tokio::task::yield_now().await;
        Ok::<_, std::io::Error>(result)
    });
    // A disk or a resolver that hangs is not waited for.
    runtime.shutdown_background();
    Ok(result?)
}

/// Who this is, what it shows, and what it asks of its connections.
fn credentials(args: &CredentialArgs) -> Result<(Config, NodeName, LineCredentials, LinkSettings), CommandFailure> {
    forbid_core_dumps()?;
    let config = Config::load(&args.config)?;
    let node = config.local_node(args.node.as_deref())?;
    let credentials = match config.proof(&node)? {
        Proof::Certificates(credentials) => LineCredentials {
            cluster: config.top.cluster.to_string(),
            tls: Some(CredentialStore::new(*credentials)),
            secret: None,
        },
        Proof::Secret(secret) => LineCredentials {
            cluster: config.top.cluster.to_string(),
            tls: None,
            secret: Some(ClusterSecret::new(secret.bytes())),
        },
    };
    let here = config.node(&node).ok_or("the node is not in the configuration")?;
    let overrides = LinkOverrides::load(&here.link_overrides_file())?;
    let settings = overrides.effective(&config.link.settings);
    Ok((config, node, credentials, settings))
}

/// A node's name stands for its address and this test's port.
pub(super) fn target(host: &str, args: &CredentialArgs) -> Result<TestTarget, CommandFailure> {
    let (config, us, credentials, settings) = credentials(args)?;
    // A node's name, with a port or without.
    let (name, port) = match host.rsplit_once(':').map(|(name, port)| (name, port.parse())) {
        Some((name, Ok(port))) => (name, port),
        _ => (host, PORT),
    };
    let named = config.nodes.iter().find(|node| node.name.as_str() == name);
    let (address, peers) = match named {
        Some(node) if node.name == us => {
            return Err(CommandFailure::usage(format!("{name} is this node; name the other end of the line")));
        }
        Some(node) => (SocketAddr::new(node.address.ip(), port).to_string(), vec![node.name.to_string()]),
        None => {
            let others = config.nodes.iter().filter(|node| node.name != us);
            (with_port(host, PORT)?, others.map(|node| node.name.to_string()).collect())
        }
    };
    let ours = settings.socket_options(config.link.timeout);
    Ok(TestTarget { address, peers, credentials, ours, compression: settings.text(LinkKey::named("compression")) })
}

fn timeout(args: &CredentialArgs) -> Result<Duration, CommandFailure> {
    let seconds = args.timeout.0;
    if (TIMEOUT.min.as_secs_f64()..=TIMEOUT.max.as_secs_f64()).contains(&seconds) {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err(CommandFailure::usage(format!("--timeout: {} is out of bounds; use 1s to 10m", report::time(seconds))))
}

fn terms(args: &LinkTestArgs, mode: TestMode, timeout: Duration) -> Result<Terms, CommandFailure> {
    let load = &args.load;
    let direction = match (load.reverse, load.bidir) {
        (true, _) => TestDirection::Reverse,
        (_, true) => TestDirection::Both,
        _ => TestDirection::Forward,
    };
    let terms = Terms {
        mode,
        legacy_hadr: load.legacy.is_some(),
        sizes: match &load.flush_dist {
            Some(file) => distribution(file)?,
            None => vec![(load.flush_size.0, 1)],
        },
        omit_s: args.omit.0,
        time_s: args.time.0,
        count: load.count,
        target_bytes_per_s: load.target_rate.map(|rate| rate.bytes_per_s()),
        connections: load.connections,
        depth: load.depth,
        gap_s: load.gap.0,
        direction,
        sockets: sockets(&args.socket),
        compression: load.compress.clone(),
        compressible_share: load.compressible.0,
        far_disk: match load.remote_disk {
            None => FarDisk::None,
            Some(RemoteDisk::File) => FarDisk::File,
            Some(RemoteDisk::Modelled(rate, overhead)) => {
                FarDisk::Modelled(DiskModel { bytes_per_s: Some(rate.bytes_per_s()), overhead_s: overhead.0 })
            }
        },
        near_disk_takes_time: load.disk.is_some() || load.disk_file.is_some(),
        queue_bytes: load.queue.0,
        interval_s: args.interval.map(|time| time.0),
        probe_s: args.probe_interval.0,
        timeout_s: timeout.as_secs_f64(),
        ..Terms::default()
    };
    terms.check().map_err(CommandFailure::usage)?;
    if let Some((rate, overhead)) = load.disk {
        let disk = DiskModel { bytes_per_s: Some(rate.bytes_per_s()), overhead_s: overhead.0 };
        disk.check(terms.largest_flush()).map_err(|why| CommandFailure::usage(format!("--disk: {why}")))?;
    }
    Ok(terms)
}

fn sockets(args: &SocketArgs) -> SocketTerms {
    SocketTerms {
        send_bytes: args.sndbuf.map(|bytes| bytes.0),
        receive_bytes: args.rcvbuf.map(|bytes| bytes.0),
        nagle: args.nagle,
        congestion: args.congestion.clone(),
        pacing_bytes_per_s: args.pace.map(|rate| rate.bytes_per_s() as u64),
        unsent_bytes: args.unsent.map(|bytes| bytes.0),
        min_rto_s: args.min_rto.map(|time| time.0),
        ..SocketTerms::default()
    }
}

fn distribution(file: &Path) -> Result<Vec<(u64, u64)>, CommandFailure> {
    let name = file.display();
    let wrong = |why: String| CommandFailure::usage(format!("--flush-dist: {name}: {why}"));
    let text = read_bounded(file, DISTRIBUTION_BYTES_MAX).map_err(wrong)?;
    parse_sizes(&text).map_err(wrong)
}

async fn near_disk(load: &LoadArgs, terms: &Terms, stop: &Notify) -> Result<Rc<TestDisk>, TestFailure> {
    let disk = match (&load.disk, &load.disk_file) {
        (Some((rate, overhead)), _) => {
            TestDisk::modelled(plan::model::PlannedDisk { rate: Some(*rate), overhead: *overhead })
        }
        (None, Some(path)) => TestDisk::file(path, terms, stop.notified()).await?,
        (None, None) => TestDisk::None,
    };
    Ok(Rc::new(disk))
}

/// What `link serve` prints: a line when a test begins, what this end saw when it ended.
struct ServePrinter;

impl serve::Events for ServePrinter {
    fn listening(&self, address: SocketAddr) {
        let _ = print(&format!("serving line tests on {address}; Ctrl-C ends it\n"));
    }

    fn refused(&self, from: SocketAddr, why: &str) {
        let _ = writeln!(std::io::stderr(), "farshore: refused {from}: {why}");
    }

    fn began(&self, from: &str, terms: &Terms) {
        let _ = print(&format!("test from {from}: {}\n", report::asked(terms)));
    }

    fn ended(&self, from: &str, terms: &Terms, half: &EndReport, lost: Option<&str>) {
        let _ = print(&report::far_text(terms, half));
        match lost {
            Some(why) => warn(format!("the test from {from} did not come to its end: {why}")),
            None => {
                let _ = print(if half.interrupted { "interrupted\n" } else { "done\n" });
            }
        }
    }
}
