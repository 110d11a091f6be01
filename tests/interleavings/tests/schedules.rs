//! Every check of `siftdb::interleavings` as a test.

use siftdb::interleavings::{blocks, files, queue, reads, tickets, transactions, watches, whole};

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
        one_leader_at_once_commits_each_request
        waiters_are_answered_when_leaders_fail;
    reads:
        lookups_find_exactly_what_was_published
        reads_load_their_view_before_the_sequence
        readers_see_batches_whole
        snapshots_are_stable_under_writes_and_jobs
        snapshots_show_loads_always_or_never
        unreferenced_tables_are_removed;
    transactions:
        no_increment_is_lost
        no_increment_is_lost_beside_jobs
        write_skew_never_passes
        transactions_beside_batches_keep_a_sum
        groups_in_flight_at_the_begin_are_found
        transactions_sent_back_end
        a_close_beside_transactions_leaves_whole_ones;
    blocks:
        an_evicted_block_leaves_its_slot
        slot_hits_protect_a_filter_from_eviction
        slots_die_with_their_partition
        concurrent_misses_share_one_load
        a_rejected_block_is_kept_when_asked_again
        a_row_is_kept_once;
    files:
        files_stay_open_while_they_are_read;
    tickets:
        tickets_resolve_after_their_sync
        a_close_beside_tickets_resolves_each;
    watches:
        a_blocked_watch_misses_no_write
        a_polled_watch_misses_no_write
        a_drop_comes_after_the_writes;
    whole:
        waiting_writers_and_flush_callers_are_woken
        a_concurrent_close_keeps_acknowledged_writes
        concurrent_reads_fail_or_keep_the_lock
        a_drop_beside_writers_leaves_whole_batches
        loads_appear_in_one_step;
}
