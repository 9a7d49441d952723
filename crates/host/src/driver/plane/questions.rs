//! People's questions and commands, answered.

use std::rc::Rc;
use std::time::Duration;

use engine::status::GroupStatus;
use engine::{Command, CommandId, CommandResult, GroupId, Input, Mono};
use tokio::sync::oneshot;

use super::{Plane, PlaneCore};
use crate::driver::control::{ClientsOfRemoved, ClientsOrRemoved, ClientsOrResult, ClientsOrder, ControlQuestion};
use crate::driver::entropy;
use crate::driver::setup::{AddedGroup, RefusedGroup};
use crate::driver::snapshot::{DriverSnapshot, GroupSnapshot};
use crate::frontend::ClientInfo;
use crate::link::Links;
use crate::nbd;

impl Plane {
    pub fn serve_control(self: &Rc<Self>, question: ControlQuestion, server: &nbd::NbdServer, links: &Links) {
        // Whoever asked may have gone when the answer comes.
        match question {
            ControlQuestion::Snapshot(answer) => _ = answer.send(self.snapshot(server)),
            ControlQuestion::Command { group, command, answer } => {
                self.core.borrow_mut().command(group, command, answer)
            }
            ControlQuestion::Mark { groups, name, answer } => {
                _ = answer.send(self.core.borrow_mut().mark(groups, name));
            }
            ControlQuestion::CommandIfUnused { group, command, answer } => {
                let used = self.core.borrow_mut().command_if_unused(group, command, server.clients());
                _ = answer.send(used);
            }
            ControlQuestion::Add(group) => self.core.borrow_mut().add(*group),
            ControlQuestion::Remove { group, clients, answer } => {
                let core = &mut *self.core.borrow_mut();
                // Clients that the peer serves go on.
                let is_refused = clients == ClientsOfRemoved::Refuse && !core.forwards.has(group);
                let attached = if is_refused { server.clients() } else { Vec::new() };
                if clients == ClientsOfRemoved::Hold {
                    core.hold(group);
                }
                _ = answer.send(core.remove(group, attached));
            }
            ControlQuestion::PartWithHeld { group, answer } => {
                _ = answer.send(self.core.borrow_mut().part_with_held(group))
            }
            ControlQuestion::Clients { group, order } => match order {
                ClientsOrder::Hold => self.core.borrow_mut().hold(group),
                ClientsOrder::GoOn => self.core.borrow_mut().let_go_of_held(group),
                ClientsOrder::Forward => self.forward(group),
                ClientsOrder::Pause => {
                    self.core.borrow().forwards.of(group).into_iter().for_each(|all| all.pause(true))
                }
                ClientsOrder::Part => self.core.borrow_mut().part_with_forwarded(group),
            },
            ControlQuestion::Lend { group, to } => self.core.borrow_mut().lend(group, to),
            ControlQuestion::IsHeld { group, answer } => _ = answer.send(self.core.borrow().held.holds(group)),
            ControlQuestion::Define { definitions, coming, reason } => {
                {
                    let core = &mut *self.core.borrow_mut();
                    core.peers.defines(definitions.clone());
                    core.ways.dialer.set_definitions(definitions.clone());
                    core.input(Input::Expect { groups: coming });
                }
                links.set_definitions(definitions);
                self.hang_up(&reason);
            }
            ControlQuestion::Notes { group, answer } => {
                let core = &mut *self.core.borrow_mut();
                // Whoever asks for those of a group that has left hears nothing.
                _ = core.groups.take_recorded(group, core.clock.mono()).map(|recorded| answer.send(recorded));
            }
            ControlQuestion::Minutes { take, answer } => _ = answer.send(self.core.borrow_mut().peers.minutes(take)),
            ControlQuestion::Retune(options) => {
                self.core.borrow_mut().peers.retuned();
                links.retune(options);
            }
            ControlQuestion::Flow(flow) => links.set_flow(flow),
            ControlQuestion::Reconnect { reason } => self.hang_up(&reason),
            ControlQuestion::Stop => self.stop(),
        }
        self.turn();
    }

    fn snapshot(&self, server: &nbd::NbdServer) -> DriverSnapshot {
        let core = &mut *self.core.borrow_mut();
        // Ages are counted by the engine's clock, and that of a node at rest stands still.
        core.input(Input::Tick);
        let now = core.clock.mono();
        let groups = core.node.status().into_iter().map(|status| core.group_snapshot(status, now)).collect();
        DriverSnapshot {
            uptime: Duration::from_nanos(now.0),
            groups,
            links: core.peers.snapshot(),
            shared: core.node.shared(),
            nbd: server.counters(),
            exports: server.export_counters(),
            clients: server.clients(),
            file_engine: core.disks.engine().kind(),
            front_bytes: (self.front.outstanding_bytes(), self.front.limit_bytes()),
        }
    }
}

impl PlaneCore {
    fn command(&mut self, group: GroupId, command: Command, answer: oneshot::Sender<CommandResult>) {
        let id = CommandId(u64::from(self.commands.put(answer)));
        self.input(Input::Command { group, id, command });
    }

    fn mark(&mut self, groups: Vec<GroupId>, name: String) -> Vec<oneshot::Receiver<CommandResult>> {
        let (mut marked, mut results) = (Vec::new(), Vec::new());
        for group in groups {
            let (answer, result) = oneshot::channel();
            marked.push((group, CommandId(u64::from(self.commands.put(answer)))));
            results.push(result);
        }
        self.input(Input::Mark { groups: marked, name });
        results
    }

    fn command_if_unused(&mut self, group: GroupId, command: Command, mut clients: Vec<ClientInfo>) -> ClientsOrResult {
        self.groups.retain_clients_of(group, &mut clients);
        if !clients.is_empty() {
            return Err(clients);
        }
        let (answer, result) = oneshot::channel();
        self.command(group, command, answer);
        Ok(result)
    }

    /// What is asked of it comes after its start, as at a start of the node.
    fn add(&mut self, AddedGroup { config, setup }: AddedGroup) {
        if self.at_rest || self.groups.named(config.id).is_some() {
            return;
        }
        let refused = self.groups.add(&config, setup).map(|RefusedGroup { why, recorded }| (why, recorded));
        self.input(Input::Add { config: Box::new(config), entropy: entropy(), refused });
    }

    fn remove(&mut self, group: GroupId, mut clients: Vec<ClientInfo>) -> ClientsOrRemoved {
        self.groups.retain_clients_of(group, &mut clients);
        if !clients.is_empty() {
            return Err(clients);
        }
        let (answer, removed) = oneshot::channel();
        if self.groups.named(group).is_some() {
            self.leaving.insert(group, answer);
            self.input(Input::Remove { group });
        } else {
            _ = answer.send(());
        }
        Ok(removed)
    }

    fn group_snapshot(&mut self, status: GroupStatus, now: Mono) -> GroupSnapshot {
        GroupSnapshot {
            figures: self.groups.snapshot(&status, now, self.disks.engine()),
            forward: self.forward_status(status.id),
            is_lent: self.lending.is_lent(status.id),
            is_leaving: self.leaving.contains_key(&status.id),
            link_for: now.since(status.peer.link_since),
            link_problem: self
                .groups
                .named(status.id)
                .and_then(|(peer, name)| self.peers.difference(peer, name).or_else(|| self.peers.problem(peer))),
            status,
        }
    }
}
