//! Writes down, once a minute, how each link did, and reads it back for whoever asks.
//!
//! On the control thread's side: the data thread only hands its sums over. Nothing rests on a history, so one that cannot
//! be written is a line in the log, and the daemon goes on.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use engine::NodeId;
use host::disk::meta::make_own_directory;
use host::driver::{DriverControl, Gone};
use host::link::history::{self, HistoryRecords, MinuteHistory, MinuteRecord};
use host::link::meter::Minute;
use settings::{Config, ConfiguredNode, NodeName};

use super::reader_room::ReaderRoom;
use crate::api::{self, ErrorCode, LINK_HISTORY_SCHEMA, Reply};

const EVERY: Duration = Duration::from_secs(60);

/// One peer's file.
struct PeerHistoryFile {
    path: PathBuf,
    tag: u64,
    /// `None`: it could not be opened; why was told.
    history: Option<MinuteHistory>,
    /// The last line could not be written, which was told.
    failing: bool,
}

/// The files of all peers. Whoever writes holds them for as long as the disk takes, and whoever reads waits for that.
struct HistoryBooks {
    files: Arc<Mutex<BTreeMap<NodeId, PeerHistoryFile>>>,
    readers: ReaderRoom,
}

pub(super) struct MinuteRecorder {
    node: NodeName,
    /// By the peers' numbers.
    names: BTreeMap<NodeId, NodeName>,
    books: HistoryBooks,
    control: DriverControl,
}

impl MinuteRecorder {
    /// Opens or makes the file of each peer.
    pub fn open(config: &Config, node: &NodeName, control: DriverControl) -> MinuteRecorder {
        let here = config.node(node).expect("the node was looked up before");
        let directory = here.link_history_directory();
        let made = make_own_directory(&directory);
        if let Err(why) = &made {
            tracing::warn!("{why}; no link history is kept");
        }
        let (mut names, mut books) = (BTreeMap::new(), BTreeMap::new());
        let meets =
            |peer: &&ConfiguredNode| config.groups_of(node).any(|group| group.peer_of(node) == Some(&peer.name));
        for peer in config.nodes.iter().filter(meets) {
            let id = config.node_id(&peer.name);
            let tag = history::tag(config.top.cluster.as_str(), node.as_str(), peer.name.as_str());
            names.insert(id, peer.name.clone());
            // The ending, because names may hold dots: what stands beside one peer's file is never another's.
            let path = directory.join(format!("{}.history", peer.name));
            books.insert(
                id,
                if made.is_ok() { PeerHistoryFile::open(path, tag) } else { PeerHistoryFile::closed(path, tag) },
            );
        }
        MinuteRecorder { node: node.clone(), names, books: HistoryBooks::new(books), control }
    }

    /// A line a minute, until the data thread is gone.
    pub async fn run(self: Rc<Self>) {
        loop {
            tokio::time::sleep(EVERY).await;
            self.write().await;
        }
    }

    /// Writes a line for what has gathered.
    pub async fn write(&self) {
        // Without a data thread there is nothing to be written.
        let Ok(minutes) = self.control.minutes(true).await else { return };
        let (now, files) = (unix_ms(), self.books.files.clone());
        let written = tokio::task::spawn_blocking(move || {
            let mut files = files.lock().expect("nobody panics with the books");
            for (peer, minute) in minutes {
                if let Some(file) = files.get_mut(&peer) {
                    file.write(&MinuteRecord::of(&minute, now));
                }
            }
        });
        written.await.expect("writing a line does not panic");
    }

    /// What is on disk since then, and the stretch that is not over. `from_node`: the node whose daemon asks, if it is not asked here.
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn history(
        &self,
        peer: Option<&str>,
        since_unix_ms: u64,
        from_node: Option<&str>,
    ) -> Result<Reply, Gone> {
        let (id, peer) = match self.find(peer) {
            Ok(found) => found,
            Err(unknown) => return Ok(unknown),
        };
        let unfinished = self.control.minutes(false).await?;
        let unfinished = unfinished.iter().find(|(peer, _)| *peer == id).map(|(_, minute)| record(minute));
        let (records, path) = match self.books.read((id, peer.as_str()), from_node).await {
            Ok(read) => read,
            Err(message) => return Ok(Reply::error(ErrorCode::Failed, message)),
        };
        let damaged = (records.damaged > 0).then(|| history::damaged_sentence(&path, records.damaged));
        let all = records.list.iter().map(shown).chain(unfinished);
        Ok(Reply::LinkHistory(Box::new(api::LinkHistory {
            schema: LINK_HISTORY_SCHEMA.to_owned(),
            node: self.node.to_string(),
            peer: peer.to_string(),
            records: all.filter(|record| record.unix_ms >= since_unix_ms).collect(),
            warnings: damaged.into_iter().collect(),
        })))
    }

