//! The iterators that users see: a range of keys, newest visible versions only, from both ends.
//!
//! A [`Scan`] says what is read: a range of keys in one view, at one sequence. It builds the merges
//! of iterators and of cursors (`cursor`). [`Forward`] and [`Backward`] find the entries that are
//! visible in a merge.
//!
//! Front and back of an iterator are two one-way merges; no merge changes its direction. The back
//! one is built at the first `next_back`. Each end stops where the other end has been, so no key is
//! returned twice.
//!
//! A scan is `'static`: it owns the shared state and its view, and so every memtable and table in
//! it. It reads at the sequence that was published when it was created. After an error an iterator
//! ends, because continuing would silently skip keys.
//!
//! Tables whose filter proves that they hold no key of the range are skipped: see
//! `tree::range_filter`.

use crate::base::error::{Error, Result};
use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::iterator::merging::MergingIter;
use crate::base::key::{
    INTERNAL_KEY_TRAILER_BYTES, SequenceNumber, ValueKind, put_key_with_trailer,
    split_internal_key, unpack_trailer, user_key,
};
use crate::base::levels::LEVELS;
use crate::base::range::KeyBounds;
use crate::base::stats::counters::Counter;
use crate::base::sync::Arc;
use crate::base::value::{Key, Value};
use crate::env::directory_lock::DirectoryLock;
use crate::memtable::memtable::MemtableIter;
use crate::options::access::ReadOptions;
use crate::read::point::published;
use crate::state::keyspace::KeyspaceState;
use crate::state::read_view::ReadView;
use crate::state::shared::{Shared, TOMBSTONES_PASSED_MAX};
use crate::tree::handle::TableHandle;
use crate::tree::level_iter::LevelIter;
use crate::tree::range_filter::RangeFilter;
use std::fmt;
use std::ops::Bound;

/// What an iterator or a cursor reads: the entries of a range of keys, in one view, at one
/// sequence.
pub(crate) struct Scan {
    shared: Arc<Shared>,
    keyspace: Arc<KeyspaceState>,
    view: Arc<ReadView>,
    /// What is read at.
    pub(crate) sequence: SequenceNumber,
    fill_cache: bool,
    use_filters: bool,
    /// The range of keys.
    pub(crate) bounds: KeyBounds,
    /// Keeps the directory locked while files are read, or says why nothing can be read. Last, so
    /// that the lock goes after the view.
    lock: Result<Arc<DirectoryLock>>,
}

impl Scan {
    /// A scan of the database as it is now, or as a snapshot sees it: then by the sequence of the
    /// snapshot and its share in the directory's lock.
    fn new(
        shared: &Arc<Shared>,
        keyspace: &Arc<KeyspaceState>,
        snapshot: Option<(SequenceNumber, Result<Arc<DirectoryLock>>)>,
        bounds: KeyBounds,
        options: &ReadOptions,
    ) -> Self {
        // View first, sequence second (I3): see `read/point.rs`.
        let view = keyspace.view.load_full();
        // The view that is read holds the lock, or the database was closed before.
        let present_lock = || view.lock.clone().ok_or_else(|| keyspace.refusal(&view));
        let at_present = || (published(shared, &view), present_lock());
        let (sequence, lock) = snapshot.unwrap_or_else(at_present);
        Scan {
            lock: lock.and_then(|lock| shared.process.check().map(|()| lock)),
            shared: Arc::clone(shared),
            keyspace: Arc::clone(keyspace),
            view,
            sequence,
            fill_cache: options.fill_cache,
            use_filters: options.use_filters,
            bounds,
        }
    }

    /// The error of a scan that cannot read: `Closed` if the database was closed before.
    pub(crate) fn check(&self) -> Result<()> {
        self.lock.as_ref().map(|_| ()).map_err(Error::clone)
    }

    /// Counts one scan of a user.
    pub(crate) fn count(&self) {
        self.keyspace.counters.add(Counter::Scans, 1);
    }

    /// Notes how many tombstones were passed on the way to one entry.
    #[inline]
    pub(crate) fn note_passed(&self, tombstones: usize) {
        if tombstones > TOMBSTONES_PASSED_MAX {
            self.shared.note_passed_tombstones(&self.keyspace);
        }
    }

    /// The tables of a level that may hold keys of the range.
    fn overlapping(&self, level: usize) -> impl Iterator<Item = &Arc<TableHandle>> {
        let handles = self.view.version.level(level).iter();
        handles.filter(|handle| handle.meta.overlaps(&self.bounds))
    }

