//! `link serve`: lets authenticated peers test the line to this machine, one test at a time.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use host::link::SocketOptions;
use host::link::single::{LineCredentials, LineListener, ListenerTuner, SingleConnection};
use host::report_limiter::{REPEAT_AFTER, ReportLimiter, ReportSubject};
use tokio::sync::Notify;
use units::quantities::{Seconds, show_time};

use super::TestFailure;
use super::client::check_granted;
use super::disk::TestDisk;
use super::stage::TestStage;
use super::tally::EndReport;
use super::terms::{FarDisk, Terms};
use super::wire::{DEAF, TestWire};
use super::words::{ASKED_BYTES_MAX, Word};

/// Times the timeout, beyond a test's own time, for what is still in queues: then a test that does not end is ended.
const GRACE_TIMEOUTS: u32 = 60;
/// How long the client may take to close after the report.
const GOODBYE: Duration = Duration::from_secs(2);
/// Times the timeout: whoever has not asked for a test by then, or joined one, is let go.
const GREETING_TIMEOUTS: u32 = 6;
/// Connections that are neither of a test nor let go, at once.
const GREETINGS_MAX: usize = 64;

pub struct Serving {
    pub credentials: LineCredentials,
    pub listen: SocketAddr,
    /// What this node asks of its sockets when the terms leave it open.
    pub ours: SocketOptions,
    /// Longest test that is served.
    pub max_time: Duration,
    /// Serve one test, then end.
    pub once: bool,
    /// A file that tests may write when they ask for the real disk.
    pub disk_file: Option<PathBuf>,
    pub timeout: Duration,
}

/// What happens, for the operator's eyes.
pub trait Events {
    fn listening(&self, address: SocketAddr);
    fn refused(&self, from: SocketAddr, why: &str);
    fn began(&self, from: &str, terms: &Terms);
    fn ended(&self, from: &str, terms: &Terms, half: &EndReport, lost: Option<&str>);
}

struct LineTestServer {
    serving: Serving,
    events: Rc<dyn Events>,
    complaints: ReportLimiter,
    tuner: ListenerTuner,
    /// No further test begins.
    stopping: Cell<bool>,
    /// The test that runs.
    session: RefCell<Option<Session>>,
    /// Tests whose client is there: that runs, or that ended and has its report under way.
    unfinished: Cell<usize>,
    /// One less of them.
    served: Notify,
    /// Held by each connection that is neither of a test nor let go.
    greeting: Rc<()>,
}

struct Session {
    token: u64,
    /// The peer, for eyes.
    from: String,
    control: Rc<TestWire>,
    connections: u32,
    joined: RefCell<Vec<Rc<TestWire>>>,
    /// Once all have joined.
    stage: RefCell<Option<Rc<TestStage>>>,
}

/// The place that a test takes until this goes, however it goes: one that breaks down in the middle keeps nobody out.
struct TestPlace<'a> {
    server: &'a LineTestServer,
    control: &'a TestWire,
}

impl<'a> TestPlace<'a> {
    fn take(server: &'a LineTestServer, control: &'a TestWire) -> TestPlace<'a> {
        server.unfinished.set(server.unfinished.get() + 1);
        TestPlace { server, control }
    }
}

impl Drop for TestPlace<'_> {
    fn drop(&mut self) {
        let TestPlace { server, control } = self;
        let is_ours = |session: &Session| session.token == control.session.0;
        // Another test may run by now.
        let is_left = server.session.borrow().as_ref().is_some_and(is_ours);
        if is_left {
            drop(server.end_session(false));
        }
        control.end("the test is over");
        server.unfinished.set(server.unfinished.get() - 1);
        server.served.notify_one();
    }
}

