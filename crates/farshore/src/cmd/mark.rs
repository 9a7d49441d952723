//! `mark list`, `mark drop`: the images kept besides the volumes' own.

use serde_json::json;

use super::answers::Answers;
use super::reach::{self, report};
use crate::api::{ApiRequest, DroppedMark, MARKS_SCHEMA, MarkList, Reply};
use crate::args::{MarkDropArgs, MarkListArgs};
use crate::outcome::{CommandOutcome, Exit, print, warn};
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
    let (group, name) = (args.group.clone(), args.name.clone());
    let request = ApiRequest::DropMark { group, name, discard: args.discard };
    match reach::ask_any(&args.reach, request) {
        Ok(Reply::Ok { warnings, unchanged, operation, .. }) if args.json => {
            let dropped = (!unchanged).then_some(args.name.as_str());
            let (schema, group, operation) = (MARKS_SCHEMA, args.group.as_str(), operation.as_deref());
            print(&format!("{}\n", json!(DroppedMark { schema, group, dropped, operation })))?;
            warnings.iter().for_each(warn);
            let exit = if warnings.is_empty() { Exit::Done } else { Exit::Warning };
            Ok(exit.into())
        }
        answer if args.json => {
            let mut answers = Answers::new("mark drop", true);
            answers.add(&args.group, answer)?;
            answers.finish()
        }
        answer => report(answer?),
    }
}
