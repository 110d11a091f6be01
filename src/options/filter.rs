//! [`Filter`]: which filter new tables get. Composed into `TableOptions` by `options/database.rs`.
//!
//! A setter cannot fail, so a value that cannot work is kept as its refusal and answers the open.

use crate::filter::fast_local_bloom::millibits;
use crate::filter::legacy_bloom::whole_bits;
use crate::filter::policy::FilterPolicy;
use crate::filter::registry::Encoding;
use crate::table::filter_block::layout::{FilterLayout, TableFilter};
use std::sync::Arc;

/// The filter that new tables get: how keys become bits, and where the bits live.
///
/// ```
/// use siftdb::{Filter, FilterLayout};
/// let whole = Filter::bloom(10.0);
/// let cut = Filter::bloom(14.0).layout(FilterLayout::Partitioned { block_bytes: 4096 });
/// ```
#[derive(Clone, Debug)]
pub struct Filter {
    pub(crate) encoding: Option<Encoding>,
    layout: Option<FilterLayout>,
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
        Filter { encoding: None, layout: None, refused: None }
    }

    /// RocksDB's FastLocalBloom, one cache line a probe, with this many bits a key (0.5 to 100).
    /// 10 bits let about 1 % of absent keys through, each further 5 bits a tenth of that.
    #[must_use]
    pub fn bloom(bits_per_key: f64) -> Self {
        Filter::of_bits(bits_per_key, |millibits| Encoding::FastLocalBloom { millibits })
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

    /// What RocksDB's Bloom filters take.
    fn of_bits(bits_per_key: f64, encoding: impl FnOnce(u32) -> Encoding) -> Self {
        if (0.5..=100.0).contains(&bits_per_key) {
            return Filter::of(encoding(millibits(bits_per_key)));
        }
        Filter::refusing(format!(
            "{bits_per_key} bits per key; a Bloom filter takes 0.5 to 100 \
             (use Filter::none() for no filter)"
        ))
    }

    fn of(encoding: Encoding) -> Self {
        Filter { encoding: Some(encoding), layout: None, refused: None }
    }

    pub(crate) fn refusing(what: String) -> Self {
        Filter { encoding: None, layout: None, refused: Some(what) }
    }

    pub(crate) fn at_level(&self, level: usize) -> Option<TableFilter> {
        let layout = self.layout.unwrap_or(if level < 2 {
            FilterLayout::Full
        } else {
            FilterLayout::Partitioned { block_bytes: 4096 }
        });
        self.encoding.clone().map(|encoding| TableFilter { encoding, layout })
    }

    pub(crate) fn validate(&self) -> std::result::Result<(), String> {
        if let Some(what) = &self.refused {
            return Err(what.clone());
        }
        self.at_level(0).map_or(Ok(()), |filter| filter.validate())
    }
}
