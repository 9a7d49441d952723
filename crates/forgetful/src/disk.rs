//! Files, directories and the power: the whole state of one file system, and what is left of it.
//!
//! Names change in steps, each whole or not at all (a rename is one step). Flushing a directory brings the steps that
//! touched it, with the earlier ones of the names in them, and no others: not the directory's own name in its parent. Of
//! the rest a power loss brings some, in their order, or none. Flushing a *file* brings its bytes, size and attributes,
//! but no name.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo};

use crate::content::{ForgetfulContent, PAGE_BYTES, SECTOR_BYTES};
use crate::random::StoreRandom;
use crate::{Fate, Loss, StoreCounts};

pub(crate) const ROOT: u64 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attributes {
    permissions: u16,
    owner: u32,
    group: u32,
    changed: SystemTime,
    modified: SystemTime,
}

/// What is to become of a node's attributes; `None`: what it was.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Changes {
    pub permissions: Option<u16>,
    pub owner: Option<u32>,
    pub group: Option<u32>,
    pub size: Option<u64>,
    pub modified: Option<SystemTime>,
}

/// A name's entry. Listings go by `cookie`, which never changes: they stay whole while names come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryEntry {
    pub node: u64,
    pub cookie: u64,
    pub kind: FileType,
}

type Names = BTreeMap<OsString, DirectoryEntry>;

enum InodeBody {
    File(ForgetfulContent),
    Directory {
        now: Names,
        kept: Names,
    },
    /// A socket or a pipe: the kernel has the rest.
    Special,
}

struct Inode {
    kind: FileType,
    now: Attributes,
    kept: Attributes,
    body: InodeBody,
    links: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    On,
    /// Nobody gets an answer, and nothing is lost.
    Hung,
    /// Nobody gets an answer.
    Cut,
    /// Everybody gets an error.
    Off,
}

/// One change of names: of each, what it leads to from then on.
struct NameStep(Vec<(u64, OsString, Option<DirectoryEntry>)>);

/// What a cut waits for.
enum Due {
    /// So many more calls.
    Calls(u64),
    /// So many more flushes.
    Flushes(u64),
    /// A flush that finds so many bytes not flushed.
    Unflushed(u64),
}

pub(crate) struct ForgetfulDisk {
    nodes: HashMap<u64, Inode>,
    /// Numbers given so far; none is given twice.
    numbers: u64,
    /// Not yet on the medium.
    steps: VecDeque<NameStep>,
    power: Power,
    due: Option<(Due, Fate)>,
    /// The call after so many more fails.
    failing: Option<(u64, Errno)>,
    /// The disk hangs from the call after so many more.
    hanging: Option<u64>,
    /// What the last one was that failed so.
    failed: Option<&'static str>,
    /// File or folder of the last flush that failed.
    failed_flush: Option<u64>,
    loss: Loss,
    /// Counts power losses; what was opened before the last one is dead.
    boot: u64,
    /// Files that are open, by the boot that they were opened in.
    open_files: BTreeMap<u64, u64>,
    /// Bytes of a file that the medium does not give back.
    bad: Vec<(u64, Range<u64>)>,
    counts: StoreCounts,
    random: StoreRandom,
}

impl ForgetfulDisk {
    pub fn new(owner: u32, group: u32) -> ForgetfulDisk {
        let now = SystemTime::now();
        let attributes = Attributes { permissions: 0o755, owner, group, changed: now, modified: now };
        let body = InodeBody::Directory { now: Names::new(), kept: Names::new() };
        let root = Inode { kind: FileType::Directory, now: attributes, kept: attributes, body, links: 1 };
        ForgetfulDisk {
            nodes: HashMap::from([(ROOT, root)]),
            numbers: ROOT,
            steps: VecDeque::new(),
            power: Power::On,
            due: None,
            failing: None,
            hanging: None,
            failed: None,
            failed_flush: None,
            loss: Loss::default(),
            boot: 0,
            open_files: BTreeMap::new(),
            bad: Vec::new(),
            counts: StoreCounts::default(),
            random: StoreRandom::new(0),
        }
    }

    // --- Power ---

    pub fn power(&self) -> Power {
        self.power
    }

    pub fn boot(&self) -> u64 {
        self.boot
    }

    /// Notes that a file was opened; the handle.
    pub fn open_file(&mut self) -> u64 {
        *self.open_files.entry(self.boot).or_insert(0) += 1;
        self.boot
    }

