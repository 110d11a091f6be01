//! The block cache, and the one memory budget for blocks, filters and indexes.
//!
//! `cache` finds blocks by their keys, and rows, which are single entries of blocks;
//! `recency_list` orders them by their last use; `ghosts` says which data a full cache keeps.
//! `cached` has the direct pointers (slots) from a table's index to its cached blocks;
//! `single_flight` loads a block once for many readers; `budget` counts the bytes.

pub(crate) mod cache;
pub(crate) mod ghosts;
pub(crate) mod recency_list;
pub(crate) mod cached;
pub(crate) mod single_flight;
pub(crate) mod budget;
