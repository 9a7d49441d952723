//! Marks: an operator names a point of the write order, and both nodes have it at exactly that position.
//!
//! ```text
//! primary:    set -> a number of the order, a slot (durable) -> answered
//!                 -> MarkTerms and, in the stream, a Void that names it       -> MarkThere -> the peer has it
//! secondary:  the Void is durable in the journal -> a slot (durable)          -> MarkThere
//! ```
//! The Void says where, the terms say what. A primary tells of all its marks in each session. A secondary that has some asks whether these are all:
//! whatever became of an answer or of a file, both tables come to say the same. Where there are no marks nothing is said.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::identity::Role;
use crate::formats::marks::{Mark, may_be_called};
use crate::formats::wire::{FrameHeader, FrameKind, flags};
use crate::group::Group;
use crate::ids::{CommandId, Generation, Incarnation, LinkId, MarkId, Position, Seq};
use crate::injected_fault::{Fault, injected};
use crate::limits::MARKS_MAX;
use crate::peer::outbox::push_mark;
use crate::peer::queue_log::QueueLog;
use crate::peer::stream::{PeerStream, began_at};
use crate::records::marks::{LATCHED, MarkTable};
use crate::secondary::rollback::command_drop_point;
use crate::shared::coverage::CoveragePoint;
use crate::shared::greeting::Greeting;
use crate::shared::lifecycle::Phase;
use crate::{Command, CommandResult, Event, IoResult, Refusal, RefusalCode, SendPayload};

/// What rollback points are called.
const POINTS: &str = "before-sync-";
/// What `drain --to` calls the present.
const NOW: &str = "now";

/// So many marks a turn tells of: the line is slow perhaps, and others wait for it.
const TOLD_AT_ONCE: usize = 16;

/// An order that is answered once its mark stands in the file, and its number in the log of the queue if there is one.
#[derive(Debug)]
struct OwedAnswer {
    id: CommandId,
    mark: MarkId,
    seq: Seq,
    result: CommandResult,
}

/// What is under way between the two tables.
#[derive(Debug, Default)]
pub(crate) struct MarkDesk {
    answers: Vec<OwedAnswer>,
    /// In whose role the table was looked at last.
    role: Option<Role>,
    /// Of a primary: what the peer has to be told. All of it at the beginning of a session: the peer may have lost its file since.
    untold: BTreeSet<MarkId>,
    /// The same of marks that are on their way, before the stream is open that brings them.
    waiting: BTreeSet<MarkId>,
    /// This session's marks are still to be gathered.
    begins: bool,
    /// Of a primary: the peer wants to know when it was told of all of them.
    is_asked: bool,
    /// Where the stream began, and the last change of a mark, when it was looked at what left it.
    looked_at: Option<(Option<(Incarnation, Seq)>, u64)>,
    /// Of a primary: dropped, and the peer has it no more. A start could still find it in the log of the queue.
    freed: BTreeSet<MarkId>,
    /// What it was told in this session: the number of the change.
    told: BTreeMap<MarkId, u64>,
    /// Of a secondary: what it has and was not told of in this session; its primary is to be asked whether there are more to tell.
    unheard: BTreeSet<MarkId>,
    asks: bool,
    /// Of a secondary: terms of marks that are on their way in the stream.
    expected: BTreeMap<MarkId, (Mark, u64)>,
    /// What the primary said last of each mark that it waits to hear of.
    owed: BTreeMap<MarkId, u64>,
    /// Marks that are not here and will not come.
    unknown: Vec<(MarkId, u64)>,
    /// When it was looked last at what can be said of all these.
    replied_at: Option<ReplyMoment>,
}

/// What answers follow from: changes of the table, cells written, and how far the copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReplyMoment {
    changes: (u64, u64),
    run: (Generation, Incarnation),
    through: (Seq, Seq),
    begins: bool,
}

impl MarkDesk {
    /// The group has started, once more perhaps.
    pub fn starts(&mut self) {
        self.role = None;
    }

