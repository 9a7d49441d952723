//! Verifies and reverse syncs whose end is awaited: their order is answered when they begin.
//!
//! A look counts only if it was begun after the answer: one that was under way then may not know of what was ordered.

use std::time::Instant;

use engine::RefusalCode;
use host::driver::entropy;

use super::SyncCourse;
use crate::api::refusals::DeskRefusal;
use crate::api::{OperationState, RefusalView, VerifiedView};
use crate::show;

/// What ends an operation later than its answer.
pub(in crate::daemon) enum Course {
    Sync(SyncCourse),
    Verify(VerifyCourse),
    Reverse(ReverseCourse),
}

/// How an operation ended.
pub(super) struct CourseEnd {
    pub state: OperationState,
    pub message: String,
    pub refusal: Option<RefusalView>,
}

/// A verify that was ordered.
pub(in crate::daemon) struct VerifyCourse {
    /// What the run has that began with this order.
    seed: u64,
    ordered: Option<Instant>,
    /// The seed of the run that is awaited: its own, or that of one under way which it joined.
    run: Option<u64>,
}

/// What a look at a group tells of its verifies. Runs are known by their seeds.
pub(in crate::daemon) struct VerifyLook<'a> {
    pub at: Instant,
    pub group: &'a str,
    /// Why the group has failed, if it has.
    pub failed: Option<&'a str>,
    /// The one under way.
    pub runs: Option<u64>,
    /// The last one that is over.
    pub ended: Option<(u64, VerifiedView)>,
    /// What a whole one compares.
    pub comparable_bytes: u64,
}

/// A reverse sync that was ordered.
#[derive(Default)]
pub(in crate::daemon) struct ReverseCourse {
    ordered: Option<Instant>,
    /// Its number, once it was seen.
    number: Option<u64>,
}

/// What a look at a group tells of its reverse sync.
pub(in crate::daemon) struct ReverseLook<'a> {
    pub at: Instant,
    pub group: &'a str,
    pub peer: &'a str,
    /// The number of the one whose clients are at home here.
    pub home: Option<u64>,
    /// The number of the last one, if a forced promotion of this node has ended it.
    pub forced: Option<u64>,
    /// Why the group has failed, if it has.
    pub failed: Option<&'a str>,
    pub is_primary: bool,
}

impl Course {
    pub fn sync(full: bool) -> Course {
        Course::Sync(SyncCourse::new(full))
    }

    pub fn verify() -> Course {
        Course::Verify(VerifyCourse { seed: entropy(), ordered: None, run: None })
    }

    pub fn reverse() -> Course {
        Course::Reverse(ReverseCourse::default())
    }

    /// By which the run is known that begins with the order; 0: there is none.
    pub fn seed(&self) -> u64 {
        if let Course::Verify(verify) = self { verify.seed } else { 0 }
    }

    /// The order was answered: from here on it may end.
    pub(super) fn is_ordered(&mut self) {
        match self {
            Course::Sync(sync) => sync.is_ordered = true,
            Course::Verify(verify) => verify.ordered = Some(Instant::now()),
            Course::Reverse(reverse) => reverse.ordered = Some(Instant::now()),
        }
    }

    pub(super) fn as_sync(&mut self) -> Option<&mut SyncCourse> {
        if let Course::Sync(sync) = self { Some(sync) } else { None }
    }
}

/// It was answered before the look was begun.
fn counts(ordered: Option<Instant>, at: Instant) -> bool {
    ordered.is_some_and(|ordered| at >= ordered)
}

impl VerifyCourse {
    pub(super) fn look(&mut self, now: &VerifyLook) -> Option<CourseEnd> {
        if !counts(self.ordered, now.at) {
            return None;
        }
        let (seed, group) = (self.seed, now.group);
        let last = now.ended.as_ref().map(|(seed, _)| *seed);
        let is_known = [now.runs, last].contains(&Some(seed));
        let joined = || if is_known { seed } else { now.runs.or(last).unwrap_or(seed) };
        let run = *self.run.get_or_insert_with(joined);
        if let Some(why) = now.failed {
            let message = format!("{group}: the verify did not end: the group has failed: {why}");
            return Some(CourseEnd {
                state: OperationState::Failed,
                message,
                refusal: Some(RefusalCode::GroupFailed.into()),
            });
        }
        if now.runs == Some(run) {
            return None;
        }
        Some(match now.ended.as_ref().filter(|(ended, _)| *ended == run) {
            Some((_, verified)) => verified_end(group, verified, now.comparable_bytes),
            None => CourseEnd {
                state: OperationState::Stopped,
                message: format!(
                    "{group}: the verify is no more: the group was started anew, or another one has ended since"
                ),
                refusal: Some(DeskRefusal::VerifyStopped.into()),
            },
        })
    }
}

