//! Sizes, rates, times and shares: as types, as text that people write, and as text that people read.
//!
//! Units are the trap of this trade: 10^6 against 2^20, bits against bytes. So they live in one leaf crate, which knows none of ours.
//! Three notations exist, because three kinds of text exist:
//!
//! * [`exact`]: what a configuration holds. One spelling, binary sizes only, and it reads back what it writes.
//! * [`quantities`]: what a planner is asked. Decimal and binary, each with its own type; what could mean two things is asked back.
//! * [`traffic_control`]: a line as `tc` spells it, such as `100mbit`, for the emulated WAN.

#![forbid(unsafe_code)]

pub mod exact;
pub mod quantities;
pub mod size;
pub mod traffic_control;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const TIB: u64 = 1 << 40;

/// A range of accepted values, and what holds when nothing is said.
#[derive(Clone, Copy, Debug)]
pub struct Bound<T> {
    pub min: T,
    pub max: T,
    pub default: T,
}

/// A number and its unit: the text up to the first character that `is_number` does not take, and what follows without spaces.
fn split_number(text: &str, is_number: impl Fn(char) -> bool) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !is_number(c)).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}
