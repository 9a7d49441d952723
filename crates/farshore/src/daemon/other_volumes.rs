//! A group goes on with other volumes than it was begun with (decision 68). Between its stop and its start here its records are rewritten.
//!
//! All that is new is written to a directory `changing.N` in the group's directory, and flushed. Its renaming to `changed` is the one step:
//! before it the group is the one of before, whatever stands in any `changing.N`, and behind it the new one. Then each file takes its place,
//! which is done again from wherever a crash ended it, and comes first whenever the group is opened. Each attempt has a directory of its own.
//! What attempts left that were refused or cut short is removed when the group is opened.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use engine::other_volumes::{self as records, FoundCells, KeptBatches, Lost, Obstacle, VolumeMap};
use engine::superblock::{self, Superblock};
use engine::{VolumeId, VolumeSet, cell, journal};
use host::disk::device_id::{DeviceId, compare};
use host::disk::fingerprint::Fingerprint;
use host::disk::meta::read_blocks;
use host::disk::volume::{VolumeOptions, open_volume};
use rustix::fs::OFlags;
use settings::{Config, ConfiguredGroup, NodeName};

use super::device_record::{self, GroupDevices};
use super::group_directory::GROUPS;
use super::{left_volumes, names, seals, state_files, terms};

/// Begins the names of directories that do not count yet: one for each attempt, with its number.
const CHANGING: &str = "changing.";
/// Counts: what is in it belongs one level up.
const CHANGED: &str = "changed";
/// Files that are replaced, in this order. Those that are not there were not changed, or stand in their place already.
const REPLACED: [&str; 8] = ["left", "came", "bitmap", "fingerprints", "devices", "detached", "superblock", "volumes"];
/// Blocks of the journal that are written over, each behind its offset.
const JOURNAL: &str = "journal";

/// A group whose records name other volumes than the configuration.
pub(super) struct OtherVolumes<'a> {
    config: &'a Config,
    node: &'a NodeName,
    group: &'a ConfiguredGroup,
    directory: PathBuf,
    before: Vec<String>,
    recorded: GroupDevices,
    /// Volumes without a device, under their names of before.
    detached: GroupDevices,
    found: GroupDevices,
    sb: Superblock,
    map: VolumeMap,
}

/// All is written, and the step has not been taken.
pub(super) struct Prepared {
    directory: PathBuf,
    /// In it: what this attempt has written.
    changing: PathBuf,
    words: String,
}

