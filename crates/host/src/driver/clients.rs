//! Connections that are attached to volumes, and the answers that wait for the end of the turn.

use std::ops::Range;
use std::rc::Rc;

use engine::{IoError, RequestId};

use super::slab::Slab;
use crate::frontend::{ClientId, ExportInfo, Replies, RequestFailure, RequestOutcome};

/// What a client was told of its volume. It counts for as long as the client is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientTerms {
    pub size_bytes: u64,
    pub block_min_bytes: u32,
}

impl ClientTerms {
    pub fn of(export: &ExportInfo) -> ClientTerms {
        ClientTerms { size_bytes: export.size_bytes, block_min_bytes: export.block_min_bytes }
    }

    /// A volume like this can take the place of the one that the client was told of.
    fn hold_for(self, now: ClientTerms) -> bool {
        now.size_bytes >= self.size_bytes && now.block_min_bytes <= self.block_min_bytes
    }
}

struct AttachedClient {
    /// Half of its id, so that the number of one that left never names another.
    generation: u32,
    /// The position of its volume.
    volume: usize,
    terms: ClientTerms,
    replies: Rc<dyn Replies>,
    /// It is in the list of those to be pushed.
    is_answered: bool,
}

/// Whom the engine's reply is for.
struct RequestAsker {
    client: ClientId,
    cookie: u64,
}

/// An answer that waits for the borrow to end.
type ReadyAnswer = (Rc<dyn Replies>, u64, RequestOutcome);

/// What is handed out while nothing is borrowed. It comes back empty, for its capacity.
#[derive(Default)]
pub(super) struct Deliveries {
    answers: Vec<ReadyAnswer>,
    /// Those whose export has gone.
    leaving: Vec<Rc<dyn Replies>>,
}

impl Deliveries {
    pub fn answer(&mut self) {
        for (replies, cookie, outcome) in self.answers.drain(..) {
            replies.complete(cookie, outcome);
        }
    }

    pub fn part(&mut self) {
        self.leaving.drain(..).for_each(|replies| replies.gone());
    }
}

#[derive(Default)]
pub(super) struct AttachedClients {
    clients: Slab<AttachedClient>,
    /// Clients that have ever come, for their generations.
    count: u32,
    /// Requests the engine has.
    requests: Slab<RequestAsker>,
    deliveries: Deliveries,
    /// Numbers of clients with answers in `deliveries`.
    answered: Vec<u32>,
}

fn client_id(number: u32, generation: u32) -> ClientId {
    ClientId(u64::from(generation) << 32 | u64::from(number))
}

fn number_of(client: ClientId) -> u32 {
    client.0 as u32
}

fn generation_of(client: ClientId) -> u32 {
    (client.0 >> 32) as u32
}

impl AttachedClients {
    pub fn attach(&mut self, volume: usize, terms: ClientTerms, replies: Rc<dyn Replies>) -> ClientId {
        self.count = self.count.wrapping_add(1);
        let generation = self.count;
        let number = self.clients.put(AttachedClient { generation, volume, terms, replies, is_answered: false });
        client_id(number, generation)
    }

    /// The volume that it was at, and its line: to be dropped while nothing is borrowed.
    pub fn detach(&mut self, client: ClientId) -> (usize, Rc<dyn Replies>) {
        let number = number_of(client);
        self.find(client).expect("a client detaches once");
        let left = self.clients.take(number).expect("it was there just now");
        self.answered.retain(|answered| *answered != number);
        (left.volume, left.replies)
    }

    pub fn is_attached(&mut self, client: ClientId) -> bool {
        self.find(client).is_some()
    }

    fn find(&mut self, client: ClientId) -> Option<&mut AttachedClient> {
        self.clients.get_mut(number_of(client)).filter(|found| found.generation == generation_of(client))
    }

    /// The position of the client's volume.
    pub fn volume_of(&mut self, client: ClientId) -> usize {
        self.find(client).expect("only attached clients ask").volume
    }

    /// A request goes to the engine; its answer comes back by this id.
    pub fn asked(&mut self, client: ClientId, cookie: u64) -> RequestId {
        RequestId(u64::from(self.requests.put(RequestAsker { client, cookie })))
    }

