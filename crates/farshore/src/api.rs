//! What a running daemon takes and tells: the types of the control socket, one JSON object per line, and of what commands print with
//! `--json` of a daemon's answers.
//!
//! A client connects to `<state>/control.sock`, writes one [`ApiRequest`] as a line, reads one [`Reply`] as a line, and may
//! go on with the next. These types are a contract (docs/book/status-json.md, docs/book/schemas): keys are added, never renamed or reused
//! without a new `schema`.

pub mod client;
mod clients;
mod config_plan;
mod counters;
mod group;
mod link;
mod node;
mod operations;
mod preview;
pub mod refusals;
mod reply;
mod request;
mod sentences;
pub mod server;
mod stats;
mod words;

pub use clients::{CLIENTS_SCHEMA, ClientList, ClientView, RequestSums};
pub use config_plan::{CONFIG_PLAN_SCHEMA, ConfigPlan, ConfigStep};
pub use counters::{COUNTERS_SCHEMA, DaemonCounters, LatencyClasses};
pub use group::{
    DifferenceView, DroppedMark, GroupView, HandoverView, JournalStatus, MARKS_SCHEMA, MarkList, MarkState, MarkStatus,
    MarksView, ModeLadderView, NamedMark, PeerStatusView, QueueView, RecoveryPoint, ReverseView, RpoView, ScrubView,
    SyncView, VerifiedView, VerifyView, VolumeQueueView, VolumeView,
};
pub use link::{
    BufferStatus, CompressionStatus, LINK_HISTORY_SCHEMA, LINKS_SCHEMA, LinkHistory, LinkHistoryRow, LinkHistoryTable,
    LinkList, LinkRecord, LinkReport, OptionStatus, SettingStatus, SocketStatus, TcpStatus,
};
pub use node::{ClientsStatus, NodeView, PeerSays, STATUS_SCHEMA, SharedView, StateDirectoryView, TlsStatus};
pub use operations::{
    ANSWER_SCHEMA, AnswerList, AnswerView, MissingView, OPERATION_SCHEMA, OperationId, OperationView,
};
pub use preview::{CONNECT_SCHEMA, ConnectPreview};
pub use refusals::RefusalView;
pub use reply::{RecordedBatch, Reply};
pub use request::{ApiRequest, ReverseOrder, SwitchoverOrder};
pub use stats::{
    GroupQueue, GroupStats, LinkStats, QUEUE_SCHEMA, QueueReport, RPO_SCHEMA, RequestRates, RpoHistory, RpoLevel,
    RpoMiss, RpoReport, STATS_SCHEMA, StatsReport, VolumeStats,
};
pub use words::{
    ConfigAction, ErrorCode, Flow, GroupState, LinkLimit, LinkState, OperationState, Origin, Protection, QueueLogState,
    Retry, Role, RpoState, Verdict,
};
