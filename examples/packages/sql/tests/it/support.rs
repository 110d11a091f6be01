//! Databases in memory, and answers as text.

use gluesql_core::error::Error;
use gluesql_core::prelude::{Glue, Payload};
use siftdb::Options;
use siftdb::env::MemEnv;
use siftdb_sql::{Connection, Database};
use std::path::Path;
use std::sync::Arc;

pub type Sql = Glue<Connection>;

/// The database on the disk `env`.
pub fn open(env: &MemEnv) -> Database {
    let options = Options::new().env(Arc::new(env.clone()));
    Database::open(Path::new("/db"), options).unwrap()
}

/// A new database.
pub fn new() -> Database {
    open(&MemEnv::new())
}

pub fn connect(database: &Database) -> Sql {
    Glue::new(database.connect())
}

/// Runs statements that must not fail.
pub fn run(sql: &mut Sql, statements: &str) -> Vec<Payload> {
    sql.execute(statements).unwrap_or_else(|error| panic!("{statements}: {error}"))
}

/// The rows of a query, each as its values with a space between.
pub fn query(sql: &mut Sql, query: &str) -> Vec<String> {
    let answers = run(sql, query);
    let [Payload::Select { rows, .. }] = answers.as_slice() else { panic!("{query}: {answers:?}") };
    let texts = rows.iter().map(|row| row.iter().map(String::from).collect::<Vec<_>>());
    texts.map(|row| row.join(" ")).collect()
}

/// What statements that must fail say.
pub fn refused(sql: &mut Sql, statements: &str) -> String {
    let error: Error = sql.execute(statements).expect_err(statements);
    error.to_string()
}
