//! Sentences about ports: which one of which node, seen from where, and how to test it.

use std::io;
use std::net::SocketAddr;

use units::exact::time_text;

use super::bell::Unheard;
use super::line::LineError;
use super::token::JoinToken;

/// Seconds since 1970, by this machine's clock.
pub fn now_unix_s() -> u64 {
    super::since_1970().as_secs()
}

/// What is left to do once a token was shown, whatever came of it.
pub fn used(why: &str) -> String {
    format!(
        "{why}. The token is used: join by the line that 'farshore up' printed last on the first node; if it has ended, type it there again"
    )
}

/// Why a port of this machine cannot be listened on.
pub fn cannot_listen(address: SocketAddr, error: &io::Error) -> String {
    let (ip, port) = (address.ip(), address.port());
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "port {port} of {ip} is taken by another program on this machine: stop it ('ss -ltnp sport = :{port}' names it), or choose \
             another port, as in --address {}",
            SocketAddr::new(ip, port.wrapping_add(1).max(1024))
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!(
                "{ip} is no address of this machine ('ip -brief address' lists them); give one of its own with --address"
            )
        }
        _ => format!("nothing can listen on {address} here: {error}"),
    }
}

/// Why the joining node's port is not reached from the waiting node; the names are those of the nodes.
pub fn port_closed(waiting: &str, joining: &str, address: SocketAddr, unheard: &Unheard) -> String {
    let (ip, port) = (address.ip(), address.port());
    let how = match unheard {
        Unheard::Another => {
            "something else answers there: the address belongs to another machine too, or is translated".to_owned()
        }
        Unheard::Closed(error) => closed(error),
    };
    format!(
        "port {port} of {joining} ({ip}) is not reached from {waiting}: {how}. Let TCP to port {port} of {joining} through, from \
         {waiting}; test it on {waiting} with 'nc -vz {ip} {port}' while 'nc -lk {port}' runs on {joining}; then type \
         'farshore join' again"
    )
}

/// Why the waiting node is not reached by its token, or does not take it.
pub fn not_joined(token: &JoinToken, error: &LineError, now_unix_s: u64) -> String {
    let again = "type 'farshore up' on the first node again: it prints a new token, or says that all is done";
    let why = not_taken(token, error, again);
    if !token.has_ended(now_unix_s) {
        return why;
    }
    let (end, now) = (token.end_text(), time_text(now_unix_s.saturating_mul(1_000_000_000)));
    format!(
        "the join token is old: it ended at {end}, and by this machine's clock it is {now}; {again}. Should that clock be wrong: {why}"
    )
}

fn not_taken(token: &JoinToken, error: &LineError, again: &str) -> String {
    let address = token.address();
    let (ip, port) = (address.ip(), address.port());
    match error {
        LineError::Dial(error) if error.kind() == io::ErrorKind::ConnectionRefused => format!(
            "nobody waits for this token at {address}: the token was used, or 'farshore up' does not run there any more; {again}. If it \
             does run there, a firewall refuses: test it here with 'nc -vz {ip} {port}'"
        ),
        LineError::Dial(error) => format!(
            "port {port} of the first node ({ip}) is not reached from this machine: {}. Let TCP to port {port} of {ip} through, from this \
             machine; test it here with 'nc -vz {ip} {port}' while 'farshore up' waits there",
            closed(error)
        ),
        LineError::NotTheOne(_) => format!(
            "who answers at {address} does not take this token: it was used, or is of an earlier 'farshore up' ({error}); {again}"
        ),
        LineError::AnotherToken(_) => format!(
            "'farshore up' at {address} waits for another token: this one was used, or is of an earlier 'farshore up'; take the line that \
             it printed last"
        ),
        LineError::Late => format!(
            "{address} took the connection and said nothing for too long: another node that joins there is heard first, or the port is \
             another program's. Try again, by the line that 'farshore up' printed last"
        ),
        LineError::Proof(_) => format!(
            "{address} does not take this token: its secret is another one than 'farshore up' waits for there; copy the line that it \
             printed last"
        ),
        // Whether the proof arrived is known there only.
        other => format!(
            "joining by {address} broke off: {other}. The token may be used: join by the line that 'farshore up' printed last on the first \
             node; if it does not run there any more, type it again"
        ),
    }
}

fn closed(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "the connection was refused (nobody listens, or a firewall rejects it)".to_owned()
        }
        io::ErrorKind::TimedOut => "no answer (a firewall drops it, or the machine is off)".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_told(text: &str, parts: &[&str]) {
        for part in parts {
            assert!(text.contains(part), "no {part:?} in: {text}");
        }
    }

    #[test]
    fn a_closed_port_is_named_with_its_node_and_a_test() {
        let address = "10.0.0.2:7337".parse().expect("an address");
        let parts = ["port 7337 of beta (10.0.0.2) is not reached from alpha", "on alpha with 'nc -vz 10.0.0.2 7337'"];
        let timed_out = Unheard::Closed(io::ErrorKind::TimedOut.into());
        is_told(&port_closed("alpha", "beta", address, &timed_out), &parts);
        is_told(&port_closed("alpha", "beta", address, &timed_out), &["a firewall drops it"]);
        is_told(&port_closed("alpha", "beta", address, &Unheard::Another), &["something else answers there"]);
        let refused = Unheard::Closed(io::ErrorKind::ConnectionRefused.into());
        is_told(&port_closed("alpha", "beta", address, &refused), &["the connection was refused"]);
        is_told(&cannot_listen(address, &io::ErrorKind::AddrInUse.into()), &["port 7337 of 10.0.0.2 is taken", "7338"]);
        is_told(&cannot_listen(address, &io::ErrorKind::AddrNotAvailable.into()), &["is no address of this machine"]);
    }

    #[test]
    fn a_token_that_is_not_taken_says_why() {
        let token = JoinToken::new("10.0.0.1:7337".parse().expect("an address"), 1000, [0; 32], [0; 16]);
        let told = |error: LineError, now| not_joined(&token, &error, now);
        let dial = |kind: io::ErrorKind| LineError::Dial(kind.into());
        is_told(&told(dial(io::ErrorKind::ConnectionRefused), 1000), &["is old: it ended at 1970-01-01T00:16:40"]);
        // A clock that is ahead hides nothing.
        let ahead =
            ["by this machine's clock it is 1970-01-01T00:33:20", "Should that clock be wrong", "a firewall drops it"];
        is_told(&told(dial(io::ErrorKind::TimedOut), 2000), &ahead);
        is_told(&told(dial(io::ErrorKind::ConnectionRefused), 999), &["the token was used", "'nc -vz 10.0.0.1 7337'"]);
        let parts =
            ["port 7337 of the first node (10.0.0.1) is not reached from this machine", "'nc -vz 10.0.0.1 7337'"];
        is_told(&told(dial(io::ErrorKind::TimedOut), 999), &parts);
        is_told(&told(LineError::NotTheOne("alert".to_owned()), 999), &["it was used", "'farshore up'"]);
        is_told(&told(LineError::AnotherToken("alert".to_owned()), 999), &["this one was used", "printed last"]);
        let late = told(LineError::Late, 999);
        is_told(&late, &["said nothing for too long", "is heard first"]);
        assert!(!late.contains("used"), "{late}");
        let broken = told(LineError::Broken(io::ErrorKind::ConnectionReset.into()), 999);
        is_told(&broken, &["broke off", "The token may be used", "printed last"]);
    }
}
