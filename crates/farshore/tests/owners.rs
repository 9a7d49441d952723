//! Files that somebody else could have written, or can read: a node does not start with them, and says why.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{Pair, PairPlan, Side};
use rustix::process::{Pid, Signal, kill_process};

/// Nobody of this machine.
const ANOTHER: u32 = 4242;

struct TestDirectory {
    directory: tempfile::TempDir,
}

impl TestDirectory {
    /// A configuration that is sound, with certificates or a secret.
    fn new(tls: bool) -> TestDirectory {
        let location = TestDirectory { directory: tempfile::tempdir().expect("a directory") };
        let trust = if tls { "[tls]\ndirectory = \"tls\"\n" } else { "" };
        let secret = if tls { "" } else { "secret_file = \"secret/file\"\n" };
        let text = format!(
            "cluster = \"c\"\n{secret}{trust}[nodes.alpha]\naddress = \"127.0.0.1:7337\"\nstate = \"state\"\n\
             [nodes.beta]\naddress = \"127.0.0.2:7337\"\nstate = \"beta\"\n\
             [groups.db]\nprimary = \"alpha\"\nsecondary = \"beta\"\n\
             [groups.db.volumes.data]\nalpha = \"disk-a\"\nbeta = \"disk-b\"\n"
        );
        fs::write(location.path("farshore.toml"), text).expect("written");
        for disk in ["disk-a", "disk-b"] {
            fs::write(location.path(disk), [0; 512]).expect("written");
        }
        for (directory, mode) in [("state", 0o700), ("secret", 0o755)] {
            fs::create_dir(location.path(directory)).expect("made");
            location.set(directory, mode);
        }
        fs::write(location.path("secret/file"), "s".repeat(40)).expect("written");
        location.set("secret/file", 0o600);
        if tls {
            for words in [&["init"][..], &["node", "alpha"]] {
                assert!(location.under_no_mask(&[&["cert"], words].concat()).status.success());
            }
        }
        assert_eq!(location.check(), (Some(0), String::new()));
        location
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn set(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).expect("chmod");
    }

    fn mode(&self, name: &str) -> u32 {
        fs::symlink_metadata(self.path(name)).expect("there").mode() & 0o7777
    }

    fn under_no_mask(&self, words: &[&str]) -> Output {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_farshore")]).args(words);
        command.arg("--config").arg(self.path("farshore.toml")).output().expect("a shell")
    }

    fn run(&self, words: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
        command.args(words).arg("--config").arg(self.path("farshore.toml")).args(["--node", "alpha"]);
        let output = command.output().expect("the binary runs");
        let said = String::from_utf8_lossy(&output.stderr).replace(&self.directory.path().display().to_string(), "DIR");
        (output.status.code(), said)
    }

    /// `serve` goes on without the group, and says why.
    #[track_caller]
    fn opens_nothing(&self, words: &str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
        command.args(["serve", "--node", "alpha", "--config"]).arg(self.path("farshore.toml"));
        let mut daemon = command.stderr(Stdio::piped()).spawn().expect("the binary runs");
        let mut log = BufReader::new(daemon.stderr.take().expect("piped"));
        let (mut said, mut line) = (String::new(), String::new());
        // To the log's end, which comes with the daemon's.
        while log.read_line(&mut line).expect("text") > 0 {
            if line.contains("its control socket is") {
                kill_process(Pid::from_child(&daemon), Signal::TERM).expect("it runs");
            }
            said += &std::mem::take(&mut line).replace(&self.directory.path().display().to_string(), "DIR");
        }
        daemon.wait().expect("it ends");
        assert!(said.contains(words), "{said}");
    }

    fn check(&self) -> (Option<i32>, String) {
        self.run(&["config", "check"])
    }

    /// Both `config check` and `serve` refuse it, in these words.
    #[track_caller]
    fn is_refused(&self, words: &str) {
        for command in [&["config", "check"][..], &["serve"]] {
            let (code, said) = self.run(command);
            assert!(code == Some(2) && said.contains(words), "{command:?}: {code:?}: {said}");
        }
    }
}

#[test]
fn what_others_may_write_is_not_believed() {
    let location = TestDirectory::new(true);
    for (name, mode, words) in [
        ("tls/ca.crt", 0o666, "the certificate DIR/tls/ca.crt has mode 0666, so others can change it; run: chmod go-w"),
        (
            "tls/nodes/alpha.crt",
            0o664,
            "the certificate DIR/tls/nodes/alpha.crt has mode 0664, so others can change it",
        ),
        ("tls/nodes/alpha.key", 0o640, "the key DIR/tls/nodes/alpha.key has mode 0640, so others can use it"),
        ("tls", 0o777, "the directory DIR/tls has mode 0777, so others can put their own files there; run: chmod go-w"),
        ("tls/nodes", 0o1777, "the directory DIR/tls/nodes has mode 1777, so others can put their own files there"),
        ("state", 0o777, "state: DIR/state is open to others (mode 0777); run chmod 0700 on it"),
    ] {
        let before = location.mode(name);
        location.set(name, mode);
        location.is_refused(words);
        location.set(name, before);
    }
    let location = TestDirectory::new(false);
    location.set("secret", 0o777);
    location.is_refused("the directory DIR/secret has mode 0777");
}

