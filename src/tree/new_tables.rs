//! Tables that an edit adds, before it is logged: durable, then open.
//!
//! [`DurableTables`] is given out only by a sync of the tables' names, and [`NewTables`] only for
//! durable tables. An edit gets its tables from `NewTables` alone (`tree/set.rs`), so that no edit
//! can name a table that a crash may lose (I5). Both are made before the lock of versions is taken:
//! opening a table reads its filter and its index back.

use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::key::{KeyspaceId, SequenceNumber};
use crate::base::levels::LEVELS;
use crate::env::api::Env;
use crate::table::filter::layout::FilterPinning;
use crate::table::reader::{Expect, Table, TableContext};
use crate::tree::file_meta::FileMeta;
use crate::tree::open_tables::open_expected;
use std::collections::BTreeMap;
use std::path::Path;

/// The filters of each level that stay in memory: applies to tables as they are opened.
pub(crate) type PinningByLevel = [FilterPinning; LEVELS];

/// Tables that survive a power cut, with their names. No manifest names them yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct DurableTables(Vec<FileMeta>);

impl DurableTables {
    /// Syncs the names of `tables`, which `TableBuilder::finish` has written and synced.
    ///
    /// # Errors
    /// The directory cannot be synced: none of the tables is left.
    pub(crate) fn sync(env: &dyn Env, directory: &Path, tables: Vec<FileMeta>) -> Result<Self> {
        if tables.is_empty() {
            return Ok(DurableTables(tables));
        }
        match env.sync_dir(directory) {
            Ok(()) => Ok(DurableTables(tables)),
            Err(error) => {
                remove_tables(env, directory, &tables);
                Err(Error::io("sync_dir", directory, error))
            }
        }
    }

    pub(crate) fn extend(&mut self, others: DurableTables) {
        self.0.extend(others.0);
    }

    /// The manifest's facts about each.
    pub(crate) fn metas(&self) -> &[FileMeta] {
        &self.0
    }

    /// The names of their files.
    pub(crate) fn file_names(&self) -> Vec<FileName> {
        file_names(self.metas())
    }

    /// As [`DurableTables::metas`].
    pub(crate) fn into_metas(self) -> Vec<FileMeta> {
        self.0
    }
}

fn file_names<'m>(tables: impl IntoIterator<Item = &'m FileMeta>) -> Vec<FileName> {
    tables.into_iter().map(|meta| FileName::Table(meta.number)).collect()
}

/// Removes tables that no manifest ever named.
pub(crate) fn remove_tables(env: &dyn Env, directory: &Path, tables: &[FileMeta]) {
    for meta in tables {
        // If that fails, the next session removes the file: nothing names it.
        let _ = env.remove(&FileName::Table(meta.number).path(directory));
    }
}

/// Durable and open tables for one level. The default has none: for an edit that only removes or
/// moves tables.
#[derive(Debug, Default)]
pub(crate) struct NewTables {
    /// The level that they were opened for.
    pub level: usize,
    /// By number.
    tables: BTreeMap<u64, (FileMeta, Table)>,
}

impl NewTables {
    /// Opens tables for `level`, and reads their indexes back.
    ///
    /// # Errors
    /// A table cannot be read back.
    pub(crate) fn open(
        context: &TableContext,
        directory: &Path,
        tables: DurableTables,
        level: usize,
        pinning: &dyn Fn(KeyspaceId) -> PinningByLevel,
    ) -> Result<Self> {
        let open = |meta: FileMeta| {
            let pinning = pinning(meta.keyspace)[level];
            // An ingested table gets its sequence when the edit is made.
            let expect = Expect { global_sequence: None, ..meta.expect() };
            let table = open_expected(context, directory, meta.number, expect, pinning)?;
            table.load_index()?;
            Ok((meta.number, (meta, table)))
        };
        let tables = tables.0.into_iter().map(open).collect::<Result<_>>()?;
        Ok(NewTables { level, tables })
    }

    /// Gives ingested tables their sequence.
    pub(crate) fn set_global_sequence(&mut self, sequence: SequenceNumber) {
        for (meta, table) in self.tables.values_mut() {
            meta.set_global_sequence(sequence);
            table.set_global_sequence(sequence);
        }
    }

    /// The manifest's facts about each.
    pub(crate) fn metas(&self) -> impl Iterator<Item = &FileMeta> {
        self.tables.values().map(|(meta, _)| meta)
    }

    /// The names of their files.
    pub(crate) fn file_names(&self) -> Vec<FileName> {
        file_names(self.metas())
    }

    /// What an edit that adds all of them says.
    pub(crate) fn added(&self) -> Vec<(usize, FileMeta)> {
        self.metas().map(|meta| (self.level, meta.clone())).collect()
    }

    /// Takes the open table of that number out.
    pub(crate) fn take(&mut self, number: u64) -> Option<Table> {
        self.tables.remove(&number).map(|(_, table)| table)
    }
}
