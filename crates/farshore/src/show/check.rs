//! A status as a verdict of one line, as Nagios and its kin read it: pure, so that a table tests what gives which.
//!
//! docs/book/operate/monitoring.md has the same table for people. The thresholds are those of the alert rules in
//! `packaging/prometheus`, less their patience: whoever calls the check has a patience of its own.

use std::collections::BTreeMap;

use jiff::Timestamp;
use units::exact::show_seconds;

use super::table::in_one_line;
use crate::api::{GroupState, GroupView, LinkState, MarkStatus, NodeView, PeerSays, Protection, Role, RpoView};
use crate::outcome::Exit;

/// A certificate that ends so soon, in seconds, is to be renewed.
const CERTIFICATE_SOON_S: i64 = 14 * 24 * 3600;
/// From here on a queue or a history is nearly full, in percent.
const NEARLY_FULL_PERCENT: f64 = 80.0;
/// As many findings stand in the line; collectors cut long ones, and the worst stand first.
const FINDINGS_SHOWN: usize = 6;

/// How things are; the worst counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    Ok,
    Warning,
    Critical,
    /// It could not be found out.
    Unknown,
}

impl Health {
    fn word(self) -> &'static str {
        match self {
            Health::Ok => "OK",
            Health::Warning => "WARNING",
            Health::Critical => "CRITICAL",
            Health::Unknown => "UNKNOWN",
        }
    }

    /// The numbers of the interface for plugins, which are those of [`Exit`] for other reasons.
    pub fn exit(self) -> Exit {
        match self {
            Health::Ok => Exit::Done,
            Health::Warning => Exit::Warning,
            Health::Critical => Exit::Failed,
            Health::Unknown => Exit::Usage,
        }
    }
}

/// What a check comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub health: Health,
    /// What was found, the worst first; empty when all is well.
    pub findings: Vec<(Health, String)>,
    summary: String,
    performance: Vec<String>,
}

impl Verdict {
    /// Nothing is known, for this reason.
    pub fn unknown(why: &str) -> Verdict {
        let findings = vec![(Health::Unknown, why.to_owned())];
        Verdict { health: Health::Unknown, findings, summary: String::new(), performance: Vec::new() }
    }

    /// Of a status with what the peers say, at a moment in seconds since 1970.
    pub fn of(status: &NodeView, now_s: i64) -> Verdict {
        if status.groups.is_empty() {
            return Verdict::unknown(&format!("node {} has no group", status.node));
        }
        let mut findings = Vec::new();
        status.groups.iter().for_each(|group| findings.extend(group_findings(group, their_halves(status, group))));
        findings.extend(status.peer_says.iter().filter_map(silent_peer));
        let peers = status.peer_says.iter().filter_map(|says| says.status.as_deref());
        [status].into_iter().chain(peers).for_each(|node| findings.extend(certificate_findings(node, now_s)));
        // A stable sort: among equals the order of the groups stays.
        findings.sort_by_key(|(health, _)| std::cmp::Reverse(*health));
        Verdict {
            health: findings.first().map_or(Health::Ok, |(health, _)| *health),
            findings,
            summary: summary(status),
            performance: status.groups.iter().flat_map(|group| performance(status, group)).collect(),
        }
    }

    /// The line, with its end: words, then after a bar the numbers.
    pub fn line(&self) -> String {
        let words: Vec<String> = self.findings.iter().take(FINDINGS_SHOWN).map(|(_, text)| in_field(text)).collect();
        let mut text = match words.is_empty() {
            true => in_field(&self.summary),
            false => words.join("; "),
        };
        if self.findings.len() > FINDINGS_SHOWN {
            text += &format!("; and {} more, see 'farshore status'", self.findings.len() - FINDINGS_SHOWN);
        }
        let numbers = match self.performance.is_empty() {
            true => String::new(),
            false => format!(" | {}", self.performance.join(" ")),
        };
        format!("FARSHORE {} - {text}{numbers}\n", self.health.word())
    }
}

/// One line, and no bar, behind which numbers would be looked for.
fn in_field(text: &str) -> String {
    in_one_line(text).replace('|', "/")
}

/// What the peers say of a group, with their names.
fn their_halves<'a>(status: &'a NodeView, group: &GroupView) -> Vec<(&'a str, &'a GroupView)> {
    let of_peer = |says: &'a PeerSays| {
        let theirs = says.status.as_ref()?.groups.iter().find(|theirs| theirs.name == group.name)?;
        Some((says.node.as_str(), theirs))
    };
    status.peer_says.iter().filter_map(of_peer).collect()
}