impl<'a> OtherVolumes<'a> {
    /// `None`: its volumes are those on record, or nothing is.
    ///
    /// # Errors
    /// A sentence: what is on record cannot be read, or a device cannot be looked at.
    pub fn of(
        config: &'a Config,
        node: &'a NodeName,
        group: &'a ConfiguredGroup,
    ) -> anyhow::Result<Option<OtherVolumes<'a>>> {
        let here = config.node(node).expect("the node was looked up before");
        let directory = here.state.join(GROUPS).join(group.name.as_str());
        let Some(before) = names::volumes_on_record(&directory)? else { return Ok(None) };
        if before.iter().eq(group.volumes.iter().map(|volume| volume.name.as_str())) {
            return Ok(None);
        }
        let blocks = match read_blocks(&directory.join("superblock"), superblock::FILE_BYTES) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.context("its superblock cannot be read")?,
        };
        // One that cannot be used is told of by whoever opens the group.
        let Ok(Some(sb)) = superblock::read(&blocks, config.group_tag(group)).map(|read| read.found) else {
            return Ok(None);
        };
        let recorded = device_record::read_devices(&directory)
            .context("the record of its devices")?
            .context("the record of its devices is missing")?;
        let detached = device_record::read_detached(&directory)?;
        let mut found = GroupDevices::new();
        for volume in &group.volumes {
            // A dead disk is not looked at.
            let device = match detached.get(volume.name.as_str()) {
                Some(device) => device.clone(),
                None => DeviceId::of(volume.device(node))?,
            };
            found.insert(volume.name.to_string(), device);
        }
        let (map, renamed) = map(&before, &recorded, &found);
        let map = map.with_renamed(&renamed);
        Ok(Some(OtherVolumes { config, node, group, directory, before, recorded, detached, found, sb, map }))
    }

    /// Why the group cannot go on with them now, as a sentence. `is_running`: it has not stopped yet.
    pub fn obstacle(&self, is_running: bool) -> Option<String> {
        let name = &self.group.name;
        if let Some(delta) = delta_of(&self.directory) {
            return Some(format!(
                "{} holds what was given up in a fork, and calls volumes by their position: take out of it what you need, and move it away",
                delta.display()
            ));
        }
        let role = self.sb.identity.role;
        let groups = self.directory.parent().expect("a group's directory is in one");
        let elsewhere = |(volume, device): (&String, &DeviceId)| {
            left_volumes::speaks_against(self.config, (groups, name.as_str(), role), (volume, device))
        };
        let obstacle = records::obstacle(&self.sb, &self.map, is_running);
        obstacle.map(|obstacle| self.words(obstacle, name.as_str())).or_else(|| self.come().find_map(elsewhere))
    }

    /// A device that comes is on record with another group, which cannot let it go now: once that has its old names back, it would take its
    /// bits of before for the truth about what this group wrote.
    fn is_held_elsewhere(&self) -> Option<String> {
        let groups = self.directory.parent().expect("a group's directory is in one");
        let others = self.config.groups_of(self.node).filter(|other| other.name != self.group.name);
        for other in others {
            let recorded =
                device_record::read_devices(&groups.join(other.name.as_str())).ok().flatten().unwrap_or_default();
            let is_its = |(_, device): &(&String, &DeviceId)| recorded.values().any(|its| compare(its, device).is_ok());
            let Some((volume, _)) = self.come().find(is_its) else { continue };
            let why = match OtherVolumes::of(self.config, self.node, other) {
                Ok(None) => continue,
                Ok(Some(theirs)) => records::obstacle(&theirs.sb, &theirs.map, false)
                    .map(|obstacle| theirs.words(obstacle, other.name.as_str())),
                Err(error) => Some(format!("{error:#}")),
            };
            if let Some(why) = why {
                return Some(format!(
                    "volume {volume} is on record with group {}, which cannot let it go: {why}",
                    other.name
                ));
            }
        }
        None
    }

    /// Volumes that come, also under a new name.
    fn come(&self) -> impl Iterator<Item = (&String, &DeviceId)> {
        self.found.iter().zip(self.map.positions()).filter(|(_, from)| from.is_none()).map(|(found, _)| found)
    }

    /// What the group has on record, and what it is to have, where that is another set.
    pub fn in_words(&self) -> String {
        let names: Vec<_> = self.found.keys().map(String::as_str).collect();
        let aside: Vec<_> = self.come().map(|(name, _)| name.as_str()).collect();
        let mut words =
            format!("its volumes are {} from then on (they were {})", names.join(", "), self.before.join(", "));
        if !aside.is_empty() {
            words += &format!(
                "; set aside until 'farshore sync {} --volume NAME' on the primary: {}",
                self.group.name,
                aside.join(", ")
            );
        }
        words
    }

    fn words(&self, obstacle: Obstacle, group: &str) -> String {
        let before = self.before.join(", ");
        match obstacle {
            Obstacle::Unclean => format!(
                "its last stop was not clean, so what was written last is known by its volumes of before: give it the old names back ({before}), \
                 start and stop it, and change them then"
            ),
            Obstacle::SyncUnderWay => format!(
                "a sync or a rollback is under way, or was cut short: with its volumes of before ({before}) on both nodes wait until it has ended \
                 ('farshore wait {group} --for replicating'), and change them then"
            ),
            Obstacle::Unverified => format!(
                "this node lost power while it was primary, and its last writes may be with its peer alone: with its volumes of before ({before}) \
                 let both nodes meet, and change them then"
            ),
            Obstacle::HandedOver => {
                "this node was demoted, and nobody was promoted since: promote one of the two nodes, and change its volumes then".to_owned()
            }
            Obstacle::NothingStays => format!(
                "none of its volumes of before ({before}) is left, so nothing of its history is: give the new volumes a group of their own, and \
                 remove this one"
            ),
            Obstacle::AllAside => format!(
                "every volume that is left is set aside: 'farshore sync {group} --volume NAME' takes one in first, and its volumes are changed then"
            ),
            Obstacle::Unapplied => format!(
                "its journal holds what is not on the volumes yet: start and stop it with its volumes of before ({before}), and change them then"
            ),
            Obstacle::Journal | Obstacle::Bitmap => format!(
                "its {} cannot be converted, as it is damaged, of another version, or of devices that were just enlarged: start and stop it with \
                 its volumes of before ({before}), and change them then",
                if obstacle == Obstacle::Bitmap { "bitmap" } else { "journal" }
            ),
        }
    }

    /// Writes all that is new beside what counts.
    ///
    /// # Errors
    /// A sentence: it cannot be done now, and nothing has changed.
    pub fn prepare(&self, tag: u64) -> anyhow::Result<Prepared> {
        if let Some(why) = self.obstacle(false).or_else(|| self.is_held_elsewhere()) {
            bail!("{}", self.refusal(&why));
        }
        let changing = begin_attempt(&self.directory)?;
        let refuse = |obstacle| anyhow::anyhow!("{}", self.refusal(&self.words(obstacle, self.group.name.as_str())));
        let device_bytes: Vec<u64> = self.found.values().map(|device| device.size_bytes).collect();
        let lost = self.bitmap(&changing, tag, &device_bytes)?.map_err(refuse)?;
        let kept = self.journal(&changing)?.map_err(refuse)?;
        self.seals(&changing)?;
        self.devices(&changing)?;
        self.terms(&changing)?;
        let sb = records::converted(&self.sb, &self.map, &device_bytes, Lost { bits: lost, kept });
        write(&changing.join("superblock"), &records::superblock_file(&sb))?;
        write(&changing.join("volumes"), names::volumes_listed(self.group).as_bytes())?;
        flush(&changing)?;
        let words = format!("group {}: {}", self.group.name, self.in_words());
        Ok(Prepared { directory: self.directory.clone(), changing, words })
    }

    fn refusal(&self, why: &str) -> String {
        let names: Vec<_> = self.found.keys().map(String::as_str).collect();
        format!(
            "its volumes are {} in the configuration, and were {}; it cannot go on with others now: {why}",
            names.join(", "),
            self.before.join(", ")
        )
    }

    /// Whether bits of some volume were lost.
    fn bitmap(&self, changing: &Path, tag: u64, device_bytes: &[u64]) -> anyhow::Result<Result<bool, Obstacle>> {
        let path = self.directory.join("bitmap");
        let old = open(&path)?;
        let count = old.metadata()?.len() / cell::CELL_BYTES;
        let read = |index: usize| {
            let mut bytes = vec![0; cell::CELL_BYTES as usize];
            let read = old.read_exact_at(&mut bytes, index as u64 * cell::CELL_BYTES);
            read.with_context(|| cannot("be read", &path)).map(|()| bytes)
        };
        let mut found = FoundCells::default();
        for index in 0..count as usize {
            if let Err(obstacle) = found.take(tag, index, &read(index)?) {
                return Ok(Err(obstacle));
            }
        }
        let planned = found.plan(&self.map, device_bytes);
        let path = changing.join("bitmap");
        let mut new = BufWriter::with_capacity(1 << 20, create(&path)?);
        for (index, cell) in planned.iter().enumerate() {
            let old = cell.from.iter().map(|from| read(*from)).collect::<anyhow::Result<Vec<_>>>()?;
            match cell.image(&self.sb, index, &old) {
                Ok(image) => new.write_all(&image).with_context(|| cannot("be written", &path))?,
                Err(obstacle) => return Ok(Err(obstacle)),
            }
        }
        let new = new.into_inner().map_err(|error| error.into_error()).with_context(|| cannot("be written", &path))?;
        new.sync_all().with_context(|| cannot("be flushed", &path))?;
        Ok(Ok(planned.iter().any(|cell| cell.from.is_empty())))
    }

    /// Whether content that was kept is kept no more.
    fn journal(&self, changing: &Path) -> anyhow::Result<Result<bool, Obstacle>> {
        let path = self.directory.join("journal");
        let old = open(&path)?;
        let mut kept = KeptBatches::new(&self.sb, state_files::journal_bytes(self.group));
        let mut changes = Vec::new();
        while let Some(offset) = kept.next_offset() {
            let mut block = vec![0; journal::INDEX_BYTES];
            old.read_exact_at(&mut block, offset).with_context(|| cannot("be read", &path))?;
            match kept.take(&block, &self.map) {
                Ok(Some(block)) => {
                    changes.extend_from_slice(&offset.to_le_bytes());
                    changes.extend_from_slice(&block);
                }
                Ok(None) if kept.looks_again() => {}
                Ok(None) => break,
                Err(obstacle) => return Ok(Err(obstacle)),
            }
        }
        if let Err(obstacle) = kept.end() {
            return Ok(Err(obstacle));
        }
        if !changes.is_empty() {
            write(&changing.join(JOURNAL), &changes)?;
        }
        Ok(Ok(kept.gives_up()))
    }

    /// Volumes that stay keep theirs, under whatever name; one that came is as it is now.
    fn seals(&self, changing: &Path) -> anyhow::Result<()> {
        let run = self.sb.identity.incarnation;
        let Ok(Some(sealed)) = seals::read(&seals::path(&self.directory)) else { return Ok(()) };
        if sealed.run != run {
            return Ok(());
        }
        let mut kept = Vec::new();
        for (volume, from) in self.group.volumes.iter().zip(self.map.positions()) {
            let seal = match from.and_then(|from| self.before.get(usize::from(from.0))) {
                Some(before) => match sealed.volumes.get(before) {
                    Some(seal) => seal.clone(),
                    None => continue,
                },
                None => {
                    let options = VolumeOptions { buffered: !volume.direct };
                    let file = open_volume(volume.device(self.node), options)?;
                    Fingerprint::take(&file, host::driver::entropy())?
                }
            };
            kept.push((volume.name.to_string(), seal));
        }
        write(&changing.join("fingerprints"), &seals::encode(run, &kept)?)
    }

    fn devices(&self, changing: &Path) -> anyhow::Result<()> {
        let one = |(name, from): (&String, Option<VolumeId>)| {
            let before = from.and_then(|from| self.before.get(usize::from(from.0)));
            let recorded = before.and_then(|before| self.recorded.get(before));
            (name.clone(), recorded.unwrap_or(&self.found[name]).clone())
        };
        let devices: GroupDevices = self.found.keys().zip(self.map.positions()).map(one).collect();
        write(&changing.join("devices"), device_record::text_of(&devices).as_bytes())?;
        let detached = still_detached(&self.detached, &self.before, self.found.keys().zip(self.map.positions()));
        write(&changing.join("detached"), device_record::text_of_detached(&detached).as_bytes())?;
        let leaves = |(at, name): (usize, &String)| {
            let stays = self.map.positions().any(|from| from == Some(VolumeId(at as u16)));
            Some((name.clone(), self.recorded.get(name).filter(|_| !stays)?.clone()))
        };
        let leave = self.before.iter().enumerate().filter_map(leaves).collect();
        let left = left_volumes::leaving(&self.directory, (self.sb.identity.role, unix_ms()), leave, &self.found)?;
        write(&changing.join(device_record::LEFT), device_record::text_of_left(&left).as_bytes())
    }

    /// What a client kept for another volume of that name is not for this one.
    fn terms(&self, changing: &Path) -> anyhow::Result<()> {
        let stays = |name: &&String| self.before.contains(name);
        // What cannot be read has begun another term of all of the group.
        let mut terms = terms::came(&self.directory).unwrap_or_default();
        terms.retain(|name, _| self.found.contains_key(name));
        let begin = self.found.keys().filter(|name| !stays(name)).cloned();
        write(&changing.join(terms::CAME), terms::text_of_came(terms, begin).as_bytes())
    }
}

