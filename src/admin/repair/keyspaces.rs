//! The keyspaces of a damaged database, and which one each table and log entry is of.
//!
//! A trusted manifest says which keyspaces there are. Every other number that it has given is of a
//! dropped keyspace, which stays dropped. Numbers that it has not given are of keyspaces whose
//! creation is missing from it.
//!
//! Without a trusted manifest, the readable parts of manifests name keyspaces, and so does each
//! table in its properties. An entry of a log gives only the number of its keyspace. A name that no
//! file gives is made up, and the report says so.
//!
//! Files may disagree about names. A manifest is right against tables, and the newest table is
//! right against older ones. Two keyspaces with one name get it by number: a name is free again
//! only after its keyspace was dropped, so the higher number is the newer keyspace.

use crate::admin::repair::history::History;
use crate::admin::repair::inventory::{Inventory, TableFound};
use crate::admin::repair::report::RenamedKeyspace;
use crate::base::key::{
    DEFAULT_KEYSPACE, DEFAULT_KEYSPACE_NAME, KEYSPACE_NAME_BYTES_MAX, KeyspaceId, SequenceNumber,
};
use crate::tree::edit::KeyspaceMeta;
use crate::tree::manifest::ManifestRemains;
use std::collections::{BTreeMap, BTreeSet};

/// The keyspaces that the repaired database will have.
#[derive(Debug, Default)]
pub(crate) struct FoundKeyspaces {
    /// By number. `flushed_through` is where the entries of the logs begin that are in no table.
    pub there: BTreeMap<KeyspaceId, KeyspaceMeta>,
    /// Above the number of every keyspace that was ever created, as far as files say.
    pub next: u64,
    /// The largest time by which entries were taken for expired, as far as manifests say.
    pub expired_through: u64,
    /// The keyspaces whose names are made up.
    pub renamed: Vec<RenamedKeyspace>,
    /// By id: the keyspaces of tables, as manifests say.
    of_tables: BTreeMap<u64, KeyspaceId>,
}

/// Why the entries of a table go to no keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoKeyspace {
    /// Its keyspace was dropped.
    Dropped,
    /// Nothing that can be read says which keyspace it is of.
    Unknown,
}

impl FoundKeyspaces {
    /// Finds the keyspaces of the database. `logged` are those that entries of the logs name.
    pub(crate) fn find(
        found: &Inventory,
        history: &History,
        logged: &BTreeSet<KeyspaceId>,
    ) -> Self {
        let mut manifests: Vec<&ManifestRemains> = found.manifests.iter().map(|(_, m)| m).collect();
        // A manifest of another database says nothing about this one.
        manifests.retain(|manifest| [0, history.database.id].contains(&manifest.database.id));
        manifests.sort_by_key(|manifest| manifest.number);
        let mut keyspaces = FoundKeyspaces::default();
        for manifest in &manifests {
            keyspaces.of_tables.extend(&manifest.mentioned);
            keyspaces.next = keyspaces.next.max(manifest.next_keyspace);
            keyspaces.expired_through = keyspaces.expired_through.max(manifest.expired_through);
        }
        let is_dropped: Box<dyn Fn(KeyspaceId) -> bool> = match &history.manifest {
            Some(state) => {
                keyspaces.next = keyspaces.next.max(state.next_keyspace);
                keyspaces.of_tables.extend(state.tables().map(|(_, m)| (m.table_id, m.keyspace)));
                let there = state.keyspaces.values().map(|tables| tables.meta.clone());
                keyspaces.there = there.map(|meta| (meta.id, meta)).collect();
                Box::new(|id| u64::from(id) < state.next_keyspace)
            }
            None => {
                keyspaces.take_remains(&manifests);
                Box::new(|id| manifests.iter().any(|manifest| was_dropped(manifest, id)))
            }
        };
        let takes_part = |table: &&TableFound| {
            history.manifest.is_none() || history.newer.contains(&table.number)
        };
        let tables: Vec<&TableFound> = found.tables.iter().filter(takes_part).collect();
        let of_tables = tables.iter().filter_map(|table| keyspaces.number_of(table));
        let numbers: BTreeSet<KeyspaceId> = of_tables
            .chain(logged.iter().copied())
            .chain([DEFAULT_KEYSPACE])
            .filter(|id| *id == DEFAULT_KEYSPACE || !is_dropped(*id))
            .collect();
        keyspaces.add(&numbers, &tables);
        keyspaces
    }

