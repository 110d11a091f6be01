//! Administration of a database.
//!
//! `verify` checks everything; `repair` makes a sound database from a damaged one, and `checkpoint`
//! one at a moment of this one; `offline` puts both in force. `manual`
//! flushes, compacts and rebuilds filters on request. `destroy` removes a database. The `filter_*`
//! files report on filters, find problems and divide memory budgets. `inspect` prints any file as
//! text.

#[cfg(feature = "testing")]
pub(crate) mod test_ingest;
pub(crate) mod repair;
pub(crate) mod checkpoint;
mod offline;
pub(crate) mod verify;
pub(crate) mod manual;
pub(crate) mod destroy;
#[cfg(feature = "inspect")]
pub(crate) mod filter_advice;
#[cfg(feature = "inspect")]
pub(crate) mod filter_doctor;
pub(crate) mod filter_report;
pub(crate) mod lookup_share;
pub(crate) mod stats_report;
pub(crate) mod table_list;
#[cfg(feature = "inspect")]
pub mod inspect;
