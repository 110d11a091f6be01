//! The point lookups of a batch in the tables of a version, level by level.
//!
//! Called by `read/multi_get.rs` with the keys that no memtable answered, ascending. Each table
//! gets the run of open keys between its fences: in level 0 every table, newest first; in every
//! other level the tables divide the keys into runs. A pinned filter is asked here, in windows
//! with prefetched memory, and a table is searched only if its filter let a key pass.
//!
//! A key that has its answer leaves the batch before an older table is asked (I4, I11). Keys are
//! counted as by `Version::get`; blocks are counted once per fetch.

use crate::base::error::Result;
use crate::base::stats::counters::{Counters, Stripe};
use crate::table::batch_key::{BatchKey, ask};
use crate::table::fetch::TableIo;
use crate::table::reader::TableReadOptions;
use crate::tree::level::{Fence, Level, TableProbe};
use crate::tree::version::{Version, count_io, count_verdict};
use std::ops::Range;

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
            let run = run_of(fence, open);
            search_run(0, probe, &mut open[run], read, &stripe)?;
            open.retain(|key| key.is_open());
        }
        for (number, level) in (1..).zip(sorted) {
            search_level(number, level, open, read, &stripe)?;
            open.retain(|key| key.is_open());
        }
        Ok(())
    }
}

/// Asks the tables of a level that are sorted by key, each for its run of the keys.
fn search_level(
    number: usize,
    level: &Level,
    keys: &mut [&mut BatchKey<'_>],
    read: TableReadOptions,
    stripe: &Stripe<'_>,
) -> Result<()> {
    let (mut at, mut index) = (0, 0);
    while let Some(first) = keys.get(at) {
        let ends_before = |fence: &Fence| fence.ends_before(first.head, first.lookup.user_key());
        index += level.fences[index..].partition_point(ends_before);
        let (Some(fence), Some(probe)) = (level.fences.get(index), level.probes.get(index)) else {
            break;
        };
        // The fence may start after the key. Then the key is in no table of this level, and the run
        // begins with a later key; `at` passes it either way.
        let run = run_of(fence, &keys[at..]);
        let run = at + run.start..at + run.end;
        at = run.end;
        search_run(number, probe, &mut keys[run], read, stripe)?;
    }
    Ok(())
}

/// The keys between the fences of a table.
fn run_of(fence: &Fence, keys: &[&mut BatchKey<'_>]) -> Range<usize> {
    let start = keys.partition_point(|key| fence.starts_after(key.head, key.lookup.user_key()));
    let end = start
        + keys[start..].partition_point(|key| !fence.ends_before(key.head, key.lookup.user_key()));
    start..end
}

/// Asks one table for a run of keys: its filter first, if it is pinned; counts each key.
fn search_run(
    level: usize,
    probe: &TableProbe,
    keys: &mut [&mut BatchKey<'_>],
    read: TableReadOptions,
    stripe: &Stripe<'_>,
) -> Result<()> {
    let pinned = probe.filter.as_ref().filter(|_| read.use_filters);
    if let Some(filter) = pinned {
        ask(keys, |hash| filter.prefetch(hash), |hash| filter.may_contain(hash));
    }
    if pinned.is_none() || keys.iter().any(|key| key.may_be_here()) {
        let mut io = TableIo::default();
        let options = TableReadOptions { filter_said_maybe: pinned.is_some(), ..read };
        let result = probe.handle.table.multi_get(keys, options, &mut io);
        count_io(level, &io, stripe);
        result?;
    }
    for key in keys {
        count_verdict(level, probe, &key.lookup, key.verdict, &key.answer, stripe);
    }
    Ok(())
}
