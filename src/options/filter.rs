//! [`Filter`]: which filter new tables get. Composed into `TableOptions` by `options/database.rs`.
//!
//! A setter cannot fail, so a value that cannot work is kept as its refusal and answers the open.

use crate::base::levels::LEVELS;
use crate::filter::bloom::fast_local::millibits;
use crate::filter::bloom::legacy::whole_bits;
use crate::filter::encoding::Encoding;
use crate::filter::policy::FilterPolicy;
use crate::filter::prefix::Prefix;
use crate::table::filter::layout::FilterPinning;
use crate::table::filter::layout::{FilterLayout, FilterMembers, TableFilter};
use std::sync::Arc;

/// The filter that new tables get: how keys become bits, and where the bits live.
///
/// ```
/// use siftdb::{Filter, FilterLayout};
/// let whole = Filter::bloom(10.0);
/// let cut = Filter::bloom(14.0).layout(FilterLayout::Partitioned { block_bytes: 4096 });
/// ```
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub(crate) encoding: Option<Encoding>,
    /// For all levels together; the encoding's own bits per key are not meant then.
    pub(crate) memory_bytes: Option<u64>,
    /// What the levels above this one have instead.
    above: Option<(usize, Encoding)>,
    pub(crate) pinning: FilterPinning,
    layout: Option<FilterLayout>,
    pub(crate) members: FilterMembers,
    refused: Option<String>,
}

