//! What the daemon answers, and how an answer is read.
//!
//! The kind of an answer stands inside of it. To find it there serde keeps all of the line as values first, what nobody asked for too, and
//! each of them takes sixteen times the room of a short number. An answer may come from another machine: so its kind is looked for alone,
//! and what that kind has is then read into its own type, past everything else.

use serde::de::Error;
use serde::{Deserialize, Serialize};

use super::request::is_false;
use super::sentences::sentences;
use super::{
    ApiRequest, ClientList, ConfigPlan, ConnectPreview, DaemonCounters, ErrorCode, LinkHistory, MarksView, MissingView,
    NodeView, OperationView, RefusalView,
};
use crate::events::EventPage;

/// What the daemon answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum Reply {
    /// Done, or begun where the command says so. With warnings the client ends with exit code 1.
    Ok {
        message: String,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
        /// The other node, where the request was carried there.
        #[serde(skip_serializing_if = "Option::is_none")]
        done_on: Option<String>,
        /// The goal was reached before: nothing was changed.
        #[serde(skip_serializing_if = "is_false")]
        unchanged: bool,
        /// By this name it can be waited for, where the request changes something.
        #[serde(skip_serializing_if = "Option::is_none")]
        operation: Option<String>,
        /// Of a forced promotion.
        #[serde(skip_serializing_if = "Option::is_none")]
        may_be_missing: Option<Box<MissingView>>,
    },
    Error {
        message: String,
        code: ErrorCode,
        /// More exactly than the code says it; left out where the code says all.
        #[serde(skip_serializing_if = "Option::is_none")]
        refusal: Option<Box<RefusalView>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        operation: Option<String>,
    },
    Status(Box<NodeView>),
    Counters(Box<DaemonCounters>),
    Recorded(Box<RecordedBatch>),
    LinkHistory(Box<LinkHistory>),
    Clients(Box<ClientList>),
    Marks(Box<MarksView>),
    Events(Box<EventPage>),
    Operation(Box<OperationView>),
    ConnectPreview(Box<ConnectPreview>),
    ConfigPlan(Box<ConfigPlan>),
}

/// Requests of clients, without their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedBatch {
    /// This request began it: nothing before was kept.
    pub began: bool,
    /// Requests that were not kept, because they were too many since the last time.
    pub lost: u64,
    /// Length of `trace`.
    pub bytes: usize,
    /// The requests, as a trace file holds them. It follows the line as it is: as text it would cost more than all else
    /// that recording does.
    #[serde(skip)]
    pub trace: Vec<u8>,
}

impl RecordedBatch {
    /// The most that may follow a line.
    pub const BYTES_MAX: usize = 16 << 20;
}

/// The kind of an answer, of which nothing else is kept.
#[derive(Deserialize)]
struct ReplyHead {
    reply: String,
}

#[derive(Deserialize)]
struct OkReply {
    message: String,
    #[serde(default, deserialize_with = "sentences")]
    warnings: Vec<String>,
    #[serde(default)]
    done_on: Option<String>,
    #[serde(default)]
    unchanged: bool,
    #[serde(default)]
    operation: Option<String>,
    #[serde(default)]
    may_be_missing: Option<Box<MissingView>>,
}

#[derive(Deserialize)]
struct ErrorReply {
    message: String,
    code: ErrorCode,
    #[serde(default)]
    refusal: Option<Box<RefusalView>>,
    #[serde(default)]
    operation: Option<String>,
}