    /// The engine's answer to a request.
    pub fn reply(&mut self, id: RequestId, result: Result<(), IoError>) {
        let asker = u32::try_from(id.0).ok().and_then(|number| self.requests.take(number));
        let RequestAsker { client, cookie } = asker.expect("a request is answered once");
        let outcome = match result {
            Ok(()) => RequestOutcome::Done,
            Err(IoError::NoSpace) => RequestOutcome::Failed(RequestFailure::NoSpace),
            Err(IoError::Io | IoError::Damaged | IoError::TooLarge | IoError::TooManyDeltas) => {
                RequestOutcome::Failed(RequestFailure::Io)
            }
        };
        self.answer(client, cookie, outcome);
    }

    /// Who has asked it, attached or not.
    pub fn asker(&mut self, id: RequestId) -> Option<ClientId> {
        u32::try_from(id.0).ok().and_then(|number| self.requests.get_mut(number)).map(|asker| asker.client)
    }

    /// The request is for whoever serves the volume next: this node does not any more, and has not said that it is done.
    pub fn lose(&mut self, id: RequestId) {
        let asker = u32::try_from(id.0).ok().and_then(|number| self.requests.take(number));
        let RequestAsker { client, cookie } = asker.expect("a request is answered once");
        self.answer(client, cookie, RequestOutcome::Failed(RequestFailure::Gone));
    }

    /// Keeps an answer for the end of the turn; one for a client that left goes nowhere.
    pub fn answer(&mut self, client: ClientId, cookie: u64, outcome: RequestOutcome) {
        let Some(found) = self.find(client) else { return };
        let replies = found.replies.clone();
        if !std::mem::replace(&mut found.is_answered, true) {
            self.answered.push(number_of(client));
        }
        self.deliveries.answers.push((replies, cookie, outcome));
    }

    /// The exports of these volumes are gone.
    pub fn part(&mut self, volumes: Range<usize>) {
        self.part_those(|volume| volumes.contains(&volume));
    }

    /// The same, of volumes by their positions.
    pub fn part_those(&mut self, is_gone: impl Fn(usize) -> bool) {
        let leaving = self.clients.iter().filter(|client| is_gone(client.volume));
        self.deliveries.leaving.extend(leaving.map(|client| client.replies.clone()));
    }

    /// Whether the engine has a request of this client, attached or not.
    pub fn has_requests_of(&self, client: ClientId) -> bool {
        self.requests.iter().any(|asker| asker.client == client)
    }

    /// Clients of volumes like these leave, if what they were told of the volume does not hold any more.
    pub fn part_unlike(&mut self, is_it: impl Fn(usize) -> bool, now: ClientTerms) {
        let leaving = self.clients.iter().filter(|client| is_it(client.volume) && !client.terms.hold_for(now));
        self.deliveries.leaving.extend(leaving.map(|client| client.replies.clone()));
    }

    /// Clients go on at other positions: `new` has that of a client's volume, and what it is like there now; `None`: the client stays where
    /// it is. Returns the moves, each from where to where.
    pub fn rebind(&mut self, new: impl Fn(usize) -> Option<(usize, ClientTerms)>) -> Vec<(usize, usize)> {
        let mut moves = Vec::new();
        for client in self.clients.iter_mut() {
            if let Some((at, _)) = new(client.volume).filter(|(_, now)| client.terms.hold_for(*now)) {
                moves.push((std::mem::replace(&mut client.volume, at), at));
            }
        }
        moves
    }

    pub fn take_deliveries(&mut self) -> Deliveries {
        std::mem::take(&mut self.deliveries)
    }

    /// Takes back what was handed out.
    pub fn delivered(&mut self, deliveries: Deliveries) {
        let waiting = &self.deliveries;
        assert!(waiting.answers.is_empty() && waiting.leaving.is_empty(), "clients do not call back");
        self.deliveries = deliveries;
    }

    /// One that has had answers, and is to be pushed.
    pub fn next_answered(&mut self) -> Option<Rc<dyn Replies>> {
        loop {
            let number = self.answered.pop()?;
            if let Some(client) = self.clients.get_mut(number) {
                client.is_answered = false;
                return Some(client.replies.clone());
            }
        }
    }
}
