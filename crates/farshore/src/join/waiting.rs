//! The waiting end: lets one node in, and only by its token.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

use host::tls::{CertificateFacts, MemberIdentity, facts};
use settings::pair::{PairSide, PairTerms, PairVolume, pair_config};
use settings::{ClusterName, Config, ConfiguredNode, GroupName, NodeName};
use units::exact::show_seconds;

use super::bell;
use super::devices::{LocalDevice, has_room};
use super::door::Door;
use super::line::{Invitation, JoinLine, LineError};
use super::{Grant, Offer, OfferedVolume, ToJoining, ToWaiting, Wish, unix_ms, words};
use crate::api::client::ControlClient;
use crate::certs::{CertificateHolder, Registry, Validity, certificates_of};

/// Pause between two looks at the door.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long the joining node's port may take to answer.
const BELL_PATIENCE: Duration = Duration::from_secs(5);
/// A difference of clocks that is worth a remark, and one with which certificates would not be valid yet.
const CLOCKS_REMARK: Duration = Duration::from_secs(2);
const CLOCKS_MAX: Duration = Duration::from_secs(30 * 60);
/// As `farshore cert` makes them: ten years, and a year and a month.
const AUTHORITY_DAYS: u32 = 3650;
const CERTIFICATE_DAYS: u32 = 397;

/// What the first node is, and has.
pub struct WaitingNode {
    pub cluster: ClusterName,
    pub group: GroupName,
    /// Further keys of the group, each with its value as text.
    pub keys: Vec<(String, String)>,
    pub node: NodeName,
    pub address: SocketAddr,
    pub state: std::path::PathBuf,
    pub volumes: Vec<LocalDevice>,
    /// Where the other node has to be, if that was said.
    pub peer: Option<SocketAddr>,
}

/// What a node joined with.
pub struct JoinedPair {
    /// The configuration of both, as text and checked.
    pub text: String,
    pub config: Config,
    /// What the operator should know.
    pub remarks: Vec<String>,
}

/// How one conversation ended that did not break anything.
enum TalkEnd {
    Joined(Box<JoinedPair>),
    /// It may come again; a sentence.
    Left(String),
}

impl WaitingNode {
    /// Listens where the link will be, so that whoever comes shows that this port is open.
    ///
    /// # Errors
    /// A sentence: the port is taken, or the address is no own one.
    pub fn listen(address: SocketAddr) -> Result<TcpListener, String> {
        let listen = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        listen().map_err(|error: io::Error| words::cannot_listen(address, &error))
    }

    /// Waits until a node has joined. `invite` shows an invitation, a new one after each that was used; `keep` writes what this node keeps,
    /// once the other has written all of its own; `say` is told who was turned away.
    ///
    /// # Errors
    /// A sentence, in part of the other node's words: time is up, or something broke after the other node may have written.
    pub fn wait(
        &self,
        (listener, end): (&TcpListener, Instant),
        (registry, file): (&Registry, &Path),
        invite: &dyn Fn(&Invitation) -> Result<(), String>,
        keep: &dyn Fn(&JoinedPair) -> Result<(), String>,
        say: &dyn Fn(&str),
    ) -> Result<JoinedPair, String> {
        let mut door = Door::new(Invitation::make()?);
        invite(door.invitation())?;
        loop {
            if Instant::now() >= end {
                return Err("nobody joined before the token's end, and it is of no use any more; type 'farshore up' again for a \
                            new one: what was made so far is used again"
                    .to_owned());
            }
            let patience = match listener.accept() {
                Ok((socket, from)) => {
                    door.hear(socket, from.ip());
                    Duration::ZERO
                }
                Err(_) => LOOK_AGAIN,
            };
            let Some((ip, line)) = door.proven(patience, say) else { continue };
            match self.talk(line, (registry, file), keep)? {
                TalkEnd::Joined(pair) => return Ok(*pair),
                TalkEnd::Left(why) => say(&format!("the node at {ip} did not join: {why}")),
            }
            // The token was shown, so whoever saw it there has no use of it.
            door = Door::new(Invitation::make()?);
            invite(door.invitation())?;
        }
    }

