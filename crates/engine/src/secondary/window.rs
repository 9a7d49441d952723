//! The receiving side's window: how much a primary may send ahead of what is on the volumes, counted in the memory it
//! costs here ([`crate::shared::cost::cost`]), and drawn from the node's pool (rule 22).
//!
//! It begins small and doubles when the primary uses more than half of it within a round trip, as a receive buffer tunes
//! itself, up to what is configured and to what the pool has. It gets smaller in two ways: a grant is not renewed while memory is short; and
//! of an idle primary the unused part is taken back. What was granted may be on its way, so it is *promised* until the
//! primary says that it goes by the smaller one.

use core::time::Duration;

use crate::injected_fault::{Fault, injected};
use crate::time::Mono;

#[derive(Debug)]
pub(crate) struct ReceiveWindow {
    /// As configured.
    limit_bytes: u64,
    /// Where it begins, and goes back to.
    least_bytes: u64,
    size_bytes: u64,
    /// Of this stream.
    received_bytes: u64,
    held_bytes: u64,
    /// What was granted to the primary last: it may have sent this much on this stream.
    granted_bytes: u64,
    /// The most it may still go by.
    reserved_bytes: u64,
    /// How often a grant of this stream was smaller than the one before.
    recalls: u64,
    /// When the present round trip began, and what had been received by then.
    round_since: Mono,
    round_received_bytes: u64,
}

impl ReceiveWindow {
    pub fn new(limit_bytes: u64, least_bytes: u64) -> ReceiveWindow {
        ReceiveWindow {
            limit_bytes,
            least_bytes,
            size_bytes: least_bytes,
            received_bytes: 0,
            held_bytes: 0,
            granted_bytes: least_bytes,
            reserved_bytes: least_bytes,
            recalls: 0,
            round_since: Mono(0),
            round_received_bytes: 0,
        }
    }

    /// A new session or stream: counting begins at zero, what is held stays.
    pub fn restart(&mut self) {
        (self.received_bytes, self.recalls, self.round_received_bytes) = (0, 0, 0);
        self.size_bytes = self.least_bytes;
        self.granted_bytes = self.least_bytes.saturating_sub(self.held_bytes);
        self.reserved_bytes = self.granted_bytes;
    }

    /// A record arrived. `false`: it was not granted, and is not taken.
    #[must_use]
    pub fn receive(&mut self, cost_bytes: u64) -> bool {
        if self.received_bytes + cost_bytes > self.reserved_bytes && !injected(Fault::WindowIgnored) {
            return false;
        }
        self.received_bytes += cost_bytes;
        self.held_bytes += cost_bytes;
        true
    }

    /// A record is on its volume.
    pub fn release(&mut self, cost_bytes: u64) {
        self.held_bytes -= cost_bytes;
    }

    /// Everything held was dropped.
    pub fn forget_held(&mut self) {
        self.held_bytes = 0;
    }

    /// What is held, without what may come.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// What is held and what may come: what counts against the pool.
    pub fn lease_bytes(&self) -> u64 {
        self.reserved_bytes - self.received_bytes.min(self.reserved_bytes) + self.held_bytes
    }

