//! A rewrite: entries of memtables or tables become new tables. Flushes, compactions and repairs
//! are rewrites.
//!
//! `output` merges the inputs and writes the tables, `stripes` decides which entries and range
//! deletes stay, `entry_rules` what becomes of entries, and `range_deletes` which table gets which
//! range deletes. The new tables are synced when a rewrite returns, and gone when it fails.

pub(crate) mod output;
pub(crate) mod range_deletes;
pub(crate) mod entry_rules;
pub(crate) mod stripes;
