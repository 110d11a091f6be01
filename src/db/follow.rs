//! [`Following`] makes the read points of a database that another process may write, one after
//! another.
//!
//! An attempt reads, in this order, `CURRENT`, what was appended to the manifest, the new tables,
//! the directory, what was appended to the logs, and `CURRENT` again. The tables are those of the
//! manifest as it was read, and the logs were read after it. So together they hold everything that
//! was acknowledged before the attempt began: the writer removes a log only after the manifest
//! names the tables with its entries. At the end the attempt reads the manifest once more. It
//! starts over if a file is gone, `CURRENT` has changed, a keyspace was created or dropped, or logs
//! that it has not read were flushed in between. If nothing has changed since and the reason is
//! still there, that reason is the error.
//!
//! A loss of power may leave logs that no writer at work leaves. If a log is damaged in two
//! attempts under one manifest, the read point has what an opening would keep of the logs, until a
//! writer opens the database and begins another manifest.
//!
//! A read point is an [`Engine`] of its own whose views never change. Later read points share its
//! open tables, its cache, its counters and its memtables: entries that are applied later have
//! sequences that it does not see.
//!
//! Every read point that was shown must stay part of the history. In one session of the writer it
//! does, and the manifest says after which sequence each of the last sessions began. If that does
//! not prove it, the follower must be opened again.

use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::key::{KeyspaceId, SequenceNumber};
use crate::base::sync::Arc;
use crate::db::followed_entries::FollowedEntries;
use crate::db::open::{
    Access, Parts, assemble, emit_unpinned, no_database, prepare_directory, refuse_cut_manifest,
    retrying, settings_of, table_context,
};
use crate::db::recover::refuse_torn;
use crate::env::api::Env;
use crate::env::descriptor_retry::is_shortage;
use crate::env::directory::{log_numbers, our_files};
use crate::env::directory_lock::DirectoryLock;
use crate::env::handle::FilePool;
use crate::log::wal::consistency::ManifestFacts;
use crate::log::wal::cursor::missing_log;
use crate::log::wal::format::DatabaseIdentity;
use crate::log::wal::recover::{replay, survey};
use crate::log::wal::tail::{LogTail, Reach, TailEnd};
use crate::options::database::Options;
use crate::state::engine::Engine;
use crate::table::reader::TableContext;
use crate::tree::current::read_current;
use crate::tree::followed_manifest::FollowedManifest;
use crate::tree::manifest_state::ManifestState;
use crate::tree::session_manifest::SESSIONS_MAX;
use crate::tree::set::VersionSet;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// How often an attempt starts over because files have changed.
const TRIES: u32 = 100;

/// Why an attempt ended without a read point.
enum RefreshError {
    /// The files changed while they were read. If they did not, this is the error.
    Retry(Error),
    Fatal(Error),
}

impl From<Error> for RefreshError {
    fn from(error: Error) -> Self {
        RefreshError::Fatal(error)
    }
}

/// The result of a step of an attempt.
type Attempt<T> = std::result::Result<T, RefreshError>;

/// A missing file was perhaps removed by the writer.
fn stale_if_missing(error: Error) -> RefreshError {
    match &error {
        Error::Missing { .. } => RefreshError::Retry(error),
        Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            RefreshError::Retry(error)
        }
        _ => RefreshError::Fatal(error),
    }
}

/// A damaged log is perhaps the writer: it has begun again or created a keyspace since the manifest
/// was read.
fn stale_if_damaged(error: Error) -> RefreshError {
    if error.is_corruption() { RefreshError::Retry(error) } else { RefreshError::Fatal(error) }
}

/// The contents of a manifest, and its open tables.
struct LoadedManifest {
    /// Its number, and where its last edit ends.
    at: (u64, u64),
    state: ManifestState,
    /// How many keyspaces it had created and dropped.
    keyspace_changes: u64,
    settings: BTreeMap<KeyspaceId, Arc<Options>>,
    versions: VersionSet,
    /// The last sequence that is in a table, or that was durable when the manifest was read.
    durable_through: SequenceNumber,
}

/// A session of the writer: the database, and the id of the session; 0 for the one that created it.
type Session = (DatabaseIdentity, u64);

