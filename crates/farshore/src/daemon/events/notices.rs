//! What the data thread tells, as events: names in place of numbers, and how long things took.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use engine::identity::Decision;
use engine::state::State;
use engine::{Event, GroupId, NodeId, VolumeId};
use host::driver::{DriverNews, DriverNotice};
use settings::events::EventKind;
use settings::{ConfiguredGroup, NodeName};
use units::exact::show_seconds;

use crate::daemon::current_config::CurrentConfig;
use crate::daemon::view::with_names;
use crate::events::NewEvent;

/// Failed writes of a volume are told once in this time: a broken disk fails all of them.
const FAILED_WRITES_EVERY: Duration = Duration::from_secs(60);

/// Remembers when things began.
pub(in crate::daemon) struct NoticeReader {
    config: CurrentConfig,
    node: NodeName,
    syncs: BTreeMap<GroupId, Instant>,
    /// When each began, and how many of its differences were told.
    verifies: BTreeMap<GroupId, Instant>,
    held_up: BTreeMap<GroupId, Instant>,
    failed_writes: BTreeMap<(GroupId, VolumeId), Instant>,
    links: BTreeMap<NodeId, LinkTimes>,
}

/// Since when a link is as it is.
#[derive(Default)]
struct LinkTimes {
    up: Option<Instant>,
    lost: Option<Instant>,
    /// How long there was none before the connection that is up.
    outage: Option<Duration>,
    /// The log says that it is up.
    is_shown_up: bool,
}

impl NoticeReader {
    pub fn new(config: CurrentConfig, node: NodeName) -> NoticeReader {
        let (syncs, held_up, failed_writes) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (verifies, links) = (BTreeMap::new(), BTreeMap::new());
        NoticeReader { config, node, syncs, verifies, held_up, failed_writes, links }
    }

    /// None, one, or two where a change of state ends a sync as well.
    pub fn read(&mut self, DriverNotice { unix_ms, at, news }: DriverNotice) -> Vec<NewEvent> {
        match news {
            DriverNews::Group { group: id, event, text } => {
                let config = self.config.get();
                let Some(group) = config.group_by_id(id) else { return Vec::new() };
                let peer = group.peer_of(&self.node).cloned();
                let named = |event: NewEvent| match &peer {
                    Some(peer) => event.of_group(group.name.as_str()).of_peer(peer.as_str()),
                    None => event.of_group(group.name.as_str()),
                };
                let new = |kind| named(NewEvent::at(unix_ms, kind, text.clone()));
                let stopped = self.syncs.get(&id).filter(|_| ends_sync(&event)).map(|begun| {
                    let lasted = at.saturating_duration_since(*begun);
                    let text = format!("the sync was broken off after {}", show_seconds(lasted.as_secs_f64()));
                    let why = reason(group, &event);
                    let stopped = named(NewEvent::at(unix_ms, EventKind::SyncStopped, text));
                    stopped.with_known("reason", why).with_ms("duration_ms", Some(lasted))
                });
                if stopped.is_some() {
                    self.syncs.remove(&id);
                }
                let event = self.of_time((id, group), &event, at, &new).or_else(|| of_group(group, &event, &new));
                event.into_iter().chain(stopped).collect()
            }
            DriverNews::LinkUp { peer, address, is_shown } => self.link_up((peer, address, is_shown), (unix_ms, at)),
            DriverNews::LinkDown { peer, reason, is_shown } => self.link_down(peer, &reason, is_shown, (unix_ms, at)),
            DriverNews::LinkUnsteady { peer, connections, up } => {
                let text =
                    format!("{connections} more connections came up within a minute and have no events of their own");
                let event = NewEvent::at(unix_ms, EventKind::LinkUnsteady, text).with("connections", connections);
                let event = self.of_link(peer, event);
                let is_news = self.links.get(&peer).is_none_or(|times| !times.is_shown_up);
                let connected = up.filter(|_| is_news).map(|address| self.connected(peer, address, unix_ms));
                std::iter::once(event).chain(connected).collect()
            }
        }
    }

