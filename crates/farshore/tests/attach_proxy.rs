//! What stands between the kernel's NBD client and the daemon, without a kernel: requests are answered once, and right, however often
//! the daemon is killed or stopped in between.
// proves: P4, P8

use crate::common::{GROUP, Pair, PairPlan, Side, TestRandom};
use farshore::attach::same_term;
use host::nbd::proto::{self, NbdCommand, NbdRequest};
use host::nbd::{Address, ContentCheck, NbdClient, NbdProxy, ProxyEnd, ProxyEvent};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 64;

/// The proxy, on a thread of its own.
struct ProxyThread {
    kernel: UnixStream,
    events: Receiver<String>,
    fail: Sender<()>,
    /// No look at the daemon ends meanwhile.
    pause: Arc<AtomicBool>,
    thread: JoinHandle<ProxyEnd>,
}

/// Ends after `pause` is over.
fn after(pause: Arc<AtomicBool>, check: ContentCheck) -> ContentCheck {
    let check = Rc::new(check);
    Box::new(move || {
        let (pause, check) = (pause.clone(), check.clone());
        Box::pin(async move {
            while pause.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            check().await
        })
    })
}

fn start(pair: &Pair, limit: Duration) -> ProxyThread {
    let address = Address::Unix(pair.path("near/state/nbd.sock"));
    let (kernel, ours) = UnixStream::pair().expect("sockets");
    let (told, events) = mpsc::channel();
    let (fail, failed) = mpsc::channel();
    let pause = Arc::new(AtomicBool::new(false));
    let (paused, control) = (pause.clone(), pair.path("near/state/control.sock"));
    let term = pair.status(Side::Near)["volumes"][0]["term"].as_str().expect("a term").to_owned();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async move {
            let export = format!("{GROUP}/data");
            let client = NbdClient::connect(&address, &export).await.expect("the export is open");
            let tell = move |event: ProxyEvent| _ = told.send(format!("{event:?}"));
            let check = after(paused, same_term(control, (GROUP.to_owned(), "data".to_owned()), term));
            let proxy = NbdProxy::new(address, export, limit, check, tell);
            ours.set_nonblocking(true).expect("a socket");
            let ours = tokio::net::UnixStream::from_std(ours).expect("a socket");
            let failing = proxy.clone();
            tokio::task::spawn_local(async move {
                while failed.try_recv().is_err() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                failing.fail();
            });
            proxy.serve(ours, Some(client)).await
        })
    };
    ProxyThread { kernel, events, fail, pause, thread: thread::spawn(run) }
}

/// The kernel's half of the conversation: some requests in flight, none beside another on one block.
struct TestKernel {
    socket: UnixStream,
    next: u64,
    /// By handle: the block, and for a write its byte.
    in_flight: BTreeMap<u64, (u64, Option<u8>)>,
    content: Vec<u8>,
    longest: Duration,
}

impl TestKernel {
    fn new(socket: UnixStream) -> TestKernel {
        let content = vec![0; BLOCKS as usize];
        TestKernel { socket, next: 1, in_flight: BTreeMap::new(), content, longest: Duration::ZERO }
    }

    fn ask(&mut self, command: NbdCommand, block: u64, byte: Option<u8>) -> u64 {
        let handle = self.next;
        self.next += 1;
        let length = if command == NbdCommand::Flush { 0 } else { BLOCK as u32 };
        let request = NbdRequest { flags: 0, command, handle, offset: block * BLOCK as u64, length };
        let mut bytes = proto::encode_request(&request).to_vec();
        bytes.extend(byte.into_iter().flat_map(|byte| [byte; BLOCK]));
        self.socket.write_all(&bytes).expect("the proxy reads");
        self.in_flight.insert(handle, (block, byte));
        handle
    }

    /// The next answer: what was asked, and whether it was done.
    fn answer(&mut self) -> bool {
        let mut head = [0; proto::SIMPLE_REPLY_BYTES];
        let asked = Instant::now();
        self.socket.read_exact(&mut head).expect("the proxy answers");
        self.longest = self.longest.max(asked.elapsed());
        let (handle, error) = proto::parse_simple_reply(&head).expect("an answer");
        let (block, byte) = self.in_flight.remove(&handle).expect("it is answered once");
        if error.is_some() {
            return false;
        }
        match byte {
            Some(byte) => self.content[block as usize] = byte,
            None if block < BLOCKS => {
                let mut data = [0; BLOCK];
                self.socket.read_exact(&mut data).expect("the bytes");
                assert!(data.iter().all(|found| *found == self.content[block as usize]), "block {block}");
            }
            None => {}
        }
        true
    }

