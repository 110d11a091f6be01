//! The filters of LevelDB's and RocksDB's databases: what they do, and what others would do.
//!
//! [`by_level`] sums figures and lookups by level. [`simulate`] makes lookups again with
//! a simulated block cache, for the settings as they are and for those of [`alternatives`].

pub(crate) mod alternatives;
pub(crate) mod simulation;
pub(crate) mod cache;
pub(crate) mod settings;
pub(crate) mod levels;

pub use alternatives::{Alternative, alternatives};
pub use levels::{LevelFilters, by_level, counts_of};
pub use settings::{Pinning, ReadSettings, Store};
pub use simulation::{Layout, LookupCost, Part, Plan, TablePlan, Verdicts, simulate};
