//! Finds the files in a directory and checks each of them. Changes nothing.
//!
//! `history` then chooses the manifest and finds missing files.
//!
//! A file of an unknown format ends the inventory with an error, because a newer siftdb may be able
//! to read it. So does a file that cannot be opened.

use crate::base::error::{Error, Result};
use crate::base::filename::{FileName, parse};
use crate::base::key::{KeyspaceId, SequenceNumber};
use crate::env::api::{Env, FileKind};
use crate::env::directory::{TRUSTED_NUMBER_MAX, log_numbers};
use crate::env::foreign::is_foreign_table;
use crate::log::recovery::DroppedPart;
use crate::log::wal::cursor::{LogCursor, LogItem};
use crate::log::wal::format::{DatabaseIdentity, WalBody};
use crate::options::database::Options;
use crate::table::reader::{Expect, Table};
use crate::table::salvage::remains_of;
use crate::table::verify::TableCheck;
use crate::tree::file_meta::FileMeta;
use crate::tree::manifest::{ManifestRemains, remains};
use std::collections::BTreeMap;
use std::path::Path;

/// The state of a table file.
#[derive(Clone, Debug)]
pub(crate) enum TableState {
    /// Every byte is sound.
    Sound(FileMeta),
    /// It opens, but a part of it is damaged.
    Damaged(FileMeta, Error),
    /// It does not open.
    Unusable(Error),
}

/// A file with the name of a table.
#[derive(Clone, Debug)]
pub(crate) struct TableFound {
    /// The number in its name.
    pub number: u64,
    /// The id of its table; `None` if neither header nor footer can be read.
    pub table_id: Option<u64>,
    /// The keyspace of its table, by its properties or its header.
    pub keyspace: Option<KeyspaceId>,
    /// The name of that keyspace, by its properties.
    pub keyspace_name: Option<String>,
    /// The id of the database that wrote it, then those of its ancestors; empty if nothing says it.
    pub databases: Vec<u128>,
    /// The sequence of all its entries, by any manifest or log, if it was ingested.
    pub global_sequence: Option<SequenceNumber>,
    /// It was ingested, and no manifest or log says with which sequence.
    pub lacks_sequence: bool,
    pub state: TableState,
}

impl TableFound {
    /// Its description, if the table opens.
    pub(crate) fn meta(&self) -> Option<&FileMeta> {
        match &self.state {
            TableState::Sound(meta) | TableState::Damaged(meta, _) => Some(meta),
            TableState::Unusable(_) => None,
        }
    }

    /// The table with the sequence that a manifest or log gives it, if it was ingested.
    fn with_sequence(mut self, given: Option<SequenceNumber>) -> Self {
        self.global_sequence = given;
        self.lacks_sequence &= given.is_none();
        if let (TableState::Sound(meta) | TableState::Damaged(meta, _), Some(sequence)) =
            (&mut self.state, given)
        {
            meta.set_global_sequence(sequence);
        }
        self
    }
}

/// Everything that was found.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    /// All files of siftdb, except LOCK, STATS, tables of other programs, and files (other than
    /// logs) with a number that siftdb never assigns.
    pub files: Vec<FileName>,
    /// Names that belong to something other than an ordinary file.
    pub not_files: Vec<FileName>,
    /// All table files, by number.
    pub tables: Vec<TableFound>,
    /// The numbers of tables of other databases, which are not in `tables`.
    pub foreign: Vec<u64>,
    /// The readable part of each manifest, with the name of its file.
    pub manifests: Vec<(FileName, ManifestRemains)>,
    /// The databases that the starts of the logs name, newest log first.
    pub logged: Vec<DatabaseIdentity>,
    /// Above every file number that a manifest knows.
    pub next_file_number: u64,
    /// The largest sequence in the manifests and tables.
    pub last_sequence: SequenceNumber,
    /// Manifests that cannot be read.
    pub dropped: Vec<DroppedPart>,
}

impl Inventory {
    /// Reads and checks all files.
    ///
    /// # Errors
    /// A file of an unknown format; a file that cannot be opened.
    pub(crate) fn take(options: &Options, directory: &Path) -> Result<Self> {
        let env = &options.env;
        let mut found = Inventory::default();
        found.list(&**env, directory)?;
        let mut files = found.files.clone();
        files.retain(|name| !found.not_files.contains(name));
        for name in &files {
            let FileName::Manifest(number) = *name else { continue };
            match remains(&**env, &name.path(directory), number) {
                Ok(remains) => found.manifests.push((*name, remains)),
                Err(error) => found.dropped.push(part_of(error)?),
            }
        }
        // After the manifests and logs, which say the sequences of ingested tables.
        let loads = found.read_logs(&**env, directory)?;
        for name in &files {
            let FileName::Table(number) = *name else { continue };
            let table = check_table(options, directory, number)?;
            let mut given = found.manifests.iter().filter_map(|(_, manifest)| {
                manifest.global_sequences.get(&table.table_id?).copied()
            });
            let by_log = || loads.get(&table.table_id?).copied();
            let given = given.next_back().or_else(by_log);
            found.tables.push(table.with_sequence(given));
        }
        for (_, manifest) in &found.manifests {
            let file = Some(manifest.next_file_number).filter(|file| *file < TRUSTED_NUMBER_MAX);
            found.next_file_number = found.next_file_number.max(file.unwrap_or(0));
        }
        found.sum_up();
        Ok(found)
    }

