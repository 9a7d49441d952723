//! How well a group kept to its RPO, on one page.

use jiff::tz::TimeZone;
use toolkit::screen::{Colour, Paint, clean};
use units::exact::show_seconds;

use super::events::time_text;
use super::table::{Table, in_one_line, plain};
use crate::api::{RpoHistory, RpoLevel, RpoMiss};

/// Rows of the list; the newest ones. JSON has them all.
const ROWS: usize = 20;

/// What `rpo` prints of one group.
pub fn page(history: &RpoHistory, zone: &TimeZone, paint: &Paint) -> String {
    let all = history.until_unix_ms.saturating_sub(history.since_unix_ms) as f64 / 1000.0;
    let head = format!("{}  the last {}", clean(&history.group), show_seconds(all));
    let mut text = paint.with(Colour::Head, &head) + "\n";
    if history.levels.is_empty() {
        return text + "  rpo.warn and rpo.error are off, and were not passed\n";
    }
    let mut table = Table::new(["THRESHOLD", "", "WATCHED", "MET", "MISSED", "TIMES", "LONGEST"]);
    history.levels.iter().for_each(|level| table.row(row(level)));
    text += &table.text("  ", paint);
    if history.missed.is_empty() {
        return text;
    }
    let mut table = Table::new(["SINCE", "FOR", "PASSED", "SEEN BY", "ENDED"]);
    let left_out = history.missed.len().saturating_sub(ROWS);
    history.missed.iter().skip(left_out).for_each(|miss| table.row(missed(miss, zone)));
    text += "\n";
    if left_out > 0 {
        text += &format!("  {left_out} older ones are left out; --json has them\n");
    }
    text + &table.text("  ", paint)
}

type Cell = (String, Option<Colour>);

fn row(level: &RpoLevel) -> [Cell; 7] {
    let colour = if level.missed_s > 0.0 { Colour::Busy } else { Colour::Good };
    [
        plain(&format!("rpo.{}", level.level)),
        plain(&level.threshold_s.map_or("off".to_owned(), show_seconds)),
        plain(&show_seconds(level.watched_s)),
        (level.met_share.map_or("not known".to_owned(), percent), level.met_share.map(|_| colour)),
        plain(&show_seconds(level.missed_s)),
        plain(&level.times.to_string()),
        plain(&if level.times == 0 { "-".to_owned() } else { show_seconds(level.longest_s) }),
    ]
}

fn missed(miss: &RpoMiss, zone: &TimeZone) -> [Cell; 5] {
    let threshold = miss.threshold_s.map(|seconds| format!(" {}", show_seconds(seconds))).unwrap_or_default();
    let ended = match (&miss.reason, miss.until_unix_ms) {
        (Some(why), _) => in_one_line(why),
        (None, Some(_)) => "met again".to_owned(),
        (None, None) => "not yet".to_owned(),
    };
    [
        plain(&time_text(miss.since_unix_ms, zone)),
        plain(&show_seconds(miss.lasted_s)),
        plain(&format!("rpo.{}{threshold}", miss.level)),
        plain(&miss.node),
        plain(&ended),
    ]
}

/// Never 100 % of what was missed in part.
fn percent(share: f64) -> String {
    match share {
        1.0.. => "100 %".to_owned(),
        _ => format!("{:.3} %", (share * 100_000.0).floor() / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_missed_is_never_rounded_away() {
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.999_999_9), "99.999 %");
        assert_eq!(percent(0.8), "80.000 %");
    }

    #[test]
    fn a_page_has_the_shares_and_each_time() {
        let miss = |until_unix_ms, reason: Option<&str>| RpoMiss {
            level: "warn".into(),
            node: "alpha".into(),
            since_unix_ms: 1_796_000_000_000,
            until_unix_ms,
            lasted_s: 243.0,
            threshold_s: Some(30.0),
            reason: reason.map(str::to_owned),
        };
        let level = |level: &str, times, missed_s| RpoLevel {
            level: level.into(),
            threshold_s: Some(30.0),
            watched_s: 86_400.0,
            met_share: Some(1.0 - missed_s / 86_400.0),
            missed_s,
            times,
            longest_s: missed_s,
        };
        let history = RpoHistory {
            group: "db".into(),
            since_unix_ms: 0,
            until_unix_ms: 86_400_000,
            levels: vec![level("warn", 2, 243.0), level("error", 0, 0.0)],
            missed: vec![miss(Some(1), None), miss(None, None)],
        };
        let page = page(&history, &TimeZone::UTC, &Paint::plain());
        assert_eq!(
            page,
            "\
db  the last 1 d
  THRESHOLD        WATCHED  MET       MISSED     TIMES  LONGEST
  rpo.warn   30 s  1 d      99.718 %  4 min 3 s  2      4 min 3 s
  rpo.error  30 s  1 d      100 %     0.0 s      0      -

  SINCE                           FOR        PASSED         SEEN BY  ENDED
  2026-11-30 00:53:20.000 +00:00  4 min 3 s  rpo.warn 30 s  alpha    met again
  2026-11-30 00:53:20.000 +00:00  4 min 3 s  rpo.warn 30 s  alpha    not yet
"
        );
    }
}
