//! The two small files: fingerprints and overrides.

use std::path::Path;

use serde_json::json;

use super::Report;
use crate::daemon::seals;
use crate::overrides::Overrides;

pub(super) fn fingerprints(bytes: &[u8]) -> Report {
    let seals = match seals::decode(bytes) {
        Ok(seals) => seals,
        Err(damage) => {
            return Report::failed(format!(
                "{damage:#}; the daemon trusts none of it and treats every volume as changed"
            ));
        }
    };
    let mut report = Report::default();
    for (name, seal) in &seals {
        report.line(&format!("volume {name}"), seal);
    }
    let entry = |(name, seal): (&String, &host::disk::fingerprint::Fingerprint)| json!({ "volume": name, "size_bytes": seal.size_bytes(), "words": seal.to_string() });
    report.facts = json!({ "volumes": seals.iter().map(entry).collect::<Vec<_>>() });
    report
}

pub(super) fn overrides(bytes: &[u8], file: &Path) -> Report {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return Report::failed(format!("byte {} is not text (UTF-8)", error.valid_up_to())),
    };
    let overrides = match Overrides::parse(file, text) {
        Ok(overrides) => overrides,
        Err(problems) => return Report::failed(problems.to_string()),
    };
    let mut report = Report::default();
    for (group, key, value) in overrides.entries() {
        report.line(&format!("group {group}"), format!("{} = {value}", key.as_str()));
    }
    let entry = |(group, key, value): (&crate::config::GroupName, crate::config::Key, &str)| json!({ "group": group.as_str(), "key": key.as_str(), "value": value });
    report.facts = json!({ "overrides": overrides.entries().map(entry).collect::<Vec<_>>() });
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_told_with_its_place() {
        let failure = |report: Report| report.failure.unwrap_or_default();
        assert!(failure(fingerprints(b"\x04ab")).contains("cut short in a name"));
        assert!(failure(overrides(b"[g]\n\xff", Path::new("o"))).contains("byte 4"));
        assert!(failure(overrides(b"[g]\nmdoe = \"sync\"\n", Path::new("o"))).contains("mdoe"));
        let sound = overrides(b"[g]\nmode = \"sync\"\n", Path::new("o"));
        assert_eq!(sound.facts["overrides"][0]["value"], "sync");
    }
}