    fn of_link(&self, peer: NodeId, event: NewEvent) -> NewEvent {
        match self.config.get().peer_by_id(&self.node, peer) {
            Some(node) => event.of_peer(node.name.as_str()),
            None => event,
        }
    }

    fn link_up(
        &mut self,
        (peer, address, is_shown): (NodeId, SocketAddr, bool),
        (unix_ms, at): (u64, Instant),
    ) -> Vec<NewEvent> {
        let times = self.links.entry(peer).or_default();
        times.outage = times.lost.take().map(|lost| at.saturating_duration_since(lost));
        times.up.get_or_insert(at);
        if is_shown { vec![self.connected(peer, address, unix_ms)] } else { Vec::new() }
    }

    /// That the link is up, by the connection that came up last.
    fn connected(&mut self, peer: NodeId, address: SocketAddr, unix_ms: u64) -> NewEvent {
        let times = self.links.entry(peer).or_default();
        times.is_shown_up = true;
        let (outage, address) = (times.outage, address.to_string());
        let after = outage.map_or(String::new(), |outage| format!(" after {}", show_seconds(outage.as_secs_f64())));
        let event = NewEvent::at(unix_ms, EventKind::LinkConnected, format!("connected with {address}{after}"));
        self.of_link(peer, event.with("address", address).with_ms("outage_ms", outage))
    }

    fn link_down(
        &mut self,
        peer: NodeId,
        reason: &str,
        is_shown: bool,
        (unix_ms, at): (u64, Instant),
    ) -> Vec<NewEvent> {
        let times = self.links.entry(peer).or_default();
        let connected = times.up.take().map(|up| at.saturating_duration_since(up));
        times.lost = Some(at);
        if !is_shown {
            return Vec::new();
        }
        times.is_shown_up = false;
        let after = connected.map_or(String::new(), |time| format!(" after {}", show_seconds(time.as_secs_f64())));
        let event = NewEvent::at(unix_ms, EventKind::LinkLost, format!("the connection ended{after}: {reason}"));
        vec![self.of_link(peer, event.with("reason", reason).with_ms("connected_ms", connected))]
    }

    /// Events that begin something, or end what was begun.
    fn of_time(
        &mut self,
        (id, group): (GroupId, &ConfiguredGroup),
        event: &Event,
        at: Instant,
        new: &dyn Fn(EventKind) -> NewEvent,
    ) -> Option<NewEvent> {
        let lasted = |begun: Option<Instant>| begun.map(|begun| at.saturating_duration_since(begun));
        Some(match event {
            Event::SyncBegan { full, compare, dirty_bytes } => {
                self.syncs.insert(id, at);
                new(EventKind::SyncBegan).with("full", *full).with("compare", *compare).with("bytes", *dirty_bytes)
            }
            Event::SyncEnded { sent_bytes } => {
                let lasted = lasted(self.syncs.remove(&id));
                new(EventKind::SyncEnded).with("sent_bytes", *sent_bytes).with_ms("duration_ms", lasted)
            }
            Event::VerifyBegan { sample_percent, repair, by_timer } => {
                self.verifies.insert(id, at);
                let event = new(EventKind::VerifyBegan).with("sample_percent", u64::from(*sample_percent));
                event.with("repair", *repair).with("by_timer", *by_timer)
            }
            Event::VerifyDiffers { volume, offset, length, unreadable } => {
                let name =
                    group.volumes.get(usize::from(volume.0)).map(|named| format!("{}/{}", group.name, named.name));
                let event = new(EventKind::VerifyDiffers).with_known("volume", name).with("offset_bytes", *offset);
                event.with("bytes", *length).with("unreadable", *unreadable)
            }
            Event::VerifyEnded { sample_percent, totals } => {
                let lasted = lasted(self.verifies.remove(&id));
                let event = new(EventKind::VerifyEnded).with("sample_percent", u64::from(*sample_percent));
                let event =
                    event.with("compared_bytes", totals.compared_bytes).with("unread_bytes", totals.unread_bytes);
                let event = event.with("differing_bytes", totals.differing_bytes);
                event.with("repaired_bytes", totals.repaired_bytes).with_ms("duration_ms", lasted)
            }
            Event::WritersHeldUp { acts_in } => {
                self.held_up.entry(id).or_insert(at);
                new(EventKind::WritersHeldUp).with_ms("acts_in_ms", *acts_in)
            }
            Event::WritersGoOn => new(EventKind::WritersGoOn).with_ms("held_up_ms", lasted(self.held_up.remove(&id))),
            Event::LocalWriteFailed { volume, offset } => {
                let told = self.failed_writes.get(&(id, *volume));
                if told.is_some_and(|told| at.saturating_duration_since(*told) < FAILED_WRITES_EVERY) {
                    return None;
                }
                self.failed_writes.insert((id, *volume), at);
                let name =
                    group.volumes.get(usize::from(volume.0)).map(|named| format!("{}/{}", group.name, named.name));
                new(EventKind::WriteFailed).with_known("volume", name).with("offset_bytes", *offset)
            }
            _ => return None,
        })
    }
}

