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
//! it. It reads at the sequence that was published when it was created, and compares all expiring
//! entries with one time, fixed at the first of them. After an error an iterator ends, because
//! continuing would silently skip keys.
//!
//! Tables whose filter proves that they hold no key of the range are skipped: see
//! `tree::range_filter`. What range deletes hide is passed: see `mask`.

use crate::base::error::{Error, Result};
use crate::base::expiry::{EXPIRY_BYTES, ReadClock};
use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::iterator::merging::MergingIter;
use crate::base::key::{
    INTERNAL_KEY_TRAILER_BYTES, SequenceNumber, ValueKind, put_key_with_trailer,
    split_internal_key, unpack_trailer,
};
use crate::base::range::KeyBounds;
use crate::base::stats::counters::Counter;
use crate::base::sync::Arc;
use crate::base::value::{INLINE_BYTES, Key, Value};
use crate::env::directory_lock::DirectoryLock;
use crate::memtable::memtable::MemtableIter;
use crate::options::access::ReadOptions;
use crate::read::mask::Mask;
use crate::read::point::published;
use crate::state::keyspace::KeyspaceState;
use crate::state::read_view::ReadView;
use crate::state::shared::{Shared, TOMBSTONES_PASSED_MAX};
use crate::tree::level_iter::LevelIter;
use crate::tree::range_filter::RangeFilter;
use std::fmt;
use std::ops::{Bound, Range};

