//! Who is there? Mutual challenge and response between two nodes that share a secret, without a byte of I/O.
//!
//! Two people who share a password prove it to each other through a door, in a way that a third person listening or
//! talking through the door learns nothing and can repeat nothing:
//!
//! ```text
//! dialer                                                      acceptor
//!   Hello      versions, attempt, nonce, digest, names, cluster  ->
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
//!   learns a nonce, a version range and a keyed digest of this node; why it was refused is told to this node's log only.
//!   A peer that *has* proven the secret is told the reason in an authenticated verdict, for the operator who misspelt a
//!   name;
//! * whoever answers at a dialed address learns the names in the greeting and can test guesses of the secret at leisure,
//!   as anybody can who listens on the line: the secret has to be random bytes, not a word;
//! * nothing is allocated before the message's prefix was checked, see [`message`].
//!
//! On an encrypted line TLS goes around all of this and changes none of it: the secret is then one that only the two ends
//! of this connection know. Off an encrypted line the frames that follow are checksummed, not encrypted.

mod message;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use aws_lc_rs::{constant_time, hmac};
use engine::SessionId;

pub use message::{
    BEFORE_PROOF_BYTES_MAX, DEFINITIONS_BYTES_MAX, NAME_BYTES_MAX, NONCE_BYTES, PREFIX_BYTES, REFUSAL, is_name,
};
use message::{Fields, Hello, Kind, MAC_BYTES, Verdict, body_bytes, message, put_announced, put_name};

/// The secret that all nodes of a cluster share. Never printed.
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// The caller has checked length and file mode.
    pub fn new(bytes: &[u8]) -> Secret {
        assert!(!bytes.is_empty(), "an empty secret keeps nobody out");
        Secret(bytes.into())
    }

    /// HMAC-SHA256 over a label and parts, each preceded by its length so that no two inputs look alike.
    fn mac(&self, label: &str, parts: &[&[u8]]) -> [u8; MAC_BYTES] {
        keyed(&self.0, label, parts)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret")
    }
}

fn keyed(key: &[u8], label: &str, parts: &[&[u8]]) -> [u8; MAC_BYTES] {
    let mut mac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    for part in [&[label.as_bytes()], parts].concat() {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    mac.sign().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Protocol versions that a node speaks, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    pub min: u8,
    pub max: u8,
}

impl Versions {
    /// Frames say theirs too; there is one kind of them so far that was released.
    pub const OURS: Versions = Versions { min: engine::wire::VERSION as u8, max: engine::wire::VERSION as u8 };

    /// The newest version that both speak.
    fn common(self, other: Versions) -> Option<u8> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max { write!(f, "{}", self.max) } else { write!(f, "{} to {}", self.min, self.max) }
    }
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
    pub fn is_older_than(self, other: Attempt) -> bool {
        self.run == other.run && self.number < other.number
    }
}

/// What a node says of itself, and whom it knows.
#[derive(Clone, Debug)]
pub struct Ourselves {
    pub cluster: String,
    pub node: String,
    /// Names of all other nodes ([`super::Links`] fills this in from its configuration).
    pub peers: Vec<String>,
    pub secret: Secret,
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

/// A peer that has proven the secret and means the same groups.
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
}

impl fmt::Debug for Authenticated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authenticated({} session {:016x} version {})", self.peer, self.session.0, self.version)
    }
}

