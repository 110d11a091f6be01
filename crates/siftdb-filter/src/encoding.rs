//! The encodings of filters: which one makes the bits, and what the bytes under a name mean.
//!
//! [`Encoding`] is the choice for new filters. A table persists a name with its filter;
//! [`FilterReader`] is the meaning of that name, whatever the current options are. [`FilterView`]
//! is one filter with its trailer parsed: the type that answers lookups. [`PreparedFilter`] owns
//! its bytes and parses their trailer once; a pinned filter is one.
//!
//! RocksDB's encodings share one name. The last five bytes of a filter, its trailer, tell them
//! apart (`BuiltinFilterPolicy::GetBuiltinFilterBitsReader` in RocksDB's `filter_policy.cc`).
//! Every doubt means "may match". siftdb departs from RocksDB once, on purpose: RocksDB takes 1 to
//! 5 bytes for "no keys", siftdb only 0 bytes. LevelDB's name keeps LevelDB's rule: fewer than 2
//! bytes mean "no keys".

use crate::bloom::fast_local::{self, FastLocalTrailer, LineBits};
use crate::bloom::legacy::{self, LegacyTrailer};
use crate::bloom::leveldb;
use crate::bloom::line_rates;
use crate::cache_line::AlignedBytes;
use crate::cache_line::LINE_BYTES;
use crate::hash::{KeyHash, legacy_hash, leveldb_hash, xxph3_64};
use crate::policy::{FilterPolicy, check_name, guarded};
use crate::ribbon::ribbon::{self, RibbonTrailer};
use std::sync::Arc;

/// How the keys of new filters become bits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Encoding {
    /// LevelDB's Bloom filter, in whole bits per key.
    LevelDbBloom {
        /// Bits per key, 1 to 100.
        bits_per_key: u32,
    },
    /// RocksDB's FastLocalBloom: all bits of a key in one cache line. The default.
    FastLocalBloom {
        /// Thousandths of a bit per key, 1000 to 100000.
        millibits: u32,
    },
    /// RocksDB's Ribbon filter: less space for more work.
    Ribbon {
        /// Thousandths of a bit per key, 1000 to 100000, of the FastLocalBloom with the same rate
        /// of false positives. The Ribbon filter takes about 7/10 of that.
        millibits: u32,
    },
    /// RocksDB's older Bloom filter.
    LegacyBloom {
        /// Bits per key, 1 to 100.
        bits_per_key: u32,
    },
    /// A user's own filter policy.
    Custom(Arc<dyn FilterPolicy>),
}

impl Encoding {
    /// The name persisted in the full and partitioned layouts.
    #[must_use]
    pub fn full_name(&self) -> String {
        match self {
            Encoding::LevelDbBloom { .. } => leveldb::NAME.to_string(),
            Encoding::Custom(policy) => policy_name(policy),
            _ => fast_local::NAME.to_string(),
        }
    }

    /// The name persisted in the block-based layout.
    #[must_use]
    pub fn block_based_name(&self) -> String {
        match self {
            Encoding::FastLocalBloom { .. } => fast_local::BLOCK_BASED_NAME.to_string(),
            Encoding::Ribbon { .. } => ribbon::BLOCK_BASED_NAME.to_string(),
            Encoding::LegacyBloom { .. } => legacy::BLOCK_BASED_NAME.to_string(),
            Encoding::LevelDbBloom { .. } | Encoding::Custom(_) => self.full_name(),
        }
    }

    /// What is wrong with this choice, if anything.
    pub fn validate(&self) -> Result<(), String> {
        let what = match self {
            Encoding::LevelDbBloom { .. } => "LevelDB Bloom takes",
            Encoding::FastLocalBloom { .. } | Encoding::Ribbon { .. } => {
                "FastLocalBloom and Ribbon take"
            }
            Encoding::LegacyBloom { .. } => "the legacy Bloom takes",
            Encoding::Custom(policy) => {
                return check_name("filter policy's name", &policy_name(policy));
            }
        };
        match self.bits_per_key() {
            Some(bits) if !(1.0..=100.0).contains(&bits) => {
                Err(format!("{what} 1 to 100 bits per key, not {bits}"))
            }
            _ => Ok(()),
        }
    }

