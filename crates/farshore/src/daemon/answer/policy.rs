//! Forks that `after_forced_failover` resolves: each node's daemon orders at its own half what the two operators of a `resolve` would.
//!
//! * Nobody is cut off: with clients attached to the node that is to yield, its half is refused, and tried again later.
//! * Its hooks run, and room for what is saved is looked for before, as for a `resolve` that was typed.
//! * What was refused is not tried again at once, so that an operator can decide meanwhile.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::status::PolicyStep;
use tokio::task::spawn_local;

use super::Desk;
use crate::api::server::Asker;
use crate::api::{ApiRequest, Reply};

/// The node that is kept waits for the other one: a second try follows soon, and each further one so late that an operator can decide meanwhile.
const KEEP_PAUSES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(300)];
/// The other one looks whether its clients have gone, as long as it is waited for.
const YIELD_PAUSE: Duration = Duration::from_secs(10);

/// Groups in which this node has something to do.
#[derive(Default)]
pub(super) struct SeenGroups {
    /// Their peer handed over to it.
    pub granted: Vec<String>,
    pub by_policy: Vec<(String, PolicyStep)>,
}

/// What was tried for each group, how often in a row, and until when nothing is.
#[derive(Default)]
pub(super) struct PolicyTries(RefCell<BTreeMap<String, PolicyTry>>);

struct PolicyTry {
    step: PolicyStep,
    count: usize,
    /// `None`: it is under way.
    next: Option<Instant>,
}

impl PolicyTries {
    /// True: it is to be tried now.
    fn begins(&self, group: &str, step: PolicyStep, now: Instant) -> bool {
        let mut tries = self.0.borrow_mut();
        let count = match tries.get(group) {
            Some(PolicyTry { next: None, .. }) => return false,
            Some(before) if before.step == step => {
                if before.next.is_some_and(|next| next > now) {
                    return false;
                }
                before.count + 1
            }
            _ => 1,
        };
        tries.insert(group.to_owned(), PolicyTry { step, count, next: None });
        true
    }

    fn ended(&self, group: &str, now: Instant) {
        if let Some(tried) = self.0.borrow_mut().get_mut(group) {
            let pause = match tried.step {
                PolicyStep::Keep { .. } => KEEP_PAUSES[tried.count.min(KEEP_PAUSES.len()) - 1],
                PolicyStep::Yield { .. } => YIELD_PAUSE,
            };
            tried.next = Some(now + pause);
        }
    }
}

/// The policy has this node do something for a fork of the group.
pub(super) fn follow(desk: &Rc<Desk>, group: &str, step: PolicyStep) {
    if !desk.policy_tries.begins(group, step, Instant::now()) {
        return;
    }
    let (desk, group) = (desk.clone(), group.to_owned());
    spawn_local(async move {
        let request = match step {
            PolicyStep::Keep { over } => {
                ApiRequest::Keep { group: group.clone(), over, discard: false, by_policy: true }
            }
            PolicyStep::Yield { to } => {
                let (discard, close_clients) = (false, false);
                ApiRequest::Yield { group: group.clone(), to, discard, close_clients, by_policy: true }
            }
        };
        let reply = desk.answer(request, Asker::default()).await;
        desk.policy_tries.ended(&group, Instant::now());
        if let Reply::Error { message, .. } = reply {
            tracing::warn!(
                "{group}: the fork is not resolved by 'after_forced_failover', and may be by 'resolve': {message}"
            );
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_tried_again_soon_and_then_late() {
        let (tries, start) = (PolicyTries::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let keep = PolicyStep::Keep { over: 7 };
        assert!(tries.begins("db", keep, at(0)));
        assert!(!tries.begins("db", keep, at(1)), "it is under way");
        tries.ended("db", at(1));
        assert!(!tries.begins("db", keep, at(2)));
        assert!(tries.begins("db", keep, at(3)));
        tries.ended("db", at(63));
        assert!(!tries.begins("db", keep, at(362)), "an operator has five minutes");
        assert!(tries.begins("web", keep, at(362)));
        assert!(tries.begins("db", keep, at(363)));
        tries.ended("db", at(363));
        assert!(tries.begins("db", PolicyStep::Keep { over: 8 }, at(364)), "another fork");
    }
}
