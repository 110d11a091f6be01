//! The filter of one table, whatever its layout: one type that writes it, one that asks it.
//!
//! `table/builder.rs` writes with [`FilterBlockBuilder`]: `(start_block add_key*)* start_block
//! finish`. `table/reader.rs` asks an [`OpenFilter`]: once before the data index
//! ([`OpenFilter::table_may_contain`], answered by the full and partitioned layouts), and once
//! after it ([`OpenFilter::block_may_contain`], answered by the block-based layout).
//!
//! The table records what its filter holds; the current options do not matter. A filter of whole
//! keys is asked for the key, any other for its prefix. Without a filter, with an unknown policy or
//! prefix rule, or after damage, the verdict is `NotConsulted`.

use crate::base::error::{Error, Result};
use crate::base::key::{LookupKey, filter_key};
use crate::base::sync::Arc;
use crate::cache::cache::Reservation;
use crate::table::batch_key::{BatchKey, ask, set_all};
use crate::table::file::{TableFile, TableIo};
use crate::table::filter::block_based::BlockBasedReader;
use crate::table::filter::full::{FullBuilder, FullReader};
use crate::table::filter::layout::{
    BLOCK_BASED_PREFIX, BlockSink, FULL_PREFIX, FilterBlockSummary, FilterLayout, FilterMembers,
    FilterPinning, FilterSource, PARTITIONED_PREFIX, TableFilter, write_one_block,
};
use crate::table::filter::partitioned::{PartitionedBuilder, PartitionedReader};
use crate::table::format::BlockHandle;
use crate::table::index::{CachedBlock, Index};
use siftdb_filter::block_based::BlockBasedBuilder;
use siftdb_filter::construction::Construction;
use siftdb_filter::encoding::{FilterReader, FilterVerdict, PreparedFilter};
use siftdb_filter::hash::KeyHash;
use siftdb_filter::policy::FilterPolicy;

/// Collects the keys of one table and writes its filter.
#[derive(Debug)]
pub(crate) struct FilterBlockBuilder {
    layout: LayoutBuilder,
    /// The first error; `finish` returns it.
    failed: Option<Error>,
}

#[derive(Debug)]
enum LayoutBuilder {
    BlockBased(BlockBasedBuilder),
    Full(FullBuilder),
    Partitioned(PartitionedBuilder),
}

impl FilterBlockBuilder {
    /// A builder for one table.
    pub(crate) fn new(filter: &TableFilter, construction: &Construction) -> Self {
        let members = filter.members.clone();
        let keys = match filter.layout {
            FilterLayout::BlockBased { .. } => filter.encoding.block_based_builder(),
            FilterLayout::Full | FilterLayout::Partitioned { .. } => filter.encoding.builder(),
        };
        let keys = keys.under(construction);
        let layout = match filter.layout {
            FilterLayout::BlockBased { window_bytes } => {
                LayoutBuilder::BlockBased(BlockBasedBuilder::new(keys, window_bytes))
            }
            FilterLayout::Full => LayoutBuilder::Full(FullBuilder::new(keys, members)),
            FilterLayout::Partitioned { block_bytes } => {
                LayoutBuilder::Partitioned(PartitionedBuilder::new(keys, members, block_bytes))
            }
        };
        FilterBlockBuilder { layout, failed: None }
    }

    /// The next keys belong to the data block that will be at `data_offset`, counted from the first
    /// one. To be called once more after the last block.
    pub(crate) fn start_block(&mut self, data_offset: u64) {
        if let (LayoutBuilder::BlockBased(builder), None) = (&mut self.layout, &self.failed) {
            self.failed = builder.start_block(data_offset).err().map(Error::of_filter_build);
        }
    }

    /// Adds a user key; keys come sorted and may repeat.
    #[inline]
    pub(crate) fn add_key(&mut self, user_key: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        let added = match &mut self.layout {
            LayoutBuilder::BlockBased(builder) => {
                builder.add_key(user_key);
                Ok(())
            }
            LayoutBuilder::Full(builder) => builder.add_key(user_key),
            LayoutBuilder::Partitioned(builder) => builder.add_key(user_key),
        };
        self.failed = added.err();
    }

    /// About the bytes of keys that the budget has no room for. Only a full filter has the keys of
    /// a whole table in memory.
    pub(crate) fn refused_bytes(&self) -> u64 {
        match &self.layout {
            LayoutBuilder::Full(builder) => builder.keys.refused_bytes(),
            LayoutBuilder::BlockBased(_) | LayoutBuilder::Partitioned(_) => 0,
        }
    }