    /// The bits per key that were asked for; for Ribbon, those of a Bloom filter with the same
    /// rate. `None` for a policy, which decides by itself.
    #[must_use]
    pub fn bits_per_key(&self) -> Option<f64> {
        match self {
            Encoding::LevelDbBloom { bits_per_key } | Encoding::LegacyBloom { bits_per_key } => {
                Some(f64::from(*bits_per_key))
            }
            Encoding::FastLocalBloom { millibits } | Encoding::Ribbon { millibits } => {
                Some(f64::from(*millibits) / 1_000.0)
            }
            Encoding::Custom(_) => None,
        }
    }

    /// All built-in encodings with this many thousandths of a bit per key, or the nearest number
    /// that they take.
    ///
    /// ```
    /// # use siftdb_filter::Encoding;
    /// let labels: Vec<_> = Encoding::built_in(9_900).iter().map(Encoding::label).collect();
    /// assert_eq!(labels[..2], ["leveldb-bloom", "fast-local-bloom"]);
    /// ```
    #[must_use]
    pub fn built_in(millibits: u32) -> Vec<Self> {
        let millibits = millibits.clamp(1_000, 100_000);
        let bits_per_key = legacy::whole_bits(millibits);
        vec![
            Encoding::LevelDbBloom { bits_per_key },
            Encoding::FastLocalBloom { millibits },
            Encoding::Ribbon { millibits },
            Encoding::LegacyBloom { bits_per_key },
        ]
    }

    /// One word for the encoding, as tables, the command and reports call it. Two encodings may
    /// persist their filters under one name; no two have the same label.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Encoding::LevelDbBloom { .. } => "leveldb-bloom",
            Encoding::FastLocalBloom { .. } => "fast-local-bloom",
            Encoding::Ribbon { .. } => "ribbon",
            Encoding::LegacyBloom { .. } => "legacy-bloom",
            Encoding::Custom(_) => "custom",
        }
    }

    /// The built-in encoding that a table's properties describe, by label and thousandths of bits
    /// per key. `None` for users' policies.
    #[must_use]
    pub fn of_table(label: &str, millibits: u64) -> Option<Self> {
        let millibits = u32::try_from(millibits).ok().filter(|millibits| *millibits > 0)?;
        Encoding::built_in(millibits).into_iter().find(|encoding| encoding.label() == label)
    }

    /// The hash that this encoding makes its bits of. A 32-bit hash is widened.
    #[inline]
    pub(crate) fn hash_of(&self, key: &[u8]) -> u64 {
        match self {
            Encoding::LevelDbBloom { .. } => u64::from(leveldb_hash(key)),
            Encoding::LegacyBloom { .. } => u64::from(legacy_hash(key)),
            Encoding::FastLocalBloom { .. } | Encoding::Ribbon { .. } | Encoding::Custom(_) => {
                xxph3_64(key)
            }
        }
    }
}

/// The name of a user's policy. If asking panics, the name is empty, and no filter is persisted
/// under an empty name.
fn policy_name(policy: &Arc<dyn FilterPolicy>) -> String {
    guarded(|| policy.name().to_string()).unwrap_or_default()
}

/// The answer of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterVerdict {
    /// Nothing was asked: no filter answers this question, or it cannot be read. Read on.
    NotConsulted,
    /// There is a filter, and asking it has not paid lately. Read on.
    Bypassed,
    /// The key is certainly not there.
    No,
    /// The key may be there. Read on.
    Maybe,
}

impl FilterVerdict {
    /// The verdict of a filter that was asked.
    #[inline]
    pub fn of(may_contain: bool) -> Self {
        if may_contain { FilterVerdict::Maybe } else { FilterVerdict::No }
    }
}

