//! Whole daemons that know each other by certificates: replication, renewal without a resync, warnings, unauthenticated peers.

use std::cell::RefCell;
use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use crate::common::{Background, DEADLINE, GROUP, Pair, PairPlan, Side, address, must_skip, schema};
use farshore::certs::{CertificateHolder, Registry, Validity};
use host::tls::MemberIdentity;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal};

const DAY: Duration = Duration::from_secs(24 * 3600);
const VOLUMES: &[&str] = &["data"];
const PLAN: PairPlan =
    PairPlan { volumes: VOLUMES, volume_bytes: 8 << 20, head: "[tls]\ndirectory = \"tls\"\n", ..PairPlan::DEFAULT };

/// Runs `farshore cert`, which must end so; what it said.
#[track_caller]
fn cert(pair: &Pair, words: &[&str], code: i32) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
    command.arg("cert").args(words).arg("--config").arg(pair.config());
    let output = command.stdin(Stdio::null()).output().expect("the binary runs");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    said
}

/// A pair whose certificates were made by the commands an operator uses; nobody is served yet.
fn certified(plan: &PairPlan) -> Pair {
    let pair = Pair::new(plan);
    certify(&pair);
    pair
}

fn certify(pair: &Pair) {
    // Nothing of a secret is needed.
    fs::remove_file(pair.path("secret")).expect("it was there");
    pair.edit_config(&format!("secret_file = \"{}\"\n", pair.path("secret").display()), "");
    cert(pair, &["init"], 0);
    for node in Side::BOTH {
        cert(pair, &["node", node.name()], 0);
    }
}

fn holder(name: &str) -> CertificateHolder {
    CertificateHolder { identity: MemberIdentity::node("test", name), hosts: vec![name.to_owned()] }
}

/// Makes a node's certificate anew, valid within these days from now (to noon of the last one, so to say).
fn issue(pair: &Pair, node: Side, begin: i32, end: i32) {
    let at = |days: i32| match days {
        0.. => SystemTime::now() + DAY * days.unsigned_abs(),
        _ => SystemTime::now() - DAY * days.unsigned_abs(),
    };
    let validity = Validity { begin: at(begin), end: at(end) - DAY / 2 };
    Registry::new(&pair.path("tls")).issue(&holder(node.name()), validity, true).expect("issued");
}

fn fingerprint(pair: &Pair, node: Side) -> String {
    whole_status(pair, node)["tls"]["fingerprint"].as_str().expect("a fingerprint").to_owned()
}

fn whole_status(pair: &Pair, node: Side) -> serde_json::Value {
    serde_json::from_slice(&pair.run(node, &["status", "--json"]).stdout).expect("status is JSON")
}

fn connections(pair: &Pair, node: Side) -> usize {
    pair.log(node).matches("is connected (").count()
}

