//! Who may read a file of this node for a question now: each reader waits for a disk, on a thread and with a request's room, and while that
//! disk hangs nobody gets either back.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Readers at once for whoever asks here.
const READERS_MAX: usize = 2;
/// How long one more waits for them. What is asked for is read within milliseconds.
const READER_PATIENCE: Duration = Duration::from_millis(100);
/// How long a peer's question waits for the one before it. What it asks for may be far back in a log, and its daemon has 5 s.
const PEER_READER_PATIENCE: Duration = Duration::from_secs(2);

/// Places for readers. Each peer has one of its own: whatever a peer asks for, and however often, nobody else waits for it.
pub(super) struct ReaderRoom {
    /// What is read, in words.
    what: &'static str,
    here: Arc<Semaphore>,
    /// By the names that they have proven.
    peers: RefCell<BTreeMap<String, Arc<Semaphore>>>,
}

impl ReaderRoom {
    pub fn new(what: &'static str) -> ReaderRoom {
        ReaderRoom { what, here: Arc::new(Semaphore::new(READERS_MAX)), peers: RefCell::default() }
    }

    /// A place for a question that was asked here, or by another node's daemon. It is to be kept until all is read.
    ///
    /// # Errors
    /// A sentence: all places stay taken.
    pub async fn enter(&self, from_node: Option<&str>) -> Result<OwnedSemaphorePermit, String> {
        let (places, patience) = match from_node {
            None => (self.here.clone(), READER_PATIENCE),
            Some(node) => (self.places_of(node), PEER_READER_PATIENCE),
        };
        let what = self.what;
        match tokio::time::timeout(patience, places.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(match from_node {
                None => {
                    format!("{what} is being read by {READERS_MAX} others, and its disk lets them wait; ask again")
                }
                Some(node) => format!("{what} is being read for another question of node {node}; ask again"),
            }),
        }
    }

    fn places_of(&self, node: &str) -> Arc<Semaphore> {
        let mut peers = self.peers.borrow_mut();
        peers.entry(node.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With eight connections that asked for events of the far future a peer kept both readers busy, and a local one was turned away.
    #[tokio::test]
    async fn a_peer_keeps_nobody_else_from_the_log() {
        let readers = ReaderRoom::new("the log of events");
        let _of_beta = readers.enter(Some("beta")).await.expect("a place");
        let soon = Duration::from_millis(10);
        let second = tokio::time::timeout(soon, readers.enter(Some("beta"))).await;
        assert!(second.is_err(), "one question of a peer at a time");
        let _of_gamma = readers.enter(Some("gamma")).await.expect("a place of its own");
        let _here = [readers.enter(None).await.expect("a place"), readers.enter(None).await.expect("another")];
        let third = readers.enter(None).await.expect_err("two read");
        assert!(third.contains("the log of events is being read by 2 others"), "{third}");
    }
}
