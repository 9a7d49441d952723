//! The command line as typed: words and paths, nothing looked up yet. What they mean is decided in [`crate::cmd`].

pub mod attach;
pub mod checks;
mod config;
pub mod events;
pub mod group;
pub mod groups;
pub mod line;
pub mod mark;
pub mod pair;
pub mod planner;
pub mod reach;
pub mod stats;
pub mod sync;
pub mod verify;

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use settings::keys::SettingKey;
use settings::{Keyed, LinkSettings, LiveSettings};

pub use crate::log::LogForm;
pub use config::{CheckArgs, ConfigApplyArgs, ConfigCommand, ConfigPlanArgs};
use group::GroupCommand;
use groups::GroupsArgs;
use reach::{Reach, ReachAny, default_config};

/// What can be set while the node runs.
fn live_keys<S: Keyed>() -> String {
    SettingKey::<S>::all().map(SettingKey::as_str).collect::<Vec<_>>().join(", ")
}

/// A remote mirror for block volumes.
#[derive(Debug, Parser)]
#[command(name = "farshore", version, max_term_width = 110, subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 done, 1 done with a warning, 2 failed, 3 wrong usage.")]
pub struct Args {
    #[command(subcommand)]
    pub command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Make a replicating pair of two machines: typed on the first, whose data is kept; waits for 'farshore join' on the second
    Up(pair::UpArgs),
    /// Join the node where 'farshore up' waits, as the secondary: this machine's device is overwritten
    Join(pair::JoinArgs),
    /// Run this node's daemon
    #[command(after_help = "Example:\n  farshore serve --config /etc/farshore/farshore.toml --node alpha")]
    Serve(ServeArgs),
    /// Show where every group is, and what an acknowledgement means now
    #[command(
        after_help = "Examples:\n  farshore status\n  farshore status db --watch\n  farshore status --json | jq '.groups[].state'\n  farshore status --on beta        (as beta shows itself)\n  farshore status --format prometheus > farshore.prom\n  farshore status --check          (for Nagios and its kin)\n\nExits with 1 when a group needs attention; with --format prometheus the page says so."
    )]
    Status(StatusArgs),
    /// List who uses the exports: from where, since when, how much, and when it was last flushed
    #[command(
        after_help = "Examples:\n  farshore clients\n  farshore clients db --json | jq '.clients[].last_flush_s'"
    )]
    Clients(ClientsArgs),
    /// Show what changed: states, roles, links, syncs, lags, and the commands of operators
    #[command(
        after_help = "Examples:\n  farshore events --since 2h\n  farshore events db --follow\n  farshore events --since 2026-11-27T08:00:00Z --json | jq -r 'select(.kind == \"link-lost\").reason'\n\ndocs/book/events.md lists the kinds of events, and tells how programs are called for them."
    )]
    Events(events::EventsArgs),
    /// Show how well groups kept to their recovery point objective: how often the lag passed 'rpo.warn' and 'rpo.error', and for how long
    #[command(
        after_help = "Examples:\n  farshore rpo db\n  farshore rpo --all --since 7d\n  farshore rpo db --json | jq '.groups[0].levels[] | select(.level == \"error\").met_share'\n\nThe answer comes from the events of both nodes, which keep as many as 'events.limit' has room for."
    )]
    Rpo(events::RpoArgs),
    /// Make a volume a block device of this machine, which outlives restarts of the daemon
    #[command(
        after_help = "Examples:\n  farshore attach db\n  farshore attach db/data /dev/nbd3\n  mount /dev/farshore/db/data /srv\n\nA helper process serves the device. While the daemon is away requests wait; after --wait they fail until it is back."
    )]
    Attach(attach::AttachArgs),
    /// Take a volume's block device away; refused while it is in use
    #[command(after_help = "Example:\n  umount /srv && farshore detach db")]
    Detach(attach::DetachArgs),
    /// List the volumes that are block devices of this machine
    #[command(
        after_help = "Examples:\n  farshore attached\n  farshore attached --json\n\nExits with 1 when requests of a device are not answered."
    )]
    Attached(attach::AttachedArgs),
    /// Show what waits for the secondary: how much, how fast it grows, when it is full, and the peaks
    #[command(
        after_help = "Examples:\n  farshore queue db\n  farshore queue --all --watch\n  farshore queue db --reset-peaks     (count the peaks from now on)\n  farshore queue db --json | jq .groups[0].queue.full_in_s\n\nThe queue is the primary's, wherever the command is typed."
    )]
    Queue(stats::QueueArgs),
    /// Wait until all that was written so far is on the other node
    #[command(
        after_help = "Examples:\n  farshore drain db\n  farshore drain db --timeout 10m && farshore status db\n  farshore drain --all --json\n\nWrites that come meanwhile are not waited for. Typed at the primary, or with --on."
    )]
    Drain(stats::DrainArgs),
    /// Show rates: requests of clients, the queue, the network, bitmap and journal, for each group and volume
    #[command(
        after_help = "Examples:\n  farshore stats                  (the next second)\n  farshore stats 5                (each five seconds, until interrupted)\n  farshore stats 1s 10 --group db\n  farshore stats 10 --json        (one JSON object per line)"
    )]
    Stats(stats::StatsArgs),
    /// Keep a target of systemd as the role of a group is: started while this node is primary
    #[command(
        after_help = "Example:\n  systemctl enable --now farshore-primary@db.service   (the unit runs: farshore follow db)\n\nThe target is farshore-primary@GROUP.target. 'farshore demote' stops it and waits for it, before this node stops being primary."
    )]
    Follow(FollowArgs),
    /// Say what a sync would send, which way, and how long that takes; changes nothing
    #[command(
        after_help = "Examples:\n  farshore connect db --dry-run\n  farshore connect --all --dry-run\n  farshore connect db --dry-run --json | jq .verdict\n\nNodes connect by themselves. Exits with 1 when nothing is sent before an operator has acted."
    )]
    Connect(ConnectArgs),
    /// Stop sending: only track what changes, until the next sync
    #[command(
        after_help = "Examples:\n  farshore logging db\n  farshore logging db web --on alpha\n  farshore logging --all\n  farshore logging db --volume data       (a bulk load: the other volumes go on in their order)"
    )]
    Logging(LoggingArgs),
    /// Bring the secondary up to date
    #[command(
        after_help = "Examples:\n  farshore sync db --wait\n  farshore sync db --full                 (all of it is compared, and what differs is sent)\n  farshore sync db --full --no-compare    (all of it is sent: the copy is known to differ)\n  farshore sync --all --json\n  farshore sync db --volume data --wait   (after the bulk load)\n  farshore sync db --reverse              (on the primary: the copy's content counts, and clients stay)\n  farshore sync db --reverse --stop\n\nA full sync that is under way goes on: it does not begin anew."
    )]
    Sync(SyncArgs),
    /// Compare the copy with this primary's volumes, while writers go on
    #[command(
        after_help = "Examples:\n  farshore verify db\n  farshore verify db --wait\n  farshore verify db --repair --rate 200Mbit/s\n  farshore verify db --sample 5           (a look at some blocks, no proof)\n  farshore verify db --stop\n\nWhat differs is named in 'farshore status' and 'farshore events', and stays there until it is repaired."
    )]
    Verify(verify::VerifyArgs),
    /// Declare that two copies without a common history hold the same: nothing is sent
    #[command(
        after_help = "Example:\n  farshore assume-equal db && farshore verify db --wait\n\nThe primary is asked, and its clients are detached before. Both nodes show the copy as unverified until a whole verify has ended."
    )]
    AssumeEqual(verify::AssumeEqualArgs),
    /// Wait until an operation has ended, or until groups are in a state
    #[command(
        override_usage = "farshore wait [OPTIONS] <OPERATION>...\n       farshore wait [OPTIONS] --for <STATE> <GROUP>...",
        after_help = "Examples:\n  farshore wait alpha-5f3a9c1e07b2-12 --timeout 10m      (as 'sync' and --json name it)\n  farshore wait db --for replicating --timeout 10m\n\nWhat became of an operation counts, whatever state holds by then."
    )]
    Wait(WaitArgs),
    /// Change settings of a running group; they outlive a restart
    #[command(
        override_usage = "farshore set [OPTIONS] <GROUP>... <KEY=VALUE>...",
        after_help = format!(
            "Examples:\n  farshore set db mode=sync wait_limit=5s\n  farshore set db web mode=async\n  farshore set db queue.memory=8MiB\n  farshore set db mode=default        (back to what the file says)\n\nKeys: {}.",
            live_keys::<LiveSettings>()
        )
    )]
    Set(SetArgs),
    /// Make this node the secondary of a group: its exports close
    #[command(
        after_help = "Examples:\n  farshore demote db\n  farshore demote db --close-clients   (clients that are attached get errors)\n\nA node that is secondary already has nothing to do. Refused while clients are attached; it lists them.\nWhat hangs on farshore-primary@GROUP.target is stopped first, and started again after a refusal."
    )]
    Demote(DemoteArgs),
    /// Make this node the primary of a group: its exports open
    #[command(
        after_help = "Examples:\n  farshore promote db\n  farshore promote db --on beta       (typed on alpha)\n  farshore promote db --force         (says what may be lost; the peer must be stopped)\n  farshore promote db --in-window     (only if nothing that was acknowledged is lost: policy \"hold\")\n\nA node that is primary already has nothing to do."
    )]
    Promote(PromoteArgs),
    /// Start a group that failed anew, without a restart of the daemon
    #[command(
        after_help = "Examples:\n  farshore reset db\n  farshore reset db web --on beta     (typed on alpha)\n  farshore reset --all\n\nThe group's devices and files are closed and opened, and what is on record counts, as at a start of the daemon.\nPut right first what 'farshore status' names: while the cause is still there, the group fails again.\nA group that has not failed has nothing to do."
    )]
    Reset(ResetArgs),
    /// Make another node the primary of a group, without losing anything: the primary hands over
    #[command(
        after_help = "Examples:\n  farshore switchover db --to beta\n  farshore switchover db --to beta --close-clients --timeout 5s\n  farshore switchover --all --to beta --json\n\nMay be typed at either node. Requests of clients wait until both nodes are equal, then the old primary becomes secondary, and they get\nerrors. If that takes too long nothing changes, and they go on. Refused while clients are attached; it lists them."
    )]
    Switchover(SwitchoverArgs),
    /// Make the node primary again that the configuration has as the primary: sync it, then hand over
    #[command(
        after_help = "Examples:\n  farshore failback db\n  farshore failback db --close-clients\n\nWhat that node lacks is sent first. Cut off in between, it can be typed again. Histories that went apart are refused; the answer says what\nto do."
    )]
    Failback(FailbackArgs),
    /// Resolve a fork: keep what one node wrote, and save what the other one holds where the two differ
    #[command(
        after_help = "Examples:\n  farshore resolve db --keep beta\n  farshore resolve --all --keep beta                 (all groups of a site)\n  farshore resolve db --keep alpha --close-clients   (clients of the other node get errors)\n  farshore resolve db --keep beta --discard          (what only the other node has is gone)\n\nBoth nodes wrote alone since a forced promotion. The other node is demoted, and what differs is sent to it.\nBefore that it saves its own blocks to the file 'delta' in the group's state directory: farshore inspect FILE."
    )]
    Resolve(ResolveArgs),
    /// Say what becomes of a group that is refused because a volume is on another device than before
    #[command(
        after_help = "Examples:\n  farshore accept-device db data --rebuild             (a new disk: this node is rebuilt from its peer)\n  farshore accept-device db data --content-is-good     (a primary whose data was moved to it: nothing is sent before 'sync --full';\n                                                        also the first start of a primary whose disk carries data already)\n\nThe group begins anew on this node with 'farshore reset GROUP', or at the next start of its daemon. What was said counts until the group ran again,\nand nothing is taken while a daemon has the group open. If devices only changed places, give each volume its own instead."
    )]
    AcceptDevice(group::AcceptDeviceArgs),
    /// Name a point of the write order, on both nodes; list, lock and drop such marks, and the image before a sync
    #[command(
        after_help = "Examples:\n  farshore mark db nightly-1130\n  farshore mark db mail before-upgrade --wait        (one moment of both groups, and wait until the peer has it)\n  farshore drain db --to nightly-1130\n  farshore mark list db\n  farshore mark lock db before-upgrade\n  farshore mark -- list nightly-1130                 (a group that is called 'list')\n\nA mark says where in the write order it was set, and keeps no content: what was written before has a lower number on both nodes, what came\nthen a higher one. Groups that are marked together must have their primary on one node."
    )]
    Mark(mark::MarkArgs),
    /// Go on without a volume whose disk is dead, and take it back on another disk
    #[command(subcommand)]
    Group(GroupCommand),
    /// Look at the connections to other nodes, tune them, see how they did
    #[command(subcommand)]
    Link(LinkCommand),
    /// Check or explain the configuration file
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Write a first configuration for two nodes
    #[command(
        after_help = "Examples:\n  farshore init --near 10.0.0.1:/dev/disk/by-id/DISK --far 10.0.0.2:/dev/disk/by-id/DISK > farshore.toml\n  farshore init --near alpha=10.0.0.1:/dev/vg0/data --far beta=10.0.0.2:/dev/vg0/data --out /etc/farshore/farshore.toml\n\nName disks as 'ls -l /dev/disk/by-id' on each node does: what is /dev/sdb today may be /dev/sdc after a reboot."
    )]
    Init(InitArgs),
    /// Make, show and renew the certificates by which nodes and NBD clients know each other
    #[command(subcommand)]
    Cert(CertCommand),
    /// Explain one of Farshore's own files; never writes
    #[command(after_help = "Example:\n  farshore inspect /var/lib/farshore/db/journal")]
    Inspect(InspectArgs),
    /// Record what is written, for scan and plan: a live disk's counters, or a group's requests
    #[command(
        after_help = "Example:\n  farshore record --group db --for 24h --out db.trace\n  farshore record --device /dev/sdb --for 24h --out sdb.samples\n  farshore plan db.trace --link 100Mbit,50ms\n\nA group's requests are recorded exactly. Of a disk only counts are sampled: sizes are means and moments are made up."
    )]
    Record(planner::RecordArgs),
    /// Read write traces: how much, how bursty, how often the same place
    #[command(
        after_help = "Examples:\n  farshore scan db.iolog --out db.trace\n  blkparse -i sdb -o - | farshore scan -\n  farshore scan sdb.blktrace.* --json\n  farshore scan writes.csv.zst --columns time:ms,op,offset:sector,size:B\n\nExits with 1 when something was left out."
    )]
    Scan(planner::ScanArgs),
    /// Predict every mode for a trace and a link: latency, queue, lag, outage, and what to set
    #[command(
        after_help = "Examples:\n  farshore plan db.trace --link 100Mbit,50ms\n  farshore plan db.trace --link link.json --disk disk.json --rpo 5s --report plan.html\n  farshore plan db.trace --link 100Mbit,50ms,loss=0.1% --disk 200MB/s,1ms --what-if bandwidth=2x --plots plots"
    )]
    Plan(Box<planner::PlanArgs>),
    /// The papers' formulas: buffers, queues, round trips, loss, modes
    Calc(planner::CalcArgs),
    /// Say what keeps the mirror from carrying what it could, and the exact command that mends it; changes nothing
    Doctor(Box<checks::DoctorArgs>),
    /// Measure this machine's disks
    #[command(subcommand)]
    Disk(checks::DiskCommand),
}

