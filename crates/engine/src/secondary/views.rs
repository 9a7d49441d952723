//! Views of a copy: the image of the whole group at one number of the order, which stays readable while the copy goes on.
//!
//! ```text
//! open: nothing is being written -> a mark of the store for views -> image = what was saved since that mark, else the volume
//! whoever writes to the volumes:  save what stands there -> the ticket is good -> write
//! read of a volume:               read -> was it saved meanwhile? then again, from the store
//! ```
//! * A mark is begun between two steps of the order, while no write is under way. Applying pauses for that moment only.
//! * Of a copy in the midst of a sync the view is of the rollback point's image. It reads the rollback point's store, and ends with that.
//! * Views have a store and a saver of their own: nothing of them is in the way of a rollback point. Whatever goes wrong with them ends
//!   views, and applying goes on.
//! * Nothing of a view is on record. Each change that leaves the copy, or this run of the node, ends them all.

pub mod reads;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::durability::saving::{BatchResult, UndoSaver};
use crate::formats::undo::{BLOCK_BYTES, SavedRange, UndoStore};
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::secondary::record_pipeline::JournalRecord;
use crate::secondary::views::reads::ViewReads;
use crate::shared::coverage::CoveragePoint;
use crate::shared::operation_slots::{OperationSlots, SavedFor, UndoTicket, ViewReadOp};
use crate::shared::size::ShownSize;
use crate::status::{ViewStatus, ViewsStatus};
use crate::time::{Mono, Wall};
use crate::{Event, GroupConfig, IoError, IoResult, OpenedView, Output, Refusal, RefusalCode, limits};

/// Where the image of a view is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ViewImage {
    /// Saved since this mark of the store for views, else on the volumes.
    Marked(u64),
    /// The same of the rollback point of this id, and its store.
    BeforeSync(u64),
}

#[derive(Debug)]
struct View {
    id: ViewId,
    image: ViewImage,
    shown: OpenedView,
    reads: ViewReads,
    /// It was said that something of it is damaged.
    complained: bool,
}

/// The newest mark: of which position, and whether something was overwritten since.
#[derive(Clone, Copy, Debug)]
struct NewestMark {
    id: u64,
    position: Position,
    is_touched: bool,
}

/// The views of one copy.
#[derive(Debug)]
pub(crate) struct CopyViews {
    group: GroupId,
    bytes: u64,
    store: UndoStore,
    saver: UndoSaver,
    newest: Option<NewestMark>,
    last_mark: u64,
    /// How far saving had come when it was looked at last, if it had not come to its end.
    looked_at: Option<UndoTicket>,
    /// They wait for a moment in which nothing is being written.
    opening: Vec<(ViewId, Mono)>,
    open: Vec<View>,
    /// Of all views, ever.
    requests: u64,
}

impl CopyViews {
    pub fn new(config: &GroupConfig) -> CopyViews {
        CopyViews {
            group: config.id,
            bytes: config.view_bytes,
            store: UndoStore::new(config.view_bytes),
            saver: UndoSaver::new(config, SavedFor::Views),
            newest: None,
            last_mark: 0,
            looked_at: None,
            opening: Vec::new(),
            open: Vec::new(),
            requests: 0,
        }
    }

    /// Neither is any open nor is one to be.
    pub fn are_none(&self) -> bool {
        self.opening.is_empty() && self.open.is_empty()
    }

    /// An opening waits for a moment in which nothing is written: no further step is begun. It does not hold the copy back while the store
    /// still takes what is nobody's any more.
    pub fn hold_back(&self, slots: &OperationSlots) -> bool {
        !self.opening.is_empty() && (self.newest.is_some() || !slots.saves_for_views())
    }

    /// Content in memory, or being read into it.
    pub fn held_bytes(&self) -> u64 {
        self.saver.held_bytes() + self.read_bytes()
    }

