//! The task that runs a connection: what the kernel did not take at once goes on, what arrives is handed to the data path.

use std::io;
use std::net::Shutdown;
use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::limits;
use socket2::SockRef;
use tokio::net::TcpStream;

use super::{LinkEnd, LinkSender};
use crate::buffers::Pool;
use crate::link::LinkEvents;
use crate::link::frames::{CHUNK_BYTES, FrameReader, NextFrame};
use crate::link::link_stream::LinkStream;
use crate::tls::{ChannelError, TlsReceived};

/// For so long frames of one peer are taken in without a break: it may send the smallest ones as fast as it can, and everybody else
/// waits meanwhile. So many are taken between two looks at the clock.
const TURN_MAX: Duration = Duration::from_millis(1);
const FRAMES_PER_LOOK: u32 = 16;
/// A closed connection may take this long to hand over what was queued (a goodbye) and to see the peer's end.
const LINGER: Duration = Duration::from_secs(1);

/// What a connection that has ended brings is thrown away by so much at a time, and no faster than after such pauses.
const DRAINED_BYTES: usize = 64 << 10;
const DRAIN_PAUSE: Duration = Duration::from_millis(2);

/// Runs the connection until it ends, and reports the end.
pub(in crate::link) async fn serve(
    sender: Rc<LinkSender>,
    mut frames: FrameReader,
    pool: &Pool,
    events: &dyn LinkEvents,
) {
    let Some(line) = sender.line.borrow().clone() else { return };
    let reason = tokio::select! {
        reason = read_all(&sender, &line, &mut frames, pool, events) => reason,
        reason = write_all(&sender, &line, events) => reason,
    };
    let closed = matches!(*sender.end.borrow(), Some(LinkEnd::Closed(_)));
    sender.look();
    sender.line.borrow_mut().take();
    if closed {
        tokio::task::spawn_local(linger(sender.clone(), line));
    } else {
        drop(line);
        sender.queue.borrow_mut().clear();
    }
    sender.report_down(events, reason);
}

/// Sends what is left and waits for the peer's end, so that unread bytes do not make the kernel throw a goodbye away.
async fn linger(sender: Rc<LinkSender>, line: Rc<LinkStream>) {
    // A rate is for as long as the link lasts.
    sender.queue.borrow_mut().set_flow(None);
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
    sender.queue.borrow_mut().clear();
}

/// Ends our direction and reads the other to its end, at leisure: who goes on at full speed would have all of the thread's time.
pub(in crate::link) async fn drain(stream: &TcpStream) -> io::Result<()> {
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

async fn write_all(sender: &LinkSender, line: &LinkStream, events: &dyn LinkEvents) -> String {
    loop {
        let sent = sender.queue.borrow_mut().take_unreported_bytes();
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
        let pause = if line.is_pending() { None } else { sender.queue.borrow_mut().pause(Instant::now()) };
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
                if sender.queue.borrow().gathers() {
                    tokio::task::yield_now().await;
                }
            }
            () = sender.news.notified() => {}
        }
    }
}

async fn read_all(
    sender: &LinkSender,
    line: &LinkStream,
    frames: &mut FrameReader,
    pool: &Pool,
    events: &dyn LinkEvents,
) -> String {
    loop {
        match deliver(sender, frames, pool, events) {
            Ok(DeliveryState::All) => {}
            Ok(DeliveryState::Part) => {
                tokio::task::yield_now().await;
                continue;
            }
            Ok(DeliveryState::Starved) => {
                wait_for_buffer(sender, pool, events).await;
                continue;
            }
            Err(reason) => return reason,
        }
        let received = read_some(line, frames).await;
        if let (Ok(TlsReceived::Bytes(bytes)), Some(calls)) = (&received, &mut *sender.calls.borrow_mut()) {
            calls.received_bytes.push(*bytes as u32);
        }
        match received {
            Ok(TlsReceived::End) if frames.is_inside_frame() => {
                return "the peer closed the connection in the middle of a frame".to_owned();
            }
            Ok(TlsReceived::End) => return "the peer closed the connection".to_owned(),
            // More is waiting, most likely: let the others have their turn first.
            Ok(TlsReceived::Bytes(bytes)) if bytes >= CHUNK_BYTES => tokio::task::yield_now().await,
            Ok(TlsReceived::Bytes(_)) => {}
            Ok(TlsReceived::Part | TlsReceived::Nothing) => {
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
enum DeliveryState {
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
) -> Result<DeliveryState, String> {
    let (began, mut delivered) = (Instant::now(), 0);
    let outcome = loop {
        if let Some(reason) = sender.end_reason() {
            return Err(reason);
        }
        match frames.next(|length| pool.take(length)) {
            Ok(NextFrame::Frame(header, payload)) => {
                events.frame(sender.link, header, payload);
                delivered += 1;
                if delivered % FRAMES_PER_LOOK == 0 && began.elapsed() >= TURN_MAX {
                    break DeliveryState::Part;
                }
            }
            Ok(NextFrame::Bytes) => break DeliveryState::All,
            Ok(NextFrame::Buffer(_)) => break DeliveryState::Starved,
            Err(violation) => {
                if delivered > 0 {
                    events.turn_done();
                }
                return Err(violation.to_string());
            }
        }
    };
    sender.received.set(frames.received());
    if delivered == 0 && frames.is_inside_frame() && outcome == DeliveryState::All {
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
async fn read_some(line: &LinkStream, frames: &mut FrameReader) -> Result<TlsReceived, ChannelError> {
    loop {
        line.readable().await?;
        let received = line.try_read(&mut frames.space())?;
        if let TlsReceived::Bytes(bytes) = received {
            frames.filled(bytes);
        }
        if received != TlsReceived::Nothing {
            return Ok(received);
        }
    }
}
