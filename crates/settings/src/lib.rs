//! What operators set: the configuration file, its bounds, and what `set` keeps over a restart.
//!
//! Reading goes in two steps. [`config::parse`] looks at the text alone, so it gives the same answer on a laptop and on either
//! node. [`config::local`] then looks at what the file claims about *this* node: its devices, its state directory, its secret.
//! Both collect every problem before they give up.
//!
//! From the ground up: [`limits`] and [`names`] · `sheet` a text that is read on after a problem · `forms` how values are written ·
//! [`events`] the kinds that hooks name ·
//! [`pair`] the file of a new pair · [`keys`] the table that reads and writes a key, [`group`], [`link`] and [`config`] its entries and the checked values, and inside of
//! it how they come about · [`overrides`] what `set` changed · [`manual`] the table for readers.

#![forbid(unsafe_code)]

mod config;
pub mod durable;
pub mod events;
pub mod example;
mod forms;
pub mod group;
pub mod keys;
pub mod limits;
#[cfg(test)]
mod limits_page;
pub mod link;
pub mod manual;
mod names;
mod overrides;
pub mod pair;
mod problem;
mod role_hooks;
pub mod schedule;
mod sheet;
pub mod suggest;

pub use config::definition::diff_definitions;
pub use config::hooks::{ConfiguredHook, HookEvents, HookUrl};
pub use config::local::programs::wrong_program;
pub use config::local::secret::{SecretFile, create_secret};
pub use config::local::silent::Silent;
pub use config::local::{DetachedVolumes, Proof, host_name};
pub use config::{
    Config, ConfiguredGroup, ConfiguredNode, ConfiguredVolume, FileEngineChoice, GROUPS, ListenAddress, PeerCommands,
    Tls, TopLevelKeys,
};
pub use group::{GroupKey, GroupMembers, Layout, LiveSettings, Mode, PolicyChoice, RpoThresholds, ScrubSettings};
pub use keys::Keyed;
pub use link::{ConfiguredLink, LinkKey, LinkSettings};
pub use names::{ClusterName, GroupName, HookName, NodeName, VolumeName};
pub use overrides::groups::GroupOverrides;
pub use overrides::link::LinkOverrides;
pub use overrides::{DEFAULT, Overrides};
pub use problem::{ConfigProblem, Problems, TextPosition};
pub use role_hooks::{RoleHook, RoleHooks};
pub use schedule::{RateSchedule, WeekMinute};
