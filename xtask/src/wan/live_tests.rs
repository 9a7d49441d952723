//! The WAN as traffic sees it. Needs root and `/dev/net/tun`; without them it says so and is
//! counted as skipped by `cargo xtask test`.

use super::{CableSide, FAR_ADDRESS4, FAR_ADDRESS6, Wan, WanOptions, available, netns, sys};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

const RTT: Duration = Duration::from_millis(20);
/// Long enough for any reply on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long silence must last to count as loss.
const SILENCE: Duration = Duration::from_millis(200);

/// Whether the test must be skipped here; tells the test runner, which counts these.
fn must_skip(test: &str) -> bool {
    let Err(reason) = available() else {
        return false;
    };
    eprintln!("SKIPPED {test}: {reason:#}");
    if let Some(path) = std::env::var_os("FARSHORE_TEST_SKIPS") {
        let mut list = std::fs::File::options().append(true).create(true).open(path).expect("the list of skips");
        writeln!(list, "{test}: {reason:#}").expect("the list of skips takes a line");
    }
    true
}

fn start(test: &str) -> Wan {
    let name = format!("test-{}-{test}", std::process::id());
    Wan::start(WanOptions { name: Some(name), ..WanOptions::link(RTT.as_nanos() as u64, 100_000_000) }).expect("a WAN")
}

impl Wan {
    fn command_line(&self, line: &str) {
        let answer = super::control::ask(&self.control_path(), line).expect("a known command");
        assert_eq!(answer, "ok");
    }

    fn inside<T: Send>(&self, side: CableSide, work: impl FnOnce() -> T + Send) -> T {
        let handle = self.namespace(side).handle();
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                sys::enter_namespace(handle).expect("our own namespace");
                work()
            });
            worker.join().expect("no panic inside")
        })
    }
}

/// A datagram socket at each side, to see what gets through which way.
struct DatagramProbe {
    near: UdpSocket,
    far: UdpSocket,
    count: u64,
}

impl DatagramProbe {
    fn new(wan: &Wan, far_address: &str) -> DatagramProbe {
        let bind = |address: SocketAddr| UdpSocket::bind(address).expect("an address of ours");
        let far_address: SocketAddr = SocketAddr::new(far_address.parse().expect("an address"), 7000);
        let any = if far_address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let far = wan.inside(CableSide::Far, || bind(far_address));
        let near = wan.inside(CableSide::Near, || bind(any.parse().expect("an address")));
        near.connect(far_address).expect("a route");
        DatagramProbe { near, far, count: 0 }
    }

    /// Sends one datagram near to far and, if it arrived, back. Returns how far it came (0: lost on
    /// the way, 1: lost on the way back, 2: all the way). `expected` decides how long to wait.
    fn legs(&mut self, bytes: usize, expected: usize) -> usize {
        self.count += 1;
        let mut datagram = vec![0; bytes];
        datagram[..8].copy_from_slice(&self.count.to_be_bytes());
        self.near.send(&datagram).expect("a route");
        let wait = |leg| if expected > leg { PATIENCE } else { SILENCE };
        let Some(source) = receive(&self.far, self.count, wait(0)) else {
            return 0;
        };
        self.far.send_to(&datagram, source).expect("a route");
        if receive(&self.near, self.count, wait(1)).is_some() { 2 } else { 1 }
    }
}

fn receive(socket: &UdpSocket, number: u64, wait: Duration) -> Option<SocketAddr> {
    socket.set_read_timeout(Some(wait)).expect("a timeout above zero");
    let mut buffer = [0; 2000];
    let (bytes, source) = socket.recv_from(&mut buffer).ok()?;
    assert!(bytes >= 8 && buffer[..8] == number.to_be_bytes(), "an older datagram came after its time");
    Some(source)
}

#[test]
fn a_cable_carries_delays_and_can_be_cut_one_way() {
    if must_skip("a_cable_carries_delays_and_can_be_cut_one_way") {
        return;
    }
    let wan = start("cut");
    let mut addresses = vec![FAR_ADDRESS4];
    if netns::has_ipv6() {
        addresses.push(FAR_ADDRESS6);
    }
    for address in addresses {
        let mut probe = DatagramProbe::new(&wan, address);
        let start = Instant::now();
        assert_eq!(probe.legs(100, 2), 2);
        assert!(start.elapsed() >= RTT, "faster than the cable is long");
        for (command, legs) in [("cut", 0), ("restore", 2), ("cut ab", 0), ("restore ab", 2), ("cut ba", 1)] {
            wan.command_line(command);
            assert_eq!(probe.legs(100, legs), legs, "after `{command}` over {address}");
        }
        wan.command_line("restore");
        assert_eq!(probe.legs(100, 2), 2);
    }
}

#[test]
fn a_cut_takes_what_is_in_flight() {
    if must_skip("a_cut_takes_what_is_in_flight") {
        return;
    }
    let wan = start("flight");
    let probe = DatagramProbe::new(&wan, FAR_ADDRESS4);
    wan.command_line("delay 1s");
    probe.near.send(&[1; 100]).expect("a route");
    let ab = &wan.network.ab;
    let deadline = Instant::now() + PATIENCE;
    while ab.pipe().next_due_ns().is_none() {
        assert!(Instant::now() < deadline, "the datagram never set out");
        std::thread::yield_now();
    }
    wan.command_line("cut");
    wan.command_line("restore");
    assert_eq!(ab.pipe().counters().dropped_cut, 1);
    probe.far.set_read_timeout(Some(Duration::from_millis(1200))).expect("a timeout above zero");
    assert!(probe.far.recv(&mut [0; 200]).is_err(), "it arrived although the cable was cut");
}

#[test]
fn large_packets_vanish_without_a_word() {
    if must_skip("large_packets_vanish_without_a_word") {
        return;
    }
    let wan = start("size");
    let mut probe = DatagramProbe::new(&wan, FAR_ADDRESS4);
    wan.command_line("drop-above ab 1000");
    assert_eq!(probe.legs(972, 2), 2, "972 and 28 bytes of headers still fit");
    assert_eq!(probe.legs(973, 0), 0);
    wan.command_line("drop-above none");
    assert_eq!(probe.legs(973, 2), 2);
    assert_eq!(wan.network.ab.pipe().counters().dropped_too_big, 1);
}

#[test]
fn tcp_does_not_notice_a_flipped_bit() {
    if must_skip("tcp_does_not_notice_a_flipped_bit") {
        return;
    }
    const BYTES: usize = 1 << 20;
    let wan = start("corrupt");
    for (corrupt, is_damaged) in [("corrupt 0", false), ("corrupt ab 5%", true)] {
        wan.command_line(corrupt);
        let far = format!("{FAR_ADDRESS4}:7001");
        let listener = wan.inside(CableSide::Far, || TcpListener::bind(&far).expect("a free port"));
        let mut near = wan.inside(CableSide::Near, || TcpStream::connect(&far).expect("a listener"));
        let receiver = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a caller");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout above zero");
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).expect("a whole stream");
            bytes
        });
        near.write_all(&[0; BYTES]).expect("a reader");
        drop(near);
        let bytes = receiver.join().expect("no panic inside");
        assert_eq!(bytes.len(), BYTES);
        let flipped: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(flipped > 0, is_damaged, "{flipped} bits differ after `{corrupt}`");
    }
}
