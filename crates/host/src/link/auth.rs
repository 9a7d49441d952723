//! Who is there? Mutual challenge and response between two nodes that share a secret, without a byte of I/O.
//!
//! Two people who share a password prove it to each other through a door, in a way that a third person listening or
//! talking through the door learns nothing and can repeat nothing:
//!
//! ```text
//! dialer                                                      acceptor
//!   Hello      versions, attempt, nonce, digest, names, kind      ->
//!   <-            Challenge   versions, nonce, digest
//!   Proof      HMAC(secret, "dialer", Hello, Challenge)           ->      wrong: Refused, and no word why
//!   <-            Answer      verdict, name, cluster, HMAC(secret, "acceptor", Hello, Challenge, these)
//!   only if the digests differ:
//!   <-            Definitions text, HMAC(session key, "acceptor", text)
//!   Definitions text, HMAC(session key, "dialer", text)           ->
//! ```
//!
//! What must hold:
//! * both proofs cover every byte of both opening messages, so role, names, nonces, versions, cluster and the digests of
//!   both group definitions; each role has its own label, so a reflected message never verifies;
//! * until a peer has proven the secret it gets at most [`BEFORE_PROOF_BYTES_MAX`] bytes of attention, and a dialer
//!   learns a nonce, a version range and a keyed digest of this node; why it was refused is in this node's log only.
//!   A peer that *has* proven the secret is told the reason in an authenticated verdict, for the operator who misspelt a
//!   name;
//! * whoever answers at a dialed address learns the names in the greeting and can test guesses of the secret at leisure,
//!   as anybody can who listens on the line: the secret has to be random bytes, not a word;
//! * nothing is allocated before the message's prefix was checked, see [`message`].
//!
//! On an encrypted line TLS goes around all of this and changes none of it: the secret is then one that only the two ends
//! of this connection know. Off an encrypted line the frames that follow are checksummed, not encrypted.

mod error;
mod message;
mod secret;

use std::fmt;
use std::rc::Rc;

use engine::SessionId;

pub use error::{AuthError, Versions};
pub use message::{
    Attempt, BEFORE_PROOF_BYTES_MAX, ConnectionKind, DEFINITIONS_BYTES_MAX, NONCE_BYTES, PREFIX_BYTES, REFUSAL,
};
use message::{AuthVerdict, Hello, MessageFields, MessageKind, body_bytes, message, put_announced, put_name};
pub use secret::ClusterSecret;
pub(super) use secret::{MAC_BYTES, keyed, same};

/// What a node says of itself, and whom it knows.
#[derive(Clone, Debug)]
pub struct Ourselves {
    pub cluster: String,
    pub node: String,
    /// Names of all other nodes ([`super::Links`] fills this in from its configuration).
    pub peers: Vec<String>,
    pub secret: ClusterSecret,
    /// The definitions of all groups as text, the same bytes on every node that means the same.
    pub definitions: String,
    pub versions: Versions,
}

impl Ourselves {
    /// Keyed, so that a listener cannot test guesses of the definitions.
    fn digest(&self) -> [u8; MAC_BYTES] {
        self.secret.mac("farshore 1 definitions digest", &[self.definitions.as_bytes()])
    }
}

/// A peer that has proven the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Authenticated {
    pub peer: String,
    pub session: SessionId,
    /// For keyed hashes of this session; both ends hold the same.
    pub key: [u8; 32],
    pub version: u8,
    pub attempt: Attempt,
    /// The shortest retransmission pause it would like, microseconds; 0: none.
    pub rto_min_us: u32,
    /// As the dialer said.
    pub kind: ConnectionKind,
    /// Its definitions of groups, where they differ from ours.
    pub differing: Option<String>,
}

impl fmt::Debug for Authenticated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authenticated({} session {:016x} version {})", self.peer, self.session.0, self.version)
    }
}

/// Result of one message.
#[derive(Debug, Default)]
pub struct HandshakeStep {
    /// Send these bytes, even when the outcome is an error.
    pub send: Vec<u8>,
    /// The end of the handshake; `None`: wait for the next message.
    pub outcome: Option<Result<Authenticated, AuthError>>,
}

impl HandshakeStep {
    fn end(send: Vec<u8>, outcome: Result<Authenticated, AuthError>) -> HandshakeStep {
        HandshakeStep { send, outcome: Some(outcome) }
    }
}

