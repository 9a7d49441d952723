//! What hangs on a node's role from outside: a page of words for agents, a target of systemd, the disk of a virtual machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Background, GROUP, Pair, PairPlan, Side, is_installed, must_skip};

/// The words of `--format shell`, as a shell understands them.
fn words(pair: &Pair, node: Side, keys: &str) -> (i32, String) {
    let (code, page) = output_alone(pair, node, &["status", GROUP, "--format", "shell"]);
    let print = format!("{page}\nfor key in {keys}; do eval \"printf '%s ' \\\"\\$farshore_$key\\\"\"; done");
    let output = Command::new("sh").args(["-c", &print]).output().expect("a shell");
    assert!(output.stderr.is_empty(), "{page}");
    (code, String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

fn output_alone(pair: &Pair, node: Side, arguments: &[&str]) -> (i32, String) {
    let output = pair.run(node, arguments);
    (output.status.code().expect("it ends"), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_shell_learns_role_and_quality_and_why_there_is_no_answer() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    let silent = words(&pair, Side::Near, "answered role");
    assert_eq!(silent, (2, "no-daemon".to_owned()));
    pair.serve(Side::Near);
    pair.serve(Side::Far);
    pair.first_sync();
    assert_eq!(
        words(&pair, Side::Near, "answered role starting in_step peer link"),
        (0, "yes primary no yes far connected".to_owned())
    );
    let copy = "role starting promotable in_step peer broken_volumes volumes";
    pair.until("the copy is in step", |pair| {
        words(pair, Side::Far, copy) == (0, "secondary no yes yes near 0 2".to_owned())
    });
    let of_both = "condition linked peer_role peer_condition";
    pair.until("the peer says how it is", |pair| {
        words(pair, Side::Near, of_both) == (0, "serving yes secondary copy".to_owned())
            && words(pair, Side::Far, of_both) == (0, "copy yes primary serving".to_owned())
    });
    let (code, page) = output_alone(&pair, Side::Near, &["status", GROUP, "--format", "shell", "--local"]);
    assert!(code == 0 && page.contains("\nfarshore_peer_role=''\n"), "{page}");
    let (code, page) = output_alone(&pair, Side::Near, &["status", "other", "--format", "shell"]);
    assert_eq!((code, page.as_str()), (2, "farshore_answered=no-group\n"));
    let (code, page) = output_alone(&pair, Side::Near, &["status", "--format", "shell"]);
    assert_eq!((code, page.as_str()), (3, ""));
    // A cut link: still an image, and not in step.
    pair.kill(Side::Near);
    let copy = "role promotable in_step";
    pair.until("the copy knows", |pair| words(pair, Side::Far, copy) == (0, "secondary yes no".to_owned()));
    pair.stop(Side::Far);
}

/// Stands in for systemctl: keeps the state of the one target in a file, and what it was asked in another. While there is a file `busy`, a
/// stop does not end; a script `then` is run once it has.
struct Systemctl {
    folder: PathBuf,
}

impl Systemctl {
    fn new(folder: &Path) -> Systemctl {
        fs::create_dir_all(folder).expect("a folder");
        let script = format!(
            "#!/bin/sh\ncd '{}'\necho \"$*\" | grep -v '^show' >> asked\ncase $1 in\nshow) cat state ;;\nstart) echo active > state ;;\n\
             stop) [ ! -e busy ] || exec sleep 1000; [ ! -e then ] || sh ./then; echo inactive > state ;;\nesac\n",
            folder.display()
        );
        fs::write(folder.join("state"), "inactive\n").expect("a file");
        fs::write(folder.join("asked"), "").expect("a file");
        fs::write(folder.join("systemctl"), script).expect("a file");
        fs::set_permissions(folder.join("systemctl"), fs::Permissions::from_mode(0o755)).expect("a mode");
        Systemctl { folder: folder.to_owned() }
    }

    /// Finds this one before any other.
    fn lead(&self, mut command: Command) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.folder.display()));
        command
    }

    fn state(&self) -> String {
        fs::read_to_string(self.folder.join("state")).expect("a state").trim().to_owned()
    }

    fn asked(&self) -> String {
        fs::read_to_string(self.folder.join("asked")).expect("what was asked")
    }
}