    /// Nothing is to be said to the primary.
    fn is_at_rest(&self) -> bool {
        self.expected.is_empty() && self.owed.is_empty() && self.unknown.is_empty()
    }

    /// The session has ended.
    pub fn session_ends(&mut self) {
        (self.told, self.expected, self.owed, self.unknown) = Default::default();
        (self.untold, self.waiting, self.unheard, self.replied_at) = Default::default();
        (self.begins, self.is_asked, self.asks) = (true, false, false);
    }

    /// Of a secondary: what it has at the beginning of a session.
    fn gather_unheard(&mut self, marks: &MarkTable) {
        if core::mem::take(&mut self.begins) {
            self.unheard = marks.marks().filter(|mark| !mark.lost && !mark.dropped).map(|mark| mark.id).collect();
            self.asks = !self.unheard.is_empty();
        }
    }
}

// ---- orders ------------------------------------------------------------------------------------------------------------

/// Why no mark of this name is set here now; `Ok(true)`: it is set already.
pub(crate) fn may_set(group: &Group, name: &str) -> Result<bool, Refusal> {
    let Group { common, primary, handover, .. } = group;
    let refuse = |code, why: &str| Err(Refusal::new(code, why));
    if let Some(broken) = common.lifecycle.broken() {
        return refuse(RefusalCode::GroupFailed, &format!("the group has failed: {}", broken.words()));
    }
    if !common.lifecycle.is_running() {
        return refuse(
            common.lifecycle.refusal(),
            "the group is starting, stopping or changing its role; try again in a moment",
        );
    }
    if common.role() != Role::Primary {
        return refuse(RefusalCode::NotPrimary, "this node is the secondary; marks are set on the primary");
    }
    if !may_be_called(name) || name.starts_with(POINTS) || name == NOW {
        return refuse(
            RefusalCode::MarkName,
            &format!(
                "a mark cannot be called {name:?}: 1 to 63 letters, digits, '-', '_', '.' and ':', the first one a letter or a digit; \
                 {POINTS}N is kept for rollback points, {NOW} for the present"
            ),
        );
    }
    if common.marks.has_latched() {
        return refuse(RefusalCode::StoreFailed, LATCHED);
    }
    if common.marks.named(name).is_some() {
        return Ok(true);
    }
    if handover.holds() {
        return refuse(RefusalCode::RoleChanging, "a switchover to the peer is under way; try again in a moment");
    }
    if primary.peer.outbox.syncs() || primary.peer.outbox.goes_by_snapshots() {
        return refuse(
            RefusalCode::NotInStep,
            "a sync is under way: before its end the peer stands at no point of the write order; set the mark when 'status' shows that \
             it has ended",
        );
    }
    if !primary.peer.outbox.streams() && common.numbers.generation_is_due() {
        let why = "another generation is being recorded, and a mark would name a point of none; try again in a moment";
        return refuse(RefusalCode::NotInStep, why);
    }
    if common.marks.is_full() {
        return refuse(
            RefusalCode::MarksFull,
            &format!(
                "a group has at most {MARKS_MAX} marks, with those that are dropped and of which the peer has not heard: 'mark drop' one"
            ),
        );
    }
    Ok(false)
}

pub(crate) fn command(group: &mut Group, cx: &mut Cx, id: CommandId, command: Command) {
    match command {
        Command::Mark { name, moment } => command_set(group, cx, id, &name, moment),
        Command::LockMark { name, locked } => command_lock(group, cx, id, &name, locked),
        Command::DropMark { name, override_lock } => command_drop(group, cx, id, &name, override_lock),
        other => unreachable!("no order about marks: {other:?}"),
    }
}

/// An operator sets a mark. Others of the same moment are set in the same turn of the node.
fn command_set(group: &mut Group, cx: &mut Cx, id: CommandId, name: &str, moment: u64) {
    match may_set(group, name) {
        Err(refusal) => cx.answer(id, CommandResult::Refused(refusal)),
        Ok(true) => {
            let Some(mark) = group.common.marks.named(name) else { return };
            let text = format!("{name} is taken already, at sequence {}; nothing to do", mark.position.seq.0);
            // Whoever set it waits for its number perhaps, and so does this one.
            let is_of_run = mark.position.incarnation == group.common.sb.identity.incarnation;
            let seq = if is_of_run && !mark.there && !mark.lost { mark.position.seq } else { Seq::NONE };
            let mark = mark.id;
            group.marks.answers.push(OwedAnswer { id, mark, seq, result: CommandResult::Unchanged(text) });
        }
        Ok(false) => set(group, cx, id, name, moment),
    }
}