#[derive(Debug, ClapArgs)]
pub struct ServeArgs {
    /// Configuration file, if not the one that FARSHORE_CONFIG names
    #[arg(long, value_name = "FILE", default_value_os_t = default_config())]
    pub config: PathBuf,
    /// Which node of the file this is [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    #[command(flatten)]
    pub log: LogArgs,
}

/// How a command that runs until it is ended writes its log.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub struct LogArgs {
    /// How the log is written: `text`, `json` (one object for each line, docs/book/operate/service.md), or `journal` (each line with its
    /// priority, for the system's journal) [default: text; journal where that reads standard error]
    #[arg(long, value_name = "FORM", hide_possible_values = true)]
    pub log_format: Option<LogForm>,
}

#[derive(Debug, ClapArgs)]
pub struct ConnectArgs {
    #[command(flatten)]
    pub groups: GroupsArgs,
    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// One JSON object for each group, a line each, schema farshore-connect/1 (docs/book/status-json.md), or farshore-answer/1 for a refusal
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, ClapArgs)]
pub struct LoggingArgs {
    #[command(flatten)]
    pub groups: GroupsArgs,
    /// Of this volume alone, as for a bulk load: the others of the group go on in their order, and a promotion would lack it
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    pub volume: Option<String>,
    /// One JSON object, schema farshore-answer/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, ClapArgs)]
pub struct ResetArgs {
    #[command(flatten)]
    pub groups: GroupsArgs,
    /// One JSON object, schema farshore-answer/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

/// How a status is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatusForm {
    Text,
    Json,
    Prometheus,
    Shell,
}

#[derive(Debug, ClapArgs)]
pub struct StatusArgs {
    /// Only this group
    pub group: Option<String>,
    /// One JSON object, schema farshore-status/1 (docs/book/status-json.md); the same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// How it is written; `prometheus` is a page of metrics (docs/book/metrics.md) for a collector of text files, `shell` has lines that a
    /// shell can evaluate, of one group (docs/book/status-json.md)
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub format: StatusForm,
    /// One line for Nagios and its kin, and the exit code by health: 0 OK, 1 warning, 2 critical, 3 unknown (docs/book/operate/monitoring.md)
    #[arg(long, conflicts_with_all = ["json", "format", "watch"])]
    pub check: bool,
    /// Show this node alone: the daemons of its peers are not asked
    #[arg(long)]
    pub local: bool,
    /// Show it again twice a second until interrupted
    #[arg(long)]
    pub watch: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, ClapArgs)]
