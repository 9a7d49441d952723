//! One connection of a test: what arrives, what was confirmed, and how it ended.
//!
//! The receiving half is driven by the link's own callbacks; whoever waits does so in [`TestWire::until`], which the end of the
//! connection ends.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use engine::wire::{Ack, FrameHeader, FrameKind, flags};
use engine::{Buf, FramePayload, GroupId, LinkId, NodeId, SendPayload, Seq, SessionId, Slice, limits};
use host::buffers::Pool;
use host::link::single::SingleConnection;
use host::link::{LinkEvents, LinkSender, PeerInfo};
use host::tcp_info::TcpInfo;
use host::timer::Pauser;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::TestFailure;
use super::disk::TestDisk;
use super::tally::{Socket, ValueSpread};
use super::terms::{FLUSH_BYTES, Terms, TestMode};
use super::words::{self, Word, WordAssembler};

/// Received and not on the receiving disk: beyond it nothing is confirmed as received either.
const BACKLOG_BYTES: u64 = limits::WINDOW_BYTES_DEFAULT;
/// Words that nobody has taken yet: a test knows no more than a few.
const KEPT_MAX: usize = 8;
/// Echoes, times and confirmations that the other end has not read, beside what was handed over.
const ANSWERS_BYTES_MAX: u64 = 1 << 20;
/// After an interrupt what is queued has so long to arrive: the rest is not in the figures.
const DRAIN: Duration = Duration::from_secs(2);
/// [`FrameKind::Data`] of a flush that is in the figures: what began before its sender's omitted time was over is not.
const COUNTS: u16 = 1 << 15;
pub const DEAF: &str = "the other end asks and does not read the answers";
/// Received bytes in memory at a time; each is given back as soon as it is counted.
const POOL_BYTES: usize = 64 << 20;

/// The stream that arrives.
#[derive(Default)]
pub struct Arriving {
    /// Where its figures begin, by its sender's word.
    pub began: Option<Instant>,
    /// Latest byte, and what its writer waited for behind that.
    pub last: Option<Instant>,
    /// All that came.
    pub bytes: u64,
    flushes: u64,
    /// Bytes and flushes of these that are in the figures.
    pub counted: (u64, u64),
    /// Bytes of the unfinished flush.
    part: u64,
    /// Flushes that are not on the disk.
    backlog: VecDeque<Landed>,
    backlog_bytes: u64,
    durable: u64,
    /// Spent waiting for the disk.
    pub disk_s: f64,
    /// Last told: received, durable.
    acked: (u64, u64),
    ended: bool,
}

/// A flush that has arrived.
#[derive(Clone, Copy)]
struct Landed {
    number: u64,
    size: u64,
    /// When a modelled disk is done with it.
    due: Option<Instant>,
    counts: bool,
}

/// The stream that leaves, as far as it is confirmed.
#[derive(Default)]
pub struct Leaving {
    pub received: u64,
    pub durable: u64,
    /// Handed over and not durable.
    open: VecDeque<Open>,
    pub open_bytes: u64,
    last_handed_over: Option<Instant>,
    pub durable_bytes: u64,
    pub confirmed_us: ValueSpread,
}

/// A flush that is on its way.
#[derive(Clone, Copy)]
struct Open {
    number: u64,
    size: u64,
    since: Instant,
    counts: bool,
}

impl Leaving {
    pub fn open_flushes(&self) -> usize {
        self.open.len()
    }

    /// Flushes and bytes that are in the figures and not durable.
    pub fn unconfirmed(&self) -> (u64, u64) {
        let counted = self.open.iter().filter(|open| open.counts);
        counted.fold((0, 0), |sum, open| (sum.0 + 1, sum.1 + open.size))
    }
}

/// Where arriving flushes go.
#[derive(Clone)]
struct Landing {
    disk: Rc<TestDisk>,
    /// So many of them may wait for it.
    backlog_max: usize,
    /// The writer waits for it too.
    waits_for_disk: bool,
}

