//! One connection of a test: what arrives, what was confirmed, and how it ended.
//!
//! The receiving half is driven by the link's own callbacks; whoever waits does so in [`Wire::until`], which the end of the
//! connection ends.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use engine::wire::{Ack, Header, Kind, flags};
use engine::{Buf, FramePayload, GroupId, LinkId, NodeId, SendPayload, Seq, SessionId, Slice, limits};
use host::buffers::Pool;
use host::link::solo::Solo;
use host::link::{LinkEvents, LinkSender, PeerInfo};
use host::timer::Pauser;
use tokio::sync::Notify;

use super::Trouble;
use super::disk::Disk;
use super::tally::{Socket, Spread};
use super::words::{self, Ear, Word};

/// Received and not on the receiving disk: beyond it nothing is confirmed as received either.
const BACKLOG_BYTES: u64 = limits::WINDOW_BYTES_DEFAULT;
/// Words and echoes that nobody has taken yet.
const KEPT_MAX: usize = 64;
/// Received bytes in memory at a time; each is given back as soon as it is counted.
const POOL_BYTES: usize = 64 << 20;

/// The stream that arrives.
#[derive(Default)]
pub struct Arriving {
    /// Begin and latest byte.
    pub began: Option<Instant>,
    pub last: Option<Instant>,
    pub bytes: u64,
    pub flushes: u64,
    /// Bytes of the unfinished flush.
    part: u64,
    /// Flushes that are not on the disk: number, size, when a modelled disk is done with it.
    backlog: VecDeque<(u64, u64, Option<Instant>)>,
    backlog_bytes: u64,
    durable: u64,
    /// Spent waiting for the disk.
    pub disk_s: f64,
    /// Last told: received, durable.
    told: (u64, u64),
    pub ended: bool,
}

/// The stream that leaves, as far as it is confirmed.
#[derive(Default)]
pub struct Leaving {
    pub received: u64,
    pub durable: u64,
    /// Handed over and not durable: number, size, since when.
    pub open: VecDeque<(u64, u64, Instant)>,
    pub open_bytes: u64,
    pub durable_bytes: u64,
    pub confirmed_us: Spread,
}

pub struct Wire {
    pub sender: Rc<LinkSender>,
    pub session: SessionId,
    pub socket: RefCell<Socket>,
    pub leaving: RefCell<Leaving>,
    pub arriving: RefCell<Arriving>,
    /// Bytes of frames that the kernel took.
    pub taken_bytes: Cell<u64>,
    /// Where arriving flushes go.
    disk: OnceCell<Rc<Disk>>,
    heard: Cell<Instant>,
    down: RefCell<Option<String>>,
    ear: RefCell<Ear>,
    words: RefCell<VecDeque<Word>>,
    echoes: RefCell<VecDeque<u64>>,
    news: Notify,
}

impl Wire {
    /// Runs the connection from now on, as a task of its own.
    pub fn start(solo: Solo) -> Rc<Wire> {
        let wire = Rc::new(Wire {
            sender: solo.sender.clone(),
            session: solo.session,
            socket: RefCell::new(Socket::of(&solo.socket)),
            leaving: RefCell::default(),
            arriving: RefCell::default(),
            taken_bytes: Cell::new(0),
            disk: OnceCell::new(),
            heard: Cell::new(Instant::now()),
            down: RefCell::default(),
            ear: RefCell::default(),
            words: RefCell::default(),
            echoes: RefCell::default(),
            news: Notify::new(),
        });
        let events = wire.clone();
        tokio::task::spawn_local(async move { solo.run(&Pool::new(POOL_BYTES), &*events).await });
        tokio::task::spawn_local(Wire::beat(Rc::downgrade(&wire)));
        wire
    }

    /// Ends the connection, if it has not ended, when the peer is silent for so long.
    pub fn expect_life(self: &Rc<Self>, timeout: Duration) {
        self.heard.set(Instant::now());
        // Whoever sleeps holds on to nothing.
        let wire = Rc::downgrade(self);
        tokio::task::spawn_local(async move {
            while let Some(left) = wire.upgrade().and_then(|wire| wire.life_left(timeout)) {
                tokio::time::sleep(left).await;
            }
        });
    }

