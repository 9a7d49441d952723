//! How a second machine joins the first: an invitation that is used once, a line that both ends have proven, and what they say on it.
//!
//! ```text
//! joining node                                     waiting node ('farshore up')
//!   TLS 1.3; the certificate shown is the one that the token names
//!   proof of the token's secret, bound to this connection      <->
//!                                   <-  Offer    cluster, group, volumes with sizes, authority, time
//!   Wish   name, address, devices with sizes, request, time  ->
//!                                   (dials the address of the wish; signs)
//!                                   <-  Grant    configuration, certificate
//!   (writes its files)
//!   Written                         ->
//!                                   (writes its configuration)
//!                                   <-  Done
//! ```
//!
//! What must hold:
//! * nothing of a stranger's is looked at before the secret is proven, and a stranger learns nothing;
//! * a token is good for one conversation, whatever comes of it: it may have been seen meanwhile on the machine where it was typed, and
//!   names and addresses prove nothing there. The waiting node goes on with a new one until the same end;
//! * no command line of Farshore's ever holds a token: every user of a machine can read those. The line that is to be typed holds it, so it
//!   says not to make it a word of `ssh` or `sudo`;
//! * no private key travels: the joining node makes its own, and asks for a certificate;
//! * until the Grant is read, nothing is written on the joining node; until `Written`, no configuration on the waiting one. Broken off
//!   anywhere, both are typed again, and what was written before is used again if it is the same;
//! * a Grant is given once for each token, and what it has the joining node write was agreed before.

pub mod bell;
pub mod devices;
pub mod door;
pub mod joining;
pub mod line;
pub mod token;
pub mod waiting;
pub mod words;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// What the waiting node has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Offer {
    program: String,
    cluster: String,
    group: String,
    node: String,
    /// In PEM form.
    authority: String,
    volumes: Vec<OfferedVolume>,
    /// Milliseconds since 1970 at the waiting node.
    unix_ms: u64,
}

/// A volume of the group, and how large it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfferedVolume {
    name: String,
    bytes: u64,
}

/// What the joining node is to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wish {
    program: String,
    node: String,
    address: SocketAddr,
    state: PathBuf,
    devices: Vec<WishedDevice>,
    /// A request for a certificate, in PEM form.
    request: String,
    /// What its port says to whoever dials it, so that nobody else's is taken for it.
    bell: String,
    /// Milliseconds since 1970 at the joining node.
    unix_ms: u64,
}

/// A volume's device on the joining node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WishedDevice {
    volume: String,
    path: PathBuf,
    bytes: u64,
}

/// What the joining node gets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// The configuration of both.
    config: String,
    /// In PEM form.
    certificate: String,
    /// In PEM form.
    authority: String,
    /// What either operator should know.
    remarks: Vec<String>,
}

/// From the waiting node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ToJoining {
    Offer(Offer),
    Grant(Grant),
    Done,
    /// A sentence.
    Refused(String),
}

/// From the joining node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ToWaiting {
    Wish(Wish),
    Written,
    /// It does not join; a sentence.
    Left(String),
}

/// Since 1970, by this machine's clock.
fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn unix_ms() -> u64 {
    u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX)
}
