//! A checkpoint: a database of its own at one moment, in another directory, while others write.
//!
//! Tables never change, so a checkpoint links them and copies nothing. First everything written so
//! far is flushed. Until the list of tables is taken no other flush may run, and no job removes
//! what that moment needs: so the tables hold the writes up to one sequence, in all keyspaces, and
//! no later one (I24). The list keeps its files from removal until they have their second names.
//!
//! The target gets a log and a manifest of its own, and `CURRENT` last. Before that step one that
//! is brought up to date opens as it was. A new one has a `CURRENT` that marks it as unfinished:
//! it does not open, and nothing repairs it. A checkpoint that was interrupted is repeated, or
//! removed.
//!
//! A manifest of a checkpoint names the database that it is of. The first session that writes there
//! begins a manifest without that, so a checkpoint that was written to is never brought up to date.

use crate::admin::destroy::{remove, remove_unfinished, sync};
use crate::admin::offline;
use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::key::{DEFAULT_KEYSPACE_NAME, KeyspaceId, SequenceNumber};
use crate::base::sync::{Arc, Ordering};
use crate::env::api::{Env, if_there};
use crate::env::directory::{
    create_directories, lock_to_write, number_after, our_files, second_name, sync_ancestors,
};
use crate::env::foreign::{is_foreign_table, is_ours, refuse_foreign};
use crate::jobs::flush::flush_written;
use crate::jobs::workers::run_job;
use crate::log::wal::consistency::ManifestFacts;
use crate::log::wal::format::DatabaseIdentity;
use crate::state::catalog::Catalog;
use crate::state::context::Context;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::state::session;
use crate::tree::current::{mark_unfinished, read_current};
use crate::tree::edit::ANCESTORS_MAX;
use crate::tree::file_meta::FileMeta;
use crate::tree::manifest::replay;
use crate::tree::manifest_state::{KeyspaceTables, ManifestState};
use crate::tree::version::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind::NotFound;
use std::path::Path;

/// How often a moment is looked for while keyspaces are dropped.
const TRIES: u32 = 10;

/// What [`Db::checkpoint`](crate::Db::checkpoint) or
/// [`Db::checkpoint_with`](crate::Db::checkpoint_with) made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// The last sequence number: every write up to it is there, and no later one.
    pub last_sequence: u64,
    /// Tables in the checkpoint, those of earlier calls included.
    pub tables: u64,
    /// Bytes of these tables.
    pub bytes: u64,
    /// Tables that were linked or copied now; the others were there.
    pub tables_new: u64,
    /// Bytes of the new tables: what this call added to the disk, unless they were linked.
    pub bytes_new: u64,
}

/// The database at one moment.
struct CapturedState {
    last_sequence: SequenceNumber,
    next_keyspace: u64,
    keyspaces: BTreeMap<KeyspaceId, KeyspaceTables>,
    /// Keep the files of the tables from removal.
    _versions: Vec<Arc<Version>>,
}

impl CapturedState {
    /// The tables as they are. They hold everything up to `last_sequence`, and nothing later.
    fn of(engine: &Engine, last_sequence: SequenceNumber) -> Self {
        let versions = engine.catalog.versions.lock();
        let mut keyspaces = BTreeMap::new();
        for (meta, (id, version)) in versions.keyspaces().zip(versions.versions()) {
            let levels = version
                .files
                .each_ref()
                .map(|tables| tables.iter().map(|meta| FileMeta::clone(meta)).collect());
            keyspaces.insert(id, KeyspaceTables { meta: meta.clone(), levels });
        }
        let captured = CapturedState {
            last_sequence,
            next_keyspace: versions.next_keyspace,
            keyspaces,
            _versions: versions.versions().map(|(_, version)| version).collect(),
        };
        let largest = captured.tables().map(|meta| meta.largest_sequence).max();
        debug_assert!(largest.is_none_or(|largest| largest <= last_sequence), "I24");
        captured
    }

