//! From a directory to [`Engine`]: create a database, or recover the one that is there.
//!
//! 1. Validate the options and check the directory; a refused opening writes nothing. A LevelDB or
//!    RocksDB database is refused (`foreign`). If there is no LOCK, CURRENT and the manifest are
//!    read before LOCK is created. If the opening is refused later, LOCK is removed again.
//! 2. Take LOCK. Only then read anything that decides.
//! 3. Read CURRENT, which names the manifest. Without CURRENT the directory may hold only what an
//!    interrupted creation leaves. Other files of ours are damage, never a new database (I7).
//! 4. Replay the manifest and open its tables.
//! 5. Replay the logs, and flush them to tables if needed: see `recover`.
//!
//! Creation writes everything before the one rename that makes the database exist. So a crash in
//! between leaves a directory that opens as a new database.
//!
//! [`open_read_only`] does the same, but never writes: LOCK is shared with other readers, and the
//! entries of the logs stay in memory.

use crate::base::error::{Error, Result};
use crate::base::events::delivery::Events;
use crate::base::events::event::Event;
use crate::base::expiry::clock_millis;
use crate::base::filename::FileName;
use crate::base::key::{DEFAULT_KEYSPACE, KeyspaceId, SequenceNumber};
use crate::base::process::Process;
use crate::base::stats::counters::Counters;
use crate::base::sync::{Arc, AtomicU64, Mutex, Ordering, plain};
use crate::base::trace::{Span, span};
use crate::cache::cache::Cache;
use crate::db::recover::{recover_logs, refuse_torn};
use crate::env::api::{Env, FileKind, if_there};
use crate::env::descriptor_retry::DescriptorRetryEnv;
use crate::env::directory::{
    create_directories, lock_to_read, lock_to_write, number_after, our_files, sync_ancestors,
};
use crate::env::directory_lock::DirectoryLock;
use crate::env::foreign::refuse_foreign;
use crate::env::gate::{EnvGate, GatedEnv};
use crate::env::handle::FilePool;
use crate::log::wal::format::DatabaseIdentity;
use crate::memtable::memtable::{Memtable, Published};
use crate::options::database::Options;
use crate::options::keyspace::KeyspaceOptions;
use crate::state::catalog::Catalog;
use crate::state::context::Context;
use crate::state::engine::Engine;
use crate::state::jobs::Jobs;
use crate::state::keyspace::{KeyspaceState, Keyspaces, ReadServices};
use crate::state::lock_rank::{LockRank, RankedMutex};
use crate::state::read_view::ReadView;
use crate::state::session::LOG_BUFFERS_MAX;
use crate::state::stats_file::{SavedStats, load};
use crate::state::writer::{LogState, Writer};
use crate::table::reader::TableContext;
use crate::tree::current::read_current;
use crate::tree::edit::VersionEdit;
use crate::tree::manifest::replay;
use crate::tree::manifest_state::ManifestState;
use crate::tree::new_tables::NewTables;
use crate::tree::set::VersionSet;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Opens or creates the database in `directory`.
///
/// # Errors
/// As `Options::open`.
pub(crate) fn open(options: Options, directory: &Path) -> Result<Arc<Engine>> {
    let _span = span!("open", directory);
    options.validate()?;
    let (options, gate) = retrying(options);
    let env = Arc::clone(&options.env);
    let directory = &absolute(&*env, directory)?;
    prepare_directory(&*env, directory, &options)?;
    let makes_lock = refuse_before_locking(&*env, directory, &options)?;
    let lock = lock_to_write(&*env, directory)?;
    let opened = open_locked(options, gate, directory, Arc::clone(&lock));
    if opened.is_err() && makes_lock {
        // Still locked. A concurrent opener that waits for this file sees that its name is gone and
        // tries again.
        let _ = env.remove(&FileName::Lock.path(directory));
    }
    opened
}

