//! Paths that swallow large packets: found by how connections end, survived by smaller segments.
//!
//! Somewhere on the way a tunnel takes packets of 1 400 bytes and no more, and the message that should say so is filtered.
//! The connection comes up, heartbeats pass, the first write of any size never does: everything behind it waits, the other
//! end hears nothing and gives up; and so again, for ever. With `net.ipv4.tcp_mtu_probing` the kernel finds out by itself
//! within seconds. Where that is off, there is one thing a program can do: announce a small largest segment when it
//! dials, which holds for both directions. (Clearing "don't fragment" would only help where a router fragments, and never
//! in IPv6; a live connection's segment size cannot be changed.)

use std::time::{Duration, Instant};

use crate::tcp_info::TcpInfo;

/// Fits the smallest packet every IPv6 path must carry: 1 280 bytes, less 60 of headers and 12 of options. Costs about
/// 4 % on a path of 1 500.
pub const SMALL_SEGMENT_BYTES: u16 = 1200;
/// Connections in a row that fall silent before anything large has passed.
const SILENT_IN_A_ROW: u32 = 2;
/// A path that let this much through in the poorer direction carries large packets.
const CARRIES_BYTES: u64 = 64 << 10;
/// Heartbeats come five times a second: a peer that was not heard for so long was not idle.
const SILENT: Duration = Duration::from_millis(700);
/// Timeouts in a row without an answer: ours did not pass.
const BACKOFF: u8 = 2;
/// The path may have been mended since.
const SMALL_FOR: Duration = Duration::from_secs(3600);

/// What is thought of the path to one peer.
#[derive(Debug, Default)]
pub struct PathWatch {
    silent_in_a_row: u32,
    small_until: Option<Instant>,
}

impl PathWatch {
    /// The largest segment to announce at the next attempt.
    pub fn segment_bytes(&self, now: Instant) -> Option<u16> {
        self.small_until.is_some_and(|until| now < until).then_some(SMALL_SEGMENT_BYTES)
    }

    /// A connection ended; `last` was seen of it shortly before.
    pub fn ended(&mut self, now: Instant, last: &TcpInfo) {
        let silent = Duration::from_millis(u64::from(last.last_received_ms)) >= SILENT || last.backoff >= BACKOFF;
        let was_small = self.segment_bytes(now).is_some();
        let carried = last.bytes_acked.min(last.bytes_received) >= CARRIES_BYTES;
        self.silent_in_a_row = match (silent, carried) {
            (false, _) => 0,
            // It may have begun just now.
            (true, true) => 1,
            (true, false) => self.silent_in_a_row + 1,
        };
        if was_small && silent && !carried {
            // Size was not the reason.
            *self = PathWatch::default();
        } else if self.silent_in_a_row >= SILENT_IN_A_ROW {
            self.small_until = Some(now + SMALL_FOR);
            self.silent_in_a_row = 0;
        }
    }

    /// For the log and the status of a connection dialed with small segments.
    pub fn warning() -> String {
        format!(
            "{SILENT_IN_A_ROW} connections in a row came up and fell silent, as on a path that swallows large packets: \
             this one uses segments of {SMALL_SEGMENT_BYTES} bytes; set net.ipv4.tcp_mtu_probing = 1 on both nodes, or \
             mend the MTU of the path"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(carried: u64, last_received_ms: u32, backoff: u8) -> TcpInfo {
        TcpInfo { bytes_acked: carried, bytes_received: carried * 2, last_received_ms, backoff, ..TcpInfo::default() }
    }

    fn segment_after(ends: &[TcpInfo]) -> Option<u16> {
        let (mut watch, now) = (PathWatch::default(), Instant::now());
        ends.iter().for_each(|end| watch.ended(now, end));
        watch.segment_bytes(now)
    }

    #[test]
    fn two_silent_ends_in_a_row_make_segments_small() {
        let (healthy, cut) = (end(1 << 20, 100, 0), end(1 << 20, 5000, 0));
        let (swallowed, unheard) = (end(3000, 100, 4), end(3000, 5000, 0));
        for (ends, small) in [
            (&[swallowed][..], false),
            (&[swallowed, unheard], true),
            (&[cut, swallowed], true),
            // A line that is cut again and again carries large packets in between.
            (&[cut, cut, cut], false),
            (&[swallowed, healthy, swallowed], false),
            (&[swallowed, swallowed, healthy], true),
            // Small ones did not help.
            (&[swallowed, swallowed, swallowed], false),
        ] {
            assert_eq!(segment_after(ends).is_some(), small, "{ends:?}");
        }
    }

    #[test]
    fn a_mended_path_gets_its_chance() {
        let (mut watch, now) = (PathWatch::default(), Instant::now());
        watch.ended(now, &end(3000, 100, 4));
        watch.ended(now, &end(3000, 100, 4));
        assert_eq!(watch.segment_bytes(now), Some(SMALL_SEGMENT_BYTES));
        assert_eq!(watch.segment_bytes(now + SMALL_FOR), None);
    }
}
