//! `Db::verify`: reads all files of the database and checks that they are sound and agree.
//!
//! 1. The current manifest must name the tables of the current version.
//! 2. In a sorted level, no two tables share a key. In level 0, tables that share keys follow each
//!    other in time.
//! 3. Each log that is in use must contain only whole records, as far as it was written. (A
//!    read-only opening has checked all logs already.)
//! 4. Each table is opened again, so that nothing comes from memory, and checked by
//!    `table::verify`. Its contents must agree with the manifest.
//!
//! Damage does not end the check; the report collects it, at most one piece for each file. Only the
//! check of the manifest holds a lock, so reads and writes continue at the same time.

use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::key::DEFAULT_KEYSPACE_NAME;
use crate::base::levels::LEVELS;
use crate::base::stats::text::counted;
use crate::base::sync::Arc;
use crate::base::trace::{Span, span};
use crate::log::record::format::Undecodable;
use crate::log::wal::cursor::{LogCursor, LogEntry, LogItem, missing_log};
use crate::memtable::memtable::Memtable;
use crate::state::catalog::Catalog;
use crate::state::context::Context;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::state::writer::Writer;
use crate::table::verify::{TableCheck, VerifyCounts};
use crate::tree::current::read_current;
use crate::tree::file_meta::FileMeta;
use crate::tree::handle::TableHandle;
use crate::tree::manifest::replay;
use crate::tree::overlap::order_conflicts;
use crate::tree::version::Version;
use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;

/// The progress of [`Db::verify`](crate::Db::verify).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyProgress {
    /// Tables that were checked so far.
    pub tables_done: u64,
    /// Tables to check in all.
    pub tables: u64,
    /// Bytes of the checked tables, and of the data read in the current one.
    pub bytes_done: u64,
    /// Bytes of all tables.
    pub bytes: u64,
}

/// The tables of one keyspace in a [`VerifyReport`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifiedKeyspace {
    /// The name of the keyspace.
    pub name: String,
    /// Tables of the keyspace, damaged ones included.
    pub tables: u64,
    /// Entries in those that are sound.
    pub entries: u64,
    /// Those that are not sound.
    pub damaged: u64,
}

/// The result of [`Db::verify`](crate::Db::verify).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Tables that were read, damaged ones included.
    pub tables: u64,
    /// Bytes of their files.
    pub table_bytes: u64,
    /// Entries in sound tables.
    pub entries: u64,
    /// Data blocks in sound tables.
    pub data_blocks: u64,
    /// Keys that their filter contains, as it must. 0 without filters, or if the policies are not
    /// registered.
    pub filter_probes: u64,
    /// Logs that were read.
    pub logs: u64,
    /// Records in these logs.
    pub log_records: u64,
    /// Entries and range deletes that are in logs and in no table yet.
    pub log_entries: u64,
    /// The tables by keyspace, in the order of creation: first `default`.
    pub keyspaces: Vec<VerifiedKeyspace>,
    /// All damage; each error names a file. Empty if everything is sound.
    pub damage: Vec<Error>,
}

impl VerifyReport {
    /// True if nothing is damaged.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty()
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {}: {} in {}, {} of them asked of filters; {}, {}, {} in no table; {} damaged",
            counted(self.tables, "table"),
            counted(self.table_bytes, "byte"),
            counted(self.entries, "entry"),
            counted(self.data_blocks, "data block"),
            self.filter_probes,
            counted(self.logs, "log"),
            counted(self.log_records, "record"),
            counted(self.log_entries, "entry"),
            self.damage.len()
        )
    }
}

/// How often the manifest of another process is read until it is not replaced during the read.
const MANIFEST_TRIES: u32 = 10;

