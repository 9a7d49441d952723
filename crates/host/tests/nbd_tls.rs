//! NBD over TLS under the clients people use, and those that are kept out.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::certificates::{CLUSTER, Dates, TestCertificates};
use crate::nbd_support::*;
use host::nbd::proto::{self, NbdCommand};
use host::tls::clients::{ClientMatch, Grant, Scope, TlsClient};
use host::tls::{Clients, MemberIdentity};
use rcgen::SanType;

/// A server that insists on TLS, over certificates of its own.
fn guarded(certificates: &TestCertificates, clients: Clients, is_required: bool) -> TestServer {
    let tls = Some((certificates.server(clients), is_required));
    TestServer::start(ServerSetup { files: true, pace: AnswerPace::Reversed, tls, ..ServerSetup::default() })
}

#[track_caller]
fn works(program: &str, arguments: &[&str]) -> String {
    let (code, text) = run_any(program, arguments);
    assert_eq!(code, Some(0), "{program} {arguments:?} failed:\n{text}");
    text
}

fn uri(server: &TestServer, own: &Path) -> String {
    format!("nbds://127.0.0.1:{}/g/v?tls-certificates={}", server.tcp.port(), own.display())
}

/// qemu's own words for an image behind TLS.
fn qemu<'a>(program: &'a str, port: u16, own: &Path, more: &[&str]) -> (&'a str, Vec<String>) {
    let mut words: Vec<String> = Vec::new();
    let object = format!("tls-creds-x509,id=tls,endpoint=client,dir={}", own.display());
    let image = format!("driver=nbd,host=127.0.0.1,port={port},export=g/v,tls-creds=tls");
    match program {
        "qemu-img" => words.extend(["info".into(), "--object".into(), object, "--image-opts".into(), image]),
        _ => {
            words.extend(["--object".into(), object, "--image-opts".into()]);
            words.extend(more.iter().flat_map(|command| ["-c".to_owned(), (*command).to_owned()]));
            words.push(image);
        }
    }
    (program, words)
}

#[test]
fn qemu_and_libnbd_read_and_write_over_tls() {
    let certificates = TestCertificates::new();
    let server = guarded(&certificates, Clients::Certified, true);
    let own = certificates.client("backup", Dates::Now);
    let json = works("nbdinfo", &["--json", &uri(&server, &own)]);
    for expected in ["\"TLS\": true", "\"export-size\": 67108864", "base:allocation"] {
        assert!(json.contains(expected), "{expected} is missing:\n{json}");
    }
    let check = |(program, words): (&str, Vec<String>)| {
        works(program, &words.iter().map(String::as_str).collect::<Vec<_>>());
    };
    check(qemu("qemu-img", server.tcp.port(), &own, &[]));
    let commands =
        ["write -P 7 1M 8M", "write -z 3M 1M", "flush", "read -P 7 1M 2M", "read -P 0 3M 1M", "read -P 7 4M 5M"];
    check(qemu("qemu-io", server.tcp.port(), &own, &commands));
    let many: Vec<String> = (0..64).map(|n| format!("aio_write -P {n} {}k 128k", 16 * 1024 + n * 128)).collect();
    let mut many: Vec<&str> = many.iter().map(String::as_str).collect();
    many.extend(["aio_flush", "read -P 0 16M 128k", "read -P 63 24448k 128k"]);
    check(qemu("qemu-io", server.tcp.port(), &own, &many));
    let counters = server.counters();
    for command in [NbdCommand::Read, NbdCommand::Write, NbdCommand::WriteZeroes, NbdCommand::Flush] {
        let seen = counters.command(command);
        assert!(seen.received > 0 && seen.failed == 0, "{}: {seen:?}", command.name());
    }
    server.stop();
}

#[test]
fn nbdcopy_brings_back_what_it_took_over_tls() {
    let certificates = TestCertificates::new();
    let server = guarded(&certificates, Clients::Certified, true);
    let own = certificates.client("backup", Dates::Now);
    let (source, back) = (server.path("source"), server.path("back"));
    let mut bytes = NbdRandom(5).bytes(64 << 20);
    bytes[1 << 20..5 << 20].fill(0);
    std::fs::write(&source, &bytes).unwrap();
    works("nbdcopy", &["--flush", source.to_str().unwrap(), &uri(&server, &own)]);
    works("nbdcopy", &["--connections=4", "--requests=64", &uri(&server, &own), back.to_str().unwrap()]);
    assert!(std::fs::read(&back).unwrap() == bytes, "nbdcopy brought back something else");
    server.stop();
}