    /// The question to the filters of the tables, if any of them can answer it.
    fn range_filter(&self) -> Option<Arc<RangeFilter>> {
        if !self.use_filters || !self.view.version.holds_prefixes() {
            return None;
        }
        let (start, end) = self.bounds.half_open();
        Some(Arc::new(RangeFilter::new(&start, end.as_deref(), &self.keyspace.counters)))
    }

    /// A merge of all sources that may hold keys of the range, without a position.
    pub(crate) fn merge(&self, direction: Direction) -> MergingIter<Source> {
        let range = self.range_filter();
        let memtables = self.view.memtables();
        let iterators = memtables.flat_map(|memtable| memtable.iterators(direction));
        let mut sources: Vec<_> = iterators.map(Source::Memtable).collect();
        let mut add_tables = |level, tables| {
            let walk = LevelIter::new(direction, tables, self.fill_cache);
            let walk = walk.counted(&self.keyspace.counters, level);
            sources.push(Source::Tables(match &range {
                Some(range) => walk.within(Arc::clone(range), level),
                None => walk,
            }));
        };
        for handle in self.overlapping(0) {
            add_tables(0, vec![Arc::clone(handle)]);
        }
        for level in 1..LEVELS {
            let tables: Vec<_> = self.overlapping(level).cloned().collect();
            if !tables.is_empty() {
                add_tables(level, tables);
            }
        }
        MergingIter::new(direction, sources)
    }

    /// The bound of the range at which a merge of that direction enters it.
    pub(crate) fn entrance(&self, direction: Direction) -> Bound<&[u8]> {
        let bound = match direction {
            Direction::Forward => &self.bounds.start,
            Direction::Reverse => &self.bounds.end,
        };
        bound.as_ref().map(Vec::as_slice)
    }
}

/// The entries of a range of keys, ascending; `rev()` and `next_back` go from the end.
///
/// Items are `Result`s: an unreadable block ends the iteration with its error. [`Iter::keys`] gives
/// the keys alone, and [`Iter::cursor`] moves in both directions over the same entries.
#[must_use = "iterators do nothing until they are asked for entries"]
pub struct Iter {
    front: Option<Forward>,
    back: Option<Backward>,
    /// The last user key that the back end returned: the front end stops before it.
    returned: Option<Key>,
    over: bool,
    /// After the merges: its lock covers the files that they read.
    scan: Scan,
}

impl Iter {
    /// An iterator over the database as it is now, or as a snapshot sees it: see [`Scan::new`].
    /// Methods that make iterators cannot fail, so the only item of a refused one is the error:
    /// `Closed` if the database is closed.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        keyspace: &Arc<KeyspaceState>,
        snapshot: Option<(SequenceNumber, Result<Arc<DirectoryLock>>)>,
        bounds: KeyBounds,
        options: &ReadOptions,
    ) -> Self {
        let scan = Scan::new(shared, keyspace, snapshot, bounds, options);
        // An empty range of a closed database is refused, too.
        let over = scan.bounds.is_empty() && scan.check().is_ok();
        Iter { front: None, back: None, returned: None, over, scan }
    }

    /// The keys of the entries that are left, without their values: no value is copied or shared.
    pub fn keys(self) -> Keys {
        Keys(self)
    }

    /// What the iterator reads: all of its range.
    pub(crate) fn into_scan(self) -> Scan {
        self.scan
    }

    /// A merge at its first entry, or the error that refused this iterator.
    #[cold]
    fn start(&mut self, direction: Direction) -> Result<MergingIter<Source>> {
        self.scan.check()?;
        if self.front.is_none() && self.back.is_none() {
            self.scan.count();
        }
        let mut merge = self.scan.merge(direction);
        merge.seek(internal_bound(self.scan.entrance(direction), direction).as_deref());
        Ok(merge)
    }

    /// The next entry from the front: its key, and what `take` makes of its value.
    #[inline]
    fn next_front<V>(&mut self, take: impl Fn(&Source) -> V) -> Option<Result<(Key, V)>> {
        if self.over {
            return None;
        }
        if self.front.is_none() {
            match self.start(Direction::Forward) {
                Ok(merge) => self.front = Some(Forward::new(merge)),
                Err(error) => return self.end_with(error),
            }
        }
        let (end, bounds) = (self.returned.as_deref(), &self.scan.bounds);
        let front = self.front.as_mut()?;
        let within = |key: &[u8]| bounds.is_before_end(key) && end.is_none_or(|end| key < end);
        let item = front.next(self.scan.sequence, within, take);
        self.scan.note_passed(front.passed);
        self.over = !matches!(item, Some(Ok(_)));
        item
    }

    /// The next entry from the back, as [`Iter::next_front`].
    fn next_last<V>(&mut self, take: impl Fn(&Source) -> V) -> Option<Result<(Key, V)>> {
        if self.over {
            return None;
        }
        if self.back.is_none() {
            match self.start(Direction::Reverse) {
                Ok(merge) => self.back = Some(Backward::new(merge)),
                Err(error) => return self.end_with(error),
            }
        }
        let front = self.front.as_ref().map(|front| &front.merge);
        if let Some(error) = front.and_then(|front| front.status().err()) {
            return self.end_with(error);
        }
        let (bounds, back) = (&self.scan.bounds, self.back.as_mut()?);
        let above =
            |key: &[u8], front: &MergingIter<_>| front.valid() && key >= user_key(front.key());
        let within =
            |key: &[u8]| bounds.is_after_start(key) && front.is_none_or(|front| above(key, front));
        let item = back.next(self.scan.sequence, within, take);
        self.scan.note_passed(back.passed);
        match &item {
            Some(Ok((key, _))) => self.returned = Some(key.clone()),
            _ => self.over = true,
        }
        item
    }

    fn end_with<T>(&mut self, error: Error) -> Option<Result<T>> {
        self.over = true;
        Some(Err(error))
    }
}

