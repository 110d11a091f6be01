//! The steps of a repair, and what is durable between them.
//!
//! 1. LOCK is locked and everything is read (`inventory`). A sound database is not changed.
//! 2. New tables are written (`rebuild`) under new file numbers, and synced.
//! 3. Every file that will not be part of the database gets a second name in `lost`, unless all of
//!    its contents are in the new tables.
//! 4. A new log and a new manifest are written and synced, then CURRENT is replaced.
//! 5. Files that the new manifest does not name are removed: each of them has its second name in
//!    `lost`, or all of its contents are in the new tables.
//!
//! A crash before step 4 leaves all old files, and perhaps new tables and second names. Another
//! repair then treats the new tables as copies of the old entries. If the database could be opened
//! before, opening treats them as obsolete files. A crash after step 4 leaves the repaired
//! database, and files that the next opening removes.

use crate::admin::repair::history::History;
use crate::admin::repair::inventory::{Inventory, TableFound, TableState};
use crate::admin::repair::rebuild::Rebuild;
use crate::admin::repair::report::{LostEntries, RepairReport, SetAside};
use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::key::{SEQUENCE_MAX, SequenceNumber};
use crate::base::levels::LEVELS;
use crate::base::sync::Ordering;
use crate::env::descriptor_retry::DescriptorRetryEnv;
use crate::env::directory::{keep_in_lost, lock_to_write, number_after, our_files};
use crate::env::foreign::refuse_foreign;
use crate::log::wal::consistency::CleanClose;
use crate::log::wal::format::{DatabaseIdentity, WalStart};
use crate::log::wal::writer::WalWriter;
use crate::options::database::Options;
use crate::table::salvage::Expected;
use crate::tree::edit::{COMPARATOR, FileMeta, FirstLog, KeyspaceMeta, VersionEdit};
use crate::tree::manifest::{ManifestState, ManifestWriter, set_current};
use std::io::{Error as IoError, ErrorKind};
use std::ops::{Range, RangeInclusive};
use std::path::Path;

/// Why a table is lost that exists.
const UNREADABLE: &str = "nothing of the table can be read";

/// The tables of the repaired database, and what happened to the old files.
#[derive(Debug, Default)]
struct Outcome {
    levels: [Vec<FileMeta>; LEVELS],
    /// Files for `lost`, with the reason.
    aside: Vec<(FileName, String)>,
    report: RepairReport,
    last_sequence: SequenceNumber,
}

/// Repairs the database in `directory`; see `Options::repair`.
///
/// # Errors
/// As `Options::repair` says.
pub(crate) fn repair(options: Options, directory: &Path) -> Result<RepairReport> {
    let env = DescriptorRetryEnv::over(&options.env);
    let options = &options.env(env);
    options.validate()?;
    let env = &*options.env;
    refuse_foreign(env, directory)?;
    if our_files(env, directory)?
        .iter()
        .all(|name| matches!(name, FileName::Lock | FileName::Stats))
    {
        let what = "no file of a siftdb database is here";
        return Err(Error::io("repair", directory, IoError::new(ErrorKind::NotFound, what)));
    }
    let _lock = lock_to_write(env, directory)?;
    let found = Inventory::take(options, directory)?;
    let history = History::find(env, directory, &found)?;
    if history.is_sound(&found) {
        let tables = history.manifest.iter().flat_map(|state| state.tables().map(|(_, meta)| meta));
        return Ok(RepairReport {
            manifest_used: true,
            tables_kept: tables.clone().count() as u64,
            entries: tables.map(|meta| meta.entries).sum(),
            last_sequence: found.last_sequence,
            ..RepairReport::default()
        });
    }
    let first = found.next_file_number.max(number_after(&found.files));
    let mut outcome = Outcome { last_sequence: found.last_sequence, ..Outcome::default() };
    outcome.report.dropped.clone_from(&history.dropped);
    let next = match &history.manifest {
        Some(state) if history.newer.is_empty() => {
            outcome.in_place(options, directory, &found, &history, state, first)?
        }
        _ => outcome.by_sequence(options, directory, &found, &history, first)?,
    };
    // The properties of a damaged table may name a lower sequence than its entries have.
    let tables = outcome.levels.iter().flatten().map(|meta| meta.largest_sequence);
    outcome.last_sequence = tables.fold(outcome.last_sequence, u64::max);
    outcome.set_aside(options, directory, &found, &history)?;
    outcome.put_in_force(options, directory, next)?;
    Ok(outcome.clear(options, directory, &found, first..next))
}

