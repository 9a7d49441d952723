//! The card and its cable. What a virtual interface says of its speed is made up (veth claims 10 Gbit/s), so it counts as
//! unknown.

use crate::doctor::facts::{Bond, EndFacts, InterfaceFacts};
use crate::doctor::words::speed;
use crate::doctor::{Check, CheckVerdict};

/// Of the packets: more errors than this mean a bad cable or card, more drops a ring or a processor that is too slow.
const ERRORS_SHARE_MAX: f64 = 1e-6;
const DROPS_SHARE_MAX: f64 = 1e-4;
/// From here on autonegotiation belongs to the standard of twisted pair.
const GIGABIT: u32 = 1000;

pub fn checks(interface: &InterfaceFacts, facts: &EndFacts) -> Vec<Check> {
    let mut list = vec![
        link_detected(interface),
        link_speed(interface),
        duplex(interface),
        autonegotiation(interface),
        modes(interface),
    ];
    list.extend(interface.bonds.iter().map(bond));
    list.extend([errors(interface), offloads(interface), qdisc(interface, facts)]);
    list
}

fn made_up(id: &'static str, interface: &InterfaceFacts) -> Check {
    let below = match interface.lower.as_slice() {
        [] => "what is below it knows".to_owned(),
        lower => format!("look at {} below it (ethtool)", lower.join(", ")),
    };
    Check::unknown(id, format!("{} is a virtual interface: {below}", interface.name))
}

fn link_detected(interface: &InterfaceFacts) -> Check {
    let name = &interface.name;
    match interface.carrier {
        Some(true) => Check::ok("link-detected", format!("{name}: yes, lost {} times", interface.carrier_losses)),
        Some(false) => Check::new("link-detected", CheckVerdict::Problem, format!("{name}: no"))
            .want("yes")
            .why("no cable, or the other end of it is off")
            .run(format!("ethtool {name}")),
        None => Check::new("link-detected", CheckVerdict::Problem, format!("{name} is down"))
            .want("up")
            .run(format!("ip link set {name} up")),
    }
}

fn link_speed(interface: &InterfaceFacts) -> Check {
    let name = &interface.name;
    if interface.is_virtual {
        return made_up("speed", interface);
    }
    let Some(mbit) = interface.speed_mbit else {
        return Check::unknown("speed", format!("{name} does not report it; without a link no card does"));
    };
    if mbit < interface.supported_mbit {
        return Check::new("speed", CheckVerdict::Warning, speed(mbit))
            .want(speed(interface.supported_mbit))
            .why("the card could do more: the switch port, the cable, or a fixed setting holds it down")
            .run(format!("ethtool -s {name} autoneg on"));
    }
    Check::ok("speed", speed(mbit))
}

fn duplex(interface: &InterfaceFacts) -> Check {
    if interface.is_virtual {
        return made_up("duplex", interface);
    }
    match interface.full_duplex {
        Some(true) => Check::ok("duplex", "full"),
        Some(false) => Check::new("duplex", CheckVerdict::Problem, "half")
            .want("full")
            .why("with one end half and the other full nearly every burst collides; mostly one end is fixed and the other negotiates")
            .run(format!("ethtool -s {} autoneg on", interface.name)),
        None => Check::unknown("duplex", format!("{} does not report it", interface.name)),
    }
}

fn autonegotiation(interface: &InterfaceFacts) -> Check {
    const ID: &str = "autonegotiation";
    if interface.is_virtual {
        return made_up(ID, interface);
    }
    let is_fast = interface.supported_mbit.max(interface.speed_mbit.unwrap_or(0)) >= GIGABIT;
    match interface.autonegotiation {
        Some(true) => Check::ok(ID, "on"),
        Some(false) if interface.twisted_pair && is_fast => Check::new(ID, CheckVerdict::Warning, "off")
            .want("on")
            .why("at 1 Gbit/s and more over twisted pair it is part of the standard; fixed on one end only, the other falls back to half duplex")
            .run(format!("ethtool -s {} autoneg on", interface.name)),
        Some(false) => Check::new(ID, CheckVerdict::Info, "off").why("usual on fibre and direct cables"),
        None => Check::unknown(ID, format!("{} does not report it", interface.name)),
    }
}

