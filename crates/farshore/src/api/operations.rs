//! Operations: requests that change something, each with a name by which its end can be waited for.

use std::fmt;

use serde::{Deserialize, Serialize};
use units::exact::{show_seconds, show_size};

use super::{OperationState, RefusalView};

/// The schema of [`OperationView`].
pub const OPERATION_SCHEMA: &str = "farshore-operation/1";

/// One operation, as the daemon that carries it out knows it: the answer to the request `operation` on the control socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OperationView {
    /// name and version of this schema
    pub schema: String,
    /// the node that carries it out
    pub node: String,
    /// its name
    pub id: String,
    /// the command, such as `sync`
    pub verb: String,
    /// left out where the operation is about the node as a whole
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// milliseconds since 1970, by the node's clock: when it began
    pub begun_unix_ms: u64,
    /// where it is
    pub state: OperationState,
    /// what it was answered, or what became of it since; left out while there is no answer
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// sentences of the answer; left out when empty
    #[serde(default, deserialize_with = "super::sentences::sentences", skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// why it did not reach its goal, or what a verify found; left out where it reached its goal, or runs
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<RefusalView>,
}

/// The schema of [`AnswerList`].
pub const ANSWER_SCHEMA: &str = "farshore-answer/1";

/// What a command that changes something prints with `--json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AnswerList {
    /// name and version of this schema
    pub schema: String,
    /// the exit code: the highest that one of the answers has by itself
    pub exit: u8,
    /// one for each group or operation, in the order typed
    pub answers: Vec<AnswerView>,
}

/// What came of one order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AnswerView {
    /// the command, such as `sync`
    pub verb: String,
    /// left out where the order is about the node as a whole, where only the operation is known, or where `--all` found no daemon that names
    /// the groups
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// the node where it is done, if that is another one; of `wait OPERATION` always
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_on: Option<String>,
    /// the name of the operation, by which its end can be waited for; left out where no daemon took the command
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// what came of it; a sync or a verify that was begun is `running`
    pub result: OperationState,
    /// the sentence for people
    pub message: String,
    /// sentences; left out when empty
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// why the goal was not reached, or what a verify found; left out where the goal was reached, or may be
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<RefusalView>,
    /// after `promote --force`, where acknowledged writes may be missing; else left out
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_be_missing: Option<MissingView>,
}

/// How far the copy that was promoted by force may be behind what the other node has acknowledged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MissingView {
    /// the last write that is here
    pub sequence: u64,
    /// RFC 3339, the primary's clock: when that was written; `null`: no time is known
    #[serde(default)]
    pub time: Option<String>,
    /// bytes by which the copy was behind when the primary was heard last; `null`: it was not heard since this daemon's start
    #[serde(default)]
    pub bytes: Option<u64>,
    /// seconds by which it was behind then; `null`: not known
    #[serde(default)]
    pub seconds: Option<f64>,
    /// seconds before the promotion: when the primary was heard last; how much it has acknowledged since is not known
    #[serde(default)]
    pub heard_s: Option<f64>,
}

impl MissingView {
    /// The same as a sentence.
    pub fn words(&self) -> String {
        let Some(heard_s) = self.heard_s else {
            return "how much is missing is not known: the primary has said nothing since this daemon started"
                .to_owned();
        };
        let behind = match (self.bytes, self.seconds) {
            (Some(bytes), Some(seconds)) => format!("{}, {} behind", show_size(bytes), show_seconds(seconds)),
            (Some(bytes), None) => format!("{} behind", show_size(bytes)),
            (None, _) => "behind by what is not known".to_owned(),
        };
        let heard = show_seconds(heard_s);
        format!(
            "the copy was {behind} when the primary was heard last, {heard} before; what came after that is not known"
        )
    }
}

/// The name of an operation: the node, the run of its daemon, and a number within that, as in `alpha-5f3a9c1e07b2-12`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationId {
    pub node: String,
    /// Drawn by chance at each start: no two runs of a node have the same.
    pub run: String,
    pub number: u64,
}

impl OperationId {
    /// `None`: it is no such name.
    pub fn parse(text: &str) -> Option<OperationId> {
        let mut parts = text.rsplitn(3, '-');
        let (number, run, node) = (parts.next()?, parts.next()?, parts.next()?);
        let is_hex = !run.is_empty() && run.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        let number = number.parse().ok().filter(|_| is_number && is_hex && !node.is_empty())?;
        Some(OperationId { node: node.to_owned(), run: run.to_owned(), number })
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.node, self.run, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_missing_is_said_in_numbers() {
        let heard = MissingView { sequence: 7, time: None, bytes: Some(4096), seconds: Some(2.0), heard_s: Some(9.0) };
        let said = heard.words();
        assert!(
            said.starts_with("the copy was 4 KiB, 2.0 s behind when the primary was heard last, 9.0 s before"),
            "{said}"
        );
        let unheard = MissingView { bytes: None, seconds: None, heard_s: None, ..heard };
        assert!(unheard.words().contains("not known: the primary has said nothing"), "{}", unheard.words());
    }

    #[test]
    fn a_name_tells_where_the_operation_is() {
        for text in ["alpha-5f3a9c1e07b2-12", "db-1.example-0-18446744073709551615"] {
            assert_eq!(OperationId::parse(text).expect(text).to_string(), text);
        }
        assert_eq!(OperationId::parse("db-1-0f-7").expect("one").node, "db-1");
        let too_large = "alpha-0f-99999999999999999999";
        for text in ["", "db", "alpha-0f", "-0f-7", "alpha--7", "alpha-0g-7", "alpha-0f-", "alpha-0f-+7", too_large] {
            assert_eq!(OperationId::parse(text), None, "{text}");
        }
    }
}
