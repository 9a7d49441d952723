//! The links in the words of the control socket.

use std::collections::BTreeMap;

use engine::status::LinkStatus;
use host::driver::{DriverSnapshot, GroupSnapshot, LinkSnapshot};
use host::link::meter::LinkReading;
use host::link::{Amount, BufferReport, LinkTraffic, PackingState, SocketReport};
use settings::keys::SettingKey;
use settings::{Config, Keyed, LinkOverrides, NodeName, Overrides};
use units::exact::show_seconds;

use super::link_rate;
use crate::api;

/// One for each peer of `here`.
pub(super) fn links(
    (config, here): (&Config, &NodeName),
    overrides: &LinkOverrides,
    snapshot: &DriverSnapshot,
) -> Vec<api::LinkReport> {
    snapshot.links.iter().filter_map(|link| report((config, here), overrides, snapshot, link)).collect()
}

fn report(
    (config, here): (&Config, &NodeName),
    overrides: &LinkOverrides,
    snapshot: &DriverSnapshot,
    link: &LinkSnapshot,
) -> Option<api::LinkReport> {
    let node = &config.peer_by_id(here, link.peer)?.name;
    // The groups of a pair of nodes share the link, so any of them tells.
    let shares = |group: &&GroupSnapshot| {
        let group = config.group_by_id(group.status.id);
        group.is_some_and(|group| group.primary == *node || group.secondary == *node)
    };
    let group = snapshot.groups.iter().find(shares)?;
    let connection = link.connection.as_ref();
    // `auto` changes it while the connection is up.
    let seen = link.reading.as_ref().map(|reading| reading.now.congestion.to_string());
    let congestion = seen.filter(|name| !name.is_empty()).or_else(|| Some(connection?.socket.congestion.clone()));
    let effective = overrides.effective(&config.link.settings);
    let mut warnings = connection.map(|connection| connection.socket.warnings.clone()).unwrap_or_default();
    warnings.extend(link.reading.as_ref().and_then(risen));
    Some(api::LinkReport {
        node: node.to_string(),
        link: group.status.peer.link.word().into(),
        link_since_s: group.link_for.as_secs_f64(),
        link_reason: link_reason(group),
        address: connection.map(|connection| connection.address.to_string()),
        dialed: connection.map(|connection| connection.dialed),
        connections: link.connections,
        settings: settings(overrides, &effective),
        socket: connection.map(|connection| api::SocketStatus {
            congestion: congestion.clone().unwrap_or_default(),
            ..socket(&connection.socket)
        }),
        tcp: link.reading.as_ref().map(tcp),
        compression: link.carried.as_ref().map(compression),
        allowed_bytes_per_s: effective.flow(link_rate::week_minute()).rate,
        rate_held: link.carried.map(|carried| carried.is_held),
        limit: link.reading.as_ref().map(|reading| reading.limit.word().into()),
        verdict: link.reading.as_ref().map(|reading| reading.sentence(congestion.as_deref().unwrap_or_default())),
        warnings,
    })
}

/// Why the link is not simply connected.
pub(super) fn link_reason(snapshot: &GroupSnapshot) -> Option<String> {
    let now = &snapshot.status.peer;
    let reported = (!now.link_reason.is_empty()).then(|| now.link_reason.clone());
    match now.link {
        LinkStatus::Connected => None,
        LinkStatus::Congested => reported,
        LinkStatus::Connecting | LinkStatus::Disconnected => both(reported, snapshot.link_problem.clone()),
    }
}

/// How the last connection ended, and why none comes about since.
fn both(ended: Option<String>, problem: Option<String>) -> Option<String> {
    match (ended, problem) {
        (Some(ended), Some(problem)) => Some(format!("{ended}; {problem}")),
        (ended, problem) => ended.or(problem),
    }
}

