//! What NBD clients send: request headers, options, and whole handshakes.

use host::frontend::{ExportInfo, VolumeHandle};
use host::nbd::negotiation::{Encryption, Negotiation, NegotiationStep};
use host::nbd::proto::{
    self, ClientOption, NbdCommand, NbdRequest, OPTION_BYTES, OPTION_DATA_BYTES_MAX, OptionHeader, REQUEST_BYTES,
    REQUEST_MAGIC, option,
};

use crate::Seed;

/// Rule: a header that is believed comes back when it is written again; unknown commands stay unknown.
pub fn nbd_request(bytes: &[u8]) {
    let Some(header) = bytes.first_chunk::<REQUEST_BYTES>() else { return };
    let mut mended = *header;
    mended[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    for header in [*header, mended] {
        match proto::parse_request(&header) {
            Ok(request) => assert_eq!(proto::parse_request(&proto::encode_request(&request)), Ok(request)),
            Err(malformed) => assert!(!malformed.0.is_empty()),
        }
    }
}

pub fn nbd_request_seeds() -> Vec<Seed> {
    let request = |command, flags, offset, length| {
        proto::encode_request(&NbdRequest { flags, command, handle: 0x0102_0304_0506_0708, offset, length }).to_vec()
    };
    vec![
        ("read", request(NbdCommand::Read, 0, 4096, 512)),
        ("write_fua", request(NbdCommand::Write, proto::flag::FUA, 1 << 40, 32 << 20)),
        ("zeroes", request(NbdCommand::WriteZeroes, proto::flag::NO_HOLE | proto::flag::FAST_ZERO, u64::MAX, u32::MAX)),
        ("unknown", request(NbdCommand::Unknown, u16::MAX, 0, 0)),
    ]
}

/// Rule: names lie inside the data and inside the protocol's limit. The first four bytes are the kind of option.
pub fn nbd_option(bytes: &[u8]) {
    let Some((kind, data)) = bytes.split_first_chunk::<4>() else { return };
    let name = match proto::parse_option(u32::from_be_bytes(*kind) % 16, data) {
        Ok(ClientOption::ExportName(name)) => name,
        Ok(ClientOption::Info(wanted) | ClientOption::Go(wanted)) => wanted.export,
        Ok(ClientOption::ListMeta(query) | ClientOption::SetMeta(query)) => query.export,
        Ok(_) => "",
        Err(malformed) => malformed.0,
    };
    assert!(name.len() <= proto::STRING_BYTES_MAX);
}

fn info_data(name: &str, facts: &[u16]) -> Vec<u8> {
    let facts_bytes: Vec<u8> = facts.iter().flat_map(|fact| fact.to_be_bytes()).collect();
    let (length, count) = (name.len() as u32, facts.len() as u16);
    [&length.to_be_bytes()[..], name.as_bytes(), &count.to_be_bytes(), &facts_bytes].concat()
}

fn meta_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat();
    let all: Vec<u8> = queries.iter().flat_map(|query| text(query)).collect();
    [text(name), (queries.len() as u32).to_be_bytes().to_vec(), all].concat()
}

pub fn nbd_option_seeds() -> Vec<Seed> {
    let seed = |kind: u32, data: &[u8]| [&kind.to_be_bytes()[..], data].concat();
    vec![
        ("export_name", seed(option::EXPORT_NAME, b"db/data")),
        ("go", seed(option::GO, &info_data("db/data", &[1, 2, 3]))),
        ("info", seed(option::INFO, &info_data("", &[]))),
        ("list_meta", seed(option::LIST_META_CONTEXT, &meta_data("db/data", &["base:"]))),
        ("set_meta", seed(option::SET_META_CONTEXT, &meta_data("db/data", &[proto::ALLOCATION, "x:y"]))),
    ]
}

fn exports() -> Vec<ExportInfo> {
    let export = |number: u32, name: &str| ExportInfo {
        handle: VolumeHandle(number),
        name: name.into(),
        description: "a volume".into(),
        size_bytes: 1 << 30,
        block_min_bytes: 512,
        block_preferred_bytes: 4096,
        block_max_bytes: 32 << 20,
    };
    vec![export(0, "db/data"), export(1, "db/log")]
}

/// Walks a handshake as the server does, at a listener with or without TLS. How it ended.
fn negotiate(bytes: &[u8], encryption: Encryption) -> Option<NegotiationStep> {
    let exports = exports();
    let (flags, mut rest) = bytes.split_first_chunk::<4>()?;
    let mut negotiation = Negotiation::new(encryption);
    let mut is_closed = encryption == Encryption::Required;
    negotiation.client_flags(u32::from_be_bytes(*flags)).ok()?;
    while let Some((header, behind)) = rest.split_first_chunk::<OPTION_BYTES>() {
        let header: OptionHeader = proto::parse_option_header(header).ok()?;
        let mut out = Vec::new();
        let admitted = negotiation.admit(header, &exports[..], &mut out);
        assert!(admitted.is_err() || header.length <= OPTION_DATA_BYTES_MAX, "data is bounded before it is read");
        admitted.ok()?;
        let (data, behind) = behind.split_at_checked(header.length as usize)?;
        match negotiation.answer(header.kind, data, &exports[..], &mut out) {
            NegotiationStep::Continue => assert!(out.len() < 64 << 10, "an answer is short"),
            NegotiationStep::Encrypt => {
                assert_ne!(encryption, Encryption::Off, "what is not there is not begun");
                negotiation.encrypted();
                is_closed = false;
            }
            NegotiationStep::Enter(entry) => {
                assert!(!is_closed, "nobody enters in the clear where TLS is required");
                let export =
                    exports.iter().find(|export| export.name == entry.name).expect("only what exists is entered");
                negotiation.welcome(&entry, export, &mut out);
                negotiation.turn_away(&entry, &mut out);
                return Some(NegotiationStep::Enter(entry));
            }
            close => return Some(close),
        }
        rest = behind;
    }
    None
}

/// Rule: nobody enters but by a name that exists, nor in the clear where TLS is required; no data is asked for beyond the
/// limit, every answer is short.
pub fn nbd_handshake(bytes: &[u8]) {
    for encryption in [Encryption::Off, Encryption::Offered, Encryption::Required] {
        negotiate(bytes, encryption);
    }
}

pub fn nbd_handshake_seeds() -> Vec<Seed> {
    let option = |kind: u32, data: &[u8]| {
        let mut out = Vec::new();
        proto::put_option(&mut out, kind, data);
        out
    };
    let talk = |flags: u32, options: &[Vec<u8>]| [&flags.to_be_bytes()[..], &options.concat()].concat();
    let structured = option(option::STRUCTURED_REPLY, b"");
    let meta = option(option::SET_META_CONTEXT, &meta_data("db/data", &[proto::ALLOCATION]));
    let go = option(option::GO, &info_data("db/data", &[1, 2, 3]));
    vec![
        ("starttls", talk(3, &[option(option::LIST, b""), option(option::STARTTLS, b""), go.clone()])),
        ("go", talk(3, &[option(option::LIST, b""), structured, meta, go])),
        ("export_name", talk(1, &[option(option::EXPORT_NAME, b"db/log")])),
        ("old_client", talk(0, &[option(option::EXPORT_NAME, b"db/log")])),
        ("abort", talk(3, &[option(option::INFO, &info_data("none", &[])), option(option::ABORT, b"bye")])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_reach_the_end() {
        for (name, bytes) in nbd_handshake_seeds() {
            assert!(negotiate(&bytes, Encryption::Off).is_some(), "{name}");
        }
    }
}
