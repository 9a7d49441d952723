//! The link as operators meet it: what the kernel granted, settings changed while it runs, how it did, and what a line
//! that is cut, carries one direction only, or swallows large packets looks like.

use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::wan::WanGuard;
use crate::common::{GROUP, Pair, PairPlan, Side, TestRandom, is_installed, is_root, must_skip, schema};
use demo::relay::RelayDirection;
use serde_json::Value;

const VOLUMES: &[&str] = &["data"];
const SMALL: PairPlan = PairPlan { volumes: VOLUMES, volume_bytes: 2 << 20, ..PairPlan::DEFAULT };

/// The node's one link.
fn link(pair: &Pair, node: Side) -> Value {
    let output = pair.run(node, &["link", "show", "--json"]);
    let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    schema::check(&shown);
    // Before the link was looked at there is little to see.
    if !shown["links"][0]["tcp"].is_null() {
        schema::seen(&shown);
    }
    shown["links"][0].clone()
}

/// The link once it was looked at.
fn measured(pair: &mut Pair, node: Side) -> Value {
    pair.until("the link was looked at", |pair| !link(pair, node)["tcp"].is_null());
    link(pair, node)
}

fn option<'a>(link: &'a Value, name: &str) -> &'a Value {
    let options = link["socket"]["options"].as_array().expect("a list");
    options.iter().find(|option| option["option"] == name).unwrap_or_else(|| panic!("{name}: {link}"))
}

fn warns_of(link: &Value, words: &str) -> bool {
    link["warnings"].as_array().is_some_and(|list| list.iter().any(|text| text.to_string().contains(words)))
}

/// A group beside the pair's own.
const OTHER: &str = "[groups.other]\nprimary = \"near\"\nsecondary = \"far\"\nqueue.disk = 0\n\
                     [groups.other.volumes.v]\nnear = \"near/other\"\nfar = \"far/other\"\n";

fn replicating(head: &str) -> Pair {
    Pair::replicating(&PairPlan { head, ..SMALL })
}

fn ends_equal(mut pair: Pair) {
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(VOLUMES);
}

#[test]
fn both_ends_report_what_was_granted_and_what_limits_them() {
    let mut pair = replicating("[link]\nbuffers = \"64KiB\"\nuser_timeout = \"21s\"\npacing = \"1Gbit/s\"");
    pair.qemu_io(Side::Near, "data", &["write -P 1 0 1M", "flush"]);
    for node in Side::BOTH {
        let link = measured(&mut pair, node);
        assert_eq!((&link["link"], &link["connections"]), (&"connected".into(), &1.into()), "{link}");
        for (name, value) in [
            ("TCP_NODELAY", 1),
            ("TCP_USER_TIMEOUT", 21_000),
            ("TCP_NOTSENT_LOWAT", 16_384),
            ("SO_MAX_PACING_RATE", 125_000_000),
        ] {
            assert_eq!(
                (&option(&link, name)["requested"], &option(&link, name)["granted"]),
                (&value.into(), &value.into())
            );
        }
        for buffer in ["send_buffer", "receive_buffer"] {
            let buffer = &link["socket"][buffer];
            assert_eq!(
                (&buffer["requested_bytes"], &buffer["granted_when_connected_bytes"]),
                (&65_536.into(), &131_072.into())
            );
        }
        assert!(link["tcp"]["rtt_ms"].as_f64() > Some(0.0) && link["tcp"]["send_window_bytes"].as_u64() > Some(0));
        assert!(link["verdict"].is_string() && link["limit"].is_string(), "{link}");
        let text = pair.output_of(node, &["status"]).1;
        assert!(text.contains(&format!("link {}: connected", node.other().name())), "{text}");
    }
    let text = pair.output_of(Side::Near, &["link", "show", "far"]).1;
    assert!(text.contains("64 KiB asked; the kernel counts 128 KiB"), "{text}");
    let (code, said) = pair.output_of(Side::Near, &["link", "show", "elsewhere"]);
    assert!(code == 2 && said.contains("its peers are far"), "{said}");
    ends_equal(pair);
}