fn open_locked(
    options: Options,
    gate: Arc<EnvGate>,
    directory: &Path,
    lock: Arc<DirectoryLock>,
) -> Result<Arc<Engine>> {
    let env = Arc::clone(&options.env);
    let (files, state) = current_state(&*env, directory, &options)?;
    let is_new = state.is_none();
    if is_new {
        let is_data = |file: &FileName| matches!(file, FileName::Wal(_) | FileName::Table(_));
        debug_assert!(!files.iter().any(is_data), "I7: a new database in place of {files:?}");
        clear_interrupted_creation(&*env, directory, &files)?;
    }
    let new = || ManifestState::new_database(DatabaseIdentity::random());
    let mut state = state.unwrap_or_else(new);
    let engine = build(options, Access::ReadWrite, gate, directory, lock, &files, &mut state)?;
    if is_new {
        let manifest = engine.catalog.numbers.take_file_number();
        let (edit, mut none) = (VersionEdit::default(), NewTables::default());
        engine.catalog.versions.lock().activate(manifest, None, &edit, &mut none, 0)?;
    } else {
        recover_logs(&engine, &files, &state)?;
    }
    Ok(Arc::new(engine))
}

/// The files of the directory and the state of the current manifest; `None` for a new database.
///
/// # Errors
/// The reason to refuse the opening.
fn current_state(
    env: &dyn Env,
    directory: &Path,
    options: &Options,
) -> Result<(Vec<FileName>, Option<ManifestState>)> {
    // Listed before CURRENT is read. Logs and tables are created only after a CURRENT exists, which
    // is never removed; so a log or table that is listed here proves that there is one.
    let files = our_files(env, directory)?;
    let state = match read_current(env, directory)? {
        Some(_) if options.error_if_exists => {
            let what = format!("{} already holds a database", directory.display());
            return Err(Error::InvalidArgument { what });
        }
        Some(number) => Some(replay(env, directory, number)?),
        None => {
            refuse_files_without_current(directory, &files)?;
            None
        }
    };
    // A manifest that has lost its end, as far as that can be told without the logs.
    if let Some(state) = &state {
        refuse_torn(state.dropped.as_ref(), options.recovery)?;
        refuse_cut_manifest(directory, &files, state)?;
    }
    Ok((files, state))
}

/// Refuses a manifest that names no table or log although there is a table. The edit that names the
/// first log is durable before anything is written to that log, so no table is older than it.
/// Without it the tables here would be removed as obsolete. A manifest that begins with the log of
/// its session, as one after a crash does, needs no such edit: recovery of that log flushes tables
/// before the next manifest names them.
pub(super) fn refuse_cut_manifest(
    directory: &Path,
    files: &[FileName],
    state: &ManifestState,
) -> Result<()> {
    let knows_no_log = state.facts.log_number == 0 && state.facts.session_log == 0;
    let knows_nothing = knows_no_log && state.tables().next().is_none();
    let table = files.iter().find(|name| matches!(name, FileName::Table(_)));
    match table.filter(|_| knows_nothing) {
        Some(table) => {
            let path = FileName::Manifest(state.facts.number).path(directory);
            let what =
                format!("it names no table or log although {table} is there: its end is missing");
            Err(Error::corruption(path, state.facts.bytes, what))
        }
        None => Ok(()),
    }
}

/// If there is no LOCK, checks the directory before LOCK is created, so most refused openings never
/// create it. Returns whether there is none.
fn refuse_before_locking(env: &dyn Env, directory: &Path, options: &Options) -> Result<bool> {
    let lock = FileName::Lock.path(directory);
    let is_missing = || {
        let found = if_there(env.metadata(&lock));
        found.map(|found| found.is_none()).map_err(|error| Error::io("lock", &lock, error))
    };
    if !is_missing()? {
        return Ok(false);
    }
    match current_state(env, directory, options) {
        // If LOCK exists by now, another process may have changed files between two reads.
        Err(error) if is_missing()? => Err(error),
        _ => Ok(true),
    }
}

/// Opens the database in `directory` without changing a byte.
///
/// # Errors
/// As `Options::open_read_only`.
pub(crate) fn open_read_only(options: Options, directory: &Path) -> Result<Arc<Engine>> {
    let _span = span!("open", directory);
    let (options, gate) = retrying(options.create_if_missing(false));
    options.validate()?;
    let env = Arc::clone(&options.env);
    let directory = &absolute(&*env, directory)?;
    prepare_directory(&*env, directory, &options)?;
    let lock = lock_to_read(&*env, directory)?;
    let (files, state) = current_state(&*env, directory, &options)?;
    let mut state = state.ok_or_else(|| no_database(directory))?;
    let engine = build(options, Access::ReadOnly, gate, directory, lock, &files, &mut state)?;
    recover_logs(&engine, &files, &state)?;
    Ok(Arc::new(engine))
}

