//! Sizing a mirror as arithmetic.
//!
//! Before a mirror is built somebody must say how wide the link, how large the queue, which mode. The honest way is to take
//! what the application really writes, and send it, in thought, over the link one has. So: a trace is read whatever its
//! format ([`trace`]), looked at ([`scan`]), replayed through an exact model of queue and link ([`model`]), and the answer is
//! put in words, numbers and pictures ([`plan`], [`picture`], [`report`]). The old papers' formulas stand beside it
//! ([`formulas`], [`hadr`], [`table2`]), as checks and for those who know them.
//!
//! This room is pure: bytes come in through `Read`, numbers and text go out. It opens no file, knows no daemon, has no clock and no randomness but what a seed gives.

pub mod advice;
pub mod answer;
pub mod formulas;
pub mod hadr;
pub mod inputs;
pub mod model;
pub mod overlap;
pub mod picture;
pub mod plan;
pub mod plan_text;
pub mod report;
pub mod scan;
pub mod series;
pub mod show;
pub mod table2;
pub mod trace;
