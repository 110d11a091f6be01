//! siftdb, from the sources above this package.
#![allow(unsafe_code)]

use crate::engine::{
    BITS_PER_KEY, BLOCK_BYTES, Each, Engine, Layout, Reader, Result, Run, Settings, Store,
    Transaction, Transactions, WRITE_BUFFER_BYTES, number,
};
use crate::machine::crate_version;
use crate::workload::Batch;
use siftdb::env::{DiskEnv, Env, MapEnv};
use siftdb::{Db, Filter, FilterLayout, Options, WriteBatch, WriteOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub const ENGINE: Engine = Engine {
    name: "siftdb",
    version: || crate_version("siftdb"),
    layouts: &[Layout::Own, Layout::Partitioned, Layout::BlockBased, Layout::NoFilter],
    log_structured: true,
    level0_files: 10,
    compression: Some("Snappy"),
    maps_files: true,
    separates_values: false,
    settings: "own layout: full filters at every level",
    open,
    open_transactions: Some(open_transactions),
};

fn open(directory: &Path, settings: &Settings) -> Result<Box<dyn Store>> {
    Ok(Box::new(Siftdb(open_db(directory, settings)?)))
}

fn open_transactions(directory: &Path, settings: &Settings) -> Result<Box<dyn Transactions>> {
    Ok(Box::new(Siftdb(open_db(directory, settings)?)))
}

fn open_db(directory: &Path, settings: &Settings) -> Result<Db> {
    let bloom = Filter::bloom(f64::from(BITS_PER_KEY));
    let filter = match settings.layout {
        Layout::Own => bloom.layout(FilterLayout::Full),
        Layout::Partitioned => bloom
            .layout(FilterLayout::Partitioned { block_bytes: FilterLayout::BLOCK_BYTES_DEFAULT }),
        Layout::BlockBased => bloom
            .layout(FilterLayout::BlockBased { window_bytes: FilterLayout::WINDOW_BYTES_DEFAULT }),
        Layout::NoFilter => Filter::none(),
    };
    let env: Arc<dyn Env> = match settings.map_files {
        // SAFETY: the files lie in a temporary directory that nobody else writes to.
        true => Arc::new(unsafe { MapEnv::new() }),
        false => Arc::new(DiskEnv::new()),
    };
    let options = Options::new()
        .env(env)
        .filter(filter)
        .memtable_filter(settings.layout != Layout::NoFilter)
        .block_bytes(BLOCK_BYTES)
        .write_buffer_bytes(WRITE_BUFFER_BYTES)
        .block_cache_bytes(settings.cache_bytes)
        .snappy(settings.compression)
        .auto_compaction(settings.compaction);
    Ok(options.open(directory)?)
}

struct Siftdb(Db);

impl Store for Siftdb {
    fn put(&self, key: &[u8], value: &[u8], durable: bool) -> Result<()> {
        if !durable {
            return Ok(self.0.put(key, value)?);
        }
        let mut batch = WriteBatch::new();
        batch.put(key, value);
        Ok(self.0.write_with(batch, &WriteOptions::new().sync(true))?)
    }

    fn write(&self, batch: &Batch<'_>) -> Result<()> {
        let mut writes = WriteBatch::new();
        for (key, value) in batch.iter() {
            writes.put(key, value);
        }
        Ok(self.0.write(writes)?)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(SiftdbReader(&self.0)))
    }

    fn flush(&self) -> Result<()> {
        Ok(self.0.flush()?)
    }

    fn settle(&self) -> Result<()> {
        Ok(self.0.compact_range(..)?)
    }

    fn stalled(&self) -> Option<Duration> {
        let stats = self.0.stats();
        let stalls = stats.memtable_stall_nanos + stats.level0_stall_nanos;
        let nanos = stalls + stats.slowdown_nanos + stats.log_switch_nanos;
        Some(Duration::from_nanos(nanos))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.0.close()?)
    }
}

struct SiftdbReader<'a>(&'a Db);

impl Reader for SiftdbReader<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<u8>> {
        Ok(self.0.get(key)?.and_then(|value| value.last().copied()))
    }

    fn scan(&mut self, from: &[u8], count: usize, each: &mut Each<'_>) -> Result<()> {
        // A cursor lends its entries, as those of most others do; an iterator returns shares.
        let mut entries = self.0.cursor();
        entries.seek(from)?;
        for number in 0..count {
            if number > 0 {
                entries.next()?;
            }
            let Some((key, value)) = entries.entry() else { break };
            each(key, value);
        }
        Ok(())
    }
}

impl Transactions for Siftdb {
    fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.0.get(key)?.map(|value| number(&value)))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.0.put(key, value)?)
    }

    fn transact(&self, durable: bool, run: &mut Run<'_>) -> Result<()> {
        // A failed run ends the transaction with this, and the harness gets what failed.
        let aborted = || siftdb::Error::InvalidArgument { what: "aborted".into() };
        let mut failed = None;
        let done = self.0.transact_with(&WriteOptions::new().sync(durable), |transaction| {
            run(&mut SiftdbTransaction(transaction)).map_err(|error| {
                failed = Some(error);
                aborted()
            })
        });
        match failed {
            Some(error) => Err(error),
            None => Ok(done?),
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.0.close()?)
    }
}

struct SiftdbTransaction<'t>(&'t siftdb::Transaction);

impl Transaction for SiftdbTransaction<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.0.get(key)?.map(|value| number(&value)))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.0.put(key, value)?)
    }

    fn scan(&mut self, end: &[u8]) -> Result<u64> {
        let mut count = 0;
        for entry in self.0.range(..end) {
            entry?;
            count += 1;
        }
        Ok(count)
    }
}
