//! redb: one table, a copy-on-write B-tree.
//!
//! A write without sync is a commit with `Durability::None`: it is lost when the process dies, so
//! redb promises less than the others there. A reader is one read transaction.

use crate::engine::{Engine, Layout, Reader, Result, Settings, Store};
use crate::machine::crate_version;
use crate::tally::Tally;
use crate::workload::Batch;
use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition};
use std::path::Path;

pub const ENGINE: Engine = Engine {
    name: "redb",
    version: || crate_version("redb"),
    layouts: &[Layout::Own],
    log_structured: false,
    level0_files: 0,
    compression: None,
    maps_files: false,
    settings: "no sync: Durability::None, lost when the process dies; one read transaction a phase",
    open,
};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("peers");

fn open(directory: &Path, settings: &Settings) -> Result<Box<dyn Store>> {
    let mut builder = Database::builder();
    builder.set_cache_size(usize::try_from(settings.cache_bytes)?);
    let store = Redb(builder.create(directory.join("peers.redb"))?);
    // Readers need the table to exist.
    store.commit(Durability::None, std::iter::empty())?;
    Ok(Box::new(store))
}

struct Redb(Database);

impl Redb {
    fn commit<'a>(
        &self,
        durability: Durability,
        entries: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<()> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(durability)?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for (key, value) in entries {
                table.insert(key, value)?;
            }
        }
        Ok(transaction.commit()?)
    }
}

impl Store for Redb {
    fn put(&self, key: &[u8], value: &[u8], durable: bool) -> Result<()> {
        let durability = if durable { Durability::Immediate } else { Durability::None };
        self.commit(durability, std::iter::once((key, value)))
    }

    fn write(&self, batch: &Batch<'_>) -> Result<()> {
        self.commit(Durability::None, batch.iter())
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(RedbReader(self.0.begin_read()?.open_table(TABLE)?)))
    }

    fn flush(&mut self) -> Result<()> {
        self.commit(Durability::Immediate, std::iter::empty())
    }

    fn settle(&mut self) -> Result<()> {
        self.flush()?;
        self.0.compact()?;
        Ok(())
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.flush()
    }
}

struct RedbReader(ReadOnlyTable<&'static [u8], &'static [u8]>);

impl Reader for RedbReader {
    fn get(&mut self, key: &[u8]) -> Result<Option<u8>> {
        Ok(self.0.get(key)?.and_then(|value| value.value().last().copied()))
    }

    fn scan(&mut self, from: &[u8], count: usize) -> Result<Tally> {
        let mut tally = Tally::default();
        for entry in self.0.range(from..)?.take(count) {
            tally.add(entry?.1.value().last().copied());
        }
        Ok(tally)
    }
}