fn set(group: &mut Group, cx: &mut Cx, id: CommandId, name: &str, moment: u64) {
    let Group { common, primary, marks: desk, .. } = group;
    let mark_id = common.marks.next_id(common.node, common.sb.identity.incarnation);
    let outbox = &mut primary.peer.outbox;
    let streamed = outbox.streams();
    let (wall, seq) = if streamed && !injected(Fault::MarkUnnumbered) {
        push_mark(outbox, common, cx, mark_id)
    } else {
        // Beside a stream it has no number of its own: it names what came before it.
        (common.numbers.last_wall(), common.numbers.last())
    };
    let position = common.position(seq);
    let lost = !streamed;
    common.marks.put(Mark { id: mark_id, position, wall, moment, name: name.into(), lost, ..Mark::default() });
    cx.coverage.hit(if streamed { CoveragePoint::MarkSet } else { CoveragePoint::MarkSetAlone });
    cx.event(common.id(), Event::Marked { id: mark_id, name: name.into(), at: position, moment, alone: lost });
    let result = if lost {
        let why = "the peer is sent nothing in order now, so this mark exists here alone";
        CommandResult::Warning(format!("{name} is set at sequence {}; {why}", seq.0))
    } else {
        desk.untold.insert(mark_id);
        CommandResult::Done(format!("{name} is set at sequence {}", seq.0))
    };
    desk.answers.push(OwedAnswer { id, mark: mark_id, seq: if streamed { seq } else { Seq::NONE }, result });
}

/// A mark is locked, or unlocked.
fn command_lock(group: &mut Group, cx: &mut Cx, id: CommandId, name: &str, locked: bool) {
    let Some(mark) = changeable(group, cx, id, name, false) else { return };
    let word = if locked { "locked" } else { "unlocked" };
    let result = if mark.locked == locked {
        CommandResult::Unchanged(format!("{name} is {word} already; nothing to do"))
    } else {
        CommandResult::Done(format!("{name} is {word}"))
    };
    change(group, id, Mark { locked, ..mark }, result);
}

/// A mark is dropped; a locked one only by whoever says so.
fn command_drop(group: &mut Group, cx: &mut Cx, id: CommandId, name: &str, override_lock: bool) {
    if group.common.marks.named(name).is_none() {
        return command_drop_point(&mut group.common, cx, id, (name, false));
    }
    let Some(mark) = changeable(group, cx, id, name, true) else { return };
    if mark.locked && !override_lock {
        let why = format!("{name} is locked: 'mark unlock' it first, or drop it with --override-lock");
        return cx.refuse(id, RefusalCode::MarkLocked, why);
    }
    let result = CommandResult::Done(format!("{name} is dropped"));
    change(group, id, Mark { dropped: true, ..mark }, result);
}

/// The mark of that name, where it may be changed: on the primary.
fn changeable(group: &Group, cx: &mut Cx, id: CommandId, name: &str, drops: bool) -> Option<Mark> {
    // One that the primary knows nothing of is dropped where it is.
    let is_stray = || group.common.marks.named(name).is_some_and(|mark| mark.lost);
    if group.common.role() != Role::Primary && !(drops && is_stray()) {
        cx.refuse(id, RefusalCode::NotPrimary, "this node is the secondary; marks are changed on the primary");
        return None;
    }
    if group.common.marks.has_latched() {
        cx.refuse(id, RefusalCode::StoreFailed, LATCHED);
        return None;
    }
    let mark = group.common.marks.named(name).cloned();
    if mark.is_none() {
        let why = format!("there is no mark {name:?}; 'mark list' shows what there is");
        cx.refuse(id, RefusalCode::NoSuchMark, why);
    }
    mark
}

