//! One disk of eight answers nothing, on either node: the other groups are served and replicate, the nodes hear each other,
//! people get their answers; and when it answers again nothing was lost.

mod common;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::{GROUP, Node, Pair, Plan, must_skip_stores};
use forgetful::Store;
use host::nbd::{Address, Ask, Client};
use serde_json::Value;

const PLAN: Plan = Plan { volumes: &["data"], volume_bytes: VOLUME_BYTES, ..Plan::DEFAULT };
const VOLUME_BYTES: u64 = 4 << 20;
const PAGE: u64 = 4096;
/// The groups beside the pair's own, in all modes; the last one's disk hangs.
const MODES: [(&str, &str); 7] =
    [("a", "async"), ("b", "sync"), ("c", "nearsync"), ("d", "async"), ("e", "sync"), ("f", "async"), (HANGS, "async")];
const HANGS: &str = "hangs";
/// Longer than a link without a sign of life lasts, and than it takes until a silence is told.
const HANGING: Duration = Duration::from_secs(20);
/// What is asked of the disk that hangs: of each kind more than it may hold.
const ASKED: u64 = 40;

/// Eight groups in step; `node`'s disk of the last one is the store.
fn eight_groups(node: Node) -> (Store, Pair) {
    let mut pair = Pair::new(&PLAN);
    fs::create_dir(pair.path("store")).expect("a directory");
    let store = Store::mount(&pair.path("store")).expect("FUSE and root: asked before");
    let mut text = fs::read_to_string(pair.config()).expect("there");
    for (group, mode) in MODES {
        text += &format!("[groups.{group}]\nprimary = \"near\"\nsecondary = \"far\"\nmode = \"{mode}\"\n");
        text += &format!("journal = \"16MiB\"\nwindow = \"4MiB\"\n[groups.{group}.volumes.data]\n");
        for here in Node::BOTH {
            let path = volume(&pair, here, group, node);
            fs::File::create(&path).and_then(|file| file.set_len(VOLUME_BYTES)).expect("a volume");
            text += &format!("{} = {path:?}\n", here.name());
        }
    }
    fs::write(pair.config(), text).expect("written");
    pair.first_sync();
    for (group, _) in MODES {
        pair.done(Node::Near, &["sync", group, "--full", "--wait"]);
        pair.done(Node::Near, &["wait", group, "--for", "replicating", "--timeout", "90s"]);
    }
    (store, pair)
}

fn volume(pair: &Pair, here: Node, group: &str, hangs_on: Node) -> PathBuf {
    let place = if group == HANGS && here == hangs_on { "store".to_owned() } else { ".".to_owned() };
    pair.path(&place).join(format!("{}-{group}", here.name()))
}

async fn client(pair: &Pair, group: &str) -> Client {
    let address = Address::Unix(pair.path("near/state/nbd.sock"));
    let export = format!("{group}/data");
    let connected = tokio::time::timeout(Duration::from_secs(60), Client::connect(&address, &export)).await;
    connected.unwrap_or_else(|_| panic!("{group} takes no client")).expect("an export")
}

/// How long each request took, of clients that read, write and flush in turns at each group but one.
struct Latencies(Vec<Duration>);

impl Latencies {
    fn print(&self, when: &str) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = |share: usize| sorted[(sorted.len() - 1) * share / 1000];
        println!("{when}: {} requests, median {:?}, p99 {:?}, p99.9 {:?}", sorted.len(), at(500), at(990), at(999));
        *sorted.last().expect("there were some")
    }
}

