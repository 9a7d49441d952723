//! The line between the two: TLS with the certificate that the token names, then proof of the token's secret, then messages.
//!
//! The proof is the one that daemons use between nodes that share a secret ([`host::link::auth`]). Its key is the token's secret with
//! bytes that only the two ends of this TLS connection know, so a proof is of no use on any other.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use host::link::auth::{
    Attempt, AuthError, ClusterSecret, Handshake, HandshakeStep, NONCE_BYTES, Ourselves, PREFIX_BYTES, Versions,
};
use host::tls::CertificateFacts;
use rcgen::{CertificateParams, KeyPair};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error, ServerConfig,
    ServerConnection, SignatureScheme,
};

use super::token::{JoinToken, SECRET_BYTES};

/// Both ends name it, so that a daemon that listens there takes it for nothing else.
const PROTOCOL: &[u8] = b"farshore-join/1";
/// Whom the proof is between; the name that sorts first dials.
const JOINING: &str = "joining";
const WAITING: &str = "waiting";
/// What a proven end may send at once: a configuration and certificates are some KiB.
const MESSAGE_BYTES_MAX: u32 = 1 << 20;
/// Who dials speaks first, and at once; a stranger that is silent is let go after so long.
const FIRST_PATIENCE: Duration = Duration::from_secs(2);
/// TLS and proof take a few round trips; a stranger that speaks is let go after so long.
const PROOF_PATIENCE: Duration = Duration::from_secs(10);
/// Who dials may have all of that to wait for, where the other end can hear only one at a time.
const TURN_PATIENCE: Duration = Duration::from_secs(30);
const _: () = assert!(TURN_PATIENCE.as_secs() > PROOF_PATIENCE.as_secs() + FIRST_PATIENCE.as_secs());
/// A proven end looks at disks, writes files or dials meanwhile.
const MESSAGE_PATIENCE: Duration = Duration::from_secs(300);

/// Why a line is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// Nobody, or somebody else, is at that address.
    #[error("{0}")]
    Dial(io::Error),
    /// Who is there does not show the token's certificate.
    #[error("who answers there is not the one that made the token: {0}")]
    NotTheOne(String),
    /// Who is there waits for a node to join, and by another token.
    #[error("who answers there waits for another token: {0}")]
    AnotherToken(String),
    /// Nothing came before the line was proven.
    #[error("the other end took too long")]
    Late,
    /// The other end does not prove the token's secret.
    #[error("the other end did not prove the token's secret: {0}")]
    Proof(AuthError),
    /// It broke off later.
    #[error("the connection broke off: {0}")]
    Broken(io::Error),
    /// A message that is none.
    #[error("it sent a message that does not follow the protocol: {0}")]
    Garbled(String),
}

/// A certificate for one invitation; its key is in memory only.
pub struct Invitation {
    config: Arc<ServerConfig>,
    fingerprint: [u8; 32],
    secret: [u8; SECRET_BYTES],
}

impl Invitation {
    /// # Errors
    /// A sentence: the libraries or the kernel's random numbers fail.
    pub fn make() -> Result<Invitation, String> {
        let failed = |error: &dyn std::fmt::Display| format!("the join token cannot be made: {error}");
        let key = KeyPair::generate().map_err(|error| failed(&error))?;
        let params = CertificateParams::new(vec!["farshore.invalid".to_owned()]).map_err(|error| failed(&error))?;
        let certificate = params.self_signed(&key).map_err(|error| failed(&error))?;
        let der = certificate.der().clone();
        let fingerprint = fingerprint(&der).ok_or_else(|| failed(&"its certificate cannot be read"))?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| failed(&error))?
            .with_no_client_auth()
            .with_single_cert(vec![der], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
            .map_err(|error| failed(&error))?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.send_tls13_tickets = 0;
        let secret = random().map_err(|error| failed(&error))?;
        Ok(Invitation { config: Arc::new(config), fingerprint, secret })
    }

    /// The token that leads to this invitation at `address` until `end_unix_s`, in seconds since 1970.
    pub fn token(&self, address: SocketAddr, end_unix_s: u64) -> JoinToken {
        JoinToken::new(address, end_unix_s, self.fingerprint, self.secret)
    }
}

/// A proven line.
pub struct JoinLine {
    connection: Connection,
    socket: TimedSocket,
}

impl JoinLine {
    /// Dials who made the token, and proves its secret both ways.
    ///
    /// # Errors
    /// See [`LineError`]. Blocks for `patience` and half a minute at most.
    pub fn dial(token: &JoinToken, patience: Duration) -> Result<JoinLine, LineError> {
        JoinLine::dial_for(token, patience, TURN_PATIENCE)
    }

