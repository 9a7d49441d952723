//! The kernel half of Farshore: the only crate that talks to the operating system.

pub mod buffers;
pub mod child;
pub mod disk;
pub mod driver;
pub mod engine_text;
pub mod frontend;
pub mod link;
pub mod nbd;
pub mod net;
mod node_name;
mod random;
pub mod report_limiter;
pub mod resolver;
mod socket_option;
pub mod tcp_info;
pub mod timer;
pub mod tls;
pub mod trusted_file;
pub mod ublk;
mod unauthenticated;