/// `directory` as it is called from any working directory: the process may change its own later, as
/// daemons do, and files are opened, created and checked by their paths until the end.
///
/// # Errors
/// `Io`, as for an empty path on disk.
pub(super) fn absolute(env: &dyn Env, directory: &Path) -> Result<PathBuf> {
    env.absolute(directory).map_err(|error| Error::io("open", directory, error))
}

/// The options with an Env of this opening alone, and the gate in it.
pub(super) fn retrying(options: Options) -> (Options, Arc<EnvGate>) {
    // The pool of descriptors is found by the outer Env.
    let (gated, gate) = GatedEnv::over(&options.env);
    let env = DescriptorRetryEnv::over(&gated);
    (options.env(env), gate)
}

pub(super) fn no_database(directory: &Path) -> Error {
    let what = "no siftdb database is here, and none may be created";
    Error::io("open", directory, io::Error::new(ErrorKind::NotFound, what))
}

/// Creates the directory if it is missing and may be created. A refusal creates nothing.
pub(super) fn prepare_directory(env: &dyn Env, directory: &Path, options: &Options) -> Result<()> {
    let found = if_there(env.metadata(directory));
    match found.map_err(|error| Error::io("open", directory, error))? {
        Some(found) if found.kind == FileKind::File => {
            Err(Error::io("open", directory, ErrorKind::NotADirectory.into()))
        }
        // Only here a symbolic link is followed: the directory may be one.
        Some(_) if options.create_if_missing => refuse_foreign(env, directory),
        Some(_) => {
            refuse_foreign(env, directory)?;
            let files = our_files(env, directory)?;
            match env.metadata(&FileName::Current.path(directory)) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    refuse_files_without_current(directory, &files)?;
                    Err(no_database(directory))
                }
                _ => Ok(()),
            }
        }
        None if options.create_if_missing => create_directories(env, directory),
        None => Err(no_database(directory)),
    }
}

/// Without CURRENT a directory may hold only what an interrupted creation leaves.
fn refuse_files_without_current(directory: &Path, files: &[FileName]) -> Result<()> {
    let beyond_creation = files.iter().find(|name| match name {
        FileName::Lock | FileName::Stats | FileName::Temporary(_) => false,
        FileName::Manifest(number) => *number != FIRST_MANIFEST,
        FileName::Current | FileName::Wal(_) | FileName::Table(_) => true,
    });
    match beyond_creation {
        Some(name) => {
            let what = format!("{name} is there, so a database was");
            Err(Error::missing(FileName::Current.path(directory), what))
        }
        None => Ok(()),
    }
}

/// Cleans up after an interrupted creation: removes its manifest, and makes the names of the
/// directory and its ancestors durable, which that process may not have done.
fn clear_interrupted_creation(env: &dyn Env, directory: &Path, files: &[FileName]) -> Result<()> {
    if files.contains(&FileName::Manifest(FIRST_MANIFEST)) {
        let path = FileName::Manifest(FIRST_MANIFEST).path(directory);
        env.remove(&path).map_err(|error| Error::io("remove", path, error))?;
    }
    sync_ancestors(env, directory)
}

/// The manifest that creation writes: file number 1.
const FIRST_MANIFEST: u64 = 1;

/// Numbers are never used again, not even those of files that no manifest names.
fn next_file_number(files: &[FileName], state: &ManifestState) -> u64 {
    let is_new = state.facts.number == 0;
    if is_new { FIRST_MANIFEST } else { state.next_file_number.max(number_after(files)) }
}

fn build(
    options: Options,
    access: Access,
    gate: Arc<EnvGate>,
    directory: &Path,
    lock: Arc<DirectoryLock>,
    files: &[FileName],
    state: &mut ManifestState,
) -> Result<Engine> {
    let settings = settings_of(&options, directory, state)?;
    let env = Arc::clone(&options.env);
    let files_open = FilePool::new(Arc::clone(&env), options.max_open_files);
    let context = table_context(&options, files_open)?;
    emit_unpinned(&context.events, &settings);
    state.next_file_number = next_file_number(files, state);
    let pinning = |id| settings[&id].filter_pinning();
    let manifest_bytes = options.manifest_bytes;
    let versions = VersionSet::open(env, directory, context, &pinning, state, manifest_bytes)?;
    let parts = Parts { options, access, gate, lock, versions, settings: &settings };
    assemble(parts, directory, state, None)
}