    fn dial_for(token: &JoinToken, patience: Duration, turn: Duration) -> Result<JoinLine, LineError> {
        let mut line = JoinLine::shaken(token, patience, turn)?;
        let (handshake, hello) = line.greeting(token)?;
        line.send_bytes(&hello).map_err(LineError::Broken)?;
        line.prove(handshake)?;
        Ok(line)
    }

    /// A connection to whoever shows the token's certificate; nothing is proven.
    fn shaken(token: &JoinToken, patience: Duration, turn: Duration) -> Result<JoinLine, LineError> {
        let socket = TcpStream::connect_timeout(&token.address(), patience).map_err(LineError::Dial)?;
        let provider = provider();
        let verifier = PinnedVerifier { fingerprint: token.fingerprint(), provider: provider.clone() };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| LineError::NotTheOne(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.enable_sni = false;
        let name = ServerName::try_from("farshore.invalid").map_err(|error| LineError::Garbled(error.to_string()))?;
        let connection =
            ClientConnection::new(Arc::new(config), name).map_err(|error| LineError::NotTheOne(error.to_string()))?;
        let mut line = JoinLine::new(connection.into(), socket, turn)?;
        line.shake().map_err(|error| match error {
            // The protocol is agreed before a certificate is shown.
            LineError::NotTheOne(why) if line.connection.alpn_protocol() == Some(PROTOCOL) => {
                LineError::AnotherToken(why)
            }
            other => other,
        })?;
        Ok(line)
    }

    /// The joining end of the proof, and its first message.
    fn greeting(&self, token: &JoinToken) -> Result<(Handshake, Vec<u8>), LineError> {
        let ours = self.ourselves(JOINING, WAITING, token.secret())?;
        let (run, nonce) = (0, random().map_err(LineError::Broken)?);
        Ok(Handshake::dial(ours, WAITING, nonce, Attempt { run, number: 1 }))
    }

    /// Has whoever dialed prove the secret of `invitation`.
    ///
    /// # Errors
    /// See [`LineError`]: none where the secret was proven, whether the other end hears of it or not. Blocks for two seconds if nothing
    /// comes, and for ten more at most.
    pub fn accept(invitation: &Invitation, socket: TcpStream) -> Result<JoinLine, LineError> {
        let connection = ServerConnection::new(invitation.config.clone())
            .map_err(|error| LineError::NotTheOne(error.to_string()))?;
        speaks(&socket).map_err(|error| lost(error, LineError::Broken))?;
        let mut line = JoinLine::new(connection.into(), socket, PROOF_PATIENCE)?;
        line.shake()?;
        let ours = line.ourselves(WAITING, JOINING, invitation.secret)?;
        let nonce = random().map_err(LineError::Broken)?;
        line.prove(Handshake::accept(ours, nonce))?;
        Ok(line)
    }

    fn new(connection: Connection, socket: TcpStream, patience: Duration) -> Result<JoinLine, LineError> {
        socket.set_nodelay(true).map_err(LineError::Broken)?;
        Ok(JoinLine { connection, socket: TimedSocket { socket, end: Instant::now() + patience } })
    }

    /// The address of this end.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn own_address(&self) -> io::Result<SocketAddr> {
        self.socket.socket.local_addr()
    }

    fn shake(&mut self) -> Result<(), LineError> {
        let stranger = |error: io::Error| lost(error, |error| LineError::NotTheOne(error.to_string()));
        while self.connection.is_handshaking() {
            self.connection.complete_io(&mut self.socket).map_err(stranger)?;
        }
        self.flush().map_err(|error| lost(error, LineError::Broken))
    }

    /// The secret of this connection alone.
    fn ourselves(&self, node: &str, peer: &str, secret: [u8; SECRET_BYTES]) -> Result<Rc<Ourselves>, LineError> {
        let binding = self
            .connection
            .export_keying_material([0u8; 32], b"EXPORTER-farshore-join", None)
            .map_err(|error| LineError::NotTheOne(error.to_string()))?;
        Ok(Rc::new(Ourselves {
            cluster: "join".to_owned(),
            node: node.to_owned(),
            peers: vec![peer.to_owned()],
            secret: ClusterSecret::new(&[&secret[..], &binding[..]].concat()),
            definitions: String::new(),
            versions: Versions::OURS,
        }))
    }

    fn prove(&mut self, mut handshake: Handshake) -> Result<(), LineError> {
        loop {
            let HandshakeStep { send, outcome } = self.step(&mut handshake)?;
            let sent = self.send_bytes(&send);
            match outcome {
                // The secret was shown, so the token is used. Whether the line still is of use shows with the next message.
                Some(Ok(_)) => return Ok(()),
                Some(Err(error)) => return Err(LineError::Proof(error)),
                None => sent.map_err(|error| lost(error, LineError::Broken))?,
            }
        }
    }

