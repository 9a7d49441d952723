//! Garbage, truncated and hostile bytes on every socket of a daemon: thousands of inputs, always the same ones. It goes
//! on serving, its volume keeps its bytes, and a real peer still gets in.
// proves: P10

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use crate::common::{DEADLINE, GROUP, Pair, PairPlan, Side, address};
use host::link::auth::{Handshake, PREFIX_BYTES};
use host::link::{Attempt, ClusterSecret, Ourselves, Versions};
use host::nbd::proto::{self, NbdCommand, NbdRequest, REQUEST_BYTES, option};

const SMALL: PairPlan = PairPlan { volumes: &["data"], volume_bytes: 2 << 20, ..PairPlan::DEFAULT };
/// Inputs for each socket.
const INPUTS: u64 = 600;
/// Longest wait for a daemon that need not answer at all.
const PATIENCE: Duration = Duration::from_millis(20);

/// The only source of chance (SplitMix64).
struct ByteRandom(u64);

impl ByteRandom {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }

    fn garbage(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most);
        (0..length).map(|_| self.number() as u8).collect()
    }

    /// A valid beginning with a few changes, cut somewhere, with garbage behind it; or garbage alone.
    fn input(&mut self, valid: &[u8]) -> Vec<u8> {
        if valid.is_empty() || self.below(4) == 0 {
            return self.garbage(3000);
        }
        let mut bytes = valid.to_vec();
        for _ in 0..self.below(4) {
            let at = self.below(bytes.len());
            match self.below(3) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = [0, 1, 0x7f, 0xff][self.below(4)],
                _ => bytes.insert(at, self.number() as u8),
            }
        }
        if self.below(3) == 0 {
            bytes.truncate(self.below(bytes.len()));
        } else if self.below(2) == 0 {
            bytes.extend(self.garbage(500));
        }
        bytes
    }
}

trait RawWire: Read + Write {}
impl<T: Read + Write> RawWire for T {}

/// The sockets of the daemon under attack.
struct DaemonSockets {
    replication: String,
    nbd_tcp: String,
    nbd_unix: PathBuf,
    control: PathBuf,
}

