//! What Prometheus reads of a pair: pages that its own tools accept, alarms that fire, and who may not read.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use farshore::api::{DaemonCounters, LatencyClasses, NodeView};
use farshore::certs::{CertificateHolder, Registry, Validity};
use farshore::metrics::server::{MetricsEndpoint, serve};
use farshore::metrics::{self, PageFacts, PageForm};
use host::nbd::{Address, Ask, NbdClient};
use host::tls::{Clients, CredentialStore, Credentials, MemberIdentity, Paths};
use settings::ListenAddress;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::common::{Background, DEADLINE, GROUP, Pair, PairPlan, Side, is_installed, must_skip};

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

/// What comes back for these bytes, until the other end closes.
fn exchange(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).expect("it is read");
    let mut answer = Vec::new();
    // It may be closed under bytes that nobody wanted.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).expect("text")
}

fn get(address: SocketAddr, path: &str) -> String {
    let stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    exchange(stream, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
}

/// An address of this process alone that is free at this moment.
fn free_address(pair: &Pair) -> SocketAddr {
    let ip = pair.address(Side::Near).ip();
    TcpListener::bind((ip, 0)).and_then(|listener| listener.local_addr()).expect("a free port")
}

/// Has a node serve metrics there; before it is served.
fn tell_metrics(pair: &Pair, node: Side, listen: &str) {
    let head = format!("[nodes.{}]\n", node.name());
    pair.edit_config(&head, &format!("{head}metrics = \"{listen}\"\n"));
}

fn promtool(arguments: &[&str], input: &str) -> String {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool is there");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("promtool reads");
    let output = child.wait_with_output().expect("its output");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
    said
}

fn must_skip_promtool(test: &str) -> bool {
    must_skip(test, &[("promtool (apt: prometheus)", is_installed("promtool"))])
}

async fn write_a_page(pair: &Pair) {
    let address = Address::Unix(pair.path("near/state/nbd.sock"));
    let mut client = NbdClient::connect(&address, &format!("{GROUP}/data")).await.expect("an export");
    let ask = Ask::Write { offset: 0, data: &[7; 4096], fua: false };
    client.call(ask).await.expect("served").expect("written");
    client.disconnect().await.expect("a connection");
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

// --- The page and the manuals ---

/// docs/book/metrics.md has the program's table. `BLESS=1` writes it anew.
#[test]
fn the_page_of_metrics_has_the_programs_table() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/metrics.md");
    let page = fs::read_to_string(&file).expect("docs/book/metrics.md");
    let from = page.find("| Metric |").expect("a table of metrics");
    let to = from + page[from..].find("\n\n").map_or(page.len() - from, |end| end + 1);
    let table = metrics::manual();
    if std::env::var_os("BLESS").is_some() {
        fs::write(file, format!("{}{table}{}", &page[..from], &page[to..])).expect("written");
    } else {
        assert!(
            page[from..to] == table,
            "docs/book/metrics.md differs: run BLESS=1 cargo nextest run -p farshore metrics"
        );
    }
}

/// Names of metrics as they stand in the first column of the table.
fn known_names() -> BTreeSet<String> {
    let table = metrics::manual();
    table.lines().skip(2).map(|line| line.split('`').nth(1).expect("a name").to_owned()).collect()
}

/// What begins with `farshore_` in a text, and is therefore taken for a metric.
fn named_in(text: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_word(c)).filter(|word| word.starts_with("farshore_"));
    words.map(|word| word.trim_end_matches("_bucket").to_owned()).collect()
}

#[test]
fn rules_and_dashboard_ask_for_what_there_is() {
    for name in ["prometheus/farshore.rules.yml", "prometheus/farshore.rules.test.yml", "grafana/farshore.json"] {
        let text = fs::read_to_string(packaging(name)).expect(name);
        let named = named_in(&text);
        let unknown: Vec<_> = named.difference(&known_names()).cloned().collect();
        assert!(named.len() > 10 && unknown.is_empty(), "{name}: {unknown:?}");
    }
    let dashboard = fs::read_to_string(packaging("grafana/farshore.json")).expect("the dashboard");
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<u64> = panels.iter().filter_map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has a number of its own");
    // Each alarm is tested, and explained.
    let rules = fs::read_to_string(packaging("prometheus/farshore.rules.yml")).expect("rules");
    let tests = fs::read_to_string(packaging("prometheus/farshore.rules.test.yml")).expect("tests");
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/operate/monitoring.md");
    let manual = fs::read_to_string(manual).expect("the manual");
    let alarms: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alarms.len() > 10);
    for alarm in alarms {
        assert!(tests.contains(&format!("alertname=\"{alarm}\"")), "no test of {alarm}");
        assert!(manual.contains(&format!("`{alarm}`")), "docs/book/operate/monitoring.md does not tell of {alarm}");
    }
}

