//! Builds the filter of one set of keys, in any encoding.
//!
//! Legal order: `((add_key | add_key_and_alternate)* finish)*`, keys sorted. Called by the layouts,
//! `table/filter_block/`. The built-in encodings keep one hash per key; a user's policy wants the
//! keys, so their bytes are kept. Repeats are dropped (see `collected`), except where LevelDB
//! counts them and the bytes have to be LevelDB's.
//!
//! A user's policy runs guarded and writes to a buffer of its own; its filter is asked for every
//! member before it is used. Of the built-in encodings that is an option: the hashes are summed up
//! again behind the filter that was made of them, then each is looked up in its bytes by the normal
//! reader. Either way an error leaves no bytes, and nothing of it reaches the next filter.
//!
//! Hashes and keys are charged to the budget in buckets, finished filters by their length until
//! the builder is dropped, since its owner keeps them until then.

use crate::base::error::{Error, Result};
use crate::filter::bloom::fast_local;
use crate::filter::bloom::legacy;
use crate::filter::bloom::leveldb;
use crate::filter::collected::{Hashes, Keys};
use crate::filter::construction::{Charge, Construction};
use crate::filter::hash::{KeyHash, legacy_hash, leveldb_hash, xxph3_64};
use crate::filter::policy::{FilterPolicy, guarded};
use crate::filter::registry::{Encoding, FilterReader};
use crate::filter::ribbon::ribbon;
use crate::filter::ribbon::space;

impl Encoding {
    /// A builder for one filter after the other. It drops a key equal to the one before it.
    #[must_use]
    pub fn builder(&self) -> FilterBuilder {
        FilterBuilder::new(self.clone(), false)
    }

    /// The builder for the block-based layout. LevelDB counts repeats of a key there, and the
    /// bytes are LevelDB's; RocksDB's encodings drop them in every layout.
    #[must_use]
    pub fn block_based_builder(&self) -> FilterBuilder {
        let keep_repeats = matches!(self, Encoding::LevelDbBloom { .. } | Encoding::Custom(_));
        FilterBuilder::new(self.clone(), keep_repeats)
    }
}

/// Collects the keys of one filter, then writes its bytes; after that it is empty again.
///
/// ```
/// use siftdb::filter::{Encoding, FilterReader, KeyHash};
///
/// let encoding = Encoding::FastLocalBloom { millibits: 10_000 };
/// let mut builder = encoding.builder();
/// builder.add_key(b"ada");
/// let mut filter = Vec::new();
/// builder.finish(&mut filter)?;
///
/// let reader = FilterReader::for_name(&encoding.full_name(), &[]).ok_or("unknown name")?;
/// assert!(reader.may_contain(&filter, &KeyHash::new(b"ada")));
/// assert!(!reader.may_contain(&filter, &KeyHash::new(b"bob")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FilterBuilder {
    encoding: Encoding,
    keep_repeats: bool,
    verify: bool,
    collected: Collected,
    /// For what is collected.
    collecting: Charge,
    /// For the filters that were finished.
    finished: Charge,
}

/// What an encoding needs to know of its keys.
#[derive(Debug)]
enum Collected {
    LevelDb(Hashes<u32>),
    Legacy(Hashes<u32>),
    Xxph3(Hashes<u64>),
    Keys(Keys),
}

impl FilterBuilder {
    fn new(encoding: Encoding, keep_repeats: bool) -> Self {
        let collected = match encoding {
            Encoding::LevelDbBloom { .. } => Collected::LevelDb(Hashes::default()),
            Encoding::LegacyBloom { .. } => Collected::Legacy(Hashes::default()),
            Encoding::FastLocalBloom { .. } | Encoding::Ribbon { .. } => {
                Collected::Xxph3(Hashes::default())
            }
            Encoding::Custom(_) => Collected::Keys(Keys::default()),
        };
        let (collecting, finished) = (Charge::default(), Charge::default());
        FilterBuilder { encoding, keep_repeats, verify: false, collected, collecting, finished }
    }