impl Prepared {
    /// The step, and what follows from it.
    ///
    /// # Errors
    /// A sentence. Whether the step was taken says the directory; the next opening of the group goes on.
    pub fn take(self) -> anyhow::Result<()> {
        let changed = self.directory.join(CHANGED);
        fs::rename(&self.changing, &changed).with_context(|| cannot("be renamed", &self.changing))?;
        flush(&self.directory)?;
        tracing::info!("{}", self.words);
        finish(&self.directory)
    }
}

/// Before a group is opened: its records are those of the volumes that the configuration gives it.
///
/// # Errors
/// A sentence: they cannot be.
pub(super) fn convert(config: &Config, node: &NodeName, group: &ConfiguredGroup) -> anyhow::Result<()> {
    match OtherVolumes::of(config, node, group)? {
        Some(other) => other.prepare(config.group_tag(group))?.take(),
        None => Ok(()),
    }
}

/// Goes on with a step that was taken, from wherever that was cut short, and removes what attempts left that took none.
///
/// # Errors
/// A sentence: the state disk does not allow it.
pub(super) fn finish(directory: &Path) -> anyhow::Result<()> {
    finish_steps(directory, usize::MAX)?;
    attempts(directory).into_iter().try_for_each(|(_, attempt)| remove_tree(&attempt))
}

