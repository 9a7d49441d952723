//! Named marks of a group.

use engine::marks::{KIND, Mark, SLOTS_PER_CELL, decode_slots};
use serde_json::json;

use super::cell;
use super::report::InspectReport;
use units::exact::time_text;

pub(super) fn report(image: &[u8]) -> InspectReport {
    let mut report = InspectReport::default();
    let (mut marks, mut cells): (Vec<Mark>, usize) = (Vec::new(), 0);
    let costs = "the marks of that cell are lost";
    let lost = cell::each(KIND, image, &mut report, costs, |_, body| {
        marks.extend(decode_slots(body)?.into_iter().flatten());
        cells += 1;
        Ok(())
    });
    if cells == 0 && report.warnings.is_empty() && report.failure.is_none() {
        report.line("holds", "nothing yet: it is written with the first mark");
        return report;
    }
    marks.sort_by_key(|mark| (mark.wall, mark.id));
    let tag = cell::tag(KIND, image);
    report.line("group", format!("tag {tag:016x}"));
    report.line("marks", format!("{} in {cells} cells of {SLOTS_PER_CELL}", marks.len()));
    report.push_some(marks.iter().map(line), marks.len(), "marks");
    report.facts = json!({
        "tag": format!("{tag:016x}"), "marks": marks.len(), "lost_cells": lost,
        "all_marks": marks.iter().map(facts).collect::<Vec<_>>(),
    });
    report
}

fn line(mark: &Mark) -> String {
    let Mark { id, position, .. } = mark;
    let name = if mark.name.is_empty() { "(without its name)" } else { &mark.name };
    let flags = [(mark.there, "there"), (mark.lost, "here alone"), (mark.locked, "locked"), (mark.dropped, "dropped")];
    let flags: Vec<&str> = flags.into_iter().filter_map(|(on, word)| on.then_some(word)).collect();
    format!(
        "    {name}: generation {}, incarnation {}, sequence {}; id {:x}; {}",
        position.generation,
        position.incarnation.0,
        position.seq.0,
        id.0,
        if flags.is_empty() { "on its way".to_owned() } else { flags.join(", ") }
    )
}

fn facts(mark: &Mark) -> serde_json::Value {
    json!({
        "id": format!("{:x}", mark.id.0), "name": mark.name, "sequence": mark.position.seq.0,
        "incarnation": mark.position.incarnation.0, "generation": mark.position.generation.to_string(),
        "time": time_text(mark.wall.0), "moment": mark.moment, "there": mark.there, "here_alone": mark.lost,
        "locked": mark.locked, "dropped": mark.dropped,
    })
}

#[cfg(test)]
mod tests {
    use engine::cell::{CELL_BYTES, CellHead, encode};
    use engine::marks::{FILE_BYTES, encode_slots};
    use engine::{MarkId, Position, Seq};

    use super::*;

    #[test]
    fn marks_are_shown_and_a_damaged_cell_is_named() {
        let position = Position { seq: Seq(77), ..Position::default() };
        let mark = Mark { id: MarkId(5), position, name: "nightly".into(), there: true, ..Mark::default() };
        let mut file = vec![0; FILE_BYTES as usize];
        for update in 3..=4 {
            let head = CellHead { update, tag: 9, ..CellHead::default() };
            let image = encode(KIND, &head, &encode_slots([Some(&mark)].into_iter()));
            file[head.slot_offset() as usize..][..image.len()].copy_from_slice(&image);
        }
        let seen = report(&file);
        assert!(seen.warnings.is_empty(), "{:?}", seen.warnings);
        assert_eq!(seen.facts["all_marks"][0]["sequence"], 77);
        file[..CELL_BYTES as usize].fill(7);
        assert!(!report(&file).warnings.is_empty());
        assert!(report(&vec![0; FILE_BYTES as usize]).lines.iter().any(|line| line.contains("nothing yet")));
    }
}
