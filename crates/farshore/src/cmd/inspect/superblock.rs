//! The four copies of a superblock, which one counts, and every field in words.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use engine::cell::{BYTES, Rejected};
use engine::identity::Role;
use engine::superblock::{self, KIND, RollbackPoint, Superblock};
use engine::{Position, Wall};
use serde_json::{Value, json};

use super::cell;
use super::report::InspectReport;
use units::exact::show_size;
use units::exact::time_text;

/// The superblock that counts.
pub(super) fn counting(bytes: &[u8]) -> Option<Superblock> {
    superblock::read(bytes, cell::tag(KIND, bytes)).ok()?.found
}

pub(super) fn report(bytes: &[u8]) -> InspectReport {
    let seen = cell::see(KIND, cell::tag(KIND, bytes), 0, bytes);
    let mut report = InspectReport::default();
    seen.lines(&mut report);
    seen.damage(&mut report);
    let counts = (0..4).find(|index| seen.counts(*index));
    let copies = seen.copies.iter().enumerate().map(|(index, copy)| match copy {
        Ok(_) => {
            Superblock::decode(&bytes[index * BYTES..(index + 1) * BYTES]).map_or(Value::Null, |found| facts(&found))
        }
        Err(rejected) => json!({ "rejected": cell::rejected_words(KIND, *rejected) }),
    });
    report.facts = json!({ "copies": copies.collect::<Vec<_>>(), "counts": counts });
    match counting(bytes) {
        Some(found) => describe(&mut report, &found),
        None if seen.choice.newest == Err(Rejected::Blank) => {}
        None => report.failure = Some(unusable(seen.lost())),
    }
    report
}

/// Why the daemon refuses to start the group.
fn unusable(lost: Option<Rejected>) -> String {
    match lost {
        Some(Rejected::VersionUnknown(version)) => cell::version_sentence(KIND, version),
        Some(Rejected::Foreign) => "its copies are of two clusters or groups: the daemon refuses to start the group".into(),
        Some(Rejected::Astray) => {
            "a slot was overwritten by a write that went astray, and may have held what was recorded last: the daemon \
             refuses to start the group; restore the file, or remove the group's state directory and sync in full from the \
             other node"
                .into()
        }
        _ => "no copy is whole, so the group's identity is lost: the daemon refuses to start the group; restore the file, \
              or remove the group's state directory and sync in full from the other node"
            .into(),
    }
}

fn facts(found: &Superblock) -> Value {
    let id = &found.identity;
    json!({
        "update": found.update, "tag": format!("{:016x}", found.tag), "node": found.node.0, "peer": found.peer.0,
        "role": id.role.word(), "generation": id.generation.to_string(), "incarnation": id.incarnation.0,
        "position": position_facts(id.position), "parent": position_facts(id.parent),
        "inconsistent": id.inconsistent, "handed_over": id.handed_over, "clean": found.clean,
        "compare": found.compare, "held_in_logging": found.held_in_logging, "rolling_back": found.rolling_back,
        "changed_outside": found.changed_outside, "given_up": (found.given_up.0 != 0).then_some(found.given_up.0),
        "assumed_equal": found.doubts.assumed_equal, "differs": found.doubts.differs,
        "queue_logged": found.queue_logged, "queue_redo": found.queue_redo, "alone": found.alone, "boot": format!("{:032x}", found.boot),
        "unverified_run": (found.unverified_run.0 != 0).then_some(found.unverified_run.0),
        "journal_head": { "offset": found.journal.offset, "ordinal": found.journal.ordinal },
        "confirmed_ordinal": found.confirmed_ordinal,
        "applied_time": time(found.applied_wall),
        "rollback_point": point_facts(&found.rollback_point),
        "peer_confirmed": position_facts(found.confirmed.position),
        "peer_image": position_facts(found.confirmed.image),
        "set_aside": found.aside.iter().map(|volume| volume.0).collect::<Vec<_>>(),
        "detached": found.detached.iter().map(|volume| volume.0).collect::<Vec<_>>(),
        "unfilled": found.unfilled.iter().map(|volume| volume.0).collect::<Vec<_>>(),
        "own_history": found.own_history.iter().map(|volume| volume.0).collect::<Vec<_>>(),
        "flushed": found.flushed.iter().map(|seq| seq.0).collect::<Vec<_>>(),
    })
}

fn point_facts(point: &RollbackPoint) -> Value {
    match point.id {
        0 => Value::Null,
        id => json!({
            "id": id, "position": position_facts(point.position), "time": time(point.wall),
            "batches": (!point.was_damaged()).then_some(point.batches), "damaged": point.was_damaged(),
            "reserved_bytes": point.reserved_bytes, "of_fork": point.is_of_fork,
        }),
    }
}

