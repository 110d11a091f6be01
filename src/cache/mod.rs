//! The block cache, and the one memory budget for blocks, filters and indexes.
//!
//! `cache` finds blocks by their names (`cache_key`), and rows, which are single entries of blocks
//! (`held`). `cached` has the direct pointers (slots) from a table's index to its cached blocks;
//! `ghosts` says which data a full cache keeps; `recency_list` orders a shard's entries by their
//! last use; `single_flight` loads a block once for many readers; `budget` counts the bytes.

pub(crate) mod cache;
pub(crate) mod held;
pub(crate) mod cached;
pub(crate) mod ghosts;
pub(crate) mod cache_key;
pub(crate) mod recency_list;
pub(crate) mod single_flight;
pub(crate) mod budget;
