//! Files that must load and files that must fail, the latter with exactly the messages beside them.
//!
//! Each case is copied into a fresh directory with a secret and a few disks, and checked by the real command as node
//! `alpha`, or as its first line says: `# check as: NAME`, or `# check as: host` for no --node at all.
//! `BLESS=1 cargo test` writes the messages anew; read them before committing.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn cases(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../settings/tests").join(folder);
    let entries = std::fs::read_dir(&folder).expect("the folder of cases");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    assert!(!files.is_empty());
    files
}

/// What the cases may refer to.
fn furnish(dir: &Path) {
    let secret = |name: &str, content: &str, mode| {
        let file = dir.join(name);
        std::fs::write(&file, content).expect("secret");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("mode");
    };
    secret("secret", &"s".repeat(40), 0o600);
    secret("short-secret", "too short\n", 0o600);
    secret("open-secret", &"s".repeat(40), 0o644);
    for disk in ["disk-a", "disk-b", "disk-c"] {
        std::fs::write(dir.join(disk), [0; 512]).expect("disk");
    }
    std::os::unix::fs::symlink("disk-a", dir.join("link-to-a")).expect("symlink");
    std::fs::hard_link(dir.join("disk-b"), dir.join("other-name-of-b")).expect("hard link");
    std::fs::create_dir_all(dir.join("alpha-state/inner")).expect("dir");
    std::fs::write(dir.join("alpha-state/inner/disk"), [0; 512]).expect("disk");
    std::os::unix::fs::symlink("alpha-state/inner/disk", dir.join("link-into-state")).expect("symlink");
    std::fs::create_dir_all(dir.join("fast/alpha")).expect("dir");
    std::fs::write(dir.join("fast/alpha/g"), [0; 512]).expect("disk");
    std::os::unix::fs::symlink("fast/alpha/g", dir.join("link-into-queues")).expect("symlink");
}

fn check(case: &Path) -> (Output, String) {
    let dir = tempfile::tempdir().expect("dir");
    furnish(dir.path());
    let text = std::fs::read(case).expect("case");
    let file = dir.path().join("farshore.toml");
    std::fs::write(&file, &text).expect("copy");
    let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
    command.args(["config", "check"]).arg(&file).env_remove("FARSHORE_CONFIG");
    let first = String::from_utf8_lossy(&text).lines().next().unwrap_or_default().to_owned();
    match first.strip_prefix("# check as: ") {
        Some("host") => {}
        Some(node) => drop(command.args(["--node", node])),
        None => drop(command.args(["--node", "alpha"])),
    }
    let output = command.output().expect("the command runs");
    let reported = String::from_utf8_lossy(&output.stderr).replace(&dir.path().display().to_string(), "DIR");
    (output, reported)
}

#[test]
fn valid_files_load() {
    for case in cases("valid_configs") {
        let (output, reported) = check(&case);
        let warned = std::fs::read_to_string(case.with_extension("txt")).unwrap_or_default();
        assert_eq!(reported, warned, "{}", case.display());
        let expected = if warned.is_empty() { 0 } else { 1 };
        assert_eq!(output.status.code(), Some(expected), "{}: {reported}", case.display());
    }
}

#[test]
fn invalid_files_fail_with_every_problem_at_once() {
    let (mut wrong, mut have_several) = (Vec::new(), 0);
    for case in cases("invalid_configs") {
        let (output, reported) = check(&case);
        have_several += usize::from(reported.contains("problems in the configuration\n"));
        assert_eq!(output.status.code(), Some(2), "{}: {reported}", case.display());
        let expected_file = case.with_extension("txt");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&expected_file, &reported).expect("bless");
        } else if std::fs::read_to_string(&expected_file).unwrap_or_default() != reported {
            wrong.push(format!("--- {} says now:\n{reported}", case.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
    assert!(have_several > 5, "{have_several}");
}

#[test]
fn a_file_that_is_no_configuration_is_explained() {
    let dir = tempfile::tempdir().expect("dir");
    let check = |file: &Path| {
        let output = Command::new(env!("CARGO_BIN_EXE_farshore")).args(["config", "check"]).arg(file).output();
        let output = output.expect("the command runs");
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).expect("text")
    };
    let missing = check(&dir.path().join("none.toml"));
    for part in ["cannot be read", "`farshore up` makes one", "`farshore init`", "`farshore config example`"] {
        assert!(missing.contains(part), "no {part:?} in: {missing}");
    }
    assert!(check(dir.path()).contains("cannot be read"));
    let binary = dir.path().join("binary");
    std::fs::write(&binary, [b'a', 0xff, 0xfe]).expect("write");
    assert!(check(&binary).contains("byte 1 is not UTF-8"));
    assert!(check(Path::new("/dev/zero")).contains("larger than"));
}

/// Apart from the listed cases because the system's own words differ between root and others.
#[test]
fn a_state_directory_that_cannot_be_written_is_reported() {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../settings/tests/valid_configs/minimal.toml");
    let text = std::fs::read_to_string(case).expect("case");
    let dir = tempfile::tempdir().expect("dir");
    let read_only = dir.path().join("read-only.toml");
    std::fs::write(&read_only, text.replace("\"alpha-state\"", "\"/proc/self\"")).expect("write");
    let (output, reported) = check(&read_only);
    assert_eq!(output.status.code(), Some(2), "{reported}");
    assert!(reported.contains("state: /proc/self cannot be written"), "{reported}");
}

/// The table of clients says nothing of who comes in the clear, and over loopback that is anybody on the machine.
#[test]
fn plain_nbd_on_loopback_beside_certified_clients_is_noted() {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../settings/tests/valid_configs/tls-clients.toml");
    let text = std::fs::read_to_string(case).expect("case");
    let dir = tempfile::tempdir().expect("dir");
    let (head, rest) = text.split_once("[tls.clients]\n").expect("the table");
    let (_, nodes) = rest.split_once("[nodes.alpha]").expect("the nodes");
    let certified = format!("{head}clients = \"certified\"\n[nodes.alpha]{nodes}");
    for (number, text) in [&text, &certified].into_iter().enumerate() {
        for (listen, is_noted) in
            [("tcp:10.0.0.1:10809", false), ("tcp:127.0.0.1:10809", true), ("tcp:[::1]:10809", true)]
        {
            let file = dir.path().join(format!("{number}.toml"));
            std::fs::write(&file, text.replace("tcp:10.0.0.1:10809", listen)).expect("write");
            let (output, reported) = check(&file);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(output.status.code(), Some(0), "{listen}: {said}{reported}");
            let location = format!("NBD on {} (alpha)", listen.strip_prefix("tcp:").expect("an address"));
            let note = "  note: 'clients' does not bind who comes in the clear";
            assert_eq!(said.contains(note) && said.contains(&location), is_noted, "{listen}: {said}");
        }
    }
}
