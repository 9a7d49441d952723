//! `events`: what changed, from the logs of the nodes that can be asked, as one list.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use settings::limits::{EVENTS, PEER_EVENTS_EVERY, PEER_EVENTS_MAX, PEER_EVENTS_PAUSE_MAX, POLL_INTERVAL};
use toolkit::screen::Paint;
use units::exact::parse_duration;

use super::reach::{self, may_restart, unexpected};
use super::status::colours_wanted;
use crate::api::client::{ControlClient, Unanswered};
use crate::api::{ApiRequest, ErrorCode, Reply};
use crate::args::events::EventsArgs;
use crate::events::merge::{EventPositions, merged};
use crate::events::{EventPage, EventRecord, unix_ms};
use crate::outcome::{CommandFailure, CommandOutcome, Exit, clean_lines, print, warn};
use crate::show::events::EventLines;

/// What `--follow` begins with where nothing is said.
const FOLLOW_LAST: usize = 10;
/// A peer's page counts as so many bytes at least, of those that its log may have: what has no end is not read for ever.
const PAGE_BYTES_MIN: u64 = 4 << 10;

/// One node's log, and who is asked for it.
struct EventSource {
    socket: PathBuf,
    /// The daemon behind the socket asks this one.
    on: Option<String>,
    /// As its pages say; `None` before the first one.
    node: Option<String>,
    /// When it answered last.
    heard: Option<Instant>,
    /// That this peer does not answer was said.
    is_missed: bool,
    /// What is wanted of it, until all that there is was read: whoever answers for the first time later is asked the same.
    start: EventStart,
    pace: PeerPace,
}

/// Where reading a log begins.
#[derive(Clone, Copy, Default)]
struct EventStart {
    since_unix_ms: u64,
    /// With the newest ones, so many.
    last: Option<usize>,
}

/// When a peer is asked: often while it answers, and rarely while it does not.
struct PeerPace {
    due: Instant,
    pause: Duration,
}

impl PeerPace {
    fn new(now: Instant) -> PeerPace {
        PeerPace { due: now, pause: PEER_EVENTS_EVERY }
    }

    fn answered(&mut self, now: Instant) {
        self.pause = PEER_EVENTS_EVERY;
        self.due = now + self.pause;
    }

    fn failed(&mut self, now: Instant) {
        self.due = now + self.pause;
        self.pause = (self.pause * 2).min(PEER_EVENTS_PAUSE_MAX);
    }
}

/// Looks for the peers, as long as the daemon here has not said which there are.
struct PeerSearch {
    pace: PeerPace,
    /// That they are not known was said.
    is_missed: bool,
}

pub fn run(args: &EventsArgs) -> CommandOutcome {
    let since_unix_ms = args.since.as_deref().map(|text| since(text, unix_ms())).transpose()?;
    // The end of a log is asked for, not all of it to be thrown away.
    let last = (args.follow && since_unix_ms.is_none()).then_some(FOLLOW_LAST);
    let start = EventStart { since_unix_ms: since_unix_ms.unwrap_or(0), last };
    let mut reading = EventReading::new(reach::socket(&args.reach)?, args.group.clone(), start, args.local);
    let mut shown = EventOutput::new(args.json);
    let mut events = reading.read()?;
    if last.is_some() {
        events.drain(..events.len().saturating_sub(FOLLOW_LAST));
    }
    let mut is_read = shown.show(&events)?;
    while args.follow && is_read {
        std::thread::sleep(POLL_INTERVAL);
        is_read = shown.show(&reading.read()?)?;
    }
    if events.is_empty() && !args.json {
        warn_of_none(args);
    }
    Ok(if reading.is_whole() { Exit::Done } else { Exit::Warning }.into())
}

/// Beside the output, so that whoever counts lines counts none.
fn warn_of_none(args: &EventsArgs) {
    let of = args.group.as_ref().map(|group| format!(" of group {group}")).unwrap_or_default();
    let since = args.since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
    // Whoever does not read it sees that there are none.
    let _ = writeln!(std::io::stderr(), "{}", clean_lines(&format!("farshore: no events{of}{since}")));
}

