//! The messages of the handshake, byte by byte: what each looks like and how long it may be. Who may send which when, and what
//! it proves, is [`super`]'s.
//!
//! What must hold:
//! * nothing is allocated before the message's prefix was checked against the one kind and length that may come now.

use super::error::{AuthError, Versions};
use super::secret::MAC_BYTES;
use crate::node_name::{NAME_BYTES_MAX, is_name};

pub const NONCE_BYTES: usize = 32;
/// Bytes before each message's body: magic, kind, three zeroes, length of the body.
pub const PREFIX_BYTES: usize = 12;
/// Group definitions that a peer may send for the comparison: a thousand groups with room for long paths.
pub const DEFINITIONS_BYTES_MAX: usize = 1 << 20;
/// All that is read from, or sent to, a peer that has not proven the secret.
pub const BEFORE_PROOF_BYTES_MAX: usize = 1024;

const MAGIC: [u8; 4] = *b"FSHA";
/// How a TLS client begins.
const TLS_HANDSHAKE: [u8; 2] = [22, 3];
const HELLO_FIXED_BYTES: usize = 2 + 8 + 8 + NONCE_BYTES + MAC_BYTES;
const HELLO_BYTES_MAX: usize = HELLO_FIXED_BYTES + 3 * (1 + NAME_BYTES_MAX) + ANNOUNCED_BYTES;
pub(super) const CHALLENGE_BYTES: usize = 2 + NONCE_BYTES + MAC_BYTES;
/// The shortest retransmission pause, behind the rest of a Hello or Challenge; left out when none is wanted.
const ANNOUNCED_BYTES: usize = 4;
/// What stands there instead in the Hello of a control connection. A node that knows of none takes such a Hello for malformed.
const CONTROL: u8 = 1;
/// The same of a connection on which the peer asks for a volume that is lent to it.
const VOLUME: u8 = 2;
const ANSWER_BYTES_MAX: usize = 1 + 2 * (1 + NAME_BYTES_MAX) + MAC_BYTES;

const _: () = assert!(
    4 * PREFIX_BYTES + HELLO_BYTES_MAX + CHALLENGE_BYTES + ANNOUNCED_BYTES + MAC_BYTES + ANSWER_BYTES_MAX
        <= BEFORE_PROOF_BYTES_MAX
);

/// What an acceptor sends to a peer that has not proven the secret, whatever the reason.
pub const REFUSAL: [u8; PREFIX_BYTES] = prefix(MessageKind::Refused, 0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum MessageKind {
    Hello = 1,
    Challenge = 2,
    Proof = 3,
    Answer = 4,
    Definitions = 5,
    Refused = 255,
}

impl MessageKind {
    /// Shortest and longest body.
    fn lengths(self) -> (usize, usize) {
        match self {
            MessageKind::Hello => (HELLO_FIXED_BYTES + 6, HELLO_BYTES_MAX),
            MessageKind::Challenge => (CHALLENGE_BYTES, CHALLENGE_BYTES + ANNOUNCED_BYTES),
            MessageKind::Proof => (MAC_BYTES, MAC_BYTES),
            MessageKind::Answer => (1 + 4 + MAC_BYTES, ANSWER_BYTES_MAX),
            MessageKind::Definitions => (MAC_BYTES, DEFINITIONS_BYTES_MAX + MAC_BYTES),
            MessageKind::Refused => (0, 0),
        }
    }
}

pub(super) const fn prefix(kind: MessageKind, length: u32) -> [u8; PREFIX_BYTES] {
    let n = length.to_le_bytes();
    [MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], kind as u8, 0, 0, 0, n[0], n[1], n[2], n[3]]
}

pub(super) fn message(kind: MessageKind, body: &[u8]) -> Vec<u8> {
    let (min, max) = kind.lengths();
    assert!((min..=max).contains(&body.len()), "a {kind:?} of {} bytes", body.len());
    [&prefix(kind, body.len() as u32)[..], body].concat()
}

/// Checks a message's prefix where this kind is expected: bytes of the body to read now.
pub(super) fn body_bytes(bytes: &[u8; PREFIX_BYTES], expected: MessageKind) -> Result<usize, AuthError> {
    let [m0, m1, m2, m3, kind, z0, z1, z2, l0, l1, l2, l3] = *bytes;
    if [m0, m1] == TLS_HANDSHAKE {
        return Err(AuthError::SpeaksTls);
    }
    if [m0, m1, m2, m3] != MAGIC || [z0, z1, z2] != [0; 3] {
        return Err(AuthError::NotFarshore);
    }
    let length = u32::from_le_bytes([l0, l1, l2, l3]);
    if kind == MessageKind::Refused as u8 && length == 0 {
        return Err(AuthError::Refused);
    }
    if kind != expected as u8 {
        return Err(AuthError::OutOfTurn { kind, expected: expected as u8 });
    }
    let (min, max) = expected.lengths();
    if !(min..=max).contains(&(length as usize)) {
        return Err(AuthError::WrongLength { bytes: length, min, max });
    }
    Ok(length as usize)
}

