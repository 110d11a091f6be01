//! Builds filters: collects the keys of one filter, then writes its bytes.
//!
//! A builder makes one filter after another: `((add_key | add_key_and_alternate)* finish)*`, with
//! sorted keys. The layouts of siftdb call it. A built-in encoding needs one hash of each
//! key; a user's policy needs the keys themselves.
//!
//! Repeats are dropped by RocksDB's rule (`XXPH3FilterBitsBuilder::AddKeyAndAlt` in its
//! `filter_policy.cc`), because the number of entries decides a filter's size and so its bytes:
//!
//! - A key is dropped if it equals the last entry. A key with an alternate (its prefix) is also
//!   dropped if it equals the previous alternate.
//! - The alternate goes in before its key. It is dropped if it equals the previous alternate, the
//!   key, or the last entry.
//!
//! "Last entry" and "previous alternate" are those from before the call. Built-in encodings
//! compare hashes; policies compare bytes. In the block-based layout LevelDB counts repeats, so
//! its encoding and policies keep them there.
//!
//! With [`Construction::verify`] a finished filter is checked in two ways: an XOR over all hashes
//! shows a hash that changed in memory, and the filter's reader is asked for every member. A
//! user's policy is always asked for every member. An error leaves no bytes in the output.

use crate::bloom::fast_local;
use crate::bloom::legacy;
use crate::bloom::leveldb;
use crate::construction::{Charge, Construction};
use crate::encoding::{Encoding, FilterReader};
use crate::error::BuildError;
use crate::policy::{FilterPolicy, guarded};
use crate::ribbon::ribbon;
use crate::ribbon::space;
#[cfg(any(test, feature = "testing"))]
use crate::testing::faults;

impl Encoding {
    /// A builder for one filter after the other. It drops a key equal to the one before it.
    #[must_use]
    pub fn builder(&self) -> FilterBuilder {
        FilterBuilder::new(self.clone(), false)
    }

    /// The builder for the block-based layout. LevelDB counts repeats of a key there, and the
    /// bytes are LevelDB's; RocksDB's encodings drop repeats in every layout.
    #[must_use]
    pub fn block_based_builder(&self) -> FilterBuilder {
        let keep_repeats = matches!(self, Encoding::LevelDbBloom { .. } | Encoding::Custom(_));
        FilterBuilder::new(self.clone(), keep_repeats)
    }
}

/// Collects the keys of one filter, then writes its bytes; after that it is empty again.
///
/// ```
/// # use siftdb_filter::{Encoding, FilterReader, KeyHash};
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
    construction: Construction,
    /// The members of the filter, for a built-in encoding.
    hashes: Members<u64>,
    /// The members of the filter, for a user's policy.
    keys: Members<Box<[u8]>>,
    /// Memory of the members.
    members_charge: Charge,
    /// Memory of the finished filters. The owner keeps them until it drops the builder.
    filters_charge: Charge,
}

impl FilterBuilder {
    fn new(encoding: Encoding, keep_repeats: bool) -> Self {
        FilterBuilder {
            encoding,
            keep_repeats,
            construction: Construction::default(),
            hashes: Members::default(),
            keys: Members::default(),
            members_charge: Charge::default(),
            filters_charge: Charge::default(),
        }
    }

    /// The same builder with the settings of a table. To be called before the first key.
    #[must_use]
    pub fn under(mut self, construction: &Construction) -> Self {
        self.construction = construction.clone();
        self.members_charge = Charge::new(construction);
        self.filters_charge = Charge::new(construction);
        self
    }

    /// Adds a user key. Keys come sorted, so that repeats are neighbours.
    pub fn add_key(&mut self, user_key: &[u8]) {
        match &self.encoding {
            Encoding::Custom(_) => self.keys.add(user_key.into(), self.keep_repeats),
            encoding => self.hashes.add(encoding.hash_of(user_key), self.keep_repeats),
        }
        self.members_charge.cover(self.hashes.bytes + self.keys.bytes);
    }

