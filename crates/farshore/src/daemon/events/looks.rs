//! Looks at the groups, every two seconds: what changed in mode, policy and settings, and whether the lag is what it may be.
//!
//! A function of what is seen now and what was known before, so that a start compares with what the log says of the run before.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use settings::events::EventKind;
use units::exact::show_seconds;

use crate::api::{GroupView, RpoState};
use crate::events::{NewEvent, unix_ms};

/// Pause between two looks. A look takes a snapshot of the data thread, as a status does.
pub(in crate::daemon) const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Thresholds of the lag.
const LEVELS: [&str; 2] = ["warn", "error"];

/// One group at one moment.
pub(in crate::daemon) struct GroupFacts<'a> {
    pub group: &'a str,
    pub peer: &'a str,
    pub is_primary: bool,
    /// On a secondary that in which its primary answers writers; `None`: not known yet.
    pub mode: Option<&'a str>,
    /// Of this node: key, value, and whether it was `set`.
    pub settings: Vec<(&'static str, String, bool)>,
    /// `None`: not known here.
    pub lag: Option<Duration>,
    pub warn: Option<Duration>,
    pub error: Option<Duration>,
    /// The lag is beyond a threshold, or back under it, for so long before that counts: one that goes up and down is one event, not one per look.
    pub hold_off: Duration,
}

