//! `siftdb filter`: reports, advises, rebuilds and measures filters.
//!
//! One file a subcommand; `dispatch` names them. `stats`, `advise` and `rebuild` open a database,
//! `sim` and `bench` need none.

pub mod dispatch;
pub mod stats;
pub mod advise;
pub mod rebuild;
pub mod bench;
pub mod sim;

pub use dispatch::Filter;
