//! A server under test on a thread of its own, over a gateway of memory or a sparse file, and a blocking client that
//! says exactly the bytes it is told to.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use host::buffers::{Buffer, Pool};
use host::frontend::{
    AllocationExtent, ClientId, ClientOp, ExportInfo, Exports, Gateway, Replies, RequestFailure, RequestOutcome,
    VolumeHandle,
};
use host::nbd::proto::{self, NbdCommand, NbdRequest};
use host::nbd::{Limits, NbdCounters, NbdServer};
use rustix::fs::{FallocateFlags, SeekFrom};

/// How long any condition may take on a noisy machine before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// When the gateway answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerPace {
    /// Within `kick`.
    Inline,
    /// In a later turn, last request first.
    Reversed,
    /// Not before [`ServerWorld::release`].
    Held,
}

#[derive(Clone)]
pub struct ServerSetup {
    pub exports: Vec<(&'static str, u64)>,
    pub block_min_bytes: u32,
    pub pace: AnswerPace,
    pub limits: Limits,
    pub pool_bytes: usize,
    /// Volumes are sparse files instead of memory.
    pub files: bool,
    /// The server ends by being dropped instead of being stopped.
    pub cut: bool,
    /// TLS on the TCP socket, and whether clients must use it.
    pub tls: Option<(host::tls::CredentialStore, bool)>,
}

impl Default for ServerSetup {
    fn default() -> ServerSetup {
        ServerSetup {
            exports: vec![("g/v", 64 << 20)],
            block_min_bytes: 512,
            pace: AnswerPace::Inline,
            // A test must not pass because the server lost its patience first.
            limits: Limits { farewell: Duration::from_secs(3600), ..Limits::default() },
            pool_bytes: 256 << 20,
            files: false,
            cut: false,
            tls: None,
        }
    }
}

/// What lives on the server's thread.
pub struct ServerWorld {
    pub server: NbdServer,
    pub gateway: Rc<Mock>,
}

type Errand = Box<dyn FnOnce(&ServerWorld) + Send>;

pub struct TestServer {
    directory: tempfile::TempDir,
    pub tcp: std::net::SocketAddr,
    errands: Option<tokio::sync::mpsc::UnboundedSender<Errand>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl TestServer {
    pub fn start(setup: ServerSetup) -> TestServer {
        let directory = tempfile::tempdir().unwrap();
        let (errands, mut inbox) = tokio::sync::mpsc::unbounded_channel::<Errand>();
        let (ready, started) = std::sync::mpsc::channel();
        let location = directory.path().to_owned();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, async move {
                let gateway = Rc::new_cyclic(|this| Mock::new(&setup, &location, this.clone()));
                let server = NbdServer::new(gateway.clone(), setup.limits);
                server.listen_unix(&location.join("nbd.sock")).unwrap();
                let any = "127.0.0.1:0".parse().unwrap();
                let tcp = match setup.tls.clone() {
                    None => server.listen_tcp(any).unwrap(),
                    Some((store, is_required)) => server.listen_tls(any, store, is_required).unwrap(),
                };
                ready.send(tcp).unwrap();
                let world = ServerWorld { server, gateway };
                while let Some(errand) = inbox.recv().await {
                    errand(&world);
                }
                if setup.cut {
                    drop(world.server);
                    // The dropped tasks are taken apart in their next turn.
                    while world.gateway.clients() > 0 {
                        tokio::task::yield_now().await;
                    }
                } else {
                    world.server.stop().await;
                }
                assert!(world.gateway.clients.borrow().is_empty(), "every client was detached");
                assert_eq!(world.gateway.pool.outstanding_bytes(), 0, "every buffer came back");
            });
        });
        let tcp = started.recv().expect("the server starts");
        TestServer { directory, tcp, errands: Some(errands), thread: Some(thread) }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("nbd.sock")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket().display())
    }

    /// Runs `errand` on the server's thread and returns what it found.
    pub fn ask<T: Send + 'static>(&self, errand: impl FnOnce(&ServerWorld) -> T + Send + 'static) -> T {
        let (answer, answered) = std::sync::mpsc::channel();
        let errand: Errand = Box::new(move |world| answer.send(errand(world)).unwrap());
        let sent = self.errands.as_ref().unwrap().send(errand);
        assert!(sent.is_ok(), "the server's thread lives");
        answered.recv_timeout(PATIENCE).expect("the server's thread answers")
    }

    /// The server's thread does nothing else until the end of what is returned.
    pub fn keep_busy(&self) -> std::sync::mpsc::Sender<()> {
        let (end, ended) = std::sync::mpsc::channel();
        let (begun, begins) = std::sync::mpsc::channel();
        let errand: Errand = Box::new(move |_| {
            begun.send(()).unwrap();
            let _ = ended.recv();
        });
        assert!(self.errands.as_ref().unwrap().send(errand).is_ok(), "the server's thread lives");
        begins.recv().expect("the errand begins");
        end
    }

    pub fn counters(&self) -> NbdCounters {
        self.ask(|world| world.server.counters())
    }

    /// Waits for a condition on the server's thread.
    pub fn until(&self, what: &str, condition: impl Fn(&ServerWorld) -> bool + Send + Clone + 'static) {
        let start = Instant::now();
        while !self.ask(condition.clone()) {
            assert!(start.elapsed() < PATIENCE, "waited too long until {what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What the server says to operators from now on, line by line.
    pub fn keep_lines(&self) -> Arc<Mutex<Vec<String>>> {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let log_capture = LogCapture(lines.clone());
        self.ask(|_| std::mem::forget(tracing::subscriber::set_default(log_capture)));
        lines
    }

    pub fn until_quiet(&self) {
        self.until("every client has left", |world| world.server.counters().connections_open == 0);
    }

    pub fn connect(&self) -> BlockingClient {
        BlockingClient::new(UnixStream::connect(self.socket()).expect("the server listens"))
    }

    /// A client in the transmission phase of the only export.
    pub fn enter(&self, structured: bool) -> BlockingClient {
        let mut line = self.connect();
        line.hear::<18>();
        line.say(&opening(structured));
        if structured {
            assert_eq!(line.option_reply().0, proto::reply::ACK);
            assert_eq!(line.option_reply().0, proto::reply::META_CONTEXT);
            assert_eq!(line.option_reply().0, proto::reply::ACK);
        }
        while line.option_reply().0 != proto::reply::ACK {}
        line
    }

    /// A client in the transmission phase of one of several exports.
    pub fn enter_export(&self, name: &str) -> BlockingClient {
        let mut line = self.connect();
        line.hear::<18>();
        let mut bytes = 3_u32.to_be_bytes().to_vec();
        let length = u32::try_from(name.len()).unwrap().to_be_bytes();
        proto::put_option(&mut bytes, proto::option::GO, &[&length, name.as_bytes(), &[0, 0]].concat());
        line.say(&bytes);
        loop {
            match line.option_reply().0 {
                proto::reply::ACK => return line,
                proto::reply::INFO => {}
                refused => panic!("{name} was refused: {refused:#x}"),
            }
        }
    }

    /// Stops the server, which must not have panicked.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.errands.take());
        let ended = self.thread.take().map(|thread| thread.join());
        if !std::thread::panicking() {
            assert!(!matches!(ended, Some(Err(_))), "the server's thread panicked");
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Keeps the lines of the thread that it is set on, those that operators see.
struct LogCapture(Arc<Mutex<Vec<String>>>);

/// The sentence of a line.
struct Sentence(String);

impl tracing::field::Visit for Sentence {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl tracing::Subscriber for LogCapture {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut sentence = Sentence(String::new());
        event.record(&mut sentence);
        self.0.lock().unwrap().push(sentence.0);
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

pub fn on_runtime<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

/// Runs a client to its end: its exit code, and all that it printed.
pub fn run_any(program: &str, arguments: &[&str]) -> (Option<i32>, String) {
    // nbdsh is a Python program that needs the system's interpreter, whatever stands first on the path.
    let path = format!("/usr/bin:{}", std::env::var("PATH").unwrap_or_default());
    let output = std::process::Command::new("timeout")
        .args(["--kill-after=5", &PATIENCE.as_secs().to_string(), program])
        .args(arguments)
        .env("PATH", path)
        .output()
        .expect("coreutils' timeout runs");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.code() != Some(127), "{program} is missing: install qemu-utils, libnbd-bin, fio\n{text}");
    (output.status.code(), text)
}

/// Client flags and the options up to `GO` for the only export.
pub fn opening(structured: bool) -> Vec<u8> {
    let mut bytes = 3_u32.to_be_bytes().to_vec();
    if structured {
        proto::put_option(&mut bytes, proto::option::STRUCTURED_REPLY, &[]);
        let mut query = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 15];
        query.extend_from_slice(proto::ALLOCATION.as_bytes());
        proto::put_option(&mut bytes, proto::option::SET_META_CONTEXT, &query);
    }
    proto::put_option(&mut bytes, proto::option::GO, &[0; 6]);
    bytes
}

pub fn request(command: NbdCommand, flags: u16, handle: u64, offset: u64, length: u32) -> Vec<u8> {
    proto::encode_request(&NbdRequest { flags, command, handle, offset, length }).to_vec()
}

/// A blocking client without manners of its own.
pub struct BlockingClient(pub UnixStream);

#[derive(Debug, PartialEq, Eq)]
pub struct Chunk {
    pub kind: u16,
    pub handle: u64,
    pub payload: Vec<u8>,
}

impl Chunk {
    /// The error's number, if it is one; its sentence must be there.
    pub fn errno(&self) -> Option<u32> {
        if self.kind != proto::chunk::ERROR {
            return None;
        }
        let length = u16::from_be_bytes([self.payload[4], self.payload[5]]) as usize;
        assert_eq!(self.payload.len(), 6 + length);
        assert!(std::str::from_utf8(&self.payload[6..]).unwrap().len() > 10, "an error has a sentence");
        Some(u32::from_be_bytes(self.payload[..4].try_into().unwrap()))
    }
}

impl BlockingClient {
    pub fn new(stream: UnixStream) -> BlockingClient {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        BlockingClient(stream)
    }

    pub fn say(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the server takes our bytes");
    }

    pub fn hear<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).expect("the server answers");
        bytes
    }

    pub fn hear_bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).expect("the server answers");
        bytes
    }

    /// Everything until the server closes.
    pub fn hear_end(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.0.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
        bytes
    }

    pub fn option_reply(&mut self) -> (u32, Vec<u8>) {
        let header = proto::parse_option_reply(&self.hear()).unwrap();
        (header.reply, self.hear_bytes(header.length as usize))
    }

    /// Handle and error number, zero for success.
    pub fn simple(&mut self) -> (u64, u32) {
        let (handle, error) = proto::parse_simple_reply(&self.hear()).unwrap();
        (handle, error.map_or(0, proto::Errno::code))
    }

    pub fn chunk(&mut self) -> Chunk {
        let header: [u8; proto::CHUNK_BYTES] = self.hear();
        assert_eq!(header[..4], proto::CHUNK_MAGIC.to_be_bytes());
        assert_eq!(header[4..6], proto::chunk::FLAG_DONE.to_be_bytes());
        let length = u32::from_be_bytes(header[16..].try_into().unwrap());
        Chunk {
            kind: u16::from_be_bytes([header[6], header[7]]),
            handle: u64::from_be_bytes(header[8..16].try_into().unwrap()),
            payload: self.hear_bytes(length as usize),
        }
    }
}

