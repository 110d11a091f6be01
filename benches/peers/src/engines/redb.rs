//! redb: one table, a copy-on-write B-tree.
//!
//! A write without sync is a commit with `Durability::None`: it is lost when the process dies, so
//! redb promises less than the others there. A reader is one read transaction.

use crate::engine::{
    Each, Engine, Layout, Reader, Result, Run, Settings, Store, Transaction, Transactions, number,
};
use crate::machine::crate_version;
use crate::workload::Batch;
use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, Table, TableDefinition,
};
use std::path::Path;
use std::sync::RwLock;

pub const ENGINE: Engine = Engine {
    name: "redb",
    version: || crate_version("redb"),
    layouts: &[Layout::Own],
    log_structured: false,
    level0_files: 0,
    compression: None,
    maps_files: false,
    separates_values: false,
    settings: "no sync: Durability::None, lost when the process dies; one read transaction a phase",
    open,
    open_transactions: Some(open_transactions),
};

const POISONED: &str = "a thread panicked during a compaction";

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("peers");

fn open(directory: &Path, settings: &Settings) -> Result<Box<dyn Store>> {
    Ok(Box::new(open_redb(directory, settings)?))
}

fn open_transactions(directory: &Path, settings: &Settings) -> Result<Box<dyn Transactions>> {
    Ok(Box::new(open_redb(directory, settings)?))
}

fn open_redb(directory: &Path, settings: &Settings) -> Result<Redb> {
    let mut builder = Database::builder();
    builder.set_cache_size(usize::try_from(settings.cache_bytes)?);
    let store = Redb(RwLock::new(builder.create(directory.join("peers.redb"))?));
    // Readers need the table to exist.
    store.commit(Durability::None, std::iter::empty())?;
    Ok(store)
}

/// Compaction alone needs the lock to itself.
struct Redb(RwLock<Database>);

impl Redb {
    fn commit<'a>(
        &self,
        durability: Durability,
        entries: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<()> {
        let database = self.0.read().map_err(|_| POISONED)?;
        let mut transaction = database.begin_write()?;
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
        let database = self.0.read().map_err(|_| POISONED)?;
        Ok(Box::new(RedbReader(database.begin_read()?.open_table(TABLE)?)))
    }

    fn flush(&self) -> Result<()> {
        self.commit(Durability::Immediate, std::iter::empty())
    }

    fn settle(&self) -> Result<()> {
        self.flush()?;
        self.0.write().map_err(|_| POISONED)?.compact()?;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.flush()
    }
}

struct RedbReader(ReadOnlyTable<&'static [u8], &'static [u8]>);

impl Reader for RedbReader {
    fn get(&mut self, key: &[u8]) -> Result<Option<u8>> {
        Ok(self.0.get(key)?.and_then(|value| value.value().last().copied()))
    }

    fn scan(&mut self, from: &[u8], count: usize, each: &mut Each<'_>) -> Result<()> {
        for entry in self.0.range(from..)?.take(count) {
            let (key, value) = entry?;
            each(key.value(), value.value());
        }
        Ok(())
    }
}

/// One transaction writes at a time, so none conflicts.
impl Transactions for Redb {
    fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        let database = self.0.read().map_err(|_| POISONED)?;
        let table = database.begin_read()?.open_table(TABLE)?;
        Ok(table.get(key)?.map(|value| number(value.value())))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.commit(Durability::None, std::iter::once((key, value)))
    }

    fn transact(&self, durable: bool, run: &mut Run<'_>) -> Result<()> {
        let database = self.0.read().map_err(|_| POISONED)?;
        let mut transaction = database.begin_write()?;
        let durability = if durable { Durability::Immediate } else { Durability::None };
        transaction.set_durability(durability)?;
        run(&mut RedbTransaction(transaction.open_table(TABLE)?))?;
        Ok(transaction.commit()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.flush()
    }
}

struct RedbTransaction<'t>(Table<'t, &'static [u8], &'static [u8]>);

impl Transaction for RedbTransaction<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.0.get(key)?.map(|value| number(value.value())))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.insert(key, value)?;
        Ok(())
    }

    fn scan(&mut self, end: &[u8]) -> Result<u64> {
        let mut count = 0;
        for entry in self.0.range(..end)? {
            entry?;
            count += 1;
        }
        Ok(count)
    }
}
