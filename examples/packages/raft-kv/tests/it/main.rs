//! The tests of the service: openraft's own, those of its storage, and a cluster of processes.

mod checker;
mod checker_tests;
mod clients;
mod cluster;
mod command;
mod crashes;
mod kills;
mod operation;
mod random;
mod snapshots;
mod suite;