    /// What the next message of the other end's proof comes to.
    fn step(&mut self, handshake: &mut Handshake) -> Result<HandshakeStep, LineError> {
        let broken = |error: io::Error| lost(error, LineError::Broken);
        let mut prefix = [0; PREFIX_BYTES];
        self.receive_exactly(&mut prefix).map_err(broken)?;
        let mut body = vec![0; handshake.body_bytes(&prefix).map_err(LineError::Proof)?];
        self.receive_exactly(&mut body).map_err(broken)?;
        Ok(handshake.receive(&prefix, &body))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// See [`LineError`].
    pub fn send(&mut self, message: &impl Serialize) -> Result<(), LineError> {
        let body = serde_json::to_vec(message).map_err(|error| LineError::Garbled(error.to_string()))?;
        let length = u32::try_from(body.len()).map_err(|error| LineError::Garbled(error.to_string()))?;
        self.socket.end = Instant::now() + MESSAGE_PATIENCE;
        self.send_bytes(&[&length.to_be_bytes()[..], &body].concat()).map_err(LineError::Broken)
    }

    /// Waits five minutes at most for a message.
    ///
    /// # Errors
    /// See [`LineError`].
    pub fn receive<M: DeserializeOwned>(&mut self) -> Result<M, LineError> {
        self.socket.end = Instant::now() + MESSAGE_PATIENCE;
        let mut length = [0; 4];
        self.receive_exactly(&mut length).map_err(LineError::Broken)?;
        let length = u32::from_be_bytes(length);
        if length > MESSAGE_BYTES_MAX {
            return Err(LineError::Garbled(format!("it has {length} bytes, at most are {MESSAGE_BYTES_MAX}")));
        }
        let mut body = vec![0; length as usize];
        self.receive_exactly(&mut body).map_err(LineError::Broken)?;
        serde_json::from_slice(&body).map_err(|error| LineError::Garbled(error.to_string()))
    }

    fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.connection.writer().write_all(bytes)?;
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.socket)?;
        }
        Ok(())
    }

    fn receive_exactly(&mut self, space: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < space.len() {
            match self.connection.reader().read(&mut space[filled..]) {
                Ok(0) => return Err(ended()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.connection.read_tls(&mut self.socket)? == 0 {
                        return Err(ended());
                    }
                    let opened = self.connection.process_new_packets();
                    self.flush()?;
                    opened.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Waits a moment for the first byte of whoever dialed.
fn speaks(socket: &TcpStream) -> io::Result<()> {
    // What is accepted by a listener that does not wait may inherit that.
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(FIRST_PATIENCE))?;
    match socket.peek(&mut [0u8]).map_err(named)? {
        0 => Err(ended()),
        _ => Ok(()),
    }
}

/// What an error comes to before the line is proven: of one that took too long nothing is known.
fn lost(error: io::Error, otherwise: impl FnOnce(io::Error) -> LineError) -> LineError {
    if error.kind() == io::ErrorKind::TimedOut { LineError::Late } else { otherwise(error) }
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the other end closed it")
}

/// A socket of which every call ends in time.
struct TimedSocket {
    socket: TcpStream,
    end: Instant,
}

impl TimedSocket {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(late()) } else { Ok(Some(left)) }
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the other end took too long")
}

/// A timeout of the socket says that it would block.
fn named(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { late() } else { error }
}

impl Read for TimedSocket {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(space).map_err(named)
    }
}

impl Write for TimedSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Believes one certificate, whatever it says.
#[derive(Debug)]
struct PinnedVerifier {
    fingerprint: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if fingerprint(end_entity) == Some(self.fingerprint) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// SHA-256 of a certificate.
fn fingerprint(certificate: &CertificateDer<'_>) -> Option<[u8; 32]> {
    let digits = CertificateFacts::of(certificate).ok()?.fingerprint;
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// Bytes from the kernel's generator.
///
/// # Errors
/// The kernel has none, or the call was interrupted.
pub(super) fn random<const N: usize>() -> io::Result<[u8; N]> {
    const { assert!(N <= 256, "up to 256 bytes come whole") };
    let mut bytes = [0; N];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if got == N { Ok(bytes) } else { Err(io::Error::other("the kernel gave too few random bytes")) }
}

const _: () = assert!(NONCE_BYTES <= 256);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// What both ends come to when `token` is shown to `invitation`.
    fn meet(change: impl FnOnce(JoinToken) -> JoinToken) -> (Result<String, LineError>, Result<String, LineError>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let invitation = Invitation::make().expect("made");
        let token = change(invitation.token(address, u64::MAX));
        let dialing = thread::spawn(move || {
            let mut line = JoinLine::dial(&token, Duration::from_secs(5))?;
            line.send(&"here I am")?;
            line.receive()
        });
        let accept = || {
            let mut line = JoinLine::accept(&invitation, listener.accept().expect("a connection").0)?;
            let said = line.receive()?;
            line.send(&"welcome")?;
            Ok(said)
        };
        let accepted = accept();
        (dialing.join().expect("no panic"), accepted)
    }

    #[test]
    fn two_ends_of_one_token_talk() {
        let (dialed, accepted) = meet(|token| token);
        assert_eq!(
            (dialed.expect("proven"), accepted.expect("proven")),
            ("welcome".to_owned(), "here I am".to_owned())
        );
    }

    // proves: P10
    #[test]
    fn without_the_secret_nobody_is_heard() {
        let (dialed, accepted) = meet(|token| {
            let mut secret = token.secret();
            secret[0] ^= 1;
            JoinToken::new(token.address(), u64::MAX, token.fingerprint(), secret)
        });
        assert!(matches!(dialed, Err(LineError::Proof(AuthError::Refused))), "{dialed:?}");
        assert!(matches!(accepted, Err(LineError::Proof(AuthError::WrongSecret))), "{accepted:?}");
    }

    // proves: P10
    #[test]
    fn another_certificate_is_not_believed() {
        let (dialed, accepted) = meet(|token| JoinToken::new(token.address(), u64::MAX, [7; 32], token.secret()));
        assert!(matches!(dialed, Err(LineError::AnotherToken(_))), "{dialed:?}");
        assert!(accepted.is_err(), "{accepted:?}");
    }

    // proves: P10
    /// The connection dies between the proof and the answer to it: whoever saw the token meanwhile is not to use it.
    #[test]
    fn a_proof_counts_whether_its_answer_arrives_or_not() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let invitation = Invitation::make().expect("made");
        let token = invitation.token(address, u64::MAX);
        let (give, take) = mpsc::channel::<TcpStream>();
        let dialing = thread::spawn(move || {
            let patience = Duration::from_secs(5);
            let mut line = JoinLine::shaken(&token, patience, patience).expect("shaken");
            let (mut handshake, hello) = line.greeting(&token).expect("a greeting");
            line.send_bytes(&hello).expect("sent");
            let challenged = line.step(&mut handshake).expect("a challenge");
            let other_end = take.recv().expect("the other end's socket");
            other_end.shutdown(std::net::Shutdown::Write).expect("nothing leaves it any more");
            line.send_bytes(&challenged.send).expect("the proof");
        });
        let (socket, _) = listener.accept().expect("a connection");
        give.send(socket.try_clone().expect("a second handle")).expect("taken");
        let accepted = JoinLine::accept(&invitation, socket);
        dialing.join().expect("no panic");
        let mut line = accepted.expect("proven");
        assert!(matches!(line.send(&"an offer"), Err(LineError::Broken(_))));
    }

    #[test]
    fn who_is_silent_is_not_taken_for_somebody_else_and_holds_nobody_up_for_long() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        // Nobody accepts: the kernel does, and nothing is said.
        let token = JoinToken::new(address, u64::MAX, [7; 32], [7; SECRET_BYTES]);
        let dialed = JoinLine::dial_for(&token, Duration::from_secs(5), Duration::from_millis(200));
        assert!(matches!(dialed.err(), Some(LineError::Late)));
        drop(listener.accept().expect("the one that gave up"));
        let invitation = Invitation::make().expect("made");
        let _silent = TcpStream::connect(address).expect("connects");
        let began = Instant::now();
        let accepted = JoinLine::accept(&invitation, listener.accept().expect("a connection").0);
        assert!(matches!(accepted.err(), Some(LineError::Late)));
        assert!(began.elapsed() < PROOF_PATIENCE, "{:?}", began.elapsed());
    }

    #[test]
    fn a_stranger_that_says_nothing_or_nonsense_is_let_go() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let invitation = Invitation::make().expect("made");
        for words in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0x16, 3, 1, 255, 255]] {
            let mut stranger = TcpStream::connect(address).expect("connects");
            stranger.write_all(words).expect("sent");
            stranger.shutdown(std::net::Shutdown::Write).expect("ended");
            let refused = JoinLine::accept(&invitation, listener.accept().expect("a connection").0);
            assert!(refused.is_err());
        }
    }
}
