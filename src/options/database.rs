//! [`Options`]: all settings of a database, with their defaults.
//!
//! [`Options::validate`] runs at every open, before anything is created. The conversions at the
//! end hand each lower layer the settings struct it defines.

use crate::base::error::{Error, Result};
use crate::base::levels::LEVELS;
use crate::env::api::Env;
use crate::env::disk::DiskEnv;
use crate::filter::builder::Construction;
use crate::filter::encoding::Encoding;
use crate::filter::policy::FilterPolicy;
use crate::filter::prefix::{Prefix, PrefixExtractor};
use crate::log::recovery::Recovery;
use crate::options::filter::Filter;
use crate::table::builder::TableOptions;
use crate::table::filter::layout::{FilterPinning, TableFilter};
use crate::table::format::Compression;
use crate::tree::targets::CompactionOptions;
use std::sync::Arc;

/// How to open a database. Every setter says its default, its unit, and what more of it buys and
/// costs.
///
/// ```
/// # fn main() -> siftdb::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// let db = siftdb::Options::new()
///     .block_cache_bytes(64 << 20)
///     .filter(siftdb::Filter::bloom(12.0))
///     .open(directory.path().join("people.sift"))?;
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until a database is opened with them"]
pub struct Options {
    pub(crate) create_if_missing: bool,
    pub(crate) error_if_exists: bool,
    pub(crate) write_buffer_bytes: usize,
    pub(crate) immutable_memtables_max: usize,
    pub(crate) read_only_log_bytes_max: Option<u64>,
    pub(crate) memtable_filter: bool,
    pub(crate) block_bytes: usize,
    pub(crate) block_hash_index: bool,
    pub(crate) compression: Compression,
    pub(crate) filter: Filter,
    pub(crate) filter_at_level: [Option<Filter>; LEVELS],
    pub(crate) filter_last_level: bool,
    pub(crate) verify_filters: bool,
    pub(crate) filter_pinned_share: f64,
    pub(crate) block_cache_bytes: u64,
    pub(crate) max_open_files: usize,
    pub(crate) table_bytes: u64,
    pub(crate) manifest_bytes: u64,
    pub(crate) level_base_bytes: u64,
    pub(crate) level0_compaction_trigger: usize,
    pub(crate) auto_compaction: bool,
    pub(crate) reset_stats: bool,
    pub(crate) recovery: Recovery,
    pub(crate) policies: Vec<Arc<dyn FilterPolicy>>,
    pub(crate) prefixes: Vec<Arc<dyn PrefixExtractor>>,
    pub(crate) env: Arc<dyn Env>,
}

impl Default for Options {
    fn default() -> Self {
        Options::new()
    }
}

impl Options {
    /// The defaults that [`Db::open`](crate::Db::open) uses.
    pub fn new() -> Self {
        Options {
            create_if_missing: true,
            error_if_exists: false,
            write_buffer_bytes: 64 << 20,
            immutable_memtables_max: 2,
            read_only_log_bytes_max: None,
            memtable_filter: true,
            block_bytes: 4096,
            block_hash_index: true,
            compression: Compression::Snappy,
            filter: Filter::bloom(10.0),
            filter_at_level: [const { None }; LEVELS],
            filter_last_level: true,
            verify_filters: true,
            filter_pinned_share: 0.5,
            block_cache_bytes: 64 << 20,
            max_open_files: 256,
            table_bytes: 64 << 20,
            manifest_bytes: 16 << 10,
            level_base_bytes: 256 << 20,
            level0_compaction_trigger: 4,
            auto_compaction: true,
            reset_stats: false,
            recovery: Recovery::default(),
            policies: Vec::new(),
            prefixes: Vec::new(),
            env: Arc::new(DiskEnv::new()),
        }
    }

    /// Create the database if it is not there. Default: true.
    pub fn create_if_missing(mut self, yes: bool) -> Self {
        self.create_if_missing = yes;
        self
    }

    /// Refuse to open a database that is there. Default: false.
    pub fn error_if_exists(mut self, yes: bool) -> Self {
        self.error_if_exists = yes;
        self
    }

