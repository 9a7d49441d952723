//! The checker that shares no code with what it checks.
//!
//! A replica's promise is about *order*: whatever instant it stopped at, its volumes together look as the primary's did
//! at some instant. To find out whether that is true one must not ask the program that made the promise. This crate
//! shares no code with it and imports nothing but the standard library.
//!
//! Think of a notary at two doors. At the first, every writer has each sector of its write stamped ([`stamp`]) and the
//! notary notes when the write was handed in and when it was acknowledged ([`log`]). At the second, the notary gets the
//! images of all volumes and nothing else, reads the stamps, and says ([`check`]) either which writes the images hold,
//! or the first thing that cannot be: a sector torn, rotten or in the wrong place, or a write that is absent although
//! one that was issued after its acknowledgement is there.
//!
//! A third question ([`check_kept`]) is for a disk that lost its power: whether all that it had promised to keep is there.
//!
//! What the verdict rests on, and all it rests on:
//! * write B *follows* write A when A was acknowledged before B was issued. Writes of which neither follows the other
//!   are concurrent, and may have been ordered either way, but in one way for every sector of every volume;
//! * the images are a *prefix* when some order of all writes respects "follows" and the images hold exactly what the
//!   first so many writes of that order leave behind, each write whole, on top of the base.

pub mod check;
mod hash;
mod kept;
pub mod log;
mod order;
mod scan;
pub mod stamp;
mod verdict;

pub use check::{VolumeImage, check};
pub use kept::check_kept;
pub use log::{RecordedWrite, WriteHistory, WriteRecorder, WriteTicket};
pub use stamp::{RunId, SECTOR_BYTES, VolumeNumber, WriteName, WriterId};
pub use verdict::{PrefixReport, PrefixVerdict, SectorPosition, Violation, WriterPrefix};
