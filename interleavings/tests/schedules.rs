//! Every check of `siftdb::interleavings` as a test.

use siftdb::interleavings::{blocks, queue, reads, whole};

macro_rules! tests {
    ($($module:ident: $($check:ident)*;)*) => {
        $($(
            #[test]
            fn $check() {
                $module::$check();
            }
        )*)*
    };
}

tests! {
    queue:
        every_request_is_committed_once_by_one_leader_at_a_time
        everyone_is_answered_when_leaders_give_up;
    reads:
        a_lookup_finds_what_was_published_and_nothing_that_was_not
        a_read_looks_where_things_were_when_its_sequence_was_published
        a_batch_is_read_whole_by_whatever_reads_several_keys
        a_snapshot_keeps_its_moment_beside_writes_and_jobs
        tables_are_removed_when_nobody_reads_them_any_more;
    blocks:
        an_evicted_block_leaves_its_slot
        a_block_that_was_used_through_its_slot_is_not_evicted_before_others
        threads_that_miss_one_block_share_one_load_and_no_failure
        a_block_that_is_turned_away_is_kept_when_it_is_asked_for_again;
    whole:
        writers_that_wait_for_room_and_callers_of_flush_are_woken
        closing_beside_everything_ends_and_keeps_what_was_acknowledged
        what_reads_beside_a_close_is_refused_or_keeps_the_lock;
}
