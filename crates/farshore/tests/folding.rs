//! Writes follow each other and overwrite each other while a slow link has them wait: fewer of them travel, in larger frames, and no byte is
//! copied for that.
// proves: rule 4, rule 20

use serde_json::Value;

use crate::common::{GROUP, Pair, PairPlan, Side};

const VOLUMES: &[&str] = &["data"];
const KIB: u64 = 1024;

/// On a link that carries half a megabyte a second, behind what its socket takes: 60 writes that follow each other, and 60 of one place. `folds`: so
/// many of them are not sent.
fn is_written(pair: &mut Pair, folds: u64) -> Value {
    pair.done(Side::Near, &["link", "set", "rate=4Mbit/s"]);
    pair.until("the link is back", |pair| pair.status(Side::Near)["peers"][0]["link"] == "connected");
    let beside: Vec<String> = (0..60).map(|n| format!("write -P {} {}k 4k", n + 1, 1024 + n * 4)).collect();
    let over: Vec<String> = (0..60).map(|n| format!("write -P {} 1536k 4k", n + 1)).collect();
    let commands: Vec<&str> =
        ["write -P 99 0 1M"].into_iter().chain(beside.iter().chain(&over).map(String::as_str)).collect();
    pair.qemu_io(Side::Near, "data", &commands);
    pair.until("enough was left out", |pair| queue(pair)["folded_writes"].as_u64() >= Some(folds));
    pair.done(Side::Near, &["link", "set", "rate=default"]);
    pair.wait_for_rest(Side::Near);
    queue(pair)
}

fn queue(pair: &Pair) -> Value {
    let page = pair.done(Side::Near, &["queue", GROUP, "--json"]);
    let page: Value = serde_json::from_str(&page).expect("JSON");
    page["groups"][0]["queue"].clone()
}

#[test]
fn what_waits_for_a_slow_link_is_joined_and_folded_without_a_copy() {
    let mut pair = Pair::replicating(&PairPlan { volumes: VOLUMES, volume_bytes: 2 << 20, ..PairPlan::default() });
    let number = |value: &Value| value.as_u64().expect("a number");
    pair.done(Side::Near, &["set", GROUP, "fold=never"]);
    let never = is_written(&mut pair, 0);
    assert_eq!((&never["folded_writes"], &never["folded_bytes"]), (&Value::from(0), &Value::from(0)), "{never}");
    pair.done(Side::Near, &["set", GROUP, "fold=auto"]);
    let auto = is_written(&mut pair, 30);
    assert!(number(&auto["folded_writes"]) >= 30 && number(&auto["folded_bytes"]) >= 30 * 4 * KIB, "{auto}");
    let (writes, frames) = (number(&auto["joined_writes"]), number(&auto["joined_frames"]));
    // A slow link has small frames: nobody waits long for another group's.
    assert!(writes >= 30 && frames * 2 <= writes, "{auto}");
    let links: Value = serde_json::from_str(&pair.done(Side::Near, &["link", "show", "--json"])).expect("JSON");
    let sent = &links["links"][0]["compression"];
    assert!(number(&sent["sent_plain_bytes"]) > 60 * 4 * KIB && sent["sent_copied_bytes"] == 0, "{sent}");
    let (_, text) = pair.output_of(Side::Near, &["queue", GROUP]);
    assert!(text.contains(&format!("{writes} went as {frames} frames")), "{text}");
    pair.stop_both();
    pair.assert_equal(VOLUMES);
}
