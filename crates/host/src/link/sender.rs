//! One authenticated connection: its sending half, and (in [`serve`]) the task that runs it.
//!
//! Writing happens where the frames are made: [`LinkSender::flush`] hands everything gathered to the kernel in one
//! vectored call, header and payload side by side, nothing copied (on an encrypted line: copied once, into the records).
//! What the kernel does not take at once is continued by the connection's task when the socket is writable again.
//!
//! What must hold:
//! * no callback is ever made from inside [`LinkSender::push`], [`LinkSender::flush`] or [`LinkSender::close`]: the caller
//!   is usually inside the data path already. What they learn is reported by the connection's task afterwards;
//! * every `up` is followed by exactly one `down`, and nothing of that link comes after it;
//! * without a buffer nothing is read, and the peer's silence is then our own doing, so it is not held against it.

pub(super) mod serve;

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::wire::FrameHeader;
use engine::{LinkId, SendPayload};
use rustls::pki_types::CertificateDer;
use tokio::sync::Notify;

use super::auto_congestion::{Chooser, Fullness};
use super::link_stream::LinkStream;
use super::send_queue::SendQueue;
use super::tuning::{AUTO_ROUND_TRIP, CongestionChoice, SocketOptions, follow_rate, take_auto_congestion};
use super::{Amount, FrameOptions, LinkEvents, LinkTraffic};
use crate::tcp_info::TcpInfo;

/// The calls a connection made of the kernel since they were last taken, for tools that measure. The bytes of a call are
/// those of frames, before encryption.
#[derive(Clone, Debug, Default)]
pub struct SocketCalls {
    pub sent_bytes: Vec<u32>,
    pub received_bytes: Vec<u32>,
    /// Each time the socket was full: until it took something again.
    pub congestions: Vec<Duration>,
    full_since: Option<Instant>,
}

impl SocketCalls {
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
enum LinkEnd {
    /// By our own wish: what is queued may still go out.
    Closed(String),
    /// It is of no more use.
    Broken(String),
}

/// What of a socket goes by how the connection does.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdaptiveOptions {
    /// What may stand unsent in the kernel.
    unsent: bool,
    congestion: bool,
}

impl AdaptiveOptions {
    pub fn by(options: &SocketOptions) -> AdaptiveOptions {
        AdaptiveOptions {
            unsent: options.unsent_bytes.is_none(),
            congestion: options.congestion == CongestionChoice::Auto,
        }
    }
}

/// The sending half of a link, shared between the data path and the connection's task.
pub struct LinkSender {
    link: LinkId,
    line: RefCell<Option<Rc<LinkStream>>>,
    queue: RefCell<SendQueue>,
    adaptive: AdaptiveOptions,
    fullness: Cell<Fullness>,
    chooser: Cell<Chooser>,
    received: Cell<Amount>,
    /// How long frames waited for the rate allowed, in all.
    held: Cell<Duration>,
    /// `None`: nobody counts.
    calls: RefCell<Option<SocketCalls>>,
    end: RefCell<Option<LinkEnd>>,
    down_reported: Cell<bool>,
    /// The last look at the connection.
    looked: Cell<TcpInfo>,
    /// Something for the connection's task: bytes left, bytes remain, the end.
    news: Notify,
}

impl LinkSender {
    pub(super) fn new(link: LinkId, line: LinkStream, adaptive: AdaptiveOptions, flow: FrameOptions) -> Rc<LinkSender> {
        let sender = Rc::new(LinkSender {
            link,
            line: RefCell::new(Some(Rc::new(line))),
            queue: RefCell::default(),
            adaptive,
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
    pub fn set_flow(&self, flow: FrameOptions) {
        self.queue.borrow_mut().set_flow(Some(flow));
        self.news.notify_one();
    }

    /// What the connection carried so far.
    pub fn carried(&self) -> LinkTraffic {
        let mut queue = self.queue.borrow_mut();
        let is_held = queue.pause(Instant::now()).is_some();
        LinkTraffic {
            sent: queue.sent(),
            received: self.received.get(),
            copied_bytes: queue.copied_bytes(),
            doing: queue.doing(),
            is_held,
        }
    }

    pub fn link(&self) -> LinkId {
        self.link
    }

    /// From the first call on: what calls were made of the kernel since the last one.
    pub fn take_calls(&self) -> SocketCalls {
        let mut calls = self.calls.borrow_mut();
        let full_since = calls.as_ref().and_then(|calls| calls.full_since);
        calls.replace(SocketCalls { full_since, ..SocketCalls::default() }).unwrap_or_default()
    }

    /// Asks the kernel how the connection does, and lets it hold as much unsent, under the congestion control, as fits that;
    /// `None` once it has ended.
    pub fn look(&self) -> Option<TcpInfo> {
        let line = self.line.borrow();
        let socket = line.as_ref()?.stream().as_fd();
        // After a reset the kernel has forgotten everything: what was seen before stands.
        let mut info = TcpInfo::read(socket).ok().filter(|info| info.bytes_sent > 0)?;
        info.held_us = self.held.get().as_micros().min(u128::from(u64::MAX)) as u64;
        if self.adaptive.unsent {
            follow_rate(socket, &info);
        }
        if self.adaptive.congestion && info.round_trip() >= AUTO_ROUND_TRIP && self.line_is_full() {
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
        self.queue.borrow().queued_bytes()
    }

    /// Seals the frame (length and checksum of its payload) and queues it. On a link that has ended it goes nowhere: the
    /// report of the end is on its way.
    pub fn push(&self, header: FrameHeader, payload: SendPayload) {
        if self.has_ended() {
            return;
        }
        self.queue.borrow_mut().push(header, payload);
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
        self.end_with(LinkEnd::Closed(reason.to_owned()));
    }

    /// What the peer showed; `None`: the link is not encrypted, or has ended.
    pub(super) fn chain(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.line.borrow().as_ref().and_then(|line| line.chain())
    }

    pub(super) fn abort(&self, reason: &str) {
        self.end_with(LinkEnd::Broken(reason.to_owned()));
    }

    fn end_with(&self, end: LinkEnd) {
        self.end.borrow_mut().get_or_insert(end);
        self.news.notify_one();
    }

    fn has_ended(&self) -> bool {
        self.end.borrow().is_some()
    }

    fn end_reason(&self) -> Option<String> {
        match &*self.end.borrow() {
            Some(LinkEnd::Closed(reason) | LinkEnd::Broken(reason)) => Some(reason.clone()),
            None => None,
        }
    }

    /// One vectored write. A failure ends the link: `false`.
    fn write(&self, line: &LinkStream) -> bool {
        let sent = match self.queue.borrow_mut().send(line) {
            Ok(sent) => sent,
            Err(error) => {
                self.end_with(LinkEnd::Broken(format!("sending to the peer failed: {error}")));
                return false;
            }
        };
        let mut fullness = self.fullness.get();
        fullness.saw(sent.is_full, sent.now);
        self.fullness.set(fullness);
        if let Some(calls) = &mut *self.calls.borrow_mut() {
            calls.sent(sent.bytes, sent.is_full, sent.now);
        }
        true
    }

    /// Reports the end unless that was done before.
    pub(super) fn report_down(&self, events: &dyn LinkEvents, reason: String) {
        self.end_with(LinkEnd::Broken(reason.clone()));
        if !self.down_reported.replace(true) {
            events.down(self.link, reason);
            events.turn_done();
        }
    }
}
