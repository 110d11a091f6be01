//! The tables that a database directory answers from, by what its manifest says.
//!
//! `siftdb sst verify DIR` calls [`live_tables`] and then [`verify_live_table`] for each. Only what
//! CURRENT and its manifest name counts: a table that is missing is damage, and a file that merely
//! ends in `.sst` is not looked at. Size and table id are held against the manifest, so a table
//! that was exchanged for another good one is found as well.
//!
//! Nothing is locked or written. The database may be in use: a manifest or table that goes while
//! it is looked at has a successor, so CURRENT is asked again before anything is called missing.
//! Logs are not looked at; what they hold is no table yet.

use crate::admin::inspect::tables::verify_expected;
use crate::admin::inspect::text::TableFacts;
use crate::base::error::{Error, Result};
use crate::base::filename::{FileName, parse};
use crate::env::api::{Env, LockMode};
use crate::env::foreign::refuse_foreign;
use crate::log::record::reader::RecordReader;
use crate::log::wal::file::LogFile;
use crate::log::wal::format::{WalBody, WalItem, WalRecord, visit};
use crate::table::reader::Expect;
use crate::tree::edit::FileMeta;
use crate::tree::manifest::{ManifestState, read_current, replay};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A table that the manifest names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveTable {
    /// Where it has to be.
    pub path: PathBuf,
    /// Its level.
    pub level: usize,
    /// The length that it has to have.
    pub bytes: u64,
    /// The id that it has to carry.
    pub table_id: u64,
    /// The manifest that says so.
    pub manifest: u64,
}

/// The tables of the database in `directory`, level by level in the order of a search; `None` if
/// no database is there.
///
/// # Errors
/// `Io`; `Corruption` of CURRENT or the manifest, also when CURRENT is missing beside other files
/// of a database; `UnsupportedFormat`.
pub fn live_tables(env: &Arc<dyn Env>, directory: &Path) -> Result<Option<Vec<LiveTable>>> {
    refuse_foreign(&**env, directory)?;
    let Some(state) = manifest_in_force(&**env, directory)? else {
        refuse_remnants(&**env, directory)?;
        return Ok(None);
    };
    let levels = state.levels.iter().enumerate();
    let tables = levels.flat_map(|(level, files)| files.iter().map(move |file| (level, file)));
    let live = |(level, file): (usize, &FileMeta)| LiveTable {
        path: FileName::Table(file.number).path(directory),
        level,
        bytes: file.bytes,
        table_id: file.table_id,
        manifest: state.facts.number,
    };
    Ok(Some(tables.map(live).collect()))
}

/// Checks the whole of `table`, as `verify_table` does, and that it is the one that the manifest
/// means. `None` if a running database has put others in its place meanwhile.
///
/// # Errors
/// As for `verify_table`; a missing table is `Missing`.
pub fn verify_live_table(env: &Arc<dyn Env>, table: &LiveTable) -> Result<Option<TableFacts>> {
    let expect = Expect { table_id: Some(table.table_id), bytes: Some(table.bytes) };
    match verify_expected(env, &table.path, expect) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            let directory = table.path.parent().unwrap_or(Path::new(""));
            let now = live_tables(env, directory)?.unwrap_or_default();
            if !now.iter().any(|other| other.path == table.path) {
                return Ok(None);
            }
            let manifest = FileName::Manifest(table.manifest);
            Err(Error::missing(&table.path, format!("{manifest} names it")))
        }
        verified => verified.map(Some),
    }
}

/// What [`live_tables`] and [`verify_live_table`] do not see of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UncheckedLogs {
    /// A program has the database open to write, so tables and logs may come and go.
    pub in_use: bool,
    /// Logs that hold entries which may be in no table.
    pub logs: u64,
    /// These entries, as far as they can be read.
    pub entries: u64,
}

/// What of the database in `directory` is in no table: the entries of the logs that opening would
/// read, and whether a program is about to write more.
///
/// # Errors
/// As for [`live_tables`], and `Io` of a log. Damage in logs is not looked for.
pub fn unchecked_logs(env: &Arc<dyn Env>, directory: &Path) -> Result<UncheckedLogs> {
    let mut unchecked =
        UncheckedLogs { in_use: is_in_use(&**env, directory), ..Default::default() };
    let Some(state) = manifest_in_force(&**env, directory)? else { return Ok(unchecked) };
    let listed = env.list(directory).map_err(|error| Error::io("list", directory, error))?;
    let logs = listed.iter().filter_map(|file| match parse(&file.name) {
        Some(FileName::Wal(number)) if number >= state.facts.log_number => Some(number),
        _ => None,
    });
    for number in logs {
        // A flush let it go: its entries are in a table by now.
        let opened = LogFile::new(directory, number).open(&**env, u64::MAX)?;
        let Some(mut reader) = opened else { continue };
        let entries = entries_of_log(&mut reader, state.facts.flushed_through)?;
        unchecked.logs += u64::from(entries > 0);
        unchecked.entries += entries;
    }
    Ok(unchecked)
}