impl Reply {
    /// The answer of a line. What follows the line is not read here.
    ///
    /// # Errors
    /// It is none, or of a kind that this version does not know.
    pub fn read(line: &[u8]) -> serde_json::Result<Reply> {
        let ReplyHead { reply } = serde_json::from_slice(line)?;
        Ok(match reply.as_str() {
            "ok" => {
                let OkReply { message, warnings, done_on, unchanged, operation, may_be_missing } =
                    serde_json::from_slice(line)?;
                Reply::Ok { message, warnings, done_on, unchanged, operation, may_be_missing }
            }
            "error" => {
                let ErrorReply { message, code, refusal, operation } = serde_json::from_slice(line)?;
                Reply::Error { message, code, refusal, operation }
            }
            "status" => Reply::Status(serde_json::from_slice(line)?),
            "counters" => Reply::Counters(serde_json::from_slice(line)?),
            "recorded" => Reply::Recorded(serde_json::from_slice(line)?),
            "link-history" => Reply::LinkHistory(serde_json::from_slice(line)?),
            "clients" => Reply::Clients(serde_json::from_slice(line)?),
            "marks" => Reply::Marks(serde_json::from_slice(line)?),
            "events" => Reply::Events(serde_json::from_slice(line)?),
            "operation" => Reply::Operation(serde_json::from_slice(line)?),
            "config-plan" => Reply::ConfigPlan(serde_json::from_slice(line)?),
            "connect-preview" => Reply::ConnectPreview(serde_json::from_slice(line)?),
            _ => return Err(serde_json::Error::custom("it is of a kind that this version does not know")),
        })
    }

    /// What follows the line.
    pub(super) fn trail(&self) -> &[u8] {
        match self {
            Reply::Recorded(recorded) => &recorded.trace,
            _ => &[],
        }
    }

    pub fn ok(message: impl Into<String>) -> Self {
        Reply::done(message, Vec::new())
    }

    /// Done, with what an operator should know of it.
    pub fn done(message: impl Into<String>, warnings: Vec<String>) -> Self {
        Reply::of(message.into(), warnings, false)
    }

    /// The goal was reached before.
    pub fn unchanged(message: impl Into<String>) -> Self {
        Reply::of(message.into(), Vec::new(), true)
    }

    /// Done by this node, or what was wanted before.
    pub fn of(message: String, warnings: Vec<String>, unchanged: bool) -> Self {
        Reply::Ok { message, warnings, done_on: None, unchanged, operation: None, may_be_missing: None }
    }

    pub fn error(code: ErrorCode, message: impl Into<String>) -> Self {
        Reply::Error { message: message.into(), code, refusal: None, operation: None }
    }

    /// The same, and more exactly.
    pub fn coded(code: ErrorCode, refusal: impl Into<RefusalView>, message: impl Into<String>) -> Self {
        let (message, refusal) = (message.into(), Some(Box::new(refusal.into())));
        Reply::Error { message, code, refusal, operation: None }
    }

    /// The state does not allow it.
    pub fn refused(refusal: impl Into<RefusalView>, message: impl Into<String>) -> Self {
        Reply::coded(ErrorCode::Refused, refusal, message)
    }

    /// It was tried in vain.
    pub fn failed(refusal: impl Into<RefusalView>, message: impl Into<String>) -> Self {
        Reply::coded(ErrorCode::Failed, refusal, message)
    }

    /// Names the operation that the answer is of, unless another node has named one.
    pub fn name_operation(&mut self, id: &str) {
        if let Reply::Ok { operation, .. } | Reply::Error { operation, .. } = self {
            operation.get_or_insert_with(|| id.to_owned());
        }
    }

