//! The loop that feeds a negotiation, and TLS in its midst.
//!
//! One question is answered at a time, then everybody else has a turn.

use std::rc::Rc;
use std::sync::Arc;

use super::connection::{ClientConnection, LeaveReason};
use super::negotiation::{Encryption, Negotiation, NegotiationStep, greeting};
use super::proto::{self, OPTION_BYTES};
use super::receive_buffer::ReceiveBuffer;
use super::session::ClientSession;
use super::visible_exports::VisibleExports;
use crate::frontend::Gateway;
use crate::tls::{CertificateFacts, ChannelError, CredentialStore, Rights};

/// Why a client found no export.
pub(super) enum NoSession {
    /// It left, or asked for what there is not.
    Left(&'static str),
    /// It was kept out, for a reason that an operator may have to see to.
    Refused(String),
}

impl From<&'static str> for NoSession {
    fn from(reason: &'static str) -> NoSession {
        NoSession::Left(reason)
    }
}

/// The listener's half of TLS: whether clients need it, and by which credentials.
#[derive(Clone, Debug, Default)]
pub(super) struct ListenerTls {
    pub encryption: Encryption,
    pub store: Option<CredentialStore>,
}

/// Whether there is room at an export; if not, a sentence for the client.
pub(super) type AdmitClient<'a> = &'a dyn Fn(&str) -> Result<(), String>;

/// What the server has to say while a client looks for its export.
#[derive(Clone, Copy)]
pub(super) struct HandshakeContext<'a> {
    pub tls: &'a ListenerTls,
    pub admit: AdmitClient<'a>,
    /// Called with an export that is there, and that the client may not use.
    pub denied: &'a dyn Fn(&str),
    /// Called with the certificate that the client has shown.
    pub shown: &'a dyn Fn(&CertificateFacts),
}

/// Leads a client to an export. The session it returns is attached to the gateway; an error says why there is none.
pub(super) async fn negotiate(
    connection: &Rc<ClientConnection>,
    gateway: &Rc<dyn Gateway>,
    context: HandshakeContext<'_>,
) -> Result<ClientSession, NoSession> {
    let mut negotiation = Negotiation::new(context.tls.encryption);
    match converse(connection, gateway, context, &mut negotiation).await {
        Err(NoSession::Left(reason)) if negotiation.was_ordered_to_encrypt() => {
            let reason = format!("it asked without TLS, which is required here, and then: {reason}");
            Err(NoSession::Refused(reason))
        }
        result => result,
    }
}

async fn converse(
    connection: &Rc<ClientConnection>,
    gateway: &Rc<dyn Gateway>,
    context: HandshakeContext<'_>,
    negotiation: &mut Negotiation,
) -> Result<ClientSession, NoSession> {
    let mut received = ReceiveBuffer::new();
    let mut out = Vec::new();
    let mut visible = VisibleExports::new(&**gateway, Rights::All, context.denied);
    connection.say(&greeting());
    connection.push_all().await?;
    let flags = u32::from_be_bytes(receive(connection, &mut received).await?);
    negotiation.client_flags(flags).map_err(|malformed| malformed.0)?;
    loop {
        let header = receive::<OPTION_BYTES>(connection, &mut received).await?;
        let header = proto::parse_option_header(&header).map_err(|malformed| malformed.0)?;
        let admitted = negotiation.admit(header, &visible, &mut out).map_err(|malformed| malformed.0);
        let mut step = match admitted {
            Ok(()) => {
                let length = header.length as usize;
                await_bytes(connection, &mut received, length).await?;
                let step = negotiation.answer(header.kind, &received.unread()[..length], &visible, &mut out);
                received.consume(length);
                step
            }
            Err(reason) => NegotiationStep::Close(reason),
        };
        if let NegotiationStep::Enter(entry) = &step {
            match (context.admit)(&entry.name).map(|()| gateway.attach(&entry.name, connection.clone())) {
                Ok(Some((export, client))) => {
                    let terms = negotiation.welcome(entry, &export, &mut out);
                    connection.entered(&export.name, terms.agreed());
                    connection.say(&out);
                    // From here on the session's own end detaches, even if nobody hears the welcome.
                    return Ok(ClientSession::new(connection.clone(), gateway.clone(), client, terms, received));
                }
                Ok(None) => step = negotiation.turn_away(entry, &mut out),
                Err(reason) => step = negotiation.turn_away_full(entry, &reason, &mut out),
            }
        }
        connection.say(&out);
        out.clear();
        connection.push_all().await?;
        match step {
            NegotiationStep::Close(reason) => return Err(reason.into()),
            NegotiationStep::Encrypt => {
                let rights = encrypt(connection, &received, &context).await?;
                visible = VisibleExports::new(&**gateway, rights, context.denied);
                negotiation.encrypted();
            }
            NegotiationStep::Continue | NegotiationStep::Enter(_) => {}
        }
        // Whoever has many questions waits after each until everybody else had a turn.
        tokio::task::yield_now().await;
    }
}

/// Begins TLS; what the client may do from here on.
async fn encrypt(
    connection: &ClientConnection,
    received: &ReceiveBuffer,
    context: &HandshakeContext<'_>,
) -> Result<Rights, NoSession> {
    // Bytes from before the encryption would be taken for encrypted ones: somebody on the way could put them there.
    if !received.unread().is_empty() {
        return Err(NoSession::Refused("it sent more in the clear after it had asked for TLS".to_owned()));
    }
    let store = context.tls.store.as_ref().expect("TLS is offered with credentials only");
    let refused = |error: &dyn std::fmt::Display| NoSession::Refused(error.to_string());
    let credentials = store.current();
    let channel = credentials.accept_nbd().map_err(|error| refused(&error))?;
    connection.encrypt(channel).await.map_err(|error| match error {
        ChannelError::Io(error) => refused(&format_args!("the connection broke in the TLS handshake: {error}")),
        error => refused(&error),
    })?;
    let facts = connection.socket().certificate();
    match &facts {
        Some(facts) => (context.shown)(facts),
        None => tracing::debug!("an NBD client at {} uses TLS without a certificate", connection.origin().who),
    }
    let current = store.current();
    let rights = match Arc::ptr_eq(&current, &credentials) {
        true => credentials.rights_of(facts.as_ref()),
        // Somebody may have been revoked while the two were shaking hands.
        false => current.verify_client(&connection.socket().chain().unwrap_or_default()),
    };
    rights.map_err(NoSession::Refused)
}

async fn receive<const N: usize>(
    connection: &ClientConnection,
    received: &mut ReceiveBuffer,
) -> Result<[u8; N], &'static str> {
    await_bytes(connection, received, N).await?;
    let bytes = *received.peek::<N>().expect("the bytes were just awaited");
    received.consume(N);
    Ok(bytes)
}

async fn await_bytes(
    connection: &ClientConnection,
    received: &mut ReceiveBuffer,
    count: usize,
) -> Result<(), &'static str> {
    received.reserve(count);
    while received.unread().len() < count {
        connection.readable().await;
        if connection.leaving() != LeaveReason::No {
            return Err("the server stopped during the handshake");
        }
        match received.fill(connection.socket(), &mut []) {
            Ok(filled) if filled.total == Some(0) => {
                return Err("the client left during the handshake");
            }
            Ok(_) => {}
            Err(_) => return Err("the connection broke during the handshake"),
        }
    }
    Ok(())
}
