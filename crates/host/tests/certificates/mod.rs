//! An authority for tests, and certificates of every kind: sound, expired, another's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use host::tls::{CertificateFacts, Clients, CredentialStore, Credentials, MemberIdentity, Party, Paths};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub const CLUSTER: &str = "harbour";
const DAY: Duration = Duration::from_secs(24 * 3600);

/// When a certificate is valid, as seen from now.
#[derive(Clone, Copy)]
pub enum Dates {
    Now,
    Past,
    Future,
}

/// One authority and what it has signed, in a directory.
pub struct TestCertificates {
    pub directory: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl TestCertificates {
    pub fn new() -> TestCertificates {
        TestCertificates::of("authority")
    }

    /// By an authority of this name.
    pub fn of(name: &str) -> TestCertificates {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("ca.crt"), authority.pem()).unwrap();
        TestCertificates { directory, authority }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Makes a certificate and its key under `file`.
    pub fn issue(&self, file: &str, identity: &MemberIdentity, dates: Dates) -> Paths {
        let now = SystemTime::now();
        let (begin, end) = match dates {
            Dates::Now => (now - DAY, now + 60 * DAY),
            Dates::Past => (now - 2 * DAY, now - DAY),
            Dates::Future => (now + DAY, now + 2 * DAY),
        };
        let mut params = CertificateParams::default();
        (params.not_before, params.not_after) = (begin.into(), end.into());
        params.subject_alt_names = vec![
            SanType::URI(identity.to_string().try_into().unwrap()),
            SanType::IpAddress("127.0.0.1".parse().unwrap()),
        ];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if identity.party == Party::Node {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        self.sign(file, params)
    }

    fn sign(&self, file: &str, params: CertificateParams) -> Paths {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        let paths = Paths {
            authority: self.path("ca.crt"),
            certificate: self.path(&format!("{file}.crt")),
            key: self.path(&format!("{file}.key")),
        };
        fs::write(&paths.certificate, certificate.pem()).unwrap();
        write_key(&paths.key, &key.serialize_pem());
        paths
    }

    /// Credentials of a node, linked with `peer`.
    pub fn node(&self, name: &str, peer: &str, dates: Dates) -> CredentialStore {
        let us = MemberIdentity::node(CLUSTER, name);
        let paths = self.issue(name, &us, dates);
        CredentialStore::new(Credentials::load(&paths, &us, &[peer.to_owned()], &Clients::Certified).unwrap())
    }

    /// Credentials of an NBD server.
    pub fn server(&self, clients: Clients) -> CredentialStore {
        CredentialStore::new(self.credentials("server", &clients))
    }

    /// Credentials of a node without peers, by a new certificate and what is revoked now.
    pub fn credentials(&self, name: &str, clients: &Clients) -> Credentials {
        let us = MemberIdentity::node(CLUSTER, name);
        let paths = self.issue(name, &us, Dates::Now);
        Credentials::load(&paths, &us, &[], clients).unwrap()
    }

    /// From here on this certificate is on the list of revoked ones.
    pub fn revoke(&self, file: &str) {
        let facts = &CertificateFacts::of_pem(&fs::read(self.path(&format!("{file}.crt"))).unwrap()).unwrap()[0];
        let path = self.path("revoked");
        let before = fs::read_to_string(&path).unwrap_or_default();
        // By its serial number, if it is not the first.
        let line = if before.is_empty() { facts.fingerprint.clone() } else { format!("serial={}", facts.serial) };
        fs::write(&path, format!("{before}{line} # {file}\n")).unwrap();
    }

    /// A directory as qemu and libnbd want it.
    pub fn client(&self, name: &str, dates: Dates) -> PathBuf {
        self.for_client(name, self.issue(name, &MemberIdentity::client(CLUSTER, name), dates))
    }

    /// The same with a certificate of this authority for something else: these are its names.
    pub fn without_identity(&self, name: &str, names: Vec<SanType>) -> PathBuf {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        self.for_client(name, self.sign(name, params))
    }

    fn for_client(&self, name: &str, paths: Paths) -> PathBuf {
        let own = self.path(&format!("client-{name}"));
        fs::create_dir(&own).unwrap();
        for (from, to) in
            [(&paths.authority, "ca-cert.pem"), (&paths.certificate, "client-cert.pem"), (&paths.key, "client-key.pem")]
        {
            fs::copy(from, own.join(to)).unwrap();
        }
        own
    }
}

fn write_key(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A TLS client that believes the authority, and shows this certificate or nothing.
pub fn tls_client(certificates: &TestCertificates, own: Option<&Paths>) -> rustls::ClientConnection {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificates.path("ca.crt")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some(own) => {
            let certificate = CertificateDer::from_pem_file(&own.certificate).unwrap();
            let key = PrivateKeyDer::from_pem_file(&own.key).unwrap();
            config.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    rustls::ClientConnection::new(Arc::new(config), "127.0.0.1".try_into().unwrap()).unwrap()
}