    /// The same of what is read for whoever looks at a view.
    pub fn read_bytes(&self) -> u64 {
        self.open.iter().map(|view| view.reads.held_bytes()).sum()
    }

    pub fn status(&self) -> ViewsStatus {
        let saved_bytes = |view: &View| match view.image {
            ViewImage::Marked(mark) => self.store.saved_since(mark),
            ViewImage::BeforeSync(_) => 0,
        };
        let shown = |view: &View| ViewStatus {
            view: view.id,
            position: view.shown.position,
            wall: view.shown.wall,
            before_sync: view.shown.before_sync,
            saved_bytes: saved_bytes(view),
        };
        ViewsStatus {
            open: self.open.iter().map(shown).collect(),
            used_bytes: self.store.used_bytes(),
            limit_bytes: self.bytes,
        }
    }

    /// Somebody waits for an opening.
    pub fn has_opening(&self) -> bool {
        !self.opening.is_empty()
    }

    // ---- opening ---------------------------------------------------------------------------------------------------

    /// An opening is asked for. `obstacle`: what speaks against any.
    pub fn ask(&mut self, cx: &mut Cx, id: ViewId, obstacle: Option<Refusal>) {
        let is_known = self.is_opening(id) || self.open.iter().any(|view| view.id == id);
        assert!(!is_known, "whoever opens a view gives it a number of its own");
        let refusal = if self.bytes == 0 {
            Some(Refusal::new(RefusalCode::NoViews, "this node has no store for views of the group"))
        } else if self.opening.len() + self.open.len() >= limits::VIEWS_MAX {
            let text = format!("{} views of the group are open, and more are not kept up", limits::VIEWS_MAX);
            Some(Refusal::new(RefusalCode::ViewsFull, text))
        } else {
            obstacle
        };
        match refusal {
            Some(refusal) => self.refuse(cx, id, refusal),
            None => self.opening.push((id, cx.now.mono)),
        }
    }

    fn is_opening(&self, id: ViewId) -> bool {
        self.opening.iter().any(|(of, _)| *of == id)
    }

    fn refuse(&self, cx: &mut Cx, view: ViewId, refusal: Refusal) {
        cx.out.push_back(Output::ViewOpened { group: self.group, view, result: Err(refusal) });
    }

    /// All that wait for their opening are told why it comes to nothing.
    pub fn refuse_opening(&mut self, cx: &mut Cx, refusal: &Refusal) {
        for (id, _) in core::mem::take(&mut self.opening) {
            self.refuse(cx, id, refusal.clone());
        }
    }

    /// Once in a while: what waits for a disk that does not answer is given up. True: there is more to be looked at.
    pub fn look(&mut self, cx: &mut Cx) -> bool {
        let why = "what is being written to the volumes does not come to its end";
        let (refusal, now) = (Refusal::new(RefusalCode::ViewNotNow, why), cx.now.mono);
        let late = self.opening.extract_if(.., |(_, since)| now.since(*since) >= limits::VIEW_PATIENCE);
        let late: Vec<ViewId> = late.map(|(id, _)| id).collect();
        late.into_iter().for_each(|id| self.refuse(cx, id, refusal.clone()));
        let stands = Some(self.saver.durable()).filter(|_| !self.saver.is_idle());
        if stands.is_some() && self.looked_at == stands {
            self.lose_marked(cx, "a disk does not answer, and applying waited for what is saved for it");
        }
        self.looked_at = stands;
        !self.are_none()
    }

    /// The image before a sync, as the rollback point of this id keeps it, is open to all who wait.
    pub fn open_before_sync(&mut self, common: &GroupCommon, cx: &mut Cx, point: u64, (at, wall): (Position, Wall)) {
        for (id, _) in core::mem::take(&mut self.opening) {
            cx.coverage.hit(CoveragePoint::ViewOfPoint);
            self.opens(common, cx, id, ViewImage::BeforeSync(point), (at, wall));
        }
    }

