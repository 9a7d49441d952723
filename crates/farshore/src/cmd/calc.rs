//! `calc`: the papers' formulas on their own.

use plan::answer::{FormulaAnswer, Value};
use plan::formulas as f;
use plan::hadr::{HadrMode, HadrSite, HadrWorkload};
use plan::table2::ROWS;
use units::quantities::{Bytes, Rate, Seconds, show_bit_rate, show_time};

use crate::args::planner::{
    ActivityLogArgs, BdpArgs, BuffersArgs, CalcArgs, CalcCommand, LegacyCalcArgs, LossArgs, ModesArgs, QueueArgs,
    RoundTripArgs, RtoArgs, Table4Args,
};
use crate::outcome::{CommandOutcome, Exit, print};

/// # Errors
/// When the answer cannot be written.
pub fn run(args: &CalcArgs) -> CommandOutcome {
    let answer = match &args.formula {
        CalcCommand::Bdp(args) => bdp(args),
        CalcCommand::Buffers(args) => buffers(args),
        CalcCommand::RoundTrip(args) => round_trip(args),
        CalcCommand::Queue(args) => queue(args),
        CalcCommand::Rto(args) => rto(args),
        CalcCommand::Loss(args) => loss(args),
        CalcCommand::ActivityLog(args) => activity_log(args),
        CalcCommand::Modes(args) => match args.legacy {
            Some(LegacyCalcArgs::Hadr) => legacy_hadr(args),
            None => modes(args),
        },
        CalcCommand::Table2 => table2(),
        CalcCommand::Table4(args) => table4(args),
    };
    print(&if args.json { format!("{}\n", answer.json()) } else { answer.text() })?;
    Ok(Exit::Done.into())
}

fn named(name: impl Into<String>, value: Value) -> (String, Value) {
    (name.into(), value)
}

fn bdp(args: &BdpArgs) -> FormulaAnswer {
    let one_way = Seconds(args.rtt.0 / 2.0);
    let answer = FormulaAnswer::new(
        "bdp",
        "rate x rtt = 2 x bandwidth x one-way delay; buffer = max(rate x rtt, largest write, 64 KiB), alike on both ends",
        "HADR, TCP tuning; AVS, socket buffers",
    )
    .with("bandwidth_delay", Value::Bytes(f::bandwidth_delay(args.rate, args.rtt)))
    .with("avs_form", Value::Bytes(f::bandwidth_delay_one_way(args.rate, one_way)))
    .with("socket_buffer", Value::Bytes(f::socket_buffer(args.rate, args.rtt, args.flush).as_f64()))
    .with("kernel_limit", Value::Bytes(2.0 * f::bandwidth_delay(args.rate, args.rtt) / f::GRANTED_USABLE))
    .note("kernel limit: net.ipv4.tcp_rmem and tcp_wmem maximum for the kernel's own tuning, twice the product over the usable share of 0.62");
    match args.pause {
        Some(pause) => answer.with("pause_buffer", Value::Bytes(f::hiccup_buffer(args.rate, pause).as_f64())),
        None => answer,
    }
}

fn buffers(args: &BuffersArgs) -> FormulaAnswer {
    let mut answer = FormulaAnswer::new(
        "buffers",
        "rate = min(link, buffer / rtt)",
        "AVS, table B-1 (KB is 1024, Mbit is 2^20 there)",
    );
    let cells = f::table_b1(&args.buffers, &args.rtts, args.link);
    for (&buffer, rates) in args.buffers.iter().zip(cells) {
        let cells = args.rtts.iter().zip(rates).map(|(&rtt, rate)| {
            named(
                format!("mibit_per_s_at_{}", show_time(rtt).replace(' ', "")),
                Value::Count(f::printed_as_b1(rate.as_mibit())),
            )
        });
        answer.rows.push(std::iter::once(named("buffer", Value::Bytes(buffer.as_f64()))).chain(cells).collect());
    }
    answer
}

