//! Many point lookups at one moment, memtable by memtable and table by table.
//!
//! Called by `Db::multi_get` and `Snapshot::multi_get`. The keys are sorted and hashed once. Keys
//! without an answer go on to the next memtable or table, in the order of a single lookup. Sorted
//! keys meet tables, partitions and blocks in order, so each of these is fetched once. Filters are
//! asked in windows whose cache misses overlap (`table/batch_key.rs`).
//!
//! One view and one sequence serve the whole batch, loaded in the order of I3, and one `now` to
//! compare expiring entries with. It takes some 200
//! bytes of memory a key, and pins no more of the cache at a time than one lookup. A key counts as
//! one lookup; the first error ends the call.

use crate::base::error::Result;
use crate::base::expiry::ReadClock;
use crate::base::key::{Lookup, SequenceNumber, key_head};
use crate::base::stats::counters::{Counter, Stripe};
use crate::base::stats::latency::TimedCall;
use crate::base::value::Value;
use crate::filter::encoding::FilterVerdict;
use crate::options::access::ReadOptions;
use crate::read::point::{sequence_in, unexpired};
use crate::state::keyspace::KeyspaceState;
use crate::state::read_view::ReadView;
use crate::state::shared::Shared;
use crate::table::batch_key::{BatchKey, ask, set_all};

/// The newest version of each key at or below `sequence`, or below the published one, in the order
/// of `keys`.
///
/// # Errors
/// `Closed`; the first error of a read of any key.
pub(crate) fn multi_get<K: AsRef<[u8]>>(
    shared: &Shared,
    keyspace: &KeyspaceState,
    keys: impl IntoIterator<Item = K>,
    sequence: Option<SequenceNumber>,
    options: &ReadOptions,
) -> Result<Vec<Option<Value>>> {
    let keys: Vec<K> = keys.into_iter().collect();
    let timer = keyspace.timer();
    let keys = keys.iter().map(AsRef::as_ref).collect();
    let found = search(shared, keyspace, keys, sequence, options);
    timer.stop(&keyspace.counters, TimedCall::MultiGet);
    found
}

fn search(
    shared: &Shared,
    keyspace: &KeyspaceState,
    keys: Vec<&[u8]>,
    sequence: Option<SequenceNumber>,
    options: &ReadOptions,
) -> Result<Vec<Option<Value>>> {
    let view = keyspace.view.load_full();
    let sequence = sequence_in(shared, keyspace, &view, sequence)?;
    let mut batch = sorted(keys, sequence);
    let stripe = keyspace.counters.stripe();
    stripe.add(Counter::Gets, batch.len() as u64);

    let mut open: Vec<_> = batch.iter_mut().collect();
    search_memtables(&view, &mut open, options, &stripe);
    view.version.multi_get(&mut open, options.for_tables(), &keyspace.counters)?;

    let mut values = vec![None; batch.len()];
    let clock = ReadClock::default();
    for key in batch {
        values[key.position] = match key.answer {
            Lookup::Found { stored, expires: false } => Some(stored),
            Lookup::Found { stored, expires: true } => unexpired(shared, &clock, stored),
            Lookup::Deleted | Lookup::Absent => continue,
        };
    }
    let found = values.iter().flatten().count();
    stripe.add(Counter::GetsFound, found as u64);
    Ok(values)
}

/// The keys in the order of tables. Equal keys are neighbours; each is looked up by itself, in
/// blocks that were just fetched.
fn sorted(keys: Vec<&[u8]>, sequence: SequenceNumber) -> Vec<BatchKey<'_>> {
    let places = keys.into_iter().enumerate();
    let mut order: Vec<_> = places.map(|(place, key)| (key_head(key), key, place)).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, key, place)| BatchKey::new(key, sequence, place)).collect()
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
        match options.use_filters {
            true => ask(open, |hash| memtable.prefetch(hash), |hash| memtable.may_contain(hash)),
            false => set_all(open, FilterVerdict::NotConsulted),
        }
        for key in &mut *open {
            let floor = memtable.covering(&key.lookup);
            match key.may_be_here() {
                true => {
                    let hash = options.use_filters.then_some(&key.hash);
                    key.answer = memtable.get(&key.lookup, hash, floor);
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
