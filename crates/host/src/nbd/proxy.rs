//! Stands between the kernel's client (its own of NBD, or [`crate::ublk`]) and a server that may go away and come back: a daemon that is
//! restarted, upgraded or killed.
//!
//! The kernel gives a request up, or waits for half a minute, when the connection it went out on breaks. So the kernel's connection
//! ends here and never breaks, and what the server has not answered is asked again of the one that comes back, in the order in which
//! the kernel asked. Asking twice is harmless: reads, writes of the same bytes, trims and flushes leave what the first left, and the
//! server orders what overlaps. What was answered is never asked again.
//!
//! What must hold:
//! * each request of the kernel is answered once;
//! * a server that stays away longer than the limit costs errors, not for ever: they end when it is back; one that comes and goes and
//!   answers nothing is away;
//! * what is asked again reaches the content that it was asked of first: [`ContentCheck`] says so, of each connection before anything is
//!   asked on it, and when it says no, or after [`NbdProxy::fail`], nothing reaches the server any more.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::client::{Address, Ask, ClientError, NbdAnswer, NbdClient};
use super::proto::{self, Errno, NbdCommand, NbdRequest, flag};

/// Bytes of writes that may be kept; the kernel's device stops being read until some are answered.
pub(crate) const KEPT_BYTES_MAX: usize = 64 << 20;
/// Requests at the server at once: as many as the kernel's device has.
const ASKED_MAX: usize = 128;
/// Read from the kernel at once.
const BUFFER_BYTES: usize = 256 << 10;
/// Pauses between two tries to reach the server: a daemon that is back is found within the last.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_millis(200);
/// A server that takes a connection and says nothing is tried again.
const GREETING: Duration = Duration::from_secs(5);
/// A server that nothing was asked of for so long after it came back counts as one that answers.
const SETTLED: Duration = Duration::from_secs(5);

/// Whether the server has the content that requests were asked of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentVerdict {
    Same,
    /// It does not say: it is asked again a little later.
    Unknown,
    /// It may have another one, and why: everything fails from now on.
    Another(String),
}

/// Says it of the server as it is now. A connection that was made before and still stands leads to the same content.
pub type ContentCheck = Box<dyn Fn() -> Pin<Box<dyn Future<Output = ContentVerdict>>>>;

/// What is worth a line in a log.
#[derive(Debug)]
pub enum ProxyEvent {
    /// The server is gone, and is waited for.
    Lost(ClientError),
    /// It has been away too long: requests fail until it is back.
    GivenUp(ClientError),
    /// It is back, and has an export of this size.
    Back { away: Duration, size_bytes: u64 },
    /// It may have another content, and why: requests fail for ever.
    Over(String),
}

/// Why the kernel asks no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyEnd {
    /// The device was taken away.
    Disconnected,
    /// The kernel's end was closed, and the device may still be there.
    Closed,
}

struct KeptRequest {
    request: NbdRequest,
    payload: Vec<u8>,
}

/// What the kernel asked and has no answer to.
#[derive(Default)]
struct KeptRequests {
    next: u64,
    kept: BTreeMap<u64, KeptRequest>,
    /// Of these, those that the present server was not asked.
    unasked: VecDeque<u64>,
    bytes: usize,
}

/// See the module.
pub struct NbdProxy {
    address: Address,
    export: String,
    limit: Duration,
    check: ContentCheck,
    events: Box<dyn Fn(ProxyEvent)>,
    requests: RefCell<KeptRequests>,
    answers: RefCell<Vec<u8>>,
    /// Requests fail at once.
    fails: Cell<bool>,
    is_away: Cell<bool>,
    /// The first loss since the server answered.
    away_since: Cell<Option<Instant>>,
    answers_heard: Cell<u64>,
    /// For ever.
    is_over: Cell<bool>,
    asks: Notify,
    answered: Notify,
    room: Notify,
}

