//! Which NBD clients there are, and what each may do.
//!
//! That an authority signed a certificate says that its holder is somebody. Who it is, and what is theirs, is asked here: a client
//! of this cluster by its name, or one that the configuration knows by another. A node is no client, whatever else it is called.

use super::facts::{CertificateFacts, MemberIdentity, Party};

/// Whom the NBD server lets in over TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Every client of this cluster, to every export.
    Certified,
    /// These, each to what it is granted.
    Listed(Vec<TlsClient>),
    /// Anybody, to every export.
    Any,
}

/// A client of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsClient {
    pub holder: ClientMatch,
    pub grants: Vec<Grant>,
}

/// How a client's certificate is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientMatch {
    /// It says `farshore://CLUSTER/client/NAME`, the cluster being ours.
    Client(String),
    /// It has this host name; written in lower case.
    Host(String),
    /// It has this URI, letter for letter.
    Uri(String),
}

/// Exports that a client may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub scope: Scope,
    pub read_only: bool,
}

/// From the widest to the narrowest: the narrowest that fits counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    All,
    /// All volumes of a group.
    Group(String),
    /// `group/volume`.
    Export(String),
}

/// What a client may do with an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Full,
    ReadOnly,
}

/// What one client may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rights {
    All,
    These(Vec<Grant>),
}

impl Clients {
    /// What the holder of a certificate may do at a node of `cluster`. The authority is somebody else's to check.
    ///
    /// # Errors
    /// A sentence: it may not come in at all.
    pub(super) fn admit(&self, cluster: &str, facts: &CertificateFacts) -> Result<Rights, String> {
        if *self == Clients::Any {
            return Ok(Rights::All);
        }
        if let Some(MemberIdentity { party: Party::Node, name, cluster }) = &facts.identity {
            return Err(format!(
                "its certificate is that of node {name:?} of cluster {cluster:?}, and nodes are no clients: make one with \
                 'farshore cert client NAME'"
            ));
        }
        match self {
            Clients::Listed(list) => {
                let known: Vec<&TlsClient> = list.iter().filter(|client| client.holder.is_of(cluster, facts)).collect();
                if known.is_empty() {
                    return Err(format!(
                        "its certificate ({}) is that of nobody in the table 'clients' of the configuration: add it there",
                        described(facts)
                    ));
                }
                Ok(Rights::These(known.into_iter().flat_map(|client| client.grants.iter().cloned()).collect()))
            }
            _ => match &facts.identity {
                Some(MemberIdentity { cluster: theirs, .. }) if *theirs == *cluster => Ok(Rights::All),
                Some(MemberIdentity { cluster: theirs, .. }) => Err(format!(
                    "its certificate is that of a client of cluster {theirs:?}, this node is of {cluster:?}"
                )),
                None => Err(format!(
                    "its certificate ({}) names no client of cluster {cluster:?}: make one with 'farshore cert client NAME', or name \
                     it in a table 'clients' of the configuration",
                    described(facts)
                )),
            },
        }
    }
}

/// A certificate by what may be written into the list.
fn described(facts: &CertificateFacts) -> String {
    let own = facts.identity.as_ref().map(MemberIdentity::to_string);
    let names = own.into_iter().chain(facts.hosts.iter().map(|host| format!("dns:{host}")));
    let names: Vec<String> = names.chain(facts.uris.iter().map(|uri| format!("uri:{uri}"))).collect();
    if names.is_empty() { facts.subject.clone() } else { format!("{}; {}", facts.subject, names.join(", ")) }
}

impl ClientMatch {
    fn is_of(&self, cluster: &str, facts: &CertificateFacts) -> bool {
        match self {
            ClientMatch::Client(name) => facts.identity.as_ref() == Some(&MemberIdentity::client(cluster, name)),
            ClientMatch::Host(name) => facts.hosts.iter().any(|host| host.eq_ignore_ascii_case(name)),
            ClientMatch::Uri(name) => facts.uris.contains(name),
        }
    }
}

impl Scope {
    fn fits(&self, export: &str) -> bool {
        match self {
            Scope::All => true,
            Scope::Group(group) => export.split_once('/').is_some_and(|(of, _)| of == group),
            Scope::Export(name) => name == export,
        }
    }
}

