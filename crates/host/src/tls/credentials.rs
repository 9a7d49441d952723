//! What a node shows, and whom it believes: read from files, replaced while it runs.
//!
//! Dates are not checked here. A node whose own certificate has expired is refused by its peers, which both logs say; it
//! still has volumes to serve, so it starts and warns.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::{ClientConfig, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, NoServerSessionStorage, ServerConfig};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{CertificateError, Error};
use tokio::sync::watch;

use super::channel::{Channel, LINK_PROTOCOL};
use super::clients::{Clients, Rights};
use super::facts::{CertificateFacts, MemberIdentity, Party, day};
use super::refusal::sentence;
use super::revoked::Revoked;
use super::trust::TrustStore;
use super::verify::{AcceptorVerifier, ExpectedClients, ExpectedNodes, NamedVerifier};
use crate::trusted_file::{self, FileContent, FileRefusal};

/// Ciphertext read at once. Of a link: as much as a plain one reads. Of NBD clients, of which there may be a thousand: four
/// records.
const LINK_BUFFER_BYTES: usize = 256 << 10;
const NBD_BUFFER_BYTES: usize = 64 << 10;
/// How long before its end a certificate is worth a warning: a month of holidays.
pub const WARN_BEFORE: Duration = Duration::from_secs(30 * 24 * 3600);
/// Files of certificates and keys are smaller by far; a larger one is something else.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Where a node's certificate, key and authority lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Certificates of the authority; several while it is being replaced.
    pub authority: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Paths {
    /// The paths `farshore cert` uses below `directory`.
    pub fn of_node(directory: &Path, node: &str) -> Paths {
        let nodes = directory.join("nodes");
        Paths {
            authority: directory.join("ca.crt"),
            certificate: nodes.join(format!("{node}.crt")),
            key: nodes.join(format!("{node}.key")),
        }
    }

    /// Where the certificates are listed that are believed no more; there need be none.
    pub fn revoked(&self) -> PathBuf {
        self.authority.with_file_name("revoked")
    }
}

/// Certificate, key and authorities, read and found to belong together.
#[derive(Debug)]
pub struct Credentials {
    provider: Arc<CryptoProvider>,
    trust: Arc<TrustStore>,
    shown: Arc<CertifiedKey>,
    cluster: String,
    expected_clients: ExpectedClients,
    link_server: Arc<ServerConfig>,
    nbd_server: Arc<ServerConfig>,
    pub own: CertificateFacts,
    pub authorities: Vec<CertificateFacts>,
}

impl Credentials {
    /// Reads the credentials of the node `us`, which is linked with `peers`.
    ///
    /// # Errors
    /// A sentence for everything that is wrong: missing, another user's, open to others, damaged, not belonging together, another's.
    pub fn load(
        paths: &Paths,
        us: &MemberIdentity,
        peers: &[String],
        clients: &Clients,
    ) -> Result<Credentials, Vec<String>> {
        let authorities = read_certificates(&paths.authority, "'farshore cert init' makes one");
        let make = format!("'farshore cert node {}' makes one", us.name);
        let chain = read_certificates(&paths.certificate, &make);
        let key = read_key(&paths.key, &make);
        let revoked = read_revoked(&paths.revoked());
        let (trust, chain, key) = match (authorities, chain, key, revoked) {
            (Ok(authorities), Ok(chain), Ok(key), Ok(revoked)) => ((authorities, revoked), chain, key),
            (authorities, chain, key, revoked) => {
                let wrong = [authorities.err(), chain.err(), key.err(), revoked.err()];
                return Err(wrong.into_iter().flatten().collect());
            }
        };
        Credentials::join(paths, us, peers, clients, trust, chain, key).map_err(|sentence| vec![sentence])
    }

