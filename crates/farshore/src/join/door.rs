//! The door of the waiting end: everybody who dials is heard at the same time, so that a stranger who is slow keeps nobody out.
//!
//! A door belongs to one invitation. What must hold:
//! * only so many are heard at a time, of one network and of all: whoever came first goes first, and a stranger who calls without end
//!   is in his own way before he is in anybody else's; a network is an address of IPv4, or the 64 bits of IPv6 whose addresses one host
//!   may have all; nodes side by side share those, so of a network that address goes first from which most calls come;
//! * only so many are named: the line that somebody is to copy stays on the screen;
//! * the first that proves the token is the only one: with the door whatever others have proven is gone.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::Builder;
use std::time::Duration;

use super::line::{Invitation, JoinLine, LineError};

/// So many of one network are heard at a time; the node that is meant calls once.
const NETWORK_CALLERS_MAX: usize = 4;
/// So many of all networks: each is a thread and two descriptors, for 12 seconds at most.
const CALLERS_MAX: usize = 32;
/// So many lines a network is worth, and all networks together: a terminal has 24, and the invitation takes a few.
const NETWORK_LINES_MAX: usize = 3;
const LINES_MAX: usize = 12;
const _: () = assert!(NETWORK_CALLERS_MAX < CALLERS_MAX && NETWORK_LINES_MAX < LINES_MAX);

/// Who dialed, and is heard.
struct Caller {
    number: u64,
    ip: IpAddr,
    /// To hang up.
    socket: TcpStream,
}

/// What came of a caller.
struct HeardCaller {
    number: u64,
    ip: IpAddr,
    line: Result<JoinLine, LineError>,
}

/// Hears whoever dials, for one invitation.
pub struct Door {
    invitation: Arc<Invitation>,
    /// How many have dialed.
    count: u64,
    /// The longest heard first.
    callers: VecDeque<Caller>,
    /// The networks of whom a line has named.
    named: Vec<IpAddr>,
    give: Sender<HeardCaller>,
    heard: Receiver<HeardCaller>,
}

impl Door {
    pub fn new(invitation: Invitation) -> Door {
        let (give, heard) = mpsc::channel();
        let (callers, named) = (VecDeque::new(), Vec::new());
        Door { invitation: Arc::new(invitation), count: 0, callers, named, give, heard }
    }

    /// Who gets in.
    pub fn invitation(&self) -> &Invitation {
        &self.invitation
    }

    /// Hears one more, besides the others. Blocks only where the system has no thread to spare.
    pub fn hear(&mut self, socket: TcpStream, ip: IpAddr) {
        self.make_room(ip);
        // Without a descriptor to spare nobody is heard; whoever called may call again.
        let Ok(held) = socket.try_clone() else { return };
        self.count += 1;
        let number = self.count;
        let (invitation, give) = (self.invitation.clone(), self.give.clone());
        let hear = move || {
            let line = JoinLine::accept(&invitation, socket);
            // A door that is gone wants nobody any more.
            let _ = give.send(HeardCaller { number, ip, line });
        };
        match Builder::new().name("door".into()).spawn(hear) {
            Ok(_) => self.callers.push_back(Caller { number, ip, socket: held }),
            Err(_) => {
                let line = JoinLine::accept(&self.invitation, held);
                let _ = self.give.send(HeardCaller { number, ip, line });
            }
        }
    }

    /// The first that has proven the token; waits for somebody to be heard for `patience` at most. `say` is told of who has not proven it.
    pub fn proven(&mut self, mut patience: Duration, say: &dyn Fn(&str)) -> Option<(IpAddr, JoinLine)> {
        // Only the first is waited for: others may be at the door.
        while let Ok(HeardCaller { number, ip, line }) = self.heard.recv_timeout(std::mem::take(&mut patience)) {
            self.callers.retain(|caller| caller.number != number);
            match line {
                Ok(line) => return Some((ip, line)),
                Err(error) => self.turned_away(ip, &error, say),
            }
        }
        None
    }

    /// If there are too many, hangs up on the oldest of this network's address from which most calls come, or on the oldest of all.
    fn make_room(&mut self, ip: IpAddr) {
        let is_near = |caller: &Caller| network(caller.ip) == network(ip);
        // Whoever dials now counts too.
        let calls = |of: IpAddr| {
            let all = self.callers.iter().map(|caller| caller.ip).chain([ip]);
            all.filter(|from| from.to_canonical() == of.to_canonical()).count()
        };
        let of_network = self.callers.iter().filter(|caller| is_near(caller)).count();
        let oldest = if of_network >= NETWORK_CALLERS_MAX {
            let most = self.callers.iter().filter(|caller| is_near(caller)).map(|caller| calls(caller.ip)).max();
            self.callers.iter().position(|caller| is_near(caller) && Some(calls(caller.ip)) == most)
        } else {
            (self.callers.len() >= CALLERS_MAX).then_some(0)
        };
        if let Some(caller) = oldest.and_then(|at| self.callers.remove(at)) {
            hang_up(&caller);
        }
    }

    fn turned_away(&mut self, ip: IpAddr, error: &LineError, say: &dyn Fn(&str)) {
        let network = network(ip);
        let of_network = self.named.iter().filter(|named| **named == network).count();
        if of_network >= NETWORK_LINES_MAX || self.named.len() >= LINES_MAX {
            return;
        }
        self.named.push(network);
        let is_last = of_network + 1 == NETWORK_LINES_MAX || self.named.len() == LINES_MAX;
        let more = if is_last { "; further ones are not named" } else { "" };
        say(&format!("somebody at {ip} was turned away: {error}{more}"));
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.callers.iter().for_each(hang_up);
    }
}

