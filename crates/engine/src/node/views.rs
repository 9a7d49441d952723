//! Views of the copies of groups: what is asked of a group that is here is that group's.

use crate::group::views;
use crate::node::Node;
use crate::{Input, IoError, Output, Refusal, RefusalCode};

impl Node {
    /// A view is opened, read or closed.
    pub(super) fn view(&mut self, input: Input) {
        match input {
            Input::ViewOpen { group, view } if !self.groups.contains_key(&group) => {
                let result = Err(Refusal::new(RefusalCode::GroupStopping, "the group has left this node"));
                self.outputs.push_back(Output::ViewOpened { group, view, result });
            }
            Input::ViewRead { group, id, .. } if !self.groups.contains_key(&group) => {
                self.outputs.push_back(Output::ViewData { id, result: Err(IoError::Io) });
            }
            Input::ViewOpen { group, view } => self.in_group(group, |g, cx| views::open(g, cx, view)),
            Input::ViewRead { group, view, id, volume, offset, length } => {
                let range = offset..offset.saturating_add(length);
                self.in_group(group, |g, cx| views::read(g, cx, view, (id, volume, range)));
            }
            Input::ViewClose { group, view } => self.in_group(group, |g, cx| views::close(g, cx, view)),
            _ => unreachable!("it has nothing to do with a view"),
        }
    }
}
