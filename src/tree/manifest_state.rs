//! [`ManifestState`]: what a manifest says of a database, once all its edits are applied.

use crate::base::key::{DEFAULT_KEYSPACE, KeyspaceId};
use crate::base::levels::LEVELS;
use crate::log::recovery::DroppedPart;
use crate::log::wal::consistency::ManifestFacts;
use crate::log::wal::format::DatabaseIdentity;
use crate::tree::edit::{COMPARATOR, FirstLog, KeyspaceMeta, SessionBegin, VersionEdit};
use crate::tree::file_meta::FileMeta;
use std::collections::BTreeMap;

/// The contents of a manifest, with all its edits applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ManifestState {
    /// Its number and length without a torn last record, and what it knows of the logs.
    pub facts: ManifestFacts,
    /// The dropped end, if there is one; then the manifest must not be appended to.
    pub dropped: Option<DroppedPart>,
    /// The database that it is a checkpoint of, unless it was written to since.
    pub checkpoint_of: Option<DatabaseIdentity>,
    /// The ids of the other databases whose tables it may have.
    pub ancestors: Vec<u128>,
    /// The last sessions, oldest first, without the one that created the database.
    pub sessions: Vec<SessionBegin>,
    /// The keyspaces, `default` included.
    pub keyspaces: BTreeMap<KeyspaceId, KeyspaceTables>,
    /// Above the number of every keyspace that was ever created.
    pub next_keyspace: u64,
    /// Above every file number in use.
    pub next_file_number: u64,
    /// The largest time by which entries were taken for expired.
    pub expired_through: u64,
}

/// A manifest's facts about one keyspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyspaceTables {
    /// Name, settings, and how far it is flushed.
    pub meta: KeyspaceMeta,
    /// The tables of each level: newest first in level 0, by smallest key in the others.
    pub levels: [Vec<FileMeta>; LEVELS],
}

impl ManifestState {
    /// The state of a database that was just created: the keyspace `default`, empty.
    pub(crate) fn new_database(database: DatabaseIdentity) -> Self {
        let default =
            KeyspaceTables { meta: KeyspaceMeta::default_keyspace(), ..Default::default() };
        ManifestState {
            facts: ManifestFacts { database, ..ManifestFacts::default() },
            keyspaces: BTreeMap::from([(DEFAULT_KEYSPACE, default)]),
            next_keyspace: u64::from(DEFAULT_KEYSPACE) + 1,
            ..ManifestState::default()
        }
    }

    /// All tables of all keyspaces, with their levels.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (usize, &FileMeta)> + Clone {
        self.keyspaces.values().flat_map(KeyspaceTables::tables)
    }

    /// The one edit that makes this state from nothing.
    pub(crate) fn snapshot(&self) -> VersionEdit {
        let facts = &self.facts;
        let (number, flushed_through) = (facts.log_number, facts.flushed_through);
        VersionEdit {
            comparator: Some(COMPARATOR.into()),
            first_log: Some(FirstLog { number, flushed_through }),
            next_file_number: Some(self.next_file_number),
            last_sequence: Some(facts.last_sequence),
            synced_through: Some(facts.synced_through),
            session_log: Some(facts.session_log),
            sessions: self.sessions.clone(),
            clean_close: facts.clean_close,
            database: Some(facts.database),
            checkpoint_of: self.checkpoint_of,
            ancestors: self.ancestors.clone(),
            next_keyspace: Some(self.next_keyspace),
            expired_through: Some(self.expired_through).filter(|through| *through > 0),
            created: self.keyspaces.values().map(|keyspace| keyspace.meta.clone()).collect(),
            added: self.tables().map(|(level, meta)| (level, meta.clone())).collect(),
            ..VersionEdit::default()
        }
    }
}

impl KeyspaceTables {
    /// All tables, with their levels.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (usize, &FileMeta)> + Clone {
        let levels = self.levels.iter().enumerate();
        levels.flat_map(|(level, metas)| metas.iter().map(move |meta| (level, meta)))
    }
}
