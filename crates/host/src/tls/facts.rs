//! What a certificate says, for checks and for people.

use std::fmt;
use std::net::IpAddr;

use aws_lc_rs::digest;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

use super::twins::twins;
use crate::node_name::is_name;

/// Whom a certificate was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    Node,
    Client,
}

/// A member of a cluster, as its certificate names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberIdentity {
    pub cluster: String,
    pub party: Party,
    pub name: String,
}

impl MemberIdentity {
    pub fn node(cluster: &str, name: &str) -> MemberIdentity {
        MemberIdentity { cluster: cluster.to_owned(), party: Party::Node, name: name.to_owned() }
    }

    pub fn client(cluster: &str, name: &str) -> MemberIdentity {
        MemberIdentity { cluster: cluster.to_owned(), party: Party::Client, name: name.to_owned() }
    }

    /// Reads a name of the form that [`fmt::Display`] writes. As in any URI case does not count in scheme and authority, nor does it
    /// in ours beyond: names have no capitals, so two that differ in them alone are one.
    fn parse(uri: &str) -> Option<MemberIdentity> {
        let uri = uri.to_ascii_lowercase();
        let (cluster, rest) = uri.strip_prefix("farshore://")?.split_once('/')?;
        let (party, name) = rest.split_once('/')?;
        let party = match party {
            "node" => Party::Node,
            "client" => Party::Client,
            _ => return None,
        };
        let is_sound = [cluster, name].iter().all(|part| is_name(part) && !part.contains('/'));
        is_sound.then(|| MemberIdentity { cluster: cluster.to_owned(), party, name: name.to_owned() })
    }
}

impl fmt::Display for MemberIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let party = match self.party {
            Party::Node => "node",
            Party::Client => "client",
        };
        write!(f, "farshore://{}/{party}/{}", self.cluster, self.name)
    }
}

/// One certificate's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    pub subject: String,
    pub issuer: String,
    pub identity: Option<MemberIdentity>,
    /// Host names and addresses under which clients may expect its holder.
    pub hosts: Vec<String>,
    /// Names of other kinds than ours.
    pub uris: Vec<String>,
    /// It may sign other certificates.
    pub is_authority: bool,
    /// So many authorities may stand between it and whoever they sign; `None`: any number.
    pub path_length: Option<u32>,
    /// Seconds since 1970; from and until when it is valid.
    pub not_before: i64,
    pub not_after: i64,
    /// What its authority counts it by, as hexadecimal digits.
    pub serial: String,
    /// SHA-256 of the whole certificate, as hexadecimal digits.
    pub fingerprint: String,
    /// The same of each form in which its holder may write it besides: see `twins`.
    pub(super) other_fingerprints: Vec<String>,
    /// Its public key, as the certificate spells it.
    pub public_key: Vec<u8>,
}

impl CertificateFacts {
    /// Whom it names, for people: a member of a cluster, or else its subject.
    pub fn holder(&self) -> String {
        self.identity.as_ref().map_or_else(|| self.subject.clone(), MemberIdentity::to_string)
    }

    /// # Errors
    /// A sentence: the bytes are no certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<CertificateFacts, String> {
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| format!("no certificate: {error}"))?;
        let mut facts = CertificateFacts {
            subject: parsed.subject().to_string(),
            issuer: parsed.issuer().to_string(),
            identity: None,
            hosts: Vec::new(),
            uris: Vec::new(),
            is_authority: parsed.is_ca(),
            path_length: parsed.basic_constraints().ok().flatten().and_then(|found| found.value.path_len_constraint),
            not_before: parsed.validity().not_before.timestamp(),
            not_after: parsed.validity().not_after.timestamp(),
            serial: digits(parsed.raw_serial()),
            fingerprint: fingerprint(certificate),
            other_fingerprints: twins(certificate).iter().map(|twin| fingerprint(twin)).collect(),
            public_key: parsed.public_key().subject_public_key.data.to_vec(),
        };
        let names = parsed.subject_alternative_name().map_err(|error| format!("its names cannot be read: {error}"))?;
        let mut identities = Vec::new();
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::URI(uri) if is_ours(uri) => identities.push(MemberIdentity::parse(uri)),
                GeneralName::URI(uri) => facts.uris.push((*uri).to_owned()),
                GeneralName::DNSName(name) => facts.hosts.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => facts.hosts.extend(address(bytes).map(|ip| ip.to_string())),
                _ => {}
            }
        }
        // Several would make it matter which one a reader looks at: none counts then.
        if let [Some(identity)] = &identities[..] {
            facts.identity = Some(identity.clone());
        }
        Ok(facts)
    }

    /// Of every certificate in a text in PEM form; never none.
    ///
    /// # Errors
    /// A sentence: what is wrong with the text.
    pub fn of_pem(text: &[u8]) -> Result<Vec<CertificateFacts>, String> {
        let ders: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        match ders {
            Ok(ders) if ders.is_empty() => Err("it holds no certificate in PEM form".to_owned()),
            Ok(ders) => ders.iter().map(CertificateFacts::of).collect(),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn fingerprint(certificate: &[u8]) -> String {
    digits(digest::digest(&digest::SHA256, certificate).as_ref())
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a name is one of our kind, sound or not.
fn is_ours(uri: &str) -> bool {
    const SCHEME: &str = "farshore:";
    uri.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// A day, as `2026-11-21`; certificates are made and renewed by the day.
pub fn day(seconds: i64) -> String {
    match ASN1Time::from_timestamp(seconds) {
        Ok(time) => time.to_datetime().date().to_string(),
        Err(_) => format!("{seconds} s after 1970"),
    }
}

/// Seconds since 1970, now.
pub fn now() -> i64 {
    i64::try_from(rustls::pki_types::UnixTime::now().as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_read_back_and_others_are_none() {
        for identity in [MemberIdentity::node("harbour", "east"), MemberIdentity::client("harbour", "db-1.example")] {
            assert_eq!(MemberIdentity::parse(&identity.to_string().to_uppercase()).as_ref(), Some(&identity));
            assert_eq!(MemberIdentity::parse(&identity.to_string()), Some(identity));
        }
        for bad in [
            "farshore://harbour/node/",
            "farshore:///node/east",
            "farshore://harbour/witness/east",
            "farshore://harbour/node/east/west",
            "farshore://harbour/node/ea\nst",
            "https://harbour/node/east",
            "farshore://harbour",
        ] {
            assert_eq!(MemberIdentity::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn our_names_are_known_in_any_case() {
        for (uri, ours) in
            [("farshore:x", true), ("FarShore://a/node/b", true), ("https://farshore:1", false), ("fars", false)]
        {
            assert_eq!(is_ours(uri), ours, "{uri}");
        }
    }

    #[test]
    fn days_are_shown_as_dates() {
        assert_eq!(day(0), "1970-01-01");
        assert_eq!(day(1_795_000_000), "2026-11-18");
        assert!(!day(i64::MAX).is_empty());
    }
}