fn round_trip(args: &RoundTripArgs) -> FormulaAnswer {
    let (calls, rate) = f::request_per_round_trip(args.write_size, args.rtt, args.depth, args.call);
    FormulaAnswer::new(
        "round-trip",
        "requests/s = depth / rtt; a write takes ceil(size / call) requests",
        "AVS: one call per round trip, calls of 32 KB",
    )
    .with("requests_per_second", Value::Count(calls))
    .with("rate", Value::Rate(rate))
}

fn queue(args: &QueueArgs) -> FormulaAnswer {
    let fill = Rate::from_bytes_per_s(args.write_size.as_f64() * args.writes);
    FormulaAnswer::new("queue", "time to full = queue / (fill - drain)", "AVS, examples 1 and 2")
        .with("fill", Value::Rate(fill))
        .with("drain", Value::Rate(args.drain))
        .with("full_after", Value::Seconds(f::queue_fill_time(args.queue, fill, args.drain)))
        .with("empty_after_writes_stop", Value::Seconds(args.queue.at(args.drain)))
}

fn rto(args: &RtoArgs) -> FormulaAnswer {
    let advised = f::rto_min_advice(args.rtt);
    FormulaAnswer::new(
        "rto",
        "timeout = rtt + max(4 x deviation, minimum); minimum worth setting = 3 x rtt within 20 ms to 200 ms",
        "RFC 6298 with Linux's floor; IBM i: lowering the minimum from 250 ms to 100 ms at 2-3 ms brought 81 %",
    )
    .with("timeout", Value::Seconds(f::retransmission_timeout(args.rtt, args.deviation, args.rto_min)))
    .with("advised_minimum", Value::Seconds(advised))
    .with("timeout_then", Value::Seconds(f::retransmission_timeout(args.rtt, args.deviation, advised)))
    .note("lower it on both ends or on none: the peer's delayed acknowledgement takes up to 40 ms, 200 ms at worst")
}

fn loss(args: &LossArgs) -> FormulaAnswer {
    let limit = |control| Value::Rate(f::loss_limit(args.link, args.rtt, args.loss, control));
    FormulaAnswer::new(
        "loss",
        "reno: segment / rtt x 1.2247 / sqrt(loss); cubic: max(reno, 1.054 x (rtt / loss)^0.75 segments per rtt); bbr: the link",
        "Mathis et al. 1997; RFC 9438",
    )
    .with("reno", limit(f::CongestionModel::Reno))
    .with("cubic", limit(f::CongestionModel::Cubic))
    .with("bbr", limit(f::CongestionModel::Bbr))
    .with("writes_delayed", Value::Share(f::loss_chance(args.write_size, args.loss).0))
    .with("their_delay", Value::Seconds(f::loss_delay(args.rtt, f::RTO_MIN_DEFAULT)))
}

fn activity_log(args: &ActivityLogArgs) -> FormulaAnswer {
    let answer = FormulaAnswer::new(
        "activity-log",
        "resync after a crash = extents x extent size / rate",
        "the regions of hot extents are compared or sent again after an unclean stop",
    )
    .with("covered", Value::Bytes(args.extents as f64 * args.extent.as_f64()))
    .with("resync_at_most", Value::Seconds(f::activity_log_resync(args.extents, args.extent, args.rate)));
    match args.target {
        Some(target) => answer
            .with("extents_for_target", Value::Count(f::activity_log_extents(target, args.extent, args.rate) as f64)),
        None => answer,
    }
}

