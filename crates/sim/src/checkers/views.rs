//! A view shows exactly what stood on the copy at its position, whatever happens to the copy meanwhile (P2). What stood there is compared with
//! the order of writes when the view opens, and each read of the view with what stood there.

use std::collections::BTreeMap;

use engine::{GroupId, IoError, OpenedView, Position, Refusal, RequestId, ViewId, ViewPart, VolumeId};

use crate::nodes::SimCluster;
use crate::oracle::{Oracle, OracleFailure};
use crate::payload::slice_of;
use crate::stamps::SECTOR;

const SECOND: u64 = 1_000_000_000;

/// An opening, or a read, is answered within so long while disks complete what they are asked for.
const ANSWERED_WITHIN_NS: u64 = 120 * SECOND;

/// The volumes of a copy, by position.
type Images = Vec<Vec<u8>>;

/// A view that somebody has asked for.
#[derive(Debug)]
struct WatchedView {
    node: usize,
    group: GroupId,
    since: u64,
    opened: Option<OpenedView>,
    /// `None`: what it must show is not known.
    images: Option<Images>,
}

/// A read that is not answered.
#[derive(Clone, Copy, Debug)]
struct AskedRead {
    view: ViewId,
    node: usize,
    since: u64,
    volume: VolumeId,
    offset: u64,
    length: u64,
}

#[derive(Default)]
pub struct ViewChecker {
    /// What stood on a copy when its rollback point was taken.
    points: BTreeMap<(usize, GroupId), (Position, Images)>,
    views: BTreeMap<ViewId, WatchedView>,
    reads: BTreeMap<RequestId, AskedRead>,
    refused: BTreeMap<ViewId, Refusal>,
    lost: BTreeMap<ViewId, String>,
    /// The last answers: the content, or none.
    answers: BTreeMap<RequestId, Option<Vec<u8>>>,
    last_view: u64,
    last_read: u64,
    checked: u64,
}

/// Answers that are kept for whoever asked.
const ANSWERS_KEPT: usize = 64;

impl ViewChecker {
    /// Reads whose content was compared.
    pub fn checked(&self) -> u64 {
        self.checked
    }

    // ---- what is asked for -------------------------------------------------------------------------------------------

    pub fn asks(&mut self, node: usize, group: GroupId, since: u64) -> ViewId {
        self.last_view += 1;
        let view = WatchedView { node, group, since, opened: None, images: None };
        self.views.insert(ViewId(self.last_view), view);
        ViewId(self.last_view)
    }

    /// Where a view is, if it is open or waits to be; of none nothing is read.
    pub fn place(&self, view: ViewId) -> Option<(usize, GroupId)> {
        self.views.get(&view).map(|view| (view.node, view.group))
    }

    pub fn asks_read(&mut self, view: ViewId, (volume, offset, length): (VolumeId, u64, u64), since: u64) -> RequestId {
        self.last_read += 1;
        let node = self.views[&view].node;
        self.reads.insert(RequestId(self.last_read), AskedRead { view, node, since, volume, offset, length });
        RequestId(self.last_read)
    }

    /// Nobody looks at it any more.
    pub fn closes(&mut self, view: ViewId) -> Option<(usize, GroupId)> {
        self.views.remove(&view).map(|view| (view.node, view.group))
    }

    // ---- what is known of views --------------------------------------------------------------------------------------

    /// Those that are open on a node, or on any.
    pub fn open(&self) -> impl Iterator<Item = (ViewId, &OpenedView)> {
        self.views.iter().filter_map(|(id, view)| Some((*id, view.opened.as_ref()?)))
    }

    pub fn opened(&self, view: ViewId) -> Option<&OpenedView> {
        self.views.get(&view)?.opened.as_ref()
    }

    /// Views of a node that are open or wait to be.
    pub fn count_on(&self, node: usize, group: GroupId) -> usize {
        self.views.values().filter(|view| (view.node, view.group) == (node, group)).count()
    }

    pub fn refusal(&self, view: ViewId) -> Option<&Refusal> {
        self.refused.get(&view)
    }

    /// Why it was lost, if it was.
    pub fn lost(&self, view: ViewId) -> Option<&str> {
        self.lost.get(&view).map(String::as_str)
    }

    /// One of the last answers: `Some(None)` is an error.
    pub fn answer(&self, read: RequestId) -> Option<Option<&[u8]>> {
        self.answers.get(&read).map(Option::as_deref)
    }

    // ---- what happens ------------------------------------------------------------------------------------------------

    pub fn takes_point(&mut self, cluster: &SimCluster, node: usize, group: GroupId, at: Position) {
        if cluster.options.view_bytes > 0 {
            self.points.insert((node, group), (at, images_of(cluster, node, group)));
        }
    }