enum Backing {
    Memory(RefCell<Vec<u8>>),
    File(File),
}

struct TestVolume {
    info: ExportInfo,
    backing: Backing,
}

struct Attached {
    volume: usize,
    replies: Rc<dyn Replies>,
}

type WaitingAnswer = (ClientId, u64, ClientOp);

/// A gateway without a data path: it does what it is asked, when it is told to.
pub struct Mock {
    volumes: Vec<TestVolume>,
    /// Nothing is served any more.
    closed: Cell<bool>,
    pub pool: Pool,
    pub pace: Cell<AnswerPace>,
    /// Requests of the next kick fail so.
    pub failing: Cell<Option<RequestFailure>>,
    clients: Rc<RefCell<BTreeMap<ClientId, Attached>>>,
    next_client: Cell<u64>,
    former: RefCell<Vec<Rc<dyn Replies>>>,
    gathered: RefCell<Vec<WaitingAnswer>>,
    held: RefCell<Vec<WaitingAnswer>>,
    pub batch_max: Cell<usize>,
    pub lengths_max: Cell<u64>,
    /// Exports that were looked at for somebody who negotiates.
    pub exports_seen: Cell<usize>,
    this: std::rc::Weak<Mock>,
}

impl Mock {
    fn new(setup: &ServerSetup, location: &Path, this: std::rc::Weak<Mock>) -> Mock {
        let volume = |(index, (name, size_bytes)): (usize, &(&str, u64))| TestVolume {
            info: ExportInfo {
                handle: VolumeHandle(index as u32),
                name: (*name).into(),
                description: format!("test volume {name}"),
                size_bytes: *size_bytes,
                block_min_bytes: setup.block_min_bytes,
                block_preferred_bytes: 4096.max(setup.block_min_bytes),
                block_max_bytes: proto::PAYLOAD_BYTES_MAX,
            },
            backing: if setup.files {
                let path = location.join(format!("volume{index}"));
                let file = File::options().create(true).truncate(true).read(true).write(true).open(path);
                let file = file.unwrap();
                file.set_len(*size_bytes).unwrap();
                Backing::File(file)
            } else {
                Backing::Memory(RefCell::new(vec![0; *size_bytes as usize]))
            },
        };
        Mock {
            volumes: setup.exports.iter().enumerate().map(volume).collect(),
            closed: Cell::new(false),
            pool: Pool::new(setup.pool_bytes),
            pace: Cell::new(setup.pace),
            failing: Cell::new(None),
            clients: Rc::default(),
            next_client: Cell::new(0),
            former: RefCell::default(),
            gathered: RefCell::default(),
            held: RefCell::default(),
            batch_max: Cell::new(0),
            lengths_max: Cell::new(0),
            exports_seen: Cell::new(0),
            this,
        }
    }

