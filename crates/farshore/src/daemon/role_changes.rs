//! Which change of a group's role is under way: one of a group at a time. What one waits for, a disk or space, may never come: no other group
//! waits for that.

use std::cell::RefCell;
use std::collections::BTreeMap;

use engine::RefusalCode;
use settings::RoleHook;

use crate::api::Reply;
use crate::api::refusals::DeskRefusal;

/// A change of a group's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoleChange {
    Promotion,
    Demotion,
    /// On the node that hands over.
    Switchover,
    /// No role changes: the group leaves the daemon, to come again or not, and nobody else is to change it meanwhile.
    Reload,
    /// The same: clients of the peer are served no more.
    ReverseStop,
}

/// Those that are under way, by group.
#[derive(Default)]
pub(super) struct RoleChanges(RefCell<BTreeMap<String, BegunChange>>);

#[derive(Clone, Copy)]
struct BegunChange {
    what: RoleChange,
    /// The role that the data path tells may not be on record yet.
    is_shown: bool,
    /// The command of the configuration that runs for it now.
    runs: Option<RoleHook>,
}

/// One that is under way, as long as this is kept.
pub(super) struct RoleChangeUnderWay<'a> {
    changes: &'a RoleChanges,
    group: String,
}

impl RoleChanges {
    /// Begins one, unless another one is under way. It never waits: it would be carried out when whoever typed it has long gone, and the other
    /// node may be primary by then.
    ///
    /// # Errors
    /// The answer to whoever asked at this `node`.
    pub fn begin(&self, group: &str, change: RoleChange, node: &str) -> Result<RoleChangeUnderWay<'_>, Reply> {
        let mut changes = self.0.borrow_mut();
        let Some(BegunChange { what: before, runs, .. }) = changes.get(group).copied() else {
            // A demotion of a secondary changes nothing.
            let is_shown = !matches!(change, RoleChange::Demotion | RoleChange::Reload | RoleChange::ReverseStop);
            changes.insert(group.to_owned(), BegunChange { what: change, is_shown, runs: None });
            return Ok(RoleChangeUnderWay { changes: self, group: group.to_owned() });
        };
        let word = match before {
            RoleChange::Promotion => "promotion",
            RoleChange::Demotion => "demotion",
            RoleChange::Switchover => "switchover",
            RoleChange::Reload => "'config apply'",
            RoleChange::ReverseStop => "'sync --reverse --stop'",
        };
        let message = match runs {
            Some(which @ (RoleHook::AfterPromote | RoleHook::AfterDemote)) => format!(
                "{group}: a {word} is done, and its command {} still runs; type this again when that has ended: the log of node {node}",
                which.as_str()
            ),
            Some(which) => format!(
                "{group}: a {word} is under way already, and its command {} runs; what it says is in the log of node {node}",
                which.as_str()
            ),
            None => format!(
                "{group}: a {word} is under way already, and goes on; what it waits for: 'farshore status {group}' and the log of node \
                 {node}"
            ),
        };
        Err(match (before, change) {
            (RoleChange::Promotion, RoleChange::Promotion) => Reply::refused(DeskRefusal::PromotionUnderWay, message),
            _ => Reply::refused(RefusalCode::RoleChanging, message),
        })
    }

    /// One of this group is under way.
    pub fn is_changing(&self, group: &str) -> bool {
        self.0.borrow().contains_key(group)
    }

    /// The groups that are promoted now, and those whose primary is demoted, also where nobody waits for the answer any more.
    pub fn shown(&self) -> BTreeMap<String, RoleChange> {
        let changes = self.0.borrow();
        changes
            .iter()
            .filter(|(_, change)| change.is_shown)
            .map(|(group, change)| (group.clone(), change.what))
            .collect()
    }
}

impl RoleChangeUnderWay<'_> {
    /// From here on the group is shown as one whose role changes, or not any more: the new role is on record.
    pub fn is_shown(&self, is_shown: bool) {
        if let Some(change) = self.changes.0.borrow_mut().get_mut(&self.group) {
            change.is_shown = is_shown;
        }
    }

    /// A command of the configuration runs for it, or none any more.
    pub fn runs(&self, which: Option<RoleHook>) {
        if let Some(change) = self.changes.0.borrow_mut().get_mut(&self.group) {
            change.runs = which;
        }
    }
}

impl Drop for RoleChangeUnderWay<'_> {
    fn drop(&mut self) {
        self.changes.0.borrow_mut().remove(&self.group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A promotion that was typed while a demotion ended began no term: it took the node for the primary that it was.
    #[test]
    fn a_groups_role_is_changed_by_one_at_a_time() {
        use RoleChange::{Demotion, Promotion};
        let changes = RoleChanges::default();
        let code = |group: &str, change| match changes.begin(group, change, "alpha") {
            Ok(_) => "begun".to_owned(),
            Err(Reply::Error { refusal: Some(refusal), .. }) => refusal.code,
            Err(other) => panic!("{other:?}"),
        };
        for (first, promotion) in [(Promotion, "promotion-under-way"), (Demotion, "role-changing")] {
            let under_way = changes.begin("db", first, "alpha");
            assert!(under_way.is_ok(), "nothing is under way");
            assert_eq!(changes.shown().get("db"), Some(first).filter(|first| *first == Promotion).as_ref());
            assert_eq!((code("db", Promotion), code("db", Demotion)), (promotion.into(), "role-changing".into()));
            assert_eq!(code("web", Promotion), "begun", "of another group");
            drop(under_way);
            assert!(changes.shown().is_empty(), "it has ended");
            assert_eq!(code("db", first), "begun", "it has ended");
        }
    }

    /// Of a change that was done it was said that it goes on, for as long as a program ran.
    #[test]
    fn whoever_comes_second_hears_of_the_command_that_runs() {
        let changes = RoleChanges::default();
        let promotion = changes.begin("db", RoleChange::Promotion, "alpha").expect("nothing is under way");
        let heard = || match changes.begin("db", RoleChange::Demotion, "alpha") {
            Err(Reply::Error { message, .. }) => message,
            _ => panic!("one at a time"),
        };
        promotion.runs(Some(RoleHook::BeforePromote));
        assert!(heard().contains("is under way already, and its command before_promote runs"), "{}", heard());
        promotion.runs(None);
        assert!(heard().contains("is under way already, and goes on"), "{}", heard());
        promotion.runs(Some(RoleHook::AfterPromote));
        assert!(heard().contains("a promotion is done, and its command after_promote still runs"), "{}", heard());
    }

    /// While the state disk hung over the superblock a group was shown as a copy that was still the primary on record.
    #[test]
    fn a_demotion_is_shown_from_the_primary_until_it_is_on_record() {
        let changes = RoleChanges::default();
        let demotion = changes.begin("db", RoleChange::Demotion, "alpha").expect("nothing is under way");
        assert!(changes.shown().is_empty(), "the node may be secondary already");
        demotion.is_shown(true);
        assert_eq!(changes.shown().get("db"), Some(&RoleChange::Demotion));
        demotion.is_shown(false);
        assert!(changes.shown().is_empty(), "it is on record");
    }
}
