//! [`Cursor`]: a position among the entries of a range, which moves both ways and lends its entry.
//!
//! A cursor reads what an iterator reads: a [`Scan`]. It has a forward merge and a reverse one; no
//! merge changes its direction. The cursor is at an entry of one of them. When it turns, it seeks
//! the other merge past the current key; each merge is built when it is first needed.
//!
//! A forward merge stays at the entry of the cursor, which lends key and value from there. A
//! reverse merge finds the newest version of a key only by passing it. So going back the cursor
//! holds a copy of the key and a [`Value`], which shares the memory of all but the shortest values.

use crate::base::error::{Error, Result};
use crate::base::expiry::{EXPIRY_BYTES, split_expiring};
use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::range::{KeyBounds, KeyRange};
use crate::base::value::{Key, Value};
use crate::read::iter::Iter;
use crate::read::scan::{Scan, Source};
use crate::read::walk::{Backward, Forward, Found, Until};
use std::fmt;
use std::ops::Bound;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A position among the entries of a range: it seeks, and steps in both directions.
///
/// [`Keyspace::cursor`](crate::Keyspace::cursor) makes one over all entries, and [`Iter::cursor`]
/// one over a range or prefix. A cursor sees its keyspace as it was when it was made, and keeps the
/// directory locked, as an iterator does.
///
/// It is before the first entry, at an entry, or after the last one. It begins before the first
/// entry. The methods that move it return true if it is at an entry then.
///
/// A step within a block copies no value and allocates nothing, except that a step back copies the
/// key, and the value if that has at most 30 bytes. Entries of a memtable are copied up to 32 at a
/// time, with values of up to 256 bytes. Turning around costs a seek.
///
/// ```
/// # fn main() -> siftdb::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = siftdb::Db::open(directory.path().join("db"))?;
/// for (name, year) in [("ada", "1815"), ("alan", "1912"), ("grace", "1906")] {
///     db.put(name, year)?;
/// }
/// let mut cursor = db.range("a".."n").cursor();
/// assert!(cursor.seek("al")?);
/// assert_eq!(cursor.entry(), Some((&b"alan"[..], &b"1912"[..])));
/// assert!(cursor.prev()?);
/// assert_eq!(cursor.key(), Some(&b"ada"[..]));
///
/// cursor.seek_to_first()?;
/// while let Some((name, year)) = cursor.entry() {
///     println!("{} {}", name.escape_ascii(), year.escape_ascii());
///     cursor.next()?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The methods that move fail at an unreadable or damaged block, and with `Closed` if the database
/// was closed when the cursor was made, or by [`Db::close_now`](crate::Db::close_now). Seeks of a
/// [`Transaction`](crate::Transaction) that takes too much memory fail with `TransactionTooLarge`.
/// Then the cursor is at no entry, and each further step returns the same error: stepping on would
/// silently skip keys. A seek tries again.
#[must_use = "a cursor does nothing until it is moved"]
pub struct Cursor {
    front: Option<Forward>,
    back: Option<Backward>,
    position: Position,
    /// After the merges: its lock covers the files that they read.
    scan: Scan,
}

/// Where a cursor is.
enum Position {
    /// Before the first entry of the range.
    BeforeFirst,
    /// At the entry that the forward merge is at.
    Front,
    /// As `Front`, at an expiring put.
    FrontExpiring,
    /// At this entry, which the reverse merge has passed, and when it expires, if it does.
    Back(Key, Value, Option<u64>),
    /// After the last entry of the range.
    AfterLast,
    /// Nowhere, after this error.
    Failed(Error),
}

impl Iter {
    /// A cursor over the whole range of this iterator, whichever entries it has returned.
    pub fn cursor(self) -> Cursor {
        let (position, scan) = (Position::BeforeFirst, self.scan);
        Cursor { front: None, back: None, position, scan }
    }
}