impl Iterator for Iter {
    type Item = Result<(Key, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_front(Source::value_owned)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_last(Source::value_owned)
    }
}

impl std::iter::FusedIterator for Iter {}

impl fmt::Debug for Iter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter")
            .field("bounds", &self.scan.bounds)
            .field("sequence", &self.scan.sequence)
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}

/// The keys of a range, ascending; `rev()` and `next_back` go from the end. Made by [`Iter::keys`].
///
/// It finds the same keys as the [`Iter`] and ends with the same errors.
///
/// ```
/// # fn main() -> siftdb::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = siftdb::Db::open(directory.path().join("db"))?;
/// db.put("ada", "1815")?;
/// db.put("grace", "1906")?;
/// let keys: siftdb::Result<Vec<_>> = db.range("a"..).keys().collect();
/// assert_eq!(keys?, ["ada", "grace"]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "iterators do nothing until they are asked for keys"]
pub struct Keys(Iter);

impl Iterator for Keys {
    type Item = Result<Key>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next_front(|_| ())?.map(|(key, ())| key))
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(self.0.next_last(|_| ())?.map(|(key, ())| key))
    }
}

impl std::iter::FusedIterator for Keys {}

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

impl InternalIterator for Source {
    fn seek(&mut self, bound: Option<&[u8]>) {
        each!(self, iter => iter.seek(bound));
    }

    #[inline]
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

/// Ascending: the first visible version of a user key is its newest.
pub(crate) struct Forward {
    /// Before each call of `next` and `find` it is at the first version of a user key. The back end
    /// of an iterator stops there.
    pub(crate) merge: MergingIter<Source>,
    /// Tombstones that the last call passed.
    pub(crate) passed: usize,
}

impl Forward {
    pub(crate) fn new(merge: MergingIter<Source>) -> Self {
        Forward { merge, passed: 0 }
    }

    /// The entry that the last call of `find` found, until the next step: user key and value.
    #[inline]
    pub(crate) fn entry(&self) -> Option<(&[u8], &[u8])> {
        let source = self.merge.current()?;
        Some((user_key(source.key()), source.value()))
    }

    /// Goes from the first version of a user key to the first entry from there on that is visible
    /// and no tombstone. False if there is none in the range, or after an error of the merge.
    pub(crate) fn find(
        &mut self,
        sequence: SequenceNumber,
        within: impl Fn(&[u8]) -> bool,
    ) -> bool {
        self.passed = 0;
        while let Some(source) = self.merge.current() {
            let Some((key, trailer)) = split_internal_key(source.key()) else { break };
            match visible(trailer, sequence) {
                None => {
                    self.merge.next();
                }
                Some(_) if !within(key) => return false,
                Some(ValueKind::Put) => return true,
                Some(ValueKind::Tombstone) => {
                    let key = Key::short(key);
                    self.pass(&key);
                    self.passed += 1;
                }
            }
        }
        false
    }

