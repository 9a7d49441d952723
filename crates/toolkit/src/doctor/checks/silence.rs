//! What a silent line costs: how long until data flows again after an outage, who notices that nobody is there any more, and
//! who on the way forgets a connection that says nothing.
//!
//! Of all this the daemon's own heartbeats come first: whoever hears nothing for `timeout` ends the connection and dials
//! again, so that the kernel's far longer pauses seldom matter.

use engine::limits::HEARTBEAT_EVERY;
use settings::limits::USER_TIMEOUT;
use units::exact::parse_duration;

use crate::doctor::facts::EndFacts;
use crate::doctor::words::time;
use crate::doctor::{Check, CheckVerdict};

/// Data may wait this long after an outage is over.
const PAUSE_MAX_S: f64 = 5.0;
/// TCP_RTO_MAX of a kernel that has neither option nor sysctl for it (before 6.15).
const KERNELS_PAUSE_S: f64 = 120.0;

pub fn checks(facts: &EndFacts) -> Vec<Check> {
    vec![rto_max(facts), keepalive(facts), firewall(facts)]
}

fn setting_s(facts: &EndFacts, key: &str) -> Option<f64> {
    facts.settings.get(key).and_then(|text| parse_duration(text).ok()).map(|found| found.as_secs_f64())
}

/// The pause doubles with each attempt: after a 20 s outage the next one could be 13 s away.
fn rto_max(facts: &EndFacts) -> Check {
    const ID: &str = "rto-max";
    const NAME: &str = "net.ipv4.tcp_rto_max_ms";
    let (asked, system) = (setting_s(facts, "max_rto"), facts.sysctl(NAME, 0));
    let granted = facts.link.as_ref().and_then(|link| link.rto_max_s);
    let (pause, from) = match (granted, asked, system) {
        (Some(granted), ..) => (granted, "the link's max_rto, as granted"),
        // A kernel that has the one has the other.
        (None, Some(asked), Some(_)) => (asked, "the link's max_rto"),
        (None, None, Some(ms)) => (ms as f64 / 1000.0, NAME),
        (None, _, None) => (KERNELS_PAUSE_S, "fixed in kernels before 6.15"),
    };
    let have = format!("{} ({from})", time(pause));
    match facts.link_timeout_s {
        _ if pause <= PAUSE_MAX_S => Check::ok(ID, have),
        None => Check::unknown(ID, "what a link asks for is not known: no configuration was read"),
        Some(timeout) if timeout <= PAUSE_MAX_S => {
            Check::ok(ID, format!("{have}; a link that is silent for {} is dialed anew before", time(timeout)))
        }
        Some(timeout) => {
            let check = Check::new(ID, CheckVerdict::Warning, have).want(format!("{} at most", time(PAUSE_MAX_S))).why(
                format!(
                    "when an outage is over nothing may flow for so long, or until the link is dialed anew after its \
                 `timeout` of {}",
                    time(timeout)
                ),
            );
            match system {
                Some(_) => check.run("farshore link set max_rto=1s        (on both nodes)"),
                // Nothing but a newer kernel or another `timeout`, which both ends read at their start.
                None => check,
            }
        }
    }
}

/// Nothing to warn of: the daemon sees to it, whatever the system's own two hours are.
fn keepalive(facts: &EndFacts) -> Check {
    const ID: &str = "keepalive";
    let (Some(timeout), Some(idle)) = (facts.link_timeout_s, setting_s(facts, "keepalive")) else {
        return Check::unknown(ID, "what a link asks for is not known: no configuration was read");
    };
    let least = USER_TIMEOUT.default.as_secs_f64();
    let unconfirmed = setting_s(facts, "user_timeout").unwrap_or(least.max(2.0 * timeout));
    let beat = time(HEARTBEAT_EVERY.as_secs_f64());
    Check::ok(ID, format!("heartbeats every {beat}; {} of silence end a connection", time(timeout))).why(format!(
        "the kernel's own means come later: it asks after {}, and ends a connection after {} unconfirmed",
        time(idle),
        time(unconfirmed),
    ))
}

