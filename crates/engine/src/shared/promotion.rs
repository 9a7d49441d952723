//! What an operator reads of a promotion.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use crate::CommandResult;

/// What an operator reads of a promotion beside a peer that is primary, however often it is ordered.
pub const BOTH_PRIMARY: &str =
    "both nodes are primary now: what the other one acknowledged since is not here, and one of them is to be demoted";

/// What an operator reads of a promotion by force, if the peer may have acknowledged more.
pub const NOT_HERE: &str = "whatever the peer acknowledged after it is not here";

/// Why a promotion that is to lose nothing is refused.
pub const NOT_IN_WINDOW: &str = "no peer window proves that this copy has all that was acknowledged: 'farshore promote GROUP --force' says what may be missing";

/// What a promotion gives up while a peer window has so long to go.
pub(crate) fn loses_nothing(left: Duration) -> String {
    format!(
        "nothing that the peer has acknowledged is missing here; it may acknowledge writes alone again in {} s unless it is stopped",
        left.as_secs().max(1)
    )
}

/// Why a copy that stands at sequence `at` is not promoted without force: nobody hears its primary. `window`: for so long its promotion would
/// lose nothing.
pub fn peer_away(at: u64, window: Option<Duration>) -> String {
    match window {
        Some(left) => format!(
            "the peer is not connected and may be primary; {}: '--in-window' promotes this node at sequence {at} as long as that holds",
            loses_nothing(left)
        ),
        None => format!(
            "the peer is not connected and may be primary: what it acknowledged alone cannot be known; \
             --force promotes this node at sequence {at}, and gives up whatever the peer wrote after it"
        ),
    }
}

/// What a promotion came to.
#[derive(Debug)]
pub(crate) struct PromotionAnswer {
    /// The image that was promoted.
    pub at: String,
    /// The export stays closed.
    pub needs_verification: bool,
    /// What the image lacks, and what follows for the peer.
    pub missing: Option<String>,
    /// A peer window proves that nothing which was acknowledged is missing.
    pub loses_nothing: Option<String>,
    pub other_mode: String,
    pub warn: bool,
}

impl PromotionAnswer {
    /// A peer that is primary, before or since, goes on with what is not here; what one did that is `silent` is not known.
    pub fn into_result(self, both_are_primary: bool, silent: Option<Duration>) -> CommandResult {
        let PromotionAnswer { at, needs_verification, missing, loses_nothing, other_mode, warn } = self;
        let closed = match needs_verification {
            true => {
                "; this node lost power before it was demoted: the export opens when the peer was asked what it confirmed, or after \
                 'start_alone'"
            }
            false => "",
        };
        let missing = match (missing, silent) {
            (_, Some(silent)) if both_are_primary => format!(
                "the peer was primary when it was last heard, {} ms ago: {}, and one of the two is to be demoted should it still be that",
                silent.as_millis(),
                loses_nothing.as_deref().unwrap_or("what it has acknowledged since is not here")
            ),
            _ if both_are_primary => BOTH_PRIMARY.into(),
            (Some(missing), _) => missing,
            (None, None) => "nothing is missing".into(),
            (None, Some(silent)) => format!(
                "nothing was missing when the peer was last heard, {} ms ago: should it have been promoted since, what it has written is \
                 not here",
                silent.as_millis()
            ),
        };
        let text = format!("{at}{closed}; {missing}{other_mode}");
        let warn = warn || both_are_primary || silent.is_some();
        if warn { CommandResult::Warning(text) } else { CommandResult::Done(text) }
    }
}