/// Why there will be no session. For this node's log; a stranger sees [`REFUSAL`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    #[error("it sent bytes that are not Farshore's: something else speaks at that address")]
    NotFarshore,
    #[error("it speaks TLS, and this node does not: both nodes need the same [tls] in their configuration")]
    SpeaksTls,
    #[error("it sent a message out of turn (kind {kind}, expected {expected})")]
    OutOfTurn { kind: u8, expected: u8 },
    #[error("it announced a message of {bytes} bytes where {min} to {max} are allowed")]
    WrongLength { bytes: u32, min: usize, max: usize },
    #[error("it sent a message that does not follow the protocol")]
    Malformed,
    #[error("it refused this node; its own log says why (most often the secret files differ)")]
    Refused,
    #[error("its proof does not fit this node's secret: compare the secret files of both nodes")]
    WrongSecret,
    #[error("it speaks protocol version {theirs}, this node {ours}: upgrade the older one")]
    Versions { ours: Versions, theirs: Versions },
    #[error("this node talks to itself: the peer's address in the configuration leads back to node {node:?}")]
    Itself { node: String },
    #[error("it belongs to cluster {theirs:?}, this node to {ours:?}")]
    WrongCluster { ours: String, theirs: String },
    #[error("expected node {expected:?} but node {answered:?} answered: correct the addresses in the configuration")]
    NotTheExpected { expected: String, answered: String },
    #[error("node {node:?} does not know a node {unknown:?}: its configuration file is another one")]
    UnknownNode { node: String, unknown: String },
    #[error("node {dialer:?} dialed node {acceptor:?}, but the node whose name sorts first dials")]
    WrongDirection { dialer: String, acceptor: String },
    #[error("it says that it is node {said:?}, and its certificate is that of node {certified:?}")]
    NotItself { said: String, certified: String },
    #[error("its group definitions differ from this node's; both nodes need the same configuration file")]
    DefinitionsDiffer { peer: String, theirs: String },
}

/// Result of one message.
#[derive(Debug, Default)]
pub struct Step {
    /// Send these bytes, even when the outcome is an error.
    pub send: Vec<u8>,
    /// The end of the handshake; `None`: wait for the next message.
    pub outcome: Option<Result<Authenticated, AuthError>>,
}

impl Step {
    fn end(send: Vec<u8>, outcome: Result<Authenticated, AuthError>) -> Step {
        Step { send, outcome: Some(outcome) }
    }
}

/// Both opening messages as they went over the wire: what every proof covers.
#[derive(Clone, Debug)]
struct Opening {
    hello: Vec<u8>,
    challenge: Vec<u8>,
}

impl Opening {
    fn mac(&self, secret: &Secret, label: &str, more: &[u8]) -> [u8; MAC_BYTES] {
        secret.mac(label, &[&self.hello, &self.challenge, more])
    }

    fn proof(&self, secret: &Secret) -> [u8; MAC_BYTES] {
        self.mac(secret, "farshore 1 dialer proof", &[])
    }

    fn answer(&self, secret: &Secret, verdict: &[u8]) -> [u8; MAC_BYTES] {
        self.mac(secret, "farshore 1 acceptor answer", verdict)
    }

    fn authenticated(&self, secret: &Secret, peer: &str, version: u8, attempt: Attempt) -> Authenticated {
        let [a, b, c, d, e, f, g, h, ..] = self.mac(secret, "farshore 1 session id", &[]);
        // Zero means "no session" elsewhere.
        let session = SessionId(u64::from_le_bytes([a, b, c, d, e, f, g, h]).max(1));
        let key = self.mac(secret, "farshore 1 session key", &[]);
        Authenticated { peer: peer.to_owned(), session, key, version, attempt, rto_min_us: 0 }
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
    message(Kind::Definitions, &[&keyed(key, label, &[text.as_bytes()])[..], text.as_bytes()].concat())
}

fn read_definitions(body: &[u8], key: &[u8; 32], label: &str) -> Result<String, AuthError> {
    let (mac, text) = body.split_first_chunk::<MAC_BYTES>().ok_or(AuthError::Malformed)?;
    if !same(mac, &keyed(key, label, &[text])) {
        return Err(AuthError::WrongSecret);
    }
    String::from_utf8(text.to_vec()).map_err(|_| AuthError::Malformed)
}

fn same(ours: &[u8; MAC_BYTES], theirs: &[u8; MAC_BYTES]) -> bool {
    constant_time::verify_slices_are_equal(ours, theirs).is_ok()
}

enum Stage {
    /// Dialer: waits for the challenge.
    Greeted {
        hello: Vec<u8>,
        expected: String,
        attempt: Attempt,
    },
    /// Dialer: waits for the answer.
    Proved {
        opening: Opening,
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
        opening: Opening,
        hello: Hello,
        version: u8,
    },
    /// Both: waits for the definitions that differ; `answer` is what the dialer then sends.
    Comparing {
        peer: String,
        key: [u8; 32],
        label: &'static str,
        answer: Vec<u8>,
    },
    Over,
}

/// One side of one handshake.
pub struct Handshake {
    ours: Rc<Ourselves>,
    stage: Stage,
    /// Whom the dialer's certificate names; `None`: it has none.
    certified: Option<String>,
    /// The shortest retransmission pause an acceptor would like, microseconds; 0: none.
    rto_min_us: u32,
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
    pub fn dial_announcing(
        ours: Rc<Ourselves>,
        expected: &str,
        nonce: [u8; NONCE_BYTES],
        attempt: Attempt,
        rto_min_us: u32,
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
        }
        .encode();
        let stage = Stage::Greeted { hello: hello.clone(), expected: expected.to_owned(), attempt };
        (Handshake { ours, stage, certified: None, rto_min_us }, hello)
    }

