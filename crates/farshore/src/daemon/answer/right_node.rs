//! A command that was typed at the wrong node says which is the right one, and how it is typed for that.

use engine::RefusalCode;
use engine::identity::Role;

use super::{Desk, PlaceInGroup};
use crate::api::{ApiRequest, Reply};
use crate::daemon::typed_words::typed;

/// A command that is for the primary, or for whoever is it.
pub(super) struct TypedForPrimary {
    group: String,
    words: String,
}

impl TypedForPrimary {
    pub fn of(request: &ApiRequest) -> Option<TypedForPrimary> {
        match request {
            ApiRequest::Sync { group, .. }
            | ApiRequest::Logging { group, .. }
            | ApiRequest::Verify { group, .. }
            | ApiRequest::VerifyStop { group }
            | ApiRequest::AssumeEqual { group }
            | ApiRequest::Demote { group, .. } => Some(TypedForPrimary { group: group.clone(), words: typed(request) }),
            _ => None,
        }
    }

    /// Completes the answer of the secondary.
    pub async fn completes(self, desk: &Desk, reply: &mut Reply) {
        let (message, is_refused) = match reply {
            Reply::Error { message, refusal: Some(refusal), .. } if refusal.code == RefusalCode::NotPrimary.word() => {
                (message, true)
            }
            Reply::Ok { message, unchanged: true, .. } if self.words.starts_with("farshore demote ") => {
                (message, false)
            }
            _ => return,
        };
        if let Some(PlaceInGroup { role: Role::Secondary, peer, peer_role: Some(Role::Primary), .. }) =
            desk.place_in(&self.group).await
        {
            *message += &match is_refused {
                // The sentence ends with the primary.
                true => format!(", node {peer}: '{} --on {peer}'", self.words),
                false => format!("; node {peer} is the primary"),
            };
        }
    }
}