    /// Bytes that a memtable takes before it is flushed. Default: 64 MiB; 64 KiB to 4 GiB. More
    /// means fewer, larger tables at level 0 and less rewriting; it costs that much memory up to
    /// three times over (see [`Options::immutable_memtables_max`]), and longer recovery.
    pub fn write_buffer_bytes(mut self, bytes: usize) -> Self {
        self.write_buffer_bytes = bytes;
        self
    }

    /// Full memtables that may wait for their flush before writes stop. Default: 2; 1 to 16. More
    /// rides out longer bursts and costs a write buffer each.
    pub fn immutable_memtables_max(mut self, count: usize) -> Self {
        self.immutable_memtables_max = count;
        self
    }

    /// Bytes that the entries of the logs may take in memory while the database is open to read
    /// only, which cannot flush them: beyond, opening answers [`Error::LogsTooLarge`]. Default: two
    /// write buffers more than [`Options::immutable_memtables_max`], so four of them unless that is
    /// set. A database that was written with these options leaves less in its logs.
    pub fn read_only_log_bytes_max(mut self, bytes: u64) -> Self {
        self.read_only_log_bytes_max = Some(bytes);
        self
    }

    /// Give each memtable a filter of 1/64 of the write buffer, so that lookups of keys it does
    /// not have skip its skip list. Default: true.
    pub fn memtable_filter(mut self, yes: bool) -> Self {
        self.memtable_filter = yes;
        self
    }

    /// Bytes of key and value in a data block before compression. Default: 4 KiB; 64 B to 4 MiB.
    /// Larger blocks compress better and need smaller indexes; each point lookup reads more.
    pub fn block_bytes(mut self, bytes: usize) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// Give data blocks a hash index for point lookups: a byte an entry, and in memory three, for
    /// fewer cache misses inside the block. Default: true.
    pub fn block_hash_index(mut self, yes: bool) -> Self {
        self.block_hash_index = yes;
        self
    }

    /// Compress data blocks with Snappy where that saves at least an eighth. Default: true. Off
    /// saves about 400 ns on each block that is read from a file.
    pub fn snappy(mut self, yes: bool) -> Self {
        self.compression = if yes { Compression::Snappy } else { Compression::None };
        self
    }

