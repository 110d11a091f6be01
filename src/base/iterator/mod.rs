//! Iterators over sorted internal keys: the contract, and the merge of several into one.
//!
//! `api` is the contract. The memtable, `table::iter` and `tree::level_iter` implement it.
//! `merging` merges several iterators into one, for scans and compactions. Keys are internal keys:
//! iterators return every version and every tombstone, and callers decide which of them count.

pub(crate) mod merging;
pub(crate) mod newer;
pub(crate) mod api;
