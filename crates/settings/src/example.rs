//! A first configuration: the commented example, and the one `init` writes from two `HOST:DEVICE` words.

use std::net::{IpAddr, SocketAddr};

use crate::config::is_loopback;
use crate::names::NodeName;

/// What `config example` prints: made from the table of keys, as a test shows. It passes `config check` once the names are yours.
pub const EXAMPLE: &str = include_str!("example.toml");

/// The port of `init` and of the example.
pub const PORT: u16 = 7337;

/// One side of `init`: `10.0.0.1:/dev/vg0/data` or `alpha=10.0.0.1:/dev/disk/by-id/DISK`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitSide {
    pub node: String,
    pub address: SocketAddr,
    pub device: String,
}

impl InitSide {
    /// Reads `[NODE=]HOST:DEVICE`, HOST being an IP address; IPv6 in brackets. `node` names the side when it does not.
    ///
    /// # Errors
    /// A sentence: what is wrong and how to write it.
    pub fn parse(text: &str, node: &str) -> Result<Self, String> {
        let advice =
            "write it as 10.0.0.1:/dev/disk/by-id/DISK, or with the node's name as alpha=10.0.0.1:/dev/disk/by-id/DISK";
        let (node, rest) = match text.split_once('=') {
            Some((name, rest)) if !name.contains([':', '/']) => (name, rest),
            _ => (node, text),
        };
        let name = NodeName::parse(node)?;
        let (host, device) = rest
            .split_once(":/")
            .map(|(host, path)| (host, format!("/{path}")))
            .ok_or_else(|| format!("{text:?} has no absolute device path after its host; {advice}"))?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let ip: IpAddr = bare
            .parse()
            .map_err(|_| format!("{host:?} is not an IP address (host names are not looked up); {advice}"))?;
        if device.contains(['"', '\\']) || device.chars().any(char::is_control) {
            return Err(format!(
                "the device path {device:?} holds quotes or control characters; use another name for it"
            ));
        }
        Ok(Self { node: name.to_string(), address: SocketAddr::new(ip, PORT), device })
    }
}

impl InitSide {
    /// As [`is_drawn_name`], of its device.
    pub fn has_drawn_name(&self) -> bool {
        is_drawn_name(&self.device)
    }
}

/// Whether the kernel gives a device's name anew at each boot, to whichever disk it finds first.
pub fn is_drawn_name(device: &str) -> bool {
    const DRAWN: [&str; 9] = ["sd", "vd", "hd", "xvd", "nvme", "mmcblk", "loop", "dm-", "nbd"];
    let name = device.strip_prefix("/dev/").filter(|name| !name.contains('/'));
    name.is_some_and(|name| DRAWN.iter().any(|drawn| name.starts_with(drawn)))
}