/// `None`: none is known.
fn time(wall: Wall) -> Option<String> {
    (wall != Wall::default()).then(|| time_text(wall.0))
}

fn time_words(wall: Wall) -> String {
    time(wall).unwrap_or_else(|| "an unknown time".to_owned())
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

fn describe(report: &mut InspectReport, found: &Superblock) {
    describe_identity(report, found);
    let yes_no = |on: bool, yes: &'static str| if on { yes } else { "no" };
    report.line(
        "last stop",
        match found.clean {
            true => "clean: the bitmap file beside holds the dirty regions",
            false => "not clean, or the daemon runs",
        },
    );
    report.line("compare", yes_no(found.compare, "yes: what differs is not known exactly, the next sync compares"));
    let held = "yes: the operator asked for logging, autosync waits for 'sync'";
    report.line("held in logging", yes_no(found.held_in_logging, held));
    let changed =
        "yes: a volume was written while farshore was stopped; what stands here goes to the peer when 'sync' is typed";
    report.line("changed outside", yes_no(found.changed_outside, changed));
    report.line("alone", yes_no(found.alone, "yes: the peer does not know this generation yet"));
    let assumed = "yes: an operator declared both copies equal, and no whole verify has ended since";
    report.line("assumed equal", yes_no(found.doubts.assumed_equal, assumed));
    let differs = "yes: a verify found blocks that differ, and they are not known to be repaired";
    report.line("differs", yes_no(found.doubts.differs, differs));
    let logged = "yes: a start goes on from the log in the file 'queue'";
    report.line("queue logged", yes_no(found.queue_logged, logged));
    if found.queue_redo {
        report.warnings.push("a start was cut short while it wrote the log of the queue to the volumes: the group does not start without that log".into());
    }
    report.line("machine's boot", format!("{:032x}", found.boot));
    if found.unverified_run.0 != 0 {
        let (run, [last, before]) = (found.unverified_run.0, found.unverified_generations);
        let text = format!("run {run} of this primary: the peer may have writes of it that are lost here");
        report.line("unverified run", format!("{text} (generation {last}, or {before} before it)"));
    }
    let sets = [
        ("set aside", found.aside),
        ("detached", found.detached),
        ("not filled", found.unfilled),
        ("own history", found.own_history),
    ];
    for (what, set) in sets.into_iter().filter(|(_, set)| !set.is_empty()) {
        let volumes: Vec<String> = set.iter().map(|volume| (volume.0 + 1).to_string()).collect();
        report.line(what, format!("volume {} (in the order of names)", volumes.join(", ")));
    }
    if !found.flushed.is_empty() {
        let points: Vec<String> = found.flushed.iter().map(|seq| seq.0.to_string()).collect();
        report.line("flushed up to", format!("sequence {} (volume by volume)", points.join(", ")));
    }
    match found.given_up.0 {
        0 => {}
        u64::MAX if found.identity.role == Role::Primary => report.line(
            "closed",
            "yes: what only the peer may have is not known; the export opens when the operator chooses",
        ),
        u64::MAX => {
            let why = "the journal was damaged, or a promotion went back and did not come about";
            report.line("gave up", format!("whatever the primary may have lost and this copy held: {why}"))
        }
        last => {
            report.line("gave up", format!("what the primary may have lost and this copy held, up to sequence {last}"))
        }
    }
    let head = found.journal;
    report.line("journal head", format!("byte {}, batch {}", head.offset, head.ordinal));
    report.line("confirmed", format!("batches below {}", found.confirmed_ordinal));
    report.line("applied up to", format!("{} (the primary's clock)", time_words(found.applied_wall)));
    describe_point(report, found);
    if found.confirmed.position.seq.0 > 0 {
        report.line("peer applied", position_words(found.confirmed.position));
    }
}

fn describe_identity(report: &mut InspectReport, found: &Superblock) {
    let id = &found.identity;
    report.line("group", format!("tag {:016x} (made of the names of cluster and group)", found.tag));
    report.line(
        "nodes",
        format!("this is node {}, its peer is node {} (by name and cluster)", found.node.0, found.peer.0),
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
            (true, _) => "a sync began and has not ended",
            (false, true) => "never synced",
            (false, false) => "consistent",
        },
    );
    let handed = if id.handed_over { "yes: demoted with everything applied at the peer" } else { "no" };
    report.line("handed over", handed);
}

fn describe_point(report: &mut InspectReport, found: &Superblock) {
    let point = &found.rollback_point;
    if point.id == 0 {
        return report.line("rollback point", "none");
    }
    report.line("rollback point", format!("{:016x}: {}", point.id, position_words(point.position)));
    report.line("", format!("taken at {} (the primary's clock)", time_words(point.wall)));
    let held = if point.was_damaged() {
        "found damaged at an earlier start: it is no image".into()
    } else {
        let reserved = show_size(point.reserved_bytes);
        format!("{} batches of the undo store hold it, {reserved} more are reserved", point.batches)
    };
    report.line("", held);
    if point.is_of_fork {
        report.line("", "the sync overwrites a history of this node's own: before it ends, the file 'delta' holds what it overwrote");
    }
    if found.rolling_back {
        report.line("rolling back", "yes: the volumes are being taken back to it, the next start goes on with that");
    }
}

