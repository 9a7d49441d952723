//! What is asked of views, and what comes of it.

use engine::{GroupId, Input, OpenedView, Refusal, RequestId, ViewId, VolumeId};

use super::World;
use crate::checkers::facts::KnownFact;

/// Somebody opens a view of a node's copy.
pub fn open(world: &mut World, node: usize, group: GroupId) -> ViewId {
    let view = world.checkers.views.asks(node, group, world.timeline.now());
    world.log(format_args!("view {} of node {node} group {} is asked for", view.0, group.0));
    world.input(node, Input::ViewOpen { group, view });
    view
}

/// Somebody reads a view, which is open.
pub fn read(world: &mut World, view: ViewId, volume: u16, offset: u64, length: u64) -> RequestId {
    let (node, group) = world.checkers.views.place(view).expect("whoever reads has a view");
    let volume = VolumeId(volume);
    let id = world.checkers.views.asks_read(view, (volume, offset, length), world.timeline.now());
    world.input(node, Input::ViewRead { group, view, id, volume, offset, length });
    id
}

/// Nobody looks at it any more.
pub fn close(world: &mut World, view: ViewId) {
    if let Some((node, group)) = world.checkers.views.closes(view) {
        world.log(format_args!("view {} is closed", view.0));
        world.input(node, Input::ViewClose { group, view });
    }
}

/// A node says what came of an opening.
pub(super) fn is_answered(
    world: &mut World,
    node: usize,
    group: GroupId,
    view: ViewId,
    result: Result<Box<OpenedView>, Refusal>,
) {
    world.log(format_args!("node {node} group {} view {}: {result:?}", group.0, view.0));
    let World { cluster, checkers, .. } = &mut *world;
    let at = result.as_ref().ok().map(|opened| opened.position);
    let answered = checkers.views.is_answered(cluster, node, view, result.map(|opened| *opened));
    // What nobody knows of a copy, or has given up of it, nobody can compare; the view shows it all the same.
    let unknown = [KnownFact::Spoiled(group, node), KnownFact::ChangedOutside(group, node)];
    let is_known = !unknown.into_iter().any(|fact| checkers.facts.has(fact));
    let is_known = is_known && !cluster.ledger.discarded(group, node);
    let checked = answered.and_then(|stands| match at.filter(|_| stands && is_known) {
        Some(at) => {
            let without = cluster.aside(node, group);
            checkers.writes.check_image(group, at, &cluster.views(node, group), &without)
        }
        None => Ok(()),
    });
    world.check(checked);
}