/// The context that all tables of a database with these options share.
///
/// # Errors
/// The system refuses the thread for events.
pub(super) fn table_context(options: &Options, files: Arc<FilePool>) -> Result<TableContext> {
    let cache = Cache::new(options.block_cache_bytes, options.filter_pinned_share);
    Ok(TableContext {
        rules: options.custom_rules(),
        events: Events::start(options.listener.clone().map(|listener| listener.0))?,
        ..TableContext::new(files, cache)
    })
}

/// What an opening may do with the database.
#[derive(Clone, Copy)]
pub(super) enum Access {
    ReadWrite,
    ReadOnly,
    /// Show what another process wrote up to this sequence.
    Follow(SequenceNumber),
}

/// The parts from which [`assemble`] makes an open database.
pub(super) struct Parts<'a> {
    pub options: Options,
    pub access: Access,
    pub gate: Arc<EnvGate>,
    pub lock: Arc<DirectoryLock>,
    pub versions: VersionSet,
    pub settings: &'a BTreeMap<KeyspaceId, Arc<Options>>,
}

/// An open database. Counters continue those of `before`, an earlier read point of it, or those
/// that were saved.
pub(super) fn assemble(
    parts: Parts<'_>,
    directory: &Path,
    state: &ManifestState,
    before: Option<&Engine>,
) -> Result<Engine> {
    let Parts { options, access, gate, lock, versions, settings } = parts;
    let tables = versions.context.clone();
    let saved = match before {
        None if !options.reset_stats => load(&*options.env, directory),
        _ => None,
    };
    let log = log_state(state, access);
    let new_instance = || INSTANCES.fetch_add(1, Ordering::Relaxed);
    let counters = match before {
        Some(before) => Arc::clone(&before.context.counters),
        None => Arc::new(Counters::new()),
    };
    let context = Arc::new(Context {
        directory: directory.to_path_buf(),
        env: Arc::clone(&options.env),
        gate,
        lock: Arc::downgrade(&lock),
        cache: Arc::clone(&tables.cache),
        counters,
        counting_since: match (before, &saved) {
            (Some(before), _) => before.context.counting_since,
            (None, Some(saved)) => saved.since_unix_seconds,
            (None, None) => clock_millis(SystemTime::now()) / 1_000,
        },
        events: tables.events.clone(),
        database: state.facts.database,
        ancestors: state.ancestors.clone(),
        instance: before.map_or_else(new_instance, |before| before.context.instance),
        process: Process::current(),
        read_only: !matches!(access, Access::ReadWrite),
        follows: matches!(access, Access::Follow(_)),
        recovery: Default::default(),
        closed: Default::default(),
        ended: Default::default(),
        options,
    });
    let served = ReadServices {
        context: Arc::clone(&context),
        published: Arc::new(Published::new(log.last_sequence)),
        work: Arc::clone(&versions.obsolete.wakeup),
        immutable_bytes: Arc::default(),
    };
    let of_before = |before: &Engine| Arc::clone(&before.catalog.empty_memtable);
    let empty_memtable = before.map_or_else(|| Arc::new(Memtable::new(0, false)), of_before);
    let keyspaces = keyspaces_of(&versions, settings, &served, &lock, &empty_memtable, before);
    saved.iter().for_each(|saved| restore_counters(saved, &keyspaces, &context.counters));
    let catalog = Catalog {
        default: keyspaces.default_state().ok_or_else(|| no_default(directory, state))?,
        keyspaces: RankedMutex::new(LockRank::Keyspaces, keyspaces),
        drops: AtomicU64::new(0),
        published: served.published,
        snapshots: Default::default(),
        obsolete: Arc::clone(&versions.obsolete),
        tables,
        numbers: Arc::clone(&versions.manifest.numbers),
        versions: RankedMutex::new(LockRank::Versions, versions),
        empty_memtable,
        retired: Mutex::default(),
    };
    let log_bytes_max = LOG_BUFFERS_MAX * context.options.write_buffer_bytes as u64;
    let writer = Writer::new(log, context.options.keep_log_bytes, log_bytes_max);
    Ok(Engine { context, catalog, writer, jobs: Jobs::new(served.work) })
}

