//! `VersionSet`: the current version of each keyspace, and the only way to the next one.
//!
//! `apply` checks the order of the levels, takes the new tables of the edit from `NewTables`, logs
//! the edit, syncs it, then replaces the versions. One lock protects the set. It is not held while
//! tables are written, synced or opened.
//!
//! [`VersionSet::activate`] creates the manifest of a session before its first edit, so opening and
//! closing writes nothing. After a failed manifest write (`tree/session_manifest.rs`) no file is
//! removed any more, and the set refuses edits until [`VersionSet::restart`] or until the database
//! is reopened (I8).

use crate::base::error::{Error, Result};
use crate::base::events::event::Event;
use crate::base::filename::{FileName, parse};
use crate::base::key::{KeyspaceId, SequenceNumber};
use crate::base::levels::LEVELS;
use crate::base::sync::Arc;
use crate::env::api::{Env, FileKind};
use crate::env::foreign::is_ours;
use crate::table::reader::TableContext;
use crate::tree::edit::{KeyspaceMeta, VersionEdit};
use crate::tree::file_meta::FileMeta;
use crate::tree::handle::{ObsoleteFiles, TableHandle};
use crate::tree::manifest_state::ManifestState;
use crate::tree::new_tables::{NewTables, PinningByLevel};
use crate::tree::overlap::{order_conflicts, overlapping_places};
use crate::tree::session_manifest::SessionManifest;
use crate::tree::trees::{Tree, open_trees};
use crate::tree::version::{Places, Version};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

/// The most keyspaces that a database may have.
const KEYSPACES_MAX: usize = 65_535;

/// The keyspaces whose tables changed, and their new versions.
pub(crate) type NewVersions = BTreeMap<KeyspaceId, Arc<Version>>;

/// The current versions and their manifest.
#[derive(Debug)]
pub(crate) struct VersionSet {
    env: Arc<dyn Env>,
    directory: PathBuf,
    pub context: TableContext,
    trees: BTreeMap<KeyspaceId, Tree>,
    /// Above the number of every keyspace that was ever created.
    pub next_keyspace: u64,
    pub manifest: SessionManifest,
    /// Tables of edits that failed: the current manifest may name them or not.
    uncertain: Vec<u64>,
    /// Files with lower numbers are from earlier sessions.
    session_start: u64,
    /// Where files that nothing needs any more collect.
    pub obsolete: Arc<ObsoleteFiles>,
    /// Edits that remove tables and add others are refused; how often that happened.
    #[cfg(test)]
    pub refused_edits: Option<u64>,
}

impl VersionSet {
    /// Opens the tables that a replayed manifest names. Writes nothing.
    ///
    /// # Errors
    /// A table is missing, of another size, foreign or damaged.
    pub(crate) fn open(
        env: Arc<dyn Env>,
        directory: &Path,
        context: TableContext,
        pinning: &dyn Fn(KeyspaceId) -> PinningByLevel,
        state: &ManifestState,
        manifest_bytes: u64,
    ) -> Result<Self> {
        let mut set = VersionSet::new(env, directory, context, state, manifest_bytes);
        let none = BTreeMap::new();
        set.trees = open_trees(&set.context, directory, pinning, state, &set.obsolete, &none)?;
        Ok(set)
    }

    /// A set without trees.
    fn new(
        env: Arc<dyn Env>,
        directory: &Path,
        context: TableContext,
        state: &ManifestState,
        manifest_bytes: u64,
    ) -> Self {
        VersionSet {
            env: Arc::clone(&env),
            directory: directory.to_path_buf(),
            context,
            trees: BTreeMap::new(),
            next_keyspace: state.next_keyspace,
            manifest: SessionManifest::new(env, directory, state, manifest_bytes),
            uncertain: Vec::new(),
            session_start: 0,
            obsolete: Arc::default(),
            #[cfg(test)]
            refused_edits: None,
        }
    }

    /// A set of what a later manifest of the same database says, for one that another process
    /// writes. Tables that both name are not opened again. Writes nothing.
    ///
    /// # Errors
    /// As for [`VersionSet::open`].
    pub(crate) fn following(
        &self,
        pinning: &dyn Fn(KeyspaceId) -> PinningByLevel,
        state: &ManifestState,
    ) -> Result<Self> {
        let trees = &self.trees;
        let trees =
            open_trees(&self.context, &self.directory, pinning, state, &self.obsolete, trees)?;
        Ok(self.with_trees(trees, state))
    }

