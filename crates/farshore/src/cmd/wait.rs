//! `wait`: until operations have ended, or until groups are in a state, they cannot get there any more, or time is up.
//!
//! An operation is asked about by its name, at the node that the name tells. Of one that a daemon before this one was at, the log of events
//! has the answer, if there was one.

use std::time::{Duration, Instant};

use engine::RefusalCode;
use serde_json::Value;
use settings::limits::PEER_EVENTS_MAX;
use settings::suggest;
use toolkit::screen::clean;

use super::answers::Answers;
use super::progress::{ProgressView, WaitingFor, WorkStage};
use super::reach::{self, WatchStep};
use crate::api::refusals::DeskRefusal;
use crate::api::{
    AnswerView, ApiRequest, GroupState, OPERATION_SCHEMA, OperationId, OperationState, OperationView, RefusalView,
    Reply, Retry,
};
use crate::args::WaitArgs;
use crate::args::reach::ReachAny;
use crate::events::EventRecord;
use crate::outcome::{CommandFailure, CommandOutcome, Exit};
use crate::show::explained;

/// Of a log of events the newest ones are looked through, so many, and pages of it until it has no more.
const NEWEST_EVENTS: usize = 1000;
const EVENT_PAGES_MAX: usize = 64;

pub fn run(args: &WaitArgs) -> CommandOutcome {
    let timeout = args.timeout.as_deref().map(units::exact::parse_duration).transpose();
    let timeout: Option<Duration> = timeout.map_err(|reason| CommandFailure::usage(format!("--timeout: {reason}")))?;
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    match &args.state {
        Some(state) => for_state(args, &parse_state(state)?, deadline),
        None => for_operations(args, deadline),
    }
}

// ---- a state -------------------------------------------------------------------------------------------------------

fn for_state(args: &WaitArgs, wanted: &GroupState, deadline: Option<Instant>) -> CommandOutcome {
    let mut answers = Answers::new("wait", args.json);
    for group in answers.targets(&args.reach, &args.targets, args.all)? {
        let reached = until_state(&args.reach, &group, wanted, deadline);
        answers.add(&group, reached.map(|()| Reply::ok(format!("{group} is {wanted}"))))?;
    }
    answers.finish()
}

fn until_state(
    reach: &ReachAny,
    group: &str,
    wanted: &GroupState,
    deadline: Option<Instant>,
) -> Result<(), CommandFailure> {
    let mut last = String::new();
    let mut view = ProgressView::new(group);
    let found = reach::watch(reach, group, deadline, |group| {
        last = explained(group);
        // What stands there until the start is over is no state yet.
        if group.state == *wanted && !(group.starting && *wanted == GroupState::Logging) {
            Ok(WatchStep::Enough(()))
        } else if group.state == GroupState::Failed {
            let why = format!("{} will not reach {wanted}: it {last}", group.name);
            Err(CommandFailure::from(why).because(RefusalCode::GroupFailed))
        } else {
            view.show(&WorkStage::of(group, WaitingFor::State));
            Ok(WatchStep::Again)
        }
    });
    // Before anything else is said.
    drop(view);
    found?.ok_or_else(|| {
        let message = format!("{group} is not {wanted} in time: it {last}");
        CommandFailure::from(message).because(DeskRefusal::TimeIsUp)
    })
}

fn parse_state(text: &str) -> Result<GroupState, CommandFailure> {
    match GroupState::from(text) {
        GroupState::Other(word) => Err(CommandFailure::usage(format!(
            "{word:?} is not a state{}; choose one of {}",
            suggest::hint(&word, GroupState::WORDS.iter().copied()),
            suggest::list(GroupState::WORDS.iter().copied()),
        ))),
        state => Ok(state),
    }
}

// ---- operations ----------------------------------------------------------------------------------------------------

fn for_operations(args: &WaitArgs, deadline: Option<Instant>) -> CommandOutcome {
    let ids = args.targets.iter().map(|text| parse_operation(text)).collect::<Result<Vec<_>, _>>()?;
    let mut answers = Answers::new("wait", args.json);
    for id in ids {
        match until_ended(&args.reach, &id, deadline) {
            Ok(view) => {
                let (answer, exit) = ended(view);
                answers.push(answer, exit);
            }
            Err(failure) => {
                let state = match failure.code() == Some(DeskRefusal::TimeIsUp.word()) {
                    true => OperationState::Running,
                    false => OperationState::Unknown,
                };
                let refusal = failure.cause.map_or_else(|| DeskRefusal::Failed.into(), |cause| cause.refusal);
                let view = OperationView { state, message: Some(failure.message), ..unknown(&id, refusal) };
                answers.push(ended(view).0, failure.exit);
            }
        }
    }
    answers.finish()
}

fn parse_operation(text: &str) -> Result<OperationId, CommandFailure> {
    OperationId::parse(text).ok_or_else(|| {
        CommandFailure::usage(format!(
            "{text:?} is no operation, whose names are such as alpha-5f3a9c1e07b2-12; to wait for a state of a group, name that with \
             --for"
        ))
    })
}

