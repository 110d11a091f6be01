//! Searching a block by its restart points: lookups in uncached blocks, and the start of iteration.
//!
//! A binary search over the restart entries finds one restart interval. A lookup then reads that
//! interval from its start. Cached blocks have a directory instead, see `block/directory.rs`.

use crate::base::key::{LookupKey, common_prefix, split_internal_key};
use crate::table::block::block::{Block, Found};
use crate::table::block::builder::RESTART_INTERVAL;
use std::cmp::Ordering;
use std::ops::{Deref, Range};

/// Restart entries that a lookup prefetches: all of a block of 4 KiB.
const PREFETCHED_RESTARTS: usize = 8;

/// Bytes of an interval that it prefetches.
const PREFETCHED_BYTES: usize = 2048;

impl<B: Deref<Target = [u8]>> Block<B> {
    /// How many restart entries are below the internal key `bound`.
    pub(crate) fn restarts_below(&self, bound: &[u8]) -> usize {
        let (bound, bound_trailer) = split_internal_key(bound).unwrap_or((bound, 0));
        let (mut low, mut high) = (0, self.restarts());
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.restart(middle).and_then(|at| self.entry_at(at));
            let below = entry.is_some_and(|entry| {
                let order = self.own_key(&entry).cmp(bound);
                order.then_with(|| Some(bound_trailer).cmp(&self.trailer(&entry))) == Ordering::Less
            });
            if below { low = middle + 1 } else { high = middle }
        }
        low
    }
}

impl Block<&[u8]> {
    /// The newest version of the key that its sequence can see, without a directory: from the last
    /// restart point that is not above the key. The key's fingerprint is a hint at that point.
    #[inline(never)]
    pub(crate) fn get_by_order(&self, key: &LookupKey, fingerprint: u8) -> Option<Found> {
        let wanted = key.user_key();
        // A block in a memory map may be in no cache of the processor. The restart entries and the
        // likely interval are prefetched at once: the search follows them one by one.
        for interval in 0..self.restarts().min(PREFETCHED_RESTARTS) {
            self.prefetch_line(self.restart(interval)?);
        }
        let likely = self.likely_place(fingerprint).unwrap_or_default();
        self.prefetch(likely.start..likely.end.min(likely.start + PREFETCHED_BYTES));
        let interval = self.restarts_below(key.internal_key()).saturating_sub(1);
        let mut at = self.restart(interval)?;
        if at != likely.start || likely.is_empty() {
            let end = self.restart(interval + 1).unwrap_or(self.entries_end());
            self.prefetch(at..end.min(at + PREFETCHED_BYTES));
        }
        // No key is built. `matched` is the length of the prefix that the entry before has in
        // common with the wanted user key. An entry that shares more than that with the entry
        // before is below the wanted key for the same reason. Any other is compared from `shared`
        // on. This is right because `shared` stays inside user keys, which was checked at load.
        let mut matched = 0;
        while let Some(entry) = self.entry_at(at) {
            at = entry.end;
            if entry.shared > matched {
                continue;
            }
            let own = self.own_key(&entry);
            let rest = wanted.get(entry.shared..)?;
            let common = common_prefix(own, rest);
            match (own.get(common), rest.get(common)) {
                (None, None) => {
                    let trailer = self.trailer(&entry)?;
                    if trailer <= key.trailer() {
                        let value_len = entry.end - entry.value_start;
                        return Some(Found { trailer, value_start: entry.value_start, value_len });
                    }
                }
                (None, Some(_)) => {}
                (Some(theirs), Some(ours)) if theirs < ours => {}
                _ => return None,
            }
            matched = entry.shared + common;
        }
        None
    }

    /// From the restart point before the first entry with this fingerprint to about its end. In a
    /// block with another interval it is another place, and no answer depends on it.
    fn likely_place(&self, fingerprint: u8) -> Option<Range<usize>> {
        let index = self.fingerprints().iter().position(|of_entry| *of_entry == fingerprint)?;
        let interval = index / RESTART_INTERVAL;
        let start = self.restart(interval)?;
        let end = self.restart(interval + 1).unwrap_or(self.entries_end());
        let bytes = end.checked_sub(start)?;
        Some(start..start + bytes * (index % RESTART_INTERVAL + 1) / RESTART_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::{ValueKind, put_internal_key};
    use crate::table::block::block::tests::{Entries, built};
    use crate::table::format::fingerprint_of;
    use siftdb_filter::hash::xxph3_64;

    const ENTRIES: usize = 100;

    /// A hint changes no answer, so no other test sees a wrong one.
    #[test]
    fn hints_lead_to_the_interval_of_the_key() {
        let name = |n: usize| format!("{n:04}").into_bytes();
        let fingerprint = |n: usize| fingerprint_of(xxph3_64(&name(n)));
        let entry = |n: usize| {
            let mut key = Vec::new();
            put_internal_key(&mut key, &name(n), 1, ValueKind::Put);
            (key, vec![b'v'; 20])
        };
        let entries: Entries = (0..ENTRIES).map(entry).collect();
        let plain = built(&entries, RESTART_INTERVAL, false);
        let hashed = built(&entries, RESTART_INTERVAL, true);
        let [plain, hashed] = [&plain, &hashed].map(|b| Block::in_place(&b[..], false).unwrap());
        for n in 0..ENTRIES {
            assert_eq!(plain.likely_place(fingerprint(n)), None);
            let first = (0..n).find(|&other| fingerprint(other) == fingerprint(n)).unwrap_or(n);
            let interval = first / RESTART_INTERVAL;
            let end = hashed.restart(interval + 1).unwrap_or(hashed.entries_end());
            let range = hashed.likely_place(fingerprint(n)).unwrap();
            assert_eq!(Some(range.start), hashed.restart(interval), "entry {n}");
            assert!(!range.is_empty() && range.end <= end, "entry {n}: {range:?}");
        }
        let others = (0..=u8::MAX).filter(|other| (0..ENTRIES).all(|n| fingerprint(n) != *other));
        assert!(others.map(|other| hashed.likely_place(other)).all(|range| range.is_none()));
    }
}