    /// How long the peer may go on being silent; `None`: it is over.
    fn life_left(&self, timeout: Duration) -> Option<Duration> {
        if self.is_down() {
            return None;
        }
        let left = timeout.checked_sub(self.heard.get().elapsed());
        if left.is_none() {
            self.end(&format!("nothing was heard for {timeout:?}"));
        }
        left.map(|left| left.max(Duration::from_millis(1)))
    }

    /// Heartbeats both ways, as on every link.
    async fn beat(wire: Weak<Wire>) {
        while let Some(wire) = wire.upgrade().filter(|wire| !wire.is_down()) {
            wire.send(Kind::Heartbeat, |_| {}, SendPayload::Control(vec![0; 8]));
            wire.sender.flush();
            drop(wire);
            tokio::time::sleep(limits::HEARTBEAT_EVERY).await;
        }
    }

    pub fn end(&self, reason: &str) {
        self.down.borrow_mut().get_or_insert(reason.to_owned());
        self.sender.close(reason);
        self.news.notify_waiters();
    }

    pub fn is_down(&self) -> bool {
        self.down.borrow().is_some()
    }

    /// Waits until `look` finds something.
    ///
    /// # Errors
    /// The connection ended before.
    pub async fn until<T>(&self, mut look: impl FnMut(&Wire) -> Option<T>) -> Result<T, Trouble> {
        loop {
            // Made before the look: news in between wakes it.
            let news = self.news.notified();
            if let Some(found) = look(self) {
                return Ok(found);
            }
            if let Some(reason) = &*self.down.borrow() {
                return Err(Trouble::failed(format!("the connection was lost: {reason}")));
            }
            news.await;
        }
    }

    /// Those who wait look again.
    pub fn wake(&self) {
        self.news.notify_waiters();
    }

    pub fn say(&self, word: &Word) {
        words::say(&self.sender, self.session, word);
    }

    /// The next word.
    ///
    /// # Errors
    /// The connection ended before.
    pub async fn word(&self) -> Result<Word, Trouble> {
        self.until(|wire| wire.words.borrow_mut().pop_front()).await
    }

    /// [`Wire::word`] that must come in this time.
    ///
    /// # Errors
    /// It did not, or the connection ended.
    pub async fn word_within(&self, timeout: Duration) -> Result<Word, Trouble> {
        let late = |_| Trouble::failed(format!("the other end did not answer within {timeout:?}"));
        tokio::time::timeout(timeout, self.word()).await.map_err(late)?
    }

    /// One round trip through both programs.
    ///
    /// # Errors
    /// The connection ended.
    pub async fn ping(&self, number: u64) -> Result<Duration, Trouble> {
        assert!(number > 0, "zero is a sign of life");
        let began = Instant::now();
        self.send(Kind::Heartbeat, |_| {}, SendPayload::Control(number.to_le_bytes().to_vec()));
        self.sender.flush();
        self.until(|wire| {
            let mut echoes = wire.echoes.borrow_mut();
            while let Some(echo) = echoes.pop_front() {
                if echo == number {
                    return Some(());
                }
            }
            None
        })
        .await?;
        Ok(began.elapsed())
    }

    fn send(&self, kind: Kind, fill: impl FnOnce(&mut Header), payload: SendPayload) {
        let mut header = Header::new(kind, self.session, GroupId(0));
        fill(&mut header);
        self.sender.push(header, payload);
    }

    // --- Sending ---

    pub fn begin_stream(&self) {
        self.send(Kind::SyncBegin, |_| {}, SendPayload::None);
    }

