//! Named marks: what there is, and how they are set, at one moment for several groups.

use engine::identity::Role;
use engine::{Command, CommandResult, RefusalCode};
use host::driver::Gone;

use super::{Desk, reply};
use crate::api::{ApiRequest, MarkState, MarksView, NamedMark, Reply};
use crate::daemon::view;

/// What a rollback point is called.
pub(in crate::daemon) fn is_rollback_point(name: &str) -> bool {
    name.starts_with("before-sync-")
}

/// A mark is locked, unlocked or dropped.
pub(super) async fn change(desk: &Desk, request: ApiRequest) -> Result<Reply, Gone> {
    let (group, command) = match request {
        ApiRequest::LockMark { group, name, locked } => (group, Command::LockMark { name, locked }),
        ApiRequest::DropMark { group, name, discard, .. } if is_rollback_point(&name) => {
            (group, Command::DropRollbackPoint { name, discard })
        }
        ApiRequest::DropMark { group, name, override_lock, .. } => (group, Command::DropMark { name, override_lock }),
        other => unreachable!("no change of a mark: {other:?}"),
    };
    desk.command(&group, command).await
}

pub(super) async fn list(desk: &Desk, group: &str) -> Result<Reply, Gone> {
    let id = match desk.find_taken_up(group) {
        Ok((id, _)) => id,
        Err(unknown) => return Ok(unknown),
    };
    let snapshot = desk.control.snapshot().await?;
    let found = snapshot.groups.iter().find(|found| found.status.id == id);
    let marks = found.map(|found| found.status.marks.iter().map(shown).collect()).unwrap_or_default();
    let node = desk.node.to_string();
    Ok(Reply::Marks(Box::new(MarksView { node, group: group.to_owned(), marks })))
}

fn shown(mark: &engine::status::Mark) -> NamedMark {
    NamedMark {
        name: mark.name.clone(),
        sequence: mark.position.seq.0,
        generation: mark.position.generation.to_string(),
        time: view::time(mark.wall),
        state: match (mark.there, mark.lost) {
            (true, _) => MarkState::OnBoth,
            (false, true) if mark.doubted => MarkState::NotKnown,
            (false, true) => MarkState::HereAlone,
            (false, false) => MarkState::OnItsWay,
        },
        locked: mark.locked,
        moment: (mark.moment > 0).then(|| units::exact::time_text(mark.moment)),
    }
}

/// All of the groups have it, or none.
pub(super) async fn set(desk: &Desk, groups: &[String], name: String) -> Result<Reply, Gone> {
    let mut found = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        match desk.find_taken_up(group) {
            Ok(_) if groups[..at].contains(group) => {}
            Ok(known) => found.push(known),
            Err(unknown) => return Ok(unknown),
        }
    }
    let mut elsewhere = Vec::new();
    for (_, group) in &found {
        let place = desk.place_in(group.name.as_str()).await;
        elsewhere
            .extend(place.filter(|place| place.role != Role::Primary).map(|place| (group.name.clone(), place.peer)));
    }
    if !elsewhere.is_empty() {
        let words: Vec<_> =
            elsewhere.iter().map(|(group, peer)| format!("{group} has its primary on node {peer}")).collect();
        let why = if found.len() > elsewhere.len() { ": marks of one moment are set on one node" } else { "" };
        return Ok(Reply::refused(RefusalCode::NotPrimary, format!("nothing is marked: {}{why}", words.join(", "))));
    }
    let results = desk.control.mark(found.iter().map(|(id, _)| *id).collect(), name).await?;
    let is_reason =
        |result: &CommandResult| matches!(result, CommandResult::Refused(refusal) if !refusal.text.is_empty());
    if let Some(at) = results.iter().position(is_reason) {
        return Ok(reply(&found[at].1, results[at].clone()));
    }
    let replies = found.iter().zip(results).map(|((_, group), result)| reply(group, result));
    let (mut messages, mut all_warnings, mut all_unchanged) = (Vec::new(), Vec::new(), true);
    for reply in replies {
        let Reply::Ok { message, warnings, unchanged, .. } = reply else { continue };
        messages.push(message);
        all_warnings.extend(warnings);
        all_unchanged &= unchanged;
    }
    let message = messages.join("; ");
    Ok(if all_unchanged { Reply::unchanged(message) } else { Reply::done(message, all_warnings) })
}
