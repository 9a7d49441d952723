//! `attach`, `detach`, `attached`: volumes as block devices of the kernel.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::LogForm;
use super::reach::Reach;

#[derive(Debug, ClapArgs)]
pub struct AttachArgs {
    /// The volume; of a group all its volumes
    #[arg(value_name = "GROUP[/VOLUME]")]
    pub name: String,
    /// The device, such as /dev/nbd3, or with --ublk /dev/ublkb3 [default: one that is free]
    pub device: Option<PathBuf>,
    /// Make it a device of ublk (Linux 6.5, module ublk_drv), not of the kernel's NBD client. Requests then wait for another helper
    /// process as long as there is none, and fail only when the daemon is away for longer than --wait
    #[arg(long)]
    pub ublk: bool,
    /// How long requests wait while the daemon, or this device's helper process, is away; then they fail
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub wait: String,
    /// Stay, and serve the device in this process, as a service manager wants it
    #[arg(long)]
    pub foreground: bool,
    /// One JSON object, schema farshore-attached/1 (docs/book/status-json.md)
    #[arg(long, conflicts_with = "foreground")]
    pub json: bool,
    /// How the log of `--foreground` is written: `text`, `json` (one object for each line, docs/book/operate/service.md), or `journal` (each
    /// line with its priority, for the system's journal) [default: text; journal where that reads standard error]
    #[arg(long, value_name = "FORM", hide_possible_values = true, requires = "foreground")]
    pub log_format: Option<LogForm>,
    #[command(flatten)]
    pub reach: Reach,
}

#[derive(Debug, ClapArgs)]
pub struct DetachArgs {
    /// The volume; of a group all its volumes
    #[arg(value_name = "GROUP[/VOLUME]")]
    pub name: String,
    /// Also while it is in use: whoever has it open or mounted gets errors, and what waits is lost
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, ClapArgs)]
pub struct AttachedArgs {
    /// One JSON object, schema farshore-attached/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
}
