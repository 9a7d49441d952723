//! Why the other side is refused, in words: what went wrong, and what to do.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, OtherError};

use super::facts::day;

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
pub(super) fn refused_because(sentence: String) -> Error {
    let other: Arc<dyn StdError + Send + Sync> = Arc::new(WrongName(sentence));
    Error::InvalidCertificate(CertificateError::Other(OtherError(other)))
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

/// The same of a connection whose handshake another library carried on.
pub fn refusal_of(error: &std::io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    inner.map_or_else(|| error.to_string(), sentence)
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
            "this node's certificate has expired, or is not valid yet: 'farshore cert show' shows the dates"
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
