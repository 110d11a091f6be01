//! The point lookups of a batch in the tables of a version, level by level.
//!
//! Called by `read/multi_get.rs` with the keys that no memtable answered, ascending. Each table
//! gets the run of open keys between its fences: in level 0 every table, newest first; in every
//! other level the tables divide the keys into runs. A pinned filter is asked here, and a table is
//! searched only if its filter let a key pass.
//!
//! Single lookups wait for their cache misses and reads one after the other. So each step is taken
//! for all runs of a level before the next, and prefetches what the next one touches. Blocks that
//! have to be read are asked for at once (`read_ahead.rs`).
//!
//! A key that has its answer leaves the batch before an older table is asked (I4, I11). Keys are
//! counted as by `Version::get`; blocks are counted once per fetch.

use crate::base::error::Result;
use crate::base::stats::counters::{Counters, Stripe};
use crate::table::batch_key::BatchKey;
use crate::table::file::TableIo;
use crate::table::format::BlockKind;
use crate::table::reader::{Table, TableReadOptions};
use crate::tree::level::{Fence, Level, TableProbe};
use crate::tree::read_ahead::read_ahead;
use crate::tree::version::{Version, count_io, count_verdict};
use siftdb_filter::encoding::FilterVerdict;
use std::ops::Range;

/// A table, the keys between its fences, and what the batch touches there.
struct Run<'r, 'b, 'k> {
    probe: &'r TableProbe,
    keys: &'r mut [&'b mut BatchKey<'k>],
    io: TableIo,
}

impl Version {
    /// Sets the answers of the keys in `open` that have a version here, and removes these keys from
    /// it.
    ///
    /// # Errors
    /// The first one on the way of any key; keys that are still open then have no answer.
    pub(crate) fn multi_get(
        &self,
        open: &mut Vec<&mut BatchKey<'_>>,
        read: TableReadOptions,
        counters: &Counters,
    ) -> Result<()> {
        let stripe = counters.stripe();
        let [newest_first, sorted @ ..] = &self.levels;
        for (fence, probe) in newest_first.fences.iter().zip(&newest_first.probes) {
            let range = run_of(fence, open);
            let run = Run { probe, keys: &mut open[range], io: read.io() };
            search_runs(0, &mut [run], read, &stripe)?;
            open.retain(|key| key.is_open());
        }
        for (number, level) in (1..).zip(sorted) {
            search_runs(number, &mut runs_of(level, open, read), read, &stripe)?;
            open.retain(|key| key.is_open());
        }
        Ok(())
    }
}

/// The tables of a level that are sorted by key, each with its run of the keys.
fn runs_of<'r, 'b, 'k>(
    level: &'r Level,
    mut keys: &'r mut [&'b mut BatchKey<'k>],
    read: TableReadOptions,
) -> Vec<Run<'r, 'b, 'k>> {
    let (mut runs, mut index) = (Vec::new(), 0);
    while let Some(first) = keys.first() {
        let ends_before = |fence: &Fence| fence.ends_before(first.head, first.lookup.user_key());
        index += level.fences[index..].partition_point(ends_before);
        let (Some(fence), Some(probe)) = (level.fences.get(index), level.probes.get(index)) else {
            break;
        };
        // The fence may start after the key. Then the key is in no table of this level, and the run
        // begins with a later key; both are passed.
        let Range { start, end } = run_of(fence, keys);
        let (run, later) = std::mem::take(&mut keys).split_at_mut(end);
        runs.push(Run { probe, keys: &mut run[start..], io: read.io() });
        keys = later;
    }
    runs
}

/// The keys between the fences of a table.
fn run_of(fence: &Fence, keys: &[&mut BatchKey<'_>]) -> Range<usize> {
    let start = keys.partition_point(|key| fence.starts_after(key.head, key.lookup.user_key()));
    let end = start
        + keys[start..].partition_point(|key| !fence.ends_before(key.head, key.lookup.user_key()));
    start..end
}

/// Asks tables of one level, each for its run of keys; counts each key.
fn search_runs(
    level: usize,
    runs: &mut [Run<'_, '_, '_>],
    read: TableReadOptions,
    stripe: &Stripe<'_>,
) -> Result<()> {
    let result = search_tables(runs, read);
    for run in &*runs {
        count_io(level, &run.io, stripe);
    }
    result?;
    for Run { probe, keys, .. } in runs {
        for key in &**keys {
            count_verdict(level, probe, &key.lookup, key.verdict, &key.answer, stripe);
        }
    }
    Ok(())
}

fn search_tables(runs: &mut [Run<'_, '_, '_>], read: TableReadOptions) -> Result<()> {
    ask_filters(runs, read.use_filters);
    let mut has_parts = false;
    for Run { probe, keys, .. } in &mut *runs {
        has_parts |= probe.handle.table.locate_parts(keys);
    }
    let may_read = !read.in_memory_only;
    if may_read && has_parts {
        read_ahead(with_tables(runs), BlockKind::IndexPartition);
    }
    for Run { probe, keys, io } in &mut *runs {
        probe.handle.table.locate_batch(keys, read.use_filters, io)?;
    }
    for Run { probe, keys, .. } in &*runs {
        probe.handle.table.look_into_directories(keys);
    }
    for Run { probe, keys, .. } in &*runs {
        probe.handle.table.look_at_entries(keys);
    }
    if may_read {
        read_ahead(with_tables(runs), BlockKind::Data);
    }
    for Run { probe, keys, io } in runs {
        probe.handle.table.search_batch(keys, read.fill_cache, io)?;
    }
    Ok(())
}

/// The keys of each run with their table.
fn with_tables<'r, 'b, 'k>(
    runs: &'r [Run<'_, 'b, 'k>],
) -> impl Iterator<Item = (&'r Table, &'r [&'b mut BatchKey<'k>])> {
    runs.iter().map(|run| (&*run.probe.handle.table, &*run.keys))
}

/// Sets the verdicts of all keys, by filters that come before the index.
fn ask_filters(runs: &mut [Run<'_, '_, '_>], use_filters: bool) {
    for Run { probe, keys, .. } in &*runs {
        if let Some(filter) = probe.filter.as_ref().filter(|_| use_filters) {
            keys.iter().for_each(|key| filter.prefetch(&key.hash));
        }
    }
    let mut step = 0;
    let mut has_more = use_filters;
    while has_more {
        has_more = false;
        for Run { probe, keys, .. } in runs.iter_mut().filter(|run| run.probe.filter.is_none()) {
            has_more |= probe.handle.table.filter.look_ahead(keys, step);
        }
        step += 1;
    }
    for Run { probe, keys, io } in runs {
        match probe.filter.as_ref().filter(|_| use_filters) {
            Some(filter) => {
                for key in &mut **keys {
                    key.verdict = FilterVerdict::of(filter.may_contain(&key.hash));
                }
            }
            None => probe.handle.table.ask_batch(keys, use_filters, io),
        }
    }
}