    /// Finds the next entry like `find`, returns its key and what `take` makes of its value, and
    /// moves on to the next user key.
    // A loop of its own: calling `find` costs a scan 3 to 8 % more instructions.
    #[inline]
    fn next<V>(
        &mut self,
        sequence: SequenceNumber,
        within: impl Fn(&[u8]) -> bool,
        take: impl Fn(&Source) -> V,
    ) -> Option<Result<(Key, V)>> {
        self.passed = 0;
        while let Some(source) = self.merge.current() {
            let Some((key, trailer)) = split_internal_key(source.key()) else { break };
            let Some(kind) = visible(trailer, sequence) else {
                self.merge.next();
                continue;
            };
            if !within(key) {
                return None;
            }
            // Key and value are built before the step and returned after it: reading them back at
            // once would stall on store forwarding.
            let key = Key::short(key);
            let value = (kind == ValueKind::Put).then(|| take(source));
            self.pass(&key);
            if let Some(value) = value {
                return Some(Ok((key, value)));
            }
            self.passed += 1;
        }
        self.merge.status().err().map(Err)
    }

    /// Goes to the next user key: the other versions of this one are older.
    #[inline(always)]
    pub(crate) fn pass(&mut self, key: &[u8]) {
        while self.merge.next() && same_key(user_key(self.merge.key()), key) {}
    }
}

/// Descending: the last visible version of a user key is its newest.
pub(crate) struct Backward {
    /// Before each call it is at the last version of a user key.
    pub(crate) merge: MergingIter<Source>,
    /// Tombstones that the last call passed.
    pub(crate) passed: usize,
}

impl Backward {
    pub(crate) fn new(merge: MergingIter<Source>) -> Self {
        Backward { merge, passed: 0 }
    }

    /// The last entry from here on that is visible and no tombstone: its key, and what `take` makes
    /// of its value.
    pub(crate) fn next<V>(
        &mut self,
        sequence: SequenceNumber,
        within: impl Fn(&[u8]) -> bool,
        take: impl Fn(&Source) -> V,
    ) -> Option<Result<(Key, V)>> {
        // The newest visible version so far of the current user key; a tombstone has no value.
        let mut candidate: Option<(Key, Option<V>)> = None;
        self.passed = 0;
        while let Some(source) = self.merge.current() {
            let Some((key, trailer)) = split_internal_key(source.key()) else { break };
            if let Some((current, value)) = &candidate
                && **current != *key
            {
                if value.is_some() {
                    break;
                }
                candidate = None;
                self.passed += 1;
            }
            if !within(key) {
                break;
            }
            if let Some(kind) = visible(trailer, sequence) {
                let value = (kind == ValueKind::Put).then(|| take(source));
                match &mut candidate {
                    Some((_, newest)) => *newest = value,
                    None => candidate = Some((Key::from(key), value)),
                }
            }
            self.merge.next();
        }
        if let Err(error) = self.merge.status() {
            return Some(Err(error));
        }
        let (key, value) = candidate?;
        Some(Ok((key, value?)))
    }
}

/// The kind of an entry that a reader at `sequence` sees.
#[inline]
fn visible(trailer: u64, sequence: SequenceNumber) -> Option<ValueKind> {
    let (written, kind) = unpack_trailer(trailer)?;
    (written <= sequence).then_some(kind)
}

/// Equality of neighbours in sorted order: two different ones mostly differ in the last byte too.
#[inline]
fn same_key(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.last() == b.last() && a == b
}

/// Where a merge over `bound` starts: before every version of its key, or after all of them (see
/// `base/key.rs`). `None` without a bound.
pub(crate) fn internal_bound(bound: Bound<&[u8]>, direction: Direction) -> Option<Vec<u8>> {
    let (key, before_versions) = match bound {
        Bound::Unbounded => return None,
        Bound::Included(key) => (key, direction == Direction::Forward),
        Bound::Excluded(key) => (key, direction == Direction::Reverse),
    };
    let mut internal = Vec::with_capacity(key.len() + INTERNAL_KEY_TRAILER_BYTES);
    put_key_with_trailer(&mut internal, key, if before_versions { u64::MAX } else { 0 });
    Some(internal)
}