    fn find(&self, wanted: Option<&str>) -> Result<(NodeId, &NodeName), Reply> {
        let mut found = self.names.iter().filter(|(_, name)| wanted.is_none_or(|wanted| name.as_str() == wanted));
        match (found.next(), found.next()) {
            (Some((id, name)), None) => Ok((*id, name)),
            (one, _) => {
                let names: Vec<_> = self.names.values().map(NodeName::as_str).collect();
                let message = match one {
                    None => format!("node {} has no peer {:?}", self.node, wanted.unwrap_or_default()),
                    Some(_) => format!("node {} has more than one peer; name one", self.node),
                };
                let message = format!("{message}; its peers are {}", names.join(", "));
                Err(Reply::error(ErrorCode::BadValue, message))
            }
        }
    }
}

impl HistoryBooks {
    fn new(files: BTreeMap<NodeId, PeerHistoryFile>) -> HistoryBooks {
        HistoryBooks { files: Arc::new(Mutex::new(files)), readers: ReaderRoom::new("the history of the links") }
    }

    /// What one peer's file has, and its path. Reading waits for a disk, so another thread does it; and while that disk hangs, no more than
    /// a few requests wait for it.
    ///
    /// # Errors
    /// A sentence: too many read already, or it cannot be read.
    async fn read(
        &self,
        (id, peer): (NodeId, &str),
        from_node: Option<&str>,
    ) -> Result<(HistoryRecords, PathBuf), String> {
        let permit = self.readers.enter(from_node).await?;
        let files = self.files.clone();
        let read = tokio::task::spawn_blocking(move || {
            let files = files.lock().expect("nobody panics with the books");
            let file = &files[&id];
            let read = history::read(&file.path, file.tag).map(|records| (records, file.path.clone()));
            drop(permit);
            read
        });
        let read = read.await.expect("reading does not panic");
        read.map_err(|error| format!("the history of {peer} cannot be read: {error}"))
    }
}

impl PeerHistoryFile {
    fn open(path: PathBuf, tag: u64) -> PeerHistoryFile {
        let history = match MinuteHistory::open(&path, tag) {
            Ok((history, notes)) => {
                notes.iter().for_each(|notes| tracing::warn!("{notes}"));
                Some(history)
            }
            Err(error) => {
                tracing::warn!("the link history {} cannot be opened: {error}; none is kept", path.display());
                None
            }
        };
        PeerHistoryFile { history, ..PeerHistoryFile::closed(path, tag) }
    }

    fn closed(path: PathBuf, tag: u64) -> PeerHistoryFile {
        PeerHistoryFile { path, tag, history: None, failing: false }
    }

    fn write(&mut self, record: &MinuteRecord) {
        let Some(history) = &mut self.history else { return };
        let result = history.append(record);
        if let Err(error) = &result
            && !self.failing
        {
            tracing::warn!("the link history {} cannot be written: {error}; it has a gap", self.path.display());
        }
        self.failing = result.is_err();
    }
}

fn record(minute: &Minute) -> api::LinkRecord {
    shown(&MinuteRecord::of(minute, unix_ms()))
}

fn shown(record: &MinuteRecord) -> api::LinkRecord {
    api::LinkRecord {
        unix_ms: record.unix_ms,
        covered_ms: record.covered_ms.into(),
        connected_ms: record.connected_ms.into(),
        sent_bytes: record.sent_bytes,
        received_bytes: record.received_bytes,
        retransmitted_bytes: record.retransmitted_bytes,
        sent_bytes_per_s_max: record.sent_per_s_max,
        rtt_min_us: record.rtt_min_us.into(),
        rtt_mean_us: record.rtt_mean_us.into(),
        rtt_max_us: record.rtt_max_us.into(),
        connections: record.connections.into(),
        busy_ms: record.busy_ms.into(),
        receiver_limited_ms: record.receiver_limited_ms.into(),
        buffer_limited_ms: record.buffer_limited_ms.into(),
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::time::timeout;

    use super::*;

    /// The minute's writer held the books beside a disk that hung, and each question for a history took a thread and a request's room for
    /// ever: after 128 of them the control socket refused everything, status and promotions too.
    #[tokio::test]
    async fn a_disk_that_hangs_holds_up_a_few_readers_only() {
        let file = PeerHistoryFile::closed(PathBuf::from("/nowhere/beta.history"), 7);
        let books = HistoryBooks::new(BTreeMap::from([(NodeId(1), file)]));
        let ((held, is_held), (let_go, may_go)) = (mpsc::channel(), mpsc::channel::<()>());
        let files = books.files.clone();
        let writer = std::thread::spawn(move || {
            let _files = files.lock().expect("nobody panicked");
            held.send(()).expect("the test waits");
            let _ = may_go.recv();
        });
        is_held.recv().expect("the writer holds the books");
        let soon = Duration::from_millis(10);
        let of_beta = (NodeId(1), "beta");
        for _ in 0..2 {
            assert!(timeout(soon, books.read(of_beta, None)).await.is_err(), "it waits for the disk");
        }
        let refused = books.read(of_beta, None).await.expect_err("two wait already");
        assert!(refused.contains("the history of the links is being read by 2 others"), "{refused}");
        assert!(timeout(soon, books.read(of_beta, Some("beta"))).await.is_err(), "a peer has a place of its own");
        drop(let_go);
        writer.join().expect("it ends");
    }
}