pub struct ClientsArgs {
    /// Only this group's
    pub group: Option<String>,
    /// One JSON object, schema farshore-clients/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, ClapArgs)]
pub struct FollowArgs {
    /// The group
    pub group: String,
    #[command(flatten)]
    pub log: LogArgs,
    #[command(flatten)]
    pub reach: Reach,
}

#[derive(Debug, ClapArgs)]
pub struct SyncArgs {
    #[command(flatten)]
    pub groups: GroupsArgs,
    /// Compare everything with the copy, not only what is dirty, and send what differs; a copy that never was one is sent everything
    #[arg(long)]
    pub full: bool,
    /// With --full: send everything and compare nothing, where the copy is known to differ
    #[arg(long, requires = "full", conflicts_with = "reverse")]
    pub no_compare: bool,
    /// Take this volume, which 'logging --volume' set aside, back into the group's order
    #[arg(long, value_name = "NAME", conflicts_with_all = ["full", "all"])]
    pub volume: Option<String>,
    #[command(flatten)]
    pub reverse: sync::ReverseArgs,
    /// Wait until the groups replicate; standard error shows how far they are
    #[arg(long)]
    pub wait: bool,
    /// One JSON object, schema farshore-answer/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, ClapArgs)]
pub struct WaitArgs {
    /// Operations, as answers name them; with --for, groups, '*' for all of the node
    #[arg(value_name = "OPERATION|GROUP", required_unless_present = "all")]
    pub targets: Vec<String>,
    /// All groups of the node, with --for
    #[arg(long, conflicts_with = "targets", requires = "state")]
    pub all: bool,
    /// The state to wait for: logging, queuing, syncing, catching-up, replicating, holding, paused, failed
    #[arg(long = "for", value_name = "STATE")]
    pub state: Option<String>,
    /// Give up after this time, such as 10m [default: never]
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// One JSON object, schema farshore-answer/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, ClapArgs)]
pub struct SetArgs {
    /// The groups, '*' for all of the node; then settings to change: the value "default" goes back to the configuration file
    #[arg(value_name = "GROUP|KEY=VALUE", required = true)]
    pub words: Vec<String>,
    /// All groups of the node
    #[arg(long)]
    pub all: bool,
    /// One JSON object, schema farshore-answer/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct DemoteArgs {
    #[command(flatten)]
    pub groups: GroupsArgs,
    /// Cut off the clients that are attached: what they have not flushed is lost to them
    #[arg(long)]
    pub close_clients: bool,
    /// Run no command of the configuration before or after it
    #[arg(long)]
    pub skip_hooks: bool,
    /// One JSON object, schema farshore-answer/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, ClapArgs)]
pub struct PromoteArgs {
    #[command(flatten)]
    pub groups: GroupsArgs,
    /// Promote although the peer may have acknowledged writes this node never saw; on a terminal it says what may be lost, and asks
    #[arg(long)]
    pub force: bool,
    /// As --force, but only while the peer window proves that nothing which the peer acknowledged is missing here; else nothing is done
    #[arg(long, conflicts_with = "force")]
    pub in_window: bool,
    /// Do not ask
    #[arg(long, requires = "force")]
    pub yes: bool,
    /// Run no command of the configuration before or after it, also no fence
    #[arg(long)]
    pub skip_hooks: bool,
    /// One JSON object, schema farshore-answer/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, ClapArgs)]
pub struct SwitchoverArgs {
    #[command(flatten)]
    pub groups: GroupsArgs,
    /// The node that is to be the primary
    #[arg(long, value_name = "NODE")]
    pub to: String,
    #[command(flatten)]
    pub handover: HandoverArgs,
}

#[derive(Debug, ClapArgs)]
pub struct FailbackArgs {
    #[command(flatten)]
    pub groups: GroupsArgs,
    #[command(flatten)]
    pub handover: HandoverArgs,
}

/// How a primary hands over.
#[derive(Debug, ClapArgs)]
pub struct HandoverArgs {
    /// Cut off the clients that are attached: what they have not flushed is lost to them
    #[arg(long)]
    pub close_clients: bool,
    /// How long requests may wait until both nodes are equal, such as 5s, up to 60s [default: 10s]
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// Run no command of the configuration before or after it, on either node
    #[arg(long)]
    pub skip_hooks: bool,
    /// One JSON object, schema farshore-answer/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, ClapArgs)]
pub struct ResolveArgs {
    #[command(flatten)]
    pub groups: GroupsArgs,
    /// The node whose content is kept
    #[arg(long, value_name = "NODE")]
    pub keep: String,
    /// Save nothing of the other node's content
    #[arg(long)]
    pub discard: bool,
    /// Cut off clients that are attached to the other node; they get errors
    #[arg(long)]
    pub close_clients: bool,
    /// One JSON object, schema farshore-answer/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, Subcommand)]
pub enum LinkCommand {
    /// What the kernel granted each connection, and what limits it now
    #[command(
        after_help = "Examples:\n  farshore link show\n  farshore link show beta --json\n\nExits with 1 when a link is not connected or has a warning."
    )]
    Show(LinkShowArgs),
    /// Change how this node's connections are tuned; they connect again, without a resync unless the policy acts meanwhile
    #[command(
        after_help = format!(
            "Examples:\n  farshore link set buffers=4MiB congestion=bbr\n  farshore link set pacing=93Mbit/s\n  farshore link set compression=auto       (at once, without connecting again)\n  farshore link set rate=50Mbit/s          (at once as well; rate=unlimited)\n  farshore link set schedule='08:00-18:00 20Mbit/s'\n  farshore link set buffers=default        (back to what the file says)\n\nKeys: {}. The kernel knows max_rto and min_rto from Linux 6.15 on.",
            live_keys::<LinkSettings>()
        )
    )]
    Set(LinkSetArgs),
    /// Throughput and round trip of the last weeks, minute by minute or in longer stretches
    #[command(
        after_help = "Examples:\n  farshore link history beta --since 2h\n  farshore link history --since 12h --every 1h --against 24h     (last night beside the night before)"
    )]
    History(LinkHistoryArgs),
    /// Let peers test the line to this machine, one test at a time
    #[command(
        after_help = "Examples:\n  farshore link serve\n  farshore link serve --listen 10.0.0.2:7338 --max-time 48h --disk-file /var/lib/farshore/trial"
    )]
    Serve(line::LinkServeArgs),
    /// Test the line to a node with a mirror's own traffic: rates, waits, buffers, and what limits them
    #[command(
        after_help = "Examples:\n  farshore link test beta                          (beta runs 'farshore link serve')\n  farshore link test beta --mode sync --flush-size 16KiB --disk 200MB/s,1ms --remote-disk 200MB/s,1ms\n  farshore link test 10.0.0.2:7338 --mode async --sndbuf 512KiB --rcvbuf 512KiB --time 60s --omit 2s --json > link.json\n  farshore link test beta --mode sync --depth 16 --interval 1s\n  farshore link test beta --time 1h --json-stream | jq -c 'select(.event == \"interval\").data'\n\nExits with 1 when a kernel refused or capped something, with 2 when the connection was lost."
    )]
    Test(Box<line::LinkTestArgs>),
    /// Which socket buffers the line wants: double them until that brings nothing, and say what to set
    #[command(
        after_help = "Examples:\n  farshore link sweep beta\n  farshore link sweep beta --congestion cubic --plots plots --json > sweep.json\n  farshore link sweep beta --congestion bbr,cubic --repeat 3          (which does better, on a line that others use too)\n\nbeta runs 'farshore link serve'. Exits with 1 when a kernel refused or capped something, or it was interrupted."
    )]
    Sweep(line::SweepArgs),
    /// What the way is like: round trips idle and loaded, loss, large packets, clocks
    #[command(
        after_help = "Example:\n  farshore link probe beta\n\nbeta runs 'farshore link serve'. Exits with 1 when something needs an operator's eye, or it was interrupted."
    )]
    Probe(line::ProbeArgs),
    /// A steady load for hours: outages and what was out of the ordinary are kept
    #[command(
        after_help = "Example:\n  farshore link soak beta --mode async --rate 20Mbit --time 48h --out beta.soak\n\nbeta runs 'farshore link serve'. Exits with 1 when there was an outage or an outlier."
    )]
    Soak(Box<line::LinkSoakArgs>),
}