fn change(group: &mut Group, id: CommandId, mark: Mark, result: CommandResult) {
    let Group { common, marks: desk, .. } = group;
    desk.answers.push(OwedAnswer { id, mark: mark.id, seq: Seq::NONE, result });
    if common.marks.get(mark.id) != Some(&mark) {
        desk.untold.insert(mark.id);
        common.marks.put(mark);
    }
}

// ---- frames ------------------------------------------------------------------------------------------------------------

pub(crate) fn frame(group: &mut Group, cx: &mut Cx, header: &FrameHeader, payload: &[u8]) -> Option<()> {
    if header.kind == FrameKind::MarkTerms && header.flags & flags::LAST != 0 {
        these_are_all(group, cx);
        return Some(());
    }
    if header.kind == FrameKind::MarkTerms {
        return terms(group, cx, header, payload);
    }
    if header.flags & flags::LAST != 0 {
        group.marks.is_asked = true;
    } else {
        answered(group, cx, header);
    }
    Some(())
}

/// The primary says what a mark is.
fn terms(group: &mut Group, cx: &mut Cx, header: &FrameHeader, payload: &[u8]) -> Option<()> {
    let told = Mark::decode(payload)?;
    let Group { common, marks: desk, .. } = group;
    if common.role() != Role::Secondary || !common.lifecycle.is_running() || common.has_failed() {
        return Some(());
    }
    desk.gather_unheard(&common.marks);
    desk.unheard.remove(&told.id);
    desk.replied_at = None;
    let change = header.seq.0;
    let known = common.marks.get(told.id).cloned();
    if let Some(known) = known {
        if is_same_place(known.position, told.position) {
            let (position, wall) = (known.position, known.wall);
            let mark = Mark { position, wall, there: true, lost: false, doubted: false, ..told };
            if mark != known {
                common.marks.put(mark);
            }
            desk.owed.insert(known.id, change);
            return Some(());
        }
        // What stands on record ends no session: it would end the next one as well. The primary's word counts.
        common.marks.remove(told.id);
        desk.owed.remove(&told.id);
    }
    let is_new = !desk.expected.contains_key(&told.id);
    if is_new && desk.expected.len() >= MARKS_MAX {
        common.protocol_error(cx, "more marks than a group has");
        return Some(());
    }
    desk.expected.insert(told.id, (told, change));
    Some(())
}

/// The primary has told of all marks that it had when it was asked. What it knows nothing of is on this node alone: people see that, and it makes room for others.
fn these_are_all(group: &mut Group, cx: &mut Cx) {
    let Group { common, marks: desk, .. } = group;
    let unheard = core::mem::take(&mut desk.unheard);
    if common.role() != Role::Secondary || !common.lifecycle.is_running() || common.has_failed() {
        return;
    }
    for id in unheard {
        if let Some(mark) = common.marks.get(id).filter(|mark| !mark.dropped).cloned() {
            is_lost(common, cx, &mark, true);
        }
    }
}

/// A run that goes on behind a restart has another incarnation, and the same numbers.
fn is_same_place(one: Position, other: Position) -> bool {
    (one.generation, one.seq) == (other.generation, other.seq)
}

/// The secondary says what became of a mark.
fn answered(group: &mut Group, cx: &mut Cx, header: &FrameHeader) {
    let Group { common, marks: desk, primary, .. } = group;
    let (id, change) = (MarkId(header.offset), header.length);
    if common.role() != Role::Primary {
        return;
    }
    let Some(&said) = desk.told.get(&id) else {
        return common.protocol_error(cx, "an answer for a mark that it was not told of");
    };
    let Some(mark) = common.marks.get(id).cloned().filter(|_| said == change) else {
        // It has changed since, and is told again.
        return;
    };
    desk.told.remove(&id);
    let there = header.flags & flags::UNKNOWN == 0;
    if mark.dropped {
        desk.freed.insert(id);
        return free(common, &primary.peer.outbox.log, desk);
    }
    if !there {
        return is_lost(common, cx, &mark, true);
    }
    let tag = mark.position.generation.tag;
    if (header.generation_tag, header.seq) != (tag, mark.position.seq) {
        return common.protocol_error(cx, "a mark at another position than its own");
    }
    let position = Position { incarnation: header.incarnation, ..mark.position };
    if !mark.there || mark.lost || mark.position != position {
        cx.coverage.hit(CoveragePoint::MarkThere);
        cx.event(common.id(), Event::MarkThere { id, name: mark.name.clone(), at: position });
        common.marks.put(Mark { position, there: true, lost: false, doubted: false, ..mark });
    }
}

