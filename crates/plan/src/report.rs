//! The plan as pictures, and as one page that a manager can read: verdict first, then why, then everything.

use std::ops::Range;

use crate::advice::Advice;
use crate::model::ModelMode;
use crate::picture::{COLOURS, Chart, PlotLine, Scale, svg};
use crate::plan::{ModePlan, ModesPlan};
use crate::plan_text::{inputs, mode_rows, outage_sentence, variant_rows};
use crate::show::facts;
use units::quantities::{Bytes, Seconds, show_bytes, show_bytes_decimal, show_rate, show_time};

/// Points of a distribution's curve.
const CURVE_POINTS: usize = 400;

fn colour(mode: ModelMode) -> &'static str {
    COLOURS[mode as usize % COLOURS.len()]
}

/// The four pictures of a plan.
pub fn charts(plan: &ModesPlan) -> Vec<Chart> {
    let curves = |mode: &ModePlan| mode.curves.clone();
    let ordered = plan
        .modes
        .iter()
        .find(|mode| mode.kind == ModelMode::Async)
        .or(plan.modes.iter().find(|mode| mode.kind.is_ordered()));
    let mut rates = vec![PlotLine::new("written", COLOURS[1], plan.work.fill.rates().collect()).filled()];
    if let Some(drain) = ordered.and_then(curves).and_then(|curves| curves.drain) {
        rates.push(PlotLine::new("sent", COLOURS[0], drain.rates().collect()));
    }
    let goodput = plan.setup.link.goodput();
    let mut queue = vec![PlotLine::new("without a limit", COLOURS[4], plan.free_queue.points().collect()).dashed()];
    if let Some((mode, curves)) = ordered.and_then(|mode| mode.curves.as_ref().map(|curves| (mode, curves))) {
        queue.push(PlotLine::new(mode.mode, colour(mode.kind), curves.queue.points().collect()).filled());
    }
    let with_curves = || plan.modes.iter().filter_map(|mode| mode.curves.as_ref().map(|curves| (mode, curves)));
    let lag = with_curves()
        .filter(|(mode, _)| mode.kind != ModelMode::Logging)
        .map(|(mode, curves)| PlotLine::new(mode.mode, colour(mode.kind), curves.lag.points().collect()));
    let added = with_curves()
        .filter(|(mode, _)| mode.kind.is_ordered())
        .map(|(mode, curves)| PlotLine::new(mode.mode, colour(mode.kind), stairs(&curves.added)));
    vec![
        Chart {
            id: "rates",
            title: "What is written and what is sent".to_owned(),
            x: (Scale::Time, "time of the trace"),
            y: (Scale::Rate, "bytes per second"),
            lines: rates,
            limits: vec![(format!("link {}", show_rate(goodput)), goodput.bytes_per_s())],
        },
        Chart {
            id: "queue",
            title: "What waits in the queue".to_owned(),
            x: (Scale::Time, "time of the trace"),
            y: (Scale::Bytes, "bytes"),
            lines: queue,
            limits: vec![(
                format!("limit {}", show_bytes(Bytes(plan.setup.queue_bytes))),
                plan.setup.queue_bytes as f64,
            )],
        },
        Chart {
            id: "lag",
            title: "How old the far copy is".to_owned(),
            x: (Scale::Time, "time of the trace"),
            y: (Scale::LogTime, "age (logarithmic)"),
            lines: lag.collect(),
            limits: plan.questions.rpo.map(|rpo| (format!("allowed {}", show_time(rpo)), rpo.0)).into_iter().collect(),
        },
        Chart {
            id: "added-latency",
            title: "How much longer a write takes".to_owned(),
            x: (Scale::LogTime, "longer than without a mirror (logarithmic)"),
            y: (Scale::Share, "share of all writes"),
            lines: added.collect(),
            limits: Vec::new(),
        },
    ]
}

