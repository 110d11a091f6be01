//! The arguments that give a database memory, for advice on it.

use crate::failure::{Failure, Outcome};
use crate::numbers::size;
use clap::Args;
use siftdb::Keyspace;
use siftdb_cli::experiment::bytes;
use siftdb_cli::memory_advice::{self, MemoryAdvice};

#[derive(Args)]
pub struct GivenMemory {
    /// Memory for the block cache and the system's page cache of the files together, such as 4GB:
    /// says what lookups read then
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    /// The block cache that programs give the database, such as 64MB
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size)]
    pub cache: u64,
}

impl GivenMemory {
    /// Refuses less memory than the cache takes of it.
    pub fn check(&self) -> Outcome<()> {
        match self.memory.filter(|memory| *memory < self.cache) {
            None => Ok(()),
            Some(memory) => Err(Failure::usage(format!(
                "--memory {}: less than the block cache in it, --cache {}",
                bytes(memory),
                bytes(self.cache)
            ))),
        }
    }

    /// What lookups in a keyspace read, if memory is given.
    pub fn advice(&self, keyspace: &Keyspace) -> Option<MemoryAdvice> {
        let memory = self.memory?;
        let (tables, report) = (keyspace.tables(), keyspace.filter_report());
        Some(memory_advice::advice(&tables, &report, memory, self.cache))
    }
}