    pub fn close_file(&mut self, boot: u64) {
        let open = self.open_files.get_mut(&boot).expect("what is closed was open");
        *open -= 1;
        if *open == 0 {
            self.open_files.remove(&boot);
        }
    }

    /// Whether files are open that were opened before the last power loss.
    pub fn has_dead_files(&self) -> bool {
        self.open_files.keys().any(|boot| *boot < self.boot)
    }

    pub fn counts(&self) -> StoreCounts {
        let contents = self.nodes.values().filter_map(|node| match &node.body {
            InodeBody::File(content) => Some(content.unflushed_bytes()),
            _ => None,
        });
        StoreCounts { unflushed_bytes: contents.sum(), unflushed_names: self.steps.len() as u64, ..self.counts }
    }

    pub fn loss(&self) -> Loss {
        self.loss
    }

    /// Has the power cut when so many more flushes are done, in the moment of the next.
    pub fn cut_power_after(&mut self, flushes: u64, fate: Fate) {
        self.due = Some((Due::Flushes(flushes), fate));
    }

    /// Has the power cut in the moment of the first flush that finds so many bytes not flushed.
    pub fn cut_power_when_unflushed(&mut self, bytes: u64, fate: Fate) {
        self.due = Some((Due::Unflushed(bytes), fate));
    }

    pub fn keep_power(&mut self) {
        self.due = None;
    }

    /// The same with a number of calls of any kind, and from then on all of them fail.
    pub fn die_after_calls(&mut self, calls: u64, fate: Fate) {
        self.due = Some((Due::Calls(calls), fate));
    }

    /// Has the call after so many more fail.
    pub fn fail_call_after(&mut self, calls: u64, error: Errno) {
        (self.failing, self.failed) = (Some((calls, error)), None);
    }