    fn load(&mut self, until: &AtomicBool) {
        let mut random = TestRandom::new(7);
        while !until.load(Ordering::Relaxed) || !self.in_flight.is_empty() {
            while self.in_flight.len() < 8 && !until.load(Ordering::Relaxed) {
                let block = random.below(BLOCKS);
                if self.in_flight.values().any(|(taken, _)| *taken == block) {
                    continue;
                }
                match random.below(8) {
                    0 => self.ask(NbdCommand::Flush, BLOCKS, None),
                    1..4 => self.ask(NbdCommand::Read, block, None),
                    _ => self.ask(NbdCommand::Write, block, Some(random.below(256) as u8)),
                };
            }
            if !self.in_flight.is_empty() {
                assert!(self.answer(), "a request failed");
            }
        }
    }
}

#[test]
fn a_daemon_that_is_killed_or_stopped_costs_no_request() {
    let mut pair = Pair::replicating(&PairPlan { volumes: &["data"], ..PairPlan::DEFAULT });
    let proxy = start(&pair, Duration::from_secs(300));
    let (end, kernel) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(TestKernel::new(proxy.kernel))));
    let (until, loaded) = (end.clone(), kernel.clone());
    let load = thread::spawn(move || loaded.lock().expect("alone").load(&until));
    for round in 0..6 {
        thread::sleep(Duration::from_millis(300));
        match round % 2 {
            0 => pair.kill(Side::Near),
            _ => assert!(pair.stop(Side::Near).success()),
        }
        pair.serve(Side::Near);
    }
    thread::sleep(Duration::from_millis(300));
    end.store(true, Ordering::Relaxed);
    load.join().expect("no request failed, and each read what was written");
    let kernel = Arc::into_inner(kernel).expect("alone").into_inner().expect("whole");
    println!("longest wait {:?}, {} requests", kernel.longest, kernel.next - 1);
    let events: Vec<String> = proxy.events.try_iter().collect();
    assert!(events.iter().filter(|event| event.starts_with("Back")).count() >= 6, "{events:?}");
    let mut goodbye = kernel.socket;
    let request = NbdRequest { flags: 0, command: NbdCommand::Disconnect, handle: 0, offset: 0, length: 0 };
    goodbye.write_all(&proto::encode_request(&request)).expect("the proxy reads");
    assert_eq!(proxy.thread.join().expect("it ends"), ProxyEnd::Disconnected);
    pair.wait_for(Side::Near, "replicating");
    pair.stop_both();
    for node in Side::BOTH {
        assert_eq!(pair.content(node, "data")[..BLOCKS as usize * BLOCK], image(&kernel.content), "{node:?}");
    }
}

fn image(content: &[u8]) -> Vec<u8> {
    content.iter().flat_map(|byte| [*byte; BLOCK]).collect()
}

#[test]
fn a_daemon_that_stays_away_costs_errors_until_it_is_back() {
    let mut pair = Pair::replicating(&PairPlan { volumes: &["data"], ..PairPlan::DEFAULT });
    let proxy = start(&pair, Duration::from_millis(300));
    let mut kernel = TestKernel::new(proxy.kernel);
    kernel.ask(NbdCommand::Write, 1, Some(1));
    assert!(kernel.answer());
    pair.kill(Side::Near);
    kernel.ask(NbdCommand::Write, 2, Some(2));
    assert!(!kernel.answer(), "it was waited for, and fails");
    kernel.ask(NbdCommand::Read, 1, None);
    assert!(!kernel.answer(), "the next fails at once");
    pair.serve(Side::Near);
    pair.until("the daemon is back", |_| proxy.events.try_iter().any(|event| event.starts_with("Back")));
    kernel.ask(NbdCommand::Write, 2, Some(3));
    assert!(kernel.answer());
    proxy.fail.send(()).expect("it runs");
    pair.until("all fails", |_| {
        kernel.ask(NbdCommand::Read, 2, None);
        !kernel.answer()
    });
    drop(kernel);
    assert_eq!(proxy.thread.join().expect("it ends"), ProxyEnd::Closed);
}

