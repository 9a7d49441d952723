//! One authenticated connection: frames out, frames in.
//!
//! Writing happens where the frames are made: [`LinkSender::flush`] hands everything gathered to the kernel in one
//! vectored call, header and payload side by side, nothing copied (on an encrypted line: copied once, into the records).
//! What the kernel does not take at once is continued by the connection's task when the socket is writable again.
//!
//! On a link that packs, frames wait until the kernel has taken those before, and then go on together, packed, or as they
//! are where that is not worth it ([`packer`](super::packer)), and no faster than allowed ([`limiter`](super::limiter)); the data path is told of their own bytes, whatever went over the line.
//!
//! What must hold:
//! * no callback is ever made from inside [`LinkSender::push`], [`LinkSender::flush`] or [`LinkSender::close`]: the caller
//!   is usually inside the data path already. What they learn is reported by the connection's task afterwards;
//! * every `up` is followed by exactly one `down`, and nothing of that link comes after it;
//! * without a buffer nothing is read, and the peer's silence is then our own doing, so it is not held against it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::wire::{HEADER_BYTES, Header, Kind};
use engine::{LinkId, SendPayload, limits};
use rustls::pki_types::CertificateDer;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::auto::{Chooser, Fullness};
use super::frames::{CHUNK_BYTES, FrameReader, Next};
use super::info::TcpInfo;
use super::limiter::Limiter;
use super::line::Line;
use super::packer::{BATCH_BYTES, Doing, Packer};
use super::tuning::{AUTO_ROUND_TRIP, Congestion, SocketOptions, follow_rate, take_auto_congestion};
use super::{Amount, Carried, Flow, LinkEvents};
use crate::buffers::{Buffer, Pool};
use crate::tls::{ChannelError, Received};

/// Slices of one vectored write: 64 frames; the kernel's own bound is 1 024.
const SLICES_MAX: usize = 128;
/// For so long frames of one peer are taken in without a break: it may send the smallest ones as fast as it can, and everybody else
/// waits meanwhile. So many are taken between two looks at the clock.
const TURN_MAX: Duration = Duration::from_millis(1);
const FRAMES_PER_LOOK: u32 = 16;
/// A closed connection may take this long to hand over what was queued (a goodbye) and to see the peer's end.
const LINGER: Duration = Duration::from_secs(1);

/// What a connection that has ended brings is thrown away by so much at a time, and no faster than after such pauses.
const DRAINED_BYTES: usize = 64 << 10;
const DRAIN_PAUSE: Duration = Duration::from_millis(2);

enum Payload {
    None,
    Control(Vec<u8>),
    Data(Arc<Buffer>, Range<usize>),
}

impl Payload {
    fn bytes(&self) -> &[u8] {
        match self {
            Payload::None => &[],
            Payload::Control(bytes) => bytes,
            Payload::Data(buffer, range) => &buffer[range.clone()],
        }
    }

    fn new(payload: SendPayload) -> Payload {
        match payload {
            SendPayload::None => Payload::None,
            SendPayload::Control(bytes) => Payload::Control(bytes),
            SendPayload::Data(slice) => {
                let buffer = slice.buf.shared::<Buffer>().expect("payload is always one of this host's buffers");
                let range = slice.start as usize..slice.start as usize + slice.length as usize;
                assert!(range.end <= buffer.len(), "a slice lies inside its buffer");
                Payload::Data(buffer, range)
            }
        }
    }
}

struct OutFrame {
    header: [u8; HEADER_BYTES],
    payload: Payload,
    is_heartbeat: bool,
}

impl OutFrame {
    fn parts(&self) -> [&[u8]; 2] {
        [&self.header, self.payload.bytes()]
    }

    fn len(&self) -> usize {
        HEADER_BYTES + self.payload.bytes().len()
    }
}

/// What goes to the kernel next.
enum Outgoing {
    Frame(OutFrame),
    /// Frames in their envelope, and what they were before.
    Packed(Vec<u8>, u64),
}

impl Outgoing {
    fn parts(&self) -> [&[u8]; 2] {
        match self {
            Outgoing::Frame(frame) => frame.parts(),
            Outgoing::Packed(bytes, _) => [bytes, &[]],
        }
    }

