//! The binary's inside, as a library so that tests and fuzz targets reach its parsers.
//!
//! Operators meet [`args`] first, then one file of [`cmd`] per command. Everything they write is checked in
//! [`config`]; everything a running daemon tells or takes passes [`api`].

#![forbid(unsafe_code)]

pub mod api;
pub mod args;
pub mod attach;
pub mod breakdown;
pub mod certs;
pub mod cmd;
pub mod daemon;
pub mod events;
pub mod join;
mod log;
pub mod metrics;
mod outcome;
mod rpo;
#[cfg(test)]
mod schemas;
pub mod show;
#[cfg(test)]
mod without_threads;