impl Outcome {
    /// Keeps every table where the manifest has it; replaces damaged tables by their sound entries.
    fn in_place(
        &mut self,
        options: &Options,
        directory: &Path,
        found: &Inventory,
        history: &History,
        state: &ManifestState,
        next: u64,
    ) -> Result<u64> {
        self.report.manifest_used = true;
        let rebuild = Rebuild::new(options, directory, next, &state.keyspaces[&0].levels);
        let mut used = Vec::new();
        for (level, metas) in state.keyspaces[&0].levels.iter().enumerate() {
            for meta in metas {
                // Found by its id, because the files of two tables may have been swapped.
                let Some(file) = found.table_of(meta.table_id, meta.number) else {
                    self.lose_named(directory, found, meta);
                    continue;
                };
                // At level 0 the sequences say which table is newer.
                let sequences = match level {
                    0 => meta.smallest_sequence..=meta.largest_sequence,
                    _ => 0..=SEQUENCE_MAX,
                };
                let tables = self.take(&rebuild, directory, file, Some(meta), &sequences, level)?;
                used.push(file.number);
                self.levels[level].extend(tables);
            }
        }
        self.leave_others(directory, found, history, &used);
        // Entries in logs are newer than every table.
        let tables = self.tables_of_logs(&rebuild, directory, history, &[], 0)?;
        self.levels[0].extend(tables);
        Ok(rebuild.next_file_number.load(Ordering::Relaxed))
    }

    /// Merges all readable entries into one sorted level: those of all tables, or of the tables
    /// that the manifest names or may have named.
    fn by_sequence(
        &mut self,
        options: &Options,
        directory: &Path,
        found: &Inventory,
        history: &History,
        next: u64,
    ) -> Result<u64> {
        self.report.manifest_used = history.manifest.is_some();
        let files = match &history.manifest {
            Some(state) => self.named_or_newer(directory, found, history, state),
            None => {
                for meta in &history.named_and_missing {
                    self.lose_named(directory, found, meta);
                }
                self.every_table(directory, found, history)
            }
        };
        let metas: Vec<FileMeta> = files.iter().filter_map(|file| file.meta()).cloned().collect();
        let level = level_for(options, metas.iter().map(|meta| meta.bytes).sum());
        let mut levels: [Vec<FileMeta>; LEVELS] = Default::default();
        levels[level].clone_from(&metas);
        let rebuild = Rebuild::new(options, directory, next, &levels);
        let mut tables = Vec::new();
        for file in &files {
            let named = match (file.meta(), &history.manifest) {
                // The table cannot be opened, so only the manifest describes it.
                (None, Some(state)) => state.tables().map(|(_, meta)| meta).find(|meta| {
                    let file_of = found.table_of(meta.table_id, meta.number);
                    file_of.is_some_and(|found| found.number == file.number)
                }),
                _ => None,
            };
            // All tables are merged, so any sequence may be in any table.
            tables.extend(self.take(
                &rebuild,
                directory,
                file,
                named,
                &(0..=SEQUENCE_MAX),
                level,
            )?);
        }
        // Sequences that are in tables are not missing in the logs.
        let newer = files.iter().filter(|file| history.newer.contains(&file.number));
        let covered: Vec<_> = match &history.manifest {
            Some(_) => newer.filter_map(|file| file.meta()).map(sequences_of).collect(),
            // Salvaged entries may have higher sequences than the properties say.
            None => {
                let saved = tables.iter().map(|meta| meta.largest_sequence).max().unwrap_or(0);
                vec![0..=saved.max(found.last_in_tables())]
            }
        };
        tables.extend(self.tables_of_logs(&rebuild, directory, history, &covered, level)?);
        let flushed = tables.iter().map(|meta| meta.largest_sequence).max().unwrap_or(0);
        self.last_sequence = self.last_sequence.max(flushed);
        let merged = rebuild.merge(tables, level, self.last_sequence)?;
        self.levels[level] = [merged.kept, merged.written].concat();
        Ok(rebuild.next_file_number.load(Ordering::Relaxed))
    }

