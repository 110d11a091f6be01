//! [`SessionManifest`]: the manifest that this session writes, and the numbers in its edits.
//!
//! [`VersionSet`](crate::tree::set::VersionSet) owns it and says what is in it. A session has no
//! manifest until [`start`](SessionManifest::start) writes one, as a snapshot of all keyspaces and
//! tables. [`append`](SessionManifest::append) gives an edit its numbers, writes it and syncs it. A
//! long manifest is rewritten.
//!
//! After a failed write the record may have reached the disk. So nothing is appended any more until
//! a new manifest is started or the database is reopened (I8).

use crate::base::error::{Error, Result};
use crate::base::filename::{FILE_NUMBER_MAX, FileName};
use crate::base::key::SequenceNumber;
use crate::base::sync::{Arc, AtomicU64, Mutex, Ordering};
use crate::env::api::Env;
use crate::log::wal::consistency::CleanClose;
use crate::log::wal::format::DatabaseIdentity;
use crate::tree::current::{stage_current, switch_current};
use crate::tree::edit::{COMPARATOR, FirstLog, SessionBegin, VersionEdit};
use crate::tree::manifest::ManifestWriter;
use crate::tree::manifest_state::ManifestState;
use std::path::{Path, PathBuf};

/// A manifest lists the begins of this many sessions: a follower that last looked in an earlier
/// one cannot know that the history continues from what it showed.
pub(crate) const SESSIONS_MAX: usize = 16;

/// The current manifest and how much of it is durable: what a new log's first record carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ManifestPosition {
    /// Number of the manifest.
    pub number: u64,
    /// Bytes of it known to be durable.
    pub synced_bytes: u64,
}

/// The part that other threads read without the lock of the version set.
#[derive(Debug, Default)]
pub(crate) struct SharedNumbers {
    /// The next file number; taking one is `fetch_add(1)`.
    pub next_file: AtomicU64,
    /// The largest time by which a job took entries for expired, in milliseconds since the epoch.
    pub expired_through: AtomicU64,
    /// The current manifest.
    pub position: Mutex<ManifestPosition>,
}

impl SharedNumbers {
    /// A file number that nothing else has or had.
    pub(crate) fn take_file_number(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }
}

/// The manifest of a session.
#[derive(Debug)]
pub(crate) struct SessionManifest {
    env: Arc<dyn Env>,
    directory: PathBuf,
    database: DatabaseIdentity,
    ancestors: Vec<u128>,
    writer: Option<ManifestWriter>,
    /// A longer manifest is rewritten.
    bytes_max: u64,
    /// The first failure of a write. Two jobs may meet it, and a full disk is one for both.
    pub failed: Option<Error>,
    pub first_log: FirstLog,
    last_sequence: SequenceNumber,
    synced_through: SequenceNumber,
    /// The log that this session began with.
    session_log: Option<u64>,
    sessions: Vec<SessionBegin>,
    /// The files of a manifest that could not be written and never became current.
    pub abandoned: Vec<FileName>,
    /// What starts that failed may have left of the files that become CURRENT.
    left: Vec<FileName>,
    /// What other threads read without a lock.
    pub numbers: Arc<SharedNumbers>,
}

impl SessionManifest {
    /// No manifest yet; continues after the replayed one. Writes nothing.
    pub(crate) fn new(
        env: Arc<dyn Env>,
        directory: &Path,
        state: &ManifestState,
        bytes_max: u64,
    ) -> Self {
        let facts = &state.facts;
        let numbers = SharedNumbers {
            next_file: AtomicU64::new(state.next_file_number),
            expired_through: AtomicU64::new(state.expired_through),
            position: Mutex::default(),
        };
        SessionManifest {
            env,
            directory: directory.to_path_buf(),
            database: facts.database,
            ancestors: state.ancestors.clone(),
            writer: None,
            bytes_max,
            failed: None,
            first_log: FirstLog {
                number: facts.log_number,
                flushed_through: facts.flushed_through,
            },
            last_sequence: facts.last_sequence,
            synced_through: facts.synced_through,
            session_log: None,
            sessions: state.sessions.clone(),
            abandoned: Vec::new(),
            left: Vec::new(),
            numbers: Arc::new(numbers),
        }
    }

    /// The number of the manifest, once there is one.
    pub(crate) fn number(&self) -> Option<u64> {
        self.writer.as_ref().map(|writer| writer.number)
    }

    /// True if a manifest of this session is current, or may be.
    pub(crate) fn may_have_switched(&self) -> bool {
        self.writer.is_some() || (self.failed.is_some() && self.abandoned.is_empty())
    }

    /// Takes the names of temporary files that starts which failed may have left.
    pub(crate) fn take_left(&mut self) -> Vec<FileName> {
        std::mem::take(&mut self.left)
    }

    /// Sets the log that the next manifest names as the one that the session begins with, after
    /// the sequence `begins_after`.
    pub(crate) fn set_session_log(&mut self, log: Option<u64>, begins_after: SequenceNumber) {
        self.session_log = log;
        self.sessions.extend(log.map(|_| SessionBegin::random(begins_after)));
        let surplus = self.sessions.len().saturating_sub(SESSIONS_MAX);
        self.sessions.drain(..surplus);
    }

    /// Forgets what edits that failed say of the logs: everything is in tables up to
    /// `flushed_through`, and nothing else is there.
    pub(crate) fn forget_refused(&mut self, flushed_through: SequenceNumber) {
        self.synced_through = flushed_through;
    }

