//! RocksDB, built from source by its crate: with the common settings, with those that its experts
//! choose for lookups, and with large values in blob files.

use crate::engine::{
    BITS_PER_KEY, BLOCK_BYTES, Each, Engine, Layout, Reader, Result, SEPARATED_BYTES, Settings,
    Store, WRITE_BUFFER_BYTES,
};
use crate::machine::crate_version;
use crate::workload::Batch;
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, BlockBasedTablePinningTier, Cache, DB,
    DBCompressionType, DataBlockIndexType, Options, WriteBatch, WriteOptions,
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
    separates_values: false,
    settings: "own layout: full filters and whole indexes outside of the cache; LRU cache; \
               get_pinned",
    open,
    open_transactions: None,
};

/// The settings that RocksDB's experts choose for lookups.
pub const TUNED: Engine = Engine {
    name: "rocksdb-tuned",
    settings: "as rocksdb, and: hash index in data blocks, ratio 0.75; HyperClockCache; whole-key \
               filter of the memtable, 2 % of it; interpolation search in uniform index blocks; \
               partitioned layout: partitions of level 0 pinned",
    open: open_tuned,
    ..ENGINE
};

/// Integrated BlobDB.
pub const BLOBS: Engine = Engine {
    name: "rocksdb-blobs",
    separates_values: true,
    settings: "as rocksdb, and: values of 1 KiB or more in blob files; their garbage collection \
               with its default thresholds; blobs in the block cache",
    open: open_blobs,
    ..ENGINE
};

/// The part of a memtable's bytes that its filter takes: about 20 bits a key with values of 100.
const MEMTABLE_FILTER_RATIO: f64 = 0.02;

fn open(directory: &Path, settings: &Settings) -> Result<Box<dyn Store>> {
    let cache = Cache::new_lru_cache(usize::try_from(settings.cache_bytes)?);
    open_with(directory, &database_options(settings, &table_options(settings, &cache)))
}

fn open_tuned(directory: &Path, settings: &Settings) -> Result<Box<dyn Store>> {
    // Without an estimate of the bytes of an entry the cache's table grows as needed.
    let cache = Cache::new_hyper_clock_cache(usize::try_from(settings.cache_bytes)?, 0);
    let mut table = table_options(settings, &cache);
    table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    table.set_data_block_hash_ratio(0.75);
    // `Own` has all filters and indexes in memory. `Partitioned` pins their top levels already.
    table.set_partition_pinning_tier(BlockBasedTablePinningTier::FlushAndSimilar);
    let mut options = database_options(settings, &table);
    if settings.layout != Layout::NoFilter {
        options.set_memtable_whole_key_filtering(true);
        options.set_memtable_prefix_bloom_ratio(MEMTABLE_FILTER_RATIO);
    }
    // The crate has no functions for these two. Only index blocks that are marked as uniform when
    // they are written are searched by interpolation, and by default none is marked. RocksDB's
    // change log names the threshold 0.2.
    let search = "block_based_table_factory=\
                  {index_block_search_type=kAuto;uniform_cv_threshold=0.2}";
    open_with(directory, &options.get_options_from_string(search)?)
}

fn open_blobs(directory: &Path, settings: &Settings) -> Result<Box<dyn Store>> {
    let cache = Cache::new_lru_cache(usize::try_from(settings.cache_bytes)?);
    let mut options = database_options(settings, &table_options(settings, &cache));
    options.set_enable_blob_files(true);
    options.set_min_blob_size(SEPARATED_BYTES.into());
    options.set_enable_blob_gc(true);
    options.set_blob_cache(&cache);
    open_with(directory, &options)
}

fn open_with(directory: &Path, options: &Options) -> Result<Box<dyn Store>> {
    Ok(Box::new(Rocksdb(DB::open(options, directory)?)))
}

fn table_options(settings: &Settings, cache: &Cache) -> BlockBasedOptions {
    let mut table = BlockBasedOptions::default();
    table.set_block_size(BLOCK_BYTES);
    table.set_block_cache(cache);
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
    table
}

fn database_options(settings: &Settings, table: &BlockBasedOptions) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(table);
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_allow_mmap_reads(settings.map_files);
    options.set_disable_auto_compactions(!settings.compaction);
    options.set_compression_type(match settings.compression {
        true => DBCompressionType::Snappy,
        false => DBCompressionType::None,
    });
    options
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
