//! The keys of a batch that no table can have, by pinned filters alone.
//!
//! `read/multi_get.rs` puts the keys of a window to a [`FilterPrepass`] before it sorts them and
//! makes batch keys of the rest: most absent keys end here. Legal order: [`FilterPrepass::add`] for
//! each key of the window, then [`FilterPrepass::excludes`] for each of them in the same order. The
//! first one prefetches what the second one touches, so the cache misses of a window overlap.
//!
//! A key that is excluded is counted as `Version::get` counts it; any other key is not counted.

use crate::base::stats::counters::{LevelCounter, Stripe};
use crate::tree::level::TableProbe;
use crate::tree::version::Version;
use siftdb_filter::bloom::fast_local::LineBits;
use siftdb_filter::hash::KeyHash;

/// The tables that may have the keys of a window.
pub(crate) struct FilterPrepass<'v> {
    version: &'v Version,
    /// The tables whose fences cover each key, with their levels: those of one key after another.
    tables: Vec<(usize, &'v TableProbe)>,
    /// Where in `tables` those of each key end.
    ends: Vec<usize>,
    /// The key that is asked about next.
    next: usize,
}

impl<'v> FilterPrepass<'v> {
    /// For keys of `version`; `None` if a table has no pinned filter, since few keys would be
    /// excluded by the others.
    pub(crate) fn of(version: &'v Version) -> Option<Self> {
        let (tables, ends) = (Vec::new(), Vec::new());
        version.pins_all_filters.then_some(FilterPrepass { version, tables, ends, next: 0 })
    }

    /// Adds a key, whose head is `head`, and prefetches its place in each filter.
    pub(crate) fn add(&mut self, head: u64, hash: &KeyHash<'_>) {
        let start = self.tables.len();
        self.version.covering(head, hash.key(), &mut self.tables);
        for (_, probe) in &self.tables[start..] {
            if let Some(filter) = &probe.filter {
                filter.prefetch(hash);
            }
        }
        self.ends.push(self.tables.len());
    }

    /// True, and counted, if no table can have the next key, which no memtable has, either, unless
    /// `in_memtable`. After the last key the prepass is empty again.
    pub(crate) fn excludes(
        &mut self,
        hash: &KeyHash<'_>,
        in_memtable: bool,
        stripe: &Stripe<'_>,
    ) -> bool {
        let start = self.next.checked_sub(1).map_or(0, |last| self.ends[last]);
        let tables = &self.tables[start..self.ends[self.next]];
        let mut bits = LineBits::of(hash.xxph3());
        let excluded =
            !in_memtable && tables.iter().all(|(_, probe)| probe.denies(hash, &mut bits));
        if excluded {
            for (level, probe) in tables {
                stripe.add_level(*level, LevelCounter::Negatives, 1);
                stripe.add_level(*level, LevelCounter::BytesAvoided, probe.mean_block_bytes);
            }
        }
        self.next += 1;
        if self.next == self.ends.len() {
            self.tables.clear();
            self.ends.clear();
            self.next = 0;
        }
        excluded
    }
}
