//! Bulk loads: sorted entries become tables without log and memtable, and appear in one step.
//!
//! `tables` writes the entries into tables that nothing names yet, and
//! `table_thread` is the thread that helps it. `sort` brings unsorted entries
//! into order, with runs on disk. `install` puts the tables into the tree, as the newest of all,
//! and `level` says where.

pub(crate) mod install;
pub(crate) mod sort;
pub(crate) mod tables;
mod table_thread;
mod level;
