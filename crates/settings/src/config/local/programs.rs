//! What hooks need on this machine: programs that are there and nobody else's to change, and files of authorities.
//!
//! A daemon looks again before each start of a program: what was sound when it started may have been made writable since.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use host::trusted_file::{not_ours, wrong_directory};

use crate::config::Config;
use crate::names::NodeName;
use crate::problem::ConfigProblem;
use crate::role_hooks::RoleHook;

/// Bits of a mode that let others write.
const OTHERS_WRITE: u32 = 0o022;
/// The bit of a directory where each may give away and remove only what is theirs.
const STICKY: u32 = 0o1000;
/// Links on the way to a program; the kernel follows no more either.
const LINKS_MAX: u32 = 40;

impl Config {
    /// Looks at what hooks need on this machine. None of it keeps a node from starting: a mirror does not stay down for a hook.
    pub fn check_hooks(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        for (at, hook) in self.hooks.iter().enumerate() {
            if let Some(why) = hook.command.first().and_then(|program| wrong_program(Path::new(program))) {
                problems.push(self.problem(&format!("hook.{at}.command.0"), format!("command: {why}")));
            }
            if let Some(ca) = &hook.ca
                && let Err(error) = std::fs::File::open(ca)
            {
                let message =
                    format!("ca: {} cannot be read: {error}; name a file of authorities in PEM form", ca.display());
                problems.push(self.problem(&format!("hook.{at}.ca"), message));
            }
        }
        problems
    }

    /// The same of the commands around changes of a role of this node. A daemon that starts with a wrong one refuses the change instead.
    pub fn check_role_hooks(&self, node: &NodeName) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        for group in self.groups_of(node) {
            for hook in RoleHook::ALL {
                let program = group.hooks.command(hook).first();
                if let Some(why) = program.and_then(|program| wrong_program(Path::new(program))) {
                    let (path, key) = (format!("groups.{}.hooks.{}.0", group.name, hook.as_str()), hook.as_str());
                    problems.push(self.problem(&path, format!("{key}: {why}")));
                }
            }
        }
        problems
    }
}

/// What is wrong with a program that the daemon is to run, by its rights and by those of the directories that lead to it.
pub fn wrong_program(path: &Path) -> Option<String> {
    let name = path.display();
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Some(format!("{name} does not exist; install the program, or correct its path"));
        }
        Err(error) => return Some(format!("{name} cannot be looked at: {error}")),
    };
    if !found.is_file() {
        return Some(format!("{name} is no program but a directory or a special file; name the program itself"));
    }
    let mode = found.mode() & 0o7777;
    if let Some(why) = rustix::fs::stat(path).ok().and_then(|stat| not_ours(&stat)) {
        return Some(format!(
            "{name} {why}, who could have it do anything by the daemon's rights; run: chown root {name}"
        ));
    }
    if mode & OTHERS_WRITE != 0 {
        return Some(format!(
            "{name} has mode {mode:04o}, so others can change what the daemon runs; run: chmod go-w {name}"
        ));
    }
    if let Some(why) = wrong_way(path, &mut LINKS_MAX.clone()) {
        return Some(format!("{name} could be replaced by others: {why}"));
    }
    (mode & 0o111 == 0 || rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_err())
        .then(|| format!("{name} has mode {mode:04o}, so the daemon cannot run it; run: chmod +x {name}"))
}

/// Who else could put another file in the place of this one: what is wrong with its directory, those above, and the same of each link on
/// the way. In a sticky directory others replace nothing of ours, but what is run lies in none.
fn wrong_way(path: &Path, links: &mut u32) -> Option<String> {
    for (above, directory) in path.ancestors().skip(1).enumerate() {
        let stat = match rustix::fs::stat(directory) {
            Ok(stat) => stat,
            Err(error) => return Some(format!("{} cannot be looked at: {error}", directory.display())),
        };
        let is_sticky = above > 0 && stat.st_mode & STICKY != 0 && not_ours(&stat).is_none();
        if !is_sticky && let Some(why) = wrong_directory(&stat, directory) {
            return Some(why);
        }
    }
    for step in path.ancestors() {
        let Ok(target) = std::fs::read_link(step) else { continue };
        if let Some(why) = rustix::fs::lstat(step).ok().and_then(|stat| not_ours(&stat)) {
            return Some(format!("the link {} {why}", step.display()));
        }
        let Some(left) = links.checked_sub(1) else {
            return Some("too many links lead to it".to_owned());
        };
        *links = left;
        let whole = step.parent().unwrap_or(Path::new("/")).join(target);
        if let Some(why) = wrong_way(&whole, links) {
            return Some(why);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_program_that_others_could_change_or_replace_is_wrong() {
        let directory = tempfile::tempdir().expect("a directory");
        let inner = directory.path().join("hooks");
        let (program, link) = (inner.join("program"), directory.path().join("link"));
        fs::create_dir(&inner).expect("made");
        fs::write(&program, "#!/bin/sh\n").expect("written");
        symlink(&inner, &link).expect("a link");
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).expect("its mode");
        let by_link = link.join("program");
        let look = || [&program, &by_link].map(|path| wrong_program(path).unwrap_or_default());
        let all_say = |text: &str| assert!(look().iter().all(|why| why.contains(text)), "{text}: {:?}", look());
        set(&inner, 0o755);
        set(&program, 0o755);
        assert_eq!(look(), [const { String::new() }; 2]);
        set(&program, 0o775);
        all_say("so others can change what the daemon runs");
        set(&program, 0o755);
        for mode in [0o775, 0o757, 0o1777] {
            set(&inner, mode);
            all_say("could be replaced by others");
        }
        set(&inner, 0o755);
        set(directory.path(), 0o777);
        all_say("could be replaced by others");
        set(directory.path(), 0o1777);
        assert_eq!(wrong_program(&program), None, "above, what is sticky is sound");
        assert!(wrong_program(&by_link).is_some(), "a link's own directory is looked at as the program's");
        set(directory.path(), 0o755);
        set(&program, 0o644);
        all_say("chmod +x");
        assert_eq!(wrong_program(Path::new("/bin/sh")), None);
    }
}
