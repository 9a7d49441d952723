//! What every half uses: the link, memory, turns, time, slots, volumes.

pub mod clock;
pub mod cost;
pub mod flushes;
pub mod frozen;
pub mod gate;
pub mod greeting;
pub mod lifecycle;
pub mod link;
pub mod marks;
pub mod memory;
pub mod newest;
pub mod promotion;
pub mod ranges;
pub mod reads;
pub mod share;
pub mod size;
pub mod slots;
pub mod standing;
pub mod volume;
pub mod volumes;
pub mod wakes;
pub mod write;
