//! The filter of a table, whatever its layout: what `table/builder.rs` and `table/reader.rs` use.
//!
//! Writing: `(start_block add_key*)* start_block finish`; `start_block` gets the offset at which
//! the next data block will stand, also behind the last one. Reading: a reader is opened from the
//! table's metaindex. A name whose policy nobody knows, and a table without a filter, answer
//! `NotConsulted`. Each layout answers one of the two questions and leaves the other alone.

use crate::base::error::{Error, Result};
use crate::base::key::LookupKey;
use crate::base::sync::Arc;
use crate::filter::builder::Construction;
use crate::filter::encoding::{FilterReader, FilterVerdict, PreparedFilter};
use crate::filter::hash::KeyHash;
use crate::filter::policy::FilterPolicy;
use crate::table::batch_key::{BatchKey, set_all};
use crate::table::fetch::{TableFile, TableIo};
use crate::table::filter::block_based::{BlockBasedBuilder, BlockBasedReader};
use crate::table::filter::full::{FullBuilder, FullReader};
use crate::table::filter::layout::{
    BLOCK_BASED_PREFIX, BlockSink, FULL_PREFIX, FilterBlockSummary, FilterLayout,
    PARTITIONED_PREFIX, TableFilter,
};
use crate::table::filter::partitioned::{PartitionedBuilder, PartitionedReader};
use crate::table::format::BlockHandle;

/// Collects the keys of one table and writes its filter.
#[derive(Debug)]
pub enum FilterBlockBuilder {
    /// LevelDB's layout.
    BlockBased(BlockBasedBuilder),
    /// One filter.
    Full(FullBuilder),
    /// Partitions.
    Partitioned(PartitionedBuilder),
}

impl FilterBlockBuilder {
    /// A builder for one table.
    pub fn new(filter: &TableFilter) -> Self {
        let TableFilter { encoding, members, .. } = filter;
        match filter.layout {
            FilterLayout::BlockBased { window_bytes } => {
                Self::BlockBased(BlockBasedBuilder::new(encoding, window_bytes))
            }
            FilterLayout::Full => Self::Full(FullBuilder::new(encoding, members)),
            FilterLayout::Partitioned { block_bytes } => {
                Self::Partitioned(PartitionedBuilder::new(encoding, members, block_bytes))
            }
        }
    }

    /// The same builder under these settings: before the first key.
    #[must_use]
    pub fn under(self, construction: &Construction) -> Self {
        match self {
            Self::BlockBased(builder) => Self::BlockBased(builder.under(construction)),
            Self::Full(builder) => Self::Full(builder.under(construction)),
            Self::Partitioned(builder) => Self::Partitioned(builder.under(construction)),
        }
    }

    /// The next keys belong to a data block that will stand at `file_offset`.
    pub fn start_block(&mut self, file_offset: u64) {
        if let Self::BlockBased(builder) = self {
            builder.start_block(file_offset);
        }
    }

    /// Adds a user key; keys come sorted and may repeat.
    #[inline]
    pub fn add_key(&mut self, user_key: &[u8]) {
        match self {
            Self::BlockBased(builder) => builder.add_key(user_key),
            Self::Full(builder) => builder.add_key(user_key),
            Self::Partitioned(builder) => builder.add_key(user_key),
        }
    }

    /// Writes the filter; `None` if no key came, and then there is no metaindex entry. An error is
    /// the sink's, or says that a user's policy broke its contract.
    pub fn finish(
        &mut self,
        index_key_is_user_key: bool,
        sink: &mut dyn BlockSink,
    ) -> Result<Option<FilterBlockSummary>> {
        match self {
            Self::BlockBased(builder) => builder.finish(sink),
            Self::Full(builder) => builder.finish(sink),
            Self::Partitioned(builder) => builder.finish(index_key_is_user_key, sink),
        }
    }
}

/// Asks the filter of one table.
#[derive(Debug)]
pub struct FilterBlockReader {
    layout: Layout,
}

