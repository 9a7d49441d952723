//! The configuration of a new pair of nodes, as the two of them agree on it: text, the same bytes for the same wishes.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;

use crate::names::{ClusterName, GroupName, NodeName, VolumeName};

/// What the file says of one node.
#[derive(Clone, Copy, Debug)]
pub struct PairSide<'a> {
    pub node: &'a NodeName,
    pub address: SocketAddr,
    pub state: &'a Path,
}

/// A volume with its device on the primary and on the secondary.
#[derive(Clone, Copy, Debug)]
pub struct PairVolume<'a> {
    pub name: &'a VolumeName,
    pub primary: &'a Path,
    pub secondary: &'a Path,
}

/// What the file says of the pair.
#[derive(Clone, Copy, Debug)]
pub struct PairTerms<'a> {
    pub cluster: &'a ClusterName,
    pub group: &'a GroupName,
    /// Further keys of the group, each with its value as text.
    pub keys: &'a [(String, String)],
}

/// The text of a pair with one group; certificates lie in the directory `tls` beside the file.
///
/// # Errors
/// A sentence: a path or value that cannot stand in the file.
pub fn pair_config(
    terms: &PairTerms<'_>,
    primary: &PairSide<'_>,
    secondary: &PairSide<'_>,
    volumes: &[PairVolume<'_>],
) -> Result<String, String> {
    let mut text = format!(
        "# Made by 'farshore up' and 'farshore join': the same file on both nodes. Explained line by line by: farshore config example\n\
         cluster = \"{}\"\n\n\
         # Certificates, in the directory beside this file: farshore cert show\n[tls]\ndirectory = \"tls\"\n\n",
        terms.cluster
    );
    for side in [primary, secondary] {
        let state = path_text(side.state)?;
        text += &format!("[nodes.{}]\naddress = \"{}\"\nstate = \"{state}\"\n\n", side.node, side.address);
    }
    let group = terms.group;
    text += &format!("[groups.{group}]\nprimary = \"{}\"\nsecondary = \"{}\"\n", primary.node, secondary.node);
    for (key, value) in terms.keys {
        let _ = writeln!(text, "{key} = \"{}\"", plain(value)?);
    }
    text += "\n# By names that stay with the disk (ls -l /dev/disk/by-id): what is /dev/sdb today may be /dev/sdc after a reboot.\n";
    for volume in volumes {
        let (here, there) = (path_text(volume.primary)?, path_text(volume.secondary)?);
        text += &format!("[groups.{group}.volumes.{}]\n", volume.name);
        text += &format!("{} = \"{here}\"\n{} = \"{there}\"\n", primary.node, secondary.node);
    }
    Ok(text)
}

/// A path as it can stand in a file.
///
/// # Errors
/// A sentence: it is not absolute, not text, or holds quotes or control characters.
pub fn path_text(path: &Path) -> Result<&str, String> {
    let text = path.to_str().ok_or_else(|| format!("the path {} is not text", path.display()))?;
    if !path.is_absolute() {
        return Err(format!("the path {text:?} is not absolute; write it from / on"));
    }
    plain(text)
}

fn plain(text: &str) -> Result<&str, String> {
    if text.contains(['"', '\\']) || text.chars().any(char::is_control) {
        return Err(format!("{text:?} holds quotes or control characters, which cannot stand in a configuration file"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn text_of(state: &str, volumes: &[(&str, &str)]) -> Result<String, String> {
        let node = |name| NodeName::parse(name).expect("a name");
        let (alpha, beta) = (node("alpha"), node("beta"));
        let names: Vec<_> = volumes.iter().map(|(name, _)| VolumeName::parse(name).expect("a name")).collect();
        let volumes: Vec<_> = names
            .iter()
            .zip(volumes)
            .enumerate()
            .map(|(at, (name, (_, device)))| PairVolume {
                name,
                primary: Path::new(device),
                secondary: Path::new(["/dev/one", "/dev/two"][at]),
            })
            .collect();
        let side = |node, address: &str| PairSide {
            node,
            address: address.parse().expect("an address"),
            state: Path::new(state),
        };
        let (cluster, group) = (ClusterName::parse("c").expect("a name"), GroupName::parse("g").expect("a name"));
        let keys = [("mode".to_owned(), "sync".to_owned())];
        let terms = PairTerms { cluster: &cluster, group: &group, keys: &keys };
        pair_config(&terms, &side(&alpha, "10.0.0.1:7337"), &side(&beta, "[fd00::2]:7337"), &volumes)
    }

    #[test]
    fn the_file_of_a_pair_is_sound() {
        let text = text_of("/var/lib/farshore", &[("data", "/dev/vg0/data"), ("log", "/dev/vg0/log")]).expect("text");
        let config = Config::parse(Path::new("/etc/farshore/farshore.toml"), &text).expect(&text);
        assert_eq!((config.warnings(), config.groups[0].volumes.len()), (Vec::new(), 2));
        assert_eq!(config.tls.expect("certificates").directory, Path::new("/etc/farshore/tls"));
        assert_eq!(config.groups[0].settings.mode, crate::Mode::Sync);
    }

    #[test]
    fn what_cannot_stand_in_a_file_is_refused() {
        assert!(text_of("state", &[("data", "/dev/sdb")]).expect_err("refused").contains("not absolute"));
        assert!(text_of("/s", &[("data", "/dev/a\"b")]).expect_err("refused").contains("quotes"));
    }
}