pub struct TestWire {
    pub sender: Rc<LinkSender>,
    pub session: SessionId,
    pub address: SocketAddr,
    pub socket: RefCell<Socket>,
    pub leaving: RefCell<Leaving>,
    pub arriving: RefCell<Arriving>,
    /// Of a flush in one frame at most, as by the rate that was measured.
    part_bytes: Cell<u64>,
    /// Bytes of frames that were handed over.
    pushed_bytes: Cell<u64>,
    landing: OnceCell<Landing>,
    heard: Cell<Instant>,
    /// Ends the connection when nothing is heard.
    watchdog: RefCell<Option<AbortHandle>>,
    /// This end ended it; because nothing was heard.
    is_cut: Cell<bool>,
    is_silent: Cell<bool>,
    down: RefCell<Option<String>>,
    /// Since when somebody wants no more flushes: nobody waits for a disk from there on.
    stopped: Cell<Option<Instant>>,
    ear: RefCell<WordAssembler>,
    words: RefCell<VecDeque<Word>>,
    /// The newest: pings follow one another.
    echo: Cell<u64>,
    news: Notify,
}

impl TestWire {
    /// Runs the connection from now on, as a task of its own. No word of the other end is longer than `word_bytes_max`.
    pub fn start(solo: SingleConnection, word_bytes_max: usize) -> Rc<TestWire> {
        let wire = Rc::new(TestWire {
            sender: solo.sender.clone(),
            session: solo.session,
            address: solo.address,
            socket: RefCell::new(Socket::of(&solo.socket)),
            leaving: RefCell::default(),
            arriving: RefCell::default(),
            part_bytes: Cell::new(limits::part_bytes(None)),
            pushed_bytes: Cell::new(0),
            landing: OnceCell::new(),
            heard: Cell::new(Instant::now()),
            watchdog: RefCell::default(),
            is_cut: Cell::new(false),
            is_silent: Cell::new(false),
            down: RefCell::default(),
            stopped: Cell::new(None),
            ear: RefCell::new(WordAssembler::new(word_bytes_max)),
            words: RefCell::default(),
            echo: Cell::new(0),
            news: Notify::new(),
        });
        let events = wire.clone();
        tokio::task::spawn_local(async move { solo.run(&Pool::new(POOL_BYTES), &*events).await });
        tokio::task::spawn_local(TestWire::beat(Rc::downgrade(&wire)));
        wire
    }

    /// Ends the connection, if it has not ended, when the peer is silent for so long; what was said before no longer holds.
    pub fn expect_life(self: &Rc<Self>, timeout: Duration) {
        self.heard.set(Instant::now());
        // Whoever sleeps holds on to nothing.
        let wire = Rc::downgrade(self);
        let watchdog = tokio::task::spawn_local(async move {
            while let Some(left) = wire.upgrade().and_then(|wire| wire.life_left(timeout)) {
                tokio::time::sleep(left).await;
            }
        });
        if let Some(before) = self.watchdog.replace(Some(watchdog.abort_handle())) {
            before.abort();
        }
    }

    /// How long the peer may go on being silent; `None`: it is over.
    fn life_left(&self, timeout: Duration) -> Option<Duration> {
        if self.is_down() {
            return None;
        }
        let left = timeout.checked_sub(self.heard.get().elapsed());
        if left.is_none() {
            self.is_silent.set(true);
            self.end(&format!("nothing was heard for {timeout:?}"));
        }
        left.map(|left| left.max(Duration::from_millis(1)))
    }

    /// Heartbeats both ways, as on every link.
    async fn beat(wire: Weak<TestWire>) {
        while let Some(wire) = wire.upgrade().filter(|wire| !wire.is_down()) {
            wire.send(FrameKind::Heartbeat, |_| {}, SendPayload::Control(vec![0; 8]));
            wire.sender.flush();
            drop(wire);
            tokio::time::sleep(limits::HEARTBEAT_EVERY).await;
        }
    }

    pub fn end(&self, reason: &str) {
        if !self.is_down() {
            self.down.replace(Some(reason.to_owned()));
            self.is_cut.set(true);
        }
        self.sender.close(reason);
        self.news.notify_waiters();
    }

    /// It ended, and not by the other end's wish.
    pub fn is_cut(&self) -> bool {
        self.is_cut.get()
    }

    pub fn is_down(&self) -> bool {
        self.down.borrow().is_some()
    }

    /// Waits until `look` finds something.
    ///
    /// # Errors
    /// The connection ended before.
    pub async fn until<T>(&self, mut look: impl FnMut(&TestWire) -> Option<T>) -> Result<T, TestFailure> {
        loop {
            // Made before the look: news in between wakes it.
            let news = self.news.notified();
            if let Some(found) = look(self) {
                return Ok(found);
            }
            if let Some(reason) = &*self.down.borrow() {
                let why = format!("the connection was lost: {reason}");
                return Err(if self.is_silent.get() { TestFailure::Silent(why) } else { TestFailure::Failed(why) });
            }
            news.await;
        }
    }

