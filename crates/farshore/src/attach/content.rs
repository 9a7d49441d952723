//! Whether the daemon that a device's requests wait for still has the content that they were asked of.

use std::path::{Path, PathBuf};
use std::time::Duration;

use host::nbd::{ContentCheck, ContentVerdict};

use super::beside::beside;
use crate::api::client::ControlClient;
use crate::api::{ApiRequest, GroupState, Reply, Role};

const LOOK_PATIENCE: Duration = Duration::from_secs(2);

/// How the daemon's half of a group is.
pub(super) struct SeenGroup {
    /// It is the primary, or has the primary serve its clients: that has what they have seen.
    pub serves: bool,
    /// Of the volume: begins with each promotion of the node, where a flush failed, and where the volume came. Empty: there is none of that
    /// name.
    pub term: String,
}

/// `None`: the daemon does not answer, or does not know yet.
pub(super) fn look(control: &Path, group: &str, volume: &str) -> Option<SeenGroup> {
    let request = ApiRequest::Status { group: Some(group.to_owned()) };
    let reply = ControlClient::connect(control).and_then(|mut client| client.ask_within(LOOK_PATIENCE, &request));
    let Ok(Reply::Status(status)) = reply else { return None };
    let group =
        status.groups.into_iter().next().filter(|group| !group.starting && group.state != GroupState::Failed)?;
    let found = group.volumes.into_iter().find(|one| one.name == volume);
    let is_home = group.reverse.as_ref().is_some_and(|reverse| reverse.home == status.node);
    let serves = group.role == Role::Primary || is_home;
    Some(SeenGroup { serves, term: found.map(|one| one.term).unwrap_or_default() })
}

/// A node that became secondary may hold another content when it is primary again, and so may a volume that left and came again. It is then
/// in another term, and a term never comes back.
pub fn same_term(control: PathBuf, (group, volume): (String, String), term: String) -> ContentCheck {
    Box::new(move || {
        let (control, group, volume, term) = (control.clone(), group.clone(), volume.clone(), term.clone());
        Box::pin(async move {
            let (asked, of) = (group.clone(), volume.clone());
            match beside(move || look(&control, &asked, &of)).await {
                Ok(Some(seen)) if !seen.serves => ContentVerdict::Another(format!(
                    "this node became the secondary of {group}; attach it where the primary is"
                )),
                Ok(Some(seen)) if seen.term.is_empty() => {
                    ContentVerdict::Another(format!("{group} has no volume {volume} any more"))
                }
                Ok(Some(seen)) if seen.term != term => ContentVerdict::Another(other_term(&group)),
                Ok(Some(_)) => ContentVerdict::Same,
                _ => ContentVerdict::Unknown,
            }
        })
    })
}

pub(super) fn other_term(group: &str) -> String {
    format!(
        "this node was the secondary of {group} in between and became primary again, the volume left {group} and came again, or a flush failed \
         since the device was attached: the volume may have other content"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::without_threads::has_no_threads;

    /// The daemon is away, and the machine at its limit of tasks: the helper is what its device has left.
    #[test]
    fn without_threads_the_content_is_unknown_and_the_helper_lives() {
        if !has_no_threads("attach::content::tests::without_threads_the_content_is_unknown_and_the_helper_lives") {
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let check = same_term("/there/is/no/daemon".into(), ("db".to_owned(), "data".to_owned()), "7".to_owned());
        assert_eq!(runtime.block_on(check()), ContentVerdict::Unknown);
    }
}
