//! Partitions: full filters over runs of keys, under a top-level index.
//!
//! The index has one entry for each partition: its largest user key and its handle. Where the
//! table's indexes hold internal keys, 8 zero bytes follow the user key. The index is written last,
//! and the metaindex points to it. A lookup asks the first partition whose index key is not below
//! the key. A key above all index keys asks the last partition, as in RocksDB.
//!
//! Source: RocksDB's `table/block_based/partitioned_filter_block.cc`, with its decoupled cut. The
//! bytes of partitions equal RocksDB's; the index block is siftdb's own form.
//!
//! With prefixes, a partition also holds the prefix of the next key after its last one and of the
//! previous key before its first one. So it can be asked at any position between the keys of its
//! neighbours. A "no" for a prefix at key `k` means that the next key of the table from `k` on does
//! not have that prefix (rocksdb#5835, rocksdb#8137).

use crate::base::error::{Error, Result};
use crate::base::key::{LookupKey, put_key_with_trailer};
use crate::table::batch_key::{BatchKey, ask};
use crate::table::block::builder::BlockBuilder;
use crate::table::file::{TableFile, TableIo};
use crate::table::filter::layout::{BlockSink, FilterBlockSummary, FilterMembers, is_writable};
use crate::table::filter::partitions::Partitions;
use crate::table::format::{BlockHandle, BlockKind};
use crate::table::index::{CachedBlock, Index, IndexEntry};
use siftdb_filter::builder::FilterBuilder;
use siftdb_filter::cache_line::{AlignedBytes, prefetch};
use siftdb_filter::encoding::{FilterReader, FilterView, PreparedFilter};
use siftdb_filter::hash::KeyHash;

/// The share of the metadata block size that a partition takes: RocksDB's default deviation is
/// 10 %.
const PARTITION_PERCENT: usize = 90;

/// Writes a partitioned filter.
#[derive(Debug)]
pub(crate) struct PartitionedBuilder {
    members: FilterMembers,
    keys: FilterBuilder,
    keys_per_partition: usize,
    previous_key: Vec<u8>,
    /// The filters of finished partitions, and for each its largest key and where its filter ends.
    /// `finish` writes them, after the data blocks.
    filters: Vec<u8>,
    partitions: Vec<(Vec<u8>, usize)>,
    entries: u64,
}

impl PartitionedBuilder {
    /// Partitions of 90 % of `block_bytes`.
    pub(crate) fn new(keys: FilterBuilder, members: FilterMembers, block_bytes: usize) -> Self {
        let partition_bytes = block_bytes.saturating_mul(PARTITION_PERCENT).div_ceil(100).max(1);
        Self::with_partition_bytes(keys, members, partition_bytes)
    }

    fn with_partition_bytes(
        keys: FilterBuilder,
        members: FilterMembers,
        partition_bytes: usize,
    ) -> Self {
        let entries = keys.keys_per_partition(partition_bytes);
        // The prefix of the next key needs room.
        let spare = usize::from(members.prefix.is_some() && entries > 1);
        PartitionedBuilder {
            members,
            keys_per_partition: entries - spare,
            keys,
            previous_key: Vec::new(),
            filters: Vec::new(),
            partitions: Vec::new(),
            entries: 0,
        }
    }

    /// Adds a user key.
    pub(crate) fn add_key(&mut self, user_key: &[u8]) -> Result<()> {
        let prefix = self.members.prefix_of(user_key)?;
        // RocksDB's rule: a full partition is cut before the next key goes in, not after its last
        // one, because only then the next key's prefix is known.
        if self.keys.entries() >= self.keys_per_partition {
            if let Some(prefix) = prefix {
                // The prefix of the next key. Added as a key and as its own alternate, so that it
                // is dropped as a repeat if the previous key had the same prefix.
                self.members.add(prefix, Some(prefix), &mut self.keys);
            }
            self.cut()?;
            if let Some(previous) = self.members.prefix_of(&self.previous_key)? {
                self.keys.add_key(previous);
            }
        }
        self.members.add(user_key, prefix, &mut self.keys);
        user_key.clone_into(&mut self.previous_key);
        Ok(())
    }

