//! The receiving half: receive, land, apply, answer, go back.

pub mod answers;
pub mod apply;
pub mod receive;
pub mod replay;
pub mod rollback;
pub mod window;
