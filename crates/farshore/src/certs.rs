//! Makes the certificates of a cluster: a private authority, and the certificates it signs.
//!
//! ```text
//! DIRECTORY/ca.crt            the authority, for everybody (0644); two of them while it is being replaced
//! DIRECTORY/ca.key            what signs (0600): on one machine only
//! DIRECTORY/revoked           certificates that are believed no more, one in each line (0644); need not be there
//! DIRECTORY/nodes/NAME.crt    a node's certificate (0644) and key (0600)
//! DIRECTORY/nodes/NAME.key
//! DIRECTORY/clients/NAME/     ca-cert.pem, client-cert.pem, client-key.pem: as qemu and libnbd look for them
//! ```
//!
//! A new file is complete before it has its name, so whoever reads meanwhile gets the old one or the new one.

pub mod requests;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use host::tls::{CertificateFacts, MemberIdentity, Party, Paths, Revoked, facts};
use host::trusted_file::{self, FileContent, FileRefusal};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

/// Clocks of two machines differ a little; a certificate is valid from a little before it was made.
const CLOCKS_DIFFER_BY: Duration = Duration::from_secs(3600);

/// Longest file that may be the authority's key; one of ours has 241 bytes.
const KEY_BYTES_MAX: u64 = 64 << 10;

/// From and until when a certificate is valid.
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    pub begin: SystemTime,
    pub end: SystemTime,
}

impl Validity {
    /// So many days from now.
    pub fn days(days: u32) -> Validity {
        let now = SystemTime::now();
        Validity { begin: now - CLOCKS_DIFFER_BY, end: now + Duration::from_secs(u64::from(days) * 24 * 3600) }
    }

    fn apply(self, params: &mut CertificateParams) {
        (params.not_before, params.not_after) = (self.begin.into(), self.end.into());
    }
}

/// Whom a certificate is for, and by what names clients reach it.
#[derive(Clone, Debug)]
pub struct CertificateHolder {
    pub identity: MemberIdentity,
    pub hosts: Vec<String>,
}

/// Who signs.
struct Authority {
    /// All that are trusted, in PEM form.
    certificates: String,
    /// Until when the newest of them is valid.
    end: SystemTime,
    issuer: Issuer<'static, KeyPair>,
}

/// The directory of a cluster's certificates.
#[derive(Clone, Debug)]
pub struct Registry {
    directory: PathBuf,
}

impl Registry {
    pub fn new(directory: &Path) -> Registry {
        Registry { directory: directory.to_owned() }
    }

    fn authority_certificate(&self) -> PathBuf {
        self.directory.join("ca.crt")
    }

    fn authority_key(&self) -> PathBuf {
        self.directory.join("ca.key")
    }

    /// Where a holder's certificate and key lie.
    pub fn paths(&self, identity: &MemberIdentity) -> Paths {
        match identity.party {
            Party::Node => Paths::of_node(&self.directory, &identity.name),
            Party::Client => {
                let own = self.directory.join("clients").join(&identity.name);
                Paths {
                    authority: own.join("ca-cert.pem"),
                    certificate: own.join("client-cert.pem"),
                    key: own.join("client-key.pem"),
                }
            }
        }
    }

    /// Makes the authority, where there is none.
    ///
    /// # Errors
    /// A sentence: there is one already, or a file cannot be written.
    pub fn make_authority(&self, cluster: &str, validity: Validity) -> Result<(), String> {
        let (certificate, key) = (self.authority_certificate(), self.authority_key());
        if key.exists() && !certificate.exists() {
            let (key, certificate) = (key.display(), certificate.display());
            return Err(format!(
                "{key} is there without {certificate}: an authority's making was cut short, or that file is missing. Put it back if \
                 there was one; else remove {key} and try again"
            ));
        }
        if certificate.exists() && !key.exists() {
            let (key, certificate) = (key.display(), certificate.display());
            return Err(format!(
                "{certificate} exists already and was left as it is, but its key {key} is not here: do this on the machine that keeps the \
                 key, or put the key back. If the key is lost, move {certificate} away, make a new authority with 'farshore cert init', \
                 and append the old certificate to the new one until every node has a new certificate"
            ));
        }
        for file in [&certificate, &key] {
            if file.exists() {
                let advice = "'farshore cert rotate --ca' renews an authority";
                return Err(format!("{} exists already and was left as it is; {advice}", file.display()));
            }
        }
        let (text, signing) = new_authority(cluster, validity)?;
        make_directory(&self.directory)?;
        write(&key, &signing.serialize_pem(), 0o600)?;
        write(&certificate, &text, 0o644)
    }