fn group_findings(group: &GroupView, theirs: Vec<(&str, &GroupView)>) -> Vec<(Health, String)> {
    let mut findings = Vec::new();
    let is_primary = |group: &GroupView| group.role == Role::Primary && !group.starting;
    let state = state_finding(&group.name, group);
    let is_as_wanted = state.is_none();
    findings.extend(state);
    findings.extend(half_findings(&group.name, group));
    for (node, theirs) in &theirs {
        let name = format!("{} on {node}", group.name);
        if is_primary(group) && is_primary(theirs) {
            findings.push((
                Health::Critical,
                format!("{0}: both nodes are primary ('farshore resolve {0} --keep NODE')", group.name),
            ));
        }
        // Both halves say that a sync runs, or that the link is down: once is enough.
        let state = state_finding(&name, theirs);
        findings.extend(state.filter(|(health, _)| is_as_wanted || *health == Health::Critical));
        findings.extend(half_findings(&name, theirs));
    }
    findings.extend(link_finding(group).filter(|_| is_as_wanted));
    findings.extend(lag_finding(group, lag_of(group, &theirs)));
    findings
}

fn state_finding(name: &str, group: &GroupView) -> Option<(Health, String)> {
    // A start that failed, or stands still, has a state that says so.
    let is_starting = group.starting && !matches!(group.state, GroupState::Failed | GroupState::Paused);
    let health = match &group.state {
        _ if is_starting => Health::Warning,
        GroupState::Replicating => return protection_finding(name, group),
        GroupState::Logging if group.mode == "logging" => return None,
        // Writers stand still.
        GroupState::Failed | GroupState::Paused | GroupState::Holding => Health::Critical,
        GroupState::Logging | GroupState::Queuing | GroupState::Syncing | GroupState::CatchingUp => Health::Warning,
        GroupState::Other(_) => Health::Warning,
    };
    let state = if is_starting { "starting" } else { group.state.as_str() };
    Some(match &group.reason {
        Some(reason) => (health, format!("{name} is {state}: {reason}")),
        None => (health, format!("{name} is {state}")),
    })
}

/// An acknowledgement of a primary in step says less than its mode promises.
fn protection_finding(name: &str, group: &GroupView) -> Option<(Health, String)> {
    let is_less = match group.mode.as_str() {
        "sync" => group.protection != Protection::BothDurable,
        "nearsync" => !matches!(group.protection, Protection::BothDurable | Protection::BothReceived),
        _ => matches!(group.protection, Protection::LocalOnly | Protection::Held | Protection::None),
    };
    let why = match &group.mode_ladder {
        Some(ladder) => format!("; the group acts as {}: {}", group.effective_mode, ladder.reason),
        None => String::new(),
    };
    let text =
        || format!("{name}: protection is {}, which is less than mode {} promises{why}", group.protection, group.mode);
    (group.role == Role::Primary && is_less).then(|| (Health::Warning, text()))
}

/// What one node has to tell of its half, besides the state.
fn half_findings(name: &str, group: &GroupView) -> Vec<(Health, String)> {
    let broken = group.volumes.iter().filter_map(|volume| {
        let error = volume.error.as_ref()?;
        Some((Health::Critical, format!("{name}: volume {}: {error}", volume.name)))
    });
    let mut findings: Vec<_> = broken.collect();
    if let Some(held_up_ms) = group.queue.held_up_ms {
        let time = show_seconds(held_up_ms as f64 / 1000.0);
        findings.push((Health::Critical, format!("{name}: a full queue held writers up for {time} of late")));
    } else if let Some(percent) = queue_percent(group).filter(|percent| *percent >= NEARLY_FULL_PERCENT) {
        findings.push((Health::Warning, format!("{name}: the queue is filled to {percent:.0} %")));
    }
    for mark in &group.marks {
        if let Some(error) = &mark.error {
            let text = format!("{name}: nothing can go back to the mark {}: {error}", mark.name);
            findings.push((Health::Critical, text));
        }
    }
    if group.queue.disk_failed {
        findings.push((Health::Warning, format!("{name}: the disk queue cannot be written")));
    }
    if let Some(off) = group.queue.log_off_s.filter(|off| *off >= 60) {
        let off = show_seconds(off as f64);
        findings.push((Health::Warning, format!("{name}: the log of the queue has not counted for {off}")));
    }
    if let Some(percent) = history_percent(&group.marks).filter(|percent| *percent >= NEARLY_FULL_PERCENT) {
        let text = format!("{name}: the history has little room left, {percent:.0} % are used");
        findings.push((Health::Warning, text));
    }
    findings
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64 * 100.0)
}

/// The fullest of its limits; `None` where there is no queue.
fn queue_percent(group: &GroupView) -> Option<f64> {
    group.queue.filled_share().map(|share| share * 100.0).filter(|_| group.role == Role::Primary)
}

fn history_percent(marks: &[MarkStatus]) -> Option<f64> {
    let used = marks.iter().map(|mark| mark.used_bytes.saturating_add(mark.reserved_bytes));
    percent(used.fold(0, u64::saturating_add), marks.first()?.limit_bytes)
}