#[derive(Debug)]
enum Layout {
    None,
    BlockBased(BlockBasedReader),
    Full(FullReader),
    Partitioned(PartitionedReader),
}

impl FilterBlockReader {
    /// The filter that the metaindex names. No I/O yet: blocks come through the cache until
    /// [`make_resident`](Self::make_resident). Where a table has several filters the first known
    /// one serves.
    pub fn open(metaindex: &[(String, BlockHandle)], custom: &[Arc<dyn FilterPolicy>]) -> Self {
        for (entry, handle) in metaindex {
            let Some((make, policy)) = split_name(entry) else { continue };
            if let Some(reader) = FilterReader::for_name(policy, custom) {
                return FilterBlockReader { layout: make(reader, *handle) };
            }
        }
        FilterBlockReader { layout: Layout::None }
    }

    /// About how many bytes [`make_resident`](Self::make_resident) would hold.
    pub fn residency_bytes(&self) -> u64 {
        match &self.layout {
            Layout::None => 0,
            Layout::BlockBased(reader) => reader.handle().size,
            Layout::Full(reader) => reader.handle().size,
            // The decoded form has flat arrays beside the block.
            Layout::Partitioned(reader) => reader.handle().size.saturating_mul(2),
        }
    }

    /// Loads the filter, or the top-level index of partitions, to stay. Damage is counted, and
    /// what could not be loaded is not consulted.
    pub fn make_resident(&mut self, file: &TableFile, io: &mut TableIo) {
        match &mut self.layout {
            Layout::None => {}
            Layout::BlockBased(reader) => reader.make_resident(file, io),
            Layout::Full(reader) => reader.make_resident(file, io),
            Layout::Partitioned(reader) => reader.make_resident(file, io),
        }
    }

    /// Loads partitions to stay, where the filter has any and their index is resident.
    pub fn pin_partitions(&mut self, file: &TableFile) {
        if let Layout::Partitioned(reader) = &mut self.layout {
            reader.pin_partitions(file);
        }
    }

    /// Reads every block of the filter past the cache. A filter that nobody asks is sound.
    ///
    /// # Errors
    /// The first damage, with the remedy that goes with filters; `Io`.
    pub fn check(&self, file: &TableFile) -> Result<()> {
        let checked = match &self.layout {
            Layout::None => Ok(()),
            Layout::BlockBased(reader) => reader.check(file),
            Layout::Full(reader) => reader.check(file),
            Layout::Partitioned(reader) => reader.check(file),
        };
        checked.map_err(Error::of_filter)
    }

    /// True if the filter, or its top-level index, was found damaged when it was last read.
    pub fn is_known_damaged(&self) -> bool {
        match &self.layout {
            Layout::None => false,
            Layout::BlockBased(reader) => reader.is_known_damaged(),
            Layout::Full(reader) => reader.is_known_damaged(),
            Layout::Partitioned(reader) => reader.is_known_damaged(),
        }
    }

    /// Memory held by what is resident.
    #[cfg(test)]
    pub fn resident_bytes(&self) -> u64 {
        match &self.layout {
            Layout::None => 0,
            Layout::BlockBased(reader) => reader.resident_bytes(),
            Layout::Full(reader) => reader.resident().map_or(0, |filter| filter.bytes() as u64),
            Layout::Partitioned(reader) => reader.resident_bytes(),
        }
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
        match &self.layout {
            Layout::None | Layout::BlockBased(_) => FilterVerdict::NotConsulted,
            Layout::Full(reader) => reader.table_may_contain(file, hash, io),
            Layout::Partitioned(reader) => reader.table_may_contain(file, key, hash, io),
        }
    }