/// A database that is followed.
pub(super) struct Following {
    options: Options,
    directory: PathBuf,
    env: Arc<dyn Env>,
    lock: Arc<DirectoryLock>,
    context: TableContext,
    manifest: Option<FollowedManifest>,
    loaded: Option<LoadedManifest>,
    tail: Option<LogTail>,
    /// The session of the log that the tail reads.
    session: Option<Session>,
    entries: FollowedEntries,
    shown: Option<Arc<Engine>>,
    /// The manifest that the read point went by.
    shown_at: (u64, u64),
    /// The manifest that the last attempt went by.
    attempted: (u64, u64),
    /// The manifest that the attempt before went by, which found changed files.
    stale_at: Option<(u64, u64)>,
    /// The read point that was shown is no longer part of the history.
    changed: Option<Error>,
}

impl Following {
    /// Takes no lock and creates nothing. There is no read point before the first [`refresh`].
    ///
    /// # Errors
    /// There is no database, or one of LevelDB or RocksDB; `InvalidOptions`.
    ///
    /// [`refresh`]: Following::refresh
    pub(super) fn new(options: Options, directory: &Path) -> Result<Self> {
        let (options, _gate) = retrying(options.create_if_missing(false));
        options.validate()?;
        let env = Arc::clone(&options.env);
        prepare_directory(&*env, directory, &options)?;
        Ok(Following {
            directory: directory.to_path_buf(),
            lock: DirectoryLock::of_nothing(&FileName::Lock.path(directory)),
            // Every table of a read point stays open: the writer may remove its file.
            context: table_context(&options, FilePool::holding(Arc::clone(&env)))?,
            env,
            options,
            manifest: None,
            loaded: None,
            tail: None,
            session: None,
            entries: FollowedEntries::default(),
            shown: None,
            shown_at: (0, 0),
            attempted: (0, 0),
            stale_at: None,
            changed: None,
        })
    }

    /// The next read point; `None` if no file has changed since the last one.
    ///
    /// # Errors
    /// As `Follower::refresh`. The next call may succeed, except after `HistoryChanged`.
    pub(super) fn refresh(&mut self) -> Result<Option<Arc<Engine>>> {
        if let Some(changed) = &self.changed {
            return Err(changed.clone());
        }
        self.stale_at = None;
        for _ in 0..TRIES {
            let obstacle = match self.attempt() {
                Ok(moment) => return Ok(moment),
                Err(obstacle) => obstacle,
            };
            match obstacle {
                // The writer names a change in the manifest before it removes or writes anything
                // that depends on it. So under the same manifest this is no change.
                RefreshError::Retry(why) if self.is_settled() => return Err(why),
                RefreshError::Retry(_) => self.stale_at = Some(self.attempted),
                RefreshError::Fatal(error) => return Err(self.explained(error)),
            }
        }
        Err(Error::FollowerOvertaken { directory: self.directory.clone(), tries: TRIES })
    }

    /// True if this attempt and the one before went by the same manifest, and the manifest has not
    /// changed since. Otherwise the writer may be the reason for what the attempt met.
    fn is_settled(&mut self) -> bool {
        self.stale_at == Some(self.attempted) && !self.manifest_has_changed()
    }

    /// True if the manifest has grown since this attempt read it, or another one is current.
    fn manifest_has_changed(&mut self) -> bool {
        let (number, bytes) = self.attempted;
        // The next attempt meets an error of these reads again.
        let has_grown = |manifest: &mut FollowedManifest| {
            manifest.read_on().is_err() || manifest.bytes() > bytes
        };
        let has_grown = self.manifest.as_mut().is_some_and(has_grown);
        has_grown || self.current().map_or(true, |current| current != number)
    }

    /// The first log that the manifest needs, as it was read last.
    pub(super) fn needed_log(&self) -> u64 {
        self.loaded.as_ref().map_or(0, |loaded| loaded.state.facts.log_number)
    }

    /// Names the need for descriptors, and remembers a changed history.
    fn explained(&mut self, error: Error) -> Error {
        if matches!(error, Error::HistoryChanged { .. }) {
            self.changed = Some(error.clone());
        }
        match &error {
            Error::Io { source, .. } if is_shortage(source) => {
                let state = self.manifest.as_ref().and_then(|manifest| manifest.state().ok());
                let needed = state.map_or(0, |state| state.tables().count());
                Error::TooFewDescriptors { directory: self.directory.clone(), needed }
            }
            _ => error,
        }
    }

    fn attempt(&mut self) -> Attempt<Option<Arc<Engine>>> {
        let number = self.current()?;
        self.attempted = (number, 0);
        self.read_manifest(number)?;
        self.open_tables()?;
        let files = our_files(&*self.env, &self.directory)?;
        if let Some(loaded) = &self.loaded {
            let checked = refuse_cut_manifest(&self.directory, &files, &loaded.state);
            checked.map_err(RefreshError::Retry)?;
        }
        self.read_logs(&files)?;
        self.check_unchanged(number)?;
        Ok(self.next_moment()?)
    }

