//! What becomes of requests that change something: each is an operation with a name, by which its end can be waited for.
//!
//! The name has the run of the daemon in it, drawn by chance, so it is never used again, and no disk is asked for it. Operations are kept in
//! memory, the newest ones: what a daemon before this one was at is told by the log of events alone.
//!
//! Most operations end with their answer. That of a sync says that it begins: its operation ends when the copy is up to date, or when it is
//! known that it will not be. A look at the group tells that; the data thread's notices tell what began between two looks, and when to look.
//! Notices may come later than a look that was taken after them. Verifies and reverse syncs end by looks alone, and what was answered with
//! `not-done-yet` ends when the group has come to rest.

mod courses;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::state::{Mode, State};
use engine::{Event, RefusalCode, Seq};
use host::driver::entropy;
use settings::limits::GROUPS_MAX;

use crate::api::refusals::DeskRefusal;
use crate::api::{OPERATION_SCHEMA, OperationId, OperationState, OperationView, RefusalView, Reply, Retry};
use crate::events::{cut, unix_ms};
use courses::CourseEnd;
pub(super) use courses::{Course, ReverseLook, VerifyLook};

/// So many are kept, with texts of a few KiB each: those of one command for all groups, whose end is waited for in turn, and as many others as
/// scripts begin meanwhile.
const KEPT_MAX: usize = GROUPS_MAX + 1024;
/// Warnings of one that are kept.
const WARNINGS_MAX: usize = 4;
/// The command that keeps a group from syncs.
const LOGGING: &str = "logging";
/// How long a sync that was ordered may take to show in the state.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// The operations of this run of the daemon.
pub(super) struct Operations {
    node: String,
    run: String,
    kept: RefCell<KeptOperations>,
}

#[derive(Default)]
struct KeptOperations {
    /// Begun so far: the newest has this number.
    begun: u64,
    /// Oldest first.
    list: VecDeque<Operation>,
}

struct Operation {
    number: u64,
    verb: &'static str,
    group: Option<String>,
    begun_unix_ms: u64,
    state: OperationState,
    message: Option<String>,
    warnings: Vec<String>,
    refusal: Option<RefusalView>,
    /// Of one that goes on behind its answer, and has not ended.
    course: Option<Course>,
    /// It was answered that its group has not come to rest.
    is_late: bool,
}

/// A sync whose end is awaited. It may begin, and end, before its order is answered.
pub(super) struct SyncCourse {
    /// What was before that is not of this one.
    since: Instant,
    full: bool,
    /// The order was answered; before that it has no end.
    is_ordered: bool,
    /// Something was seen to be sent by it.
    seen: bool,
    /// Regions were seen to be sent: of a full one that was ordered those of a full one.
    began: bool,
    /// An operator has typed `logging` since, and no `sync` after that.
    is_held: bool,
    /// When it was last seen to be due, or to go.
    alive_at: Instant,
    /// The last number when the group was first found in step: when the peer has applied that, it has all that the order was about.
    through: Option<Seq>,
    hands_over: Option<HandsOver>,
}

/// Of a node that hands over to its peer, which is in step by then.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HandsOver {
    /// That may be refused still.
    UnderWay,
    /// The peer has all that was there.
    Done,
}

/// What a look at a group tells of its sync.
pub(super) struct SyncLook<'a> {
    pub at: Instant,
    pub group: &'a str,
    pub is_primary: bool,
    pub state: State,
    pub mode: Option<Mode>,
    pub autosync: bool,
    /// One was ordered and has not begun, or stands in line.
    pub is_due: bool,
    /// Without another order one begins once what stands in its way is gone.
    pub begins_by_itself: bool,
    /// A full one goes.
    pub is_full: bool,
    /// Regions are read to be sent in the order of writes, or are to be.
    pub reads_regions: bool,
    /// What waits to be applied by the peer, the last number of all, and the last that is known to be applied.
    pub queued_bytes: u64,
    pub last: Seq,
    pub applied: Option<Seq>,
    /// Why the state is what it is; empty: it is the wanted one.
    pub why: String,
    /// Volumes that it leaves out, by name; mostly none.
    pub left_out: String,
}

impl SyncCourse {
    fn new(full: bool) -> SyncCourse {
        let since = Instant::now();
        let (is_ordered, seen, began, is_held, through) = (false, false, false, false, None);
        SyncCourse { since, full, is_ordered, seen, began, is_held, alive_at: since, through, hands_over: None }
    }

    /// Something is sent. `full`: by a full sync; `None`: it is not known by what.
    fn sees(&mut self, full: Option<bool>) {
        self.seen = true;
        self.began |= !self.full || full == Some(true);
    }

    /// What is told of it.
    fn hear(&mut self, event: &Event) {
        match event {
            Event::SyncBegan { full, .. } => self.sees(Some(*full)),
            Event::State { to: State::Syncing, .. } => self.sees(None),
            Event::State { to: State::CatchingUp, .. } => self.seen = true,
            // One that was there before, and made way for this one.
            Event::State { to: State::Logging, .. } if !self.is_ordered => (self.seen, self.began) = (false, false),
            _ => {}
        }
    }

