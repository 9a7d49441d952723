//! What is typed at the nodes, and what their clients ask.

use engine::state::{Mode, State};
use engine::{Command, CommandId, CommandResult, GroupId, Input, Request, RequestId, Settings, VolumeId};

use super::World;
use crate::checkers::facts::KnownFact;
use crate::checkers::forks::KeepOrdered;
use crate::checkers::repeated;
use crate::checkers::writes::ClientRequest;
use crate::payload::Payload;
use crate::stamps::SECTOR;
use crate::stamps::{SectorFill, content};

/// Somebody sets a mark of these groups of a node, at one moment.
pub fn mark(world: &mut World, node: usize, groups: &[GroupId], name: &str) -> Vec<CommandId> {
    let command = Command::Mark { name: name.into(), moment: 0 };
    let typed: Vec<_> = groups.iter().map(|id| (*id, world.cluster.ledger.typed(node, *id, &command))).collect();
    world.log(format_args!("operator to node {node}: mark {groups:?} {name}"));
    typed.iter().for_each(|(group, id)| world.checkers.marks.is_ordered(*id, (node, *group), name));
    world.input(node, Input::Mark { groups: typed.clone(), name: name.into() });
    typed.into_iter().map(|(_, id)| id).collect()
}

impl World {
    pub fn command(&mut self, node: usize, group: GroupId, command: Command) -> CommandId {
        let id = self.cluster.ledger.typed(node, group, &command);
        self.log(format_args!("operator to node {node} group {}: {command:?}", group.0));
        if let Command::Sync { .. } | Command::SendAll = command {
            let full = !matches!(command, Command::Sync { full: false });
            self.checkers.facts.remove(KnownFact::ChangedOutside(group, node));
            if full && self.cluster.primary(group) == node {
                self.checkers.writes.tail_given_up(group);
            }
        }
        match command {
            Command::Rejoin { volume } => {
                if let Some(number) = self.cluster.numbers(node, group).get(usize::from(volume.0)) {
                    self.checkers.newcomers.word_typed(group, node, *number);
                }
            }
            Command::Keep { by_policy: false, .. } => self.checkers.newcomers.asked_for(group, None),
            Command::Sync { full: true } | Command::SendAll => {
                self.checkers.newcomers.asked_for(group, None);
                let over = self.cluster.other(group, node);
                self.checkers.overwritten.is_typed(&self.cluster, id, group, over);
            }
            _ => {}
        }
        let keep = if let Command::Keep { over, discard, by_policy } = command {
            Some(self.checkers.forks.ordered(&self.cluster, node, group, KeepOrdered { over, discard, by_policy }))
        } else {
            None
        };
        let set = if let Command::Set(settings) = &command { Some(*settings) } else { None };
        let (wanted, before) = (repeated::role_wanted(&command), self.glance(node, group));
        let releases = set.is_some() || matches!(command, Command::Logging);
        if releases {
            self.checkers.writes.order_typed(group, set);
        }
        let (typed, was_reached) = (command.clone(), is_reached(self, node, group, &command));
        let gives_up = if let Command::DropRollbackPoint { discard, .. } = &command { Some(*discard) } else { None };
        self.input(node, Input::Command { group, id, command });
        let is_refused = matches!(self.cluster.ledger.result(id), Some(CommandResult::Refused(_)));
        // One that is refused gives nothing up: the point stays, and what it keeps is owed.
        match gives_up.filter(|_| !is_refused) {
            Some(true) => self.checkers.overwritten.forget(group, node),
            Some(false) => self.checkers.overwritten.may_be_given_up(group, node),
            None => {}
        }
        if let (Some(before), Some(CommandResult::Refused(_))) = (keep, self.cluster.ledger.result(id)) {
            self.checkers.forks.is_refused(node, group, before);
        }
        if releases {
            // What was admitted before in the same turn was checked only now.
            self.checkers.writes.order_typed(group, set);
        }
        if let (Some(wanted), Some(before), Some(after)) = (wanted, before, self.glance(node, group)) {
            let checked = repeated::check(wanted, (&before, &after), self.cluster.ledger.result(id));
            self.check(checked);
        }
        if !was_reached && !is_reached(self, node, group, &typed) {
            // It may be answered already, or once its answer is on record.
            self.unreached.insert(id, format!("{typed:?}"));
            let answer = self.cluster.ledger.result(id).cloned();
            answer.into_iter().for_each(|answer| self.hears_answer(id, &answer));
        }
        let counts = self.cluster.primary(group) == node && self.cluster.ledger.answer(id) == Some(true);
        if let Some(settings) = set.filter(|_| counts) {
            self.checkers.writes.set_settings(group, &settings);
        }
        id
    }

