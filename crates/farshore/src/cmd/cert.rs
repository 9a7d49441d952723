//! `cert`: the certificates by which nodes and NBD clients know each other.

use std::path::PathBuf;

use host::tls::{CertificateFacts, MemberIdentity, Party, facts, warning};
use serde::Serialize;
use settings::{Config, ConfiguredNode, Tls};
use units::exact::time_text;

use crate::args::{
    CertClientArgs, CertDirectoryArgs, CertInitArgs, CertNodeArgs, CertRevokeArgs, CertRotateArgs, CertShowArgs,
};
use crate::certs::{CertificateHolder, Registry, Validity, certificates_of};
use crate::outcome::{CommandFailure, CommandOutcome, Exit, print, warn};

pub(crate) const CERTIFICATES_SCHEMA: &str = "farshore-certificates/1";
/// A year and a month: renewed once a year, with a month to do it in.
const HOLDER_DAYS: u32 = 397;
const AUTHORITY_DAYS: u32 = 3650;

/// The configuration and its directory of certificates.
struct CertDirectory {
    config: Config,
    directory: PathBuf,
}

impl CertDirectory {
    fn find(args: &CertDirectoryArgs) -> Result<CertDirectory, CommandFailure> {
        super::inputs::forbid_core_dumps()?;
        let config = Config::load(&args.config)?;
        let Some(Tls { directory, .. }) = &config.tls else {
            let advice = "add for example: [tls] directory = \"/etc/farshore/tls\"";
            return Err(format!("{} has no table [tls]; {advice}", args.config.display()).into());
        };
        Ok(CertDirectory { directory: directory.clone(), config })
    }

    fn registry(&self) -> Registry {
        Registry::new(&self.directory)
    }

    fn cluster(&self) -> &str {
        self.config.top.cluster.as_str()
    }

    /// A node of the configuration, with all addresses it has there and `more`.
    fn holder(&self, name: &str, more: &[String]) -> Result<CertificateHolder, CommandFailure> {
        let name = self.config.local_node(Some(name))?;
        let node = self.config.node(&name).ok_or("the node is not in the configuration")?;
        let identity = MemberIdentity::node(self.cluster(), name.as_str());
        let mut hosts = addresses(node);
        hosts.extend(more.iter().cloned());
        hosts.sort();
        hosts.dedup();
        Ok(CertificateHolder { identity, hosts })
    }
}

/// How NBD clients and readers of metrics may call a node: both check the name they dialed.
fn addresses(node: &ConfiguredNode) -> Vec<String> {
    let served = node.nbd.iter().chain(&node.metrics).filter_map(|listen| listen.tcp());
    let all = std::iter::once(node.address).chain(served).map(|address| address.ip());
    let all = all.filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_string());
    std::iter::once(node.name.to_string()).chain(all).collect()
}

pub fn init(args: &CertInitArgs) -> CommandOutcome {
    let cert_dir = CertDirectory::find(&args.cert_dir)?;
    cert_dir.registry().make_authority(cert_dir.cluster(), Validity::days(args.days))?;
    let directory = cert_dir.directory.display();
    let names: Vec<&str> = cert_dir.config.nodes.iter().map(|node| node.name.as_str()).collect();
    let each: String = names.iter().map(|name| format!("  farshore cert node {name}\n")).collect();
    print(&format!(
        "the authority of cluster {} was made: {directory}/ca.crt, {directory}/ca.key\n\
         Keep ca.key on this machine alone, and a copy where you keep such things. Next:\n{each}",
        cert_dir.cluster()
    ))?;
    Ok(Exit::Done.into())
}

pub fn node(args: &CertNodeArgs) -> CommandOutcome {
    let cert_dir = CertDirectory::find(&args.cert_dir)?;
    let holder = cert_dir.holder(&args.name, &args.host)?;
    cert_dir.registry().issue(&holder, Validity::days(args.days), false)?;
    print(&holder_text("made", &cert_dir, &holder))?;
    Ok(Exit::Done.into())
}

fn holder_text(what: &str, cert_dir: &CertDirectory, holder: &CertificateHolder) -> String {
    let paths = cert_dir.registry().paths(&holder.identity);
    let (authority, certificate, key) = (paths.authority.display(), paths.certificate.display(), paths.key.display());
    let name = &holder.identity.name;
    let hosts = holder.hosts.join(", ");
    format!(
        "the certificate of node {name} was {what}; NBD clients may call it {hosts}\n  \
         on {name} these files are needed, at the same places:\n    {authority}\n    {certificate}\n    {key} (mode 0600)\n"
    )
}

