//! What is written before the blow: 4 KiB blocks at random, in ten places far apart or all over a wide range.

use super::super::fio::{self, Running};
use super::EXTENT_BYTES;
use super::pair::{Pair, VOLUME};
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
pub struct Place {
    pub volume: u64,
    pub offset: u64,
    pub length: u64,
}

impl Area {
    /// The places of an area in a group of equal volumes, whose size is a multiple of an extent.
    pub fn places(self, volumes: u64, volume_bytes: u64) -> Vec<Place> {
        match self {
            Area::Extents(count) => {
                let apart = volumes * volume_bytes / count / EXTENT_BYTES * EXTENT_BYTES;
                let at = (0..count).map(|number| number * apart);
                at.map(|at| Place { volume: at / volume_bytes, offset: at % volume_bytes, length: EXTENT_BYTES })
                    .collect()
            }
            Area::Run(count) => {
                let length = (count * EXTENT_BYTES / volumes).min(volume_bytes);
                (0..volumes).map(|volume| Place { volume, offset: 0, length }).collect()
            }
        }
    }
}

/// Starts fio on a pair's volumes.
///
/// # Errors
/// It does not start.
pub fn start(pair: &Pair, places: &[Place], seed: u32) -> Result<Running> {
    let mut command = Command::new("fio");
    command.args(["--output-format=json", "--ioengine=nbd", "--rw=randwrite", "--bs=4k", "--norandommap", "--thread"]);
    // Longer than anybody waits; it is ended.
    command.args(["--time_based", "--runtime=1h"]).arg(format!("--randseed={seed}"));
    let depth = (32 / places.len()).max(2);
    for (number, place) in places.iter().enumerate() {
        command.arg(format!("--name=place-{number}")).arg(format!("--iodepth={depth}"));
        command.arg(format!("--uri={}", pair.uri(&format!("{VOLUME}{}", place.volume + 1))));
        command.arg(format!("--offset={}", place.offset)).arg(format!("--size={}", place.length));
    }
    fio::start(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_extents_lie_apart_and_within_their_volumes() {
        let places = Area::Extents(10).places(4, 256 << 30);
        assert_eq!(places.len(), 10);
        assert!(
            places.iter().all(|place| place.offset + place.length <= 256 << 30 && place.offset % EXTENT_BYTES == 0)
        );
        assert_eq!((places[0].volume, places[9].volume), (0, 3));
    }

    #[test]
    fn a_run_is_shared_by_the_volumes() {
        let places = Area::Run(10_240).places(4, 256 << 30);
        assert!(places.iter().all(|place| place.offset == 0 && place.length == 10 << 30));
        assert_eq!(places.len(), 4);
    }
}