    fn len(&self) -> usize {
        match self {
            Outgoing::Frame(frame) => frame.len(),
            Outgoing::Packed(bytes, _) => bytes.len(),
        }
    }

    /// Bytes of frames in its first `taken` bytes.
    fn plain_bytes(&self, taken: usize) -> u64 {
        match self {
            Outgoing::Frame(_) => taken as u64,
            Outgoing::Packed(bytes, plain_bytes) => plain_bytes * taken as u64 / bytes.len() as u64,
        }
    }
}

/// Frames the kernel has not taken yet.
#[derive(Default)]
struct Outbox {
    frames: VecDeque<Outgoing>,
    /// Bytes of the first one that the kernel has taken.
    taken_of_first: usize,
    /// On a link that packs or has a rate: what follows.
    waiting: VecDeque<OutFrame>,
    packer: Option<Packer>,
    limiter: Option<Limiter>,
    /// Of frames, as all numbers here.
    queued_bytes: u64,
    /// Of these, what the line has encrypted and the kernel has not taken.
    sealed_bytes: u64,
    /// Taken since the data path was last told.
    unreported_bytes: u64,
    sent: Amount,
}

impl Outbox {
    fn push(&mut self, frame: OutFrame) {
        self.queued_bytes += frame.len() as u64;
        // Whether the peer is alive is not asked in the queue. What is with the kernel ends with a whole frame.
        let is_urgent = self.limiter.is_some() && frame.is_heartbeat;
        if self.takes_turns() && !is_urgent {
            self.waiting.push_back(frame);
        } else {
            self.frames.push_back(Outgoing::Frame(frame));
        }
    }

    /// Frames do not go to the kernel at once.
    fn takes_turns(&self) -> bool {
        self.packer.is_some() || self.limiter.is_some()
    }

    /// Other ways, or none; what waits goes on under them.
    fn set_flow(&mut self, packer: Option<Packer>, rate: Option<u64>) {
        let is_same = self.packer.as_ref().map(Packer::wanted) == packer.as_ref().map(Packer::wanted);
        if !is_same {
            self.packer = packer;
        }
        if self.limiter.map(|limiter| limiter.bytes_per_second()) != rate {
            self.limiter = rate.map(|rate| Limiter::new(rate, Instant::now()));
        }
        if !self.takes_turns() {
            self.frames.extend(self.waiting.drain(..).map(Outgoing::Frame));
        }
    }

    fn clear(&mut self) {
        self.frames.clear();
        self.waiting.clear();
    }

    /// How long what waits is held back by the rate; `None`: it is not.
    fn pause(&mut self, now: Instant) -> Option<Duration> {
        if !self.frames.is_empty() || self.waiting.is_empty() {
            return None;
        }
        self.limiter.as_mut()?.pause(now)
    }

    /// Frames are packed, or may be: so they wait for others until all before them is with the kernel.
    fn gathers(&self) -> bool {
        self.packer.as_ref().is_some_and(|packer| matches!(packer.doing(), Doing::Packing(_) | Doing::Nothing))
    }

    /// Takes from what waits, as far as the rate allows and up to a first batch that is worth packing. While nothing is, the
    /// kernel is offered as much as without a packer.
    fn prepare(&mut self, now: Instant) {
        if !self.frames.is_empty() && (self.limiter.is_some() || self.gathers()) {
            return;
        }
        while !self.waiting.is_empty() && self.frames.len() < SLICES_MAX / 2 {
            if let Some(limiter) = &mut self.limiter
                && limiter.pause(now).is_some()
            {
                return;
            }
            let (count, bytes) = self.batch();
            let parts = self.waiting.range(..count).flat_map(OutFrame::parts);
            let packed = self.packer.as_mut().and_then(|packer| packer.pack(now, parts));
            let is_packed = packed.is_some();
            if let Some(limiter) = &mut self.limiter {
                limiter.pay(packed.as_ref().map_or(bytes, Vec::len) as u64);
            }
            let frames = self.waiting.drain(..count);
            match packed {
                Some(packed) => self.frames.push_back(Outgoing::Packed(packed, bytes as u64)),
                None => self.frames.extend(frames.map(Outgoing::Frame)),
            }
            if is_packed {
                return;
            }
        }
    }