/// Where a sync cannot go on: it has to begin anew.
fn ends_sync(event: &Event) -> bool {
    let goes_on = |state: &State| matches!(state, State::Syncing | State::CatchingUp | State::Replicating);
    matches!(event, Event::State { to, .. } if !goes_on(to))
}

/// In the words of people, where there is one.
fn reason(group: &ConfiguredGroup, event: &Event) -> Option<String> {
    let why = match event {
        Event::State { why, .. } | Event::QueueDropped { why, .. } => why.clone(),
        Event::SteppedDown { why, .. } | Event::SteppedUp { why, .. } => why.clone(),
        Event::Decided { decision: Decision::NeedsFullSync(why), .. } => why.to_string(),
        Event::Decided { decision: Decision::Refuse(why), .. } => why.to_string(),
        _ => return None,
    };
    (!why.is_empty()).then(|| with_names(group, &why))
}

/// Events that stand for themselves.
fn of_group(group: &ConfiguredGroup, event: &Event, new: &dyn Fn(EventKind) -> NewEvent) -> Option<NewEvent> {
    let why = reason(group, event);
    Some(match event {
        Event::State { from, to, .. } => {
            new(EventKind::State).with("from", from.word()).with("to", to.word()).with_known("reason", why)
        }
        Event::SteppedDown { from, to, .. } => {
            new(EventKind::ModeLowered).with("from", from.word()).with("to", to.word()).with_known("reason", why)
        }
        Event::SteppedUp { from, to, .. } => {
            new(EventKind::ModeRestored).with("from", from.word()).with("to", to.word()).with_known("reason", why)
        }
        Event::Ready { role, generation, clean, .. } => new(EventKind::GroupStarted)
            .with("role", role.word())
            .with("generation", generation.to_string())
            .with("clean", *clean),
        Event::HotExtents { extents, extent_bytes } => {
            new(EventKind::UncleanStart).with("bytes", extents.saturating_mul(*extent_bytes))
        }
        Event::Pulled { bytes } => new(EventKind::FetchedBack).with("bytes", *bytes),
        Event::WritesAlone { generation } => new(EventKind::WritesAlone).with("generation", generation.to_string()),
        Event::Decided { decision, .. } => {
            new(EventKind::Decision).with("decision", decision_word(decision)).with_known("reason", why)
        }
        Event::SnapshotEnded { at, sent_bytes } => {
            new(EventKind::SecondaryConsistent).with("sequence", at.seq.0).with("sent_bytes", *sent_bytes)
        }
        Event::QueueDropped { items, bytes, .. } => {
            new(EventKind::QueueDropped).with("writes", *items).with("bytes", *bytes).with_known("reason", why)
        }
        Event::Replayed { to, records } => {
            new(EventKind::JournalReplayed).with("records", *records).with("sequence", to.seq.0)
        }
        Event::Promoted { generation } => {
            new(EventKind::Role).with("role", "primary").with("generation", generation.to_string())
        }
        Event::Demoted => new(EventKind::Role).with("role", "secondary"),
        Event::RollbackPoint { name, at } => {
            new(EventKind::MarkKept).with("mark", name.as_str()).with("sequence", at.seq.0)
        }
        Event::Marked { name, at, alone, .. } => {
            let alone = if *alone { "yes" } else { "no" };
            new(EventKind::MarkSet).with("mark", name.as_str()).with("sequence", at.seq.0).with("alone", alone)
        }
        Event::MarkThere { name, at, .. } => {
            new(EventKind::MarkThere).with("mark", name.as_str()).with("sequence", at.seq.0)
        }
        Event::MarkLost { name, .. } => new(EventKind::MarkLost).with("mark", name.as_str()),
        Event::RolledBack { to } => new(EventKind::RolledBack).with("sequence", to.seq.0),
        Event::HandedOver | Event::Note(_) | Event::DeltaSaved(_) | Event::ForkKept { .. } => new(EventKind::Note),
        Event::SetAside { .. } | Event::Rejoins { .. } | Event::PromotesWithout { .. } => new(EventKind::Note),
        Event::QueueLog { .. } | Event::RunGoesOn { .. } => new(EventKind::Note),
        Event::ViewOpened { .. } | Event::ViewLost { .. } => new(EventKind::Note),
        // These begin or end something, or change the state, and were told there; of single writes nothing is told.
        Event::SyncBegan { .. }
        | Event::SyncEnded { .. }
        | Event::VerifyBegan { .. }
        | Event::VerifyDiffers { .. }
        | Event::VerifyEnded { .. }
        | Event::WritersHeldUp { .. }
        | Event::WritersGoOn
        | Event::LocalWriteFailed { .. }
        | Event::QueuedAlone { .. }
        | Event::Admitted { .. }
        | Event::AppliedWrite { .. } => return None,
    })
}

