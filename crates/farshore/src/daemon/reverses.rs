//! Reverse syncs that are under way: clients of the one node are served by the other, until its content has arrived here.
//!
//! Each of the two nodes has a record, in a file of the group's directory. On the node where the clients are (*home*) it comes before anything
//! else, so that a daemon that starts anew serves them by the peer again. On the node that *serves* it comes before that is promoted, so that
//! nobody but the peer ever comes in.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Settings;
use engine::identity::Role;
use host::driver::ServedElsewhere;
use settings::{Config, NodeName};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::group_directory::{GROUPS, recorded};
use super::reverse_record::{FILE, encode, put, read, remove};
pub(super) use super::reverse_record::{GivesUp, ReverseHome, ReverseId, ReversePlace};
use crate::api::GroupView;

/// How long the state disk is waited for.
const RECORD_PATIENCE: Duration = Duration::from_secs(10);

/// How long the peer has to be the primary before this node forgets that it was to serve for it.
const IN_VAIN_AFTER: Duration = Duration::from_secs(3);

/// A reverse sync of a group.
#[derive(Clone, Debug)]
struct KnownReverse {
    /// Counts those of this run of the daemon.
    number: u64,
    /// Which one it is on both nodes.
    id: ReverseId,
    place: ReversePlace,
    /// Why this node did not take over at the last try.
    why: Option<String>,
    next_try: Option<Instant>,
    /// Since when the peer is the primary for which this node was to serve.
    in_vain_since: Option<Instant>,
    /// A step of it is under way.
    is_busy: bool,
}

/// Those of a node.
pub(super) struct Reverses {
    groups: PathBuf,
    known: RefCell<BTreeMap<String, KnownReverse>>,
    /// Begun so far: the newest has this number.
    begun: Cell<u64>,
    /// Groups that are primary for a moment, and send nothing unasked.
    still: RefCell<BTreeSet<String>>,
    /// Groups of which one is being begun, on record or not.
    begins: RefCell<BTreeSet<String>>,
    /// The numbers of those that a forced promotion has ended, by group, until another one begins.
    forced: RefCell<BTreeMap<String, u64>>,
    /// Records are written one after the other: one that nobody waits for any more comes before what is written next.
    writes: Arc<Mutex<()>>,
    /// Changes of records that were asked for so far, and the newest of each group.
    asked: Cell<u64>,
    newest: RefCell<BTreeMap<String, u64>>,
    /// What is known to stand in the files: no change of them is under way, and none was refused.
    on_record: RefCell<BTreeMap<String, (ReversePlace, ReverseId)>>,
}

/// A reverse sync that is being begun, until this is dropped: no other one of its group is.
pub(super) struct ReverseBegun<'a> {
    reverses: &'a Reverses,
    group: String,
}

impl Drop for ReverseBegun<'_> {
    fn drop(&mut self) {
        self.reverses.begins.borrow_mut().remove(&self.group);
    }
}

