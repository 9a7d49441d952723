//! The way to the peer: whether it is there, how far, how large a packet, how much is lost; and its clock.

use host::link::meter::Limit;

use crate::doctor::facts::{EndFacts, LinkFacts, PeerFacts, Tcp};
use crate::doctor::words::time;
use crate::doctor::{Check, CheckVerdict};

/// As the link's own verdicts (docs/book/link.md): more is loss; the round trip so much above the shortest is a queue.
const LOSS_SHARE_MAX: f64 = 0.001;
const QUEUE_FACTOR: f64 = 1.5;
const QUEUE_MIN_S: f64 = 0.005;
/// Less was sent than tells of loss.
const ENOUGH_BYTES: u64 = 1 << 20;
/// A recovery point is told by the primary's clock.
const CLOCK_OFFSET_MAX_S: f64 = 1.0;

pub fn checks(facts: &EndFacts) -> Vec<Check> {
    let Some(peer) = &facts.peer else {
        return vec![Check::unknown("peer", "none was named and no configuration says: give PEER, or --config")];
    };
    let mut list = vec![reach(peer, facts.link.as_ref())];
    if let Some(link) = &facts.link {
        list.extend(link_state(link));
    }
    let tcp = facts.link.as_ref().and_then(|link| link.tcp.as_ref());
    let congestion = facts.link.as_ref().and_then(|link| link.congestion.as_deref());
    let shorten = match congestion {
        Some("bbr") => "farshore link set pacing=RATE        (a few percent below the line's)",
        _ => "farshore link set congestion=bbr",
    };
    list.extend([round_trip(peer, facts.link.as_ref(), shorten), path_mtu(peer, facts), clock_offset(peer)]);
    list.extend(tcp.map(|tcp| retransmissions(tcp, shorten)));
    list
}

fn reach(peer: &PeerFacts, link: Option<&LinkFacts>) -> Check {
    let named = match &peer.address {
        Some(address) if *address != peer.name => format!("{} at {address}", peer.name),
        _ => peer.name.clone(),
    };
    match (&peer.address, &peer.silence) {
        (None, Some(why)) => Check::new("peer", CheckVerdict::Problem, format!("{}: {why}", peer.name))
            .want("an address")
            .why("nothing about the way to it can be measured")
            .run(format!("getent hosts {}", peer.name.rsplit_once(':').map_or(&*peer.name, |(host, _)| host))),
        (_, Some(why)) => Check::new("peer", CheckVerdict::Problem, format!("{named}: {why}"))
            .want("an answer")
            .why("is the daemon there running, and does every firewall between let its port pass?"),
        (_, None) if link.is_some_and(|link| link.tcp.is_some()) => Check::ok("peer", format!("{named}, linked")),
        (_, None) => Check::ok("peer", format!("{named} answers")),
    }
}

fn link_state(link: &LinkFacts) -> Vec<Check> {
    let reason = link.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let have = format!("{}{reason}", link.state);
    let state = match (link.state.as_str(), &link.verdict) {
        ("connected", Some(verdict)) => Check::ok("link", format!("connected; {verdict}")),
        ("connected", None) => Check::ok("link", have),
        ("congested", _) => Check::new("link", CheckVerdict::Warning, have).run("farshore link show"),
        _ => Check::new("link", CheckVerdict::Problem, have).want("connected").run("farshore link show"),
    };
    let warning = |text: &String| Check::new("link", CheckVerdict::Warning, text.clone()).run("farshore link show");
    std::iter::once(state).chain(link.warnings.iter().map(warning)).collect()
}