    /// Makes a new authority beside the old one, which stays trusted while certificates of it are in use.
    ///
    /// # Errors
    /// A sentence: there is no authority here, or a file cannot be written.
    pub fn renew_authority(&self, cluster: &str, validity: Validity) -> Result<(), String> {
        let older = read(&self.authority_certificate())?;
        read_key(&self.authority_key())?;
        let (newest, signing) = new_authority(cluster, validity)?;
        // First trusted, then used: a key whose certificate nobody knows would sign for nothing.
        write(&self.authority_certificate(), &format!("{newest}{older}"), 0o644)?;
        write(&self.authority_key(), &signing.serialize_pem(), 0o600)
    }

    /// Makes a certificate and a key of its own; over an older pair only if `renew`.
    ///
    /// # Errors
    /// A sentence: there is one already (or none to renew), no authority here, or a file cannot be written.
    pub fn issue(&self, holder: &CertificateHolder, validity: Validity, renew: bool) -> Result<(), String> {
        let paths = self.paths(&holder.identity);
        match (paths.certificate.exists(), renew) {
            (true, false) => {
                let advice = "'farshore cert rotate' renews a certificate";
                return Err(format!("{} exists already and was left as it is; {advice}", paths.certificate.display()));
            }
            (false, true) => return Err(format!("there is no {} to renew", paths.certificate.display())),
            (false, false) if paths.key.exists() => {
                let key = paths.key.display();
                return Err(format!(
                    "{key} exists already, without a certificate, and was left as it is; if nobody needs it, remove it"
                ));
            }
            _ => {}
        }
        let authority = self.authority()?;
        // Beyond that it would be trusted by some and not by others: not everybody looks at an authority's dates.
        let validity = Validity { end: validity.end.min(authority.end), ..validity };
        let key = KeyPair::generate().map_err(cannot_make)?;
        let certificate = params_of(holder, validity)?.signed_by(&key, &authority.issuer).map_err(cannot_make)?;
        make_directory(paths.certificate.parent().expect("it lies in the directory"))?;
        if holder.identity.party == Party::Client {
            write(&paths.authority, &authority.certificates, 0o644)?;
        }
        write(&paths.key, &key.serialize_pem(), 0o600)?;
        write(&paths.certificate, &certificate.pem(), 0o644)
    }

