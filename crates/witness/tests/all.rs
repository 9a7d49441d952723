//! All integration tests of this crate as one program: one to be linked.

mod brute;
mod common;
mod faults;
mod kept;