#[test]
fn a_target_is_up_while_this_node_is_primary() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    let systemctl = Systemctl::new(&pair.path("systemctl"));
    let target = format!("farshore-primary@{GROUP}.target");
    let _follower = Background::start(systemctl.lead(pair.command(Side::Near, &["follow", GROUP])));
    pair.until("the target is started", |_| systemctl.state() == "active");
    assert_eq!(systemctl.asked(), format!("start --no-block {target}\n"));

    // A restart of the daemon takes no role away.
    pair.kill(Side::Near);
    std::thread::sleep(Duration::from_secs(1));
    pair.serve(Side::Near);
    pair.wait_for(Side::Near, "replicating");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(systemctl.asked().lines().count(), 1, "{}", systemctl.asked());

    // Refused: what hangs on the target runs on.
    if is_installed("qemu-io") {
        let client = pair.start_qemu_io(Side::Near, "data", &["sleep 3000"]);
        pair.until("the client is there", |pair| pair.status(Side::Near)["volumes"][0]["clients"] == 1);
        let refused = systemctl.lead(pair.command(Side::Near, &["demote", GROUP])).output().expect("it runs");
        assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
        assert_eq!(systemctl.state(), "active");
        assert!(
            systemctl.asked().ends_with(&format!("stop {target}\nstart --no-block {target}\n")),
            "{}",
            systemctl.asked()
        );
        client.finish(&mut pair);
    }

    // What is no group of this daemon, or not this node's role, stops nothing.
    let before = systemctl.asked();
    let far = Side::Far.name();
    for (words, code) in [
        (&["demote", "g*"][..], 3),
        (&["demote", GROUP, "g*"], 3),
        (&["demote", "no-such"], 2),
        (&["demote", GROUP, "--on", far], 0),
        (&["demote", "--all", "--on", far], 0),
    ] {
        let refused = systemctl.lead(pair.command(Side::Near, words)).output().expect("it runs");
        assert_eq!(refused.status.code(), Some(code), "{words:?}");
        assert_eq!(systemctl.asked(), before, "{words:?}: {}", String::from_utf8_lossy(&refused.stderr));
    }
    let no_name = systemctl.lead(pair.command(Side::Near, &["follow", "*"])).output().expect("it ends");
    assert_eq!(no_name.status.code(), Some(3), "{}", String::from_utf8_lossy(&no_name.stderr));
    assert_eq!(systemctl.asked(), before);

    // Stopped, and waited for, before the daemon is asked.
    let demoted = systemctl.lead(pair.command(Side::Near, &["demote", GROUP])).output().expect("it runs");
    assert_eq!(demoted.status.code(), Some(0), "{}", String::from_utf8_lossy(&demoted.stderr));
    assert!(systemctl.asked().ends_with(&format!("stop {target}\n")), "{}", systemctl.asked());
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(systemctl.state(), "inactive");
    pair.done(Side::Far, &["promote", GROUP]);

    // Demoted by somebody who asked the daemon alone: late, and said.
    let far = Systemctl::new(&pair.path("systemctl-far"));
    let follower = Background::start(far.lead(pair.command(Side::Far, &["follow", GROUP])));
    pair.until("the target is started there", |_| far.state() == "active");
    pair.wait_for(Side::Far, "replicating");
    pair.ask(Side::Far, &serde_json::json!({ "request": "demote", "group": GROUP }));
    pair.until("the target is stopped", |_| far.state() == "inactive");
    assert_eq!(far.asked(), format!("start --no-block {target}\nstop --no-block {target}\n"));
    drop(follower);
}

/// A command whose standard error goes to a file.
fn with_errors_in(file: &Path, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$@\" 2> \"$0\""]).arg(file).arg(command.get_program()).args(command.get_args());
    shell
}