impl NbdProxy {
    /// `limit`: how long the server may be away before requests fail.
    pub fn new(
        address: Address,
        export: String,
        limit: Duration,
        check: ContentCheck,
        events: impl Fn(ProxyEvent) + 'static,
    ) -> Rc<NbdProxy> {
        Rc::new(NbdProxy {
            address,
            export,
            limit,
            check,
            events: Box::new(events),
            requests: RefCell::default(),
            answers: RefCell::default(),
            fails: Cell::new(false),
            is_away: Cell::new(false),
            away_since: Cell::new(None),
            answers_heard: Cell::new(0),
            is_over: Cell::new(false),
            asks: Notify::new(),
            answered: Notify::new(),
            room: Notify::new(),
        })
    }

    /// Serves the kernel's end until that is closed. What another end asked before and has no answer to is forgotten: the kernel asks
    /// it again on this one.
    pub async fn serve(&self, kernel: UnixStream, client: Option<NbdClient>) -> ProxyEnd {
        *self.requests.borrow_mut() = KeptRequests::default();
        self.answers.borrow_mut().clear();
        let (from_kernel, to_kernel) = kernel.into_split();
        tokio::select! {
            end = self.take_requests(BufReader::with_capacity(BUFFER_BYTES, from_kernel)) => end,
            end = self.give_answers(to_kernel) => end,
            never = self.keep_asking(client) => never,
        }
    }

    /// Whether the server is gone, and waited for.
    pub fn is_away(&self) -> bool {
        self.is_away.get()
    }

    /// From now on, and for ever, each request fails at once.
    pub fn fail(&self) {
        self.is_over.set(true);
        self.fail_all();
        self.asks.notify_one();
    }

    async fn take_requests(&self, mut kernel: impl AsyncRead + Unpin) -> ProxyEnd {
        loop {
            let mut head = [0; proto::REQUEST_BYTES];
            if kernel.read_exact(&mut head).await.is_err() {
                return ProxyEnd::Closed;
            }
            let Ok(request) = proto::parse_request(&head) else { return ProxyEnd::Closed };
            let length = request.length as usize;
            let mut payload = Vec::new();
            match request.command {
                NbdCommand::Disconnect => return ProxyEnd::Disconnected,
                NbdCommand::Write => {
                    while !self.has_room(length) {
                        self.room.notified().await;
                    }
                    payload.resize(length, 0);
                    if kernel.read_exact(&mut payload).await.is_err() {
                        return ProxyEnd::Closed;
                    }
                }
                _ => {}
            }
            self.take(KeptRequest { request, payload });
        }
    }

    /// One that is larger than all room goes alone.
    fn has_room(&self, length: usize) -> bool {
        let bytes = self.requests.borrow().bytes;
        bytes == 0 || bytes + length <= KEPT_BYTES_MAX
    }

    fn take(&self, kept: KeptRequest) {
        if self.fails.get() {
            return self.answer(&kept.request, Err(Errno::Io));
        }
        let mut requests = self.requests.borrow_mut();
        let number = requests.next;
        requests.next += 1;
        requests.bytes += kept.payload.len();
        requests.kept.insert(number, kept);
        requests.unasked.push_back(number);
        self.asks.notify_one();
    }

    fn answer(&self, request: &NbdRequest, result: Result<&[u8], Errno>) {
        let mut answers = self.answers.borrow_mut();
        answers.extend_from_slice(&proto::simple_reply(request.handle, result.err()));
        answers.extend_from_slice(result.unwrap_or_default());
        self.answered.notify_one();
    }

    async fn give_answers(&self, mut kernel: impl AsyncWrite + Unpin) -> ProxyEnd {
        loop {
            let answers = std::mem::take(&mut *self.answers.borrow_mut());
            if answers.is_empty() {
                self.answered.notified().await;
            } else if kernel.write_all(&answers).await.is_err() {
                return ProxyEnd::Closed;
            }
        }
    }

    /// Until dropped.
    async fn keep_asking(&self, client: Option<NbdClient>) -> ProxyEnd {
        let mut client = client;
        loop {
            let answers = self.answers_heard.get();
            let lost = match client.take() {
                Some(mut client) => self.ask(&mut client).await,
                None => ClientError::Protocol("it was not reached yet"),
            };
            if answers == self.answers_heard.get() {
                // One that takes connections and breaks them is not asked again and again.
                sleep(RETRY_MAX).await;
            }
            if self.is_over.get() {
                return pending().await;
            }
            client = Some(self.find_again(lost).await);
        }
    }

