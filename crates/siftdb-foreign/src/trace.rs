//! The blocks that lookups use: filters, indexes and data of the tables that each lookup asks.
//!
//! Lookups work as in LevelDB and RocksDB. Keys of the logs are found first. Then tables whose keys
//! reach around the key are asked from the newest to the oldest, until one has it. One table is
//! open at a time. Its index is merged with the keys that are looked up, and a data block is read
//! only if the filter says "maybe", or if there is none.
//!
//! Range deletes end no lookup here, though they may in RocksDB.

use crate::block::BlockEntries;
use crate::block_handle::{BLOCK_TRAILER_BYTES, BlockHandle};
use crate::filter::TableFilter;
use crate::internal_key::{split, user_key};
use crate::key_order::KeyOrder;
use crate::leveldb::database::LevelDb;
use crate::leveldb::table as leveldb;
use crate::rocksdb::database::{ColumnFamily, RocksDb};
use crate::rocksdb::table as rocksdb;
use crate::run::TableFile;
use crate::store::EntryKind;
use crate::table::{DataBlocks, Table};
use siftdb::Result;

/// Lookups of keys, and what each of them used.
#[derive(Clone, Debug, Default)]
pub struct LookupTrace {
    tables: Vec<LookupCounts>,
    blocks: Vec<TracedBlock>,
    /// Of each different key, in their order.
    visits: Vec<Vec<TableVisit>>,
    /// Of each lookup the number of its key.
    lookups: Vec<u32>,
    in_logs: u64,
}

/// What lookups did in one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LookupCounts {
    /// Lookups that asked the table.
    pub lookups: u64,
    /// Lookups that found something in it, a deletion included. After an operand of a merge a
    /// lookup goes on in older tables.
    pub found: u64,
    /// Its filter said "no".
    pub negatives: u64,
    /// Its filter said "maybe", and the table has the key.
    pub true_positives: u64,
    /// Its filter said "maybe", and the table does not have the key.
    pub false_positives: u64,
    /// Data blocks that lookups read.
    pub blocks_read: u64,
}

/// A block that lookups use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TracedBlock {
    /// The number of its table, in the order of the lookups.
    pub table: u32,
    /// Its first byte in the file.
    pub offset: u64,
    /// What is read of the file, with compression and checksum.
    pub file_bytes: u32,
    /// Its bytes in memory; `None` for a data block that no lookup read.
    pub memory_bytes: Option<u32>,
}

/// What a lookup used of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableVisit {
    /// The number of the table, in the order of the lookups.
    pub table: u32,
    /// The block of its filter, as a number in [`LookupTrace::blocks`]; `None` if none is asked.
    pub filter: Option<u32>,
    /// What the filter said.
    pub may_contain: Option<bool>,
    /// The block of its index that names the data block.
    pub index: u32,
    /// The only data block that may have the key; `None` if the index already says no.
    pub data: Option<u32>,
    /// Whether the table has the key, deletions included.
    pub has_key: bool,
}

impl LookupTrace {
    /// What the lookups did in each table, in the order in which tables are asked.
    #[must_use]
    pub fn tables(&self) -> &[LookupCounts] {
        &self.tables
    }

    /// The blocks that lookups use, also those that a filter saved them from reading.
    #[must_use]
    pub fn blocks(&self) -> &[TracedBlock] {
        &self.blocks
    }

    /// The number of different keys.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.visits.len()
    }

    /// The lookups in the order of their keys: the number of the different key, counted in
    /// ascending order, and the tables that it asks.
    pub fn lookups(&self) -> impl ExactSizeIterator<Item = (u32, &[TableVisit])> {
        self.lookups
            .iter()
            .map(|&key| (key, self.visits.get(key as usize).map_or(&[][..], Vec::as_slice)))
    }

    /// Lookups that found something, a deletion included.
    #[must_use]
    pub fn found(&self) -> u64 {
        let has_key = |visits: &[TableVisit]| visits.iter().any(|visit| visit.has_key);
        self.in_logs + self.lookups().filter(|(_, visits)| has_key(visits)).count() as u64
    }

    /// Lookups that found something in the logs, so they asked no table.
    #[must_use]
    pub fn found_in_logs(&self) -> u64 {
        self.in_logs
    }
}

