//! A fork of two real daemons is resolved: the content of one node is kept, what the other one held is saved, and what differs is sent.
// proves: P6

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::{Background, GROUP, Pair, PairPlan, Side, schema};
use crate::one_group_fails::{status_of, two_groups};

const VOLUMES: [&str; 2] = ["data", "log"];

/// Both were equal; near wrote alone, far was promoted by force and wrote too; then they met.
pub fn forked() -> Pair {
    let mut pair = Pair::replicating(&PairPlan::default());
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.stop(Side::Far);
    pair.qemu_io(Side::Near, "data", &["write -P 6 0 64k", "flush"]);
    pair.stop(Side::Near);
    pair.serve(Side::Far);
    pair.promote_by_force(Side::Far);
    pair.qemu_io(Side::Far, "data", &["write -P 7 256k 64k", "flush"]);
    pair.serve(Side::Near);
    pair.until("both nodes see the fork", |pair| {
        Side::BOTH.iter().all(|node| pair.status(*node)["reason"].to_string().contains("both nodes are primary"))
    });
    pair
}

fn delta(pair: &Pair, node: Side) -> PathBuf {
    pair.path(node.name()).join("state/groups").join(GROUP).join("delta")
}

fn is_primary(pair: &Pair, node: Side) -> bool {
    pair.status(node)["role"] == "primary"
}

fn inspect(pair: &Pair, node: Side, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
    command.arg("inspect").args(words).arg(delta(pair, node)).output().expect("the binary runs")
}