    /// Frames that go on together: those that are packed together, or one.
    fn batch(&self) -> (usize, usize) {
        let (mut count, mut bytes) = (1, self.waiting[0].len());
        while let Some(next) = self.waiting.get(count)
            && self.packer.is_some()
            && bytes + next.len() <= BATCH_BYTES
        {
            (count, bytes) = (count + 1, bytes + next.len());
        }
        (count, bytes)
    }

    fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let (mut count, mut skip) = (0, self.taken_of_first);
        for frame in self.frames.iter().take(SLICES_MAX / 2) {
            for part in frame.parts() {
                let rest = &part[skip.min(part.len())..];
                skip -= part.len() - rest.len();
                if !rest.is_empty() {
                    slices[count] = IoSlice::new(rest);
                    count += 1;
                }
            }
        }
        count
    }

    /// The line took care of so many bytes; `is_sealed`: some of them wait in it for the kernel.
    fn took(&mut self, bytes: usize, is_sealed: bool) {
        let (mut left, mut plain_bytes) = (bytes, 0);
        while left > 0 {
            let first = self.frames.front().expect("no more is taken than was given");
            let step = left.min(first.len() - self.taken_of_first);
            let taken = self.taken_of_first + step;
            plain_bytes += first.plain_bytes(taken) - first.plain_bytes(self.taken_of_first);
            self.taken_of_first = taken;
            if taken == first.len() {
                self.frames.pop_front();
                self.taken_of_first = 0;
            }
            left -= step;
        }
        self.sent.wire_bytes += bytes as u64;
        self.sent.plain_bytes += plain_bytes;
        self.sealed_bytes += plain_bytes;
        if !is_sealed {
            self.queued_bytes -= self.sealed_bytes;
            self.unreported_bytes += self.sealed_bytes;
            self.sealed_bytes = 0;
        }
    }
}

/// The calls a connection made of the kernel since they were last taken, for tools that measure. The bytes of a call are
/// those of frames, before encryption.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    pub sent_bytes: Vec<u32>,
    pub received_bytes: Vec<u32>,
    /// Each time the socket was full: until it took something again.
    pub congestions: Vec<Duration>,
    full_since: Option<Instant>,
}

impl Calls {
    fn sent(&mut self, bytes: usize, is_full: bool, now: Instant) {
        if bytes > 0 {
            self.sent_bytes.push(bytes as u32);
            self.congestions.extend(self.full_since.take().map(|since| now - since));
        }
        if is_full && self.full_since.is_none() {
            self.full_since = Some(now);
        }
    }
}

/// Why a connection ends.
#[derive(Clone)]
enum End {
    /// By our own wish: what is queued may still go out.
    Closed(String),
    /// It is of no more use.
    Broken(String),
}

/// What of a socket goes by how the connection does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Adapts {
    /// What may stand unsent in the kernel.
    unsent: bool,
    congestion: bool,
}

impl Adapts {
    pub fn by(options: &SocketOptions) -> Adapts {
        Adapts { unsent: options.unsent_bytes.is_none(), congestion: options.congestion == Congestion::Auto }
    }
}

/// The sending half of a link, shared between the data path and the connection's task.
pub struct LinkSender {
    link: LinkId,
    line: RefCell<Option<Rc<Line>>>,
    outbox: RefCell<Outbox>,
    adapts: Adapts,
    fullness: Cell<Fullness>,
    chooser: Cell<Chooser>,
    received: Cell<Amount>,
    /// How long frames waited for the rate allowed, in all.
    held: Cell<Duration>,
    /// `None`: nobody counts.
    calls: RefCell<Option<Calls>>,
    end: RefCell<Option<End>>,
    down_reported: Cell<bool>,
    /// The last look at the connection.
    looked: Cell<TcpInfo>,
    /// Something for the connection's task: bytes left, bytes remain, the end.
    news: Notify,
}

