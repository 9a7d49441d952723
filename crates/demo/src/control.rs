//! A daemon's control socket, as docs/book/cli.md tells of it: one JSON object as a line out, one back.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

/// A daemon may take its time over a promotion; after this it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(120);

/// The code of what the state does not allow.
pub const REFUSED: &str = "refused";

/// A group's states that matter here.
pub mod state {
    pub const FAILED: &str = "failed";
    pub const LOGGING: &str = "logging";
    pub const REPLICATING: &str = "replicating";
}

#[derive(Debug, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum DemoReply {
    Ok {},
    Error {
        message: String,
        code: String,
    },
    Status {
        groups: Vec<DemoStatus>,
    },
    #[serde(other)]
    Other,
}

/// Of a group's status, what the demonstration looks at.
#[derive(Debug, Deserialize)]
pub struct DemoStatus {
    pub state: String,
    pub reason: Option<String>,
    pub volumes: Vec<DemoVolume>,
    pub queue: DemoQueue,
    pub peers: Vec<DemoPeer>,
    pub sync: Option<Sync>,
}

#[derive(Debug, Deserialize)]
pub struct DemoVolume {
    pub dirty_bytes: u64,
}

#[derive(Debug, Deserialize)]
pub struct DemoQueue {
    pub bytes: u64,
}

#[derive(Debug, Deserialize)]
pub struct DemoPeer {
    pub link: String,
    pub lag_bytes: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub struct Sync {
    pub done_bytes: u64,
    pub total_bytes: u64,
    pub snapshot: Option<u64>,
}

impl DemoStatus {
    /// `is queuing: the peer is unreachable`, to follow a group's name.
    pub fn explained(&self) -> String {
        match &self.reason {
            Some(reason) => format!("is {}: {reason}", self.state),
            None => format!("is {}", self.state),
        }
    }
}

/// # Errors
/// Nobody answers in time, or not in the words of docs/book/cli.md.
pub fn ask(socket: &Path, request: &Value) -> Result<DemoReply> {
    let shown_path = socket.display();
    let mut stream = UnixStream::connect(socket).with_context(|| format!("no daemon answers at {shown_path}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    let answer =
        stream.write_all(format!("{request}\n").as_bytes()).and_then(|()| BufReader::new(stream).read_line(&mut line));
    answer.with_context(|| format!("the daemon at {shown_path} did not answer"))?;
    serde_json::from_str(&line).with_context(|| format!("what answers at {shown_path} said {line:?}"))
}
