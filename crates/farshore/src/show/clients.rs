//! `clients` as text for eyes.

use toolkit::screen::Paint;
use units::exact::{show_seconds, show_size};

use super::table::{Table, plain};
use crate::api::{ClientList, ClientView, RequestSums};

/// A row for each connection, and below it what only some have.
pub fn page(list: &ClientList, paint: &Paint) -> String {
    if list.clients.is_empty() {
        return format!("No client uses an export of {} now.\n", list.node);
    }
    let head = [
        "EXPORT",
        "CLIENT",
        "SINCE",
        "READ",
        "WRITTEN",
        "FLUSHES",
        "TRIMMED",
        "IN FLIGHT",
        "LAST REQUEST",
        "LAST FLUSH",
    ];
    let mut table = Table::new(head);
    for client in &list.clients {
        table.row([
            plain(&client.export),
            plain(&who(client)),
            plain(&show_seconds(client.since_s)),
            plain(&sums(client.reads)),
            plain(&sums(client.writes)),
            plain(&client.flushes.requests.to_string()),
            plain(&sums(trimmed(client))),
            plain(&client.in_flight.to_string()),
            plain(&ago(client.last_request_s)),
            plain(&ago(client.last_flush_s)),
        ]);
    }
    table.text("", paint)
}

fn who(client: &ClientView) -> String {
    let user = client.user.map(|user| format!(", user {user}")).unwrap_or_default();
    let certificate = client.certificate.as_ref().map(|holder| format!(", {holder}")).unwrap_or_default();
    let agreed = match client.agreed.as_slice() {
        [] => String::new(),
        words => format!(" [{}]", words.join(" ")),
    };
    format!("{}{user}{certificate}{agreed}", client.who)
}

/// Zeroes free space as a trim does, as far as the device has it.
fn trimmed(client: &ClientView) -> RequestSums {
    RequestSums {
        requests: client.trims.requests.saturating_add(client.zeroes.requests),
        bytes: client.trims.bytes.saturating_add(client.zeroes.bytes),
    }
}

fn sums(sums: RequestSums) -> String {
    match sums.requests {
        0 => "-".to_owned(),
        requests => format!("{} in {requests}", show_size(sums.bytes)),
    }
}

fn ago(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "never".to_owned(), |seconds| format!("{} ago", show_seconds(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_row_and_nobody_has_a_sentence() {
        let sums = |requests, bytes| RequestSums { requests, bytes };
        let client = ClientView {
            export: "db/data".to_owned(),
            who: "10.0.0.7:99".to_owned(),
            address: Some("10.0.0.7:99".to_owned()),
            process: None,
            user: None,
            certificate: Some("farshore://test/client/backup".to_owned()),
            since_s: 60.0,
            agreed: vec!["tls".to_owned(), "read-only".to_owned()],
            reads: sums(3, 4096),
            writes: sums(0, 0),
            flushes: sums(2, 0),
            trims: sums(1, 512),
            zeroes: sums(1, 512),
            in_flight: 4,
            last_request_s: Some(2.0),
            last_flush_s: None,
        };
        let list = ClientList { schema: String::new(), node: "near".to_owned(), clients: vec![client] };
        let text = page(&list, &Paint::plain());
        for part in ["10.0.0.7:99, farshore://test/client/backup [tls read-only]", "4 KiB in 3", "1 KiB in 2", "never"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let most = ClientView { trims: sums(u64::MAX, u64::MAX), ..list.clients[0].clone() };
        let text = page(&ClientList { clients: vec![most], ..list.clone() }, &Paint::plain());
        assert!(text.contains("16777216 TiB in 18446744073709551615"), "no number wraps: {text}");
        let nobody = page(&ClientList { clients: Vec::new(), ..list }, &Paint::plain());
        assert_eq!(nobody, "No client uses an export of near now.\n");
    }
}