/// Both opening messages as they went over the wire: what every proof covers.
#[derive(Clone, Debug)]
struct OpeningMessages {
    hello: Vec<u8>,
    challenge: Vec<u8>,
}

impl OpeningMessages {
    fn mac(&self, secret: &ClusterSecret, label: &str, more: &[u8]) -> [u8; MAC_BYTES] {
        secret.mac(label, &[&self.hello, &self.challenge, more])
    }

    fn proof(&self, secret: &ClusterSecret) -> [u8; MAC_BYTES] {
        self.mac(secret, "farshore 1 dialer proof", &[])
    }

    fn answer(&self, secret: &ClusterSecret, verdict: &[u8]) -> [u8; MAC_BYTES] {
        self.mac(secret, "farshore 1 acceptor answer", verdict)
    }

    fn authenticated(&self, secret: &ClusterSecret, peer: &str, version: u8, attempt: Attempt) -> Authenticated {
        let [a, b, c, d, e, f, g, h, ..] = self.mac(secret, "farshore 1 session id", &[]);
        // Zero means "no session" elsewhere.
        let session = SessionId(u64::from_le_bytes([a, b, c, d, e, f, g, h]).max(1));
        let key = self.mac(secret, "farshore 1 session key", &[]);
        let kind = ConnectionKind::Frames;
        Authenticated { peer: peer.to_owned(), session, key, version, attempt, rto_min_us: 0, kind, differing: None }
    }
}

/// Who signs the definitions.
const DIALER_DEFINITIONS: &str = "farshore 1 dialer definitions";
const ACCEPTOR_DEFINITIONS: &str = "farshore 1 acceptor definitions";

fn definitions_message(ours: &Ourselves, key: &[u8; 32], label: &str) -> Vec<u8> {
    // A truncated text still shows the first difference.
    let mut end = ours.definitions.len().min(DEFINITIONS_BYTES_MAX);
    while !ours.definitions.is_char_boundary(end) {
        end -= 1;
    }
    let text = &ours.definitions[..end];
    message(MessageKind::Definitions, &[&keyed(key, label, &[text.as_bytes()])[..], text.as_bytes()].concat())
}

fn read_definitions(body: &[u8], key: &[u8; 32], label: &str) -> Result<String, AuthError> {
    let (mac, text) = body.split_first_chunk::<MAC_BYTES>().ok_or(AuthError::Malformed)?;
    if !same(mac, &keyed(key, label, &[text])) {
        return Err(AuthError::WrongSecret);
    }
    String::from_utf8(text.to_vec()).map_err(|_| AuthError::Malformed)
}

enum HandshakeStage {
    /// Dialer: waits for the challenge.
    Greeted {
        hello: Vec<u8>,
        expected: String,
        attempt: Attempt,
    },
    /// Dialer: waits for the answer.
    Proved {
        opening: OpeningMessages,
        expected: String,
        version: u8,
        attempt: Attempt,
        definitions_differ: bool,
        rto_min_us: u32,
    },
    /// Acceptor: waits for the hello.
    Listening {
        nonce: [u8; NONCE_BYTES],
    },
    /// Acceptor: waits for the proof.
    Challenged {
        opening: OpeningMessages,
        hello: Hello,
        version: u8,
    },
    /// Both: waits for the definitions that differ; `answer` is what the dialer then sends.
    Comparing {
        peer: Authenticated,
        label: &'static str,
        answer: Vec<u8>,
    },
    Over,
}

/// One side of one handshake.
pub struct Handshake {
    ours: Rc<Ourselves>,
    stage: HandshakeStage,
    /// Whom the dialer's certificate names; `None`: it has none.
    certified: Option<String>,
    /// The shortest retransmission pause an acceptor would like, microseconds; 0: none.
    rto_min_us: u32,
    /// What the dialer wants.
    kind: ConnectionKind,
}

impl Handshake {
    /// Dials the node named `expected`; send the bytes returned.
    pub fn dial(
        ours: Rc<Ourselves>,
        expected: &str,
        nonce: [u8; NONCE_BYTES],
        attempt: Attempt,
    ) -> (Handshake, Vec<u8>) {
        Handshake::dial_announcing(ours, expected, nonce, attempt, 0)
    }