    /// No more flushes; what comes to its end from here on is in no distribution of times.
    pub fn stop(&self) {
        self.stopped.set(self.stopped.get().or(Some(Instant::now())));
        self.wake();
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.get().is_some()
    }

    /// What comes of it, unless somebody stops before that: `None`.
    ///
    /// # Errors
    /// The connection ended before.
    pub async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<Option<T>, TestFailure> {
        let stopped = self.until(|wire| wire.is_stopped().then_some(()));
        tokio::select! { done = work => Ok(Some(done)), stopped = stopped => stopped.map(|()| None) }
    }

    /// What comes of it, unless somebody stopped [`DRAIN`] ago: then what is queued is not waited for.
    ///
    /// # Errors
    /// The connection ended before.
    async fn unless_given_up<T>(
        &self,
        work: impl Future<Output = Result<T, TestFailure>>,
    ) -> Result<Option<T>, TestFailure> {
        let given_up = async {
            let since = self.until(|wire| wire.stopped.get()).await?;
            tokio::time::sleep(DRAIN.saturating_sub(since.elapsed())).await;
            Ok(None)
        };
        tokio::select! { done = work => done.map(Some), none = given_up => none }
    }

    /// Returns when everything up to that flush is durable over there, or is waited for no longer.
    ///
    /// # Errors
    /// The connection ended before.
    pub async fn drained(&self, last: u64) -> Result<(), TestFailure> {
        let confirmed = self.until(|wire| (wire.leaving.borrow().durable >= last).then_some(()));
        self.unless_given_up(confirmed).await.map(drop)
    }

    /// Those who wait look again.
    pub fn wake(&self) {
        self.news.notify_waiters();
    }

    pub fn say(&self, word: &Word) {
        self.counting(|sender| words::push(sender, self.session, word));
        self.sender.flush();
    }

    /// Whatever is pushed goes through here.
    fn counting(&self, push: impl FnOnce(&LinkSender)) {
        let before = self.sender.queued_bytes();
        push(&self.sender);
        self.pushed_bytes.set(self.pushed_bytes.get() + self.sender.queued_bytes() - before);
    }

    /// Bytes of frames that were handed over so far: what [`TestWire::taken_bytes`] comes to once the kernel has them all.
    pub fn pushed_bytes(&self) -> u64 {
        self.pushed_bytes.get()
    }

    /// Bytes of frames that the kernel took, as of now.
    pub fn taken_bytes(&self) -> u64 {
        self.pushed_bytes.get() - self.sender.queued_bytes()
    }

    /// The next word.
    ///
    /// # Errors
    /// The connection ended before.
    pub async fn word(&self) -> Result<Word, TestFailure> {
        self.until(|wire| wire.words.borrow_mut().pop_front()).await
    }

    /// [`TestWire::word`] that must come in this time.
    ///
    /// # Errors
    /// It did not, or the connection ended.
    pub async fn word_within(&self, timeout: Duration) -> Result<Word, TestFailure> {
        answered_within(timeout, self.word()).await
    }

    /// [`TestWire::ping`] that must come back in this time.
    ///
    /// # Errors
    /// It did not, or the connection ended.
    pub async fn ping_within(&self, number: u64, timeout: Duration) -> Result<Duration, TestFailure> {
        answered_within(timeout, self.ping(number)).await
    }

    /// One round trip through both programs; numbers rise.
    ///
    /// # Errors
    /// The connection ended.
    pub async fn ping(&self, number: u64) -> Result<Duration, TestFailure> {
        assert!(number > 0, "zero is a sign of life");
        let began = Instant::now();
        self.send(FrameKind::Heartbeat, |_| {}, SendPayload::Control(number.to_le_bytes().to_vec()));
        self.sender.flush();
        self.until(|wire| (wire.echo.get() >= number).then_some(())).await?;
        Ok(began.elapsed())
    }

    fn send(&self, kind: FrameKind, fill: impl FnOnce(&mut FrameHeader), payload: SendPayload) {
        let mut header = FrameHeader::new(kind, self.session, GroupId(0));
        fill(&mut header);
        self.counting(|sender| sender.push(header, payload));
    }

    // --- Sending ---