    /// The image that the volumes hold at this moment is open to all who wait; false: something for it is still under way. What is about to be
    /// written has to be saved for them too: see [`CopyViews::save`].
    pub fn open_here(&mut self, common: &GroupCommon, cx: &mut Cx, at: Position, wall: Wall) -> bool {
        let mark = match self.newest {
            Some(newest) if newest.position == at && !newest.is_touched => {
                cx.coverage.hit(CoveragePoint::ViewShared);
                newest.id
            }
            _ => {
                // What is on its way is for the mark before. What is on its way for none still writes to the store.
                let is_quiet = self.saver.is_idle() && (self.newest.is_some() || !common.slots.saves_for_views());
                if !is_quiet && !injected(Fault::ViewAtMovingPoint) {
                    return false;
                }
                self.last_mark += 1;
                self.store.begin_mark(self.last_mark);
                self.newest = Some(NewestMark { id: self.last_mark, position: at, is_touched: false });
                self.last_mark
            }
        };
        for (id, _) in core::mem::take(&mut self.opening) {
            self.opens(common, cx, id, ViewImage::Marked(mark), (at, wall));
        }
        true
    }

    fn opens(
        &mut self,
        common: &GroupCommon,
        cx: &mut Cx,
        id: ViewId,
        image: ViewImage,
        (position, wall): (Position, Wall),
    ) {
        cx.coverage.hit(CoveragePoint::ViewOpened);
        let shown = OpenedView {
            position,
            wall,
            volume_bytes: common.volumes.sizes(),
            without: common.sb.aside.with(&common.volumes.detached()),
            before_sync: matches!(image, ViewImage::BeforeSync(_)),
        };
        cx.event(self.group, Event::ViewOpened { view: id, at: position });
        let result = Ok(Box::new(shown.clone()));
        cx.out.push_back(Output::ViewOpened { group: self.group, view: id, result });
        self.open.push(View { id, image, shown, reads: ViewReads::default(), complained: false });
    }

    // ---- what is about to be overwritten -----------------------------------------------------------------------------

    /// Ranges on their way into the store leave room for more.
    pub fn has_room(&self) -> bool {
        self.saver.has_room()
    }

    /// Sees to it that what a record overwrites is saved.
    pub fn save(&mut self, common: &GroupCommon, record: &JournalRecord) -> UndoTicket {
        if self.newest.is_none() || !record.overwrites() {
            return 0;
        }
        let size_bytes = common.volumes[usize::from(record.volume.0)].size_bytes();
        let range = record.offset..record.offset + record.length;
        self.saver.save(&self.store, record.volume, size_bytes, range, BLOCK_BYTES, false)
    }

    pub fn is_good(&self, ticket: UndoTicket) -> bool {
        self.saver.is_good(ticket)
    }

    /// A record is about to be written.
    pub fn overwrites(&mut self, record: &JournalRecord) {
        if let Some(newest) = self.newest.as_mut().filter(|_| record.overwrites()) {
            newest.is_touched = true;
        }
    }

    /// Starts reads and batches. Without room in the store the oldest views are lost until there is some.
    pub fn pump_saves(&mut self, slots: &mut OperationSlots, cx: &mut Cx, boot: Incarnation) {
        while self.newest.is_some() && !self.saver.pump(&mut self.store, slots, cx, boot) {
            cx.coverage.hit(CoveragePoint::ViewLostForSpace);
            let oldest = self.store.oldest_mark().expect("something is saved for a mark");
            let size = ShownSize(self.store.saved_since(oldest));
            let why = format!("the store for views has no room for more: {size} were overwritten since it was opened");
            self.lose(cx, &why, |image| image == ViewImage::Marked(oldest));
            self.drop_marks();
        }
    }

