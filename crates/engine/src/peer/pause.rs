//! Why no sync begins by itself for a while, in words.

use alloc::format;
use alloc::string::String;

use crate::ids::VolumeId;

/// Why no sync begins by itself for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum PauseCause {
    #[default]
    PeerStoodStill,
    LinkWasFull,
    /// Writers overwrote more of what a snapshot had not sent than the undo store has room for.
    UndoStoreWasFull,
    /// A read or a write of this node that the sync needs failed, or took too long.
    OwnStoreFailed,
}

impl PauseCause {
    /// Why no sync begins yet.
    pub fn words(self) -> &'static str {
        match self {
            PauseCause::PeerStoodStill => "the peer stood still, and is left alone for a while; 'sync' begins at once",
            PauseCause::LinkWasFull => {
                "more was written than the link has room for, a sync begins in a moment; 'sync' begins at once"
            }
            PauseCause::UndoStoreWasFull => {
                "writers overwrote what a sync had not sent yet faster than the link carries it, and the undo store had no room for more \
                 ('history' makes it larger); a sync begins again within two minutes, 'sync' begins at once"
            }
            PauseCause::OwnStoreFailed => {
                "what a sync needs could not be read or kept on this node in time: its devices want a look; a sync begins again within \
                 two minutes, 'sync' begins at once"
            }
        }
    }
}

/// Says where a device of this node failed a sync.
pub(crate) fn unreadable(volume: VolumeId, offset: u64) -> String {
    let volume = u32::from(volume.0) + 1;
    format!(
        "volume {volume} of the group (in the order of names) could not be read at byte {offset}, and a sync needs what is there; \
         clients are served meanwhile"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group whose sync does not begin yet showed no reason.
    #[test]
    fn every_pause_says_what_it_is_for_and_how_to_end_it() {
        let words = PauseCause::words;
        assert!(words(PauseCause::PeerStoodStill).contains("the peer stood still"));
        assert!(words(PauseCause::LinkWasFull).contains("more was written than the link has room for"));
        assert!(words(PauseCause::OwnStoreFailed).contains("on this node"));
        for cause in [PauseCause::PeerStoodStill, PauseCause::LinkWasFull, PauseCause::OwnStoreFailed] {
            assert!(words(cause).contains("'sync' begins at once"));
        }
    }
}
