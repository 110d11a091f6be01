//! [`KeyspaceOptions`]: the settings of a keyspace's data, each unset unless it is named.
//!
//! A setting that is named at opening wins over the saved one, and the saved one over the built-in
//! default, setting by setting. `saved` has their bytes in the manifest; `database` and `levels`
//! have the defaults and what the engine reads.

use crate::base::error::{Error, Result};
use crate::base::expiry::duration_millis;
use crate::base::levels::LEVELS;
use crate::options::compaction_filter::CompactionFilter;
use crate::options::filter::{Filter, Unregistered};
use crate::table::compression::Compression;
use crate::table::filter::layout::FilterPinning;
use crate::tree::fields::record;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The bytes of a data block where none were chosen.
pub(crate) const BLOCK_BYTES_DEFAULT: usize = 4096;

/// That of `index_partition_bytes`.
pub(crate) const INDEX_PARTITION_BYTES_DEFAULT: u32 = 4096;

record! {
    /// How the tables of one keyspace are written: the settings that stay with the data.
    ///
    /// A setting that is not named here keeps the value that was saved with the keyspace. Without a
    /// saved value it has the built-in default. A new value concerns tables that are written from
    /// then on; each table records its own filter and compression. The methods of the same names in
    /// [`Options`](crate::Options) name the settings of the keyspace `default`.
    ///
    /// ```
    /// use siftdb::{Filter, KeyspaceOptions};
    ///
    /// let events = KeyspaceOptions::new()
    ///     .filter(Filter::ribbon(10.0))
    ///     .filter_at_level(0, Filter::bloom(12.0))
    ///     .block_bytes(16 << 10);
    /// assert_eq!(
    ///     events.to_string(),
    ///     "filter=ribbon:10, filter_at_level.0=fast-local-bloom:12, block_bytes=16384"
    /// );
    /// ```
    #[derive(Clone, Debug, Default)]
    #[must_use = "options do nothing until a keyspace is opened with them"]
    pub struct KeyspaceOptions: "saved settings" {
        pub(crate) filter: Option<Filter> = 1 "filter",
        /// A map, not an array: 1,000 keyspaces hold these options, and few name a level.
        pub(crate) filter_at_level: BTreeMap<usize, Filter> = 2 "filter_at_level",
        pub(crate) filter_last_level: Option<bool> = 3 "filter_last_level",
        pub(crate) block_bytes: Option<usize> = 4 "block_bytes",
        pub(crate) block_hash_index: Option<bool> = 5 "block_hash_index",
        pub(crate) compression: Option<Compression> = 6 "compression",
        /// Milliseconds after which puts expire; `u64::MAX` for never.
        pub(crate) expire_after: Option<u64> = 7 "expire_after",
        /// Versions without this setting skip it. Boxed: few keyspaces name it.
        pub(crate) filter_at_last_level: Option<Box<Filter>> = 0x88 "filter_at_last_level",
        /// Versions without the next two skip them: none of their tables needs them.
        pub(crate) compression_at_level: BTreeMap<usize, Compression> = 0x89 "compression_at_level",
        pub(crate) compression_at_last_level: Option<Compression> =
            0x8a "compression_at_last_level",
        pub(crate) index_partition_bytes: Option<u32> = 0x8b "index_partition_bytes",
        /// Not saved.
        pub(crate) compaction_filter: Option<Arc<dyn CompactionFilter>>,
    }
}

impl KeyspaceOptions {
    /// No setting is named.
    pub fn new() -> Self {
        KeyspaceOptions::default()
    }