    fn authority(&self) -> Result<Authority, String> {
        let (certificate, key) = (self.authority_certificate(), self.authority_key());
        let signing =
            KeyPair::from_pem(&read_key(&key)?).map_err(|error| format!("{} is damaged: {error}", key.display()))?;
        let certificates = read(&certificate)?;
        // The newest comes first, and its key is the one that is kept.
        let newest = certificates_of(&certificate)?.swap_remove(0);
        if newest.public_key != signing.public_key_raw() {
            return Err(format!(
                "{} is not the key of the first certificate in {}: the making of a new authority was cut short, or one of the two is an \
                 older copy. Put the other one of that copy back, or make a new authority with 'farshore cert rotate --ca'",
                key.display(),
                certificate.display()
            ));
        }
        if newest.not_after <= facts::now() {
            let (scratch, end) = (certificate.display(), facts::day(newest.not_after));
            return Err(format!(
                "the authority in {scratch} expired on {end}; make a new one first: 'farshore cert rotate --ca'"
            ));
        }
        let issuer = Issuer::from_ca_cert_pem(&certificates, signing)
            .map_err(|error| format!("{} is damaged: {error}", certificate.display()))?;
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(newest.not_after).unwrap_or(0));
        Ok(Authority { certificates, end, issuer })
    }

    /// The names an existing certificate has besides its holder's.
    pub fn hosts_of(&self, identity: &MemberIdentity) -> Vec<String> {
        let facts = certificates_of(&self.paths(identity).certificate).ok();
        facts.and_then(|list| list.into_iter().next()).map(|facts| facts.hosts).unwrap_or_default()
    }

    /// The list of certificates that are believed no more.
    pub fn revoked(&self) -> PathBuf {
        self.directory.join("revoked")
    }

    /// Adds certificates to that list; the fingerprints of those that were not there.
    ///
    /// # Errors
    /// A sentence: a file holds no certificate, one is an authority's, or the list is damaged or cannot be written.
    pub fn revoke(&self, files: &[PathBuf]) -> Result<Vec<String>, String> {
        let list = self.revoked();
        let mut text = if list.exists() { read(&list)? } else { String::new() };
        let mut added = Vec::new();
        for file in files {
            let facts = certificates_of(file)?.swap_remove(0);
            if facts.is_authority {
                let advice = "take its lines out of ca.crt instead";
                return Err(format!("{} is the certificate of an authority; {advice}", file.display()));
            }
            if Revoked::parse(&text).map_err(|why| format!("{}: {why}", list.display()))?.has(&facts) {
                continue;
            }
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            let whose = facts.identity.map_or(facts.subject, |identity| identity.to_string());
            let whose: String = whose.chars().filter(|letter| !letter.is_control()).collect();
            text += &format!("{} # {whose}, revoked {}\n", facts.fingerprint, facts::day(facts::now()));
            added.push(facts.fingerprint);
        }
        if !added.is_empty() {
            write(&list, &text, 0o644)?;
        }
        Ok(added)
    }

    /// Every certificate file that is here: the authority's, nodes', clients'.
    pub fn files(&self) -> Vec<PathBuf> {
        let inside = |folder: &str| -> Vec<PathBuf> {
            let entries = fs::read_dir(self.directory.join(folder)).into_iter().flatten().flatten();
            let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            paths.sort();
            paths
        };
        let nodes = inside("nodes").into_iter().filter(|path| path.extension().is_some_and(|kind| kind == "crt"));
        let clients = inside("clients").into_iter().map(|own| own.join("client-cert.pem"));
        [self.authority_certificate()].into_iter().chain(nodes).chain(clients).filter(|path| path.exists()).collect()
    }
}

/// What the certificates of a file say.
///
/// # Errors
/// A sentence: it cannot be read, or holds something else.
pub fn certificates_of(path: &Path) -> Result<Vec<CertificateFacts>, String> {
    CertificateFacts::of_pem(read(path)?.as_bytes()).map_err(|error| format!("{} is damaged: {error}", path.display()))
}

fn cannot_make(error: rcgen::Error) -> String {
    format!("the certificate cannot be made: {error}")
}

fn new_authority(cluster: &str, validity: Validity) -> Result<(String, KeyPair), String> {
    let mut params = CertificateParams::default();
    validity.apply(&mut params);
    params.distinguished_name = named(cluster, "authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().map_err(cannot_make)?;
    let certificate = params.self_signed(&key).map_err(cannot_make)?;
    Ok((certificate.pem(), key))
}

fn params_of(holder: &CertificateHolder, validity: Validity) -> Result<CertificateParams, String> {
    let identity = &holder.identity;
    let mut params = CertificateParams::default();
    validity.apply(&mut params);
    params.distinguished_name = named(&identity.cluster, &identity.name);
    params.use_authority_key_identifier_extension = true;
    // No key usage: what an elliptic key is good for is plain, and qemu before version 8 wants "key encipherment" there,
    // which it is not good for.
    params.extended_key_usages = match identity.party {
        Party::Node => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        Party::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
    };
    let text = |text: &str| text.try_into().map_err(|_| format!("{text:?} cannot stand in a certificate"));
    params.subject_alt_names.push(SanType::URI(text(&identity.to_string())?));
    for host in &holder.hosts {
        params.subject_alt_names.push(match host.parse::<IpAddr>() {
            Ok(ip) => SanType::IpAddress(ip),
            Err(_) => SanType::DnsName(text(host)?),
        });
    }
    Ok(params)
}

fn named(cluster: &str, name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::OrganizationName, format!("farshore {cluster}"));
    names.push(DnType::CommonName, name);
    names
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| {
        let name = path.display();
        match error.kind() {
            ErrorKind::NotFound => format!("{name} does not exist"),
            _ => format!("{name} cannot be read: {error}"),
        }
    })
}