/// Slots of marks that are dropped at both nodes, and that no start brings back.
fn free(common: &mut GroupCommon, log: &QueueLog, desk: &mut MarkDesk) {
    let due = desk.freed.iter().filter(|id| {
        let is_logged = |mark: &Mark| {
            let counts = log.gates() || common.sb.queue_logged;
            counts && mark.position.generation == common.sb.identity.generation && log.starts_before(mark.position.seq)
        };
        !common.marks.get(**id).is_some_and(is_logged)
    });
    let due: Vec<MarkId> = due.copied().collect();
    for id in due {
        desk.freed.remove(&id);
        common.marks.remove(id);
    }
}

/// The mark is not at the peer, and will not come there; or so it seems, until the peer says what it has.
fn is_lost(common: &mut GroupCommon, cx: &mut Cx, mark: &Mark, is_certain: bool) {
    if mark.lost && !(mark.doubted && is_certain) {
        return;
    }
    if !is_certain {
        common.marks.put(Mark { there: false, lost: true, doubted: true, ..mark.clone() });
        return;
    }
    cx.coverage.hit(CoveragePoint::MarkLost);
    cx.event(common.id(), Event::MarkLost { id: mark.id, name: mark.name.clone() });
    common.marks.put(Mark { there: false, lost: true, doubted: false, ..mark.clone() });
}

/// A cell of the file of marks is written.
pub(crate) fn cell_written(group: &mut Group, cx: &mut Cx, result: IoResult) {
    let head = group.common.cell_head();
    if result.is_err() {
        group.common.marks.latch();
        cx.event(group.common.id(), Event::Note(LATCHED.into()));
    } else {
        let GroupCommon { marks, slots, .. } = &mut group.common;
        marks.written(cx, slots, head);
    }
    if group.common.marks.is_durable() && group.common.role() == Role::Secondary && group.common.lifecycle.is_running()
    {
        group.secondary.replica.goes_on_applying(&mut group.common, cx);
    }
}

// ---- what goes on ------------------------------------------------------------------------------------------------------

/// Looks at what marks wait for; called at the end of every input.
pub(crate) fn proceed(group: &mut Group, cx: &mut Cx) {
    if let Some(broken) = group.common.lifecycle.broken() {
        return refuse_owed(group, cx, broken.words());
    }
    if group.common.marks.has_latched() {
        refuse_owed(group, cx, LATCHED);
    }
    take_arrived(group, cx);
    let is_running = matches!(group.common.lifecycle.phase(), Phase::Running);
    if is_running {
        look_at_role(group);
        lose_what_left_the_stream(group, cx);
        let Group { common, primary, marks: desk, .. } = &mut *group;
        free(common, &primary.peer.outbox.log, desk);
    }
    if !group.common.lifecycle.has_stopped() {
        let head = group.common.cell_head();
        let GroupCommon { marks, slots, .. } = &mut group.common;
        marks.write_next(cx, slots, head);
    }
    answer(group, cx);
    let Some(link) = cx.peer.link.filter(|_| is_running && !cx.peer.is_clogged) else { return };
    match group.common.role() {
        Role::Primary => tell(group, cx, link),
        Role::Secondary => reply(group, cx, link),
    }
}

