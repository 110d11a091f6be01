//! Traces lookups: which filters, indexes and data blocks of which tables each of them uses.
//!
//! Lookups work as in LevelDB and RocksDB. Keys of the logs are found first. Then tables whose keys
//! reach around the key are asked from the newest to the oldest, until one ends the lookup: an
//! operand of a merge does not. One table is open at a time. Its index is merged with the keys that
//! are looked up, and a data block is read only if the filter says "maybe", or if there is none.
//!
//! Range deletes end no lookup here, though they may in RocksDB.

use crate::block::BlockEntries;
use crate::block_handle::{BLOCK_TRAILER_BYTES, BlockHandle};
use crate::filter::TableFilter;
use crate::internal_key::{split, user_key};
use crate::key_order::KeyOrder;
use crate::leveldb::database::LevelDb;
use crate::leveldb::table as leveldb;
use crate::lookup_trace::{LookupCounts, LookupTrace, TableVisit, TracedBlock};
use crate::merged::{Logged, ends_lookup};
use crate::rocksdb::database::{ColumnFamily, RocksDb};
use crate::rocksdb::table as rocksdb;
use crate::run::TableFile;
use crate::store::{EntryKind, Store};
use crate::table::{DataBlocks, Table};
use siftdb::Result;

/// As many tables of level 0 RocksDB asks whatever their keys are, if it has no others.
const UNCHECKED_TABLES: usize = 3;

impl LevelDb {
    /// Looks up `keys` as LevelDB would.
    ///
    /// # Errors
    /// `Io`; `Corruption` or `Missing`, unless the database was opened to salvage. Then a damaged
    /// table is asked as far as it can be read.
    pub fn trace_lookups(&self, keys: &[Vec<u8>]) -> Result<LookupTrace> {
        let mut tracer = Tracer::new(keys, KeyOrder::Bytewise);
        tracer.end_logged(&self.logged);
        for file in self.newest_first() {
            let traced = leveldb::open_expected(&*self.env, file)
                .and_then(|open| tracer.ask(&open.table, Ends::of(file)));
            tracer.end_table();
            traced.or_else(|error| self.damage.pass(error))?;
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
        let mut tracer = Tracer::new(keys, family.order);
        tracer.end_logged(&family.logged);
        let files = family.newest_first();
        let is_checked =
            files.len() > UNCHECKED_TABLES || files.iter().any(|file| file.level() > 0);
        for file in files {
            let ends = if is_checked { Ends::of(file) } else { Ends::Unchecked };
            let traced = rocksdb::open(&*self.env, &file.path, file.order)
                .and_then(|(table, _)| tracer.ask(&table, ends));
            tracer.end_table();
            traced.or_else(|error| self.damage.pass(error))?;
        }
        Ok(tracer.finish())
    }
}

/// Which keys a table is asked for.
pub(crate) enum Ends {
    /// Those between its first and its last user key, as the manifest has them.
    Known(Vec<u8>, Vec<u8>),
    /// Those between its first and its last key. The manifest does not have them, so the table is
    /// read.
    Read,
    /// All keys.
    Unchecked,
}

impl Ends {
    fn of(file: &TableFile) -> Self {
        match &file.expected {
            Some(facts) => {
                let of = |internal_key: &[u8]| user_key(internal_key).to_vec();
                Ends::Known(of(&facts.smallest), of(&facts.largest))
            }
            None => Ends::Read,
        }
    }
}

/// A trace in the making.
pub(crate) struct Tracer<'k> {
    trace: LookupTrace,
    order: KeyOrder,
    /// The different keys in their order. The number of a key is its position.
    sought: Vec<Sought<'k>>,
    /// The number of the table that is asked.
    table: u32,
}

/// A key that is looked up.
struct Sought<'k> {
    key: &'k [u8],
    /// How many lookups it has.
    lookups: u64,
    /// What was found ended them.
    has_ended: bool,
    /// The tables that they asked.
    visits: Vec<TableVisit>,
}

