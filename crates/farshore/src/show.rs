//! A status as text for eyes: pure, so that every line of it is tested.
//!
//! One group gets a page, many get a table and a line for each that needs attention. Words before numbers: at three in
//! the morning "what is protected now" comes first.

pub mod check;
pub mod clients;
pub mod events;
pub mod link;
mod peer;
pub mod queue;
pub mod rpo;
pub mod shell;
pub mod stats;
pub mod table;
pub mod verify;

use table::{Table, in_one_line, plain, titled};
use toolkit::screen::{Colour, Paint, clean};
use units::exact::{show_seconds, show_size};

use crate::api::{
    ClientsStatus, Flow, GroupState, GroupView, HandoverView, LinkState, MarkStatus, ModeLadderView, NamedMark,
    NodeView, PeerStatusView, Protection, ReverseView, Role, RpoView, SharedView, StateDirectoryView, SyncView,
};

/// Whether an operator should look: failed, paused, writers held up, or a broken volume.
pub fn needs_attention(group: &GroupView) -> bool {
    matches!(group.state, GroupState::Failed | GroupState::Paused)
        || group.queue.held_up_ms.is_some()
        || group.differs
        || group.volumes.iter().any(|volume| volume.error.is_some())
}

/// `is queuing: the peer is unreachable`, to follow a group's name.
pub fn explained(group: &GroupView) -> String {
    match &group.reason {
        Some(reason) => format!("is {}: {reason}", group.state),
        None => format!("is {}", group.state),
    }
}

/// The whole answer of `status`.
pub fn status(status: &NodeView, paint: &Paint) -> String {
    let (node, version) = (clean(&status.node), clean(&status.version));
    let head = format!("{node}  farshore {version}, up {}", show_seconds(status.uptime_s));
    let mut text = paint.with(Colour::Head, &head) + "\n";
    for warning in &status.warnings {
        text += &format!("{} {}\n", paint.with(Colour::Bad, "!"), in_one_line(warning));
    }
    if status.lost_log_lines > 0 {
        let lost = status.lost_log_lines;
        let what =
            format!("{lost} lines of this daemon's log were not written; make room for it, or have it read faster");
        text += &format!("{} {what}\n", paint.with(Colour::Bad, "!"));
    }
    if let Some(shared) = &status.shared {
        text += &shared_line(shared);
    }
    text += &status.state_directory.as_ref().map(state_line).unwrap_or_default();
    if let Some(clients) = &status.clients {
        text += &clients_line(clients);
    }
    text += &link::lines(&status.links, paint);
    text.push('\n');
    match status.groups.as_slice() {
        [] => text += "This node has no group.\n",
        [group] => text += &page(&status.node, group, paint),
        groups => text += &overview(&status.node, groups, paint),
    }
    text + &peer::sections(status, paint)
}

/// Whether what the node keeps of customers' data can be read by whoever gets its disk.
fn state_line(state: &StateDirectoryView) -> String {
    let (path, lies) = (in_one_line(&state.path), in_one_line(&state.lies));
    let known = match state.encrypted {
        Some(true) => "encrypted at rest by",
        Some(false) => "not encrypted at rest:",
        None => "not known whether encrypted at rest:",
    };
    format!("{path} {known} {lies}\n")
}

/// What the groups share: memory, and turns where any waits for one.
fn shared_line(shared: &SharedView) -> String {
    let (held, limit) = (show_size(shared.memory_bytes), show_size(shared.memory_limit_bytes));
    let mut text = format!("memory {held} of {limit}");
    for (doing, now, waiting) in
        [("starting", shared.starting, shared.starting_waiting), ("syncing", shared.syncing, shared.syncing_waiting)]
    {
        if waiting > 0 {
            text += &format!("; {now} groups {doing}, {waiting} wait for their turn");
        }
    }
    text + "\n"
}

/// Absent where no client was ever turned away or cut off: each volume tells its own clients.
fn clients_line(clients: &ClientsStatus) -> String {
    let ClientsStatus { connected, refused, stalled, violations } = *clients;
    let troubles = [
        (refused, "turned away as there was no free slot"),
        (stalled, "cut off as they stood still"),
        (violations, "cut off as they did not speak NBD"),
    ];
    let troubles: Vec<String> =
        troubles.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    match troubles.as_slice() {
        [] => String::new(),
        some => format!("clients {connected} connected; since the start {}\n", some.join(", ")),
    }
}

