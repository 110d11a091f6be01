//! The point lookup, top to bottom: memtables newest first, then the tables.
//!
//! Called by `Db`, `Snapshot`, and by `explain` with a trace. It takes no lock and writes nothing
//! that another core reads: the view comes from an `ArcSwap`, the sequence from one atomic, and the
//! counters are in the thread's own stripe.
//!
//! The order of loads is an invariant (I3): the view, then the published sequence, then the filters
//! of the memtables. If a switch replaces the view after it was loaded, the old view still holds
//! everything up to that switch. So the answer is the one at the moment of the switch, which is
//! during the read. The other order is wrong: a compaction may end between the two loads, and the
//! newer view then lacks versions that the older sequence needs.

use crate::base::error::Result;
use crate::base::expiry::{EXPIRY_BYTES, ReadClock};
use crate::base::key::{Lookup, LookupKey, SEQUENCE_MAX, SequenceNumber};
use crate::base::stats::counters::{Counter, Stripe};
use crate::base::stats::latency::TimedCall;
use crate::base::sync::Arc;
use crate::base::value::Value;
use crate::memtable::memtable::Memtable;
use crate::options::access::ReadOptions;
use crate::state::keyspace::KeyspaceState;
use crate::state::read_view::ReadView;
use crate::tree::version::{HitStreak, TableStep};
use siftdb_filter::hash::KeyHash;

/// What one lookup did in a memtable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemtableStep {
    /// There is nothing in it.
    Empty,
    /// Its filter said that it does not have the key.
    Skipped,
    /// A range delete of it covers the key, and it has no newer version.
    Covered {
        /// The filter did not exclude the key.
        searched: bool,
    },
    /// It was searched, with this result.
    Searched(Lookup),
}

impl MemtableStep {
    /// The step that found this; nothing if the filter said "no".
    fn of(found: &Option<Lookup>, floor: SequenceNumber) -> Self {
        match found {
            None | Some(Lookup::Absent) if floor > 0 => {
                MemtableStep::Covered { searched: found.is_some() }
            }
            None => MemtableStep::Skipped,
            Some(found) => MemtableStep::Searched(found.clone()),
        }
    }
}

/// What one lookup did, step by step: filled for `explain`.
#[derive(Debug, Default)]
pub(crate) struct LookupTrace {
    /// The sequence it read at.
    pub sequence: SequenceNumber,
    /// Memtables, newest first.
    pub memtables: Vec<MemtableStep>,
    /// Tables whose key range covers the key, in the order they were asked.
    pub tables: Vec<TableStep>,
    /// The view that was read, to say which tables were out of range.
    pub view: Option<Arc<ReadView>>,
}

impl LookupTrace {
    #[cold]
    fn push_empty(&mut self) {
        self.memtables.push(MemtableStep::Empty);
    }
}

/// A lookup of a user, timed if calls are. An untimed one pays a test of memory and a branch.
///
/// # Errors
/// As for [`get`].
pub(crate) fn timed_get(
    keyspace: &KeyspaceState,
    key: &[u8],
    sequence: Option<SequenceNumber>,
    options: &ReadOptions,
) -> Result<Option<Value>> {
    if keyspace.times_calls {
        return get_by_clock(keyspace, key, sequence, options);
    }
    search(keyspace, key, sequence, options, None)
}

#[cold]
#[inline(never)]
fn get_by_clock(
    keyspace: &KeyspaceState,
    key: &[u8],
    sequence: Option<SequenceNumber>,
    options: &ReadOptions,
) -> Result<Option<Value>> {
    let timer = keyspace.timer();
    let found = get(keyspace, key, sequence, options, None);
    timer.stop(&keyspace.counters, TimedCall::Get);
    found
}

/// The newest version of `key` at or below `sequence`, or at or below the published one.
///
/// # Errors
/// The first error on the way of the key; `Closed`.
pub(crate) fn get(
    keyspace: &KeyspaceState,
    key: &[u8],
    sequence: Option<SequenceNumber>,
    options: &ReadOptions,
    trace: Option<&mut LookupTrace>,
) -> Result<Option<Value>> {
    search(keyspace, key, sequence, options, trace)
}

