//! Checks a table of LevelDB or RocksDB: every block, the order of keys, the filter, the
//! properties.

use crate::block_handle::{BLOCK_TRAILER_BYTES, BlockHandle};
use crate::filter::{FilterLayoutKind, TableFilter};
use crate::internal_key::split;
use crate::rocksdb::table::RocksParts;
use crate::store::EntryKind;
use crate::table::{Table, TableEntries};
use siftdb::Result;

/// Counts of a table's contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableCounts {
    /// Entries, range deletes left out.
    pub entries: u64,
    /// Different keys.
    pub keys: u64,
    /// Entries that delete their key.
    pub deletions: u64,
    /// Operands of merges.
    pub merges: u64,
    /// Range deletes.
    pub range_deletes: u64,
    /// Data blocks.
    pub data_blocks: u64,
    /// Bytes of data blocks, with compression and checksum.
    pub data_bytes: u64,
    /// Bytes of the filter, with partitions and their index, without checksums.
    pub filter_bytes: u64,
    /// Partitions of the filter; 0 in other layouts.
    pub filter_partitions: u64,
    /// Smallest sequence number of entries and range deletes; 0 without any.
    pub smallest_sequence: u64,
    /// Largest sequence number of entries and range deletes; 0 without any.
    pub largest_sequence: u64,
    /// Bytes of internal keys and of values, range deletes included.
    raw_key_bytes: u64,
    raw_value_bytes: u64,
}

/// Checks every block, entry and filter of a table. See `ForeignTable::verify`.
pub(crate) fn verify(table: &Table, rocks: Option<&RocksParts>) -> Result<TableCounts> {
    let mut counts = TableCounts { smallest_sequence: u64::MAX, ..TableCounts::default() };
    check_named_blocks(table, rocks, &mut counts)?;
    check_entries(table, &mut counts)?;
    if let Some(rocks) = rocks {
        check_range_deletes(table, rocks, &mut counts)?;
        check_properties(table, rocks, &counts)?;
    }
    if counts.entries + counts.range_deletes == 0 {
        counts.smallest_sequence = 0;
    }
    Ok(counts)
}

/// Reads the metaindex and every block that it names.
fn check_named_blocks(
    table: &Table,
    rocks: Option<&RocksParts>,
    counts: &mut TableCounts,
) -> Result<()> {
    let mut named = table.metaindex()?;
    let mut last: Option<Vec<u8>> = None;
    while named.next(&table.file)? {
        if last.as_deref().is_some_and(|last| last >= named.name()) {
            return Err(table.damage(table.metaindex, "names of blocks out of order"));
        }
        last = Some(named.name().to_vec());
        let handle = named.handle;
        // The properties have a check of their own, because RocksDB changes them in place. Opening
        // the table did it.
        if rocks.is_some_and(|rocks| rocks.properties_at == handle) {
            continue;
        }
        table.file.check(handle)?;
        let Some((layout, _)) = FilterLayoutKind::of_name(named.name()) else { continue };
        counts.filter_bytes += handle.size;
        if layout == FilterLayoutKind::Partitioned {
            check_filter_partitions(table, handle, counts)?;
        }
    }
    Ok(())
}

fn check_filter_partitions(
    table: &Table,
    index: BlockHandle,
    counts: &mut TableCounts,
) -> Result<()> {
    let mut partitions = table.partitions(index)?;
    while partitions.next(table)? {
        table.file.check(partitions.handle())?;
        counts.filter_partitions += 1;
        counts.filter_bytes += partitions.handle().size;
    }
    Ok(())
}

fn check_entries(table: &Table, counts: &mut TableCounts) -> Result<()> {
    let mut filter = TableFilter::open(table)?;
    let mut entries = TableEntries::open(table)?;
    let mut last_key: Option<Vec<u8>> = None;
    while entries.next_block(table)? {
        let handle = entries.blocks.handle();
        counts.data_blocks += 1;
        counts.data_bytes += handle.size + BLOCK_TRAILER_BYTES as u64;
        let mut is_first = true;
        while entries.next(table)? {
            let (key, trailer) = split(entries.key()).unwrap_or_default();
            if is_first && entries.blocks.first_key().is_some_and(|first| first != entries.key()) {
                return Err(table.damage(handle, "a first key that is not what the index says"));
            }
            is_first = false;
            counts.add(entries.kind(table)?, trailer >> 8, entries.key(), entries.value());
            if last_key.as_deref() == Some(key) {
                continue;
            }
            counts.keys += 1;
            if let Some(filter) = &mut filter
                && filter.ask(table, key, handle.offset)? == Some(false)
            {
                return Err(table.damage(filter.handle, "the filter denies a key that is there"));
            }
            key.clone_into(last_key.get_or_insert_default());
        }
        if is_first {
            return Err(table.damage(handle, "a data block without entries"));
        }
    }
    Ok(())
}

fn check_range_deletes(table: &Table, rocks: &RocksParts, counts: &mut TableCounts) -> Result<()> {
    let Some(handle) = rocks.range_deletes else { return Ok(()) };
    let mut entries = table.entries(handle)?;
    while let Some((_, _, sequence)) = table.next_range_delete(handle, &mut entries)? {
        counts.range_deletes += 1;
        counts.add_bytes(sequence, &entries.key, entries.value());
    }
    Ok(())
}

/// Compares the numbers of the properties with those that were counted.
fn check_properties(table: &Table, rocks: &RocksParts, counts: &TableCounts) -> Result<()> {
    let deletions = counts.deletions + counts.range_deletes;
    let all = counts.entries + counts.range_deletes;
    let mut numbers = vec![
        ("rocksdb.num.entries", all),
        ("rocksdb.deleted.keys", deletions),
        ("rocksdb.merge.operands", counts.merges),
        ("rocksdb.num.range-deletions", counts.range_deletes),
        ("rocksdb.num.data.blocks", counts.data_blocks),
        ("rocksdb.raw.key.size", counts.raw_key_bytes),
        ("rocksdb.raw.value.size", counts.raw_value_bytes),
        ("rocksdb.filter.size", counts.filter_bytes),
    ];
    // RocksDB 7.8 wrote 0, whatever the version was.
    if rocks.properties.is_set("rocksdb.format.version") {
        numbers.push(("rocksdb.format.version", u64::from(rocks.version)));
    }
    if all > 0 {
        numbers.push(("rocksdb.key.smallest.seqno", counts.smallest_sequence));
        numbers.push(("rocksdb.key.largest.seqno", counts.largest_sequence));
    }
    for (name, counted) in numbers {
        if let Some(said) = rocks.properties.number(name)
            && said != counted
        {
            let what = format!("the property {name} is {said}, counted are {counted}");
            return Err(table.damage(rocks.properties_at, what));
        }
    }
    Ok(())
}

impl TableCounts {
    fn add(&mut self, kind: EntryKind, sequence: u64, key: &[u8], value: &[u8]) {
        self.entries += 1;
        self.deletions += u64::from(kind.is_deletion());
        self.merges += u64::from(kind == EntryKind::Merge);
        self.add_bytes(sequence, key, value);
    }

    fn add_bytes(&mut self, sequence: u64, key: &[u8], value: &[u8]) {
        self.raw_key_bytes += key.len() as u64;
        self.raw_value_bytes += value.len() as u64;
        self.smallest_sequence = self.smallest_sequence.min(sequence);
        self.largest_sequence = self.largest_sequence.max(sequence);
    }
}