    /// Waits for a dialer's hello.
    pub fn accept(ours: Rc<Ourselves>, nonce: [u8; NONCE_BYTES]) -> Handshake {
        Handshake { ours, stage: Stage::Listening { nonce }, certified: None, rto_min_us: 0 }
    }

    /// As an acceptor: whom the dialer's certificate names. It may speak for nobody else.
    pub fn certified(self, name: Option<String>) -> Handshake {
        Handshake { certified: name, ..self }
    }

    /// As an acceptor: the shortest retransmission pause this node would like, told to a dialer that tells its own.
    pub fn announcing(self, rto_min_us: u32) -> Handshake {
        Handshake { rto_min_us, ..self }
    }

    /// The peer has proven the secret: it is no stranger any more, whatever comes of the definitions.
    pub fn peer_is_proven(&self) -> bool {
        matches!(self.stage, Stage::Comparing { .. })
    }

    fn expected(&self) -> Kind {
        match self.stage {
            Stage::Greeted { .. } => Kind::Challenge,
            Stage::Proved { .. } => Kind::Answer,
            Stage::Listening { .. } => Kind::Hello,
            Stage::Challenged { .. } => Kind::Proof,
            Stage::Comparing { .. } => Kind::Definitions,
            Stage::Over => Kind::Refused,
        }
    }

    /// Checks a message's prefix: bytes of the body to read now.
    pub fn body_bytes(&self, bytes: &[u8; PREFIX_BYTES]) -> Result<usize, AuthError> {
        body_bytes(bytes, self.expected())
    }

    /// Takes a message whose prefix passed [`Handshake::body_bytes`].
    pub fn receive(&mut self, prefix: &[u8; PREFIX_BYTES], body: &[u8]) -> Step {
        let checked =
            self.body_bytes(prefix).and_then(|bytes| (bytes == body.len()).then_some(()).ok_or(AuthError::Malformed));
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        let refusal = match stage {
            Stage::Listening { .. } | Stage::Challenged { .. } => REFUSAL.to_vec(),
            _ => Vec::new(),
        };
        let step = checked.and_then(|()| match stage {
            Stage::Greeted { hello, expected, attempt } => self.challenged(hello, expected, attempt, prefix, body),
            Stage::Proved { opening, expected, version, attempt, definitions_differ, rto_min_us } => {
                let peer = opening.authenticated(&self.ours.secret, &expected, version, attempt);
                let peer = Authenticated { rto_min_us, ..peer };
                self.answered(&opening, peer, definitions_differ, body)
            }
            Stage::Listening { nonce } => self.greeted(nonce, prefix, body),
            Stage::Challenged { opening, hello, version } => self.proved(opening, hello, version, body),
            Stage::Comparing { peer, key, label, answer } => read_definitions(body, &key, label)
                .map(|theirs| Step::end(answer, Err(AuthError::DefinitionsDiffer { peer, theirs }))),
            Stage::Over => Err(AuthError::Malformed),
        });
        step.unwrap_or_else(|error| Step::end(refusal, Err(error)))
    }

    /// Acceptor: a hello came; challenge its sender, whatever it says, and judge once it has proven the secret.
    fn greeted(&mut self, nonce: [u8; NONCE_BYTES], prefix: &[u8], body: &[u8]) -> Result<Step, AuthError> {
        let hello = Hello::decode(body).ok_or(AuthError::Malformed)?;
        let (ours, theirs) = (self.ours.versions, hello.versions);
        let mut challenge = vec![ours.min, ours.max];
        challenge.extend(nonce);
        challenge.extend(self.ours.digest());
        // A dialer that announces nothing may be one that does not expect this.
        if hello.rto_min_us > 0 {
            put_announced(&mut challenge, self.rto_min_us);
        }
        let challenge = message(Kind::Challenge, &challenge);
        let Some(version) = ours.common(theirs) else {
            // The version range is no secret, and the dialer's operator needs it.
            return Ok(Step::end(challenge, Err(AuthError::Versions { ours, theirs })));
        };
        let opening = Opening { hello: [prefix, body].concat(), challenge: challenge.clone() };
        self.stage = Stage::Challenged { opening, hello, version };
        Ok(Step { send: challenge, outcome: None })
    }