impl Cursor {
    /// Moves to the first entry whose key is `key` or larger; after the last one if there is none.
    ///
    /// # Errors
    /// See [`Cursor`].
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        if !self.scan.bounds.is_after_start(key) {
            return self.seek_to_first();
        }
        if !self.scan.bounds.is_before_end(key) {
            return self.leave(Position::AfterLast);
        }
        self.seek_forward(Some(Bound::Included(key)))
    }

    /// Moves to the last entry whose key is `key` or smaller; before the first one if there is
    /// none.
    ///
    /// # Errors
    /// See [`Cursor`].
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        if !self.scan.bounds.is_before_end(key) {
            return self.seek_to_last();
        }
        if !self.scan.bounds.is_after_start(key) {
            return self.leave(Position::BeforeFirst);
        }
        self.seek_back(Some(Bound::Included(key)))
    }

    /// Moves to the first entry whose key starts with `prefix`, and bounds all that follows to such
    /// keys, as [`seek_range`](Self::seek_range) does.
    ///
    /// # Errors
    /// See [`Cursor`].
    pub fn seek_prefix(&mut self, prefix: impl AsRef<[u8]>) -> Result<bool> {
        self.seek_range(KeyBounds::of_prefix(prefix.as_ref()))
    }

    /// Moves to the first entry of `range`, and bounds all that follows to it: every step and every
    /// seek, until the next `seek_range` or `seek_prefix`. The new bounds apply within the range
    /// that the cursor was made for, so `seek_range(..)` returns to that.
    ///
    /// Filters are asked again for each range, as for the range of an iterator
    /// ([`guide::filters`](crate::guide::filters)), and what the cursor holds is kept. So many
    /// ranges of which some are empty are read faster by one cursor than by an iterator for each.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("db"))?;
    /// use siftdb::keys::encode;
    ///
    /// for (from, to) in [(1u64, 7u64), (1, 9), (4, 1)] {
    ///     db.put(encode(&(from, to)), "")?;
    /// }
    /// let mut edges = db.cursor();
    /// let mut degrees = Vec::new();
    /// for node in 1..5u64 {
    ///     let mut degree = 0;
    ///     let mut found = edges.seek_prefix(encode(&node))?;
    ///     while found {
    ///         degree += 1;
    ///         found = edges.next()?;
    ///     }
    ///     degrees.push(degree);
    /// }
    /// assert_eq!(degrees, [2, 0, 0, 1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`Cursor`].
    pub fn seek_range(&mut self, range: impl KeyRange) -> Result<bool> {
        self.scan.bound(range.into_bounds());
        let is_further = self.front.is_some() || self.back.is_some();
        if let Some(front) = &mut self.front {
            front.take_bounds(&self.scan);
        }
        if let Some(back) = &mut self.back {
            back.take_bounds(&self.scan);
        }
        let found = self.seek_to_first()?;
        if !self.scan.bounds.is_empty() {
            if is_further {
                self.scan.count();
            }
            if !found {
                self.scan.count_empty();
            }
        }
        Ok(found)
    }

    /// Moves to the first entry of the range.
    ///
    /// # Errors
    /// See [`Cursor`].
    pub fn seek_to_first(&mut self) -> Result<bool> {
        self.seek_forward(None)
    }

    /// Moves to the last entry of the range.
    ///
    /// # Errors
    /// See [`Cursor`].
    pub fn seek_to_last(&mut self) -> Result<bool> {
        self.seek_back(None)
    }

    /// Moves to the next entry; from before the first one to the first.
    ///
    /// # Errors
    /// See [`Cursor`].
    // No `Iterator`, whose items could not borrow from it.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<bool> {
        if let Err(error) = self.scan.check_step() {
            return self.fail(error);
        }
        match &mut self.position {
            Position::BeforeFirst => self.seek_to_first(),
            Position::AfterLast => self.leave(Position::AfterLast),
            Position::Failed(error) => Err(error.clone()),
            Position::Front | Position::FrontExpiring => {
                let Some(front) = &mut self.front else { return self.leave(Position::AfterLast) };
                let found = front.next(Until { scan: &self.scan, key: None });
                self.scan.note_passed(&front.passed);
                if found == Found::Put && matches!(self.position, Position::Front) {
                    return Ok(true);
                }
                self.arrive(found)
            }
            Position::Back(key, ..) => {
                let key = key.clone();
                self.seek_forward(Some(Bound::Excluded(&key)))
            }
        }
    }

    /// Moves to the previous entry; from after the last one to the last.
    ///
    /// # Errors
    /// See [`Cursor`].
    pub fn prev(&mut self) -> Result<bool> {
        if let Err(error) = self.scan.check_step() {
            return self.fail(error);
        }
        match &self.position {
            Position::BeforeFirst => self.leave(Position::BeforeFirst),
            Position::AfterLast => self.seek_to_last(),
            Position::Failed(error) => Err(error.clone()),
            Position::Front | Position::FrontExpiring => {
                let key = self.key().unwrap_or_default().to_vec();
                self.seek_back(Some(Bound::Excluded(&key)))
            }
            Position::Back(..) => self.find_back(),
        }
    }

    /// The entry that the cursor is at: its key and its value.
    #[inline]
    #[must_use]
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        match &self.position {
            Position::Front => {
                let front = self.front.as_ref()?;
                Some((front.key(), front.source()?.value()))
            }
            Position::FrontExpiring => {
                let front = self.front.as_ref()?;
                Some((front.key(), front.source()?.value().get(EXPIRY_BYTES..)?))
            }
            Position::Back(key, value, _) => Some((key, value)),
            Position::BeforeFirst | Position::AfterLast | Position::Failed(_) => None,
        }
    }

    /// The key of the entry that the cursor is at.
    #[inline]
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.entry().map(|(key, _)| key)
    }

    /// The value of the entry that the cursor is at.
    #[inline]
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.entry().map(|(_, value)| value)
    }

    /// When the entry that the cursor is at expires; `None` if it never does. Only whole
    /// milliseconds are stored.
    #[must_use]
    pub fn expires_at(&self) -> Option<SystemTime> {
        let millis = match &self.position {
            Position::FrontExpiring => expires_at(self.front.as_ref()?.source()?)?,
            Position::Back(_, _, millis) => (*millis)?,
            _ => return None,
        };
        UNIX_EPOCH.checked_add(Duration::from_millis(millis))
    }

    /// Seeks the forward merge to `from`, a bound within the range, or to the start of the range,
    /// and moves to its first visible entry.
    fn seek_forward(&mut self, from: Option<Bound<&[u8]>>) -> Result<bool> {
        if !self.begin()? {
            return self.leave(Position::AfterLast);
        }
        let scan = &self.scan;
        let timer = scan.keyspace.timer();
        let front = self.front.get_or_insert_with(|| Forward::new(scan));
        let from = from.unwrap_or_else(|| scan.entrance(Direction::Forward));
        let found = front.seek(from, Until { scan, key: None });
        scan.stop(timer);
        scan.note_passed(&front.passed);
        self.arrive(found)
    }

    /// As `seek_forward`, backwards.
    fn seek_back(&mut self, from: Option<Bound<&[u8]>>) -> Result<bool> {
        if !self.begin()? {
            return self.leave(Position::BeforeFirst);
        }
        let timer = self.scan.keyspace.timer();
        let back = self.back.get_or_insert_with(|| Backward::new(&self.scan));
        back.seek(from.unwrap_or_else(|| self.scan.entrance(Direction::Reverse)), &self.scan);
        let found = self.find_back();
        self.scan.stop(timer);
        found
    }

    /// Before the first read: false if the range is empty.
    fn begin(&mut self) -> Result<bool> {
        if let Err(error) = self.scan.check() {
            return self.fail(error);
        }
        if self.scan.bounds.is_empty() {
            return Ok(false);
        }
        if self.front.is_none() && self.back.is_none() {
            self.scan.count();
        }
        Ok(true)
    }

    /// To what the forward merge has found: an entry, the end, or the error that ended it.
    fn arrive(&mut self, found: Found) -> Result<bool> {
        self.position = match found {
            Found::Put => Position::Front,
            Found::ExpiringPut => Position::FrontExpiring,
            Found::End => return self.leave_front(),
        };
        Ok(true)
    }

    /// After the last entry, or at the error that ended the forward merge.
    #[cold]
    fn leave_front(&mut self) -> Result<bool> {
        match self.front.as_ref().map_or(Ok(()), Forward::status) {
            Ok(()) => self.leave(Position::AfterLast),
            Err(error) => self.fail(error),
        }
    }

    /// Moves to the last visible entry from the position of the reverse merge on.
    fn find_back(&mut self) -> Result<bool> {
        let Some(back) = &mut self.back else { return self.leave(Position::BeforeFirst) };
        let bounds = &self.scan.bounds;
        let within = |key: &[u8]| bounds.is_after_start(key);
        let take = |source: &Source, front: usize| {
            (source.value_from(front), (front > 0).then(|| expires_at(source)).flatten())
        };
        let found = back.next(&self.scan, within, take);
        self.scan.note_passed(&back.passed);
        match found {
            Some(Ok((key, (value, expires_at)))) => {
                self.position = Position::Back(key, value, expires_at);
                Ok(true)
            }
            None => self.leave(Position::BeforeFirst),
            Some(Err(error)) => self.fail(error),
        }
    }

    /// Leaves the entries on one of the two sides.
    fn leave(&mut self, to: Position) -> Result<bool> {
        if let Err(error) = self.scan.check() {
            return self.fail(error);
        }
        self.position = to;
        Ok(false)
    }

    fn fail(&mut self, error: Error) -> Result<bool> {
        self.position = Position::Failed(error.clone());
        Err(error)
    }
}

/// When the expiring put that a source is at expires, in milliseconds since 1970.
fn expires_at(source: &Source) -> Option<u64> {
    split_expiring(source.value()).map(|(expires_at, _)| expires_at)
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor")
            .field("bounds", &self.scan.bounds)
            .field("sequence", &self.scan.sequence)
            .field("key", &self.key().map(<[u8]>::escape_ascii))
            .finish_non_exhaustive()
    }
}