    /// Leaves out all keyspaces but those in `chosen`. Of `default` the name stays.
    ///
    /// # Errors
    /// `KeyspaceNotFound`.
    fn only(mut self, chosen: &[&str]) -> Result<Self> {
        let is_there = |name: &&&str| self.keyspaces.values().any(|own| own.meta.name == **name);
        if let Some(missing) = chosen.iter().find(|name| !is_there(name)) {
            return Err(Error::KeyspaceNotFound { name: (*missing).into() });
        }
        self.keyspaces.retain(|_, keyspace| {
            let is_chosen = chosen.contains(&&*keyspace.meta.name);
            if !is_chosen {
                keyspace.levels = Default::default();
            }
            is_chosen || keyspace.meta.name == DEFAULT_KEYSPACE_NAME
        });
        Ok(self)
    }

    fn tables(&self) -> impl Iterator<Item = &FileMeta> {
        self.keyspaces.values().flat_map(|keyspace| keyspace.levels.iter().flatten())
    }
}

/// A checkpoint under way; over on drop.
struct RunningCheckpoint<'a>(&'a Engine);

impl<'a> RunningCheckpoint<'a> {
    fn begin(engine: &'a Engine) -> Self {
        engine.jobs.schedule.lock().checkpoints += 1;
        RunningCheckpoint(engine)
    }
}

impl Drop for RunningCheckpoint<'_> {
    fn drop(&mut self) {
        self.0.jobs.schedule.lock().checkpoints -= 1;
        self.0.jobs.done.notify_all();
    }
}

/// Makes the database in `target` a checkpoint of this one, of all keyspaces or of those in
/// `chosen`; see `Db::checkpoint`.
///
/// # Errors
/// As `Db::checkpoint_with` says.
pub(crate) fn checkpoint(
    engine: &Engine,
    target: &Path,
    chosen: Option<&[&str]>,
) -> Result<CheckpointReport> {
    engine.context.process.check()?;
    // Before the check: `close_now` waits for it, or it finds the database closed.
    let _running = RunningCheckpoint::begin(engine);
    // A database that was opened read-only is one if all of it is in tables.
    match engine.check_writable() {
        Err(Error::OpenedReadOnly)
            if !engine.catalog.all_keyspaces().iter().any(|k| has_unflushed(k)) => {}
        checked => checked?,
    }
    // Before anything is created; once more at the moment.
    for name in chosen.unwrap_or_default() {
        if !engine.catalog.all_keyspaces().iter().any(|keyspace| keyspace.name == **name) {
            return Err(Error::KeyspaceNotFound { name: (*name).into() });
        }
    }
    let env = &*engine.context.env;
    let there = if_there(env.metadata(target));
    match there.map_err(|error| Error::io("metadata", target, error))? {
        None => create_directories(env, target)?,
        Some(_) => refuse_foreign(env, target)?,
    }
    let lock_path = FileName::Lock.path(target);
    let makes_lock = env.metadata(&lock_path).is_err_and(|error| error.kind() == NotFound);
    let _lock = lock_to_write(env, target)?;
    let made = checkpoint_locked(engine, target, chosen);
    if made.is_err() && makes_lock {
        // Still locked, as in `db::open`.
        let _ = env.remove(&lock_path);
    }
    made
}

/// The checkpoint itself, with `target` locked.
fn checkpoint_locked(
    engine: &Engine,
    target: &Path,
    chosen: Option<&[&str]>,
) -> Result<CheckpointReport> {
    let env = &*engine.context.env;
    // Its files are read until all have their second names (I20).
    let _own_lock = engine.catalog.hold()?;
    let before = before(engine, target)?;
    let mut captured = capture(engine)?;
    if let Some(chosen) = chosen {
        captured = captured.only(chosen)?;
    }
    let made = fill(engine, target, &captured, before.as_ref());
    // With a CURRENT that names a manifest the checkpoint may be there, whole.
    let is_begun = || matches!(read_current(env, target), Ok(None) | Err(Error::Unfinished { .. }));
    if made.is_err() && before.is_none() && is_begun() {
        // The next call finds the directory as this one did. What cannot be removed stays, and the
        // next call removes it.
        let _ = remove_unfinished(env, target);
    }
    let report = made?;
    clear(env, target, &captured)?;
    Ok(report)
}

