//! What the kernel's TCP is allowed and told to do, against what the way to the peer needs.

use engine::limits::HEARTBEAT_EVERY;
use plan::formulas::{GRANTED_USABLE, bandwidth_delay, rto_min_advice};
use units::quantities::{Rate, Seconds, show_bit_rate};

use crate::doctor::facts::{EndFacts, PathFacts};
use crate::doctor::words::{size, time};
use crate::doctor::{Check, CheckVerdict};
use units::exact::parse_size;

/// The HADR pages' floor for a socket buffer.
const WINDOW_BYTES_MIN: u64 = 64 << 10;
/// Linux's own bound of `tcp_rmem`: larger ones are of no use with a window scale of 14.
const WINDOW_BYTES_MAX: f64 = (1u64 << 30) as f64;
/// On shorter ways a cold start costs less than a millisecond or two.
const SHORT_RTT_S: f64 = 0.002;
/// The pause of 200 ms is long beside a way below this; where more than this share is lost it is met often.
const RTO_SHORT_RTT_S: f64 = 0.05;
const LOSS_SHARE: f64 = 0.001;
/// From here on `congestion = "auto"` takes bbr on a full line.
const LONG_RTT_S: f64 = 0.01;
const LOAD_BBR: &str = "modprobe tcp_bbr && echo tcp_bbr > /etc/modules-load.d/farshore.conf";
/// The shortest delayed acknowledgement of Linux (`TCP_DELACK_MIN`, HZ / 25), and what no pause may be below.
const DELAYED_ACK_S: f64 = 0.04;
const RTO_MIN_FLOOR_S: f64 = 0.02;

pub fn checks(facts: &EndFacts, way: &PathFacts) -> Vec<Check> {
    let mut list = vec![
        product(way),
        tuned_buffer("tcp-wmem", "net.ipv4.tcp_wmem", "sends", facts, way),
        tuned_buffer("tcp-rmem", "net.ipv4.tcp_rmem", "receives", facts, way),
        fixed_buffer("wmem-max", "net.core.wmem_max", facts),
        fixed_buffer("rmem-max", "net.core.rmem_max", facts),
    ];
    list.extend(
        [
            ("window-scaling", "net.ipv4.tcp_window_scaling", CheckVerdict::Problem, "no window is larger than 64 KiB"),
            ("sack", "net.ipv4.tcp_sack", CheckVerdict::Warning, "after a loss everything behind it may be sent again"),
            (
                "timestamps",
                "net.ipv4.tcp_timestamps",
                CheckVerdict::Warning,
                "round trips are measured rarely, and old segments are distinguished from new ones by luck on fast links",
            ),
        ]
        .map(|(id, name, verdict, why)| switch(id, name, verdict, why, facts)),
    );
    list.extend([idle_restart(facts, way), congestion(facts, way), rto_min(facts, way), mtu_probing(facts)]);
    list
}

/// The tuning's bound that a way needs: twice the product, over the usable share of what the kernel counts.
fn bound_bytes(way: &PathFacts) -> Option<f64> {
    let product = bandwidth_delay(Rate::from_bytes_per_s(way.bytes_per_s?), Seconds(way.rtt_s?));
    Some((2.0 * product / GRANTED_USABLE).ceil())
}

fn product(way: &PathFacts) -> Check {
    const ID: &str = "bandwidth-delay";
    let (Some(rate), Some(rtt)) = (way.bytes_per_s, way.rtt_s) else {
        let missing = match (way.bytes_per_s, way.rtt_s) {
            (None, None) => "neither bandwidth nor round trip is known: give --bw and --rtt",
            (None, Some(_)) => "the bandwidth is not known: give --bw",
            _ => "the round trip is not known: give --rtt",
        };
        return Check::unknown(ID, missing);
    };
    let rate = Rate::from_bytes_per_s(rate);
    let product = size(bandwidth_delay(rate, Seconds(rtt)) as u64);
    Check::ok(
        ID,
        format!("{product} = {} ({}) x {} ({})", show_bit_rate(rate), way.bytes_from, time(rtt), way.rtt_from),
    )
}

