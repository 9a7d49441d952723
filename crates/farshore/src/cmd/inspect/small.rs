//! The small files: fingerprints and overrides; and the history of a link.

use std::path::Path;

use host::link::history;
use serde_json::json;
use settings::{GroupOverrides, LinkOverrides};
use units::exact::time_text;

use super::report::InspectReport;
use crate::daemon::seals;

pub(super) fn fingerprints(bytes: &[u8]) -> InspectReport {
    let seals = match seals::decode(bytes) {
        Ok(seals) => seals,
        Err(damage) => {
            return InspectReport::failed(format!(
                "{damage:#}; the daemon trusts none of it and treats every volume as changed"
            ));
        }
    };
    let mut report = InspectReport::default();
    report.line("left by", format!("run {}; they count until the next one is recorded", seals.run.0));
    for (name, seal) in &seals.volumes {
        report.line(&format!("volume {name}"), seal);
    }
    let entry = |(name, seal): (&String, &host::disk::fingerprint::Fingerprint)| json!({ "volume": name, "size_bytes": seal.size_bytes(), "words": seal.to_string() });
    report.facts = json!({ "run": seals.run.0, "volumes": seals.volumes.iter().map(entry).collect::<Vec<_>>() });
    report
}

fn as_text(bytes: &[u8]) -> Result<&str, InspectReport> {
    std::str::from_utf8(bytes)
        .map_err(|error| InspectReport::failed(format!("byte {} is not text (UTF-8)", error.valid_up_to())))
}

pub(super) fn link_overrides(bytes: &[u8], file: &Path) -> InspectReport {
    let text = match as_text(bytes) {
        Ok(text) => text,
        Err(failed) => return failed,
    };
    let overrides = match LinkOverrides::parse(file, text) {
        Ok(overrides) => overrides,
        Err(problems) => return InspectReport::failed(problems.to_string()),
    };
    let mut report = InspectReport::default();
    for (key, value) in overrides.entries() {
        report.line("link", format!("{key} = {value}"));
    }
    let entry = |(key, value): (settings::LinkKey, &str)| json!({ "key": key.as_str(), "value": value });
    report.facts = json!({ "overrides": overrides.entries().map(entry).collect::<Vec<_>>() });
    report
}

pub(super) fn link_history(bytes: &[u8]) -> InspectReport {
    let records = match history::parse(bytes, None) {
        Ok(records) => records,
        Err(error) => return InspectReport::failed(format!("{error}; the daemon puts it aside and begins anew")),
    };
    let mut report = InspectReport::default();
    let moment = |record: Option<&history::MinuteRecord>| {
        record.map(|record| time_text(record.unix_ms.saturating_mul(1_000_000)))
    };
    let (first, last) = (moment(records.list.first()), moment(records.list.last()));
    report.line("records", records.list.len());
    if let (Some(first), Some(last)) = (&first, &last) {
        report.line("from, to", format!("{first}, {last}"));
    }
    if records.damaged > 0 {
        report.warnings.push(format!("{} records are damaged; they are left out", records.damaged));
    }
    report.facts = json!({ "records": records.list.len(), "damaged": records.damaged, "first": first, "last": last });
    report
}

pub(super) fn overrides(bytes: &[u8], file: &Path) -> InspectReport {
    let text = match as_text(bytes) {
        Ok(text) => text,
        Err(failed) => return failed,
    };
    let overrides = match GroupOverrides::parse(file, text) {
        Ok(overrides) => overrides,
        Err(problems) => return InspectReport::failed(problems.to_string()),
    };
    let mut report = InspectReport::default();
    for (group, key, value) in overrides.entries() {
        report.line(&format!("group {group}"), format!("{} = {value}", key.as_str()));
    }
    let entry = |(group, key, value): (&settings::GroupName, settings::GroupKey, &str)| json!({ "group": group.as_str(), "key": key.as_str(), "value": value });
    report.facts = json!({ "overrides": overrides.entries().map(entry).collect::<Vec<_>>() });
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_reported_with_its_position() {
        let failure = |report: InspectReport| report.failure.unwrap_or_default();
        assert!(failure(fingerprints(b"FSHSEALS")).contains("cut short in its head"));
        assert!(failure(overrides(b"[g]\n\xff", Path::new("o"))).contains("byte 4"));
        assert!(failure(overrides(b"[g]\nmdoe = \"sync\"\n", Path::new("o"))).contains("mdoe"));
        assert!(failure(link_overrides(b"[link]\nbufers = 1\n", Path::new("l"))).contains("bufers"));
        assert!(failure(link_history(b"FSHRLINK")).contains("missing or damaged"));
        let sound = link_overrides(b"[link]\nbuffers = \"4MiB\"\n", Path::new("l"));
        assert_eq!(sound.facts["overrides"][0]["value"], "4MiB");
        let record = history::MinuteRecord { unix_ms: 1, ..history::MinuteRecord::default() };
        let sound = link_history(&history::example(7, &[record; 3]));
        assert_eq!((&sound.facts["records"], sound.warnings.len()), (&3.into(), 0));
        let sound = overrides(b"[g]\nmode = \"sync\"\n", Path::new("o"));
        assert_eq!(sound.facts["overrides"][0]["value"], "sync");
    }
}
