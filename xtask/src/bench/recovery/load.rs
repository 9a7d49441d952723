//! What is written before the blow: 4 KiB blocks at random, in ten places far apart or all over a wide range.

use super::super::fio::{self, Running};
use super::EXTENT_BYTES;
use super::pair::{RecoveryPair, VOLUME};
use anyhow::Result;
use std::process::Command;

/// Where the load writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// So many extents, spread evenly over the group.
    Extents(u64),
    /// As much as so many extents, in one run at the start of each volume.
    Run(u64),
}

/// A run of one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeRun {
    pub volume: u64,
    pub offset: u64,
    pub length: u64,
}

impl Area {
    /// The places of an area in a group of equal volumes, whose size is a multiple of an extent.
    pub fn runs(self, volumes: u64, volume_bytes: u64) -> Vec<VolumeRun> {
        match self {
            Area::Extents(count) => {
                let apart = volumes * volume_bytes / count / EXTENT_BYTES * EXTENT_BYTES;
                let at = (0..count).map(|number| number * apart);
                at.map(|at| VolumeRun { volume: at / volume_bytes, offset: at % volume_bytes, length: EXTENT_BYTES })
                    .collect()
            }
            Area::Run(count) => {
                let length = (count * EXTENT_BYTES / volumes).min(volume_bytes);
                (0..volumes).map(|volume| VolumeRun { volume, offset: 0, length }).collect()
            }
        }
    }
}

/// Starts fio on a pair's volumes.
///
/// # Errors
/// It does not start.
pub fn start(pair: &RecoveryPair, runs: &[VolumeRun], seed: u32) -> Result<Running> {
    let mut command = Command::new("fio");
    command.args(["--output-format=json", "--ioengine=nbd", "--rw=randwrite", "--bs=4k", "--norandommap", "--thread"]);
    // Longer than anybody waits; it is ended.
    command.args(["--time_based", "--runtime=1h"]).arg(format!("--randseed={seed}"));
    let depth = (32 / runs.len()).max(2);
    for (number, run) in runs.iter().enumerate() {
        command.arg(format!("--name=run-{number}")).arg(format!("--iodepth={depth}"));
        command.arg(format!("--uri={}", pair.uri(&format!("{VOLUME}{}", run.volume + 1))));
        command.arg(format!("--offset={}", run.offset)).arg(format!("--size={}", run.length));
    }
    fio::start(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_extents_lie_apart_and_within_their_volumes() {
        let runs = Area::Extents(10).runs(4, 256 << 30);
        assert_eq!(runs.len(), 10);
        assert!(runs.iter().all(|run| run.offset + run.length <= 256 << 30 && run.offset % EXTENT_BYTES == 0));
        assert_eq!((runs[0].volume, runs[9].volume), (0, 3));
    }

    #[test]
    fn a_run_is_shared_by_the_volumes() {
        let runs = Area::Run(10_240).runs(4, 256 << 30);
        assert!(runs.iter().all(|run| run.offset == 0 && run.length == 10 << 30));
        assert_eq!(runs.len(), 4);
    }
}