impl<'k> Tracer<'k> {
    /// Lookups of `keys`, before the first table.
    pub(crate) fn new(keys: &'k [Vec<u8>], order: KeyOrder) -> Self {
        let mut different: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        different.sort_unstable_by(|a, b| order.compare(a, b));
        different.dedup();
        let number = |key: &[u8]| different.partition_point(|one| order.compare(one, key).is_lt());
        let lookups: Vec<u32> = keys.iter().map(|key| number(key) as u32).collect();
        let sought = |key| Sought { key, lookups: 0, has_ended: false, visits: Vec::new() };
        let mut sought: Vec<_> = different.into_iter().map(sought).collect();
        lookups.iter().for_each(|&number| sought[number as usize].lookups += 1);
        let trace = LookupTrace { lookups, ..LookupTrace::default() };
        Tracer { trace, order, sought, table: 0 }
    }

    /// Ends the lookups of keys for which logs have what ends them.
    fn end_logged(&mut self, logged: &Logged) {
        for one in &mut self.sought {
            one.has_ended = ends_lookup(logged, one.key, self.order);
            self.trace.in_logs += if one.has_ended { one.lookups } else { 0 };
        }
    }

    /// Looks up the keys in the next table.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `UnsupportedFormat`.
    pub(crate) fn ask(&mut self, table: &Table, ends: Ends) -> Result<()> {
        self.trace.tables.push(LookupCounts::default());
        let numbers = match ends {
            Ends::Unchecked => 0..self.sought.len(),
            Ends::Known(first, last) => self.numbers(&first, &last),
            Ends::Read => match table.ends()? {
                Some((first, last)) => self.numbers(user_key(&first), user_key(&last)),
                None => return Ok(()),
            },
        };
        if numbers.clone().all(|number| self.sought[number].has_ended) {
            return Ok(());
        }
        let mut lookups = TableLookups::open(table, self.table)?;
        // Keys that were sought in the open block up to its end.
        let mut beyond: Vec<usize> = Vec::new();
        for number in numbers {
            let Sought { key, has_ended: false, .. } = self.sought[number] else { continue };
            if !lookups.is_at(key) {
                lookups.next_block()?;
                self.go_on(std::mem::take(&mut beyond), &mut lookups)?;
                lookups.go_to(key)?;
            }
            let visit = lookups.visit(&mut self.trace.blocks, key)?;
            let sought = &mut self.sought[number];
            sought.has_ended = lookups.has_end;
            if let Some(counts) = self.trace.tables.last_mut() {
                counts.add_visit(&visit, sought.lookups);
            }
            if lookups.is_beyond {
                beyond.push(number);
            }
            sought.visits.push(visit);
        }
        if !beyond.is_empty() {
            lookups.next_block()?;
            self.go_on(beyond, &mut lookups)?;
        }
        Ok(())
    }

    /// Lets the lookups of these keys go on in the block that is open now. Where the index has the
    /// first keys of blocks, it says itself that this block does not have them.
    fn go_on(&mut self, keys: Vec<usize>, lookups: &mut TableLookups<'_>) -> Result<()> {
        if keys.is_empty() || lookups.is_at_end || lookups.blocks.first_key().is_some() {
            return Ok(());
        }
        let at = lookups.blocks.handle();
        let next = lookups.number_of(&mut self.trace.blocks, DATA, at, None)?;
        for key in keys {
            if let Some(visit) = self.sought[key].visits.last_mut() {
                visit.next_data = Some(next);
            }
        }
        Ok(())
    }

    /// The numbers of the keys from the first to the last.
    fn numbers(&self, first: &[u8], last: &[u8]) -> std::ops::Range<usize> {
        let order = self.order;
        let from = self.sought.partition_point(|one| order.compare(one.key, first).is_lt());
        let to = self.sought.partition_point(|one| order.compare(one.key, last).is_le());
        from..to.max(from)
    }

    /// Ends the current table, after [`ask`](Self::ask) or an error.
    pub(crate) fn end_table(&mut self) {
        self.table += 1;
        self.trace.tables.resize(self.table as usize, LookupCounts::default());
    }

