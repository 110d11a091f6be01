//! Where the bits of a filter are in a table, and when a lookup can ask them.
//!
//! `dispatch` writes and asks the filter of a table, whatever its layout. Writer and reader of one
//! layout are in one file, so that both sides of a format change together. `layout` holds the
//! settings, and the filter's blocks in the file. `ranges` has the second filter that a table can
//! have, which is asked for ranges of keys.

pub(crate) mod dispatch;
pub(crate) mod ranges;
pub(crate) mod full;
pub(crate) mod partitioned;
pub(crate) mod block_based;
pub(crate) mod partitions;
pub(crate) mod layout;
#[cfg(test)]
pub(crate) mod testing;