#[test]
fn what_belongs_to_another_user_is_not_believed() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let give = |location: &TestDirectory, name: &str, words: &str| {
        chown(location.path(name), Some(ANOTHER), None).expect("root may");
        location.is_refused(words);
        chown(location.path(name), Some(0), None).expect("root may");
    };
    let location = TestDirectory::new(true);
    give(
        &location,
        "tls/ca.crt",
        "the certificate DIR/tls/ca.crt belongs to user 4242, and only root may have made it",
    );
    give(&location, "tls/nodes/alpha.key", "the key DIR/tls/nodes/alpha.key belongs to user 4242");
    give(&location, "tls", "the directory DIR/tls belongs to user 4242");
    give(&location, "state", "state: DIR/state belongs to user 4242, and only root may have made it; run: chown root");
    let location = TestDirectory::new(false);
    give(&location, "secret/file", "the secret file DIR/secret/file belongs to user 4242");
    give(&location, "secret", "the directory DIR/secret belongs to user 4242");
}

/// Another user had made the groups' directory, or could write to it: what stands in there decides who is primary.
#[test]
fn directories_of_others_within_the_state_directory_keep_their_group_closed() {
    let location = TestDirectory::new(false);
    for (name, words) in [
        (
            "state/groups",
            "it cannot be opened: the directory DIR/state/groups has mode 0777, so others can put their own files there; run: chmod go-w \
             DIR/state/groups. Nothing of the group",
        ),
        ("state/groups/db", "the directory DIR/state/groups/db has mode 0777"),
    ] {
        fs::create_dir_all(location.path("state/groups/db")).expect("made");
        location.set(name, 0o777);
        location.opens_nothing(words);
        location.set(name, 0o700);
    }
    fs::remove_dir_all(location.path("state/groups")).expect("removed");
    fs::create_dir(location.path("elsewhere")).expect("made");
    symlink(location.path("elsewhere"), location.path("state/groups")).expect("a link");
    location.opens_nothing("DIR/state/groups is no directory of its own");
    assert!(fs::read_dir(location.path("elsewhere")).expect("there").next().is_none(), "nothing was written there");
}

#[test]
fn links_are_not_followed_to_what_is_believed() {
    let led_elsewhere = |location: &TestDirectory, name: &str, words: &str| {
        let (file, real) = (location.path(name), location.path("real"));
        fs::rename(&file, &real).expect("moved");
        symlink(&real, &file).expect("a link");
        location.is_refused(words);
        fs::remove_file(&file).expect("removed");
        fs::rename(&real, &file).expect("moved back");
    };
    let location = TestDirectory::new(true);
    led_elsewhere(&location, "tls/nodes/alpha.key", "the key DIR/tls/nodes/alpha.key is a symbolic link");
    led_elsewhere(&location, "tls/ca.crt", "the certificate DIR/tls/ca.crt is a symbolic link");
    led_elsewhere(&TestDirectory::new(false), "secret/file", "the secret file DIR/secret/file is a symbolic link");
}

/// It was used whoever could read it: who has it makes itself any node.
#[test]
fn a_key_of_the_authority_that_others_can_read_signs_nothing() {
    let location = TestDirectory::new(true);
    let words =
        "the authority's key DIR/tls/ca.key has mode 0644, so others can use it; run: chmod 0600 DIR/tls/ca.key";
    location.set("tls/ca.key", 0o644);
    for command in [&["client", "backup"][..], &["node", "beta"], &["rotate", "--ca"], &["rotate", "alpha"]] {
        let output = location.under_no_mask(&[&["cert"], command].concat());
        let said =
            String::from_utf8_lossy(&output.stderr).replace(&location.directory.path().display().to_string(), "DIR");
        assert!(output.status.code() == Some(2) && said.contains(words), "{command:?}: {said}");
    }
    location.set("tls/ca.key", 0o600);
    assert!(location.under_no_mask(&["cert", "client", "backup"]).status.success());
}