    /// Writes the partitions, then their index; nothing if there were no keys.
    pub(crate) fn finish(
        &mut self,
        index_key_is_user_key: bool,
        sink: &mut dyn BlockSink,
    ) -> Result<Option<FilterBlockSummary>> {
        if self.keys.entries() > 0 {
            self.cut()?;
        }
        let filters = std::mem::take(&mut self.filters);
        let partitions = std::mem::take(&mut self.partitions);
        if partitions.is_empty() {
            return Ok(None);
        }
        let mut index = BlockBuilder::new(1);
        let mut start = 0;
        for (key, end) in &partitions {
            let filter = filters.get(start..*end).unwrap_or_default();
            start = *end;
            let mut index_key = key.clone();
            if !index_key_is_user_key {
                // Trailer 0 sorts after every version of the key.
                index_key.clear();
                put_key_with_trailer(&mut index_key, key, 0);
            }
            let mut value = Vec::new();
            sink.write_raw(filter, BlockKind::Filter)?.encode(&mut value);
            index.add(&index_key, &value);
        }
        let index = index.finish();
        if !is_writable(index.len()) {
            return Ok(None);
        }
        Ok(Some(FilterBlockSummary {
            handle: sink.write_raw(index, BlockKind::FilterIndex)?,
            filter_bytes: (filters.len() + index.len()) as u64,
            entries: self.entries,
            partitions: partitions.len() as u64,
        }))
    }

    /// Ends a partition after the previous key.
    fn cut(&mut self) -> Result<()> {
        let entries = self.keys.entries() as u64;
        let start = self.filters.len();
        self.keys.finish(&mut self.filters).map_err(Error::of_filter_build)?;
        // A cut may fall between the versions of one user key. Each version after the cut adds the
        // key again, so both partitions hold it, and a lookup finds the first one. A partition
        // with nothing but versions of that key would never be asked: it is not written.
        let repeats = self.partitions.last().is_some_and(|(key, _)| *key == self.previous_key);
        if repeats || !is_writable(self.filters.len() - start) {
            self.filters.truncate(start);
        }
        if !repeats {
            self.entries += entries;
            self.partitions.push((self.previous_key.clone(), self.filters.len()));
        }
        Ok(())
    }
}

/// Reads a partitioned filter.
pub(crate) struct PartitionedReader {
    reader: FilterReader,
    pub partitions: Partitions<PreparedFilter>,
}

impl PartitionedReader {
    /// Reads the top-level index at each use, until it is pinned.
    pub(crate) fn new(reader: FilterReader, handle: BlockHandle) -> Self {
        PartitionedReader { reader, partitions: Partitions::new(handle) }
    }

    /// Pins the partitions too: see [`Partitions::pin_all`].
    pub(crate) fn pin_partitions(&mut self, file: &TableFile) {
        let reader = &self.reader;
        let prepare =
            |filter: &[u8]| PreparedFilter::of(reader.clone(), AlignedBytes::from(filter));
        self.partitions.pin_all(file, prepare);
    }

    /// May the table hold the key? Asks the one partition that could hold it. `None` and a counted
    /// error if it cannot be asked.
    #[inline]
    pub(crate) fn may_contain(
        &self,
        file: &TableFile,
        key: &LookupKey,
        hash: &KeyHash<'_>,
        io: &mut TableIo,
    ) -> Option<bool> {
        self.partitions.with_index(file, io, |blocks, io| {
            let partition = partition_of(blocks, key)?;
            self.with_partition(file, blocks, partition, io, |filter| filter.may_contain(hash))
        })
    }