/// The encoding, in the default layout. What it cannot do is refused when a database is opened.
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

    /// RocksDB's FastLocalBloom, one cache line a probe, with this many bits a key (0.5 to 100).
    /// 10 bits let about 1 % of absent keys through, each further 5 bits a tenth of that.
    #[must_use]
    pub fn bloom(bits_per_key: f64) -> Self {
        Filter::of_bits(bits_per_key, |millibits| Encoding::FastLocalBloom { millibits })
    }

    /// RocksDB's Ribbon filter, which lets as many absent keys through as [`Filter::bloom`] with
    /// these bits a key (0.5 to 100, at most three decimals, since more would give other bytes than
    /// RocksDB's) and takes 7/10 of its space: 10 mean 7.1 bits. It costs
    /// several times as much to build, some more to ask, and 20 bytes of memory a key while it is
    /// built. Filters of less than about 150 keys are Bloom filters, which are smaller then.
    #[must_use]
    pub fn ribbon(bits_per_key: f64) -> Self {
        // RocksDB's Bloom filters go by thousandths, too; its Ribbon filters by all decimals.
        let thousandths = 1_000.0 * bits_per_key.max(1.0);
        if (thousandths - thousandths.round()).abs() > 1e-6 {
            return Filter::refusing(format!(
                "{bits_per_key} bits per key of a Ribbon filter; it takes at most three decimals"
            ));
        }
        Filter::of_bits(bits_per_key, |millibits| Encoding::Ribbon { millibits })
    }

    /// [`Filter::bloom`] for what flushes write and for the levels above `first_ribbon_level` (1
    /// to 6), [`Filter::ribbon`] from there on: tables that live shortly are built fast, and the
    /// many keys below take less memory. Tables that a compaction only moves keep their filters.
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
        let above = Filter::bloom(bits_per_key).encoding;
        let above = above.map(|bloom| (first_ribbon_level, bloom));
        Filter { above, ..Filter::ribbon(bits_per_key) }
    }

    /// RocksDB's older Bloom filter with this many bits a key (0.5 to 100, rounded to whole ones
    /// as RocksDB does), for comparison: [`Filter::bloom`] is better in every respect. Its hash
    /// has 32 bits, so tables of millions of keys let more absent keys through than was asked
    /// for, and above 14 bits a key further bits hardly help.
    #[must_use]
    pub fn legacy_bloom(bits_per_key: f64) -> Self {
        Filter::of_bits(bits_per_key, |millibits| Encoding::LegacyBloom {
            bits_per_key: whole_bits(millibits),
        })
    }

    /// FastLocalBloom with as many bits a key at each level as let the fewest absent keys through
    /// all levels together, the filters having about `memory_bytes` in all (the allocation of the
    /// Monkey paper, 2017). Only for [`Options::filter`](crate::Options::filter), and not in the
    /// block-based layout, which rounds every few keys up to a line.
    ///
    /// The small upper levels get more bits a key, the largest level fewer than an even division
    /// would give, or no filter at all when memory is short. In a tree at rest whose levels grow
    /// tenfold that saves a third of the false positives of the same bytes with two levels, and
    /// half of them with three. Where levels are of one size, or side by side, it saves little.
    /// While writes are faster than compactions, level 0 has many tables, and it saves a third to
    /// a half.
    /// `docs/measurements.md` has the measurements.
    ///
    /// Bits are computed at each flush and compaction from the entries of each level (each table
    /// of level 0 is asked by itself and counts as a level) and from the share of lookups that ask
    /// the level in vain. Tables keep the filter they were written with, so each compaction also
    /// reckons with what the filters take, and a filter that is far off is rewritten: when its
    /// table is moved, and otherwise for an eighth of the bytes that compactions write. Flushes
    /// may take the sum above the budget until a compaction ends: a few percent while the
    /// database is large, up to a third while it has a few flushes. Levels with a filter of their
    /// own ([`Options::filter_at_level`](crate::Options::filter_at_level)) and a last level
    /// without one take no part.
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

    /// A policy of the user's own. Tables built with it name it; opened without it they are read
    /// as if they had no filter.
    #[must_use]
    pub fn custom(policy: Arc<dyn FilterPolicy>) -> Self {
        Filter::of(Encoding::Custom(policy))
    }

    /// Where the bits live. Without this call: one filter for the whole table at levels 0 and 1,
    /// partitions of 4 KiB below.
    #[must_use]
    pub fn layout(mut self, layout: FilterLayout) -> Self {
        self.layout = Some(layout);
        self
    }

    /// Hold the prefix of each key, too, so that a scan over keys of one prefix skips the
    /// tables that have none of them. Costs an entry for each prefix of a table. Not in the
    /// block-based layout.
    #[must_use]
    pub fn prefix(mut self, prefix: Prefix) -> Self {
        self.members.prefix = Some(prefix);
        self
    }

    /// Hold whole keys. Default: true. Off leaves a much smaller filter of prefixes only, which
    /// answers a point lookup by the prefix of its key; a key without one is searched for without
    /// a filter. Needs [`Filter::prefix`].
    #[must_use]
    pub fn whole_key(mut self, yes: bool) -> Self {
        self.members.whole_keys = yes;
        self
    }

    /// What RocksDB's filters take.
    fn of_bits(bits_per_key: f64, encoding: impl FnOnce(u32) -> Encoding) -> Self {
        if (0.5..=100.0).contains(&bits_per_key) {
            return Filter::of(encoding(millibits(bits_per_key)));
        }
        Filter::refusing(format!(
            "{bits_per_key} bits per key; RocksDB's filters take 0.5 to 100 \
             (use Filter::none() for no filter)"
        ))
    }

    /// How much of its tables' filters stays in memory. Default: whole filters and top-level
    /// indexes. More saves lookups the cache's lock, or a read where the cache is short; it costs
    /// memory that no block can have, and reads when tables are opened.
    ///
    /// Concerns every table that is opened at the level, whatever filter it was written with. A
    /// table that moves to another level stays as it was opened until the database is opened
    /// again. Where the cache's share for this is used up, what did not fit is cached; the upper
    /// levels come first when a database is opened.
    #[must_use]
    pub fn pinning(mut self, pinning: FilterPinning) -> Self {
        self.pinning = pinning;
        self
    }

    fn of(encoding: Encoding) -> Self {
        Filter { encoding: Some(encoding), ..Filter::default() }
    }

    pub(crate) fn refusing(what: String) -> Self {
        Filter { refused: Some(what), ..Filter::default() }
    }

    pub(crate) fn at_level(&self, level: usize) -> Option<TableFilter> {
        let layout = self.layout.unwrap_or(if level < 2 {
            FilterLayout::Full
        } else {
            FilterLayout::Partitioned { block_bytes: 4096 }
        });
        let encoding = match &self.above {
            Some((first_below, above)) if level < *first_below => Some(above),
            _ => self.encoding.as_ref(),
        };
        let members = self.members.clone();
        encoding.cloned().map(|encoding| TableFilter { encoding, layout, members })
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
        match self.at_level(0) {
            Some(filter) => filter.validate(),
            None if self.members.prefix.is_some() || !self.members.whole_keys => {
                Err("a prefix for no filter: Filter::none() holds nothing".to_string())
            }
            None => Ok(()),
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