/// What attempts left in the directory, each with its number.
fn attempts(directory: &Path) -> Vec<(u64, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let number = |name: &str| name.strip_prefix(CHANGING)?.parse().ok();
    entries.filter_map(|entry| Some((number(entry.file_name().to_str()?)?, entry.path()))).collect()
}

/// A directory that no attempt before had.
fn begin_attempt(directory: &Path) -> anyhow::Result<PathBuf> {
    let newest = attempts(directory).into_iter().map(|(number, _)| number).max().unwrap_or(0);
    let changing = directory.join(format!("{CHANGING}{}", newest.saturating_add(1)));
    fs::DirBuilder::new().mode(0o700).create(&changing).with_context(|| cannot("be made", &changing))?;
    Ok(changing)
}

/// `most`: a crash comes after so many steps.
fn finish_steps(directory: &Path, most: usize) -> anyhow::Result<()> {
    let changed = directory.join(CHANGED);
    if !changed.is_dir() {
        return Ok(());
    }
    let mut left = most;
    let mut step = || {
        let goes_on = left > 0;
        left = left.saturating_sub(1);
        goes_on
    };
    let blocks = changed.join(JOURNAL);
    if step() && blocks.exists() {
        write_over_journal(directory, &blocks)?;
        fs::remove_file(&blocks).with_context(|| cannot("be removed", &blocks))?;
    }
    for name in REPLACED {
        let (from, to) = (changed.join(name), directory.join(name));
        if step() && from.exists() {
            fs::rename(&from, &to).with_context(|| cannot("be renamed", &from))?;
        }
    }
    flush(&changed)?;
    flush(directory)?;
    if step() {
        remove_tree(&changed)?;
        flush(directory)?;
    }
    Ok(())
}

