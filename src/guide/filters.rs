//! Which filter to choose, where its bits lie, and what scans skip.
//!
//! A [`Filter`] has two sides. The *encoding* says how keys become bits: [`Filter::bloom`]
//! (RocksDB's FastLocalBloom, the default, 10 bits a key), [`Filter::leveldb_bloom`],
//! [`Filter::ribbon`] (the same rate in 7/10 of the space, for more work;
//! [`Filter::bloom_then_ribbon`] uses it at the lower levels), [`Filter::legacy_bloom`] (RocksDB's
//! older one), or [`Filter::custom`] with a custom [`filter::FilterPolicy`]. The *layout* says
//! where the bits of a table are, see [`FilterLayout`]:
//!
//! - **Full**, one filter for the table. A lookup of an absent key is one probe and touches nothing
//!   else of the table; the whole filter must be in memory. For filters that fit.
//! - **Partitioned**, one filter for each run of keys. A lookup searches a small index over the
//!   partitions and asks one of them; only that index must be in memory. For filters that do not
//!   fit.
//! - **Block-based**, one filter for each 2 KiB of the file, as in LevelDB. A lookup searches the
//!   table's index first and then asks. For comparisons.
//!
//! [`Filter::monkey`] takes a memory budget instead of bits a key. It divides the budget over the
//! levels, so that all of them together pass the fewest absent keys. The last level has nine
//! tenths of the keys, and its filters serve only lookups of absent keys:
//! [`Options::filter_at_last_level`] gives it bits of its own, and [`Options::filter_last_level`]
//! can leave them out.
//!
//! A filter may also hold the [`Prefix`] of each key. Then a scan whose bounds share a prefix skips
//! the tables without it: [`Db::prefix`], [`Db::range`], and a cursor at each
//! [`Cursor::seek_prefix`] or [`Cursor::seek_range`]. [`Cursor::seek`] alone asks no filter, since
//! it bounds nothing.
//!
//! [`Filter::ranges`] adds a range filter, which answers for every range: a scan skips the tables
//! without a key in it. It serves keys whose next bytes are spread: numbers, times, UUIDs, binary
//! or as text. About 12 bits a key pass less than 1 % of their empty ranges. Text with long shared
//! parts, such as paths, needs a prefix instead. No filter can exclude what begins right after a
//! stored key, so the next page after a last key enters the table of that key.
//!
//! By default, levels 0 and 1 have full filters and deeper levels have partitioned ones. More bits
//! pass fewer absent keys: 10 bits pass about 1 %, each further 5 bits a tenth of that. Each table
//! records its own filter, so the setting may change at every opening. A setting that is not named
//! keeps the value that was saved with the keyspace.
//!
//! ```
//! use siftdb::{Filter, FilterLayout, Options};
//!
//! # fn main() -> siftdb::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("big.sift");
//! let db = Options::new()
//!     .block_cache_bytes(256 << 20)
//!     .filter(Filter::bloom(10.0).layout(FilterLayout::Partitioned { block_bytes: 4096 }))
//!     .filter_at_level(0, Filter::bloom(14.0).layout(FilterLayout::Full))
//!     .open(&path)?;
//! # db.close()
//! # }
//! ```
//!
//! [`Cursor::seek`]: crate::Cursor::seek
//! [`Cursor::seek_prefix`]: crate::Cursor::seek_prefix
//! [`Cursor::seek_range`]: crate::Cursor::seek_range
//! [`Db::prefix`]: crate::Keyspace::prefix
//! [`Db::range`]: crate::Keyspace::range
//! [`Filter`]: crate::Filter
//! [`Filter::bloom`]: crate::Filter::bloom
//! [`Filter::bloom_then_ribbon`]: crate::Filter::bloom_then_ribbon
//! [`Filter::custom`]: crate::Filter::custom
//! [`Filter::legacy_bloom`]: crate::Filter::legacy_bloom
//! [`Filter::leveldb_bloom`]: crate::Filter::leveldb_bloom
//! [`Filter::monkey`]: crate::Filter::monkey
//! [`Filter::ranges`]: crate::Filter::ranges
//! [`Filter::ribbon`]: crate::Filter::ribbon
//! [`FilterLayout`]: crate::FilterLayout
//! [`Options::filter_at_last_level`]: crate::Options::filter_at_last_level
//! [`Options::filter_last_level`]: crate::Options::filter_last_level
//! [`Prefix`]: crate::Prefix
//! [`filter::FilterPolicy`]: crate::filter::FilterPolicy