    /// Dialer: the challenge came; prove the secret.
    fn challenged(
        &mut self,
        hello: Vec<u8>,
        expected: String,
        attempt: Attempt,
        prefix: &[u8],
        body: &[u8],
    ) -> Result<Step, AuthError> {
        let mut fields = Fields(body);
        let theirs = fields.versions().ok_or(AuthError::Malformed)?;
        let _nonce: [u8; NONCE_BYTES] = fields.array().ok_or(AuthError::Malformed)?;
        let digest: [u8; MAC_BYTES] = fields.array().ok_or(AuthError::Malformed)?;
        let rto_min_us = fields.announced().filter(|_| fields.0.is_empty()).ok_or(AuthError::Malformed)?;
        let ours = self.ours.versions;
        let version = ours.common(theirs).ok_or(AuthError::Versions { ours, theirs })?;
        let opening = Opening { hello, challenge: [prefix, body].concat() };
        let send = message(Kind::Proof, &opening.proof(&self.ours.secret));
        let definitions_differ = digest != self.ours.digest();
        self.stage = Stage::Proved { opening, expected, version, attempt, definitions_differ, rto_min_us };
        Ok(Step { send, outcome: None })
    }

    /// Acceptor: the proof came; from here on the dialer is told why.
    fn proved(&mut self, opening: Opening, hello: Hello, version: u8, body: &[u8]) -> Result<Step, AuthError> {
        let proof = body.first_chunk().ok_or(AuthError::Malformed)?;
        if !same(proof, &opening.proof(&self.ours.secret)) {
            return Err(AuthError::WrongSecret);
        }
        // Before anything else that it says is believed, or told to anybody.
        if let Some(certified) = self.certified.as_ref().filter(|certified| **certified != hello.dialer) {
            return Err(AuthError::NotItself { said: hello.dialer, certified: certified.clone() });
        }
        let verdict = self.judge(&hello);
        let mut answer = vec![verdict as u8];
        put_name(&mut answer, &self.ours.node);
        put_name(&mut answer, &self.ours.cluster);
        answer.extend(opening.answer(&self.ours.secret, &answer));
        let mut send = message(Kind::Answer, &answer);
        if let Some(error) = self.error_of(verdict, &hello.dialer, &hello.acceptor, &self.ours.node, &hello.cluster) {
            return Ok(Step::end(send, Err(error)));
        }
        let peer = opening.authenticated(&self.ours.secret, &hello.dialer, version, hello.attempt);
        let peer = Authenticated { rto_min_us: hello.rto_min_us, ..peer };
        if hello.digest == self.ours.digest() {
            return Ok(Step::end(send, Ok(peer)));
        }
        send.extend(definitions_message(&self.ours, &peer.key, ACCEPTOR_DEFINITIONS));
        self.stage = Stage::Comparing { peer: peer.peer, key: peer.key, label: DIALER_DEFINITIONS, answer: Vec::new() };
        Ok(Step { send, outcome: None })
    }

    /// Dialer: the acceptor's own proof came, with its verdict.
    fn answered(
        &mut self,
        opening: &Opening,
        peer: Authenticated,
        definitions_differ: bool,
        body: &[u8],
    ) -> Result<Step, AuthError> {
        let (said, mac) = body.split_last_chunk().ok_or(AuthError::Malformed)?;
        if !same(mac, &opening.answer(&self.ours.secret, said)) {
            return Err(AuthError::WrongSecret);
        }
        let mut fields = Fields(said);
        let [verdict] = fields.array().ok_or(AuthError::Malformed)?;
        let verdict = Verdict::from_byte(verdict).ok_or(AuthError::Malformed)?;
        let node = fields.name().ok_or(AuthError::Malformed)?;
        let cluster = fields.name().ok_or(AuthError::Malformed)?;
        if let Some(error) = self.error_of(verdict, &self.ours.node, &peer.peer, &node, &cluster) {
            return Err(error);
        }
        if node != peer.peer || cluster != self.ours.cluster || !fields.0.is_empty() {
            return Err(AuthError::Malformed);
        }
        if !definitions_differ {
            return Ok(Step::end(Vec::new(), Ok(peer)));
        }
        let answer = definitions_message(&self.ours, &peer.key, DIALER_DEFINITIONS);
        self.stage = Stage::Comparing { peer: peer.peer, key: peer.key, label: ACCEPTOR_DEFINITIONS, answer };
        Ok(Step::default())
    }

