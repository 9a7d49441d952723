//! Certificates for keys that stay where they were made: a request goes to the authority, a certificate comes back.

use std::path::Path;

use host::tls::{CertificateFacts, MemberIdentity};
use host::trusted_file::{self, FileContent, FileRefusal};
use rcgen::{CertificateParams, CertificateSigningRequestParams, KeyPair, PublicKeyData};

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

    /// Why a certificate from this authority cannot be put here without overwriting what somebody else put.
    ///
    /// # Errors
    /// A sentence: which file stands in the way.
    pub fn has_room_for(&self, identity: &MemberIdentity, key: &OwnKey, authority: &str) -> Result<(), String> {
        let advice = "it was left as it is: move it away if nobody needs it, or name another place with --config";
        let (file, paths) = (self.authority_certificate(), self.paths(identity));
        if self.authority_text()?.is_some_and(|here| here.trim() != authority.trim()) {
            return Err(format!(
                "{} is there already, and is of another cluster's authority; {advice}",
                file.display()
            ));
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
    /// A sentence: the certificate is not of this key or names somebody else, or a file cannot be written.
    pub fn adopt(&self, identity: &MemberIdentity, key: &OwnKey, signed: &SignedRequest) -> Result<(), String> {
        let facts = CertificateFacts::of_pem(signed.certificate.as_bytes())?;
        if !facts.first().is_some_and(|facts| key.fits(facts) && facts.identity.as_ref() == Some(identity)) {
            return Err(format!("the certificate that came is not that of {identity} with the key of this node"));
        }
        let paths = self.paths(identity);
        make_directory(paths.certificate.parent().ok_or("the certificate has no directory")?)?;
        if !paths.key.exists() {
            write(&paths.key, &key.0.serialize_pem(), 0o600)?;
        }
        write(&self.authority_certificate(), &signed.authority, 0o644)?;
        write(&paths.certificate, &signed.certificate, 0o644)
    }
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
        second.has_room_for(&west.identity, &key, &signed.authority).expect("nothing is there");
        second.adopt(&west.identity, &key, &signed).expect("written");
        let paths = second.paths(&west.identity);
        let loaded = Credentials::load(&paths, &west.identity, &["east".into()], &Clients::Certified).expect("sound");
        assert_eq!(loaded.own.not_after, loaded.authorities[0].not_after, "no longer than its authority");
        assert!(!first.paths(&west.identity).key.exists(), "the key stayed");
        // Once more, with the key that is there.
        let again = OwnKey::find_or_make(&key_file).expect("read");
        second.has_room_for(&west.identity, &again, &signed.authority).expect("its own");
        second.adopt(&west.identity, &again, &signed).expect("written");
        let foreign = OwnKey::find_or_make(&here.path().join("none")).expect("made");
        let refused = second.has_room_for(&west.identity, &foreign, &signed.authority).unwrap_err();
        assert!(refused.contains("not of this node's key"), "{refused}");
        assert!(second.adopt(&west.identity, &foreign, &signed).unwrap_err().contains("not that of"));
        let other = Registry::new(&here.path().join("other"));
        other.make_authority("bay", Validity::days(100)).expect("made");
        let authority = other.authority_text().expect("read").expect("there");
        let refused = second.has_room_for(&west.identity, &again, &authority).unwrap_err();
        assert!(refused.contains("another cluster's authority"), "{refused}");
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
