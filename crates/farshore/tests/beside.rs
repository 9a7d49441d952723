//! Who may disturb the clients of other groups, and how much: beside a device that hangs, clients that stall, a thousand connects and a
//! peer that is authenticated and lies. Shown are latencies of seven groups' clients before and meanwhile, by turns, and the daemon's
//! memory.
//!
//! `cargo xtask bench beside` runs it for long and prints a table: `FARSHORE_ROUNDS` turns (1) of `FARSHORE_SECONDS` (1). Only then it
//! fails by the ratio of the two; else it holds bounds that a busy machine keeps as well.

use std::cell::Cell;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::eight::{HANGS, PAGE, VOLUME_BYTES, ask_what_hangs, client, eight_groups, others_work, run};
use crate::common::{DEADLINE, Pair, Side, must_skip_stores};
use engine::identity::{Identity, Role};
use engine::wire::{FrameHeader, FrameKind, GroupHello};
use engine::{Generation, GroupId, Incarnation, SessionId};
use forgetful::ForgetfulStore;
use host::link::auth::{Handshake, PREFIX_BYTES};
use host::link::{Attempt, ClusterSecret, Ourselves, Versions};
use host::nbd::proto::{self, NbdCommand, NbdRequest};
use host::nbd::{Ask, NbdClient};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use settings::Config;

/// What nobody may have to wait for, on a machine that does something else too.
const LONGEST: Duration = Duration::from_secs(5);
/// So many times as long as before the 99th percentile of the others may be, where rounds are asked for.
const RATIO_MAX: f64 = 2.0;
const MIB: u32 = 1 << 20;
const HOSTILE: &str = "hostile";
/// The group of the hostile peer.
const HOSTILE_GROUP: &str = "z";

fn setting(name: &str, default: u32) -> u32 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// A node that no daemon runs for, and a group it shares with `near`.
fn hostile_node(pair: &Pair) -> String {
    let address = pair.address(Side::Far);
    let volume = pair.path("lied");
    fs::File::create(&volume).and_then(|file| file.set_len(VOLUME_BYTES)).expect("a volume");
    format!(
        "[nodes.{HOSTILE}]\naddress = \"{}:1\"\nstate = {:?}\n[groups.{HOSTILE_GROUP}]\nprimary = \"near\"\nsecondary = \"{HOSTILE}\"\n\
         journal = \"16MiB\"\nwindow = \"4MiB\"\nqueue.disk = 0\n[groups.{HOSTILE_GROUP}.volumes.data]\nnear = {volume:?}\n{HOSTILE} = {:?}\n",
        address.ip(),
        pair.path("hostile-state"),
        pair.path("hostile-volume"),
    )
}

/// What happens beside the others' work.
trait Disturbance {
    fn name(&self) -> &'static str;
    async fn begin(&mut self, pair: &Pair);
    async fn end(&mut self);
}

struct Hanging {
    store: ForgetfulStore,
    stuck: Option<(NbdClient, u64)>,
}

impl Disturbance for Hanging {
    fn name(&self) -> &'static str {
        "one hanging device among eight groups"
    }

    async fn begin(&mut self, pair: &Pair) {
        let mut stuck = client(pair, HANGS).await;
        for page in 0..200 {
            stuck.call(Ask::Read { offset: page * PAGE, length: PAGE as u32 }).await.expect("served").expect("read");
        }
        self.store.hang();
        let asked = ask_what_hangs(&mut stuck, true).await;
        self.stuck = Some((stuck, asked));
    }

    async fn end(&mut self) {
        self.store.answer_again();
        let (mut stuck, asked) = self.stuck.take().expect("it began");
        for _ in 0..asked {
            stuck.next().await.expect("a connection").result.expect("an answer, late");
        }
    }
}

fn nbd_socket(pair: &Pair) -> PathBuf {
    pair.path("near/state/nbd.sock")
}

#[derive(Default)]
struct Stalled(Vec<UnixStream>);

/// A client by hand at an export.
fn enter(pair: &Pair) -> UnixStream {
    let mut stream = UnixStream::connect(nbd_socket(pair)).expect("it listens");
    let export = format!("{HANGS}/data");
    let mut bytes = 3_u32.to_be_bytes().to_vec();
    let length = u32::try_from(export.len()).expect("short").to_be_bytes();
    proto::put_option(&mut bytes, proto::option::GO, &[&length, export.as_bytes(), &[0, 0]].concat());
    stream.write_all(&bytes).expect("it reads");
    stream.read_exact(&mut [0; 18]).expect("it greets");
    loop {
        let mut header = [0; proto::OPTION_REPLY_BYTES];
        stream.read_exact(&mut header).expect("it answers");
        let header = proto::parse_option_reply(&header).expect("an answer");
        stream.read_exact(&mut vec![0; header.length as usize]).expect("it answers");
        if header.reply == proto::reply::ACK {
            return stream;
        }
    }
}

