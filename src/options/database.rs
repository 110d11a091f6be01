//! [`Options`]: all settings of a database, with their defaults.
//!
//! [`Options::validate`] runs at every open, before anything is created. The conversions at the
//! end hand each lower layer the settings struct it defines.

use crate::base::error::{Error, Result};
use crate::base::events::event::EventListener;
use crate::env::api::Env;
use crate::env::disk::DiskEnv;
use crate::log::recovery::Recovery;
use crate::options::compaction_filter::CompactionFilter;
use crate::options::filter::Filter;
use crate::options::keyspace::KeyspaceOptions;
use crate::table::compression::Compression;
use crate::table::filter::layout::CustomRules;
use crate::tree::targets::CompactionOptions;
use siftdb_filter::encoding::Encoding;
use siftdb_filter::policy::FilterPolicy;
use siftdb_filter::prefix::PrefixExtractor;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// Declares [`Options`] with all settings in one table: the setter with its documentation, the
/// default, and the values that `validate` allows. `data` lists the setters that
/// [`KeyspaceOptions`] has too, for the keyspace `default`; `others` have setters of their own.
macro_rules! options {
    (
        $(#[$meta:meta])*
        pub struct Options;
        settings {
            $(
                $(#[$doc:meta])*
                $name:ident($value:ident: $type:ty) = $default:expr $(, in $range:expr)?;
            )*
        }
        data { $($(#[$data_doc:meta])* $setter:ident($($argument:ident: $of:ty),*);)* }
        others { $($(#[$other_doc:meta])* $other:ident: $other_type:ty = $other_default:expr;)* }
    ) => {
        $(#[$meta])*
        pub struct Options {
            $(pub(crate) $name: $type,)*
            $($(#[$other_doc])* pub(crate) $other: $other_type,)*
        }

        impl Options {
            /// The defaults that [`Db::open`](crate::Db::open) uses.
            pub fn new() -> Self {
                Options { $($name: $default,)* $($other: $other_default,)* }
            }

            $(
                $(#[$doc])*
                pub fn $name(mut self, $value: $type) -> Self {
                    self.$name = $value;
                    self
                }
            )*

            $(
                $(#[$data_doc])*
                pub fn $setter(mut self, $($argument: $of),*) -> Self {
                    self.data = self.data.$setter($($argument),*);
                    self
                }
            )*

            /// Refuses a setting that is out of its range.
            fn check_ranges(&self) -> Result<()> {
                $($(check_range(stringify!($name), self.$name as u64, $range)?;)?)*
                Ok(())
            }
        }
    };
}

options! {
    /// How to open a database. Every setter states its default, its unit, and what a larger value
    /// gains and costs.
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
    pub struct Options;
    settings {
        /// Create the database if it is not there. Default: true.
        create_if_missing(yes: bool) = true;

        /// Refuse to open a database that is there. Default: false.
        error_if_exists(yes: bool) = false;

        /// Bytes of the active memtables of all keyspaces together at which the largest are
        /// flushed. Default: 64 MiB; 64 KiB to 4 GiB. More means fewer and larger tables at level
        /// 0, and less rewriting. It takes up to three times as much memory (see
        /// [`Options::immutable_memtables_max`]), and recovery takes longer.
        write_buffer_bytes(bytes: usize) = 64 << 20, in 64 << 10..=4 << 30;

        /// Full memtables that may wait for their flush before writes stop: this many of one
        /// keyspace, and this many write buffers of all keyspaces together. Default: 2; 1 to 16.
        /// More absorbs longer bursts and takes a write buffer of memory each.
        immutable_memtables_max(count: usize) = 2, in 1..=16;

        /// Whether a [`Follower`](crate::Follower) shows only what manifest or logs say is durable.
        /// That may lag: what was synced last is shown after the next write, which says so.
        /// Default: false, it shows everything that is in the logs.
        follow_synced_only(yes: bool) = false;

        /// Bytes of memory that the writes and the reads of one transaction may take. One that
        /// needs more is refused with [`Error::TransactionTooLarge`], whole. Default: 64 MiB; 1 KiB
        /// to 1 TiB.
        transaction_bytes_max(bytes: usize) = 64 << 20, in 1 << 10..=1 << 40;

        /// Bytes of logs to keep although all of their writes are in tables: the newest ones, as
        /// many as fit, so that a follower finds the changes that it has not read yet. Default: 0;
        /// up to 1 PiB. A log is about as long as the write buffer, and one that does not fit is
        /// removed. The value is not saved: a session with a smaller one removes logs when it
        /// begins to write.
        keep_log_bytes(bytes: u64) = 0, in 0..=1 << 50;

        /// Give each memtable filters, so that lookups of keys it does not have skip its skip
        /// lists. They grow with the memtable, to about 1/24 of its bytes, at most 1/12. Default:
        /// true.
        memtable_filter(yes: bool) = true;

        /// Check each finished filter against the keys that it was built from: a bit that memory or
        /// processor flipped would otherwise deny a key for good. If the check fails, the flush or
        /// compaction fails with [`Error::MemoryCorruption`], and no table is written. Default:
        /// true. It costs about 3 % of the instructions that write tables. Filters of a
        /// [`FilterPolicy`] are always checked.
        verify_filters(yes: bool) = true;

        /// The share of the cache budget in which filters and indexes may be pinned, so that a
        /// probe touches neither lock nor cache. Default: 0.5; 0 to 1. At 0 all of them go through
        /// the cache like data.
        filter_pinned_share(share: f64) = 0.5;

        /// Bytes for cached blocks, filters and indexes of all keyspaces, pinned ones included.
        /// Default: 64 MiB; 0 works and caches nothing. More saves reads. This one option bounds
        /// the memory of reads.
        block_cache_bytes(bytes: u64) = 64 << 20, in 0..=1 << 50;

        /// Table files of all keyspaces that are open at a time. Default: 256; at least 1. Fewer
        /// means more `open` calls. If the process runs out of descriptors, the limit of the
        /// database that notices it is halved, and grows back after half a minute. Other databases
        /// close half of their files.
        max_open_files(count: usize) = 256, in 1..=1 << 20;

        /// Bytes after which compaction starts the next table. Default: 64 MiB; 16 KiB to 4 GiB.
        /// Larger tables mean fewer files and larger filters to load; smaller ones compact in
        /// smaller steps.
        table_bytes(bytes: u64) = 64 << 20, in 16 << 10..=4 << 30;

        /// The length of the manifest, in bytes, at which it is rewritten, if it is also four times
        /// as long as a new one. Default: 16 KiB; 1 KiB to 256 MiB. More means fewer rewrites, more
        /// space, and a longer opening: 3 ms per mebibyte.
        manifest_bytes(bytes: u64) = 16 << 10, in 1 << 10..=1 << 28;

        /// Bytes that level 1 of each keyspace may hold; each level below may hold ten times the
        /// one above. Default: 256 MiB; at least `table_bytes`. More means fewer levels and larger
        /// compactions.
        ///
        /// A level that has a deeper one below it may hold a tenth of that, but never less than
        /// level 1. So what is covered by newer versions takes little space in large databases.
        level_base_bytes(bytes: u64) = 256 << 20;

        /// Tables at level 0 of a keyspace that start a compaction. Default: 4; 1 to 64. Writes to
        /// it slow down at five times this number and stop at nine times. More means less
        /// rewriting, and more tables that each lookup probes.
        level0_compaction_trigger(count: usize) = 4, in 1..=64;

        /// Threads that compact, each at another part of a tree or in another keyspace. Those that
        /// are free share large compactions. Default: half of the processors, 1 to 4; 1 to 64. Each
        /// takes some MiB while it compacts, besides the filters that it builds, which count
        /// against `block_cache_bytes`.
        compaction_threads(count: usize) = compaction_threads_default(), in 1..=64;

        /// Bytes that all compactions together write in a second, at most. Default: 1 PiB, which
        /// is no limit; at least 1 MiB. Less leaves more of a slow disk to reads, and takes more
        /// space while compactions are behind. Flushes, logs and syncs do not count. The limit does
        /// not hold while writes are slowed down because flushes or compactions are behind.
        compaction_bytes_per_second(bytes: u64) = NO_PACE, in 1 << 20..=NO_PACE;

        /// Compact in the background. Default: true. If off, tables stay where flushes put them
        /// until [`Keyspace::compact_range`](crate::Keyspace::compact_range) is called, and level 0
        /// never slows writes. For tests and measurements.
        auto_compaction(yes: bool) = true;

        /// Start all counters at zero instead of reading them from the file `STATS`. Default:
        /// false.
        reset_stats(yes: bool) = false;

        /// What to do if the end of a log is torn or damaged: see [`Recovery`]. By default, opening
        /// drops what a crash may have torn and was never synced, and refuses everything else.
        recovery(recovery: Recovery) = Recovery::default();

        /// Count calls by how long they take, for [`Stats::latency`](crate::Stats::latency).
        /// Default: false. Each call then reads the clock twice, and each thread has 5 KiB for the
        /// database and for each keyspace that it uses.
        latency_histograms(yes: bool) = false;

        /// The file system to use. Default: the real one. [`crate::env`] has one that maps tables
        /// into memory (feature `mmap`), one that is in memory, and some that fail (feature
        /// `testing`).
        env(env: Arc<dyn Env>) = Arc::new(DiskEnv::new());

        /// Open a database whose saved settings name a [`FilterPolicy`] or prefix extractor that is
        /// not registered, instead of refusing it. Tables are then written without the filters that
        /// need them, and lookups ask every filter that can be read. Default: false.
        allow_unregistered_filters(yes: bool) = false;
    }
    data {
        /// Most bytes that a data block takes of its file before compression, unless one entry
        /// alone is larger. Default: 4 KiB, a page of the disk; 64 B to 4 MiB. Larger blocks
        /// compress better and need smaller indexes; each point lookup reads more.
        block_bytes(bytes: usize);

        /// Give data blocks a hash index for point lookups. Default: true. It takes a byte per
        /// entry, three bytes in memory, and saves cache misses within the block.
        block_hash_index(yes: bool);

        /// Size of the partitions of a table's data index. Default: 4 KiB; 64 B to 1 MiB, or 0 for
        /// an index of one block. See [`KeyspaceOptions::index_partition_bytes`].
        index_partition_bytes(bytes: usize);

        /// How data blocks of new tables are compressed where that saves at least an eighth.
        /// Default: [`Compression::Snappy`]. `None` saves about 400 ns on each block that is read
        /// from a file.
        compression(compression: Compression);

        /// The compression of new tables at `level` (0 to 6), instead of
        /// [`Options::compression`]'s. A table that moves to a level of another codec is rewritten.
        compression_at_level(level: usize, compression: Compression);

        /// The compression of new tables at the last level, whichever it is: the deepest one with
        /// data. Default: none of its own. It replaces those of [`Options::compression`] and
        /// [`Options::compression_at_level`]. The last level has about nine tenths of the data, and
        /// is written by compactions alone. If a level is no longer the last, its tables stay as
        /// they are until they are rewritten. Level 0 is never the last.
        compression_at_last_level(compression: Compression);

        /// [`Compression::Snappy`] or, if false, [`Compression::None`] by [`Options::compression`].
        snappy(yes: bool);

        /// Ask `filter` in compactions of the keyspace `default` which entries to keep. Default:
        /// none. See [`KeyspaceOptions::compaction_filter`].
        compaction_filter(filter: Arc<dyn CompactionFilter>);

        /// An entry of the keyspace `default` is gone for reads that start `duration` or more after
        /// the write. Default: never. See [`KeyspaceOptions::expire_after`].
        expire_after(duration: Duration);

        /// The filter of new tables at every level. Default: `Filter::bloom(10.0)`. More bits pass
        /// fewer absent keys and take more memory: 10 bits take 1.25 MB per million keys.
        filter(filter: Filter);

        /// The filter of new tables at `level` (0 to 6), instead of [`Options::filter`]'s. A level
        /// that does not exist is refused at open.
        filter_at_level(level: usize, filter: Filter);

        /// The filter of new tables at the last level, whichever it is: the deepest one with data.
        /// Default: none of its own. It replaces the filters of [`Options::filter`] and
        /// [`Options::filter_at_level`]. The last level has about nine tenths of the keys. A
        /// pinning in it is refused: give that to `filter_at_level`. Tables keep what they were
        /// written with, as for [`Options::filter_last_level`].
        filter_at_last_level(filter: Filter);

        /// Give the last level filters. Default: true. If off, a compaction into the deepest level
        /// that then has data writes tables without filters. That saves nine tenths of the memory
        /// of filters, and costs each lookup of an absent key a data block. For workloads whose
        /// lookups nearly always hit.
        ///
        /// Level 0 is never the last. Tables keep what they were written with: if a level is no
        /// longer the last, its tables have no filters until they are rewritten. If a level becomes
        /// the last, or a table is moved there unread, the old filters stay in use.
        filter_last_level(yes: bool);
    }
    others {
        read_only_log_bytes_max: Option<u64> = None;

        /// The data settings: as they were named, or the current ones of a keyspace.
        data: KeyspaceOptions = KeyspaceOptions::new();
        /// Those that were registered, besides those that filters name.
        rules: CustomRules = CustomRules::default();
        listener: Option<Listener> = None;
    }
}

/// The user's listener, which cannot be printed.
#[derive(Clone)]
pub(crate) struct Listener(pub Arc<dyn EventListener>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventListener")
    }
}

impl Default for Options {
    fn default() -> Self {
        Options::new()
    }
}

impl Options {
    /// Bytes of memory that the entries of the logs may take in a database opened read-only or
    /// followed, which cannot flush them. If they take more, opening returns
    /// [`Error::LogsTooLarge`]. Default: four write buffers more than
    /// [`Options::immutable_memtables_max`], so six if that is not set, and a batch counts as one
    /// write buffer at most. A database that was written with these options has less in its logs.
    pub fn read_only_log_bytes_max(mut self, bytes: u64) -> Self {
        self.read_only_log_bytes_max = Some(bytes);
        self
    }

    /// Names each setting that `settings` names, for the keyspace `default`. The methods of the
    /// same names in [`Options`] name one setting each.
    pub fn default_keyspace(mut self, settings: &KeyspaceOptions) -> Self {
        self.data = settings.over(&self.data);
        self
    }

    /// A filter policy besides those in [`Options::filter`], for older tables that name it.
    pub fn register_filter_policy(mut self, policy: Arc<dyn FilterPolicy>) -> Self {
        self.rules.policies.push(policy);
        self
    }

    /// A prefix extractor besides those in [`Options::filter`], for older tables that name it.
    pub fn register_prefix(mut self, extractor: Arc<dyn PrefixExtractor>) -> Self {
        self.rules.prefixes.push(extractor);
        self
    }

    /// Tell `listener` what the database does: flushes, compactions, stalls, new and removed
    /// tables, failures. Default: none. See [`EventListener`]. It costs a thread that sleeps
    /// between events; lookups cost the same.
    pub fn event_listener(mut self, listener: Arc<dyn EventListener>) -> Self {
        self.listener = Some(Listener(listener));
        self
    }

    /// Refuses options that cannot work.
    ///
    /// # Errors
    /// `InvalidOptions`, naming the option, its value and the values it may have.
    pub fn validate(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::InvalidOptions { what });
        self.check_ranges()?;
        check_range("level_base_bytes", self.level_base_bytes, self.table_bytes..=1 << 50)?;
        if !(0.0..=1.0).contains(&self.filter_pinned_share) {
            let share = self.filter_pinned_share;
            return refuse(format!("filter_pinned_share is {share}; it may be 0 to 1"));
        }
        if self.error_if_exists && !self.create_if_missing {
            return refuse("error_if_exists without create_if_missing can open nothing".into());
        }
        self.data.validate()?;
        self.data.check_compression()?;
        if self.asks_for_unpinnable() {
            return refuse(
                "FilterPinning::All without memory that may be pinned: filter_pinned_share or \
                 block_cache_bytes is 0"
                    .into(),
            );
        }
        Ok(())
    }

    /// The current options of a keyspace: `data` for its tables, and `self` for the rest. A data
    /// setting that is unset in `data` has its built-in default, whatever it is in `self`.
    pub(crate) fn for_keyspace(&self, data: &KeyspaceOptions) -> Options {
        // Tables of any keyspace may name the user's rules in the filters of `self`.
        Options { data: data.clone(), rules: self.custom_rules(), ..self.clone() }
    }

    /// Milliseconds after which puts expire; `u64::MAX` for never.
    pub(crate) fn expire_after_millis(&self) -> u64 {
        self.data.expire_after.unwrap_or(u64::MAX)
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

    /// The user's rules in these options: those of filters, and those registered for reading.
    pub(crate) fn custom_rules(&self) -> CustomRules {
        let filters = || self.data.filters().filter(|filter| filter.unregistered.is_empty());
        let policies = filters().filter_map(|filter| match &filter.encoding {
            Some(Encoding::Custom(policy)) => Some(policy),
            _ => None,
        });
        let prefixes = filters().filter_map(|filter| filter.members.prefix.as_ref()?.as_custom());
        CustomRules {
            policies: distinct(policies.chain(&self.rules.policies)),
            prefixes: distinct(prefixes.chain(&self.rules.prefixes)),
        }
    }
}

/// The largest `compaction_bytes_per_second`, which is no limit.
pub(crate) const NO_PACE: u64 = 1 << 50;

fn compaction_threads_default() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| (processors.get() / 2).clamp(1, 4))
}

fn check_range(name: &str, value: u64, range: RangeInclusive<u64>) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let (low, high) = range.into_inner();
    Err(Error::InvalidOptions { what: format!("{name} is {value}; it may be {low} to {high}") })
}

/// The rules in their order, each once.
fn distinct<'a, T: ?Sized + 'a>(rules: impl Iterator<Item = &'a Arc<T>>) -> Vec<Arc<T>> {
    let mut distinct: Vec<Arc<T>> = Vec::new();
    for rule in rules {
        if !distinct.iter().any(|known| Arc::ptr_eq(known, rule)) {
            distinct.push(Arc::clone(rule));
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::levels::LEVELS;
    use crate::options::filter::Unregistered;
    use crate::options::saved::NameOnly;
    use crate::table::filter::layout::{FilterLayout, FilterPinning};
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

    #[test]
    fn settings_of_many_keyspaces_are_small() {
        assert!(size_of::<Options>() <= 512, "{} bytes", size_of::<Options>());
    }

    #[test]
    fn data_settings_are_validated_with_the_rest() {
        let impossible = KeyspaceOptions::new().block_bytes(63);
        assert!(Options::new().for_keyspace(&impossible).validate().is_err());
        assert!(Options::new().block_bytes(63).validate().is_err());
        let pinned = KeyspaceOptions::new().filter(Filter::none().pinning(FilterPinning::All));
        let options = Options::new().filter_pinned_share(0.0).for_keyspace(&pinned);
        assert!(options.validate().unwrap_err().to_string().contains("FilterPinning::All"));
    }

    #[test]
    fn keyspaces_know_each_registered_rule_once() {
        let policy = || Arc::new(NameOnly("test.policy".into()));
        let custom = || Filter::custom(policy());
        let mut unregistered = custom();
        unregistered.unregistered.push(Unregistered::Policy("test.policy".into()));
        let data = KeyspaceOptions::new().filter(custom()).filter_at_level(0, unregistered);
        let options = Options::new().filter(custom()).register_filter_policy(policy());
        let once = options.for_keyspace(&data);
        assert_eq!(once.custom_rules().policies.len(), 3);
        assert_eq!(once.for_keyspace(&data).custom_rules().policies.len(), 3);
    }
}
