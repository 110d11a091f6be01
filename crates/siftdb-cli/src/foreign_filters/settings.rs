//! How a store reads, as far as its settings say it.

use std::collections::BTreeMap;

/// The store whose settings are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// LevelDB 1.23.
    LevelDb,
    /// RocksDB 5 to 11.
    RocksDb,
}

/// Which tables keep blocks of one kind in the cache for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// None.
    None,
    /// Those of level 0.
    Level0,
    /// All.
    All,
}

/// Settings that are no part of the tables.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadSettings {
    /// The store.
    pub store: Store,
    /// The capacity of the block cache.
    pub cache_bytes: u64,
    /// The part of it for blocks of high priority: `high_pri_pool_ratio`.
    pub high_share: f64,
    /// Whole filters and indexes go through the cache: `cache_index_and_filter_blocks`. Otherwise
    /// each open table holds them.
    pub caches_metadata: bool,
    /// These have high priority: `cache_index_and_filter_blocks_with_high_priority`.
    pub metadata_is_high: bool,
    /// The top levels of partitioned filters and indexes.
    pub pinned_top_levels: Pinning,
    /// Partitions of filters and indexes.
    pub pinned_partitions: Pinning,
    /// Filters and indexes of one block.
    pub pinned_whole: Pinning,
    /// Filters are asked: there is a `filter_policy`.
    pub asks_filters: bool,
    /// The filters of the last level are not asked: `optimize_filters_for_hits`.
    pub skips_last_level: bool,
    /// New filters have whole keys: `whole_key_filtering`.
    pub has_whole_keys: bool,
}

impl ReadSettings {
    /// LevelDB: open tables hold filter and index, and the cache is one LRU queue.
    pub fn of_leveldb(cache_bytes: u64) -> Self {
        ReadSettings {
            store: Store::LevelDb,
            cache_bytes,
            high_share: 0.0,
            caches_metadata: false,
            metadata_is_high: false,
            pinned_top_levels: Pinning::None,
            pinned_partitions: Pinning::None,
            pinned_whole: Pinning::None,
            asks_filters: true,
            skips_last_level: false,
            has_whole_keys: true,
        }
    }

    /// RocksDB: settings of a column family and of its tables, by their names in `OPTIONS`. A
    /// missing one has RocksDB's default.
    pub fn of_rocksdb(
        family: &BTreeMap<String, String>,
        tables: &BTreeMap<String, String>,
        cache_bytes: u64,
    ) -> Self {
        let is_set = |settings: &BTreeMap<String, String>, name: &str, usual: bool| {
            settings.get(name).map_or(usual, |value| value == "true")
        };
        let is = |name: &str, usual: bool| is_set(tables, name, usual);
        let by = |yes: bool, pinning: Pinning| if yes { pinning } else { Pinning::None };
        let of_level_0 = by(is("pin_l0_filter_and_index_blocks_in_cache", false), Pinning::Level0);
        let of_top = by(is("pin_top_level_index_and_filter", true), Pinning::All);
        let tiers = tables.get("metadata_cache_options").map_or("", |tiers| tiers);
        let tier = |name: &str, fallback: Pinning| {
            let parts = tiers.trim_matches(['{', '}']).split(';');
            let named = parts.filter_map(|part| part.trim().split_once('='));
            match named.into_iter().find(|(part, _)| *part == name) {
                Some((_, "kNone")) => Pinning::None,
                Some((_, "kFlushedAndSimilar")) => Pinning::Level0,
                Some((_, "kAll")) => Pinning::All,
                _ => fallback,
            }
        };
        ReadSettings {
            store: Store::RocksDb,
            cache_bytes,
            high_share: 0.5,
            caches_metadata: is("cache_index_and_filter_blocks", false),
            metadata_is_high: is("cache_index_and_filter_blocks_with_high_priority", true),
            pinned_top_levels: tier("top_level_index_pinning", of_top),
            pinned_partitions: tier("partition_pinning", of_level_0),
            pinned_whole: tier("unpartitioned_pinning", of_level_0),
            asks_filters: tables.get("filter_policy").is_none_or(|policy| policy != "nullptr"),
            skips_last_level: is_set(family, "optimize_filters_for_hits", false),
            has_whole_keys: is("whole_key_filtering", true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_rocksdb_are_read_by_name() {
        let of = |pairs: &[(&str, &str)]| {
            let pair = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
            ReadSettings::of_rocksdb(&BTreeMap::new(), &pairs.iter().map(pair).collect(), 1)
        };
        let usual = of(&[]);
        assert!(usual.asks_filters && !usual.caches_metadata && usual.metadata_is_high);
        assert_eq!(usual.pinned_top_levels, Pinning::All);
        assert_eq!((usual.pinned_partitions, usual.pinned_whole), (Pinning::None, Pinning::None));
        assert!(!of(&[("filter_policy", "nullptr")]).asks_filters);
        let level_0 = ("pin_l0_filter_and_index_blocks_in_cache", "true");
        assert_eq!(of(&[level_0]).pinned_whole, Pinning::Level0);
        let tiers = "{unpartitioned_pinning=kAll;partition_pinning=kNone;\
                     top_level_index_pinning=kFallback;}";
        let tiered = of(&[level_0, ("metadata_cache_options", tiers)]);
        assert_eq!((tiered.pinned_whole, tiered.pinned_partitions), (Pinning::All, Pinning::None));
        assert_eq!(tiered.pinned_top_levels, Pinning::All);
        let hits = [("optimize_filters_for_hits".to_string(), "true".to_string())];
        let hits = ReadSettings::of_rocksdb(&hits.into(), &BTreeMap::new(), 1);
        assert!(hits.skips_last_level);
    }
}
