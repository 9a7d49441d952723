//! A group is taken up step by step: what each completed read leads to.

use crate::common::Common;
use crate::context::Cx;
use crate::formats::identity::{Confirmed, Role};
use crate::formats::journal::Ring;
use crate::formats::superblock;
use crate::formats::superblock::Superblock;
use crate::group::start::{CannotStart, PEERS_DIRECTORY, other_version};
use crate::planted::{Fault, planted};
use crate::records::bits::AfterBits;
use crate::secondary::Secondary;
use crate::secondary::replay::Replay;
use crate::secondary::rollback::Scan;
use crate::shared::lifecycle::{Beside, StartStage};
use crate::state::Broken;
use crate::{Event, IoDone, IoError, Store};

impl Secondary {
    /// The start came to nothing.
    pub fn forget_start(&mut self) {
        (self.scan, self.replay) = (Scan::default(), Replay::default());
    }

    /// A read or flush of the start completed.
    pub fn start_read_done(
        &mut self,
        common: &mut Common,
        cx: &mut Cx,
        result: Result<IoDone, IoError>,
    ) -> Result<(), CannotStart> {
        let Some(stage) = common.lifecycle.stage() else { return Ok(()) };
        match stage {
            StartStage::Settling { entropy, boot, .. } => {
                let done = common.lifecycle.one_done();
                if result.is_err() {
                    let why = "the group's files could not be flushed; see the kernel log for the disk of the state directory";
                    return Err(CannotStart::new(Broken::Superblock, why));
                } else if done {
                    common.lifecycle.enter_stage(StartStage::Superblocks { entropy, boot });
                    common.read_meta(cx, Store::Superblock(common.id()), 0, superblock::FILE_BYTES as u32);
                }
                Ok(())
            }
            StartStage::Superblocks { entropy, boot } => match result {
                Ok(IoDone::Meta(bytes)) => self.superblocks_read(common, cx, &bytes, entropy, boot),
                _ => Err(CannotStart::unreadable(Broken::Superblock, "the superblock")),
            },
            StartStage::Blank { entropy, boot, beside } => common.beside_read(cx, result, beside, (entropy, boot)),
            StartStage::Wipe { .. } => {
                let done = common.lifecycle.one_done();
                if result.is_err() {
                    let why = "the group's files could not be written; see the kernel log";
                    return Err(CannotStart::new(Broken::Bits, why));
                } else if done {
                    common.lifecycle.enter_stage(StartStage::StoringBits);
                    common.bits().save_all(cx, AfterBits::Started);
                }
                Ok(())
            }
            StartStage::Bitmap { .. } | StartStage::Activity => match result {
                Ok(IoDone::Meta(bytes)) => common.bits_read(cx, &bytes),
                _ => Err(CannotStart::unreadable(Broken::Bits, "the bitmap or the activity log")),
            },
            StartStage::Undo => self.undo_read(common, cx, result),
            StartStage::Replay => self.replay_read(common, cx, result),
            StartStage::Flush { .. } => {
                let done = common.lifecycle.one_done();
                if result.is_err() {
                    return Err(CannotStart::new(Broken::VolumeFlush, "a volume could not be flushed after replay"));
                } else if done {
                    common.record(cx);
                }
                Ok(())
            }
            StartStage::Idle | StartStage::Recording | StartStage::StoringBits | StartStage::EmptyingLog => {
                unreachable!("nothing was asked for")
            }
        }
    }

    pub fn superblocks_read(
        &mut self,
        common: &mut Common,
        cx: &mut Cx,
        bytes: &[u8],
        entropy: u64,
        boot: u128,
    ) -> Result<(), CannotStart> {
        let read = superblock::read(bytes, common.config.tag);
        if let Ok(read) = &read
            && read.damaged > 0
        {
            let note = "a copy of the superblock is damaged or was torn; its twin or the other slot counts";
            cx.event(common.id(), Event::Note(note.into()));
        }
        match read.map(|read| read.found) {
            Ok(Some(found)) => self.known_group(common, cx, found, boot),
            // New, unless what stands beside it says otherwise.
            Ok(None) => {
                common.look_beside(cx, Beside::Log, (entropy, boot));
                Ok(())
            }
            Err(superblock::Rejected::Astray) => Err(CannotStart::new(
                Broken::Superblock,
                "a slot of the superblock was overwritten by a write that went astray: what it recorded last may be lost \
                     ('farshore inspect' shows the places); check the disk of the state directory, then restore the file, or \
                     remove the group's state directory here and sync in full from the other node",
            )),
            Err(superblock::Rejected::VersionUnknown(version)) => {
                Err(CannotStart::new(Broken::Superblock, other_version("superblock", version, superblock::VERSION)))
            }
            Err(superblock::Rejected::Foreign) => Err(CannotStart::new(
                Broken::Superblock,
                "the superblock in the state directory belongs to another cluster or group: give this group its own state \
                     directory back, or undo a renaming of cluster or group",
            )),
            Err(_) => Err(CannotStart::new(
                Broken::Superblock,
                "both copies of the superblock are damaged, so it is not known whose data the volumes hold ('farshore inspect' \
                 shows the places); restore the file, or remove the group's state directory here and sync in full from the \
                 other node",
            )),
        }
    }

    pub fn known_group(
        &mut self,
        common: &mut Common,
        cx: &mut Cx,
        found: Superblock,
        boot: u128,
    ) -> Result<(), CannotStart> {
        if (found.node, found.peer) == (common.config.peer, common.node) {
            return Err(CannotStart::new(Broken::Superblock, PEERS_DIRECTORY));
        }
        let current = Superblock { boot, confirmed: Confirmed::default(), ..found.clone() };
        common.sb.take_up(current, found.identity);
        common.sb.current.served_in_doubt &= !planted(Fault::ServedAloneForgotten);
        common.volumes.take_up_sizes(&found.sizes);
        common.take_up_confirmed(found.confirmed);
        common.put_run_in_doubt(&found, boot);
        self.ring = Ring::new(common.config.journal_bytes, found.journal);
        let changed = found.clean && common.volumes.iter().any(|v| v.config.changed_outside);
        if changed {
            let note = "a volume was written while farshore was stopped: its copy is no longer trusted";
            cx.event(common.id(), Event::Note(note.into()));
            common.changed_behind_our_back(found.identity.role);
        }
        common.read_bitmap(cx, 0);
        Ok(())
    }

    /// The log on disk is empty; false: this is no start.
    pub fn start_activity_reset(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        if !common.lifecycle.is_at(StartStage::EmptyingLog) {
            return false;
        }
        if common.activity.is_young() {
            common.reset_activity(cx);
            return true;
        }
        let known = common.sb.current.update > 0;
        match common.role() {
            Role::Secondary if known && common.sb.current.rollback_point.id != 0 => self.begin_scan(common, cx),
            Role::Secondary if known => self.begin_replay(common, cx),
            _ => common.flush_then_record(cx),
        }
        true
    }
}