fn modes(args: &ModesArgs) -> FormulaAnswer {
    let ((link, rtt), (disk, overhead)) = (args.link, args.disk);
    let local = overhead.0 + args.write_size.at(disk).0;
    let send = args.write_size.at(link).0;
    let mut answer = FormulaAnswer::new(
        "modes",
        "sync max(local, send + remote disk + rtt); nearsync max(local, send + rtt); async, superasync local",
        "the modes of this mirror: local write and sending run side by side",
    )
    .with("local", Value::Seconds(Seconds(local)))
    .with("send", Value::Seconds(Seconds(send)));
    for (mode, time) in [
        ("sync", local.max(send + local + rtt.0)),
        ("nearsync", local.max(send + rtt.0)),
        ("async", local),
        ("superasync", local),
    ] {
        answer.rows.push(vec![
            named("mode", Value::text(mode)),
            named("response", Value::Seconds(Seconds(time))),
            named("added", Value::Seconds(Seconds(time - local))),
            named("one_at_a_time", Value::Rate(Rate::from_bytes_per_s(args.write_size.as_f64() / time.max(1e-9)))),
        ]);
    }
    answer
}

fn legacy_hadr(args: &ModesArgs) -> FormulaAnswer {
    let site = HadrSite { link: args.link.0, rtt: args.link.1, disk: args.disk.0, disk_overhead: args.disk.1 };
    let wanted = "clap asks for it together with --legacy";
    let workload = HadrWorkload {
        actual: args.actual.expect(wanted),
        pages_per_flush: args.flush_pages.expect(wanted),
        pages_per_transaction: args.transaction_pages.expect(wanted),
        open_transactions: args.open.expect(wanted),
    };
    let mut answer = FormulaAnswer::new(
        "legacy-hadr",
        "SYNC 2 x disk + send + rtt; NEARSYNC max(disk, send + rtt); ASYNC max(disk, send); target: the flush size that carries the rate",
        "HADR calculator (pages of 4096 bytes, MB of 2^20)",
    );
    for mode in HadrMode::ALL {
        let cell = site.cell(mode, &workload);
        let rate = |rate: Rate| Value::Text(format!("{:.3}", rate.as_mib()));
        answer.rows.push(vec![
            named("mode", Value::text(mode.name())),
            named("mark", Value::text(cell.rating.text())),
            named("target_mib_per_s", rate(cell.target.rate)),
            named("pages", Value::Count(cell.target.printed_pages() as f64)),
            named("flush_s", Value::Text(format!("{:.6}", cell.target.time.0))),
            named("min_mib_per_s", rate(cell.min.rate)),
            named("max_mib_per_s", rate(cell.max.rate)),
        ]);
    }
    answer.note("marks: none below the least rate; ? below a quarter of the most, ?? below half, ??? above")
}

fn table2() -> FormulaAnswer {
    let mut answer = FormulaAnswer::new(
        "table2",
        "low latency is what the reader calls low; this planner says below 10 ms",
        "AVS, table 2",
    );
    for row in ROWS {
        answer.rows.push(vec![
            named("workload", Value::text(row.workload)),
            named("load", Value::text(row.load)),
            named("latency", Value::text(row.latency)),
            named("mode", Value::text(row.mode)),
        ]);
    }
    answer
}

fn table4(args: &Table4Args) -> FormulaAnswer {
    let mut answer = FormulaAnswer::new(
        "table4",
        "sync = ceil(size / 32 KiB) x rtt + async; the asynchronous times are the paper's own, measured",
        "AVS, table 4 (50 ms, 100 Mbit/s, 5 volumes, queue of 8 MB)",
    );
    for (kib, async_ms) in [(8, 10.0), (32, 18.0), (64, 25.0)] {
        let asynchronous = Seconds::from_ms(async_ms);
        let sync = f::avs_sync_response(Bytes::from_kib(kib), args.rtt, asynchronous);
        answer.rows.push(vec![
            named("write", Value::Bytes(Bytes::from_kib(kib).as_f64())),
            named("sync", Value::Seconds(sync)),
            named("async", Value::Seconds(asynchronous)),
            named("improvement", Value::Share((sync.0 - asynchronous.0) / asynchronous.0)),
        ]);
    }
    answer.note(format!(
        "a link of {} would not change the synchronous column: round trips do",
        show_bit_rate(Rate::from_mbit(1000.0))
    ))
}
