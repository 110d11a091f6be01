//! What an administrator does with a database: check it, repair it, look into its files and judge
//! its filters.
//!
//! `verify` reads and compares everything; `repair` makes a sound database from a damaged one;
//! `manual` flushes, compacts and rebuilds on request; the `filter_*` files report on filters, name
//! problems and divide memory budgets; `inspect` prints any file as text.

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
