//! Both slots of a superblock, which one counts, and every field in words.

use engine::Position;
use engine::cell::BYTES;
use engine::superblock::{Rejected, Superblock};
use serde_json::{Value, json};

use super::Report;
use crate::api::time_text;

pub(super) type Slots = [Result<Superblock, Rejected>; 4];

pub(super) fn slots(bytes: &[u8]) -> Slots {
    [0, 1, 2, 3]
        .map(|slot| bytes.get(slot * BYTES..(slot + 1) * BYTES).map_or(Err(Rejected::Damaged), Superblock::decode))
}

/// The newer whole slot, unless a newer version of Farshore wrote the other one.
pub(super) fn counting(slots: &Slots) -> Option<Superblock> {
    if slots.iter().any(|slot| matches!(slot, Err(Rejected::VersionUnknown(_)))) {
        return None;
    }
    slots.iter().filter_map(|slot| slot.clone().ok()).max_by_key(|slot| slot.update)
}

pub(super) fn report(bytes: &[u8]) -> Report {
    let slots = slots(bytes);
    let chosen = counting(&slots);
    let mut report = Report::default();
    for (number, slot) in slots.iter().enumerate() {
        let counts = chosen.is_some() && slot.clone().ok() == chosen;
        let words = match slot {
            Ok(found) => {
                format!("update {}{}", found.update, if counts { ": the newer whole one, it counts" } else { "" })
            }
            Err(rejected) => rejected_words(*rejected),
        };
        report.line(&format!("slot {number}, byte {}", number * BYTES), words);
        if let Err(Rejected::Damaged) = slot {
            report.warnings.push(format!(
                "slot {number} (bytes {} to {}) is damaged; a crash during an update leaves this, and the next update writes it anew",
                number * BYTES,
                (number + 1) * BYTES - 1
            ));
        }
    }
    report.facts = json!({
        "slots": slots.iter().map(slot_facts).collect::<Vec<_>>(),
        "counts": chosen.clone().map(|chosen| slots.iter().position(|slot| slot.as_ref() == Ok(&chosen))),
    });
    match chosen {
        Some(chosen) => describe(&mut report, &chosen),
        None => report.failure = unusable(&slots),
    }
    report
}

/// Why no slot counts; nothing when the group is simply new.
fn unusable(slots: &Slots) -> Option<String> {
    if let Some(Err(Rejected::VersionUnknown(version))) =
        slots.iter().find(|slot| matches!(slot, Err(Rejected::VersionUnknown(_))))
    {
        return Some(format!(
            "a newer farshore wrote it (format version {version}, this program knows {}); look at it with that one",
            engine::superblock::VERSION
        ));
    }
    match slots {
        [Err(Rejected::Blank), Err(Rejected::Blank), ..] => None,
        _ => Some(
            "neither slot is whole, so the group's identity is lost: the daemon refuses to start the group; restore the \
             file, or remove the group's state directory and sync in full from the other node"
                .into(),
        ),
    }
}

fn rejected_words(rejected: Rejected) -> String {
    match rejected {
        Rejected::Blank => "blank: never written".into(),
        Rejected::Damaged => "damaged: its checksum or its mark is wrong".into(),
        Rejected::VersionUnknown(version) => format!("of format version {version}, which a newer farshore wrote"),
        Rejected::Foreign => "of another cluster or group".into(),
        Rejected::Astray => "whole, but of another place: a write went astray".into(),
    }
}

fn slot_facts(slot: &Result<Superblock, Rejected>) -> Value {
    match slot {
        Ok(found) => facts(found),
        Err(rejected) => json!({ "rejected": rejected_words(*rejected) }),
    }
}

fn facts(found: &Superblock) -> Value {
    let id = &found.identity;
    json!({
        "update": found.update, "tag": format!("{:016x}", found.tag), "node": found.node.0, "peer": found.peer.0,
        "role": id.role.word(), "generation": id.generation.to_string(), "incarnation": id.incarnation.0,
        "position": position_facts(id.position), "parent": position_facts(id.parent),
        "inconsistent": id.inconsistent, "handed_over": id.handed_over, "clean": found.clean,
        "compare": found.compare, "held_in_logging": found.held_in_logging,
        "journal_head": { "offset": found.journal.offset, "ordinal": found.journal.ordinal },
        "applied_time": (found.applied_wall.0 != 0).then(|| time_text(found.applied_wall.0)),
    })
}

