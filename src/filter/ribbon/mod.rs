//! RocksDB's Ribbon filter: 7/10 of a Bloom filter's space for more work.
//!
//! `ribbon` is the encoding; `banding` solves the linear system that a filter is; `space` finds
//! how many slots the keys need.

pub mod ribbon;
pub mod banding;
pub mod space;