fn round_trip(peer: &PeerFacts, link: Option<&LinkFacts>, shorten: &str) -> Check {
    const ID: &str = "round-trip";
    if let Some((link, tcp)) = link.and_then(|link| Some((link, link.tcp.as_ref()?))) {
        let have = format!("{} on the link, at best {}", time(tcp.rtt_s), time(tcp.rtt_min_s));
        let is_queue = tcp.rtt_s > QUEUE_FACTOR * tcp.rtt_min_s && tcp.rtt_s - tcp.rtt_min_s > QUEUE_MIN_S;
        // Who sends next to nothing fills no queue: a peer that acknowledges late looks alike.
        let is_quiet = link.limit.as_deref() == Some(Limit::Nothing.word());
        if is_queue && !is_quiet {
            return Check::new(ID, CheckVerdict::Warning, have)
                .want(format!("near {}", time(tcp.rtt_min_s)))
                .why("packets wait in queues on the way; pacing a few percent below the line's rate, or bbr, keeps them short")
                .run(shorten);
        }
        return Check::ok(ID, have);
    }
    match (peer.ping_rtt_s, peer.handshake) {
        (Some(rtt), _) => Check::ok(ID, format!("{} (ping)", time(rtt))),
        (None, Some(found)) => Check::ok(ID, format!("{} (handshake)", time(found.rtt_s))),
        (None, None) => Check::unknown(ID, "nothing answered: give --rtt"),
    }
}

fn path_mtu(peer: &PeerFacts, facts: &EndFacts) -> Check {
    const ID: &str = "path-mtu";
    let interface = facts.interface.as_ref();
    // The longest IPv4 packet; loopback would carry one byte more.
    let here = interface.map_or(0, |interface| interface.mtu.min(65_535));
    let name = interface.map_or("the interface", |interface| interface.name.as_str());
    if let Some(found) = peer.path_mtu.filter(|_| peer.path_swallows) {
        return Check::new(ID, CheckVerdict::Problem, format!("{found}, and larger packets vanish without a word"))
            .want(format!("{here}, as {name} has, or a word"))
            .why("a sender that is informed sends smaller packets; who is not waits for ever. Mend the path, or send no larger ones")
            .run(format!(
                "ip link set {name} mtu {found}        (or sysctl -w net.ipv4.tcp_mtu_probing=1 on both nodes)"
            ));
    }
    match facts.path_mtu() {
        Some(found) if found < here => Check::new(ID, CheckVerdict::Info, format!("{found}; {name} has {here}"))
            .why("a part of the way is narrower, and says so: the kernel keeps to it"),
        Some(found) => Check::ok(ID, found.to_string()),
        None => Check::unknown(ID, peer.ping_silence.clone().unwrap_or_else(|| "nothing answered".to_owned())),
    }
}

fn clock_offset(peer: &PeerFacts) -> Check {
    const ID: &str = "clock-offset";
    let error = peer.clock_error_s.map(|error| format!(", give or take {}", time(error))).unwrap_or_default();
    match peer.clock_offset_s {
        Some(offset) if offset.abs() > CLOCK_OFFSET_MAX_S => {
            let way = if offset > 0.0 { "ahead" } else { "behind" };
            Check::new(ID, CheckVerdict::Warning, format!("the peer is {} {way}{error}", time(offset.abs())))
                .want("less than 1 s")
                .why("recovery points and logs of the two nodes are compared by their clocks")
                .run("timedatectl set-ntp true        (on both nodes)")
        }
        Some(offset) => Check::ok(ID, format!("{:.0} ms{error}", offset.abs() * 1000.0)),
        None => Check::unknown(
            ID,
            "the peer's kernel does not report its time (ICMP timestamp); both ends' `clock` must be ok",
        ),
    }
}

