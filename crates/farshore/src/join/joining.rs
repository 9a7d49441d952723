//! The joining end: looks at its own devices, asks, and writes what it gets.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use host::tls::MemberIdentity;
use settings::{Config, NodeName};

use super::bell::Bell;
use super::devices::{LocalDevice, NamedDevice, are_blank, assigned, has_room};
use super::line::{JoinLine, LineError};
use super::token::JoinToken;
use super::{Grant, Offer, ToJoining, ToWaiting, Wish, WishedDevice, unix_ms, words};
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
        let mut line = JoinLine::dial(token, DIAL_PATIENCE).map_err(JoinFailure::NotTaken)?;
        match self.talk(&mut line, token, say) {
            Ok(joined) => Ok(joined),
            Err(Talk::Ours(why)) => {
                // For the operator there; whoever does not hear it misses nothing.
                let _ = line.send(&ToWaiting::Left(why.clone()));
                Err(JoinFailure::Refused(why))
            }
            Err(Talk::Theirs(why)) => Err(JoinFailure::Refused(why)),
        }
    }

    fn talk(&self, line: &mut JoinLine, token: &JoinToken, say: &dyn Fn(&str)) -> Result<JoinedNode, Talk> {
        let broken = |error: LineError| {
            Talk::Theirs(format!(
                "the connection to {} broke off: {error}; type 'farshore up' there and 'farshore join' here again: what was written is \
                 used again",
                token.address()
            ))
        };
        let offer = match line.receive().map_err(broken)? {
            ToJoining::Offer(offer) => offer,
            other => return Err(other.out_of_turn()),
        };
        let devices = self.look(&offer, say).map_err(Talk::Ours)?;
        let (registry, identity) = self.identity(&offer);
        let key = OwnKey::find_or_make(&registry.paths(&identity).key).map_err(Talk::Ours)?;
        registry.has_room_for(&identity, &key, &offer.authority).map_err(Talk::Ours)?;
        let address = self.address_on(line, token).map_err(Talk::Ours)?;
        let bell = Bell::hang(address).map_err(|error| Talk::Ours(words::cannot_listen(address, &error)))?;
        let wish = self.wish(address, devices, &key, &bell).map_err(Talk::Ours)?;
        say(&format!("asking {} to let {} join group {}", offer.node, self.node, offer.group));
        line.send(&ToWaiting::Wish(wish)).map_err(broken)?;
        let grant = match line.receive().map_err(broken)? {
            ToJoining::Grant(grant) => grant,
            other => return Err(other.out_of_turn()),
        };
        drop(bell);
        let config = self.checked(&offer, &grant).map_err(Talk::Ours)?;
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

    /// Looks at the devices; nothing is written to them.
    ///
    /// # Errors
    /// A sentence: not the group's volumes, not usable, too small, or not blank.
    fn look(&self, offer: &Offer, say: &dyn Fn(&str)) -> Result<Vec<WishedDevice>, String> {
        let named = assigned(&offer.volumes, &self.devices)?;
        let mut looked = Vec::new();
        for (volume, path) in named {
            say(&format!("looking at {}", path.display()));
            looked.push(LocalDevice::look(volume, &path)?);
        }
        let wished = |device: &LocalDevice| WishedDevice {
            volume: device.volume().to_string(),
            path: device.path().to_owned(),
            bytes: device.bytes(),
        };
        let devices: Vec<WishedDevice> = looked.iter().map(wished).collect();
        has_room(&offer.volumes, &devices, self.node.as_str())?;
        if !self.overwrite {
            are_blank(&looked)?;
        }
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
    /// A sentence: it is not sound, knows no such node, or another one is there.
    fn checked(&self, offer: &Offer, grant: &Grant) -> Result<Config, String> {
        let config = Config::parse(&self.file, &grant.config).map_err(|problems| problems.to_string())?;
        let node = config.node(&self.node).filter(|node| node.state == self.state);
        if node.is_none() || config.group(&offer.group).is_none() {
            return Err("the configuration that came does not name this node as it asked".to_owned());
        }
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
