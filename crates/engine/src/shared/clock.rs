//! A wall clock that was set back: what is said of it.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use crate::limits::CLOCK_SAID_AGAIN_AFTER;
use crate::time::{Mono, Wall};

/// Whether it was said that the wall clock stands behind the stamps of writes, and when.
#[derive(Default)]
pub(crate) struct ClockNews {
    is_behind: bool,
    said_at: Option<Mono>,
}

impl ClockNews {
    /// The wall clock that stamps writes stands behind a stamp, or does not: said when that changes, and not over and over.
    pub fn news(&mut self, now: Mono, behind: Option<Duration>, stamp: Wall, whose: &str) -> Option<String> {
        // A peer that has its clock jump fills nobody's log.
        let is_news = behind.is_some() != self.is_behind;
        let is_soon = self.said_at.is_some_and(|at| now.since(at) < CLOCK_SAID_AGAIN_AFTER);
        if !is_news || is_soon {
            return None;
        }
        (self.is_behind, self.said_at) = (behind.is_some(), Some(now));
        Some(match behind {
            Some(behind) => {
                format!(
                    "the wall clock of {whose} stands {} s behind the time of the last write, {stamp}: it was set back, or that write was \
                     stamped by another node's clock. Times of writes never go back: they stand still until the clock is past that; numbers \
                     go on",
                    behind.as_secs()
                )
            }
            None => {
                format!("the wall clock of {whose} is past the time of the last write again: times of writes go on")
            }
        })
    }
}