    /// # Errors
    /// A sentence: it broke after the other node may have written.
    fn talk(
        &self,
        mut line: JoinLine,
        (registry, file): (&Registry, &Path),
        keep: &dyn Fn(&JoinedPair) -> Result<(), String>,
    ) -> Result<TalkEnd, String> {
        let left = |error: LineError| Ok(TalkEnd::Left(error.to_string()));
        // Whoever set a clock since is not held to what the wrong one made.
        self.certify(registry, file)?;
        let authority = registry.authority_text()?.ok_or("the authority that was just made is gone")?;
        if let Err(error) = line.send(&ToJoining::Offer(self.offer(authority))) {
            return left(error);
        }
        let wish = match line.receive::<ToWaiting>() {
            Ok(ToWaiting::Wish(wish)) => wish,
            Ok(ToWaiting::Left(why)) => return Ok(TalkEnd::Left(why)),
            Ok(ToWaiting::Written) => return Ok(TalkEnd::Left("it spoke out of turn".to_owned())),
            Err(error) => return left(error),
        };
        let (pair, grant) = match self.granted(&wish, (registry, file)) {
            Ok(granted) => granted,
            Err(why) => {
                // Whoever does not hear why is told here.
                let _ = line.send(&ToJoining::Refused(why.clone()));
                return Ok(TalkEnd::Left(why));
            }
        };
        let name = &wish.node;
        let again = "type 'farshore up' again for a new token; what both have written is used again";
        // From here on the other node may write.
        let answer = line.send(&ToJoining::Grant(grant)).and_then(|()| line.receive::<ToWaiting>());
        match answer {
            Ok(ToWaiting::Written) => {}
            Ok(ToWaiting::Left(why)) => return Err(format!("{name} did not join: {why}. The token is used: {again}")),
            Ok(ToWaiting::Wish(_)) => return Err(format!("{name} spoke out of turn. The token is used: {again}")),
            Err(error) => {
                return Err(format!("{name} did not say that it is done ({error}). The token is used: {again}"));
            }
        }
        if let Err(why) = keep(&pair) {
            let _ = line.send(&ToJoining::Refused(format!("{}: {why}", self.node)));
            return Err(format!("{why}. {name} has its files; {again}"));
        }
        // It is done, whether the other end hears of it or not.
        let _ = line.send(&ToJoining::Done);
        Ok(TalkEnd::Joined(Box::new(pair)))
    }

    /// Makes the authority and this node's certificate, as far as they are missing or, while no daemon uses them, not valid.
    ///
    /// # Errors
    /// A sentence: a file is damaged or cannot be written, the key of an authority that is not valid is kept elsewhere, or a daemon uses
    /// what is not valid by this machine's clock.
    pub fn certify(&self, registry: &Registry, file: &Path) -> Result<(), String> {
        certify(registry, &self.holder(), &|| self.serves(file))
    }

    /// Whether a daemon of this node answers, by the state directory that was named or by a configuration beside `file`: those share one
    /// directory of certificates.
    fn serves(&self, file: &Path) -> bool {
        let beside = fs::read_dir(file.parent().unwrap_or(Path::new("/"))).into_iter().flatten().flatten();
        let files = beside.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|kind| kind == "toml"));
        let configs = files.filter_map(|path| Config::load(&path).ok());
        let sockets = configs.filter_map(|config| config.node(&self.node).map(ConfiguredNode::control_socket));
        let mut sockets = sockets.chain([self.state.join("control.sock")]);
        sockets.any(|socket| ControlClient::connect(&socket).is_ok())
    }

    /// Whom this node's certificate is for.
    fn holder(&self) -> CertificateHolder {
        CertificateHolder {
            identity: MemberIdentity::node(self.cluster.as_str(), self.node.as_str()),
            hosts: vec![self.node.to_string(), self.address.ip().to_string()],
        }
    }

    fn offer(&self, authority: String) -> Offer {
        let volume = |device: &LocalDevice| OfferedVolume { name: device.volume().to_string(), bytes: device.bytes() };
        Offer {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            cluster: self.cluster.to_string(),
            group: self.group.to_string(),
            node: self.node.to_string(),
            authority,
            volumes: self.volumes.iter().map(volume).collect(),
            unix_ms: unix_ms(),
        }
    }

    /// Checks a wish, and dials its address.
    ///
    /// # Errors
    /// A sentence for the joining node: what of it cannot be.
    fn granted(&self, wish: &Wish, (registry, file): (&Registry, &Path)) -> Result<(JoinedPair, Grant), String> {
        let name = NodeName::parse(&wish.node)?;
        if name == self.node {
            return Err(format!(
                "both nodes would be called {name}; name this one otherwise, as in --name {}-2",
                self.node
            ));
        }
        if let Some(expected) = self.peer.filter(|expected| *expected != wish.address) {
            return Err(format!(
                "'farshore up' on {} expects the other node at {expected}, and this one is {}: give --address {expected} here, or type \
                 'farshore up' there with another --peer",
                self.node, wish.address
            ));
        }
        let offer = self.offer(String::new());
        has_room(&offer.volumes, &wish.devices, name.as_str())?;
        let mut remarks = clocks(wish.unix_ms.abs_diff(unix_ms()), name.as_str(), self.node.as_str())?;
        if wish.program != offer.program {
            let (theirs, ours) = (&wish.program, &offer.program);
            remarks
                .push(format!("{name} runs Farshore {theirs}, and {} runs {ours}: upgrade the older one", self.node));
        }
        let text = self.config_text(&name, wish)?;
        let config = Config::parse(file, &text).map_err(|problems| problems.to_string())?;
        bell::ring(wish.address, &wish.bell, BELL_PATIENCE)
            .map_err(|unheard| words::port_closed(self.node.as_str(), name.as_str(), wish.address, &unheard))?;
        let holder = CertificateHolder {
            identity: MemberIdentity::node(self.cluster.as_str(), name.as_str()),
            hosts: vec![name.to_string(), wish.address.ip().to_string()],
        };
        let signed = registry.sign(&holder, Validity::days(CERTIFICATE_DAYS), &wish.request)?;
        let grant = Grant {
            config: text.clone(),
            certificate: signed.certificate,
            authority: signed.authority,
            remarks: remarks.clone(),
        };
        Ok((JoinedPair { text, config, remarks }, grant))
    }

    fn config_text(&self, name: &NodeName, wish: &Wish) -> Result<String, String> {
        let volumes: Result<Vec<PairVolume<'_>>, String> = self
            .volumes
            .iter()
            .map(|device| {
                let there = wish.devices.iter().find(|there| there.volume == device.volume().as_str());
                let there = there.ok_or_else(|| format!("volume {} has no device on {name}", device.volume()))?;
                Ok(PairVolume { name: device.volume(), primary: device.path(), secondary: &there.path })
            })
            .collect();
        pair_config(
            &PairTerms { cluster: &self.cluster, group: &self.group, keys: &self.keys },
            &PairSide { node: &self.node, address: self.address, state: &self.state },
            &PairSide { node: name, address: wish.address, state: &wish.state },
            &volumes?,
        )
    }
}