fn tuned_buffer(id: &'static str, name: &'static str, doing: &str, facts: &EndFacts, way: &PathFacts) -> Check {
    let Some(most) = facts.sysctl(name, 2) else {
        return Check::unknown(id, format!("{name} cannot be read"));
    };
    let wanted = bound_bytes(way).map_or(WINDOW_BYTES_MIN as f64, |bytes| bytes.max(WINDOW_BYTES_MIN as f64));
    let wanted = wanted.min(WINDOW_BYTES_MAX);
    let have = format!("most {} ({most})", size(most));
    if (most as f64) >= wanted {
        return Check::ok(id, have);
    }
    let (least, start) = (facts.sysctl(name, 0).unwrap_or(4096), facts.sysctl(name, 1).unwrap_or(131_072));
    let carried = way.rtt_s.filter(|rtt| *rtt > 0.0).map(|rtt| {
        let rate = Rate::from_bytes_per_s(most as f64 * GRANTED_USABLE / rtt);
        format!("a connection {doing} {} at most; ", show_bit_rate(rate))
    });
    // Nobody knows that the way carries what the card could.
    let verdict = if way.is_upper_bound { CheckVerdict::Info } else { CheckVerdict::Warning };
    let why = match bound_bytes(way) {
        Some(_) => "the tuning may grow to twice bandwidth x round trip, over 0.62, the part that is usable",
        None => "64 KiB is the least that any link needs",
    };
    Check::new(id, verdict, have)
        .want(format!("{} ({wanted:.0})", size(wanted as u64)))
        .why(format!("{}{why}", carried.unwrap_or_default()))
        .run(format!("sysctl -w {name}=\"{least} {start} {wanted:.0}\""))
}

/// Bounds buffers of a fixed size only.
fn fixed_buffer(id: &'static str, name: &'static str, facts: &EndFacts) -> Check {
    let Some(most) = facts.sysctl(name, 0) else {
        return Check::unknown(id, format!("{name} cannot be read (a container may hide it)"));
    };
    let have = format!("{} ({most})", size(most));
    let link = facts.link.as_ref();
    let granted =
        link.and_then(|link| if id == "wmem-max" { link.send_buffer_bytes } else { link.receive_buffer_bytes });
    match facts.settings.get("buffers").and_then(|text| parse_size(text).ok()) {
        Some(asked) if asked > most && granted.is_some_and(|granted| granted >= asked) => {
            Check::ok(id, format!("{have}; the daemon passed it, its link has {}", size(asked)))
        }
        Some(asked) if asked > most => {
            // Without a link nobody knows what the daemon may.
            let verdict = if granted.is_some() { CheckVerdict::Warning } else { CheckVerdict::Info };
            Check::new(id, verdict, have)
                .want(format!("{} ({asked})", size(asked)))
                .why(
                    "the link's setting `buffers` asks for more than this: a daemon that runs as root (CAP_NET_ADMIN) \
                     passes it, any other is cut to it",
                )
                .run(format!("sysctl -w {name}={asked}"))
        }
        Some(_) => Check::ok(id, have),
        None => Check::ok(id, format!("{have}; not used, buffers are left to the kernel's tuning")),
    }
}

