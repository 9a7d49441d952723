//! The kernel half of Farshore: the only crate that talks to the operating system.

pub mod buffers;
pub mod complaints;
pub mod disk;
pub mod driver;
pub mod frontend;
pub mod link;
pub mod nbd;
pub mod net;
pub mod owned;
mod random;
mod socket_option;
mod strangers;
pub mod timer;
pub mod tls;
pub mod words;