    /// The tables that the manifest names, and those that its missing edits may have named.
    fn named_or_newer<'f>(
        &mut self,
        directory: &Path,
        found: &'f Inventory,
        history: &History,
        state: &ManifestState,
    ) -> Vec<&'f TableFound> {
        let named = state.tables().map(|(_, meta)| meta);
        let missing =
            named.clone().filter(|meta| found.table_of(meta.table_id, meta.number).is_none());
        missing.for_each(|meta| self.lose_named(directory, found, meta));
        let named = named.filter_map(|meta| found.table_of(meta.table_id, meta.number));
        let is_newer = |table: &&TableFound| history.newer.contains(&table.number);
        let files = named.chain(found.tables.iter().filter(is_newer)).collect();
        let used: Vec<u64> = numbers(&files);
        self.leave_others(directory, found, history, &used);
        files
    }

    /// Every table whose id is known; of several copies of a table, only one sound copy.
    fn every_table<'f>(
        &mut self,
        directory: &Path,
        found: &'f Inventory,
        history: &History,
    ) -> Vec<&'f TableFound> {
        let mut files = Vec::new();
        for file in &found.tables {
            let Some(table_id) = file.table_id else {
                self.lose_table(directory, file.number, None, UNREADABLE);
                continue;
            };
            let best = found.table_of(table_id, file.number).unwrap_or(file);
            let is_copy = matches!(best.state, TableState::Sound(_)) && best.number != file.number;
            if !is_copy {
                files.push(file);
            }
        }
        self.leave_others(directory, found, history, &numbers(&files));
        files
    }

    /// Sets all tables aside but those of the numbers in `used`.
    fn leave_others(
        &mut self,
        directory: &Path,
        found: &Inventory,
        history: &History,
        used: &[u64],
    ) {
        let known_through = history.manifest.as_ref().map_or(u64::MAX, |state| state.facts.number);
        for table in found.tables.iter().filter(|table| !used.contains(&table.number)) {
            // A missing edit may have named this table.
            if history.misses_files && table.table_id.is_none() && table.number > known_through {
                self.lose_table(directory, table.number, None, UNREADABLE);
            }
            let why = match &table.state {
                TableState::Unusable(error) => error.to_string(),
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
        rebuild: &Rebuild<'_>,
        directory: &Path,
        file: &TableFound,
        named: Option<&FileMeta>,
        sequences: &RangeInclusive<SequenceNumber>,
        level: usize,
    ) -> Result<Vec<FileMeta>> {
        let fits = |meta: &FileMeta| {
            [meta.smallest_sequence, meta.largest_sequence].iter().all(|s| sequences.contains(s))
        };
        let path = FileName::Table(file.number).path(directory);
        let misplaced =
            Error::corruption(path, 0, "the table is older or newer than the manifest says");
        let error = match &file.state {
            TableState::Sound(meta) if fits(meta) => return Ok(vec![meta.clone()]),
            TableState::Sound(_) => &misplaced,
            TableState::Damaged(_, error) | TableState::Unusable(error) => error,
        };
        let meta = named.or(file.meta());
        let expected = Expected {
            table_id: meta.map(|meta| meta.table_id),
            sequences: sequences.clone(),
            entries: meta.map(|meta| meta.entries),
        };
        let name = FileName::Table(file.number);
        let (tables, salvaged) = match rebuild.rescue(file.number, &expected, level) {
            Err(error @ Error::Corruption { .. }) => {
                // The file has another table, or does not say which.
                self.lose_table(directory, file.number, meta, UNREADABLE);
                self.aside.push((name, error.to_string()));
                return Ok(Vec::new());
            }
            rescued => rescued?,
        };
        let saved = salvaged.entries;
        let expected = salvaged.expected_entries.unwrap_or(saved);
        self.report.entries_lost += expected.saturating_sub(saved);
        self.report.lost.extend(salvaged.lost.into_iter().map(|block| LostEntries {
            path: name.path(directory),
            from: block.from.or(meta.map(|meta| meta.first_key().to_vec())),
            to: block.to.or(meta.map(|meta| meta.last_key().to_vec())),
            what: block.error.to_string(),
        }));
        self.aside.push((name, format!("{saved} entries were saved: {error}")));
        Ok(tables)
    }

    /// Reports a table that a manifest names and that is missing or cannot be read.
    fn lose_named(&mut self, directory: &Path, found: &Inventory, meta: &FileMeta) {
        let name = FileName::Table(meta.number);
        let what = match found.files.contains(&name) {
            _ if found.not_files.contains(&name) => "not an ordinary file",
            true => UNREADABLE,
            false => "the table is missing, but a manifest names it",
        };
        self.lose_table(directory, meta.number, Some(meta), what);
    }

    /// Reports a table of which nothing can be read.
    fn lose_table(&mut self, directory: &Path, number: u64, meta: Option<&FileMeta>, what: &str) {
        self.report.entries_lost += meta.map_or(0, |meta| meta.entries);
        self.report.lost.push(LostEntries {
            path: FileName::Table(number).path(directory),
            from: meta.map(|meta| meta.first_key().to_vec()),
            to: meta.map(|meta| meta.last_key().to_vec()),
            what: what.into(),
        });
    }

    /// Writes the entries of the logs to tables. Sequences in `covered` are in other tables, so
    /// they are not missing.
    fn tables_of_logs(
        &mut self,
        rebuild: &Rebuild<'_>,
        directory: &Path,
        history: &History,
        covered: &[RangeInclusive<SequenceNumber>],
        level: usize,
    ) -> Result<Vec<FileMeta>> {
        let (tables, logs) = rebuild.tables_of_logs(&history.logs, &history.facts, level)?;
        self.report.log_entries = tables.iter().map(|meta| meta.entries).sum();
        self.last_sequence = self.last_sequence.max(logs.highest_sequence);
        let missing = logs.missing.into_iter().flat_map(|gap| without(gap, covered));
        let missing: Vec<_> = missing.collect();
        // Without a manifest, a missing log may have been flushed and removed.
        let is_lost = history.manifest.is_some() || !missing.is_empty();
        let mut dropped = logs.dropped;
        for (number, why) in logs.missing_logs {
            let path = FileName::Wal(number).path(directory);
            dropped.retain(|part| part.path != path);
            if is_lost {
                let what = format!("the log is missing, but {why}");
                self.report.lost.push(LostEntries { path, from: None, to: None, what });
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
        Ok(tables)
    }

    /// Gives a second name in `lost` to every file whose contents are not all in the new tables.
    fn set_aside(
        &mut self,
        options: &Options,
        directory: &Path,
        found: &Inventory,
        history: &History,
    ) -> Result<()> {
        for name in &found.files {
            let why = match name {
                _ if found.not_files.contains(name) => "not an ordinary file",
                FileName::Current if !history.by_current => {
                    "it named a manifest that could not be used"
                }
                FileName::Manifest(number)
                    if history
                        .manifest
                        .as_ref()
                        .is_none_or(|state| state.facts.number != *number) =>
                {
                    "it was not in force, or could not be used"
                }
                FileName::Wal(number) if !history.logs.contains(number) => {
                    "its writes are in tables, as the manifest says"
                }
                FileName::Temporary(_) => "it was not renamed to its final name",
                _ => continue,
            };
            self.aside.push((*name, why.into()));
        }
        let names: Vec<FileName> = self.aside.iter().map(|(name, _)| *name).collect();
        let places = keep_in_lost(&*options.env, directory, &names)?;
        let reasons = self.aside.iter().map(|(_, why)| why.clone());
        self.report.set_aside =
            places.into_iter().zip(reasons).map(|(path, why)| SetAside { path, why }).collect();
        Ok(())
    }

    /// Writes log, manifest and CURRENT, with file numbers from `next` on.
    fn put_in_force(&self, options: &Options, directory: &Path, next: u64) -> Result<()> {
        let env = &*options.env;
        let last = self.last_sequence;
        let (log, manifest, temporary) = (next, next + 1, next + 2);
        let start = WalStart {
            synced_through: last,
            previous_log: 0,
            previous_last_sequence: last,
            first_sequence: last + 1,
            manifest_number: manifest,
            manifest_synced_bytes: 0,
            database: DatabaseIdentity { id: 1, epoch: 1 },
        };
        let mut wal = WalWriter::create(env, directory, log, &start, 0)?;
        // The manifest needs this log, so its start record must be durable first.
        wal.sync()?;
        let levels = self.levels.iter().enumerate();
        let snapshot = VersionEdit {
            ordinal: 0,
            comparator: Some(COMPARATOR.into()),
            first_log: Some(FirstLog { number: log, flushed_through: last }),
            next_file_number: Some(next + 3),
            last_sequence: Some(last),
            synced_through: Some(last),
            session_log: Some(log),
            // The log is synced and gets no more writes.
            clean_close: Some(CleanClose { log, log_bytes: wal.bytes(), last_sequence: last }),
            database: Some(start.database),
            next_keyspace: Some(1),
            created: vec![KeyspaceMeta::default_keyspace()],
            added: levels
                .flat_map(|(level, metas)| metas.iter().map(move |meta| (level, meta.clone())))
                .collect(),
            ..VersionEdit::default()
        };
        ManifestWriter::create(env, directory, manifest, &snapshot)?;
        set_current(env, directory, manifest, temporary)
    }

    /// Removes the files that the new manifest does not name: old ones, and new tables that were
    /// merged into others.
    fn clear(
        mut self,
        options: &Options,
        directory: &Path,
        found: &Inventory,
        new: Range<u64>,
    ) -> RepairReport {
        let live: Vec<u64> = self.levels.iter().flatten().map(|meta| meta.number).collect();
        for name in found.files.iter().copied().chain(new.map(FileName::Table)) {
            let stays = match name {
                FileName::Current | FileName::Lock | FileName::Stats => true,
                FileName::Table(number) => live.contains(&number),
                FileName::Manifest(_) | FileName::Wal(_) | FileName::Temporary(_) => false,
            };
            if !stays {
                // A file that cannot be removed is obsolete, and the next opening removes it.
                let _ = options.env.remove(&name.path(directory));
            }
        }
        let kept = found.tables.iter().filter(|table| live.contains(&table.number)).count();
        self.report.changed = true;
        self.report.tables_kept = kept as u64;
        self.report.tables_written = (live.len() - kept) as u64;
        self.report.entries = self.levels.iter().flatten().map(|meta| meta.entries).sum();
        self.report.last_sequence = self.last_sequence;
        self.report
    }
}

fn numbers(files: &Vec<&TableFound>) -> Vec<u64> {
    files.iter().map(|file| file.number).collect()
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
