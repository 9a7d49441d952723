//! Records on their way from a primary's window to the volumes of a secondary.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::context::Cx;
use crate::formats::journal::{ENTRIES_MAX, INDEX_BYTES, RecordKind};
use crate::ids::{Seq, VolumeId};
use crate::injected_fault::{Fault, injected};
use crate::secondary::window::ReceiveWindow;
use crate::shared::operation_slots::{OperationSlots, SlotOperation, UndoTicket};
use crate::time::Wall;
use crate::{Buf, Output, Slice, Store, WriteBytes, limits};

/// What a record does, with its bytes.
#[derive(Clone, Debug)]
pub(crate) enum RecordContent {
    Data(Buf),
    Zero {
        no_hole: bool,
    },
    Void,
    SyncEnd,
    /// Compare this range with the primary's hash.
    Probe([u8; 32]),
}

#[derive(Clone, Debug)]
pub(crate) struct JournalRecord {
    /// It stands for the numbers from here to `seq`.
    pub first: Seq,
    pub seq: Seq,
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u64,
    pub wall: Wall,
    pub crc: u32,
    pub content: RecordContent,
    /// What it counts against the window.
    pub cost: u64,
    /// A region of a sync, not a write of its own.
    pub resync: bool,
    /// Void: from here on the volume is set aside.
    pub sets_aside: bool,
    /// The next one is of the same epoch: both land in one batch, and nobody stands between them.
    pub continues: bool,
    /// Void: a mark, whose id stands in `offset`.
    pub mark: bool,
}

impl JournalRecord {
    pub fn payload_bytes(&self) -> u64 {
        if matches!(self.content, RecordContent::Data(_)) { self.length } else { 0 }
    }

    /// Whether it changes what stands on its volume.
    pub fn overwrites(&self) -> bool {
        matches!(self.content, RecordContent::Data(_) | RecordContent::Zero { .. })
    }

    /// Whether both reach into one block of the device (rule 3).
    pub fn touches(&self, other: &JournalRecord, block_bytes: u64) -> bool {
        let blocks = |r: &JournalRecord| (r.offset / block_bytes, (r.offset + r.length).div_ceil(block_bytes));
        let ((a, a_end), (b, b_end)) = (blocks(self), blocks(other));
        self.volume == other.volume && self.length > 0 && other.length > 0 && a < b_end && b < a_end
    }

    pub fn kind(&self) -> RecordKind {
        match self.content {
            RecordContent::Data(_) => RecordKind::Data,
            RecordContent::Zero { .. } => RecordKind::Zero,
            // A comparison changes nothing; its number must still be there.
            RecordContent::Void | RecordContent::Probe(_) => RecordKind::Void,
            RecordContent::SyncEnd => RecordKind::SyncEnd,
        }
    }

    /// Writes it to its volume, or reads what it is compared with.
    pub fn carry_out(&self, slots: &mut OperationSlots, cx: &mut Cx) {
        let token = slots.start(SlotOperation::Apply { seq: self.seq });
        let store = Store::Volume(slots.group(), self.volume);
        let (mut offset, mut length) = (self.offset, self.length);
        if injected(Fault::TrimDiffers) && matches!(self.content, RecordContent::Zero { .. }) {
            let (start, end) = (offset.next_multiple_of(4096), (offset + length) / 4096 * 4096);
            (offset, length) = if start < end { (start, end - start) } else { (offset, length) };
        }
        cx.out.push_back(match &self.content {
            RecordContent::Data(buf) => {
                let parts = vec![WriteBytes::Payload(Slice { buf: buf.clone(), start: 0, length: length as u32 })];
                return cx.write(token, store, offset, parts, false);
            }
            RecordContent::Zero { no_hole } => {
                Output::Zero { token, store, offset, length, no_hole: *no_hole, durable: false }
            }
            RecordContent::Probe(_) => Output::ReadHash { token, store, offset, length: length as u32 },
            RecordContent::Void | RecordContent::SyncEnd => unreachable!("nothing to do on a volume"),
        });
    }
}

#[derive(Debug)]
pub(crate) struct RecordBatch {
    pub ordinal: u64,
    pub last: Seq,
    pub records: Vec<JournalRecord>,
    done: bool,
}