/// A primary that lost its power asks its peer first, which is away. What began beside a closed export would find none.
#[test]
fn what_needs_the_export_waits_until_it_is_open() {
    let mut pair = Pair::replicating(&PairPlan { group: "start_alone = \"wait 1h\"", ..PairPlan::DEFAULT });
    Side::BOTH.into_iter().for_each(|node| pair.kill(node));
    let mut another_boot = pair.command(Side::Near, &["serve"]);
    another_boot.env("FARSHORE_BOOT_ID", "7");
    pair.serve_by(Side::Near, another_boot);
    let shown = words(&pair, Side::Near, "role starting state protection");
    assert_eq!(shown, (0, "primary no logging none".to_owned()), "{}", pair.log(Side::Near));

    let systemctl = Systemctl::new(&pair.path("systemctl"));
    let said = |name: &str| fs::read_to_string(name).unwrap_or_default();
    let (follower_says, helper_says) = (pair.path("follower"), pair.path("helper"));
    let follow = with_errors_in(&follower_says, &pair.command(Side::Near, &["follow", GROUP]));
    let _follower = Background::start(systemctl.lead(follow));
    // Of two volumes it serves none: that is the next thing it finds.
    let attach = pair.command(Side::Near, &["attach", GROUP, "--foreground"]);
    let mut helper = Background::start(with_errors_in(&helper_says, &attach));
    let (follower_says, helper_says) = (follower_says.display().to_string(), helper_says.display().to_string());
    let says_why = |text: &str, what: &str| text.contains(what) && text.contains("this node lost power");
    pair.until("the follower says why it waits", |_| {
        says_why(&said(&follower_says), "is not started yet: g is logging: ")
    });
    pair.until("the helper says why it waits", |_| says_why(&said(&helper_says), "is waited for: g is logging: "));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(systemctl.asked(), "");
    assert!(!helper.has_ended(), "{}", said(&helper_says));

    pair.done(Side::Near, &["set", GROUP, "start_alone=serve"]);
    pair.until("the target is started", |_| systemctl.state() == "active");
    pair.until("the helper goes on", |_| helper.has_ended());
    assert_eq!(helper.output().status.code(), Some(3));
    assert!(said(&helper_says).contains("--foreground serves one volume"), "{}", said(&helper_says));
}

/// The file system of what hangs on the target is busy, so its stop does not end, and the operator types Ctrl-C. Or the disk is full to
/// which the command's words go. This node is primary as before.
#[test]
fn a_demotion_that_is_cut_short_starts_the_target_again() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    let systemctl = Systemctl::new(&pair.path("systemctl"));
    let target = format!("farshore-primary@{GROUP}.target");
    let again = format!("stop {target}\nstart --no-block {target}\n");
    let is_primary = |pair: &Pair| words(pair, Side::Near, "role") == (0, "primary".to_owned());
    let demote = |pair: &Pair| systemctl.lead(pair.command(Side::Near, &["demote", GROUP]));

    fs::write(systemctl.folder.join("state"), "active\n").expect("a state");
    let full = fs::File::options().write(true).open("/dev/full").expect("a disk that is full");
    let cut = demote(&pair).stdout(full).output().expect("it runs");
    assert_eq!(cut.status.code(), Some(2), "{}", String::from_utf8_lossy(&cut.stderr));
    assert_eq!((systemctl.asked(), systemctl.state()), (again.clone(), "active".to_owned()));
    assert!(is_primary(&pair));

    fs::write(systemctl.folder.join("busy"), "").expect("a file");
    let mut command = demote(&pair);
    let streams = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let cut = streams.spawn().expect("it runs");
    pair.until("it waits for the stop", |_| systemctl.asked() == format!("{again}stop {target}\n"));
    let process = rustix::process::Pid::from_child(&cut);
    rustix::process::kill_process(process, rustix::process::Signal::INT).expect("our own child takes a signal");
    let cut = cut.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&cut.stderr).into_owned();
    assert_eq!(cut.status.code(), Some(2), "{said}");
    assert!(said.contains("interrupted while") && said.contains("is started again"), "{said}");
    assert_eq!(systemctl.asked(), format!("{again}{again}"));
    assert!(is_primary(&pair));
}

