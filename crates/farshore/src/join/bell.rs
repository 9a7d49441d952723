//! Whether a port is open from the other machine: one end listens and says a word, the other dials and compares.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Words have this length.
pub const WORD_BYTES: usize = 32;
/// Pause between two looks at the door.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// A word is told at once, or not.
const WORD_PATIENCE: Duration = Duration::from_secs(2);

/// Listens, and says its word to everybody who dials, until it is dropped: then the port is free again.
pub struct Bell {
    word: String,
    is_over: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

impl Bell {
    /// # Errors
    /// What the kernel says of the address.
    pub fn hang(address: SocketAddr) -> io::Result<Bell> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let bytes = super::line::random::<{ WORD_BYTES / 2 }>()?;
        let word: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let is_over = Arc::new(AtomicBool::new(false));
        let (told, over) = (word.clone(), is_over.clone());
        let listening = std::thread::Builder::new().name("bell".into()).spawn(move || {
            while !over.load(Ordering::Acquire) {
                match listener.accept() {
                    Ok((socket, _)) => tell(socket, &told),
                    Err(_) => std::thread::sleep(LOOK_AGAIN),
                }
            }
        })?;
        Ok(Bell { word, is_over, listening: Some(listening) })
    }

    /// What it says.
    pub fn word(&self) -> &str {
        &self.word
    }
}

/// Whoever went away meanwhile hears nothing.
fn tell(mut socket: TcpStream, word: &str) {
    let _ = socket.set_nonblocking(false);
    let _ = socket.set_write_timeout(Some(WORD_PATIENCE));
    let _ = socket.write_all(word.as_bytes());
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
    }
}

/// Why a bell was not heard.
#[derive(Debug)]
pub enum Unheard {
    /// No connection, or it broke off.
    Closed(io::Error),
    /// Somebody else is there.
    Another,
}

/// Dials, and listens for that word; `patience` for each of the two.
///
/// # Errors
/// See [`Unheard`].
pub fn ring(address: SocketAddr, word: &str, patience: Duration) -> Result<(), Unheard> {
    let mut socket = TcpStream::connect_timeout(&address, patience).map_err(Unheard::Closed)?;
    socket.set_read_timeout(Some(patience)).map_err(Unheard::Closed)?;
    let mut heard = [0; WORD_BYTES];
    socket.read_exact(&mut heard).map_err(|_| Unheard::Another)?;
    if heard[..] == *word.as_bytes() { Ok(()) } else { Err(Unheard::Another) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(500);

    #[test]
    fn a_bell_is_heard_while_it_hangs_and_its_port_is_free_afterwards() {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
        let bell = Bell::hang(free).expect("hung");
        for _ in 0..3 {
            ring(free, bell.word(), PATIENCE).expect("heard");
        }
        assert!(matches!(ring(free, &"0".repeat(WORD_BYTES), PATIENCE), Err(Unheard::Another)));
        assert_eq!(Bell::hang(free).err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));
        drop(bell);
        let refused = ring(free, "word", PATIENCE);
        assert!(matches!(&refused, Err(Unheard::Closed(error)) if error.kind() == io::ErrorKind::ConnectionRefused));
        Bell::hang(free).expect("free again");
    }

    #[test]
    fn who_says_nothing_is_somebody_else() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = silent.local_addr().expect("an address");
        assert!(matches!(ring(address, &"0".repeat(WORD_BYTES), PATIENCE), Err(Unheard::Another)));
    }
}