fn switch(id: &'static str, name: &'static str, verdict: CheckVerdict, why: &str, facts: &EndFacts) -> Check {
    let agreed = facts.peer.as_ref().and_then(|peer| peer.handshake);
    let agreed = agreed.map(|found| match id {
        "window-scaling" => found.window_scaling,
        "sack" => found.sack,
        _ => found.timestamps,
    });
    match (facts.sysctl(name, 0), agreed) {
        (None, _) => Check::unknown(id, format!("{name} cannot be read")),
        (Some(0), _) => Check::new(id, verdict, "off").want("on").why(why).run(format!("sysctl -w {name}=1")),
        // On here, and yet not in force: it is off there, or taken out of the packets on the way.
        (Some(_), Some(false)) => Check::new(id, verdict, "on here, not agreed with the peer")
            .want("agreed")
            .why(format!("{why}; it is off at the peer, or something on the way removes it"))
            .run(format!("sysctl -w {name}=1        (on the peer)")),
        (Some(_), Some(true)) => Check::ok(id, "on, agreed with the peer"),
        (Some(_), None) => Check::ok(id, "on"),
    }
}

/// The congestion control that links here use, or would.
fn in_use(facts: &EndFacts) -> Option<&str> {
    let live = facts.link.as_ref().and_then(|link| link.congestion.as_deref());
    let asked = facts.settings.get("congestion").map(String::as_str);
    live.or(asked.filter(|name| !["auto", "system"].contains(name)))
        .or_else(|| facts.words("net.ipv4.tcp_congestion_control").first().copied())
}

/// A 1 MiB write after two idle seconds took 365 ms instead of 138 at 50 ms with cubic; bbr does not do it. A link's heartbeats
/// keep it from ever being idle as long as the kernel waits: a retransmission timeout.
fn idle_restart(facts: &EndFacts, way: &PathFacts) -> Check {
    const ID: &str = "idle-restart";
    const NAME: &str = "net.ipv4.tcp_slow_start_after_idle";
    match (facts.sysctl(NAME, 0), in_use(facts), way.rtt_s) {
        (None, ..) => Check::unknown(ID, format!("{NAME} cannot be read")),
        (Some(0), ..) => Check::ok(ID, "off"),
        (Some(_), Some("bbr"), _) => Check::ok(ID, "on, and bbr does not heed it"),
        (Some(_), _, Some(rtt)) if rtt < SHORT_RTT_S => Check::ok(ID, "on, and the way is too short for it to matter"),
        (Some(_), _, rtt) if rtt.unwrap_or(0.0) + rto_min_in_use(facts).0 >= HEARTBEAT_EVERY.as_secs_f64() => {
            Check::ok(ID, "on, and heartbeats keep a link from being idle for so long")
        }
        _ => Check::new(ID, CheckVerdict::Warning, "on")
            .want("off")
            .why(
                "with so short a pause before a retransmission a link counts as idle between two heartbeats, and each burst begins \
                 slowly again: a write of 1 MiB over 50 ms takes 365 ms instead of 138",
            )
            .run(format!("sysctl -w {NAME}=0")),
    }
}

fn congestion(facts: &EndFacts, way: &PathFacts) -> Check {
    const ID: &str = "congestion";
    let known = facts.words("net.ipv4.tcp_available_congestion_control");
    let Some(name) = in_use(facts) else {
        return Check::unknown(ID, "net.ipv4.tcp_congestion_control cannot be read");
    };
    if !known.is_empty() && !known.contains(&name) {
        return Check::new(ID, CheckVerdict::Warning, format!("{name} is asked for, and not there"))
            .want("one of those that are there")
            .why(format!("the kernel has {}", known.join(", ")))
            .run(format!("modprobe tcp_{name}"));
    }
    let is_long = way.rtt_s.is_some_and(|rtt| rtt >= LONG_RTT_S);
    if is_long && name != "bbr" {
        return on_a_long_way(name, &known, facts);
    }
    Check::ok(ID, name)
}

