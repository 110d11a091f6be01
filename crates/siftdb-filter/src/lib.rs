//! The filters of LevelDB and RocksDB, byte for byte.
//!
//! A filter is a few bits a key that say "certainly not here" for most keys outside of a set. An
//! [`Encoding`] turns keys into the bytes of a filter:
//!
//! | encoding | bits a key for 1 % | |
//! |---|---|---|
//! | [`LevelDbBloom`](Encoding::LevelDbBloom) | 10 | LevelDB's Bloom filter |
//! | [`FastLocalBloom`](Encoding::FastLocalBloom) | 10 | RocksDB's: one cache line a probe |
//! | [`Ribbon`](Encoding::Ribbon) | 7 | RocksDB's: less space for more work |
//! | [`LegacyBloom`](Encoding::LegacyBloom) | 10 | RocksDB's older Bloom filter |
//! | [`Custom`](Encoding::Custom) | | a [`FilterPolicy`] of your own |
//!
//! The bytes are those that LevelDB and RocksDB write for the same keys, and filters that they
//! wrote can be asked here. A filter may answer "may contain" for a key it does not hold, at the
//! rate that [`Encoding::expected_fpr`] states; it never denies a key it holds. Damaged or unknown
//! bytes answer "may contain", and nothing panics on them.
//!
//! # Build and ask
//!
//! ```
//! use siftdb_filter::{Encoding, FilterReader, KeyHash, PreparedFilter};
//!
//! let encoding = Encoding::FastLocalBloom { millibits: 10_000 };
//! let mut builder = encoding.builder();
//! for key in ["ada", "alan", "grace"] {
//!     builder.add_key(key.as_bytes()); // in order
//! }
//! let mut bytes = Vec::new();
//! builder.finish(&mut bytes)?;
//!
//! // A table stores the bytes and the name.
//! let reader = FilterReader::for_name(&encoding.full_name(), &[]).ok_or("unknown name")?;
//! let filter = PreparedFilter::new(reader, &bytes);
//! assert!(filter.may_contain(&KeyHash::new(b"ada")));
//! assert!(!filter.may_contain(&KeyHash::new(b"bob")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What else is here
//!
//! - [`KeyHash`] carries the hashes of a key through many filters; each is computed at most once.
//! - [`Prefix`] says which leading part of a key a filter holds besides the key, or instead of it,
//!   so that a scan can skip a table.
//! - [`Encoding::filter_bytes`] and [`Encoding::expected_fpr_of`] estimate a filter
//!   before it is built: its size and its rate.
//! - [`millibits_by_run`] divides memory over the levels of a tree, so that all of them together
//!   pass the fewest absent keys.
//! - [`range`] has filters for ranges: may a sorted block hold a key of `[a, b)`?
//! - A [`ConstructionBudget`] counts the memory of filters that are being built.
//!
//! The crate [siftdb](https://docs.rs/siftdb) is a key-value store on these filters. Modules that
//! this page does not show are what it uses, and may change in every version.

// Top to bottom: a module may only use what is below it in this list. The tests of siftdb check it
// (`tests/it/architecture.rs`).
#[doc(hidden)]
pub mod probed;
#[doc(hidden)]
pub mod estimates;
#[doc(hidden)]
pub mod allocation;
#[doc(hidden)]
pub mod block_based;
#[doc(hidden)]
pub mod builder;
pub mod range;
#[doc(hidden)]
pub mod construction;
#[doc(hidden)]
pub mod encoding;
#[doc(hidden)]
pub mod ribbon;
#[doc(hidden)]
pub mod bloom;
#[doc(hidden)]
pub mod prefix;
#[doc(hidden)]
pub mod policy;
#[doc(hidden)]
pub mod hash;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
#[doc(hidden)]
pub mod budget;
#[doc(hidden)]
pub mod cache_line;
#[doc(hidden)]
pub mod error;

pub use allocation::{Run, false_positive_rate, millibits_by_run};
pub use budget::ConstructionBudget;
pub use builder::FilterBuilder;
pub use construction::Construction;
pub use encoding::{Encoding, FilterReader, FilterVerdict, FilterView, PreparedFilter};
pub use error::BuildError;
pub use hash::{KeyHash, legacy_hash, leveldb_hash, xxph3_64};
pub use policy::FilterPolicy;
pub use prefix::{Prefix, PrefixExtractor};
pub use probed::ProbedBits;