/// Makes the checkpoint in `target`. A new one is marked as unfinished before anything else.
fn fill(
    engine: &Engine,
    target: &Path,
    captured: &CapturedState,
    before: Option<&ManifestState>,
) -> Result<CheckpointReport> {
    let env = &*engine.context.env;
    if before.is_none() {
        // An earlier call may have failed, or ended, after it created the directory.
        sync_ancestors(env, target)?;
        mark_unfinished(env, target, number_after(&our_files(env, target)?))?;
    }
    let report = link_tables(&engine.context, target, captured, before)?;
    make_current(&engine.context, &engine.catalog, target, captured, before)?;
    Ok(report)
}

const OTHER_HISTORY: &str =
    "it holds a checkpoint of another copy of this database, or from before a repair";

fn refused(target: &Path, why: &str) -> Error {
    let target = target.display();
    let what = format!("{target} cannot become a checkpoint: {why}; name another directory");
    Error::InvalidArgument { what }
}

/// The checkpoint that is there already. Removes one that is unfinished.
fn before(engine: &Engine, target: &Path) -> Result<Option<ManifestState>> {
    let env = &*engine.context.env;
    let current = match read_current(env, target) {
        Err(Error::Unfinished { .. }) => {
            remove_unfinished(env, target)?;
            None
        }
        read => read?,
    };
    let Some(number) = current else {
        for name in our_files(env, target)? {
            // Temporary files are left if the marker was being written.
            let may_be = match name {
                FileName::Lock => true,
                FileName::Temporary(_) => is_ours(env, target, name)?,
                _ => false,
            };
            if !may_be {
                return Err(refused(target, "it has files of a database and no CURRENT"));
            }
        }
        return Ok(None);
    };
    let state = replay(env, target, number)?;
    match state.checkpoint_of {
        None => Err(refused(
            target,
            "it holds a database that is no checkpoint, or was written to since",
        )),
        Some(of) if of.id != engine.context.database.id => {
            Err(refused(target, "it holds a checkpoint of another database"))
        }
        Some(_) => Ok(Some(state)),
    }
}

/// True if entries of the keyspace are in no table.
fn has_unflushed(keyspace: &KeyspaceState) -> bool {
    keyspace.view.load().memtables().any(|memtable| !memtable.is_empty())
}

/// Flushes what was written so far, and takes the list of tables.
fn capture(engine: &Engine) -> Result<CapturedState> {
    if engine.context.read_only {
        return Ok(CapturedState::of(engine, engine.catalog.published.visible()));
    }
    for _ in 0..TRIES {
        // Recovered memtables may wait: a session begins with their flush. Without any, nothing is
        // flushed, and a session that writes nothing changes no file.
        if engine.catalog.all_keyspaces().iter().any(|keyspace| has_unflushed(keyspace)) {
            session::activate(engine)?;
        }
        let mut taken = None;
        run_job(engine, &mut || {
            taken = flush_written(engine, |last_sequence, drops| {
                let captured = CapturedState::of(engine, last_sequence);
                // A drop takes no sequence. After one, the list lacks writes that came before it.
                (engine.catalog.drops.load(Ordering::SeqCst) == drops).then_some(captured)
            })?;
            Ok(false)
        });
        // A failure of the job is the background error.
        engine.check_writable()?;
        if let Some(captured) = taken {
            return Ok(captured);
        }
    }
    let what = format!("no checkpoint: keyspaces were dropped at each of {TRIES} tries");
    Err(Error::InvalidArgument { what })
}