impl Reverses {
    /// What is on record in the state directory. A record that cannot be read serves nobody unasked.
    pub fn read<'a>(state: &Path, names: impl Iterator<Item = &'a str>) -> Reverses {
        let groups = state.join(GROUPS);
        let known = names.filter_map(|name| Some((name.to_owned(), found(name, &groups.join(name).join(FILE))?)));
        let known: BTreeMap<String, KnownReverse> = known.collect();
        let still =
            known.iter().filter(|(_, known)| known.place.stands_still()).map(|(name, _)| name.clone()).collect();
        let on_record = known.iter().filter(|(_, known)| known.why.is_none());
        let on_record = on_record.map(|(name, known)| (name.clone(), (known.place.clone(), known.id))).collect();
        Reverses {
            groups,
            on_record: RefCell::new(on_record),
            known: RefCell::new(known),
            begun: Cell::new(0),
            still: RefCell::new(still),
            begins: RefCell::default(),
            forced: RefCell::default(),
            writes: Arc::default(),
            asked: Cell::new(0),
            newest: RefCell::default(),
        }
    }

    /// A group comes that this run of the daemon has not known: what is on record of it. Whether this node serves nobody unasked by that.
    pub async fn add(&self, group: &str) -> bool {
        self.on_record.borrow_mut().remove(group);
        let (name, path) = (group.to_owned(), self.path(group));
        let Ok(found) = tokio::task::spawn_blocking(move || found(&name, &path)).await else { return false };
        let mut known = self.known.borrow_mut();
        if let (false, Some(found)) = (known.contains_key(group), found) {
            let is_still = found.place.stands_still();
            if is_still {
                self.still.borrow_mut().insert(group.to_owned());
            }
            let is_closed = is_still || found.place == ReversePlace::Server;
            known.insert(group.to_owned(), found);
            return is_closed;
        }
        false
    }

    /// Nobody else begins one of this group meanwhile. `None`: somebody does.
    pub fn begin(&self, group: &str) -> Option<ReverseBegun<'_>> {
        let is_first = self.begins.borrow_mut().insert(group.to_owned());
        is_first.then(|| ReverseBegun { reverses: self, group: group.to_owned() })
    }

    /// One is being begun here, on record or not.
    pub fn is_begun(&self, group: &str) -> bool {
        self.begins.borrow().contains(group)
    }

    /// What the data thread begins with.
    pub fn served(&self, config: &Config, node: &NodeName) -> ServedElsewhere {
        let mut served = ServedElsewhere::default();
        for group in config.groups_of(node) {
            let Some(peer) = group.peer_of(node) else { continue };
            let id = config.group_id(group);
            match self.place(group.name.as_str()) {
                Some(place @ ReversePlace::Home(_)) => {
                    if place.stands_still() {
                        // What clients wrote before the demotion would be given up.
                        served.lent.push((id, config.node_id(peer)));
                    }
                    // Nobody of a term that is to end comes in; nor anybody where this node is the primary, as a forced promotion has left it that
                    // died before the record went: those clients are to see what is here.
                    let directory = self.groups.join(group.name.as_str());
                    let is_primary = recorded(&directory, config.group_tag(group))
                        .is_some_and(|found| found.identity.role == Role::Primary);
                    if !is_primary && !self.home(group.name.as_str()).is_some_and(|home| home.owes_term()) {
                        served.forwarded.push(id);
                    }
                }
                Some(ReversePlace::Server) => served.lent.push((id, config.node_id(peer))),
                None => {}
            }
        }
        served
    }

    pub fn place(&self, group: &str) -> Option<ReversePlace> {
        self.known.borrow().get(group).map(|known| known.place.clone())
    }

    pub fn is_home(&self, group: &str) -> bool {
        self.home(group).is_some()
    }

    /// What is still to be ordered of the peer that serves the clients of this node.
    pub fn home(&self, group: &str) -> Option<ReverseHome> {
        match self.place(group)? {
            ReversePlace::Home(home) => Some(home),
            ReversePlace::Server => None,
        }
    }

    /// Which one of this run of the daemon it is: 0 is one that an earlier run has begun.
    pub fn number(&self, group: &str) -> Option<u64> {
        self.known.borrow().get(group).map(|known| known.number)
    }

    /// Which one is on record here.
    pub fn id(&self, group: &str) -> ReverseId {
        self.known.borrow().get(group).map(|known| known.id).unwrap_or_default()
    }

    /// The one that is on record here, in whichever place, may be this one.
    pub fn is_of(&self, group: &str, id: ReverseId) -> bool {
        self.known.borrow().get(group).is_some_and(|known| known.id.may_be(id))
    }

    /// What an earlier run of the daemon was about to do without dead disks. Of one of this run its own command knows what became of it.
    pub fn left_over(&self, group: &str) -> Option<ReverseHome> {
        let home = self.home(group).filter(|_| self.number(group) == Some(0))?;
        home.names_dead().then_some(home)
    }

    pub fn is_server(&self, group: &str) -> bool {
        self.place(group) == Some(ReversePlace::Server)
    }

    /// The numbers of those whose clients are at home here, by group.
    pub fn home_numbers(&self) -> BTreeMap<String, u64> {
        let known = self.known.borrow();
        let homes = known.iter().filter(|(_, known)| known.place != ReversePlace::Server);
        homes.map(|(name, known)| (name.clone(), known.number)).collect()
    }

    /// The numbers of those that a forced promotion of this node has ended, by group.
    pub fn forced_numbers(&self) -> BTreeMap<String, u64> {
        self.forced.borrow().clone()
    }

    /// Groups whose clients are at home here.
    pub fn homes(&self) -> Vec<String> {
        self.of_place(|place| *place != ReversePlace::Server)
    }

    /// Groups that this node serves for its peer, or is about to.
    pub fn servers(&self) -> Vec<String> {
        self.of_place(|place| *place == ReversePlace::Server)
    }

    fn of_place(&self, is_it: impl Fn(&ReversePlace) -> bool) -> Vec<String> {
        let known = self.known.borrow();
        known.iter().filter(|(_, known)| is_it(&known.place)).map(|(name, _)| name.clone()).collect()
    }

    /// The peer serves its clients itself, as far as is known now: whether that has been so for long enough to be believed.
    pub fn is_in_vain(&self, group: &str, is_seen: bool) -> bool {
        let mut known = self.known.borrow_mut();
        let Some(known) = known.get_mut(group) else { return false };
        if !is_seen {
            known.in_vain_since = None;
            return false;
        }
        known.in_vain_since.get_or_insert_with(Instant::now).elapsed() >= IN_VAIN_AFTER
    }

    pub fn why(&self, group: &str) -> Option<String> {
        self.known.borrow().get(group)?.why.clone()
    }

    /// It was tried in vain, and is tried again after this time.
    pub fn refused(&self, group: &str, why: String, again: Duration) {
        if let Some(known) = self.known.borrow_mut().get_mut(group) {
            if known.why.as_ref() != Some(&why) {
                tracing::info!("{group}: the reverse sync does not go on yet: {why}");
            }
            (known.why, known.next_try) = (Some(why), Some(Instant::now() + again));
        }
    }

    pub fn is_due(&self, group: &str) -> bool {
        let known = self.known.borrow();
        known.get(group).is_some_and(|known| known.next_try.is_none_or(|next| next <= Instant::now()))
    }

    /// True: nobody else is at it, and `is_done` has to follow.
    pub fn begins_step(&self, group: &str) -> bool {
        let mut known = self.known.borrow_mut();
        known.get_mut(group).is_some_and(|known| !std::mem::replace(&mut known.is_busy, true))
    }

    pub fn is_done(&self, group: &str) {
        if let Some(known) = self.known.borrow_mut().get_mut(group) {
            known.is_busy = false;
        }
    }

    /// Until its role has changed the group begins no sync, whatever its settings say. True: this is new.
    pub fn stands_still(&self, group: &str, is_still: bool) -> bool {
        let mut still = self.still.borrow_mut();
        match is_still {
            true => still.insert(group.to_owned()),
            false => still.remove(group),
        }
    }

    pub fn is_still(&self, group: &str) -> bool {
        self.still.borrow().contains(group)
    }

    /// As the group is shown: why it does not go on, and whose clients are served where. One that stands still serves nobody.
    pub fn show(&self, shown: &mut GroupView, node: &str) {
        let Some(reverse) = &mut shown.reverse else { return };
        if reverse.server == node && self.is_home(&shown.name) {
            std::mem::swap(&mut reverse.home, &mut reverse.server);
            reverse.connected = false;
        }
        reverse.why = self.why(&shown.name).or(reverse.why.take());
    }

    /// What the group's settings are for the data path now.
    pub fn settings_now(&self, group: &str, settings: Settings) -> Settings {
        let autosync = settings.autosync && !self.is_still(group);
        Settings { autosync, ..settings }
    }

    /// Puts it on record.
    ///
    /// # Errors
    /// A sentence: the state disk takes no change, or does not answer.
    pub async fn record(&self, group: &str, place: ReversePlace, id: ReverseId) -> Result<(), String> {
        self.written(group, Some((place.clone(), id))).await?;
        let mut known = self.known.borrow_mut();
        match known.get_mut(group) {
            // What it had come to nothing for counts no more.
            Some(known) => {
                known.is_at(place);
                known.id = id;
            }
            None => {
                self.begun.set(self.begun.get() + 1);
                self.forced.borrow_mut().remove(group);
                known.insert(group.to_owned(), KnownReverse::new(place, self.begun.get(), id));
            }
        }
        Ok(())
    }

    /// A step of one that is known is on record, unless that has ended meanwhile. False: it has, and is not on record any more.
    ///
    /// # Errors
    /// The same.
    pub async fn goes_on(&self, group: &str, place: ReversePlace) -> Result<bool, String> {
        let Some(before) = self.number(group) else { return Ok(false) };
        self.written(group, Some((place.clone(), self.id(group)))).await?;
        match self.number(group) {
            Some(now) if now == before => {
                if let Some(known) = self.known.borrow_mut().get_mut(group) {
                    known.is_at(place);
                }
                Ok(true)
            }
            // Another one has a record of its own, which comes behind this one.
            Some(_) => Ok(false),
            None => self.written(group, None).await.map(|()| false),
        }
    }

    /// The role of this node is another one, or is about to be: no run of the daemon demotes it without dead disks any more. False: the reverse
    /// sync has ended meanwhile.
    ///
    /// # Errors
    /// The same.
    pub async fn leaves_dead_behind(&self, group: &str) -> Result<bool, String> {
        match self.home(group) {
            Some(home) if home.names_dead() => self.goes_on(group, ReversePlace::Home(home.without_names())).await,
            found => Ok(found.is_some()),
        }
    }

    /// Another term has begun, and nobody of the one before is attached. Whether the reverse sync goes on.
    ///
    /// # Errors
    /// The same: the next run of the daemon has one more begin.
    pub async fn has_new_term(&self, group: &str) -> Result<bool, String> {
        match self.home(group) {
            Some(ReverseHome { full, gives_up: Some(gives_up) }) => {
                let gives_up = Some(GivesUp { is_in_new_term: true, ..gives_up });
                self.goes_on(group, ReversePlace::Home(ReverseHome { full, gives_up })).await
            }
            found => Ok(found.is_some()),
        }
    }

    /// It does not go on, whether that can be recorded or not: nothing more is done in this run without dead disks.
    pub fn never_began(&self, group: &str) {
        if let Some(KnownReverse { place: ReversePlace::Home(home), .. }) = self.known.borrow_mut().get_mut(group) {
            *home = std::mem::take(home).without_names();
        }
    }

    /// It is over.
    ///
    /// # Errors
    /// The same: it is not over for the next run of the daemon.
    pub async fn end(&self, group: &str) -> Result<(), String> {
        if self.place(group).is_some() {
            let id = self.id(group);
            self.written(group, None).await?;
            // Another one that begins meanwhile has a record of its own, which comes behind this one.
            if self.id(group) == id {
                self.known.borrow_mut().remove(group);
            }
        }
        Ok(())
    }

    /// A forced promotion of this node has ended it, on record or not.
    ///
    /// # Errors
    /// The same.
    pub async fn end_by_force(&self, group: &str) -> Result<(), String> {
        if let Some(known) = self.known.borrow_mut().remove(group) {
            self.forced.borrow_mut().insert(group.to_owned(), known.number);
        }
        self.written(group, None).await
    }

    /// What is refused may be written when nobody waits for it any more: what holds comes behind it. That this node serves is not written again
    /// where it stands there: a disk may have no room for it.
    async fn written(&self, group: &str, place: Option<(ReversePlace, ReverseId)>) -> Result<(), String> {
        let is_server = matches!(place, Some((ReversePlace::Server, _)));
        if is_server && self.on_record.borrow().get(group) == place.as_ref() {
            return Ok(());
        }
        self.on_record.borrow_mut().remove(group);
        let shown = self.path(group).display().to_string();
        let number = self.asked.get() + 1;
        self.asked.set(number);
        self.newest.borrow_mut().insert(group.to_owned(), number);
        let why = match timeout(RECORD_PATIENCE, self.writing(group, place.clone())).await {
            Ok(Ok(())) => {
                if let (Some(place), true) = (place, self.newest.borrow().get(group) == Some(&number)) {
                    self.on_record.borrow_mut().insert(group.to_owned(), place);
                }
                return Ok(());
            }
            Ok(Err(error)) => format!("{shown} cannot be written: {error}"),
            Err(_) => format!("{shown} is not written after {RECORD_PATIENCE:?}: the state disk does not answer"),
        };
        // Else another change comes behind it anyway.
        if self.newest.borrow().get(group) == Some(&number) {
            let holds = self.place(group).map(|place| (place, self.id(group)));
            tokio::spawn(self.writing(group, holds));
        }
        Err(why)
    }

    fn path(&self, group: &str) -> PathBuf {
        self.groups.join(group).join(FILE)
    }

    fn writing(
        &self,
        group: &str,
        place: Option<(ReversePlace, ReverseId)>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (path, writes) = (self.path(group), self.writes.clone());
        async move {
            let turn = writes.lock_owned().await;
            let write = move || {
                let _turn = turn;
                match place {
                    Some((place, id)) => put(&path, encode(&place, id).as_bytes()),
                    None => remove(&path),
                }
            };
            tokio::task::spawn_blocking(write).await.expect("writing a file does not panic")
        }
    }
}