fn modes(interface: &InterfaceFacts) -> Check {
    if interface.is_virtual || interface.supported.is_empty() {
        return made_up_or_silent(interface);
    }
    let list = |names: &[String]| names.join(" ");
    let have = format!("advertised {}", list(&interface.advertised));
    if interface.advertised_mbit < interface.supported_mbit && interface.autonegotiation == Some(true) {
        return Check::new("modes", CheckVerdict::Warning, have)
            .want(format!("supported {}", list(&interface.supported)))
            .why("what is not advertised cannot be agreed upon")
            .run(format!("ethtool -s {} autoneg on advertise {}", interface.name, list(&interface.supported)));
    }
    Check::ok("modes", format!("supported {}; {have}", list(&interface.supported)))
}

fn made_up_or_silent(interface: &InterfaceFacts) -> Check {
    if interface.is_virtual {
        return made_up("modes", interface);
    }
    Check::unknown("modes", format!("{} does not report what it supports", interface.name))
}

/// All other modes keep a connection on one member.
fn bond(bond: &Bond) -> Check {
    let have = format!("{}: {}", bond.name, bond.mode);
    if bond.mode == "balance-rr" {
        return Check::new("bond", CheckVerdict::Warning, have).want("802.3ad, balance-xor or active-backup").why(
            "packets of one connection take turns on all members and overtake each other, which TCP takes for losses; the \
             mode stands in the system's network configuration, and the switch's ports have to go with it",
        );
    }
    Check::ok("bond", have)
}

fn errors(interface: &InterfaceFacts) -> Check {
    let InterfaceFacts { name, packets, errors, dropped, .. } = interface;
    let have = format!("{errors} errors, {dropped} dropped, of {packets} packets");
    let share = |count: u64| count as f64 / (*packets).max(1) as f64;
    if share(*errors) > ERRORS_SHARE_MAX && *errors > 0 {
        return Check::new("errors", CheckVerdict::Warning, have)
            .want("none")
            .why("damaged packets: a cable, a plug, a port, or a duplex that does not match")
            .run(format!("ethtool -S {name}"));
    }
    if share(*dropped) > DROPS_SHARE_MAX {
        return Check::new("errors", CheckVerdict::Warning, have)
            .want("dropped below 0.01 %")
            .why("the card's ring or the processor did not keep up, or packets of a kind nobody takes came; TCP takes each for congestion")
            .run(format!("ethtool -S {name}; ethtool -g {name}"));
    }
    Check::ok("errors", have)
}

fn offloads(interface: &InterfaceFacts) -> Check {
    let list =
        [("tso", interface.tso), ("gso", interface.gso), ("gro", interface.gro), ("rx", interface.receive_checksum)];
    let word = |state: Option<bool>| match state {
        Some(true) => "on",
        Some(false) => "off",
        None => "unknown",
    };
    let have: Vec<String> = list.iter().map(|(name, state)| format!("{name} {}", word(*state))).collect();
    let off: Vec<&str> = list.iter().filter(|(_, state)| *state == Some(false)).map(|(name, _)| *name).collect();
    let have = have.join(", ");
    if off.is_empty() {
        return Check::ok("offloads", have);
    }
    let settings: Vec<String> = off.iter().map(|name| format!("{name} on")).collect();
    let verdict = if interface.is_virtual { CheckVerdict::Info } else { CheckVerdict::Warning };
    Check::new("offloads", verdict, have)
        .want("on")
        .why("without them the processor handles every packet by itself; what the card cannot do stays off")
        .run(format!("ethtool -K {} {}", interface.name, settings.join(" ")))
}

