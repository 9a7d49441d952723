//! The newcomer's part of the command line: `up` on the first machine, `join` on the second.

use std::path::PathBuf;

use clap::Args;

use super::reach::default_config;

const DEFAULT_STATE: &str = "/var/lib/farshore";

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  farshore up --device /dev/disk/by-id/DISK --address 10.0.0.1\n  farshore up --group db --device data=/dev/vg0/data --device log=/dev/vg0/log --address 10.0.0.1 --peer 10.0.0.2\n  farshore up                      (asks for what is missing; typed again it goes on, or says that all is done)\n\nIt writes the configuration and certificates, and prints the line to be typed on the second machine. When that machine has joined,\nboth run the doctor, the daemon starts, and the first sync goes on until the group replicates. No file is overwritten,\nexcept certificates that are not valid now."
)]
pub struct UpArgs {
    /// The group that is made
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub group: String,
    /// This machine's device of a volume; its content is kept. Of several each with its volume's name
    #[arg(long, value_name = "[NAME=]PATH")]
    pub device: Vec<String>,
    /// Where the other node reaches this one [port: 7337; with --peer: the address that leads there]
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub address: Option<String>,
    /// Where the other node has to be [default: wherever it joins from]
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub peer: Option<String>,
    /// What this node is called [default: the host name]
    #[arg(long, value_name = "NODE")]
    pub name: Option<String>,
    /// A further key of the group's table in the configuration, such as mode=sync
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// How long the other machine may take to join
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    pub expires: String,
    /// Leave the start of the daemon to you
    #[arg(long)]
    pub no_start: bool,
    /// Directory of Farshore's own files
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE)]
    pub state: PathBuf,
    /// The configuration that is made, if not the one that FARSHORE_CONFIG names; certificates go to `tls` beside it
    #[arg(long, value_name = "FILE", default_value_os_t = default_config())]
    pub config: PathBuf,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  echo TOKEN | farshore join --device /dev/disk/by-id/DISK\n  farshore join --device data=/dev/vg0/data --device log=/dev/vg0/log --address 10.0.0.2      (asks for the token)\n\nThe token is printed by 'farshore up' on the first machine. It comes on standard input, never on the command line, which every user\nof this machine can read. It is good for one try; 'farshore up' prints the next one. A device that carries data is refused, unless\n--overwrite is given. This machine's private key is made here and stays here."
)]
pub struct JoinArgs {
    // Hidden, and refused: it would stand in the list of processes. So who types it as before learns what to type.
    #[arg(hide = true)]
    pub token: Option<String>,
    /// This machine's device of a volume: overwritten by the first sync. Of several each with its volume's name
    #[arg(long, value_name = "[NAME=]PATH")]
    pub device: Vec<String>,
    /// What is on the devices may be lost
    #[arg(long)]
    pub overwrite: bool,
    /// Where the first node reaches this one [default: the address that leads there, with its port]
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub address: Option<String>,
    /// What this node is called [default: the host name]
    #[arg(long, value_name = "NODE")]
    pub name: Option<String>,
    /// Leave the start of the daemon to you
    #[arg(long)]
    pub no_start: bool,
    /// Directory of Farshore's own files
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE)]
    pub state: PathBuf,
    /// The configuration that is made, if not the one that FARSHORE_CONFIG names; certificates go to `tls` beside it
    #[arg(long, value_name = "FILE", default_value_os_t = default_config())]
    pub config: PathBuf,
}