impl LinkSender {
    pub(super) fn new(link: LinkId, line: Line, adapts: Adapts, flow: Flow) -> Rc<LinkSender> {
        let sender = Rc::new(LinkSender {
            link,
            line: RefCell::new(Some(Rc::new(line))),
            outbox: RefCell::default(),
            adapts,
            fullness: Cell::default(),
            chooser: Cell::new(Chooser::new(Instant::now())),
            received: Cell::default(),
            held: Cell::default(),
            calls: RefCell::default(),
            end: RefCell::default(),
            down_reported: Cell::new(false),
            looked: Cell::default(),
            news: Notify::new(),
        });
        sender.set_flow(flow);
        sender
    }

    /// Frames that the kernel has not been offered go on by this.
    pub fn set_flow(&self, flow: Flow) {
        self.outbox.borrow_mut().set_flow(Packer::new(flow.compression), flow.rate);
        self.news.notify_one();
    }

    /// What the connection carried so far.
    pub fn carried(&self) -> Carried {
        let mut outbox = self.outbox.borrow_mut();
        let is_held = outbox.pause(Instant::now()).is_some();
        let doing = outbox.packer.as_ref().map_or(Doing::Off, Packer::doing);
        Carried { sent: outbox.sent, received: self.received.get(), doing, is_held }
    }

    pub fn link(&self) -> LinkId {
        self.link
    }

    /// From the first call on: what calls were made of the kernel since the last one.
    pub fn take_calls(&self) -> Calls {
        let mut calls = self.calls.borrow_mut();
        let full_since = calls.as_ref().and_then(|calls| calls.full_since);
        calls.replace(Calls { full_since, ..Calls::default() }).unwrap_or_default()
    }

    /// Asks the kernel how the connection does, and lets it hold as much unsent, under the congestion control, as fits that;
    /// `None` once it has ended.
    pub fn look(&self) -> Option<TcpInfo> {
        let line = self.line.borrow();
        let socket = line.as_ref()?.stream().as_fd();
        // After a reset the kernel has forgotten everything: what was seen before stands.
        let mut info = TcpInfo::read(socket).ok().filter(|info| info.bytes_sent > 0)?;
        info.held_us = self.held.get().as_micros().min(u128::from(u64::MAX)) as u64;
        if self.adapts.unsent {
            follow_rate(socket, &info);
        }
        if self.adapts.congestion && info.round_trip() >= AUTO_ROUND_TRIP && self.line_is_full() {
            take_auto_congestion(socket);
        }
        self.looked.set(info);
        Some(info)
    }

    fn line_is_full(&self) -> bool {
        let (now, mut chooser) = (Instant::now(), self.chooser.get());
        let is_full = chooser.look(now, self.fullness.get().total(now));
        self.chooser.set(chooser);
        is_full
    }

    /// What the last look saw.
    pub(super) fn last_look(&self) -> TcpInfo {
        self.looked.get()
    }

    /// Bytes handed over that the kernel has not taken.
    pub fn queued_bytes(&self) -> u64 {
        self.outbox.borrow().queued_bytes
    }

    /// Seals the frame (length and checksum of its payload) and queues it. On a link that has ended it goes nowhere: the
    /// report of the end is on its way.
    pub fn push(&self, header: Header, payload: SendPayload) {
        if self.has_ended() {
            return;
        }
        let payload = Payload::new(payload);
        let is_heartbeat = matches!(header.kind, Kind::Heartbeat | Kind::HeartbeatEcho);
        let header = header.sealed(payload.bytes()).encode();
        self.outbox.borrow_mut().push(OutFrame { header, payload, is_heartbeat });
    }

    /// Hands everything queued to the kernel in one call, as far as it takes it; the rest follows by itself.
    pub fn flush(&self) {
        if self.has_ended() || self.queued_bytes() == 0 {
            return;
        }
        let Some(line) = self.line.borrow().clone() else { return };
        self.write(&line);
        self.news.notify_one();
    }

    /// Ends the link; `down` follows with this reason. What was flushed or queued before may still reach the peer.
    pub fn close(&self, reason: &str) {
        self.end_with(End::Closed(reason.to_owned()));
    }

