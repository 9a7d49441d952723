//! What hooks need on this machine: programs that are there and nobody else's to change, and files of authorities.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use host::trusted_file::not_ours;

use crate::config::Config;
use crate::problem::ConfigProblem;

/// Bits of a mode that let others write.
const OTHERS_WRITE: u32 = 0o022;

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
}

/// What is wrong with a program that the daemon is to run, by its rights.
fn wrong_program(path: &Path) -> Option<String> {
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
    (mode & 0o111 == 0 || rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_err())
        .then(|| format!("{name} has mode {mode:04o}, so the daemon cannot run it; run: chmod +x {name}"))
}