    /// The same set once more, of what the same manifest says.
    pub(crate) fn once_more(&self, state: &ManifestState) -> Self {
        self.with_trees(self.trees.clone(), state)
    }

    fn with_trees(&self, trees: BTreeMap<KeyspaceId, Tree>, state: &ManifestState) -> Self {
        let (env, context) = (Arc::clone(&self.env), self.context.clone());
        let obsolete = Arc::clone(&self.obsolete);
        let new = VersionSet::new(env, &self.directory, context, state, 0);
        VersionSet { trees, obsolete, ..new }
    }

    /// The current version of each keyspace, by number.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (KeyspaceId, Arc<Version>)> {
        self.trees.iter().map(|(&id, tree)| (id, Arc::clone(&tree.current)))
    }

    /// The manifest's facts about each keyspace, by number.
    pub(crate) fn keyspaces(&self) -> impl Iterator<Item = &KeyspaceMeta> {
        self.trees.values().map(|tree| &tree.meta)
    }

    /// The number of a keyspace that is to be created; it is given only once, also if the creation
    /// fails.
    ///
    /// # Errors
    /// `InvalidArgument` if there are too many, or all numbers are used up.
    pub(crate) fn take_keyspace(&mut self) -> Result<KeyspaceId> {
        if self.trees.len() >= KEYSPACES_MAX {
            let what = format!("{KEYSPACES_MAX} keyspaces are there, as many as may be");
            return Err(Error::InvalidArgument { what });
        }
        let id = KeyspaceId::try_from(self.next_keyspace).map_err(|_| Error::InvalidArgument {
            what: "all keyspace numbers are used up".into(),
        })?;
        self.next_keyspace += 1;
        Ok(id)
    }

    /// True if the current manifest does not need the file: it may be removed.
    pub(crate) fn is_obsolete(&self, name: FileName) -> bool {
        match name {
            FileName::Wal(number) => number < self.manifest.first_log.number,
            FileName::Table(number) => {
                let mut handles = self.trees.values().flat_map(Tree::tables);
                handles.all(|(_, handle)| handle.meta.number != number)
            }
            FileName::Manifest(number) => self.manifest.number() != Some(number),
            FileName::Temporary(_) => true,
            FileName::Current | FileName::Lock | FileName::Stats => false,
        }
    }

    /// Logs `edit`, syncs it, and makes the versions it leads to the current ones. Needs an active
    /// session. The tables that it adds, and does not only move, are taken from `new`. Keyspaces
    /// that it creates have numbers of [`VersionSet::take_keyspace`]; the files of a keyspace that
    /// it drops go with their last reader. `last_sequence` is the last one given to a write; if the
    /// edit creates or drops keyspaces, all writes up to it are durable.
    ///
    /// # Errors
    /// Tables that would break the order of a level leave all as it was (`Defect`), and so does an
    /// edit of a keyspace that is gone (`KeyspaceDropped`). A failed manifest write is final: the
    /// set takes no edits after it.
    pub(crate) fn apply(
        &mut self,
        edit: VersionEdit,
        new: &mut NewTables,
        last_sequence: SequenceNumber,
    ) -> Result<NewVersions> {
        let tree = |meta: &KeyspaceMeta| {
            let current = Arc::new(Version::new(Default::default()));
            (meta.id, Tree { meta: meta.clone(), current })
        };
        let created = edit.created.iter().map(tree).collect();
        // Checked before the edit is logged: a refusal leaves manifest and versions as they were.
        let next = self.next_versions(&edit, new, &created)?;
        #[cfg(test)]
        if let Some(count) = self.refused_edits.as_mut().filter(|_| !edit.deleted.is_empty()) {
            *count += 1;
            return Err(Error::Defect { what: "by an edit of a test".into() });
        }
        let added: Vec<u64> = new_tables(&edit).collect();
        let edit = match self.log(edit, last_sequence) {
            Ok(edit) => edit,
            Err(error) => {
                self.uncertain.extend(added);
                return Err(error);
            }
        };
        next.mark_replaced();
        self.trees.extend(created);
        self.emit_new_tables(&edit);
        for (id, sequence) in &edit.flushed_through {
            if let Some(tree) = self.trees.get_mut(id) {
                tree.meta.flushed_through = *sequence;
            }
        }
        for tree in edit.dropped.iter().filter_map(|id| self.trees.remove(id)) {
            tree.tables().for_each(|(_, handle)| handle.mark_obsolete());
        }
        Ok(self.replace(&next))
    }

    /// Logs an edit, in a new manifest if the present one is long. Returns it as it is there.
    ///
    /// # Errors
    /// The edit may be logged or not.
    fn log(&mut self, edit: VersionEdit, last_sequence: SequenceNumber) -> Result<VersionEdit> {
        // First: if the rewrite fails, it says nothing of the edit.
        if self.manifest.is_long() {
            self.manifest.rewrite(self.snapshot())?;
        }
        self.manifest.advance(&edit, last_sequence);
        self.manifest.append(edit)
    }

    /// Saves new settings of the keyspace `id`: durably in an active session, and otherwise with
    /// the manifest that begins it.
    ///
    /// # Errors
    /// As for [`VersionSet::apply`].
    pub(crate) fn save_settings(
        &mut self,
        id: KeyspaceId,
        settings: Vec<u8>,
        last_sequence: SequenceNumber,
    ) -> Result<()> {
        debug_assert!(self.trees.contains_key(&id), "an edit must not name a dropped keyspace");
        if self.is_active() {
            let settings = vec![(id, settings.clone())];
            let edit = VersionEdit { settings, ..VersionEdit::default() };
            self.apply(edit, &mut NewTables::default(), last_sequence)?;
        }
        if let Some(tree) = self.trees.get_mut(&id) {
            tree.meta.settings = settings;
        }
        Ok(())
    }

    /// Makes `next` current; returns them.
    fn replace(&mut self, next: &NextVersions) -> NewVersions {
        for (id, version) in &next.versions {
            if let Some(tree) = self.trees.get_mut(id) {
                tree.current = Arc::clone(version);
            }
        }
        next.versions.clone()
    }

    /// Tells of the tables that a durable edit adds.
    fn emit_new_tables(&self, edit: &VersionEdit) {
        if !self.context.events.is_on() {
            return;
        }
        let new: HashSet<u64> = new_tables(edit).collect();
        for (level, meta) in edit.added.iter().filter(|(_, meta)| new.contains(&meta.number)) {
            let keyspace = self.trees.get(&meta.keyspace);
            self.context.events.emit(|| Event::TableCreated {
                keyspace: keyspace.map_or_else(String::new, |tree| tree.meta.name.clone()),
                level: *level,
                path: FileName::Table(meta.number).path(&self.directory),
                entries: meta.entries,
                bytes: meta.bytes,
            });
        }
    }

    /// Continues after a failure with a whole new manifest as file `number`: the versions as they
    /// are, with the tables that `edit` adds and without those that it deletes, and its first log.
    /// The failed manifest is not written to again, and the files that it may name stay until the
    /// new one is current.
    ///
    /// # Errors
    /// As for `apply`; it may be tried again, with another number.
    pub(crate) fn restart(
        &mut self,
        number: u64,
        edit: VersionEdit,
        new: &mut NewTables,
    ) -> Result<NewVersions> {
        self.uncertain.extend(new_tables(&edit));
        let next = self.next_versions(&edit, new, &BTreeMap::new())?;
        let before = self.trees.clone();
        let replaced = self.replace(&next);
        let flushed_through = edit.first_log.map_or(0, |log| log.flushed_through);
        self.manifest.set_session_log(edit.first_log.map(|log| log.number), flushed_through);
        self.manifest.forget_refused(flushed_through);
        self.manifest.advance(&edit, flushed_through);
        if let Err(error) = self.manifest.start(number, self.snapshot()) {
            self.trees = before;
            return Err(error);
        }
        next.mark_replaced();
        self.emit_new_tables(&edit);
        let live = self.live_tables();
        let uncertain = std::mem::take(&mut self.uncertain);
        let unnamed = uncertain.into_iter().filter(|number| !live.contains(number));
        self.obsolete.add(unnamed.map(FileName::Table).chain(self.manifest.take_left()));
        Ok(replaced)
    }

    /// The obsolete files except tables, which an iterator may still read.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub(crate) fn leftovers(&self) -> Result<Vec<FileName>> {
        let mut leftovers = self.obsolete_files()?;
        leftovers.retain(|name| !matches!(name, FileName::Table(_)));
        Ok(leftovers)
    }

    fn live_tables(&self) -> HashSet<u64> {
        let handles = self.trees.values().flat_map(Tree::tables);
        handles.map(|(_, handle)| handle.meta.number).collect()
    }

    /// Creates this session's manifest as file `number` and makes it the current one. `log`, by a
    /// name that is durable, is the log that the session begins with. The tables and the first log
    /// of `edit`, which recovery wrote, become part of the database in the same step.
    /// `last_sequence` is the last one that recovery found.
    ///
    /// # Errors
    /// As for `apply`. If [`VersionSet::abandoned`] names files then, nothing has changed.
    pub(crate) fn activate(
        &mut self,
        number: u64,
        log: Option<u64>,
        edit: &VersionEdit,
        new: &mut NewTables,
        last_sequence: SequenceNumber,
    ) -> Result<()> {
        self.manifest.check_not_failed()?;
        let next = self.next_versions(edit, new, &BTreeMap::new())?;
        self.session_start = number;
        self.manifest.set_session_log(log, last_sequence);
        self.manifest.advance(edit, last_sequence);
        self.replace(&next);
        self.manifest.start(number, self.snapshot())?;
        self.emit_new_tables(edit);
        Ok(())
    }

    /// True once this session has a manifest of its own.
    pub(crate) fn is_active(&self) -> bool {
        self.manifest.number().is_some()
    }

    /// Files of earlier sessions that neither the durable manifest nor recovery needs. Empty unless
    /// this session's manifest is current. Call it before any job of the session can take a table
    /// out of the version: an iterator may still read that table. Files that siftdb did not write
    /// are left out, and so are those that cannot be read.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub(crate) fn obsolete_files(&self) -> Result<Vec<FileName>> {
        let Some(manifest) = self.manifest.number().filter(|_| self.manifest.failed.is_none())
        else {
            return Ok(Vec::new());
        };
        let entries = self.env.list(&self.directory);
        let entries = entries.map_err(|error| Error::io("list", &self.directory, error))?;
        let live = self.live_tables();
        let files = entries.iter().filter(|entry| entry.kind == FileKind::File);
        let ours = files.filter_map(|entry| parse(&entry.name));
        Ok(ours
            .filter(|name| match name {
                FileName::Current | FileName::Lock | FileName::Stats => false,
                FileName::Manifest(number) => *number < manifest,
                FileName::Wal(number) => *number < self.manifest.first_log.number,
                FileName::Table(number) => *number < self.session_start && !live.contains(number),
                FileName::Temporary(number) => *number < self.session_start,
            })
            .filter(|name| is_ours(&*self.env, &self.directory, *name).unwrap_or(false))
            .collect())
    }

    /// The versions of the keyspaces whose tables `edit` changes.
    fn next_versions(
        &self,
        edit: &VersionEdit,
        new: &mut NewTables,
        created: &BTreeMap<KeyspaceId, Tree>,
    ) -> Result<NextVersions> {
        // A flush may change all keyspaces, so none of them looks for its tables among all.
        let mut changes: BTreeMap<KeyspaceId, TreeChange<'_>> = BTreeMap::new();
        for file in &edit.deleted {
            changes.entry(file.keyspace).or_default().deleted[file.level].insert(file.number);
        }
        for table in &edit.added {
            changes.entry(table.1.keyspace).or_default().added.push(table);
        }
        let mut next = NextVersions::default();
        for (id, change) in changes {
            // Dropped while the job ran.
            let tree = self.trees.get(&id).or_else(|| created.get(&id));
            let tree = tree.ok_or_else(|| Error::keyspace_dropped(id))?;
            let version = self.next_version(tree, &change, new, &mut next.replaced)?;
            next.versions.insert(id, Arc::new(version));
        }
        Ok(next)
    }

    /// The next version of `tree`. Adds the tables that it loses to `replaced`. An edit may change
    /// thousands of tables among as many, so none of them is looked for one by one.
    fn next_version(
        &self,
        tree: &Tree,
        change: &TreeChange<'_>,
        new: &mut NewTables,
        replaced: &mut Vec<Arc<TableHandle>>,
    ) -> Result<Version> {
        let (gone, mut removed) = self.removed_tables(tree, &change.deleted)?;
        self.check_order(tree, change)?;
        let mut added: [Vec<Arc<TableHandle>>; LEVELS] = Default::default();
        for (level, meta) in &change.added {
            // A table that moves to another level stays open as it is.
            let handle = match removed.remove(&meta.number) {
                Some(handle) => handle,
                None => {
                    let table = new.take(meta.number).ok_or_else(|| Error::Defect {
                        what: format!(
                            "by an edit that adds table {}, not made durable",
                            meta.number
                        ),
                    })?;
                    TableHandle::new(Arc::new(meta.clone()), Arc::new(table), &self.obsolete)
                }
            };
            added[*level].push(handle);
        }
        replaced.extend(removed.into_values());
        Ok(tree.current.changed(&gone, added))
    }

    /// The tables of a tree that an edit deletes: their places in each level, and all by number.
    ///
    /// # Errors
    /// One of them is not there.
    fn removed_tables(
        &self,
        tree: &Tree,
        deleted: &[BTreeSet<u64>; LEVELS],
    ) -> Result<(Places, BTreeMap<u64, Arc<TableHandle>>)> {
        let (mut places, mut removed) = (Places::default(), BTreeMap::new());
        for (level, deleted) in deleted.iter().enumerate().filter(|(_, own)| !own.is_empty()) {
            let tables = tree.current.level(level);
            for (place, meta) in tree.current.files[level].iter().enumerate() {
                if deleted.contains(&meta.number) {
                    places[level].push(place);
                    removed.insert(meta.number, Arc::clone(&tables[place]));
                }
            }
            if let Some(number) = deleted.iter().find(|number| !removed.contains_key(number)) {
                let what = format!("edit removes table {number}, not at level {level}");
                return Err(Error::corruption(&self.directory, 0, what));
            }
        }
        Ok((places, removed))
    }

    /// Refuses an edit that breaks the order of a level (I4). Such an edit could not be replayed,
    /// and lookups could find an older value before a newer one.
    fn check_order(&self, tree: &Tree, change: &TreeChange<'_>) -> Result<()> {
        for (level, tables) in tree.current.files.iter().enumerate() {
            let coming = change.added.iter().filter(|(to, _)| *to == level).map(|(_, meta)| meta);
            if coming.clone().next().is_none() {
                continue;
            }
            let stays = |meta: &&Arc<FileMeta>| !change.deleted[level].contains(&meta.number);
            // In a sorted level the tables that stay are in order. So one of them that shares keys
            // with one that comes is the whole difference.
            let sharing = |meta: &FileMeta| {
                tables[overlapping_places(tables, &meta.span())].iter().find(stays)
            };
            let staying: Vec<_> = match level {
                0 => tables.iter().filter(stays).collect(),
                _ => coming.clone().find_map(sharing).into_iter().collect(),
            };
            let staying = staying.into_iter().map(|meta| &**meta);
            let clashes = order_conflicts(level, staying.chain(coming));
            if let Some(clash) = clashes.first() {
                let directory = self.directory.display();
                let what = format!("{directory}: by an edit {clash}");
                return Err(Error::Defect { what });
            }
        }
        Ok(())
    }

    /// The keyspaces and tables as one edit, the first of a manifest.
    fn snapshot(&self) -> VersionEdit {
        let tables = self.trees.values().flat_map(Tree::tables);
        VersionEdit {
            next_keyspace: Some(self.next_keyspace),
            created: self.keyspaces().cloned().collect(),
            added: tables.map(|(level, handle)| (level, (*handle.meta).clone())).collect(),
            ..VersionEdit::default()
        }
    }
}