    /// The filter of new tables at every level. Default: `Filter::bloom(10.0)`. More bits let
    /// fewer absent keys through and cost memory: at 10 bits, 1.25 MB a million keys.
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }

    /// The filter of new tables at `level` (0 to 6), instead of [`Options::filter`]'s. A level
    /// that does not exist is refused at open.
    pub fn filter_at_level(mut self, level: usize, filter: Filter) -> Self {
        match self.filter_at_level.get_mut(level) {
            Some(slot) => *slot = Some(filter),
            None => {
                let what = format!("filter_at_level({level}): levels are 0 to {}", LEVELS - 1);
                self.filter = Filter::refusing(what);
            }
        }
        self
    }

    /// Give the last level filters. Default: true. Off, a compaction into the deepest level that
    /// then has data writes tables without: nine tenths of the filters' memory saved, for a data
    /// block looked at in vain by each lookup of an absent key. For workloads whose lookups nearly
    /// always hit.
    ///
    /// Level 0 is never the last. Tables are asked by what they say of themselves: where a level
    /// ceases to be the last one, its tables go without filters until they are rewritten, and
    /// where one becomes the last, or a table is moved there as it is, old filters stay in use.
    pub fn filter_last_level(mut self, yes: bool) -> Self {
        self.filter_last_level = yes;
        self
    }

    /// Check each filter, once it is built, against the keys that it was built from: a bit that
    /// memory or processor flipped in between would deny a key for good. What fails the check
    /// fails its flush or compaction with [`Error::MemoryCorruption`], and no table is written.
    /// Default: true. Costs about 3 % of the instructions that write tables. Filters of a
    /// [`FilterPolicy`] are always checked.
    pub fn verify_filters(mut self, yes: bool) -> Self {
        self.verify_filters = yes;
        self
    }

    /// The share of the cache budget that filters and indexes may take for good, so that a probe
    /// touches neither lock nor cache. Default: 0.5; 0 to 1. At 0 all of them come and go through
    /// the cache like data.
    pub fn filter_pinned_share(mut self, share: f64) -> Self {
        self.filter_pinned_share = share;
        self
    }

    /// Bytes for cached blocks, filters and indexes, pinned ones included. Default: 64 MiB; 0
    /// works and caches nothing. More saves reads; it is the one knob for read memory.
    pub fn block_cache_bytes(mut self, bytes: u64) -> Self {
        self.block_cache_bytes = bytes;
        self
    }

    /// Table files held open at a time. Default: 256; at least 1. Fewer means more `open` calls.
    /// Where the process may not have as many, the bound of the database that is told so is halved;
    /// it grows back half a minute later. Others close half of theirs.
    pub fn max_open_files(mut self, count: usize) -> Self {
        self.max_open_files = count;
        self
    }

    /// Bytes after which compaction starts the next table. Default: 64 MiB; 16 KiB to 4 GiB.
    /// Larger tables mean fewer files and larger filters to load; smaller ones compact in smaller
    /// steps.
    pub fn table_bytes(mut self, bytes: u64) -> Self {
        self.table_bytes = bytes;
        self
    }

    /// Bytes that the list of tables may grow to, edit by edit, before it is rewritten; it also
    /// has to have four times the length of a new one. Default: 16 KiB; 1 KiB to 256 MiB. More
    /// means fewer rewrites; it costs that much space, and its reading at every opening, which for
    /// a mebibyte takes 3 ms.
    pub fn manifest_bytes(mut self, bytes: u64) -> Self {
        self.manifest_bytes = bytes;
        self
    }

    /// Bytes that level 1 may hold; each level below may hold ten times the one above. Default:
    /// 256 MiB; at least `table_bytes`. More means fewer levels and larger compactions.
    pub fn level_base_bytes(mut self, bytes: u64) -> Self {
        self.level_base_bytes = bytes;
        self
    }

    /// Tables at level 0 that start a compaction. Default: 4; 1 to 64. Writes are slowed at five
    /// times this number and stopped at nine times. More means less rewriting and more tables to
    /// probe for each lookup.
    pub fn level0_compaction_trigger(mut self, count: usize) -> Self {
        self.level0_compaction_trigger = count;
        self
    }

    /// Compact in the background. Default: true. When off, tables stay where flushes put them
    /// until [`Db::compact_range`](crate::Db::compact_range), and level 0 never slows writes: for
    /// tests and measurements.
    pub fn auto_compaction(mut self, yes: bool) -> Self {
        self.auto_compaction = yes;
        self
    }

    /// Start all counters at zero instead of going on from the file `STATS`. Default: false.
    pub fn reset_stats(mut self, yes: bool) -> Self {
        self.reset_stats = yes;
        self
    }

    /// What to do where the logs end badly: see [`Recovery`]. Default: drop what a crash may have
    /// torn and was never synced, refuse everything else.
    pub fn recovery(mut self, recovery: Recovery) -> Self {
        self.recovery = recovery;
        self
    }

    /// A policy that tables written earlier may name, besides those in [`Options::filter`].
    pub fn register_filter_policy(mut self, policy: Arc<dyn FilterPolicy>) -> Self {
        self.policies.push(policy);
        self
    }

    /// A prefix extractor that tables written earlier may name, besides those in
    /// [`Options::filter`].
    pub fn register_prefix(mut self, extractor: Arc<dyn PrefixExtractor>) -> Self {
        self.prefixes.push(extractor);
        self
    }

    /// The file system to use. Default: the real one. [`crate::env`] has one in memory, and one
    /// that fails on demand.
    pub fn env(mut self, env: Arc<dyn Env>) -> Self {
        self.env = env;
        self
    }

    /// Refuses what cannot work.
    ///
    /// # Errors
    /// `InvalidOptions`, naming the option, its value and the values it may have.
    pub fn validate(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::InvalidOptions { what });
        let ranges = [
            ("write_buffer_bytes", self.write_buffer_bytes as u64, 64 << 10, 4 << 30),
            ("immutable_memtables_max", self.immutable_memtables_max as u64, 1, 16),
            ("block_bytes", self.block_bytes as u64, 64, 4 << 20),
            ("max_open_files", self.max_open_files as u64, 1, 1 << 20),
            ("table_bytes", self.table_bytes, 16 << 10, 4 << 30),
            ("manifest_bytes", self.manifest_bytes, 1 << 10, 1 << 28),
            ("level_base_bytes", self.level_base_bytes, self.table_bytes, 1 << 50),
            ("level0_compaction_trigger", self.level0_compaction_trigger as u64, 1, 64),
            ("block_cache_bytes", self.block_cache_bytes, 0, 1 << 50),
        ];
        for (name, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                return refuse(format!("{name} is {value}; it may be {low} to {high}"));
            }
        }
        if !(0.0..=1.0).contains(&self.filter_pinned_share) {
            let share = self.filter_pinned_share;
            return refuse(format!("filter_pinned_share is {share}; it may be 0 to 1"));
        }
        if self.error_if_exists && !self.create_if_missing {
            return refuse("error_if_exists without create_if_missing can open nothing".into());
        }
        for filter in self.filters() {
            filter.validate().or_else(refuse)?;
        }
        let pins_all = self.filter_pinning().contains(&FilterPinning::All);
        if pins_all && self.filter_pinned_share * (self.block_cache_bytes as f64) < 1.0 {
            return refuse(
                "FilterPinning::All without memory that may be pinned: filter_pinned_share or \
                 block_cache_bytes is 0"
                    .into(),
            );
        }
        let mut levels = self.filter_at_level.iter().flatten();
        if let Some(bytes) = levels.find_map(|filter| filter.memory_bytes) {
            return refuse(format!(
                "filter_at_level with monkey({bytes}): one budget serves all levels; give it to \
                 filter()"
            ));
        }
        Ok(())
    }

    /// What the logs may take in memory while the database is open to read only.
    pub(crate) fn read_only_log_bytes(&self) -> u64 {
        let buffers = self.immutable_memtables_max as u64 + 2;
        self.read_only_log_bytes_max.unwrap_or(buffers * self.write_buffer_bytes as u64)
    }

    /// The settings of the tables that a job writes at `level`, with `filter`.
    pub(crate) fn table_options(&self, level: usize, filter: Option<TableFilter>) -> TableOptions {
        TableOptions {
            block_bytes: self.block_bytes,
            restart_interval: 16,
            hash_index: self.block_hash_index,
            compression: self.compression,
            filter,
            construction: Construction { verify: self.verify_filters, budget: None },
            // A flush should end soon, and its table is soon rewritten; tables of deeper levels
            // are read for long.
            write_bytes: if level == 0 { 64 << 10 } else { 1 << 20 },
        }
    }

    /// When and how far tables are compacted.
    pub(crate) fn compaction_options(&self) -> CompactionOptions {
        CompactionOptions {
            level0_compaction_trigger: self.level0_compaction_trigger,
            level_base_bytes: self.level_base_bytes,
            level_multiplier: 10,
            table_bytes: self.table_bytes,
        }
    }

    /// The filter of all levels, and those of single ones.
    fn filters(&self) -> impl Iterator<Item = &Filter> {
        std::iter::once(&self.filter).chain(self.filter_at_level.iter().flatten())
    }

    /// Every user policy these options name, for reading tables that name one of them.
    pub(crate) fn custom_policies(&self) -> Vec<Arc<dyn FilterPolicy>> {
        let mut policies: Vec<_> = self
            .filters()
            .filter_map(|filter| match &filter.encoding {
                Some(Encoding::Custom(policy)) => Some(Arc::clone(policy)),
                _ => None,
            })
            .collect();
        policies.extend(self.policies.iter().cloned());
        policies
    }

    /// Every prefix extractor of the user's that these options name, for tables that name it.
    pub(crate) fn custom_prefixes(&self) -> Vec<Arc<dyn PrefixExtractor>> {
        let mut prefixes: Vec<_> = self
            .filters()
            .filter_map(|filter| filter.members.prefix.as_ref().and_then(Prefix::as_custom))
            .cloned()
            .collect();
        prefixes.extend(self.prefixes.iter().cloned());
        prefixes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::filter::layout::FilterLayout;
    use crate::tree::runs::SortedRuns;

    #[test]
    fn defaults_are_valid_and_filter_every_level() {
        let options = Options::new();
        options.validate().unwrap();
        for level in 0..LEVELS {
            let filter = options.table_filter(level, &SortedRuns::default()).unwrap();
            assert_eq!(filter.layout == FilterLayout::Full, level < 2);
        }
    }
}