    /// Notes what `edit` says of logs and expiry, and the last sequence given to a write.
    pub(crate) fn advance(&mut self, edit: &VersionEdit, last_sequence: SequenceNumber) {
        self.last_sequence = self.last_sequence.max(last_sequence);
        self.synced_through = self.synced_through.max(edit.synced_through.unwrap_or(0));
        let expired_through = edit.expired_through.unwrap_or(0);
        self.numbers.expired_through.fetch_max(expired_through, Ordering::Relaxed);
        if let Some(first_log) = edit.first_log {
            self.first_log = first_log;
            // Everything in tables is durable.
            self.synced_through = self.synced_through.max(first_log.flushed_through);
        }
    }

    /// `edit` with the current counters.
    ///
    /// # Errors
    /// `InvalidArgument` if all file numbers are used up.
    fn stamped(&self, edit: VersionEdit) -> Result<VersionEdit> {
        let next_file = self.numbers.next_file.load(Ordering::Relaxed);
        if next_file > FILE_NUMBER_MAX {
            return Err(Error::InvalidArgument { what: "all file numbers are used up".into() });
        }
        // I10: the next session takes its numbers from here on.
        debug_assert!(edit.added.iter().all(|(_, meta)| meta.number < next_file), "I10");
        Ok(VersionEdit {
            next_file_number: Some(next_file),
            last_sequence: Some(self.last_sequence),
            synced_through: Some(self.synced_through),
            ..edit
        })
    }

    /// Refuses every use after a failed write, until a manifest is started.
    ///
    /// # Errors
    /// That failure.
    pub(crate) fn check_not_failed(&self) -> Result<()> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Appends `edit` with the current counters, and syncs it. Returns it as it is there.
    ///
    /// # Errors
    /// `Io`: final until a manifest is started. `InvalidArgument` if all file numbers are used up.
    pub(crate) fn append(&mut self, edit: VersionEdit) -> Result<VersionEdit> {
        self.check_not_failed()?;
        let edit = self.stamped(edit)?;
        let Some(writer) = self.writer.as_mut() else {
            let what = "the session has no manifest yet; this is a defect of siftdb";
            return Err(Error::io("append", &self.directory, std::io::Error::other(what)));
        };
        let appended = writer.append(&edit);
        self.failed = appended.as_ref().err().cloned();
        appended?;
        self.show_position();
        Ok(edit)
    }

    /// Creates the manifest `number` from `snapshot`, the keyspaces and tables as one edit. Makes
    /// it durable, then names it in CURRENT.
    ///
    /// # Errors
    /// `Io`. It may be tried again with another number. If [`abandoned`](Self::abandoned) names
    /// files then, the manifest is not current.
    pub(crate) fn start(&mut self, number: u64, snapshot: VersionEdit) -> Result<()> {
        let started = self.try_start(number, snapshot);
        // After a failure nothing is written any more.
        self.failed = started.as_ref().err().cloned();
        started
    }

    fn try_start(&mut self, number: u64, snapshot: VersionEdit) -> Result<()> {
        let temporary = self.numbers.take_file_number();
        let expired_through = self.numbers.expired_through.load(Ordering::Relaxed);
        let snapshot = self.stamped(VersionEdit {
            expired_through: Some(expired_through).filter(|through| *through > 0),
            comparator: Some(COMPARATOR.into()),
            database: Some(self.database),
            ancestors: self.ancestors.clone(),
            first_log: Some(self.first_log),
            session_log: self.session_log,
            sessions: self.sessions.clone(),
            ..snapshot
        })?;
        self.abandoned = vec![FileName::Manifest(number), FileName::Temporary(temporary)];
        self.left.push(FileName::Temporary(temporary));
        let (env, directory) = (&*self.env, &self.directory);
        let writer = ManifestWriter::create(env, directory, number, &snapshot)?;
        stage_current(env, directory, number, temporary)?;
        // From here on the new manifest may be current, whatever the answer.
        self.abandoned.clear();
        switch_current(env, directory, temporary)?;
        self.left.pop();
        self.writer = Some(writer);
        self.show_position();
        Ok(())
    }

    /// True if the manifest has grown so long that it should be rewritten.
    pub(crate) fn is_long(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.needs_rewrite(self.bytes_max))
    }

    /// Starts a new manifest from `snapshot` and removes the old one. Not after a failure: what
    /// the failed edit said of sequences would be in the new manifest, without its tables.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub(crate) fn rewrite(&mut self, snapshot: VersionEdit) -> Result<()> {
        self.check_not_failed()?;
        let old = self.number();
        self.start(self.numbers.take_file_number(), snapshot)?;
        if let Some(old) = old {
            // If this fails the next session removes the old manifest.
            let _ = self.env.remove(&FileName::Manifest(old).path(&self.directory));
        }
        Ok(())
    }

    /// Appends the mark of a clean close. Takes no edits afterwards.
    ///
    /// # Errors
    /// As for [`append`](Self::append): the mark may be there or not.
    pub(crate) fn close(&mut self, clean_close: CleanClose) -> Result<()> {
        self.last_sequence = self.last_sequence.max(clean_close.last_sequence);
        // Not `last_sequence`: a recovery may have dropped the highest numbers that were used.
        self.synced_through = self.synced_through.max(clean_close.last_sequence);
        let edit = VersionEdit { clean_close: Some(clean_close), ..VersionEdit::default() };
        self.append(edit)?;
        self.writer = None;
        Ok(())
    }

    /// Lets new logs name all that was written so far: it is durable.
    fn show_position(&self) {
        if let Some(writer) = &self.writer {
            let (number, synced_bytes) = (writer.number, writer.records.bytes());
            *self.numbers.position.lock() = ManifestPosition { number, synced_bytes };
        }
    }
}