    /// The same builder with the settings of a table: before the first key.
    #[must_use]
    pub(crate) fn under(mut self, construction: &Construction) -> Self {
        self.verify = construction.verify;
        self.collecting = Charge::new(construction);
        self.finished = Charge::new(construction);
        self
    }

    /// Adds a user key. Keys come sorted, so that repeats are neighbours.
    pub fn add_key(&mut self, user_key: &[u8]) {
        match &mut self.collected {
            Collected::LevelDb(hashes) => hashes.add(leveldb_hash(user_key), self.keep_repeats),
            Collected::Legacy(hashes) => hashes.add(legacy_hash(user_key), false),
            Collected::Xxph3(hashes) => hashes.add(xxph3_64(user_key), false),
            Collected::Keys(keys) => keys.add(user_key, self.keep_repeats),
        }
        self.collecting.cover(self.collected.used_bytes());
    }

    /// Adds a user key and a second name for it, its prefix: both are members. Keys come sorted; a
    /// name equal to that of the key before counts once. Not for the block-based layout.
    pub fn add_key_and_alternate(&mut self, user_key: &[u8], alternate: &[u8]) {
        match &mut self.collected {
            Collected::LevelDb(hashes) => {
                hashes.add_with_alternate(leveldb_hash(user_key), leveldb_hash(alternate));
            }
            Collected::Legacy(hashes) => {
                hashes.add_with_alternate(legacy_hash(user_key), legacy_hash(alternate));
            }
            Collected::Xxph3(hashes) => {
                hashes.add_with_alternate(xxph3_64(user_key), xxph3_64(alternate));
            }
            Collected::Keys(keys) => keys.add_with_alternate(user_key, alternate),
        }
        self.collecting.cover(self.collected.used_bytes());
    }

    /// Keys collected since the last filter, dropped repeats not counted.
    #[must_use]
    pub fn entries(&self) -> usize {
        match &self.collected {
            Collected::LevelDb(hashes) | Collected::Legacy(hashes) => hashes.as_slice().len(),
            Collected::Xxph3(hashes) => hashes.as_slice().len(),
            Collected::Keys(keys) => keys.len(),
        }
    }