    /// A command is answered.
    pub(super) fn hears_answer(&mut self, id: CommandId, answer: &CommandResult) {
        self.checkers.overwritten.hears_answer(id, answer);
        let heard = self.checkers.marks.hears_answer(&self.cluster, id, answer);
        self.check(heard);
        if let Some(command) = self.unreached.remove(&id)
            && let CommandResult::Unchanged(text) = answer
        {
            self.fail(repeated::untrue(&command, text));
        }
    }

    pub fn set_mode(&mut self, group: GroupId, mode: Mode) {
        self.set(group, |settings| settings.mode = mode);
    }

    /// Types new settings at both nodes.
    pub fn set(&mut self, group: GroupId, change: impl FnOnce(&mut Settings)) {
        let now = self.now();
        for node in self.cluster.pair(group) {
            self.checkers.sees_unverified_run(&self.cluster, now, node, group);
        }
        change(self.cluster.ledger.settings_mut(group));
        let settings = self.cluster.ledger.settings(group);
        let primary = self.cluster.primary(group);
        if self.cluster[primary].up() {
            self.command(primary, group, Command::Set(settings));
        }
        let other = self.cluster.other(group, primary);
        if self.cluster[other].up() {
            self.command(other, group, Command::Set(settings));
        }
    }

    /// What the node's copy was known to be no longer holds: its records are old, or were emptied.
    pub fn copy_is_void(&mut self, group: GroupId, node: usize) {
        self.checkers.copy_is_void(group, node);
        self.cluster.ledger.gives_up(group, node);
    }

    /// A client's request at a node; not waited for. `no_hole`: where zeroes are written, they are no hole.
    pub fn ask(&mut self, node: usize, group: GroupId, asked: ClientRequest, no_hole: bool) -> RequestId {
        let id = self.draw_request();
        let (volume, request) = match asked {
            ClientRequest::Flush { volume, .. } => (volume, Request::Flush),
            ClientRequest::Write { volume, offset: image, length, fill, fua } => {
                let offset = self.cluster.options.spread_offset(image);
                let request = match fill {
                    SectorFill::Zero => Request::Zero { offset, length, no_hole, fua },
                    SectorFill::Stamp(_) => {
                        let sectors = image / SECTOR as u64..(image + length) / SECTOR as u64;
                        let data = content(fill, volume, sectors);
                        let buf = Payload::handed_over(data, &self.cluster[node].storage.meters(group).queued);
                        Request::Write { offset, length, buf, fua }
                    }
                };
                (volume, request)
            }
        };
        self.checkers.writes.issued(id, node, group, asked, self.timeline.now());
        let volume = self.cluster.position(node, group, volume).expect("clients know the volumes that there are");
        self.input(node, Input::Request { group, volume, id, request });
        id
    }

    pub(super) fn draw_request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request - 1)
    }

    /// A write of stamped sectors at the node that serves.
    pub fn write_at(&mut self, group: GroupId, volume: u16, offset: u64, length: u64, fua: bool) -> RequestId {
        let (fill, volume) = (SectorFill::Stamp(self.checkers.writes.stamp(group)), VolumeId(volume));
        self.ask_primary(group, ClientRequest::Write { volume, offset, length, fill, fua }, false)
    }

    /// A trim or write-zeroes there.
    pub fn zero_at(&mut self, group: GroupId, volume: u16, offset: u64, length: u64, no_hole: bool) -> RequestId {
        let (fill, volume) = (SectorFill::Zero, VolumeId(volume));
        self.ask_primary(group, ClientRequest::Write { volume, offset, length, fill, fua: false }, no_hole)
    }

    /// A flush there.
    pub fn flush_at(&mut self, group: GroupId, volume: u16) -> RequestId {
        self.ask_primary(group, ClientRequest::flush(VolumeId(volume)), false)
    }

    fn ask_primary(&mut self, group: GroupId, asked: ClientRequest, no_hole: bool) -> RequestId {
        let node = self.cluster.primary(group);
        self.ask(node, group, asked, no_hole)
    }

    /// The node that is meant to serve does.
    pub fn serves(&self, group: GroupId) -> bool {
        self.cluster[self.cluster.primary(group)].takes_requests(group)
    }
}

fn is_reached(world: &World, node: usize, group: GroupId, command: &Command) -> bool {
    if matches!(command, Command::Reset { .. }) {
        // A secondary shows what its primary reports, too.
        return world.glance(node, group).is_some_and(|glance| !matches!(glance.state, State::Failed(_)));
    }
    world.cluster[node].status_of(group).is_some_and(|shown| repeated::is_reached(command, &shown))
}
