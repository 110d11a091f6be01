//! [`Filter`]: which filter new tables get. Composed into `TableOptions` by `options/database.rs`.
//!
//! A setter cannot fail. An impossible value is kept as an error, which opening the database
//! returns.
//! A filter prints as words: its encoding with its bits, then what differs from the defaults.

use crate::base::levels::LEVELS;
use crate::table::filter::layout::{FilterLayout, FilterMembers, FilterPinning, TableFilter};
use siftdb_filter::bloom::fast_local::millibits;
use siftdb_filter::bloom::legacy::whole_bits;
use siftdb_filter::encoding::Encoding;
use siftdb_filter::policy::FilterPolicy;
use siftdb_filter::prefix::Prefix;
use siftdb_filter::range::RangeFilterBuilder;
use std::fmt;
use std::sync::Arc;

/// The filter of tables for which none was chosen.
pub(crate) static FILTER_DEFAULT: Filter = Filter {
    encoding: Some(Encoding::FastLocalBloom { millibits: 10_000 }),
    memory_bytes: None,
    first_ribbon_level: None,
    pinning: FilterPinning::TopLevel,
    layout: None,
    members: FilterMembers { whole_keys: true, prefix: None },
    range_millibits: 0,
    unregistered: Vec::new(),
    refused: None,
};

/// A name in saved settings that no registered policy or extractor has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unregistered {
    /// The name of a filter policy.
    Policy(String),
    /// The id of a prefix extractor.
    Prefix(String),
}

impl fmt::Display for Unregistered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unregistered::Policy(name) => write!(
                f,
                "the filter policy {name:?}, which is not registered: give it to \
                 Options::register_filter_policy"
            ),
            Unregistered::Prefix(id) => write!(
                f,
                "the prefix extractor {id:?}, which is not registered: give it to \
                 Options::register_prefix"
            ),
        }
    }
}

/// The filter of new tables: the encoding of keys, and the layout of the bits.
///
/// ```
/// use siftdb::{Filter, FilterLayout};
/// let whole = Filter::bloom(10.0);
/// let cut = Filter::bloom(14.0).layout(FilterLayout::Partitioned { block_bytes: 4096 });
/// assert_eq!(cut.to_string(), "fast-local-bloom:14 layout=partitioned:4096");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub(crate) encoding: Option<Encoding>,
    /// A budget for all levels together; then the bits per key of the encoding are not used.
    pub(crate) memory_bytes: Option<u64>,
    /// Ribbon from this level on, and Bloom with the same bits above it.
    pub(crate) first_ribbon_level: Option<usize>,
    pub(crate) pinning: FilterPinning,
    pub(crate) layout: Option<FilterLayout>,
    pub(crate) members: FilterMembers,
    /// Of a range filter besides; 0 for none.
    pub(crate) range_millibits: u32,
    /// The user's rules that the saved filter names and that cannot be called. Until they are
    /// registered, tables are written without this filter.
    pub(crate) unregistered: Vec<Unregistered>,
    refused: Option<String>,
}

/// The encoding in the default layout. An impossible encoding is refused when a database is opened.
impl From<Encoding> for Filter {
    fn from(encoding: Encoding) -> Self {
        Filter::of(encoding)
    }
}

impl Filter {
    /// No filter: every table whose key range covers a key is searched.
    #[must_use]
    pub fn none() -> Self {
        Filter::default()
    }

    /// RocksDB's FastLocalBloom with this many bits a key (0.5 to 100); a probe reads one cache
    /// line. 10 bits pass about 1 % of absent keys, and each further 5 bits a tenth of that.
    #[must_use]
    pub fn bloom(bits_per_key: f64) -> Self {
        Filter::of_bits(bits_per_key, |millibits| Encoding::FastLocalBloom { millibits })
    }

    /// RocksDB's Ribbon filter. It passes as many absent keys as [`Filter::bloom`] with these bits
    /// a key (0.5 to 100) in 7/10 of the space: 10 means 7.1 bits. At most three decimals are
    /// taken, because more would give other bytes than RocksDB's. It takes several times as long to
    /// build, somewhat longer to probe, and 20 bytes of memory a key during its construction.
    /// Filters of less than about 150 keys are Bloom filters, which are smaller then.
    #[must_use]
    pub fn ribbon(bits_per_key: f64) -> Self {
        // RocksDB's Bloom filters use thousandths of a bit too; its Ribbon filters use all
        // decimals.
        let thousandths = 1_000.0 * bits_per_key.max(1.0);
        if (thousandths - thousandths.round()).abs() > 1e-6 {
            return Filter::refusing(format!(
                "{bits_per_key} bits per key of a Ribbon filter; it takes at most three decimals"
            ));
        }
        Filter::of_bits(bits_per_key, |millibits| Encoding::Ribbon { millibits })
    }