/// What an iterator or a cursor reads: the entries of a range of keys, in one view, at one
/// sequence.
pub(crate) struct Scan {
    shared: Arc<Shared>,
    keyspace: Arc<KeyspaceState>,
    view: Arc<ReadView>,
    /// What is read at.
    pub(crate) sequence: SequenceNumber,
    /// What expiring entries are compared with.
    clock: ReadClock,
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
            clock: ReadClock::default(),
            fill_cache: options.fill_cache,
            use_filters: options.use_filters,
            bounds,
        }
    }

    /// The error of a scan that cannot read: `Closed` if the database was closed before.
    pub(crate) fn check(&self) -> Result<()> {
        self.lock.as_ref().map(|_| ()).map_err(Error::clone)
    }

    /// True if the expiring put that `source` is at counts as a tombstone.
    // Apart from the walk: most entries do not expire.
    #[cold]
    fn has_expired(&self, source: &Source) -> bool {
        self.clock.has_expired(source.value(), || self.shared.env.now())
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

    /// The question to the filters of the tables, if any of them can answer it.
    fn range_filter(&self) -> Option<Arc<RangeFilter>> {
        if !self.use_filters || !self.view.version.holds_prefixes() {
            return None;
        }
        let (start, end) = self.bounds.half_open();
        Some(Arc::new(RangeFilter::new(&start, end.as_deref(), &self.keyspace.counters)))
    }

    /// A merge of all sources that may hold keys of the range, without a position, and the range
    /// deletes that hide some of them.
    pub(crate) fn merge(&self, direction: Direction) -> Masked {
        let mut mask = Mask::of(&self.view, self.sequence);
        let range = self.range_filter();
        // Most often there is one source.
        let mut sources = Vec::with_capacity(1);
        for (age, memtable) in self.view.memtables().enumerate() {
            if memtable.is_empty() {
                continue;
            }
            for iter in memtable.iterators(direction) {
                if let Some(mask) = &mut mask {
                    mask.add_memtable(age, iter.sequence_end());
                }
                sources.push(Source::Memtable(iter));
            }
        }
        let version = &self.view.version;
        let mut add_tables = |level, tables: Range<usize>| {
            if let Some(mask) = &mut mask {
                mask.add_tables(level, tables.start);
            }
            let walk = LevelIter::of_level(direction, version, level, tables, self.fill_cache);
            let walk = walk.counted(&self.keyspace.counters, level);
            sources.push(Source::Tables(match &range {
                Some(range) => walk.within(Arc::clone(range), level),
                None => walk,
            }));
        };
        let [newest_first, sorted @ ..] = &version.levels;
        for place in newest_first.overlapping(&self.bounds) {
            add_tables(0, place..place + 1);
        }
        for (number, level) in (1..).zip(sorted).filter(|(_, level)| !level.handles.is_empty()) {
            let tables = level.neighbours(&self.bounds);
            if !tables.is_empty() {
                add_tables(number, tables);
            }
        }
        (MergingIter::new(direction, sources), mask)
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

    /// A merge without a position, or the error that refused this iterator.
    #[cold]
    fn start(&mut self, direction: Direction) -> Result<Masked> {
        self.scan.check()?;
        if self.front.is_none() && self.back.is_none() {
            self.scan.count();
        }
        Ok(self.scan.merge(direction))
    }

    /// Moves the front end to its first entry, as [`Forward::next`].
    #[cold]
    fn start_front(&mut self) -> Result<Found> {
        let merge = self.start(Direction::Forward)?;
        let front = self.front.insert(Forward::new(merge));
        let until = Until { scan: &self.scan, key: self.returned.as_deref() };
        Ok(front.seek(self.scan.entrance(Direction::Forward), until))
    }

    /// The next entry from the front: its key, and what `take` makes of its value, which begins
    /// after that many bytes of what is stored.
    #[inline]
    fn next_front<V>(&mut self, take: impl Fn(&Source, usize) -> V) -> Option<Result<(Key, V)>> {
        if self.over {
            return None;
        }
        let found = match &mut self.front {
            Some(front) => front.next(Until { scan: &self.scan, key: self.returned.as_deref() }),
            None => match self.start_front() {
                Ok(found) => found,
                Err(error) => return self.end_with(error),
            },
        };
        let front = self.front.as_ref()?;
        self.scan.note_passed(front.passed);
        match found {
            Found::Put => Some(Ok((front.key.to_owned(), take(front.source()?, 0)))),
            Found::ExpiringPut => {
                Some(Ok((front.key.to_owned(), take(front.source()?, EXPIRY_BYTES))))
            }
            Found::End => {
                self.over = true;
                front.status().err().map(Err)
            }
        }
    }

    /// The next entry from the back, as [`Iter::next_front`].
    fn next_last<V>(&mut self, take: impl Fn(&Source, usize) -> V) -> Option<Result<(Key, V)>> {
        if self.over {
            return None;
        }
        if self.back.is_none() {
            match self.start(Direction::Reverse) {
                Ok((mut merge, mask)) => {
                    let direction = Direction::Reverse;
                    let bound = internal_bound(self.scan.entrance(direction), direction);
                    merge.seek(bound.as_deref());
                    self.back = Some(Backward::new((merge, mask)));
                }
                Err(error) => return self.end_with(error),
            }
        }
        // The front end is at the last entry that it returned.
        let front = self.front.as_ref().map(Forward::key);
        let (bounds, back) = (&self.scan.bounds, self.back.as_mut()?);
        let within =
            |key: &[u8]| bounds.is_after_start(key) && front.is_none_or(|front| key > front);
        let item = back.next(&self.scan, within, take);
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
        self.next_front(Source::value_from)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_last(Source::value_from)
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
        Some(self.0.next_front(|_, _| ())?.map(|(key, ())| key))
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(self.0.next_last(|_, _| ())?.map(|(key, ())| key))
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

impl Source {
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
pub(crate) type Masked = (MergingIter<Source>, Option<Box<Mask>>);

/// Where an ascending walk ends.
#[derive(Clone, Copy)]
pub(crate) struct Until<'a> {
    /// At the end of the range of this scan.
    pub scan: &'a Scan,
    /// And before this key.
    pub key: Option<&'a [u8]>,
}

impl Until<'_> {
    #[inline]
    fn covers(&self, key: &[u8]) -> bool {
        self.scan.bounds.is_before_end(key) && self.key.is_none_or(|end| key < end)
    }
}

/// What an ascending walk has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A put.
    Put,
    /// An expiring put that has not expired: its stored value begins with the time.
    ExpiringPut,
    /// Nothing: the walk is at its end, or at an error of the merge.
    End,
}

/// Ascending: the first visible version of a user key is its newest.
pub(crate) struct Forward {
    /// At the entry that was found last.
    merge: MergingIter<Source>,
    /// The range deletes of the sources, if there are any.
    mask: Option<Box<Mask>>,
    /// Its user key: the other versions of it are older.
    key: FoundKey,
    /// Tombstones that the last call passed.
    pub(crate) passed: usize,
}

impl Forward {
    pub(crate) fn new((merge, mask): Masked) -> Self {
        Forward { merge, mask, key: FoundKey::default(), passed: 0 }
    }

    /// The user key of the entry that was found.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.key.bytes()
    }

    /// The source at the entry that was found.
    #[inline]
    pub(crate) fn source(&self) -> Option<&Source> {
        self.merge.current()
    }

    /// The error that ended the walk, if there was one.
    pub(crate) fn status(&self) -> Result<()> {
        self.merge.status()
    }

    /// Goes to the first entry from `from` on, as [`Forward::next`].
    pub(crate) fn seek(&mut self, from: Bound<&[u8]>, until: Until<'_>) -> Found {
        self.merge.seek(internal_bound(from, Direction::Forward).as_deref());
        self.key.clear();
        self.find(until)
    }

    /// Goes to the next entry that is visible, and neither a tombstone nor expired.
    // Not inlined: iterators and cursors share one copy with all steps below it inlined.
    #[inline(never)]
    pub(crate) fn next(&mut self, until: Until<'_>) -> Found {
        self.merge.next();
        self.find(until)
    }

    /// Goes on, from where the merge is, to the first entry that counts.
    #[inline(always)]
    fn find(&mut self, until: Until<'_>) -> Found {
        match self.mask {
            None => self.find_first::<false>(until),
            Some(_) => self.find_unhidden(until),
        }
    }

    /// As `find`, past the entries that range deletes hide.
    // Apart from the walk: most scans meet no range delete.
    #[cold]
    fn find_unhidden(&mut self, until: Until<'_>) -> Found {
        self.find_first::<true>(until)
    }

    #[inline(always)]
    fn find_first<const MASKED: bool>(&mut self, until: Until<'_>) -> Found {
        let sequence = until.scan.sequence;
        self.passed = 0;
        while let Some(source) = self.merge.current() {
            let Some((key, trailer)) = split_internal_key(source.key()) else { break };
            if !self.key.is(key)
                && let Some(kind) = visible(trailer, sequence)
            {
                if !until.covers(key) {
                    return Found::End;
                }
                if MASKED
                    && let Some(mask) = &mut self.mask
                    && mask.hides(key, trailer >> 8)
                {
                    // The older versions of the key are hidden, too.
                    mask.pass_up(&mut self.merge, |key| until.covers(key));
                    continue;
                }
                self.key.set(key);
                match kind {
                    ValueKind::Put => return Found::Put,
                    ValueKind::ExpiringPut if !until.scan.has_expired(source) => {
                        return Found::ExpiringPut;
                    }
                    ValueKind::ExpiringPut | ValueKind::Tombstone => self.passed += 1,
                }
            }
            self.merge.next();
        }
        Found::End
    }
}