    /// What the peer showed; `None`: the link is not encrypted, or has ended.
    pub(super) fn chain(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.line.borrow().as_ref().and_then(|line| line.chain())
    }

    pub(super) fn abort(&self, reason: &str) {
        self.end_with(End::Broken(reason.to_owned()));
    }

    fn end_with(&self, end: End) {
        self.end.borrow_mut().get_or_insert(end);
        self.news.notify_one();
    }

    fn has_ended(&self) -> bool {
        self.end.borrow().is_some()
    }

    fn end_reason(&self) -> Option<String> {
        match &*self.end.borrow() {
            Some(End::Closed(reason) | End::Broken(reason)) => Some(reason.clone()),
            None => None,
        }
    }

    /// One vectored write. A failure ends the link: `false`.
    fn write(&self, line: &Line) -> bool {
        let mut outbox = self.outbox.borrow_mut();
        outbox.prepare(Instant::now());
        let (result, offered) = {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = outbox.gather(&mut slices);
            let offered: usize = slices[..count].iter().map(|slice| slice.len()).sum();
            (line.try_write(&mut slices[..count]), offered)
        };
        match result {
            Ok(bytes) => {
                outbox.took(bytes, line.is_pending());
                let now = Instant::now();
                let is_full = bytes < offered || line.is_pending();
                let mut fullness = self.fullness.get();
                fullness.saw(is_full, now);
                self.fullness.set(fullness);
                if let Some(calls) = &mut *self.calls.borrow_mut() {
                    calls.sent(bytes, is_full, now);
                }
                // A rate is a line's as well.
                let is_held = outbox.pause(now).is_some();
                if let Some(packer) = &mut outbox.packer {
                    packer.line_took(now, bytes as u64, is_full || is_held);
                }
            }
            Err(error) => {
                self.end_with(End::Broken(format!("sending to the peer failed: {error}")));
                return false;
            }
        }
        true
    }

    /// Reports the end unless that was done before.
    pub(super) fn report_down(&self, events: &dyn LinkEvents, reason: String) {
        self.end_with(End::Broken(reason.clone()));
        if !self.down_reported.replace(true) {
            events.down(self.link, reason);
            events.turn_done();
        }
    }
}

/// Runs the connection until it ends, and reports the end.
pub(super) async fn serve(sender: Rc<LinkSender>, mut frames: FrameReader, pool: &Pool, events: &dyn LinkEvents) {
    let Some(line) = sender.line.borrow().clone() else { return };
    let reason = tokio::select! {
        reason = read_all(&sender, &line, &mut frames, pool, events) => reason,
        reason = write_all(&sender, &line, events) => reason,
    };
    let closed = matches!(*sender.end.borrow(), Some(End::Closed(_)));
    sender.look();
    sender.line.borrow_mut().take();
    if closed {
        tokio::task::spawn_local(linger(sender.clone(), line));
    } else {
        drop(line);
        sender.outbox.borrow_mut().clear();
    }
    sender.report_down(events, reason);
}

/// Sends what is left and waits for the peer's end, so that unread bytes do not make the kernel throw a goodbye away.
async fn linger(sender: Rc<LinkSender>, line: Rc<Line>) {
    // A rate is for as long as the link lasts.
    sender.outbox.borrow_mut().set_flow(None, None);
    let goodbye = async {
        while sender.queued_bytes() > 0 {
            line.writable().await?;
            let before = sender.queued_bytes();
            if !sender.write(&line) {
                return Ok(());
            }
            if sender.queued_bytes() == before {
                tokio::task::yield_now().await;
            }
        }
        line.say_end();
        drain(line.stream()).await
    };
    // Nobody is left to be told: the end was reported.
    let _ = tokio::time::timeout(LINGER, goodbye).await;
    sender.outbox.borrow_mut().clear();
}

