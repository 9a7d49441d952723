//! `link test`: asks for a test, plays the near end, and brings both halves home.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::{Duration, Instant};

use host::link::single::{self, DialRequest, LineCredentials};
use host::link::{FrameOptions, SocketOptions};
use serde_json::Value as Json;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

use super::TestFailure;
use super::disk::{self, TestDisk};
use super::stage::TestStage;
use super::tally::{EndReport, Socket, TestInterval, ValueSpread};
use super::terms::{FarDisk, SocketTerms, Terms};
use super::wire::TestWire;
use super::words::{WORD_BYTES_MAX, Word};

/// Round trips on the idle line, and how long they may take together.
const PINGS: u64 = 20;
const PINGS_TIME: Duration = Duration::from_secs(2);
/// How often those who watch are told.
const SHOW_EVERY: Duration = Duration::from_millis(100);
/// For the far end to say why it ended a test.
const REASON_TIME: Duration = Duration::from_secs(1);
/// Interrupted a second time, before the reports were there.
pub const TWICE: &str = "here, twice";

/// The far end, and what to show it.
#[derive(Clone)]
pub struct TestTarget {
    /// `HOST:PORT`.
    pub address: String,
    /// The nodes that may be there, by their certificates.
    pub peers: Vec<String>,
    pub credentials: LineCredentials,
    /// What this node asks of its sockets when the terms leave it open.
    pub ours: SocketOptions,
    /// Likewise what it does with frames: the configuration's `compression`.
    pub compression: String,
}

/// Told while a test runs.
pub trait TestWatch {
    /// So long into the test, so many bytes confirmed or received.
    fn progress(&self, elapsed: Duration, bytes: u64);

    /// What is being done before there is anything to count.
    fn says(&self, _: &str) {}

    /// A test begins: what is known of it by then.
    fn began(&self, _: &TestOutcome) {}

    /// A second of it is over, or what it has instead.
    fn interval(&self, _: &TestInterval) {}