/// Whoever waits for a slot that is not written hears why.
fn refuse_owed(group: &mut Group, cx: &mut Cx, why: &str) {
    let owed = core::mem::take(&mut group.marks.answers);
    for owed in owed {
        cx.refuse(
            owed.id,
            RefusalCode::StoreFailed,
            format!("{why}. It is not known whether the order was carried out"),
        );
    }
}

/// Marks of the stream are durable in the journal.
fn take_arrived(group: &mut Group, cx: &mut Cx) {
    for (id, position, wall) in group.common.marks.take_arrived() {
        let Group { common, marks: desk, .. } = &mut *group;
        match common.marks.get(id).map(|mark| mark.position) {
            Some(known) if is_same_place(known, position) => continue,
            Some(_) => common.marks.remove(id),
            None => {}
        }
        // Terms of another place are of a mark that does not come: the primary hears of that.
        let is_told = desk.expected.get(&id).is_some_and(|(mark, _)| is_same_place(mark.position, position));
        let terms = is_told.then(|| desk.expected.remove(&id)).flatten();
        let told = terms.as_ref().map(|(_, change)| *change);
        let mark = terms.map(|(mark, _)| mark).unwrap_or_default();
        let mark = Mark { id, position, wall, there: true, lost: false, doubted: false, ..mark };
        cx.coverage.hit(CoveragePoint::MarkArrived);
        let is_refused = common.marks.has_latched() || common.marks.is_full() && !make_room(common);
        if is_refused || !common.marks.put(mark) {
            // Nobody is told of more at once than a group has.
            desk.unknown.extend(told.filter(|_| desk.unknown.len() < MARKS_MAX).map(|change| (id, change)));
            desk.replied_at = None;
            continue;
        }
        desk.replied_at = None;
        if let Some(change) = told {
            desk.owed.insert(id, change);
        } else if common.role() == Role::Secondary {
            desk.unheard.insert(id);
            desk.asks = true;
        }
    }
}

/// Of a full table the oldest mark goes that the primary does not know of, or never named; none that is locked.
fn make_room(common: &mut GroupCommon) -> bool {
    let strays = common.marks.marks().filter(|mark| !mark.locked && (mark.lost || mark.name.is_empty()));
    let Some(oldest) = strays.min_by_key(|mark| (mark.wall, mark.id)).map(|mark| mark.id) else { return false };
    common.marks.remove(oldest);
    true
}

/// After a start, and after a promotion: what the peer knows of each mark is not known.
fn look_at_role(group: &mut Group) {
    let Group { common, marks: desk, primary, .. } = group;
    let role = common.role();
    if desk.role.replace(role) == Some(role) {
        return;
    }
    desk.session_ends();
    desk.freed.clear();
    if role == Role::Secondary {
        return;
    }
    let stream = primary.peer.outbox.stream();
    let queued: Vec<_> = stream.map(marks_in).unwrap_or_default();
    for (id, seq, wall) in queued {
        // A start went on from the log of the queue: what stands there is of this run now. What is not in the table is new: the slot
        // of one that was dropped stays as long as it stands in the log.
        let known = common.marks.get(id).cloned();
        let position = common.position(seq);
        let is_there = known.as_ref().is_some_and(|mark| mark.there);
        if !is_there {
            common.marks.put(Mark { id, position, wall, lost: false, doubted: false, ..known.unwrap_or_default() });
        }
    }
    // Their terms never came, and whoever could have told is not primary any more.
    let unnamed_marks: Vec<Mark> = common.marks.marks().filter(|mark| mark.name.is_empty()).cloned().collect();
    for mark in unnamed_marks {
        common.marks.put(Mark { name: unnamed(mark.id), ..mark });
    }
}

/// Marks of the queue, each with its number.
fn marks_in(stream: &PeerStream) -> Vec<(MarkId, Seq, crate::Wall)> {
    let marks = stream.queue().after(Seq::NONE).filter(|item| item.flags & flags::MARK != 0);
    marks.map(|item| (MarkId(item.offset), item.seq, item.wall)).collect()
}

