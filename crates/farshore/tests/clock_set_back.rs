//! The primary's wall clock is set back by two hours: both nodes say so, in log and status, and the copy's time goes on.

mod common;

use std::fs;
use std::process::Command;

use common::{GROUP, Node, Pair, Plan, is_installed, must_skip};

/// Put before the C library: while the file is there, the wall clock is two hours back.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, now);
    const char *file = getenv("CLOCK_SET_BACK");
    if (id == CLOCK_REALTIME && file && access(file, F_OK) == 0) now->tv_sec -= 7200;
    return result;
}
"#;

/// Builds the clock; its path.
fn clock(pair: &Pair) -> std::path::PathBuf {
    let (source, library) = (pair.path("clock.c"), pair.path("clock.so"));
    fs::write(&source, CLOCK).expect("written");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").output();
    let built = built.expect("cc runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    library
}

/// What the secondary showed stood still two hours ahead, without a line in either log.
#[test]
fn a_wall_clock_that_is_set_back_is_said_on_both_nodes() {
    if must_skip("clock_set_back", &[("cc (apt: gcc)", is_installed("cc"))]) {
        return;
    }
    let mut pair = Pair::new(&Plan::default());
    let (library, set_back) = (clock(&pair), pair.path("set-back"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
    command.args(["serve", "--node", "near", "--config"]).arg(pair.config());
    command.env("LD_PRELOAD", library).env("CLOCK_SET_BACK", &set_back);
    pair.serve_by(Node::Near, command);
    pair.serve(Node::Far);
    pair.sync_fully(Node::Near);
    pair.wait_for(Node::Near, "replicating");
    fs::write(&set_back, "").expect("set back");
    pair.qemu_io(Node::Near, "data", &["write -P 1 0 64k", "flush"]);
    pair.until("both say it", |pair| {
        Node::BOTH.iter().all(|node| {
            pair.status(*node)["warnings"].to_string().contains("the wall clock of near stands 1 h 59 min behind")
        })
    });
    pair.until("the copy is at the time that the primary has now", |pair| {
        let time = |node| pair.status(node)["peers"][0]["recovery_point"]["time"].as_str().map(str::to_owned);
        let [Some(near), Some(far)] = [Node::Near, Node::Far].map(time) else { return false };
        // To the minute, but for a minute's end.
        near[..16] == far[..16]
    });
    for (node, whose) in [(Node::Near, "this node"), (Node::Far, "the primary")] {
        let log = pair.log(node);
        let said = format!("group {GROUP}: the wall clock of {whose} stands 71");
        assert_eq!(log.matches(&said).count(), 1, "{log}");
    }
    fs::remove_file(&set_back).expect("set again");
    pair.until("neither says it any more", |pair| {
        Node::BOTH.iter().all(|node| !pair.status(*node)["warnings"].to_string().contains("wall clock"))
    });
}