    /// The same, with the shortest retransmission pause this node would like, in microseconds.
    pub(crate) fn dial_announcing(
        ours: Rc<Ourselves>,
        expected: &str,
        nonce: [u8; NONCE_BYTES],
        attempt: Attempt,
        rto_min_us: u32,
    ) -> (Handshake, Vec<u8>) {
        Handshake::dial_as(ours, expected, nonce, attempt, (rto_min_us, ConnectionKind::Frames))
    }

    /// Dials the node named `expected` for something else than a link; either node of a pair may.
    pub(crate) fn dial_beside(
        ours: Rc<Ourselves>,
        expected: &str,
        nonce: [u8; NONCE_BYTES],
        attempt: Attempt,
        kind: ConnectionKind,
    ) -> (Handshake, Vec<u8>) {
        Handshake::dial_as(ours, expected, nonce, attempt, (0, kind))
    }

    fn dial_as(
        ours: Rc<Ourselves>,
        expected: &str,
        nonce: [u8; NONCE_BYTES],
        attempt: Attempt,
        (rto_min_us, kind): (u32, ConnectionKind),
    ) -> (Handshake, Vec<u8>) {
        let hello = Hello {
            versions: ours.versions,
            attempt,
            nonce,
            digest: ours.digest(),
            dialer: ours.node.clone(),
            acceptor: expected.to_owned(),
            cluster: ours.cluster.clone(),
            rto_min_us,
            kind,
        }
        .encode();
        let stage = HandshakeStage::Greeted { hello: hello.clone(), expected: expected.to_owned(), attempt };
        (Handshake { ours, stage, certified: None, rto_min_us, kind }, hello)
    }

    /// Waits for a dialer's hello.
    pub fn accept(ours: Rc<Ourselves>, nonce: [u8; NONCE_BYTES]) -> Handshake {
        let (stage, kind) = (HandshakeStage::Listening { nonce }, ConnectionKind::Frames);
        Handshake { ours, stage, certified: None, rto_min_us: 0, kind }
    }

    /// As an acceptor: whom the dialer's certificate names. It may speak for nobody else.
    pub fn certified(self, name: Option<String>) -> Handshake {
        Handshake { certified: name, ..self }
    }

    /// As an acceptor: the shortest retransmission pause this node would like, told to a dialer that tells its own.
    pub(crate) fn announcing(self, rto_min_us: u32) -> Handshake {
        Handshake { rto_min_us, ..self }
    }

    /// The peer has proven the secret: it is authenticated, whatever comes of the definitions.
    pub fn peer_is_proven(&self) -> bool {
        matches!(self.stage, HandshakeStage::Comparing { .. })
    }

    /// This node's definitions of groups, as they are compared.
    pub(crate) fn definitions(&self) -> &str {
        &self.ours.definitions
    }

    fn expected(&self) -> MessageKind {
        match self.stage {
            HandshakeStage::Greeted { .. } => MessageKind::Challenge,
            HandshakeStage::Proved { .. } => MessageKind::Answer,
            HandshakeStage::Listening { .. } => MessageKind::Hello,
            HandshakeStage::Challenged { .. } => MessageKind::Proof,
            HandshakeStage::Comparing { .. } => MessageKind::Definitions,
            HandshakeStage::Over => MessageKind::Refused,
        }
    }

    /// Checks a message's prefix: bytes of the body to read now.
    pub fn body_bytes(&self, bytes: &[u8; PREFIX_BYTES]) -> Result<usize, AuthError> {
        body_bytes(bytes, self.expected())
    }

