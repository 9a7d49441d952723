//! What may go on once an input is handled: what waited for its bits to be on disk, writers, orders under way.

use crate::context::Cx;
use crate::group::{Group, peer_window};
use crate::primary::steps::look_at_ladder;
use crate::secondary::viewing;
use crate::shared::wakes::Wake;

impl Group {
    /// The end of every input.
    ///
    /// An order that moves forward may wake writers, and those may bring the group to the rest that the order waits for.
    pub fn go_on(&mut self, cx: &mut Cx) {
        loop {
            self.run_wakes(cx);
            self.proceed(cx);
            peer_window::review(self, cx);
            viewing::review(&mut self.secondary, &mut self.common, cx);
            if !self.common.has_wakes() {
                return;
            }
        }
    }

    /// Looks at everybody who may go on, until nobody is left.
    pub fn run_wakes(&mut self, cx: &mut Cx) {
        loop {
            if let Some(then) = self.common.bitmap.next_saved() {
                self.after_bits(cx, then);
                continue;
            }
            let Group { common, primary, secondary, .. } = self;
            let Some(wake) = common.next_wake() else { return };
            match wake {
                Wake::Write(slot) => primary.go_on(common, cx, slot),
                Wake::Range(volume) => primary.wake_range_waiters(common, cx, volume),
                Wake::Room => primary.release_blocked(common, cx),
                Wake::Covered => primary.pump_activity(common, cx),
                Wake::Promise => primary.take_up_promise(common, cx),
                Wake::Waits => primary.check_waits(common, cx),
                Wake::Ladder => look_at_ladder(primary, common, cx),
                Wake::Apply => {
                    secondary.apply(common, cx);
                    viewing::open_views(secondary, common, cx);
                }
                Wake::Meet => primary.meet_if_apart(common, cx),
            }
        }
    }
}