/// A firewall that forgets a connection drops what comes later, often without a word.
fn firewall(facts: &EndFacts) -> Check {
    const ID: &str = "firewall";
    const NAME: &str = "net.netfilter.nf_conntrack_tcp_timeout_established";
    const UNSEEN: &str = "firewalls on the way cannot be seen from here";
    let beat = time(HEARTBEAT_EVERY.as_secs_f64());
    let Some(forgets) = facts.sysctl(NAME, 0) else {
        return Check::ok(
            ID,
            format!("no connection tracking on this machine; {UNSEEN}, heartbeats come every {beat}"),
        );
    };
    let have = format!("connection tracking here forgets after {}, heartbeats come every {beat}", time(forgets as f64));
    // As long as a link may be silent and live on.
    let needed = facts.link_timeout_s.unwrap_or(PAUSE_MAX_S).ceil();
    if (forgets as f64) < needed {
        return Check::new(ID, CheckVerdict::Warning, have)
            .want(format!("more than {}, the silence that a link survives", time(needed)))
            .why("a connection that was forgotten during a short outage does not come back: its packets are dropped")
            .run(format!("sysctl -w {NAME}=86400"));
    }
    Check::ok(ID, have).why(UNSEEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::LinkFacts;

    fn usual() -> EndFacts {
        let settings = [("max_rto", "1s"), ("keepalive", "10s"), ("user_timeout", "auto")];
        let sysctls =
            [("net.ipv4.tcp_rto_max_ms", "120000"), ("net.netfilter.nf_conntrack_tcp_timeout_established", "432000")];
        EndFacts {
            settings: settings.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            sysctls: sysctls.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            link_timeout_s: Some(5.0),
            ..EndFacts::default()
        }
    }

    fn found(change: impl Fn(&mut EndFacts)) -> Vec<Check> {
        let mut facts = usual();
        change(&mut facts);
        checks(&facts)
    }

    #[test]
    fn what_the_daemon_sees_to_is_ok_and_says_so() {
        let list = found(|_| {});
        assert!(list.iter().all(|check| check.verdict == CheckVerdict::Ok), "{list:?}");
        assert_eq!(list[0].have, "1 s (the link's max_rto)");
        assert_eq!(list[1].have, "heartbeats every 200 ms; 5 s of silence end a connection");
        assert!(list[1].why.contains("asks after 10 s, and ends a connection after 30 s unconfirmed"), "{list:?}");
        assert!(list[2].have.contains("forgets after 5 d") && list[2].why.contains("cannot be seen"), "{list:?}");
        assert!(found(|f| f.link_timeout_s = Some(60.0))[1].why.contains("after 2 min"));
        assert!(found(|f| f.sysctls.clear())[2].have.contains("no connection tracking on this machine"));
    }

    #[test]
    fn a_long_pause_matters_where_nothing_ends_it() {
        let old = |facts: &mut EndFacts| drop(facts.sysctls.remove("net.ipv4.tcp_rto_max_ms"));
        let before = &found(old)[0];
        assert_eq!(
            before.have,
            "2 min (fixed in kernels before 6.15); a link that is silent for 5 s is dialed anew before"
        );
        let patient = &found(|f| (old(f), f.link_timeout_s = Some(60.0)).1)[0];
        assert_eq!((patient.verdict, &patient.command), (CheckVerdict::Warning, &None));
        assert!(patient.why.contains("`timeout` of 60 s"), "{patient:?}");
        let slow = &found(|f| {
            f.link_timeout_s = Some(10.0);
            f.settings.insert("max_rto".to_owned(), "30s".to_owned());
        })[0];
        assert_eq!(slow.verdict, CheckVerdict::Warning);
        assert!(slow.command.as_ref().is_some_and(|command| command.starts_with("farshore link set max_rto=1s")));
        // What its socket has counts, whatever this kernel's files show.
        let granted = LinkFacts { rto_max_s: Some(1.0), ..LinkFacts::default() };
        let live = &found(|f| (old(f), f.link_timeout_s = None, f.link = Some(granted.clone())).0)[0];
        assert_eq!((live.verdict, live.have.as_str()), (CheckVerdict::Ok, "1 s (the link's max_rto, as granted)"));
        let nothing_known = checks(&EndFacts::default());
        assert_eq!(nothing_known[0].verdict, CheckVerdict::Info, "{nothing_known:?}");
        assert_eq!(nothing_known[1].verdict, CheckVerdict::Info);
    }

    #[test]
    fn a_firewall_of_short_memory_is_reported() {
        let short = |facts: &mut EndFacts| {
            let name = "net.netfilter.nf_conntrack_tcp_timeout_established".to_owned();
            facts.sysctls.insert(name, "4".to_owned());
        };
        let check = &found(short)[2];
        assert_eq!(check.verdict, CheckVerdict::Warning);
        assert!(check.want.contains("5 s"), "{check:?}");
    }
}
