//! The two clocks.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use engine::{Mono, Now, Wall};

/// Nanoseconds since the start of the data thread, and the wall's.
#[derive(Clone, Copy)]
pub(super) struct NodeClock {
    start: Instant,
}

impl NodeClock {
    pub fn new() -> NodeClock {
        NodeClock { start: Instant::now() }
    }

    pub fn mono(self) -> Mono {
        Mono(nanoseconds(self.start.elapsed()))
    }

    pub fn now(self) -> Now {
        // A wall clock before 1970 is a wrong one; the engine only asks that it be a number.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { mono: self.mono(), wall: Wall(nanoseconds(wall)) }
    }

    /// When `at` is, for timers.
    pub fn instant(self, at: Mono) -> Instant {
        self.start + Duration::from_nanos(at.0)
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