/// A switchover that is refused anyway stops nothing of what hangs on the target: a database went down for it, and came up again.
#[test]
fn a_switchover_that_would_be_refused_stops_nothing() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    let systemctl = Systemctl::new(&pair.path("systemctl"));
    let target = format!("farshore-primary@{GROUP}.target");
    fs::write(systemctl.folder.join("state"), "active\n").expect("a state");
    let typed = |pair: &Pair, words: &[&str]| {
        let output = systemctl.lead(pair.command(Side::Near, words)).output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = typed(&pair, &["failback", GROUP]);
    assert_eq!(code, Some(0), "{said}");
    pair.kill(Side::Far);
    pair.until("the link is down", |pair| pair.status(Side::Near)["state"] != "replicating");
    for words in [&["switchover", GROUP, "--to", "far"][..], &["switchover", GROUP, "--to", "mars"]] {
        let (code, said) = typed(&pair, words);
        assert_eq!(code, Some(2), "{words:?}: {said}");
    }
    assert_eq!((systemctl.asked(), systemctl.state()), (String::new(), "active".to_owned()));
    pair.serve(Side::Far);
    pair.wait_for(Side::Near, "replicating");
    let (code, said) = typed(&pair, &["switchover", GROUP, "--to", "far"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(systemctl.asked(), format!("stop {target}\n"));
    pair.stop_both();
}

/// The daemon hangs while it is asked, and the operator types Ctrl-C. The demotion may come about all the same, so the target stays down.
#[test]
fn a_demotion_that_hangs_is_waited_for_no_more_after_ctrl_c() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    let systemctl = Systemctl::new(&pair.path("systemctl"));
    let target = format!("farshore-primary@{GROUP}.target");
    fs::write(systemctl.folder.join("state"), "active\n").expect("a state");
    let daemon = pair.pid(Side::Near);
    fs::write(systemctl.folder.join("then"), format!("kill -STOP {daemon}\n")).expect("a script");
    let mut command = systemctl.lead(pair.command(Side::Near, &["demote", GROUP]));
    let streams = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let cut = streams.spawn().expect("it runs");
    pair.until("the target is stopped", |_| systemctl.state() == "inactive");
    // It asks the daemon by then.
    std::thread::sleep(Duration::from_secs(1));
    let typed = Instant::now();
    let process = rustix::process::Pid::from_child(&cut);
    rustix::process::kill_process(process, rustix::process::Signal::INT).expect("our own child takes a signal");
    let cut = cut.wait_with_output().expect("it ends");
    let took = typed.elapsed();
    let daemon = i32::try_from(daemon).ok().and_then(rustix::process::Pid::from_raw).expect("a process");
    rustix::process::kill_process(daemon, rustix::process::Signal::CONT).expect("our own child takes a signal");
    let said = String::from_utf8_lossy(&cut.stderr).into_owned();
    assert_eq!(cut.status.code(), Some(2), "{said}");
    assert!(said.contains("goes on with the demotion") && said.contains("stays stopped"), "{said}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!((systemctl.asked(), systemctl.state()), (format!("stop {target}\n"), "inactive".to_owned()));
}

/// What libvirt makes of `<reconnect delay='60'/>`: qemu's own client, told to wait for a server that is away.
#[test]
fn a_disk_of_qemu_lives_through_restarts_of_the_daemon() {
    if must_skip("a disk of qemu", &[("qemu-io (apt: qemu-utils)", is_installed("qemu-io"))]) {
        return;
    }
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    let (_, socket) = pair
        .uri(Side::Near, "data")
        .split_once("socket=")
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .expect("a socket");
    let image = format!(
        "driver=raw,file.driver=nbd,file.server.type=unix,file.server.path={socket},file.export={GROUP}/data,file.reconnect-delay=60"
    );
    let mut client = Command::new("qemu-io");
    client.args(["--image-opts", &image]);
    for round in 0..40_u64 {
        let pattern = format!("-P {} {} 64k", round + 1, round * 64 * 1024);
        client.args(["-c", &format!("write {pattern}"), "-c", "flush", "-c", "sleep 100"]);
        client.args(["-c", &format!("read {pattern}")]);
    }
    let mut client = Background::start(client);
    for round in 0..3 {
        std::thread::sleep(Duration::from_millis(700));
        if round == 1 {
            assert!(pair.stop(Side::Near).success());
        } else {
            pair.kill(Side::Near);
        }
        std::thread::sleep(Duration::from_millis(500));
        assert!(!client.has_ended(), "the client waits");
        pair.serve(Side::Near);
    }
    let (is_well, said) = client.finish(&mut pair);
    assert!(is_well && said.matches("wrote 65536/65536").count() == 40, "{said}");
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data"]);
}
