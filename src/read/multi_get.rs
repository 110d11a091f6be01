//! Many point lookups at one moment, memtable by memtable and table by table.
//!
//! Called by `Db::multi_get` and `Snapshot::multi_get`. Where all filters are pinned, the keys that
//! they exclude end first, in windows whose cache misses overlap (`tree/filter_prepass.rs`). The
//! others are sorted. Keys without an answer go on to the next memtable or table, in the order of a
//! single lookup. Sorted keys meet tables, partitions and blocks in order, so each of these is
//! fetched once; what the next step touches is prefetched, or read, for all keys at once
//! (`tree/multi_get.rs`).
//!
//! One view and one sequence serve the whole batch, loaded in the order of I3, and one `now` to
//! compare expiring entries with. It takes some 200 bytes of memory a key. In the level that is
//! searched it holds the parts of data indexes that its keys need, at most one for each key of a
//! piece, and otherwise no more of the cache than one lookup. A key counts as one lookup; the first
//! error ends the call.

use crate::base::error::Result;
use crate::base::expiry::ReadClock;
use crate::base::key::{Lookup, SequenceNumber, key_head};
use crate::base::stats::counters::{Counter, Stripe};
use crate::base::stats::latency::TimedCall;
use crate::base::value::Value;
use crate::options::access::ReadOptions;
use crate::read::point::{count_false_positive, sequence_in, unexpired};
use crate::state::keyspace::KeyspaceState;
use crate::state::read_view::ReadView;
use crate::table::batch_key::{BatchKey, WINDOW_KEYS, ask, set_all};
use crate::tree::filter_prepass::FilterPrepass;
use siftdb_filter::encoding::FilterVerdict;
use siftdb_filter::hash::KeyHash;

/// Keys that are searched for in tables at the same time: their blocks' parts that a search touches
/// fit into a processor's second cache.
const PIECE_KEYS: usize = 256;

/// The newest version of each key at or below `sequence`, or below the published one, in the order
/// of `keys`. Expiring entries are compared with `clock`.
///
/// # Errors
/// `Closed`; the first error of a read of any key.
pub(crate) fn multi_get<K: AsRef<[u8]>>(
    keyspace: &KeyspaceState,
    keys: impl IntoIterator<Item = K>,
    sequence: Option<SequenceNumber>,
    options: &ReadOptions,
    clock: &ReadClock,
) -> Result<Vec<Option<Value>>> {
    let keys: Vec<K> = keys.into_iter().collect();
    let timer = keyspace.timer();
    let keys = keys.iter().map(AsRef::as_ref).collect();
    let found = search(keyspace, keys, sequence, options, clock);
    timer.stop(&keyspace.counters, TimedCall::MultiGet);
    found
}

fn search(
    keyspace: &KeyspaceState,
    keys: Vec<&[u8]>,
    sequence: Option<SequenceNumber>,
    options: &ReadOptions,
    clock: &ReadClock,
) -> Result<Vec<Option<Value>>> {
    let view = keyspace.view.load_full();
    let sequence = sequence_in(keyspace, &view, sequence)?;
    let stripe = keyspace.counters.stripe();
    stripe.add(Counter::Gets, keys.len() as u64);
    let mut values = vec![None; keys.len()];

    let mut batch = sorted(maybe_present(&view, &keys, options, &stripe), sequence);
    let mut open: Vec<_> = batch.iter_mut().collect();
    search_memtables(&view, &mut open, options, &stripe);
    // A piece of the batch stays in the processor's caches from one step to the next.
    let (mut open, mut piece) = (open.into_iter(), Vec::with_capacity(PIECE_KEYS));
    while open.len() > 0 {
        piece.clear();
        piece.extend(open.by_ref().take(PIECE_KEYS));
        view.version.multi_get(&mut piece, options.tables, &keyspace.counters)?;
    }

    for key in batch {
        values[key.position] = match key.answer {
            Lookup::Found { stored, expires: false } => Some(stored),
            Lookup::Found { stored, expires: true } => unexpired(keyspace, clock, stored),
            Lookup::Deleted | Lookup::Absent => continue,
        };
    }
    let found = values.iter().flatten().count();
    stripe.add(Counter::GetsFound, found as u64);
    Ok(values)
}

/// The keys that may be there, with their heads and places: without those that the filters of all
/// memtables and tables exclude.
fn maybe_present<'k>(
    view: &ReadView,
    keys: &[&'k [u8]],
    options: &ReadOptions,
    stripe: &Stripe<'_>,
) -> Vec<(u64, &'k [u8], usize)> {
    let with_place = keys.iter().enumerate().map(|(place, key)| (key_head(key), *key, place));
    let memtables: Vec<_> = view.memtables().filter(|memtable| !memtable.is_empty()).collect();
    // A lookup of a key that a range delete covers ends there, and counts no filter of a table.
    let has_range_deletes = memtables.iter().any(|memtable| memtable.range_deletes.count() > 0);
    let prepass = FilterPrepass::of(&view.version)
        .filter(|_| options.tables.use_filters && !has_range_deletes);
    let Some(mut prepass) = prepass else { return with_place.collect() };
    let (mut open, mut window) = (Vec::new(), Vec::with_capacity(WINDOW_KEYS));
    let mut with_place = with_place.peekable();
    while with_place.peek().is_some() {
        window.extend(with_place.by_ref().take(WINDOW_KEYS).map(|(head, key, place)| {
            let hash = KeyHash::new(key);
            memtables.iter().for_each(|memtable| memtable.prefetch(&hash));
            prepass.add(head, &hash);
            (head, hash, place)
        }));
        for (head, hash, place) in window.drain(..) {
            let in_memtable = memtables.iter().any(|memtable| memtable.may_contain(&hash));
            if !prepass.excludes(&hash, in_memtable, stripe) {
                open.push((head, hash.key(), place));
            } else if !memtables.is_empty() {
                stripe.add(Counter::MemtableNegatives, memtables.len() as u64);
            }
        }
    }
    open
}

/// The keys in the order of tables. Equal keys are neighbours; each is looked up by itself, in
/// blocks that were just fetched.
fn sorted(mut keys: Vec<(u64, &[u8], usize)>, sequence: SequenceNumber) -> Vec<BatchKey<'_>> {
    keys.sort_unstable();
    keys.into_iter().map(|(_, key, place)| BatchKey::new(key, sequence, place)).collect()
}

fn search_memtables(
    view: &ReadView,
    open: &mut Vec<&mut BatchKey<'_>>,
    options: &ReadOptions,
    stripe: &Stripe<'_>,
) {
    for memtable in view.memtables() {
        if memtable.is_empty() {
            continue;
        }
        match options.tables.use_filters {
            true => ask(open, |hash| memtable.prefetch(hash), |hash| memtable.may_contain(hash)),
            false => set_all(open, FilterVerdict::NotConsulted),
        }
        for key in &mut *open {
            let floor = memtable.covering(&key.lookup);
            match key.may_be_here() {
                true => {
                    let hash = options.tables.use_filters.then_some(&key.hash);
                    key.answer = memtable.get(&key.lookup, hash, floor);
                    if hash.is_some() && key.is_open() {
                        count_false_positive(memtable, &key.lookup, &key.hash, stripe);
                    }
                }
                false => stripe.add(Counter::MemtableNegatives, 1),
            }
            if floor > 0 && key.is_open() {
                key.answer = Lookup::Deleted;
            }
        }
        let before = open.len();
        open.retain(|key| key.is_open());
        stripe.add(Counter::MemtableHits, (before - open.len()) as u64);
    }
}