impl Disturbance for Stalled {
    fn name(&self) -> &'static str {
        "forty stalled NBD clients"
    }

    async fn begin(&mut self, pair: &Pair) {
        let request = |command, handle, length| {
            proto::encode_request(&NbdRequest { flags: 0, command, handle, offset: 0, length }).to_vec()
        };
        for _ in 0..20 {
            let mut writer = enter(pair);
            writer.write_all(&[request(NbdCommand::Write, 1, 4 * MIB), vec![7; 1000]].concat()).expect("it reads");
            let mut reader = enter(pair);
            let asks: Vec<u8> = (0..16).flat_map(|handle| request(NbdCommand::Read, handle, MIB)).collect();
            reader.write_all(&asks).expect("it reads");
            self.0.extend([writer, reader]);
        }
    }

    async fn end(&mut self) {
        self.0.clear();
    }
}

/// Something done over and over on a thread of its own.
struct RepeatedTask {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl RepeatedTask {
    fn start(mut work: impl FnMut() + Send + 'static) -> RepeatedTask {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        let thread = std::thread::spawn(move || {
            let mut times = 0;
            while !ends.load(Ordering::Relaxed) {
                work();
                times += 1;
            }
            times
        });
        RepeatedTask { is_over, thread }
    }

    fn end(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("it ends")
    }
}

#[derive(Default)]
struct Connects(Option<RepeatedTask>);

impl Disturbance for Connects {
    fn name(&self) -> &'static str {
        "a thousand connects at once, each second"
    }

    async fn begin(&mut self, pair: &Pair) {
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("up to the hard limit");
        let socket = nbd_socket(pair);
        self.0 = Some(RepeatedTask::start(move || {
            let taken: Vec<_> = (0..1000).filter_map(|_| UnixStream::connect(&socket).ok()).collect();
            assert_eq!(taken.len(), 1000, "the rest was turned away");
            std::thread::sleep(Duration::from_millis(500));
            drop(taken);
            std::thread::sleep(Duration::from_millis(500));
        }));
    }

    async fn end(&mut self) {
        self.0.take().expect("it began").end();
    }
}

#[derive(Default)]
struct HostilePeerLoad(Option<RepeatedTask>, Cell<u64>);

impl HostilePeerLoad {
    /// A dialer by hand that holds the secret, until it is parted with.
    fn send_frame(ours: Rc<Ourselves>, near: std::net::SocketAddr, number: u64, group: GroupId) -> std::io::Result<()> {
        let mut stream = TcpStream::connect(near)?;
        stream.set_write_timeout(Some(Duration::from_millis(500)))?;
        let (mut handshake, hello) = Handshake::dial(ours, "near", [3; 32], Attempt { run: 1, number });
        stream.write_all(&hello)?;
        let session = loop {
            let mut prefix = [0; PREFIX_BYTES];
            stream.read_exact(&mut prefix)?;
            let mut body = vec![0; handshake.body_bytes(&prefix).expect("a message")];
            stream.read_exact(&mut body)?;
            let step = handshake.receive(&prefix, &body);
            stream.write_all(&step.send)?;
            if let Some(outcome) = step.outcome {
                break outcome.unwrap_or_else(|why| panic!("it is not believed: {why}")).session;
            }
        };
        // Answers that nobody takes: until it is shown the door.
        let many = [
            hello_of(session, group),
            frame(FrameHeader::new(FrameKind::Heartbeat, session, group), &[1; 8]).repeat(200),
        ];
        let many = many.concat();
        loop {
            stream.write_all(&many)?;
        }
    }
}

fn frame(header: FrameHeader, payload: &[u8]) -> Vec<u8> {
    [&header.sealed(payload).encode()[..], payload].concat()
}

fn hello_of(session: SessionId, group: GroupId) -> Vec<u8> {
    let identity = Identity {
        role: Role::Primary,
        generation: Generation { number: 3, tag: 33 },
        incarnation: Incarnation(7),
        ..Identity::default()
    };
    let says = GroupHello { identity, volume_bytes: vec![VOLUME_BYTES], ..GroupHello::default() };
    frame(FrameHeader::new(FrameKind::GroupHello, session, group), &says.encode())
}

impl Disturbance for HostilePeerLoad {
    fn name(&self) -> &'static str {
        "an authenticated peer that lies"
    }

    async fn begin(&mut self, pair: &Pair) {
        let config = Config::load(&pair.config()).expect("a configuration");
        let definitions = config.definitions();
        let group = config.group_id(config.group(HOSTILE_GROUP).expect("it is there"));
        let near = pair.address(Side::Near);
        let mut number = self.1.get();
        self.1.set(number + (1 << 20));
        self.0 = Some(RepeatedTask::start(move || {
            number += 1;
            let ours = Ourselves {
                cluster: "test".into(),
                node: HOSTILE.into(),
                peers: vec!["near".into()],
                secret: ClusterSecret::new(&[b's'; 48]),
                definitions: definitions.clone(),
                versions: Versions::OURS,
            };
            // Refused after a while, or timed out: begun anew.
            let _ = HostilePeerLoad::send_frame(Rc::new(ours), near, number, group);
        }));
    }

    async fn end(&mut self) {
        self.0.take().expect("it began").end();
    }
}

