//! The machine that numbers belong to.

use std::fs;
use std::path::Path;

/// What the numbers belong to. What cannot be learned is left out.
pub fn machine(directory: &Path) -> String {
    let first_word = |path: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace().next().unwrap_or("?").to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let (kernel, load) = (first_word("/proc/sys/kernel/osrelease"), first_word("/proc/loadavg"));
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    format!("{cores} cores, Linux {kernel}, {}, load {load}", file_system(&mounts, directory).unwrap_or("?"))
}

/// The kind of file system a directory is on, by the list of what is mounted: the longest way to it, the last of several.
fn file_system<'a>(mounts: &'a str, directory: &Path) -> Option<&'a str> {
    let lines = mounts.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        Some((fields.nth(1)?, fields.next()?))
    });
    let around = lines.filter(|(mount_point, _)| directory.starts_with(mount_point));
    around.max_by_key(|(mount_point, _)| mount_point.len()).map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_counts() {
        let mounts = "a / ext4 rw 0 0\nb /var xfs rw 0 0\nc /variable tmpfs rw 0 0\n";
        assert_eq!(file_system(mounts, Path::new("/var/tmp")), Some("xfs"));
        assert_eq!(file_system(mounts, Path::new("/home")), Some("ext4"));
    }
}