#[derive(Debug, ClapArgs)]
pub struct LinkShowArgs {
    /// Only the link to this node
    pub peer: Option<String>,
    /// One JSON object, schema farshore-links/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: Reach,
}

#[derive(Debug, ClapArgs)]
pub struct LinkSetArgs {
    /// Settings to change; the value "default" goes back to the configuration file
    #[arg(value_name = "KEY=VALUE", required = true)]
    pub settings: Vec<String>,
    /// One JSON object, schema farshore-answer/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: Reach,
}

#[derive(Debug, ClapArgs)]
pub struct LinkHistoryArgs {
    /// The node at the other end; may be left out where there is one
    pub peer: Option<String>,
    /// How far back
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    pub since: String,
    /// Length of a row's stretch [default: so that the table stays short]
    #[arg(long, value_name = "DURATION")]
    pub every: Option<String>,
    /// Show beside each row what was so much earlier
    #[arg(long, value_name = "DURATION")]
    pub against: Option<String>,
    /// One JSON object, schema farshore-link-history/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, ClapArgs)]
pub struct InitArgs {
    /// The primary's side: [NODE=]ADDRESS:DEVICE
    #[arg(long, value_name = "HOST:DEVICE")]
    pub near: String,
    /// The secondary's side: [NODE=]ADDRESS:DEVICE
    #[arg(long, value_name = "HOST:DEVICE")]
    pub far: String,
    /// Write to this file instead of printing; an existing file is never overwritten
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Where the configuration says that certificates are, for nodes on two machines
    #[arg(long, value_name = "DIR", default_value = "/etc/farshore/tls")]
    pub tls_directory: PathBuf,
    /// The secret file that the configuration names, for nodes on one machine
    #[arg(long, value_name = "FILE", default_value = "/etc/farshore/secret")]
    pub secret_file: PathBuf,
    /// Also make the secret file, mode 0600, with new random content
    #[arg(long)]
    pub create_secret: bool,
}

#[derive(Debug, Subcommand)]
pub enum CertCommand {
    /// Make the cluster's private authority, once, on one machine that keeps its key
    #[command(after_help = "Example:\n  farshore cert init --config /etc/farshore/farshore.toml")]
    Init(CertInitArgs),
    /// Make a node's certificate and key, where the authority's key is
    #[command(
        after_help = "Examples:\n  farshore cert node alpha\n  farshore cert node beta --host beta.example.org   (a name NBD clients use for it)"
    )]
    Node(CertNodeArgs),
    /// Make an NBD client's certificate and key, in a directory as qemu and libnbd want it
    #[command(
        after_help = "Example:\n  farshore cert client backup\n\nIt may use every export, unless the configuration has a table 'clients' in [tls], such as\n  clients = { backup = [\"db/data:ro\"] }"
    )]
    Client(CertClientArgs),
    /// Show every certificate here: whose it is, and until when it is valid
    #[command(
        after_help = "Examples:\n  farshore cert show\n  farshore cert show --json | jq -r '.certificates[] | [.file, .not_after] | @tsv'\n\nExits with 1 when one needs attention."
    )]
    Show(CertShowArgs),
    /// Renew certificates: new keys, the same names; running daemons take them up by themselves
    #[command(
        after_help = "Examples:\n  farshore cert rotate alpha beta\n  farshore cert rotate --client backup\n  farshore cert rotate --ca      (a new authority beside the old one; then renew every certificate)"
    )]
    Rotate(CertRotateArgs),
    /// Take a certificate back: from here on nobody who has the list believes it
    #[command(
        after_help = "Examples:\n  farshore cert revoke --client backup     (before 'cert rotate', which forgets the old one)\n  farshore cert revoke --file stolen.pem\n\nThe list is the file 'revoked' beside ca.crt: copy it to every node. Running daemons take it up by themselves."
    )]
    Revoke(CertRevokeArgs),
}