    /// Hands a flush over in parts as large as a write's, each from another place of `content`, round and round.
    pub fn hand_over(&self, number: u64, size: u64, content: &Buf, content_bytes: u64) {
        let mut leaving = self.leaving.borrow_mut();
        leaving.open.push_back((number, size, Instant::now()));
        leaving.open_bytes += size;
        drop(leaving);
        let mut offset = 0;
        while offset < size {
            let length = (size - offset).min(limits::PART_BYTES_MAX);
            let room = content_bytes - limits::PART_BYTES_MAX;
            let start = (number * 37 * 4096 + offset) % room;
            let slice = Slice { buf: content.clone(), start: start as u32, length: length as u32 };
            let is_last = offset + length == size;
            let fill = |header: &mut Header| {
                (header.seq, header.offset, header.length) = (Seq(number), offset, length);
                header.flags = if is_last { flags::LAST } else { 0 };
            };
            self.send(Kind::Data, fill, SendPayload::Data(slice));
            offset += length;
        }
        self.sender.flush();
    }

    pub fn end_stream(&self, flushes: u64, bytes: u64) {
        let fill = |header: &mut Header| (header.seq, header.offset) = (Seq(flushes), bytes);
        self.send(Kind::SyncEnd, fill, SendPayload::None);
        self.sender.flush();
    }

    fn confirmed(&self, ack: &Ack) -> Result<(), String> {
        let mut leaving = self.leaving.borrow_mut();
        let newest = leaving.open.back().map_or(leaving.durable, |open| open.0);
        if ack.durable > ack.received || ack.received.0 > newest || ack.durable.0 < leaving.durable {
            return Err("the other end confirmed what was never sent".to_owned());
        }
        leaving.received = leaving.received.max(ack.received.0);
        leaving.durable = ack.durable.0;
        while let Some((_, size, since)) = leaving.open.front().copied().filter(|open| open.0 <= ack.durable.0) {
            leaving.open.pop_front();
            leaving.open_bytes -= size;
            leaving.durable_bytes += size;
            leaving.confirmed_us.add_time(since.elapsed());
        }
        Ok(())
    }

    // --- Receiving ---

    /// Where arriving flushes go; to be said before any can come.
    pub fn land_on(&self, disk: Rc<Disk>) {
        self.disk.get_or_init(|| disk);
    }

    /// Returns when the stream has ended and all of it is on the disk.
    ///
    /// # Errors
    /// The connection ended, or the disk failed.
    pub async fn receive(&self) -> Result<(), Trouble> {
        let pauser = Pauser::new().map_err(Trouble::no_timer)?;
        let disk = self.disk.get().expect("said when the connection was taken in").clone();
        loop {
            let next = self
                .until(|wire| {
                    let arriving = wire.arriving.borrow();
                    let next = arriving.backlog.front().copied();
                    if next.is_none() && !arriving.ended { None } else { Some(next) }
                })
                .await?;
            let Some((number, size, due)) = next else { return Ok(()) };
            let began = Instant::now();
            match due {
                Some(due) => pauser.until(due).await,
                None => disk.write(size, &pauser).await.map_err(Trouble::failed)?,
            }
            let mut arriving = self.arriving.borrow_mut();
            arriving.disk_s += began.elapsed().as_secs_f64();
            arriving.backlog.pop_front();
            arriving.backlog_bytes -= size;
            arriving.durable = number;
            drop(arriving);
            self.tell();
        }
    }

    /// Confirms what is new.
    fn tell(&self) {
        let mut arriving = self.arriving.borrow_mut();
        // A full memory holds back what a writer in nearsync waits for.
        let is_full = arriving.backlog_bytes > BACKLOG_BYTES;
        let received = if is_full { arriving.told.0.max(arriving.durable) } else { arriving.flushes };
        let now = (received, arriving.durable);
        if now == arriving.told {
            return;
        }
        arriving.told = now;
        drop(arriving);
        let ack = Ack { received: Seq(now.0), durable: Seq(now.1), applied: Seq(now.1), ..Ack::default() };
        self.send(Kind::Ack, |_| {}, SendPayload::Control(ack.encode()));
        self.sender.flush();
    }