impl LevelDb {
    /// Looks up `keys` as LevelDB would.
    ///
    /// # Errors
    /// `Io`; `Corruption` or `Missing`, unless the database was opened to salvage. Then a damaged
    /// table is asked as far as it can be read.
    pub fn trace_lookups(&self, keys: &[Vec<u8>]) -> Result<LookupTrace> {
        let mut tracer = Tracer::new(keys, KeyOrder::Bytewise);
        tracer.take_logged(|key| self.is_logged(key));
        for file in self.newest_first() {
            let bytes = file.expected.as_ref().map(|facts| facts.bytes);
            let traced = leveldb::open(&**self.env(), &file.path, bytes)
                .and_then(|table| tracer.ask(&table, ends_of(file)));
            tracer.end_table();
            if let Err(error) = traced {
                self.pass(error)?;
            }
        }
        Ok(tracer.finish())
    }
}

impl RocksDb {
    /// Looks up `keys` in a column family as RocksDB would.
    ///
    /// # Errors
    /// `Io`; `Corruption` or `Missing`, unless the database was opened to salvage. Then a damaged
    /// table is asked as far as it can be read.
    pub fn trace_lookups(&self, family: &ColumnFamily, keys: &[Vec<u8>]) -> Result<LookupTrace> {
        let mut tracer = Tracer::new(keys, family.order());
        tracer.take_logged(|key| family.is_logged(key));
        for file in family.newest_first() {
            let traced = rocksdb::open(&**self.env(), &file.path, file.order)
                .and_then(|(table, _)| tracer.ask(&table, ends_of(file)));
            tracer.end_table();
            if let Err(error) = traced {
                self.pass(error)?;
            }
        }
        Ok(tracer.finish())
    }
}

/// The user keys at both ends of a table, as the manifest has them.
fn ends_of(file: &TableFile) -> Option<(Vec<u8>, Vec<u8>)> {
    let facts = file.expected.as_ref()?;
    Some((owned(&facts.smallest), owned(&facts.largest)))
}

/// The user key of an internal key.
fn owned(internal_key: &[u8]) -> Vec<u8> {
    user_key(internal_key).to_vec()
}

/// A trace in the making.
pub(crate) struct Tracer<'k> {
    trace: LookupTrace,
    order: KeyOrder,
    /// The different keys that were not found so far, in their order, with their numbers.
    sought: Vec<(&'k [u8], u32)>,
    /// By number: how many lookups the key has.
    lookups_of: Vec<u64>,
    /// By number: whether the open table ends the lookup.
    ended: Vec<bool>,
    table: u32,
}

impl<'k> Tracer<'k> {
    /// Lookups of `keys`, before the first table.
    pub(crate) fn new(keys: &'k [Vec<u8>], order: KeyOrder) -> Self {
        let mut different: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        different.sort_unstable_by(|a, b| order.compare(a, b));
        different.dedup();
        let number =
            |key: &Vec<u8>| different.partition_point(|one| order.compare(one, key).is_lt());
        let lookups: Vec<u32> = keys.iter().map(|key| number(key) as u32).collect();
        let mut lookups_of = vec![0; different.len()];
        for &key in &lookups {
            if let Some(count) = lookups_of.get_mut(key as usize) {
                *count += 1;
            }
        }
        let visits = vec![Vec::new(); different.len()];
        let ended = vec![false; different.len()];
        let trace = LookupTrace { visits, lookups, ..LookupTrace::default() };
        let sought = different.into_iter().zip(0..).collect();
        Tracer { trace, order, sought, lookups_of, ended, table: 0 }
    }

    /// Ends the lookups of keys that the logs have.
    fn take_logged(&mut self, is_logged: impl Fn(&[u8]) -> bool) {
        let (trace, lookups_of) = (&mut self.trace, &self.lookups_of);
        self.sought.retain(|(key, number)| {
            let is_logged = is_logged(key);
            if is_logged {
                trace.in_logs += lookups_of.get(*number as usize).copied().unwrap_or_default();
            }
            !is_logged
        });
    }