/// Gives the tables of `moment` second names in `target`, but those that `before` has.
fn link_tables(
    context: &Context,
    target: &Path,
    captured: &CapturedState,
    before: Option<&ManifestState>,
) -> Result<CheckpointReport> {
    let env = &*context.env;
    if before.is_some_and(|state| state.facts.last_sequence > captured.last_sequence) {
        return Err(refused(target, OTHER_HISTORY));
    }
    let tables = before.into_iter().flat_map(ManifestState::tables);
    let there: BTreeMap<u64, &FileMeta> = tables.map(|(_, meta)| (meta.number, meta)).collect();
    let files = our_files(env, target)?;
    let mut report =
        CheckpointReport { last_sequence: captured.last_sequence, ..CheckpointReport::default() };
    for meta in captured.tables() {
        report.tables += 1;
        report.bytes += meta.bytes;
        let name = FileName::Table(meta.number);
        match there.get(&meta.number) {
            // The checkpoint that is there must stay whole until the end.
            Some(there) if there.table_id != meta.table_id => {
                return Err(refused(target, OTHER_HISTORY));
            }
            // One that was lost is linked again.
            Some(_) if files.contains(&name) => continue,
            _ => {}
        }
        let (path, target_path) = (name.path(&context.directory), name.path(target));
        if is_foreign_table(env, &target_path)? {
            return Err(refused(target, &format!("{name} is a table of LevelDB or RocksDB")));
        }
        // Left by a checkpoint that was interrupted: it may be half of a copy.
        if_there(env.remove(&target_path))
            .map_err(|error| Error::io("remove", &target_path, error))?;
        second_name(env, &path, &target_path)
            .map_err(|error| Error::io("hard_link", target_path, error))?;
        report.tables_new += 1;
        report.bytes_new += meta.bytes;
    }
    // Their names become durable with that of the log, before a manifest names them.
    Ok(report)
}

fn make_current(
    context: &Context,
    catalog: &Catalog,
    target: &Path,
    captured: &CapturedState,
    before: Option<&ManifestState>,
) -> Result<()> {
    // One identity for all its generations, and never that of this database: a log of one is
    // damage to the other.
    let database =
        before.map_or_else(DatabaseIdentity::random, |state| state.facts.database.next_epoch());
    // Older generations may have left tables of databases that this one never knew.
    let known = before.into_iter().flat_map(|state| &state.ancestors);
    let mut ancestors = context.databases();
    ancestors.extend(known);
    let mut seen = BTreeSet::new();
    ancestors.retain(|id| seen.insert(*id));
    ancestors.retain(|id| *id != database.id);
    ancestors.truncate(ANCESTORS_MAX);
    // Above the numbers of all tables, and of all files that are there.
    let taken = number_after(&our_files(&*context.env, target)?);
    let next = catalog.numbers.next_file.load(Ordering::Relaxed).max(taken);
    let last_sequence = captured.last_sequence;
    let state = ManifestState {
        facts: ManifestFacts { database, last_sequence, ..ManifestFacts::default() },
        checkpoint_of: Some(context.database),
        ancestors,
        next_keyspace: captured.next_keyspace,
        expired_through: catalog.numbers.expired_through.load(Ordering::Relaxed),
        keyspaces: captured.keyspaces.clone(),
        ..ManifestState::default()
    };
    offline::make_current(state, &*context.env, target, next)
}

/// Removes files of siftdb that the new manifest does not name.
fn clear(env: &dyn Env, target: &Path, captured: &CapturedState) -> Result<()> {
    let Some(current) = read_current(env, target)? else { return Ok(()) };
    let session_log = replay(env, target, current)?.facts.session_log;
    let live: Vec<u64> = captured.tables().map(|meta| meta.number).collect();
    for name in our_files(env, target)? {
        let stays = match name {
            FileName::Current | FileName::Lock | FileName::Stats => true,
            FileName::Table(number) => live.contains(&number),
            FileName::Manifest(number) => number == current,
            FileName::Wal(number) => number == session_log,
            FileName::Temporary(_) => false,
        };
        if !stays && is_ours(env, target, name)? {
            remove(env, target, name)?;
        }
    }
    sync(env, target)
}
