//! Rates by the clock: what a link may carry at which time of the week.

use std::fmt::{self, Display};

use units::exact::{parse_rate, rate_text};

use crate::limits::PACING;

/// What stands in place of a rate where there is no limit.
pub const UNLIMITED: &str = "unlimited";
const OFF: &str = "off";
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const DAY_MINUTES: u16 = 24 * 60;
const WEEK_MINUTES: u16 = 7 * DAY_MINUTES;
/// More of them are no schedule that anybody reads.
const SPANS_MAX: usize = 32;

/// A minute of the week, from 00:00 of Monday, by a wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WeekMinute(u16);

impl WeekMinute {
    /// `day`: 0 for Monday to 6 for Sunday. What lies past the week counts as its last minute.
    pub const fn new(day: u16, hour: u16, minute: u16) -> WeekMinute {
        let minutes = day * DAY_MINUTES + hour * 60 + minute;
        WeekMinute(if minutes < WEEK_MINUTES { minutes } else { WEEK_MINUTES - 1 })
    }
}

impl Display for WeekMinute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (day, minute) = (self.0 / DAY_MINUTES, self.0 % DAY_MINUTES);
        write!(f, "{} {:02}:{:02}", DAYS[usize::from(day)], minute / 60, minute % 60)
    }
}

/// Rates at times of the week. At other times none of them holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateSchedule {
    spans: Vec<RateSpan>,
}

/// A rate between two times of some days.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RateSpan {
    /// First and last, 0 for Monday; `None`: every day.
    days: Option<(u16, u16)>,
    /// Minutes of the day. The end may lie on the next day.
    from: u16,
    to: u16,
    /// Bits per second; `None`: as the line takes them.
    bits: Option<u64>,
}

impl RateSchedule {
    /// # Errors
    /// A sentence: what cannot be read, or which two spans overlap.
    pub fn parse(text: &str) -> Result<RateSchedule, String> {
        if text.trim() == OFF {
            return Ok(RateSchedule::default());
        }
        let spans = text.split(',').map(|span| RateSpan::parse(span.trim())).collect::<Result<Vec<_>, _>>()?;
        if spans.len() > SPANS_MAX {
            return Err(format!("{} times are too many; use at most {SPANS_MAX}", spans.len()));
        }
        let schedule = RateSchedule { spans };
        match schedule.overlap() {
            Some((first, second, at)) => Err(format!(
                "\"{first}\" and \"{second}\" overlap from {at} on: at each time one rate holds, so end the one where the other begins"
            )),
            None => Ok(schedule),
        }
    }

    /// `rate` alone holds, at all times.
    pub fn is_off(&self) -> bool {
        self.spans.is_empty()
    }

    /// Bits per second that the schedule allows then, `Some(None)` for no limit; `None`: it says nothing of that time.
    pub fn at(&self, now: WeekMinute) -> Option<Option<u64>> {
        let holds = |span: &&RateSpan| span.weekly().any(|(from, to)| (from..to).contains(&now.0));
        self.spans.iter().find(holds).map(|span| span.bits)
    }

    fn overlap(&self) -> Option<(&RateSpan, &RateSpan, WeekMinute)> {
        let mut all: Vec<(u16, u16, &RateSpan)> =
            self.spans.iter().flat_map(|span| span.weekly().map(move |(from, to)| (from, to, span))).collect();
        all.sort_by_key(|(from, to, _)| (*from, *to));
        all.windows(2).find_map(|pair| match pair {
            [(_, end, first), (begin, _, second)] if begin < end => Some((*first, *second, WeekMinute(*begin))),
            _ => None,
        })
    }
}

impl Display for RateSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spans: Vec<String> = self.spans.iter().map(RateSpan::to_string).collect();
        f.write_str(if spans.is_empty() { OFF.to_owned() } else { spans.join(", ") }.as_str())
    }
}

impl RateSpan {
    fn parse(text: &str) -> Result<RateSpan, String> {
        let wrong = || {
            format!(
                "{text:?} is not a time and a rate; write such as \"08:00-18:00 20Mbit/s\", \"Mon-Fri 08:00-18:00 20Mbit/s\" or \
                 \"Sat 00:00-24:00 {UNLIMITED}\", several with commas between them, or \"{OFF}\""
            )
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let (days, time, rate) = match words[..] {
            [time, rate] => (None, time, rate),
            [days, time, rate] => (Some(parse_days(days).ok_or_else(wrong)?), time, rate),
            _ => return Err(wrong()),
        };
        let (from, to) = time.split_once('-').ok_or_else(wrong)?;
        let (from, to) = (parse_minute(from).ok_or_else(wrong)?, parse_minute(to).ok_or_else(wrong)?);
        if from == to || from == DAY_MINUTES {
            return Err(format!("{text:?}: there is no time between the two; a whole day is \"00:00-24:00\""));
        }
        let bits = match rate {
            UNLIMITED => None,
            rate => Some(parse_rate(rate)?),
        };
        match bits.filter(|bits| !(PACING.min..=PACING.max).contains(bits)) {
            Some(_) => {
                let (least, most) = (rate_text(PACING.min), rate_text(PACING.max));
                Err(format!("{rate:?} is out of bounds; use \"{least}\" to \"{most}\", or \"{UNLIMITED}\""))
            }
            None => Ok(RateSpan { days, from, to, bits }),
        }
    }

    /// From and to, in minutes of the week; what goes on over the end of the week is two of them.
    fn weekly(&self) -> impl Iterator<Item = (u16, u16)> {
        let (first, last) = self.days.unwrap_or((0, 6));
        let count = (last + 7 - first) % 7 + 1;
        let length = if self.to > self.from { self.to - self.from } else { self.to + DAY_MINUTES - self.from };
        let from = self.from;
        (0..count).flat_map(move |day| {
            let begin = (first + day) % 7 * DAY_MINUTES + from;
            let end = begin + length;
            let over = end.saturating_sub(WEEK_MINUTES);
            [(begin, end - over), (0, over)].into_iter().filter(|(from, to)| from < to)
        })
    }
}

impl Display for RateSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let day = |at: u16| DAYS[usize::from(at)];
        match self.days {
            Some((first, last)) if first == last => write!(f, "{} ", day(first))?,
            Some((first, last)) => write!(f, "{}-{} ", day(first), day(last))?,
            None => {}
        }
        let clock = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
        let rate = self.bits.map_or_else(|| UNLIMITED.to_owned(), rate_text);
        write!(f, "{}-{} {rate}", clock(self.from), clock(self.to))
    }
}

