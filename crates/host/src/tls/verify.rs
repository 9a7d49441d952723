//! Is this the node it should be? Chain, dates and purpose are the library's to verify, names are ours.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::clients::Clients;
use super::facts::{CertificateFacts, MemberIdentity, Party};
use super::refusal::refused_because;
use super::trust::TrustStore;

/// The nodes that may be at the other end.
#[derive(Clone, Debug)]
pub(super) struct ExpectedNodes {
    pub cluster: String,
    pub names: Vec<String>,
}

/// The NBD clients that may be at the other end.
#[derive(Clone, Debug)]
pub(super) struct ExpectedClients {
    pub cluster: String,
    pub clients: Clients,
}

/// Whether a certificate that is sound is that of somebody who is meant.
pub(super) trait NameCheck: fmt::Debug + Send + Sync {
    /// # Errors
    /// A sentence: it is another's.
    fn check_facts(&self, facts: &CertificateFacts) -> Result<(), String>;

    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let facts = CertificateFacts::of(certificate).map_err(|_| CertificateError::BadEncoding)?;
        self.check_facts(&facts).map_err(refused_because)
    }
}

impl NameCheck for ExpectedClients {
    fn check_facts(&self, facts: &CertificateFacts) -> Result<(), String> {
        self.clients.admit(&self.cluster, facts).map(drop)
    }
}

impl NameCheck for ExpectedNodes {
    fn check_facts(&self, facts: &CertificateFacts) -> Result<(), String> {
        self.is_meant(facts.identity.as_ref())
    }
}

impl ExpectedNodes {
    fn is_meant(&self, identity: Option<&MemberIdentity>) -> Result<(), String> {
        let Some(identity) = identity else {
            return Err("its certificate names no node: make one with 'farshore cert node NAME'".to_owned());
        };
        let list = self.names.join(" or ");
        let (cluster, name) = (&self.cluster, &identity.name);
        if identity.party != Party::Node {
            return Err(format!("its certificate is that of the client {name:?}, not of a node"));
        }
        if identity.cluster != *cluster {
            let theirs = &identity.cluster;
            return Err(format!("its certificate is of cluster {theirs:?}, this node is of {cluster:?}"));
        }
        if !self.names.contains(name) {
            return Err(format!(
                "its certificate is that of node {name:?}, expected was {list}: correct the addresses in the \
                 configuration, or give it its own certificate"
            ));
        }
        Ok(())
    }
}

/// The dialer's view of the node it dials.
#[derive(Debug)]
pub(super) struct AcceptorVerifier {
    pub expected: ExpectedNodes,
    pub trust: Arc<TrustStore>,
    pub algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for AcceptorVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.trust.verify_server(end_entity, intermediates, now)?;
        self.expected.check(end_entity)?;
        Ok(ServerCertVerified::assertion())
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
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The acceptor's view of whoever dials: the library's verification, then the name.
#[derive(Debug)]
pub(super) struct NamedVerifier<N> {
    pub names: N,
    pub inner: Arc<TrustStore>,
}

impl<N: NameCheck> ClientCertVerifier for NamedVerifier<N> {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        self.names.check(end_entity)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected() -> ExpectedNodes {
        ExpectedNodes { cluster: "harbour".into(), names: vec!["west".into()] }
    }

    #[test]
    fn only_the_expected_node_of_this_cluster_passes() {
        let check_facts = |identity: Option<MemberIdentity>| expected().is_meant(identity.as_ref());
        assert_eq!(check_facts(Some(MemberIdentity::node("harbour", "west"))), Ok(()));
        for (identity, words) in [
            (None, "names no node"),
            (Some(MemberIdentity::node("harbour", "north")), "node \"north\", expected was west"),
            (Some(MemberIdentity::node("bay", "west")), "cluster \"bay\""),
            (Some(MemberIdentity::client("harbour", "west")), "client \"west\""),
        ] {
            let why = check_facts(identity).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
    }
}
