//! [`Iter`] and [`Keys`], the iterators that users see: a range of keys, from both ends.
//!
//! Front and back of an iterator are two one-way merges; no merge changes its direction. The back
//! one is built at the first `next_back`. Each end stops where the other end has been, so no key is
//! returned twice. After an error an iterator ends, because continuing would silently skip keys.

use crate::base::error::{Error, Result};
use crate::base::expiry::EXPIRY_BYTES;
use crate::base::iterator::api::Direction;
use crate::base::range::KeyBounds;
use crate::base::sync::Arc;
use crate::base::value::{Key, Value};
use crate::options::access::ReadOptions;
use crate::read::scan::{Scan, ScanOf, Source};
use crate::read::walk::{Backward, Forward, Found, Until};
use crate::state::keyspace::KeyspaceState;
use std::fmt;

/// The entries of a range of keys, ascending; `rev()` and `next_back` go from the end.
///
/// Items are `Result`s: an unreadable block ends the iteration with its error, and
/// [`Db::close_now`](crate::Db::close_now) with `Closed`. [`Iter::keys`] gives
/// the keys alone, and [`Iter::cursor`] moves in both directions over the same entries.
#[must_use = "iterators do nothing until they are asked for entries"]
pub struct Iter {
    front: Option<Forward>,
    back: Option<Backward>,
    /// The last user key that the back end returned: the front end stops before it.
    returned: Option<Key>,
    over: bool,
    /// After the merges: its lock covers the files that they read.
    pub(super) scan: Scan,
}

impl Iter {
    /// An iterator over the database as it is now, or as a snapshot sees it: see [`Scan::new`].
    /// Methods that make iterators cannot fail, so the only item of a refused one is the error:
    /// `Closed` if the database is closed.
    pub(crate) fn new(
        keyspace: &Arc<KeyspaceState>,
        of: Option<ScanOf>,
        bounds: KeyBounds,
        options: &ReadOptions,
    ) -> Self {
        let scan = Scan::new(keyspace, of, bounds, options);
        // An empty range of a closed database is refused, too.
        let over = scan.bounds.is_empty() && scan.check().is_ok();
        Iter { front: None, back: None, returned: None, over, scan }
    }

    /// The keys of the entries that are left, without their values: no value is copied or shared.
    pub fn keys(self) -> Keys {
        Keys(self)
    }

    /// Before a walk: counts the scan, or answers the error that refused this iterator.
    #[cold]
    fn start(&mut self) -> Result<()> {
        self.scan.check()?;
        if self.front.is_none() && self.back.is_none() {
            self.scan.count();
        }
        Ok(())
    }

    /// Moves the front end to its first entry, as [`Forward::next`].
    #[cold]
    fn start_front(&mut self) -> Result<Found> {
        self.start()?;
        let timer = self.scan.keyspace.timer();
        let front = self.front.insert(Forward::new(&self.scan));
        let until = Until { scan: &self.scan, key: self.returned.as_deref() };
        let found = front.seek(self.scan.entrance(Direction::Forward), until);
        self.scan.stop(timer);
        if found == Found::End && self.returned.is_none() && front.status().is_ok() {
            self.scan.count_empty();
        }
        Ok(found)
    }

    /// The next entry from the front: its key, and what `take` makes of its value, which begins
    /// after that many bytes of what is stored.
    #[inline]
    fn next_front<V>(&mut self, take: impl Fn(&Source, usize) -> V) -> Option<Result<(Key, V)>> {
        if self.over {
            return None;
        }
        if let Err(error) = self.scan.check_step() {
            return self.end_with(error);
        }
        let found = match &mut self.front {
            Some(front) => front.next(Until { scan: &self.scan, key: self.returned.as_deref() }),
            None => match self.start_front() {
                Ok(found) => found,
                Err(error) => return self.end_with(error),
            },
        };
        let front = self.front.as_ref()?;
        self.scan.note_passed(&front.passed);
        match found {
            Found::Put => Some(Ok((front.owned_key(), take(front.source()?, 0)))),
            Found::ExpiringPut => {
                Some(Ok((front.owned_key(), take(front.source()?, EXPIRY_BYTES))))
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
        if let Err(error) = self.scan.check_step() {
            return self.end_with(error);
        }
        let timer = self.back.is_none().then(|| self.scan.keyspace.timer());
        if self.back.is_none() {
            match self.start() {
                Ok(()) => {
                    let back = self.back.insert(Backward::new(&self.scan));
                    back.seek(self.scan.entrance(Direction::Reverse), &self.scan);
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
        self.scan.note_passed(&back.passed);
        if let Some(timer) = timer {
            self.scan.stop(timer);
            if item.is_none() && self.front.is_none() {
                self.scan.count_empty();
            }
        }
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
