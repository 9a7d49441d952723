//! Both nodes in one place: what the peer says of itself, orders typed at either node, and who uses an export.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::common::{GROUP, Pair, PairPlan, Side, schema};
use engine::wire::FrameHeader;
use engine::{FramePayload, LinkId, NodeId, SessionId};
use host::buffers::Pool;
use host::link::control;
use host::link::{
    ClusterSecret, FrameOptions, LinkBounds, LinkConfig, LinkEvents, LinkPeer, LinkSender, Links, Ourselves, PeerInfo,
    SocketOptions, Versions,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use settings::{Config, ConfiguredGroup};

fn json(pair: &Pair, node: Side, words: &[&str]) -> Value {
    let output = pair.run(node, words);
    let json = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{words:?}: {error}: {}", String::from_utf8_lossy(&output.stderr)));
    schema::check(&json);
    json
}

/// What the peer says, as `node` shows it.
fn peer_says(pair: &Pair, node: Side) -> Value {
    json(pair, node, &["status", GROUP, "--json"])["peer_says"][0].clone()
}

fn role(pair: &Pair, node: Side) -> Value {
    pair.status(node)["role"].clone()
}

#[test]
fn status_shows_what_the_peer_says_of_itself_or_why_that_is_not_known() {
    let mut pair = Pair::replicating(&PairPlan::default());
    for node in Side::BOTH {
        let says = peer_says(&pair, node);
        let theirs = &says["status"]["groups"][0];
        assert_eq!(says["node"], node.other().name(), "{says}");
        assert_eq!((&theirs["role"], &says["why"]), (&role(&pair, node.other()), &Value::Null), "{says}");
        assert!(says["age_s"].as_f64() < Some(30.0) && says["status"]["version"].is_string(), "{says}");
        let page = pair.done(node, &["status"]);
        let head = format!("{} says of itself, ", node.other().name());
        assert!(page.contains(&head) && page.contains("  Position    ") && page.contains("  Space       "), "{page}");
        let page = pair.done(node, &["status", GROUP, "--on", node.other().name()]);
        assert!(page.starts_with(node.other().name()) && !page.contains("says of itself"), "{page}");
        let alone = json(&pair, node, &["status", "--local", "--json"]);
        assert!(alone.get("peer_says").is_none());
        schema::seen(&alone);
        assert!(!pair.done(node, &["status", "--local"]).contains("says of itself"));
    }

    let far = Pid::from_raw(pair.pid(Side::Far) as i32).expect("a process");
    kill_process(far, Signal::STOP).expect("our own child");
    let (mut took, mut said) = (Duration::ZERO, String::new());
    // Its last word is shown for a second.
    pair.until("it does not answer", |pair| {
        let began = Instant::now();
        said = pair.output_of(Side::Near, &["status"]).1;
        took = began.elapsed();
        said.contains("what far says of itself is not known: it does not answer within 1")
    });
    kill_process(far, Signal::CONT).expect("our own child");
    assert!(said.contains("; its daemon last answered ") && took < Duration::from_secs(4), "{took:?}: {said}");

    pair.kill(Side::Far);
    let says = peer_says(&pair, Side::Near);
    assert!(says["why"].to_string().contains("cannot connect to "), "{says}");
    assert!(says["status"].is_null() && says["answered_s"].as_f64().is_some(), "{says}");
    let (code, said) = pair.output_of(Side::Near, &["status", GROUP, "--on", "far"]);
    assert!(code == 2 && said.contains("node far does not answer: cannot connect to "), "{said}");
    let (code, said) = pair.output_of(Side::Near, &["status", GROUP, "--on", "fra"]);
    assert!(code == 2 && said.contains("it is no peer of this node; its peers are far"), "{said}");
}

#[test]
fn orders_are_carried_to_the_node_that_must_do_them() {
    let mut pair = Pair::replicating(&PairPlan::default());
    let said = pair.done(Side::Far, &["logging", GROUP]);
    assert!(said.starts_with("done on node near: g: "), "{said}");
    pair.wait_for(Side::Near, "logging");
    pair.qemu_io(Side::Near, "data", &["write -P 9 0 1M"]);
    let said = pair.done(Side::Far, &["sync", GROUP, "--wait"]);
    assert!(said.starts_with("done on node near: g: ") && said.contains("the copy is up to date"), "{said}");
    assert_eq!(pair.status(Side::Near)["state"], "replicating");
    assert!(pair.log(Side::Near).contains("node far orders: {\"request\":\"sync\""), "{}", pair.log(Side::Near));

    // Settings are each node's own: they change where they are typed, or where that is said.
    let said = pair.done(Side::Far, &["set", GROUP, "mode=sync", "--on", "near"]);
    assert!(said.contains("done on node near: g: mode = sync"), "{said}");
    assert_eq!(pair.status(Side::Near)["mode"], "sync");
    pair.done(Side::Near, &["set", GROUP, "mode=sync", "--on", "far"]);
    pair.until("nothing is dirty", |pair| pair.status(Side::Near)["peers"][0]["dirty_bytes"] == 0);

    // A change of roles has to be told to a node by its name: a script may demote a node twice.
    let said = pair.done(Side::Far, &["demote", GROUP]);
    assert!(said.contains("already secondary; nothing to do"), "{said}");
    assert_eq!([role(&pair, Side::Near), role(&pair, Side::Far)], ["primary", "secondary"]);
    let said = pair.done(Side::Far, &["demote", GROUP, "--on", "near"]);
    assert!(said.starts_with("done on node near: g: "), "{said}");
    assert_eq!(role(&pair, Side::Near), "secondary");

    // A promotion is for the node where it is typed, or that is named.
    let mut answer = (2, String::new());
    pair.until("the far node may be promoted", |pair| {
        answer = pair.output_of(Side::Near, &["promote", GROUP, "--on", "far"]);
        answer.0 < 2
    });
    assert!(answer.1.starts_with("done on node far: g: "), "{}", answer.1);
    assert_eq!([role(&pair, Side::Near), role(&pair, Side::Far)], ["secondary", "primary"]);

    pair.kill(Side::Far);
    let (code, said) = pair.output_of(Side::Near, &["sync", GROUP]);
    assert_eq!(code, 2, "{said}");
    for part in [
        "g: this node is the secondary, and this is done on the primary. Nothing was done: node far was not reached: cannot connect to ",
        "Type it there: farshore sync g",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_node_says_what_its_peers_may_ask() {
    let mut pair = Pair::new(&PairPlan { node: "peer_commands = \"read\"", ..PairPlan::default() });
    pair.first_sync();
    assert_eq!(peer_says(&pair, Side::Far)["status"]["groups"][0]["role"], "primary");
    let (code, said) = pair.output_of(Side::Far, &["logging", GROUP]);
    let forbidden =
        "node near says: node near lets its peers look, and order nothing (peer_commands = \"read\" in [nodes.near])";
    assert!(code == 2 && said.contains(forbidden), "{code}: {said}");
    assert_eq!(pair.status(Side::Near)["state"], "replicating");
    // What is only the machine's is carried nowhere.
    let record =
        serde_json::json!({ "request": "on", "node": "near", "order": { "request": "record", "group": GROUP } });
    let reply = pair.ask(Side::Far, &record);
    assert!(reply["message"].to_string().contains("record is not carried to another node"), "{reply}");
    let of_others =
        serde_json::json!({ "request": "on", "node": "near", "order": { "request": "link-history", "peer": "third" } });
    let reply = pair.ask(Side::Far, &of_others);
    assert!(reply["message"].to_string().contains("node near tells node far of no link but theirs"), "{reply}");
    let nested = serde_json::json!({ "request": "on", "node": "near", "order": { "request": "on", "node": "far", "order": { "request": "status" } } });
    assert_eq!(pair.ask(Side::Far, &nested)["code"], "bad-request");

    pair.stop_both();
    pair.edit_config("peer_commands = \"read\"", "peer_commands = \"none\"");
    Side::BOTH.iter().for_each(|node| pair.serve(*node));
    let says = peer_says(&pair, Side::Far);
    assert!(says["why"].to_string().contains("lets its peers ask nothing"), "{says}");
    let (code, said) = pair.output_of(Side::Far, &["status", "--on", "near"]);
    assert!(code == 2 && said.contains("lets its peers ask nothing"), "{said}");
}

/// With certificates the same, inside TLS.
#[test]
fn certificates_prove_a_control_connection_too() {
    let mut pair = Pair::new(&PairPlan { head: "[tls]\ndirectory = \"tls\"\n", ..PairPlan::default() });
    pair.certify();
    pair.first_sync();
    assert_eq!(peer_says(&pair, Side::Near)["status"]["groups"][0]["role"], "secondary");
    assert!(pair.done(Side::Far, &["logging", GROUP]).starts_with("done on node near: "));
}

/// A link that nobody uses.
struct Idle;

impl LinkEvents for Idle {
    fn up(&self, _: NodeId, _: LinkId, _: SessionId, _: Rc<LinkSender>, _: PeerInfo) {}
    fn down(&self, _: LinkId, _: String) {}
    fn frame(&self, _: LinkId, _: FrameHeader, _: FramePayload) {}
    fn heard(&self, _: LinkId) {}
    fn sent(&self, _: LinkId, _: u64) {}
    fn turn_done(&self) {}
    fn refused(&self, _: String, _: String) {}
}

/// In the near node's place somebody who takes one order, and hangs up instead of an answer; the orders it took.
fn hang_up_on_orders(listen: SocketAddr, definitions: String) -> mpsc::Receiver<String> {
    let (took, orders) = mpsc::channel();
    let ours = Ourselves {
        cluster: "test".into(),
        node: "near".into(),
        peers: vec!["far".into()],
        secret: ClusterSecret::new(&[b's'; 48]),
        definitions,
        versions: Versions::OURS,
    };
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async move {
            let (door, mut visits) = control::door(["far".to_owned()]);
            let peers = vec![LinkPeer { id: NodeId(0), name: "far".into(), address: listen }];
            let (socket, flow, bounds) = (SocketOptions::default(), FrameOptions::default(), LinkBounds::default());
            let config = LinkConfig {
                ours,
                peers,
                listen: vec![listen],
                tls: None,
                socket,
                flow,
                bounds,
                control: Some(door),
                volumes: None,
            };
            let _links = Links::start(config, Pool::new(1 << 20), Rc::new(Idle)).expect("nobody else listens there");
            while let Some(visit) = visits.next().await {
                let serving = visit.open().expect("the runtime watches it");
                let request = serving.request().await.expect("a request");
                let request = String::from_utf8(request).expect("a request is text");
                if !request.contains("\"status\"") && took.send(request).is_err() {
                    return;
                }
            }
        });
    });
    orders
}

