//! Complaints that are made once in a while: whoever is turned away tries again, and the log is for people.
//!
//! A complaint is known by whom it is about and by its kind, never by words that the other side chose. What is said of this node's own
//! peers has room of its own: unauthenticated peers cannot use that up, whatever addresses they have.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The same complaint about the same machine is made once in this time.
pub const REPEAT_AFTER: Duration = Duration::from_secs(60);
/// So many different ones about one machine in that time.
const OF_ONE_MAX: usize = 16;
/// And about all unauthenticated peers together: addresses cost them nothing.
const OF_ALL_MAX: usize = 64;

/// Whom a complaint is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportSubject<'a> {
    /// A peer of the configuration, by its name.
    Peer(&'a str),
    /// Anybody who connects, by the network or the user that it comes from.
    Unauthenticated(&'a str),
}

/// Those that were made lately.
pub struct ReportLimiter {
    repeat_after: Duration,
    recent: RefCell<VecDeque<RecentReport>>,
}

struct RecentReport {
    is_peer: bool,
    name: String,
    kind: String,
    at: Instant,
}

impl RecentReport {
    fn is_about(&self, about: ReportSubject) -> bool {
        match about {
            ReportSubject::Peer(name) => self.is_peer && self.name == name,
            ReportSubject::Unauthenticated(name) => !self.is_peer && self.name == name,
        }
    }
}

impl ReportLimiter {
    pub fn new(repeat_after: Duration) -> ReportLimiter {
        ReportLimiter { repeat_after, recent: RefCell::default() }
    }

    /// Whether this kind of complaint is to be made: it was not made lately, and there is room for one more. Remembers it if so.
    pub fn is_news(&self, about: ReportSubject, kind: &str) -> bool {
        let mut recent = self.recent.borrow_mut();
        recent.retain(|known| known.at.elapsed() < self.repeat_after);
        let of_one = || recent.iter().filter(|known| known.is_about(about));
        let is_known = of_one().any(|known| known.kind == kind);
        let (is_peer, name) = match about {
            ReportSubject::Peer(name) => (true, name),
            ReportSubject::Unauthenticated(name) => (false, name),
        };
        let is_full = !is_peer && recent.iter().filter(|known| !known.is_peer).count() >= OF_ALL_MAX;
        if is_known || is_full || of_one().count() >= OF_ONE_MAX {
            return false;
        }
        recent.push_back(RecentReport { is_peer, name: name.to_owned(), kind: kind.to_owned(), at: Instant::now() });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ReportSubject::{Peer, Unauthenticated};

    #[test]
    fn a_complaint_is_made_once_until_its_time_is_over() {
        let report_limiter = ReportLimiter::new(REPEAT_AFTER);
        let said = [("h", "a"), ("h", "a"), ("h", "b"), ("i", "a"), ("h", "a")];
        let news = said.map(|(host, what)| report_limiter.is_news(Unauthenticated(host), what));
        assert_eq!(news, [true, false, true, true, false]);
        let forgetful = ReportLimiter::new(Duration::ZERO);
        assert!(forgetful.is_news(Unauthenticated("h"), "a") && forgetful.is_news(Unauthenticated("h"), "a"));
    }

    #[test]
    fn other_kinds_and_other_addresses_do_not_fill_the_log() {
        let report_limiter = ReportLimiter::new(REPEAT_AFTER);
        let of_one =
            (0..1000).filter(|number| report_limiter.is_news(Unauthenticated("h"), &format!("kind {number}"))).count();
        let unauthenticated =
            |number| report_limiter.is_news(Unauthenticated(&format!("host {number}")), "wrong secret");
        let of_all = (0..1000).filter(|number| unauthenticated(*number)).count();
        assert_eq!((of_one, of_one + of_all), (OF_ONE_MAX, OF_ALL_MAX));
    }

    #[test]
    fn unauthenticated_peers_use_up_no_room_of_a_peer() {
        let report_limiter = ReportLimiter::new(REPEAT_AFTER);
        (0..1000).for_each(|number| _ = report_limiter.is_news(Unauthenticated(&format!("host {number}")), "no"));
        assert!(report_limiter.is_news(Peer("beta"), "its certificate expired"));
        assert!(!report_limiter.is_news(Peer("beta"), "its certificate expired"));
        let of_peer = (0..1000).filter(|number| report_limiter.is_news(Peer("beta"), &number.to_string())).count();
        assert_eq!(of_peer + 1, OF_ONE_MAX, "something else may answer at its address");
    }
}