    /// Memory that the collected keys take.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.collected {
            Collected::LevelDb(hashes) | Collected::Legacy(hashes) => hashes.memory_bytes(),
            Collected::Xxph3(hashes) => hashes.memory_bytes(),
            Collected::Keys(keys) => keys.memory_bytes(),
        }
    }

    /// After how many keys a partition of `partition_bytes` is full; at least 1.
    #[must_use]
    pub fn keys_per_partition(&self, partition_bytes: usize) -> usize {
        match &self.encoding {
            Encoding::LevelDbBloom { bits_per_key } => {
                leveldb::keys_for_bytes(partition_bytes, *bits_per_key).max(1)
            }
            Encoding::FastLocalBloom { millibits } => keys_that_fit(partition_bytes, |bytes| {
                fast_local::approximate_num_entries(bytes, *millibits)
            }),
            Encoding::Ribbon { millibits } => keys_that_fit(partition_bytes, |bytes| {
                space::approximate_num_entries(bytes, *millibits)
            }),
            Encoding::LegacyBloom { bits_per_key } => keys_that_fit(partition_bytes, |bytes| {
                legacy::approximate_num_entries(bytes, *bits_per_key)
            }),
            // A panic is found when the filter is built; until then any cut will do.
            Encoding::Custom(policy) => {
                guarded(|| policy.keys_per_partition(partition_bytes)).unwrap_or(1).max(1)
            }
        }
    }

    /// Appends the filter of the collected keys and forgets them; nothing for no keys.
    ///
    /// # Errors
    /// `InvalidOptions` if a user's policy panicked or denied a member, `MemoryCorruption` if a
    /// check found that hashes or filter had changed. `dst` is as it was then.
    pub fn finish(&mut self, dst: &mut Vec<u8>) -> Result<()> {
        let start = dst.len();
        let result = self.append(dst).and_then(|()| self.check(&dst[start..]));
        match &result {
            // The owner needs them whether or not there is room in the budget.
            Ok(()) => drop(self.finished.add(dst.len() - start)),
            Err(_) => dst.truncate(start),
        }
        match &mut self.collected {
            Collected::LevelDb(hashes) | Collected::Legacy(hashes) => hashes.clear(),
            Collected::Xxph3(hashes) => hashes.clear(),
            Collected::Keys(keys) => keys.clear(),
        }
        self.collecting.release();
        result
    }

    fn append(&mut self, dst: &mut Vec<u8>) -> Result<()> {
        if self.entries() == 0 {
            return Ok(());
        }
        #[cfg(test)]
        faults::change_hash(&mut self.collected);
        #[cfg(test)]
        let start = dst.len();
        match (&self.encoding, &self.collected) {
            (Encoding::LevelDbBloom { bits_per_key }, Collected::LevelDb(hashes)) => {
                leveldb::create_filter(hashes.as_slice(), *bits_per_key, dst);
            }
            (Encoding::LegacyBloom { bits_per_key }, Collected::Legacy(hashes)) => {
                legacy::create_filter(hashes.as_slice(), *bits_per_key, dst);
            }
            (Encoding::FastLocalBloom { millibits }, Collected::Xxph3(hashes)) => {
                fast_local::create_filter(hashes.as_slice(), *millibits, dst);
            }
            (Encoding::Ribbon { millibits }, Collected::Xxph3(hashes)) => {
                let mut solving = self.finished.more();
                let reserve = |bytes| solving.add(bytes);
                ribbon::create_filter(hashes.as_slice(), *millibits, reserve, dst);
            }
            (Encoding::Custom(policy), Collected::Keys(keys)) => {
                create_custom(&**policy, &keys.sorted(), dst)?;
            }
            // `new` pairs them, and nothing changes either.
            _ => {
                let what = "a filter builder that holds the keys of another encoding".to_string();
                return Err(Error::InvalidOptions { what });
            }
        }
        #[cfg(test)]
        faults::clear_bits(&self.collected, &mut dst[start..]);
        Ok(())
    }

    /// Checks `filter` against what it was made of. Not inlined, so that a profile shows its cost.
    #[inline(never)]
    fn check(&self, filter: &[u8]) -> Result<()> {
        if !self.verify || filter.is_empty() {
            return Ok(());
        }
        let reader = FilterReader::of(&self.encoding);
        let (sound, held) = match &self.collected {
            Collected::LevelDb(hashes) => {
                let members = hashes.as_slice().iter().map(|&hash| KeyHash::of_leveldb(hash));
                (hashes.are_sound(), reader.holds_all(filter, members))
            }
            Collected::Legacy(hashes) => {
                let members = hashes.as_slice().iter().map(|&hash| KeyHash::of_legacy(hash));
                (hashes.are_sound(), reader.holds_all(filter, members))
            }
            Collected::Xxph3(hashes) => {
                let members = hashes.as_slice().iter().map(|&hash| KeyHash::of_xxph3(hash));
                (hashes.are_sound(), reader.holds_all(filter, members))
            }
            // The policy was asked for each key when it had made the filter.
            Collected::Keys(_) => (true, true),
        };
        let what = match (sound, held) {
            (true, true) => return Ok(()),
            (false, _) => "hashes of keys changed before the end of their filter's construction",
            (true, false) => "a filter denies a key that it was just built from",
        };
        Err(Error::MemoryCorruption { what: what.to_string() })
    }
}