/// One line per group, then what needs an eye.
fn overview(node: &str, groups: &[GroupView], paint: &Paint) -> String {
    let mut table = Table::new(["GROUP", "DIRECTION", "ROLE", "MODE", "STATE", "PROTECTION", "LINK", "LAG", "DIRTY"]);
    for group in groups {
        let peer = group.peers.first();
        table.row([
            plain(&group.name),
            plain(&direction(node, group)),
            plain(&role_word(group)),
            plain(&mode_word(group)),
            (clean(group.state.as_str()), Some(colour(group))),
            plain(group.protection.as_str()),
            plain(&links(&group.peers)),
            plain(&peer.map_or("-".to_owned(), lag)),
            plain(&show_size(dirty_bytes(group))),
        ]);
    }
    let mut text = table.text("", paint);
    let notes: Vec<String> = groups.iter().flat_map(notes).collect();
    if !notes.is_empty() {
        text.push('\n');
        for note in notes {
            text += &format!("{} {note}\n", paint.with(Colour::Busy, "!"));
        }
    }
    text + "\nOne group in full: farshore status GROUP\n"
}

/// In all. It may be a peer's word: a sum that no number holds ends at the largest one.
fn dirty_bytes(group: &GroupView) -> u64 {
    group.volumes.iter().map(|volume| volume.dirty_bytes).fold(0, u64::saturating_add)
}

fn notes(group: &GroupView) -> Vec<String> {
    let reason = group.reason.iter().map(|reason| format!("{}: {reason}", group.state));
    let broken = group
        .volumes
        .iter()
        .filter_map(|volume| volume.error.as_ref().map(|error| format!("volume {}: {error}", volume.name)));
    reason
        .chain(broken)
        .chain(group.warnings.iter().cloned())
        .map(|note| in_one_line(&format!("{}: {note}", group.name)))
        .collect()
}

/// Everything about one group.
fn page(node: &str, group: &GroupView, paint: &Paint) -> String {
    let state = paint.with(colour(group), &clean(group.state.as_str()));
    let name = paint.with(Colour::Head, &clean(&group.name));
    let (direction, role, mode) = (clean(&direction(node, group)), clean(&role_word(group)), clean(&mode_word(group)));
    let mut text = format!("{name}  {direction}  {role}, mode {mode}, {state}\n");
    let mut line = |title: &str, content: &str| text += &titled(title, 12, content);
    line("Now", state_words(group));
    if let Some(ladder) = &group.mode_ladder {
        line("Mode", &ladder_words((&group.mode, &group.effective_mode), ladder));
    }
    line("Protection", &protection_words(group));
    if let Some(missed) = group.rpo.as_ref().filter(|rpo| rpo.is_missed()).and_then(rpo_words) {
        line("RPO", &missed);
    }
    if let Some(handover) = &group.handover {
        line("Handover", &handover_words(handover));
    }
    if let Some(reverse) = &group.reverse {
        line("Reverse", &reverse_words(reverse));
    }
    if let Some(reason) = &group.reason {
        line("Why", reason);
    }
    for warning in &group.warnings {
        line("Warning", warning);
    }
    if let Some(sync) = &group.sync {
        line("Sync", &sync_line(sync));
    }
    if let Some(run) = &group.verify {
        line("Verify", &verify::running(run));
    }
    if let Some(ended) = &group.verified {
        line("Verified", &verify::ended(verify::comparable_bytes(group), ended));
    }
    if let Some(scrub) = &group.scrub {
        line("Scrub", &verify::scrub(scrub));
    }
    for peer in &group.peers {
        peer_lines(group, peer, &mut line);
    }
    if group.role == Role::Secondary {
        line("Promotable", &promotable_words(group));
    }
    window_lines(group, &mut line);
    for mark in &group.marks {
        line("Kept", &mark_line(mark));
    }
    if group.role != Role::Secondary {
        queue_lines(group, &mut line);
    }
    if let Some(journal) = &group.journal {
        line(
            "Journal",
            &format!("{} not yet applied, of {}", show_size(journal.bytes), show_size(journal.limit_bytes)),
        );
    }
    let settings: Vec<String> = group
        .settings
        .iter()
        .filter(|(_, setting)| setting.origin == crate::api::Origin::Set)
        .map(|(key, setting)| format!("{key} = {}", setting.value))
        .collect();
    if !settings.is_empty() {
        line("Set", &format!("{} (wins over the configuration file)", settings.join(", ")));
    }
    text.push('\n');
    text + &volumes(group, paint)
}