/// Ends our direction and reads the other to its end, at leisure: who goes on at full speed would have all of the thread's time.
pub(super) async fn drain(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).shutdown(Shutdown::Write)?;
    let mut waste = vec![0; DRAINED_BYTES];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut waste) {
            Ok(0) => return Ok(()),
            Ok(_) => tokio::time::sleep(DRAIN_PAUSE).await,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn write_all(sender: &LinkSender, line: &Line, events: &dyn LinkEvents) -> String {
    loop {
        let sent = std::mem::take(&mut sender.outbox.borrow_mut().unreported_bytes);
        if sent > 0 && !sender.down_reported.get() {
            events.sent(sender.link, sent);
            events.turn_done();
            // What that let in may have been sent by now, and so on without end where disks answer at once: the sockets
            // are looked at in between, or a peer that speaks would pass for dead.
            tokio::task::yield_now().await;
        }
        if let Some(reason) = sender.end_reason() {
            return reason;
        }
        if sender.queued_bytes() == 0 && !line.is_pending() {
            sender.news.notified().await;
            continue;
        }
        let pause = if line.is_pending() { None } else { sender.outbox.borrow_mut().pause(Instant::now()) };
        if let Some(pause) = pause {
            let began = Instant::now();
            // Either is a reason to look again.
            let _ = tokio::time::timeout(pause, sender.news.notified()).await;
            sender.held.set(sender.held.get() + began.elapsed());
            continue;
        }
        tokio::select! {
            // A failed socket counts as writable; the write then says why.
            _ = line.writable() => {
                sender.write(line);
                // Packing takes its time: the others have their turn between two batches.
                if sender.outbox.borrow().gathers() {
                    tokio::task::yield_now().await;
                }
            }
            () = sender.news.notified() => {}
        }
    }
}

async fn read_all(
    sender: &LinkSender,
    line: &Line,
    frames: &mut FrameReader,
    pool: &Pool,
    events: &dyn LinkEvents,
) -> String {
    loop {
        match deliver(sender, frames, pool, events) {
            Ok(Delivered::All) => {}
            Ok(Delivered::Part) => {
                tokio::task::yield_now().await;
                continue;
            }
            Ok(Delivered::Starved) => {
                wait_for_buffer(sender, pool, events).await;
                continue;
            }
            Err(reason) => return reason,
        }
        let received = read_some(line, frames).await;
        if let (Ok(Received::Bytes(bytes)), Some(calls)) = (&received, &mut *sender.calls.borrow_mut()) {
            calls.received_bytes.push(*bytes as u32);
        }
        match received {
            Ok(Received::End) if frames.is_inside_frame() => {
                return "the peer closed the connection in the middle of a frame".to_owned();
            }
            Ok(Received::End) => return "the peer closed the connection".to_owned(),
            // More is waiting, most likely: let the others have their turn first.
            Ok(Received::Bytes(bytes)) if bytes >= CHUNK_BYTES => tokio::task::yield_now().await,
            Ok(Received::Bytes(_)) => {}
            Ok(Received::Part | Received::Nothing) => {
                events.heard(sender.link);
                events.turn_done();
            }
            Err(ChannelError::Io(error)) => return format!("the connection broke: {error}"),
            Err(error) => return format!("the connection ends: {error}"),
        }
        // An answer of the encryption's own, such as new keys.
        if line.is_pending() {
            sender.news.notify_one();
        }
    }
}

/// What came of the frames that are here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delivered {
    All,
    /// It is the others' turn.
    Part,
    /// A buffer is wanting.
    Starved,
}

/// Hands whole frames to the data path, as many as one turn takes, then ends the turn.
fn deliver(
    sender: &LinkSender,
    frames: &mut FrameReader,
    pool: &Pool,
    events: &dyn LinkEvents,
) -> Result<Delivered, String> {
    let (began, mut delivered) = (Instant::now(), 0);
    let outcome = loop {
        if let Some(reason) = sender.end_reason() {
            return Err(reason);
        }
        match frames.next(|length| pool.take(length)) {
            Ok(Next::Frame(header, payload)) => {
                events.frame(sender.link, header, payload);
                delivered += 1;
                if delivered % FRAMES_PER_LOOK == 0 && began.elapsed() >= TURN_MAX {
                    break Delivered::Part;
                }
            }
            Ok(Next::Bytes) => break Delivered::All,
            Ok(Next::Buffer(_)) => break Delivered::Starved,
            Err(violation) => {
                if delivered > 0 {
                    events.turn_done();
                }
                return Err(violation.to_string());
            }
        }
    };
    sender.received.set(frames.received());
    if delivered == 0 && frames.is_inside_frame() && outcome == Delivered::All {
        events.heard(sender.link);
        delivered = 1;
    }
    if delivered > 0 {
        events.turn_done();
    }
    Ok(outcome)
}

