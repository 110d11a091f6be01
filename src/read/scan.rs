//! [`Scan`]: what an iterator or a cursor reads, and the merge of its sources.
//!
//! A scan is a range of keys in one view, at one sequence. It is `'static`: it owns its
//! keyspace and its view, and so every memtable and table in it. It reads at the sequence that was
//! published when it was created. It compares all expiring entries with one time, fixed at the
//! first of them. A scan of a transaction also reads the writes of that, from memtables of its
//! own, and notes how far it went ([`ReadRange`]).
//!
//! Tables whose filter proves that they hold no key of the range are skipped: see
//! `tree::range_probe`. `range_delete_iter` knows what range deletes cover, and `walk` passes
//! it.

use crate::base::error::{Error, Result};
use crate::base::expiry::ReadClock;
use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::iterator::merging::MergingIter;
use crate::base::key::{OWN_SEQUENCE_FIRST, SequenceNumber, ValueKind, unpack_trailer};
use crate::base::range::KeyBounds;
use crate::base::stats::counters::{Counter, Timer};
use crate::base::stats::latency::TimedCall;
use crate::base::sync::{Arc, Mutex};
use crate::base::value::Value;
use crate::env::directory_lock::DirectoryLock;
use crate::memtable::memtable::{Memtable, MemtableIter};
use crate::options::access::ReadOptions;
use crate::read::point::published;
use crate::read::range_delete_iter::RangeDeleteIter;
use crate::state::keyspace::{KeyspaceState, TOMBSTONES_PASSED_MAX};
use crate::state::read_set::{ReadRange, ReadSet};
use crate::state::read_view::ReadView;
use crate::table::reader::TableReadOptions;
use crate::tree::level::RangeEnds;
use crate::tree::level_iter::LevelIter;
use crate::tree::range_probe::RangeProbe;
use siftdb_filter::encoding::FilterVerdict;
use std::ops::{Bound, Range};

/// What a scan reads of the past: that of a snapshot, or of a transaction.
pub(crate) struct ScanOf {
    /// The sequence of the snapshot.
    pub sequence: SequenceNumber,
    /// Its share in the directory's lock.
    pub lock: Result<Arc<DirectoryLock>>,
    /// What a transaction adds to its snapshot.
    pub transaction: Option<Box<TransactionScan>>,
}

/// What a scan of a transaction knows besides the snapshot.
pub(crate) struct TransactionScan {
    /// The writes of the transaction to this keyspace, newest first,
    pub own: Vec<Arc<Memtable>>,
    /// and how many writes to all keyspaces there are so far.
    pub own_writes: u64,
    /// Where to note what is crossed.
    pub reads: Arc<Mutex<ReadSet>>,
}

/// What an iterator or a cursor reads: the entries of a range of keys, in one view, at one
/// sequence.
pub(crate) struct Scan {
    pub(super) keyspace: Arc<KeyspaceState>,
    pub(super) view: Arc<ReadView>,
    /// What is read at.
    pub(crate) sequence: SequenceNumber,
    /// Of a transaction: how many of its own writes are read, too. They are numbered from
    /// [`OWN_SEQUENCE_FIRST`] on.
    own_writes: u64,
    transaction: Option<Box<TransactionScan>>,
    /// What expiring entries are compared with.
    clock: ReadClock,
    pub(super) read: TableReadOptions,
    /// The range of keys.
    pub(crate) bounds: KeyBounds,
    /// The range that the scan was made for, if a cursor has bounded it further.
    whole: Option<Box<KeyBounds>>,
    /// Keeps the directory locked while files are read, or says why nothing can be read. Last, so
    /// that the lock goes after the view.
    lock: Result<Arc<DirectoryLock>>,
}

impl Scan {
    /// A scan of the database as it is now, or as a snapshot or transaction sees it.
    pub(crate) fn new(
        keyspace: &Arc<KeyspaceState>,
        of: Option<ScanOf>,
        bounds: KeyBounds,
        options: &ReadOptions,
    ) -> Self {
        // View first, sequence second (I3): see `read/point.rs`.
        let view = keyspace.view.load_full();
        // The view that is read holds the lock, or the database was closed before.
        let present_lock = || view.lock.clone().ok_or_else(|| keyspace.refusal(&view));
        let at_present = || ScanOf {
            sequence: published(keyspace, &view),
            lock: present_lock(),
            transaction: None,
        };
        let ScanOf { sequence, lock, transaction } = of.unwrap_or_else(at_present);
        Scan {
            own_writes: transaction.as_ref().map_or(0, |transaction| transaction.own_writes),
            transaction,
            lock,
            keyspace: Arc::clone(keyspace),
            view,
            sequence,
            clock: ReadClock::default(),
            read: options.tables,
            bounds,
            whole: None,
        }
    }

    /// The kind of an entry that this scan sees: what was written up to its sequence, and the own
    /// writes of its transaction.
    #[inline]
    pub(crate) fn visible(&self, trailer: u64) -> Option<ValueKind> {
        let (written, kind) = unpack_trailer(trailer)?;
        let is_own = || written.wrapping_sub(OWN_SEQUENCE_FIRST) < self.own_writes;
        (written <= self.sequence || is_own()).then_some(kind)
    }

