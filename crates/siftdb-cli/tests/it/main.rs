//! The integration tests of the command and of the experiments, one binary.
//!
//! | module | what it checks |
//! |---|---|
//! | `bench` | the benchmark finds known delays, counts and stalls |
//! | `cli`, `admin_cli`, `filter_cli`, `output_cli`, `bench_cli` | the command |
//! | `entry_cli` | commands on entries: several keys, files, ranges, counts |
//! | `examples_cli` | commands of documents and help work, bad directories are refused |
//! | `help_cli` | help, topics, completions, manual pages, colors, widths |
//! | `foreign_tables_cli` | single tables of LevelDB and RocksDB: layout, entries, damage, filters |
//! | `exchange_cli` | exports and imports round-trip, other stores' files come in |
//! | `foreign_filters` | simulated lookups in RocksDB databases, against its own counters |
//! | `rocksdb_cli` | whole RocksDB databases come in, or are refused by name |
//! | `beside_writer_cli` | reading commands while a process writes |
//! | `demo`, `demo_cli` | the demonstration, in the library and in the command |
//! | `memory_advice` | lookups read what the advice on memory says |
//! | `page_cli` | pages of the command: reports, tables, files that cannot be written |
//! | `arguments_cli` | impossible arguments are refused, and nothing is created |
//! | `foreign_cli` | databases of LevelDB and RocksDB are named and not touched |
//! | `limits_cli` | keys, names and settings at their limits are exported and imported |
//!
//! What tests of all packages share is in `tests/it/support/` of the engine.

// Tests read files directly; the library goes through `env`.
#![allow(clippy::disallowed_methods)]

mod admin_cli;
mod arguments_cli;
mod bench;
mod bench_cli;
mod beside_writer_cli;
mod cli;
mod demo;
mod demo_cli;
mod entry_cli;
mod examples_cli;
mod exchange_cli;
mod filter_cli;
mod foreign_cli;
mod foreign_filters;
mod foreign_tables_cli;
mod help_cli;
mod keyspace_cli;
mod limits_cli;
mod load_cli;
mod memory_advice;
mod output_cli;
mod page_cli;
mod rocksdb_cli;
mod support;