    /// What is found of it.
    fn look(&mut self, now: &SyncLook) {
        let goes = matches!(now.state, State::Syncing | State::CatchingUp | State::Paused(_));
        if goes || now.is_due || now.begins_by_itself {
            self.alive_at = now.at;
        }
        if now.is_full || now.state == State::Syncing {
            self.sees(Some(now.is_full));
        }
        self.seen |= now.state == State::CatchingUp;
    }

    /// The peer has all that was there when the group was first found in step. Writes that came since do not count: they never end.
    fn is_applied(&mut self, now: &SyncLook) -> bool {
        if now.reads_regions {
            self.through = None;
            return false;
        }
        let through = *self.through.get_or_insert(now.last);
        now.queued_bytes == 0 || now.applied.is_some_and(|applied| applied >= through)
    }

    /// Why it is stopped, and whether the same order is of use: not over the head of whoever stopped it; and where a sync would begin by
    /// itself and does not, an operator has to act first.
    fn stopped(&self, now: &SyncLook) -> RefusalView {
        if self.is_held || now.mode == Some(Mode::Logging) || !now.is_primary {
            return DeskRefusal::SyncHeld.into();
        }
        let stopped = RefusalView::from(DeskRefusal::SyncStopped);
        match now.state == State::Logging && now.autosync {
            true => RefusalView { retry: Retry::Never, ..stopped },
            false => stopped,
        }
    }

    /// It was neither due nor seen to go for so long that it is not to come any more.
    fn is_quiet(&self, now: &SyncLook) -> bool {
        now.at.saturating_duration_since(self.alive_at) > START_PATIENCE
    }
}

impl Operations {
    pub fn new(node: &str) -> Rc<Operations> {
        let run = format!("{:012x}", entropy() >> 16);
        Rc::new(Operations { node: node.to_owned(), run, kept: RefCell::default() })
    }

    /// An operation begins; it is under way until what is returned says how it ended, or is dropped.
    /// `course`: of one that goes on behind its answer.
    pub fn begin(
        self: &Rc<Self>,
        verb: &'static str,
        group: Option<&str>,
        course: Option<Course>,
    ) -> OperationUnderWay {
        let mut kept = self.kept.borrow_mut();
        kept.begun += 1;
        let (number, seed) = (kept.begun, course.as_ref().map_or(0, Course::seed));
        if kept.list.len() == KEPT_MAX {
            // One that still runs may be waited for; of those there are no more than requests at once, and what goes on behind its answer.
            let ended = kept.list.iter().position(|operation| operation.state != OperationState::Running);
            kept.list.remove(ended.unwrap_or(0));
        }
        if verb == LOGGING {
            // Its answer comes later than the state that it leads to.
            kept.hold_syncs(group, true);
        }
        kept.list.push_back(Operation {
            number,
            verb,
            group: group.map(|name| cut(name.to_owned())),
            begun_unix_ms: unix_ms(),
            state: OperationState::Running,
            message: None,
            warnings: Vec::new(),
            refusal: None,
            course,
            is_late: false,
        });
        OperationUnderWay { operations: self.clone(), number, seed, has_ended: false }
    }

    /// What is known of an operation.
    ///
    /// # Errors
    /// The answer to whoever asked: it is not known here.
    pub fn view(&self, text: &str) -> Result<OperationView, Reply> {
        let unknown = |why: String| Reply::refused(DeskRefusal::UnknownOperation, why);
        let Some(id) = OperationId::parse(text) else {
            return Err(unknown(format!(
                "{:?} is no operation: their names are as {}",
                cut(text.to_owned()),
                self.name_of(1)
            )));
        };
        if id.node != self.node {
            let why = format!("operation {id} is one of node {:?}, and this is node {}", id.node, self.node);
            return Err(unknown(why));
        }
        if id.run != self.run {
            let why = format!(
                "operation {id} was begun before the daemon of node {} was started anew; what the log of events has of it: farshore events",
                self.node
            );
            return Err(Reply::refused(DeskRefusal::OperationCutOff, why));
        }
        let kept = self.kept.borrow();
        let found = kept.list.iter().find(|operation| operation.number == id.number);
        found.map(|operation| self.shown(operation)).ok_or_else(|| {
            let why = match (1..=kept.begun).contains(&id.number) {
                true => "so many were begun since that it is not kept any more: see farshore events",
                false => "none of this name was begun",
            };
            unknown(format!("operation {id}: {why}"))
        })
    }

    fn name_of(&self, number: u64) -> String {
        OperationId { node: self.node.clone(), run: self.run.clone(), number }.to_string()
    }

    fn shown(&self, operation: &Operation) -> OperationView {
        OperationView {
            schema: OPERATION_SCHEMA.to_owned(),
            node: self.node.clone(),
            id: self.name_of(operation.number),
            verb: operation.verb.to_owned(),
            group: operation.group.clone(),
            begun_unix_ms: operation.begun_unix_ms,
            state: operation.state.clone(),
            message: operation.message.clone(),
            warnings: operation.warnings.clone(),
            refusal: operation.refusal.clone(),
        }
    }

