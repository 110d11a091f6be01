//! What stands in a directory, and what each file is worth. Reads everything, changes nothing.
//!
//! A manifest is believed if CURRENT names it, it is whole, every table it names is there in some
//! state, and no log says that it was longer or another one in force. Less than that, and tables
//! it does not name may be part of the data.
//!
//! Files of an unknown format are no damage: they end the inventory with an error, since a newer
//! siftdb can read them. So does a file that cannot be opened or listed.

use crate::directory::BELIEVED_MAX;
use crate::env::api::{Env, FileKind};
use crate::error::{Error, Result};
use crate::filename::{FileName, parse};
use crate::key::SequenceNumber;
use crate::options::database::Options;
use crate::recovery::DroppedPart;
use crate::table::reader::{Expect, Table};
use crate::table::verify::TableCheck;
use crate::version::edit::FileMeta;
use crate::version::manifest::{ManifestState, highest_in, read_current, replay};
use crate::wal::evidence::ManifestFacts;
use crate::wal::recover::recover;
use crate::wal::salvage::salvage;
use std::collections::BTreeSet;
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
    /// The manifest in force, if it is to be believed.
    pub manifest: Option<ManifestState>,
    /// All table files, by number.
    pub tables: Vec<TableFound>,
    /// The logs that may hold writes that are in no table.
    pub logs: Vec<u64>,
    /// What to hold those logs against.
    pub facts: ManifestFacts,
    /// They read back as after any crash.
    pub logs_are_sound: bool,
    /// Above every file number that was ever given, as far as anything says.
    pub next_file_number: u64,
    /// The largest sequence that a manifest or table speaks of.
    pub last_sequence: SequenceNumber,
    /// What of CURRENT and manifests could not be used.
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
            match name {
                FileName::Table(number) if !found.no_files.contains(&name) => {
                    let state = check_table(options, directory, number)?;
                    found.tables.push(TableFound { number, state });
                }
                FileName::Manifest(number) if !found.no_files.contains(&name) => {
                    let (file, sequence) = highest_in(&**env, directory, number)?;
                    let file = if file < BELIEVED_MAX { file } else { 0 };
                    found.next_file_number = found.next_file_number.max(file);
                    found.last_sequence = found.last_sequence.max(sequence);
                }
                _ => {}
            }
        }
        found.last_sequence = found.last_sequence.max(found.last_in_tables());
        match found.read_manifest(&**env, directory) {
            Ok(state) => found.manifest = Some(state),
            Err(error) => found.dropped.push(part_of(error)?),
        }
        if found.manifest.is_none() {
            // No manifest is ahead of this one, and none is too short.
            let number = u64::MAX;
            found.facts = ManifestFacts { number, bytes: u64::MAX, ..ManifestFacts::default() };
            found.logs = found.all_logs();
            // For the errors: the steps behind this one write.
            salvage(&**env, directory, &found.logs, &found.facts, &mut |_, _| Ok(()))?;
        }
        Ok(found)
    }

    /// True if there is nothing that a repair could do.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let Some(state) = &self.manifest else { return false };
        let sound = |meta: &FileMeta| {
            let file = self.tables.iter().find(|table| table.number == meta.number);
            file.is_some_and(|file| match &file.state {
                TableState::Sound(found) => {
                    FileMeta { garbage: meta.garbage, ..found.clone() } == *meta
                }
                _ => false,
            })
        };
        self.logs_are_sound && state.levels.iter().flatten().all(sound)
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

    fn all_logs(&self) -> Vec<u64> {
        let files = self.files.iter().filter(|name| !self.no_files.contains(name));
        let wal = |name: &FileName| match name {
            FileName::Wal(number) => Some(*number),
            _ => None,
        };
        // In the order of their names, which is that of their numbers.
        files.filter_map(wal).collect()
    }

    /// The manifest in force, and with it which logs count. An error that is `Corruption` says why
    /// it is not to be believed.
    fn read_manifest(&mut self, env: &dyn Env, directory: &Path) -> Result<ManifestState> {
        let current = FileName::Current.path(directory);
        if self.no_files.contains(&FileName::Current) {
            return Err(Error::corruption(current, 0, "it is no ordinary file"));
        }
        let Some(number) = read_current(env, directory)? else {
            return Err(Error::missing(current, "other files of a database are there"));
        };
        let state = replay(env, directory, number)?;
        let path = FileName::Manifest(number).path(directory);
        let there: BTreeSet<u64> = self.tables.iter().map(|table| table.number).collect();
        if let Some(meta) = state.levels.iter().flatten().find(|meta| !there.contains(&meta.number))
        {
            let what = format!("it names {}, which is missing", FileName::Table(meta.number));
            return Err(Error::corruption(path, 0, what));
        }
        let facts = state.facts();
        let mut logs = self.all_logs();
        logs.retain(|log| *log >= facts.log_number);
        let logs_are_sound = match recover(env, directory, &logs, &facts, &mut |_, _| Ok(())) {
            Ok(_) => true,
            Err(error) if !error.is_corruption() => return Err(error),
            Err(_) => {
                // What fails here, too, is what the logs say of the manifest.
                salvage(env, directory, &logs, &facts, &mut |_, _| Ok(()))?;
                false
            }
        };
        (self.logs, self.facts, self.logs_are_sound) = (logs, facts, logs_are_sound);
        Ok(state)
    }
}

fn check_table(options: &Options, directory: &Path, number: u64) -> Result<TableState> {
    let path = FileName::Table(number).path(directory);
    let check = || TableCheck {
        env: &options.env,
        custom_policies: options.custom_policies(),
        custom_prefixes: options.custom_prefixes(),
    };
    let error = match check().run(&path, Expect::default(), &mut |_| {}) {
        Ok((table, _)) => return Ok(TableState::Sound(meta_of(number, &table))),
        Err(error) => unreadable(error)?,
    };
    match check().open(&path, Expect::default()) {
        Ok(table) => Ok(TableState::Damaged(meta_of(number, &table), error)),
        Err(error) => unreadable(error).map(TableState::Unusable),
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
fn part_of(error: Error) -> Result<DroppedPart> {
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