/// How the operation ended.
///
/// # Errors
/// A sentence: it is not known, or time is up.
fn until_ended(reach: &ReachAny, id: &OperationId, deadline: Option<Instant>) -> Result<OperationView, CommandFailure> {
    // Where it is done its name tells.
    let reach = ReachAny { on: reach.on.clone().or_else(|| Some(id.node.clone())), ..reach.clone() };
    let mut view = ProgressView::new(&id.to_string());
    let ended = reach::watch_operation(&reach, &id.to_string(), deadline, |operation| {
        let waiting_for = match operation.verb.as_str() {
            "promote" => WaitingFor::Promotion,
            "demote" => WaitingFor::Demotion,
            "switchover" => WaitingFor::Switchover,
            _ => WaitingFor::State,
        };
        if let Some(group) = operation.group.as_deref().and_then(|group| reach::glance(&reach, group)) {
            view.show(&WorkStage::of(&group, waiting_for));
        }
        Ok(())
    });
    drop(view);
    match ended? {
        reach::Watched::Ended(operation) => Ok(*operation),
        reach::Watched::TimeIsUp => {
            let message = format!("operation {id} has not ended in time, and goes on");
            Err(CommandFailure::from(message).because(DeskRefusal::TimeIsUp))
        }
        reach::Watched::CutOff(why) => Ok(match recorded(&reach, id)? {
            Some(event) => of_event(id, &event),
            None => OperationView { message: Some(why), ..unknown(id, DeskRefusal::OperationCutOff.into()) },
        }),
    }
}

fn unknown(id: &OperationId, refusal: RefusalView) -> OperationView {
    OperationView {
        schema: OPERATION_SCHEMA.to_owned(),
        node: id.node.clone(),
        id: id.to_string(),
        verb: "wait".to_owned(),
        group: None,
        begun_unix_ms: 0,
        state: OperationState::Unknown,
        message: None,
        warnings: Vec::new(),
        refusal: Some(refusal),
    }
}

/// What the log of events has of the answer that the operation got.
fn recorded(reach: &ReachAny, id: &OperationId) -> Result<Option<EventRecord>, CommandFailure> {
    let (wanted, mut after, mut first) = (id.to_string(), 0, true);
    for _ in 0..EVENT_PAGES_MAX {
        // A peer's page comes over a line that may be slow.
        let (limit, last) = if first { (None, Some(NEWEST_EVENTS)) } else { (Some(PEER_EVENTS_MAX), None) };
        let request = ApiRequest::Events { group: None, since_unix_ms: 0, after, limit, last };
        let page = match reach::ask_any(reach, request)? {
            Reply::Events(page) => *page,
            Reply::Error { message, code, refusal, .. } => {
                return Err(CommandFailure::refused(message, &code, refusal));
            }
            other => return Err(reach::unexpected(&other)),
        };
        let named = |event: &EventRecord| event.fields.get("operation").and_then(Value::as_str) == Some(&*wanted);
        if let Some(found) = page.events.into_iter().find(named) {
            return Ok(Some(found));
        }
        if !page.more || page.position <= after {
            break;
        }
        (after, first) = (page.position, false);
    }
    Ok(None)
}

/// The operation as its event tells of it. That of a sync or of a verify tells that it began.
fn of_event(id: &OperationId, event: &EventRecord) -> OperationView {
    let field = |name: &str| event.fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let (verb, answer, result) = (field("command"), field("answer"), field("result"));
    let goes_on = matches!(verb, "sync" | "verify") && !field("arguments").split(' ').any(|word| word == "--stop");
    let begun = goes_on && matches!(result, "done" | "warning");
    let cut_off = RefusalView::of_lost(DeskRefusal::OperationCutOff, verb, field("arguments"));
    // A daemon of an older version has written none.
    let (code, retry) = (field("refusal"), Retry::from(field("retry")));
    let told =
        (!code.is_empty()).then(|| RefusalView { code: code.to_owned(), retry, operation: None, dead_volumes: None });
    let (state, refusal) = match result {
        _ if begun => (OperationState::Unknown, Some(cut_off.clone())),
        "done" | "warning" => (OperationState::Done, None),
        "unchanged" => (OperationState::Unchanged, None),
        "refused" => (OperationState::Refused, Some(told.unwrap_or_else(|| DeskRefusal::Refused.into()))),
        "failed" => (OperationState::Failed, Some(told.unwrap_or_else(|| DeskRefusal::Failed.into()))),
        _ => (OperationState::Unknown, Some(told.unwrap_or_else(|| cut_off.clone()))),
    };
    let message = match begun {
        true => format!(
            "{answer}; then the daemon of node {} was started anew, and whether this {verb} came to its end is not on record: see \
             'farshore status'",
            id.node
        ),
        false => answer.to_owned(),
    };
    let warnings = if begun { Vec::new() } else { warnings(event, result == "warning", answer) };
    OperationView {
        verb: verb.to_owned(),
        group: event.group.clone(),
        begun_unix_ms: event.time_unix_ms,
        state,
        message: Some(message),
        warnings,
        refusal,
        ..unknown(id, cut_off)
    }
}