    /// Looks up the keys in the next table. `ends` are its first and last key, if they are known.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `UnsupportedFormat`.
    pub(crate) fn ask(&mut self, table: &Table, ends: Option<(Vec<u8>, Vec<u8>)>) -> Result<()> {
        self.trace.tables.push(LookupCounts::default());
        let ends = match ends {
            Some(ends) => Some(ends),
            None => table.ends()?.map(|(first, last)| (owned(&first), owned(&last))),
        };
        let Some((first, last)) = ends else { return Ok(()) };
        let order = self.order;
        let from = self.sought.partition_point(|(key, _)| order.compare(key, &first).is_lt());
        let to = self.sought.partition_point(|(key, _)| order.compare(key, &last).is_le());
        let sought = self.sought.get(from..to).unwrap_or_default().to_vec();
        if sought.is_empty() {
            return Ok(());
        }
        let mut lookups = TableLookups::open(table, self.table)?;
        for (key, number) in sought {
            let visit = lookups.visit(&mut self.trace.blocks, key)?;
            let count = self.lookups_of.get(number as usize).copied().unwrap_or_default();
            let ends = visit.has_key && lookups.kind != Some(EntryKind::Merge);
            if let Some(counts) = self.trace.tables.last_mut() {
                counts.add_visit(&visit, count);
            }
            let number = number as usize;
            if let Some(visits) = self.trace.visits.get_mut(number) {
                visits.push(visit);
            }
            if let Some(ended) = self.ended.get_mut(number) {
                *ended = ends;
            }
        }
        Ok(())
    }

    /// Ends the lookups that the table ends, after [`ask`](Self::ask) or an error before it.
    pub(crate) fn end_table(&mut self) {
        self.table += 1;
        self.trace.tables.resize(self.table as usize, LookupCounts::default());
        let ended = &self.ended;
        self.sought.retain(|(_, number)| ended.get(*number as usize) != Some(&true));
    }

    /// The lookups, after all tables.
    pub(crate) fn finish(self) -> LookupTrace {
        self.trace
    }
}

impl LookupCounts {
    /// Adds what lookups did in another table.
    pub fn add(&mut self, other: &LookupCounts) {
        self.lookups += other.lookups;
        self.found += other.found;
        self.negatives += other.negatives;
        self.true_positives += other.true_positives;
        self.false_positives += other.false_positives;
        self.blocks_read += other.blocks_read;
    }

    /// The observed false-positive rate; `None` if no filter was asked for an absent key.
    #[must_use]
    pub fn observed_fpr(&self) -> Option<f64> {
        let absent = self.negatives + self.false_positives;
        (absent > 0).then(|| self.false_positives as f64 / absent as f64)
    }

    /// Adds this many lookups of a key.
    fn add_visit(&mut self, visit: &TableVisit, lookups: u64) {
        self.lookups += lookups;
        self.found += if visit.has_key { lookups } else { 0 };
        match (visit.may_contain, visit.has_key) {
            (Some(false), _) => self.negatives += lookups,
            (Some(true), true) => self.true_positives += lookups,
            (Some(true), false) => self.false_positives += lookups,
            (None, _) => {}
        }
        if visit.may_contain != Some(false) && visit.data.is_some() {
            self.blocks_read += lookups;
        }
    }
}

/// The lookups of ascending keys in an open table.
struct TableLookups<'t> {
    table: &'t Table,
    number: u32,
    filter: Option<TableFilter>,
    blocks: DataBlocks,
    /// The index has no more blocks.
    is_at_end: bool,
    is_begun: bool,
    /// The data block at `blocks`, if a lookup read it.
    data: Option<(BlockEntries, bool)>,
    /// The kind of the entry that the last visit found.
    kind: Option<EntryKind>,
    /// The numbers of the last blocks of filter, index and data.
    last: [Option<(BlockHandle, u32)>; 3],
}

/// Positions in [`TableLookups::last`].
const FILTER: usize = 0;
const INDEX: usize = 1;
const DATA: usize = 2;

