//! The filter of an open table: what it holds of a key, and so what it can be asked.
//!
//! `reader` asks it for point lookups, `tree::range_filter` for scans. Which of a key's names to
//! ask for follows from what the table says of itself, never from today's options: the key where
//! the filter holds whole keys, else its prefix, if the rule of the table's id is known and the key
//! has one. What cannot be asked is `NotConsulted`.

use crate::base::key::{LookupKey, filter_key};
use crate::base::sync::Arc;
use crate::cache::cache::Reservation;
use crate::filter::encoding::{FilterVerdict, PreparedFilter};
use crate::filter::hash::KeyHash;
use crate::filter::prefix::{Prefix, PrefixExtractor};
use crate::table::batch_key::BatchKey;
use crate::table::fetch::{TableFile, TableIo};
use crate::table::filter::dispatch::FilterBlockReader;
use crate::table::filter::layout::FilterMembers;
use crate::table::filter::layout::FilterPinning;
use crate::table::index::CachedBlock;
use crate::table::properties::Properties;

/// A table's filter, resident or to be fetched.
pub struct OpenFilter {
    blocks: FilterBlockReader,
    members: FilterMembers,
    _memory: Option<Reservation<CachedBlock>>,
}

/// What the filter of a table holds, as far as it can be asked.
pub fn members_of(properties: &Properties, custom: &[Arc<dyn PrefixExtractor>]) -> FilterMembers {
    let id = Some(&properties.prefix_extractor).filter(|_| properties.prefix_filtering);
    FilterMembers {
        whole_keys: properties.whole_key_filtering,
        prefix: id.and_then(|id| Prefix::for_id(id, custom)),
    }
}

impl OpenFilter {
    /// The filter in `blocks`; it stays in memory if that is wanted and the cache grants it.
    pub fn new(
        mut blocks: FilterBlockReader,
        members: FilterMembers,
        file: &TableFile,
        pinning: FilterPinning,
        io: &mut TableIo,
    ) -> Self {
        let memory = match blocks.residency_bytes() {
            0 => None,
            _ if pinning == FilterPinning::None => None,
            bytes => file.cache().try_reserve(bytes),
        };
        if memory.is_some() {
            blocks.make_resident(file, io);
        }
        OpenFilter { blocks, members, _memory: memory }
    }

    /// Loads partitions to stay, too, if their index does and the cache has room for them.
    pub fn pin_partitions(&mut self, file: &TableFile) {
        self.blocks.pin_partitions(file);
    }

    /// The filter's blocks: name and layout.
    pub fn blocks(&self) -> &FilterBlockReader {
        &self.blocks
    }

    /// True if a whole key is a member; else what is said of a key is said of its prefix.
    pub fn holds_whole_keys(&self) -> bool {
        self.members.whole_keys
    }

    /// True if it can be asked for prefixes.
    pub fn holds_prefixes(&self) -> bool {
        self.members.prefix.is_some()
    }

    /// The filter for the version's probe array, which asks for whole keys only: if it is
    /// resident, of the whole table, and has them.
    pub fn resident_of_whole_keys(&self) -> Option<&PreparedFilter> {
        self.blocks.resident_full().filter(|_| self.members.whole_keys)
    }

    /// May the table hold the key? To be asked before the data index.
    #[inline]
    pub fn table_may_contain(
        &self,
        file: &TableFile,
        key: &LookupKey,
        hash: &KeyHash<'_>,
        io: &mut TableIo,
    ) -> FilterVerdict {
        if self.members.whole_keys {
            return self.blocks.table_may_contain(file, key, hash, io);
        }
        self.prefix_may_match(file, key, io)
    }

    /// May the data block at `block_offset` hold the key?
    #[inline]
    pub fn block_may_contain(
        &self,
        file: &TableFile,
        block_offset: u64,
        hash: &KeyHash<'_>,
        io: &mut TableIo,
    ) -> FilterVerdict {
        if self.members.whole_keys {
            return self.blocks.block_may_contain(file, block_offset, hash, io);
        }
        FilterVerdict::NotConsulted
    }