    /// Something was found out, beside other things: a size of a sweep, a part of a probe.
    fn found(&self, _: &'static str, _: &Json) {}

    /// Somebody still wants to know: else the test ends as if interrupted.
    fn listens(&self) -> bool {
        true
    }
}

/// What came of a test.
#[derive(Clone, Debug)]
pub struct TestOutcome {
    pub terms: Terms,
    pub address: String,
    /// The node at the other end by its certificate.
    pub peer: Option<String>,
    pub is_encrypted: bool,
    pub is_over_ipv6: bool,
    /// Through both programs, on a connection of its own: before the load, and beside it.
    pub idle_us: ValueSpread,
    pub loaded_us: ValueSpread,
    pub near: EndReport,
    /// `None`: it was lost before it told.
    pub far: Option<EndReport>,
    pub lost: Option<String>,
    /// It was lost without one flush that arrived, while the control connection's small messages did.
    pub is_swallowed: bool,
    pub interrupted: Option<&'static str>,
}

/// Connects, without asking for anything: for what only needs round trips.
///
/// # Errors
/// A sentence that names the address.
pub async fn control(target: &TestTarget, timeout: Duration) -> Result<(Rc<TestWire>, Option<String>), TestFailure> {
    connect(target, &target.ours, FrameOptions::default(), timeout).await
}

async fn connect(
    target: &TestTarget,
    socket: &SocketOptions,
    flow: FrameOptions,
    timeout: Duration,
) -> Result<(Rc<TestWire>, Option<String>), TestFailure> {
    let wish = DialRequest { address: &target.address, peers: &target.peers, socket, flow, timeout };
    let solo = single::dial(&target.credentials, &wish).await.map_err(|refusal| {
        let trouble = match refusal {
            single::DialRefusal::Unreachable(why) => TestFailure::failed(format!(
                "{why}; is 'farshore link serve' running there, and the way to its port open?"
            )),
            single::DialRefusal::Silent(why) => TestFailure::Silent(why),
            single::DialRefusal::NotOurs(why) => TestFailure::Failed(why),
        };
        trouble.of_test_with(&target.address)
    })?;
    let peer = solo.certificate.as_ref().and_then(|facts| facts.identity.as_ref()).map(|who| who.name.clone());
    let wire = TestWire::start(solo, WORD_BYTES_MAX);
    wire.expect_life(timeout);
    Ok((wire, peer))
}

/// Round trips on a line that carries nothing else.
///
/// # Errors
/// The connection was lost, or one took longer than `timeout`.
pub async fn idle_round_trips(control: &TestWire, timeout: Duration) -> Result<ValueSpread, TestFailure> {
    let (mut idle_us, began) = (ValueSpread::default(), Instant::now());
    for number in 1..=PINGS {
        idle_us.add_time(control.ping_within(number, timeout).await?);
        if began.elapsed() > PINGS_TIME {
            break;
        }
    }
    Ok(idle_us)
}

/// Runs one test. `stop` is notified when somebody interrupts: the test then ends early and reports.
///
/// # Errors
/// There was no test; one that began and was lost is an [`TestOutcome`].
pub async fn run(
    target: &TestTarget,
    terms: &Terms,
    disk: Rc<TestDisk>,
    stop: &Notify,
    watch: &dyn TestWatch,
) -> Result<TestOutcome, TestFailure> {
    terms.check().map_err(TestFailure::Usage)?;
    let compression = terms.compression.as_ref().unwrap_or(&target.compression);
    let terms = &Terms { compression: Some(compression.clone()), ..terms.clone() };
    let mut wires = Vec::new();
    let begun = unless_stopped(stop, begin(target, terms, disk, &mut wires)).await;
    let (mut outcome, control, stage) = begun.map_err(|trouble| {
        // The other end would keep them.
        wires.iter().for_each(|wire| wire.end("it came to nothing"));
        trouble.of_test_with(&target.address)
    })?;
    outcome.near = stage.half();
    watch.began(&outcome);
    let played = play(&control, &stage, &mut outcome, stop, watch).await;
    stage.new_intervals().iter().for_each(|interval| watch.interval(interval));
    outcome.near = stage.half();
    let ending = match played {
        Ok(()) => finish(&control, terms.timeout(), outcome.interrupted.is_some()).await,
        Err(trouble) => Err(trouble),
    };
    match ending {
        Ok(half) => outcome.far = Some(half),
        Err(trouble) => {
            outcome.is_swallowed = !stage.has_carried() && !control.is_down();
            outcome.lost = Some(trouble.sentence());
        }
    }
    stage.wires.iter().chain([&control]).for_each(|wire| wire.end("the test is over"));
    Ok(outcome)
}

/// What comes of it, unless somebody here asks to stop.
pub async fn unless_stopped<T>(
    stop: &Notify,
    work: impl Future<Output = Result<T, TestFailure>>,
) -> Result<T, TestFailure> {
    tokio::select! { result = work => result, () = stop.notified() => Err(TestFailure::Interrupted) }
}

/// Up to the moment in which both ends may begin. What is connected is put into `wires`, the control connection first.
async fn begin(
    target: &TestTarget,
    terms: &Terms,
    disk: Rc<TestDisk>,
    wires: &mut Vec<Rc<TestWire>>,
) -> Result<(TestOutcome, Rc<TestWire>, Rc<TestStage>), TestFailure> {
    let (control, peer) = control(target, terms.timeout()).await?;
    wires.push(control.clone());
    let idle_us = idle_round_trips(&control, terms.timeout()).await?;
    let stage = agree(target, terms, disk, &control, wires).await?;
    let outcome = TestOutcome {
        terms: terms.clone(),
        address: target.address.clone(),
        peer,
        is_encrypted: target.credentials.tls.is_some(),
        is_over_ipv6: control.address.is_ipv6(),
        idle_us,
        loaded_us: ValueSpread::default(),
        near: EndReport::default(),
        far: None,
        lost: None,
        is_swallowed: false,
        interrupted: None,
    };
    Ok((outcome, control, stage))
}

/// Asks for the test, and gathers its connections in `wires`.
async fn agree(
    target: &TestTarget,
    terms: &Terms,
    disk: Rc<TestDisk>,
    control: &TestWire,
    wires: &mut Vec<Rc<TestWire>>,
) -> Result<Rc<TestStage>, TestFailure> {
    control.say(&Word::Ask(Box::new(terms.clone())));
    let token = match control.word_within(terms.timeout()).await? {
        Word::Ready { token } => token,
        Word::No { why, is_usage: true } => return Err(TestFailure::Usage(why)),
        word => return Err(not_now(word, "")),
    };
    let before = wires.len();
    join(target, terms, token, wires).await?;
    let stage = TestStage::new(Rc::new(terms.clone()), false, wires[before..].to_vec(), disk);
    control.say(&Word::Go);
    // A file is written once before it counts.
    let file_time = if terms.far_disk == FarDisk::File { disk::file_time(terms.timeout()) } else { Duration::ZERO };
    match control.word_within(terms.timeout() + file_time).await? {
        Word::Go => Ok(stage),
        word => Err(not_now(word, "")),
    }
}

/// The word was another one. `whose_end`: where its reason is one.
fn not_now(word: Word, whose_end: &str) -> TestFailure {
    TestFailure::failed(match word {
        Word::No { why, .. } if whose_end.is_empty() => why,
        Word::No { why, .. } => format!("{whose_end} {why}"),
        Word::Stop => "somebody ends 'farshore link serve' there".to_owned(),
        _ => "the other end spoke out of turn; are both of one version?".to_owned(),
    })
}

async fn join(
    target: &TestTarget,
    terms: &Terms,
    token: u64,
    wires: &mut Vec<Rc<TestWire>>,
) -> Result<(), TestFailure> {
    let socket = terms.sockets.options(&target.ours);
    for _ in 0..terms.connections {
        let (wire, _) = connect(target, &socket, terms.flow(), terms.timeout()).await?;
        wires.push(wire.clone());
        check_granted(&wire.socket.borrow(), &terms.sockets).map_err(TestFailure::failed)?;
        wire.say(&Word::Join { token });
    }
    Ok(())
}

/// A test under another congestion control than was asked for would be another test, and so would one without the
/// shortest pause.
///
/// # Errors
/// The kernel's refusal as a sentence.
pub(super) fn check_granted(socket: &Socket, asked: &SocketTerms) -> Result<(), String> {
    let refusal = |what: &str| socket.warnings.iter().find(|warning| warning.contains(what)).cloned();
    match &asked.congestion {
        Some(name) if socket.congestion != *name => Err(refusal("congestion control")
            .unwrap_or_else(|| format!("the kernel does not use congestion control {name:?}"))),
        _ if asked.min_rto_s.is_some() && socket.min_rto_us.is_none() => {
            Err(refusal("TCP_RTO_MIN_US").unwrap_or_else(|| {
                "the kernel does not use --min-rto; the option needs Linux 6.15 on both nodes".to_owned()
            }))
        }
        _ => Ok(()),
    }
}

/// Plays the near end to its end, and looks after the control connection meanwhile.
async fn play(
    control: &Rc<TestWire>,
    stage: &Rc<TestStage>,
    outcome: &mut TestOutcome,
    stop: &Notify,
    watch: &dyn TestWatch,
) -> Result<(), TestFailure> {
    let began = Instant::now();
    let loaded_us = RefCell::default();
    let (playing, pinging) = (stage.play(), ping_beside(control, stage, &loaded_us));
    tokio::pin!(playing, pinging);
    let mut looks = tokio::time::interval(SHOW_EVERY);
    let played = loop {
        tokio::select! {
            done = &mut playing => break done,
            never = &mut pinging => match never {},
            () = stop.notified() => interrupt(control, stage, outcome),
            word = control.word() => match word {
                Ok(Word::Stop) => {
                    outcome.interrupted.get_or_insert("at the far end");
                    stage.stop();
                }
                word => {
                    let trouble = word.map_or_else(|trouble| trouble, |word| not_now(word, "at the far end"));
                    stage.wires.iter().for_each(|wire| wire.end("its control connection ended it"));
                    // Whatever the parts say of it, this is the reason.
                    let _ = (&mut playing).await;
                    break Err(trouble);
                }
            },
            _ = looks.tick() => {
                watch.progress(began.elapsed(), stage.progress_bytes());
                stage.new_intervals().iter().for_each(|interval| watch.interval(interval));
                if !watch.listens() && outcome.interrupted.is_none() {
                    interrupt(control, stage, outcome);
                }
            }
        }
    };
    outcome.loaded_us = loaded_us.take();
    match played {
        Err(trouble) if stage.is_ended_over_there() => Err(far_reason(control).await.unwrap_or(trouble)),
        played => played,
    }
}

/// Once it ends with both reports; the second time nobody waits for them.
fn interrupt(control: &TestWire, stage: &TestStage, outcome: &mut TestOutcome) {
    if outcome.interrupted.is_some() {
        stage.wires.iter().for_each(|wire| wire.end("interrupted twice: it was given up"));
    }
    outcome.interrupted = Some(if outcome.interrupted.is_none() { "here" } else { TWICE });
    stage.stop();
    control.say(&Word::Stop);
}

/// Round trips beside the load, one after the other, however long one takes: late ones put off the next.
async fn ping_beside(control: &TestWire, stage: &TestStage, loaded_us: &RefCell<ValueSpread>) -> Infallible {
    let mut runs = tokio::time::interval(stage.terms.probe_every());
    runs.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in PINGS + 1.. {
        runs.tick().await;
        // Without a connection there is nothing to measure, and whoever reads it says so.
        let Ok(took) = control.ping(number).await else { break };
        if stage.counts() {
            loaded_us.borrow_mut().add_time(took);
        }
    }
    std::future::pending().await
}

/// Why the far end ended the test, which it says on its control connection.
async fn far_reason(control: &TestWire) -> Option<TestFailure> {
    match control.word_within(REASON_TIME).await {
        Ok(word @ Word::No { .. }) => Some(not_now(word, "at the far end")),
        _ => None,
    }
}

async fn finish(control: &TestWire, timeout: Duration, interrupted: bool) -> Result<EndReport, TestFailure> {
    control.say(&Word::Finish { interrupted });
    loop {
        match control.word_within(timeout).await? {
            Word::Report(half) => return Ok(*half),
            // It crossed our own end.
            Word::Stop => {}
            word => return Err(not_now(word, "at the far end")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_without_what_was_asked_of_the_kernel_is_none() {
        let old = Socket {
            congestion: "cubic".to_owned(),
            warnings: vec!["the kernel refused TCP_RTO_MIN_US = 40000: Protocol not available".to_owned()],
            ..Socket::default()
        };
        let asked = SocketTerms { min_rto_s: Some(0.04), ..SocketTerms::default() };
        assert_eq!(check_granted(&old, &SocketTerms::default()), Ok(()));
        assert!(check_granted(&old, &asked).is_err_and(|why| why.contains("refused TCP_RTO_MIN_US = 40000")));
        let silent = Socket { warnings: Vec::new(), ..old.clone() };
        assert!(check_granted(&silent, &asked).is_err_and(|why| why.contains("needs Linux 6.15")));
        let granted = Socket { min_rto_us: Some(40_000), ..old.clone() };
        assert_eq!(check_granted(&granted, &asked), Ok(()));
        let bbr = SocketTerms { congestion: Some("bbr".to_owned()), ..SocketTerms::default() };
        assert!(check_granted(&old, &bbr).is_err_and(|why| why.contains("does not use congestion control \"bbr\"")));
    }
}
