//! What a user may set, with defaults, units and the price of a larger value.
//!
//! Plain data: each lower layer has a settings struct of its own, and this module composes and
//! validates them. Whatever cannot work is refused by [`Options::validate`] when a database is
//! opened, before anything is created; nothing is silently ignored or corrected.
//!
//! Filter settings concern tables written from now on. A table names its own filter, so they may
//! differ at every opening of the same database.

pub mod levels;
pub mod database;
pub mod access;
pub mod filter;

pub use access::{CompactRangeOptions, ReadOptions, WriteOptions};
pub use database::Options;
pub use filter::Filter;
