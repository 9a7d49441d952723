//! A row for each state that gives a verdict.

use serde_json::{Value, json};

use super::*;

/// 2026-11-27T12:00:00Z.
const NOW_S: i64 = 1_795_780_800;

/// A group as one node shows it: sync, in step.
fn group(name: &str, role: &str) -> Value {
    let protection = if role == "primary" { "both-durable" } else { "none" };
    let peer = if role == "primary" { "beta" } else { "alpha" };
    json!({
        "name": name, "role": role, "mode": "sync", "state": "replicating", "protection": protection,
        "volumes": [{"name": "data", "size_bytes": 1, "device": "/dev/x", "dirty_bytes": 4096, "direct": true}],
        "queue": {"bytes": 0, "items": 0, "bytes_hwm": 0, "items_hwm": 0, "limit_bytes": 1000, "limit_items": 100, "blocked_ms": 0},
        "peers": [{"node": peer, "link": "connected", "link_since_s": 9.0, "lag_bytes": 0, "lag_seconds": 0.2,
            "dirty_bytes": 0, "recovery_point": null}],
        "settings": {}, "rpo": {"warn_seconds": 10.0, "error_seconds": 60.0}
    })
}

fn node(name: &str, groups: &[Value]) -> Value {
    json!({
        "schema": "farshore-status/1", "node": name, "version": "1", "uptime_s": 1.0, "groups": groups,
        "tls": {"certificate_until": "2027-06-01T00:00:00Z", "authority_until": "2036-01-01T00:00:00Z", "fingerprint": ""}
    })
}

/// Both nodes of one group.
fn both() -> Value {
    let mut status = node("alpha", &[group("db", "primary")]);
    let theirs = node("beta", &[group("db", "secondary")]);
    status["peer_says"] = json!([{"node": "beta", "status": theirs, "age_s": 0.1, "answered_s": 0.1}]);
    status
}

fn verdict(status: Value) -> Verdict {
    Verdict::of(&serde_json::from_value(status).expect("a status"), NOW_S)
}

