//! A webhook: each event by POST, over one connection for each attempt.
//!
//! It runs on the hook's own thread, with a runtime of its own, so that looking up a name or a server that takes its time holds nobody
//! else up.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use host::resolver;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use settings::HookUrl;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use units::exact::duration_text;

use super::attempt::AttemptFailure;
use super::queue::BoundedQueue;
use crate::events::EventRecord;

/// Where systems keep the authorities they believe, in the order in which they are looked for.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Pause between two looks whether the daemon ends.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// An address that events are sent to.
pub(super) struct Webhook {
    url: HookUrl,
    /// `None`: the system's authorities.
    ca: Option<PathBuf>,
}

impl Webhook {
    pub fn new(url: HookUrl, ca: Option<PathBuf>) -> Webhook {
        Webhook { url, ca }
    }

    /// Sends the event once, and takes an answer from 200 to 299 as yes.
    ///
    /// # Errors
    /// Nobody is reached, the server says no, or it takes longer than `limit`; or the queue is closed, as the daemon ends.
    pub fn post(
        &self,
        event: &EventRecord,
        limit: Duration,
        queue: &BoundedQueue<EventRecord>,
    ) -> Result<(), AttemptFailure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| AttemptFailure::Failed(format!("it cannot be sent: {error}")))?;
        let end = async {
            while !queue.is_closed_within(Duration::ZERO) {
                sleep(LOOK_AGAIN).await;
            }
        };
        runtime.block_on(async {
            tokio::select! {
                sent = timeout(limit, self.send(event.line())) => match sent {
                    Ok(sent) => sent.map_err(AttemptFailure::Failed),
                    Err(_) => Err(AttemptFailure::Failed(format!("there was no answer within {}", duration_text(limit)))),
                },
                () = end => Err(AttemptFailure::Ending),
            }
        })
    }

    async fn send(&self, line: String) -> Result<(), String> {
        let (host, port) = (self.url.host(), self.url.port());
        let unreached = |error: std::io::Error| format!("{host} port {port} cannot be reached: {error}");
        let addresses = addresses(host, port).await.map_err(unreached)?;
        let stream = TcpStream::connect(&addresses[..]).await.map_err(unreached)?;
        if !self.url.is_encrypted() {
            return self.ask(stream, line).await;
        }
        let config = ClientConfig::builder().with_root_certificates(self.authorities()?).with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("{host:?} is no name of a server"))?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        self.ask(stream.map_err(|error| format!("{host} was not believed, or it broke off: {error}"))?, line).await
    }

    /// Read anew for each connection: authorities are replaced while a daemon runs.
    fn authorities(&self) -> Result<RootCertStore, String> {
        let file = match &self.ca {
            Some(file) => file.as_path(),
            None => SYSTEM_AUTHORITIES.iter().map(Path::new).find(|path| path.exists()).ok_or(
                "this system has no file of authorities where one is looked for; install ca-certificates, or name one with the key 'ca'",
            )?,
        };
        let shown = file.display();
        let read = CertificateDer::pem_file_iter(file).map_err(|error| format!("{shown} cannot be read: {error}"))?;
        let mut roots = RootCertStore::empty();
        // Systems carry some that this library does not take; the others count.
        roots.add_parsable_certificates(read.flatten());
        if roots.is_empty() {
            return Err(format!(
                "{shown} holds no authority; name a file of certificates in PEM form with the key 'ca'"
            ));
        }
        Ok(roots)
    }

    async fn ask(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        line: String,
    ) -> Result<(), String> {
        let broke = |error: hyper::Error| format!("the connection broke off before an answer: {error}");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broke)?;
        let request = Request::post(self.url.target())
            .header(HOST, self.authority())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("farshore/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(Bytes::from(line)))
            .map_err(|error| format!("the address cannot be asked: {error}"))?;
        let mut asked = std::pin::pin!(sender.send_request(request));
        let answered = tokio::select! {
            answered = &mut asked => answered,
            // Whoever closes right behind its answer has answered.
            ended = connection => match (asked.await, ended) {
                (Err(_), Err(why)) => Err(why),
                (answered, _) => answered,
            },
        };
        let answered = answered.map_err(broke)?;
        match answered.status() {
            status if status.is_success() => Ok(()),
            status if status.is_redirection() => Err(format!(
                "the server answered {}, which is not followed: name the address it leads to",
                shown(status)
            )),
            status => Err(format!("the server answered {}", shown(status))),
        }
    }

    /// The host, in brackets if it is an address with colons, and the port if it is not the usual one.
    fn authority(&self) -> String {
        let host = self.url.host();
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        match (self.url.is_encrypted(), self.url.port()) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

/// Where a host is.
async fn addresses(host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    match host.parse::<IpAddr>() {
        Ok(ip) => Ok(vec![SocketAddr::new(ip, port)]),
        Err(_) => resolver::addresses((host.to_owned(), port)).await,
    }
}

fn shown(status: StatusCode) -> String {
    let words = status.canonical_reason().map(|words| format!(" ({words})")).unwrap_or_default();
    format!("{}{words}", status.as_u16())
}

#[cfg(test)]
mod tests {
    use settings::events::EventKind;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

    use super::*;
    use crate::events::NewEvent;
    use crate::without_threads::has_no_threads;

    /// A server with a certificate of its own that takes one event; its address, and the certificate as PEM.
    fn start_server() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![made.cert.der().clone()], key.into()).expect("they fit");
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
                tell.send(listener.local_addr().expect("an address")).expect("the test waits");
                let (stream, _) = listener.accept().await.expect("somebody comes");
                let Ok(mut stream) = TlsAcceptor::from(Arc::new(config)).accept(stream).await else { return };
                let mut asked = Vec::new();
                while !asked.ends_with(b"}\n") && stream.read_buf(&mut asked).await.is_ok_and(|length| length > 0) {}
                let answer = if asked.starts_with(b"POST /in ") { "200 OK" } else { "400 Bad Request" };
                let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.expect("it is read");
                let _ = stream.shutdown().await;
            });
        });
        (format!("https://{}/in", told.recv().expect("it listens")), made.cert.pem())
    }

    fn post(url: &str, ca: &Path) -> Result<(), AttemptFailure> {
        let webhook = Webhook::new(HookUrl::parse(url).expect("an address"), Some(ca.to_owned()));
        let event = NewEvent::at(5, EventKind::Note, "x").numbered(1, "alpha");
        webhook.post(&event, Duration::from_secs(60), &BoundedQueue::new(1))
    }

    #[test]
    fn an_encrypted_address_is_believed_by_its_authority_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let ca = directory.path().join("ca.pem");
        let (url, certificate) = start_server();
        std::fs::write(&ca, certificate).expect("written");
        assert_eq!(post(&url, &ca), Ok(()));
        let (other, _) = start_server();
        let AttemptFailure::Failed(why) = post(&other, &ca).expect_err("another's certificate") else {
            panic!("no end")
        };
        assert!(why.contains("127.0.0.1 was not believed"), "{why}");
        std::fs::write(&ca, "no certificate").expect("written");
        let (third, _) = start_server();
        let AttemptFailure::Failed(why) = post(&third, &ca).expect_err("nobody is believed") else { panic!("no end") };
        assert!(why.contains("holds no authority"), "{why}");
    }

    #[test]
    fn a_server_that_says_nothing_is_given_up_at_the_limit() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let webhook = Webhook::new(HookUrl::parse(&url).expect("an address"), None);
        let event = NewEvent::at(5, EventKind::Note, "x").numbered(1, "alpha");
        let queue = BoundedQueue::new(1);
        let silent = webhook.post(&event, Duration::from_millis(200), &queue);
        assert_eq!(silent, Err(AttemptFailure::Failed("there was no answer within 200ms".to_owned())));
        queue.close();
        assert_eq!(webhook.post(&event, Duration::from_secs(600), &queue), Err(AttemptFailure::Ending));
    }

    #[test]
    fn a_name_is_looked_up_and_every_address_tried() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody comes");
            let (mut asked, mut piece) = (Vec::new(), [0; 1024]);
            while !asked.ends_with(b"}\n") {
                let length = std::io::Read::read(&mut stream, &mut piece).expect("it asks");
                assert!(length > 0, "it broke off");
                asked.extend_from_slice(&piece[..length]);
            }
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            std::io::Write::write_all(&mut stream, answer).expect("it reads");
        });
        assert_eq!(post(&format!("http://localhost:{port}/"), Path::new("/nowhere")), Ok(()));
        answering.join().expect("it answered");
    }

    /// The thread of the hook was gone then, until the daemon was started anew.
    #[test]
    fn without_a_thread_to_look_up_its_name_an_attempt_fails() {
        let test = "daemon::events::webhook::tests::without_a_thread_to_look_up_its_name_an_attempt_fails";
        if !has_no_threads(test) {
            return;
        }
        let failed = post("http://localhost:9/", Path::new("/nowhere")).expect_err("no thread");
        let AttemptFailure::Failed(why) = failed else { panic!("no end") };
        assert!(why.contains("localhost port 9 cannot be reached"), "{why}");
    }
}
