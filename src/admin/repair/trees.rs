//! The tables of the repaired database: for each keyspace those that the manifest names, or all of
//! them merged by sequence, and what the logs have on top.

use crate::admin::repair::history::{History, options_of};
use crate::admin::repair::inventory::{Inventory, TableFound, TableState};
use crate::admin::repair::keyspaces::{FoundKeyspaces, NoKeyspace};
use crate::admin::repair::rebuild::{Rebuild, Target};
use crate::admin::repair::report::{LostEntries, RepairReport};
use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::key::{KeyspaceId, SEQUENCE_MAX, SequenceNumber};
use crate::base::levels::LEVELS;
use crate::base::stats::text::counted;
use crate::log::record::format::Undecodable;
use crate::log::recovery::DroppedPart;
use crate::options::database::Options;
use crate::table::salvage::Expected;
use crate::tree::edit::KeyspaceMeta;
use crate::tree::file_meta::FileMeta;
use crate::tree::manifest_state::{KeyspaceTables, ManifestState};
use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};
use std::path::{Path, PathBuf};

/// Why a table is lost that exists.
const UNREADABLE: &str = "nothing of the table can be read";

/// Why a table is lost that may be whole.
const UNPLACED: &str = "nothing that can be read says which keyspace the table is of";

/// Why an ingested table is lost.
const UNNUMBERED: &str =
    "the table was ingested, and no manifest or log says the sequence of its entries";

/// The inputs of a repair.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    /// The options of the repaired database.
    pub options: &'a Options,
    pub directory: &'a Path,
    pub found: &'a Inventory,
    /// The manifest and the logs to use.
    pub history: &'a History,
    /// The keyspaces that the repaired database will have.
    pub keyspaces: &'a FoundKeyspaces,
    pub rebuild: &'a Rebuild<'a>,
}

/// The trees of the repaired database, and what happened to the old files.
pub(crate) struct Trees<'a> {
    from: Sources<'a>,
    /// By number: each keyspace with its tables.
    pub keyspaces: BTreeMap<KeyspaceId, KeyspaceTables>,
    /// Files for `lost`, with the reason.
    pub aside: Vec<(FileName, String)>,
    /// The report of kept, written and lost files.
    pub report: RepairReport,
    /// The largest sequence in any file.
    pub last_sequence: SequenceNumber,
    /// By number: how tables of each keyspace are written.
    targets: BTreeMap<KeyspaceId, Target>,
}

impl<'a> Trees<'a> {
    /// Builds the trees.
    ///
    /// # Errors
    /// A file cannot be read or written. Old files are unchanged.
    pub(crate) fn build(from: Sources<'a>) -> Result<Self> {
        let mut trees = Trees {
            from,
            keyspaces: BTreeMap::new(),
            aside: Vec::new(),
            report: RepairReport::default(),
            last_sequence: from.found.last_sequence,
            targets: BTreeMap::new(),
        };
        trees.report.dropped.clone_from(&from.history.dropped);
        trees.report.renamed.clone_from(&from.keyspaces.renamed);
        for (id, meta) in &from.keyspaces.there {
            let meta = trees.with_usable_settings(meta)?;
            trees.keyspaces.insert(*id, KeyspaceTables { meta, ..KeyspaceTables::default() });
        }
        match &from.history.manifest {
            Some(state) if from.history.newer.is_empty() => {
                trees.in_place(state)?;
            }
            _ => trees.by_sequence()?,
        }
        // The properties of a damaged table may name a lower sequence than its entries have.
        let largest = trees.tables().map(|meta| meta.largest_sequence).max();
        trees.last_sequence = trees.last_sequence.max(largest.unwrap_or(0));
        Ok(trees)
    }

