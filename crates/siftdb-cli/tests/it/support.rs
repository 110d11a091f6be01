//! What these tests share with those of the engine.

// The engine's tests use the rest.
#![allow(dead_code)]

#[path = "../../../../tests/it/support/archive.rs"]
pub mod archive;
#[path = "../../../../tests/it/support/filters.rs"]
pub mod filters;
#[path = "../../../../tests/it/support/foreign.rs"]
pub mod foreign;
#[path = "../../../../tests/it/support/limits.rs"]
pub mod limits;
#[path = "../../../../tests/it/support/openmetrics.rs"]
pub mod openmetrics;
#[path = "../../../../tests/it/support/page_cache.rs"]
pub mod page_cache;
#[path = "../../../../tests/it/support/repository.rs"]
pub mod repository;
#[path = "../../../../tests/it/support/rng.rs"]
pub mod rng;
#[path = "../../../../tests/it/support/rocksdb_fixtures.rs"]
pub mod rocksdb_fixtures;
#[path = "../../../../tests/it/support/settled.rs"]
pub mod settled;
#[path = "../../../../tests/it/support/stores.rs"]
pub mod stores;
