//! What the last demotion of each group warned of. Who asks again, and may not have heard the first answer, is warned of the same, also by
//! another run of the daemon: that not everything is known to have arrived decides about the peer.
//!
//! The record is written before the answer. A daemon that ends between the demotion and that leaves the record of its begin, which warns too;
//! and a disk that is full by then has that record since the node became primary.
//!
//! A disk that hangs holds up no demotion for longer than [`RECORD_PATIENCE`]: one that went on hours later would cut clients off when nobody
//! wants that any more. The write that hangs keeps the group's turn, so that no later record is overtaken by it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use engine::Generation;
use engine::identity::{Identity, Role};
use host::driver::DriverControl;
use settings::durable;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{sleep, timeout};

use super::checked_text;
use super::current_config::CurrentConfig;
use super::group_directory::GROUPS;
use crate::events::cut;

/// In the directory of a group.
const FILE: &str = "demotion";
const HEAD: &str = "farshore demotion 1";
const BYTES_MAX: u64 = 64 << 10;
const WARNINGS_MAX: usize = 8;
/// How often it is looked of which groups this node is primary.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How long a disk is waited for that is to take a record, and a record that is on its way before.
const RECORD_PATIENCE: Duration = Duration::from_secs(10);
/// Of a demotion before whose answer the daemon ended, or whose record the disk did not take.
const NOT_ON_RECORD: &str = "what the last demotion came to is not on record here, as the daemon ended over it, or the state disk took no change: \
    whether the peer has everything is not known; the status of the peer says whether it may be promoted without --force";

/// The last demotions of all groups of a node, each in a file of its group's directory.
pub(super) struct Demotions {
    groups: PathBuf,
    known: RefCell<BTreeMap<String, LastDemotion>>,
    /// Groups of which the file says something else than what is known: the disk took no change.
    unwritten: RefCell<BTreeSet<String>>,
    /// By group, held over a demotion, and while another record is written.
    alone: RefCell<BTreeMap<String, Arc<Mutex<()>>>>,
    patience: Duration,
    replace: fn(&Path, &[u8]) -> io::Result<()>,
}

/// The turn of whoever writes records of a group. A write has it until the disk has answered, whoever waits for that.
pub(super) struct RecordTurn(#[expect(dead_code, reason = "held, never read")] OwnedMutexGuard<()>);

/// A demotion of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LastDemotion {
    /// The history in which this node stood after it; in another one the warnings are of no interest. `None`: it is not known.
    generation: Option<Generation>,
    warnings: Vec<String>,
}

/// What is on record of the last one in the group's directory.
fn find(directory: &Path) -> Option<LastDemotion> {
    let path = directory.join(FILE);
    read(&path).unwrap_or_else(|error| {
        let warning = format!(
            "what the last demotion warned of is not known: {} {error:#}; if the peer has everything, remove that file and restart \
             the daemon",
            path.display()
        );
        tracing::warn!("{warning}");
        Some(LastDemotion { generation: None, warnings: vec![warning] })
    })
}