// proves: P10
#[test]
fn clients_without_sound_certificates_are_kept_out() {
    let certificates = TestCertificates::new();
    let server = guarded(&certificates, Clients::Certified, true);
    let others = TestCertificates::of("another");
    let foreign = others.client("foreign", Dates::Now);
    // It believes this server, and shows a certificate of somebody else.
    std::fs::copy(certificates.path("ca.crt"), foreign.join("ca-cert.pem")).unwrap();
    let nothing = certificates.path("nothing");
    std::fs::create_dir(&nothing).unwrap();
    std::fs::copy(certificates.path("ca.crt"), nothing.join("ca-cert.pem")).unwrap();
    for own in [certificates.client("late", Dates::Past), certificates.client("early", Dates::Future), foreign, nothing]
    {
        let (code, said) = run_any("nbdinfo", &[&uri(&server, &own)]);
        assert_eq!(code, Some(1), "{}: {said}", own.display());
    }
    let counters = server.counters();
    assert_eq!((counters.sessions_started, counters.handshakes_without_session), (0, 4));
    server.stop();
}

// proves: P10
/// That the authority has signed it said nothing of who it is: each of these read and wrote every export.
#[test]
fn a_certificate_of_something_else_is_kept_out() {
    let certificates = TestCertificates::new();
    let server = guarded(&certificates, Clients::Certified, true);
    let uri_name = |identity: MemberIdentity| SanType::URI(identity.to_string().try_into().unwrap());
    let host_name = || SanType::DnsName("www.example.com".try_into().unwrap());
    for (name, names) in [
        ("web", vec![host_name()]),
        ("node", vec![uri_name(MemberIdentity::node(CLUSTER, "west")), host_name()]),
        ("elsewhere", vec![uri_name(MemberIdentity::client("bay", "backup"))]),
        ("both", vec![uri_name(MemberIdentity::client(CLUSTER, "a")), uri_name(MemberIdentity::node(CLUSTER, "west"))]),
        ("nameless", vec![]),
    ] {
        let own = certificates.without_identity(name, names);
        let (code, said) = run_any("nbdinfo", &[&uri(&server, &own)]);
        assert_eq!(code, Some(1), "{name}: {said}");
    }
    assert_eq!(server.counters().sessions_started, 0);
    works("nbdinfo", &[&uri(&server, &certificates.client("backup", Dates::Now))]);
    server.stop();
}

fn listed(entries: &[(ClientMatch, &[(Scope, bool)])]) -> Clients {
    let grant = |(scope, read_only): &(Scope, bool)| Grant { scope: scope.clone(), read_only: *read_only };
    let one = |(holder, grants): &(ClientMatch, &[(Scope, bool)])| TlsClient {
        holder: holder.clone(),
        grants: grants.iter().map(grant).collect(),
    };
    Clients::Listed(entries.iter().map(one).collect())
}

