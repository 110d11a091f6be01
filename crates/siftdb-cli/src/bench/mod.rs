//! `siftdb bench`: measures workloads and compares runs; `siftdb_cli::experiment::bench` does the
//! work.
//!
//! `command` parses the arguments and runs every workload in every cell of the matrix, round by
//! round. `databases` makes the databases, `compare` is `siftdb bench compare`.

pub mod command;
mod compare;
mod databases;
mod args;