    fn current(&self) -> Result<u64> {
        match read_current(&*self.env, &self.directory)? {
            Some(number) => Ok(number),
            None if self.shown.is_none() => Err(no_database(&self.directory)),
            None => {
                let path = FileName::Current.path(&self.directory);
                Err(Error::missing(path, "it was there when the follower was opened"))
            }
        }
    }

    /// Reads what is new in the manifest, all of it if it is another one.
    fn read_manifest(&mut self, number: u64) -> Attempt<()> {
        if let Some(manifest) = self.manifest.as_mut().filter(|old| old.number() == number) {
            if !manifest.is_in_place().map_err(stale_if_missing)? {
                return Err(self.changed("its manifest was replaced").into());
            }
            if let Err(error) = manifest.read_on() {
                self.manifest = None;
                return Err(error.into());
            }
        } else {
            let opened = FollowedManifest::open(&self.env, &self.directory, number);
            self.manifest = Some(opened.map_err(stale_if_missing)?);
        }
        self.attempted = self.manifest.as_ref().map_or((number, 0), |m| (number, m.bytes()));
        Ok(())
    }

    /// Opens the tables that the manifest names and that are not open yet.
    fn open_tables(&mut self) -> Attempt<()> {
        let Some(manifest) = &self.manifest else { return Ok(()) };
        if self.loaded.as_ref().is_some_and(|loaded| loaded.at == self.attempted) {
            return Ok(());
        }
        let (mut state, keyspace_changes) = (manifest.state()?, manifest.keyspace_changes());
        if let Some((database, _)) = self.session
            && state.facts.database != database
        {
            return Err(self.changed("it was repaired or created again").into());
        }
        let settings = settings_of(&self.options, &self.directory, &mut state)?;
        let pinning = |id| settings[&id].filter_pinning();
        let versions = match &self.loaded {
            Some(loaded) => loaded.versions.following(&pinning, &state),
            None => {
                let (env, directory) = (Arc::clone(&self.env), &self.directory);
                let context = self.context.clone();
                VersionSet::open(env, directory, context, &pinning, &state, 0)
            }
        };
        let versions = versions.map_err(stale_if_missing)?;
        let tables = state.tables().map(|(_, meta)| meta.largest_sequence);
        let flushed = state.keyspaces.values().map(|keyspace| keyspace.meta.flushed_through);
        // The tables of a load may be gone, and no log has its sequence. The manifest remembers it
        // as durable, as it does what the logs have.
        let facts = [state.facts.flushed_through, state.facts.synced_through];
        let durable_through = tables.chain(flushed).chain(facts).max().unwrap_or(0);
        self.entries.drop_flushed(&state);
        if self.loaded.is_none() {
            emit_unpinned(&self.context.events, &settings);
        }
        self.loaded = Some(LoadedManifest {
            at: self.attempted,
            state,
            keyspace_changes,
            settings,
            versions,
            durable_through,
        });
        Ok(())
    }

    /// Applies what was appended to the logs.
    fn read_logs(&mut self, files: &[FileName]) -> Attempt<()> {
        let logs = log_numbers(files);
        let shown = self.shown.as_ref().map_or(0, |shown| shown.catalog.published.visible());
        self.follow_sessions(shown)?;
        let read_through = match self.read_tails(&logs, shown) {
            Err(RefreshError::Retry(damage)) if damage.is_corruption() && self.is_settled() => {
                self.read_as_opening(&logs, shown, damage)?
            }
            read => read?,
        };
        let durable = self.loaded.as_ref().map_or(0, |loaded| loaded.durable_through);
        let last = read_through.max(durable);
        if last < shown {
            let what = format!("it ends with sequence {last}, and {shown} was shown");
            return Err(self.changed(&what).into());
        }
        self.entries.applied = self.entries.applied.max(last);
        Ok(())
    }

