//! SQL over siftdb: a storage for [GlueSQL](https://docs.rs/gluesql-core), and a shell.
//!
//! GlueSQL parses, plans and runs statements. This package gives it tables, rows and transactions.
//! Read it in this order:

// Where a row is in the database.
pub mod keys;

// Which rows a query reads.
pub mod ranges;

// Transactions, tables and rows.
pub mod connection;
mod tables;

// What the shell adds.
pub mod statements;
pub mod text;

pub use connection::{Connection, Database};
