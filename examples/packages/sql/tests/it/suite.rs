//! GlueSQL's own tests of a storage, all of those for what this one offers.

use gluesql_core::prelude::Glue;
use gluesql_test_suite::*;
use siftdb::Options;
use siftdb::env::MemEnv;
use siftdb_sql::{Connection, Database};
use std::path::Path;
use std::sync::Arc;

struct InMemory(Glue<Connection>);

impl Tester<Connection> for InMemory {
    fn new(_test: &str) -> Self {
        let options = Options::new().env(Arc::new(MemEnv::new()));
        let database = Database::open(Path::new("/db"), options).unwrap();
        InMemory(Glue::new(database.connect()))
    }

    fn get_glue(&mut self) -> &mut Glue<Connection> {
        &mut self.0
    }
}

generate_store_tests!(test, InMemory);
generate_alter_table_tests!(test, InMemory);
generate_transaction_tests!(test, InMemory);
generate_transaction_alter_table_tests!(test, InMemory);
