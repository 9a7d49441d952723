//! A primary gives up a peer that does not get on.

use alloc::format;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::primary::Primary;

impl Primary {
    /// The peer is connected but of no use: fall to logging and leave it alone for a while.
    pub fn give_up_session(&mut self, common: &mut GroupCommon, cx: &mut Cx, why: &str) {
        let hold_off = self.peer.stall.give_up(cx);
        self.fall_to_logging(common, cx, why);
        common.set_timer(cx, GroupTimer::Autosync, hold_off);
    }

    pub fn check_stall(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if self.peer.has_stalled(common, cx) {
            let limit = cx.peer.stalls_after().as_secs();
            let why = format!("the peer is connected, but showed no progress with the sync for {limit} s");
            self.give_up_session(common, cx, &why);
        }
    }
}
