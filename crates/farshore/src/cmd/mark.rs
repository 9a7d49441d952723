//! `mark list`, `mark drop`: the images kept besides the volumes' own.

use serde_json::json;

use super::reach::{self, report};
use crate::api::{ApiRequest, DroppedMark, MARKS_SCHEMA, MarkList, Reply};
use crate::args::{MarkDropArgs, MarkListArgs};
use crate::outcome::Exit;
use crate::outcome::{CommandOutcome, print};
use crate::show;

pub fn list(args: &MarkListArgs) -> CommandOutcome {
    let status = reach::status_any(&args.reach, Some(&args.group))?;
    let marks = status.groups.first().map(|group| group.marks.as_slice()).unwrap_or_default();
    let text = if args.json {
        format!("{}\n", json!(MarkList { schema: MARKS_SCHEMA, group: &args.group, marks }))
    } else {
        show::marks(marks)
    };
    print(&text)?;
    Ok(Exit::Done.into())
}

pub fn drop(args: &MarkDropArgs) -> CommandOutcome {
    let request = ApiRequest::DropMark { group: args.group.clone(), name: args.name.clone() };
    let reply = reach::ask_any(&args.reach, request)?;
    if args.json && matches!(reply, Reply::Ok { .. }) {
        let answer = DroppedMark { schema: MARKS_SCHEMA, group: &args.group, dropped: &args.name };
        print(&format!("{}\n", json!(answer)))?;
        return Ok(Exit::Done.into());
    }
    report(reply)
}