/// The encodings under one persisted name.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FilterReader {
    /// Filters under LevelDB's name.
    LevelDbBloom,
    /// RocksDB's built-in encodings; the trailer of each filter tells which.
    RocksDb,
    /// A user's filter policy.
    Custom(Arc<dyn FilterPolicy>),
}

impl FilterReader {
    /// The reader of filters persisted under `name`: a built-in one, or one of the user's policies.
    /// `None` for an unknown name; such filters cannot be asked.
    #[must_use]
    pub fn for_name(name: &str, custom: &[Arc<dyn FilterPolicy>]) -> Option<FilterReader> {
        match name {
            leveldb::NAME => Some(FilterReader::LevelDbBloom),
            fast_local::NAME
            | fast_local::BLOCK_BASED_NAME
            | ribbon::BLOCK_BASED_NAME
            | legacy::BLOCK_BASED_NAME => Some(FilterReader::RocksDb),
            "" => None,
            _ => custom
                .iter()
                .find(|policy| policy_name(policy) == name)
                .map(|policy| FilterReader::Custom(policy.clone())),
        }
    }

    /// The reader of what `encoding` writes.
    pub fn of(encoding: &Encoding) -> FilterReader {
        match encoding {
            Encoding::LevelDbBloom { .. } => FilterReader::LevelDbBloom,
            Encoding::Custom(policy) => FilterReader::Custom(Arc::clone(policy)),
            _ => FilterReader::RocksDb,
        }
    }

    /// `filter` with its trailer parsed.
    #[inline]
    pub fn view<'f>(&'f self, filter: &'f [u8]) -> FilterView<'f> {
        FilterView { reader: self, trailer: self.parse(filter), bytes: filter }
    }

    /// True if no member is denied: what must hold of the hashes a filter was built from.
    pub fn contains_all(&self, filter: &[u8], hashes: &[u64]) -> bool {
        let view = self.view(filter);
        hashes.iter().all(|&hash| view.may_contain(&KeyHash::of_hash(hash)))
    }

    /// False only if the key is certainly not among those that `filter` was built from.
    #[inline]
    #[must_use]
    pub fn may_contain(&self, filter: &[u8], key: &KeyHash<'_>) -> bool {
        self.view(filter).may_contain(key)
    }

    #[inline(always)]
    fn parse(&self, filter: &[u8]) -> Trailer {
        // The first byte of a trailer tells the encodings apart, so at most one of them parses.
        match (self, FastLocalTrailer::parse(filter)) {
            (FilterReader::RocksDb, Some(trailer)) => Trailer::FastLocalBloom(trailer),
            _ => self.parse_other(filter),
        }
    }

    /// A function of its own keeps the code for the default encoding short.
    #[inline(never)]
    fn parse_other(&self, filter: &[u8]) -> Trailer {
        if !matches!(self, FilterReader::RocksDb) {
            return Trailer::Absent;
        }
        if let Some(trailer) = RibbonTrailer::parse(filter) {
            return Trailer::Ribbon(trailer);
        }
        match LegacyTrailer::parse(filter) {
            Some(trailer) => Trailer::LegacyBloom(trailer),
            None if filter.is_empty() => Trailer::NoKeys,
            None => Trailer::AlwaysMaybe,
        }
    }
}

/// A parsed trailer: how to probe the filter, or what it always answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trailer {
    /// Filters under this name have no trailer.
    Absent,
    NoKeys,
    AlwaysMaybe,
    FastLocalBloom(FastLocalTrailer),
    Ribbon(RibbonTrailer),
    LegacyBloom(LegacyTrailer),
}

/// One filter, ready to be asked.
#[derive(Clone, Copy, Debug)]
pub struct FilterView<'f> {
    reader: &'f FilterReader,
    trailer: Trailer,
    bytes: &'f [u8],
}

