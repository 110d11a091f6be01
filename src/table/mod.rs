//! SSTs: sorted, immutable files of entries, each with an index and a filter.
//!
//! ```text
//! ┌────────┬─────────┬───┬─────────┬────────────┬────────────┬───────────┬───────┬────────┐
//! │ header │ block 0 │ … │ block n │ filter     │ properties │ metaindex │ index │ footer │
//! └────────┴─────────┴───┴─────────┴────────────┴────────────┴───────────┴───────┴────────┘
//!  28 bytes data: entries sorted     one block,   name,        name,       key,    56 bytes
//!           by internal key, and     or partiti-  value        handle      handle
//!           their restart points     ons and
//!                                    their index
//! before every block: its size (4), its kind (1), and a check of both (3)
//! after every block: its type (1), and a masked CRC-32 (4) of contents, type, kind, size,
//! table id and offset
//! ```
//!
//! An example, byte for byte that of the golden test in `builder`: a table of *deck*, *dock* and
//! *duck* (values v1, v2, v3; sequences 3, 2, 1), with data blocks closed at 20 bytes, so that each
//! entry fills one. After the header comes the first block, of 27 bytes:
//!
//! ```text
//! 1b 00 00 00  01  a5 03 6e    27 bytes of data: the block's prefix, not counted in its size
//! 00 04 02                     shares 0 bytes, 4 of its own, 2 of value
//! 64 65 63 6b                  "deck"
//! 00                           base + 0: the internal key's trailer
//! 76 31                        "v1"
//! 00 00 00 00                  one restart point, at 0
//! 01 03 00 00 00 00 00 00      base: kind 1 (put), sequence 3
//! 01                           above it, trailers take one byte
//! 01 00 00 00                  one restart point
//! 00  09 e6 40 f1              raw; checksum: the block's trailer, not counted in its size
//! ```
//!
//! The contents of the first block begin at 36, of the next at 76 and 116. At 156 are 9 bytes of
//! filter, 64 bits and the number of probes. Had the entries shared one block, *dock* would read
//! `01 03 02 "ock" …`: one byte shared with *deck*. The index holds `df → (36, 27)`,
//! `dp → (76, 27)`, `duck → (116, 27)`: the shortest strings between neighbours, as user keys,
//! since no key is in two blocks. A lookup of *dock* asks the
//! filter, searches the index (`df` < dock ≤ `dp`), reads block 1 and finds its entry. One of
//! *door* ends at the filter, about 99 times in 100.
//!
//! `builder`, `block_file` and `writer` write a table. `reader` opens it, with `opening`, and looks
//! up a key, `batch` many keys at once, `iter` iterates, `verify` and `salvage` read all of it.
//! `filter` has the layouts of filters, `properties` what a reader must know. `fetch` is the only
//! way to a block (slot, cache, file), `row` is one entry in place of it, `file` reads blocks,
//! `compression` has the codecs, `features` what a table needs of its reader. `index` names blocks;
//! `partitioned_index` cuts a large one, `data_index` decides how much of it is in memory,
//! `index_cursor` iterates over it. `block` has the blocks themselves, `format` the rest.

#[cfg(test)]
mod ingested_tests;
#[cfg(test)]
mod walk_tests;
#[cfg(test)]
mod padding_tests;
#[cfg(test)]
mod salvage_tests;
#[cfg(test)]
mod row_tests;
#[cfg(test)]
mod range_deletes_tests;
#[cfg(test)]
mod partitioned_index_tests;
#[cfg(test)]
mod tests;
pub(crate) mod verify;
pub(crate) mod salvage;
pub(crate) mod iter;
pub(crate) mod batch;
pub(crate) mod reader;
mod scan_ahead;
mod index_cursor;
mod data_index;
mod opening;
pub(crate) mod builder;
pub(crate) mod block_file;
pub(crate) mod writer;
mod partitioned_index;
pub(crate) mod filter;
pub(crate) mod batch_key;
mod row;
pub(crate) mod fetch;
pub(crate) mod file;
pub(crate) mod index;
pub(crate) mod compression;
pub(crate) mod properties;
pub(crate) mod features;
pub(crate) mod block;
pub(crate) mod format;