    /// The kind of it, in words.
    pub fn kind(&self) -> &'static str {
        match self {
            Reply::Ok { .. } => "a bare success",
            Reply::Error { .. } => "an error",
            Reply::Status(_) => "a status",
            Reply::Counters(_) => "counters",
            Reply::Recorded(_) => "a recording",
            Reply::LinkHistory(_) => "a link's history",
            Reply::Clients(_) => "a list of clients",
            Reply::Marks(_) => "a list of marks",
            Reply::Events(_) => "events",
            Reply::Operation(_) => "an operation",
            Reply::ConfigPlan(_) => "a plan of the configuration",
            Reply::ConnectPreview(_) => "a look at a connection",
        }
    }

    /// Whether it is of the kind that was asked for. An error always is.
    pub fn answers(&self, request: &ApiRequest) -> bool {
        match (request, self) {
            (ApiRequest::On { order, .. }, _) => self.answers(order),
            (_, Reply::Error { .. }) => true,
            (ApiRequest::Status { .. } | ApiRequest::StatusOfBoth { .. }, reply) => matches!(reply, Reply::Status(_)),
            (ApiRequest::Clients { .. }, reply) => matches!(reply, Reply::Clients(_)),
            (ApiRequest::Marks { .. }, reply) => matches!(reply, Reply::Marks(_)),
            (ApiRequest::Counters, reply) => matches!(reply, Reply::Counters(_)),
            (ApiRequest::Record { .. }, reply) => matches!(reply, Reply::Recorded(_)),
            (ApiRequest::Events { .. }, reply) => matches!(reply, Reply::Events(_)),
            (ApiRequest::Operation { .. }, reply) => matches!(reply, Reply::Operation(_)),
            (ApiRequest::ConfigPlan, reply) => matches!(reply, Reply::ConfigPlan(_)),
            (ApiRequest::ConnectPreview { .. }, reply) => matches!(reply, Reply::ConnectPreview(_)),
            (ApiRequest::LinkHistory { .. }, reply) => matches!(reply, Reply::LinkHistory(_)),
            (
                ApiRequest::Logging { .. }
                | ApiRequest::Sync { .. }
                | ApiRequest::Set { .. }
                | ApiRequest::SetLink { .. }
                | ApiRequest::Demote { .. }
                | ApiRequest::Resolve { .. }
                | ApiRequest::Keep { .. }
                | ApiRequest::TakeBack { .. }
                | ApiRequest::Yield { .. }
                | ApiRequest::Promote { .. }
                | ApiRequest::Reset { .. }
                | ApiRequest::DetachVolume { .. }
                | ApiRequest::AttachVolume { .. }
                | ApiRequest::Switchover(_)
                | ApiRequest::TakeOver { .. }
                | ApiRequest::Rest { .. }
                | ApiRequest::Reverse(_)
                | ApiRequest::Lend { .. }
                | ApiRequest::InReverse { .. }
                | ApiRequest::Verify { .. }
                | ApiRequest::VerifyStop { .. }
                | ApiRequest::ResetPeaks { .. }
                | ApiRequest::AssumeEqual { .. }
                | ApiRequest::ConfigApply { .. }
                | ApiRequest::Mark { .. }
                | ApiRequest::LockMark { .. }
                | ApiRequest::DropMark { .. },
                reply,
            ) => matches!(reply, Reply::Ok { .. }),
        }
    }

    /// The node that it is of, by its own word; `None`: it does not say.
    pub fn node(&self) -> Option<&str> {
        match self {
            Reply::Status(status) => Some(&status.node),
            Reply::Counters(counters) => Some(&counters.node),
            Reply::LinkHistory(history) => Some(&history.node),
            Reply::Clients(list) => Some(&list.node),
            Reply::Marks(list) => Some(&list.node),
            Reply::Events(page) => Some(&page.node),
            Reply::Operation(operation) => Some(&operation.node),
            Reply::ConnectPreview(preview) => Some(&preview.node),
            Reply::ConfigPlan(plan) => Some(&plan.node),
            Reply::Ok { .. } | Reply::Error { .. } | Reply::Recorded(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sentences::SENTENCES_MAX;
    use super::*;

    const STATUS: &str = r#"{"reply":"status","schema":"s","node":"beta","version":"1","uptime_s":1.0,"groups":[]"#;

    fn read(line: &str) -> serde_json::Result<Reply> {
        Reply::read(line.as_bytes())
    }

    #[test]
    fn each_answer_is_read_as_it_was_written() {
        let page = r#"{"schema":"s","node":"beta","events":[],"first":1,"last":9,"position":4,"more":true}"#;
        let history = r#"{"schema":"s","node":"beta","peer":"alpha","records":[]}"#;
        let preview = r#"{"schema":"s","node":"beta","group":"db","peer":"alpha","verdict":"idle","message":"m",
            "regions":0,"region_bytes":4096,"bytes":0,"group_bytes":1}"#;
        let plan = r#"{"schema":"s","node":"beta","file":"/f","steps":[{"action":"add","group":"db","text":"t","clients":0}],
            "needs_restart":["t"]}"#;
        let operation =
            r#"{"schema":"s","node":"beta","id":"beta-0f-7","verb":"sync","begun_unix_ms":5,"state":"running"}"#;
        for reply in [
            Reply::ok("db: logging"),
            Reply::Ok {
                message: "m".into(),
                warnings: vec!["w".into()],
                done_on: Some("beta".into()),
                unchanged: true,
                operation: Some("beta-0f-7".into()),
                may_be_missing: Some(Box::new(MissingView {
                    sequence: 7,
                    time: Some("2026-01-02T03:04:05Z".into()),
                    bytes: Some(4096),
                    seconds: Some(2.5),
                    heard_s: Some(9.0),
                })),
            },
            Reply::error(ErrorCode::UnknownGroup, "no"),
            Reply::refused(engine::RefusalCode::PeerAway, "db: the peer is not connected"),
            read(&format!("{STATUS},\"warnings\":[\"w\"]}}")).expect("a status"),
            Reply::Counters(serde_json::from_str(r#"{"schema":"s","node":"beta","counters":{"a":1}}"#).expect("some")),
            Reply::Recorded(Box::new(RecordedBatch { began: true, lost: 2, bytes: 3, trace: Vec::new() })),
            Reply::LinkHistory(serde_json::from_str(history).expect("one")),
            Reply::Clients(serde_json::from_str(r#"{"schema":"s","node":"beta","clients":[]}"#).expect("a list")),
            Reply::Marks(serde_json::from_str(r#"{"node":"beta","group":"db","marks":[]}"#).expect("a list")),
            Reply::Events(serde_json::from_str(page).expect("a page")),
            Reply::Operation(serde_json::from_str(operation).expect("one")),
            Reply::ConnectPreview(serde_json::from_str(preview).expect("one")),
            Reply::ConfigPlan(serde_json::from_str(plan).expect("one")),
        ] {
            let line = serde_json::to_string(&reply).expect("it is written");
            assert_eq!(read(&line).expect(&line), reply);
            let is_of_beta = !matches!(reply, Reply::Ok { .. } | Reply::Error { .. } | Reply::Recorded(_));
            assert_eq!(reply.node(), is_of_beta.then_some("beta"), "{line}");
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for line in ["", "{}", "[]", "{\"reply\":5}"] {
            assert!(read(line).is_err(), "{line}");
        }
        let kinds = ["status", "counters", "recorded", "link-history", "clients", "events", "operation"];
        for kind in ["dance", "ok", "error", "connect-preview"].into_iter().chain(kinds) {
            assert!(read(&format!("{{\"reply\":\"{kind}\"}}")).is_err(), "{kind} alone");
        }
        assert!(read(r#"{"reply":"ok","message":"m","x":[1,{"y":2}]}"#).is_ok(), "what is not known is passed over");
    }

    /// Of an authenticated peer that sends what nobody asked for the daemon kept gigabytes.
    #[test]
    fn a_list_of_sentences_has_a_bound() {
        let status = |count| format!("{STATUS},\"warnings\":[{}]}}", vec!["\"\""; count].join(","));
        assert!(read(&status(SENTENCES_MAX)).is_ok());
        let error = read(&status(SENTENCES_MAX + 1)).expect_err("too many").to_string();
        assert!(error.contains("expected at most 16384 texts"), "{error}");
    }

    #[test]
    fn an_answer_is_held_against_the_question() {
        let status = read(&format!("{STATUS}}}")).expect("a status");
        let look = ApiRequest::Status { group: None };
        let order = ApiRequest::Logging { group: "db".into(), volume: None };
        let on = ApiRequest::On { node: "beta".into(), order: Box::new(order.clone()) };
        assert!(status.answers(&look) && !status.answers(&order) && !status.answers(&ApiRequest::Counters));
        let done = Reply::ok("db: logging");
        assert!(done.answers(&order) && done.answers(&on) && !done.answers(&look));
        let refused = Reply::error(ErrorCode::Refused, "no");
        assert!(refused.answers(&look) && refused.answers(&order) && refused.answers(&on));
    }
}