/// Rule 10: what leaves the queue without having reached the peer is, as far as this node knows, nowhere but here.
fn lose_what_left_the_stream(group: &mut Group, cx: &mut Cx) {
    let Group { common, primary, marks: desk, .. } = group;
    if common.role() != Role::Primary || !common.marks.has_open() {
        return;
    }
    let stream = primary.peer.outbox.stream();
    let began = stream.map(|stream| (common.sb.identity.incarnation, began_at(stream)));
    if desk.looked_at.replace((began, common.marks.last_change())) == Some((began, common.marks.last_change())) {
        return;
    }
    let is_on_its_way = |mark: &Mark| {
        let Position { incarnation, seq, .. } = mark.position;
        began.is_some_and(|(run, from)| incarnation == run && seq > from)
    };
    let sent = primary.peer.outbox.sent_through();
    let gone = common.marks.marks().filter(|mark| !mark.there && !mark.lost && !is_on_its_way(mark));
    let gone: Vec<Mark> = gone.cloned().collect();
    for mark in gone {
        // What was sent, in this run or before it, may have arrived: the peer says so then.
        let is_of_run = mark.position.incarnation == common.sb.identity.incarnation;
        is_lost(common, cx, &mark, is_of_run && mark.position.seq > sent);
        desk.untold.insert(mark.id);
    }
}

/// Orders whose marks stand in the file.
fn answer(group: &mut Group, cx: &mut Cx) {
    let Group { common, primary, marks: desk, .. } = group;
    let log = &primary.peer.outbox.log;
    // One that was dropped meanwhile, and is gone, is waited for no longer.
    let is_known = |mark: MarkId| common.marks.get(mark).is_some();
    let is_due = |owed: &OwedAnswer| (common.marks.is_recorded(owed.mark) || !is_known(owed.mark)) && log.has(owed.seq);
    let (due, owed) = core::mem::take(&mut desk.answers).into_iter().partition::<Vec<_>, _>(is_due);
    desk.answers = owed;
    due.into_iter().for_each(|owed| cx.answer(owed.id, owed.result));
}

/// Tells the peer what it has not answered in this session.
fn tell(group: &mut Group, cx: &mut Cx, link: LinkId) {
    let Group { common, primary, marks: desk, .. } = group;
    if !is_met(&primary.peer.greeting, Role::Secondary) {
        return;
    }
    if core::mem::take(&mut desk.begins) {
        desk.untold = common.marks.marks().map(|mark| mark.id).collect();
    }
    let is_open = primary.peer.outbox.stream().is_some_and(PeerStream::is_open);
    if is_open {
        desk.untold.append(&mut desk.waiting);
    }
    for _ in 0..TOLD_AT_ONCE {
        let Some(id) = desk.untold.pop_first() else { break };
        let (Some(mark), Some(change)) = (common.marks.get(id), common.marks.change_of(id)) else { continue };
        // A mark that is on its way is told of in the session that brings it.
        if !mark.there && !mark.lost && !is_open {
            desk.waiting.insert(id);
            continue;
        }
        desk.told.insert(id, change);
        let header =
            FrameHeader { seq: Seq(change), ..FrameHeader::new(FrameKind::MarkTerms, cx.peer.session, common.id()) };
        cx.send(link, header, SendPayload::Control(mark.encode()));
    }
    // Who could not read its own marks does not know what these are.
    let is_all = desk.untold.is_empty() && desk.waiting.is_empty() && !common.marks.has_latched();
    if is_all && core::mem::take(&mut desk.is_asked) {
        let header =
            FrameHeader { flags: flags::LAST, ..FrameHeader::new(FrameKind::MarkTerms, cx.peer.session, common.id()) };
        cx.send(link, header, SendPayload::None);
    }
}

fn is_met(greeting: &Greeting, role: Role) -> bool {
    greeting.unfit().is_none() && greeting.hello().is_some_and(|hello| hello.identity.role == role)
}

/// Asks the primary whether it has told of all its marks, once it says who it is.
fn ask(group: &mut Group, cx: &mut Cx, link: LinkId) {
    let Group { common, primary, marks: desk, .. } = group;
    desk.gather_unheard(&common.marks);
    if desk.asks && is_met(&primary.peer.greeting, Role::Primary) && !injected(Fault::MarkStraysUnasked) {
        desk.asks = false;
        let header =
            FrameHeader { flags: flags::LAST, ..FrameHeader::new(FrameKind::MarkThere, cx.peer.session, common.id()) };
        cx.send(link, header, SendPayload::None);
    }
}

