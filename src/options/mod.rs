//! All settings: of a database ([`Options`]), of the data of a keyspace ([`KeyspaceOptions`]), of
//! filters ([`Filter`]), of a single call.
//!
//! Plain data. Each lower layer has a settings struct of its own; this room composes and validates
//! them. [`Options::validate`] refuses values that cannot work when a database is opened, before
//! anything is created. Nothing is silently ignored or corrected.
//!
//! Filter settings concern tables written from now on. A table names its own filter, so they may
//! differ at every opening of the same database.

pub(crate) mod levels;
mod memory;
pub(crate) mod database;
pub(crate) mod access;
mod saved;
pub(crate) mod keyspace;
pub(crate) mod compaction_filter;
pub(crate) mod filter;

pub use access::{CompactRangeOptions, ReadOptions, WriteOptions};
pub use compaction_filter::{CompactionDecision, CompactionFilter};
pub use database::Options;
pub use filter::Filter;
pub use keyspace::KeyspaceOptions;
