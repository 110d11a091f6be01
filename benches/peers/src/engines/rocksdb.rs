//! RocksDB, built from source by its crate.

use crate::engine::{
    BITS_PER_KEY, BLOCK_BYTES, Each, Engine, Layout, Reader, Result, Settings, Store,
    WRITE_BUFFER_BYTES,
};
use crate::machine::crate_version;
use crate::workload::Batch;
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DB, DBCompressionType, Options, WriteBatch,
    WriteOptions,
};
use std::path::Path;

pub const ENGINE: Engine = Engine {
    name: "rocksdb",
    version: || format!("{} ({})", crate_version("rocksdb"), crate_version("librocksdb-sys")),
    layouts: &[Layout::Own, Layout::Partitioned, Layout::NoFilter],
    log_structured: true,
    level0_files: 10,
    compression: Some("Snappy"),
    maps_files: true,
    settings: "own layout: full filters and whole indexes outside of the cache; LRU cache; \
               get_pinned",
    open,
    open_transactions: None,
};

fn open(directory: &Path, settings: &Settings) -> Result<Box<dyn Store>> {
    let mut table = BlockBasedOptions::default();
    table.set_block_size(BLOCK_BYTES);
    table.set_block_cache(&Cache::new_lru_cache(usize::try_from(settings.cache_bytes)?));
    if settings.layout != Layout::NoFilter {
        table.set_bloom_filter(f64::from(BITS_PER_KEY), false);
    }
    if settings.layout == Layout::Partitioned {
        table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        table.set_partition_filters(true);
        table.set_metadata_block_size(BLOCK_BYTES);
        table.set_cache_index_and_filter_blocks(true);
        table.set_pin_top_level_index_and_filter(true);
    }
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_allow_mmap_reads(settings.map_files);
    options.set_disable_auto_compactions(!settings.compaction);
    options.set_compression_type(match settings.compression {
        true => DBCompressionType::Snappy,
        false => DBCompressionType::None,
    });
    Ok(Box::new(Rocksdb(DB::open(&options, directory)?)))
}

struct Rocksdb(DB);

impl Store for Rocksdb {
    fn put(&self, key: &[u8], value: &[u8], durable: bool) -> Result<()> {
        if !durable {
            return Ok(self.0.put(key, value)?);
        }
        let mut options = WriteOptions::default();
        options.set_sync(true);
        Ok(self.0.put_opt(key, value, &options)?)
    }

    fn write(&self, batch: &Batch<'_>) -> Result<()> {
        let mut writes = WriteBatch::default();
        for (key, value) in batch.iter() {
            writes.put(key, value);
        }
        Ok(self.0.write(writes)?)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(RocksdbReader(&self.0)))
    }

    fn flush(&self) -> Result<()> {
        Ok(self.0.flush()?)
    }

    fn settle(&self) -> Result<()> {
        self.flush()?;
        self.0.compact_range(None::<&[u8]>, None::<&[u8]>);
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.0.cancel_all_background_work(true);
        Ok(())
    }
}

struct RocksdbReader<'a>(&'a DB);

impl Reader for RocksdbReader<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<u8>> {
        Ok(self.0.get_pinned(key)?.and_then(|value| value.last().copied()))
    }

    fn scan(&mut self, from: &[u8], count: usize, each: &mut Each<'_>) -> Result<()> {
        let mut entries = self.0.raw_iterator();
        entries.seek(from);
        for _ in 0..count {
            let Some((key, value)) = entries.item() else { break };
            each(key, value);
            entries.next();
        }
        entries.status()?;
        Ok(())
    }
}
