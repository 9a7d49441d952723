//! `mark list`, `mark drop`: the images kept besides the volumes' own.

use super::reach::{self, report};
use crate::api::{ApiRequest, MARKS_SCHEMA, Reply};
use crate::args::{MarkDropArgs, MarkListArgs};
use crate::outcome::Exit;
use crate::outcome::{CommandOutcome, print};
use crate::show;

pub fn list(args: &MarkListArgs) -> CommandOutcome {
    let status = reach::status_any(&args.reach, Some(&args.group))?;
    let marks = status.groups.first().map(|group| group.marks.as_slice()).unwrap_or_default();
    let text = if args.json {
        let object = serde_json::json!({ "schema": MARKS_SCHEMA, "group": args.group, "marks": marks });
        format!("{object}\n")
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
        let object = serde_json::json!({ "schema": MARKS_SCHEMA, "group": args.group, "dropped": args.name });
        print(&format!("{object}\n"))?;
        return Ok(Exit::Done.into());
    }
    report(reply)
}
