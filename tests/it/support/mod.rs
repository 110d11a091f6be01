//! Shared by the integration tests: random numbers, keys and values, filters, options that make
//! many levels of little data, a model of the store, a linearizability check, forged files with
//! valid checksums, and a reader of OpenMetrics.

pub mod alone;
pub mod archive;
pub mod by_document;
pub mod child;
pub mod counted;
pub mod cursors;
pub mod data;
pub mod expected;
pub mod filters;
pub mod foreign;
pub mod gate;
pub mod history;
pub mod indexes;
pub mod limits;
pub mod linearizability;
pub mod mirror;
pub mod model;
pub mod openmetrics;
pub mod page_cache;
pub mod ranges;
pub mod reads;
pub mod recorded_transactions;
pub mod recorder;
pub mod repository;
pub mod restless;
pub mod rng;
pub mod run;
pub mod seal;
pub mod serializability;
pub mod settled;
pub mod stores;
pub mod table_reads;