    /// Applies what was appended to the logs that lead on from `shown`; returns the last sequence.
    fn read_tails(&mut self, logs: &[u64], shown: SequenceNumber) -> Attempt<SequenceNumber> {
        let facts = self.loaded.as_ref().map(|loaded| loaded.state.facts).unwrap_or_default();
        loop {
            let continues = self.tail.is_some();
            match self.read_tail(logs)? {
                TailEnd::UpToDate => {
                    return Ok(self.tail.as_ref().map_or(0, |tail| tail.last));
                }
                // Its entries are in tables, says the manifest.
                TailEnd::StartOver { log } if continues && log < facts.log_number => {
                    self.tail = None;
                }
                TailEnd::StartOver { log } => {
                    let why = "the manifest or a later log needs it";
                    return Err(RefreshError::Retry(missing_log(&self.directory, log, why)));
                }
                // Only entries that were read and not shown are gone.
                TailEnd::Rewound { to } if continues && to >= shown => self.forget_entries(),
                TailEnd::Rewound { to } if shown > 0 => return Err(self.rewound(to, shown)),
                TailEnd::Rewound { to } => {
                    let path = FileName::Manifest(facts.number).path(&self.directory);
                    let what = format!("the logs continue after sequence {to}, which is in tables");
                    return Err(RefreshError::Retry(Error::corruption(path, facts.bytes, what)));
                }
            }
        }
    }

    /// Applies what an opening would keep of logs that have this damage; returns the last sequence.
    fn read_as_opening(
        &mut self,
        logs: &[u64],
        shown: SequenceNumber,
        damage: Error,
    ) -> Attempt<SequenceNumber> {
        let Some(loaded) = &self.loaded else { return Err(RefreshError::Retry(damage)) };
        let facts = loaded.state.facts;
        let needed = &logs[logs.partition_point(|log| *log < facts.log_number)..];
        let found = survey(&*self.env, &self.directory, needed, &facts);
        let found = found.map_err(stale_if_damaged)?;
        refuse_torn(found.dropped.as_ref(), self.options.recovery)?;
        // What was shown is gone only once a writer continues without it.
        if found.last_sequence < shown {
            return Err(RefreshError::Retry(damage));
        }
        if found.last_sequence < self.entries.applied {
            (self.tail, self.entries) = (None, FollowedEntries::default());
        }
        let (entries, options, directory) = (&mut self.entries, &self.options, &self.directory);
        let read = replay(&*self.env, directory, &found.parts, &mut |log, batch| {
            entries.apply(options, directory, &loaded.state, log, batch)
        });
        self.checked(read)?;
        Ok(found.last_sequence)
    }

    /// Checks that each session of the writer since the last attempt began after what is shown.
    fn follow_sessions(&mut self, shown: SequenceNumber) -> Attempt<()> {
        let Some(loaded) = &self.loaded else { return Ok(()) };
        let sessions = &loaded.state.sessions;
        let last = sessions.last().map_or(0, |session| session.id);
        let current = (loaded.state.facts.database, last);
        let first_log = loaded.state.facts.log_number;
        let Some((_, old)) = self.session.filter(|old| *old != current) else {
            self.session = Some(current);
            return Ok(());
        };
        let later = match sessions.iter().position(|session| session.id == old) {
            Some(index) => &sessions[index + 1..],
            // The session that created the database is not listed.
            None if old == 0 && sessions.len() < SESSIONS_MAX => &sessions[..],
            None => {
                let what = "the session that was followed is not one of its last";
                return Err(self.changed(what).into());
            }
        };
        let continues_after = later.iter().map(|session| session.begins_after).min();
        let continues_after = continues_after.unwrap_or(0);
        if continues_after < shown {
            return Err(self.rewound(continues_after, shown));
        }
        if continues_after < self.entries.applied {
            self.forget_entries();
        }
        // The new session has what was in its logs in tables. Older logs need not lead to it: the
        // last writer may have died in a bulk load, whose sequence is in no log.
        if self.tail.as_ref().is_some_and(|tail| tail.log() < first_log) {
            self.tail = None;
        }
        self.session = Some(current);
        Ok(())
    }

    fn rewound(&self, to: SequenceNumber, shown: SequenceNumber) -> RefreshError {
        let what = format!("it continues after sequence {to}, and {shown} was shown");
        self.changed(&what).into()
    }

    /// Forgets what was read of the logs: entries that are not shown are not part of the history.
    fn forget_entries(&mut self) {
        self.tail = None;
        self.entries = FollowedEntries::default();
    }

    fn read_tail(&mut self, logs: &[u64]) -> Attempt<TailEnd> {
        let Some(loaded) = &self.loaded else { return Ok(TailEnd::UpToDate) };
        let facts = &loaded.state.facts;
        let begin = || {
            let env = Arc::clone(&self.env);
            LogTail::new(env, &self.directory, facts.log_number, facts.flushed_through)
        };
        let tail = self.tail.get_or_insert_with(begin);
        let (entries, options, directory) = (&mut self.entries, &self.options, &self.directory);
        let read = tail.read(logs, facts, Reach::ALL, &mut |log, batch| {
            entries.apply(options, directory, &loaded.state, log, batch)
        });
        self.checked(read)
    }

