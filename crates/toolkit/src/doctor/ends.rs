//! Two sheets side by side. What must be alike and is not becomes a line of the report; the rest is for eyes.
//!
//! The other end's sheet comes as a file (`doctor --json` there, `--beside` here), not over the link: a doctor is called
//! when the link is down, or lets only small packets through.

use serde::Serialize;

use super::facts::{EndFacts, InterfaceFacts};
use super::words;
use super::{Check, CheckVerdict};

/// One thing, here and there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EndsRow {
    /// what is compared
    pub what: &'static str,
    /// on this machine; `unknown` where it is not known
    pub here: String,
    /// on the other machine
    pub there: String,
    /// the same, or for measured times within a factor of two
    pub alike: bool,
}

/// Measured times that are so near count as alike.
const ALIKE_FACTOR: f64 = 2.0;

pub fn rows(here: &EndFacts, there: &EndFacts) -> Vec<EndsRow> {
    let row = |what, of: &dyn Fn(&EndFacts) -> Option<String>| {
        let text = |facts| of(facts).unwrap_or_else(|| "unknown".to_owned());
        let (here, there) = (text(here), text(there));
        EndsRow { what, alike: here == there, here, there }
    };
    let card =
        |of: fn(&InterfaceFacts) -> Option<String>| move |facts: &EndFacts| facts.interface.as_ref().and_then(of);
    let sysctl = |name: &'static str, at: usize| move |facts: &EndFacts| facts.sysctl(name, at).map(|n| n.to_string());
    let word = |name: &'static str| move |facts: &EndFacts| facts.sysctls.get(name).cloned();
    let setting = |name: &'static str| move |facts: &EndFacts| facts.settings.get(name).cloned();
    vec![
        row("interface", &card(|card| Some(card.name.clone()))),
        row("mtu", &card(|card| Some(card.mtu.to_string()))),
        row("path mtu", &|facts| facts.path_mtu().map(|mtu| mtu.to_string())),
        row("speed", &card(|card| real(card)?.speed_mbit.map(words::speed))),
        row("duplex", &card(|card| real(card)?.full_duplex.map(|full| if full { "full" } else { "half" }.to_owned()))),
        row(
            "autonegotiation",
            &card(|card| real(card)?.autonegotiation.map(|on| if on { "on" } else { "off" }.to_owned())),
        ),
        row("qdisc", &card(|card| Some(card.qdiscs.join(" over ")))),
        row("tcp_rmem most", &sysctl("net.ipv4.tcp_rmem", 2)),
        row("tcp_wmem most", &sysctl("net.ipv4.tcp_wmem", 2)),
        row("window scaling", &sysctl("net.ipv4.tcp_window_scaling", 0)),
        row("sack", &sysctl("net.ipv4.tcp_sack", 0)),
        row("timestamps", &sysctl("net.ipv4.tcp_timestamps", 0)),
        row("slow start after idle", &sysctl("net.ipv4.tcp_slow_start_after_idle", 0)),
        row("mtu probing", &sysctl("net.ipv4.tcp_mtu_probing", 0)),
        row("system's congestion", &word("net.ipv4.tcp_congestion_control")),
        row("congestion", &setting("congestion")),
        row("buffers", &setting("buffers")),
        row("min_rto", &setting("min_rto")),
        row("max_rto", &setting("max_rto")),
        row("link timeout", &|facts| facts.link_timeout_s.map(words::time)),
        flush(here, there),
        row("kernel", &|facts| Some(facts.kernel.clone())),
        row("farshore", &|facts| Some(facts.daemon.clone().unwrap_or_else(|| facts.farshore.clone()))),
    ]
}

fn flush(here: &EndFacts, there: &EndFacts) -> EndsRow {
    let time = |facts: &EndFacts| {
        facts.disk.as_ref().filter(|disk| disk.failed.is_none() && disk.flush_p50_s > 0.0).map(|disk| disk.flush_p50_s)
    };
    let (ours, theirs) = (time(here), time(there));
    let text = |time: Option<f64>| time.map_or("unknown".to_owned(), words::time);
    let near = |ours: f64, theirs: f64| ours.max(theirs) <= ALIKE_FACTOR * ours.min(theirs);
    let alike = ours.zip(theirs).map_or(ours == theirs, |(ours, theirs)| near(ours, theirs));
    EndsRow { what: "flush of 4 KiB", here: text(ours), there: text(theirs), alike }
}

/// A virtual card's speed is made up.
fn real(card: &InterfaceFacts) -> Option<&InterfaceFacts> {
    (!card.is_virtual).then_some(card)
}

/// What must be alike.
pub fn checks(here: &EndFacts, there: &EndFacts) -> Vec<Check> {
    [mtu(here, there), speed(here, there), versions(here, there), min_rto(here, there)].into_iter().flatten().collect()
}

