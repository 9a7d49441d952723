//! All integration tests of this crate as one program: one to be linked.

mod certificates;
mod disk_calls;
mod disk_common;
mod disk_engine;
mod disk_fingerprint;
mod disk_hang;
mod disk_meta;
mod disk_power;
mod disk_volume;
mod link;
mod link_control;
mod link_hostile_peer;
mod link_support;
mod link_tls;
mod nbd_clients;
mod nbd_crowds;
mod nbd_support;
mod nbd_tls;
mod nbd_vanish;
mod nbd_wire;