    /// All tables of all keyspaces.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &FileMeta> {
        self.keyspaces.values().flat_map(|keyspace| keyspace.levels.iter().flatten())
    }

    /// The keyspace without its settings if these cannot be used.
    ///
    /// # Errors
    /// Settings that a newer siftdb saved.
    fn with_usable_settings(&mut self, meta: &KeyspaceMeta) -> Result<KeyspaceMeta> {
        let what = match options_of(self.from.options, meta) {
            Ok(_) => return Ok(meta.clone()),
            Err(Undecodable::Damaged(what)) => what,
            Err(unknown) => return Err(unknown.into_error(self.from.directory, 0)),
        };
        let what = format!("keyspace {:?} gets the built-in settings: {what}", meta.name);
        let path = self.from.directory.to_path_buf();
        self.report.dropped.push(DroppedPart { path, offset: 0, what });
        Ok(KeyspaceMeta { settings: Vec::new(), ..meta.clone() })
    }

    /// Says how tables of the keyspace `meta` are written, whose levels will have `levels`.
    fn add_target(&mut self, meta: &KeyspaceMeta, levels: &[Vec<FileMeta>; LEVELS], level: usize) {
        let options =
            options_of(self.from.options, meta).unwrap_or_else(|_| self.from.options.clone());
        self.targets.insert(meta.id, Target::new(options, meta, levels, level));
    }

    fn add(&mut self, id: KeyspaceId, level: usize, tables: Vec<FileMeta>) {
        if let Some(keyspace) = self.keyspaces.get_mut(&id) {
            keyspace.levels[level].extend(tables);
        }
    }

    /// Keeps every table where the manifest has it; replaces damaged tables by their sound entries.
    fn in_place(&mut self, state: &ManifestState) -> Result<()> {
        self.report.manifest_used = true;
        let none = KeyspaceTables::default();
        for (id, meta) in &self.from.keyspaces.there {
            let named = state.keyspaces.get(id).unwrap_or(&none);
            self.add_target(meta, &named.levels, 0);
        }
        let mut used = Vec::new();
        for (level, meta) in state.tables() {
            // Found by its id, because the files of two tables may have been swapped.
            let Some(file) = self.from.found.table_of(meta.table_id, meta.number) else {
                self.lose_named(meta);
                continue;
            };
            // At level 0 the sequences say which table is newer.
            let sequences = match level {
                0 => meta.smallest_sequence..=meta.largest_sequence,
                _ => 1..=SEQUENCE_MAX,
            };
            let id = meta.keyspace;
            let tables = self.take(id, file, Some(meta), &sequences, level)?;
            used.push(file.number);
            self.add(id, level, tables);
        }
        self.leave_others(&used);
        // Entries in logs are newer than every table.
        for meta in self.tables_of_logs(&[])? {
            self.add(meta.keyspace, 0, vec![meta]);
        }
        Ok(())
    }

    /// Merges all readable entries of each keyspace into one sorted level: those of all tables, or
    /// of the tables that the manifest names or may have named.
    fn by_sequence(&mut self) -> Result<()> {
        let history = self.from.history;
        self.report.manifest_used = history.manifest.is_some();
        let files = match &history.manifest {
            Some(state) => self.named_or_newer(state),
            None => self.every_table(),
        };
        for (id, meta) in &self.from.keyspaces.there {
            let of_it = files.iter().filter(|(of, _)| of == id);
            let metas: Vec<_> = of_it.filter_map(|(_, file)| file.meta()).cloned().collect();
            let level = level_for(self.from.options, metas.iter().map(|meta| meta.bytes).sum());
            let mut levels: [Vec<FileMeta>; LEVELS] = Default::default();
            levels[level] = metas;
            self.add_target(meta, &levels, level);
        }
        let mut tables = Vec::new();
        for (id, file) in &files {
            let named = match (file.meta(), &history.manifest) {
                // The table cannot be opened, so only the manifest describes it.
                (None, Some(state)) => state.tables().map(|(_, meta)| meta).find(|meta| {
                    let file_of = self.from.found.table_of(meta.table_id, meta.number);
                    file_of.is_some_and(|found| found.number == file.number)
                }),
                _ => None,
            };
            let level = self.targets.get(id).map_or(1, |target| target.level);
            // All tables are merged, so any sequence may be in any table.
            let any = 1..=SEQUENCE_MAX;
            tables.extend(self.take(*id, file, named, &any, level)?);
        }
        // Sequences that are in tables are not missing in the logs.
        let newer = files.iter().filter(|(_, file)| history.newer.contains(&file.number));
        let covered: Vec<_> = match &history.manifest {
            Some(_) => newer.filter_map(|(_, file)| file.meta()).map(sequences_of).collect(),
            // Salvaged entries may have higher sequences than the properties say.
            None => {
                let saved = tables.iter().map(|meta| meta.largest_sequence).max().unwrap_or(0);
                vec![0..=saved.max(self.from.found.last_in_tables())]
            }
        };
        tables.extend(self.tables_of_logs(&covered)?);
        let flushed = tables.iter().map(|meta| meta.largest_sequence).max().unwrap_or(0);
        self.last_sequence = self.last_sequence.max(flushed);
        self.merge(tables)
    }

    fn merge(&mut self, tables: Vec<FileMeta>) -> Result<()> {
        let mut by_keyspace: BTreeMap<KeyspaceId, Vec<FileMeta>> = BTreeMap::new();
        for meta in tables {
            by_keyspace.entry(meta.keyspace).or_default().push(meta);
        }
        for (id, tables) in by_keyspace {
            let Some(target) = self.targets.get(&id) else { continue };
            let level = target.level;
            let merged = self.from.rebuild.merge(target, tables, self.last_sequence)?;
            self.add(id, level, [merged.kept, merged.written].concat());
        }
        Ok(())
    }

    /// The tables that the manifest names, and those that its missing edits may have named, each
    /// with its keyspace.
    fn named_or_newer(&mut self, state: &ManifestState) -> Vec<(KeyspaceId, &'a TableFound)> {
        let mut files = Vec::new();
        for (_, meta) in state.tables() {
            match self.from.found.table_of(meta.table_id, meta.number) {
                Some(file) => files.push((meta.keyspace, file)),
                None => self.lose_named(meta),
            }
        }
        let is_newer = |table: &&TableFound| self.from.history.newer.contains(&table.number);
        let newer: Vec<&TableFound> = self.from.found.tables.iter().filter(is_newer).collect();
        files.extend(self.with_keyspaces(newer));
        self.leave_others(&numbers(&files));
        files
    }

    /// Every table whose id is known; of several copies of a table, only one sound copy.
    fn every_table(&mut self) -> Vec<(KeyspaceId, &'a TableFound)> {
        for meta in &self.from.history.named_and_missing {
            if self.from.keyspaces.there.contains_key(&meta.keyspace) {
                self.lose_named(meta);
            }
        }
        let mut files = Vec::new();
        for file in &self.from.found.tables {
            let Some(table_id) = file.table_id else {
                self.lose_table(None, file.number, None, UNREADABLE);
                continue;
            };
            let best = self.from.found.table_of(table_id, file.number).unwrap_or(file);
            let is_copy = matches!(best.state, TableState::Sound(_)) && best.number != file.number;
            if !is_copy {
                files.push(file);
            }
        }
        let files = self.with_keyspaces(files);
        self.leave_others(&numbers(&files));
        files
    }

    /// The files with their keyspaces. Reports those whose keyspace nothing says.
    fn with_keyspaces(&mut self, files: Vec<&'a TableFound>) -> Vec<(KeyspaceId, &'a TableFound)> {
        let mut placed = Vec::new();
        for file in files {
            match self.from.keyspaces.of_table(file) {
                Ok(id) => placed.push((id, file)),
                Err(NoKeyspace::Dropped) => {}
                Err(NoKeyspace::Unknown) => {
                    self.lose_table(None, file.number, file.meta(), UNPLACED);
                }
            }
        }
        placed
    }

    /// Sets all tables aside but those of the numbers in `used`.
    fn leave_others(&mut self, used: &[u64]) {
        let history = self.from.history;
        let known_through = history.manifest.as_ref().map_or(u64::MAX, |state| state.facts.number);
        for table in self.from.found.tables.iter().filter(|table| !used.contains(&table.number)) {
            // A missing edit may have named this table.
            if history.misses_files && table.table_id.is_none() && table.number > known_through {
                self.lose_table(None, table.number, None, UNREADABLE);
            }
            let why = match (&table.state, self.from.keyspaces.of_table(table)) {
                (_, Err(NoKeyspace::Dropped)) => "its keyspace was dropped".into(),
                (TableState::Unusable(error), _) => error.without_advice(),
                (_, Err(NoKeyspace::Unknown)) => UNPLACED.into(),
                _ => {
                    "the manifest does not name this table, or a copy of the table is in use".into()
                }
            };
            self.aside.push((FileName::Table(table.number), why));
        }
    }

    /// Takes a table unchanged, or its sound entries. `named` is what the manifest says about it.
    fn take(
        &mut self,
        id: KeyspaceId,
        file: &TableFound,
        named: Option<&FileMeta>,
        sequences: &RangeInclusive<SequenceNumber>,
        level: usize,
    ) -> Result<Vec<FileMeta>> {
        let Some(target) = self.targets.get(&id) else { return Ok(Vec::new()) };
        let fits = |meta: &FileMeta| {
            let ends = [meta.smallest_sequence, meta.largest_sequence];
            meta.keyspace == id && ends.iter().all(|sequence| sequences.contains(sequence))
        };
        if file.lacks_sequence {
            self.lose_table(Some(id), file.number, named.or(file.meta()), UNNUMBERED);
            self.aside.push((FileName::Table(file.number), UNNUMBERED.into()));
            return Ok(Vec::new());
        }
        let path = FileName::Table(file.number).path(self.from.directory);
        let what = "the table is older or newer than the manifest says, or of another keyspace";
        let misplaced = Error::corruption(path, 0, what);
        let error = match &file.state {
            TableState::Sound(meta) if fits(meta) => return Ok(vec![meta.clone()]),
            TableState::Sound(_) => &misplaced,
            TableState::Damaged(_, error) | TableState::Unusable(error) => error,
        };
        let meta = named.or(file.meta());
        let expected = Expected {
            table_id: meta.map(|meta| meta.table_id),
            sequences: sequences.clone(),
            global_sequence: file.global_sequence,
            entries: meta.map(|meta| meta.entries),
            range_deletes: meta.map(|meta| meta.range_deletes),
        };
        let name = FileName::Table(file.number);
        let (tables, salvaged) =
            match self.from.rebuild.rescue(target, file.number, &expected, level) {
                Err(error @ Error::Corruption { .. }) => {
                    // The file has another table, or does not say which.
                    self.lose_table(Some(id), file.number, meta, UNREADABLE);
                    self.aside.push((name, error.without_advice()));
                    return Ok(Vec::new());
                }
                rescued => rescued?,
            };
        let saved = salvaged.entries;
        let expected = salvaged.expected_entries.unwrap_or(saved);
        self.report.entries_lost += expected.saturating_sub(saved);
        let keyspace = self.from.keyspaces.name_of(id);
        self.report.lost.extend(salvaged.lost.into_iter().map(|block| LostEntries {
            keyspace: keyspace.clone(),
            path: name.path(self.from.directory),
            from: block.from.or(meta.map(|meta| meta.start.clone())),
            to: block.to.or(meta.and_then(end_of)),
            what: block.error.without_advice(),
        }));
        let why = error.without_advice();
        self.aside.push((name, format!("{} saved: {why}", counted(saved, "entry"))));
        Ok(tables)
    }

    /// Reports a table that a manifest names and that is missing or cannot be read.
    fn lose_named(&mut self, meta: &FileMeta) {
        let name = FileName::Table(meta.number);
        let what = match self.from.found.files.contains(&name) {
            _ if self.from.found.not_files.contains(&name) => "not an ordinary file",
            _ if self.from.found.foreign.contains(&meta.number) => "another table is in its place",
            true => UNREADABLE,
            false => "the table is missing, but a manifest names it",
        };
        self.lose_table(Some(meta.keyspace), meta.number, Some(meta), what);
    }

    /// Reports a table of which nothing can be read.
    fn lose_table(
        &mut self,
        keyspace: Option<KeyspaceId>,
        number: u64,
        meta: Option<&FileMeta>,
        what: &str,
    ) {
        self.report.entries_lost += meta.map_or(0, |meta| meta.entries);
        self.report.lost.push(LostEntries {
            keyspace: keyspace.and_then(|id| self.from.keyspaces.name_of(id)),
            path: FileName::Table(number).path(self.from.directory),
            from: meta.map(|meta| meta.start.clone()),
            to: meta.and_then(end_of),
            what: what.into(),
        });
    }

    /// Writes the entries of the logs to tables. Sequences in `covered` are in other tables, so
    /// they are not missing.
    fn tables_of_logs(
        &mut self,
        covered: &[RangeInclusive<SequenceNumber>],
    ) -> Result<Vec<FileMeta>> {
        let history = self.from.history;
        let read = self.from.rebuild.tables_of_logs(history, self.from.keyspaces, &self.targets)?;
        let logs = read.logs;
        self.report.log_entries = read.tables.iter().map(|meta| meta.entries).sum();
        self.last_sequence = self.last_sequence.max(logs.highest_sequence);
        let is_missing = |path: &PathBuf| {
            let mut missing = logs.missing_logs.iter();
            missing.any(|(number, _)| *path == FileName::Wal(*number).path(self.from.directory))
        };
        let is_damaged = logs.dropped.iter().any(|part| !is_missing(&part.path));
        // A table has all entries of its sequences only if there is no other keyspace. But logs are
        // removed oldest first, after all keyspaces were flushed. So with tables of its sequences,
        // a log before the first one that was read was flushed.
        let end = match self.from.keyspaces.next {
            0 | 1 => u64::MAX,
            _ if is_damaged => 0,
            _ => read.first_sequence.map_or(u64::MAX, |first| first - 1),
        };
        let covered: Vec<_> =
            covered.iter().map(|range| *range.start()..=end.min(*range.end())).collect();
        let missing = logs.missing.into_iter().flat_map(|gap| without(gap, &covered));
        let missing: Vec<_> = missing.collect();
        // Without a manifest, a missing log may have been flushed and removed.
        let is_lost = history.manifest.is_some() || !missing.is_empty();
        let mut dropped = logs.dropped;
        for (number, why) in logs.missing_logs {
            let path = FileName::Wal(number).path(self.from.directory);
            dropped.retain(|part| part.path != path);
            if is_lost {
                let what = format!("the log is missing, but {why}");
                let (keyspace, from, to) = (None, None, None);
                self.report.lost.push(LostEntries { keyspace, path, from, to, what });
            }
        }
        let incomplete = !dropped.is_empty() || !missing.is_empty();
        self.report.dropped.extend(dropped);
        self.report.missing = missing;
        if incomplete {
            let why = "a part of the logs could not be used";
            let names = history.logs.iter().map(|number| FileName::Wal(*number));
            self.aside.extend(names.map(|name| (name, why.into())));
        }
        Ok(read.tables)
    }
}

