//! What links may carry now. Where `schedule` has other rates at other times, that follows the clock of this node.

use std::cell::Cell;
use std::time::Duration;

use host::driver::{DriverControl, Gone};
use host::link::FrameOptions;
use jiff::Zoned;
use settings::{LinkSettings, WeekMinute};
use units::exact::show_rate;

/// A schedule has minutes.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(5);

/// By the clock and the time zone of this node.
pub(super) fn week_minute() -> WeekMinute {
    let now = Zoned::now();
    let number = |of: i8| u16::try_from(of).unwrap_or_default();
    WeekMinute::new(number(now.weekday().to_monday_zero_offset()), number(now.hour()), number(now.minute()))
}

/// What the data path was told last.
#[derive(Default)]
pub(super) struct LinkRate {
    told: Cell<Option<FrameOptions>>,
}

impl LinkRate {
    /// Tells the data path what holds now, if that is something else than before.
    pub async fn tell(&self, settings: &LinkSettings, control: &DriverControl) -> Result<(), Gone> {
        let flow = settings.flow(week_minute());
        let before = self.told.replace(Some(flow));
        if before == Some(flow) {
            return Ok(());
        }
        if before.is_some_and(|before| before.rate != flow.rate) {
            let allowed = flow.rate.map_or_else(|| "no limit".to_owned(), |rate| show_rate(rate as f64));
            tracing::info!("links: what this node sends at most is {allowed} from now on");
        }
        control.set_flow(flow).await
    }
}
