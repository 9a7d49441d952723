//! A long wire inside one process, for machines where nobody may create network namespaces.
//!
//! A TCP relay on loopback: what is read on one side leaves on the other after the one-way delay, no faster than the rate.
//! Like a real line it holds one bandwidth-delay product each way and no more: when it is full it stops reading, its small
//! receive buffer fills, and the sender feels it. It can be cut (both ways or one) and restored while running.
//!
//! What it shows truthfully: round trip, rate, back-pressure, an outage, a half-open connection, a reset.
//!
//! What it cannot show, because each side speaks TCP with the relay and not with the other end:
//! * loss, reordering, corruption, packet sizes: a byte stream has none of them;
//! * TCP's behaviour over the distance: slow start, congestion control, retransmission timeouts, window limits. A fresh
//!   connection runs at the full rate at once, and `TCP_INFO` shows the round trip of loopback;
//! * a lost handshake: a connection attempt during a cut succeeds with the relay, and then hears nothing until the end of
//!   the cut. Whoever has a time limit on the first answer runs into that one instead;
//! * what an outage does to bytes on their way. They are held and go on after it, as if TCP had sent them again the very
//!   moment the line was back; they cannot be dropped, since a stream with a gap is not one TCP would ever deliver. Use
//!   [`Relay::reset`] for a line (or a firewall on it) that has forgotten its connections.
//!
//! Timers have a resolution of one millisecond, so delays are up to that much longer, never shorter. Headers cost nothing
//! here: a real line of the same rate carries about 4 % less payload.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Bytes read at once: 1.3 ms at 100 Mbit/s.
const PIECE_BYTES: usize = 16 << 10;
/// The kernel's share of what the relay holds, asked for on each of its sockets: room for loopback's own 64 KiB segments,
/// little beside a bandwidth-delay product worth emulating.
const KERNEL_BYTES: u32 = 128 << 10;
/// A short or slow line still holds a few pieces, else it could not keep its rate.
const HELD_BYTES_MIN: usize = 4 * PIECE_BYTES;

/// What the line is like.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// Where connections arrive; port 0 lets the kernel choose, [`Relay::address`] tells.
    pub listen: SocketAddr,
    /// Where each of them leads.
    pub target: SocketAddr,
    /// Both ways together.
    pub rtt: Duration,
    /// Bits per second, each way.
    pub rate_bits: u64,
}

impl RelayOptions {
    /// Bytes the line holds each way.
    fn held_bytes_max(&self) -> usize {
        let product = self.rate_bits as f64 / 8.0 * self.rtt.as_secs_f64();
        (product as usize).max(HELD_BYTES_MIN)
    }
}

/// A direction through the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayDirection {
    /// From those who connect to the target.
    Out = 0,
    /// From the target back.
    Back = 1,
}

/// What went through, by [`RelayDirection`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayStats {
    /// Bytes that have left on the far side.
    pub forwarded_bytes: [u64; 2],
    /// Bytes on the line now.
    pub held_bytes: [u64; 2],
    pub connections_open: u64,
}

#[derive(Clone, Debug, Default)]
struct RelayControl {
    cut: [bool; 2],
    /// What enters the line takes so much longer, each way.
    slower: Duration,
    resets: u64,
    stop: bool,
}

#[derive(Default)]
struct RelayCounters {
    forwarded: [AtomicU64; 2],
    held: [AtomicU64; 2],
    open: AtomicU64,
}

