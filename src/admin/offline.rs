//! [`OfflineDatabase`]: a database whose entries are all in tables, and how it is installed.
//!
//! A repair and a checkpoint end with one: tables are there and durable, and what is missing is an
//! empty log, a manifest that names everything, and `CURRENT`, in this order.

use crate::base::error::Result;
use crate::base::key::SequenceNumber;
use crate::env::api::Env;
use crate::log::wal::consistency::CleanClose;
use crate::log::wal::format::{DatabaseIdentity, WalStart};
use crate::log::wal::writer::WalWriter;
use crate::tree::current::set_current;
use crate::tree::edit::{COMPARATOR, FirstLog, KeyspaceMeta, SessionBegin, VersionEdit};
use crate::tree::file_meta::FileMeta;
use crate::tree::manifest::ManifestWriter;
use std::path::Path;

/// The state of a database without a writer.
pub(crate) struct OfflineDatabase {
    pub database: DatabaseIdentity,
    /// The database that it is a checkpoint of.
    pub checkpoint_of: Option<DatabaseIdentity>,
    /// The ids of the other databases whose tables it may have.
    pub ancestors: Vec<u128>,
    /// The last sequence given to a write: everything up to it is in tables.
    pub last_sequence: SequenceNumber,
    /// Above the number of every keyspace that was ever created.
    pub next_keyspace: u64,
    /// The largest time by which entries were taken for expired.
    pub expired_through: u64,
    pub keyspaces: Vec<KeyspaceMeta>,
    /// All tables with their levels. They are durable; their names become so with that of the log.
    pub tables: Vec<(usize, FileMeta)>,
}

impl OfflineDatabase {
    /// How many file numbers [`make_current`](Self::make_current) uses.
    pub(crate) const NUMBERS: u64 = 3;

    /// Writes log, manifest and CURRENT, with the file numbers from `next` on. Before the last step
    /// nothing has changed, and after it all.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn make_current(self, env: &dyn Env, directory: &Path, next: u64) -> Result<()> {
        let last = self.last_sequence;
        let (log, manifest, temporary) = (next, next + 1, next + 2);
        let start = WalStart {
            synced_through: last,
            previous_log: 0,
            previous_last_sequence: last,
            first_sequence: last + 1,
            manifest_number: manifest,
            manifest_synced_bytes: 0,
            database: self.database,
        };
        let loads: Vec<_> = self.tables.iter().filter_map(|(_, meta)| meta.loaded()).collect();
        let mut wal = WalWriter::create(env, directory, log, &start, &loads, 0)?;
        // The manifest needs this log, so its start record must be durable first.
        wal.sync()?;
        let flushed = |meta| KeyspaceMeta { flushed_through: last, ..meta };
        let snapshot = VersionEdit {
            comparator: Some(COMPARATOR.into()),
            first_log: Some(FirstLog { number: log, flushed_through: last }),
            next_file_number: Some(next + OfflineDatabase::NUMBERS),
            last_sequence: Some(last),
            synced_through: Some(last),
            session_log: Some(log),
            sessions: vec![SessionBegin::random(last)],
            // The log is synced and gets no more writes.
            clean_close: Some(CleanClose { log, log_bytes: wal.bytes(), last_sequence: last }),
            database: Some(self.database),
            checkpoint_of: self.checkpoint_of,
            ancestors: self.ancestors,
            next_keyspace: Some(self.next_keyspace),
            expired_through: Some(self.expired_through).filter(|through| *through > 0),
            created: self.keyspaces.into_iter().map(flushed).collect(),
            added: self.tables,
            ..VersionEdit::default()
        };
        ManifestWriter::create(env, directory, manifest, &snapshot)?;
        set_current(env, directory, manifest, temporary)
    }
}