    pub fn save_read_done(
        &mut self,
        slots: &mut OperationSlots,
        cx: &mut Cx,
        boot: Incarnation,
        piece: UndoTicket,
        result: IoResult,
    ) {
        if self.saver.has(piece) && self.saver.read_done(cx, piece, result).is_err() {
            self.lose_marked(cx, "what is about to be overwritten could not be read to be kept for it");
        }
        self.pump_saves(slots, cx, boot);
    }

    pub fn save_batch_done(
        &mut self,
        slots: &mut OperationSlots,
        cx: &mut Cx,
        boot: Incarnation,
        last_piece: UndoTicket,
        result: IoResult,
    ) {
        match self.saver.batch_done(&mut self.store, last_piece, result) {
            Ok(BatchResult::Nobodys) => {}
            Ok(BatchResult::More) => cx.coverage.hit(CoveragePoint::ViewSaved),
            Ok(BatchResult::Full) => self.lose_marked(cx, "the file system of the store for views is full"),
            Err(_) => self.lose_marked(cx, "the store for views could not be written"),
        }
        self.pump_saves(slots, cx, boot);
    }

    // ---- reading -----------------------------------------------------------------------------------------------------

    /// A read of a view; `range` may be anything.
    pub fn ask_read(&mut self, cx: &mut Cx, id: ViewId, request: RequestId, volume: VolumeId, range: Range<u64>) {
        self.requests += 1;
        let number = self.requests;
        let view = self.open.iter_mut().find(|view| view.id == id && is_within(&view.shown, volume, &range));
        match view.filter(|view| view.reads.waiting() < limits::VIEW_REQUESTS_MAX) {
            Some(view) => view.reads.ask(number, request, volume, range),
            None => cx.out.push_back(Output::ViewData { id: request, result: Err(IoError::Io) }),
        }
    }

    /// A part was read.
    pub fn read_done(&mut self, common: &GroupCommon, cx: &mut Cx, op: ViewReadOp, result: IoResult) {
        let Some(at) = self.open.iter().position(|view| view.id == op.view) else { return };
        let image = self.open[at].image;
        let stores = [&self.store, &common.undo];
        let view = &mut self.open[at];
        let damage = view.reads.read_done(cx, op, result, |volume, range| pieces(stores, image, volume, range));
        if let Some(damage) = damage.filter(|_| !core::mem::replace(&mut view.complained, true)) {
            let note = format!("a read of view {} failed, and others of it may: {damage}", op.view.0);
            cx.event(self.group, Event::Note(note));
        }
    }

    /// Begins reads, of each view in turn, as far as there is memory for them; the first one always. `others_bytes`: what else the group holds.
    pub fn pump_reads(&mut self, common: &mut GroupCommon, cx: &mut Cx, others_bytes: u64) {
        let mut is_short = false;
        let mut others = others_bytes + self.read_bytes();
        let mut under_way: usize = self.open.iter().map(|view| view.reads.under_way()).sum();
        for at in 0..self.open.len() {
            let (id, image) = (self.open[at].id, self.open[at].image);
            let stores = [&self.store, &common.undo];
            let reads = &mut self.open[at].reads;
            while let Some(part) = reads.next(cx, |volume, range| pieces(stores, image, volume, range)) {
                if under_way > 0 && others + part.length > cx.allowance {
                    is_short = true;
                    break;
                }
                (others, under_way) = (others + part.length, under_way + 1);
                let place = match image {
                    ViewImage::Marked(_) => crate::Store::History(self.group),
                    ViewImage::BeforeSync(_) => crate::Store::Undo(self.group),
                };
                reads.begin(&mut common.slots, cx, id, place, part);
            }
        }
        common.memory.note(is_short);
    }

    // ---- the end -----------------------------------------------------------------------------------------------------

    /// Nobody looks at it any more.
    pub fn close(&mut self, cx: &mut Cx, id: ViewId) {
        if self.is_opening(id) {
            self.opening.retain(|(of, _)| *of != id);
            return self.refuse(cx, id, Refusal::new(RefusalCode::ViewNotNow, "it was closed before it was open"));
        }
        if let Some(at) = self.open.iter().position(|view| view.id == id) {
            self.open.remove(at).reads.give_up(cx);
            self.drop_marks();
        }
    }

