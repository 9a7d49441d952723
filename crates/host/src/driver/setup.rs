//! What a data thread is started with: files that are open and checked, peers, and addresses.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::identity::Identity;
use engine::{GroupConfig, GroupId, NodeConfig, NodeId};

use super::notices::NoticeSender;
use crate::disk::{EngineKind, File};
use crate::link::{ControlDoor, FrameOptions, LinkPeer, SocketOptions};
use crate::tls::CredentialStore;

/// One volume of this node.
pub struct VolumeSetup {
    pub name: String,
    /// `None` in a group that is refused, and of a volume that is detached.
    pub device: Option<Arc<File>>,
}

/// Why a group is not taken up in this run: none of its files is open, and nobody is served or sent anything.
pub struct RefusedGroup {
    /// For operators.
    pub why: String,
    /// Who the node was at last, as far as that is known.
    pub recorded: Option<Identity>,
}

/// One group of this node, in the order of [`NodeConfig::groups`].
pub struct GroupSetup {
    pub name: String,
    pub volumes: Vec<VolumeSetup>,
    pub refused: Option<RefusedGroup>,
    /// `None` in a group that is refused, and there alone.
    pub stores: Option<Stores>,
}

/// A group that comes while the data thread runs. Its peer is one that the node has a link with.
pub struct AddedGroup {
    pub config: GroupConfig,
    pub setup: GroupSetup,
}

impl GroupSetup {
    pub(super) fn is_open(&self) -> bool {
        self.stores.is_some()
    }
}

/// Opens the volumes and files of one group again, after a failure, while the node lives on.
pub trait GroupOpener: Send + Sync {
    /// Called on a thread of its own, once nothing of the group is open any more. `let_go` frees what was open until then: it may wait for a
    /// disk.
    ///
    /// # Errors
    /// As at a start: why the group is not taken up, in a sentence.
    fn open(&self, group: GroupId, let_go: LetGo) -> Result<OpenedGroup, String>;

    /// Called on a thread of its own: the group of this name has left, at rest. `let_go` frees what was open of it, and may wait for a disk.
    fn left(&self, name: &str, let_go: LetGo);
}

/// Frees what is open of a group; may wait for a disk.
pub type LetGo = Box<dyn FnOnce() + Send>;

/// A group whose files are open again.
pub struct OpenedGroup {
    /// In the order of the group's volumes; `None`: the volume is detached.
    pub volumes: Vec<Option<Arc<File>>>,
    pub stores: Stores,
    pub config: GroupConfig,
}

/// A group's own files in the state directory, open and locked.
pub struct Stores {
    pub superblock: Arc<File>,
    pub journal: Arc<File>,
    pub bitmap: Arc<File>,
    pub activity: Arc<File>,
    pub marks: Arc<File>,
    pub undo: Arc<File>,
    /// What is kept for views; `None`: there are none.
    pub history: Option<Arc<File>>,
    /// The disk queue; `None`: there is none.
    pub queue: Option<Arc<File>>,
    /// Where a delta is made when there is to be one.
    pub delta: Arc<Path>,
}

impl Stores {
    /// To be called for these and the volumes where a run did not end well: what the page cache holds of files whose writes or flushes
    /// failed may never have reached the disk, and reads as if it had. What is read from here on comes from the disk.
    pub fn forget_caches(&self) {
        // The disk queue is opened behind them, and forgets then. Of views nothing is read that this run did not write.
        let Stores { superblock, journal, bitmap, activity, marks, undo, history: _, queue: _, delta: _ } = self;
        [superblock, journal, bitmap, activity, marks, undo].into_iter().for_each(|file| file.forget_cache());
    }
}

/// By what nodes prove to each other who they are.
pub enum NodeProof {
    /// Bytes that all of them share; nothing is encrypted.
    Secret(Vec<u8>),
    /// Certificates; all links are encrypted.
    Certificates(CredentialStore),
}

/// How two nodes' definitions of groups differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionsDifference {
    /// Side by side, ours first.
    pub text: String,
    /// Groups of this node that the other one defines differently, or does not have, by their names.
    pub groups: Vec<String>,
}

/// Compares two texts of definitions, ours first.
pub type CompareDefinitions = fn(&str, &str) -> DefinitionsDifference;

/// How the node meets its peers.
pub struct LinkSetup {
    pub cluster: String,
    pub node: String,
    pub proof: NodeProof,
    /// All groups' definitions as text, the same bytes on every node that means the same.
    pub definitions: String,
    pub compare: CompareDefinitions,
    pub peers: Vec<LinkPeer>,
    pub listen: Vec<SocketAddr>,
    pub socket: SocketOptions,
    pub flow: FrameOptions,
    /// Where peers' control connections go.
    pub control: Option<ControlDoor>,
}

/// Where NBD clients come in.
#[derive(Clone, Debug)]
pub enum Listen {
    Unix(PathBuf),
    Tcp {
        address: SocketAddr,
        /// With credentials, clients may encrypt; this says that they have to.
        needs_tls: bool,
    },
}

/// Groups in a reverse sync: clients of the one node are served by the other.
#[derive(Clone, Debug, Default)]
pub struct ServedElsewhere {
    /// The peer serves clients of this node.
    pub forwarded: Vec<GroupId>,
    /// This node serves the clients of its peer, and nobody else.
    pub lent: Vec<(GroupId, NodeId)>,
}

/// Everything a data thread needs, opened and checked.
pub struct DriverSetup {
    pub node: NodeConfig,
    pub groups: Vec<GroupSetup>,
    pub opener: Arc<dyn GroupOpener>,
    pub link: LinkSetup,
    pub nbd: Vec<Listen>,
    pub file_engine: EngineKind,
    /// Payload of front ends: what clients have in flight and what waits in the queues, by capacity.
    pub front_bytes: usize,
    /// Payload that arrives from peers, by capacity.
    pub arriving_bytes: usize,
    /// As it is at the start.
    pub served: ServedElsewhere,
    /// Where to tell what happens.
    pub notices: NoticeSender,
}

/// Identity of a group on disk: a journal of another cluster or group is never replayed here.
pub fn group_tag(cluster: &str, group: &str) -> u64 {
    tag("group", cluster, group)
}

/// A node's number on links and in files. It follows from its name, so it is the same in every file that names the node.
pub fn node_number(cluster: &str, node: &str) -> NodeId {
    NodeId(tag("node", cluster, node) as u16)
}

/// The number of a node that meets another one with the same first number.
pub fn second_node_number(cluster: &str, node: &str) -> NodeId {
    NodeId(tag("other node", cluster, node) as u16)
}

fn tag(kind: &str, cluster: &str, name: &str) -> u64 {
    // Names hold no slash, so the text is unambiguous.
    let hash = blake3::hash(format!("farshore {kind} {cluster}/{name}").as_bytes());
    u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}