    /// The largest sequence that the scan sees of the source of this trailer: of what was written,
    /// or of the own writes of its transaction.
    pub(crate) fn sees_up_to(&self, trailer: u64) -> SequenceNumber {
        match self.own_writes {
            1.. if trailer >> 8 >= OWN_SEQUENCE_FIRST => OWN_SEQUENCE_FIRST + self.own_writes - 1,
            _ => self.sequence,
        }
    }

    /// The own writes of the transaction, newest first.
    fn own(&self) -> &[Arc<Memtable>] {
        self.transaction.as_ref().map_or(&[], |transaction| &transaction.own)
    }

    /// Registers a walk of a transaction.
    pub(crate) fn read_range(&self) -> Option<ReadRange> {
        let transaction = self.transaction.as_ref()?;
        Some(ReadRange::begin(&transaction.reads, &self.keyspace, self.whole()))
    }

    /// The range that the scan was made for.
    fn whole(&self) -> &KeyBounds {
        self.whole.as_deref().unwrap_or(&self.bounds)
    }

    /// Bounds what follows to `range`, within the range that the scan was made for.
    pub(crate) fn bound(&mut self, range: KeyBounds) {
        let whole = self.whole.get_or_insert_with(|| Box::new(self.bounds.clone()));
        self.bounds = range.within(whole);
    }

    /// The error of a scan that cannot read: `Closed` if the database was closed before, or
    /// `TransactionTooLarge`.
    pub(crate) fn check(&self) -> Result<()> {
        self.lock.as_ref().map_err(Error::clone).and_then(|_| self.check_step())?;
        let Some(transaction) = &self.transaction else { return Ok(()) };
        // Each seek of a cursor takes some memory.
        let bytes_max = self.keyspace.served.context.options.transaction_bytes_max;
        transaction.reads.lock().check_bytes(bytes_max)
    }

    /// The error of a step after `close_now`.
    #[inline]
    pub(crate) fn check_step(&self) -> Result<()> {
        self.keyspace.served.context.check_reads()
    }

    /// True if the expiring put that `source` is at counts as a tombstone.
    // Apart from the walk: most entries do not expire.
    #[cold]
    pub(crate) fn has_expired(&self, source: &Source) -> bool {
        self.clock.has_expired(source.value(), || self.keyspace.served.context.env.now())
    }

    pub(crate) fn stop(&self, timer: Timer) {
        timer.stop(&self.keyspace.counters, TimedCall::Seek);
    }

    /// Counts one scan of a user.
    pub(crate) fn count(&self) {
        self.keyspace.counters.add(Counter::Scans, 1);
    }

    /// Counts that one found no entry.
    pub(crate) fn count_empty(&self) {
        self.keyspace.counters.add(Counter::ScansEmpty, 1);
    }

    /// Notes what was passed on the way to one entry.
    #[inline]
    pub(crate) fn note_passed(&self, passed: &Passed) {
        if passed.entries > TOMBSTONES_PASSED_MAX {
            self.note_many_passed(passed);
        }
    }

    #[cold]
    fn note_many_passed(&self, passed: &Passed) {
        if passed.droppable > TOMBSTONES_PASSED_MAX {
            self.view.active.ask_for_flush();
        }
        self.keyspace.note_passed_tombstones();
    }

    /// The question to the filters of the tables, if any of them can answer it and that pays.
    fn probe(&self) -> Option<RangeProbe> {
        if !self.read.use_filters || !self.view.version.answers_ranges {
            return None;
        }
        RangeProbe::for_scan(&self.bounds, self.read, &self.keyspace.counters)
    }

    /// Makes a merge of this scan ask filters for the present bounds, from its next seek on.
    pub(crate) fn ask_for_bounds(&self, merge: &mut MergingIter<Source>) {
        let range = self.probe().map(Arc::new);
        for source in merge.children_mut() {
            if let Source::Tables(tables) = source {
                tables.skip_outside(range.clone(), None);
            }
        }
    }

    /// What the filter of a table says of the whole range, if it is the only table of its source:
    /// then a "no" spares the source. `None` if it is not asked now.
    fn ask_ahead(
        &self,
        range: Option<&RangeProbe>,
        level: usize,
        tables: &Range<usize>,
    ) -> Option<FilterVerdict> {
        // A cursor can bound itself to other ranges within the whole one.
        let range = range.filter(|_| self.whole.is_none() && tables.len() == 1)?;
        let handle = self.view.version.level(level).get(tables.start)?;
        Some(range.ask(level, &handle.table))
    }

