//! Certificates for keys that stay where they were made: a request goes to the authority, a certificate comes back.

use std::path::Path;
use std::time::Duration;

use host::tls::{CertificateFacts, MemberIdentity};
use host::trusted_file::{self, FileContent, FileRefusal};
use rcgen::{CertificateParams, CertificateSigningRequestParams, KeyPair, PublicKeyData};
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;

use super::{
    CertificateHolder, KEY_BYTES_MAX, Registry, Validity, cannot_make, make_directory, params_of, read, write,
};

/// A node's own key, which nobody else sees.
pub struct OwnKey(KeyPair);

/// What an authority answers to a request.
#[derive(Clone, Debug)]
pub struct SignedRequest {
    /// The node's certificate, in PEM form.
    pub certificate: String,
    /// All authorities that are believed, in PEM form.
    pub authority: String,
}

impl OwnKey {
    /// The key that lies there, or a new one, which is in memory only.
    ///
    /// # Errors
    /// A sentence: it cannot be read, is damaged, or others could have read or put it.
    pub fn find_or_make(path: &Path) -> Result<OwnKey, String> {
        let name = path.display();
        let bytes = match trusted_file::read(path, "node's key", FileContent::Secret, KEY_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(_) if !path.exists() => return Ok(OwnKey(KeyPair::generate().map_err(cannot_make)?)),
            Err(FileRefusal::Unsafe(sentence)) => return Err(sentence),
            Err(FileRefusal::Failed(error)) => return Err(format!("the node's key {name} cannot be read: {error}")),
            Err(_) => return Err(format!("{name} is not a node's key; it was left as it is: move it away")),
        };
        let text = String::from_utf8(bytes).map_err(|_| format!("{name} is damaged: it is no text"))?;
        KeyPair::from_pem(&text).map(OwnKey).map_err(|error| format!("{name} is damaged: {error}"))
    }

    /// Asks for a certificate of this key, in PEM form. It proves that whoever asks has the key.
    ///
    /// # Errors
    /// A sentence: the library cannot make it.
    pub fn request(&self) -> Result<String, String> {
        CertificateParams::default().serialize_request(&self.0).and_then(|made| made.pem()).map_err(cannot_make)
    }

    /// Whether a certificate is one of this key.
    pub fn fits(&self, certificate: &CertificateFacts) -> bool {
        self.0.der_bytes() == certificate.public_key
    }
}

impl Registry {
    /// All authorities that are believed here, in PEM form; `None`: there is none.
    ///
    /// # Errors
    /// A sentence: the file cannot be read.
    pub fn authority_text(&self) -> Result<Option<String>, String> {
        let file = self.authority_certificate();
        if file.exists() { read(&file).map(Some) } else { Ok(None) }
    }

    /// Signs a certificate for whoever holds the key of a request. The name in it is `holder`'s, whatever the request says.
    ///
    /// # Errors
    /// A sentence: no authority here, or the request is none, or is not signed by its own key.
    pub fn sign(&self, holder: &CertificateHolder, validity: Validity, request: &str) -> Result<SignedRequest, String> {
        let authority = self.authority()?;
        let asked = CertificateSigningRequestParams::from_pem(request)
            .map_err(|error| format!("the request for a certificate is damaged: {error}"))?;
        let validity = Validity { end: validity.end.min(authority.end), ..validity };
        let certificate =
            params_of(holder, validity)?.signed_by(&asked.public_key, &authority.issuer).map_err(cannot_make)?;
        Ok(SignedRequest { certificate: certificate.pem(), authority: authority.certificates })
    }