/// The node was primary when the requests were asked and is primary again: what was kept belongs to the content of before.
#[test]
fn what_waited_while_the_node_changed_sides_twice_is_not_written() {
    let mut pair = Pair::replicating(&PairPlan { volumes: &["data"], ..PairPlan::DEFAULT });
    let proxy = start(&pair, Duration::from_secs(300));
    let mut kernel = TestKernel::new(proxy.kernel);
    kernel.ask(NbdCommand::Write, 1, Some(1));
    assert!(kernel.answer());
    pair.kill(Side::Near);
    kernel.ask(NbdCommand::Write, 1, Some(2));
    pair.until("the write waits", |_| proxy.events.try_iter().any(|event| event.starts_with("Lost")));
    // As if the helper had not been given the processor all the while.
    proxy.pause.store(true, Ordering::SeqCst);
    pair.serve(Side::Near);
    pair.wait_for(Side::Near, "replicating");
    for (from, to) in [(Side::Near, Side::Far), (Side::Far, Side::Near)] {
        assert!(pair.run(from, &["demote", GROUP, "--close-clients"]).status.success());
        assert!(pair.run(to, &["promote", GROUP]).status.success());
    }
    proxy.pause.store(false, Ordering::SeqCst);
    assert!(!kernel.answer(), "it fails");
    kernel.ask(NbdCommand::Read, 1, None);
    assert!(!kernel.answer(), "and so does all that follows");
    assert!(proxy.events.try_iter().any(|event| event.starts_with("Over") && event.contains("became primary again")));
    drop(kernel);
    assert_eq!(proxy.thread.join().expect("it ends"), ProxyEnd::Closed);
    pair.stop_both();
    for node in Side::BOTH {
        assert_eq!(pair.content(node, "data")[BLOCK..2 * BLOCK], [1; BLOCK], "{node:?}");
    }
}

// proves: P7
/// The volume leaves, and another one comes under its name, while a write is kept for it: it is not written there.
#[test]
fn what_waited_while_another_volume_came_under_the_name_is_not_written() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    let proxy = start(&pair, Duration::from_secs(300));
    let mut kernel = TestKernel::new(proxy.kernel);
    kernel.ask(NbdCommand::Write, 1, Some(1));
    assert!(kernel.answer());
    proxy.pause.store(true, Ordering::SeqCst);
    let file = std::fs::read_to_string(pair.config()).expect("there");
    let device = pair.device(Side::Near, "data").display().to_string();
    let other = pair.device(Side::Near, "other");
    let bytes = std::fs::metadata(&device).expect("there").len();
    std::fs::File::create(&other).and_then(|file| file.set_len(bytes)).expect("made");
    let table = file.split("[groups.").find(|table| table.starts_with("g.volumes.data]")).expect("a table");
    let without = file.replace(&format!("[groups.{table}"), "");
    std::fs::write(pair.config(), without).expect("written");
    pair.done(Side::Near, &["config", "apply", "--close-clients"]);
    kernel.ask(NbdCommand::Write, 1, Some(2));
    pair.until("the write waits", |_| proxy.events.try_iter().any(|event| event.starts_with("Lost")));
    std::fs::write(pair.config(), file.replace(&device, &other.display().to_string())).expect("written");
    pair.done(Side::Near, &["config", "apply"]);
    proxy.pause.store(false, Ordering::SeqCst);
    assert!(!kernel.answer(), "it fails");
    kernel.ask(NbdCommand::Flush, BLOCKS, None);
    assert!(!kernel.answer(), "and so does all that follows");
    assert!(proxy.events.try_iter().any(|event| event.starts_with("Over") && event.contains("came again")));
    drop(kernel);
    assert_eq!(proxy.thread.join().expect("it ends"), ProxyEnd::Closed);
    pair.stop_both();
    assert!(std::fs::read(other).expect("there").iter().all(|byte| *byte == 0));
    assert_eq!(pair.content(Side::Near, "data")[BLOCK..2 * BLOCK], [1; BLOCK]);
}
