//! Is this the node it should be? Chain, dates and purpose are the library's to judge, names are ours.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    AlertDescription, CertificateError, DigitallySignedStruct, DistinguishedName, Error, InvalidMessage, OtherError,
    SignatureScheme,
};

use super::clients::Clients;
use super::facts::{Facts, Identity, Party, day};
use super::trust::Trust;

/// The nodes that may be at the other end.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub cluster: String,
    pub names: Vec<String>,
}

/// A certificate that is sound, and another's.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WrongName(String);

impl fmt::Display for WrongName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl StdError for WrongName {}

/// A refusal in words of our own.
pub(super) fn told(sentence: String) -> Error {
    let other: Arc<dyn StdError + Send + Sync> = Arc::new(WrongName(sentence));
    Error::InvalidCertificate(CertificateError::Other(OtherError(other)))
}

/// The NBD clients that may be at the other end.
#[derive(Clone, Debug)]
pub(super) struct Guests {
    pub cluster: String,
    pub clients: Clients,
}

/// Whether a certificate that is sound is that of somebody who is meant.
pub(super) trait Names: fmt::Debug + Send + Sync {
    /// # Errors
    /// A sentence: it is another's.
    fn judge(&self, facts: &Facts) -> Result<(), String>;

    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let facts = Facts::of(certificate).map_err(|_| CertificateError::BadEncoding)?;
        self.judge(&facts).map_err(told)
    }
}

impl Names for Guests {
    fn judge(&self, facts: &Facts) -> Result<(), String> {
        self.clients.admit(&self.cluster, facts).map(drop)
    }
}

impl Names for Expected {
    fn judge(&self, facts: &Facts) -> Result<(), String> {
        self.is_meant(facts.identity.as_ref())
    }
}

impl Expected {
    fn is_meant(&self, identity: Option<&Identity>) -> Result<(), String> {
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
pub(super) struct Acceptors {
    pub expected: Expected,
    pub trust: Arc<Trust>,
    pub algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Acceptors {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.trust.judge_server(end_entity, intermediates, now)?;
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

/// The acceptor's view of whoever dials: the library's judgement, then the name.
#[derive(Debug)]
pub(super) struct Named<N> {
    pub names: N,
    pub inner: Arc<Trust>,
}

impl<N: Names> ClientCertVerifier for Named<N> {
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

/// What went wrong and what to do, said of the other side as "it".
pub(super) fn sentence(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(why) => certificate_sentence(why),
        Error::AlertReceived(alert) => alert_sentence(*alert),
        Error::NoCertificatesPresented => {
            "it presented no certificate: give it one of this cluster's authority ('farshore cert node NAME', for NBD \
             clients 'farshore cert client NAME')"
                .to_owned()
        }
        Error::PeerIncompatible(why) => {
            format!("it cannot speak TLS 1.3 as this node does, and nothing older is spoken here ({why:?}): upgrade it")
        }
        Error::PeerSentOversizedRecord | Error::InvalidMessage(InvalidMessage::MessageTooLarge) => {
            "it sent a record that is longer than TLS allows".to_owned()
        }
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            format!("it does not speak TLS here ({error}): both sides have to, see [tls] in the configuration")
        }
        Error::DecryptError => {
            "what it sent does not decrypt: the bytes were changed on the way, or are those of another connection"
                .to_owned()
        }
        other => format!("TLS with it failed: {other}"),
    }
}

fn certificate_sentence(why: &CertificateError) -> String {
    let date = |time: &UnixTime| day(i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
    match why {
        CertificateError::Expired => "its certificate has expired: renew it with 'farshore cert rotate'".to_owned(),
        CertificateError::ExpiredContext { not_after, .. } => format!(
            "its certificate expired on {}: renew it with 'farshore cert rotate' (and see that the clocks are right)",
            date(not_after)
        ),
        CertificateError::NotValidYet => {
            "its certificate is not valid yet: see that the clocks of both sides are right".to_owned()
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!(
                "its certificate is not valid before {}: see that the clocks of both sides are right",
                date(not_before)
            )
        }
        CertificateError::UnknownIssuer => {
            "its certificate is not of this cluster's authority: compare the ca.crt of both sides".to_owned()
        }
        CertificateError::BadSignature => {
            "its certificate is not of this cluster's authority but of one of the same name, or forged: compare the \
             ca.crt of both sides"
                .to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its certificate was made for another purpose: make nodes' with 'farshore cert node NAME'".to_owned()
        }
        CertificateError::Revoked => {
            "its certificate was revoked: the file 'revoked' beside this node's ca.crt names it; give its holder a new one".to_owned()
        }
        CertificateError::Other(OtherError(other)) if other.is::<WrongName>() => other.to_string(),
        other => format!("its certificate is not accepted: {other}"),
    }
}

fn alert_sentence(alert: AlertDescription) -> String {
    let why = match alert {
        AlertDescription::CertificateExpired => {
            "this node's certificate has expired, or is not valid yet: 'farshore cert show' tells the dates"
        }
        AlertDescription::UnknownCA => "it does not know this node's authority: compare the ca.crt of both sides",
        AlertDescription::CertificateUnknown | AlertDescription::BadCertificate | AlertDescription::AccessDenied => {
            "this node's certificate is not the one it expects: its own log says why"
        }
        AlertDescription::CertificateRevoked => {
            "this node's certificate was revoked there: make a new one with 'farshore cert rotate'"
        }
        // What a wrong signature on a certificate is told as.
        AlertDescription::DecryptError => {
            "it does not know this node's authority, only one of the same name: compare the ca.crt of both sides"
        }
        AlertDescription::CertificateRequired => "it wants a certificate, and this node presented none",
        AlertDescription::ProtocolVersion => "it does not speak TLS 1.3: upgrade it",
        other => return format!("it ended the TLS handshake with the alert {other:?}: its own log may say why"),
    };
    format!("it refused this node: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected() -> Expected {
        Expected { cluster: "harbour".into(), names: vec!["west".into()] }
    }

    #[test]
    fn only_the_expected_node_of_this_cluster_passes() {
        let judge = |identity: Option<Identity>| expected().is_meant(identity.as_ref());
        assert_eq!(judge(Some(Identity::node("harbour", "west"))), Ok(()));
        for (identity, words) in [
            (None, "names no node"),
            (Some(Identity::node("harbour", "north")), "node \"north\", expected was west"),
            (Some(Identity::node("bay", "west")), "cluster \"bay\""),
            (Some(Identity::client("harbour", "west")), "client \"west\""),
        ] {
            let why = judge(identity).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn every_refusal_is_a_sentence() {
        let alerts = [
            AlertDescription::CertificateExpired,
            AlertDescription::UnknownCA,
            AlertDescription::CertificateRevoked,
            AlertDescription::CertificateUnknown,
            AlertDescription::CertificateRequired,
            AlertDescription::ProtocolVersion,
            AlertDescription::InternalError,
        ];
        let certificates = [
            CertificateError::Expired,
            CertificateError::NotValidYet,
            CertificateError::BadSignature,
            CertificateError::Revoked,
        ]
        .map(Error::from);
        let all = alerts.map(Error::AlertReceived).into_iter().chain(certificates);
        for error in all.chain([Error::NoCertificatesPresented, Error::DecryptError, Error::PeerSentOversizedRecord]) {
            assert!(sentence(&error).split(' ').count() > 6, "{}", sentence(&error));
        }
    }
}