impl Collected {
    /// Memory that what was collected takes, without room for more.
    #[inline]
    fn used_bytes(&self) -> usize {
        match self {
            Collected::LevelDb(hashes) | Collected::Legacy(hashes) => hashes.used_bytes(),
            Collected::Xxph3(hashes) => hashes.used_bytes(),
            Collected::Keys(keys) => keys.used_bytes(),
        }
    }
}

/// After how many keys a partition is full, where `entries` says how many a filter of some bytes
/// holds. A partition smaller than one line would hold no key at all; then one line is taken.
fn keys_that_fit(partition_bytes: usize, entries: impl Fn(u64) -> u64) -> usize {
    let entries = |bytes: usize| entries(bytes as u64) as usize;
    if entries(partition_bytes) > 0 {
        return entries(partition_bytes);
    }
    let mut larger = partition_bytes.saturating_add(4).max(16);
    while larger <= 100_000 {
        if entries(larger) > 0 {
            return entries(larger);
        }
        larger += larger / 4;
    }
    partition_bytes.max(1)
}

/// Lets a user's policy write its filter to a buffer of its own, so that a policy that breaks the
/// rule of appending spoils nothing else, and asks it for every member.
fn create_custom(policy: &dyn FilterPolicy, keys: &[&[u8]], dst: &mut Vec<u8>) -> Result<()> {
    let built = guarded(|| {
        let mut filter = Vec::new();
        policy.create_filter(keys, &mut filter);
        let denied = keys.iter().find(|key| !policy.key_may_match(key, &filter));
        match denied {
            Some(key) => Err(format!("denies the key {key:?} that its filter was built from")),
            None => Ok(filter),
        }
    });
    let filter = built.unwrap_or_else(|panic| Err(format!("panicked: {panic}")));
    let refused = |what| Error::InvalidOptions { what: format!("filter policy {policy:?} {what}") };
    dst.extend_from_slice(&filter.map_err(refused)?);
    Ok(())
}

/// Failing memory, for tests: a filter that has one of these keys goes wrong.
#[cfg(test)]
pub mod faults {
    use super::*;

    /// The first hash changes before the filter is made of it.
    pub const CHANGES_HASH: &[u8] = b"fault: a hash changes";
    /// The finished filter loses its bits.
    pub const CLEARS_BITS: &[u8] = b"fault: bits are cleared";

    fn has(collected: &Collected, key: &[u8]) -> bool {
        match collected {
            Collected::LevelDb(hashes) => hashes.as_slice().contains(&leveldb_hash(key)),
            Collected::Legacy(hashes) => hashes.as_slice().contains(&legacy_hash(key)),
            Collected::Xxph3(hashes) => hashes.as_slice().contains(&xxph3_64(key)),
            Collected::Keys(_) => false,
        }
    }

    pub(super) fn change_hash(collected: &mut Collected) {
        if !has(collected, CHANGES_HASH) {
            return;
        }
        match collected {
            Collected::LevelDb(hashes) | Collected::Legacy(hashes) => {
                hashes.damage(!hashes.as_slice()[0]);
            }
            Collected::Xxph3(hashes) => hashes.damage(!hashes.as_slice()[0]),
            Collected::Keys(_) => {}
        }
    }

