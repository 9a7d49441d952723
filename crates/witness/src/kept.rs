//! Whether a disk that lost its power kept what it had promised to keep.
//!
//! Of everything else it may have kept any part, in any order, torn between sectors: such an image is no prefix, and need
//! not be. A promise is kept in a sector when what is there is the promised write, or one that need not have come before
//! it: one that was not acknowledged when the promised one was issued.

use std::collections::HashSet;
use std::io::{self, Read};

use crate::check::{VolumeImage, validate};
use crate::log::WriteHistory;
use crate::scan::{BASE, Known, scan, sectors_of};
use crate::stamp::WriteName;
use crate::verdict::Violation;

/// Check that `images`, one for each volume that was written to, hold every write of `promised`. The error inside says
/// which broken promise, or damage, is the first.
///
/// # Errors
/// As [`crate::check()`]; a promised write that is not in the log.
pub fn check_kept(
    history: &WriteHistory,
    promised: &HashSet<WriteName>,
    images: Vec<VolumeImage<'_>>,
) -> io::Result<Result<(), Violation>> {
    validate(history, &images)?;
    let known = Known::new(history.run, history.writes.clone());
    let logged = known.writes.iter().filter(|write| promised.contains(&write.name)).count();
    if logged != promised.len() {
        let problem = format!("only {logged} of {} promised writes are in the log", promised.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let mut images = images;
    images.sort_by_key(|image| image.volume);
    for mut image in images {
        let base = image.base.as_mut().map(|base| base.as_mut() as &mut dyn Read);
        let surface = match scan(&known, image.volume, image.source.as_mut(), base)? {
            Ok(surface) => surface,
            Err(violation) => return Ok(Err(violation)),
        };
        let of_volume = known.writes.iter().filter(|write| write.volume == image.volume);
        for write in of_volume.filter(|write| promised.contains(&write.name)) {
            for sector in sectors_of(write) {
                let found = surface.found[sector as usize];
                let found = (found != BASE).then(|| &known.writes[found as usize]);
                let is_older = found.is_none_or(|found| found.acknowledged.is_some_and(|tick| tick < write.issued));
                if is_older {
                    let position = crate::check::position(image.volume, sector);
                    let found = found.map(|found| found.name);
                    return Ok(Err(Violation::Forgotten { position, name: write.name, found }));
                }
            }
        }
    }
    Ok(Ok(()))
}
