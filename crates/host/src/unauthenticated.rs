//! Connections that have not proven who they are: few, short-lived, and evicted by their own kind.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;

use tokio::sync::Notify;

/// Networks from which somebody has come in that are remembered: more than a configuration has nodes.
const KNOWN_MAX: usize = 256;

/// Those of one kind of listener.
pub(crate) struct UnauthenticatedPeers {
    most: usize,
    counter: Cell<u64>,
    /// The oldest first.
    waiting: RefCell<Vec<UnauthenticatedPeer>>,
    known: RefCell<VecDeque<IpAddr>>,
}

struct UnauthenticatedPeer {
    number: u64,
    network: IpAddr,
    evict: Rc<Notify>,
}

/// An unauthenticated peer's slot, given back on drop.
pub(crate) struct UnauthenticatedSlot {
    unauthenticated: Rc<UnauthenticatedPeers>,
    number: u64,
    network: IpAddr,
    evict: Rc<Notify>,
}

impl UnauthenticatedPeers {
    /// # Panics
    /// If there are no slots.
    pub fn new(most: usize) -> Rc<UnauthenticatedPeers> {
        assert!(most > 0, "somebody has to come in");
        Rc::new(UnauthenticatedPeers {
            most,
            counter: Cell::new(0),
            waiting: RefCell::default(),
            known: RefCell::default(),
        })
    }

    pub fn most(&self) -> usize {
        self.most
    }

    /// Room for one more. When all is taken, the oldest of the network that holds most has to go: whoever floods us from there
    /// evicts its own. One connection of a network from which somebody has come in before stays: a flood from everywhere does
    /// not push out a peer that comes back.
    pub fn admit(self: &Rc<Self>, from: IpAddr) -> UnauthenticatedSlot {
        let (number, network) = (self.counter.get() + 1, network(from));
        self.counter.set(number);
        let evict = Rc::new(Notify::new());
        let mut waiting = self.waiting.borrow_mut();
        waiting.push(UnauthenticatedPeer { number, network, evict: evict.clone() });
        if waiting.len() > self.most {
            let leaving = self.choose_evicted(&waiting);
            waiting.remove(leaving).evict.notify_one();
        }
        drop(waiting);
        UnauthenticatedSlot { unauthenticated: self.clone(), number, network, evict }
    }

    fn choose_evicted(&self, waiting: &[UnauthenticatedPeer]) -> usize {
        let known = self.known.borrow();
        let mut held = BTreeMap::new();
        waiting.iter().for_each(|peer| *held.entry(peer.network).or_insert(0) += 1);
        let stays = |peer: &UnauthenticatedPeer| held[&peer.network] == 1 && known.contains(&peer.network);
        // Whoever has just come; if all others may stay, it goes.
        let last = waiting.len() - 1;
        let others = waiting[..last].iter().enumerate().filter(|(_, peer)| !stays(peer));
        others.max_by_key(|(at, peer)| (held[&peer.network], last - at)).map_or(last, |(at, _)| at)
    }
}

impl UnauthenticatedSlot {
    /// Resolves when the slot is needed for others.
    pub async fn evicted(&self) {
        self.evict.notified().await;
    }

    /// The peer has proven who it is, and needs the slot no longer.
    pub fn authenticated(self) {
        let mut known = self.unauthenticated.known.borrow_mut();
        known.retain(|network| *network != self.network);
        if known.len() == KNOWN_MAX {
            known.pop_front();
        }
        known.push_back(self.network);
    }
}

impl Drop for UnauthenticatedSlot {
    fn drop(&mut self) {
        self.unauthenticated.waiting.borrow_mut().retain(|peer| peer.number != self.number);
    }
}

/// What counts as one origin. Who holds an address holds its neighbours: of IPv6 a customer has 2^64 at the least.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn waits(slot: &UnauthenticatedSlot) -> bool {
        let waiting = slot.unauthenticated.waiting.borrow().iter().any(|peer| peer.number == slot.number);
        let is_evicted = pin!(slot.evicted()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert_eq!(waiting, !is_evicted, "whoever has to go hears of it");
        waiting
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_flood_pushes_out_its_own() {
        let unauthenticated = UnauthenticatedPeers::new(3);
        let patient = unauthenticated.admit(ip("10.0.0.2"));
        let flood: Vec<UnauthenticatedSlot> = (0..5).map(|_| unauthenticated.admit(ip("10.0.0.1"))).collect();
        assert!(waits(&patient));
        assert_eq!(flood.iter().map(waits).collect::<Vec<_>>(), [false, false, false, true, true]);
        drop(flood);
        assert_eq!(unauthenticated.waiting.borrow().len(), 1);
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        let unauthenticated = UnauthenticatedPeers::new(3);
        let patient = unauthenticated.admit(ip("2001:db8:1::2"));
        let flood: Vec<UnauthenticatedSlot> =
            (0..9).map(|n| unauthenticated.admit(ip(&format!("2001:db8:2::{n}")))).collect();
        assert!(waits(&patient) && waits(&flood[8]) && !waits(&flood[0]));
        assert_eq!(network(ip("::ffff:10.0.0.1")), ip("10.0.0.1"));
    }

    #[test]
    fn a_flood_from_everywhere_does_not_push_out_who_came_in_before() {
        let unauthenticated = UnauthenticatedPeers::new(3);
        let from = |last: u8| unauthenticated.admit(IpAddr::from([10, 0, 0, last]));
        let unknown = from(1);
        from(2).authenticated();
        let known = from(2);
        let flood: Vec<UnauthenticatedSlot> = (10..40).map(from).collect();
        assert!(!waits(&unknown) && waits(&known) && waits(&flood[29]));
        // As one of several it is a flood as any other, and nobody has two slots for ever.
        let again = from(2);
        assert!(!waits(&known) && waits(&again));
    }

    #[test]
    fn only_so_many_networks_are_remembered() {
        let unauthenticated = UnauthenticatedPeers::new(1);
        let network = |number: u16| IpAddr::from([10, (number >> 8) as u8, number as u8, 1]);
        (0..=KNOWN_MAX as u16).for_each(|number| unauthenticated.admit(network(number)).authenticated());
        let known = unauthenticated.known.borrow();
        assert!(known.len() == KNOWN_MAX && !known.contains(&network(0)) && known.contains(&network(KNOWN_MAX as u16)));
    }

    #[test]
    fn where_all_may_stay_the_newest_goes() {
        let unauthenticated = UnauthenticatedPeers::new(2);
        let from = |last: u8| unauthenticated.admit(IpAddr::from([10, 0, 0, last]));
        (1..3).for_each(|last| from(last).authenticated());
        let inside = [from(1), from(2)];
        let late = from(9);
        assert!(inside.iter().all(waits) && !waits(&late));
    }
}
