//! The links as text for eyes: one line in `status`, all of it in `link show`, a table in `link history`.

use toolkit::screen::{Paint, clean};
use units::exact::{show_rate, show_seconds, show_size, time_text};

use super::table::{Table, in_one_line, plain, titled};
use crate::api::{
    BufferStatus, CompressionStatus, LinkHistoryRow, LinkRecord, LinkReport, LinkState, SocketStatus, TcpStatus,
};

/// One line per link for `status`, and what needs an eye.
pub fn lines(links: &[LinkReport], paint: &Paint) -> String {
    let mut text = String::new();
    for link in links {
        text += &format!("link {}\n", in_one_line(&head(link)));
        for warning in &link.warnings {
            text += &format!(
                "{} link {}: {}\n",
                paint.with(toolkit::screen::Colour::Bad, "!"),
                clean(&link.node),
                in_one_line(warning)
            );
        }
    }
    text
}

/// `beta: connected for 2 h; 50.2 ms (at best 49.9), 93.1 Mbit/s out, ...; limited by the network`.
fn head(link: &LinkReport) -> String {
    let mut text = format!("{}: {} for {}", link.node, link.link, show_seconds(link.link_since_s));
    if let Some(reason) = &link.link_reason {
        text += &format!(" ({reason})");
    }
    if let Some(tcp) = &link.tcp {
        text += &format!("; {}", now(tcp));
    }
    // Below, nothing to speak of was saved.
    if let Some(compression) = link.compression.as_ref().filter(|compression| compression.sent_ratio >= 1.05) {
        text += &format!("; compressed {:.1} : 1", compression.sent_ratio);
    }
    if let Some(verdict) = &link.verdict {
        text += &format!("; {verdict}");
    }
    text
}

fn now(tcp: &TcpStatus) -> String {
    format!(
        "round trip {} (at best {}), {} out, {} in, {} sent again",
        milliseconds(tcp.rtt_ms),
        milliseconds(tcp.rtt_min_ms),
        show_rate(tcp.sent_bytes_per_s),
        show_rate(tcp.received_bytes_per_s),
        percent(tcp.retransmitted_share)
    )
}