    fn join(
        paths: &Paths,
        us: &MemberIdentity,
        peers: &[String],
        clients: &Clients,
        (authorities, revoked): (Vec<CertificateDer<'static>>, Revoked),
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Credentials, String> {
        let (certificate, authority) = (paths.certificate.display(), paths.authority.display());
        let about = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let facts =
            |path: &Path, der: &CertificateDer<'_>| CertificateFacts::of(der).map_err(|error| about(path, &error));
        let own = facts(&paths.certificate, &chain[0])?;
        check_own_name(&own, us).map_err(|why| format!("{certificate}: {why}"))?;
        let authority_facts: Result<Vec<_>, _> = authorities.iter().map(|der| facts(&paths.authority, der)).collect();
        let authority_facts = authority_facts?;
        let lengths: Vec<_> = authority_facts.iter().map(|facts| facts.path_length).collect();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let trust = TrustStore::new(authorities.into_iter().zip(lengths).collect(), provider.clone());
        let trust = trust.map_err(|error| about(&paths.authority, &error))?;
        check_own_chain(&chain, &trust, &own).map_err(|error| match error {
            Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
                format!("{certificate} is not of the authority in {authority}: copy both from where they were made")
            }
            other => format!("{certificate}: {}", sentence(&other)),
        })?;
        let shown = CertifiedKey::from_der(chain, key, &provider).map_err(|error| match error {
            Error::InconsistentKeys(_) => {
                format!("{} is not the key of {certificate}: copy both from where they were made", paths.key.display())
            }
            other => about(&paths.key, &other),
        })?;
        let mut credentials = CredentialParts {
            provider,
            trust: Arc::new(trust.without(revoked)),
            shown: Arc::new(shown),
            cluster: &us.cluster,
        };
        let expected_clients = ExpectedClients { cluster: us.cluster.clone(), clients: clients.clone() };
        let [link_server, nbd_server] =
            credentials.servers(peers, &expected_clients).map_err(|error| error.to_string())?;
        let CredentialParts { provider, trust, shown, .. } = credentials;
        let cluster = us.cluster.clone();
        let authorities = authority_facts;
        Ok(Credentials { provider, trust, shown, cluster, expected_clients, link_server, nbd_server, own, authorities })
    }

    /// The dialer's end of a connection with one of these nodes.
    pub(crate) fn dial(&self, peers: &[String]) -> Result<Channel, Error> {
        let expected = ExpectedNodes { cluster: self.cluster.clone(), names: peers.to_vec() };
        let algorithms = self.provider.signature_verification_algorithms;
        let mut config = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptorVerifier {
                expected,
                trust: self.trust.clone(),
                algorithms,
            }))
            .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(self.shown.clone())));
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![LINK_PROTOCOL.to_vec()];
        config.enable_sni = false;
        Channel::client(Arc::new(config), LINK_BUFFER_BYTES)
    }

    /// The acceptor's end of a connection between nodes.
    pub(crate) fn accept_link(&self) -> Result<Channel, Error> {
        Channel::server(self.link_server.clone(), LINK_BUFFER_BYTES)
    }

    /// The server's end of a connection with an NBD client.
    pub(crate) fn accept_nbd(&self) -> Result<Channel, Error> {
        Channel::server(self.nbd_server.clone(), NBD_BUFFER_BYTES)
    }

    /// The server's end of a connection with whoever reads metrics: the same that NBD clients are asked for.
    pub fn accept_scraper(&self) -> Arc<ServerConfig> {
        self.nbd_server.clone()
    }

    /// What an NBD client may do whose handshake was carried to its end, by the certificate it showed.
    ///
    /// # Errors
    /// A sentence: it may not come in.
    pub(crate) fn rights_of(&self, facts: Option<&CertificateFacts>) -> Result<Rights, String> {
        match (facts, &self.expected_clients.clients) {
            (_, Clients::Any) => Ok(Rights::All),
            (Some(facts), clients) => clients.admit(&self.cluster, facts),
            (None, _) => Err(sentence(&Error::NoCertificatesPresented)),
        }
    }

    /// What an NBD client may do now that came in earlier with these certificates, its own first.
    ///
    /// # Errors
    /// A sentence: it would not be let in any more.
    pub(crate) fn verify_client(&self, chain: &[CertificateDer<'_>]) -> Result<Rights, String> {
        if self.expected_clients.clients == Clients::Any {
            return Ok(Rights::All);
        }
        let [end, between @ ..] = chain else { return Err(sentence(&Error::NoCertificatesPresented)) };
        self.trust.verify_client_cert(end, between, UnixTime::now()).map_err(|error| sentence(&error))?;
        self.rights_of(Some(&CertificateFacts::of(end)?))
    }

    /// Whether a node that showed these certificates earlier still is believed; `dialed`: it was dialed from here.
    ///
    /// # Errors
    /// A sentence: it is not.
    pub(crate) fn verify_peer(&self, chain: &[CertificateDer<'_>], dialed: bool) -> Result<(), String> {
        let [end, between @ ..] = chain else { return Err(sentence(&Error::NoCertificatesPresented)) };
        let verified = match dialed {
            true => self.trust.verify_server(end, between, UnixTime::now()),
            false => self.trust.verify_client_cert(end, between, UnixTime::now()).map(drop),
        };
        verified.map_err(|error| sentence(&error))
    }

    /// Read from files of the same content.
    pub fn is_same_as(&self, other: &Credentials) -> bool {
        self.shows_same_as(other) && self.revoked() == other.revoked()
    }

    /// A connection made by the one would look like one made by the other.
    pub fn shows_same_as(&self, other: &Credentials) -> bool {
        self.shown.cert == other.shown.cert && self.authorities == other.authorities
    }

    /// Whether something that `other` has revoked is believed by these, or an authority that it believes is not.
    pub fn lacks_some_of(&self, other: &Credentials) -> bool {
        let is_believed = |authority: &CertificateFacts| self.authorities.contains(authority);
        !self.revoked().includes(other.revoked()) || !other.authorities.iter().all(is_believed)
    }

    /// What is believed no more.
    pub fn revoked(&self) -> &Revoked {
        self.trust.revoked()
    }

    /// What an operator should see to, `now` in seconds since 1970.
    pub fn warnings(&self, now: i64) -> Vec<String> {
        let own = warning("this node's certificate", "farshore cert rotate NAME", &self.own, now);
        let newest = self.authorities.iter().max_by_key(|facts| facts.not_after);
        let authority = newest.and_then(|facts| warning("the authority", "farshore cert rotate --ca", facts, now));
        let revoked = self.revoked().has(&self.own).then(|| {
            "this node's certificate is on its own list of revoked ones, so peers refuse it; renew it with 'farshore cert rotate NAME'"
                .to_owned()
        });
        own.into_iter().chain(authority).chain(revoked).collect()
    }
}

/// What the servers' settings are made of.
struct CredentialParts<'a> {
    provider: Arc<CryptoProvider>,
    trust: Arc<TrustStore>,
    shown: Arc<CertifiedKey>,
    cluster: &'a str,
}

