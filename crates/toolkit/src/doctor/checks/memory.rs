//! Whether what groups may hold in memory is there, and how near their queues came to their bounds.

use settings::limits::{QUEUE_ITEMS, QUEUE_MEMORY};
use units::quantities::show_share;

use crate::doctor::facts::{EndFacts, MemoryFacts, QueueFacts};
use crate::doctor::words::{size, time};
use crate::doctor::{Check, CheckVerdict};

/// Of what is available: the rest is for everything else on the machine, and for what came since.
const SHARE_MAX: f64 = 0.5;
/// The HADR pages' alert for a queue.
const FULL_SHARE: f64 = 0.8;

pub fn checks(facts: &EndFacts) -> Vec<Check> {
    // Without a daemon there is nothing to tell of queues, as the line `daemon` says.
    let queues = (!facts.queues.is_empty()).then(|| fullest(&facts.queues));
    [memory(facts.memory.as_ref())].into_iter().chain(queues).collect()
}

fn memory(memory: Option<&MemoryFacts>) -> Check {
    const ID: &str = "memory";
    let Some(MemoryFacts { groups, wanted_bytes, limit_bytes, held_bytes, available_bytes, total_bytes }) = memory
    else {
        return Check::unknown(ID, "what groups may hold is not known: no configuration was read");
    };
    // What the daemon holds is taken already.
    let available = available_bytes + held_bytes;
    let have = format!(
        "{groups} group{} may hold {} ({} now); {} of {} available",
        if *groups == 1 { "" } else { "s" },
        size(*wanted_bytes),
        size(*held_bytes),
        size(available),
        size(*total_bytes)
    );
    let share = *wanted_bytes as f64 / available.max(1) as f64;
    if share <= SHARE_MAX {
        return Check::ok(ID, have);
    }
    let verdict = if share > 1.0 { CheckVerdict::Problem } else { CheckVerdict::Warning };
    Check::new(ID, verdict, have).want(format!("half of what is available at most, {}", size(available / 2))).why(format!(
        "full queues would bring the machine to its end in an outage, when they are needed: lower `memory.limit` of the \
         node (now {}) or the groups' `queue.memory` and `window`, or give the machine more",
        size(*limit_bytes)
    ))
}

/// One line, however many groups there are: the fullest, and how many others came near.
fn fullest(queues: &[QueueFacts]) -> Check {
    const ID: &str = "queues";
    let by_share = |a: &&QueueFacts, b: &&QueueFacts| a.fullest_share().total_cmp(&b.fullest_share());
    let Some(most) = queues.iter().max_by(by_share) else { return Check::ok(ID, "none") };
    let peak = |limits: &str| {
        let (bytes, items) = (size(most.bytes_hwm), most.items_hwm);
        format!(
            "{}: {limits} at its fullest ({bytes} of {}, {items} of {} writes) since the daemon started",
            most.group,
            size(most.limit_bytes),
            most.limit_items
        )
    };
    // A queue that was made smaller, or that took one write larger than it, has held more than it may hold now.
    let have = match most.fullest_share() {
        share if share > 1.0 => peak("more than it may hold now"),
        share => peak(&format!("{} full", show_share(share))),
    };
    let near = queues.iter().filter(|queue| queue.fullest_share() > FULL_SHARE).count();
    if near == 0 {
        return Check::ok(ID, have);
    }
    let others = match near - 1 {
        0 => String::new(),
        1 => "; so was another group's".to_owned(),
        others => format!("; so were {others} other groups'"),
    };
    let waited = match most.blocked_ms {
        0 => String::new(),
        ms => format!("; writers waited {} for room, all together", time(ms as f64 / 1000.0)),
    };
    let (key, twice) =
        if most.bytes_hwm as f64 * most.limit_items as f64 >= most.items_hwm as f64 * most.limit_bytes as f64 {
            let bytes = roomy(most.limit_bytes, most.bytes_hwm).next_multiple_of(1 << 20);
            ("queue.memory", units::exact::size_text(bytes.min(QUEUE_MEMORY.max)))
        } else {
            ("queue.items", roomy(most.limit_items, most.items_hwm).min(QUEUE_ITEMS.max).to_string())
        };
    Check::new(ID, CheckVerdict::Warning, format!("{have}{others}"))
        .want(format!("{} at most", show_share(FULL_SHARE)))
        .why(format!(
            "when it is full writers wait, or regions are only tracked: the line was too slow for a burst, or away{waited}"
        ))
        .run(format!("farshore set {} {key}={twice}", most.group))
}

