//! Filters: how keys become bits, and what the bits say about a key.
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

#[cfg(feature = "inspect")]
pub(crate) mod probed;
pub(crate) mod estimates;
pub(crate) mod allocation;
pub(crate) mod builder;
pub(crate) mod encoding;
pub(crate) mod ribbon;
pub(crate) mod bloom;
pub(crate) mod prefix;
pub(crate) mod policy;
pub(crate) mod hash;
#[cfg(test)]
pub(crate) mod vectors;

pub use encoding::Encoding;
pub use policy::FilterPolicy;
pub use prefix::PrefixExtractor;

#[cfg(feature = "inspect")]
pub use allocation::{MILLIBITS_MAX, Run, millibits_by_run};
#[cfg(feature = "inspect")]
pub use builder::FilterBuilder;
#[cfg(feature = "inspect")]
pub use encoding::{FilterReader, PreparedFilter};
#[cfg(feature = "inspect")]
pub use hash::KeyHash;
#[cfg(feature = "testing")]
pub use hash::{legacy_hash, leveldb_hash, xxph3_64};
#[cfg(feature = "inspect")]
pub use probed::ProbedBits;
