//! What the command `siftdb` is made of, next to the engine [`siftdb`]: its experiments, which
//! `benches/` of the repository use too, its advice on memory, and the fields that it
//! prints with `--json`.
//!
//! The command itself is the program of this package; README.md has how to install it.

// The rooms, top to bottom: a module may only use what is below it in this list.
// `tests/it/architecture.rs` of the engine checks it.

#[cfg(doc)]
pub mod command_json;
pub mod experiment;
pub mod filter_advice;
pub mod foreign_filters;
pub mod memory_advice;
