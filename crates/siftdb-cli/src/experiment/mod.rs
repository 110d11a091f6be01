//! The rig for experiments: keys, databases, measured lookups, reports. It uses only the public
//! interface of siftdb. The demonstration, the benchmarks and `siftdb filter bench` use it.
//!
//! [`KeySet`], [`present`] and [`absent`] make keys, [`settled`] makes databases, [`measure`]
//! counts lookups twice.
//! [`run()`] is the demonstration. It loads the same keys in the same order into one database for
//! each filter layout, so that all have the same data blocks at the same levels. Then it makes the
//! same lookups in each: absent keys, present keys, and absent keys with a cache too small for the
//! filters. The answer, a [`Report`], prints as tables.
//!
//! ```
//! use siftdb_cli::experiment::{KeySet, Settings, run};
//! # fn main() -> siftdb::Result<()> {
//! let keys = KeySet::generate(2_000, 42);
//! let mut settings = Settings::new("demo");
//! settings.lookups = 500;
//! # settings.env = std::sync::Arc::new(siftdb::env::MemEnv::new());
//! let report = run(&settings, &keys, &mut |_| {})?;
//! assert!(report.faults.is_empty());
//! println!("{report}");
//! # Ok(())
//! # }
//! ```
//!
//! Experiments answer with [`Figure`]s. [`tree_figures`] draws the tree of a keyspace,
//! [`steps_figure`] what one lookup touched, [`contents_figures`] a database as a whole,
//! [`memory_figure`] what it reads with a given memory.
//!
//! `bench` runs workloads by the field's names over any store.
//!
//! Counts are differences of `Db::stats`, compared with what the Env saw during the lookups: a
//! difference of one read call or one byte is a fault in the report. Times hold for this machine,
//! with files mostly in the system's page cache.

pub(crate) mod page;
pub(crate) mod contents;
pub(crate) mod run;
pub(crate) mod monkey;
pub(crate) mod scan_figure;
pub(crate) mod cold_run;
pub(crate) mod cache_figure;
pub(crate) mod databases;
pub(crate) mod settings;
pub(crate) mod act_figures;
pub(crate) mod report;
pub mod bench;
pub(crate) mod probe;
pub(crate) mod cold_files;
pub(crate) mod memory_figure;
pub(crate) mod foreign_figures;
pub(crate) mod tree;
pub(crate) mod steps;
pub(crate) mod load;
pub(crate) mod filter_figures;
pub(crate) mod filters;
pub(crate) mod range_filters;
pub(crate) mod range_keys;
pub(crate) mod keys;
pub(crate) mod figure;

pub use act_figures::{blocks_figure, latency_figure};
pub use cache_figure::cache_figure;
pub use cold_files::{disk_bytes_read, make_cold};
pub use cold_run::cold_figure;
pub use contents::contents_figures;
pub use figure::{Cell, Figure, Heading, Picture, Scale, Unit};
pub use filter_figures::{encoding_figures, fpr_figure};
pub use filters::{
    FilterMeasurement, FilterTrial, INSIDE_KEYS, PassedKeys, count_passed, measure_filter,
};
pub use foreign_figures::{foreign_levels_figure, foreign_settings_figures};
pub use keys::{KeySet, absent, mix, present, random_numbers, splitmix64, value};
pub use load::{KEYS_MAX, KEYS_MIN, load, settled, table_totals};
pub use memory_figure::memory_figure;
pub use monkey::monkey_figure;
pub use page::page::Page;
pub use probe::{Measurement, measure};
pub use range_filters::{
    RANGE_KEYS_PER_BLOCK, RangeMeasurement, RangeTrial, measure_range_filters,
};
pub use range_keys::{KeySource, RangeKeys, after_a_key, at_random, key_set, of_a_key};
pub use report::{Act, ActKind, Column, DatabaseFacts, Report};
pub use run::run;
pub use scan_figure::scan_figure;
pub use settings::{Progress, Settings};
pub use siftdb::inspect::bytes;
pub use siftdb::inspect::wilson_95;
pub use steps::{LookupPart, LookupStep, lookup_steps, source_name, steps_figure};
pub use tree::tree_figures;
