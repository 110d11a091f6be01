//! Statistics: striped counters, and the public report that is made of them.
//!
//! Definitions:
//!
//! - *negative*: the filter said no. This avoids exactly one data block: the key is between the
//!   fences of the table, so the index always names a block for it.
//! - *true positive*: the filter said maybe and the table had the key. *False positive*: it said
//!   maybe and the table did not have it. *Unresolved*: it said maybe, nothing visible was found,
//!   and the table has sequences above the read's, so it may have a newer version of the key.
//! - *not consulted*: the table was searched without asking a filter, because it has none, its
//!   filter could not be read, or the read switched filters off.
//! - *not paying*: the last level was searched without asking its filter, because many lookups in
//!   a row had found their keys there (`tree/version.rs`).
//! - observed FPR = false positives / (false positives + negatives): of the lookups of keys the
//!   table does not have, the share that the filter let through.

pub(crate) mod openmetrics;
pub(crate) mod text;
pub(crate) mod counters;
pub(crate) mod report;
pub(crate) mod latency;
pub(crate) mod interval;
