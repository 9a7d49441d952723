//! Which change of a group's role is under way: one of a group at a time. What one waits for, a disk or space, may never come: no other group
//! waits for that.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use engine::RefusalCode;

use crate::api::Reply;
use crate::api::refusals::DeskRefusal;

/// A change of a group's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoleChange {
    Promotion,
    Demotion,
}

/// Those that are under way, by group.
#[derive(Default)]
pub(super) struct RoleChanges(RefCell<BTreeMap<String, RoleChange>>);

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
        let Some(before) = changes.get(group).copied() else {
            changes.insert(group.to_owned(), change);
            return Ok(RoleChangeUnderWay { changes: self, group: group.to_owned() });
        };
        let word = match before {
            RoleChange::Promotion => "promotion",
            RoleChange::Demotion => "demotion",
        };
        let message = format!(
            "{group}: a {word} is under way already, and goes on; what it waits for: 'farshore status {group}' and the log of node {node}"
        );
        Err(match (before, change) {
            (RoleChange::Promotion, RoleChange::Promotion) => Reply::refused(DeskRefusal::PromotionUnderWay, message),
            _ => Reply::refused(RefusalCode::RoleChanging, message),
        })
    }

    /// The groups that are promoted now, also where nobody waits for the answer any more.
    pub fn promotions(&self) -> BTreeSet<String> {
        let changes = self.0.borrow();
        changes.iter().filter(|(_, change)| **change == RoleChange::Promotion).map(|(group, _)| group.clone()).collect()
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
            assert_eq!(changes.promotions().contains("db"), first == Promotion);
            assert_eq!((code("db", Promotion), code("db", Demotion)), (promotion.into(), "role-changing".into()));
            assert_eq!(code("web", Promotion), "begun", "of another group");
            drop(under_way);
            assert!(changes.promotions().is_empty(), "it has ended");
            assert_eq!(code("db", first), "begun", "it has ended");
        }
    }
}
