//! What an operator sees, word for word, from fixed statuses.

use std::collections::BTreeMap;

use farshore::api::*;
use farshore::show;
use toolkit::screen::Paint;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn volume(name: &str, size_bytes: u64, device: &str) -> VolumeView {
    VolumeView {
        name: name.into(),
        size_bytes,
        device_bytes: size_bytes,
        device: device.into(),
        dirty_bytes: 0,
        set_aside: false,
        detached: false,
        unfilled: false,
        queue: VolumeQueueView::default(),
        term: "0".to_owned(),
        direct: true,
        clients: 1,
        error: None,
        device_failed: Some(false),
    }
}

fn peer() -> PeerStatusView {
    PeerStatusView {
        node: "beta".into(),
        link: LinkState::Connected,
        link_since_s: 7500.0,
        link_reason: None,
        lag_bytes: Some(3 * MIB / 2),
        lag_items: None,
        lag_seconds: Some(0.42),
        heard_s: None,
        heard_lag_bytes: None,
        heard_lag_seconds: None,
        settings: None,
        dirty_bytes: 0,
        recovery_point: Some(RecoveryPoint { sequence: 81_204, time: Some("2026-11-21T03:12:41.123Z".into()) }),
    }
}

fn group(name: &str) -> GroupView {
    let setting = |value: &str, origin| SettingStatus { value: value.into(), origin };
    GroupView {
        from: Some("alpha".into()),
        to: Some("beta".into()),
        flow: Flow::Flowing,
        starting: false,
        promoting: false,
        handover: None,
        reverse: None,
        demoting: false,
        handed_over: Some(false),
        generation: "2-5392cef6".to_owned(),
        last_sequence: Some(81_210),
        term: "0".to_owned(),
        name: name.into(),
        role: Role::Primary,
        mode: "async".into(),
        effective_mode: "async".into(),
        mode_ladder: None,
        state: GroupState::Replicating,
        protection: Protection::Queued,
        reason: None,
        volumes: vec![volume("data", 10 * GIB, "/dev/sdb"), volume("log", GIB, "/dev/mapper/vg-log")],
        queue: QueueView {
            bytes: 3 * MIB / 2,
            items: 46,
            bytes_hwm: 12 * MIB,
            items_hwm: 390,
            limit_bytes: 64 * MIB,
            limit_items: 4_194_304,
            reset_bytes_hwm: 12 * MIB,
            reset_items_hwm: 390,
            entering_bytes_per_s: 0,
            leaving_bytes_per_s: 0,
            full_in_s: None,
            blocked_ms: 0,
            waiting_writers: 0,
            held_up_ms: None,
            ..QueueView::default()
        },
        memory_bytes: 0,
        journal: None,
        peers: vec![peer()],
        promotable: None,
        peer_window_s: None,
        held_writers: 0,
        held_writers_s: None,
        marks: Vec::new(),
        sync: None,
        sync_ordered: false,
        syncs_by_itself: false,
        sync_position: None,
        assumed_equal: false,
        differs: false,
        verify: None,
        verified: None,
        scrub: None,
        settings: BTreeMap::from([
            ("mode".into(), setting("async", Origin::Config)),
            ("wait_limit".into(), setting("5s", Origin::Set)),
        ]),
        rpo: None,
        warnings: vec![],
    }
}

fn status(groups: Vec<GroupView>) -> NodeView {
    NodeView {
        peer_says: Vec::new(),
        schema: STATUS_SCHEMA.into(),
        cluster: "demo".into(),
        node: "alpha".into(),
        version: "0.1.0".into(),
        uptime_s: 7600.0,
        warnings: vec![],
        tls: None,
        shared: None,
        clients: None,
        state_directory: None,
        lost_log_lines: 0,
        links: vec![],
        groups,
    }
}

#[track_caller]
fn check(status: &NodeView, expected: &str) {
    let shown = show::status(status, &Paint::plain());
    assert_eq!(shown, expected, "\n--- shown ---\n{shown}");
}