/// What an acceptor that was shown the secret thinks of the dialer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum AuthVerdict {
    Welcome = 0,
    Itself = 1,
    WrongCluster = 2,
    NotTheExpected = 3,
    UnknownNode = 4,
    WrongDirection = 5,
}

impl AuthVerdict {
    pub fn from_byte(byte: u8) -> Option<AuthVerdict> {
        use AuthVerdict::*;
        [Welcome, Itself, WrongCluster, NotTheExpected, UnknownNode, WrongDirection]
            .into_iter()
            .find(|v| *v as u8 == byte)
    }
}

/// What a connection is for. The dialer says it in its Hello, which both proofs cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionKind {
    /// The link: frames of all groups.
    Frames,
    /// One request of a daemon to its peer, and the reply.
    Control,
    /// Requests of clients of the dialer, for a volume that is served to it alone.
    Volume,
}

/// Which of a dialer's connections is the newer one. Connections of one run of a process are ordered by `number`; of
/// different runs, the one that arrives later is newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Random, drawn when the process started.
    pub run: u64,
    pub number: u64,
}

impl Attempt {
    /// Whether `self`, arriving after `other`, was nevertheless dialed before it.
    pub(crate) fn is_older_than(self, other: Attempt) -> bool {
        self.run == other.run && self.number < other.number
    }
}

/// A dialer's opening message, read.
#[derive(Clone, Debug)]
pub(super) struct Hello {
    pub versions: Versions,
    pub attempt: Attempt,
    pub nonce: [u8; NONCE_BYTES],
    pub digest: [u8; MAC_BYTES],
    pub dialer: String,
    pub acceptor: String,
    pub cluster: String,
    pub rto_min_us: u32,
    pub kind: ConnectionKind,
}

impl Hello {
    pub fn encode(&self) -> Vec<u8> {
        let mut body = vec![self.versions.min, self.versions.max];
        body.extend(self.attempt.run.to_le_bytes());
        body.extend(self.attempt.number.to_le_bytes());
        body.extend(self.nonce);
        body.extend(self.digest);
        for name in [&self.dialer, &self.acceptor, &self.cluster] {
            put_name(&mut body, name);
        }
        match self.kind {
            ConnectionKind::Frames => put_announced(&mut body, self.rto_min_us),
            ConnectionKind::Control => body.push(CONTROL),
            ConnectionKind::Volume => body.push(VOLUME),
        }
        message(MessageKind::Hello, &body)
    }

    pub fn decode(body: &[u8]) -> Option<Hello> {
        let mut fields = MessageFields(body);
        let mut hello = Hello {
            versions: fields.versions()?,
            attempt: Attempt { run: fields.u64()?, number: fields.u64()? },
            nonce: fields.array()?,
            digest: fields.array()?,
            dialer: fields.name()?,
            acceptor: fields.name()?,
            cluster: fields.name()?,
            rto_min_us: 0,
            kind: ConnectionKind::Frames,
        };
        let kind = match fields.0 {
            [CONTROL] => Some(ConnectionKind::Control),
            [VOLUME] => Some(ConnectionKind::Volume),
            _ => None,
        };
        if let Some(kind) = kind {
            return Some(Hello { kind, ..hello });
        }
        hello.rto_min_us = fields.announced()?;
        fields.0.is_empty().then_some(hello)
    }
}

pub(super) fn put_name(body: &mut Vec<u8>, name: &str) {
    assert!(is_name(name), "names are checked when the configuration is read");
    body.push(name.len() as u8);
    body.extend(name.as_bytes());
}

pub(super) fn put_announced(body: &mut Vec<u8>, rto_min_us: u32) {
    if rto_min_us > 0 {
        body.extend(rto_min_us.to_le_bytes());
    }
}

/// Takes fields off the front; `None` past the end.
pub(super) struct MessageFields<'a>(pub &'a [u8]);

impl MessageFields<'_> {
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn versions(&mut self) -> Option<Versions> {
        let [min, max] = self.array()?;
        (min <= max).then_some(Versions { min, max })
    }

    /// The last field, which may be left out; a zero is no reason to send it.
    pub fn announced(&mut self) -> Option<u32> {
        if self.0.is_empty() {
            return Some(0);
        }
        self.array().map(u32::from_le_bytes).filter(|us| *us > 0)
    }

    pub fn name(&mut self) -> Option<String> {
        let [length] = self.array()?;
        let (head, rest) = self.0.split_at_checked(usize::from(length))?;
        self.0 = rest;
        let name = std::str::from_utf8(head).ok()?;
        is_name(name).then(|| name.to_owned())
    }
}