#[test]
fn the_rules_are_sound() {
    if must_skip_promtool("the_rules_are_sound") {
        return;
    }
    let (rules, tests) = (packaging("prometheus/farshore.rules.yml"), packaging("prometheus/farshore.rules.test.yml"));
    promtool(&["check", "rules", rules.to_str().expect("text")], "");
    promtool(&["test", "rules", tests.to_str().expect("text")], "");
}

// --- A status with all there is, and many of it ---

fn made_up(groups: usize) -> PageFacts {
    let group = |number: usize| {
        serde_json::json!({
            "name": format!("g{number:04}"), "role": "secondary", "mode": "async", "state": "syncing", "protection": "none",
            "volumes": [{"name": "data", "size_bytes": 1u64 << 40, "device_bytes": 1u64 << 40, "device": "/dev/a", "dirty_bytes": 7,
                "direct": true, "clients": 1}],
            "queue": {"bytes": 1, "items": 2, "oldest_unconfirmed_s": 1.5, "lag_hwm_s": 2.5, "bytes_hwm": 3, "items_hwm": 4, "limit_bytes": 5, "limit_items": 6, "blocked_ms": 1500,
                "waiting_writers": 1, "held_up_ms": 2500, "full_in_s": 33, "step_ms": 400, "step_ms_hwm": 900, "log": "live", "waits": {"bounds_us": [1000], "counts": [1, 2], "sum_us": 9000}},
            "memory_bytes": 9, "journal": {"bytes": 1, "limit_bytes": 2},
            "peers": [{"node": "far", "link": "connected", "link_since_s": 5.0, "lag_bytes": 1, "lag_items": 1, "lag_seconds": 0.5, "heard_s": 1.0,
                "dirty_bytes": 3, "recovery_point": {"sequence": 81204, "time": "2026-11-21T03:12:41.123Z"}}],
            "promotable": {"sequence": 81204, "time": "2026-11-21T03:12:41.123Z"}, "peer_window_s": 24.5,
            "marks": [{"name": "before-sync-1", "sequence": 1, "time": "2026-11-21T03:12:41.123Z", "used_bytes": 1, "reserved_bytes": 2,
                "limit_bytes": 9}],
            "reverse": {"home": "far", "server": "near", "connected": true, "waiting": 0},
            "sync": {"full": false, "done_bytes": 1, "total_bytes": 2, "rate_bytes_per_s": 1.0, "missing_bytes_per_s": 4},
            "verify": {"repair": true, "sample_percent": 100, "waits": false, "since_s": 1.0, "done_bytes": 1, "total_bytes": 2,
                "compared_bytes": 1, "differing_bytes": 1, "repaired_bytes": 1, "unread_bytes": 0},
            "scrub": {"every_s": 604800.0, "rate_limit_bytes_per_s": 10000000, "verified": "2026-11-21T03:12:41.123Z",
                "due": "2026-11-28T03:12:41.123Z"},
            "settings": {}, "rpo": {"warn_seconds": 5.0, "error_seconds": 30.0}
        })
    };
    let buffer =
        serde_json::json!({"requested_bytes": null, "granted_at_creation_bytes": 1, "granted_when_connected_bytes": 1});
    let view = serde_json::json!({
        "state_directory": {"path": "/var/lib/farshore", "encrypted": true, "lies": "dm-crypt below ext4"},
        "schema": "farshore-status/1", "cluster": "c", "node": "near", "version": "0.1.0", "uptime_s": 9.0,
        "tls": {"certificate_until": "2027-11-21T03:12:41Z", "authority_until": "2036-11-21T03:12:41Z", "fingerprint": "f"},
        "shared": {"memory_bytes": 1, "memory_limit_bytes": 2, "starting": 0, "starting_waiting": 0, "syncing": 1, "syncing_waiting": 0},
        "clients": {"connected": 1, "refused": 0, "stalled": 0, "violations": 0},
        "links": [{"node": "far", "link": "connected", "link_since_s": 5.0, "connections": 1, "settings": {}, "limit": "nothing",
            "rate_held": false, "tcp": farshore::api::TcpStatus::default(),
            "socket": {"send_buffer": buffer, "receive_buffer": buffer, "congestion_requested": "auto", "congestion": "bbr", "options": []},
            "compression": {"method": "lz4", "sent_plain_bytes": 1, "sent_wire_bytes": 1, "sent_ratio": 1.0, "sent_copied_bytes": 1, "received_plain_bytes": 1,
                "received_wire_bytes": 1, "received_ratio": 1.0}}],
        "groups": (0..groups).map(group).collect::<Vec<_>>()
    });
    let sums = ["writes", "written_bytes", "resynced_bytes", "compared_bytes", "shipped_bytes", "pulled_bytes"];
    let sums = sums.into_iter().chain([
        "streamed_bytes",
        "joined_writes",
        "joined_frames",
        "folded_writes",
        "folded_bytes",
        "bitmap_bytes",
        "journal_bytes",
        "undo_bytes",
        "spilled_bytes",
        "queue_disk_bytes",
    ]);
    let of_group = |number: usize| sums.clone().map(move |sum| (format!("group.g{number:04}.{sum}"), 5));
    let of_clients = ["reads", "read_bytes", "read_us", "writes", "write_bytes", "write_us", "flushes", "flush_us"];
    let sums = [&of_clients[..], &["streamed_bytes", "shipped_bytes", "bitmap_bytes"]].concat();
    let of_volume =
        |number: usize| sums.clone().into_iter().map(move |sum| (format!("volume.g{number:04}/data.{sum}"), 2_500_000));
    let of_nbd = ["done", "failed", "bytes"].map(|sum| (format!("nbd.write.{sum}"), 5));
    let latency = LatencyClasses { bounds_us: vec![100, 1000], counts: vec![1, 2, 3], sum_us: 70_000 };
    let counters = DaemonCounters {
        schema: "farshore-counters/1".into(),
        node: "near".into(),
        counters: (0..groups).flat_map(of_group).chain((0..groups).flat_map(of_volume)).chain(of_nbd).collect(),
        latencies: [("write".to_owned(), latency)].into(),
    };
    let view: NodeView = serde_json::from_value(view).expect("a status");
    PageFacts::reported(view, Some(counters))
}