#[test]
fn settings_change_by_reconnecting_without_a_resync() {
    let mut pair = replicating("");
    pair.qemu_io(Side::Near, "data", &["write -P 1 0 64k"]);
    pair.wait_for_rest(Side::Near);
    let resynced = pair.counter(Side::Near, "group.g.resynced_bytes");

    let (code, said) = pair.output_of(Side::Near, &["link", "set", "bufers=4MiB", "pacing=100", "unsent=64KiB"]);
    assert!(code == 2 && said.contains("did you mean \"buffers\"?") && said.contains("no unit"), "{said}");
    assert_eq!(link(&pair, Side::Near)["connections"], 1, "what is wrong changes nothing");

    // The one that listens, then the one that dials.
    for (number, node) in [(2, Side::Near), (3, Side::Far)] {
        let said = pair.done(node, &["link", "set", "buffers=128KiB", "pacing=1Gbit/s"]);
        assert!(said.contains("connect again"), "{said}");
        pair.qemu_io(Side::Near, "data", &["write -P 2 64k 64k"]);
        pair.until("they met again", |pair| {
            Side::BOTH.iter().all(|node| link(pair, *node)["connections"] == number)
                && pair.status(Side::Near)["state"] == "replicating"
        });
        let changed = link(&pair, node);
        assert_eq!(changed["socket"]["receive_buffer"]["granted_when_connected_bytes"], 262_144, "{changed}");
        assert_eq!(option(&changed, "SO_MAX_PACING_RATE")["granted"], 125_000_000);
        assert_eq!(changed["settings"]["buffers"], serde_json::json!({ "value": "128KiB", "origin": "set" }));
    }
    pair.wait_for_rest(Side::Near);
    assert_eq!(pair.counter(Side::Near, "group.g.resynced_bytes"), resynced, "nothing was synced for it");

    assert!(pair.stop(Side::Near).success());
    pair.serve(Side::Near);
    pair.wait_for(Side::Near, "replicating");
    assert_eq!(link(&pair, Side::Near)["settings"]["pacing"]["value"], "1Gbit/s", "it outlives a restart");
    pair.done(Side::Near, &["link", "set", "pacing=default", "buffers=default"]);
    pair.until("they met again", |pair| link(pair, Side::Near)["connections"] == 2);
    let back = link(&pair, Side::Near);
    assert!(back["socket"]["send_buffer"]["requested_bytes"].is_null(), "{back}");
    pair.wait_for(Side::Near, "replicating");
    ends_equal(pair);
}

