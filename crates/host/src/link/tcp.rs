//! TCP connections between nodes: dialing, listening, and the pauses between attempts.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::tuning::{SocketDefaults, SocketOptions, SocketReport};

/// Connections that may wait in the kernel to be accepted: every peer at once, and some unauthenticated peers.
const BACKLOG: i32 = 128;

/// Connects to one address.
pub async fn connect(
    address: SocketAddr,
    options: &SocketOptions,
    timeout: Duration,
) -> io::Result<(TcpStream, SocketReport)> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    let mut report = SocketReport::default();
    report.prepare(socket.as_fd(), options);
    let connecting = TcpSocket::from_std_stream(socket.into()).connect(address);
    let stream = tokio::time::timeout(timeout, connecting)
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {timeout:?}")))??;
    report.finish(stream.as_fd(), options);
    Ok((stream, report))
}

/// A listening socket and what its accepted sockets inherit.
pub struct Listener {
    listener: TcpListener,
    untouched: SocketDefaults,
    /// What the next accepted socket is asked, and what the listener was.
    tuning: RefCell<(SocketOptions, SocketReport)>,
}

impl Listener {
    pub fn bind(address: SocketAddr, options: &SocketOptions) -> io::Result<Listener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_address(true)?;
        let untouched = SocketDefaults::of(socket.as_fd());
        let mut report = SocketReport::default();
        report.prepare(socket.as_fd(), options);
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from_std(socket.into())?;
        Ok(Listener { listener, untouched, tuning: RefCell::new((options.clone(), report)) })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Other options from the next accepted socket on; the listener itself stays open.
    pub fn retune(&self, options: &SocketOptions) {
        let mut report = SocketReport::default();
        if let Err(error) = self.untouched.restore(self.listener.as_fd()) {
            report.warnings.push(format!(
                "the listening socket keeps what it had before: {error}; a restart of the daemon makes a new one"
            ));
        }
        report.prepare(self.listener.as_fd(), options);
        *self.tuning.borrow_mut() = (options.clone(), report);
    }

    /// What the next accepted socket is asked.
    pub fn options(&self) -> SocketOptions {
        self.tuning.borrow().0.clone()
    }

    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr, SocketReport)> {
        let (stream, address) = self.listener.accept().await?;
        let (options, mut report) = self.tuning.borrow().clone();
        report.finish(stream.as_fd(), &options);
        Ok((stream, address, report))
    }
}

/// How long to wait before the next attempt: doubling, with a random half taken off so that nodes which lost each other
/// at the same instant do not come back at the same instant.
#[derive(Clone, Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
    seed: u64,
}

impl Backoff {
    pub fn new(min: Duration, max: Duration, seed: u64) -> Backoff {
        assert!(min <= max, "the first pause is the shortest");
        Backoff { min, max, next: min, seed }
    }

    /// The last attempt was good: start over.
    pub fn reset(&mut self) {
        self.next = self.min;
    }

    pub fn pause(&mut self) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(self.max);
        // SplitMix64: a few lines, and quality is no matter here.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        full - full.mul_f64(0.5 * (z >> 11) as f64 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_the_longest_and_start_over() {
        let (min, max) = (Duration::from_millis(100), Duration::from_secs(3));
        let mut backoff = Backoff::new(min, max, 5);
        let mut full = min;
        for _ in 0..10 {
            let pause = backoff.pause();
            assert!(pause >= full / 2 && pause <= full, "{pause:?} of {full:?}");
            full = (full * 2).min(max);
        }
        backoff.reset();
        assert!(backoff.pause() <= min);
        let pauses = |seed| {
            let mut backoff = Backoff::new(min, max, seed);
            (0..5).map(|_| backoff.pause()).collect::<Vec<_>>()
        };
        assert_eq!(pauses(1), pauses(1));
        assert_ne!(pauses(1), pauses(2));
    }

    async fn connected(listener: &Listener, options: &SocketOptions) -> [SocketReport; 2] {
        let address = listener.address().unwrap();
        let dialing = connect(address, options, Duration::from_secs(5));
        let (dialed, accepted) = tokio::join!(dialing, listener.accept());
        [dialed.unwrap().1, accepted.unwrap().2]
    }

    #[tokio::test]
    async fn both_ends_are_tuned_and_a_listener_is_tuned_again() {
        let pinned = SocketOptions::default().with_buffers(Some(128 << 10));
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), &pinned).unwrap();
        for report in connected(&listener, &pinned).await {
            for buffer in [report.send_buffer, report.receive_buffer] {
                assert_eq!(buffer.requested, Some(128 << 10));
                assert_eq!(buffer.granted_at_creation, 256 << 10, "{report}");
                assert_eq!(buffer.granted_when_connected, 256 << 10, "{report}");
            }
            let rto_max = report.options.iter().find(|option| option.name == "TCP_RTO_MAX_MS").unwrap();
            assert!(rto_max.granted.is_none_or(|granted| granted == 1000), "an accepted socket inherits it: {report}");
        }
        let tuned_by_the_kernel = SocketOptions::default();
        listener.retune(&tuned_by_the_kernel);
        for report in connected(&listener, &tuned_by_the_kernel).await {
            assert_eq!(report.receive_buffer.requested, None);
            assert_ne!(report.receive_buffer.granted_at_creation, 256 << 10, "{report}");
        }
    }
}
