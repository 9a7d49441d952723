//! The authorities that a node believes, each with the length of chain that it allows.
//!
//! The library takes name and key of an authority from its certificate, and forgets how many others may stand between it and whoever
//! they sign. So what is shown is verified once more with as many of those as the authority allows.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use super::facts::CertificateFacts;
use super::refusal::refused_because;
use super::revoked::Revoked;

/// Of more certificates between two others no shorter way is looked for.
const BETWEEN_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct TrustStore {
    /// Authorities that allow the same length are verified together.
    groups: Vec<AuthorityGroup>,
    names: Vec<DistinguishedName>,
    /// Signed by them and believed no more.
    revoked: Revoked,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug)]
struct AuthorityGroup {
    /// `None`: any number of certificates between.
    between_max: Option<u32>,
    roots: RootCertStore,
    clients: Arc<dyn ClientCertVerifier>,
}

impl TrustStore {
    /// Each authority with the path length that its certificate names.
    ///
    /// # Errors
    /// One is none that the library takes.
    ///
    /// # Panics
    /// If there is none.
    pub fn new(
        authorities: Vec<(CertificateDer<'static>, Option<u32>)>,
        provider: Arc<CryptoProvider>,
    ) -> Result<TrustStore, Error> {
        assert!(!authorities.is_empty(), "somebody has to be believed");
        let mut stores = BTreeMap::<Option<u32>, RootCertStore>::new();
        for (der, between_max) in authorities {
            stores.entry(between_max).or_insert_with(RootCertStore::empty).add(der)?;
        }
        let names = stores.values().flat_map(RootCertStore::subjects).collect();
        let group = |(between_max, roots): (Option<u32>, RootCertStore)| {
            let clients =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots.clone()), provider.clone()).build();
            let clients = clients.map_err(|error| Error::General(error.to_string()))?;
            Ok::<_, Error>(AuthorityGroup { between_max, roots, clients })
        };
        let groups = stores.into_iter().map(group).collect::<Result<_, _>>()?;
        Ok(TrustStore { groups, names, revoked: Revoked::default(), provider })
    }

    /// The same authorities, without these certificates of theirs.
    pub fn without(self, revoked: Revoked) -> TrustStore {
        TrustStore { revoked, ..self }
    }

    pub fn revoked(&self) -> &Revoked {
        &self.revoked
    }

    /// Whether nothing of what was shown was revoked: an authority between the two may have been, too.
    fn is_in_force(&self, end: &CertificateDer<'_>, between: &[CertificateDer<'_>]) -> Result<(), Error> {
        if self.revoked.is_empty() {
            return Ok(());
        }
        for der in std::iter::once(end).chain(between) {
            let facts = CertificateFacts::of(der).map_err(|_| CertificateError::BadEncoding)?;
            if self.revoked.has(&facts) {
                return Err(CertificateError::Revoked.into());
            }
        }
        Ok(())
    }

    /// Whether a server's certificate is of one of them.
    ///
    /// # Errors
    /// Why not.
    pub fn verify_server(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let parsed = ParsedCertificate::try_from(end)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        self.verify_with(between, |group, between| {
            verify_server_cert_signed_by_trust_anchor(&parsed, &group.roots, between, now, algorithms)
        })?;
        self.is_in_force(end, between)
    }

    fn verify_with(
        &self,
        between: &[CertificateDer<'_>],
        verify: impl Fn(&AuthorityGroup, &[CertificateDer<'_>]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut refusal = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        for group in &self.groups {
            let refused = match (verify(group, between), group.between_max) {
                (Ok(()), None) => return Ok(()),
                (Ok(()), Some(most)) if group.has_short_way(between, most, &verify) => return Ok(()),
                (Ok(()), Some(most)) => refused_because(format!(
                    "its certificate is signed by an authority below this cluster's, whose own certificate allows {most} of them (path \
                     length): have it signed by the cluster's authority itself"
                )),
                (Err(error), _) => error,
            };
            if !matches!(refused, Error::InvalidCertificate(CertificateError::UnknownIssuer)) {
                refusal = refused;
            }
        }
        Err(refusal)
    }
}

impl AuthorityGroup {
    /// Whether so many of what was shown are enough: it may have shown more than is needed.
    fn has_short_way(
        &self,
        between: &[CertificateDer<'_>],
        most: u32,
        verify: impl Fn(&AuthorityGroup, &[CertificateDer<'_>]) -> Result<(), Error>,
    ) -> bool {
        if between.len() <= most as usize {
            return true;
        }
        if most == 0 {
            return verify(self, &[]).is_ok();
        }
        if between.len() > BETWEEN_MAX {
            return false;
        }
        (0..1u32 << between.len()).filter(|chosen| chosen.count_ones() == most).any(|chosen| {
            let is_chosen = |(at, _): &(usize, &CertificateDer<'_>)| chosen & (1 << at) != 0;
            let few: Vec<_> = between.iter().enumerate().filter(is_chosen).map(|(_, der)| der.clone()).collect();
            verify(self, &few).is_ok()
        })
    }
}

/// Whoever comes as a client.
impl ClientCertVerifier for TrustStore {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.names
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verify = |group: &AuthorityGroup, between: &[CertificateDer<'_>]| {
            group.clients.verify_client_cert(end_entity, between, now).map(drop)
        };
        self.verify_with(intermediates, verify)?;
        self.is_in_force(end_entity, intermediates)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.groups[0].clients.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.groups[0].clients.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.groups[0].clients.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
    use rustls::crypto::aws_lc_rs;

    use super::super::facts::CertificateFacts;
    use super::super::twins::twins;
    use super::*;

    type Issuer = CertifiedIssuer<'static, KeyPair>;

    fn params(name: &str, length: Option<u8>) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(length.map_or(BasicConstraints::Unconstrained, BasicConstraints::Constrained));
        params
    }

    fn authority(name: &str, length: Option<u8>) -> Issuer {
        CertifiedIssuer::self_signed(params(name, length), KeyPair::generate().unwrap()).unwrap()
    }

    fn below(name: &str, issuer: &Issuer) -> Issuer {
        CertifiedIssuer::signed_by(params(name, None), KeyPair::generate().unwrap(), issuer).unwrap()
    }

    fn node(issuer: &Issuer) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        params.signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().clone()
    }

    fn trust(roots: &[&Issuer]) -> TrustStore {
        let one = |root: &&Issuer| {
            let der = root.der().clone();
            let length = CertificateFacts::of(&der).expect("a certificate").path_length;
            (der, length)
        };
        TrustStore::new(roots.iter().map(one).collect(), Arc::new(aws_lc_rs::default_provider())).expect("sound")
    }

    // proves: P10
    /// Its signature can be written in two ways (ECDSA), and both are verified: the fingerprint of one names the other.
    #[test]
    fn a_revoked_certificate_is_not_believed_in_another_form() {
        let root = authority("root", None);
        let shown = node(&root);
        let fingerprint = CertificateFacts::of(&shown).expect("a certificate").fingerprint;
        let twins: Vec<_> = twins(&shown).into_iter().map(CertificateDer::from).collect();
        assert!(twins.iter().any(|twin| is_believed(&trust(&[&root]), twin, &[])), "it has a twin that is verified");
        let trust = trust(&[&root]).without(Revoked::parse(&fingerprint).expect("a list"));
        for form in twins.iter().chain([&shown]) {
            assert!(!is_believed(&trust, form, &[]));
        }
        assert!(is_believed(&trust, &node(&root), &[]), "another one is");
    }

    fn is_believed(trust: &TrustStore, end: &CertificateDer<'_>, between: &[&Issuer]) -> bool {
        let between: Vec<_> = between.iter().map(|issuer| issuer.der().clone()).collect();
        let server = trust.verify_server(end, &between, UnixTime::now());
        let client = trust.verify_client_cert(end, &between, UnixTime::now());
        assert_eq!(server.is_ok(), client.is_ok(), "{server:?} {client:?}");
        if let Err(error) = &server {
            let why = super::super::refusal::sentence(error);
            let known = ["path length", "not of this cluster's authority", "was revoked"];
            assert!(known.iter().any(|words| why.contains(words)), "{why}");
        }
        server.is_ok()
    }

    #[test]
    fn a_chain_is_no_longer_than_its_authority_allows() {
        for (length, longest) in [(Some(0), 0), (Some(1), 1), (None, 2)] {
            let root = authority("root", length);
            let one = below("one", &root);
            let two = below("two", &one);
            let trust = trust(&[&root]);
            let ends: [(&Issuer, &[&Issuer]); 3] = [(&root, &[]), (&one, &[&one]), (&two, &[&two, &one])];
            for (count, (issuer, between)) in ends.into_iter().enumerate() {
                assert_eq!(is_believed(&trust, &node(issuer), between), count <= longest, "{length:?}: {count}");
            }
            // More was shown than is needed.
            assert!(is_believed(&trust, &node(&root), &[&one, &two]), "{length:?}");
            assert_eq!(is_believed(&trust, &node(&one), &[&two, &one]), longest >= 1, "{length:?}");
            if longest == 0 {
                let refused = trust.verify_server(&node(&one), &[one.der().clone()], UnixTime::now()).unwrap_err();
                let why = super::super::refusal::sentence(&refused);
                for words in
                    ["signed by an authority below this cluster's", "have it signed by the cluster's authority itself"]
                {
                    assert!(why.contains(words), "{why}");
                }
            }
        }
    }

    /// One below with the name of its own authority is no shorter way.
    #[test]
    fn a_borrowed_name_shortens_nothing() {
        let root = authority("root", Some(0));
        let impostor = below("root", &root);
        assert!(!is_believed(&trust(&[&root]), &node(&impostor), &[&impostor]));
    }

    #[test]
    fn each_authority_has_its_own_bound() {
        let (strict, free, other) = (authority("strict", Some(0)), authority("free", None), authority("other", None));
        let (below_strict, below_free) = (below("a", &strict), below("b", &free));
        let trust = trust(&[&strict, &free]);
        assert!(is_believed(&trust, &node(&strict), &[]) && is_believed(&trust, &node(&below_free), &[&below_free]));
        assert!(
            !is_believed(&trust, &node(&below_strict), &[&below_strict]) && !is_believed(&trust, &node(&other), &[])
        );
    }
}