fn mtu(here: &EndFacts, there: &EndFacts) -> Option<Check> {
    const ID: &str = "both-mtu";
    let (ours, theirs) = (here.interface.as_ref()?, there.interface.as_ref()?);
    let have = format!("{} ({}) here, {} ({}) there", ours.mtu, ours.name, theirs.mtu, theirs.name);
    if ours.mtu == theirs.mtu {
        return Some(Check::ok(ID, have));
    }
    let smaller = ours.mtu.min(theirs.mtu);
    let (name, whose_end) = if ours.mtu > theirs.mtu { (&ours.name, "here") } else { (&theirs.name, "on the peer") };
    let check = Check::new(ID, CheckVerdict::Warning, have)
        .want("the same on both ends")
        .why(
            "on one network segment packets of the larger one vanish at the other; with routers between it costs \
             discovery, which fails where their messages are filtered",
        )
        .run(format!("ip link set {name} mtu {smaller}        ({whose_end})"));
    Some(check)
}

fn speed(here: &EndFacts, there: &EndFacts) -> Option<Check> {
    const ID: &str = "both-speed";
    let speed = |facts: &EndFacts| real(facts.interface.as_ref()?)?.speed_mbit;
    let (ours, theirs) = (speed(here)?, speed(there)?);
    let have = format!("{} here, {} there", words::speed(ours), words::speed(theirs));
    if ours == theirs {
        return Some(Check::ok(ID, have));
    }
    let why = "the slower one is what the link can carry; the faster one fills queues before it";
    Some(Check::new(ID, CheckVerdict::Warning, have).want("the same on both ends").why(why))
}

fn versions(here: &EndFacts, there: &EndFacts) -> Option<Check> {
    const ID: &str = "both-versions";
    let version = |facts: &EndFacts| facts.daemon.clone().unwrap_or_else(|| facts.farshore.clone());
    let (ours, theirs) = (version(here), version(there));
    let have = format!("{ours} here, {theirs} there");
    if ours == theirs {
        return Some(Check::ok(ID, have));
    }
    let why = "they speak the newest protocol that both know; upgrade the older node when convenient";
    Some(Check::new(ID, CheckVerdict::Info, have).want("the same on both ends").why(why))
}

/// It holds only when both announce it.
fn min_rto(here: &EndFacts, there: &EndFacts) -> Option<Check> {
    const ID: &str = "both-min-rto";
    let (ours, theirs) = (here.settings.get("min_rto")?, there.settings.get("min_rto")?);
    if (ours == "off") == (theirs == "off") {
        return None;
    }
    let (value, whose_end) = if ours == "off" { (theirs, "here") } else { (ours, "on the peer") };
    let check = Check::new(ID, CheckVerdict::Warning, format!("{ours} here, {theirs} there"))
        .want("set on both nodes")
        .why("one node's alone is not used: the other's delayed acknowledgements would pass for losses")
        .run(format!("farshore link set min_rto={value}        ({whose_end})"));
    Some(check)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(mtu: u32) -> EndFacts {
        EndFacts {
            interface: Some(InterfaceFacts {
                name: "eth0".to_owned(),
                mtu,
                speed_mbit: Some(1000),
                full_duplex: Some(true),
                ..InterfaceFacts::default()
            }),
            farshore: "1.2.0".to_owned(),
            ..EndFacts::default()
        }
    }

    fn found(here: &EndFacts, there: &EndFacts) -> Vec<(&'static str, CheckVerdict)> {
        let list = checks(here, there);
        list.iter().filter(|check| check.verdict != CheckVerdict::Ok).map(|check| (check.id, check.verdict)).collect()
    }

    #[test]
    fn ends_that_differ_are_reported() {
        assert_eq!(found(&end(1500), &end(1500)), []);
        assert_eq!(found(&end(9000), &end(1500)), [("both-mtu", CheckVerdict::Warning)]);
        let command = checks(&end(1500), &end(9000))[0].command.clone();
        assert_eq!(command.as_deref(), Some("ip link set eth0 mtu 1500        (on the peer)"));
        let mut other = end(1500);
        other.interface.as_mut().expect("a card").speed_mbit = Some(100);
        assert_eq!(found(&end(1500), &other), [("both-speed", CheckVerdict::Warning)]);
        other.interface.as_mut().expect("a card").is_virtual = true;
        assert_eq!(found(&end(1500), &other), []);
        other.daemon = Some("1.1.0".to_owned());
        assert_eq!(found(&end(1500), &other), [("both-versions", CheckVerdict::Info)]);
        let (mut here, mut there) = (end(1500), end(1500));
        here.settings.insert("min_rto".to_owned(), "40ms".to_owned());
        there.settings.insert("min_rto".to_owned(), "off".to_owned());
        assert_eq!(found(&here, &there), [("both-min-rto", CheckVerdict::Warning)]);
    }

    #[test]
    fn the_table_reports_what_is_alike() {
        let rows = rows(&end(9000), &end(1500));
        let row = |what: &str| rows.iter().find(|row| row.what == what).expect("a row");
        assert_eq!((row("mtu").here.as_str(), row("mtu").there.as_str(), row("mtu").alike), ("9000", "1500", false));
        assert!(row("duplex").alike && row("tcp_rmem most").here == "unknown");
    }
}