    /// [`Filter::bloom`] for flushes and for the levels above `first_ribbon_level` (1 to 6), and
    /// [`Filter::ribbon`] from there on. Short-lived tables are built fast, and the many keys of
    /// the lower levels take less memory. A table that a compaction only moves keeps its filter.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let filter = siftdb::Filter::bloom_then_ribbon(10.0, 2);
    /// let db = siftdb::Options::new().filter(filter).open(directory.path().join("people.sift"))?;
    /// # db.close()
    /// # }
    /// ```
    #[must_use]
    pub fn bloom_then_ribbon(bits_per_key: f64, first_ribbon_level: usize) -> Self {
        if !(1..LEVELS).contains(&first_ribbon_level) {
            return Filter::refusing(format!(
                "bloom_then_ribbon from level {first_ribbon_level} on; it may be 1 to {} \
                 (use Filter::ribbon() for all levels)",
                LEVELS - 1
            ));
        }
        Filter { first_ribbon_level: Some(first_ribbon_level), ..Filter::ribbon(bits_per_key) }
    }

    /// RocksDB's older Bloom filter with this many bits a key (0.5 to 100, rounded to whole bits as
    /// RocksDB does), for comparison: [`Filter::bloom`] is better in every respect. Its hash has 32
    /// bits, so tables of millions of keys pass more absent keys than expected, and above 14 bits a
    /// key further bits hardly help.
    #[must_use]
    pub fn legacy_bloom(bits_per_key: f64) -> Self {
        Filter::of_bits(bits_per_key, |millibits| Encoding::LegacyBloom {
            bits_per_key: whole_bits(millibits),
        })
    }

    /// FastLocalBloom, with about `memory_bytes` for all filters together. The bits per key of each
    /// level are chosen so that all levels together pass the fewest absent keys (the allocation of
    /// the Monkey paper, 2017). Only for [`Options::filter`](crate::Options::filter), and not in
    /// the block-based layout, which rounds every few keys up to a line.
    ///
    /// The small upper levels get more bits a key, 30 at most. The largest level gets fewer than an
    /// even division would give, or no filter if memory is short. In a tree at rest with levels
    /// that grow tenfold, this saves a third of the false positives of the same bytes with two
    /// levels, and half of them with three, if each lookup asks all levels. After a load fewer do,
    /// and a seventh was saved. If levels have the same size or disjoint keys, it saves little.
    /// While writes are faster than compactions, level 0 has many tables, and it saves a
    /// third to a half. `docs/measurements.md` has the measurements.
    ///
    /// Bits are computed at each flush and compaction, from the entries of each level and from the
    /// share of lookups that ask the level in vain. Each table of level 0 is asked by itself and
    /// counts as a level. Tables keep the filter that they were written with, so each compaction
    /// takes the size of existing filters into account. A filter that is far off is rewritten: when
    /// its table is moved, and otherwise for an eighth of the bytes that compactions write. Flushes
    /// may take the sum above the budget until a compaction ends: by a few percent in a large
    /// database, by up to a third while it has only a few flushes. Levels with a filter of their
    /// own ([`Options::filter_at_level`](crate::Options::filter_at_level)) and a last level without
    /// filters take no part.
    #[must_use]
    pub fn monkey(memory_bytes: u64) -> Self {
        if memory_bytes == 0 {
            let what = "monkey(0): a budget of no bytes (use Filter::none() for no filter)";
            return Filter::refusing(what.into());
        }
        let filter = Filter::of(Encoding::FastLocalBloom { millibits: millibits(10.0) });
        Filter { memory_bytes: Some(memory_bytes), ..filter }
    }

    /// LevelDB's Bloom filter with this many whole bits a key (1 to 100).
    #[must_use]
    pub fn leveldb_bloom(bits_per_key: f64) -> Self {
        if !(1.0..=100.0).contains(&bits_per_key) || bits_per_key.fract() != 0.0 {
            return Filter::refusing(format!(
                "{bits_per_key} bits per key; LevelDB's Bloom filter takes whole bits, 1 to 100"
            ));
        }
        Filter::of(Encoding::LevelDbBloom { bits_per_key: bits_per_key as u32 })
    }

