//! Several traces as one, by time: blktrace leaves a file per CPU, and a group has several volumes.

use std::collections::HashMap;
use std::io::Read;

use super::detect::Format;
use super::reader::TraceReader;
use super::{RecordFault, TraceRecord, Troubles, VOLUMES_MAX};

/// Reads all inputs at once; times count from the earliest record of all.
pub struct Merge<R> {
    sources: Vec<MergeSource<R>>,
    /// Volume numbers of the whole, by source and by the source's own number.
    volumes: HashMap<(usize, u16), u16>,
    /// The same by what I/O logs call them: each job of a run has its log, of the same files.
    files: HashMap<Box<[u8]>, u16>,
    count: u16,
    base_ns: Option<u64>,
    troubles: Troubles,
}

struct MergeSource<R> {
    reader: TraceReader<R>,
    batch: Vec<TraceRecord>,
    at: usize,
}

/// Records handed on at once.
const BATCH_RECORDS: usize = 16 * 1024;

impl<R: Read> Merge<R> {
    /// # Errors
    /// A sentence, when an input cannot be read.
    pub fn new(readers: Vec<TraceReader<R>>) -> Self {
        let sources = readers.into_iter().map(|reader| MergeSource { reader, batch: Vec::new(), at: 0 }).collect();
        Self {
            sources,
            volumes: HashMap::new(),
            files: HashMap::new(),
            count: 0,
            base_ns: None,
            troubles: Troubles::default(),
        }
    }

    pub fn readers(&self) -> impl Iterator<Item = &TraceReader<R>> {
        self.sources.iter().map(|source| &source.reader)
    }
    /// What was left out while merging; each reader has its own beside it.
    pub fn troubles(&self) -> &Troubles {
        &self.troubles
    }

    /// The next records of all, in order of time, in place of what `out` held. `false`: there are no more.
    ///
    /// # Errors
    /// A sentence, when an input cannot be read further.
    pub fn next_batch(&mut self, out: &mut Vec<TraceRecord>) -> Result<bool, String> {
        out.clear();
        for source in &mut self.sources {
            source.refill()?;
        }
        if let [only] = self.sources.as_mut_slice() {
            std::mem::swap(out, &mut only.batch);
            only.batch.clear();
            only.at = 0;
        } else {
            self.merge(out)?;
        }
        if let Some(first) = out.first() {
            let base_ns = *self.base_ns.get_or_insert(first.time_ns);
            out.iter_mut().for_each(|record| record.time_ns -= base_ns);
        }
        Ok(!out.is_empty())
    }

    fn merge(&mut self, out: &mut Vec<TraceRecord>) -> Result<(), String> {
        while out.len() < BATCH_RECORDS {
            let heads = self
                .sources
                .iter()
                .enumerate()
                .filter_map(|(index, source)| source.batch.get(source.at).map(|record| (record.time_ns, index)));
            let Some((_, index)) = heads.min() else {
                return Ok(());
            };
            let source = &mut self.sources[index];
            let mut record = source.batch[source.at];
            source.at += 1;
            source.refill()?;
            // Per-CPU files name the same devices; anything else is a volume of its own.
            let owner = if matches!(source.reader.format(), Format::Blktrace(..)) { usize::MAX } else { index };
            let key = (owner, record.volume);
            let file = source.reader.file_of(record.volume);
            let known = self.volumes.get(&key).copied().or_else(|| self.files.get(file?).copied());
            if known.is_none() && usize::from(self.count) >= VOLUMES_MAX {
                let name = source.reader.name();
                self.troubles.note(RecordFault::TooManyVolumes, || name.to_owned());
                continue;
            }
            let number = known.unwrap_or(self.count);
            if known.is_none() {
                self.count += 1;
                self.files.extend(file.map(|file| (file.into(), number)));
            }
            self.volumes.insert(key, number);
            record.volume = number;
            out.push(record);
        }
        Ok(())
    }
}

impl<R: Read> MergeSource<R> {
    fn refill(&mut self) -> Result<(), String> {
        if self.at == self.batch.len() {
            self.at = 0;
            self.reader.next_batch(&mut self.batch)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::detect::FormatChoice;
    use super::super::reader::unpack;
    use super::*;

    /// Two jobs of one run on one file: what one overwrites of the other's is overwritten.
    #[test]
    fn logs_of_one_file_are_one_volume() {
        let one = "fio version 3 iolog\n0 /dev/sdb add\n100 /dev/sdb write 0 512\n300 /dev/sdc write 512 512\n";
        let two = "fio version 3 iolog\n150 /dev/sdc write 0 512\n200 /dev/sdb write 512 1024\n";
        let open = |name, text: &'static str| {
            TraceReader::open(name, unpack(text.as_bytes()).unwrap(), &FormatChoice::default()).unwrap()
        };
        let mut merge = Merge::new(vec![open("one", one), open("two", two)]);
        let mut out = Vec::new();
        assert!(merge.next_batch(&mut out).unwrap());
        assert_eq!(out.iter().map(|record| record.volume).collect::<Vec<_>>(), [0, 1, 0, 1]);
    }

    #[test]
    fn files_meet_in_the_order_of_time() {
        let one = "fio version 3 iolog\n100 a write 0 512\n300 a write 512 512\n";
        let two = "fio version 3 iolog\n50 b write 0 1024\n200 b write 512 1024\n";
        let open = |name, text: &'static str| {
            TraceReader::open(name, unpack(text.as_bytes()).unwrap(), &FormatChoice::default()).unwrap()
        };
        let mut merge = Merge::new(vec![open("one", one), open("two", two)]);
        let mut out = Vec::new();
        assert!(merge.next_batch(&mut out).unwrap());
        let seen: Vec<(u64, u16, u32)> = out.iter().map(|r| (r.time_ns / 1000, r.volume, r.length)).collect();
        assert_eq!(seen, [(0, 0, 1024), (50, 1, 512), (150, 0, 1024), (250, 1, 512)]);
        assert!(!merge.next_batch(&mut out).unwrap());
    }
}
