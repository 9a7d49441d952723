//! Complaints that are made once in a while: whoever is turned away tries again, and the log is for people.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How many are remembered.
const REMEMBERED_MAX: usize = 64;

pub(crate) struct Complaints {
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
