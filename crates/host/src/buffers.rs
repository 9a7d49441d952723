//! Aligned memory for payload, taken from a bounded pool and given back on drop.
//!
//! A [`Buffer`] is unique and writable while it is filled; `Arc<Buffer>` (wrapped as the engine's opaque handle) shares
//! it afterwards, so that the local write, the queue and the link hold the same bytes without a copy.

/// Alignment of every buffer: what O_DIRECT asks of any device we know.
pub const ALIGNMENT: usize = 4096;