/// What two nodes of a first configuration know each other by.
#[derive(Clone, Copy, Debug)]
pub enum InitTrust<'a> {
    /// A file that both share; for loopback only.
    Secret { file: &'a str },
    /// Certificates in this directory.
    Certificates { directory: &'a str },
}

/// Whether two sides need encryption between them.
pub fn leaves_this_machine(near: &InitSide, far: &InitSide) -> bool {
    [near, far].iter().any(|side| !is_loopback(side.address.ip()))
}

/// The text of a first configuration: one group `main` with one volume `data`, async.
pub fn first_config(near: &InitSide, far: &InitSide, trust: InitTrust<'_>) -> String {
    let (secret, tls) = match trust {
        InitTrust::Secret { file } => (format!("secret_file = \"{file}\"\n"), String::new()),
        InitTrust::Certificates { directory } => (
            String::new(),
            format!(
                "# Certificates of both nodes, made by: farshore cert init, farshore cert node NAME\n[tls]\ndirectory = \"{directory}\"\n\n"
            ),
        ),
    };
    let node = |side: &InitSide| {
        format!("[nodes.{}]\naddress = \"{}\"\nstate = \"/var/lib/farshore\"\n", side.node, side.address)
    };
    format!(
        "# The same file on both nodes. Explained line by line by: farshore config example\n\
         cluster = \"{near_name}-{far_name}\"\n\
         {secret}\n\
         {tls}\
         {near_node}\n\
         {far_node}\n\
         [groups.main]\n\
         primary = \"{near_name}\"\n\
         secondary = \"{far_name}\"\n\
         mode = \"async\"\n\
         \n\
         # By names that stay with the disk (ls -l /dev/disk/by-id): what is /dev/sdb today may be /dev/sdc after a reboot.\n\
         [groups.main.volumes.data]\n\
         {near_name} = \"{near_device}\"\n\
         {far_name} = \"{far_device}\"\n",
        near_name = near.node,
        far_name = far.node,
        near_node = node(near),
        far_node = node(far),
        near_device = near.device,
        far_device = far.device,
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Config, ConfiguredNode, Tls, TopLevelKeys};
    use crate::forms::{EACH, literal};
    use crate::keys::{ExampleStyle, Keyed, SettingKey};
    use crate::names::{ClusterName, NodeName, VolumeName};
    use crate::{
        ConfiguredHook, ConfiguredLink, ConfiguredVolume, GroupMembers, Layout, LinkSettings, LiveSettings, RoleHooks,
        RpoThresholds, ScrubSettings,
    };

    /// The keys of a table with their values and remarks.
    fn lines<S: Keyed>(settings: &S, prefix: &str) -> String {
        let remarked = |line: String, remark: &str| format!("{line:28} # {remark}\n");
        let value = |key: SettingKey<S>| format!("{prefix}{key} = {}", literal(&settings.text(key)));
        let gap = if prefix.is_empty() { "\n" } else { "" };
        let line = |key: SettingKey<S>| match key.entry().row.shown {
            ExampleStyle::Value(remark) if remark.contains('\n') => {
                format!("{gap}# {}\n{}\n", remark.replace('\n', "\n# "), value(key))
            }
            ExampleStyle::Value(remark) => remarked(value(key), remark),
            ExampleStyle::Choice(choice, remark) => remarked(format!("# {key} = {choice}"), remark),
        };
        SettingKey::all().filter(|key| key.as_str() != EACH).map(line).collect()
    }

    fn node(name: &str, address: &str) -> ConfiguredNode {
        let mut node = ConfiguredNode::of(NodeName::parse(name).expect("a name"));
        node.address = address.parse().expect("an address");
        node.state = format!("/var/lib/farshore-{name}").into();
        node
    }

    fn made() -> String {
        let name = |text| NodeName::parse(text).expect("a name");
        let top = TopLevelKeys {
            cluster: ClusterName::parse("demo").expect("a name"),
            secret_file: Some("/etc/farshore/secret".into()),
            ..TopLevelKeys::default()
        };
        let tls = Tls { directory: "/etc/farshore/tls".into(), ..Tls::default() };
        let (alpha, beta) = (node("alpha", "127.0.0.1:7337"), node("beta", "127.0.0.2:7337"));
        let link = ConfiguredLink::of(LinkSettings::default());
        let members = GroupMembers { primary: name("alpha"), secondary: name("beta") };
        let volume = ConfiguredVolume::of(VolumeName::parse("data").expect("a name"));
        [
            HEAD,
            &lines(&top, ""),
            "\n# Certificates: with this table the nodes need no secret, every link between them is encrypted, and NBD clients beyond\n\
             # loopback have to encrypt and show a certificate. Make them with: farshore cert init, farshore cert node NAME\n\
             # [tls]\n",
            &lines(&tls, "# "),
            "\n[link]\n",
            &lines(&link, ""),
            &lines(&link.settings, ""),
            "\n[nodes.alpha]\n",
            &lines(&alpha, ""),
            &format!("\n[nodes.beta]\naddress = \"{}\"\nstate = \"{}\"\n", beta.address, beta.state.display()),
            "\n[groups.db]\n",
            &lines(&members, ""),
            &lines(&LiveSettings::default(), ""),
            &lines(&Layout::default(), ""),
            &lines(&RpoThresholds::default(), ""),
            &lines(&ScrubSettings::default(), ""),
            &lines(&RoleHooks::default(), ""),
            VOLUMES,
            &lines(&volume, ""),
            "\n[groups.db.volumes.log]\nalpha = \"/dev/vg0/db-log\"\nbeta = \"/dev/vg0/db-log\"\n",
            "\n# Who is told of events (farshore events), one such table for each. Either command or url.\n# [[hook]]\n",
            &lines(&ConfiguredHook::default(), "# "),
        ]
        .concat()
    }

    const HEAD: &str = "# Farshore: one file, the same on both nodes.\n\
        # Sizes are whole numbers with B, KiB, MiB, GiB or TiB; durations are \"500ms\", \"10s\", \"2h 30m\".\n\
        # Lines that start with \"# \" and a key show a default or a choice. Check with: farshore config check FILE\n\n";

    const VOLUMES: &str = "\n# One table per volume: the device or file that holds it, per node. Disks by names that stay with them, as\n\
        # 'ls -l /dev/disk/by-id' shows them, or logical volumes: what is /dev/sdb today may be /dev/sdc after a reboot, and is\n\
        # refused then.\n\
        [groups.db.volumes.data]\nalpha = \"/dev/disk/by-id/wwn-0x5000c500a1b2c3d4\"\nbeta = \"/dev/disk/by-id/wwn-0x5000c500e5f60718\"\n";

    /// `BLESS=1 cargo test` writes it anew; read it before committing.
    #[test]
    fn the_example_is_what_the_table_of_keys_makes() {
        let made = made();
        if std::env::var_os("BLESS").is_some() {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/example.toml");
            std::fs::write(file, &made).expect("written");
        } else {
            assert!(made == EXAMPLE, "src/example.toml should be:\n{made}");
        }
    }

    #[test]
    fn the_example_is_sound_and_shows_every_default() {
        let file = Path::new("/etc/farshore/farshore.toml");
        let config = Config::parse(file, EXAMPLE).expect("the example passes its own check");
        assert!(config.warnings().is_empty());
        let group = &config.groups[0];
        assert_eq!(group.settings, crate::LiveSettings::default());
        assert_eq!(group.layout.journal_bytes, crate::limits::JOURNAL.default);
        assert_eq!(group.layout.window_bytes, crate::limits::WINDOW.default);
        assert_eq!(config.link.timeout, crate::limits::LINK_TIMEOUT.default);
    }

    #[test]
    fn what_init_writes_is_sound() {
        for (near, far, leaves) in [
            ("10.0.0.1:/dev/sdb", "10.0.0.2:/dev/sdb", true),
            ("[fd00::1]:/dev/sdb", "fd00::2:/dev/disk/by-id/x:y", true),
            ("127.0.0.1:/srv/a", "127.0.0.2:/srv/b", false),
            ("east=10.0.0.1:/dev/sdb", "west=10.0.0.2:/dev/vg/data=1", true),
        ] {
            let near = InitSide::parse(near, "alpha").expect(near);
            let far = InitSide::parse(far, "beta").expect(far);
            assert_eq!(leaves_this_machine(&near, &far), leaves);
            let trust = match leaves {
                true => InitTrust::Certificates { directory: "/etc/farshore/tls" },
                false => InitTrust::Secret { file: "/etc/farshore/secret" },
            };
            let text = first_config(&near, &far, trust);
            let config = Config::parse(Path::new("/etc/farshore/farshore.toml"), &text).expect(&text);
            assert_eq!((config.warnings(), config.tls.is_some()), (Vec::new(), leaves), "{text}");
            assert_eq!(config.groups[0].volumes[0].devices.len(), 2);
        }
    }

    #[test]
    fn bad_sides_are_explained() {
        for (text, hint) in [
            ("/dev/sdb", "no absolute device path after its host"),
            ("10.0.0.1", "no absolute device path"),
            ("10.0.0.1:sdb", "no absolute device path"),
            ("db1.example.org:/dev/sdb", "is not an IP address"),
            ("Alpha=10.0.0.1:/dev/sdb", "not a node name"),
            ("10.0.0.1:/dev/\"x\"", "quotes"),
        ] {
            let error = InitSide::parse(text, "alpha").expect_err(text);
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn names_that_are_drawn_at_each_boot_are_known() {
        let drawn =
            |device: &str| InitSide::parse(&format!("10.0.0.1:{device}"), "alpha").expect("sound").has_drawn_name();
        for device in ["/dev/sdb", "/dev/vdb1", "/dev/nvme0n1", "/dev/loop3", "/dev/dm-4"] {
            assert!(drawn(device), "{device}");
        }
        for device in ["/dev/disk/by-id/sdb", "/dev/vg0/data", "/dev/mapper/vg0-data", "/srv/sdb"] {
            assert!(!drawn(device), "{device}");
        }
    }
}