    /// The filter of new tables at every level. Default: `Filter::bloom(10.0)`. More bits pass
    /// fewer absent keys and take more memory: 10 bits take 1.25 MB per million keys.
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = Some(filter);
        self
    }

    /// The filter of new tables at `level` (0 to 6), instead of [`KeyspaceOptions::filter`]'s.
    /// Each level is a setting of its own: a saved filter of a level stays in use when only
    /// [`KeyspaceOptions::filter`] is named. A level that does not exist is refused at open.
    pub fn filter_at_level(mut self, level: usize, filter: Filter) -> Self {
        self.filter_at_level.insert(level, filter);
        self
    }

    /// The filter of new tables at the last level, whichever it is: the deepest one with data.
    /// Default: none of its own. See
    /// [`Options::filter_at_last_level`](crate::Options::filter_at_last_level).
    pub fn filter_at_last_level(mut self, filter: Filter) -> Self {
        self.filter_at_last_level = Some(Box::new(filter));
        self
    }

    /// Give the last level filters. Default: true. Off saves most of the filters' memory, and each
    /// lookup of an absent key then reads a data block in vain: see
    /// [`Options::filter_last_level`](crate::Options::filter_last_level).
    pub fn filter_last_level(mut self, yes: bool) -> Self {
        self.filter_last_level = Some(yes);
        self
    }

    /// Most bytes that a data block takes of its file before compression, unless one entry alone is
    /// larger. Default: 4 KiB, a page of the disk; 64 B to 4 MiB. Larger blocks compress better and
    /// need smaller indexes; each point lookup reads more.
    pub fn block_bytes(mut self, bytes: usize) -> Self {
        self.block_bytes = Some(bytes);
        self
    }

    /// Give data blocks a hash index for point lookups. Default: true. It takes a byte per entry,
    /// three bytes in memory, and saves cache misses within the block.
    pub fn block_hash_index(mut self, yes: bool) -> Self {
        self.block_hash_index = Some(yes);
        self
    }

    /// Size of the partitions of a table's data index. Default: 4 KiB; 64 B to 1 MiB, or 0 for an
    /// index of one block. Partitions come and go with the block cache, under a top level that
    /// stays in memory. If the cache has room for the whole index, it stays in memory in either
    /// form, and lookups cost the same. An index that fits into one partition is one block.
    ///
    /// Earlier releases refuse tables with partitions by their version.
    pub fn index_partition_bytes(mut self, bytes: usize) -> Self {
        // A larger number than that is refused, too.
        self.index_partition_bytes = Some(u32::try_from(bytes).unwrap_or(u32::MAX));
        self
    }

    /// How data blocks of new tables are compressed where that saves at least an eighth. Default:
    /// [`Compression::Snappy`]. `None` saves about 400 ns on each block that is read from a file.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = Some(compression);
        self
    }

    /// The compression of new tables at `level` (0 to 6), instead of
    /// [`KeyspaceOptions::compression`]'s. Each level is a setting of its own, as for
    /// [`KeyspaceOptions::filter_at_level`].
    pub fn compression_at_level(mut self, level: usize, compression: Compression) -> Self {
        self.compression_at_level.insert(level, compression);
        self
    }

    /// The compression of new tables at the last level, whichever it is: the deepest one with data.
    /// Default: none of its own. See
    /// [`Options::compression_at_last_level`](crate::Options::compression_at_last_level).
    pub fn compression_at_last_level(mut self, compression: Compression) -> Self {
        self.compression_at_last_level = Some(compression);
        self
    }

    /// [`Compression::Snappy`] or, if false, [`Compression::None`] by
    /// [`KeyspaceOptions::compression`].
    pub fn snappy(self, yes: bool) -> Self {
        self.compression(if yes { Compression::Snappy } else { Compression::None })
    }

    /// An entry of the keyspace is gone for every read that starts `duration` or more after the
    /// write, by the clock of the [`Env`](crate::env::Env). Default: never. Compactions remove
    /// expired entries. The time is stored with each entry when it is written: a new setting
    /// concerns later writes. [`WriteOptions`](crate::WriteOptions) override it for single calls.
    /// It is counted in milliseconds, rounded up. Zero is refused, and `Duration::MAX` says never.
    ///
    /// Entries of a keyspace without it, and without those options, take no byte more. Each that
    /// expires takes eight. See [`guide::expiry`](crate::guide::expiry).
    pub fn expire_after(mut self, duration: Duration) -> Self {
        self.expire_after = Some(duration_millis(duration).unwrap_or(u64::MAX));
        self
    }

    /// Ask `filter` in compactions which entries to keep. Default: none. It is not saved with the
    /// keyspace, so each opening names it again.
    pub fn compaction_filter(mut self, filter: Arc<dyn CompactionFilter>) -> Self {
        self.compaction_filter = Some(filter);
        self
    }

    /// True if both name the same compaction filter, the same object, or none.
    pub(crate) fn has_compaction_filter_of(&self, other: &KeyspaceOptions) -> bool {
        match (&self.compaction_filter, &other.compaction_filter) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        }
    }

    /// The saved settings that are named, each as name and value. The value of a filter is the text
    /// that [`Filter`] prints, or [`Compression`]; that of one level is called
    /// `filter_at_level.LEVEL` or `compression_at_level.LEVEL`.
    pub fn settings(&self) -> Vec<(String, String)> {
        fn one<T: fmt::Display>(name: &str, value: &Option<T>) -> Option<(String, String)> {
            value.as_ref().map(|value| (name.to_string(), value.to_string()))
        }
        fn by_level<T: fmt::Display>(
            name: &str,
            values: &BTreeMap<usize, T>,
        ) -> impl Iterator<Item = (String, String)> {
            values.iter().map(move |(level, value)| (format!("{name}.{level}"), value.to_string()))
        }
        let expire_after = self.expire_after.map(|millis| match millis {
            u64::MAX => "never".to_string(),
            millis => format!("{millis}ms"),
        });
        let mut settings = Vec::from_iter(one("filter", &self.filter));
        settings.extend(by_level("filter_at_level", &self.filter_at_level));
        settings.extend(one("filter_at_last_level", &self.filter_at_last_level));
        settings.extend(one("filter_last_level", &self.filter_last_level));
        settings.extend(one("block_bytes", &self.block_bytes));
        settings.extend(one("block_hash_index", &self.block_hash_index));
        settings.extend(one("index_partition_bytes", &self.index_partition_bytes));
        settings.extend(one("compression", &self.compression));
        settings.extend(by_level("compression_at_level", &self.compression_at_level));
        settings.extend(one("compression_at_last_level", &self.compression_at_last_level));
        settings.extend(one("expire_after", &expire_after));
        settings
    }

    /// Refuses what cannot work. Rules that are not registered pass: see `check_registered`.
    ///
    /// # Errors
    /// `InvalidOptions`, naming the option, its value and the values it may have.
    pub(crate) fn validate(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::InvalidOptions { what });
        if let Some(bytes) = self.block_bytes.filter(|bytes| !(64..=4 << 20).contains(bytes)) {
            return refuse(format!("block_bytes is {bytes}; it may be 64 to {}", 4 << 20));
        }
        let partition = self.index_partition_bytes;
        if let Some(bytes) = partition.filter(|bytes| *bytes > 0 && !(64..=1 << 20).contains(bytes))
        {
            let what =
                format!("index_partition_bytes is {bytes}; it may be 0, or 64 to {}", 1 << 20);
            return refuse(what);
        }
        if self.expire_after == Some(0) {
            return refuse("expire_after is zero: entries would expire as they are written".into());
        }
        for filter in self.filters() {
            filter.validate().or_else(refuse)?;
        }
        for (name, mut levels) in [
            ("filter_at_level", self.filter_at_level.keys().collect::<Vec<_>>()),
            ("compression_at_level", self.compression_at_level.keys().collect()),
        ] {
            levels.retain(|level| **level >= LEVELS);
            if let Some(level) = levels.first() {
                let last = LEVELS - 1;
                return refuse(format!("{name}({level}): levels are 0 to {last}"));
            }
        }
        for compression in self.compressions() {
            if let Compression::Zstd(level) = compression
                && !(1..=22).contains(&level)
            {
                return refuse(format!("compression is {compression}; levels of zstd are 1 to 22"));
            }
        }
        if let Some(bytes) = self.filters_of_levels().find_map(|filter| filter.memory_bytes) {
            return refuse(format!(
                "a filter of one level with monkey({bytes}): one budget serves all levels; give \
                 it to filter()"
            ));
        }
        if let Some(filter) = &self.filter_at_last_level
            && filter.pinning != FilterPinning::default()
        {
            return refuse(format!(
                "filter_at_last_level({filter}): it takes no pinning; give the pinning to \
                 filter_at_level()"
            ));
        }
        Ok(())
    }

    /// The compressions that are named.
    fn compressions(&self) -> impl Iterator<Item = Compression> {
        let of_levels = self.compression_at_level.values().chain(&self.compression_at_last_level);
        self.compression.iter().chain(of_levels).copied()
    }

    /// The filters that are named.
    pub(crate) fn filters(&self) -> impl Iterator<Item = &Filter> {
        self.filter.iter().chain(self.filters_of_levels())
    }

    fn filters_of_levels(&self) -> impl Iterator<Item = &Filter> {
        self.filter_at_level.values().chain(self.filter_at_last_level.as_deref())
    }

    /// The same, to register the user's rules that they name.
    pub(crate) fn filters_mut(&mut self) -> impl Iterator<Item = &mut Filter> {
        let of_levels =
            self.filter_at_level.values_mut().chain(self.filter_at_last_level.as_deref_mut());
        self.filter.iter_mut().chain(of_levels)
    }
}