#[test]
fn a_listed_client_finds_what_it_is_granted_and_nothing_else() {
    let certificates = TestCertificates::new();
    let one = |name: &str| Scope::Export(name.to_owned());
    let clients = listed(&[
        (ClientMatch::Client("backup".into()), &[(one("g/v"), true)]),
        (ClientMatch::Host("db1.example.com".into()), &[(Scope::Group("g".into()), false), (one("g/w"), true)]),
    ]);
    let exports = vec![("g/v", 64 << 20), ("g/w", 32 << 20), ("h/v", 16 << 20)];
    let tls = Some((certificates.server(clients), true));
    let server = TestServer::start(ServerSetup { exports, files: true, tls, ..ServerSetup::default() });
    let port = server.tcp.port();
    let at = |own: &Path, export: &str| format!("nbds://127.0.0.1:{port}/{export}?tls-certificates={}", own.display());
    let names = |own: &Path| -> Vec<String> {
        let said = works("nbdinfo", &["--list", "--json", &at(own, "")]);
        let of = |line: &str| {
            line.split_once("\"export-name\": \"").map(|(_, rest)| rest.split('"').next().unwrap().to_owned())
        };
        said.lines().filter_map(of).collect()
    };
    let backup = certificates.client("backup", Dates::Now);
    let db1 = certificates.without_identity("db1", vec![SanType::DnsName("db1.example.com".try_into().unwrap())]);
    assert_eq!((names(&backup), names(&db1)), (vec!["g/v".to_owned()], vec!["g/v".to_owned(), "g/w".to_owned()]));
    // What is not granted answers as what is not there; an empty name is the only one that it sees.
    let answer = |own: &Path, export: &str| {
        let (code, said) = run_any("nbdinfo", &[&at(own, export)]);
        (code, said.replace(export, "NAME"))
    };
    for (own, denied) in [(&backup, "g/w"), (&backup, "h/v"), (&db1, "h/v")] {
        let (refused, missing) = (answer(own, denied), answer(own, "none"));
        assert_eq!((refused.0, &refused.1), (Some(1), &missing.1), "{denied}");
    }
    let readable = [at(&backup, "g/v"), at(&backup, ""), at(&db1, "g/w")];
    for location in &readable {
        assert!(works("nbdinfo", &["--json", location]).contains("\"is_read_only\": true"), "{location}");
    }
    assert!(works("nbdinfo", &["--json", &at(&db1, "g/v")]).contains("\"is_read_only\": false"));
    // A client that does not look at the flag.
    let script = "h.set_strict_mode(0)\n\
        import errno\n\
        for f in (lambda: h.pwrite(b'x' * 512, 0), lambda: h.trim(512, 0), lambda: h.zero(512, 0)):\n\
        \x20   try:\n\
        \x20       f()\n\
        \x20       raise SystemExit('it wrote')\n\
        \x20   except nbd.Error as error:\n\
        \x20       assert error.errnum == errno.EPERM, error\n\
        h.pread(512, 0)\n\
        h.flush()\n";
    works("nbdsh", &["-c", &entering(&readable[0]), "-c", script]);
    // Nobody in the list.
    let other = certificates.client("other", Dates::Now);
    assert_eq!(answer(&other, "g/v").0, Some(1));
    server.stop();
}

/// What nbdsh begins with.
fn entering(uri: &str) -> String {
    format!("h.set_uri_allow_local_file(True)\nh.connect_uri('{uri}')")
}

/// A client that stays inside and reads, until it cannot any more: then it ends with 7.
fn stay(server: &TestServer, own: &Path) -> Child {
    let script = "import time\n\
        print('in', flush=True)\n\
        try:\n\
        \x20   while True:\n\
        \x20       h.pread(512, 0)\n\
        \x20       time.sleep(0.01)\n\
        except nbd.Error:\n\
        \x20   exit(7)\n";
    let mut command = std::process::Command::new("nbdsh");
    // It is a Python program that needs the system's interpreter, whatever stands first on the path.
    command.env("PATH", format!("/usr/bin:{}", std::env::var("PATH").unwrap_or_default()));
    command.args(["-c", &entering(&uri(server, own)), "-c", script]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 3];
    child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    child
}