    /// Writes the filter. `None` if there were no keys; the table then has no metaindex entry for a
    /// filter. An error is the sink's, or says that a user's policy broke its contract.
    pub(crate) fn finish(
        &mut self,
        index_key_is_user_key: bool,
        sink: &mut dyn BlockSink,
    ) -> Result<Option<FilterBlockSummary>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        match &mut self.layout {
            LayoutBuilder::BlockBased(builder) => {
                let contents = builder.finish().map_err(Error::of_filter_build)?;
                write_one_block(&contents, builder.entries(), sink)
            }
            LayoutBuilder::Full(builder) => builder.finish(sink),
            LayoutBuilder::Partitioned(builder) => builder.finish(index_key_is_user_key, sink),
        }
    }
}

/// The filter of an open table, pinned or fetched at each use.
pub(crate) struct OpenFilter {
    layout: Layout,
    pub members: FilterMembers,
    /// The reservation for the pinned part.
    memory: Option<Reservation<CachedBlock>>,
}

enum Layout {
    /// No filter, or none whose policy is known.
    None,
    BlockBased(BlockBasedReader),
    Full(FullReader),
    Partitioned(PartitionedReader),
}

impl OpenFilter {
    /// The filter that the metaindex names; the first known one where a table has several. No I/O:
    /// blocks come through the cache until [`pin`](Self::pin).
    pub(crate) fn new(
        metaindex: &[(String, BlockHandle)],
        custom: &[Arc<dyn FilterPolicy>],
        members: FilterMembers,
    ) -> Self {
        let known =
            metaindex.iter().find_map(|(entry, handle)| Layout::new(entry, *handle, custom));
        OpenFilter { layout: known.unwrap_or(Layout::None), members, memory: None }
    }

    /// Pins the filter, or the top-level index of partitions, as far as `pinning` wants it and the
    /// cache grants the memory. Damage is counted; what could not be loaded is fetched at each use.
    pub(crate) fn pin(&mut self, file: &TableFile, pinning: FilterPinning, io: &mut TableIo) {
        let bytes = self.bytes_to_pin();
        if bytes > 0 && pinning != FilterPinning::None {
            self.memory = file.cache.try_reserve(bytes);
        }
        if self.memory.is_some() {
            self.load(file, io);
        }
    }

    /// Pins the partitions too, if their index is pinned and the cache has room for them.
    pub(crate) fn pin_partitions(&mut self, file: &TableFile) {
        if let Layout::Partitioned(reader) = &mut self.layout {
            reader.pin_partitions(file);
        }
    }

    /// About the memory that a pinned filter takes.
    fn bytes_to_pin(&self) -> u64 {
        let size = self.layout.source().map_or(0, |source| source.handle.size);
        match self.layout {
            // A decoded index has flat arrays besides the block.
            Layout::Partitioned(_) => size.saturating_mul(2),
            _ => size,
        }
    }

    /// Bytes of the index of its partitions, as the file has it; 0 without partitions.
    pub(crate) fn top_level_bytes(&self) -> u64 {
        match &self.layout {
            Layout::Partitioned(reader) => reader.partitions.source.handle.size,
            Layout::None | Layout::BlockBased(_) | Layout::Full(_) => 0,
        }
    }

    fn load(&mut self, file: &TableFile, io: &mut TableIo) {
        match &mut self.layout {
            Layout::None => {}
            Layout::BlockBased(reader) => reader.pin(file, io),
            Layout::Full(reader) => reader.pin(file, io),
            Layout::Partitioned(reader) => reader.partitions.pin(file, io),
        }
    }

    /// Reads every block of the filter past the cache. A filter that nobody asks is sound.
    ///
    /// # Errors
    /// The first damage, with the remedy that goes with filters; `Io`.
    pub(crate) fn check(&self, file: &TableFile) -> Result<()> {
        let checked = match &self.layout {
            Layout::None => Ok(()),
            Layout::BlockBased(reader) => reader.check(file),
            Layout::Full(reader) => reader.check(file),
            Layout::Partitioned(reader) => reader.partitions.check(file),
        };
        checked.map_err(Error::of_filter)
    }

    /// True if the filter, or its top-level index, was found damaged when it was last read.
    pub(crate) fn is_known_damaged(&self) -> bool {
        self.layout.source().is_some_and(FilterSource::is_known_damaged)
    }

    /// False without a filter, or with one whose policy is not known.
    pub(crate) fn is_there(&self) -> bool {
        !matches!(self.layout, Layout::None)
    }