/// Somebody who writes for some seconds, all the time.
fn write_steadily(pair: &Pair) -> Background {
    let mut command = Command::new("fio");
    command.args(["--name=job", "--ioengine=nbd", "--rw=randwrite", "--bs=4k", "--iodepth=4", "--offset=4M"]);
    command.args(["--size=4M", "--rate=1m", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"]);
    command.arg(format!("--uri={}", pair.uri(Side::Near, "data"))).current_dir(pair.path("near"));
    Background::start(command)
}

/// Renews certificates while a group replicates: the link comes up anew, nothing is synced again, nobody is refused.
fn renewed_without_a_resync(mode: &str, renewed: &[Side]) {
    let mut pair = certified(&PairPlan { mode, ..PLAN });
    pair.first_sync();
    pair.wait_for(Side::Near, "replicating");
    assert!(pair.log(Side::Near).contains("TLS 1.3"), "{}", pair.log(Side::Near));
    pair.qemu_io(Side::Near, "data", &["write -P 1 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    let synced = pair.counter(Side::Near, "group.g.resynced_bytes");
    for (number, node) in renewed.iter().enumerate() {
        let (before, up) = (fingerprint(&pair, *node), connections(&pair, Side::Near));
        let done = pair.counter(Side::Near, "nbd.write.done");
        let writer = write_steadily(&pair);
        pair.until("somebody writes", |pair| pair.counter(Side::Near, "nbd.write.done") > done);
        cert(&pair, &["rotate", node.name()], 0);
        pair.until("the link came up with the new certificate", |pair| {
            fingerprint(pair, *node) != before && connections(pair, Side::Near) > up
        });
        let (is_done, said) = writer.finish(&mut pair);
        assert!(is_done, "{said}\n{}", pair.log(Side::Near));
        pair.qemu_io(Side::Near, "data", &[&format!("write -P {} 1M 1M", number + 2), "flush"]);
        pair.wait_for(Side::Near, "replicating");
        pair.wait_for_rest(Side::Near);
    }
    assert_eq!(pair.counter(Side::Near, "group.g.resynced_bytes"), synced, "nothing was synced again");
    assert!(!pair.log(Side::Near).contains("-> logging"), "{}", pair.log(Side::Near));
    let policy = &pair.status(Side::Near)["settings"]["policy"];
    assert_eq!((policy["value"].as_str(), policy["origin"].as_str()), (Some("degrade"), Some("config")));
    pair.stop_both();
    pair.assert_equal(VOLUMES);
}

#[test]
fn certificates_of_both_nodes_are_renewed_while_async_goes_on() {
    renewed_without_a_resync("async", &[Side::Near, Side::Far]);
}

#[test]
fn a_primary_renews_while_sync_goes_on() {
    renewed_without_a_resync("sync", &[Side::Near]);
}

#[test]
fn a_secondary_of_sync_shows_its_new_certificate_when_the_link_next_connects() {
    let mut pair = certified(&PairPlan { mode: "sync", ..PLAN });
    pair.first_sync();
    pair.wait_for(Side::Near, "replicating");
    let synced = pair.counter(Side::Near, "group.g.resynced_bytes");
    let before = fingerprint(&pair, Side::Far);
    cert(&pair, &["rotate", "far"], 0);
    pair.until("it says why the link stays", |pair| pair.log(Side::Far).contains("when they next connect"));
    assert_ne!(fingerprint(&pair, Side::Far), before);
    assert_eq!((connections(&pair, Side::Near), pair.status(Side::Near)["state"].as_str()), (1, Some("replicating")));
    cert(&pair, &["rotate", "near"], 0);
    pair.until("the link came up anew", |pair| connections(pair, Side::Near) == 2);
    pair.wait_for(Side::Near, "replicating");
    assert_eq!(pair.counter(Side::Near, "group.g.resynced_bytes"), synced);
    pair.stop_both();
}

#[test]
fn the_authority_is_renewed_in_steps_and_the_link_lives_through_all_of_them() {
    let mut pair = certified(&PLAN);
    pair.first_sync();
    let synced = pair.counter(Side::Near, "group.g.resynced_bytes");
    let until_connected = |pair: &mut Pair, times: usize| {
        pair.until(&format!("{times} connections"), |pair| {
            connections(pair, Side::Near) >= times && pair.status(Side::Near)["state"] == "replicating"
        });
    };
    // Both take up the new ca.crt, then new certificates, then trust the new authority alone.
    cert(&pair, &["rotate", "--ca"], 0);
    until_connected(&mut pair, 2);
    cert(&pair, &["rotate", "near", "far"], 0);
    until_connected(&mut pair, 3);
    let bundle = fs::read_to_string(pair.path("tls/ca.crt")).expect("it is there");
    let end = bundle.find("-----END").expect("a certificate") + "-----END CERTIFICATE-----\n".len();
    assert!(bundle.len() > end + 100, "two certificates");
    fs::write(pair.path("tls/ca.crt"), &bundle[..end]).expect("written");
    until_connected(&mut pair, 4);
    assert_eq!(pair.counter(Side::Near, "group.g.resynced_bytes"), synced);
    pair.stop_both();
}

#[test]
fn new_files_that_do_not_belong_together_change_nothing_and_are_reported() {
    let mut pair = certified(&PLAN);
    pair.first_sync();
    let (key, before) = (pair.path("tls/nodes/near.key"), fingerprint(&pair, Side::Near));
    let aside = pair.path("aside");
    fs::rename(&key, &aside).expect("moved");
    fs::copy(pair.path("tls/nodes/far.key"), &key).expect("copied");
    let warnings = |pair: &Pair| whole_status(pair, Side::Near)["warnings"].to_string();
    pair.until("status tells", |pair| warnings(pair).contains("those of before stay in use"));
    assert!(warnings(&pair).contains("is not the key of"), "{}", warnings(&pair));
    assert_eq!((fingerprint(&pair, Side::Near), connections(&pair, Side::Near)), (before, 1));
    fs::rename(&aside, &key).expect("moved back");
    pair.until("it is well again", |pair| warnings(pair) == "[]");
    // Again, now that the daemon has seen the very file that is put back.
    fs::rename(&key, &aside).expect("moved");
    pair.until("status tells", |pair| warnings(pair).contains("those of before stay in use"));
    fs::rename(&aside, &key).expect("moved back");
    pair.until("it is well again", |pair| warnings(pair) == "[]");
    pair.stop_both();
}

#[test]
fn ends_of_certificates_are_reported_everywhere_and_an_expired_one_is_refused() {
    let mut pair = certified(&PLAN);
    issue(&pair, Side::Far, -40, 20);
    let mut check = Command::new(env!("CARGO_BIN_EXE_farshore"));
    let checked = check.args(["config", "check", "--node", "far"]).arg(pair.config()).output().expect("it runs");
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.code() == Some(1) && said.contains("expires in 19 days"), "{said}");
    assert!(cert(&pair, &["show"], 1).contains("renew it with 'farshore cert rotate far'"));
    pair.first_sync();
    assert!(whole_status(&pair, Side::Far)["warnings"][0].as_str().expect("a warning").contains("expires in 19 days"));
    assert!(pair.log(Side::Near).contains("the certificate of node far expires in 19 days"));
    assert!(whole_status(&pair, Side::Near)["warnings"].as_array().expect("a list").is_empty());

    // It starts with an expired one, since it may have volumes to serve; its peer does not let it in.
    assert!(pair.stop(Side::Far).success());
    for (begin, end, near, far) in [
        (-40, -1, "its certificate expired on", "expired on"),
        (1, 40, "its certificate is not valid before", "is not valid before"),
    ] {
        issue(&pair, Side::Far, begin, end);
        pair.serve(Side::Far);
        pair.until("both logs say why", |pair| {
            pair.log(Side::Near).contains(near)
                && pair.log(Side::Far).contains(far)
                && pair.log(Side::Far).contains("this node's certificate has expired, or is not valid yet")
        });
        let line = pair.log(Side::Near).lines().find(|line| line.contains(near)).expect("a line").to_owned();
        assert!(line.contains("127."), "it names the address: {line}");
        let reason = pair.status(Side::Far)["peers"][0]["link_reason"].to_string();
        assert!(reason.contains("refused this node"), "{reason}");
        assert!(pair.stop(Side::Far).success());
    }
    // Renewed, it comes back and goes on.
    cert(&pair, &["rotate", "far"], 0);
    pair.serve(Side::Far);
    pair.wait_for(Side::Near, "replicating");
    pair.stop_both();
}

#[test]
fn a_node_with_another_authority_stays_outside() {
    let mut pair = certified(&PLAN);
    pair.serve(Side::Near);
    let other = pair.path("other");
    let registry = Registry::new(&other);
    registry.make_authority("test", Validity::days(10)).expect("made");
    registry.issue(&holder("far"), Validity::days(10), false).expect("made");
    let config = fs::read_to_string(pair.config()).expect("text").replace("\"tls\"", "\"other\"");
    fs::write(pair.path("farther.toml"), config).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
    command.args(["serve", "--node", "far", "--config"]).arg(pair.path("farther.toml"));
    pair.serve_by(Side::Far, command);
    pair.until("both logs say why", |pair| {
        pair.log(Side::Far).contains("compare the ca.crt of both sides")
            && pair.log(Side::Near).contains("compare the ca.crt of both sides")
    });
    assert_ne!(pair.status(Side::Near)["peers"][0]["link"], "connected");
    pair.stop_both();
}

// proves: P10
#[test]
fn the_port_of_a_link_answers_unauthenticated_peers_with_nothing_but_an_alert() {
    let mut pair = certified(&PLAN);
    pair.serve(Side::Near);
    for words in [&b"GET / HTTP/1.1\r\nHost: near\r\n\r\n"[..], b"FSHA\x01\0\0\0\x80\0\0\0", b"\x16\x03\x01"] {
        let mut stream = TcpStream::connect(address(&pair, Side::Near)).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        std::io::Write::write_all(&mut stream, words).expect("it reads");
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert!(said.len() < 16, "{said:?}");
    }
    pair.until("the log names them", |pair| {
        let log = pair.log(Side::Near);
        log.contains("peer at 127.")
            && log.contains("does not speak TLS here")
            && log.contains("did not prove who it is")
    });
    assert!(pair.stop(Side::Near).success());
}

/// Where clients' certificates lie.
fn client(pair: &Pair, name: &str) -> PathBuf {
    cert(pair, &["client", name], 0);
    pair.path("tls/clients").join(name)
}

#[test]
fn clients_of_a_served_volume_encrypt_by_certificates_made_here() {
    let mut pair = certified(&PLAN);
    let nbd: SocketAddr = address(&pair, Side::Near).parse().expect("an address");
    let near = format!("[nodes.near]\naddress = \"{nbd}\"\n");
    let port = nbd.port() + 1000;
    pair.edit_config(&near, &format!("{near}nbd = [\"tcp:{}:{port}\"]\n", nbd.ip()));
    pair.first_sync();
    let own = client(&pair, "backup");
    let uri = format!("nbds://{}:{port}/{GROUP}/data?tls-certificates={}", nbd.ip(), own.display());
    let mut command = Command::new("/usr/bin/nbdinfo");
    let output = command.args(["--json", &uri]).output().expect("nbdinfo is there");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.contains("\"TLS\": true"), "{said}\n{}", pair.log(Side::Near));
    assert!(pair.log(Side::Near).contains("CN=backup"), "{}", pair.log(Side::Near));
    assert!(cert(&pair, &["show"], 0).contains("client backup of cluster test"));
    schema::seen(&serde_json::from_str(&cert(&pair, &["show", "--json"], 0)).expect("JSON"));
    assert!(cert(&pair, &["client", "backup"], 2).contains("left as it is"));
    cert(&pair, &["rotate", "--client", "backup"], 0);
    pair.stop_both();
}

/// A pair whose first node serves NBD over TCP there as well; `tls` stands in the table `[tls]`.
fn served_over_tcp(tls: &str) -> (Pair, SocketAddr) {
    plan_over_tcp(&PLAN, tls)
}

fn plan_over_tcp(plan: &PairPlan, tls: &str) -> (Pair, SocketAddr) {
    let pair = certified(plan);
    pair.edit_config("directory = \"tls\"\n", &format!("directory = \"tls\"\n{tls}"));
    let address: SocketAddr = address(&pair, Side::Near).parse().expect("an address");
    let nbd = SocketAddr::new(address.ip(), address.port() + 1000);
    let near = format!("[nodes.near]\naddress = \"{address}\"\n");
    pair.edit_config(&near, &format!("{near}nbd = [\"tcp:{nbd}\"]\n"));
    (pair, nbd)
}

/// A program at the exported volume with these certificates; whether it ended well, and what it said.
fn with_certificate(program: &str, words: &[&str], nbd: SocketAddr, own: &Path) -> (bool, String) {
    let uri = format!("nbds://{nbd}/{GROUP}/data?tls-certificates={}", own.display());
    let output = Command::new(program).args(words).arg(uri).output().expect("libnbd is there");
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn a_table_of_clients_says_who_may_use_what() {
    let volumes = &["data", "log"];
    let (mut pair, nbd) =
        plan_over_tcp(&PairPlan { volumes, ..PLAN }, "clients = { backup = [\"g/data:ro\"], logs = [\"g/log\"] }\n");
    pair.first_sync();
    assert!(!with_certificate("/usr/bin/nbdinfo", &[], nbd, &client(&pair, "logs")).0);
    let words = "the table 'clients' of the configuration grants nothing of g/data to its certificate";
    pair.until("the log tells why", |pair| pair.log(Side::Near).contains(words));
    let (backup, other) = (client(&pair, "backup"), client(&pair, "other"));
    let (is_in, said) = with_certificate("/usr/bin/nbdinfo", &["--json"], nbd, &backup);
    assert!(is_in && said.contains("\"is_read_only\": true"), "{said}");
    assert!(!with_certificate("/usr/bin/nbdinfo", &["--json"], nbd, &other).0);
    let words = "(CN=other, O=farshore test; farshore://test/client/other) is that of nobody in the table 'clients'";
    let words =
        [words, "O=farshore test, CN=other; farshore://test/client/other) is that of nobody in the table 'clients'"];
    pair.until("the log tells why", |pair| words.iter().any(|words| pair.log(Side::Near).contains(words)));
    pair.stop_both();
}

// proves: P10
/// Revoked while it is inside: cut off within seconds, and kept out; everybody else and the link go on.
#[test]
fn a_revoked_client_is_cut_off_and_a_revoked_peer_too() {
    let (mut pair, nbd) = served_over_tcp("");
    pair.first_sync();
    let (stolen, backup) = (client(&pair, "stolen"), client(&pair, "backup"));
    let uri = |own: &Path| format!("nbds://{nbd}/{GROUP}/data?tls-certificates={}", own.display());
    let mut command = Command::new("/usr/bin/nbdsh");
    let script = "import time\nwhile True:\n    h.pwrite(b'x' * 512, 0)\n    time.sleep(0.01)\n";
    let enter = format!("h.set_uri_allow_local_file(True)\nh.connect_uri('{}')", uri(&stolen));
    command.args(["-c", &enter, "-c", script]).current_dir(pair.path("near"));
    // It is a Python program that needs the system's interpreter, whatever stands first on the path.
    command.env("PATH", format!("/usr/bin:{}", std::env::var("PATH").unwrap_or_default()));
    let writer = Background::start(command);
    pair.until("it writes", |pair| pair.counter(Side::Near, "nbd.write.done") > 3);
    assert!(cert(&pair, &["revoke", "--client", "stolen"], 0).contains("copy"));
    assert!(cert(&pair, &["revoke", "--client", "stolen"], 0).contains("names them already"));
    let (went_on, _) = writer.finish(&mut pair);
    assert!(!went_on && pair.log(Side::Near).contains("believed no more"), "{}", pair.log(Side::Near));
    assert!(!with_certificate("/usr/bin/nbdinfo", &[], nbd, &stolen).0);
    assert!(with_certificate("/usr/bin/nbdinfo", &[], nbd, &backup).0);
    assert_eq!((connections(&pair, Side::Near), pair.status(Side::Near)["state"].as_str()), (1, Some("replicating")));

    // The key lies open: told while it runs.
    let key = pair.path("tls/nodes/near.key");
    let set = |mode| fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(mode)).expect("chmod");
    let warnings = |pair: &Pair| whole_status(pair, Side::Near)["warnings"].to_string();
    set(0o644);
    pair.until("status tells", |pair| warnings(pair).contains("has mode 0644, so others can use it"));
    set(0o600);
    pair.until("it is well again", |pair| warnings(pair) == "[]");

    cert(&pair, &["revoke", "far"], 0);
    pair.until("the link ends", |pair| pair.log(Side::Near).contains("the peer is believed no more"));
    pair.until("it stays outside", |pair| pair.log(Side::Near).contains("its certificate was revoked"));
    cert(&pair, &["rotate", "far"], 0);
    pair.until("with another it comes back", |pair| pair.status(Side::Near)["state"] == "replicating");
    pair.stop_both();
}

/// A free port of the loopback device's IPv6 address; `None`: it has none.
fn free_port_ipv6() -> Option<u16> {
    let listener = TcpListener::bind("[::1]:0").ok()?;
    listener.local_addr().ok().map(|address| address.port())
}

#[test]
fn nodes_and_clients_meet_over_ipv6() {
    let ports: Vec<u16> = (0..3).filter_map(|_| free_port_ipv6()).collect();
    let &[near, far, nbd] = &ports[..] else {
        assert!(must_skip("nodes_and_clients_meet_over_ipv6", &[("IPv6 on loopback", false)]));
        return;
    };
    let mut pair = Pair::new(&PLAN);
    let new = |port| format!("[::1]:{port}");
    pair.edit_config(&address(&pair, Side::Far), &new(far));
    let old = format!("address = \"{}\"\n", address(&pair, Side::Near));
    pair.edit_config(&old, &format!("address = \"{}\"\nnbd = [\"tcp:{}\"]\n", new(near), new(nbd)));
    certify(&pair);
    pair.first_sync();
    let own = client(&pair, "backup");
    let uri = format!("nbds://[::1]:{nbd}/{GROUP}/data?tls-certificates={}", own.display());
    let mut command = Command::new("/usr/bin/nbdinfo");
    let output = command.args(["--json", &uri]).output().expect("nbdinfo is there");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.contains("\"TLS\": true"), "{said}\n{}", pair.log(Side::Near));
    let link = &whole_status(&pair, Side::Near)["links"][0];
    assert!(link["address"].as_str().is_some_and(|address| address.starts_with("[::1]:")), "{link}");
    assert!(pair.log(Side::Near).contains("[::1]:"), "{}", pair.log(Side::Near));
    pair.stop_both();
    pair.assert_equal(VOLUMES);
}

/// A core dump would hold the keys, and lie about for anybody.
#[test]
fn a_program_with_keys_that_is_killed_leaves_no_core() {
    let location = tempfile::tempdir().expect("a directory");
    let mut plain = may_dump("kill -QUIT $$", location.path());
    let dumps = [("core dumps", plain.wait().expect("ended").core_dumped())];
    if must_skip("a_program_with_keys_that_is_killed_leaves_no_core", &dumps) {
        return;
    }
    let pair = Pair::new(&PairPlan::default());
    let (config, pipe) = (pair.config(), location.path().join("pipe"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a socket can");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a pipe");
    let asked = format!("link test {} --node near", listener.local_addr().expect("its address"));
    // Each until it holds its keys; `cert` has none yet, and waits for its configuration.
    let answers = || pair.output_of(Side::Near, &["status"]).0 < 2;
    let listens =
        || fs::read_to_string(location.path().join("said")).is_ok_and(|said| said.contains("serving line tests"));
    // What they wait for stays open until they are killed, or the end of it would be theirs before.
    let held = RefCell::new(Vec::new());
    let hold = |end: Option<OwnedFd>| {
        let is_there = end.is_some();
        held.borrow_mut().extend(end);
        is_there
    };
    let connects = || hold(listener.accept().ok().map(|(stream, _)| stream.into()));
    let reads = || hold(rustix::fs::open(&pipe, OFlags::WRONLY | OFlags::NONBLOCK, rustix::fs::Mode::empty()).ok());
    let programs: [(&str, &Path, &dyn Fn() -> bool); 4] = [
        ("serve --node near", &config, &answers),
        ("link serve --listen 127.0.0.1:0 --node near", &config, &listens),
        (&asked, &config, &connects),
        ("cert show", &pipe, &reads),
    ];
    let leaves_core = |(words, config, is_ready): &(&str, &Path, &dyn Fn() -> bool)| {
        let binary = env!("CARGO_BIN_EXE_farshore");
        let mut child =
            may_dump(&format!("exec {binary} {words} --config {} > said", config.display()), location.path());
        let started = Instant::now();
        while !is_ready() {
            assert!(started.elapsed() < DEADLINE, "it did not start: {words}");
            std::thread::sleep(Duration::from_millis(20));
        }
        rustix::process::kill_process(Pid::from_child(&child), Signal::QUIT).expect("our own child");
        let status = child.wait().expect("ended");
        assert_eq!(status.signal(), Some(Signal::QUIT.as_raw()), "{words}: {status}");
        status.core_dumped().then(|| (*words).to_owned())
    };
    let left: Vec<String> = programs.iter().filter_map(leaves_core).collect();
    assert!(left.is_empty(), "these left a core: {left:?}");
}

/// A shell's command whose core may be as large as it wants.
fn may_dump(command: &str, location: &Path) -> Child {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -c unlimited && {command}")]).current_dir(location).stderr(Stdio::null());
    shell.spawn().expect("a shell")
}