    pub(super) fn clear_bits(collected: &Collected, filter: &mut [u8]) {
        if has(collected, CLEARS_BITS) {
            // All but the longest trailer.
            let body = filter.len() - 5;
            filter[..body].fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::coding::{Decoder, put_length_prefixed};
    use crate::filter::construction::testing::Budget;
    use crate::filter::hash::KeyHash;
    use crate::filter::registry::{FilterReader, PreparedFilter};
    use crate::filter::vectors;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// Keeps the keys themselves; `deny` and `panics` make it break its contract.
    #[derive(Debug, Default)]
    struct Exact {
        deny: bool,
        panic_on_build: bool,
        panic_on_read: bool,
        clear: bool,
    }

    impl FilterPolicy for Exact {
        fn name(&self) -> &str {
            "test.Exact"
        }

        fn create_filter(&self, keys: &[&[u8]], dst: &mut Vec<u8>) {
            assert!(!self.panic_on_build, "no filter today");
            assert!(keys.is_sorted() && !keys.is_empty());
            if self.clear {
                dst.clear();
            }
            for key in keys {
                put_length_prefixed(dst, key);
            }
        }

        fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
            assert!(!self.panic_on_read, "no answer today");
            let mut decoder = Decoder::new(filter);
            let mut keys = std::iter::from_fn(|| decoder.length_prefixed());
            !self.deny && keys.any(|member| member == key)
        }
    }

    fn encodings() -> Vec<Encoding> {
        vec![
            Encoding::LevelDbBloom { bits_per_key: 10 },
            Encoding::FastLocalBloom { millibits: 10_000 },
            Encoding::Ribbon { millibits: 10_000 },
            Encoding::LegacyBloom { bits_per_key: 10 },
            Encoding::Custom(Arc::new(Exact::default())),
        ]
    }

    fn custom() -> Vec<Arc<dyn FilterPolicy>> {
        vec![Arc::new(Exact::default())]
    }

    fn build<'k>(encoding: &Encoding, keys: impl IntoIterator<Item = &'k [u8]>) -> Vec<u8> {
        let mut builder = encoding.builder();
        keys.into_iter().for_each(|key| builder.add_key(key));
        let mut filter = Vec::new();
        builder.finish(&mut filter).expect("built");
        assert_eq!(builder.entries(), 0);
        filter
    }

    proptest! {
        #[test]
        fn built_filters_have_no_false_negatives(
            mut keys in vec(vec(any::<u8>(), 0..40), 1..60),
            millibits in 1_000u32..=100_000,
            bits_per_key in 1u32..=100,
        ) {
            keys.sort();
            let mut all = encodings();
            all.push(Encoding::LevelDbBloom { bits_per_key });
            all.push(Encoding::FastLocalBloom { millibits });
            all.push(Encoding::Ribbon { millibits });
            all.push(Encoding::LegacyBloom { bits_per_key });
            for encoding in all {
                let filter = build(&encoding, keys.iter().map(Vec::as_slice));
                for name in [encoding.full_name(), encoding.block_based_name()] {
                    let reader = FilterReader::for_name(&name, &custom()).expect("a known name");
                    let prepared = PreparedFilter::new(reader.clone(), filter.clone().into());
                    for key in &keys {
                        let hash = KeyHash::new(key);
                        prop_assert!(reader.may_contain(&filter, &hash));
                        prepared.prefetch(&hash);
                        prop_assert!(prepared.may_contain(&hash));
                    }
                }
            }
        }
    }

    #[test]
    fn policy_names_find_their_readers() {
        for encoding in encodings() {
            assert!(encoding.validate().is_ok());
            assert!(FilterReader::for_name(&encoding.full_name(), &custom()).is_some());
        }
        assert!(FilterReader::for_name("test.Exact", &[]).is_none());
        assert!(FilterReader::for_name("", &custom()).is_none());
        assert!(FilterReader::for_name("leveldb.BuiltinBloomFilter", &custom()).is_none());
        assert_eq!(encodings()[1].block_based_name(), "siftdb.FastLocalBloom");
        assert_eq!(encodings()[2].block_based_name(), "siftdb.Ribbon");
        assert_eq!(encodings()[2].full_name(), encodings()[1].full_name());
        assert_eq!(encodings()[3].block_based_name(), "siftdb.LegacyBloom");
        assert_eq!(encodings()[3].full_name(), encodings()[1].full_name());
        assert_eq!(encodings()[0].block_based_name(), "leveldb.BuiltinBloomFilter2");
    }