impl KeyspaceOptions {
    /// Each setting as it is named here, and otherwise as it is in `saved`.
    pub(crate) fn over(&self, saved: &KeyspaceOptions) -> KeyspaceOptions {
        fn one<T: Clone>(own: &Option<T>, saved: &Option<T>) -> Option<T> {
            own.as_ref().or(saved.as_ref()).cloned()
        }
        fn by_level<T: Clone>(
            own: &BTreeMap<usize, T>,
            saved: &BTreeMap<usize, T>,
        ) -> BTreeMap<usize, T> {
            // Of a level in both, the later one stays.
            saved.iter().chain(own).map(|(level, value)| (*level, value.clone())).collect()
        }
        KeyspaceOptions {
            filter: one(&self.filter, &saved.filter),
            filter_at_level: by_level(&self.filter_at_level, &saved.filter_at_level),
            filter_at_last_level: one(&self.filter_at_last_level, &saved.filter_at_last_level),
            filter_last_level: self.filter_last_level.or(saved.filter_last_level),
            block_bytes: self.block_bytes.or(saved.block_bytes),
            block_hash_index: self.block_hash_index.or(saved.block_hash_index),
            index_partition_bytes: self.index_partition_bytes.or(saved.index_partition_bytes),
            compression: self.compression.or(saved.compression),
            compression_at_level: by_level(&self.compression_at_level, &saved.compression_at_level),
            compression_at_last_level: one(
                &self.compression_at_last_level,
                &saved.compression_at_last_level,
            ),
            expire_after: self.expire_after.or(saved.expire_after),
            compaction_filter: one(&self.compaction_filter, &saved.compaction_filter),
        }
    }