    /// The lookups, after all tables.
    pub(crate) fn finish(self) -> LookupTrace {
        let visits = self.sought.into_iter().map(|one| one.visits).collect();
        LookupTrace { visits, ..self.trace }
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
    /// The data block at `blocks` with whether it is at an entry, if a lookup read it.
    data: Option<(BlockEntries, bool)>,
    /// The last visit found what ends the lookup: a value or a deletion.
    has_end: bool,
    /// The last visit read its block up to the end without finding the key: the key is between the
    /// last key of the block and its separator. RocksDB reads the next block then.
    is_beyond: bool,
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
            data: None,
            has_end: false,
            is_beyond: false,
            last: [None; 3],
        })
    }

    /// Whether the index says that `key` is in the open block, or in none.
    fn is_at(&self, key: &[u8]) -> bool {
        self.is_at_end || !self.blocks.is_first && self.blocks.reaches(self.table.style, key)
    }

    /// Opens the next data block.
    fn next_block(&mut self) -> Result<()> {
        self.data = None;
        self.is_at_end = !self.blocks.next(self.table)?;
        Ok(())
    }

    /// Opens the data block that the index has for `key`.
    fn go_to(&mut self, key: &[u8]) -> Result<()> {
        while !self.is_at(key) {
            self.next_block()?;
        }
        Ok(())
    }

    /// Looks up the next key, whose block is open.
    fn visit(&mut self, blocks: &mut Vec<TracedBlock>, key: &[u8]) -> Result<TableVisit> {
        let at = self.blocks.handle();
        let may_contain = match &mut self.filter {
            Some(filter) => filter.ask(self.table, key, at.offset)?,
            None => None,
        };
        let filter = match self.filter.as_ref().and_then(TableFilter::block) {
            Some(at) => Some(self.number_of(blocks, FILTER, at, Some(at.size))?),
            None => None,
        };
        let (index, bytes) = (self.blocks.named_in, self.blocks.index_block_bytes() as u64);
        let index = self.number_of(blocks, INDEX, index, Some(bytes))?;
        let (first, order) = (self.blocks.first_key().map(user_key), self.table.style.order);
        let may_have =
            !self.is_at_end && first.is_none_or(|first| order.compare(first, key).is_le());
        let data = if may_have { Some(self.number_of(blocks, DATA, at, None)?) } else { None };
        (self.has_end, self.is_beyond) = (false, false);
        let mut has_key = false;
        if let Some(data) = data.filter(|_| may_contain != Some(false)) {
            let bytes;
            (has_key, bytes) = self.find(key)?;
            if let Some(block) = blocks.get_mut(data as usize) {
                block.memory_bytes = Some(u32::try_from(bytes).unwrap_or(u32::MAX));
            }
        }
        let table = self.number;
        Ok(TableVisit { table, filter, may_contain, index, data, next_data: None, has_key })
    }

    /// The number of a block. Lookups of ascending keys come back to none but the last one.
    fn number_of(
        &mut self,
        blocks: &mut Vec<TracedBlock>,
        part: usize,
        handle: BlockHandle,
        memory_bytes: Option<u64>,
    ) -> Result<u32> {
        if let Some((last, number)) = self.last[part]
            && last == handle
        {
            return Ok(number);
        }
        self.table.file.expect_within(handle)?;
        let number = blocks.len() as u32;
        self.last[part] = Some((handle, number));
        let bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        blocks.push(TracedBlock {
            table: self.number,
            offset: handle.offset,
            file_bytes: bytes(handle.size + BLOCK_TRAILER_BYTES as u64),
            memory_bytes: memory_bytes.map(bytes),
        });
        Ok(number)
    }

    /// Whether the block has the key, and the bytes of the block.
    fn find(&mut self, key: &[u8]) -> Result<(bool, usize)> {
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
        while *is_at_entry && order.compare(user_key(&entries.key), key).is_lt() {
            *is_at_entry = entries.next().map_err(damage)?;
        }
        // LevelDB searches one block only.
        self.is_beyond = !*is_at_entry && self.table.file.store == Store::RocksDb;
        let mut has_key = false;
        // The newest version comes first; older ones than operands of merges count as well.
        while *is_at_entry && !self.has_end && user_key(&entries.key) == key {
            let (_, trailer) = split(&entries.key).unwrap_or_default();
            match EntryKind::of_number(self.table.file.store, trailer as u8) {
                None => return Err(damage("an entry of an unknown kind".into())),
                Some(EntryKind::Merge) => *is_at_entry = entries.next().map_err(damage)?,
                Some(_) => self.has_end = true,
            }
            has_key = true;
        }
        Ok((has_key, entries.bytes()))
    }
}
