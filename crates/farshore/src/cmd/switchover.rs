//! `switchover`: the primary of groups hands over to another node. Typed on the primary, what hangs on a group's target stops first.

use std::time::Duration;

use engine::limits::HANDOVER_LIMIT_MAX;
use units::exact::{parse_duration, show_seconds};

use super::demote::{self, RoleOrder};
use super::progress::WaitingFor;
use crate::api::{ApiRequest, SwitchoverOrder};
use crate::args::reach::ReachAny;
use crate::args::{HandoverArgs, SwitchoverArgs};
use crate::outcome::{CommandFailure, CommandOutcome};

/// What is asked of each group's primary.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// `None`: to the node that the configuration has as the primary.
    pub to: Option<String>,
    pub close_clients: bool,
    pub timeout_ms: Option<u64>,
    pub skip_hooks: bool,
}

impl Terms {
    /// # Errors
    /// The time limit is none.
    pub fn new(to: Option<String>, handover: &HandoverArgs) -> Result<Terms, CommandFailure> {
        let HandoverArgs { close_clients, skip_hooks, .. } = *handover;
        let timeout_ms = parse_timeout(handover.timeout.as_deref())?;
        Ok(Terms { to, close_clients, timeout_ms, skip_hooks })
    }
}

pub fn run(args: &SwitchoverArgs) -> CommandOutcome {
    let SwitchoverArgs { groups, to, handover } = args;
    let (reach, json, terms) = (&handover.reach, handover.json, Terms::new(Some(to.clone()), handover)?);
    demote::each("switchover", reach, groups, (json, |group: &str| order(reach, group, &terms, json)))
}

pub(super) fn order(reach: &ReachAny, group: &str, terms: &Terms, json: bool) -> RoleOrder {
    let Terms { to, close_clients, timeout_ms, skip_hooks } = terms.clone();
    let group = group.to_owned();
    let switchover = SwitchoverOrder { group, to, close_clients, timeout_ms, skip_hooks, ..SwitchoverOrder::default() };
    RoleOrder {
        reach: reach.clone(),
        request: ApiRequest::Switchover(switchover),
        waiting_for: WaitingFor::Switchover,
        json,
        what: "switchover",
    }
}

/// In milliseconds.
///
/// # Errors
/// A sentence: it is no time, or clients would be held for longer than anybody may.
fn parse_timeout(text: Option<&str>) -> Result<Option<u64>, CommandFailure> {
    let Some(text) = text else { return Ok(None) };
    let usage = |why: String| CommandFailure::usage(format!("--timeout: {why}"));
    let time = parse_duration(text).map_err(usage)?;
    if !(Duration::from_millis(1)..=HANDOVER_LIMIT_MAX).contains(&time) {
        let most = show_seconds(HANDOVER_LIMIT_MAX.as_secs_f64());
        return Err(usage(format!("{text} is out of bounds: clients are held for 1 ms to {most}")));
    }
    Ok(Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_held_for_a_minute_at_most() {
        for (text, ms) in
            [(Some("5s"), Some(5000)), (Some("250ms"), Some(250)), (Some("60s"), Some(60_000)), (None, None)]
        {
            assert_eq!(parse_timeout(text).expect("in bounds"), ms, "{text:?}");
        }
        for text in ["0s", "61s", "soon"] {
            let failure = parse_timeout(Some(text)).expect_err(text);
            assert!(failure.message.starts_with("--timeout: "), "{}", failure.message);
        }
    }
}