    /// A merge of all sources that may hold keys of the whole range, without a position, and the
    /// range deletes that cover some of them. It asks filters for the present bounds.
    pub(crate) fn merge(&self, direction: Direction) -> MergeOfScan {
        let own = (self.own(), OWN_SEQUENCE_FIRST + self.own_writes.saturating_sub(1));
        let mut deletes = RangeDeleteIter::of(&self.view, self.sequence, own);
        // An `Arc` from the first source of tables on: a scan without one allocates nothing.
        let (mut range, mut shared_range) = (self.probe(), None);
        let mut sources = Vec::new();
        // What the transaction wrote is the newest.
        for (age, memtable) in self.own().iter().chain(self.view.memtables()).enumerate() {
            if memtable.is_empty() {
                continue;
            }
            for iter in memtable.iterators(direction) {
                if let Some(deletes) = &mut deletes {
                    deletes.add_memtable(age, iter.sequence_end());
                }
                add_source(&mut sources, Source::Memtable(iter));
            }
        }
        let version = &self.view.version;
        let mut add_tables = |level, tables: Range<usize>| {
            let asked = range.as_ref().or(shared_range.as_deref());
            let answer = self.ask_ahead(asked, level, &tables);
            if answer == Some(FilterVerdict::No) {
                return;
            }
            if let Some(deletes) = &mut deletes {
                deletes.add_tables(level, tables.start);
            }
            if let Some(range) = range.take() {
                shared_range = Some(Arc::new(range));
            }
            let walk = LevelIter::of_level(direction, &version.levels[level], tables, self.read);
            let mut walk = walk.counted(&self.keyspace.counters, level);
            walk.skip_outside(shared_range.clone(), answer);
            add_source(&mut sources, Source::Tables(walk));
        };
        let [newest_first, sorted @ ..] = &version.levels;
        let ends = RangeEnds::of(self.whole());
        for place in newest_first.overlapping(ends) {
            add_tables(0, place..place + 1);
        }
        for (number, level) in (1..).zip(sorted).filter(|(_, level)| !level.handles.is_empty()) {
            let tables = level.neighbours(ends);
            if !tables.is_empty() {
                add_tables(number, tables);
            }
        }
        (MergingIter::new(direction, sources), deletes)
    }

    /// The bound of the range at which a merge of that direction enters it.
    pub(crate) fn entrance(&self, direction: Direction) -> Bound<&[u8]> {
        match (direction, &self.bounds) {
            // Every key is above the empty one.
            (Direction::Forward, KeyBounds { start, .. }) if start.is_empty() => Bound::Unbounded,
            (Direction::Forward, KeyBounds { start, .. }) => Bound::Included(start),
            (Direction::Reverse, KeyBounds { end: Some(end), .. }) => Bound::Excluded(end),
            (Direction::Reverse, KeyBounds { end: None, .. }) => Bound::Unbounded,
        }
    }
}

/// Adds a source to those of a merge. There is one most often, so the first gets no spare room.
fn add_source(sources: &mut Vec<Source>, source: Source) {
    if sources.is_empty() {
        sources.reserve_exact(1);
    }
    sources.push(source);
}

/// What a walk stepped over on its way to one entry.
#[derive(Default)]
pub(crate) struct Passed {
    /// Tombstones, expired entries and `droppable` ones.
    pub entries: usize,
    /// Entries of memtables that are covered by a range delete, which a flush drops, or expired,
    /// which go with their table.
    pub droppable: usize,
}

/// A source of the merge. An enum instead of a trait object, so that each step is a direct call.
/// Its variants differ in size, but there are only a few sources.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Source {
    Memtable(MemtableIter),
    /// Tables of a sorted level, or one of level 0.
    Tables(LevelIter),
}

/// Calls a method of whichever iterator it is.
macro_rules! each {
    ($source:expr, $iter:ident => $call:expr) => {
        match $source {
            Source::Memtable($iter) => $call,
            Source::Tables($iter) => $call,
        }
    };
}

impl Source {
    #[inline]
    pub(crate) fn in_memtable(&self) -> bool {
        matches!(self, Source::Memtable(_))
    }

    /// The value after the first `time_bytes` bytes of what is stored.
    #[inline(always)]
    pub(crate) fn value_from(&self, time_bytes: usize) -> Value {
        match time_bytes {
            0 => self.value_owned(),
            _ => self.value_owned().without_front(time_bytes),
        }
    }
}

impl InternalIterator for Source {
    fn prepare_seek(&mut self, bound: Option<&[u8]>) {
        each!(self, iter => iter.prepare_seek(bound));
    }

    fn seek(&mut self, bound: Option<&[u8]>) {
        each!(self, iter => iter.seek(bound));
    }

    #[inline(always)]
    fn next(&mut self) -> bool {
        each!(self, iter => iter.next())
    }

    #[inline]
    fn valid(&self) -> bool {
        each!(self, iter => iter.valid())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        each!(self, iter => iter.key())
    }

    #[inline]
    fn value(&self) -> &[u8] {
        each!(self, iter => iter.value())
    }

    #[inline]
    fn value_owned(&self) -> Value {
        each!(self, iter => iter.value_owned())
    }

    fn status(&self) -> Result<()> {
        each!(self, iter => iter.status())
    }
}

/// A merge, and the range deletes of its sources, if there are any.
pub(crate) type MergeOfScan = (MergingIter<Source>, Option<Box<RangeDeleteIter>>);
