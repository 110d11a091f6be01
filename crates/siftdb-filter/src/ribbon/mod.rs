//! RocksDB's Ribbon filter: 7/10 of a Bloom filter's space for more work.
//!
//! `ribbon` is the encoding; `banding` solves the linear equations that a filter represents;
//! `space` says how many slots the keys need and where each bit is.

pub mod ribbon;
pub mod banding;
pub mod space;
