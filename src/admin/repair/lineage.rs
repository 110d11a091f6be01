//! Finds the tables of other databases and leaves them out of the inventory.
//!
//! A table names the database that wrote it, and the ancestors of that database. A table is foreign
//! if its writer is neither this database nor one of its ancestors, and no manifest of this
//! database mentions the table. The ancestors are in the manifest, and in each table that this
//! database or an ancestor wrote. Each names the nearest [`ANCESTORS_MAX`]. If neither is there, no
//! table is foreign: a checkpoint without its manifest has only tables of its source. Tables of
//! version 0.1 name no database, and are never foreign.

use crate::admin::repair::inventory::{Inventory, TableFound};
use crate::log::wal::format::DatabaseIdentity;
use crate::tree::edit::ANCESTORS_MAX;
use crate::tree::manifest::ManifestRemains;

/// Moves the tables of other databases from `found.tables` to `found.foreign`.
pub(crate) fn leave_out_foreign(found: &mut Inventory) {
    let logged: Vec<u128> = found.logged.iter().map(|database| database.id).collect();
    let manifests = by_manifests(found, &logged).map(|manifest| manifest.database.id);
    // A log of another database does not count: without a manifest, a table must name the id too.
    let is_writer = |id: &u128| found.tables.iter().any(|table| writer_of(table) == Some(*id));
    let mut ids: Vec<u128> = manifests.collect();
    ids.extend(logged.iter().copied().filter(is_writer));
    let Some(id) = ids.into_iter().find(|id| *id != 0) else { return };
    let ours = || found.manifests.iter().map(|(_, m)| m).filter(|m| m.database.id == id);
    let mut family = vec![id];
    family.extend(ours().flat_map(|manifest| &manifest.ancestors));
    // A table of an ancestor names that database's own ancestors, also those beyond the bound.
    let mut checked = 0;
    while let Some(of) = family.get(checked).copied() {
        checked += 1;
        let own = found.tables.iter().filter(|table| writer_of(table) == Some(of));
        for ancestor in own.flat_map(|table| &table.databases) {
            if !family.contains(ancestor) {
                family.push(*ancestor);
            }
        }
    }
    let is_foreign = |table: &TableFound| {
        let is_mentioned = |id: u64| ours().any(|manifest| manifest.mentioned.contains_key(&id));
        writer_of(table).is_some_and(|writer| !family.contains(&writer))
            && !table.table_id.is_some_and(is_mentioned)
    };
    let foreign = found.tables.iter().filter(|table| is_foreign(table));
    let foreign: Vec<u64> = foreign.map(|table| table.number).collect();
    found.tables.retain(|table| !foreign.contains(&table.number));
    found.foreign = foreign;
    found.sum_up();
}

/// The id of the repaired database `database`, then those of its ancestors: all whose tables it may
/// keep.
pub(crate) fn databases_of(found: &Inventory, database: DatabaseIdentity) -> Vec<u128> {
    let mut databases = vec![database.id];
    let writers = found.tables.iter().filter_map(writer_of);
    let named = found.manifests.iter().filter(|(_, m)| m.database.id == database.id);
    let named = named.flat_map(|(_, manifest)| manifest.ancestors.iter().copied());
    let by_tables = found.tables.iter().flat_map(|table| table.databases.iter().copied());
    for id in writers.chain(named).chain(by_tables) {
        if !databases.contains(&id) {
            databases.push(id);
        }
    }
    databases.truncate(1 + ANCESTORS_MAX);
    databases
}

/// The manifests that mention a table that is there, or whose database a log names, newest first.
/// Nothing else here speaks for the manifest of another database.
fn by_manifests<'f>(
    found: &'f Inventory,
    logged: &[u128],
) -> impl Iterator<Item = &'f ManifestRemains> {
    let is_there = |id: &u64| found.tables.iter().any(|table| table.table_id == Some(*id));
    let mut manifests: Vec<_> = found.manifests.iter().map(|(_, manifest)| manifest).collect();
    manifests.retain(|manifest| {
        logged.contains(&manifest.database.id) || manifest.mentioned.keys().any(is_there)
    });
    manifests.sort_by_key(|manifest| std::cmp::Reverse(manifest.number));
    manifests.into_iter()
}

fn writer_of(table: &TableFound) -> Option<u128> {
    table.databases.first().copied()
}
