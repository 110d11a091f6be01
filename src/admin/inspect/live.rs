//! The live tables of a database directory: those that its manifest names.
//!
//! `siftdb sst verify DIR` calls [`live_tables`], then [`verify_live_table`] for each table. A
//! missing table is damage; other files that end in `.sst` are ignored. Size and table id are
//! compared with the manifest, so a table that was swapped with another one is noticed.
//!
//! Nothing is locked or written, and the database may be in use. A manifest or table that was
//! removed while it was read has a successor, so CURRENT is read again before a file counts as
//! missing. Only [`unchecked_logs`] reads logs.

use crate::admin::inspect::tables::verify_expected;
use crate::admin::inspect::text::TableFacts;
use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::env::api::{Env, LockMode};
use crate::env::directory::{log_numbers, our_files};
use crate::env::foreign::refuse_foreign;
use crate::log::wal::cursor::{LogCursor, LogItem};
use crate::log::wal::format::WalBody;
use crate::table::reader::Expect;
use crate::tree::current::read_current;
use crate::tree::file_meta::FileMeta;
use crate::tree::manifest::replay;
use crate::tree::manifest_state::ManifestState;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A table that the manifest names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveTable {
    /// The path of the table's file.
    pub path: PathBuf,
    /// The number of its keyspace.
    pub keyspace: u32,
    /// The level that the table is at, 0 to 6.
    pub level: usize,
    /// Its length, as the manifest says.
    pub bytes: u64,
    /// Its table id, as the manifest says.
    pub table_id: u64,
    /// The number of that manifest.
    pub manifest: u64,
}

/// The tables of the database in `directory`, level by level in search order; `None` if there is no
/// database.
///
/// # Errors
/// `Io`; `Corruption` of CURRENT or the manifest; `Missing` if there are files of a database
/// without CURRENT; `UnsupportedFormat`.
pub fn live_tables(env: &Arc<dyn Env>, directory: &Path) -> Result<Option<Vec<LiveTable>>> {
    refuse_foreign(&**env, directory)?;
    let Some(state) = current_manifest(&**env, directory)? else {
        refuse_remnants(&**env, directory)?;
        return Ok(None);
    };
    let live = |(level, file): (usize, &FileMeta)| LiveTable {
        path: FileName::Table(file.number).path(directory),
        keyspace: file.keyspace,
        level,
        bytes: file.bytes,
        table_id: file.table_id,
        manifest: state.facts.number,
    };
    Ok(Some(state.tables().map(live).collect()))
}

/// The keyspaces of the database in `directory`: their numbers and names. None if there is no
/// database.
///
/// # Errors
/// As for [`live_tables`].
pub fn live_keyspaces(env: &Arc<dyn Env>, directory: &Path) -> Result<Vec<(u32, String)>> {
    let state = current_manifest(&**env, directory)?;
    let keyspaces = state.iter().flat_map(|state| &state.keyspaces);
    Ok(keyspaces.map(|(id, keyspace)| (*id, keyspace.meta.name.clone())).collect())
}

/// Checks all of `table`, as `verify_table` does, and that it is the table that the manifest names.
/// `None` if a running database replaced it in the meantime.
///
/// # Errors
/// As for `verify_table`; a missing table is `Missing`.
pub fn verify_live_table(env: &Arc<dyn Env>, table: &LiveTable) -> Result<Option<TableFacts>> {
    let (table_id, bytes) = (Some(table.table_id), Some(table.bytes));
    let expect = Expect { table_id, bytes, ..Expect::default() };
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

/// The logs that [`live_tables`] and [`verify_live_table`] do not check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UncheckedLogs {
    /// A program has the database open for writing, so tables and logs may change.
    pub in_use: bool,
    /// Logs with entries that are in no table.
    pub logs: u64,
    /// The number of these entries, as far as they can be read.
    pub entries: u64,
}

/// The entries of the database in `directory` that are only in logs, and whether a program has the
/// database open for writing.
///
/// # Errors
/// As for [`live_tables`]; `Io` of a log. Damage in logs is ignored.
pub fn unchecked_logs(env: &Arc<dyn Env>, directory: &Path) -> Result<UncheckedLogs> {
    let mut unchecked =
        UncheckedLogs { in_use: is_in_use(&**env, directory), ..Default::default() };
    let Some(state) = current_manifest(&**env, directory)? else { return Ok(unchecked) };
    let mut logs = log_numbers(&our_files(&**env, directory)?);
    logs.retain(|number| *number >= state.facts.log_number);
    for number in logs {
        // A missing log was flushed: its entries are in a table now.
        let opened = LogCursor::open(&**env, directory, number, u64::MAX)?;
        let Some(log) = opened else { continue };
        let entries = entries_of_log(log, &state)?;
        unchecked.logs += u64::from(entries > 0);
        unchecked.entries += entries;
    }
    Ok(unchecked)
}