/// Without bbr. The setting `auto` asks for it as its name would, on a full line, and where the kernel has none nobody is told otherwise.
fn on_a_long_way(name: &str, known: &[&str], facts: &EndFacts) -> Check {
    const ID: &str = "congestion";
    let is_auto = facts.settings.get("congestion").is_some_and(|asked| asked == "auto");
    match (is_auto, known.contains(&"bbr")) {
        (true, true) => Check::ok(ID, format!("{name}, and bbr once the line was full")),
        (true, false) if !known.is_empty() => Check::new(ID, CheckVerdict::Warning, format!("{name}, and no bbr in the kernel"))
            .want("bbr")
            .why("`congestion = \"auto\"` takes bbr on a full line of 10 ms and more, and stays with what there is: at 100 Mbit/s and 50 ms \
                  cubic carries 9 Mbit/s where one packet in 1000 is lost, and bbr 95; load the module on both nodes, now and at each boot")
            .run(LOAD_BBR),
        (_, has_bbr) => Check::new(ID, CheckVerdict::Info, name)
            .want("bbr")
            .why("on ways of 10 ms and more it keeps a full line's rate under stray loss, and queues short; `congestion = \"auto\"` takes it where it is")
            .run(if has_bbr { "farshore link set congestion=bbr" } else { LOAD_BBR }),
    }
}

/// The shortest pause before a retransmission in seconds, and who says so.
fn rto_min_in_use(facts: &EndFacts) -> (f64, &'static str) {
    let route = facts.interface.as_ref().and_then(|interface| interface.route_rto_min_ms);
    let asked = facts.settings.get("min_rto").and_then(|text| units::exact::parse_duration(text).ok());
    let system = facts.sysctl("net.ipv4.tcp_rto_min_us", 0);
    match (route, asked, system) {
        // A route's wins over a socket's, and that over the system's.
        (Some(ms), ..) => (f64::from(ms) / 1000.0, "the route"),
        (None, Some(asked), _) => (asked.as_secs_f64(), "the link's min_rto"),
        (None, None, Some(us)) => (us as f64 / 1e6, "net.ipv4.tcp_rto_min_us"),
        (None, None, None) => (0.2, "the kernel's default"),
    }
}

/// The retransmission timeout is the round trip plus at least this pause; below the peer's delayed acknowledgement
/// every late one passes for a loss.
fn rto_min(facts: &EndFacts, way: &PathFacts) -> Check {
    const ID: &str = "rto-min";
    let (pause, from) = rto_min_in_use(facts);
    let have = format!("{} ({from})", time(pause));
    let rtt = way.rtt_s.unwrap_or(0.0);
    let advised = rto_min_advice(Seconds(rtt.max(DELAYED_ACK_S / 3.0)));
    let command = match from {
        "the route" => "ip route change ... rto_min 40ms".to_owned(),
        "the link's min_rto" => "farshore link set min_rto=40ms".to_owned(),
        _ => "sysctl -w net.ipv4.tcp_rto_min_us=40000".to_owned(),
    };
    if pause < RTO_MIN_FLOOR_S {
        return Check::new(ID, CheckVerdict::Warning, have)
            .want(time(advised.0))
            .why("below 20 ms acknowledgements that are merely late pass for losses")
            .run(command);
    }
    if pause < DELAYED_ACK_S && from != "the link's min_rto" {
        return Check::new(ID, CheckVerdict::Warning, have)
            .want(format!("{} or more", time(DELAYED_ACK_S)))
            .why("the peer may delay an acknowledgement by 40 ms, unless it has the same pause; `min_rto` of the link sees to both")
            .run(command);
    }
    let lost = facts.link.as_ref().and_then(|link| link.tcp).map_or(0.0, |tcp| tcp.retransmitted_share);
    if lost > LOSS_SHARE && rtt > 0.0 && rtt < RTO_SHORT_RTT_S && pause > advised.0 {
        return Check::new(ID, CheckVerdict::Info, have)
            .want(time(advised.0))
            .why("packets are lost on a short way: the last ones of a write wait this long to be sent again; `min_rto` of the link needs Linux 6.15 on both nodes")
            .run("farshore link set min_rto=40ms        (on both nodes)");
    }
    Check::ok(ID, have)
}