    /// Adds a user key and a second name for it, its prefix: both are members. Keys come sorted; a
    /// name equal to that of the key before counts once. Not for the block-based layout.
    pub fn add_key_and_alternate(&mut self, user_key: &[u8], alternate: &[u8]) {
        let hash = |key| self.encoding.hash_of(key);
        match &self.encoding {
            Encoding::Custom(_) => self.keys.add_with_alternate(user_key.into(), alternate.into()),
            _ => self.hashes.add_with_alternate(hash(user_key), hash(alternate)),
        }
        self.members_charge.cover(self.hashes.bytes + self.keys.bytes);
    }

    /// Entries since the last filter, dropped repeats not counted.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.hashes.list.len() + self.keys.list.len()
    }

    /// About the bytes of the keys since the last filter that the budget has no room for.
    #[must_use]
    pub fn refused_bytes(&self) -> u64 {
        self.members_charge.refused(self.hashes.bytes + self.keys.bytes)
    }

    /// The number of keys after which a partition of `partition_bytes` is full; at least 1.
    #[must_use]
    pub fn keys_per_partition(&self, partition_bytes: usize) -> usize {
        let entries = |bytes: usize| match &self.encoding {
            Encoding::LevelDbBloom { bits_per_key } => {
                leveldb::keys_for_bytes(bytes, *bits_per_key).max(1)
            }
            Encoding::FastLocalBloom { millibits } => {
                fast_local::approximate_num_entries(bytes as u64, *millibits) as usize
            }
            Encoding::Ribbon { millibits } => {
                space::approximate_num_entries(bytes as u64, *millibits) as usize
            }
            Encoding::LegacyBloom { bits_per_key } => {
                legacy::approximate_num_entries(bytes as u64, *bits_per_key) as usize
            }
            // A panic is reported when the filter is built; until then any cut will do.
            Encoding::Custom(policy) => {
                guarded(|| policy.keys_per_partition(bytes)).unwrap_or(1).max(1)
            }
        };
        // Below one line no key fits. RocksDB's PartitionedFilterBlockBuilder then grows the size
        // by quarters until one fits: its bytes depend on these very steps.
        let larger =
            std::iter::successors(Some(partition_bytes.saturating_add(4).max(16)), |bytes| {
                Some(bytes.saturating_add(bytes / 4))
            });
        let sizes = std::iter::once(partition_bytes).chain(larger.take_while(|&n| n <= 100_000));
        sizes.map(entries).find(|&keys| keys > 0).unwrap_or(partition_bytes.max(1))
    }

    /// Appends the filter of the entries and forgets them; appends nothing for no entries.
    ///
    /// # Errors
    /// `BrokenPolicy` if a user's policy panicked or denied a member, `MemoryCorruption` if a
    /// check found that hashes or filter had changed. `dst` is then as it was.
    pub fn finish(&mut self, dst: &mut Vec<u8>) -> Result<(), BuildError> {
        let start = dst.len();
        let result = self.append(dst).and_then(|()| self.check(&dst[start..]));
        match &result {
            // Not refusable: the owner keeps the filter whether or not the budget has room.
            Ok(()) => drop(self.filters_charge.add(dst.len() - start)),
            Err(_) => dst.truncate(start),
        }
        self.hashes.clear();
        self.keys.clear();
        self.members_charge.release();
        result
    }

    fn append(&mut self, dst: &mut Vec<u8>) -> Result<(), BuildError> {
        if self.entries() == 0 {
            return Ok(());
        }
        #[cfg(any(test, feature = "testing"))]
        faults::change_hash(self.encoding.hash_of(faults::CHANGES_HASH), &mut self.hashes.list);
        #[cfg(any(test, feature = "testing"))]
        let start = dst.len();
        let hashes = &self.hashes.list;
        match &self.encoding {
            Encoding::Custom(policy) => create_custom(&**policy, &self.keys.sorted(), dst)?,
            Encoding::LevelDbBloom { bits_per_key } => {
                leveldb::create_filter(hashes, *bits_per_key, dst);
            }
            Encoding::LegacyBloom { bits_per_key } => {
                legacy::create_filter(hashes, *bits_per_key, dst);
            }
            Encoding::FastLocalBloom { millibits } => {
                fast_local::create_filter(hashes, *millibits, dst);
            }
            Encoding::Ribbon { millibits } => {
                // Given back when this arm ends: the equations are solved by then.
                let mut solving = Charge::new(&self.construction);
                ribbon::create_filter(hashes, *millibits, |bytes| solving.add(bytes), dst);
            }
        }
        #[cfg(any(test, feature = "testing"))]
        faults::clear_bits(self.encoding.hash_of(faults::CLEARS_BITS), hashes, &mut dst[start..]);
        Ok(())
    }

    /// Checks `filter` against the hashes it was made of. Not inlined, so that a profile shows its
    /// cost.
    #[inline(never)]
    fn check(&self, filter: &[u8]) -> Result<(), BuildError> {
        // A policy's filter has no hashes; the policy was asked for each key when it had made it.
        let hashes = &self.hashes;
        if !self.construction.verify || filter.is_empty() {
            return Ok(());
        }
        let what = if hashes.checksum_now() != hashes.checksum {
            "hashes of keys changed before the end of their filter's construction"
        } else if !FilterReader::of(&self.encoding).contains_all(filter, &hashes.list) {
            "a filter denies a key that it was just built from"
        } else {
            return Ok(());
        };
        Err(BuildError::MemoryCorruption { what: what.to_string() })
    }
}