    #[test]
    fn broken_policies_never_deny_a_key() {
        let mut dst = b"before".to_vec();
        for (policy, says) in [
            (Exact { deny: true, ..Exact::default() }, "denies the key"),
            (Exact { panic_on_build: true, ..Exact::default() }, "no filter today"),
            (Exact { panic_on_read: true, ..Exact::default() }, "no answer today"),
        ] {
            let mut builder = Encoding::Custom(Arc::new(policy)).builder();
            builder.add_key(b"key");
            let error = builder.finish(&mut dst).expect_err("refused");
            assert!(matches!(error, Error::InvalidOptions { .. }), "{error}");
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!((dst.as_slice(), builder.entries()), (&b"before"[..], 0));
        }
        let mut builder =
            Encoding::Custom(Arc::new(Exact { clear: true, ..Exact::default() })).builder();
        builder.add_key(b"key");
        builder.finish(&mut dst).expect("built");
        assert_eq!(dst, b"before\x03key");
        let panics: Arc<dyn FilterPolicy> =
            Arc::new(Exact { panic_on_read: true, ..Exact::default() });
        let reader = FilterReader::for_name("test.Exact", &[panics]).expect("known");
        assert!(reader.may_contain(b"", &KeyHash::new(b"key")));
    }

    /// Those that need no memory but for hashes and filter.
    fn bloom_filters() -> impl Iterator<Item = Encoding> {
        built_in().filter(|encoding| !matches!(encoding, Encoding::Ribbon { .. }))
    }

    const FAULTS: [(&[u8], &str); 2] =
        [(faults::CHANGES_HASH, "hashes of keys changed"), (faults::CLEARS_BITS, "denies a key")];

    fn built_in() -> impl Iterator<Item = Encoding> {
        encodings().into_iter().filter(|encoding| encoding.bits_per_key().is_some())
    }

    /// Keys from `first` on, and the one that a fault goes with.
    fn with_fault(builder: &mut FilterBuilder, first: u32, fault: &[u8]) {
        (first..first + 500).for_each(|i| builder.add_key(&i.to_le_bytes()));
        builder.add_key(fault);
    }

    #[test]
    fn damaged_filter_memory_is_noticed() {
        let budget = Budget::new(u64::MAX);
        for encoding in built_in() {
            for (fault, says) in FAULTS {
                let mut builder = encoding.builder().under(&budget.construction());
                let mut dst = b"before".to_vec();
                with_fault(&mut builder, 0, fault);
                let error = builder.finish(&mut dst).expect_err("noticed");
                assert!(matches!(error, Error::MemoryCorruption { .. }), "{encoding:?} {error}");
                assert!(error.to_string().contains(says), "{encoding:?} {error}");
                let left = (dst.as_slice(), builder.entries(), budget.taken());
                assert_eq!(left, (&b"before"[..], 0, 0), "{encoding:?}");
                // Nothing of it is in the next filter, neither hash nor sum of hashes.
                builder.add_key(b"key");
                let mut next = Vec::new();
                builder.finish(&mut next).expect("built");
                assert_eq!(next, build(&encoding, [&b"key"[..]]), "{encoding:?}");
            }
        }
    }

    #[test]
    fn unchecked_filter_damage_is_unnoticed() {
        for encoding in built_in() {
            for (fault, _) in FAULTS {
                // Which key loses its bits may be covered by the bits of others.
                let denied = [0, 1_000, 2_000, 3_000].into_iter().any(|first| {
                    let mut builder = encoding.builder();
                    with_fault(&mut builder, first, fault);
                    let mut filter = Vec::new();
                    builder.finish(&mut filter).expect("built");
                    !FilterReader::of(&encoding)
                        .may_contain(&filter, &KeyHash::new(&first.to_le_bytes()))
                });
                assert!(denied, "{encoding:?}: the fault does nothing");
            }
        }
    }

