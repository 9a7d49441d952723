//! Write traces of every make, read as one stream of [`TraceRecord`]s.
//!
//! A file is unpacked, its format detected from its first bytes, its lines parsed one by one, small disorder repaired, and
//! several files merged by time. Memory stays bounded however long the trace is. What cannot be used is counted by kind,
//! with the first place of each ([`Troubles`]): a plan made from half a trace must say so.

pub mod blkparse;
pub mod blktrace;
pub mod csv;
pub mod detect;
pub mod iolog;
pub mod merge;
pub mod own;
pub mod reader;
pub mod samples;
pub mod text;

use std::collections::BTreeMap;
use std::fmt;

/// What happened to a volume at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TraceRecord {
    /// Since whatever the trace counts from; [`merge::Merge`] makes it the time since the first record.
    pub time_ns: u64,
    /// Bytes from the volume's start.
    pub offset: u64,
    /// Bytes; zero for a flush.
    pub length: u32,
    /// Which of the trace's volumes, in order of appearance.
    pub volume: u16,
    pub kind: TraceKind,
    /// A write that must be durable before it is answered.
    pub fua: bool,
    /// The offset is made up: the source only counted.
    pub synthetic: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum TraceKind {
    #[default]
    Write = 0,
    Flush = 1,
    Trim = 2,
}

/// Longest write a trace may hold; longer ones are a misread column.
pub const LENGTH_BYTES_MAX: u64 = 1 << 30;
/// Offsets are below this: the largest a signed file offset can be.
pub const OFFSET_BYTES_MAX: u64 = 1 << 63;
/// Longest line looked at; a longer one is no line of a trace.
pub const LINE_BYTES_MAX: usize = 64 * 1024;
/// Most volumes in one scan.
pub const VOLUMES_MAX: usize = 4096;

/// What was wrong with a line or record that was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordFault {
    /// It does not look like the lines before it.
    NotThisFormat,
    TooFewFields,
    NotANumber,
    NegativeTime,
    TimeTooLarge,
    NegativeOffset,
    OffsetTooLarge,
    LengthTooLarge,
    UnknownOperation,
    LineTooLong,
    /// Its time lies before that of records already used.
    OutOfOrder,
    TooManyVolumes,
    /// The file ends in the middle of it.
    Truncated,
    /// A checksum or magic number is wrong.
    Damaged,
}

impl RecordFault {
    pub fn sentence(self) -> &'static str {
        match self {
            Self::NotThisFormat => "not of the format the file began with",
            Self::TooFewFields => "too few fields",
            Self::NotANumber => "a field is not the number it should be",
            Self::NegativeTime => "the time is negative",
            Self::TimeTooLarge => "the time is too large",
            Self::NegativeOffset => "the offset is negative",
            Self::OffsetTooLarge => "the offset is 2^63 or more",
            Self::LengthTooLarge => "the length is over 1 GiB",
            Self::UnknownOperation => "the operation is unknown",
            Self::LineTooLong => "the line is longer than 64 KiB",
            Self::OutOfOrder => "the time lies before that of records already used",
            Self::TooManyVolumes => "more than 4096 volumes",
            Self::Truncated => "the file ends in the middle of it",
            Self::Damaged => "a checksum or magic number is wrong",
        }
    }
}

/// What was left out of one file, by kind.
#[derive(Clone, Debug, Default)]
pub struct Troubles {
    kinds: BTreeMap<RecordFault, (u64, String)>,
}

impl Troubles {
    pub fn note(&mut self, fault: RecordFault, at: impl FnOnce() -> String) {
        self.note_many(fault, 1, at);
    }
    pub fn note_many(&mut self, fault: RecordFault, count: u64, at: impl FnOnce() -> String) {
        self.kinds.entry(fault).or_insert_with(|| (0, at())).0 += count;
    }
    pub fn count(&self) -> u64 {
        self.kinds.values().map(|(count, _)| count).sum()
    }
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }
    pub fn kinds(&self) -> impl Iterator<Item = (RecordFault, u64, &str)> {
        self.kinds.iter().map(|(&fault, (count, at))| (fault, *count, at.as_str()))
    }
    pub fn has(&self, fault: RecordFault) -> bool {
        self.kinds.contains_key(&fault)
    }
}

/// More of a trace than this may not be left out without being told to.
pub const LEFT_OUT_SHARE_MAX: f64 = 0.01;

impl Troubles {
    /// Whether what is left still speaks for the whole.
    ///
    /// # Errors
    /// A sentence, when more than [`LEFT_OUT_SHARE_MAX`] of `items` were left out and nobody allowed it.
    pub fn verdict(&self, items: u64, allowed: bool) -> Result<(), String> {
        // Behind a place where the file breaks off nobody knows how much there was: told, not weighed.
        let weighed =
            self.kinds().filter(|(fault, ..)| !matches!(fault, RecordFault::Truncated | RecordFault::Damaged));
        let count: u64 = weighed.map(|(_, count, _)| count).sum();
        if allowed || count as f64 <= items as f64 * LEFT_OUT_SHARE_MAX {
            return Ok(());
        }
        Err(format!(
            "{count} of {items} lines or records cannot be used, too many to plan with the rest: {self}. Mend the trace, or pass \
             --skip-bad to go on without them"
        ))
    }
}

impl fmt::Display for Troubles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (fault, count, at)) in self.kinds().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{count} left out because {}, first at {at}", fault.sentence())?;
        }
        Ok(())
    }
}

/// Names of volumes to small numbers. The last name is remembered: traces rarely change it from line to line.
#[derive(Debug, Default)]
pub struct VolumeNames {
    names: Vec<Box<[u8]>>,
    last: usize,
}

impl VolumeNames {
    pub fn number(&mut self, name: &[u8]) -> Result<u16, RecordFault> {
        if self.names.get(self.last).is_some_and(|last| **last == *name) {
            return Ok(self.last as u16);
        }
        self.last = match self.names.iter().position(|known| **known == *name) {
            Some(at) => at,
            None if self.names.len() < VOLUMES_MAX => {
                self.names.push(name.into());
                self.names.len() - 1
            }
            None => return Err(RecordFault::TooManyVolumes),
        };
        Ok(self.last as u16)
    }
    pub fn count(&self) -> usize {
        self.names.len()
    }
    pub fn name(&self, number: u16) -> Option<&[u8]> {
        self.names.get(usize::from(number)).map(|name| &**name)
    }
}

/// What a line amounted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedLine {
    /// Zero or more records were added.
    Used,
    /// A read: counted, not replayed.
    Read,
    /// A heading, a comment, an event of no interest.
    Passed,
}

/// Checks offset and length where every format's numbers come together.
pub fn byte_range(offset: u64, length: u64) -> Result<(u64, u32), RecordFault> {
    if length > LENGTH_BYTES_MAX {
        return Err(RecordFault::LengthTooLarge);
    }
    if offset.checked_add(length).is_none_or(|end| end > OFFSET_BYTES_MAX) {
        return Err(RecordFault::OffsetTooLarge);
    }
    Ok((offset, length as u32))
}
