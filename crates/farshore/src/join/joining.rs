//! The joining end: looks at its own devices, asks, and writes what it gets.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use host::tls::MemberIdentity;
use settings::pair::{PairSide, PairTerms, PairVolume, pair_config};
use settings::{ClusterName, Config, ConfiguredVolume, GroupName, NodeName, VolumeName};

use super::bell::Bell;
use super::devices::{LocalDevice, NamedDevice, are_blank, assigned, has_room, named};
use super::line::{JoinLine, LineError};
use super::token::JoinToken;
use super::{Grant, Offer, ToJoining, ToWaiting, Wish, WishedDevice, unix_ms, words};
use crate::api::client::ControlClient;
use crate::certs::Registry;
use crate::certs::requests::{OwnKey, SignedRequest};

/// How long the first node may take to answer a call.
const DIAL_PATIENCE: Duration = Duration::from_secs(5);

/// What the second node is to be.
pub struct JoiningNode {
    /// Where its configuration goes; certificates go to `tls` beside it.
    pub file: PathBuf,
    pub node: NodeName,
    /// `None`: the address by which it reaches the first node, with the port of that one.
    pub address: Option<SocketAddr>,
    pub state: PathBuf,
    pub devices: Vec<NamedDevice>,
    /// What is on its devices may be lost.
    pub overwrite: bool,
}

/// What became of it.
pub struct JoinedNode {
    pub config: Config,
    pub group: String,
    /// What the operator should know.
    pub remarks: Vec<String>,
}

/// Why it did not join.
#[derive(Debug)]
pub enum JoinFailure {
    /// The token is not taken there, or nobody is there: nothing was said.
    NotTaken(LineError),
    /// A sentence.
    Refused(String),
}

impl From<String> for JoinFailure {
    fn from(why: String) -> JoinFailure {
        JoinFailure::Refused(why)
    }
}

impl JoiningNode {
    /// Joins by a token.
    ///
    /// # Errors
    /// See [`JoinFailure`]. Before the other node has agreed nothing is written.
    pub fn join(&self, token: &JoinToken, say: &dyn Fn(&str)) -> Result<JoinedNode, JoinFailure> {
        // What is refused before the token is shown leaves the token as it is. A node that may have joined already has devices in use.
        let looked = if self.file.exists() { None } else { Some(self.look(say)?) };
        let mut line = JoinLine::dial(token, DIAL_PATIENCE).map_err(JoinFailure::NotTaken)?;
        let why = match self.talk(&mut line, token, looked, say) {
            Ok(joined) => return Ok(joined),
            Err(Talk::Ours(why)) => {
                // For the operator there; whoever does not hear it misses nothing.
                let _ = line.send(&ToWaiting::Left(why.clone()));
                why
            }
            Err(Talk::Theirs(why)) => why,
        };
        Err(JoinFailure::Refused(words::used(&why)))
    }

