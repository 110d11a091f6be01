//! Filters: how keys become bits, and what the bits say about a key. The package `siftdb-filter`.
//!
//! An [`Encoding`] turns a set of keys into bytes: LevelDB's Bloom filter, RocksDB's
//! FastLocalBloom (the default), its Ribbon filter (7/10 of the space for more work), its older
//! Bloom filter, or a [`FilterPolicy`] of your own. The *layout* decides where the bytes are in a
//! table; every encoding works in every layout.
//!
//! The bytes of the built-in encodings are those that LevelDB and RocksDB write for the same keys.
//! A filter may answer "may contain" for a key it does not hold, at the rate that
//! [`Encoding::expected_fpr`] states; it never denies a key it holds.
//!
//! Besides a key, or instead of it, a filter may hold its [`Prefix`](crate::Prefix), so that a scan
//! can skip a table.
//!
//! Tables name their own filter, so the built-ins are read whatever the options say.
//! `FilterBuilder` and `FilterReader` are what the tables use; with the feature `inspect` they are
//! public, for measurements.

#[doc(inline)]
pub use siftdb_filter::encoding::Encoding;
#[doc(inline)]
pub use siftdb_filter::policy::FilterPolicy;
#[doc(inline)]
pub use siftdb_filter::prefix::PrefixExtractor;

#[cfg(feature = "testing")]
#[doc(inline)]
pub use siftdb_filter::hash::{legacy_hash, leveldb_hash, xxph3_64};
#[cfg(feature = "inspect")]
#[doc(inline)]
pub use siftdb_filter::{
    builder::FilterBuilder,
    encoding::{FilterReader, PreparedFilter},
    error::BuildError,
    hash::KeyHash,
    probed::ProbedBits,
};
