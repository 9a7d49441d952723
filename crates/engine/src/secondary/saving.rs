//! What is about to be overwritten goes into the undo store before: reads and batches of a secondary on their way there.

use core::ops::Range;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::durability::saving::BatchResult;
use crate::formats::identity::Role;
use crate::ids::VolumeId;
use crate::secondary::Secondary;
use crate::shared::operation_slots::UndoTicket;
use crate::state::{Broken, Pause};
use crate::{IoDone, IoError, limits};

impl Secondary {
    /// Sees to it that the content of a range, widened to whole `unit`s, is saved. `reserved`: a sync reserved for it.
    pub fn save_range(
        &mut self,
        common: &GroupCommon,
        volume: VolumeId,
        range: Range<u64>,
        unit: u64,
        reserved: bool,
    ) -> UndoTicket {
        let size_bytes = common.volumes[usize::from(volume.0)].size_bytes();
        self.saver.save(&common.undo, volume, size_bytes, range, unit, reserved)
    }

    pub fn save_read_done(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        piece: UndoTicket,
        result: Result<IoDone, IoError>,
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
        common: &mut GroupCommon,
        cx: &mut Cx,
        last_piece: UndoTicket,
        result: Result<(), IoError>,
    ) -> Result<(), Broken> {
        match self.saver.batch_done(&mut common.undo, last_piece, result)? {
            BatchResult::Nobodys => {}
            BatchResult::Full => self.history_full(common, cx),
            BatchResult::More => {
                self.pump_saves(common, cx);
                self.saved_more(common, cx);
            }
        }
        Ok(())
    }

    /// Starts reads and batches; called whenever something was asked for or came back.
    pub fn pump_saves(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let boot = common.sb.identity.incarnation;
        if !self.saver.pump(&mut common.undo, &mut common.slots, cx, boot) {
            self.history_full(common, cx);
        }
    }

    /// Tickets may have become good.
    fn saved_more(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if common.role() == Role::Secondary {
            common.set_timer(cx, GroupTimer::ApplyFlush, limits::APPLY_FLUSH_AFTER);
            self.apply(common, cx);
            self.replay_goes_on(common, cx);
        }
    }

    /// The store is full, or its file system is.
    fn history_full(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if common.role() == Role::Secondary {
            self.pause_apply(common, cx, Pause::HistoryFull);
        }
        common.set_timer(cx, GroupTimer::ApplyRetry, limits::APPLY_RETRY_AFTER);
    }

    /// What could not be read is read again.
    pub fn retry_reads(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        self.saver.retry_reads();
        self.pump_saves(common, cx);
    }

    /// There may be room by now.
    pub fn retry_saves(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        self.saver.write_allocated(&mut common.slots, cx);
        self.pump_saves(common, cx);
    }
}