fn decision_word(decision: &Decision) -> &'static str {
    match decision {
        Decision::Continue(_) => "go-on",
        Decision::UpdateSync => "update-sync",
        Decision::NeedsFullSync(_) => "full-sync-needed",
        Decision::Refuse(_) => "refused",
        Decision::Idle => "idle",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use settings::Config;
    use settings::example::EXAMPLE;

    use super::*;
    use crate::events::EventRecord;

    fn example() -> Config {
        Config::parse(Path::new("/f.toml"), EXAMPLE).expect("the example is sound")
    }

    fn reader() -> NoticeReader {
        let config = example();
        NoticeReader::new(CurrentConfig::new(config), NodeName::parse("alpha").expect("a name"))
    }

    fn read(reader: &mut NoticeReader, at: Instant, news: DriverNews) -> Vec<EventRecord> {
        let events = reader.read(DriverNotice { unix_ms: 5, at, news });
        events.into_iter().map(|event| event.numbered(1, "alpha")).collect()
    }

    fn link_up(is_shown: bool) -> DriverNews {
        DriverNews::LinkUp { peer: beta(), address: address(), is_shown }
    }

    fn link_down(is_shown: bool) -> DriverNews {
        DriverNews::LinkDown { peer: beta(), reason: "silence".to_owned(), is_shown }
    }

    fn beta() -> NodeId {
        example().node_id(&NodeName::parse("beta").expect("a name"))
    }

    fn address() -> SocketAddr {
        "127.0.0.2:7337".parse().expect("an address")
    }

    fn of_group(event: Event) -> DriverNews {
        let config = example();
        DriverNews::Group { group: config.group_id(&config.groups[0]), event, text: "what the log says".to_owned() }
    }

    #[test]
    fn a_loss_and_a_return_know_how_long_each_lasted() {
        let (mut reader, start) = (reader(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let up = || link_up(true);
        let first = read(&mut reader, start, up());
        assert!(!first[0].fields.contains_key("outage_ms") && first[0].peer.as_deref() == Some("beta"));
        let lost = read(&mut reader, after(10), link_down(true));
        assert_eq!((lost[0].kind.as_str(), lost[0].fields["connected_ms"].as_u64()), ("link-lost", Some(10_000)));
        assert_eq!(lost[0].text, "the connection ended after 10 s: silence");
        let back = read(&mut reader, after(13), up());
        assert_eq!(back[0].fields["outage_ms"].as_u64(), Some(3000));
    }

    /// Connections that are not shown move the times, and the log ends with what is so.
    #[test]
    fn after_a_minute_of_losses_the_log_says_how_the_link_is() {
        let (mut reader, start) = (reader(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let unsteady = |up| DriverNews::LinkUnsteady { peer: beta(), connections: 2, up };
        read(&mut reader, start, link_up(true));
        assert_eq!(read(&mut reader, after(1), link_down(true))[0].kind, "link-lost");
        for (seconds, news) in [(2, link_up(false)), (10, link_down(false)), (13, link_up(false))] {
            assert!(read(&mut reader, after(seconds), news).is_empty());
        }
        let told = read(&mut reader, after(60), unsteady(Some(address())));
        assert_eq!(
            told.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>(),
            ["link-unsteady", "link-connected"]
        );
        assert_eq!(told[1].fields["outage_ms"].as_u64(), Some(3000));
        let lost = read(&mut reader, after(63), link_down(true));
        assert_eq!(lost[0].fields["connected_ms"].as_u64(), Some(50_000));
        read(&mut reader, after(64), link_up(false));
        read(&mut reader, after(70), link_down(false));
        assert_eq!(read(&mut reader, after(120), unsteady(None)).len(), 1, "it is lost, as the log says");
        assert_eq!(read(&mut reader, after(122), link_up(true))[0].fields["outage_ms"].as_u64(), Some(52_000));
        assert_eq!(read(&mut reader, after(180), unsteady(Some(address()))).len(), 1, "it is up, as the log says");
    }

    #[test]
    fn a_sync_has_bytes_and_time_however_it_ends() {
        let (mut reader, start) = (reader(), Instant::now());
        let began = || of_group(Event::SyncBegan { full: true, compare: false, dirty_bytes: 100 });
        read(&mut reader, start, began());
        let ended = read(&mut reader, start + Duration::from_secs(2), of_group(Event::SyncEnded { sent_bytes: 90 }));
        let fields = &ended[0].fields;
        assert_eq!((fields["sent_bytes"].as_u64(), fields["duration_ms"].as_u64()), (Some(90), Some(2000)));
        read(&mut reader, start, began());
        let lost = Event::State { from: State::Syncing, to: State::Logging, why: "the peer is gone".to_owned() };
        let kinds: Vec<_> =
            read(&mut reader, start, of_group(lost.clone())).into_iter().map(|event| event.kind).collect();
        assert_eq!(kinds, ["state", "sync-stopped"]);
        let again = read(&mut reader, start, of_group(lost));
        assert_eq!((again.len(), again[0].fields["reason"].as_str()), (1, Some("the peer is gone")));
        assert_eq!((again[0].group.as_deref(), again[0].text.as_str()), (Some("db"), "what the log says"));
    }

    #[test]
    fn a_broken_disk_fills_no_log() {
        let (mut reader, start) = (reader(), Instant::now());
        let failed = || of_group(Event::LocalWriteFailed { volume: VolumeId(0), offset: 4096 });
        let told = |reader: &mut NoticeReader, seconds| read(reader, start + Duration::from_secs(seconds), failed());
        assert_eq!(told(&mut reader, 0)[0].fields["volume"].as_str(), Some("db/data"));
        assert!(told(&mut reader, 59).is_empty());
        assert_eq!(told(&mut reader, 60).len(), 1);
    }
}