    /// One is awaited whose end only a look may tell.
    pub fn awaits_look(&self) -> bool {
        self.kept.borrow().list.iter().any(|operation| operation.course.is_some() || operation.is_late)
    }

    /// The data thread tells of a group. True: a sync may have come to its end, which a look tells.
    pub fn hear(&self, group: &str, event: &Event, at: Instant) -> bool {
        let mut concerns_any = false;
        for operation in &mut self.kept.borrow_mut().list {
            concerns_any |= operation.hear(group, event, at);
        }
        concerns_any && matches!(event, Event::State { to: State::Replicating, .. })
    }

    /// This node hands over: whether it is the primary tells nothing of its syncs until `has_handed_over` follows.
    pub fn hands_over(&self, group: &str) {
        self.kept.borrow_mut().syncs_of(Some(group)).for_each(|sync| sync.hands_over = Some(HandsOver::UnderWay));
    }

    pub fn has_handed_over(&self, group: &str, is_done: bool) {
        let hands_over = is_done.then_some(HandsOver::Done);
        self.kept.borrow_mut().syncs_of(Some(group)).for_each(|sync| sync.hands_over = hands_over);
    }

    /// A group as it is now.
    pub fn look(&self, now: &SyncLook) {
        for operation in &mut self.kept.borrow_mut().list {
            operation.look(now);
        }
    }

    /// The verifies of a group as they are now.
    pub fn look_at_verify(&self, now: &VerifyLook) {
        self.ends_of(now.group, |course| if let Course::Verify(verify) = course { verify.look(now) } else { None });
    }

    /// The reverse sync of a group as it is now.
    pub fn look_at_reverse(&self, now: &ReverseLook) {
        self.ends_of(now.group, |course| if let Course::Reverse(reverse) = course { reverse.look(now) } else { None });
    }

    fn ends_of(&self, group: &str, mut ends: impl FnMut(&mut Course) -> Option<CourseEnd>) {
        for operation in &mut self.kept.borrow_mut().list {
            let is_of_group = operation.group.as_deref() == Some(group);
            let course = operation.course.as_mut().filter(|_| is_of_group);
            if let Some(CourseEnd { state, message, refusal }) = course.and_then(&mut ends) {
                operation.ends(state, message, refusal);
            }
        }
    }

    /// What goes on in groups that the configuration does not have any more is over.
    pub fn groups_are(&self, is_known: impl Fn(&str) -> bool) {
        for operation in &mut self.kept.borrow_mut().list {
            let group = operation.group.clone().filter(|group| operation.course.is_some() && !is_known(group));
            if let Some(group) = group {
                let text = format!("{group}: the group is not in the configuration of this node any more");
                operation.ends(OperationState::Stopped, text, Some(DeskRefusal::UnknownGroup.into()));
            }
        }
    }

    /// A group that had not come to rest when that was answered has. `failed`: a sentence, where it did not come as is on record.
    pub fn came_back(&self, group: &str, failed: Option<&str>) {
        for operation in &mut self.kept.borrow_mut().list {
            if operation.is_late && operation.group.as_deref() == Some(group) {
                let (state, message, refusal) = match failed {
                    None => {
                        let text = format!("{group}: the group has come to rest and started anew, as is on record");
                        (OperationState::Done, text, None)
                    }
                    Some(why) => (OperationState::Failed, why.to_owned(), Some(RefusalCode::GroupFailed.into())),
                };
                operation.ends(state, message, refusal);
            }
        }
    }

    /// No group is leaving any more: what a change of the configuration waited for is there.
    pub fn all_are_at_rest(&self) {
        for operation in &mut self.kept.borrow_mut().list {
            if operation.is_late && operation.group.is_none() {
                let text = "the group that had to stop has come to rest by now; type 'farshore config apply' again";
                operation.ends(OperationState::Stopped, text.to_owned(), Some(DeskRefusal::ApplyAgain.into()));
            }
        }
    }

    /// The change of role that is under way in the group of the operation `own`, other than that.
    fn changes_role(&self, own: u64) -> Option<String> {
        let kept = self.kept.borrow();
        let group = &kept.list.iter().find(|operation| operation.number == own)?.group;
        let is_it = |operation: &&Operation| {
            let changes_role = matches!(operation.verb, "promote" | "demote" | "switchover");
            let is_another = operation.number != own && operation.group == *group;
            changes_role && is_another && operation.state == OperationState::Running
        };
        kept.list.iter().find(is_it).map(|operation| self.name_of(operation.number))
    }
}

impl KeptOperations {
    fn syncs_of<'a>(&'a mut self, group: Option<&'a str>) -> impl Iterator<Item = &'a mut SyncCourse> {
        let of_group = self.list.iter_mut().filter(move |operation| operation.group.as_deref() == group);
        of_group.filter_map(|operation| operation.course.as_mut()?.as_sync())
    }

