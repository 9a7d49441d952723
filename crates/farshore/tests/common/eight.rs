//! Eight groups between two nodes, one of whose disks can hang, and clients at work on the other seven.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use forgetful::ForgetfulStore;
use host::nbd::{Address, Ask, NbdClient};
use serde_json::Value;

use super::{GROUP, Pair, PairPlan, Side};

const PLAN: PairPlan = PairPlan { volumes: &["data"], volume_bytes: VOLUME_BYTES, ..PairPlan::DEFAULT };
pub const VOLUME_BYTES: u64 = 4 << 20;
pub const PAGE: u64 = 4096;
/// The groups beside the pair's own, in all modes; the last one's disk hangs.
pub const MODES: [(&str, &str); 7] =
    [("a", "async"), ("b", "sync"), ("c", "nearsync"), ("d", "async"), ("e", "sync"), ("f", "async"), (HANGS, "async")];
pub const HANGS: &str = "hangs";
/// What is asked of the disk that hangs: of each kind more than it may hold.
const ASKED: u64 = 40;

/// Eight groups in step; `node`'s disk of the last one is the store. `more`: further text of the configuration.
pub fn eight_groups(node: Side, more: impl FnOnce(&Pair) -> String) -> (ForgetfulStore, Pair) {
    let mut pair = Pair::new(&PLAN);
    fs::create_dir(pair.path("store")).expect("a directory");
    let store = ForgetfulStore::mount(&pair.path("store")).expect("FUSE and root: asked before");
    let mut text = fs::read_to_string(pair.config()).expect("there");
    for (group, mode) in MODES {
        text += &format!("[groups.{group}]\nprimary = \"near\"\nsecondary = \"far\"\nmode = \"{mode}\"\n");
        text += &format!("journal = \"16MiB\"\nwindow = \"4MiB\"\nqueue.disk = 0\n[groups.{group}.volumes.data]\n");
        for here in Side::BOTH {
            let path = volume(&pair, here, group, node);
            fs::File::create(&path).and_then(|file| file.set_len(VOLUME_BYTES)).expect("a volume");
            text += &format!("{} = {path:?}\n", here.name());
        }
    }
    text += &more(&pair);
    fs::write(pair.config(), text).expect("written");
    pair.first_sync();
    for (group, _) in MODES {
        pair.done(Side::Near, &["sync", group, "--full", "--wait"]);
        pair.done(Side::Near, &["wait", group, "--for", "replicating", "--timeout", "90s"]);
    }
    (store, pair)
}

pub fn volume(pair: &Pair, here: Side, group: &str, hangs_on: Side) -> PathBuf {
    let location = if group == HANGS && here == hangs_on { "store".to_owned() } else { ".".to_owned() };
    pair.path(&location).join(format!("{}-{group}", here.name()))
}

pub async fn client(pair: &Pair, group: &str) -> NbdClient {
    let address = Address::Unix(pair.path("near/state/nbd.sock"));
    let export = format!("{group}/data");
    let connected = tokio::time::timeout(Duration::from_secs(60), NbdClient::connect(&address, &export)).await;
    connected.unwrap_or_else(|_| panic!("{group} takes no client")).expect("an export")
}

/// How long each request took, of clients that read, write and flush in turns at each group but one.
pub struct Latencies(pub Vec<Duration>);

impl Latencies {
    pub fn print(&self, when: &str) {
        let at = |share| self.quantile(share);
        println!("{when}: {} requests, median {:?}, p99 {:?}, p99.9 {:?}", self.0.len(), at(500), at(990), at(999));
    }

    /// So many of a thousand took no longer.
    pub fn quantile(&self, share: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted[(sorted.len() - 1) * share / 1000]
    }
}

pub async fn others_work(pair: &Pair, length: Duration) -> Latencies {
    let groups = [GROUP].into_iter().chain(MODES.iter().map(|(group, _)| *group)).filter(|group| *group != HANGS);
    let mut tasks = Vec::new();
    for group in groups {
        let mut client = client(pair, group).await;
        tasks.push(tokio::task::spawn_local(async move {
            let (started, mut took) = (Instant::now(), Vec::new());
            for round in 0.. {
                let offset = round % (VOLUME_BYTES / PAGE) * PAGE;
                let data = [round as u8; PAGE as usize];
                let flush = (round % 8 == 0).then_some(Ask::Flush);
                let asks = [
                    Ask::Write { offset, data: &data, fua: round % 16 == 1 },
                    Ask::Read { offset, length: PAGE as u32 },
                ];
                for ask in asks.into_iter().chain(flush) {
                    let asked = Instant::now();
                    let answer = tokio::time::timeout(Duration::from_secs(60), client.call(ask)).await;
                    let bytes = answer.unwrap_or_else(|_| panic!("{group} is not served")).expect("a connection");
                    let bytes = bytes.expect("a request that succeeds");
                    assert!(bytes.iter().all(|byte| *byte == data[0]), "{group}: other bytes");
                    took.push(asked.elapsed());
                }
                if started.elapsed() > length {
                    break;
                }
            }
            took
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.expect("a client that works"));
    }
    Latencies(all)
}

/// Reads, writes and flushes, the first one alone. They are answered some day.
pub async fn ask_what_hangs(client: &mut NbdClient, with_reads: bool) -> u64 {
    let data = [0xaa; PAGE as usize];
    let mut cookies = 0..;
    let mut next = || cookies.next().expect("endless");
    for page in 0..ASKED {
        if with_reads {
            client.queue(next(), Ask::Read { offset: page * PAGE, length: PAGE as u32 });
        }
        client.queue(next(), Ask::Write { offset: page * PAGE, data: &data, fua: page % 3 == 0 });
        if page % 8 == 0 {
            client.queue(next(), Ask::Flush);
        }
        // Sent, and sometimes not with the next one.
        let pause = Duration::from_millis(if page < 3 { 30 } else { 1 });
        let _ = tokio::time::timeout(pause, client.next()).await.map(|_| panic!("the disk does not hang"));
    }
    next()
}

pub fn status_of(pair: &Pair, node: Side) -> Vec<Value> {
    let output = pair.run(node, &["status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).expect("status is JSON");
    status["groups"].as_array().expect("a list").clone()
}

pub fn run<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, test)
}
