//! Every fault that can be planted stands in the document, with what it breaks and how.

use engine::planted::Fault;

#[test]
fn every_planted_fault_is_in_the_document() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/simulator.md");
    let text = std::fs::read_to_string(document).expect("docs/simulator.md");
    for fault in Fault::ALL {
        let row = format!("| `{}` | {} | {} |", fault.name(), fault.breaks(), fault.how());
        assert!(text.contains(&row), "docs/simulator.md has no row that begins with\n{row}");
    }
}
