//! The contract of internal iterators: memtables, blocks, tables, levels and their merge.
//!
//! An iterator goes one way for life, [`Direction`] says which. Legal calls:
//! `seek (key | value | next)*`, any number of times; `key`, `value` and `next` only while
//! `valid`. After an error `valid` is false, and the error stays in `status` until the next seek:
//! who sees `valid() == false` asks `status()` before calling it the end.
//!
//! *Bound* of a seek, an internal key `b`: forward starts at the first entry `>= b`, reverse at
//! the last entry `< b`. `None` starts at the respective end. So the entries on both sides of one
//! bound are disjoint and complete, which is what a double-ended range needs.

use crate::base::error::Result;
use crate::base::value::Value;

/// The way an iterator goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending internal keys.
    Forward,
    /// Descending internal keys.
    Reverse,
}

/// A walk over sorted internal keys.
pub trait InternalIterator: Send {
    /// Positions at the first entry of the walk at or behind `bound`; see the module for "behind".
    fn seek(&mut self, bound: Option<&[u8]>);

    /// Goes to the next entry in the iterator's direction; answers `valid`. Needs `valid`.
    fn next(&mut self) -> bool;

    /// True while positioned at an entry.
    fn valid(&self) -> bool;

    /// The internal key. Needs `valid`.
    fn key(&self) -> &[u8];

    /// The value's bytes. Needs `valid`.
    fn value(&self) -> &[u8];

    /// The value to hand out: shares its block or memtable entry when large. Needs `valid`.
    fn value_owned(&self) -> Value;

    /// The error that ended the walk, if one did.
    fn status(&self) -> Result<()>;
}