/// A row of the table whose reader finds nothing where there is something would be a promise that nobody keeps.
#[test]
fn a_status_with_all_there_is_has_every_metric() {
    let facts = made_up(1);
    let (new, old) = (metrics::page(facts.clone(), PageForm::OpenMetrics), metrics::page(facts, PageForm::Plain));
    assert!(new.ends_with("# EOF\n") && new.contains("# TYPE farshore_group_written_bytes counter\n"), "{new}");
    for name in known_names() {
        let is_there = |line: &str| line.starts_with(&name) && !line.starts_with('#');
        assert!(new.lines().any(is_there) && old.lines().any(is_there), "no {name} in {old}");
        assert!(old.contains(&format!("# HELP {name} ")), "no help of {name} in {old}");
    }
    for line in [
        "farshore_nbd_request_duration_seconds_bucket{le=\"0.001\",command=\"write\"} 3",
        "farshore_nbd_request_duration_seconds_bucket{le=\"+Inf\",command=\"write\"} 6",
        "farshore_nbd_request_duration_seconds_sum{command=\"write\"} 0.07",
        "farshore_group_state{group=\"g0000\",state=\"syncing\"} 1",
        "farshore_group_state{group=\"g0000\",state=\"failed\"} 0",
        "farshore_group_rpo_threshold_seconds{group=\"g0000\",level=\"error\"} 30.0",
        "farshore_group_recovery_point_timestamp_seconds{group=\"g0000\",peer=\"far\"} 1795230761.123",
        "farshore_group_history_used_bytes{group=\"g0000\"} 3",
        "farshore_group_queue_full_after_seconds{group=\"g0000\"} 33.0",
        "farshore_volume_write_time_seconds_total{group=\"g0000\",volume=\"data\"} 2.5",
    ] {
        assert!(old.lines().any(|found| found == line), "no {line} in {old}");
    }
    if !must_skip_promtool("a_status_with_all_there_is_has_every_metric") {
        assert_eq!(promtool(&["check", "metrics"], &old), "");
    }
}

