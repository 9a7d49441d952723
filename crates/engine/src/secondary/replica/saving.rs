//! What is about to be overwritten goes into the undo store before: reads and batches of a secondary on their way there.

use crate::common::Common;
use crate::context::{Cx, GroupTimer};
use crate::durability::saving::Batched;
use crate::formats::identity::Role;
use crate::secondary::replica::OrderedReplica;
use crate::shared::slots::Ticket;
use crate::shared::wakes::Wake;
use crate::state::{Broken, Pause};
use crate::{IoResult, limits};

impl OrderedReplica {
    pub fn save_read_done(
        &mut self,
        common: &mut Common,
        cx: &mut Cx,
        piece: Ticket,
        result: IoResult,
    ) -> Result<(), Broken> {
        if !self.saver.has(piece) {
            return Ok(());
        }
        if self.saver.read_done(cx, piece, result)? {
            common.set_timer(cx, GroupTimer::ApplyRetry, limits::APPLY_RETRY_AFTER);
        }
        self.pump_saves(common, cx);
        Ok(())
    }

    pub fn save_batch_done(
        &mut self,
        common: &mut Common,
        cx: &mut Cx,
        last_piece: Ticket,
        result: IoResult,
    ) -> Result<(), Broken> {
        match self.saver.batch_done(&mut common.undo, last_piece, result)? {
            Batched::Nobodys => {}
            Batched::Full => self.history_full(common, cx),
            Batched::More => {
                self.pump_saves(common, cx);
                // Tickets may have become good.
                if common.role() == Role::Secondary {
                    common.set_timer(cx, GroupTimer::ApplyFlush, limits::APPLY_FLUSH_AFTER);
                    common.wake(Wake::Apply);
                }
            }
        }
        Ok(())
    }

    /// Starts reads and batches; called whenever something was asked for or came back.
    pub fn pump_saves(&mut self, common: &mut Common, cx: &mut Cx) {
        let boot = common.sb.identity.incarnation;
        if !self.saver.pump(&mut common.undo, &mut common.slots, cx, boot) {
            self.history_full(common, cx);
        }
    }

    /// The store is full, or its file system is.
    fn history_full(&mut self, common: &mut Common, cx: &mut Cx) {
        if common.role() == Role::Secondary {
            self.pause_apply(common, cx, Pause::HistoryFull);
        }
        common.set_timer(cx, GroupTimer::ApplyRetry, limits::APPLY_RETRY_AFTER);
    }
}
