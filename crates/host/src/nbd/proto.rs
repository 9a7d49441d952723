//! NBD's bytes, both ways: constants, and total functions between bytes and values. No I/O, no state.
//!
//! Integers are big-endian throughout the protocol. A function here accepts any bytes of its length: it answers with a
//! value or says why it cannot, and never allocates more than the bytes it was given.

use crate::frontend::RequestFailure;

/// `NBDMAGIC`, the server's first word.
pub const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`, which opens every option too.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags, server's and client's: the same two bits in both directions.
pub(crate) const FLAG_FIXED_NEWSTYLE: u16 = 1;
pub(crate) const FLAG_NO_ZEROES: u16 = 1 << 1;

/// Bytes of a request header, an option header and its reply, a simple reply, a structured chunk's header.
pub const REQUEST_BYTES: usize = 28;
pub const OPTION_BYTES: usize = 16;
pub const OPTION_REPLY_BYTES: usize = 20;
pub const SIMPLE_REPLY_BYTES: usize = 16;
pub const CHUNK_BYTES: usize = 20;
/// Zeroes after an `EXPORT_NAME` answer, unless the client asked to be spared.
pub(crate) const EXPORT_NAME_PADDING_BYTES: usize = 124;

/// The protocol's own limit for names and other strings, in bytes.
pub const STRING_BYTES_MAX: usize = 4096;
/// Largest option this server reads: far above any real one, small enough to hold for every connection at once.
pub const OPTION_DATA_BYTES_MAX: u32 = 64 << 10;
/// Largest READ or WRITE payload, which clients assume when they are told nothing.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

pub mod reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    /// Every reply with this bit is an error.
    pub const ERROR: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERROR + 1;
    pub const ERR_POLICY: u32 = ERROR + 2;
    pub const ERR_INVALID: u32 = ERROR + 3;
    pub const ERR_TLS_REQD: u32 = ERROR + 5;
    pub const ERR_UNKNOWN: u32 = ERROR + 6;
    pub const ERR_TOO_BIG: u32 = ERROR + 9;
}

pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// What an export can do, told once at the end of the handshake.
pub mod transmission {
    pub const HAS_FLAGS: u16 = 1;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Flags of one request.
pub mod flag {
    pub const FUA: u16 = 1;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
}

pub mod chunk {
    pub const FLAG_DONE: u16 = 1;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const BLOCK_STATUS: u16 = 5;
    pub const ERROR: u16 = (1 << 15) + 1;
}

/// The one metadata context offered, and the number that stands for it in block-status chunks.
pub const ALLOCATION: &str = "base:allocation";
pub const ALLOCATION_ID: u32 = 1;
pub(crate) const STATE_HOLE: u32 = 1;
pub(crate) const STATE_ZERO: u32 = 1 << 1;

/// The commands of the transmission phase: a closed list, which is also the order of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NbdCommand {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    Cache,
    WriteZeroes,
    BlockStatus,
    /// Any number the protocol has not given out: always refused, counted all the same.
    Unknown,
}

impl NbdCommand {
    pub const ALL: [NbdCommand; 9] = [
        NbdCommand::Read,
        NbdCommand::Write,
        NbdCommand::Disconnect,
        NbdCommand::Flush,
        NbdCommand::Trim,
        NbdCommand::Cache,
        NbdCommand::WriteZeroes,
        NbdCommand::BlockStatus,
        NbdCommand::Unknown,
    ];

    fn from_wire(number: u16) -> NbdCommand {
        match number {
            0..=7 => NbdCommand::ALL[usize::from(number)],
            _ => NbdCommand::Unknown,
        }
    }

    /// The number on the wire; `None` for [`NbdCommand::Unknown`], which has none of its own.
    pub(crate) fn to_wire(self) -> Option<u16> {
        (self != NbdCommand::Unknown).then_some(self as u16)
    }

    pub fn name(self) -> &'static str {
        match self {
            NbdCommand::Read => "read",
            NbdCommand::Write => "write",
            NbdCommand::Disconnect => "disconnect",
            NbdCommand::Flush => "flush",
            NbdCommand::Trim => "trim",
            NbdCommand::Cache => "cache",
            NbdCommand::WriteZeroes => "write-zeroes",
            NbdCommand::BlockStatus => "block-status",
            NbdCommand::Unknown => "unknown",
        }
    }
}

/// The error numbers that NBD allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errno {
    Permission = 1,
    Io = 5,
    NoMemory = 12,
    Invalid = 22,
    NoSpace = 28,
    Overflow = 75,
    NotSupported = 95,
    Shutdown = 108,
}

impl Errno {
    pub fn code(self) -> u32 {
        self as u32
    }

    /// Anything the protocol does not list counts as invalid, as it asks of clients.
    pub(crate) fn from_code(code: u32) -> Option<Errno> {
        Some(match code {
            0 => return None,
            1 => Errno::Permission,
            5 => Errno::Io,
            12 => Errno::NoMemory,
            28 => Errno::NoSpace,
            75 => Errno::Overflow,
            95 => Errno::NotSupported,
            108 => Errno::Shutdown,
            _ => Errno::Invalid,
        })
    }
}

impl From<RequestFailure> for Errno {
    fn from(failure: RequestFailure) -> Errno {
        match failure {
            RequestFailure::Io => Errno::Io,
            RequestFailure::NoSpace => Errno::NoSpace,
            RequestFailure::Invalid => Errno::Invalid,
            RequestFailure::NotSupported => Errno::NotSupported,
            RequestFailure::NoMemory => Errno::NoMemory,
            RequestFailure::Gone => Errno::Shutdown,
        }
    }
}

/// Bytes that cannot be what they claim to be, with the sentence that says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedMessage(pub &'static str);

/// A request header, unchecked: `check` decides what of it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdRequest {
    pub flags: u16,
    pub command: NbdCommand,
    /// The client's own name for the request, returned with its answer.
    pub handle: u64,
    pub offset: u64,
    pub length: u32,
}

/// Reads a request header.
///
/// # Errors
/// Without the magic number the stream is out of step, and nothing after it can be trusted.
pub fn parse_request(bytes: &[u8; REQUEST_BYTES]) -> Result<NbdRequest, MalformedMessage> {
    let mut cursor = Cursor(bytes);
    if cursor.u32()? != REQUEST_MAGIC {
        return Err(MalformedMessage("a request does not start with the request magic"));
    }
    Ok(NbdRequest {
        flags: cursor.u16()?,
        command: NbdCommand::from_wire(cursor.u16()?),
        handle: cursor.u64()?,
        offset: cursor.u64()?,
        length: cursor.u32()?,
    })
}

/// The client's side of [`parse_request`]. `Unknown` is written as a number that no server knows.
pub fn encode_request(request: &NbdRequest) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&request.flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&request.command.to_wire().unwrap_or(u16::MAX).to_be_bytes());
    bytes[8..16].copy_from_slice(&request.handle.to_be_bytes());
    bytes[16..24].copy_from_slice(&request.offset.to_be_bytes());
    bytes[24..].copy_from_slice(&request.length.to_be_bytes());
    bytes
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    pub kind: u32,
    pub length: u32,
}

/// Reads an option's header.
///
/// # Errors
/// Without the magic number the stream is out of step.
pub fn parse_option_header(bytes: &[u8; OPTION_BYTES]) -> Result<OptionHeader, MalformedMessage> {
    let mut cursor = Cursor(bytes);
    if cursor.u64()? != OPTION_MAGIC {
        return Err(MalformedMessage("an option does not start with the option magic"));
    }
    Ok(OptionHeader { kind: cursor.u32()?, length: cursor.u32()? })
}

/// What a client may ask before it is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientOption<'a> {
    ExportName(&'a str),
    Abort,
    List,
    StartTls,
    Info(ExportQuery<'a>),
    Go(ExportQuery<'a>),
    StructuredReply,
    ListMeta(MetaQuery<'a>),
    SetMeta(MetaQuery<'a>),
    Unsupported,
}

/// An export, and the facts about it that the client named. Sizes are always told, asked for or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportQuery<'a> {
    pub export: &'a str,
    pub name: bool,
    pub description: bool,
}

/// A list of metadata contexts, boiled down to what can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaQuery<'a> {
    pub export: &'a str,
    /// Nothing was named: a list then means "all", a selection "none".
    pub empty: bool,
    pub names_allocation: bool,
    /// The whole `base:` namespace, which only a list may name.
    pub names_base: bool,
}

/// Reads an option's data. Unknown kinds are [`ClientOption::Unsupported`] whatever their data.
///
/// # Errors
/// Data that is short, long, not UTF-8 or over the protocol's string limit.
pub fn parse_option(kind: u32, data: &[u8]) -> Result<ClientOption<'_>, MalformedMessage> {
    let mut cursor = Cursor(data);
    let parsed = match kind {
        option::EXPORT_NAME => ClientOption::ExportName(cursor.text(data.len())?),
        option::ABORT => {
            // An abort is honoured whatever comes with it: the client is leaving.
            cursor = Cursor(&[]);
            ClientOption::Abort
        }
        option::LIST => ClientOption::List,
        option::STARTTLS => ClientOption::StartTls,
        option::INFO => ClientOption::Info(parse_wanted(&mut cursor)?),
        option::GO => ClientOption::Go(parse_wanted(&mut cursor)?),
        option::STRUCTURED_REPLY => ClientOption::StructuredReply,
        option::LIST_META_CONTEXT => ClientOption::ListMeta(parse_meta(&mut cursor)?),
        option::SET_META_CONTEXT => ClientOption::SetMeta(parse_meta(&mut cursor)?),
        _ => return Ok(ClientOption::Unsupported),
    };
    if cursor.0.is_empty() { Ok(parsed) } else { Err(MalformedMessage("the option's data is longer than its content")) }
}

fn parse_wanted<'a>(cursor: &mut Cursor<'a>) -> Result<ExportQuery<'a>, MalformedMessage> {
    let length = cursor.u32()? as usize;
    let mut wanted = ExportQuery { export: cursor.text(length)?, name: false, description: false };
    for _ in 0..cursor.u16()? {
        match cursor.u16()? {
            info::NAME => wanted.name = true,
            info::DESCRIPTION => wanted.description = true,
            _ => {}
        }
    }
    Ok(wanted)
}

fn parse_meta<'a>(cursor: &mut Cursor<'a>) -> Result<MetaQuery<'a>, MalformedMessage> {
    let length = cursor.u32()? as usize;
    let export = cursor.text(length)?;
    let count = cursor.u32()?;
    let mut query = MetaQuery { export, empty: count == 0, names_allocation: false, names_base: false };
    // A count that the data cannot hold ends at the first missing byte, so it bounds nothing but itself.
    for _ in 0..count {
        let length = cursor.u32()? as usize;
        match cursor.text(length)? {
            ALLOCATION => query.names_allocation = true,
            "base:" => query.names_base = true,
            _ => {}
        }
    }
    Ok(query)
}

/// Appends an option's reply; `parts` are joined into its data.
pub(crate) fn put_option_reply(out: &mut Vec<u8>, kind: u32, reply: u32, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&reply.to_be_bytes());
    out.extend_from_slice(&u32::try_from(length).expect("an option's reply is far below 4 GiB").to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Appends one option, the client's side.
pub fn put_option(out: &mut Vec<u8>, kind: u32, data: &[u8]) {
    out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&u32::try_from(data.len()).expect("an option is far below 4 GiB").to_be_bytes());
    out.extend_from_slice(data);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReply {
    pub kind: u32,
    pub reply: u32,
    pub length: u32,
}

/// Reads the header of an option's reply, the client's side.
///
/// # Errors
/// Without the magic number the stream is out of step.
pub fn parse_option_reply(bytes: &[u8; OPTION_REPLY_BYTES]) -> Result<OptionReply, MalformedMessage> {
    let mut cursor = Cursor(bytes);
    if cursor.u64()? != OPTION_REPLY_MAGIC {
        return Err(MalformedMessage("an option's reply does not start with its magic"));
    }
    Ok(OptionReply { kind: cursor.u32()?, reply: cursor.u32()?, length: cursor.u32()? })
}

/// A simple reply; `None` is success.
pub(crate) fn simple_reply(handle: u64, error: Option<Errno>) -> [u8; SIMPLE_REPLY_BYTES] {
    let mut bytes = [0; SIMPLE_REPLY_BYTES];
    bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.map_or(0, Errno::code).to_be_bytes());
    bytes[8..].copy_from_slice(&handle.to_be_bytes());
    bytes
}

/// Reads a simple reply: the request's handle, and its error if it failed.
///
/// # Errors
/// Without the magic number the stream is out of step.
pub fn parse_simple_reply(bytes: &[u8; SIMPLE_REPLY_BYTES]) -> Result<(u64, Option<Errno>), MalformedMessage> {
    let mut cursor = Cursor(bytes);
    if cursor.u32()? != SIMPLE_REPLY_MAGIC {
        return Err(MalformedMessage("a reply does not start with the simple reply magic"));
    }
    let error = Errno::from_code(cursor.u32()?);
    Ok((cursor.u64()?, error))
}

/// The header of the only chunk of a structured reply; `length` is its payload's, in bytes.
pub(crate) fn last_chunk(kind: u16, handle: u64, length: u32) -> [u8; CHUNK_BYTES] {
    let mut bytes = [0; CHUNK_BYTES];
    bytes[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&chunk::FLAG_DONE.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&handle.to_be_bytes());
    bytes[16..].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// What is left of some bytes; every step checks.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], MalformedMessage> {
        let (head, rest) =
            self.0.split_at_checked(length).ok_or(MalformedMessage("the data ends before its content does"))?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedMessage> {
        Ok(self.take(N)?.try_into().expect("`take` gives exactly what was asked"))
    }

    fn u16(&mut self) -> Result<u16, MalformedMessage> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, MalformedMessage> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, MalformedMessage> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    fn text(&mut self, length: usize) -> Result<&'a str, MalformedMessage> {
        let bytes = self.take(length)?;
        if length > STRING_BYTES_MAX {
            return Err(MalformedMessage("a string is longer than the protocol's 4096 bytes"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| MalformedMessage("a string is not UTF-8"))?;
        if text.contains('\0') { Err(MalformedMessage("a string contains a zero byte")) } else { Ok(text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(export: &str, kinds: &[u16]) -> Vec<u8> {
        let mut data = (export.len() as u32).to_be_bytes().to_vec();
        data.extend_from_slice(export.as_bytes());
        data.extend_from_slice(&(kinds.len() as u16).to_be_bytes());
        kinds.iter().for_each(|kind| data.extend_from_slice(&kind.to_be_bytes()));
        data
    }

    fn meta(export: &str, queries: &[&str]) -> Vec<u8> {
        let mut data = (export.len() as u32).to_be_bytes().to_vec();
        data.extend_from_slice(export.as_bytes());
        data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
        for query in queries {
            data.extend_from_slice(&(query.len() as u32).to_be_bytes());
            data.extend_from_slice(query.as_bytes());
        }
        data
    }

    #[test]
    fn requests_survive_the_wire() {
        for command in NbdCommand::ALL {
            let request =
                NbdRequest { flags: 0x8001, command, handle: u64::MAX - 7, offset: 1 << 40, length: u32::MAX };
            assert_eq!(parse_request(&encode_request(&request)), Ok(request));
        }
        assert!(parse_request(&[0; REQUEST_BYTES]).is_err());
    }

    #[test]
    fn replies_survive_the_wire() {
        for code in 0..200 {
            let error = Errno::from_code(code);
            assert_eq!(parse_simple_reply(&simple_reply(9, error)), Ok((9, error)));
        }
        let mut out = Vec::new();
        put_option_reply(&mut out, option::GO, reply::INFO, &[b"ab", b"c"]);
        assert_eq!(out.len(), OPTION_REPLY_BYTES + 3);
        let header = parse_option_reply(out[..OPTION_REPLY_BYTES].try_into().unwrap());
        assert_eq!(header, Ok(OptionReply { kind: option::GO, reply: reply::INFO, length: 3 }));
    }

    #[test]
    fn options_are_read() {
        let data = wanted("g/v", &[info::BLOCK_SIZE, info::NAME, 77]);
        let expected = ExportQuery { export: "g/v", name: true, description: false };
        assert_eq!(parse_option(option::GO, &data), Ok(ClientOption::Go(expected)));
        assert_eq!(parse_option(option::INFO, &data), Ok(ClientOption::Info(expected)));
        assert_eq!(parse_option(option::EXPORT_NAME, b""), Ok(ClientOption::ExportName("")));
        assert_eq!(parse_option(option::ABORT, b"junk"), Ok(ClientOption::Abort));
        assert_eq!(parse_option(4711, b"junk"), Ok(ClientOption::Unsupported));
        let data = meta("v", &["base:", "qemu:x"]);
        let expected = MetaQuery { export: "v", empty: false, names_allocation: false, names_base: true };
        assert_eq!(parse_option(option::LIST_META_CONTEXT, &data), Ok(ClientOption::ListMeta(expected)));
        let data = meta("v", &[ALLOCATION]);
        let expected = MetaQuery { export: "v", empty: false, names_allocation: true, names_base: false };
        assert_eq!(parse_option(option::SET_META_CONTEXT, &data), Ok(ClientOption::SetMeta(expected)));
    }

    #[test]
    fn no_option_is_read_from_a_part_or_with_a_rest() {
        let go = wanted("export", &[info::BLOCK_SIZE]);
        let set = meta("export", &[ALLOCATION, "base:"]);
        for (kind, data) in [(option::GO, go), (option::INFO, wanted("", &[])), (option::SET_META_CONTEXT, set)] {
            assert!(parse_option(kind, &data).is_ok());
            for end in 0..data.len() {
                assert!(parse_option(kind, &data[..end]).is_err(), "{kind} cut at {end}");
            }
            let longer = [&data[..], &[0]].concat();
            assert!(parse_option(kind, &longer).is_err());
        }
        assert!(parse_option(option::LIST, b"x").is_err());
        assert!(parse_option(option::STRUCTURED_REPLY, b"x").is_err());
    }

    #[test]
    fn bad_strings_and_lying_counts_are_refused() {
        assert!(parse_option(option::EXPORT_NAME, &[0xff]).is_err());
        assert!(parse_option(option::EXPORT_NAME, b"a\0b").is_err());
        assert!(parse_option(option::EXPORT_NAME, &vec![b'a'; STRING_BYTES_MAX + 1]).is_err());
        assert!(parse_option(option::EXPORT_NAME, &vec![b'a'; STRING_BYTES_MAX]).is_ok());
        // A count of 2^32 - 1 over no data must end at once.
        assert!(parse_option(option::SET_META_CONTEXT, &[0, 0, 0, 0, 255, 255, 255, 255]).is_err());
        assert!(parse_option(option::GO, &[255, 255, 255, 255, 0, 0]).is_err());
    }
}
