//! What is on disk and on the line, byte for byte: leaves that know no state.

pub mod bitmap;
pub mod cell;
pub mod codec;
pub mod delta;
mod flush_points;
pub mod fork;
mod group_settings;
pub mod identity;
pub mod journal;
pub mod marks;
pub mod other_volumes;
pub mod queue_log;
pub mod superblock;
pub mod undo;
pub mod wire;
