//! The asking side of the control socket: one line out, one line back, and sentences when nobody answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use settings::limits::{API_IO_TIMEOUT, API_REPLY_BYTES_MAX};

use super::refusals::DeskRefusal;
use super::{ApiRequest, RecordedBatch, Reply};

/// A daemon may take its time over a promote or demote; after this it counts as stuck.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);
/// It only has to look.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);
/// A deadline that has passed, or nearly, still leaves the daemon so long: one that runs answers in less.
const TIMEOUT_MIN: Duration = Duration::from_millis(200);

/// Why no answer came.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// Nobody listens; a daemon that is being restarted looks so too.
    #[error("no daemon answers at {}: {reason}; start it with: farshore serve --config FILE", socket.display())]
    NotRunning { socket: PathBuf, reason: &'static str },
    /// Nothing was sent there.
    #[error("the control socket {} cannot be used: {source}{advice}", socket.display())]
    NotConnected { socket: PathBuf, source: std::io::Error, advice: &'static str },
    #[error("the control socket {} cannot be used: {source}", socket.display())]
    Socket { socket: PathBuf, source: std::io::Error },
    #[error("the daemon at {} did not answer in time: it hangs, or the machine is too busy; look at its log", socket.display())]
    Slow { socket: PathBuf },
    #[error("the daemon at {} closed the connection without an answer; look at its log", socket.display())]
    Closed { socket: PathBuf },
    #[error("what answers at {} does not speak this version's language: {reason}", socket.display())]
    Garbled { socket: PathBuf, reason: String },
}

impl Unanswered {
    /// The same for programs: where nothing was sent, nothing can have been done.
    pub fn refusal(&self) -> DeskRefusal {
        match self {
            Unanswered::NotRunning { .. } | Unanswered::NotConnected { .. } => DeskRefusal::NotReached,
            Unanswered::Socket { .. }
            | Unanswered::Slow { .. }
            | Unanswered::Closed { .. }
            | Unanswered::Garbled { .. } => DeskRefusal::NoAnswer,
        }
    }
}

/// A connection to a running daemon.
pub struct ControlClient {
    socket: PathBuf,
    stream: BufReader<UnixStream>,
}

impl ControlClient {
    /// # Errors
    /// [`Unanswered::NotRunning`] when nobody listens, else what the system said.
    pub fn connect(socket: &Path) -> Result<Self, Unanswered> {
        let stream = UnixStream::connect(socket).map_err(|source| not_connected(socket, source))?;
        let timed = stream.set_write_timeout(Some(API_IO_TIMEOUT));
        timed.map_err(|source| Unanswered::NotConnected { socket: socket.to_owned(), source, advice: "" })?;
        Ok(Self { socket: socket.to_owned(), stream: BufReader::new(stream) })
    }

    /// Asks once. The connection serves further requests after an answer, and no longer after an error.
    ///
    /// # Errors
    /// When no readable answer came; a refusal is a [`Reply::Error`], not an error here.
    pub fn ask(&mut self, request: &ApiRequest) -> Result<Reply, Unanswered> {
        self.ask_within(REPLY_TIMEOUT, request)
    }

    /// Asks as [`ControlClient::ask`] does, with no more than this patience.
    ///
    /// # Errors
    /// As there.
    pub fn ask_within(&mut self, patience: Duration, request: &ApiRequest) -> Result<Reply, Unanswered> {
        let is_look = matches!(request, ApiRequest::Status { .. } | ApiRequest::StatusOfBoth { .. });
        let patience = patience.min(if is_look { STATUS_TIMEOUT } else { REPLY_TIMEOUT }).max(TIMEOUT_MIN);
        let timed = self.stream.get_ref().set_read_timeout(Some(patience));
        timed.map_err(|source| unusable(&self.socket, source))?;
        let mut line = serde_json::to_vec(request).map_err(|error| self.garbled(error.to_string()))?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).map_err(|source| unusable(&self.socket, source))?;
        let mut answer = Vec::new();
        let limit = API_REPLY_BYTES_MAX as u64 + 1;
        let read = (&mut self.stream).take(limit).read_until(b'\n', &mut answer);
        read.map_err(|source| unusable(&self.socket, source))?;
        match answer.last() {
            None => {
                return Err(Unanswered::Closed { socket: self.socket.clone() });
            }
            Some(b'\n') => {}
            Some(_) if answer.len() > API_REPLY_BYTES_MAX => {
                return Err(self.garbled(format!("its answer is longer than {API_REPLY_BYTES_MAX} bytes")));
            }
            Some(_) => {
                return Err(Unanswered::Closed { socket: self.socket.clone() });
            }
        }
        let mut reply = Reply::read(&answer).map_err(|error| self.garbled(error.to_string()))?;
        if let Reply::Recorded(recorded) = &mut reply {
            if recorded.bytes > RecordedBatch::BYTES_MAX {
                return Err(self.garbled(format!("{} bytes are to follow", recorded.bytes)));
            }
            recorded.trace = vec![0; recorded.bytes];
            self.stream.read_exact(&mut recorded.trace).map_err(|source| unusable(&self.socket, source))?;
        }
        Ok(reply)
    }

    fn garbled(&self, reason: String) -> Unanswered {
        Unanswered::Garbled { socket: self.socket.clone(), reason }
    }
}

/// There is no connection.
fn not_connected(socket: &Path, source: std::io::Error) -> Unanswered {
    use std::io::ErrorKind as Kind;
    let socket = socket.to_owned();
    match source.kind() {
        Kind::NotFound => Unanswered::NotRunning { socket, reason: "the socket does not exist" },
        Kind::ConnectionRefused if !is_socket(&socket) => {
            Unanswered::NotConnected { socket, source, advice: "; that is no socket, name the daemon's control socket" }
        }
        Kind::ConnectionRefused => {
            Unanswered::NotRunning { socket, reason: "nobody listens there (it was not stopped cleanly)" }
        }
        Kind::PermissionDenied => {
            Unanswered::NotConnected { socket, source, advice: "; run the command as the user the daemon runs as" }
        }
        _ => Unanswered::NotConnected { socket, source, advice: "" },
    }
}

/// There was a connection, and something may have been heard over it.
fn unusable(socket: &Path, source: std::io::Error) -> Unanswered {
    use std::io::ErrorKind as Kind;
    let socket = socket.to_owned();
    match source.kind() {
        Kind::BrokenPipe | Kind::ConnectionReset => Unanswered::Closed { socket },
        Kind::WouldBlock | Kind::TimedOut => Unanswered::Slow { socket },
        _ => Unanswered::Socket { socket, source },
    }
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket())
}
