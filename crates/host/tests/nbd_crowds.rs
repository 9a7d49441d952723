//! The NBD server when there are many: many connects at once, many exports, many clients, and some of them up to no good.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::certificates::TestCertificates;
use crate::nbd_support::*;
use host::nbd::proto::{self, NbdCommand};
use host::nbd::{Address, Limits, NbdClient};
use host::tls::Clients;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Both ends of all connections are in this process.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("up to the hard limit is allowed");
}

/// All clients of a host come back in one moment, while the server is busy: with a backlog of 128 the 130th and all after it were
/// turned away with EAGAIN.
#[test]
fn a_thousand_connects_at_once_are_taken() {
    const CONNECTS: usize = 1000;
    raise_descriptors();
    let server = TestServer::start(ServerSetup::default());
    let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").expect("Linux tells");
    let allowed: usize = allowed.trim().parse().expect("a number");
    let address = socket2::SockAddr::unix(server.socket()).expect("a path");
    let busy = server.keep_busy();
    let connect = |_| {
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).expect("a socket");
        socket.set_nonblocking(true).expect("a socket can");
        socket.connect(&address).ok().map(|()| socket)
    };
    let taken: Vec<socket2::Socket> = (0..CONNECTS).filter_map(connect).collect();
    println!("{} of {CONNECTS} connects at once were taken; the system allows {allowed}", taken.len());
    assert!(taken.len() >= CONNECTS.min(allowed), "{} were taken", taken.len());
    drop(busy);
    for socket in taken {
        socket.set_nonblocking(false).expect("a socket can");
        let mut line = BlockingClient::new(std::os::fd::OwnedFd::from(socket).into());
        line.hear::<18>();
    }
    server.until_quiet();
    read_once(&mut server.enter(false));
    server.stop();
}

