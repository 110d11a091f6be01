//! An iterator over the entries of a sorted run of tables of LevelDB or RocksDB.

use crate::block::BlockEntries;
use crate::damage::Damage;
use crate::error;
use crate::internal_key::split;
use crate::key_order::KeyOrder;
use crate::store::EntryKind;
use crate::table::{DataBlocks, Table};
use siftdb::env::Env;
use siftdb::{Error, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// The facts of the manifest about a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableFacts {
    pub level: usize,
    pub bytes: u64,
    /// The internal keys at both ends.
    pub smallest: Vec<u8>,
    pub largest: Vec<u8>,
    /// RocksDB: the largest sequence number, which an ingested table has for all its entries.
    pub largest_sequence: Option<u64>,
    /// RocksDB: some of its values are in blob files.
    pub has_blobs: bool,
}

/// A table that is yet to be opened.
#[derive(Clone, Debug)]
pub(crate) struct TableFile {
    pub path: PathBuf,
    /// The manifest's facts about it; `None` if they are not compared.
    pub expected: Option<TableFacts>,
    /// The order of its keys.
    pub order: KeyOrder,
}

impl TableFile {
    /// Its level; 0 if the manifest's facts are not compared.
    pub(crate) fn level(&self) -> usize {
        self.expected.as_ref().map_or(0, |facts| facts.level)
    }
}

/// Tables by level, with the manifest's facts about each.
pub(crate) type Levels<'f> = BTreeMap<usize, Vec<(&'f TableFacts, TableFile)>>;

/// Sorted runs of tables: those of level 0 one by one, then each deeper level.
pub(crate) fn sorted_runs(mut levels: Levels<'_>, order: KeyOrder) -> Vec<Vec<TableFile>> {
    let alone = levels.remove(&0).unwrap_or_default().into_iter().map(|(_, file)| vec![file]);
    let mut runs: Vec<_> = alone.collect();
    for mut tables in levels.into_values() {
        tables.sort_by(|(a, _), (b, _)| order.compare_internal(&a.smallest, &b.smallest));
        runs.push(tables.into_iter().map(|(_, file)| file).collect());
    }
    runs
}

/// A table, and what its store knows besides.
#[derive(Debug)]
pub(crate) struct OpenTable {
    pub table: Table,
    /// RocksDB: the sequence number of all entries of an ingested table.
    pub global_sequence: Option<u64>,
    /// Its first and last key are those that the manifest names. In RocksDB these may be the ends
    /// of range deletes.
    pub has_exact_ends: bool,
    /// The number of its entries, if the table says it.
    pub entries: Option<u64>,
}

/// Opens a table, and compares its size with what the manifest says.
pub(crate) type Opener = fn(&dyn Env, &TableFile) -> Result<OpenTable>;

/// The entries of a sorted run of tables, one of which is open at a time.
#[derive(Debug)]
pub(crate) struct TableRun {
    env: Arc<dyn Env>,
    opener: Opener,
    files: Vec<TableFile>,
    damage: Damage,
    /// The index of the table after the open one.
    next_file: usize,
    table: Option<(OpenTable, DataBlocks)>,
    block: Option<BlockEntries>,
    /// The current key, with the global sequence if there is one. It stays to check the order.
    pub key: Vec<u8>,
    /// Room for the next one.
    next_key: Vec<u8>,
    /// How many entries of the open table were read.
    read: u64,
}

impl TableRun {
    /// Before the first entry.
    pub(crate) fn new(
        env: &Arc<dyn Env>,
        opener: Opener,
        files: Vec<TableFile>,
        damage: &Damage,
    ) -> Self {
        TableRun {
            env: Arc::clone(env),
            opener,
            files,
            damage: damage.clone(),
            next_file: 0,
            table: None,
            block: None,
            key: Vec::new(),
            next_key: Vec::new(),
            read: 0,
        }
    }

    /// Moves to the next entry; false after the last. After an error it must not be used again.
    ///
    /// # Errors
    /// `Io`; `Corruption` and `Missing`, unless damage is noted.
    pub(crate) fn next(&mut self) -> Result<bool> {
        loop {
            match self.advance_in_block() {
                Ok(true) => return Ok(true),
                Ok(false) => self.block = None,
                // The rest of the block is not read.
                Err(error) => {
                    self.block = None;
                    self.damage.pass(error)?;
                }
            }
            match self.load_block() {
                Ok(true) => {}
                Ok(false) => {
                    self.table = None;
                    if self.next_file == self.files.len() {
                        return Ok(false);
                    }
                    self.open_table().or_else(|error| self.damage.pass(error))?;
                }
                Err(error) => self.damage.pass(error)?,
            }
        }
    }