    /// Requests handed over and not answered.
    pub fn held(&self) -> usize {
        self.held.borrow().len()
    }

    pub fn clients(&self) -> usize {
        self.clients.borrow().len()
    }

    /// Lets go of the lines of clients that have left.
    pub fn forget_former(&self) {
        self.former.borrow_mut().clear();
    }

    /// Answers what is held, last request first.
    pub fn release(&self) {
        let mut held = self.held.take();
        held.reverse();
        self.answer(held);
    }

    /// The exports go away: held requests fail, clients are told.
    pub fn close(&self) {
        self.closed.set(true);
        self.failing.set(Some(RequestFailure::Gone));
        self.release();
        let clients: Vec<_> = self.clients.borrow().values().map(|client| client.replies.clone()).collect();
        clients.iter().for_each(|replies| replies.gone());
    }

    fn answer(&self, batch: Vec<WaitingAnswer>) {
        let mut touched: BTreeMap<ClientId, Rc<dyn Replies>> = BTreeMap::new();
        for (client, cookie, op) in batch {
            let (volume, replies) = match self.clients.borrow().get(&client) {
                Some(attached) => (attached.volume, attached.replies.clone()),
                None => continue,
            };
            let outcome = match self.failing.get() {
                Some(failure) => RequestOutcome::Failed(failure),
                None => self.volumes[volume].perform(op),
            };
            replies.complete(cookie, outcome);
            touched.insert(client, replies);
        }
        touched.values().for_each(|replies| replies.push());
    }
}