    /// True if it can be asked for prefixes.
    pub(crate) fn holds_prefixes(&self) -> bool {
        self.members.prefix.is_some()
    }

    /// The filter for the version's probe array: if it is pinned, of the whole table, and of whole
    /// keys.
    pub(crate) fn pinned_filter(&self) -> Option<&PreparedFilter> {
        match &self.layout {
            Layout::Full(reader) if self.members.whole_keys => reader.pinned.as_ref(),
            _ => None,
        }
    }

    /// The layout, for people; `none` where no filter is asked.
    pub(crate) fn layout_name(&self) -> &'static str {
        match &self.layout {
            Layout::None => "none",
            Layout::BlockBased(_) => "block-based",
            Layout::Full(_) => "full",
            Layout::Partitioned(_) => "partitioned",
        }
    }

    /// May the table hold the key? To be asked before the data index.
    #[inline]
    pub(crate) fn table_may_contain(
        &self,
        file: &TableFile,
        key: &LookupKey,
        hash: &KeyHash<'_>,
        io: &mut TableIo,
    ) -> FilterVerdict {
        if self.members.whole_keys {
            return self.layout.table_may_contain(file, key, hash, io);
        }
        self.prefix_may_match(file, key, io)
    }

    /// May the data block at `block_offset` hold the key? To be asked with the offset that the
    /// data index names for the key.
    #[inline]
    pub(crate) fn block_may_contain(
        &self,
        file: &TableFile,
        block_offset: u64,
        hash: &KeyHash<'_>,
        io: &mut TableIo,
    ) -> FilterVerdict {
        match &self.layout {
            Layout::BlockBased(reader) => reader.block_may_contain(file, block_offset, hash, io),
            Layout::None | Layout::Full(_) | Layout::Partitioned(_) => FilterVerdict::NotConsulted,
        }
    }

    /// Asks [`table_may_contain`](Self::table_may_contain) for the keys of a batch, ascending, and
    /// sets the verdict of each. What several keys share is fetched once. Step 0 of
    /// [`look_ahead`](Self::look_ahead) comes before.
    pub(crate) fn ask_table(
        &self,
        file: &TableFile,
        keys: &mut [&mut BatchKey<'_>],
        io: &mut TableIo,
    ) {
        if !self.members.whole_keys {
            for key in keys {
                key.verdict = self.prefix_may_match(file, &key.lookup, io);
            }
            return;
        }
        set_all(keys, FilterVerdict::NotConsulted);
        match &self.layout {
            Layout::None | Layout::BlockBased(_) => {}
            Layout::Full(reader) => {
                reader.with_filter(file, io, |filter| {
                    ask(keys, |hash| filter.prefetch(hash), |hash| filter.may_contain(hash));
                });
            }
            Layout::Partitioned(reader) => reader.ask_all(file, keys, io),
        }
    }

    /// Prefetches what [`ask_table`](Self::ask_table) will touch, in steps from 0 on: each needs
    /// what the one before has brought. False if there is no such step. The filters of other
    /// layouts are prefetched while they are asked.
    pub(crate) fn look_ahead(&self, keys: &mut [&mut BatchKey<'_>], step: usize) -> bool {
        match &self.layout {
            Layout::Partitioned(reader) if self.members.whole_keys => reader.look_ahead(keys, step),
            _ => false,
        }
    }

    /// Asks [`block_may_contain`](Self::block_may_contain) for the keys of a batch that have no
    /// verdict yet, each with the data block that `index` named for it.
    pub(crate) fn ask_blocks(
        &self,
        file: &TableFile,
        index: &Index,
        keys: &mut [&mut BatchKey<'_>],
        io: &mut TableIo,
    ) {
        if let Layout::BlockBased(reader) = &self.layout {
            reader.ask_blocks(file, index, keys, io);
        }
    }

    /// May the table hold a key from this one on, in either direction, with the same prefix?
    pub(crate) fn prefix_may_match(
        &self,
        file: &TableFile,
        key: &LookupKey,
        io: &mut TableIo,
    ) -> FilterVerdict {
        let rule = self.members.prefix.as_ref();
        let prefix = rule.and_then(|rule| rule.extract(filter_key(key.internal_key())));
        self.ask_for_prefix(prefix, file, key, io)
    }

    /// May the table hold a key of a range? All keys of the range begin with `common`, and none
    /// sorts below the user key of `start`, which sees every version.
    ///
    /// `NotConsulted` unless all keys that begin with `common` have one prefix p.
    pub(crate) fn range_may_match(
        &self,
        file: &TableFile,
        common: &[u8],
        start: &LookupKey,
        io: &mut TableIo,
    ) -> FilterVerdict {
        // In the full layout a "no" says that no key of the table has p, so none is in the range.
        //
        // With partitions, the one that a lookup of `start` would ask speaks for all, in either
        // direction. Let k be the first key of the table that is not below `start`. If k is not in
        // the range, no key is, and any answer is right. If k is in the range, it has the prefix p.
        // The partition that is asked is the first whose last key is not below `start`. It holds
        // k: k is not above that last key, and it is above the keys of all partitions before.
        //
        // If `start` is above every key, the last partition is asked; no key is in the range.
        let rule = self.members.prefix.as_ref();
        let prefix = rule.and_then(|rule| rule.extract_for_all(common));
        self.ask_for_prefix(prefix, file, start, io)
    }

    fn ask_for_prefix(
        &self,
        prefix: Option<&[u8]>,
        file: &TableFile,
        from: &LookupKey,
        io: &mut TableIo,
    ) -> FilterVerdict {
        match prefix {
            Some(prefix) => self.layout.table_may_contain(file, from, &KeyHash::new(prefix), io),
            None => FilterVerdict::NotConsulted,
        }
    }
}

impl Layout {
    /// The reader for a metaindex entry, if it is a filter's and its policy is known.
    fn new(entry: &str, handle: BlockHandle, custom: &[Arc<dyn FilterPolicy>]) -> Option<Self> {
        let reader = |policy| FilterReader::for_name(policy, custom);
        if let Some(policy) = entry.strip_prefix(FULL_PREFIX) {
            return Some(Layout::Full(FullReader::new(reader(policy)?, handle)));
        }
        if let Some(policy) = entry.strip_prefix(PARTITIONED_PREFIX) {
            return Some(Layout::Partitioned(PartitionedReader::new(reader(policy)?, handle)));
        }
        let policy = entry.strip_prefix(BLOCK_BASED_PREFIX)?;
        Some(Layout::BlockBased(BlockBasedReader::new(reader(policy)?, handle)))
    }

    fn source(&self) -> Option<&FilterSource> {
        match self {
            Layout::None => None,
            Layout::BlockBased(reader) => Some(&reader.source),
            Layout::Full(reader) => Some(&reader.source),
            Layout::Partitioned(reader) => Some(&reader.partitions.source),
        }
    }

    #[inline]
    fn table_may_contain(
        &self,
        file: &TableFile,
        key: &LookupKey,
        hash: &KeyHash<'_>,
        io: &mut TableIo,
    ) -> FilterVerdict {
        let may_contain = match self {
            Layout::None | Layout::BlockBased(_) => None,
            Layout::Full(reader) => reader.with_filter(file, io, |filter| filter.may_contain(hash)),
            Layout::Partitioned(reader) => reader.may_contain(file, key, hash, io),
        };
        may_contain.map_or(FilterVerdict::NotConsulted, FilterVerdict::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::SEQUENCE_MAX;
    use crate::table::block::builder::BlockBuilder;
    use crate::table::filter::testing::{Exact, Sink};
    use crate::table::format::BlockKind;
    use proptest::prelude::*;
    use siftdb_filter::encoding::Encoding;
    use siftdb_filter::testing::budget::Budget;
    use siftdb_filter::testing::faults;

    fn custom() -> Vec<Arc<dyn FilterPolicy>> {
        vec![Arc::new(Exact)]
    }

    /// Every encoding in every layout.
    fn choices() -> Vec<TableFilter> {
        let encodings = [
            Encoding::LevelDbBloom { bits_per_key: 10 },
            Encoding::FastLocalBloom { millibits: 10_000 },
            Encoding::Ribbon { millibits: 10_000 },
            Encoding::LegacyBloom { bits_per_key: 10 },
            Encoding::Custom(Arc::new(Exact)),
        ];
        let layouts = [
            FilterLayout::BlockBased { window_bytes: 2048 },
            FilterLayout::Full,
            FilterLayout::Partitioned { block_bytes: 100 },
        ];
        let pairs = encodings.iter().flat_map(|encoding| layouts.map(|layout| (encoding, layout)));
        pairs
            .map(|(encoding, layout)| TableFilter {
                encoding: encoding.clone(),
                layout,
                members: FilterMembers::default(),
                range_millibits: 0,
            })
            .collect()
    }

    struct Built {
        sink: Sink,
        metaindex: Vec<(String, BlockHandle)>,
        /// Each key with the offset of its data block.
        keys: Vec<(Vec<u8>, u64)>,
    }

    /// The filter of keys in data blocks of `per_block` keys and 1500 bytes.
    fn built(filter: &TableFilter, keys: &[Vec<u8>], per_block: usize) -> Built {
        let mut builder = FilterBlockBuilder::new(filter, &Construction::default());
        let mut placed = Vec::new();
        let mut offset = 0;
        for block in keys.chunks(per_block) {
            builder.start_block(offset);
            for key in block {
                builder.add_key(key);
                placed.push((key.clone(), offset));
            }
            offset += 1500;
        }
        builder.start_block(offset);
        let mut sink = Sink::starting_at(offset as usize);
        let summary = builder.finish(true, &mut sink).expect("written");
        let metaindex =
            summary.into_iter().map(|summary| (filter.metaindex_name(), summary.handle));
        Built { metaindex: metaindex.collect(), sink, keys: placed }
    }

    fn open(metaindex: &[(String, BlockHandle)], custom: &[Arc<dyn FilterPolicy>]) -> OpenFilter {
        OpenFilter::new(metaindex, custom, FilterMembers::default())
    }

    fn pinned_bytes(filter: &OpenFilter) -> u64 {
        match &filter.layout {
            Layout::None => 0,
            Layout::BlockBased(reader) => reader.pinned_bytes(),
            Layout::Full(reader) => reader.pinned.as_ref().map_or(0, |it| it.bytes() as u64),
            Layout::Partitioned(reader) => reader.partitions.pinned_bytes(),
        }
    }

    /// Both questions, as a lookup asks them.
    fn verdicts(
        reader: &OpenFilter,
        file: &TableFile,
        key: &[u8],
        offset: u64,
        io: &mut TableIo,
    ) -> [FilterVerdict; 2] {
        let hash = KeyHash::new(key);
        let lookup = LookupKey::new(key, SEQUENCE_MAX);
        [
            reader.table_may_contain(file, &lookup, &hash, io),
            reader.block_may_contain(file, offset, &hash, io),
        ]
    }

    fn some_keys(n: u32) -> Vec<Vec<u8>> {
        (0..n).map(|i| format!("key{i:05}").into_bytes()).collect()
    }

    proptest! {
        #[test]
        fn members_pass_in_every_layout_and_encoding(
            mut keys in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..12), 1..150),
            per_block in 1usize..20,
            pinned: bool,
        ) {
            keys.sort();
            for filter in choices() {
                let built = built(&filter, &keys, per_block);
                let file = built.sink.file(true);
                let mut reader = open(&built.metaindex, &custom());
                let mut io = TableIo::default();
                if pinned {
                    reader.load(&file, &mut io);
                    prop_assert!(pinned_bytes(&reader) > 0);
                }
                let block_based = matches!(filter.layout, FilterLayout::BlockBased { .. });
                let expected = match block_based {
                    true => [FilterVerdict::NotConsulted, FilterVerdict::Maybe],
                    false => [FilterVerdict::Maybe, FilterVerdict::NotConsulted],
                };
                for (key, offset) in &built.keys {
                    prop_assert_eq!(verdicts(&reader, &file, key, *offset, &mut io), expected);
                }
                prop_assert_eq!(io.filter_errors, 0);
            }
        }
    }

    #[test]
    fn every_layout_and_encoding_denies_absent_keys() {
        for filter in choices() {
            let built = built(&filter, &some_keys(2_000), 40);
            let file = built.sink.file(true);
            let reader = open(&built.metaindex, &custom());
            let mut io = TableIo::default();
            let passed = built.keys.iter().filter(|(key, offset)| {
                let absent = [key, &b"+"[..]].concat();
                !verdicts(&reader, &file, &absent, *offset, &mut io).contains(&FilterVerdict::No)
            });
            assert!(passed.count() < 50, "{filter:?}");
        }
    }

    #[test]
    fn no_flipped_bit_ever_denies_a_member() {
        for filter in choices() {
            let built = built(&filter, &some_keys(60), 10);
            // Prefixes are not read.
            let blocks = built.sink.blocks.iter().map(|(handle, _)| *handle);
            let read = blocks.flat_map(|handle| handle.offset..handle.end().expect("near"));
            for at in read.map(|at| at as usize) {
                let mut sink = built.sink.clone();
                sink.bytes[at] ^= 1 << (at % 8);
                let file = sink.file(true);
                let mut reader = open(&built.metaindex, &custom());
                let mut io = TableIo::default();
                if at % 2 == 0 {
                    reader.load(&file, &mut io);
                }
                for (key, offset) in built.keys.iter().step_by(7) {
                    let said = verdicts(&reader, &file, key, *offset, &mut io);
                    assert!(!said.contains(&FilterVerdict::No), "{filter:?}, byte {at}");
                }
                assert!(io.filter_errors > 0, "{filter:?}, byte {at}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        /// Whatever overwrites a filter in the file, its checksum is wrong: the answer is "may
        /// contain" or "not consulted".
        #[test]
        fn overwritten_filters_never_deny_a_member(
            at: prop::sample::Index,
            junk in proptest::collection::vec(any::<u8>(), 1..400),
            pinned: bool,
        ) {
            for filter in choices() {
                let built = built(&filter, &some_keys(120), 10);
                let start = built.sink.blocks[0].0.offset as usize;
                let mut sink = built.sink.clone();
                let place = start + at.index(sink.bytes.len() - start);
                let end = sink.bytes.len().min(place + junk.len());
                sink.bytes[place..end].copy_from_slice(&junk[..end - place]);
                let file = sink.file(true);
                let mut reader = open(&built.metaindex, &custom());
                let mut io = TableIo::default();
                if pinned {
                    reader.load(&file, &mut io);
                }
                for (key, offset) in &built.keys {
                    let said = verdicts(&reader, &file, key, *offset, &mut io);
                    prop_assert!(!said.contains(&FilterVerdict::No), "{:?}", filter);
                }
            }
        }

        /// Random bytes with a valid checksum, as a filter, as windows or as a top-level index:
        /// nothing panics, and an index that cannot be followed is not consulted.
        #[test]
        fn random_filter_blocks_are_answered(
            junk in proptest::collection::vec(any::<u8>(), 0..300),
            key: Vec<u8>,
            offset in prop_oneof![0u64..100_000, any::<u64>()],
            base_lg in 0u8..70,
            array in 0u32..300,
            pinned: bool,
        ) {
            // Random bytes, first alone, then with the end of a block of windows.
            let windows = [&junk[..], &array.to_le_bytes(), &[base_lg]].concat();
            for filter in choices() {
                let name = built(&filter, &some_keys(5), 10).metaindex[0].0.clone();
                for block in [&junk, &windows] {
                    let mut sink = Sink::starting_at(100);
                    let partitioned = matches!(filter.layout, FilterLayout::Partitioned { .. });
                    let kind =
                        if partitioned { BlockKind::FilterIndex } else { BlockKind::Filter };
                    let handle = sink.write_raw(block, kind).expect("written");
                    let file = sink.file(true);
                    let mut reader = open(&[(name.clone(), handle)], &custom());
                    let mut io = TableIo::default();
                    if pinned {
                        reader.load(&file, &mut io);
                    }
                    let said = verdicts(&reader, &file, &key, offset, &mut io);
                    let asked = said.iter().any(|one| *one != FilterVerdict::NotConsulted);
                    // After the last window no filter is asked, and nothing is wrong.
                    let windows = matches!(filter.layout, FilterLayout::BlockBased { .. });
                    prop_assert!(asked || io.filter_errors > 0 || windows, "{:?}", filter);
                }
            }
        }

        /// A sound top-level index whose handles lead anywhere.
        #[test]
        fn misplaced_partitions_are_not_consulted(
            handles in proptest::collection::vec((any::<u64>(), any::<u64>()), 1..6),
            near in proptest::collection::vec((1u64..200, 0u64..400), 1..6),
            body in proptest::collection::vec(any::<u8>(), 200),
            key: Vec<u8>,
        ) {
            let mut sink = Sink::starting_at(0);
            sink.write_raw(&body, BlockKind::Filter).expect("written");
            let mut index = BlockBuilder::new(1);
            for (number, (offset, size)) in handles.into_iter().chain(near).enumerate() {
                let mut value = Vec::new();
                BlockHandle { offset, size }.encode(&mut value);
                index.add(&[20 * number as u8], &value);
            }
            let handle = sink.write_raw(index.finish(), BlockKind::FilterIndex).expect("written");
            let file = sink.file(true);
            let partitioned = |one: &TableFilter| matches!(one.layout, FilterLayout::Partitioned { .. });
            for filter in choices().into_iter().filter(partitioned) {
                let name = built(&filter, &some_keys(5), 10).metaindex[0].0.clone();
                let reader = open(&[(name, handle)], &custom());
                let mut io = TableIo::default();
                let said = verdicts(&reader, &file, &key, 0, &mut io);
                prop_assert_eq!(said, [FilterVerdict::NotConsulted; 2]);
                prop_assert!(io.filter_errors > 0);
            }
        }
    }

    #[test]
    fn filters_with_hostile_handles_are_not_consulted() {
        for filter in choices() {
            let built = built(&filter, &some_keys(60), 10);
            let file = built.sink.file(true);
            let end = built.sink.bytes.len() as u64;
            for (offset, size) in [(0, 0), (0, u64::MAX), (u64::MAX, 1), (end, 10), (3, 40)] {
                let handle = BlockHandle { offset, size };
                let name = built.metaindex[0].0.clone();
                let mut reader = open(&[(name, handle)], &custom());
                let mut io = TableIo::default();
                for round in 0..2 {
                    let said = verdicts(&reader, &file, b"key00001", 0, &mut io);
                    assert_eq!(said, [FilterVerdict::NotConsulted; 2], "{filter:?} {round}");
                    assert_eq!(io.filter_errors, 1 + 2 * round);
                    reader.load(&file, &mut io);
                    assert_eq!(pinned_bytes(&reader), 0);
                }
            }
        }
    }

    #[test]
    fn a_full_filter_is_prepared_once_and_shared() {
        let full = &choices()[4];
        let built = built(full, &some_keys(100), 10);
        let file = built.sink.file(true);
        let mut reader = open(&built.metaindex, &[]);
        assert!(reader.pinned_filter().is_none());
        assert_eq!(reader.bytes_to_pin(), 128 + 5);
        reader.load(&file, &mut TableIo::default());
        let prepared = reader.pinned_filter().expect("pinned");
        assert!(built.keys.iter().all(|(key, _)| prepared.may_contain(&KeyHash::new(key))));
        let mut io = TableIo::default();
        verdicts(&reader, &file, b"key00001", 0, &mut io);
        assert_eq!(io, TableIo::default(), "a pinned filter touches no block");
    }

    #[test]
    fn foreign_names_and_absent_filters_are_not_consulted() {
        let built = built(&choices()[13], &some_keys(10), 10);
        assert_eq!(built.metaindex[0].0, "fullfilter.test.Exact");
        let file = built.sink.file(true);
        for metaindex in [
            built.metaindex.clone(),
            vec![("siftdb.properties".to_string(), BlockHandle::default())],
            Vec::new(),
        ] {
            let mut reader = open(&metaindex, &[]);
            let mut io = TableIo::default();
            reader.load(&file, &mut io);
            let said = verdicts(&reader, &file, b"absent", 0, &mut io);
            assert_eq!(said, [FilterVerdict::NotConsulted; 2]);
            assert_eq!(reader.layout_name(), "none");
            assert_eq!((io.filter_errors, pinned_bytes(&reader)), (0, 0));
        }
        assert_ne!(open(&built.metaindex, &custom()).layout_name(), "none");
    }

    #[test]
    fn a_policy_denying_members_fails_the_table() {
        for filter in choices().into_iter().skip(12) {
            let mut builder = FilterBlockBuilder::new(&filter, &Construction::default());
            builder.start_block(0);
            for key in ["a", "deny", "z"] {
                builder.add_key(key.as_bytes());
            }
            builder.start_block(1 << 20);
            let mut sink = Sink::default();
            let error = builder.finish(true, &mut sink).expect_err("refused");
            assert!(
                error.to_string().contains("test.Exact") || error.to_string().contains("Exact")
            );
            assert!(sink.blocks.is_empty());
        }
    }

    #[test]
    fn finished_filters_are_charged_until_written() {
        for filter in choices() {
            let budget = Budget::new(u64::MAX);
            let mut builder =
                FilterBlockBuilder::new(&filter, &Construction::checked(budget.clone()));
            let keys = some_keys(3_000);
            for (number, key) in keys.iter().enumerate() {
                if number % 40 == 0 {
                    builder.start_block(1500 * number as u64 / 40);
                }
                builder.add_key(key);
            }
            let before = budget.taken();
            let full = filter.layout == FilterLayout::Full;
            assert_eq!(before > 2_000, !full, "windows and partitions that wait: {filter:?}");
            builder.start_block(1 << 20);
            let mut sink = Sink::default();
            let summary = builder.finish(true, &mut sink).expect("written").expect("a filter");
            // Offsets and the top-level index are small and are not charged.
            let (taken, bytes) = (budget.taken(), summary.filter_bytes);
            assert!(taken <= bytes && taken > bytes / 2, "{taken} of {bytes}: {filter:?}");
            drop(builder);
            assert_eq!(budget.taken(), 0, "{filter:?}");
        }
    }

    #[test]
    fn changed_memory_fails_every_layout() {
        let built_in = |filter: &TableFilter| filter.encoding.bits_per_key().is_some();
        for filter in choices().into_iter().filter(built_in) {
            faults::arm();
            for fault in [faults::CHANGES_HASH, faults::CLEARS_BITS] {
                for verify in [true, false] {
                    let budget = Budget::new(u64::MAX);
                    let construction =
                        Construction { verify, ..Construction::checked(budget.clone()) };
                    let mut builder = FilterBlockBuilder::new(&filter, &construction);
                    builder.start_block(0);
                    builder.add_key(fault);
                    // The fault is in the first of several windows or partitions.
                    for (number, key) in some_keys(2_000).iter().enumerate() {
                        builder.add_key(key);
                        builder.start_block(10 * number as u64);
                    }
                    let mut sink = Sink::default();
                    let result = builder.finish(true, &mut sink);
                    let failed = matches!(result, Err(Error::MemoryCorruption { .. }));
                    assert_eq!((failed, sink.blocks.is_empty()), (verify, verify), "{filter:?}");
                    drop(builder);
                    assert_eq!(budget.taken(), 0);
                }
            }
        }
    }

    #[test]
    fn a_table_without_keys_has_no_filter() {
        for filter in choices() {
            let built = built(&filter, &[], 10);
            assert!(built.metaindex.is_empty() && built.sink.blocks.is_empty());
        }
    }
}

#[cfg(test)]
mod prefix_tests {
    use super::*;
    use crate::base::key::SEQUENCE_MAX;
    use crate::table::filter::testing::{Exact, Sink};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use siftdb_filter::encoding::Encoding;
    use siftdb_filter::prefix::{Prefix, PrefixExtractor};

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
    fn opened(filter: &TableFilter, keys: &[Vec<u8>], pinned: bool) -> (OpenFilter, TableFile) {
        let mut builder = FilterBlockBuilder::new(filter, &Construction::default());
        keys.iter().for_each(|key| builder.add_key(key));
        let mut sink = Sink::default();
        let summary = builder.finish(true, &mut sink).expect("written");
        let metaindex: Vec<_> =
            summary.into_iter().map(|summary| (filter.metaindex_name(), summary.handle)).collect();
        let file = sink.file(true);
        let mut open = OpenFilter::new(&metaindex, &[Arc::new(Exact)], filter.members.clone());
        if pinned {
            open.pin(&file, FilterPinning::default(), &mut TableIo::default());
        }
        (open, file)
    }

    fn shared(a: &[u8], b: &[u8]) -> usize {
        a.iter().zip(b).take_while(|(a, b)| a == b).count()
    }

    /// Checks keys, their prefixes and every range between two of them against the keys that are
    /// there.
    fn check(filter: &TableFilter, keys: &[Vec<u8>], others: &[Vec<u8>], pinned: bool) {
        let (open, file) = opened(filter, keys, pinned);
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
            pinned: bool,
        ) {
            for (encoding, prefix) in
                encodings().iter().flat_map(|encoding| rules().map(|rule| (encoding, rule)))
            {
                if prefix.is_none() && !whole_keys {
                    continue;
                }
                for layout in [FilterLayout::Full, FilterLayout::Partitioned { block_bytes }] {
                    let members = FilterMembers { whole_keys, prefix: prefix.clone() };
                    let filter = TableFilter { encoding: encoding.clone(), layout, members, range_millibits: 0 };
                    filter.validate().expect("a choice that works");
                    check(&filter, &keys, &others, pinned);
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
                let (open, file) = opened(
                    &TableFilter { encoding, layout, members, range_millibits: 0 },
                    &keys,
                    true,
                );
                let mut denied = 0;
                for number in 0..400 {
                    let prefix = format!("{number:03}").into_bytes();
                    let start = LookupKey::new(&prefix, SEQUENCE_MAX);
                    let io = &mut TableIo::default();
                    let verdict = open.range_may_match(&file, &prefix, &start, io);
                    assert!(number % 2 == 1 || verdict == FilterVerdict::Maybe);
                    denied += u32::from(verdict == FilterVerdict::No);
                    // With two bytes the third one is open, so there is no single prefix.
                    let verdict = open.range_may_match(&file, &prefix[..2], &start, io);
                    assert_eq!(verdict, FilterVerdict::NotConsulted);
                }
                // The other half are odd numbers. Some partitions hold the prefix of a neighbour,
                // too.
                assert!((195..=200).contains(&denied), "{layout}: {denied}");
                assert_eq!(
                    open.pinned_filter().is_some(),
                    whole_keys && layout == FilterLayout::Full
                );
            }
        }
    }
}
