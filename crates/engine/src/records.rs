//! What a node has on record of a group: superblock, activity log, bitmap.

pub mod activity;
pub mod bits;
pub mod record;
pub mod start;
pub mod superblock_changes;
pub mod unverified;