/// Lets a user's policy write its filter, and asks it for every member. The policy gets a buffer
/// of its own, so that one that does not append spoils no other filter.
fn create_custom(
    policy: &dyn FilterPolicy,
    keys: &[&[u8]],
    dst: &mut Vec<u8>,
) -> Result<(), BuildError> {
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
    let refused =
        |what| BuildError::BrokenPolicy { what: format!("filter policy {policy:?} {what}") };
    dst.extend_from_slice(&filter.map_err(refused)?);
    Ok(())
}

/// The input of a filter for a key: its hash, or the key itself.
trait Member: Clone + Ord {
    /// Memory that it takes.
    fn bytes(&self) -> usize;

    /// Its part of the checksum over all members.
    fn checksum(&self) -> u64;
}

impl Member for u64 {
    #[inline]
    fn bytes(&self) -> usize {
        size_of::<u64>()
    }

    #[inline]
    fn checksum(&self) -> u64 {
        *self
    }
}

impl Member for Box<[u8]> {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.len()
    }

    /// None: a policy is asked for every key instead.
    fn checksum(&self) -> u64 {
        0
    }
}

/// The members of one filter, in the order they were added.
#[derive(Debug, Default)]
struct Members<M> {
    list: Vec<M>,
    /// Memory that they fill. Spare capacity does not count.
    bytes: usize,
    /// XOR of all members as they were added.
    checksum: u64,
    previous_alternate: Option<M>,
}

impl<M: Member> Members<M> {
    #[inline]
    fn add(&mut self, key: M, keep_repeats: bool) {
        if keep_repeats || self.list.last() != Some(&key) {
            self.push(key);
        }
    }

    #[inline]
    fn push(&mut self, member: M) {
        self.bytes += member.bytes();
        self.checksum ^= member.checksum();
        self.list.push(member);
    }

    /// Adds a key and its alternate, by the rule in the header.
    fn add_with_alternate(&mut self, key: M, alternate: M) {
        let (last, previous) = (self.list.last(), self.previous_alternate.as_ref());
        let is_new = |entry: &M| Some(entry) != last && Some(entry) != previous;
        let (admit_alternate, admit_key) = (is_new(&alternate) && alternate != key, is_new(&key));
        self.previous_alternate = Some(alternate.clone());
        // The alternate goes first, so that the last entry is the key where one was added.
        if admit_alternate {
            self.push(alternate);
        }
        if admit_key {
            self.push(key);
        }
    }

    /// XOR of the members as they are now.
    fn checksum_now(&self) -> u64 {
        self.list.iter().fold(0, |sum, member| sum ^ member.checksum())
    }

    /// Forgets everything but the memory. The previous alternate too: if it stayed, the next
    /// filter would lack it (rocksdb#4024).
    fn clear(&mut self) {
        let list = std::mem::take(&mut self.list);
        *self = Members { list, bytes: 0, checksum: 0, previous_alternate: None };
        self.list.clear();
    }
}