/// What counts as one caller: a host of IPv6 takes any address of its 64 bits. One of IPv4 that came by IPv6 is one of IPv4.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => IpAddr::V4(ip),
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX))),
    }
}

/// Ends the thread that hears a caller; it fails where the caller has gone already.
fn hang_up(caller: &Caller) {
    let _ = caller.socket.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// Somebody who dials `listener` and says one byte, heard as one of that address.
    fn slow(door: &mut Door, listener: &TcpListener, ip: IpAddr) -> TcpStream {
        let mut stranger = TcpStream::connect(listener.local_addr().expect("an address")).expect("connects");
        stranger.write_all(&[0x16]).expect("sent");
        door.hear(listener.accept().expect("a connection").0, ip);
        stranger
    }

    // proves: P10
    /// Strangers who are slow, more than there is room for, and then the node that is meant.
    #[test]
    fn slow_strangers_keep_nobody_out() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut door = Door::new(Invitation::make().expect("made"));
        let mut strangers = Vec::new();
        for _ in 0..2 * NETWORK_CALLERS_MAX {
            strangers.push(slow(&mut door, &listener, address(1)));
        }
        assert_eq!(door.callers.len(), NETWORK_CALLERS_MAX, "one address is not everybody");
        for at in 0..=CALLERS_MAX {
            strangers.push(slow(&mut door, &listener, address(u8::try_from(at + 2).expect("few"))));
            assert!(door.callers.len() <= CALLERS_MAX);
        }
        // Who was hung up on notices.
        let patience = Duration::from_secs(5);
        strangers[0].set_read_timeout(Some(patience)).expect("set");
        let ended = strangers[0].read(&mut [0]).map_err(|error| error.kind());
        assert!(matches!(ended, Ok(0) | Err(ErrorKind::ConnectionReset)), "{ended:?}");
        let token = door.invitation().token(listener.local_addr().expect("an address"), u64::MAX);
        let dialing = std::thread::spawn(move || JoinLine::dial(&token, patience).map(drop));
        door.hear(listener.accept().expect("a connection").0, address(1));
        let began = Instant::now();
        let proven = loop {
            if let Some((ip, _line)) = door.proven(Duration::from_millis(10), &|_| {}) {
                break ip;
            }
            assert!(began.elapsed() < patience, "it is not heard");
        };
        assert_eq!(proven, address(1));
        dialing.join().expect("no panic").expect("proven");
    }

    // proves: P10
    /// One host of IPv6 has as many addresses as it likes: it took every place, and every line.
    #[test]
    fn a_stranger_of_many_addresses_is_one_stranger() {
        let of_host = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 7, 0, 0, 0, last]);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut door = Door::new(Invitation::make().expect("made"));
        let meant = slow(&mut door, &listener, IpAddr::from([0x2001, 0xdb8, 0, 8, 0, 0, 0, 1]));
        let strangers: Vec<_> = (0..2 * 32).map(|last| slow(&mut door, &listener, of_host(last))).collect();
        assert_eq!(door.callers.len(), NETWORK_CALLERS_MAX + 1);
        assert_eq!(door.callers.front().map(|caller| caller.number), Some(1), "who is meant is heard as before");
        drop((meant, strangers));

        let said = RefCell::new(0);
        (0..100).for_each(|last| door.turned_away(of_host(last), &LineError::Late, &|_| *said.borrow_mut() += 1));
        assert_eq!(*said.borrow(), NETWORK_LINES_MAX);
        let mapped = |last: u16| IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0x0a00, last]);
        assert_eq!(network(mapped(1)), address(1));
        assert_ne!(network(mapped(1)), network(mapped(2)));
    }

    // proves: P10
    /// Nodes side by side share the 64 bits: one that called without end from its own address kept its neighbour out.
    #[test]
    fn a_stranger_of_one_address_is_not_its_network() {
        let beside = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 7, 0, 0, 0, last]);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut door = Door::new(Invitation::make().expect("made"));
        let meant = slow(&mut door, &listener, beside(1));
        let strangers: Vec<_> = (0..2 * NETWORK_CALLERS_MAX).map(|_| slow(&mut door, &listener, beside(2))).collect();
        assert_eq!(door.callers.len(), NETWORK_CALLERS_MAX);
        assert_eq!(door.callers.front().map(|caller| caller.number), Some(1), "who is meant is heard as before");
        drop((meant, strangers));
    }

    /// The line with the token is to stay on the screen.
    #[test]
    fn strangers_are_named_a_few_times() {
        let mut door = Door::new(Invitation::make().expect("made"));
        let said = RefCell::new(Vec::new());
        let say = |text: &str| said.borrow_mut().push(text.to_owned());
        for _ in 0..100 {
            door.turned_away(address(1), &LineError::Late, &say);
        }
        assert_eq!(said.borrow().len(), NETWORK_LINES_MAX);
        assert!(said.borrow().last().is_some_and(|last| last.ends_with("further ones are not named")));
        for last in 2..100 {
            door.turned_away(address(last), &LineError::Late, &say);
        }
        assert_eq!(said.borrow().len(), LINES_MAX);
    }
}
