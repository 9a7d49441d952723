//! What the daemon of a peer answers, a line of a log of events, and the token that invites a machine.

use std::net::SocketAddr;

use farshore::api::Reply;
use farshore::events::EventRecord;
use farshore::join::token::{JoinToken, SECRET_BYTES};

use crate::Seed;

/// Rule: what is read is of one kind and one node, and still is when it is written and read again.
pub fn reply(bytes: &[u8]) {
    let Ok(reply) = Reply::read(bytes) else { return };
    let written = serde_json::to_vec(&reply).expect("answers can be written");
    let again = Reply::read(&written).expect("and read again");
    assert_eq!((again.kind(), again.node()), (reply.kind(), reply.node()));
}

const OK: &str = r#"{"reply":"ok","message":"db: promoted","warnings":["12 writes may be lost"],"done_on":"beta"}"#;
const ERROR: &str = r#"{"reply":"error","message":"db: this node is the primary already","code":"refused"}"#;
const REFUSAL: &str = r#"{"reply":"error","message":"db: the peer is primary","code":"refused","refusal":{"code":"peer-is-primary","retry":"later"},"operation":"beta-0f-7"}"#;
const OPERATION: &str = r#"{"reply":"operation","schema":"farshore-operation/1","node":"beta","id":"beta-0f-7","verb":"sync","group":"db","begun_unix_ms":1796000000456,"state":"running","message":"db: sync began"}"#;
const COUNTERS: &str = r#"{"reply":"counters","schema":"farshore-counters/1","node":"beta","counters":{"group.db.writes":7,"nbd.stalled":0}}"#;
const RECORDED: &str = r#"{"reply":"recorded","began":true,"lost":0,"bytes":24}"#;
const LINK_HISTORY: &str = r#"{"reply":"link-history","schema":"farshore-link-history/1","node":"beta","peer":"alpha","records":[{"unix_ms":1,"covered_ms":2,"connected_ms":2,"sent_bytes":3,"received_bytes":4,"retransmitted_bytes":0,"sent_bytes_per_s_max":5,"rtt_min_us":6,"rtt_mean_us":7,"rtt_max_us":8,"connections":1,"busy_ms":1,"receiver_limited_ms":0,"buffer_limited_ms":0}],"warnings":[]}"#;
const CLIENTS: &str = r#"{"reply":"clients","schema":"farshore-clients/1","node":"beta","clients":[]}"#;
const MORE_THAN_ASKED: &str = r#"{"reply":"ok","x":[1,1,[1,{"y":""}]],"message":"m","warnings":["","",""]}"#;
const GROUP: &str = r#"{"name":"db","role":"primary","mode":"sync","state":"queuing","protection":"queued","reason":"the link is down","volumes":[{"name":"data","size_bytes":4096,"device":"/dev/sdb","dirty_bytes":0,"direct":true}],"queue":{"bytes":1,"items":1,"bytes_hwm":2,"items_hwm":2,"limit_bytes":9,"limit_items":9,"blocked_ms":0},"peers":[{"node":"alpha","link":"disconnected","link_since_s":1.5,"lag_bytes":1,"lag_seconds":0.5,"dirty_bytes":0,"recovery_point":null}],"settings":{"mode":{"value":"sync","origin":"set"}},"warnings":["mind"]}"#;
const EVENT: &str = r#"{"schema":"farshore-event/1","number":1796000000123,"time_unix_ms":1796000000456,"node":"beta","group":"db","kind":"state","text":"db: logging, then syncing","from":"logging","to":"syncing","lag_seconds":0.5,"clean":true}"#;

fn status_reply() -> String {
    format!(
        r#"{{"reply":"status","schema":"farshore-status/1","cluster":"harbour","node":"beta","version":"0.1.0","uptime_s":12.5,"warnings":[],"links":[],"groups":[{GROUP}]}}"#
    )
}

fn events_reply() -> String {
    format!(
        r#"{{"reply":"events","schema":"farshore-events/1","node":"beta","events":[{EVENT}],"first":1,"last":1796000000123,"position":1796000000123,"more":false,"warnings":[]}}"#
    )
}

pub fn reply_seeds() -> Vec<Seed> {
    vec![
        ("ok", OK.into()),
        ("error", ERROR.into()),
        ("refusal", REFUSAL.into()),
        ("operation", OPERATION.into()),
        ("status", status_reply().into()),
        ("counters", COUNTERS.into()),
        ("recorded", RECORDED.into()),
        ("link_history", LINK_HISTORY.into()),
        ("clients", CLIENTS.into()),
        ("events", events_reply().into()),
        ("more_than_asked", MORE_THAN_ASKED.into()),
    ]
}

/// Rule: whatever an event holds, it is one line, and what everybody reads of it comes back.
pub fn event_line(bytes: &[u8]) {
    let Ok(record) = serde_json::from_slice::<EventRecord>(bytes) else { return };
    let line = record.line();
    assert!(line.ends_with('\n') && line.matches('\n').count() == 1, "{line:?}");
    let again: EventRecord = serde_json::from_str(&line).expect("it is read again");
    assert_eq!((again.number, again.time_unix_ms), (record.number, record.time_unix_ms));
    assert_eq!((&again.node, &again.group, &again.peer), (&record.node, &record.group, &record.peer));
    assert_eq!((&again.kind, &again.text), (&record.kind, &record.text));
    assert!(again.fields.keys().eq(record.fields.keys()), "{line:?}");
}

pub fn event_line_seeds() -> Vec<Seed> {
    vec![("state", EVENT.into()), ("started", STARTED.into()), ("newer", NEWER.into())]
}

const STARTED: &str = r#"{"schema":"farshore-event/1","number":1,"time_unix_ms":0,"node":"beta","kind":"daemon-started","text":"a\nb \u001b[31m","version":"0.1.0"}"#;
const NEWER: &str = r#"{"schema":"farshore-event/2","number":18446744073709551615,"time_unix_ms":18446744073709551615,"node":"","peer":"alpha","kind":"no-such","text":"","more":{"deep":[[[]]]}}"#;

/// Rule: what is read comes back when it is written again, and a sentence about a wrong one has nothing of it.
pub fn join_token(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match JoinToken::parse(&text) {
        Ok(token) => {
            assert!(!token.end_text().is_empty() && token.has_ended(u64::MAX));
            assert_eq!(JoinToken::parse(&token.to_string()), Ok(token));
        }
        Err(why) => assert!(why.len() < 200, "{why}"),
    }
}

pub fn join_token_seeds() -> Vec<Seed> {
    let token = |address: SocketAddr, end_unix_s| {
        let fingerprint = std::array::from_fn(|at| at as u8);
        JoinToken::new(address, end_unix_s, fingerprint, [0xa5; SECRET_BYTES]).to_string().into_bytes()
    };
    let ipv4 = SocketAddr::from(([10, 0, 0, 1], 7337));
    let ipv6 = SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 1], 1));
    vec![
        ("ipv4", token(ipv4, 1_900_000_000)),
        ("ipv6", token(ipv6, 1_900_000_000)),
        ("without_end", token(ipv4, u64::MAX)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_understood() {
        for (name, bytes) in reply_seeds() {
            assert!(Reply::read(&bytes).is_ok(), "{name}");
        }
        for (name, bytes) in event_line_seeds() {
            assert!(serde_json::from_slice::<EventRecord>(&bytes).is_ok(), "{name}");
        }
        for (name, bytes) in join_token_seeds() {
            assert!(JoinToken::parse(&String::from_utf8_lossy(&bytes)).is_ok(), "{name}");
        }
    }
}
