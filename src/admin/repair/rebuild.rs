//! Writes sound tables from damaged tables, from logs and from overlapping tables.
//!
//! Each step returns the descriptions of tables that are durable with their names, and changes none
//! of the files that it reads. A step that fails removes its own files. Tables of earlier steps
//! stay until the repair ends. If the repair is interrupted, the next one treats them as copies of
//! the same entries, with the same sequences.

use crate::admin::repair::history::History;
use crate::admin::repair::keyspaces::FoundKeyspaces;
use crate::base::error::Result;
use crate::base::filename::FileName;
use crate::base::iterator::api::Direction;
use crate::base::key::{KeyspaceId, KeyspaceLabel, SequenceNumber, user_key};
use crate::base::levels::LEVELS;
use crate::base::sync::{Arc, AtomicBool, AtomicU64};
use crate::cache::cache::Cache;
use crate::env::handle::FilePool;
use crate::jobs::rewrite::entry_rules::EntryRules;
use crate::jobs::rewrite::output::{JobContext, KeyPart, OutputTables, Rewrite};
use crate::jobs::rewrite::stripes::{KeysBelow, SnapshotStripes};
use crate::log::wal::replay::Apply;
use crate::log::wal::salvage::{SalvagedLogs, salvage};
use crate::memtable::memtable::Memtable;
use crate::options::database::Options;
use crate::options::levels::TablePlace;
use crate::table::reader::{Table, TableContext};
use crate::table::salvage::{Expected, Salvaged, salvage as salvage_table};
use crate::tree::edit::KeyspaceMeta;
use crate::tree::file_meta::FileMeta;
use crate::tree::handle::{ObsoleteFiles, TableHandle};
use crate::tree::level_iter::LevelIter;
use crate::tree::new_tables::DurableTables;
use crate::tree::overlap::{borrowed, compare_ends, ends_before};
use crate::tree::runs::SortedRuns;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

/// Writes tables into the directory of a repair.
pub(crate) struct Rebuild<'a> {
    options: &'a Options,
    directory: &'a Path,
    /// The counter of file numbers.
    pub next_file_number: AtomicU64,
    /// The id of the repaired database, then those of its ancestors.
    pub databases: Vec<u128>,
    /// Size of a table's data index at which another table is started.
    index_bytes_max: u64,
    tables: TableContext,
    never: AtomicBool,
}

/// The tree that tables are written for.
pub(crate) struct Target {
    keyspace: KeyspaceLabel,
    /// The options with the settings of the keyspace.
    options: Options,
    /// Entries that each level will have, for the size of filters.
    runs: SortedRuns,
    /// Where entries of logs go, and with a sorted level all entries.
    pub level: usize,
}

impl Target {
    /// `options` have the settings of the keyspace. `levels` has at least the entries that each
    /// level of the tree will have.
    pub(crate) fn new(
        options: Options,
        keyspace: &KeyspaceMeta,
        levels: &[Vec<FileMeta>; LEVELS],
        level: usize,
    ) -> Self {
        let shape =
            levels.each_ref().map(|metas| Arc::new(metas.iter().cloned().map(Arc::new).collect()));
        Target {
            keyspace: KeyspaceLabel { id: keyspace.id, name: keyspace.name.clone() },
            options,
            runs: SortedRuns::of(&shape),
            level,
        }
    }
}

/// The entries of the logs in tables.
#[derive(Debug, Default)]
pub(crate) struct TablesOfLogs {
    /// The tables of all keyspaces; those of one keyspace are oldest first.
    pub tables: Vec<FileMeta>,
    /// The first sequence that was read; `None` if there was no entry.
    pub first_sequence: Option<SequenceNumber>,
    /// The entries that could be read.
    pub logs: SalvagedLogs,
}

/// Tables of one sorted level.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// Tables that stay unchanged.
    pub kept: Vec<FileMeta>,
    /// Tables that replace all others.
    pub written: Vec<FileMeta>,
}

impl<'a> Rebuild<'a> {
    /// `next_file_number` is the first number for new tables.
    pub(crate) fn new(
        options: &'a Options,
        directory: &'a Path,
        next_file_number: u64,
        databases: Vec<u128>,
        index_bytes_max: u64,
    ) -> Self {
        Rebuild {
            options,
            directory,
            next_file_number: AtomicU64::new(next_file_number),
            databases,
            index_bytes_max,
            tables: TableContext {
                rules: options.custom_rules(),
                ..TableContext::new(
                    FilePool::new(Arc::clone(&options.env), options.max_open_files),
                    Cache::new(options.block_cache_bytes, 1.0),
                )
            },
            never: AtomicBool::new(false),
        }
    }

