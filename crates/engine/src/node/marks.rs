//! One moment of several groups gets a name. All of it happens within one input: between two of the marks no group gives a number.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::group::marks;
use crate::ids::{CommandId, GroupId};
use crate::injected_fault::{Fault, injected};
use crate::node::Node;
use crate::shared::coverage::CoveragePoint;
use crate::{Command, CommandResult, Output, Refusal, RefusalCode};

/// A mark of a moment that a fault on purpose tears.
pub(super) type TornMark = (GroupId, CommandId, String, u64);

impl Node {
    /// All of the groups have the mark, or none gets it.
    pub(super) fn mark(&mut self, groups: Vec<(GroupId, CommandId)>, name: &str) {
        if let Some((at, refusal)) = self.mark_refused(&groups, name) {
            // The others are refused for its sake.
            let text = |this: usize| if this == at { refusal.text.clone() } else { String::new() };
            let refused = |this| CommandResult::Refused(Refusal::new(refusal.code, text(this)));
            let refuse = |(this, (_, id))| Output::CommandDone { id, result: refused(this) };
            return self.outputs.extend(groups.into_iter().enumerate().map(refuse));
        }
        let moment = if groups.len() > 1 { self.now.wall.0.max(1) } else { 0 };
        if moment > 0 {
            self.coverage.hit(CoveragePoint::MarkMoment);
        }
        for (at, (group, id)) in groups.into_iter().enumerate() {
            if at > 0 && injected(Fault::MomentTorn) {
                self.torn.push((group, id, name.into(), moment));
                continue;
            }
            self.set_mark(group, id, name.into(), moment);
        }
    }

    fn set_mark(&mut self, group: GroupId, id: CommandId, name: String, moment: u64) {
        self.in_group(group, |g, cx| g.command(cx, id, Command::Mark { name, moment }));
    }

    /// Only with a fault on purpose anything is left for here.
    pub(super) fn set_torn_marks(&mut self, torn: Vec<TornMark>) {
        for (group, id, name, moment) in torn {
            self.set_mark(group, id, name, moment);
        }
    }

    /// Which of them refuses, and why.
    fn mark_refused(&self, groups: &[(GroupId, CommandId)], name: &str) -> Option<(usize, Refusal)> {
        let mut moments = Vec::new();
        for (at, (id, _)) in groups.iter().enumerate() {
            let Some(group) = self.groups.get(id) else {
                return Some((at, Refusal::new(RefusalCode::GroupStopping, "the group has left this node")));
            };
            match marks::may_set(group, name) {
                Ok(false) => {}
                Ok(true) => moments.extend(group.common().marks.named(name).map(|mark| mark.moment)),
                Err(refusal) => return Some((at, refusal)),
            }
        }
        // One and the same moment, or none: one mark on Monday and another on Tuesday are not what is asked for.
        let is_one = groups.len() == 1 || moments.iter().all(|moment| *moment > 0 && *moment == moments[0]);
        let is_torn = !moments.is_empty() && (moments.len() < groups.len() || !is_one);
        is_torn.then(|| {
            let why = format!(
                "some of the groups have a mark {name:?} already, and it is not one mark of all of them: it would name no one moment"
            );
            (0, Refusal::new(RefusalCode::MarkName, why))
        })
    }
}
