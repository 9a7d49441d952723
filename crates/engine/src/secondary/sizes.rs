//! A secondary takes over its primary's sizes.

use alloc::vec::Vec;

use crate::Event;
use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::identity::Role;
use crate::shared::coverage::CoveragePoint;
use crate::shared::greeting::Greeting;

/// What the primary of the last sync said of its volumes.
#[derive(Debug, Default)]
pub(crate) struct PrimarySizes {
    bytes: Vec<u64>,
}

impl PrimarySizes {
    /// A sync begins: whatever becomes of the session, its end makes this copy as large as its primary is now.
    pub fn sync_begins(&mut self, common: &mut GroupCommon, cx: &mut Cx, primary: &Greeting) {
        if let Some(hello) = primary.hello().filter(|hello| hello.identity.role == Role::Primary) {
            self.bytes.clone_from(&hello.volume_bytes);
        }
        self.follow(common, cx, common.sb.rollback_point.id == 0);
    }

    /// A sync begins, or made this copy whole: it has the sizes of its primary. Until it is whole it has what the image before it
    /// had too.
    pub fn follow(&self, common: &mut GroupCommon, cx: &mut Cx, is_whole: bool) {
        let before = common.volumes.sizes();
        // One without a device takes a size over once it has one that is large enough.
        let with_device = common.volumes.iter_mut().zip(&self.bytes).filter(|(volume, _)| !volume.is_detached());
        for (volume, reported) in with_device {
            let size = if is_whole { *reported } else { volume.size_bytes().max(*reported) };
            if size != volume.size_bytes() {
                volume.resize(size);
            }
        }
        let after = common.volumes.sizes();
        if before.iter().zip(&after).any(|(before, after)| before < after) {
            cx.coverage.hit(CoveragePoint::SecondaryGrew);
        }
        if before != after
            && let Some(note) = common.volumes.surplus()
        {
            cx.event(common.id(), Event::Note(note));
        }
        common.sb.has_sizes(after);
    }

    /// A volume has more as long as the sync lasts, for the image before it, than its primary has.
    pub fn shrinks_when_whole(&self, common: &GroupCommon) -> bool {
        let reported = self.bytes.iter();
        let mut all = common.volumes.iter().zip(reported);
        all.any(|(volume, reported)| !volume.is_detached() && volume.size_bytes() > *reported)
    }
}