/// Makes the authority and the holder's certificate, as far as there are none that are valid now: what was made by a wrong clock is of use
/// to nobody. An authority that is made anew stands before the older one. `is_used` says whether a daemon runs with what is there: then it
/// is the clock that is more likely wrong now.
///
/// # Errors
/// As [`WaitingNode::certify`].
fn certify(registry: &Registry, holder: &CertificateHolder, is_used: &dyn Fn() -> bool) -> Result<(), String> {
    let cluster = &holder.identity.cluster;
    let authority = registry.authority_text()?.map(|text| CertificateFacts::of_pem(text.as_bytes())).transpose();
    let authority = authority.map_err(|why| format!("the certificate of the authority is damaged: {why}"))?;
    let is_renewed = authority.as_deref().is_some_and(|certificates| !are_valid(certificates));
    let certificate = registry.paths(&holder.identity).certificate;
    let is_there = certificate.exists();
    let is_kept = is_there && !is_renewed && are_valid(&certificates_of(&certificate)?);
    if (is_renewed || is_there && !is_kept) && is_used() {
        return Err(format!(
            "by this machine's clock {} or its authority is not valid now, and the daemon of {} runs with them, so they were left as they \
             are: set the clock ('timedatectl') and type 'farshore up' again. If the clock is right, renew them with 'farshore cert rotate'",
            certificate.display(),
            holder.identity.name
        ));
    }
    match authority {
        None => registry.make_authority(cluster, Validity::days(AUTHORITY_DAYS))?,
        Some(_) if is_renewed => registry.renew_authority(cluster, Validity::days(AUTHORITY_DAYS))?,
        Some(_) => {}
    }
    if is_kept {
        return Ok(());
    }
    registry.issue(holder, Validity::days(CERTIFICATE_DAYS), is_there)
}

/// By the first one, which is the newest.
fn are_valid(certificates: &[CertificateFacts]) -> bool {
    let now = facts::now();
    certificates.first().is_some_and(|newest| newest.not_before <= now && now < newest.not_after)
}