/// What a record waits for before it is written: good once what it overwrites is saved, for the rollback point and for views.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SaveTickets {
    pub undo: UndoTicket,
    pub views: UndoTicket,
}

#[derive(Debug)]
struct ApplyingRecord {
    record: JournalRecord,
    done: bool,
}

/// What came of an epoch so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenEpoch {
    pub first: Seq,
    pub last: Seq,
    pub records: usize,
    pub payload_bytes: u64,
}

/// Records between the primary's window and the volumes: received, landing in batches, saved for, applied in order.
#[derive(Debug)]
pub(crate) struct RecordPipeline {
    /// What the primary may send. Whatever leaves the way gives its room back.
    pub window: ReceiveWindow,
    /// An epoch whose last record is not here yet: nothing of it counts as received.
    open: Vec<JournalRecord>,
    landing: VecDeque<JournalRecord>,
    batches: VecDeque<RecordBatch>,
    to_apply: VecDeque<JournalRecord>,
    /// What they overwrite is being saved.
    saving: VecDeque<(JournalRecord, SaveTickets)>,
    applying: VecDeque<ApplyingRecord>,
    /// The record that was begun last belongs to a step of the order that goes on.
    mid_step: bool,
}

impl RecordPipeline {
    pub fn new(window: ReceiveWindow) -> RecordPipeline {
        RecordPipeline {
            window,
            open: Vec::new(),
            landing: VecDeque::new(),
            batches: VecDeque::new(),
            to_apply: VecDeque::new(),
            saving: VecDeque::new(),
            applying: VecDeque::new(),
            mid_step: false,
        }
    }

    // ---- received, landing -------------------------------------------------------------------------------------------

    /// False: the window does not allow it.
    #[must_use]
    pub fn receive(&mut self, record: JournalRecord) -> bool {
        let fits = self.window.receive(record.cost);
        if fits {
            let continues = record.continues;
            self.open.push(record);
            if !continues {
                self.landing.extend(self.open.drain(..));
            }
        }
        fits
    }

    /// The epoch that came in part.
    pub fn open_epoch(&self) -> Option<OpenEpoch> {
        Some(OpenEpoch {
            first: self.open.first()?.first,
            last: self.open.last()?.seq,
            records: self.open.len(),
            payload_bytes: self.open.iter().map(JournalRecord::payload_bytes).sum(),
        })
    }

    /// The epoch does not come to its end in this session.
    pub fn drop_open_epoch(&mut self) {
        self.open.drain(..).for_each(|record| self.window.release(record.cost));
    }

    pub fn has_unlanded(&self) -> bool {
        !self.landing.is_empty()
    }

    /// Another batch is worth its write. With batches under way a small one waits for company: group commit.
    pub fn wants_to_land(&self) -> bool {
        let gathered = || self.landing.iter().map(JournalRecord::payload_bytes).sum::<u64>();
        let company_comes = || self.batches.len() > 1 && gathered() < limits::BATCH_BYTES_MAX / 4;
        !self.landing.is_empty() && self.batches.len() < limits::BATCHES_IN_FLIGHT_MAX && !company_comes()
    }

    /// How many records the next batch takes, what it takes up in the journal, at most about `bytes_max`, and the last of them.
    pub fn next_batch(&self, bytes_max: u64) -> (usize, u64, Seq) {
        let (mut count, mut bytes) = (0, INDEX_BYTES as u64);
        let mut step = (0, 0);
        for record in &self.landing {
            step = (step.0 + 1, step.1 + record.payload_bytes());
            if count > 0 && (count + step.0 > ENTRIES_MAX || bytes + step.1 > bytes_max) {
                break;
            }
            if !record.continues {
                (count, bytes) = (count + step.0, bytes + step.1);
                step = (0, 0);
            }
        }
        (count, bytes.next_multiple_of(limits::META_BLOCK_BYTES), self.landing[count - 1].seq)
    }

    pub fn take_unlanded(&mut self, count: usize) -> Vec<JournalRecord> {
        self.landing.drain(..count).collect()
    }

