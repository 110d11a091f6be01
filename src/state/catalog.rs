//! [`Catalog`]: which keyspaces, memtables, tables and snapshots an open database has, and which of
//! its writes reads may see.
//!
//! A point lookup takes no lock: it loads the `view` of its keyspace, then `published`. A writer
//! applies a group, then publishes it with `Release`. A switch stores the new view before the first
//! write into the new memtable (I3; `read/point.rs` says why this order is right).
//!
//! The view also holds a share of the directory's lock. So loading the view decides in one step
//! whether a read finds the database open. `close` stores a view without the lock; a read that
//! still holds an older view keeps the directory locked (I20). `close_now` shuts the gate before
//! the Env, and releases the lock although such reads exist.

use crate::base::error::{Error, Result};
use crate::base::key::KeyspaceId;
use crate::base::sync::{Arc, AtomicU64, Mutex, Ordering};
use crate::env::directory_lock::DirectoryLock;
use crate::memtable::memtable::Memtable;
use crate::memtable::memtable::Published;
use crate::options::database::Options;
use crate::state::keyspace::{KeyspaceState, Keyspaces};
use crate::state::lock_rank::RankedMutex;
use crate::state::read_view::ReadView;
use crate::state::snapshots::SnapshotList;
use crate::table::reader::TableContext;
use crate::tree::edit::VersionEdit;
use crate::tree::handle::ObsoleteFiles;
use crate::tree::new_tables::{DurableTables, NewTables};
use crate::tree::session_manifest::SharedNumbers;
use crate::tree::set::{NewVersions, VersionSet};
use std::collections::BTreeMap;
use std::path::Path;

/// Keyspaces, versions, snapshots, the published sequence, and obsolete files.
pub(crate) struct Catalog {
    pub default: Arc<KeyspaceState>,
    pub keyspaces: RankedMutex<Keyspaces>,
    /// Drops of keyspaces so far: tells snapshots from before a drop.
    pub drops: AtomicU64,
    /// The last sequence that reads may see.
    pub published: Arc<Published>,
    pub snapshots: SnapshotList,
    /// Manifest and current version.
    pub versions: RankedMutex<VersionSet>,
    /// How tables are opened.
    pub tables: TableContext,
    /// File numbers and the manifest's position.
    pub numbers: Arc<SharedNumbers>,
    /// Files that wait to be removed.
    pub obsolete: Arc<ObsoleteFiles>,
    /// The active memtable of every keyspace without unflushed writes.
    pub empty_memtable: Arc<Memtable>,
    /// Replaced memtables: freed by the background once nobody reads them.
    pub retired: Mutex<Vec<Arc<Memtable>>>,
}

impl Catalog {
    /// All keyspaces, by number.
    pub(crate) fn all_keyspaces(&self) -> Vec<Arc<KeyspaceState>> {
        self.keyspaces.lock().iter().cloned().collect()
    }

    /// Stores the new versions of an edit in the views of their keyspaces, where reads find them.
    /// Called under the lock of `versions`, so that views change in the order of edits.
    pub(crate) fn show(&self, versions: NewVersions) {
        for (id, version) in versions {
            let keyspace = self.keyspaces.lock().get(id).cloned();
            if let Some(keyspace) = keyspace {
                keyspace.update_view(|view| ReadView { version, ..view.clone() });
            }
        }
    }

    /// Opens tables of `keyspaces` that an edit will add at `level`. Takes no lock: opening a table
    /// reads its filter and its index back.
    ///
    /// # Errors
    /// A table cannot be read back.
    pub(crate) fn open_new(
        &self,
        directory: &Path,
        tables: DurableTables,
        level: usize,
        keyspaces: &[&KeyspaceState],
    ) -> Result<NewTables> {
        let by_id: BTreeMap<KeyspaceId, _> = keyspaces.iter().map(|k| (k.id, k)).collect();
        let pinning = |id| {
            let keyspace = by_id.get(&id);
            keyspace.map_or_else(Default::default, |k| k.options.load().filter_pinning())
        };
        NewTables::open(&self.tables, directory, tables, level, &pinning)
    }

    /// Logs the edit that `edit` makes and shows it to reads: for jobs that change nothing else in
    /// the same step. `edit` is called under the lock of versions, so it sees the tables as they
    /// are. `new` has the tables that it adds; what was opened in vain goes when the caller drops
    /// `new`, after that lock. False if `edit` makes none.
    ///
    /// # Errors
    /// As [`VersionSet::apply`].
    pub(crate) fn apply(
        &self,
        new: &mut NewTables,
        edit: impl FnOnce(&NewTables) -> Option<VersionEdit>,
    ) -> Result<bool> {
        // The lock is held from the edit to the new views, so views appear in the order of edits.
        let mut versions = self.versions.lock();
        let Some(edit) = edit(new) else { return Ok(false) };
        let changed = versions.apply(edit, new, self.published.visible())?;
        self.show(changed);
        Ok(true)
    }

    /// Lets go of the tables of dropped keyspaces that no snapshot reads.
    pub(crate) fn clear_dropped(&self) {
        let unread = {
            let mut keyspaces = self.keyspaces.lock();
            match keyspaces.has_dropped() {
                true => keyspaces.take_unread(self.snapshots.oldest()),
                false => return,
            }
        };
        for keyspace in unread {
            let view = keyspace.view.load_full();
            keyspace.clear_dropped(&self.empty_memtable);
            self.retired.lock().extend(view.memtables().filter(|m| !m.is_empty()).cloned());
        }
        self.obsolete.wakeup.wake();
    }

    /// A share in the directory's lock. Every reader holds one until it has read.
    ///
    /// # Errors
    /// `Closed`.
    pub(crate) fn hold(&self) -> Result<Arc<DirectoryLock>> {
        self.default.view.load().lock.clone().ok_or(Error::Closed)
    }

    /// Stores views without the directory's lock: this step closes each keyspace to reads. A read
    /// that holds an older view continues, and keeps the lock.
    pub(crate) fn close_views(&self) {
        if let Some(lock) = &self.default.view.load().lock {
            lock.close();
        }
        for keyspace in self.all_keyspaces() {
            keyspace.update_view(|view| ReadView { lock: None, ..view.clone() });
        }
    }

    /// Bytes of the memtables that wait for their flush.
    pub(crate) fn immutable_bytes(&self) -> usize {
        self.default.served.immutable_bytes.load(Ordering::SeqCst)
    }
}

pub(crate) fn new_memtable(options: &Options) -> Arc<Memtable> {
    Arc::new(Memtable::new(options.write_buffer_bytes, options.memtable_filter))
}