    fn context(&self, target: &Target, level: usize) -> JobContext<'_> {
        let filter = target.options.table_filter(level, &target.runs);
        let label = target.keyspace.clone();
        let databases = self.databases.clone();
        let place = TablePlace { level, is_last: target.runs.is_last(level) };
        let table_options = target.options.table_options(label, databases, place, filter);
        JobContext {
            env: &self.options.env,
            directory: self.directory,
            next_file_number: &self.next_file_number,
            table_options,
            index_bytes_max: self.index_bytes_max,
            // A repair keeps entries as they are.
            rules: EntryRules::default(),
            stop: &self.never,
            failure: None,
        }
    }

    fn open(&self, meta: &FileMeta) -> Result<Table> {
        let expect = meta.expect();
        Table::open(&self.tables, &FileName::Table(meta.number).path(self.directory), expect)
    }

    /// Writes the sound entries of the damaged table `number` for `level`, and says what was lost.
    /// A block with an unexpected sequence is not sound, because the table would be older or newer
    /// than its place says. At level 0 the new table records the range of the expected sequences.
    ///
    /// # Errors
    /// The new table cannot be written, or the file does not say which table it is.
    pub(crate) fn rescue(
        &self,
        target: &Target,
        number: u64,
        expected: &Expected,
        level: usize,
    ) -> Result<(Vec<FileMeta>, Salvaged)> {
        let context = self.context(target, level);
        // At level 0 the range is the age of the table, so it must not shrink with the entries.
        let recorded = (level == 0).then(|| expected.sequences.clone());
        let mut last_key: Option<Vec<u8>> = None;
        let (env, path) = (&self.options.env, FileName::Table(number).path(self.directory));
        // The file is read twice: an output takes range deletes before entries, and they come after
        // them in a table.
        let deletes = salvage_table(env, &path, expected, &mut |_, _| Ok(()))?.range_deletes;
        let mut outputs = OutputTables::new(&context, recorded, deletes);
        let salvaged = salvage_table(env, &path, expected, &mut |key, value| {
            // A cut between two versions of a key would make the tables overlap.
            if last_key.as_deref() != Some(user_key(key)) {
                outputs.begin_key(user_key(key), false)?;
                user_key(key).clone_into(last_key.get_or_insert_default());
            }
            outputs.add(key, value, false)
        })?;
        Ok((self.durable(outputs.finish(salvaged.entries)?.0)?, salvaged))
    }

    /// Writes the entries that can be read from `logs` to tables of the targets, by keyspace, if
    /// they are not in tables yet. Skips those of dropped keyspaces.
    ///
    /// # Errors
    /// A log cannot be read at all, or a table cannot be written.
    pub(crate) fn tables_of_logs(
        &self,
        history: &History,
        keyspaces: &FoundKeyspaces,
        targets: &BTreeMap<KeyspaceId, Target>,
    ) -> Result<TablesOfLogs> {
        let mut memtables: BTreeMap<KeyspaceId, Arc<Memtable>> = BTreeMap::new();
        let (mut found, mut bytes) = (TablesOfLogs::default(), 0);
        let mut write = |memtables: &mut BTreeMap<KeyspaceId, Arc<Memtable>>| {
            for (id, memtable) in std::mem::take(memtables) {
                if let Some(target) = targets.get(&id) {
                    found.tables.extend(self.table_of(target, &memtable)?);
                }
            }
            Ok(())
        };
        let buffer_bytes = self.options.write_buffer_bytes;
        let env = &*self.options.env;
        let apply: Apply<'_> = &mut |_, batch| {
            found.first_sequence.get_or_insert(batch.sequence);
            for (id, first, run) in batch.runs_after(|id| keyspaces.flushed_through(id)) {
                bytes += Memtable::bytes_of(run.clone());
                let new = || Arc::new(Memtable::new(buffer_bytes, false));
                memtables.entry(id).or_insert_with(new).insert(first, run);
            }
            if bytes >= buffer_bytes as u64 {
                bytes = 0;
                write(&mut memtables)?;
            }
            Ok(())
        };
        found.logs = salvage(env, self.directory, &history.logs, &history.facts, apply)?;
        write(&mut memtables)?;
        Ok(found)
    }

    /// Makes new tables durable: the manifest that names them comes next.
    fn durable(&self, tables: Vec<FileMeta>) -> Result<Vec<FileMeta>> {
        let durable = DurableTables::sync(&*self.options.env, self.directory, tables)?;
        Ok(durable.into_metas())
    }

    fn table_of(&self, target: &Target, memtable: &Arc<Memtable>) -> Result<Vec<FileMeta>> {
        let context = self.context(target, target.level);
        let range_deletes = memtable.range_deletes.all();
        let rewrite = Rewrite {
            sources: memtable.iterators(Direction::Forward).collect(),
            keys: KeyPart::default(),
            entries: Some(memtable.entries() as u64),
            range_deletes: memtable.range_deletes.count() as u64,
            stripes: SnapshotStripes::new(&[], KeysBelow::default(), &range_deletes),
            sequences: None,
            context: &context,
        };
        self.durable(rewrite.run(|_, _| false)?.tables)
    }

    /// Makes tables of the target's sorted level from tables in any order and of any age. Tables
    /// that share user keys are merged by internal key, so the version with the highest sequence is
    /// the newest one, whichever table it came from. One of several copies of an entry remains. A
    /// tombstone and the versions that it hides are dropped together, because all versions of a key
    /// are in one merge.
    ///
    /// # Errors
    /// A table cannot be read or written. Nothing is removed.
    pub(crate) fn merge(
        &self,
        target: &Target,
        mut tables: Vec<FileMeta>,
        last_sequence: SequenceNumber,
    ) -> Result<Merged> {
        tables.sort_by(|a, b| a.start.cmp(&b.start));
        let mut groups: Vec<(Bound<Vec<u8>>, Vec<FileMeta>)> = Vec::new();
        for meta in tables {
            match groups.last_mut() {
                Some((end, group)) if !ends_before(borrowed(end), &meta.start) => {
                    if compare_ends(borrowed(end), borrowed(&meta.end)).is_lt() {
                        *end = meta.end.clone();
                    }
                    group.push(meta);
                }
                _ => groups.push((meta.end.clone(), vec![meta])),
            }
        }
        let mut merged = Merged::default();
        for (_, mut group) in groups {
            match group.pop() {
                Some(alone) if group.is_empty() => merged.kept.push(alone),
                Some(last) => {
                    group.push(last);
                    merged.written.extend(self.merge_group(target, group, last_sequence)?);
                }
                None => {}
            }
        }
        Ok(merged)
    }

    fn merge_group(
        &self,
        target: &Target,
        group: Vec<FileMeta>,
        last_sequence: SequenceNumber,
    ) -> Result<Vec<FileMeta>> {
        let context = self.context(target, target.level);
        let obsolete = Arc::new(ObsoleteFiles::default());
        let entries = group.iter().map(|meta| meta.entries).sum();
        let range_delete_count = group.iter().map(|meta| meta.range_deletes).sum();
        let mut range_deletes = Vec::new();
        // A run is a list of tables that share no keys: one iterator for each run is cheaper to
        // merge than one for each table.
        let mut runs: Vec<Vec<Arc<TableHandle>>> = Vec::new();
        for meta in group {
            let table = Arc::new(self.open(&meta)?);
            range_deletes.extend(table.range_deletes().iter().flat_map(|own| own.deletes()));
            let follows = |run: &Vec<Arc<TableHandle>>| {
                run.last().is_none_or(|last| last.meta.ends_before(&meta.start))
            };
            let index = runs.iter().position(follows);
            let handle = TableHandle::new(Arc::new(meta.clone()), table, &obsolete);
            match index.and_then(|index| runs.get_mut(index)) {
                Some(run) => run.push(handle),
                None => runs.push(vec![handle]),
            }
        }
        let walks = runs.into_iter().map(|run| LevelIter::new(Direction::Forward, run, false));
        let rewrite = Rewrite {
            sources: walks.collect(),
            keys: KeyPart::default(),
            entries: Some(entries),
            range_deletes: range_delete_count,
            stripes: SnapshotStripes::new(&[last_sequence], KeysBelow::default(), &range_deletes),
            sequences: None,
            context: &context,
        };
        let table_bytes = self.options.table_bytes;
        self.durable(rewrite.run(|_, open_bytes| open_bytes >= table_bytes)?.tables)
    }
}
