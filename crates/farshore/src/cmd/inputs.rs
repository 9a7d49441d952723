//! What commands are given: hosts as typed, files, and keys that nobody else may read out of this process.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use units::quantities::{Bytes, show_bytes};

use crate::outcome::CommandFailure;

/// HOST, HOST:PORT, an IPv6 address with or without brackets; `port` where none is given.
///
/// # Errors
/// Usage: it is none of these.
pub fn with_port(host: &str, port: u16) -> Result<String, CommandFailure> {
    if let Ok(ip) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port).to_string());
    }
    match host.rsplit_once(':') {
        None if !host.is_empty() => Ok(format!("{host}:{port}")),
        Some((name, port)) if !name.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(host.to_owned()),
        _ => Err(CommandFailure::usage(format!(
            "{host:?} is no HOST[:PORT]; write one such as \"10.0.0.2:{port}\" or a node's name"
        ))),
    }
}

/// A file that a person or a command wrote, of at most so many bytes.
pub fn read_bounded(file: &Path, bytes_max: u64) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("it cannot be read: {error}");
    let mut text = String::new();
    let read = File::open(file).map_err(cannot)?.take(bytes_max + 1).read_to_string(&mut text).map_err(cannot)?;
    if read as u64 > bytes_max {
        let most = show_bytes(Bytes(bytes_max));
        return Err(format!("it is larger than {most}; is it the right file?"));
    }
    Ok(text)
}

/// Before the first key is read: a core dump, or whoever may trace this user's processes, would have them all.
pub fn forbid_core_dumps() -> Result<(), CommandFailure> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| format!("the kernel does not take that nobody may dump this process: {error}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_added_where_none_was_given() {
        for (given, meant) in [
            ("db2", "db2:7337"),
            ("db2:99", "db2:99"),
            ("10.0.0.2", "10.0.0.2:7337"),
            ("10.0.0.2:99", "10.0.0.2:99"),
            ("::1", "[::1]:7337"),
            ("[::1]", "[::1]:7337"),
            ("[::1]:99", "[::1]:99"),
        ] {
            assert_eq!(with_port(given, 7337).ok().as_deref(), Some(meant));
        }
        assert!(["", "db2:", "db2:x", ":99", "db2:0"].into_iter().all(|bad| with_port(bad, 7337).is_err()));
    }
}
