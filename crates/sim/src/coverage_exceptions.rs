//! What the seeds need not come to by themselves, and which test shows it instead.

use engine::coverage::CoveragePoint;
use engine::identity::DecisionRow;

/// Branches that take two troubles of one node within a moment, an old copy that is promoted, a disk that is
/// dead for long, or more writers than seeds have.
pub const BRANCHES_BY_TEST: [(CoveragePoint, &str); 29] = [
    (CoveragePoint::WentBackUnverified, "a_primary_that_lost_its_power_asks_its_operator_when_its_peer_has_gone_back"),
    (CoveragePoint::TailUnknown, "what_a_promotion_gave_up_and_did_not_become_is_asked_about"),
    (CoveragePoint::HandoverBackFromStoring, "what_happens_beside_the_last_record_is_made_up_for_on_the_way_back"),
    (CoveragePoint::HandoverNotStored, "a_disk_that_does_not_store_holds_nobody_longer_than_was_said"),
    (CoveragePoint::DeltaWithoutSpace, "without_space_nothing_is_overwritten_unless_it_is_discarded"),
    (CoveragePoint::SyncWithoutDelta, "without_space_for_the_delta_the_sync_waits_until_there_is_some"),
    (CoveragePoint::DeltaLacksRange, "a_rotten_place_of_the_undo_store_is_missing_in_the_delta_and_ends_no_sync"),
    (CoveragePoint::ForkKeptByPolicy, "a_node_that_alone_was_promoted_is_kept_by_policy"),
    (CoveragePoint::ForkYieldedByPolicy, "a_node_that_alone_was_promoted_is_kept_by_policy"),
    (CoveragePoint::ForkUnbounded, "a_fork_from_an_old_copy_is_not_resolved_by_bits"),
    (CoveragePoint::VolumeDetached, "the_others_go_on_in_order_without_a_disk_of_the_secondary"),
    (CoveragePoint::VolumeAttached, "a_primary_that_was_away_sends_all_of_it"),
    (CoveragePoint::PeerDetached, "the_others_go_on_in_order_without_a_disk_of_the_secondary"),
    (CoveragePoint::PeerUnfilled, "a_primary_that_was_away_sends_all_of_it"),
    (CoveragePoint::PromoteRefusedUnfilled, "a_disk_that_was_never_filled_is_not_promoted_and_overwrites_nothing"),
    (CoveragePoint::NothingInOrder, "a_group_with_nothing_left_in_order_does_not_replicate"),
    (CoveragePoint::QueueFetchFailed, "what_cannot_be_read_back_costs_the_order_and_no_content"),
    (CoveragePoint::QueueLogHung, "a_log_whose_disk_hangs_closes_and_opens_again"),
    (CoveragePoint::QueueLogDropped, "a_damaged_log_costs_the_order_and_no_content"),
    (CoveragePoint::ViewOpened, "a_view_stays_exact_under_writes_zeroes_and_steps_of_many_writes"),
    (CoveragePoint::ViewOpenWaited, "a_view_is_opened_between_two_steps_while_the_copy_is_written"),
    (CoveragePoint::ViewOfPoint, "a_view_that_is_opened_in_mid_sync_shows_the_image_before_it"),
    (CoveragePoint::ViewShared, "views_of_one_position_cost_once"),
    (CoveragePoint::ViewSaved, "a_view_stays_exact_under_writes_zeroes_and_steps_of_many_writes"),
    (CoveragePoint::ViewReadSaved, "a_view_stays_exact_under_writes_zeroes_and_steps_of_many_writes"),
    (CoveragePoint::ViewReadAgain, "a_read_that_is_overtaken_by_a_write_is_made_again"),
    (CoveragePoint::ViewLostForSpace, "a_full_store_costs_the_oldest_view_and_applying_goes_on"),
    (CoveragePoint::ViewLost, "a_store_that_fails_costs_views_and_nothing_else"),
    (CoveragePoint::LinkWasFull, "a_healthy_peer_is_not_said_to_stand_still_when_the_link_is_full"),
];

/// Edges of the state table that take a fault within a moment too short for seeds.
pub const EDGES_BY_SCENARIO: [((&str, &str), &str); 6] = [
    (("catching-up", "holding"), "a_link_lost_while_catching_up_holds_the_writers_too"),
    (("catching-up", "paused"), "a_secondary_that_runs_full_pauses_a_backlog_too"),
    (("holding", "failed"), "a_flush_that_fails_while_writers_are_held_fails_the_group"),
    (("queuing", "failed"), "a_flush_that_fails_while_the_queue_waits_for_the_link_fails_the_group"),
    (("paused", "holding"), "a_link_lost_while_paused_holds_the_writers"),
    (("paused", "queuing"), "a_link_lost_while_paused_leaves_the_queue_waiting"),
];

/// Rows of the identity table: two at which nobody decides, the others after what no seed does.
pub const ROWS_BY_TEST: [(DecisionRow, &str); 7] = [
    (DecisionRow::TwoSecondaries, "row_secondaries_wait"),
    (DecisionRow::PeerSends, "row_secondaries_wait"),
    (DecisionRow::LoneTail, "a_fork_from_an_old_copy_is_not_resolved_by_bits"),
    (DecisionRow::LaterRun, "a_peer_of_a_run_that_was_forgotten_saw_a_later_one"),
    (DecisionRow::PastOurLast, "a_peer_of_a_run_that_is_taken_again_is_past_its_last_number"),
    (DecisionRow::AheadOfLoneStretch, "row_a_degraded_window_is_no_fork"),
    (DecisionRow::BackBeforeLoneStretch, "row_a_peer_that_takes_its_word_back_is_made_whole"),
];