impl FilterView<'_> {
    /// False only if the key is certainly not among those that the filter was built from.
    #[inline(always)]
    pub fn may_contain(&self, key: &KeyHash<'_>) -> bool {
        match self.trailer {
            Trailer::FastLocalBloom(trailer) => trailer.may_match(self.bytes, key.xxph3()),
            _ => self.may_contain_other(key),
        }
    }

    /// A function of its own keeps the code for the default encoding short.
    #[inline(never)]
    fn may_contain_other(&self, key: &KeyHash<'_>) -> bool {
        match (self.trailer, self.reader) {
            (Trailer::FastLocalBloom(trailer), _) => trailer.may_match(self.bytes, key.xxph3()),
            (Trailer::Ribbon(trailer), _) => trailer.may_match(self.bytes, key.xxph3()),
            (Trailer::LegacyBloom(trailer), _) => trailer.may_match(self.bytes, key.legacy()),
            (Trailer::NoKeys, _) => false,
            (Trailer::Absent, FilterReader::LevelDbBloom) => {
                leveldb::may_match(self.bytes, key.leveldb())
            }
            (Trailer::Absent, FilterReader::Custom(policy)) => {
                guarded(|| policy.key_may_match(key.key(), self.bytes)).unwrap_or(true)
            }
            (Trailer::AlwaysMaybe, _) | (Trailer::Absent, FilterReader::RocksDb) => true,
        }
    }

    /// Asks the processor for the memory that [`may_contain`](Self::may_contain) will read.
    #[inline]
    pub fn prefetch(&self, key: &KeyHash<'_>) {
        match self.trailer {
            Trailer::FastLocalBloom(trailer) => trailer.prefetch(self.bytes, key.xxph3()),
            Trailer::Ribbon(trailer) => trailer.prefetch(self.bytes, key.xxph3()),
            Trailer::LegacyBloom(trailer) => trailer.prefetch(self.bytes, key.legacy()),
            Trailer::Absent | Trailer::NoKeys | Trailer::AlwaysMaybe => {}
        }
    }
}

/// The facts in the trailer of a filter.
#[derive(Clone, Copy, Debug)]
pub struct TrailerFacts {
    /// The label of the encoding.
    pub label: &'static str,
    /// Probes of a key; of a Ribbon filter its columns.
    pub probes: u32,
    rate: TrailerRate,
    lines: f64,
}

#[derive(Clone, Copy, Debug)]
enum TrailerRate {
    FastLocalBloom,
    LegacyBloom,
    /// Whatever the number of keys.
    Ribbon(f64),
}

impl TrailerFacts {
    /// The share of absent keys that the filter lets through if it has this many.
    pub fn expected_fpr(&self, keys: f64) -> f64 {
        match self.rate {
            TrailerRate::FastLocalBloom => line_rates::fast_local(keys, self.lines, self.probes),
            TrailerRate::LegacyBloom => line_rates::legacy(keys, self.lines, self.probes),
            TrailerRate::Ribbon(rate) => rate,
        }
    }
}

/// A filter in memory, with its trailer parsed once.
#[derive(Clone, Debug)]
pub struct PreparedFilter {
    reader: FilterReader,
    trailer: Trailer,
    bytes: AlignedBytes,
}

impl PreparedFilter {
    /// Parses the trailer of `bytes`, which are one filter under the reader's name.
    #[must_use]
    pub fn new(reader: FilterReader, bytes: impl AsRef<[u8]>) -> Self {
        Self::of(reader, AlignedBytes::from(bytes.as_ref()))
    }

    /// The same for bytes in their place.
    pub fn of(reader: FilterReader, bytes: AlignedBytes) -> Self {
        PreparedFilter { trailer: reader.parse(&bytes), reader, bytes }
    }