/// The daemon's memory in MiB, as the kernel counts it; the most since this was asked last.
fn resident_mib(pair: &Pair) -> u64 {
    let process = PathBuf::from(format!("/proc/{}", pair.pid(Side::Near)));
    let status = fs::read_to_string(process.join("status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("the kernel counts it");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).expect("a number");
    // Where it is not allowed the most since the start is shown.
    let _ = fs::write(process.join("clear_refs"), "5");
    kib >> 10
}

fn descriptors(pair: &Pair) -> usize {
    fs::read_dir(format!("/proc/{}/fd", pair.pid(Side::Near))).expect("it runs").count()
}

/// What the trouble held is free again; else the next turn's time alone would have its memory, and its end, in it.
async fn all_has_come_back(pair: &Pair, name: &str, held: usize) {
    let ended = Instant::now();
    while descriptors(pair) > held {
        assert!(ended.elapsed() < DEADLINE, "{name}: {} descriptors, {held} before", descriptors(pair));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn median<T: Copy>(mut values: Vec<T>, order: impl Fn(&T, &T) -> std::cmp::Ordering) -> T {
    values.sort_by(order);
    values[values.len() / 2]
}

/// Before and meanwhile, by turns. With `FARSHORE_ONLY` only what has this in its name.
/// How many times as long the others waited.
async fn measure(pair: &Pair, trouble: &mut impl Disturbance) -> f64 {
    if std::env::var("FARSHORE_ONLY").is_ok_and(|only| !trouble.name().contains(&only)) {
        return 1.0;
    }
    let (rounds, seconds) = (setting("FARSHORE_ROUNDS", 1), setting("FARSHORE_SECONDS", 1));
    let length = Duration::from_secs(u64::from(seconds));
    let (mut before, mut beside, mut resident) = (Vec::new(), Vec::new(), [0; 2]);
    let held = descriptors(pair);
    for _ in 0..rounds {
        resident_mib(pair);
        let alone = others_work(pair, length).await;
        resident[0] = resident[0].max(resident_mib(pair));
        trouble.begin(pair).await;
        let troubled = others_work(pair, length).await;
        resident[1] = resident[1].max(resident_mib(pair));
        trouble.end().await;
        all_has_come_back(pair, trouble.name(), held).await;
        assert!(troubled.quantile(1000) < LONGEST, "{}: {:?}", trouble.name(), troubled.quantile(1000));
        before.push(alone.quantile(990));
        beside.push(troubled.quantile(990));
    }
    let ratios = before.iter().zip(&beside).map(|(before, beside)| beside.as_secs_f64() / before.as_secs_f64());
    let ratio = median(ratios.collect(), f64::total_cmp);
    let (before, beside) = (median(before, Ord::cmp), median(beside, Ord::cmp));
    let status = pair.run(Side::Near, &["status", "--json"]).stdout;
    let status: serde_json::Value = serde_json::from_slice(&status).expect("status is JSON");
    let limit_mib = status["shared"]["memory_limit_bytes"].as_u64().expect("it is told") >> 20;
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    // A row for `cargo xtask bench beside`.
    let row = serde_json::json!({
        "name": trouble.name(),
        "p99_alone_ms": milliseconds(before),
        "p99_beside_ms": milliseconds(beside),
        "ratio": ratio,
        "ratio_max": RATIO_MAX,
        "met": ratio <= RATIO_MAX,
        "memory_alone_mib": resident[0],
        "memory_beside_mib": resident[1],
        "memory_limit_mib": limit_mib,
    });
    println!("BESIDE {row}");
    assert!(resident[1] <= limit_mib, "{} MiB, {limit_mib} are allowed", resident[1]);
    ratio
}

#[test]
fn nobody_disturbs_the_clients_of_other_groups() {
    if must_skip_stores("nobody_disturbs_the_clients_of_other_groups") {
        return;
    }
    let (store, pair) = eight_groups(Side::Near, hostile_node);
    let ratios = run(async {
        [
            measure(&pair, &mut Hanging { store, stuck: None }).await,
            measure(&pair, &mut Stalled::default()).await,
            measure(&pair, &mut Connects::default()).await,
            measure(&pair, &mut HostilePeerLoad::default()).await,
        ]
    });
    println!(
        "{}",
        pair.log(Side::Near).lines().filter(|line| line.contains(HOSTILE)).take(3).collect::<Vec<_>>().join("\n")
    );
    let is_measured = std::env::var_os("FARSHORE_ROUNDS").is_some();
    assert!(!is_measured || ratios.iter().all(|ratio| *ratio <= RATIO_MAX), "{RATIO_MAX} is the most: {ratios:.2?}");
}
