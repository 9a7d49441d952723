//! The payload that an engine holds: each buffer the world hands to one counts itself for as long as it lives. So what a
//! node holds in memory is known without asking it (rule 22).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::Buf;

/// Bytes of payload that live.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<AtomicU64>);

impl Meter {
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one node's half of a group holds.
#[derive(Clone, Debug, Default)]
pub struct Meters {
    /// What waits in a queue or a window: counted against `queue.memory`, the window and `memory.limit`.
    pub queued: Meter,
    /// What is on its way to be saved, written back or pulled: it has bounds of its own.
    pub aside: Meter,
}

/// Bytes that count while anybody holds them.
pub struct Payload {
    pub bytes: Vec<u8>,
    meter: Meter,
}

impl Payload {
    pub fn handed_over(bytes: Vec<u8>, meter: &Meter) -> Buf {
        meter.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Buf::new(Arc::new(Payload { bytes, meter: meter.clone() }))
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.meter.0.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_counts_once_until_the_last_who_holds_it_lets_go() {
        let meter = Meter::default();
        let buf = Payload::handed_over(vec![1; 512], &meter);
        let other = Payload::handed_over(vec![2; 1024], &meter);
        let shared = buf.clone();
        drop(buf);
        assert_eq!(meter.bytes(), 1536);
        drop((shared, other));
        assert_eq!(meter.bytes(), 0);
    }
}
