//! The block cache, and the one memory budget for blocks, filters and indexes.
//!
//! `cache` maps a block's name to the block in memory, or that of a row to the row (`held`);
//! `cached` has the direct pointers (slots) from a table's index to its cached blocks; `ghosts`
//! says which data a full cache keeps; `recency_list` orders a shard's entries by their last use;
//! `single_flight` loads a block once for many readers; `budget` counts the bytes.

pub(crate) mod cache;
pub(crate) mod held;
pub(crate) mod cached;
pub(crate) mod ghosts;
pub(crate) mod recency_list;
pub(crate) mod single_flight;
pub(crate) mod budget;