impl Demotions {
    /// What is on record in the state directory. A record that cannot be read may be of the history that counts, and is warned of.
    pub fn read<'a>(state: &Path, names: impl Iterator<Item = &'a str>) -> Demotions {
        let groups = state.join(GROUPS);
        let alone: BTreeMap<String, Arc<Mutex<()>>> = names.map(|name| (name.to_owned(), Arc::default())).collect();
        let known = alone.keys().filter_map(|name| Some((name.clone(), find(&groups.join(name))?))).collect();
        let (known, unwritten, alone) = (RefCell::new(known), RefCell::default(), RefCell::new(alone));
        Demotions { groups, known, unwritten, alone, patience: RECORD_PATIENCE, replace: durable::replace }
    }

    /// A group comes, or comes again: what is on record of it.
    pub async fn add(&self, group: &str) {
        let directory = self.groups.join(group);
        let Ok(found) = tokio::task::spawn_blocking(move || find(&directory)).await else { return };
        self.alone.borrow_mut().entry(group.to_owned()).or_default();
        let mut known = self.known.borrow_mut();
        match found {
            Some(found) => _ = known.insert(group.to_owned(), found),
            None => _ = known.remove(group),
        }
    }

    /// To be held over a demotion of the group's primary.
    ///
    /// # Errors
    /// A sentence: a record is on its way to a disk that does not answer.
    pub async fn enter(&self, group: &str) -> Result<RecordTurn, String> {
        let alone = self.alone.borrow().get(group).expect("a group of this node").clone();
        timeout(self.patience, alone.lock_owned()).await.map(RecordTurn).map_err(|_| self.silent(group))
    }

    /// What is to be said of the demotion of a group that is secondary. `now`: what the node has on record of it; `None`: that is not known.
    pub fn warnings(&self, group: &str, now: Option<&Identity>) -> Vec<String> {
        let Some(now) = now else { return vec![NOT_ON_RECORD.to_owned()] };
        let known = self.known.borrow();
        // A copy that was written from outside, or begins anew, has no generation: where it stood says whose demotion it was.
        let place = now.position.generation;
        let is_of = |last: Generation| {
            last == now.generation || now.generation.is_blank() && (place.is_blank() || place == last)
        };
        let last = known.get(group).filter(|last| last.generation.is_none_or(is_of));
        // Whoever follows another primary stands in a history of that one's, and not in one that went on from another.
        let unrecorded = || if now.continued { vec![NOT_ON_RECORD.to_owned()] } else { Vec::new() };
        let mut warnings = last.map_or_else(unrecorded, |last| last.warnings.clone());
        // That the peer has everything stands in the superblock.
        warnings.retain(|warning| !(now.handed_over && warning == NOT_ON_RECORD));
        warnings
    }

    /// Puts on record of which groups this node is primary, for ever.
    pub async fn look_for_ever(&self, config: &CurrentConfig, control: &DriverControl) {
        loop {
            sleep(LOOK_EVERY).await;
            let groups = control.snapshot().await.map(|snapshot| snapshot.groups).unwrap_or_default();
            let config = config.get();
            for (id, now) in groups.iter().map(|group| (group.status.id, &group.status.identity)) {
                let Some(named) = config.group_by_id(id).filter(|named| self.lacks(named.name.as_str(), now)) else {
                    continue;
                };
                let look = async || {
                    let groups = control.snapshot().await.ok()?.groups;
                    let now = groups.iter().find(|group| group.status.id == id && !group.status.starting)?;
                    Some(now.status.identity)
                };
                self.sees(named.name.as_str(), look).await;
            }
        }
    }

    /// That this node is the group's primary is put on record once in each history: a demotion out of that may find no room on the disk.
    /// `look`: how the group is, asked when nobody else writes.
    async fn sees(&self, group: &str, look: impl AsyncFnOnce() -> Option<Identity>) {
        // A demotion that is under way writes records itself.
        let alone = self.alone.borrow().get(group).cloned();
        let Some(Ok(alone)) = alone.map(Mutex::try_lock_owned) else { return };
        if let Some(now) = look().await.filter(|now| self.lacks(group, now))
            && let Err(why) = self.begins(group, now.generation, RecordTurn(alone)).await
        {
            tracing::warn!("{why}");
        }
    }

    /// Whether that is to be put on record. A history that went on from another one tells by itself that this node wrote it.
    fn lacks(&self, group: &str, now: &Identity) -> bool {
        let is_known = |last: &LastDemotion| last.generation == Some(now.generation);
        let is_recorded =
            self.known.borrow().get(group).is_some_and(is_known) && !self.unwritten.borrow().contains(group);
        now.role == Role::Primary && !now.continued && !is_recorded
    }

    /// The group's primary is about to be demoted, or may be at any time. Gives the turn back, for [`Demotions::ended`].
    ///
    /// # Errors
    /// A sentence: the disk does not answer. Whoever demotes would wait for it again.
    pub async fn begins(&self, group: &str, generation: Generation, turn: RecordTurn) -> Result<RecordTurn, String> {
        let begun = LastDemotion { generation: Some(generation), warnings: vec![NOT_ON_RECORD.to_owned()] };
        self.known.borrow_mut().insert(group.to_owned(), begun.clone());
        let (turn, written) = self.write(group, begun, turn).await?;
        // Where it cannot be written the demotion is none the worse: its end is written as well.
        if let Err(error) = written {
            tracing::warn!("{}", self.unwritable(group, &error));
        }
        Ok(turn)
    }

    /// It is demoted. A warning where that of the demotion is not on record.
    pub async fn ended(
        &self,
        group: &str,
        generation: Option<Generation>,
        warnings: &[String],
        turn: RecordTurn,
    ) -> Option<String> {
        let warnings: Vec<_> = warnings.iter().take(WARNINGS_MAX).map(|text| cut(in_one_line(text))).collect();
        let last = LastDemotion { generation, warnings };
        self.known.borrow_mut().insert(group.to_owned(), last.clone());
        let warns = !last.warnings.is_empty();
        let why = match self.write(group, last, turn).await {
            Ok((_, Ok(()))) => return None,
            Ok((_, Err(error))) => self.unwritable(group, &error),
            Err(silent) => silent,
        };
        tracing::warn!("{why}");
        warns.then(|| format!("a repeated demotion warns of this until the daemon stops only: {why}"))
    }

    fn unwritable(&self, group: &str, error: &io::Error) -> String {
        format!("{} cannot be written: {error}", self.path(group).display())
    }

    fn silent(&self, group: &str) -> String {
        format!(
            "{} is not written after {:?}: the state disk does not answer",
            self.path(group).display(),
            self.patience
        )
    }

    fn path(&self, group: &str) -> PathBuf {
        self.groups.join(group).join(FILE)
    }

    /// Writes a record, and gives the turn back with what came of it.
    ///
    /// # Errors
    /// A sentence: nobody waits any longer. The write goes on, and has the turn as long as it does.
    async fn write(
        &self,
        group: &str,
        last: LastDemotion,
        turn: RecordTurn,
    ) -> Result<(RecordTurn, io::Result<()>), String> {
        let (path, replace) = (self.path(group), self.replace);
        let write = move || (turn, replace(&path, encode(&last).as_bytes()));
        // Until it is known.
        self.unwritten.borrow_mut().insert(group.to_owned());
        let written = timeout(self.patience, tokio::task::spawn_blocking(write)).await;
        let (turn, written) = written.map_err(|_| self.silent(group))?.expect("writing a file does not panic");
        if written.is_ok() {
            self.unwritten.borrow_mut().remove(group);
        }
        Ok((turn, written))
    }
}

