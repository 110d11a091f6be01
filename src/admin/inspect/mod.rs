//! Prints any siftdb file as text: for `siftdb sst`, golden tests and docs/format.md.
//!
//! A single file is enough, without its database and its lock, and it may have any contents: damage
//! is printed, or is an error that names file and offset. Only [`live_tables`] and
//! [`verify_live_table`] check whether the tables of a database agree with its manifest.
//!
//! [`dump()`] recognizes a file by its name, if siftdb gives such names, or by its first and last
//! bytes. Keys and values are printed with Rust's byte-string escapes.

#[cfg(test)]
mod encoder_tests;
#[cfg(test)]
mod format_tests;
pub(crate) mod dump;
pub(crate) mod live;
pub(crate) mod records;
pub(crate) mod tables;
pub(crate) mod text;

pub use crate::base::key::separator;
pub use crate::base::levels::LEVELS;
pub use crate::base::stats::interval::wilson_95;
pub use crate::base::stats::text::bytes;
pub use dump::{dump, dump_records};
pub use live::{
    LiveTable, UncheckedLogs, live_keyspaces, live_tables, unchecked_logs, verify_live_table,
};
pub use tables::{layout, table_facts, verify_table};
pub use text::{DumpOptions, DumpRecord, DumpValue, RecordSink, TableFacts};
