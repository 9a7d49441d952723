//! One session with a peer: is it alive, how fast is it, what may be handed to its socket. Groups share it by bytes
//! (`share.rs`).

use alloc::collections::BTreeSet;
use core::time::Duration;

use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::limits;
use crate::shared::link_scheduler::LinkScheduler;
use crate::time::Mono;

/// What a group sees of the link to its peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerView {
    pub link: Option<LinkId>,
    pub session: SessionId,
    pub part_bytes: u64,
    /// Of what the peer takes in one step: a second of the link; where groups share it, one turn, so that no step takes many.
    pub step_bytes: u64,
    /// What can wait is not said now: the peer does not take what it was told before.
    pub is_clogged: bool,
    /// Bytes per second, once measured.
    pub rate: Option<u64>,
    last_heard: Mono,
    /// Zero before it is measured.
    pub round_trip: Duration,
    /// Silence for so long ends the session.
    pub timeout: Duration,
}

impl PeerView {
    /// A peer that shows no progress for so long while its link lives is given up. Whoever lets a silent peer keep its session for longer
    /// has a reason for it, such as a disk there that changes over to another path: this one is not given up earlier.
    pub fn stalls_after(&self) -> Duration {
        limits::SYNC_STALLED_AFTER.max(self.timeout)
    }

    pub fn silent_for(&self, now: Mono) -> Duration {
        now.since(self.last_heard)
    }

    /// The link takes so long for that, once its rate is known.
    pub fn time_of(&self, bytes: u64) -> Duration {
        self.rate.map_or(Duration::ZERO, |rate| Duration::from_millis(bytes * 1000 / rate.max(1)))
    }

    /// Nothing more of a resync is read while so much of it stands unsent in the queue: a live write comes behind that,
    /// and waits for a second of the link and one read more than it would without the resync.
    pub fn resync_backlog_bytes(&self) -> u64 {
        let rate = self.rate.unwrap_or(limits::RESYNC_BACKLOG_BYTES_UNMEASURED);
        rate.min(limits::RESYNC_BACKLOG_BYTES_MAX)
    }

    /// Silence after which writers who may be answered without the peer are.
    pub fn left_behind_after(&self) -> Duration {
        limits::SILENCE_LEAVES_BEHIND.max(limits::SILENCE_LEAVES_BEHIND_ROUND_TRIPS * self.round_trip)
    }

    /// Silence that makes a pulled cable likelier than a slow peer.
    pub fn suspect_after(&self) -> Duration {
        limits::SILENCE_SUSPECT + 4 * self.round_trip
    }
}

/// How the link looks to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LinkStatus {
    /// Never up since the start.
    #[default]
    Connecting,
    Connected,
    Congested,
    Disconnected,
}

impl LinkStatus {
    pub fn word(self) -> &'static str {
        match self {
            LinkStatus::Connecting => "connecting",
            LinkStatus::Connected => "connected",
            LinkStatus::Congested => "congested",
            LinkStatus::Disconnected => "disconnected",
        }
    }
}

/// Bytes per second, measured when there is something left to send. A stretch that was idle in part shows the load, and that is meant:
/// it errs to the low side, and a slow link that only carried heartbeats must not get the credit of one that was never measured,
/// behind which those would come too late (rule 25).
#[derive(Clone, Copy, Debug, Default)]
struct LinkRate {
    since: Mono,
    bytes: u64,
    per_second: Option<u64>,
}

impl LinkRate {
    /// Shortest stretch that gives a figure.
    const WINDOW: Duration = Duration::from_millis(250);

    fn count(&mut self, now: Mono, bytes: u64, busy: bool) {
        self.bytes += bytes;
        let elapsed = now.since(self.since);
        if elapsed < LinkRate::WINDOW {
            return;
        }
        if busy {
            let measured = (u128::from(self.bytes) * 1_000_000_000 / elapsed.as_nanos().max(1)) as u64;
            self.per_second = Some(self.per_second.map_or(measured, |old| (old * 3 + measured) / 4).max(1));
        }
        (self.since, self.bytes) = (now, 0);
    }
}

