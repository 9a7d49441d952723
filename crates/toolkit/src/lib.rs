//! The laboratory: what a line, a disk and a machine do under a mirror's own load, and what keeps them from carrying more.
//! Nothing here needs a daemon, and none is changed: what one tells is handed in.
//!
//! [`line_test`] the line with a mirror's own traffic · [`disk_test`] what a durable write takes · [`doctor`] facts gathered, checked,
//! compared. Below them: [`interrupt`] Ctrl-C, `within` what may hang, [`screen`] what goes to a terminal.

#![forbid(unsafe_code)]

pub mod disk_test;
pub mod doctor;
pub mod interrupt;
pub mod line_test;
pub mod screen;
mod within;