fn write_over_journal(directory: &Path, blocks: &Path) -> anyhow::Result<()> {
    let mut changes = Vec::new();
    open(blocks)?.read_to_end(&mut changes).with_context(|| cannot("be read", blocks))?;
    let path = directory.join("journal");
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let ring = OpenOptions::new().write(true).custom_flags(flags).open(&path);
    let ring = ring.with_context(|| cannot("be opened", &path))?;
    for change in changes.chunks_exact(8 + journal::INDEX_BYTES) {
        let (offset, block) = change.split_first_chunk::<8>().expect("it is longer");
        ring.write_all_at(block, u64::from_le_bytes(*offset)).with_context(|| cannot("be written", &path))?;
    }
    ring.sync_all().with_context(|| cannot("be flushed", &path))
}

/// By names and recorded devices, and which of them are volumes of before under new names.
fn map(before: &[String], recorded: &GroupDevices, found: &GroupDevices) -> (VolumeMap, VolumeSet) {
    let before: Vec<&str> = before.iter().map(String::as_str).collect();
    let (now, devices): (Vec<&str>, Vec<&DeviceId>) =
        found.iter().map(|(name, device)| (name.as_str(), device)).unzip();
    VolumeMap::of_names(&before, &now, |then, now| {
        recorded.get(before[then]).is_some_and(|recorded| compare(recorded, devices[now]).is_ok())
    })
}