/// What the answer warned of. Of a daemon of an older version there is the whole answer alone.
fn warnings(event: &EventRecord, is_one: bool, answer: &str) -> Vec<String> {
    match event.fields.get("warnings").and_then(Value::as_array) {
        Some(list) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        None if is_one => vec![answer.to_owned()],
        None => Vec::new(),
    }
}

/// The answer that is shown of an operation, and how the command ends with it.
fn ended(view: OperationView) -> (AnswerView, Exit) {
    let OperationView { node, id, verb, group, state, message, warnings, refusal, .. } = view;
    let exit = match state {
        OperationState::Done | OperationState::Unchanged if warnings.is_empty() && refusal.is_none() => Exit::Done,
        OperationState::Done | OperationState::Unchanged => Exit::Warning,
        _ => Exit::Failed,
    };
    let message = message.unwrap_or_else(|| format!("operation {} is {state}", clean(&id)));
    let (operation, done_on) = (Some(id), Some(node));
    let may_be_missing = None;
    (AnswerView { verb, group, done_on, operation, result: state, message, warnings, refusal, may_be_missing }, exit)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(command: &str, result: &str) -> EventRecord {
        let head = r#""schema":"s","number":7,"time_unix_ms":5,"node":"a","group":"db","kind":"command","text":"t""#;
        let text = format!(r#"{{{head},"command":"{command}","result":"{result}","answer":"db: so"}}"#);
        serde_json::from_str(&text).expect("an event")
    }

    #[test]
    fn what_a_daemon_before_this_one_did_is_told_by_its_events() {
        let id = OperationId::parse("alpha-0f-7").expect("a name");
        for (command, result, state, exit) in [
            ("promote", "done", OperationState::Done, Exit::Done),
            ("promote", "warning", OperationState::Done, Exit::Warning),
            ("demote", "unchanged", OperationState::Unchanged, Exit::Done),
            ("demote", "refused", OperationState::Refused, Exit::Failed),
            ("demote", "unknown", OperationState::Unknown, Exit::Failed),
            // That it began is not that it ended.
            ("sync", "done", OperationState::Unknown, Exit::Failed),
            ("sync", "unchanged", OperationState::Unchanged, Exit::Done),
            ("verify", "done", OperationState::Unknown, Exit::Failed),
        ] {
            let view = of_event(&id, &event(command, result));
            assert_eq!((&view.state, view.group.as_deref()), (&state, Some("db")), "{command} {result}");
            assert_eq!(view.refusal.is_some(), exit == Exit::Failed, "{command} {result}");
            assert_eq!(ended(view).1, exit, "{command} {result}");
        }
    }

    fn with(mut event: EventRecord, fields: &[(&str, Value)]) -> EventRecord {
        event.fields.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        event
    }

    /// A demotion that was repeated, and warned that not everything had arrived, ended with 0.
    #[test]
    fn warnings_outlive_the_daemon_also_where_nothing_was_changed() {
        let id = OperationId::parse("alpha-0f-7").expect("a name");
        let repeated = with(event("demote", "unchanged"), &[("warnings", json!(["64 KiB here may differ"]))]);
        let view = of_event(&id, &repeated);
        assert_eq!((&view.state, view.warnings.len()), (&OperationState::Unchanged, 1));
        assert_eq!(ended(view).1, Exit::Warning);
        let began = with(event("sync", "warning"), &[("warnings", json!(["the peer is away"]))]);
        assert!(of_event(&id, &began).warnings.is_empty(), "they are of what stood in its way");
    }

    /// Each refusal of before was `refused`, never, and each sync could be typed again.
    #[test]
    fn refusals_outlive_the_daemon() {
        let id = OperationId::parse("alpha-0f-7").expect("a name");
        let told = |event: EventRecord| {
            let refusal = of_event(&id, &event).refusal.expect("it says why");
            (refusal.code, refusal.retry)
        };
        let coded = |result: &str, code: &str, retry: &str| {
            with(event("demote", result), &[("refusal", json!(code)), ("retry", json!(retry))])
        };
        for (event, code, retry) in [
            (coded("refused", "clients-attached", "later"), "clients-attached", Retry::Later),
            (coded("failed", "role-recorded", "never"), "role-recorded", Retry::Never),
            (coded("unknown", "record-unknown", "never"), "record-unknown", Retry::Never),
            (event("demote", "refused"), "refused", Retry::Never),
            (event("demote", "unknown"), "operation-cut-off", Retry::Later),
            (with(event("promote", "unknown"), &[("arguments", json!("--force"))]), "operation-cut-off", Retry::Never),
            (event("sync", "done"), "operation-cut-off", Retry::Never),
        ] {
            assert_eq!(told(event), (code.to_owned(), retry));
        }
    }

    #[test]
    fn a_group_is_no_operation() {
        let failure = parse_operation("db").expect_err("a group");
        assert!(failure.exit == Exit::Usage && failure.message.contains("--for"), "{}", failure.message);
    }
}
