//! Peers that are not ours: of another secret, cluster, version, or with other groups in mind. Each is named in the log
//! and in status, none gets a byte in.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::rc::Rc;

use crate::common::{DEADLINE, Pair, PairPlan, SERVES_ALONE, Side, address};
use host::link::auth::{Handshake, PREFIX_BYTES};
use host::link::{Attempt, ClusterSecret, Ourselves, Versions};

const SMALL: PairPlan =
    PairPlan { volumes: &["data"], volume_bytes: 2 << 20, group: SERVES_ALONE, ..PairPlan::DEFAULT };

/// Two nodes, something of the file or the secret changed before the second starts; what the logs and status must say.
#[track_caller]
fn foreign(change: impl Fn(&Pair), accepting: &[&str], dialing: &[&str]) {
    let mut pair = Pair::new(&SMALL);
    fs::write(pair.device(Side::Far, "data"), vec![3; 2 << 20]).expect("written");
    pair.serve(Side::Near);
    change(&pair);
    pair.serve(Side::Far);
    for (node, parts) in [(Side::Near, accepting), (Side::Far, dialing)] {
        pair.until(&format!("{} says {parts:?}", node.name()), |pair| {
            let reason = pair.status(node)["peers"][0]["link_reason"].to_string();
            parts.iter().all(|part| pair.log(node).contains(part) && (node == Side::Near || reason.contains(part)))
        });
        assert_ne!(pair.status(node)["peers"][0]["link"], "connected");
    }
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 64k", "flush"]);
    pair.stop_both();
    assert!(pair.content(Side::Far, "data").iter().all(|byte| *byte == 3), "nothing came in");
}

// proves: P10
#[test]
fn another_secret() {
    let other = |pair: &Pair| fs::write(pair.path("secret"), [b't'; 48]).expect("written");
    foreign(other, &["compare the secret files of both nodes"], &["refused this node", "secret"]);
}

// proves: P10
#[test]
fn another_cluster() {
    let other = |pair: &Pair| pair.edit_config("cluster = \"test\"", "cluster = \"prod\"");
    foreign(other, &["prod", "test"], &["it belongs to cluster", "test", "prod"]);
}

// proves: rule 23
#[test]
fn other_definitions_are_shown_side_by_side() {
    let other = |pair: &Pair| pair.edit_config("volumes.data]", "volumes.datum]");
    foreign(other, &["other definitions", "datum"], &["other definitions", "! volume.0", "datum"]);
}

/// Dials `near` as `far` would, speaking these versions of the protocol; what came back.
fn dial(pair: &Pair, versions: Versions) -> Vec<u8> {
    let ours = Ourselves {
        cluster: "test".into(),
        node: "far".into(),
        peers: vec!["near".into()],
        secret: ClusterSecret::new(&[b's'; 48]),
        definitions: String::new(),
        versions,
    };
    let attempt = Attempt { run: 1, number: 1 };
    let (_, hello) = Handshake::dial(Rc::new(ours), "near", [7; 32], attempt);
    let mut stream = TcpStream::connect(address(pair, Side::Near)).expect("the daemon listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream.write_all(&hello).expect("the daemon reads");
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    said
}

// proves: rule 23
#[test]
fn another_version() {
    let mut pair = Pair::new(&SMALL);
    pair.serve(Side::Near);
    let newer = Versions { min: Versions::OURS.max + 1, max: Versions::OURS.max + 2 };
    let said = dial(&pair, newer);
    assert!(said.len() < 8 * PREFIX_BYTES + 256, "an unauthenticated peer learns little");
    pair.until("the log names both versions", |pair| {
        let log = pair.log(Side::Near);
        log.contains(&format!("protocol version {newer}")) && log.contains("upgrade the older one")
    });
    assert!(pair.stop(Side::Near).success());
}
