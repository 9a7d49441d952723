//! Connections that have not proven who they are: few, short-lived, evicted by their own kind, and not more of them a second than
//! the data thread has time for beside its work.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// Networks from which somebody has come in that are remembered: more than a configuration has nodes.
const KNOWN_MAX: usize = 256;

/// Handshakes from one network that may begin a second, and of all networks together from which nobody came in before. One costs the
/// thread that carries the data half a millisecond, so strangers get a fifth of it at most.
pub(crate) const HANDSHAKES_PER_S: u32 = 100;
const HANDSHAKES_OF_STRANGERS_PER_S: u32 = 400;
/// As many of a network may begin at once: the clients of a host that comes back.
const HANDSHAKES_AT_ONCE: u32 = 1024;
/// Who would have to wait longer is turned away.
const HANDSHAKE_WAIT_MAX: Duration = Duration::from_secs(2);
/// Networks whose pace is remembered, besides the known.
const STRANGERS_MAX: usize = 256;

/// Those of one kind of listener.
pub(crate) struct UnauthenticatedPeers {
    most: usize,
    counter: Cell<u64>,
    /// The oldest first.
    waiting: RefCell<Vec<UnauthenticatedPeer>>,
    /// From which somebody has come in, or is expected; the latest last.
    known: RefCell<VecDeque<PacedNetwork>>,
    strangers: RefCell<VecDeque<PacedNetwork>>,
    all_strangers: Pace,
}

struct PacedNetwork {
    network: IpAddr,
    pace: Pace,
}

impl PacedNetwork {
    fn of(network: IpAddr) -> PacedNetwork {
        PacedNetwork { network, pace: Pace::per_second(HANDSHAKES_PER_S) }
    }
}

/// When the next handshake is due.
struct Pace {
    interval: Duration,
    due: Cell<Option<Instant>>,
}

impl Pace {
    fn per_second(count: u32) -> Pace {
        Pace { interval: Duration::from_secs(1) / count, due: Cell::new(None) }
    }

    /// How long one more has to wait.
    fn wait(&self, now: Instant) -> Duration {
        let ahead = self.due.get().map_or(Duration::ZERO, |due| due.saturating_duration_since(now));
        ahead.saturating_sub(self.interval * (HANDSHAKES_AT_ONCE - 1))
    }

    fn count_one(&self, now: Instant) {
        self.due.set(Some(self.due.get().map_or(now, |due| due.max(now)) + self.interval));
    }
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
            strangers: RefCell::default(),
            all_strangers: Pace::per_second(HANDSHAKES_OF_STRANGERS_PER_S),
        })
    }

    /// Somebody from there is expected: a flood from elsewhere does not push him out, though nobody came in so far.
    pub fn expect(&self, address: IpAddr) {
        self.learn(network(address));
    }

    fn learn(&self, network: IpAddr) {
        let mut known = self.known.borrow_mut();
        let before = known.iter().position(|known| known.network == network).and_then(|at| known.remove(at));
        if known.len() == KNOWN_MAX {
            known.pop_front();
        }
        known.push_back(before.unwrap_or_else(|| PacedNetwork::of(network)));
    }

    /// How long a handshake has to wait that would begin `now`; `None`: too long, and it is not counted.
    fn wait(&self, from: IpAddr, now: Instant) -> Option<Duration> {
        if let Some(known) = self.known.borrow().iter().find(|known| known.network == from) {
            return take_turn(&[&known.pace], now);
        }
        let mut strangers = self.strangers.borrow_mut();
        let at = strangers.iter().position(|stranger| stranger.network == from).unwrap_or_else(|| {
            if strangers.len() == STRANGERS_MAX {
                strangers.pop_front();
            }
            strangers.push_back(PacedNetwork::of(from));
            strangers.len() - 1
        });
        take_turn(&[&strangers[at].pace, &self.all_strangers], now)
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
        let is_known = |network: IpAddr| known.iter().any(|known| known.network == network);
        let stays = |peer: &UnauthenticatedPeer| held[&peer.network] == 1 && is_known(peer.network);
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

    /// Waits until the handshake may begin; false: too many are before it.
    pub async fn turn(&self) -> bool {
        let wait = self.unauthenticated.wait(self.network, Instant::now());
        if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
            sleep(wait).await;
        }
        wait.is_some()
    }

    /// The peer has proven who it is, and needs the slot no longer.
    pub fn authenticated(self) {
        self.unauthenticated.learn(self.network);
    }
}

impl Drop for UnauthenticatedSlot {
    fn drop(&mut self) {
        self.unauthenticated.waiting.borrow_mut().retain(|peer| peer.number != self.number);
    }
}

/// The longest of these waits, and one more for each; `None`: it is too long, and counts nowhere.
fn take_turn(paces: &[&Pace], now: Instant) -> Option<Duration> {
    let wait = paces.iter().map(|pace| pace.wait(now)).max().unwrap_or_default();
    (wait <= HANDSHAKE_WAIT_MAX).then(|| {
        paces.iter().for_each(|pace| pace.count_one(now));
        wait
    })
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
        let knows = |address: IpAddr| known.iter().any(|known| known.network == address);
        assert!(known.len() == KNOWN_MAX && !knows(network(0)) && knows(network(KNOWN_MAX as u16)));
    }

    /// Each costs signatures on the thread that carries the data.
    #[test]
    fn a_flood_of_handshakes_is_paced_and_turned_away() {
        let unauthenticated = UnauthenticatedPeers::new(1);
        let now = Instant::now();
        let wait = |last: u8, now| unauthenticated.wait(IpAddr::from([10, 0, 0, last]), now);
        let at_once = (0..HANDSHAKES_AT_ONCE).map(|_| wait(7, now));
        assert!(at_once.eq((0..HANDSHAKES_AT_ONCE).map(|_| Some(Duration::ZERO))), "the clients of a host come back");
        let waits: Vec<_> = (0..1000).map(|_| wait(7, now)).collect();
        assert_eq!(waits.iter().flatten().count(), 200, "two seconds of a hundred each");
        assert_eq!(waits[199..201], [Some(HANDSHAKE_WAIT_MAX), None]);
        assert!(
            wait(8, now).is_some_and(|wait| wait < Duration::from_secs(1)),
            "another network does not wait for that one"
        );
        assert_eq!(wait(7, now + Duration::from_millis(10)), Some(HANDSHAKE_WAIT_MAX));
    }

    #[test]
    fn a_flood_from_everywhere_keeps_nobody_waiting_who_is_expected() {
        let unauthenticated = UnauthenticatedPeers::new(1);
        let peer = IpAddr::from([192, 168, 0, 1]);
        unauthenticated.expect(peer);
        let now = Instant::now();
        let strangers = (0..5000_u16).map(|number| IpAddr::from([10, (number >> 8) as u8, number as u8, 1]));
        let came = strangers.filter(|from| unauthenticated.wait(*from, now).is_some()).count();
        assert_eq!(came, (HANDSHAKES_AT_ONCE + 2 * HANDSHAKES_OF_STRANGERS_PER_S) as usize);
        assert_eq!(unauthenticated.wait(peer, now), Some(Duration::ZERO));
        assert_eq!(unauthenticated.strangers.borrow().len(), STRANGERS_MAX);
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