/// A running relay. Dropping it ends its connections and its thread.
pub struct Relay {
    address: SocketAddr,
    control: watch::Sender<RelayControl>,
    counters: Arc<RelayCounters>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts on a thread of its own.
    ///
    /// # Errors
    /// The listening address cannot be bound, or the thread not be made.
    pub fn start(options: RelayOptions) -> io::Result<Relay> {
        assert!(options.rate_bits > 0, "a line of no rate is a cut one");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _guard = runtime.enter();
            let socket = new_socket(options.listen)?;
            socket.set_reuseaddr(true)?;
            socket.bind(options.listen)?;
            socket.listen(64)?
        };
        let address = listener.local_addr()?;
        let (control, orders) = watch::channel(RelayControl::default());
        let counters = Arc::new(RelayCounters::default());
        let line = RelayLine { options, orders, counters: counters.clone() };
        let thread = std::thread::Builder::new()
            .name("relay".into())
            .spawn(move || runtime.block_on(line.accept_all(listener)))?;
        Ok(Relay { address, control, counters, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Nothing passes any more, in either direction; connections stay open.
    pub fn cut(&self) {
        self.control.send_modify(|control| control.cut = [true; 2]);
    }

    /// Nothing passes this way; the other way stays as it is.
    pub fn cut_one_way(&self, way: RelayDirection) {
        self.control.send_modify(|control| control.cut[way as usize] = true);
    }

    /// Everything passes again, beginning with what was held.
    pub fn restore(&self) {
        self.control.send_modify(|control| control.cut = [false; 2]);
    }

    /// From now on the line takes so much longer each way than it did in the beginning; zero: as it was.
    pub fn slow_down(&self, by: Duration) {
        self.control.send_modify(|control| control.slower = by);
    }

    /// Breaks all connections there are, with all that is on the line.
    pub fn reset(&self) {
        self.control.send_modify(|control| control.resets += 1);
    }

    pub fn stats(&self) -> RelayStats {
        let both = |counters: &[AtomicU64; 2]| [0, 1].map(|way| counters[way].load(Ordering::Relaxed));
        RelayStats {
            forwarded_bytes: both(&self.counters.forwarded),
            held_bytes: both(&self.counters.held),
            connections_open: self.counters.open.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.control.send_modify(|control| control.stop = true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the relay's thread failed");
        }
    }
}

fn new_socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_recv_buffer_size(KERNEL_BYTES)?;
    socket.set_send_buffer_size(KERNEL_BYTES)?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// What every connection of the relay needs.
#[derive(Clone)]
struct RelayLine {
    options: RelayOptions,
    orders: watch::Receiver<RelayControl>,
    counters: Arc<RelayCounters>,
}

impl RelayLine {
    async fn accept_all(mut self, listener: TcpListener) {
        loop {
            let RelayControl { cut, stop, .. } = *self.orders.borrow_and_update();
            if stop {
                return;
            }
            // A handshake needs both ways.
            let open = !cut[0] && !cut[1];
            tokio::select! {
                changed = self.orders.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                accepted = listener.accept(), if open => match accepted {
                    Ok((near, _)) => { tokio::spawn(self.clone().carry(near)); }
                    // Out of descriptors: those that end give some back.
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                },
            }
        }
    }

    /// One connection, from its beginning to its end.
    async fn carry(mut self, near: TcpStream) {
        self.counters.open.fetch_add(1, Ordering::Relaxed);
        let resets = self.orders.borrow_and_update().resets;
        let (near_in, mut near_out) = near.into_split();
        match self.dial().await {
            Err(_) => reset(near_out),
            Ok(far) => {
                let (far_in, mut far_out) = far.into_split();
                if self.carry_both_ways(resets, (&near_in, &mut near_out), (&far_in, &mut far_out)).await.is_err() {
                    // A line that breaks, breaks for both.
                    reset(near_out);
                    reset(far_out);
                }
            }
        }
        self.counters.open.fetch_sub(1, Ordering::Relaxed);
    }

    async fn dial(&self) -> io::Result<TcpStream> {
        new_socket(self.options.target)?.connect(self.options.target).await
    }

    async fn carry_both_ways(
        &mut self,
        resets: u64,
        near: (&OwnedReadHalf, &mut OwnedWriteHalf),
        far: (&OwnedReadHalf, &mut OwnedWriteHalf),
    ) -> io::Result<()> {
        let out = RelayPipe::new(self, RelayDirection::Out).run(near.0, far.1);
        let back = RelayPipe::new(self, RelayDirection::Back).run(far.0, near.1);
        let ended = self.orders.wait_for(|control| control.stop || control.resets != resets);
        tokio::select! {
            result = async { tokio::try_join!(out, back) } => result.map(drop),
            _ = ended => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }
}

/// Ends a connection the rude way. An orderly end must not come here: what the kernel still holds is thrown away.
fn reset(stream: OwnedWriteHalf) {
    // Failing that, it ends with an orderly close, which the other side notices as well.
    let _ = stream.as_ref().set_zero_linger();
    stream.forget();
}

/// One direction of one connection.
struct RelayPipe {
    way: usize,
    orders: watch::Receiver<RelayControl>,
    counters: Arc<RelayCounters>,
    /// Pieces on the line, each with the moment it arrives.
    line: VecDeque<(Instant, Vec<u8>)>,
    held_bytes: usize,
    held_bytes_max: usize,
    one_way: Duration,
    seconds_per_byte: f64,
    /// The sender's end of the line is busy until then.
    free_at: Instant,
}

impl RelayPipe {
    fn new(line: &RelayLine, way: RelayDirection) -> RelayPipe {
        RelayPipe {
            way: way as usize,
            orders: line.orders.clone(),
            counters: line.counters.clone(),
            line: VecDeque::new(),
            held_bytes: 0,
            held_bytes_max: line.options.held_bytes_max(),
            one_way: line.options.rtt / 2,
            seconds_per_byte: 8.0 / line.options.rate_bits as f64,
            free_at: Instant::now(),
        }
    }

    async fn run(mut self, from: &OwnedReadHalf, to: &mut OwnedWriteHalf) -> io::Result<()> {
        let mut piece = vec![0; PIECE_BYTES];
        let mut at_end = false;
        loop {
            if self.orders.borrow_and_update().cut[self.way] {
                // The relay's owner is gone, or the order changed: either way look again.
                self.orders.changed().await.map_err(|_| io::ErrorKind::ConnectionAborted)?;
                continue;
            }
            if at_end && self.line.is_empty() {
                return to.shutdown().await;
            }
            let room = self.held_bytes_max.saturating_sub(self.held_bytes).min(PIECE_BYTES);
            let arrival = self.line.front().map(|(due, _)| *due);
            let arrive = async {
                sleep_until(arrival.unwrap_or_else(Instant::now)).await;
                to.writable().await
            };
            tokio::select! {
                biased;
                changed = self.orders.changed() => changed.map_err(|_| io::ErrorKind::ConnectionAborted)?,
                ready = arrive, if arrival.is_some() => {
                    ready?;
                    self.deliver(to)?;
                }
                ready = from.readable(), if room > 0 && !at_end => {
                    ready?;
                    match from.try_read(&mut piece[..room]) {
                        Ok(0) => at_end = true,
                        Ok(bytes) => self.enter(&piece[..bytes]),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }

    /// A piece enters the line at its near end.
    fn enter(&mut self, bytes: &[u8]) {
        let begin = self.free_at.max(Instant::now());
        self.free_at = begin + Duration::from_secs_f64(bytes.len() as f64 * self.seconds_per_byte);
        let slower = self.orders.borrow().slower;
        self.line.push_back((self.free_at + self.one_way + slower, bytes.to_vec()));
        self.held_bytes += bytes.len();
        assert!(self.held_bytes <= self.held_bytes_max, "a full line takes nothing");
        self.counters.held[self.way].fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }

    /// What has reached the far end leaves, as far as it is taken.
    fn deliver(&mut self, to: &OwnedWriteHalf) -> io::Result<()> {
        let Some((_, piece)) = self.line.front_mut() else { return Ok(()) };
        let bytes = match to.try_write(piece) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        piece.drain(..bytes);
        if piece.is_empty() {
            self.line.pop_front();
        }
        self.held_bytes -= bytes;
        self.counters.held[self.way].fetch_sub(bytes as u64, Ordering::Relaxed);
        self.counters.forwarded[self.way].fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for RelayPipe {
    fn drop(&mut self) {
        self.counters.held[self.way].fetch_sub(self.held_bytes as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener as StdListener, TcpStream as StdStream};
    use std::time::Instant as StdInstant;

    /// Longest that anything may take on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    struct RelayWire {
        relay: Relay,
        near: StdStream,
        far: StdStream,
    }

    fn wire(rtt_ms: u64, rate_bits: u64) -> RelayWire {
        let target = StdListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay::start(RelayOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            target: target.local_addr().unwrap(),
            rtt: Duration::from_millis(rtt_ms),
            rate_bits,
        })
        .unwrap();
        let near = StdStream::connect(relay.address()).unwrap();
        let (far, _) = target.accept().unwrap();
        for end in [&near, &far] {
            end.set_nodelay(true).unwrap();
            end.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        RelayWire { relay, near, far }
    }

    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|n| (n * 31 % 253) as u8).collect()
    }

    #[test]
    fn a_round_trip_takes_at_least_as_long_as_it_was_set() {
        let mut wire = wire(40, 1_000_000_000);
        for n in 0..3u8 {
            let begun = StdInstant::now();
            wire.near.write_all(&[n]).unwrap();
            let mut byte = [0];
            wire.far.read_exact(&mut byte).unwrap();
            assert!(begun.elapsed() >= Duration::from_millis(20));
            wire.far.write_all(&byte).unwrap();
            wire.near.read_exact(&mut byte).unwrap();
            assert!(begun.elapsed() >= Duration::from_millis(40));
            assert_eq!(byte, [n]);
        }
    }

    #[test]
    fn bytes_come_through_unchanged_and_no_faster_than_the_rate() {
        let RelayWire { relay, mut near, mut far } = wire(10, 80_000_000);
        let sent = pattern(3_000_000);
        let begun = StdInstant::now();
        let copy = sent.clone();
        let writer = std::thread::spawn(move || {
            near.write_all(&copy).unwrap();
            near.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            near.read_to_end(&mut answer).unwrap();
            answer
        });
        let mut received = Vec::new();
        far.read_to_end(&mut received).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(300), "3 MB at 80 Mbit/s");
        assert!(received == sent);
        far.write_all(&sent[..100_000]).unwrap();
        drop(far);
        assert!(writer.join().unwrap() == sent[..100_000]);
        assert_eq!(relay.stats().forwarded_bytes, [3_000_000, 100_000]);
    }

    #[test]
    fn a_full_line_stops_reading() {
        let RelayWire { relay, mut near, mut far } = wire(80, 20_000_000);
        let bound = 200_000;
        near.set_nonblocking(true).unwrap();
        let mut written = 0;
        let begun = StdInstant::now();
        // The far end reads nothing: first its kernel buffer fills, then the line, then ours.
        let mut idle_since = StdInstant::now();
        while idle_since.elapsed() < Duration::from_millis(500) || relay.stats().held_bytes[0] < bound {
            match near.write(&[7; 10_000]) {
                Ok(bytes) => {
                    written += bytes;
                    idle_since = StdInstant::now();
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
            assert!(relay.stats().held_bytes[0] <= bound);
            assert!(begun.elapsed() < PATIENCE, "the writer is never stopped");
        }
        near.set_nonblocking(false).unwrap();
        near.shutdown(std::net::Shutdown::Write).unwrap();
        let mut received = Vec::new();
        far.read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), written);
    }

    fn is_silent(stream: &mut StdStream) -> bool {
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let silent = matches!(stream.read(&mut [0; 1]), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        silent
    }

    #[test]
    fn a_cut_holds_everything_and_a_restore_lets_it_go_on() {
        let RelayWire { relay, mut near, mut far } = wire(2, 1_000_000_000);
        relay.cut();
        near.write_all(b"hello").unwrap();
        far.write_all(b"there").unwrap();
        assert!(is_silent(&mut near) && is_silent(&mut far));
        relay.restore();
        let mut word = [0; 5];
        far.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"hello");
        near.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"there");
    }

    #[test]
    fn a_one_way_cut_lets_the_other_way_pass() {
        let RelayWire { relay, mut near, mut far } = wire(2, 1_000_000_000);
        relay.cut_one_way(RelayDirection::Back);
        near.write_all(b"x").unwrap();
        far.write_all(b"y").unwrap();
        let mut byte = [0];
        far.read_exact(&mut byte).unwrap();
        assert!(is_silent(&mut near));
        relay.restore();
        near.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"y");
    }

    #[test]
    fn a_reset_and_the_end_of_the_relay_break_connections() {
        let RelayWire { relay, mut near, mut far } = wire(2, 1_000_000_000);
        relay.reset();
        assert!(near.read(&mut [0; 1]).is_err());
        assert!(far.read(&mut [0; 1]).is_err());
        let mut again = StdStream::connect(relay.address()).unwrap();
        again.set_read_timeout(Some(PATIENCE)).unwrap();
        drop(relay);
        assert!(matches!(again.read(&mut [0; 1]), Ok(0) | Err(_)));
    }

    #[test]
    fn an_absent_target_breaks_the_connection() {
        let target = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let relay = Relay::start(RelayOptions { listen, target, rtt: Duration::ZERO, rate_bits: 1_000_000 }).unwrap();
        let mut near = StdStream::connect(relay.address()).unwrap();
        near.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(matches!(near.read(&mut [0; 1]), Ok(0) | Err(_)));
    }
}