fn qdisc(interface: &InterfaceFacts, facts: &EndFacts) -> Check {
    let is_paced = facts.settings.get("pacing").is_some_and(|pacing| pacing != "off");
    if interface.qdiscs.is_empty() {
        return Check::unknown("qdisc", "the kernel does not report it");
    }
    let have = interface.qdiscs.join(" over ");
    if is_paced && !interface.qdiscs.iter().any(|name| name == "fq") {
        return Check::new("qdisc", CheckVerdict::Info, have)
            .want("fq")
            .why("the link's `pacing` is kept without it too, by timers; fq spaces packets more exactly")
            .run(format!("tc qdisc replace dev {} root fq", interface.name));
    }
    Check::ok("qdisc", have)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gigabit() -> InterfaceFacts {
        InterfaceFacts {
            name: "eth0".to_owned(),
            mtu: 1500,
            carrier: Some(true),
            speed_mbit: Some(1000),
            full_duplex: Some(true),
            autonegotiation: Some(true),
            twisted_pair: true,
            supported: vec!["100baseT/Full".to_owned(), "1000baseT/Full".to_owned()],
            advertised: vec!["100baseT/Full".to_owned(), "1000baseT/Full".to_owned()],
            supported_mbit: 1000,
            advertised_mbit: 1000,
            packets: 10_000_000,
            tso: Some(true),
            gso: Some(true),
            gro: Some(true),
            receive_checksum: Some(true),
            qdiscs: vec!["mq".to_owned(), "fq_codel".to_owned()],
            ..InterfaceFacts::default()
        }
    }

    fn in_mode(mode: &str) -> Bond {
        Bond { name: "bond0".to_owned(), mode: mode.to_owned() }
    }

    fn verdicts(change: impl Fn(&mut InterfaceFacts)) -> Vec<(&'static str, CheckVerdict)> {
        let mut interface = gigabit();
        change(&mut interface);
        let checks = checks(&interface, &EndFacts::default());
        let found = checks.iter().filter(|check| check.verdict != CheckVerdict::Ok);
        found.map(|check| (check.id, check.verdict)).collect()
    }

    #[test]
    fn each_fault_of_a_card_is_one_line() {
        use CheckVerdict::{Info, Problem, Warning};
        let one = |id, verdict| vec![(id, verdict)];
        for (change, expected) in [
            ((|_| {}) as fn(&mut InterfaceFacts), vec![]),
            (|i| i.carrier = Some(false), one("link-detected", Problem)),
            (|i| i.carrier = None, one("link-detected", Problem)),
            (|i| i.speed_mbit = Some(100), one("speed", Warning)),
            (|i| i.speed_mbit = None, one("speed", Info)),
            (|i| i.full_duplex = Some(false), one("duplex", Problem)),
            (|i| i.autonegotiation = Some(false), one("autonegotiation", Warning)),
            (|i| (i.autonegotiation, i.twisted_pair) = (Some(false), false), one("autonegotiation", Info)),
            (|i| (i.advertised_mbit, i.advertised) = (100, vec![]), one("modes", Warning)),
            (|i| i.supported = vec![], one("modes", Info)),
            (|i| i.errors = 11, one("errors", Warning)),
            (|i| i.errors = 9, vec![]),
            (|i| i.dropped = 1001, one("errors", Warning)),
            (|i| i.gro = Some(false), one("offloads", Warning)),
            (|i| i.tso = None, vec![]),
            (|i| i.qdiscs = vec![], one("qdisc", Info)),
            (|i| i.bonds = vec![in_mode("balance-rr")], one("bond", Warning)),
            (|i| i.bonds = vec![in_mode("802.3ad"), in_mode("active-backup")], vec![]),
        ] {
            assert_eq!(verdicts(change), expected);
        }
    }

    #[test]
    fn what_a_virtual_interface_says_is_unknown_and_never_wrong() {
        let found = verdicts(|i| {
            (i.is_virtual, i.speed_mbit, i.full_duplex) = (true, Some(10), Some(false));
            (i.autonegotiation, i.gro, i.lower) = (Some(false), Some(false), vec!["eth1".to_owned()]);
        });
        assert_eq!(found.len(), 5, "{found:?}");
        assert!(found.iter().all(|(_, verdict)| *verdict == CheckVerdict::Info), "{found:?}");
    }

    #[test]
    fn commands_name_the_card() {
        let half = InterfaceFacts { full_duplex: Some(false), ..gigabit() };
        assert_eq!(duplex(&half).command.as_deref(), Some("ethtool -s eth0 autoneg on"));
        let slow = InterfaceFacts { gro: Some(false), tso: Some(false), ..gigabit() };
        assert_eq!(offloads(&slow).command.as_deref(), Some("ethtool -K eth0 tso on gro on"));
        let mut paced = EndFacts::default();
        paced.settings.insert("pacing".to_owned(), "93Mbit/s".to_owned());
        assert_eq!(qdisc(&gigabit(), &paced).command.as_deref(), Some("tc qdisc replace dev eth0 root fq"));
    }
}