/// A delta of a fork, the newest or an older one.
fn delta_of(directory: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_delta = |name: &str| name == "delta" || name.starts_with("delta.");
    entries.filter(|entry| entry.file_name().to_str().is_some_and(is_delta)).map(|entry| entry.path()).min()
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Volumes that stay without a device, by their names from now on. One that left and comes again is a new one.
fn still_detached<'n>(
    detached: &GroupDevices,
    before: &[String],
    now: impl Iterator<Item = (&'n String, Option<VolumeId>)>,
) -> GroupDevices {
    let one = |(name, from): (&String, Option<VolumeId>)| {
        let device = detached.get(before.get(usize::from(from?.0))?)?;
        Some((name.clone(), device.clone()))
    };
    now.filter_map(one).collect()
}

fn cannot(what: &str, path: &Path) -> String {
    format!("{} cannot {what}", path.display())
}

fn open(path: &Path) -> anyhow::Result<File> {
    settings::durable::open(path).with_context(|| cannot("be opened", path))
}

fn create(path: &Path) -> anyhow::Result<File> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    created.with_context(|| cannot("be made", path))
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let mut file = create(path)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).with_context(|| cannot("be written", path))
}

fn flush(directory: &Path) -> anyhow::Result<()> {
    let flushed = File::open(directory).and_then(|directory| directory.sync_all());
    flushed.with_context(|| cannot("be flushed", directory))
}

