//! Verifies that begin by themselves (`scrub.every`): whose turn it is, and since when one is due.
//!
//! * One is due so long after the last whole verify, whoever ordered that, or after an operator has ended one. A node that has neither on
//!   record is due at once: nobody knows how old its copy's proof is.
//! * It begins where the group is in step, and no group of this node syncs or is verified: groups mostly share disks.
//! * When the last ones were stands in the directory of the group, so a restart of the daemon begins nothing early. A verify that the restart
//!   ended was no whole one, and begins again.
//! * A time far ahead is no time: a clock that was wrong would put the next one off for years.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use settings::{ScrubSettings, durable};
use tokio::sync::Notify;
use units::exact::time_text;

use super::checked_text;
use super::group_directory::GROUPS;
use crate::api::{GroupView, Role, ScrubView};

/// In the directory of a group.
const FILE: &str = "scrub";
const HEAD: &str = "farshore scrub 1";
const BYTES_MAX: u64 = 4 << 10;

/// A group whose settings say that it is verified regularly.
pub(super) struct ScrubFacts<'a> {
    pub group: &'a str,
    pub every: Duration,
    /// In step with its peer, as its primary, and nobody changes anything of that.
    pub is_in_step: bool,
    /// When the last whole verify of this run of the daemon ended, milliseconds since 1970.
    pub verified_unix_ms: Option<u64>,
}

/// What is on record of a group, milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ScrubRecord {
    /// The last whole verify ended.
    verified_unix_ms: Option<u64>,
    /// An operator ended one: who does that at noon wants no other one at noon.
    stopped_unix_ms: Option<u64>,
}

impl ScrubRecord {
    /// `None`: at once.
    fn due_unix_ms(self, every: Duration, now_unix_ms: u64) -> Option<u64> {
        let every_ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
        let is_sound = |at: &u64| *at <= now_unix_ms.saturating_add(every_ms);
        let last = [self.verified_unix_ms, self.stopped_unix_ms].into_iter().flatten().filter(is_sound).max();
        last.map(|at| at.saturating_add(every_ms))
    }
}

#[derive(Clone, Debug, Default)]
struct KnownScrub {
    record: ScrubRecord,
    /// The file does not say so yet.
    is_unwritten: bool,
    /// That it cannot be written was said.
    is_warned: bool,
    /// Why one that is due has not begun.
    waits: Option<String>,
}

/// When the groups of a node were verified last.
pub(super) struct Scrubs {
    groups: PathBuf,
    known: RefCell<BTreeMap<String, KnownScrub>>,
    changed: Notify,
}

impl Scrubs {
    /// Of the node with this state directory.
    pub fn new(state: &Path) -> Scrubs {
        Scrubs { groups: state.join(GROUPS), known: RefCell::default(), changed: Notify::new() }
    }

    /// Waits for something that should be on record.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Reads what is on record of groups that are not known yet. A damaged record is none.
    pub async fn read(&self, groups: Vec<String>) {
        let unknown: Vec<String> =
            groups.into_iter().filter(|group| !self.known.borrow().contains_key(group)).collect();
        if unknown.is_empty() {
            return;
        }
        let directory = self.groups.clone();
        let read = move || unknown.into_iter().map(|group| (find(&directory.join(&group)), group)).collect::<Vec<_>>();
        let found = tokio::task::spawn_blocking(read).await.expect("reading a file does not panic");
        for (record, group) in found {
            self.known.borrow_mut().entry(group).or_insert(KnownScrub { record, ..KnownScrub::default() });
        }
    }