    fn keep<T>(kept: &RefCell<VecDeque<T>>, new: T) -> Result<(), String> {
        let mut kept = kept.borrow_mut();
        kept.push_back(new);
        if kept.len() <= KEPT_MAX { Ok(()) } else { Err("the other end talks without being asked".to_owned()) }
    }

    fn data(&self, header: &Header) -> Result<(), String> {
        let mut arriving = self.arriving.borrow_mut();
        let is_next = header.seq.0 == arriving.flushes + 1 && header.offset == arriving.part;
        if arriving.began.is_none() || arriving.ended || !is_next {
            return Err("the other end sent flushes out of order".to_owned());
        }
        arriving.last = Some(Instant::now());
        arriving.bytes += header.length;
        arriving.part += header.length;
        if header.flags & flags::LAST == 0 {
            return Ok(());
        }
        let (number, size) = (header.seq.0, std::mem::take(&mut arriving.part));
        arriving.flushes = number;
        match self.disk.get().map(|disk| &**disk) {
            None | Some(Disk::None) => arriving.durable = number,
            Some(disk) => {
                arriving.backlog.push_back((number, size, disk.due(size)));
                arriving.backlog_bytes += size;
            }
        }
        Ok(())
    }

    /// # Errors
    /// A sentence about the peer, which then is no good.
    fn take(&self, header: &Header, payload: &FramePayload) -> Result<(), String> {
        match (header.kind, payload) {
            // Nothing is taken in but for a test whose terms both ends know.
            (Kind::Data | Kind::SyncBegin, _) if self.disk.get().is_none() => {
                Err("the other end sent data before there was a test".to_owned())
            }
            (Kind::Data, FramePayload::Data(_)) => self.data(header),
            (Kind::Ack, FramePayload::Control(bytes)) => match Ack::decode(bytes) {
                Some(ack) => self.confirmed(&ack),
                None => Err("the other end sent a confirmation that cannot be read".to_owned()),
            },
            (Kind::Heartbeat, FramePayload::Control(bytes)) if bytes.len() == 8 => {
                if *bytes != [0; 8] {
                    self.send(Kind::HeartbeatEcho, |_| {}, SendPayload::Control(bytes.clone()));
                }
                Ok(())
            }
            (Kind::HeartbeatEcho, FramePayload::Control(bytes)) => {
                let number = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                Wire::keep(&self.echoes, number)
            }
            (Kind::SyncBegin, _) => {
                let mut arriving = self.arriving.borrow_mut();
                (arriving.began, arriving.last) = (Some(Instant::now()), Some(Instant::now()));
                Ok(())
            }
            (Kind::SyncEnd, _) => {
                let mut arriving = self.arriving.borrow_mut();
                arriving.ended = true;
                let is_whole = (arriving.flushes, arriving.bytes) == (header.seq.0, header.offset);
                if is_whole { Ok(()) } else { Err("the other end's stream ended before it was complete".to_owned()) }
            }
            (Kind::GroupState, FramePayload::Control(bytes)) => match self.ear.borrow_mut().hear(header, bytes)? {
                Some(word) => Wire::keep(&self.words, word),
                None => Ok(()),
            },
            (kind, _) => Err(format!("the other end sent a frame ({kind:?}) that has no place in a test")),
        }
    }
}

impl LinkEvents for Wire {
    fn up(&self, _: NodeId, _: LinkId, _: SessionId, _: Rc<LinkSender>, _: PeerInfo) {}

    fn down(&self, _: LinkId, reason: String) {
        self.down.borrow_mut().get_or_insert(reason);
        self.news.notify_waiters();
    }

    fn frame(&self, _: LinkId, header: Header, payload: FramePayload) {
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

    fn sent(&self, _: LinkId, bytes: u64) {
        self.taken_bytes.set(self.taken_bytes.get() + bytes);
    }

    fn turn_done(&self) {
        self.tell();
        self.sender.flush();
        self.news.notify_waiters();
    }

    fn refused(&self, _: String, _: String) {}

    fn definitions_differ(&self, _: NodeId, _: String) {}
}