/// A link that is down where the group does not need it now, such as in mode `logging`.
fn link_finding(group: &GroupView) -> Option<(Health, String)> {
    let is_up = |link: &LinkState| matches!(link, LinkState::Connected | LinkState::Congested);
    let peer = group.peers.iter().find(|peer| !is_up(&peer.link))?;
    let reason = peer.link_reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    Some((Health::Warning, format!("{}: the link to {} is {}{reason}", group.name, peer.node, peer.link)))
}

/// In seconds, as the node knows it that was asked, else as its peers do.
fn lag_of(group: &GroupView, theirs: &[(&str, &GroupView)]) -> Option<f64> {
    let known = |group: &GroupView| group.peers.iter().filter_map(|peer| peer.lag_seconds).reduce(f64::max);
    known(group).or_else(|| theirs.iter().find_map(|(_, theirs)| known(theirs)))
}

/// A group in mode `logging` is behind on purpose.
fn lag_finding(group: &GroupView, lag: Option<f64>) -> Option<(Health, String)> {
    let lag = lag.filter(|_| group.mode != "logging")?;
    let RpoView { warn_seconds, error_seconds, .. } = group.rpo.as_ref()?;
    let passed = |limit: Option<f64>| limit.filter(|limit| lag > *limit);
    let (health, key, limit) = match (passed(*error_seconds), passed(*warn_seconds)) {
        (Some(limit), _) => (Health::Critical, "rpo.error", limit),
        (None, Some(limit)) => (Health::Warning, "rpo.warn", limit),
        (None, None) => return None,
    };
    let (lag, limit) = (show_seconds(lag), show_seconds(limit));
    Some((health, format!("{}: the copy is {lag} behind, {key} is {limit}", group.name)))
}

fn silent_peer(says: &PeerSays) -> Option<(Health, String)> {
    let why = says.why.as_deref().unwrap_or("it was not asked");
    let text = || format!("what {} says of itself is not known: {why}", says.node);
    says.status.is_none().then(|| (Health::Warning, text()))
}

fn certificate_findings(node: &NodeView, now_s: i64) -> Vec<(Health, String)> {
    let Some(tls) = &node.tls else { return Vec::new() };
    let ends = [("certificate", &tls.certificate_until), ("authority's certificate", &tls.authority_until)];
    let finding = |(what, until): (&str, &String)| {
        let left_s = until.parse::<Timestamp>().ok()?.as_second() - now_s;
        let health = match left_s {
            ..=0 => Health::Critical,
            1..=CERTIFICATE_SOON_S => Health::Warning,
            _ => return None,
        };
        let when = match health {
            Health::Critical => "has ended".to_owned(),
            _ => format!("ends in {}", show_seconds(left_s as f64)),
        };
        Some((health, format!("the {what} of {} {when}", node.node)))
    };
    ends.into_iter().filter_map(finding).collect()
}

/// `3 groups replicating, lag 0.2 s`: for the line of a check that found nothing.
fn summary(status: &NodeView) -> String {
    let words = match status.groups.as_slice() {
        [group] => format!("{} {}", group.name, group.state),
        groups => {
            let mut states: BTreeMap<&str, usize> = BTreeMap::new();
            groups.iter().for_each(|group| *states.entry(group.state.as_str()).or_default() += 1);
            let mut words: Vec<String> = states.iter().map(|(state, count)| format!("{count} {state}")).collect();
            if let [(state, count)] = states.iter().collect::<Vec<_>>()[..] {
                words = vec![format!("{count} groups {state}")];
            }
            words.join(", ")
        }
    };
    let lags = status.groups.iter().filter_map(|group| lag_of(group, &their_halves(status, group)));
    match lags.reduce(f64::max) {
        Some(lag) => format!("{words}, lag {}", show_seconds(lag)),
        None => words,
    }
}

/// What graphs are drawn of: `label=value;warning;critical`. What is not known is left out.
fn performance(status: &NodeView, group: &GroupView) -> Vec<String> {
    let name = &group.name;
    let limit = |seconds: Option<f64>| seconds.map(|seconds| seconds.to_string()).unwrap_or_default();
    let rpo = group.rpo.clone().unwrap_or_default();
    let (warn, error) = (limit(rpo.warn_seconds), limit(rpo.error_seconds));
    let lag = lag_of(group, &their_halves(status, group));
    let lag = lag.map(|lag| format!("lag_{name}={}s;{warn};{error}", (lag * 1000.0).round() / 1000.0));
    let queue = queue_percent(group);
    let queue = queue.map(|percent| format!("queue_{name}={}%;{NEARLY_FULL_PERCENT}", (percent * 10.0).round() / 10.0));
    let dirty = super::dirty_bytes(group);
    lag.into_iter().chain(queue).chain([format!("dirty_{name}={dirty}B")]).collect()
}

#[cfg(test)]
mod tests;
