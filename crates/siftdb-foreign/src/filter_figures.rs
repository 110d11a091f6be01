//! Sizes and expected rates of filters, as sums: [`FilterFigures`].

use std::collections::BTreeSet;

/// The filters of one table, or of several.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FilterFigures {
    /// Tables.
    pub tables: u64,
    /// Tables without a filter, or with one that is not asked, because its policy is not the
    /// store's own or it has no whole keys.
    pub tables_without_filter: u64,
    /// Of these, tables with filters for prefixes alone. RocksDB asks them, here they are not.
    pub tables_with_prefixes_only: u64,
    /// Range deletes in RocksDB's tables.
    pub range_deletes: u64,
    /// Bytes of the tables.
    pub table_bytes: u64,
    /// Data blocks of the tables.
    pub data_blocks: u64,
    /// Bytes of these blocks.
    pub data_bytes: u64,
    /// Bytes of the indexes, all levels together.
    pub index_bytes: u64,
    /// Partitions of the indexes; 0 for an index of one block.
    pub index_partitions: u64,
    /// Bytes of the blocks that name the partitions of an index.
    pub index_top_level_bytes: u64,
    /// Entries in tables, old versions and deletions included.
    pub entries: u64,
    /// Keys in tables, each counted once for each table that has it. In a RocksDB database that is
    /// the number of keys that were added to filters, or of entries where a table does not say it.
    pub keys: u64,
    /// Bytes of these keys.
    pub key_bytes: u64,
    /// The names of the policies of the filters.
    pub policies: BTreeSet<String>,
    /// The encodings of the filters, such as `ribbon`.
    pub encodings: BTreeSet<String>,
    /// The layouts of the filters: `block-based`, `full`, `partitioned`.
    pub layouts: BTreeSet<String>,
    /// Partitions of the filters; 0 in other layouts.
    pub partitions: u64,
    /// Bytes of the filter blocks, with the offsets or indexes that locate filters.
    pub filter_bytes: u64,
    /// Bytes of the blocks that name the partitions of a filter.
    pub filter_top_level_bytes: u64,
    /// Bits in the filters alone.
    pub filter_bits: u64,
    /// Probes of a key in a filter, or the columns of a Ribbon filter; 0 without filters.
    pub probes: u32,
    /// Bytes of data that share a filter, the largest of all tables; 0 in other layouts.
    pub window_bytes: u64,
    /// Keys in tables with filters.
    pub(crate) filtered_keys: u64,
    /// Keys in filters whose rate is known, and the sum of their rates.
    pub(crate) rated_keys: f64,
    pub(crate) rates: f64,
}

impl FilterFigures {
    /// Bits of filter for each key of tables with filters, with the offsets of filters; `None`
    /// without filters.
    #[must_use]
    pub fn bits_per_key(&self) -> Option<f64> {
        let keys = self.filtered_keys;
        (keys > 0).then(|| 8.0 * self.filter_bytes as f64 / keys as f64)
    }

    /// The same for the bits of the filters alone.
    #[must_use]
    pub fn probed_bits_per_key(&self) -> Option<f64> {
        let keys = self.filtered_keys;
        (keys > 0 && self.filter_bits > 0).then(|| self.filter_bits as f64 / keys as f64)
    }

    /// The expected false-positive rate of filters with these bits and probes, if keys are spread
    /// evenly over the filters; `None` without filters.
    #[must_use]
    pub fn expected_fpr(&self) -> Option<f64> {
        (self.rated_keys > 0.0).then(|| self.rates / self.rated_keys)
    }

    /// Adds the figures of other tables.
    pub fn add(&mut self, other: &FilterFigures) {
        // Those of properties can be any numbers.
        for (sum, more) in [
            (&mut self.tables, other.tables),
            (&mut self.tables_without_filter, other.tables_without_filter),
            (&mut self.tables_with_prefixes_only, other.tables_with_prefixes_only),
            (&mut self.range_deletes, other.range_deletes),
            (&mut self.filtered_keys, other.filtered_keys),
            (&mut self.table_bytes, other.table_bytes),
            (&mut self.data_blocks, other.data_blocks),
            (&mut self.data_bytes, other.data_bytes),
            (&mut self.index_bytes, other.index_bytes),
            (&mut self.index_partitions, other.index_partitions),
            (&mut self.index_top_level_bytes, other.index_top_level_bytes),
            (&mut self.entries, other.entries),
            (&mut self.keys, other.keys),
            (&mut self.key_bytes, other.key_bytes),
            (&mut self.partitions, other.partitions),
            (&mut self.filter_bytes, other.filter_bytes),
            (&mut self.filter_top_level_bytes, other.filter_top_level_bytes),
            (&mut self.filter_bits, other.filter_bits),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.policies.extend(other.policies.iter().cloned());
        self.encodings.extend(other.encodings.iter().cloned());
        self.layouts.extend(other.layouts.iter().cloned());
        self.probes = self.probes.max(other.probes);
        self.window_bytes = self.window_bytes.max(other.window_bytes);
        self.rated_keys += other.rated_keys;
        self.rates += other.rates;
    }
}