impl KnownReverse {
    fn new(place: ReversePlace, number: u64, id: ReverseId) -> KnownReverse {
        KnownReverse { number, id, place, why: None, next_try: None, in_vain_since: None, is_busy: false }
    }

    fn is_at(&mut self, place: ReversePlace) {
        (self.place, self.why, self.next_try) = (place, None, None);
    }
}

/// What an earlier run of the daemon has left, or whoever had the group before.
fn found(name: &str, path: &Path) -> Option<KnownReverse> {
    let ((place, id), why) = match read(path) {
        Ok(found) => (found?, None),
        Err(error) => {
            let why = format!("{}: {error:#}; 'farshore sync {name} --reverse --stop' ends it", path.display());
            tracing::error!("{why}");
            ((ReversePlace::Server, ReverseId::default()), Some(why))
        }
    };
    Some(KnownReverse { why, ..KnownReverse::new(place, 0, id) })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use engine::identity::Identity;
    use engine::superblock::Superblock;

    use super::*;
    use crate::daemon::reverse_record::{HEAD, decode};

    const ID_OF_TEST: ReverseId = ReverseId(Some(7));

    /// A late word about an earlier one ended the record of a newer one.
    #[tokio::test]
    async fn a_reverse_sync_is_told_from_an_earlier_one() {
        let state = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(state.path().join(GROUPS).join("db")).expect("made");
        let reverses = Reverses::read(state.path(), ["db"].into_iter());
        assert!(!reverses.is_of("db", ReverseId(None)), "none is on record");
        reverses.record("db", ReversePlace::Server, ReverseId(Some(1))).await.expect("written");
        // The record of the one is to go, and the other one begins meanwhile.
        let begun = reverses.record("db", ReversePlace::Server, ID_OF_TEST);
        assert_eq!(tokio::join!(biased; reverses.end("db"), begun), (Ok(()), Ok(())));
        let is_of = [None, Some(1), ID_OF_TEST.0].map(|id| reverses.is_of("db", ReverseId(id)));
        assert_eq!(is_of, [true, false, true]);
        assert_eq!(Reverses::read(state.path(), ["db"].into_iter()).id("db"), ID_OF_TEST);
    }

    #[tokio::test]
    async fn a_reverse_sync_outlives_the_daemon_until_it_is_over() {
        let state = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(state.path().join(GROUPS).join("db")).expect("made");
        let reverses = || Reverses::read(state.path(), ["db"].into_iter());
        let before = reverses();
        assert_eq!(before.place("db"), None);
        let homes = [false, true].into_iter().flat_map(|full| {
            let gives_up = [(false, false, 0), (true, false, 1), (true, true, 2)];
            let gives_up = gives_up.map(|(discard, skip_hooks, dead)| {
                let without_dead = ["data", "log"][..dead].iter().map(|name| (*name).to_owned()).collect();
                Some(GivesUp { discard, skip_hooks, is_in_new_term: dead == 0, without_dead })
            });
            let all = gives_up.into_iter().chain([None]);
            all.map(move |gives_up| ReversePlace::Home(ReverseHome { full, gives_up }))
        });
        for (place, id) in homes.chain([ReversePlace::Server]).zip([None, Some(0), Some(u64::MAX)].into_iter().cycle())
        {
            let id = ReverseId(id);
            before.record("db", place.clone(), id).await.expect("written");
            for known in [&before, &reverses()] {
                assert_eq!((known.place("db"), known.why("db"), known.id("db")), (Some(place.clone()), None, id));
            }
            let number = (place != ReversePlace::Server).then_some(1);
            assert_eq!(before.home_numbers().get("db").copied(), number);
        }
        before.refused("db", "the peer is away".to_owned(), Duration::from_secs(60));
        assert!(before.why("db").is_some() && !before.is_due("db"));
        before.record("db", ReversePlace::Home(ReverseHome::default()), ID_OF_TEST).await.expect("written");
        assert!(before.why("db").is_none() && before.is_due("db"), "another step, and not tried yet");
        let wrong = [
            "home discard",
            "home full full",
            "home gives-up full",
            "full",
            "server full",
            "",
            "home gives-up without-dead",
        ];
        let dead = [
            "home\nwithout-dead data",
            "home gives-up\nwithout-dead",
            "home gives-up\nwithout-dead data\nmore",
            "home\nid 5",
            "home\nid 000000000000000g",
            "home gives-up\nwithout-dead data\nid 0000000000000005",
        ];
        for wrong in wrong.into_iter().chain(dead) {
            assert_eq!(decode(&format!("{HEAD}\nplace {wrong}\n")), None, "{wrong:?}");
        }
        before.end("db").await.expect("removed");
        for known in [&before, &reverses()] {
            assert_eq!(known.place("db"), None);
        }
    }

    /// A step that was under way put a reverse sync on record again that a forced promotion had ended.
    #[tokio::test]
    async fn a_step_leaves_no_record_behind_what_has_ended() {
        let state = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(state.path().join(GROUPS).join("db")).expect("made");
        let reverses = Reverses::read(state.path(), ["db"].into_iter());
        let (home, kept) = (
            ReversePlace::Home(ReverseHome { full: true, gives_up: None }),
            ReversePlace::Home(ReverseHome::default()),
        );
        let on_record = || Reverses::read(state.path(), ["db"].into_iter()).place("db");
        assert_eq!((reverses.goes_on("db", kept.clone()).await, on_record()), (Ok(false), None), "none is known");
        reverses.record("db", home.clone(), ID_OF_TEST).await.expect("written");
        assert_eq!((reverses.goes_on("db", kept.clone()).await, on_record()), (Ok(true), Some(kept)));
        // The step waits for the disk, and the promotion comes meanwhile.
        let (step, promotion) = tokio::join!(reverses.goes_on("db", home.clone()), reverses.end_by_force("db"));
        assert_eq!((step, promotion), (Ok(false), Ok(())));
        assert_eq!((reverses.place("db"), on_record()), (None, None));
        assert_eq!(reverses.forced_numbers().get("db"), Some(&1));
        reverses.record("db", home, ID_OF_TEST).await.expect("written");
        assert!(reverses.forced_numbers().is_empty(), "another one has begun");
    }

    /// Home was demoted by then, and a node whose disk was full was not promoted for it, as it could not record again what stood there.
    #[tokio::test]
    async fn what_is_on_record_takes_no_room_again() {
        let state = tempfile::tempdir().expect("a directory");
        let directory = state.path().join(GROUPS).join("db");
        fs::create_dir_all(&directory).expect("made");
        let reverses = || Reverses::read(state.path(), ["db"].into_iter());
        let first = reverses();
        first.record("db", ReversePlace::Server, ID_OF_TEST).await.expect("written");
        // As on a disk that takes nothing.
        fs::create_dir(directory.join("reverse.new")).expect("made");
        for known in [&first, &reverses()] {
            known.record("db", ReversePlace::Server, ID_OF_TEST).await.expect("it stands there");
            assert_eq!(known.goes_on("db", ReversePlace::Server).await, Ok(true));
        }
        first.record("db", ReversePlace::Server, ReverseId(Some(8))).await.expect_err("another one");
        // Whether it is written behind that nobody knows.
        first.record("db", ReversePlace::Server, ID_OF_TEST).await.expect_err("it is tried");
        fs::remove_dir(directory.join("reverse.new")).expect("removed");
        first.record("db", ReversePlace::Server, ID_OF_TEST).await.expect("written");
        first.end("db").await.expect("removed");
        first.record("db", ReversePlace::Server, ID_OF_TEST).await.expect("written");
        assert!(reverses().is_server("db"), "it is there again");
    }

    /// What was written late is not what stays: whoever is told that nothing was changed finds nothing changed.
    #[tokio::test]
    async fn of_two_that_begin_at_once_one_does() {
        let state = tempfile::tempdir().expect("a directory");
        let reverses = Reverses::read(state.path(), ["db"].into_iter());
        let first = reverses.begin("db").expect("nobody else");
        assert!(reverses.is_begun("db") && reverses.begin("db").is_none() && reverses.begin("web").is_some());
        drop(first);
        assert!(!reverses.is_begun("db") && reverses.begin("db").is_some());
    }

    /// Whoever came to the group's exports would have been a second writer beside the peer's clients.
    #[tokio::test]
    async fn a_record_that_cannot_be_read_opens_nothing() {
        let state = tempfile::tempdir().expect("a directory");
        let directory = state.path().join(GROUPS).join("db");
        fs::create_dir_all(&directory).expect("made");
        fs::write(directory.join(FILE), "farshore reverse 1\nplace home\nchecksum 00000000\n").expect("spoiled");
        let reverses = Reverses::read(state.path(), ["db"].into_iter());
        assert!(reverses.is_server("db"));
        let why = reverses.why("db").expect("said");
        assert!(why.contains("is damaged: its checksum") && why.contains("--reverse --stop"), "{why}");
    }

    fn without_dead(volumes: &[&str]) -> ReversePlace {
        let without_dead = volumes.iter().map(|name| (*name).to_owned()).collect();
        ReversePlace::Home(ReverseHome { full: false, gives_up: Some(GivesUp { without_dead, ..GivesUp::default() }) })
    }

    /// Until the daemon had looked clients were served, by a node that it was about to demote: what they wrote was given up.
    #[tokio::test]
    async fn a_node_that_is_about_to_be_demoted_is_open_to_nobody_from_the_first_moment() {
        let config = Config::parse(Path::new("/farshore.toml"), settings::example::EXAMPLE)
            .unwrap_or_else(|why| panic!("{why}"));
        let node = config.nodes.first().expect("a node").name.clone();
        let group = config.groups_of(&node).next().expect("a group");
        let (id, name) = (config.group_id(group), group.name.as_str());
        let peer = config.node_id(group.peer_of(&node).expect("a peer"));
        let state = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(state.path().join(GROUPS).join(name)).expect("made");
        let reverses = || Reverses::read(state.path(), [name].into_iter());
        reverses().record(name, without_dead(&["data"]), ID_OF_TEST).await.expect("written");
        let next = reverses();
        let served = next.served(&config, &node);
        assert_eq!((served.forwarded, served.lent), (vec![], vec![(id, peer)]));
        assert!(!next.settings_now(name, Settings { autosync: true, ..Settings::default() }).autosync);
        // The demotion is on record.
        assert_eq!(next.leaves_dead_behind(name).await, Ok(true));
        let served = reverses().served(&config, &node);
        assert_eq!((served.forwarded, served.lent), (vec![], vec![]), "a helper of the term that is to end was let in");
        assert_eq!(next.has_new_term(name).await, Ok(true));
        let served = reverses().served(&config, &node);
        assert_eq!((served.forwarded, served.lent), (vec![id], vec![]));
        // It was promoted by force, and died before the record of this went.
        let tag = config.group_tag(group);
        for (role, forwarded) in [(Role::Primary, vec![]), (Role::Secondary, vec![id])] {
            let identity = Identity { role, ..Identity::default() };
            let slot = |update| Superblock { update, tag, identity, ..Superblock::default() }.encode();
            let file = state.path().join(GROUPS).join(name).join("superblock");
            fs::write(file, [slot(2), slot(3)].concat()).expect("written");
            assert_eq!(reverses().served(&config, &node).forwarded, forwarded, "{role:?}");
        }
        assert_eq!(next.leaves_dead_behind(name).await, Ok(true));
        next.end(name).await.expect("removed");
        assert_eq!((next.leaves_dead_behind(name).await, next.place(name)), (Ok(false), None));
    }

    /// A command whose answer was a refusal was carried out half a second later, where its record could not be removed.
    #[tokio::test]
    async fn only_what_an_earlier_run_left_goes_on_without_dead_disks() {
        let state = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(state.path().join(GROUPS).join("db")).expect("made");
        let reverses = || Reverses::read(state.path(), ["db"].into_iter());
        let first = reverses();
        first.record("db", without_dead(&["data"]), ID_OF_TEST).await.expect("written");
        assert_eq!(first.left_over("db"), None, "its command knows what becomes of it");
        let next = reverses();
        assert_eq!(next.left_over("db").map(ReversePlace::Home), Some(without_dead(&["data"])));
        next.never_began("db");
        assert_eq!((next.left_over("db"), next.is_home("db")), (None, true), "it is refused, and on record still");
    }
}
