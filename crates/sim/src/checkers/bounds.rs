//! How much a node holds in memory, and for how long a client waits (P8).

use engine::limits::{DISK_QUEUE_BATCH_BYTES, KIB, PART_BYTES_MAX, SAVE_HELD_BYTES_MAX};

use super::writes::WriteOracle;
use crate::nodes::SimCluster;
use crate::oracle::{Oracle, OracleFailure};

const SECOND: u64 = 1_000_000_000;

/// A request may wait for `wait_limit`, a peer window and a slow disk, never for longer than this beside them.
const ANSWER_SLACK_NS: u64 = 60 * SECOND;

/// The longest write of a client, with its bookkeeping.
const LARGEST_REQUEST_BYTES: u64 = 256 * KIB;

/// What one write and one region read may hold beyond the queue's limit: a lone write is always let in.
const QUEUE_SLACK_BYTES: u64 = 256 * KIB;

/// Payload that lives beyond what is counted: a lone write and one region read, and as much that is confirmed in part.
const PAYLOAD_SLACK_BYTES: u64 = 2 * QUEUE_SLACK_BYTES;

fn holds_too_much(what: String) -> Result<(), OracleFailure> {
    Err(OracleFailure::new(Oracle::Memory, what))
}

/// Each group's queue and window stay within their limits.
pub fn check_groups(cluster: &SimCluster) -> Result<(), OracleFailure> {
    let o = &cluster.options;
    let engines = cluster.iter().enumerate().filter_map(|(node, sim)| Some((node, sim.engine()?)));
    for (node, status) in engines.flat_map(|(node, engine)| engine.status().into_iter().map(move |s| (node, s))) {
        // One that was made smaller holds what it held.
        let queue_limit = status.settings.queue_bytes.max(o.queue_bytes) + QUEUE_SLACK_BYTES;
        let queue_items = status.settings.queue_items.max(o.queue_items);
        let over = if status.queue.bytes > queue_limit {
            format!("its queue holds {} bytes of {queue_limit}", status.queue.bytes)
        } else if status.queue.items > queue_items + 64 {
            format!("its queue holds {} items of {queue_items}", status.queue.items)
        } else if status.unapplied_bytes > o.window_bytes {
            format!("it holds {} bytes unapplied, the window is {}", status.unapplied_bytes, o.window_bytes)
        } else {
            continue;
        };
        return holds_too_much(format!("node {node} group {}: {over}", status.id.0));
    }
    Ok(())
}

/// What a node's groups hold stays within its limit, but for the first write and one part of a resync of each.
pub fn check_node(cluster: &SimCluster, node: usize) -> Result<(), OracleFailure> {
    let Some(engine) = cluster[node].engine() else { return Ok(()) };
    let (shared, o) = (engine.shared(), &cluster.options);
    let slack = u64::from(o.groups()) * (LARGEST_REQUEST_BYTES + PART_BYTES_MAX.min(o.window_bytes));
    let (held, limit) = (shared.memory_bytes, shared.memory_limit_bytes);
    if held > limit + slack {
        return holds_too_much(format!("node {node} holds {held} bytes, its limit is {limit}"));
    }
    Ok(())
}

/// The payload that lives on a node, counted by its buffers, stays within what is configured, but for what clients
/// have not been answered for and a few pieces that are let go of in part.
pub fn check_payload(cluster: &SimCluster, writes: &WriteOracle, node: usize) -> Result<(), OracleFailure> {
    let (o, sim) = (&cluster.options, &cluster[node]);
    let (mut most, mut sum) = (o.memory_bytes, 0);
    for (group, meters) in sim.storage.payload() {
        let (held, aside) = (meters.queued.bytes(), meters.aside.bytes());
        // What one read brought back from the disk queue is let go of as a whole.
        let batch = if o.queue_disk_bytes > 0 { (o.queue_bytes / 8).min(DISK_QUEUE_BATCH_BYTES) } else { 0 };
        let limit = batch + if sim.serves(*group) { o.queue_bytes } else { o.queue_bytes.max(o.window_bytes) };
        (most, sum) = (most + PAYLOAD_SLACK_BYTES, sum + held);
        // What clients asked for is counted only where it decides: this runs after every event.
        let own = || PAYLOAD_SLACK_BYTES + writes.asked_bytes(node, *group);
        if (held > limit + PAYLOAD_SLACK_BYTES && held > limit + own()) || aside > SAVE_HELD_BYTES_MAX {
            let own = own();
            return holds_too_much(format!(
                "node {node} group {} holds {held} bytes of payload of {limit} + {own}, and {aside} aside",
                group.0
            ));
        }
    }
    let asked = || sim.storage.payload().keys().map(|group| writes.asked_bytes(node, *group)).sum::<u64>();
    if sum > most && sum > most + asked() {
        let most = most + asked();
        return holds_too_much(format!("node {node} holds {sum} bytes of payload, it may hold {most}"));
    }
    Ok(())
}

/// Every client is answered in bounded time while its node serves.
pub fn check_answers(cluster: &SimCluster, writes: &WriteOracle, now: u64) -> Result<(), OracleFailure> {
    let limit = cluster.options.wait_limit_ms * 1_000_000 + ANSWER_SLACK_NS;
    let Some((id, node, since)) = writes.oldest() else { return Ok(()) };
    if now - since > limit && cluster[node].storage.trouble.stalled_until < since {
        let what = format!("request {} on node {node} has waited {} s", id.0, (now - since) / SECOND);
        return Err(OracleFailure::new(Oracle::Liveness, what));
    }
    Ok(())
}