/// One host takes all it can get over TCP. Whoever comes to the socket file comes in all the same, and so does the first client of
/// another export; the host is told why it does not.
#[test]
fn one_client_does_not_take_all_connections() {
    raise_descriptors();
    let exports: &[(&'static str, u64)] = &[("g/v", 1 << 20), ("g/w", 1 << 20)];
    let server = TestServer::start(ServerSetup { exports: exports.to_vec(), ..ServerSetup::default() });
    let tcp = Address::Tcp(server.tcp);
    let lines = server.keep_lines();
    let (held, refused) = on_runtime(async {
        let mut held = Vec::new();
        loop {
            match NbdClient::connect(&tcp, "g/v").await {
                Ok(client) => held.push(client),
                Err(error) => return (held, error.to_string()),
            }
        }
    });
    assert_eq!(held.len(), 1024);
    let sentence = "this node serves 1280 connections at once, 1024 of them are this client's; close some";
    assert!(refused.contains(sentence), "{refused}");
    assert_eq!(server.counters().connections_refused, 1);
    let said = "was refused g/v: 1024 of 1280 client slots are taken; 127.0.0.1 holds most, 1024, and all were used";
    let lines = lines.lock().unwrap().clone();
    assert!(lines.iter().any(|line| line.contains(said)), "{lines:?}");
    let mut by_file: Vec<BlockingClient> = (0..16).map(|_| server.enter_export("g/v")).collect();
    by_file.iter_mut().for_each(read_once);
    let other = on_runtime(async { NbdClient::connect(&tcp, "g/w").await.map_err(|error| error.to_string()) });
    assert!(other.is_ok(), "{:?}", other.err());
    let again = on_runtime(async { NbdClient::connect(&tcp, "g/w").await.is_ok() });
    assert!(!again, "that export has a client now");
    drop((held, by_file, other));
    server.until_quiet();
    assert!(on_runtime(async { NbdClient::connect(&tcp, "g/v").await.is_ok() }));
}

fn read_once(line: &mut BlockingClient) {
    line.say(&request(NbdCommand::Read, 0, 1, 0, 4096));
    assert_eq!(line.simple(), (1, 0));
    line.hear::<4096>();
}

fn exports(count: usize) -> Vec<(&'static str, u64)> {
    (0..count).map(|number| (&*format!("g/v{number}").leak(), 4096)).collect()
}

fn option(kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    proto::put_option(&mut bytes, kind, data);
    bytes
}

/// Asks what no server knows until it is shown out; how many answers there were.
fn pester(address: std::net::SocketAddr, questions: usize, data: &[u8]) -> usize {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let mut reading = stream.try_clone().expect("a socket has two ends");
    let asking = option(99, data);
    let bytes: Vec<u8> = [3_u32.to_be_bytes().to_vec(), asking.repeat(questions)].concat();
    let log_capture = std::thread::spawn(move || {
        let mut heard = Vec::new();
        let _ = reading.read_to_end(&mut heard);
        heard
    });
    let _ = stream.write_all(&bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let heard = log_capture.join().expect("it reads");
    let mut answers = heard.get(18..).unwrap_or_default();
    let mut count = 0;
    while let Some((header, rest)) = answers.split_first_chunk() {
        let header = proto::parse_option_reply(header).expect("an answer");
        answers = &rest[header.length as usize..];
        count += 1;
    }
    count
}

/// Where TLS has to come first, no export was needed to answer an unauthenticated client; each question used to copy and sort all of them, and 64
/// unauthenticated clients kept another client's read waiting for 15 s.
#[test]
fn an_unauthenticated_clients_questions_cost_no_look_at_the_exports() {
    const UNAUTHENTICATED: usize = 64;
    let certificates = TestCertificates::new();
    let tls = Some((certificates.server(Clients::Certified), true));
    let server = TestServer::start(ServerSetup { exports: exports(1000), tls, ..ServerSetup::default() });
    let mut client = server.enter_export("g/v0");
    read_once(&mut client);
    let looked = server.ask(|world| world.gateway.exports_seen.get());
    let clients: Vec<_> = (0..UNAUTHENTICATED)
        .map(|_| {
            let address = server.tcp;
            std::thread::spawn(move || pester(address, 24, &[7; 65536]))
        })
        .collect();
    let (mut reads, mut longest) = (0, Duration::ZERO);
    while reads < 100 || clients.iter().any(|client| !client.is_finished()) {
        let start = Instant::now();
        read_once(&mut client);
        longest = longest.max(start.elapsed());
        reads += 1;
    }
    let answers: Vec<usize> = clients.into_iter().map(|client| client.join().expect("it ends")).collect();
    let seen = server.ask(|world| world.gateway.exports_seen.get()) - looked;
    println!(
        "{UNAUTHENTICATED} unauthenticated clients got {} answers, {seen} exports were looked at; another client read {reads} times, {longest:?} at \
         the longest",
        answers.iter().sum::<usize>()
    );
    assert_eq!(seen, 0, "exports were looked at for unauthenticated clients");
    server.stop();
}

/// The number of exports showed in how many questions were answered before TLS.
#[test]
fn what_an_unauthenticated_client_hears_does_not_show_how_many_exports_there_are() {
    let certificates = TestCertificates::new();
    let answers = [1, 50].map(|count| {
        let tls = Some((certificates.server(Clients::Certified), true));
        let server = TestServer::start(ServerSetup { exports: exports(count), tls, ..ServerSetup::default() });
        pester(server.tcp, 300, &[])
    });
    println!("answers before TLS with 1 and 50 exports: {answers:?}");
    assert_eq!(answers[0], answers[1]);
}

const MIB: u32 = 1 << 20;

/// Twenty that have begun to write 8 MiB and send no more of it, and twenty that ask for 16 MiB and take none of it.
fn stall_forty(server: &TestServer) -> Vec<BlockingClient> {
    let mut stalled = Vec::new();
    for _ in 0..20 {
        let mut line = server.enter(false);
        line.say(&[request(NbdCommand::Write, 0, 1, 0, 8 * MIB), vec![7; 1000]].concat());
        stalled.push(line);
        let mut line = server.enter(false);
        line.say(&(0..16).flat_map(|handle| request(NbdCommand::Read, 0, handle, 0, MIB)).collect::<Vec<u8>>());
        stalled.push(line);
    }
    stalled
}

/// Writes and reads, one after the other: how long the 99th of a hundred took, and the longest.
fn work(line: &mut BlockingClient, rounds: usize) -> (Duration, Duration) {
    let mut took = Vec::new();
    for round in 0..rounds as u64 {
        let start = Instant::now();
        line.say(&[request(NbdCommand::Write, 0, round, 0, 65536), vec![round as u8; 65536]].concat());
        assert_eq!(line.simple(), (round, 0));
        line.say(&request(NbdCommand::Read, 0, round, 0, 65536));
        assert_eq!(line.simple(), (round, 0));
        assert_eq!(line.hear::<65536>(), [round as u8; 65536]);
        took.push(start.elapsed());
    }
    took.sort();
    (took[took.len() * 99 / 100], took[took.len() - 1])
}

// proves: P8
/// Half-sent writes and answers that nobody took held the memory of all clients for as long as they stayed connected.
#[test]
fn forty_stalled_clients_hold_up_nobody() {
    const ALL: usize = 64 << 20;
    let limits = Limits { bytes_in_flight_all: ALL, ..Limits::default() };
    let server = TestServer::start(ServerSetup { limits, pool_bytes: ALL, ..ServerSetup::default() });
    let mut healthy = server.enter(false);
    let alone = work(&mut healthy, 500);
    let stalled = stall_forty(&server);
    let beside = work(&mut healthy, 500);
    let held = server.ask(|world| world.gateway.pool.outstanding_bytes());
    println!(
        "99 of 100 rounds and the longest: alone {alone:?}, beside forty stalled clients {beside:?}; they hold {} of {} MiB",
        held >> 20,
        ALL >> 20
    );
    assert!((ALL / 4..=ALL).contains(&held), "{held} bytes are held");
    // A newcomer has its share as well.
    work(&mut server.enter(false), 10);
    drop(stalled);
    server.until("all came back", |world| world.gateway.pool.outstanding_bytes() == 0);
    server.stop();
}

// proves: P8
/// Who owes us the rest, or does not take what it asked for, is cut off; who is idle or slow is not.
#[test]
fn stalled_clients_are_cut_off_and_idle_ones_are_not() {
    let limits = Limits { stalled: Duration::from_secs(2), ..Limits::default() };
    let server = TestServer::start(ServerSetup { limits, ..ServerSetup::default() });
    let (mut idle, mut half_a_header, mut slow) = (server.enter(false), server.enter(false), server.enter(false));
    half_a_header.say(&request(NbdCommand::Flush, 0, 1, 0, 0)[..20]);
    let stalled = stall_forty(&server);
    slow.say(&request(NbdCommand::Write, 0, 3, 0, 2 * MIB));
    let mut sent = 0;
    while sent < 2 << 20 || server.counters().stalled < 40 {
        if sent < 2 << 20 {
            slow.say(&[3; 16384]);
            sent += 16384;
        }
        std::thread::sleep(Duration::from_millis(40));
    }
    assert_eq!(slow.simple(), (3, 0));
    half_a_header.say(&request(NbdCommand::Flush, 0, 1, 0, 0)[20..]);
    assert_eq!(half_a_header.simple(), (1, 0));
    read_once(&mut idle);
    server.until("the stalled ones are gone", |world| world.server.counters().connections_open == 3);
    assert_eq!(server.ask(|world| world.gateway.pool.outstanding_bytes()), 0);
    assert_eq!(server.counters().stalled, 40);
    drop(stalled);
    server.stop();
}