/// Which way a group replicates, as `node` tells: `alpha -> beta`; `alpha -/-> beta`: nothing travels; `alpha -|- beta`: both are primary;
/// `alpha -?- beta`: it is not known.
fn direction(node: &str, group: &GroupView) -> String {
    let peer = group.peers.first().map_or("", |peer| &peer.node);
    match (&group.flow, &group.from, &group.to) {
        (Flow::Flowing, Some(from), Some(to)) => format!("{from} -> {to}"),
        (Flow::Stopped, Some(from), Some(to)) => format!("{from} -/-> {to}"),
        (Flow::Fork, _, _) => format!("{node} -|- {peer}"),
        _ => format!("{node} -?- {peer}"),
    }
}

/// What this node is for a group, or that it stops to be that.
fn role_word(group: &GroupView) -> String {
    let ending = if group.demoting { " (ending)" } else { "" };
    let served = match &group.reverse {
        Some(reverse) if group.role == Role::Primary => format!(" (for clients of {})", reverse.home),
        Some(reverse) => format!(" (clients served from {})", reverse.server),
        None => String::new(),
    };
    format!("{}{ending}{served}", group.role)
}

/// Of a reverse sync that is under way.
fn reverse_words(reverse: &ReverseView) -> String {
    let ReverseView { home, server, connected, waiting, why } = reverse;
    let mut text = format!("clients of {home} are served from {server}, and {home} takes over again by itself");
    if !connected {
        text += &format!("; {waiting} requests wait until {server} answers");
    }
    why.iter().for_each(|why| text += &format!(" ({why})"));
    text
}

/// Of a switchover that is under way.
pub fn handover_words(handover: &HandoverView) -> String {
    let HandoverView { to, stage, held_requests, ends_in_s } = handover;
    let what = match stage.as_str() {
        "draining" => "requests wait until it has the last writes",
        "storing" => "both nodes are equal",
        "recording" => "this node becomes secondary",
        "granted" => "this node is secondary, and waits for its word",
        other => other,
    };
    let held = if *held_requests > 0 { format!(", {held_requests} requests wait") } else { String::new() };
    format!("to {to}: {what}{held}; it has {} left", show_seconds(*ends_in_s))
}

fn state_words(group: &GroupView) -> &'static str {
    match (&group.state, &group.role) {
        (GroupState::Logging, _) if group.demoting => {
            "this node is being demoted; until that is on record here, it is the primary and serves nobody"
        }
        (GroupState::Logging, Role::Primary) => "writes are tracked only; the copy falls behind until the next sync",
        (GroupState::Logging, _) => "nothing arrives; the copy stays as it is",
        (GroupState::Queuing, _) => "the link is down; writes wait in the queue, in order",
        (GroupState::Syncing, Role::Primary) if group.sync.as_ref().is_some_and(|sync| sync.snapshot.is_some()) => {
            "dirty regions travel in snapshots; the copy's newest image is the one before the snapshot under way"
        }
        (GroupState::Syncing, Role::Primary) => {
            "dirty regions travel; until it ends the copy's newest image is the one before the sync"
        }
        (GroupState::Syncing, _) => {
            "dirty regions arrive; until the sync or snapshot under way ends this copy's newest image is the one before it"
        }
        (GroupState::CatchingUp, _) => "in order again; the mode's promise holds once it has caught up",
        (GroupState::Replicating, _) if group.acts_otherwise().is_some() => {
            "in order; the line is slow, and the promise of a lower mode holds"
        }
        (GroupState::Replicating, _) => "the mode's promise holds",
        (GroupState::Holding, _) => "the link is down; writers wait for it",
        (GroupState::Paused, _) => "applying stands still; nothing is lost, and it goes on when the cause is mended",
        (GroupState::Failed, _) => "stopped; mend the cause, then type 'farshore reset GROUP'",
        (GroupState::Other(_), _) => "a state this version of the command does not know",
    }
}