/// All that the nodes have kept, oldest first; and whether nothing is known to be missing, of which the user was told.
///
/// # Errors
/// The daemon here does not answer.
pub(super) fn read_all(socket: PathBuf) -> Result<(Vec<EventRecord>, bool), CommandFailure> {
    let mut reading = EventReading::new(socket, None, EventStart::default(), false);
    let events = reading.read()?;
    Ok((events, reading.is_whole()))
}

/// The moment that `--since` means, milliseconds since 1970.
///
/// # Errors
/// What a moment looks like.
pub(super) fn since(text: &str, now_unix_ms: u64) -> Result<u64, CommandFailure> {
    // A day of 24 hours; a duration for a setting has none, as days differ.
    let days = text.strip_suffix('d').and_then(|days| days.trim().parse::<u32>().ok());
    let ago = days.map(|days| Duration::from_secs(86_400) * days);
    if let Some(ago) = ago.or_else(|| parse_duration(text).ok()) {
        return Ok(now_unix_ms.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)));
    }
    match text.parse::<Timestamp>() {
        // Before 1970 there are no events.
        Ok(time) => Ok(u64::try_from(time.as_millisecond()).unwrap_or(0)),
        Err(_) => Err(CommandFailure::usage(format!(
            "--since: {text:?} is neither a duration such as \"2h\" or \"7d\" nor a time such as \"2026-11-27T08:00:00Z\" or \
             \"2026-11-27T08:00:00+01:00\""
        ))),
    }
}

/// How events are written.
enum EventOutput {
    Json,
    Lines(EventLines),
}

impl EventOutput {
    fn new(is_json: bool) -> EventOutput {
        if is_json {
            return EventOutput::Json;
        }
        let paint = if colours_wanted(&std::io::stdout()) { Paint::colours() } else { Paint::plain() };
        EventOutput::Lines(EventLines::new(TimeZone::system(), paint))
    }

    /// Whether somebody still reads them.
    fn show(&mut self, events: &[EventRecord]) -> Result<bool, CommandFailure> {
        let text = match self {
            EventOutput::Json => events.iter().map(EventRecord::line).collect(),
            EventOutput::Lines(lines) => lines.text(events),
        };
        print(&text)
    }
}

/// What was read, of all sources, and where to go on.
struct EventReading {
    socket: PathBuf,
    group: Option<String>,
    start: EventStart,
    /// The daemon here first. This is the one place that knows which there are: each source is asked for itself, keeps its own position
    /// and is merged with the others.
    sources: Vec<EventSource>,
    /// `None`: the peers are among the sources, or are not wanted.
    search: Option<PeerSearch>,
    positions: EventPositions,
    warnings: usize,
}

impl EventReading {
    fn new(socket: PathBuf, group: Option<String>, start: EventStart, is_local: bool) -> EventReading {
        let sources = vec![EventSource::new(socket.clone(), None, start)];
        let search = (!is_local).then(|| PeerSearch { pace: PeerPace::new(Instant::now()), is_missed: false });
        EventReading { socket, group, start, sources, search, positions: EventPositions::default(), warnings: 0 }
    }

    /// Whether nothing is known to be missing.
    fn is_whole(&self) -> bool {
        let is_missed = self.sources.iter().any(|source| source.is_missed);
        self.warnings == 0 && self.search.is_none() && !is_missed
    }

    /// What is new in all logs, as one list.
    fn read(&mut self) -> Result<Vec<EventRecord>, CommandFailure> {
        let mut lists = Vec::new();
        let mut at = 0;
        while at < self.sources.len() {
            if self.sources[at].is_due(Instant::now()) {
                lists.push(self.read_source(at)?);
            }
            if at == 0 {
                // What is wrong with the daemon here is told first.
                self.find_peers();
            }
            at += 1;
        }
        Ok(merged(lists))
    }

