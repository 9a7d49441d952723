//! What an operator reads of a promotion.

use alloc::format;
use alloc::string::String;

use crate::CommandResult;

/// What a promotion came to.
#[derive(Debug)]
pub(crate) struct PromotionAnswer {
    /// The image that was promoted.
    pub at: String,
    /// What it lacks, and what follows for the peer.
    pub follows: String,
    pub other_mode: String,
    pub warn: bool,
}

impl PromotionAnswer {
    /// A peer that is primary, before or since, goes on with what is not here.
    pub fn told(self, both_are_primary: bool) -> CommandResult {
        let PromotionAnswer { at, follows, other_mode, warn } = self;
        if both_are_primary {
            return CommandResult::Warning(format!(
                "{at}; both nodes are primary now: what the other one acknowledges is not here, and one of them is to be demoted{other_mode}"
            ));
        }
        let text = format!("{at}; {follows}{other_mode}");
        if warn { CommandResult::Warning(text) } else { CommandResult::Done(text) }
    }
}
