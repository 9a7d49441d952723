//! NBD clients that vanish, after every byte of what they say and of what they hear, in the clear and over TLS. The server goes on
//! for the others, keeps nothing of those that have gone, and fills no log.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::certificates::{CLUSTER, Dates, TestCertificates, tls_client};
use crate::nbd_support::*;
use host::nbd::proto::{self, NbdCommand};
use host::tls::{Clients, MemberIdentity, Paths};

/// Lines that the server may say of any number of clients of one host that vanish.
const LINES_MAX: usize = 16;

/// The two ends of a client's life: after so many bytes said or heard it is gone.
#[derive(Clone, Copy, Debug)]
struct ClientLife {
    say: usize,
    hear: usize,
}

const ENDLESS: usize = usize::MAX;

/// A client's socket until the end of its life.
struct Mortal {
    stream: TcpStream,
    left: ClientLife,
    said: usize,
    heard: usize,
}

fn gone() -> io::Error {
    io::Error::from(io::ErrorKind::ConnectionAborted)
}

impl Read for Mortal {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(self.left.hear);
        let count = self.stream.read(&mut buffer[..most])?;
        self.left.hear -= count;
        self.heard += count;
        if self.left.hear == 0 { Err(gone()) } else { Ok(count) }
    }
}

impl Write for Mortal {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.stream.write(&buffer[..buffer.len().min(self.left.say)])?;
        self.left.say -= count;
        self.said += count;
        if self.left.say == 0 { Err(gone()) } else { Ok(count) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Mortal {
    fn connect(address: SocketAddr, left: ClientLife) -> Mortal {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Mortal { stream, left, said: 0, heard: 0 }
    }
}

fn option(bytes: &mut Vec<u8>, kind: u32, data: &[u8]) {
    proto::put_option(bytes, kind, data);
}

/// Every kind of option, then every kind of request, all in one breath.
fn speech() -> Vec<u8> {
    let mut bytes = 3_u32.to_be_bytes().to_vec();
    option(&mut bytes, proto::option::LIST, &[]);
    option(&mut bytes, proto::option::INFO, &[0; 6]);
    option(&mut bytes, 99, &[7; 40]);
    bytes.extend(&opening(true)[4..]);
    let ask = |command, flags, handle, length| request(command, flags, handle, 4096, length);
    bytes.extend(ask(NbdCommand::Write, proto::flag::FUA, 1, 512));
    bytes.extend([7; 512]);
    bytes.extend(ask(NbdCommand::Read, 0, 2, 512));
    bytes.extend(ask(NbdCommand::WriteZeroes, proto::flag::NO_HOLE, 3, 4096));
    bytes.extend(ask(NbdCommand::Trim, 0, 4, 4096));
    bytes.extend(ask(NbdCommand::Cache, 0, 5, 4096));
    bytes.extend(ask(NbdCommand::BlockStatus, 0, 6, 8192));
    bytes.extend(ask(NbdCommand::Flush, 0, 7, 0));
    // Refused, and its payload thrown away.
    bytes.extend(request(NbdCommand::Write, 0, 8, u64::MAX - 511, 512));
    bytes.extend([8; 512]);
    bytes.extend(ask(NbdCommand::Disconnect, 0, 9, 0));
    bytes
}

/// One client's life in the clear; how much it said and heard.
fn live(address: SocketAddr, life: ClientLife) -> Mortal {
    let mut mortal = Mortal::connect(address, life);
    let lives = mortal.read_exact(&mut [0; 18]).and_then(|()| mortal.write_all(&speech()));
    let _ = lives.and_then(|()| mortal.read_to_end(&mut Vec::new()));
    mortal
}

/// The same behind TLS.
fn live_encrypted(address: SocketAddr, life: ClientLife, certificates: &TestCertificates, own: &Paths) -> Mortal {
    let mut mortal = Mortal::connect(address, life);
    let lives = (|| {
        mortal.read_exact(&mut [0; 18])?;
        let speech = speech();
        let (flags, rest) = speech.split_at(4);
        let mut wish = flags.to_vec();
        option(&mut wish, proto::option::STARTTLS, &[]);
        mortal.write_all(&wish)?;
        mortal.read_exact(&mut [0; proto::OPTION_REPLY_BYTES])?;
        let mut tls = rustls::StreamOwned::new(tls_client(certificates, Some(own)), &mut mortal);
        tls.write_all(rest)?;
        tls.flush()?;
        tls.read_to_end(&mut Vec::new())
    })();
    let _ = lives;
    mortal
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// All that a server holds for clients.
#[derive(Debug, PartialEq)]
struct Holdings {
    descriptors: usize,
    attached: usize,
    in_flight: usize,
    pool_bytes: usize,
    open: u64,
}

fn holdings(server: &TestServer) -> Holdings {
    server.ask(|world| world.gateway.forget_former());
    let (attached, in_flight, pool_bytes, open) = server.ask(|world| {
        let gateway = &world.gateway;
        let open = world.server.counters().connections_open;
        (gateway.clients(), gateway.held(), gateway.pool.outstanding_bytes(), open)
    });
    Holdings { descriptors: descriptors(), attached, in_flight, pool_bytes, open }
}

/// Has clients live beside one that works all the while. Afterwards the server holds what it held before.
fn beside_a_healthy_client(server: &TestServer, what: &str, clients: impl FnOnce() -> usize) {
    let lines = server.keep_lines();
    let mut healthy = server.enter(true);
    let before = holdings(server);
    let counters = server.counters();
    let is_over = AtomicBool::new(false);
    let (count, rounds, longest) = std::thread::scope(|scope| {
        let works = scope.spawn(|| {
            let (mut rounds, mut longest) = (0, Duration::ZERO);
            while !is_over.load(Ordering::Relaxed) {
                let began = Instant::now();
                healthy.say(&[request(NbdCommand::Write, 0, rounds, 8192, 4096), vec![3; 4096]].concat());
                assert_eq!(healthy.simple(), (rounds, 0));
                longest = longest.max(began.elapsed());
                rounds += 1;
            }
            (rounds, longest)
        });
        let count = clients();
        is_over.store(true, Ordering::Relaxed);
        let (rounds, longest) = works.join().expect("the healthy client is served");
        (count, rounds, longest)
    });
    server.until("all have left", |world| world.server.counters().connections_open == 1);
    server.ask(|world| world.gateway.forget_former());
    let after = server.counters();
    let ended = after.sessions_started + after.handshakes_without_session;
    let ended_before = counters.sessions_started + counters.handshakes_without_session;
    let lines = lines.lock().unwrap();
    let reported = lines.len();
    println!("{what}: {count} clients vanished beside {rounds} writes, {longest:?} at the longest; {reported} lines");
    lines.iter().take(LINES_MAX).for_each(|line| println!("  {line}"));
    assert_eq!((after.connections_accepted - counters.connections_accepted) as usize, count);
    assert_eq!((ended - ended_before) as usize, count);
    assert_eq!(after.connections_refused, 0);
    assert_eq!(holdings(server), before);
    assert!(rounds > 20 && reported <= LINES_MAX, "{rounds} writes, {reported} lines");
}

fn lives(whole: &Mortal, step: usize) -> impl Iterator<Item = ClientLife> {
    let after_saying = (1..=whole.said).step_by(step).map(|say| ClientLife { say, hear: ENDLESS });
    let after_hearing = (1..=whole.heard).step_by(step).map(|hear| ClientLife { say: ENDLESS, hear });
    after_saying.chain(after_hearing)
}

#[test]
fn clients_vanish_at_every_byte() {
    for pace in [AnswerPace::Inline, AnswerPace::Reversed] {
        let server = TestServer::start(ServerSetup { pace, ..ServerSetup::default() });
        let whole = live(server.tcp, ClientLife { say: ENDLESS, hear: ENDLESS });
        assert!(whole.said > 1400 && whole.heard > 1000, "{} said, {} heard", whole.said, whole.heard);
        server.until_quiet();
        beside_a_healthy_client(&server, &format!("{pace:?}"), || {
            lives(&whole, 1).inspect(|life| drop(live(server.tcp, *life))).count()
        });
        server.stop();
    }
}

#[test]
fn clients_vanish_over_tls() {
    let certificates = TestCertificates::new();
    let own = certificates.issue("backup", &MemberIdentity::client(CLUSTER, "backup"), Dates::Now);
    let tls = Some((certificates.server(Clients::Certified), true));
    let server = TestServer::start(ServerSetup { pace: AnswerPace::Reversed, tls, ..ServerSetup::default() });
    let whole = live_encrypted(server.tcp, ClientLife { say: ENDLESS, hear: ENDLESS }, &certificates, &own);
    assert!(whole.said > 2500 && whole.heard > 1500, "{} said, {} heard", whole.said, whole.heard);
    server.until_quiet();
    beside_a_healthy_client(&server, "TLS", || {
        lives(&whole, 13).inspect(|life| drop(live_encrypted(server.tcp, *life, &certificates, &own))).count()
    });
    server.stop();
}

/// Its requests are with the disk when it goes: their answers go nowhere, and nothing waits for them.
#[test]
fn clients_vanish_with_requests_in_flight() {
    let server = TestServer::start(ServerSetup { pace: AnswerPace::Held, ..ServerSetup::default() });
    let before = holdings(&server);
    let speech = speech();
    // Without the goodbye, after which it would be waited for the answers.
    let requests = &speech[..speech.len() - proto::REQUEST_BYTES];
    let clients: Vec<TcpStream> = (0..64)
        .map(|_| {
            let mut mortal = Mortal::connect(server.tcp, ClientLife { say: ENDLESS, hear: ENDLESS });
            mortal.write_all(requests).expect("it reads");
            mortal.stream
        })
        .collect();
    // The last one is a write that is refused.
    server.until("all has come", |world| world.server.counters().command(NbdCommand::Write).received == 2 * 64);
    let held = holdings(&server);
    println!("with all in flight: {held:?}");
    assert!(held.in_flight >= 5 * 64 && held.pool_bytes > 0);
    drop(clients);
    server.until_quiet();
    assert_eq!(holdings(&server), before);
    server.ask(|world| world.gateway.release());
    assert_eq!(server.counters().sessions_started, 64);
    server.stop();
}