/// Tells the primary what stands in the file, and what will not come.
fn reply(group: &mut Group, cx: &mut Cx, link: LinkId) {
    ask(group, cx, link);
    let Group { common, secondary, marks: desk, .. } = group;
    if desk.is_at_rest() && !common.marks.has_dropped() {
        return;
    }
    let progress = secondary.replica.progress();
    let run = (progress.generation(), progress.incarnation());
    let begins = secondary.begins_stream();
    let changes = (common.marks.last_change(), common.marks.writes_done());
    let through = (progress.durable_on_disk(), progress.applied_on_disk());
    let moment = ReplyMoment { changes, run, through, begins };
    if desk.replied_at.replace(moment) == Some(moment) {
        return;
    }
    let is_to_come = |mark: &Mark| {
        let is_of_run = (mark.position.generation, mark.position.incarnation) == run;
        begins || is_of_run && mark.position.seq > progress.durable_on_disk()
    };
    let gone = desk.expected.iter().filter(|(_, (mark, _))| !is_to_come(mark));
    let gone: Vec<_> = gone.map(|(id, (_, change))| (*id, *change)).collect();
    for (id, change) in gone {
        desk.expected.remove(&id);
        desk.unknown.push((id, change));
    }
    // Before that a start could bring it back from the journal.
    let is_through = |mark: &Mark| {
        let is_of_run = (mark.position.generation, mark.position.incarnation) == run;
        !is_of_run || mark.position.seq <= progress.applied_on_disk()
    };
    let drops = common.marks.has_dropped();
    let dropped = common
        .marks
        .marks()
        .filter(|mark| drops && mark.dropped && is_through(mark) && common.marks.is_recorded(mark.id));
    let dropped: Vec<_> = dropped.map(|mark| mark.id).collect();
    for id in dropped {
        common.marks.remove(id);
        desk.unknown.extend(desk.owed.remove(&id).map(|change| (id, change)));
    }
    let says = |kind_flags: u16, id: MarkId, change: u64, position: Position| FrameHeader {
        flags: kind_flags,
        offset: id.0,
        length: change,
        seq: position.seq,
        incarnation: position.incarnation,
        generation_tag: position.generation.tag,
        ..FrameHeader::new(FrameKind::MarkThere, cx.peer.session, common.id())
    };
    let mut due: Vec<FrameHeader> = Vec::new();
    let unknown = core::mem::take(&mut desk.unknown).into_iter();
    due.extend(unknown.map(|(id, change)| says(flags::UNKNOWN, id, change, Position::default())));
    desk.owed.retain(|id, change| {
        let Some(mark) = common.marks.get(*id) else { return false };
        if common.marks.has_latched() && !common.marks.is_recorded(*id) {
            due.push(says(flags::UNKNOWN, *id, *change, Position::default()));
            return false;
        }
        if mark.dropped || !common.marks.is_recorded(*id) && !injected(Fault::MarkToldEarly) {
            return true;
        }
        due.push(says(0, *id, *change, mark.position));
        false
    });
    due.into_iter().for_each(|header| cx.send(link, header, SendPayload::None));
}

/// The marks of a group, for people.
pub(crate) fn shown(common: &GroupCommon) -> Vec<Mark> {
    let mut marks: Vec<Mark> = common.marks.marks().filter(|mark| !mark.dropped).cloned().collect();
    for mark in marks.iter_mut().filter(|mark| mark.name.is_empty()) {
        mark.name = unnamed(mark.id);
    }
    marks.sort_by_key(|mark| (mark.wall, mark.id));
    marks
}

/// What a mark is called that came without its terms.
fn unnamed(id: MarkId) -> String {
    format!("mark-{}-{}", id.node().0, id.0 & MarkId::COUNTER_MAX)
}