fn in_one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

fn encode(last: &LastDemotion) -> String {
    let mut text = format!("{HEAD}\n");
    if let Some(Generation { number, tag }) = last.generation {
        _ = writeln!(text, "generation {number} {tag:016x}");
    }
    for warning in &last.warnings {
        _ = writeln!(text, "warning {warning}");
    }
    let checksum = crc32c::crc32c(text.as_bytes());
    _ = writeln!(text, "checksum {checksum:08x}");
    text
}

/// `None`: there is none.
fn read(path: &Path) -> anyhow::Result<Option<LastDemotion>> {
    let file = match durable::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.context("cannot be read")?,
    };
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text).context("cannot be read")?;
    decode(&text).context("is damaged").map(Some)
}

fn decode(text: &str) -> anyhow::Result<LastDemotion> {
    let body = checked_text::body(text)?;
    let mut lines = body.lines();
    if lines.next() != Some(HEAD) {
        bail!("it begins in another way than this program knows");
    }
    let mut last = LastDemotion { generation: None, warnings: Vec::new() };
    for line in lines {
        match line.split_once(' ') {
            Some(("generation", value)) => {
                let (number, tag) = value.split_once(' ').context("a generation has two numbers")?;
                last.generation = Some(Generation { number: number.parse()?, tag: u64::from_str_radix(tag, 16)? });
            }
            Some(("warning", text)) => last.warnings.push(text.to_owned()),
            _ => bail!("it has a line that is none of a demotion"),
        }
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use engine::Position;

    use super::*;

    const FIRST: Generation = Generation { number: 3, tag: 0x0123_4567_89ab_cdef };
    const NEXT: Generation = Generation { number: 4, tag: 7 };

    fn state() -> (tempfile::TempDir, PathBuf) {
        let state = tempfile::tempdir().expect("a directory");
        let directory = state.path().join(GROUPS).join("db");
        std::fs::create_dir_all(&directory).expect("made");
        (state, directory)
    }

    fn at(generation: Generation) -> Identity {
        Identity { generation, ..Identity::default() }
    }

    fn demotions(state: &tempfile::TempDir) -> Demotions {
        Demotions::read(state.path(), ["db", "web"].into_iter())
    }

    async fn begin(demotions: &Demotions, generation: Generation) {
        let turn = demotions.enter("db").await.expect("nobody writes");
        demotions.begins("db", generation, turn).await.expect("the disk answers");
    }

    async fn end(demotions: &Demotions, generation: Option<Generation>, warnings: &[String]) -> Option<String> {
        let turn = demotions.enter("db").await.expect("nobody writes");
        demotions.ended("db", generation, warnings, turn).await
    }

    /// A disk that does not answer before there is a file `go` on it, or it is gone.
    fn answers_late(path: &Path, content: &[u8]) -> io::Result<()> {
        while path.parent().is_some_and(Path::exists) && !path.with_file_name("go").exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        durable::replace(path, content)
    }

    /// It waited for hours, and then cut clients off.
    #[tokio::test]
    async fn a_disk_that_hangs_holds_no_demotion_up_and_the_write_keeps_its_turn() {
        let (state, directory) = state();
        let patience = Duration::from_millis(20);
        let demotions = Demotions { patience, replace: answers_late, ..demotions(&state) };
        let turn = demotions.enter("db").await.expect("nobody writes");
        let why = demotions.begins("db", FIRST, turn).await.err().expect("the disk hangs");
        assert!(why.ends_with("demotion is not written after 20ms: the state disk does not answer"), "{why}");
        assert_eq!(demotions.enter("db").await.err(), Some(why), "the write goes on");
        assert!(demotions.enter("web").await.is_ok(), "of another group");
        demotions.sees("db", async || -> Option<Identity> { panic!("it is not its turn") }).await;
        std::fs::write(directory.join("go"), "").expect("the disk answers");
        let demotions = Demotions { patience: RECORD_PATIENCE, ..demotions };
        let turn = demotions.enter("db").await.expect("the write has ended");
        assert!(demotions.ended("db", Some(FIRST), &[], turn).await.is_none());
        assert_eq!(self::demotions(&state).warnings("db", Some(&at(FIRST))), [""; 0], "the later record counts");
    }

    /// It is demoted by then, and that is said.
    #[tokio::test]
    async fn a_disk_that_hangs_after_a_demotion_keeps_nobody_from_its_answer() {
        let (state, directory) = state();
        let patience = Duration::from_millis(20);
        let demotions = Demotions { patience, replace: answers_late, ..demotions(&state) };
        let turn = demotions.enter("db").await.expect("nobody writes");
        let warned = ["not everything arrived".to_owned()];
        let unrecorded = demotions.ended("db", Some(FIRST), &warned, turn).await.expect("it is on record nowhere");
        assert!(unrecorded.contains("the state disk does not answer"), "{unrecorded}");
        assert_eq!(demotions.warnings("db", Some(&at(FIRST))), warned);
        // Or its thread would stay.
        std::fs::write(directory.join("go"), "").expect("the disk answers");
    }

    /// A cluster's agent asked again after a restart of the daemon, and heard that the peer had everything.
    #[tokio::test]
    async fn what_a_demotion_warned_of_outlives_the_daemon_and_not_the_history() {
        let (state, _) = state();
        let warned = ["demoted, but 64 KiB here may differ\nfrom the peer".to_owned()];
        let before = demotions(&state);
        assert_eq!(before.warnings("db", Some(&at(FIRST))), [""; 0]);
        begin(&before, FIRST).await;
        assert_eq!(end(&before, Some(FIRST), &warned).await, None);
        for demotions in [before, demotions(&state)] {
            let warnings = |group, generation| demotions.warnings(group, Some(&at(generation)));
            assert_eq!(warnings("db", FIRST), ["demoted, but 64 KiB here may differ from the peer"]);
            for other in [warnings("db", NEXT), warnings("web", FIRST)] {
                assert_eq!(other, [""; 0]);
            }
            assert_eq!(demotions.warnings("db", None), [NOT_ON_RECORD], "the data thread has ended");
        }
        let now = demotions(&state);
        begin(&now, NEXT).await;
        assert_eq!(end(&now, Some(NEXT), &[]).await, None);
        for demotions in [now, demotions(&state)] {
            assert_eq!(demotions.warnings("db", Some(&at(NEXT))), [""; 0], "all has arrived");
        }
    }

    #[tokio::test]
    async fn a_demotion_whose_answer_nobody_had_warns_as_well() {
        let (state, directory) = state();
        begin(&demotions(&state), FIRST).await;
        assert_eq!(demotions(&state).warnings("db", Some(&at(FIRST))), [NOT_ON_RECORD]);
        let handed_over = Identity { handed_over: true, ..at(FIRST) };
        assert_eq!(demotions(&state).warnings("db", Some(&handed_over)), [""; 0], "the superblock knows better");
        std::fs::write(directory.join(FILE), "farshore demotion 1\nchecksum 00000000\n").expect("spoiled");
        let warnings = demotions(&state).warnings("db", Some(&at(NEXT)));
        assert!(warnings.len() == 1 && warnings[0].contains("is damaged: its checksum"), "{warnings:?}");
    }

    #[tokio::test]
    async fn a_full_disk_keeps_no_demotion_from_its_answer() {
        let (state, directory) = state();
        // As on a full disk: another file cannot be made.
        std::fs::create_dir(directory.join("demotion.new")).expect("made");
        let demotions = demotions(&state);
        begin(&demotions, FIRST).await;
        let warned = ["not everything arrived".to_owned()];
        let unrecorded = end(&demotions, Some(FIRST), &warned).await.expect("it is on record nowhere");
        assert!(unrecorded.contains("demotion cannot be written: "), "{unrecorded}");
        assert_eq!(demotions.warnings("db", Some(&at(FIRST))), warned);
        assert_eq!(end(&demotions, Some(NEXT), &[]).await, None, "there is nothing to be warned of");
    }

    /// Neither the begin nor the end of a demotion found room, and after a restart `demote` said that there was nothing to do.
    #[tokio::test]
    async fn a_demotion_of_which_nothing_is_on_record_warns_after_a_restart() {
        let (state, directory) = state();
        let before = demotions(&state);
        before.sees("db", async || Some(Identity { role: Role::Primary, ..at(FIRST) })).await;
        std::fs::create_dir(directory.join("demotion.new")).expect("made");
        begin(&before, FIRST).await;
        assert!(end(&before, Some(FIRST), &["not everything arrived".to_owned()]).await.is_some());
        let now = demotions(&state);
        assert_eq!(now.warnings("db", Some(&at(FIRST))), [NOT_ON_RECORD]);
        assert_eq!(now.warnings("db", Some(&at(NEXT))), [""; 0], "it follows another primary since");
        // It wrote without its peer, in a history that went on from its own.
        let alone = Identity { continued: true, ..at(NEXT) };
        assert_eq!(now.warnings("db", Some(&alone)), [NOT_ON_RECORD]);
    }

    #[tokio::test]
    async fn a_look_takes_nothing_back_that_a_demotion_has_recorded() {
        let (state, directory) = state();
        let demotions = demotions(&state);
        let primary = |generation| Identity { role: Role::Primary, ..at(generation) };
        demotions.sees("db", async || Some(at(FIRST))).await;
        assert!(!directory.join(FILE).exists(), "it is secondary");
        let turn = demotions.enter("db").await.expect("nobody writes");
        demotions.sees("db", async || Some(primary(FIRST))).await;
        assert!(!directory.join(FILE).exists(), "it is being demoted");
        let warned = ["not everything arrived".to_owned()];
        assert_eq!(demotions.ended("db", Some(NEXT), &warned, turn).await, None);
        for now in [at(NEXT), primary(NEXT)] {
            demotions.sees("db", async || Some(now)).await;
            assert_eq!(demotions.warnings("db", Some(&at(NEXT))), warned);
        }
    }

    /// A disk that was full when this node was promoted had room a minute later, and the record was never tried again; and a history with a
    /// lower number than the last one was never recorded.
    #[tokio::test]
    async fn a_primary_is_put_on_record_once_there_is_room_and_in_whichever_history() {
        let (state, directory) = state();
        let before = demotions(&state);
        let primary = |generation| Identity { role: Role::Primary, ..at(generation) };
        std::fs::create_dir(directory.join("demotion.new")).expect("made");
        before.sees("db", async || Some(primary(NEXT))).await;
        assert!(!directory.join(FILE).exists());
        std::fs::remove_dir(directory.join("demotion.new")).expect("there is room");
        for generation in [NEXT, FIRST] {
            before.sees("db", async || Some(primary(generation))).await;
            assert_eq!(demotions(&state).warnings("db", Some(&at(generation))), [NOT_ON_RECORD]);
            assert!(!before.lacks("db", &primary(generation)));
        }
    }

    /// The copy was written from outside after a demotion that warned: it has no generation any more, and follows nobody.
    #[tokio::test]
    async fn a_copy_without_a_generation_warns_of_the_demotion_where_it_stands() {
        let (state, _) = state();
        let demotions = demotions(&state);
        let warned = ["not everything arrived".to_owned()];
        assert_eq!(end(&demotions, Some(FIRST), &warned).await, None);
        let stands = |generation| {
            let position = Position { generation, ..Position::default() };
            demotions.warnings("db", Some(&Identity { position, ..Identity::default() }))
        };
        assert_eq!((stands(FIRST), stands(Generation::default())), (warned.to_vec(), warned.to_vec()));
        assert_eq!(stands(NEXT), [""; 0], "it followed another primary since");
    }
}
