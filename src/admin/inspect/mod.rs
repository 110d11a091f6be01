//! Any siftdb file as text: what `siftdb sst` prints, and what golden tests compare.
//!
//! Works on a single file, without the rest of its database and without its lock, and on any
//! bytes: what cannot be read is said, or is an error that names file and offset. Whether the
//! files of a database fit together is asked only by [`live_tables`] and [`verify_live_table`],
//! for tables.
//!
//! [`dump()`] goes by the file's name where it is one of siftdb's, else by how the file begins or
//! ends. Keys and values are printed as Rust's byte-string escapes.

#[cfg(test)]
mod format_tests;
pub(crate) mod dump;
pub(crate) mod live;
pub(crate) mod records;
pub(crate) mod tables;
pub(crate) mod text;

pub use dump::{dump, dump_records};
pub use live::{LiveTable, UncheckedLogs, live_tables, unchecked_logs, verify_live_table};
pub use tables::{layout, table_facts, verify_table};
pub use text::{DumpOptions, DumpRecord, DumpValue, RecordSink, TableFacts};