    /// The grant as it stands.
    pub fn granted_bytes(&self) -> u64 {
        self.granted_bytes
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub fn recalls(&self) -> u64 {
        self.recalls
    }

    /// What could be granted if this node's pool lets the group hold `allowance`.
    fn possible(&self, allowance: u64) -> u64 {
        let window = self.size_bytes.min(allowance.max(self.least_bytes));
        self.received_bytes + window.saturating_sub(self.held_bytes)
    }

    /// The pool lets it grant notably more than it has; worth telling the primary.
    pub fn could_grow(&self, allowance: u64) -> bool {
        self.possible(allowance) >= self.granted_bytes + self.least_bytes / 2
    }

    /// The pool keeps it smaller than it would be.
    pub fn is_short(&self, allowance: u64) -> bool {
        self.size_bytes > allowance.max(self.least_bytes)
    }

    /// Renews the grant; it does not go back here.
    pub fn grant(&mut self, allowance: u64, now: Mono, round_trip: Duration) -> u64 {
        if self.is_used_up(now, round_trip) {
            self.size_bytes = (2 * self.size_bytes).min(self.limit_bytes);
        }
        self.granted_bytes = self.granted_bytes.max(self.possible(allowance));
        self.reserved_bytes = self.reserved_bytes.max(self.granted_bytes);
        self.granted_bytes
    }

    /// The primary used more than half of it at once, or in the course of a round trip. What a primary without more to send
    /// leaves unused is not distinguished from what is on its way: only a whole round trip shows how much it wants, and it is
    /// granted anew, in small pieces, all the while.
    fn is_used_up(&mut self, now: Mono, round_trip: Duration) -> bool {
        let half = self.size_bytes / 2;
        let at_once = self.granted_bytes.saturating_sub(self.received_bytes) < half;
        let in_a_round = self.received_bytes - self.round_received_bytes > half;
        if now.since(self.round_since) >= round_trip {
            (self.round_since, self.round_received_bytes) = (now, self.received_bytes);
            return at_once || in_a_round;
        }
        at_once
    }

    /// The primary is idle: what it does not use is taken back.
    pub fn recall(&mut self) {
        self.size_bytes = self.least_bytes;
        let least = self.possible(self.least_bytes);
        if least < self.granted_bytes {
            self.granted_bytes = least;
            self.recalls += 1;
        }
    }

    /// The primary has seen so many recalls, and with them the grants since: nothing older is under way.
    pub fn seen(&mut self, recalls: u64) {
        if recalls == self.recalls {
            self.reserved_bytes = self.granted_bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: u64 = 1 << 30;
    const ROUND_TRIP: Duration = Duration::from_millis(100);

    /// The primary sends all it may, and all of it is applied.
    fn round(window: &mut ReceiveWindow, allowance: u64) -> u64 {
        let bytes = window.granted_bytes() - window.received_bytes;
        assert!(window.receive(bytes));
        window.grant(allowance, Mono(0), ROUND_TRIP);
        window.release(bytes);
        window.grant(allowance, Mono(0), ROUND_TRIP);
        bytes
    }

    #[test]
    fn it_doubles_while_it_is_used_up_and_stops_at_its_limit() {
        let mut window = ReceiveWindow::new(1000, 100);
        let sizes: alloc::vec::Vec<u64> = (0..6).map(|_| round(&mut window, PLENTY)).collect();
        assert_eq!(sizes, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(window.lease_bytes(), 1000);
    }

    /// In each of these round trips so much comes, in ten pieces, each applied and answered at once.
    fn in_pieces(window: &mut ReceiveWindow, rounds: core::ops::Range<u64>, bytes: u64) {
        for n in 10 * rounds.start + 1..=10 * rounds.end {
            assert!(window.receive(bytes / 10));
            window.release(bytes / 10);
            window.grant(PLENTY, Mono(n * ROUND_TRIP.as_nanos() as u64 / 10), ROUND_TRIP);
        }
    }

    #[test]
    fn a_quick_secondary_sees_by_the_round_trip_that_it_is_used_up() {
        let mut window = ReceiveWindow::new(1000, 100);
        in_pieces(&mut window, 0..5, 100);
        assert_eq!(window.size_bytes, 200, "what comes in a round trip is half of it");
        in_pieces(&mut window, 5..10, 500);
        assert_eq!(window.size_bytes, 1000);
    }

    #[test]
    fn a_primary_that_wants_less_than_half_of_it_leaves_it_as_it_is() {
        let mut window = ReceiveWindow::new(1000, 100);
        in_pieces(&mut window, 0..5, 50);
        assert_eq!(window.size_bytes, 100);
    }

    #[test]
    fn a_short_pool_shrinks_it_and_a_full_one_lets_it_grow_again() {
        let mut window = ReceiveWindow::new(1000, 100);
        (0..6).for_each(|_| _ = round(&mut window, PLENTY));
        assert_eq!(round(&mut window, 300), 1000, "granted is granted");
        assert_eq!((round(&mut window, 300), round(&mut window, 0)), (300, 300));
        assert_eq!(round(&mut window, 0), 100, "the least is always there");
        assert!(window.is_short(0) && window.could_grow(PLENTY) && !window.could_grow(0));
        round(&mut window, PLENTY);
        assert_eq!(round(&mut window, PLENTY), 1000);
    }

    #[test]
    fn what_is_taken_back_is_promised_until_the_primary_has_seen_it() {
        let mut window = ReceiveWindow::new(1000, 100);
        (0..6).for_each(|_| _ = round(&mut window, PLENTY));
        window.recall();
        window.recall();
        assert_eq!((window.lease_bytes(), window.recalls()), (1000, 1));
        window.seen(0);
        assert_eq!(window.lease_bytes(), 1000, "it spoke before it knew");
        assert!(window.receive(900), "it may have been on its way");
        window.release(900);
        window.seen(1);
        assert!(!window.receive(101));
    }

    // proves: rule 22
    #[test]
    fn beyond_the_grant_is_beyond_the_grant() {
        let mut window = ReceiveWindow::new(1000, 100);
        assert!(window.receive(100));
        assert!(!window.receive(1));
    }
}