/// What a scrape costs the node, the figure of docs/book/metrics.md. Printed, and nothing is asserted about time.
#[test]
fn a_page_of_a_thousand_groups_is_weighed() {
    let facts = made_up(1000);
    let cpu = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
    };
    for form in [PageForm::OpenMetrics, PageForm::Plain] {
        let mut took: Vec<f64> = Vec::new();
        let (mut bytes, mut samples) = (0, 0);
        for _ in 0..5 {
            let facts = facts.clone();
            let before = cpu();
            let page = metrics::page(facts, form);
            took.push(cpu() - before);
            (bytes, samples) = (page.len(), page.lines().filter(|line| !line.starts_with('#')).count());
        }
        took.sort_by(f64::total_cmp);
        println!("1 000 groups, {form:?}: {:.1} ms of CPU a page, {samples} samples, {bytes} bytes", took[2]);
        assert!(samples > 50_000, "{samples}");
    }
}

// --- A pair ---

#[test]
fn both_nodes_tell_metrics() {
    if must_skip_promtool("both_nodes_tell_metrics") {
        return;
    }
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    let address = free_address(&pair);
    tell_metrics(&pair, Side::Near, &format!("tcp:{address}"));
    tell_metrics(&pair, Side::Far, "unix:metrics.sock");
    pair.first_sync();
    run(write_a_page(&pair));
    // The kernel's figures of a link are looked at now and then.
    let mut answer = String::new();
    pair.until("the page has what the kernel says of the link", |_| {
        answer = get(address, "/metrics");
        answer.contains("farshore_link_round_trip_seconds")
    });
    let (head, page) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert_eq!(promtool(&["check", "metrics"], page), "");
    for line in [
        "farshore_up 1",
        "farshore_group_as_wanted{group=\"g\"} 1",
        "farshore_group_role{group=\"g\",role=\"primary\"} 1",
        "farshore_group_written_total{group=\"g\"} 1",
        "farshore_nbd_request_duration_seconds_count{command=\"write\"} 1",
        "farshore_group_rpo_threshold_seconds{group=\"g\",level=\"warn\"} 30.0",
    ] {
        assert!(page.lines().any(|found| found == line), "no {line} in {page}");
    }
    // What a command prints is the same, as far as it stands still: the forecast is there only while the queue fills. And
    // there is a page where no daemon is.
    let printed = pair.done(Side::Near, &["status", "--format", "prometheus"]);
    let names = |page: &str| {
        let names = page.lines().filter(|line| line.starts_with("# TYPE") && !line.contains("_queue_full_after_"));
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names(&printed), names(page));
    let socket = pair.path("metrics.sock");
    let mode = fs::metadata(&socket).expect("the socket").permissions().mode() & 0o777;
    assert_eq!(mode, 0o660, "{mode:o}");
    let stream = UnixStream::connect(&socket).expect("the daemon listens");
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    let answer = exchange(stream, &format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{accept}\r\n"));
    assert!(answer.contains("farshore_group_role{group=\"g\",role=\"secondary\"} 1"), "{answer}");
    assert!(answer.contains("application/openmetrics-text") && answer.ends_with("# EOF\n"), "{answer}");
    assert!(pair.stop(Side::Far).success());
    assert!(!socket.exists());
    let (code, said) = pair.output_of(Side::Far, &["status", "--format", "prometheus"]);
    assert!(code == 2 && said.contains("farshore_up 0\n") && said.contains("no daemon answers"), "{code}: {said}");
    let (code, said) = pair.output_of(Side::Near, &["status", "--format", "prometheus", "--watch"]);
    assert!(code == 3 && said.contains("a page of metrics is read once"), "{code}: {said}");
}

#[test]
fn whoever_asks_for_anything_else_gets_a_sentence() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    let address = free_address(&pair);
    tell_metrics(&pair, Side::Near, &format!("tcp:{address}"));
    pair.serve(Side::Near);
    let answer = get(address, "/");
    assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("there is nothing here but the metrics"), "{answer}");
    let ask = |request: &str| exchange(TcpStream::connect(address).expect("somebody listens"), request);
    let answer = ask("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nx=1");
    assert!(answer.starts_with("HTTP/1.1 405") && answer.contains("metrics are only read"), "{answer}");
    let answer = ask("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\n"), "{answer}");
    assert!(ask("NBDMAGICIHAVEOPT\r\n\r\n").starts_with("HTTP/1.1 400"), "no question at all");
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(64 << 10));
    let answer = ask(&long);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert!(get(address, "/metrics").starts_with("HTTP/1.1 200"), "it stands");
}