#[test]
fn compression_begins_at_once_and_shows_what_it_saves() {
    let mut pair = replicating("[link]\ncompression = \"lz4\"");
    pair.qemu_io(Side::Near, "data", &["write -P 7 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    for (node, way) in [(Side::Near, "sent"), (Side::Far, "received")] {
        let shown = &link(&pair, node)["compression"];
        let bytes = |what: &str| shown[format!("{way}_{what}")].as_f64().expect("a number");
        assert!(bytes("plain_bytes") > 1048576.0 && bytes("ratio") > 3.0, "{shown}");
        assert!(bytes("wire_bytes") * bytes("ratio") > 0.99 * bytes("plain_bytes"), "{shown}");
    }
    assert_eq!(link(&pair, Side::Near)["compression"]["method"], "lz4");
    let (code, said) = pair.output_of(Side::Near, &["link", "set", "compression=zstd:22"]);
    assert!(code == 2 && said.contains("zstd:9"), "{said}");

    let said = pair.done(Side::Near, &["link", "set", "compression=zstd:3"]);
    assert!(said.contains("at once"), "{said}");
    pair.qemu_io(Side::Near, "data", &["write -P 8 512k 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    let changed = link(&pair, Side::Near);
    assert_eq!(
        (&changed["compression"]["method"], &changed["connections"]),
        (&"zstd:3".into(), &1.into()),
        "{changed}"
    );
    let said = pair.done(Side::Near, &["link", "set", "rate=64kbit/s", "compression=off"]);
    assert!(said.contains("at once"), "{said}");
    pair.qemu_io(Side::Near, "data", &["write -P 9 0 1M"]);
    pair.until("the rate holds it", |pair| link(pair, Side::Near)["rate_held"] == true);
    assert!(pair.done(Side::Near, &["link", "show"]).contains("waits for the rate"));
    pair.until("the verdict says so", |pair| link(pair, Side::Near)["limit"] == "rate");
    pair.done(Side::Near, &["link", "set", "rate=unlimited", "compression=zstd:3"]);
    pair.wait_for_rest(Side::Near);
    assert_eq!(link(&pair, Side::Near)["connections"], 1, "the link held all along");
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M"]);
    pair.wait_for_rest(Side::Near);
    let text = pair.done(Side::Near, &["link", "show"]);
    assert!(text.contains("Compression     zstd:3; sent ") && text.contains(" : 1"), "{text}");
    assert!(pair.done(Side::Near, &["status"]).contains("; compressed "));
    ends_equal(pair);
}

/// A rate is shared: what one group writes takes its turns beside what another has to sync, and does not wait for its end.
/// The whole day has a rate of its own, which goes before `rate`, and is told from it.
#[test]
fn a_schedule_goes_before_the_rate_and_is_seen() {
    let mut pair = replicating("");
    let allowed = |pair: &Pair| link(pair, Side::Near)["allowed_bytes_per_s"].clone();
    assert!(allowed(&pair).is_null());
    pair.done(Side::Near, &["link", "set", "rate=80Mbit/s"]);
    assert_eq!(allowed(&pair), 10_000_000);
    let (code, said) =
        pair.output_of(Side::Near, &["link", "set", "schedule=00:00-12:00 64kbit/s, Tue 11:00-13:00 1Mbit/s"]);
    assert!(code == 2 && said.contains("overlap from Tue 11:00 on"), "{code}: {said}");
    assert_eq!(allowed(&pair), 10_000_000, "what is refused changes nothing");
    pair.done(Side::Near, &["link", "set", "schedule=00:00-24:00 64kbit/s"]);
    assert_eq!(allowed(&pair), 8_000);
    let (_, said) = pair.output_of(Side::Near, &["link", "show"]);
    assert!(said.contains("at most 64.0 kbit/s now"), "{said}");
    pair.qemu_io(Side::Near, "data", &["write -P 7 0 64k"]);
    pair.until("what is to be sent waits for it", |pair| link(pair, Side::Near)["rate_held"] == true);
    pair.done(Side::Near, &["link", "set", "schedule=default", "rate=unlimited"]);
    ends_equal(pair);
}

/// A daemon whose clock says this soon: its time zone is made for that.
fn serve_at(pair: &mut Pair, node: Side, (hour, minute, second): (i64, i64, i64)) {
    const DAY_S: i64 = 24 * 3600;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64;
    let west = (since - (hour * 3600 + minute * 60 + second)).rem_euclid(DAY_S);
    let west = if west > DAY_S / 2 { west - DAY_S } else { west };
    let (sign, seconds) = (if west < 0 { "-" } else { "" }, west.abs());
    let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
    command.args(["serve", "--node", node.name(), "--config"]).arg(pair.config());
    command.env("TZ", format!("TST{sign}{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60));
    pair.serve_by(node, command);
}

/// A span begins and ends while the daemon runs, by the time of its own zone, and nobody types anything.
#[test]
fn a_schedule_follows_the_clock_of_its_node() {
    let mut pair = replicating("");
    pair.done(Side::Near, &["link", "set", "schedule=12:00-12:01 64kbit/s"]);
    let is_held = |pair: &mut Pair| link(pair, Side::Near)["rate_held"] == true;
    let told = "links: what this node sends at most is";
    for (at, begins) in [((11, 59, 50), true), ((12, 0, 50), false)] {
        assert!(pair.stop(Side::Near).success());
        serve_at(&mut pair, Side::Near, at);
        pair.wait_for(Side::Near, "replicating");
        if !begins {
            pair.qemu_io(Side::Near, "data", &["write -P 9 0 512k"]);
            pair.until("the rate of the span holds it back", is_held);
        }
        let before = pair.log(Side::Near).matches(told).count();
        let allowed = if begins { "64.0 kbit/s" } else { "no limit" };
        pair.until("the data path is told", |pair| {
            pair.log(Side::Near).matches(&format!("{told} {allowed} from now on")).count() == 1
        });
        assert_eq!(pair.log(Side::Near).matches(told).count(), before + 1, "{}", pair.log(Side::Near));
        if begins {
            pair.qemu_io(Side::Near, "data", &["write -P 8 512k 64k"]);
            pair.until("it holds back what is written", is_held);
        }
    }
    ends_equal(pair);
}

#[test]
fn writes_go_before_the_sync_of_another_group_under_a_rate() {
    let mut pair = Pair::new(&PairPlan { head: OTHER, ..SMALL });
    let mut random = TestRandom::new(7);
    let noise: Vec<u8> = (0..16 << 20).map(|_| random.below(256) as u8).collect();
    fs::write(pair.path("near/other"), &noise).expect("a volume");
    fs::write(pair.path("far/other"), vec![0; noise.len()]).expect("a volume");
    pair.done(Side::Near, &["accept-device", "other", "v", "--content-is-good"]);
    pair.first_sync();
    // Half a minute of noise at the least, and a quarter of a MiB that is written meanwhile.
    pair.done(Side::Near, &["link", "set", "rate=4Mbit/s"]);
    pair.done(Side::Near, &["sync", "other", "--full"]);
    let other = |pair: &Pair| {
        let output = pair.run(Side::Near, &["status", "--json"]);
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")["groups"][1].clone()
    };
    pair.until("the other group syncs", |pair| other(pair)["sync"]["done_bytes"].as_u64() > Some(0));
    pair.qemu_io(Side::Near, "data", &["write -P 7 0 256k", "flush"]);
    pair.wait_for_rest(Side::Near);
    let left = other(&pair);
    assert_eq!(left["state"], "syncing", "{left}");
    assert!(left["sync"]["done_bytes"].as_u64() < left["sync"]["total_bytes"].as_u64(), "{left}");
    pair.done(Side::Near, &["link", "set", "rate=unlimited"]);
    pair.until("it is in step", |pair| other(pair)["state"] == "replicating" && other(pair)["queue"]["items"] == 0);
    pair.stop_both();
    pair.assert_equal(VOLUMES);
    assert!(fs::read(pair.path("far/other")).expect("it is there") == noise, "the copy is the same");
}

/// In `sync` writers wait for the moment of reconnecting, whatever the policy, and none goes on alone. A group that was never
/// synced, as `logging` as one whose hold has ended, hurries nobody.
#[test]
fn settings_change_under_sync_writers_without_a_resync() {
    let plan = PairPlan { mode: "sync", group: "policy = \"degrade\"", head: OTHER, ..SMALL };
    let mut pair = Pair::new(&plan);
    for node in Side::BOTH {
        fs::write(pair.path(node.name()).join("other"), [0; 1 << 20]).expect("a volume");
    }
    pair.first_sync();
    let resynced = pair.counter(Side::Near, "group.g.resynced_bytes");
    let words: Vec<String> = (0..100).map(|n| format!("write -f -P {} {}k 4k", n % 200 + 1, n * 4)).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let writing = pair.start_qemu_io(Side::Near, "data", &words);
    for (number, pacing) in [(2, "pacing=1Gbit/s"), (3, "pacing=default")] {
        pair.done(Side::Near, &["link", "set", pacing]);
        pair.until("they met again", |pair| link(pair, Side::Near)["connections"] == number);
        pair.wait_for(Side::Near, "replicating");
    }
    let (is_done, said) = writing.finish(&mut pair);
    assert!(is_done, "{said}");
    assert_eq!(pair.counter(Side::Near, "group.g.resynced_bytes"), resynced, "nothing was synced for it");
    assert!(!pair.log(Side::Near).contains("writes go on without the peer"), "{}", pair.log(Side::Near));
    let policy = &pair.status(Side::Near)["settings"]["policy"]["value"];
    assert_eq!(policy, "degrade");
    ends_equal(pair);
}

/// Nothing is taken any more, long before the silence is long enough: the link is congested, and says so.
#[test]
fn a_link_that_takes_nothing_is_congested() {
    // By the rate of loopback the kernel would hold all that the peer's window lets through.
    let head = "[link]\ntimeout = \"1m\"\nunsent = \"64KiB\"";
    let mut pair = Pair::new(&PairPlan { head, volume_bytes: 32 << 20, ..SMALL });
    pair.lay_relay();
    pair.first_sync();
    pair.relay().cut();
    let writing = pair.start_qemu_io(Side::Near, "data", &["write -P 4 0 16M", "write -P 5 16M 16M"]);
    pair.until("it is congested", |pair| {
        let link = link(pair, Side::Near);
        link["link"] == "congested" && link["link_reason"] == "the socket takes nothing"
    });
    pair.relay().restore();
    let (is_done, said) = writing.finish(&mut pair);
    assert!(is_done, "{said}");
    pair.until("it is connected again", |pair| link(pair, Side::Near)["link"] == "connected");
    assert_eq!(link(&pair, Side::Near)["connections"], 1, "it was never cut off");
    pair.wait_for(Side::Near, "replicating");
    ends_equal(pair);
}

#[test]
fn what_the_kernel_refuses_is_a_warning_with_the_sysctl() {
    let skipped = "what_the_kernel_refuses_is_a_warning_with_the_sysctl";
    if is_root() && must_skip(skipped, &[("setpriv (apt: util-linux)", is_installed("setpriv"))]) {
        return;
    }
    let head = "[link]\nbuffers = \"1GiB\"\ncongestion = \"no-such-thing\"";
    let mut pair = Pair::new(&PairPlan { head, ..SMALL });
    for node in Side::BOTH {
        // With this privilege the system's bounds would not hold.
        let mut command = Command::new(if is_root() { "setpriv" } else { "env" });
        if is_root() {
            command.args(["--inh-caps=-net_admin", "--bounding-set=-net_admin"]);
        }
        command.args([env!("CARGO_BIN_EXE_farshore"), "serve", "--node", node.name(), "--config"]).arg(pair.config());
        pair.serve_by(node, command);
    }
    pair.sync_fully(Side::Near);
    for node in Side::BOTH {
        let link = measured(&mut pair, node);
        for words in [
            "raise net.core.wmem_max to 1073741824",
            "raise net.core.rmem_max to 1073741824",
            "net.ipv4.tcp_available_congestion_control",
        ] {
            assert!(warns_of(&link, words), "{words}: {link}");
            assert!(pair.log(node).contains(words), "{words} is in the log");
        }
        let (code, said) = pair.output_of(node, &["link", "show"]);
        assert!(code == 1 && said.contains("net.core.wmem_max"), "{said}");
        assert!(pair.output_of(node, &["status"]).1.contains("net.core.wmem_max"));
    }
    ends_equal(pair);
}

#[test]
fn the_shortest_pause_is_used_when_both_nodes_announce_it() {
    let mut pair = replicating("[link]\nmin_rto = \"40ms\"");
    for node in Side::BOTH {
        let link = measured(&mut pair, node);
        match option(&link, "TCP_RTO_MIN_US")["granted"].as_u64() {
            Some(us) => assert!((40_000..=50_000).contains(&us), "whole ticks: {link}"),
            None => assert!(warns_of(&link, "net.ipv4.tcp_rto_min_us"), "{link}"),
        }
    }
    pair.done(Side::Far, &["link", "set", "min_rto=off"]);
    pair.until("one of them announces nothing", |pair| {
        let link = link(pair, Side::Near);
        warns_of(&link, "the other node does not announce it") && warns_of(&link, "need Linux 6.15")
    });
    pair.wait_for(Side::Near, "replicating");
    ends_equal(pair);
}

/// The rows of the last day.
fn history(pair: &Pair, node: Side) -> Vec<Value> {
    let text = pair.done(node, &["link", "history", "--every", "24h", "--json"]);
    let history: Value = serde_json::from_str(&text).expect("JSON");
    schema::seen(&history);
    history["rows"].as_array().expect("a list").clone()
}

fn sent_bytes(rows: &[Value]) -> u64 {
    rows.iter().map(|row| row["now"]["sent_bytes"].as_u64().expect("a number")).sum()
}

#[test]
fn a_history_outlives_a_restart_and_its_damage_is_named() {
    let mut pair = replicating("");
    pair.qemu_io(Side::Near, "data", &["write -P 1 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.until("the unfinished minute shows it", |pair| sent_bytes(&history(pair, Side::Near)) >= 1 << 20);
    pair.stop_both();
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.wait_for(Side::Near, "replicating");
    assert!(sent_bytes(&history(&pair, Side::Near)) >= 1 << 20, "it was written at the stop");
    let table = pair.done(Side::Near, &["link", "history", "far", "--since", "2h", "--against", "24h"]);
    assert!(table.contains("ROUND TRIP") && table.contains("OUT BEFORE"), "{table}");
    let (code, said) = pair.output_of(Side::Near, &["link", "history", "elsewhere"]);
    assert!(code == 2 && said.contains("its peers are far"), "{said}");

    let file = pair.path("near").join("state/links/far.history");
    assert!(pair.stop(Side::Near).success());
    let mut bytes = fs::read(&file).expect("the history is there");
    bytes[4096 + 24] ^= 1;
    fs::write(&file, &bytes).expect("damaged");
    pair.serve(Side::Near);
    assert!(pair.log(Side::Near).contains("has 1 damaged records"), "{}", pair.log(Side::Near));
    let (code, said) = pair.output_of(Side::Near, &["link", "history"]);
    assert!(code == 1 && said.contains("damaged records"), "{said}");

    assert!(pair.stop(Side::Near).success());
    fs::write(&file, "no history at all").expect("damaged");
    pair.serve(Side::Near);
    assert!(pair.log(Side::Near).contains("far.history.damaged and a new one begins"), "{}", pair.log(Side::Near));
    assert!(file.with_extension("history.damaged").is_file());
    pair.wait_for(Side::Near, "replicating");
    ends_equal(pair);
}

/// A cut is found by both nodes, whichever ways it leaves open, and each says since when and why.
#[test]
fn a_cut_of_either_way_is_found_by_both_nodes() {
    let head = "[link]\ntimeout = \"1s\"";
    let mut pair = Pair::new(&PairPlan { head, ..SMALL });
    pair.lay_relay();
    pair.first_sync();
    for ways in [&[RelayDirection::Out, RelayDirection::Back][..], &[RelayDirection::Out], &[RelayDirection::Back]] {
        ways.iter().for_each(|way| pair.relay().cut_one_way(*way));
        for node in Side::BOTH {
            pair.until(&format!("{} finds that {ways:?} is cut", node.name()), |pair| {
                let link = link(pair, node);
                link["link"] == "disconnected" && link["link_reason"].is_string() && link["tcp"].is_null()
            });
            let text = pair.output_of(node, &["status"]).1;
            assert!(text.contains(&format!("link {}: disconnected for", node.other().name())), "{text}");
        }
        pair.relay().restore();
        pair.wait_for(Side::Near, "replicating");
        assert!(link(&pair, Side::Near)["link_reason"].is_null());
    }
    assert!(pair.log(Side::Near).contains("heard"), "silence is the reason:\n{}", pair.log(Side::Near));
    ends_equal(pair);
}

/// From some moment on, packets of more than 1 400 bytes vanish without a word.
#[test]
fn a_path_that_swallows_large_packets_is_survived() {
    let test = "a_path_that_swallows_large_packets_is_survived";
    let name = format!("hole-{}", std::process::id());
    let Some(wan) = WanGuard::start(test, &["--rtt", "10ms", "--rate", "200mbit", "--name", &name]) else { return };
    let mut pair = wan.pair(&PairPlan { head: "[link]\ntimeout = \"1s\"", ..SMALL });
    wan.serve(&mut pair);
    pair.sync_fully(Side::Near);
    wan.control(&["drop-above", "1400"]);
    pair.qemu_io(Side::Near, "data", &["write -P 7 0 1M"]);
    pair.until("small segments are used, by the node that dials", |pair| {
        warns_of(&link(pair, Side::Far), "swallows large packets")
    });
    pair.wait_for(Side::Near, "replicating");
    let near = measured(&mut pair, Side::Near);
    assert!(near["tcp"]["segment_bytes"].as_u64() <= Some(1200), "it binds both directions: {near}");
    pair.qemu_io(Side::Near, "data", &["write -P 8 1M 1M", "flush"]);
    assert!(warns_of(&link(&pair, Side::Far), "net.ipv4.tcp_mtu_probing"));
    ends_equal(pair);
}

/// The same cuts where packets are lost and connections are half open, as a cable leaves them.
#[test]
fn half_open_connections_are_found_by_both_nodes() {
    let name = format!("half-{}", std::process::id());
    let options = ["--rtt", "10ms", "--rate", "200mbit", "--name", &name];
    let Some(wan) = WanGuard::start("half_open_connections_are_found_by_both_nodes", &options) else { return };
    let mut pair = wan.pair(&PairPlan { head: "[link]\ntimeout = \"1s\"", ..SMALL });
    wan.serve(&mut pair);
    pair.sync_fully(Side::Near);
    for way in ["ab", "ba"] {
        wan.control(&["cut", way]);
        for node in Side::BOTH {
            pair.until(&format!("{} finds that {way} is cut", node.name()), |pair| {
                link(pair, node)["link"] == "disconnected"
            });
        }
        wan.control(&["restore"]);
        pair.wait_for(Side::Near, "replicating");
    }
    ends_equal(pair);
}

/// Somebody changes a setting, and from then on packets are lost: the two may have to do with each other.
#[test]
fn retransmissions_that_rise_after_a_change_are_a_warning() {
    let name = format!("rise-{}", std::process::id());
    let options = ["--rtt", "10ms", "--rate", "200mbit", "--name", &name];
    let Some(wan) = WanGuard::start("retransmissions_that_rise_after_a_change_are_a_warning", &options) else { return };
    let plan = PairPlan {
        volumes: VOLUMES,
        volume_bytes: 16 << 20,
        head: "[link]\npacing = \"100Mbit/s\"",
        ..PairPlan::DEFAULT
    };
    let mut pair = wan.pair(&plan);
    wan.serve(&mut pair);
    pair.sync_fully(Side::Near);
    pair.qemu_io(Side::Near, "data", &["write -P 1 0 4M"]);
    pair.until("the time before the change was seen", |pair| {
        link(pair, Side::Near)["tcp"]["sent_bytes"].as_u64() >= Some(4 << 20)
    });
    wan.control(&["loss", "3"]);
    pair.done(Side::Near, &["link", "set", "unsent=64KiB"]);
    pair.qemu_io(Side::Near, "data", &["write -P 2 4M 8M"]);
    pair.until("it is told, with the way back", |pair| {
        let link = link(pair, Side::Near);
        warns_of(&link, "retransmissions rose from") && warns_of(&link, "farshore link set KEY=default")
    });
    wan.control(&["loss", "0"]);
    pair.wait_for(Side::Near, "replicating");
    ends_equal(pair);
}

/// A fixed receive buffer bounds the rate by the round trip, and the verdict says so.
#[test]
fn a_small_window_on_a_long_line_is_named() {
    let name = format!("window-{}", std::process::id());
    let test = "a_small_window_on_a_long_line_is_named";
    let Some(wan) = WanGuard::start(test, &["--rtt", "100ms", "--rate", "100mbit", "--name", &name]) else { return };
    let plan =
        PairPlan { volumes: VOLUMES, volume_bytes: 64 << 20, head: "[link]\nbuffers = \"32KiB\"", ..PairPlan::DEFAULT };
    let mut pair = wan.pair(&plan);
    wan.serve(&mut pair);
    pair.until("the nodes have met", |pair| pair.output_of(Side::Near, &["sync", GROUP, "--full"]).0 == 0);
    let writing = pair.start_qemu_io(Side::Near, "data", &["write -P 3 0 32M", "flush"]);
    let mut seen = Value::Null;
    pair.until("what limits it is named", |pair| {
        seen = link(pair, Side::Near);
        seen["limit"] == "receiver-window" || seen["limit"] == "send-buffer"
    });
    assert!(seen["tcp"]["rtt_ms"].as_f64() >= Some(100.0), "{seen}");
    let verdict = seen["verdict"].as_str().expect("a sentence");
    assert!(verdict.contains("net.ipv4.tcp_") && verdict.contains("buffers"), "{verdict}");
    drop(writing);
}

// proves: P9
#[test]
fn a_line_that_flips_bits_ends_links_and_changes_nothing() {
    let test = "a_line_that_flips_bits_ends_links_and_changes_nothing";
    let name = format!("flips-{}", std::process::id());
    let Some(wan) = WanGuard::start(test, &["--rtt", "10ms", "--name", &name]) else { return };
    let mut pair = wan.pair(&PairPlan { volume_bytes: 8 << 20, ..SMALL });
    wan.serve(&mut pair);
    pair.sync_fully(Side::Near);
    // TCP's own sum does not notice: only TLS does.
    wan.control(&["corrupt", "2%"]);
    pair.qemu_io(Side::Near, "data", &["write -P 7 0 8M", "flush"]);
    pair.until("a changed byte ended the link", |pair| link(pair, Side::Near)["connections"].as_u64() > Some(1));
    let logs = Side::BOTH.map(|node| pair.log(node)).concat();
    assert!(logs.contains("does not decrypt"), "{logs}");
    wan.control(&["corrupt", "0"]);
    pair.wait_for(Side::Near, "replicating");
    ends_equal(pair);
}