    /// Takes down what is new, and says whose turn it is, if anybody's. `busy`: a group of this node that syncs or is verified.
    pub fn look<'a>(&self, groups: &[ScrubFacts<'a>], busy: Option<&str>, now_unix_ms: u64) -> Option<&'a str> {
        let mut known = self.known.borrow_mut();
        let mut next: Option<(Option<u64>, &str)> = None;
        for ScrubFacts { group, every, is_in_step, verified_unix_ms } in groups {
            let Some(known) = known.get_mut(*group) else { continue };
            if verified_unix_ms.is_some() && known.record.verified_unix_ms != *verified_unix_ms {
                known.record.verified_unix_ms = *verified_unix_ms;
                known.is_unwritten = true;
            }
            let due = known.record.due_unix_ms(*every, now_unix_ms);
            let why = match busy {
                _ if due.is_some_and(|due| due > now_unix_ms) => None,
                _ if !is_in_step => Some("the group is not in step with its peer".to_owned()),
                Some(other) if other == *group => None,
                Some(other) => Some(format!("group {other} of this node is being verified, or syncs")),
                None => {
                    if next.is_none_or(|(first, _)| due < first) {
                        next = Some((due, *group));
                    }
                    Some("it is about to begin".to_owned())
                }
            };
            known.waits = why;
        }
        next.map(|(_, group)| group)
    }

    /// What became of one whose turn it was: it began, or it is refused.
    pub fn began(&self, group: &str, refusal: Option<String>) {
        if let Some(known) = self.known.borrow_mut().get_mut(group) {
            known.waits = refusal;
        }
    }

    /// An operator has ended a verify.
    pub fn is_stopped(&self, group: &str, now_unix_ms: u64) {
        let mut known = self.known.borrow_mut();
        let Some(known) = known.get_mut(group) else { return };
        known.record.stopped_unix_ms = Some(now_unix_ms);
        known.is_unwritten = true;
        self.changed.notify_one();
    }

    /// Puts on record what is not. A disk that takes nothing is tried again with the next look.
    pub async fn write(&self) {
        let unwritten = |(group, known): (&String, &KnownScrub)| {
            known.is_unwritten.then(|| (self.groups.join(group).join(FILE), group.clone(), known.record))
        };
        let due: Vec<_> = self.known.borrow().iter().filter_map(unwritten).collect();
        for (path, group, record) in due {
            let file = path.clone();
            let write = move || durable::replace(&file, encode(record).as_bytes());
            let written = tokio::task::spawn_blocking(write).await.expect("writing a file does not panic");
            let mut known = self.known.borrow_mut();
            let Some(known) = known.get_mut(&group) else { continue };
            match written {
                Ok(()) => known.is_unwritten = known.record != record,
                Err(error) if !known.is_warned => {
                    known.is_warned = true;
                    tracing::warn!(
                        "{} cannot be written: {error}; a restart of the daemon may begin a verify early",
                        path.display()
                    );
                }
                Err(_) => {}
            }
        }
    }

    /// As `status` shows it. `None`: none begins by itself here.
    pub fn view(&self, settings: ScrubSettings, group: &GroupView, now_unix_ms: u64) -> Option<ScrubView> {
        let every = settings.every.filter(|_| group.role == Role::Primary && !group.starting)?;
        let known = self.known.borrow();
        let known = known.get(&group.name)?;
        let time = |unix_ms: u64| time_text(unix_ms.saturating_mul(1_000_000));
        Some(ScrubView {
            every_s: every.as_secs_f64(),
            rate_limit_bytes_per_s: settings.rate_bits_per_s / 8,
            verified: known.record.verified_unix_ms.map(time),
            due: known.record.due_unix_ms(every, now_unix_ms).map(time),
            waits: known.waits.clone().filter(|_| group.verify.is_none()),
        })
    }
}

fn encode(record: ScrubRecord) -> String {
    let mut text = format!("{HEAD}\n");
    for (word, at) in [("verified", record.verified_unix_ms), ("stopped", record.stopped_unix_ms)] {
        if let Some(at) = at {
            _ = writeln!(text, "{word} {at}");
        }
    }
    let checksum = crc32c::crc32c(text.as_bytes());
    _ = writeln!(text, "checksum {checksum:08x}");
    text
}

fn find(directory: &Path) -> ScrubRecord {
    let path = directory.join(FILE);
    read(&path).unwrap_or_else(|error| {
        tracing::warn!("when the group was verified last is not known: {} {error:#}", path.display());
        ScrubRecord::default()
    })
}

fn read(path: &Path) -> anyhow::Result<ScrubRecord> {
    let file = match durable::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(ScrubRecord::default()),
        opened => opened.context("cannot be read")?,
    };
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text).context("cannot be read")?;
    decode(&text).context("is damaged")
}