/// What a group is to its link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkUse {
    /// It has a stream or a snapshot to send.
    pub sends: bool,
    /// Its writers wait for the peer.
    pub awaited: bool,
}

/// A link to one peer, through all its sessions.
#[derive(Debug)]
pub(crate) struct PeerLink {
    pub peer: NodeId,
    pub session: Option<(LinkId, SessionId)>,
    last_heard: Mono,
    last_progress: Mono,
    /// Handed to the host, not yet taken by its socket.
    unsent_bytes: u64,
    round_trip: Duration,
    rate: LinkRate,
    pub status: LinkStatus,
    pub since: Mono,
    pub reason: alloc::string::String,
    /// Groups that may have something to send.
    shares: LinkScheduler,
    /// Groups that send to this peer, and those of them whose writers wait for it.
    senders: u32,
    awaited: u32,
    /// This node refused a frame of this session, or ended it: no frame behind that counts.
    pub refused: bool,
    /// The peer's newest heartbeat, until it is sent back.
    pub echo_due: Option<alloc::vec::Vec<u8>>,
    up_at: Mono,
    /// Groups that the nodes define differently, or that one of them does not have: they do not meet in this session.
    apart: BTreeSet<GroupId>,
}

/// Why a group sees no link though there is one.
const APART: &str = "the peer has no such group, or defines it differently: give both nodes the same configuration file, and 'farshore config \
     apply' on both";

/// How the link looks to a group.
pub(crate) struct ShownLink<'a> {
    pub status: LinkStatus,
    pub since: Mono,
    pub reason: &'a str,
    pub round_trip: Duration,
    /// Bytes per second, once measured.
    pub rate: Option<u64>,
}

impl PeerLink {
    pub fn new(peer: NodeId) -> PeerLink {
        PeerLink {
            peer,
            session: None,
            last_heard: Mono(0),
            last_progress: Mono(0),
            unsent_bytes: 0,
            round_trip: Duration::ZERO,
            rate: LinkRate::default(),
            status: LinkStatus::Connecting,
            since: Mono(0),
            reason: alloc::string::String::new(),
            shares: LinkScheduler::default(),
            senders: 0,
            awaited: 0,
            refused: false,
            echo_due: None,
            up_at: Mono(0),
            apart: BTreeSet::new(),
        }
    }

    pub fn up(&mut self, now: Mono, link: LinkId, session: SessionId, apart: BTreeSet<GroupId>) {
        self.apart = apart;
        self.session = Some((link, session));
        self.unsent_bytes = 0;
        (self.refused, self.echo_due, self.up_at) = (false, None, now);
        (self.last_heard, self.last_progress) = (now, now);
        self.rate.since = now;
        self.rate.bytes = 0;
        self.show(now, LinkStatus::Connected, "");
    }

    pub fn down(&mut self, now: Mono, reason: &str) {
        self.session = None;
        self.show(now, LinkStatus::Disconnected, reason);
    }

    /// The group came after the session had begun.
    pub fn keeps_apart(&mut self, group: GroupId) {
        self.apart.insert(group);
    }

    pub fn is_apart(&self, group: GroupId) -> bool {
        self.apart.contains(&group)
    }

