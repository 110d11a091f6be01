//! Compaction: rewrites tables into the next level, or in place.
//!
//! `picker` looks at the sizes and keys of all tables and names the next `task`; it reads no file.
//! `manual` does the same for a request by the user. `run` runs a task and installs its result.
//! `output` writes the tables, `stripes` decides which entries and range deletes stay,
//! `entry_rules` what becomes of entries, and `range_deletes` which table gets which range deletes.
//! The new tables and their names are durable when a job returns, and gone when it fails.

pub(crate) mod run;
pub(crate) mod filter_budget;
pub(crate) mod output;
pub(crate) mod range_deletes;
pub(crate) mod entry_rules;
pub(crate) mod stripes;
pub(crate) mod manual;
pub(crate) mod picker;
pub(crate) mod task;