pub fn client(args: &CertClientArgs) -> CommandOutcome {
    let cert_dir = CertDirectory::find(&args.cert_dir)?;
    let holder = client_holder(&cert_dir, &args.name)?;
    cert_dir.registry().issue(&holder, Validity::days(args.days), false)?;
    let certificate = cert_dir.registry().paths(&holder.identity).certificate;
    let own = certificate.parent().map(|own| own.display().to_string()).unwrap_or_default();
    print(&format!(
        "the certificate of client {} was made; the directory {own} is all it needs:\n  \
         nbdinfo 'nbds://HOST/GROUP/VOLUME?tls-certificates={own}'\n  \
         qemu-img info --object tls-creds-x509,id=tls,endpoint=client,dir={own} --image-opts \\\n    \
         driver=nbd,host=HOST,port=10809,export=GROUP/VOLUME,tls-creds=tls\n",
        args.name
    ))?;
    Ok(Exit::Done.into())
}

fn client_holder(cert_dir: &CertDirectory, name: &str) -> Result<CertificateHolder, CommandFailure> {
    // The same rules as for nodes: it becomes the name of a directory.
    let name = settings::NodeName::parse(name).map_err(CommandFailure::usage)?;
    Ok(CertificateHolder { identity: MemberIdentity::client(cert_dir.cluster(), name.as_str()), hosts: Vec::new() })
}

pub fn rotate(args: &CertRotateArgs) -> CommandOutcome {
    let cert_dir = CertDirectory::find(&args.cert_dir)?;
    if args.nodes.is_empty() && args.client.is_empty() && !args.ca {
        return Err(CommandFailure::usage("say what to renew: node names, --client NAME, or --ca"));
    }
    let registry = cert_dir.registry();
    let validity = Validity::days(args.days.unwrap_or(HOLDER_DAYS));
    let nodes = args.nodes.iter().map(|name| {
        let known = registry.hosts_of(&MemberIdentity::node(cert_dir.cluster(), name));
        cert_dir.holder(name, &known)
    });
    let clients = args.client.iter().map(|name| client_holder(&cert_dir, name));
    let (nodes, clients): (Vec<CertificateHolder>, Vec<CertificateHolder>) =
        (nodes.collect::<Result<_, _>>()?, clients.collect::<Result<_, _>>()?);
    if args.ca {
        registry.renew_authority(cert_dir.cluster(), Validity::days(args.days.unwrap_or(AUTHORITY_DAYS)))?;
        print(
            "the authority was renewed; ca.crt holds the new one and the old one. Copy it to every node and client \
             first, then renew their certificates, then take the old one out of ca.crt (docs/book/operate/certificates.md)\n",
        )?;
    }
    for holder in nodes {
        registry.issue(&holder, validity, true)?;
        print(&holder_text("renewed", &cert_dir, &holder))?;
    }
    for holder in clients {
        registry.issue(&holder, validity, true)?;
        print(&format!("the certificate of client {} was renewed\n", holder.identity.name))?;
    }
    Ok(Exit::Done.into())
}

pub fn revoke(args: &CertRevokeArgs) -> CommandOutcome {
    let cert_dir = CertDirectory::find(&args.cert_dir)?;
    if args.nodes.is_empty() && args.client.is_empty() && args.file.is_empty() {
        return Err(CommandFailure::usage("say what to revoke: node names, --client NAME, or --file FILE"));
    }
    let registry = cert_dir.registry();
    let identities = args.nodes.iter().map(|name| MemberIdentity::node(cert_dir.cluster(), name));
    let identities = identities.chain(args.client.iter().map(|name| MemberIdentity::client(cert_dir.cluster(), name)));
    let files = identities.map(|identity| registry.paths(&identity).certificate).chain(args.file.iter().cloned());
    let added = registry.revoke(&files.collect::<Vec<_>>())?;
    let list = registry.revoked();
    for fingerprint in &added {
        print(&format!("revoked: {fingerprint}\n"))?;
    }
    let list = list.display();
    let holder_text = match added.is_empty() {
        true => format!("{list} names them already\n"),
        false => format!("copy {list} to every node, to the same place\n"),
    };
    print(&holder_text)?;
    Ok(Exit::Done.into())
}

/// One certificate.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Certificate"))]
struct Shown {
    /// path
    file: String,
    /// `authority`, `node` or `client`; `null`: it names nobody
    holder: Option<&'static str>,
    /// of the holder; `null`: none
    name: Option<String>,
    /// of the holder; `null`: none
    cluster: Option<String>,
    /// names and addresses for NBD clients
    hosts: Vec<String>,
    /// RFC 3339
    not_before: String,
    /// RFC 3339
    not_after: String,
    /// SHA-256, hexadecimal
    fingerprint: String,
    /// a sentence when the dates need attention; else `null`
    warning: Option<String>,
}

