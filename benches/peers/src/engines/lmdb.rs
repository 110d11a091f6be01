//! LMDB through heed: the unnamed database of an environment, a memory-mapped B-tree.
//!
//! It has no cache of its own, so the settings of the cache do not concern it. A reader is one
//! read transaction.
#![allow(unsafe_code)]

use crate::engine::{Each, Engine, Layout, Reader, Result, Settings, Store};
use crate::machine::crate_version;
use crate::workload::Batch;
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithTls};
use std::ops::Bound;
use std::path::Path;

pub const ENGINE: Engine = Engine {
    name: "lmdb",
    version: || format!("heed {}", crate_version("heed")),
    layouts: &[Layout::Own],
    log_structured: false,
    level0_files: 0,
    compression: None,
    maps_files: true,
    separates_values: false,
    settings: "no sync: NO_SYNC; NO_READ_AHEAD; the page cache is its cache; one read transaction \
               a phase",
    open,
    open_transactions: None,
};

fn open(directory: &Path, settings: &Settings) -> Result<Box<dyn Store>> {
    let mut options = EnvOpenOptions::new();
    options.map_size(usize::try_from(settings.map_bytes)?.next_multiple_of(1 << 20));
    // Its documentation asks for this where data may exceed memory and reads are random.
    let random = EnvFlags::NO_READ_AHEAD;
    let flags = if settings.durable { random } else { random | EnvFlags::NO_SYNC };
    // SAFETY: the files lie in a temporary directory that nobody else writes to, and one
    // environment is open on them at a time. NO_SYNC weakens durability only.
    let env = unsafe { options.flags(flags).open(directory)? };
    let created = env.create_databases_and_commit(env.write_txn()?, |opener, transaction| {
        opener.create_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
    });
    let database = created?.unwrap_commit();
    Ok(Box::new(Lmdb { env, database }))
}

struct Lmdb {
    env: Env<WithTls>,
    database: Database<'static, Bytes, Bytes>,
}

impl Lmdb {
    fn commit<'a>(&self, entries: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        for (key, value) in entries {
            self.database.put(&mut transaction, key, value)?;
        }
        Ok(transaction.commit()?)
    }
}

impl Store for Lmdb {
    /// Whether it is durable is decided at open.
    fn put(&self, key: &[u8], value: &[u8], _durable: bool) -> Result<()> {
        self.commit(std::iter::once((key, value)))
    }

    fn write(&self, batch: &Batch<'_>) -> Result<()> {
        self.commit(batch.iter())
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        let transaction = self.env.read_txn()?;
        Ok(Box::new(LmdbReader { transaction, database: self.database }))
    }

    fn flush(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }

    fn settle(&self) -> Result<()> {
        self.flush()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.flush()?;
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

struct LmdbReader<'a> {
    transaction: RoTxn<'a, WithTls>,
    database: Database<'static, Bytes, Bytes>,
}

impl Reader for LmdbReader<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<u8>> {
        Ok(self.database.get(&self.transaction, key)?.and_then(|value| value.last().copied()))
    }

    fn scan(&mut self, from: &[u8], count: usize, each: &mut Each<'_>) -> Result<()> {
        // A key is never empty, and a bound is a key.
        let start = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) };
        let range = (start, Bound::Unbounded);
        for entry in self.database.range(&self.transaction, &range)?.take(count) {
            let (key, value) = entry?;
            each(key, value);
        }
        Ok(())
    }
}