fn mtu_probing(facts: &EndFacts) -> Check {
    const ID: &str = "mtu-probing";
    const NAME: &str = "net.ipv4.tcp_mtu_probing";
    match facts.sysctl(NAME, 0) {
        None => Check::unknown(ID, format!("{NAME} cannot be read")),
        Some(0) => Check::new(ID, CheckVerdict::Warning, "off")
            .want("on")
            .why("a path that begins to swallow large packets hangs the link; with 1 the kernel finds out within seconds")
            .run(format!("sysctl -w {NAME}=1")),
        Some(value) => Check::ok(ID, format!("on ({value})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::{InterfaceFacts, LinkFacts, PeerFacts, Tcp, TcpHandshake};

    fn tuned() -> EndFacts {
        let sysctls = [
            ("net.ipv4.tcp_wmem", "4096\t16384\t33554432"),
            ("net.ipv4.tcp_rmem", "4096\t131072\t33554432"),
            ("net.core.wmem_max", "4194304"),
            ("net.core.rmem_max", "4194304"),
            ("net.ipv4.tcp_window_scaling", "1"),
            ("net.ipv4.tcp_sack", "1"),
            ("net.ipv4.tcp_timestamps", "1"),
            ("net.ipv4.tcp_slow_start_after_idle", "0"),
            ("net.ipv4.tcp_congestion_control", "bbr"),
            ("net.ipv4.tcp_available_congestion_control", "reno cubic bbr"),
            ("net.ipv4.tcp_mtu_probing", "1"),
        ];
        EndFacts {
            sysctls: sysctls.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..EndFacts::default()
        }
    }

    /// 60 MB/s over 100 ms: the product is 6 MB, the bound 19354839 bytes (2 x BDP / 0.62).
    fn way() -> PathFacts {
        PathFacts {
            bytes_per_s: Some(60e6),
            bytes_from: "--bw",
            rtt_s: Some(0.1),
            rtt_from: "--rtt",
            is_upper_bound: false,
        }
    }

    fn found(facts: &EndFacts, way: &PathFacts) -> Vec<Check> {
        checks(facts, way).into_iter().filter(|check| check.verdict != CheckVerdict::Ok).collect()
    }

    fn with(name: &str, value: &str) -> EndFacts {
        let mut facts = tuned();
        facts.sysctls.insert(name.to_owned(), value.to_owned());
        facts
    }

    #[test]
    fn a_tuned_machine_has_no_finding() {
        assert_eq!(found(&tuned(), &way()), []);
    }

    #[test]
    fn each_setting_is_one_line_with_its_command() {
        use CheckVerdict::{Info, Problem, Warning};
        for (name, value, id, verdict, command) in [
            (
                "net.ipv4.tcp_wmem",
                "4096 16384 4194304",
                "tcp-wmem",
                Warning,
                "sysctl -w net.ipv4.tcp_wmem=\"4096 16384 19354839\"",
            ),
            (
                "net.ipv4.tcp_rmem",
                "4096 8192 16384",
                "tcp-rmem",
                Warning,
                "sysctl -w net.ipv4.tcp_rmem=\"4096 8192 19354839\"",
            ),
            ("net.ipv4.tcp_window_scaling", "0", "window-scaling", Problem, "sysctl -w net.ipv4.tcp_window_scaling=1"),
            ("net.ipv4.tcp_sack", "0", "sack", Warning, "sysctl -w net.ipv4.tcp_sack=1"),
            ("net.ipv4.tcp_timestamps", "0", "timestamps", Warning, "sysctl -w net.ipv4.tcp_timestamps=1"),
            ("net.ipv4.tcp_congestion_control", "cubic", "congestion", Info, "farshore link set congestion=bbr"),
            ("net.ipv4.tcp_mtu_probing", "0", "mtu-probing", Warning, "sysctl -w net.ipv4.tcp_mtu_probing=1"),
            ("net.ipv4.tcp_rto_min_us", "5000", "rto-min", Warning, "sysctl -w net.ipv4.tcp_rto_min_us=40000"),
            ("net.ipv4.tcp_rto_min_us", "30000", "rto-min", Warning, "sysctl -w net.ipv4.tcp_rto_min_us=40000"),
        ] {
            let list = found(&with(name, value), &way());
            assert_eq!(list.len(), 1, "{name} = {value}: {list:?}");
            assert_eq!((list[0].id, list[0].verdict, list[0].command.as_deref()), (id, verdict, Some(command)));
        }
    }

    #[test]
    fn the_product_decides_and_what_the_card_could_only_informs() {
        let small = with("net.ipv4.tcp_wmem", "4096 16384 4194304");
        let near = PathFacts { rtt_s: Some(0.001), ..way() };
        assert_eq!(found(&small, &near), []);
        assert_eq!(found(&small, &PathFacts { is_upper_bound: true, ..way() })[0].verdict, CheckVerdict::Info);
        let nothing = found(&small, &PathFacts::default());
        assert_eq!((nothing.len(), nothing[0].id, nothing[0].have.as_str()), (1, "bandwidth-delay", "unknown"));
        let tiny = found(&with("net.ipv4.tcp_rmem", "4096 8192 16384"), &PathFacts::default());
        assert_eq!(tiny[1].command.as_deref(), Some("sysctl -w net.ipv4.tcp_rmem=\"4096 8192 65536\""));
    }

    #[test]
    fn idle_restart_matters_to_cubic_on_long_ways() {
        let mut facts = with("net.ipv4.tcp_slow_start_after_idle", "1");
        assert_eq!(found(&facts, &way()), [], "bbr does not heed it");
        facts.sysctls.insert("net.ipv4.tcp_congestion_control".to_owned(), "cubic".to_owned());
        assert!(
            found(&facts, &way()).iter().all(|check| check.id != "idle-restart"),
            "heartbeats come before the kernel's 200 ms"
        );
        facts.settings.insert("min_rto".to_owned(), "40ms".to_owned());
        let ids =
            |facts: &EndFacts, way: &PathFacts| found(facts, way).iter().map(|check| check.id).collect::<Vec<_>>();
        assert_eq!(ids(&facts, &way()), ["idle-restart", "congestion"]);
        assert_eq!(ids(&facts, &PathFacts { rtt_s: Some(0.0005), ..way() }), Vec::<&str>::new());
        // It takes bbr on a full line, and until then each burst begins slowly.
        facts.settings.insert("congestion".to_owned(), "auto".to_owned());
        assert_eq!(ids(&facts, &way()), ["idle-restart"]);
        facts.settings.insert("congestion".to_owned(), "system".to_owned());
        assert_eq!(ids(&facts, &way()), ["idle-restart", "congestion"]);
        // What the link really uses wins.
        facts.link = Some(LinkFacts { congestion: Some("bbr".to_owned()), ..LinkFacts::default() });
        assert_eq!(ids(&facts, &way()), Vec::<&str>::new());
    }

    /// On a long way that loses packets it costs nine tenths of the rate, and it was a note without a consequence.
    #[test]
    fn a_kernel_without_the_bbr_that_auto_would_take_is_a_warning() {
        let mut facts = with("net.ipv4.tcp_available_congestion_control", "reno cubic");
        facts.sysctls.insert("net.ipv4.tcp_congestion_control".to_owned(), "cubic".to_owned());
        let verdict = |facts: &EndFacts, way: &PathFacts| congestion(facts, way).verdict;
        assert_eq!(verdict(&facts, &way()), CheckVerdict::Info, "nothing is known of what is asked for");
        facts.settings.insert("congestion".to_owned(), "auto".to_owned());
        let check = congestion(&facts, &way());
        assert_eq!((check.verdict, check.command.as_deref()), (CheckVerdict::Warning, Some(LOAD_BBR)), "{check:?}");
        assert!(check.why.contains("load the module on both nodes"), "{check:?}");
        assert_eq!(verdict(&facts, &PathFacts { rtt_s: Some(0.005), ..way() }), CheckVerdict::Ok, "a short way");
        facts.settings.insert("congestion".to_owned(), "system".to_owned());
        assert_eq!(verdict(&facts, &way()), CheckVerdict::Info, "cubic was chosen");
        facts.settings.insert("congestion".to_owned(), "auto".to_owned());
        facts.sysctls.remove("net.ipv4.tcp_available_congestion_control");
        assert_eq!(verdict(&facts, &way()), CheckVerdict::Info, "nobody knows what the kernel has");
    }

    #[test]
    fn settings_of_the_link_and_the_route_are_checked() {
        let mut facts = tuned();
        facts.settings.insert("buffers".to_owned(), "8MiB".to_owned());
        let list = found(&facts, &way());
        let verdicts =
            |facts: &EndFacts| found(facts, &way()).iter().map(|check| (check.id, check.verdict)).collect::<Vec<_>>();
        assert_eq!(verdicts(&facts), [("wmem-max", CheckVerdict::Info), ("rmem-max", CheckVerdict::Info)]);
        assert_eq!(list[1].command.as_deref(), Some("sysctl -w net.core.rmem_max=8388608"));
        let granted = |bytes| {
            Some(LinkFacts { send_buffer_bytes: bytes, receive_buffer_bytes: Some(8 << 20), ..LinkFacts::default() })
        };
        facts.link = granted(Some(4 << 20));
        assert_eq!(verdicts(&facts), [("wmem-max", CheckVerdict::Warning)], "the daemon was cut");
        facts.link = granted(Some(8 << 20));
        assert_eq!(verdicts(&facts), [], "the daemon passed it");
        let mut facts = tuned();
        facts.settings.insert("min_rto".to_owned(), "20ms".to_owned());
        assert_eq!(found(&facts, &way()), [], "both nodes agree upon it");
        facts.interface = Some(InterfaceFacts { route_rto_min_ms: Some(10), ..InterfaceFacts::default() });
        assert!(found(&facts, &way())[0].have.contains("the route"));
        let mut facts = tuned();
        let tcp = Tcp { retransmitted_share: 0.01, ..Tcp::default() };
        facts.link = Some(LinkFacts { tcp: Some(tcp), ..LinkFacts::default() });
        let near = found(&facts, &PathFacts { rtt_s: Some(0.003), ..way() });
        assert_eq!(
            (near.len(), near[0].id, near[0].verdict, near[0].want.as_str()),
            (1, "rto-min", CheckVerdict::Info, "40 ms")
        );
        assert!(near[0].why.contains("needs Linux 6.15"), "an older kernel refuses what is to be typed: {near:?}");
        let mut facts = tuned();
        facts.settings.insert("congestion".to_owned(), "westwood".to_owned());
        assert_eq!(found(&facts, &way())[0].command.as_deref(), Some("modprobe tcp_westwood"));
    }

    #[test]
    fn what_a_handshake_did_not_agree_upon_is_reported() {
        let mut facts = tuned();
        let handshake = TcpHandshake { sack: true, timestamps: true, window_scaling: false, ..TcpHandshake::default() };
        facts.peer = Some(PeerFacts { handshake: Some(handshake), ..PeerFacts::default() });
        let list = found(&facts, &way());
        assert_eq!((list.len(), list[0].id, list[0].verdict), (1, "window-scaling", CheckVerdict::Problem));
        assert!(list[0].why.contains("off at the peer"));
    }

    #[test]
    fn an_empty_sheet_is_unknown_not_wrong() {
        let list = found(&EndFacts::default(), &PathFacts::default());
        assert!(list.iter().all(|check| check.verdict == CheckVerdict::Info), "{list:?}");
    }
}
