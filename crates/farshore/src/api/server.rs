//! The answering side of the control socket: bounded lines, bounded time, bounded clients.
//!
//! Nothing a client sends or fails to send reaches further than its own connection.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use settings::limits::{
    API_ANSWER_TIMEOUT, API_CLIENTS_MAX, API_IO_TIMEOUT, API_LOOK_TIMEOUT, API_REQUEST_BYTES_MAX, API_REQUESTS_MAX,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::refusals::DeskRefusal;
use super::{ApiRequest, ErrorCode, Reply};

/// Who is at the other end of a connection, by the kernel's word; or the node whose daemon carried a request here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    pub node: Option<String>,
    pub uid: Option<u32>,
    /// `None`: of another namespace of processes.
    pub pid: Option<i32>,
    /// Where the operation is named that the request becomes, if it becomes one: it is told also where its answer takes too long.
    pub operation: Arc<OnceLock<String>>,
}

impl Asker {
    fn of(stream: &UnixStream) -> Asker {
        let credentials = stream.peer_cred().ok();
        let pid = credentials.and_then(|found| found.pid()).filter(|pid| *pid > 0);
        Asker { uid: credentials.map(|found| found.uid()), pid, ..Asker::default() }
    }
}

/// Pause after a failed accept (no descriptor left), so that the loop does not spin.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Opens the control socket with mode 0600, replacing one that a killed daemon left behind. Must be called inside a
/// tokio runtime.
///
/// # Errors
/// A sentence: another daemon answers there, or the directory cannot be used.
pub fn bind(path: &Path) -> Result<UnixListener, String> {
    bind_with(path, Mode::RUSR | Mode::WUSR)
}

/// The same of another socket, with a mode of its own.
pub(crate) fn bind_with(path: &Path, mode: Mode) -> Result<UnixListener, String> {
    let name = path.display();
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(format!(
            "another daemon already answers at {name}; stop it first, or give this node its own state directory"
        ));
    }
    // Bound under another name and moved into place, where a dead one may stand.
    let unfinished = path.with_file_name(format!(".c{}", std::process::id()));
    let cannot = |error: std::io::Error| format!("the socket {name} cannot be opened: {error}");
    let _ = std::fs::remove_file(&unfinished);
    let bound = bind_at(&unfinished, mode).and_then(|listener| {
        std::fs::rename(&unfinished, path)?;
        UnixListener::from_std(listener.into())
    });
    bound.map_err(|error| {
        let _ = std::fs::remove_file(&unfinished);
        cannot(error)
    })
}

/// The mode of an unbound socket becomes its file's: no moment with a wider one, and no change of the umask, which belongs to every
/// thread.
fn bind_at(path: &Path, mode: Mode) -> std::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, mode)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // The umask may have taken what others may; what nobody else may is as it should be, and stays untouched.
    if rustix::fs::stat(path).is_ok_and(|found| Mode::from_raw_mode(found.st_mode) != mode) {
        rustix::fs::chmod(path, mode)?;
    }
    rustix::net::listen(&socket, i32::MAX)?;
    Ok(socket)
}

/// How long a request may take.
pub(crate) type RequestPatience = fn(&ApiRequest) -> Duration;

/// Answers clients until the future is dropped. `handler` may keep state of its thread: it is called on this one, one
/// call per request, several at once. Must run inside a `tokio::task::LocalSet`. What takes longer than it may goes on, as half of a
/// change is none; its client is told so.
pub async fn serve<H, F>(listener: UnixListener, handler: H)
where
    H: Fn(ApiRequest, Asker) -> F + 'static,
    F: Future<Output = Reply> + 'static,
{
    let patience = |request: &ApiRequest| if request.is_look() { API_LOOK_TIMEOUT } else { API_ANSWER_TIMEOUT };
    serve_within(listener, handler, patience).await;
}