    /// The keyspaces that the readable parts of `manifests` name, oldest manifest first.
    fn take_remains(&mut self, manifests: &[&ManifestRemains]) {
        for manifest in manifests {
            self.there.extend(manifest.keyspaces.clone());
        }
        self.there.retain(|id, _| {
            *id == DEFAULT_KEYSPACE || !manifests.iter().any(|m| was_dropped(m, *id))
        });
        // Every entry of the logs is used, because no manifest says which tables there are.
        self.there.values_mut().for_each(|meta| meta.flushed_through = 0);
    }

    /// Adds the keyspaces of `numbers` that are not there yet, named by `tables` or made up.
    fn add(&mut self, numbers: &BTreeSet<KeyspaceId>, tables: &[&TableFound]) {
        let mut by_age: Vec<&TableFound> = tables.to_vec();
        by_age.sort_by_key(|table| (table.meta().map_or(0, |m| m.largest_sequence), table.number));
        let missing = numbers.iter().filter(|id| !self.there.contains_key(id));
        let missing: Vec<KeyspaceId> = missing.copied().collect();
        // By number, the newest first.
        let mut all_said: BTreeMap<KeyspaceId, Vec<&str>> = BTreeMap::new();
        for table in by_age.iter().rev() {
            if let (Some(id), Some(name)) = (self.number_of(table), &table.keyspace_name) {
                all_said.entry(id).or_default().push(name);
            }
        }
        let mut names: BTreeMap<KeyspaceId, Option<&str>> = BTreeMap::new();
        for &id in &missing {
            let mut said = all_said.get(&id).into_iter().flatten().copied();
            let name = said.next();
            names.insert(id, name);
            if let Some((name, other)) = name.zip(said.find(|other| Some(*other) != name)) {
                let why = format!("its tables give it this name and {other:?}");
                self.renamed.push(RenamedKeyspace { number: id, name: name.into(), why });
            }
        }
        for (id, name) in &names {
            let name = name.unwrap_or_default().to_string();
            self.there.insert(*id, KeyspaceMeta { id: *id, name, ..KeyspaceMeta::default() });
        }
        self.name_uniquely();
        let highest = self.there.keys().next_back().map_or(0, |id| u64::from(*id));
        self.next = self.next.max(highest + 1);
    }

    /// Gives each keyspace a name that no other one has.
    fn name_uniquely(&mut self) {
        let mut taken = BTreeSet::from([DEFAULT_KEYSPACE_NAME.to_string()]);
        let mut without = Vec::new();
        for (id, meta) in self.there.iter_mut().rev() {
            if *id == DEFAULT_KEYSPACE {
                meta.name = DEFAULT_KEYSPACE_NAME.into();
            } else if meta.name.is_empty() || !taken.insert(meta.name.clone()) {
                without.push(*id);
            }
        }
        for id in without {
            let Some(meta) = self.there.get_mut(&id) else { continue };
            let why = match meta.name.is_empty() {
                true => "no file that can be read gives its name".into(),
                false => format!("another keyspace has its name {:?}", meta.name),
            };
            let name = made_up(&meta.name, id, &taken);
            self.renamed.retain(|renamed| renamed.number != id);
            self.renamed.push(RenamedKeyspace { number: id, name: name.clone(), why });
            taken.insert(name.clone());
            meta.name = name;
        }
        self.renamed.sort_by_key(|renamed| renamed.number);
    }

