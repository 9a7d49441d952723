//! What every half uses: the link, memory, semaphores, time, slots, volumes.

pub mod bits_walk;
pub mod clock;
pub mod cost;
pub mod coverage;
pub mod flushes;
pub mod greeting;
pub mod kept_tail;
pub mod lifecycle;
pub mod link;
pub mod link_scheduler;
pub mod memory;
pub mod newest_writes;
pub mod operation_slots;
pub mod peer_copy;
pub mod promotion;
pub mod ranges;
pub mod reads;
pub mod room_waits;
pub mod semaphore;
pub mod size;
pub mod standing;
pub mod volume;
pub mod volume_traffic;
pub mod volumes;
pub mod wakes;
pub mod write;