/// What was saved of a node, as `inspect` reads it.
fn inspected(pair: &Pair, node: Side) -> Value {
    let output = inspect(pair, node, &["--json"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).expect("JSON")
}

fn extracted(pair: &Pair, node: Side, range: &str) -> Vec<u8> {
    let output = inspect(pair, node, &["--extract", range]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn a_fork_is_resolved_at_either_node_and_what_is_given_up_can_be_read() {
    for (kept, typed) in [(Side::Far, Side::Near), (Side::Near, Side::Near)] {
        let given_up = kept.other();
        let mut pair = forked();
        let (code, said) = pair.output_of(typed, &["resolve", GROUP, "--keep", kept.name()]);
        assert!(code == 0 && said.contains("content is kept"), "{code}: {said}\n{}", pair.log(kept));
        assert!(is_primary(&pair, kept) && !is_primary(&pair, given_up));
        pair.wait_for(kept, "replicating");
        let found = inspected(&pair, given_up);
        let ranges = found.pointer("/files/0/facts/ranges").or(found.pointer("/0/facts/ranges"));
        assert!(ranges.is_some_and(|ranges| !ranges.as_array().expect("a list").is_empty()), "{found}");
        // The blocks that either node wrote since, as the one that is given up held them.
        let (all, first) = (extracted(&pair, given_up, "all"), extracted(&pair, given_up, "0"));
        let (at_start, behind) = if given_up == Side::Near { (6, 5) } else { (5, 7) };
        assert!(first[..64 << 10].iter().all(|byte| *byte == at_start), "{:?}", &first[..16]);
        assert_eq!(all.iter().filter(|byte| **byte == behind).count() % 4096, 0);
        assert!(all.contains(&at_start) && all.contains(&behind));
        assert_eq!(pair.run(typed, &["resolve", GROUP, "--keep", kept.name()]).status.code(), Some(0), "kept already");
        let content = if kept == Side::Far {
            ["read -P 5 0 256k", "read -P 7 256k 64k"]
        } else {
            ["read -P 6 0 64k", "read -P 5 64k 960k"]
        };
        pair.qemu_io(kept, "data", &content);
        pair.wait_for_rest(kept);
        pair.stop_from(kept);
        pair.assert_equal(&VOLUMES);
    }
}

#[test]
fn what_cannot_be_resolved_is_refused_in_words_and_nobody_is_demoted() {
    let mut pair = Pair::replicating(&PairPlan::default());
    let (code, said) = pair.output_of(Side::Near, &["resolve", GROUP, "--keep", "near"]);
    assert!(code == 0 && said.contains("nothing to do"), "{code}: {said}");
    for (words, part) in [
        (&["resolve", GROUP, "--keep", "far"][..], "this node is the secondary"),
        (&["resolve", GROUP, "--keep", "mars"][..], "does not have this group"),
        (&["resolve", "h", "--keep", "far"][..], "no group"),
    ] {
        let (code, said) = pair.output_of(Side::Near, words);
        assert!(code >= 2 && said.contains(part), "{words:?} {code}: {said}");
        assert!(is_primary(&pair, Side::Near) && !is_primary(&pair, Side::Far), "{words:?}");
    }
    pair.kill(Side::Far);
    pair.until("the link is down", |pair| pair.status(Side::Near)["state"] != "replicating");
    let (code, said) = pair.output_of(Side::Near, &["resolve", GROUP, "--keep", "near"]);
    assert!(code == 2 && said.contains("not connected"), "{code}: {said}");
    pair.stop(Side::Near);
}

/// Nobody is cut off unasked; and a refusal leaves no order behind that the next demotion would carry out.
#[test]
fn clients_of_the_other_node_are_cut_off_only_if_that_is_said() {
    let mut pair = forked();
    let client: Background = pair.start_qemu_io(Side::Near, "data", &["read 0 4k", "sleep 20000"]);
    pair.until("the client is attached", |pair| {
        pair.output_of(Side::Near, &["clients", GROUP]).1.lines().any(|line| line.contains("data"))
    });
    let (code, said) = pair.output_of(Side::Far, &["resolve", GROUP, "--keep", "far"]);
    assert!(code == 2 && said.contains("--close-clients"), "{code}: {said}");
    assert!(Side::BOTH.iter().all(|node| is_primary(&pair, *node)));
    let (code, said) = pair.output_of(Side::Near, &["resolve", GROUP, "--keep", "far", "--close-clients", "--json"]);
    let answer: Value = serde_json::from_str(said.trim()).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert!(code <= 1 && answer.to_string().contains("content is kept"), "{code}: {said}");
    drop(client);
    pair.wait_for_rest(Side::Far);
    pair.stop_from(Side::Far);
    pair.assert_equal(&VOLUMES);
}

/// The other half was refused, and the order stood for a minute: meanwhile the other node could not be kept, and a demotion of it was taken for
/// an answer.
#[test]
fn a_resolve_that_is_refused_leaves_no_order_behind() {
    let mut pair = forked();
    let client: Background = pair.start_qemu_io(Side::Near, "data", &["read 0 4k", "sleep 20000"]);
    pair.until("the client is attached", |pair| {
        pair.output_of(Side::Near, &["clients", GROUP]).1.lines().any(|line| line.contains("data"))
    });
    let (code, said) = pair.output_of(Side::Far, &["resolve", GROUP, "--keep", "far"]);
    assert!(code == 2 && said.contains("--close-clients"), "{code}: {said}");
    let (code, said) = pair.output_of(Side::Near, &["resolve", GROUP, "--keep", "near"]);
    assert!(code <= 1 && said.contains("content is kept"), "{code}: {said}");
    drop(client);
    pair.wait_for_rest(Side::Near);
    pair.stop_from(Side::Near);
    pair.assert_equal(&VOLUMES);
}

#[test]
fn nothing_is_saved_where_that_is_ordered() {
    let mut pair = forked();
    let (code, said) = pair.output_of(Side::Far, &["resolve", GROUP, "--keep", "far", "--discard"]);
    assert!(code == 0 && said.contains("not saved"), "{code}: {said}");
    pair.wait_for_rest(Side::Far);
    assert!(fs::metadata(delta(&pair, Side::Near)).is_err());
    pair.stop_from(Side::Far);
    pair.assert_equal(&VOLUMES);
}

/// Nobody resolves the fork: the old primary is demoted, and overwritten in full. What only it had can be read all the same.
#[test]
fn a_full_sync_over_a_fork_leaves_what_it_overwrote_to_be_read() {
    let mut pair = forked();
    let (code, said) = pair.output_of(Side::Near, &["demote", GROUP]);
    assert_eq!(code, 1, "{said}");
    pair.until("it is said what a full sync does", |pair| {
        pair.status(Side::Far)["reason"].to_string().contains("which the peer saves to a file")
    });
    let (code, said) = pair.output_of(Side::Far, &["sync", GROUP, "--full"]);
    assert!(code <= 1 && said.contains("the peer saves what it overwrites there"), "{code}: {said}");
    pair.wait_for(Side::Far, "replicating");
    let found = inspected(&pair, Side::Near);
    assert_eq!(found.pointer("/files/0/facts/whole"), Some(&Value::Bool(true)), "{found}");
    // What near wrote alone, and what far has written over since they parted.
    let all = extracted(&pair, Side::Near, "all");
    let of = |byte: u8| all.iter().filter(|found| **found == byte).count();
    assert_eq!((of(6), of(5), of(7)), (64 << 10, 64 << 10, 0), "{found}");
    let (_, said) = pair.output_of(Side::Near, &["events", GROUP, "--local"]);
    assert!(said.contains("is saved"), "{said}");
    pair.qemu_io(Side::Far, "data", &["read -P 5 0 256k", "read -P 7 256k 64k"]);
    pair.wait_for_rest(Side::Far);
    pair.stop_from(Side::Far);
    pair.assert_equal(&VOLUMES);
}

/// Two operators at two desks, each for his own node.
#[test]
fn of_two_orders_from_two_desks_at_most_one_is_carried_out() {
    let mut pair = forked();
    let desks =
        Side::BOTH.map(|node| Background::start(pair.command(node, &["resolve", GROUP, "--keep", node.name()])));
    let answers = desks.map(|desk| desk.finish(&mut pair));
    let kept = answers.iter().filter(|(success, _)| *success).count();
    assert!(kept <= 1, "{answers:?}");
    let serving = Side::BOTH.into_iter().find(|node| is_primary(&pair, *node));
    let serving = serving.unwrap_or_else(|| panic!("nobody serves: {answers:?}"));
    if kept == 0 {
        let (code, said) = pair.output_of(serving, &["resolve", GROUP, "--keep", serving.name()]);
        assert!(code <= 1, "{code}: {said}");
    }
    pair.wait_for_rest(serving);
    pair.stop_from(serving);
    pair.assert_equal(&VOLUMES);
}

/// Nobody types `resolve`. With a client attached to the old primary nothing happens; then its hook runs, and its blocks are saved.
#[test]
fn a_promoted_node_is_kept_by_policy_and_no_client_is_cut_off() {
    let group = "after_forced_failover = \"keep-promoted\"\nhooks.after_demote = [\"/bin/true\"]\n";
    let mut pair = Pair::new(&PairPlan { group, head: "[link]\ntimeout = \"1s\"\n", ..PairPlan::default() });
    pair.lay_relay();
    pair.first_sync();
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.relay().cut();
    pair.qemu_io(Side::Near, "data", &["write -P 6 0 64k", "flush"]);
    pair.until("both know that the link is lost", |pair| {
        Side::BOTH.iter().all(|node| pair.status(*node)["peers"][0]["link"] != "connected")
    });
    pair.promote_by_force(Side::Far);
    pair.qemu_io(Side::Far, "data", &["write -P 7 256k 64k", "flush"]);
    // Until they have met, one of the two says that it asks.
    pair.done(Side::Far, &["set", GROUP, "after_forced_failover=ask"]);
    pair.relay().reset();
    pair.relay().restore();
    pair.until("the difference is told", |pair| {
        pair.status(Side::Near)["warnings"].to_string().contains("counts where both nodes have the same")
    });
    let mut client = pair.start_qemu_io(Side::Near, "data", &["read 0 4k", "sleep 15000"]);
    pair.until("the client is attached", |pair| {
        pair.output_of(Side::Near, &["clients", GROUP]).1.lines().any(|line| line.contains("data"))
    });
    pair.done(Side::Far, &["set", GROUP, "after_forced_failover=default"]);
    pair.until("it is refused", |pair| pair.log(Side::Near).contains("is not resolved by 'after_forced_failover'"));
    assert!(Side::BOTH.iter().all(|node| is_primary(&pair, *node)) && !client.has_ended());
    pair.until("the client has gone", |_| client.has_ended());
    drop(client);
    pair.until("it is resolved", |pair| {
        !is_primary(pair, Side::Near) && pair.status(Side::Far)["state"] == "replicating"
    });
    assert!(is_primary(&pair, Side::Far));
    assert!(extracted(&pair, Side::Near, "0")[..64 << 10].iter().all(|byte| *byte == 6));
    let (_, said) = pair.output_of(Side::Near, &["events", GROUP, "--local"]);
    assert!(said.contains("by after_forced_failover") && said.contains("role-hook"), "{said}");
    pair.qemu_io(Side::Far, "data", &["read -P 5 0 256k", "read -P 7 256k 64k"]);
    pair.wait_for_rest(Side::Far);
    pair.stop_from(Side::Far);
    pair.assert_equal(&VOLUMES);
}

// proves: P6
/// A site with several groups: one command keeps what one node wrote of all of them, and says before what differs on either side.
#[test]
fn all_groups_of_a_site_are_kept_by_one_command() {
    let mut pair = two_groups();
    let groups = [GROUP, "h"];
    pair.stop(Side::Far);
    let write = |pair: &Pair, node, commands: &[&str]| {
        groups.iter().for_each(|group| qemu_io_of(pair, node, group, commands));
    };
    write(&pair, Side::Near, &["write -P 6 0 64k", "flush"]);
    pair.stop(Side::Near);
    pair.serve(Side::Far);
    let (code, said) = pair.output_of(Side::Far, &["promote", "--all", "--force"]);
    assert_eq!(code, 1, "{said}");
    write(&pair, Side::Far, &["write -P 7 256k 128k", "flush"]);
    pair.serve(Side::Near);
    for node in Side::BOTH {
        pair.until("it sees the forks", |pair| {
            let forked =
                |group: &&str| status_of(pair, node, group)["reason"].to_string().contains("both nodes are primary");
            groups.iter().all(forked)
        });
    }
    let mut seen = Vec::new();
    for node in Side::BOTH {
        let output = pair.run(node, &["connect", "--all", "--dry-run", "--json"]);
        let text = String::from_utf8(output.stdout).expect("text");
        assert_eq!((output.status.code(), text.lines().count()), (Some(1), 2), "{text}");
        for (line, group) in text.lines().zip(groups) {
            let told: Value = serde_json::from_str(line).expect("JSON");
            schema::check(&told);
            let sizes = [&told["written_here_bytes"], &told["written_there_bytes"]].map(Value::as_u64);
            assert_eq!((&told["group"], &told["verdict"]), (&group.into(), &"refused".into()), "{told}");
            assert!(sizes.iter().all(|bytes| *bytes >= Some(64 << 10)), "{told}");
            seen.push(sizes);
        }
    }
    // Each node says the same of both sides.
    seen[2..].iter_mut().for_each(|sizes| sizes.reverse());
    assert_eq!(seen[..2], seen[2..], "{seen:?}");
    let (code, said) = pair.output_of(Side::Near, &["connect", GROUP, "h", "--dry-run"]);
    assert!(code == 1 && said.matches("  Fork       ").count() == 2, "{said}");
    let (code, said) = pair.output_of(Side::Near, &["resolve", "--all", "--keep", "far"]);
    assert!(code == 0 && said.matches("content is kept").count() == 2, "{code}: {said}");
    for group in groups {
        assert!(is_role(&pair, Side::Far, group, "primary") && is_role(&pair, Side::Near, group, "secondary"));
        pair.done(Side::Far, &["wait", group, "--for", "replicating", "--timeout", "90s"]);
    }
    // Typed again it has nothing to do, and a name that there is not keeps no other group from its answer.
    let (code, said) = pair.output_of(Side::Near, &["resolve", GROUP, "none", "h", "--keep", "far"]);
    assert!(code == 2 && said.matches("nothing to do").count() == 2 && said.contains("\"none\""), "{code}: {said}");
    write(&pair, Side::Far, &["read -P 7 256k 128k", "read -P 0 0 64k"]);
}

fn qemu_io_of(pair: &Pair, node: Side, group: &str, commands: &[&str]) {
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw"]).args(commands.iter().flat_map(|words| ["-c", words]));
    command.arg(pair.uri(node, "data").replace(&format!("/{GROUP}/"), &format!("/{group}/")));
    let output = command.output().expect("qemu-io is installed (apt: qemu-utils)");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && !said.contains("failed"), "{commands:?}: {said}");
}

fn is_role(pair: &Pair, node: Side, group: &str, role: &str) -> bool {
    status_of(pair, node, group)["role"] == role
}