    #[test]
    fn builders_charge_their_memory_while_needed() {
        const BUCKET: u64 = 256 << 10;
        for encoding in bloom_filters() {
            let budget = Budget::new(u64::MAX);
            let mut builder = encoding.builder().under(&budget.construction());
            let key_bytes = match builder.collected {
                Collected::LevelDb(_) | Collected::Legacy(_) => 4,
                Collected::Xxph3(_) | Collected::Keys(_) => 8,
            };
            for i in 0..100_000u32 {
                builder.add_key(&i.to_le_bytes());
                let bytes = (u64::from(i) + 1) * key_bytes;
                assert_eq!(budget.taken(), (bytes + BUCKET / 2) / BUCKET * BUCKET, "{encoding:?}");
            }
            let buckets = budget.take_peak();
            let mut filters = Vec::new();
            builder.finish(&mut filters).expect("built");
            // Both at once for a moment, then the filter, then also the next.
            assert_eq!(budget.take_peak(), buckets + filters.len() as u64, "{encoding:?}");
            assert_eq!(budget.taken(), filters.len() as u64, "{encoding:?}");
            builder.add_key(b"next");
            builder.finish(&mut filters).expect("built");
            assert_eq!(budget.taken(), filters.len() as u64, "{encoding:?}");
            drop(builder);
            assert_eq!(budget.taken(), 0, "{encoding:?}");
        }
    }

    #[test]
    fn ribbon_builders_need_a_granted_reservation() {
        let ribbon = Encoding::Ribbon { millibits: 10_000 };
        let build = |limit| {
            let budget = Budget::new(limit);
            let mut builder = ribbon.builder().under(&budget.construction());
            (0..20_000u32).for_each(|i| builder.add_key(&i.to_le_bytes()));
            let mut filter = Vec::new();
            builder.finish(&mut filter).expect("built");
            (filter[filter.len() - 5], filter.len() as u64, budget)
        };
        let (marker, bytes, budget) = build(u64::MAX);
        assert_eq!(marker, ribbon::MARKER);
        assert_eq!(budget.taken(), 0, "the builder is gone");
        // The hashes and about 20 bytes a key to solve the equations.
        let most = budget.take_peak();
        assert!((400_000 + (256 << 10)..600_000 + (256 << 10)).contains(&most), "{most}");
        // With less, a Bloom filter that lets as many keys through.
        let (marker, bloom_bytes, budget) = build(most - 1);
        assert_eq!(marker, fast_local::MARKER);
        assert!(bloom_bytes > bytes * 5 / 4 && budget.taken() == 0);
    }