/// Serves until `stop` is notified, or until the one test ended. A test that runs then is asked to end and report first.
///
/// # Errors
/// The address cannot be listened on.
pub async fn serve(serving: Serving, events: Rc<dyn Events>, stop: &Notify) -> Result<(), TestFailure> {
    let address = serving.listen;
    let mut door = LineListener::bind(serving.credentials.clone(), address, serving.timeout).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::PermissionDenied => "ports below net.ipv4.ip_unprivileged_port_start are root's",
            _ => "is it in use, or not this host's?",
        };
        TestFailure::failed(format!("cannot listen on {address}: {error}; {hint} (--listen names another)"))
    })?;
    events.listening(door.address().unwrap_or(address));
    let server = Rc::new(LineTestServer::new(serving, events, door.tuner()));
    loop {
        tokio::select! {
            (from, arrived) = door.next() => match arrived {
                Ok(solo) => {
                    tokio::task::spawn_local(server.clone().greet(from, solo));
                }
                Err(refusal) => server.refused(from, &refusal.to_string()),
            },
            () = stop.notified() => {
                // The second time nobody waits.
                if server.stopping.replace(true) || server.unfinished.get() == 0 {
                    return Ok(());
                }
                server.say_stop();
            }
            () = server.served.notified() => {
                if server.stopping.get() && server.unfinished.get() == 0 {
                    return Ok(());
                }
            }
        }
    }
}

/// The wall clock, in microseconds since 1970.
pub(super) fn unix_us() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

impl Session {
    fn has_room(&self) -> bool {
        self.stage.borrow().is_none() && self.joined.borrow().len() < self.connections as usize
    }
}

impl LineTestServer {
    fn new(serving: Serving, events: Rc<dyn Events>, tuner: ListenerTuner) -> LineTestServer {
        LineTestServer {
            serving,
            events,
            complaints: ReportLimiter::new(REPEAT_AFTER),
            tuner,
            stopping: false.into(),
            session: RefCell::default(),
            unfinished: Cell::new(0),
            served: Notify::new(),
            greeting: Rc::new(()),
        }
    }

    fn say_stop(&self) {
        if let Some(session) = &*self.session.borrow() {
            session.control.say(&Word::Stop);
            if let Some(stage) = &*session.stage.borrow() {
                stage.stop();
            }
        }
    }

    /// Whoever tries again and again comes from another port each time: the machine is what makes it news.
    fn refused(&self, from: SocketAddr, why: &str) {
        if self.complaints.is_news(ReportSubject::Unauthenticated(&from.ip().to_string()), why) {
            self.events.refused(from, why);
        }
    }

    /// A connection that has proven who it is says what it wants.
    async fn greet(self: Rc<Self>, from: SocketAddr, solo: SingleConnection) {
        let greeting = self.greeting.clone();
        let name = solo.certificate.as_ref().and_then(|facts| facts.identity.as_ref()).map(|who| who.name.clone());
        let wire = TestWire::start(solo, ASKED_BYTES_MAX);
        wire.expect_life(self.serving.timeout);
        let no = |why: &str| {
            wire.end(why);
            self.refused(from, why);
        };
        if Rc::strong_count(&greeting) > 1 + GREETINGS_MAX {
            return no(&format!("{GREETINGS_MAX} connections have asked for nothing yet"));
        }
        let limit = GREETING_TIMEOUTS * self.serving.timeout;
        let Ok(wish) = tokio::time::timeout(limit, LineTestServer::wish(&wire)).await else {
            return no(&format!("it asked for no test within {limit:?}"));
        };
        match wish {
            Ok(Word::Ask(terms)) => {
                let from = name.map_or(from.to_string(), |name| format!("{name} ({from})"));
                self.session(&from, &wire, *terms, greeting).await;
            }
            Ok(Word::Join { token }) => {
                let session = self.session.borrow();
                match session.as_ref().filter(|session| session.token == token) {
                    Some(session) if session.has_room() => {
                        session.joined.borrow_mut().push(wire);
                        session.control.wake();
                    }
                    Some(_) => no("it joins a test that has all its connections"),
                    None => no("it joins a test that is not there"),
                }
            }
            Ok(_) => no("it spoke out of turn"),
            Err(trouble) if wire.is_cut() => no(&trouble.sentence()),
            // It needed no more.
            Err(_) => {}
        }
    }

    /// What it is here for. Those who only measure round trips ask nothing, or the time.
    async fn wish(wire: &TestWire) -> Result<Word, TestFailure> {
        loop {
            match wire.word().await? {
                Word::Clock { .. } if wire.is_deaf() => wire.end(DEAF),
                Word::Clock { .. } => wire.say(&Word::Clock { unix_us: unix_us() }),
                other => return Ok(other),
            }
        }
    }