    /// Asks the daemon here which peers there are. One that does not say takes nobody's own events away.
    fn find_peers(&mut self) {
        let Some(search) = self.search.as_mut().filter(|search| Instant::now() >= search.pace.due) else { return };
        let why = match ask(&self.socket, &ApiRequest::Status { group: self.group.clone() }) {
            Ok(Reply::Status(status)) => {
                let peers: BTreeSet<String> =
                    status.groups.into_iter().flat_map(|group| group.peers).map(|peer| peer.node).collect();
                let (socket, start) = (self.socket.clone(), self.start);
                self.sources.extend(peers.into_iter().map(|peer| EventSource::new(socket.clone(), Some(peer), start)));
                self.search = None;
                return;
            }
            Ok(Reply::Error { message, .. }) => message,
            Ok(other) => unexpected(&other).message,
            Err(error) => error.to_string(),
        };
        search.pace.failed(Instant::now());
        if !std::mem::replace(&mut search.is_missed, true) {
            warn(format!("the events of other nodes are missing here: {why}"));
        }
    }

    /// Page by page, until there is no more. A daemon that restarts has nothing new meanwhile.
    fn read_source(&mut self, at: usize) -> Result<Vec<EventRecord>, CommandFailure> {
        let (mut list, mut bytes) = (Vec::new(), 0);
        loop {
            let source = &mut self.sources[at];
            let before = source.position(&self.positions);
            let request = source.request(self.group.clone(), &self.positions);
            let Some(page) = source.ask(request)? else { return Ok(list) };
            let is_first = source.node.is_none();
            source.node = Some(page.node.clone());
            let missed = self.positions.advance(&page);
            let told = page.warnings.iter().filter(|_| is_first).chain(&missed);
            self.warnings += told.map(warn).count();
            bytes += source.bytes_of(&page);
            let (goes_on, is_too_long) = (source.position(&self.positions) > before, bytes > EVENTS.max);
            list.extend(page.events);
            if page.more && goes_on && !is_too_long {
                continue;
            }
            if page.more {
                let why = if goes_on { "its log has more than any may have" } else { "its log does not go on" };
                source.miss(why);
                return Ok(list);
            }
            source.read_to_its_end();
            return Ok(list);
        }
    }
}

impl EventSource {
    fn new(socket: PathBuf, on: Option<String>, start: EventStart) -> EventSource {
        let pace = PeerPace::new(Instant::now());
        EventSource { socket, on, node: None, heard: None, is_missed: false, start, pace }
    }

    /// The daemon here is asked each time.
    fn is_due(&self, now: Instant) -> bool {
        self.on.is_none() || now >= self.pace.due
    }

    /// After which number the next page begins.
    fn position(&self, positions: &EventPositions) -> u64 {
        self.node.as_ref().map_or(0, |node| positions.of(node))
    }

    /// For the next page. A peer's comes over a line that may be slow, and has little time.
    fn request(&self, group: Option<String>, positions: &EventPositions) -> ApiRequest {
        let EventStart { since_unix_ms, last } = self.start;
        let last = last.filter(|_| self.node.is_none());
        let limit = self.on.is_some().then_some(PEER_EVENTS_MAX);
        ApiRequest::Events { group, since_unix_ms, after: self.position(positions), limit, last }
    }

    /// How much of what a log may have a page is. Of the log here the daemon sees to that.
    fn bytes_of(&self, page: &EventPage) -> u64 {
        if self.on.is_none() {
            return 0;
        }
        let bytes: usize = page.events.iter().map(|event| event.line().len()).sum();
        (bytes as u64).max(PAGE_BYTES_MIN)
    }

    fn read_to_its_end(&mut self) {
        self.is_missed = false;
        self.pace.answered(Instant::now());
        // What comes from here on is new, also where a clock is set back.
        self.start = EventStart::default();
    }

    /// Not all of it was read: says so, and waits longer and longer before it is asked again.
    fn miss(&mut self, why: &str) {
        self.pace.failed(Instant::now());
        if !std::mem::replace(&mut self.is_missed, true) {
            let node = self.on.as_deref().or(self.node.as_deref()).unwrap_or_default();
            warn(format!("the events of node {node} are missing here: {why}"));
        }
    }

    /// `None`: nobody answers, and may again soon.
    fn ask(&mut self, request: ApiRequest) -> Result<Option<EventPage>, CommandFailure> {
        match self.on.clone() {
            None => self.ask_here(&request),
            Some(node) => {
                let request = ApiRequest::On { node: node.clone(), order: Box::new(request) };
                Ok(self.ask_peer(&node, &request))
            }
        }
    }

