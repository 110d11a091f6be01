//! Reads: `point` looks up one key, `multi_get` many keys, `scan` iterates over a range, and
//! `cursor` moves in a range both ways. `mask` passes what range deletes hide from these two.
//! `explain` says what one lookup did.
//!
//! Each read loads a `ReadView` and then a sequence, in this order (I3). It searches memtables
//! first, then the tree.

pub(crate) mod explain;
pub(crate) mod estimate;
pub(crate) mod cursor;
pub(crate) mod scan;
pub(crate) mod mask;
pub(crate) mod multi_get;
pub(crate) mod point;