impl Rights {
    /// What may be done with an export (`group/volume`); `None`: it is not there for this client.
    pub fn to(&self, export: &str) -> Option<Access> {
        let Rights::These(grants) = self else { return Some(Access::Full) };
        let fitting = grants.iter().filter(|grant| grant.scope.fits(export));
        // Of two that are equally narrow, by two names of one certificate, the one that allows more.
        let best = fitting.max_by_key(|grant| (&grant.scope, !grant.read_only))?;
        Some(if best.read_only { Access::ReadOnly } else { Access::Full })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(identity: Option<MemberIdentity>, hosts: &[&str], uris: &[&str]) -> CertificateFacts {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        CertificateFacts {
            subject: "CN=x".into(),
            issuer: "CN=authority".into(),
            identity,
            hosts: owned(hosts),
            uris: owned(uris),
            is_authority: false,
            path_length: None,
            not_before: 0,
            not_after: 1,
            serial: "01".into(),
            fingerprint: "00".into(),
            other_fingerprints: Vec::new(),
            public_key: Vec::new(),
        }
    }

    fn grant(scope: Scope, read_only: bool) -> Grant {
        Grant { scope, read_only }
    }

    #[test]
    fn the_narrowest_grant_counts() {
        let (all, group) = (Scope::All, Scope::Group("db".into()));
        let one = Scope::Export("db/data".into());
        let rights = Rights::These(vec![grant(one, false), grant(all, true), grant(group, true)]);
        let found = ["db/data", "db/log", "web/data"].map(|export| rights.to(export));
        assert_eq!(found, [Some(Access::Full), Some(Access::ReadOnly), Some(Access::ReadOnly)]);
        let narrowed =
            Rights::These(vec![grant(Scope::Group("db".into()), false), grant(Scope::Export("db/data".into()), true)]);
        let found = ["db/data", "db/log", "web/data", "db", ""].map(|export| narrowed.to(export));
        assert_eq!(found, [Some(Access::ReadOnly), Some(Access::Full), None, None, None]);
        assert_eq!(Rights::These(Vec::new()).to("db/data"), None);
    }

    #[test]
    fn without_a_list_every_client_of_this_cluster_and_nobody_else() {
        let admit = |facts: &CertificateFacts| Clients::Certified.admit("harbour", facts);
        assert_eq!(admit(&facts(Some(MemberIdentity::client("harbour", "a")), &[], &[])), Ok(Rights::All));
        for (other, words) in [
            (facts(Some(MemberIdentity::node("harbour", "west")), &[], &[]), "nodes are no clients"),
            (facts(Some(MemberIdentity::client("bay", "a")), &[], &[]), "a client of cluster \"bay\""),
            (
                facts(None, &["www.example.com"], &["spiffe://x"]),
                "(CN=x; dns:www.example.com, uri:spiffe://x) names no client",
            ),
        ] {
            let why = admit(&other).unwrap_err();
            assert!(why.contains(words), "{why}");
            assert_eq!(Clients::Any.admit("harbour", &other), Ok(Rights::All));
        }
    }

    #[test]
    fn a_list_knows_its_own_by_name_host_or_uri() {
        let holders = [
            ClientMatch::Client("a".into()),
            ClientMatch::Host("db1.example.com".into()),
            ClientMatch::Uri("spiffe://x/Y".into()),
        ];
        let one = |holder| TlsClient { holder, grants: vec![grant(Scope::All, true)] };
        let listed = Clients::Listed(holders.map(one).into());
        let ours = |identity, hosts: &[&str], uris: &[&str]| listed.admit("harbour", &facts(identity, hosts, uris));
        assert!(ours(Some(MemberIdentity::client("harbour", "a")), &[], &[]).is_ok());
        assert!(ours(None, &["DB1.example.com"], &[]).is_ok() && ours(None, &[], &["spiffe://x/Y"]).is_ok());
        for (identity, hosts, uris) in [
            (Some(MemberIdentity::client("harbour", "b")), &[][..], &[][..]),
            (Some(MemberIdentity::client("bay", "a")), &[], &[]),
            (Some(MemberIdentity::node("harbour", "a")), &["db1.example.com"], &[]),
            (None, &["db1.example.com.evil"], &["spiffe://x/y"]),
        ] {
            let why = ours(identity, hosts, uris).unwrap_err();
            assert!(why.contains("nobody in the table") || why.contains("nodes are no clients"), "{why}");
        }
    }
}
