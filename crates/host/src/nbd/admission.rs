//! Connections at exports: how many there may be, and that no client, listener or export takes them all.
//!
//! Most connections go to whoever comes first: a host with a thousand volumes is one client. The last fifth is kept for clients that hold
//! few, and for exports that have none; of that the last quarter for listeners that hold few, however many clients come by another one.
//! So a client of the socket file comes in whatever is held over TCP.

use std::time::Duration;

use super::connection::ClientConnection;

/// Of so many connections a client, or a listener, has a share of the last ones while it holds fewer.
const FEW: usize = 16;
/// A client that asked for nothing for so long is named as idle: longer than any program pauses between two requests of its work.
const IDLE: Duration = Duration::from_secs(300);

/// How many connections are held, in all and by those that a newcomer belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ConnectionCounts {
    all: usize,
    by_client: usize,
    by_listener: usize,
    at_export: usize,
}

impl ConnectionCounts {
    fn leaves_room(self, most: usize) -> bool {
        let (kept_for_few, kept_for_listeners) = (most / 5, most / 20);
        let has_few = self.by_client < FEW || self.at_export == 0;
        self.all < most - kept_for_few
            || (self.all < most - kept_for_listeners && has_few)
            || (self.all < most && self.by_client < FEW && self.by_listener < FEW)
    }
}

/// Why there is no room.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AdmissionRefusal {
    /// For the client: nothing of the others.
    pub answer: String,
    /// For the log.
    pub why: String,
}

/// Whether `newcomer` may come to `export`, where all these connections are, with or without an export.
pub(super) fn check<'a>(
    newcomer: &ClientConnection,
    export: &str,
    most: usize,
    connections: impl Iterator<Item = &'a ClientConnection> + Clone,
) -> Result<(), AdmissionRefusal> {
    let us = newcomer.origin();
    let mut held = ConnectionCounts::default();
    for connection in connections.clone() {
        let Some(at) = connection.export() else { continue };
        let theirs = connection.origin();
        held.all += 1;
        held.by_client += usize::from(theirs.client == us.client);
        held.by_listener += usize::from(theirs.listener == us.listener);
        held.at_export += usize::from(*at == *export);
    }
    if held.leaves_room(most) {
        return Ok(());
    }
    let answer = format!(
        "no slot is left: this node serves {most} connections at once, {} of them are this client's; close some and try again",
        held.by_client
    );
    let all = held.all;
    let quiet = connections.filter_map(|connection| {
        let info = connection.info()?;
        Some((&*connection.origin().client, info.last_request.unwrap_or(info.attached)))
    });
    Err(AdmissionRefusal { answer, why: format!("{all} of {most} client slots are taken; {}", who_holds_most(quiet)) })
}

/// Who holds most, and how much of that idly; of each connection its client, and for how long it has asked for nothing.
fn who_holds_most<'a>(connections: impl Iterator<Item = (&'a str, Duration)>) -> String {
    let mut by_client = std::collections::BTreeMap::<&str, (usize, usize)>::new();
    for (client, quiet) in connections {
        let (held, idle) = by_client.entry(client).or_default();
        *held += 1;
        *idle += usize::from(quiet >= IDLE);
    }
    let most = by_client.into_iter().max_by_key(|(_, (held, _))| *held);
    let (client, (held, idle)) = most.unwrap_or(("nobody", (0, 0)));
    let idle = match idle {
        0 => "all were used in the last 5 minutes".to_owned(),
        idle => format!("{idle} of them asked for nothing in the last 5 minutes: end those"),
    };
    format!("{client} holds most, {held}, and {idle}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 1 280 connections.
    #[test]
    fn the_last_connections_are_for_those_who_hold_few() {
        let held = |all, by_client, by_listener, at_export| ConnectionCounts { all, by_client, by_listener, at_export };
        for (held, may) in [
            // One client of one listener at one export.
            (held(1023, 1023, 1023, 1023), true),
            (held(1024, 1024, 1024, 1024), false),
            (held(1024, 1024, 1024, 0), true),
            (held(1024, 15, 1024, 1024), true),
            (held(1024, 16, 1024, 1024), false),
            // A crowd of clients with few each.
            (held(1215, 15, 1215, 1215), true),
            (held(1216, 0, 1216, 0), false),
            (held(1216, 0, 0, 1216), true),
            (held(1279, 15, 15, 1279), true),
            (held(1279, 16, 16, 0), false),
            (held(1280, 0, 0, 0), false),
        ] {
            assert_eq!(held.leaves_room(1280), may, "{held:?}");
        }
        assert!(held(1, 1, 1, 1).leaves_room(2) && !held(2, 2, 2, 2).leaves_room(2));
    }

    /// Whoever reads the log is to know whose connections can be ended.
    #[test]
    fn who_holds_most_is_named_with_what_it_holds_idly() {
        let answer = |connections: &[(&'static str, u64)]| {
            who_holds_most(connections.iter().map(|(client, quiet_s)| (*client, Duration::from_secs(*quiet_s))))
        };
        let others = [("192.0.2.1", 1000), ("192.0.2.1", 1000)];
        let used = [("192.0.2.7", 0), ("192.0.2.7", 12), ("192.0.2.7", 299)];
        let words = "192.0.2.7 holds most, 3, and all were used in the last 5 minutes";
        assert_eq!(answer(&[&others[..], &used].concat()), words);
        let idle = [("192.0.2.7", 299), ("192.0.2.7", 300), ("192.0.2.7", 86400)];
        let words = "192.0.2.7 holds most, 3, and 2 of them asked for nothing in the last 5 minutes: end those";
        assert_eq!(answer(&[&idle[..], &others].concat()), words);
    }
}