/// The mode, and what the group acts as where that is another one.
fn mode_word(group: &GroupView) -> String {
    match group.acts_otherwise() {
        Some(acts_as) => format!("{} (now {acts_as})", group.mode),
        None => group.mode.clone(),
    }
}

fn ladder_words((mode, acts_as): (&str, &str), ladder: &ModeLadderView) -> String {
    let then = match ladder.returns_in_s {
        Some(left) => format!("{mode} again in {}, if the line stays good", show_seconds(left)),
        None => format!("{mode} again once the line has been good for a while"),
    };
    let lasts = show_seconds(ladder.lowered_s);
    format!("acts as {acts_as} for {lasts}: {}; {then}", ladder.reason)
}

/// `warn for 4 min: the lag is to stay within 30 s (rpo.warn), 5 min (rpo.error)`; `None`: there is no threshold.
fn rpo_words(rpo: &RpoView) -> Option<String> {
    let level = |seconds: Option<f64>, key: &str| seconds.map(|limit| format!("{} ({key})", show_seconds(limit)));
    let levels = [level(rpo.warn_seconds, "rpo.warn"), level(rpo.error_seconds, "rpo.error")];
    let levels = levels.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let lasts = rpo.state_s.map(|lasts| format!(" for {}", show_seconds(lasts))).unwrap_or_default();
    (!levels.is_empty()).then(|| format!("{}{lasts}: the lag is to stay within {levels}", rpo.state))
}

fn protection_words(group: &GroupView) -> String {
    let words = match &group.protection {
        Protection::BothDurable => "an acknowledged write is durable on both nodes",
        Protection::BothReceived => "an acknowledged write is complete here and in the peer's memory",
        Protection::Queued => "an acknowledged write is complete here and queued; losing this node loses the queue",
        Protection::LocalOnly if matches!(group.state, GroupState::Syncing | GroupState::Paused) => {
            return format!("an acknowledged write is complete on this node only; {}", promoted_in_sync(group));
        }
        Protection::LocalOnly => "an acknowledged write is complete on this node only",
        Protection::Held => "writes are not acknowledged until the peer is back",
        Protection::None if group.role == Role::Secondary => "this node keeps the copy; the primary acknowledges",
        Protection::None => "nothing is served here",
        Protection::Other(word) => word,
    };
    words.to_owned()
}

/// What a promotion of the peer would give in the midst of a sync or snapshot, as far as this primary knows.
fn promoted_in_sync(group: &GroupView) -> String {
    let Some(peer) = group.peers.first() else { return "no image of the other node is known here".to_owned() };
    let known = peer.recovery_point.as_ref().and_then(|point| Some((point.time.as_deref()?, peer.lag_seconds?)));
    match known {
        Some((time, age)) => format!(
            "promoted before the sync ends, {} goes back to its image of {time}, {} old",
            peer.node,
            show_seconds(age)
        ),
        None => {
            format!("no image of {0} is known here; if it has one, 'Promotable' in its own status names it", peer.node)
        }
    }
}

fn peer_lines(group: &GroupView, peer: &PeerStatusView, line: &mut impl FnMut(&str, &str)) {
    let mut link = format!("{}: {} for {}", peer.node, peer.link, show_seconds(peer.link_since_s));
    if let Some(reason) = &peer.link_reason {
        link += &format!(" ({reason})");
    }
    line("Peer", &link);
    if group.role == Role::Primary {
        line("Behind", &behind(group, peer));
    } else {
        line("Behind", &copy_behind(peer));
    }
    let point = match &peer.recovery_point {
        Some(point) => format!("{} (primary's clock), sequence {}", time_words(point.time.as_deref()), point.sequence),
        None => "no consistent point now".to_owned(),
    };
    line("Copy is at", &point);
}