fn position_facts(at: Position) -> Value {
    json!({ "generation": at.generation.to_string(), "incarnation": at.incarnation.0, "sequence": at.seq.0 })
}

fn position_words(at: Position) -> String {
    match at.generation.is_blank() {
        true => "none yet".into(),
        false => format!("sequence {} of incarnation {}, generation {}", at.seq.0, at.incarnation.0, at.generation),
    }
}

fn describe(report: &mut Report, found: &Superblock) {
    let id = &found.identity;
    report.line("group", format!("tag {:016x} (made of the names of cluster and group)", found.tag));
    report.line(
        "nodes",
        format!("this is node {}, its peer is node {} (places in the sorted list)", found.node.0, found.peer.0),
    );
    report.line("role", id.role.word());
    let generation =
        if id.generation.is_blank() { "blank: no first sync yet".into() } else { id.generation.to_string() };
    report.line("generation", generation);
    report.line("grew out of", position_words(id.parent));
    report.line("incarnation", format!("{} (this node's own run)", id.incarnation.0));
    report.line("position", position_words(id.position));
    report.line(
        "image",
        match (id.inconsistent, id.generation.is_blank()) {
            (true, _) => "a sync began and has not ended: no consistent image, promote is refused",
            (false, true) => "never synced",
            (false, false) => "consistent",
        },
    );
    let handed = if id.handed_over { "yes: demoted with everything applied at the peer" } else { "no" };
    report.line("handed over", handed);
    report.line(
        "last stop",
        match found.clean {
            true => "clean: the bitmap file beside holds the dirty regions",
            false => "not clean, or the daemon runs: the bitmap file beside says nothing",
        },
    );
    let compare = if found.compare { "yes: what differs is not known exactly, the next sync compares" } else { "no" };
    report.line("compare", compare);
    let held =
        if found.held_in_logging { "yes: the operator asked for logging, autosync waits for 'sync'" } else { "no" };
    report.line("held in logging", held);
    let head = found.journal;
    report.line("journal head", format!("byte {}, batch {}", head.offset, head.ordinal));
    let applied = if found.applied_wall.0 == 0 { "unknown".into() } else { time_text(found.applied_wall.0) };
    report.line("applied up to", format!("{applied} (the primary's clock)"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::Exit;

    fn file(updates: [u64; 2]) -> Vec<u8> {
        updates.map(|update| Superblock { update, ..Superblock::default() }.encode()).concat()
    }

    #[test]
    fn every_kind_of_damage_has_its_exit_and_its_sentence() {
        assert_eq!(report(&file([2, 1])).exit(), Exit::Done);
        assert_eq!(report(&[0; 2 * BYTES]).exit(), Exit::Done, "a new group");
        let mut one = file([2, 1]);
        one[BYTES + 100] ^= 1;
        let seen = report(&one);
        assert_eq!((seen.exit(), seen.facts["counts"].as_u64()), (Exit::Warning, Some(0)));
        assert!(seen.warnings[0].contains("slot 1 (bytes 4096 to 8191) is damaged"));
        one[100] ^= 1;
        let seen = report(&one);
        assert_eq!(seen.exit(), Exit::Failed);
        assert!(seen.failure.is_some_and(|failure| failure.contains("neither slot is whole")));
        assert_eq!(report(&file([2, 1])[..BYTES + 7]).exit(), Exit::Warning, "cut short");
    }

    #[test]
    fn a_newer_version_is_named_and_never_passed_over() {
        let mut newer = file([2, 3]);
        newer[BYTES + 8] = 9;
        let crc = crc32c_of(&newer[BYTES..2 * BYTES - 4]);
        newer[2 * BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        let failure = report(&newer).failure.unwrap_or_default();
        assert!(failure.contains("format version 9"), "{failure}");
    }

    /// The engine's checksum, by way of a frame: this crate has no other use for one.
    fn crc32c_of(bytes: &[u8]) -> u32 {
        use engine::wire::{Header, Kind};
        Header::new(Kind::Data, engine::SessionId(0), engine::GroupId(0)).sealed(bytes).payload_crc
    }
}
