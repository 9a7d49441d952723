//! What was typed, as values, and values as they are told.

use std::collections::BTreeMap;

use engine::VerifyOrder;
use settings::{Keyed, NodeName, keys};

use crate::api::refusals::DeskRefusal;
use crate::api::{ErrorCode, Reply};

/// `seed`: by which the run is known, and its sample drawn.
pub(super) fn typed_verify(
    (repair, sample_percent): (bool, Option<u8>),
    rate_bytes_per_s: Option<u64>,
    seed: u64,
) -> VerifyOrder {
    let sample_percent = sample_percent.unwrap_or(100).clamp(1, 100);
    VerifyOrder { rate_bytes_per_s, sample_percent, repair, entropy: seed, by_timer: false }
}

/// The keys of a `set` that was taken.
pub(super) fn keys_of<S: Keyed>(wanted: &BTreeMap<String, String>) -> Vec<keys::SettingKey<S>> {
    wanted.keys().filter_map(|name| keys::SettingKey::parse(name).ok()).collect()
}

pub(super) fn values_text<S: Keyed>(keys: &[keys::SettingKey<S>], effective: &S) -> String {
    keys.iter().map(|key| format!("{key} = {}", effective.text(*key))).collect::<Vec<_>>().join(", ")
}

/// What is for the machine where it is typed is done for no other.
pub(super) fn not_carried(node: &NodeName, what: &str) -> Reply {
    Reply::coded(ErrorCode::BadRequest, DeskRefusal::NotCarried, format!("node {node} {what}"))
}