/// Which cluster's certificates.
#[derive(Debug, ClapArgs)]
pub struct CertDirectoryArgs {
    /// Configuration file, if not the one that FARSHORE_CONFIG names; its [tls] names the directory
    #[arg(long, value_name = "FILE", default_value_os_t = default_config())]
    pub config: PathBuf,
}

#[derive(Debug, ClapArgs)]
pub struct CertInitArgs {
    #[command(flatten)]
    pub cert_dir: CertDirectoryArgs,
    /// For how long it is valid
    #[arg(long, value_name = "DAYS", default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=36500))]
    pub days: u32,
}

#[derive(Debug, ClapArgs)]
pub struct CertNodeArgs {
    /// The node, as the configuration calls it
    pub name: String,
    /// A further host name or address by which NBD clients reach it
    #[arg(long, value_name = "HOST")]
    pub host: Vec<String>,
    /// For how long it is valid
    #[arg(long, value_name = "DAYS", default_value_t = 397, value_parser = clap::value_parser!(u32).range(1..=36500))]
    pub days: u32,
    #[command(flatten)]
    pub cert_dir: CertDirectoryArgs,
}

#[derive(Debug, ClapArgs)]
pub struct CertClientArgs {
    /// A name for it, for people and logs
    pub name: String,
    /// For how long it is valid
    #[arg(long, value_name = "DAYS", default_value_t = 397, value_parser = clap::value_parser!(u32).range(1..=36500))]
    pub days: u32,
    #[command(flatten)]
    pub cert_dir: CertDirectoryArgs,
}

