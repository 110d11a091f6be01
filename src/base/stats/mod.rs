//! What happened, counted: striped counters below, the public report above.
//!
//! Definitions, fixed before the read path was written:
//!
//! - *negative*: the filter said no. It spares exactly one data block: the key lies between the
//!   table's fences, so its index always names one.
//! - *true positive*: the filter said maybe and the table had the key. *False positive*: it said
//!   maybe and the table did not have it. *Unresolved*: it said maybe, nothing visible was found,
//!   and the table holds sequences above the read's, so the key may be there in a newer version.
//! - *not consulted*: the table was searched without asking a filter: it has none, it could not be
//!   read, or the read switched filters off.
//! - observed FPR = false positives / (false positives + negatives): of the lookups of keys the
//!   table does not have, the share that the filter let through.

pub mod text;
pub mod report;
pub mod interval;
pub mod counters;