/// What `cert show --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CertReport {
    /// name and version of this schema
    schema: &'static str,
    /// where the files are
    directory: String,
    /// one for each certificate (`ca.crt` may hold several)
    certificates: Vec<Shown>,
    /// sentences about unreadable files
    errors: Vec<String>,
}

pub fn show(args: &CertShowArgs) -> CommandOutcome {
    let cert_dir = CertDirectory::find(&args.cert_dir)?;
    let (mut certificates, mut errors) = (Vec::new(), Vec::new());
    let now = facts::now();
    for file in cert_dir.registry().files() {
        match certificates_of(&file) {
            Ok(list) => certificates.extend(list.iter().map(|facts| shown(&file.display().to_string(), facts, now))),
            Err(sentence) => errors.push(sentence),
        }
    }
    if certificates.is_empty() && errors.is_empty() {
        let directory = cert_dir.directory.display();
        return Err(format!("there is no certificate in {directory}; begin with 'farshore cert init'").into());
    }
    let directory = cert_dir.directory.display().to_string();
    let report = CertReport { schema: CERTIFICATES_SCHEMA, directory, certificates, errors };
    let needs_attention = !report.errors.is_empty() || report.certificates.iter().any(|one| one.warning.is_some());
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&report)?))?;
    } else {
        print(&report.certificates.iter().map(lines).collect::<String>())?;
        report.certificates.iter().filter_map(|one| one.warning.as_ref()).chain(&report.errors).for_each(warn);
    }
    Ok(if needs_attention { Exit::Warning } else { Exit::Done }.into())
}

fn shown(file: &str, facts: &CertificateFacts, now: i64) -> Shown {
    let holder = match &facts.identity {
        Some(MemberIdentity { party: Party::Node, .. }) => Some("node"),
        Some(MemberIdentity { party: Party::Client, .. }) => Some("client"),
        None => facts.is_authority.then_some("authority"),
    };
    let whose = format!("the certificate in {file}");
    let remedy = match (&facts.identity, holder) {
        (Some(identity), Some("client")) => format!("farshore cert rotate --client {}", identity.name),
        (Some(identity), _) => format!("farshore cert rotate {}", identity.name),
        (None, _) => "farshore cert rotate --ca".to_owned(),
    };
    let time = |seconds: i64| time_text(u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000));
    Shown {
        file: file.to_owned(),
        holder,
        name: facts.identity.as_ref().map(|identity| identity.name.clone()),
        cluster: facts.identity.as_ref().map(|identity| identity.cluster.clone()),
        hosts: facts.hosts.clone(),
        not_before: time(facts.not_before),
        not_after: time(facts.not_after),
        fingerprint: facts.fingerprint.clone(),
        warning: warning(&whose, &remedy, facts, now),
    }
}

fn lines(shown: &Shown) -> String {
    let whose = match (shown.holder, &shown.name, &shown.cluster) {
        (Some(holder), Some(name), Some(cluster)) => format!("{holder} {name} of cluster {cluster}"),
        (Some(holder), ..) => holder.to_owned(),
        (None, ..) => "nobody's".to_owned(),
    };
    let hosts =
        if shown.hosts.is_empty() { String::new() } else { format!("  called     {}\n", shown.hosts.join(", ")) };
    format!(
        "{whose}\n  file       {}\n{hosts}  valid      {} to {}\n  sha256     {}\n",
        shown.file, shown.not_before, shown.not_after, shown.fingerprint
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A reader of metrics at an address of their own refused the certificate, which did not name it.
    #[test]
    fn a_certificate_names_every_address_that_speaks_tls() {
        let text = settings::example::EXAMPLE;
        let state = "state = \"/var/lib/farshore-alpha\"";
        let served = format!(
            "{state}\nmetrics = \"tcp:192.0.2.9:9750\"\nnbd = [\"tcp:192.0.2.8:10809\", \"tcp:0.0.0.0:10810\"]"
        );
        let config = Config::parse(Path::new("/etc/farshore/farshore.toml"), text).expect("sound");
        let own = addresses(&config.nodes[0]);
        let text = text.replace("insecure = false", "insecure = true").replace(state, &served);
        let config = Config::parse(Path::new("/etc/farshore/farshore.toml"), &text).expect("sound");
        let more = addresses(&config.nodes[0]);
        assert_eq!(more, [&own[..], &["192.0.2.8".to_owned(), "192.0.2.9".to_owned()]].concat());
    }
}
