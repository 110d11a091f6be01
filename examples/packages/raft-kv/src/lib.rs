//! A replicated key-value service: openraft with siftdb as log store and state machine.
//!
//! openraft decides in which order commands go into the log, when an entry is committed, and who
//! leads. This package gives it what it needs: a place for the log and the data (siftdb), messages
//! between nodes and an interface for clients (HTTP). Read it in this order; the first half has
//! nothing to do with the network.

// What is replicated.
pub mod types;
pub mod commands;

// Where a node keeps it.
pub mod storage;
pub mod durable;
pub mod log_store;
pub mod state_machine;
pub mod snapshots;
pub mod snapshot_directory;

// How nodes talk to each other.
pub mod http_client;
pub mod network;
pub mod transfer;
pub mod peers;

pub mod members;

// How everybody else talks to them.
pub mod clients;
pub mod operators;
pub mod metrics;
pub mod server;

// A process, and three of them.
pub mod log;
pub mod node;
pub mod cluster;
