//! `stats`, `queue` and `drain` with real daemons: what is shown is what was done.

use serde_json::Value;

use crate::common::{GROUP, Pair, PairPlan, Side, schema};

const PLAN: PairPlan = PairPlan { volume_bytes: 32 << 20, ..PairPlan::DEFAULT };

fn lines(text: &str) -> Vec<Value> {
    let parsed = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let values: Vec<Value> = text.lines().map(parsed).collect();
    values.iter().for_each(schema::seen);
    values
}

// proves: P8
/// A link that is held back: the queue shows how full it is and how fast it empties, the rates are those of the writes, and a drain ends when
/// the other node has what was written before it.
#[test]
fn what_waits_for_a_slow_link_is_shown_and_waited_for() {
    let mut pair = Pair::replicating(&PLAN);
    pair.done(Side::Near, &["link", "set", "rate=20Mbit/s"]);
    pair.wait_for(Side::Near, "replicating");
    pair.qemu_io(Side::Near, "data", &["write -P 7 0 24M", "read -P 7 0 4M"]);
    assert!(pair.counter(Side::Near, "volume.g/data.writes") > 0);
    assert_eq!(pair.counter(Side::Near, "volume.g/data.write_bytes"), 24 << 20);
    assert_eq!(pair.counter(Side::Near, "volume.g/data.read_bytes"), 4 << 20);
    assert_eq!(pair.counter(Side::Near, "volume.g/log.writes"), 0);

    let shown = lines(&pair.done(Side::Far, &["queue", GROUP, "--json"])).remove(0);
    let group = &shown["groups"][0];
    assert_eq!(
        (&shown["schema"], &group["node"], &group["role"]),
        (&"farshore-queue/1".into(), &"near".into(), &"primary".into())
    );
    let queue = &group["queue"];
    assert!(queue["bytes"].as_u64() > Some(1 << 20) && queue["reset_bytes_hwm"] == queue["bytes_hwm"], "{shown}");
    let page = pair.done(Side::Near, &["queue", GROUP]);
    assert!(page.contains("Fill      [") && page.contains("since the start of the daemon"), "{page}");
    let line = |title: &str| page.lines().find(|line| line.trim_start().starts_with(title)).unwrap_or_default();
    assert!(line("Settings").ends_with("weight 10; at most 20.0 Mbit/s on the link now"), "{page}");
    assert!(line("Copy at").contains("(primary's clock), sequence "), "{page}");
    assert!(line("RPO").contains(": the lag is to stay within 30 s (rpo.warn), 5 min (rpo.error)"), "{page}");
    assert_eq!(
        (&group["effective_mode"], &group["policy"], &group["rpo"]["state"], &group["allowed_bytes_per_s"]),
        (&group["mode"], &"degrade".into(), &"met".into(), &2_500_000.into())
    );
    assert!(group["mode_ladder"].is_null() && group["recovery_point"]["sequence"].as_u64() > Some(0), "{group}");

    pair.done(Side::Near, &["set", GROUP, "queue.memory=8MiB"]);
    let warnings = pair.status(Side::Near)["warnings"].to_string();
    assert!(warnings.contains("writers will soon wait; 'farshore set g queue.memory="), "{warnings}");
    pair.done(Side::Near, &["set", GROUP, "queue.memory=default"]);

    let told = lines(&pair.done(Side::Near, &["stats", "500ms", "2", "--json", "--group", GROUP]));
    let group = &told[1]["groups"][0];
    assert!(group["streamed_bytes_per_s"].as_f64() > Some(0.0) && group["requests"]["writes_per_s"] == 0.0, "{group}");
    each_volume_has_its_part(&pair, group);
    let link = &told[1]["links"][0];
    assert_eq!((&link["node"], &link["link"]), (&"far".into(), &"connected".into()));
    let [sent, received] = ["sent_bytes_per_s", "received_bytes_per_s"].map(|key| link[key].as_f64());
    assert!(sent > group["streamed_bytes_per_s"].as_f64().map(|rate| rate / 2.0) && sent < Some(6e6), "{link}");
    assert!(received > Some(0.0) && received < sent, "{link}");
    let table = pair.done(Side::Near, &["stats", "200ms", "1"]);
    let has_link = table.lines().any(|line| line.starts_with("far") && line.contains("link"));
    assert!(has_link && table.starts_with("NAME") && table.contains("\n  data"), "{table}");

    let (code, said) = pair.output_of(Side::Near, &["drain", GROUP, "--timeout", "100ms"]);
    assert!(code == 2 && said.contains("is not on the other node in time"), "{code}: {said}");
    let (code, said) = pair.output_of(Side::Far, &["drain", GROUP]);
    assert!(code == 2 && said.contains("type it on near"), "{code}: {said}");
    pair.done(Side::Near, &["queue", GROUP, "--reset-peaks"]);
    pair.done(Side::Near, &["link", "set", "rate=unlimited"]);
    let said = pair.done(Side::Near, &["drain", GROUP, "--to", "now", "--timeout", "5m"]);
    assert!(said.contains("is on far"), "{said}");
    let copy = std::fs::read(pair.device(Side::Far, "data")).expect("a volume");
    assert!(copy[..24 << 20].iter().all(|byte| *byte == 7), "the daemons run, and all of it is there");
    // A peak that was reset begins with what was there.
    pair.done(Side::Far, &["queue", GROUP, "--reset-peaks"]);
    let queue = &pair.status(Side::Near)["queue"];
    assert!(queue["reset_bytes_hwm"].as_u64() < queue["bytes_hwm"].as_u64(), "{queue}");
    assert_eq!(pair.counter(Side::Near, "group.g.streamed_bytes"), 24 << 20);
    assert_eq!(pair.counter(Side::Near, "volume.g/data.streamed_bytes"), 24 << 20);
    assert!(pair.counter(Side::Far, "group.g.journal_bytes") >= 24 << 20);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

/// The data are written to, the log is not.
fn each_volume_has_its_part(pair: &Pair, group: &Value) {
    let [data, log] = ["data", "log"].map(|name| {
        let volumes = group["volumes"].as_array().expect("volumes");
        volumes.iter().find(|volume| volume["name"] == name).expect("it is one of them").clone()
    });
    assert!(data["streamed_bytes_per_s"] == group["streamed_bytes_per_s"], "{group}");
    let [of_data, of_group] = [&data["queue"], &group["queue"]].map(|queue| queue["items"].as_u64());
    assert!(of_data == of_group && of_data > Some(0), "{group}");
    assert!(data["queue"]["reset_bytes_hwm"].as_u64() >= data["queue"]["bytes"].as_u64(), "{data}");
    assert_eq!((&log["queue"]["items"], &log["streamed_bytes_per_s"]), (&0.into(), &0.0.into()), "{log}");
    let bitmap_bytes = pair.counter(Side::Near, "volume.g/data.bitmap_bytes");
    assert!(bitmap_bytes > 0, "the first sync cleared its bits");
}

#[test]
fn what_cannot_be_shown_or_waited_for_is_said() {
    let pair = Pair::replicating(&PLAN);
    for (words, code, part) in [
        (&["stats", "0"][..], 3, "100 ms to 24 h"),
        (&["stats", "1", "0"][..], 3, "0"),
        (&["stats", "--group", "dbx"][..], 2, "dbx"),
        (&["queue", "dbx"][..], 2, "dbx"),
        (&["drain", GROUP, "--timeout", "soon"][..], 3, "--timeout"),
        (&["drain", GROUP][..], 0, "is on far"),
        (&["logging", GROUP, "--volume", "data"][..], 0, "goes on without it"),
        (&["drain", GROUP][..], 1, "data set aside"),
    ] {
        let (ended, said) = pair.output_of(Side::Near, words);
        assert!(ended == code && said.contains(part), "{words:?}: {ended}: {said}");
    }
    pair.done(Side::Near, &["set", GROUP, "mode=logging"]);
    pair.qemu_io(Side::Near, "log", &["write 0 4k"]);
    let (ended, said) = pair.output_of(Side::Near, &["drain", GROUP]);
    assert!(ended == 2 && said.contains("mode logging"), "{ended}: {said}");
}