    /// What a look at the connection said: parts follow the rate, as a link's do.
    pub fn look(&self, info: &TcpInfo) {
        self.socket.borrow_mut().look(info);
        let rate = Some(info.delivery_bytes_per_s).filter(|rate| *rate > 0);
        self.part_bytes.set(limits::part_bytes(rate));
    }

    /// Figures of what leaves begin here, and those of its receiver where this arrives.
    pub fn begin_figures(&self) {
        self.send(FrameKind::SyncBegin, |_| {}, SendPayload::None);
    }

    /// Hands a flush over in parts as large as a link's, each from another place of `content`, round and round.
    pub fn hand_over(&self, number: u64, size: u64, counts: bool, (content, content_bytes): &(Buf, u64)) {
        let mut leaving = self.leaving.borrow_mut();
        leaving.open.push_back(Open { number, size, since: Instant::now(), counts });
        leaving.open_bytes += size;
        leaving.last_handed_over = Some(Instant::now());
        drop(leaving);
        let mut offset = 0;
        while offset < size {
            let length = (size - offset).min(self.part_bytes.get());
            let room = content_bytes - limits::PART_BYTES_MAX;
            let start = (number * 37 * 4096 + offset) % room;
            let slice = Slice { buf: content.clone(), start: start as u32, length: length as u32 };
            let is_last = offset + length == size;
            let fill = |header: &mut FrameHeader| {
                (header.seq, header.offset, header.length) = (Seq(number), offset, length);
                header.flags = if is_last { flags::LAST } else { 0 } | if counts { COUNTS } else { 0 };
            };
            self.send(FrameKind::Data, fill, SendPayload::Data(slice));
            offset += length;
        }
        self.sender.flush();
    }

    /// Says how long ago the last flush was handed over, too: what its writer waited for behind it is of the stream's time.
    pub fn end_stream(&self, flushes: u64, bytes: u64) {
        let idle = self.leaving.borrow().last_handed_over.map_or(Duration::ZERO, |since| since.elapsed());
        let idle_us = u64::try_from(idle.as_micros()).unwrap_or(u64::MAX);
        let fill = |header: &mut FrameHeader| {
            (header.seq, header.offset, header.length) = (Seq(flushes), bytes, idle_us);
        };
        self.send(FrameKind::SyncEnd, fill, SendPayload::None);
        self.sender.flush();
    }

    fn confirmed(&self, ack: &Ack) -> Result<(), String> {
        let mut leaving = self.leaving.borrow_mut();
        let newest = leaving.open.back().map_or(leaving.durable, |open| open.number);
        if ack.durable > ack.received || ack.received.0 > newest || ack.durable.0 < leaving.durable {
            return Err("the other end confirmed what was never sent".to_owned());
        }
        leaving.received = leaving.received.max(ack.received.0);
        leaving.durable = ack.durable.0;
        while let Some(open) = leaving.open.front().copied().filter(|open| open.number <= ack.durable.0) {
            leaving.open.pop_front();
            leaving.open_bytes -= open.size;
            leaving.durable_bytes += open.size;
            if open.counts && !self.is_stopped() {
                leaving.confirmed_us.add_time(open.since.elapsed());
            }
        }
        Ok(())
    }

    // --- Receiving ---

    /// Where arriving flushes go; to be said before any can come.
    pub fn land_on(&self, disk: Rc<TestDisk>, terms: &Terms) {
        let (backlog_max, waits_for_disk) = (terms.open_flushes_max(), terms.mode == TestMode::Sync);
        self.landing.get_or_init(|| Landing { disk, backlog_max, waits_for_disk });
    }

    /// Returns when the stream has ended and all of it is on the disk, or is waited for no longer.
    ///
    /// # Errors
    /// The connection ended, or the disk failed.
    pub async fn receive(&self) -> Result<(), TestFailure> {
        self.unless_given_up(self.receive_all()).await.map(drop)
    }

