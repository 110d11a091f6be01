//! How to use siftdb: one chapter for each subject, with examples that are tested. No code.
//!
//! [`keyspaces`] and [`filters`] are about a new database, [`durability`] about every write.
//! [`transactions`], [`expiry`] and [`bulk_loads`] are ways to write, and [`watches`] tell what was
//! written. [`backup`], [`followers`] and [`operations`] are for a database in service.

pub mod keyspaces;
pub mod filters;
pub mod durability;
pub mod transactions;
pub mod expiry;
pub mod bulk_loads;
pub mod watches;
pub mod backup;
pub mod followers;
pub mod operations;