fn numbers(files: &[(KeyspaceId, &TableFound)]) -> Vec<u64> {
    files.iter().map(|(_, file)| file.number).collect()
}

fn sequences_of(meta: &FileMeta) -> RangeInclusive<SequenceNumber> {
    meta.smallest_sequence..=meta.largest_sequence
}

/// The parts of `gap` that are in none of `covered`.
fn without(
    gap: RangeInclusive<SequenceNumber>,
    covered: &[RangeInclusive<SequenceNumber>],
) -> Vec<RangeInclusive<SequenceNumber>> {
    let mut left = vec![gap];
    for range in covered {
        left = left
            .into_iter()
            .flat_map(|gap| {
                let before = *gap.start()..=(*gap.end()).min(range.start().saturating_sub(1));
                let after = (*gap.start()).max(range.end() + 1)..=*gap.end();
                [before, after]
            })
            .filter(|gap| !gap.is_empty())
            .collect();
    }
    left
}

/// The first sorted level whose target size is at least `bytes`.
fn level_for(options: &Options, bytes: u64) -> usize {
    let targets = options.compaction_options();
    (1..LEVELS - 1).find(|level| targets.target_bytes(*level) >= bytes).unwrap_or(LEVELS - 1)
}

/// The largest key that the table may have, or the key after it; `None` without an end.
fn end_of(meta: &FileMeta) -> Option<Vec<u8>> {
    match &meta.end {
        Bound::Included(key) | Bound::Excluded(key) => Some(key.clone()),
        Bound::Unbounded => None,
    }
}