    /// Carries requests and answers until the connection is of no more use.
    async fn ask(&self, client: &mut NbdClient) -> ClientError {
        {
            let mut requests = self.requests.borrow_mut();
            requests.unasked = requests.kept.keys().copied().collect();
        }
        loop {
            if self.is_over.get() {
                return ClientError::Protocol("it is asked no more");
            }
            self.ask_more(client);
            if client.in_flight() == 0 {
                self.idle().await;
                continue;
            }
            tokio::select! {
                () = self.asks.notified() => {}
                answer = client.next() => match answer {
                    // It stops: the request is for the one that comes after it.
                    Ok(NbdAnswer { result: Err(Errno::Shutdown), .. }) => return ClientError::Protocol("it is stopping"),
                    Ok(answer) => {
                        self.answers_heard.set(self.answers_heard.get() + 1);
                        self.away_since.set(None);
                        self.pass_on(answer.cookie, answer.result);
                    }
                    Err(error) => return error,
                },
            }
        }
    }

    /// Until there is something to ask.
    async fn idle(&self) {
        if self.away_since.get().is_some() {
            match timeout(SETTLED, self.asks.notified()).await {
                Ok(()) => return,
                Err(_) => self.away_since.set(None),
            }
        }
        self.asks.notified().await;
    }

    fn ask_more(&self, client: &mut NbdClient) {
        let mut refused = Vec::new();
        let mut requests = self.requests.borrow_mut();
        while client.in_flight() < ASKED_MAX
            && let Some(number) = requests.unasked.pop_front()
        {
            match requests.kept.get(&number).and_then(asked) {
                Some(ask) => client.queue(number, ask),
                None => refused.push(number),
            }
        }
        drop(requests);
        refused.into_iter().for_each(|number| self.pass_on(number, Err(Errno::Invalid)));
    }

    fn pass_on(&self, number: u64, result: Result<Vec<u8>, Errno>) {
        let kept = {
            let mut requests = self.requests.borrow_mut();
            let Some(kept) = requests.kept.remove(&number) else { return };
            requests.bytes -= kept.payload.len();
            kept
        };
        self.room.notify_one();
        self.answer(&kept.request, result.as_deref().map_err(|errno| *errno));
    }