    async fn session(&self, from: &str, control: &Rc<TestWire>, terms: Terms, greeting: Rc<()>) {
        if let Err(no) = self.admit(from, control, &terms) {
            control.say(&no);
            // Until the asker has read it and left.
            let _ = control.word_within(GOODBYE).await;
            return control.end("it was refused");
        }
        let _place = TestPlace::take(self, control);
        drop(greeting);
        control.expect_life(terms.timeout());
        let played = tokio::time::timeout(self.longest(&terms), self.play(from, control, &terms)).await;
        let result = played.unwrap_or_else(|_| Err(TestFailure::failed("it did not come to its end in time")));
        let half = self.end_session(*result.as_ref().unwrap_or(&false));
        let lost = result.err().map(TestFailure::sentence);
        control.say(&match lost.clone() {
            None => Word::Report(Box::new(half.clone())),
            Some(why) => Word::No { why, is_usage: false },
        });
        self.events.ended(from, &terms, &half, lost.as_deref());
        // It closes when it has read that; others may ask for their test meanwhile.
        let gone = control.until(|wire| wire.is_down().then_some(()));
        let _ = tokio::time::timeout(terms.timeout().max(GOODBYE), gone).await;
    }

    /// Makes room for the next test; this end's half of the report, as far as it came. `interrupted`: over there.
    fn end_session(&self, interrupted: bool) -> EndReport {
        self.stopping.set(self.stopping.get() || self.serving.once);
        self.tuner.retune(&SocketOptions::default());
        let Some(session) = self.session.take() else { return EndReport::default() };
        session.joined.take().iter().for_each(|wire| wire.end("the test is over"));
        let mut half = session.stage.take().map(|stage| stage.half()).unwrap_or_default();
        half.interrupted |= interrupted;
        half
    }

    fn longest(&self, terms: &Terms) -> Duration {
        terms.all_time() + terms.timeout() * GRACE_TIMEOUTS
    }

    /// Begins a session, or says why not.
    fn admit(&self, from: &str, control: &Rc<TestWire>, terms: &Terms) -> Result<(), Word> {
        let no = |why: String, is_usage: bool| Err(Word::No { why, is_usage });
        if let Some(session) = &*self.session.borrow() {
            return no(format!("it is at a test with {}; try again when that is over", session.from), false);
        }
        if self.stopping.get() {
            return no("it is about to end".to_owned(), false);
        }
        if let Err(why) = terms.check_version() {
            return no(why, false);
        }
        if let Err(why) = terms.check() {
            return no(why, true);
        }
        if terms.all_time() > self.serving.max_time {
            let most = show_time(Seconds(self.serving.max_time.as_secs_f64()));
            return no(
                format!("it serves tests of {most} at most: ask for less, or serve with another --max-time"),
                true,
            );
        }
        if terms.far_disk == FarDisk::File && self.serving.disk_file.is_none() {
            return no("it was given no file to write: serve with --disk-file, or model the disk".to_owned(), true);
        }
        let token = control.session.0;
        self.tuner.retune(&terms.sockets.options(&self.serving.ours));
        *self.session.borrow_mut() = Some(Session {
            token,
            from: from.to_owned(),
            control: control.clone(),
            connections: terms.connections,
            joined: RefCell::default(),
            stage: RefCell::default(),
        });
        control.say(&Word::Ready { token });
        Ok(())
    }

    async fn disk(&self, control: &TestWire, terms: &Terms) -> Result<TestDisk, TestFailure> {
        match (terms.far_disk, &self.serving.disk_file) {
            (FarDisk::None, _) => Ok(TestDisk::None),
            (FarDisk::Modelled(disk), _) => Ok(TestDisk::modelled(disk.model())),
            (FarDisk::File, Some(path)) => {
                // Nobody waits for the file once the client has left.
                let gone = async { drop(control.until(|_| None::<Infallible>).await) };
                TestDisk::file(path, terms, gone).await
            }
            (FarDisk::File, None) => unreachable!("refused before"),
        }
    }

