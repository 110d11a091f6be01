//! The block cache, and the one memory budget for blocks, filters and indexes.
//!
//! `cache` maps (table, offset) to a block; `cached` are direct pointers from a table to its
//! cached blocks; `lru` is the eviction order; `single_flight` reads a block once for many
//! readers; `budget` counts the bytes.

pub mod cache;
pub mod key;
pub mod cached;
pub mod lru;
pub mod single_flight;
pub mod budget;
