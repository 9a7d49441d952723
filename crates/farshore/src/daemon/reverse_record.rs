//! The record of a reverse sync: a file of the group's directory.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use anyhow::{Context, bail};
use settings::durable;
use settings::limits::{NAME_BYTES_MAX, VOLUMES_MAX};

use super::checked_text;
use super::terms::write_over;

/// In the directory of a group.
pub(super) const FILE: &str = "reverse";
pub(super) const HEAD: &str = "farshore reverse 1";
const BYTES_MAX: u64 = 1 << 16;
const _: () = assert!((VOLUMES_MAX * (NAME_BYTES_MAX + 1)) as u64 + 256 <= BYTES_MAX);
/// Words of its first line.
const SERVER: &str = "server";
const HOME: &str = "home";
const FULL: &str = "full";
const GIVES_UP: &str = "gives-up";
const DISCARD: &str = "discard";
const SKIP_HOOKS: &str = "skip-hooks";
const NEW_TERM: &str = "new-term";
/// Begins the line that names volumes.
const WITHOUT_DEAD: &str = "without-dead";
/// Begins the line that says which one it is.
const ID: &str = "id";
/// What this node is in a reverse sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReversePlace {
    /// Its clients are served by the peer.
    Home(ReverseHome),
    /// It serves the clients of the peer.
    Server,
}

/// What is still to be ordered of the peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReverseHome {
    /// A full sync.
    pub full: bool,
    /// It is to be promoted by force, and its content kept over what stands here.
    pub gives_up: Option<GivesUp>,
}

/// How what the peer lacks is given up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GivesUp {
    /// Nothing of it is saved.
    pub discard: bool,
    /// No command of the configuration is run at the peer.
    pub skip_hooks: bool,
    /// Another term has begun here, behind the demotion: nobody who saw what is given up goes on with the peer's content.
    pub is_in_new_term: bool,
    /// The volumes with dead disks that the operator agreed to lose. As long as any is named this node is the primary still, or was demoted a
    /// moment ago: it serves nobody and sends nothing, and the next run of the daemon demotes it without these volumes and no others.
    pub without_dead: Vec<String>,
}

/// Which reverse sync of a group it is. Home draws it, and the node that serves has the same on record: a word about an earlier one that comes late
/// ends nothing. Of a record that cannot be read it is not known, which may be any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReverseId(pub Option<u64>);

impl ReverseId {
    pub fn may_be(self, other: ReverseId) -> bool {
        match (self.0, other.0) {
            (Some(this), Some(other)) => this == other,
            _ => true,
        }
    }
}

/// What a file takes on a disk at least.
const BLOCK_BYTES: usize = 4096;

/// Puts it there in the place of the one before. A disk that is full keeps nobody from a role that is to follow: the old one is written over, within
/// its block. One that is torn serves nobody but the peer's clients, until an operator ends it.
///
/// # Errors
/// It cannot be written; the old one stands.
pub(super) fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    put_by(durable::replace, path, content)
}

fn put_by(replace: impl FnOnce(&Path, &[u8]) -> io::Result<()>, path: &Path, content: &[u8]) -> io::Result<()> {
    let error = match replace(path, content) {
        Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => error,
        replaced => return replaced,
    };
    let is_in_block = |bytes: u64| bytes > 0 && bytes <= BLOCK_BYTES as u64;
    let is_small = is_in_block(content.len() as u64) && fs::metadata(path).is_ok_and(|old| is_in_block(old.len()));
    match is_small.then(|| write_over(path, content)) {
        Some(Ok(())) => {
            tracing::warn!("{} was written over, as it cannot be replaced: {error}", path.display());
            Ok(())
        }
        _ => Err(error),
    }
}

/// Gone also after a power loss.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => fs::File::open(path.parent().unwrap_or(path))?.sync_all(),
    }
}

pub(super) fn encode(place: &ReversePlace, id: ReverseId) -> String {
    let text = body(place, id);
    let checksum = crc32c::crc32c(text.as_bytes());
    format!("{text}checksum {checksum:08x}\n")
}

/// Its lines before the checksum.
fn body(place: &ReversePlace, id: ReverseId) -> String {
    let (words, dead) = match place {
        ReversePlace::Home(home) => (home.words().join(" "), home.dead().join(" ")),
        ReversePlace::Server => (SERVER.to_owned(), String::new()),
    };
    let dead = if dead.is_empty() { dead } else { format!("{WITHOUT_DEAD} {dead}\n") };
    let id = id.0.map(|id| format!("{ID} {id:016x}\n")).unwrap_or_default();
    format!("{HEAD}\nplace {words}\n{id}{dead}")
}

