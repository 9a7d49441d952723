//! Events as lines for eyes: time, node, group or peer, kind, and the text.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use settings::events::EventKind;
use toolkit::screen::{Colour, Paint, clean};

use super::table::in_one_line;
use crate::events::EventRecord;

/// Lines whose columns stand below each other. A column grows with what comes and never shrinks, so that lines that are shown as they come
/// stay in order.
pub struct EventLines {
    zone: TimeZone,
    paint: Paint,
    widths: [usize; 3],
}

impl EventLines {
    pub fn new(zone: TimeZone, paint: Paint) -> EventLines {
        EventLines { zone, paint, widths: [0; 3] }
    }

    /// One line for each event.
    pub fn text(&mut self, events: &[EventRecord]) -> String {
        let rows: Vec<[String; 3]> = events.iter().map(cells).collect();
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        events.iter().zip(&rows).map(|(event, row)| self.line(event, row)).collect()
    }

    fn line(&self, event: &EventRecord, row: &[String; 3]) -> String {
        let mut line = time_text(event.time_unix_ms, &self.zone);
        for (column, (width, cell)) in self.widths.iter().zip(row).enumerate() {
            // Padding stands outside the colour: its codes have no width.
            let pad = " ".repeat(width - cell.chars().count());
            let shown = match colour(event) {
                Some(colour) if column == 2 => self.paint.with(colour, cell),
                _ => cell.clone(),
            };
            line += &format!("  {shown}{pad}");
        }
        format!("{line}  {}\n", in_one_line(&event.text))
    }
}

fn cells(event: &EventRecord) -> [String; 3] {
    let subject = event.group.as_deref().or(event.peer.as_deref()).unwrap_or("-");
    [&event.node, subject, &event.kind].map(clean)
}

/// Local time with its distance from UTC, as zones change in the night.
pub(super) fn time_text(unix_ms: u64, zone: &TimeZone) -> String {
    let time = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    match time {
        Some(time) => time.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S%.3f %:z").to_string(),
        None => format!("{unix_ms} ms"),
    }
}

/// Of those that somebody should see at a glance.
fn colour(event: &EventRecord) -> Option<Colour> {
    use EventKind as Kind;
    match EventKind::parse(&event.kind).ok()? {
        Kind::LinkLost | Kind::RpoMissed | Kind::WriteFailed | Kind::HookFailed | Kind::EventsNotKept => {
            Some(Colour::Bad)
        }
        Kind::QueueDropped | Kind::ModeLowered | Kind::WritersHeldUp | Kind::SyncStopped | Kind::LinkUnsteady => {
            Some(Colour::Busy)
        }
        Kind::LinkConnected | Kind::ModeRestored | Kind::RpoMet | Kind::WritersGoOn | Kind::SyncEnded => {
            Some(Colour::Good)
        }
        Kind::Command | Kind::Role => Some(Colour::Head),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::NewEvent;

    #[test]
    fn columns_stand_below_each_other_and_texts_are_one_line() {
        let lost = NewEvent::at(1_796_000_000_123, EventKind::LinkLost, "silence\nfor 5 s").of_peer("beta");
        let started = NewEvent::at(1_796_000_001_000, EventKind::DaemonStarted, "a \u{1b}[31mtrick");
        let state = NewEvent::at(1_796_000_002_000, EventKind::State, "x").of_group("a-long-name");
        let mut lines = EventLines::new(TimeZone::fixed(jiff::tz::offset(2)), Paint::plain());
        let text = lines.text(&[lost.numbered(1, "alpha"), started.numbered(2, "alpha")]);
        let later = lines.text(&[state.numbered(3, "alpha")]);
        assert_eq!(
            text,
            "2026-11-30 02:53:20.123 +02:00  alpha  beta  link-lost       silence; for 5 s\n\
             2026-11-30 02:53:21.000 +02:00  alpha  -     daemon-started  a ?[31mtrick\n"
        );
        assert_eq!(later, "2026-11-30 02:53:22.000 +02:00  alpha  a-long-name  state           x\n");
        assert_eq!(time_text(u64::MAX, &TimeZone::UTC), format!("{} ms", u64::MAX));
    }
}