#[test]
fn a_healthy_primary() {
    check(
        &status(vec![group("db")]),
        "\
alpha  farshore 0.1.0, up 2 h 6 min

db  alpha -> beta  primary, mode async, replicating
  Now         the mode's promise holds
  Protection  an acknowledged write is complete here and queued; losing this node loses the queue
  Peer        beta: connected for 2 h 5 min
  Behind      1.5 MiB, 0.4 s; 0 B dirty
  Copy is at  2026-11-21T03:12:41.123Z (primary's clock), sequence 81204
  Queue       1.5 MiB of 64 MiB (2 %), 46 of 4194304 writes
  Peak        12 MiB (19 %), 390 writes; no writer waited
  Set         wait_limit = 5s (wins over the configuration file)

  VOLUME  SIZE    DIRTY  CLIENTS  DEVICE
  data    10 GiB  0 B    1        /dev/sdb
  log     1 GiB   0 B    1        /dev/mapper/vg-log
",
    );
}

#[test]
fn a_sync_after_an_outage() {
    let mut db = group("db");
    db.state = GroupState::Syncing;
    db.reason = Some("the link was down for 3 min 10 s; what was written meanwhile is being sent".into());
    db.queue.blocked_ms = 1_340;
    db.sync = Some(SyncView {
        full: false,
        done_bytes: 461 * MIB,
        total_bytes: GIB,
        rate_bytes_per_s: 11.8 * MIB as f64,
        ..SyncView::default()
    });
    db.peers[0].dirty_bytes = 563 * MIB;
    db.peers[0].recovery_point = None;
    db.volumes[0].dirty_bytes = 563 * MIB;
    check(
        &status(vec![db]),
        "\
alpha  farshore 0.1.0, up 2 h 6 min

db  alpha -> beta  primary, mode async, syncing
  Now         dirty regions travel; until it ends the copy's newest image is the one before the sync
  Protection  an acknowledged write is complete here and queued; losing this node loses the queue
  Why         the link was down for 3 min 10 s; what was written meanwhile is being sent
  Sync        45 %, 461 MiB of 1 GiB, 11.8 MiB/s, 48 s left
  Peer        beta: connected for 2 h 5 min
  Behind      1.5 MiB, 0.4 s; 563 MiB dirty
  Copy is at  no consistent point now
  Queue       1.5 MiB of 64 MiB (2 %), 46 of 4194304 writes
  Peak        12 MiB (19 %), 390 writes; writers waited 1.3 s in all
  Set         wait_limit = 5s (wins over the configuration file)

  VOLUME  SIZE    DIRTY    CLIENTS  DEVICE
  data    10 GiB  563 MiB  1        /dev/sdb
  log     1 GiB   0 B      1        /dev/mapper/vg-log
",
    );
}

/// In the midst of a sync the other node was said to have no usable copy, also where each snapshot before had given it one.
#[test]
fn in_a_sync_the_image_is_named_that_a_promotion_would_go_back_to() {
    let mut db = group("db");
    (db.state, db.protection) = (GroupState::Syncing, Protection::LocalOnly);
    db.sync = Some(SyncView { snapshot: Some(4), total_bytes: GIB, ..SyncView::default() });
    let line = |db: &GroupView, word: &str| {
        let shown = show::status(&status(vec![db.clone()]), &Paint::plain());
        shown.lines().find(|line| line.trim_start().starts_with(word)).expect("each status has it").trim().to_owned()
    };
    let local = "Protection  an acknowledged write is complete on this node only;";
    assert_eq!(
        line(&db, "Protection"),
        format!(
            "{local} promoted before the sync ends, beta goes back to its image of 2026-11-21T03:12:41.123Z, 0.4 s old"
        )
    );
    assert_eq!(
        line(&db, "Now"),
        "Now         dirty regions travel in snapshots; the copy's newest image is the one before the snapshot under way"
    );
    db.state = GroupState::Paused;
    assert!(line(&db, "Protection").contains("goes back to its image of"));
    // Of a primary that has been started since, or that makes the first copy.
    db.peers[0].recovery_point = None;
    let unknown = "no image of beta is known here; if it has one, 'Promotable' in its own status names it";
    assert_eq!(line(&db, "Protection"), format!("{local} {unknown}"));
}

#[test]
fn a_secondary_that_lost_its_primary() {
    let mut db = group("db");
    (db.role, db.flow, db.from, db.to) = (Role::Secondary, Flow::Unknown, None, None);
    db.state = GroupState::Logging;
    db.protection = Protection::None;
    db.reason = Some("alpha has not been heard of for 40 s".into());
    db.settings.clear();
    db.journal = Some(JournalStatus { bytes: 3 * MIB, limit_bytes: 256 * MIB });
    db.peers[0] = PeerStatusView {
        node: "alpha".into(),
        link: LinkState::Disconnected,
        link_since_s: 40.0,
        link_reason: Some("no answer from 10.0.0.1:7337: connection refused".into()),
        lag_bytes: None,
        lag_seconds: None,
        heard_s: Some(41.0),
        heard_lag_bytes: Some(42 * MIB),
        heard_lag_seconds: Some(3.2),
        ..peer()
    };
    db.promotable = Some(RecoveryPoint { sequence: 81_304, time: Some("2026-11-21T03:12:42.123Z".into()) });
    let mut status = status(vec![db]);
    status.node = "beta".into();
    check(
        &status,
        "\
beta  farshore 0.1.0, up 2 h 6 min

db  beta -?- alpha  secondary, mode async, logging
  Now         nothing arrives; the copy stays as it is
  Protection  this node keeps the copy; the primary acknowledges
  Why         alpha has not been heard of for 40 s
  Peer        alpha: disconnected for 40 s (no answer from 10.0.0.1:7337: connection refused)
  Behind      unknown since 41 s: as a primary alpha was heard last then, 42 MiB, 3.2 s behind
  Copy is at  2026-11-21T03:12:41.123Z (primary's clock), sequence 81204
  Promotable  the image at 2026-11-21T03:12:42.123Z (primary's clock), sequence 81304
  Journal     3 MiB not yet applied, of 256 MiB

  VOLUME  SIZE    DIRTY  CLIENTS  DEVICE
  data    10 GiB  0 B    1        /dev/sdb
  log     1 GiB   0 B    1        /dev/mapper/vg-log
",
    );
}

/// Both nodes were primary, and the first line said `primary` as ever.
#[test]
fn the_first_line_says_which_way_the_group_replicates() {
    for (flow, ends, direction) in [
        (Flow::Flowing, Some(("alpha", "beta")), "alpha -> beta"),
        (Flow::Flowing, Some(("beta", "alpha")), "beta -> alpha"),
        (Flow::Stopped, Some(("alpha", "beta")), "alpha -/-> beta"),
        (Flow::Fork, None, "alpha -|- beta"),
        (Flow::Unknown, None, "alpha -?- beta"),
        (Flow::Other("sideways".into()), Some(("alpha", "beta")), "alpha -?- beta"),
        // Of an older daemon.
        (Flow::default(), None, "alpha -?- beta"),
    ] {
        let mut db = group("db");
        db.flow = flow;
        (db.from, db.to) = ends.map(|(from, to)| (from.to_owned(), to.to_owned())).unzip();
        let page = show::status(&status(vec![db.clone()]), &Paint::plain());
        assert!(page.contains(&format!("\ndb  {direction}  primary, mode async, replicating\n")), "{page}");
        let table = show::status(&status(vec![db, group("web")]), &Paint::plain());
        let line = table.lines().find(|line| line.starts_with("db ")).expect("a line of the group");
        assert!(line.contains(direction), "{table}");
    }
}

/// While the role was being recorded the group was shown as a copy.
#[test]
fn a_demotion_that_is_not_on_record_is_an_ending() {
    let mut db = group("db");
    (db.role, db.state, db.protection) = (Role::Secondary, GroupState::Logging, Protection::None);
    (db.handed_over, db.promotable) = (Some(true), Some(RecoveryPoint { sequence: 17, time: None }));
    db.is_demoted_now();
    assert_eq!(
        (db.handed_over, &db.promotable, &db.journal),
        (Some(false), &None, &None),
        "a crash makes it a primary"
    );
    let page = show::status(&status(vec![db]), &Paint::plain());
    assert!(page.contains("\ndb  alpha -?- beta  primary (ending), mode async, logging\n"), "{page}");
    assert!(page.contains("this node is being demoted; until that is on record here"), "{page}");
}

/// An old primary that had given no write a time would go back to 1970.
#[test]
fn an_image_without_a_time_is_shown_without_one() {
    let mut db = group("db");
    db.role = Role::Secondary;
    db.promotable = Some(RecoveryPoint { sequence: 17, time: None });
    let text = serde_json::to_string(&db).expect("serialises");
    assert!(text.contains(r#""promotable":{"sequence":17,"time":null}"#), "{text}");
    let shown = show::status(&status(vec![db]), &Paint::plain());
    let line = "\n  Promotable  the image at an unknown time (primary's clock), sequence 17\n";
    assert!(shown.contains(line), "{shown}");
}

#[test]
fn a_mode_ladder_that_is_down_is_shown_with_its_reason() {
    let mut db = group("db");
    db.mode = "sync".into();
    let reason = "writers waited 220 ms for the peer on the average, more than 100 ms".into();
    db.mode_ladder = Some(farshore::api::ModeLadderView { lowered_s: 132.0, reason, returns_in_s: Some(21.0) });
    let page = show::status(&status(vec![db]), &Paint::plain());
    for words in
        ["primary, mode sync (now async), replicating", "the promise of a lower mode holds", "acts as async for 2 min"]
    {
        assert!(page.contains(words), "no {words:?} in: {page}");
    }
}

#[test]
fn several_groups_and_what_needs_an_eye() {
    let mut web = group("web");
    (web.state, web.flow) = (GroupState::Failed, Flow::Stopped);
    web.protection = Protection::None;
    web.reason = Some("a volume's flush failed".into());
    web.volumes[0].error = Some("input/output error at flush".into());
    web.peers[0].lag_bytes = None;
    web.peers[0].lag_seconds = None;
    let mut mail = group("mail-archive");
    (mail.mode, mail.effective_mode) = ("sync".into(), "sync".into());
    mail.protection = Protection::BothDurable;
    mail.warnings = vec!["the queue was more than 80 % full".into()];
    let mut status = status(vec![group("db"), mail, web]);
    status.warnings = vec!["insecure = true: replication on 10.0.0.1:7337 (alpha) is not encrypted".into()];
    check(
        &status,
        "\
alpha  farshore 0.1.0, up 2 h 6 min
! insecure = true: replication on 10.0.0.1:7337 (alpha) is not encrypted

GROUP         DIRECTION        ROLE     MODE   STATE        PROTECTION    LINK       LAG             DIRTY
db            alpha -> beta    primary  async  replicating  queued        connected  1.5 MiB, 0.4 s  0 B
mail-archive  alpha -> beta    primary  sync   replicating  both-durable  connected  1.5 MiB, 0.4 s  0 B
web           alpha -/-> beta  primary  async  failed       none          connected  unknown         0 B

! mail-archive: the queue was more than 80 % full
! web: failed: a volume's flush failed
! web: volume data: input/output error at flush

One group in full: farshore status GROUP
",
    );
    assert!(status.groups.iter().map(show::needs_attention).eq([false, false, true]));
}

/// What several lines are about stands in several lines, each where eyes look for it, and in one line where there is one.
#[test]
fn a_reason_of_several_lines() {
    let mut db = group("db");
    db.state = GroupState::Paused;
    db.reason = Some("it does not fit:\n  one thing\n  and another".into());
    let page = show::status(&status(vec![db.clone()]), &Paint::plain());
    assert!(
        page.contains("\n  Why         it does not fit:\n                one thing\n                and another\n"),
        "{page}"
    );
    let table = show::status(&status(vec![db, group("web")]), &Paint::plain());
    assert!(table.contains("\n! db: paused: it does not fit: one thing; and another\n"), "{table}");
}

/// A group is as large as its primary made it, on whichever device.
#[test]
fn a_device_that_holds_more_than_the_group_uses() {
    let mut db = group("db");
    db.volumes[0].device_bytes = 16 * GIB;
    let page = show::status(&status(vec![db]), &Paint::plain());
    assert!(page.contains("  data    10 GiB  0 B    1        /dev/sdb (holds 16 GiB, 6 GiB of it unused)\n"), "{page}");
}

/// Dirty bits are cleared when nothing else is to do: on a group in step they are no fault.
#[test]
fn what_is_dirty_in_step_is_not_behind() {
    let mut db = group("db");
    (db.queue.items, db.queue.bytes) = (0, 0);
    (db.peers[0].lag_bytes, db.peers[0].lag_seconds) = (Some(0), Some(0.0));
    let behind = |db: &GroupView| {
        let page = show::status(&status(vec![db.clone()]), &Paint::plain());
        let line = page.lines().find_map(|line| line.strip_prefix("  Behind      ")).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{page}"))
    };
    assert_eq!(behind(&db), "nothing");
    db.peers[0].dirty_bytes = 6 * MIB;
    assert_eq!(behind(&db), "nothing; 6 MiB still dirty from writes that the peer has");
    db.state = GroupState::Logging;
    assert_eq!(behind(&db), "0 B, 0.0 s; 6 MiB dirty");
}

#[test]
fn a_peak_above_what_the_queue_may_hold_now() {
    let mut db = group("db");
    (db.queue.limit_bytes, db.queue.bytes, db.queue.bytes_hwm) = (2 * MIB, 0, 33 * MIB);
    let page = show::status(&status(vec![db]), &Paint::plain());
    assert!(
        page.contains("  Peak        33 MiB (more than it may hold now), 390 writes; no writer waited\n"),
        "{page}"
    );
}

#[test]
fn what_stands_on_disk_has_a_line() {
    let mut db = group("db");
    db.queue.disk_limit_bytes = 4 * GIB;
    (db.queue.disk_bytes, db.queue.disk_bytes_hwm, db.queue.spilled_bytes) = (GIB, 2 * GIB, 3 * GIB);
    let page = show::status(&status(vec![db.clone()]), &Paint::plain());
    assert!(page.contains("  On disk     1 GiB of 4 GiB (25 %); at most 2 GiB; 3 GiB written in all\n"), "{page}");
    db.queue.disk_failed = true;
    let page = show::status(&status(vec![db]), &Paint::plain());
    assert!(page.contains("; it has failed, and takes nothing before the next stream\n"), "{page}");
}

#[test]
fn nothing_to_show_is_said() {
    check(
        &status(vec![]),
        "\
alpha  farshore 0.1.0, up 2 h 6 min

This node has no group.
",
    );
}

#[test]
fn colours_change_no_letter_and_hostile_text_sends_no_code() {
    let mut db = group("db");
    db.reason = Some("peer said \u{1b}[2Jboo\u{7}".into());
    db.state = GroupState::Other("re\u{1b}winding".into());
    let status = status(vec![db]);
    let plain = show::status(&status, &Paint::plain());
    assert!(!plain.contains('\u{1b}') && plain.contains("peer said ?[2Jboo?"), "{plain}");
    let mut coloured = show::status(&status, &Paint::colours());
    for code in ["\u{1b}[32m", "\u{1b}[33m", "\u{1b}[1;31m", "\u{1b}[1m", "\u{1b}[0m"] {
        coloured = coloured.replace(code, "");
    }
    assert_eq!(coloured, plain);
}

#[test]
fn what_the_groups_share() {
    let mut reported = status(vec![]);
    reported.shared =
        Some(SharedView { memory_bytes: 12 * MIB, memory_limit_bytes: 1024 * MIB, ..SharedView::default() });
    check(&reported, "alpha  farshore 0.1.0, up 2 h 6 min\nmemory 12 MiB of 1 GiB\n\nThis node has no group.\n");
    reported.shared = Some(SharedView { syncing: 4, syncing_waiting: 6, ..SharedView::default() });
    check(
        &reported,
        "alpha  farshore 0.1.0, up 2 h 6 min\nmemory 0 B of 0 B; 4 groups syncing, 6 wait for their turn\n\nThis node has no group.\n",
    );
}

#[test]
fn whether_the_state_directory_is_encrypted() {
    let said = |encrypted, lies: &str| {
        let state = StateDirectoryView { path: "/var/lib/farshore".into(), encrypted, lies: lies.into() };
        let text = show::status(&NodeView { state_directory: Some(state), ..status(vec![]) }, &Paint::plain());
        text.lines().nth(1).expect("a second line").to_owned()
    };
    let crypt = "dm-crypt below ext4 on /dev/mapper/state";
    assert_eq!(said(Some(true), crypt), format!("/var/lib/farshore encrypted at rest by {crypt}"));
    assert_eq!(said(Some(false), "xfs on /dev/sdb1"), "/var/lib/farshore not encrypted at rest: xfs on /dev/sdb1");
    assert_eq!(said(None, "zfs"), "/var/lib/farshore not known whether encrypted at rest: zfs");
}

#[test]
fn what_was_lost_of_the_log_and_who_was_cut_off() {
    let mut reported = status(vec![]);
    reported.clients = Some(ClientsStatus { connected: 7, ..ClientsStatus::default() });
    check(&reported, "alpha  farshore 0.1.0, up 2 h 6 min\n\nThis node has no group.\n");
    reported.clients = Some(ClientsStatus { connected: 7, refused: 2, stalled: 1, violations: 0 });
    reported.lost_log_lines = 12;
    check(
        &reported,
        "\
alpha  farshore 0.1.0, up 2 h 6 min
! 12 lines of this daemon's log were not written; make room for it, or have it read faster
clients 7 connected; since the start 2 turned away as there was no free slot, 1 cut off as they stood still

This node has no group.
",
    );
}

#[test]
fn json_keys_are_the_contract() {
    let mut db = group("db");
    db.sync =
        Some(SyncView { full: true, done_bytes: 1, total_bytes: 2, rate_bytes_per_s: 3.5, ..SyncView::default() });
    db.volumes.truncate(1);
    let mut reported = status(vec![db]);
    reported.shared = Some(SharedView { memory_bytes: 5, memory_limit_bytes: 6, ..SharedView::default() });
    let text = serde_json::to_string(&reported).expect("serialises");
    assert_eq!(
        text,
        concat!(
            r#"{"schema":"farshore-status/1","cluster":"demo","node":"alpha","version":"0.1.0","uptime_s":7600.0,"warnings":[],"#,
            r#""tls":null,"shared":{"memory_bytes":5,"memory_limit_bytes":6,"starting":0,"starting_waiting":0,"syncing":0,"syncing_waiting":0},"clients":null,"state_directory":null,"lost_log_lines":0,"links":[],"groups":["#,
            r#"{"name":"db","role":"primary","from":"alpha","to":"beta","flow":"flowing","starting":false,"promoting":false,"demoting":false,"handed_over":false,"handover":null,"reverse":null,"generation":"2-5392cef6","last_sequence":81210,"term":"0","mode":"async","effective_mode":"async","mode_ladder":null,"state":"replicating","protection":"queued","reason":null,"#,
            r#""volumes":[{"name":"data","size_bytes":10737418240,"device_bytes":10737418240,"device":"/dev/sdb","dirty_bytes":0,"set_aside":false,"detached":false,"unfilled":false,"queue":{"bytes":0,"items":0,"bytes_hwm":0,"items_hwm":0,"reset_bytes_hwm":0,"reset_items_hwm":0},"term":"0","direct":true,"clients":1,"error":null,"device_failed":false}],"#,
            r#""queue":{"bytes":1572864,"items":46,"oldest_unconfirmed_s":null,"bytes_hwm":12582912,"items_hwm":390,"reset_bytes_hwm":12582912,"reset_items_hwm":390,"waiting_bytes_hwm":0,"reset_waiting_bytes_hwm":0,"lag_hwm_s":null,"reset_lag_hwm_s":null,"entering_bytes_per_s":0,"leaving_bytes_per_s":0,"full_in_s":null,"limit_bytes":67108864,"limit_items":4194304,"disk_bytes":0,"disk_limit_bytes":0,"disk_bytes_hwm":0,"reset_disk_bytes_hwm":0,"spilled_bytes":0,"disk_failed":false,"folded_writes":0,"folded_bytes":0,"step_ms":null,"step_bytes":null,"step_ms_hwm":0,"step_bytes_hwm":0,"joined_writes":0,"joined_frames":0,"log":"off","log_why":null,"log_off_s":null,"log_bytes":0,"log_limit_bytes":0,"log_bytes_hwm":0,"reset_log_bytes_hwm":0,"blocked_ms":0,"waits":{"bounds_us":[],"counts":[],"sum_us":0},"waiting_writers":0,"paced_to_bytes_per_s":null,"held_up_ms":null},"#,
            r#""memory_bytes":0,"journal":null,"peers":[{"node":"beta","link":"connected","link_since_s":7500.0,"link_reason":null,"lag_bytes":1572864,"lag_items":null,"lag_seconds":0.42,"heard_s":null,"heard_lag_bytes":null,"heard_lag_seconds":null,"settings":null,"#,
            r#""dirty_bytes":0,"recovery_point":{"sequence":81204,"time":"2026-11-21T03:12:41.123Z"}}],"promotable":null,"peer_window_s":null,"held_writers":0,"held_writers_s":null,"marks":[],"#,
            r#""sync":{"full":true,"done_bytes":1,"total_bytes":2,"rate_bytes_per_s":3.5,"snapshot":null,"dirtied_bytes_per_s":null,"missing_bytes_per_s":null},"#,
            r#""sync_ordered":false,"syncs_by_itself":false,"sync_position":null,"assumed_equal":false,"differs":false,"verify":null,"verified":null,"scrub":null,"#,
            r#""settings":{"mode":{"value":"async","origin":"config"},"wait_limit":{"value":"5s","origin":"set"}},"rpo":null,"warnings":[]}]}"#,
        )
    );
    let back: NodeView = serde_json::from_str(&text).expect("reads back");
    assert_eq!(back.groups[0].settings["wait_limit"].origin, Origin::Set);
}
