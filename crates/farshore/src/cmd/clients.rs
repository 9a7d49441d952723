//! `clients`: who uses the exports.

use super::reach;
use super::status::paint;
use crate::api::{ApiRequest, Reply};
use crate::args::ClientsArgs;
use crate::outcome::{CommandOutcome, Exit, print};
use crate::show;

pub fn run(args: &ClientsArgs) -> CommandOutcome {
    let list = match reach::ask_any(&args.reach, ApiRequest::Clients { group: args.group.clone() })? {
        Reply::Clients(list) => *list,
        Reply::Error { message, .. } => return Err(message.into()),
        other => return Err(reach::unexpected(&other)),
    };
    let text = match args.json {
        true => serde_json::to_string(&list).map_err(|error| error.to_string())? + "\n",
        false => show::clients::page(&list, &paint()),
    };
    print(&text)?;
    Ok(Exit::Done.into())
}