/// `None`: there is none.
pub(super) fn read(path: &Path) -> anyhow::Result<Option<(ReversePlace, ReverseId)>> {
    let file = match durable::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.context("cannot be read")?,
    };
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text).context("cannot be read")?;
    let body = checked_text::body(&text).context("is damaged")?;
    if body.lines().next() != Some(HEAD) {
        bail!("it begins in another way than this program knows");
    }
    decode(&body).map(Some).context("it has a line that is none of a reverse sync")
}

pub(super) fn decode(text: &str) -> Option<(ReversePlace, ReverseId)> {
    let mut lines = text.lines().skip(1);
    let words: Vec<&str> = lines.next()?.strip_prefix("place ")?.split(' ').collect();
    let rest: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(' ')).collect();
    let line = |word| rest.iter().find(|(begin, _)| *begin == word).map(|(_, text)| *text);
    let id = ReverseId(line(ID).and_then(|id| u64::from_str_radix(id, 16).ok()));
    let dead = line(WITHOUT_DEAD).unwrap_or_default();
    let has = |word| words.contains(&word);
    let gives_up = has(GIVES_UP).then(|| GivesUp {
        discard: has(DISCARD),
        skip_hooks: has(SKIP_HOOKS),
        is_in_new_term: has(NEW_TERM),
        without_dead: dead.split_whitespace().map(str::to_owned).collect(),
    });
    let place = match has(SERVER) {
        true => ReversePlace::Server,
        false => ReversePlace::Home(ReverseHome { full: has(FULL), gives_up }),
    };
    // Nothing else stands there, and no word twice.
    (body(&place, id) == text).then_some((place, id))
}

impl ReversePlace {
    pub fn stands_still(&self) -> bool {
        matches!(self, ReversePlace::Home(home) if home.names_dead())
    }
}

impl ReverseHome {
    /// What clients have seen here is given up, and their term has not ended yet.
    pub fn owes_term(&self) -> bool {
        self.gives_up.as_ref().is_some_and(|gives_up| !gives_up.is_in_new_term)
    }

    /// The volumes that it goes on without.
    pub fn dead(&self) -> &[String] {
        self.gives_up.as_ref().map_or(&[], |gives_up| &gives_up.without_dead)
    }

    pub fn names_dead(&self) -> bool {
        !self.dead().is_empty()
    }

    pub fn without_names(self) -> ReverseHome {
        let gives_up = self.gives_up.map(|gives_up| GivesUp { without_dead: Vec::new(), ..gives_up });
        ReverseHome { gives_up, ..self }
    }

    fn words(&self) -> Vec<&'static str> {
        let is = |wish: fn(&GivesUp) -> bool| self.gives_up.as_ref().is_some_and(wish);
        let all = [
            (HOME, true),
            (FULL, self.full),
            (GIVES_UP, is(|_| true)),
            (DISCARD, is(|gives_up| gives_up.discard)),
            (SKIP_HOOKS, is(|gives_up| gives_up.skip_hooks)),
            (NEW_TERM, is(|gives_up| gives_up.is_in_new_term)),
        ];
        all.into_iter().filter(|(_, is_said)| *is_said).map(|(word, _)| word).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Home was demoted, and with a full disk neither node could become the primary.
    #[test]
    fn a_full_disk_takes_the_next_step_of_what_is_on_record() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(FILE);
        let full = |_: &Path, _: &[u8]| Err(ErrorKind::StorageFull.into());
        let of = |full| encode(&ReversePlace::Home(ReverseHome { full, gives_up: None }), ReverseId(Some(7)));
        put_by(full, &path, of(true).as_bytes()).expect_err("nothing begins");
        assert!(!path.exists());
        put(&path, of(true).as_bytes()).expect("written");
        let put_full = |content: &str| put_by(full, &path, content.as_bytes()).map_err(|error| error.kind());
        assert_eq!(put_full(&of(false)), Ok(()));
        assert_eq!(fs::read_to_string(&path).expect("read"), of(false));
        // It would take another block, or the disk fails.
        assert_eq!(put_full(&"x".repeat(BLOCK_BYTES + 1)), Err(ErrorKind::StorageFull));
        let fails = |_: &Path, _: &[u8]| Err(ErrorKind::Other.into());
        put_by(fails, &path, of(true).as_bytes()).expect_err("it is not touched");
        assert_eq!(fs::read_to_string(&path).expect("read"), of(false));
    }
}
