//! Reads: `point` looks up one key, `multi_get` many keys, `iter` iterates over a range, and
//! `cursor` moves in a range both ways. Both walk (`walk`) over the merge of a `scan`, and
//! `range_delete_iter` tells what range deletes cover. `explain` says what one lookup
//! did, and `explain_range` what a scan does until its first entry.
//!
//! Each read loads a `ReadView` and then a sequence, in this order (I3). It searches memtables
//! first, then the tree.

pub(crate) mod explain_range;
pub(crate) mod explain;
pub(crate) mod estimate;
pub(crate) mod cursor;
pub(crate) mod iter;
pub(crate) mod walk;
pub(crate) mod scan;
pub(crate) mod range_delete_iter;
pub(crate) mod multi_get;
pub(crate) mod point;