    /// A peer that does not answer takes nobody's own events away.
    fn ask_peer(&mut self, node: &str, request: &ApiRequest) -> Option<EventPage> {
        let why = match ask(&self.socket, request) {
            Ok(Reply::Events(page)) if page.node == node => return Some(*page),
            Ok(Reply::Events(page)) => format!("node {:?} answered in its place", page.node),
            Ok(Reply::Error { message, .. }) => message,
            Ok(other) => unexpected(&other).message,
            Err(error) => error.to_string(),
        };
        self.miss(&why);
        None
    }

    fn ask_here(&mut self, request: &ApiRequest) -> Result<Option<EventPage>, CommandFailure> {
        match ask(&self.socket, request) {
            Ok(Reply::Events(page)) => {
                self.heard = Some(Instant::now());
                Ok(Some(*page))
            }
            // Its doors are still open, or open again before its data thread runs.
            Ok(Reply::Error { code: ErrorCode::Failed, .. }) if may_restart(self.heard) => Ok(None),
            Ok(Reply::Error { message, .. }) => Err(message.into()),
            Ok(other) => Err(unexpected(&other)),
            Err(Unanswered::NotRunning { .. } | Unanswered::Closed { .. }) if may_restart(self.heard) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn ask(socket: &Path, request: &ApiRequest) -> Result<Reply, Unanswered> {
    ControlClient::connect(socket)?.ask_within(Duration::MAX, request)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that answers for the first time an hour later is not asked for its whole log.
    #[test]
    fn a_peer_is_asked_for_little_and_from_the_same_start_whenever_it_answers() {
        let start = EventStart { since_unix_ms: 7, last: Some(10) };
        let mut source = EventSource::new(PathBuf::new(), Some("beta".to_owned()), start);
        let mut positions = EventPositions::default();
        let asked = |source: &EventSource, positions: &EventPositions| match source.request(None, positions) {
            ApiRequest::Events { since_unix_ms, after, limit, last, .. } => (since_unix_ms, after, limit, last),
            other => panic!("{other:?}"),
        };
        assert_eq!(asked(&source, &positions), (7, 0, Some(50), Some(10)));
        source.pace.failed(Instant::now());
        assert_eq!(asked(&source, &positions), (7, 0, Some(50), Some(10)), "it has not answered yet");
        let page = r#"{"schema":"s","node":"beta","events":[],"first":1,"last":90,"position":40,"more":true}"#;
        positions.advance(&serde_json::from_str(page).expect("a page"));
        source.node = Some("beta".to_owned());
        assert_eq!(asked(&source, &positions), (7, 40, Some(50), None));
        let here = EventSource::new(PathBuf::new(), None, start);
        assert_eq!(asked(&here, &positions), (7, 0, None, Some(10)));
    }

    #[test]
    fn a_peer_that_does_not_answer_is_asked_less_and_less() {
        let now = Instant::now();
        let mut pace = PeerPace::new(now);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            pace.failed(now);
            pauses.push((pace.due - now).as_secs());
        }
        assert_eq!(pauses, [3, 6, 12, 24, 30, 30]);
        pace.answered(now);
        assert_eq!((pace.due - now).as_secs(), 3);
    }

    #[test]
    fn a_moment_is_a_duration_ago_or_a_time() {
        let now = 1_796_000_000_000;
        assert_eq!(since("2h", now).ok(), Some(now - 2 * 3_600_000));
        assert_eq!(since("7d", now).ok(), Some(now - 7 * 86_400_000));
        assert_eq!(since("2026-11-30T02:53:20+02:00", now).ok(), Some(now));
        assert_eq!(since("1960-01-01T00:00:00Z", now).ok(), Some(0));
        for wrong in ["yesterday", "2h ago", "5", "2026-11-27", "2026-11-27T08:00:00"] {
            let failure = since(wrong, now).expect_err(wrong);
            assert!(failure.message.contains("2026-11-27T08:00:00Z"), "{}", failure.message);
        }
    }
}