async fn serve_within<H, F>(listener: UnixListener, handler: H, patience: RequestPatience)
where
    H: Fn(ApiRequest, Asker) -> F + 'static,
    F: Future<Output = Reply> + 'static,
{
    let handler = Rc::new(Handler::new(handler, patience));
    let room = Arc::new(Semaphore::new(API_CLIENTS_MAX));
    let mut clients = tokio::task::JoinSet::new();
    loop {
        // The semaphore is never closed, so a permit always comes.
        let Ok(permit) = room.clone().acquire_owned().await else {
            return;
        };
        while clients.try_join_next().is_some() {}
        // Those that wait for an answer, orders and looks, and those in the room.
        if clients.len() >= API_CLIENTS_MAX + 2 * API_REQUESTS_MAX {
            clients.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                let (handler, room) = (handler.clone(), room.clone());
                clients.spawn_local(async move { converse(stream, &handler, permit, &room).await });
            }
            Err(error) => {
                tracing::warn!(%error, "the control socket could not accept a client");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Who answers requests, whichever way they came: so many at once, each with its time.
pub(crate) struct Handler<H> {
    handler: H,
    patience: RequestPatience,
    orders: Arc<Semaphore>,
    /// Apart: what an order waits for, such as a command of the configuration, may look here.
    looks: Arc<Semaphore>,
}

impl<H, F> Handler<H>
where
    H: Fn(ApiRequest, Asker) -> F,
    F: Future<Output = Reply> + 'static,
{
    pub fn new(handler: H, patience: RequestPatience) -> Handler<H> {
        let room = || Arc::new(Semaphore::new(API_REQUESTS_MAX));
        Handler { handler, patience, orders: room(), looks: room() }
    }

    pub async fn answer(&self, request: ApiRequest, asker: Asker) -> Reply {
        let room = if request.is_look() { &self.looks } else { &self.orders };
        let Ok(permit) = room.clone().try_acquire_owned() else {
            let message =
                format!("{API_REQUESTS_MAX} requests are under way already, and none of them ends; look at the log");
            return Reply::failed(DeskRefusal::TooManyRequests, message);
        };
        let patience = (self.patience)(&request);
        // Each request of a connection has its own.
        let operation = Arc::<OnceLock<String>>::default();
        let answering = (self.handler)(request, Asker { operation: operation.clone(), ..asker });
        let task = tokio::task::spawn_local(async move {
            let reply = answering.await;
            drop(permit);
            reply
        });
        let mut reply = match timeout(patience, task).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) => Reply::failed(DeskRefusal::BrokeDown, "the daemon broke down over this; look at its log"),
            Err(_) => goes_on(patience, operation.get()),
        };
        if let Some(id) = operation.get() {
            reply.name_operation(id);
        }
        reply
    }
}

/// What is told of a request that takes too long.
fn goes_on(patience: Duration, operation: Option<&String>) -> Reply {
    let wait = operation.map(|id| format!("; 'farshore wait {id}' waits for its end")).unwrap_or_default();
    let message = format!(
        "this is not done after {patience:?}, and goes on in the daemon: a disk or the data thread does not answer, or a command of the \
         configuration still runs; look at the log and at \
         'farshore status'{wait}"
    );
    Reply::failed(DeskRefusal::NotDoneYet, message)
}

/// One client, from its first line to its last. Its place in the room is free while its request is waited for: a command that the request
/// has run may ask here too.
async fn converse<H, F>(
    mut stream: UnixStream,
    handler: &Handler<H>,
    permit: OwnedSemaphorePermit,
    room: &Arc<Semaphore>,
) where
    H: Fn(ApiRequest, Asker) -> F,
    F: Future<Output = Reply> + 'static,
{
    let asker = Asker::of(&stream);
    let mut pending = Vec::new();
    let mut place = Some(permit);
    loop {
        let reply = match timeout(API_IO_TIMEOUT, read_line(&mut stream, &mut pending)).await {
            Err(_) | Ok(RequestLine::Gone) => return,
            Ok(RequestLine::TooLong) => {
                let message = format!("the request is longer than {API_REQUEST_BYTES_MAX} bytes");
                let _ = answer(&mut stream, &Reply::error(ErrorCode::BadRequest, message)).await;
                return;
            }
            Ok(RequestLine::Whole(line)) => match understood(&line) {
                Ok(request) => {
                    drop(place.take());
                    let reply = handler.answer(request, asker.clone()).await;
                    // The semaphore is never closed.
                    place = room.clone().acquire_owned().await.ok();
                    reply
                }
                Err(refusal) => refusal,
            },
        };
        if answer(&mut stream, &reply).await.is_err() {
            return;
        }
    }
}

/// The request of a line.
///
/// # Errors
/// The answer to whoever sent it.
pub(crate) fn understood(line: &[u8]) -> Result<ApiRequest, Reply> {
    let version = env!("CARGO_PKG_VERSION");
    serde_json::from_slice(line).map_err(|error| {
        let message = format!(
            "this daemon (farshore {version}) does not understand the request: {error}; are command and daemon of one version?"
        );
        Reply::error(ErrorCode::BadRequest, message)
    })
}

enum RequestLine {
    Whole(Vec<u8>),
    TooLong,
    /// The client closed or broke the connection; a line without an end is no request.
    Gone,
}

/// The next line; `pending` keeps what arrived behind it.
async fn read_line(stream: &mut UnixStream, pending: &mut Vec<u8>) -> RequestLine {
    let mut searched = 0;
    loop {
        if let Some(end) = pending[searched..].iter().position(|byte| *byte == b'\n') {
            let rest = pending.split_off(searched + end + 1);
            return RequestLine::Whole(std::mem::replace(pending, rest));
        }
        searched = pending.len();
        if searched > API_REQUEST_BYTES_MAX {
            return RequestLine::TooLong;
        }
        let mut chunk = [0u8; 4096];
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return RequestLine::Gone,
            Ok(length) => pending.extend_from_slice(&chunk[..length]),
        }
    }
}