    fn talk(
        &self,
        line: &mut JoinLine,
        token: &JoinToken,
        looked: Option<Vec<LocalDevice>>,
        say: &dyn Fn(&str),
    ) -> Result<JoinedNode, Talk> {
        let broken = |error: LineError| {
            Talk::Theirs(format!("joining by {} broke off: {error}; what was written is used again", token.address()))
        };
        let offer = match line.receive().map_err(broken)? {
            ToJoining::Offer(offer) => offer,
            other => return Err(other.out_of_turn()),
        };
        self.is_stopped().map_err(Talk::Ours)?;
        let looked = looked.map_or_else(|| self.look(say), Ok).map_err(Talk::Ours)?;
        let devices = self.wished(&offer, &looked).map_err(Talk::Ours)?;
        let (registry, identity) = self.identity(&offer);
        let key = OwnKey::find_or_make(&registry.paths(&identity).key).map_err(Talk::Ours)?;
        let is_again = self.file.exists();
        registry.has_room_for(&identity, &key, &offer.authority, is_again).map_err(Talk::Ours)?;
        let address = self.address_on(line, token).map_err(Talk::Ours)?;
        let bell = Bell::hang(address).map_err(|error| Talk::Ours(words::cannot_listen(address, &error)))?;
        let wish = self.wish(address, devices, &key, &bell).map_err(Talk::Ours)?;
        say(&format!("asking {} to let {} join group {}", offer.node, self.node, offer.group));
        line.send(&ToWaiting::Wish(wish.clone())).map_err(broken)?;
        let grant = match line.receive().map_err(broken)? {
            ToJoining::Grant(grant) => grant,
            other => return Err(other.out_of_turn()),
        };
        drop(bell);
        let config = self.checked((&offer, &wish), &grant, token.address()).map_err(Talk::Ours)?;
        let signed = SignedRequest { certificate: grant.certificate, authority: grant.authority };
        make_directory(&self.file).map_err(Talk::Ours)?;
        registry.adopt(&identity, &key, &signed).map_err(Talk::Ours)?;
        write_new(&self.file, &grant.config).map_err(Talk::Ours)?;
        line.send(&ToWaiting::Written).map_err(broken)?;
        match line.receive().map_err(broken)? {
            ToJoining::Done => Ok(JoinedNode { config, group: offer.group, remarks: grant.remarks }),
            other => Err(other.out_of_turn()),
        }
    }

    /// That no daemon of an earlier try runs: it holds port and devices, which nobody would guess from the errors that follow.
    ///
    /// # Errors
    /// A sentence: it runs.
    fn is_stopped(&self) -> Result<(), String> {
        let config = Config::load(&self.file).ok();
        let here = config.as_ref().and_then(|config| config.node(&self.node));
        if here.is_none_or(|here| ControlClient::connect(&here.control_socket()).is_err()) {
            return Ok(());
        }
        Err(format!(
            "the daemon of {} runs already, by {} of an earlier try, and holds the port and the devices: stop it ('systemctl stop \
             farshore', if that is what started it) and join then",
            self.node,
            self.file.display()
        ))
    }

    /// Looks at the devices; nothing is written to them.
    ///
    /// # Errors
    /// A sentence: not one for each name, not usable, or not blank.
    fn look(&self, say: &dyn Fn(&str)) -> Result<Vec<LocalDevice>, String> {
        let mut looked = Vec::new();
        for (volume, path) in named(&self.devices)? {
            say(&format!("looking at {}", path.display()));
            looked.push(LocalDevice::look(volume, &path)?);
        }
        if !self.overwrite {
            are_blank(&looked)?;
        }
        Ok(looked)
    }

    /// What was looked at, as the volumes of the group.
    ///
    /// # Errors
    /// A sentence: not the group's volumes, or too small.
    fn wished(&self, offer: &Offer, looked: &[LocalDevice]) -> Result<Vec<WishedDevice>, String> {
        let wished = |(volume, path): (VolumeName, PathBuf)| -> Result<WishedDevice, String> {
            let found = looked.iter().find(|device| device.path() == path);
            let bytes = found.ok_or_else(|| format!("{} was not looked at", path.display()))?.bytes();
            Ok(WishedDevice { volume: volume.to_string(), path, bytes })
        };
        let named = assigned(&offer.volumes, &self.devices)?;
        let devices = named.into_iter().map(wished).collect::<Result<Vec<_>, _>>()?;
        has_room(&offer.volumes, &devices, self.node.as_str())?;
        Ok(devices)
    }

    fn identity(&self, offer: &Offer) -> (Registry, MemberIdentity) {
        let directory = self.file.parent().unwrap_or(Path::new("/")).join("tls");
        (Registry::new(&directory), MemberIdentity::node(&offer.cluster, self.node.as_str()))
    }

    fn address_on(&self, line: &JoinLine, token: &JoinToken) -> Result<SocketAddr, String> {
        if let Some(address) = self.address {
            return Ok(address);
        }
        let own = line.own_address().map_err(|error| format!("this node's address is not known: {error}"))?;
        Ok(SocketAddr::new(IpAddr::to_canonical(&own.ip()), token.address().port()))
    }