    /// Takes a message whose prefix passed [`Handshake::body_bytes`].
    pub fn receive(&mut self, prefix: &[u8; PREFIX_BYTES], body: &[u8]) -> HandshakeStep {
        let checked =
            self.body_bytes(prefix).and_then(|bytes| (bytes == body.len()).then_some(()).ok_or(AuthError::Malformed));
        let stage = std::mem::replace(&mut self.stage, HandshakeStage::Over);
        let refusal = match stage {
            HandshakeStage::Listening { .. } | HandshakeStage::Challenged { .. } => REFUSAL.to_vec(),
            _ => Vec::new(),
        };
        let step = checked.and_then(|()| match stage {
            HandshakeStage::Greeted { hello, expected, attempt } => {
                self.challenged(hello, expected, attempt, prefix, body)
            }
            HandshakeStage::Proved { opening, expected, version, attempt, definitions_differ, rto_min_us } => {
                let peer = opening.authenticated(&self.ours.secret, &expected, version, attempt);
                let peer = Authenticated { rto_min_us, kind: self.kind, ..peer };
                self.answered(&opening, peer, definitions_differ, body)
            }
            HandshakeStage::Listening { nonce } => self.greeted(nonce, prefix, body),
            HandshakeStage::Challenged { opening, hello, version } => self.proved(opening, hello, version, body),
            HandshakeStage::Comparing { peer, label, answer } => read_definitions(body, &peer.key, label)
                .map(|theirs| HandshakeStep::end(answer, Ok(Authenticated { differing: Some(theirs), ..peer }))),
            HandshakeStage::Over => Err(AuthError::Malformed),
        });
        step.unwrap_or_else(|error| HandshakeStep::end(refusal, Err(error)))
    }

    /// Acceptor: a hello came; challenge its sender, whatever it says, and give a verdict once it has proven the secret.
    fn greeted(&mut self, nonce: [u8; NONCE_BYTES], prefix: &[u8], body: &[u8]) -> Result<HandshakeStep, AuthError> {
        let hello = Hello::decode(body).ok_or(AuthError::Malformed)?;
        self.kind = hello.kind;
        let (ours, theirs) = (self.ours.versions, hello.versions);
        let mut challenge = vec![ours.min, ours.max];
        challenge.extend(nonce);
        challenge.extend(self.ours.digest());
        // A dialer that announces nothing may be one that does not expect this.
        if hello.rto_min_us > 0 {
            put_announced(&mut challenge, self.rto_min_us);
        }
        let challenge = message(MessageKind::Challenge, &challenge);
        let Some(version) = ours.common(theirs) else {
            // The version range is no secret, and the dialer's operator needs it.
            return Ok(HandshakeStep::end(challenge, Err(AuthError::Versions { ours, theirs })));
        };
        let opening = OpeningMessages { hello: [prefix, body].concat(), challenge: challenge.clone() };
        self.stage = HandshakeStage::Challenged { opening, hello, version };
        Ok(HandshakeStep { send: challenge, outcome: None })
    }

    /// Dialer: the challenge came; prove the secret.
    fn challenged(
        &mut self,
        hello: Vec<u8>,
        expected: String,
        attempt: Attempt,
        prefix: &[u8],
        body: &[u8],
    ) -> Result<HandshakeStep, AuthError> {
        let mut fields = MessageFields(body);
        let theirs = fields.versions().ok_or(AuthError::Malformed)?;
        let _nonce: [u8; NONCE_BYTES] = fields.array().ok_or(AuthError::Malformed)?;
        let digest: [u8; MAC_BYTES] = fields.array().ok_or(AuthError::Malformed)?;
        let rto_min_us = fields.announced().filter(|_| fields.0.is_empty()).ok_or(AuthError::Malformed)?;
        let ours = self.ours.versions;
        let version = ours.common(theirs).ok_or(AuthError::Versions { ours, theirs })?;
        let opening = OpeningMessages { hello, challenge: [prefix, body].concat() };
        let send = message(MessageKind::Proof, &opening.proof(&self.ours.secret));
        let definitions_differ = digest != self.ours.digest();
        self.stage = HandshakeStage::Proved { opening, expected, version, attempt, definitions_differ, rto_min_us };
        Ok(HandshakeStep { send, outcome: None })
    }

