//! The loop that feeds a negotiation, and TLS in its midst.
//!
//! One question is answered at a time, then everybody else has a turn.

use std::rc::Rc;
use std::sync::Arc;

use super::connection::{Connection, Leaving};
use super::negotiation::{Encryption, Negotiation, Step, greeting};
use super::proto::{self, OPTION_BYTES};
use super::receive_buffer::ReceiveBuffer;
use super::session::Session;
use super::visible_exports::VisibleExports;
use crate::frontend::Gateway;
use crate::tls::{ChannelError, Facts, Rights, Store};

/// Why a client found no export.
pub(super) enum Outside {
    /// It left, or asked for what there is not.
    Left(&'static str),
    /// It was kept out, for a reason that an operator may have to see to.
    Refused(String),
}

impl From<&'static str> for Outside {
    fn from(reason: &'static str) -> Outside {
        Outside::Left(reason)
    }
}

/// The listener's half of TLS: whether clients need it, and by which credentials.
#[derive(Clone, Debug, Default)]
pub(super) struct Guard {
    pub encryption: Encryption,
    pub store: Option<Store>,
}

/// Whether there is a place at an export; if not, a sentence for the client.
pub(super) type Admit<'a> = &'a dyn Fn(&str) -> Result<(), String>;

/// What the server has to say while a client looks for its export.
#[derive(Clone, Copy)]
pub(super) struct House<'a> {
    pub guard: &'a Guard,
    pub admit: Admit<'a>,
    /// Told of an export that is there, and that the client may not use.
    pub denied: &'a dyn Fn(&str),
    /// Told of the certificate that the client has shown.
    pub shown: &'a dyn Fn(&Facts),
}

/// Leads a client to an export. The session it returns is attached to the gateway; an error says why there is none.
pub(super) async fn negotiate(
    connection: &Rc<Connection>,
    gateway: &Rc<dyn Gateway>,
    house: House<'_>,
) -> Result<Session, Outside> {
    let mut negotiation = Negotiation::new(house.guard.encryption);
    match converse(connection, gateway, house, &mut negotiation).await {
        Err(Outside::Left(reason)) if negotiation.was_told_to_encrypt() => {
            let reason = format!("it asked without TLS, which is required here, and then: {reason}");
            Err(Outside::Refused(reason))
        }
        result => result,
    }
}

async fn converse(
    connection: &Rc<Connection>,
    gateway: &Rc<dyn Gateway>,
    house: House<'_>,
    negotiation: &mut Negotiation,
) -> Result<Session, Outside> {
    let mut received = ReceiveBuffer::new();
    let mut out = Vec::new();
    let mut visible = VisibleExports::new(&**gateway, Rights::All, house.denied);
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
            Err(reason) => Step::Close(reason),
        };
        if let Step::Enter(entry) = &step {
            match (house.admit)(&entry.name).map(|()| gateway.attach(&entry.name, connection.clone())) {
                Ok(Some((export, client))) => {
                    connection.entered(&export.name);
                    let terms = negotiation.welcome(entry, &export, &mut out);
                    connection.say(&out);
                    // From here on the session's own end detaches, even if nobody hears the welcome.
                    return Ok(Session::new(connection.clone(), gateway.clone(), client, terms, received));
                }
                Ok(None) => step = negotiation.turn_away(entry, &mut out),
                Err(told) => step = negotiation.no_place(entry, &told, &mut out),
            }
        }
        connection.say(&out);
        out.clear();
        connection.push_all().await?;
        match step {
            Step::Close(reason) => return Err(reason.into()),
            Step::Encrypt => {
                let rights = encrypt(connection, &received, &house).await?;
                visible = VisibleExports::new(&**gateway, rights, house.denied);
                negotiation.encrypted();
            }
            Step::Continue | Step::Enter(_) => {}
        }
        // Whoever has many questions waits after each until everybody else had a turn.
        tokio::task::yield_now().await;
    }
}

/// Begins TLS; what the client may do from here on.
async fn encrypt(connection: &Connection, received: &ReceiveBuffer, house: &House<'_>) -> Result<Rights, Outside> {
    // Bytes from before the encryption would be taken for encrypted ones: somebody on the way could put them there.
    if !received.unread().is_empty() {
        return Err(Outside::Refused("it sent more in the clear after it had asked for TLS".to_owned()));
    }
    let store = house.guard.store.as_ref().expect("TLS is offered with credentials only");
    let refused = |error: &dyn std::fmt::Display| Outside::Refused(error.to_string());
    let credentials = store.current();
    let channel = credentials.accept_nbd().map_err(|error| refused(&error))?;
    connection.encrypt(channel).await.map_err(|error| match error {
        ChannelError::Io(error) => refused(&format_args!("the connection broke in the TLS handshake: {error}")),
        error => refused(&error),
    })?;
    let facts = connection.socket().certificate();
    match &facts {
        Some(facts) => (house.shown)(facts),
        None => tracing::debug!("an NBD client at {} uses TLS without a certificate", connection.origin().who),
    }
    let current = store.current();
    let rights = match Arc::ptr_eq(&current, &credentials) {
        true => credentials.rights_of(facts.as_ref()),
        // Somebody may have been revoked while the two were shaking hands.
        false => current.judge_guest(&connection.socket().chain().unwrap_or_default()),
    };
    rights.map_err(Outside::Refused)
}

async fn receive<const N: usize>(
    connection: &Connection,
    received: &mut ReceiveBuffer,
) -> Result<[u8; N], &'static str> {
    await_bytes(connection, received, N).await?;
    let bytes = *received.peek::<N>().expect("the bytes were just awaited");
    received.consume(N);
    Ok(bytes)
}

async fn await_bytes(connection: &Connection, received: &mut ReceiveBuffer, count: usize) -> Result<(), &'static str> {
    received.reserve(count);
    while received.unread().len() < count {
        connection.readable().await;
        if connection.leaving() != Leaving::No {
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
