//! The power of either node, or of both, is lost under load. Their volumes, journals and state directories live on
//! stores that forget what was not flushed. What an acknowledgement promised is there, on whichever side; what the
//! secondary holds is a prefix of all writes; and both become equal again.
//!
//! Kills show none of that: what a killed program wrote is still in the kernel's hands.
// proves: P1, P2, P4

use std::collections::HashSet;

use crate::common::load::{LoadPlan, WriterLoad, WriterRun};
use crate::common::{GROUP, Pair, PairPlan, Side, TestRandom, must_skip_stores};
use forgetful::Loss;
use witness::WriteName;

const VOLUMES: &[&str] = &["data", "log", "temp"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PowerLossKind {
    Secondary,
    /// It comes back as the primary that it was.
    Primary,
    /// Its peer is promoted before it comes back.
    PrimaryForGood,
    Both,
}

const ROUNDS: [(PowerLossKind, &str); 8] = [
    (PowerLossKind::Secondary, "sync"),
    (PowerLossKind::Primary, "async"),
    (PowerLossKind::Both, "sync"),
    (PowerLossKind::PrimaryForGood, "sync"),
    (PowerLossKind::Secondary, "async"),
    (PowerLossKind::Primary, "sync"),
    (PowerLossKind::PrimaryForGood, "async"),
    (PowerLossKind::Both, "nearsync"),
];

#[test]
fn power_is_lost_under_load() {
    lose_power_in_rounds("power_is_lost_under_load", "auto", "", 11);
}

/// The primary starts from its log of the queue, which lost what was not flushed as well.
#[test]
fn power_is_lost_under_load_with_a_log_of_the_queue() {
    let queue = "queue.disk = \"64MiB\"\nqueue.durable = true";
    lose_power_in_rounds("power_is_lost_under_load_with_a_log_of_the_queue", "auto", queue, 13);
}

#[test]
fn power_is_lost_under_load_with_the_fallback_file_engine() {
    lose_power_in_rounds("power_is_lost_under_load_with_the_fallback_file_engine", "pool", "", 12);
}

fn lose_power_in_rounds(test: &str, engine: &str, queue: &str, seed: u64) {
    if must_skip_stores(test) {
        return;
    }
    let node = format!("engine = \"{engine}\"");
    // Held writers are acknowledged under `sync` or not at all, also while the secondary is gone.
    let group = &format!("policy = \"hold\"\nhold = \"1h\"\n{queue}");
    let plan =
        PairPlan { volumes: VOLUMES, volume_bytes: 8 << 20, group, node: &node, forgets: true, ..PairPlan::default() };
    let mut pair = Pair::replicating(&plan);
    pair.stop_both();
    let mut random = TestRandom::new(seed);
    let mut primary = Side::Near;
    let mut forgotten_bytes = [0; 2];
    for (number, (blow, mode)) in ROUNDS.into_iter().enumerate() {
        println!("round {number}: {blow:?} in {mode}, {} is primary", primary.name());
        let mut round =
            Round { blow, mode, primary, run: WriterRun::on_content(number as u64, &pair, primary, VOLUMES) };
        let load = round.set_to_work(&mut pair, random.below(600));
        let (load, losses) = round.strike(&mut pair, load, random.below(1 << 32));
        for (node, loss) in losses {
            println!("{} lost {loss:?}", node.name());
            forgotten_bytes[node as usize] += loss.forgotten_bytes;
        }
        round.look(&mut pair);
        primary = round.heal(&mut pair, load);
        round.compare(&mut pair, primary);
    }
    assert!(forgotten_bytes.iter().all(|bytes| *bytes > 0), "too little was forgotten: {forgotten_bytes:?}");
}

/// One run of the writers, from equal nodes at rest to equal nodes at rest.
struct Round {
    blow: PowerLossKind,
    mode: &'static str,
    primary: Side,
    run: WriterRun,
}

impl Round {
    fn set_to_work(&self, pair: &mut Pair, writes: u64) -> WriterLoad {
        Side::BOTH.into_iter().for_each(|node| pair.serve(node));
        pair.done(self.primary, &["set", GROUP, &format!("mode={}", self.mode)]);
        pair.wait_for(self.primary, "replicating");
        let load = WriterLoad::start(
            pair,
            self.primary,
            &self.run,
            LoadPlan { flush_one_in: 20, ..LoadPlan::crowded(VOLUMES) },
        );
        load.wait_for_more(pair, 100 + writes);
        load
    }

    /// Cuts the power. The load goes on if its primary does.
    fn strike(&mut self, pair: &mut Pair, load: WriterLoad, seed: u64) -> (Option<WriterLoad>, Vec<(Side, Loss)>) {
        let nodes = match self.blow {
            PowerLossKind::Secondary => vec![self.primary.other()],
            PowerLossKind::Primary | PowerLossKind::PrimaryForGood => vec![self.primary],
            PowerLossKind::Both => Side::BOTH.to_vec(),
        };
        let losses = pair.lose_power(&nodes, seed);
        let load = if self.blow == PowerLossKind::Secondary {
            Some(load)
        } else {
            load.abandon();
            None
        };
        (load, nodes.into_iter().zip(losses).collect())
    }

    /// What each node holds for itself, before they meet again.
    fn look(&self, pair: &mut Pair) {
        let secondary = self.primary.other();
        if self.blow != PowerLossKind::Secondary {
            let mut promised = self.run.flushed();
            assert!(!promised.is_empty(), "the writers flush");
            promised.extend(self.confirmed());
            self.run.assert_kept(pair, self.primary, &promised);
        }
        let confirmed = self.confirmed();
        match self.blow {
            PowerLossKind::PrimaryForGood => pair.promote_by_force(secondary),
            PowerLossKind::Primary => {
                pair.kill(secondary);
                pair.serve_alone(secondary);
            }
            PowerLossKind::Secondary | PowerLossKind::Both => pair.serve_alone(secondary),
        }
        if self.blow != PowerLossKind::PrimaryForGood {
            pair.until("its journal is applied", |pair| pair.status(secondary)["journal"]["bytes"] == 0);
        }
        assert!(pair.stop(secondary).success(), "{}", pair.log(secondary));
        let report = self.run.check(pair, secondary);
        println!("the secondary holds {} writes and lacks {}", report.included_writes, report.lost_writes);
        self.run.assert_kept(pair, secondary, &confirmed);
    }

    /// What was acknowledged as being on both nodes until now: in `sync` everything, as writers are held otherwise.
    fn confirmed(&self) -> HashSet<WriteName> {
        if self.mode == "sync" { self.run.acknowledged() } else { HashSet::new() }
    }

    /// Brings both nodes back to replicating, and the load to its end; the primary from then on.
    fn heal(&self, pair: &mut Pair, load: Option<WriterLoad>) -> Side {
        let secondary = self.primary.other();
        let primary = match self.blow {
            PowerLossKind::Secondary => {
                pair.serve(secondary);
                self.primary
            }
            PowerLossKind::Primary | PowerLossKind::Both => {
                Side::BOTH.into_iter().for_each(|node| pair.serve(node));
                self.primary
            }
            PowerLossKind::PrimaryForGood => {
                pair.serve(secondary);
                pair.return_as_secondary(self.primary);
                secondary
            }
        };
        pair.wait_for(primary, "replicating");
        if let Some(load) = load {
            load.wait_for_more(pair, 100);
            load.stop();
        }
        pair.wait_for_rest(primary);
        pair.stop_from(primary);
        primary
    }

    /// At rest both are equal and lack nothing, and a power loss changes nothing about that.
    fn compare(&self, pair: &mut Pair, primary: Side) {
        let promised = match self.blow {
            PowerLossKind::Secondary => self.run.acknowledged(),
            PowerLossKind::Primary | PowerLossKind::Both => &self.run.flushed() | &self.confirmed(),
            // Its peer went on without it, and owes what it had confirmed.
            PowerLossKind::PrimaryForGood => self.confirmed(),
        };
        let losses = pair.lose_power_at_rest();
        assert!(losses.iter().all(|loss| loss.forgotten_bytes == 0), "{losses:?}");
        pair.assert_equal(VOLUMES);
        self.run.assert_kept(pair, primary, &promised);
        if self.blow == PowerLossKind::Secondary {
            assert_eq!(self.run.check(pair, primary).lost_writes, 0);
        }
    }
}