/// The value of each key, and where it comes from.
pub(super) fn settings<S: Keyed>(overrides: &Overrides<S>, effective: &S) -> BTreeMap<String, api::SettingStatus> {
    let origin = |key| if overrides.has(key) { api::Origin::Set } else { api::Origin::Config };
    let one =
        |key: SettingKey<S>| (key.to_string(), api::SettingStatus { value: effective.text(key), origin: origin(key) });
    SettingKey::all().map(one).collect()
}

fn risen(reading: &LinkReading) -> Option<String> {
    let (before, after, ago) = reading.risen?;
    Some(format!(
        "retransmissions rose from {:.2} % to {:.2} % of what is sent since the link's settings changed {} ago: if it \
         is that, take the change back with `farshore link set KEY=default`",
        before * 100.0,
        after * 100.0,
        show_seconds(ago.as_secs_f64())
    ))
}

fn compression(carried: &LinkTraffic) -> api::CompressionStatus {
    let ratio = |amount: Amount| match amount.wire_bytes {
        0 => 1.0,
        wire_bytes => amount.plain_bytes as f64 / wire_bytes as f64,
    };
    let method = match carried.doing {
        PackingState::Packing(method) => method.to_string(),
        _ => "none".to_owned(),
    };
    api::CompressionStatus {
        method,
        reason: carried.doing.reason().map(str::to_owned),
        sent_plain_bytes: carried.sent.plain_bytes,
        sent_wire_bytes: carried.sent.wire_bytes,
        sent_ratio: ratio(carried.sent),
        sent_copied_bytes: carried.copied_bytes,
        received_plain_bytes: carried.received.plain_bytes,
        received_wire_bytes: carried.received.wire_bytes,
        received_ratio: ratio(carried.received),
    }
}

fn socket(report: &SocketReport) -> api::SocketStatus {
    let option = |option: &host::link::OptionReport| api::OptionStatus {
        option: option.name.to_owned(),
        requested: option.requested,
        granted: option.granted,
    };
    api::SocketStatus {
        send_buffer: buffer(report.send_buffer),
        receive_buffer: buffer(report.receive_buffer),
        congestion_requested: report.congestion_requested.to_string(),
        congestion: report.congestion.clone(),
        options: report.options.iter().map(option).collect(),
    }
}

fn buffer(report: BufferReport) -> api::BufferStatus {
    api::BufferStatus {
        requested_bytes: report.requested.map(|bytes| bytes as u64),
        granted_at_creation_bytes: report.granted_at_creation as u64,
        granted_when_connected_bytes: report.granted_when_connected as u64,
    }
}

fn tcp(reading: &LinkReading) -> api::TcpStatus {
    let (now, lately) = (&reading.now, &reading.lately);
    let ms = |us: u32| f64::from(us) / 1000.0;
    api::TcpStatus {
        rtt_ms: ms(now.rtt_us),
        rtt_min_ms: ms(now.rtt_min_us),
        rtt_variation_ms: ms(now.rtt_variation_us),
        rto_ms: ms(now.rto_us),
        segment_bytes: now.snd_mss.into(),
        path_mtu_bytes: now.path_mtu.into(),
        cwnd_bytes: now.cwnd_bytes(),
        send_window_bytes: now.send_window_bytes.into(),
        receive_window_bytes: now.receive_window_bytes.into(),
        unsent_bytes: now.unsent_bytes.into(),
        unsent_limit_bytes: now.unsent_limit_bytes.into(),
        sent_bytes: now.bytes_sent,
        received_bytes: now.bytes_received,
        retransmitted_bytes: now.bytes_retransmitted,
        delivery_bytes_per_s: now.delivery_bytes_per_s,
        pacing_bytes_per_s: now.pacing_bytes_per_s,
        sent_bytes_per_s: lately.sent_per_s(),
        received_bytes_per_s: lately.received_per_s(),
        retransmitted_share: lately.retransmitted(),
        busy_share: lately.busy(),
        receiver_limited_share: lately.receiver_limited(),
        buffer_limited_share: lately.buffer_limited(),
        app_limited: now.app_limited,
    }
}
