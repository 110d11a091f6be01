//! The filter of a table of LevelDB or RocksDB. It is asked with ascending keys.
//!
//! RocksDB has one filter for a table, or partitions with an index. A key belongs to the first
//! partition whose index key is not below it, or to the last one if there is none. One partition is
//! in memory at a time. Old versions of RocksDB wrote block-based filters like LevelDB's. These are
//! named but not asked, as in RocksDB itself.

use crate::block_based::BlockBasedFilter;
use crate::block_handle::BlockHandle;
use crate::filter_figures::FilterFigures;
use crate::store::Store;
use crate::table::{Partitions, Table};
use siftdb::Result;
use siftdb_filter::bloom::{fast_local, leveldb};
use siftdb_filter::encoding::{FilterReader, PreparedFilter};
use siftdb_filter::hash::KeyHash;

/// The layout of a table's filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilterLayoutKind {
    Full,
    Partitioned,
    BlockBased,
}

impl FilterLayoutKind {
    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FilterLayoutKind::Full => "full",
            FilterLayoutKind::Partitioned => "partitioned",
            FilterLayoutKind::BlockBased => "block-based",
        }
    }

    /// Layout and policy of a filter by its name in the metaindex; `None` for other blocks.
    pub(crate) fn of_name(name: &[u8]) -> Option<(Self, &[u8])> {
        let kinds = [
            (FilterLayoutKind::Full, &b"fullfilter."[..]),
            (FilterLayoutKind::Partitioned, b"partitionedfilter."),
            (FilterLayoutKind::BlockBased, b"filter."),
        ];
        kinds.into_iter().find_map(|(kind, prefix)| Some((kind, name.strip_prefix(prefix)?)))
    }
}

/// The filter of a table, asked with ascending keys.
#[derive(Debug)]
pub(crate) struct TableFilter {
    /// The block that the metaindex names.
    pub handle: BlockHandle,
    body: Body,
    /// What is known without reading all of it.
    figures: FilterFigures,
}

#[derive(Debug)]
enum Body {
    /// It has an unknown policy or no whole keys, so it is not asked.
    NotAsked,
    BlockBased(BlockBasedFilter),
    Full(PreparedFilter),
    Partitioned(Box<OnePartition>),
}

/// The partitions of a filter, one of which is in memory.
#[derive(Debug)]
struct OnePartition {
    partitions: Partitions,
    is_begun: bool,
    is_last: bool,
    loaded: Option<(BlockHandle, PreparedFilter)>,
}

impl TableFilter {
    /// The filter of a table, if it has one.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `UnsupportedFormat`.
    pub(crate) fn open(table: &Table) -> Result<Option<Self>> {
        let mut named = table.metaindex()?;
        while named.next(&table.file)? {
            if let Some((layout, policy)) = FilterLayoutKind::of_name(named.name()) {
                let policy = String::from_utf8_lossy(policy).into_owned();
                return Self::new(table, layout, policy, named.handle).map(Some);
            }
        }
        Ok(None)
    }

    fn new(
        table: &Table,
        layout: FilterLayoutKind,
        policy: String,
        handle: BlockHandle,
    ) -> Result<Self> {
        let mut figures = FilterFigures { filter_bytes: handle.size, ..FilterFigures::default() };
        figures.layouts.insert(layout.name().into());
        let is_known = policy == fast_local::NAME && table.has_whole_keys;
        let body = match (layout, table.file.store) {
            (FilterLayoutKind::BlockBased, Store::LevelDb) => {
                let filter = BlockBasedFilter::new(&policy, table.file.read(handle)?);
                let filter = filter.map_err(|what| table.damage(handle, what))?;
                if filter.bits > 0 {
                    (figures.filter_bits, figures.probes) = (filter.bits, filter.probes);
                    figures.encodings.insert("leveldb-bloom".into());
                }
                if policy == leveldb::NAME {
                    figures.window_bytes = filter.window_bytes();
                    Body::BlockBased(filter)
                } else {
                    Body::NotAsked
                }
            }
            (FilterLayoutKind::Full, Store::RocksDb) if is_known => {
                Body::Full(rocksdb_filter(table.file.read(handle)?))
            }
            (FilterLayoutKind::Partitioned, Store::RocksDb) => {
                let mut partitions = table.partitions(handle)?;
                while partitions.next(table)? {
                    figures.partitions += 1;
                    figures.filter_bytes += partitions.handle().size;
                    figures.filter_top_level_bytes = handle.size;
                }
                let partitions = table.partitions(handle)?;
                let one =
                    OnePartition { partitions, is_begun: false, is_last: false, loaded: None };
                if is_known { Body::Partitioned(Box::new(one)) } else { Body::NotAsked }
            }
            _ => Body::NotAsked,
        };
        figures.policies.insert(policy);
        Ok(TableFilter { handle, body, figures })
    }

