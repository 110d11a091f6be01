//! The trees of all keyspaces: opened as a manifest describes them.

use crate::base::error::Result;
use crate::base::key::KeyspaceId;
use crate::base::levels::LEVELS;
use crate::base::sync::Arc;
use crate::table::reader::TableContext;
use crate::tree::edit::KeyspaceMeta;
use crate::tree::file_meta::FileMeta;
use crate::tree::handle::{ObsoleteFiles, TableHandle};
use crate::tree::manifest_state::ManifestState;
use crate::tree::new_tables::PinningByLevel;
use crate::tree::open_tables::open_tables;
use crate::tree::version::Version;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// The tree of one keyspace.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub meta: KeyspaceMeta,
    pub current: Arc<Version>,
}

impl Tree {
    pub(super) fn tables(&self) -> impl Iterator<Item = (usize, &Arc<TableHandle>)> {
        self.current.tables_by_level()
    }
}

/// The trees that `state` describes. Tables and whole versions that are in `before` are shared.
pub(super) fn open_trees(
    context: &TableContext,
    directory: &Path,
    pinning: &dyn Fn(KeyspaceId) -> PinningByLevel,
    state: &ManifestState,
    obsolete: &Arc<ObsoleteFiles>,
    before: &BTreeMap<KeyspaceId, Tree>,
) -> Result<BTreeMap<KeyspaceId, Tree>> {
    let handles = before.values().flat_map(Tree::tables);
    let open: HashMap<u64, &Arc<TableHandle>> =
        handles.map(|(_, handle)| (handle.meta.number, handle)).collect();
    let known = |meta: &FileMeta| open.get(&meta.number).filter(|handle| *handle.meta == *meta);
    let pinning: BTreeMap<_, _> = state.keyspaces.keys().map(|&id| (id, pinning(id))).collect();
    let new = state.tables().filter(|(_, meta)| known(meta).is_none());
    let wanted = new.map(|(level, meta)| (meta, pinning[&meta.keyspace][level]));
    let mut opened = open_tables(context, directory, &wanted.collect::<Vec<_>>())?.into_iter();
    let mut trees = BTreeMap::new();
    for (&id, keyspace) in &state.keyspaces {
        let levels: [Vec<Arc<TableHandle>>; LEVELS] = std::array::from_fn(|level| {
            let handle = |meta: &FileMeta| match known(meta) {
                Some(handle) => Some(Arc::clone(handle)),
                None => Some(TableHandle::new(Arc::new(meta.clone()), opened.next()?, obsolete)),
            };
            // `opened` has one table for each that is not known, in this order.
            keyspace.levels[level].iter().filter_map(handle).collect()
        });
        let same = |tree: &&Tree| {
            let pairs = levels.iter().zip((0..LEVELS).map(|level| tree.current.level(level)));
            let same_level = |ours: &[Arc<TableHandle>], theirs: &[Arc<TableHandle>]| {
                ours.len() == theirs.len()
                    && ours.iter().zip(theirs).all(|(ours, theirs)| Arc::ptr_eq(ours, theirs))
            };
            pairs.into_iter().all(|(ours, theirs)| same_level(ours, theirs))
        };
        let current = match before.get(&id).filter(same) {
            Some(tree) => Arc::clone(&tree.current),
            None => Arc::new(Version::new(levels)),
        };
        trees.insert(id, Tree { meta: keyspace.meta.clone(), current });
    }
    Ok(trees)
}
