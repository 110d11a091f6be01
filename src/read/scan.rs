//! The iterators that users see: a range of keys, newest visible versions only, from both ends.
//!
//! Front and back are two one-way merges over one read view; no merge changes its direction. The
//! back one is built at the first `next_back`. Each end stops where the other end has been, so no
//! key is returned twice.
//!
//! An iterator is `'static`: it owns the shared state and its view, and so every memtable and table
//! in it. It reads at the sequence that was published when it was created. After an error it ends,
//! because continuing would silently skip keys.
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
use crate::state::read_view::ReadView;
use crate::state::shared::{Shared, TOMBSTONES_PASSED_MAX};
use crate::tree::handle::TableHandle;
use crate::tree::level_iter::LevelIter;
use crate::tree::range_filter::RangeFilter;
use std::fmt;
use std::ops::Bound;

/// The entries of a range of keys, ascending; `rev()` and `next_back` go from the end.
///
/// Items are `Result`s: an unreadable block ends the iteration with its error.
#[must_use = "iterators do nothing until they are asked for entries"]
pub struct Iter {
    shared: Arc<Shared>,
    view: Arc<ReadView>,
    sequence: SequenceNumber,
    fill_cache: bool,
    use_filters: bool,
    bounds: KeyBounds,
    front: Option<Forward>,
    back: Option<Backward>,
    refused: Option<Error>,
    over: bool,
    /// Keeps the directory locked while files are read. Last, so that it goes after all of them.
    _lock: Option<Arc<DirectoryLock>>,
}

