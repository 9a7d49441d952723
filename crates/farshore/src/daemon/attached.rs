//! Clients of an export that is to be closed, in words.

use std::time::Duration;

use host::frontend::{ClientInfo, RequestSum};
use settings::NodeName;
use units::exact::show_seconds;

use crate::api::refusals::DeskRefusal;
use crate::api::{CLIENTS_SCHEMA, ClientList, ClientView, Reply, RequestSums};

/// A client that has just disconnected may be attached for a moment still: so often is looked again before a refusal, after so long.
pub const LOOKS: u32 = 10;
pub const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Of more than these only the number is told.
const SHOWN_MAX: usize = 16;

/// All that is known of who is attached, or of those at one group's exports.
pub fn list(node: &NodeName, clients: &[ClientInfo], group: Option<&str>) -> ClientList {
    let is_of = |client: &&ClientInfo| {
        group.is_none_or(|group| client.export.split_once('/').is_some_and(|(of, _)| of == group))
    };
    let clients = clients.iter().filter(is_of).map(shown).collect();
    ClientList { schema: CLIENTS_SCHEMA.to_owned(), node: node.to_string(), clients }
}

fn shown(client: &ClientInfo) -> ClientView {
    let sums = |sum: RequestSum| RequestSums { requests: sum.requests, bytes: sum.bytes };
    let usage = client.usage;
    ClientView {
        export: client.export.clone(),
        who: client.who.clone(),
        address: client.address.map(|address| address.to_string()),
        process: client.process,
        user: client.user,
        certificate: client.certificate.clone(),
        since_s: client.attached.as_secs_f64(),
        agreed: client.agreed.iter().map(|word| (*word).to_owned()).collect(),
        reads: sums(usage.reads),
        writes: sums(usage.writes),
        flushes: sums(usage.flushes),
        trims: sums(usage.trims),
        zeroes: sums(usage.zeroes),
        in_flight: client.in_flight as u64,
        last_request_s: client.last_request.map(|ago| ago.as_secs_f64()),
        last_flush_s: client.last_flush.map(|ago| ago.as_secs_f64()),
    }
}

/// Why the group's export is not closed now, who keeps it, and what to do. `again`: the command as it was typed.
pub fn refusal(group: &str, clients: &[ClientInfo], again: &str) -> Reply {
    let count = clients.len();
    let (subject, object) =
        if count == 1 { ("1 client is".to_owned(), "it") } else { (format!("{count} clients are"), "them") };
    let mut lines = vec![format!("{group}: {subject} attached, and would fail with what is not flushed:")];
    lines.extend(listed(clients));
    lines.push(format!("Unmount and disconnect {object} first, or cut {object} off: farshore {again} --close-clients"));
    Reply::refused(DeskRefusal::ClientsAttached, lines.join("\n"))
}

/// Who is cut off, for the answer or the log; `None`: nobody.
pub fn cut_off(clients: &[ClientInfo]) -> Option<String> {
    let count = clients.len();
    let (whom, fails) = match count {
        0 => return None,
        1 => ("1 NBD client is".to_owned(), "it fails with what it has"),
        _ => (format!("{count} NBD clients are"), "they fail with what they have"),
    };
    Some(format!("{whom} cut off, {fails} not flushed:\n{}", listed(clients).join("\n")))
}

/// The same at the end of an answer, whether the demotion came about or not.
pub fn name_cut_off(reply: &mut Reply, clients: &[ClientInfo]) {
    if let (Reply::Ok { message, .. } | Reply::Error { message, .. }, Some(whom)) = (reply, cut_off(clients)) {
        *message += &format!("\n{whom}");
    }
}

/// Leaves those that are attached no more. Who has connected again since is gone: it was cut off too.
pub fn leave_gone(clients: &mut Vec<ClientInfo>, now: &[ClientInfo]) {
    let is = |before: &ClientInfo, now: &ClientInfo| {
        (&before.export, &before.who) == (&now.export, &now.who) && now.attached >= before.attached
    };
    clients.retain(|before| !now.iter().any(|now| is(before, now)));
}

fn listed(clients: &[ClientInfo]) -> Vec<String> {
    let more = clients.len().saturating_sub(SHOWN_MAX);
    let rest = (more > 0).then(|| format!("  and {more} more"));
    clients.iter().take(SHOWN_MAX).map(describe).chain(rest).collect()
}

fn describe(client: &ClientInfo) -> String {
    let ClientInfo { export, who, attached, last_request, .. } = client;
    let asked = match last_request {
        Some(ago) => format!("last request {} ago", show_seconds(ago.as_secs_f64())),
        None => "no request yet".to_owned(),
    };
    format!("  {export}: {who}, attached for {}, {asked}", show_seconds(attached.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ErrorCode;

    fn client(number: u64) -> ClientInfo {
        ClientInfo {
            export: "db/data".to_owned(),
            who: format!("10.0.0.7:{number}"),
            attached: Duration::from_secs(3600 + 120),
            last_request: (number > 1).then(|| Duration::from_millis(400)),
            ..ClientInfo::default()
        }
    }

    fn text(clients: &[ClientInfo]) -> String {
        match refusal("db", clients, "demote db") {
            Reply::Error { message, code: ErrorCode::Refused, .. } => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn who_is_cut_off_is_named() {
        assert_eq!(cut_off(&[]), None);
        assert_eq!(
            cut_off(&[client(1)]).as_deref(),
            Some(
                "1 NBD client is cut off, it fails with what it has not flushed:\n  db/data: 10.0.0.7:1, attached for 1 h 2 min, no request yet"
            )
        );
    }

    /// A demotion that failed while it drained had cut its clients off, and named nobody.
    #[test]
    fn an_answer_names_who_was_cut_off_whatever_came_of_it() {
        let (mut clients, again) = (vec![client(1), client(2), client(3)], Duration::from_secs(1));
        leave_gone(&mut clients, &[client(2), ClientInfo { attached: again, ..client(3) }]);
        assert_eq!(clients, [client(1), client(3)]);
        for mut reply in [Reply::ok("demoted"), Reply::error(ErrorCode::Refused, "it stays primary, and failed")] {
            name_cut_off(&mut reply, &[]);
            name_cut_off(&mut reply, &[client(1)]);
            let (Reply::Ok { message, .. } | Reply::Error { message, .. }) = reply else { panic!("{reply:?}") };
            assert!(message.contains("\n1 NBD client is cut off") && message.contains("10.0.0.7:1,"), "{message}");
        }
    }

    #[test]
    fn clients_are_listed_and_the_way_out_is_reported() {
        assert_eq!(
            text(&[client(1)]),
            "db: 1 client is attached, and would fail with what is not flushed:\n  \
             db/data: 10.0.0.7:1, attached for 1 h 2 min, no request yet\n\
             Unmount and disconnect it first, or cut it off: farshore demote db --close-clients"
        );
        let many: Vec<ClientInfo> = (1..=20).map(client).collect();
        let text = text(&many);
        assert!(text.contains("20 clients are attached") && text.contains("last request 0.4 s ago"), "{text}");
        assert!(
            text.contains("10.0.0.7:16,") && !text.contains("10.0.0.7:17,") && text.contains("and 4 more"),
            "{text}"
        );
    }
}
