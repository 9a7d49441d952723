//! HOST[:PORT] as typed.

use std::net::{IpAddr, SocketAddr};

use super::Failure;

/// HOST, HOST:PORT, an IPv6 address with or without brackets; `port` where none is given.
///
/// # Errors
/// Usage: it is none of these.
pub fn with_port(host: &str, port: u16) -> Result<String, Failure> {
    if let Ok(ip) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port).to_string());
    }
    match host.rsplit_once(':') {
        None if !host.is_empty() => Ok(format!("{host}:{port}")),
        Some((name, port)) if !name.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(host.to_owned()),
        _ => Err(Failure::usage(format!(
            "{host:?} is no HOST[:PORT]; write one such as \"10.0.0.2:{port}\" or a node's name"
        ))),
    }
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