    /// Whether it was interrupted over there.
    async fn play(&self, from: &str, control: &Rc<TestWire>, terms: &Terms) -> Result<bool, TestFailure> {
        let stage = self.set_stage(control, terms).await?;
        self.events.began(from, terms);
        control.say(&Word::Go);
        let playing = stage.play();
        tokio::pin!(playing);
        let mut finished = None;
        let played = loop {
            tokio::select! {
                done = &mut playing => break done,
                word = control.word() => match word {
                    Ok(Word::Stop) => stage.stop(),
                    // Its parts are done, and ours will be in a moment.
                    Ok(Word::Finish { interrupted }) => finished = Some(interrupted),
                    Ok(_) => stage.wires.iter().for_each(|wire| wire.end("its control connection spoke out of turn")),
                    Err(trouble) => {
                        stage.wires.iter().for_each(|wire| wire.end("its control connection was lost"));
                        let _ = (&mut playing).await;
                        break Err(trouble);
                    }
                },
            }
        };
        played?;
        loop {
            if let Some(interrupted) = finished {
                return Ok(interrupted);
            }
            match control.word_within(terms.timeout()).await? {
                Word::Finish { interrupted } => finished = Some(interrupted),
                Word::Stop => {}
                _ => return Err(TestFailure::failed("its control connection spoke out of turn")),
            }
        }
    }

    /// Waits until all connections have joined and the client says go.
    async fn set_stage(&self, control: &Rc<TestWire>, terms: &Terms) -> Result<Rc<TestStage>, TestFailure> {
        match control.word_within(terms.timeout() * (1 + terms.connections)).await? {
            Word::Go => {}
            _ => return Err(TestFailure::failed("it spoke out of turn")),
        }
        let joined = || self.session.borrow().as_ref().map_or(0, |session| session.joined.borrow().len());
        let all = control.until(|_| (joined() >= terms.connections as usize).then_some(()));
        let late = |_| TestFailure::failed("not all of its connections joined in time");
        tokio::time::timeout(terms.timeout(), all).await.map_err(late)??;
        let wires = self.session.borrow().as_ref().map(|session| session.joined.borrow().clone()).unwrap_or_default();
        for wire in &wires {
            let granted = check_granted(&wire.socket.borrow(), &terms.sockets);
            granted.map_err(|why| TestFailure::failed(format!("at the far end {why}")))?;
            wire.expect_life(terms.timeout());
        }
        let disk = Rc::new(self.disk(control, terms).await?);
        let stage = TestStage::new(Rc::new(terms.clone()), true, wires, disk);
        if let Some(session) = &*self.session.borrow() {
            *session.stage.borrow_mut() = Some(stage.clone());
        }
        Ok(stage)
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::tests::beside_a_silent_peer;
    use super::*;

    struct Nobody;

    impl Events for Nobody {
        fn listening(&self, _: SocketAddr) {}
        fn refused(&self, _: SocketAddr, _: &str) {}
        fn began(&self, _: &str, _: &Terms) {}
        fn ended(&self, _: &str, _: &Terms, _: &EndReport, _: Option<&str>) {}
    }

    /// To be called inside a runtime.
    fn server() -> LineTestServer {
        let (listen, timeout) = (([127, 0, 0, 1], 0).into(), Duration::from_secs(60));
        let credentials = LineCredentials { cluster: "test".to_owned(), tls: None, secret: None };
        let door = LineListener::bind(credentials.clone(), listen, timeout).expect("a port");
        let (ours, max_time) = (SocketOptions::default(), Duration::from_secs(3600));
        let serving = Serving { credentials, listen, ours, max_time, once: false, disk_file: None, timeout };
        LineTestServer::new(serving, Rc::new(Nobody), door.tuner())
    }

    /// As of a panic: nobody goes on with the test, and nobody ended it.
    #[test]
    fn a_test_that_breaks_down_keeps_nobody_out() {
        beside_a_silent_peer(async |wire| {
            let server = server();
            let greeting = server.greeting.clone();
            let test = server.session("a peer", &wire, Terms::default(), greeting);
            tokio::time::timeout(Duration::ZERO, test).await.expect_err("it waits for its peer");
            assert!(wire.is_down() && server.session.borrow().is_none());
            assert_eq!((server.unfinished.get(), Rc::strong_count(&server.greeting)), (0, 1));
            let next = server.admit("another", &wire, &Terms::default());
            assert!(next.is_ok(), "it is refused for the one that broke down");
        });
    }
}