/// The number of entries that are in no table.
fn entries_of_log(mut log: LogCursor, state: &ManifestState) -> Result<u64> {
    let mut entries = 0;
    loop {
        let batch = match log.next()?.item {
            LogItem::Record(WalBody::Batch(batch)) => batch,
            LogItem::End => return Ok(entries),
            _ => continue,
        };
        for (keyspace, first, run) in batch.runs() {
            let Some(keyspace) = state.keyspaces.get(&keyspace) else { continue };
            let flushed = (keyspace.meta.flushed_through + 1).saturating_sub(first);
            entries += run.skip(flushed as usize).count() as u64;
        }
    }
}

/// Whether a writer holds LOCK. This takes the lock of a reader for a moment, if it is free.
fn is_in_use(env: &dyn Env, directory: &Path) -> bool {
    let lock = FileName::Lock.path(directory);
    // Locking would create a missing file.
    let is_held = || match env.lock(&lock, LockMode::Shared) {
        Err(error) => error.kind() == ErrorKind::WouldBlock,
        Ok(_) => false,
    };
    env.metadata(&lock).is_ok() && is_held()
}

fn current_manifest(env: &dyn Env, directory: &Path) -> Result<Option<ManifestState>> {
    let mut current = read_current(env, directory)?;
    while let Some(number) = current {
        match replay(env, directory, number) {
            Ok(state) => return Ok(Some(state)),
            Err(error) => {
                current = read_current(env, directory)?;
                // A manifest that was replaced while it was read is not damaged.
                if current == Some(number) {
                    return Err(error);
                }
            }
        }
    }
    Ok(None)
}

/// Refuses a directory with logs, tables or manifests but without CURRENT, which is a damaged
/// database. (An interrupted creation may leave the first manifest alone: that is no database.)
fn refuse_remnants(env: &dyn Env, directory: &Path) -> Result<()> {
    let remnant = our_files(env, directory)?.into_iter().find(|name| match name {
        FileName::Manifest(number) => *number != 1,
        FileName::Wal(_) | FileName::Table(_) => true,
        FileName::Current | FileName::Lock | FileName::Stats | FileName::Temporary(_) => false,
    });
    remnant.map_or(Ok(()), |name| {
        let what = format!("{name} shows that there was a database");
        Err(Error::missing(FileName::Current.path(directory), what))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::mem::MemEnv;
    use crate::log::wal::format::DatabaseIdentity;
    use crate::tree::current::set_current;
    use crate::tree::edit::{COMPARATOR, FirstLog, KeyspaceMeta, VersionEdit};
    use crate::tree::manifest::ManifestWriter;
    use std::ops::Bound;

    const ROOT: &str = "/";

    fn make_current(env: &MemEnv, number: u64, added: Vec<(usize, FileMeta)>) {
        let snapshot = VersionEdit {
            comparator: Some(COMPARATOR.into()),
            database: Some(DatabaseIdentity::default()),
            next_keyspace: Some(1),
            created: vec![KeyspaceMeta::default_keyspace()],
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
        FileMeta {
            keyspace: 0,
            number,
            table_id: 0x5175,
            bytes: 1000,
            start: b"k".to_vec(),
            end: Bound::Included(b"k".to_vec()),
            entries: 1,
            garbage: 0,
            expiring: Default::default(),
            range_deletes: 0,
            smallest_sequence: 5,
            largest_sequence: 5,
            global_sequence: None,
        }
    }

    #[test]
    fn a_missing_live_table_is_damage() {
        let memory = MemEnv::new();
        let env: Arc<dyn Env> = Arc::new(memory.clone());
        make_current(&memory, 10, vec![(2, file(7))]);
        let tables = live_tables(&env, Path::new(ROOT)).unwrap().unwrap();
        let [table] = &tables[..] else { panic!("{tables:?}") };
        assert_eq!((table.path.as_path(), table.level), (Path::new("/000007.sst"), 2));
        let error = verify_live_table(&env, table).unwrap_err();
        assert!(error.is_corruption(), "{error}");
        assert!(error.to_string().contains("MANIFEST-000010 names it"), "{error}");
        make_current(&memory, 20, vec![(3, file(8))]);
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