/// The address is taken by somebody else: the mirror is served all the same, and the metrics when the address is free.
#[test]
fn an_address_that_is_taken_keeps_nobody_from_serving() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    let taken = TcpListener::bind((pair.address(Side::Near).ip(), 0)).expect("a port");
    let address = taken.local_addr().expect("an address");
    tell_metrics(&pair, Side::Near, &format!("tcp:{address}"));
    pair.serve(Side::Near);
    pair.until("it is said", |pair| pair.log(Side::Near).contains("which is tried again: Address already in use"));
    drop(taken);
    pair.until("metrics are served", |pair| pair.log(Side::Near).contains("metrics are read at"));
    assert!(get(address, "/metrics").contains("farshore_up 1"));
}

// --- Prometheus ---

/// The shipped rules, which hold alarms off for a few moments only.
fn impatient_rules() -> String {
    let rules = fs::read_to_string(packaging("prometheus/farshore.rules.yml")).expect("rules");
    let line =
        |line: &str| if line.trim().starts_with("for: ") { "        for: 1s".to_owned() } else { line.to_owned() };
    rules.lines().map(line).collect::<Vec<_>>().join("\n") + "\n"
}

fn start_prometheus(pair: &Pair, targets: [SocketAddr; 2]) -> (Background, SocketAddr) {
    fs::write(pair.path("farshore.rules.yml"), impatient_rules()).expect("rules");
    let [near, far] = targets;
    let config = format!(
        "global: {{scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 500ms}}\nrule_files: [farshore.rules.yml]\n\
         scrape_configs:\n  - job_name: farshore\n    static_configs: [{{targets: ['{near}', '{far}']}}]\n"
    );
    fs::write(pair.path("prometheus.yml"), config).expect("a configuration");
    let address = free_address(pair);
    let option = |name: &str, path: &str| format!("--{name}={}", pair.path(path).display());
    let mut command = Command::new("prometheus");
    command.args([option("config.file", "prometheus.yml"), option("storage.tsdb.path", "tsdb")]);
    command.args([format!("--web.listen-address={address}"), "--log.level=error".to_owned()]);
    (Background::start(command), address)
}

/// What it says to a query, or nothing as long as it does not listen.
fn ask_prometheus(address: SocketAddr, path: &str) -> String {
    let Ok(stream) = TcpStream::connect(address) else { return String::new() };
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    exchange(stream, &format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n"))
}

fn is_firing(address: SocketAddr, alarm: &str) -> bool {
    let path = format!("/api/v1/query?query=ALERTS%7Balertname%3D%22{alarm}%22%2Calertstate%3D%22firing%22%7D");
    ask_prometheus(address, &path).contains("\"alertstate\":\"firing\"")
}

#[test]
fn prometheus_reads_both_nodes_and_its_alarms_fire_when_the_cable_is_cut() {
    let there = [("prometheus (apt: prometheus)", is_installed("prometheus"))];
    if must_skip("prometheus_reads_both_nodes_and_its_alarms_fire_when_the_cable_is_cut", &there) {
        return;
    }
    let thresholds = "rpo.warn = \"1s\"\nrpo.error = \"2s\"\n";
    let mut pair = Pair::new(&PairPlan { group: thresholds, head: "[link]\ntimeout = \"2s\"\n", ..PairPlan::DEFAULT });
    let targets = [free_address(&pair), free_address(&pair)];
    for (node, target) in Side::BOTH.into_iter().zip(targets) {
        tell_metrics(&pair, node, &format!("tcp:{target}"));
    }
    pair.lay_relay();
    // It takes five seconds until it scrapes first, so it starts before the pair does.
    let (_prometheus, address) = start_prometheus(&pair, targets);
    pair.first_sync();
    let alarms = ["FarshoreLinkDown", "FarshoreNotAsWanted", "FarshoreLagError", "FarshoreLagWarning"];
    let healthy = "/api/v1/query?query=sum(farshore_group_as_wanted)+%2B+sum(farshore_up)+%3D%3D+4";
    pair.until("both nodes were scraped and are well", |_| ask_prometheus(address, healthy).contains(",\"4\"]"));
    assert_eq!(alarms.map(|alarm| is_firing(address, alarm)), [false; 4]);
    pair.relay().cut();
    run(write_a_page(&pair));
    pair.until("the alarms fire", |_| alarms.iter().all(|alarm| is_firing(address, alarm)));
    pair.relay().restore();
    pair.until("they end with what they told of", |_| alarms.iter().all(|alarm| !is_firing(address, alarm)));
}

// --- Who may read beyond loopback ---

/// Certificate and key of a client and of a node, as `farshore cert` names them.
const CLIENT: [&str; 2] = ["clients/prometheus/client-cert.pem", "clients/prometheus/client-key.pem"];
const NODE: [&str; 2] = ["nodes/near.crt", "nodes/near.key"];

fn make_client(registry: &Registry) {
    let holder = CertificateHolder {
        identity: MemberIdentity::client("test", "prometheus"),
        hosts: vec!["localhost".to_owned()],
    };
    registry.issue(&holder, Validity::days(2), false).expect("a certificate");
}

/// A reader over TLS that expects the node `near` and shows these files, or nothing; the whole answer, or why there is none.
async fn scrape(address: SocketAddr, directory: &Path, shown: Option<[&str; 2]>) -> Result<String, std::io::Error> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(directory.join("ca.crt")).expect("an authority");
    roots.add(authority).expect("a certificate");
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = match shown {
        None => config.with_no_client_auth(),
        Some([certificate, key]) => {
            let certificate = CertificateDer::from_pem_file(directory.join(certificate)).expect("a certificate");
            let key = PrivateKeyDer::from_pem_file(directory.join(key)).expect("a key");
            config.with_client_auth_cert(vec![certificate], key).expect("they belong together")
        }
    };
    let stream = tokio::net::TcpStream::connect(address).await?;
    let name = ServerName::try_from("near").expect("a name");
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: near\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.map(|_| answer)
}

