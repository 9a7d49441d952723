//! A command that was typed at the wrong node says which is the right one, and how it is typed for that.

use engine::RefusalCode;
use engine::identity::Role;

use super::{Desk, PlaceInGroup, beside};
use crate::api::{ApiRequest, Reply};
use crate::daemon::group_directory::GROUPS;
use crate::daemon::terms;
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

/// Of volumes that no sync has filled here those that came to the group with what stood on their devices. The others are on a disk that was attached,
/// and whoever did that has said that nothing on it counts.
pub(super) async fn which_came(desk: &Desk, group: &str, unfilled: Vec<String>) -> Vec<String> {
    let config = desk.config();
    let Some(here) = config.node(&desk.node).filter(|_| !unfilled.is_empty()) else { return Vec::new() };
    let directory = here.state.join(GROUPS).join(group);
    match beside(move || terms::came(&directory)).await {
        Ok(came) => unfilled.into_iter().filter(|volume| came.contains_key(volume)).collect(),
        Err(_) => unfilled,
    }
}
