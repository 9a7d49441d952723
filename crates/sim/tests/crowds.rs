//! What many groups of one node share runs short: else a crowd would show nothing of who waits for it.

use engine::coverage::CoveragePoint;
use sim::simulation::run_crowd;
use sim::tally::RunTally;

#[test]
fn crowds_run_short_of_memory_and_of_permits_to_sync() {
    let mut sum = RunTally::default();
    for seed in 0..4 {
        let (verdict, tally) = run_crowd(seed, false);
        verdict.unwrap_or_else(|failure| panic!("crowd {seed}: {failure}"));
        sum.add(&tally);
    }
    let [memory, turns] =
        [CoveragePoint::MemoryShort, CoveragePoint::SyncWaitedForPermit].map(|mark| sum.coverage(mark));
    println!("short of memory {memory} times, of a turn to sync {turns} times");
    assert!(memory > 0 && turns >= 500, "{memory} {turns}");
}
