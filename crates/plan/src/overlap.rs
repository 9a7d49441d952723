//! How much of what is written is written again soon: what folding saves, and how large the working set is.
//!
//! For each 4 KiB page the time of its last write is kept; a write whose page was last written in an earlier window is new to
//! its window. All windows are answered from the one table. When there are more pages than the table holds, every second one
//! is forgotten, by its hash, and the rest count double: memory stays bounded and the estimate unbiased.

use serde::Serialize;

use crate::trace::TraceRecord;

pub const PAGE_BYTES: u64 = 4096;
/// Windows, in seconds.
pub const WINDOWS_S: [u32; 5] = [1, 10, 60, 600, 3600];
/// Slots of the table; at most half are filled. 12 bytes each.
const SLOTS: usize = 1 << 19;
const FREE: u64 = u64::MAX;

pub struct Overlap {
    pages: Vec<u64>,
    seconds: Vec<u32>,
    filled: usize,
    /// One page of this many is looked at.
    every: u64,
    touches: u64,
    bytes: u64,
    fresh: [f64; WINDOWS_S.len()],
    fresh_ever: f64,
}

/// What a window saves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Saving {
    /// seconds
    pub window_s: u32,
    /// 0 to 1, of the bytes: need not be sent if each window is sent as its last state
    pub saved_share: f64,
}

impl Default for Overlap {
    fn default() -> Self {
        Self {
            pages: vec![FREE; SLOTS],
            seconds: vec![0; SLOTS],
            filled: 0,
            every: 1,
            touches: 0,
            bytes: 0,
            fresh: [0.0; WINDOWS_S.len()],
            fresh_ever: 0.0,
        }
    }
}

fn mixed(page: u64) -> u64 {
    let mut x = page.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 32;
    x.wrapping_mul(0xd6e8_feb8_6659_fd93)
}

impl Overlap {
    /// A write of at least one byte.
    pub fn write(&mut self, record: &TraceRecord) {
        let second = (record.time_ns / 1_000_000_000) as u32;
        let first = record.offset / PAGE_BYTES;
        let last = (record.offset + u64::from(record.length).max(1) - 1) / PAGE_BYTES;
        self.bytes += u64::from(record.length);
        self.touches += last - first + 1;
        for page in first..=last {
            // Offsets are below 2^63, so pages below 2^51: the volume goes above.
            let key = page | u64::from(record.volume) << 51;
            let hash = mixed(key);
            if hash & (self.every - 1) == 0 {
                self.touch(key, hash, second);
            }
        }
    }

    fn touch(&mut self, key: u64, hash: u64, second: u32) {
        let mut slot = (hash >> 40) as usize % SLOTS;
        while self.pages[slot] != key {
            if self.pages[slot] == FREE {
                return self.enter(slot, key, second);
            }
            slot = (slot + 1) % SLOTS;
        }
        let last = std::mem::replace(&mut self.seconds[slot], second);
        if last != second {
            for (fresh, window) in self.fresh.iter_mut().zip(WINDOWS_S) {
                if last / window != second / window {
                    *fresh += self.every as f64;
                }
            }
        }
    }

    fn enter(&mut self, slot: usize, key: u64, second: u32) {
        (self.pages[slot], self.seconds[slot]) = (key, second);
        self.fresh.iter_mut().for_each(|fresh| *fresh += self.every as f64);
        self.fresh_ever += self.every as f64;
        self.filled += 1;
        if self.filled > SLOTS / 2 {
            self.thin_out();
        }
    }

    fn thin_out(&mut self) {
        self.every *= 2;
        let old_pages = std::mem::replace(&mut self.pages, vec![FREE; SLOTS]);
        let old_seconds = std::mem::replace(&mut self.seconds, vec![0; SLOTS]);
        self.filled = 0;
        for (key, second) in old_pages.into_iter().zip(old_seconds) {
            let hash = mixed(key);
            if key == FREE || hash & (self.every - 1) != 0 {
                continue;
            }
            let mut slot = (hash >> 40) as usize % SLOTS;
            while self.pages[slot] != FREE {
                slot = (slot + 1) % SLOTS;
            }
            (self.pages[slot], self.seconds[slot]) = (key, second);
            self.filled += 1;
        }
    }

    /// One page of this many was looked at; 1 is exact.
    pub fn sampled_one_in(&self) -> u64 {
        self.every
    }

    /// Bytes of pages written at least once.
    pub fn working_set_bytes(&self) -> u64 {
        (self.fresh_ever * PAGE_BYTES as f64) as u64
    }

    pub fn savings(&self) -> Vec<Saving> {
        let share = |fresh: f64| (1.0 - fresh / self.touches.max(1) as f64).clamp(0.0, 1.0);
        WINDOWS_S
            .iter()
            .zip(self.fresh)
            .map(|(&window_s, fresh)| Saving { window_s, saved_share: share(fresh) })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(overlap: &mut Overlap, second: u64, page: u64) {
        let record = TraceRecord {
            time_ns: second * 1_000_000_000,
            offset: page * PAGE_BYTES,
            length: 4096,
            ..TraceRecord::default()
        };
        overlap.write(&record);
    }

    #[test]
    fn small_working_sets_are_exact() {
        let mut overlap = Overlap::default();
        // Every page of 100 twice a second, for 20 s: half is saved within a second, 95 % in ten, all but 100 in the end.
        for second in 0..20 {
            (0..200).for_each(|n| write(&mut overlap, second, n % 100));
        }
        let savings = overlap.savings();
        assert_eq!((savings[0].saved_share, savings[1].saved_share), (0.5, 0.95));
        assert_eq!((savings[2].saved_share, overlap.working_set_bytes()), (0.975, 100 * 4096));
        assert_eq!(overlap.sampled_one_in(), 1);
    }

    #[test]
    fn large_ones_are_near() {
        let mut overlap = Overlap::default();
        for round in 0..2 {
            (0..2_000_000).for_each(|page| write(&mut overlap, round * 20, page * 7));
        }
        assert!(overlap.sampled_one_in() >= 8);
        let pages = overlap.working_set_bytes() / 4096;
        assert!((1_960_000..2_040_000).contains(&pages), "{pages}");
        let savings = overlap.savings();
        assert!(savings[1].saved_share < 0.02 && (savings[2].saved_share - 0.5).abs() < 0.02, "{savings:?}");
    }
}