impl Members<Box<[u8]>> {
    /// The keys, sorted. Prefixes that do not sort as their keys do can be out of order.
    fn sorted(&self) -> Vec<&[u8]> {
        let mut keys: Vec<&[u8]> = self.list.iter().map(|key| &**key).collect();
        keys.sort_unstable();
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::PreparedFilter;
    use crate::hash::KeyHash;
    use crate::hash::xxph3_64;
    use crate::testing::budget::Budget;
    use crate::testing::faults;
    use crate::testing::vectors;
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
                dst.push(key.len() as u8);
                dst.extend_from_slice(key);
            }
        }

        fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
            assert!(!self.panic_on_read, "no answer today");
            let mut rest = filter;
            let mut keys = std::iter::from_fn(|| {
                let (&len, after) = rest.split_first()?;
                let (key, after) = after.split_at_checked(usize::from(len))?;
                rest = after;
                Some(key)
            });
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
                    let prepared = PreparedFilter::new(reader.clone(), &filter);
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
            assert!(matches!(error, BuildError::BrokenPolicy { .. }), "{error}");
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

    /// The encodings that need memory only for hashes and filter.
    fn bloom_filters() -> impl Iterator<Item = Encoding> {
        built_in().filter(|encoding| !matches!(encoding, Encoding::Ribbon { .. }))
    }

    const FAULTS: [(&[u8], &str); 2] =
        [(faults::CHANGES_HASH, "hashes of keys changed"), (faults::CLEARS_BITS, "denies a key")];

    fn built_in() -> impl Iterator<Item = Encoding> {
        encodings().into_iter().filter(|encoding| encoding.bits_per_key().is_some())
    }

    /// Keys from `first` on, and the key that triggers a fault.
    fn with_fault(builder: &mut FilterBuilder, first: u32, fault: &[u8]) {
        faults::arm();
        (first..first + 500).for_each(|i| builder.add_key(&i.to_le_bytes()));
        builder.add_key(fault);
    }

    #[test]
    fn damaged_filter_memory_is_noticed() {
        let budget = Budget::new(u64::MAX);
        for encoding in built_in() {
            for (fault, says) in FAULTS {
                let mut builder = encoding.builder().under(&Construction::checked(budget.clone()));
                let mut dst = b"before".to_vec();
                with_fault(&mut builder, 0, fault);
                let error = builder.finish(&mut dst).expect_err("noticed");
                assert!(
                    matches!(error, BuildError::MemoryCorruption { .. }),
                    "{encoding:?} {error}"
                );
                assert!(error.to_string().contains(says), "{encoding:?} {error}");
                let left = (dst.as_slice(), builder.entries(), budget.taken());
                assert_eq!(left, (&b"before"[..], 0, 0), "{encoding:?}");
                // The next filter has nothing of it, neither hash nor checksum.
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
                // The bits of other keys may cover those of the key that loses them.
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
            let mut builder = encoding.builder().under(&Construction::checked(budget.clone()));
            for i in 0..100_000u32 {
                builder.add_key(&i.to_le_bytes());
                let bytes = (u64::from(i) + 1) * 8;
                assert_eq!(budget.taken(), (bytes + BUCKET / 2) / BUCKET * BUCKET, "{encoding:?}");
            }
            let buckets = budget.take_peak();
            let mut filters = Vec::new();
            builder.finish(&mut filters).expect("built");
            // Hashes and filter for a moment, then the filter, then the next filter too.
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
            let mut builder = ribbon.builder().under(&Construction::checked(budget.clone()));
            (0..20_000u32).for_each(|i| builder.add_key(&i.to_le_bytes()));
            let mut filter = Vec::new();
            builder.finish(&mut filter).expect("built");
            (filter[filter.len() - 5], filter.len() as u64, budget)
        };
        let (marker, bytes, budget) = build(u64::MAX);
        assert_eq!(marker, ribbon::MARKER);
        assert_eq!(budget.taken(), 0, "the builder is gone");
        // The hashes, and about 20 bytes a key to solve the equations.
        let most = budget.take_peak();
        assert!((400_000 + (256 << 10)..600_000 + (256 << 10)).contains(&most), "{most}");
        // With less memory, a Bloom filter that passes as many absent keys.
        let (marker, bloom_bytes, budget) = build(most - 1);
        assert_eq!(marker, fast_local::MARKER);
        assert!(bloom_bytes > bytes * 5 / 4 && budget.taken() == 0);
    }

    #[test]
    fn keys_of_custom_policies_are_charged() {
        let budget = Budget::new(u64::MAX);
        let custom = Encoding::Custom(Arc::new(Exact::default()));
        let mut builder = custom.builder().under(&Construction::checked(budget.clone()));
        for i in 0..50_000u32 {
            // 4 bytes of a key, and 16 for the slice that owns them.
            builder.add_key(&i.to_le_bytes());
            let bytes = (u64::from(i) + 1) * 20;
            assert_eq!(budget.taken(), (bytes + (128 << 10)) >> 18 << 18);
        }
        drop(builder);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn a_refused_reservation_leaves_bloom_bytes_unchanged() {
        for encoding in bloom_filters() {
            let budget = Budget::new(0);
            let mut refused = encoding.builder().under(&Construction::checked(budget.clone()));
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
            // The last key of a finished filter is no repeat of the first key of the next.
            once.finish(&mut Vec::new()).expect("built");
            once.add_key(b"b");
            assert_eq!(once.entries(), 1);
        }
        // The empty key counts, and only once.
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

    /// Each key with its alternate, and the number of entries after it.
    const SCRIPT: [(&str, Option<&str>, usize); 13] = [
        ("abc", None, 1),
        ("abc1", Some("abc"), 2), // the alternate is the last entry
        ("abc1", Some("abc"), 2),
        ("abc2", Some("abc"), 3),
        ("bc1", Some("bc"), 5),
        ("bc", Some("bc"), 5), // the key is the alternate before
        ("def1", Some("def"), 7),
        ("def1", Some("def"), 7),
        ("def", None, 8), // without an alternate of its own it counts
        ("def2", Some("def"), 9),
        ("", Some(""), 10), // the empty key is its own alternate
        ("g", Some(""), 11),
        ("g", None, 11),
    ];

    #[test]
    fn hashes_and_bytes_drop_equal_repeats() {
        let mut hashes = Members::default();
        let mut bytes = Members::<Box<[u8]>>::default();
        for (key, alternate, entries) in SCRIPT {
            let k = key.as_bytes();
            if let Some(a) = alternate.map(str::as_bytes) {
                hashes.add_with_alternate(xxph3_64(k), xxph3_64(a));
                bytes.add_with_alternate(k.into(), a.into());
            } else {
                hashes.add(xxph3_64(k), false);
                bytes.add(k.into(), false);
            }
            let found = [hashes.list.len(), bytes.list.len()];
            assert_eq!(found, [entries; 2], "{key:?} {alternate:?}");
        }
    }

    fn are_sound(hashes: &Members<u64>) -> bool {
        hashes.checksum_now() == hashes.checksum
    }

    #[test]
    fn a_hash_that_changes_is_noticed() {
        let mut hashes = Members::default();
        for round in 0..2u64 {
            for key in 1..100 {
                hashes.add(key, false);
                hashes.add_with_alternate(key * 1_000, key * 7 + round);
                assert!(are_sound(&hashes));
            }
            let first = hashes.list[0];
            for bit in 0..64 {
                hashes.list[0] = first ^ 1 << bit;
                assert!(!are_sound(&hashes), "bit {bit}");
            }
            hashes.clear();
            assert!(are_sound(&hashes));
        }
    }

    #[test]
    fn alternates_come_before_their_key() {
        let mut keys = Members::<Box<[u8]>>::default();
        keys.add_with_alternate(b"ab1"[..].into(), b"ab"[..].into());
        assert_eq!(keys.list.last().map(|key| &**key), Some(&b"ab1"[..]));
        assert_eq!(keys.sorted(), [&b"ab"[..], b"ab1"]);
        // An alternate that sorts below earlier entries is put in order.
        keys.add_with_alternate(b"ac"[..].into(), b"a"[..].into());
        assert_eq!(keys.sorted(), [&b"a"[..], b"ab", b"ab1", b"ac"]);
    }

    #[test]
    fn a_cut_forgets_earlier_keys() {
        let mut hashes = Members::default();
        let mut keys = Members::<Box<[u8]>>::default();
        for _ in 0..2 {
            for key in [1, 2] {
                hashes.add_with_alternate(key, 0);
            }
            assert_eq!(hashes.list, [0, 1, 2], "the alternate is in this filter, too");
            hashes.clear();
            keys.add_with_alternate(b"ab"[..].into(), b"a"[..].into());
            assert_eq!(keys.sorted(), [&b"a"[..], b"ab"]);
            keys.clear();
        }
    }
}