/// Twice the bound, or more where the peak would still come near that.
fn roomy(limit: u64, peak: u64) -> u64 {
    limit.saturating_mul(2).max((peak as f64 / FULL_SHARE).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn what_groups_may_hold_has_to_be_there() {
        let at = |wanted_bytes, held_bytes| {
            let bytes =
                MemoryFacts { wanted_bytes, held_bytes, available_bytes: 4 * GIB, total_bytes: 8 * GIB, ..MANY };
            memory(Some(&bytes))
        };
        const MANY: MemoryFacts = MemoryFacts {
            groups: 3,
            wanted_bytes: 0,
            limit_bytes: 6 * GIB,
            held_bytes: 0,
            available_bytes: 0,
            total_bytes: 0,
        };
        for (wanted, held, verdict) in [
            (2 * GIB, 0, CheckVerdict::Ok),
            (3 * GIB, 0, CheckVerdict::Warning),
            (3 * GIB, 2 * GIB, CheckVerdict::Ok),
            (5 * GIB, 0, CheckVerdict::Problem),
            (5 * GIB, GIB, CheckVerdict::Warning),
        ] {
            let check = at(wanted, held);
            assert_eq!(check.verdict, verdict, "{check:?}");
        }
        let check = at(3 * GIB, 0);
        assert_eq!(check.have, "3 groups may hold 3 GiB (0 B now); 4 GiB of 8 GiB available");
        assert!(check.want.contains("2 GiB") && check.why.contains("(now 6 GiB)"), "{check:?}");
        assert_eq!(memory(None).verdict, CheckVerdict::Info);
    }

    #[test]
    fn the_fullest_queue_is_reported() {
        let queue = |group: &str, mib: u64, items_hwm: u64| QueueFacts {
            group: group.to_owned(),
            bytes_hwm: mib << 20,
            limit_bytes: 64 << 20,
            items_hwm,
            limit_items: 1000,
            blocked_ms: 1500,
        };
        assert!(checks(&EndFacts::default()).iter().all(|check| check.id != "queues"), "no daemon");
        let calm = fullest(&[queue("a", 10, 10), queue("b", 16, 20)]);
        assert_eq!(calm.verdict, CheckVerdict::Ok);
        assert!(calm.have.starts_with("b: 25 % full at its fullest (16 MiB of 64 MiB, 20 of 1000 writes)"), "{calm:?}");
        let full = fullest(&[queue("a", 60, 10), queue("b", 1, 900), queue("c", 64, 3)]);
        assert_eq!(
            (full.verdict, full.command.as_deref()),
            (CheckVerdict::Warning, Some("farshore set c queue.memory=128MiB"))
        );
        assert!(full.have.ends_with("; so were 2 other groups'") && full.why.contains("waited 1.5 s"), "{full:?}");
        // Made smaller since: what it held then is no share of what it may hold now, and has to fit what is advised.
        let smaller = fullest(&[queue("d", 800, 3)]);
        assert!(
            smaller.have.starts_with("d: more than it may hold now at its fullest (800 MiB of 64 MiB"),
            "{smaller:?}"
        );
        assert_eq!(smaller.command.as_deref(), Some("farshore set d queue.memory=1000MiB"));
        assert_eq!(fullest(&[queue("b", 1, 900)]).command.as_deref(), Some("farshore set b queue.items=2000"));
    }
}