    fn hold_syncs(&mut self, group: Option<&str>, is_held: bool) {
        self.syncs_of(group).for_each(|sync| sync.is_held = is_held);
    }

    fn answered(&mut self, number: u64, reply: &Reply) {
        let Some(at) = self.list.iter().position(|operation| operation.number == number) else { return };
        self.list[at].answered(reply);
        let (verb, group) = (self.list[at].verb, self.list[at].group.clone());
        let is_done = matches!(reply, Reply::Ok { .. });
        // After a refusal of the one, and after the other, nobody holds the group.
        if verb == LOGGING && !is_done || verb == "sync" && is_done {
            self.hold_syncs(group.as_deref(), false);
        }
    }
}

impl Operation {
    fn ends(&mut self, state: OperationState, message: String, refusal: Option<RefusalView>) {
        (self.course, self.is_late) = (None, false);
        (self.state, self.message, self.refusal) = (state, Some(cut(message)), refusal);
    }

    fn answered(&mut self, reply: &Reply) {
        match reply {
            Reply::Ok { message, warnings, unchanged, .. } => {
                self.message = Some(cut(message.clone()));
                self.warnings = warnings.iter().take(WARNINGS_MAX).cloned().map(cut).collect();
                match self.course.as_mut().filter(|_| !unchanged) {
                    // A look tells whether it has ended by now.
                    Some(course) => course.is_ordered(),
                    None => {
                        self.course = None;
                        self.state = if *unchanged { OperationState::Unchanged } else { OperationState::Done };
                    }
                }
            }
            Reply::Error { message, code, refusal, .. } => {
                let refusal = refusal.as_deref().cloned().unwrap_or_else(|| RefusalView::of(code));
                let state = refusal.outcome(code);
                let is_late = state == OperationState::Running;
                self.ends(state, message.clone(), Some(refusal).filter(|_| !is_late));
                self.is_late = is_late;
            }
            // Nothing that changes something is answered so.
            _ => self.state = OperationState::Done,
        }
    }

    /// True: it is a sync of that group.
    fn hear(&mut self, group: &str, event: &Event, at: Instant) -> bool {
        let is_of_group = self.group.as_deref() == Some(group);
        let sync = self.course.as_mut().and_then(Course::as_sync).filter(|sync| is_of_group && at >= sync.since);
        let Some(sync) = sync else { return false };
        sync.hear(event);
        true
    }

    fn look(&mut self, now: &SyncLook) {
        let group = now.group;
        let is_of_group = self.group.as_deref() == Some(group);
        let sync = self.course.as_mut().filter(|_| is_of_group).and_then(Course::as_sync);
        let Some(sync) = sync else { return };
        sync.look(now);
        if !sync.is_ordered {
            return;
        }
        // What was ordered while the peer was away begins when it is back, and what a lost link broke off goes on then.
        let is_to_come = now.is_due || now.begins_by_itself;
        let why = if now.why.is_empty() { String::new() } else { format!(": {}", now.why) };
        let stopped = Some(sync.stopped(now));
        match now.state {
            State::Failed(_) => {
                let text = format!("{group}: the sync did not end: the group has failed{why}");
                self.ends(OperationState::Failed, text, Some(RefusalCode::GroupFailed.into()));
            }
            _ if sync.hands_over == Some(HandsOver::UnderWay) && !now.is_primary => {}
            // It hands over without a volume to nobody.
            _ if sync.hands_over == Some(HandsOver::Done) && (!sync.full || sync.began) => self.is_up_to_date(""),
            _ if !now.is_primary => {
                let text = format!("{group}: the sync was stopped: this node is not the primary any more");
                self.ends(OperationState::Stopped, text, stopped);
            }
            // It stands in line, or is about to begin: the state is that of before.
            _ if is_to_come => {}
            State::Replicating if (!sync.full || sync.began) && sync.is_applied(now) => {
                self.is_up_to_date(&now.left_out)
            }
            State::Replicating if sync.full && !sync.began && sync.is_quiet(now) => {
                let text = format!("{group}: the full sync was not seen to begin, and nothing says that it will");
                self.ends(OperationState::Stopped, text, stopped);
            }
            State::Logging if sync.seen || sync.is_quiet(now) => {
                self.ends(OperationState::Stopped, format!("{group}: the sync was stopped{why}"), stopped);
            }
            _ => {}
        }
    }

    /// `left_out`: volumes that the sync was without.
    fn is_up_to_date(&mut self, left_out: &str) {
        let group = self.group.as_deref().unwrap_or_default();
        let text = format!("{group}: the copy is up to date");
        // They were of what stood in its way.
        self.warnings.clear();
        if !left_out.is_empty() {
            self.warnings.push(format!(
                "{group}: the copy is without {left_out}, which the sync left out: 'farshore status {group}' says why"
            ));
        }
        self.ends(OperationState::Done, text, None);
    }
}

/// An operation whose answer is not there yet. When this is dropped without one, nobody knows what came of it.
pub(super) struct OperationUnderWay {
    operations: Rc<Operations>,
    number: u64,
    seed: u64,
    has_ended: bool,
}

