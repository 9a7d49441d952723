//! What the doctor's sheet takes of a daemon's status.

use std::net::SocketAddr;

use toolkit::doctor::facts::{LinkFacts, QueueFacts, Tcp};
use toolkit::doctor::gather::{DaemonFacts, DaemonLink};

use crate::api::{BufferStatus, GroupView, LinkRecord, LinkReport, NodeView, SocketStatus};

/// What a status tells, of its links the one to `peer`: a name, and where that is if it is known.
pub fn daemon(status: &NodeView, peer: Option<&(String, Option<SocketAddr>)>, history: &[LinkRecord]) -> DaemonFacts {
    let is_there = |link: &&LinkReport| {
        let Some((name, address)) = peer else { return false };
        link.node == *name || address_of(link).zip(*address).is_some_and(|(there, wanted)| there == wanted)
    };
    DaemonFacts {
        node: status.node.clone(),
        version: status.version.clone(),
        certificate_until: status.tls.as_ref().map(|tls| tls.certificate_until.clone()),
        memory_bytes: status.shared.map_or(0, |shared| shared.memory_bytes),
        queues: status.groups.iter().map(queue).collect(),
        link: status.links.iter().find(is_there).map(|link| live(link, history)),
    }
}

fn queue(group: &GroupView) -> QueueFacts {
    QueueFacts {
        group: group.name.clone(),
        bytes_hwm: group.queue.bytes_hwm,
        limit_bytes: group.queue.limit_bytes,
        items_hwm: group.queue.items_hwm,
        limit_items: group.queue.limit_items,
        blocked_ms: group.queue.blocked_ms,
    }
}

fn address_of(link: &LinkReport) -> Option<SocketAddr> {
    link.address.as_ref()?.parse().ok()
}

fn live(link: &LinkReport, history: &[LinkRecord]) -> DaemonLink {
    DaemonLink {
        address: address_of(link),
        settings: link.settings.iter().map(|(key, found)| (key.clone(), found.value.clone())).collect(),
        facts: facts(link, history),
    }
}

fn facts(link: &LinkReport, history: &[LinkRecord]) -> LinkFacts {
    let best = history.iter().map(|record| record.sent_bytes_per_s_max).max();
    LinkFacts {
        state: link.link.to_string(),
        reason: link.link_reason.clone(),
        warnings: link.warnings.clone(),
        verdict: link.verdict.clone(),
        limit: link.limit.as_ref().map(ToString::to_string),
        tcp: link.tcp.map(|tcp| Tcp {
            rtt_s: tcp.rtt_ms / 1000.0,
            rtt_min_s: tcp.rtt_min_ms / 1000.0,
            rto_s: tcp.rto_ms / 1000.0,
            path_mtu: u32::try_from(tcp.path_mtu_bytes).unwrap_or(0),
            segment_bytes: u32::try_from(tcp.segment_bytes).unwrap_or(0),
            retransmitted_share: tcp.retransmitted_share,
            sent_bytes: tcp.sent_bytes,
        }),
        send_buffer_bytes: link.socket.as_ref().and_then(|socket| fixed(&socket.send_buffer)),
        receive_buffer_bytes: link.socket.as_ref().and_then(|socket| fixed(&socket.receive_buffer)),
        rto_max_s: link.socket.as_ref().and_then(rto_max_s),
        congestion: link.socket.as_ref().map(|socket| socket.congestion.clone()).filter(|name| !name.is_empty()),
        best_bytes_per_s: best.map(|bytes| bytes as f64),
    }
}

fn rto_max_s(socket: &SocketStatus) -> Option<f64> {
    let option = socket.options.iter().find(|option| option.option == "TCP_RTO_MAX_MS")?;
    option.granted.map(|ms| ms as f64 / 1000.0)
}

/// What was granted of a size that was asked for: the kernel counts twice that.
fn fixed(buffer: &BufferStatus) -> Option<u64> {
    buffer.requested_bytes.map(|_| buffer.granted_when_connected_bytes / 2)
}