// In each of its two callers: without a trace it is shorter.
#[inline(always)]
fn search(
    keyspace: &KeyspaceState,
    key: &[u8],
    sequence: Option<SequenceNumber>,
    options: &ReadOptions,
    mut trace: Option<&mut LookupTrace>,
) -> Result<Option<Value>> {
    let view = keyspace.view.load();
    // I3: after the view. A switch in between does no harm, because the old view has everything up
    // to it. Loaded first, the sequence could need versions that a compaction drops from the view.
    let sequence = sequence_in(keyspace, &view, sequence)?;
    let lookup_key = LookupKey::new(key, sequence);
    let hash = KeyHash::new(key);
    let stripe = keyspace.counters.stripe();
    stripe.add(Counter::Gets, 1);
    if let Some(trace) = trace.as_deref_mut() {
        trace.sequence = sequence;
        trace.view = Some(Arc::clone(&view));
    }
    match search_memtables(&view, &lookup_key, &hash, options, &stripe, &mut trace) {
        Lookup::Absent => {}
        found => {
            stripe.add(Counter::MemtableHits, 1);
            return Ok(value_of(keyspace, found, &stripe));
        }
    }
    let steps = trace.map(|trace| &mut trace.tables);
    // A trace shows what every filter says.
    if HitStreak::of(&stripe).is_long() && options.tables.use_filters && steps.is_none() {
        return get_bypassing_filter(keyspace, &view, &lookup_key, &hash, options, &stripe);
    }
    let read = options.tables;
    let found = view.version.get::<false>(&lookup_key, &hash, read, &stripe, steps)?;
    Ok(value_of(keyspace, found, &stripe))
}

/// The tables, after many hits of the last level in a row.
// Apart, so that a lookup that a filter ends does not pay for this.
#[inline(never)]
fn get_bypassing_filter(
    keyspace: &KeyspaceState,
    view: &ReadView,
    key: &LookupKey,
    hash: &KeyHash<'_>,
    options: &ReadOptions,
    stripe: &Stripe<'_>,
) -> Result<Option<Value>> {
    let found = view.version.get::<true>(key, hash, options.tables, stripe, None)?;
    Ok(value_of(keyspace, found, stripe))
}

/// What the user gets of the newest version.
#[inline(always)]
fn value_of(keyspace: &KeyspaceState, found: Lookup, stripe: &Stripe<'_>) -> Option<Value> {
    let value = match found {
        Lookup::Deleted | Lookup::Absent => return None,
        Lookup::Found { stored, expires: false } => stored,
        Lookup::Found { stored, expires: true } => {
            unexpired(keyspace, &ReadClock::default(), stored)?
        }
    };
    stripe.add(Counter::GetsFound, 1);
    Some(value)
}

/// The value of an expiring put, unless it has expired for the read of that clock.
#[cold]
pub(crate) fn unexpired(
    keyspace: &KeyspaceState,
    clock: &ReadClock,
    stored: Value,
) -> Option<Value> {
    let expired = clock.has_expired(&stored, || keyspace.served.context.env.now());
    (!expired).then(|| stored.without_front(EXPIRY_BYTES))
}

/// The sequence that a read in `view` is made at: that of a snapshot, or the published one.
///
/// # Errors
/// `Closed`, or `KeyspaceDropped`: a view without a lock tells both. A snapshot's owner holds the
/// lock itself, so with `snapshot` there is no error.
#[inline(always)]
pub(crate) fn sequence_in(
    keyspace: &KeyspaceState,
    view: &ReadView,
    snapshot: Option<SequenceNumber>,
) -> Result<SequenceNumber> {
    match snapshot {
        Some(sequence) => Ok(sequence),
        None if view.lock.is_none() => Err(keyspace.refusal(view)),
        None => Ok(published(keyspace, view)),
    }
}