    fn wish(&self, address: SocketAddr, devices: Vec<WishedDevice>, key: &OwnKey, bell: &Bell) -> Result<Wish, String> {
        Ok(Wish {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            node: self.node.to_string(),
            address,
            state: self.state.clone(),
            devices,
            request: key.request()?,
            bell: bell.word().to_owned(),
            unix_ms: unix_ms(),
        })
    }

    /// The configuration that came, which is this node's to have.
    ///
    /// # Errors
    /// A sentence: it is not sound, says something else than was agreed, comes with another authority, or another one is there.
    fn checked(&self, (offer, wish): (&Offer, &Wish), grant: &Grant, first: SocketAddr) -> Result<Config, String> {
        // What was offered has been compared with what is here; whom a node believes is not changed by anything else.
        if grant.authority != offer.authority {
            return Err(format!(
                "the authority that came is not the one that was offered; it was not written. Type 'farshore join' again, and see that it \
                 is 'farshore up' of {} that waits at {first}",
                offer.node
            ));
        }
        let config = Config::parse(&self.file, &grant.config).map_err(|problems| problems.to_string())?;
        is_agreed(&config, (offer, wish), first).map_err(|what| {
            format!(
                "the configuration that came says something else than was agreed, in {what}; it was not written. Are both nodes of one \
                 version, and is it 'farshore up' of {} that waits at {first}?",
                offer.node
            )
        })?;
        let name = self.file.display();
        match fs::read_to_string(&self.file) {
            Ok(text) if text == grant.config => Ok(config),
            Ok(_) => Err(format!(
                "{name} is there already, and says something else than {} proposes; it was left as it is: move it away if nobody needs \
                 it, or name another file with --config",
                offer.node
            )),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(config),
            Err(error) => Err(format!("{name} cannot be read: {error}")),
        }
    }
}

/// That a configuration says what offer and wish come to, and nothing besides: a daemon does as root what stands in it. What is the
/// first node's own to say is its state directory, its devices, and the keys of the group.
///
/// # Errors
/// What of it is otherwise.
fn is_agreed(came: &Config, (offer, wish): (&Offer, &Wish), first: SocketAddr) -> Result<(), String> {
    let agreed = agreed(came, (offer, wish), first)?;
    let head_is_same = came.top == agreed.top && came.tls == agreed.tls && came.link == agreed.link;
    let all = [
        (came.hooks.is_empty(), "its hooks, of which there should be none"),
        (head_is_same, "its cluster, [tls] or [link]"),
        (came.nodes == agreed.nodes, "its nodes"),
        (members(came).eq(members(&agreed)), "its groups, or which node is the primary"),
        (volumes(came).eq(volumes(&agreed)), "the devices of its volumes"),
    ];
    all.into_iter().find(|(is_same, _)| !is_same).map_or(Ok(()), |(_, what)| Err(what.to_owned()))
}

fn members(config: &Config) -> impl Iterator<Item = (&GroupName, &NodeName, &NodeName)> {
    config.groups.iter().map(|group| (&group.name, &group.primary, &group.secondary))
}

fn volumes(config: &Config) -> impl Iterator<Item = &ConfiguredVolume> {
    config.groups.iter().flat_map(|group| &group.volumes)
}