    /// May the data block at `block_offset` hold the key? To be asked with the offset that the
    /// data index names for the key.
    #[inline]
    pub fn block_may_contain(
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

    /// The first question for the keys of a batch, ascending; sets the verdict of each.
    pub fn ask_table(&self, file: &TableFile, keys: &mut [&mut BatchKey<'_>], io: &mut TableIo) {
        match &self.layout {
            Layout::None | Layout::BlockBased(_) => set_all(keys, FilterVerdict::NotConsulted),
            Layout::Full(reader) => reader.ask_table(file, keys, io),
            Layout::Partitioned(reader) => reader.ask_table(file, keys, io),
        }
    }

    /// The second question for the keys of a batch whose first one nobody answered, each with the
    /// data block that the index named for it.
    pub fn ask_blocks(&self, file: &TableFile, keys: &mut [&mut BatchKey<'_>], io: &mut TableIo) {
        if let Layout::BlockBased(reader) = &self.layout {
            reader.ask_blocks(file, keys, io);
        }
    }

    /// The whole table's filter where it stays in memory, for the version's probe array.
    pub fn resident_full(&self) -> Option<&PreparedFilter> {
        match &self.layout {
            Layout::Full(reader) => reader.resident(),
            _ => None,
        }
    }

    /// The layout, for people; `none` where no filter is asked.
    pub fn layout_name(&self) -> &'static str {
        match &self.layout {
            Layout::None => "none",
            Layout::BlockBased(_) => "block-based",
            Layout::Full(_) => "full",
            Layout::Partitioned(_) => "partitioned",
        }
    }
}

type MakeLayout = fn(FilterReader, BlockHandle) -> Layout;

/// Layout and policy of a metaindex name, if it is a filter's.
fn split_name(entry: &str) -> Option<(MakeLayout, &str)> {
    let layouts: [(&str, MakeLayout); 3] = [
        (FULL_PREFIX, |reader, handle| Layout::Full(FullReader::new(reader, handle))),
        (PARTITIONED_PREFIX, |reader, handle| {
            Layout::Partitioned(PartitionedReader::new(reader, handle))
        }),
        (BLOCK_BASED_PREFIX, |reader, handle| {
            Layout::BlockBased(BlockBasedReader::new(reader, handle))
        }),
    ];
    layouts.into_iter().find_map(|(prefix, make)| Some((make, entry.strip_prefix(prefix)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::SEQUENCE_MAX;
    use crate::filter::builder::faults;
    use crate::filter::builder::testing::Budget;
    use crate::filter::encoding::Encoding;
    use crate::table::block::builder::BlockBuilder;
    use crate::table::filter::layout::FilterMembers;
    use crate::table::filter::testing::{Exact, Sink};
    use crate::table::format::BlockKind;
    use proptest::prelude::*;

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
        let mut builder = FilterBlockBuilder::new(filter);
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
        let metaindex = summary.into_iter().map(|summary| (summary.metaindex_name, summary.handle));
        Built { metaindex: metaindex.collect(), sink, keys: placed }
    }

    /// Both questions, as a lookup asks them.
    fn verdicts(
        reader: &FilterBlockReader,
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
            resident: bool,
        ) {
            keys.sort();
            for filter in choices() {
                let built = built(&filter, &keys, per_block);
                let file = built.sink.file(true);
                let mut reader = FilterBlockReader::open(&built.metaindex, &custom());
                let mut io = TableIo::default();
                if resident {
                    reader.make_resident(&file, &mut io);
                    prop_assert!(reader.resident_bytes() > 0);
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
            let reader = FilterBlockReader::open(&built.metaindex, &custom());
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
                let mut reader = FilterBlockReader::open(&built.metaindex, &custom());
                let mut io = TableIo::default();
                if at % 2 == 0 {
                    reader.make_resident(&file, &mut io);
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

        /// Whatever stands in the file instead of a filter, its checksum is wrong: a member may be
        /// there, or nobody was asked.
        #[test]
        fn overwritten_filters_never_deny_a_member(
            at: prop::sample::Index,
            junk in proptest::collection::vec(any::<u8>(), 1..400),
            resident: bool,
        ) {
            for filter in choices() {
                let built = built(&filter, &some_keys(120), 10);
                let start = built.sink.blocks[0].0.offset as usize;
                let mut sink = built.sink.clone();
                let place = start + at.index(sink.bytes.len() - start);
                let end = sink.bytes.len().min(place + junk.len());
                sink.bytes[place..end].copy_from_slice(&junk[..end - place]);
                let file = sink.file(true);
                let mut reader = FilterBlockReader::open(&built.metaindex, &custom());
                let mut io = TableIo::default();
                if resident {
                    reader.make_resident(&file, &mut io);
                }
                for (key, offset) in &built.keys {
                    let said = verdicts(&reader, &file, key, *offset, &mut io);
                    prop_assert!(!said.contains(&FilterVerdict::No), "{:?}", filter);
                }
            }
        }

        /// Random bytes under a good checksum, as a filter, as windows or as a top-level index:
        /// nothing panics, and an index that nobody can follow is not consulted.
        #[test]
        fn random_filter_blocks_are_answered(
            junk in proptest::collection::vec(any::<u8>(), 0..300),
            key: Vec<u8>,
            offset in prop_oneof![0u64..100_000, any::<u64>()],
            base_lg in 0u8..70,
            array in 0u32..300,
            resident: bool,
        ) {
            // As they come, and with the end of a block of windows.
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
                    let mut reader = FilterBlockReader::open(&[(name.clone(), handle)], &custom());
                    let mut io = TableIo::default();
                    if resident {
                        reader.make_resident(&file, &mut io);
                    }
                    let said = verdicts(&reader, &file, &key, offset, &mut io);
                    let asked = said.iter().any(|one| *one != FilterVerdict::NotConsulted);
                    // Behind the last window nobody was asked, and nothing is wrong.
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
                let reader = FilterBlockReader::open(&[(name, handle)], &custom());
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
                let mut reader = FilterBlockReader::open(&[(name, handle)], &custom());
                let mut io = TableIo::default();
                for round in 0..2 {
                    let said = verdicts(&reader, &file, b"key00001", 0, &mut io);
                    assert_eq!(said, [FilterVerdict::NotConsulted; 2], "{filter:?} {round}");
                    assert_eq!(io.filter_errors, 1 + 2 * round);
                    reader.make_resident(&file, &mut io);
                    assert_eq!(reader.resident_bytes(), 0);
                }
            }
        }
    }

    #[test]
    fn a_full_filter_is_prepared_once_and_shared() {
        let full = &choices()[4];
        let built = built(full, &some_keys(100), 10);
        let file = built.sink.file(true);
        let mut reader = FilterBlockReader::open(&built.metaindex, &[]);
        assert!(reader.resident_full().is_none());
        assert_eq!(reader.residency_bytes(), 128 + 5);
        reader.make_resident(&file, &mut TableIo::default());
        let prepared = reader.resident_full().expect("resident");
        assert!(built.keys.iter().all(|(key, _)| prepared.may_contain(&KeyHash::new(key))));
        let mut io = TableIo::default();
        verdicts(&reader, &file, b"key00001", 0, &mut io);
        assert_eq!(io, TableIo::default(), "a resident filter touches no block");
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
            let mut reader = FilterBlockReader::open(&metaindex, &[]);
            let mut io = TableIo::default();
            reader.make_resident(&file, &mut io);
            let said = verdicts(&reader, &file, b"absent", 0, &mut io);
            assert_eq!(said, [FilterVerdict::NotConsulted; 2]);
            assert_eq!(reader.layout_name(), "none");
            assert_eq!((io.filter_errors, reader.resident_bytes()), (0, 0));
        }
        assert_ne!(FilterBlockReader::open(&built.metaindex, &custom()).layout_name(), "none");
    }

    #[test]
    fn a_policy_denying_members_fails_the_table() {
        for filter in choices().into_iter().skip(12) {
            let mut builder = FilterBlockBuilder::new(&filter);
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
            let mut builder = FilterBlockBuilder::new(&filter).under(&budget.construction());
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
            // Offsets and the top-level index are small, and not counted.
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
            for fault in [faults::CHANGES_HASH, faults::CLEARS_BITS] {
                for verify in [true, false] {
                    let budget = Budget::new(u64::MAX);
                    let construction = Construction { verify, ..budget.construction() };
                    let mut builder = FilterBlockBuilder::new(&filter).under(&construction);
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