impl Exports for Mock {
    fn list(&self) -> Vec<ExportInfo> {
        self.exports_seen.set(self.exports_seen.get() + self.volumes.len());
        if self.closed.get() { Vec::new() } else { self.volumes.iter().map(|volume| volume.info.clone()).collect() }
    }

    fn find(&self, name: &str) -> Option<ExportInfo> {
        self.exports_seen.set(self.exports_seen.get() + 1);
        let is_meant = |volume: &&TestVolume| volume.info.name == name || name.is_empty() && self.volumes.len() == 1;
        self.volumes.iter().find(is_meant).filter(|_| !self.closed.get()).map(|volume| volume.info.clone())
    }

    fn count(&self) -> usize {
        if self.closed.get() { 0 } else { self.volumes.len() }
    }
}

impl Gateway for Mock {
    fn attach(&self, name: &str, replies: Rc<dyn Replies>) -> Option<(ExportInfo, ClientId)> {
        let volume = self.volumes.iter().position(|volume| volume.info.name == name && !self.closed.get())?;
        let client = ClientId(self.next_client.replace(self.next_client.get() + 1));
        self.clients.borrow_mut().insert(client, Attached { volume, replies });
        Some((self.volumes[volume].info.clone(), client))
    }

    fn detach(&self, client: ClientId) {
        let attached = self.clients.borrow_mut().remove(&client).expect("only an attached client is detached");
        // A data path may know a line for longer than its client does.
        self.former.borrow_mut().push(attached.replies);
        self.held.borrow_mut().retain(|(other, ..)| *other != client);
    }

