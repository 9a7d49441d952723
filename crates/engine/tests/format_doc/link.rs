//! Tables of docs/book/protocol.md.

use super::bytes::{bytes, checksum, flag_of, flags, magic, number, position, table, values, zero};
use super::samples;
use engine::cell;
use engine::limits::VOLUMES_MAX;
use engine::state::{CopyDoubts, Pause, Policy};
use engine::wire::{self, Ack, FrameKind, GroupHello, Tick};
use engine::{Settings, StartAlone};

/// By the names of their parts in the page.
pub fn parts() -> [(&'static str, String); 8] {
    [
        ("frame", frame_header_table()),
        ("kinds", kinds_table()),
        ("group-hello", group_hello_table()),
        ("tick", tick_table()),
        ("sync-begin", sync_begin_table()),
        ("ack", ack_table()),
        ("tail-ask", tail_ask_table()),
        ("tail", tail_table()),
    ]
}

/// Of each kind of frame its sender and meaning, the header's fields in use, and the payload.
const KINDS: [(FrameKind, &str, &str, &str); 27] = [
    (
        FrameKind::GroupHello,
        "both: first of each group on a session, and of each [round](#rounds)",
        "seq: the round",
        "[GroupHello](#grouphello)",
    ),
    (FrameKind::SyncBegin, "P: a stream begins", "", "[SyncBegin](#syncbegin)"),
    (FrameKind::SyncReady, "S: earlier writes are applied, the stream is recorded", "offset: the attempt", "none"),
    (FrameKind::Data, "P, numbered: a write", "flags, volume, range, wall, origin", "the bytes"),
    (FrameKind::Zero, "P, numbered: the range reads as zeroes", "as Data", "none"),
    (
        FrameKind::Void,
        "P, numbered: the number is no write of the order",
        "wall; flags; volume where one is set aside; offset: id of a mark",
        "none",
    ),
    (
        FrameKind::Probe,
        "P, numbered: compare the range at this point of the order",
        "volume, range",
        "keyed BLAKE3, 32 bytes",
    ),
    (FrameKind::ProbeResult, "S", "seq of the probe, flags", "none"),
    (FrameKind::SyncEnd, "P, numbered: all dirty regions are sent", "wall", "none"),
    (FrameKind::Ack, "S: progress, at most once per turn", "offset: recalls", "[Ack](#ack)"),
    (
        FrameKind::Tick,
        "P: a change of state, and every second",
        "seq: last given; offset: recalls seen; wall",
        "[Tick](#tick)",
    ),
    (FrameKind::Heartbeat, "both, every 200 ms", "", "8 bytes for the sender"),
    (FrameKind::HeartbeatEcho, "both, at once; the newest for a slow reader", "", "the same bytes"),
    (
        FrameKind::GroupState,
        "both: role, health or settings changed; S, before SyncReady: progress",
        "",
        "as GroupHello",
    ),
    (FrameKind::Goodbye, "both: clean stop; the receiver ends the connection", "", "a sentence"),
    (
        FrameKind::TailAsk,
        "P, after an unclean run: name the ranges that you confirmed with numbers above these flush points",
        "",
        "[TailAsk](#tailask)",
    ),
    (
        FrameKind::Tail,
        "S: these ranges, in some frames",
        "flags of the last one: last frame, unknown writes",
        "[Tail](#tail)",
    ),
    (FrameKind::Pull, "P: send this range of your volume", "volume, range", "none"),
    (FrameKind::Pulled, "S", "volume, range", "the bytes"),
    (FrameKind::BitsAsk, "P: send your dirty regions", "", "none"),
    (
        FrameKind::Bits,
        "S: bits of dirty regions, from one dirty word to another",
        "volume; offset: first region; flags of the last one: last frame",
        "words of 8 bytes",
    ),
    (
        FrameKind::Union,
        "P, whose content was chosen: the dirty bits of both; save what you hold there",
        "as Bits; length of the last one: how many came before",
        "words of 8 bytes",
    ),
    (
        FrameKind::Saved,
        "S: it is saved, or why not",
        "length: bytes saved; flags: no space, a disk failed, too large, too many",
        "none",
    ),
    (
        FrameKind::WindowAsk,
        "S: for how long will you acknowledge nothing that I do not have?",
        "seq: number of the question; offset: number of the newest Window that it heard",
        "none",
    ),
    (
        FrameKind::Window,
        "P: for so long from here on; or for no time, and what was said before is taken back",
        "seq: the question, 0 for what was taken back unasked; offset: number of this word; length: milliseconds, 0: taken back",
        "none",
    ),
    (
        FrameKind::MarkTerms,
        "P: a mark as it is there, at the beginning of each session and when it changes; or, where it is asked, no mark: those that it told of in this session are all",
        "seq: number of the change; flags: last, without a mark",
        "[a slot of `marks`](format.md#marks)",
    ),
    (
        FrameKind::MarkThere,
        "S: the mark is durable here as it was told; or it is not here, and will not come; or, last, no mark but the question whether it was told of all",
        "offset: its id; length: number of the change; seq, incarnation, generation tag: where it is; flags: unknown, last",
        "none",
    ),
];

/// The kinds that the code knows, in the order of their bytes.
fn kinds_table() -> String {
    let head = "| Byte | Kind | Sender and meaning | Header fields | Payload |\n|---|---|---|---|---|\n";
    let mut table = head.to_owned();
    for (byte, known) in (0..=u8::MAX).filter_map(|byte| Some((byte, FrameKind::from_byte(byte)?))) {
        let row = KINDS.iter().find(|(kind, ..)| *kind == known);
        let (_, meaning, fields, payload) = row.unwrap_or_else(|| panic!("{known:?} has no row"));
        table += &format!("| {byte} | {known:?} | {meaning} | {fields} | {payload} |\n").replace("|  |", "| |");
    }
    assert_eq!(table.lines().count(), KINDS.len() + 2, "a kind has two rows");
    table
}

/// Flags of a frame's header, which no decoder refuses.
fn frame_flags() -> String {
    let flags = [
        (wire::flags::WANT_RECEIVED, "the writer waits for `received`"),
        (wire::flags::RESYNC, "resync"),
        (wire::flags::NO_HOLE, "zeroes stay allocated"),
        (wire::flags::EQUAL, "equal hashes"),
        (wire::flags::LAST, "last frame"),
        (wire::flags::UNKNOWN, "unknown writes were confirmed too, or no such mark"),
        (wire::flags::UNREADABLE, "the range could not be read"),
        (wire::flags::NO_SPACE, "no space for what is to be saved"),
        (wire::flags::FAILED, "a disk failed meanwhile"),
        (wire::flags::SETS_ASIDE, "from here on the volume is set aside"),
        (wire::flags::TOO_LARGE, "the file of what is to be saved would be too large"),
        (wire::flags::TOO_MANY, "too many earlier deltas are kept"),
        (wire::flags::EPOCH, "of an [epoch](#epochs)"),
        (wire::flags::MARK, "a mark"),
    ];
    flags.map(|(bit, meaning)| format!("{bit} {meaning}")).join("; ")
}

fn frame_header_table() -> String {
    let image = samples::header().encode();
    let fields = [
        magic("FSHR", "`FSHR`"),
        number("version", 1, wire::VERSION as u64, (wire::VERSION as u8).to_string()),
        number("kind", 1, 4, "[below](#kinds)"),
        number("flags", 2, 0x91, frame_flags()),
        number("session", 8, 0x99, "of the connection"),
        number("incarnation", 8, 0x94, "the primary's run"),
        number("generation tag", 8, 0x95, "the history"),
        number("seq", 8, 0x9696, ""),
        number("offset", 8, 0x97, "on the volume"),
        number("length", 8, 5, "of the range; of data also of the payload"),
        number("wall", 8, 0x98, "the primary's stamp, ns since 1970; never goes back"),
        number("group", 4, 0x9a, ""),
        number("volume", 2, 0x92, ""),
        number("origin", 2, 0x93, "the node that gives the numbers"),
        number("payload bytes", 4, 5, ""),
        number("payload checksum", 4, crc32c::crc32c(b"bytes").into(), ""),
        number("flushed", 8, 0x9b, "flushed at the sender up to here"),
        number("more", 4, 0x9c, "of data and of an epoch: it stands for so many numbers before its own too"),
        checksum(&image, "of the header"),
    ];
    table("frame header", &image, fields)
}

/// The list of a field of a hello's settings.
fn setting_values(at: usize, word: fn(&Settings) -> &'static str) -> String {
    let read = |image: &[u8]| {
        let hello = GroupHello::decode(image)?;
        Some((format!("`{}`", word(&hello.settings)), hello.encode()))
    };
    values(&samples::hello().encode(), at, read)
}

fn hello_flags() -> String {
    let read = |image: &[u8]| {
        let hello = GroupHello::decode(image)?;
        let meaning = flag_of([
            (hello.failed, "failed"),
            (hello.lacks_image, "a secondary without an image to promote"),
            (hello.grants, "a secondary that hands over: the reader is to be promoted"),
            (hello.keeps_by_policy, "it keeps its content by `after_forced_failover`: nobody typed it"),
            (hello.would_yield, "a primary that would yield to the reader by `after_forced_failover`"),
        ]);
        Some((meaning, hello.encode()))
    };
    flags(&samples::hello().encode(), 106, read)
}

fn modes() -> String {
    setting_values(123, |settings| settings.mode.word())
}

fn policies() -> String {
    let word = |settings: &Settings| match settings.policy {
        Policy::Degrade => "degrade",
        Policy::Hold(_) => "hold",
        Policy::Strict => "strict",
    };
    setting_values(124, word)
}

fn degrades() -> String {
    setting_values(167, |settings| settings.degrade.word())
}

fn failovers() -> String {
    setting_values(168, |settings| settings.after_forced_failover.word())
}

fn full_queues() -> String {
    setting_values(169, |settings| settings.when_full.word())
}

fn folds() -> String {
    setting_values(206, |settings| settings.fold.word())
}

fn fallbacks() -> String {
    setting_values(172, |settings| settings.fallback.map_or("none", |fallback| fallback.mode.word()))
}

fn starts() -> String {
    let word = |settings: &Settings| match settings.start_alone {
        StartAlone::Serve => "serve",
        StartAlone::Wait(_) => "wait",
    };
    setting_values(142, word)
}

fn settings_fields() -> Vec<super::bytes::Field> {
    vec![
        number(
            "mode",
            1,
            2,
            format!(
                "{}. From here to fold: the sender's settings. After forced failover counts where both nodes say the same, \
                 the others are for display. [A further \
                 key](change.md#a-configuration-key) is a new protocol version",
                modes()
            ),
        ),
        number("policy", 1, 1, policies()),
        number("hold", 8, 0xb6, "ns; 0 without `hold`"),
        number("wait limit", 8, 0xb7, "ns"),
        number("autosync", 1, 1, ""),
        number("start alone", 1, 1, starts()),
        number("wait", 8, 0xba, "ns"),
        number("queue bytes", 8, 0xb8, ""),
        number("queue items", 8, 0xb9, ""),
        number("degrade", 1, 1, degrades()),
        number("after forced failover", 1, 1, failovers()),
        number("when full", 1, 1, full_queues()),
        number("pace from", 1, 50, "percent of the queue; 0, and 0 behind it: writers are not slowed down"),
        number("pace to", 1, 90, "percent of the queue, above the one before"),
        number("fallback", 1, 5, format!("0 none, with times of 0; else the mode's number and 1: {}", fallbacks())),
        number("fallback latency", 8, 0xc0, "ns"),
        number("fallback after", 8, 0xc1, "ns"),
        number("return after", 8, 0xc2, "ns"),
        number("fallback lag", 8, 0xc3, "ns; 0: none"),
        number("link weight", 1, 40, "1 to 100"),
        number("fold", 1, 1, folds()),
    ]
}

fn group_hello_table() -> String {
    let mut fields = vec![
        bytes(
            "identity",
            samples::superblock().encode()[cell::HEAD_BYTES..][..90].to_vec(),
            "[format](format.md#identity)",
        ),
        number("granted bytes", 8, 0xb1, "of a secondary: the grant if the queue continues"),
        number("dirty bytes", 8, 0xb2, ""),
        number("flags", 1, 13, format!("{}; others are refused", hello_flags())),
        number("features", 8, 0xb4, "abilities; unknown bits are ignored"),
        number(
            "required",
            8,
            0xb5,
            "abilities that the peer needs; unknown bits are [refused](#versions-and-features)",
        ),
    ];
    fields.extend(settings_fields());
    let link = "what the peer had confirmed to the sender: [format](format.md#what-the-peer-confirmed)";
    fields.extend(position("confirmed", 0x6600, [link, "", "", ""]));
    fields.extend(position("confirmed image", 0x6700, [""; 4]));
    fields.extend(position(
        "went back to",
        0xbb00,
        ["the image before a sync that the sender went back to last", "", "", ""],
    ));
    fields.extend([
        number(
            "keeps over",
            8,
            0xbc,
            "tag of the generation over which the sender keeps its own content, by an order; 0: none",
        ),
        number(
            "yields to",
            8,
            0xbf,
            "tag of the generation for which the sender was demoted in this session, by an order; 0: none",
        ),
        number("volumes", 2, 1, format!("at most {VOLUMES_MAX}")),
        number("first volume's size", 8, 0xb3, "and so on: in the group (P), or of the device (S)"),
        number("detached", 8, 1, "a bit for each of the first 64 volumes: the sender has no device for it"),
        zero(24, "the same of the other volumes"),
        number("unfilled", 8, 1, "a bit for each of the first 64 volumes: no sync has filled its device at the sender (S), and none is about to"),
        zero(24, "the same of the other volumes"),
    ]);
    table("GroupHello", &samples::hello().encode(), fields)
}

fn tick_table() -> String {
    let tick = samples::tick().encode();
    let state = |image: &[u8]| {
        let tick = Tick::decode(image)?;
        Some((tick.state.word().to_owned(), tick.encode()))
    };
    let mode = |image: &[u8]| {
        let tick = Tick::decode(image)?;
        Some((format!("`{}`", tick.mode.word()), tick.encode()))
    };
    assert_eq!(values(&tick, 1, mode), modes(), "the page says: as in GroupHello");
    let acts_as = |image: &[u8]| {
        let tick = Tick::decode(image)?;
        Some((format!("`{}`", tick.acts_as.word()), tick.encode()))
    };
    assert_eq!(values(&tick, 2, acts_as), modes(), "the page says: as in GroupHello");
    let doubt = |image: &[u8]| {
        let tick = Tick::decode(image)?;
        let CopyDoubts { assumed_equal, differs } = tick.doubts;
        let meaning =
            flag_of([(assumed_equal, "declared equal, not verified"), (differs, "a verify found differences")]);
        Some((meaning, tick.encode()))
    };
    let doubts = flags(&tick, tick.len() - 1, doubt);
    let fields = [
        number("state", 1, 4, values(&tick, 0, state)),
        number("mode", 1, 1, "as in GroupHello"),
        number(
            "acts as",
            1,
            2,
            "the mode in which writers are answered: another one while the [mode ladder](how-it-works.md#a-mode-ladder) is down",
        ),
        number("lag bytes", 8, 0xbb, "not durable at S; in a sync or without a stream: dirty"),
        number("lag", 8, 0xbc, "ns; all ones: unknown"),
        number("dirty bytes", 8, 0xbd, ""),
        number("clock", 8, 0xbe, "P's clock, ns since 1970; may go back"),
        number("doubts", 1, 1, format!("what speaks against the copy: {}; others are refused", doubts)),
    ];
    table("Tick", &tick, fields)
}

fn sync_begin_table() -> String {
    let mut fields = Vec::from(position("", 0xc100, ["history of the stream", "", "", "the number before the first"]));
    fields.extend(position("parent", 0xc200, ["where the history begins in its parent", "", "", ""]));
    fields.extend([
        number("to", 8, 0xc6, "the run of S, which answers with GroupState if promoted since"),
        number(
            "flags",
            1,
            3,
            "1 nothing dirty: S stays consistent; 2 resolved: an order resolved that the histories parted, so S saves no delta of its own; others are \
             refused",
        ),
        number("dirty bytes", 8, 0xc5, "sure to be sent; S reserves undo space"),
        number("dirty units", 8, 0xc8, "units of 32 KiB with something of that; S reserves by what takes less"),
        number("left out bytes", 8, 0xc7, "dirty, and applied by S in a snapshot that was cut short: not sent"),
        number("snapshot", 8, 0xc4, "catch-up snapshot of this position; 0: the stream"),
        number("attempt", 8, 0xc3, "repeated by SyncReady"),
        number(
            "set aside",
            8,
            2,
            "a bit for each of the first 64 volumes: nothing of it is sent, and the image is one without it",
        ),
        zero(24, "the same of the other volumes"),
    ]);
    table("SyncBegin", &samples::begin().encode(), fields)
}

/// The flags of an ack: one is said with another, so each pair is looked at, and no other byte is read.
fn ack_flags() -> String {
    let written = |paused, wants_flush| Ack { paused, wants_flush, ..samples::ack() }.encode()[40];
    let pauses = [Pause::PeerFull, Pause::HistoryFull, Pause::DeltaUnsaved];
    let [volume, store, delta] = pauses.map(|pause| written(Some(pause), false));
    let flush = written(None, true);
    assert_eq!(written(None, false), 0);
    let image = samples::ack().encode();
    let is_read = |byte: &u8| {
        let mut image = image.clone();
        image[40] = *byte;
        Ack::decode(&image).is_some()
    };
    let known: Vec<u8> = (0..=u8::MAX).filter(is_read).collect();
    let mut wanted = vec![0, volume, store, delta, flush, volume | flush, store | flush, delta | flush];
    wanted.sort_unstable();
    assert_eq!(known, wanted, "what an ack's flags may be");
    let (with, with_delta) = (store & !volume, delta & !volume);
    format!(
        "{volume} applying waits for space, on a volume or (with {with}) in the undo store, or (with {with_delta}) the end of a sync waits \
         for its delta; {flush} P should flush: the journal fills; others are refused"
    )
}

fn ack_table() -> String {
    let fields = [
        number("received", 8, 0xa1, "up to here in memory"),
        number("durable", 8, 0xa2, "in the journal, flushed"),
        number("applied", 8, 0xa3, "on the volumes, flushed, and recorded"),
        number("granted bytes", 8, 0xa4, "what P may send in total"),
        number("applied wall", 8, 0xa5, "of the last applied write"),
        number("flags", 1, 7, ack_flags()),
        number("noted", 8, 0xa6, "P's flush point, recorded at S"),
    ];
    table("Ack", &samples::ack().encode(), fields)
}

fn tail_ask_table() -> String {
    let fields = [
        number("incarnation", 8, 0xd1, "the run whose last writes may be missing"),
        number("volumes", 2, 1, format!("at most {VOLUMES_MAX}")),
        number("first volume's flushed", 8, 0xd2, "its writes up to here are flushed; and so on"),
    ];
    table("TailAsk", &samples::flush_points().encode(), fields)
}

fn tail_table() -> String {
    let fields = [number("volume", 2, 0xe1, ""), number("offset", 8, 0xe2, ""), number("length", 8, 0xe3, "")];
    table("Tail", &samples::range(), fields)
}
