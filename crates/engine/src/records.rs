//! What a node has on record of a group: superblock, activity log, bitmap.

pub mod activity;
pub mod bits;
pub mod marks;
pub mod record;
pub mod start;
