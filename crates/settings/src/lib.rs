//! What operators set: the configuration file, its bounds, and what `set` keeps over a restart.
//!
//! Reading goes in two steps. [`parse`] looks at the text alone, so it gives the same answer on a laptop and on either
//! node. [`local`] then looks at what the file claims about *this* node: its devices, its state directory, its secret.
//! Both collect every problem before they give up.
//!
//! From the ground up: [`limits`] and [`names`] · [`keys`] the table that reads and writes a key, [`group`] and [`link`] their entries ·
//! `sheet` a text that is read on after a problem · [`config`] the checked values, `parse` and `check` how they come
//! about · [`overrides`] what `set` changed.

#![forbid(unsafe_code)]

mod check;
mod clients;
mod config;
mod definition;
pub mod durable;
pub mod example;
pub mod group;
pub mod keys;
pub mod limits;
pub mod link;
mod local;
mod names;
mod overrides;
mod parse;
mod problem;
mod sheet;
pub mod suggest;

pub use config::{
    CheckedLink, Config, ConfiguredGroup, ConfiguredNode, ConfiguredVolume, FileEngineChoice, NbdListen, Tls,
};
pub use definition::diff_definitions;
pub use group::{GroupKey, Layout, LiveSettings, Mode, PolicyChoice};
pub use keys::Keyed;
pub use link::{BufferSize, LinkKey, LinkSettings};
pub use local::secret::{SecretFile, create_secret};
pub use local::silent::Silent;
pub use local::{Proof, host_name};
pub use names::{ClusterName, GroupName, NodeName, VolumeName};
pub use overrides::groups::GroupOverrides;
pub use overrides::link::LinkOverrides;
pub use overrides::{DEFAULT, Overrides};
pub use problem::{ConfigProblem, Problems, TextPosition};
