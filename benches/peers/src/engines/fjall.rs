//! fjall: one keyspace, without and with key-value separation.

use crate::engine::{
    BITS_PER_KEY, BLOCK_BYTES, Each, Engine, Layout, Reader, Result, Run, SEPARATED_BYTES,
    Settings, Store, Transaction, Transactions, WRITE_BUFFER_BYTES, number,
};
use crate::machine::crate_version;
use crate::workload::Batch;
use fjall::compaction::Leveled;
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    PartitioningPolicy, PinningPolicy,
};
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions,
    OptimisticTxDatabase, OptimisticTxKeyspace, OptimisticWriteTx, PersistMode, Readable,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub const ENGINE: Engine = Engine {
    name: "fjall",
    version: || crate_version("fjall"),
    layouts: &[Layout::Own, Layout::Partitioned, Layout::NoFilter],
    log_structured: true,
    level0_files: 10,
    compression: Some("LZ4"),
    maps_files: false,
    separates_values: false,
    settings: "own layout: full filters and whole indexes, pinned at every level",
    open,
    open_transactions: Some(open_transactions),
};

/// With key-value separation.
pub const SEPARATED: Engine = Engine {
    name: "fjall-separated",
    separates_values: true,
    settings: "as fjall, and: values of 1 KiB or more in blob files, not compressed; their garbage \
               collection with its default thresholds",
    open: open_separated,
    ..ENGINE
};

fn open(directory: &Path, settings: &Settings) -> Result<Box<dyn Store>> {
    open_with(directory, settings, keyspace_options(settings))
}

fn open_separated(directory: &Path, settings: &Settings) -> Result<Box<dyn Store>> {
    let separation = KvSeparationOptions::default()
        .separation_threshold(SEPARATED_BYTES)
        .compression(CompressionType::None);
    let options = keyspace_options(settings).with_kv_separation(Some(separation));
    open_with(directory, settings, options)
}

fn open_with(
    directory: &Path,
    settings: &Settings,
    options: KeyspaceCreateOptions,
) -> Result<Box<dyn Store>> {
    // By default the journal compresses values of 4 KiB or more, whatever tables do.
    let builder = Database::builder(directory).journal_compression(CompressionType::None);
    let database = builder.cache_size(settings.cache_bytes).open()?;
    let keyspace = database.keyspace("peers", || options)?;
    Ok(Box::new(Fjall { database, keyspace }))
}

fn open_transactions(directory: &Path, settings: &Settings) -> Result<Box<dyn Transactions>> {
    let builder = OptimisticTxDatabase::builder(directory).cache_size(settings.cache_bytes);
    let database = builder.open()?;
    let keyspace = database.keyspace("peers", || keyspace_options(settings))?;
    Ok(Box::new(FjallTransactions { database, keyspace }))
}

fn keyspace_options(settings: &Settings) -> KeyspaceCreateOptions {
    let bits = BloomConstructionPolicy::BitsPerKey(f32::from(BITS_PER_KEY));
    let filter = match settings.layout {
        Layout::NoFilter => FilterPolicy::disabled(),
        _ => FilterPolicy::all(FilterPolicyEntry::Bloom(bits)),
    };
    let compression = match settings.compression {
        true => CompressionPolicy::all(CompressionType::Lz4),
        false => CompressionPolicy::disabled(),
    };
    let partitioned = settings.layout == Layout::Partitioned;
    // A threshold that no phase reaches keeps the tables where flushes put them.
    let level0_tables = if settings.compaction { 4 } else { u8::MAX };
    KeyspaceCreateOptions::default()
        .max_memtable_size(WRITE_BUFFER_BYTES as u64)
        .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES as u32))
        .data_block_compression_policy(compression)
        .filter_policy(filter)
        .filter_block_partitioning_policy(PartitioningPolicy::all(partitioned))
        .filter_block_pinning_policy(PinningPolicy::all(!partitioned))
        .index_block_partitioning_policy(PartitioningPolicy::all(false))
        .index_block_pinning_policy(PinningPolicy::all(true))
        .compaction_strategy(Arc::new(Leveled::default().with_l0_threshold(level0_tables)))
}

struct Fjall {
    database: Database,
    keyspace: Keyspace,
}

impl Store for Fjall {
    fn put(&self, key: &[u8], value: &[u8], durable: bool) -> Result<()> {
        self.keyspace.insert(key, value)?;
        if durable {
            self.database.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }

    fn write(&self, batch: &Batch<'_>) -> Result<()> {
        let mut writes = self.database.batch();
        for (key, value) in batch.iter() {
            writes.insert(&self.keyspace, key, value);
        }
        Ok(writes.commit()?)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(FjallReader(&self.keyspace)))
    }

    fn flush(&self) -> Result<()> {
        Ok(self.keyspace.rotate_memtable_and_wait()?)
    }

    fn settle(&self) -> Result<()> {
        self.flush()?;
        while self.database.outstanding_flushes() + self.database.active_compactions() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(self.keyspace.major_compact()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }
}

struct FjallReader<'a>(&'a Keyspace);

impl Reader for FjallReader<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<u8>> {
        Ok(self.0.get(key)?.and_then(|value| value.last().copied()))
    }

    fn scan(&mut self, from: &[u8], count: usize, each: &mut Each<'_>) -> Result<()> {
        for entry in self.0.range(from..).take(count) {
            let (key, value) = entry.into_inner()?;
            each(&key, &value);
        }
        Ok(())
    }
}

/// Optimistic transactions, a database of its own kind.
struct FjallTransactions {
    database: OptimisticTxDatabase,
    keyspace: OptimisticTxKeyspace,
}

impl Transactions for FjallTransactions {
    fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.keyspace.get(key)?.map(|value| number(&value)))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.keyspace.insert(key, value)?)
    }

    fn transact(&self, durable: bool, run: &mut Run<'_>) -> Result<()> {
        loop {
            let mut transaction = self.database.write_tx()?;
            if durable {
                transaction = transaction.durability(Some(PersistMode::SyncData));
            }
            let mut transaction = FjallTransaction { transaction, keyspace: &self.keyspace };
            run(&mut transaction)?;
            if transaction.transaction.commit()?.is_ok() {
                return Ok(());
            }
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }
}

struct FjallTransaction<'a> {
    transaction: OptimisticWriteTx,
    keyspace: &'a OptimisticTxKeyspace,
}

impl Transaction for FjallTransaction<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.transaction.get(self.keyspace, key)?.map(|value| number(&value)))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.transaction.insert(self.keyspace, key, value);
        Ok(())
    }

    fn scan(&mut self, end: &[u8]) -> Result<u64> {
        let mut count = 0;
        for entry in self.transaction.range(self.keyspace, ..end) {
            entry.into_inner()?;
            count += 1;
        }
        Ok(count)
    }
}