    /// Acceptor: the proof came; from here on the dialer is told why.
    fn proved(
        &mut self,
        opening: OpeningMessages,
        hello: Hello,
        version: u8,
        body: &[u8],
    ) -> Result<HandshakeStep, AuthError> {
        let proof = body.first_chunk().ok_or(AuthError::Malformed)?;
        if !same(proof, &opening.proof(&self.ours.secret)) {
            return Err(AuthError::WrongSecret);
        }
        // Before anything else that it says is believed, or told to anybody.
        if let Some(certified) = self.certified.as_ref().filter(|certified| **certified != hello.dialer) {
            return Err(AuthError::NotItself { said: hello.dialer, certified: certified.clone() });
        }
        let verdict = self.verdict_on(&hello);
        let mut answer = vec![verdict as u8];
        put_name(&mut answer, &self.ours.node);
        put_name(&mut answer, &self.ours.cluster);
        answer.extend(opening.answer(&self.ours.secret, &answer));
        let mut send = message(MessageKind::Answer, &answer);
        if let Some(error) = self.error_of(verdict, &hello.dialer, &hello.acceptor, &self.ours.node, &hello.cluster) {
            return Ok(HandshakeStep::end(send, Err(error)));
        }
        let peer = opening.authenticated(&self.ours.secret, &hello.dialer, version, hello.attempt);
        let peer = Authenticated { rto_min_us: hello.rto_min_us, kind: self.kind, ..peer };
        if hello.digest == self.ours.digest() {
            return Ok(HandshakeStep::end(send, Ok(peer)));
        }
        send.extend(definitions_message(&self.ours, &peer.key, ACCEPTOR_DEFINITIONS));
        self.stage = HandshakeStage::Comparing { peer, label: DIALER_DEFINITIONS, answer: Vec::new() };
        Ok(HandshakeStep { send, outcome: None })
    }

    /// Dialer: the acceptor's own proof came, with its verdict.
    fn answered(
        &mut self,
        opening: &OpeningMessages,
        peer: Authenticated,
        definitions_differ: bool,
        body: &[u8],
    ) -> Result<HandshakeStep, AuthError> {
        let (said, mac) = body.split_last_chunk().ok_or(AuthError::Malformed)?;
        if !same(mac, &opening.answer(&self.ours.secret, said)) {
            return Err(AuthError::WrongSecret);
        }
        let mut fields = MessageFields(said);
        let [verdict] = fields.array().ok_or(AuthError::Malformed)?;
        let verdict = AuthVerdict::from_byte(verdict).ok_or(AuthError::Malformed)?;
        let node = fields.name().ok_or(AuthError::Malformed)?;
        let cluster = fields.name().ok_or(AuthError::Malformed)?;
        if let Some(error) = self.error_of(verdict, &self.ours.node, &peer.peer, &node, &cluster) {
            return Err(error);
        }
        if node != peer.peer || cluster != self.ours.cluster || !fields.0.is_empty() {
            return Err(AuthError::Malformed);
        }
        if !definitions_differ {
            return Ok(HandshakeStep::end(Vec::new(), Ok(peer)));
        }
        let answer = definitions_message(&self.ours, &peer.key, DIALER_DEFINITIONS);
        self.stage = HandshakeStage::Comparing { peer, label: ACCEPTOR_DEFINITIONS, answer };
        Ok(HandshakeStep::default())
    }

    fn verdict_on(&self, hello: &Hello) -> AuthVerdict {
        let ours = &self.ours;
        if hello.dialer == ours.node {
            AuthVerdict::Itself
        } else if hello.cluster != ours.cluster {
            AuthVerdict::WrongCluster
        } else if hello.acceptor != ours.node {
            AuthVerdict::NotTheExpected
        } else if !ours.peers.contains(&hello.dialer) {
            AuthVerdict::UnknownNode
        } else if hello.kind == ConnectionKind::Frames && hello.dialer > ours.node {
            AuthVerdict::WrongDirection
        } else {
            AuthVerdict::Welcome
        }
    }

    /// The same verdict in words, on either side. `cluster` is the other side's.
    fn error_of(
        &self,
        verdict: AuthVerdict,
        dialer: &str,
        expected: &str,
        acceptor: &str,
        cluster: &str,
    ) -> Option<AuthError> {
        Some(match verdict {
            AuthVerdict::Welcome => return None,
            AuthVerdict::Itself => AuthError::Itself { node: dialer.to_owned() },
            AuthVerdict::WrongCluster => {
                AuthError::WrongCluster { ours: self.ours.cluster.clone(), theirs: cluster.to_owned() }
            }
            AuthVerdict::NotTheExpected => {
                AuthError::NotTheExpected { expected: expected.to_owned(), answered: acceptor.to_owned() }
            }
            AuthVerdict::UnknownNode => {
                AuthError::UnknownNode { node: acceptor.to_owned(), unknown: dialer.to_owned() }
            }
            AuthVerdict::WrongDirection => {
                AuthError::WrongDirection { dialer: dialer.to_owned(), acceptor: acceptor.to_owned() }
            }
        })
    }
}

#[cfg(test)]
mod tests;