fn verified_end(group: &str, verified: &VerifiedView, comparable_bytes: u64) -> CourseEnd {
    let message = format!("{group}: verify {}", show::verify::ended(comparable_bytes, verified));
    let (state, refusal) = verified.outcome();
    CourseEnd { state, message, refusal }
}

impl ReverseCourse {
    pub(super) fn look(&mut self, now: &ReverseLook) -> Option<CourseEnd> {
        if !counts(self.ordered, now.at) {
            return None;
        }
        let is_it = now.home.is_some_and(|home| *self.number.get_or_insert(home) == home);
        let ReverseLook { group, peer, failed, .. } = now;
        if is_it {
            return failed.map(|why| CourseEnd {
                state: OperationState::Failed,
                message: format!(
                    "{group}: the reverse sync waits: the group has failed here: {why}. After 'farshore reset {group}' it goes on"
                ),
                refusal: Some(RefusalCode::GroupFailed.into()),
            });
        }
        // It came and went between two looks: then it was the last one.
        let is_forced = now.forced.is_some_and(|forced| self.number.is_none_or(|number| number == forced));
        Some(match now.is_primary {
            true if is_forced => CourseEnd {
                state: OperationState::Stopped,
                message: format!(
                    "{group}: the reverse sync was ended by 'promote --force' here: what node {peer} has written since does not count"
                ),
                refusal: Some(DeskRefusal::ReverseOver.into()),
            },
            true => CourseEnd {
                state: OperationState::Done,
                message: format!("{group}: the reverse sync is over: this node is the primary again"),
                refusal: None,
            },
            false => CourseEnd {
                state: OperationState::Stopped,
                message: format!("{group}: the reverse sync was stopped: node {peer} stays the primary"),
                refusal: Some(DeskRefusal::ReverseOver.into()),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn verify(seed: u64) -> VerifyCourse {
        VerifyCourse { seed, ordered: Some(Instant::now()), run: None }
    }

    fn look(runs: Option<u64>, ended: Option<u64>) -> VerifyLook<'static> {
        let ended = ended.map(|seed| (seed, VerifiedView::default()));
        VerifyLook { at: Instant::now(), group: "db", failed: None, runs, ended, comparable_bytes: 4096 }
    }

    fn state(end: Option<CourseEnd>) -> Option<OperationState> {
        end.map(|end| end.state)
    }

    /// The one before it, or after it, is another one: its end is not this one's.
    #[test]
    fn a_verify_ends_with_its_own_run() {
        let mut course = verify(7);
        assert_eq!(state(course.look(&look(Some(7), Some(3)))), None);
        assert_eq!(state(course.look(&look(Some(9), Some(7)))), Some(OperationState::Done));
        // It came and went between two looks.
        assert_eq!(state(verify(7).look(&look(None, Some(7)))), Some(OperationState::Done));
        // Nobody kept how it ended.
        let mut gone = verify(7);
        assert_eq!(state(gone.look(&look(Some(7), None))), None);
        assert_eq!(state(gone.look(&look(Some(9), Some(8)))), Some(OperationState::Stopped));
        assert_eq!(state(verify(7).look(&look(None, None))), Some(OperationState::Stopped));
    }

    /// Another rate for the run under way: that run is awaited.
    #[test]
    fn a_verify_that_joins_one_under_way_ends_with_that() {
        let mut course = verify(7);
        assert_eq!(state(course.look(&look(Some(5), Some(3)))), None);
        assert_eq!(state(course.look(&look(None, Some(5)))), Some(OperationState::Done));
    }

    #[test]
    fn what_was_found_is_how_a_verify_ends() {
        let ends = |verified: VerifiedView| {
            let end = verify(7).look(&VerifyLook { ended: Some((7, verified)), ..look(None, None) }).expect("ended");
            (end.state, end.refusal.map(|refusal| refusal.code))
        };
        let code = |word: &str| Some(word.to_owned());
        let differs = VerifiedView { differing_bytes: 4096, ..VerifiedView::default() };
        assert_eq!(ends(differs.clone()), (OperationState::Done, code("copy-differs")));
        assert_eq!(ends(VerifiedView { repaired_bytes: 4096, ..differs }), (OperationState::Done, None));
        let unread = VerifiedView { unread_bytes: 1, ..VerifiedView::default() };
        assert_eq!(ends(unread), (OperationState::Done, code("copy-differs")));
        let stopped = VerifiedView { given_up: Some("stopped".into()), ..VerifiedView::default() };
        assert_eq!(ends(stopped), (OperationState::Stopped, code("verify-stopped")));
        let failed = verify(7).look(&VerifyLook { failed: Some("a disk"), ..look(Some(7), None) });
        assert_eq!(state(failed), Some(OperationState::Failed));
    }

    /// A look that was under way when the order was answered does not know of it.
    #[test]
    fn a_look_from_before_the_answer_ends_nothing() {
        let before = Instant::now();
        let mut course = VerifyCourse { ordered: Some(before + Duration::from_millis(1)), ..verify(7) };
        assert_eq!(state(course.look(&VerifyLook { at: before, ..look(None, None) })), None);
        let mut unanswered = VerifyCourse { ordered: None, ..verify(7) };
        assert_eq!(state(unanswered.look(&look(None, Some(7)))), None);
        let mut reverse = ReverseCourse { ordered: Some(before + Duration::from_millis(1)), number: None };
        assert_eq!(state(reverse.look(&reversed(None, true, before))), None);
    }

    fn reversed(home: Option<u64>, is_primary: bool, at: Instant) -> ReverseLook<'static> {
        ReverseLook { at, group: "db", peer: "beta", home, forced: None, failed: None, is_primary }
    }

    #[test]
    fn a_reverse_sync_ends_where_its_clients_are_served_from_then_on() {
        let ordered = || ReverseCourse { ordered: Some(Instant::now()), number: None };
        for (is_primary, ended) in [(true, OperationState::Done), (false, OperationState::Stopped)] {
            let mut course = ordered();
            let at = |home, is_primary| reversed(home, is_primary, Instant::now());
            assert_eq!(state(course.look(&at(Some(4), false))), None);
            // It was stopped, and another one was ordered before anybody looked.
            assert_eq!(state(course.look(&at(Some(5), false))), Some(OperationState::Stopped));
            assert_eq!(state(ordered().look(&at(None, is_primary))), Some(ended));
        }
    }

    /// `wait` told of a node that it was primary again as had been ordered, and it was by force, over what had been written elsewhere.
    #[test]
    fn a_forced_promotion_is_no_end_that_was_ordered() {
        let look = |home, forced| ReverseLook { forced, ..reversed(home, home.is_none(), Instant::now()) };
        let course = |number| ReverseCourse { ordered: Some(Instant::now()), number };
        for (number, forced, ended) in [
            (Some(4), Some(4), OperationState::Stopped),
            (None, Some(4), OperationState::Stopped),
            (Some(4), Some(3), OperationState::Done),
            (Some(4), None, OperationState::Done),
        ] {
            assert_eq!(state(course(number).look(&look(None, forced))), Some(ended), "{number:?} {forced:?}");
        }
    }

    /// Nothing goes on before a reset, and nobody was told.
    #[test]
    fn a_group_that_fails_at_home_ends_the_wait() {
        let mut course = ReverseCourse { ordered: Some(Instant::now()), number: None };
        let end = course.look(&ReverseLook { failed: Some("a disk"), ..reversed(Some(4), false, Instant::now()) });
        let end = end.expect("it is told");
        assert_eq!(
            (end.state, end.refusal.map(|why| why.code)),
            (OperationState::Failed, Some("group-failed".to_owned()))
        );
        assert!(end.message.contains("farshore reset db"), "{}", end.message);
    }
}