/// The options of each keyspace: of `default` with the settings that `options` name, of others with
/// the saved ones. Settings that are named replace the saved ones in `state`, so the first manifest
/// of the session saves them.
///
/// # Errors
/// `Corruption` or `UnsupportedFormat` of the manifest; `InvalidOptions` for a filter policy or
/// prefix extractor that is not registered.
pub(super) fn settings_of(
    options: &Options,
    directory: &Path,
    state: &mut ManifestState,
) -> Result<BTreeMap<KeyspaceId, Arc<Options>>> {
    let (rules, facts) = (options.custom_rules(), state.facts);
    let mut settings = BTreeMap::new();
    for (&id, keyspace) in &mut state.keyspaces {
        let meta = &mut keyspace.meta;
        let mut data = KeyspaceOptions::decode(&meta.settings, &rules).map_err(|bad| {
            let path = FileName::Manifest(facts.number).path(directory);
            bad.into_error(&path, facts.bytes)
        })?;
        if id == DEFAULT_KEYSPACE {
            data = options.data.over(&data);
            meta.settings = data.encoded();
        }
        data.check_compression()?;
        if !options.allow_unregistered_filters {
            data.check_registered()?;
        }
        settings.insert(id, Arc::new(options.for_keyspace(&data)));
    }
    Ok(settings)
}

/// Reports saved settings that ask for pinned filters where no memory may be pinned.
pub(super) fn emit_unpinned(events: &Events, settings: &BTreeMap<KeyspaceId, Arc<Options>>) {
    let unpinned = settings.values().filter(|options| options.asks_for_unpinnable());
    let keyspaces = unpinned.count() as u64;
    if keyspaces > 0 {
        events.emit(|| Event::FiltersUnpinned { keyspaces });
    }
}

fn keyspaces_of(
    versions: &VersionSet,
    settings: &BTreeMap<KeyspaceId, Arc<Options>>,
    served: &ReadServices,
    lock: &Arc<DirectoryLock>,
    empty_memtable: &Arc<Memtable>,
    before: Option<&Engine>,
) -> Keyspaces {
    let earlier = before.map(|before| before.catalog.keyspaces.lock());
    let mut keyspaces = Keyspaces::after(versions.next_keyspace);
    for ((id, version), meta) in versions.versions().zip(versions.keyspaces()) {
        let view = ReadView {
            active: Arc::clone(empty_memtable),
            active_log: 0,
            immutables: Vec::new(),
            version,
            dropped: false,
            lock: Some(Arc::clone(lock)),
        };
        let options = Arc::clone(&settings[&id]);
        let (name, served) = (meta.name.clone(), served.clone());
        let mut state = KeyspaceState::new(id, name, options, served, view);
        if let Some(earlier) = earlier.as_ref().and_then(|earlier| earlier.get(id)) {
            state.counters = Arc::clone(&earlier.counters);
        }
        keyspaces.insert(Arc::new(state));
    }
    keyspaces
}

/// Replay refuses a manifest without the keyspace `default`.
fn no_default(directory: &Path, state: &ManifestState) -> Error {
    let path = FileName::Manifest(state.facts.number).path(directory);
    Error::corruption(path, state.facts.bytes, "it has no keyspace `default`")
}

/// The databases that this process opened so far.
static INSTANCES: plain::AtomicU64 = plain::AtomicU64::new(1);

/// Restores the counters of earlier sessions.
fn restore_counters(saved: &SavedStats, keyspaces: &Keyspaces, counters: &Counters) {
    counters.restore(&saved.database);
    for (id, totals) in &saved.keyspaces {
        if let Some(keyspace) = keyspaces.get(*id) {
            keyspace.counters.restore(totals);
        }
    }
}

/// No log yet; the next sequence follows the last one that the manifest knows.
fn log_state(state: &ManifestState, access: Access) -> LogState {
    LogState {
        last_sequence: match access {
            Access::Follow(sequence) => sequence,
            Access::ReadWrite | Access::ReadOnly => state.facts.last_sequence,
        },
        next_sequence: state.facts.last_sequence + 1,
        synced_through: state.facts.synced_through,
        ..LogState::default()
    }
}
