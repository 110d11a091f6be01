//! Where the bits of a filter are in a table, and when a lookup can ask them.
//!
//! `dispatch` writes and asks the filter of a table, whatever its layout. Writer and reader of one
//! layout are in one file, so that both sides of a format change together. `layout` holds the
//! settings, and the filter's blocks in the file.

pub mod dispatch;
pub mod full;
pub mod partitioned;
pub mod block_based;
pub mod layout;
#[cfg(test)]
pub(crate) mod testing;
