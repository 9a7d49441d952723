//! Places for connections that have not proven who they are: few, short-lived, and pushed out by their own kind.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;

use tokio::sync::Notify;

/// Networks from which somebody has come in that are remembered: more than a configuration has nodes.
const KNOWN_MAX: usize = 256;

/// The places behind one kind of door.
pub(crate) struct Strangers {
    most: usize,
    counter: Cell<u64>,
    /// The oldest first.
    seated: RefCell<Vec<Stranger>>,
    known: RefCell<VecDeque<IpAddr>>,
}

struct Stranger {
    number: u64,
    network: IpAddr,
    push_out: Rc<Notify>,
}

/// A stranger's place, given back on drop.
pub(crate) struct Seat {
    strangers: Rc<Strangers>,
    number: u64,
    network: IpAddr,
    push_out: Rc<Notify>,
}

impl Strangers {
    /// # Panics
    /// If there are no places.
    pub fn new(most: usize) -> Rc<Strangers> {
        assert!(most > 0, "somebody has to come in");
        Rc::new(Strangers { most, counter: Cell::new(0), seated: RefCell::default(), known: RefCell::default() })
    }

    pub fn most(&self) -> usize {
        self.most
    }

    /// Room for one more. When all is taken, the oldest of the network that holds most has to go: whoever floods us from there
    /// pushes out its own. One connection of a network from which somebody has come in before stays: a flood from everywhere does
    /// not push out a peer that comes back.
    pub fn seat(self: &Rc<Self>, from: IpAddr) -> Seat {
        let (number, network) = (self.counter.get() + 1, network(from));
        self.counter.set(number);
        let push_out = Rc::new(Notify::new());
        let mut seated = self.seated.borrow_mut();
        seated.push(Stranger { number, network, push_out: push_out.clone() });
        if seated.len() > self.most {
            let goes = self.who_goes(&seated);
            seated.remove(goes).push_out.notify_one();
        }
        drop(seated);
        Seat { strangers: self.clone(), number, network, push_out }
    }

    fn who_goes(&self, seated: &[Stranger]) -> usize {
        let known = self.known.borrow();
        let mut held = BTreeMap::new();
        seated.iter().for_each(|stranger| *held.entry(stranger.network).or_insert(0) += 1);
        let stays = |stranger: &Stranger| held[&stranger.network] == 1 && known.contains(&stranger.network);
        // Whoever has just come; if all others may stay, it goes.
        let last = seated.len() - 1;
        let others = seated[..last].iter().enumerate().filter(|(_, stranger)| !stays(stranger));
        others.max_by_key(|(at, stranger)| (held[&stranger.network], last - at)).map_or(last, |(at, _)| at)
    }
}

impl Seat {
    /// Resolves when the place is needed for others.
    pub async fn pushed_out(&self) {
        self.push_out.notified().await;
    }

    /// Whoever sat here has proven who it is, and needs the place no longer.
    pub fn came_in(self) {
        let mut known = self.strangers.known.borrow_mut();
        known.retain(|network| *network != self.network);
        if known.len() == KNOWN_MAX {
            known.pop_front();
        }
        known.push_back(self.network);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.strangers.seated.borrow_mut().retain(|stranger| stranger.number != self.number);
    }
}

/// Who holds an address holds its neighbours: of IPv6 a customer has 2^64 at the least.
/// What counts as one place to come from.
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

    fn sits(seat: &Seat) -> bool {
        let seated = seat.strangers.seated.borrow().iter().any(|stranger| stranger.number == seat.number);
        let told = pin!(seat.pushed_out()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert_eq!(seated, !told, "whoever has to go hears of it");
        seated
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_flood_pushes_out_its_own() {
        let strangers = Strangers::new(3);
        let patient = strangers.seat(ip("10.0.0.2"));
        let flood: Vec<Seat> = (0..5).map(|_| strangers.seat(ip("10.0.0.1"))).collect();
        assert!(sits(&patient));
        assert_eq!(flood.iter().map(sits).collect::<Vec<_>>(), [false, false, false, true, true]);
        drop(flood);
        assert_eq!(strangers.seated.borrow().len(), 1);
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        let strangers = Strangers::new(3);
        let patient = strangers.seat(ip("2001:db8:1::2"));
        let flood: Vec<Seat> = (0..9).map(|n| strangers.seat(ip(&format!("2001:db8:2::{n}")))).collect();
        assert!(sits(&patient) && sits(&flood[8]) && !sits(&flood[0]));
        assert_eq!(network(ip("::ffff:10.0.0.1")), ip("10.0.0.1"));
    }

    #[test]
    fn a_flood_from_everywhere_does_not_push_out_who_came_in_before() {
        let strangers = Strangers::new(3);
        let from = |last: u8| strangers.seat(IpAddr::from([10, 0, 0, last]));
        let unknown = from(1);
        from(2).came_in();
        let known = from(2);
        let flood: Vec<Seat> = (10..40).map(from).collect();
        assert!(!sits(&unknown) && sits(&known) && sits(&flood[29]));
        // As one of several it is a flood as any other, and nobody has two places for ever.
        let again = from(2);
        assert!(!sits(&known) && sits(&again));
    }

    #[test]
    fn only_so_many_networks_are_remembered() {
        let strangers = Strangers::new(1);
        let network = |number: u16| IpAddr::from([10, (number >> 8) as u8, number as u8, 1]);
        (0..=KNOWN_MAX as u16).for_each(|number| strangers.seat(network(number)).came_in());
        let known = strangers.known.borrow();
        assert!(known.len() == KNOWN_MAX && !known.contains(&network(0)) && known.contains(&network(KNOWN_MAX as u16)));
    }

    #[test]
    fn where_all_may_stay_the_newest_goes() {
        let strangers = Strangers::new(2);
        let from = |last: u8| strangers.seat(IpAddr::from([10, 0, 0, last]));
        (1..3).for_each(|last| from(last).came_in());
        let inside = [from(1), from(2)];
        let late = from(9);
        assert!(inside.iter().all(sits) && !sits(&late));
    }
}
