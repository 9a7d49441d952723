//! A primary becomes the secondary: what a demotion by hand and a switchover have in common.

use alloc::string::String;

use crate::context::Cx;
use crate::group::Group;
use crate::ids::CommandId;
use crate::primary::steps::end_lowering;
use crate::records::record::AfterSuper;

/// In memory; the caller saves. `handed_over`: the peer has everything.
pub(super) fn become_secondary(group: &mut Group, cx: &mut Cx, handed_over: bool, why: &str) {
    let Group { common, primary, secondary, .. } = group;
    let (position, wall) = (common.last_position(), common.numbers.last_wall());
    primary.fall_to_logging(common, cx, why);
    primary.peer.wanted.is_filled();
    let acted_as = common.settings.mode;
    end_lowering(primary, common, cx, acted_as, "this node is primary no longer");
    common.sb.demoted(position, handed_over, common.settings.as_set().mode, wall);
    common.volumes.set_aside(&common.sb.aside);
    secondary.replica.stand_at(position, wall);
    secondary.replica.empty_journal(common);
}

pub(super) fn save_demotion(group: &mut Group, cx: &mut Cx, id: CommandId, text: String, warn: bool) {
    group.common.save_in_both_slots(cx, AfterSuper::Demoted { id, text, warn });
}