fn decode(text: &str) -> anyhow::Result<ScrubRecord> {
    let body = checked_text::body(text)?;
    let mut lines = body.lines();
    if lines.next() != Some(HEAD) {
        bail!("it begins in another way than this program knows");
    }
    let mut record = ScrubRecord::default();
    for line in lines {
        match line.split_once(' ') {
            Some(("verified", at)) => record.verified_unix_ms = Some(at.parse()?),
            Some(("stopped", at)) => record.stopped_unix_ms = Some(at.parse()?),
            _ => bail!("it has a line that this program does not know"),
        }
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;
    const DAY: Duration = Duration::from_secs(24 * 3600);
    /// Some day.
    const NOON_MS: u64 = 500_000 * HOUR_MS;

    fn of(group: &'static str) -> ScrubFacts<'static> {
        ScrubFacts { group, every: DAY, is_in_step: true, verified_unix_ms: None }
    }

    /// Groups `db` and `web` of which nothing is on record.
    async fn scrubs() -> (tempfile::TempDir, Scrubs) {
        let state = tempfile::tempdir().expect("a directory");
        for group in ["db", "web"] {
            std::fs::create_dir_all(state.path().join(GROUPS).join(group)).expect("made");
        }
        let scrubs = started(&state).await;
        (state, scrubs)
    }

    async fn started(state: &tempfile::TempDir) -> Scrubs {
        let scrubs = Scrubs::new(state.path());
        scrubs.read(vec!["db".to_owned(), "web".to_owned()]).await;
        scrubs
    }

    fn waits(scrubs: &Scrubs, group: &str) -> Option<String> {
        scrubs.known.borrow()[group].waits.clone()
    }

    #[tokio::test]
    async fn one_is_due_so_long_after_the_last_whole_one_and_a_restart_begins_none_early() {
        let (state, scrubs) = scrubs().await;
        assert_eq!(scrubs.look(&[of("db")], None, NOON_MS), Some("db"), "nobody knows of any");
        scrubs.began("db", None);
        // Two hours later it is over.
        let ended = NOON_MS + 2 * HOUR_MS;
        let verified = || ScrubFacts { verified_unix_ms: Some(ended), ..of("db") };
        assert_eq!(scrubs.look(&[verified()], None, ended + 1), None);
        scrubs.write().await;
        for (hours, due) in [(1, None), (23, None), (24, Some("db")), (48, Some("db"))] {
            let now = ended + hours * HOUR_MS;
            assert_eq!(scrubs.look(&[verified()], None, now), due, "{hours} h");
            assert_eq!(started(&state).await.look(&[of("db")], None, now), due, "{hours} h, and a restart");
        }
    }

    #[tokio::test]
    async fn an_operator_who_ends_one_is_not_contradicted_before_the_next_is_due() {
        let (state, scrubs) = scrubs().await;
        assert_eq!(scrubs.look(&[of("db")], None, NOON_MS), Some("db"));
        scrubs.is_stopped("db", NOON_MS + HOUR_MS);
        scrubs.changed().await;
        scrubs.write().await;
        for scrubs in [scrubs, started(&state).await] {
            assert_eq!(scrubs.look(&[of("db")], None, NOON_MS + 24 * HOUR_MS), None);
            assert_eq!(scrubs.look(&[of("db")], None, NOON_MS + 25 * HOUR_MS), Some("db"));
        }
    }

    #[tokio::test]
    async fn one_at_a_time_begins_the_longest_due_first_and_says_what_it_waits_for() {
        let (_state, scrubs) = scrubs().await;
        let verified = |group, hours| ScrubFacts { verified_unix_ms: Some(NOON_MS + hours * HOUR_MS), ..of(group) };
        let both = [verified("db", 2), verified("web", 1)];
        let late = NOON_MS + 100 * HOUR_MS;
        assert_eq!(scrubs.look(&both, Some("mail"), late), None);
        let why = waits(&scrubs, "web").expect("it waits");
        assert!(why.contains("group mail of this node"), "{why}");
        assert_eq!(scrubs.look(&both, None, late), Some("web"));
        assert_eq!(scrubs.look(&both, Some("web"), late), None, "it runs");
        assert_eq!((waits(&scrubs, "web"), waits(&scrubs, "db").is_some()), (None, true));
        // Behind a cable that is out.
        let apart = [ScrubFacts { is_in_step: false, ..verified("web", 1) }, verified("db", 2)];
        assert_eq!(scrubs.look(&apart, None, late), Some("db"));
        assert!(waits(&scrubs, "web").is_some_and(|why| why.contains("not in step")));
        scrubs.began("db", Some("an order to resolve a fork stands".to_owned()));
        assert_eq!(waits(&scrubs, "db").as_deref(), Some("an order to resolve a fork stands"));
        assert_eq!(scrubs.look(&both, None, NOON_MS + 3 * HOUR_MS), None, "nothing is due");
        assert_eq!(waits(&scrubs, "web"), None);
    }

    /// The clock of a board without a battery stood ten years ahead at its start.
    #[tokio::test]
    async fn a_clock_that_was_wrong_puts_nothing_off_for_years() {
        let (_state, scrubs) = scrubs().await;
        let ahead = ScrubFacts { verified_unix_ms: Some(NOON_MS + 87_600 * HOUR_MS), ..of("db") };
        assert_eq!(scrubs.look(&[ahead], None, NOON_MS), Some("db"));
        // A step of a minute begins nothing.
        let minute = ScrubFacts { verified_unix_ms: Some(NOON_MS + 60_000), ..of("db") };
        assert_eq!(scrubs.look(&[minute], None, NOON_MS), None);
    }

    #[tokio::test]
    async fn a_damaged_record_is_none_and_a_full_disk_is_tried_again() {
        let (state, scrubs) = scrubs().await;
        let directory = state.path().join(GROUPS).join("db");
        // As on a full disk: another file cannot be made.
        std::fs::create_dir(directory.join("scrub.new")).expect("made");
        scrubs.is_stopped("db", NOON_MS);
        scrubs.write().await;
        assert!(!directory.join(FILE).exists());
        std::fs::remove_dir(directory.join("scrub.new")).expect("there is room");
        scrubs.write().await;
        let whole = std::fs::read_to_string(directory.join(FILE)).expect("written");
        let record = ScrubRecord { stopped_unix_ms: Some(NOON_MS), ..ScrubRecord::default() };
        assert_eq!(decode(&whole).expect("whole"), record);
        for end in 0..whole.len() - 1 {
            assert!(decode(&whole[..end]).is_err(), "cut at {end}");
        }
        std::fs::write(directory.join(FILE), "farshore scrub 1\nverified 7\nchecksum 00000000\n").expect("spoiled");
        assert_eq!(started(&state).await.look(&[of("db")], None, NOON_MS), Some("db"));
    }
}
