//! The exports as one client sees them: those it may use, and no others.

use std::cell::OnceCell;

use crate::frontend::{ExportInfo, Exports};
use crate::tls::{Access, Rights};

/// What there is, through the eyes of somebody with these rights.
pub(super) struct VisibleExports<'a, E: ?Sized> {
    all: &'a E,
    rights: Rights,
    /// Called with an export that is there and is asked for in vain.
    denied: &'a dyn Fn(&str),
    /// How many it saw first; what is asked for each question must not cost a list.
    count: OnceCell<usize>,
}

impl<'a, E: Exports + ?Sized> VisibleExports<'a, E> {
    pub fn new(all: &'a E, rights: Rights, denied: &'a dyn Fn(&str)) -> VisibleExports<'a, E> {
        VisibleExports { all, rights, denied, count: OnceCell::new() }
    }
}

impl<E: Exports + ?Sized> Exports for VisibleExports<'_, E> {
    fn list(&self) -> Vec<ExportInfo> {
        let mut list = self.all.list();
        list.retain(|export| self.rights.to(&export.name).is_some());
        list
    }

    fn find(&self, name: &str) -> Option<ExportInfo> {
        if self.rights != Rights::All && name.is_empty() {
            let mut list = self.list();
            return if list.len() == 1 { list.pop() } else { None };
        }
        let found = self.all.find(name)?;
        if self.rights.to(&found.name).is_none() {
            (self.denied)(&found.name);
            return None;
        }
        Some(found)
    }

    fn count(&self) -> usize {
        match self.rights {
            Rights::All => self.all.count(),
            Rights::These(_) => *self.count.get_or_init(|| self.list().len()),
        }
    }

    fn is_read_only(&self, name: &str) -> bool {
        self.rights.to(name) == Some(Access::ReadOnly)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::frontend::VolumeHandle;
    use crate::tls::clients::{Grant, Scope};

    fn export(name: &str) -> ExportInfo {
        ExportInfo {
            handle: VolumeHandle(1),
            name: name.into(),
            description: String::new(),
            size_bytes: 1 << 30,
            block_min_bytes: 512,
            block_preferred_bytes: 4096,
            block_max_bytes: 1 << 20,
        }
    }

    #[test]
    fn what_is_not_granted_is_not_there() {
        let all = ["db/data", "db/log", "web/data"].map(export);
        let asked = RefCell::new(Vec::new());
        let denied = |name: &str| asked.borrow_mut().push(name.to_owned());
        let grants = vec![Grant { scope: Scope::Export("db/log".into()), read_only: true }];
        let visible = VisibleExports::new(&all[..], Rights::These(grants), &denied);
        assert_eq!((visible.list(), visible.count()), (vec![export("db/log")], 1));
        // The only one it sees is the one that an empty name means.
        assert_eq!(visible.find(""), Some(export("db/log")));
        assert!(visible.find("db/data").is_none() && visible.find("db/none").is_none());
        assert_eq!(*asked.borrow(), ["db/data"]);
        assert!(visible.is_read_only("db/log") && !visible.is_read_only("db/data"));
        let visible = VisibleExports::new(&all[..], Rights::All, &denied);
        assert!(visible.count() == 3 && visible.find("").is_none() && !visible.is_read_only("db/log"));
    }
}