    async fn receive_all(&self) -> Result<(), TestFailure> {
        let pauser = Pauser::new().map_err(TestFailure::no_timer)?;
        let Landing { disk, waits_for_disk, .. } = self.landing.get().expect("said when the stage was set").clone();
        loop {
            let next = self
                .until(|wire| {
                    let arriving = wire.arriving.borrow();
                    let next = arriving.backlog.front().copied();
                    if next.is_none() && !arriving.ended { None } else { Some(next) }
                })
                .await?;
            let Some(Landed { number, size, due, counts }) = next else { return Ok(()) };
            let began = Instant::now();
            let landed = self.unless_stopped(async {
                let Some(due) = due else { return disk.write(size, &pauser).await };
                pauser.until(due).await;
                Ok(())
            });
            landed.await?.unwrap_or(Ok(())).map_err(TestFailure::failed)?;
            // Where nobody waits for it, what a modelled disk takes beyond its rate is no bound: it does many at once.
            let busy = disk.transfer_time(size).filter(|_| !waits_for_disk).unwrap_or(began.elapsed());
            let mut arriving = self.arriving.borrow_mut();
            if counts && !self.is_stopped() {
                arriving.disk_s += busy.as_secs_f64();
            }
            arriving.backlog.pop_front();
            arriving.backlog_bytes -= size;
            arriving.durable = number;
            drop(arriving);
            self.send_ack();
        }
    }

    /// Confirms what is new.
    fn send_ack(&self) {
        if self.is_deaf() {
            // One confirmation says as much as all before it, once there is room for it.
            return;
        }
        let mut arriving = self.arriving.borrow_mut();
        // A full memory holds back what a writer in nearsync waits for.
        let backlog_max = self.landing.get().map_or(0, |landing| landing.backlog_max);
        let is_full = arriving.backlog_bytes > BACKLOG_BYTES || arriving.backlog.len() >= backlog_max;
        let received = if is_full { arriving.acked.0.max(arriving.durable) } else { arriving.flushes };
        let now = (received, arriving.durable);
        if now == arriving.acked {
            return;
        }
        arriving.acked = now;
        drop(arriving);
        let ack = Ack { received: Seq(now.0), durable: Seq(now.1), applied: Seq(now.1), ..Ack::default() };
        self.send(FrameKind::Ack, |_| {}, SendPayload::Control(ack.encode()));
        self.sender.flush();
    }

    fn keep(&self, word: Word) -> Result<(), String> {
        let mut words = self.words.borrow_mut();
        words.push_back(word);
        if words.len() <= KEPT_MAX { Ok(()) } else { Err("the other end talks without being asked".to_owned()) }
    }

    /// The other end asks, or sends, and does not read.
    pub fn is_deaf(&self) -> bool {
        // Twice, as each part has a header, which is shorter.
        self.sender.queued_bytes() > 2 * self.leaving.borrow().open_bytes + ANSWERS_BYTES_MAX
    }

    /// To a question that the other end may ask as often as it likes, as long as it reads the answers.
    fn answer(&self, kind: FrameKind, bytes: Vec<u8>) -> Result<(), String> {
        if self.is_deaf() {
            return Err(DEAF.to_owned());
        }
        self.send(kind, |_| {}, SendPayload::Control(bytes));
        Ok(())
    }

    fn data(&self, header: &FrameHeader, Landing { disk, backlog_max, .. }: &Landing) -> Result<(), String> {
        let mut arriving = self.arriving.borrow_mut();
        let counts = header.flags & COUNTS != 0;
        let is_next = header.seq.0 == arriving.flushes + 1 && header.offset == arriving.part;
        if (counts && arriving.began.is_none()) || arriving.ended || !is_next {
            return Err("the other end sent flushes out of order".to_owned());
        }
        let (part, is_last) = (arriving.part + header.length, header.flags & flags::LAST != 0);
        if part > FLUSH_BYTES.max || (is_last && part < FLUSH_BYTES.min) {
            let acked = if is_last { "" } else { "at least " };
            return Err(format!(
                "the other end sent a flush of {acked}{part} bytes, where 512 B to 64 MiB are allowed"
            ));
        }
        arriving.last = Some(Instant::now());
        arriving.bytes += header.length;
        arriving.part = part;
        if counts {
            arriving.counted.0 += header.length;
            arriving.counted.1 += u64::from(is_last);
        } else if arriving.began.is_some() && arriving.counted.0 == 0 {
            // It was begun before that, and waited for room: its time on the line is not in the figures either.
            arriving.began = arriving.last;
        }
        if !is_last {
            return Ok(());
        }
        let (number, size) = (header.seq.0, std::mem::take(&mut arriving.part));
        arriving.flushes = number;
        if let TestDisk::None = **disk {
            arriving.durable = number;
            return Ok(());
        }
        // One more, as its writer learns of the full memory by its confirmation only.
        if arriving.backlog.len() > *backlog_max {
            return Err(format!("the other end has more than {backlog_max} flushes on their way to the disk"));
        }
        arriving.backlog.push_back(Landed { number, size, due: disk.due(size), counts });
        arriving.backlog_bytes += size;
        Ok(())
    }