    /// They are being written to the journal.
    pub fn batch(&mut self, ordinal: u64, last: Seq, records: Vec<JournalRecord>) {
        self.batches.push_back(RecordBatch { ordinal, last, records, done: false });
    }

    pub fn batch_written(&mut self, ordinal: u64) {
        if let Some(batch) = self.batches.iter_mut().find(|b| b.ordinal == ordinal) {
            batch.done = true;
        }
    }

    /// A fault on purpose: the last number of a batch that is written, whatever is not before it.
    #[cfg(feature = "injected-faults")]
    pub fn written_over_gap(&self) -> Option<Seq> {
        self.batches.iter().find(|b| b.done).map(|batch| batch.last)
    }

    /// The next batch that is durable. Durable is the unbroken run: a later batch that finished first waits.
    pub fn next_durable(&mut self) -> Option<RecordBatch> {
        if self.batches.front()?.done { self.batches.pop_front() } else { None }
    }

    /// They are in the journal, and may be applied.
    pub fn landed(&mut self, records: impl IntoIterator<Item = JournalRecord>) {
        self.to_apply.extend(records);
    }

    /// What has landed is written to the volumes.
    pub fn is_through(&self) -> bool {
        self.batches.is_empty() && self.has_applied()
    }

    // ---- to the volumes ----------------------------------------------------------------------------------------------

    pub fn has_applied(&self) -> bool {
        self.to_apply.is_empty() && self.saving.is_empty() && self.applying.is_empty()
    }

    /// Something has landed of which it is not known what it overwrites.
    pub fn has_to_save(&self) -> bool {
        !self.to_apply.is_empty()
    }

    /// The next record for which is to be saved what it overwrites.
    pub fn next_to_save(&mut self) -> Option<JournalRecord> {
        if self.saving.len() < limits::APPLY_IN_FLIGHT_MAX { self.to_apply.pop_front() } else { None }
    }

    /// What the record overwrites is saved when the tickets are good.
    pub fn saves(&mut self, record: JournalRecord, tickets: SaveTickets) {
        self.saving.push_back((record, tickets));
    }

    /// What is saved and not begun, with what it waits for.
    pub fn saving_mut(&mut self) -> impl Iterator<Item = &mut (JournalRecord, SaveTickets)> {
        self.saving.iter_mut()
    }

    /// The next record to be written to its volume, if another may be.
    pub fn next_to_apply(&self) -> Option<&(JournalRecord, SaveTickets)> {
        self.saving.front().filter(|_| self.applying.len() < limits::APPLY_IN_FLIGHT_MAX)
    }

    /// One that is under way reaches into a block of this one.
    pub fn clashes(&self, record: &JournalRecord, block_bytes: u64) -> bool {
        self.applying.iter().any(|a| !a.done && a.record.touches(record, block_bytes))
    }

    /// The next record is under way; `None`: it is done already, no volume has to do with it.
    pub fn begin_apply(&mut self) -> Option<JournalRecord> {
        let (record, _) = self.saving.pop_front()?;
        self.mid_step = record.continues;
        let no_io = matches!(record.content, RecordContent::Void | RecordContent::SyncEnd);
        self.applying.push_back(ApplyingRecord { record: record.clone(), done: no_io });
        (!no_io).then_some(record)
    }

    /// A step of the order is begun, and something of it is not.
    pub fn is_mid_step(&self) -> bool {
        self.mid_step
    }

    pub fn applying(&self) -> usize {
        self.applying.len()
    }

    pub fn applies(&self, seq: Seq) -> &JournalRecord {
        let found = self.applying.iter().find(|a| a.record.seq == seq);
        found.map(|a| &a.record).expect("an apply completes once")
    }

    pub fn done(&mut self, seq: Seq) {
        self.applying.iter_mut().filter(|a| a.record.seq == seq).for_each(|a| a.done = true);
    }

    /// Those that were begun, are not done, and of which nothing is under way.
    pub fn interrupted(&self, is_under_way: impl Fn(Seq) -> bool) -> Vec<JournalRecord> {
        let left = self.applying.iter().filter(|a| !a.done && !is_under_way(a.record.seq));
        left.map(|a| a.record.clone()).collect()
    }

