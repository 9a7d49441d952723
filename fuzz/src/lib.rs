//! One function for each parser that reads bytes somebody else wrote. It must neither panic nor break its stated rule,
//! whatever the bytes.
//!
//! To add a parser: a function and its seeds in a file of `src/`, a line in [`TARGETS`], a three-line file in
//! `fuzz_targets/` with its `[[bin]]`, and `FARSHORE_WRITE_CORPUS=1 cargo test -p farshore-fuzz` to write
//! the seeds to `corpus/`. What a fuzzer finds is kept there too, under a name that says what it was.

mod auth;
mod disk;
mod frames;
mod mutate;
mod nbd;
mod operator;
mod peers;
mod planner;
mod wire;
mod witnesses;

pub use mutate::Mutator;

/// A named input that reaches deep into a parser.
pub type Seed = (&'static str, Vec<u8>);

/// A parser under test.
pub struct FuzzTarget {
    /// Also the name of its corpus folder and of its libFuzzer binary.
    pub name: &'static str,
    pub run: fn(&[u8]),
    pub seeds: fn() -> Vec<Seed>,
}

/// Every parser there is.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget { name: "frame_header", run: wire::frame_header, seeds: wire::frame_header_seeds },
    FuzzTarget { name: "control_payload", run: wire::control_payload, seeds: wire::control_payload_seeds },
    FuzzTarget { name: "frame_stream", run: frames::frame_stream, seeds: frames::frame_stream_seeds },
    FuzzTarget { name: "auth_dialer", run: auth::auth_dialer, seeds: auth::auth_dialer_seeds },
    FuzzTarget { name: "auth_acceptor", run: auth::auth_acceptor, seeds: auth::auth_acceptor_seeds },
    FuzzTarget { name: "nbd_request", run: nbd::nbd_request, seeds: nbd::nbd_request_seeds },
    FuzzTarget { name: "nbd_option", run: nbd::nbd_option, seeds: nbd::nbd_option_seeds },
    FuzzTarget { name: "nbd_handshake", run: nbd::nbd_handshake, seeds: nbd::nbd_handshake_seeds },
    FuzzTarget { name: "cell", run: disk::cell, seeds: disk::cell_seeds },
    FuzzTarget { name: "superblock", run: disk::superblock, seeds: disk::superblock_seeds },
    FuzzTarget { name: "journal_index", run: disk::journal_index, seeds: disk::journal_index_seeds },
    FuzzTarget { name: "bitmap_cell", run: disk::bitmap_cell, seeds: disk::bitmap_cell_seeds },
    FuzzTarget { name: "queue_cell", run: disk::queue_cell, seeds: disk::queue_cell_seeds },
    FuzzTarget { name: "marks_cell", run: disk::marks_cell, seeds: disk::marks_cell_seeds },
    FuzzTarget { name: "activity_cell", run: disk::activity_cell, seeds: disk::activity_cell_seeds },
    FuzzTarget { name: "undo_index", run: disk::undo_index, seeds: disk::undo_index_seeds },
    FuzzTarget { name: "fingerprints", run: disk::fingerprints, seeds: disk::fingerprints_seeds },
    FuzzTarget { name: "config", run: operator::config, seeds: operator::config_seeds },
    FuzzTarget { name: "overrides", run: operator::overrides, seeds: operator::overrides_seeds },
    FuzzTarget { name: "link_overrides", run: operator::link_overrides, seeds: operator::link_overrides_seeds },
    FuzzTarget { name: "link_history", run: disk::link_history, seeds: disk::link_history_seeds },
    FuzzTarget { name: "api_request", run: operator::api_request, seeds: operator::api_request_seeds },
    FuzzTarget { name: "reply", run: peers::reply, seeds: peers::reply_seeds },
    FuzzTarget { name: "event_line", run: peers::event_line, seeds: peers::event_line_seeds },
    FuzzTarget { name: "join_token", run: peers::join_token, seeds: peers::join_token_seeds },
    FuzzTarget { name: "definitions", run: operator::definitions, seeds: operator::definitions_seeds },
    FuzzTarget { name: "stamp", run: witnesses::stamp, seeds: witnesses::stamp_seeds },
    FuzzTarget { name: "writers_log", run: witnesses::writers_log, seeds: witnesses::writers_log_seeds },
    FuzzTarget { name: "trace", run: planner::trace, seeds: planner::trace_seeds },
    FuzzTarget { name: "trace_columns", run: planner::trace_columns, seeds: planner::trace_columns_seeds },
    FuzzTarget { name: "trace_scan", run: planner::trace_scan, seeds: planner::trace_scan_seeds },
    FuzzTarget { name: "quantities", run: planner::quantities, seeds: planner::quantities_seeds },
    FuzzTarget { name: "measurements", run: planner::measurements, seeds: planner::measurements_seeds },
];

/// Runs the target of this name.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of this name is registered");
    (target.run)(bytes);
}
