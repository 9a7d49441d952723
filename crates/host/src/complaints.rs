//! Complaints that are made once in a while: whoever is turned away tries again, and the log is for people.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The same complaint about the same machine is made once in this time.
pub const REPEAT_AFTER: Duration = Duration::from_secs(60);
/// How many are remembered.
const REMEMBERED_MAX: usize = 64;

/// Those that were made lately.
pub struct Complaints {
    repeat_after: Duration,
    made: RefCell<VecDeque<(String, Instant)>>,
}

impl Complaints {
    pub fn new(repeat_after: Duration) -> Complaints {
        Complaints { repeat_after, made: RefCell::default() }
    }

    /// Whether this complaint was not made lately; remembers it.
    pub fn is_news(&self, complaint: String) -> bool {
        let mut made = self.made.borrow_mut();
        made.retain(|(_, at)| at.elapsed() < self.repeat_after);
        if made.iter().any(|(known, _)| *known == complaint) {
            return false;
        }
        if made.len() == REMEMBERED_MAX {
            made.pop_front();
        }
        made.push_back((complaint, Instant::now()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_made_once_until_its_time_is_over() {
        let complaints = Complaints::new(REPEAT_AFTER);
        let said: Vec<bool> = ["a", "a", "b", "a"].map(|text| complaints.is_news(text.to_owned())).into();
        assert_eq!(said, [true, false, true, false]);
        // Whoever has many of them is remembered as far as there is room.
        assert!((0..=REMEMBERED_MAX).all(|number| complaints.is_news(format!("{number}"))));
        assert!(complaints.is_news("a".to_owned()) && complaints.made.borrow().len() == REMEMBERED_MAX);
        let forgetful = Complaints::new(Duration::ZERO);
        assert!(forgetful.is_news("a".to_owned()) && forgetful.is_news("a".to_owned()));
    }
}
