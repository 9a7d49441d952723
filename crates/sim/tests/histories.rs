//! Short histories of a pair, judged by the writes that they issued and by what both images hold. `sim --histories` plays longer ones.

use sim::scenarios::histories::{History, enumerate};

// proves: P3, P6, rule 5
/// Nothing is overwritten that only one node holds, and nobody is asked where nothing would be lost.
#[test]
fn every_history_of_two_events_ends_as_the_truth_says() {
    let report = enumerate(2, false);
    let bad: Vec<String> = report.bad.iter().map(|bad| format!("{}: {}", bad.history.words(), bad.what)).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(report.histories > 150 && report.joined > 80, "{} histories, {} joined", report.histories, report.joined);
}

#[test]
fn a_history_is_read_as_it_is_written() {
    for words in ["async", "sync,cut,write-0,join-and-write", "async,write-0,set-back,force-1,keep-1"] {
        assert_eq!(History::parse(words).map(|history| history.words()).as_deref(), Some(words));
    }
    assert!(History::parse("async,forge-1").is_none() && History::parse("cut").is_none());
}
