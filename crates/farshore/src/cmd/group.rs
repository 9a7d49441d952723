//! `group detach` and `group attach`: a group goes on without a volume whose disk is dead, and takes it back.

use super::answers::Answers;
use super::progress::WaitingFor;
use super::reach;
use crate::api::ApiRequest;
use crate::args::group::{GroupAttachArgs, GroupDetachArgs};
use crate::args::reach::ReachAny;
use crate::outcome::CommandOutcome;

pub fn detach(args: &GroupDetachArgs) -> CommandOutcome {
    let (group, volume) = (args.group.clone(), args.volume.clone());
    let (close_clients, force) = (args.close_clients, args.force);
    let request = ApiRequest::DetachVolume { group, volume, close_clients, force };
    order("group detach", &args.group, request, (&args.reach, args.json))
}

pub fn attach(args: &GroupAttachArgs) -> CommandOutcome {
    let request = ApiRequest::AttachVolume { group: args.group.clone(), volume: args.volume.clone() };
    order("group attach", &args.group, request, (&args.reach, args.json))
}

/// The group starts anew for it, and may read back a journal.
fn order(verb: &'static str, group: &str, request: ApiRequest, (reach, json): (&ReachAny, bool)) -> CommandOutcome {
    let mut answers = Answers::new(verb, json);
    answers.add(group, reach::order_watched(reach, group, request, WaitingFor::State))?;
    answers.finish()
}