/// What was seen before.
#[derive(Default)]
pub(in crate::daemon) struct GroupLooks {
    /// By group and key.
    values: BTreeMap<(String, String), String>,
    /// Thresholds that are passed, by group and level.
    missed: BTreeMap<(String, &'static str), MissedThreshold>,
    /// Since when the lag is beyond those for which that does not count yet.
    passed: BTreeMap<(String, &'static str), Instant>,
    /// What it comes to, by group, and since when.
    states: BTreeMap<String, (RpoState, Instant)>,
    /// Thresholds that the lag is watched for.
    watched: BTreeSet<(String, &'static str)>,
}

struct MissedThreshold {
    since: Instant,
    /// Since when the lag is under the threshold again.
    met_since: Option<Instant>,
}

impl GroupLooks {
    /// What was known when the log was opened: `values` by group and key, and since when thresholds are passed, by group and level, in
    /// milliseconds since 1970.
    pub fn new(values: &[((String, String), String)], missed: &[((String, String), u64)]) -> GroupLooks {
        let (now, now_unix_ms) = (Instant::now(), unix_ms());
        let missed = missed.iter().filter_map(|((group, level), since_unix_ms)| {
            let level = LEVELS.into_iter().find(|known| known == level)?;
            let ago = Duration::from_millis(now_unix_ms.saturating_sub(*since_unix_ms));
            let since = now.checked_sub(ago).unwrap_or(now);
            Some(((group.clone(), level), MissedThreshold { since, met_since: None }))
        });
        let (values, missed) = (values.iter().cloned().collect(), missed.collect());
        GroupLooks { values, missed, ..GroupLooks::default() }
    }

    /// How the group keeps to its thresholds.
    pub fn show(&self, group: &mut GroupView, now: Instant) {
        if let Some(rpo) = &mut group.rpo
            && let Some((state, lasts)) = self.state_of(&group.name, now)
        {
            (rpo.state, rpo.state_s) = (state, Some(lasts.as_secs_f64()));
        }
    }

    /// And for how long it has been so; `None`: it was not looked at yet.
    fn state_of(&self, group: &str, now: Instant) -> Option<(RpoState, Duration)> {
        self.states.get(group).map(|(state, since)| (state.clone(), now.saturating_duration_since(*since)))
    }

    /// What is new.
    pub fn look(&mut self, facts: &GroupFacts<'_>, now: Instant) -> Vec<NewEvent> {
        let mut events = Vec::new();
        // While a `set` is under way the data thread has the new mode already and the settings do not: why is known a moment later.
        let own_mode = facts.settings.iter().find(|(key, ..)| *key == "mode").map(|(_, mode, _)| mode.as_str());
        if let Some(mode) = facts.mode.filter(|mode| !facts.is_primary || own_mode == Some(*mode)) {
            let reason = match facts.is_primary {
                false => format!("{} serves in this mode", facts.peer),
                true => reason_of(facts.settings.iter().find(|(key, ..)| *key == "mode").is_some_and(|(.., set)| *set)),
            };
            events.extend(self.value(facts, EventKind::Mode, "mode", (mode, &reason)));
        }
        for (key, value, was_set) in &facts.settings {
            let reason = reason_of(*was_set);
            // A primary's own mode is the one above.
            match *key {
                "mode" if facts.is_primary => {}
                "policy" => events.extend(self.value(facts, EventKind::Policy, key, (value, &reason))),
                key => events.extend(self.value(facts, EventKind::Setting, key, (value, &reason))),
            }
        }
        for (level, threshold) in LEVELS.into_iter().zip([facts.warn, facts.error]) {
            events.extend(self.watches(facts, level, threshold));
            events.extend(self.lag(facts, level, threshold, now));
        }
        self.note_state(facts.group, now);
        events
    }

    fn note_state(&mut self, group: &str, now: Instant) {
        let missed = |level| self.missed.get(&(group.to_owned(), level)).map(|missed| missed.since);
        let is_watched = LEVELS.iter().any(|level| self.watched.contains(&(group.to_owned(), *level)));
        let (state, since) = match (missed("error"), missed("warn")) {
            (Some(since), _) => (RpoState::Error, since),
            (None, Some(since)) => (RpoState::Warn, since),
            (None, None) if is_watched => (RpoState::Met, now),
            (None, None) => (RpoState::Unwatched, now),
        };
        let is_new = self.states.get(group).is_none_or(|(before, _)| *before != state);
        if is_new {
            self.states.insert(group.to_owned(), (state, since));
        }
    }

    fn value(
        &mut self,
        facts: &GroupFacts<'_>,
        kind: EventKind,
        key: &str,
        (value, reason): (&str, &str),
    ) -> Option<NewEvent> {
        let is_setting = kind == EventKind::Setting;
        let name = if is_setting { format!("setting {key}") } else { key.to_owned() };
        let before = self.values.insert((facts.group.to_owned(), name), value.to_owned());
        // Of other settings only changes are worth a line.
        if before.as_deref() == Some(value) || (before.is_none() && is_setting) {
            return None;
        }
        let text = match &before {
            Some(before) => format!("{key}: {before} -> {value}: {reason}"),
            None => format!("{key}: {value}"),
        };
        let event = NewEvent::now(kind, text).of_group(facts.group);
        let event = if is_setting { event.with("key", key) } else { event };
        Some(event.with_known("from", before).with("to", value).with("reason", reason))
    }

    /// Whether the lag is watched: where it is not, that it is not beyond a threshold says nothing.
    fn watches(
        &mut self,
        facts: &GroupFacts<'_>,
        level: &'static str,
        threshold: Option<Duration>,
    ) -> Option<NewEvent> {
        let key = (facts.group.to_owned(), level);
        let event =
            |kind, text| NewEvent::now(kind, text).of_group(facts.group).of_peer(facts.peer).with("level", level);
        let why = match (threshold, facts.is_primary, facts.lag) {
            (None, ..) => format!("rpo.{level} is off"),
            (_, false, _) => "this node is the secondary, and knows no lag".to_owned(),
            (_, _, None) => format!("what the copy on {} lacks is not known", facts.peer),
            (Some(threshold), true, Some(_)) => {
                let text = format!("the lag is watched for rpo.{level} of {}", show_seconds(threshold.as_secs_f64()));
                let event = event(EventKind::RpoWatched, text).with("threshold_seconds", threshold.as_secs_f64());
                return self.watched.insert(key).then_some(event);
            }
        };
        let text = format!("the lag is not watched for rpo.{level} any more: {why}");
        self.watched.remove(&key).then(|| event(EventKind::RpoUnwatched, text).with("reason", why))
    }

    fn lag(
        &mut self,
        facts: &GroupFacts<'_>,
        level: &'static str,
        threshold: Option<Duration>,
        now: Instant,
    ) -> Option<NewEvent> {
        let key = (facts.group.to_owned(), level);
        // An alarm that nobody would ever end is ended here.
        let Some(threshold) = threshold else {
            return self.watched_no_more(facts, level, &format!("rpo.{level} is off"), now);
        };
        if !facts.is_primary {
            return self.watched_no_more(facts, level, "this node is the secondary, and knows no lag", now);
        }
        let lag = facts.lag?;
        let shown = |time: Duration| show_seconds(time.as_secs_f64());
        let event = |kind, text| {
            let (lag, threshold) = (lag.as_secs_f64(), threshold.as_secs_f64());
            let event = NewEvent::now(kind, text).of_group(facts.group).of_peer(facts.peer).with("level", level);
            event.with("lag_seconds", lag).with("threshold_seconds", threshold)
        };
        let is_missed = lag > threshold;
        let Some(missed) = self.missed.get_mut(&key) else {
            if !is_missed {
                self.passed.remove(&key);
                return None;
            }
            let since = *self.passed.entry(key.clone()).or_insert(now);
            let lasts = now.saturating_duration_since(since);
            if lasts < facts.hold_off {
                return None;
            }
            self.passed.remove(&key);
            self.missed.insert(key, MissedThreshold { since, met_since: None });
            let text =
                format!("the copy on {} is {} behind, rpo.{level} is {}", facts.peer, shown(lag), shown(threshold));
            return Some(event(EventKind::RpoMissed, text).with_ms("missed_ms", Some(lasts)));
        };
        if is_missed {
            missed.met_since = None;
            return None;
        }
        let met_since = *missed.met_since.get_or_insert(now);
        if now.saturating_duration_since(met_since) < facts.hold_off {
            return None;
        }
        let lasted = met_since.saturating_duration_since(missed.since);
        self.missed.remove(&key);
        let text = format!(
            "the copy on {} is within rpo.{level} of {} again, after {}",
            facts.peer,
            shown(threshold),
            shown(lasted)
        );
        Some(event(EventKind::RpoMet, text).with_ms("missed_ms", Some(lasted)))
    }

    /// Ends what was missed, if it was: whether it will be met is not known here.
    fn watched_no_more(
        &mut self,
        facts: &GroupFacts<'_>,
        level: &'static str,
        reason: &str,
        now: Instant,
    ) -> Option<NewEvent> {
        let key = (facts.group.to_owned(), level);
        self.passed.remove(&key);
        let missed = self.missed.remove(&key)?;
        let lasted = now.saturating_duration_since(missed.since);
        let text = format!("rpo.{level} is not watched here any more: {reason}");
        let event = NewEvent::now(EventKind::RpoMet, text).of_group(facts.group).of_peer(facts.peer);
        Some(event.with("level", level).with("reason", reason).with_ms("missed_ms", Some(lasted)))
    }
}

fn reason_of(was_set: bool) -> String {
    let reason = if was_set { "an operator set it" } else { "the configuration file says so" };
    reason.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(mode: &str, policy: &str, lag_s: Option<u64>) -> GroupFacts<'static> {
        let mode: &'static str = ["async", "sync"].into_iter().find(|word| *word == mode).expect("a mode");
        GroupFacts {
            group: "db",
            peer: "beta",
            is_primary: true,
            mode: Some(mode),
            settings: vec![
                ("mode", mode.to_owned(), true),
                ("policy", policy.to_owned(), false),
                ("hold", "30s".to_owned(), false),
            ],
            lag: lag_s.map(Duration::from_secs),
            warn: Some(Duration::from_secs(30)),
            error: None,
            hold_off: Duration::from_secs(5),
        }
    }

    fn told(events: Vec<NewEvent>) -> Vec<String> {
        events.iter().map(|event| format!("{} {}", event.kind().as_str(), event.text())).collect()
    }

    #[test]
    fn a_change_is_told_once_and_found_after_a_start_too() {
        let now = Instant::now();
        let mut looks = GroupLooks::default();
        assert_eq!(
            told(looks.look(&facts("async", "degrade", None), now)),
            ["mode mode: async", "policy policy: degrade"]
        );
        assert!(looks.look(&facts("async", "degrade", None), now).is_empty());
        let changed = told(looks.look(&facts("sync", "hold", None), now));
        assert_eq!(
            changed,
            [
                "mode mode: async -> sync: an operator set it",
                "policy policy: degrade -> hold: the configuration file says so"
            ]
        );
        let known = [(("db".to_owned(), "mode".to_owned()), "async".to_owned())];
        let after = told(GroupLooks::new(&known, &[]).look(&facts("sync", "hold", None), now));
        assert_eq!(after[0], "mode mode: async -> sync: an operator set it");
    }

    fn is_alarm(event: &NewEvent) -> bool {
        [EventKind::RpoMissed, EventKind::RpoMet].contains(&event.kind())
    }

    /// Where nobody watches no alarm does not mean that all is well.
    #[test]
    fn it_is_told_while_a_lag_is_watched() {
        let (now, mut looks) = (Instant::now(), GroupLooks::default());
        let mut at = |facts: &GroupFacts<'_>| {
            let events = looks.look(facts, now).into_iter();
            told(events.filter(|event| event.kind().as_str().ends_with("watched")).collect())
        };
        let known = |lag| facts("async", "degrade", lag);
        assert!(at(&known(None)).is_empty(), "there is no copy yet");
        assert_eq!(at(&known(Some(1))), ["rpo-watched the lag is watched for rpo.warn of 30 s"]);
        assert!(at(&known(Some(99))).is_empty());
        assert_eq!(
            at(&known(None)),
            ["rpo-unwatched the lag is not watched for rpo.warn any more: what the copy on beta lacks is not known"]
        );
        assert_eq!(at(&known(Some(1))).len(), 1);
        let ended = at(&GroupFacts { is_primary: false, ..known(None) });
        assert!(ended.len() == 1 && ended[0].contains("this node is the secondary"), "{ended:?}");
        assert!(at(&GroupFacts { is_primary: false, ..known(None) }).is_empty());
    }

    #[test]
    fn a_lag_that_comes_and_goes_is_missed_once() {
        let start = Instant::now();
        let mut looks = GroupLooks::default();
        let mut at = |seconds: u64, lag: Option<u64>| {
            let now = start + Duration::from_secs(seconds);
            let events = looks.look(&facts("async", "degrade", lag), now);
            told(events.into_iter().filter(is_alarm).collect())
        };
        assert!(at(0, Some(29)).is_empty());
        assert!(at(1, Some(31)).is_empty() && at(3, Some(29)).is_empty() && at(4, Some(31)).is_empty());
        assert!(at(8, Some(35)).is_empty(), "it came and went");
        assert_eq!(at(9, Some(36)), ["rpo-missed the copy on beta is 36 s behind, rpo.warn is 30 s"]);
        assert!(at(10, Some(60)).is_empty() && at(11, Some(10)).is_empty() && at(12, Some(31)).is_empty());
        assert!(at(14, Some(1)).is_empty() && at(18, Some(1)).is_empty());
        assert_eq!(at(19, Some(1)), ["rpo-met the copy on beta is within rpo.warn of 30 s again, after 10 s"]);
        assert!(at(30, Some(40)).is_empty() && at(35, Some(40)).len() == 1);
        assert!(at(37, None).is_empty() && at(50, Some(1)).is_empty());
        assert_eq!(at(55, Some(1)).len(), 1, "a lag that was not known for a while is met again all the same");
    }

    /// Which of it holds now stood nowhere: whoever asked had to find the last event.
    #[test]
    fn it_is_known_how_a_group_keeps_to_its_thresholds() {
        let start = Instant::now();
        let mut looks = GroupLooks::default();
        let mut at = |seconds: u64, lag: Option<u64>, is_primary: bool| {
            let now = start + Duration::from_secs(seconds);
            let facts =
                GroupFacts { error: Some(Duration::from_secs(60)), is_primary, ..facts("async", "degrade", lag) };
            looks.look(&facts, now);
            looks.state_of("db", now).map(|(state, since)| (state.as_str().to_owned(), since.as_secs()))
        };
        let is = |state: &str, seconds| Some((state.to_owned(), seconds));
        assert_eq!(at(0, None, true), is("unwatched", 0));
        assert_eq!(at(2, Some(1), true), is("met", 0));
        assert_eq!(at(10, Some(70), true), is("met", 8), "not for long enough");
        assert_eq!(at(16, Some(70), true), is("error", 6));
        assert_eq!(at(18, Some(40), true), is("error", 8));
        assert_eq!(at(23, Some(40), true), is("warn", 13), "since the lag passed it");
        assert_eq!(at(24, Some(1), true), is("warn", 14));
        assert_eq!(at(29, Some(1), true), is("met", 0));
        assert_eq!(at(30, None, false), is("unwatched", 0));
        assert_eq!(looks.state_of("web", start), None);
    }

    #[test]
    fn an_alarm_of_before_a_start_or_a_demotion_ends() {
        let now = Instant::now();
        let missed = |level: &str| (("db".to_owned(), level.to_owned()), unix_ms() - 60_000);
        let rpo = |looks: &mut GroupLooks, facts: &GroupFacts<'_>, seconds| {
            let events = looks.look(facts, now + Duration::from_secs(seconds)).into_iter();
            told(events.filter(is_alarm).collect())
        };
        let mut looks = GroupLooks::new(&[], &[missed("warn"), missed("error")]);
        let primary = facts("async", "degrade", Some(1));
        let ended = rpo(&mut looks, &primary, 0);
        assert_eq!(ended, ["rpo-met rpo.error is not watched here any more: rpo.error is off"]);
        let met = rpo(&mut looks, &primary, 5);
        assert!(met.len() == 1 && met[0].contains("within rpo.warn of 30 s again, after 1 min"), "{met:?}");
        let mut looks = GroupLooks::new(&[], &[missed("warn")]);
        assert!(rpo(&mut looks, &facts("async", "degrade", Some(31)), 0).is_empty(), "it was told before the start");
        let secondary = GroupFacts { is_primary: false, ..facts("async", "degrade", None) };
        let ended = rpo(&mut looks, &secondary, 2);
        assert!(ended.len() == 1 && ended[0].contains("this node is the secondary"), "{ended:?}");
        assert!(rpo(&mut looks, &secondary, 4).is_empty());
    }

    /// The data thread has a new mode before the file has it.
    #[test]
    fn a_mode_that_is_being_set_is_told_once_it_is_known_why() {
        let (now, mut looks) = (Instant::now(), GroupLooks::default());
        let file = |mode| {
            let mut facts = facts(mode, "degrade", None);
            facts.settings[0].2 = false;
            facts
        };
        looks.look(&file("async"), now);
        assert!(looks.look(&GroupFacts { mode: Some("sync"), ..file("async") }, now).is_empty());
        let set = told(looks.look(&facts("sync", "degrade", None), now));
        assert_eq!(set, ["mode mode: async -> sync: an operator set it"]);
    }
}
