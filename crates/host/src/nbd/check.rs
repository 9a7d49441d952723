//! The one check of requests: what is wrong is refused here, with a number and a sentence; behind it nobody asks again.

use super::proto::{Errno, NbdCommand, NbdRequest, PAYLOAD_BYTES_MAX, flag};
use crate::frontend::ExportInfo;

/// What was agreed with this client about its export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionTerms {
    pub size_bytes: u64,
    pub block_min_bytes: u32,
    pub payload_max_bytes: u32,
    /// Structured replies.
    pub structured: bool,
    /// The `base:allocation` context.
    pub allocation: bool,
    /// The client may not write.
    pub read_only: bool,
}

impl SessionTerms {
    /// What was agreed beyond the plain protocol, in words for people.
    pub fn agreed(&self) -> Vec<&'static str> {
        let words = [
            (self.structured, "structured-replies"),
            (self.allocation, "base:allocation"),
            (self.read_only, "read-only"),
        ];
        words.into_iter().filter_map(|(is_so, word)| is_so.then_some(word)).collect()
    }

    pub fn new(info: &ExportInfo, structured: bool, allocation: bool) -> SessionTerms {
        assert!(info.block_min_bytes.is_power_of_two(), "an export's minimum block is a power of two");
        SessionTerms {
            size_bytes: info.size_bytes,
            block_min_bytes: info.block_min_bytes,
            payload_max_bytes: info.block_max_bytes.min(PAYLOAD_BYTES_MAX),
            structured,
            allocation: structured && allocation,
            read_only: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestVerdict {
    Serve,
    /// Right, and done by doing nothing: an empty range.
    Nothing,
    /// The client says goodbye.
    Leave,
    Refuse(RequestRefusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRefusal {
    pub errno: Errno,
    pub reason: &'static str,
}

/// Checks a request, whatever its numbers are.
///
/// Zero length is success without effect, as qemu-nbd has it, save for block status, whose answer must hold an extent.
/// Where several things are wrong, the one that lies with the client's program (`EINVAL`) is told before the one that
/// may lie with its user (`ENOSPC`), and what we do not support (`ENOTSUP`) last.
pub fn check(request: &NbdRequest, terms: &SessionTerms) -> RequestVerdict {
    match refuse(request, terms) {
        Err(refusal) => RequestVerdict::Refuse(refusal),
        Ok(()) => match request.command {
            NbdCommand::Disconnect => RequestVerdict::Leave,
            NbdCommand::Flush => RequestVerdict::Serve,
            _ if request.length == 0 => RequestVerdict::Nothing,
            _ => RequestVerdict::Serve,
        },
    }
}

fn refuse(request: &NbdRequest, terms: &SessionTerms) -> Result<(), RequestRefusal> {
    let NbdRequest { command, length, .. } = *request;
    if command == NbdCommand::Disconnect {
        // Leaving is never refused: there would be nobody to tell.
        return Ok(());
    }
    if command == NbdCommand::Unknown {
        return Err(invalid("this server does not know the command"));
    }
    if request.flags & !flags_allowed(command, terms) != 0 {
        return Err(invalid("the request has a flag that does not belong to its command"));
    }
    if terms.read_only && matches!(command, NbdCommand::Write | NbdCommand::Trim | NbdCommand::WriteZeroes) {
        return Err(RequestRefusal { errno: Errno::Permission, reason: "this client may only read the export" });
    }
    match command {
        NbdCommand::Flush if request.offset != 0 || length != 0 => {
            return Err(invalid("a flush covers the whole export: its offset and length must be zero"));
        }
        NbdCommand::Flush => return Ok(()),
        NbdCommand::Read | NbdCommand::Write if length > terms.payload_max_bytes => {
            return Err(invalid("the payload is longer than the export's largest block"));
        }
        NbdCommand::BlockStatus if !terms.allocation => {
            return Err(invalid("block status needs the base:allocation context, which was not negotiated"));
        }
        NbdCommand::BlockStatus if length == 0 => {
            return Err(invalid("a block status of nothing has no answer"));
        }
        _ => {}
    }
    check_range(request, terms)?;
    if request.flags & flag::FAST_ZERO != 0 {
        return Err(RequestRefusal {
            errno: Errno::NotSupported,
            reason: "zeroes are not written faster than data here",
        });
    }
    Ok(())
}

/// FUA is allowed everywhere, as the protocol demands once it is offered.
fn flags_allowed(command: NbdCommand, terms: &SessionTerms) -> u16 {
    flag::FUA
        | match command {
            NbdCommand::Read if terms.structured => flag::DF,
            NbdCommand::WriteZeroes => flag::NO_HOLE | flag::FAST_ZERO,
            NbdCommand::BlockStatus => flag::REQ_ONE,
            _ => 0,
        }
}

fn check_range(request: &NbdRequest, terms: &SessionTerms) -> Result<(), RequestRefusal> {
    let block = u64::from(terms.block_min_bytes);
    let length = u64::from(request.length);
    if !request.offset.is_multiple_of(block) || !length.is_multiple_of(block) {
        return Err(invalid("offset and length must be multiples of the export's minimum block"));
    }
    if request.offset.checked_add(length).is_some_and(|end| end <= terms.size_bytes) {
        return Ok(());
    }
    match request.command {
        NbdCommand::Write | NbdCommand::Trim | NbdCommand::WriteZeroes => {
            Err(RequestRefusal { errno: Errno::NoSpace, reason: "the request reaches past the end of the export" })
        }
        _ => Err(invalid("the request reaches past the end of the export")),
    }
}

fn invalid(reason: &'static str) -> RequestRefusal {
    RequestRefusal { errno: Errno::Invalid, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn terms() -> SessionTerms {
        SessionTerms {
            size_bytes: 64 * MIB,
            block_min_bytes: 512,
            payload_max_bytes: PAYLOAD_BYTES_MAX,
            structured: true,
            allocation: true,
            read_only: false,
        }
    }

    fn ask(command: NbdCommand, flags: u16, offset: u64, length: u32) -> RequestVerdict {
        check(&NbdRequest { flags, command, handle: 1, offset, length }, &terms())
    }

    fn errno(verdict: RequestVerdict) -> Option<Errno> {
        match verdict {
            RequestVerdict::Refuse(refusal) => Some(refusal.errno),
            _ => None,
        }
    }

    /// Commands with a range, and what each answers past the end.
    const RANGED: [(NbdCommand, Errno); 6] = [
        (NbdCommand::Read, Errno::Invalid),
        (NbdCommand::Write, Errno::NoSpace),
        (NbdCommand::Trim, Errno::NoSpace),
        (NbdCommand::WriteZeroes, Errno::NoSpace),
        (NbdCommand::Cache, Errno::Invalid),
        (NbdCommand::BlockStatus, Errno::Invalid),
    ];

    #[test]
    fn ranges_inside_are_served_and_outside_are_not() {
        for (command, past_the_end) in RANGED {
            assert_eq!(ask(command, 0, 0, 512), RequestVerdict::Serve);
            assert_eq!(ask(command, 0, 64 * MIB - 512, 512), RequestVerdict::Serve);
            for offset in [64 * MIB - 512, 64 * MIB, 1 << 62, u64::MAX - 511] {
                assert_eq!(errno(ask(command, 0, offset, 1024)), Some(past_the_end), "{command:?} at {offset}");
            }
        }
    }

    #[test]
    fn who_may_only_read_is_not_permitted_more() {
        let terms = SessionTerms { read_only: true, ..terms() };
        for (command, _) in RANGED {
            let request = NbdRequest { flags: 0, command, handle: 1, offset: 0, length: 512 };
            let writes = matches!(command, NbdCommand::Write | NbdCommand::Trim | NbdCommand::WriteZeroes);
            assert_eq!(errno(check(&request, &terms)), writes.then_some(Errno::Permission), "{command:?}");
        }
        let request = NbdRequest { flags: 0, command: NbdCommand::Flush, handle: 1, offset: 0, length: 0 };
        assert_eq!(check(&request, &terms), RequestVerdict::Serve);
    }

    #[test]
    fn misaligned_is_invalid_even_past_the_end() {
        for (command, _) in RANGED {
            for (offset, length) in [(1, 512), (0, 511), (511, 1), (u64::MAX, u32::MAX)] {
                assert_eq!(errno(ask(command, 0, offset, length)), Some(Errno::Invalid));
            }
        }
    }

    #[test]
    fn nothing_is_done_by_doing_nothing() {
        for (command, past_the_end) in RANGED {
            let expected = match command {
                NbdCommand::BlockStatus => Some(Errno::Invalid),
                _ => None,
            };
            assert_eq!(errno(ask(command, 0, 512, 0)), expected);
            assert_eq!(errno(ask(command, 0, 65 * MIB, 0)), Some(past_the_end));
        }
        assert_eq!(ask(NbdCommand::Read, 0, 64 * MIB, 0), RequestVerdict::Nothing);
        assert_eq!(ask(NbdCommand::Flush, 0, 0, 0), RequestVerdict::Serve);
    }

    #[test]
    fn only_payload_is_limited() {
        let long = PAYLOAD_BYTES_MAX + 512;
        assert_eq!(ask(NbdCommand::Read, 0, 0, PAYLOAD_BYTES_MAX), RequestVerdict::Serve);
        assert_eq!(errno(ask(NbdCommand::Read, 0, 0, long)), Some(Errno::Invalid));
        assert_eq!(errno(ask(NbdCommand::Write, 0, 0, long)), Some(Errno::Invalid));
        for command in [NbdCommand::Trim, NbdCommand::WriteZeroes, NbdCommand::Cache, NbdCommand::BlockStatus] {
            assert_eq!(ask(command, 0, 0, long), RequestVerdict::Serve);
        }
        let huge = SessionTerms { size_bytes: 1 << 50, ..terms() };
        let request =
            NbdRequest { flags: 0, command: NbdCommand::Trim, handle: 0, offset: 512, length: u32::MAX - 511 };
        assert_eq!(check(&request, &huge), RequestVerdict::Serve);
    }

    #[test]
    fn every_flag_belongs_to_its_command() {
        for command in NbdCommand::ALL {
            for bit in 0..16 {
                let allowed = match (command, 1 << bit) {
                    (NbdCommand::Disconnect, _) => true,
                    (NbdCommand::Unknown, _) => false,
                    (_, flag::FUA) => true,
                    (NbdCommand::Read, flag::DF) => true,
                    (NbdCommand::WriteZeroes, flag::NO_HOLE) => true,
                    (NbdCommand::BlockStatus, flag::REQ_ONE) => true,
                    _ => false,
                };
                let length = if command == NbdCommand::Flush { 0 } else { 512 };
                let verdict = ask(command, 1 << bit, 0, length);
                assert_eq!(errno(verdict).is_none(), allowed, "{command:?} with bit {bit}");
            }
        }
        assert_eq!(errno(ask(NbdCommand::WriteZeroes, flag::FAST_ZERO, 0, 512)), Some(Errno::NotSupported));
        assert_eq!(errno(ask(NbdCommand::WriteZeroes, flag::FAST_ZERO, 1, 512)), Some(Errno::Invalid));
    }

    #[test]
    fn what_was_not_negotiated_is_refused() {
        let plain = SessionTerms { structured: false, allocation: false, ..terms() };
        let df = NbdRequest { flags: flag::DF, command: NbdCommand::Read, handle: 0, offset: 0, length: 512 };
        assert_eq!(errno(check(&df, &plain)), Some(Errno::Invalid));
        let status = NbdRequest { flags: 0, command: NbdCommand::BlockStatus, ..df };
        assert_eq!(errno(check(&status, &plain)), Some(Errno::Invalid));
        assert_eq!(errno(ask(NbdCommand::Flush, 0, 512, 0)), Some(Errno::Invalid));
        assert_eq!(ask(NbdCommand::Disconnect, 0xffff, 7, 7), RequestVerdict::Leave);
    }
}
