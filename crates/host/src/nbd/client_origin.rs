//! Who is at the other end of a connection, as far as the kernel tells.

use std::net::SocketAddr;

use tokio::net::UnixStream;

use crate::report_limiter::ReportSubject;
use crate::unauthenticated::network;

/// What is shown of a program's name; the kernel keeps 15 bytes of it.
const PROGRAM_CHARS_MAX: usize = 15;

/// Who connected.
#[derive(Clone, Debug)]
pub(super) struct ClientOrigin {
    /// For people: an address, or the socket file with the process that opened it.
    pub who: String,
    /// Where it comes from; `None`: the socket file.
    pub address: Option<SocketAddr>,
    /// Who opened the socket file, as the kernel says: process and user.
    pub process: Option<i32>,
    pub user: Option<u32>,
    /// Whose share of the connections it has: a host's, or a user's of the socket file.
    pub client: String,
    /// By which of the server's listeners it came.
    pub listener: usize,
}

impl ClientOrigin {
    pub fn by_tcp(from: SocketAddr, listener: usize) -> ClientOrigin {
        let client = network(from.ip()).to_string();
        ClientOrigin { who: from.to_string(), address: Some(from), process: None, user: None, client, listener }
    }

    pub fn by_file(stream: &UnixStream, listener: usize) -> ClientOrigin {
        let host = "the socket file";
        let peer = stream.peer_cred().ok();
        let process = peer.and_then(|peer| peer.pid());
        let client = peer.map_or_else(|| host.to_owned(), |peer| format!("user {} at {host}", peer.uid()));
        let who = process.map_or_else(|| host.to_owned(), |process| format!("{host} ({})", describe(process)));
        ClientOrigin { who, address: None, process, user: peer.map(|peer| peer.uid()), client, listener }
    }

    /// A peer's daemon, for its own clients.
    pub fn by_peer(name: &str, from: SocketAddr, listener: usize) -> ClientOrigin {
        let client = format!("node {name}");
        let who = format!("{client} at {from}, for its clients");
        ClientOrigin { who, address: Some(from), process: None, user: None, client, listener }
    }

    /// Whom a complaint is about: without what changes from one attempt to the next.
    pub fn about(&self) -> ReportSubject<'_> {
        ReportSubject::Unauthenticated(&self.client)
    }
}

/// A kernel's client outlives the program that began it, so its name is looked up when it connects.
fn describe(process: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    // The name is the process's own choice.
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || ['-', '_', '.'].contains(letter);
    let name: String = name.chars().filter(is_plain).take(PROGRAM_CHARS_MAX).collect();
    if name.is_empty() { format!("process {process}") } else { format!("{name}, process {process}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_is_named() {
        let (stream, _other) = UnixStream::pair().expect("a pair");
        let origin = ClientOrigin::by_file(&stream, 0);
        let ours = format!("process {})", std::process::id());
        assert!(origin.who.starts_with("the socket file (") && origin.who.ends_with(&ours), "{}", origin.who);
        let origin = ClientOrigin::by_tcp("[::1]:99".parse().expect("an address"), 0);
        assert_eq!((origin.who.as_str(), origin.about()), ("[::1]:99", ReportSubject::Unauthenticated("::")));
    }
}