/// Changes to a status of which all was well: places as JSON pointers, and what stands there then.
type Changes<'a> = &'a [(&'a str, Value)];

#[track_caller]
fn check(changes: Changes, health: Health, words: &str) {
    let mut status = both();
    for (place, value) in changes {
        let (above, key) = place.rsplit_once('/').expect("a pointer");
        status.pointer_mut(above).unwrap_or_else(|| panic!("{above} is there"))[key] = value.clone();
    }
    let verdict = verdict(status);
    let said: Vec<&str> = verdict.findings.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!((verdict.health, said.join("; ").as_str()), (health, words));
}

#[test]
fn a_mode_ladder_that_is_down_is_worth_a_warning() {
    let ladder = json!({"lowered_s": 12.0, "reason": "writers waited 220 ms", "returns_in_s": null});
    let changes = [
        ("/groups/0/effective_mode", json!("async")),
        ("/groups/0/mode_ladder", ladder),
        ("/groups/0/protection", json!("queued")),
    ];
    let words = "db: protection is queued, which is less than mode sync promises; the group acts as async: writers waited 220 ms";
    check(&changes, Health::Warning, words);
}

#[test]
fn states_of_this_node() {
    use Health::{Critical, Ok, Warning};
    let state = "/groups/0/state";
    let (mode, protection) = ("/groups/0/mode", "/groups/0/protection");
    check(&[], Ok, "");
    let reason = ("/groups/0/reason", json!("a flush failed"));
    check(&[(state, json!("failed")), reason.clone()], Critical, "db is failed: a flush failed");
    check(&[(state, json!("paused")), reason], Critical, "db is paused: a flush failed");
    check(&[(state, json!("holding"))], Critical, "db is holding");
    for word in ["logging", "queuing", "syncing", "catching-up", "rewinding"] {
        check(&[(state, json!(word))], Warning, &format!("db is {word}"));
    }
    check(&[(state, json!("logging")), (mode, json!("logging"))], Ok, "");
    let starting = ("/groups/0/starting", json!(true));
    check(&[(state, json!("logging")), starting.clone()], Warning, "db is starting");
    check(&[(state, json!("failed")), starting], Critical, "db is failed");
    let less = "db: protection is queued, which is less than mode";
    check(&[(protection, json!("queued"))], Warning, &format!("{less} sync promises"));
    check(&[(protection, json!("queued")), (mode, json!("nearsync"))], Warning, &format!("{less} nearsync promises"));
    check(&[(protection, json!("queued")), (mode, json!("async"))], Ok, "");
}

#[test]
fn what_else_a_half_tells() {
    use Health::{Critical, Ok, Warning};
    let error = ("/groups/0/volumes/0/error", json!("no answer for 12 s"));
    check(&[error], Critical, "db: volume data: no answer for 12 s");
    let held = ("/groups/0/queue/held_up_ms", json!(1500));
    check(&[held], Critical, "db: a full queue held writers up for 1.5 s of late");
    check(&[("/groups/0/queue/bytes", json!(799))], Ok, "");
    check(&[("/groups/0/queue/bytes", json!(800))], Warning, "db: the queue is filled to 80 %");
    check(&[("/groups/0/queue/items", json!(95))], Warning, "db: the queue is filled to 95 %");
    let mark = |used: u64, error: Value| {
        let mark = json!({"name": "before-sync-1", "sequence": 1, "time": "", "used_bytes": used, "reserved_bytes": 10,
            "limit_bytes": 100, "error": error});
        [("/peer_says/0/status/groups/0/marks", json!([mark]))]
    };
    check(&mark(69, Value::Null), Ok, "");
    check(&mark(70, Value::Null), Warning, "db on beta: the history has little room left, 80 % are used");
    let damaged = mark(1, json!("a checksum is wrong"));
    check(&damaged, Critical, "db on beta: nothing can go back to the mark before-sync-1: a checksum is wrong");
}

#[test]
fn the_lag_is_held_against_the_thresholds_of_the_group() {
    use Health::{Critical, Ok, Warning};
    let lag = |seconds: f64| ("/groups/0/peers/0/lag_seconds", json!(seconds));
    check(&[lag(10.0)], Ok, "");
    check(&[lag(11.0)], Warning, "db: the copy is 11 s behind, rpo.warn is 10 s");
    check(&[lag(61.0)], Critical, "db: the copy is 1 min 1 s behind, rpo.error is 1 min");
    check(
        &[lag(61.0), ("/groups/0/rpo/error_seconds", Value::Null)],
        Warning,
        "db: the copy is 1 min 1 s behind, rpo.warn is 10 s",
    );
    check(&[lag(61.0), ("/groups/0/rpo", Value::Null)], Ok, "");
    check(&[lag(61.0), ("/groups/0/mode", json!("logging")), ("/groups/0/state", json!("logging"))], Ok, "");
    // Of a secondary that has not heard its primary, the primary's word counts.
    let unknown = ("/groups/0/peers/0/lag_seconds", Value::Null);
    let theirs = ("/peer_says/0/status/groups/0/peers/0/lag_seconds", json!(11.0));
    check(&[unknown, theirs], Warning, "db: the copy is 11 s behind, rpo.warn is 10 s");
}

#[test]
fn what_the_peer_says_counts_and_its_silence_too() {
    use Health::{Critical, Ok, Warning};
    let theirs = |key: &str| format!("/peer_says/0/status/groups/0/{key}");
    check(&[(&theirs("state"), json!("paused"))], Critical, "db on beta is paused");
    check(&[(&theirs("state"), json!("logging"))], Warning, "db on beta is logging");
    // Both say it, and it is told once.
    check(&[(&theirs("state"), json!("logging")), ("/groups/0/state", json!("queuing"))], Warning, "db is queuing");
    let primary = [(&*theirs("role"), json!("primary")), (&*theirs("protection"), json!("both-durable"))];
    check(&primary, Critical, "db: both nodes are primary ('farshore resolve db --keep NODE')");
    check(&[(&theirs("volumes/0/error"), json!("gone"))], Critical, "db on beta: volume data: gone");
    let silent = json!([{"node": "beta", "status": null, "why": "it does not answer within 1s"}]);
    let words = "what beta says of itself is not known: it does not answer within 1s";
    check(&[("/peer_says", silent.clone())], Warning, words);
    check(&[("/peer_says", silent), ("/groups/0/state", json!("failed"))], Critical, &format!("db is failed; {words}"));
    check(&[("/peer_says", json!([]))], Ok, "");
    let down = ("/groups/0/peers/0/link", json!("disconnected"));
    check(std::slice::from_ref(&down), Warning, "db: the link to beta is disconnected");
    check(&[down, ("/groups/0/state", json!("queuing"))], Warning, "db is queuing");
}

#[test]
fn certificates_that_end() {
    use Health::{Critical, Ok, Warning};
    let own = |until: &str| ("/tls/certificate_until", json!(until));
    check(&[own("2026-12-11T12:00:01Z")], Ok, "");
    check(&[own("2026-12-11T12:00:00Z")], Warning, "the certificate of alpha ends in 14 d");
    check(&[own("2026-11-27T12:00:00Z")], Critical, "the certificate of alpha has ended");
    let theirs = ("/peer_says/0/status/tls/authority_until", json!("2026-11-28T12:00:00Z"));
    check(&[theirs], Warning, "the authority's certificate of beta ends in 1 d");
    check(&[("/tls", Value::Null)], Ok, "");
}

#[test]
fn lines_of_the_interface() {
    let line = |status: Value| verdict(status).line();
    assert_eq!(
        line(both()),
        "FARSHORE OK - db replicating, lag 0.2 s | lag_db=0.2s;10;60 queue_db=0%;80 dirty_db=4096B\n"
    );

    let mut three = node("alpha", &[group("db", "primary"), group("mail", "secondary"), group("web", "primary")]);
    three["groups"][1]["rpo"] = json!({"warn_seconds": 0.5, "error_seconds": null});
    three["groups"][2]["peers"][0]["lag_seconds"] = Value::Null;
    let numbers = "lag_db=0.2s;10;60 queue_db=0%;80 dirty_db=4096B lag_mail=0.2s;0.5; dirty_mail=4096B queue_web=0%;80 dirty_web=4096B";
    assert_eq!(line(three.clone()), format!("FARSHORE OK - 3 groups replicating, lag 0.2 s | {numbers}\n"));
    three["groups"][2]["state"] = json!("logging");
    three["groups"][2]["mode"] = json!("logging");
    assert_eq!(line(three.clone()), format!("FARSHORE OK - 1 logging, 2 replicating, lag 0.2 s | {numbers}\n"));
    // The worst first; no line breaks, and one bar.
    three["groups"][0]["state"] = json!("queuing");
    three["groups"][1]["state"] = json!("failed");
    three["groups"][1]["reason"] = json!("this | that:\n  and more\u{1b}");
    let words = "mail is failed: this / that: and more?; db is queuing";
    assert_eq!(line(three), format!("FARSHORE CRITICAL - {words} | {numbers}\n"));

    assert_eq!(line(node("alpha", &[])), "FARSHORE UNKNOWN - node alpha has no group\n");
    assert_eq!(Verdict::unknown("no daemon\nanswers").line(), "FARSHORE UNKNOWN - no daemon; answers\n");
    let many: Vec<Value> = (0..9).map(|number| group(&format!("g{number}"), "primary")).collect();
    let mut many = node("alpha", &many);
    many["groups"].as_array_mut().expect("groups").iter_mut().for_each(|group| group["state"] = json!("queuing"));
    assert!(line(many).contains("g5 is queuing; and 3 more, see 'farshore status' | "));
}

#[test]
fn exit_codes_are_those_of_the_interface() {
    let codes = [Health::Ok, Health::Warning, Health::Critical, Health::Unknown].map(|health| health.exit() as u8);
    assert_eq!(codes, [0, 1, 2, 3]);
}

/// `status --on` shows a peer's word, and the agent of a cluster manager asks for it: two volumes were enough to break it down.
#[test]
fn numbers_that_no_number_can_add_up_end_at_the_largest() {
    let volume = json!({
        "name": "data", "size_bytes": 1, "device": "/dev/x", "dirty_bytes": u64::MAX, "clients": u64::MAX, "direct": true
    });
    let groups = ["db", "web"].map(|name| {
        let mut large = group(name, "primary");
        large["volumes"] = json!([volume, volume]);
        large
    });
    let status = node("alpha", &groups);
    let line = verdict(status.clone()).line();
    assert!(line.contains("dirty_db=18446744073709551615B"), "{line}");
    let view: NodeView = serde_json::from_value(status).expect("a status");
    let lines = crate::show::shell::group("alpha", &view.groups[0]);
    for part in ["farshore_dirty_bytes=18446744073709551615\n", "farshore_clients=18446744073709551615\n"] {
        assert!(lines.contains(part), "{lines}");
    }
    let table = crate::show::status(&view, &toolkit::screen::Paint::plain());
    assert!(table.contains(&units::exact::show_size(u64::MAX)), "{table}");
}
