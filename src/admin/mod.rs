//! Administration of a database.
//!
//! `verify` checks everything; `repair` makes a sound database from a damaged one. `manual`
//! flushes, compacts and rebuilds filters on request. The `filter_*` files report on filters, find
//! problems and divide memory budgets. `inspect` prints any file as text.

pub mod repair;
pub mod verify;
pub mod manual;
#[cfg(any(feature = "cli", feature = "testing"))]
pub mod filter_advice;
#[cfg(any(feature = "cli", feature = "testing"))]
pub mod filter_doctor;
pub mod filter_report;
pub mod asked_share;
pub mod stats_report;
#[cfg(any(feature = "cli", feature = "testing"))]
pub mod inspect;