async fn others_work(pair: &Pair, length: Duration) -> Latencies {
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
async fn ask_what_hangs(client: &mut Client, with_reads: bool) -> u64 {
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

fn status_of(pair: &Pair, node: Node) -> Vec<Value> {
    let output = pair.run(node, &["status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).expect("status is JSON");
    status["groups"].as_array().expect("a list").clone()
}

/// How many connections between the nodes have ended so far.
fn links_lost(pair: &Pair) -> usize {
    Node::BOTH.iter().map(|node| pair.log(*node).matches("a connection ended").count()).sum()
}

/// Every group but the one is as it should be, on both nodes, and no link was lost since.
#[track_caller]
fn others_are_in_step(pair: &Pair, lost_before: usize) {
    for node in Node::BOTH {
        for group in status_of(pair, node).iter().filter(|group| group["name"] != HANGS) {
            assert_eq!(group["state"], "replicating", "{}: {group}\n{}", node.name(), pair.log(node));
        }
    }
    assert_eq!(links_lost(pair), lost_before, "{}\n{}", pair.log(Node::Near), pair.log(Node::Far));
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

#[test]
fn a_disk_of_the_primary_that_hangs_stands_still_alone() {
    let test = "a_disk_of_the_primary_that_hangs_stands_still_alone";
    if must_skip_stores(test) {
        return;
    }
    let (store, mut pair) = eight_groups(Node::Near);
    run(async {
        others_work(&pair, Duration::from_secs(3)).await.print("before");
        let mut stuck = client(&pair, HANGS).await;
        // It was quick until this moment.
        for page in 0..200 {
            stuck.call(Ask::Read { offset: page * PAGE, length: PAGE as u32 }).await.expect("served").expect("read");
        }
        let lost_before = links_lost(&pair);
        store.hang();
        let asked = ask_what_hangs(&mut stuck, true).await;
        others_work(&pair, HANGING).await.print("beside a disk that hangs");
        others_are_in_step(&pair, lost_before);
        let (_, text) = pair.told(Node::Near, &["status", HANGS]);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("has answered nothing for"), "{text}");
        assert!(pair.log(Node::Near).contains("near-hangs has answered nothing for"), "{}", pair.log(Node::Near));
        store.answer_again();
        for _ in 0..asked {
            stuck.next().await.expect("a connection").result.expect("an answer, late");
        }
        stuck.disconnect().await.expect("a connection");
    });
    pair.done(Node::Near, &["wait", HANGS, "--for", "replicating", "--timeout", "90s"]);
    pair.until("its end is told", |pair| pair.log(Node::Near).contains("near-hangs answers again"));
    ends_equal(pair, Node::Near);
}

/// The daemon opened one device after the other, so a restart beside a disk that answers nothing kept the whole node down.
#[test]
fn a_start_beside_a_disk_that_hangs_serves_the_other_groups() {
    let test = "a_start_beside_a_disk_that_hangs_serves_the_other_groups";
    if must_skip_stores(test) {
        return;
    }
    let (store, mut pair) = eight_groups(Node::Near);
    assert!(pair.stop(Node::Near).success());
    store.hang();
    pair.serve(Node::Near);
    run(async {
        _ = others_work(&pair, Duration::from_millis(200)).await.print("after a start beside a disk that hangs")
    });
    let status = status_of(&pair, Node::Near);
    let stuck = status.iter().find(|group| group["name"] == HANGS).expect("it is told");
    let reason = stuck["reason"].to_string();
    assert!(stuck["state"] == "failed" && reason.contains("near-hangs has answered nothing for 10 s"), "{stuck}");
    let (code, said) = pair.told(Node::Near, &["config", "check"]);
    assert!(code != 0 && said.contains("near-hangs has answered nothing for 10 s"), "{code}: {said}");
    store.answer_again();
    assert!(pair.stop(Node::Near).success());
    pair.serve(Node::Near);
    pair.done(Node::Near, &["wait", HANGS, "--for", "replicating", "--timeout", "90s"]);
    ends_equal(pair, Node::Near);
}

#[test]
fn a_disk_of_the_secondary_that_hangs_stands_still_alone() {
    let test = "a_disk_of_the_secondary_that_hangs_stands_still_alone";
    if must_skip_stores(test) {
        return;
    }
    let (store, pair) = eight_groups(Node::Far);
    run(async {
        others_work(&pair, Duration::from_secs(3)).await.print("before");
        let lost_before = links_lost(&pair);
        store.hang();
        let mut stuck = client(&pair, HANGS).await;
        let data = vec![0xaa; PAGE as usize];
        for page in 0..1000 {
            let offset = page % (VOLUME_BYTES / PAGE) * PAGE;
            stuck.call(Ask::Write { offset, data: &data, fua: false }).await.expect("served").expect("written");
        }
        others_work(&pair, HANGING).await.print("beside a disk that hangs");
        others_are_in_step(&pair, lost_before);
        assert!(pair.log(Node::Far).contains("far-hangs has answered nothing for"), "{}", pair.log(Node::Far));
        store.answer_again();
        stuck.disconnect().await.expect("a connection");
    });
    pair.done(Node::Near, &["wait", HANGS, "--for", "replicating", "--timeout", "90s"]);
    ends_equal(pair, Node::Far);
}

/// What hung holds what its peer holds, once all is told.
fn ends_equal(mut pair: Pair, hung_on: Node) {
    pair.until("nothing waits", |pair| {
        status_of(pair, Node::Near).iter().all(|group| group["state"] == "replicating" && group["queue"]["items"] == 0)
    });
    pair.stop_both();
    for (group, _) in MODES {
        let content = Node::BOTH.map(|node| fs::read(volume(&pair, node, group, hung_on)).expect("a volume"));
        assert!(content[0] == content[1], "{group} differs");
    }
}
