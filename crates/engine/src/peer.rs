//! The primary's view of its secondary: the stream to it, syncs, cuts, what is settled when they meet.

pub mod cut_saves;
pub mod cuts;
pub mod holes;
pub mod meeting;
pub mod queue;
pub mod repair;
pub mod resync;
pub mod settle;
pub mod stall;
pub mod stream;