impl CredentialParts<'_> {
    /// For links, and for NBD clients.
    fn servers(
        &mut self,
        peers: &[String],
        expected_clients: &ExpectedClients,
    ) -> Result<[Arc<ServerConfig>; 2], Error> {
        let inner = self.trust.clone();
        let expected = ExpectedNodes { cluster: self.cluster.to_owned(), names: peers.to_vec() };
        let mut link = self.server(Arc::new(NamedVerifier { names: expected, inner: inner.clone() }))?;
        link.alpn_protocols = vec![LINK_PROTOCOL.to_vec()];
        let clients: Arc<dyn ClientCertVerifier> = match expected_clients.clients {
            Clients::Certified | Clients::Listed(_) => {
                Arc::new(NamedVerifier { names: expected_clients.clone(), inner })
            }
            Clients::Any => Arc::new(NoClientAuth),
        };
        Ok([Arc::new(link), Arc::new(self.server(clients)?)])
    }

    /// No tickets, no memory of sessions, no early data: each connection proves everything anew.
    fn server(&self, clients: Arc<dyn ClientCertVerifier>) -> Result<ServerConfig, Error> {
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(clients)
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(self.shown.clone())));
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        Ok(config)
    }
}

fn check_own_name(own: &CertificateFacts, us: &MemberIdentity) -> Result<(), String> {
    match &own.identity {
        Some(identity) if identity == us => Ok(()),
        Some(MemberIdentity { party: Party::Client, name, .. }) => {
            Err(format!("it is the certificate of the client {name:?}, and this is the node {:?}", us.name))
        }
        Some(MemberIdentity { cluster, name, .. }) => Err(format!(
            "it is the certificate of node {name:?} of cluster {cluster:?}, and this is node {:?} of cluster {:?}; make \
             this one's with 'farshore cert node {}'",
            us.name, us.cluster, us.name
        )),
        None => Err(format!("it names no node; make one with 'farshore cert node {}'", us.name)),
    }
}

