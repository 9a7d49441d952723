//! Links' events go to the engine; of their failures people hear.

use std::rc::Rc;

use engine::wire::FrameHeader;
use engine::{FramePayload, Input, LinkId, NodeId, SessionId};

use super::Plane;
use crate::driver::notices::DriverNews;
use crate::driver::peers::{LOOK_EVERY, UnsteadyLink};
use crate::link::{LinkEvents, LinkSender, PeerInfo};

impl LinkEvents for Plane {
    fn up(&self, peer: NodeId, link: LinkId, session: SessionId, sender: Rc<LinkSender>, info: PeerInfo) {
        let core = &mut *self.core.borrow_mut();
        let address = info.address;
        let is_shown = core.peers.came_up(peer, link, session, sender, info);
        core.notices.tell(DriverNews::LinkUp { peer, address, is_shown });
        let apart = core.groups.ids_of(core.peers.defined_differently(peer));
        core.input(Input::LinkUp { peer, link, session, apart });
    }

    fn down(&self, link: LinkId, reason: String) {
        let core = &mut *self.core.borrow_mut();
        if let Some((peer, is_shown)) = core.peers.went_down(link, &reason) {
            core.notices.tell(DriverNews::LinkDown { peer, reason: reason.clone(), is_shown });
        }
        core.input(Input::LinkDown { link, reason });
        self.link_ended.notify_one();
    }

    fn frame(&self, link: LinkId, header: FrameHeader, payload: FramePayload) {
        self.core.borrow_mut().input(Input::Frame { link, header, payload });
    }

    fn heard(&self, link: LinkId) {
        self.core.borrow_mut().input(Input::Heard { link });
    }

    fn sent(&self, link: LinkId, bytes: u64) {
        self.core.borrow_mut().input(Input::Sent { link, bytes });
    }

    fn turn_done(&self) {
        self.turn();
    }

    fn refused(&self, who: String, why: String) {
        tracing::warn!("no link with {who}: {why}");
    }

    fn not_reached(&self, peer: NodeId, why: String) {
        self.core.borrow_mut().peers.not_reached(peer, why);
    }
}

impl Plane {
    /// Asks the kernel once a second how the connections do, for ever.
    pub async fn watch_links(self: Rc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let core = &mut *self.core.borrow_mut();
            for UnsteadyLink { peer, connections, up } in core.peers.look() {
                core.notices.tell(DriverNews::LinkUnsteady { peer, connections, up });
            }
        }
    }

    /// Ends all links by intent.
    pub fn hang_up(&self, reason: &str) {
        self.core.borrow().peers.close_all(reason);
    }

    /// Resolves when no link is up.
    pub async fn links_are_down(&self) {
        while !self.core.borrow().peers.all_are_down() {
            self.link_ended.notified().await;
        }
    }
}