fn tcp(location: &str) -> Box<dyn RawWire> {
    let stream = TcpStream::connect(location).expect("the daemon listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    Box::new(stream)
}

fn unix(location: &PathBuf) -> Box<dyn RawWire> {
    let stream = UnixStream::connect(location).expect("the daemon listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    Box::new(stream)
}

/// Throws inputs at a socket; a few connections stay open half-way for as long as the others come and go.
fn throw(seed: u64, connect: impl Fn() -> Box<dyn RawWire>, mut input: impl FnMut(&mut ByteRandom) -> Vec<u8>) {
    let mut chance = ByteRandom(seed);
    let mut lingering = Vec::new();
    for number in 0..INPUTS {
        let mut stream = connect();
        // The daemon may have hung up at any byte, which is its right.
        let _ = stream.write_all(&input(&mut chance));
        if number % 16 == 0 {
            let _ = stream.read(&mut [0; 512]);
        }
        if number % 100 == 0 {
            lingering.push(stream);
        }
    }
}

fn attacked() -> (Pair, DaemonSockets) {
    let mut pair = Pair::new(&SMALL);
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let state = pair.path("near").join("state");
    let line = format!("state = \"{}\"", state.display());
    pair.edit_config(&line, &format!("{line}\nnbd = [\"unix:{}/nbd.sock\", \"tcp:{free}\"]", state.display()));
    fs::write(pair.device(Side::Near, "data"), vec![6; 2 << 20]).expect("written");
    pair.done(Side::Near, &["accept-device", "g", "data", "--content-is-good"]);
    pair.serve(Side::Near);
    let sockets = DaemonSockets {
        replication: address(&pair, Side::Near),
        nbd_tcp: free.to_string(),
        nbd_unix: state.join("nbd.sock"),
        control: state.join("control.sock"),
    };
    (pair, sockets)
}

/// Still alive, still serving, nothing changed; and the true peer comes in and is synced.
fn is_well(mut pair: Pair) {
    pair.qemu_io(Side::Near, "data", &["read -P 6 0 2M"]);
    pair.serve(Side::Far);
    pair.done(Side::Near, &["sync", GROUP, "--full", "--wait"]);
    assert!(!pair.log(Side::Near).contains("panicked"), "{}", pair.log(Side::Near));
    pair.stop_both();
    pair.assert_equal(&["data"]);
    assert!(pair.content(Side::Near, "data").iter().all(|byte| *byte == 6));
}

fn ours(definitions: &str) -> Rc<Ourselves> {
    Rc::new(Ourselves {
        cluster: "test".into(),
        node: "far".into(),
        peers: vec!["near".into()],
        secret: ClusterSecret::new(&[b's'; 48]),
        definitions: definitions.into(),
        versions: Versions::OURS,
    })
}

#[test]
fn on_the_replication_port() {
    let (pair, sockets) = attacked();
    let (_, hello) = Handshake::dial(ours(""), "near", [7; 32], Attempt { run: 1, number: 1 });
    throw(1, || tcp(&sockets.replication), |chance| chance.input(&hello));
    is_well(pair);
}

/// A peer that holds the secret, and then sends what it likes.
fn let_in(location: &str, definitions: &str, number: u64) -> TcpStream {
    let mut stream = TcpStream::connect(location).expect("the daemon listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    let attempt = Attempt { run: 1, number };
    let (mut machine, hello) = Handshake::dial(ours(definitions), "near", [number as u8; 32], attempt);
    stream.write_all(&hello).expect("the daemon reads");
    loop {
        let mut prefix = [0; PREFIX_BYTES];
        stream.read_exact(&mut prefix).expect("an answer");
        let mut body = vec![0; machine.body_bytes(&prefix).expect("the daemon's answer makes sense")];
        stream.read_exact(&mut body).expect("a whole answer");
        let step = machine.receive(&prefix, &body);
        stream.write_all(&step.send).expect("the daemon reads");
        match step.outcome {
            Some(outcome) => break outcome.map(|_| stream).expect("the daemon lets its peer in"),
            None => continue,
        }
    }
}

#[test]
fn from_a_peer_that_holds_the_secret() {
    let (mut pair, sockets) = attacked();
    let config = settings::Config::load(&pair.config()).expect("the configuration is sound");
    let (definitions, known) = (config.definitions(), config.group_id(&config.groups[0]).0);
    let mut chance = ByteRandom(2);
    for number in 1..120 {
        let mut stream = let_in(&sockets.replication, &definitions, number);
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        let mut bytes = chance.garbage(2000);
        // Some of it is a frame by its magic number, version and kind.
        if number % 2 == 0 {
            let header = engine::wire::FrameHeader::new(
                engine::wire::FrameKind::GroupHello,
                engine::SessionId(number),
                engine::GroupId(known.wrapping_add(chance.below(2) as u32)),
            );
            bytes.splice(0..0, header.sealed(b"").encode());
        }
        let _ = stream.write_all(&bytes);
    }
    pair.until("the log says what was wrong", |pair| pair.log(Side::Near).contains("far"));
    is_well(pair);
}

/// A handshake that ends inside, and a request.
fn nbd_talk() -> (Vec<u8>, Vec<u8>) {
    let name = format!("{GROUP}/data");
    let data = [&(name.len() as u32).to_be_bytes()[..], name.as_bytes(), &[0, 0]].concat();
    let mut talk = 3u32.to_be_bytes().to_vec();
    proto::put_option(&mut talk, option::LIST, b"");
    proto::put_option(&mut talk, option::STRUCTURED_REPLY, b"");
    proto::put_option(&mut talk, option::GO, &data);
    let read = NbdRequest { flags: 0, command: NbdCommand::Read, handle: 5, offset: 4096, length: 8192 };
    (talk, proto::encode_request(&read).to_vec())
}

/// Handshakes gone wrong, and good ones with bad requests behind them. None of them is a good write.
fn nbd_input(chance: &mut ByteRandom) -> Vec<u8> {
    let (talk, request) = nbd_talk();
    if chance.below(2) == 0 {
        return chance.input(&talk);
    }
    let mut bytes = chance.input(&request.repeat(3));
    for header in bytes.chunks_mut(REQUEST_BYTES).filter(|header| header.len() == REQUEST_BYTES) {
        // What changes a volume (write, trim, write-zeroes) is not bad input: it becomes an unknown command.
        if matches!(header[6..8], [0, 1 | 4 | 6]) {
            header[6] = 0x70;
        }
    }
    [talk, bytes].concat()
}

#[test]
fn on_the_nbd_sockets() {
    let (pair, sockets) = attacked();
    throw(3, || tcp(&sockets.nbd_tcp), nbd_input);
    throw(4, || unix(&sockets.nbd_unix), nbd_input);
    is_well(pair);
}

#[test]
fn on_the_control_socket() {
    let (pair, sockets) = attacked();
    let line = br#"{"request":"status","group":"g"}"#;
    throw(5, || unix(&sockets.control), |chance| chance.input(line));
    // Longer than any request: refused, not read to its end.
    let mut stream = UnixStream::connect(&sockets.control).expect("the daemon listens");
    let _ = stream.write_all(&vec![b'x'; 1 << 20]);
    for words in ["{\"request\":\"promte\"}", "[]", "{}", "\u{7}"] {
        let mut stream = UnixStream::connect(&sockets.control).expect("the daemon listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        stream.write_all(format!("{words}\n").as_bytes()).expect("the daemon reads");
        let mut said = String::new();
        BufReader::new(stream).read_line(&mut said).expect("an answer");
        assert!(said.contains("\"reply\":\"error\""), "{words}: {said}");
    }
    is_well(pair);
}