    /// Asks for a batch of keys, ascending, and sets the verdicts of those whose partition can be
    /// asked. The top-level index is fetched once, and each partition once for all its keys. Step 0
    /// of [`look_ahead`](Self::look_ahead) comes before.
    pub(crate) fn ask_all(
        &self,
        file: &TableFile,
        keys: &mut [&mut BatchKey<'_>],
        io: &mut TableIo,
    ) {
        self.partitions.with_index(file, io, |blocks, io| {
            match self.partitions.index.as_ref() {
                // `look_ahead` did: a search of the index for each key, once.
                Some(_) => debug_assert!(are_located(blocks, keys), "keys were not located"),
                None => locate(blocks, keys),
            }
            for run in keys.chunk_by_mut(|a, b| a.block == b.block) {
                let partition = run.first().and_then(|key| key.block);
                let asked = partition.and_then(|partition| {
                    self.with_partition(file, blocks, partition, io, |filter| {
                        ask(run, |hash| filter.prefetch(hash), |hash| filter.may_contain(hash));
                    })
                });
                io.filter_errors += u32::from(asked.is_none() && !io.in_memory_only);
            }
            Some(())
        });
    }

    /// Prefetches what [`ask_all`](Self::ask_all) will touch, in steps from 0 on: each needs what
    /// the one before has brought. False if there is no such step. Step 0 sets the partition of
    /// each key, if the top-level index is pinned.
    pub(crate) fn look_ahead(&self, keys: &mut [&mut BatchKey<'_>], step: usize) -> bool {
        let Some(index) = self.partitions.index.as_ref().filter(|_| step < 3) else { return false };
        if step == 0 {
            locate(index, keys);
        }
        for key in keys {
            let Some(entry) = key.block else { continue };
            if let Some(filter) = self.partitions.pinned(entry) {
                filter.prefetch(&key.hash);
                continue;
            }
            let slot = index.slot(entry);
            if step == 0 {
                slot.prefetch();
                continue;
            }
            let slotted = slot.get();
            let cached = slotted.as_ref().map(|held| &***held.cached());
            let Some(CachedBlock::Filter(filter)) = cached else { continue };
            match step {
                // The trailer says how to read the filter.
                1 => prefetch(filter, filter.len().saturating_sub(1)),
                _ => self.reader.view(filter).prefetch(&key.hash),
            }
        }
        true
    }

    /// Calls `ask` with the filter of a partition; `None` if it cannot be read.
    #[inline]
    fn with_partition<R>(
        &self,
        file: &TableFile,
        blocks: &Index,
        partition: IndexEntry,
        io: &mut TableIo,
        ask: impl FnOnce(FilterView<'_>) -> R,
    ) -> Option<R> {
        if let Some(filter) = self.partitions.pinned(partition) {
            return Some(ask(filter.view()));
        }
        let ask = |bytes: &[u8]| ask(self.reader.view(bytes));
        self.partitions.with_bytes(file, blocks, partition, io, ask)
    }
}

/// The partition that holds the key if any does. Index keys are user keys or end with trailer 0, so
/// all versions of a key are found alike.
#[inline]
fn partition_of(blocks: &Index, key: &LookupKey) -> Option<IndexEntry> {
    blocks.find(key).or_else(|| blocks.entry(blocks.len().checked_sub(1)?))
}

/// Sets the partition of each key.
fn locate(blocks: &Index, keys: &mut [&mut BatchKey<'_>]) {
    for key in keys {
        key.block = partition_of(blocks, &key.lookup);
    }
}

fn are_located(blocks: &Index, keys: &[&mut BatchKey<'_>]) -> bool {
    keys.iter().all(|key| key.block == partition_of(blocks, &key.lookup))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::SEQUENCE_MAX;
    use crate::table::filter::testing::Sink;
    use crate::table::format::BLOCK_PREFIX_BYTES;
    use siftdb_filter::encoding::{Encoding, FilterVerdict};
    use siftdb_filter::prefix::Prefix;
    use siftdb_filter::testing::vectors;

    const FAST: Encoding = Encoding::FastLocalBloom { millibits: 10_000 };

    fn build(
        partition_bytes: usize,
        keys: impl IntoIterator<Item = Vec<u8>>,
        user_keys: bool,
    ) -> (Sink, Option<FilterBlockSummary>) {
        let members = FilterMembers::default();
        let builder =
            PartitionedBuilder::with_partition_bytes(FAST.builder(), members, partition_bytes);
        finish(builder, keys, user_keys)
    }

    fn finish(
        mut builder: PartitionedBuilder,
        keys: impl IntoIterator<Item = Vec<u8>>,
        user_keys: bool,
    ) -> (Sink, Option<FilterBlockSummary>) {
        keys.into_iter().for_each(|key| builder.add_key(&key).unwrap());
        let mut sink = Sink::starting_at(1000);
        let summary = builder.finish(user_keys, &mut sink).expect("written");
        (sink, summary)
    }

    fn vector_keys(n: u64, versions: u64) -> impl Iterator<Item = Vec<u8>> {
        (0..n * versions).map(move |i| {
            let i = i / versions;
            format!("p{:02}-{i:05}", i / 37).into_bytes()
        })
    }

    fn reader(handle: BlockHandle) -> PartitionedReader {
        let reader = FilterReader::for_name("rocksdb.BuiltinBloomFilter", &[]).expect("built in");
        PartitionedReader::new(reader, handle)
    }

    fn ask(
        reader: &PartitionedReader,
        file: &TableFile,
        key: &[u8],
        io: &mut TableIo,
    ) -> FilterVerdict {
        let lookup = LookupKey::new(key, SEQUENCE_MAX);
        let may_contain = reader.may_contain(file, &lookup, &KeyHash::new(key), io);
        may_contain.map_or(FilterVerdict::NotConsulted, FilterVerdict::of)
    }

    #[test]
    fn partitions_equal_those_of_rocksdb() {
        let Some(file) = vectors::load("rocksdb_partitioned_filter.json") else { return };
        let mut compared = 0;
        for case in vectors::array(&file, "cases") {
            if case["decouple"].as_bool() != Some(true) {
                continue;
            }
            compared += 1;
            let prefix_bytes = vectors::number(case, "prefix_len") as usize;
            let members = FilterMembers {
                whole_keys: case["whole_key_filtering"].as_bool() == Some(true),
                prefix: (prefix_bytes > 0).then(|| Prefix::fixed(prefix_bytes)),
            };
            let millibits = vectors::number(case, "millibits_per_key") as u32;
            let builder = PartitionedBuilder::with_partition_bytes(
                Encoding::FastLocalBloom { millibits }.builder(),
                members,
                vectors::number(case, "partition_size") as usize,
            );
            let name = &case["name"];
            let user_keys = case["index_key_is_user_key"].as_bool() == Some(true);
            let keys = vector_keys(vectors::number(case, "n"), vectors::number(case, "versions"));
            let (sink, summary) = finish(builder, keys, user_keys);
            let partitions = vectors::array(case, "partitions");
            let Some(summary) = summary else {
                assert!(partitions.is_empty() && sink.blocks.is_empty(), "{name}");
                continue;
            };
            assert_eq!(summary.entries, vectors::number(case, "entries_added"), "{name}");
            assert_eq!(summary.partitions, partitions.len() as u64, "{name}");
            let (top, written) = sink.blocks.split_last().expect("an index");
            for (partition, (_, contents)) in partitions.iter().zip(written) {
                let expected = vectors::unhex(partition.as_str().expect("hex"));
                assert_eq!(*contents, expected, "{name}");
            }
            let index = Index::new(top.1.clone(), user_keys, top.0.offset).expect("index");
            let expected = vectors::array(case, "index");
            assert_eq!(index.len(), expected.len(), "{name}");
            for (i, entry) in expected.iter().enumerate() {
                assert_eq!(index.key(i), vectors::bytes(entry, "key"), "{name}");
                // RocksDB has trailers between partitions. siftdb also has a prefix before each.
                let prefixes = (i + 1) as u64 * BLOCK_PREFIX_BYTES as u64;
                let offset = vectors::number(entry, "offset") + prefixes;
                let size = vectors::number(entry, "size");
                assert_eq!(index.handle(i), Some(BlockHandle { offset, size }), "{name}");
            }
        }
        assert_eq!(compared, 10);
    }

    #[test]
    fn golden_index_block() {
        let (sink, summary) = build(1, vector_keys(60, 1), true);
        let summary = summary.expect("a filter");
        assert_eq!((summary.partitions, summary.entries), (2, 60));
        let (handle, index) = sink.blocks.last().expect("an index");
        assert_eq!(*handle, summary.handle);
        // Per entry: shared 0, key length, value length, key, offset and size as varints.
        let expected = "0009037030312d3030303530f00745\
                        0009037030312d3030303539c20845\
                        000000000f00000002000000";
        assert_eq!(vectors::hex(index), expected);
        let (sink, _) = build(1, vector_keys(60, 1), false);
        let (_, index) = sink.blocks.last().expect("an index");
        // Internal keys have 8 bytes more, all 0, after each user key.
        let expected = "0011037030312d30303035300000000000000000f00745\
                        0011037030312d30303035390000000000000000c20845\
                        000000001700000002000000";
        assert_eq!(vectors::hex(index), expected);
    }

    #[test]
    fn members_are_found_at_every_cut() {
        for versions in [1, 3] {
            for partition_bytes in [1, 69, 200, 1_000, 100_000] {
                for (user_keys, pinned) in [(true, true), (true, false), (false, true)] {
                    let (sink, summary) =
                        build(partition_bytes, vector_keys(300, versions), user_keys);
                    let file = sink.file(user_keys);
                    let mut reader = reader(summary.expect("a filter").handle);
                    let mut io = TableIo::default();
                    if pinned {
                        reader.partitions.pin(&file, &mut io);
                    }
                    for key in vector_keys(300, 1) {
                        let verdict = ask(&reader, &file, &key, &mut io);
                        assert_eq!(verdict, FilterVerdict::Maybe);
                    }
                    let misses = (0..300u32).filter(|i| {
                        let key = format!("p{:02}-{i:05}x", i / 37);
                        ask(&reader, &file, key.as_bytes(), &mut io) == FilterVerdict::No
                    });
                    assert!(misses.count() > 280, "{partition_bytes} bytes, {versions} versions");
                    // A filter is asked below the first key and above the last one, too.
                    for key in ["a", "z"] {
                        assert_ne!(
                            ask(&reader, &file, key.as_bytes(), &mut io),
                            FilterVerdict::NotConsulted
                        );
                    }
                    assert_eq!(io.filter_errors, 0);
                }
            }
        }
    }

    #[test]
    fn versions_of_one_key_share_a_partition() {
        // One key a partition: each version would be a partition of its own, under equal keys.
        let encoding = Encoding::LevelDbBloom { bits_per_key: 10 };
        let members = FilterMembers::default();
        let mut builder = PartitionedBuilder::with_partition_bytes(encoding.builder(), members, 1);
        assert_eq!(builder.keys_per_partition, 1);
        for key in ["a", "a", "a", "b", "c", "c"] {
            builder.add_key(key.as_bytes()).unwrap();
        }
        let mut sink = Sink::default();
        let summary = builder.finish(true, &mut sink).expect("written").expect("a filter");
        assert_eq!((summary.partitions, summary.entries), (3, 3));
        let (handle, index) = sink.blocks.last().expect("an index");
        assert!(Index::new(index.clone(), true, handle.offset).is_ok());
        // The builder is empty again.
        assert_eq!(builder.finish(true, &mut sink).expect("written"), None);
    }

    /// Keys with a prefix of their own each, so that only the rule for neighbours puts a prefix
    /// where another partition begins.
    fn lonely_keys() -> Vec<Vec<u8>> {
        (0..1000).map(|i| format!("{i:04}-key").into_bytes()).collect()
    }

    const LONELY_PREFIX_BYTES: usize = 4;

    fn with_prefixes(whole_keys: bool) -> FilterMembers {
        FilterMembers { whole_keys, prefix: Some(Prefix::fixed(LONELY_PREFIX_BYTES)) }
    }

    /// The filter of each partition, the index of its first key, and the index of the next
    /// partition's.
    fn lonely_partitions(whole_keys: bool) -> Vec<(Vec<u8>, usize, usize)> {
        let builder = PartitionedBuilder::with_partition_bytes(
            FAST.builder(),
            with_prefixes(whole_keys),
            200,
        );
        let (sink, summary) = finish(builder, lonely_keys(), true);
        let (top, partitions) = sink.blocks.split_last().expect("an index");
        let index = Index::new(top.1.clone(), true, top.0.offset).expect("index");
        assert_eq!(summary.expect("a filter").partitions as usize, partitions.len());
        assert!(partitions.len() > 5);
        let mut first = 0;
        let ends = (0..index.len()).map(|i| {
            let last = lonely_keys().iter().position(|key| index.key(i) == &key[..]);
            (std::mem::replace(&mut first, last.expect("a key") + 1), last.expect("a key") + 1)
        });
        let filters = partitions.iter().map(|(_, contents)| contents.clone());
        filters.zip(ends).map(|(filter, (first, end))| (filter, first, end)).collect()
    }

    /// Asks a partition for the prefixes of the keys with these indexes.
    fn holds_prefixes(filter: &[u8], places: impl IntoIterator<Item = usize>) -> bool {
        let reader = FilterReader::for_name("rocksdb.BuiltinBloomFilter", &[]).expect("built in");
        let keys = lonely_keys();
        places.into_iter().all(|place| {
            let prefix = &keys[place][..LONELY_PREFIX_BYTES];
            reader.may_contain(filter, &KeyHash::new(prefix))
        })
    }

    #[test]
    fn a_partition_holds_the_next_keys_prefix() {
        for whole_keys in [true, false] {
            let partitions = lonely_partitions(whole_keys);
            let (_, inner) = partitions.split_last().expect("partitions");
            assert!(inner.iter().all(|(filter, _, next)| holds_prefixes(filter, [*next])));
        }
    }

    #[test]
    fn a_partition_holds_the_previous_keys_prefix() {
        for whole_keys in [true, false] {
            for (filter, first, _) in &lonely_partitions(whole_keys)[1..] {
                assert!(holds_prefixes(filter, [first - 1]));
            }
        }
    }

    /// The prefix that ended the last partition must not count as a repeat in the new one.
    #[test]
    fn repeats_are_dropped_within_a_partition() {
        for whole_keys in [true, false] {
            for (filter, first, end) in lonely_partitions(whole_keys) {
                assert!(holds_prefixes(&filter, first..end));
            }
        }
    }

    /// Room for 153 entries at 200 bytes: with one more a partition would need another line.
    #[test]
    fn partitions_reserve_room_for_a_prefix() {
        let partitions = lonely_partitions(false);
        let (_, inner) = partitions.split_last().expect("partitions");
        assert!(inner.iter().all(|(filter, _, _)| filter.len() == 197));
        let one_key = Encoding::LevelDbBloom { bits_per_key: 10 };
        let builder = |encoding: &Encoding, bytes| {
            let keys = encoding.builder();
            PartitionedBuilder::with_partition_bytes(keys, with_prefixes(true), bytes)
                .keys_per_partition
        };
        assert_eq!((builder(&FAST, 200), builder(&one_key, 1)), (152, 1));
    }

    #[test]
    fn keys_past_the_end_ask_the_last_partition() {
        let builder =
            PartitionedBuilder::with_partition_bytes(FAST.builder(), with_prefixes(true), 200);
        let (sink, summary) = finish(builder, lonely_keys(), true);
        let (file, reader) = (sink.file(true), reader(summary.expect("a filter").handle));
        let may_contain = |prefix: &[u8], from: &[u8]| {
            let from = LookupKey::new(from, SEQUENCE_MAX);
            let io = &mut TableIo::default();
            reader.may_contain(&file, &from, &KeyHash::new(prefix), io).expect("asked")
        };
        // Where a backward scan from above the last key begins.
        assert!(may_contain(b"0999", b"0999-z") && may_contain(b"0999", b"z"));
        assert!(!may_contain(b"0000", b"0999-z"));
    }

    #[test]
    fn unreadable_partitions_are_not_consulted() {
        let (sink, summary) = build(69, vector_keys(200, 1), true);
        let handle = summary.expect("a filter").handle;
        let key = b"p00-00000";
        for damaged in [0usize, sink.blocks.len() - 1] {
            let mut broken = sink.clone();
            broken.bytes[broken.blocks[damaged].0.offset as usize + 3] ^= 1;
            let file = broken.file(true);
            let mut reader = reader(handle);
            let mut io = TableIo::default();
            for round in 1..=3 {
                assert_eq!(ask(&reader, &file, key, &mut io), FilterVerdict::NotConsulted);
                assert_eq!(io.filter_errors, round);
                reader.partitions.pin(&file, &mut TableIo::default());
            }
            // The last partition is sound; it is reached iff the index is.
            let last = ask(&reader, &file, b"p05-00199", &mut io);
            assert_eq!(last == FilterVerdict::Maybe, damaged == 0);
        }
    }

    #[test]
    fn an_empty_partition_is_not_consulted() {
        let mut sink = Sink::default();
        let mut index = BlockBuilder::new(1);
        let mut value = Vec::new();
        sink.write_raw(&[], BlockKind::Filter).expect("written").encode(&mut value);
        index.add(b"key", &value);
        let handle = sink.write_raw(index.finish(), BlockKind::FilterIndex).expect("written");
        // An index of no partitions is as useless as a damaged one.
        let empty =
            sink.write_raw(BlockBuilder::new(1).finish(), BlockKind::FilterIndex).expect("written");
        let file = sink.file(true);
        for handle in [handle, empty] {
            let mut io = TableIo::default();
            let verdict = ask(&reader(handle), &file, b"key", &mut io);
            assert_eq!((verdict, io.filter_errors), (FilterVerdict::NotConsulted, 1));
        }
    }

    /// Opened with index and partitions pinned.
    fn pinned_reader(file: &TableFile, handle: BlockHandle) -> PartitionedReader {
        let mut reader = reader(handle);
        reader.partitions.pin(file, &mut TableIo::default());
        reader.pin_partitions(file);
        reader
    }

    #[test]
    fn pinned_partitions_answer_without_a_block() {
        let (sink, summary) = build(200, vector_keys(1000, 1), true);
        let file = sink.file(true);
        let reader = pinned_reader(&file, summary.expect("a filter").handle);
        let partitions = sink.blocks.len() as u64 - 1;
        let reserved = file.cache.reserved_bytes();
        assert!(partitions > 5 && reserved > partitions * 197, "{reserved} bytes");
        let mut io = TableIo::default();
        let denied = vector_keys(1000, 1).filter(|key| {
            assert_eq!(ask(&reader, &file, key, &mut io), FilterVerdict::Maybe);
            ask(&reader, &file, &[key, &b"+"[..]].concat(), &mut io) == FilterVerdict::No
        });
        assert!(denied.count() > 970);
        assert_eq!(io, TableIo::default());
        drop(reader);
        assert_eq!(file.cache.reserved_bytes(), 0);
    }

    /// Damages a byte of each partition: that partition is not consulted, and the others answer.
    #[test]
    fn damaged_partitions_are_not_pinned() {
        let (sink, summary) = build(69, vector_keys(300, 1), true);
        let handle = summary.expect("a filter").handle;
        for damaged in 0..sink.blocks.len() - 1 {
            let mut broken = sink.clone();
            broken.bytes[broken.blocks[damaged].0.offset as usize + 13 * damaged % 69] ^= 0x20;
            let file = broken.file(true);
            let reader = pinned_reader(&file, handle);
            let mut io = TableIo::default();
            let verdicts: Vec<_> =
                vector_keys(300, 1).map(|key| ask(&reader, &file, &key, &mut io)).collect();
            let unasked = |verdict: &&FilterVerdict| **verdict == FilterVerdict::NotConsulted;
            let unasked = verdicts.iter().filter(unasked).count();
            assert!((1..=51).contains(&unasked), "{unasked} keys of partition {damaged}");
            assert!(!verdicts.contains(&FilterVerdict::No));
            assert_eq!(
                (io.filter_errors as usize, io.filter_read + io.filter_cached),
                (unasked, 0)
            );
        }
    }

    #[test]
    fn unpinned_partitions_come_through_the_cache() {
        let (sink, summary) = build(69, vector_keys(300, 1), true);
        let handle = summary.expect("a filter").handle;
        let file = sink.file(true);
        let rest = file.cache.try_reserve((1 << 19) - 100).expect("room");
        let reader = pinned_reader(&file, handle);
        let mut io = TableIo::default();
        assert_eq!(ask(&reader, &file, b"p00-00007", &mut io), FilterVerdict::Maybe);
        assert_eq!(io.filter_read, 1);
        drop(rest);

        // The same partitions under an index that names every second one.
        let mut gaps = sink.clone();
        let mut index = BlockBuilder::new(1);
        for (i, (handle, _)) in sink.blocks.iter().enumerate().take(5).step_by(2) {
            let mut value = Vec::new();
            handle.encode(&mut value);
            index.add(format!("p0{i}").as_bytes(), &value);
        }
        let handle = gaps.write_raw(index.finish(), BlockKind::FilterIndex).expect("written");
        let file = gaps.file(true);
        let reader = pinned_reader(&file, handle);
        assert_eq!(file.cache.reserved_bytes(), 0);
        let mut io = TableIo::default();
        ask(&reader, &file, b"p00-00007", &mut io);
        assert_eq!((io.filter_read, io.filter_errors), (1, 0));
    }
}