async fn answer(stream: &mut UnixStream, reply: &Reply) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    timeout(API_IO_TIMEOUT, async {
        stream.write_all(&line).await?;
        stream.write_all(reply.trail()).await
    })
    .await?
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream as Client;
    use std::path::PathBuf;

    use rustix::fs::inotify;

    use super::*;
    use crate::api::client;

    /// A daemon in a thread that refuses one group and lists another; stopped when the test ends with its process.
    fn start(dir: &Path) -> PathBuf {
        let socket = dir.join("control.sock");
        let path = socket.clone();
        let (ready, wait) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
            tokio::task::LocalSet::new().block_on(&runtime, async move {
                let listener = bind(&path).expect("bind");
                ready.send(()).expect("the test waits");
                serve(listener, |request, _| async move {
                    match request {
                        ApiRequest::Logging { group, .. } if group == "db" => Reply::ok("db: logging"),
                        ApiRequest::Logging { group, .. } => {
                            Reply::error(ErrorCode::UnknownGroup, format!("no group {group:?}"))
                        }
                        _ => Reply::error(ErrorCode::Refused, "not now"),
                    }
                })
                .await;
            });
        });
        wait.recv().expect("started");
        socket
    }

    fn ask_raw(socket: &Path, bytes: &[u8]) -> String {
        let mut stream = Client::connect(socket).expect("connect");
        // The daemon may answer and close before all of a hostile flood is written.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).expect("answers are text")
    }

    #[test]
    fn requests_are_answered_in_order_on_one_connection() {
        let dir = tempfile::tempdir().expect("dir");
        let socket = start(dir.path());
        assert_eq!(std::fs::metadata(&socket).expect("there").mode() & 0o777, 0o600);
        let mut client = client::ControlClient::connect(&socket).expect("connect");
        let logging = |group: &str| ApiRequest::Logging { group: group.to_owned(), volume: None };
        assert_eq!(client.ask(&logging("db")).expect("answer"), Reply::ok("db: logging"));
        assert!(matches!(
            client.ask(&logging("x")).expect("answer"),
            Reply::Error { code: ErrorCode::UnknownGroup, .. }
        ));
        assert!(matches!(
            client.ask(&ApiRequest::Counters).expect("answer"),
            Reply::Error { code: ErrorCode::Refused, .. }
        ));
    }

    /// A handler waits for something that never comes: its client is told, all others are served, and in the end what it waited for
    /// is done all the same.
    #[test]
    fn a_request_that_does_not_end_is_answered_and_goes_on() {
        let dir = tempfile::tempdir().expect("dir");
        let socket = dir.path().join("control.sock");
        let (path, (ready, wait)) = (socket.clone(), std::sync::mpsc::channel());
        let (let_go, done) =
            (Arc::new(tokio::sync::Notify::new()), Arc::new(std::sync::atomic::AtomicBool::new(false)));
        let (gate, ended) = (let_go.clone(), done.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
            tokio::task::LocalSet::new().block_on(&runtime, async move {
                let listener = bind(&path).expect("bind");
                ready.send(()).expect("the test waits");
                let handler = move |request, _| {
                    let (gate, ended) = (gate.clone(), ended.clone());
                    async move {
                        if matches!(request, ApiRequest::Logging { .. }) {
                            gate.notified().await;
                            ended.store(true, std::sync::atomic::Ordering::SeqCst);
                        }
                        Reply::ok("done")
                    }
                };
                serve_within(listener, handler, |_| Duration::from_millis(50)).await;
            });
        });
        wait.recv().expect("started");
        let mut client = client::ControlClient::connect(&socket).expect("connect");
        match client.ask(&ApiRequest::Logging { group: "db".to_owned(), volume: None }).expect("an answer") {
            Reply::Error { message, .. } => {
                assert!(message.contains("is not done after 50ms, and goes on"), "{message}")
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(client.ask(&ApiRequest::Counters).expect("served meanwhile"), Reply::ok("done"));
        let_go.notify_one();
        while !done.load(std::sync::atomic::Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }

    /// Changes of role that waited for their commands held every place, and the commands' own looks were not answered.
    #[test]
    fn orders_that_wait_keep_nobody_from_a_look() {
        use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
        let dir = tempfile::tempdir().expect("dir");
        let socket = dir.path().join("control.sock");
        let (path, (ready, wait)) = (socket.clone(), std::sync::mpsc::channel());
        let (gate, begun) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let (closed, count) = (gate.clone(), begun.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
            tokio::task::LocalSet::new().block_on(&runtime, async move {
                let listener = bind(&path).expect("bind");
                ready.send(()).expect("the test waits");
                let handler = move |request: ApiRequest, _| {
                    let (closed, count) = (closed.clone(), count.clone());
                    async move {
                        if !request.is_look() {
                            count.fetch_add(1, SeqCst);
                            closed.acquire().await.expect("it is never closed").forget();
                        }
                        Reply::ok("done")
                    }
                };
                serve(listener, handler).await;
            });
        });
        wait.recv().expect("started");
        let order = serde_json::to_string(&ApiRequest::Logging { group: "db".to_owned(), volume: None })
            .expect("a request")
            + "\n";
        let mut waiting: Vec<Client> = (0..API_REQUESTS_MAX)
            .map(|_| {
                let mut client = Client::connect(&socket).expect("connect");
                client.write_all(order.as_bytes()).expect("sent");
                client
            })
            .collect();
        while begun.load(SeqCst) < API_REQUESTS_MAX {
            std::thread::yield_now();
        }
        let mut client = client::ControlClient::connect(&socket).expect("connect");
        assert_eq!(client.ask(&ApiRequest::Counters).expect("heard"), Reply::ok("done"));
        assert!(ask_raw(&socket, order.as_bytes()).contains("too-many-requests"), "orders have a bound");
        gate.add_permits(API_REQUESTS_MAX);
        for client in &mut waiting {
            client.shutdown(std::net::Shutdown::Write).expect("no more is asked");
            let mut answer = String::new();
            client.read_to_string(&mut answer).expect("an answer");
            assert!(answer.contains("done"), "{answer}");
        }
    }

    #[test]
    fn hostile_bytes_get_a_sentence_and_harm_nobody() {
        let dir = tempfile::tempdir().expect("dir");
        let socket = start(dir.path());
        for bytes in [&b"\n"[..], b"{}\n", b"\xff\xfe\x00\n", b"[[[[[[[[\n", b"{\"request\":\"status\",\"x\":1}\n"] {
            let answer = ask_raw(&socket, bytes);
            assert!(answer.contains("bad-request") && answer.ends_with('\n'), "{answer}");
        }
        assert_eq!(ask_raw(&socket, b"{\"request\":"), "", "a line without an end is no request");
        assert_eq!(ask_raw(&socket, b""), "");
        let nested = vec![b'['; API_REQUEST_BYTES_MAX - 1];
        assert!(ask_raw(&socket, &[&nested[..], b"\n"].concat()).contains("bad-request"));
        let flood = vec![b'x'; 4 * API_REQUEST_BYTES_MAX];
        // Either the refusal arrives or the connection breaks under the flood; the daemon stands.
        let answer = ask_raw(&socket, &flood);
        assert!(answer.is_empty() || answer.contains("longer than"), "{answer}");
        let mut client = client::ControlClient::connect(&socket).expect("still there");
        assert!(client.ask(&ApiRequest::Logging { group: "db".to_owned(), volume: None }).is_ok());
    }

    #[test]
    fn a_second_daemon_is_refused_and_a_dead_socket_replaced() {
        let dir = tempfile::tempdir().expect("dir");
        let socket = start(dir.path());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        let _inside = runtime.enter();
        assert!(bind(&socket).unwrap_err().contains("another daemon"));
        let dead = dir.path().join("dead.sock");
        drop(std::os::unix::net::UnixListener::bind(&dead).expect("bind"));
        assert!(bind(&dead).is_ok());
        assert!(bind(&dir.path().join("no/such.sock")).unwrap_err().contains("cannot be opened"));
    }

    /// It had the mode that the umask left from its making to a chmod, and whoever was quick came in. The kernel tells of a chmod.
    #[test]
    fn the_socket_never_has_another_mode_than_its_own() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        let _inside = runtime.enter();
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("socket");
        let changes = inotify::init(inotify::CreateFlags::NONBLOCK).expect("the kernel tells");
        inotify::add_watch(&changes, dir.path(), inotify::WatchFlags::ATTRIB).expect("it looks");
        let _socket = bind(&path).expect("bound");
        assert_eq!(rustix::io::read(&changes, &mut [0; 512]), Err(rustix::io::Errno::AGAIN), "its mode was changed");
        assert_eq!(std::fs::symlink_metadata(&path).expect("there").mode() & 0o7777, 0o600);
    }

    #[test]
    fn an_absent_daemon_is_explained() {
        let dir = tempfile::tempdir().expect("dir");
        let missing = dir.path().join("control.sock");
        let error = client::ControlClient::connect(&missing).err().expect("nobody").to_string();
        assert!(error.contains("control.sock") && error.contains("farshore serve"), "{error}");
        drop(std::os::unix::net::UnixListener::bind(&missing).expect("bind"));
        let error = client::ControlClient::connect(&missing).err().expect("nobody").to_string();
        assert!(error.contains("nobody listens"), "{error}");
    }

    #[test]
    fn a_daemon_that_talks_nonsense_or_hangs_up_is_explained() {
        let dir = tempfile::tempdir().expect("dir");
        for (index, (says, hint)) in [
            (&b"hello\n"[..], "does not speak"),
            (b"", "without an answer"),
            (b"{\"reply\":\"ok\"", "without an answer"),
        ]
        .into_iter()
        .enumerate()
        {
            let socket = dir.path().join(format!("{index}.sock"));
            let listener = std::os::unix::net::UnixListener::bind(&socket).expect("bind");
            let fake = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("accept");
                let mut request = [0u8; 64];
                let _ = stream.read(&mut request);
                stream.write_all(says).expect("write");
            });
            let mut client = client::ControlClient::connect(&socket).expect("connect");
            let error = client.ask(&ApiRequest::Counters).expect_err("no answer").to_string();
            assert!(error.contains(hint), "{error}");
            fake.join().expect("fake");
        }
    }
}
