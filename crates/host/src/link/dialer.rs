//! Reaching a peer beside the link: a connection whose other end has proven to be that node.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpStream;

use super::auth::{Attempt, AuthError, ConnectionKind, Handshake};
use super::authenticate::{HandshakeProgress, LinkFailure, ours_on, run_handshake};
use super::link_stream::LinkStream;
use super::{Ourselves, SocketOptions, tcp};
use crate::random::{entropy, random};
use crate::tls::{ChannelError, CredentialStore};

/// Dials peers by what the links of this node prove.
pub struct PeerDialer {
    ours: RefCell<Rc<Ourselves>>,
    tls: Option<CredentialStore>,
    /// Of two connections the acceptor knows the newer one.
    run: u64,
    dialed: Cell<u64>,
}

/// A connection whose other end has proven to be the peer, and the key that both have.
pub(super) struct ReachedPeer {
    pub line: LinkStream,
    pub key: [u8; 32],
}

impl PeerDialer {
    pub fn new(ours: Ourselves, tls: Option<CredentialStore>) -> PeerDialer {
        PeerDialer { ours: RefCell::new(Rc::new(ours)), tls, run: entropy(), dialed: Cell::new(0) }
    }

    /// Other definitions of groups, from the next connection on.
    pub fn set_definitions(&self, definitions: String) {
        let ours = Ourselves { definitions, ..(**self.ours.borrow()).clone() };
        *self.ours.borrow_mut() = Rc::new(ours);
    }

    /// The caller bounds the time of the proof; `limit`: of the connection.
    ///
    /// # Errors
    /// A sentence about the peer ("it ..."): it is not there, or is not who it should be.
    pub(super) async fn reach(
        &self,
        peer: &str,
        address: SocketAddr,
        (limit, kind): (Duration, ConnectionKind),
    ) -> Result<ReachedPeer, String> {
        let (stream, _) = tcp::connect(address, &SocketOptions::default(), limit)
            .await
            .map_err(|error| format!("cannot connect to {address}: {error}"))?;
        self.prove(stream, peer, kind).await.map_err(|failure| match failure {
            LinkFailure::Auth(AuthError::Refused) => {
                "it refused the connection: its farshore is older and does not know what it is for (upgrade it), or the secret files differ; \
                 its own log says which"
                    .to_owned()
            }
            other => other.to_string(),
        })
    }

    async fn prove(&self, stream: TcpStream, peer: &str, kind: ConnectionKind) -> Result<ReachedPeer, LinkFailure> {
        let names = [peer.to_owned()];
        let channel = self.tls.as_ref().map(|tls| tls.current().dial(&names)).transpose();
        let line = LinkStream::new(stream, channel.map_err(ChannelError::from)?);
        let ours = self.ours.borrow().clone();
        let ours = ours_on(&ours, &line).await?;
        self.dialed.set(self.dialed.get() + 1);
        let attempt = Attempt { run: self.run, number: self.dialed.get() };
        let (mut handshake, hello) = Handshake::dial_beside(ours, peer, random()?, attempt, kind);
        let mut progress = run_handshake(&line, &mut handshake, hello).await?;
        if let HandshakeProgress::Proven(send) = progress {
            // Told to the end, so that the peer's log says what differs and not that somebody hung up.
            progress = run_handshake(&line, &mut handshake, send).await?;
        }
        match progress {
            HandshakeProgress::Done(result) => {
                result.map(|peer| ReachedPeer { line, key: peer.key }).map_err(LinkFailure::Auth)
            }
            HandshakeProgress::Proven(_) => Err(LinkFailure::Auth(AuthError::Malformed)),
        }
    }
}
