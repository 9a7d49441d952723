//! All integration tests of this crate as one program: one to be linked.

mod agent;
mod wan;
