//! An iterator over the entries of a sorted run of LevelDB's tables.

use crate::block::BlockEntries;
use crate::damage::Damage;
use crate::error;
use crate::internal_key::{compare, split};
use crate::leveldb::manifest::TableFacts;
use crate::leveldb::table::open;
use crate::table::{DataBlocks, Table};
use siftdb::env::Env;
use siftdb::{Error, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// A table that is yet to be opened.
#[derive(Clone, Debug)]
pub(crate) struct TableFile {
    pub path: PathBuf,
    /// The manifest's facts about it; `None` if they are not compared.
    pub expected: Option<TableFacts>,
}

/// The entries of a sorted run of tables, one of which is open at a time.
#[derive(Debug)]
pub(crate) struct TableRun {
    env: Arc<dyn Env>,
    files: Vec<TableFile>,
    damage: Damage,
    /// The index of the table after the open one.
    next_file: usize,
    table: Option<(Table, DataBlocks)>,
    block: Option<BlockEntries>,
    /// The key before, to check the order.
    last_key: Vec<u8>,
    /// No key of the open table was read yet.
    is_fresh: bool,
}

impl TableRun {
    /// Before the first entry.
    pub(crate) fn new(env: &Arc<dyn Env>, files: Vec<TableFile>, damage: &Damage) -> Self {
        TableRun {
            env: Arc::clone(env),
            files,
            damage: damage.clone(),
            next_file: 0,
            table: None,
            block: None,
            last_key: Vec::new(),
            is_fresh: true,
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
                    if let Err(error) = self.open_table() {
                        self.damage.pass(error)?;
                    }
                }
                Err(error) => self.damage.pass(error)?,
            }
        }
    }

    fn advance_in_block(&mut self) -> Result<bool> {
        let stepped = self.block.as_mut().map_or(Ok(false), BlockEntries::next);
        let Some(block) = &self.block else { return Ok(false) };
        let Some((table, blocks)) = &self.table else { return Ok(false) };
        let wrong = |what: &str| table.damage(blocks.handle(), what);
        if !stepped.map_err(|what| wrong(&what))? {
            return Ok(false);
        }
        let key = block.key();
        if split(key).is_none_or(|(_, trailer)| trailer as u8 > 1) {
            return Err(wrong("a key that LevelDB does not write"));
        }
        if !self.last_key.is_empty() && compare(&self.last_key, key).is_ge() {
            return Err(wrong("keys out of order"));
        }
        // The keys in between are checked by their order alone.
        if let Some(TableFacts { smallest, largest, .. }) = self.expected()
            && (self.is_fresh && key != smallest || compare(key, largest).is_gt())
        {
            return Err(wrong("keys beyond what the manifest says of this table"));
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.is_fresh = false;
        Ok(true)
    }

    /// After the last block: it must end with the largest key that the manifest names.
    fn check_end(&self, table: &Table) -> Result<()> {
        match self.expected() {
            Some(expected) if self.last_key != expected.largest => {
                let what = "the table ends before the largest key that the manifest names";
                Err(table.file.damage(table.file.blocks_end, what))
            }
            _ => Ok(()),
        }
    }

    /// The manifest's facts about the open table; `None` if they are not compared.
    fn expected(&self) -> Option<&TableFacts> {
        let file = self.next_file.checked_sub(1).and_then(|i| self.files.get(i))?;
        file.expected.as_ref()
    }

    /// Reads the next block of the open table; false if there is none.
    fn load_block(&mut self) -> Result<bool> {
        // The table is taken out first, because an error of the index ends it.
        let Some((table, mut blocks)) = self.table.take() else { return Ok(false) };
        if !blocks.next(&table)? {
            return self.check_end(&table).map(|()| false);
        }
        let block = table.entries(blocks.handle());
        self.table = Some((table, blocks));
        self.block = Some(block?);
        Ok(true)
    }

    fn open_table(&mut self) -> Result<()> {
        let Some(file) = self.files.get(self.next_file) else { return Ok(()) };
        self.next_file += 1;
        self.is_fresh = true;
        let expected = file.expected.as_ref().map(|facts| facts.bytes);
        match open(&*self.env, &file.path, expected) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Err(error::missing(&file.path, "the manifest names this table"))
            }
            opened => {
                let table = opened?;
                let blocks = DataBlocks::open(&table)?;
                self.table = Some((table, blocks));
                Ok(())
            }
        }
    }

    /// The internal key of the entry.
    pub(crate) fn key(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], BlockEntries::key)
    }

    /// The value of the entry.
    pub(crate) fn value(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], BlockEntries::value)
    }
}
