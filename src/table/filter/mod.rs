//! Where the bits of a filter live in a table, and when a lookup may ask them.
//!
//! Writer and reader of one layout share one file, so that both sides of a format change together.

pub mod dispatch;
pub mod full;
pub mod partitioned;
pub mod block_based;
pub mod layout;
#[cfg(test)]
pub(crate) mod testing;
