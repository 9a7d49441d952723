//! Wall clocks are set while a pair runs. The primary's goes back by two hours: both nodes say so, in log and status, and the copy's time
//! goes on. Either clock goes back and forth, as far as before 1970: writers, link and copy notice nothing.
// proves: rule 19

use std::fs;
use std::process::Command;

use std::path::Path;

use crate::common::load::{LoadPlan, WriterLoad, WriterRun};
use crate::common::{GROUP, Pair, PairPlan, Side, is_installed, must_skip};

/// Put before the C library: while the file is there, it says by how many seconds the wall clock is wrong.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, now);
    const char *file = id == CLOCK_REALTIME ? getenv("CLOCK_SET_BACK") : NULL;
    int wrong_by = file ? open(file, O_RDONLY) : -1;
    if (wrong_by >= 0) {
        char text[32] = "";
        if (read(wrong_by, text, sizeof text - 1) > 0) now->tv_sec += atoll(text);
        close(wrong_by);
    }
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

/// Serves a node by a clock that can be set.
fn serve_by_clock(pair: &mut Pair, node: Side, library: &Path, wrong_by: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
    command.args(["serve", "--node", node.name(), "--config"]).arg(pair.config());
    command.env("LD_PRELOAD", library).env("CLOCK_SET_BACK", wrong_by);
    pair.serve_by(node, command);
}

/// What the secondary showed stood still two hours ahead, without a line in either log.
#[test]
fn a_wall_clock_that_is_set_back_is_said_on_both_nodes() {
    if must_skip("clock_set_back", &[("cc (apt: gcc)", is_installed("cc"))]) {
        return;
    }
    let mut pair = Pair::new(&PairPlan::default());
    let (library, set_back) = (clock(&pair), pair.path("set-back"));
    serve_by_clock(&mut pair, Side::Near, &library, &set_back);
    pair.serve(Side::Far);
    pair.sync_fully(Side::Near);
    pair.wait_for(Side::Near, "replicating");
    fs::write(&set_back, "-7200").expect("set back");
    pair.qemu_io(Side::Near, "data", &["write -P 1 0 64k", "flush"]);
    pair.until("both say it", |pair| {
        Side::BOTH.iter().all(|node| {
            pair.status(*node)["warnings"].to_string().contains("the wall clock of near stands 1 h 59 min behind")
        })
    });
    pair.until("the copy is at the time that the primary has now", |pair| {
        let time = |node| pair.status(node)["peers"][0]["recovery_point"]["time"].as_str().map(str::to_owned);
        let [Some(near), Some(far)] = [Side::Near, Side::Far].map(time) else { return false };
        // To the minute, but for a minute's end.
        near[..16] == far[..16]
    });
    for (node, whose) in [(Side::Near, "this node"), (Side::Far, "the primary")] {
        let log = pair.log(node);
        let said = format!("group {GROUP}: the wall clock of {whose} stands 71");
        assert_eq!(log.matches(&said).count(), 1, "{log}");
    }
    fs::remove_file(&set_back).expect("set again");
    pair.until("neither says it any more", |pair| {
        Side::BOTH.iter().all(|node| !pair.status(*node)["warnings"].to_string().contains("wall clock"))
    });
}

#[test]
fn clocks_that_go_back_and_forth_disturb_nobody() {
    const VOLUMES: &[&str] = &["data", "log"];
    const DAY: i64 = 86_400;
    let test = "clocks_that_go_back_and_forth_disturb_nobody";
    if must_skip(test, &[("cc (apt: gcc)", is_installed("cc"))]) {
        return;
    }
    let mut pair =
        Pair::new(&PairPlan { volumes: VOLUMES, volume_bytes: 2 << 20, mode: "sync", ..PairPlan::default() });
    let library = clock(&pair);
    let files = Side::BOTH.map(|node| pair.path(&format!("{}-clock", node.name())));
    // Whole at any moment: an empty file is a clock that is right.
    let set = |node: Side, seconds: i64| fs::write(&files[node as usize], seconds.to_string()).expect("set");
    Side::BOTH.into_iter().for_each(|node| serve_by_clock(&mut pair, node, &library, &files[node as usize]));
    pair.sync_fully(Side::Near);
    pair.wait_for(Side::Near, "replicating");
    let connections = |pair: &Pair| pair.log(Side::Near).matches("a connection ended").count();
    let before = connections(&pair);
    let run = WriterRun::on_zeroes(1, VOLUMES);
    let load = WriterLoad::start(&pair, Side::Near, &run, LoadPlan { flush_one_in: 20, ..LoadPlan::crowded(VOLUMES) });
    for (near, far) in
        [(-7200, 0), (7200, 0), (0, -7200), (-DAY, DAY), (500 * DAY, 0), (0, -40_000 * DAY), (-40_000 * DAY, 0), (0, 0)]
    {
        set(Side::Near, near);
        set(Side::Far, far);
        load.wait_for_more(&mut pair, 200);
        for node in Side::BOTH {
            let status = pair.status(node);
            assert_eq!(status["state"], "replicating", "{near} {far}: {status}\n{}", pair.log(node));
        }
    }
    load.stop();
    assert_eq!(connections(&pair), before, "{}", pair.log(Side::Near));
    // A start by a wrong clock, with what a right one wrote.
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    for (node, wrong_by) in [(Side::Near, -DAY), (Side::Far, 500 * DAY)] {
        set(node, wrong_by);
        serve_by_clock(&mut pair, node, &library, &files[node as usize]);
    }
    pair.wait_for(Side::Near, "replicating");
    pair.stop_both();
    pair.assert_equal(VOLUMES);
    assert_eq!(run.check(&pair, Side::Far).lost_writes, 0);
    for node in Side::BOTH {
        let log = pair.log(node);
        assert!(!log.contains("panicked") && log.lines().count() < 200, "{log}");
    }
}
