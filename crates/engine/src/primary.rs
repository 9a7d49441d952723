//! A write's life on the primary, and those who wait.

pub mod held_up;
pub mod waits;
pub mod write;