    /// May the table hold each of these keys?
    pub fn ask_table(&self, file: &TableFile, keys: &mut [&mut BatchKey<'_>], io: &mut TableIo) {
        if self.members.whole_keys {
            return self.blocks.ask_table(file, keys, io);
        }
        for key in keys {
            key.verdict = self.prefix_may_match(file, &key.lookup, io);
        }
    }

    /// May the data block of each key hold it?
    pub fn ask_blocks(&self, file: &TableFile, keys: &mut [&mut BatchKey<'_>], io: &mut TableIo) {
        if self.members.whole_keys {
            self.blocks.ask_blocks(file, keys, io);
        }
    }

    /// May the table hold a key with the prefix of this one, at this one's place?
    pub fn prefix_may_match(
        &self,
        file: &TableFile,
        key: &LookupKey,
        io: &mut TableIo,
    ) -> FilterVerdict {
        let rule = self.members.prefix.as_ref();
        let prefix = rule.and_then(|rule| rule.extract(filter_key(key.internal_key())));
        self.ask_for_prefix(prefix, file, key, io)
    }

    /// May the table hold a key of a range? All its keys begin with `common`, and none sorts below
    /// the user key of `start`, which is to see every version.
    ///
    /// `NotConsulted` unless all keys that begin with `common` have one prefix p. A "no" of the
    /// whole table's filter then says that no key of the table has p, hence none is in the range.
    /// With partitions, the one that a lookup of `start` would ask speaks for all, in either
    /// direction: let k be the first key of the table from `start` on. If k is not in the range,
    /// no key is, and any answer is right. If it is, it has p, and it lies in the very partition
    /// that is asked: the first one whose last key is not below `start`, since k is not above that
    /// last key, and above those of all partitions before. So the filter with k's prefix is asked.
    /// A `start` above every key is asked of the last partition; no key of the table is in range.
    pub fn range_may_match(
        &self,
        file: &TableFile,
        common: &[u8],
        start: &LookupKey,
        io: &mut TableIo,
    ) -> FilterVerdict {
        let rule = self.members.prefix.as_ref();
        let prefix = rule.and_then(|rule| rule.extract_for_all(common));
        self.ask_for_prefix(prefix, file, start, io)
    }

    fn ask_for_prefix(
        &self,
        prefix: Option<&[u8]>,
        file: &TableFile,
        place: &LookupKey,
        io: &mut TableIo,
    ) -> FilterVerdict {
        match prefix {
            Some(prefix) => self.blocks.table_may_contain(file, place, &KeyHash::new(prefix), io),
            None => FilterVerdict::NotConsulted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::SEQUENCE_MAX;
    use crate::filter::encoding::Encoding;
    use crate::table::filter::dispatch::FilterBlockBuilder;
    use crate::table::filter::layout::{FilterLayout, TableFilter};
    use crate::table::filter::testing::{Exact, Sink};
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Its prefixes do not sort as their keys do, and keys of one prefix are no neighbours.
    #[derive(Debug)]
    struct UpToLastB;

    impl PrefixExtractor for UpToLastB {
        fn id(&self) -> &str {
            "test.UpToLastB"
        }

        fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
            let last = key.iter().rposition(|&byte| byte == b'b')?;
            key.get(..=last)
        }
    }

    fn rules() -> [Option<Prefix>; 7] {
        [
            None,
            Some(Prefix::fixed(1)),
            Some(Prefix::fixed(3)),
            Some(Prefix::capped(2)),
            Some(Prefix::delimited(b'b', 1)),
            Some(Prefix::delimited(b'a', 2)),
            Some(Prefix::custom(Arc::new(UpToLastB))),
        ]
    }

    fn encodings() -> Vec<Encoding> {
        let mut encodings = Encoding::built_in(10_000);
        encodings.push(Encoding::Custom(Arc::new(Exact)));
        encodings
    }

    /// The filter of sorted keys, opened, and the file it is in.
    fn opened(filter: &TableFilter, keys: &[Vec<u8>], resident: bool) -> (OpenFilter, TableFile) {
        let mut builder = FilterBlockBuilder::new(filter);
        keys.iter().for_each(|key| builder.add_key(key));
        let mut sink = Sink::default();
        let summary = builder.finish(true, &mut sink).expect("written");
        let metaindex: Vec<_> =
            summary.into_iter().map(|summary| (summary.metaindex_name, summary.handle)).collect();
        let file = sink.file(true);
        let blocks = FilterBlockReader::open(&metaindex, &[Arc::new(Exact)]);
        let io = &mut TableIo::default();
        let members = filter.members.clone();
        if resident {
            return (OpenFilter::new(blocks, members, &file, FilterPinning::default(), io), file);
        }
        (OpenFilter { blocks, members, _memory: None }, file)
    }

    fn shared(a: &[u8], b: &[u8]) -> usize {
        a.iter().zip(b).take_while(|(a, b)| a == b).count()
    }

    /// Keys, their prefixes and every range between two of them, against what is there.
    fn check(filter: &TableFilter, keys: &[Vec<u8>], others: &[Vec<u8>], resident: bool) {
        let (open, file) = opened(filter, keys, resident);
        let mut io = TableIo::default();
        for key in keys {
            let (place, hash) = (LookupKey::new(key, 7), KeyHash::new(key));
            let verdict = open.table_may_contain(&file, &place, &hash, &mut io);
            let prefix = filter.members.prefix.as_ref().and_then(|rule| rule.extract(key));
            let asked = filter.members.whole_keys || prefix.is_some();
            let expected = if asked { FilterVerdict::Maybe } else { FilterVerdict::NotConsulted };
            assert_eq!(verdict, expected, "{filter:?}: key {key:?} of {keys:?}");
            let verdict = open.prefix_may_match(&file, &place, &mut io);
            assert_eq!(verdict == FilterVerdict::Maybe, prefix.is_some(), "{filter:?} {key:?}");
        }
        for start in keys.iter().chain(others) {
            let place = LookupKey::new(start, SEQUENCE_MAX);
            for end in keys.iter().chain(others).filter(|end| *end > start) {
                let common = &start[..shared(start, end)];
                let verdict = open.range_may_match(&file, common, &place, &mut io);
                let first = keys.iter().find(|key| *key >= start && *key < end);
                let right = verdict != FilterVerdict::No || first.is_none();
                assert!(right, "{filter:?}: {start:?}..{end:?} of {keys:?}");
            }
            // All keys that begin with the start.
            let verdict = open.range_may_match(&file, start, &place, &mut io);
            let right = verdict != FilterVerdict::No || !keys.iter().any(|k| k.starts_with(start));
            assert!(right, "{filter:?}: prefix {start:?} of {keys:?}");
        }
        assert_eq!(io.filter_errors, 0);
    }

    fn keys(most: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
        let letter = prop_oneof![Just(b'a'), Just(b'b'), Just(0xff)];
        vec(vec(letter, 0..6), 1..most).prop_map(|mut keys| {
            keys.sort();
            keys
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Repeated keys are versions: a cut may fall between them.
        #[test]
        fn opened_filters_deny_no_member(
            keys in keys(60),
            others in keys(12),
            block_bytes in prop_oneof![Just(1usize), Just(2), Just(5), Just(70), Just(4096)],
            whole_keys: bool,
            resident: bool,
        ) {
            for (encoding, prefix) in
                encodings().iter().flat_map(|encoding| rules().map(|rule| (encoding, rule)))
            {
                if prefix.is_none() && !whole_keys {
                    continue;
                }
                for layout in [FilterLayout::Full, FilterLayout::Partitioned { block_bytes }] {
                    let members = FilterMembers { whole_keys, prefix: prefix.clone() };
                    let filter = TableFilter { encoding: encoding.clone(), layout, members };
                    filter.validate().expect("a choice that works");
                    check(&filter, &keys, &others, resident);
                }
            }
        }
    }

    #[test]
    fn prefixes_deny_ranges_without_keys() {
        let keys: Vec<Vec<u8>> =
            (0..2000).map(|i| format!("{:03}-{i:04}", 2 * (i / 10)).into_bytes()).collect();
        for layout in [FilterLayout::Full, FilterLayout::Partitioned { block_bytes: 128 }] {
            for whole_keys in [true, false] {
                let encoding = Encoding::FastLocalBloom { millibits: 16_000 };
                let members = FilterMembers { whole_keys, prefix: Some(Prefix::fixed(3)) };
                let (open, file) = opened(&TableFilter { encoding, layout, members }, &keys, true);
                let mut denied = 0;
                for number in 0..400 {
                    let prefix = format!("{number:03}").into_bytes();
                    let start = LookupKey::new(&prefix, SEQUENCE_MAX);
                    let io = &mut TableIo::default();
                    let verdict = open.range_may_match(&file, &prefix, &start, io);
                    assert!(number % 2 == 1 || verdict == FilterVerdict::Maybe);
                    denied += u32::from(verdict == FilterVerdict::No);
                    // Two bytes leave the third one open.
                    let verdict = open.range_may_match(&file, &prefix[..2], &start, io);
                    assert_eq!(verdict, FilterVerdict::NotConsulted);
                }
                // The other half are odd, but for partitions that hold a neighbour's prefix.
                assert!((195..=200).contains(&denied), "{layout}: {denied}");
                assert_eq!(
                    open.resident_of_whole_keys().is_some(),
                    whole_keys && layout == FilterLayout::Full
                );
            }
        }
    }
}
