//! The machine itself: clock, certificates, disk, space, versions.

use crate::doctor::facts::{EndFacts, Space};
use crate::doctor::words::{size, time};
use crate::doctor::{Check, CheckVerdict};

/// The HADR pages' alert for what a write waits; 99 of 100 flushes take no longer.
const FLUSH_MAX_S: f64 = 0.02;
/// Of a file system: with less free it fragments, and logs fill it over night.
const FREE_SHARE_MIN: f64 = 0.05;

pub fn checks(facts: &EndFacts) -> Vec<Check> {
    let remarks = facts.remarks.iter().map(|remark| Check::unknown("daemon", remark.clone()));
    let mut list: Vec<Check> = remarks.collect();
    list.push(clock(facts));
    list.extend(certificates(facts));
    list.extend([disk_flush(facts), io_uring(facts), space(facts), versions(facts)]);
    list
}

fn clock(facts: &EndFacts) -> Check {
    const ID: &str = "clock";
    match facts.clock {
        None => Check::unknown(ID, "the kernel does not say whether its clock is kept right"),
        Some(clock) if clock.synchronised => {
            Check::ok(ID, format!("synchronised, off by {} at most", time(clock.maximum_error_s)))
        }
        Some(_) => Check::new(ID, CheckVerdict::Warning, "not synchronised")
            .want("synchronised")
            .why("recovery points are reported in the primary's time")
            .run("timedatectl set-ntp true"),
    }
}

fn certificates(facts: &EndFacts) -> Vec<Check> {
    let warning = |text: &String| {
        let command = match &facts.node {
            // What is wrong with an authority is mended for all.
            _ if text.starts_with("the authority") => "farshore cert rotate --ca".to_owned(),
            Some(node) => format!("farshore cert rotate {node}"),
            None => "farshore cert show".to_owned(),
        };
        Check::new("tls", CheckVerdict::Warning, text.clone()).want("valid for a month and more").run(command)
    };
    match (&facts.certificate_warnings, &facts.certificate_until) {
        (warnings, _) if !warnings.is_empty() => warnings.iter().map(warning).collect(),
        (_, Some(until)) => vec![Check::ok("tls", format!("valid until {until}"))],
        (_, None) => vec![Check::unknown("tls", "no certificates: none are configured, or no configuration was read")],
    }
}

fn disk_flush(facts: &EndFacts) -> Check {
    const ID: &str = "disk-flush";
    let Some(disk) = &facts.disk else {
        return Check::unknown(ID, "not measured: no state directory is known, or --skip-disk was given");
    };
    if let Some(why) = &disk.failed {
        return Check::new(ID, CheckVerdict::Problem, why.clone())
            .want("a durable write")
            .run(format!("farshore disk test {}", disk.path));
    }
    let have = format!("4 KiB durable in {}, 99 of 100 within {}", time(disk.flush_p50_s), time(disk.flush_p99_s));
    if disk.in_memory {
        return Check::new(ID, CheckVerdict::Warning, format!("{} is in memory ({})", disk.path, disk.file_system))
            .want("a disk")
            .why("journal and superblock there do not survive a restart of the machine");
    }
    if disk.flush_p99_s > FLUSH_MAX_S {
        return Check::new(ID, CheckVerdict::Warning, have)
            .want(format!("99 of 100 within {}", time(FLUSH_MAX_S)))
            .why("every write in sync mode, and every one that a secondary lands, waits for it")
            .run(format!("farshore disk test {}", disk.path));
    }
    Check::ok(ID, have)
}

fn io_uring(facts: &EndFacts) -> Check {
    match &facts.io_uring_refused {
        None => Check::ok("io-uring", "works"),
        Some(why) => Check::new("io-uring", CheckVerdict::Info, "workers are used instead")
            .want("io_uring")
            .why(why.clone())
            .run("sysctl -w kernel.io_uring_disabled=0"),
    }
}