// proves: P10
#[test]
fn nobody_reads_metrics_over_tls_but_a_client_of_this_cluster() {
    let directory = tempfile::tempdir().expect("a directory");
    let registry = Registry::new(directory.path());
    registry.make_authority("test", Validity::days(2)).expect("an authority");
    let us = MemberIdentity::node("test", "near");
    let holder = CertificateHolder { identity: us.clone(), hosts: vec!["near".to_owned()] };
    registry.issue(&holder, Validity::days(2), false).expect("a certificate");
    make_client(&registry);
    let paths = Paths::of_node(directory.path(), "near");
    let credentials = Credentials::load(&paths, &us, &[], &Clients::Certified).expect("credentials");
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let tls = Some(CredentialStore::new(credentials));
    let endpoint = MetricsEndpoint { listen: ListenAddress::Tcp(address), tls };
    run(async {
        let serving = tokio::task::spawn_local(serve(endpoint, |_| async { "farshore_up 1\n".to_owned() }));
        while tokio::net::TcpStream::connect(address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let own = scrape(address, directory.path(), Some(CLIENT)).await.expect("let in");
        assert!(own.contains("200 OK") && own.ends_with("farshore_up 1\n"), "{own}");
        for (who, shown) in [("nobody", None), ("a node", Some(NODE))] {
            let answer = scrape(address, directory.path(), shown).await;
            assert!(answer.is_err(), "{who} reads {answer:?}");
        }
        let plain = tokio::task::spawn_blocking(move || get(address, "/metrics")).await.expect("asked");
        assert!(!plain.contains("farshore_up"), "{plain}");
        serving.abort();
    });
}

/// An address of this machine that others may reach too.
fn address_beyond_loopback() -> Option<SocketAddr> {
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: the kernel only chooses a way.
    probe.connect("192.0.2.1:9").ok()?;
    let ip =
        probe.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())?;
    TcpListener::bind((ip, 0)).and_then(|listener| listener.local_addr()).ok()
}

// proves: P10
#[test]
fn a_reader_without_a_certificate_is_named_in_the_log() {
    let found = address_beyond_loopback();
    let needed = [("an address beyond loopback", found.is_some())];
    let (false, Some(address)) = (must_skip("a_reader_without_a_certificate_is_named_in_the_log", &needed), found)
    else {
        return;
    };
    let mut pair = Pair::new(&PairPlan { head: "[tls]\ndirectory = \"tls\"\n", ..PairPlan::DEFAULT });
    tell_metrics(&pair, Side::Near, &format!("tcp:{address}"));
    pair.certify();
    make_client(&Registry::new(&pair.path("tls")));
    pair.serve(Side::Near);
    run(async {
        let own = scrape(address, &pair.path("tls"), Some(CLIENT)).await.expect("let in");
        assert!(own.contains("farshore_certificate_end_timestamp_seconds{of=\"node\"}"), "{own}");
        let other = scrape(address, &pair.path("tls"), None).await;
        assert!(other.is_err(), "{other:?}");
    });
    let words = ["a reader of metrics from", "was turned away: it presented no certificate"];
    pair.until("the log names the reader", |pair| {
        let log = pair.log(Side::Near);
        words.iter().all(|words| log.contains(words))
    });
}