/// Dirty bits outlive what they stand for: they are taken away when nothing else is to do.
fn behind(group: &GroupView, peer: &PeerStatusView) -> String {
    let in_step = group.state == GroupState::Replicating && group.queue.items == 0 && peer.lag_bytes == Some(0);
    match show_size(peer.dirty_bytes) {
        _ if in_step && peer.dirty_bytes == 0 => "nothing".to_owned(),
        dirty_text if in_step => format!("nothing; {dirty_text} still dirty from writes that the peer has"),
        dirty => format!("{}{}; {dirty} dirty", lag(peer), queue::oldest_write(&group.queue)),
    }
}

/// How far a copy is behind only its primary knows.
fn copy_behind(peer: &PeerStatusView) -> String {
    if peer.lag_bytes.is_some() {
        let items = peer.lag_items.filter(|items| *items > 0).map(|items| format!("; {items} writes"));
        let behind = lag(peer) + &items.unwrap_or_default();
        return match show_size(peer.dirty_bytes) {
            _ if peer.dirty_bytes == 0 => behind,
            dirty => format!("{behind}; {dirty} dirty on {}", peer.node),
        };
    }
    match (peer.heard_s, peer.heard_lag_bytes) {
        (Some(heard_s), Some(bytes)) => {
            let then = lag_text(Some(bytes), peer.heard_lag_seconds);
            format!(
                "unknown since {}: as a primary {} was heard last then, {then} behind",
                show_seconds(heard_s),
                peer.node
            )
        }
        _ => format!("unknown: {} was not heard as primary since this daemon started", peer.node),
    }
}

/// What the peer window means for a promotion here, or for the writers of this primary.
fn window_lines(group: &GroupView, line: &mut impl FnMut(&str, &str)) {
    if let Some(left) = group.peer_window_s {
        line(
            "Window",
            &format!("nothing that the primary acknowledged is missing here, for {} more at least", show_seconds(left)),
        );
    }
    if let Some(left) = group.held_writers_s {
        let writers = match group.held_writers {
            1 => "1 writer waits".to_owned(),
            many => format!("{many} writers wait"),
        };
        line(
            "Held",
            &format!(
                "{writers} up to {} for the end of the peer window that the other node counts on",
                show_seconds(left)
            ),
        );
    }
}

pub(crate) fn promotable_words(group: &GroupView) -> String {
    match &group.promotable {
        Some(point) => {
            let time = time_words(point.time.as_deref());
            format!("the image at {time} (primary's clock), sequence {}", point.sequence)
        }
        None => match group.volumes.iter().find(|volume| volume.unfilled) {
            Some(volume) => format!("no: volume {} has a disk here that no sync has filled", volume.name),
            None => "no consistent image now".to_owned(),
        },
    }
}

fn time_words(time: Option<&str>) -> &str {
    time.unwrap_or("an unknown time")
}

fn mark_line(mark: &MarkStatus) -> String {
    let space = format!(
        "{} used, {} reserved, of {}",
        show_size(mark.used_bytes),
        show_size(mark.reserved_bytes),
        show_size(mark.limit_bytes)
    );
    let error = mark.error.as_ref().map(|error| format!("; {error}")).unwrap_or_default();
    let delta = if mark.delta { "; before the sync ends, what it overwrites is saved to the file 'delta'" } else { "" };
    let time = time_words(mark.time.as_deref());
    format!("{}: the image at {time}, sequence {}; {space}{error}{delta}", mark.name, mark.sequence)
}

/// What `mark list` prints.
pub fn marks(marks: &[MarkStatus], named: &[NamedMark]) -> String {
    let mut text: String = marks.iter().map(|mark| clean(&mark_line(mark)) + "\n").collect();
    if marks.is_empty() {
        text += "No image is kept besides the volumes' own.\n";
    }
    if named.is_empty() {
        return text;
    }
    let mut table = Table::new(["MARK", "SEQUENCE", "TIME", "WHERE", "LOCKED", "TOGETHER"]);
    for mark in named {
        table.row([
            plain(&mark.name),
            plain(&mark.sequence.to_string()),
            plain(time_words(mark.time.as_deref())),
            plain(mark.state.words()),
            plain(if mark.locked { "yes" } else { "no" }),
            plain(mark.moment.as_deref().unwrap_or("-")),
        ]);
    }
    text + "\n" + &table.text("", &Paint::plain())
}