#[test]
fn an_order_whose_answer_is_lost_is_not_sent_again() {
    let mut pair = Pair::new(&PairPlan::default());
    let config = Config::load(&pair.config()).expect("a configuration");
    let definitions = config.groups.iter().map(ConfiguredGroup::definition).collect();
    let orders = hang_up_on_orders(pair.address(Side::Near), definitions);
    pair.serve(Side::Far);
    let (code, said) = pair.output_of(Side::Far, &["sync", GROUP]);
    assert_eq!(code, 2, "{said}");
    for part in [
        "it is not known whether node near has done this: farshore sync g",
        "the connection broke before its reply was here",
        "farshore status g --on near",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(
        orders.iter().take(1).collect::<Vec<_>>(),
        [r#"{"request":"sync","group":"g","full":false,"answers_nothing":true}"#]
    );
    assert!(orders.try_recv().is_err(), "it was sent once");
    let order =
        serde_json::json!({ "request": "on", "node": "near", "order": { "request": "promote", "group": GROUP } });
    let told = pair.ask(Side::Far, &order);
    assert_eq!(told["code"], "outcome-unknown");
    assert_eq!(told["refusal"]["retry"], "later", "of a sync it is never: {told}");
}

#[test]
fn clients_lists_who_uses_an_export() {
    let mut pair = Pair::replicating(&PairPlan::default());
    assert_eq!(pair.done(Side::Near, &["clients"]), "No client uses an export of near now.\n");
    let words = ["write -P 1 0 64k", "read 0 4k", "flush", "discard 0 4k", "sleep 60000"];
    let client = pair.start_qemu_io(Side::Near, "data", &words);
    pair.until("it has flushed and trimmed", |pair| {
        let list = json(pair, Side::Near, &["clients", GROUP, "--json"]);
        let client = &list["clients"][0];
        client["trims"]["requests"].as_u64() > Some(0) && client["in_flight"] == 0
    });
    let list = json(&pair, Side::Far, &["clients", "--json", "--on", "near"]);
    assert_eq!((&list["schema"], &list["node"]), (&"farshore-clients/1".into(), &"near".into()), "{list}");
    schema::seen(&list);
    let found = &list["clients"][0];
    assert_eq!((&found["export"], found["clients"].as_array()), (&"g/data".into(), None), "{list}");
    assert!(found["process"].as_i64().is_some() && found["user"].as_i64().is_some(), "{list}");
    assert!(found["address"].is_null() && found["certificate"].is_null(), "{list}");
    assert_eq!((&found["writes"]["requests"], &found["writes"]["bytes"]), (&1.into(), &65536.into()), "{list}");
    assert!(
        found["reads"]["bytes"].as_u64() >= Some(4096) && found["flushes"]["requests"].as_u64() >= Some(1),
        "{list}"
    );
    assert!(found["last_flush_s"].as_f64().is_some() && found["since_s"].as_f64() > Some(0.0), "{list}");
    assert!(found["agreed"].to_string().contains("structured-replies"), "{list}");
    let page = pair.done(Side::Near, &["clients", GROUP]);
    assert!(page.contains("LAST FLUSH") && page.contains("g/data") && page.contains("64 KiB in 1"), "{page}");
    let (code, said) = pair.output_of(Side::Near, &["clients", "web"]);
    assert!(code == 2 && said.contains("has no group \"web\""), "{said}");
    // A peer is not told which groups there are.
    let (code, said) = pair.output_of(Side::Far, &["clients", "web", "--on", "near"]);
    let told = "node near says: nodes near and far have no group \"web\" with each other";
    assert!(code == 2 && said.contains(told) && !said.contains("its groups are"), "{said}");
    drop(client);
}