    /// Waits until the server is back. Everything fails meanwhile once it has been away for too long.
    async fn find_again(&self, lost: ClientError) -> NbdClient {
        let since = self.away_since.get().unwrap_or_else(Instant::now);
        let mut pause = RETRY_FIRST;
        self.away_since.set(Some(since));
        self.is_away.set(true);
        (self.events)(ProxyEvent::Lost(lost));
        if since.elapsed() >= self.limit && !self.fails.get() {
            self.fail_all();
            (self.events)(ProxyEvent::GivenUp(ClientError::Protocol("it comes and goes, and answers nothing")));
        }
        loop {
            let reached = timeout(GREETING, NbdClient::connect(&self.address, &self.export)).await;
            let verdict = (self.check)().await;
            if self.is_over.get() {
                return pending().await;
            }
            let failure = match (verdict, reached) {
                (ContentVerdict::Another(why), _) => {
                    self.fail();
                    (self.events)(ProxyEvent::Over(why));
                    return pending().await;
                }
                (ContentVerdict::Same, Ok(Ok(client))) => {
                    self.fails.set(false);
                    self.is_away.set(false);
                    (self.events)(ProxyEvent::Back { away: since.elapsed(), size_bytes: client.export().size_bytes });
                    return client;
                }
                (ContentVerdict::Unknown, Ok(Ok(_))) => ClientError::Protocol("it does not say yet how the group is"),
                (_, Ok(Err(error))) => error,
                (_, Err(_)) => ClientError::Protocol("it says nothing"),
            };
            if since.elapsed() >= self.limit && !self.fails.get() {
                self.fail_all();
                (self.events)(ProxyEvent::GivenUp(failure));
            }
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    fn fail_all(&self) {
        self.fails.set(true);
        let kept = std::mem::take(&mut *self.requests.borrow_mut());
        self.requests.borrow_mut().next = kept.next;
        kept.kept.values().for_each(|kept| self.answer(&kept.request, Err(Errno::Io)));
        self.room.notify_one();
    }
}

/// `None`: what the kernel's client does not ask.
fn asked(kept: &KeptRequest) -> Option<Ask<'_>> {
    let NbdRequest { flags, command, offset, length, .. } = kept.request;
    let fua = flags & flag::FUA != 0;
    Some(match command {
        NbdCommand::Read => Ask::Read { offset, length },
        NbdCommand::Write => Ask::Write { offset, data: &kept.payload, fua },
        NbdCommand::Flush => Ask::Flush,
        NbdCommand::Trim => Ask::Trim { offset, length, fua },
        NbdCommand::WriteZeroes => Ask::Zero { offset, length, fua, no_hole: flags & flag::NO_HOLE != 0 },
        NbdCommand::Cache => Ask::Cache { offset, length },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream as PlainStream};

    use super::super::proto::{info, option, reply, transmission};
    use super::*;

    /// A server of 1 MiB that answers so many requests on a connection, and breaks it at the next.
    fn break_when_asked(mut client: PlainStream, answers: usize) -> std::io::Result<()> {
        client.write_all(&proto::MAGIC.to_be_bytes())?;
        client.write_all(&proto::OPTION_MAGIC.to_be_bytes())?;
        client.write_all(&(proto::FLAG_FIXED_NEWSTYLE | proto::FLAG_NO_ZEROES).to_be_bytes())?;
        client.read_exact(&mut [0; 4])?;
        let mut head = [0; proto::OPTION_BYTES];
        client.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[12], head[13], head[14], head[15]]);
        client.read_exact(&mut vec![0; length as usize])?;
        let mut out = Vec::new();
        let facts: [&[u8]; 3] =
            [&info::EXPORT.to_be_bytes(), &(1_u64 << 20).to_be_bytes(), &transmission::HAS_FLAGS.to_be_bytes()];
        proto::put_option_reply(&mut out, option::GO, reply::INFO, &facts);
        proto::put_option_reply(&mut out, option::GO, reply::ACK, &[]);
        client.write_all(&out)?;
        for _ in 0..answers {
            let mut head = [0; proto::REQUEST_BYTES];
            client.read_exact(&mut head)?;
            let asked = proto::parse_request(&head).expect("the proxy's request");
            client.write_all(&proto::simple_reply(asked.handle, None))?;
        }
        client.read_exact(&mut [0; proto::REQUEST_BYTES])
    }

    /// How each flush ends that the kernel asks for meanwhile, one after the other.
    async fn flushes(mut kernel: UnixStream, time: Duration) -> Vec<Option<Errno>> {
        let (began, mut found) = (Instant::now(), Vec::new());
        while began.elapsed() < time {
            let flush = NbdRequest { flags: 0, command: NbdCommand::Flush, handle: 7, offset: 0, length: 0 };
            kernel.write_all(&proto::encode_request(&flush)).await.expect("the proxy reads");
            let mut head = [0; proto::SIMPLE_REPLY_BYTES];
            let heard = timeout(Duration::from_secs(20), kernel.read_exact(&mut head)).await;
            heard.expect("it waits no longer than the limit").expect("the proxy answers");
            found.push(proto::parse_simple_reply(&head).expect("an answer").1);
        }
        found
    }

    /// A daemon that dies of each request, and is started again each time.
    #[test]
    fn a_server_that_comes_and_breaks_is_away_and_one_that_answers_is_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let limit = Duration::from_millis(500);
        for (answers, expected) in [(0, Some(Errno::Io)), (1, None)] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("nbd.sock");
            let listener = UnixListener::bind(&path).expect("a socket");
            std::thread::spawn(move || listener.incoming().flatten().for_each(|it| _ = break_when_asked(it, answers)));
            let check: ContentCheck = Box::new(|| Box::pin(async { ContentVerdict::Same }));
            let proxy = NbdProxy::new(Address::Unix(path), "g/v".to_owned(), limit, check, |_| ());
            let found = runtime.block_on(async {
                let (kernel, ours) = UnixStream::pair().expect("sockets");
                tokio::select! {
                    end = proxy.serve(ours, None) => panic!("{end:?}"),
                    found = flushes(kernel, 3 * limit) => found,
                }
            });
            assert!(found.iter().all(|end| *end == expected), "{answers} answers: {found:?}");
        }
    }
}
