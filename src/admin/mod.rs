//! Administration of a database.
//!
//! `verify` checks everything; `repair` makes a sound database from a damaged one; `checkpoint`
//! makes a live copy of an open one; `offline` installs what these two make. `manual` flushes,
//! compacts and rebuilds filters on request. `destroy` removes a database. `filter_report` has the
//! facts about filters; `siftdb-cli` says what they mean. `inspect` prints any file as text.

#[cfg(feature = "testing")]
pub(crate) mod test_ingest;
pub(crate) mod repair;
pub(crate) mod checkpoint;
mod offline;
pub(crate) mod verify;
pub(crate) mod manual;
pub(crate) mod destroy;
pub(crate) mod filter_report;
pub(crate) mod lookup_share;
pub(crate) mod stats_report;
pub(crate) mod table_list;
#[cfg(feature = "inspect")]
pub mod inspect;