/// The pool is empty, so nothing is read and the peer cannot be heard. That is no sign against it: the kernel's own
/// timers (unacknowledged data, keepalive) still find a peer that is really gone.
async fn wait_for_buffer(sender: &LinkSender, pool: &Pool, events: &dyn LinkEvents) {
    if tokio::time::timeout(limits::HEARTBEAT_EVERY, pool.freed()).await.is_err() && !sender.has_ended() {
        events.heard(sender.link);
        events.turn_done();
    }
}

/// Waits for bytes of frames, or for a sign of life on the way to them.
async fn read_some(line: &Line, frames: &mut FrameReader) -> Result<Received, ChannelError> {
    loop {
        line.readable().await?;
        let received = line.try_read(&mut frames.space())?;
        if let Received::Bytes(bytes) = received {
            frames.filled(bytes);
        }
        if received != Received::Nothing {
            return Ok(received);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::packer::{Compression, Method};
    use super::*;
    use engine::{Buf, GroupId, SessionId, Slice};

    #[test]
    fn partial_writes_continue_at_the_right_byte() {
        let mut outbox = Outbox::default();
        let mut all = Vec::new();
        for n in 0..5u8 {
            let buffer = Arc::new(Buffer::detached(64));
            let slice = Slice { buf: Buf::new(buffer), start: 8, length: 40 };
            let payload = match n % 3 {
                0 => SendPayload::None,
                1 => SendPayload::Control(vec![n; 17]),
                _ => SendPayload::Data(slice),
            };
            let payload = Payload::new(payload);
            let header = Header::new(Kind::Tick, SessionId(1), GroupId(u32::from(n))).sealed(payload.bytes()).encode();
            all.extend([&header[..], payload.bytes()].concat());
            outbox.push(OutFrame { header, payload, is_heartbeat: false });
        }
        let mut rest = &all[..];
        for step in [1, 95, 3, 110, 1, 50].into_iter().cycle() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = outbox.gather(&mut slices);
            let gathered: Vec<u8> = slices[..count].iter().flat_map(|s| s.to_vec()).collect();
            assert_eq!(gathered, rest);
            assert_eq!(outbox.queued_bytes, rest.len() as u64);
            if rest.is_empty() {
                break;
            }
            let step = step.min(rest.len());
            outbox.took(step, false);
            rest = &rest[step..];
        }
        assert_eq!(outbox.unreported_bytes, all.len() as u64);
        assert!(outbox.frames.is_empty());
    }

    /// What the kernel is offered of three frames, of which the last two come when the first was already offered.
    fn offered(wanted: Compression) -> (usize, u64) {
        let mut outbox = Outbox { packer: Packer::new(wanted), ..Outbox::default() };
        for n in 0..3 {
            let payload = Payload::new(SendPayload::Control(vec![n; 4096]));
            let header = Header::new(Kind::Tick, SessionId(1), GroupId(1)).sealed(payload.bytes()).encode();
            outbox.push(OutFrame { header, payload, is_heartbeat: false });
            outbox.prepare(Instant::now());
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let count = outbox.gather(&mut slices);
        (slices[..count].iter().map(|slice| slice.len()).sum(), outbox.queued_bytes)
    }

    #[test]
    fn frames_wait_for_each_other_only_where_they_are_packed() {
        let (without, all) = offered(Compression::Off);
        assert_eq!(without as u64, all);
        // Nobody has waited for the line: nothing is packed.
        assert_eq!(offered(Compression::Auto), (without, all));
        let (packed, all) = offered(Compression::Always(Method::Lz4));
        assert!((packed as u64) < all / 3, "the first one alone, and smaller: {packed} of {all}");
    }
}