    /// True if it can be asked for keys.
    pub(crate) fn is_asked(&self) -> bool {
        !matches!(self.body, Body::NotAsked)
    }

    /// The block that [`ask`](Self::ask) read last, or reads for every key; `None` if there is
    /// none.
    pub(crate) fn block(&self) -> Option<BlockHandle> {
        match &self.body {
            Body::NotAsked => None,
            Body::BlockBased(_) | Body::Full(_) => Some(self.handle),
            Body::Partitioned(one) => one.loaded.as_ref().map(|(handle, _)| *handle),
        }
    }

    /// Whether the data block at `offset` (block-based) or the table may have the key; `None` if
    /// the filter is not asked. Keys must ascend.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `UnsupportedFormat`.
    pub(crate) fn ask(&mut self, table: &Table, key: &[u8], offset: u64) -> Result<Option<bool>> {
        self.go_to(table, key)?;
        let hash = KeyHash::new(key);
        Ok(match &self.body {
            Body::NotAsked => None,
            Body::BlockBased(filter) => Some(filter.block_may_contain(offset, hash.leveldb())),
            Body::Full(filter) => Some(filter.may_contain(&hash)),
            Body::Partitioned(one) => {
                Some(one.loaded.as_ref().is_none_or(|(_, filter)| filter.may_contain(&hash)))
            }
        })
    }

    /// Loads the partition for `key`.
    fn go_to(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        let Body::Partitioned(one) = &mut self.body else { return Ok(()) };
        let style = table.style;
        let reaches = |partitions: &Partitions| {
            style.order.compare(key, partitions.separator_key(style)).is_le()
        };
        // The partitions before the right one are not read.
        let mut moved = false;
        while !one.is_last && (!one.is_begun || !reaches(&one.partitions)) {
            match one.partitions.next(table)? {
                true => (one.is_begun, moved) = (true, true),
                false => one.is_last = true,
            }
        }
        if moved {
            let handle = one.partitions.handle();
            one.loaded = Some((handle, rocksdb_filter(table.file.read(handle)?)));
        }
        Ok(())
    }

    /// Adds its figures to those of its table, whose keys are counted. Every filter is read.
    /// Partitions are assumed to have as many of the keys as of the bytes.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `UnsupportedFormat`. What was added so far stays.
    pub(crate) fn add_to(&self, figures: &mut FilterFigures, table: &Table) -> Result<()> {
        figures.add(&self.figures);
        let keys = figures.keys as f64;
        match &self.body {
            Body::NotAsked => {}
            Body::BlockBased(_) => {
                // B. H. Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", 1970,
                // if the keys are spread evenly over the filters.
                let FilterFigures { probes, filter_bits, .. } = self.figures;
                if filter_bits > 0 && keys > 0.0 {
                    let per_bit = f64::from(probes) * keys / filter_bits as f64;
                    let rate = (-(-per_bit).exp_m1()).powi(probes as i32);
                    (figures.rates, figures.rated_keys) = (rate * keys, keys);
                }
            }
            Body::Full(filter) => add_one(figures, filter, self.handle.size, keys),
            Body::Partitioned(_) => {
                let all = (self.figures.filter_bytes - self.handle.size).max(1);
                let mut partitions = table.partitions(self.handle)?;
                while partitions.next(table)? {
                    let handle = partitions.handle();
                    let filter = rocksdb_filter(table.file.read(handle)?);
                    let keys = keys * handle.size as f64 / all as f64;
                    add_one(figures, &filter, handle.size, keys);
                }
            }
        }
        Ok(())
    }
}

/// A filter of a table of RocksDB, from the contents of its block.
pub(crate) fn rocksdb_filter(mut contents: Vec<u8>) -> PreparedFilter {
    // RocksDB's `GetBuiltinFilterBitsReader`: without bytes before a trailer there are no keys.
    if contents.len() <= fast_local::ROCKSDB_TRAILER_BYTES {
        contents.clear();
    }
    PreparedFilter::new(FilterReader::RocksDb, contents)
}

/// Adds a filter of RocksDB's encodings, with this many keys.
fn add_one(figures: &mut FilterFigures, filter: &PreparedFilter, bytes: u64, keys: f64) {
    let Some(facts) = filter.facts() else { return };
    figures.encodings.insert(facts.label.into());
    figures.filter_bits += 8 * bytes.saturating_sub(fast_local::ROCKSDB_TRAILER_BYTES as u64);
    figures.probes = figures.probes.max(facts.probes);
    figures.rated_keys += keys;
    figures.rates += facts.expected_fpr(keys) * keys;
}
