//! What is in a directory, and what each file is worth. Reads everything, changes nothing.
//!
//! Which manifest is believed, and which files it and the logs miss, is the matter of `history`.
//!
//! Files of an unknown format are no damage: they end the inventory with an error, since a newer
//! siftdb can read them. So does a file that cannot be opened or listed.

use crate::base::error::{Error, Result};
use crate::base::filename::{FileName, parse};
use crate::base::key::SequenceNumber;
use crate::env::api::{Env, FileKind};
use crate::env::directory::BELIEVED_MAX;
use crate::log::recovery::DroppedPart;
use crate::options::database::Options;
use crate::table::reader::{Expect, Table};
use crate::table::salvage::table_id_of;
use crate::table::verify::TableCheck;
use crate::tree::edit::FileMeta;
use crate::tree::manifest::{ManifestRemains, remains};
use std::path::Path;

/// What a table file is worth.
#[derive(Clone, Debug)]
pub enum TableState {
    /// Every byte is as it should be.
    Sound(FileMeta),
    /// It opens, and something in it is wrong.
    Damaged(FileMeta, Error),
    /// It does not open.
    Unusable(Error),
}

/// A file under the name of a table.
#[derive(Clone, Debug)]
pub struct TableFound {
    /// The number in its name.
    pub number: u64,
    /// The id of its table; `None` if neither header nor footer says it.
    pub table_id: Option<u64>,
    /// What it is worth.
    pub state: TableState,
}

impl TableFound {
    /// Its description, if it opens.
    #[must_use]
    pub fn meta(&self) -> Option<&FileMeta> {
        match &self.state {
            TableState::Sound(meta) | TableState::Damaged(meta, _) => Some(meta),
            TableState::Unusable(_) => None,
        }
    }
}

/// Everything that was found.
#[derive(Debug, Default)]
pub struct Inventory {
    /// All names that are ours, but LOCK and STATS, and files other than logs whose number no
    /// siftdb gives.
    pub files: Vec<FileName>,
    /// Those that are no ordinary files.
    pub no_files: Vec<FileName>,
    /// All table files, by number.
    pub tables: Vec<TableFound>,
    /// What is left of each manifest, with the name of its file.
    pub manifests: Vec<(FileName, ManifestRemains)>,
    /// Above every file number that was ever given, as far as anything says.
    pub next_file_number: u64,
    /// The largest sequence that a manifest or table speaks of.
    pub last_sequence: SequenceNumber,
    /// Manifests that cannot be read.
    pub dropped: Vec<DroppedPart>,
}

impl Inventory {
    /// Looks at everything.
    ///
    /// # Errors
    /// Files of an unknown format, and such that the system does not let be opened.
    pub fn take(options: &Options, directory: &Path) -> Result<Self> {
        let env = &options.env;
        let mut found = Inventory::default();
        found.list(&**env, directory)?;
        for name in found.files.clone() {
            if found.no_files.contains(&name) {
                continue;
            }
            match name {
                FileName::Table(number) => {
                    found.tables.push(check_table(options, directory, number)?);
                }
                FileName::Manifest(number) => {
                    match remains(&**env, &name.path(directory), number) {
                        Ok(remains) => found.manifests.push((name, remains)),
                        Err(error) => found.dropped.push(part_of(error)?),
                    }
                }
                _ => {}
            }
        }
        for (_, manifest) in &found.manifests {
            let file = Some(manifest.next_file_number).filter(|file| *file < BELIEVED_MAX);
            found.next_file_number = found.next_file_number.max(file.unwrap_or(0));
            found.last_sequence = found.last_sequence.max(manifest.last_sequence);
        }
        found.last_sequence = found.last_sequence.max(found.last_in_tables());
        Ok(found)
    }

    /// The largest sequence that a table speaks of.
    #[must_use]
    pub fn last_in_tables(&self) -> SequenceNumber {
        let metas = self.tables.iter().filter_map(TableFound::meta);
        metas.map(|meta| meta.largest_sequence).max().unwrap_or(0)
    }

    fn list(&mut self, env: &dyn Env, directory: &Path) -> Result<()> {
        let entries = env.list(directory).map_err(|error| Error::io("list", directory, error))?;
        for entry in entries {
            let Some(name) = parse(&entry.name) else { continue };
            // A log counts whatever its number: the next opening would read it.
            let believed = name.number().is_none_or(|number| number < BELIEVED_MAX)
                || matches!(name, FileName::Wal(_));
            if !believed || matches!(name, FileName::Lock | FileName::Stats) {
                continue;
            }
            self.files.push(name);
            if entry.kind != FileKind::File {
                self.no_files.push(name);
            }
        }
        self.files.sort_unstable();
        Ok(())
    }

    /// The numbers of all logs, in order.
    #[must_use]
    pub fn all_logs(&self) -> Vec<u64> {
        let files = self.files.iter().filter(|name| !self.no_files.contains(name));
        let wal = |name: &FileName| match name {
            FileName::Wal(number) => Some(*number),
            _ => None,
        };
        // In the order of their names, which is that of their numbers.
        files.filter_map(wal).collect()
    }

    /// The file that has the table of this id: a sound one if there are several, and then the one
    /// under the number that it should have. A file that does not say its id is taken for what its
    /// name says.
    #[must_use]
    pub fn table_of(&self, table_id: u64, number: u64) -> Option<&TableFound> {
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
    let check = || TableCheck {
        env: &options.env,
        custom_policies: options.custom_policies(),
        custom_prefixes: options.custom_prefixes(),
    };
    let error = match check().run(&path, Expect::default(), &mut |_| {}) {
        Ok((table, _)) => {
            let table_id = Some(table.table_id());
            let state = TableState::Sound(meta_of(number, &table));
            return Ok(TableFound { number, table_id, state });
        }
        Err(error) => unreadable(error)?,
    };
    match check().open(&path, Expect::default()) {
        Ok(table) => {
            let table_id = Some(table.table_id());
            let state = TableState::Damaged(meta_of(number, &table), error);
            Ok(TableFound { number, table_id, state })
        }
        Err(error) => {
            let state = TableState::Unusable(unreadable(error)?);
            let table_id = table_id_of(&options.env, &path)?;
            Ok(TableFound { number, table_id, state })
        }
    }
}

/// Passes on what is no damage. A read that the disk refuses is: the place is gone.
fn unreadable(error: Error) -> Result<Error> {
    match &error {
        Error::Corruption { .. } | Error::Missing { .. } | Error::Io { op: "read", .. } => {
            Ok(error)
        }
        _ => Err(error),
    }
}

/// What a table says of itself, as a manifest would.
#[must_use]
pub fn meta_of(number: u64, table: &Table) -> FileMeta {
    let properties = table.properties();
    FileMeta {
        number,
        table_id: table.table_id(),
        bytes: table.file().bytes(),
        smallest: properties.smallest_key.clone(),
        largest: properties.largest_key.clone(),
        entries: properties.entries,
        garbage: properties.tombstones,
        smallest_sequence: properties.smallest_sequence,
        largest_sequence: properties.largest_sequence,
    }
}

/// Damage as a part that was not used; passes on what is no damage.
///
/// # Errors
/// `error`, where it is no damage.
pub fn part_of(error: Error) -> Result<DroppedPart> {
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