    #[test]
    fn keys_of_custom_policies_are_charged() {
        let budget = Budget::new(u64::MAX);
        let custom = Encoding::Custom(Arc::new(Exact::default()));
        let mut builder = custom.builder().under(&budget.construction());
        for i in 0..50_000u32 {
            // 4 bytes, and 8 for where they end.
            builder.add_key(&i.to_le_bytes());
            let bytes = (u64::from(i) + 1) * 12;
            assert_eq!(budget.taken(), (bytes + (128 << 10)) >> 18 << 18);
        }
        drop(builder);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn a_refused_reservation_leaves_bloom_bytes_unchanged() {
        for encoding in bloom_filters() {
            let budget = Budget::new(0);
            let mut refused = encoding.builder().under(&budget.construction());
            let mut granted = encoding.builder();
            for i in 0..70_000u32 {
                refused.add_key(&i.to_le_bytes());
                granted.add_key(&i.to_le_bytes());
            }
            let mut filters = [Vec::new(), Vec::new()];
            refused.finish(&mut filters[0]).expect("built");
            granted.finish(&mut filters[1]).expect("built");
            assert_eq!(filters[0], filters[1], "{encoding:?}");
            assert_eq!(budget.take_peak(), 0);
        }
    }

    #[test]
    fn repeated_keys_count_once_except_in_leveldb() {
        for encoding in encodings() {
            let mut once = encoding.builder();
            let mut all = encoding.block_based_builder();
            for key in [b"a", b"a", b"b", b"b", b"b"] {
                once.add_key(key);
                all.add_key(key);
            }
            let rocksdb = encoding.full_name().starts_with("rocksdb.");
            assert_eq!((once.entries(), all.entries()), (2, if rocksdb { 2 } else { 5 }));
            assert!(once.memory_bytes() > 0);
            // The key before a finished filter is no repeat of the next one's first.
            once.finish(&mut Vec::new()).expect("built");
            once.add_key(b"b");
            assert_eq!(once.entries(), 1);
        }
        // Also the empty key counts once, and counts.
        for encoding in encodings() {
            let mut builder = encoding.builder();
            builder.add_key(b"");
            builder.add_key(b"");
            assert_eq!(builder.entries(), 1);
        }
    }

    #[test]
    fn alternate_keys_give_rocksdb_filters() {
        let Some(file) = vectors::load("rocksdb_fast_local_bloom.json") else { return };
        let sequences = vectors::array(&file["add_key_and_alt"], "sequences");
        assert_eq!(sequences.len(), 8);
        for sequence in sequences {
            let mut builder = Encoding::FastLocalBloom { millibits: 10_000 }.builder();
            for call in vectors::array(sequence, "calls") {
                let key = call["key"].as_str().expect("key").as_bytes();
                match call["alt"].as_str() {
                    Some(alternate) => builder.add_key_and_alternate(key, alternate.as_bytes()),
                    None => builder.add_key(key),
                }
                assert_eq!(builder.entries() as u64, vectors::number(call, "entries"), "{call}");
            }
            let mut filter = Vec::new();
            builder.finish(&mut filter).expect("built");
            assert_eq!(filter, vectors::bytes(sequence, "filter"), "{sequence}");
        }
    }

    #[test]
    fn alternates_are_members_of_their_filter() {
        for encoding in encodings() {
            let mut builder = encoding.builder();
            // The prefix of the first filter is added to the second one, too.
            for keys in [["abc1", "abc2"], ["abc3", "abd1"]] {
                for key in keys.map(str::as_bytes) {
                    builder.add_key_and_alternate(key, &key[..3]);
                }
                let mut filter = Vec::new();
                builder.finish(&mut filter).expect("built");
                let reader = FilterReader::for_name(&encoding.full_name(), &custom());
                let reader = reader.expect("a known name");
                for member in keys.iter().flat_map(|key| [&key[..], &key[..3]]) {
                    assert!(reader.may_contain(&filter, &KeyHash::new(member.as_bytes())));
                }
            }
        }
    }

    #[test]
    fn partitions_hold_at_least_one_key() {
        for encoding in encodings() {
            let builder = encoding.builder();
            for bytes in [0, 1, 5, 64, 69, 200, 4_096, usize::MAX] {
                assert!(builder.keys_per_partition(bytes) >= 1, "{encoding:?} {bytes}");
            }
        }
        let fast = Encoding::FastLocalBloom { millibits: 10_000 }.builder();
        assert_eq!(fast.keys_per_partition(1), 51);
        assert_eq!(fast.keys_per_partition(200), 153);
        assert_eq!(fast.keys_per_partition(3_687), 2_918);
        let legacy = Encoding::LegacyBloom { bits_per_key: 10 }.builder();
        assert_eq!(legacy.keys_per_partition(1), 51);
        assert_eq!(legacy.keys_per_partition(200), 153);
        assert_eq!(legacy.keys_per_partition(3_687), 2_918);
        let ribbon = Encoding::Ribbon { millibits: 10_000 }.builder();
        assert_eq!(ribbon.keys_per_partition(1), 51);
        assert_eq!(ribbon.keys_per_partition(231), 248);
        assert_eq!(ribbon.keys_per_partition(3_687), 4_130);
        let narrow = Encoding::LevelDbBloom { bits_per_key: 10 }.builder();
        assert_eq!(narrow.keys_per_partition(3_687), 2_948);
    }

    #[test]
    fn a_filter_without_keys_is_empty() {
        for encoding in encodings() {
            assert!(build(&encoding, []).is_empty());
        }
    }
}