#[derive(Debug, ClapArgs)]
pub struct CertShowArgs {
    /// One JSON object, schema farshore-certificates/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub cert_dir: CertDirectoryArgs,
}

#[derive(Debug, ClapArgs)]
pub struct CertRotateArgs {
    /// Nodes whose certificates are renewed
    #[arg(value_name = "NODE")]
    pub nodes: Vec<String>,
    /// Clients whose certificates are renewed
    #[arg(long, value_name = "NAME")]
    pub client: Vec<String>,
    /// Renew the authority; the old one stays trusted until its lines are taken out of ca.crt
    #[arg(long)]
    pub ca: bool,
    /// For how long they are valid [default: 397, of an authority 3650]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36500))]
    pub days: Option<u32>,
    #[command(flatten)]
    pub cert_dir: CertDirectoryArgs,
}

#[derive(Debug, ClapArgs)]
pub struct CertRevokeArgs {
    /// Nodes whose certificates are taken back
    #[arg(value_name = "NODE")]
    pub nodes: Vec<String>,
    /// Clients whose certificates are taken back
    #[arg(long, value_name = "NAME")]
    pub client: Vec<String>,
    /// Files of certificates to be taken back, in PEM form
    #[arg(long, value_name = "FILE")]
    pub file: Vec<PathBuf>,
    #[command(flatten)]
    pub cert_dir: CertDirectoryArgs,
}

#[derive(Debug, ClapArgs)]
pub struct InspectArgs {
    /// The files to explain
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Of a delta: write the content of this range, by its number, or of 'all' in their order, to standard output
    #[arg(long, value_name = "RANGE", conflicts_with = "json")]
    pub extract: Option<String>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        let root = Args::command();
        let families = ["config", "link", "mark", "group", "calc", "cert", "disk"];
        let inner = families.map(|family| root.find_subcommand(family).expect("it is one"));
        let outer = root.get_subcommands().filter(|command| !families.contains(&command.get_name()));
        for command in outer.chain(inner.into_iter().flat_map(|family| family.get_subcommands())) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("farshore "), "{} has no example", command.get_name());
        }
    }
}
