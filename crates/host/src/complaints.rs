//! Complaints that are made once in a while: whoever is turned away tries again, and the log is for people.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The same complaint about the same machine is made once in this time.
pub const REPEAT_AFTER: Duration = Duration::from_secs(60);
/// So many different ones about one machine in that time: what is said of a stranger may hold words that the stranger chose.
const OF_ONE_MAX: usize = 16;
/// And about all machines together: addresses cost a stranger nothing either.
const OF_ALL_MAX: usize = 64;

/// Those that were made lately.
pub struct Complaints {
    repeat_after: Duration,
    made: RefCell<VecDeque<Made>>,
}

struct Made {
    host: String,
    complaint: String,
    at: Instant,
}

impl Complaints {
    pub fn new(repeat_after: Duration) -> Complaints {
        Complaints { repeat_after, made: RefCell::default() }
    }

    /// Whether this complaint about that host is to be made: it was not made lately, and there is room for one more about the
    /// host and about all hosts. Remembers it if so.
    pub fn is_news(&self, host: &str, complaint: &str) -> bool {
        let mut made = self.made.borrow_mut();
        made.retain(|known| known.at.elapsed() < self.repeat_after);
        let of_host = || made.iter().filter(|known| known.host == host);
        let is_known = of_host().any(|known| known.complaint == complaint);
        if is_known || of_host().count() == OF_ONE_MAX || made.len() == OF_ALL_MAX {
            return false;
        }
        made.push_back(Made { host: host.to_owned(), complaint: complaint.to_owned(), at: Instant::now() });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_made_once_until_its_time_is_over() {
        let complaints = Complaints::new(REPEAT_AFTER);
        let said = [("h", "a"), ("h", "a"), ("h", "b"), ("i", "a"), ("h", "a")];
        assert_eq!(said.map(|(host, what)| complaints.is_news(host, what)), [true, false, true, true, false]);
        let forgetful = Complaints::new(Duration::ZERO);
        assert!(forgetful.is_news("h", "a") && forgetful.is_news("h", "a"));
    }

    #[test]
    fn other_words_each_time_and_other_addresses_do_not_fill_the_log() {
        let complaints = Complaints::new(REPEAT_AFTER);
        let of_one = (0..1000).filter(|number| complaints.is_news("h", &format!("my name is {number}"))).count();
        let of_all = (0..1000).filter(|number| complaints.is_news(&format!("host {number}"), "wrong secret")).count();
        assert_eq!((of_one, of_one + of_all), (OF_ONE_MAX, OF_ALL_MAX));
    }
}
