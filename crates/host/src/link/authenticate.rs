//! Drives the handshake of [`auth`](super::auth) over a line, and says in words why a connection came to nothing.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use super::auth::{AuthError, Authenticated, ClusterSecret, Handshake, Ourselves, PREFIX_BYTES};
use super::link_stream::LinkStream;
use crate::report_limiter::ReportSubject;
use crate::tls::ChannelError;
use crate::unauthenticated::HANDSHAKES_PER_S;

/// Peers whose definitions differ, and that tell theirs at this moment: each sends up to 1 MiB and may take minutes. Nodes dial one
/// connection at a time; more than this is not what a node does.
pub(super) const COMPARING_MAX: usize = 16;

/// Why a connection came to nothing.
pub(super) enum LinkFailure {
    Auth(AuthError),
    Channel(ChannelError),
    /// Its end of the encrypted connection is not that of a link.
    NoLink,
    TooSlow(Duration),
    PushedOut(usize),
    TooMany,
    Comparing,
    /// What this node defines is something else by now.
    Redefined,
    Address(String),
}

impl fmt::Display for LinkFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkFailure::Auth(error) => error.fmt(f),
            LinkFailure::Channel(ChannelError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                write!(f, "it closed the connection before both sides had proven who they are")
            }
            LinkFailure::Channel(ChannelError::Io(error)) => write!(f, "the connection failed: {error}"),
            LinkFailure::Channel(error) => error.fmt(f),
            LinkFailure::NoLink => {
                write!(f, "it speaks TLS, but it is no end of a link: something else is at that address")
            }
            LinkFailure::TooSlow(limit) => write!(f, "it did not prove who it is within {limit:?}"),
            LinkFailure::PushedOut(limit) => {
                write!(
                    f,
                    "more than {limit} connections were waiting to prove who they are, and it was among those to go"
                )
            }
            LinkFailure::TooMany => {
                write!(
                    f,
                    "more than {HANDSHAKES_PER_S} connections a second come from its network, or too many from others, so it was turned away"
                )
            }
            LinkFailure::Redefined => {
                write!(f, "this node's definitions of groups changed while the two compared them; they connect again")
            }
            LinkFailure::Comparing => {
                write!(
                    f,
                    "more than {COMPARING_MAX} connections were telling other definitions of the groups than this node's"
                )
            }
            LinkFailure::Address(why) => write!(f, "{why}"),
        }
    }
}

impl LinkFailure {
    /// What makes it another failure than the one before: no words that an unauthenticated peer chose.
    pub fn kind(&self, about: ReportSubject) -> String {
        match (self, about) {
            // Names in these sentences are the other side's own.
            (LinkFailure::Auth(error), _) => format!("{:?}", std::mem::discriminant(error)),
            (LinkFailure::Channel(error), ReportSubject::Unauthenticated(_)) => {
                format!("channel {:?}", std::mem::discriminant(error))
            }
            (failure, ReportSubject::Unauthenticated(_)) => format!("{:?}", std::mem::discriminant(failure)),
            (failure, ReportSubject::Peer(_)) => failure.to_string(),
        }
    }
}

impl From<io::Error> for LinkFailure {
    fn from(error: io::Error) -> LinkFailure {
        LinkFailure::Channel(error.into())
    }
}

impl From<ChannelError> for LinkFailure {
    fn from(error: ChannelError) -> LinkFailure {
        LinkFailure::Channel(error)
    }
}

/// Whom the other end's certificate names.
pub(super) fn certified(line: &LinkStream) -> Option<String> {
    line.certificate().and_then(|facts| facts.identity).map(|identity| identity.name)
}

/// What a node says of itself on a line. An encrypted one has a secret of its own, which takes the place of the shared
/// one: to prove it is to be at this line's other end.
pub(super) async fn ours_on(ours: &Rc<Ourselves>, line: &LinkStream) -> Result<Rc<Ourselves>, LinkFailure> {
    line.shake().await?;
    if line.is_misled() {
        return Err(LinkFailure::NoLink);
    }
    Ok(match line.binding()? {
        None => ours.clone(),
        Some(binding) => Rc::new(Ourselves { secret: ClusterSecret::new(&binding), ..(**ours).clone() }),
    })
}

/// How far a handshake came.
pub(super) enum HandshakeProgress {
    Done(Result<Authenticated, AuthError>),
    /// The peer holds the secret but means other groups; these bytes are to be sent next.
    Proven(Vec<u8>),
}

/// Drives a handshake over a line until it ends, or until the peer has just proven the secret. Reads exactly the
/// handshake's bytes, so that the frames behind it stay in the line.
pub(super) async fn run_handshake(
    line: &LinkStream,
    handshake: &mut Handshake,
    mut send: Vec<u8>,
) -> Result<HandshakeProgress, LinkFailure> {
    let was_proven = handshake.peer_is_proven();
    loop {
        if handshake.peer_is_proven() && !was_proven {
            return Ok(HandshakeProgress::Proven(send));
        }
        line.write_all(&send).await?;
        let mut prefix = [0; PREFIX_BYTES];
        line.read_exact(&mut prefix).await?;
        let mut body = vec![0; handshake.body_bytes(&prefix).unwrap_or(0)];
        line.read_exact(&mut body).await?;
        let step = handshake.receive(&prefix, &body);
        if let Some(outcome) = step.outcome {
            line.write_all(&step.send).await?;
            return Ok(HandshakeProgress::Done(outcome));
        }
        send = step.send;
    }
}