    /// Why a certificate from this authority cannot be put here without overwriting what somebody else put. `is_again`: what is here may be
    /// of an earlier try, and the first node may have made another authority since. Elsewhere nobody is believed besides those who are.
    ///
    /// # Errors
    /// A sentence: which file stands in the way.
    pub fn has_room_for(
        &self,
        identity: &MemberIdentity,
        key: &OwnKey,
        authority: &str,
        is_again: bool,
    ) -> Result<(), String> {
        let advice = "it was left as it is: move it away if nobody needs it, or name another place with --config";
        let (file, paths) = (self.authority_certificate(), self.paths(identity));
        if let Some(here) = self.authority_text()?.filter(|here| here.trim() != authority.trim()) {
            let whose = match stands_in(&here, authority) {
                true if is_again => None,
                true => Some("believes fewer authorities than the first node"),
                false => Some("is of another cluster's authority"),
            };
            if let Some(whose) = whose {
                return Err(format!("{} is there already, and {whose}; {advice}", file.display()));
            }
        }
        if !paths.certificate.exists() {
            return Ok(());
        }
        let name = paths.certificate.display();
        match super::certificates_of(&paths.certificate)?.first() {
            Some(facts) if key.fits(facts) && facts.identity.as_ref() == Some(identity) => Ok(()),
            _ => Err(format!("{name} is there already, and is not of this node's key; {advice}")),
        }
    }

    /// Puts key, certificate and authority in their places.
    ///
    /// # Errors
    /// A sentence: the certificate is not of this key, names somebody else or is not of this authority, or a file cannot be written.
    pub fn adopt(&self, identity: &MemberIdentity, key: &OwnKey, signed: &SignedRequest) -> Result<(), String> {
        let facts = CertificateFacts::of_pem(signed.certificate.as_bytes())?;
        let own = facts.first().filter(|facts| key.fits(facts) && facts.identity.as_ref() == Some(identity));
        let Some(own) = own else {
            return Err(format!("the certificate that came is not that of {identity} with the key of this node"));
        };
        is_of_its_authority(signed, own).map_err(|why| {
            format!("the certificate that came is not of the authority that came with it ({why}); nothing was written")
        })?;
        let paths = self.paths(identity);
        make_directory(paths.certificate.parent().ok_or("the certificate has no directory")?)?;
        if !paths.key.exists() {
            write(&paths.key, &key.0.serialize_pem(), 0o600)?;
        }
        write(&self.authority_certificate(), &signed.authority, 0o644)?;
        write(&paths.certificate, &signed.certificate, 0o644)
    }
}

/// Whether all certificates of one text are among those of another.
fn stands_in(here: &str, all: &str) -> bool {
    let [here, all] = [here, all].map(|text| CertificateFacts::of_pem(text.as_bytes()));
    let (Ok(here), Ok(all)) = (here, all) else { return false };
    here.iter().all(|one| all.iter().any(|other| other.fingerprint == one.fingerprint))
}

/// Whether a certificate, of which these are the facts, is signed by one of the authorities that came with it: over one that is in use none
/// is put that the daemon would not start with.
///
/// # Errors
/// Why not, in the library's words.
fn is_of_its_authority(signed: &SignedRequest, own: &CertificateFacts) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    for authority in ders(&signed.authority)? {
        roots.add(authority).map_err(|error| error.to_string())?;
    }
    let certificates = ders(&signed.certificate)?;
    let certificate = certificates.first().ok_or("it is none")?;
    let parsed = ParsedCertificate::try_from(certificate).map_err(|error| error.to_string())?;
    // When it was made: whether the clocks agree was looked at before.
    let moment = Duration::from_secs(u64::try_from(own.not_before).unwrap_or(0));
    let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], UnixTime::since_unix_epoch(moment), algorithms)
        .map_err(|error| error.to_string())
}

