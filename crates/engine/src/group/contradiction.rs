//! What a peer cannot mean: frames that contradict what it said of itself in this session, or what it was sent. Such a frame
//! ends the session with a sentence before anything of it is acted on.
//!
//! A session delivers in order, and a node says who it has become before it acts so. So what it said last holds for whatever
//! comes behind it, until it says something else.

use alloc::format;
use alloc::string::String;

use crate::formats::wire::{FrameHeader, FrameKind};
use crate::group::Group;

impl Group {
    /// Why this peer cannot have meant this frame; a look at its header.
    pub fn contradiction(&self, header: &FrameHeader) -> Option<String> {
        let kind = header.kind;
        let said = self.common.greeting.said();
        if kind == FrameKind::GroupHello && said.is_some() {
            return Some("a second GroupHello in one session".into());
        }
        let sender = kind.sender()?;
        let Some(said) = said else { return Some(format!("a {kind:?} frame before it said who it is")) };
        if self.common.is_starting() && !self.common.has_failed() {
            return Some(format!("a {kind:?} frame before it heard who this node is"));
        }
        if sender != said.identity.role {
            return Some(format!("a {kind:?} frame, though it said that it is the {}", said.identity.role.word()));
        }
        let identity = &said.identity;
        let named = (self.common.config.peer, identity.incarnation, identity.generation.tag);
        let is_own = (header.origin, header.incarnation, header.generation_tag) == named;
        (kind.is_numbered() && !is_own).then(|| format!("number {} of another run than its own", header.seq.0))
    }
}