    /// Reads the logs up to their first batches. Notes the databases that their starts name, and
    /// returns the sequences of bulk loads, by the id of the table. What cannot be read is left out
    /// here; the logs that a repair reads report it.
    fn read_logs(
        &mut self,
        env: &dyn Env,
        directory: &Path,
    ) -> Result<BTreeMap<u64, SequenceNumber>> {
        let mut loads = BTreeMap::new();
        for number in self.all_logs() {
            let opened = LogCursor::open(env, directory, number, u64::MAX)?;
            let Some(mut log) = opened else { continue };
            loop {
                match log.next()?.item {
                    LogItem::Record(WalBody::Start(start)) => self.logged.push(start.database),
                    LogItem::Record(WalBody::Loads(found)) => loads.extend(found.tables()),
                    LogItem::Record(WalBody::Batch(_)) | LogItem::End => break,
                    _ => {}
                }
            }
        }
        self.logged.reverse();
        Ok(loads)
    }

    /// Finds the last sequence.
    pub(crate) fn sum_up(&mut self) {
        let in_manifests = self.manifests.iter().map(|(_, manifest)| manifest.last_sequence).max();
        self.last_sequence = in_manifests.unwrap_or(0).max(self.last_in_tables());
    }

    /// The largest sequence in the tables.
    pub(crate) fn last_in_tables(&self) -> SequenceNumber {
        let metas = self.tables.iter().filter_map(TableFound::meta);
        metas.map(|meta| meta.largest_sequence).max().unwrap_or(0)
    }

    fn list(&mut self, env: &dyn Env, directory: &Path) -> Result<()> {
        let entries = env.list(directory).map_err(|error| Error::io("list", directory, error))?;
        for entry in entries {
            let Some(name) = parse(&entry.name) else { continue };
            // A log counts whatever its number is, because the next opening would read it.
            let believed = name.number().is_none_or(|number| number < TRUSTED_NUMBER_MAX)
                || matches!(name, FileName::Wal(_));
            if !believed || matches!(name, FileName::Lock | FileName::Stats) {
                continue;
            }
            // It stays where it is, and no new file gets its number.
            if let FileName::Table(number) = name
                && is_foreign_table(env, &name.path(directory))?
            {
                self.next_file_number = self.next_file_number.max(number + 1);
                continue;
            }
            self.files.push(name);
            if entry.kind != FileKind::File {
                self.not_files.push(name);
            }
        }
        self.files.sort_unstable();
        Ok(())
    }

    /// The numbers of all logs, in order.
    pub(crate) fn all_logs(&self) -> Vec<u64> {
        log_numbers(self.files.iter().filter(|name| !self.not_files.contains(name)))
    }

    /// The file with the table of this id. Of several files, a sound one is preferred, then one
    /// that opens, then the one with the right number. A file whose id cannot be read is identified
    /// by its name.
    pub(crate) fn table_of(&self, table_id: u64, number: u64) -> Option<&TableFound> {
        let is_it = |table: &&TableFound| match table.table_id {
            Some(found) => found == table_id,
            None => table.number == number,
        };
        let rank = |table: &&TableFound| {
            let is_sound = matches!(table.state, TableState::Sound(_));
            (is_sound, table.meta().is_some(), table.number == number)
        };
        self.tables.iter().filter(is_it).max_by_key(rank)
    }
}

fn check_table(options: &Options, directory: &Path, number: u64) -> Result<TableFound> {
    let path = FileName::Table(number).path(directory);
    let check = TableCheck { env: &options.env, rules: options.custom_rules() };
    let opened = |table: &Table, state: TableState| {
        let label = table.properties.keyspace.clone();
        TableFound {
            number,
            table_id: Some(table.file.table_id),
            keyspace: Some(label.id),
            keyspace_name: Some(label.name),
            databases: table.properties.databases.clone(),
            global_sequence: None,
            lacks_sequence: table.properties.ingested,
            state,
        }
    };
    let error = match check.run(&path, Expect::default(), &mut |_| {}) {
        Ok((table, _)) => {
            return Ok(opened(&table, TableState::Sound(FileMeta::of_table(number, &table))));
        }
        Err(error) => unreadable(error)?,
    };
    match check.open(&path, Expect::default()) {
        Ok(table) => {
            let meta = FileMeta::of_table(number, &table);
            Ok(opened(&table, TableState::Damaged(meta, error)))
        }
        Err(error) => {
            let state = TableState::Unusable(unreadable(error)?);
            let left = remains_of(&options.env, &path)?;
            Ok(TableFound {
                number,
                table_id: left.as_ref().map(|left| left.table_id),
                keyspace: left.as_ref().and_then(|left| left.keyspace),
                keyspace_name: left.and_then(|left| left.keyspace_name),
                databases: Vec::new(),
                global_sequence: None,
                lacks_sequence: false,
                state,
            })
        }
    }
}

/// Returns `error` as damage, or fails with it if it is none. A failed read counts as damage.
fn unreadable(error: Error) -> Result<Error> {
    match &error {
        Error::Corruption { .. } | Error::Missing { .. } | Error::Io { op: "read", .. } => {
            Ok(error)
        }
        _ => Err(error),
    }
}

/// Converts damage to a dropped part; fails with any other error.
///
/// # Errors
/// `error`, if it is no damage.
pub(crate) fn part_of(error: Error) -> Result<DroppedPart> {
    match error {
        Error::Corruption { path, offset, what, .. } => Ok(DroppedPart { path, offset, what }),
        Error::Missing { path, what } => {
            Ok(DroppedPart { path, offset: 0, what: format!("it is missing: {what}") })
        }
        Error::Io { op: "read", path, source } => {
            Ok(DroppedPart { path, offset: 0, what: source.to_string() })
        }
        other => Err(other),
    }
}