    /// A view is open, or refused. True: what stands on the copy is what it must show, and has to be the prefix that it is said to be.
    pub fn is_answered(
        &mut self,
        cluster: &SimCluster,
        node: usize,
        id: ViewId,
        result: Result<OpenedView, Refusal>,
    ) -> Result<bool, OracleFailure> {
        let Some(view) = self.views.get_mut(&id).filter(|view| view.node == node) else { return Ok(false) };
        let opened = match result {
            Ok(opened) => opened,
            Err(refusal) => {
                self.views.remove(&id);
                self.refused.insert(id, refusal);
                return Ok(false);
            }
        };
        if view.opened.is_some() {
            return Err(OracleFailure::new(Oracle::Prefix, format!("view {} was opened twice", id.0)));
        }
        let point = self.points.get(&(node, view.group)).filter(|(at, _)| *at == opened.position);
        view.images = match opened.before_sync {
            true => point.map(|(_, images)| images.clone()),
            false => Some(images_of(cluster, node, view.group)),
        };
        let stands = !opened.before_sync;
        view.opened = Some(opened);
        Ok(stands)
    }

    pub fn is_lost(&mut self, id: ViewId, why: &str) {
        if self.views.remove(&id).is_some() {
            self.lost.insert(id, why.to_owned());
        }
    }

    /// A read is answered.
    pub fn is_read(&mut self, id: RequestId, result: Result<Vec<ViewPart>, IoError>) -> Result<(), OracleFailure> {
        let Some(asked) = self.reads.remove(&id) else {
            return Err(OracleFailure::new(Oracle::Prefix, format!("read {} of a view was answered twice", id.0)));
        };
        let content = result.ok().map(|parts| parts.iter().flat_map(bytes_of).collect::<Vec<u8>>());
        let checked = match (&content, self.views.get(&asked.view)) {
            (Some(content), Some(view)) => {
                self.checked += 1;
                check_content(view, &asked, content)
            }
            _ => Ok(()),
        };
        self.answers.insert(id, content);
        while self.answers.len() > ANSWERS_KEPT {
            self.answers.pop_first();
        }
        checked
    }

    pub fn node_died(&mut self, node: usize) {
        self.views.retain(|_, view| view.node != node);
        self.reads.retain(|_, read| read.node != node);
    }

    /// Whoever opens a view, or reads it, is answered in bounded time.
    pub fn check_answers(&self, cluster: &SimCluster, now: u64) -> Result<(), OracleFailure> {
        let openings = self.views.values().filter(|view| view.opened.is_none()).map(|view| (view.node, view.since));
        let waiting = openings.chain(self.reads.values().map(|read| (read.node, read.since)));
        let is_late = |(node, since): &(usize, u64)| {
            now - since > ANSWERED_WITHIN_NS && cluster[*node].storage.trouble.stalled_until < *since
        };
        match waiting.into_iter().find(is_late) {
            None => Ok(()),
            Some((node, since)) => {
                let what =
                    format!("an opening or a read of a view on node {node} has waited {} s", (now - since) / SECOND);
                Err(OracleFailure::new(Oracle::Liveness, what))
            }
        }
    }
}

fn images_of(cluster: &SimCluster, node: usize, group: GroupId) -> Images {
    cluster[node].storage.views(group).into_iter().map(<[u8]>::to_vec).collect()
}

fn bytes_of(part: &ViewPart) -> Vec<u8> {
    match part {
        ViewPart::Data(slice) => slice_of(slice).to_vec(),
        ViewPart::Zeroes(length) => vec![0; *length as usize],
    }
}

fn check_content(view: &WatchedView, asked: &AskedRead, content: &[u8]) -> Result<(), OracleFailure> {
    let at = view.opened.as_ref().map(|opened| opened.position);
    let wrong = |what: String| {
        let (view, volume) = (asked.view.0, asked.volume.0);
        Err(OracleFailure::new(Oracle::Prefix, format!("view {view} of {at:?}, volume {volume}: {what}")))
    };
    if content.len() as u64 != asked.length {
        return wrong(format!("{} bytes were read of {}", content.len(), asked.length));
    }
    let Some(images) = &view.images else { return Ok(()) };
    let start = asked.offset as usize;
    // Its device may have grown since its rollback point was taken: what it held behind the end then is nobody's.
    let image = images[usize::from(asked.volume.0)].get(start..).unwrap_or_default();
    let image = &image[..image.len().min(content.len())];
    let differs = |(found, stood): (&[u8], &[u8])| found != stood;
    let first = content.chunks(SECTOR).zip(image.chunks(SECTOR)).position(differs);
    match first {
        None => Ok(()),
        Some(sector) => {
            let word =
                |bytes: &[u8]| u64::from_le_bytes(bytes[sector * SECTOR..][..8].try_into().expect("eight bytes"));
            let number = start / SECTOR + sector;
            wrong(format!("sector {number} shows write {}, and {} stood there", word(content), word(image)))
        }
    }
}