#[track_caller]
fn is_cut_off(mut child: Child) {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().unwrap() {
            assert_eq!(status.code(), Some(7));
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    panic!("it is still inside");
}

/// A client that was inside stayed there, whatever became of its certificate and its authority.
#[test]
fn who_is_believed_no_more_is_cut_off_at_once() {
    let certificates = TestCertificates::new();
    let store = certificates.server(Clients::Certified);
    let tls = Some((store.clone(), true));
    let server = TestServer::start(ServerSetup { files: true, tls, ..ServerSetup::default() });
    let [stolen, other, last] = ["stolen", "other", "last"].map(|name| certificates.client(name, Dates::Now));
    let (first, second, mut third) = (stay(&server, &stolen), stay(&server, &other), stay(&server, &last));
    for (name, child, own) in [("stolen", first, &stolen), ("other", second, &other)] {
        certificates.revoke(name);
        store.replace(certificates.credentials("server", &Clients::Certified));
        is_cut_off(child);
        assert_eq!(run_any("nbdinfo", &[&uri(&server, own)]).0, Some(1));
        assert_eq!(third.try_wait().unwrap(), None, "nobody said anything against this one");
    }
    works("nbdinfo", &[&uri(&server, &last)]);
    // Another authority, and it alone.
    store.replace(TestCertificates::of("another").credentials("server", &Clients::Certified));
    is_cut_off(third);
    server.stop();
}

#[test]
fn anybody_may_come_in_when_the_operator_says_so_but_not_in_the_clear() {
    let certificates = TestCertificates::new();
    let server = guarded(&certificates, Clients::Any, true);
    let nothing = certificates.path("nothing");
    std::fs::create_dir(&nothing).unwrap();
    std::fs::copy(certificates.path("ca.crt"), nothing.join("ca-cert.pem")).unwrap();
    assert!(works("nbdinfo", &["--json", &uri(&server, &nothing)]).contains("\"TLS\": true"));
    let plain = format!("nbd://127.0.0.1:{}/g/v", server.tcp.port());
    assert_eq!(run_any("nbdinfo", &[&plain]).0, Some(1));
    assert_eq!(run_any("qemu-img", &["info", "-f", "raw", &plain]).0, Some(1));
    assert_eq!(server.counters().sessions_started, 1);
    server.stop();
}

#[test]
fn where_tls_is_offered_the_client_decides() {
    let certificates = TestCertificates::new();
    let server = guarded(&certificates, Clients::Certified, false);
    let own = certificates.client("backup", Dates::Now);
    assert!(works("nbdinfo", &["--json", &uri(&server, &own)]).contains("\"TLS\": true"));
    let plain = format!("nbd://127.0.0.1:{}/g/v", server.tcp.port());
    assert!(works("nbdinfo", &["--json", &plain]).contains("\"TLS\": false"));
    server.stop();
}

/// Greets the server, says these bytes, and reads until it hangs up or has said `answer` bytes.
fn say(server: &TestServer, bytes: &[u8], answer: usize) -> Vec<u8> {
    let mut stream = TcpStream::connect(server.tcp).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    stream.write_all(&3_u32.to_be_bytes()).unwrap();
    stream.write_all(bytes).unwrap();
    let mut heard = Vec::new();
    let mut piece = [0; 4096];
    while heard.len() < answer {
        match stream.read(&mut piece) {
            Ok(count @ 1..) => heard.extend(&piece[..count]),
            // A reset is an end as well.
            Ok(0) | Err(_) => break,
        }
    }
    heard
}

fn option(kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    proto::put_option(&mut bytes, kind, data);
    bytes
}

fn reply_of(bytes: &[u8]) -> u32 {
    proto::parse_option_reply(bytes.first_chunk().expect("a reply")).unwrap().reply
}

// proves: P10
#[test]
fn nothing_is_sent_in_the_clear_and_nothing_slips_in_before_tls() {
    let certificates = TestCertificates::new();
    let server = guarded(&certificates, Clients::Certified, true);
    for kind in [proto::option::LIST, proto::option::GO, proto::option::INFO, proto::option::STRUCTURED_REPLY, 99] {
        let heard = say(&server, &option(kind, b""), proto::OPTION_REPLY_BYTES);
        assert_eq!(reply_of(&heard), proto::reply::ERR_TLS_REQD, "option {kind}");
    }
    assert!(say(&server, &option(proto::option::EXPORT_NAME, b"g/v"), 1).is_empty(), "it just hangs up");
    // An option sent along with the wish for TLS would be taken for one from inside.
    let both = [option(proto::option::STARTTLS, b""), option(proto::option::LIST, b"")].concat();
    let heard = say(&server, &both, usize::MAX);
    assert_eq!(heard.len(), proto::OPTION_REPLY_BYTES, "an acknowledgement, then the end");
    assert_eq!(reply_of(&heard), proto::reply::ACK);
    // What is not TLS after the wish for it.
    let mut garbage = option(proto::option::STARTTLS, b"");
    garbage.truncate(16);
    let mut stream = TcpStream::connect(server.tcp).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    stream.write_all(&[&3_u32.to_be_bytes()[..], &garbage].concat()).unwrap();
    let mut acknowledged = [0; proto::OPTION_REPLY_BYTES];
    stream.read_exact(&mut acknowledged).unwrap();
    stream.write_all(&b"GET / HTTP/1.1\r\n".repeat(9)).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.len() < 64, "an alert at most: {rest:?}");
    assert_eq!(server.counters().sessions_started, 0);
    server.stop();
}

#[test]
fn a_wish_for_tls_where_there_is_none_is_answered() {
    let server = TestServer::start(ServerSetup::default());
    let heard = say(&server, &option(proto::option::STARTTLS, b""), proto::OPTION_REPLY_BYTES);
    assert_eq!(reply_of(&heard), proto::reply::ERR_UNSUP);
    server.stop();
}
