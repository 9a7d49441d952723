//! Complaints that are made once in a while: whoever is turned away tries again, and the log is for people.
//!
//! A complaint is known by whom it is about and by its kind, never by words that the other side chose. What is said of this node's own
//! peers has room of its own: strangers cannot use that up, whatever addresses they have.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The same complaint about the same machine is made once in this time.
pub const REPEAT_AFTER: Duration = Duration::from_secs(60);
/// So many different ones about one machine in that time.
const OF_ONE_MAX: usize = 16;
/// And about all strangers together: addresses cost a stranger nothing.
const OF_ALL_MAX: usize = 64;

/// Whom a complaint is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About<'a> {
    /// A peer of the configuration, by its name.
    Peer(&'a str),
    /// Anybody who connects, by the network or the user that it comes from.
    Stranger(&'a str),
}

/// Those that were made lately.
pub struct Complaints {
    repeat_after: Duration,
    made: RefCell<VecDeque<Made>>,
}

struct Made {
    is_peer: bool,
    name: String,
    kind: String,
    at: Instant,
}

impl Made {
    fn is_about(&self, about: About) -> bool {
        match about {
            About::Peer(name) => self.is_peer && self.name == name,
            About::Stranger(name) => !self.is_peer && self.name == name,
        }
    }
}

impl Complaints {
    pub fn new(repeat_after: Duration) -> Complaints {
        Complaints { repeat_after, made: RefCell::default() }
    }

    /// Whether this kind of complaint is to be made: it was not made lately, and there is room for one more. Remembers it if so.
    pub fn is_news(&self, about: About, kind: &str) -> bool {
        let mut made = self.made.borrow_mut();
        made.retain(|known| known.at.elapsed() < self.repeat_after);
        let of_one = || made.iter().filter(|known| known.is_about(about));
        let is_known = of_one().any(|known| known.kind == kind);
        let (is_peer, name) = match about {
            About::Peer(name) => (true, name),
            About::Stranger(name) => (false, name),
        };
        let is_full = !is_peer && made.iter().filter(|known| !known.is_peer).count() >= OF_ALL_MAX;
        if is_known || is_full || of_one().count() >= OF_ONE_MAX {
            return false;
        }
        made.push_back(Made { is_peer, name: name.to_owned(), kind: kind.to_owned(), at: Instant::now() });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use About::{Peer, Stranger};

    #[test]
    fn a_complaint_is_made_once_until_its_time_is_over() {
        let complaints = Complaints::new(REPEAT_AFTER);
        let said = [("h", "a"), ("h", "a"), ("h", "b"), ("i", "a"), ("h", "a")];
        let news = said.map(|(host, what)| complaints.is_news(Stranger(host), what));
        assert_eq!(news, [true, false, true, true, false]);
        let forgetful = Complaints::new(Duration::ZERO);
        assert!(forgetful.is_news(Stranger("h"), "a") && forgetful.is_news(Stranger("h"), "a"));
    }

    #[test]
    fn other_kinds_and_other_addresses_do_not_fill_the_log() {
        let complaints = Complaints::new(REPEAT_AFTER);
        let of_one = (0..1000).filter(|number| complaints.is_news(Stranger("h"), &format!("kind {number}"))).count();
        let stranger = |number| complaints.is_news(Stranger(&format!("host {number}")), "wrong secret");
        let of_all = (0..1000).filter(|number| stranger(*number)).count();
        assert_eq!((of_one, of_one + of_all), (OF_ONE_MAX, OF_ALL_MAX));
    }

    #[test]
    fn strangers_use_up_no_room_of_a_peer() {
        let complaints = Complaints::new(REPEAT_AFTER);
        (0..1000).for_each(|number| _ = complaints.is_news(Stranger(&format!("host {number}")), "no"));
        assert!(complaints.is_news(Peer("beta"), "its certificate expired"));
        assert!(!complaints.is_news(Peer("beta"), "its certificate expired"));
        let of_peer = (0..1000).filter(|number| complaints.is_news(Peer("beta"), &number.to_string())).count();
        assert_eq!(of_peer + 1, OF_ONE_MAX, "something else may answer at its address");
    }
}