    #[inline]
    pub fn view(&self) -> FilterView<'_> {
        FilterView { reader: &self.reader, trailer: self.trailer, bytes: &self.bytes }
    }

    /// False only if the key is certainly not among those that the filter was built from.
    #[inline]
    #[must_use]
    pub fn may_contain(&self, key: &KeyHash<'_>) -> bool {
        self.view().may_contain(key)
    }

    /// The facts of a filter of RocksDB's encodings; `None` if it has no keys or is not known.
    pub fn facts(&self) -> Option<TrailerFacts> {
        let lines = (self.bytes.len() as f64 - fast_local::ROCKSDB_TRAILER_BYTES as f64)
            / LINE_BYTES as f64;
        let facts = |label, probes, rate| Some(TrailerFacts { label, probes, rate, lines });
        match self.trailer {
            Trailer::FastLocalBloom(trailer) => {
                facts("fast-local-bloom", trailer.probes, TrailerRate::FastLocalBloom)
            }
            Trailer::Ribbon(trailer) => {
                let (columns, rate) = trailer.columns_and_rate();
                facts("ribbon", columns, TrailerRate::Ribbon(rate))
            }
            Trailer::LegacyBloom(trailer) => {
                facts("legacy-bloom", trailer.probes, TrailerRate::LegacyBloom)
            }
            Trailer::Absent | Trailer::NoKeys | Trailer::AlwaysMaybe => None,
        }
    }

    /// Like [`may_contain`](Self::may_contain), for a lookup that asks many filters: `bits` are
    /// those of the key's [`xxph3`](KeyHash::xxph3) hash, shared by all of its probes.
    #[inline(always)]
    pub fn may_contain_bits(&self, key: &KeyHash<'_>, bits: &mut LineBits) -> bool {
        match self.trailer {
            Trailer::FastLocalBloom(trailer) => trailer.may_match_bits(&self.bytes, bits),
            _ => self.may_contain(key),
        }
    }

    /// Asks the processor for the memory that [`may_contain`](Self::may_contain) will read.
    #[inline]
    pub fn prefetch(&self, key: &KeyHash<'_>) {
        self.view().prefetch(key);
    }

    /// Size of the filter in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::vectors;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_readers_agree_on_any_bytes(
            mut filter in proptest::collection::vec(any::<u8>(), 0..300),
            tail in any::<[u8; 5]>(),
            key: Vec<u8>,
            lines in 0u8..5,
            shaped in 0..4,
        ) {
            match shaped {
                0 => {}
                1 => filter.extend_from_slice(&[0xff, 0, tail[0] % 32, tail[1] / 255, 0]),
                2 => filter.extend_from_slice(&[0xfe, tail[0], lines, 0, tail[1] / 255]),
                _ => {
                    filter.truncate(filter.len() / 64 * 64);
                    filter.extend_from_slice(&[tail[0] % 128, lines, 0, 0, tail[1] / 255]);
                }
            }
            for name in [leveldb::NAME, fast_local::NAME] {
                let reader = FilterReader::for_name(name, &[]).expect("built in");
                let hash = KeyHash::new(&key);
                let prepared = PreparedFilter::new(reader.clone(), &filter);
                let expected = reader.may_contain(&filter, &hash);
                prop_assert_eq!(prepared.may_contain(&hash), expected);
                let mut bits = LineBits::of(hash.xxph3());
                for turn in 0..3 {
                    let answer = prepared.may_contain_bits(&hash, &mut bits);
                    prop_assert_eq!(answer, expected, "asked for the {}th time", turn + 1);
                }
            }
        }
    }

    #[test]
    fn trailers_are_classified_like_rocksdb() {
        let Some(file) = vectors::load("rocksdb_filter_metadata_edge.json") else { return };
        let reader = FilterReader::for_name(fast_local::NAME, &[]).expect("built in");
        let mut checked = 0;
        for case in vectors::array(&file, "cases") {
            let filter = vectors::bytes(case, "filter");
            let name = case["name"].as_str().expect("name");
            let expected = match name {
                // Only a filter of zero bytes means "no keys" here.
                _ if name.starts_with("len_") => {
                    if filter.is_empty() {
                        0
                    } else {
                        64
                    }
                }
                _ => vectors::number(case, "matches"),
            };
            let matches =
                (0..64).filter(|&i| reader.may_contain(&filter, &KeyHash::new(&vectors::key8(i))));
            assert_eq!(matches.count() as u64, expected, "{name}");
            checked += 1;
        }
        assert_eq!(checked, 74);
    }

    #[test]
    fn trailers_name_their_encoding() {
        let reader = FilterReader::for_name(fast_local::NAME, &[]).expect("built in");
        let ask = |filter: &[u8]| reader.may_contain(filter, &KeyHash::new(b"key"));
        let with = |body: usize, trailer: [u8; 5]| [vec![0; body], trailer.to_vec()].concat();
        assert!(!ask(&[]));
        assert!((1..=6).all(|len| ask(&vec![0xff; len]) && ask(&vec![0; len])));
        for k in 1..=30 {
            assert!(!ask(&with(64, [0xff, 0, k, 0, 0])), "k = {k}");
        }
        for k in 1..=127 {
            assert!(!ask(&with(64, [k, 1, 0, 0, 0])), "k = {k}");
        }
        let reserved = [
            [0xff, 0, 0, 0, 0],
            [0xff, 0, 31, 0, 0],
            [0xff, 1, 6, 0, 0],
            [0xff, 0, 0x26, 0, 0],
            [0xff, 0, 6, 1, 0],
            [0xff, 0, 6, 0, 1],
            [0xfe, 0, 1, 0, 0],
            [0xfd, 0, 2, 0, 0],
            [0x80, 0, 6, 0, 0],
            [0, 1, 0, 0, 0],
            [6, 3, 0, 0, 0],
        ];
        assert!(reserved.iter().all(|&trailer| ask(&with(64, trailer))));
        // A body that is not made of whole lines would be read past its end.
        assert!([0, 1, 63, 65, 127].iter().all(|&body| ask(&with(body, [0xff, 0, 6, 0, 0]))));
    }

    #[derive(Debug)]
    struct Named(&'static str);

    impl FilterPolicy for Named {
        fn name(&self) -> &str {
            assert!(self.0 != "panic", "no name today");
            self.0
        }

        fn create_filter(&self, _: &[&[u8]], _: &mut Vec<u8>) {}

        fn key_may_match(&self, _: &[u8], _: &[u8]) -> bool {
            true
        }
    }

    #[test]
    fn encodings_have_distinct_labels() {
        for millibits in [0, 1_000, 9_499, 9_500, 100_000, u32::MAX] {
            let all = Encoding::built_in(millibits);
            for encoding in &all {
                assert!(encoding.validate().is_ok(), "{encoding:?}");
                let bits = encoding.bits_per_key().expect("built in");
                let asked = f64::from(millibits.clamp(1_000, 100_000)) / 1_000.0;
                assert!((bits - asked).abs() <= 0.5, "{encoding:?}");
                let stored = (1_000.0 * bits) as u64;
                let read = Encoding::of_table(encoding.label(), stored).expect("known");
                assert_eq!((read.label(), read.bits_per_key()), (encoding.label(), Some(bits)));
                assert_eq!(all.iter().filter(|one| one.label() == encoding.label()).count(), 1);
            }
        }
        for (label, millibits) in [("custom", 10_000), ("", 10_000), ("fast-local-bloom", 0)] {
            assert!(Encoding::of_table(label, millibits).is_none());
        }
    }

    #[test]
    fn impossible_choices_are_refused() {
        for name in ["", "rocksdb.BuiltinBloomFilter", "siftdb.x", "with space", "ümlaut", "panic"]
        {
            assert!(Encoding::Custom(Arc::new(Named(name))).validate().is_err(), "{name}");
        }
        assert!(Encoding::Custom(Arc::new(Named("mine"))).validate().is_ok());
        for bits_per_key in [0, 101] {
            assert!(Encoding::LevelDbBloom { bits_per_key }.validate().is_err());
            assert!(Encoding::LegacyBloom { bits_per_key }.validate().is_err());
        }
        for millibits in [0, 999, 100_001] {
            assert!(Encoding::FastLocalBloom { millibits }.validate().is_err());
            assert!(Encoding::Ribbon { millibits }.validate().is_err());
        }
    }
}