/// A distribution as it is: between two times that occur no share is added. Many steps become fewer, but for the first: that of
/// the writes which take no longer at all.
fn stairs(distribution: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let Some((&first, rest)) = distribution.split_first() else { return Vec::new() };
    let group = rest.len().div_ceil(CURVE_POINTS).max(1);
    let kept = std::iter::once(first).chain(rest.chunks(group).filter_map(|chunk| chunk.last()).copied());
    let mut reached = 0.0;
    let steps = kept.flat_map(|(at, share)| [(at, std::mem::replace(&mut reached, share)), (at, share)]);
    std::iter::once((0.0, 0.0)).chain(steps).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const STYLE: &str = "
body{font:15px/1.5 'DejaVu Sans','Liberation Sans',Helvetica,Arial,sans-serif;color:#263238;background:#f4f6f7;margin:0}
main{max-width:960px;margin:0 auto;padding:24px;background:#fff;box-shadow:0 0 8px #cfd8dc}
h1{font-size:26px;margin:0 0 4px}h2{font-size:19px;margin:36px 0 8px;border-bottom:2px solid #0072b2;padding-bottom:4px}
.lead{color:#546e7a;margin:0 0 20px}.verdict{background:#e8f1f8;border-left:6px solid #0072b2;padding:14px 18px}
.verdict b{font-size:20px}.tiles{display:flex;flex-wrap:wrap;gap:12px;margin:18px 0}
.tile{flex:1 1 140px;background:#f4f6f7;padding:10px 14px;border-radius:6px}.tile b{display:block;font-size:20px}.tile span{color:#546e7a;font-size:13px}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;width:100%}th{background:#eceff1;font-weight:600}
th,td{padding:5px 8px;text-align:right;border-bottom:1px solid #e0e6e9;white-space:nowrap}th:first-child,td:first-child{text-align:left}
td.prose,th.prose{white-space:normal;text-align:left}tr.chosen td{background:#e8f1f8;font-weight:600}
svg{max-width:100%;height:auto;margin:8px 0}ul{padding-left:20px}.note{color:#8a5a00}footer{color:#78909c;font-size:13px;margin-top:36px}
@media print{body{background:#fff}main{box-shadow:none;padding:0}}
";

fn html_table(header: &[String], rows: &[Vec<String>], chosen: Option<&str>) -> String {
    let head: String = header.iter().map(|cell| format!("<th>{}</th>", escaped(cell))).collect();
    let body: String = rows
        .iter()
        .map(|row| {
            let class = if chosen.is_some_and(|name| row[0] == name) { " class=\"chosen\"" } else { "" };
            let cells: String = row.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
            format!("<tr{class}>{cells}</tr>\n")
        })
        .collect();
    format!("<div class=\"wide\"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>\n")
}

/// Columns of the table of modes that tell what writers feel; the rest tell of queue, lag and link.
const WRITERS_COLUMNS: usize = 7;

/// The names and some of the columns: a page is narrower than a terminal.
fn columns(header: &[String], rows: &[Vec<String>], wanted: Range<usize>, chosen: &str) -> String {
    let cut =
        |row: &Vec<String>| row[..1].iter().chain(&row[wanted.start.max(1)..wanted.end]).cloned().collect::<Vec<_>>();
    html_table(&cut(&header.to_vec()), &rows.iter().map(cut).collect::<Vec<_>>(), Some(chosen))
}

fn prose_table(rows: &[(String, String, String)]) -> String {
    let row = |(key, value, reason): &(String, String, String)| {
        let reason =
            if reason.is_empty() { String::new() } else { format!("<td class=\"prose\">{}</td>", escaped(reason)) };
        format!("<tr><td>{}</td><td class=\"prose\">{}</td>{reason}</tr>\n", escaped(key), escaped(value))
    };
    format!("<div class=\"wide\"><table><tbody>\n{}</tbody></table></div>\n", rows.iter().map(row).collect::<String>())
}

fn tiles(plan: &ModesPlan, advice: &Advice) -> String {
    let mut tiles = Vec::new();
    if let Some(mode) = plan.modes.iter().find(|mode| mode.kind == advice.kind) {
        tiles.push((show_time(Seconds(mode.added_s.p99)), "longer for 99 of 100 writes, with the queue given"));
        tiles.push((show_time(Seconds(mode.lag_s.max)), "oldest far copy in this trace"));
        tiles.push((show_time(Seconds(mode.blocked.clock_s)), "writers blocked, with the queue given"));
        tiles.push((show_bytes_decimal(mode.wire_bytes_per_day), "over the link in a day"));
    }
    tiles.push((show_time(Seconds(plan.outage.catch_up_s)), "to catch up after the outage"));
    let tile = |(value, word): &(String, &str)| {
        format!("<div class=\"tile\"><b>{}</b><span>{word}</span></div>", escaped(value))
    };
    format!("<div class=\"tiles\">{}</div>\n", tiles.iter().map(tile).collect::<String>())
}

/// The whole page; nothing in it is fetched from anywhere.
pub fn html(plan: &ModesPlan, advice: &Advice, trace_name: &str) -> String {
    let own = |(name, value): (&str, String)| (name.to_owned(), value, String::new());
    let reason = advice.items.first().map(|item| item.reason.as_str()).unwrap_or_default();
    let items: Vec<_> =
        advice.items.iter().map(|item| (item.key.to_owned(), item.value.clone(), item.reason.clone())).collect();
    let notes: String =
        advice.warnings.iter().map(|note| format!("<li class=\"note\">{}</li>\n", escaped(note))).collect();
    let (mode_header, mode_cells) = mode_rows(plan);
    let (saving_header, savings) = variant_rows(&plan.variants);
    let (change_header, changes) = variant_rows(&plan.changes);
    let pictures: String = charts(plan).iter().map(svg).collect();
    let [workload, load, latency, table2] = advice.table2;
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Replication plan: {name}</title><style>{STYLE}</style></head><body><main>\n\
         <h1>Replication plan</h1><p class=\"lead\">{name}, {time} of real writes, replayed against the link below</p>\n\
         <div class=\"verdict\"><b>Recommended mode: {mode}</b><br>{reason}.</div>\n{tiles}\
         <h2>Under these conditions</h2>\n{inputs}\
         <h2>What to set, and why</h2>\n{items}<p>Table 2 of the AVS paper: {workload}, {load}, {latency} latency: {table2}.</p>\n<ul>{notes}</ul>\n\
         <h2>The curves</h2>\n{pictures}\
         <h2>Every mode</h2>\n{modes}\
         <p>Marks as in the HADR calculator: none, the workload fits with one write at a time; ? to ??? the nearer the busiest minute comes to what \
         the mode can carry one burst at a time.</p>\n\
         <h2>What folding and compression save</h2>\n{savings}<h2>What another link would change</h2>\n{changes}\
         <h2>When the link is away</h2>\n<p>{outage}.</p>\n\
         <h2>The workload</h2>\n{facts}\
         <footer>Made by farshore {version} from the trace alone: the same trace and the same numbers give the same page.</footer>\n</main></body></html>\n",
        name = escaped(trace_name),
        time = show_time(Seconds(plan.work.duration_s)),
        mode = advice.mode,
        reason = escaped(reason),
        tiles = tiles(plan, advice),
        inputs = prose_table(&inputs(plan).into_iter().map(own).collect::<Vec<_>>()),
        items = prose_table(&items),
        modes = columns(&mode_header, &mode_cells, 0..WRITERS_COLUMNS, advice.mode)
            + &columns(&mode_header, &mode_cells, WRITERS_COLUMNS..mode_header.len(), advice.mode),
        savings = html_table(&saving_header, &savings, None),
        changes = html_table(&change_header, &changes, None),
        outage = escaped(&outage_sentence(plan)),
        facts = prose_table(&facts(&plan.work).into_iter().map(own).collect::<Vec<_>>()),
        version = env!("CARGO_PKG_VERSION"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six writes in ten take no longer: no slope up to the first that does.
    #[test]
    fn a_distribution_is_drawn_as_stairs() {
        let drawn = stairs(&[(0.0, 0.6), (1.0, 0.9), (2.0, 1.0)]);
        assert_eq!(drawn[1..], [(0.0, 0.0), (0.0, 0.6), (1.0, 0.6), (1.0, 0.9), (2.0, 0.9), (2.0, 1.0)]);
        // A step for each of thousands of times: fewer are drawn, the first and the last among them.
        let many: Vec<(f64, f64)> = (0..5000).map(|n| (f64::from(n), f64::from(n + 1) / 5000.0)).collect();
        let drawn = stairs(&many);
        assert!(drawn.len() <= 2 * CURVE_POINTS + 3 && drawn[2] == many[0] && drawn.last() == many.last());
        assert!(stairs(&[]).is_empty());
    }
}