fn queue_lines(group: &GroupView, line: &mut impl FnMut(&str, &str)) {
    let pace = queue::pace(&group.queue).map(|pace| format!("; {pace}")).unwrap_or_default();
    line("Queue", &format!("{}{pace}", queue::fill(&group.queue)));
    // Where nothing ever came there 'queue' tells its size.
    if let Some(disk) = queue::disk(&group.queue).filter(|_| group.queue.spilled_bytes > 0 || group.queue.disk_failed) {
        line("On disk", &disk);
    }
    if let Some(log) = queue::log(&group.queue) {
        line("Log", &log);
    }
    line("Peak", &format!("{}; {}", queue::peak(&group.queue), queue::waited(&group.queue)));
}

fn volumes(group: &GroupView, paint: &Paint) -> String {
    let mut table = Table::new(["VOLUME", "SIZE", "DIRTY", "CLIENTS", "DEVICE"]);
    for volume in &group.volumes {
        let mut device = volume.device.clone();
        if volume.device_bytes > volume.size_bytes {
            let unused = volume.device_bytes - volume.size_bytes;
            device += &format!(" (holds {}, {} of it unused)", show_size(volume.device_bytes), show_size(unused));
        }
        if !volume.direct {
            device += " (through the page cache)";
        }
        let (device, mark) = match &volume.error {
            Some(error) => (format!("{device}: {error}"), Some(Colour::Bad)),
            None => (device, None),
        };
        table.row([
            plain(&volume.name),
            plain(&show_size(volume.size_bytes)),
            plain(&show_size(volume.dirty_bytes)),
            plain(&volume.clients.to_string()),
            (in_one_line(&device), mark),
        ]);
    }
    table.text("  ", paint)
}

/// `45 %, 1.2 GiB of 3 GiB, 11.8 MiB/s, 2 min 3 s left`.
pub fn sync_line(sync: &SyncView) -> String {
    let left_bytes = sync.total_bytes.saturating_sub(sync.done_bytes);
    let percent = if sync.total_bytes == 0 { 100.0 } else { sync.done_bytes as f64 / sync.total_bytes as f64 * 100.0 };
    let left = if left_bytes == 0 {
        "ending".to_owned()
    } else if sync.rate_bytes_per_s >= 1.0 {
        format!("{} left", show_seconds(left_bytes as f64 / sync.rate_bytes_per_s))
    } else {
        "standing still".to_owned()
    };
    format!(
        "{}{:.0} %, {} of {}, {}/s, {left}",
        match sync.snapshot {
            Some(snapshot) => format!("snapshot {snapshot}, "),
            None => if sync.full { "full, " } else { "" }.to_owned(),
        },
        // Never 100 before the end.
        if left_bytes > 0 { percent.min(99.0).floor() } else { 100.0 },
        show_size(sync.done_bytes),
        show_size(sync.total_bytes),
        show_size(sync.rate_bytes_per_s.max(0.0) as u64),
    )
}

fn lag(peer: &PeerStatusView) -> String {
    lag_text(peer.lag_bytes, peer.lag_seconds)
}

fn lag_text(bytes: Option<u64>, seconds: Option<f64>) -> String {
    match (bytes, seconds) {
        (Some(bytes), Some(seconds)) => format!("{}, {}", show_size(bytes), show_seconds(seconds)),
        (Some(bytes), None) => show_size(bytes),
        (None, Some(seconds)) => show_seconds(seconds),
        (None, None) => "unknown".to_owned(),
    }
}

fn links(peers: &[PeerStatusView]) -> String {
    match peers {
        [] => "-".to_owned(),
        [peer] => peer.link.to_string(),
        many => {
            let up =
                many.iter().filter(|peer| matches!(peer.link, LinkState::Connected | LinkState::Congested)).count();
            format!("{up} of {} connected", many.len())
        }
    }
}

fn colour(group: &GroupView) -> Colour {
    match group.state {
        GroupState::Replicating if group.acts_otherwise().is_some() => Colour::Busy,
        GroupState::Replicating => Colour::Good,
        GroupState::Failed | GroupState::Paused => Colour::Bad,
        _ => Colour::Busy,
    }
}