fn parse_days(text: &str) -> Option<(u16, u16)> {
    let day = |text: &str| DAYS.iter().position(|day| day.eq_ignore_ascii_case(text)).map(|at| at as u16);
    match text.split_once('-') {
        Some((first, last)) => Some((day(first)?, day(last)?)),
        None => day(text).map(|day| (day, day)),
    }
}

/// Of the day; `24:00` is its end.
fn parse_minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str| text.parse::<u16>().ok().filter(|_| text.len() == 2);
    let (hour, minute) = (number(hour)?, number(minute)?);
    let minutes = hour.checked_mul(60)? + minute;
    (minute < 60 && minutes <= DAY_MINUTES).then_some(minutes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(text: &str) -> RateSchedule {
        RateSchedule::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_time_has_the_rate_of_its_span() {
        let office = schedule("Mon-Fri 08:00-18:00 20Mbit/s, Sat-Sun 00:00-24:00 unlimited");
        for (day, hour, minute, rate) in [
            (0, 7, 59, None),
            (0, 8, 0, Some(Some(20_000_000))),
            (4, 17, 59, Some(Some(20_000_000))),
            (4, 18, 0, None),
            (5, 0, 0, Some(None)),
            (6, 23, 59, Some(None)),
        ] {
            assert_eq!(office.at(WeekMinute::new(day, hour, minute)), rate, "{day} {hour}:{minute}");
        }
        assert_eq!(RateSchedule::default().at(WeekMinute::new(0, 0, 0)), None);
    }

    #[test]
    fn a_span_goes_on_past_midnight_and_past_the_end_of_the_week() {
        let night = schedule("Sun 22:00-06:00 1Gbit/s");
        let limit = |day, hour| night.at(WeekMinute::new(day, hour, 0));
        assert_eq!([limit(6, 21), limit(0, 6)], [None; 2]);
        assert_eq!([limit(6, 22), limit(0, 5)], [Some(Some(1_000_000_000)); 2]);
        let weekend = schedule("Fri-Mon 20:00-21:00 1Mbit/s");
        let is_limited = |day| weekend.at(WeekMinute::new(day, 20, 30)).is_some();
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(is_limited), [true, false, false, false, true, true, true]);
    }

    #[test]
    fn a_schedule_reads_back_what_it_writes() {
        for text in ["off", "08:00-18:00 20Mbit/s", "Mon-Fri 08:00-18:00 20Mbit/s, Sat 22:30-06:00 unlimited"] {
            assert_eq!(schedule(text).to_string(), text);
        }
        assert_eq!(schedule("mon 08:00-09:00  64kbit/s").to_string(), "Mon 08:00-09:00 64kbit/s");
    }

    #[test]
    fn what_cannot_be_is_refused_in_words() {
        for (text, hint) in [
            ("", "is not a time and a rate"),
            ("8-18 20Mbit/s", "such as \"08:00-18:00 20Mbit/s\""),
            ("08:00-18:00", "is not a time and a rate"),
            ("25:00-26:00 1Mbit/s", "is not a time and a rate"),
            ("Foo 08:00-18:00 1Mbit/s", "is not a time and a rate"),
            ("08:00-08:00 1Mbit/s", "no time between"),
            ("08:00-18:00 20", "no unit"),
            ("08:00-18:00 1kbit/s", "out of bounds"),
            ("08:00-18:00 1Mbit/s, Wed 17:00-19:00 2Mbit/s", "overlap from Wed 17:00 on"),
            ("Sun 22:00-06:00 1Mbit/s, Mon 05:00-07:00 2Mbit/s", "overlap from Mon 05:00 on"),
            ("Mon-Sun 20:00-21:00 1Mbit/s, 20:59-23:00 unlimited", "overlap from Mon 20:59 on"),
        ] {
            let error = RateSchedule::parse(text).expect_err(text);
            assert!(error.contains(hint), "{text}: {error}");
        }
        let many = vec!["08:00-09:00 1Mbit/s"; 33].join(",");
        assert!(RateSchedule::parse(&many).expect_err("too many").contains("at most 32"));
    }
}