    /// The user's rules that saved filters name and that are not registered.
    pub(crate) fn unregistered(&self) -> impl Iterator<Item = &Unregistered> {
        self.filters().flat_map(|filter| &filter.unregistered)
    }

    /// Refuses compression that this build does not have. It is asked after `over`, since one that
    /// is named now replaces a saved one.
    ///
    /// # Errors
    /// `InvalidOptions`, naming the compression and the feature.
    pub(crate) fn check_compression(&self) -> Result<()> {
        let lacking = self.compressions().find(|compression| !compression.codec().is_available());
        let Some(compression) = lacking else { return Ok(()) };
        let feature = compression.codec().feature().unwrap_or_default();
        let what = format!(
            "compression is {compression}, and this program was built without the feature \
             \"{feature}\" of siftdb"
        );
        Err(Error::InvalidOptions { what })
    }

    /// Refuses filters with rules that are not registered. It is asked after `over`, since a filter
    /// that is named now replaces a saved one. Unless it is asked, such filters are left out of new
    /// tables, and stay as they are when the settings are saved.
    ///
    /// # Errors
    /// `InvalidOptions`, naming the first such rule and the method that registers it.
    pub(crate) fn check_registered(&self) -> Result<()> {
        match self.unregistered().next() {
            None => Ok(()),
            Some(rule) => {
                let what = format!("the saved settings name {rule}, or name another filter");
                Err(Error::InvalidOptions { what })
            }
        }
    }
}

impl fmt::Display for KeyspaceOptions {
    /// The settings that are named, as `NAME=VALUE` with commas between them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.settings().into_iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{name}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_settings_win_over_saved_ones() {
        let saved = KeyspaceOptions::new()
            .filter(Filter::bloom(12.0))
            .filter_at_level(1, Filter::none())
            .filter_at_level(3, Filter::ribbon(9.0))
            .block_bytes(512)
            .snappy(false)
            .expire_after(Duration::from_nanos(4_000_001));
        let named = KeyspaceOptions::new()
            .filter_at_level(3, Filter::bloom(5.0))
            .block_bytes(1024)
            .filter_last_level(false);
        assert_eq!(
            named.over(&saved).to_string(),
            "filter=fast-local-bloom:12, filter_at_level.1=none, \
             filter_at_level.3=fast-local-bloom:5, filter_last_level=false, block_bytes=1024, \
             compression=none, expire_after=5ms"
        );
        assert!(KeyspaceOptions::new().over(&saved) == saved, "nothing is named");
        assert!(named.over(&KeyspaceOptions::new()) == named, "nothing is saved");
        assert!(named.over(&saved) != saved && named != saved);
    }

    #[test]
    fn impossible_settings_are_refused() {
        let new = KeyspaceOptions::new;
        let cases = [
            (new().block_bytes(63), "block_bytes is 63"),
            (new().expire_after(Duration::ZERO), "expire_after is zero"),
            (new().filter(Filter::bloom(0.1)), "0.1 bits per key"),
            (new().filter_at_level(7, Filter::none()), "filter_at_level(7)"),
            (new().compression_at_level(7, Compression::None), "compression_at_level(7)"),
            (new().compression(Compression::Zstd(0)), "compression is zstd:0"),
            (new().compression_at_level(2, Compression::Zstd(23)), "compression is zstd:23"),
            (new().compression_at_last_level(Compression::Zstd(-1)), "compression is zstd:-1"),
            (new().filter_at_level(2, Filter::monkey(9)), "monkey(9)"),
            (new().filter(Filter::monkey(9)).filter_at_level(0, Filter::monkey(9)), "monkey(9)"),
        ];
        for (options, what) in cases {
            let error = options.validate().unwrap_err().to_string();
            assert!(error.contains(what), "{options}: {error}");
        }
    }
}