/// Checks everything, or of the tables only those of the keyspace `only`.
///
/// # Errors
/// `Closed`; `Forked`. Every other error is in the report.
pub(crate) fn verify(
    engine: &Engine,
    only: Option<&str>,
    progress: &mut dyn FnMut(&VerifyProgress),
) -> Result<VerifyReport> {
    let _span = span!("verify", engine.context.directory);
    engine.context.process.check()?;
    let _lock = engine.catalog.hold()?;
    let log_entries = log_entries(&engine.catalog, only);
    let mut report = VerifyReport { log_entries, ..VerifyReport::default() };
    let logs = logs_to_read(&engine.context, &engine.writer);
    let mut versions = check_manifest(engine, &mut report);
    versions.retain(|(name, _)| only.is_none_or(|only| only == name));
    for (name, version) in &versions {
        check_levels(&engine.context, name, version, &mut report);
    }
    for log in logs {
        if let Err(error) = check_log(&engine.context, &engine.writer, &log, &mut report) {
            report.damage.push(error);
        }
    }
    let handles = || versions.iter().flat_map(|(_, version)| version.tables());
    let mut done = VerifyProgress {
        tables: handles().count() as u64,
        bytes: handles().map(|handle| handle.meta.bytes).sum(),
        ..VerifyProgress::default()
    };
    progress(&done);
    for (name, version) in &versions {
        let mut keyspace = VerifiedKeyspace { name: name.clone(), ..VerifiedKeyspace::default() };
        for handle in version.tables() {
            engine.context.check_open()?;
            let before = done.bytes_done;
            let checked = check_table(&engine.context, &handle.meta, &mut |bytes| {
                done.bytes_done += bytes;
                progress(&done);
            });
            let was_replaced =
                matches!(&checked, Err(error) if was_replaced(&engine.context, handle, error));
            if !was_replaced {
                keyspace.tables += 1;
                report.table_bytes += handle.meta.bytes;
            }
            match checked {
                Err(_) if was_replaced => {}
                Ok(counts) => {
                    keyspace.entries += counts.entries;
                    report.data_blocks += counts.data_blocks;
                    report.filter_probes += counts.filter_probes;
                }
                Err(error) => {
                    keyspace.damaged += 1;
                    report.damage.push(in_keyspace(error, name));
                }
            }
            done.bytes_done = before + handle.meta.bytes;
            done.tables_done += 1;
            progress(&done);
        }
        report.tables += keyspace.tables;
        report.entries += keyspace.entries;
        report.keyspaces.push(keyspace);
    }
    // Files that could not be opened then are not damaged.
    engine.context.check_reads()?;
    Ok(report)
}

/// What only memtables and logs have, of all keyspaces or of `only`.
fn log_entries(catalog: &Catalog, only: Option<&str>) -> u64 {
    let mut keyspaces = catalog.all_keyspaces();
    keyspaces.retain(|keyspace| only.is_none_or(|only| *keyspace.name == *only));
    let entries = |memtable: &Arc<Memtable>| memtable.entries() + memtable.range_deletes.count();
    let of = |keyspace: &Arc<KeyspaceState>| -> usize {
        keyspace.view.load().memtables().map(entries).sum()
    };
    keyspaces.iter().map(of).sum::<usize>() as u64
}

/// The damage of a table with the name of its keyspace, unless that is `default`.
fn in_keyspace(error: Error, name: &str) -> Error {
    match error {
        Error::Corruption { path, offset, what, remedy } if name != DEFAULT_KEYSPACE_NAME => {
            let what = format!("{what} (in keyspace {name:?})");
            Error::Corruption { path, offset, what, remedy }
        }
        error => error,
    }
}

/// Compares the manifest on disk with the current versions; returns these with the names of their
/// keyspaces.
fn check_manifest(engine: &Engine, report: &mut VerifyReport) -> Vec<(String, Arc<Version>)> {
    let set = engine.catalog.versions.lock();
    let names = set.keyspaces().map(|meta| meta.name.clone());
    let versions: Vec<_> = names.zip(set.versions().map(|(_, version)| version)).collect();
    if set.manifest.failed.is_some()
        || engine.jobs.background_error.is_set()
        || engine.context.follows
    {
        // The manifest may or may not have the record whose write failed. And that of another
        // process writes after the moment that this one shows.
        return versions;
    }
    let (env, directory) = (&*engine.context.env, &engine.context.directory);
    let read = read_current(env, directory).and_then(|current| match current {
        Some(number) => replay(env, directory, number),
        None => Err(Error::missing(FileName::Current.path(directory), "the database is open")),
    });
    match read {
        Ok(state) => {
            let named: BTreeMap<(u64, usize), &FileMeta> =
                state.tables().map(|(level, meta)| ((meta.number, level), meta)).collect();
            let levels = versions.iter().flat_map(|(_, version)| version.levels.iter().enumerate());
            let ours: BTreeMap<(u64, usize), &FileMeta> = levels
                .flat_map(|(level, tables)| tables.handles.iter().map(move |h| (level, &*h.meta)))
                .map(|(level, meta)| ((meta.number, level), meta))
                .collect();
            let keyspaces = state.keyspaces.values().map(|keyspace| &keyspace.meta.name);
            if ours != named || !keyspaces.eq(set.keyspaces().map(|meta| &meta.name)) {
                let path = FileName::Manifest(state.facts.number).path(directory);
                let what = "the manifest does not name exactly the tables that are in use";
                report.damage.push(Error::corruption(path, state.facts.bytes, what));
            }
        }
        Err(error) => report.damage.push(error),
    }
    versions
}