/// The same configuration, as this node would write it.
///
/// # Errors
/// What of it is otherwise.
fn agreed(came: &Config, (offer, wish): (&Offer, &Wish), first: SocketAddr) -> Result<Config, String> {
    let (near, far) = (NodeName::parse(&offer.node)?, NodeName::parse(&wish.node)?);
    let (cluster, group) = (ClusterName::parse(&offer.cluster)?, GroupName::parse(&offer.group)?);
    let state = came.node(&near).ok_or("its nodes")?.state.as_path();
    let there = &came.group(group.as_str()).ok_or("its groups")?.volumes;
    let names = wish.devices.iter().map(|device| VolumeName::parse(&device.volume)).collect::<Result<Vec<_>, _>>()?;
    let volumes: Option<Vec<PairVolume<'_>>> = names
        .iter()
        .zip(&wish.devices)
        .map(|(name, device)| {
            let primary = there.iter().find(|volume| volume.name == *name)?.devices.get(&near)?.as_path();
            Some(PairVolume { name, primary, secondary: &device.path })
        })
        .collect();
    let text = pair_config(
        &PairTerms { cluster: &cluster, group: &group, keys: &[] },
        &PairSide { node: &near, address: first, state },
        &PairSide { node: &far, address: wish.address, state: &wish.state },
        &volumes.ok_or("the devices of its volumes")?,
    )?;
    Config::parse(&came.file, &text).map_err(|problems| problems.to_string())
}

/// Whose word it was that nothing comes of it.
enum Talk {
    Ours(String),
    Theirs(String),
}

impl ToJoining {
    fn out_of_turn(self) -> Talk {
        match self {
            ToJoining::Refused(why) => Talk::Theirs(why),
            _ => Talk::Theirs("the first node spoke out of turn; are both of one version?".to_owned()),
        }
    }
}

/// The directory of the configuration.
///
/// # Errors
/// A sentence: it cannot be made.
pub fn make_directory(file: &Path) -> Result<(), String> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // For everybody to enter, whatever the umask leaves; what is in it has modes of its own.
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(directory);
    made.map_err(|error| format!("the directory {} cannot be made: {error}", directory.display()))
}

