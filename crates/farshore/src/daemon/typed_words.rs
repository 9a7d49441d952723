//! An order as it is typed, for whoever is to type it elsewhere.

use super::events::commands::{switchover_words, verify_words};
use crate::api::ApiRequest;

/// An order as it is typed.
pub(super) fn typed(order: &ApiRequest) -> String {
    let flag = |is_set: bool, word: &'static str| if is_set { word } else { "" };
    let words = match order {
        ApiRequest::Logging { group, volume } => format!("logging {group}{}", volume_words(volume.as_deref())),
        ApiRequest::Sync { group, full, no_compare, volume, .. } => {
            let (full, no_compare) = (flag(*full, " --full"), flag(*no_compare, " --no-compare"));
            format!("sync {group}{full}{no_compare}{}", volume_words(volume.as_deref()))
        }
        ApiRequest::Demote { group, close_clients, skip_hooks } => {
            format!("demote {group}{}{}", flag(*close_clients, " --close-clients"), flag(*skip_hooks, " --skip-hooks"))
        }
        ApiRequest::Promote { group, force, in_window, skip_hooks, .. } => {
            let how = if *in_window { " --in-window" } else { flag(*force, " --force") };
            format!("promote {group}{how}{}", flag(*skip_hooks, " --skip-hooks"))
        }
        ApiRequest::Reset { group } => format!("reset {group}"),
        ApiRequest::DetachVolume { group, volume, close_clients, force } => {
            let (close, force) = (flag(*close_clients, " --close-clients"), flag(*force, " --force"));
            format!("group detach {group} {volume}{close}{force}")
        }
        ApiRequest::AttachVolume { group, volume } => format!("group attach {group} {volume}"),
        ApiRequest::Switchover(order) => {
            let verb = if order.to.is_some() { "switchover" } else { "failback" };
            format!("{verb} {} {}", order.group, switchover_words(order)).trim_end().to_owned()
        }
        ApiRequest::Keep { group, discard, .. } => {
            format!("resolve {group} --keep NODE{}", flag(*discard, " --discard"))
        }
        ApiRequest::TakeBack { group, .. } => format!("demote {group}"),
        ApiRequest::Yield { group, .. } => format!("demote {group}"),
        ApiRequest::Mark { groups, name } => format!("mark {} {name}", groups.join(" ")),
        ApiRequest::LockMark { group, name, locked } => {
            format!("mark {} {group} {name}", if *locked { "lock" } else { "unlock" })
        }
        ApiRequest::DropMark { group, name, discard, override_lock } => {
            let (discard, lock) = (flag(*discard, " --discard"), flag(*override_lock, " --override-lock"));
            format!("mark drop {group} {name}{discard}{lock}")
        }
        ApiRequest::Verify { group, .. } => format!("verify {group} {}", verify_words(order)).trim_end().to_owned(),
        ApiRequest::ResetPeaks { group } => format!("queue {group} --reset-peaks"),
        ApiRequest::VerifyStop { group } => format!("verify {group} --stop"),
        ApiRequest::AssumeEqual { group } => format!("assume-equal {group}"),
        ApiRequest::Set { group, settings } => {
            settings.iter().fold(format!("set {group}"), |text, (key, value)| text + &format!(" '{key}={value}'"))
        }
        other => return serde_json::to_string(other).unwrap_or_default(),
    };
    format!("farshore {words}")
}

fn volume_words(volume: Option<&str>) -> String {
    volume.map(|volume| format!(" --volume {volume}")).unwrap_or_default()
}
