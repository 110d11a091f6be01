//! Walking sorted internal keys: the contract, and the merge of many walks into one.
//!
//! `api` is what every walk keeps to; memtable, `table::iter` and `tree::level_iter` implement
//! it, each beside the data it walks over. `merging` makes one of many, for `read::scan` and
//! `compaction`. Keys are internal here: every version and every tombstone comes by. Who may see
//! which of them is decided by the callers.

pub(crate) mod merging;
pub(crate) mod api;