/// The published sequence, for reads in `view`, which was loaded before (I3).
#[inline]
pub(crate) fn published(keyspace: &KeyspaceState, view: &ReadView) -> SequenceNumber {
    let sequence = keyspace.served.published.visible();
    // A memtable becomes immutable only after all of it was published.
    let full = view.immutables.first();
    debug_assert!(full.is_none_or(|newest| newest.last_sequence <= sequence), "I3");
    sequence
}

#[inline]
fn search_memtables(
    view: &ReadView,
    key: &LookupKey,
    hash: &KeyHash<'_>,
    options: &ReadOptions,
    stripe: &Stripe<'_>,
    trace: &mut Option<&mut LookupTrace>,
) -> Lookup {
    let immutables = view.immutables.iter().map(|immutable| &immutable.memtable);
    for memtable in std::iter::once(&view.active).chain(immutables) {
        // Asking the filter of an empty memtable would only load a cold cache line.
        if memtable.is_empty() {
            if let Some(trace) = trace {
                trace.push_empty();
            }
            continue;
        }
        match search_memtable(memtable, key, hash, options, stripe, trace) {
            Lookup::Absent => {}
            found => return found,
        }
    }
    Lookup::Absent
}

/// What a memtable says of the key. A range delete that covers it ends the search: everything in
/// older memtables and in tables is older.
// Not inlined: most lookups of a database that is only read find empty memtables.
#[inline(never)]
fn search_memtable(
    memtable: &Memtable,
    key: &LookupKey,
    hash: &KeyHash<'_>,
    options: &ReadOptions,
    stripe: &Stripe<'_>,
    trace: &mut Option<&mut LookupTrace>,
) -> Lookup {
    let floor = memtable.covering(key);
    let found = if options.tables.use_filters && !memtable.may_contain(hash) {
        stripe.add(Counter::MemtableNegatives, 1);
        None
    } else {
        let found = memtable.get(key, options.tables.use_filters.then_some(hash), floor);
        if options.tables.use_filters && found == Lookup::Absent {
            count_false_positive(memtable, key, hash, stripe);
        }
        Some(found)
    };
    if let Some(trace) = trace.as_deref_mut() {
        trace.memtables.push(MemtableStep::of(&found, floor));
    }
    match found {
        // The filter's "no" says nothing of range deletes.
        None | Some(Lookup::Absent) if floor > 0 => Lookup::Deleted,
        found => found.unwrap_or(Lookup::Absent),
    }
}

/// Counts the "maybe" of a memtable's filter after a search that found nothing, unless a version
/// that the search could not see makes it right.
#[cold]
#[inline(never)]
pub(crate) fn count_false_positive(
    memtable: &Memtable,
    key: &LookupKey,
    hash: &KeyHash<'_>,
    stripe: &Stripe<'_>,
) {
    let newest = || LookupKey::new(key.user_key(), SEQUENCE_MAX);
    if memtable.has_filter() && memtable.get(&newest(), Some(hash), 0) == Lookup::Absent {
        stripe.add(Counter::MemtableFalsePositives, 1);
    }
}

/// False only if memtables, fences and pinned filters prove that `key` is not there now. Reads
/// no file.
///
/// # Errors
/// `Closed`.
pub(crate) fn may_contain(keyspace: &KeyspaceState, key: &[u8]) -> Result<bool> {
    let view = keyspace.view.load();
    let sequence = sequence_in(keyspace, &view, None)?;
    let hash = KeyHash::new(key);
    let mut trace = None;
    let stripe = keyspace.counters.stripe();
    let lookup_key = LookupKey::new(key, sequence);
    let options = ReadOptions::new();
    Ok(match search_memtables(&view, &lookup_key, &hash, &options, &stripe, &mut trace) {
        Lookup::Found { expires: false, .. } => true,
        Lookup::Found { stored, expires: true } => {
            unexpired(keyspace, &ReadClock::default(), stored).is_some()
        }
        Lookup::Deleted => false,
        Lookup::Absent => view.version.may_contain(key, &hash),
    })
}