    /// Calls off a failure that has not come; which call it was if it has.
    pub fn fail_no_call(&mut self) -> Option<&'static str> {
        self.failing = None;
        self.failed.take()
    }

    /// Has the disk hang from the call after so many more.
    pub fn hang_after_calls(&mut self, calls: u64) {
        self.hanging = Some(calls);
    }

    /// A call is about to begin: whether the disk hangs from this one on.
    pub fn begins_to_hang(&mut self) -> bool {
        let begins = self.hanging == Some(0);
        self.hanging = self.hanging.and_then(|left| left.checked_sub(1));
        if begins {
            self.power = Power::Hung;
        }
        begins
    }

    /// A call begins.
    ///
    /// # Errors
    /// It is the one that was set to fail, or the power is lost in this moment.
    pub fn begin_call(&mut self, call: &'static str) -> Result<(), Errno> {
        self.counts.calls += 1;
        match &mut self.failing {
            Some((0, error)) => {
                let error = *error;
                (self.failing, self.failed) = (None, Some(call));
                return Err(error);
            }
            Some((left, _)) => *left -= 1,
            None => {}
        }
        match &mut self.due {
            Some((Due::Calls(0), fate)) => {
                let fate = *fate;
                self.cut_power(fate);
                self.power = Power::Off;
                return Err(Errno::EIO);
            }
            Some((Due::Calls(left), _)) => *left -= 1,
            _ => {}
        }
        Ok(())
    }

    /// What a flush that failed was to bring is never brought, though the next flush succeeds: as kernels do it, which take
    /// what could not be written for clean.
    pub fn fail_flush(&mut self, file: u64) {
        self.failed_flush = Some(file);
        if let Ok((content, _)) = self.content_mut(file) {
            content.fail_flush();
        }
    }

    /// Name of the file or folder of the last flush that failed, where it has one.
    pub fn failed_flush_of(&self) -> Option<OsString> {
        let failed = self.failed_flush?;
        let bodies = self.nodes.values().filter_map(|node| match &node.body {
            InodeBody::Directory { now, .. } => Some(now),
            _ => None,
        });
        bodies.flatten().find(|(_, entry)| entry.node == failed).map(|(name, _)| name.clone())
    }

    /// A flush or durable write begins, unless the power is lost in this moment.
    pub fn begin_flush(&mut self) -> bool {
        let due = match &mut self.due {
            Some((Due::Flushes(0), fate)) => Some(*fate),
            Some((Due::Flushes(left), _)) => {
                *left -= 1;
                None
            }
            Some((Due::Unflushed(bytes), fate)) => {
                let (bytes, fate) = (*bytes, *fate);
                (self.counts().unflushed_bytes >= bytes).then_some(fate)
            }
            Some((Due::Calls(_), _)) | None => None,
        };
        if let Some(fate) = due {
            self.cut_power(fate);
            return false;
        }
        self.counts.flushes += 1;
        true
    }

    /// What was not flushed is decided upon.
    pub fn cut_power(&mut self, fate: Fate) {
        assert!(self.power == Power::On, "the power was cut before");
        let mut random = match fate {
            Fate::AllLost => None,
            Fate::Drawn(seed) => Some(StoreRandom::new(seed)),
        };
        let mut loss = Loss::default();
        let survivors = random.as_mut().map_or(0, |random| random.below(self.steps.len() as u64 + 1));
        for step in self.steps.drain(..survivors as usize) {
            carry_out(&mut self.nodes, step);
        }
        loss.forgotten_names = self.steps.drain(..).map(|step| step.0.len() as u64).sum();
        let mut numbers: Vec<u64> = self.nodes.keys().copied().collect();
        // The order of a hash map must not decide what survives.
        numbers.sort_unstable();
        for number in numbers {
            let node = self.nodes.get_mut(&number).expect("it was listed");
            node.lose_power(random.as_mut(), &mut loss);
        }
        self.drop_unreachable();
        self.boot += 1;
        (self.power, self.due, self.failing, self.loss) = (Power::Cut, None, None, loss);
    }

    pub fn set_power(&mut self, power: Power) {
        (self.power, self.hanging) = (power, None);
    }

    /// Nodes without a name are gone, and the others have as many links as names.
    fn drop_unreachable(&mut self) {
        let mut links = HashMap::from([(ROOT, 1)]);
        let mut found = vec![ROOT];
        while let Some(number) = found.pop() {
            if let InodeBody::Directory { now, .. } = &self.nodes[&number].body {
                for entry in now.values() {
                    *links.entry(entry.node).or_insert(0) += 1;
                    found.push(entry.node);
                }
            }
        }
        self.nodes.retain(|number, node| {
            node.links = links.get(number).copied().unwrap_or(0);
            node.links > 0
        });
    }

    // --- Names ---

    pub fn lookup(&self, directory: u64, name: &OsStr) -> Result<FileAttr, Errno> {
        let entry = self.names(directory)?.get(name).ok_or(Errno::ENOENT)?;
        self.attributes(entry.node)
    }

    /// The entries of a directory that follow a cookie.
    pub fn list(&self, directory: u64, after: u64) -> Result<Vec<(OsString, DirectoryEntry)>, Errno> {
        let names = self.names(directory)?.iter().filter(|(_, entry)| entry.cookie > after);
        let mut entries: Vec<_> = names.map(|(name, entry)| (name.clone(), *entry)).collect();
        entries.sort_by_key(|(_, entry)| entry.cookie);
        Ok(entries)
    }

    /// A new node under a name. `mode`: type and permissions as in stat(2).
    pub fn make(&mut self, directory: u64, name: &OsStr, mode: u32, owner: (u32, u32)) -> Result<FileAttr, Errno> {
        if self.names(directory)?.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let (kind, body) = match rustix::fs::FileType::from_raw_mode(mode) {
            rustix::fs::FileType::RegularFile => (FileType::RegularFile, InodeBody::File(ForgetfulContent::default())),
            rustix::fs::FileType::Directory => {
                (FileType::Directory, InodeBody::Directory { now: Names::new(), kept: Names::new() })
            }
            rustix::fs::FileType::Socket => (FileType::Socket, InodeBody::Special),
            rustix::fs::FileType::Fifo => (FileType::NamedPipe, InodeBody::Special),
            _ => return Err(Errno::EPERM),
        };
        let now = SystemTime::now();
        let permissions = (mode & 0o7777) as u16;
        let attributes = Attributes { permissions, owner: owner.0, group: owner.1, changed: now, modified: now };
        let number = self.next_number();
        self.nodes.insert(number, Inode { kind, now: attributes, kept: attributes, body, links: 1 });
        let entry = DirectoryEntry { node: number, cookie: number, kind };
        self.take_step(vec![(directory, name.to_owned(), Some(entry))]);
        self.attributes(number)
    }

    pub fn remove(&mut self, directory: u64, name: &OsStr) -> Result<(), Errno> {
        let entry = *self.names(directory)?.get(name).ok_or(Errno::ENOENT)?;
        if entry.kind == FileType::Directory && !self.names(entry.node)?.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.node_mut(entry.node)?.links -= 1;
        self.take_step(vec![(directory, name.to_owned(), None)]);
        Ok(())
    }

    pub fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr), may_replace: bool) -> Result<(), Errno> {
        let entry = *self.names(from.0)?.get(from.1).ok_or(Errno::ENOENT)?;
        match self.names(to.0)?.get(to.1).copied() {
            Some(_) if !may_replace => return Err(Errno::EEXIST),
            Some(old) if old.node == entry.node => return Ok(()),
            Some(old) => {
                if old.kind == FileType::Directory && !self.names(old.node)?.is_empty() {
                    return Err(Errno::ENOTEMPTY);
                }
                self.node_mut(old.node)?.links -= 1;
            }
            None => {}
        }
        let moved = DirectoryEntry { cookie: self.next_number(), ..entry };
        self.take_step(vec![(from.0, from.1.to_owned(), None), (to.0, to.1.to_owned(), Some(moved))]);
        Ok(())
    }

    fn take_step(&mut self, changes: Vec<(u64, OsString, Option<DirectoryEntry>)>) {
        for (directory, name, entry) in &changes {
            let node = self.nodes.get_mut(directory).expect("its names were looked at");
            if let InodeBody::Directory { now, .. } = &mut node.body {
                set(now, name, *entry);
            }
            node.touch();
        }
        self.steps.push_back(NameStep(changes));
    }

    // --- Bytes ---

    pub fn refuse_reads(&mut self, file: u64, bytes: Range<u64>) {
        self.bad.push((file, bytes));
    }

    pub fn read(&self, file: u64, offset: u64, length: u64) -> Result<Vec<u8>, Errno> {
        let asked = |bytes: &Range<u64>| bytes.start < offset + length && offset < bytes.end;
        if self.bad.iter().any(|(bad, bytes)| *bad == file && asked(bytes)) {
            // What block devices answer to a direct read of a bad sector.
            return Err(Errno::ENODATA);
        }
        Ok(self.content(file)?.read(offset, length))
    }

    /// `is_durable`: on the medium before this returns.
    pub fn write(&mut self, file: u64, offset: u64, bytes: &[u8], is_durable: bool) -> Result<(), Errno> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(Errno::EFBIG)?;
        // A disk puts what it could not read elsewhere.
        self.bad.retain(|(bad, bytes)| *bad != file || bytes.start < offset || bytes.end > end);
        let (content, random) = self.content_mut(file)?;
        content.write(offset, bytes, random);
        if is_durable {
            let flushed = content.flush_range(offset..end);
            self.counts.flushed_bytes += flushed;
        }
        self.node_mut(file)?.touch();
        Ok(())
    }

    /// Space is without bound, so allocating it changes at most the size; what `zeroes` reads as zero from then on.
    pub fn allocate(&mut self, file: u64, offset: u64, length: u64, grows: bool, zeroes: bool) -> Result<(), Errno> {
        let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
        let (content, random) = self.content_mut(file)?;
        if zeroes {
            content.punch(offset..end, random);
        }
        if grows && end > content.size() {
            content.resize(end, random);
        }
        self.node_mut(file)?.touch();
        Ok(())
    }

    pub fn seek(&self, file: u64, offset: u64, is_data: bool) -> Result<u64, Errno> {
        let content = self.content(file)?;
        if offset >= content.size() {
            return Err(Errno::ENXIO);
        }
        match content.seek(offset, is_data) {
            Some(found) => Ok(found),
            // Behind the end everything is a hole.
            None if !is_data => Ok(content.size()),
            None => Err(Errno::ENXIO),
        }
    }

    /// Makes a file's bytes and size durable, and its attributes unless only the data matter; or a directory's names.
    pub fn flush(&mut self, number: u64, is_data_only: bool) -> Result<(), Errno> {
        let node = self.node_mut(number)?;
        if !is_data_only {
            node.kept = node.now;
        }
        match &mut node.body {
            InodeBody::File(content) => {
                let flushed = content.flush();
                self.counts.flushed_bytes += flushed;
            }
            InodeBody::Directory { .. } => {
                for step in self.take_steps_of(number) {
                    self.counts.flushed_names += step.0.len() as u64;
                    carry_out(&mut self.nodes, step);
                }
            }
            InodeBody::Special => {}
        }
        Ok(())
    }

    /// The steps that touched a directory and what they build on, in their order.
    fn take_steps_of(&mut self, directory: u64) -> Vec<NameStep> {
        let mut names: HashSet<(u64, OsString)> = HashSet::new();
        let (mut taken, mut left) = (Vec::new(), VecDeque::new());
        for step in self.steps.drain(..).rev() {
            let key = |(at, name, _): &(u64, OsString, Option<DirectoryEntry>)| (*at, name.clone());
            if step.0.iter().any(|change| change.0 == directory || names.contains(&key(change))) {
                names.extend(step.0.iter().map(key));
                taken.push(step);
            } else {
                left.push_front(step);
            }
        }
        self.steps = left;
        taken.reverse();
        taken
    }

    // --- Attributes ---

    pub fn attributes(&self, number: u64) -> Result<FileAttr, Errno> {
        let node = self.nodes.get(&number).ok_or(Errno::ESTALE)?;
        let (size, allocated) = match &node.body {
            InodeBody::File(content) => (content.size(), content.allocated_bytes()),
            _ => (0, 0),
        };
        Ok(FileAttr {
            ino: INodeNo(number),
            size,
            blocks: allocated / SECTOR_BYTES,
            atime: node.now.modified,
            mtime: node.now.modified,
            ctime: node.now.changed,
            crtime: UNIX_EPOCH,
            kind: node.kind,
            perm: node.now.permissions,
            nlink: node.links,
            uid: node.now.owner,
            gid: node.now.group,
            rdev: 0,
            blksize: PAGE_BYTES as u32,
            flags: 0,
        })
    }

    pub fn change(&mut self, number: u64, changes: Changes) -> Result<FileAttr, Errno> {
        if let Some(size) = changes.size {
            let (content, random) = self.content_mut(number)?;
            content.resize(size, random);
            self.node_mut(number)?.touch();
        }
        let attributes = &mut self.node_mut(number)?.now;
        attributes.permissions = changes.permissions.unwrap_or(attributes.permissions);
        attributes.owner = changes.owner.unwrap_or(attributes.owner);
        attributes.group = changes.group.unwrap_or(attributes.group);
        attributes.modified = changes.modified.unwrap_or(attributes.modified);
        attributes.changed = SystemTime::now();
        self.attributes(number)
    }

    // --- Ways to a node ---

    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn node_mut(&mut self, number: u64) -> Result<&mut Inode, Errno> {
        self.nodes.get_mut(&number).ok_or(Errno::ESTALE)
    }

    fn names(&self, directory: u64) -> Result<&Names, Errno> {
        match &self.nodes.get(&directory).ok_or(Errno::ESTALE)?.body {
            InodeBody::Directory { now, .. } => Ok(now),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn content(&self, file: u64) -> Result<&ForgetfulContent, Errno> {
        match &self.nodes.get(&file).ok_or(Errno::ESTALE)?.body {
            InodeBody::File(content) => Ok(content),
            _ => Err(Errno::EINVAL),
        }
    }

    fn content_mut(&mut self, file: u64) -> Result<(&mut ForgetfulContent, &mut StoreRandom), Errno> {
        match &mut self.nodes.get_mut(&file).ok_or(Errno::ESTALE)?.body {
            InodeBody::File(content) => Ok((content, &mut self.random)),
            _ => Err(Errno::EINVAL),
        }
    }
}

impl Inode {
    fn touch(&mut self) {
        // A change is to be seen even if the clock has not moved on.
        let now = SystemTime::now().max(self.now.modified + Duration::from_nanos(1));
        (self.now.modified, self.now.changed) = (now, now);
    }

    fn lose_power(&mut self, mut random: Option<&mut StoreRandom>, loss: &mut Loss) {
        if random.as_deref_mut().is_some_and(StoreRandom::coin) {
            self.kept = self.now;
        }
        self.now = self.kept;
        match &mut self.body {
            InodeBody::File(content) => {
                let toll = content.forget(random);
                loss.forgotten_bytes += toll.forgotten_bytes;
                loss.survived_bytes += toll.survived_bytes;
            }
            InodeBody::Directory { now, kept } => now.clone_from(kept),
            InodeBody::Special => {}
        }
    }
}

/// Brings a step to the medium.
fn carry_out(nodes: &mut HashMap<u64, Inode>, NameStep(changes): NameStep) {
    for (directory, name, entry) in changes {
        if let Some(Inode { body: InodeBody::Directory { kept, .. }, .. }) = nodes.get_mut(&directory) {
            set(kept, &name, entry);
        }
    }
}

fn set(names: &mut Names, name: &OsStr, entry: Option<DirectoryEntry>) {
    match entry {
        Some(entry) => names.insert(name.to_owned(), entry),
        None => names.remove(name),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u32 = 0o100_644;
    const FOLDER: u32 = 0o040_755;

    fn make(disk: &mut ForgetfulDisk, directory: u64, name: &str, mode: u32) -> u64 {
        disk.make(directory, name.as_ref(), mode, (0, 0)).unwrap().ino.0
    }

    fn names(disk: &ForgetfulDisk, directory: u64) -> Vec<String> {
        let entries = disk.list(directory, 0).unwrap().into_iter();
        let mut names: Vec<String> = entries.map(|(name, _)| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn lose(disk: &mut ForgetfulDisk, fate: Fate) -> Loss {
        disk.cut_power(fate);
        disk.set_power(Power::On);
        disk.loss()
    }

    #[test]
    fn a_name_is_durable_with_its_directory_and_bytes_with_their_file() {
        let mut disk = ForgetfulDisk::new(0, 0);
        let named = make(&mut disk, ROOT, "named", FILE);
        disk.write(named, 0, &[1; 4096], false).unwrap();
        disk.flush(ROOT, false).unwrap();
        let flushed = make(&mut disk, ROOT, "flushed", FILE);
        disk.write(flushed, 0, &[1; 4096], false).unwrap();
        disk.flush(flushed, false).unwrap();
        let loss = lose(&mut disk, Fate::AllLost);
        assert_eq!(names(&disk, ROOT), ["named"]);
        assert_eq!(disk.attributes(named).unwrap().size, 0);
        assert!(disk.attributes(flushed).is_err());
        assert_eq!(loss, Loss { forgotten_bytes: 4096, survived_bytes: 0, forgotten_names: 1 });
    }

    #[test]
    fn names_reach_the_medium_in_their_order_and_a_rename_is_whole() {
        let mut outcomes = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let mut disk = ForgetfulDisk::new(0, 0);
            let folder = make(&mut disk, ROOT, "folder", FOLDER);
            make(&mut disk, ROOT, "new", FILE);
            disk.flush(ROOT, false).unwrap();
            disk.rename((ROOT, "new".as_ref()), (folder, "final".as_ref()), true).unwrap();
            make(&mut disk, ROOT, "later", FILE);
            lose(&mut disk, Fate::Drawn(seed));
            outcomes.insert((names(&disk, ROOT).join(" "), names(&disk, folder).join(" ")));
        }
        let expected = [("folder", "final"), ("folder later", "final"), ("folder new", "")];
        let expected = expected.map(|(root, folder)| (root.to_owned(), folder.to_owned()));
        assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_folder_needs_its_parent_flushed_whatever_is_durable_in_it() {
        let mut disk = ForgetfulDisk::new(0, 0);
        let folder = make(&mut disk, ROOT, "folder", FOLDER);
        let file = make(&mut disk, folder, "a", FILE);
        let other = make(&mut disk, ROOT, "other", FOLDER);
        disk.flush(other, false).unwrap();
        disk.rename((folder, "a".as_ref()), (other, "b".as_ref()), true).unwrap();
        disk.flush(other, false).unwrap();
        assert_eq!(disk.counts().flushed_names, 3, "the rename, and the name it came from");
        disk.flush(file, false).unwrap();
        disk.cut_power(Fate::AllLost);
        assert!(disk.attributes(folder).is_err() && disk.attributes(file).is_err());
        assert!(names(&disk, ROOT).is_empty());
    }

    #[test]
    fn a_removed_file_returns_with_what_was_flushed_of_it() {
        let mut disk = ForgetfulDisk::new(0, 0);
        let file = make(&mut disk, ROOT, "a", FILE);
        disk.write(file, 0, &[7; 600], false).unwrap();
        disk.flush(file, true).unwrap();
        disk.flush(ROOT, false).unwrap();
        disk.write(file, 0, &[8; 600], false).unwrap();
        disk.remove(ROOT, "a".as_ref()).unwrap();
        assert_eq!(disk.attributes(file).unwrap().nlink, 0, "it lives on while it is open");
        lose(&mut disk, Fate::AllLost);
        assert_eq!(disk.attributes(file).unwrap().nlink, 1);
        assert_eq!(disk.read(file, 0, 1000).unwrap(), [7; 600]);
    }

    #[test]
    fn folders_are_removed_and_replaced_only_when_empty() {
        let mut disk = ForgetfulDisk::new(0, 0);
        let (one, two) = (make(&mut disk, ROOT, "one", FOLDER), make(&mut disk, ROOT, "two", FOLDER));
        make(&mut disk, one, "inside", FILE);
        assert_eq!(disk.remove(ROOT, "one".as_ref()), Err(Errno::ENOTEMPTY));
        assert_eq!(disk.rename((ROOT, "two".as_ref()), (ROOT, "one".as_ref()), true), Err(Errno::ENOTEMPTY));
        disk.rename((ROOT, "one".as_ref()), (ROOT, "two".as_ref()), true).unwrap();
        assert!(disk.names(two).unwrap().is_empty());
        assert_eq!((names(&disk, ROOT), names(&disk, one)), (vec!["two".to_owned()], vec!["inside".to_owned()]));
        assert_eq!(disk.make(ROOT, "two".as_ref(), FILE, (0, 0)).unwrap_err(), Errno::EEXIST);
    }

    #[test]
    fn attributes_are_durable_with_a_whole_flush_only() {
        let mut disk = ForgetfulDisk::new(0, 0);
        let file = make(&mut disk, ROOT, "a", FILE);
        disk.flush(ROOT, false).unwrap();
        let strict = Changes { permissions: Some(0o600), ..Changes::default() };
        disk.change(file, strict).unwrap();
        disk.flush(file, true).unwrap();
        lose(&mut disk, Fate::AllLost);
        assert_eq!(disk.attributes(file).unwrap().perm, 0o644);
        disk.change(file, strict).unwrap();
        disk.flush(file, false).unwrap();
        lose(&mut disk, Fate::AllLost);
        assert_eq!(disk.attributes(file).unwrap().perm, 0o600);
    }

    #[test]
    fn a_cut_that_is_due_comes_with_the_flush_it_was_set_to() {
        let mut disk = ForgetfulDisk::new(0, 0);
        disk.cut_power_after(2, Fate::AllLost);
        assert!(disk.begin_flush() && disk.begin_flush());
        assert_eq!(disk.power(), Power::On);
        assert!(!disk.begin_flush());
        assert_eq!((disk.power(), disk.counts().flushes), (Power::Cut, 2));
        disk.set_power(Power::On);
        assert!(disk.begin_flush(), "it comes once");
    }

    #[test]
    fn a_cut_waits_for_enough_to_be_lost() {
        let mut disk = ForgetfulDisk::new(0, 0);
        let file = make(&mut disk, ROOT, "f", FILE);
        disk.cut_power_when_unflushed(4096, Fate::AllLost);
        disk.write(file, 0, &[1; 2048], false).expect("written");
        assert!(disk.begin_flush(), "too little would be lost");
        disk.write(file, 2048, &[1; 2048], false).expect("written");
        assert!(!disk.begin_flush());
        assert_eq!((disk.power(), disk.counts().unflushed_bytes), (Power::Cut, 0));
    }

    #[test]
    fn the_same_seed_leaves_the_same() {
        let left = |seed| {
            let mut disk = ForgetfulDisk::new(0, 0);
            let files = ["a", "b", "c"].map(|name| make(&mut disk, ROOT, name, FILE));
            disk.flush(ROOT, false).unwrap();
            for file in files {
                disk.write(file, 0, &[file as u8; 100_000], false).unwrap();
            }
            let loss = lose(&mut disk, Fate::Drawn(seed));
            (loss, files.map(|file| disk.read(file, 0, 100_000).unwrap()))
        };
        assert_eq!(left(5), left(5));
        assert_ne!(left(5), left(6));
        let survived: Vec<u64> = (0..20).map(|seed| left(seed).0.survived_bytes).collect();
        assert!(survived.iter().any(|bytes| *bytes > 0) && survived.iter().any(|bytes| *bytes < 3 * 100_352));
    }
}