/// What an edit changes in one tree.
#[derive(Default)]
struct TreeChange<'e> {
    /// The numbers of the tables that go, by level.
    deleted: [BTreeSet<u64>; LEVELS],
    /// Each with its level.
    added: Vec<&'e (usize, FileMeta)>,
}

/// What an edit leads to.
#[derive(Default)]
struct NextVersions {
    versions: NewVersions,
    /// Tables that no new version has.
    replaced: Vec<Arc<TableHandle>>,
}

impl NextVersions {
    /// The edit is durable: the file of each table that it deletes goes with the last version that
    /// names it (I9).
    fn mark_replaced(&self) {
        self.replaced.iter().for_each(|handle| handle.mark_obsolete());
    }
}

/// The tables that the edit adds and does not only move, by number.
fn new_tables(edit: &VersionEdit) -> impl Iterator<Item = u64> {
    let deleted: HashSet<u64> = edit.deleted.iter().map(|file| file.number).collect();
    let added = edit.added.iter().map(|(_, meta)| meta.number);
    added.filter(move |number| !deleted.contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::cache::Cache;
    use crate::env::handle::FilePool;
    use crate::env::mem::MemEnv;
    use crate::env::testing::fault::{Calls, EIO, Fault, FaultEnv, FaultKind};
    use crate::log::wal::format::DatabaseIdentity;
    use crate::tree::manifest_state::KeyspaceTables;

    fn set_of(keyspaces: usize, next_keyspace: u64) -> VersionSet {
        set_in(Arc::new(MemEnv::new()), keyspaces, next_keyspace)
    }

    fn set_in(env: Arc<dyn Env>, keyspaces: usize, next_keyspace: u64) -> VersionSet {
        let context = TableContext::new(FilePool::new(Arc::clone(&env), 1), Cache::new(0, 0.5));
        let mut state = ManifestState::new_database(DatabaseIdentity::default());
        for id in 1..keyspaces as KeyspaceId {
            let meta = KeyspaceMeta { id, name: id.to_string(), ..KeyspaceMeta::default() };
            state.keyspaces.insert(id, KeyspaceTables { meta, ..KeyspaceTables::default() });
        }
        state.next_keyspace = next_keyspace;
        let pinning = |_| PinningByLevel::default();
        VersionSet::open(env, Path::new("/db"), context, &pinning, &state, 1).unwrap()
    }

    #[test]
    fn keyspaces_and_their_numbers_have_limits() {
        let refusal = |mut set: VersionSet| match set.take_keyspace() {
            Err(Error::InvalidArgument { what }) => what,
            other => panic!("{other:?}"),
        };
        let mut room_for_one = set_of(KEYSPACES_MAX - 1, 70_000);
        assert_eq!(room_for_one.take_keyspace().unwrap(), 70_000);
        // Given only once, also if nothing is created.
        assert_eq!(room_for_one.take_keyspace().unwrap(), 70_001);
        assert!(refusal(set_of(KEYSPACES_MAX, 70_000)).contains("65535 keyspaces"));
        let last = u64::from(KeyspaceId::MAX);
        assert_eq!(set_of(1, last).take_keyspace().unwrap(), KeyspaceId::MAX);
        assert!(refusal(set_of(1, last + 1)).contains("used up"));
    }

    /// Another job may have an edit when one fails. A new manifest would have the sequences of the
    /// failed edit and not its tables, so the database would not open.
    #[test]
    fn a_failed_edit_is_the_last_of_its_manifest() {
        let begin = |env: Arc<dyn Env>| {
            env.create_dir(Path::new("/db")).unwrap();
            let mut set = set_in(env, 1, 1);
            set.activate(7, None, &VersionEdit::default(), &mut NewTables::default(), 0).unwrap();
            set
        };
        let edit =
            |set: &mut VersionSet| set.apply(VersionEdit::default(), &mut NewTables::default(), 0);
        let (mut set, mut edits) = (begin(Arc::new(MemEnv::new())), 0);
        while !set.manifest.is_long() {
            edit(&mut set).unwrap();
            edits += 1;
        }
        // The edit that makes the manifest long is written, and its sync fails.
        let disk = MemEnv::new();
        let faulty = FaultEnv::new(Arc::new(disk.clone()));
        let failing = Fault::once(FaultKind::Error(EIO)).among(Calls::Named("sync_data"));
        faulty.fail_at(edits - 1, failing);
        let mut set = begin(Arc::new(faulty));
        for _ in 1..edits {
            edit(&mut set).unwrap();
        }
        assert!(edit(&mut set).is_err() && set.manifest.is_long());
        let before = disk.list_files();
        assert!(edit(&mut set).is_err());
        assert_eq!(disk.list_files(), before);
    }
}