fn ders(text: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let ders: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    ders.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use host::tls::{Clients, Credentials};

    use super::*;

    fn holder(name: &str) -> CertificateHolder {
        CertificateHolder { identity: MemberIdentity::node("harbour", name), hosts: vec![name.to_owned()] }
    }

    #[test]
    fn a_key_gets_its_certificate_without_leaving_its_machine() {
        let [here, there] = [(), ()].map(|()| tempfile::tempdir().expect("a directory"));
        let [first, second] = [&here, &there].map(|directory| Registry::new(&directory.path().join("tls")));
        first.make_authority("harbour", Validity::days(100)).expect("made");
        let west = holder("west");
        let key_file = second.paths(&west.identity).key;
        let key = OwnKey::find_or_make(&key_file).expect("made");
        assert!(!key_file.exists(), "nothing is written before it is wanted");
        let signed = first.sign(&west, Validity::days(397), &key.request().expect("made")).expect("signed");
        second.has_room_for(&west.identity, &key, &signed.authority, false).expect("nothing is there");
        second.adopt(&west.identity, &key, &signed).expect("written");
        let paths = second.paths(&west.identity);
        let loaded = Credentials::load(&paths, &west.identity, &["east".into()], &Clients::Certified).expect("sound");
        assert_eq!(loaded.own.not_after, loaded.authorities[0].not_after, "no longer than its authority");
        assert!(!first.paths(&west.identity).key.exists(), "the key stayed");
        // Once more, with the key that is there.
        let again = OwnKey::find_or_make(&key_file).expect("read");
        second.has_room_for(&west.identity, &again, &signed.authority, false).expect("its own");
        second.adopt(&west.identity, &again, &signed).expect("written");
        let foreign = OwnKey::find_or_make(&here.path().join("none")).expect("made");
        let refused = second.has_room_for(&west.identity, &foreign, &signed.authority, false).unwrap_err();
        assert!(refused.contains("not of this node's key"), "{refused}");
        assert!(second.adopt(&west.identity, &foreign, &signed).unwrap_err().contains("not that of"));
        let other = Registry::new(&here.path().join("other"));
        other.make_authority("bay", Validity::days(100)).expect("made");
        let authority = other.authority_text().expect("read").expect("there");
        let refused = second.has_room_for(&west.identity, &again, &authority, true).unwrap_err();
        assert!(refused.contains("another cluster's authority"), "{refused}");
    }

    // proves: P10
    /// The first node's clock was wrong at an earlier try, so it has made another authority since. Whoever comes with one more authority is
    /// believed by that try's files alone, and never with a certificate of somebody else's.
    #[test]
    fn a_renewed_authority_takes_the_place_of_the_one_of_an_earlier_try() {
        let [here, there] = [(), ()].map(|()| tempfile::tempdir().expect("a directory"));
        let [first, second] = [&here, &there].map(|directory| Registry::new(&directory.path().join("tls")));
        first.make_authority("harbour", Validity::days(100)).expect("made");
        let west = holder("west");
        let key = OwnKey::find_or_make(&second.paths(&west.identity).key).expect("made");
        let sign = |registry: &Registry| {
            registry.sign(&west, Validity::days(50), &key.request().expect("made")).expect("signed")
        };
        second.adopt(&west.identity, &key, &sign(&first)).expect("written");
        let before = second.authority_text().expect("read").expect("there");
        first.renew_authority("harbour", Validity::days(100)).expect("made");
        let renewed = sign(&first);
        let room = |is_again: bool| second.has_room_for(&west.identity, &key, &renewed.authority, is_again);
        assert!(room(false).unwrap_err().contains("believes fewer authorities than the first node"));
        room(true).expect("of an earlier try");
        let other = Registry::new(&here.path().join("other"));
        other.make_authority("harbour", Validity::days(100)).expect("made");
        let foreign = SignedRequest { certificate: sign(&other).certificate, authority: before.clone() };
        let refused = second.adopt(&west.identity, &key, &foreign).unwrap_err();
        assert!(refused.contains("is not of the authority that came with it"), "{refused}");
        assert_eq!(second.authority_text(), Ok(Some(before)));
        second.adopt(&west.identity, &key, &renewed).expect("written");
        let paths = second.paths(&west.identity);
        Credentials::load(&paths, &west.identity, &["east".into()], &Clients::Certified).expect("sound");
        assert_eq!(second.authority_text(), Ok(Some(renewed.authority)));
    }

    #[test]
    fn a_request_says_nothing_of_whose_name_is_signed() {
        let here = tempfile::tempdir().expect("a directory");
        let registry = Registry::new(here.path());
        registry.make_authority("harbour", Validity::days(100)).expect("made");
        let key = OwnKey::find_or_make(&here.path().join("none")).expect("made");
        let signed = registry.sign(&holder("west"), Validity::days(1), &key.request().expect("made")).expect("signed");
        let facts = CertificateFacts::of_pem(signed.certificate.as_bytes()).expect("sound");
        assert_eq!(facts[0].identity, Some(MemberIdentity::node("harbour", "west")));
        assert!(!facts[0].is_authority);
        assert!(registry.sign(&holder("west"), Validity::days(1), "none").unwrap_err().contains("damaged"));
    }
}