    fn advance_in_block(&mut self) -> Result<bool> {
        let stepped = self.block.as_mut().map_or(Ok(false), BlockEntries::next);
        let Some(block) = &self.block else { return Ok(false) };
        let Some((open, blocks)) = &self.table else { return Ok(false) };
        let wrong = |what: &str| open.table.damage(blocks.handle(), what);
        if !stepped.map_err(|what| wrong(&what))? {
            return Ok(false);
        }
        let key = with_sequence(&block.key, open.global_sequence);
        let kind =
            key.and_then(|(_, trailer)| EntryKind::of_number(open.table.file.store, trailer as u8));
        let (Some((user_key, trailer)), Some(_)) = (key, kind) else {
            return Err(wrong("a key that its store does not write"));
        };
        let key = &mut self.next_key;
        user_key.clone_into(key);
        key.extend_from_slice(&trailer.to_le_bytes());
        let order = open.table.style.order;
        if !self.key.is_empty() && order.compare_internal(&self.key, key).is_ge() {
            return Err(wrong("keys out of order"));
        }
        // The keys in between are checked by their order alone.
        if let Some(TableFacts { smallest, largest, .. }) = expected_of(&self.files, self.next_file)
            && (order.compare_internal(key, smallest).is_lt()
                || order.compare_internal(key, largest).is_gt()
                || self.read == 0 && open.has_exact_ends && key != smallest)
        {
            return Err(wrong("keys beyond what the manifest says of this table"));
        }
        std::mem::swap(&mut self.key, &mut self.next_key);
        self.read += 1;
        Ok(true)
    }

    /// After the last block: it must end with the largest key that the manifest names, and have as
    /// many entries as it says.
    fn check_end(&self, open: &OpenTable) -> Result<()> {
        let at = open.table.file.blocks_end;
        if let Some(expected) = expected_of(&self.files, self.next_file)
            && open.has_exact_ends
            && self.key != expected.largest
        {
            let what = "the table ends before the largest key that the manifest names";
            return Err(open.table.file.damage(at, what));
        }
        match open.entries {
            Some(entries) if entries != self.read && !self.damage.is_noted => {
                let what = format!("the table says {entries} entries, it has {}", self.read);
                Err(open.table.file.damage(at, what))
            }
            _ => Ok(()),
        }
    }

    /// Reads the next block of the open table; false if there is none.
    fn load_block(&mut self) -> Result<bool> {
        // The table is taken out first, because an error of the index ends it.
        let Some((open, mut blocks)) = self.table.take() else { return Ok(false) };
        if !blocks.next(&open.table)? {
            return self.check_end(&open).map(|()| false);
        }
        let block = open.table.entries(blocks.handle());
        self.table = Some((open, blocks));
        self.block = Some(block?);
        Ok(true)
    }

    fn open_table(&mut self) -> Result<()> {
        let Some(file) = self.files.get(self.next_file) else { return Ok(()) };
        self.next_file += 1;
        self.read = 0;
        match (self.opener)(&*self.env, file) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Err(error::missing(&file.path, "the manifest names this table"))
            }
            opened => {
                let open = opened?;
                let blocks = DataBlocks::open(&open.table)?;
                self.table = Some((open, blocks));
                Ok(())
            }
        }
    }

    /// The value of the entry.
    pub(crate) fn value(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], BlockEntries::value)
    }
}

/// The manifest's facts about the table before `next_file`; `None` if they are not compared.
fn expected_of(files: &[TableFile], next_file: usize) -> Option<&TableFacts> {
    files.get(next_file.checked_sub(1)?)?.expected.as_ref()
}

/// The user key and the trailer of an internal key, with another sequence number if one is given.
fn with_sequence(internal_key: &[u8], sequence: Option<u64>) -> Option<(&[u8], u64)> {
    let (user_key, trailer) = split(internal_key)?;
    Some((user_key, sequence.map_or(trailer, |sequence| sequence << 8 | trailer & 0xff)))
}
