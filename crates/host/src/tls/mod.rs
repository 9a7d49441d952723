//! TLS 1.3 between nodes, and for NBD clients: who they are, and the bytes that travel.
//!
//! `credentials` are a node's own certificate and key, and the authorities that it believes. `trust` and `verify` check the
//! certificate of the other side, `refusal` says in words what is wrong with it. `clients` says who may ask for what.
//! `channel` encrypts and decrypts. `facts` reads what a certificate says, for people.
//!
//! What must hold:
//! * nothing older than TLS 1.3 is spoken, nothing is sent before the handshake is done, no session is resumed;
//! * a node's name is in its certificate, as `farshore://CLUSTER/node/NAME`; an NBD client's certificate has no such
//!   name, so whoever holds one cannot pass for a node, and no node for a client;
//! * who is inside is verified again whenever what is believed changes;
//! * whatever is wrong with a certificate ends the handshake on both sides with a sentence that says what to do.

mod channel;
pub mod clients;
mod credentials;
pub mod facts;
mod refusal;
mod revoked;
mod trust;
mod twins;
mod verify;

pub(crate) use channel::{Channel, ChannelError, Raw, TlsReceived};
pub use clients::{Access, Clients, Rights};
pub use credentials::{CredentialStore, Credentials, Paths, WARN_BEFORE, warning};
pub use facts::{CertificateFacts, MemberIdentity, Party};
pub use refusal::refusal_of;
pub use revoked::Revoked;