/// The superblock that counts, from the file beside this one.
pub fn superblock_beside(file: &Path) -> Option<engine::superblock::Superblock> {
    let beside = File::open(file.with_file_name("superblock")).ok()?;
    counting(&read_up_to(&beside, engine::superblock::FILE_BYTES).ok()?)
}

pub fn read_up_to(file: &File, bytes: u64) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    file.take(bytes).read_to_end(&mut head)?;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use engine::{Incarnation, Seq};

    use super::*;
    use crate::outcome::Exit;

    fn sample(update: u64) -> Superblock {
        Superblock { update, tag: 7, ..Superblock::default() }
    }

    fn file(updates: [u64; 2]) -> Vec<u8> {
        updates.map(|update| sample(update).encode()).concat()
    }

    #[test]
    fn every_kind_of_damage_has_its_exit_and_its_sentence() {
        assert_eq!(report(&file([2, 1])).exit(), Exit::Done);
        assert_eq!(report(&[0; 4 * BYTES]).exit(), Exit::Done, "a new group");
        let mut one = file([2, 1]);
        one[BYTES + 100] ^= 1;
        let seen = report(&one);
        assert_eq!((seen.exit(), seen.facts["counts"].as_u64()), (Exit::Warning, Some(0)));
        assert!(seen.warnings[0].starts_with("bytes 4096 to 8191 (slot 0) are damaged"), "{seen:?}");
        one[100] ^= 1;
        assert_eq!(report(&one).facts["counts"], 2, "the other slot");
        one[2 * BYTES + 100] ^= 1;
        one[3 * BYTES + 100] ^= 1;
        let seen = report(&one);
        assert_eq!(seen.exit(), Exit::Failed);
        assert!(seen.failure.is_some_and(|failure| failure.contains("no copy is whole")));
        assert_eq!(report(&file([2, 1])[..BYTES + 7]).exit(), Exit::Warning, "cut short");
        let astray = report(&file([4, 4]));
        assert!(astray.failure.is_some_and(|failure| failure.contains("went astray")));
    }

    #[test]
    fn other_versions_are_named_and_never_passed_over() {
        for (version, parts) in [(9, "a newer farshore wrote it (format version 9"), (1, "never released")] {
            let mut other = file([2, 3]);
            for copy in other.chunks_mut(BYTES).skip(2) {
                copy[8] = version;
                let crc = crc32c_of(&copy[..BYTES - 4]);
                copy[BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
            }
            let failure = report(&other).failure.unwrap_or_default();
            assert!(failure.contains(parts), "{failure}");
        }
    }

    #[test]
    fn every_field_is_shown() {
        let point =
            RollbackPoint { id: 0xabc, wall: Wall(5), batches: 6, reserved_bytes: 1 << 20, ..RollbackPoint::default() };
        let full = Superblock {
            rolling_back: true,
            alone: true,
            confirmed_ordinal: 77,
            boot: 0xb00,
            unverified_run: Incarnation(12),
            rollback_point: point,
            flushed: vec![Seq(31), Seq(32)],
            ..sample(1)
        };
        let seen = report(&[vec![0; 2 * BYTES], full.encode()].concat());
        let text = seen.lines.join("\n");
        for part in [
            "does not know this generation",
            "b00",
            "run 12",
            "31, 32",
            "below 77",
            "abc",
            "6 batches",
            "1 MiB",
            "rolling back",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        let facts = &seen.facts["copies"][2];
        assert_eq!((&facts["unverified_run"], &facts["rollback_point"]["batches"]), (&json!(12), &json!(6)));
        assert_eq!((&facts["flushed"], &facts["alone"]), (&json!([31, 32]), &json!(true)));

        let timeless = Superblock { rollback_point: RollbackPoint { wall: Wall(0), ..point }, ..full };
        let seen = report(&[vec![0; 2 * BYTES], timeless.encode()].concat());
        assert!(seen.lines.join("\n").contains("taken at an unknown time"), "{seen:?}");
        assert_eq!(seen.facts["copies"][2]["rollback_point"]["time"], Value::Null);
    }

    /// The engine's checksum, by way of a frame: this crate has no other use for one.
    fn crc32c_of(bytes: &[u8]) -> u32 {
        use engine::wire::{FrameHeader, FrameKind};
        FrameHeader::new(FrameKind::Data, engine::SessionId(0), engine::GroupId(0)).sealed(bytes).payload_crc
    }
}