    /// A custom filter policy. Tables built with it record its name. Without the policy they are
    /// read as if they had no filter.
    #[must_use]
    pub fn custom(policy: Arc<dyn FilterPolicy>) -> Self {
        Filter::of(Encoding::Custom(policy))
    }

    /// The layout. Default: one filter for the whole table at levels 0 and 1, partitions of 4 KiB
    /// below.
    #[must_use]
    pub fn layout(mut self, layout: FilterLayout) -> Self {
        self.layout = Some(layout);
        self
    }

    /// Also hold the prefix of each key, so that a scan over keys with one prefix skips tables
    /// without it. Each prefix of a table takes an entry. Not in the block-based layout.
    #[must_use]
    pub fn prefix(mut self, prefix: Prefix) -> Self {
        self.members.prefix = Some(prefix);
        self
    }

    /// Besides, a range filter of about this many bits a key (4 to 20), so that a scan skips tables
    /// without a key in its range, whatever its bounds are. Default: none.
    ///
    /// It keeps the approximate position of each key between two entries of the data index. With 12
    /// bits, some 0.3 % of the empty ranges of numbers, dates and UUIDs pass, binary or as text; a
    /// bit more halves that. Ranges between two keys that share much more than their neighbours do
    /// pass often, such as names in one directory of a file system: [`Filter::prefix`] serves
    /// those. A level without a filter has no range filter. See
    /// [`guide::filters`](crate::guide::filters).
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let filter = siftdb::Filter::bloom(10.0).ranges(12.0);
    /// let db = siftdb::Options::new().filter(filter).open(directory.path().join("log.sift"))?;
    /// db.put(1_700_000_000u32.to_be_bytes(), "started")?;
    /// let hour = 1_800_000_000u32.to_be_bytes()..1_800_003_600u32.to_be_bytes();
    /// assert_eq!(db.range(hour).count(), 0);
    /// # db.close()
    /// # }
    /// ```
    #[must_use]
    pub fn ranges(mut self, bits_per_key: f64) -> Self {
        match RangeFilterBuilder::new(bits_per_key) {
            Ok(_) => self.range_millibits = millibits(bits_per_key),
            Err(what) => self.refused = Some(what),
        }
        self
    }

    /// Hold whole keys. Default: true. If off, the filter holds prefixes only and is much smaller.
    /// Then the prefix of a key answers a point lookup, and a key without a prefix is searched
    /// without a filter. Needs [`Filter::prefix`].
    #[must_use]
    pub fn whole_key(mut self, yes: bool) -> Self {
        self.members.whole_keys = yes;
        self
    }

    /// Checks the bits per key as RocksDB's filters take them.
    fn of_bits(bits_per_key: f64, encoding: impl FnOnce(u32) -> Encoding) -> Self {
        if (0.5..=100.0).contains(&bits_per_key) {
            return Filter::of(encoding(millibits(bits_per_key)));
        }
        Filter::refusing(format!(
            "{bits_per_key} bits per key; RocksDB's filters take 0.5 to 100 \
             (use Filter::none() for no filter)"
        ))
    }

    /// How much of the filters stays in memory. Default: whole filters and top-level indexes. More
    /// saves lookups the lock of the cache, or reads if the cache is short. It takes memory from
    /// cached blocks, and costs reads when tables are opened.
    ///
    /// It applies to every table that is opened at the level, whatever its filter is. A table that
    /// moves to another level keeps its state until the database is reopened. If the pinned share
    /// of the cache is used up, the remaining filters are cached. Opening a database pins the upper
    /// levels first. An opening that may pin no memory refuses `FilterPinning::All`, unless another
    /// opening saved it.
    #[must_use]
    pub fn pinning(mut self, pinning: FilterPinning) -> Self {
        self.pinning = pinning;
        self
    }

    fn of(encoding: Encoding) -> Self {
        Filter { encoding: Some(encoding), ..Filter::default() }
    }

    fn refusing(what: String) -> Self {
        Filter { refused: Some(what), ..Filter::default() }
    }