    /// What was read of the logs, unless its entries take too much memory.
    fn checked<T>(&mut self, read: Result<T>) -> Attempt<T> {
        let fits = self.entries.memory.check(&self.options, &self.directory);
        if fits.is_err() {
            // Some were only counted.
            self.forget_entries();
        }
        let read = read.map_err(stale_if_damaged)?;
        // Perhaps a writer at work has flushed them since the manifest was read.
        fits.map_err(RefreshError::Retry)?;
        Ok(read)
    }

    /// Refuses what was read if the current manifest is another one by now, if keyspaces were
    /// created or dropped, or if the manifest needs only later logs: then entries after that may
    /// have been read, or logs were removed before they were listed.
    fn check_unchanged(&mut self, number: u64) -> Attempt<()> {
        let Some(manifest) = &mut self.manifest else { return Ok(()) };
        let path = FileName::Manifest(number).path(&self.directory);
        let read = manifest.read_on();
        let bytes = manifest.bytes();
        read?;
        // Compared with what this attempt loaded: it may have looked before.
        if bytes > self.attempted.1 {
            let old = self.loaded.as_ref().map(|loaded| &loaded.state);
            // Not the keyspaces that there are: one may have come and gone in between.
            let changes = self.loaded.as_ref().map(|loaded| loaded.keyspace_changes);
            if changes != Some(manifest.keyspace_changes()) {
                // Entries of a new keyspace were skipped if its number was taken already.
                self.forget_entries();
                let what = "keyspaces were created or dropped";
                return Err(RefreshError::Retry(Error::corruption(path, bytes, what)));
            }
            // A listing may miss logs that were created or removed while it was made. The entries
            // of a log that was removed unread are in tables that only the manifest names as it is
            // now.
            let read_to = self.tail.as_ref().map_or(0, LogTail::log);
            let needed = manifest.needed_log();
            if needed > read_to && old.is_some_and(|old| needed > old.facts.log_number) {
                let why = "the logs before it were flushed";
                return Err(RefreshError::Retry(missing_log(&self.directory, needed, why)));
            }
        }
        // Compared with the manifest whose tables are shown, not with what it has become: a bulk
        // load that ended in between is in its tables only, and the log after it was read.
        if let Some(tail) = &self.tail {
            let bytes = self.attempted.1;
            let shown = ManifestFacts { number, bytes, ..ManifestFacts::default() };
            let checked = shown.check_length(&self.directory, tail.newest_start());
            checked.map_err(RefreshError::Retry)?;
        }
        match self.current()? {
            now if now == number => Ok(()),
            now => {
                let what = format!("CURRENT names {} by now", FileName::Manifest(now));
                Err(RefreshError::Retry(Error::missing(path, what)))
            }
        }
    }

    /// The read point that was read, unless nothing has changed.
    fn next_moment(&mut self) -> Result<Option<Arc<Engine>>> {
        let Some(loaded) = &self.loaded else { return Ok(None) };
        let sequence = match self.options.follow_synced_only {
            false => self.entries.applied,
            true => {
                let in_logs = self.tail.as_ref().map_or(0, |tail| tail.synced_through);
                let synced = in_logs.max(loaded.durable_through);
                synced.min(self.entries.applied)
            }
        };
        if let Some(shown) = &self.shown
            && (shown.catalog.published.visible(), self.shown_at) == (sequence, loaded.at)
        {
            return Ok(None);
        }
        let parts = Parts {
            options: self.options.clone(),
            access: Access::Follow(sequence),
            gate: Arc::default(),
            lock: Arc::clone(&self.lock),
            versions: loaded.versions.once_more(&loaded.state),
            settings: &loaded.settings,
        };
        let before = self.shown.as_deref();
        let engine = assemble(parts, &self.directory, &loaded.state, before)?;
        engine.context.recovery.lock().last_sequence = sequence;
        self.entries.memtables.show(&engine.catalog, sequence);
        let engine = Arc::new(engine);
        (self.shown, self.shown_at) = (Some(Arc::clone(&engine)), loaded.at);
        Ok(Some(engine))
    }

    fn changed(&self, what: &str) -> Error {
        Error::HistoryChanged { directory: self.directory.clone(), what: what.into() }
    }
}
