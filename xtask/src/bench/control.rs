//! A daemon's control socket: one line of JSON there, one back.

use anyhow::Result;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Asks a daemon.
///
/// # Errors
/// Nobody listens there, or the answer is no JSON.
pub fn ask(socket: &Path, request: &Value) -> Result<Value> {
    let mut stream = UnixStream::connect(socket)?;
    writeln!(stream, "{request}")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}
