//! The door of the waiting end: everybody who dials is heard at the same time, so that a stranger who is slow keeps nobody out.
//!
//! A door belongs to one invitation. What must hold:
//! * only so many are heard at a time, of one address and of all: whoever came first goes first, and a stranger who calls without end
//!   is in his own way before he is in anybody else's;
//! * only so many are named: the line that somebody is to copy stays on the screen;
//! * the first that proves the token is the only one: with the door whatever others have proven is gone.

use std::collections::VecDeque;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::Builder;
use std::time::Duration;

use super::line::{Invitation, JoinLine, LineError};

/// So many of one address are heard at a time; the node that is meant calls once.
const ADDRESS_CALLERS_MAX: usize = 4;
/// So many of all addresses: each is a thread and two descriptors, for 12 seconds at most.
const CALLERS_MAX: usize = 32;
/// So many lines an address is worth, and all addresses together: a terminal has 24, and the invitation takes a few.
const ADDRESS_LINES_MAX: usize = 3;
const LINES_MAX: usize = 12;
const _: () = assert!(ADDRESS_CALLERS_MAX < CALLERS_MAX && ADDRESS_LINES_MAX < LINES_MAX);

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
    /// Whom a line has named.
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

    /// Hangs up on the oldest of this address, or of all, if there are too many.
    fn make_room(&mut self, ip: IpAddr) {
        let of_address = self.callers.iter().filter(|caller| caller.ip == ip).count();
        let oldest = if of_address >= ADDRESS_CALLERS_MAX {
            self.callers.iter().position(|caller| caller.ip == ip)
        } else {
            (self.callers.len() >= CALLERS_MAX).then_some(0)
        };
        if let Some(caller) = oldest.and_then(|at| self.callers.remove(at)) {
            hang_up(&caller);
        }
    }

    fn turned_away(&mut self, ip: IpAddr, error: &LineError, say: &dyn Fn(&str)) {
        let of_address = self.named.iter().filter(|named| **named == ip).count();
        if of_address >= ADDRESS_LINES_MAX || self.named.len() >= LINES_MAX {
            return;
        }
        self.named.push(ip);
        let is_last = of_address + 1 == ADDRESS_LINES_MAX || self.named.len() == LINES_MAX;
        let more = if is_last { "; further ones are not named" } else { "" };
        say(&format!("somebody at {ip} was turned away: {error}{more}"));
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.callers.iter().for_each(hang_up);
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
        for _ in 0..2 * ADDRESS_CALLERS_MAX {
            strangers.push(slow(&mut door, &listener, address(1)));
        }
        assert_eq!(door.callers.len(), ADDRESS_CALLERS_MAX, "one address is not everybody");
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

    /// The line with the token is to stay on the screen.
    #[test]
    fn strangers_are_named_a_few_times() {
        let mut door = Door::new(Invitation::make().expect("made"));
        let said = RefCell::new(Vec::new());
        let say = |text: &str| said.borrow_mut().push(text.to_owned());
        for _ in 0..100 {
            door.turned_away(address(1), &LineError::Late, &say);
        }
        assert_eq!(said.borrow().len(), ADDRESS_LINES_MAX);
        assert!(said.borrow().last().is_some_and(|last| last.ends_with("further ones are not named")));
        for last in 2..100 {
            door.turned_away(address(last), &LineError::Late, &say);
        }
        assert_eq!(said.borrow().len(), LINES_MAX);
    }
}
