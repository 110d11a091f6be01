//! Fuzz tests of all code of siftdb that reads its own files, and of what reads RocksDB databases.
//!
//! [`targets`] has a function for each kind of input, from one byte string to every public call
//! that gets to see it; [`mutate`] changes good input; [`corpus`] makes it and keeps it; [`watch`]
//! notices what must not happen: a panic in any thread, memory out of proportion, an endless loop.
//! The binary runs all of that with stable Rust, for CI; `fuzz_targets` hand the same functions to
//! cargo-fuzz. [`operations`] calls the public API on sound files, beside a model. CONTRIBUTING.md has
//! the commands.

pub mod corpus;
pub mod mutate;
pub mod targets;
pub mod watch;
pub mod rocksdb;
pub mod exercise;
pub mod operations;
mod feed;
mod model;
pub mod bundle;
#[expect(clippy::should_implement_trait, reason = "shared with the tests, where it is private")]
#[path = "../../tests/it/support/rng.rs"]
pub mod rng;
#[path = "../../tests/it/support/archive.rs"]
pub mod archive;
#[path = "../../tests/it/support/seal.rs"]
pub mod seal;

/// Runs a target by its name.
pub fn run(target: &str, input: &[u8]) {
    targets::find(target).expect("a target of this name").run(input);
}
