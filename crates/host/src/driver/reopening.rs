//! A group that is reset has its files closed and opened while the data thread goes on: closing and opening may wait for a disk, so a
//! thread of its own does both.

use std::sync::Arc;

use engine::GroupId;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::setup::{GroupOpener, LetGo, OpenedGroup};

/// What came of one opening. At most one of each group is under way.
pub(super) type Reopened = (GroupId, Result<OpenedGroup, String>);

/// Opens groups beside the data thread.
pub(super) struct Reopening {
    opener: Arc<dyn GroupOpener>,
    done: UnboundedSender<Reopened>,
}

impl Reopening {
    pub fn new(opener: Arc<dyn GroupOpener>) -> (Reopening, UnboundedReceiver<Reopened>) {
        let (done, reopened) = unbounded_channel();
        (Reopening { opener, done }, reopened)
    }

    /// `let_go` frees what was open.
    pub fn begin(&self, group: GroupId, let_go: LetGo) {
        let (opener, done) = (self.opener.clone(), self.done.clone());
        let open = move || {
            let opened = opener.open(group, let_go);
            // A data thread that has ended needs none.
            let _ = done.send((group, opened));
        };
        if let Err(error) = std::thread::Builder::new().name("reopen".into()).spawn(open) {
            let why = format!("no thread can be started that opens its files: {error}");
            let _ = self.done.send((group, Err(why)));
        }
    }

    /// A group has left. `then` is told when its files are let go of.
    pub fn left(&self, name: String, let_go: LetGo, then: Option<oneshot::Sender<()>>) {
        let opener = self.opener.clone();
        let leave = move || {
            opener.left(&name, let_go);
            // Whoever waited may have gone.
            let _ = then.map(|then| then.send(()));
        };
        if let Err(error) = std::thread::Builder::new().name("leave".into()).spawn(leave) {
            tracing::error!("no thread can be started that closes the files of a group that has left: {error}");
        }
    }
}