    /// # Errors
    /// A sentence about the peer, which then is no good.
    fn take(&self, header: &FrameHeader, payload: &FramePayload) -> Result<(), String> {
        match (header.kind, payload, self.landing.get()) {
            // Nothing is taken in but for a test whose terms both ends know.
            (FrameKind::Data | FrameKind::SyncBegin, _, None) => {
                Err("the other end sent data before there was a test that takes any".to_owned())
            }
            (FrameKind::Data, FramePayload::Data(_), Some(landing)) => self.data(header, landing),
            (FrameKind::Ack, FramePayload::Control(bytes), _) => match Ack::decode(bytes) {
                Some(ack) => self.confirmed(&ack),
                None => Err("the other end sent a confirmation that cannot be read".to_owned()),
            },
            (FrameKind::Heartbeat, FramePayload::Control(bytes), _) if bytes.len() == 8 => {
                if *bytes == [0; 8] {
                    Ok(())
                } else {
                    self.answer(FrameKind::HeartbeatEcho, bytes.clone())
                }
            }
            (FrameKind::HeartbeatEcho, FramePayload::Control(bytes), _) => {
                let number = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                self.echo.set(number);
                Ok(())
            }
            (FrameKind::SyncBegin, ..) => {
                let mut arriving = self.arriving.borrow_mut();
                if arriving.began.is_some() {
                    return Err("the other end's figures began twice".to_owned());
                }
                (arriving.began, arriving.last) = (Some(Instant::now()), Some(Instant::now()));
                Ok(())
            }
            (FrameKind::SyncEnd, ..) => {
                let mut arriving = self.arriving.borrow_mut();
                // No later than now, whatever it says.
                let idle = |last: Instant| Duration::from_micros(header.length).min(last.elapsed());
                (arriving.ended, arriving.last) = (true, arriving.last.map(|last| last + idle(last)));
                let is_whole = (arriving.flushes, arriving.bytes) == (header.seq.0, header.offset);
                if is_whole { Ok(()) } else { Err("the other end's stream ended before it was complete".to_owned()) }
            }
            (FrameKind::GroupState, FramePayload::Control(bytes), _) => {
                match self.ear.borrow_mut().hear(header, bytes)? {
                    Some(word) => self.keep(word),
                    None => Ok(()),
                }
            }
            (kind, ..) => Err(format!("the other end sent a frame ({kind:?}) that has no place in a test")),
        }
    }
}

async fn answered_within<T>(
    timeout: Duration,
    answer: impl Future<Output = Result<T, TestFailure>>,
) -> Result<T, TestFailure> {
    let late = |_| TestFailure::Silent(format!("the other end did not answer within {timeout:?}"));
    tokio::time::timeout(timeout, answer).await.map_err(late)?
}

impl LinkEvents for TestWire {
    fn up(&self, _: NodeId, _: LinkId, _: SessionId, _: Rc<LinkSender>, _: PeerInfo) {}

    fn down(&self, _: LinkId, reason: String) {
        self.down.borrow_mut().get_or_insert(reason);
        self.news.notify_waiters();
    }

    fn frame(&self, _: LinkId, header: FrameHeader, payload: FramePayload) {
        self.heard.set(Instant::now());
        if self.is_down() {
            return;
        }
        if let Err(why) = self.take(&header, &payload) {
            self.end(&why);
        }
    }

    fn heard(&self, _: LinkId) {
        self.heard.set(Instant::now());
    }

    fn sent(&self, _: LinkId, _: u64) {}

    fn turn_done(&self) {
        self.send_ack();
        self.sender.flush();
        self.news.notify_waiters();
    }

    fn refused(&self, _: String, _: String) {}
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use host::link::single::{self, DialRequest, LineCredentials, LineListener};
    use host::link::{ClusterSecret, FrameOptions, SocketOptions};
    use tokio::task::LocalSet;

