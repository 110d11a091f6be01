//! The contract of internal iterators: memtables, blocks, tables, levels and their merge.
//!
//! An iterator has one [`Direction`], which never changes. Callers seek first, any number of times;
//! `key`, `value` and `next` are allowed only while `valid`. After an error `valid` is false, and
//! `status` returns the error until the next seek. So a caller that sees `valid() == false` must
//! check `status()` before it takes that for the end.
//!
//! The *bound* of a seek is an internal key `b`: a forward iterator starts at the first entry `>=
//! b`, a reverse one at the last entry `< b`. `None` starts at the first entry of the direction.
//! The entries on both sides of a bound are disjoint and complete, which a double-ended range
//! needs.

use crate::base::error::Result;
use crate::base::value::Value;

/// The order in which an iterator returns entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Ascending internal keys.
    Forward,
    /// Descending internal keys.
    Reverse,
}

/// An iterator over sorted internal keys.
pub(crate) trait InternalIterator: Send {
    /// Finds where `seek` to the same bound goes, which is the next call, and asks the disk for the
    /// block there. So a merge waits for the disk once and not for each of its children.
    fn prepare_seek(&mut self, _bound: Option<&[u8]>) {}

    /// Positions at the first entry from `bound` on, in the direction of the iterator; see the
    /// module.
    fn seek(&mut self, bound: Option<&[u8]>);

    /// Moves to the next entry in the iterator's direction; returns `valid`. Needs `valid`.
    fn next(&mut self) -> bool;

    /// True while positioned at an entry.
    fn valid(&self) -> bool;

    /// The internal key. Needs `valid`.
    fn key(&self) -> &[u8];

    /// The value's bytes. Needs `valid`.
    fn value(&self) -> &[u8];

    /// The value to return to the user: a large one shares its block. Needs `valid`.
    fn value_owned(&self) -> Value;

    /// The error that ended the iteration, if there was one.
    fn status(&self) -> Result<()>;
}