fn remove_tree(path: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).with_context(|| cannot("be removed", path)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(directory: &Path, age: &str) {
        fs::create_dir_all(directory).expect("made");
        for name in REPLACED {
            fs::write(directory.join(name), format!("{age} {name}")).expect("written");
        }
    }

    fn read(path: &Path) -> Vec<u8> {
        fs::read(path).expect("there")
    }

    /// A crash at each point behind the step, and at each point of the next attempt.
    #[test]
    fn a_step_that_was_taken_is_gone_through_with() {
        let steps = REPLACED.len() + 2;
        for (first, second) in (0..=steps).flat_map(|first| (0..=steps).map(move |second| (first, second))) {
            let scratch = tempfile::tempdir().expect("a directory");
            let (directory, changed) = (scratch.path(), scratch.path().join(CHANGED));
            make(directory, "old");
            make(&changed, "new");
            fs::write(directory.join("journal"), vec![1; 4 * journal::INDEX_BYTES]).expect("written");
            let offset = 2 * journal::INDEX_BYTES as u64;
            let change = [&offset.to_le_bytes()[..], &vec![7; journal::INDEX_BYTES]].concat();
            fs::write(changed.join(JOURNAL), change).expect("written");
            finish_steps(directory, first).expect("cut short");
            finish_steps(directory, second).expect("cut short again");
            finish(directory).expect("whole");
            for name in REPLACED {
                assert_eq!(read(&directory.join(name)), format!("new {name}").as_bytes(), "{first} {second}");
            }
            let blocks: Vec<u8> =
                read(&directory.join("journal")).chunks(journal::INDEX_BYTES).map(|block| block[9]).collect();
            assert_eq!(blocks, [1, 1, 7, 1]);
            assert!(!changed.exists());
        }
    }

    #[test]
    fn what_was_only_prepared_counts_for_nothing_and_is_removed() {
        let scratch = tempfile::tempdir().expect("a directory");
        make(scratch.path(), "old");
        make(&begin_attempt(scratch.path()).expect("made"), "new");
        finish(scratch.path()).expect("nothing to do");
        assert_eq!(read(&scratch.path().join("superblock")), b"old superblock");
        assert_eq!(attempts(scratch.path()), []);
    }

    /// An attempt was refused while another group was prepared, or killed: what it wrote is of the volumes that were wanted then.
    #[test]
    fn an_attempt_takes_the_step_with_what_it_wrote_itself() {
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = scratch.path();
        make(directory, "old");
        let before = ["refused", "killed"].map(|word| {
            let attempt = begin_attempt(directory).expect("made");
            make(&attempt, word);
            attempt
        });
        let changing = begin_attempt(directory).expect("made");
        assert!(before.iter().all(|attempt| attempt.is_dir() && *attempt != changing));
        fs::write(changing.join("volumes"), "new volumes").expect("written");
        let attempt = Prepared { directory: directory.to_owned(), changing, words: "it has other volumes".to_owned() };
        attempt.take().expect("taken");
        assert_eq!(read(&directory.join("volumes")), b"new volumes");
        assert_eq!(read(&directory.join("superblock")), b"old superblock", "it wrote none");
        assert!(attempts(directory).is_empty() && !directory.join(CHANGED).exists());
    }

    #[test]
    fn any_delta_of_a_fork_is_found() {
        let scratch = tempfile::tempdir().expect("a directory");
        assert_eq!(delta_of(scratch.path()), None);
        for name in ["delta.2", "delta.1", "deltas"] {
            fs::write(scratch.path().join(name), "").expect("written");
        }
        assert_eq!(delta_of(scratch.path()), Some(scratch.path().join("delta.1")));
    }

    #[test]
    fn names_and_devices_make_the_map() {
        let device = |inode: u64| {
            let mut id = DeviceId::default();
            ["size 4096", "kind file", &format!("inode {inode}")]
                .into_iter()
                .for_each(|line| id.take_line(line).expect("a fact"));
            id
        };
        let devices = |all: &[(&str, u64)]| -> GroupDevices {
            all.iter().map(|(name, inode)| ((*name).to_owned(), device(*inode))).collect()
        };
        let before = ["data".to_owned(), "log".to_owned()];
        let recorded = devices(&[("data", 1), ("log", 2)]);
        let of = |found: &[(&str, u64)]| {
            let (map, _) = map(&before, &recorded, &devices(found));
            map.positions().map(|from| from.map(|from| from.0)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[("a", 3), ("data", 1), ("log", 2)]), [None, Some(0), Some(1)]);
        assert_eq!(of(&[("log", 2)]), [Some(1)]);
        assert_eq!(of(&[("data", 1), ("wal", 2)]), [Some(0), Some(1)], "a new name");
        assert_eq!(of(&[("data", 1), ("wal", 3)]), [Some(0), None], "another device");
        let newly_named = |found: &[(&str, u64)]| {
            let found = devices(found);
            let (_, renamed) = map(&before, &recorded, &found);
            renamed.iter().map(|id| id.0).collect::<Vec<_>>()
        };
        assert_eq!(newly_named(&[("data", 1), ("wal", 2), ("x", 3)]), [1]);
        // A device is one volume's.
        assert_eq!(of(&[("v", 2), ("w", 2)]), [Some(1), None]);
        // One that has no device keeps none under another name; one that left is no longer on record.
        let still = |found: &[(&str, u64)]| {
            let (found, detached) = (devices(found), devices(&[("log", 2)]));
            let (map, _) = map(&before, &recorded, &found);
            still_detached(&detached, &before, found.keys().zip(map.positions())).into_keys().collect::<Vec<_>>()
        };
        assert_eq!(still(&[("data", 1), ("log", 2), ("new", 3)]), ["log"]);
        assert_eq!(still(&[("data", 1), ("wal", 2)]), ["wal"]);
        assert!(still(&[("data", 1), ("new", 3)]).is_empty());
    }
}