/// Entries behind `flushed_through`, which no table has.
fn entries_of_log(reader: &mut RecordReader, flushed_through: u64) -> Result<u64> {
    let mut entries = 0;
    visit(reader, &mut |_, _, item| {
        if let WalItem::Record(WalRecord { body: WalBody::Batch(batch), .. }) = item
            && batch.sequence > flushed_through
        {
            entries += u64::from(batch.count);
        }
    })?;
    Ok(entries)
}

/// Whether a writer holds LOCK. The try takes the lock of a reader for a moment, if it can be had.
fn is_in_use(env: &dyn Env, directory: &Path) -> bool {
    let lock = FileName::Lock.path(directory);
    // Trying would create the file.
    let is_held = || match env.lock(&lock, LockMode::Shared) {
        Err(error) => error.kind() == ErrorKind::WouldBlock,
        Ok(_) => false,
    };
    env.metadata(&lock).is_ok() && is_held()
}

fn manifest_in_force(env: &dyn Env, directory: &Path) -> Result<Option<ManifestState>> {
    let mut current = read_current(env, directory)?;
    while let Some(number) = current {
        match replay(env, directory, number) {
            Ok(state) => return Ok(Some(state)),
            Err(error) => {
                current = read_current(env, directory)?;
                // Unless another is in force by now: this one was replaced while it was read.
                if current == Some(number) {
                    return Err(error);
                }
            }
        }
    }
    Ok(None)
}

/// Without CURRENT, logs, tables and manifests are what is left of a database, not none. (The
/// first manifest alone is left by a creation that was cut short: no database yet.)
fn refuse_remnants(env: &dyn Env, directory: &Path) -> Result<()> {
    let listed = env.list(directory).map_err(|error| Error::io("list", directory, error))?;
    let ours = listed.iter().filter_map(|file| parse(&file.name));
    let remnant = ours.into_iter().find(|name| match name {
        FileName::Manifest(number) => *number != 1,
        FileName::Wal(_) | FileName::Table(_) => true,
        FileName::Current | FileName::Lock | FileName::Stats | FileName::Temporary(_) => false,
    });
    remnant.map_or(Ok(()), |name| {
        let what = format!("{name} is there, so a database was");
        Err(Error::missing(FileName::Current.path(directory), what))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::{ValueKind, put_internal_key};
    use crate::env::mem::MemEnv;
    use crate::tree::edit::{COMPARATOR, FirstLog, VersionEdit};
    use crate::tree::manifest::{ManifestWriter, set_current};

    const ROOT: &str = "/";

    fn put_in_force(env: &MemEnv, number: u64, added: Vec<(usize, FileMeta)>) {
        let snapshot = VersionEdit {
            comparator: Some(COMPARATOR.into()),
            first_log: Some(FirstLog { number: 3, flushed_through: 9 }),
            next_file_number: Some(90),
            last_sequence: Some(9),
            added,
            ..VersionEdit::default()
        };
        ManifestWriter::create(env, Path::new(ROOT), number, &snapshot).unwrap();
        set_current(env, Path::new(ROOT), number, number + 1).unwrap();
    }

    fn file(number: u64) -> FileMeta {
        let mut key = Vec::new();
        put_internal_key(&mut key, b"k", 5, ValueKind::Put);
        FileMeta {
            number,
            table_id: 0x5175,
            bytes: 1000,
            smallest: key.clone(),
            largest: key,
            entries: 1,
            garbage: 0,
            smallest_sequence: 5,
            largest_sequence: 5,
        }
    }

    #[test]
    fn a_missing_live_table_is_damage() {
        let memory = MemEnv::new();
        let env: Arc<dyn Env> = Arc::new(memory.clone());
        put_in_force(&memory, 10, vec![(2, file(7))]);
        let tables = live_tables(&env, Path::new(ROOT)).unwrap().unwrap();
        let [table] = &tables[..] else { panic!("{tables:?}") };
        assert_eq!((table.path.as_path(), table.level), (Path::new("/000007.sst"), 2));
        let error = verify_live_table(&env, table).unwrap_err();
        assert!(error.is_corruption(), "{error}");
        assert!(error.to_string().contains("MANIFEST-000010 names it"), "{error}");
        put_in_force(&memory, 20, vec![(3, file(8))]);
        assert_eq!(verify_live_table(&env, table).unwrap(), None);
    }

    #[test]
    fn without_current_only_unfinished_creations_are_no_database() {
        let env = |name: &str| -> Arc<dyn Env> {
            let memory = MemEnv::new();
            memory.write_file(&Path::new(ROOT).join(name), b"bytes");
            Arc::new(memory)
        };
        for name in ["foreign.sst", "LOCK", "STATS", "000002.tmp", "MANIFEST-000001"] {
            assert_eq!(live_tables(&env(name), Path::new(ROOT)).unwrap(), None, "{name}");
        }
        for name in ["000004.sst", "000003.wal", "MANIFEST-000005", "CURRENT"] {
            let error = live_tables(&env(name), Path::new(ROOT)).unwrap_err();
            assert!(error.is_corruption(), "{name}: {error}");
        }
    }
}
