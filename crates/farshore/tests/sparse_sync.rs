//! A full sync of a sparse volume costs what the volume holds.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::common::{Pair, PairPlan, Side};

const VOLUME_BYTES: u64 = 8 << 30;
/// Of these, at places far apart.
const PIECE_BYTES: u64 = 1 << 20;
const PIECES: u64 = 8;

/// Heads of frames, of which one stands for up to 8 MiB of nothing, and heartbeats.
const SENT_BESIDE_BYTES: u64 = 1 << 20;
/// Records, files of the state directory, what clients ask.
const READ_BESIDE_BYTES: u64 = 64 << 20;

#[test]
fn what_a_file_does_not_hold_is_not_sent() {
    // The kernel counts what is read by its worker threads, and not what io_uring reads.
    let node = "engine = \"pool\"";
    let mut pair = Pair::new(&PairPlan { volumes: &["data"], volume_bytes: VOLUME_BYTES, node, ..PairPlan::DEFAULT });
    let (near, far) = (pair.device(Side::Near, "data"), pair.device(Side::Far, "data"));
    let location = |piece: u64| piece * (VOLUME_BYTES / PIECES) + 12_345 * 4096;
    // What the far side holds where there is nothing on the near side must become nothing.
    let stale = File::options().write(true).open(&far).expect("there");
    stale.write_all_at(&[9; 4096], 4 << 30).expect("written");
    drop(stale);
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    // A new primary opens its export once it has met its peer, and no full sync begins before.
    pair.until("the nodes have met", |pair| pair.status(Side::Near)["protection"] != "none");
    for piece in 0..PIECES {
        pair.qemu_io(
            Side::Near,
            "data",
            &[&format!("write -P {} {} {PIECE_BYTES}", piece + 1, location(piece)), "flush"],
        );
    }
    pair.sync_fully(Side::Near);
    pair.wait_for_rest(Side::Near);
    let (read, sent) = (read_bytes(&pair), carried_bytes(&pair));
    assert!(read <= 2 * PIECES * PIECE_BYTES + READ_BESIDE_BYTES, "{read} bytes were read");
    assert!(sent <= PIECES * PIECE_BYTES + SENT_BESIDE_BYTES, "{sent} bytes were sent");
    pair.stop_both();
    let allocated = std::fs::metadata(&far).expect("there").blocks() * 512;
    assert!(allocated <= 2 * PIECES * PIECE_BYTES, "{allocated} bytes of the copy are allocated");
    let (one, other) = (File::open(&near).expect("there"), File::open(&far).expect("there"));
    let read = |file: &File, at| {
        let mut bytes = vec![0; PIECE_BYTES as usize];
        file.read_exact_at(&mut bytes, at).expect("readable");
        bytes
    };
    for at in (0..PIECES).map(location).chain([4 << 30]) {
        assert!(read(&one, at) == read(&other, at), "the copies differ at {at}");
    }
}

/// Of all that the near daemon read since it began.
fn read_bytes(pair: &Pair) -> u64 {
    let reported = std::fs::read_to_string(format!("/proc/{}/io", pair.pid(Side::Near))).expect("it runs");
    reported
        .lines()
        .find_map(|line| line.strip_prefix("rchar: "))
        .expect("the kernel counts")
        .parse()
        .expect("a number")
}

fn carried_bytes(pair: &Pair) -> u64 {
    let output = pair.run(Side::Near, &["link", "show", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    shown["links"][0]["compression"]["sent_wire_bytes"].as_u64().expect("a connection that is up")
}