/// The key of the authority, unless others could have read or put it: who has it makes itself any node.
fn read_key(path: &Path) -> Result<String, String> {
    let name = path.display();
    let bytes = trusted_file::read(path, "authority's key", FileContent::Secret, KEY_BYTES_MAX).map_err(|refusal| match refusal {
        FileRefusal::Missing => format!(
            "the authority's key {name} is not here; do this on the machine that keeps it, or put it back; if it is lost, make a new authority: 'farshore cert init' says how"
        ),
        FileRefusal::Failed(error) => format!("the authority's key {name} cannot be read: {error}"),
        FileRefusal::Unsafe(sentence) => sentence,
        FileRefusal::NotPlain => format!("the authority's key {name} is not a plain file; put the key itself there"),
        FileRefusal::TooLong => {
            format!("the authority's key {name} is larger than {KEY_BYTES_MAX} bytes; is it the right file?")
        }
    })?;
    String::from_utf8(bytes).map_err(|_| format!("{name} is damaged: it is no text"))
}

fn make_directory(path: &Path) -> Result<(), String> {
    // Whatever the umask leaves: nobody else may put certificates there.
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)
        .map_err(|error| format!("the directory {} cannot be made: {error}", path.display()))
}

/// Puts a complete file in its place.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), String> {
    let beside = path.with_extension(format!("new-{}", std::process::id()));
    let create = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        // Whatever the umask took away: a certificate is for everybody, a key for nobody else.
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        File::open(path.parent().expect("it lies in the directory"))?.sync_all()
    };
    create().map_err(|error| {
        // Whatever there is of it is of no use.
        let _ = fs::remove_file(&beside);
        format!("{} cannot be written: {error}", path.display())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use host::tls::{Clients, Credentials};

    use super::*;

    fn node(name: &str) -> CertificateHolder {
        CertificateHolder {
            identity: MemberIdentity::node("harbour", name),
            hosts: vec!["10.0.0.1".into(), "east.example".into()],
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o7777
    }

    fn load(registry: &Registry, name: &str) -> Result<Credentials, Vec<String>> {
        let identity = MemberIdentity::node("harbour", name);
        Credentials::load(&registry.paths(&identity), &identity, &["west".into()], &Clients::Certified)
    }

    #[test]
    fn what_is_made_can_be_loaded_and_says_whose_it_is() {
        let scratch = tempfile::tempdir().expect("a directory");
        let registry = Registry::new(&scratch.path().join("tls"));
        registry.make_authority("harbour", Validity::days(3650)).expect("made");
        registry.issue(&node("east"), Validity::days(397), false).expect("made");
        let loaded = load(&registry, "east").expect("sound");
        assert_eq!(loaded.own.identity, Some(MemberIdentity::node("harbour", "east")));
        assert_eq!(loaded.own.hosts, ["10.0.0.1", "east.example"]);
        assert!(loaded.warnings(host::tls::facts::now()).is_empty());
        assert!(loaded.authorities[0].is_authority && !loaded.own.is_authority);
        let paths = registry.paths(&node("east").identity);
        assert_eq!([mode(&paths.key), mode(&paths.certificate), mode(&paths.authority)], [0o600, 0o644, 0o644]);
        assert_eq!(mode(&registry.authority_key()), 0o600);
        for again in [
            registry.make_authority("harbour", Validity::days(1)),
            registry.issue(&node("east"), Validity::days(1), false),
        ] {
            assert!(again.unwrap_err().contains("left as it is"));
        }
        assert_eq!(load(&registry, "east").expect("sound").own, loaded.own);
    }

    #[test]
    fn a_new_authority_stands_beside_the_old_one() {
        let scratch = tempfile::tempdir().expect("a directory");
        let registry = Registry::new(scratch.path());
        registry.make_authority("harbour", Validity::days(100)).expect("made");
        registry.issue(&node("east"), Validity::days(50), false).expect("made");
        registry.renew_authority("harbour", Validity::days(200)).expect("made");
        let between = load(&registry, "east").expect("a certificate of the old authority still is one");
        assert_eq!(between.authorities.len(), 2);
        registry.issue(&node("east"), Validity::days(50), true).expect("renewed");
        assert_ne!(load(&registry, "east").expect("sound").own.fingerprint, between.own.fingerprint);
    }

    #[test]
    fn no_certificate_outlives_its_authority() {
        let scratch = tempfile::tempdir().expect("a directory");
        let registry = Registry::new(scratch.path());
        registry.make_authority("harbour", Validity::days(100)).expect("made");
        registry.issue(&node("east"), Validity::days(397), false).expect("made");
        let loaded = load(&registry, "east").expect("sound");
        assert_eq!(loaded.own.not_after, loaded.authorities[0].not_after);
        let ended = Validity { begin: SystemTime::UNIX_EPOCH, end: SystemTime::now() - Duration::from_secs(1) };
        registry.renew_authority("harbour", ended).expect("made");
        let refused = registry.issue(&node("west"), Validity::days(397), false).unwrap_err();
        assert!(refused.contains("expired on") && refused.contains("rotate --ca"), "{refused}");
    }

    #[test]
    fn nothing_is_signed_with_a_key_of_another_authority() {
        let scratch = tempfile::tempdir().expect("a directory");
        let registry = Registry::new(scratch.path());
        registry.make_authority("harbour", Validity::days(100)).expect("made");
        let key = fs::read(registry.authority_key()).expect("read");
        registry.renew_authority("harbour", Validity::days(200)).expect("made");
        // As a renewal that was cut short leaves it.
        fs::write(registry.authority_key(), key).expect("written");
        let refused = registry.issue(&node("east"), Validity::days(50), false).unwrap_err();
        assert!(refused.contains("is not the key of the first certificate"), "{refused}");
        assert!(!registry.paths(&node("east").identity).certificate.exists());
        registry.renew_authority("harbour", Validity::days(200)).expect("what it advises");
        registry.issue(&node("east"), Validity::days(50), false).expect("made");
    }

    #[test]
    fn a_key_that_stands_alone_is_left_as_it_is() {
        let scratch = tempfile::tempdir().expect("a directory");
        let registry = Registry::new(scratch.path());
        registry.make_authority("harbour", Validity::days(100)).expect("made");
        registry.issue(&node("east"), Validity::days(50), false).expect("made");
        let paths = registry.paths(&node("east").identity);
        let key = fs::read(&paths.key).expect("read");
        fs::remove_file(&paths.certificate).expect("removed");
        assert!(registry.issue(&node("east"), Validity::days(50), false).unwrap_err().contains("left as it is"));
        assert_eq!(fs::read(&paths.key).expect("read"), key);
        fs::remove_file(registry.authority_certificate()).expect("removed");
        let refused = registry.make_authority("harbour", Validity::days(100)).unwrap_err();
        assert!(refused.contains("without") && refused.contains("remove"), "{refused}");
    }

    #[test]
    fn files_that_do_not_belong_together_are_distinguished() {
        let scratch = tempfile::tempdir().expect("a directory");
        let registry = Registry::new(scratch.path());
        assert_eq!(load(&registry, "east").unwrap_err().len(), 3);
        registry.make_authority("harbour", Validity::days(100)).expect("made");
        for name in ["east", "west"] {
            registry.issue(&node(name), Validity::days(50), false).expect("made");
        }
        let [east, west] = ["east", "west"].map(|name| registry.paths(&MemberIdentity::node("harbour", name)));
        let failure = |words: &str| {
            let wrong = load(&registry, "east").unwrap_err().join("; ");
            assert!(wrong.contains(words), "{wrong}");
        };
        let (certificate, key) = (fs::read(&east.certificate).expect("read"), fs::read(&east.key).expect("read"));
        fs::copy(&west.key, &east.key).expect("copied");
        failure("is not the key of");
        fs::copy(&west.certificate, &east.certificate).expect("copied");
        failure("is the certificate of node \"west\"");
        fs::write(&east.key, &key).expect("written");
        fs::write(&east.certificate, &certificate[..certificate.len() / 2]).expect("written");
        failure("nodes/east.crt");
        fs::write(&east.certificate, &certificate).expect("written");
        fs::set_permissions(&east.key, PermissionsExt::from_mode(0o640)).expect("chmod");
        failure("chmod 0600");
        fs::set_permissions(&east.key, PermissionsExt::from_mode(0o600)).expect("chmod");
        let other = Registry::new(&scratch.path().join("other"));
        other.make_authority("harbour", Validity::days(100)).expect("made");
        fs::copy(other.authority_certificate(), registry.authority_certificate()).expect("copied");
        failure("is not of the authority in");
    }

    #[test]
    fn what_is_revoked_is_listed_once_and_its_holder_is_named() {
        let scratch = tempfile::tempdir().expect("a directory");
        let registry = Registry::new(scratch.path());
        registry.make_authority("harbour", Validity::days(100)).expect("made");
        let east = node("east");
        registry.issue(&east, Validity::days(50), false).expect("made");
        let certificate = registry.paths(&east.identity).certificate;
        let fingerprint = load(&registry, "east").expect("sound").own.fingerprint;
        assert_eq!(registry.revoke(&[certificate.clone(), certificate.clone()]), Ok(vec![fingerprint]));
        assert_eq!(registry.revoke(&[certificate]), Ok(Vec::new()));
        let loaded = load(&registry, "east").expect("it starts all the same");
        assert!(loaded.warnings(facts::now())[0].contains("its own list of revoked ones"));
        registry.issue(&east, Validity::days(50), true).expect("renewed");
        assert!(load(&registry, "east").expect("sound").warnings(facts::now()).is_empty());
        assert!(registry.revoke(&[registry.authority_certificate()]).unwrap_err().contains("of an authority"));
        fs::write(registry.revoked(), "backup\n").expect("written");
        assert!(load(&registry, "east").unwrap_err()[0].contains("line 1 is neither a fingerprint"));
        assert!(registry.revoke(&[registry.paths(&east.identity).certificate]).unwrap_err().contains("line 1"));
    }

    #[test]
    fn ends_are_warned_of_a_month_ahead() {
        let scratch = tempfile::tempdir().expect("a directory");
        let registry = Registry::new(scratch.path());
        registry.make_authority("harbour", Validity::days(100)).expect("made");
        registry.issue(&node("east"), Validity::days(50), false).expect("made");
        let loaded = load(&registry, "east").expect("sound");
        let day = |days: i64| host::tls::facts::now() + days * 24 * 3600;
        assert_eq!(loaded.warnings(day(19)), Vec::<String>::new());
        let soon = loaded.warnings(day(22))[0].clone();
        assert!(soon.contains("expires in 28 days") || soon.contains("expires in 27 days"), "{soon}");
        assert!(loaded.warnings(day(51))[0].contains("expired on"));
        assert_eq!(loaded.warnings(day(101)).len(), 2);
        assert!(loaded.warnings(day(-1))[0].contains("not valid before"));
    }
}