    /// The image before the sync is not kept any more, but for that of this rollback point.
    pub fn lose_before_sync(&mut self, cx: &mut Cx, but: Option<u64>) {
        let is_kept = |point| but == Some(point) || injected(Fault::ViewOutlivesSync);
        let why =
            "the sync has ended, or its rollback point was given up: the image from before it is not kept any more";
        self.lose(cx, why, |image| matches!(image, ViewImage::BeforeSync(point) if !is_kept(point)));
    }

    /// Every one is lost, and nothing is saved for any.
    pub fn lose_all(&mut self, cx: &mut Cx, why: &str) {
        self.lose(cx, why, |_| true);
        self.drop_marks();
    }

    fn lose_marked(&mut self, cx: &mut Cx, why: &str) {
        self.lose(cx, why, |image| matches!(image, ViewImage::Marked(_)));
        self.drop_marks();
    }

    fn lose(&mut self, cx: &mut Cx, why: &str, which: impl Fn(ViewImage) -> bool) {
        for mut view in self.open.extract_if(.., |view| which(view.image)) {
            cx.coverage.hit(CoveragePoint::ViewLost);
            view.reads.give_up(cx);
            cx.event(self.group, Event::ViewLost { view: view.id, why: String::from(why) });
        }
    }

    /// What must hold after every input. `stands`: this node follows its primary, and runs.
    pub fn check_invariants(&self, stands: bool) {
        assert!(stands || self.are_none(), "views are of a copy that runs");
        assert_eq!(self.newest.map(|newest| newest.id), self.store.mark(), "the newest mark is what is saved for");
        assert!(self.newest.is_some() || self.saver.is_idle(), "nothing is saved for nobody");
        let is_kept = |mark| self.store.oldest_mark().is_some_and(|oldest| oldest <= mark);
        assert!(self.open.iter().filter_map(View::mark).all(is_kept), "what a view needs is kept");
    }

    /// Marks that no view needs go, the oldest first. What is on its way is for the newest one: it goes last, and all with it.
    fn drop_marks(&mut self) {
        let oldest_needed = self.open.iter().filter_map(View::mark).min();
        let Some(needed) = oldest_needed else {
            self.saver.forget();
            self.store.empty();
            self.newest = None;
            return;
        };
        while self.store.oldest_mark().is_some_and(|oldest| oldest < needed) {
            self.store.drop_oldest();
        }
    }
}

impl View {
    fn mark(&self) -> Option<u64> {
        match self.image {
            ViewImage::Marked(mark) => Some(mark),
            ViewImage::BeforeSync(_) => None,
        }
    }
}

/// What of a range of an image is saved, and what the volume holds. `stores`: for views, and of the rollback point.
fn pieces(
    [views, undo]: [&UndoStore; 2],
    image: ViewImage,
    volume: VolumeId,
    range: Range<u64>,
) -> Vec<(Range<u64>, Option<SavedRange>)> {
    match image {
        ViewImage::Marked(mark) => views.image_at(mark, volume, range),
        ViewImage::BeforeSync(point) => undo.image_at(point, volume, range),
    }
}

/// The view has the range, and it is no longer than one read may be.
fn is_within(view: &OpenedView, volume: VolumeId, range: &Range<u64>) -> bool {
    let size_bytes = view.volume_bytes.get(usize::from(volume.0)).copied().unwrap_or(0);
    let is_aligned = range.start.is_multiple_of(limits::SECTOR_BYTES) && range.end.is_multiple_of(limits::SECTOR_BYTES);
    let fits =
        range.start < range.end && range.end <= size_bytes && range.end - range.start <= limits::VIEW_READ_BYTES_MAX;
    is_aligned && fits && !view.without.contains(volume)
}