/// Checks that tables that share keys are searched newest version first.
fn check_levels(context: &Context, name: &str, version: &Version, report: &mut VerifyReport) {
    for level in 0..LEVELS {
        let tables = version.level(level).iter().map(|handle| &*handle.meta);
        report.damage.extend(order_conflicts(level, tables).into_iter().map(|clash| {
            let path = FileName::Table(clash.left).path(&context.directory);
            in_keyspace(Error::corruption(path, 0, clash.to_string()), name)
        }));
    }
}

fn check_table(
    context: &Context,
    meta: &FileMeta,
    progress: &mut dyn FnMut(u64),
) -> Result<VerifyCounts> {
    let path = FileName::Table(meta.number).path(&context.directory);
    let check = TableCheck { env: &context.env, rules: context.options.custom_rules() };
    let expect = meta.expect();
    let (table, counts) = check.run(&path, expect, progress)?;
    if !FileMeta::of_table(meta.number, &table).agrees_with(meta) {
        let what = "entries, keys or sequences differ from those in the manifest";
        return Err(Error::corruption(path, 0, what));
    }
    Ok(counts)
}

/// True if a table is gone because the process that is followed has replaced it since.
fn was_replaced(context: &Context, handle: &TableHandle, error: &Error) -> bool {
    let is_gone = match error {
        Error::Missing { .. } => true,
        Error::Io { source, .. } => source.kind() == ErrorKind::NotFound,
        _ => false,
    };
    let (env, directory) = (&*context.env, &context.directory);
    let is_unnamed = || {
        let current = read_current(env, directory).ok().flatten()?;
        let state = replay(env, directory, current).ok()?;
        Some(state.tables().all(|(_, meta)| meta.number != handle.meta.number))
    };
    // A manifest may be replaced while it is read.
    context.follows && is_gone && (0..MANIFEST_TRIES).find_map(|_| is_unnamed()) == Some(true)
}

/// A log, and how many bytes of it were written; `None` if that is not known.
struct WrittenLog {
    number: u64,
    bytes: Option<u64>,
}

fn logs_to_read(context: &Context, writer: &Writer) -> Vec<WrittenLog> {
    if context.read_only {
        return Vec::new();
    }
    let log = writer.log.lock();
    let writers = log.unsynced.iter().chain(&log.current);
    let mut logs: Vec<WrittenLog> = writers
        .map(|wal| WrittenLog { number: wal.number, bytes: Some(wal.records.bytes()) })
        .collect();
    for number in writer.live_logs.lock().numbers() {
        if !logs.iter().any(|log| log.number == number) {
            logs.push(WrittenLog { number, bytes: None });
        }
    }
    logs
}

fn check_log(
    context: &Context,
    writer: &Writer,
    log: &WrittenLog,
    report: &mut VerifyReport,
) -> Result<()> {
    let written = log.bytes.unwrap_or(u64::MAX);
    let (env, directory) = (&*context.env, &context.directory);
    let Some(mut cursor) = LogCursor::open(env, directory, log.number, written)? else {
        // A flush may have removed it since the list was made.
        let needed = writer.live_logs.lock().numbers().any(|number| number == log.number);
        return match needed {
            true => Err(missing_log(directory, log.number, "its writes are in no table")),
            false => Ok(()),
        };
    };
    if let Some(written) = log.bytes.filter(|written| cursor.reader.file_bytes() < *written) {
        let what = format!("the log ends here, but {written} bytes were written");
        return Err(cursor.file.corruption(cursor.reader.file_bytes(), what));
    }
    report.logs += 1;
    let mut damage = None;
    loop {
        let LogEntry { file, start, item, .. } = cursor.next()?;
        let bad = match item {
            LogItem::End => return damage.map_or(Ok(()), Err),
            LogItem::Record(_) | LogItem::StartOfNewerManifest => {
                report.log_records += 1;
                continue;
            }
            LogItem::Damaged(bad) => bad,
            LogItem::Bad { what, .. } => Undecodable::Damaged(what),
        };
        damage.get_or_insert_with(|| bad.into_error(&file.path, start));
    }
}