fn retransmissions(tcp: &Tcp, shorten: &str) -> Check {
    const ID: &str = "retransmissions";
    let have = format!("{:.2} % of what was sent lately", tcp.retransmitted_share * 100.0);
    if tcp.retransmitted_share > LOSS_SHARE_MAX && tcp.sent_bytes >= ENOUGH_BYTES {
        return Check::new(ID, CheckVerdict::Warning, have)
            .want("below 0.1 %")
            .why("pacing helps where queues overflow, bbr where the line loses packets by itself")
            .run(shorten);
    }
    Check::ok(ID, have)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::{InterfaceFacts, TcpHandshake};

    fn reached() -> EndFacts {
        EndFacts {
            interface: Some(InterfaceFacts { name: "eth0".to_owned(), mtu: 1500, ..InterfaceFacts::default() }),
            peer: Some(PeerFacts {
                name: "beta".to_owned(),
                address: Some("10.0.0.2:7337".to_owned()),
                handshake: Some(TcpHandshake { rtt_s: 0.05, path_mtu: 1500, ..TcpHandshake::default() }),
                ping_rtt_s: Some(0.05),
                path_mtu: Some(1500),
                clock_offset_s: Some(0.003),
                clock_error_s: Some(0.026),
                ..PeerFacts::default()
            }),
            ..EndFacts::default()
        }
    }

    fn found(facts: &EndFacts) -> Vec<(&'static str, CheckVerdict)> {
        let list = checks(facts);
        list.iter().filter(|check| check.verdict != CheckVerdict::Ok).map(|check| (check.id, check.verdict)).collect()
    }

    #[test]
    fn a_peer_is_there_or_not() {
        use CheckVerdict::{Info, Problem, Warning};
        assert_eq!(found(&reached()), []);
        assert_eq!(found(&EndFacts::default()), [("peer", Info)]);
        for (change, expected) in [
            ((|p| p.silence = Some("connection refused".to_owned())) as fn(&mut PeerFacts), ("peer", Problem)),
            (|p| (p.address, p.silence) = (None, Some("no such name".to_owned())), ("peer", Problem)),
            (|p| (p.path_mtu, p.path_swallows) = (Some(1400), true), ("path-mtu", Problem)),
            (|p| p.path_mtu = Some(1400), ("path-mtu", Info)),
            (|p| (p.path_mtu, p.handshake) = (None, None), ("path-mtu", Info)),
            (|p| (p.ping_rtt_s, p.handshake) = (None, None), ("round-trip", Info)),
            (|p| p.clock_offset_s = Some(-1.5), ("clock-offset", Warning)),
            (|p| p.clock_offset_s = None, ("clock-offset", Info)),
        ] {
            let mut facts = reached();
            change(facts.peer.as_mut().expect("it is there"));
            assert_eq!(found(&facts), [expected]);
        }
    }

    #[test]
    fn what_the_daemon_measured_is_checked() {
        use CheckVerdict::{Problem, Warning};
        let tcp = Tcp { rtt_s: 0.051, rtt_min_s: 0.05, path_mtu: 1500, sent_bytes: 10 << 20, ..Tcp::default() };
        let up = LinkFacts { state: "connected".to_owned(), tcp: Some(tcp), ..LinkFacts::default() };
        let with = |link: LinkFacts| EndFacts { link: Some(link), ..reached() };
        let lately = |tcp: Tcp| with(LinkFacts { tcp: Some(tcp), ..up.clone() });
        assert_eq!(found(&with(up.clone())), []);
        assert_eq!(found(&lately(Tcp { rtt_s: 0.08, ..tcp })), [("round-trip", Warning)]);
        // An idle link between neighbours, whose heartbeats are acknowledged late.
        let late = Tcp { rtt_s: 0.0096, rtt_min_s: 6e-6, ..tcp };
        let limited_by = |limit: &str| with(LinkFacts { tcp: Some(late), limit: Some(limit.to_owned()), ..up.clone() });
        assert_eq!(found(&limited_by("nothing")), []);
        assert_eq!(found(&limited_by("queueing")), [("round-trip", Warning)]);
        assert_eq!(found(&lately(Tcp { retransmitted_share: 0.002, ..tcp })), [("retransmissions", Warning)]);
        assert_eq!(found(&lately(Tcp { retransmitted_share: 0.002, sent_bytes: 1000, ..tcp })), []);
        let down = LinkFacts { state: "disconnected".to_owned(), tcp: None, ..up.clone() };
        assert_eq!(found(&with(down)), [("link", Problem)]);
        let warned = LinkFacts { warnings: vec!["the kernel granted less".to_owned()], ..up };
        assert_eq!(found(&with(warned)), [("link", Warning)]);
    }

    #[test]
    fn a_path_that_swallows_is_reported_with_its_command() {
        let mut facts = reached();
        let peer = facts.peer.as_mut().expect("it is there");
        (peer.path_mtu, peer.path_swallows) = (Some(1400), true);
        let list = checks(&facts);
        let check = list.iter().find(|check| check.id == "path-mtu").expect("a line");
        assert!(check.command.as_deref().is_some_and(|command| command.starts_with("ip link set eth0 mtu 1400")));
    }
}
