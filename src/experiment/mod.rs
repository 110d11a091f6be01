//! What filters save on given keys, measured: the demonstration, benches and tests stand on this.
//!
//! [`run()`] loads the same keys in the same order into one database for each filter layout, so
//! that all have the same data blocks at the same levels, and then makes the same lookups in each,
//! in three acts: keys that are not there, keys that are there, and again keys that are not there
//! with a cache too small for the filters. The answer, a [`Report`], is plain data that prints as
//! tables.
//!
//! ```
//! use siftdb::experiment::{KeySet, Settings, run};
//! # fn main() -> siftdb::Result<()> {
//! let keys = KeySet::generate(2_000, 42);
//! let mut settings = Settings::new("lab");
//! settings.lookups = 500;
//! # settings.env = std::sync::Arc::new(siftdb::env::MemEnv::without_log());
//! let report = run(&settings, &keys, &mut |_| {})?;
//! assert!(report.faults.is_empty());
//! println!("{report}");
//! # Ok(())
//! # }
//! ```
//!
//! Counts are differences of `Db::stats`, and every one is held against what the Env itself saw
//! during the lookups: a difference of one read call or one byte is a fault in the report. Times
//! are those of this machine, with the files mostly in the system's page cache.

pub(crate) mod run;
pub(crate) mod load;
pub(crate) mod probe;
pub(crate) mod report;
pub(crate) mod keys;

pub use crate::base::stats::interval::wilson_95;
pub use crate::base::stats::text::bytes;
pub use keys::KeySet;
pub use load::{KEYS_MAX, KEYS_MIN};
pub use report::{Act, ActKind, Column, DatabaseFacts, Measurement, Report};
pub use run::{Progress, Settings, Stage, run};