    /// How the link is to a group.
    pub fn shown_to(&self, group: GroupId) -> ShownLink<'_> {
        let shown = ShownLink {
            status: self.status,
            since: self.since,
            reason: &self.reason,
            round_trip: self.round_trip(),
            rate: self.rate(),
        };
        if self.session.is_some() && self.is_apart(group) {
            return ShownLink { status: LinkStatus::Disconnected, since: self.up_at, reason: APART, ..shown };
        }
        shown
    }

    fn show(&mut self, now: Mono, status: LinkStatus, reason: &str) {
        if self.status != status {
            self.since = now;
        }
        self.status = status;
        self.reason = reason.into();
    }

    pub fn is(&self, link: LinkId) -> bool {
        self.session.is_some_and(|(id, _)| id == link)
    }

    pub fn heard(&mut self, now: Mono) {
        self.last_heard = now;
    }

    pub fn echo(&mut self, now: Mono, sent_at: Mono) {
        // Of a heartbeat of this session, whatever the peer makes of it.
        let sample = now.since(sent_at.max(self.up_at));
        self.round_trip = if self.round_trip.is_zero() { sample } else { (self.round_trip * 7 + sample) / 8 };
    }

    /// The group of this weight may have something to send: it gets a turn.
    pub fn offer(&mut self, group: GroupId, weight: u8) {
        self.shares.offer(group, self.part_bytes(), weight);
    }

    /// Whose turn it is, while the link has credit.
    pub fn next_group(&mut self) -> Option<GroupId> {
        if self.session.is_none() || !self.has_credit() {
            return None;
        }
        self.shares.next(self.part_bytes())
    }

    /// The group whose turn it is sent a frame.
    pub fn group_sent(&mut self, now: Mono, group: GroupId, bytes: u64) {
        self.handed(now, bytes);
        self.shares.took(group, bytes);
    }

    /// The group whose turn it is has nothing to send.
    pub fn rests(&mut self, group: GroupId) {
        self.shares.rests(group);
    }

    /// What a group is to the link changed.
    pub fn uses(&mut self, before: LinkUse, now: LinkUse) {
        self.senders = self.senders + u32::from(now.sends) - u32::from(before.sends);
        self.awaited = self.awaited + u32::from(now.awaited) - u32::from(before.awaited);
    }

    /// What is handed over for one group would make another one's writers wait.
    fn is_waited_for(&self) -> bool {
        self.awaited > 0 && self.senders > 1
    }

    /// The engine handed a frame of this size to the host.
    pub fn handed(&mut self, now: Mono, bytes: u64) {
        if self.unsent_bytes == 0 {
            self.last_progress = now;
        }
        self.unsent_bytes += bytes;
    }

    /// The socket took this much.
    pub fn sent(&mut self, now: Mono, bytes: u64) {
        self.unsent_bytes = self.unsent_bytes.saturating_sub(bytes);
        self.last_progress = now;
        self.rate.count(now, bytes, self.unsent_bytes > 0);
        if self.status == LinkStatus::Congested {
            self.show(now, LinkStatus::Connected, "");
        }
    }

    /// More may be handed over without a heartbeat waiting too long behind it (rule 25).
    pub fn has_credit(&self) -> bool {
        let credit_bytes = if self.is_waited_for() { self.short_credit_bytes() } else { self.credit_bytes() };
        self.unsent_bytes < credit_bytes
    }

    /// Of what other groups send no more is ahead of a writer who waits for the peer.
    fn short_credit_bytes(&self) -> u64 {
        let rate = self.rate.per_second.unwrap_or(0);
        let share = (u128::from(rate) * limits::UNSENT_TIME_AWAITED.as_nanos() / 1_000_000_000) as u64;
        share.clamp(limits::UNSENT_BYTES_AWAITED_MIN, self.credit_bytes())
    }

    /// So much waits beyond its credit that what is repeated or summed up later is not said now: heartbeats, their echoes,
    /// clocks, confirmations.
    pub fn is_clogged(&self) -> bool {
        self.unsent_bytes >= self.credit_bytes() + limits::CLOGGED_BYTES
    }

    /// More waits than any honest peer leaves unread, with so many groups: how much.
    pub fn owes_too_much(&self, groups: u64) -> Option<u64> {
        let most = limits::UNSENT_BYTES_MAX + limits::PART_BYTES_MAX + limits::CONTROL_UNSENT_BYTES_MAX;
        let most = most + groups * limits::CONTROL_UNSENT_BYTES_PER_GROUP;
        Some(self.unsent_bytes).filter(|bytes| *bytes > most)
    }

    fn credit_bytes(&self) -> u64 {
        match self.rate.per_second {
            None => limits::UNSENT_BYTES_UNMEASURED,
            Some(rate) => {
                let share = (u128::from(rate) * limits::UNSENT_TIME.as_nanos() / 1_000_000_000) as u64;
                share.clamp(limits::UNSENT_BYTES_MIN, limits::UNSENT_BYTES_MAX)
            }
        }
    }

    /// Largest part of a write that is admitted now.
    pub fn part_bytes(&self) -> u64 {
        let rate = self.rate.per_second;
        if self.is_waited_for() { limits::part_bytes_awaited(rate) } else { limits::part_bytes(rate) }
    }

    fn step_bytes(&self) -> u64 {
        match self.rate.per_second {
            Some(rate) if self.senders < 2 || injected(Fault::EpochOfWholeLink) => {
                rate.clamp(limits::PART_BYTES_MIN, limits::EPOCH_BYTES_MAX)
            }
            _ => self.part_bytes(),
        }
    }

    pub fn view(&self, group: GroupId) -> PeerView {
        let session = self.session.filter(|_| !self.is_apart(group));
        PeerView {
            link: session.map(|(link, _)| link),
            session: session.map_or(SessionId(0), |(_, session)| session),
            part_bytes: self.part_bytes(),
            step_bytes: self.step_bytes(),
            is_clogged: self.is_clogged(),
            rate: self.rate.per_second,
            last_heard: self.last_heard,
            round_trip: self.round_trip,
            // The node's own setting, which it adds.
            timeout: Duration::ZERO,
        }
    }

    pub fn silence(&self, now: Mono) -> Duration {
        now.since(self.last_heard)
    }

    pub fn look_for_congestion(&mut self, now: Mono) {
        let stuck = self.unsent_bytes > 0 && now.since(self.last_progress) >= limits::CONGESTED_AFTER;
        if stuck && self.status == LinkStatus::Connected {
            self.show(now, LinkStatus::Congested, "the socket takes nothing");
        }
    }

    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }

    pub fn rate(&self) -> Option<u64> {
        self.rate.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: rule 25
    #[test]
    fn part_size_and_resync_backlog_follow_the_rate_within_their_bounds() {
        let mut link = PeerLink::new(NodeId(1));
        link.up(Mono(0), LinkId(1), SessionId(1), Default::default());
        assert_eq!(link.part_bytes(), limits::PART_BYTES_UNMEASURED);
        assert_eq!(link.view(GroupId(1)).resync_backlog_bytes(), limits::RESYNC_BACKLOG_BYTES_UNMEASURED);
        link.handed(Mono(0), 1 << 30);
        link.sent(Mono(1_000_000_000), 16_000);
        assert_eq!(link.part_bytes(), limits::PART_BYTES_MIN, "128 kbit/s");
        assert_eq!(link.view(GroupId(1)).resync_backlog_bytes(), 16_000, "a second");
        for second in 2..40 {
            link.sent(Mono(second * 1_000_000_000), 125_000_000 / 10);
        }
        assert_eq!(link.part_bytes(), limits::PART_BYTES_MAX, "100 Mbit/s");
        assert!(link.rate().is_some_and(|rate| (12_000_000..=12_500_000).contains(&rate)), "{:?}", link.rate());
        assert_eq!(link.view(GroupId(1)).resync_backlog_bytes(), limits::RESYNC_BACKLOG_BYTES_MAX);
    }

    // proves: rule 17
    #[test]
    fn a_peer_has_as_long_for_progress_as_its_session_has_for_a_word_and_never_less_than_a_minute() {
        let after = |timeout| PeerView { timeout, ..PeerView::default() }.stalls_after().as_secs();
        assert_eq!(after(limits::LINK_TIMEOUT_DEFAULT), 60);
        assert_eq!(after(limits::LINK_TIMEOUT_MAX), 600);
    }

    #[test]
    fn a_socket_that_takes_nothing_is_congested_until_it_does() {
        let mut link = PeerLink::new(NodeId(1));
        link.up(Mono(0), LinkId(1), SessionId(1), Default::default());
        link.handed(Mono(0), 100);
        link.look_for_congestion(Mono(2_000_000_000));
        assert_eq!(link.status, LinkStatus::Congested);
        link.sent(Mono(2_100_000_000), 50);
        assert_eq!(link.status, LinkStatus::Connected);
    }

    /// What docs/book/protocol.md grants a peer that reads nothing: the largest credit, the frame behind it, and greetings for each group.
    #[test]
    fn a_peer_owes_too_much_by_what_its_groups_may_be_owed() {
        let mut link = PeerLink::new(NodeId(1));
        link.up(Mono(0), LinkId(1), SessionId(1), Default::default());
        let most = (8 << 20) + (1 << 20) + (1 << 20) + 100 * (8 << 10);
        link.unsent_bytes = most;
        assert_eq!(link.owes_too_much(100), None);
        assert_eq!(link.owes_too_much(99), Some(most));
        link.unsent_bytes += 1;
        assert_eq!(link.owes_too_much(100), Some(most + 1));
    }

    // proves: rule 25
    #[test]
    fn little_is_handed_over_while_another_groups_writers_wait() {
        let mut link = PeerLink::new(NodeId(1));
        let (idle, sends) = (LinkUse::default(), LinkUse { sends: true, awaited: false });
        let awaited = LinkUse { sends: true, awaited: true };
        let most = |link: &mut PeerLink, rate| {
            link.rate.per_second = rate;
            let fits = |bytes: &u64| {
                link.unsent_bytes = *bytes - 1;
                link.has_credit()
            };
            let credit = (1..=14u64).map(|n| 1 << (n + 9)).rev().find(fits).expect("some");
            (credit, link.part_bytes())
        };
        link.uses(idle, awaited);
        assert_eq!(most(&mut link, Some(12_500_000)), (2 << 20, 1 << 20), "it waits for nobody but itself");
        link.uses(idle, sends);
        assert_eq!(most(&mut link, Some(12_500_000)), (128 << 10, 128 << 10));
        assert_eq!(most(&mut link, Some(100_000)), (32 << 10, 16 << 10));
        assert_eq!(most(&mut link, Some(16_000)), (32 << 10, 8 << 10));
        assert_eq!(most(&mut link, Some(1 << 40)), (8 << 20, 1 << 20));
        link.uses(awaited, sends);
        assert_eq!(most(&mut link, Some(12_500_000)), (2 << 20, 1 << 20), "nobody waits");
    }

    // proves: rule 25
    #[test]
    fn credit_is_a_quarter_of_a_second_of_the_rate() {
        let mut link = PeerLink::new(NodeId(1));
        let mut credit = |rate| {
            link.rate.per_second = rate;
            link.credit_bytes()
        };
        assert_eq!(credit(None), 512 << 10);
        assert_eq!(credit(Some(10_000)), 64 << 10);
        assert_eq!(credit(Some(1_000_000)), 250_000);
        assert_eq!(credit(Some(1 << 40)), 8 << 20);
        assert_eq!(link.view(GroupId(1)).resync_backlog_bytes(), 2 << 20, "keeps the fastest link busy");
    }

    /// A link on which nobody has anything to say was shown as congested, and so was one that had just been given something.
    #[test]
    fn a_socket_that_is_idle_or_was_just_asked_is_not_congested() {
        let mut link = PeerLink::new(NodeId(1));
        link.up(Mono(0), LinkId(1), SessionId(1), Default::default());
        link.look_for_congestion(Mono(100_000_000_000));
        assert_eq!(link.status, LinkStatus::Connected, "idle");
        link.handed(Mono(100_000_000_000), 100);
        link.look_for_congestion(Mono(100_100_000_000));
        assert_eq!(link.status, LinkStatus::Connected, "asked 100 ms ago");
    }

    /// The round trip was not known, and windows stayed as small as they begin.
    #[test]
    fn a_round_trip_is_an_eighth_of_what_comes_and_the_rest_of_what_was() {
        let mut link = PeerLink::new(NodeId(1));
        link.up(Mono(1_000), LinkId(1), SessionId(1), Default::default());
        link.echo(Mono(9_000), Mono(500));
        assert_eq!(link.round_trip(), Duration::from_nanos(8_000), "no longer than the session lasts");
        link.echo(Mono(32_000), Mono(16_000));
        assert_eq!(link.round_trip(), Duration::from_nanos(9_000));
    }
}