impl<'t> TableLookups<'t> {
    fn open(table: &'t Table, number: u32) -> Result<Self> {
        Ok(TableLookups {
            table,
            number,
            filter: TableFilter::open(table)?.filter(TableFilter::is_asked),
            blocks: DataBlocks::open(table)?,
            is_at_end: false,
            is_begun: false,
            data: None,
            kind: None,
            last: [None; 3],
        })
    }

    /// Looks up the next key, which is not below the last one.
    fn visit(&mut self, blocks: &mut Vec<TracedBlock>, key: &[u8]) -> Result<TableVisit> {
        self.go_to(key)?;
        let at = self.blocks.handle();
        let may_contain = match &mut self.filter {
            Some(filter) => filter.ask(self.table, key, at.offset)?,
            None => None,
        };
        let filter = self.filter.as_ref().and_then(TableFilter::block);
        let filter = filter.map(|at| self.number_of(blocks, FILTER, at, Some(at.size)));
        let index = self.blocks.index_block();
        let bytes = self.blocks.index_block_bytes() as u64;
        let index = self.number_of(blocks, INDEX, index, Some(bytes));
        let (first, order) = (self.blocks.first_key().map(user_key), self.table.style.order);
        let may_have =
            !self.is_at_end && first.is_none_or(|first| order.compare(first, key).is_le());
        let data = may_have.then(|| self.number_of(blocks, DATA, at, None));
        self.kind = None;
        if may_contain != Some(false)
            && let Some(data) = data
        {
            let (kind, bytes) = self.find(key)?;
            self.kind = kind;
            if let Some(block) = blocks.get_mut(data as usize) {
                block.memory_bytes = Some(bytes as u32);
            }
        }
        let (table, has_key) = (self.number, self.kind.is_some());
        Ok(TableVisit { table, filter, may_contain, index, data, has_key })
    }

    /// Moves to the first data block that the index has for `key`.
    fn go_to(&mut self, key: &[u8]) -> Result<()> {
        while !(self.is_at_end || self.is_begun && self.blocks.reaches(self.table.style, key)) {
            self.data = None;
            self.is_at_end = !self.blocks.next(self.table)?;
            self.is_begun = true;
        }
        Ok(())
    }

    /// The number of a block. Lookups of ascending keys come back to none but the last one.
    fn number_of(
        &mut self,
        blocks: &mut Vec<TracedBlock>,
        part: usize,
        handle: BlockHandle,
        memory_bytes: Option<u64>,
    ) -> u32 {
        if let Some((last, number)) = self.last[part]
            && last == handle
        {
            return number;
        }
        let number = blocks.len() as u32;
        self.last[part] = Some((handle, number));
        blocks.push(TracedBlock {
            table: self.number,
            offset: handle.offset,
            file_bytes: handle.size as u32 + BLOCK_TRAILER_BYTES as u32,
            memory_bytes: memory_bytes.map(|bytes| bytes as u32),
        });
        number
    }

    /// The kind of the newest entry of `key` in the block, and the bytes of the block.
    fn find(&mut self, key: &[u8]) -> Result<(Option<EntryKind>, usize)> {
        let handle = self.blocks.handle();
        let damage = |what: String| self.table.damage(handle, what);
        let (entries, is_at_entry) = match &mut self.data {
            Some(data) => data,
            None => {
                let mut entries = self.table.entries(handle)?;
                let is_at_entry = entries.next().map_err(damage)?;
                self.data.insert((entries, is_at_entry))
            }
        };
        let order = self.table.style.order;
        while *is_at_entry && order.compare(user_key(entries.key()), key).is_lt() {
            *is_at_entry = entries.next().map_err(damage)?;
        }
        if !*is_at_entry || user_key(entries.key()) != key {
            return Ok((None, entries.bytes()));
        }
        let (_, trailer) = split(entries.key()).unwrap_or_default();
        match EntryKind::of_number(self.table.file.store, trailer as u8) {
            Some(kind) => Ok((Some(kind), entries.bytes())),
            None => Err(damage("an entry of an unknown kind".into())),
        }
    }
}