impl OperationUnderWay {
    pub fn id(&self) -> String {
        self.operations.name_of(self.number)
    }

    /// By which what begins with it is known; 0: nothing does.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// It is answered. An answer that something else is in the way says what, where that is known.
    pub fn answered(&mut self, reply: &mut Reply) {
        self.say_what_is_in_the_way(reply);
        self.has_ended = true;
        self.operations.kept.borrow_mut().answered(self.number, reply);
    }

    fn say_what_is_in_the_way(&self, reply: &mut Reply) {
        let Reply::Error { message, refusal: Some(refusal), .. } = reply else { return };
        let codes = [RefusalCode::RoleChanging.word(), DeskRefusal::PromotionUnderWay.word()];
        if !codes.contains(&refusal.code.as_str()) {
            return;
        }
        let Some(id) = self.operations.changes_role(self.number) else { return };
        *message += &format!(" ('farshore wait {id}' waits for its end)");
        refusal.operation = Some(id);
    }
}

impl Drop for OperationUnderWay {
    fn drop(&mut self) {
        if !self.has_ended {
            let text = "the daemon broke down over it; what it said is in its log";
            self.operations.kept.borrow_mut().answered(self.number, &Reply::failed(DeskRefusal::BrokeDown, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ErrorCode;

    fn state_of(operations: &Operations, id: &str) -> OperationState {
        operations.view(id).unwrap_or_else(|reply| panic!("{id}: {reply:?}")).state
    }

    #[track_caller]
    fn refusal_of(reply: &Reply) -> &str {
        match reply {
            Reply::Error { refusal: Some(refusal), .. } => &refusal.code,
            other => panic!("{other:?}"),
        }
    }

    fn sync(operations: &Rc<Operations>, full: bool) -> String {
        let mut begun = operations.begin("sync", Some("db"), Some(Course::sync(full)));
        begun.answered(&mut Reply::ok("db: sync began"));
        begun.id()
    }

    #[test]
    fn an_operation_ends_with_its_answer() {
        let operations = Operations::new("alpha");
        for (mut reply, state, code) in [
            (Reply::ok("db: demoted"), OperationState::Done, None),
            (Reply::unchanged("db: already secondary; nothing to do"), OperationState::Unchanged, None),
            (Reply::refused(RefusalCode::PeerAway, "db: no"), OperationState::Refused, Some("peer-away")),
            (Reply::error(ErrorCode::UnknownGroup, "no"), OperationState::Refused, Some("unknown-group")),
            (Reply::error(ErrorCode::Failed, "no"), OperationState::Failed, Some("failed")),
            // The data thread ended over it: nobody knows what came of it.
            (Reply::failed(DeskRefusal::DaemonStopping, "gone"), OperationState::Unknown, Some("daemon-stopping")),
        ] {
            let mut begun = operations.begin("demote", Some("db"), None);
            let id = begun.id();
            assert_eq!(state_of(&operations, &id), OperationState::Running);
            begun.answered(&mut reply);
            drop(begun);
            let view = operations.view(&id).expect("it is kept");
            assert_eq!((view.state, view.refusal.map(|refusal| refusal.code)), (state, code.map(str::to_owned)));
        }
        let broken = operations.begin("demote", Some("db"), None);
        let id = broken.id();
        drop(broken);
        assert_eq!(state_of(&operations, &id), OperationState::Unknown);
    }

    #[test]
    fn a_name_is_that_of_one_run_of_one_node() {
        let (operations, earlier) = (Operations::new("alpha"), Operations::new("alpha"));
        let (now, then) = (sync(&operations, false), sync(&earlier, false));
        assert_ne!(now, then);
        assert!(operations.view(&now).is_ok());
        let code = |id: &str| operations.view(id).map_err(|reply| refusal_of(&reply).to_owned());
        assert_eq!(code(&then).err().as_deref(), Some("operation-cut-off"));
        let numbered = |number| OperationId { number, ..OperationId::parse(&now).expect("a name") }.to_string();
        for unknown in ["db".to_owned(), "beta-0f-1".to_owned(), numbered(2), numbered(0)] {
            assert_eq!(code(&unknown).err().as_deref(), Some("unknown-operation"), "{unknown}");
        }
    }

    #[test]
    fn so_many_are_kept_and_those_that_run_are_not_given_up() {
        let operations = Operations::new("alpha");
        let runs = operations.begin("promote", Some("db"), None);
        let first = sync(&operations, false);
        for _ in 0..KEPT_MAX {
            operations.begin("set", Some("db"), None).answered(&mut Reply::ok("db: mode = sync"));
        }
        assert_eq!(operations.kept.borrow().list.len(), KEPT_MAX);
        for id in [runs.id(), first] {
            assert_eq!(state_of(&operations, &id), OperationState::Running);
        }
        let oldest = operations.name_of(3);
        let reply = operations.view(&oldest).expect_err("it went");
        assert!(format!("{reply:?}").contains("not kept any more"), "{reply:?}");
    }

    fn now(state: State, is_due: bool) -> SyncLook<'static> {
        SyncLook {
            at: Instant::now(),
            group: "db",
            is_primary: true,
            state,
            mode: Some(Mode::Async),
            autosync: false,
            is_due,
            begins_by_itself: false,
            is_full: false,
            reads_regions: false,
            queued_bytes: 0,
            last: Seq(7),
            applied: None,
            why: "beta is away".to_owned(),
            left_out: String::new(),
        }
    }

    fn reaches(to: State) -> Event {
        Event::State { from: State::Logging, to, why: String::new() }
    }

    #[test]
    fn a_sync_ends_when_the_copy_is_up_to_date() {
        let operations = Operations::new("alpha");
        let before = Instant::now();
        let id = sync(&operations, false);
        // What was before the order counts for nothing, nor does another group.
        operations.hear("db", &reaches(State::Replicating), before);
        operations.hear("web", &reaches(State::Replicating), Instant::now());
        operations.look(&now(State::Logging, false));
        assert_eq!(state_of(&operations, &id), OperationState::Running);
        assert!(!operations.hear("db", &reaches(State::Syncing), Instant::now()), "nothing ends by that");
        assert!(operations.hear("db", &reaches(State::Replicating), Instant::now()), "it is worth a look");
        operations.look(&now(State::Replicating, false));
        // Whatever comes after that.
        operations.look(&now(State::Logging, false));
        let view = operations.view(&id).expect("kept");
        assert_eq!((view.state, view.message.as_deref()), (OperationState::Done, Some("db: the copy is up to date")));
        assert!(!operations.awaits_look());
    }

    /// A group in step stands in line for its full sync: that it replicates is not what was ordered.
    #[test]
    fn a_full_sync_ends_with_the_one_that_was_ordered() {
        let operations = Operations::new("alpha");
        let id = sync(&operations, true);
        operations.hear("db", &reaches(State::Replicating), Instant::now());
        operations.look(&now(State::Replicating, true));
        assert_eq!(state_of(&operations, &id), OperationState::Running);
        operations.hear("db", &began(true), Instant::now());
        operations.look(&now(State::Replicating, false));
        assert_eq!(state_of(&operations, &id), OperationState::Done);
    }

    /// A region that could not be written here was not at the peer, and the state alone ended the sync as done.
    #[test]
    fn that_the_group_replicates_is_not_the_end_of_a_sync() {
        let operations = Operations::new("alpha");
        let id = sync(&operations, true);
        operations.hear("db", &began(true), Instant::now());
        operations.hear("db", &reaches(State::Replicating), Instant::now());
        operations.look(&SyncLook { reads_regions: true, ..now(State::Replicating, false) });
        assert_eq!(state_of(&operations, &id), OperationState::Running);
        operations.look(&now(State::Replicating, false));
        assert_eq!(state_of(&operations, &id), OperationState::Done);
    }

    fn began(full: bool) -> Event {
        Event::SyncBegan { full, compare: false, dirty_bytes: 7 }
    }

    /// The look that found the group in step after an update sync was taken for the end of the full one.
    #[test]
    fn a_full_sync_that_never_began_does_not_end_as_done() {
        let operations = Operations::new("alpha");
        let id = sync(&operations, true);
        operations.look(&now(State::Logging, false));
        operations.hear("db", &began(false), Instant::now());
        operations.look(&now(State::Syncing, false));
        operations.hear("db", &reaches(State::Replicating), Instant::now());
        let in_step = now(State::Replicating, false);
        operations.look(&in_step);
        assert_eq!(state_of(&operations, &id), OperationState::Running);
        let later = Instant::now() + START_PATIENCE + START_PATIENCE;
        operations.look(&SyncLook { at: later, ..in_step });
        assert_eq!(state_of(&operations, &id), OperationState::Stopped);
        // One that goes already is joined.
        let joined = sync(&operations, true);
        operations.look(&SyncLook { is_full: true, ..now(State::Syncing, false) });
        operations.look(&now(State::Replicating, false));
        assert_eq!(state_of(&operations, &joined), OperationState::Done);
    }

    /// Its record took longer than the sync.
    #[test]
    fn a_sync_may_begin_and_end_before_its_order_is_answered() {
        let operations = Operations::new("alpha");
        for (full, state) in [(true, OperationState::Done), (false, OperationState::Running)] {
            let mut begun = operations.begin("sync", Some("db"), Some(Course::sync(true)));
            operations.hear("db", &began(true), Instant::now());
            operations.hear("db", &reaches(State::Logging), Instant::now());
            operations.hear("db", &began(full), Instant::now());
            operations.hear("db", &reaches(State::Replicating), Instant::now());
            operations.look(&now(State::Replicating, false));
            assert_eq!(state_of(&operations, &begun.id()), OperationState::Running, "it has no answer");
            begun.answered(&mut Reply::ok("db: sync began"));
            operations.look(&now(State::Replicating, false));
            assert_eq!(state_of(&operations, &begun.id()), state);
        }
    }

    /// The group replicates, and the peer lacks what was queued while it was away, or what could not be written here.
    #[test]
    fn a_copy_is_up_to_date_when_the_peer_has_what_was_there_at_the_order() {
        let operations = Operations::new("alpha");
        let id = sync(&operations, false);
        operations.hear("db", &reaches(State::CatchingUp), Instant::now());
        operations.hear("db", &reaches(State::Replicating), Instant::now());
        let behind = || SyncLook { queued_bytes: 5, applied: Some(Seq(3)), ..now(State::Replicating, false) };
        for not_yet in [SyncLook { reads_regions: true, ..now(State::Replicating, false) }, behind()] {
            operations.look(&not_yet);
            assert_eq!(state_of(&operations, &id), OperationState::Running);
        }
        // Writes go on.
        operations.look(&SyncLook { last: Seq(90), applied: Some(Seq(7)), ..behind() });
        assert_eq!(state_of(&operations, &id), OperationState::Done);
    }

    /// The node that serves in a reverse sync hands over right behind the sync's end, and the sync was told as stopped.
    #[test]
    fn a_sync_before_a_handover_was_not_stopped() {
        let demoted = || SyncLook { is_primary: false, ..now(State::Logging, false) };
        for (full, is_done, ended) in [
            (false, true, OperationState::Done),
            (true, true, OperationState::Done),
            (false, false, OperationState::Stopped),
        ] {
            let operations = Operations::new("alpha");
            let id = sync(&operations, full);
            operations.hear("db", &began(full), Instant::now());
            operations.hands_over("db");
            operations.look(&demoted());
            assert_eq!(state_of(&operations, &id), OperationState::Running, "it is not known yet");
            operations.has_handed_over("db", is_done);
            operations.look(&demoted());
            assert_eq!(state_of(&operations, &id), ended);
        }
        // It was to begin, and a handover leaves it out; one of another group; and one that was refused.
        let operations = Operations::new("alpha");
        let id = sync(&operations, true);
        operations.hands_over("web");
        operations.has_handed_over("web", true);
        operations.hands_over("db");
        operations.has_handed_over("db", false);
        operations.look(&now(State::Syncing, false));
        assert_eq!(state_of(&operations, &id), OperationState::Running);
        let waits = sync(&operations, true);
        operations.has_handed_over("db", true);
        operations.look(&demoted());
        assert_eq!(state_of(&operations, &waits), OperationState::Stopped);
    }

    /// It was told that the sync begins by itself, and ended as stopped ten seconds later.
    #[test]
    fn a_sync_that_waits_for_the_peer_is_not_stopped() {
        let operations = Operations::new("alpha");
        let id = sync(&operations, false);
        let at = Instant::now() + START_PATIENCE + START_PATIENCE;
        let waits = SyncLook { at, begins_by_itself: true, ..now(State::Logging, false) };
        operations.look(&waits);
        assert_eq!(state_of(&operations, &id), OperationState::Running);
        let at = at + START_PATIENCE + START_PATIENCE;
        operations.look(&SyncLook { at, begins_by_itself: false, ..waits });
        assert_eq!(state_of(&operations, &id), OperationState::Stopped, "autosync went off");
    }

    /// The link was lost for a moment, and the operation was `stopped`, while the sync went on by itself.
    #[test]
    fn a_sync_that_a_lost_link_breaks_off_goes_on() {
        let operations = Operations::new("alpha");
        let id = sync(&operations, false);
        operations.look(&now(State::Syncing, false));
        operations.hear("db", &reaches(State::Logging), Instant::now());
        operations.look(&SyncLook { begins_by_itself: true, autosync: true, ..now(State::Logging, false) });
        assert_eq!(state_of(&operations, &id), OperationState::Running);
        operations.look(&now(State::Syncing, false));
        operations.look(&now(State::Replicating, false));
        assert_eq!(state_of(&operations, &id), OperationState::Done);
    }

    /// It went on for ever.
    #[test]
    fn a_sync_ends_when_its_group_leaves_the_configuration() {
        let operations = Operations::new("alpha");
        let id = sync(&operations, false);
        operations.groups_are(|group| group == "db");
        assert_eq!(state_of(&operations, &id), OperationState::Running);
        operations.groups_are(|group| group == "web");
        let ended = operations.view(&id).expect("kept");
        let code = ended.refusal.expect("why").code;
        assert_eq!((ended.state, code.as_str()), (OperationState::Stopped, "unknown-group"));
    }

    /// Each of them might be tried again at once, over the head of whoever had stopped it.
    #[test]
    fn a_sync_that_somebody_stopped_is_not_to_be_repeated() {
        let ends = |between: &dyn Fn(&Rc<Operations>), look: SyncLook| {
            let operations = Operations::new("alpha");
            let id = sync(&operations, false);
            operations.look(&now(State::Syncing, false));
            between(&operations);
            operations.look(&look);
            let refusal = operations.view(&id).expect("kept").refusal.expect("why");
            (refusal.code, refusal.retry)
        };
        let typed = |verb: &'static str, reply: fn() -> Reply| {
            move |operations: &Rc<Operations>| operations.begin(verb, Some("db"), None).answered(&mut reply())
        };
        let (nothing, apart) = (|_: &Rc<Operations>| {}, || now(State::Logging, false));
        let logging = typed("logging", || Reply::ok("db: logging"));
        let refused = typed("logging", || Reply::refused(RefusalCode::GroupStopping, "db: no"));
        let again = |operations: &Rc<Operations>| {
            logging(operations);
            sync(operations, false);
        };
        let held = ("sync-held".to_owned(), Retry::Never);
        let stopped = |retry| ("sync-stopped".to_owned(), retry);
        assert_eq!(ends(&logging, apart()), held);
        assert_eq!(ends(&nothing, SyncLook { mode: Some(Mode::Logging), ..apart() }), held);
        assert_eq!(ends(&nothing, SyncLook { is_primary: false, ..apart() }), held);
        assert_eq!(ends(&refused, apart()), stopped(Retry::Later));
        assert_eq!(ends(&again, apart()), stopped(Retry::Later));
        // It would begin by itself if nobody had to act.
        assert_eq!(ends(&nothing, SyncLook { autosync: true, ..apart() }), stopped(Retry::Never));
        // The answer to `logging` comes later than the state that it leads to.
        let operations = Operations::new("alpha");
        let id = sync(&operations, false);
        operations.look(&now(State::Syncing, false));
        let _under_way = operations.begin("logging", Some("db"), None);
        operations.look(&apart());
        assert_eq!(operations.view(&id).expect("kept").refusal.expect("why").code, "sync-held");
    }

    #[test]
    fn a_sync_that_is_stopped_says_why() {
        let operations = Operations::new("alpha");
        let ends = |look: SyncLook| {
            let id = sync(&operations, false);
            operations.look(&now(State::Syncing, false));
            operations.look(&now(State::Logging, true));
            assert_eq!(state_of(&operations, &id), OperationState::Running, "it is to go on");
            operations.look(&look);
            let view = operations.view(&id).expect("kept");
            (view.state, view.refusal.expect("why").code, view.message.expect("a sentence"))
        };
        let (state, code, said) = ends(now(State::Logging, false));
        assert_eq!((state, code.as_str()), (OperationState::Stopped, "sync-stopped"));
        assert_eq!(said, "db: the sync was stopped: beta is away");
        let demoted = SyncLook { is_primary: false, ..now(State::Logging, false) };
        assert_eq!(ends(demoted).0, OperationState::Stopped);
        let failed = ends(now(State::Failed(engine::state::Broken::Superblock), false));
        assert_eq!((failed.0, failed.1.as_str()), (OperationState::Failed, "group-failed"));
    }

    /// They went on for ever, and whoever waited for them waited until the daemon was started anew.
    #[test]
    fn what_is_not_done_yet_ends_when_the_group_has_come_to_rest() {
        let operations = Operations::new("alpha");
        let late = |verb: &'static str, group: Option<&str>| {
            let mut begun = operations.begin(verb, group, None);
            begun.answered(&mut Reply::failed(DeskRefusal::NotDoneYet, "it has not come to rest"));
            begun.id()
        };
        let (db, web, apply) =
            (late("group detach", Some("db")), late("group detach", Some("web")), late("config apply", None));
        let view = |id: &str| operations.view(id).expect("kept");
        for id in [&db, &web, &apply] {
            assert_eq!((view(id).state, view(id).refusal), (OperationState::Running, None));
        }
        operations.came_back("db", None);
        assert_eq!(view(&db).state, OperationState::Done);
        assert_eq!((view(&web).state, view(&apply).state), (OperationState::Running, OperationState::Running));
        operations.came_back("web", Some("its device does not exist"));
        assert_eq!(view(&web).refusal.expect("why").code, "group-failed");
        operations.all_are_at_rest();
        let ended = view(&apply);
        assert_eq!((ended.state, ended.refusal.expect("why").code.as_str()), (OperationState::Stopped, "apply-again"));
        assert!(!operations.awaits_look());
    }

    #[test]
    fn a_refusal_names_the_change_of_role_that_is_in_the_way() {
        let operations = Operations::new("alpha");
        let first = operations.begin("promote", Some("db"), None);
        let _another = operations.begin("promote", Some("web"), None);
        let mut again = operations.begin("promote", Some("db"), None);
        let mut reply = Reply::refused(DeskRefusal::PromotionUnderWay, "db: a promotion is under way already");
        again.answered(&mut reply);
        let Reply::Error { message, refusal: Some(refusal), .. } = reply else { panic!("{reply:?}") };
        assert_eq!(refusal.operation, Some(first.id()));
        assert!(message.contains(&format!("'farshore wait {}'", first.id())), "{message}");
        let mut other = Reply::refused(RefusalCode::PeerAway, "db: no");
        operations.begin("promote", Some("db"), None).answered(&mut other);
        assert!(matches!(&other, Reply::Error { refusal: Some(other), .. } if other.operation.is_none()), "{other:?}");
    }
}