    fn judge(&self, hello: &Hello) -> Verdict {
        let ours = &self.ours;
        if hello.dialer == ours.node {
            Verdict::Itself
        } else if hello.cluster != ours.cluster {
            Verdict::WrongCluster
        } else if hello.acceptor != ours.node {
            Verdict::NotTheExpected
        } else if !ours.peers.contains(&hello.dialer) {
            Verdict::UnknownNode
        } else if hello.dialer > ours.node {
            Verdict::WrongDirection
        } else {
            Verdict::Welcome
        }
    }

    /// The same verdict in words, on either side. `cluster` is the other side's.
    fn error_of(
        &self,
        verdict: Verdict,
        dialer: &str,
        expected: &str,
        acceptor: &str,
        cluster: &str,
    ) -> Option<AuthError> {
        Some(match verdict {
            Verdict::Welcome => return None,
            Verdict::Itself => AuthError::Itself { node: dialer.to_owned() },
            Verdict::WrongCluster => {
                AuthError::WrongCluster { ours: self.ours.cluster.clone(), theirs: cluster.to_owned() }
            }
            Verdict::NotTheExpected => {
                AuthError::NotTheExpected { expected: expected.to_owned(), answered: acceptor.to_owned() }
            }
            Verdict::UnknownNode => AuthError::UnknownNode { node: acceptor.to_owned(), unknown: dialer.to_owned() },
            Verdict::WrongDirection => {
                AuthError::WrongDirection { dialer: dialer.to_owned(), acceptor: acceptor.to_owned() }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::message::{CHALLENGE_BYTES, prefix};
    use super::*;

    const ATTEMPT: Attempt = Attempt { run: 7, number: 1 };

    fn node(name: &str, peer: &str) -> Ourselves {
        Ourselves {
            cluster: "harbour".into(),
            node: name.into(),
            peers: vec![peer.into()],
            secret: Secret::new(b"correct horse battery staple"),
            definitions: "group a\n  volume one\n".into(),
            versions: Versions::OURS,
        }
    }

    fn east() -> Ourselves {
        node("east", "west")
    }

    fn west() -> Ourselves {
        node("west", "east")
    }

    /// Hands over all messages in `bytes`; the last step's outcome and all that was to be sent.
    fn deliver(to: &mut Handshake, mut bytes: &[u8]) -> Step {
        let mut all = Step::default();
        while let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX_BYTES>() {
            let length = to.body_bytes(prefix).unwrap_or(rest.len()).min(rest.len());
            let step = to.receive(prefix, &rest[..length]);
            bytes = &rest[length..];
            all.send.extend(step.send);
            all.outcome = all.outcome.or(step.outcome);
        }
        all
    }

    type Outcome = Option<Result<Authenticated, AuthError>>;

    /// A whole handshake; `tamper(n, message)` may change message `n` of the wire. Outcomes of dialer and acceptor.
    fn meet(
        dialer: Ourselves,
        expected: &str,
        acceptor: Ourselves,
        mut tamper: impl FnMut(usize, &mut Vec<u8>),
    ) -> (Outcome, Outcome) {
        let (mut dial, mut wire) = Handshake::dial(Rc::new(dialer), expected, [1; 32], ATTEMPT);
        let mut accept = Handshake::accept(Rc::new(acceptor), [2; 32]);
        let (mut ours, mut theirs) = (None, None);
        for n in 0.. {
            if wire.is_empty() {
                break;
            }
            tamper(n, &mut wire);
            let (to, outcome) = if n % 2 == 0 { (&mut accept, &mut theirs) } else { (&mut dial, &mut ours) };
            let step = deliver(to, &wire);
            if step.outcome.is_some() {
                *outcome = step.outcome;
            }
            wire = step.send;
        }
        (ours, theirs)
    }

    fn authenticated(outcome: &Outcome) -> bool {
        matches!(outcome, Some(Ok(_)))
    }

    /// docs/protocol.md, calculated by another library.
    #[test]
    fn proofs_are_those_of_the_protocol() {
        let hex = |bytes: [u8; MAC_BYTES]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let opening = Opening { hello: b"hello".to_vec(), challenge: b"challenge".to_vec() };
        let proof = opening.proof(&Secret::new(b"a shared secret"));
        assert_eq!(hex(proof), "7764de1cde15093eee63d7bbb67101bfe07731d150fadff6d92caa5206beec46");
        // A key that is longer than a block of the hash.
        let key = opening.authenticated(&Secret::new(&[b'k'; 100]), "west", 5, ATTEMPT).key;
        assert_eq!(hex(key), "32feb4e2b7efcccfbffb7f517bfe18ccdec752e8570bcf5bcc7d7e91fc8a38cc");
    }

    #[test]
    fn two_nodes_with_one_secret_agree_on_session_and_key() {
        let (Some(Ok(ours)), Some(Ok(theirs))) = meet(east(), "west", west(), |_, _| {}) else { panic!("refused") };
        assert_eq!((ours.peer.as_str(), theirs.peer.as_str()), ("west", "east"));
        assert_eq!((ours.session, ours.key, ours.version), (theirs.session, theirs.key, theirs.version));
        assert_eq!((ours.version, theirs.attempt), (Versions::OURS.max, ATTEMPT));
        assert_ne!(ours.key[..8], ours.session.0.to_le_bytes());
    }

    #[test]
    fn the_shortest_pause_is_announced_both_ways_or_left_out() {
        for (dialers, acceptors, heard_by_dialer) in
            [(0, 0, 0), (20_000, 40_000, 40_000), (20_000, 0, 0), (0, 40_000, 0)]
        {
            let (mut dial, hello) = Handshake::dial_announcing(Rc::new(east()), "west", [1; 32], ATTEMPT, dialers);
            let plain = Handshake::dial(Rc::new(east()), "west", [1; 32], ATTEMPT).1;
            assert_eq!(hello == plain, dialers == 0, "a node that wants none sends what it always sent");
            let mut accept = Handshake::accept(Rc::new(west()), [2; 32]).announcing(acceptors);
            let challenge = deliver(&mut accept, &hello).send;
            let proof = deliver(&mut dial, &challenge).send;
            let step = deliver(&mut accept, &proof);
            let Some(Ok(theirs)) = step.outcome else { panic!("refused") };
            let Some(Ok(ours)) = deliver(&mut dial, &step.send).outcome else { panic!("refused") };
            assert_eq!((ours.rto_min_us, theirs.rto_min_us), (heard_by_dialer, dialers));
        }
    }

    #[test]
    fn another_nonce_makes_another_session() {
        let session = |nonce| {
            let (mut dial, hello) = Handshake::dial(Rc::new(east()), "west", [1; 32], ATTEMPT);
            let mut accept = Handshake::accept(Rc::new(west()), [nonce; 32]);
            let challenge = deliver(&mut accept, &hello).send;
            let proof = deliver(&mut dial, &challenge).send;
            let Some(Ok(peer)) = deliver(&mut accept, &proof).outcome else { panic!("refused") };
            (peer.session, peer.key)
        };
        assert_ne!(session(2).0, session(3).0);
        assert_ne!(session(2).1, session(3).1);
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let mut lengths = Vec::new();
        meet(east(), "west", west(), |_, wire| lengths.push(wire.len()));
        assert_eq!(lengths.len(), 4);
        assert!(lengths.iter().sum::<usize>() <= BEFORE_PROOF_BYTES_MAX);
        for (message, length) in lengths.into_iter().enumerate() {
            for bit in 0..length * 8 {
                let flip = |n: usize, wire: &mut Vec<u8>| {
                    if n == message {
                        wire[bit / 8] ^= 1 << (bit % 8);
                    }
                };
                let (ours, theirs) = meet(east(), "west", west(), flip);
                // The answer is the dialer's to judge: the acceptor has seen a flawless proof before it.
                assert!(!authenticated(&ours), "message {message} bit {bit}: {ours:?}");
                assert!(message == 3 || !authenticated(&theirs), "message {message} bit {bit}: {theirs:?}");
            }
        }
    }

    #[test]
    fn every_truncated_message_is_refused() {
        for message in 0..4 {
            for keep in 0..400 {
                let mut cut = false;
                let (ours, theirs) = meet(east(), "west", west(), |n, wire| {
                    if n == message && keep < wire.len() {
                        wire.truncate(keep);
                        cut = true;
                    }
                });
                assert!(!cut || !authenticated(&ours), "message {message} cut at {keep}");
                assert!(!cut || message == 3 || !authenticated(&theirs), "message {message} cut at {keep}");
            }
        }
    }

    #[test]
    fn a_reflected_message_never_verifies() {
        // Everything the dialer says comes back to it, dressed as what it waits for.
        let (mut dial, hello) = Handshake::dial(Rc::new(east()), "east", [1; 32], ATTEMPT);
        assert!(matches!(deliver(&mut dial, &hello).outcome, Some(Err(AuthError::OutOfTurn { .. }))));
        let (mut dial, hello) = Handshake::dial(Rc::new(east()), "west", [1; 32], ATTEMPT);
        let mut accept = Handshake::accept(Rc::new(west()), [2; 32]);
        let challenge = deliver(&mut accept, &hello).send;
        let proof = deliver(&mut dial, &challenge).send;
        let mut said = vec![Verdict::Welcome as u8];
        put_name(&mut said, "west");
        put_name(&mut said, "harbour");
        said.extend(&proof[PREFIX_BYTES..]);
        let forged = message(Kind::Answer, &said);
        assert_eq!(deliver(&mut dial, &forged).outcome, Some(Err(AuthError::WrongSecret)));
    }

    #[test]
    fn a_replayed_handshake_is_refused() {
        let mut heard = Vec::new();
        meet(east(), "west", west(), |_, wire| heard.push(wire.clone()));
        // To an acceptor with a fresh nonce.
        let mut accept = Handshake::accept(Rc::new(west()), [9; 32]);
        deliver(&mut accept, &heard[0]);
        let step = deliver(&mut accept, &heard[2]);
        assert_eq!((step.outcome, step.send), (Some(Err(AuthError::WrongSecret)), REFUSAL.to_vec()));
        // To a dialer with a fresh nonce.
        let (mut dial, _) = Handshake::dial(Rc::new(east()), "west", [9; 32], ATTEMPT);
        deliver(&mut dial, &heard[1]);
        assert_eq!(deliver(&mut dial, &heard[3]).outcome, Some(Err(AuthError::WrongSecret)));
    }

    #[test]
    fn a_stranger_learns_only_that_it_was_refused() {
        let wrong_secret = Ourselves { secret: Secret::new(b"guess"), ..east() };
        let wrong_everything = Ourselves { cluster: "elsewhere".into(), ..node("north", "south") };
        let wrong_everything = Ourselves { secret: Secret::new(b"guess"), ..wrong_everything };
        for stranger in [wrong_secret, wrong_everything] {
            let (mut sent, mut last) = (0, Vec::new());
            let (ours, theirs) = meet(stranger, "west", west(), |n, wire| {
                if n % 2 == 1 {
                    sent += wire.len();
                    last.clone_from(wire);
                }
            });
            assert_eq!((ours, theirs), (Some(Err(AuthError::Refused)), Some(Err(AuthError::WrongSecret))));
            assert_eq!(last, REFUSAL);
            assert_eq!(sent, PREFIX_BYTES + CHALLENGE_BYTES + REFUSAL.len());
        }
    }

    #[test]
    fn both_sides_name_the_same_mistake() {
        let itself = AuthError::Itself { node: "west".into() };
        let cases: [(Ourselves, &str, AuthError); 4] = [
            (node("west", "east"), "east", itself),
            (east(), "north", AuthError::NotTheExpected { expected: "north".into(), answered: "west".into() }),
            (node("aft", "west"), "west", AuthError::UnknownNode { node: "west".into(), unknown: "aft".into() }),
            (
                node("zenith", "west"),
                "west",
                AuthError::WrongDirection { dialer: "zenith".into(), acceptor: "west".into() },
            ),
        ];
        for (dialer, expected, error) in cases {
            let mut acceptor = west();
            if dialer.node == "zenith" {
                acceptor.peers.push("zenith".into());
            }
            let (ours, theirs) = meet(dialer, expected, acceptor, |_, _| {});
            assert_eq!(ours, Some(Err(error.clone())));
            assert_eq!(theirs, Some(Err(error)));
        }
        let other = Ourselves { cluster: "bay".into(), ..east() };
        let (ours, theirs) = meet(other, "west", west(), |_, _| {});
        assert_eq!(ours, Some(Err(AuthError::WrongCluster { ours: "bay".into(), theirs: "harbour".into() })));
        assert_eq!(theirs, Some(Err(AuthError::WrongCluster { ours: "harbour".into(), theirs: "bay".into() })));
    }

    #[test]
    fn versions_meet_in_the_newest_common_one() {
        let speaks = |min, max| Versions { min, max };
        let with = |who: Ourselves, versions| Ourselves { versions, ..who };
        let (ours, theirs) = meet(with(east(), speaks(1, 3)), "west", with(west(), speaks(2, 5)), |_, _| {});
        assert!(matches!((ours, theirs), (Some(Ok(a)), Some(Ok(b))) if a.version == 3 && b.version == 3));
        let (ours, theirs) = meet(with(east(), speaks(1, 1)), "west", with(west(), speaks(2, 5)), |_, _| {});
        assert!(matches!(ours, Some(Err(AuthError::Versions { .. }))));
        assert!(matches!(theirs, Some(Err(AuthError::Versions { .. }))));
    }

    #[test]
    fn differing_definitions_are_exchanged_and_signed() {
        let other = || Ourselves { definitions: "group b\n".repeat(9), ..east() };
        let (ours, theirs) = meet(other(), "west", west(), |_, _| {});
        let differ = |peer: &str, theirs: String| Some(Err(AuthError::DefinitionsDiffer { peer: peer.into(), theirs }));
        assert_eq!(ours, differ("west", west().definitions));
        assert_eq!(theirs, differ("east", other().definitions));
        // A changed byte in either text is not shown to anybody.
        for message in [3, 4] {
            let (ours, theirs) = meet(other(), "west", west(), |n, wire| {
                if n == message {
                    *wire.last_mut().unwrap() ^= 1;
                }
            });
            let judged = if message == 3 { ours } else { theirs };
            assert_eq!(judged, Some(Err(AuthError::WrongSecret)));
        }
    }

    #[test]
    fn definitions_are_bounded_and_cut_between_characters() {
        let long = Ourselves { definitions: "\u{20ac}".repeat(DEFINITIONS_BYTES_MAX), ..west() };
        let (ours, _) = meet(east(), "west", long, |_, _| {});
        let Some(Err(AuthError::DefinitionsDiffer { theirs, .. })) = ours else { panic!("{ours:?}") };
        assert_eq!(theirs.len(), DEFINITIONS_BYTES_MAX / 3 * 3);
    }

    #[test]
    fn lengths_are_refused_before_anything_is_read() {
        let accept = Handshake::accept(Rc::new(west()), [2; 32]);
        let too_long = prefix(Kind::Hello, 1 << 30);
        assert!(matches!(accept.body_bytes(&too_long), Err(AuthError::WrongLength { .. })));
        assert!(matches!(accept.body_bytes(b"GET / HTTP/1"), Err(AuthError::NotFarshore)));
        assert!(matches!(accept.body_bytes(&prefix(Kind::Definitions, 99)), Err(AuthError::OutOfTurn { .. })));
    }

    #[test]
    fn names_that_would_garble_a_log_do_not_travel() {
        for bad in ["", "a\nb", "\u{1b}[31m", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert!(!is_name(bad), "{bad:?}");
        }
        assert!(is_name("node-1.example"));
    }

    #[test]
    fn attempts_of_one_run_are_ordered_and_of_two_runs_are_not() {
        let at = |run, number| Attempt { run, number };
        assert!(at(1, 4).is_older_than(at(1, 5)));
        assert!(!at(1, 5).is_older_than(at(1, 5)));
        assert!(!at(2, 1).is_older_than(at(1, 5)));
    }
}