/// Writes a file that is not there, whole and durable; one that has this content already is left as it is.
///
/// # Errors
/// A sentence: another one is there, or it cannot be written.
pub fn write_new(file: &Path, text: &str) -> Result<(), String> {
    let name = file.display();
    let unwritten = |error: std::io::Error| format!("{name} cannot be written: {error}");
    match fs::read_to_string(file) {
        Ok(there) if there == text => return Ok(()),
        Ok(_) => return Err(format!("{name} is there already and says something else; it was left as it is")),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(format!("{name} cannot be read: {error}")),
    }
    let beside = file.with_extension(format!("new-{}", std::process::id()));
    let write = || {
        let mut new = OpenOptions::new().write(true).create_new(true).open(&beside)?;
        new.write_all(text.as_bytes())?;
        new.sync_all()?;
        // Unlike a renaming, a link does not replace what somebody put there meanwhile.
        fs::hard_link(&beside, file)?;
        let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::File::open(directory)?.sync_all()
    };
    let written = write().map_err(unwritten);
    let _ = fs::remove_file(&beside);
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::OfferedVolume;

    /// As it was agreed, with a key of the group.
    const AGREED: &str = "cluster = \"c\"\n[tls]\ndirectory = \"tls\"\n\
        [nodes.near]\naddress = \"10.0.0.1:7337\"\nstate = \"/var/lib/near\"\n\
        [nodes.far]\naddress = \"10.0.0.2:7337\"\nstate = \"/var/lib/far\"\n\
        [groups.main]\nprimary = \"near\"\nsecondary = \"far\"\nmode = \"sync\"\n\
        [groups.main.volumes.data]\nnear = \"/dev/vg0/data\"\nfar = \"/dev/vg0/copy\"\n";

    fn offer() -> Offer {
        Offer {
            program: "1".to_owned(),
            cluster: "c".to_owned(),
            group: "main".to_owned(),
            node: "near".to_owned(),
            authority: String::new(),
            volumes: vec![OfferedVolume { name: "data".to_owned(), bytes: 1 << 20 }],
            unix_ms: 0,
        }
    }

    fn wish() -> Wish {
        Wish {
            program: "1".to_owned(),
            node: "far".to_owned(),
            address: SocketAddr::from(([10, 0, 0, 2], 7337)),
            state: PathBuf::from("/var/lib/far"),
            devices: vec![WishedDevice { volume: "data".to_owned(), path: "/dev/vg0/copy".into(), bytes: 1 << 20 }],
            request: String::new(),
            bell: String::new(),
            unix_ms: 0,
        }
    }

    // proves: P10
    /// What stands in the file is done by a daemon as root, whoever waits at the token's address.
    #[test]
    fn a_configuration_that_says_more_than_was_agreed_is_refused() {
        let (group, hook) = (
            "[groups.other]\nprimary = \"near\"\nsecondary = \"far\"\n\
             [groups.other.volumes.x]\nnear = \"/dev/vg0/x\"\nfar = \"/dev/vg0/y\"\n",
            "[[hook]]\nname = \"x\"\nevents = \"*\"\ncommand = [\"/bin/true\"]\n",
        );
        let roles = ["near", "far"].map(|name| format!("ary = \"{name}\"\n"));
        let exchanged = AGREED.replace(&roles[0], "?").replace(&roles[1], &roles[0]).replace('?', &roles[1]);
        let state = "state = \"/var/lib/far\"";
        for (text, wrong) in [
            (AGREED.to_owned(), None),
            (AGREED.replace("mode = \"sync\"\n", ""), None),
            (AGREED.replace("/var/lib/near", "/srv/near"), None),
            (format!("{AGREED}{hook}"), Some("hooks")),
            (format!("{AGREED}{group}"), Some("groups")),
            (exchanged, Some("primary")),
            (AGREED.replace("cluster = \"c\"", "cluster = \"d\""), Some("cluster")),
            (AGREED.replace("\"tls\"", "\"/tmp/tls\""), Some("[tls]")),
            (AGREED.replace("10.0.0.1", "10.0.0.9"), Some("nodes")),
            (AGREED.replace("10.0.0.2:7337", "10.0.0.2:7338"), Some("nodes")),
            (AGREED.replace(state, &format!("{state}\nmetrics = \"tcp:127.0.0.1:9750\"")), Some("nodes")),
            (AGREED.replace("/dev/vg0/copy", "/dev/vg0/other"), Some("devices")),
        ] {
            let config = Config::parse(Path::new("/etc/farshore/farshore.toml"), &text).expect(&text);
            let said = is_agreed(&config, (&offer(), &wish()), SocketAddr::from(([10, 0, 0, 1], 7337)));
            match (&said, wrong) {
                (Ok(()), None) => {}
                (Err(what), Some(part)) => assert!(what.contains(part), "{what}: {text}"),
                _ => panic!("{said:?}: {text}"),
            }
        }
    }

    // proves: P10
    /// The authority that is offered is the one that lies here already, so nothing stands in its way; then another one is granted.
    #[test]
    fn an_authority_that_was_not_offered_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let joining = JoiningNode {
            file: directory.path().join("farshore.toml"),
            node: NodeName::parse("far").expect("a name"),
            address: None,
            state: PathBuf::from("/var/lib/far"),
            devices: Vec::new(),
            overwrite: false,
        };
        let offer = Offer { authority: "ours".to_owned(), ..offer() };
        let checked = |authority: &str| {
            let grant = Grant {
                config: AGREED.to_owned(),
                certificate: String::new(),
                authority: authority.to_owned(),
                remarks: Vec::new(),
            };
            joining.checked((&offer, &wish()), &grant, SocketAddr::from(([10, 0, 0, 1], 7337))).map(drop)
        };
        assert_eq!(checked("ours"), Ok(()));
        let refused = checked("theirs").expect_err("another one");
        assert!(refused.contains("authority that came is not the one that was offered"), "{refused}");
    }

    #[test]
    fn a_file_that_is_there_is_left_as_it_is() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("deep/er/farshore.toml");
        make_directory(&file).expect("made");
        write_new(&file, "one").expect("written");
        write_new(&file, "one").expect("the same");
        assert!(write_new(&file, "two").unwrap_err().contains("left as it is"));
        assert_eq!(fs::read_to_string(&file).expect("there"), "one");
        assert_eq!(fs::read_dir(file.parent().expect("a parent")).expect("there").count(), 1, "nothing is left beside");
    }
}