#[test]
fn what_is_made_without_a_mask_is_open_to_nobody_all_the_same() {
    let location = TestDirectory::new(true);
    assert!(location.under_no_mask(&["cert", "client", "backup"]).status.success());
    assert!(location.under_no_mask(&["cert", "revoke", "--client", "backup"]).status.success());
    for (name, mode) in [
        ("tls", 0o755),
        ("tls/nodes", 0o755),
        ("tls/clients", 0o755),
        ("tls/clients/backup", 0o755),
        ("tls/ca.crt", 0o644),
        ("tls/ca.key", 0o600),
        ("tls/revoked", 0o644),
        ("tls/nodes/alpha.key", 0o600),
        ("tls/clients/backup/client-key.pem", 0o600),
    ] {
        assert_eq!(location.mode(name), mode, "{name}");
    }
    assert!(Path::new(&location.path("tls/clients/backup/client-cert.pem")).exists());
}

/// What stands below a directory, all the way down.
fn below(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).expect("there").map(|entry| entry.expect("listed").path());
    paths
        .flat_map(|path| if path.is_dir() { [vec![path.clone()], below(&path)].concat() } else { vec![path] })
        .collect()
}

// proves: P10
#[test]
fn a_state_directory_made_without_a_mask_is_open_to_nobody_all_the_same() {
    let mut pair = Pair::new(&PairPlan { volumes: &["data"], ..PairPlan::default() });
    for node in Side::BOTH {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_farshore")]);
        command.args(["serve", "--node", node.name(), "--config"]).arg(pair.config());
        pair.serve_by(node, command);
    }
    pair.sync_fully(Side::Near);
    pair.done(Side::Near, &["set", "g", "mode=sync"]);
    pair.done(Side::Near, &["link", "set", "buffers=8MiB"]);
    let is_there = |all: &[PathBuf], name: &str| all.iter().any(|path| path.ends_with(name));
    for node in Side::BOTH {
        let state = pair.path(node.name()).join("state");
        let all = [below(&state), vec![state]].concat();
        let open: Vec<_> =
            all.iter().filter(|path| fs::symlink_metadata(path).expect("there").mode() & 0o077 != 0).collect();
        assert!(open.is_empty(), "{open:?}");
        assert!(["superblock", "undo", "volumes", "control.sock", "nbd.sock"].iter().all(|name| is_there(&all, name)));
        assert_eq!(["overrides.toml", "link.toml"].map(|name| is_there(&all, name)), [node == Side::Near; 2]);
    }
    pair.stop_both();
}

/// Nobody looked again after the start, so a secret that an administrator opened to everybody stayed so without a word.
#[test]
fn what_others_can_use_by_now_is_reported_while_the_node_runs() {
    let mut pair = Pair::new(&PairPlan { volumes: &["data"], ..PairPlan::default() });
    pair.serve(Side::Near);
    let warnings = |pair: &Pair| -> String {
        let output = pair.run(Side::Near, &["status", "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("status is JSON");
        status["warnings"].to_string()
    };
    let before = warnings(&pair);
    for (name, mode, good, words) in [
        ("secret", 0o644, 0o600, "has mode 0644, so others can use it"),
        ("near/state", 0o777, 0o700, "is open to others (mode 0777)"),
    ] {
        fs::set_permissions(pair.path(name), fs::Permissions::from_mode(mode)).expect("chmod");
        pair.until("status tells", |pair| warnings(pair).contains(words));
        fs::set_permissions(pair.path(name), fs::Permissions::from_mode(good)).expect("chmod");
        pair.until("it is well again", |pair| warnings(pair) == before);
        assert_eq!(pair.log(Side::Near).matches(words).count(), 1, "{}", pair.log(Side::Near));
    }
    assert!(pair.stop(Side::Near).success());
}

/// A lazy unmount, say: what the daemon recorded from then on nobody would have found, and nothing told of it.
#[test]
fn a_state_directory_that_is_gone_is_reported_while_the_node_runs() {
    let mut pair = Pair::new(&PairPlan { volumes: &["data"], ..PairPlan::default() });
    pair.serve(Side::Near);
    let (state, aside) = (pair.path("near/state"), pair.path("near/aside"));
    let words = "is not the directory any more in which this daemon keeps its state";
    let reported = |pair: &Pair| pair.log(Side::Near).matches(words).count();
    let socket = aside.join("control.sock").display().to_string();
    for (count, is_mounted_over) in [(1, false), (2, true)] {
        fs::rename(&state, &aside).expect("moved");
        if is_mounted_over {
            fs::DirBuilder::new().mode(0o700).create(&state).expect("made");
        }
        pair.until("the log tells", |pair| reported(pair) == count);
        let output = Command::new(env!("CARGO_BIN_EXE_farshore")).args(["status", "--socket", &socket]).output();
        let shown = String::from_utf8_lossy(&output.expect("the binary runs").stdout).into_owned();
        assert!(shown.contains(words), "{shown}");
        let _ = fs::remove_dir(&state);
        fs::rename(&aside, &state).expect("moved back");
        pair.until("it is well again", |pair| {
            !pair.run(Side::Near, &["status"]).stdout.windows(10).any(|at| at == b"keeps its ")
        });
    }
    assert!(pair.stop(Side::Near).success());
}