    fn buffer(&self, length: usize) -> Option<Buffer> {
        self.pool.take(length)
    }

    fn buffer_free(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(self.pool.freed())
    }

    fn submit(&self, client: ClientId, cookie: u64, op: ClientOp) {
        assert!(self.clients.borrow().contains_key(&client), "only an attached client submits");
        self.gathered.borrow_mut().push((client, cookie, op));
    }

    fn kick(&self) {
        let batch = self.gathered.take();
        self.batch_max.set(self.batch_max.get().max(batch.len()));
        for (_, _, op) in &batch {
            if let ClientOp::Trim { length, .. } | ClientOp::Zero { length, .. } | ClientOp::Cache { length, .. } = op {
                self.lengths_max.set(self.lengths_max.get().max(*length));
            }
        }
        match self.pace.get() {
            AnswerPace::Inline => self.answer(batch),
            AnswerPace::Held => self.held.borrow_mut().extend(batch),
            AnswerPace::Reversed => {
                self.held.borrow_mut().extend(batch);
                let this = self.this.upgrade().expect("the gateway outlives its turns");
                tokio::task::spawn_local(async move {
                    tokio::task::yield_now().await;
                    this.release();
                });
            }
        }
    }
}

impl TestVolume {
    fn perform(&self, op: ClientOp) -> RequestOutcome {
        match op {
            ClientOp::Read { offset, mut buffer } => {
                match &self.backing {
                    Backing::Memory(bytes) => {
                        let bytes = bytes.borrow();
                        let source = &bytes[offset as usize..];
                        buffer.iter_mut().zip(source).for_each(|(to, from)| *to = *from);
                    }
                    Backing::File(file) => file.read_exact_at(&mut buffer, offset).unwrap(),
                }
                return RequestOutcome::Data(buffer);
            }
            ClientOp::Write { offset, buffer, .. } => match &self.backing {
                Backing::Memory(bytes) => {
                    bytes.borrow_mut()[offset as usize..][..buffer.len()].copy_from_slice(&buffer);
                }
                Backing::File(file) => file.write_all_at(&buffer, offset).unwrap(),
            },
            ClientOp::Trim { offset, length, .. } | ClientOp::Zero { offset, length, no_hole: false, .. } => {
                self.clear(offset, length, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE);
            }
            ClientOp::Zero { offset, length, .. } => {
                self.clear(offset, length, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE);
            }
            ClientOp::Flush | ClientOp::Cache { .. } => {}
            ClientOp::BlockStatus { offset, length, .. } => {
                return RequestOutcome::Extents(self.extents(offset, length));
            }
        }
        RequestOutcome::Done
    }

    fn clear(&self, offset: u64, length: u64, how: FallocateFlags) {
        match &self.backing {
            Backing::Memory(bytes) => bytes.borrow_mut()[offset as usize..][..length as usize].fill(0),
            Backing::File(file) => rustix::fs::fallocate(file, how, offset, length).unwrap(),
        }
    }

    fn extents(&self, offset: u64, length: u64) -> Vec<AllocationExtent> {
        let mut extents = Vec::new();
        let end = offset + length;
        match &self.backing {
            Backing::Memory(bytes) => {
                let bytes = bytes.borrow();
                for block in bytes[offset as usize..end as usize].chunks(4096) {
                    let hole = block.iter().all(|byte| *byte == 0);
                    extents.push(AllocationExtent { length: block.len() as u64, hole, zero: hole });
                }
            }
            Backing::File(file) => {
                let mut at = offset;
                while at < end {
                    let data = rustix::fs::seek(file, SeekFrom::Data(at)).unwrap_or(end).min(end);
                    let (hole, next) = if data > at {
                        (true, data)
                    } else {
                        (false, rustix::fs::seek(file, SeekFrom::Hole(at)).unwrap().min(end))
                    };
                    extents.push(AllocationExtent { length: next - at, hole, zero: hole });
                    at = next;
                }
            }
        }
        extents
    }
}

/// Random numbers that are the same every time.
pub struct NbdRandom(pub u64);

impl NbdRandom {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| (self.next() >> 32) as u8).collect()
    }
}
