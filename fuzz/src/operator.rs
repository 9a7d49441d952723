//! What operators write, and programs that talk to the control socket; and a peer's definitions, which are text too.

use std::path::Path;

use farshore::api::{ApiRequest, OperationId};
use settings::{Config, GroupOverrides, LinkOverrides, diff_definitions};

use crate::Seed;

/// Rule: whatever the text, either a configuration whose groups have their two nodes, or problems in words.
pub fn config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Config::parse(Path::new("farshore.toml"), &text) {
        Ok(config) => {
            for group in &config.groups {
                assert!(!group.volumes.is_empty() && !group.definition().is_empty());
                assert!(config.node(&group.primary).is_some() && config.node(&group.secondary).is_some());
            }
        }
        Err(problems) => assert!(!problems.to_string().is_empty()),
    }
}

const SMALL: &str = r#"cluster = "harbour"
secret_file = "/etc/farshore/secret"
[nodes.a]
address = "127.0.0.1:7337"
state = "/var/lib/a"
[nodes.b]
address = "127.0.0.2:7337"
state = "/var/lib/b"
[groups.db]
primary = "a"
secondary = "b"
mode = "sync"
queue.memory = "64MiB"
wait_limit = "10s"
[groups.db.volumes.data]
a = "/dev/sdb"
b = "/dev/sdc"
"#;

pub fn config_seeds() -> Vec<Seed> {
    vec![("small", SMALL.into()), ("every_key", settings::example::EXAMPLE.into())]
}

/// Rule: all of a file's overrides are valid or none is used, and what is used can be applied.
pub fn overrides(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let file = Path::new("overrides.toml");
    match GroupOverrides::parse(file, &text) {
        Ok(overrides) => {
            let config = Config::parse(file, SMALL).expect("the seed is sound");
            for (group, _, _) in overrides.entries() {
                let _ = overrides.of(group).effective(&config.groups[0].settings);
            }
        }
        Err(problems) => assert!(!problems.to_string().is_empty()),
    }
}

pub fn overrides_seeds() -> Vec<Seed> {
    let text = "[\"db\"]\n\"mode\" = \"sync\"\n\"queue.memory\" = \"8MiB\"\n\"wait_limit\" = \"1500ms\"\n\n[log]\nautosync = \"false\"\n";
    vec![("two_groups", text.into())]
}

/// Rule: as for the groups' overrides.
pub fn link_overrides(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match LinkOverrides::parse(Path::new("link.toml"), &text) {
        Ok(overrides) => {
            let config = Config::parse(Path::new("farshore.toml"), SMALL).expect("the seed is sound");
            let effective = overrides.effective(&config.link.settings);
            let _ = effective.socket_options(config.link.timeout);
        }
        Err(problems) => assert!(!problems.to_string().is_empty()),
    }
}

pub fn link_overrides_seeds() -> Vec<Seed> {
    let text = "[link]\nbuffers = \"4MiB\"\ncongestion = \"bbr\"\nunsent = \"256KiB\"\nuser_timeout = \"1m\"\nmin_rto = \"40ms\"\npacing = \"93Mbit/s\"\n";
    vec![("most_keys", text.into())]
}

/// Rule: what is understood comes back when it is written again.
pub fn api_request(bytes: &[u8]) {
    let Ok(request) = serde_json::from_slice::<ApiRequest>(bytes) else { return };
    let written = serde_json::to_vec(&request).expect("requests can be written");
    assert_eq!(serde_json::from_slice::<ApiRequest>(&written).expect("and read again"), request);
    if let ApiRequest::Operation { id } = &request
        && let Some(name) = OperationId::parse(id)
    {
        assert_eq!(OperationId::parse(&name.to_string()), Some(name));
    }
}

pub fn api_request_seeds() -> Vec<Seed> {
    vec![
        ("status", br#"{"request":"status","group":"db"}"#.to_vec()),
        ("set", br#"{"request":"set","group":"db","settings":{"mode":"sync","queue.memory":"8MiB"}}"#.to_vec()),
        ("promote", br#"{"request":"promote","group":"db","force":true}"#.to_vec()),
        ("sync", br#"{"request":"sync","group":"db","full":false}"#.to_vec()),
        ("counters", br#"{"request":"counters"}"#.to_vec()),
        ("operation", br#"{"request":"operation","id":"alpha-5f3a9c1e07b2-12"}"#.to_vec()),
        ("set_link", br#"{"request":"set-link","settings":{"buffers":"4MiB"}}"#.to_vec()),
        ("link_history", br#"{"request":"link-history","peer":"beta","since_unix_ms":5}"#.to_vec()),
        ("record", br#"{"request":"record","group":"db"}"#.to_vec()),
        (
            "on",
            br#"{"request":"on","node":"beta","order":{"request":"demote","group":"db","close_clients":true}}"#
                .to_vec(),
        ),
        ("status_of_both", br#"{"request":"status-of-both","group":"db"}"#.to_vec()),
        ("events", br#"{"request":"events","group":"db","since_unix_ms":5,"after":7,"limit":50,"last":10}"#.to_vec()),
        ("drop_mark", br#"{"request":"drop-mark","group":"db","name":"before-sync-12"}"#.to_vec()),
    ]
}

/// Rule: a peer's text is shown short and without control characters. The first zero byte parts ours from theirs.
pub fn definitions(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (ours, theirs) = text.split_once('\0').unwrap_or((&text, ""));
    let shown = diff_definitions(ours, theirs);
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
    assert!(shown.len() < 64 << 10, "a difference is short");
}

pub fn definitions_seeds() -> Vec<Seed> {
    let config = Config::parse(Path::new("farshore.toml"), SMALL).expect("the seed is sound");
    let ours = config.groups[0].definition();
    vec![
        ("equal", format!("{ours}\0{ours}").into()),
        ("volume_named_otherwise", format!("{ours}\0{}", ours.replace("data", "datum")).into()),
        ("hostile", format!("{ours}\0volume.0 \x1b[2J\x07{}\n", "x".repeat(300)).into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_understood() {
        for (name, bytes) in api_request_seeds() {
            assert!(serde_json::from_slice::<ApiRequest>(&bytes).is_ok(), "{name}");
        }
        let text = String::from_utf8(overrides_seeds()[0].1.clone()).expect("text");
        assert_eq!(GroupOverrides::parse(Path::new("o"), &text).map(|read| read.entries().count()).ok(), Some(4));
    }
}