/// The user key that a walk found last. It keeps its memory.
struct FoundKey {
    /// A key of at most as many bytes as a [`Key`] has inline.
    short: [u8; INLINE_BYTES],
    /// `usize::MAX` if there is no key yet.
    len: usize,
    /// Any other.
    long: Vec<u8>,
}

impl Default for FoundKey {
    fn default() -> Self {
        FoundKey { short: [0; INLINE_BYTES], len: usize::MAX, long: Vec::new() }
    }
}

impl FoundKey {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.short.get(..self.len).unwrap_or(&self.long)
    }

    #[inline(always)]
    fn to_owned(&self) -> Key {
        match self.len <= INLINE_BYTES {
            true => Key::of_inline(&self.short, self.len),
            false => self.long_to_owned(),
        }
    }

    #[inline(never)]
    fn long_to_owned(&self) -> Key {
        Key::from(&self.long[..])
    }

    fn clear(&mut self) {
        self.len = usize::MAX;
    }

    #[inline(always)]
    fn set(&mut self, key: &[u8]) {
        self.len = key.len();
        // Pieces of a fixed size, which may overlap: a copy of any length would call `memcpy`.
        match (key.first_chunk::<16>(), key.last_chunk::<16>()) {
            (Some(first), Some(last)) if key.len() <= INLINE_BYTES => {
                self.short[..16].copy_from_slice(first);
                self.short[key.len() - 16..key.len()].copy_from_slice(last);
            }
            _ => self.set_any(key),
        }
    }

    #[inline(never)]
    fn set_any(&mut self, key: &[u8]) {
        match self.short.get_mut(..key.len()) {
            Some(short) => short.copy_from_slice(key),
            None => {
                self.long.clear();
                self.long.extend_from_slice(key);
            }
        }
    }

    /// Whether it is this key. Neighbours in sorted order that differ mostly do so at the end.
    #[inline(always)]
    fn is(&self, key: &[u8]) -> bool {
        self.len == key.len() && {
            let own = self.bytes();
            own.last_chunk::<8>() == key.last_chunk::<8>() && own == key
        }
    }
}

/// Descending: the last visible version of a user key is its newest.
pub(crate) struct Backward {
    /// Before each call it is at the last version of a user key.
    pub(crate) merge: MergingIter<Source>,
    /// The range deletes of the sources, if there are any.
    mask: Option<Box<Mask>>,
    /// Tombstones that the last call passed.
    pub(crate) passed: usize,
}

impl Backward {
    pub(crate) fn new((merge, mask): Masked) -> Self {
        Backward { merge, mask, passed: 0 }
    }

    /// The last entry from here on that is visible, and neither a tombstone nor expired: its key,
    /// and what `take` makes of its value, which begins after that many bytes of what is stored.
    pub(crate) fn next<V>(
        &mut self,
        scan: &Scan,
        within: impl Fn(&[u8]) -> bool,
        take: impl Fn(&Source, usize) -> V,
    ) -> Option<Result<(Key, V)>> {
        // The newest visible version so far of the current user key; without a value, it is gone.
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
            if let Some(kind) = visible(trailer, scan.sequence) {
                if let Some(mask) = &mut self.mask
                    && mask.hides(key, trailer >> 8)
                {
                    // A newer version of the key may follow in another child.
                    mask.pass_down(&mut self.merge, |key| scan.bounds.is_after_start(key));
                    continue;
                }
                let value = match kind {
                    ValueKind::Put => Some(take(source, 0)),
                    ValueKind::ExpiringPut if !scan.has_expired(source) => {
                        Some(take(source, EXPIRY_BYTES))
                    }
                    ValueKind::ExpiringPut | ValueKind::Tombstone => None,
                };
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
