//! New certificates are taken up while the daemon or `link serve` runs: somebody puts new files in place, and this notices.
//!
//! The files of a node are three and are replaced one after the other, so what is read meanwhile may not belong together:
//! the credentials in use stay until the files make sense again, and a complaint waits for a second look.

use std::cell::{Cell, RefCell};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use host::tls::{CredentialStore, Credentials, Paths, facts};
use settings::{Config, NodeName};

use crate::api::TlsStatus;

/// Between two looks at the files: soon enough for whoever waits for it, and three calls to the kernel are cheap.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Device and inode, owner and mode, size, and time of the last change of a file; `None`: it is not there.
type FileStamp = Option<(u64, u64, u32, u32, u64, i64, i64)>;
/// Of the authority, certificate, key and list of revoked ones; and of the two directories they are in, whose size and time do not count.
type Stamps = [FileStamp; 6];

pub(crate) struct Renewal {
    store: CredentialStore,
    paths: Paths,
    taken: Cell<Stamps>,
    /// Files that make no sense, and whether that was said.
    failed: Cell<Option<(Stamps, bool)>>,
    /// Files that make sense, and may be half written.
    seen_once: Cell<Option<Stamps>>,
    problem: RefCell<Option<String>>,
    /// The links still use the credentials of before.
    links_are_due: Cell<bool>,
    /// The day for which the log has heard of certificates that end.
    warned_on: Cell<i64>,
}

impl Renewal {
    /// The first look reads the files again: they may have changed since `store` was filled.
    pub fn new(store: CredentialStore, paths: Paths) -> Renewal {
        Renewal {
            taken: Cell::new([None; 6]),
            store,
            paths,
            failed: Cell::new(None),
            seen_once: Cell::new(None),
            problem: RefCell::default(),
            links_are_due: Cell::new(false),
            warned_on: Cell::new(facts::now() / DAY),
        }
    }

    /// Takes up what has changed. True: the links have to reconnect for it. Files are read by another thread: of a disk that hangs
    /// nobody gets an answer, and the control socket must not wait for it.
    pub async fn look(&self, config: &Arc<Config>, node: &NodeName) -> bool {
        self.warn_daily();
        let (paths, taken, config, node) = (self.paths.clone(), self.taken.get(), config.clone(), node.clone());
        let read = move || {
            let now = stamps(&paths);
            let is_new = now != taken;
            (now, is_new.then(|| config.credentials(&node).expect("there were credentials at the start")))
        };
        // It does not panic; if the runtime ends meanwhile, nothing is to be taken up.
        let Ok((now, new)) = tokio::task::spawn_blocking(read).await else { return false };
        if let Some(new) = new {
            match new {
                Ok(credentials) if self.may_be_half_written(now, &credentials) => {}
                Ok(credentials) => self.take(now, credentials),
                Err(wrong) => self.complain(now, &wrong),
            }
        } else if self.failed.take().is_some() {
            // Those in use were put back.
            self.problem.replace(None);
        }
        self.links_are_due.get()
    }

    /// Files that believe more than those in use, or believe fewer authorities, count when a second look finds them the same: a list that
    /// is being copied in place is empty for a moment, and makes sense.
    fn may_be_half_written(&self, now: Stamps, new: &Credentials) -> bool {
        let waits = new.lacks_some_of(&self.store.current()) && self.seen_once.get() != Some(now);
        self.seen_once.set(waits.then_some(now));
        waits
    }

    fn take(&self, now: Stamps, credentials: Credentials) {
        self.taken.set(now);
        self.failed.set(None);
        self.problem.replace(None);
        let before = self.store.current();
        if credentials.is_same_as(&before) {
            return;
        }
        if credentials.revoked() != before.revoked() {
            let count = credentials.revoked().len();
            tracing::info!("the list of revoked certificates was replaced and has {count} entries now");
        }
        if !credentials.shows_same_as(&before) {
            let until = facts::day(credentials.own.not_after);
            tracing::info!(
                "the certificates were replaced: this node's is valid until {until}, new connections use it"
            );
            self.links_are_due.set(true);
        }
        // Whoever is inside is examined again by them, at once.
        self.store.replace(credentials);
    }

    fn complain(&self, now: Stamps, wrong: &[String]) {
        let sentence =
            format!("the new certificates cannot be used, those of before stay in use: {}", wrong.join("; "));
        match self.failed.get() {
            Some((stamps, was_said)) if stamps == now => {
                if !was_said {
                    tracing::error!("{sentence}");
                    self.problem.replace(Some(sentence));
                    self.failed.set(Some((now, true)));
                }
            }
            _ => self.failed.set(Some((now, false))),
        }
    }

    fn warn_daily(&self) {
        let now = facts::now();
        if self.warned_on.replace(now / DAY) != now / DAY {
            self.store.current().warnings(now).iter().for_each(|warning| tracing::warn!("{warning}"));
        }
    }

    /// The links were told to reconnect.
    pub fn links_are_done(&self) {
        self.links_are_due.set(false);
    }

    /// The credentials in use, now and later.
    pub fn store(&self) -> CredentialStore {
        self.store.clone()
    }

    /// Why new files are not used.
    pub fn problem(&self) -> Option<String> {
        self.problem.borrow().clone()
    }

    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.store.current().warnings(facts::now());
        warnings.extend(self.problem());
        warnings
    }

    pub fn status(&self) -> TlsStatus {
        let current = self.store.current();
        let time =
            |seconds: i64| units::exact::time_text(u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000));
        let authority = current.authorities.iter().map(|facts| facts.not_after).max();
        TlsStatus {
            certificate_until: time(current.own.not_after),
            authority_until: time(authority.expect("there is at least one authority")),
            fingerprint: current.own.fingerprint.clone(),
        }
    }
}

const DAY: i64 = 24 * 3600;

fn stamps(paths: &Paths) -> Stamps {
    let stamp = |path: &Path| {
        let found = fs::symlink_metadata(path).ok()?;
        let (size, seconds, rest) = match found.is_dir() {
            true => (0, 0, 0),
            false => (found.size(), found.mtime(), found.mtime_nsec()),
        };
        Some((found.dev(), found.ino(), found.uid(), found.mode(), size, seconds, rest))
    };
    let above = |path: &Path| path.parent().and_then(stamp);
    let Paths { authority, certificate, key } = paths;
    [stamp(authority), stamp(certificate), stamp(key), stamp(&paths.revoked()), above(authority), above(certificate)]
}