fn space(facts: &EndFacts) -> Check {
    const ID: &str = "space";
    let Some(Space { path, free_bytes, total_bytes, promised_bytes }) = &facts.space else {
        return Check::unknown(ID, "no state directory is known: give --config");
    };
    let promised = match promised_bytes {
        0 => String::new(),
        bytes => format!("; journals, undo stores and disk queues may still take {}", size(*bytes)),
    };
    let have = format!("{} free of {} in {path}{promised}", size(*free_bytes), size(*total_bytes));
    if free_bytes < promised_bytes {
        return Check::new(ID, CheckVerdict::Problem, have)
            .want(size(*promised_bytes))
            .why("a journal that cannot be made keeps its group from starting; an undo store that cannot grow ends a sync; a disk queue that cannot be made is done without")
            .run(format!("df -h {path}"));
    }
    if (*free_bytes as f64) < *total_bytes as f64 * FREE_SHARE_MIN {
        return Check::new(ID, CheckVerdict::Warning, have).want("5 % free").run(format!("df -h {path}"));
    }
    Check::ok(ID, have)
}

fn versions(facts: &EndFacts) -> Check {
    let have = format!("farshore {}, Linux {}", facts.farshore, facts.kernel);
    match &facts.daemon {
        Some(daemon) if *daemon != facts.farshore => {
            Check::new("versions", CheckVerdict::Warning, format!("{have}; the daemon runs {daemon}"))
                .want(format!("daemon {}", facts.farshore))
                .why("a newer program was installed and the old one still runs")
                .run("systemctl restart farshore")
        }
        _ => Check::ok("versions", have),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::{Clock, DiskFacts};

    fn healthy() -> EndFacts {
        EndFacts {
            farshore: "1.2.0".to_owned(),
            daemon: Some("1.2.0".to_owned()),
            clock: Some(Clock { synchronised: true, maximum_error_s: 0.01 }),
            certificate_until: Some("2027-01-01T00:00:00Z".to_owned()),
            disk: Some(DiskFacts { flush_p50_s: 0.001, flush_p99_s: 0.004, ..DiskFacts::default() }),
            space: Some(Space {
                free_bytes: 60 << 30,
                total_bytes: 100 << 30,
                promised_bytes: 1 << 30,
                ..Space::default()
            }),
            ..EndFacts::default()
        }
    }

    #[test]
    fn each_trouble_of_the_machine_is_one_line() {
        use CheckVerdict::{Info, Problem, Warning};
        for (change, expected) in [
            ((|_| {}) as fn(&mut EndFacts), vec![]),
            (|f| f.clock = Some(Clock::default()), vec![("clock", Warning)]),
            (|f| f.clock = None, vec![("clock", Info)]),
            (|f| f.certificate_warnings = vec!["ends soon".to_owned()], vec![("tls", Warning)]),
            (|f| f.certificate_until = None, vec![("tls", Info)]),
            (|f| f.disk = None, vec![("disk-flush", Info)]),
            (|f| f.disk.as_mut().unwrap().flush_p99_s = 0.02, vec![]),
            // A writer in `sync` meets the hundredth flush soon.
            (|f| f.disk.as_mut().unwrap().flush_p99_s = 0.18, vec![("disk-flush", Warning)]),
            (|f| f.disk.as_mut().unwrap().in_memory = true, vec![("disk-flush", Warning)]),
            (|f| f.disk.as_mut().unwrap().failed = Some("read-only".to_owned()), vec![("disk-flush", Problem)]),
            (|f| f.io_uring_refused = Some("seccomp".to_owned()), vec![("io-uring", Info)]),
            (|f| f.space.as_mut().unwrap().free_bytes = 1 << 20, vec![("space", Problem)]),
            (|f| f.space.as_mut().unwrap().free_bytes = 2 << 30, vec![("space", Warning)]),
            (|f| f.daemon = Some("1.1.0".to_owned()), vec![("versions", Warning)]),
            (|f| f.daemon = None, vec![]),
            (|f| f.remarks = vec!["no daemon answers".to_owned()], vec![("daemon", Info)]),
        ] {
            let mut facts = healthy();
            change(&mut facts);
            let list = checks(&facts);
            let found: Vec<_> = list
                .iter()
                .filter(|check| check.verdict != CheckVerdict::Ok)
                .map(|check| (check.id, check.verdict))
                .collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn the_value_wanted_of_a_flush_is_the_limit() {
        let mut facts = healthy();
        facts.disk.as_mut().unwrap().flush_p99_s = 0.18;
        let check = disk_flush(&facts);
        assert_eq!(
            (check.have.as_str(), check.want.as_str()),
            ("4 KiB durable in 1 ms, 99 of 100 within 180 ms", "99 of 100 within 20 ms")
        );
    }
}