impl Iter {
    /// An iterator over the database as it is now, or as a snapshot sees it: then by the sequence
    /// of the snapshot and its share in the directory's lock. Methods that make iterators cannot
    /// fail, so the only item of a refused one is the error: `Closed` if the database is closed.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        snapshot: Option<(SequenceNumber, Result<Arc<DirectoryLock>>)>,
        bounds: KeyBounds,
        options: &ReadOptions,
    ) -> Self {
        // View first, sequence second (I3): see `read/point.rs`.
        let view = shared.view.load_full();
        // The view that is read holds the lock, or the database was closed before.
        let at_present = || (published(shared, &view), view.lock.clone().ok_or(Error::Closed));
        let (sequence, lock) = snapshot.unwrap_or_else(at_present);
        let lock = lock.and_then(|lock| shared.process.check().map(|()| lock));
        let refused = lock.as_ref().err().cloned();
        Iter {
            // An empty range of a closed database is refused, too.
            over: bounds.is_empty() && refused.is_none(),
            shared: Arc::clone(shared),
            view,
            _lock: lock.ok(),
            sequence,
            fill_cache: options.fill_cache,
            use_filters: options.use_filters,
            bounds,
            front: None,
            back: None,
            refused,
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
        Some(Arc::new(RangeFilter::new(&start, end.as_deref(), &self.shared.counters)))
    }

    fn merge(&self, direction: Direction) -> MergingIter<Source> {
        let range = self.range_filter();
        let memtables = self.view.memtables();
        let iterators = memtables.flat_map(|memtable| memtable.iterators(direction));
        let mut sources: Vec<_> = iterators.map(Source::Memtable).collect();
        let mut add_tables = |level, tables| {
            let walk = LevelIter::new(direction, tables, self.fill_cache);
            let walk = walk.counted(&self.shared.counters, level);
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

    /// A merge at its first entry, or the error that refused this iterator.
    #[cold]
    fn start(&mut self, direction: Direction) -> Result<MergingIter<Source>> {
        self.refused.take().map_or(Ok(()), Err)?;
        if self.front.is_none() && self.back.is_none() {
            self.shared.counters.add(Counter::Scans, 1);
        }
        let mut merge = self.merge(direction);
        let bound = match direction {
            Direction::Forward => &self.bounds.start,
            Direction::Reverse => &self.bounds.end,
        };
        merge.seek(internal_bound(bound, direction).as_deref());
        Ok(merge)
    }

    #[inline]
    fn next_front(&mut self) -> Option<Result<(Key, Value)>> {
        if self.front.is_none() {
            match self.start(Direction::Forward) {
                Ok(merge) => self.front = Some(Forward { merge, passed: 0 }),
                Err(error) => return Some(Err(error)),
            }
        }
        let end = self.back.as_ref().and_then(|back| back.returned.as_deref());
        let front = self.front.as_mut()?;
        let item = front.next(self.sequence, |key| {
            self.bounds.is_before_end(key) && end.is_none_or(|end| key < end)
        });
        if front.passed > TOMBSTONES_PASSED_MAX {
            self.shared.note_passed_tombstones();
        }
        item
    }

    fn next_last(&mut self) -> Option<Result<(Key, Value)>> {
        if self.back.is_none() {
            match self.start(Direction::Reverse) {
                Ok(merge) => self.back = Some(Backward { merge, returned: None, passed: 0 }),
                Err(error) => return Some(Err(error)),
            }
        }
        let front = self.front.as_ref().map(|front| &front.merge);
        if let Some(error) = front.and_then(|front| front.status().err()) {
            return Some(Err(error));
        }
        let back = self.back.as_mut()?;
        let item = back.next(self.sequence, |key| {
            let above = |front: &MergingIter<_>| front.valid() && key >= user_key(front.key());
            self.bounds.is_after_start(key) && front.is_none_or(above)
        });
        if back.passed > TOMBSTONES_PASSED_MAX {
            self.shared.note_passed_tombstones();
        }
        item
    }
}

impl Iterator for Iter {
    type Item = Result<(Key, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let item = self.next_front();
        self.over = !matches!(item, Some(Ok(_)));
        item
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let item = self.next_last();
        self.over = !matches!(item, Some(Ok(_)));
        item
    }
}

impl std::iter::FusedIterator for Iter {}

impl fmt::Debug for Iter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter")
            .field("bounds", &self.bounds)
            .field("sequence", &self.sequence)
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}

/// A source of the merge. An enum instead of a trait object, so that each step is a direct call.
/// Its variants differ in size, but there are only a few sources.
#[allow(clippy::large_enum_variant)]
enum Source {
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
struct Forward {
    /// Between two calls it is at the first entry of the next user key. The back end stops there.
    merge: MergingIter<Source>,
    /// Tombstones on the way to the last entry.
    passed: usize,
}

impl Forward {
    #[inline]
    fn next(
        &mut self,
        sequence: SequenceNumber,
        within: impl Fn(&[u8]) -> bool,
    ) -> Option<Result<(Key, Value)>> {
        self.passed = 0;
        while let Some(source) = self.merge.current() {
            let Some((key, trailer)) = split_internal_key(source.key()) else { break };
            let visible = unpack_trailer(trailer).filter(|(written, _)| *written <= sequence);
            let Some((_, kind)) = visible else {
                self.merge.next();
                continue;
            };
            if !within(key) {
                return None;
            }
            // Key and value are built before the step and returned after it: reading them back at
            // once would stall on store forwarding.
            let key = Key::short(key);
            let value = (kind == ValueKind::Put).then(|| source.value_owned());
            self.pass(&key);
            if let Some(value) = value {
                return Some(Ok((key, value)));
            }
            self.passed += 1;
        }
        self.merge.status().err().map(Err)
    }

    /// Goes to the next user key: the other versions of this one are older.
    #[inline]
    fn pass(&mut self, key: &[u8]) {
        while self.merge.next() && same_key(user_key(self.merge.key()), key) {}
    }
}

/// Descending: the last visible version of a user key is its newest.
struct Backward {
    merge: MergingIter<Source>,
    /// The last user key that was returned: the front end stops before it.
    returned: Option<Key>,
    /// Tombstones on the way to the last entry.
    passed: usize,
}

impl Backward {
    fn next(
        &mut self,
        sequence: SequenceNumber,
        within: impl Fn(&[u8]) -> bool,
    ) -> Option<Result<(Key, Value)>> {
        // The newest visible version so far of the current user key; a tombstone has no value.
        let mut candidate: Option<(Key, Option<Value>)> = None;
        self.passed = 0;
        while self.merge.valid() {
            let Some((key, trailer)) = split_internal_key(self.merge.key()) else { break };
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
            match unpack_trailer(trailer) {
                Some((written, kind)) if written <= sequence => {
                    let value = (kind == ValueKind::Put).then(|| self.merge.value_owned());
                    match &mut candidate {
                        Some((_, newest)) => *newest = value,
                        None => candidate = Some((Key::from(key), value)),
                    }
                }
                _ => {}
            }
            self.merge.next();
        }
        if let Err(error) = self.merge.status() {
            return Some(Err(error));
        }
        let Some((key, Some(value))) = candidate else { return None };
        self.returned = Some(key.clone());
        Some(Ok((key, value)))
    }
}

/// Equality of neighbours in sorted order: two different ones mostly differ in the last byte too.
#[inline]
fn same_key(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.last() == b.last() && a == b
}

/// Where a merge over `bound` starts: before every version of its key, or after all of them (see
/// `base/key.rs`). `None` without a bound.
fn internal_bound(bound: &Bound<Vec<u8>>, direction: Direction) -> Option<Vec<u8>> {
    let (key, before_versions) = match bound {
        Bound::Unbounded => return None,
        Bound::Included(key) => (key, direction == Direction::Forward),
        Bound::Excluded(key) => (key, direction == Direction::Reverse),
    };
    let mut internal = Vec::with_capacity(key.len() + INTERNAL_KEY_TRAILER_BYTES);
    put_key_with_trailer(&mut internal, key, if before_versions { u64::MAX } else { 0 });
    Some(internal)
}
