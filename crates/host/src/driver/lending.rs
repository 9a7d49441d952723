//! Groups that this node serves to its peer alone, which asks for its own clients (a reverse sync).
//!
//! What must hold:
//! * nobody else sees the exports of such a group;
//! * of a volume there is one connection of the peer's at most. A newer one takes the place of an older one once all is done that was asked on
//!   that (rule 18): what is asked again on the newer one cannot land behind what came later;
//! * what is not done because the group stopped serving, or failed, is answered as by an export that is gone: the peer asks it again.

use std::collections::BTreeMap;
use std::rc::Rc;

use engine::{GroupId, NodeId};

use super::clients::AttachedClients;
use crate::frontend::{ClientId, Replies};
use crate::link::Attempt;

/// The peer's connections for one volume.
#[derive(Default)]
struct LentVolume {
    newest: Option<Attempt>,
    /// Of these all but the last are fenced.
    clients: Vec<(ClientId, Rc<dyn Replies>)>,
}

#[derive(Default)]
pub(super) struct Lending {
    groups: BTreeMap<GroupId, NodeId>,
    /// By export.
    volumes: BTreeMap<String, LentVolume>,
}

impl Lending {
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub fn lend(&mut self, group: GroupId, to: NodeId) {
        self.groups.insert(group, to);
    }

    pub fn ends(&mut self, group: GroupId) {
        self.groups.remove(&group);
    }

    pub fn is_lent(&self, group: GroupId) -> bool {
        self.groups.contains_key(&group)
    }

    pub fn is_lent_to(&self, group: GroupId, peer: NodeId) -> bool {
        self.groups.get(&group) == Some(&peer)
    }

    /// Whether a connection that was dialed as `attempt` may take the volume over now. Older ones ask nothing more from here on.
    pub fn may_come(&mut self, export: &str, attempt: Attempt, clients: &mut AttachedClients) -> bool {
        let volume = self.volumes.entry(export.to_owned()).or_default();
        if volume.newest.is_some_and(|newest| attempt.is_older_than(newest)) {
            return false;
        }
        volume.newest = Some(attempt);
        volume.clients.retain(|(client, _)| clients.is_attached(*client) || clients.has_requests_of(*client));
        volume.clients.iter().for_each(|(_, replies)| replies.fenced());
        volume.clients.is_empty()
    }

    pub fn came(&mut self, export: &str, client: ClientId, replies: Rc<dyn Replies>) {
        self.volumes.entry(export.to_owned()).or_default().clients.push((client, replies));
    }

    /// The peer's connections for these volumes ask nothing more.
    pub fn fence(&mut self, exports: impl Iterator<Item = String>) {
        for volume in exports.filter_map(|export| self.volumes.remove(&export)) {
            volume.clients.iter().for_each(|(_, replies)| replies.fenced());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::clients::ClientTerms;
    use super::*;
    use crate::frontend::RequestOutcome;

    #[derive(Default)]
    struct PeerConnection {
        is_fenced: Cell<bool>,
    }

    impl Replies for PeerConnection {
        fn complete(&self, _: u64, _: RequestOutcome) {}
        fn push(&self) {}
        fn gone(&self) {}
        fn fenced(&self) {
            self.is_fenced.set(true);
        }
    }

    const TERMS: ClientTerms = ClientTerms { size_bytes: 1 << 20, block_min_bytes: 512 };

    fn dialed(number: u64) -> Attempt {
        Attempt { run: 7, number }
    }

    // proves: rule 18
    /// What is asked again on the newer connection would land before what the older one has asked and the disk has not done.
    #[test]
    fn a_newer_connection_waits_until_all_is_done_that_the_older_one_asked() {
        let (mut lending, mut clients) = (Lending::default(), AttachedClients::default());
        assert!(lending.may_come("db/data", dialed(1), &mut clients));
        let older = Rc::new(PeerConnection::default());
        let client = clients.attach(0, TERMS, older.clone());
        lending.came("db/data", client, older.clone());
        let request = clients.asked(client, 5);
        assert!(!lending.may_come("db/data", dialed(2), &mut clients), "the older one is there");
        assert!(older.is_fenced.get(), "it asks nothing more");
        clients.detach(client);
        assert!(!lending.may_come("db/data", dialed(2), &mut clients), "what it asked is not done");
        assert!(lending.may_come("db/log", dialed(3), &mut clients), "of another volume");
        clients.reply(request, Ok(()));
        assert!(lending.may_come("db/data", dialed(2), &mut clients));
        assert!(!lending.may_come("db/data", dialed(1), &mut clients), "it was dialed before the one that is there");
        assert!(lending.may_come("db/data", Attempt { run: 8, number: 1 }, &mut clients), "another run of the peer");
    }
}