/// At a moment when it was valid: dates are another matter.
fn check_own_chain(chain: &[CertificateDer<'_>], trust: &TrustStore, own: &CertificateFacts) -> Result<(), Error> {
    let moment = Duration::from_secs(u64::try_from(own.not_before).unwrap_or(0));
    trust.verify_server(&chain[0], &chain[1..], UnixTime::since_unix_epoch(moment))
}

/// Whether a certificate's dates deserve an operator's eye.
pub fn warning(whose: &str, remedy: &str, facts: &CertificateFacts, now: i64) -> Option<String> {
    let (begin, end) = (day(facts.not_before), day(facts.not_after));
    let soon = i64::try_from(WARN_BEFORE.as_secs()).unwrap_or(i64::MAX);
    if now < facts.not_before {
        Some(format!("{whose} is not valid before {begin}: peers refuse it until then; see that the clocks are right"))
    } else if now >= facts.not_after {
        Some(format!("{whose} expired on {end}: peers refuse it; renew it now with '{remedy}'"))
    } else if facts.not_after - now < soon {
        let days = (facts.not_after - now) / (24 * 3600);
        Some(format!("{whose} expires in {days} days, on {end}; renew it with '{remedy}'"))
    } else {
        None
    }
}

/// Reads all certificates of a file; never none.
///
/// # Errors
/// A sentence; `make` says how the file comes to be.
fn read_certificates(path: &Path, make: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read_file(path, "certificate", FileContent::Public, make)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(list) if !list.is_empty() => Ok(list),
        Ok(_) => Err(format!("{} holds no certificate in PEM form; {make}", path.display())),
        Err(error) => Err(format!("{} is damaged: {error}; {make}", path.display())),
    }
}

/// Reads the list of certificates that are believed no more, if there is one.
fn read_revoked(path: &Path) -> Result<Revoked, String> {
    let name = path.display();
    if matches!(std::fs::symlink_metadata(path), Err(error) if error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(Revoked::default());
    }
    let advice = "remove it if nothing is revoked";
    let text = read_file(path, "list of revoked certificates", FileContent::Public, advice)?;
    let text = String::from_utf8(text).map_err(|_| format!("the list of revoked certificates {name} is no text"))?;
    Revoked::parse(&text).map_err(|why| format!("the list of revoked certificates {name}: {why}"))
}

fn read_key(path: &Path, make: &str) -> Result<PrivateKeyDer<'static>, String> {
    let text = read_file(path, "key", FileContent::Secret, make)?;
    let name = path.display();
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| format!("{name} holds no key in PEM form: {error}; {make}"))
}

/// A file's content, if it can be believed.
fn read_file(path: &Path, what: &str, content: FileContent, make: &str) -> Result<Vec<u8>, String> {
    let name = path.display();
    trusted_file::read(path, what, content, FILE_BYTES_MAX).map_err(|refusal| match refusal {
        FileRefusal::Missing => format!("the {what} {name} does not exist; {make}"),
        FileRefusal::Failed(error) => format!("the {what} {name} cannot be read: {error}"),
        FileRefusal::Unsafe(sentence) => sentence,
        FileRefusal::NotPlain => format!("the {what} {name} is not a plain file; {make}"),
        FileRefusal::TooLong => {
            format!("the {what} {name} is larger than {FILE_BYTES_MAX} bytes; is it the right file?")
        }
    })
}

/// The credentials in use. New connections take what is there; whoever reads new files puts them in; whoever let somebody in verifies
/// them again by what comes.
#[derive(Clone, Debug)]
pub struct CredentialStore(Arc<watch::Sender<Arc<Credentials>>>);

impl CredentialStore {
    pub fn new(credentials: Credentials) -> CredentialStore {
        CredentialStore(Arc::new(watch::Sender::new(Arc::new(credentials))))
    }

    pub fn current(&self) -> Arc<Credentials> {
        self.0.borrow().clone()
    }

    pub fn replace(&self, credentials: Credentials) {
        self.0.send_replace(Arc::new(credentials));
    }

    /// Tells of each replacement from here on, on any thread.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<Credentials>> {
        self.0.subscribe()
    }
}
