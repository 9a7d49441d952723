//! `queue`, `drain` and `stats`.

use std::time::Duration;

use clap::Args as ClapArgs;
use units::exact::parse_duration;

use super::groups::GroupsArgs;
use super::reach::ReachAny;

#[derive(Debug, ClapArgs)]
pub struct QueueArgs {
    #[command(flatten)]
    pub groups: GroupsArgs,
    /// Show it again each second until interrupted
    #[arg(long)]
    pub watch: bool,
    /// Count the peaks of the queue from now on
    #[arg(long, conflicts_with = "watch")]
    pub reset_peaks: bool,
    /// One JSON object, schema farshore-queue/1 (docs/book/status-json.md); with --reset-peaks farshore-answer/1
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, ClapArgs)]
pub struct DrainArgs {
    #[command(flatten)]
    pub groups: GroupsArgs,
    /// Wait for this mark of each group, and for nothing behind it; 'now': for what is written so far [default: now]
    #[arg(long, value_name = "MARK")]
    pub to: Option<String>,
    /// Give up after this time, such as 10m [default: never]
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// One JSON object, schema farshore-answer/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, ClapArgs)]
pub struct StatsArgs {
    /// Stretch of time that each line is of, such as 5 (seconds) or 1m; without COUNT for ever [default: 1s, once]
    #[arg(value_parser = interval)]
    pub interval: Option<Duration>,
    /// How often
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Only this group
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// One JSON object per line, schema farshore-stats/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

/// Longest stretch: within it a daemon may be restarted, and nothing is known of what was before.
const INTERVAL_MAX: Duration = Duration::from_secs(24 * 3600);
/// Shortest one: the data thread hands out a snapshot for each.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// A plain number is of seconds, as with iostat and vmstat.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<u64>().map(|_| format!("{text}s"));
    let interval = parse_duration(seconds.as_deref().unwrap_or(text))?;
    if (INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
        return Ok(interval);
    }
    Err("a stretch lasts 100 ms to 24 h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_number_is_of_seconds() {
        assert_eq!(interval("5"), Ok(Duration::from_secs(5)));
        assert_eq!(interval("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(interval("1m"), Ok(Duration::from_secs(60)));
        for wrong in ["0", "1ms", "25h", "x", "-1", "5 apples"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