/// What a difference of clocks comes to; in milliseconds.
///
/// # Errors
/// A sentence: certificates would not be valid yet, or no more.
fn clocks(apart_ms: u64, joining: &str, waiting: &str) -> Result<Vec<String>, String> {
    let apart = Duration::from_millis(apart_ms);
    let text = format!(
        "the clocks of {waiting} and {joining} are {} apart: set them, and keep them so ('timedatectl set-ntp true')",
        show_seconds(apart.as_secs_f64())
    );
    if apart > CLOCKS_MAX {
        return Err(format!("{text}. Certificates would not be valid on both; no configuration was written"));
    }
    Ok(if apart > CLOCKS_REMARK { vec![text] } else { Vec::new() })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::time::SystemTime;

    use super::*;

    /// A clock was wrong when 'up' was typed first.
    #[test]
    fn what_a_wrong_clock_has_certified_is_made_anew() {
        let scratch = tempfile::tempdir().expect("a directory");
        let registry = Registry::new(&scratch.path().join("tls"));
        let identity = MemberIdentity::node("harbour", "near");
        let holder = CertificateHolder { identity, hosts: vec!["near".to_owned()] };
        let file = registry.paths(&holder.identity).certificate;
        let both = || (registry.authority_text().expect("read").expect("there"), fs::read(&file).expect("there"));
        let certificates = |text: &str| CertificateFacts::of_pem(text.as_bytes()).expect("certificates");
        certify(&registry, &holder, &|| false).expect("made");
        let first = both();
        certify(&registry, &holder, &|| false).expect("used");
        assert_eq!(both(), first, "what is valid is used again");
        certify(&registry, &holder, &|| true).expect("used");
        // A daemon that runs has its files from a clock that was right.
        let is_left = |what: &str| {
            let before = both();
            let refused = certify(&registry, &holder, &|| true).expect_err(what);
            assert!(refused.contains("the daemon of near runs with them"), "{refused}");
            assert_eq!(both(), before, "{what}");
        };
        let day = Duration::from_secs(24 * 3600);
        let now = SystemTime::now();
        let behind = Validity { begin: now - day * 9, end: now - day };
        let ahead = Validity { begin: now + day, end: now + day * 9 };
        for wrong in [behind, ahead] {
            registry.issue(&holder, wrong, true).expect("made");
            is_left("its certificate");
            certify(&registry, &holder, &|| false).expect("made anew");
            assert!(are_valid(&certificates_of(&file).expect("there")), "{wrong:?}");
            assert_eq!(both().0, first.0, "the authority is valid");
        }
        registry.renew_authority("harbour", behind).expect("made");
        is_left("its authority");
        certify(&registry, &holder, &|| false).expect("made anew");
        let (authority, _) = both();
        assert!(are_valid(&certificates(&authority)), "{authority}");
        assert_eq!(certificates(&authority).len(), 3, "what was believed before is believed still");
        assert!(are_valid(&certificates_of(&file).expect("there")));
    }

    /// A second pair is made beside a configuration by which a daemon of this node runs.
    #[test]
    fn a_daemon_of_a_configuration_beside_is_seen() {
        let scratch = tempfile::tempdir().expect("a directory");
        let at = |name: &str| scratch.path().join(name);
        let name = |text: &str| NodeName::parse(text).expect("a name");
        let volume = settings::VolumeName::parse("data").expect("a name");
        let group = GroupName::parse("main").expect("a name");
        let waiting = WaitingNode {
            cluster: ClusterName::parse("harbour").expect("a name"),
            group: group.clone(),
            keys: Vec::new(),
            node: name("near"),
            address: SocketAddr::from(([10, 0, 0, 1], 7337)),
            state: at("second"),
            volumes: Vec::new(),
            peer: None,
        };
        let text = pair_config(
            &PairTerms { cluster: &waiting.cluster, group: &group, keys: &[] },
            &PairSide { node: &waiting.node, address: waiting.address, state: &at("first") },
            &PairSide {
                node: &name("far"),
                address: SocketAddr::from(([10, 0, 0, 2], 7337)),
                state: Path::new("/var/lib/far"),
            },
            &[PairVolume { name: &volume, primary: Path::new("/dev/vg0/a"), secondary: Path::new("/dev/vg0/b") }],
        );
        fs::write(at("first.toml"), text.expect("a configuration")).expect("written");
        fs::write(at("other.toml"), "no configuration").expect("written");
        for state in ["first", "second"] {
            assert!(!waiting.serves(&at("second.toml")), "{state}");
            fs::create_dir(at(state)).expect("a directory");
            let daemon = UnixListener::bind(at(state).join("control.sock")).expect("it listens");
            assert!(waiting.serves(&at("second.toml")), "{state}");
            drop(daemon);
        }
        assert!(!waiting.serves(&at("second.toml")), "what is left of a daemon is none");
    }

    #[test]
    fn clocks_that_differ_are_told_and_too_much_is_refused() {
        assert_eq!(clocks(1900, "beta", "alpha"), Ok(Vec::new()));
        let told = clocks(5000, "beta", "alpha").expect("a remark");
        assert!(told[0].contains("clocks of alpha and beta are 5.0 s apart"), "{told:?}");
        assert!(clocks(3_600_000, "beta", "alpha").unwrap_err().contains("no configuration was written"));
    }
}