    /// The next that is written, in order.
    pub fn collect(&mut self) -> Option<JournalRecord> {
        self.applying.front().filter(|a| a.done)?;
        let ApplyingRecord { record, .. } = self.applying.pop_front()?;
        self.window.release(record.cost);
        Some(record)
    }

    // ---- given up ----------------------------------------------------------------------------------------------------

    /// Forgets what was received and has not landed; how many.
    pub fn drop_unlanded(&mut self) -> usize {
        let dropped = self.landing.len() + self.open.len();
        self.drop_open_epoch();
        self.landing.drain(..).for_each(|record| self.window.release(record.cost));
        dropped
    }

    /// Forgets everything; the ranges it was for.
    pub fn drop_all(&mut self) -> Vec<(VolumeId, u64, u64)> {
        let batched = self.batches.drain(..).flat_map(|batch| batch.records);
        let saving = self.saving.drain(..).map(|(record, _)| record);
        let applying = self.applying.drain(..).map(|a| a.record);
        let all = self
            .open
            .drain(..)
            .chain(self.landing.drain(..))
            .chain(batched)
            .chain(self.to_apply.drain(..))
            .chain(saving)
            .chain(applying);
        let changes = all.filter(|record| record.overwrites()).map(|r| (r.volume, r.offset, r.length)).collect();
        self.window.forget_held();
        self.mid_step = false;
        changes
    }

    /// Nothing more is applied. What is under way goes when it completes.
    pub fn let_go(&mut self, is_under_way: impl Fn(Seq) -> bool) {
        let saving = self.saving.drain(..).map(|(record, _)| record);
        let waiting = self.open.drain(..).chain(self.landing.drain(..)).chain(self.to_apply.drain(..)).chain(saving);
        waiting.for_each(|record| self.window.release(record.cost));
        let landed: Vec<u64> = self.batches.iter().filter(|b| b.done).map(|b| b.ordinal).collect();
        landed.into_iter().for_each(|ordinal| self.let_go_of_batch(ordinal));
        for at in (0..self.applying.len()).rev() {
            let ApplyingRecord { record, done } = &self.applying[at];
            if *done || !is_under_way(record.seq) {
                self.let_go_of_applying(at);
            }
        }
    }

    pub fn let_go_of_batch(&mut self, ordinal: u64) {
        let Some(at) = self.batches.iter().position(|b| b.ordinal == ordinal) else { return };
        let records = self.batches.remove(at).into_iter().flat_map(|batch| batch.records);
        records.for_each(|record| self.window.release(record.cost));
    }

    /// Its write has ended.
    pub fn let_go_of(&mut self, seq: Seq) {
        if let Some(at) = self.applying.iter().position(|a| a.record.seq == seq) {
            self.let_go_of_applying(at);
        }
    }

    fn let_go_of_applying(&mut self, at: usize) {
        if let Some(ApplyingRecord { record, .. }) = self.applying.remove(at) {
            self.window.release(record.cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: rule 3
    /// Two records that have nothing in common were applied one after the other, or two of one block side by side (rule 3).
    #[test]
    fn records_touch_where_both_reach_into_one_block() {
        let record = |volume, offset, length| JournalRecord {
            first: Seq(1),
            seq: Seq(1),
            volume: VolumeId(volume),
            offset,
            length,
            wall: Wall(0),
            crc: 0,
            content: RecordContent::Void,
            cost: 0,
            resync: false,
            sets_aside: false,
            continues: false,
            mark: false,
        };
        let touches = |a: &JournalRecord, b: &JournalRecord| {
            assert_eq!(a.touches(b, 4096), b.touches(a, 4096));
            a.touches(b, 4096)
        };
        let one = record(0, 4096, 512);
        assert!(touches(&one, &record(0, 7680, 512)), "one block, other bytes");
        assert!(touches(&one, &record(0, 0, 4097)));
        assert!(!touches(&one, &record(0, 8192, 512)) && !touches(&one, &record(0, 0, 4096)), "the blocks beside it");
        assert!(!touches(&one, &record(1, 4096, 512)), "another volume");
        assert!(!touches(&one, &record(0, 4096, 0)), "nothing of it");
    }
}
