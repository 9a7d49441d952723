//! How clients share the memory for what they have in flight.
//!
//! Half of it is theirs by right: every client has its share of that half to itself, whatever the others do. The other half is common:
//! whoever needs more takes it there, while there is some. A client that stalls keeps what it holds until it is cut off; all others
//! go on meanwhile, if only with their shares.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

/// MemoryShares of the half that is divided; of more clients each has less.
const SHARES_MIN: usize = 64;

/// The memory of all clients.
pub(super) struct MemoryShares {
    limit_bytes: usize,
    clients: Cell<usize>,
    /// Taken of the common half.
    common_bytes: Cell<usize>,
    /// Somebody was refused and nothing has come back since.
    is_wanted: Cell<bool>,
    freed: Notify,
}

impl MemoryShares {
    pub fn new(limit_bytes: usize) -> Rc<MemoryShares> {
        let (clients, common_bytes, is_wanted) = (Cell::new(0), Cell::new(0), Cell::new(false));
        Rc::new(MemoryShares { limit_bytes, clients, common_bytes, is_wanted, freed: Notify::new() })
    }

    fn half(&self) -> usize {
        self.limit_bytes / 2
    }

    fn share(&self) -> usize {
        self.half() / self.clients.get().max(SHARES_MIN)
    }
}

/// What one client holds.
pub(super) struct MemoryAccount {
    shares: Rc<MemoryShares>,
    held_bytes: Cell<usize>,
    /// Of that, from the common half.
    common_bytes: Cell<usize>,
    is_open: Cell<bool>,
}

impl MemoryAccount {
    pub fn new(shares: Rc<MemoryShares>) -> MemoryAccount {
        shares.clients.set(shares.clients.get() + 1);
        MemoryAccount { shares, held_bytes: Cell::new(0), common_bytes: Cell::new(0), is_open: Cell::new(true) }
    }

    /// May so much more be held? If not, [`MemoryAccount::freed`] says when to ask again.
    pub fn may_take(&self, bytes: usize) -> bool {
        let common = (self.held_bytes.get() + bytes).saturating_sub(self.shares.share());
        let others = self.shares.common_bytes.get() - self.common_bytes.get();
        // A lone request of any size is served when nobody else needs the room, or it would never be.
        let is_alone = others == 0 && self.held_bytes.get() == 0;
        let may = common <= self.common_bytes.get() || others + common <= self.shares.half() || is_alone;
        if !may {
            self.shares.is_wanted.set(true);
        }
        may
    }

    /// So much is held now.
    pub fn set(&self, held_bytes: usize) {
        if !self.is_open.get() {
            return;
        }
        let before = self.held_bytes.replace(held_bytes);
        let common = held_bytes.saturating_sub(self.shares.share());
        let others = self.shares.common_bytes.get() - self.common_bytes.replace(common);
        self.shares.common_bytes.set(others + common);
        if held_bytes < before && self.shares.is_wanted.replace(false) {
            self.shares.freed.notify_waiters();
        }
    }

    /// The client has gone.
    pub fn close(&self) {
        self.set(0);
        if self.is_open.replace(false) {
            self.shares.clients.set(self.shares.clients.get() - 1);
        }
    }

    /// Resolves when something has come back since [`MemoryAccount::may_take`] last refused.
    pub async fn freed(&self) {
        // Registered before the look, so that nothing comes back between the two.
        let freed = self.shares.freed.notified();
        if self.shares.is_wanted.get() {
            freed.await;
        }
    }
}

impl Drop for MemoryAccount {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    #[test]
    fn a_share_is_left_for_everybody_whatever_the_others_hold() {
        // 16 KiB for each of 64.
        let shares = MemoryShares::new(2048 * KIB);
        let greedy: Vec<MemoryAccount> = (0..40).map(|_| MemoryAccount::new(shares.clone())).collect();
        for account in &greedy {
            while account.may_take(KIB) {
                account.set(account.held_bytes.get() + KIB);
            }
        }
        let total: usize = greedy.iter().map(|account| account.held_bytes.get()).sum();
        assert_eq!((total, shares.common_bytes.get()), (1024 * KIB + 40 * 16 * KIB, 1024 * KIB));
        let modest = MemoryAccount::new(shares.clone());
        assert!(modest.may_take(16 * KIB) && !modest.may_take(17 * KIB));
        drop(greedy);
        assert!(modest.may_take(1024 * KIB) && shares.common_bytes.get() == 0);
    }

    #[test]
    fn a_lone_request_of_any_size_is_served_when_nobody_is_in_the_way() {
        let shares = MemoryShares::new(64 * KIB);
        let (large, other) = (MemoryAccount::new(shares.clone()), MemoryAccount::new(shares.clone()));
        assert!(large.may_take(100 * KIB));
        large.set(100 * KIB);
        assert!(!other.may_take(KIB) && !large.may_take(KIB));
        large.close();
        large.set(7);
        assert!(other.may_take(KIB) && shares.common_bytes.get() == 0 && shares.clients.get() == 1);
    }
}