    /// The memory that the filters of all levels together may take, if they share a budget.
    pub(crate) fn budget(&self) -> Option<u64> {
        self.memory_bytes.filter(|_| self.unregistered.is_empty())
    }

    pub(crate) fn at_level(&self, level: usize) -> Option<TableFilter> {
        if self.unregistered.is_empty() { self.table_filter(level) } else { None }
    }

    fn table_filter(&self, level: usize) -> Option<TableFilter> {
        let layout = self.layout.unwrap_or(if level < 2 {
            FilterLayout::Full
        } else {
            FilterLayout::Partitioned { block_bytes: 4096 }
        });
        let encoding = match (self.encoding.clone()?, self.first_ribbon_level) {
            (Encoding::Ribbon { millibits }, Some(first_ribbon_level))
                if level < first_ribbon_level =>
            {
                Encoding::FastLocalBloom { millibits }
            }
            (encoding, _) => encoding,
        };
        let (members, range_millibits) = (self.members.clone(), self.range_millibits);
        Some(TableFilter { encoding, layout, members, range_millibits })
    }

    /// The filter of a level under a budget that allots it `millibits` per key.
    pub(crate) fn with_millibits(&self, level: usize, millibits: u32) -> Option<TableFilter> {
        let filter = self.at_level(level).filter(|_| millibits > 0)?;
        // No filter has less than a bit for each key.
        let millibits = millibits.max(1_000);
        Some(TableFilter { encoding: Encoding::FastLocalBloom { millibits }, ..filter })
    }

    pub(crate) fn validate(&self) -> std::result::Result<(), String> {
        if let Some(what) = &self.refused {
            return Err(what.clone());
        }
        if self.memory_bytes.is_some()
            && matches!(self.layout, Some(FilterLayout::BlockBased { .. }))
        {
            return Err("monkey in the block-based layout: the filter of each window is rounded \
                        up to 64 bytes, which no budget survives; use full or partitioned"
                .into());
        }
        match self.table_filter(0) {
            Some(filter) => filter.validate(),
            None if self.members.prefix.is_some() || !self.members.whole_keys => {
                Err("a prefix for no filter: Filter::none() holds nothing".to_string())
            }
            None if self.range_millibits > 0 => {
                Err("ranges for no filter: Filter::none() has no range filter either".to_string())
            }
            None => Ok(()),
        }
    }
}

impl fmt::Display for Filter {
    /// Words with a space between them, such as `ribbon:10 layout=full pinning=all`. No name of a
    /// policy or an extractor has a space.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(what) = &self.refused {
            return write!(f, "refused ({what})");
        }
        let bits = self.encoding.as_ref().and_then(Encoding::bits_per_key).unwrap_or_default();
        match (&self.encoding, self.memory_bytes, self.first_ribbon_level) {
            (_, Some(bytes), _) => write!(f, "monkey:{bytes}"),
            (None, ..) => f.write_str("none"),
            (Some(policy @ Encoding::Custom(_)), ..) => write!(f, "custom:{}", policy.full_name()),
            (Some(_), _, Some(level)) => write!(f, "bloom-then-ribbon:{bits}:{level}"),
            (Some(encoding), ..) => write!(f, "{}:{bits}", encoding.label()),
        }?;
        if let Some(layout) = self.layout {
            write!(f, " layout={layout}")?;
        }
        if let Some(prefix) = &self.members.prefix {
            write!(f, " prefix={}", prefix.id())?;
        }
        if !self.members.whole_keys {
            f.write_str(" whole_key=false")?;
        }
        if self.range_millibits > 0 {
            write!(f, " ranges={}", f64::from(self.range_millibits) / 1_000.0)?;
        }
        match self.pinning {
            FilterPinning::None => f.write_str(" pinning=none"),
            FilterPinning::TopLevel => Ok(()),
            FilterPinning::All => f.write_str(" pinning=all"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bloom_then_ribbon_splits_by_level() {
        let filter = Filter::bloom_then_ribbon(9.0, 2);
        filter.validate().unwrap();
        for level in 0..LEVELS {
            let encoding = filter.at_level(level).unwrap().encoding;
            let bloom = matches!(encoding, Encoding::FastLocalBloom { millibits: 9_000 });
            let ribbon = matches!(encoding, Encoding::Ribbon { millibits: 9_000 });
            assert_eq!((bloom, ribbon), (level < 2, level >= 2), "level {level}");
        }
    }
}
