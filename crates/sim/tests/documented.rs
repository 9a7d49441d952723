//! What the documents and the coverage exceptions name is there.

use std::path::Path;

use engine::injected_fault::Fault;
use sim::coverage_exceptions::{BRANCHES_BY_TEST, EDGES_BY_SCENARIO, ROWS_BY_TEST};

fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn every_injected_fault_is_in_the_document() {
    let text = text("../../docs/simulator.md");
    for fault in Fault::ALL {
        let row = format!("| `{}` | {} | {} |", fault.name(), fault.breaks(), fault.how());
        assert!(text.contains(&row), "docs/simulator.md has no row that begins with\n{row}");
    }
}

/// What seeds need not come to is shown by a test, not by a promise of one.
#[test]
fn what_is_left_to_tests_has_its_test() {
    let ours = ["rare_edges", "identity_rows", "kept", "old_records", "shared_link"]
        .map(|name| text(&format!("tests/{name}.rs")));
    let sources = ours.concat() + &text("../engine/src/formats/identity.rs");
    let edges = EDGES_BY_SCENARIO.iter().map(|(_, name)| *name);
    let branches = BRANCHES_BY_TEST.iter().map(|(_, name)| *name);
    for name in ROWS_BY_TEST.iter().map(|(_, name)| *name).chain(edges).chain(branches) {
        assert!(
            sources.contains(&format!("#[test]\nfn {name}()"))
                || sources.contains(&format!("    #[test]\n    fn {name}()")),
            "there is no test `{name}`"
        );
    }
}