    /// Both ends of a connection on loopback, which do not run yet.
    async fn pair() -> (SingleConnection, SingleConnection) {
        let credentials =
            LineCredentials { cluster: "test".to_owned(), tls: None, secret: Some(ClusterSecret::new(&[b's'; 48])) };
        let (loopback, timeout) = (([127, 0, 0, 1], 0).into(), Duration::from_secs(60));
        let mut door = LineListener::bind(credentials.clone(), loopback, timeout).expect("a port");
        let (address, socket) = (door.address().expect("bound").to_string(), SocketOptions::default());
        let wish =
            DialRequest { address: &address, peers: &[], socket: &socket, flow: FrameOptions::default(), timeout };
        let (dialed, (_, arrived)) = tokio::join!(single::dial(&credentials, &wish), door.next());
        (dialed.expect("let in"), arrived.expect("it came"))
    }

    /// With a connection whose other end neither reads nor writes.
    pub fn beside_a_silent_peer(work: impl AsyncFnOnce(Rc<TestWire>)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            let (_silent, ours) = pair().await;
            work(TestWire::start(ours, words::ASKED_BYTES_MAX)).await;
        });
    }

    fn header(kind: FrameKind, fill: impl FnOnce(&mut FrameHeader)) -> FrameHeader {
        let mut header = FrameHeader::new(kind, SessionId(1), GroupId(0));
        fill(&mut header);
        header
    }

    /// A part of a flush arrives, the last one or not.
    fn arrives(wire: &TestWire, number: u64, offset: u64, length: u64, is_last: bool) -> Result<(), String> {
        let flags = if is_last { flags::LAST } else { 0 };
        let fill = |header: &mut FrameHeader| {
            (header.seq, header.offset, header.length, header.flags) = (Seq(number), offset, length, flags);
        };
        let payload = Buf::new(std::sync::Arc::new(host::buffers::Buffer::detached(1)));
        wire.take(&header(FrameKind::Data, fill), &FramePayload::Data(payload))
    }

    #[test]
    fn whoever_asks_and_does_not_read_is_cut_off() {
        beside_a_silent_peer(async |wire| {
            let question = FramePayload::Control(vec![7; 8]);
            let ask = || wire.take(&header(FrameKind::Heartbeat, |_| {}), &question);
            // Nothing is handed to the kernel meanwhile: it is ours to keep.
            let refused = (0..1_000_000).find_map(|_| ask().err());
            assert_eq!(refused.as_deref(), Some(DEAF));
            assert!(wire.sender.queued_bytes() < 2 * ANSWERS_BYTES_MAX);
            // A confirmation waits then, and says as much later.
            wire.arriving.borrow_mut().flushes = 1;
            wire.send_ack();
            assert_eq!(wire.arriving.borrow().acked, (0, 0));
        });
    }

    #[test]
    fn flushes_have_a_size_and_a_queue() {
        beside_a_silent_peer(async |wire| {
            let refused = arrives(&wire, 1, 0, 512, true).expect_err("no test");
            assert!(refused.contains("before there was a test"), "{refused}");
            let disk = plan::model::PlannedDisk { rate: None, overhead: units::quantities::Seconds(3600.0) };
            let terms = Terms { connections: 64, ..Terms::default() };
            wire.land_on(Rc::new(TestDisk::modelled(disk)), &terms);
            wire.take(&header(FrameKind::SyncBegin, |_| {}), &FramePayload::None).expect("it begins");
            for (length, is_last) in [(0, true), (511, true), (FLUSH_BYTES.max + 1, false), (FLUSH_BYTES.max + 1, true)]
            {
                let refused = arrives(&wire, 1, 0, length, is_last).expect_err("out of bounds");
                assert!(refused.contains("where 512 B to 64 MiB are allowed"), "{length}: {refused}");
            }
            let most = terms.open_flushes_max() as u64;
            for number in 1..=most {
                arrives(&wire, number, 0, 512, true).expect("there is room");
            }
            wire.send_ack();
            assert_eq!(wire.arriving.borrow().acked, (0, 0), "a full memory holds back what a writer waits for");
            arrives(&wire, most + 1, 0, 512, true).expect("it may not know yet");
            let refused = arrives(&wire, most + 2, 0, 512, true).expect_err("too many");
            assert!(refused.contains("more than 4096 flushes"), "{refused}");
        });
    }

    #[test]
    fn words_that_nobody_waits_for_are_few() {
        beside_a_silent_peer(async |wire| {
            let word = FramePayload::Control(br#""Go""#.to_ascii_lowercase());
            let say = || wire.take(&header(FrameKind::GroupState, |header| header.flags = flags::LAST), &word);
            assert_eq!((0..KEPT_MAX).find_map(|_| say().err()), None);
            assert!(say().is_err_and(|why| why.contains("without being asked")));
        });
    }
}