fn milliseconds(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{ms:.1} ms") }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// Everything about the links.
pub fn pages(links: &[LinkReport], paint: &Paint) -> String {
    if links.is_empty() {
        return "This node has no link.\n".to_owned();
    }
    links.iter().map(|link| page(link, paint)).collect::<Vec<_>>().join("\n")
}

fn page(link: &LinkReport, paint: &Paint) -> String {
    let mut text = format!("{}\n", paint.with(toolkit::screen::Colour::Head, &clean(&link.node)));
    let mut line = |title: &str, content: &str| text += &titled(title, 16, content);
    let reason = link.link_reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    line("State", &format!("{} for {}{reason}", link.link, show_seconds(link.link_since_s)));
    if let (Some(address), Some(dialed)) = (&link.address, link.dialed) {
        let way = if dialed { "dialed" } else { "accepted from" };
        line("Connection", &format!("{way} {address}, number {} since the start", link.connections));
    }
    for warning in &link.warnings {
        line("Warning", warning);
    }
    if let Some(verdict) = &link.verdict {
        line("Verdict", verdict);
    }
    if let Some(tcp) = &link.tcp {
        tcp_lines(tcp, &mut line);
    }
    let waits = if link.rate_held == Some(true) { "; what is to be sent waits for the rate" } else { "" };
    if let Some(allowed) = link.allowed_bytes_per_s {
        line("Rate", &format!("at most {} now{waits}", show_rate(allowed as f64)));
    }
    if let Some(compression) = &link.compression {
        line("Compression", &compression_line(compression));
        let (copied, sent) = (compression.sent_copied_bytes, compression.sent_plain_bytes);
        line(
            "Copied",
            &format!("{} of {} sent; the rest from where clients' requests stand", show_size(copied), show_size(sent)),
        );
    }
    if let Some(socket) = &link.socket {
        socket_lines(socket, &mut line);
    }
    let settings: Vec<String> = link
        .settings
        .iter()
        .map(|(key, setting)| {
            let set = if setting.origin == crate::api::Origin::Set { " (set)" } else { "" };
            format!("{key} = {}{set}", setting.value)
        })
        .collect();
    line("Settings", &settings.join(", "));
    text
}

fn tcp_lines(tcp: &TcpStatus, line: &mut impl FnMut(&str, &str)) {
    line("Now", &now(tcp));
    let limits = format!(
        "of the time {} busy; of that {} limited by the receiver's window, {} by the send buffer",
        percent(tcp.busy_share),
        percent(tcp.receiver_limited_share),
        percent(tcp.buffer_limited_share)
    );
    line("Limits", &limits);
    let window = format!(
        "the peer takes {}, this node {}; congestion window {}, up to {} unsent; segments of {} bytes, path MTU {}",
        show_size(tcp.send_window_bytes),
        show_size(tcp.receive_window_bytes),
        show_size(tcp.cwnd_bytes),
        show_size(tcp.unsent_limit_bytes),
        tcp.segment_bytes,
        tcp.path_mtu_bytes
    );
    line("Windows", &window);
    let sums = format!(
        "{} sent, {} of it again, {} received; retransmission after {}",
        show_size(tcp.sent_bytes),
        show_size(tcp.retransmitted_bytes),
        show_size(tcp.received_bytes),
        milliseconds(tcp.rto_ms)
    );
    line("In all", &sums);
}

fn compression_line(compression: &CompressionStatus) -> String {
    let reason = compression.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!(
        "{}{reason}; sent {} as {} ({:.2} : 1), received {} as {} ({:.2} : 1)",
        compression.method,
        show_size(compression.sent_plain_bytes),
        show_size(compression.sent_wire_bytes),
        compression.sent_ratio,
        show_size(compression.received_plain_bytes),
        show_size(compression.received_wire_bytes),
        compression.received_ratio
    )
}

fn socket_lines(socket: &SocketStatus, line: &mut impl FnMut(&str, &str)) {
    line("Send buffer", &buffer(&socket.send_buffer));
    line("Receive buffer", &buffer(&socket.receive_buffer));
    line("Congestion", &format!("{} ({} was asked)", socket.congestion, socket.congestion_requested));
    let options: Vec<String> = socket
        .options
        .iter()
        .map(|option| match option.granted {
            Some(granted) if granted == option.requested => format!("{} = {granted}", option.option),
            Some(granted) => format!("{} = {granted} ({} was asked)", option.option, option.requested),
            None => format!("{} not known to this kernel", option.option),
        })
        .collect();
    line("Options", &options.join(", "));
}

fn buffer(buffer: &BufferStatus) -> String {
    let (created, connected) = (buffer.granted_at_creation_bytes, buffer.granted_when_connected_bytes);
    match buffer.requested_bytes {
        None => format!(
            "auto: the kernel began with {} and tunes it (its own count, about 0.62 of it usable)",
            show_size(connected)
        ),
        Some(asked) => format!(
            "{} asked; the kernel counts {} at creation, {} when connected: twice what it grants, about 0.62 of it usable",
            show_size(asked),
            show_size(created),
            show_size(connected)
        ),
    }
}

/// What `link history` prints; `against` names the other columns.
pub fn history(rows: &[LinkHistoryRow], against: Option<&str>, paint: &Paint) -> String {
    let out = against.map_or(String::new(), |_| "OUT BEFORE".to_owned());
    let trip = against.map_or(String::new(), |_| "TRIP BEFORE".to_owned());
    let mut table = Table::new(["FROM (UTC)", "UP", "OUT", "PEAK", "IN", "ROUND TRIP", "AGAIN", "LIMITS", &out, &trip]);
    for LinkHistoryRow { from_unix_ms, now, before } in rows {
        let before = before.as_ref();
        table.row([
            plain(&moment(*from_unix_ms)),
            plain(&up(now)),
            plain(&show_rate(rate(now.sent_bytes, now))),
            plain(&show_rate(now.sent_bytes_per_s_max as f64)),
            plain(&show_rate(rate(now.received_bytes, now))),
            plain(&round_trip(now)),
            plain(&percent(share(now.retransmitted_bytes, now.sent_bytes))),
            plain(&limits(now)),
            plain(&before.map_or(String::new(), |before| show_rate(rate(before.sent_bytes, before)))),
            plain(&before.map_or(String::new(), round_trip)),
        ]);
    }
    let text = table.text("", paint);
    match against {
        Some(ago) => format!("{text}\nBEFORE: the same stretch {ago} earlier.\n"),
        None => text,
    }
}

fn moment(unix_ms: u64) -> String {
    // The minute is exact enough; the rest of RFC 3339 would only fill the column.
    time_text(unix_ms.saturating_mul(1_000_000)).chars().take(16).collect::<String>().replace('T', " ")
}

fn up(record: &LinkRecord) -> String {
    format!("{:.0} %", share(record.connected_ms, record.covered_ms) * 100.0)
}

fn rate(bytes: u64, record: &LinkRecord) -> f64 {
    if record.covered_ms == 0 { 0.0 } else { bytes as f64 * 1000.0 / record.covered_ms as f64 }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}

fn round_trip(record: &LinkRecord) -> String {
    if record.rtt_mean_us == 0 {
        return "-".to_owned();
    }
    let ms = |us: u64| us as f64 / 1000.0;
    let (least, mean, most) = (ms(record.rtt_min_us), ms(record.rtt_mean_us), ms(record.rtt_max_us));
    format!("{least:.1}/{mean:.1}/{most:.1} ms")
}

fn limits(record: &LinkRecord) -> String {
    let receiver = share(record.receiver_limited_ms, record.busy_ms) * 100.0;
    let buffer = share(record.buffer_limited_ms, record.busy_ms) * 100.0;
    format!("window {receiver:.0} %, buffer {buffer:.0} %")
}

/// Whether an operator should look.
pub fn needs_attention(link: &LinkReport) -> bool {
    !link.warnings.is_empty() || !matches!(link.link, LinkState::Connected | LinkState::Congested)
}
