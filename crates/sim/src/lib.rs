//! Whole clusters of engines in virtual time, with disks that forget and paths that are cut. One seed is one run, and
//! always the same run. Checkers live outside the engine; a run is first under fire, then healed, and must converge.
//!
//! Arrows go down only: `scenarios` → `simulation` → `actors` → `world` → `checkers` → `nodes` → `options`; beside them `network`, and
//! below all of them leaves without state of a world. `hostile` is a laboratory of its own.

#![forbid(unsafe_code)]

pub mod actors;
pub mod checkers;
pub mod coverage_exceptions;
pub mod hostile;
pub mod network;
pub mod nodes;
pub mod options;
pub mod oracle;
pub mod payload;
pub mod rng;
pub mod runner;
pub mod scenarios;
pub mod simulation;
pub mod stamps;
pub mod tally;
pub mod timeline;
pub mod trips;
pub mod world;
