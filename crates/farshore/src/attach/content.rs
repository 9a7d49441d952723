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
    pub is_primary: bool,
    /// Begins with each promotion of the node, and where a flush failed.
    pub term: String,
}

/// `None`: the daemon does not answer, or does not know yet.
pub(super) fn look(control: &Path, group: &str) -> Option<SeenGroup> {
    let request = ApiRequest::Status { group: Some(group.to_owned()) };
    let reply = ControlClient::connect(control).and_then(|mut client| client.ask_within(LOOK_PATIENCE, &request));
    let Ok(Reply::Status(status)) = reply else { return None };
    let group =
        status.groups.into_iter().next().filter(|group| !group.starting && group.state != GroupState::Failed)?;
    Some(SeenGroup { is_primary: group.role == Role::Primary, term: group.term })
}

/// A node that became secondary may hold another content when it is primary again. It is then in another term, and a term never comes
/// back.
pub fn same_term(control: PathBuf, group: String, term: String) -> ContentCheck {
    Box::new(move || {
        let (control, group, term) = (control.clone(), group.clone(), term.clone());
        Box::pin(async move {
            let asked = group.clone();
            match beside(move || look(&control, &asked)).await {
                Ok(Some(seen)) if !seen.is_primary => ContentVerdict::Another(format!(
                    "this node became the secondary of {group}; attach it where the primary is"
                )),
                Ok(Some(seen)) if seen.term != term => ContentVerdict::Another(other_term(&group)),
                Ok(Some(_)) => ContentVerdict::Same,
                _ => ContentVerdict::Unknown,
            }
        })
    })
}

pub(super) fn other_term(group: &str) -> String {
    format!(
        "this node was the secondary of {group} in between and became primary again, or a flush failed since the device was attached: the \
         volume may have other content"
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
        let check = same_term("/there/is/no/daemon".into(), "db".to_owned(), "7".to_owned());
        assert_eq!(runtime.block_on(check()), ContentVerdict::Unknown);
    }
}