    /// The keyspace of a table, whether it is there or not; `None` if nothing says it.
    fn number_of(&self, table: &TableFound) -> Option<KeyspaceId> {
        let named = table.table_id.and_then(|id| self.of_tables.get(&id).copied());
        named.or(table.keyspace)
    }

    /// The keyspace that the entries of a table go to.
    pub(crate) fn of_table(&self, table: &TableFound) -> Result<KeyspaceId, NoKeyspace> {
        match self.number_of(table) {
            Some(id) if self.there.contains_key(&id) => Ok(id),
            Some(_) => Err(NoKeyspace::Dropped),
            // As far as files say, no other keyspace was ever created.
            None if self.next == u64::from(DEFAULT_KEYSPACE) + 1 => Ok(DEFAULT_KEYSPACE),
            None => Err(NoKeyspace::Unknown),
        }
    }

    /// The last sequence of a keyspace that is in its tables; `None` if its entries are not to be
    /// brought back, because it was dropped.
    pub(crate) fn flushed_through(&self, id: KeyspaceId) -> Option<SequenceNumber> {
        self.there.get(&id).map(|meta| meta.flushed_through)
    }

    /// The name of a keyspace.
    pub(crate) fn name_of(&self, id: KeyspaceId) -> Option<String> {
        self.there.get(&id).map(|meta| meta.name.clone())
    }
}

/// True if the readable part of a manifest proves that the keyspace was dropped. Numbers are never
/// used twice, so that holds in every later manifest too.
fn was_dropped(manifest: &ManifestRemains, id: KeyspaceId) -> bool {
    let is_known = u64::from(id) < manifest.known_below;
    manifest.dropped.contains(&id) || (is_known && !manifest.keyspaces.contains_key(&id))
}

/// A name for the keyspace `id` that is not in `taken`, like the name that it cannot have.
fn made_up(like: &str, id: KeyspaceId, taken: &BTreeSet<String>) -> String {
    let number = |n: u64| if n == 1 { String::new() } else { format!(" {n}") };
    let names = (1..).map(|n| match like {
        "" => format!("keyspace {id}{}", number(n)),
        _ => {
            let end = format!(" (keyspace {id}){}", number(n));
            let room = like.len().min(KEYSPACE_NAME_BYTES_MAX - end.len());
            let cut = (0..=room).rev().find(|at| like.is_char_boundary(*at));
            format!("{}{end}", &like[..cut.unwrap_or(0)])
        }
    });
    let mut free = names.filter(|name| !taken.contains(name));
    free.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::repair::inventory::TableState;
    use crate::base::error::Error;
    use std::time::{Duration, Instant};

    /// Programs with a keyspace for each of thousands of customers lose the manifest, too.
    #[test]
    fn a_keyspace_is_named_without_asking_all_tables() {
        let table = |number: u64| TableFound {
            number,
            table_id: Some(number),
            keyspace: Some(number as KeyspaceId),
            keyspace_name: Some(number.to_string()),
            databases: Vec::new(),
            global_sequence: None,
            lacks_sequence: false,
            state: TableState::Unusable(Error::Closed),
        };
        let time_of = |count: u64| -> Duration {
            let tables = (1..=count).map(table).collect();
            let found = Inventory { tables, ..Inventory::default() };
            let started = Instant::now();
            let keyspaces = FoundKeyspaces::find(&found, &History::default(), &BTreeSet::new());
            let took = started.elapsed();
            assert_eq!(keyspaces.there.len() as u64, 1 + count);
            assert!(keyspaces.renamed.is_empty());
            took
        };
        let few = (0..9).map(|_| time_of(1_000)).min().unwrap();
        let many = (0..3).map(|_| time_of(20_000)).min().unwrap();
        // 20 times as many; the square of that is 400.
        assert!(many < 120 * few, "{few:?} and {many:?}");
    }
}
